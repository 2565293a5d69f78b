"""LANE.TAKE, LANE.NACK, LANE.EXTEND: leases, order, blocking, dead letters."""
import time

import pytest

from support.lane_server import LaneServer, ReplyError, SLOW, ident, number, wait_for

pytestmark = [pytest.mark.core, pytest.mark.check]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("take")) as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    client("CONFIG", "SET", "lane.settle-ms", 0)  # numbers are used again from test to test
    yield client
    server.close_clients()


# ---- what is given ----

def test_entry_has_all_its_parts(c):
    seq = c.push("lane", 1, meta=b"meta", body=b"the body")[0]
    key, lease, entries = c("LANE.TAKE", 1, "lane")[0]
    assert key == b"lane" and lease > 0
    [entry] = entries
    age = entry.pop(4)
    assert entry == [seq, ident(1), 0, 0, b"meta", b"the body"] and 0 <= age < 5000 * SLOW


def test_taken_entries_are_not_given_again(c):
    c.push("lane", 1, 2, 3)
    assert c.ids("lane", 2) == [1, 2]
    assert c.ids("lane", 2) == [3]
    assert c("LANE.TAKE", 1, "lane") == []
    assert c("LANE.TAKE", 1, "nothing") == []


def test_lane_after_lane(c):
    c.push("one", 1, 2)
    c.push("three", 3, 4, 5)
    lanes = c("LANE.TAKE", 3, "one", "two", "three", "COUNT", 4)
    assert [(name, [number(e[1]) for e in entries]) for name, _, entries in lanes] == [(b"one", [1, 2]), (b"three", [3, 4])]
    assert lanes[0][1] != lanes[1][1]


def test_bytes_stop_before_the_entry_that_would_be_too_much(c):
    for n in range(4):
        c.push("lane", n, meta=b"x" * 10, body=b"y" * 90)
    assert c.ids("lane", 9, "BYTES", 299) == [0, 1]
    assert c.ids("lane", 9, "BYTES", 1) == [2], "the first one is always given"
    assert c.ids("lane", 9, "BYTES", 100) == [3]


def test_bytes_count_over_all_lanes(c):
    c.push("one", 1, meta=b"", body=b"x" * 60)
    c.push("two", 2, meta=b"", body=b"x" * 60)
    c.push("three", 3, meta=b"", body=b"x")
    lanes = c("LANE.TAKE", 3, "one", "two", "three", "COUNT", 9, "BYTES", 100)
    assert [name for name, _, _ in lanes] == [b"one"]


def test_wrong_type_is_an_error_and_nothing_is_leased(c):
    c.push("lane", 1)
    c("SET", "string", "x")
    with pytest.raises(ReplyError, match="^WRONGTYPE"):
        c("LANE.TAKE", 2, "lane", "string")
    assert c.info("lane")["leased"] == 0


@pytest.mark.parametrize("words", [["COUNT", 0], ["LEASE", 0], ["BLOCK", -1], ["BYTES", "x"], ["WHAT"], ["COUNT"]])
def test_bad_options(c, words):
    with pytest.raises(ReplyError, match="^ERR (syntax|value): "):
        c("LANE.TAKE", 1, "lane", *words)


# ---- order ----

def test_nacked_entry_keeps_its_place(c):
    c.push("lane", 1, 2, 3)
    lease, _ = c.take("lane", 2)
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, "IDS", 1, ident(1)) == [1, 0, 0]
    assert c.ids("lane", 9) == [1, 3]


def test_skip_lane_steps_over_delayed_and_leased(c):
    c.push("lane", 1, 2, 3)
    lease, _ = c.take("lane")
    c("LANE.NACK", "lane", lease, "RETRY", 60000, "IDS", 1, ident(1))
    assert c.ids("lane") == [2] and c.ids("lane") == [3]


def test_strict_lane_gives_nothing_behind_a_leased_entry(c):
    c("LANE.CREATE", "lane", "STRICT")
    c.push("lane", 1, 2)
    assert c.ids("lane") == [1] and c.ids("lane") == []
    c("LANE.ACK", "lane", "IDS", 1, ident(1))
    assert c.ids("lane") == [2]


def test_strict_lane_gives_nothing_behind_a_delayed_entry(c):
    c("LANE.CREATE", "lane", "STRICT")
    *_, early = c.pipe(c.pushing("lane", 1, delay=80 * SLOW), c.pushing("lane", 2), ["LANE.TAKE", 1, "lane", "COUNT", 9])
    assert early == []
    time.sleep(0.1 * SLOW)
    assert c.ids("lane", 9) == [1, 2]


# ---- giving back ----

