"""Mailboxes that clients make, rename and delete while the worker looks; the journal of intents."""
import contextlib
import fcntl
import os
import re
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
from worker_sites import append, delete, equal, guid_of, imap, make_world, needs_dovecot, subjects
from support.frames import CLOSE, PARCEL, num, text
from support.stack import dovecot
from support.worker_world import GUARD, USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@contextlib.contextmanager
def changing(site):
    """As a client that makes, renames or deletes a mailbox, which Dovecot does under this lock. What is started there is waited for:
    it must come to the lock, and ends when that is given back."""
    path, threads = site.root() / "mailboxes.lock", []

    def start(job, *args):
        threads.append(threading.Thread(target=job, args=args))
        threads[-1].start()
        end = time.monotonic() + GUARD
        while not re.search(rf"-> .*:{os.stat(f.fileno()).st_ino} ", Path("/proc/locks").read_text()):
            assert threads[-1].is_alive(), "nobody waited for whoever changes mailboxes"
            assert time.monotonic() < end
            time.sleep(0.01)

    with open(path, "w", encoding="ascii") as f:
        shutil.chown(path, "nobody", "nogroup")
        fcntl.lockf(f, fcntl.LOCK_EX)
        try:
            yield start
        finally:
            path.unlink()
    for thread in threads:
        thread.join()


def contents_of(site):
    """Of each file of the mailboxes and their indexes, not of the worker's own."""
    return {path: path.read_bytes() for path in site.root().rglob("*") if path.is_file() and site.state() not in path.parents}


def directory(site, folder):
    return site.root() / (f".{folder}" if site.format == "maildir" else f"mailboxes/{folder}")


def test_a_look_writes_nothing_into_mailboxes(world):
    """What it learnt by the way of each mailbox would go into that one's log and the list's index, under locks that clients wait for."""
    append(world[1], "INBOX", "m")
    world.settle()
    for site in world.sites.values():
        # By doveadm, which has ended when it answers; an imap process may write behind its answer.
        site.doveadm("mailbox", "create", "-u", USER, *(f"F{site.number}-{n}" for n in range(3)))
        site.doveadm("copy", "-u", USER, f"F{site.number}-1", "mailbox", "INBOX", "all")
        before = contents_of(site)
        site.ingest()
        changed = {path for path, now in contents_of(site).items() if before.get(path) != now}
        # A Maildir's own sync writes what it found.
        assert site.format == "maildir" or not changed, changed
    world.settle()
    assert subjects(equal(world), "F1-1") == subjects(equal(world), "F2-1") == 1


