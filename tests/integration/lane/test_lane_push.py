"""LANE.CREATE and LANE.PUSH: answers, bounds, memory, sessions."""
import pytest

from support.lane_server import ASAN, LaneServer, ReplyError, ident

pytestmark = [pytest.mark.core, pytest.mark.check]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("push")) as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    client("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", "noeviction")
    yield client
    client("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", "noeviction", "lane.settle-ms", 5000)
    client.close()


_next = iter(range(1, 10**9))


def fresh():
    """Numbers nobody has used: the server remembers ids beyond FLUSHALL."""
    return next(_next)


def session():
    return f"s{fresh()}"


# ---- storing ----

def test_push_stores_in_order_with_rising_sequences(c):
    a, b, d = fresh(), fresh(), fresh()
    answers = c.push("lane", a, b) + c.push("lane", d)
    assert answers == sorted(answers) and all(isinstance(s, int) and s > 0 for s in answers)
    assert [e[:4] + e[5:] for e in c.read("lane")] == [[s, ident(n), 0, 0, b"m", b"body", "waiting"] for s, n in zip(answers, (a, b, d))]


def test_lane_appears_with_its_first_entry_and_vanishes_with_its_last(c):
    n = fresh()
    c.push("lane", n)
    assert c("EXISTS", "lane") == 1 and c("TYPE", "lane") == "dovelane1"
    c("LANE.ACK", "lane", "IDS", 1, ident(n))
    assert c("EXISTS", "lane") == 0


def test_created_lane_stays_when_it_is_empty(c):
    n = fresh()
    c("LANE.CREATE", "lane")
    c.push("lane", n)
    c("LANE.ACK", "lane", "UPTO", 2**62)
    assert c("EXISTS", "lane") == 1
    assert c("DEL", "lane") == 1


def test_sequences_of_a_lane_that_came_back_are_new(c):
    one, two = fresh(), fresh()
    first = c.push("lane", one)[0]
    c("LANE.ACK", "lane", "SEQS", 1, first)
    second = c.push("lane", two)[0]
    assert second > first
    assert c("LANE.ACK", "lane", "SEQS", 1, first) == [0, 1], "a late ack by sequence meets nothing"
    assert c("LANE.LEN", "lane") == 1


def test_entries_of_one_push_go_to_several_lanes(c):
    a, b, d = fresh(), fresh(), fresh()
    reply = c("LANE.PUSH", 2, "one", "two", "ENTRIES", 3, 1, ident(a), "", "x", 2, ident(b), "", "y", 1, ident(d), "", "z")
    assert reply[0] == 0 and len(reply[1]) == 3 and reply[2] == 0
    assert [e[6] for e in c.read("one")] == [b"x", b"z"] and [e[6] for e in c.read("two")] == [b"y"]


def test_same_key_named_twice_is_one_lane(c):
    a, b = fresh(), fresh()
    c("LANE.PUSH", 2, "one", "one", "ENTRIES", 2, 1, ident(a), "", "x", 2, ident(b), "", "y")
    assert c("LANE.LEN", "one") == 2


def test_id_the_lane_holds_is_done(c):
    n = fresh()
    c.push("lane", n)
    assert c.push("lane", n) == ["DONE"]
    m = fresh()
    assert c.push("lane", m, m)[1] == "DONE"
    assert c("LANE.LEN", "lane") == 2


def test_entries_without_id_have_no_idempotence(c):
    for _ in range(3):
        c("LANE.PUSH", 1, "lane", "ENTRIES", 1, 1, "", "", "x")
    entries = c.read("lane")
    assert [e[1] for e in entries] == [b""] * 3
    assert c("LANE.ACK", "lane", "SEQS", 2, entries[0][0], entries[2][0]) == [2, 0]


def test_binary_and_empty_values_come_back_as_they_were(c):
    body = bytes(range(256)) * 40
    raw_id = b"\0\r\n\xff" * 4
    c("LANE.PUSH", 1, "lane", "ENTRIES", 2, 1, raw_id, b"\0\1", body, 1, ident(fresh()), "", "")
    first, second = c.read("lane")
    assert first[1] == raw_id and first[5] == b"\0\1" and first[6] == body
    assert second[5] == b"" and second[6] == b""


