"""What a lane does per second, what it weighs and how it grows, beside what one would use instead.

Every comparator runs in its best form in the same rounds, interleaved, on one connection over a UNIX socket; figures are medians of the
rounds. One transaction is one entry stored and removed again, at most `flight` bytes of entries in flight (a UNIX socket's buffer holds them), but 20
entries, and 4 of 200 KB; from 1 KB on each is tried with twice as many, too.
"""
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from support.stack.resp import Connection

ABOUT = "the lane beside memcached, Redis strings, lists and streams"
OPTIONS = {"rounds": 5, "entries": 1000000, "fill": 500000, "flight": 160000, "largest": 5000000}
QUICK = {"rounds": 1, "entries": 40000, "fill": 50000, "largest": 200000}
ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DOVELANE_BUILD") or ROOT / "build").resolve()
LOAD = BUILD / "tests" / "bench" / "lane_load"
MODULE = BUILD / "redis-module" / "lane.so"


def place(server, cores):
    """Its threads that serve: of Redis the first one, not those that free memory; of memcached all."""
    for thread in os.listdir(f"/proc/{server}/task") if "memcached" in Path(f"/proc/{server}/comm").read_text() else [server]:
        os.sched_setaffinity(int(thread), cores)


@contextmanager
def redis(folder, *more):
    """A Redis with the lane module and nothing on disk; a client for questions about it."""
    path = Path(folder) / "redis.sock"
    with subprocess.Popen([os.environ.get("DOVELANE_REDIS_SERVER") or "redis-server", "--port", "0", "--unixsocket", path, "--save", "",
                           "--appendonly", "no", "--dir", folder, "--loadmodule", MODULE, "--enable-debug-command", "yes", "--io-threads", "1",
                           *more], stdout=subprocess.DEVNULL) as server:
        try:
            yield path, connect(path), server.pid
        finally:
            server.kill()


@contextmanager
def memcached(folder):
    path = Path(folder) / "memcached.sock"
    with subprocess.Popen([shutil.which("memcached") or "/usr/bin/memcached", "-t", "1", "-m", "4096", "-I", "2m", "-u", "root", "-s", path]) as server:
        try:
            until = time.monotonic() + 10
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.01)
            yield path, server.pid
        finally:
            server.kill()


def connect(path):
    until = time.monotonic() + 10
    while True:
        try:
            return Connection(f"unix:{path}", timeout=600).call
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def load(path, do, core=None, spin=False, **options):
    words = [*([] if core is None else ["taskset", "-c", str(core)]), LOAD, "--unix", path, "--do", do, *["--spin"] * spin]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, timeout=600).stdout)


class Field:
    """The servers of one round, and what is measured with them."""

    def __init__(self, redis_path, client, redis_pid, memcached_path, memcached_pid, options):
        self.redis, self.client, self.memcached, self.options = redis_path, client, memcached_path, options
        self.pids = {redis_path: redis_pid, memcached_path: memcached_pid}

    def rate(self, do, apart, **how):
        """apart: server and client each on a core of their own, the client never asleep; else as the kernel likes."""
        path = self.memcached if do.startswith("memcached") else self.redis
        place(self.pids[path], {1} if apart else set(range(os.cpu_count())))
        if path == self.redis:
            self.client("FLUSHALL", "SYNC")
        try:
            return load(path, do, core=0 if apart else None, spin=apart, **how)["per_second"]
        finally:
            place(self.pids[path], set(range(os.cpu_count())))


@contextmanager
def field_of(folder, options):
    with tempfile.TemporaryDirectory(dir=folder) as own, redis(own) as (path, client, pid), memcached(own) as (cache, cache_pid):
        yield Field(path, client, pid, cache, cache_pid, options)


def rates(folder, options, variants):
    """Median per name of {name: [(do, options)...]}: the best of its forms counts, each on cores apart and as the kernel likes: left to
    itself it now and then puts both on one. Rounds are interleaved, and each has servers of its own: where their memory came to lie
    makes some of them faster than others for as long as they live."""
    ways = (False, True) if os.cpu_count() > 1 else (False,)
    found = {name: {(i, apart): [] for i in range(len(forms)) for apart in ways} for name, forms in variants.items()}
    for _ in range(options.rounds):
        with field_of(folder, options) as field:
            for name, forms in variants.items():
                for i, (do, how) in enumerate(forms):
                    for apart in ways:
                        found[name][i, apart].append(field.rate(do, apart, **how))
    return {name: max(statistics.median(figures) for figures in forms.values()) for name, forms in found.items()}


