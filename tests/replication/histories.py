#!/usr/bin/python3
"""Makes histories of clients under faults and judges them, or judges a file.

    histories.py [--seed N] [--rounds N] [--specs "sdbox mdbox maildir"] [--keep DIRECTORY]
    histories.py --until-caught ...     ends with the first that is refused, told as "caught ..."
    histories.py --judge FILE           the verdict on a history that was kept

DOVELANE_BUILD names the build directory. Histories that are refused are kept (build/histories).
"""
import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.history import rounds  # noqa: E402
from support.stack.group import Group  # noqa: E402

BUILD = Path(os.environ.get("DOVELANE_BUILD") or ROOT / "build")


def one(group, directory, seed, keep, **how):
    """(complaints, counts, faults) of one history; one with complaints is kept, and named."""
    path, faults, told = Path(directory) / f"history-{seed}.jsonl", [], []
    try:
        faults = rounds.run(group, path, seed, **how)
    except AssertionError as error:     # clients stand still, or sites do not become equal
        told.append(str(error))
    verdict = rounds.judged(path)
    told = [*verdict.complaints, *told]
    if told:
        told.append(f"kept as {rounds.kept(path, keep)}")
    else:
        path.unlink()
    return told, verdict.counts, faults


def line_of(seed, counts, told, seconds, faults):
    return (f"history {seed}: {counts['answered']} of {counts['operations']} answered, "
            f"{counts['registers']} registers, {len(told)} complaints, {seconds:.1f} s; "
            f"{', '.join(faults)}")


def many(group, directory, seed, number, keep, until_caught=False, **how):
    """([(seed, complaints)] of those refused, the sum of all counts); a line for each."""
    failed, total = [], Counter()
    for n in range(seed, seed + number):
        began = time.monotonic()
        told, counts, faults = one(group, directory, n, keep, **how)
        total += counts
        print(line_of(n, counts, told, time.monotonic() - began, faults), flush=True)
        if told:
            failed.append((n, told))
            if until_caught:
                break
    return failed, total


def told_in_full(failed, total):
    lines = [f"history {seed}: {line}" for seed, told in failed for line in told[:20]]
    return "\n".join([*lines, f"{dict(sorted(total.items()))}, {len(failed)} refused"])


def judge(path):
    verdict = rounds.judged(path)
    print("\n".join(verdict.complaints))
    print(dict(sorted(verdict.counts.items())))
    return 1 if verdict.complaints else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--specs", default="sdbox mdbox maildir")
    parser.add_argument("--keep", default=str(BUILD / "histories"))
    parser.add_argument("--until-caught", action="store_true")
    parser.add_argument("--within", type=float, default=rounds.WITHIN, help="seconds until equal")
    parser.add_argument("--judge")
    options = parser.parse_args()
    if options.judge:
        return judge(options.judge)
    rounds.WITHIN = options.within
    with Group(*options.specs.split()) as group, tempfile.TemporaryDirectory() as directory:
        failed, total = many(group, directory, options.seed, options.rounds, options.keep,
                             options.until_caught)
    print(told_in_full(failed, total))
    if failed and options.until_caught:
        seed, told = failed[0]
        print(f"caught by history {seed}: {told[0].splitlines()[0][:200]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