def test_retry_counts_an_attempt_and_keep_does_not(c):
    c.push("lane", 1)
    for how, attempts in (("RETRY", 1), ("KEEP", 1), ("RETRY", 2)):
        lease, _ = c.take("lane")
        c("LANE.NACK", "lane", lease, how, 0, "UPTO", 2**62)
        assert c.read("lane")[0][3] == attempts


def test_nack_with_delay_comes_back_when_due(c):
    c.push("lane", 1)
    lease, _ = c.take("lane")
    _, entries, early = c.pipe(["LANE.NACK", "lane", lease, "KEEP", 60 * SLOW, "IDS", 1, ident(1)], ["LANE.READ", "lane", 0], ["LANE.TAKE", 1, "lane"])
    assert entries[1][0][7] == "delayed" and early == []
    assert wait_for(lambda: c.ids("lane")) == [1]


@pytest.mark.parametrize("selector", ["UPTO", "RANGES", "SEQS", "IDS"])
def test_nack_by_every_selector(c, selector):
    seq = c.push("lane", 1, 2, 3, 4)
    lease, _ = c.take("lane", 3)
    words = {"UPTO": [seq[1]], "RANGES": [2, seq[0], seq[0], seq[1], seq[1]], "SEQS": [3, seq[0], seq[1], seq[3]],
             "IDS": [3, ident(1), ident(2), ident(4)]}[selector]
    absent = 1 if selector in ("SEQS", "IDS") else 0
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, selector, *words) == [2, 0, absent]
    assert c.ids("lane", 9) == [1, 2, 4]


def test_nack_of_an_ended_or_foreign_lease_is_ignored(c):
    c.push("lane", 1, 2)
    old, _ = c.take("lane")
    c("LANE.NACK", "lane", old, "RETRY", 0, "IDS", 1, ident(1))
    new, _ = c.take("lane")
    assert c("LANE.NACK", "lane", old, "RETRY", 0, "IDS", 1, ident(1)) == [0, 0, 1]
    assert c("LANE.NACK", "lane", old, "RETRY", 0, "UPTO", 2**62) == [0, 0, 0]
    assert c("LANE.NACK", "nothing", new, "RETRY", 0, "IDS", 1, ident(1)) == [0, 0, 1]
    assert c.info("lane")["leased"] == 1


def test_fatal_without_dead_letter_lane_lets_go(c):
    c("CONFIG", "SET", "lane.settle-ms", 5000)
    c.push("lane", 901)
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "FATAL", 0, "IDS", 1, ident(901)) == [0, 1, 0]
    assert c("EXISTS", "lane") == 0
    assert c.push("lane", 901) == ["DONE"]


def test_fatal_goes_to_the_dead_letter_lane(c):
    c("LANE.CREATE", "lane", "DEAD", "dead")
    c.push("lane", 1, 2, meta=b"why")
    c("LANE.META", "lane", 1, ident(1), 5, "result")
    lease, _ = c.take("lane", 2)
    assert c("LANE.NACK", "lane", lease, "FATAL", 0, "IDS", 1, ident(1)) == [0, 1, 0]
    [dead] = c.read("dead")
    assert dead[1:4] == [ident(1), 5, 0] and dead[5:] == [b"result", b"body", "waiting"]
    assert c("LANE.LEN", "lane") == 1


def test_maxattempts_kills(c):
    c("LANE.CREATE", "lane", "MAXATTEMPTS", 2, "DEAD", "dead")
    c("LANE.CREATE", "dead", "MAXLEN", 0)
    c.push("lane", 1)
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, "IDS", 1, ident(1)) == [1, 0, 0]
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "KEEP", 0, "IDS", 1, ident(1)) == [1, 0, 0]
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, "IDS", 1, ident(1)) == [0, 1, 0]
    assert c.read("dead")[0][3] == 2


def test_moves_to_a_full_dead_letter_lane_are_not_refused(c):
    c("LANE.CREATE", "dead", "MAXLEN", 1, "MAXBYTES", 1)
    c("LANE.CREATE", "lane", "DEAD", "dead")
    c.push("lane", 1, 2, 3)
    lease, _ = c.take("lane", 3)
    assert c("LANE.NACK", "lane", lease, "FATAL", 0, "UPTO", 2**62) == [0, 3, 0]
    assert c("LANE.LEN", "dead") == 3


def test_entry_stays_when_the_dead_letter_key_is_no_lane(c):
    c("LANE.CREATE", "lane", "DEAD", "dead")
    c("SET", "dead", "a string")
    c.push("lane", 1)
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "FATAL", 0, "IDS", 1, ident(1)) == [1, 0, 0]
    assert c.ids("lane") == [1]


