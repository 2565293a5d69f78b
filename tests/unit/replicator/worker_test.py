"""dovelane-worker against real Dovecots: what two and three sites show after changes at once, damage, crashes and losses.

Run by pytest; DOVELANE_BUILD names the build directory, DOVELANE_FORMATS the storages of the sites (default: all three mixes).
"""
import contextlib
import fcntl
import hashlib
import imaplib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from worker_world import (BODIES, BODY, CLOSE, DONE, GUARD, HELLO_TOO, PARCEL, TICK, USER, WANT, Failed, Site, World, dovecot_version, num,
                          pigeonhole, text)

BUILD = Path(os.environ.get("DOVELANE_BUILD", "build"))
WORKER = BUILD / "dovecot-plugin" / "replicator" / "worker" / "dovelane-worker"
MIXES = os.environ.get("DOVELANE_FORMATS", "sdbox,sdbox maildir,sdbox mdbox,maildir").split()

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("dovecot"), reason="needs root and Dovecot")


def mail(subject, size=0):
    body = b"".join(b"line %06d of some text that is no longer than this\r\n" % i for i in range(size // 50))
    return b"From: a@example.org\r\nSubject: %s\r\n\r\nhello %s\r\n" % (subject.encode(), subject.encode()) + body


def make_world(_, formats, crash=None, public=False):
    # Not below pytest's own directory, which each run of pytest takes the rights from that other users have.
    base = Path(tempfile.mkdtemp(prefix="worker-"))
    base.chmod(0o711)
    worker, env = WORKER, None
    if crash:
        worker, env = WORKER.with_name("dovelane-worker-crashing"), {"DOVELANE_CRASH_AT": crash}
    return World(base, formats, worker.resolve(), env, public)


@pytest.fixture(params=MIXES)
def world(request, tmp_path_factory):
    made = make_world(tmp_path_factory, request.param.split(","))
    yield made
    told = "".join(f"--- site {s.number}\n{s.log.read_text()[-4000:]}" for s in made.sites.values())
    made.stop()
    print(told)


@pytest.fixture
def three(tmp_path_factory):
    made = make_world(tmp_path_factory, ["sdbox", "maildir", "mdbox"])
    yield made
    made.stop()


def append(site, folder, subject, flags=None, size=0):
    box = site.imap()
    ok, said = box.append(folder, flags, None, mail(subject, size))
    assert ok == "OK", said
    box.logout()


def imap(site, folder, *commands):
    """IMAP commands in a selected folder (None: in none)."""
    box = site.imap()
    if folder:
        assert box.select(f'"{folder}"')[0] == "OK"
    for command, *args in commands:
        ok, said = getattr(box, command)(*args)
        assert ok == "OK", (command, args, said)
    box.logout()


def guid_of(site, folder):
    said = site.doveadm("mailbox", "status", "-u", USER, "guid", folder).decode()
    return said.split("guid=")[1].strip()


def delete(site, folder, journal=None):
    """As a client with the plugin: its intent comes first. journal: the directory it is in, if not the INBOX's."""
    line = f"D\t{guid_of(site, folder)}\t{folder}\n"
    path = (journal or site.state()) / "intents"
    if not path.parent.exists():
        path.parent.mkdir()
        shutil.chown(path.parent, "nobody", "nogroup")
    with open(path, "a", encoding="ascii") as f:
        f.write(line)
    shutil.chown(path, "nobody", "nogroup")
    imap(site, None, ("delete", f'"{folder}"'))


def equal(world, uids=True):
    first, *others = [s.contents(uids) for s in world.sites.values()]
    for other in others:
        assert other == first
    for site in world.sites.values():
        verdict = site.admin("verify", "bodies")
        assert verdict[-1] == "verdict\tsame", verdict
    digests = {site.admin("verify")[0] for site in world.sites.values()}
    assert len(digests) == 1
    return first


def subjects(contents, folder):
    return len(contents[folder][1])


# --- what one site does, the other shows


def test_changes_of_one_site_reach_the_other(world):
    a = world[1]
    append(a, "INBOX", "one", "(\\Seen)")
    append(a, "INBOX", "two")
    imap(a, None, ("create", '"Work/Sub"'), ("subscribe", '"Work/Sub"'))
    append(a, "Work/Sub", "three", "(\\Flagged $Foo)")
    world.settle()
    assert subjects(equal(world), "INBOX") == 2
    imap(a, "INBOX", ("store", "1", "+FLAGS", "(\\Answered Kw)"), ("copy", "2", '"Work/Sub"'),
         ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    now = equal(world)
    assert subjects(now, "INBOX") == 1 and subjects(now, "Work/Sub") == 2
    imap(a, None, ("rename", '"Work/Sub"', '"Other"'))
    world.settle()
    assert subjects(equal(world), "Other") == 2
    assert b"Work/Sub" in world[2].doveadm("mailbox", "list", "-s", "-u", USER)
    delete(a, "Other")
    imap(a, None, ("unsubscribe", '"Work/Sub"'))
    world.settle()
    assert "Other" not in equal(world)
    assert b"Work/Sub" not in world[2].doveadm("mailbox", "list", "-s", "-u", USER)


def test_a_second_ingest_makes_no_op(world):
    append(world[1], "INBOX", "one", "(\\Seen)")
    world.settle()
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    world[1].work(CLOSE)
    world[2].work(CLOSE)
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before


def test_moved_mail_is_not_shipped_again(world):
    append(world[1], "INBOX", "one", size=300000)
    imap(world[1], None, ("create", "Box"))
    world.settle()
    world.carried.clear()
    imap(world[1], "INBOX", ("copy", "1", "Box"), ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    assert subjects(equal(world), "Box") == 1


# --- both at once


def both(world, first, second):
    """Both sites know the same, then change without hearing of each other."""
    world.settle()
    first(world[1])
    second(world[2])
    world.settle()
    return equal(world)


def test_appends_at_once_are_both_there_with_one_uid_each(world):
    now = both(world, lambda s: append(s, "INBOX", "a"), lambda s: append(s, "INBOX", "b"))
    assert subjects(now, "INBOX") == 2


def test_many_appends_at_once(world):
    def some(name):
        return lambda s: [append(s, "INBOX", f"{name}{i}") for i in range(12)]
    assert subjects(both(world, some("a"), some("b")), "INBOX") == 24


def test_flags_at_once_are_united(world):
    append(world[1], "INBOX", "one")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)")),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Answered)")))
    assert now["INBOX"][1][0][1] == {"\\Flagged", "\\Answered"}


def test_setting_again_wins_over_clearing(world):
    append(world[1], "INBOX", "one", "(\\Flagged)")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)")),
               lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)"), ("store", "1", "+FLAGS", "(\\Flagged)")))
    assert now["INBOX"][1][0][1] == {"\\Flagged"}


def test_expunge_wins_over_a_flag(world):
    append(world[1], "INBOX", "one")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",)),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Seen)")))
    assert subjects(now, "INBOX") == 0


