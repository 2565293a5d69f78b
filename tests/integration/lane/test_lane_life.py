"""A lane's whole life at once: expiry, dead letters, acks and moves, with a replica, over a partial resynchronisation, and through kill -9."""
import itertools
import random
import threading
import time

import pytest

from support.lane_server import LaneServer, ReplyError, ident, wait_for
from test_lane_native import in_step, linked, pair  # noqa: F401 (a fixture)

pytestmark = pytest.mark.core

ALL = 2**62


@pytest.fixture
def c(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as s:
        yield s.client()


def expiring(c, key, ms, *numbers):
    c("LANE.PUSH", 1, key, "EXPIRE", ms, "ENTRIES", len(numbers), *[part for n in numbers for part in (1, ident(n), "", "body")])


# ---- expiry, elsewhere ----

def test_expiry_on_a_replica_waits_for_the_primary(pair):
    """Through a full and a partial resynchronisation; the replica's digest has what the primary's has, and after its promotion it lets expire by itself."""
    primary, replica = pair
    c, r = primary.client(), replica.client()
    c("LANE.CREATE", "lane", "DEAD", "dead")
    expiring(c, "lane", 3600_000, 1, 2)
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    expiring(c, "lane", 300, 3, 4)
    c("CLIENT", "KILL", "TYPE", "replica")
    linked(r)
    wait_for(lambda: c("LANE.LEN", "dead") == 2)
    in_step(c, r)
    assert r("LANE.LEN", "dead") == 2 and r.info("lane")["expiring"] == 2
    assert r.digest("lane", "dead") == c.digest("lane", "dead")
    expiring(c, "lane", 1500, 5)
    in_step(c, r)
    primary.kill()
    r("REPLICAOF", "NO", "ONE")
    wait_for(lambda: r("LANE.LEN", "dead") == 3, what="the promoted one buries what is over")
    assert r.info("lane")["length"] == 2


def test_expiry_goes_on_in_the_append_only_file(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always", "--lane.settle-ms", "0") as server:
        c = server.client()
        c("LANE.CREATE", "lane", "DEAD", "dead")
        expiring(c, "lane", 3600_000, 1)
        expiring(c, "lane", 1000, 2)
        server.kill()
        server.start()
        c = server.client()
        assert c.info("lane")["expiring"] + c("LANE.LEN", "dead") == 2
        wait_for(lambda: c("LANE.LEN", "dead") == 1)
        assert [e[1] for e in c.read("lane")] == [ident(1)]


# ---- dead letters ----

def test_a_burial_is_one_transaction(tmp_path):
    """In the file and for a replica an entry is in one of both lanes at any byte where the file may end."""
    # "always": while a disk is busy, a server that syncs once a second answers before it writes.
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no", "--lane.settle-ms", "0") as server:
        c = server.client()
        c("LANE.CREATE", "lane", "MAXATTEMPTS", 1, "DEAD", "dead")
        c.push("lane", *range(5))
        path = next((server.directory / "appendonlydir").glob("*.incr.aof"))
        from_here = path.stat().st_size
        lease, entries = c.take("lane", 5)
        assert c("LANE.NACK", "lane", lease, "RETRY", 0, "SEQS", 5, *[e[0] for e in entries]) == [0, 5, 0]
        whole = path.read_bytes()
        server.kill()
        for cut in sorted(random.Random(1).sample(range(from_here, len(whole)), 12)) + [len(whole)]:
            path.write_bytes(whole[:cut])
            server.start()
            c = server.client()
            held = [e[1] for key in ("lane", "dead") for e in c.read(key)]
            assert sorted(held) == [ident(n) for n in range(5)], f"cut at {cut} of {len(whole)}"
            server.kill()


def test_attempts_go_along_with_a_move_back(c):
    c("LANE.CREATE", "lane", "MAXATTEMPTS", 2, "DEAD", "dead")
    c.push("lane", 1)
    for dead in (0, 1):
        lease, _ = c.take("lane")
        assert c("LANE.NACK", "lane", lease, "RETRY", 0, "UPTO", ALL) == [1 - dead, dead, 0]
    assert c("LANE.MOVE", "dead", "lane", "UPTO", ALL) == [1, 0, 0] and c.read("lane")[0][3] == 2
    lease, _ = c.take("lane")
    assert c("LANE.NACK", "lane", lease, "RETRY", 0, "UPTO", ALL) == [0, 1, 0] and c("LANE.LEN", "dead") == 1


# ---- TAKE of several lanes ----

def test_blocked_take_of_several_lanes_gets_from_all_that_came_at_once(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as server:
        c, w = server.client(), server.client()
        w.send("LANE.TAKE", 3, "a", "none", "b", "COUNT", 3, "BYTES", 1000, "BLOCK", 0)
        wait_for(lambda: b"blocked_clients:1" in c("INFO", "clients"))
        c("LANE.PUSH", 2, "a", "b", "ENTRIES", 4, 1, ident(1), "", "x", 1, ident(2), "", "x", 2, ident(3), "", "x", 2, ident(4), "", "x")
        first = w.reply()
        taken = [entry[1] for _, _, entries in first for entry in entries]
        taken += [entry[1] for _, _, entries in w("LANE.TAKE", 2, "a", "b", "COUNT", 9) for entry in entries]
        assert sorted(taken) == [ident(n) for n in range(1, 5)] and first[0][0] == b"a" and len(first[0][2]) == 2
        big = b"y" * 600
        c("LANE.PUSH", 2, "a", "b", "ENTRIES", 3, 1, ident(5), "", big, 2, ident(6), "", big, 2, ident(7), "", "x")
        lanes = w("LANE.TAKE", 2, "a", "b", "COUNT", 9, "BYTES", 1000)
        assert [entry[1] for _, _, entries in lanes for entry in entries] == [ident(5)], "bytes count over all lanes, and no smaller one overtakes"


# ---- memory ----

@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"])
def test_no_policy_but_noeviction(c, policy):
    c("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", policy)
    assert c.push("lane", 1) == ["POLICY maxmemory-policy is not noeviction"] and c("EXISTS", "lane") == 0
    c("CONFIG", "SET", "maxmemory", 0)
    assert c.push("lane", 1)[0] > 0, "without a limit nothing is evicted"


def test_pipeline_that_crosses_the_limit_is_refused_in_its_order(c):
    """Each number is used up in its turn, whatever its answers: none is refused before the module saw it, none executed twice."""
    c("CONFIG", "SET", "maxmemory", c.info()["used-memory"] + 3_000_000)
    commands = [["LANE.PUSH", 1, "lane", "SESSION", "s", n, "ENTRIES", 1, 1, ident(n), "", b"x" * 50000] for n in range(1, 201)]
    answers = c.pipe(*commands)
    assert [a[0] for a in answers] == list(range(1, 201))
    words = ["MEMORY" if a[1][0] == "MEMORY" else "stored" for a in answers]
    assert {"MEMORY", "stored"} == set(words)
    assert c.pipe(*commands) == answers, "repeated, all get the answers of then"
    assert c("LANE.LEN", "lane") == words.count("stored")


# ---- rights ----

def test_write_only_pattern(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as server:
        c = server.client()
        c("ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", "%W~q:*")
        u = server.client()
        u("AUTH", "u", "x")
        seq = u.push("q:1", 1, 2, 3)
        assert u("LANE.ACK", "q:1", "SEQS", 1, seq[0]) == [1, 0] and u("LANE.REVOKE", "q:1", ident(2)) == ["REMOVED"]
        assert u("LANE.META", "q:1", 1, ident(3), 1, "m") == ["OK"]
        for words in (["LANE.TAKE", 1, "q:1"], ["LANE.READ", "q:1", 0], ["LANE.GET", "q:1", "UPTO", 9], ["LANE.MOVE", "q:1", "q:2", "UPTO", 9], ["LANE.ACK", "p", "UPTO", 9]):
            with pytest.raises(ReplyError, match="NOPERM"):
                u(*words)
        assert c("LANE.LEN", "q:1") == 1


# ---- kill -9 ----

def model_step(c, rng, model, fresh):
    """One operation on lanes `a` and `dead`; model: {id: lane} as it must be once the answer came. Ids under way when it dies are told apart by the caller."""
    live = [n for n, lane in model.items() if lane == "a"]
    kind = rng.choice(["push", "push", "push", "ack", "move", "back", "fatal", "meta"])
    if kind == "push" or not live:
        n = next(fresh)
        touched = [n]
        yield touched
        c.push("a", n)
        model[n] = "a"
    elif kind == "ack":
        n = rng.choice(live)
        yield [n]
        c("LANE.ACK", "a", "IDS", 1, ident(n))
        del model[n]
    elif kind == "move":
        n = rng.choice(live)
        yield [n]
        c("LANE.MOVE", "a", "dead", "IDS", 1, ident(n))
        model[n] = "dead"
    elif kind in ("back", "fatal"):
        lease, entries = c.take("a")
        n = int(entries[0][1][2:])
        yield [n]
        c("LANE.NACK", "a", lease, "RETRY" if kind == "back" else "FATAL", 0, "IDS", 1, ident(n))
        model[n] = "a" if kind == "back" else "dead"
    else:
        n = rng.choice(live)
        yield [n]
        c("LANE.META", "a", 1, ident(n), int(time.monotonic() * 1000) % 2**32, "meta")


@pytest.mark.parametrize("rewrite", [False, True], ids=["", "rewriting"])
def test_kill_in_all_operations_with_a_file_always_written(tmp_path, rewrite):
    """What was answered is so after kill -9 at any moment, for every command that changes a lane; what was under way is in one lane, or in none."""
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--lane.settle-ms", "0") as server:
        c = server.client()
        c("LANE.CREATE", "a", "DEAD", "dead")
        model, fresh = {}, itertools.count(1)
        for _ in range(8):
            if rewrite:
                c.pipe(["BGREWRITEAOF"])
            killer = threading.Timer(rng.uniform(0.02, 0.2), server.kill)
            killer.start()
            unsure = []
            with pytest.raises((ConnectionError, OSError, ValueError)):  # ValueError: the file of a socket that was closed
                while True:
                    for unsure in model_step(c, rng, model, fresh):
                        pass
                    unsure = []
            killer.join()
            for n in unsure:
                model.pop(n, None)
            server.start()
            c = server.client()
            held = {}
            for lane in ("a", "dead"):
                for entry in c.read(lane):
                    n = int(entry[1][2:])
                    assert n not in held, f"{n} is in both lanes"
                    held[n] = lane
            model |= {n: held[n] for n in unsure if n in held}
            assert held == model
            assert c("LANE.CHECK", "a") == c("LANE.CHECK", "dead") == "OK"
