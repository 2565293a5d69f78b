# Thin wrappers: what each does is in setup, meson.build and tests/.
PYTHON := /usr/bin/python3
BUILD  := build

.PHONY: all install uninstall deb run stop check test test-long test-machines test-packages chaos histories week fuzz \
	bench matrix compatibility clean format tidy coverage docs pictures bench-page

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD)

# Programs, lane.so, manuals, units, examples (docs/admin-guide.md says what to do with them). DESTDIR is obeyed.
install: all
	meson install -C $(BUILD) --no-rebuild

# What was installed last from here; settings, lanes and states stay.
uninstall:
	ninja -C $(BUILD) uninstall

# Debian packages for the release that this runs on, below build/deb. No test is run, and nothing is installed but what
# the build needs.
deb:
	./setup deb
	packaging/make-deb

# The packages of `make deb` on booted Debians: installed, upgraded from 0.1.0, removed, purged. Root; no part of `make test`.
test-packages: deb
	DOVELANE_DEBS=$(CURDIR)/$(BUILD)/deb $(PYTHON) -m pytest -q -s -p no:cacheprovider tests/packages

# Installs what is missing, builds, and shows both halves. Mail goes through a private Postfix and three nodes, of which
# one dies. A user's mailboxes are at three Dovecot sites, whose links are cut. Leaves nothing behind; with WATCH=1 it runs on.
WATCH :=
run:
	@[ "$$(id -u)" = 0 ] || { echo "make run: Postfix's and Dovecot's masters need root: sudo make run" >&2; exit 1; }
	./setup run
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/demo/demo.py $(if $(WATCH),--watch)

# Ends what `make run WATCH=1` left.
stop:
	$(PYTHON) tests/demo/demo.py --stop

# What CONTRIBUTING.md's table says. SHARE=K/N: then also the Kth of N shares of the tier "long".
SHARE :=
check:
	./setup test
	$(PYTHON) tests/run.py check

test:
	./setup test
	$(PYTHON) tests/run.py test $(if $(SHARE),--share $(SHARE))

# Each fuzz target MINUTES long under ASan and UBSan, with counts; TARGETS="state log" chooses (tests/fuzz/run.py).
MINUTES := 10
TARGETS :=
fuzz:
	./setup test
	$(PYTHON) tests/fuzz/run.py --minutes $(MINUTES) --seed $(SEED) $(TARGETS)

test-long:
	./setup long beside containers
	$(PYTHON) tests/run.py long

# Debian 12 and 13 with systemd, two machines at a time, follow the guides (root; tests/machines/machine.py says what is needed).
test-machines:
	./setup test
	$(MAKE) --no-print-directory all
	DOVELANE_BUILD=$(CURDIR)/$(BUILD) DOVELANE_DEBS=$${DOVELANE_DEBS-$(CURDIR)/build/deb} $(PYTHON) -m pytest -q -s tests/machines

# Random faults under load, ROUNDS of them, told by SEED: nothing that was answered 250 is lost.
SEED   := 1
ROUNDS := 20
chaos:
	./setup test
	$(MAKE) --no-print-directory all
	DOVELANE_SEED=$(SEED) DOVELANE_ROUNDS=$(ROUNDS) DOVELANE_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) -m pytest -q -s -p no:cacheprovider \
		tests/integration/gateway/test_chaos.py --tier check,test,long

# As many histories of IMAP clients at three sites under faults, told by SEED, each held to the rules (docs/proof.md).
histories:
	./setup test
	$(MAKE) --no-print-directory all
	DOVELANE_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) tests/replication/histories.py --seed $(SEED) --rounds $(ROUNDS)

# So many users with mbsync, offlineimap, IDLE and POP3 at three sites, and a fault a minute: what clients load again, and
# what they miss. Takes MINUTES and some more until all is quiet.
USERS := 50
week: MINUTES := 60
week:
	./setup long
	$(MAKE) --no-print-directory all
	DOVELANE_BUILD=$(CURDIR)/$(BUILD) $(PYTHON) tests/replication/week.py --minutes $(MINUTES) --users $(USERS) --seed $(SEED)

# make bench, make bench-gateway: tables on the screen, figures in build/bench/NAME.json
bench:
	./setup bench
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/bench/run.py

# docs/benchmarks.md and its plots, from the newest figures of build/bench and docs/lab/results.
bench-page:
	$(PYTHON) tests/bench/page.py --take

bench-%:
	./setup bench
	$(MAKE) --no-print-directory all
	$(PYTHON) tests/bench/run.py $*

# The drawings of the documents: docs/pictures/NAME.svg from NAME.dot.
pictures:
	./setup docs
	$(PYTHON) tests/house/check_pictures.py --write

# The documents as a site with search: build/site/html.
docs:
	./setup docs
	$(PYTHON) docs/make_site.py $(BUILD)/site --build

# C sources, as .clang-format and .clang-tidy want them: Debian 12's versions of both (14).
format:
	./setup format
	git ls-files '*.c' '*.h' | xargs clang-format-14 -i

tidy:
	./setup format
	$(MAKE) --no-print-directory all
	git ls-files 'lib/*.c' 'milter/*.c' 'proxy/*.c' 'relay/*.c' 'ctl/*.c' 'redis-module/*.c' 'dovecot-plugin/*.c' | \
		xargs -n 8 -P $$(nproc) clang-tidy-14 -p $(BUILD) --quiet

# Which lines of the product the unit tests run, and TESTS beside them: a table, and build-coverage/html.
TESTS :=
coverage:
	./setup test coverage
	$(PYTHON) tests/coverage.py $(TESTS)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz $(BUILD)-coverage

# Debian releases, compilers and servers, a cell each (tests/matrix/matrix.py). CELLS="trixie-gcc forky-*" LEVEL=whole AGAIN=yes
CELLS :=
LEVEL := core
matrix:
	./setup matrix
	$(PYTHON) tests/matrix/matrix.py --level $(LEVEL) $(if $(AGAIN),--again) $(if $(FRESH),--fresh) $(foreach cell,$(CELLS),'$(cell)')

# COMPATIBILITY.md from what ran.
compatibility:
	$(PYTHON) tests/matrix/page.py
