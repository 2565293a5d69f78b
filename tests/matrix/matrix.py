#!/usr/bin/env python3
"""Builds and tests the committed source on each Debian release, with each compiler and server: one cell each.

    make matrix                                   all cells; what ran on this commit is not repeated
    make matrix CELLS="trixie-gcc forky-*"        these
    make matrix LEVEL=built|core|whole            how far (default: core)
    make matrix AGAIN=yes                         repeats them
    make matrix FRESH=yes                         makes the releases' trees anew first
    make compatibility                            keeps the results in tests/matrix/results, COMPATIBILITY.md from these

Results: build/matrix/CELL.json and CELL.log. DOVELANE_TREES: where the releases' trees are kept (/var/cache/dovelane-trees).
Needs root.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import page  # noqa: E402
import trees  # noqa: E402
from cells import LEVELS, chosen  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "matrix"
ENDED = "was ended from outside"
HOURS = 4  # a guard against a cell that hangs


def say(text):
    print(f"matrix: {text}", flush=True)


def git(*words, **more):
    return subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, check=True, **more).stdout


def known(name):
    """The cell's last result, or None."""
    try:
        return json.loads((RESULTS / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None


def ran(cell, commit, level):
    last = known(cell.name)
    return bool(last and last["finished"] and last["commit"] == commit and LEVELS.index(last["level"]) >= LEVELS.index(level))


def keep(cell, result):
    fresh = RESULTS / f"{cell.name}.new"
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.rename(RESULTS / f"{cell.name}.json")


def work(cell, start):
    """Runs one cell; returns its result as far as it came."""
    log = RESULTS / f"{cell.name}.log"
    log.unlink(missing_ok=True)
    try:
        tree = trees.with_packages(cell.release, log)
        beside = {release: trees.with_packages(release, log) for release in cell.beside}
    except trees.NoTree as error:
        return dict(start, steps=[], finished=False, trouble=str(error))
    with trees.Place(tree, cell.name, beside) as place:
        (place.inside / "source").mkdir()
        subprocess.run(["tar", "-x", "-C", str(place.inside / "source")], input=git("archive", "HEAD"), check=True)
        (place.inside / "start.json").write_text(json.dumps(start))
        trouble = None
        with open(log, "ab") as out:
            process = place.command("/usr/bin/python3", "/matrix/source/tests/matrix/inside.py",
                                    cell.compiler, cell.server, start["level"], *cell.beside, out=out)
            try:
                if process.wait(HOURS * 3600):
                    trouble = f"ended with {process.returncode}"
            except KeyboardInterrupt:
                trouble = ENDED
            except subprocess.TimeoutExpired:
                trouble = f"did not end within {HOURS} hours"
            finally:
                process.kill()  # and with it, all that it started
                process.wait()
        try:
            result = json.loads((place.inside / "result.json").read_text())
        except (OSError, ValueError):
            result = dict(start, steps=[], finished=False)
        for junit in place.inside.glob("*.xml"):
            shutil.copyfile(junit, RESULTS / f"{cell.name} {junit.name}")
        if trouble:
            result["trouble"] = f"{trouble}; its messages are in {log.relative_to(ROOT)}"
        return result


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="a cell's name, or a pattern; default: all")
    parser.add_argument("--level", choices=LEVELS, default="core")
    parser.add_argument("--again", action="store_true", help="repeats what ran on this commit")
    parser.add_argument("--fresh", action="store_true", help="makes the trees anew")
    parser.add_argument("--list", action="store_true", help="names the cells that these words choose")
    return parser.parse_args()


def main():
    asked = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what a cell found by then is kept
    try:
        cells = chosen(asked.cells)
    except ValueError as error:
        sys.exit(f"matrix: {error}")
    if asked.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    if os.geteuid() != 0:
        sys.exit("matrix: needs root, for debootstrap and chroot")
    RESULTS.mkdir(parents=True, exist_ok=True)
    commit = git("rev-parse", "HEAD").decode().strip()
    if git("status", "--porcelain", "--untracked-files=no"):
        say(f"what is not committed takes no part: this is {commit[:12]}")
    if asked.fresh:
        for release in sorted({name for cell in cells for name in (cell.release, *cell.beside)}):
            trees.forget(release)
    bad = 0
    for cell in cells:
        if not asked.again and ran(cell, commit, asked.level):
            say(f"{cell.name}: ran on this commit already")
        else:
            say(f"{cell.name}: begins; its messages are in {RESULTS.relative_to(ROOT)}/{cell.name}.log")
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            keep(cell, work(cell, {"cell": cell.name, "commit": commit, "level": asked.level, "date": now}))
        result = known(cell.name)
        say(f"{cell.name}: {page.in_a_line(result)}")
        if result.get("trouble", "").startswith(ENDED):
            return 130
        bad += not page.good(result)
    print("\n" + page.table({cell.name: known(cell.name) for cell in cells}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
