"""How far a site is filled, as `doveadm dovelane join --status` shows it, and join_rate."""
import contextlib
import os
import re
import sqlite3
import threading
import time

import pytest
from support.lane_server import wait_for
from support.replicator_worker import ADMIN, BODIES, WANT, Worker
from support.replicator_world import users
from test_replicator import BULK, meta, world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]
TITLES = ["what", "done", "left", "rate", "time left", "progress"]
FULL = "[####################] 100 %"
NEVER = {"sweep_active": "1h", "sweep_all": "1h", "hello_every": "1h"}


def table(replica):
    """{row: {column: text}}"""
    rows, code, errors = replica.admin("join", "", "--status")
    assert code == 0 and rows[0] == TITLES, (rows, code, errors)
    return {row[0]: dict(zip(TITLES[1:], row[1:], strict=True)) for row in rows[1:]}


def counts(replica):
    """Of users, mails and bytes: (done, left)."""
    return [(row["done"], row["left"]) for row in table(replica).values()]


def state(replica, user):
    rows, code, errors = replica.admin("join", user, "--status")
    assert code == 0 and rows[0] == ["state", "mails left"], (code, errors)
    return tuple(rows[1])


def lacks(replica, user, mails, size=1000):
    replica.site.lacking[user] = [mails, size]
    replica.change(user, "x")


def asked(w):
    """The users of the requests that lie in the lane to the other site, in their order."""
    entries = w[0].redis.client().read(BULK.format("site-a", "site-b"))
    return [re.search(rb"user\d", entry[5])[0].decode() for entry in entries]


# ---- the table ----

def test_nothing_to_do_is_all_done(world):  # noqa: F811
    w = world(2)
    assert list(table(w[0])) == ["users", "mails", "bytes"]
    for row in table(w[0]).values():
        assert row == {"done": "0", "left": "0", "rate": row["rate"], "time left": "0:00:00", "progress": FULL}
        assert re.fullmatch(r"0(\.0)?/s", row["rate"])
    for name in users(3):
        w[0].change(name, "one")
    w.quiet(users(3))
    assert counts(w[0]) == [("3", "0"), ("0", "0"), ("0", "0")]
    assert table(w[0])["users"]["progress"] == FULL and w[0].metric("replicator_joining") == 0


def test_a_site_that_does_not_know_its_users_yet_is_not_full(world, monkeypatch):  # noqa: F811
    listed, real = threading.Event(), Worker.answer

    def answer(self, kind, r):
        if kind == ADMIN:
            listed.wait(60)
        real(self, kind, r)
    monkeypatch.setattr(Worker, "answer", answer)
    w = world(1, up=False)
    w[0].site.listed = users(2)
    w[0].start()
    row = table(w[0])["users"]
    assert (row["left"], row["time left"], row["progress"]) == ("-", "-", "[--------------------] 0 %")
    listed.set()
    wait_for(lambda: counts(w[0])[0] == ("2", "0"), 60, "both")


def test_users_join_one_by_one(world):  # noqa: F811
    """Nobody of the other site answers at first."""
    w = world(2, up=False)
    w[0].start()
    names = users(4)
    w[0].change(names[3], "one")
    wait_for(lambda: counts(w[0])[0] == ("1", "0"), 60, "one who has joined")
    w[0].site.joining.update(names[:3])
    for name in names[:3]:
        w[0].change(name, "one")
    wait_for(lambda: counts(w[0])[0] == ("1", "3"), 60, "three who have not")
    users_row, mails_row = table(w[0])["users"], table(w[0])["mails"]
    assert (mails_row["left"], mails_row["time left"], mails_row["progress"]) == ("0", "-", "[--------------------] 0 %"), "more may come"
    assert users_row["progress"] == "[#####---------------] 25 %" and re.fullmatch(r"-|\d+:\d\d:\d\d", users_row["time left"])
    wait_for(lambda: {state(w[0], name)[0] for name in names[:3]} <= {"being asked", "waits for its turn"}, 60, "words for them")
    rows, code, _ = w[0].admin("join", "*", "--status")
    assert code == 0 and rows[0] == ["user", "state", "mails left"] and [row[0] for row in rows[1:]] == names
    assert rows[4][1:] == ["joined", "0"] and w[0].metric("replicator_joining") == 3
    w[1].start()
    wait_for(lambda: counts(w[0])[0] == ("4", "0"), 120, "all joined")
    assert {state(w[0], name) for name in names} == {("joined", "0")} and w[0].metric("replicator_joining") == 0
    w.quiet(names)


