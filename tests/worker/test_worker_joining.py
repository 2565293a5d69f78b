"""What sites tell each other while one of them is new, and has not read its mailboxes."""
import contextlib
import shutil
import sqlite3
import struct
import time

import pytest
from worker_sites import append, equal, imap, mail, make_world, needs_dovecot
from support.frames import (ANSWER, ANSWER_READING, BATCH, BODIES, BODY, CLOSE, EXCHANGE,
                            HELLO_TOO, PARCEL, QUESTION, READING, TICK, UID_ANSWER, UID_ASK, WANT, num, text)
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

PARTS = 1_300_000   # bytes: such a mail does not go along with its op
WAIT = 600          # seconds: so long is waited for what a peer may know or say
ASK = 60            # seconds after which it is asked


@pytest.fixture
def pair(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    yield world
    world.stop()


@pytest.fixture
def three(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox", "mdbox"])
    yield world
    world.stop()


def lose(site):
    site.disconnect()
    shutil.rmtree(site.root(), ignore_errors=True)


def uids(site, *folders):
    found = site.contents()
    return {f: (found[f][0], [(uid, body) for uid, _, _, body in found[f][1]]) for f in folders}


def give(site, of, kind, body):
    site.work(PARCEL, num(of) + num(kind) + text(body))


def hand_over(world, a, b, *kinds):
    """Of a's parcels in its lane to b those of these kinds; the others stay. How many."""
    lane = world[a].outbox[b]
    some = [parcel for parcel in lane if parcel[0] in kinds]
    lane[:] = [parcel for parcel in lane if parcel[0] not in kinds]
    for kind, _, body in some:
        give(world[b], a, kind, body)
    return len(some)


def exchange(world, a, b):
    """All that a asks b; whatever else they say stays in the lanes."""
    while hand_over(world, a, b, QUESTION) + hand_over(world, b, a, ANSWER, ANSWER_READING):
        pass


def kinds(world, a, b):
    return [kind for kind, _, _ in world[a].outbox[b]]


def exists(site, folder):
    return folder in site.doveadm("mailbox", "list", "-u", USER).decode().split("\n")


def change_row(site, kind, change):
    """Of the worker's rows: value becomes change(value)."""
    site.work(CLOSE)
    db = sqlite3.connect(site.state() / "state.db")
    with db:
        of_kind = "SELECT key, value FROM app WHERE substr(key, 1, 1) = ?"
        rows = db.execute(of_kind, (kind,)).fetchall()
        assert rows, kind
        for key, value in rows:
            db.execute("UPDATE app SET value = ? WHERE key = ?", (change(bytes(value)), key))
    db.close()


def join_row(value, until, since=None):
    """Until when a new state waits, in its row; since: when it asked first."""
    nums = [i for i, byte in enumerate(value) if byte < 128]    # last bytes of numbers, and the flag
    return num(until) + (value[nums[0] + 1:] if since is None else value[nums[1]:nums[1] + 1] + num(since))


def goes_on_alone(site, since=1):
    """The time is over in which a new state waits for the others, since so many seconds."""
    over = int(time.time()) - since
    change_row(site, b"j", lambda value: join_row(value, over, over - WAIT))
    site.ingest()
    assert any("not all other sites could be asked" in note for _, note in site.notes), site.notes


def mailboxes_with_mail(site):
    append(site, "INBOX", "one")
    imap(site, None, ("create", "Sent"))
    append(site, "Sent", "two")


def younger_mailboxes(site):
    """Somebody logs in there before the replicator."""
    time.sleep(2)
    box = site.imap()
    box.select("INBOX")
    box.create("Sent")
    box.logout()


def bulk_first(world):
    for site in world.sites.values():
        for lane in site.outbox.values():
            lane.sort(key=lambda parcel: not parcel[1])


# --- a WANT of what is not known


def test_only_who_knows_a_mail_says_that_it_has_not_got_it(three):
    append(three[1], "INBOX", "first")
    three.settle()
    append(three[1], "INBOX", "large", size=PARTS)
    three[1].ingest()
    hand_over(three, 1, 3, BATCH)
    (wanted,) = [body for kind, _, body in three[3].outbox[1] if kind == WANT]

    def answers():
        """Of site 2, which is asked next."""
        lane = three[2].outbox[3]
        lane[:] = [parcel for parcel in lane if parcel[0] not in (BODY, BODIES)]
        give(three[2], 3, WANT, wanted)
        return [kind for kind in kinds(three, 2, 3) if kind in (BODY, BODIES)]

    assert not answers(), "its op did not come here yet"
    three.settle()
    assert answers()
    lose(three[2])
    three[2].ingest()
    assert not answers(), "its state is empty"
    exchange(three, 2, 1)
    assert any("exchange-first" in row for row in three[2].admin("status")), three[2].replies
    assert not answers(), "its mailboxes are not read yet"
    three[2].ingest()
    three.settle()
    equal(three)
    imap(three[1], "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    three.settle()
    assert answers() == [BODY], "it is known to be gone"
    assert len(three[2].outbox[3][-1][2]) < 100


# --- a mailbox that never had a mail, at a site that went on alone


def test_who_went_on_alone_gives_no_uidvalidity_of_a_mailbox_without_mail(pair):
    mailboxes_with_mail(pair[1])
    pair.settle()
    before = uids(pair[1], "INBOX", "Sent")
    lose(pair[2])
    younger_mailboxes(pair[2])
    pair[2].ingest()
    pair[2].outbox[1].clear()   # the question is lost
    goes_on_alone(pair[2])
    assert not pair[2].firsts, "it told something"
    pair[2].ship(1, EXCHANGE)
    exchange(pair, 2, 1)   # that it is answered has it look at once
    pair.settle(ingest=False)
    assert uids(pair[1], "INBOX", "Sent") == before == uids(pair[2], "INBOX", "Sent")
    equal(pair)


# --- what DONE says of it


def listen(site):
    """Its answers from now on."""
    told, real = [], site.work

    def work(kind, body=b""):
        told.append(real(kind, body))
        return told[-1]
    site.work = work
    return told


@pytest.mark.long
def test_done_says_whether_a_state_has_joined_and_what_was_placed(pair):
    """Each mail once: one that comes with its op, those of an exchange, and a copy."""
    mailboxes_with_mail(pair[1])
    pair.settle()
    lose(pair[2])
    told = listen(pair[2])
    assert pair[2].ingest()["joins"] == 1
    pair.settle()
    assert [done["joins"] for done in told] == sorted((done["joins"] for done in told), reverse=True) and told[-1]["joins"] == 0
    assert sum(done["placed"] for done in told) == 2
    assert sum(done["placed_bytes"] for done in told) == len(mail("one")) + len(mail("two"))
    del told[:]
    imap(pair[1], "INBOX", ("copy", "1", "Sent"))
    append(pair[1], "INBOX", "three")
    pair.settle()
    assert sum(done["placed"] for done in told) == 2
    assert sum(done["placed_bytes"] for done in told) == len(mail("one")) + len(mail("three"))
    assert not any(done["joins"] for done in told)
    equal(pair)


@pytest.mark.long
def test_done_says_that_a_site_has_not_answered_and_that_it_reads(pair):
    lose(pair[2])
    assert pair[2].ingest()["joins"] == 1
    pair[2].outbox[1].clear()
    goes_on_alone(pair[2])
    assert pair[2].done["joins"] == 2
    pair[2].work(CLOSE)
    assert pair[2].ingest()["joins"] == 2
    pair[2].ship(1, EXCHANGE)
    exchange(pair, 2, 1)
    assert pair[2].done["joins"] == 3 and 0 < pair[2].done["tick"] <= WAIT * 1000, "the other one is new, too"
    pair.settle()
    assert pair[2].done["joins"] == 0


def is_alone(site):
    return any("not all other sites could be asked" in note for _, note in site.notes)


@pytest.mark.long
def test_a_new_state_waits_from_when_it_asked(pair):
    """With very many new users each waits for its turn; and an answer that comes late is none."""
    now = int(time.time())
    lose(pair[2])
    pair[2].ensure()
    change_row(pair[2], b"j", lambda value: value)
    db = sqlite3.connect(pair[2].state() / "state.db")
    (value,), = db.execute("SELECT value FROM app WHERE substr(key, 1, 1) = 'j' OR substr(key, 1, 1) = X'6a'").fetchall()
    db.close()
    assert bytes(value) == bytes(3), "its time runs before it asked"
    pair[2].ingest()
    assert QUESTION in kinds(pair, 2, 1) and not is_alone(pair[2])
    change_row(pair[2], b"j", lambda value: join_row(value, now - 1, now - 100))
    pair[2].ship(1, EXCHANGE)
    pair[2].ingest()
    assert not is_alone(pair[2]), "its turn came after its time"
    change_row(pair[2], b"j", lambda value: join_row(value, now - 1, now - WAIT))
    pair[2].ship(1, EXCHANGE)
    pair[2].ingest()
    assert is_alone(pair[2]), "it waits for ever"


def join_of(site):
    """Until when a new state waits: its row."""
    rows = []
    change_row(site, b"j", lambda value: rows.append(value) or value)
    return rows


@pytest.mark.long
def test_who_has_answered_is_waited_for_no_longer(three):
    """Asked again and again, it would have the new state wait for a dead third site, for minutes."""
    now = int(time.time())
    mailboxes_with_mail(three[1])
    three[1].ingest()
    lose(three[2])
    three[2].ingest()
    exchange(three, 2, 1)
    change_row(three[2], b"j", lambda value: join_row(value, now - 1, now - 100))
    row = join_of(three[2])
    three[2].ship(1, EXCHANGE)
    assert join_of(three[2]) == row
    three[2].ship(3, EXCHANGE)
    assert join_of(three[2]) != row, "who has not may answer yet"


@pytest.mark.long
def test_a_new_state_asks_only_in_its_turn_and_then_sleeps(pair):
    """Of many each would put a question into the lane with each TICK, and be opened for nothing each second."""
    mailboxes_with_mail(pair[1])
    pair[1].ingest()
    lose(pair[2])
    pair[2].ensure()
    pair[2].to_ask = set()  # main does not ask now: the other site is away
    pair[2].outbox[1].clear()
    for _ in range(3):
        tick = pair[2].ingest()["tick"]
        pair[2].work(CLOSE)
        pair[2].ensure()
        pair[2].to_ask = set()
    assert not kinds(pair, 2, 1), "it asked"
    assert tick > 20000, "it wants to be opened again soon"


def test_an_answer_to_an_earlier_question_ends_no_exchange(pair):
    mailboxes_with_mail(pair[1])
    pair[1].ingest()
    lose(pair[2])
    pair[2].ensure()
    pair[2].outbox[1].clear()
    pair[2].ship(1, EXCHANGE)
    hand_over(pair, 2, 1, QUESTION)
    pair[2].work(CLOSE)
    pair[2].ship(1, EXCHANGE)
    hand_over(pair, 2, 1, QUESTION)
    exchange(pair, 2, 1)
    assert not any("given up" in note for _, note in pair[2].notes), pair[2].notes
    assert any("the state has what the other sites have" in note for _, note in pair[2].notes)


def test_mail_that_comes_ends_that_wait(pair):
    lose(pair[2])
    younger_mailboxes(pair[2])
    pair[2].ingest()
    goes_on_alone(pair[2])
    assert not pair[2].firsts
    append(pair[2], "Sent", "new")
    pair[2].ingest()
    assert pair[2].firsts


def test_so_does_the_time_where_nobody_ever_answers(pair):
    lose(pair[2])
    younger_mailboxes(pair[2])
    pair[2].ingest()
    goes_on_alone(pair[2])
    assert not pair[2].firsts
    assert 0 < pair[2].done["tick"] <= 60000, "nobody would look again"
    goes_on_alone(pair[2], WAIT - 60)
    assert not pair[2].firsts
    goes_on_alone(pair[2], WAIT + 1)
    assert pair[2].firsts


# --- that a site has not read, and that it has


def both_new(world):
    """A full site and one with younger mailboxes, both with new states. What the full one shows."""
    mailboxes_with_mail(world[1])
    lose(world[2])
    younger_mailboxes(world[2])
    imap(world[2], None, ("create", "Mine"))
    before = uids(world[1], "INBOX", "Sent")
    for site in (world[1], world[2]):
        site.ingest()
    return before


def test_an_answer_of_who_has_not_read_says_so_itself(pair):
    """The bulk lane, with the answers, may be faster than the other."""
    before = both_new(pair)
    exchange(pair, 2, 1)
    assert pair[2].done["result"] == 0
    hand_over(pair, 2, 1, BATCH)   # what it says before it hears anything else
    for _ in range(100):
        bulk_first(pair)
        if not pair.carry():
            break
    pair.settle()
    assert uids(pair[1], "INBOX", "Sent") == before == uids(pair[2], "INBOX", "Sent")
    equal(pair)


@pytest.mark.long
def test_that_it_has_read_comes_behind_all_that_it_read(pair):
    """Its batches are refused, since the lane is full; what comes a moment later is not."""
    before = both_new(pair)
    exchange(pair, 2, 1)
    exchange(pair, 1, 2)
    lane = pair[1].outbox[2]
    assert BATCH in kinds(pair, 1, 2)
    lane[:] = [parcel for parcel in lane if parcel[0] != BATCH]
    hand_over(pair, 1, 2, READING)
    hand_over(pair, 2, 1, BATCH)
    pair.settle()
    assert uids(pair[1], "INBOX", "Sent") == before == uids(pair[2], "INBOX", "Sent")
    assert exists(pair[1], "Mine")
    equal(pair)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed after each question"])
def test_that_it_has_read_is_asked_for_where_it_was_lost(pair, closed):
    both_new(pair)
    exchange(pair, 2, 1)
    exchange(pair, 1, 2)

    def lost(_, to, kind):
        for site in pair.sites.values() if closed else ():
            site.work(CLOSE)
        return (to, kind) == (2, READING)

    for _ in range(5):
        while pair.carry(lost):
            pass
        for a, b in ((1, 2), (2, 1)):
            if pair[a].done["sites"].get(b, {}).get("owed"):
                pair[a].ship(b, 2)
        pair[1].work(TICK)
    assert not exists(pair[1], "Mine")
    assert not kinds(pair, 2, 1)

    def earlier(value):
        """Its last number is until when that is waited for."""
        at = num(int(time.time()) + WAIT - ASK - 1)
        return value[:-len(at)] + at

    change_row(pair[2], b"p", earlier)
    pair[2].work(TICK)
    assert kinds(pair, 2, 1).count(READING) == 1
    pair[2].work(TICK)
    assert kinds(pair, 2, 1).count(READING) == 1, "asked again at once"
    pair.settle(ingest=False)
    assert exists(pair[1], "Mine")
    equal(pair)


def test_no_other_word_is_taken_for_it(pair):
    """Nor is any in answer to an answer: two sites would never be silent."""
    pair.settle()
    for word in (b"", b"\1", b"\3", b"\0\0"):
        assert pair[1].work(PARCEL, num(2) + num(READING) + text(word))["result"] == 1, word
    for word, wanted in ((b"\0", 0), (b"\2", 1)):
        give(pair[1], 2, READING, word)
        assert kinds(pair, 1, 2).count(READING) == wanted, word
        give(pair[1], 2, READING, word)
        assert kinds(pair, 1, 2).count(READING) == 2 * wanted, word


def test_a_site_that_never_said_that_it_has_read_is_waited_for_again(tmp_path_factory):
    """Its word was lost for all of ten minutes. Later it loses its state once more, and a login at the other site makes a
    mailbox that is younger than its own, which has mail."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])

    def lose_state():
        world[1].disconnect()
        shutil.rmtree(world[1].state())
        world[1].ingest()
        world[2].ship(1, EXCHANGE)
        exchange(world, 2, 1)
    try:
        append(world[1], "INBOX", "one")
        world.settle()
        lose_state()
        for _ in range(5):
            while world.carry(lambda a, to, kind: kind == READING):
                pass
            for a, b in ((1, 2), (2, 1)):
                if world[a].done["sites"][b]["owed"] or world[a].done["sites"][b]["unconfirmed"]:
                    world[a].ship(b, HELLO_TOO)
        n = len(num(int(time.time())))
        change_row(world[2], b"p", lambda v: v[:-n] + num(int(time.time()) - 3600))
        world.settle()
        world.settle()
        imap(world[1], None, ("create", "Work"))
        append(world[1], "Work", "w")
        before = world[1].contents()["Work"]
        time.sleep(2)   # or both got their UIDVALIDITY in one second
        lose_state()
        imap(world[2], None, ("create", "Work"))
        world[2].ingest()
        world.settle()
        assert world[1].contents()["Work"][0] == before[0]
    finally:
        world.stop()


# --- the UIDNEXT of others


def uidnext(site, folder):
    said = site.doveadm("mailbox", "status", "-u", USER, "uidnext", folder).decode()
    return int(said.split("uidnext=")[1])


def fetch_bodies(world, a, b):
    while hand_over(world, a, b, WANT) + hand_over(world, b, a, BODIES, BODY):
        pass


def ask_again_later(site):
    """The time has come to ask again what got no answer."""
    change_row(site, b"U", lambda value: value[:1] + num(int(time.time()) - 31))
    site.work(TICK)


def last_mails_are_gone(world, *folders):
    """Of five mails two are left everywhere; sites know by their own UIDNEXT that there were more."""
    for folder in folders:
        if folder != "INBOX":
            imap(world[1], None, ("create", folder))
        for n in range(5):
            append(world[1], folder, f"m{n}")
    world.settle()
    for folder in folders:
        imap(world[1], folder, ("store", "3:5", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    for site in world.sites.values():
        assert {uidnext(site, folder) for folder in folders} == {6}


@pytest.mark.parametrize("formats", ("sdbox sdbox", "maildir maildir", "mdbox mdbox"))
def test_a_home_that_is_made_anew_gives_no_uid_that_another_site_gave(tmp_path_factory, formats):
    world = make_world(tmp_path_factory, formats.split())
    try:
        last_mails_are_gone(world, "INBOX", "F")
        lose(world[2])
        world.settle()
        assert [uidnext(world[2], folder) for folder in ("INBOX", "F")] == [6, 6]
        for folder in ("INBOX", "F"):
            append(world[2], folder, "new")
        world.settle()
        for folder, (_, mails) in equal(world).items():
            assert [uid for uid, *_ in mails] == [1, 2, 6], folder
        assert world[2].admin("verify")[-1] == "verdict\tsame"
    finally:
        world.stop()


def test_a_site_that_answers_too_late_is_asked_for_its_uidnext_then(three):
    """It alone got the last mails, and they are gone again."""
    append(three[1], "INBOX", "first")
    three.settle()
    for n in range(3):
        append(three[3], "INBOX", f"m{n}")
    imap(three[3], "INBOX", ("store", "2:4", "+FLAGS", "(\\Deleted)"), ("expunge",))
    three[3].ingest()
    lose(three[2])
    three[2].ingest()
    for site in (1, 3):
        three[2].ship(site, EXCHANGE)
    exchange(three, 2, 1)
    goes_on_alone(three[2])
    fetch_bodies(three, 2, 3)
    assert uidnext(three[2], "INBOX") == 2
    assert UID_ASK in kinds(three, 2, 1) and UID_ASK not in kinds(three, 2, 3)
    three[3].outbox[2].clear()
    three[2].ship(3, EXCHANGE)
    exchange(three, 2, 3)
    three.settle(ingest=False)
    assert uidnext(three[2], "INBOX") == 5


@pytest.mark.parametrize("lost", (UID_ASK, UID_ANSWER))
def test_uidnext_is_asked_for_again_where_a_word_was_lost(pair, lost):
    last_mails_are_gone(pair, "INBOX")
    lose(pair[2])
    pair[2].ingest()
    pair[2].ship(1, EXCHANGE)
    exchange(pair, 2, 1)
    fetch_bodies(pair, 2, 1)
    assert kinds(pair, 2, 1).count(UID_ASK) == 1
    if lost == UID_ANSWER:
        assert hand_over(pair, 2, 1, UID_ASK) == 1 and UID_ANSWER in kinds(pair, 1, 2)
    pair[2].outbox[1].clear()
    pair[1].outbox[2].clear()
    ask_again_later(pair[2])
    pair.settle(ingest=False)
    assert uidnext(pair[2], "INBOX") == 6


def test_a_site_that_does_not_answer_is_asked_five_times(pair):
    last_mails_are_gone(pair, "INBOX")
    lose(pair[2])
    pair[2].ingest()
    pair[2].ship(1, EXCHANGE)
    exchange(pair, 2, 1)
    fetch_bodies(pair, 2, 1)
    for _ in range(5):
        assert kinds(pair, 2, 1).count(UID_ASK) == 1
        pair[2].outbox[1].clear()
        ask_again_later(pair[2])
    assert UID_ASK not in kinds(pair, 2, 1)
    pair[2].work(CLOSE)
    with contextlib.closing(sqlite3.connect(pair[2].state() / "state.db")) as db:
        assert db.execute("SELECT count(*) FROM app WHERE substr(key, 1, 1) = ?", (b"U",)).fetchone() == (0,)


def test_an_answer_that_nobody_asked_for_raises_no_uidnext(pair):
    append(pair[1], "INBOX", "m")
    pair.settle()
    inbox = struct.pack("<QQ", 0, 0) + num(0)
    ask = b"\1" + inbox + num(0) + num(0)
    give(pair[1], 2, UID_ASK, ask)
    (answer,) = [body for kind, _, body in pair[1].outbox[2] if kind == UID_ANSWER]
    assert answer == ask + num(2) + num(0)
    give(pair[2], 1, UID_ANSWER, ask + num(1000) + num(0))
    pair.settle()
    assert uidnext(pair[2], "INBOX") == 2
