"""What the worker leaves in a Maildir for others: names of files, and locks."""
import socket
import threading
import time
from pathlib import Path

import pytest
from worker_sites import append, crash_world, equal, imap, make_world, needs_dovecot
from support.worker_world import GUARD, USER, Failed

pytestmark = [needs_dovecot, pytest.mark.long]


def files(site):
    """Base names of the INBOX's files."""
    return {path.name.partition(":")[0] for part in ("cur", "new")
            for path in (site.root() / part).iterdir()}


def guids(site, folder):
    said = site.doveadm("fetch", "-u", USER, "guid", "mailbox", folder).decode()
    return [line.split()[1] for line in said.splitlines() if line.startswith("guid:")]


def expunge(site, uid):
    box = site.imap()
    box.select("INBOX")
    assert box.uid("store", str(uid), "+FLAGS", "(\\Deleted)")[0] == "OK"
    box.expunge()
    box.logout()


def test_a_copy_from_another_site_is_not_called_as_the_mail_that_is_gone(tmp_path_factory):
    """A copy of the mail, and a copy of the copy when the mail is gone: all have its GUID."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        a, b = world[1], world[2]
        append(a, "INBOX", "m")
        world.settle()
        (name,) = files(a)
        assert guids(b, "INBOX") == [name]
        imap(b, "INBOX", ("copy", "1", "INBOX"))
        world.settle()
        assert len(files(a)) == 2 and name in files(a)
        expunge(a, 1)
        world.settle()
        imap(b, "INBOX", ("copy", "1", "INBOX"))
        world.settle()
        assert [len(mails) for _, mails in equal(world).values()] == [2]
        assert len(files(a)) == 2 and name not in files(a)
        assert guids(a, "INBOX") == guids(b, "INBOX") == [name, name]
    finally:
        world.stop()


def worker_of(site):
    """The process that has the user open."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "stat").read_text().rpartition(")")[2].split()
            program = (path / "exe").resolve().name
        except OSError:
            continue
        if int(words[1]) == site.process.pid and program.startswith("dovelane-worker"):
            yield int(path.name)


def test_a_lock_that_a_rename_took_along_is_let_go(tmp_path_factory):
    """A client renames the mailbox while the worker has its dovecot-uidlist locked."""
    world, flag = crash_world(tmp_path_factory, ["maildir", "sdbox"], "saving")
    reached, trouble = flag.with_name(flag.name + ".reached"), []
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        world.settle()
        append(b, "F", "m")
        b.ingest()
        flag.write_text("stop")

        def run():
            try:
                while world.carry():
                    pass
            except Failed as error:
                trouble.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        end = time.monotonic() + GUARD
        while not reached.exists():
            assert thread.is_alive() and time.monotonic() < end
            time.sleep(0.01)
        (worker,) = worker_of(a)
        lock = a.root() / ".F" / "dovecot-uidlist.lock"
        lock.write_text(f"{worker}:{socket.gethostname()}")
        imap(a, None, ("rename", "F", "G"))
        assert (a.root() / ".G" / lock.name).exists()
        reached.unlink()
        thread.join(GUARD)
        assert not thread.is_alive() and not trouble, trouble
        assert not (a.root() / ".G" / lock.name).exists()
        append(a, "G", "n")
        world.settle()
        world.settle()
        assert len(equal(world)["G"][1]) == 2
    finally:
        world.stop()
