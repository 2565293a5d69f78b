"""LANE.READ, GET, IDS, MOVE, READY, LIST, LEN, INFO: looking, and finding lanes."""
import struct
import time

import pytest

from support.lane_server import LaneServer, ReplyError, SLOW, ident, wait_for

pytestmark = [pytest.mark.core, pytest.mark.check]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("read"), "--lane.node", "mx1") as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    client("CONFIG", "SET", "lane.settle-ms", 0)
    yield client
    server.close_clients()


# ---- READ, GET, IDS ----

def test_read_goes_on_from_next(c):
    seq = c.push("lane", *range(10))
    got, at = [], 0
    while True:
        at, entries = c("LANE.READ", "lane", at, "COUNT", 3)
        got += entries
        if at == 0:
            break
    assert [e[0] for e in got] == seq
    assert c("LANE.READ", "lane", seq[-1] + 1) == [0, []] == c("LANE.READ", "nothing", 0)


def test_read_is_bounded_by_bytes(c):
    seq = c.push("lane", 1, 2, 3, meta=b"m" * 10, body=b"x" * 500_000)
    assert c("LANE.READ", "lane", 0)[0] == seq[2], "1 MiB by default"
    assert c("LANE.READ", "lane", 0, "BYTES", 1)[0] == seq[1], "the first one is always given"
    following, entries = c("LANE.READ", "lane", 0, "NOBODY")
    assert following == 0 and [e[6] for e in entries] == [None] * 3


def test_read_defaults_to_100_entries(c):
    c.push("lane", *range(150))
    following, entries = c("LANE.READ", "lane", 0)
    assert len(entries) == 100 and following == entries[-1][0] + 1


def test_read_shows_states_and_leases_nothing(c):
    c.push("lane", 1, 2)
    c.push("lane", 3, delay=60000)
    c.take("lane")
    assert [e[7] for e in c.read("lane")] == ["leased", "waiting", "delayed"]
    assert c.info("lane")["leased"] == 1


def test_get_by_every_selector(c):
    seq = c.push("lane", 1, 2, 3)
    for words in (["UPTO", seq[1]], ["RANGES", 1, 0, seq[1]], ["SEQS", 3, seq[0], 999, seq[1]], ["IDS", 3, ident(1), ident(2), ident(9)]):
        assert [e[0] for e in c("LANE.GET", "lane", *words)] == seq[:2]
    assert c("LANE.GET", "lane", "IDS", 1, ident(3), "NOBODY")[0][6] is None
    assert c("LANE.GET", "nothing", "UPTO", 1) == []


def test_ids_are_records_of_32_bytes(c):
    seq = c.push("lane", 1, 2)
    c("LANE.PUSH", 1, "lane", "ENTRIES", 1, 1, "", "", "no id")
    c("LANE.META", "lane", 1, ident(2), 77, "")
    following, records = c("LANE.IDS", "lane", 0)
    assert following == 0 and len(records) == 96
    got = [struct.unpack("<Q16sII", records[i:i + 32]) for i in range(0, 96, 32)]
    assert [g[:3] for g in got[:2]] == [(seq[0], ident(1), 0), (seq[1], ident(2), 77)]
    assert got[2][1] == bytes(16) and all(g[3] < 60000 for g in got)
    following, records = c("LANE.IDS", "lane", 0, "COUNT", 2)
    assert following == got[2][0] and len(records) == 64
    assert len(c("LANE.IDS", "lane", following)[1]) == 32
    assert c("LANE.IDS", "nothing", 0) == [0, b""]


@pytest.mark.parametrize("words", [["LANE.READ", "lane"], ["LANE.READ", "lane", "x"], ["LANE.READ", "lane", 0, "COUNT", 0],
                                   ["LANE.READ", "lane", 0, "WHAT"], ["LANE.IDS", "lane", 0, "COUNT", 100001], ["LANE.IDS", "lane", 0, "X"],
                                   ["LANE.IDS", "lane", 0, "COUNT"], ["LANE.IDS", "lane", 0, "COUNT", 1, 2], ["LANE.GET", "lane", "UPTO", 1, "X"],
                                   ["LANE.READY", "x"], ["LANE.READY", 0, "WHAT"], ["LANE.LIST", 0, "MATCH"], ["LANE.LIST"], ["LANE.LEN"],
                                   ["LANE.INFO", "a", "b"], ["LANE.MOVE", "a", "b"]])
def test_bad_grammar(c, words):
    with pytest.raises(ReplyError, match="^ERR "):
        c(*words)


# ---- MOVE ----

def test_move_takes_meta_revision_attempts_and_age_along(c):
    c.push("from", 1, 2, 3)
    c("LANE.META", "from", 1, ident(2), 4, "result")
    lease, _ = c.take("from", 2)
    c("LANE.NACK", "from", lease, "RETRY", 0, "IDS", 1, ident(2))
    assert c("LANE.MOVE", "from", "to", "IDS", 4, ident(1), ident(2), ident(3), ident(9)) == [2, 1, 1]
    first, second = c.read("to")
    assert first[1:4] == [ident(2), 4, 1] and first[5] == b"result" and second[1] == ident(3)
    assert [e[1] for e in c.read("from")] == [ident(1)]


