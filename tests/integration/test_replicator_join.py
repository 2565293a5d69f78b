"""How far a site is filled, as `doveadm dovelane join --status` shows it."""
import contextlib
import re
import sqlite3
import threading

import pytest
from lane_server import wait_for
from replicator_worker import ADMIN, Worker
from replicator_world import users
from test_replicator import world  # noqa: F401

pytestmark = pytest.mark.core
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