@pytest.mark.parametrize("formats", ["sdbox,maildir", "maildir,mdbox"])
def test_a_public_folder_that_is_deleted_is_deleted_everywhere(tmp_path_factory, formats):
    """The intent is in the public namespace's own control directory, as whoever deletes there writes it."""
    world = make_world(tmp_path_factory, formats.split(","), public=True)
    try:
        for folder in ("Public/Gone", "Public/Stays", "Mine"):
            imap(world[1], None, ("create", folder))
            append(world[1], folder, "in " + folder, "(\\Flagged)")
        world.settle()
        assert {"Public/Gone", "Public/Stays", "Mine"} <= set(equal(world, uids=False))
        delete(world[2], "Public/Gone", world[2].base / "public" / "dovelane")
        delete(world[2], "Mine")
        world.settle()
        now = equal(world, uids=False)
        assert "Public/Gone" not in now and "Mine" not in now and subjects(now, "Public/Stays") == 1
        world.settle()
        assert equal(world, uids=False) == now
        assert not list((world[2].base / "public" / "dovelane").iterdir())
    finally:
        world.stop()


def test_a_folder_deleted_here_and_filled_there_lives_with_that_mail(world):
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "old")
    now = both(world, lambda s: delete(s, "F"), lambda s: append(s, "F", "new"))
    assert subjects(now, "F") == 1


@pytest.mark.parametrize("later", [1, 2])
def test_a_folder_made_on_both_is_one(world, later):
    """Also when its UIDVALIDITY, a second or more apart, is higher where the id that stays was not made, and the reverse."""
    def make(name):
        def run(site):
            imap(site, None, ("create", "H"))
            if site.number == later:
                site.doveadm("mailbox", "update", "-u", USER, "--uid-validity", str(int(time.time()) + 100), "H")
            append(site, "H", name)
        return run
    assert subjects(both(world, make("a"), make("b")), "H") == 2


def test_one_mail_copied_on_both_is_one_copy(world):
    append(world[1], "INBOX", "one")
    imap(world[1], None, ("create", "H"))
    now = both(world, lambda s: imap(s, "INBOX", ("copy", "1", "H")), lambda s: imap(s, "INBOX", ("copy", "1", "H")))
    assert subjects(now, "H") == 1


def test_renames_at_once_end_in_one_name(world):
    imap(world[1], None, ("create", "G"))
    append(world[1], "G", "one")
    now = both(world, lambda s: imap(s, None, ("rename", "G", "G1")), lambda s: imap(s, None, ("rename", "G", "G2")))
    assert sorted(now) in (["G1", "INBOX"], ["G2", "INBOX"])
    assert sum(len(m) for _, m in now.values()) == 1


def test_renames_into_each_other_make_no_cycle(world):
    imap(world[1], None, ("create", "G"), ("create", "P"))
    append(world[1], "G", "g")
    append(world[1], "P", "p")
    now = both(world, lambda s: imap(s, None, ("rename", "G", "P/G")), lambda s: imap(s, None, ("rename", "P", "G/P")))
    assert sum(len(m) for _, m in now.values()) == 2


def test_swapped_names(world):
    imap(world[1], None, ("create", "X"), ("create", "Y"))
    append(world[1], "X", "x")
    append(world[1], "Y", "y")
    append(world[1], "Y", "y2")
    world.settle()
    imap(world[1], None, ("rename", "X", "T"), ("rename", "Y", "X"), ("rename", "T", "Y"))
    world.settle()
    now = equal(world)
    assert subjects(now, "X") == 2 and subjects(now, "Y") == 1


def test_a_renamed_parent_takes_its_children(world):
    imap(world[1], None, ("create", "P"), ("create", "P/C"))
    append(world[1], "P/C", "c")
    now = both(world, lambda s: imap(s, None, ("rename", "P", "Q")), lambda s: imap(s, None, ("create", "P/New")))
    assert subjects(now, "Q/C") == 1 and "P/New" in now


def test_renamed_inbox_moves_its_mail(world):
    if world[1].format == "maildir":
        pytest.skip("Dovecot does not rename a Maildir's INBOX")
    append(world[1], "INBOX", "old")
    now = both(world, lambda s: imap(s, None, ("rename", "INBOX", "Archive")), lambda s: append(s, "INBOX", "new"))
    assert subjects(now, "Archive") == 1 and subjects(now, "INBOX") == 1


def test_undeleting_wins(world):
    append(world[1], "INBOX", "one", "(\\Deleted)")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Deleted)")),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)")))
    assert now["INBOX"][1][0][1] == set()


# --- three


def test_three_sites(three):
    three.settle()
    for n, site in three.sites.items():
        for i in range(5):
            append(site, "INBOX", f"{n}-{i}")
        imap(site, None, ("create", "Same"))
        append(site, "Same", f"s{n}")
    three.settle()
    now = equal(three)
    assert subjects(now, "INBOX") == 15 and subjects(now, "Same") == 3


# --- damage


def indexes(site):
    return [p for p in site.root().rglob("dovecot*") if "dovelane" not in p.parts]


def test_a_lost_index_loses_nothing(world):
    for i in range(5):
        append(world[1], "INBOX", f"m{i}", "(\\Seen Kw)")
    world.settle()
    before = equal(world, uids=False)
    for site in world.sites.values():
        site.work(CLOSE)
        for path in indexes(site):
            if path.is_file() and path.name.startswith("dovecot.index"):
                path.unlink()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


def test_a_lost_mail_directory_is_fetched_back(world):
    imap(world[1], None, ("create", "F"))
    for i in range(4):
        append(world[1], "F", f"m{i}", "(\\Flagged)")
    world.settle()
    before = equal(world, uids=False)
    site = world[2]
    site.work(CLOSE)
    for path in list(site.root().rglob("*")):
        if path.name in ("F", ".F") and path.is_dir():
            shutil.rmtree(path)
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


def test_mail_directory_of_one_site_gone(world):
    for i in range(4):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged)")
    world.settle()
    before = equal(world, uids=False)
    site = world[1]
    site.work(CLOSE)
    site.disconnect()
    keep = site.base / "kept"
    shutil.move(site.state(), keep)
    shutil.rmtree(site.root())
    site.root().mkdir()
    shutil.move(keep, site.state())
    shutil.chown(site.root(), "nobody", "nogroup")
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


def test_state_lost_is_learned_again(world):
    for i in range(4):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged)")
    world.settle()
    before = equal(world)
    site = world[1]
    site.work(CLOSE)
    site.disconnect()
    shutil.rmtree(site.state())
    world.settle()
    assert equal(world) == before


def test_an_old_state_gets_a_new_epoch_and_loses_nothing(world):
    site = world[1]
    append(site, "INBOX", "old")
    world.settle()
    site.work(CLOSE)
    site.disconnect()
    shutil.copytree(site.state(), site.base / "old")
    append(site, "INBOX", "new")
    world.settle()
    before = equal(world)
    site.work(CLOSE)
    site.disconnect()
    shutil.rmtree(site.state())
    shutil.copytree(site.base / "old", site.state())
    subprocess.run(["chown", "-R", "nobody:nogroup", str(site.state())], check=True)
    world.settle()
    world.settle()
    assert equal(world) == before


def keep_state(site):
    site.work(CLOSE)
    site.disconnect()
    shutil.rmtree(site.base / "old", ignore_errors=True)
    shutil.copytree(site.state(), site.base / "old")


def rewind_state(site):
    site.disconnect()
    shutil.rmtree(site.state())
    shutil.copytree(site.base / "old", site.state())
    subprocess.run(["chown", "-R", "nobody:nogroup", str(site.state())], check=True)


