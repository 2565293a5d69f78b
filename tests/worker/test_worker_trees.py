"""Random trees of folders at sites that do not hear each other, on each pair of storages: when they
have met, all show the same, and each mail is where the rules say (trees_model.py).

DOVELANE_TREES: how many users' lives in each test of the tier "exhaustive" (default: 30), the first
of them being DOVELANE_SEED (default: 10001).
"""
import itertools
import os

import pytest
from names_world import KINDS, another_user, names_world
from trees_model import Run
from worker_sites import needs_dovecot

pytestmark = needs_dovecot

FEW, SOME = 8, 20
MANY = int(os.environ.get("DOVELANE_TREES", "30"))
FIRST = int(os.environ.get("DOVELANE_SEED", "10001"))
SAMPLE = ["sdbox,maildir"]
LONG = ["sdbox,sdbox", "maildir,mdbox", "fs,sdbox.", "escape,maildir.", "maildir,fs,mdbox"]
# In either order: the lower site keeps the UIDs, and its op wins between two at one time.
ALL = [",".join(pair) for pair in itertools.product(KINDS, repeat=2)]


def lives(tmp_path_factory, kinds, first, count):
    world, told = names_world(tmp_path_factory, *kinds.split(",")), []
    try:
        for seed in range(first, first + count):
            another_user(world, f"tree{seed}")
            run = Run(world, seed)
            wrong = run.live()
            if wrong:
                told += [f"seed {seed}:", *wrong, *run.log]
        assert not told, "\n".join(told)
    finally:
        world.stop()


@pytest.mark.parametrize("kinds", SAMPLE)
def test_some_trees(tmp_path_factory, kinds):
    lives(tmp_path_factory, kinds, 1, FEW)


@pytest.mark.long
@pytest.mark.parametrize("kinds", LONG)
def test_trees(tmp_path_factory, kinds):
    lives(tmp_path_factory, kinds, 1001, SOME)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kinds", ALL)
def test_many_trees(tmp_path_factory, kinds):
    lives(tmp_path_factory, kinds, FIRST, MANY)
