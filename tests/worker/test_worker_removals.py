"""What clients moved leaves its old place behind all that came elsewhere: a peer that hears no more after any parcel still has every mail."""
import os
import shutil
import socket
import threading
import time

import pytest
from worker_sites import append, crash_world, delete, equal, guid_of, imap, mail, make_world, needs_dovecot, subjects
from support.frames import BATCH, PARCEL, num, text
from support.worker_world import GUARD, Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

MAILS, SIZE = 560, 200  # more changes than one part has (COMMIT_EVERY), also where 40 mails are moved back
FORMATS = ["sdbox,sdbox", "maildir,sdbox", "mdbox,maildir"]


def fill(site, folder, number=MAILS, size=SIZE):
    box = site.imap()
    if folder != "INBOX":
        assert box.create(folder)[0] == "OK"
    for i in range(number):
        ok, said = box.append(folder, None, None, mail(f"{folder}{i}", size))
        assert ok == "OK", said
    box.logout()


def move(site, of, to):
    imap(site, of, ("uid", "MOVE", "1:*", to))


def moves_and_deletes(a):
    imap(a, None, ("create", "G"))
    move(a, "F", "G")
    delete(a, "F")


def makes_it_again(a):
    """Another folder has its name."""
    imap(a, None, ("create", "T"))
    move(a, "F", "T")
    delete(a, "F")
    imap(a, None, ("create", "F"))
    move(a, "T", "F")
    delete(a, "T")


def renames_to_its_name(a):
    imap(a, None, ("create", "T"))
    move(a, "F", "T")
    delete(a, "F")
    imap(a, None, ("rename", "T", "F"))


def renames_inbox(a):
    imap(a, None, ("rename", "INBOX", "X"))


def renames_inbox_and_moves_back(a):
    imap(a, None, ("rename", "INBOX", "X"))
    imap(a, "X", ("uid", "MOVE", "1:40", "INBOX"))


def renames_inbox_and_deletes(a):
    imap(a, None, ("rename", "INBOX", "X"))
    imap(a, None, ("create", "G"))
    move(a, "X", "G")
    delete(a, "X")


WHAT = {moves_and_deletes: {"INBOX": 0, "G": MAILS}, makes_it_again: {"INBOX": 0, "F": MAILS}, renames_to_its_name: {"INBOX": 0, "F": MAILS},
        renames_inbox: {"INBOX": 0, "X": MAILS}, renames_inbox_and_moves_back: {"INBOX": 40, "X": MAILS - 40},
        renames_inbox_and_deletes: {"INBOX": 0, "G": MAILS}}
CASES = [(formats, what) for formats in FORMATS for what in WHAT
         if not (formats.startswith("maildir") and "inbox" in what.__name__)]  # Dovecot does not rename a Maildir's INBOX


def bodies(site):
    return {digest for _, mails in site.contents().values() for *_, digest in mails}


def hear(world, digests):
    """What left the first site comes to the second one; whatever is the last parcel, it has all mails."""
    lane, parcels = world[1].outbox[2], 0
    while lane:
        kind, _, body = lane.pop(0)
        if kind == BATCH:
            world[2].work(PARCEL, num(1) + num(kind) + text(body))
            parcels += 1
            assert bodies(world[2]) == digests, f"parcel {parcels}, {len(lane)} are to come"
    world[2].outbox[1].clear()
    return parcels


def ends_as(world, what):
    world.settle()
    world.settle()
    now = equal(world)
    assert {folder: subjects(now, folder) for folder in now} == WHAT[what]


def prepare(world, what):
    fill(world[1], "INBOX" if "inbox" in what.__name__ else "F")
    world.settle()
    before = bodies(world[2])
    assert len(before) == MAILS
    what(world[1])
    return before


@pytest.mark.long
@pytest.mark.parametrize("formats, what", CASES)
def test_a_site_that_is_lost_between_two_parcels_took_no_mail_along(formats, what):
    world = make_world(None, formats.split(","))
    try:
        before = prepare(world, what)
        world[1].ingest()
        assert hear(world, before) >= 2
        ends_as(world, what)
    finally:
        print(world[1].notes[-20:])
        world.stop()


def dies_behind_the_first_part(world, flag):
    """The first site's worker, in its look."""
    reached, trouble = flag.with_name(flag.name + ".reached"), []
    flag.write_text("stop")

    def run():
        try:
            world[1].ingest()
        except Failed as error:
            trouble.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    end = time.monotonic() + GUARD
    while not reached.exists():
        assert thread.is_alive() and time.monotonic() < end
        time.sleep(0.01)
    flag.write_text("")
    reached.unlink()
    thread.join(GUARD)
    assert trouble and not flag.exists()


@pytest.mark.parametrize("formats, what", CASES)
def test_a_worker_that_dies_behind_the_first_part_has_removed_nothing(formats, what):
    """And what was deleted or renamed is still known to be when the next one looks."""
    world, flag = crash_world(None, formats.split(","), "ingest-part")
    try:
        before = prepare(world, what)
        dies_behind_the_first_part(world, flag)
        assert hear(world, before) >= 1
        world[1].disconnect()
        world[1].ingest()
        hear(world, before)
        ends_as(world, what)
    finally:
        print(world[1].notes[-20:])
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