def window(options, size):
    return max(4 if size >= 200000 else 20, options.flight // size)


def transactions(report, folder, o):
    few = {"count": o.entries, "window": window(o, 400)}
    got = rates(folder, o, {
        "lane, 1 a command": [("lane-range", dict(few))],
        "lane, 10 a command, riding": [("lane-ride-upto", dict(few, batch=10, ack=10)), ("lane-ride-upto", dict(few, batch=10, ack=100))],
        "lane, 10 a command, ids": [("lane-ids", dict(few, batch=10, ack=100))],
        "memcached": [("memcached", dict(few)), ("memcached-quiet", dict(few, batch=10))],
        "SET+UNLINK": [("set", dict(few))],
        "RPUSH+LTRIM": [("list", dict(few, batch=10, ack=100)), ("list", dict(few, batch=10, ack=10))],
        "stream, group": [("group", dict(few))],
        "stream": [("stream", dict(few))],
    })
    for measure, name, against, goal in (
            ("0.4 KB, 1 per command, range acks of 100", "lane, 1 a command", "memcached", ">= 1.5"),
            ("0.4 KB, 1 per command, range acks of 100", "lane, 1 a command", "SET+UNLINK", ">= 1.2"),
            ("0.4 KB, 10 per command, acks ride", "lane, 10 a command, riding", "memcached", ">= 2.5"),
            ("0.4 KB, 10 per command, acks ride", "lane, 10 a command, riding", "RPUSH+LTRIM", ">= 1.2"),
            ("0.4 KB, 10 per command, acks ride", "lane, 10 a command, riding", "stream, group", ">= 5"),
            ("0.4 KB, 10 per command, acks ride", "lane, 10 a command, riding", "stream", None),
            ("0.4 KB, 10 per command, acks by ids in 100", "lane, 10 a command, ids", "memcached", ">= 1.5")):
        report.row(measure, got[name], "/s", against, got[against], goal)


def sizes(report, folder, o):
    for size, count in ((1000, o.entries), (2000, o.entries), (10000, o.entries // 4), (20000, o.entries // 8), (200000, o.entries // 80)):
        few = {"count": count, "window": window(o, size), "size": size}
        ack = min(few["window"] // 2, 100)
        ten, half, more = min(ack, 10), max(1, ack // 2), 2 * few["window"]
        got = rates(folder, o, {
            "lane": [("lane-range", dict(few, ack=ack)), ("lane-range", dict(few, batch=half, ack=ack)), ("lane-range", dict(few, batch=ten, ack=ack)),
                     ("lane-ride-upto", dict(few, batch=ten, ack=ten, window=more))],
            "memcached": [("memcached", dict(few, ack=ack)), ("memcached-quiet", dict(few, batch=half, ack=ack)),
                          ("memcached", dict(few, ack=ack, window=more)), ("memcached-quiet", dict(few, batch=half, ack=ack, window=more))],
            "SET+UNLINK": [("set", dict(few, ack=ack)), ("set", dict(few, ack=ack, window=more))]})
        for against, goal in (("memcached", ">= 2"), ("SET+UNLINK", ">= 1.0")):
            report.row(f"{size / 1000:g} KB", got["lane"], "/s", against, got[against], goal if size == 20000 else None)


def filling(report, field, folder):
    """Cold memory: a server of its own for each round."""
    o, found = field.options, {"fill-lane": [], "fill-list": []}
    for _ in range(o.rounds):
        for do, batches in found.items():
            with tempfile.TemporaryDirectory(dir=folder) as own, redis(own) as (path, _, _):
                batches.append(load(path, do, count=o.fill, size=1000, batch=10, window=100)["per_second"])
    report.row("fill cold memory, 1 KB, 10 per command", report_median(found["fill-lane"]), "/s", "RPUSH", report_median(found["fill-list"]), ">= 1.0")


def report_median(values):
    return float(statistics.median(values))


def reading(report, field):
    o, c = field.options, field.client
    found = {"block": [], "one": [], "ids": [], "stream": []}
    for _ in range(o.rounds):
        c("FLUSHALL", "SYNC")
        load(field.redis, "fill-lane", count=o.fill, size=1000, batch=10, window=1000)
        found["block"].append(load(field.redis, "read-lane", count=o.fill, batch=1000)["seconds"])
        found["one"].append(load(field.redis, "read-lane", count=o.fill // 10, batch=1)["seconds"] * 10)
        found["ids"].append(load(field.redis, "read-ids", count=o.fill, batch=10000)["seconds"])
        c("FLUSHALL", "SYNC")
        load(field.redis, "fill-stream", count=o.fill, size=1000, window=1000)
        found["stream"].append(load(field.redis, "read-stream", count=o.fill, batch=1000)["seconds"])
    got = {name: report_median(values) for name, values in found.items()}
    report.row(f"READ of {o.fill:,} x 1 KB, 1,000 a block", got["block"], "s", "one a request", got["one"], f"<= {1 / 15:.4f}")
    report.row(f"READ of {o.fill:,} x 1 KB, 1,000 a block", got["block"], "s", "XRANGE", got["stream"], "<= 1.0")
    report.row(f"IDS of {o.fill:,}, 10,000 a block", got["ids"], "s", "READ", got["block"], "<= 0.2")
    report.remark("One a request: a tenth of the entries, times ten; the next is asked for when one has come.")


def disk(report, field):
    o, c = field.options, field.client
    found = {"fill-lane": [], "fill-stream": []}
    for _ in range(o.rounds):
        for do, times in found.items():
            c("FLUSHALL", "SYNC")
            load(field.redis, do, count=o.fill, size=400, batch=10 if do == "fill-lane" else 1, window=1000)
            began = time.monotonic()
            c("DEBUG", "RELOAD")
            times.append(time.monotonic() - began)
    report.row(f"RDB save and load of {o.fill:,} x 0.4 KB", report_median(found["fill-lane"]), "s", "stream", report_median(found["fill-stream"]), "<= 1.0")


def used(c):
    c("MEMORY", "PURGE")
    return int(next(line for line in c("INFO", "memory").decode().splitlines() if line.startswith("used_memory:")).split(":")[1])


def memory(report, field):
    """By the server's own used_memory, so that allocator classes count."""
    c = field.client
    for size, count in ((400, 200000), (1000, 200000), (2000, 100000), (10000, 20000), (20000, 10000), (200000, 2000)):
        c("FLUSHALL", "SYNC")
        empty = used(c)
        load(field.redis, "fill-lane", count=count, size=size, batch=10, window=100)
        each = (used(c) - empty) / count
        if size == 400:
            report.row("memory per entry with id, body apart, 0.4 KB", each - size, "B", goal="<= 80")
        else:
            report.row(f"waste of body bytes, {size / 1000:g} KB (80 B an entry apart)", max(0.0, (each - 80 - size) / size * 100), "%", goal="<= 2")
    count, size = 200000, 1000
    c("FLUSHALL", "SYNC")
    empty = used(c)
    load(field.redis, "fill-lane", count=count, size=size, batch=10, window=100)
    live = remove_most(c, "q0")
    settled(c)
    report.row("memory after a random 90 % was removed, beside the live bytes", (used(c) - empty) / (live * size), "times", goal="<= 1.5")
    c("FLUSHALL", "SYNC")
    empty = used(c)
    load(field.redis, "fill-lane", count=10000, size=1000, lanes=10000)
    report.row("10,000 lanes of one entry of 1 KB: each beyond the body", (used(c) - empty) / 10000 - 1000, "B", goal="<= 2048")


def remove_most(c, key):
    """Removes a random nine tenths of the lane by sequences; returns how many are left."""
    import random
    import struct
    chance, at, gone = random.Random(7), 1, []
    while at:
        at, records = c("LANE.IDS", key, at, "COUNT", 100000)
        gone += [struct.unpack_from("<Q", records, i)[0] for i in range(0, len(records), 32) if chance.random() < 0.9]
    chance.shuffle(gone)
    for i in range(0, len(gone), 1000):
        c("LANE.ACK", key, "SEQS", len(gone[i:i + 1000]), *gone[i:i + 1000])
    return int(c("LANE.LEN", key))


def settled(c):
    """Waits until the server has forgotten the ids that it let go: they stand beside the lanes."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        info = c("LANE.INFO")
        if info[info.index(b"remembered") + 1] == 0:
            return
        time.sleep(0.2)
    raise RuntimeError("the server remembers ids for more than 30 s")


def growth(report, field):
    """The same work on a short and on a long lane, beside few and beside many lanes."""
    o, c = field.options, field.client
    small, large = [], []
    for _ in range(o.rounds):
        for length, figures in ((1000, small), (o.largest, large)):
            c("FLUSHALL", "SYNC")
            load(field.redis, "fill-lane", count=length, size=16, batch=10, window=1000)
            figures.append(1e6 / load(field.redis, "lane-range", count=o.entries, size=16, batch=10, ack=100, window=100)["per_second"])
    report.row(f"PUSH and ACK on a lane of {o.largest:,}", report_median(large), "us", "a lane of 1,000", report_median(small), "<= 1.1")
    few, many = [], []
    for _ in range(o.rounds):
        for lanes, figures in ((1, few), (10000, many)):
            c("FLUSHALL", "SYNC")
            load(field.redis, "fill-lane", count=lanes * 10, size=16, lanes=lanes)
            figures.append(1e6 / load(field.redis, "lane-range", count=o.entries, size=16, batch=10, ack=100, window=100)["per_second"])
    report.row("PUSH and ACK beside 10,000 lanes", report_median(many), "us", "beside 1 lane", report_median(few), "<= 1.1")


def spent(c, command, work):
    """Microseconds a call of that command, by the server's own account, for the calls that work() makes."""
    c("CONFIG", "RESETSTAT")
    work()
    line = next(line for line in c("INFO", "commandstats").decode().splitlines() if line.lower().startswith(f"cmdstat_{command}:"))
    return float(line.split("usec_per_call=")[1].split(",")[0])


def takes(c):
    """Leases 500 entries and gives them back, twenty times."""
    for _ in range(20):
        leases = [c("LANE.TAKE", 1, "q0", "COUNT", 50)[0][1] for _ in range(10)]
        for lease in leases:
            c("LANE.NACK", "q0", lease, "KEEP", 0, "UPTO", 2**62)


def changes(c, lanes, cursor):
    """Ten of the lanes become empty and get something, a hundred times; who watches, and knows the others, is told of ten."""
    for n in range(100):
        for lane in range(10):
            key = f"q{(lane * lanes // 10 + n) % lanes}"
            c("LANE.ACK", key, "UPTO", 2**62)
            c("LANE.PUT", key, "x")
        cursor, told = c("LANE.READY", cursor)
        assert len(told) == 10


def growth_of_takes(report, field):
    o, c = field.options, field.client
    figures = {name: [] for name in ("short", "long", "few", "many", "ten", "all")}
    for _ in range(o.rounds):
        for length, name in ((1000, "short"), (o.largest, "long")):
            c("FLUSHALL", "SYNC")
            load(field.redis, "fill-lane", count=length, size=16, batch=10, window=1000)
            figures[name].append(spent(c, "lane.take", lambda: takes(c)))
        for lanes, name in ((1, "few"), (10000, "many")):
            c("FLUSHALL", "SYNC")
            load(field.redis, "fill-lane", count=lanes * 10, size=16, lanes=lanes)
            load(field.redis, "fill-lane", count=1000, size=16)
            figures[name].append(spent(c, "lane.take", lambda: takes(c)))
        for lanes, name in ((10, "ten"), (10000, "all")):
            c("FLUSHALL", "SYNC")
            load(field.redis, "fill-lane", count=lanes, size=16, lanes=lanes)
            cursor = c("LANE.READY", 0, "COUNT", 100000)[0]
            figures[name].append(spent(c, "lane.ready", lambda: changes(c, lanes, cursor)))
    report.row(f"TAKE of 50 on a lane of {o.largest:,}", report_median(figures["long"]), "us", "a lane of 1,000", report_median(figures["short"]), "<= 1.1")
    report.row("TAKE of 50 beside 10,000 lanes", report_median(figures["many"]), "us", "beside 1 lane", report_median(figures["few"]), "<= 1.1")
    report.row("READY after 10 changes, of 10,000 lanes", report_median(figures["all"]), "us", "of 10 lanes", report_median(figures["ten"]), "<= 2")


def stalls(report, field):
    """The longest time that one command kept the server, by its own slow log."""
    c, o = field.client, field.options
    c("CONFIG", "SET", "slowlog-log-slower-than", 200)
    c("CONFIG", "SET", "slowlog-max-len", 1000)
    worst = {}

    def longest(name, work):
        c("SLOWLOG", "RESET")
        work()
        worst[name] = max([int(row[2]) for row in c("SLOWLOG", "GET", 1000) if row[3][0].upper().startswith((b"LANE.", b"UNLINK", b"RENAME", b"COPY"))], default=0) / 1000

    def fill():
        c("FLUSHALL", "SYNC")
        load(field.redis, "fill-lane", count=1000000, size=100, batch=100, window=1000)

    fill()
    longest("UNLINK of 1,000,000 entries", lambda: c("UNLINK", "q0"))
    fill()
    longest("RESET of 1,000,000 entries", lambda: c("LANE.RESET", "q0"))
    for words in (["UNLINK", "q0"], ["RENAME", "q0", "q1"], ["LANE.RESET", "q0"]):
        fill()
        holder = connect(field.redis)
        for _ in range(100):
            holder("LANE.TAKE", 1, "q0", "COUNT", 9990)
        for _ in range(1000):
            holder("LANE.TAKE", 1, "q0")
        longest(f"{words[0]} of 1,000,000 entries, all leased", lambda: c(*words))
    longest("PUSH of 1 MB a command", lambda: load(field.redis, "fill-lane", count=20000, size=1000, batch=1000, window=10000))
    longest("READ of 1 MB a command", lambda: load(field.redis, "read-lane", count=20000, batch=1000))

    def moved(command):
        """1,000 entries of 1 KB at once, of 20,000; the lane has as many after it."""
        for _ in range(20):
            key, lease, entries = c("LANE.TAKE", 1, "q0", "COUNT", 1000)[0]
            seqs = [entry[0] for entry in entries]
            if command == "NACK":
                c("LANE.NACK", key, lease, "RETRY", 0, "SEQS", len(seqs), *seqs)
                continue
            c("LANE.NACK", key, lease, "KEEP", 0, "UPTO", seqs[-1])
            c("LANE.MOVE", "q0", "other", "UPTO", seqs[-1])
            if command == "COPY":
                c("COPY", "other", "copy", "REPLACE")
            c("LANE.ACK", "other", "UPTO", 2**62)
            load(field.redis, "fill-lane", count=1000, size=1000, batch=100)

    for name in ("TAKE and NACK", "MOVE and ACK", "MOVE and COPY"):
        c("FLUSHALL", "SYNC")
        load(field.redis, "fill-lane", count=20000, size=1000, batch=100, window=1000)
        longest(f"{name} of 1 MB", lambda: moved(name.split(" and ")[1] if name != "MOVE and ACK" else "MOVE"))
    for name, value in worst.items():
        report.row(f"longest command: {name}", value, "ms", goal="<= 2")
    c("CONFIG", "SET", "slowlog-log-slower-than", -1)


def run(report, options):
    folder = tempfile.mkdtemp(prefix="bench-lane-")
    try:
        report.versions["memcached"] = subprocess.run(["memcached", "-V"], capture_output=True, text=True, check=True).stdout.strip()
        transactions(report, folder, options)
        sizes(report, folder, options)
        with field_of(folder, options) as field:
            filling(report, field, folder)
            reading(report, field)
            disk(report, field)
            memory(report, field)
            growth(report, field)
            growth_of_takes(report, field)
            stalls(report, field)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.remark(f"Medians of {options.rounds} rounds, interleaved; at most {options.flight // 1000} KB of entries in flight (but 20 entries, and 4 of 200 KB); "
                  "memcached with and without replies (meta commands). "
                  "Of each, the best form counts, and the better of two placements: server and client on a core each and the client never asleep, or both as the "
                  "kernel likes. The rates come from new servers in each round.")
