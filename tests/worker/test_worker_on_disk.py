"""Whether a mail is on a site's disk: what a worker tells main, and what it says to a peer that asks."""
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from disk_questions import ASKED, ask, confirmed, guid_of_mail, synced
from worker_sites import FIRST, append, imap, make_world, needs_dovecot
from support.frames import ASK_DISK, HELLO_TOO, ON_DISK, PARCEL, num, text
from support.worker_world import USER, Failed

pytestmark = [needs_dovecot, pytest.mark.long]

NOWHERE = "00" * 15 + "01"


@pytest.fixture(params=["sdbox,maildir", pytest.param("mdbox,sdbox", marks=pytest.mark.exhaustive)])
def world(request, tmp_path_factory):
    formats = request.param.split(",")
    made = make_world(tmp_path_factory, formats, more=synced(formats))
    for site in made.sites.values():
        site.settings = {"questions": "yes"}
    yield made
    made.stop()


def where(site, *guids):
    """{guid: word}, after the epoch and whose files they are."""
    rows = [row.split(" ") for row in site.admin("on-disk", *guids)]
    assert rows[0][0] == "epoch" and int(rows[0][1], 16) > 0
    assert rows[1][0] == "owner" and int(rows[1][1]) == os.stat(site.home()).st_uid
    return dict(rows[2:])


@pytest.mark.test
def test_a_mail_is_here_when_it_was_read_and_unknown_when_all_was(world):
    a = world[1]
    append(a, "INBOX", "first")
    world.settle()
    append(a, "INBOX", "m")
    guid = guid_of_mail(a, "m")
    # nobody was told of it: it is looked for
    assert where(a, guid, NOWHERE) == {guid: "here", NOWHERE: "unknown"}
    assert where(a, guid) == {guid: "here"}
    imap(a, "INBOX", ("create", "F"), ("uid", "COPY", "1:*", "F"), ("uid", "STORE", "1:*", "+FLAGS", "(\\Deleted)"), ("expunge",))
    assert where(a, guid) == {guid: "here"}     # in another mailbox
    world.settle()


def test_a_new_state_does_not_say_that_it_knows_nothing(world):
    assert where(world[1], NOWHERE) == {NOWHERE: "wait"}
    world.settle()
    assert where(world[1], NOWHERE) == {NOWHERE: "unknown"}


@pytest.mark.test
def test_a_peer_confirms_what_it_has_placed_and_not_before(world):
    """Asked before the mail comes, it says so when the mail is on its disk; asked behind it, at once."""
    a, b = world[1], world[2]
    append(a, "INBOX", "first")
    world.settle()
    append(a, "INBOX", "m")
    guid = guid_of_mail(a, "m")
    a.ingest()
    ask(world, 1, 2, guid, NOWHERE)
    assert confirmed(world, 2, 1)[0] == set()
    while not confirmed(world, 2, 1)[0]:
        kind, _, body = a.outbox[2].pop(0)
        b.work(PARCEL, num(1) + num(kind) + text(body))
        if b.outbox[1] and not confirmed(world, 2, 1)[0]:
            kind, _, body = b.outbox[1].pop(0)
            a.work(PARCEL, num(2) + num(kind) + text(body))
    assert where(b, guid) == {guid: "here"}
    found, epochs = confirmed(world, 2, 1)
    epoch = int(b.admin("on-disk", guid)[0].split()[1], 16)
    assert found == {(ASKED, guid)} and epochs == {epoch}
    b.outbox[1] = [parcel for parcel in b.outbox[1] if parcel[0] != ON_DISK]
    world.settle()
    ask(world, 1, 2, guid, NOWHERE)
    assert confirmed(world, 2, 1)[0] == {(ASKED, guid)}
    b.outbox[1].clear()


def test_a_large_body_is_confirmed_when_its_last_part_is_on_the_disk(world):
    a = world[1]
    append(a, "INBOX", "first")
    world.settle()
    append(a, "INBOX", "m", size=3_000_000)
    guid = guid_of_mail(a, "m")
    a.ingest()
    ask(world, 1, 2, guid)
    seen = set()

    def drop(sender, _, kind):
        seen.update([kind] * (sender == 2))
        return sender == 2 and kind == ON_DISK

    while world.carry(drop):
        pass
    assert ON_DISK in seen and where(world[2], guid) == {guid: "here"}
    world.settle()


