"""A folder that cannot be opened may have got mails that a client moved: until it can be, what clients removed stays at the other sites."""
import os
import re
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest
from worker_sites import append, delete, directory_of, equal, guarded, imap, make_world, needs_dovecot, store, subjects
from support.frames import CLOSE, TICK

pytestmark = [needs_dovecot, pytest.mark.long]

FORMATS = ["maildir", "sdbox", "mdbox"]


@pytest.fixture(params=FORMATS)
def pair(request, tmp_path_factory):
    """Mails of F and of INBOX are at both sites; so are To and Other, which were looked at when they were empty."""
    made = make_world(tmp_path_factory, [request.param, "sdbox"])
    for name in ("F", "To", "Other"):
        imap(made[1], None, ("create", name))
    for n in range(3):
        append(made[1], "F", f"m{n}")
        append(made[1], "INBOX", f"i{n}")
    made.settle()
    time.sleep(2.1)  # the files of a Maildir must be older than its look, and the look changes its index once
    made.settle()
    made.settle()
    yield made
    print(*made[1].notes[-10:], sep="\n")
    made.stop()


@contextmanager
def of_another_owner(directory):
    """Its files belong to root, as after a restore by hand. They can be listed, and not be read."""
    parts = [p for p in directory.rglob("*") if p.is_file() or p.name in ("cur", "new")]
    was = [(p, p.stat()) for p in parts]
    for path in parts:
        os.chown(path, 0, 0)
        path.chmod(0o700 if path.is_dir() else 0o600)
    try:
        yield
    finally:
        for path, st in was:
            os.chown(path, st.st_uid, st.st_gid)
            path.chmod(st.st_mode & 0o7777)


def move(site, of, to, mails="1:*"):
    imap(site, of, ("uid", "MOVE", mails, to))


def remove(site, folder):
    imap(site, folder, ("store", "1:*", "+FLAGS", r"(\Deleted)"), ("expunge",))


def at(site, folder):
    return subjects(site.contents(), folder)


def waiting(site):
    return [line for line in site.admin("status") if line.startswith("cannot-be-read")]


@pytest.mark.test
def test_what_was_moved_into_a_folder_that_cannot_be_opened_stays_at_the_peer(pair):
    a, b = pair[1], pair[2]
    move(a, "F", "To")
    with guarded(directory_of(a, "To")):
        a.ingest(("-", "F"), ("-", "To"))
        pair.settle()
        assert at(b, "F") == 3 and at(b, "To") == 0
        assert waiting(a) == ["cannot-be-read\tTo\tremovals-wait"] and a.done["unseen"] == 1
        assert any("To cannot be opened, and may have got mails" in said for _, said in a.notes)
        a.work(CLOSE)
        a.disconnect()  # another worker finds the same, also before it looks at the mailboxes
        assert waiting(a) == ["cannot-be-read\tTo\tremovals-wait"] and a.done["unseen"] == 1
        a.ingest(("-", "F"))
        assert a.done["unseen"] == 1
        a.work(TICK)
        pair.settle()
        assert at(b, "F") == 3
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert subjects(now, "F") == 0 and subjects(now, "To") == 3 and waiting(a) == [] and a.done["unseen"] == 0


def test_a_deleted_folder_waits_too(pair):
    a, b = pair[1], pair[2]
    move(a, "F", "To")
    delete(a, "F")
    with guarded(directory_of(a, "To")):
        pair.settle()
        pair.settle()
        assert at(b, "F") == 3
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert "F" not in now and subjects(now, "To") == 3


def test_a_folder_that_was_not_changed_holds_nothing_up(pair):
    a, b = pair[1], pair[2]
    with of_another_owner(directory_of(a, "Other")):
        remove(a, "F")
        pair.settle()
        pair.settle()
        assert at(b, "F") == 0 and waiting(a) == []
        a.work(CLOSE)
        a.disconnect()
        remove(a, "INBOX")
        pair.settle()
        assert at(b, "INBOX") == 0 and waiting(a) == []
    pair.settle()
    equal(pair)


