"""Histories of clients at three sites under faults, each judged by the checker (docs/proof.md).

DOVELANE_SEED and DOVELANE_ROUNDS choose which, and how many; `make histories` says them.
"""
import os
import time
from collections import Counter

import pytest
from conftest import BUILD
from support.history import rounds

SEED = int(os.environ.get("DOVELANE_SEED", "1"))
ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", "20"))
KEPT = BUILD / "histories"
MIXED = ("sdbox", "mdbox", "maildir")
LONG = [MIXED, ("maildir", "sdbox", "maildir"), ("mdbox", "mdbox", "sdbox")]
MANY = [*LONG, ("sdbox@2.3", "maildir@2.4", "mdbox@2.4"), ("maildir@2.4", "mdbox@2.3", "sdbox@2.4")]


def one(group, directory, seed, **how):
    """(complaints, counts, faults) of one history; one with complaints is kept, and named."""
    path, faults, told = directory / f"history-{seed}.jsonl", [], []
    try:
        faults = rounds.run(group, path, seed, **how)
    except AssertionError as error:     # clients stand still, or sites do not become equal
        told.append(str(error))
    verdict = rounds.judged(path)
    told += verdict.complaints
    if told:
        told.insert(0, f"kept as {rounds.kept(path, KEPT)}")
    else:
        path.unlink()
    return told, verdict.counts, faults


def histories(group, specs, directory, seed, number, **how):
    there, total, failed = group(*specs), Counter(), []
    for n in range(number):
        began = time.monotonic()
        told, counts, faults = one(there, directory, seed + n, **how)
        total += counts
        print(f"history {seed + n}: {counts['answered']} of {counts['operations']} answered, "
              f"{counts['registers']} registers, {len(told)} complaints, "
              f"{time.monotonic() - began:.1f} s; {', '.join(faults)}", flush=True)
        if told:
            failed.append(f"history {seed + n} of {' '.join(specs)}:\n" + "\n".join(told[:20]))
    print(f"{number} histories of {' '.join(specs)}: {dict(sorted(total.items()))}, "
          f"{len(failed)} failed", flush=True)
    assert not failed, "\n".join(failed)
    assert total["answered"] >= 50 * number


def test_short_histories(group, tmp_path):
    histories(group, MIXED, tmp_path, SEED, 2)


@pytest.mark.long
@pytest.mark.parametrize("specs", LONG, ids=" ".join)
def test_histories(group, tmp_path, specs):
    histories(group, specs, tmp_path, 1000 * SEED, ROUNDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("specs", MANY, ids=" ".join)
def test_many_histories(group, tmp_path, specs):
    histories(group, specs, tmp_path, 100_000 * SEED, 10 * ROUNDS, phases=3, operations=200,
              strikes=4)
