"""LANE.ACK, LANE.REVOKE, LANE.META, and what the server let go and remembers."""
import time

import pytest

from support.lane_server import LaneServer, ReplyError, SLOW, ident, wait_for

pytestmark = [pytest.mark.core, pytest.mark.check]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("ack")) as s:
        yield s


_turn = iter(range(1, 10**6))


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    client("CONFIG", "SET", "lane.settle-ms", 60000)
    client.lane = f"lane{next(_turn)}"  # memory of ids is per lane name
    yield client
    server.close_clients()


# ---- selectors ----

def test_ack_upto(c):
    seq = c.push(c.lane, 1, 2, 3, 4)
    c.take(c.lane, 2)
    assert c("LANE.ACK", c.lane, "UPTO", seq[2]) == [3, 0]
    assert [e[0] for e in c.read(c.lane)] == [seq[3]]
    assert c("LANE.ACK", c.lane, "UPTO", seq[2]) == [0, 0]


def test_ack_ranges(c):
    seq = c.push(c.lane, *range(10))
    assert c("LANE.ACK", c.lane, "RANGES", 3, seq[1], seq[2], seq[8], 2**62, 5, 1) == [4, 0]
    assert [e[0] for e in c.read(c.lane)] == seq[:1] + seq[3:8]


def test_ack_seqs_and_ids(c):
    seq = c.push(c.lane, 1, 2, 3)
    assert c("LANE.ACK", c.lane, "SEQS", 3, seq[0], seq[0], 2**62) == [1, 2]
    assert c("LANE.ACK", c.lane, "IDS", 2, ident(3), ident(9)) == [1, 1]
    assert [e[0] for e in c.read(c.lane)] == [seq[1]]


def test_ack_of_a_lane_that_is_not_there(c):
    assert c("LANE.ACK", c.lane, "UPTO", 9) == [0, 0]
    assert c("LANE.ACK", c.lane, "SEQS", 1, 9) == [0, 1]
    assert c("EXISTS", c.lane) == 0


@pytest.mark.parametrize("words", [["UPTO"], ["UPTO", "x"], ["SEQS", 2, 1], ["IDS", 1, "short"], ["RANGES", 1, 1], ["WHAT", 1],
                                   ["UPTO", 1, 2], ["SEQS", -1], ["SEQS", 2**40], ["UPTO", 2**63]])
def test_bad_selectors(c, words):
    c.push(c.lane, 1)
    with pytest.raises(ReplyError, match="^ERR "):
        c("LANE.ACK", c.lane, *words)
    assert c("LANE.LEN", c.lane) == 1


def test_wrong_type(c):
    c("SET", c.lane, "x")
    for words in (["LANE.ACK", c.lane, "UPTO", 1], ["LANE.REVOKE", c.lane, ident(1)], ["LANE.META", c.lane, 1, ident(1), 1, ""],
                  ["LANE.NACK", c.lane, 1, "RETRY", 0, "UPTO", 1], ["LANE.EXTEND", c.lane, 1, 1, "UPTO", 1], ["LANE.READ", c.lane, 0],
                  ["LANE.GET", c.lane, "UPTO", 1], ["LANE.IDS", c.lane, 0], ["LANE.LEN", c.lane], ["LANE.INFO", c.lane],
                  ["LANE.RESET", c.lane], ["LANE.CREATE", c.lane], ["LANE.MOVE", c.lane, "x", "UPTO", 1], ["LANE.MOVE", "x", c.lane, "UPTO", 1]):
        with pytest.raises(ReplyError, match="^WRONGTYPE"):
            c(*words)


# ---- let go, remembered ----

def test_ack_that_overtakes_its_push(c):
    assert c("LANE.ACK", c.lane, "IDS", 1, ident(1)) == [0, 1]
    assert c.push(c.lane, 1) == ["DONE"]
    assert c("EXISTS", c.lane) == 0
    assert c.push("other", 1)[0] > 0, "remembered per lane"


def test_ack_part_that_overtakes_its_push(c):
    c("LANE.PUSH", 1, c.lane, "ENTRIES", 0, "ACK", 1, 1, ident(1))
    assert c.push(c.lane, 1) == ["DONE"]


