"""The short forms for programs: LANE.PUT, LANE.MPUT, packed entries and ids, acks of any kind riding on a PUSH."""
import random
import struct
import threading

import pytest

from support.lane_server import PORTS, MODULE, LaneServer, ReplyError, ident, number, wait_for

pytestmark = [pytest.mark.core, pytest.mark.check]

ANSWERS = {-1: "DONE", -2: "REVOKED", -3: "FULL", -4: "MEMORY", -5: "POLICY", -6: "WRONGTYPE"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("packed")) as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    yield client
    client("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", "noeviction", "lane.settle-ms", 5000)
    client.close()


_next = iter(range(1, 10**9))


def fresh():
    return next(_next)


def entry(n, body=b"body", meta=b"m", key=1):
    """A packed entry; n None: without an id."""
    return struct.pack("<III", key | (0 if n is None else 1 << 31), len(meta), len(body)) + (b"" if n is None else ident(n)) + meta + body


def unpacked(answers):
    return [a if a > 0 else ANSWERS[a] for (a,) in struct.iter_unpack("<q", answers)]


def push(c, key, *entries, before=(), after=()):
    """The answers of packed entries."""
    return unpacked(c("LANE.PUSH", 1, key, *before, "PACKED", b"".join(entries), *after)[1])


# ---- LANE.PUT ----

def test_put_stores_one_entry(c):
    n = fresh()
    seqs = [c("LANE.PUT", "lane", "plain"), c("LANE.PUT", "lane", "named", ident(n)), c("LANE.PUT", "lane", "whole", ident(fresh()), "meta"),
            c("LANE.PUT", "lane", "", "", "only meta")]
    assert seqs == sorted(seqs) and seqs[0] > 0
    assert [(e[1], e[5], e[6]) for e in c.read("lane")] == [(b"", b"", b"plain"), (ident(n), b"", b"named"), (ident(n + 1), b"meta", b"whole"),
                                                             (b"", b"only meta", b"")]


def test_put_answers_like_push(c):
    held, gone, revoked, late = (fresh() for _ in range(4))
    c("LANE.PUT", "lane", "b", ident(held))
    c("LANE.PUT", "lane", "b", ident(gone))
    c("LANE.ACK", "lane", "IDS", 1, ident(gone))
    c("LANE.REVOKE", "lane", ident(revoked))
    assert [c("LANE.PUT", "lane", "b", ident(n)) for n in (held, gone, revoked)] == ["DONE", "DONE", "REVOKED"]
    c("LANE.CREATE", "lane", "MAXLEN", 1)
    assert c("LANE.PUT", "lane", "b", ident(held)) == "DONE" and c("LANE.PUT", "lane", "b", ident(late)) == "FULL"
    c("LANE.CREATE", "lane", "MAXLEN", 0)
    c("CONFIG", "SET", "maxmemory", 1)
    assert c("LANE.PUT", "lane", "b", ident(held)) == "DONE" and c("LANE.PUT", "lane", "b", ident(late)) == "MEMORY"
    c("CONFIG", "SET", "maxmemory", 10**9, "maxmemory-policy", "allkeys-lru")
    assert c("LANE.PUT", "lane", "b", ident(held)) == "DONE" and c("LANE.PUT", "lane", "b", ident(late)).startswith("POLICY maxmemory-policy")
    assert c("LANE.LEN", "lane") == 1


def test_put_refuses_what_is_wrong(c):
    c("SET", "text", "x")
    for words, error in ((("text", "b"), "^WRONGTYPE"), (("lane", "b", "short"), "length of an id is 5"),
                         (("lane", "b", "", "m" * (2**20 + 1)), "length of a meta"), (("lane",), "wrong number"), (("lane", "b", "", "", ""), "wrong number")):
        with pytest.raises(ReplyError, match=error):
            c("LANE.PUT", *words)
    assert c("EXISTS", "lane") == 0


# ---- LANE.MPUT ----

def mput(c, key, *entries, upto=None):
    """How many were removed, and the answers of the entries."""
    answer = c("LANE.MPUT", key, b"".join(entries), *([] if upto is None else [upto]))
    return struct.unpack_from("<Q", answer)[0], unpacked(answer[8:])