@pytest.mark.parametrize("formats", ["sdbox,sdbox", "mdbox,maildir"])
def test_an_inbox_that_was_renamed_and_deleted_before_it_was_read_is_gone(formats):
    """Nothing waits for what cannot be read any more."""
    world, flag = crash_world(None, formats.split(","), "ingest-part")
    try:
        prepare(world, renames_inbox)
        dies_behind_the_first_part(world, flag)
        world[1].disconnect()
        delete(world[1], "X")
        append(world[1], "INBOX", "after")
        world.settle()
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 1}
    finally:
        print(world[1].notes[-20:])
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("deleted", [True, False])
def test_nothing_is_removed_while_it_may_be_in_a_folder_that_is_locked(known, deleted):
    world = make_world(None, ["maildir", "sdbox"])
    try:
        a = world[1]
        fill(a, "F", 5, 100)
        append(a, "INBOX", "stays")
        append(a, "INBOX", "goes")
        if known:
            imap(a, None, ("create", "G"))
        world.settle()
        before = bodies(world[2])
        if not known:
            imap(a, None, ("create", "G"))
        move(a, "F", "G")
        imap(a, "INBOX", ("uid", "MOVE", "2", "G"))
        if deleted:
            delete(a, "F")
        lock = a.root() / ".G" / "dovecot-uidlist.lock"
        lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
        time.sleep(4)  # a younger one is waited for
        assert a.ingest()["tick"] > 0
        hear(world, before)
        a.ingest(("-", "F"), ("-", "INBOX"))
        hear(world, before)
        a.disconnect()
        assert a.ingest(("-", "F"))["tick"] > 0
        hear(world, before)
        lock.unlink()
        world.settle()
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 1, "G": 6, **({} if deleted else {"F": 0})}
    finally:
        print(world[1].notes[-20:])
        world.stop()


@pytest.mark.parametrize("deleted", [True, False])
def test_a_mail_whose_copy_cannot_be_read_is_not_removed(deleted):
    world = make_world(None, ["maildir", "sdbox"])
    try:
        a = world[1]
        fill(a, "F", 3, 100)
        imap(a, None, ("create", "G"))
        world.settle()
        before = bodies(world[2])
        move(a, "F", "G")
        if deleted:
            delete(a, "F")
        spoilt, = (path for name in ("new", "cur") for path in (a.root() / ".G" / name).iterdir() if b"Subject: F1" in path.read_bytes())
        spoilt.chmod(0)
        a.ingest()
        hear(world, before)
        assert any("cannot be read and waits" in said for _, said in a.notes), a.notes
        a.ingest(("-", "F"))
        hear(world, before)
        if not deleted:
            assert subjects(world[2].contents(), "F") == 1
            assert any(said.startswith("F: UID 2 was removed (1 so)") for _, said in a.notes)
        spoilt.chmod(0o600)
        world.settle()
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 0, "G": 3, **({} if deleted else {"F": 0})}
    finally:
        print(world[1].notes[-20:])
        world.stop()


def test_a_folder_that_is_deleted_and_made_again_keeps_what_comes_there_meanwhile():
    world = make_world(None, ["sdbox", "sdbox"])
    try:
        a, b = world[1], world[2]
        fill(a, "F")
        world.settle()
        append(b, "F", "new")
        makes_it_again(a)
        a.ingest()
        b.ingest()
        world.settle()
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 0, "F": MAILS + 1}
    finally:
        print(world[1].notes[-20:])
        world.stop()


@pytest.mark.parametrize("formats", FORMATS)
def test_nothing_is_removed_that_may_be_in_a_folder_with_another_name_by_now(formats):
    world = make_world(None, formats.split(","))
    try:
        a = world[1]
        fill(a, "F", 5, 100)
        imap(a, None, ("create", "G"))
        world.settle()
        before = bodies(world[2])
        hints = [(guid_of(a, name), name) for name in ("G", "F")]
        move(a, "F", "G")
        imap(a, None, ("rename", "G", "H"))
        a.ingest(*hints)
        hear(world, before)
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 0, "F": 0, "H": 5}
    finally:
        print(world[1].notes[-20:])
        world.stop()


@pytest.mark.parametrize("formats", FORMATS)
def test_a_look_at_one_mailbox_removes_nothing(formats):
    """A peer's mail comes before the hint of a client's MOVE: only the mailbox that it is for is looked at."""
    world = make_world(None, formats.split(","))
    try:
        a, b = world[1], world[2]
        fill(a, "F", 5, 100)
        imap(a, None, ("create", "G"))
        world.settle()
        a.disconnect()
        a.ingest(("-", "INBOX"))
        move(a, "F", "G")
        append(b, "F", "new")
        before = bodies(b)
        b.ingest()
        for kind, _, body in b.outbox[1]:
            a.work(PARCEL, num(2) + num(kind) + text(body))
        b.outbox[1].clear()
        hear(world, before)
        world.settle()
        world.settle()
        now = equal(world)
        assert {folder: subjects(now, folder) for folder in now} == {"INBOX": 0, "F": 1, "G": 5}
    finally:
        print(world[1].notes[-20:])
        world.stop()
