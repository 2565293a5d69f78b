"""How far a site is filled, as `doveadm dovelane join --status` shows it, and join_rate."""
import contextlib
import os
import re
import sqlite3
import threading
import time

import pytest
from support.frames import ADMIN, BODIES, WANT
from support.replicator_worker import Worker
from support.replicator_world import users
from support.waiting import eventually
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
    assert counts(w[0])[0] == ("0", "-") and not any(row["progress"] == FULL for row in table(w[0]).values())  # no user is known
    for name in users(3):
        w[0].change(name, "one")
    w.quiet(users(3))
    assert counts(w[0]) == [("3", "0"), ("0", "0"), ("0", "0")]
    for row in table(w[0]).values():
        assert row == {"done": row["done"], "left": "0", "rate": row["rate"], "time left": "0:00:00", "progress": FULL}
        assert re.fullmatch(r"\d+(\.\d+)?/s", row["rate"])
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
    eventually("both", lambda: counts(w[0])[0] == ("2", "0"))


def test_users_join_one_by_one(world):  # noqa: F811
    """Nobody of the other site answers at first."""
    w = world(2, up=False)
    w[0].start()
    names = users(4)
    w[0].change(names[3], "one")
    eventually("one who has joined", lambda: counts(w[0])[0] == ("1", "0"))
    w[0].site.joining.update(names[:3])
    for name in names[:3]:
        w[0].change(name, "one")
    eventually("three who have not", lambda: counts(w[0])[0] == ("1", "3"))
    users_row, mails_row = table(w[0])["users"], table(w[0])["mails"]
    assert (mails_row["left"], mails_row["time left"], mails_row["progress"]) == ("0", "-", "[--------------------] 0 %"), "more may come"
    assert users_row["progress"] == "[#####---------------] 25 %" and re.fullmatch(r"-|\d+:\d\d:\d\d", users_row["time left"])
    eventually("words for them",
               lambda: {state(w[0], name)[0] for name in names[:3]} <= {"being asked", "waits for its turn"})
    rows, code, _ = w[0].admin("join", "*", "--status")
    assert code == 0 and rows[0] == ["user", "state", "mails left"] and [row[0] for row in rows[1:]] == names
    assert rows[4][1:] == ["joined", "0"] and w[0].metric("replicator_joining") == 3
    w[1].start()
    eventually("all joined", lambda: counts(w[0])[0] == ("4", "0"), 120)
    assert {state(w[0], name) for name in names} == {("joined", "0")} and w[0].metric("replicator_joining") == 0
    w.quiet(names)


def test_a_state_that_is_new_again_has_not_joined(world):  # noqa: F811
    """By READY at its next opening, and by DONE where a site did not answer."""
    w = world(2, up=False, worker_idle="0ms")
    w[0].start()
    w[0].change("u", "one")
    eventually("a user who has joined", lambda: counts(w[0])[0] == ("1", "0"))
    w[0].site.joining.add("u")
    w[0].hint("u")
    eventually("a new state", lambda: counts(w[0])[0] == ("0", "1"))
    w[0].site.joining.discard("u")
    for told, word in ((2, "a site has not answered"), (3, "a site reads its mailboxes")):
        w[0].site.not_whole["u"] = told
        w[0].hint("u")
        eventually(word, lambda word=word: state(w[0], "u")[0] == word)
        assert counts(w[0])[0] == ("0", "1")
    w[0].site.not_whole.clear()
    w[0].hint("u")
    eventually("its end", lambda: state(w[0], "u") == ("joined", "0"))


def test_mails_are_counted_while_they_come(world):  # noqa: F811
    w = world(2, up=False)
    w[0].start().sends()
    w[0].site.want_most = 100
    lacks(w[0], "user1", 250, 2000)
    eventually("what is left", lambda: counts(w[0])[1] == ("0", "250"))
    row = table(w[0])["bytes"]
    assert (row["left"], row["time left"], row["progress"]) == ("-", "-", "[--------------------] 0 %")
    assert state(w[0], "user1") == ("mails left", "250") and table(w[0])["mails"]["progress"] == row["progress"]
    w[1].start()
    eventually("all of it", lambda: counts(w[0])[1:] == [("250", "0"), ("500000", "0")])
    assert [row["progress"] for row in table(w[0]).values()] == [FULL] * 3
    w[0].change("user1", "another")     # an ordinary change begins nothing new
    w.quiet(["user1"])
    assert counts(w[0])[1:] == [("250", "0"), ("500000", "0")]
    lacks(w[0], "user2", 1)
    eventually("the next one's first",
               lambda: counts(w[0]) == [("2", "0"), ("1", "0"), ("1000", "0")])


