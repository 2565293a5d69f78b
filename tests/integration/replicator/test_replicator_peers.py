"""Peers that are behind, away or gone, and what an admin is told of them."""
import pytest

from support.frames import ANSWER
from support.waiting import eventually
from test_replicator import world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]


def test_those_left_exchange_what_only_one_of_them_has_of_a_dead_one(world):
    """A told B, not C, and is gone for ever (F19)."""
    w = world(3, up=False)
    w[0].start()
    w[1].start()
    w[0].change("u", "last words")
    eventually("B's copy", lambda: w[1].site.items("u") == {1: ["last words"]})
    w[0].kill()
    w[0].redis.process.kill()
    w[0].redis.process.wait()
    w[2].start()
    w[1].change("u", "alive")
    eventually("C's copy", lambda: w[2].site.items("u") == {1: ["last words"], 2: ["alive"]})
    assert ("u", 2, ANSWER) in w[2].site.parcels


def test_a_backlog_over_its_bound_is_dropped_and_exchanged_on_return(world):
    w = world(2, up=False, backlog=1000)
    w[0].start()
    w[0].change("u", *[f"{n}" for n in range(1500)])
    eventually("FORGET", lambda: w[0].site.state("u").first > 1500)
    w[0].redis.client()("FLUSHALL")
    w[0].change("u", "after")
    w[1].start()
    w.converge(["u"])
    assert len(w[1].site.items("u")[1]) == 1501


def test_a_peer_removed_for_ever_is_kept_nothing_for(world):
    w = world(3, up=False)
    w[0].start()
    w[1].start()
    w[0].change("u", "x")
    eventually("B's copy", lambda: w[1].site.items("u") == {1: ["x"]})
    rows, code, _ = w[0].admin("peers", "", "--remove", "3")
    assert code == 0 and ["site-c", "3", f"unix:{w[2].redis.path}", "removed"] in rows
    w[0].change("u", "y")
    eventually("B's copy", lambda: w[1].site.items("u") == {1: ["x", "y"]})
    assert w[0].site.hellos[-1][0] == [1, 2]
    eventually("nothing kept", lambda: [row[3] for row in w[0].admin("lag")[0][1:]] == ["0", "-"])
    w[0].stop()
    w[0].start()
    assert w[0].admin("peers")[0][3][3] == "removed"


# ---- admins ----

def test_admins_requests(world):
    w = world(2)
    names = ["u", "v"]
    for name in names:
        w[0].change(name, "x", "y")
    w.quiet(names)
    rows, code, errors = w[0].admin("status", "u")
    assert (rows, code, errors) == ([["folder", "mails"], ["INBOX", "2"]], 0, [])
    rows, code, errors = w[0].admin("verify", "*")
    assert code == 0 and sorted(rows[1:]) == [["u", "INBOX", "2"], ["v", "INBOX", "2"]] and rows[0] == ["user", "folder", "mails"]
    w[0].site.together = 2
    rows, code, errors = w[0].admin("verify", "*")
    assert (code, errors) == (0, []) and {tuple(map(tuple, rows[i:i + 2])) for i in (1, 3)} == {((u, "INBOX", "2"), (u, "verdict", "same")) for u in names}, rows
    w[0].site.together = 0
    assert w[0].admin("accept", "u", "INBOX") == ([], 1, ["user u: nothing is held"])
    assert ("u", ["accept", "INBOX"]) in w[0].site.verbs
    assert w[0].admin("verify")[1] == 64
    assert w[0].admin("nonsense", "u")[1] == 64
    assert w[0].admin("status", "../x")[1] == 67
    w[0].site.unknown.add("nobody")
    assert w[0].admin("status", "nobody")[1] == 67
    rows, code, _ = w[0].admin("status")
    assert code == 0 and rows[1][0] == "site-a" and rows[2][:3] == ["site-b", "2", "up"]
    rows, code, _ = w[0].admin("lag", "u")
    assert code == 0 and rows[1][:3] == ["site-b", "2", "0"]


def test_what_nobody_counted_is_no_0(world):
    """lag and status: of somebody unheard of; of users whose mailboxes were not compared yet; of a site that is removed."""
    w = world(2)
    w[0].change("u", "x")
    w.quiet(["u"])
    rows, code, _ = w[0].admin("lag", "u")
    assert code == 0 and rows[1] == ["site-b", "2", "0", "-", "no", "0", "0", "0"], rows
    assert w[0].admin("lag")[0][1] == ["site-b", "2", "0", "0", "-"]
    rows, code, errors = w[0].admin("lag", "nobody@example.net")
    assert code == 67 and not rows and "is not known here" in errors[0], (rows, errors)
    w[0].site.joining.add("new")    # no site has answered for him yet
    w[1].stop()
    w[0].hint("new")
    eventually("he is known", lambda: w[0].admin("lag", "new")[1] == 0)
    assert w[0].admin("lag", "new")[0][1] == ["site-b", "2", "-", "-", "-", "-", "-", "0"]
    assert w[0].admin("lag")[0][1] == ["site-b", "2", "-", "-", "-"]
    assert w[0].admin("status")[0][2][4:7] == ["-", "-", "-"]
    w[0].change("u", "y")
    eventually("what is known is told", lambda: w[0].admin("lag")[0][1][2:4] == ["1", "1"])
    assert float(w[0].admin("lag")[0][1][4]) >= 0 and w[0].admin("lag", "u")[0][1][2] == "1"
    assert w[0].admin("peers", "", "--remove", "2")[1] == 0
    assert w[0].admin("lag")[0][1][2:] == w[0].admin("status")[0][2][4:7] == ["-", "-", "-"]


def test_resync_exchanges_with_all(world):
    w = world(2)
    w[0].change("u", "x")
    w.quiet(["u"])
    assert w[0].admin("resync", "u")[1] == 0
    eventually("an answer", lambda: ("u", 2, ANSWER) in w[0].site.parcels)
