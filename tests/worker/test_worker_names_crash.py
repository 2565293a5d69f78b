"""A worker that dies between two renames of which one change of a name is made."""
import shutil
import tempfile
from pathlib import Path

import pytest
from names_world import Client, names_world, same
from worker_sites import FIRST, needs_dovecot
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.long]


def survive(world, first):
    """How often a worker died."""
    for died in range(20):
        try:
            world.settle()
            return died
        except Failed:
            for site in world.sites.values():
                site.disconnect()
                for lane in site.outbox.values():
                    lane.clear()
                site.done = {}
            for site in world.sites.values():
                FIRST[first](site)
                for to in site.outbox:
                    site.ship(to, 1)
                    site.ship(to, 2)
    raise AssertionError("does not come to rest")


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("step", ["rename", "rename-aside", "rename-back"])
@pytest.mark.parametrize("kinds", ["sdbox,mdbox", "fs,maildir"])
def test_a_worker_dies_between_two_renames(tmp_path_factory, kinds, step, first):
    """f gets the name of a parent with children, 0 goes below itself, a and b change places."""
    flag = Path(tempfile.mkdtemp(prefix="names-crash-")) / "now"
    flag.parent.chmod(0o777)
    world = names_world(tmp_path_factory, *kinds.split(","), crash=f"{step}:{flag}")
    try:
        paths = ["f", "f/k", "0", "0/k", "a", "b", "a/k"]
        with Client(world[1]) as a:
            for path in paths:
                a.create(tuple(path.split("/")))
                a.append(tuple(path.split("/")), path)
        world.settle()
        same(world)
        with Client(world[2]) as b:
            b.rename(("f",), ("X",))
            b.rename(("0",), ("t",))
            b.rename(("t",), ("0", "1"))
            b.rename(("a",), ("t",))
            b.rename(("b",), ("a",))
            b.rename(("t",), ("b",))
        with Client(world[1]) as a:
            a.create(("X", "y"))
            a.create(("X", "z", "w"))
            a.append(("X", "z", "w"), "deep")
        flag.write_text("")
        died = survive(world, first)
        survive(world, first)
        found = {"/".join(name): mails for name, mails in same(world).items()}
        assert found == {"INBOX": [], "X": ["f"], "X/k": ["f/k"], "X/y": [], "X/z/w": ["deep"],
                         "0/1": ["0"], "0/1/k": ["0/k"], "b": ["a"], "b/k": ["a/k"], "a": ["b"]}
        assert died == 1 and not flag.exists()
        for site in world.sites.values():
            with Client(site) as client:
                left = [name for name in client.names() if "-dovelane-" in "".join(name)]
                assert not left
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)