def test_what_is_left_is_estimated_from_what_came(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    w[0].site.want_most = 100
    lacks(w[0], "user1", 500, 2000)
    eventually("a first part", lambda: counts(w[0])[1:] == [("100", "400"), ("200000", "800000")])
    assert {table(w[0])[row]["progress"] for row in ("mails", "bytes")} == {"[####----------------] 20 %"}
    assert re.fullmatch(r"\d+:\d\d:\d\d", table(w[0])["mails"]["time left"])


def test_a_restart_keeps_who_has_joined_and_what_was_placed(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    w[0].site.want_most = 100
    w[0].change("user2", "one")
    eventually("a first user", lambda: counts(w[0])[0] == ("1", "0"))
    lacks(w[0], "user1", 500)
    told = [("2", "0"), ("100", "400"), ("100000", "400000")]
    eventually("a first part", lambda: counts(w[0]) == told)
    w[0].stop()
    w[0].site.lacking.pop("user1")      # so that its next word is another one
    w[0].site.failing.add("user1")
    w[0].start()
    assert counts(w[0]) == told
    w[0].site.failing.clear()
    eventually("its end", lambda: counts(w[0]) == [("2", "0"), ("100", "0"), ("100000", "0")], 120)


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
    eventually("one who has not joined", lambda: counts(w[0])[0] == ("0", "1"))
    w[0].site.unknown.add("user1")
    w[0].site.kill_workers()
    # of a site that knows no user nobody can say that it is full
    eventually("none", lambda: counts(w[0])[0] == ("0", "-"))
    assert table(w[0])["users"]["progress"] != FULL and w[0].metric("replicator_joining") == 0


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
    eventually("the first answer", lambda: site.came.get(names[0]) == (100, 100_000))
    eventually("its next request is held", lambda: w[0].metric("replicator_held_requests") == 1)
    for times in range(1, 4):
        lacks(w[0], names[1], 500)
        eventually("a request", lambda times=times: site.wants.count(names[1]) == times)
    eventually("another one that is held", lambda: w[0].metric("replicator_held_requests") == 2)
    lacks(w[0], names[2], 5)            # few: it is ordinary
    eventually("an answer", lambda: site.came.get(names[2]) == (5, 5000))
    assert site.came == {names[0]: (100, 100_000), names[2]: (5, 5000)} and w[0].metric("replicator_held_requests") == 2
    assert sum(kind == WANT for _, _, kind in w[1].site.parcels) == 2


def test_a_restart_loses_no_request_and_may_have_another_rate(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    site, names = w[0].site, users(3)
    site.want_most = 100
    for name in names:
        lacks(w[0], name, 300)
    eventually("requests that are held", lambda: w[0].metric("replicator_held_requests") == 3)
    assert len(site.came) == 1
    w[0].stop()
    site.again = 500    # what he asks for before the lane is ready goes nowhere
    w[0].start(join_rate="0")
    eventually("all of it", lambda: site.came == dict.fromkeys(names, (300, 300_000)))
    eventually("and it is told",
               lambda: counts(w[0]) == [("3", "0"), ("900", "0"), ("900000", "0")])


def test_requests_go_in_the_order_in_which_they_came(world):  # noqa: F811
    w = world(2, up=False, join_rate="50MB", **NEVER)
    w[0].start().sends()
    site, names = w[0].site, [f"user{n}" for n in range(6)]
    for name in names:      # 33 MB each, as far as is known
        lacks(w[0], name, 1000)
        eventually("a request", lambda name=name: name in site.wants)
    eventually("all of them, one after the other", lambda: set(asked(w)) == set(names))
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

    eventually("all of it", ended, 120)


def test_what_is_held_goes_with_its_user_or_its_site(world):  # noqa: F811
    w = world(2, join_rate="1", **NEVER)
    site, names = w[0].site, users(3)
    site.want_most = 100
    for name in names:
        lacks(w[0], name, 500)
    eventually("requests that are held", lambda: w[0].metric("replicator_held_requests") == 3)
    site.unknown.add(names[2])
    site.kill_workers()
    w[0].hint(names[2])
    eventually("two of them", lambda: w[0].metric("replicator_held_requests") == 2)
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
        eventually("room", lambda: int(call("LANE.LEN", lane)) < 10)
    eventually("all of it taken", lambda: int(call("LANE.LEN", lane)) == 0)
    lacks(w[0], "user1", 500)
    eventually("mails of the second site", lambda: w[0].site.came.get("user1") == (500, 500_000))
