"""Replicas of two versions of ours in one group: plugin, replicator, doveadm and lane.so of the earlier one at one site. Each site is upgraded alone, with its own files, and
one goes back. The earlier version is built from this repository's history (stack/versions.py)."""
import os

import pytest

import conftest
from support.stack import digest, versions
from support.stack.group import Group, installed
from support.stack.journal import Journal
from support.stack.traffic import Traffic, make_folders

pytestmark = pytest.mark.long

WITHIN = 420.0
USERS = [f"u{n}@example.org" for n in range(3)]


class Mixed(Group):
    """builds: letter to the build directory of a site that has not the present version."""

    def __init__(self, *specs, builds, **options):
        super().__init__(*specs, **options)
        self.builds, self.making = builds, None

    def assemble(self):
        super().assemble()
        for letter, build in self.builds.items():
            versions.change(self[f"redis-{letter}"], self.shape.build, build)

    def replica(self, letter, *more):
        self.making = letter
        return super().replica(letter, *more)

    def build_of(self, root):
        return self.builds.get(self.making) or super().build_of(root)

    def change_build(self, letter, build):
        """The site goes on with another build (None: the present one): its Dovecot, and its Redis, which loses nothing by that."""
        site = next(one for one in self.replicas if one.letter == letter)
        site.end()
        redis = self[f"redis-{letter}"]
        was = self.builds.pop(letter, None) or self.shape.build
        if build:
            self.builds[letter] = build
        redis.end()
        versions.change(redis, was, build or self.shape.build)
        self.start(redis.name)
        after = self.replica(letter, self.specs[0], list(self.nodes_of), self.nodes_of)
        self.add(after)
        self.start(after.name)
        return after


@pytest.fixture(scope="module")
def old():
    conftest.need()
    return versions.built(versions.DOVECOT)


def run_of(there, journal, step, wanted=150):
    """Changes at all sites, which then are the same, and as the journal says."""
    with Traffic(there.replicas, USERS, journal, seed=step, run=f"s{step}") as traffic:
        assert traffic.wait(wanted, 240)
    agreed = digest.wait_equal(there.replicas, USERS, WITHIN, moving=journal.moving(there.rebuilt))
    complaints = journal.judge({user: next(iter(digests.values())) for user, digests in agreed.items()}, there.rebuilt())
    assert not complaints, "\n".join(complaints[:20])


@pytest.mark.parametrize("storage", ["sdbox", pytest.param("mdbox", marks=pytest.mark.exhaustive), pytest.param("maildir", marks=pytest.mark.exhaustive)])
def test_a_group_of_both_versions(old, storage):
    """Site a has the earlier version and goes to the present one, then b goes back to the earlier one: state written by each is read by the other."""
    spec = f"{storage}@{next(iter(installed()))}"  # the host's own Dovecot, for which both are built
    there, journal = Mixed(spec, spec, builds={"a": old}), Journal()

    def is_old(letter):
        site = next(one for one in there.replicas if one.letter == letter)
        return str(old) in os.readlink(f"/proc/{site.replicator().pid}/exe")
    try:
        there.up()
        assert is_old("a") and not is_old("b")
        make_folders(there.replicas, USERS)
        run_of(there, journal, 0)
        for step, (letter, build) in enumerate((("a", None), ("b", old)), 1):
            there.change_build(letter, build)
            run_of(there, journal, step)
        assert is_old("b") and not is_old("a")
        assert not conftest.panics(there), conftest.panics(there)
    except Exception:
        print(there.logs(last=30) if there.mark else "not started")
        raise
    finally:
        there.down()
