"""Entries that expire, and what the log says of entries that go away unacknowledged."""
import re
import time

import pytest

from support.lane_server import LaneServer, ReplyError, SLOW, ident, number, wait_for
from test_lane_packed import entry

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("server"), "--lane.settle-ms", "60000", "--notify-keyspace-events", "KEA") as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    yield client
    server.close_clients()


_last = 10**6


def fresh():
    global _last
    _last += 1
    return _last


def push(c, key, *numbers, expire, more=(), body="body"):
    parts = [x for n in numbers for x in (1, ident(n), "meta", body)]
    return c("LANE.PUSH", 1, key, *more, "EXPIRE", expire, "ENTRIES", len(numbers), *parts)[1]


def at_once(c, numbers, *commands, expire, key="lane"):
    """A PUSH and what follows it in one write: no time passes in between, however busy the machine is. The other answers."""
    parts = [x for n in numbers for x in (1, ident(n), "meta", "body")]
    return c.pipe(["LANE.PUSH", 1, key, "EXPIRE", expire, "ENTRIES", len(numbers), *parts], *commands)[1:]


def gone(c, key, n=0):
    wait_for(lambda: c("LANE.LEN", key) == n, what=f"length {n} of {key}")


# ---- entries that expire ----

@pytest.mark.parametrize("packed", [False, True])
def test_expired_entry_is_let_go(c, packed):
    n, m = fresh(), fresh()
    if packed:
        info = c.pipe(["LANE.PUSH", 1, "lane", "EXPIRE", 30, "PACKED", entry(n) + entry(m)], ["LANE.INFO", "lane"])[1]
    else:
        info = at_once(c, [n, m], ["LANE.INFO", "lane"], expire=30)[0]
    assert dict(zip(info[::2], info[1::2]))[b"expiring"] == 2
    gone(c, "lane")
    assert c("EXISTS", "lane") == 0
    assert c.push("lane", n) == ["DONE"], "given up counts as let go"
    assert c("LANE.REVOKE", "lane", ident(n)) == ["ABSENT"], "but not as delivered"


def test_expired_entry_goes_to_the_dead_letter_lane_and_stays_there(c):
    n = fresh()
    c("LANE.CREATE", "lane", "DEAD", "dead")
    push(c, "lane", n, expire=20)
    c.push("lane", fresh())
    gone(c, "lane", 1)
    assert [number(e[1]) for e in c.read("dead")] == [n]
    assert c.info("dead")["expiring"] == 0
    assert c("LANE.MOVE", "dead", "lane", "IDS", 1, ident(n)) == [1, 0, 0]
    assert c.ids("lane", 9)[-1] == n, "moved back it is given again"


def test_entry_before_its_time_is_given(c):
    n = fresh()
    push(c, "lane", n, expire=60000)
    lease, entries = c.take("lane")
    assert number(entries[0][1]) == n
    assert c("LANE.ACK", "lane", "IDS", 1, ident(n)) == [1, 0]
    assert c("EXISTS", "lane") == 0


@pytest.mark.parametrize("how", ["RETRY", "KEEP", "disconnect", "time", "rename"])
def test_leased_entry_expires_when_it_is_given_back(server, c, how):
    n = fresh()
    holder = server.client()
    took = at_once(holder, [n], ["LANE.TAKE", 1, "lane", "LEASE", 300 * SLOW if how in ("time", "rename") else 3600_000], expire=100)[0]
    lease = took[0][1]
    time.sleep(0.15)
    if how not in ("time", "rename"):
        assert c("LANE.LEN", "lane") == 1, "whoever has it keeps it"
    if how == "disconnect":
        holder.close()
    elif how == "rename":
        c.pipe(["RENAME", "lane", "other"])  # unless a busy machine was too late for it
        gone(c, "other")
    elif how != "time":
        assert holder("LANE.NACK", "lane", lease, how, 0, "UPTO", 2**62) == [0, 1, 0]
    gone(c, "lane")


def test_leased_entry_may_be_acked_after_its_time(c):
    n = fresh()
    assert at_once(c, [n], ["LANE.TAKE", 1, "lane", "LEASE", 3600_000], expire=30)[0]
    time.sleep(0.06)
    assert c("LANE.ACK", "lane", "IDS", 1, ident(n)) == [1, 0]


def test_delayed_entry_that_expires_first_is_never_given(c):
    push(c, "lane", fresh(), expire=30, more=("DELAY", 60000))
    gone(c, "lane")


