"""Lanes on disk and on replicas: reload, append-only file, replication, a power cut, damaged payloads."""
import random
import time

import pytest

from support.lane_server import (ASAN, LaneServer, PORTS, ReplyError, SLOW, VALGRIND, ident,
                                 number, wait_for)

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture
def server(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0") as s:
        yield s


def fill(c, seed=1):
    """Lanes in every state there is; their names."""
    rng = random.Random(seed)
    c("LANE.CREATE", "settings", "MAXLEN", 500, "MAXBYTES", 10**8, "STRICT", "MAXATTEMPTS", 5, "DEAD", "dead")
    c("LANE.CREATE", "empty")
    for n in range(300):
        c.push("mixed", n, meta=rng.randbytes(rng.randrange(50)), body=rng.randbytes(rng.randrange(2000)))
    c("LANE.PUSH", 1, "mixed", "ENTRIES", 2, 1, "", "", "no id", 1, "", "", "")
    c.push("mixed", 301, delay=3600_000)
    c.push("settings", *range(20))
    c.push("large", 1, meta=b"m" * 2**20, body=rng.randbytes(3_000_000))
    c.push("large", 2)
    c("LANE.META", "mixed", 2, ident(5), 7, "changed", ident(6), 1, "")
    lease, entries = c.take("mixed", 40)
    c("LANE.NACK", "mixed", lease, "RETRY", 0, "IDS", 3, *[ident(n) for n in range(3)])
    c("LANE.NACK", "mixed", lease, "RETRY", 3600_000, "IDS", 2, ident(10), ident(11))
    c("LANE.NACK", "mixed", lease, "KEEP", 3600_000, "IDS", 2, ident(12), ident(13))
    c("LANE.ACK", "mixed", "RANGES", 2, entries[15][0], entries[17][0], entries[20][0], entries[20][0])
    c("LANE.REVOKE", "mixed", ident(100), ident(21))
    lease, _ = c.take("settings", 4)
    c("LANE.NACK", "settings", lease, "FATAL", 0, "IDS", 1, ident(1))
    c("LANE.NACK", "settings", lease, "RETRY", 0, "UPTO", 2**62)
    c("LANE.MOVE", "mixed", "moved", "IDS", 3, ident(200), ident(201), ident(301))
    for n in range(0, 3000, 3):
        c.push("sparse", n, n + 1, n + 2)
    c("LANE.ACK", "sparse", "IDS", 2990, *[ident(n) for n in range(3000) if n % 300])
    c("COPY", "sparse", "copied")
    c.push("copied", 5000)
    c("RENAME", "moved", "renamed")
    c.push("gone", 1)
    c("LANE.RESET", "gone")
    return ["settings", "empty", "mixed", "large", "dead", "sparse", "copied", "renamed", "gone"]


def picture(c, names):
    """What must be equal, and what each delayed entry is."""
    return c.digest(*names), [[(e[0], e[3]) for e in c.read(n) if e[7] == "delayed"] for n in names]


def test_reload_gives_the_same_lanes(server):
    c = server.client()
    names = fill(c)
    before = picture(c, names)
    assert "leased" in [e[7] for e in c.read("mixed")]
    c("DEBUG", "RELOAD")
    assert picture(c, names) == before
    assert c.info()["leased"] == 0
    assert c("LANE.READY", 0)[1] and c.info()["lanes"] == 8
    old = c.read("sparse")[-1][0]
    assert c.push("sparse", 9999)[0] > old


def test_ages_and_delays_go_on_after_a_reload(server):
    c = server.client()
    begin = time.monotonic()
    c.push("lane", 1)
    c.push("lane", 2, delay=700 * SLOW)
    time.sleep(0.2)
    c("DEBUG", "RELOAD")
    ages = [e[4] for e in c.read("lane")]
    assert all(200 <= a < 5000 * SLOW for a in ages)
    given = c.ids("lane", 9)
    if time.monotonic() - begin < 0.7 * SLOW:  # else both may be due
        assert given == [1]
    wait_for(lambda: given.extend(c.ids("lane", 9)) or given == [1, 2])


@pytest.mark.test
@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("rewrite", [False, True])
def test_append_only_file_gives_the_same_lanes(tmp_path, preamble, rewrite):
    options = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble, "--lane.settle-ms", "0",
               "--auto-aof-rewrite-percentage", "0"]
    with LaneServer(tmp_path, *options) as server:
        c = server.client()
        names = fill(c)
        if rewrite:
            c("BGREWRITEAOF")
            wait_for(lambda: b"aof_rewrite_in_progress:0" in c("INFO", "persistence") and b"aof_rewrite_scheduled:0" in c("INFO", "persistence"), 20)
            assert b"aof_last_bgrewrite_status:ok" in c("INFO", "persistence")
            c.push("mixed", 7777)
            c("LANE.ACK", "mixed", "IDS", 1, ident(50))
        before = picture(c, names)
        server.restart()
        c = server.client()
        assert picture(c, names) == before
        c("DEBUG", "LOADAOF")
        assert picture(c, names) == before
        assert c.push("sparse", 9999)[0] > c.read("sparse")[-2][0]