def test_move_drops_what_the_other_lane_holds(c):
    c.push("from", 1, 2, body=b"old")
    c.push("to", 1, body=b"new")
    assert c("LANE.MOVE", "from", "to", "UPTO", 2**62) == [2, 0, 0]
    assert [(e[1], e[6]) for e in c.read("to")] == [(ident(1), b"new"), (ident(2), b"old")]
    assert c("EXISTS", "from") == 0


def test_move_keeps_a_delay(c):
    *_, entries = c.pipe(c.pushing("from", 1, delay=200 * SLOW), ["LANE.MOVE", "from", "to", "UPTO", 2**62], ["LANE.READ", "to", 0])
    assert entries[1][0][7] == "delayed"
    assert wait_for(lambda: c.ids("to")) == [1]


def test_move_of_nothing_makes_nothing(c):
    assert c("LANE.MOVE", "from", "to", "IDS", 1, ident(1)) == [0, 0, 1]
    c.push("from", 1)
    c.take("from")
    assert c("LANE.MOVE", "from", "to", "UPTO", 2**62) == [0, 1, 0]
    assert c("EXISTS", "to") == 0


def test_move_to_itself(c):
    with pytest.raises(ReplyError, match="^ERR value: to-key is lane, allowed is another lane than from-key"):
        c("LANE.MOVE", "lane", "lane", "UPTO", 1)


# ---- READY ----

def test_ready_names_lanes_that_left_zero(c):
    cursor, _ = c("LANE.READY", 0)
    c.push("one", 1)
    c.push("two", 2)
    c.push("one", 3)
    following, keys = c("LANE.READY", cursor)
    assert keys == [b"one", b"two"]
    c.push("one", 4)
    assert c("LANE.READY", following) == [following, []], "it did not leave 0 again"
    assert c.ids("one", 9) == [1, 3, 4]
    c.push("one", 5)
    assert c("LANE.READY", following)[1] == [b"one"]


def test_ready_from_zero_names_all_that_have_something(c):
    c.push("one", 1)
    c.push("two", 2)
    c("LANE.CREATE", "three")
    c.push("four", 4, delay=60000)
    c.ids("two")
    assert c("LANE.READY", 0)[1] == [b"one"]


@pytest.mark.parametrize("how", ["push", "nack", "due", "lease over", "disconnect", "move", "ack in strict order"])
def test_ready_wakes_who_waits(server, c, how):
    other, waiting = server.client(), server.client()
    lease, ready, begin = None, ["LANE.READY", 0], time.monotonic()
    if how in ("nack", "disconnect"):
        c.push("lane", 1)
        lease, _ = other.take("lane", 1, "LEASE", 60000)
    elif how == "move":
        c.push("source", 1)
    elif how == "ack in strict order":
        c("LANE.CREATE", "lane", "STRICT")
        c.push("lane", 7, 1)
        other.take("lane")
    if how == "due":
        cursor, _ = c.pipe(c.pushing("lane", 1, delay=100 * SLOW), ready)[-1]
    elif how == "lease over":
        cursor, _ = other.pipe(c.pushing("lane", 1), ["LANE.TAKE", 1, "lane", "LEASE", 100 * SLOW], ready)[-1]
    else:
        cursor, _ = c(*ready)
    waiting.send("LANE.READY", cursor, "BLOCK", 0)
    # These two come by themselves, before that on a busy machine.
    assert waiting.silent(0.03) or (how in ("due", "lease over") and time.monotonic() - begin > 0.09 * SLOW)
    if how == "push":
        c.push("lane", 1)
    elif how == "nack":
        c("LANE.NACK", "lane", lease, "RETRY", 0, "UPTO", 2**62)
    elif how == "disconnect":
        other.close()
    elif how == "move":
        c("LANE.MOVE", "source", "lane", "UPTO", 2**62)
    elif how == "ack in strict order":
        c("LANE.ACK", "lane", "IDS", 1, ident(7))
    following, keys = waiting.reply()
    assert keys == [b"lane"] and following > cursor


def test_ready_runs_out_with_its_cursor(c):
    cursor, _ = c("LANE.READY", 0)
    assert c("LANE.READY", cursor, "BLOCK", 30) == [cursor, []]


def test_ready_pages(c):
    cursor, _ = c("LANE.READY", 0)
    for n in range(25):
        c.push(f"lane{n}", n)
    names = []
    while True:
        cursor, keys = c("LANE.READY", cursor, "COUNT", 10)
        names += keys
        if len(keys) < 10:
            break
    assert names == [b"lane%d" % n for n in range(25)]


