#!/usr/bin/env python3
"""Runs tests and prints one closing line: 'N passed, N failed, N skipped'.

    tests/run.py check|test|long [--share K/N] [--only PART,PART]

check     what is quick: unit tests, the house checks, the first tests against real servers
test      that and all that guards a promise, some of it with ASan and UBSan
long      that and all the rest, and the lane's tests with the server under valgrind
--share   with `test`: then also the Kth of N shares of the tier "long" (tests/conftest.py)
--only    some of the parts: unit, asan, integration, provision, clients, worker, replication,
          machines, valgrind

DOVELANE_WERROR=1: warnings are errors, as in CI.
DOVELANE_TRIXIE_ROOT names a Debian 13 root directory, in which the part "replication" finds a
second Dovecot version, DOVELANE_FORKY_ROOT one of Debian 14 for a third; DOVELANE_TRIXIE_BUILD,
DOVELANE_FORKY_BUILD the build for it, a path inside (default: /build/main). With the first, `long`
runs these tests once more, the first replica of each with 2.4, the second with 2.3, and so on. The
cell mixed-gcc of `make matrix` has all of that.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
PLAIN, ASAN = ROOT / "build", ROOT / "build-asan"
# Folders of tests, and how many files of each at a time on two cores: most of the time they wait.
FOLDERS = {"integration": ("tests/integration", 5), "provision": ("tests/provision", 3),
           "clients": ("tests/clients", 3), "worker": ("tests/worker", 3),
           "replication": ("tests/replication", 3), "machines": ("tests/machines", 2)}
PARTS = ["unit", "asan", *FOLDERS, "valgrind"]
PATIENT = ["--timeout-multiplier", "4"]  # limits are against hanging; a busy machine is no failure
# Not with --werror: the sanitizers' own checks make gcc guess at formats that are NULL.
SANITIZE = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dbuildtype=debugoptimized"]
# What runs within Dovecot, whose programs have no sanitizers, and what only computes.
NOT_SANITIZED = ("dovecot-plugin/worker/", "dovecot-plugin/plugin/", "dovecot-plugin/doveadm/",
                 "tests/model/")
# Leaks are the unit tests' work: a daemon that is killed has no end at which to look for them.
SANITIZED = {"DOVELANE_ASAN": "1", "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
             "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.parts, self.failures = [], []

    def add(self, name, passed, failed, skipped, seconds, failures=()):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.parts.append(f"  {name:<42} {passed:>5} passed {failed:>3} failed {skipped:>3} skipped"
                          f" {seconds:>6.0f} s")
        self.failures += [f"  {name}: {failure}" for failure in failures]


def run(command, **keywords):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run([str(c) for c in command], cwd=ROOT, **keywords).returncode


def set_up(folder, options):
    if not (folder / "build.ninja").exists():
        return run(["meson", "setup", folder, *options]) == 0
    if "--werror" in options:  # `make` set it up, for which a newer compiler's warning is no error
        return run(["meson", "configure", folder, "-Dwerror=true"]) == 0
    return True


def build(folder, options, tally, targets=list):
    start = time.monotonic()
    ok = set_up(folder, options) and run(["ninja", "-C", folder, *targets()]) == 0
    tally.add(f"build {folder.name}", int(ok), int(not ok), 0, time.monotonic() - start)
    return ok


def counts(junit):
    """Passed, failed, skipped of a JUnit file, and what failed, a line each.

    A missing file is one failure. The lines are printed again below the counts.
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
                name = f"{case.get('classname', '')} {case.get('name')}"
                failures.append(f"{name}: {kind}: {said[:1200]}")
    return total - failed - skipped, failed, skipped, failures


def told(case):
    """Of a program's output, what says why it failed: meson gives no message."""
    lines = [line for stream in ("system-out", "system-err")
             for line in (case.findtext(stream) or "").splitlines() if line.strip()]
    why = [line for line in lines if re.match(r"FAILED |ERROR |E  ", line)
           or re.search(r"[Aa]ssert|runtime error|Sanitizer:", line)]
    return " / ".join((why or lines)[-4:])


def introspect(folder, what):
    return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())


def sanitized_targets():
    """Names for ninja of what is tested with ASan and UBSan."""
    return [os.path.relpath(target["filename"][0], ASAN) for target in introspect(ASAN, "targets")
            if not os.path.relpath(target["defined_in"], ROOT).startswith(NOT_SANITIZED)]


def unit_tests(folder, tiers, share=(0, 1)):
    """Names of the unit tests of these tiers: the Kth of N shares of them."""
    suites = {f"dovelane:{tier}" for tier in tiers}
    tests = introspect(folder, "tests")
    return sorted(test["name"] for test in tests if suites & set(test["suite"]))[share[0]::share[1]]


def unit(folder, name, names, tally):
    start = time.monotonic()
    at_once = str(2 * (os.cpu_count() or 1))  # some only wait: for Postfix's programs, for clocks
    command = ["meson", "test", "-C", folder, *PATIENT, "--num-processes", at_once,
               "--print-errorlogs", *names]
    tell_unit(folder, "testlog", name, run(command), start, tally)


def tell_unit(folder, log, name, code, start, tally):
    passed, failed, skipped, failures = counts(folder / "meson-logs" / f"{log}.junit.xml")
    if code and not failed:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - start, failures)


class Beside:
    """What runs beside all that follows, and gives way to it; its output comes when it ends."""

    def __init__(self, name, log, command, tell):
        self.name, self.tell, self.begun = name, tell, time.time()
        self.log = open(log, "w+", encoding="utf-8", errors="replace")
        command = ["nice", "-n", "19", *map(str, command)]
        print("+", " ".join(command), "&", flush=True)
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log,
                                        stderr=subprocess.STDOUT)

    def finish(self, tally):
        code = self.process.wait()
        took = os.path.getmtime(self.log.name) - self.begun  # it may have ended long ago
        self.log.seek(0)
        print(self.log.read(), flush=True)
        self.tell(self.name, code, time.monotonic() - took, tally)
        return code == 0


