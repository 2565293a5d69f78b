"""What cannot be done now waits, loses nothing and stops nobody: a full disk, a locked Maildir, a storage that is refused."""
import os
import re
import shutil
import socket
import subprocess
import time

import pytest
from worker_sites import append, drop_file, equal, fetch_changed, imap, mail, make_world, needs_dovecot, subjects
from support.worker_world import (BODIES, BODY, CLOSE, GUARD, HELLO_TOO, TICK, WANT, Failed,
                                  dovecot_version)

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def test_a_mail_that_is_never_read_to_its_end_holds_no_worker(tmp_path_factory):
    """A FIFO among the mails: the library waits for a writer. The worker ends itself, and lets go of the user's lock."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        site.settings = {"worker_timeout": "500"}
        append(site, "INBOX", "m")
        world.settle()
        fifo = site.root() / "new" / "1700000000.M1P1.host"
        os.mkfifo(fifo)
        shutil.chown(fifo, "nobody", "nogroup")
        with pytest.raises(Failed, match="went away"):
            site.ingest()
        fifo.unlink(missing_ok=True)
        for path in (site.root() / "cur").iterdir():
            if path.is_fifo():
                path.unlink()
        site.disconnect()
        append(site, "INBOX", "n")
        world.settle()
        assert subjects(equal(world), "INBOX") == 2
    finally:
        world.stop()


def test_a_mail_that_cannot_be_saved_waits_and_stops_nobody(world):
    append(world[1], "INBOX", "first")
    imap(world[1], None, ("create", "F"))
    world.settle()
    shut = [p for p in world[2].root().rglob("*") if p.name in ("F", ".F") and p.is_dir()][0]
    shut = next((p for p in (shut / "dbox-Mails", shut / "cur") if p.is_dir()), shut)
    tmp = shut.parent / "tmp" if shut.name == "cur" else shut
    shutil.chown(tmp, "root")
    tmp.chmod(0o500)
    append(world[1], "F", "cannot")
    append(world[1], "INBOX", "can")
    imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    for site in world.sites.values():
        site.ingest()
    while world.carry():
        pass
    if world[2].done["unplaced"] == 0:
        pytest.skip("this storage saves all the same")
    box = world[2].imap()
    assert box.select("INBOX")[1] == [b"1"]
    box.logout()
    tmp.chmod(0o700)
    shutil.chown(tmp, "nobody")
    world[2].admin("resync")
    world.settle()
    assert subjects(equal(world), "F") == 1


def moved_with_the_destination_shut(shut, opened):
    """A mail that a client moves from F to G while G cannot be written to at the other site stays in F there, and is copied from it."""
    world = make_world(None, ["sdbox", "maildir"])
    try:
        site, root = world[2], world[2].root()
        imap(world[1], None, ("create", "F"), ("create", "G"))
        append(world[1], "F", "moved", size=300000)
        world.settle()
        shut(root / ".G")
        world.carried.clear()
        imap(world[1], "F", ("copy", "1", "G"), ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world[1].ingest()
        while world.carry():
            pass
        # The next batch, with nothing for these.
        world[1].ship(2, HELLO_TOO)
        while world.carry():
            pass
        assert len(list((root / ".F" / "cur").iterdir())) + len(list((root / ".F" / "new").iterdir())) == 1
        opened(root / ".G")
        site.admin("resync")
        site.work(TICK)
        world.settle()
        now = equal(world)
        assert (subjects(now, "F"), subjects(now, "G")) == (0, 1)
        assert not any(kind in (WANT, BODY, BODIES) for _, _, kind, _ in world.carried), world.carried
    finally:
        world.stop()


def test_a_mail_whose_copy_cannot_be_saved_is_not_removed(tmp_path_factory):
    def shut(path):
        shutil.chown(path / "tmp", "root")
        (path / "tmp").chmod(0o500)

    def opened(path):
        (path / "tmp").chmod(0o700)
        shutil.chown(path / "tmp", "nobody")
    moved_with_the_destination_shut(shut, opened)


def test_a_mail_that_is_moved_into_a_locked_maildir_is_not_removed(tmp_path_factory):
    def shut(path):
        (path / "dovecot-uidlist.lock").write_text(f"{os.getpid()}:{socket.gethostname()}")
        time.sleep(4)  # a younger one is waited for

    moved_with_the_destination_shut(shut, lambda path: (path / "dovecot-uidlist.lock").unlink())


@pytest.mark.parametrize("parcel", [False, True], ids=["a tick comes first", "a parcel comes first"])
def test_a_locked_maildir_is_looked_at_again_though_the_user_was_closed(tmp_path_factory, parcel):
    world = make_world(None, ["maildir", "sdbox"])
    try:
        site, lock = world[1], world[1].root() / "dovecot-uidlist.lock"
        append(site, "INBOX", "first")
        world.settle()
        lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
        time.sleep(4)
        drop_file(site, "1700000000.M1P1.host", mail("delivered"))
        assert site.ingest()["tick"] > 0
        site.work(CLOSE)
        lock.unlink()
        if parcel:
            world[2].ship(1, HELLO_TOO)
            assert world.carry()
        site.work(TICK)
        world.settle(ingest=False)
        assert subjects(equal(world), "INBOX") == 2
    finally:
        world.stop()


@pytest.mark.long
def test_a_maildir_whose_uidlist_is_another_one_is_not_judged_while_that_is_locked(tmp_path_factory):
    """The index has the old UIDs yet, so that no GUID can be read before the list's lock is free."""
    world = make_world(None, ["maildir", "sdbox"])
    try:
        site, path = world[1], world[1].root() / "dovecot-uidlist"
        for n in range(3):
            append(site, "INBOX", f"mail{n}")
        world.settle()
        head, *lines = path.read_text().splitlines()
        names = [line.split(" :", 1)[1] for line in lines]
        path.write_text("\n".join([re.sub("G[0-9a-f]{32}", "G" + "5" * 32, re.sub(" N[0-9]+", " N24", head)),
                                   *(f"{21 + n} :{name}" for n, name in enumerate(names))]) + "\n")
        lock = path.with_suffix(".lock")
        lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
        said = site.ingest(), site.work(TICK), site.work(TICK)
        assert said[-1]["tick"] > 0
        lock.unlink()
        site.work(TICK)
        world.settle()
        assert subjects(equal(world), "INBOX") == 3
    finally:
        world.stop()


