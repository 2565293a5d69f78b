# Thin wrappers: what each does stands in setup, meson.build and tests/.
PYTHON := /usr/bin/python3
BUILD  := build

.PHONY: all run test test-unit test-asan test-integration test-long bench clean format

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) --werror

# Installs what is missing, builds, sends real mail through a private Postfix, two nodes, a relay and a Dovecot, shows
# what happened, and leaves nothing behind.
run:
	./setup run
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/demo/demo.py

test:
	./setup test
	$(PYTHON) tests/run.py

test-long:
	./setup test
	$(PYTHON) tests/run.py --long

# make bench, make bench-gateway: tables on the screen, figures in build/bench/NAME.json
bench:
	./setup bench
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/bench/run.py

bench-%:
	./setup bench
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/bench/run.py $*

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(BUILD)-asan