def test_a_state_that_is_new_again_has_not_joined(world):  # noqa: F811
    """By READY at its next opening, and by DONE where a site did not answer."""
    w = world(2, up=False, worker_idle="0ms")
    w[0].start()
    w[0].change("u", "one")
    wait_for(lambda: counts(w[0])[0] == ("1", "0"), 60, "a user who has joined")
    w[0].site.joining.add("u")
    w[0].hint("u")
    wait_for(lambda: counts(w[0])[0] == ("0", "1"), 60, "a new state")
    w[0].site.joining.discard("u")
    for told, word in ((2, "a site has not answered"), (3, "a site reads its mailboxes")):
        w[0].site.not_whole["u"] = told
        w[0].hint("u")
        wait_for(lambda word=word: state(w[0], "u")[0] == word, 60, word)
        assert counts(w[0])[0] == ("0", "1")
    w[0].site.not_whole.clear()
    w[0].hint("u")
    wait_for(lambda: state(w[0], "u") == ("joined", "0"), 60, "its end")


def test_mails_are_counted_while_they_come(world):  # noqa: F811
    w = world(2, up=False)
    w[0].start()
    w[0].site.want_most = 100
    lacks(w[0], "user1", 250, 2000)
    wait_for(lambda: counts(w[0])[1] == ("0", "250"), 60, "what is left")
    row = table(w[0])["bytes"]
    assert (row["left"], row["time left"], row["progress"]) == ("-", "-", "[--------------------] 0 %")
    assert state(w[0], "user1") == ("mails left", "250") and table(w[0])["mails"]["progress"] == row["progress"]
    w[1].start()
    wait_for(lambda: counts(w[0])[1:] == [("250", "0"), ("500000", "0")], 60, "all of it")
    assert [row["progress"] for row in table(w[0]).values()] == [FULL] * 3
    w[0].change("user1", "another")     # an ordinary change begins nothing new
    w.quiet(["user1"])
    assert counts(w[0])[1:] == [("250", "0"), ("500000", "0")]
    lacks(w[0], "user2", 1)
    wait_for(lambda: counts(w[0]) == [("2", "0"), ("1", "0"), ("1000", "0")], 60, "the next one's first")