def test_mput_stores_and_acknowledges(c):
    a, b, d = fresh(), fresh(), fresh()
    removed, first = mput(c, "lane", entry(a, b"x" * 5000), entry(None, b"", b""), entry(b, b"", b"only meta"))
    assert removed == 0 and first == sorted(first) and first[0] > 0
    removed, more = mput(c, "lane", entry(d), entry(a), upto=first[1])
    assert removed == 2 and more == [first[2] + 1, "DONE"], "the first was let go a moment ago"
    assert [(e[0], e[1], e[5], e[6]) for e in c.read("lane")] == [(first[2], ident(b), b"only meta", b""), (more[0], ident(d), b"m", b"body")]
    assert mput(c, "lane", upto=more[0]) == (2, []) and c("EXISTS", "lane") == 0
    assert mput(c, "lane", upto=2**62) == (0, []) and mput(c, "lane", upto=0) == (0, []) and c("EXISTS", "lane") == 0


def test_mput_answers_like_push(c):
    held, late = fresh(), fresh()
    mput(c, "lane", entry(held))
    c("LANE.CREATE", "lane", "MAXLEN", 1)
    assert mput(c, "lane", entry(held), entry(late)) == (0, ["DONE", "FULL"])
    c("LANE.CREATE", "lane", "MAXLEN", 0)
    c("CONFIG", "SET", "maxmemory", 1)
    assert mput(c, "lane", entry(held), entry(late)) == (0, ["DONE", "MEMORY"])
    c("CONFIG", "SET", "maxmemory", 10**9, "maxmemory-policy", "allkeys-lru")
    assert mput(c, "lane", entry(held), entry(late)) == (0, ["DONE", "POLICY"])
    assert c("LANE.LEN", "lane") == 1 and mput(c, "lane", upto=2**62) == (1, [])


def test_mput_refuses_what_is_wrong_and_stores_nothing(c):
    c("SET", "text", "x")
    mput(c, "lane", entry(fresh()))
    for words, error in ((("text", entry(fresh())), "^WRONGTYPE"), (("lane",), "wrong number"), (("lane", entry(fresh()), 1, 1), "wrong number"),
                         (("lane", entry(fresh())[:-1], 1), "packed entry 1: it is longer"), (("lane", entry(fresh(), key=2), 1), "packed entry 1: it names a key"),
                         (("lane", entry(fresh()), "one"), "sequence is one"), (("lane", entry(fresh()), -1), "sequence is -1")):
        with pytest.raises(ReplyError, match=error):
            c("LANE.MPUT", *words)
    assert c("LANE.LEN", "lane") == 1


# ---- packed entries ----

def test_packed_entries_are_stored_as_others(c):
    a, b, d = fresh(), fresh(), fresh()
    seqs = push(c, "lane", entry(a, b"x" * 5000), entry(None, b"", b""), entry(b, b"", b"only meta")) + c.push("lane", d)
    assert seqs == sorted(seqs) and seqs[0] > 0
    assert [[e[0], e[1], e[5], e[6]] for e in c.read("lane")] == [[seqs[0], ident(a), b"m", b"x" * 5000], [seqs[1], b"", b"", b""],
                                                                  [seqs[2], ident(b), b"only meta", b""], [seqs[3], ident(d), b"m", b"body"]]
    assert push(c, "lane", entry(a), entry(d), entry(None)) == ["DONE", "DONE", seqs[3] + 1]


def test_packed_entries_for_several_lanes(c):
    c("SET", "text", "x")
    ns = [fresh() for _ in range(6)]
    where = [1, 1, 2, 3, 2, 1]
    answers = unpacked(c("LANE.PUSH", 3, "a", "b", "text", "PACKED", b"".join(entry(n, key=k) for n, k in zip(ns, where)))[1])
    assert [isinstance(a, int) for a in answers] == [True, True, True, False, True, True] and answers[3] == "WRONGTYPE"
    assert [number(e[1]) for e in c.read("a")] == [ns[0], ns[1], ns[5]] and [number(e[1]) for e in c.read("b")] == [ns[2], ns[4]]