def test_delay_read_from_the_file_is_not_begun_anew(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        c = server.client()
        c.push("lane", 1, delay=1500 * SLOW)
        begin = time.monotonic()
        server.stop()
        time.sleep(max(0, 1.6 * SLOW - (time.monotonic() - begin)))
        assert server.start().client().ids("lane") == [1], "its time was over while the server was down"


@pytest.mark.test
def test_all_that_was_answered_is_there_after_a_power_cut(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        c = server.client()
        held = set()
        for n in range(200):
            assert c.push("lane", n, session=("s", n + 1))[0] > 0
            held.add(n)
            if n % 3 == 0:
                c("LANE.PUSH", 1, "lane", "ENTRIES", 0, "ACK", 1, 1, ident(n // 2))
                held.discard(n // 2)
        c.take("lane", 50)
        digest = c.digest("lane")
        server.kill()
        server.start()
        c = server.client()
        assert c.digest("lane") == digest
        assert {number(e[1]) for e in c.read("lane")} == held
        assert c.info()["leased"] == 0
        with pytest.raises(ReplyError, match="TXNGAP .* expected 1"):
            c.push("lane", 1000, session=("s", 201))


# ---- replication ----

@pytest.fixture
def pair(tmp_path):
    primary = LaneServer(tmp_path, "--lane.settle-ms", "0", name="primary", *["--repl-diskless-sync-delay", "0"])
    replica = LaneServer(tmp_path, "--lane.settle-ms", "0", name="replica", *["--appendonly", "yes"])
    port = PORTS.take()
    primary.options += ["--port", str(port), "--bind", "127.0.0.1"]
    with primary, replica:
        replica.client()("REPLICAOF", "127.0.0.1", port)
        wait_for(lambda: b"master_link_status:up" in replica.client()("INFO", "replication"), 20)
        yield primary, replica


def in_step(primary, replica):
    p, r = primary.client(), replica.client()
    def offsets():
        def of(c, field):
            return next(line for line in c("INFO", "replication").splitlines() if line.startswith(field)).split(b":")[1]
        return of(p, b"master_repl_offset") == of(r, b"slave_repl_offset")
    wait_for(offsets, 10, "the replica's catching up")


def test_replica_is_equal(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    names = fill(c)
    other = primary.client()
    other.take("mixed", 10)
    other.take("settings")
    other.close()
    wait_for(lambda: c.info("settings")["leased"] == 0)
    c.push("short", 1, delay=1)
    c.take("sparse", 2, "LEASE", 1)
    wait_for(lambda: c.info("sparse")["leased"] == 0)
    in_step(primary, replica)
    assert c.digest(*names, "short") == r.digest(*names, "short")
    assert b"stat_unexpected" not in r("INFO") and not replica.log_says("does not fit")
    before = r.digest(*names)
    replica.close_clients()
    replica.options += ["--replicaof", "no", "one"]
    replica.restart()
    assert replica.client().digest(*names) == before, "the replica's own append-only file"


def test_full_synchronisation_gives_the_same_lanes(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    r("REPLICAOF", "NO", "ONE")
    names = fill(c)
    r.push("mine", 1)
    r.take("mine")
    r("REPLICAOF", "127.0.0.1", primary.options[primary.options.index("--port") + 1])
    wait_for(lambda: b"master_link_status:up" in r("INFO", "replication"), 20)
    in_step(primary, replica)
    assert c.digest(*names) == r.digest(*names)
    assert r("EXISTS", "mine") == 0 and r.info()["leased"] == 0


def test_replica_leases_nothing(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    c.push("lane", 1)
    in_step(primary, replica)
    with pytest.raises(ReplyError, match="^READONLY"):
        r("LANE.TAKE", 1, "lane")
    r("CONFIG", "SET", "replica-read-only", "no")
    with pytest.raises(ReplyError, match="^READONLY"):
        r("LANE.TAKE", 1, "lane")
    assert r("LANE.LEN", "lane") == 1 and len(r.read("lane")) == 1


def test_primary_that_becomes_a_replica_lets_its_leases_go(pair):
    primary, replica = pair
    c, r = primary.client(), replica.client()
    c.push("lane", 1, 2)
    waiting = primary.client()
    waiting.send("LANE.TAKE", 1, "lane2", "BLOCK", 0)
    waiting.silent(0.02)
    in_step(primary, replica)
    r("REPLICAOF", "NO", "ONE")
    c.pipe(["LANE.TAKE", 1, "lane", "COUNT", 2, "LEASE", 300 * SLOW], ["REPLICAOF", "127.0.0.1", 1])
    assert isinstance(waiting.reply(), ReplyError)
    assert c.info()["leased"] == 0 and [e[3] for e in c.read("lane")] == [0, 0]
    time.sleep(0.4 * SLOW)
    assert r.ids("lane", 9) == [1, 2], "the promoted one"
    assert r.push("lane", 3)[0] > r.read("lane")[1][0]
    c("REPLICAOF", "NO", "ONE")
    assert c.ids("lane", 9) == [1, 2]


def test_rdb_of_a_forked_save(tmp_path):
    with LaneServer(tmp_path) as server:
        c = server.client()
        names = fill(c)
        digest = c.digest(*names)
        c("BGSAVE")
        wait_for(lambda: b"rdb_bgsave_in_progress:0" in c("INFO", "persistence"), 20)
        assert b"rdb_last_bgsave_status:ok" in c("INFO", "persistence")
        server.restart()
        assert server.client().digest(*names) == digest


# ---- damaged payloads ----

def test_replica_goes_on_after_its_primary_was_restarted(pair):
    """A restarted primary may be asked for the rest of the stream only: its numbers must be above all the replica has seen."""
    primary, replica = pair
    c = primary.client()
    c("LANE.CREATE", "first")
    c("LANE.CREATE", "second")
    c.push("first", 1)
    for n in range(3):
        c.push("second", n)
    c("LANE.ACK", "second", "UPTO", 2**62)
    in_step(primary, replica)
    wait_for(lambda: c.pipe(["SAVE"]) == ["OK"], 10, "a save, after the one for the replica")
    primary.restart()
    c = primary.client()
    c.push("second", 9)
    wait_for(lambda: replica.client()("LANE.LEN", "second") == 1, 20)
    in_step(primary, replica)
    assert c.digest("first", "second") == replica.client().digest("first", "second")
    assert not replica.log_says("does not fit")


def test_dump_and_restore(server):
    c = server.client()
    names = fill(c)
    for name in names[:-1]:
        c("RESTORE", "other", 0, c("DUMP", name), "REPLACE")
        assert c.digest("other") == c.digest(name)


def damage(rng, payload):
    """A payload with bits flipped, bytes replaced, cut off or doubled."""
    p = bytearray(payload)
    body = len(p) - 10  # what follows is RDB version and checksum
    kind = rng.randrange(5)
    if kind == 0:
        del p[rng.randrange(1, body):body]
    elif kind == 1:
        for _ in range(rng.randrange(1, 4)):
            p[rng.randrange(1, body)] ^= 1 << rng.randrange(8)
    elif kind == 2:
        p[rng.randrange(1, body)] = rng.choice([0, 1, 0x7f, 0x80, 0xc3, 0xfe, 0xff])
    elif kind == 3:
        at, n = rng.randrange(1, body), rng.randrange(1, 9)
        p[at:min(at + n, body)] = b"\xff" * (min(at + n, body) - at)
    else:
        at = rng.randrange(1, body)
        p[at:at] = p[at:at + rng.randrange(1, 60)]
    return bytes(p)


def test_damaged_payloads_are_refused_or_harmless(server):
    c = server.client()
    c("CONFIG", "SET", "rdbcompression", "no")
    c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    c("LANE.CREATE", "small", "MAXLEN", 99, "DEAD", "dead", "STRICT")
    c.push("small", 1, 2, 3, meta=b"meta")
    c.push("small", 4, delay=100000)
    c.push("wide", *range(150), body=b"x")
    payloads = [c("DUMP", "small"), c("DUMP", "wide")]
    accepted = refused = 0
    for _ in range(300 if VALGRIND else 4000):
        answer = c.pipe(["RESTORE", "victim", 0, damage(rng, rng.choice(payloads)), "REPLACE"])[0]
        if isinstance(answer, ReplyError):
            refused += 1
            continue
        accepted += 1
        c.pipe(["LANE.INFO", "victim"], ["LANE.READ", "victim", 0], ["LANE.IDS", "victim", 0], ["LANE.TAKE", 1, "victim", "COUNT", 9],
               ["LANE.PUSH", 1, "victim", "ENTRIES", 1, 1, ident(777), "", "x"], ["DEBUG", "DIGEST-VALUE", "victim"], ["COPY", "victim", "copy", "REPLACE"],
               ["LANE.MOVE", "victim", "moved", "UPTO", 2**62], ["DUMP", "victim"])
    assert refused > 100 and c("PING") == "PONG"
    c("LANE.ACK", "moved", "UPTO", 2**62)
    print("accepted", accepted, "refused", refused)


def test_every_truncation_is_refused(server):
    c = server.client()
    c("CONFIG", "SET", "rdbcompression", "no")
    c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    c("LANE.CREATE", "lane", "MAXLEN", 9)
    c.push("lane", 1, 2, meta=b"meta")
    payload = c("DUMP", "lane")
    # The version stays, and a checksum that completes nothing by chance. With one byte missing at the very end the version makes the payload
    # whole again: only a checksum could tell.
    tail = payload[-10:-8] + b"\xff" * 8
    for end in range(1, len(payload) - 12):
        with pytest.raises(ReplyError):
            c("RESTORE", "victim", 0, payload[:end] + tail)
    c("RESTORE", "victim", 0, payload)


def test_refused_payload_leaves_no_memory_and_no_lane(server):
    if ASAN or VALGRIND:
        pytest.skip("the allocator is another one")
    c = server.client()
    c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    c.push("lane", *range(1000), body=b"x" * 200)
    payload = c("DUMP", "lane")
    bad = payload[:len(payload) // 2] + payload[-10:]
    before = c.info()["used-memory"]
    for _ in range(200):
        c.pipe(["RESTORE", "victim", 0, bad])
    assert c.info()["used-memory"] - before < 500_000
    assert c.info()["lanes"] == 1


def test_payload_of_another_version_is_refused(server):
    c = server.client()
    c.push("lane", 1)
    c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    payload = bytearray(c("DUMP", "lane"))
    # The module's id follows the type byte as a 64-bit length; the version is its low 10 bits.
    assert payload[1] == 0x81
    assert payload[9] & 3 == 2
    for version in (0, 3):
        payload[9] = payload[9] & ~3 | version
        with pytest.raises(ReplyError):
            c("RESTORE", "victim", 0, bytes(payload))
        assert server.log_says(f"version {version}, this module reads 1 to 2")