def flags_of(world, uids=False):
    """{subject: flags}, alike at all sites."""
    shown = equal(world, uids)["INBOX"][1]
    names = {hashlib.sha256(mail(f"{kind}{n}")).hexdigest()[:12]: f"{kind}{n}" for kind in ("known", "here", "peer") for n in range(4)}
    assert len({digest for *_, digest in shown}) == len(shown), shown
    return {names[digest]: set(flags) for _, flags, _, digest in shown}


def store(site, subject, how, flags):
    box = site.imap()
    box.select("INBOX")
    (number,) = box.search(None, "SUBJECT", subject)[1][0].split()
    assert box.store(number, how, flags)[0] == "OK"
    box.logout()


@pytest.mark.parametrize("how", ["confirmed", "lost", "unseen"])
def test_flags_changed_since_an_old_state_stand(world, how):
    """The state is older than the mailbox and its log: changes that the peer has, that were numbered and not shipped, or not looked at."""
    site = world[1]
    append(site, "INBOX", "known0", "(\\Seen Old)")
    append(site, "INBOX", "known1", "(\\Seen Old)")
    world.settle()
    keep_state(site)
    append(site, "INBOX", "here0")
    append(world[2], "INBOX", "peer0")
    world.settle()
    for subject in ("known0", "here0", "peer0"):
        store(site, subject, "+FLAGS", "(\\Answered New)")
    store(site, "known1", "-FLAGS", "(\\Seen Old)")
    if how == "confirmed":
        world.settle()
    elif how == "lost":
        site.ingest()
        site.outbox[2].clear()
    site.disconnect()
    rewind_state(site)
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    new = {"\\Answered", "New"}
    assert flags_of(world) == {"known0": new | {"\\Seen", "Old"}, "known1": set(), "here0": new, "peer0": new}


@pytest.mark.parametrize("how", ["confirmed", "lost", "unseen"])
def test_what_was_applied_since_an_old_state_is_no_change_of_this_site(world, how):
    """Flags that came from a peer and that the old state does not know of; and a client's last word on a mail that it does not know."""
    site, peer = world[1], world[2]
    for n in range(4):
        append(site, "INBOX", f"known{n}", "(\\Seen Old)")
    world.settle()
    keep_state(site)
    for n in range(2):
        append(site, "INBOX", f"here{n}", "(\\Seen Old)")
    world.settle()
    store(peer, "known0", "-FLAGS", "(\\Seen Old)")
    store(peer, "known1", "+FLAGS", "(\\Answered New)")
    world.settle()
    store(site, "here0", "-FLAGS", "(\\Seen Old)")
    store(site, "known2", "+FLAGS", "(\\Answered New)")
    store(site, "known2", "-FLAGS", "(\\Answered New)")
    if how == "confirmed":
        world.settle()
    elif how == "lost":
        site.ingest()
        site.outbox[2].clear()
    site.disconnect()
    store(peer, "known0", "+FLAGS", "(\\Seen Old)")
    store(peer, "known1", "-FLAGS", "(\\Answered New)")
    peer.ingest()
    rewind_state(site)
    site.verdict = True
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    old = {"\\Seen", "Old"}
    assert flags_of(world) == {"known0": old, "known1": old, "known2": old, "known3": old, "here0": set(), "here1": old}


def test_uids_changed_since_an_old_state_remove_nothing(world):
    """What a site does on its way to equal UIDs looks like a client's copy and expunge to a state that does not know of it."""
    site = world[1]
    world.settle()
    for number, kind in ((1, "here"), (2, "peer")):
        for n in range(2):
            append(world[number], "INBOX", f"{kind}{n}", "(\\Seen)")
    for each in world.sites.values():
        each.ingest()
    keep_state(site)
    uids = [m[0] for m in site.contents()["INBOX"][1]]
    world.settle()
    assert not set(uids) & {m[0] for m in equal(world)["INBOX"][1]}, "no UID clashed"
    store(site, "here0", "+FLAGS", "(\\Answered New)")
    store(site, "here1", "-FLAGS", "(\\Seen)")
    store(world[2], "here0", "+FLAGS", "(\\Flagged)")
    store(site, "peer0", "+FLAGS", "(\\Answered New)")
    store(world[2], "peer1", "+FLAGS", "(\\Flagged)")
    site.disconnect()
    rewind_state(site)
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert flags_of(world) == {"here0": {"\\Seen", "\\Answered", "\\Flagged", "New"}, "here1": set(),
                               "peer0": {"\\Seen", "\\Answered", "New"}, "peer1": {"\\Seen", "\\Flagged"}}


def test_a_flag_set_before_a_mail_got_another_uid_that_an_old_state_does_not_know(world):
    """The mail came, was published, got its flag, and then its other UID, all since the state: the copy has the flag, and no record says so."""
    site, peer = world[2], world[1]
    world.settle()
    keep_state(site)
    append(site, "INBOX", "here0")
    append(peer, "INBOX", "peer0")
    site.ingest()
    uids = [m[0] for m in site.contents()["INBOX"][1]]
    for kind, _, body in site.outbox[1]:
        peer.work(PARCEL, num(2) + num(kind) + text(body))
    site.outbox[1].clear()
    peer.outbox[2].clear()
    store(site, "here0", "+FLAGS", "(\\Answered New)")
    peer.ingest()
    for _ in range(20):     # none of this site's ops reaches the peer
        while world.carry(lambda a, _, kind: a == 2 and kind == 1):
            pass
        peer.ship(2, 1)
        for each in world.sites.values():
            each.work(TICK)
        time.sleep(0.1)
    assert not set(uids) & {m[0] for m in site.contents()["INBOX"][1]}, "no UID clashed"
    site.disconnect()
    rewind_state(site)
    site.verdict = True
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert flags_of(world) == {"here0": {"\\Answered", "New"}, "peer0": set()}


def test_a_flag_set_again_after_an_old_state_and_another_uid(world):
    """The mail got another UID, its flags were cleared elsewhere and here, and set again elsewhere: no client cleared them here."""
    site, peer = world[1], world[2]
    world.settle()
    append(site, "INBOX", "here0", "(\\Seen Old)")
    append(peer, "INBOX", "peer0")
    for each in world.sites.values():
        each.ingest()
    keep_state(site)
    uids = [m[0] for m in site.contents()["INBOX"][1]]
    world.settle()
    assert not set(uids) & {m[0] for m in equal(world)["INBOX"][1]}, "no UID clashed"
    store(peer, "here0", "-FLAGS", "(\\Seen Old)")
    world.settle()
    site.disconnect()
    store(peer, "here0", "+FLAGS", "(\\Seen Old)")
    peer.ingest()
    rewind_state(site)
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert flags_of(world) == {"here0": {"\\Seen", "Old"}, "peer0": set()}