def build_beside(folder, options):
    """None when it cannot be set up."""
    def tell(name, code, start, tally):
        tally.add(name, int(code == 0), int(code != 0), 0, time.monotonic() - start)
    if not set_up(folder, options):
        return None
    command = ["ninja", "-C", folder, *sanitized_targets()]
    return Beside(f"build {folder.name}", folder / "build.txt", command, tell)


def unit_beside(folder, name, names):
    """Computations of minutes."""
    command = ["meson", "test", "-C", folder, *PATIENT, "--no-rebuild", "--logbase", "slow",
               "--print-errorlogs", *names]
    return Beside(name, folder / "slow.txt", command,
                  lambda *told: tell_unit(folder, "slow", *told))


def files_of(pattern, tiers):
    """Files, or folders of them; for "check" alone the few files that have such tests."""
    found = sorted(ROOT.glob(pattern))
    if tiers == ["check"]:
        found = [path for each in found
                 for path in ([each] if each.is_file() else sorted(each.rglob("test_*.py")))
                 if "pytest.mark.check" in path.read_text()]
    return found


def pytest(name, part, tiers, tally, *, folder=PLAIN, files=None, share=(0, 1), marks=None,
           env=None):
    """Each test has servers of its own, and ports are reserved."""
    start = time.monotonic()
    tests, at_once = FOLDERS[part]
    paths = files_of(files or tests, tiers)
    if not paths:
        return
    junit = folder / f"{re.sub('[^a-z]+', '-', name)}.xml"
    junit.unlink(missing_ok=True)
    code = run([PYTHON, "-m", "pytest", "-q", "-n", at_once, "--dist", "loadfile",
                "--durations", "15", "--tier=" + ",".join(tiers),
                "--share", "/".join(map(str, share)), *(["-m", marks] if marks else []),
                f"--junitxml={junit}", *paths],
               env=dict(os.environ, DOVELANE_BUILD=str(folder), **(env or {})))
    passed, failed, skipped, failures = counts(junit)
    if code not in (0, 5) and not failed:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - start, failures)


def folders(tiers, parts, tally, share=(0, 1)):
    for part in FOLDERS:
        if part in parts and part != "machines":
            pytest(f"{part}, {' and '.join(tiers)}", part, tiers, tally, share=share)
    # A guide's commands follow each other: all in the last share. Other releases' machines are
    # for `make test-machines`.
    if "machines" in parts and share[0] == share[1] - 1:
        pytest(f"machines, {' and '.join(tiers)}", "machines", tiers, tally, marks="here")


def sanitized_core(tiers, tally, share=(0, 1)):
    pytest(f"core, ASan + UBSan, {' and '.join(tiers)}", "integration", tiers, tally, folder=ASAN,
           share=share, marks="core", env=SANITIZED)


def guard(tiers, parts, tally):
    """The tiers "check" and "test". What has sanitizers is built beside the tests that wait."""
    if "unit" in parts:
        unit(PLAIN, "unit", unit_tests(PLAIN, tiers), tally)
    asan = "asan" in parts and "test" in tiers
    beside = build_beside(ASAN, SANITIZE) if asan else None
    folders(tiers, parts, tally)
    if beside and beside.finish(tally):
        unit(ASAN, "unit, ASan + UBSan", unit_tests(ASAN, tiers), tally)
        sanitized_core(["check"], tally)
    elif asan and not beside:
        tally.add(f"setup {ASAN.name}", 0, 1, 0, 0)


def rest(tiers, parts, tally, share=(0, 1)):
    """The tiers "long" and "exhaustive"."""
    names = unit_tests(PLAIN, tiers, share) if "unit" in parts else []
    beside = unit_beside(PLAIN, f"unit, {' and '.join(tiers)}", names) if names else None
    folders(tiers, parts, tally, share)
    if "asan" in parts and build(ASAN, SANITIZE, tally, sanitized_targets):
        sanitized_core(["test", "long"], tally, share)
    if beside:
        beside.finish(tally)


def versions_and_valgrind(parts, tally):
    if "replication" in parts and os.environ.get("DOVELANE_TRIXIE_ROOT"):
        pytest("replication, versions mixed", "replication", ["check", "test", "long"], tally,
               env={"DOVELANE_VERSIONS": "2.4,2.3"})
    if "valgrind" in parts:
        pytest("lane, valgrind", "integration", ["check", "test", "long"], tally,
               files="tests/integration/lane/test_lane_*.py", env={"DOVELANE_VALGRIND": "1"})


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("tier", choices=["check", "test", "long"])
    parser.add_argument("--share")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    options.only = set(options.only.split(","))
    if options.share:
        options.share = tuple(map(int, options.share.split("/")))
    if options.only - set(PARTS) or options.share and options.tier != "test":
        parser.error("see the head of tests/run.py")
    return options


def main():
    options, tally = arguments(), Tally()
    if build(PLAIN, ["--werror"] if os.environ.get("DOVELANE_WERROR") else [], tally):
        guard(["check"] if options.tier == "check" else ["check", "test"], options.only, tally)
        if options.share:
            rest(["long"], options.only, tally, options.share)
        if options.tier == "long":
            rest(["long", "exhaustive"], options.only, tally)
            versions_and_valgrind(options.only, tally)
    print("\n" + "\n".join(tally.parts))
    if tally.failures:
        print("\nFailed:\n" + "\n".join(tally.failures))
    print(f"\n{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