def test_a_mailbox_is_made_without_waiting_for_the_lists_index_under_the_lists_lock(world):
    """A client's process that brings that index up to date has its lock, and wants the lists' for an INBOX that is not there yet: the kernel let one die."""
    append(world[1], "INBOX", "m")
    world.settle()
    site, lists = world[2], world[2].root() / "mailboxes.lock"
    log = next(iter(site.root().rglob("dovecot.list.index.log")))
    imap(world[1], None, ("create", "F"))
    world[1].ingest()
    failed = []

    def apply():
        try:
            world.carry()
        except Exception as error:      # told below: a thread's end is seen by nobody
            failed.append(error)
    with open(log, "r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        worker = threading.Thread(target=apply)
        worker.start()
        end = time.monotonic() + GUARD
        while not re.search(rf"-> .*:{os.stat(held.fileno()).st_ino} ", Path("/proc/locks").read_text()):
            assert worker.is_alive() and time.monotonic() < end, "the index was not written"
            time.sleep(0.01)
        assert not lists.exists(), "waits for the index, and holds the lists' lock"
    worker.join()
    assert not failed, failed
    world.settle()
    assert subjects(equal(world), "INBOX") == 1 and "F" in world[2].contents()


def test_a_mailbox_that_is_being_made_is_not_opened(world):
    """Whoever opens it makes it, and the client's CREATE would be answered ALREADYEXISTS."""
    append(world[1], "INBOX", "m")
    world.settle()
    for site in world.sites.values():
        half = directory(site, f"F{site.number}")
        if site.format != "maildir":
            half = half / "dbox-Mails"
        with changing(site) as start:
            half.mkdir(parents=True)
            for path in (half, half.parent):
                shutil.chown(path, "nobody", "nogroup")
            site.work(CLOSE)  # the list of mailboxes is read anew
            start(site.ingest)
            assert not list(half.iterdir())
    world.settle()  # nobody ends it: it is a mailbox
    assert {"F1", "F2"} <= set(equal(world))


def test_nobody_waits_for_a_look_at_what_clients_deleted(world):
    """Their next DELETE would: for as long as all names take to be read, each time. What no client deleted is looked for while nobody can rename it."""
    a = world[1]
    imap(a, None, ("create", "Gone"), ("create", "Lost"))
    world.settle()
    delete(a, "Gone")
    with changing(a):
        a.ingest(sweep=True)
    world.settle()
    assert "Gone" not in equal(world)
    imap(a, None, ("delete", "Lost"))   # without the plugin
    with changing(a) as start:
        start(a.ingest)
    world.settle()
    assert "Lost" in equal(world)


def records(log):
    """Where the records of an index log end."""
    data, at = log.read_bytes(), 40
    while at + 8 <= len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        at += ((size & 0x7F) | (size >> 8 & 0x7F) << 7 | (size >> 16 & 0x7F) << 14 | (size >> 24 & 0x7F) << 21) << 2
        yield at


@pytest.mark.long
@pytest.mark.parametrize("formats", ["sdbox,mdbox"])
@pytest.mark.parametrize("hinted", [False, True])
def test_a_mailbox_without_uidvalidity_is_not_opened(tmp_path_factory, formats, hinted):
    """The first record of a new mailbox only says when temporary files were looked for. hinted: the worker knows it from earlier."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        for site in world.sites.values():
            name = f"F{site.number}"
            site.doveadm("mailbox", "create", "-u", USER, name)
            if hinted:
                site.ingest()
            log = site.root() / "mailboxes" / name / "dbox-Mails" / "dovecot.index.log"
            (log.parent / "dovecot.index").unlink(missing_ok=True)
            whole, first = log.read_bytes(), next(records(log))
            assert 40 < first < len(whole)
            hints = [(guid_of(site, name), name)] if hinted else []
            with changing(site) as start:
                log.write_bytes(whole[:first])
                site.work(CLOSE)
                start(site.ingest, *hints)
                assert log.stat().st_size == first
                log.write_bytes(whole)
        world.settle()
        assert {"F1", "F2"} <= set(equal(world))
    finally:
        world.stop()


def test_a_symbolic_link_to_a_mailbox_is_no_other_one(world):
    """Nor is a mailbox below a link to its parent."""
    for site in world.sites.values():
        parent, child = f"P{site.number}", f"P{site.number}/child"
        site.doveadm("mailbox", "create", "-u", USER, parent, child)
        append(site, child, f"m{site.number}")
        names = {f"{parent}-again": parent}
        if site.format == "maildir":
            names[f"{parent}-again.child"] = f"{parent}.child"
        for name, target in names.items():
            directory(site, name).symlink_to(directory(site, target).name)
    world.settle()
    for site in world.sites.values():
        other, verdict = 3 - site.number, site.admin("verify")
        assert verdict[-1] == "verdict\tsame", verdict
        assert subjects(site.contents(), f"P{other}/child") == 1
        assert not {name for name in site.contents() if f"P{other}-" in name}


@pytest.mark.parametrize("formats", ["maildir,sdbox"])
def test_an_inbox_below_a_symbolic_link_is_the_inbox(tmp_path_factory, formats):
    """The root of a Maildir is its INBOX, and often a link."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        site = world[1]
        append(site, "INBOX", "m")
        moved = site.root().with_name("elsewhere")
        site.root().rename(moved)
        site.root().symlink_to(moved.name)
        for _ in range(2):
            world.settle()
            assert subjects(equal(world), "INBOX") == 1
        assert not [text for _, text in site.notes if "INBOX is gone" in text]
    finally:
        world.stop()


def test_a_mailbox_is_not_lost_while_it_is_renamed(world):
    """A list of mailboxes that is read meanwhile may have neither name."""
    a = world[1]
    imap(a, None, ("create", "F"), ("create", "G"))
    append(a, "F", "m")
    world.settle()
    for site, name, to in ((a, "F", "T"), (world[2], "T", "U")):
        with changing(site) as start:
            away = site.base / "mail" / "away"
            directory(site, name).rename(away)
            site.work(CLOSE)
            start(site.ingest)
            away.rename(directory(site, to))
        world.settle()
        found = equal(world)
        assert set(found) == {"INBOX", "G", to} and subjects(found, to) == 1


def swap(site):
    imap(site, None, ("rename", "F", "T"), ("rename", "G", "F"), ("rename", "T", "G"))


def two_folders(world):
    imap(world[1], None, ("create", "F"), ("create", "G"))
    append(world[1], "F", "x")
    append(world[1], "G", "why")
    world.settle()
    return equal(world)


def test_a_hint_from_before_two_folders_were_swapped(world):
    a = world[1]
    before, guid = two_folders(world), guid_of(a, "F")
    append(a, "F", "x2")
    swap(a)
    a.ingest((guid, "F"))
    world.settle()
    now = equal(world)
    assert now["F"][1] == before["G"][1] and now["G"][1][0] == before["F"][1][0] and subjects(now, "G") == 2


def test_what_comes_before_a_swap_was_seen_is_done_to_the_right_mails(world):
    a, b = world[1], world[2]
    before = two_folders(world)
    append(b, "F", "x2")
    imap(b, "F", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    b.ingest()
    swap(a)
    while b.outbox[1]:
        kind, _, body = b.outbox[1].pop(0)
        a.work(PARCEL, num(2) + num(kind) + text(body))
    world.settle()
    now = equal(world)
    assert now["F"][1] == before["G"][1] and subjects(now, "G") == 1 and now["G"][1] != before["F"][1]


def test_a_folder_is_not_renamed_or_deleted_in_the_place_of_another(world):
    """Site 2 renames G and deletes F, where site 1 has swapped them and that was not seen yet."""
    a, b = world[1], world[2]
    before = two_folders(world)
    imap(a, "F", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    imap(b, None, ("rename", "G", "H"))
    delete(b, "F")
    b.ingest()
    swap(a)
    while b.outbox[1]:
        kind, _, body = b.outbox[1].pop(0)
        a.work(PARCEL, num(2) + num(kind) + text(body))
    world.settle()
    now = equal(world)
    assert [found[1] for name, found in now.items() if name != "INBOX" and found[1]] == [before["G"][1]]


def test_a_deletion_of_a_folder_that_is_another_sites_too_by_now(world):
    """Both made F. What site 1 has in it comes between site 2's DELETE and the look at that: F lives on, and is made again at site 2."""
    a, b = world[1], world[2]
    append(a, "INBOX", "x")
    world.settle()
    for site, name in ((a, "m"), (b, "n")):
        imap(site, None, ("create", "F"))
        append(site, "F", name)
        site.ingest()
    delete(b, "F")
    while a.outbox[2]:
        kind, _, body = a.outbox[2].pop(0)
        b.work(PARCEL, num(1) + num(kind) + text(body))
    world.settle()
    assert subjects(equal(world), "F") >= 1
    append(b, "F", "o")
    world.settle()
    assert subjects(equal(world), "F") >= 2


@pytest.mark.parametrize("renamed", [False, True])
def test_a_folder_that_lives_on_by_mails_not_placed_yet_is_made_again(world, renamed):
    """Site 2's user deletes F, of which the state has a mail that is not there yet: that mail stays, and so does the folder."""
    a, b = world[1], world[2]
    imap(a, None, ("create", "F"), ("create", "F/Sub"))
    append(a, "F", "old")
    world.settle()
    append(a, "F", "new", size=3 << 20)  # too large to come with its op
    if renamed:
        imap(a, None, ("rename", "F", "G"))
    a.ingest()
    delete(b, "F")
    while a.outbox[2]:
        kind, _, body = a.outbox[2].pop(0)
        b.work(PARCEL, num(1) + num(kind) + text(body))
    b.ingest()
    world.settle()
    now = equal(world)
    assert subjects(now, "G" if renamed else "F") == 1


def mark_deleted(root, folder):
    """What a process leaves that was killed in the middle of deleting a mailbox: its index says so, and it is there still."""
    log, = (path for path in root.rglob("dovecot.index.log") if path.parent.name == f".{folder}" or folder in path.parts)
    with open(log, "ab") as f:
        f.write(bytes.fromhex("80808083") + (0x10020000).to_bytes(4, "little") + bytes(4))


@pytest.mark.test
@pytest.mark.parametrize("under_way", [False, True])
def test_a_deletion_that_was_cut_short_is_taken_back(world, under_way):
    """The client was told nothing; nobody could open the mailbox. But not while the deleting process lives: it holds the journal's lock."""
    import fcntl
    for site in world.sites.values():
        imap(site, None, ("create", f"F{site.number}"))
        append(site, f"F{site.number}", "m")
    world.settle()
    held, before = [], [site.admin("status")[0] for site in world.sites.values()]
    for n, site in world.sites.items():
        journal = site.state() / "intents"
        journal.write_text(f"D\t{guid_of(site, f'F{n}')}\tF{n}\n")
        shutil.chown(journal, "nobody", "nogroup")
        mark_deleted(site.root(), f"F{n}")
        assert b"F%d" % n in site.doveadm("mailbox", "list", "-u", USER)
        if under_way:
            held.append(open(journal))
            fcntl.flock(held[-1], fcntl.LOCK_SH)
    world.settle()
    if under_way:
        for site in world.sites.values():
            assert "cut short" not in "".join(said for _, said in site.notes)
        # Nor is it taken for done: it may be refused yet.
        assert b"messages=1" in world[1].doveadm("mailbox", "status", "-u", USER, "messages", "F2")
        assert b"messages=1" in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "F1")
        assert [site.admin("status")[0] for site in world.sites.values()] == before
    for journal in held:
        journal.close()
    world.settle()
    world.settle()
    for n, site in world.sites.items():
        assert site.doveadm("mailbox", "status", "-u", USER, "messages", f"F{n}")
    assert {"F1", "F2"} <= set(equal(world))


def test_a_deletion_that_is_under_way_in_a_public_namespace_is_not_taken_back(tmp_path_factory):
    """Whoever deletes there holds the lock of the journal that is there."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"], public=True)
    try:
        site = world[1]
        imap(site, None, ("create", "Public/F"))
        append(site, "Public/F", "m")
        world.settle()
        journal = site.base / "public" / "dovelane" / "intents"
        journal.parent.mkdir(exist_ok=True)
        journal.write_text(f"D\t{guid_of(site, 'Public/F')}\tPublic/F\n")
        for path in (journal.parent, journal):
            shutil.chown(path, "nobody", "nogroup")
        mark_deleted(site.base / "public", "F")
        with open(journal) as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            world.settle()
            assert "cut short" not in "".join(said for _, said in site.notes)
            assert b"messages=1" in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "Public/F")
        world.settle()
        world.settle()
        assert "cut short" in "".join(said for _, said in site.notes)
        assert subjects(equal(world, uids=False), "Public/F") == 1
    finally:
        world.stop()


def locked(site, folder):
    lock = site.root() / f".{folder}" / "dovecot-uidlist.lock"
    lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
    time.sleep(4)  # a younger one is waited for
    return lock


def test_a_folder_that_cannot_be_read_under_its_new_name_is_not_lost(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        append(site, "F", "m")
        world.settle()
        lock = locked(site, "F")
        imap(site, None, ("rename", "F", "G"))
        for _ in range(2):
            assert site.ingest()["tick"] > 0
        (site.root() / ".G" / lock.name).unlink()
        world.settle()
        world.settle()
        now = equal(world)
        assert set(now) == {"INBOX", "G"} and subjects(now, "G") == 1
        assert not [said for _, said in site.notes if "gone though" in said]
    finally:
        world.stop()


def test_a_deleted_folder_whose_name_another_one_has_that_cannot_be_read_is_deleted(tmp_path_factory):
    """The line that says so waits with it."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        append(site, "F", "m")
        world.settle()
        delete(site, "F")
        imap(site, None, ("create", "F"))
        lock = locked(site, "F")
        for _ in range(2):
            site.ingest()
        lock.unlink()
        world.settle()
        world.settle()
        assert subjects(equal(world), "F") == 0
        assert not list(site.state().glob("intents*"))
    finally:
        world.stop()


def test_an_empty_journal_that_was_taken_is_no_end_of_it(world):
    """Of a process that made it and could not write, or was killed before."""
    site = world[1]
    imap(site, None, ("create", "F"))
    world.settle()
    empty = site.state() / "intents.work"
    empty.touch()
    shutil.chown(empty, "nobody", "nogroup")
    delete(site, "F")
    world.settle()
    world.settle()
    assert "F" not in equal(world)
    assert not list(site.state().glob("intents*"))


def test_a_journal_of_many_deletions(tmp_path_factory):
    """Thousands were deleted while nobody looked. The memory for each folder's look into the journal must not add up, and what a power loss
    left of zeros hides nothing."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        site = world[1]
        for n in range(30):
            imap(site, None, ("create", f"F{n}"))
        world.settle()
        journal = site.state() / "intents"
        with open(journal, "w", encoding="ascii") as file:
            for n in range(60000):
                file.write(f"D\t{n:032x}\tgone{n}\n" + (f"x\t{n:032x}\n" if n % 2 else ""))
            file.write("\0" * 4096)
        for n in range(30):
            delete(site, f"F{n}")
        world.settle()
        assert set(equal(world)) == {"INBOX"}
        assert not journal.exists()
        assert not any("nobody deleted" in said for _, said in site.notes), site.notes
    finally:
        world.stop()


@pytest.mark.parametrize("words,deleted", [("D x", False), ("D x D", True), ("D D x", True)])
@pytest.mark.parametrize("under_way", [False, True])
def test_a_deletion_that_was_refused_is_no_evidence(world, words, deleted, under_way):
    """A DELETE is answered NO, and the folder is lost before all are listed again. Several processes write to one journal, and one that is
    killed writes no outcome: each takes back its own alone. under_way: the journal is read where it is, twice."""
    for site in world.sites.values():
        imap(site, None, ("create", f"F{site.number}"))
        append(site, f"F{site.number}", "m")
    world.settle()
    with contextlib.ExitStack() as held:
        for n, site in world.sites.items():
            guid, journal = guid_of(site, f"F{n}"), site.state() / "intents"
            journal.write_text("".join(f"{word}\t{guid}" + f"\tF{n}" * (word == "D") + "\n" for word in words.split()))
            shutil.chown(journal, "nobody", "nogroup")
            if under_way:
                fcntl.flock(held.enter_context(open(journal)), fcntl.LOCK_SH)
            shutil.rmtree(site.root() / (f".F{n}" if site.format == "maildir" else f"mailboxes/F{n}"))
        world.settle()
    world.settle()
    now = equal(world, uids=False)
    assert set(now) == ({"INBOX"} if deleted else {"INBOX", "F1", "F2"})
    for folder in set(now) - {"INBOX"}:
        assert subjects(now, folder) == 1


@pytest.mark.long
def test_a_folder_that_lives_on_gives_no_uid_twice(world):
    """What came into it after the last look is gone with its DELETE; a client had seen the UID."""
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "m")
    world.settle()

    def said(site):
        status = site.doveadm("mailbox", "status", "-u", USER, "uidvalidity uidnext", "F").decode()
        uids = site.doveadm("fetch", "-u", USER, "uid", "mailbox", "F", "all").decode()
        return re.search(r"uidvalidity=(\d+)", status)[1], [int(n) for n in re.findall(r"\d+", uids)]

    before, _ = said(world[1])
    append(world[2], "F", "there")
    append(world[1], "F", "here")
    assert said(world[1])[1] == [1, 2]
    guid = guid_of(world[1], "F")
    delete(world[1], "F")
    with open(world[1].state() / "intents", "a", encoding="ascii") as journal:
        journal.write(f"N\t{guid}\t3\n")
    world.settle()
    assert subjects(equal(world), "F") == 1
    for site in world.sites.values():
        validity, (uid,) = said(site)
        assert validity == before and uid >= 3, (site.number, validity, uid)


@pytest.mark.parametrize("name", ["intents", "intents.work"])
def test_a_journal_that_is_no_file(tmp_path_factory, name):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        os.mkfifo(world[1].state() / name)
        append(world[1], "INBOX", "n")
        world.settle()
        assert subjects(equal(world), "INBOX") == 2
        assert not (world[1].state() / name).exists()
        assert any(f"{name} is no regular file: removed" in said for _, said in world[1].notes), world[1].notes
    finally:
        world.stop()


@pytest.mark.parametrize("formats", [["maildir", "sdbox"], ["maildir", "mdbox"], ["sdbox", "maildir"]])
def test_a_folder_gets_the_name_of_a_parent_whose_children_are_deleted(tmp_path_factory, formats):
    """Of which a dbox has the directory still."""
    world = make_world(tmp_path_factory, formats)
    try:
        site = world[1]
        imap(site, None, ("create", "A/D"), ("create", "X"))
        append(site, "X", "x1")
        world.settle()
        delete(site, "A/D")
        if formats[0] != "maildir": # there Dovecot itself refuses to rename it while that stands
            shutil.rmtree(site.root() / "mailboxes/A")
        world.settle()
        imap(site, None, ("rename", "X", "A"))
        for _ in range(3):
            world.settle()
        append(site, "A", "x2")
        world.settle()
        assert subjects(equal(world), "A") == 2
    finally:
        world.stop()


ELSEWHERE23 = "namespace elsewhere {{\n  prefix = Elsewhere/\n  separator = {sep}\n  location = sdbox:~/elsewhere\n}}\n"
ELSEWHERE24 = "namespace elsewhere {{\n  prefix = Elsewhere/\n  separator = {sep}\n  mail_driver = sdbox\n  mail_path = ~/elsewhere\n}}\n"


def test_a_name_that_lies_in_another_namespace_here_is_shown_in_its_own(tmp_path_factory):
    """A namespace that only one site has, as shared/ may be: what the other one makes under its name would come into that one."""
    more = (ELSEWHERE24 if dovecot.version() >= (2, 4) else ELSEWHERE23).format(sep="/")
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], more={1: more})
    try:
        for name in ("Elsewhere", "Elsewhere/X"):
            imap(world[2], None, ("create", name))
            append(world[2], name, f"in {name}")
        for _ in range(3):
            world.settle()
        here, there = (site.contents() for site in world.sites.values())
        assert len(here["%45lsewhere/X"][1]) == len(there["Elsewhere/X"][1]) == 1
        assert len(here["%45lsewhere"][1]) == len(there["Elsewhere"][1]) == 1
        assert not (world[1].home() / "elsewhere" / "mailboxes" / "X").exists()
        append(world[1], "%45lsewhere/X", "of 1")
        for _ in range(2):
            world.settle()
        assert len(world[2].contents()["Elsewhere/X"][1]) == 2
        assert not any("wait" in said for _, said in world[1].notes), world[1].notes
    finally:
        world.stop()