@pytest.mark.parametrize("folder", ["INBOX", "New"])
def test_a_flag_cleared_elsewhere_of_a_mail_that_an_old_state_does_not_know(world, folder):
    """The mail, and perhaps its folder, came from a peer since the state: its flags are what the later state knew, not a client's word here."""
    site, peer = world[1], world[2]
    world.settle()
    keep_state(site)
    if folder != "INBOX":
        imap(peer, None, ("create", folder))
    append(peer, folder, "peer0", "(\\Seen Old)")
    append(peer, folder, "peer1", "(\\Seen Old)")
    world.settle()
    imap(site, folder, ("store", "2", "+FLAGS", "(\\Answered New)"))
    site.disconnect()
    imap(peer, folder, ("store", "1:2", "-FLAGS", "(\\Seen Old)"))
    peer.ingest()
    rewind_state(site)
    site.verdict = True
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert [set(flags) for _, flags, _, _ in equal(world, False)[folder][1]] in ([set(), {"\\Answered", "New"}], [{"\\Answered", "New"}, set()])


def test_a_forced_resync_removes_nothing_and_adds_nothing(world):
    for i in range(6):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged Kw)")
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    before = equal(world, uids=False)
    for site in world.sites.values():
        if site.format == "mdbox":
            site.doveadm("purge", "-u", USER)  # else the storage itself brings back what was expunged
        site.doveadm("force-resync", "-u", USER, "INBOX")
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


def test_an_index_of_yesterday_loses_nothing(world):
    append(world[1], "INBOX", "old", "(Kw)")
    world.settle()
    for site in world.sites.values():
        if site.format == "mdbox":
            continue  # its index and its map of the storage are restored together, or not at all
        site.work(CLOSE)
        kept = {p: p.read_bytes() for p in indexes(site) if p.is_file() and p.name.startswith("dovecot.index")}
        append(site, "INBOX", f"new{site.number}", "(\\Flagged)")
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Seen)"))
        world.settle()
        before = equal(world, uids=False)
        site.work(CLOSE)
        for path, data in kept.items():
            path.write_bytes(data)
        world.settle()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_lost_map_of_an_mdbox_doubles_nothing_and_brings_nothing_back(tmp_path_factory, closed):
    """Its files have the mails still, also those that were expunged and not purged, and one that nobody has heard of yet."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    try:
        site, peer = world[1], world[2]
        imap(site, None, ("create", "F"))
        for i in range(6):
            append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "F", "f")
        imap(site, "INBOX", ("copy", "1", "INBOX"), ("copy", "2", "F"))
        world.settle()
        imap(site, "INBOX", ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        imap(site, "INBOX", ("copy", "3", "F"), ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        imap(peer, "INBOX", ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        before = equal(world, uids=False)
        if closed:
            site.work(CLOSE)
        append(site, "INBOX", "late")
        for path in site.root().rglob("dovecot*index*"):
            if path.name.startswith(("dovecot.index", "dovecot.map.index")):
                path.unlink()
        for _ in range(3):
            world.settle()
        late = equal(world, uids=False)
        # "late", and the one that was moved to F and lives there: whether a client moved it back nobody knows.
        assert len(late["INBOX"][1]) == len(before["INBOX"][1]) + 2 and late["F"] == before["F"], site.notes
        assert [m for m in before["INBOX"][1] if m not in late["INBOX"][1]] == []
    finally:
        world.stop()


def lose_map(site):
    """An mdbox's map and all indexes, of a closed user."""
    site.work(CLOSE)
    for path in site.root().rglob("dovecot*index*"):
        if path.name.startswith(("dovecot.index", "dovecot.map.index")):
            path.unlink()


@pytest.mark.parametrize("lost", ["before", "after"])
def test_what_was_expunged_when_a_worker_died_is_not_brought_back_by_a_rebuild(tmp_path_factory, lost):
    """By a peer's word: the mailbox has done it, and the state does not know. The map is lost before the next worker looks, or after it did; the
    rebuild gives the mails other UIDs."""
    world, flag = crash_world(tmp_path_factory, ["mdbox", "sdbox"], "remove")
    site, peer = world[1], world[2]

    try:
        for i in range(4):
            append(site, "INBOX", f"m{i}")
        world.settle()
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        site.doveadm("purge", "-u", USER)
        world.settle()
        imap(peer, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        flag.write_text("")
        with pytest.raises(Failed, match="site 1"):
            world.settle()
        site.disconnect()
        site.done = {}
        if lost == "before":
            lose_map(site)
        for each in world.sites.values():
            each.ingest()
            each.ship(3 - each.number, HELLO_TOO)
        world.settle()
        if lost == "after":
            assert subjects(equal(world), "INBOX") == 2
            lose_map(site)
        for _ in range(3):
            world.settle()
        assert subjects(equal(world), "INBOX") == 2, site.notes
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


def test_a_mail_that_is_expunged_again_after_a_rebuild_stays_expunged(tmp_path_factory):
    """Nothing else is to be done in the mailbox, so that the expunge is what the first sync behind the rebuild carries out."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    site, peer = world[1], world[2]
    try:
        for i in range(3):
            append(site, "INBOX", f"m{i}")
        world.settle()
        imap(peer, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        lose_map(site)
        for _ in range(3):
            world.settle()
        assert subjects(equal(world), "INBOX") == 2, site.notes
        assert site.log.read_text().count("rebuilding indexes") == 1
    finally:
        world.stop()


def notice(site, folder):
    """A client reads all mails, so that Dovecot finds out what is not there."""
    box = site.imap()
    box.select(f'"{folder}"')
    try:
        box.fetch("1:*", "(BODY.PEEK[])")
        box.noop()
        box.logout()
    except imaplib.IMAP4.error:
        pass  # it is empty by now, or Dovecot ends the session of a mailbox that it rebuilds
    site.doveadm("mailbox", "status", "-u", USER, "messages", folder)


@pytest.mark.parametrize("formats", ["sdbox,maildir", "maildir,sdbox", "mdbox,maildir"])
def test_an_emptied_mail_directory_removes_nothing_anywhere(tmp_path_factory, formats):
    """Fewer mails than the brake would let go: an unmounted disk, and a client that looks into it."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        for i in range(6):
            append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "F", "only")
        world.settle()
        before = equal(world, uids=False)
        for path in [*site.root().rglob("u.*"), *site.root().rglob("m.*"), *site.root().rglob("cur/*"), *site.root().rglob("new/*")]:
            path.unlink()
        for folder in ("INBOX", "F"):
            notice(site, folder)
        world.settle()
        assert world[2].contents(uids=False) == before
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def guids(site, folder):
    """{body: [GUID]} as the storage says."""
    said = site.doveadm("-f", "flow", "fetch", "-u", USER, "guid text", "mailbox", folder, "ALL").decode(errors="replace")
    found = {}
    for one in said.split("guid=")[1:]:
        found.setdefault(re.search(r"Subject: (\S+)", one)[1], []).append(one.split()[0])
    return {subject: sorted(them) for subject, them in found.items()}


