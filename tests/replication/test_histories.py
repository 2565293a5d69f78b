"""Histories of clients at three sites under faults, each judged by the checker (docs/proof.md).

DOVELANE_SEED and DOVELANE_ROUNDS choose which, and how many; `make histories` says them.
"""
import os

import pytest
from conftest import BUILD
from histories import many, told_in_full

SEED = int(os.environ.get("DOVELANE_SEED", "1"))
ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", "40"))
MIXED = ("sdbox", "mdbox", "maildir")
LONG = [MIXED, ("maildir", "sdbox", "maildir"), ("mdbox", "mdbox", "sdbox")]
MANY = [*LONG, ("sdbox@2.3", "maildir@2.4", "mdbox@2.4"), ("maildir@2.4", "mdbox@2.3", "sdbox@2.4")]


def histories(there, directory, seed, number, **how):
    failed, total = many(there, directory, seed, number, BUILD / "histories", **how)
    print(told_in_full(failed, total), flush=True)
    assert not failed, told_in_full(failed, total)
    assert total["answered"] >= 50 * number


def test_short_histories(group, tmp_path):
    histories(group(*MIXED), tmp_path, SEED, 2)


@pytest.mark.long
@pytest.mark.parametrize("specs", LONG, ids=" ".join)
def test_histories(group, tmp_path, specs):
    histories(group(*specs), tmp_path, 1000 * SEED, ROUNDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("specs", MANY, ids=" ".join)
def test_many_histories(group, tmp_path, specs):
    histories(group(*specs), tmp_path, 100_000 * SEED, 5 * ROUNDS, phases=3, operations=200,
              strikes=4)