def test_wrong_type_is_answered_per_entry(c):
    c("SET", "string", "x")
    a, b = fresh(), fresh()
    answers = c("LANE.PUSH", 2, "string", "lane", "ENTRIES", 2, 1, ident(a), "", "x", 2, ident(b), "", "y")[1]
    assert answers[0] == "WRONGTYPE" and answers[1] > 0
    assert c("LANE.PUSH", 1, "string", "ENTRIES", 0, "ACK", 1, 1, ident(a))[2] == 0
    assert c("GET", "string") == b"x"


def test_acks_ride_along_and_come_first(c):
    a, b = fresh(), fresh()
    c("LANE.CREATE", "lane", "MAXLEN", 1)
    c.push("lane", a)
    reply = c("LANE.PUSH", 1, "lane", "ENTRIES", 1, 1, ident(b), "", "x", "ACK", 1, 2, ident(a), ident(fresh()), "ACK", 1, 0)
    assert reply[1][0] > 0 and reply[2] == 1
    assert [e[1] for e in c.read("lane")] == [ident(b)]


def test_delay_keeps_the_place(c):
    a, b = fresh(), fresh()
    *_, info, early = c.pipe(c.pushing("lane", a, delay=60), c.pushing("lane", b), ["LANE.INFO", "lane"], ["LANE.TAKE", 1, "lane", "COUNT", 5])
    assert dict(zip(info[::2], info[1::2]))[b"delayed"] == 1 and c.given(early) == [b]
    import time
    time.sleep(0.1)
    assert c.ids("lane", 5) == [a]


# ---- bounds and memory ----

def test_maxlen_is_exact_and_counts_leased_and_delayed(c):
    a, b, d = fresh(), fresh(), fresh()
    c("LANE.CREATE", "lane", "MAXLEN", 3)
    c.push("lane", a)
    assert c.ids("lane") == [a]
    c.push("lane", b, delay=100000)
    answers = c.push("lane", d, fresh(), a)
    assert answers[0] > 0 and answers[1:] == ["FULL", "DONE"]
    c("LANE.ACK", "lane", "IDS", 1, ident(a))
    assert c.push("lane", fresh())[0] > 0
    assert c.push("lane", fresh()) == ["FULL"]


def test_maxbytes_is_exact_and_counts_meta_and_body(c):
    c("LANE.CREATE", "lane", "MAXBYTES", 10)
    assert c.push("lane", fresh(), meta=b"12345", body=b"123456") == ["FULL"]
    assert c.push("lane", fresh(), meta=b"12345", body=b"12345")[0] > 0
    assert c.push("lane", fresh(), meta=b"", body=b"1") == ["FULL"]
    assert c.push("lane", fresh(), meta=b"", body=b"")[0] > 0


def test_create_changes_only_what_is_named(c):
    c("LANE.CREATE", "lane", "MAXLEN", 7, "STRICT", "MAXATTEMPTS", 3, "DEAD", "dead")
    c("LANE.CREATE", "lane", "MAXBYTES", 9)
    i = c.info("lane")
    assert (i["maxlen"], i["maxbytes"], i["order"], i["maxattempts"], i["dead"], i["created"]) == (7, 9, b"STRICT", 3, b"dead", 1)
    c("LANE.CREATE", "lane", "MAXLEN", 0, "SKIP", "DEAD", "")
    i = c.info("lane")
    assert (i["maxlen"], i["order"], i["dead"]) == (0, b"SKIP", b"")