def test_expired_head_frees_a_strict_lane(server, c):
    c("LANE.CREATE", "lane", "STRICT")
    first, second = fresh(), fresh()
    *_, early = c.pipe(["LANE.PUSH", 1, "lane", "DELAY", 60000, "EXPIRE", 30 * SLOW, "ENTRIES", 1, 1, ident(first), "meta", "body"], c.pushing("lane", second), ["LANE.TAKE", 1, "lane"])
    assert early == []
    waiting = server.client()
    waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
    assert number(waiting.reply()[0][2][0][1]) == second


def test_unusable_dead_letter_lane_keeps_what_expired(server, c):
    n = fresh()
    c("LANE.CREATE", "lane", "DEAD", "text")
    c("SET", "text", "x")
    push(c, "lane", n, expire=20)
    wait_for(lambda: c.info("lane")["expiring"] == 0)
    assert c.ids("lane", 9) == [n] and server.log_says("dead-letter lane text of lane is none .*: 1 entries stay.*LANE.CREATE lane DEAD names another")


def test_expiry_survives_copy_move_and_reload(c):
    ns = [fresh() for _ in range(3)]
    push(c, "lane", *ns, expire=3600_000)
    short = fresh()
    at_once(c, [short, fresh()], ["COPY", "short", "copied"], ["LANE.MOVE", "short", "taken", "IDS", 1, ident(short)], expire=300, key="short")
    c("COPY", "lane", "copy")
    c("LANE.MOVE", "lane", "moved", "IDS", 1, ident(ns[1]))
    c("DEBUG", "RELOAD")
    assert [c.info(k)["expiring"] for k in ("lane", "copy", "moved")] == [2, 3, 1]
    for key in ("short", "copied", "taken"):
        gone(c, key)
    assert [c.info(k)["length"] for k in ("lane", "copy", "moved")] == [2, 3, 1]