@pytest.mark.parametrize("location", ["mbox:~/mail:INBOX=~/inbox", "sdbox:~/sdbox:INDEX=MEMORY"])
def test_a_storage_without_a_log_is_refused_by_name(tmp_path_factory, location):
    if dovecot_version() >= (2, 4):
        pytest.skip("the location is written otherwise")
    world = make_world(tmp_path_factory, ["sdbox"])
    site = world[1]
    try:
        site.disconnect()
        site.config.write_text(site.config.read_text().replace("sdbox:~/sdbox", location))
        site.doveadm("reload")
        end = time.monotonic() + GUARD
        while location not in subprocess.run(["doveconf", "-c", str(site.config), "mail_location"], stdout=subprocess.PIPE,
                                             check=True).stdout.decode():
            assert time.monotonic() < end
        refused = ""
        while "permanent=1" not in refused:
            assert time.monotonic() < end, "it is not refused"
            try:
                site.ensure()
                site.disconnect()
            except (Failed, OSError) as failed:
                refused = str(failed)
                site.disconnect()
        assert "not replicated" in refused or "in memory" in refused
    finally:
        world.stop()


@pytest.mark.parametrize("closed", [False, True])
def test_a_client_that_hops_to_a_maildir_that_was_locked_misses_no_change(tmp_path_factory, closed):
    """The peer's batch comes while nobody can open the mailbox, and is taken all the same."""
    world = make_world(None, ["maildir", "sdbox"])
    try:
        site, lock = world[1], world[1].root() / "dovecot-uidlist.lock"
        append(site, "INBOX", "one")
        append(site, "INBOX", "two")
        world.settle()
        for i in range(20):
            imap(world[2], "INBOX", ("store", "1", "+FLAGS", f"(Kw{i})"))
        imap(site, "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
        _, there = fetch_changed(world[2], 1)
        for each in world.sites.values():
            each.ingest()
        lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
        time.sleep(4)
        while world.carry(lambda a, b, kind: a == 1):   # the peer hears of the change later
            pass
        if closed:
            site.work(CLOSE)
        lock.unlink()
        site.work(TICK)
        world.settle()
        changed, highest = fetch_changed(site, there)
        assert 2 in changed and highest > there
    finally:
        world.stop()