def test_above_maxmemory_pushes_are_refused_and_acks_pass(c):
    a, b, s = fresh(), fresh(), session()
    c.push("lane", a, b, meta=b"long", body=b"x" * 1000)
    c("CONFIG", "SET", "maxmemory", 1000)
    assert c.push("lane", fresh(), session=(s, 1)) == ["MEMORY"]
    assert c.push("lane", a, session=(s, 2)) == ["DONE"], "what is held is done, memory or not; the number before was used up"
    assert c("LANE.META", "lane", 1, ident(a), 1, "longer") == ["MEMORY"]
    assert c("LANE.META", "lane", 1, ident(a), 1, "m") == ["OK"], "a meta that does not grow passes"
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, "IDS", 1, ident(a)) == [1, 0, 0]
    assert c("LANE.MOVE", "lane", "other", "IDS", 1, ident(a)) == [1, 0, 0]
    assert c("LANE.ACK", "lane", "IDS", 1, ident(b)) == [1, 0]
    with pytest.raises(ReplyError, match="OOM"):
        c("SET", "x", "y")


def test_memory_is_looked_at_within_a_batch(c):
    used = int(next(line for line in c("INFO", "memory").decode().splitlines() if line.startswith("used_memory:")).split(":")[1])
    c("CONFIG", "SET", "maxmemory", used + 4_000_000)
    answers = []
    for _ in range(12):
        answers += c.push("lane", *[fresh() for _ in range(20)], body=b"x" * 50000)
    stored = [a for a in answers if a != "MEMORY"]
    assert "MEMORY" in answers and 0 < len(stored) < 100
    c("CONFIG", "SET", "maxmemory", 0)


def test_policy_other_than_noeviction_stores_nothing_and_is_named(server, c):
    c("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
    n = fresh()
    assert c.push("lane", n) == ["POLICY maxmemory-policy is not noeviction"]
    assert server.log_says("nothing is stored: maxmemory is set and maxmemory-policy is not noeviction")
    assert c("EXISTS", "lane") == 0
    c("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert c.push("lane", n)[0] > 0


# ---- sessions ----

def test_next_number_is_executed_and_repeat_gets_the_same_reply(c):
    s, n = session(), fresh()
    words = ["LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 2, 1, ident(n), "", "x", 1, ident(n), "", "x"]
    first = c(*words)
    assert first[0] == 1 and first[1][1] == "DONE"
    c("LANE.ACK", "lane", "IDS", 1, ident(n))
    assert c(*words) == first
    assert c("EXISTS", "lane") == 0, "a repeat executes nothing"


def test_number_is_used_up_whatever_the_answers(c):
    s = session()
    c("LANE.CREATE", "lane", "MAXLEN", 1)
    c.push("lane", fresh(), session=(s, 1))
    assert c.push("lane", fresh(), session=(s, 2)) == ["FULL"]
    c("LANE.CREATE", "lane", "MAXLEN", 9)
    assert c.push("lane", fresh(), session=(s, 2)) == ["FULL"], "the reply of then"
    assert c.push("lane", fresh(), session=(s, 3))[0] > 0


def test_gap_is_refused_and_names_the_number_expected(c):
    s = session()
    with pytest.raises(ReplyError, match=f"^TXNGAP session {s} txn 2, expected 1$"):
        c.push("lane", fresh(), session=(s, 2))
    c.push("lane", fresh(), session=(s, 1))
    with pytest.raises(ReplyError, match=f"^TXNGAP session {s} txn 5001, expected 2$"):
        c.push("lane", fresh(), session=(s, 5001))
    assert c("LANE.LEN", "lane") == 1


def test_gap_refuses_all_that_is_pipelined_behind_it(c):
    s = session()
    n = [fresh() for _ in range(4)]
    replies = c.pipe(*[["LANE.PUSH", 1, "lane", "SESSION", s, t, "ENTRIES", 1, 1, ident(i), "", ""] for t, i in zip((1, 3, 4, 2), n)])
    assert isinstance(replies[1], ReplyError) and isinstance(replies[2], ReplyError)
    assert [e[1] for e in c.read("lane")] == [ident(n[0]), ident(n[3])]


def test_the_last_1024_replies_are_remembered(c):
    s = session()
    replies = c.pipe(*[["LANE.PUSH", 1, "lane", "SESSION", s, t, "ENTRIES", 1, 1, ident(fresh()), "", ""] for t in range(1, 1200)])
    for t in (176, 177, 500, 1199):
        assert c("LANE.PUSH", 1, "lane", "SESSION", s, t, "ENTRIES", 0) == replies[t - 1]
    with pytest.raises(ReplyError, match=f"^TXNOLD session {s} txn 175 is forgotten, oldest remembered 176$"):
        c("LANE.PUSH", 1, "lane", "SESSION", s, 175, "ENTRIES", 0)


def test_entries_0_uses_the_number_and_does_nothing(c):
    s = session()
    assert c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 0) == [1, [], 0]
    assert c("EXISTS", "lane") == 0
    assert c.push("lane", fresh(), session=(s, 2))[0] > 0


def test_bad_grammar_does_not_use_the_number(c):
    s = session()
    for words in (["ENTRIES", 1, 1, "short id", "", ""], ["ENTRIES", 2, 1, ident(1), "", ""], ["ENTRIES", 1, 2, ident(1), "", ""],
                  ["ENTRIES", 0, "ACK", 1, 1, "short"], ["ENTRIES", 0, "what"], ["DELAY", -1, "ENTRIES", 0], ["ENTRY", 1]):
        with pytest.raises(ReplyError, match="^ERR (syntax|value): .* (expected|allowed|follow)"):
            c("LANE.PUSH", 1, "lane", "SESSION", s, 1, *words)
    assert c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 0) == [1, [], 0]


def test_number_runs_over_all_lanes_and_outlives_them(c):
    s, a, b = session(), fresh(), fresh()
    first = c.push("one", a, session=(s, 1))
    c("DEL", "one")
    assert c.push("one", a, session=(s, 1)) == first and c("EXISTS", "one") == 0
    assert c.push("two", b, session=(s, 2))[0] > 0


def test_longest_unused_session_goes_first(c):
    c("CONFIG", "SET", "lane.max-sessions", 3)
    names = [session() for _ in range(4)]
    for s in names:
        c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 0)
    assert c.info()["sessions"] == 3
    with pytest.raises(ReplyError, match="TXNGAP .* expected 1"):
        c("LANE.PUSH", 1, "lane", "SESSION", names[0], 2, "ENTRIES", 0)
    assert c("LANE.PUSH", 1, "lane", "SESSION", names[3], 2, "ENTRIES", 0)[0] == 2
    c("CONFIG", "SET", "lane.max-sessions", 1024)


