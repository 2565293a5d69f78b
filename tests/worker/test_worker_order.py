"""A mailbox gets its mails by rising UID: a site that joins, or lost its home, changes no UID of those who are there."""
import contextlib
import hashlib
import os
import shutil
import sqlite3
import time

import pytest
from test_worker_joining import change_row, hand_over
from worker_sites import append, equal, imap, mail, make_world, needs_dovecot
from support.frames import (ANSWER, BATCH, BODIES, BODY, CLOSE, CONFIRMED, EXCHANGE, HELLO_TOO,
                            NEW, QUESTION, TICK, UID_ASK, WANT, num)
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

FORMATS = ["sdbox", "mdbox", "maildir"]
PARTS = 1_300_000   # bytes: such a mail comes in parts, whatever comes behind it


@pytest.fixture(params=FORMATS)
def pair(request, tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", request.param])
    yield world
    world.stop()


def lose(site):
    site.disconnect()
    shutil.rmtree(site.root(), ignore_errors=True)   # it may never have had one


def uids(site, folder="INBOX"):
    validity, mails = site.contents()[folder]
    return validity, [(uid, body) for uid, _, _, body in mails]


def by_turns(world, n, size=lambda i: 0):
    """Each site's mails lie between the other's."""
    for i in range(n):
        append(world[1 + i % 2], "INBOX", f"m{i}", size=size(i))
        world.settle()


def test_a_lost_home_gets_the_mails_of_both_sites_under_their_uids(pair):
    by_turns(pair, 24, lambda i: PARTS if i in (4, 13) else 0)
    before = uids(pair[1])
    lose(pair[2])
    pair.settle()
    assert equal(pair)["INBOX"][0] == before[0]
    assert uids(pair[1]) == before == uids(pair[2])


def test_a_third_site_gets_them_so(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "maildir", "mdbox"])
    try:
        by_turns(world, 12)
        before = uids(world[1])
        lose(world[3])
        world.settle()
        assert uids(world[1]) == before == uids(world[2]) == uids(world[3])
    finally:
        world.stop()


def pump(world, drop):
    """As settle() does, for one turn, with a drop."""
    while world.carry(drop):
        pass
    for site in world.sites.values():
        for to, s in list(site.done.get("sites", {}).items()):
            if s["more"] or s["owed"] or s["unconfirmed"]:
                site.ship(to, NEW if s["more"] else HELLO_TOO if s["owed"] else CONFIRMED)
        if 0 < site.done.get("tick", 0) <= 1000:
            time.sleep(site.done["tick"] / 1000)
            site.work(TICK)


def test_a_round_that_comes_while_a_site_is_filled_changes_no_uid_of_the_others(tmp_path_factory):
    """Mails come to two full sites at once, while the third one waits for the bodies of all that was there before."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir", "sdbox"])
    try:
        by_turns(world, 8)
        before = uids(world[1])
        lose(world[3])
        world[3].ingest()
        no_bodies = lambda a, to, kind: to == 3 and kind in (BODY, BODIES)  # noqa: E731
        while WANT not in [kind for a, _, kind, _ in world.carried if a == 3]:
            pump(world, no_bodies)
        for number in 1, 2:
            append(world[number], "INBOX", f"clash{number}")
        for number in 1, 2:
            world[number].ingest()
        for _ in range(60):
            pump(world, no_bodies)
            mails = uids(world[1])[1]
            if len(mails) == 10 and uids(world[2]) == uids(world[1]):
                break
            time.sleep(0.5)
            for number in 1, 2:
                world[number].work(TICK)
        else:
            raise AssertionError((uids(world[1]), uids(world[2])))
        settled = uids(world[1])
        assert settled[1][:8] == before[1]
        pump(world, no_bodies)
        assert b"messages=0" in world[3].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX")
        for _ in range(20):
            time.sleep(1)
            world[3].work(TICK)
            world.settle(ingest=False)
            if len(uids(world[3])[1]) == 10:
                break
        world.settle()
        assert uids(world[3]) == settled
        assert uids(world[1]) == settled == uids(world[2])
    finally:
        world.stop()


@pytest.mark.long
def test_a_small_mail_does_not_overtake_a_large_one(pair):
    box = pair[1].imap()
    for i, size in enumerate([0, 3 * PARTS, 0, PARTS, 0, 0]):
        assert box.append("INBOX", None, None, mail(f"m{i}", size))[0] == "OK"
    box.logout()
    before = uids(pair[1])
    pair.settle()
    assert uids(pair[1]) == before == uids(pair[2])


def test_a_mail_does_not_wait_for_one_behind_it(pair):
    """Its body is here, and that one's is asked for and comes late."""
    append(pair[1], "INBOX", "first")
    pair.settle()
    for subject in "here", "away":
        append(pair[1], "INBOX", subject, size=PARTS)
    pair[1].ingest()
    hand_over(pair, 1, 2, BATCH)
    away, late = hashlib.sha256(mail("away", PARTS)).digest(), []
    for _ in range(10):
        hand_over(pair, 2, 1, WANT)
        lane = pair[1].outbox[2]
        late += [parcel for parcel in lane if parcel[2].startswith(away)]
        lane[:] = [parcel for parcel in lane if not parcel[2].startswith(away)]
        hand_over(pair, 1, 2, BODY)
        pair[2].work(TICK)
        if messages(pair[2]) == 2:
            break
    assert messages(pair[2]) == 2 and late
    pair[1].outbox[2] += late
    pair.settle()
    assert uids(pair[1]) == uids(pair[2]) and messages(pair[2]) == 3