@pytest.mark.parametrize("by", ["UPTO", "RANGES", "SEQS", "IDS"])
def test_acked_id_is_done_within_settle(c, by):
    [seq] = c.push(c.lane, 1)
    c("LANE.ACK", c.lane, by, *{"UPTO": [seq], "RANGES": [1, seq, seq], "SEQS": [1, seq], "IDS": [1, ident(1)]}[by])
    assert c.push(c.lane, 1) == ["DONE"]


def test_memory_ends_with_settle(c):
    c("CONFIG", "SET", "lane.settle-ms", 150 * SLOW)
    *_, early = c.pipe(["LANE.ACK", c.lane, "IDS", 1, ident(1)], ["LANE.REVOKE", c.lane, ident(2)], c.pushing(c.lane, 1, 2))
    assert early[1] == ["DONE", "REVOKED"]
    time.sleep(0.2 * SLOW)
    assert all(isinstance(a, int) for a in c.push(c.lane, 1, 2))
    assert c.info()["remembered"] == 0


def test_memory_of_many_is_right_and_goes_away(c):
    c("CONFIG", "SET", "lane.settle-ms", 3000 * SLOW)
    for base in range(0, 20000, 1000):
        c("LANE.ACK", c.lane, "IDS", 1000, *[ident(n) for n in range(base, base + 1000)])
    assert c.info()["remembered"] >= 20000
    assert c.push(c.lane, 0, 777, 19999, 20000)[:3] == ["DONE"] * 3
    c("CONFIG", "SET", "lane.settle-ms", 1)
    wait_for(lambda: c.info()["remembered"] == 0)
    assert c.push(c.lane, 777)[0] > 0


# ---- REVOKE ----

def test_revoke_of_a_waiting_entry_removes_it(c):
    c.push(c.lane, 1, 2)
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["REMOVED"]
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["REMOVED"], "was revoked before"
    assert c.push(c.lane, 1) == ["REVOKED"]


def test_revoke_before_the_push(c):
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["ABSENT"]
    assert c.push(c.lane, 1) == ["REVOKED"]
    assert c("EXISTS", c.lane) == 0


def test_revoke_of_what_was_acked_is_gone(c):
    c.push(c.lane, 1)
    c("LANE.ACK", c.lane, "IDS", 2, ident(1), ident(2))
    assert c("LANE.REVOKE", c.lane, ident(1), ident(2)) == ["GONE", "GONE"]
    assert c.push(c.lane, 1, 2) == ["DONE", "DONE"]


@pytest.mark.parametrize("end", ["nack", "keep", "delay", "disconnect", "time", "fatal"])
def test_revoked_while_leased_is_let_go_when_the_lease_ends(server, c, end):
    c("LANE.CREATE", c.lane, "DEAD", "dead")
    c.push(c.lane, 1)
    other = server.client()
    revoke = ["LANE.REVOKE", c.lane, ident(1)]
    took, *revoked = other.pipe(["LANE.TAKE", 1, c.lane, "LEASE", 100 * SLOW if end == "time" else 60000], revoke, revoke)
    lease = took[0][1]
    assert revoked == [["LEASED"]] * 2
    if end == "disconnect":
        other.close()
    elif end != "time":
        how = {"nack": "RETRY", "keep": "KEEP", "delay": "RETRY", "fatal": "FATAL"}[end]
        assert c("LANE.NACK", c.lane, lease, how, 1000 if end == "delay" else 0, "IDS", 1, ident(1)) == [0, 1, 0]
    wait_for(lambda: c("LANE.LEN", c.lane) == 0)
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["REMOVED"]
    assert c.push(c.lane, 1) == ["REVOKED"]
    assert c("EXISTS", "dead") == 0


def test_push_of_what_is_revoked_while_leased_is_no_copy(c):
    c.push(c.lane, 1)
    c.take(c.lane)
    assert c.push(c.lane, 1) == ["DONE"]
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["LEASED"]
    assert c.push(c.lane, 1) == ["REVOKED"]


