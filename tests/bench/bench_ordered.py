"""What order costs (docs/takeover/order.md, "Order"): mail in lanes of two nodes, delivered by one relay to smtp-sink, acked on both.

    next hops   so many next hops (names of one sink) with so many mails each: in ordered lanes, one mail of each in flight, and in lanes that are spread
    depth       one ordered lane with so many mails: how many leave in a window of so many seconds, from a full lane and from a short one
    origins     the short one again, its mails in lanes of eight origins: what one next hop takes from eight hosts

Before each run the relay does not run; the time is from its start to the sink's last count. Variants take turns; figures are medians of the rounds.
"""
import os
import tempfile
import time

from bench_gateway import sink_count
from bench_recovery import wait
from report import median
from support.stack import Stack, StackError, lanes, resp

from support import envelope

ABOUT = "what ordered destinations cost: a thousand of them, and a million mails in one lane"
OPTIONS = {"hops": 1000, "hop_mails": 20, "rounds": 3, "deep": 1000000, "short": 20000, "window": 10, "dir": "/var/tmp"}
QUICK = {"hops": 50, "rounds": 1, "deep": 20000, "short": 5000, "window": 2}

SETTINGS = {"lane_time": "24h", "spill_above": 95}
BODY = b"Subject: bench\r\n\r\n" + b"The quick brown fox jumps over the lazy dog.\r\n" * 6
NODES = ("mx1", "mx2")


def alias(number):
    """Another way to write 127.0.0.1, which the relay takes for another next hop: IPv4 with zeros."""
    return f"127.{'0' * (1 + number // 100)}.{'0' * (1 + number // 10 % 10)}.{'0' * (number % 10)}1"


def push(stack, names, mails):
    """So many mails into each of these lanes, on both nodes."""
    meta = envelope.encode(["user@sink.example"], size=len(BODY), host="mx.stack.example")
    for name in names:
        for first in range(0, mails, 1000):
            ids = [envelope.entry_id() for _ in range(first, min(mails, first + 1000))]
            for node in NODES:
                with resp.Connection(stack.nodes[node], timeout=60) as connection:
                    connection.call("LANE.PUSH", 1, name, "ENTRIES", len(ids), *(word for entry in ids for word in (1, entry, meta, BODY)))


def counted(stack):
    return sink_count(stack["sink-sink"].log)[0]


def drain(stack, mails):
    """Seconds until the relay has delivered them all."""
    before, began = counted(stack), time.monotonic()
    stack.start("relay-mx1")
    _, ended = wait("all are delivered", lambda: counted(stack) - before >= mails, 0.01)
    wait("all are acked", lambda: not any(lanes.length(stack.nodes[node]) for node in NODES))
    stack.kill("relay-mx1")
    return ended - began


def window(stack, seconds):
    """Mails a second, from the first delivered one on."""
    first = counted(stack)
    stack.start("relay-mx1")
    wait("the first ones are delivered", lambda: counted(stack) - first >= 100, 0.01)
    before, began = counted(stack), time.monotonic()
    time.sleep(seconds)
    after, ended = counted(stack), time.monotonic()
    stack.kill("relay-mx1")
    return (after - before) / (ended - began)


def empty(stack):
    for node in NODES:
        with resp.Connection(stack.nodes[node], timeout=60) as connection:
            connection.call("FLUSHALL")


def run(report, options):
    generation = int(time.time() * 1000)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        with Stack(directory, postfix="none", nodes=2, copies=2, sinks=["sink:-m 4000"], maxmemory="4gb", settings=SETTINGS, relays=False) as stack:
            port = stack.destinations["sink"].rpartition(":")[2]
            spread = [f"dovelane:smtp:[{alias(number)}]:{port}|mx1>mx2" for number in range(options.hops)]
            one, eight = f"{spread[0]}|mx1.{generation}", [f"{spread[0]}|mx{k}.{generation}" for k in range(8)]
            times = {"ordered": [], "spread": []}
            rates = {"deep": [], "short": [], "origins": []}
            for _ in range(options.rounds):
                for kind in times:
                    push(stack, [f"{name}|mx1.{generation}" for name in spread] if kind == "ordered" else spread, options.hop_mails)
                    times[kind].append(drain(stack, options.hops * options.hop_mails))
            for _ in range(options.rounds):
                push(stack, [one], options.short * options.window // 2)
                rates["short"].append(window(stack, options.window / 2))
                empty(stack)
                push(stack, eight, options.short * options.window // 4)
                rates["origins"].append(window(stack, options.window / 2))
                empty(stack)
            push(stack, [one], options.deep)
            for _ in range(options.rounds):
                rates["deep"].append(window(stack, options.window))
            left = lanes.length(stack.nodes["mx1"])
            if not left:
                raise StackError("the deep lane was empty before its time: more mails, or a shorter window")
    total = options.hops * options.hop_mails
    report.table(f"{options.hops:,} next hops with {options.hop_mails} mails each", ["lanes", "s", "mails/s"],
                 [[kind, median(values), total / median(values)] for kind, values in times.items()])
    report.row(f"{options.hops:,} ordered next hops to as many that are spread, time", median(times["ordered"]) / median(times["spread"]), "x")
    report.table("One ordered lane", ["holds", "mails/s"], [[f"{options.deep:,} ({left:,} at the end)", median(rates["deep"])], [f"{options.short * options.window // 2:,}", median(rates["short"])],
                                                           ["eight origins", median(rates["origins"])]])
    report.row(f"one ordered lane with {options.deep:,} mails, rate to a short one's", median(rates["deep"]) / median(rates["short"]), "x")
    report.detail("times", times)
    report.detail("rates", rates)
    report.remark("smtp-sink, both servers and the relay share this machine's cores. The sink counts in steps, so a rate is good to a few percent.")
