"""What a lost node costs (docs/takeover.md): how long until an emptied node holds again what it held, and until a dead node's mail is out.

Two nodes with takeover = automatic, and a lane of mx1's with `mails` mails of 1 KB on both; its next hop is away.

    refill     FLUSHALL on mx1. The relay compares (ids and revisions of all lanes of both), fetches the bodies in blocks of so many mails, and is whole.
               The time is the relay's own, from the first list to the last answer; the wait for `settle` before it is a setting.
    takeover   relay and Redis of mx1 are killed, and the next hop comes back. Noticed: mx2 says that mx1 is dead (dead_after is a setting).
               Leased: the last mail of the lane has come into mx2's hand. Delivered: the sink has counted the last.
"""
import os
import re
import tempfile
import time
from pathlib import Path

from bench_gateway import sink_count
from report import median
from support.stack import Stack, StackError, lanes, resp

from support import envelope
from support.waiting import eventually

ABOUT = "how long a refill of an emptied node, and the takeover of a dead one, take"
OPTIONS = {"mails": 500000, "taken": 500000, "blocks": "1,10,100,1000", "rounds": 3, "dir": "/var/tmp"}
QUICK = {"mails": 20000, "taken": 20000, "rounds": 1}

SETTINGS = {"takeover": "automatic", "alone_wait": "0s", "dead_after": "7s", "compare_every": "10min", "lane_time": "24h", "spill_above": 95}
BODY = b"Subject: bench\r\n\r\n" + b"The quick brown fox jumps over the lazy dog.\r\n" * 22
PATIENCE = 600


def wait(what, condition, step=0.02):
    """Its value, and when it came true."""
    return eventually(what, condition, PATIENCE, step), time.monotonic()


class Log:
    """What a relay says from here on."""

    def __init__(self, stack, node):
        self.path = Path(stack[f"relay-{node}"].log)
        self.at = self.path.stat().st_size

    def find(self, pattern):
        with open(self.path, "rb") as file:
            file.seek(self.at)
            return re.search(pattern, file.read().decode(errors="replace"))

    def wait(self, pattern):
        return wait(pattern, lambda: self.find(pattern))


def fill(stack, destination, mails):
    lane = f"dovelane:{destination}|mx1>mx2"
    connections = [resp.Connection(stack.nodes[node], timeout=60) for node in ("mx1", "mx2")]
    for first in range(0, mails, 500):
        words = []
        for _ in range(first, min(mails, first + 500)):
            words += [1, envelope.entry_id(), envelope.encode(["user@sink.example"], size=len(BODY), host="mx.stack.example"), BODY]
        for connection in connections:
            connection.call("LANE.PUSH", 1, lane, "ENTRIES", len(words) // 4, *words)
    for connection in connections:
        connection.close()
    return lane


def healthy(stack):
    def look():
        texts = {}
        for node in ("mx1", "mx2"):
            with resp.Connection(stack.nodes[node]) as connection:
                beats, sets = connection.call("LANE.BEAT")
            texts |= {beat[0].decode(): beat[4].decode() for beat in beats}
            if len(sets) != 2:
                return False
        return all("state=alive" in texts.get(node, "") and "+" not in texts[node] for node in ("mx1", "mx2"))
    wait("both nodes are alive and whole", look, 0.2)


def refill(stack, mails, block):
    """(seconds, what was fetched)"""
    stack.configure(refill_block=block)
    stack["relay-mx1"].send(1)
    log = Log(stack, "mx1")
    with resp.Connection(stack.nodes["mx1"], timeout=60) as connection:
        connection.call("FLUSHALL")
    found, _ = log.wait(r"compared with mx2: (\d+) entries fetched .* in ([\d.]+) s")
    if int(found[1]) != mails or lanes.length(stack.nodes["mx1"]) != mails:
        raise StackError(f"refilled with {found[1]} of {mails} mails")
    return float(found[2])


def takeover(stack, mails, lane):
    """Seconds from the kill until the death is noticed; from then on until the last mail is leased, and delivered."""
    log, before = Log(stack, "mx2"), sink_count(stack["sink-sink"].log)[0]
    stack.start("sink-sink")
    killed = time.monotonic()
    stack.kill("relay-mx1")
    stack.kill("redis-mx1")
    _, noticed = log.wait("node mx1 is dead")
    connection = resp.Connection(stack.nodes["mx2"], timeout=60)

    def none_left():
        try:
            words = connection.call("LANE.INFO", lane)
        except resp.RedisError:  # NOLANE: it was acked to its end
            words = []
        info = dict(zip(words[0::2], words[1::2]))
        return not words or info[b"waiting"] + info[b"delayed"] == 0
    _, leased = wait("all are leased", none_left)
    _, delivered = wait("all are delivered", lambda: sink_count(stack["sink-sink"].log)[0] - before >= mails)
    connection.close()
    return noticed - killed, leased - noticed, delivered - noticed


def run(report, options):
    blocks = [int(block) for block in options.blocks.split(",")]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        with Stack(directory, postfix="none", nodes=2, copies=2, sinks=["sink"], maxmemory="4gb", settings=SETTINGS) as stack:
            stack.kill("sink-sink")
            healthy(stack)
            fill(stack, stack.destinations["sink"], options.mails)
            times = {block: [] for block in blocks}
            for _ in range(options.rounds):
                for block in blocks:
                    times[block].append(refill(stack, options.mails, block))
        lines = []
        for block in blocks:
            seconds = median(times[block])
            goal = "<= 2.5 s" if block == 1000 and options.mails == 500000 else None
            report.row(f"refill of {options.mails:,} x 1 KB, {block:,} a block", seconds, "s", goal=goal)
            lines.append([f"{block:,}", seconds, options.mails / seconds, options.mails * len(BODY) / seconds / 1e6])
        report.table("Refill of an emptied node", ["mails a block", "s", "mails/s", "MB/s"], lines)
        report.detail("refill", times)
        with Stack(directory, postfix="none", nodes=2, copies=2, sinks=["sink"], maxmemory="4gb", settings=SETTINGS) as stack:
            stack.kill("sink-sink")
            healthy(stack)
            lane = fill(stack, stack.destinations["sink"], options.taken)
            noticed, leased, delivered = takeover(stack, options.taken, lane)
    report.table(f"Takeover of a dead node with {options.taken:,} x 1 KB", ["death noticed after", "then all leased", "then all delivered", "mails/s"],
                 [[f"{noticed:.1f} s", f"{leased:.1f} s", f"{delivered:.1f} s", options.taken / delivered]])
    report.row("death noticed (dead_after = 7 s)", noticed, "s")
    report.row(f"last of {options.taken:,} mails leased by the taker, after that", leased, "s")
    report.row(f"last of {options.taken:,} mails delivered to smtp-sink, after that", delivered, "s")
    report.remark("Refill: both servers and the relay share this machine's cores; the relay parses and writes each mail once. refill_rate is at its default (1 GB/s).")