def test_a_mail_that_nobody_can_give_holds_up_no_other(pair):
    """Its file cannot be read."""
    for i in range(6):
        append(pair[1], "INBOX", f"m{i}", size=30000)
    pair.settle()
    files = sorted(p for p in pair[1].root().rglob("u.*"))
    assert len(files) == 6, files
    lose(pair[2])
    os.chown(files[2], 0, 0)
    files[2].chmod(0o600)
    pair[1].disconnect()
    pair.settle()   # who asked asks again after a second
    assert b"messages=5" in pair[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"), pair[2].notes[-5:]
    os.chown(files[2], files[1].stat().st_uid, files[1].stat().st_gid)
    for _ in range(12):
        pair.settle()
        time.sleep(1)
        if len(uids(pair[2])[1]) == 6:
            break
    equal(pair)


def test_a_mail_that_is_moved_away_meanwhile_holds_up_no_other(pair):
    imap(pair[1], None, ("create", "Box"))
    by_turns(pair, 10, lambda i: PARTS if i == 2 else 0)
    lose(pair[2])
    pair[2].ingest()
    for _ in range(6):
        pair.carry()
    imap(pair[1], "INBOX", ("uid", "MOVE", "3", "Box"))
    pair.settle()
    assert [uid for uid, _ in uids(pair[2])[1]] == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    equal(pair)


@pytest.mark.parametrize("old", [0, 5])
@pytest.mark.parametrize("new", [False, True], ids=["joins", "both new"])
def test_a_mailbox_that_never_had_a_mail_gives_way(pair, new, old):
    """Somebody logged in at the site that joins, a second before it joined: INBOX and Sent are there, and younger than the others. new: the full site has
    not read its mailboxes either when it is asked."""
    append(pair[1], "INBOX", "one")
    imap(pair[1], None, ("create", "Sent"))
    append(pair[1], "Sent", "two")
    if not new:
        pair.settle()
    before = {folder: uids(pair[1], folder) for folder in ("INBOX", "Sent")}
    lose(pair[2])
    time.sleep(2)
    box = pair[2].imap()
    box.select("INBOX")
    box.create("Sent")
    box.logout()
    time.sleep(old)   # seconds since the mailboxes changed last
    assert all(uids(pair[2], folder)[0] > before[folder][0] for folder in before)
    pair.settle()
    assert {folder: uids(pair[1], folder) for folder in before} == before
    assert {folder: uids(pair[2], folder) for folder in before} == before
    equal(pair)


def test_a_mailbox_in_which_there_was_a_mail_gives_no_way(pair):
    """A client has seen its UID 1 under this UIDVALIDITY."""
    append(pair[1], "INBOX", "one")
    pair.settle()
    old = uids(pair[1])[0]
    lose(pair[2])
    time.sleep(2)
    append(pair[2], "INBOX", "two")
    imap(pair[2], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    young = uids(pair[2])[0]
    assert young > old
    pair.settle()
    assert equal(pair)["INBOX"][0] == young


def test_mailboxes_that_are_new_everywhere_are_the_same_everywhere(pair):
    """Nobody has ever had a mail."""
    for site in pair.sites.values():
        box = site.imap()
        box.select("INBOX")
        box.create("Sent")
        box.logout()
        time.sleep(1.1)
    pair.settle()
    assert uids(pair[1]) == uids(pair[2])
    equal(pair)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed after each question"])
def test_a_body_that_a_dead_site_owes_holds_up_no_other_site(tmp_path_factory, closed):
    """Its op came, and it died. Where more users are busy than there are workers, a user is closed after each question."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox", "sdbox"], crash="nowhere:/nonexistent")   # the build that loses patience soon
    try:
        append(world[1], "INBOX", "zero")
        world.settle()
        append(world[1], "INBOX", "large", size=PARTS)
        world[1].ingest()
        while world.carry(lambda a, to, kind: to == 1):
            pass
        world[1].disconnect()
        for i in range(3):
            append(world[3], "INBOX", f"c{i}")
        world[3].ingest()
        for i in range(180):
            while world.carry(lambda a, to, kind: 1 in (a, to)):
                pass
            if b"messages=1" not in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"):
                break
            if i % 6 == 5:
                append(world[3], "INBOX", f"later{i}")
                world[3].ingest()
            assert world[2].done["tick"] > 0, "nobody would look again"
            if closed:
                world[2].work(CLOSE)
            time.sleep(1)
            world[2].work(TICK)
        else:
            raise AssertionError(world[2].done)
    finally:
        world.stop()


def test_the_order_waits_while_no_site_can_be_reached(tmp_path_factory):
    """A site that joins has half of the mails, and the other goes away for long. What comes first when it is back is a new mail."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], crash="nowhere:/nonexistent")
    try:
        for i in range(6):
            append(world[1], "INBOX", f"m{i}", size=PARTS if i == 3 else 0)
        world.settle()
        before = uids(world[1])
        lose(world[2])
        world[2].ingest()
        world.carried.clear()
        for _ in range(200):
            if WANT in [kind for _, _, kind, _ in world.carried]:
                break
            if not world.carry(lambda a, to, kind: kind == WANT):   # there it ends
                time.sleep(0.5)
                world[2].work(TICK)
        else:
            raise AssertionError(world[2].done)
        for lane in (world[1].outbox[2], world[2].outbox[1]):
            lane.clear()
        for _ in range(12):
            time.sleep(1)
            world[2].work(TICK)
            world[2].outbox[1].clear()
        append(world[1], "INBOX", "new")
        world.settle()
        for _ in range(20):
            if len(uids(world[2])[1]) == 7:
                break
            time.sleep(2)
            world[2].work(TICK)
            world.settle()
        assert uids(world[1])[1][:6] == before[1]
        assert uids(world[1]) == uids(world[2])
    finally:
        world.stop()


def test_a_mailbox_whose_index_was_lost_gives_no_way(pair):
    """It is empty, and looks as if it had never had a mail; but a client has seen three."""
    imap(pair[1], None, ("create", "Box"))
    for i in range(3):
        append(pair[1], "Box", f"old{i}")
    pair.settle()
    seen = uids(pair[2], "Box")
    imap(pair[1], "Box", ("store", "1:*", "+FLAGS", "(\\Deleted)"), ("expunge",))
    pair.settle()
    time.sleep(2)
    pair[2].work(CLOSE)
    pair[2].disconnect()
    lost = [path for path in pair[2].root().rglob("dovecot*") if "Box" in str(path.relative_to(pair[2].root())) and path.is_file() and ".list." not in path.name]
    assert lost
    for path in lost:
        path.unlink()
    box = pair[2].imap()
    box.select("Box")
    box.logout()
    pair.settle()
    append(pair[2], "Box", "new")
    for _ in range(2):
        now = uids(pair[2], "Box")
        assert now[0] != seen[0] or not {uid for uid, _ in now[1]} & {uid for uid, _ in seen[1]}, (seen, now)
        pair.settle()


@pytest.mark.parametrize("rotten", [False, True], ids=["large", "rotten"])
def test_the_answer_comes_to_another_session_than_the_question(tmp_path_factory, rotten):
    """More users than workers: each is closed after each question."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        append(world[1], "INBOX", "large", size=PARTS)
        (path,) = world[1].root().rglob("u.2")
        world[1].ingest()
        if rotten:
            os.chown(path, 0, 0)
            path.chmod(0o600)
        for i in range(3):
            append(world[1], "INBOX", f"new{i}")
        world[1].ingest()
        wanted = b"messages=4" if rotten else b"messages=5"
        for _ in range(100):
            moved = world.carry()
            if wanted in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"):
                break
            tick = world[2].done["tick"]
            if world[2].opened:
                world[2].work(CLOSE)
            if not moved:
                time.sleep(min(max(tick, 100), 2000) / 1000)
                world[2].work(TICK)
        else:
            raise AssertionError((world[2].done, world.carried[-20:]))
    finally:
        world.stop()


def small_behind_large(world):
    """Site 2 knows of both, has the small one, and has asked for the large one in vain."""
    append(world[1], "INBOX", "first")
    world.settle()
    append(world[1], "INBOX", "large", size=PARTS)
    append(world[1], "INBOX", "small")
    world[1].ingest()
    while world.carry(lambda a, to, kind: to == 1):
        pass


def test_what_is_here_is_shown_when_the_only_other_site_is_dead(tmp_path_factory):
    """It gave a small mail along with its op; the large one before it was to be asked for."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], crash="nowhere:/nonexistent")   # the build that loses patience soon
    try:
        small_behind_large(world)
        world[1].disconnect()
        for _ in range(180):
            if b"messages=2" in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"):
                break
            assert world[2].done["tick"] > 0, "nobody would look again"
            time.sleep(1)
            world[2].work(TICK)
        else:
            raise AssertionError(world[2].done)
    finally:
        world.stop()


def test_who_waited_once_in_vain_waits_the_next_time(tmp_path_factory):
    """All of it was removed; much later there is another large mail, and a small one behind it."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], crash="nowhere:/nonexistent")
    try:
        small_behind_large(world)
        imap(world[1], "INBOX", ("store", "2:3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        time.sleep(31)   # the silence after which that build waits no longer
        append(world[1], "INBOX", "large2", size=PARTS)
        append(world[1], "INBOX", "small2")
        before = uids(world[1])
        world.settle()
        assert uids(world[1]) == before == uids(world[2])
    finally:
        world.stop()


def test_rounds_rest_while_the_keeper_lacks_the_mail(tmp_path_factory):
    """The keeper does not get what site 2 sends. Site 3 has it, under another UID than site 2. Before, 71 rounds in 30 s."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "zero")
        world.settle()
        append(world[2], "INBOX", "b")
        append(world[3], "INBOX", "c")   # the same UID
        world[2].ingest()
        world[3].ingest()
        world.carried.clear()
        begin = time.monotonic()
        while time.monotonic() < begin + 16:
            if world.carry(lambda a, to, kind: (a, to) == (2, 1) and kind == BATCH):
                continue
            for site in world.sites.values():
                if 0 < site.done.get("tick", 0) <= 3000:
                    time.sleep(site.done["tick"] / 1000)
                    site.work(TICK)
        assert sum(kind == UID_ASK and to == 3 for _, to, kind, _ in world.carried) <= 5
        world[2].ship(1, CONFIRMED)
        for _ in range(5):
            world.settle()
            time.sleep(1)
        assert len(equal(world)["INBOX"][1]) == 3
    finally:
        world.stop()


def test_who_began_to_wait_with_a_clock_ahead_loses_patience_as_soon(tmp_path_factory):
    """The row of patience.c tells of tomorrow, and no other site speaks."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], crash="nowhere:/nonexistent")
    try:
        small_behind_large(world)
        world[1].disconnect()
        world[2].work(CLOSE)
        world[2].disconnect()
        with contextlib.closing(sqlite3.connect(world[2].state() / "state.db")) as state, state:
            ahead = bytes(1) + num(int(time.time()) + 86400)
            changed = state.execute("UPDATE app SET value = ? WHERE substr(key, 1, 1) = x'68' AND length(key) = 2", (ahead,)).rowcount
            assert changed == 1
        for _ in range(90):
            world[2].work(TICK)
            if b"messages=2" in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"):
                break
            time.sleep(1)
        else:
            raise AssertionError(world[2].done)
    finally:
        world.stop()


def turns(world, secs, until, closed):
    """Until that holds. closed: site 2 is closed after each question, since more users are busy than there are workers."""
    def close(site):
        if site is world[closed] and site.opened:
            wished = dict(site.done)
            site.work(CLOSE)
            site.done = wished
    end = time.monotonic() + secs
    while not until():
        assert time.monotonic() < end, {n: s.done for n, s in world.sites.items()}
        while world.carry():
            close(world[closed])
        for site in world.sites.values():
            for to, s in list(site.done.get("sites", {}).items()):
                if s["more"] or s["owed"] or s["unconfirmed"]:
                    site.ship(to, NEW if s["more"] else HELLO_TOO if s["owed"] else CONFIRMED)
        time.sleep(1)
        for site in world.sites.values():
            if site.done.get("tick", 0) > 0:
                site.work(TICK)
                close(site)


def test_a_round_is_answered_where_a_mail_was_given_up_in_an_earlier_session(tmp_path_factory):
    """Nobody can give it. The mails behind it clash with others."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], crash="nowhere:/nonexistent")   # the build that loses patience soon
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        append(world[1], "INBOX", "large", size=PARTS)
        (path,) = world[1].root().rglob("u.2")
        world[1].ingest()
        os.chown(path, 0, 0)
        path.chmod(0o600)
        append(world[1], "INBOX", "behind")
        world[1].ingest()
        turns(world, 120, lambda: b"messages=2" in world[2].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX"), closed=2)
        append(world[1], "INBOX", "clash")
        for i in range(2):
            append(world[2], "INBOX", f"other{i}")
        for number in 1, 2:
            world[number].ingest()

        def same():
            said = [world[n].doveadm("fetch", "-u", USER, "uid hdr.subject", "mailbox", "INBOX", "uid", mails) for n, mails in ((1, "1,3:*"), (2, "1:*"))]
            return said[0] == said[1] and said[0].count(b"hdr.subject") == 5   # without the large one
        turns(world, 90, same, closed=2)
    finally:
        world.stop()


# --- an exchange that is under way

MANY = 16000     # mails, which do not fit into one answer


def append_many(site, folder, n):
    """Mails in one command."""
    parts = []
    for i in range(n):
        data = mail(f"x{i}")
        parts.append(b" {%d+}\r\n%s" % (len(data), data))
    box = site.imap()
    box.send(b"many APPEND %s%s\r\n" % (folder.encode(), b"".join(parts)))
    line = box.readline()
    while not line.startswith(b"many "):
        line = box.readline()
    assert line.startswith(b"many OK"), line
    box.logout()


def messages(site):
    said = site.doveadm("mailbox", "status", "-u", USER, "messages", "INBOX").decode()
    return int(said.split("messages=")[1])


def places(world):
    """Site 2 does what it can, and has it as often as its bodies come."""
    for _ in range(3):
        world[2].work(TICK)
        while hand_over(world, 2, 1, WANT) and hand_over(world, 1, 2, BODY, BODIES):
            pass


def exchange_begins(world):
    """Site 2 had one mail. It knows some of the others, any of them, by the first answer that told
    of mails; the last question lies in its lane."""
    append(world[1], "INBOX", "first")
    world.settle()
    append_many(world[1], "INBOX", MANY)
    before = uids(world[1])
    world[1].ingest()
    world[1].outbox[2].clear()      # the lane is lost
    world[2].ship(1, EXCHANGE)
    while world[2].done["unplaced"] == 0:
        assert hand_over(world, 2, 1, QUESTION) and hand_over(world, 1, 2, ANSWER)
        world[2].work(TICK)
    assert world[2].done["unplaced"] < MANY and world[2].outbox[1], world[2].done
    return before


@pytest.fixture
def large(tmp_path_factory):
    world = make_world(tmp_path_factory, ["mdbox", "mdbox"])
    yield world
    world.stop()


@pytest.mark.parametrize("closed", [False, True])
def test_between_the_answers_of_an_exchange_no_mail_goes_before_one_of_lower_uid(large, closed):
    """Nor when the user was closed meanwhile, and with him the exchange."""
    before = exchange_begins(large)
    if closed:
        large[2].work(CLOSE)
    places(large)
    assert messages(large[2]) == 1
    if closed:
        large[2].outbox[1].clear()
        large[2].ship(1, EXCHANGE)
    while hand_over(large, 2, 1, QUESTION):
        hand_over(large, 1, 2, ANSWER)
        places(large)
    large.settle()
    assert uids(large[1]) == before == uids(large[2])


def test_what_an_exchange_told_that_never_ended_is_placed_in_the_end(large):
    exchange_begins(large)
    large[2].outbox[1].clear()
    places(large)
    known = large[2].done["unplaced"]
    assert messages(large[2]) == 1
    change_row(large[2], b"h", lambda _: num(4) + num(int(time.time())))
    places(large)
    assert messages(large[2]) == 1 + known