def test_what_is_left_is_estimated_from_what_came(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    w[0].site.want_most = 100
    lacks(w[0], "user1", 500, 2000)
    wait_for(lambda: counts(w[0])[1:] == [("100", "400"), ("200000", "800000")], 60, "a first part")
    assert {table(w[0])[row]["progress"] for row in ("mails", "bytes")} == {"[####----------------] 20 %"}
    assert re.fullmatch(r"\d+:\d\d:\d\d", table(w[0])["mails"]["time left"])


def test_a_restart_keeps_who_has_joined_and_what_was_placed(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    w[0].site.want_most = 100
    w[0].change("user2", "one")
    wait_for(lambda: counts(w[0])[0] == ("1", "0"), 60, "a first user")
    lacks(w[0], "user1", 500)
    told = [("2", "0"), ("100", "400"), ("100000", "400000")]
    wait_for(lambda: counts(w[0]) == told, 60, "a first part")
    w[0].stop()
    w[0].site.lacking.pop("user1")      # so that its next word is another one
    w[0].site.failing.add("user1")
    w[0].start()
    assert counts(w[0]) == told
    w[0].site.failing.clear()
    wait_for(lambda: counts(w[0]) == [("2", "0"), ("100", "0"), ("100000", "0")], 120, "its end")


def test_an_upgrade_is_no_join(world):  # noqa: F811
    w = world(2, **NEVER)
    for name in users(3):
        w[0].change(name, "one")
    w.quiet(users(3))
    w[0].stop()
    with contextlib.closing(sqlite3.connect(w[0].directory / "state" / "replicator.db")) as db, db:
        db.execute("DROP TABLE joined")
    opened = len(w[0].site.opened)
    w[0].start()
    assert counts(w[0])[0] == ("3", "0") and w[0].metric("replicator_joining") == 0
    assert state(w[0], users(3)[0]) == ("joined", "0") and len(w[0].site.opened) == opened


def test_a_user_who_is_gone_is_not_waited_for(world):  # noqa: F811
    w = world(2, up=False)
    w[0].start()
    w[0].site.joining.add("user1")
    w[0].change("user1", "one")
    wait_for(lambda: counts(w[0])[0] == ("0", "1"), 60, "one who has not joined")
    w[0].site.unknown.add("user1")
    w[0].site.kill_workers()
    wait_for(lambda: counts(w[0])[0] == ("0", "0"), 60, "none")
    assert table(w[0])["users"]["progress"] == FULL and w[0].metric("replicator_joining") == 0


def test_what_is_asked_wrongly(world):  # noqa: F811
    w = world(1)
    for user in ("", "*", "u"):
        rows, code, errors = w[0].admin("join", user, "--status", "extra")
        assert (rows, code) == ([], 64) and "extra" in errors[0] and "join --status [-u <user> | -A]" in errors[0]
    rows, code, errors = w[0].admin("join", "nobody", "--status")
    assert (rows, code) == ([], 67) and "nobody" in errors[0] and "resync -u" in errors[0]
    assert w[0].admin("join", "*", "--status")[1] == 67 and {words[0] for _, words in w[0].site.verbs} <= {"users"}


# ---- join_rate ----

def test_requests_of_who_is_filled_wait_for_the_rate(world):  # noqa: F811
    """One byte a second: after the first answer nobody is asked for more within this test. The newest request of each is kept."""
    w = world(2, join_rate="1", **NEVER)
    site, names = w[0].site, users(3)
    site.want_most = 100
    w[0].change(names[2], "one")
    w.quiet(names[2:])
    lacks(w[0], names[0], 500)
    wait_for(lambda: site.came.get(names[0]) == (100, 100_000), 60, "the first answer")
    wait_for(lambda: w[0].metric("replicator_held_requests") == 1, 60, "its next request is held")
    for times in range(1, 4):
        lacks(w[0], names[1], 500)
        wait_for(lambda times=times: site.wants.count(names[1]) == times, 60, "a request")
    wait_for(lambda: w[0].metric("replicator_held_requests") == 2, 60, "another one that is held")
    lacks(w[0], names[2], 5)            # few: it is ordinary
    wait_for(lambda: site.came.get(names[2]) == (5, 5000), 60, "an answer")
    assert site.came == {names[0]: (100, 100_000), names[2]: (5, 5000)} and w[0].metric("replicator_held_requests") == 2
    assert sum(kind == WANT for _, _, kind in w[1].site.parcels) == 2


def test_a_restart_loses_no_request_and_may_have_another_rate(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    site, names = w[0].site, users(3)
    site.want_most = 100
    for name in names:
        lacks(w[0], name, 300)
    wait_for(lambda: w[0].metric("replicator_held_requests") == 3, 60, "requests that are held")
    assert len(site.came) == 1
    w[0].stop()
    w[0].start(join_rate="0")
    wait_for(lambda: site.came == dict.fromkeys(names, (300, 300_000)), 60, "all of it")
    wait_for(lambda: counts(w[0]) == [("3", "0"), ("900", "0"), ("900000", "0")], 60, "and it is told")


def test_requests_go_in_the_order_in_which_they_came(world):  # noqa: F811
    w = world(2, up=False, join_rate="50MB", **NEVER)
    w[0].start()
    site, names = w[0].site, [f"user{n}" for n in range(6)]
    for name in names:      # 33 MB each, as far as is known
        lacks(w[0], name, 1000)
        wait_for(lambda name=name: name in site.wants, 60, "a request")
    wait_for(lambda: set(asked(w)) == set(names), 60, "all of them, one after the other")
    assert list(dict.fromkeys(asked(w))) == names


def test_no_more_comes_than_the_rate_allows(world):  # noqa: F811
    """Whatever the host's speed: the slower this test, the more may have come."""
    rate, size, most = 1_000_000, 10_000, 50
    w = world(2, join_rate=str(rate), **NEVER)
    site, names, began = w[0].site, users(4), time.monotonic()
    site.want_most = most
    for name in names:
        lacks(w[0], name, 300, size)

    def ended():
        had = site.body_bytes
        bound = (time.monotonic() - began) * rate   # of a later moment: too high, never too low
        # Beside it: the bucket, the last request that was let go, and of each user one when little was left.
        assert had <= bound + rate + (1 + len(names)) * most * size, (had, bound)
        return len(site.came) == len(names) and not site.lacking

    wait_for(ended, 120, "all of it")


def test_what_is_held_goes_with_its_user_or_its_site(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    site, names = w[0].site, users(3)
    site.want_most = 100
    for name in names:
        lacks(w[0], name, 500)
    wait_for(lambda: w[0].metric("replicator_held_requests") == 3, 60, "requests that are held")
    site.unknown.add(names[2])
    site.kill_workers()
    w[0].hint(names[2])
    wait_for(lambda: w[0].metric("replicator_held_requests") == 2, 60, "two of them")
    assert w[0].admin("peers", "", "--remove", "2")[1] == 0
    assert w[0].metric("replicator_held_requests") == 0


def test_what_nobody_asked_for_costs_none_of_the_rate(world):  # noqa: F811
    """A site would keep the mails of all others away from one that is filled, for as long as it likes and longer."""
    w = world(3, join_rate="1MB", **NEVER)
    w[0].site.unknown.add("ghost")
    w[0].site.want_most = 100       # with the second request main knows that he is filled
    w[0].change("user1", "one")
    w.quiet(["user1"])
    lane, call, digest = BULK.format("site-c", "site-a"), w[2].redis.client(), w[0].site.hellos[0][1]
    for _ in range(60):     # a minute's worth, and two
        entry = [1, os.urandom(16), meta(digest, "ghost", kind=BODIES, sender=3, to=1), bytes(2_000_000)]
        call("LANE.PUSH", 1, lane, "ENTRIES", 1, *entry)
        wait_for(lambda: int(call("LANE.LEN", lane)) < 10, 60, "room")
    wait_for(lambda: int(call("LANE.LEN", lane)) == 0, 60, "all of it taken")
    lacks(w[0], "user1", 500)
    wait_for(lambda: w[0].site.came.get("user1") == (500, 500_000), 30, "mails of the second site")
