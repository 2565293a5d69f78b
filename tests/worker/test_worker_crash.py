"""A worker that dies between two commits, at each of its steps."""
import re
import shutil
import time

import pytest
from worker_sites import FIRST, MIXES, append, crash_world, delete, equal, imap, needs_dovecot, subjects
from support.worker_world import GUARD, USER, Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

STEPS = ["ingest-commit", "batch", "create", "place", "flags", "remove", "rename", "deleting", "delete", "renumber-copied", "renumber-bound", "renumber-expunged",
         "settle", "intents"]


def files_of(site):
    """The mails' files of a Maildir's INBOX."""
    return [path for name in ("new", "cur") for path in (site.root() / name).iterdir()]


@pytest.mark.parametrize("first", ["ingest", "tick"])
@pytest.mark.parametrize("step", ["saving", "renumber"])
def test_a_file_without_its_line_in_the_uidlist(tmp_path_factory, step, first):
    """In a Maildir a mail's file is there before its GUID is; whose the file is, then, tells its name. The worker dies before it makes one,
    and the test makes what it would have made until a moment later."""
    world, flag = crash_world(tmp_path_factory, ["maildir", "maildir"], step)
    try:
        append(world[1], "INBOX", "one", "(Kw)")
        world.settle()
        flag.write_text("")
        append(world[1], "INBOX", "two", "(Kw)")
        if step == "renumber":
            append(world[2], "INBOX", "three")
        with pytest.raises(Failed, match="went away") as error:
            world.settle()
        dead = world[int(re.search(r"worker of site (\d)", str(error.value))[1])]
        end = time.monotonic() + GUARD
        while not (pids := re.findall(r"child (\d+) returned error 99", dead.log.read_text())):
            assert time.monotonic() < end, dead.log.read_text()
            time.sleep(0.05)
        source = dead if step == "renumber" else world[1]
        path, = (path for path in files_of(source) if b"Subject: two" in path.read_bytes())
        name = f"{int(time.time())}.M5P{pids[-1]}.{path.name.partition('.')[2].partition('.')[2]}"
        copy = dead.root() / "cur" / (name if ":2," in name else name + ":2,")
        shutil.copy2(path, copy)
        shutil.chown(copy, "nobody", "nogroup")
        for site in world.sites.values():
            site.disconnect()
            for lane in site.outbox.values():
                lane.clear()
            site.done = {}
        FIRST[first](dead)
        for _ in range(2):
            for site in world.sites.values():
                for to in site.outbox:
                    site.ship(to, 1)
                    site.ship(to, 2)
            world.settle()
        assert subjects(equal(world), "INBOX") == (3 if step == "renumber" else 2)
        guids = {site.doveadm("fetch", "-u", USER, "guid", "mailbox", "INBOX") for site in world.sites.values()}
        assert len(guids) == 1, guids
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("formats", MIXES)
def test_crash_at(tmp_path_factory, step, formats, first):
    """One site dies once at that step; the mail is there once, everywhere, whatever the next worker is asked first."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), step)
    crashed = 0

    def survive():
        nonlocal crashed
        for _ in range(20):
            try:
                world.settle()
                return
            except Failed:
                crashed += 1
                for site in world.sites.values():
                    site.disconnect()
                    for lane in site.outbox.values():
                        lane.clear()
                    site.done = {}
                for site in world.sites.values():
                    FIRST[first](site)
        raise AssertionError("does not come to rest")

    def resend():
        for site in world.sites.values():
            for to in site.outbox:
                site.ship(to, 1)
                site.ship(to, 2)
        survive()
    try:
        append(world[1], "INBOX", "one", "(\\Seen)")
        append(world[1], "INBOX", "two")
        imap(world[1], None, ("create", "Box"), ("create", "Gone"), ("create", "Box/Child"))
        append(world[1], "Gone", "doomed")
        survive()
        flag.write_text("")
        for n, site in world.sites.items():
            append(site, "INBOX", f"at{n}", "(Kw)")
            append(site, "Box", f"in{n}")
        imap(world[1], "INBOX", ("store", "1:2", "+FLAGS", "(\\Flagged)"), ("copy", "1", "Box"))
        imap(world[1], None, ("rename", "Box", "Case"))
        imap(world[1], None, ("create", "New"))
        append(world[1], "New", "new")
        delete(world[1], "Gone")
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        survive()
        resend()
        resend()
        now = equal(world)
        assert crashed == 1 and not flag.exists()
        assert {f: subjects(now, f) for f in now} == {"INBOX": 3, "Case": 3, "Case/Child": 0, "New": 1}
    finally:
        for s in world.sites.values():
            print(f"--- site {s.number}\n{s.log.read_text()[-3000:]}")
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)