def test_a_folder_that_was_changed_and_can_be_listed_holds_removals_up(pair):
    a, b = pair[1], pair[2]
    move(a, "F", "To", "1:2")
    a.work(CLOSE)
    a.disconnect()  # a worker that has its index open needs no file
    with of_another_owner(directory_of(a, "To")):
        pair.settle()
        assert at(b, "F") == 3 and waiting(a) == ["cannot-be-read\tTo\tremovals-wait"]
        a.disconnect()
        pair.settle()
        assert at(b, "F") == 3
        append(a, "INBOX", "comes meanwhile")
        store(a, "i0", "+FLAGS", r"(\Flagged)")
        pair.settle()
        assert at(b, "INBOX") == 4, "what came and what was changed does not wait"
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert subjects(now, "F") == 1 and subjects(now, "To") == 2


@pytest.mark.parametrize("deleted", [False, True])
def test_what_was_moved_and_cannot_be_read_stays_at_the_peer(pair, deleted):
    """Of a dbox, not even the GUID is known then. A file that stays spoilt for ever is accepted; the next such mail is another one."""
    a, b = pair[1], pair[2]
    if a.format != "sdbox":
        pytest.skip("a Maildir has it in the name, an mdbox has all mails in one file")
    move(a, "F", "To", "1")
    if deleted:
        delete(a, "F")
    (spoilt,) = directory_of(a, "To").rglob("u.*")
    spoilt.chmod(0)
    shutil.chown(spoilt, "root", "root")
    pair.settle()
    assert at(b, "F") == 3 and waiting(a) == ["cannot-be-read\tTo\tremovals-wait"]
    a.work(CLOSE)
    a.disconnect()
    pair.settle()
    assert at(b, "F") == 3
    assert "To\tremovals-go" in a.admin("accept", "To")
    pair.settle()
    assert waiting(a) == [] and ("F" not in b.contents() if deleted else at(b, "F") == 2)
    a.work(CLOSE)
    a.disconnect()
    append(a, "To", "another")
    remove(a, "INBOX")
    pair.settle()
    assert at(b, "INBOX") == 0 and waiting(a) == []
    append(a, "INBOX", "more")
    pair.settle()
    move(a, "INBOX", "To")
    (last,) = [path for path in directory_of(a, "To").rglob("u.*") if b"more" in path.read_bytes()]
    last.chmod(0)
    shutil.chown(last, "root", "root")
    pair.settle()
    assert at(b, "INBOX") == 1
    for path in (spoilt, last):
        shutil.chown(path, "nobody", "nogroup")
        path.chmod(0o600)
    pair.settle()
    pair.settle()
    assert subjects(equal(pair), "To") == 3 and waiting(a) == []


def test_an_admin_says_that_nothing_was_moved_there(pair):
    a, b = pair[1], pair[2]
    with guarded(directory_of(a, "To")):
        remove(a, "F")
        pair.settle()
        assert at(b, "F") == 3
        assert a.admin("accept")[-1].startswith("-nothing is held"), "only a folder that is named"
        assert "To\tremovals-go" in a.admin("accept", "To")
        pair.settle()
        assert at(b, "F") == 0 and waiting(a) == []
        a.work(CLOSE)
        a.disconnect()
        remove(a, "INBOX")
        pair.settle()
        assert at(b, "INBOX") == 0, "nor does a later one wait"
    pair.settle()
    assert at(a, "To") == 0
    # Once it could be opened, what was accepted is over.
    append(a, "INBOX", "more")
    pair.settle()
    move(a, "INBOX", "To")
    with guarded(directory_of(a, "To")):
        pair.settle()
        assert at(b, "INBOX") == 1
    pair.settle()
    pair.settle()
    assert subjects(equal(pair), "To") == 1


def test_what_was_moved_into_a_new_folder_that_cannot_be_opened_stays_at_the_peer(pair):
    """Nobody has looked at it yet."""
    a, b = pair[1], pair[2]
    imap(a, None, ("create", "New"))
    move(a, "F", "New")
    with guarded(directory_of(a, "New")), of_another_owner(directory_of(a, "New")):
        pair.settle()
        pair.settle()
        assert waiting(a) == ["cannot-be-read\tNew\tremovals-wait"] and at(b, "F") == 3
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert subjects(now, "F") == 0 and subjects(now, "New") == 3