def test_revoked_while_leased_and_then_acked_is_gone(c):
    c.push(c.lane, 1)
    c.take(c.lane)
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["LEASED"]
    assert c("LANE.ACK", c.lane, "IDS", 1, ident(1)) == [1, 0]
    assert c("LANE.REVOKE", c.lane, ident(1)) == ["GONE"]


def test_moved_id_is_done_for_a_push_and_not_gone_for_a_revoke(c):
    c.push(c.lane, 1, 2)
    c("LANE.MOVE", c.lane, "other", "UPTO", 2**62)
    assert c.push(c.lane, 1) == ["DONE"]
    assert c("LANE.REVOKE", c.lane, ident(2)) == ["ABSENT"], "it was not delivered; nobody may think so"


def test_a_move_that_comes_too_late_moves_nothing(c):
    c.push(c.lane, 1, 2)
    words = [word.decode() if isinstance(word, bytes) else word for word in c("LANE.INFO")]
    now = int(dict(zip(words[::2], words[1::2]))["clock-ms"])
    with pytest.raises(ReplyError, match="^LATE .*nothing was moved"):
        c("LANE.MOVE", c.lane, "other", "BEFORE", now, "UPTO", 2**62)
    assert c("LANE.LEN", c.lane) == 2 and c("EXISTS", "other") == 0
    assert c("LANE.MOVE", c.lane, "other", "BEFORE", now + 3600000, "UPTO", 2**62) == [2, 0, 0]
    for wrong in (["BEFORE"], ["BEFORE", -1, "UPTO", 1], ["BEFORE", 1]):
        with pytest.raises(ReplyError, match="^ERR"):
            c("LANE.MOVE", c.lane, "other", *wrong)


def test_reset_removes_all_and_remembers_nothing(c):
    c("LANE.CREATE", c.lane, "MAXLEN", 5)
    c.push(c.lane, 1, 2, 3)
    c.take(c.lane)
    assert c("LANE.RESET", c.lane) == 3
    assert c.info(c.lane)["maxlen"] == 5
    assert c.push(c.lane, 1)[0] > 0
    assert c("LANE.RESET", "nothing") == 0


# ---- META ----

def test_meta_takes_only_higher_revisions(c):
    c.push(c.lane, 1, 2)
    assert c("LANE.META", c.lane, 3, ident(1), 3, "three", ident(2), 0, "x", ident(9), 1, "x") == ["OK", "STALE", "ABSENT"]
    assert c("LANE.META", c.lane, 2, ident(1), 3, "again", ident(1), 2, "older") == ["STALE", "STALE"]
    entry = c.read(c.lane)[0]
    assert entry[2] == 3 and entry[5] == b"three" and entry[6] == b"body"


def test_meta_works_in_any_state_and_keeps_the_lease(c):
    c.push(c.lane, 1)
    c.push(c.lane, 2, delay=60000)
    c.take(c.lane)
    assert c("LANE.META", c.lane, 2, ident(1), 1, "a", ident(2), 1, "b") == ["OK", "OK"]
    assert [(e[5], e[7]) for e in c.read(c.lane)] == [(b"a", "leased"), (b"b", "delayed")]


def test_meta_that_would_exceed_maxbytes_is_full(c):
    c("LANE.CREATE", c.lane, "MAXBYTES", 10)
    c.push(c.lane, 1, meta=b"12", body=b"12345678")
    assert c("LANE.META", c.lane, 1, ident(1), 1, "123") == ["FULL"]
    assert c("LANE.META", c.lane, 1, ident(1), 1, "12") == ["OK"]
    assert c.info(c.lane)["bytes"] == 10
    assert c("LANE.META", c.lane, 1, ident(1), 2, "") == ["OK"]
    assert c.info(c.lane)["bytes"] == 8


@pytest.mark.parametrize("words", [[0], [1, ident(1), 1], [1, b"short", 1, ""], [1, ident(1), -1, ""], [1, ident(1), 2**32, ""],
                                   [2, ident(1), 1, ""], [1, ident(1), 1, "", "more"], [1, ident(1), 1, b"x" * (2**20 + 1)]])
def test_bad_meta(c, words):
    with pytest.raises(ReplyError, match="^ERR "):
        c("LANE.META", c.lane, *words)