def test_no_packed_entries_use_a_number(c):
    s = f"s{fresh()}"
    assert c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "PACKED", "") == [1, b"", 0]
    assert c("LANE.PUSH", 1, "lane", "SESSION", s, 2, "ENTRIES", 0) == [2, [], 0]


def test_packed_push_is_safe_to_repeat(c):
    s, a, b = f"s{fresh()}", fresh(), fresh()
    words = ["LANE.PUSH", 1, "lane", "SESSION", s, 1, "PACKED", entry(a) + entry(a) + entry(b)]
    first = c(*words)
    assert unpacked(first[1])[1] == "DONE" and c(*words) == first and c("LANE.LEN", "lane") == 2
    # The answers are those of the number; the form is that of the request.
    again = c("LANE.PUSH", 1, "lane", "SESSION", s, 1, "ENTRIES", 0)
    assert again == [1, unpacked(first[1]), 0]
    with pytest.raises(ReplyError, match="^TXNGAP"):
        c("LANE.PUSH", 1, "lane", "SESSION", s, 3, "PACKED", entry(a))


def test_delay_counts_for_packed_entries(c):
    push(c, "lane", entry(fresh()), before=("DELAY", 60000))
    assert c.info("lane")["delayed"] == 1


def test_damaged_packed_entries_store_nothing(c):
    whole = entry(fresh()) + entry(None)
    for data, error in ((whole[:-1], "packed entry 2: it is longer"), (whole[:40], "packed entry 2: its head"), (whole + b"x", "packed entry 3: its head"),
                        (entry(fresh(), key=2), "packed entry 1: it names a key"), (entry(fresh(), key=0), "packed entry 1: it names a key"),
                        (struct.pack("<III", 1, 2**20 + 1, 0), "its meta is above"), (struct.pack("<III", 1, 0, 2**29 + 1), "its body is above"),
                        (struct.pack("<III", 1, 0xffffffff, 0xffffffff), "its meta")):
        with pytest.raises(ReplyError, match=error):
            push(c, "lane", data)
    rng = random.Random(5)
    for _ in range(300):
        data = bytearray(whole * 3)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        answer = c.pipe(["LANE.PUSH", 1, "lane", "PACKED", bytes(data)])[0]
        assert isinstance(answer, (list, ReplyError))
    assert c("PING") == "PONG"


# ---- packed ids, riding acks ----

@pytest.mark.parametrize("how", ["short", "IDS", "PACKED", "SEQS", "RANGES", "UPTO"])
def test_acks_of_any_kind_ride(c, how):
    ns = [fresh() for _ in range(4)]
    seqs = c.push("lane", *ns)
    gone = ns[:3]
    words = {"short": [3, *map(ident, gone)], "IDS": ["IDS", 3, *map(ident, gone)], "PACKED": ["PACKED", b"".join(map(ident, gone))],
             "SEQS": ["SEQS", 3, *seqs[:3]], "RANGES": ["RANGES", 2, seqs[0], seqs[0], seqs[1], seqs[2]], "UPTO": ["UPTO", seqs[2]]}[how]
    late = fresh()
    answer = c("LANE.PUSH", 1, "lane", "PACKED", entry(late), "ACK", 1, *words)
    assert answer[2] == 3 and [number(e[1]) for e in c.read("lane")] == [ns[3], late]
    assert c.push("lane", *gone) == ["DONE"] * 3, "they are remembered"


def test_acks_ride_for_other_lanes_and_before_the_entries(c):
    a, b = fresh(), fresh()
    c.push("a", a)
    c.push("b", b)
    answer = c("LANE.PUSH", 2, "a", "b", "PACKED", entry(a) + entry(b, key=2), "ACK", 1, "PACKED", ident(a), "ACK", 2, "UPTO", 2**62)
    assert unpacked(answer[1]) == ["DONE", "DONE"] and answer[2] == 2 and c("EXISTS", "a", "b") == 0