def forget_looks(site):
    """Its state is as 0.1.0 leaves it: of no mailbox it is known which files it had at the last look, nor which cannot be opened."""
    site.work(CLOSE)
    site.disconnect()
    with closing(sqlite3.connect(site.state() / "state.db")) as state, state:
        assert state.execute("delete from app where substr(key, 1, 1) in (?, ?)", (b"t", b"c")).rowcount > 0


@pytest.mark.parametrize("looks", [0, 1])
def test_an_earlier_version_looked_at_it_last(pair, looks):
    """That one let removals go. What cannot be opened at the first look goes on so; what could be is known from then on, though nothing had changed."""
    a, b = pair[1], pair[2]
    forget_looks(a)
    for _ in range(looks):
        a.ingest()
    remove(a, "INBOX")
    move(a, "F", "To")
    with guarded(directory_of(a, "To")):
        pair.settle()
        pair.settle()
        assert waiting(a) == ["cannot-be-read\tTo\tremovals-wait"] * looks
        assert (at(b, "F"), at(b, "INBOX")) == ((3, 3) if looks else (0, 0))
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert subjects(now, "F") == subjects(now, "INBOX") == 0 and subjects(now, "To") == 3 and waiting(a) == []


def test_an_earlier_version_knew_of_mails_that_cannot_be_read(pair):
    """It told removals all the same. So it is where a mail cannot be read at the first look; one that cannot be read later is another one."""
    a, b = pair[1], pair[2]
    if a.format != "sdbox":
        pytest.skip("a Maildir has the GUID in the name, an mdbox has all mails in one file")

    def spoil(body):
        (path,) = [path for path in directory_of(a, "To").rglob("u.*") if body in path.read_bytes()]
        path.chmod(0)
        shutil.chown(path, "root", "root")
        return path
    move(a, "F", "To", "1")
    spoilt = [spoil(b"m0")]
    forget_looks(a)
    pair.settle()
    assert at(b, "F") == 2 and waiting(a) == []
    a.work(CLOSE)
    a.disconnect()
    move(a, "F", "To", "2")
    spoilt.append(spoil(b"m1"))
    pair.settle()
    assert at(b, "F") == 2 and waiting(a) == ["cannot-be-read\tTo\tremovals-wait"]
    for path in spoilt:
        shutil.chown(path, "nobody", "nogroup")
        path.chmod(0o600)
    pair.settle()
    pair.settle()
    now = equal(pair)
    assert subjects(now, "To") == 2 and subjects(now, "F") == 1 and waiting(a) == []


def told_of(site, folder):
    """Lines of the log that tell of it, since this was asked last."""
    site.told = getattr(site, "told", 0)
    lines = [said for _, said in site.notes[site.told:] if re.match(rf"{folder}(:| )", said)]
    site.told = len(site.notes)
    return lines


def test_the_log_tells_once_of_a_mail_that_cannot_be_read(pair):
    a = pair[1]
    if a.format == "mdbox":
        pytest.skip("it has all mails in one file")
    for n in range(2):
        append(a, "To", f"new{n}")
        (path,) = [path for path in directory_of(a, "To").rglob("*") if path.is_file() and not path.name.startswith("dovecot") and f"new{n}".encode() in path.read_bytes()]
        path.chmod(0)
        shutil.chown(path, "root", "root")
        told_of(a, "To")
        for _ in range(3):
            a.ingest()
            a.work(TICK)
            a.work(CLOSE)
        said = [line for line in told_of(a, "To") if "cannot be read and waits" in line]
        assert len(said) == 1 and f"UID {n + 1} " in said[0], said


def test_the_log_tells_once_of_a_folder_that_cannot_be_read(pair):
    """And again when that changed, or was over in between, also where the user was closed meanwhile; not at each look."""
    a = pair[1]
    move(a, "F", "To")
    for _ in range(2):
        told_of(a, "To")
        with guarded(directory_of(a, "To")):
            a.ingest()
            first = told_of(a, "To")
            assert len([said for said in first if "cannot be read and waits" in said]) == 1, first
            assert len([said for said in first if "may have got mails" in said]) == 1, first
            assert len(first) == 2, first
            for n in range(3):
                append(a, "INBOX", f"m{n}")
                a.ingest()
                a.work(TICK)
                a.work(CLOSE)
            assert told_of(a, "To") == []
        pair.settle()
        pair.settle()
        assert waiting(a) == []
        move(a, "INBOX", "To", "1")
        move(a, "To", "F", "1")