def test_session_names_have_1_to_64_bytes(c):
    assert c("LANE.PUSH", 1, "lane", "SESSION", b"\xff\0" * 32, 1, "ENTRIES", 0)[0] == 1
    for bad in ("", "x" * 65):
        with pytest.raises(ReplyError, match="^ERR value: session"):
            c("LANE.PUSH", 1, "lane", "SESSION", bad, 1, "ENTRIES", 0)


def test_push_in_multi_and_in_lua(c):
    s, a, b = session(), fresh(), fresh()
    c("MULTI")
    c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 1, 1, ident(a), "", "x")
    c("LANE.PUSH", 1, "lane", "SESSION", s, 3, "ENTRIES", 0)
    done = c("EXEC")
    assert done[0][1][0] > 0 and isinstance(done[1], ReplyError)
    assert c("EVAL", "return redis.call('LANE.PUSH', 1, KEYS[1], 'SESSION', ARGV[1], 2, 'ENTRIES', 1, 1, ARGV[2], '', 'y')", 1, "lane",
             s, ident(b))[1][0] > 0
    assert c("LANE.LEN", "lane") == 2


def test_largest_meta_is_1_mib(c):
    assert c.push("lane", fresh(), meta=b"m" * 2**20)[0] > 0
    with pytest.raises(ReplyError, match="^ERR value: length of a meta"):
        c.push("lane", fresh(), meta=b"m" * (2**20 + 1))


@pytest.mark.skipif(ASAN, reason="a matter of speed")
def test_large_bodies(c):
    body = b"B" * 30_000_000
    c.push("lane", fresh(), body=body)
    assert c.take("lane")[1][0][6] == body
