"""RESTORE lets anybody's bytes in: an error, or a lane that is whole and takes at most twice the payload's memory. And old versions are read."""
import random
import time

import pytest

from support.lane_server import ASAN, LaneServer, ReplyError, VALGRIND, ident, number, wait_for

pytestmark = [pytest.mark.core, pytest.mark.long]

FREE = 65536  # bytes that any lane may have, see docs/lane-commands.md
SLOW_TOOLS = ASAN or VALGRIND


@pytest.fixture
def server(tmp_path):
    with LaneServer(tmp_path, "--lane.settle-ms", "0", "--rdbcompression", "no") as s:
        c = s.client()
        c("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
        yield s


def payloads(c):
    """DUMPs of lanes with all that an entry and a lane can have."""
    c("LANE.CREATE", "small", "MAXLEN", 99, "MAXBYTES", 10**6, "DEAD", "dead", "STRICT", "MAXATTEMPTS", 7)
    c.push("small", 1, 2, meta=b"meta")
    c.push("small", 3, delay=100000)
    c("LANE.PUSH", 1, "small", "EXPIRE", 100000, "ENTRIES", 2, 1, ident(4), "", "expires", 1, "", "m", "")
    c("LANE.META", "small", 1, ident(2), 5, "changed")
    lease, _ = c.take("small")
    c("LANE.NACK", "small", lease, "RETRY", 0, "UPTO", 2**62)
    c.push("wide", *range(150), body=b"x", meta=b"")
    for base in range(0, 3000, 100):
        c.push("sparse", *range(base, base + 100), body=b"", meta=b"")
    c("LANE.ACK", "sparse", "IDS", 2970, *[ident(n) for n in range(3000) if n % 100])
    return [c("DUMP", name) for name in ("small", "wide", "sparse")]


def restore_all(c, many):
    """Restores each of the damaged payloads; how many were accepted, how many refused."""
    accepted = refused = 0
    batch = []
    for payload in [*many, None]:
        if payload is not None:
            batch.append(payload)
        if batch and (payload is None or len(batch) == 100):
            commands = [x for p in batch for x in (["DEL", "victim"], ["RESTORE", "victim", 0, p], ["LANE.CHECK", "victim"], ["LANE.INFO", "victim"])]
            answers = c.pipe(*commands)
            for i, p in enumerate(batch):
                _, restored, check, info = answers[4 * i:4 * i + 4]
                if isinstance(restored, ReplyError):
                    refused += 1
                    continue
                accepted += 1
                assert check == "OK" or "WRONGTYPE" in str(check), check
                if not isinstance(info, ReplyError):
                    memory = dict(zip(info[::2], info[1::2]))[b"memory"]
                    assert memory <= 2 * len(p) + FREE, (memory, len(p))
            batch = []
    return accepted, refused


def flips(rng, payload, n):
    body = (len(payload) - 10) * 8  # what follows is RDB version and checksum
    for _ in range(n):
        p = bytearray(payload)
        bit = rng.randrange(8, body)
        p[bit // 8] ^= 1 << bit % 8
        yield bytes(p)


def truncations(payload):
    tail = payload[-10:-8] + b"\xff" * 8
    for end in range(1, len(payload) - 12):
        yield payload[:end] + tail


def flip_many(server, n):
    c = server.client()
    rng = random.Random(seed := random.randrange(10**9))
    three = payloads(c)
    accepted = refused = 0
    for payload in three:
        a, r = restore_all(c, flips(rng, payload, n // len(three)))
        accepted, refused = accepted + a, refused + r
    print(f"seed {seed}: {accepted} flips accepted, {refused} refused")
    assert accepted and refused and c("PING") == "PONG"
    c("DEL", "victim")
    c("LANE.CREATE", "victim")


def test_bit_flips_are_refused_or_harmless(server):
    flip_many(server, 300 if VALGRIND else 2000 if ASAN else 9000)


@pytest.mark.exhaustive
def test_a_hundred_thousand_bit_flips(server):
    flip_many(server, 100_002)


def test_every_truncation(server):
    c = server.client()
    accepted = refused = 0
    for payload in payloads(c):
        step = 97 if VALGRIND else 11 if ASAN and len(payload) > 3000 else 1
        a, r = restore_all(c, list(truncations(payload))[::step])
        accepted, refused = accepted + a, refused + r
    print(f"{accepted} truncations accepted, {refused} refused")
    assert accepted == 0 and refused > 100
    for payload in payloads_again(c):
        c("RESTORE", "whole", 0, payload, "REPLACE")
        assert c("LANE.CHECK", "whole") == "OK"


def payloads_again(c):
    return [c("DUMP", name) for name in ("small", "wide", "sparse")]


# ---- payloads made by hand ----

def length(n):
    """A length as RDB files have it."""
    if n < 64:
        return bytes([n])
    if n < 16384:
        return bytes([0x40 | n >> 8, n & 255])
    return b"\x81" + n.to_bytes(8, "big")


def unsigned(n):
    return b"\x02" + length(n)


def text(b):
    return b"\x05" + length(len(b)) + b


def crafted(c, entries, last, version=2, chunk_version=2):
    """A DUMP payload of entries (sequence, delay, life or None, flags) without meta and body."""
    c.push("pattern", 1)
    pattern = c("DUMP", "pattern")
    c("DEL", "pattern")
    head = bytearray(pattern[:10])
    assert head[1] == 0x81
    head[9] = head[9] & ~3 | version
    out = bytes(head) + unsigned(0) * 3 + unsigned(0) + text(b"") + unsigned(last) + unsigned(len(entries))
    for i in range(0, len(entries), 10000):
        chunk = bytes([chunk_version]) + int(time.time() * 1000).to_bytes(8, "little")
        for n, (seq, delay, life, flags) in enumerate(entries[i:i + 10000]):
            chunk += seq.to_bytes(8, "little") + bytes(8) + delay.to_bytes(8, "little") + bytes(16) + bytes([flags]) + ident(i + n)
            chunk += life.to_bytes(8, "little") if life is not None else b""
        out += text(chunk)
    return out + b"\x00" + pattern[-10:]


def test_sparse_payload_is_bounded(server):
    """Each entry alone in a block, delayed, expiring, with an id: the most memory that few bytes could take."""
    c = server.client()
    before = c.info()["used-memory"]
    for n in (10, 300, 20000):
        dense = crafted(c, [(1 + i, 0, None, 1) for i in range(n)], n)
        c("RESTORE", "dense", 0, dense, "REPLACE")
        assert c("LANE.CHECK", "dense") == "OK" and c.info("dense")["memory"] <= 2 * len(dense) + FREE
        sparse = crafted(c, [(1 + 1000 * i, 10**10, 10**10, 3) for i in range(n)], 1000 * n)
        answer = c.pipe(["RESTORE", "sparse", 0, sparse, "REPLACE"])[0]
        if isinstance(answer, ReplyError):
            assert n == 20000 and server.log_says("more than twice its own size")
        else:
            assert c("LANE.CHECK", "sparse") == "OK" and c.info("sparse")["memory"] <= 2 * len(sparse) + FREE
    c("DEL", "dense", "sparse")
    if not SLOW_TOOLS:
        server.close_clients()  # whose buffers hold the payloads
        c = server.client()
        wait_for(lambda: c.info()["used-memory"] - before < 1_000_000, what="memory of refused lanes given back")


def test_what_a_server_saved_itself_it_loads_however_sparse(server):
    c = server.client()
    for base in range(0, 150_000, 1000):
        c.push("sparse", *range(base, base + 1000), body=b"", meta=b"", delay=10**8)
    gone = [ident(n) for n in range(150_000) if n % 130]
    for i in range(0, len(gone), 10000):
        c("LANE.ACK", "sparse", "PACKED", b"".join(gone[i:i + 10000]))
    before, memory = c.digest("sparse"), c.info("sparse")["memory"]
    c("DEBUG", "RELOAD")
    assert c.digest("sparse") == before and c("LANE.CHECK", "sparse") == "OK"
    assert c.info("sparse")["memory"] <= 1.2 * memory
    c("COPY", "sparse", "copy")
    assert c.digest("copy") == before


# ---- versions ----

# A lane of five entries as version 1 of the format saved it: with and without id, delayed by ten million seconds, tried twice, with a meta of revision 3.
VERSION_1 = bytes.fromhex("0781768bde95a9ded40102320200020002030504646561640205020505415001c2deb6ffa1010000010000000000000001000000000000"
                          "0000000000000000000000000002000000040000000600000001696430303030303030303030303030316d657461626f64792031020000"
                          "00000000000100000000000000000000000000000003000000000000000700000006000000016964303030303030303030303030303263"
                          "68616e676564626f6479203203000000000000000100000000000000000000000000000000000000000000000000000005000000000000"
                          "00000000000000000000000000006e6f20696404000000000000000100000000000000ffe30b5402000000000000000000000004000000"
                          "0600000001696430303030303030303030303030346d657461626f64792034050000000000000001000000000000000000000000000000"
                          "0000000000000000040000000000000001696430303030303030303030303030356d657461000a00c4ce15f86dd25dca")


def test_what_version_1_saved_is_read(server):
    c = server.client()
    c("RESTORE", "old", 0, VERSION_1)
    i = c.info("old")
    assert (i["length"], i["maxlen"], i["dead"], i["order"], i["expiring"]) == (5, 50, b"dead", b"STRICT", 0)
    entries = c.read("old")
    assert [e[1] for e in entries] == [ident(1), ident(2), b"", ident(4), ident(5)]
    assert [(e[2], e[3], e[5], e[6]) for e in entries] == [(0, 2, b"meta", b"body 1"), (3, 0, b"changed", b"body 2"), (0, 0, b"", b"no id"), (0, 0, b"meta", b"body 4"),
                                                           (0, 0, b"meta", b"")]
    assert c("LANE.CHECK", "old") == "OK"
    c("DEBUG", "RELOAD")
    assert [e[1] for e in c.read("old")] == [e[1] for e in entries]


def test_flags_of_version_2_are_not_known_to_version_1(server):
    c = server.client()
    c("RESTORE", "new", 0, crafted(c, [(1, 0, 10**10, 3)], 1))
    assert c.info("new")["expiring"] == 1
    with pytest.raises(ReplyError):
        c("RESTORE", "mixed", 0, crafted(c, [(1, 0, 10**10, 3)], 1, chunk_version=1))
    assert server.log_says("a flag that is not known here")
    with pytest.raises(ReplyError):
        c("RESTORE", "mixed", 0, crafted(c, [(1, 0, None, 1)], 1, chunk_version=3))
    assert number(c.read("new")[0][1]) == 0