def test_what_went_without_a_users_word_is_not_confirmed(world):
    a, b = world[1], world[2]
    append(a, "INBOX", "first")
    append(a, "INBOX", "m")
    world.settle()
    guid = guid_of_mail(a, "m")
    for path in [p for p in b.root().rglob("*") if p.is_file() and (p.name.startswith(("u.", "m.")) or p.parent.name in ("cur", "new"))]:
        path.unlink()
    # in an sdbox a file that is gone is noticed when it is read
    b.doveadm("fetch", "-u", USER, "text", "mailbox", "INBOX", "all", check=False)
    b.ingest()
    b.outbox[1].clear()
    ask(world, 1, 2, guid)
    assert confirmed(world, 2, 1)[0] == set()
    assert where(b, guid) == {guid: "wait"}


def test_without_fsync_nothing_is_confirmed(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        guid = guid_of_mail(world[1], "m")
        ask(world, 1, 2, guid)
        assert confirmed(world, 2, 1)[0] == set()
        assert where(world[1], guid) == {guid: "wait"}
    finally:
        world.stop()


@pytest.mark.parametrize("body", [b"", b"\0" * 8, b"\0" * 23, b"\0" * 25, b"\0" * (8 + 16 * 1001)])
def test_a_malformed_question_is_refused(world, body):
    world.settle()
    world[2].work(PARCEL, num(1) + num(ASK_DISK) + text(body))
    assert world[2].done["result"] == 1 and confirmed(world, 2, 1)[0] == set()


def test_what_is_asked_without_end_costs_no_more_than_its_bound(world):
    world.settle()
    for n in range(5):
        ask(world, 1, 2, *(os.urandom(16).hex() for _ in range(1000)))
        assert world[2].done["result"] == 0, n
    assert confirmed(world, 2, 1)[0] == set()


def test_a_delivery_that_saved_nothing_was_removed(world):
    """The plugin's file is the user's: whatever stands there."""
    a = world[1]
    world.settle()
    path = a.state() / "discarded"
    path.write_bytes(b"\0\xff" * 5000 + b"\n\0\0" + NOWHERE.encode() + b"\n" + b"ab" * 40000)
    shutil.chown(path, "nobody", "nogroup")
    assert where(a, NOWHERE, "11" * 16) == {NOWHERE: "removed", "11" * 16: "unknown"}
    path.rename(path.with_name("discarded.old"))
    assert where(a, NOWHERE) == {NOWHERE: "removed"}
    path.with_name("discarded.old").unlink()
    os.mkfifo(path)
    assert where(a, NOWHERE) == {NOWHERE: "unknown"}


@pytest.mark.parametrize("word", ["", "x", "0" * 31, "g" * 32, "0" * 33, "../../x"])
def test_what_is_no_guid_is_not_found(world, word):
    world.settle()
    assert where(world[1], word) == {word: "wait"}


@pytest.mark.parametrize("step", ["place", "place-said", "saving"])
def test_a_worker_that_dies_while_it_places_has_confirmed_nothing(tmp_path_factory, step):
    """Before the mailbox's commit, or between that and the state's. What it finds then counts."""
    flag = Path(tempfile.mkdtemp(prefix="worker-crash-")) / "now"
    flag.parent.chmod(0o777)
    formats = ["sdbox", "sdbox"]
    world = make_world(tmp_path_factory, formats, f"{step}:{flag}", more=synced(formats))
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        append(world[1], "INBOX", "m")
        guid = guid_of_mail(world[1], "m")
        world[1].ingest()
        ask(world, 1, 2, guid)
        flag.touch()
        with pytest.raises(Failed):
            while world.carry():
                pass
        assert confirmed(world, 2, 1)[0] == set()
        world[2].disconnect()
        FIRST["tick"](world[2])
        world[2].ship(1, HELLO_TOO)
        world.settle()
        world[2].outbox[1].clear()
        ask(world, 1, 2, guid)
        assert confirmed(world, 2, 1)[0] == {(ASKED, guid)}
        assert len(world[2].contents()["INBOX"][1]) == 2
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)