def test_lane_that_is_its_own_dead_letter_lane_after_a_rename_keeps_its_mail(c):
    with pytest.raises(ReplyError, match="^ERR value: DEAD"):
        c("LANE.CREATE", "lane", "DEAD", "lane")
    c("LANE.CREATE", "lane", "DEAD", "dead")
    c("RENAME", "lane", "dead")
    c.push("dead", 1)
    lease, _ = c.take("dead")
    assert c("LANE.NACK", "dead", lease, "FATAL", 0, "IDS", 1, ident(1)) == [1, 0, 0]
    assert c("LANE.LEN", "dead") == 1


# ---- the end of a lease ----

def test_lease_ends_with_its_connection_and_counts(server, c):
    c.push("lane", 1, 2, 3)
    other = server.client()
    other.take("lane", 2)
    c("CLIENT", "KILL", "ID", other("CLIENT", "ID"))
    assert wait_for(lambda: c.info("lane")["leased"] == 0)
    assert [e[3] for e in c.read("lane")] == [1, 1, 0]
    assert c.ids("lane", 9) == [1, 2, 3]


def test_only_the_leases_of_that_connection_end(server, c):
    c.push("lane", 1, 2, 3)
    c.push("other", 4)
    one, two = server.client(), server.client()
    one.take("lane"), two.take("lane"), one.take("other"), two.take("lane")
    one.close()
    wait_for(lambda: c.info()["leased"] == 2)
    assert [e[7] for e in c.read("lane")] == ["waiting", "leased", "leased"]


def test_lease_over_by_time_counts_and_wakes_a_waiting_client(server, c):
    c.push("lane", 1)
    c.take("lane", 1, "LEASE", 80 * SLOW)
    waiting = server.client()
    entry = waiting("LANE.TAKE", 1, "lane", "BLOCK", 5000 * SLOW)[0][2][0]
    assert entry[1] == ident(1) and entry[3] == 1


def test_default_lease_is_the_setting(c):
    c("CONFIG", "SET", "lane.lease-ms", 50 * SLOW)
    c.push("lane", 1)
    c.take("lane")
    c("CONFIG", "SET", "lane.lease-ms", 60000)
    assert wait_for(lambda: c.info("lane")["leased"] == 0)


def test_extend_makes_a_lease_last(c):
    seq = c.push("lane", 1, 2)
    lease, _ = c.take("lane", 2, "LEASE", 1000 * SLOW)
    assert c("LANE.EXTEND", "lane", lease, 60000, "SEQS", 2, seq[0], 999) == [1, 1]
    wait_for(lambda: c.info("lane")["leased"] == 1)
    assert [e[7] for e in c.read("lane")] == ["leased", "waiting"]
    assert c("LANE.EXTEND", "lane", lease, 0, "UPTO", seq[1]) == [1, 0]
    assert wait_for(lambda: c.info("lane")["leased"] == 0)


def test_lost_leases_reach_maxattempts(server, c):
    c("LANE.CREATE", "lane", "MAXATTEMPTS", 1, "DEAD", "dead")
    c.push("lane", 1)
    other = server.client()
    other.take("lane")
    other.close()
    wait_for(lambda: c("LANE.LEN", "dead") == 1)
    assert c("LANE.LEN", "lane") == 0


def test_ack_of_a_leased_entry_ends_it_for_all(server, c):
    c.push("lane", 1, 2)
    other = server.client()
    other.take("lane", 2)
    assert c("LANE.ACK", "lane", "IDS", 1, ident(1)) == [1, 0]
    other.close()
    wait_for(lambda: c.info("lane")["leased"] == 0)
    assert [e[1] for e in c.read("lane")] == [ident(2)]


def test_many_leases_of_one_connection(server, c):
    other = server.client()
    for lane in range(50):
        c.push(f"lane{lane}", *range(lane * 100, lane * 100 + 100))
        other.pipe(*[["LANE.TAKE", 1, f"lane{lane}", "COUNT", 7]] * 15)
    assert c.info()["leased"] == 5000
    other.close()
    wait_for(lambda: c.info()["leased"] == 0)
    assert c.info()["entries"] == 5000


# ---- blocking ----

def test_blocked_take_is_served_by_a_push(server, c):
    waiting = server.client()
    waiting.send("LANE.TAKE", 2, "nothing", "lane", "BLOCK", 0)
    assert waiting.silent(0.05)
    c.push("lane", 1)
    assert waiting.reply()[0][0] == b"lane"
    assert c.info("lane")["leased"] == 1


def test_blocked_take_runs_out_with_an_empty_array(c):
    start = time.monotonic()
    assert c("LANE.TAKE", 1, "lane", "BLOCK", 80) == []
    assert time.monotonic() - start >= 0.07


def test_blocked_clients_are_served_in_turn(server, c):
    waiting = [server.client() for _ in range(3)]
    for w in waiting:
        w.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
        w.silent(0.02)
    c.push("lane", 1, 2)
    assert [number(w.reply()[0][2][0][1]) for w in waiting[:2]] == [1, 2]
    assert waiting[2].silent(0.05)
    c.push("lane", 3)
    assert number(waiting[2].reply()[0][2][0][1]) == 3


