"""What a native type owes: files switched on while it works, replicas that come and go, connections killed in the middle, memory freed aside, ACLs, defragmentation."""
import random
import threading
import time

import pytest

from support.lane_server import Client, LaneServer, PORTS, ReplyError, ident, number, wait_for
from test_lane_packed import offsets, work

pytestmark = pytest.mark.core

NAMES = ("a", "b", "c")


@pytest.fixture
def server(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as s:
        yield s


class Load:
    """A bit of everything, all the time."""

    def __init__(self, server):
        self.server, self.stop, self.rounds = server, threading.Event(), 0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        c = self.server.client()
        while not self.stop.is_set():
            work(c, 5, self.rounds + 1)
            lease, entries = c.take("c", 2)
            if entries:
                c("LANE.NACK", "c", lease, "RETRY", 0, "SEQS", 1, entries[0][0])
                c("LANE.ACK", "c", "SEQS", len(entries), *[e[0] for e in entries])
            self.rounds += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def goes_on(self, rounds=3):
        at = self.rounds
        wait_for(lambda: self.rounds >= at + rounds, 30, "the load")


def field(c, section, name):
    return next(line.split(b":")[1] for line in c("INFO", section).splitlines() if line.startswith(name.encode() + b":")).decode()


# ---- files ----

@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_append_only_file_switched_on_under_load_has_all(tmp_path, preamble):
    """Effects are not made up before somebody wants them. From the fork of the first file on not one may be missing."""
    with LaneServer(tmp_path, "--aof-use-rdb-preamble", preamble) as server:
        c = server.client()
        with Load(server) as load:
            load.goes_on()
            c("CONFIG", "SET", "appendonly", "yes")
            load.goes_on()
            wait_for(lambda: field(c, "persistence", "aof_rewrite_in_progress") == "0" and field(c, "persistence", "aof_rewrite_scheduled") == "0", 30)
            load.goes_on()
        before = c.digest(*NAMES)
        c("DEBUG", "LOADAOF")
        assert c.digest(*NAMES) == before
        server.options += ["--appendonly", "yes"]
        server.restart()
        assert server.client().digest(*NAMES) == before and not server.log_says("does not fit")


def test_append_only_file_switched_off_and_on_again(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes") as server:
        c = server.client()
        work(c, 10, 1)
        c("CONFIG", "SET", "appendonly", "no")
        work(c, 10, 2)
        c("CONFIG", "SET", "appendonly", "yes")
        wait_for(lambda: field(c, "persistence", "aof_rewrite_in_progress") == "0" and field(c, "persistence", "aof_rewrite_scheduled") == "0", 30)
        work(c, 10, 3)
        before = c.digest(*NAMES)
        c("DEBUG", "LOADAOF")
        assert c.digest(*NAMES) == before


# ---- replicas ----

@pytest.fixture
def pair(tmp_path, request):
    port = PORTS.take()
    more = getattr(request, "param", [])
    primary = LaneServer(tmp_path, "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--port", str(port), "--repl-backlog-size", "64mb",
                         "--repl-ping-replica-period", "1", name="primary")
    with primary, LaneServer(tmp_path, *more, name="replica") as replica:
        primary.port = port
        yield primary, replica


def linked(r):
    wait_for(lambda: field(r, "replication", "master_link_status") == "up", 30, "the link")


def in_step(c, r):
    wait_for(lambda: offsets(c, b"master_repl_offset") == offsets(r, b"slave_repl_offset"), 30, "the replica's catching up")


def test_partial_resynchronisation_under_load(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    work(c, 10, 7)
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    with Load(primary) as load:
        for _ in range(5):
            load.goes_on()
            assert c("CLIENT", "KILL", "TYPE", "replica") >= 0
            linked(r)
        load.goes_on()
    linked(r)
    in_step(c, r)
    assert int(field(c, "stats", "sync_full")) == 1 and int(field(c, "stats", "sync_partial_ok")) >= 1
    assert c.digest(*NAMES) == r.digest(*NAMES) and not replica.log_says("does not fit")


@pytest.mark.parametrize("pair", [["--repl-diskless-load", "on-empty-db"]], indirect=True, ids=["on-empty-db"])
def test_diskless_load(pair):
    """A replica that is empty loads from the socket."""
    primary, replica = pair
    c, r = primary.client(), replica.client()
    work(c, 20, 3)
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    assert replica.log_says("receiving .* to parser")
    with Load(primary) as load:
        load.goes_on()
    in_step(c, r)
    assert c.digest(*NAMES) == r.digest(*NAMES)
    assert r.info()["lanes"] == c.info()["lanes"] and r.info()["entries"] == c.info()["entries"]
    assert all(r("LANE.CHECK", n) == "OK" for n in NAMES)


@pytest.mark.parametrize("pair", [["--repl-diskless-load", "on-empty-db"]], indirect=True, ids=["on-empty-db"])
def test_diskless_load_that_breaks_off_leaves_nothing_half(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    for n in range(40):
        c.push(f"lane{n}", n, body=random.Random(n).randbytes(20000))
    c("CONFIG", "SET", "rdb-key-save-delay", 100000)
    r("REPLICAOF", "127.0.0.1", primary.port)
    wait_for(lambda: replica.log_says("receiving .* to parser"), 30)
    time.sleep(0.5)
    c("CONFIG", "SET", "rdb-key-save-delay", 0)
    c("CLIENT", "KILL", "TYPE", "replica")
    r("REPLICAOF", "NO", "ONE")
    wait_for(lambda: field(r, "persistence", "loading") == "0", 30)
    assert r.info()["lanes"] == r("DBSIZE") and r.info()["entries"] == sum(r("LANE.LEN", f"lane{n}") for n in range(40))
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    in_step(c, r)
    names = [f"lane{n}" for n in range(40)]
    assert r.digest(*names) == c.digest(*names)


@pytest.mark.parametrize("pair", [["--repl-diskless-load", "swapdb"]], indirect=True, ids=["swapdb"])
def test_swapdb_loads_from_disk(pair):
    """Redis itself leaves a diskless load beside the old data out where a module has not asked for it; the replica's own lanes go, with their leases."""
    primary, replica = pair
    c, r = primary.client(), replica.client()
    work(c, 20, 3)
    r.push("mine", 1, 2)
    r.take("mine")
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    in_step(c, r)
    assert c.digest(*NAMES) == r.digest(*NAMES) and r("EXISTS", "mine") == 0 and r.info()["leased"] == 0


@pytest.mark.parametrize("pair", [["--repl-diskless-load", "swapdb"]], indirect=True, ids=["swapdb"])
def test_diskless_load_that_breaks_off_leaves_what_was(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    rng = random.Random(1)
    for n in range(200):
        c.push("large", n, body=rng.randbytes(20000))
    r("REPLICAOF", "127.0.0.1", primary.port)
    linked(r)
    in_step(c, r)
    before = r.digest("large")
    # Slow enough to break off in the middle; the same history, so the replica goes on serving what it has.
    c("CONFIG", "SET", "rdb-key-save-delay", 200000)
    for n in range(30):
        c("SET", f"key{n}", "x")
    in_step(c, r)
    r("REPLICAOF", "127.0.0.1", 1)
    c("CONFIG", "SET", "repl-backlog-size", 16384)
    c.push("large", 300, body=rng.randbytes(100000))
    r("REPLICAOF", "127.0.0.1", primary.port)
    wait_for(lambda: field(r, "persistence", "loading") == "1" or field(r, "persistence", "async_loading") == "1" or c("CLIENT", "LIST", "TYPE", "replica"), 30)
    time.sleep(0.3)
    c("CLIENT", "KILL", "TYPE", "replica")
    r("REPLICAOF", "NO", "ONE")
    wait_for(lambda: field(r, "persistence", "loading") == "0", 30)
    assert r.digest("large") == before and r("LANE.CHECK", "large") == "OK"
    assert r.ids("large", 3) == [0, 1, 2]
    c("CONFIG", "SET", "rdb-key-save-delay", 0)


# ---- connections that are killed ----

def test_client_killed_in_mid_pipeline(server):
    """What was executed stays, what was not is not there, and its leases end; nothing of half a command."""
    c = server.client()
    for cut in (1, 37, 500, 4000, 20000):
        c("FLUSHALL")
        victim = server.client()
        me = victim("CLIENT", "ID")
        victim.push("lane", *range(5))
        victim.take("lane", 3)
        data = b"".join(Client.encode(["LANE.PUSH", 1, "lane", "SESSION", f"s{cut}", n - 9, "ENTRIES", 1, 1, ident(n), "", b"x" * 400]) for n in range(10, 60))
        victim.socket.sendall(data[:cut])
        time.sleep(0.02)
        assert c("CLIENT", "KILL", "ID", me) == 1
        wait_for(lambda: c.info()["leased"] == 0)
        entries = c.read("lane")
        ids = [number(e[1]) for e in entries]
        assert ids == list(range(5)) + list(range(10, 10 + len(ids) - 5)), "a prefix of what was sent"
        assert [e[3] for e in entries[:5]] == [1, 1, 1, 0, 0]
        assert c("LANE.CHECK", "lane") == "OK"
        again = server.client()
        answers = again.pipe(*[["LANE.PUSH", 1, "lane", "SESSION", f"s{cut}", n - 9, "ENTRIES", 1, 1, ident(n), "", b"x" * 400] for n in range(10, 60)])
        assert not any(isinstance(a, ReplyError) for a in answers), "the session goes on, whoever speaks for it"
        assert [number(e[1]) for e in c.read("lane")] == list(range(5)) + list(range(10, 60)), "and nothing is there twice"


def test_blocked_clients_are_killed(server):
    c = server.client()
    c.push("lane", 1)
    c.take("lane")
    for words in (["LANE.TAKE", 1, "lane", "BLOCK", 0], ["LANE.READY", c("LANE.READY", 0)[0], "BLOCK", 0]):
        victim = server.client()
        me = victim("CLIENT", "ID")
        victim.send(*words)
        assert victim.silent(0.02)
        c("CLIENT", "KILL", "ID", me)
    c.push("other", 2)
    assert c.ids("other") == [2]


# ---- memory ----

def test_values_are_freed_on_another_thread(server):
    c = server.client()
    def freed():
        return int(field(c, "memory", "lazyfreed_objects")) if b"lazyfreed_objects" in c("INFO", "memory") else int(field(c, "stats", "lazyfreed_objects"))
    for words in (["UNLINK", "lane"], ["FLUSHALL", "ASYNC"], ["FLUSHDB", "ASYNC"]):
        for base in range(0, 20000, 1000):
            c.push("lane", *range(base, base + 1000), body=b"x" * 300)
        before, full = freed(), int(field(c, "memory", "used_memory"))
        c(*words)
        wait_for(lambda: freed() > before and field(c, "memory", "lazyfree_pending_objects") == "0", 20, "the other thread")
        wait_for(lambda: int(field(c, "memory", "used_memory")) < full - 5_000_000, 20, "its 6 MB are given back")
    assert c.info()["lanes"] == 0


def test_memory_usage_is_what_the_lane_says_whatever_samples(server):
    c = server.client()
    c.push("lane", *range(2000), body=b"x" * 100)
    said = c.info("lane")["memory"]
    usages = [c("MEMORY", "USAGE", "lane", "SAMPLES", n) for n in (0, 1, 5)]
    assert len(set(usages)) == 1 and said <= usages[0] <= said + 200


def test_info_section(server):
    c = server.client()
    c.push("lane", 1, 2, body="12345")
    c.take("lane")
    lines = dict(line.split(b":", 1) for line in c("INFO", "lane_lanes").splitlines() if b":" in line)
    assert {k.decode().removeprefix("lane_"): v.decode() for k, v in lines.items() if k != b"lane_version"} == {
        "grammar": "1", "node": "", "lanes": "1", "entries": "2", "bytes": "12", "leased": "1", "sessions": "0", "remembered": "0"}


def test_active_defragmentation(server):
    """Where the allocator can: Debian's servers are built with one that cannot, and say so. A server that can: DOVELANE_REDIS_SERVER."""
    c, dice = server.client(), random.Random(7)
    answer = c.pipe(["CONFIG", "SET", "activedefrag", "yes"])[0]
    if isinstance(answer, ReplyError):
        assert "DISABLED" in str(answer) or "cannot be enabled" in str(answer) or "not" in str(answer)
        pytest.skip("this server's allocator cannot; the core's own test moves every piece")
    for base in range(0, 20000, 1000):
        c.push("lane", *range(base, base + 1000), body=b"x" * dice.randrange(50, 900))
        for n in range(base, base + 1000, 10):      # many more lanes between its pieces, of which most go
            c.push(f"small-{n}", n, body=b"y" * dice.randrange(100, 3000))
    gone = [entry[0] for entry in c.read("lane") if dice.random() < 0.7]
    for base in range(0, len(gone), 1000):
        c("LANE.ACK", "lane", "SEQS", len(gone[base:base + 1000]), *gone[base:base + 1000])
    keys = ["lane"]
    for n in range(0, 20000, 10):
        if dice.random() < 0.8:
            c("DEL", f"small-{n}")
        else:
            keys.append(f"small-{n}")
    before = c.digest(*keys)
    c.pipe(["CONFIG", "SET", "active-defrag-ignore-bytes", 1], ["CONFIG", "SET", "active-defrag-threshold-lower", 0], ["CONFIG", "SET", "active-defrag-cycle-min", 60],
           ["CONFIG", "SET", "active-defrag-cycle-max", 90])
    with Load(server) as load:
        wait_for(lambda: int(field(c, "stats", "active_defrag_hits")) > 100, 20, "more than 100 pieces were moved")
        load.goes_on(5)
    c("CONFIG", "SET", "activedefrag", "no")
    assert all(c("LANE.CHECK", key) == "OK" for key in (*keys, *NAMES) if c("EXISTS", key))
    assert c.digest(*keys) == before


# ---- who may what ----

def categories(c):
    """Redis 7.0 has none for the commands of modules; from 7.2 on, and in Valkey, they name theirs."""
    found = any(n.lower().startswith(b"lane.") for n in c("ACL", "CAT", "write"))
    version = field(c, "server", "redis_version")
    assert found or version.startswith("7.0."), version
    return found


def test_who_may_push_may_not_take(server):
    """By key pattern: write access (%W) is enough to store, taking needs to read, too. By command and category as well."""
    c = server.client()
    c("ACL", "SETUSER", "producer", "on", "nopass", "+@all", "-@admin", "%W~q:*")
    c("ACL", "SETUSER", "consumer", "on", "nopass", "+@all", "-@admin", "-lane.push", "-lane.put", "~q:*")
    c("ACL", "SETUSER", "watcher", "on", "nopass", "-@all", *(["+@read"] if categories(c) else ["+lane.len", "+lane.read", "+lane.info"]), "~q:*")
    producer, consumer, watcher = server.client(), server.client(), server.client()
    producer("AUTH", "producer", "x")
    consumer("AUTH", "consumer", "x")
    watcher("AUTH", "watcher", "x")

    def refused(who, *words):
        with pytest.raises(ReplyError, match="^NOPERM"):
            who(*words)

    assert producer.push("q:a", 1)[0] > 0 and producer("LANE.PUT", "q:a", "body") > 0
    refused(producer, "LANE.TAKE", 1, "q:a")
    refused(producer, "LANE.READ", "q:a", 0)
    refused(producer, "LANE.MOVE", "q:a", "q:b", "UPTO", 1)
    refused(producer, "LANE.PUSH", 1, "other", "ENTRIES", 0)
    refused(producer, "LANE.CHECK", "q:a")
    refused(consumer, "LANE.PUSH", 1, "q:a", "ENTRIES", 0)
    refused(consumer, "LANE.PUT", "q:a", "body")
    lease, entries = consumer.take("q:a", 9)
    assert number(entries[0][1]) == 1
    assert consumer("LANE.ACK", "q:a", "UPTO", 2**62) == [2, 0]
    assert watcher("LANE.LEN", "q:a") == 0
    for words in (["LANE.TAKE", 1, "q:a"], ["LANE.PUSH", 1, "q:a", "ENTRIES", 0], ["LANE.ACK", "q:a", "UPTO", 1], ["LANE.RESET", "q:a"], ["LANE.CHECK", "q:a"]):
        refused(watcher, *words)


def test_commands_are_in_their_categories(server):
    c = server.client()
    def has(category):
        return {n.decode().lower() for n in c("ACL", "CAT", category) if n.lower().startswith(b"lane.")}
    if not categories(c):
        pytest.skip("Redis 7.0: rules name commands, not categories")
    write = {"lane.push", "lane.put", "lane.ack", "lane.take", "lane.nack", "lane.move", "lane.reset", "lane.apply"}
    assert write <= has("write") and not write & has("read")
    assert {"lane.read", "lane.get", "lane.ids", "lane.len", "lane.info", "lane.list", "lane.ready"} <= has("read")
    assert {"lane.apply", "lane.check"} <= has("admin") and {"lane.take", "lane.ready"} <= has("blocking")