def test_bad_riding_acks_are_refused_before_anything_is_done(c):
    n = fresh()
    for words, error in ((["ACK", 1, "PACKED", "short"], "packed ids is 5, allowed are multiples of 16"), (["ACK", 1, "UPTO"], "sequence"),
                         (["ACK", 1, "ALL"], "expected is UPTO, RANGES, SEQS, IDS or PACKED"), (["ACK", 1], "expected is a number of ids"),
                         (["ACK", 2, 0], "number of a key"), (["ACK", 1, 1, ident(1), "x"], "ACK or the end")):
        with pytest.raises(ReplyError, match=error):
            push(c, "lane", entry(n), after=words)
    assert c("EXISTS", "lane") == 0


def test_packed_ids_select_everywhere(c):
    a, b, d = fresh(), fresh(), fresh()
    c.push("lane", a, b, d)
    assert [number(e[1]) for e in c("LANE.GET", "lane", "PACKED", ident(d) + ident(a))] == [d, a]
    lease, _ = c.take("lane", 3)
    assert c("LANE.EXTEND", "lane", lease, 1000, "PACKED", ident(a)) == [1, 0]
    assert c("LANE.NACK", "lane", lease, "KEEP", 0, "PACKED", ident(a) + ident(fresh())) == [1, 0, 1]
    assert c("LANE.MOVE", "lane", "other", "PACKED", ident(a) + ident(b)) == [1, 1, 0]
    assert c("LANE.ACK", "lane", "PACKED", ident(b) + ident(d) + ident(fresh())) == [2, 1]
    assert c("LANE.ACK", "lane", "PACKED", "") == [0, 0]


def test_many_packed_ids_at_once(c):
    """More than is fetched ahead at a time, in a lane and a memory large enough for that."""
    c("CONFIG", "SET", "lane.settle-ms", 600000)
    first = fresh()
    for i in range(40):
        got = push(c, "lane", *[entry(first + 1000 * i + k, b"", b"") for k in range(1000)])
        assert all(isinstance(a, int) for a in got)
    gone = [first + i for i in range(0, 40000, 2)]
    assert c("LANE.ACK", "lane", "PACKED", b"".join(map(ident, gone))) == [20000, 0]
    assert push(c, "lane", *[entry(n) for n in gone[:500]]) == ["DONE"] * 500
    assert c("LANE.ACK", "lane", "PACKED", b"".join(ident(first + i) for i in range(40000))) == [20000, 20000]
    assert c("EXISTS", "lane") == 0
    for _ in range(40000):
        fresh()


# ---- replicas and files ----

def work(c, rounds, seed):
    """A bit of everything that leaves effects, in the short forms."""
    rng = random.Random(seed)
    seqs, mine = [], []
    for i in range(rounds):
        ns = [fresh() for _ in range(rng.randrange(1, 8))]
        where = [rng.randrange(1, 3) for _ in ns]
        after = ["ACK", 1, "UPTO", seqs.pop(0)] if len(seqs) > 5 else []
        answer = c("LANE.PUSH", 2, "a", "b", "PACKED", b"".join(entry(n if n % 3 else None, b"x" * rng.randrange(2000), key=k) for n, k in zip(ns, where)),
                   *after)
        seqs += [s for s, k in zip(unpacked(answer[1]), where) if k == 1][:1]
        c("LANE.PUT", "c", "body", ident(fresh()), "meta" if i % 2 else "")
        mine = mput(c, "d", *[entry(fresh() if n % 2 else None, b"y" * rng.randrange(2000)) for n in range(rng.randrange(4))], upto=mine[-1] if mine and i % 2 else None)[1]
        if i % 5 == 4:
            c("LANE.ACK", "c", "PACKED", ident(_last_put(c)))
            c("LANE.PUSH", 1, "a", "DELAY", 10**9, "PACKED", entry(fresh()) + entry(fresh()))
            c("LANE.RESET", "b")


def _last_put(c):
    return number(c.read("c")[-1][1])


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_file_holds_what_the_short_forms_did(tmp_path, preamble):
    options = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble, "--appendfsync", "no"]
    with LaneServer(tmp_path, *options) as server:
        c = server.client()
        work(c, 40, 1)
        names = ("a", "b", "c", "d")
        before = c.digest(*names)
        c("DEBUG", "LOADAOF")
        assert c.digest(*names) == before
        work(c, 10, 2)
        before = c.digest(*names)
        server.restart()
        assert server.client().digest(*names) == before and not server.log_says("does not fit")