def test_what_expired_while_the_server_was_down_is_not_given(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        c = server.client()
        push(c, "stays", fresh(), expire=3600_000)
        push(c, "lane", fresh(), expire=300)
        server.kill()
        time.sleep(0.35)
        server.start()
        c = server.client()
        assert c.ids("lane", 9) == []
        assert c.info("stays")["expiring"] == 1
        gone(c, "lane")
        server.restart()
        assert server.client()("EXISTS", "lane") == 0, "the file tells it, too"


def test_keyspace_event_of_what_expired(server, c):
    listener = server.client()
    listener("PSUBSCRIBE", "__keyevent@0__:*")
    push(c, "lane", fresh(), expire=10)
    assert [listener.reply()[2].decode().split(":", 1)[1] for _ in range(3)] == ["lane.push", "lane.expired", "del"]


@pytest.mark.parametrize("value", [0, -1, "x", 10**12])
def test_bad_expire(c, value):
    with pytest.raises(ReplyError, match="expire"):
        push(c, "lane", 1, expire=value)


def test_thousands_expire_at_once(c):
    for i in range(30):
        c("LANE.PUSH", 1, "lane", "EXPIRE", 200 * SLOW, "PACKED", b"".join(entry(fresh(), b"", b"") for _ in range(1000)))
    last = fresh()
    c.push("lane", last)
    time.sleep(0.25 * SLOW)
    gone(c, "lane", 1)
    assert c.ids("lane") == [last]


def test_thousands_come_due_at_once_in_order(c):
    """More than one look at the lane does: none is forgotten, each stands where it stood."""
    total, first = 20_000 if SLOW == 1 else 3_000, fresh()
    for i in range(0, total, 1000):
        c("LANE.PUSH", 1, "lane", "DELAY", 200 * SLOW, "PACKED", b"".join(entry(first + i + k, b"", b"") for k in range(1000)))
    for _ in range(total):
        fresh()
    wait_for(lambda: c.info("lane")["waiting"] == total, 20)
    lease, entries = c.take("lane", total, "LEASE", 10**9)
    assert [number(e[1]) for e in entries] == list(range(first, first + total))
    assert c("LANE.EXTEND", "lane", lease, 0, "UPTO", 2**62)[0] == total
    wait_for(lambda: c.info("lane")["leased"] == 0, 20)
    assert {e[3] for e in c.take("lane", total)[1]} == {1}


# ---- what the log says ----

def said(server, pattern):
    return wait_for(lambda: server.log_says(pattern), what=pattern)


@pytest.mark.parametrize("words, how", [
    (["DEL", "{}"], "deleted"), (["UNLINK", "{}"], "deleted"), (["PEXPIRE", "{}", 20 * SLOW], "the key expired"), (["SET", "{}", "x"], "overwritten by something else"),
    (["LANE.RESET", "{}"], "reset"), (["RENAME", "other", "{}"], "overwritten by something else")], ids=lambda w: w[0] if isinstance(w, list) else "")
def test_removed_lane_is_logged_with_its_count(server, c, words, how):
    name = f"lost-{words[0]}"
    c.push(name, *[fresh() for _ in range(3)], body="x" * 10, meta="")
    c.push("other", fresh())
    c(*[w.format(name) if isinstance(w, str) else w for w in words])
    said(server, rf"3 entries of 30 bytes went with lane {re.escape(name)} of database 0: {how}")


def test_flushed_lanes_are_logged_with_their_count(server, c):
    for words, where in ((["FLUSHALL"], "all databases"), (["FLUSHALL", "ASYNC"], "all databases"), (["FLUSHDB"], "database 0")):
        mark = fresh()
        c.push("a", mark, fresh(), body="x" * 1000, meta="m" * (mark % 1000))
        c.push("b", fresh(), body="", meta="")
        c("LANE.CREATE", "empty")
        c(*words)
        said(server, rf"3 entries of {2000 + 2 * (mark % 1000)} bytes went with 2 lanes of {where}: flushed")


def test_nothing_is_said_of_lanes_that_are_renamed_or_empty(server, c):
    for words in (["RENAME", "quiet", "quiet2"], ["MOVE", "quiet2", 4], ["SWAPDB", 4, 0], ["COPY", "quiet2", "quiet3"]):
        if words[0] == "RENAME":
            c.push("quiet", fresh())
        c(*words)
        c("SELECT", 0)
    c("LANE.CREATE", "quiet-empty")
    c("DEL", "quiet-empty")
    c("LANE.ACK", "quiet3", "UPTO", 2**62)
    c.push("loud", fresh())
    c("DEL", "loud")
    said(server, "went with lane loud of")
    time.sleep(0.05)
    assert not server.log_says("went with lane quiet")


# ---- leases that end all at once ----

@pytest.mark.parametrize("words", [["RENAME", "lane", "new"], ["UNLINK", "lane"], ["LANE.RESET", "lane"], ["FLUSHALL", "ASYNC"], ["SWAPDB", 0, 6]], ids=lambda w: w[0])
def test_a_lane_with_very_many_leases_goes_away(server, c, words):
    """20,000 leases of one entry and one of 20,000 (fewer under slow tools): they end with the lane, and their memory comes back."""
    total = 40_000 if SLOW == 1 else 4_000
    for i in range(0, total, 1000):
        c("LANE.PUSH", 1, "lane", "PACKED", b"".join(entry(fresh(), b"", b"") for _ in range(1000)))
    holder = server.client()
    before = c.info()["used-memory"]
    holder.pipe(*[["LANE.TAKE", 1, "lane", "LEASE", 10**9] for _ in range(total // 2)])
    assert len(holder.take("lane", total, "LEASE", 10**9)[1]) == total // 2
    assert c.info()["leased"] == total
    c(*words)
    c("SELECT", 6 if words[0] == "SWAPDB" else 0)
    assert c.info()["leased"] == 0
    if words[0] in ("RENAME", "SWAPDB"):
        key = "new" if words[0] == "RENAME" else "lane"
        assert c.info(key)["waiting"] == total
        lease, entries = c.take(key, total)
        assert [e[0] for e in entries] == sorted(e[0] for e in entries) and len(entries) == total
        assert {e[3] for e in entries} == {0}, "no attempt was counted"
        c("LANE.RESET", key)
    c("SELECT", 0)
    wait_for(lambda: c.info()["used-memory"] < before - 1_000_000 or SLOW > 1, 20, "its memory")
    holder.close()
    c("PING")


def test_a_connection_with_very_many_leases_goes_away(server, c):
    total = 20_000 if SLOW == 1 else 4_000
    for i in range(0, total, 1000):
        c("LANE.PUSH", 1, "lane", "PACKED", b"".join(entry(fresh(), b"", b"") for _ in range(1000)))
    holder = server.client()
    holder.pipe(*[["LANE.TAKE", 1, "lane", "LEASE", 10**9] for _ in range(total // 2)])
    holder.take("lane", total, "LEASE", 10**9)
    holder.close()
    wait_for(lambda: c.info()["leased"] == 0, 20)
    lease, entries = c.take("lane", total)
    assert len(entries) == total and {e[3] for e in entries} == {1}
