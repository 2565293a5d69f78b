"""What somebody may try who has a client, some rights, or a moment in which the server stood still."""
import re
import time

import pytest

from support.lane_server import ASAN, LaneServer, ReplyError, ident, wait_for
from test_lane_restore import crafted

pytestmark = [pytest.mark.core, pytest.mark.long]

ALL = 2**62


@pytest.fixture
def server(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as s:
        yield s


def user(server, *rights, name="u"):
    server.client()("ACL", "SETUSER", name, "reset", "on", "nopass", *rights)
    u = server.client()
    u("AUTH", name, "x")
    return u


def used(c):
    return int(re.search(rb"used_memory:(\d+)", c("INFO", "memory"))[1])


# ---- rights ----

def test_no_number_is_written_so_that_redis_finds_no_keys(server):
    """Redis reads `01` as no number, so it would see no keys and ask no rights."""
    c = server.client()
    c.push("secret", 1)
    u = user(server, "+@all", "~mine:*")
    for number in ("01", "001", "+1", " 1", "1 ", "0x1", "1.0", "18446744073709551617"):
        for words in (["LANE.TAKE", number, "secret"], ["LANE.PUSH", number, "secret", "ENTRIES", 0, "ACK", 1, "UPTO", ALL]):
            for client in (u, c):
                with pytest.raises(ReplyError, match="NOPERM|ERR|numkeys"):
                    client(*words)
    assert c("LANE.LEN", "secret") == 1 and c.info("secret")["leased"] == 0


def test_an_option_is_there_once(server):
    """Redis looks for the key behind the first DEAD."""
    c, u = server.client(), user(server, "+@all", "~mine:*")
    with pytest.raises(ReplyError, match="NOPERM"):
        u("LANE.CREATE", "mine:a", "DEAD", "secret")
    for words in (["DEAD", "mine:b", "DEAD", "secret"], ["MAXLEN", 1, "maxlen", 2], ["STRICT", "SKIP"], ["SKIP", "SKIP"]):
        with pytest.raises(ReplyError, match="NOPERM|expected is .*each once"):
            u("LANE.CREATE", "mine:a", *words)
    for words in (["LANE.TAKE", 1, "mine:a", "COUNT", 1, "COUNT", 2], ["LANE.READ", "mine:a", 0, "NOBODY", "NOBODY"],
                  ["LANE.PUSH", 1, "mine:a", "DELAY", 1, "DELAY", 2, "ENTRIES", 0]):
        with pytest.raises(ReplyError, match="each once"):
            u(*words)
    assert c("EXISTS", "mine:a", "mine:b", "secret") == 0


def test_dead_letter_lanes_that_cannot_be(server):
    c = server.client()
    c("SET", "text", "x")
    with pytest.raises(ReplyError, match="^WRONGTYPE text holds something else than a lane"):
        c("LANE.CREATE", "a", "DEAD", "text")
    c("LANE.CREATE", "a", "DEAD", "b")
    with pytest.raises(ReplyError, match="^ERR value: DEAD is a, allowed is a lane whose own dead-letter lane is not this one"):
        c("LANE.CREATE", "b", "DEAD", "a")


def test_adding_and_nothing_else(server):
    """PUT adds and nothing more (docs/lane-commands.md, Who may what)."""
    c, u = server.client(), user(server, "+lane.put", "~billing")
    assert u("LANE.PUT", "billing", "x") > 0
    for words in (["LANE.PUSH", 1, "billing", "ENTRIES", 0, "ACK", 1, "UPTO", ALL], ["LANE.MPUT", "billing", "", ALL], ["LANE.TAKE", 1, "billing"],
                  ["LANE.ACK", "billing", "UPTO", ALL], ["LANE.RESET", "billing"]):
        with pytest.raises(ReplyError, match="NOPERM"):
            u(*words)
    assert c("LANE.LEN", "billing") == 1


def test_who_only_stores_removes_nothing_by_an_ack_part(server):
    """As the milter's and the proxy's user (ctl/acl.c): an ACK part is a LANE.ACK, and needs its rights."""
    c = server.client()
    u = user(server, "+lane.push", "+lane.mput", "+lane.revoke", "%W~dovelane:*")
    reader = user(server, "+lane.push", "+lane.mput", "+lane.ack", "~dovelane:mine:*", name="reader")
    for key in ("dovelane:lmtp:a", "dovelane:mine:a"):
        for n in (1, 2, 3):
            c.push(key, n)
    for acks in (["ACK", 1, "UPTO", ALL], ["ACK", 1, "SEQS", 1, 1], ["ACK", 1, 1, b"x" * 16], ["ACK", 1, "UPTO", 0, "ACK", 1, "UPTO", ALL]):
        for client, key in ((u, "dovelane:lmtp:a"), (reader, "dovelane:lmtp:a")):
            with pytest.raises(ReplyError, match="NOPERM"):
                client("LANE.PUSH", 1, key, "ENTRIES", 0, *acks)
            with pytest.raises(ReplyError, match="NOPERM"):
                client("LANE.PUSH", 1, key, "SESSION", "s", 1, "ENTRIES", 1, 1, "", "", "body", *acks)
    with pytest.raises(ReplyError, match="NOPERM"):
        u("LANE.MPUT", "dovelane:lmtp:a", "", ALL)
    assert u("LANE.PUSH", 1, "dovelane:lmtp:a", "SESSION", "s", 1, "ENTRIES", 1, 1, "", "", "body")[0] == 1, "the number was not used up"
    assert c("LANE.LEN", "dovelane:lmtp:a") == 4 and c("LANE.LEN", "dovelane:mine:a") == 3
    assert reader("LANE.PUSH", 1, "dovelane:mine:a", "ENTRIES", 0, "ACK", 1, "UPTO", ALL)[2] == 3
    assert c("EVAL", "return redis.call('LANE.PUSH', 1, KEYS[1], 'ENTRIES', 0, 'ACK', 1, 'UPTO', ARGV[1])[3]", 1, "dovelane:lmtp:a", ALL) == 4


def test_a_name_is_no_line_of_the_log(server):
    c = server.client()
    c("LANE.CREATE", "lane", "DEAD", "d\nFORGED LINE")
    c("SET", "d\nFORGED LINE", "x")
    c.push("lane", 1)
    lease, _ = c.take("lane")
    c("LANE.NACK", "lane", lease, "FATAL", 0, "UPTO", ALL)
    wait_for(lambda: server.log_says("dead-letter lane d.FORGED LINE"))
    assert not server.log_says("(?m)^FORGED")


# ---- payloads ----

def test_a_payload_with_high_numbers_does_not_spoil_the_servers_own_file(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0", "--rdbcompression", "no") as server:
        c = server.client()
        c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        c("RESTORE", "high", 0, crafted(c, [(ALL - 1, 0, None, 1)], ALL))
        with pytest.raises(ReplyError):
            c("RESTORE", "higher", 0, crafted(c, [(ALL - 1, 0, None, 1)], ALL + 1))
        c("LANE.PUT", "mail", "hello")
        before = c.digest("mail", "high")
        c("DEBUG", "RELOAD")
        assert c.digest("mail", "high") == before
        c("SAVE")
        server.kill()
        server.start()
        c = server.client()
        assert c.digest("mail", "high") == before and c("LANE.PUT", "mail", "more") > ALL


# ---- the server stood still ----

def test_a_move_that_came_too_late_within_one_turn_of_the_loop(server):
    c = server.client()
    c.push("from", 1)
    clock = c.info()["clock-ms"]
    answers = c.pipe(["LANE.INFO"], ["DEBUG", "SLEEP", "1"], ["LANE.MOVE", "from", "to", "BEFORE", clock + 500, "UPTO", ALL])
    assert isinstance(answers[2], ReplyError) and str(answers[2]).startswith("LATE") and c("LANE.LEN", "from") == 1


def test_a_beat_is_as_old_as_it_is(server):
    c = server.client()
    c("LANE.BEAT", "mx1", "i", 1, "text")
    beats = c.pipe(["LANE.INFO"], ["DEBUG", "SLEEP", "1"], ["LANE.BEAT"])[2][0]
    assert beats[0][3] >= 1000


def test_many_expired_at_once_are_not_given(server):
    c = server.client()
    for _ in range(5):
        c("LANE.PUSH", 1, "q", "EXPIRE", 100, "ENTRIES", 1000, *[1, "", "", "x"] * 1000)
    c.push("q", 1)
    w = server.client()
    taken = c.pipe(["DEBUG", "SLEEP", "0.4"], ["LANE.TAKE", 1, "q", "COUNT", 5])[1]
    assert all(entry[1] for _, _, entries in taken for entry in entries), "an entry without an id is one that expired"
    if not taken:   # the one behind them comes as soon as they are gone, and wakes who waits for it
        assert w("LANE.TAKE", 1, "q", "BLOCK", 20000)[0][2][0][1] == ident(1)
    wait_for(lambda: c("LANE.LEN", "q") == 1)


@pytest.mark.parametrize("how", ["rdb", "aof"])
def test_a_slow_save_makes_no_delay_longer(tmp_path, how):
    """What is left of a delay is told with the time at which it was told, in the child that saves for long, too."""
    with LaneServer(tmp_path, "--rdb-key-save-delay", "50000", "--aof-use-rdb-preamble", "no", "--rdbcompression", "no") as server:
        c = server.client()
        began = c.info()["clock-ms"]
        for n in range(40):
            c("LANE.PUSH", 1, f"q{n}", "DELAY", 600000, "ENTRIES", 1, 1, "", "", "x")
        c.pipe(["LANE.INFO"], ["BGSAVE"] if how == "rdb" else ["CONFIG", "SET", "appendonly", "yes"])
        wait_for(lambda: b"rdb_bgsave_in_progress:0" in c("INFO", "persistence") and b"aof_rewrite_in_progress:0" in c("INFO", "persistence")
                 and b"aof_rewrite_scheduled:0" in c("INFO", "persistence"), 60)
        c("CONFIG", "SET", "rdb-key-save-delay", "0")
        server.options += ["--appendonly", "yes"] if how == "aof" else []
        server.kill()
        server.start()
        c = server.client()
        for n in (0, 39):
            dump, info = c.pipe(["DUMP", f"q{n}"], ["LANE.INFO"])
            now = dict(zip(info[::2], info[1::2]))[b"clock-ms"]
            told = [int.from_bytes(dump[i:i + 8], "little") for i in range(len(dump) - 8)]    # one of them is what is left
            assert any(abs(left - (600000 - (now - began))) < 500 for left in told), f"q{n}: not what is left of its delay"


# ---- what goes away ----

def test_wholeness_ends_with_whatever_takes_lanes_away(server):
    c, q = server.client(), "dovelane:smtp:[mx.example]|mx1>mx2"
    ways = {"DEL": lambda: c("DEL", q), "UNLINK": lambda: c("UNLINK", q), "RENAME": lambda: c("RENAME", q, "other"), "RESET": lambda: c("LANE.RESET", q),
            "SET": lambda: c("SET", q, "x"), "PEXPIRE": lambda: (c("PEXPIRE", q, 1), time.sleep(0.05), c("EXISTS", q)), "MOVE": lambda: c("MOVE", q, 1)}
    for name, way in ways.items():
        c("FLUSHALL")
        c.push(q, 1)
        c("LANE.WHOLE", "BEGIN", "mx1>mx2", "t")
        assert c("LANE.WHOLE", "END", "mx1>mx2", "t") == 1 and c("LANE.WHOLE") == [b"mx1>mx2", b"t"]
        way()
        assert c("LANE.WHOLE") == [], name
    c("FLUSHALL")
    c.push(q, 2)
    c("LANE.WHOLE", "BEGIN", "mx1>mx2", "t")
    c("LANE.WHOLE", "END", "mx1>mx2", "t")
    c("LANE.ACK", q, "UPTO", ALL)     # the lane goes with its last entry, as it should
    assert c("EXISTS", q) == 0 and c("LANE.WHOLE") == [b"mx1>mx2", b"t"]


def test_a_lane_whose_key_expires_before_its_leases_end(server):
    """Under ASan or valgrind this shows whether a freed lane is touched."""
    c = server.client()
    c("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    for n in range(20):
        c.push(f"q{n}", 1, 2, 3)
        worker = server.client()
        worker("LANE.TAKE", 1, f"q{n}", "COUNT", 2)
        c("PEXPIRE", f"q{n}", 30)
        time.sleep(0.05)
        worker.close()
    wait_for(lambda: c.info()["leased"] == 0)
    assert c("PING") == "PONG"


# ---- memory ----

def test_remembered_replies_have_a_bound(server):
    """Refused entries and such that are there already alternate: as much to remember as there were answers."""
    c = server.client()
    c.push("q", 1)
    entries = ((0x80000001).to_bytes(4, "little") + bytes(8) + ident(1) + (1).to_bytes(4, "little") + bytes(4) + (1).to_bytes(4, "little") + b"x") * 12500
    c("CONFIG", "SET", "maxmemory", 1000)
    before = used(c)
    for session in ("a", "b"):
        for n in range(1, 201):
            answers = c("LANE.PUSH", 1, "q", "SESSION", session, n, "PACKED", entries)
            assert answers[0] == n
    assert used(c) - before < 80 << 20
    assert c("LANE.PUSH", 1, "q", "SESSION", "b", 200, "PACKED", entries) == answers, "the last one is remembered"
    with pytest.raises(ReplyError, match="^TXNOLD session b txn 1 is forgotten"):
        c("LANE.PUSH", 1, "q", "SESSION", "b", 1, "PACKED", entries)
    c("LANE.PUSH", 1, "q", "SESSION", "b", 201, "PACKED", entries)


def test_no_lane_is_made_above_maxmemory(server):
    """They stay when they are empty: who may do no more than make them had all memory of the host."""
    c, u = server.client(), user(server, "+lane.create", "~mine:*")
    u("LANE.CREATE", "mine:first")
    most = used(c) + (4 << 20)
    c("CONFIG", "SET", "maxmemory", most)
    for page in range(100):
        answers = u.pipe(*(["LANE.CREATE", f"mine:{page}:{n}"] for n in range(1000)))
        if isinstance(answers[-1], ReplyError):
            break
    assert str(answers[-1]) == "OOM no memory for a lane"
    assert used(c) < most + (2 << 20)
    assert u("LANE.CREATE", "mine:first", "MAXLEN", 5) == "OK", "one that is there may be given a bound"
    c("CONFIG", "SET", "maxmemory", 0)
    assert u("LANE.CREATE", "mine:last") == "OK"


@pytest.mark.skipif(ASAN, reason="the allocator is another one")
def test_move_of_a_large_lane_takes_no_memory_for_what_nobody_hears(server):
    c = server.client()
    body = b"x" * 100000
    for _ in range(90):
        c("LANE.PUSH", 1, "from", "ENTRIES", 10, *[1, "", "", body] * 10)
    before = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1])
    assert c("LANE.MOVE", "from", "to", "UPTO", ALL) == [900, 0, 0]
    assert int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1]) - before < 20000


def test_move_of_a_large_lane_reaches_the_file(tmp_path):
    """In pieces of about 1 MiB, and as one transaction."""
    with LaneServer(tmp_path, "--appendonly", "yes", "--lane.settle-ms", "0") as server:
        c = server.client()
        for n in range(40):
            c.push("from", *range(10 * n, 10 * n + 10), body=b"y" * 10000)
        assert c("LANE.MOVE", "from", "to", "UPTO", ALL) == [400, 0, 0]
        before = c.digest("to")
        server.restart()
        c = server.client()
        assert c.digest("to") == before and c("EXISTS", "from") == 0