def offsets(c, field):
    return next(line for line in c("INFO", "replication").splitlines() if line.startswith(field)).split(b":")[1]


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_replica_that_comes_in_mid_load_is_equal(tmp_path, diskless):
    """Effects are not made up before somebody can want them: not one may be missing once somebody does."""
    port = PORTS.take()
    options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1"]
    primary, replica = LaneServer(tmp_path, *options, "--port", str(port), name="primary"), LaneServer(tmp_path, name="replica")
    with primary, replica:
        c, r = primary.client(), replica.client()
        stop = threading.Event()

        def load():
            mine = primary.client()
            seed = 0
            while not stop.is_set():
                work(mine, 5, seed := seed + 1)

        work(c, 30, 99)
        thread = threading.Thread(target=load)
        thread.start()
        try:
            r("REPLICAOF", "127.0.0.1", port)
            wait_for(lambda: b"master_link_status:up" in r("INFO", "replication"), 30)
            wait_for(lambda: int(offsets(c, b"master_repl_offset")) > 20000, 30)
        finally:
            stop.set()
            thread.join()
        wait_for(lambda: offsets(c, b"master_repl_offset") == offsets(r, b"slave_repl_offset"), 20)
        assert c.digest("a", "b", "c", "d") == r.digest("a", "b", "c", "d")
        assert not replica.log_says("does not fit")


def test_module_that_is_loaded_beside_a_replica_tells_it_all(tmp_path):
    port = PORTS.take()
    options = ["--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--enable-module-command", "yes"]
    primary = LaneServer(tmp_path, *options, "--port", str(port), name="primary", module_line=False)
    with primary, LaneServer(tmp_path, name="replica") as replica:
        c, r = primary.client(), replica.client()
        r("REPLICAOF", "127.0.0.1", port)
        wait_for(lambda: b"master_link_status:up" in r("INFO", "replication"), 30)
        c("MODULE", "LOAD", str(MODULE))
        work(c, 20, 1)
        wait_for(lambda: offsets(c, b"master_repl_offset") == offsets(r, b"slave_repl_offset"), 20)
        assert c.digest("a", "b", "c", "d") == r.digest("a", "b", "c", "d") and len(r.read("c")) > 0


# ---- LANE.READ ... PACKED ----

def read_packed(c, key, at=0, *more):
    """As LANE.READ answers without."""
    states, found = ("", "waiting", "delayed", "leased"), []
    going_on, data = c("LANE.READ", key, at, *more, "PACKED")
    while data:
        seq, name, revision, attempts, age, meta, body, state = struct.unpack_from("<Q16sIIqIII", data)
        has = 0 if "NOBODY" in more else body
        found.append([seq, name.rstrip(b"\0") and name, revision, attempts, age, data[52:52 + meta], None if "NOBODY" in more else data[52 + meta:52 + meta + has], states[state]])
        data = data[52 + meta + has:]
    return [going_on, found]


def ageless(answer):
    return [answer[0], [e[:4] + e[5:] for e in answer[1]]]


def test_packed_reading_tells_the_same(c):
    c("LANE.PUSH", 1, "lane", "DELAY", 600000, "ENTRIES", 1, 1, ident(fresh()), "later", "x")
    for n in range(20):
        c("LANE.PUT", "lane", b"b" * n * 7, ident(fresh()) if n % 3 else "", b"m" * (n % 4))
    c("LANE.TAKE", 1, "lane", "COUNT", 3)
    for more in ([], ["COUNT", 5], ["BYTES", 100], ["COUNT", 7, "NOBODY"]):
        at, seen = 0, 0
        while True:
            plain, packed = c("LANE.READ", "lane", at, *more), read_packed(c, "lane", at, *more)
            assert ageless(packed) == ageless(plain) and all(0 <= e[4] < 60000 for e in packed[1])
            at, seen = plain[0], seen + len(plain[1])
            if not at:
                break
        assert seen == 21
    assert c("LANE.READ", "nothing", 0, "PACKED") == [0, b""] == c("LANE.READ", "lane", 1 << 40, "PACKED")
