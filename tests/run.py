#!/usr/bin/env python3
"""Runs all tests and prints one closing line: 'N passed, N failed'.

    1. builds (with DOVELANE_WERROR=1, as CI does, warnings are errors), runs the C unit tests and the house check
    2. the same with ASan and UBSan
    3. the integration tests against real servers
    4. their core with the sanitized programs; part 3 leaves it out then, unless --long is given
    5. replication: real Dovecots, two and three, against the scenario table, damage, kills and a soak
    7. machines: two Debians with systemd follow the guides to the first mail, a reboot and a stop of Redis (`make test-machines` goes on)

--long adds the long variants (`-m long`, long fuzzing) and
    6. the lane's tests with the server under valgrind
--only 1,3 runs some of the parts.
DOVELANE_TRIXIE_ROOT names a Debian 13 root directory, in which part 5 finds a second Dovecot version; DOVELANE_TRIXIE_BUILD the
build for it, a path inside (default: /build/main). With --long the replication tests run once more then, the first replica of each with 2.4,
the second with 2.3, and so on.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
AT_ONCE, REPLICAS_AT_ONCE = 5, 3  # files at a time, on two cores: most of the time they wait; replicas less
PATIENT = ["--timeout-multiplier", "4"]  # limits are against hanging; a busy machine is no failure
# Not with --werror: the sanitizers' own checks make gcc guess at formats that are NULL.
SANITIZE = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dbuildtype=debugoptimized"]


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.parts, self.failures = [], []

    def add(self, name, passed, failed, skipped, seconds, failures=()):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.parts.append(f"  {name:<42} {passed:>5} passed {failed:>3} failed {skipped:>3} skipped {seconds:>6.0f} s")
        self.failures += [f"  {name}: {failure}" for failure in failures]


def run(command, **keywords):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run([str(c) for c in command], cwd=ROOT, **keywords).returncode


def build(folder, options, tally):
    start = time.monotonic()
    if not (folder / "build.ninja").exists():
        if run(["meson", "setup", folder, *options]):
            tally.add(f"setup {folder.name}", 0, 1, 0, time.monotonic() - start)
            return False
    elif "--werror" in options:  # `make` set it up, for which a newer compiler's warning is no error
        run(["meson", "configure", folder, "-Dwerror=true"])
    ok = run(["ninja", "-C", folder]) == 0
    tally.add(f"build {folder.name}", int(ok), int(not ok), 0, time.monotonic() - start)
    return ok


def counts(junit):
    """Passed, failed, skipped of a JUnit file, and what failed, a line each; a missing file is one failure.

    The lines stand again below the counts, where one looks who sees only the end of a long output.
    """
    try:
        root = ET.parse(junit).getroot()
    except (OSError, ET.ParseError):
        return 0, 1, 0, [f"{junit.name} was not written"]
    total = failed = skipped = 0
    for s in root.iter("testsuite"):
        total += int(s.get("tests", 0))
        failed += int(s.get("failures", 0)) + int(s.get("errors", 0))
        skipped += int(s.get("skipped", 0) or 0)
    failures = []
    for case in root.iter("testcase"):
        for kind in ("failure", "error"):
            for trouble in case.findall(kind):
                said = " ".join((trouble.get("message") or told(case)).split())
                failures.append(f"{case.get('classname', '')} {case.get('name')}: {kind}: {said[:1200]}")
    return total - failed - skipped, failed, skipped, failures


def told(case):
    """Of a program's output, what says why it failed: meson gives no message."""
    lines = [line for stream in ("system-out", "system-err") for line in (case.findtext(stream) or "").splitlines() if line.strip()]
    why = [line for line in lines if re.match(r"FAILED |ERROR |E  ", line) or re.search(r"[Aa]ssert|runtime error|Sanitizer:", line)]
    return " / ".join((why or lines)[-4:])


def unit(folder, name, suites, tally):
    start = time.monotonic()
    command = ["meson", "test", "-C", folder, *PATIENT, "--print-errorlogs", *suites]
    code = run(command)
    tell_unit(folder, "testlog", name, code, start, tally)


def tell_unit(folder, log, name, code, start, tally):
    passed, failed, skipped, failures = counts(folder / "meson-logs" / f"{log}.junit.xml")
    if code and not failed:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - start, failures)


