"""A state that is lost, or older than its mailboxes."""
import shutil
import subprocess
import time

import pytest
from worker_sites import USER, append, crash_world, delete, equal, flags_of, imap, keep_state, needs_dovecot, rewind_state, store, subjects
from support.frames import BATCH, CLOSE, PARCEL, TICK, num, text
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def test_a_deletion_that_nobody_heard_of_outlasts_a_power_loss(world):
    """The plugin's note of it is gone when it was read: what was read is on the disk by then."""
    site, peer = world[1], world[2]
    imap(site, None, ("create", "F"))
    append(site, "F", "here0")
    world.settle()
    assert "F" in peer.contents()
    delete(site, "F")
    site.ingest()
    assert not list(site.state().glob("intents*"))
    site.outbox[2].clear()
    synced = (site.state() / "state.db").read_bytes()
    site.work(CLOSE)
    site.disconnect()
    (site.state() / "state.db").write_bytes(synced)
    for name in ("state.db-wal", "state.db-shm"):
        (site.state() / name).unlink(missing_ok=True)
    world.settle()
    site.ingest()
    for to in site.outbox:
        site.ship(to, 1)
    world.settle()
    assert "F" not in equal(world)


def test_what_a_peer_cleared_of_a_mail_that_the_old_state_does_not_know_stays_cleared(world):
    """A client saved it with flags, here, and the peer heard of that; the flag that he set afterwards, and that nobody heard of, is his."""
    site, peer = world[1], world[2]
    world.settle()
    keep_state(site)
    append(site, "INBOX", "here0", "(\\Answered Old)")
    world.settle()
    store(peer, "here0", "-FLAGS", "(\\Answered Old)")
    peer.ingest()
    store(site, "here0", "+FLAGS", "(\\Seen New)")
    site.disconnect()
    rewind_state(site)
    world.settle()
    world.settle()
    assert flags_of(world) == {"here0": {"\\Seen", "New"}}


@pytest.mark.parametrize("known", [True, False])
def test_deleted_that_was_set_and_cleared_outlasts_the_old_state(world, known):
    """In one breath, so that nothing of it is to be seen. A client of the peer who had not heard of it sets it: who cleared it rescued the mail."""
    site, peer = world[1], world[2]
    world.settle()
    if not known:
        keep_state(site)
    append(site, "INBOX", "here0")
    world.settle()
    if known:
        keep_state(site)
    append(site, "INBOX", "here1")
    world.settle()
    store(site, "here0", "+FLAGS", "(\\Deleted)")
    store(site, "here0", "-FLAGS", "(\\Deleted)")
    site.disconnect()
    rewind_state(site)
    site.ingest()
    for _ in range(10):     # the peer tells what it has, and hears of no change
        while world.carry(lambda a, _, kind: a == 1 and kind == BATCH):
            pass
        site.work(TICK)
    assert any("reading the mailboxes" in note for _, note in site.notes)
    store(peer, "here0", "+FLAGS", "(\\Deleted)")
    peer.ingest()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert flags_of(world) == {"here0": set(), "here1": set()}


def test_what_a_peer_removed_of_a_mail_that_the_old_state_does_not_know_is_not_told_again(world):
    """As above. The old state heard of it from the peer, and the peer of nothing new: he removes the mail that both know."""
    site, peer = world[1], world[2]
    world.settle()
    keep_state(site)
    for n in range(2):
        append(site, "INBOX", f"here{n}", "(\\Flagged)")
    world.settle()
    site.disconnect()
    rewind_state(site)
    site.ingest()
    for _ in range(10):     # the peer tells what it has, and hears of nothing new
        while world.carry(lambda a, _, kind: a == 1 and kind == 1):
            pass
        site.work(TICK)
    assert any("reading the mailboxes" in note for _, note in site.notes)
    store(peer, "here0", "+FLAGS", "(\\Deleted)")
    imap(peer, "INBOX", ("expunge",))
    peer.ingest()
    world.settle()
    assert flags_of(world) == {"here1": {"\\Flagged"}}


def test_deleted_that_a_peer_cleared_of_a_mail_that_the_old_state_does_not_know_stays_cleared(world):
    """Saved as \\Deleted, told, and rescued at the peer. A client of the peer put another one back where it was: nobody's EXPUNGE takes them."""
    site, peer = world[1], world[2]
    world.settle()
    imap(site, None, ("create", "Back"))
    world.settle()
    keep_state(site)
    for n in range(2):
        append(site, "INBOX", f"here{n}", "(\\Deleted)")
    world.settle()
    store(peer, "here0", "-FLAGS", "(\\Deleted)")
    store(peer, "here1", "-FLAGS", "(\\Deleted)")
    imap(peer, "INBOX", ("uid", "move", "2", "Back"))
    imap(peer, "Back", ("uid", "move", "1", "INBOX"))
    peer.ingest()
    site.disconnect()
    rewind_state(site)
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    assert flags_of(world) == {"here0": set(), "here1": set()}


@pytest.mark.parametrize("folder", ["INBOX", "New"])
def test_metadata_that_a_peer_set_and_changed_are_no_change_of_this_site(world, folder):
    """The worker wrote the first value, and the old state does not know of that. What a client wrote last is his, though nobody heard of it."""
    site, peer = world[1], world[2]

    def put(where, key, value=None):
        where.doveadm("mailbox", "metadata", *(("set",) if value else ("unset",)), "-u", USER, folder, f"/private/{key}", *([value] if value else []))
    world.settle()
    keep_state(site)
    if folder != "INBOX":
        imap(peer, None, ("create", folder))
    append(peer, folder, "peer0")
    for key in ("changed", "unset", "mine"):
        put(peer, key, "first")
    world.settle()
    put(site, "mine", "second")
    put(site, "here", "only")
    site.disconnect()
    put(peer, "changed", "second")
    put(peer, "unset")
    peer.ingest()
    rewind_state(site)
    site.verdict = True
    world.settle()
    world.settle()
    assert any("new epoch" in note for _, note in site.notes)
    for key, value in {"changed": b"second", "unset": b"", "mine": b"second", "here": b"only"}.items():
        assert [s.doveadm("mailbox", "metadata", "get", "-u", USER, folder, f"/private/{key}").strip() for s in world.sites.values()] == [value] * 2, key


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