@pytest.mark.parametrize("shuffled", [False, True], ids=["in-order", "other-uids"])
def test_a_lost_uidlist_of_a_maildir_changes_no_guid(tmp_path_factory, shuffled):
    """Mails that were placed or copied have their GUID in dovecot-uidlist only. other-uids: and they get other UIDs, too."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    try:
        site = world[2]
        for i in range(6):
            append(world[1], "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "INBOX", "heremail", "(\\Seen)")
        imap(site, "INBOX", ("copy", "1", "INBOX"))
        world.settle()
        before, named = equal(world, uids=False), guids(world[1], "INBOX")
        assert guids(site, "INBOX") == named and len(named["heremail"]) == 2 and len(set(named["heremail"])) == 1
        (site.root() / "dovecot-uidlist").unlink()
        if shuffled:
            site.work(CLOSE)
            files = sorted([*site.root().glob("cur/*"), *site.root().glob("new/*")])
            for number, path in enumerate(reversed(files)):
                path.rename(path.with_name(f"1600000{number:03d}.M1P1.other{path.name[path.name.find(':'):] if ':' in path.name else ''}"))
            for path in indexes(site):
                if path.is_file() and path.name.startswith("dovecot.index"):
                    path.unlink()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before
        assert guids(world[1], "INBOX") == named and guids(site, "INBOX") == named, site.notes
        site.work(CLOSE)
        world.settle()
        assert guids(site, "INBOX") == named
    finally:
        world.stop()


@pytest.mark.parametrize("first", [2, 5])
def test_a_mail_directory_that_is_emptied_slowly_removes_nothing_anywhere(tmp_path_factory, first):
    """Somebody looks while only some files are gone: few enough to be believed, or more than are left."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        for i in range(8):
            append(site, "INBOX", f"m{i}", "(\\Flagged)")
        world.settle()
        before = equal(world, uids=False)
        files = sorted([*site.root().glob("cur/*"), *site.root().glob("new/*")])
        for path in files[:first]:
            path.unlink()
        notice(site, "INBOX")
        site.ingest()
        for path in files[first:]:
            path.unlink()
        notice(site, "INBOX")
        world.settle()
        assert world[2].contents(uids=False) == before
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def test_some_files_of_a_dbox_gone_come_back(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        for i in range(6):
            append(world[1], "INBOX", f"m{i}", "(\\Flagged)")
        world.settle()
        before = equal(world, uids=False)
        for path in sorted(world[1].root().rglob("u.*"))[:2]:
            path.unlink()
        notice(world[1], "INBOX")
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def test_expunges_that_are_read_while_they_happen_stay(world):
    """A scan between a client's request and Dovecot's carrying it out must still know, at the next one, who asked."""
    site, ended = world[1], threading.Event()

    def client():
        try:
            box = site.imap()
            box.select("INBOX")
            for i in range(40):
                assert box.append("INBOX", None, None, mail(f"m{i}"))[0] == "OK"
                box.noop()
                box.store("1:*", "+FLAGS", "(\\Deleted)")
                box.expunge()
            box.logout()
        finally:
            ended.set()

    thread = threading.Thread(target=client)
    thread.start()
    while not ended.is_set():
        site.ingest()
    thread.join()
    world.settle()
    world.settle()
    assert subjects(equal(world), "INBOX") == 0


@pytest.mark.parametrize("warm", [True, False])
def test_an_old_home_in_the_place_of_the_new_one(world, warm):
    """All of it, state and mail, while a worker has the user open or not: nothing is doubled, lost, or back again."""
    site = world[1]
    for i in range(4):
        append(site, "INBOX", f"m{i}")
    world.settle()
    site.work(CLOSE)
    kept = site.base / "kept"
    subprocess.run(["cp", "-a", str(site.home()), str(kept)], check=True)
    append(site, "INBOX", "new", "(\\Seen)")
    imap(site, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    append(world[2], "INBOX", "other")
    world.settle()
    before = equal(world, uids=False)
    if not warm:
        site.work(CLOSE)
    shutil.rmtree(site.home())
    subprocess.run(["cp", "-a", str(kept), str(site.home())], check=True)
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


@pytest.mark.parametrize("warm", [True, False])
def test_a_state_that_is_no_database_is_put_aside(world, warm):
    site = world[1]
    for i in range(4):
        append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
    world.settle()
    if not warm:
        site.work(CLOSE)
    (site.state() / "state.db").write_bytes(b"this is no database\n" * 1000)
    append(site, "INBOX", "new")
    world.settle()
    site.work(CLOSE)
    world.settle()
    assert subjects(equal(world), "INBOX") == 5
    if not warm:  # else the worker's log had all of it, and made it whole again
        assert list(site.state().glob("state.db.spoilt-*"))


# --- while clients make and rename mailboxes


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


def directory(site, folder):
    return site.root() / (f".{folder}" if site.format == "maildir" else f"mailboxes/{folder}")


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


def records(log):
    """Where the records of an index log end."""
    data, at = log.read_bytes(), 40
    while at + 8 <= len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        at += ((size & 0x7F) | (size >> 8 & 0x7F) << 7 | (size >> 16 & 0x7F) << 14 | (size >> 24 & 0x7F) << 21) << 2
        yield at


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


@pytest.mark.parametrize("index", ["kept", "gone"])
def test_keywords_whose_names_are_lost_are_restored(tmp_path_factory, index):
    """dovecot-keywords is written after the files are renamed: a crash between leaves letters that nobody can read."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(3):
            append(world[1], "INBOX", f"m{i}", "(one two)")
        world.settle()
        site = world[1]
        site.work(CLOSE)
        (site.root() / "dovecot-keywords").unlink()
        for path in site.root().glob("dovecot.index*") if index == "gone" else []:
            path.unlink()
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)"), ("store", "2", "+FLAGS", "(three)"))
        world.settle()
        world.settle()
        flags = [set(mail[1]) for mail in equal(world)["INBOX"][1]]
        assert flags == [{"one", "two", "\\Flagged"}, {"one", "two", "three"}, {"one", "two"}]
    finally:
        world.stop()


def mark_deleted(site, folder):
    """What a process leaves that was killed in the middle of deleting a mailbox: its index says so, and it is there still."""
    log, = (path for path in site.root().rglob("dovecot.index.log") if path.parent.name == f".{folder}" or folder in path.parts)
    with open(log, "ab") as f:
        f.write(bytes.fromhex("80808083") + (0x10020000).to_bytes(4, "little") + bytes(4))


@pytest.mark.parametrize("under_way", [False, True])
def test_a_deletion_that_was_cut_short_is_taken_back(world, under_way):
    """The client was told nothing; nobody could open the mailbox. But not while the deleting process lives: it holds the journal's lock."""
    import fcntl
    for site in world.sites.values():
        imap(site, None, ("create", f"F{site.number}"))
        append(site, f"F{site.number}", "m")
    world.settle()
    held = []
    for n, site in world.sites.items():
        journal = site.state() / "intents"
        journal.write_text(f"D\t{guid_of(site, f'F{n}')}\tF{n}\n")
        shutil.chown(journal, "nobody", "nogroup")
        mark_deleted(site, f"F{n}")
        assert b"F%d" % n in site.doveadm("mailbox", "list", "-u", USER)
        if under_way:
            held.append(open(journal))
            fcntl.flock(held[-1], fcntl.LOCK_SH)
    world.settle()
    if under_way:
        for site in world.sites.values():
            assert "cut short" not in "".join(said for _, said in site.notes)
    for journal in held:
        journal.close()
    world.settle()
    world.settle()
    for n, site in world.sites.items():
        assert site.doveadm("mailbox", "status", "-u", USER, "messages", f"F{n}")
    assert {"F1", "F2"} <= set(equal(world))


def test_a_name_that_the_other_storage_has_for_itself(tmp_path_factory):
    """A folder called "dbox-Mails" in a Maildir: escaped where that is a directory of the storage's, and the same folder from there, too."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", '"Work/dbox-Mails/Sub"'), ("create", '"Work/dbox-Mails"'))
        append(a, "Work/dbox-Mails", "one")
        world.settle()
        shown = b.contents()
        assert {"Work/%64box-Mails", "Work/%64box-Mails/Sub"} <= set(shown), shown
        assert subjects(shown, "Work/%64box-Mails") == 1
        append(b, "Work/%64box-Mails", "two")
        world.settle()
        assert subjects(a.contents(), "Work/dbox-Mails") == 2
        assert not any("cannot be created" in said for _, said in b.notes), b.notes
        imap(b, None, ("rename", '"Work/%64box-Mails"', '"Other"'))
        world.settle()
        assert set(equal(world)) - {"Work"} == {"INBOX", "Other", "Other/Sub"}
    finally:
        world.stop()


# --- a user's own files


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
                file.write(f"D\t{n:032x}\tgone{n}\nd\t{n:032x}\n")
            file.write("\0" * 4096)
        for n in range(30):
            delete(site, f"F{n}")
        world.settle()
        assert set(equal(world)) == {"INBOX"}
        assert not journal.exists()
        assert not any("nobody deleted" in said for _, said in site.notes), site.notes
    finally:
        world.stop()


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


# --- the brake


@pytest.mark.parametrize("accept", [True, False])
def test_files_removed_behind_dovecots_back_wait_for_a_word(tmp_path_factory, accept):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(30):
            append(world[1], "INBOX", f"m{i}", "(\\Seen)")
        world.settle()
        before = equal(world, uids=False)
        files = sorted((world[1].root() / "cur").iterdir())
        for path in files[:25]:
            path.unlink()
        world.settle()
        assert world[1].done["held"] == 1
        assert world[2].contents(uids=False) == before
        world[1].admin("accept" if accept else "restore")
        world.settle()
        now = equal(world, uids=False)
        assert subjects(now, "INBOX") == (5 if accept else 30)
    finally:
        world.stop()


def test_a_few_files_removed_behind_dovecots_back_are_removed_everywhere(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(5):
            append(world[1], "INBOX", f"m{i}", "(\\Seen)")
        world.settle()
        next(iter((world[1].root() / "cur").iterdir())).unlink()
        world.settle()
        assert subjects(equal(world), "INBOX") == 4
    finally:
        world.stop()


# --- bodies and names


def test_a_large_mail_travels_in_parts(world):
    append(world[1], "INBOX", "large", size=3500000)
    world.settle()
    assert subjects(equal(world), "INBOX") == 1
    assert sum(kind == BODY for _, _, kind, _ in world.carried) == 4


def test_small_mails_that_are_asked_for_come_together(world):
    """Their ops came by an exchange, without bodies. Two have the same bytes; the first answer is lost."""
    imap(world[1], None, ("create", "Box"))
    world.settle()
    for i in range(8):
        append(world[1], "INBOX", f"m{i % 7}", "(\\Seen)" if i == 3 else None)
    for i in range(3):
        append(world[1], "Box", f"in{i}", size=300000)
    world[1].ingest()
    world[1].outbox[2].clear()
    lost = []

    def drop(_, to, kind):
        if kind == BODIES and not lost:
            lost.append(to)
            return True
        return False
    world[2].admin("resync")
    for _ in range(100):
        if not world.carry(drop):
            break
    assert lost == [2], world.carried
    world[2].admin("resync")
    world.settle()
    now = equal(world)
    assert (subjects(now, "INBOX"), subjects(now, "Box")) == (8, 3)
    kinds = [kind for _, to, kind, _ in world.carried if to == 2]
    assert kinds.count(BODIES) >= 2 and BODY not in kinds, kinds


def test_names_that_a_layout_cannot_hold(world):
    site = world[1]
    names = ["a.b", "x~y", "~tilde", "per%2Fcent", "&AOk-t&AOk-"]
    made = []
    for name in names:
        box = site.imap()
        if box.create(f'"{name}"')[0] == "OK":
            made.append(name)
        box.logout()
    for name in made:
        append(site, f'"{name}"', "in " + name)
    world.settle()
    verdict = world[2].admin("verify")
    assert verdict[-1] == "verdict\tsame", verdict
    assert sum(len(m) for _, m in world[2].contents().values()) == len(made)
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before


def test_metadata_reaches_the_other(world):
    box = world[1].imap()
    box._command_ = None
    box.logout()
    world[1].doveadm("mailbox", "metadata", "set", "-u", USER, "INBOX", "/private/comment", "mine")
    world.settle()
    assert b"mine" in world[2].doveadm("mailbox", "metadata", "get", "-u", USER, "INBOX", "/private/comment")


@pytest.mark.parametrize("visited", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_metadata_that_went_with_an_index_comes_back(world, number, visited):
    """Of each storage; also where a client has made the index anew before anybody looked."""
    site = world[number]
    for folder in ("INBOX", "F"):
        if folder != "INBOX":
            imap(world[1], None, ("create", folder))
        append(world[1], folder, "one")
        world[1].doveadm("mailbox", "metadata", "set", "-u", USER, folder, "/private/comment", "mine")
        world[1].doveadm("mailbox", "metadata", "set", "-u", USER, folder, "/shared/comment", "ours")
    world.settle()
    site.work(CLOSE)
    (site.home() / "attributes").unlink()
    for index in site.base.rglob("dovecot.index*"):
        index.unlink()
    if visited:
        for folder in ("INBOX", "F"):
            imap(site, folder)
    world.settle()
    for each in world.sites.values():
        for folder in ("INBOX", "F"):
            assert b"mine" in each.doveadm("mailbox", "metadata", "get", "-u", USER, folder, "/private/comment")
            assert b"ours" in each.doveadm("mailbox", "metadata", "get", "-u", USER, folder, "/shared/comment")


def test_metadata_that_this_site_set_for_another_one_is_not_unset_when_it_is_lost(world):
    """The log says that it was set, nobody looked since, and its dictionary is lost: that is no client's doing. Where the log says that a
    client unset it, it is."""
    def set_or_unset(number, key, *value):
        world[number].doveadm("mailbox", "metadata", "set" if value else "unset", "-u", USER, "INBOX", f"/private/{key}", *value)

    def get(site, key):
        return site.doveadm("mailbox", "metadata", "get", "-u", USER, "INBOX", f"/private/{key}").strip()
    site = world[2]
    append(world[1], "INBOX", "one")
    world.settle()
    set_or_unset(1, "comment", "mine")
    set_or_unset(1, "other", "theirs")
    world.settle()
    set_or_unset(2, "other")
    site.work(CLOSE)
    (site.home() / "attributes").unlink()
    for _ in range(2):
        world.settle()
    assert get(world[1], "comment") == b"mine" and get(world[1], "other") == b""


@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
def test_sieve_scripts_and_the_active_one(world):
    script = world[1].base / "script"
    script.write_text('require "fileinto";\nfileinto "X";\n')
    world.settle()
    world[1].doveadm("sieve", "put", "-u", USER, "-a", "mine", str(script))
    world[1].doveadm("sieve", "put", "-u", USER, "other", str(script))
    world.settle()

    def scripts(site):
        return sorted(line.split() for line in site.doveadm("sieve", "list", "-u", USER).decode().splitlines())
    assert scripts(world[2]) == [["mine", "ACTIVE"], ["other"]]
    world[2].doveadm("sieve", "delete", "-u", USER, "other")
    world.settle()
    assert scripts(world[1]) == [["mine", "ACTIVE"]]
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before
    # A directory that is lost is no deletion, also when Pigeonhole has made it anew, and is filled again; one that was emptied is.
    for anew in (False, True):
        world[2].work(CLOSE)
        shutil.rmtree(world[2].home() / "sieve")
        if anew:
            assert scripts(world[2]) == []
            assert (world[2].home() / "sieve").is_dir()
        world.settle()
        assert [scripts(s) for s in world.sites.values()] == [[["mine", "ACTIVE"]]] * 2
        assert world[2].doveadm("sieve", "get", "-u", USER, "mine").replace(b"\r\n", b"\n").endswith(script.read_bytes())
    world[2].doveadm("sieve", "deactivate", "-u", USER)
    world[2].doveadm("sieve", "delete", "-u", USER, "mine")
    world.settle()
    assert scripts(world[1]) == [] and scripts(world[2]) == []


def test_many_keywords(world):
    append(world[1], "INBOX", "one")
    imap(world[1], "INBOX", *[("store", "1", "+FLAGS", f"(Kw{i:02})") for i in range(30)])
    world.settle()
    now = equal(world)
    assert len(now["INBOX"][1][0][1]) == 30


def test_bodies_that_are_lost_are_asked_for_again(world):
    for i in range(3):
        append(world[1], "INBOX", f"m{i}", size=1200000)
    for site in world.sites.values():
        site.ingest()
    lost = []

    def drop(_, to, kind):
        if kind == BODY and len(lost) < 4:
            lost.append(to)
            return True
        return False
    for _ in range(100):
        if not world.carry(drop):
            break
    assert len(lost) == 3
    world[2].admin("resync")
    world.settle()
    assert subjects(equal(world), "INBOX") == 3


def drop_file(site, name, contents):
    """A delivery by another program than Dovecot."""
    path = site.root() / "new" / name
    path.write_bytes(contents)
    shutil.chown(path, "nobody", "nogroup")


def test_a_part_of_a_mail_that_was_removed_meanwhile_does_not_stay(world):
    site, bodies = world[2], world[2].state() / "bodies"
    world.settle()
    append(world[1], "INBOX", "large", size=2_500_000)
    world[1].ingest()
    while not (bodies.exists() and list(bodies.iterdir())):
        assert world.carry()
    for each in world.sites.values():
        for lane in each.outbox.values():
            lane.clear()
    imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    assert equal(world)["INBOX"][1] == [] and not list(bodies.iterdir())


def test_one_guid_saved_with_other_bytes_is_one_mail(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "maildir"])
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        for n, site in world.sites.items():
            drop_file(site, "1700000000.M1P1.host", mail(f"via {n}"))
        world.settle()
        assert subjects(equal(world), "INBOX") == 2
    finally:
        world.stop()


def test_a_changed_uid_of_a_maildir_file_without_its_crlf_size_cuts_nothing(tmp_path_factory):
    """Other programs name the size of the LF form only; Dovecot would name the copy after it, and show that much."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        text = mail("lf" * 20).replace(b"\r\n", b"\n")
        drop_file(world[1], f"1700000000.M1P1.host,S={len(text)}", text)
        append(world[2], "INBOX", "clash")
        world.settle()
        now = equal(world)
        assert subjects(now, "INBOX") == 3 and {uid for uid, *_ in now["INBOX"][1]} != {1, 2, 3}, now
        assert hashlib.sha256(mail("lf" * 20)).hexdigest()[:12] in [digest for *_, digest in now["INBOX"][1]]
    finally:
        world.stop()


def test_two_stores_that_were_filled_apart_become_one(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(10):
            append(world[1], "INBOX", f"only1-{i}")
            append(world[2], "INBOX", f"only2-{i}")
        imap(world[1], None, ("create", "Sent"))
        imap(world[2], None, ("create", "Sent"))
        append(world[1], "Sent", "s1")
        append(world[2], "Sent", "s2")
        world.settle()
        now = equal(world)
        assert subjects(now, "INBOX") == 20 and subjects(now, "Sent") == 2
    finally:
        world.stop()


def test_mails_that_were_copied_by_hand_are_those_that_were_waited_for(world):
    """join: the site has heard of the mails and has none of their bodies; then a copy of them comes, with other GUIDs."""
    site = world[2]
    world.settle()
    for n in range(3):
        append(world[1], "INBOX", f"large{n}", "(\\Seen)", size=1_100_000)
    world[1].ingest()
    while world.carry(lambda a, b, kind: a == 2):   # it cannot ask for bodies
        pass
    assert site.contents()["INBOX"][1] == [] and "unplaced=3" in site.admin("status")[0]
    for n in (2, 0, 1):
        append(site, "INBOX", f"large{n}", size=1_100_000)
    assert site.admin("join") == []
    world.settle()
    shown = [sorted((digest, flags) for _, flags, _, digest in each.contents()["INBOX"][1]) for each in world.sites.values()]
    assert len(shown[0]) == 3 and shown[0] == shown[1] and all(flags == {"\\Seen"} for _, flags in shown[0]), shown


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


def test_a_locked_maildir_is_looked_at_again_though_the_user_was_closed(tmp_path_factory):
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
        site.work(TICK)
        world.settle(ingest=False)
        assert subjects(equal(world), "INBOX") == 2
    finally:
        world.stop()


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


def test_a_body_that_is_not_its_hash_is_asked_of_the_next_site(three):
    """First the file at the site that is asked has rotted, then the next one's answer was changed on its way."""
    def wants():
        return sum(kind == WANT and a == 3 for a, _, kind, _ in three.carried)

    def next_try(after):
        time.sleep(after)
        three[3].work(TICK)

    def cut(a, to, _):
        return {a, to} == {1, 3}
    three.settle()
    append(three[2], "INBOX", "mail", size=20000)
    three[2].ingest()
    three[2].outbox[3].clear()
    while three.carry():
        pass
    path = next(p for part in ("new", "cur") for p in (three[2].root() / part).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    three[3].admin("resync", "2")
    while three.carry(cut):
        pass
    assert wants() == 1 and any("not what they were" in note for _, note in three[2].notes), three[2].notes
    path.write_bytes(data)
    next_try(1.1)
    while not any(kind == BODIES for kind, _, _ in three[1].outbox[3]):
        assert three.carry()
    three[1].outbox[3][:] = [(kind, bulk, body[:-1] + bytes([body[-1] ^ 1])) for kind, bulk, body in three[1].outbox[3]]
    while three.carry():
        pass
    assert wants() == 2, "asked for again at once"
    next_try(2.1)
    while three.carry():
        pass
    shown = [digest for *_, digest in three[3].contents()["INBOX"][1]]
    assert wants() == 3 and shown == [hashlib.sha256(mail("mail", 20000)).hexdigest()[:12]], (wants(), shown)


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


def test_a_hint_about_one_mailbox_is_enough(world):
    append(world[1], "INBOX", "first")
    imap(world[1], None, ("create", "F"))
    world.settle()
    append(world[1], "F", "in F")
    append(world[1], "INBOX", "not hinted")
    world[1].ingest((guid_of(world[1], "F"), "F"))
    world.settle(ingest=False)
    now = world[2].contents()
    assert subjects(now, "F") == 1 and subjects(now, "INBOX") == 1
    guid = guid_of(world[1], "F")
    delete(world[1], "F")
    world[1].ingest((guid, "F"))
    world.settle(ingest=False)
    assert "F" not in world[2].contents()


def test_a_sweep_looks_only_into_what_differs(world):
    append(world[1], "INBOX", "first")
    world.settle()
    world[1].ingest(sweep=True)
    append(world[1], "INBOX", "second")
    world[1].ingest(sweep=True)
    world.settle(ingest=False)
    assert subjects(equal(world), "INBOX") == 2


def test_other_sessions_see_what_is_applied(world):
    append(world[1], "INBOX", "first")
    world.settle()
    box = world[2].imap()
    box.select("INBOX")
    append(world[1], "INBOX", "second")
    world.settle()
    box.noop()
    assert box.response("EXISTS")[1][-1] == b"2"
    box.logout()


def fetch_changed(site, since):
    """{sequence number} of the mails that have changed since that modseq, and HIGHESTMODSEQ."""
    box = site.imap()
    box.select("INBOX")
    _, said = box._simple_command("STATUS", "INBOX", "(HIGHESTMODSEQ)")
    highest = int(re.search(rb"HIGHESTMODSEQ (\d+)", box._untagged_response("OK", said, "STATUS")[1][0])[1])
    _, said = box._simple_command("FETCH", "1:*", "(FLAGS)", f"(CHANGEDSINCE {since})")
    lines = box._untagged_response("OK", said, "FETCH")[1]
    box.logout()
    return {int(line.split()[0]) for line in lines if line}, highest


def test_a_client_that_hops_misses_no_change(world):
    append(world[1], "INBOX", "one")
    append(world[1], "INBOX", "two")
    world.settle()
    for i in range(20):
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", f"(Kw{i})"))
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
    _, there = fetch_changed(world[2], 1)
    _, here = fetch_changed(world[1], 1)
    assert here < there
    world.settle()
    changed, highest = fetch_changed(world[1], there)
    assert 2 in changed and highest > there


def test_a_client_that_hops_misses_no_change_before_many_others(world):
    """This site counts further than the other one; what it changed first is still behind that one's number."""
    append(world[1], "INBOX", "one")
    append(world[1], "INBOX", "two")
    world.settle()
    for site in world.sites.values():
        fetch_changed(site, 1)   # from now on each mail has a modseq of its own
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
    for i in range(20):
        imap(world[1], "INBOX", ("store", "1", "+FLAGS", f"(Mine{i})"))
    for i in range(10):
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", f"(Kw{i})"))
    _, there = fetch_changed(world[2], 1)
    _, here = fetch_changed(world[1], 1)
    assert here > there
    world.settle()
    changed, _ = fetch_changed(world[1], there)
    assert 2 in changed


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


def test_a_site_that_comes_back_from_another_epoch(world):
    append(world[1], "INBOX", "old")
    world.settle()
    world[1].work(CLOSE)
    world[1].verdict = True  # the reserve says that numbers may be lost
    append(world[1], "INBOX", "new")
    world.settle()
    assert world[1].ready[1] == 1
    world.settle()
    assert subjects(equal(world), "INBOX") == 2


def test_spoilt_parcels_harm_nobody_but_their_sender(tmp_path_factory):
    """Whatever a peer sends, the worker answers and goes on; its own mailboxes can be read."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    dice = random.Random(4)
    try:
        append(world[1], "INBOX", "one", "(Kw)", size=5000)
        append(world[1], "INBOX", "large", size=1300000)
        imap(world[1], None, ("create", "F"), ("subscribe", "F"))
        append(world[2], "INBOX", "two")
        seen = []
        for site in world.sites.values():
            site.ingest()
        while any(lane for s in world.sites.values() for lane in s.outbox.values()):
            seen += [(a.number, to, kind, body) for a in world.sites.values() for to, lane in a.outbox.items()
                     for kind, _, body in lane[:1]]
            world.carry()
        assert {kind for _, _, kind, _ in seen} >= {1, 2, 3, 4, 5}
        for _ in range(600):
            sender, to, kind, body = dice.choice(seen)
            spoilt = bytearray(body[:4000])
            for _ in range(dice.randint(1, 6)):
                if spoilt:
                    spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
            if dice.random() < 0.3:
                spoilt = spoilt[:dice.randrange(len(spoilt) + 1)]
            if dice.random() < 0.1:
                kind = dice.randrange(1, 12)
            world[to].ensure()
            ended, _ = world[to].job(PARCEL, num(sender) + num(kind) + text(bytes(spoilt)))
            assert ended == DONE
        for site in world.sites.values():
            assert site.admin("status")
            assert "INBOX" in site.contents()
            assert "Panic" not in site.log.read_text()
    finally:
        world.stop()


# --- crashes


STEPS = ["ingest-commit", "batch", "create", "place", "flags", "remove", "rename", "deleting", "delete", "renumber-copied", "renumber-bound", "renumber-expunged",
         "settle", "intents"]


# What main asks first of the worker that is started next.
FIRST = {"ingest": Site.ingest, "tick": lambda site: site.work(TICK)}


def crash_world(tmp_path_factory, formats, step):
    """A world, and the file whose being there lets a worker die at that step."""
    flag = Path(tempfile.mkdtemp(prefix="worker-crash-")) / "now"
    flag.parent.chmod(0o777)
    return make_world(tmp_path_factory, formats, f"{step}:{flag}"), flag


def files_of(site):
    """The mails' files of a Maildir's INBOX."""
    return [path for name in ("new", "cur") for path in (site.root() / name).iterdir()]


@pytest.mark.parametrize("formats", ["sdbox,sdbox", "maildir,sdbox", "mdbox,maildir"])
def test_an_old_state_and_a_change_of_uids_that_was_cut_short(tmp_path_factory, formats):
    """The mail is there under both UIDs, and neither the state nor a row of it knows why."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), "renumber-copied")
    site = world[1]
    work = site.work

    def armed(*words):
        flag.write_text("")
        try:
            return work(*words)
        finally:
            flag.unlink(missing_ok=True)
    try:
        world.settle()
        for number, kind in ((1, "here"), (2, "peer")):
            for n in range(2):
                append(world[number], "INBOX", f"{kind}{n}", "(\\Seen)")
        for each in world.sites.values():
            each.ingest()
        keep_state(site)
        site.work = armed
        with pytest.raises(Failed, match="site 1"):
            world.settle()
        site.work = work
        site.disconnect()
        site.done = {}
        assert len(site.contents()["INBOX"][1]) > 4
        store(world[2], "peer0", "+FLAGS", "(\\Flagged)")
        rewind_state(site)
        world.settle()
        world.settle()
        assert flags_of(world) == {"here0": {"\\Seen"}, "here1": {"\\Seen"}, "peer0": {"\\Seen", "\\Flagged"}, "peer1": {"\\Seen"}}
    finally:
        print(*site.notes, sep="\n")
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


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