class Beside:
    """A part that runs beside all that follows, and gives way to it; its output comes when it ends."""

    def __init__(self, name, log, command, tell, nice, env=None):
        self.name, self.tell, self.begun = name, tell, time.time()
        self.log = open(log, "w+", encoding="utf-8", errors="replace")
        command = ["nice", "-n", str(nice), *map(str, command)]
        print("+", " ".join(command), "&", flush=True)
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=self.log, stderr=subprocess.STDOUT)

    def finish(self, tally):
        code = self.process.wait()
        took = os.path.getmtime(self.log.name) - self.begun  # it may have ended long ago
        self.log.seek(0)
        print(self.log.read(), flush=True)
        self.tell(self.name, code, time.monotonic() - took, tally)


def long_computations(folder):
    """The unit tests that only compute, for minutes."""
    command = ["meson", "test", "-C", folder, *PATIENT, "--no-rebuild", "--logbase", "slow", "--print-errorlogs", "--suite", "slow"]
    return Beside("unit, the long computations", folder / "slow.txt", command, lambda *told: tell_unit(folder, "slow", *told), 19)


def machines(folder, marks):
    """Most of their time they unpack Debians, and wait for them."""
    junit, command, env = pytest(folder, "machines", marks, "tests/machines", 2)
    return Beside("machines", folder / "machines.txt", command, lambda *told: tell_tests(junit, *told), 5, env)


def pytest(folder, name, marks, tests, at_once, extra_env=None):
    """The file that will hold the results, the command, its environment. Each test has servers of its own, and ports are reserved."""
    junit = folder / f"{re.sub('[^a-z]+', '-', name)}.xml"
    junit.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(at_once), "--dist", "loadfile", "--durations", "15", "-m", marks,
               f"--junitxml={junit}", *sorted(ROOT.glob(tests))]
    return junit, command, dict(os.environ, DOVELANE_BUILD=str(folder), **(extra_env or {}))


def tell_tests(junit, name, code, start, tally):
    passed, failed, skipped, failures = counts(junit)
    if code not in (0, 5) and not failed:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - start, failures)


def integration(folder, name, marks, tally, extra_env=None, tests="tests/integration", at_once=AT_ONCE):
    start = time.monotonic()
    junit, command, env = pytest(folder, name, marks, tests, at_once, extra_env)
    tell_tests(junit, name, run(command, env=env), start, tally)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", default="1,2,3,4,5,6,7")
    options = parser.parse_args()
    parts = set(options.only.split(","))
    plain, asan = ROOT / "build", ROOT / "build-asan"
    tally = Tally()
    built = build(plain, ["--werror"] if os.environ.get("DOVELANE_WERROR") else [], tally)
    if built and "1" in parts:
        unit(plain, "unit", ["--suite", "unit", "--no-suite", "slow"] + ["--suite", "long"] * options.long, tally)
    beside = [long_computations(plain)] if built and "1" in parts else []
    if built and "7" in parts:
        beside.append(machines(plain, "here" if options.long else "short and here"))
    core_ran = False
    if parts & {"2", "4"} and build(asan, SANITIZE, tally):
        core_ran = "4" in parts
        if "2" in parts:
            unit(asan, "unit, ASan + UBSan", ["--suite", "unit", "--no-suite", "slow"], tally)
        if "4" in parts:
            integration(asan, "integration core, ASan + UBSan", "core and not long", tally,
                        # Leaks are the unit tests' work: a daemon that is killed has no end at which to look for them.
                        {"DOVELANE_ASAN": "1", "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"})
    if built and "3" in parts:
        integration(plain, "integration", "long or not long" if options.long else "not long and not core" if core_ran else "not long", tally)
        integration(plain, "provision", "long or not long" if options.long else "not long", tally, tests="tests/provision", at_once=REPLICAS_AT_ONCE)
    if built and "5" in parts:
        integration(plain, "replication", "long or not long" if options.long else "not long", tally, tests="tests/replication", at_once=REPLICAS_AT_ONCE)
        if options.long and os.environ.get("DOVELANE_TRIXIE_ROOT"):
            integration(plain, "replication, versions mixed", "not long", tally, {"DOVELANE_VERSIONS": "2.4,2.3"}, tests="tests/replication", at_once=REPLICAS_AT_ONCE)
    if built and options.long and "6" in parts:
        integration(plain, "lane, valgrind", "not long", tally, {"DOVELANE_VALGRIND": "1"}, tests="tests/integration/test_lane_*.py")
    for part in beside:
        part.finish(tally)
    print("\n" + "\n".join(tally.parts))
    if tally.failures:
        print("\nFailed:\n" + "\n".join(tally.failures))
    print(f"\n{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
