#!/usr/bin/env python3
"""Which lines of the product are run: by the unit tests, and by test files that are named.

    usage: coverage.py [FILE]...

Prints a line per folder, and writes build-coverage/html. A program that is killed with SIGKILL
counts nothing, so tests of kills show less than they run.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-coverage"
PRODUCT = ("lib", "milter", "proxy", "relay", "ctl", "redis-module", "dovecot-plugin")


def run(*command, **keywords):
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], cwd=ROOT, **keywords).returncode


def folders(text):
    """(lines run, lines) of each folder, from gcovr's CSV."""
    found = {}
    for line in text.splitlines()[1:]:
        name, lines, covered = line.split(",")[:3]
        folder = str(pathlib.PurePath(name).parent)
        run_, all_ = found.get(folder, (0, 0))
        found[folder] = (run_ + int(covered), all_ + int(lines))
    return found


def main():
    if not (BUILD / "build.ninja").exists() and run("meson", "setup", BUILD, "-Db_coverage=true", "-Dbuildtype=debug"):
        return 1
    if run("ninja", "-C", BUILD):
        return 1
    for data in BUILD.rglob("*.gcda"):
        data.unlink()
    failed = run("meson", "test", "-C", BUILD, "--suite", "check", "--suite", "test", "--no-suite", "house",
                 "--timeout-multiplier", "4")
    if sys.argv[1:]:
        environment = {**os.environ, "DOVELANE_BUILD": str(BUILD)}
        failed |= run("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier=check,test", *sys.argv[1:],
                      env=environment)
    filters = [word for folder in PRODUCT for word in ("--filter", f"{folder}/")]
    (BUILD / "html").mkdir(exist_ok=True)
    table = subprocess.run(["gcovr", "-r", ".", BUILD, *filters, "--csv", "--html-details", BUILD / "html/index.html",
                            "--gcov-ignore-parse-errors"], cwd=ROOT, capture_output=True, text=True)
    if table.returncode:
        print(table.stderr, file=sys.stderr)
        return 1
    found = folders(table.stdout)
    print(f"{'folder':<36} {'lines':>7} {'run':>6}")
    for folder, (ran, lines) in sorted(found.items()):
        print(f"{folder:<36} {lines:>7} {100 * ran / lines if lines else 100:>5.0f}%")
    ran, lines = (sum(column) for column in zip(*found.values()))
    print(f"{'all':<36} {lines:>7} {100 * ran / lines:>5.0f}%")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