@pytest.mark.parametrize("how", ["due", "nack", "ack in strict order", "disconnect", "skip", "move", "copy", "rename", "restore", "swapdb"])
def test_blocked_take_is_served_when_something_becomes_takeable(server, c, how):
    waiting, other = server.client(), server.client()
    lease, begin = None, time.monotonic()
    if how == "due":
        c.push("lane", 1, delay=100 * SLOW)
    elif how in ("nack", "disconnect"):
        c.push("lane", 1)
        lease, _ = other.take("lane")
    elif how in ("ack in strict order", "skip"):
        c("LANE.CREATE", "lane", "STRICT")
        c.push("lane", 7, 1)
        other.take("lane")
    elif how == "swapdb":
        c("SELECT", 1)
        c.push("lane", 1)
    else:
        c.push("source", 1)
    waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
    # It is due by itself, before that on a busy machine.
    assert waiting.silent(0.03) or (how == "due" and time.monotonic() - begin > 0.09 * SLOW)
    if how == "nack":
        c("LANE.NACK", "lane", lease, "RETRY", 0, "UPTO", 2**62)
    elif how == "disconnect":
        other.close()
    elif how == "ack in strict order":
        c("LANE.ACK", "lane", "IDS", 1, ident(7))
    elif how == "skip":
        c("LANE.CREATE", "lane", "SKIP")
    elif how == "move":
        c("LANE.MOVE", "source", "lane", "UPTO", 2**62)
    elif how == "copy":
        c("COPY", "source", "lane")
    elif how == "rename":
        c("RENAME", "source", "lane")
    elif how == "restore":
        c("RESTORE", "lane", 0, c("DUMP", "source"))
    elif how == "swapdb":
        c("SWAPDB", 0, 1)
    assert number(waiting.reply()[0][2][0][1]) == 1


def test_nothing_is_leased_to_a_client_that_went_away_while_blocked(server, c):
    waiting = server.client()
    waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
    wait_for(lambda: b"blocked_clients:1\r" in c("INFO", "clients"))
    waiting.close()
    wait_for(lambda: b"blocked_clients:0\r" in c("INFO", "clients"))
    c.push("lane", 1)
    assert c.info("lane")["leased"] == 0


def test_client_unblock(server, c):
    waiting = server.client()
    me = waiting("CLIENT", "ID")
    for how, expected in (("TIMEOUT", []), ("ERROR", ReplyError)):
        waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
        waiting.silent(0.03)
        assert c("CLIENT", "UNBLOCK", me, how) == 1
        answer = waiting.reply()
        assert answer == expected or isinstance(answer, ReplyError)
    c.push("lane", 1)
    assert waiting.ids("lane") == [1]


def test_block_is_ignored_in_multi_and_lua(c):
    c("MULTI")
    c("LANE.TAKE", 1, "lane", "BLOCK", 0)
    c("LANE.READY", 0, "BLOCK", 0)
    assert c("EXEC")[0] == []
    assert c("EVAL", "return redis.call('LANE.TAKE', 1, KEYS[1], 'BLOCK', 0)", 1, "lane") == []
    assert len(c("EVAL", "return redis.call('LANE.READY', 0, 'BLOCK', 0)", 0)) == 2


def test_take_in_multi_and_lua_leases(c):
    c.push("lane", 1, 2)
    c("MULTI")
    c("LANE.TAKE", 1, "lane")
    assert number(c("EXEC")[0][0][2][0][1]) == 1
    assert number(c("EVAL", "return redis.call('LANE.TAKE', 1, KEYS[1])", 1, "lane")[0][2][0][1]) == 2


def test_key_that_turns_into_a_string_under_a_blocked_take(server, c):
    waiting = server.client()
    c("LANE.CREATE", "lane")
    waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
    waiting.silent(0.03)
    c("SET", "lane", "x")
    assert waiting.silent(0.03)
    c("DEL", "lane")
    c.push("lane", 1)
    assert number(waiting.reply()[0][2][0][1]) == 1


def test_push_and_ack_in_one_pipeline_with_a_blocked_taker(server, c):
    """Redis serves blocked clients between two commands of a pipeline: the ack meets a leased entry."""
    waiting = server.client()
    waiting.send("LANE.TAKE", 1, "lane", "BLOCK", 0)
    waiting.silent(0.03)
    c.pipe(["LANE.PUSH", 1, "lane", "ENTRIES", 1, 1, ident(1), "", "x"], ["LANE.ACK", "lane", "IDS", 1, ident(1)])
    assert number(waiting.reply()[0][2][0][1]) == 1
    assert c("EXISTS", "lane") == 0