def test_cursor_of_another_life_is_answered_from_zero(server, c):
    c.push("lane", 1)
    cursor, _ = c("LANE.READY", 0)
    assert c("LANE.READY", cursor + 10**6)[1] == [b"lane"]
    assert c("LANE.READY", 5)[1] == [b"lane"]


def test_ready_clients_may_go_away_while_they_wait(server, c):
    waiting = [server.client() for _ in range(6)]
    names = [w("CLIENT", "ID") for w in waiting]
    cursor, _ = c("LANE.READY", 0)
    for w in waiting:
        w.send("LANE.READY", cursor, "BLOCK", 0)
    waiting[0].silent(0.03)
    waiting[0].close()
    c("CLIENT", "KILL", "ID", names[1])
    c("CLIENT", "UNBLOCK", names[2])
    c("CLIENT", "UNBLOCK", names[3], "ERROR")
    c.push("lane", 1)
    assert waiting[2].reply() == [cursor, []]
    assert isinstance(waiting[3].reply(), ReplyError)
    assert [w.reply()[1] for w in waiting[4:]] == [[b"lane"]] * 2


def test_ready_lane_that_is_deleted_is_not_named(c):
    cursor, _ = c("LANE.READY", 0)
    c.push("lane", 1)
    c("DEL", "lane")
    assert c("LANE.READY", cursor)[1] == []


# ---- LIST, LEN, INFO ----

def test_list_pages_through_all_lanes(c):
    for n in range(95):
        c("LANE.PUSH", 1, f"lane{n}", "ENTRIES", 1, 1, ident(n), "m", "x" * n)
    c("SET", "string", "x")
    seen, cursor = {}, 0
    while True:
        cursor, flat = c("LANE.LIST", cursor, "COUNT", 10)
        seen |= {flat[i]: (flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)}
        if cursor == 0:
            break
        c("DEL", f"lane{n}")
        n -= 3
    assert all(seen[b"lane%d" % n] == (1, n + 1) for n in range(60))
    assert b"string" not in seen


@pytest.mark.parametrize("glob, names", [("*", "ab abc b"), ("a*", "ab abc"), ("?", "b"), ("a?", "ab"), ("[^a]*", "b"), ("*[b-c]", "ab abc b"),
                                         ("a\\*", ""), ("", ""), ("*b*", "ab abc b"), ("[", "")])
def test_list_matches(c, glob, names):
    for n, name in enumerate(["ab", "abc", "b"]):
        c.push(name, n)
    cursor, flat = c("LANE.LIST", 0, "MATCH", glob)
    assert cursor == 0 and " ".join(sorted(f.decode() for f in flat[::3])) == names


def test_glob_that_would_take_for_ever(c):
    c.push("a" * 200, 1)
    assert c("LANE.LIST", 0, "MATCH", "a*" * 50 + "b") == [0, []]


def test_info_of_a_lane(c):
    seq = c.push("lane", 1, 2, 3)
    c.push("lane", 4, delay=60000)
    c.take("lane")
    i = c.info("lane")
    assert list(i) == ("length waiting delayed leased expiring bytes first-sequence next-sequence maxlen maxbytes order maxattempts dead created "
                       "oldest-age memory").split()
    assert (i["length"], i["waiting"], i["delayed"], i["leased"], i["bytes"]) == (4, 2, 1, 1, 20)
    assert i["first-sequence"] == seq[0] and i["next-sequence"] == seq[2] + 2
    assert i["order"] == b"SKIP" and i["created"] == 0 and 0 < i["memory"] < 8000
    with pytest.raises(ReplyError, match="^NOLANE nothing"):
        c.info("nothing")


def test_info_of_the_server(c):
    c.push("one", 1, 2)
    c.push("two", 3)
    c.take("one")
    i = c.info()
    assert list(i) == ("version grammar run-id node policy maxmemory used-memory lanes entries bytes leased sessions remembered settle-ms uptime-s "
                       "clock-ms loaded-ms").split()
    assert (i["grammar"], i["node"], i["policy"], i["lanes"], i["entries"], i["leased"]) == (1, b"mx1", b"noeviction", 2, 3, 1)
    assert i["run-id"] in c("INFO", "server") and len(i["run-id"]) == 40
    text = c("INFO", "lane_lanes").decode()
    assert "lane_entries:3" in text and "lane_node:mx1" in text


def test_totals_follow_all_that_happens(c):
    c.push("one", *range(10))
    c.take("one", 3)
    c("COPY", "one", "two")
    c("RENAME", "one", "three")
    c("LANE.ACK", "three", "IDS", 2, ident(0), ident(9))
    i = c.info()
    assert (i["lanes"], i["entries"], i["leased"]) == (2, 18, 0)
    c("DEL", "two")
    c("UNLINK", "three")
    i = c.info()
    assert (i["lanes"], i["entries"], i["bytes"], i["leased"]) == (0, 0, 0, 0)


def test_len(c):
    assert c("LANE.LEN", "nothing") == 0
    c.push("lane", 1, 2)
    assert c("LANE.LEN", "lane") == 2
