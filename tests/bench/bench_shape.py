"""What rules of `shape` hold a group to (docs/shape.md), beside what they say.

    rates     1, 10 and 10,000 mails a second over 1, 2, 3 relays; with 2 and 3 the node that counts is killed with -9
    beside    100 next hops with few mails each, beside one with very many, and beside none
    feedback  a next hop that accepts 10 connections: the stock window, other steps, a line of the rules file
    cost      CPU of a relay for a mail: no rules; a rule for another next hop; a rule for this one
    lanes     many next hops with many mails each, delivered to the last one

Next hops are addresses of 127.0.0.0/8 of shape_hop.c, which writes down when it answered each mail with 250.
"""
import contextlib
import mmap
import os
import re
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import cpu
from report import BUILD, median
from support.stack import Stack, StackError, resp

from support import envelope
from support.waiting import eventually

ABOUT = "rates, fairness and connections that rules ask for, against what next hops see"
OPTIONS = {"relays": "1,2,3", "fast": 10000, "many": 100000, "few": 100, "feedback": 20000, "cost": 50000, "rounds": 3, "lanes": 1000, "each": 1000,
           "parts": "rates,beside,feedback,cost,lanes"}
QUICK = {"relays": "1,2", "many": 20000, "feedback": 5000, "cost": 10000, "rounds": 1, "lanes": 100, "each": 100}

AUTOMATIC = {"takeover": "automatic", "beat": "200ms", "suspect_after": "1s", "dead_after": "3s", "alone_wait": "4s", "restless_most": "3s",
             "return_max": "1s", "compare_every": "10min", "settle": "1300ms", "store_deadline": "600ms", "max_entry": "1MB", "lane_time": "24h", "spill_above": 95}
SPARE = 6           # next hops of each slow rate: one of them is counted on the node that is killed
PATIENCE, SLOWEST = 300, 500    # seconds without a mail's time; and mails/s: below that it hangs
ENTRY = 600         # bytes of an entry in a node's memory, at most


class Hops:
    """shape_hop, and what it wrote."""

    def __init__(self, directory, ports, count, records, most=0):
        self.count, self.path = count, Path(directory) / "hops"
        self.port = ports.take()
        self.addresses = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]
        command = [BUILD / "tests/bench/shape_hop", self.path, self.port, records, most, *self.addresses]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            raise StackError("shape_hop did not start")
        with open(self.path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def name(self, hop):
        return f"smtp:[{self.addresses[hop]}]:{self.port}"

    def mails(self):
        return struct.unpack_from("=Q", self.map)[0]

    def refused(self, hop=0):
        """(connections refused, most that were open)"""
        return struct.unpack_from("=QQ", self.map, 8 + 16 * hop)

    def records(self):
        """(seconds, next hop, number) of each mail, in the order of their 250s."""
        words = struct.unpack_from(f"={2 * self.mails()}Q", self.map, 8 + 16 * self.count)
        return [(at / 1e9, what >> 32, what & 0xffffffff) for at, what in zip(words[::2], words[1::2])]

    def wait(self, mails, what):
        eventually(what, lambda: self.mails() >= mails, PATIENCE + mails // SLOWEST, 0.02)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.map.close()


@contextlib.contextmanager
def world(nodes, hops, records, most=0, **settings):
    """A group whose relays are there, and next hops."""
    memory = max(4, 1 + records * ENTRY // 2 ** 30)
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        stack = Stack(Path(directory) / "stack", postfix="none", nodes=nodes, copies=min(2, nodes), maxmemory=f"{memory}gb", settings=settings)
        peer = Hops(directory, stack.ports, hops, records, most)
        try:
            with stack:
                yield stack, peer
        finally:
            peer.end()


def fill(stack, hops, hop, mails):
    """So many mails for a next hop from each node of the group, numbered."""
    names, meta = sorted(stack.nodes), envelope.encode(["user@next.example"], size=64, host="mx.stack.example")
    connections = {node: resp.Connection(address, timeout=60) for node, address in stack.nodes.items()}
    for index, node in enumerate(names):
        owners = list(dict.fromkeys([node, names[(index + 1) % len(names)]]))
        lane = f"dovelane:{hops.name(hop)}|" + ">".join(owners)
        for first in range(0, mails, 500):
            words = []
            for number in range(index * mails + first, index * mails + min(mails, first + 500)):
                words += [1, envelope.entry_id(), meta, f"X-Number: {number}\r\nSubject: bench\r\n\r\nHello.\r\n".encode()]
            for owner in reversed(owners):
                connections[owner].call("LANE.PUSH", 1, lane, "ENTRIES", len(words) // 4, *words)
    for connection in connections.values():
        connection.close()


def shapes(stack, rules):
    """All relays obey these from now on."""
    stack.configure(shapes=rules)
    for service in stack.services.values():
        if service.name.startswith("relay-") and service.pid:
            service.send(signal.SIGHUP)


def alive(stack):
    for node in stack.nodes:
        path = Path(stack[f"relay-{node}"].log)
        eventually(f"{node} is alive", lambda path=path: re.search(r"(?m)info: alive|alive$|alive, though", path.read_text(errors="replace")), PATIENCE)


# -- rates -------------------------------------------------------------------------------------------------------------------

def counts(stack, name):
    """Whose Redis counts for that next hop."""
    for node, address in stack.nodes.items():
        with contextlib.suppress(OSError), resp.Connection(address, timeout=10) as connection:
            if connection.call("EXISTS", f"dovelane.bucket:{name}"):
                return node
    return None


def within(times, begin, seconds):
    return sum(begin <= at < begin + seconds for at in times)


def fullest(times, seconds):
    """Most mails of any stretch of so many seconds."""
    most, first = 0, 0
    for index, at in enumerate(times):
        while at - times[first] > seconds:
            first += 1
        most = max(most, index - first + 1)
    return most


def rate_group(nodes, options):
    """[(rate, what, mails/s, the fullest 10 s against burst and rate)] of one group."""
    rates = {0: options.fast, 1: options.fast, **{2 + n: 10 for n in range(SPARE)}, **{2 + SPARE + n: 1 for n in range(SPARE)}}
    mails = {rate: int(rate * seconds / nodes) + 200 for rate, seconds in ((options.fast, 30), (10, 90 * nodes), (1, 90 * nodes))}
    records = 4 * options.fast * 30 + 100000
    held = ("*", {"suspend": "filling"})
    with world(nodes, len(rates), records, shapes=[held], destination_in_flight=5000, **(AUTOMATIC if nodes > 1 else {})) as (stack, hops):
        if nodes > 1:
            alive(stack)
        for hop, rate in rates.items():
            if hop != 1 or nodes > 1:
                fill(stack, hops, hop, mails[rate])
        rules = [(hops.name(hop), {"rate": f"{rate}/s"}) for hop, rate in rates.items()]
        shapes(stack, [*(rule for hop, rule in enumerate(rules) if hop != 1), (hops.name(1), {"suspend": "later"})])
        began = time.monotonic()
        eventually("each has its first mail", lambda: started(hops, rates), PATIENCE, 0.5)
        time.sleep(33)
        victim = killed = None
        if nodes > 1:
            shapes(stack, rules)
            time.sleep(4)
            victim = counts(stack, hops.name(1))
            if victim is None:
                raise StackError("no node counts the rate of 10,000/s")
            chosen = {rates[hop]: hop for hop in reversed(rates) if hop and counts(stack, hops.name(hop)) == victim}
            killed = time.monotonic()
            stack.kill(f"redis-{victim}")
            stack.kill(f"relay-{victim}")
            time.sleep(32)
        found, end = hops.records(), time.monotonic()
    print(*(f"    {rate}/s: {number} mails, the first after {first - began:.2f} s, the last {end - last:.2f} s before the end"
            for rate, number, first, last in spans(found, rates)), sep="\n", flush=True)
    return judged(found, nodes, rates, killed, chosen if killed else {}, end, options)


def spans(found, rates):
    """(rate, mails, the first, the last) of each next hop that got mail."""
    for hop, rate in rates.items():
        times = [at for at, which, _ in found if which == hop]
        if times:
            yield rate, len(times), times[0], times[-1]


def started(hops, rates):
    """All but the second fast one, which is suspended."""
    return {hop for _, hop, _ in hops.records()} >= rates.keys() - {1}


def judged(found, nodes, rates, killed, chosen, end, options):
    times = {hop: [at for at, which, _ in found if which == hop] for hop in rates}
    lines = []
    for rate in (1, 10, options.fast):
        hop = next(hop for hop, value in rates.items() if value == rate)
        seconds = 30 if rate == 1 else 10
        if not times[hop]:
            raise StackError(f"no mail came at {rate}/s")
        if times[hop][0] + 1 + seconds > (killed or end):
            raise StackError(f"{rate}/s over {nodes}: its mail came too late to be measured for {seconds} s")
        whole = [at for at in times[hop] if at < (killed or end)]
        lines.append((rate, nodes, "", within(whole, whole[0] + 1, seconds) / seconds,
                      fullest(whole, 10) / (rate + 10 * rate), fullest(whole, 1) / (2 * rate)))
        if killed and rate in chosen:
            mine = times[chosen[rate]]
            after = [killed, *(at for at in mine if killed <= at < killed + seconds), killed + seconds]
            print(f"    {rate}/s after the kill: each second {[within(mine, killed + n, 1) for n in range(10)]}, "
                  f"longest pause {max(b - a for a, b in zip(after, after[1:])):.2f} s", flush=True)
            lines.append((rate, nodes, ", killed", within(mine, killed, seconds) / seconds,
                          fullest(mine, 10) / (rate + 10 * rate), fullest(mine, 1) / (2 * rate)))
    return lines


def rates_part(report, options):
    lines = []
    for nodes in map(int, options.relays.split(",")):
        lines += rate_group(nodes, options)
        print(*(f"  {rate}/s over {n}{kill}: {value:.2f}/s, fullest 10 s {most:.3f}" for rate, n, kill, value, most, _ in lines if n == nodes), sep="\n", flush=True)
    for rate, nodes, kill, value, most, second in lines:
        what = f"{rate:,}/s over {nodes} relay{'s' if nodes > 1 else ''}{kill}"
        report.row(f"{what}: least", value, "mails/s", "the rule", rate, ">= 0.95")
        report.row(f"{what}: most", value, "mails/s", "the rule", rate, "<= 1.05")
        report.row(f"{what}: fullest 10 s, of burst and rate", most, "", goal="<= 1.05")
        report.row(f"{what}: fullest second, of burst and rate", second, "")
    report.remark("Rates: 10 s, with 1/s 30 s; killed: from the kill on. The burst is what comes in one second. All rates run at a time.")


# -- beside one with very many -----------------------------------------------------------------------------------------------

def beside_run(many, options):
    """mails/s of the hundred, and the other's part of all mails until they were out."""
    with world(1, 101, 101 * options.few + many + 1000, dead='{"mx1"}') as (stack, hops):
        for hop in range(100):
            fill(stack, hops, hop, options.few)
        if many:
            fill(stack, hops, 100, many)
        began = time.monotonic()
        stack.set_dead()
        few = 100 * options.few
        eventually("the hundred have theirs", lambda: sum(hop < 100 for _, hop, _ in hops.records()) >= few, PATIENCE, 0.5)
        found = hops.records()
    last = max(at for at, hop, _ in found if hop < 100)
    others = sum(hop == 100 and at <= last for at, hop, _ in found)
    return few / (last - began), others / (others + few)


def beside_part(report, options):
    found = {many: [] for many in (0, options.many)}
    for number in range(options.rounds):
        for many in (0, options.many) if number % 2 == 0 else (options.many, 0):
            found[many].append(beside_run(many, options))
            print(f"  100 next hops beside {many:,}: {found[many][-1][0]:.0f}/s, the other's part {found[many][-1][1]:.3f}", flush=True)
    report.row(f"100 next hops with {options.few:,} mails each, beside one with {options.many:,}", median([rate for rate, _ in found[options.many]]),
               "mails/s", "beside none", median([rate for rate, _ in found[0]]), ">= 0.9")
    report.row("that one's part of all mails meanwhile", median([part for _, part in found[options.many]]), "")


# -- ten connections ---------------------------------------------------------------------------------------------------------

FEEDBACK = {"the stock window": {}, "feedback 1/concurrency, 1": {"feedback_positive": "1/concurrency", "feedback_negative": "1"},
            "feedback 1/sqrt_concurrency, 1/concurrency": {"feedback_positive": "1/sqrt_concurrency", "feedback_negative": "1/concurrency"},
            "a line of the rules file": {"backoff": "yes"}}


def feedback_run(words, options):
    """(mails/s, connections refused for 1,000 mails, most open)"""
    with tempfile.NamedTemporaryFile("w", suffix=".rules") as rules:
        rules.write('421 * "too many connections" connections 0.5 1h\n')
        rules.flush()
        more = {"shapes": [("*", words)]} if words else {}
        with world(1, 1, options.feedback + 1000, 10, dead='{"mx1"}', retry_first="200ms", retry_most="1s", backoff_rules=rules.name, **more) as (stack, hops):
            fill(stack, hops, 0, options.feedback)
            began = time.monotonic()
            stack.set_dead()
            hops.wait(options.feedback, "all mails are out")
            last, (refused, most) = hops.records()[-1][0], hops.refused()
    return options.feedback / (last - began), 1000 * refused / options.feedback, most


def feedback_part(report, options):
    for title, words in FEEDBACK.items():
        rate, refused, most = feedback_run(words, options)
        print(f"  10 connections, {title}: {rate:.0f}/s, {refused:.1f} refused for 1,000 mails, most {most}", flush=True)
        report.row(f"a next hop that accepts 10 connections, {title}", rate, "mails/s")
        report.row(f"refused there, {title}", refused, "connections for 1,000 mails")


# -- cost, and many lanes ----------------------------------------------------------------------------------------------------

def cost_run(rules, options):
    """CPU us of the relay for a mail."""
    with world(1, 2, options.cost + 1000, dead='{"mx1"}') as (stack, hops):
        fill(stack, hops, 0, options.cost)
        if rules:
            stack.configure(shapes=[(hops.name(hop), words) for hop, words in rules.items()])
        groups = {stack["relay-mx1"].pid: "relay"}
        before = cpu.snapshot(groups)
        stack.set_dead()
        hops.wait(options.cost, "all mails are out")
        time.sleep(0.3)
        return 1000 * cpu.used(before, cpu.snapshot(groups))["relay"] / options.cost


def cost_part(report, options):
    kinds = {"no rule": {}, "a rule for another next hop": {1: {"rate": "1/s"}}, "a rate that is not reached": {0: {"rate": "1000000/s"}}}
    found = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        order = list(kinds)
        for kind in order[number % 3:] + order[:number % 3]:
            found[kind].append(cost_run(kinds[kind], options))
            print(f"  cost, {kind}: {found[kind][-1]:.1f} us/mail", flush=True)
    for kind in list(kinds)[1:]:
        report.row(f"CPU of a relay, {kind}", median(found[kind]), "us/mail", "no rule", median(found["no rule"]),
                   "<= 1.05" if "another" in kind else None)
    report.detail("cost", found)


def used_memory(stack):
    """Bytes that the only node's Redis uses."""
    with resp.Connection(stack.nodes["mx1"], timeout=60) as connection:
        return int(re.search(rb"used_memory:(\d+)", connection.call("INFO", "memory"))[1])


def lanes_part(report, options):
    wanted = options.lanes * options.each
    with world(1, options.lanes, wanted + 1000, dead='{"mx1"}') as (stack, hops):
        empty, began = used_memory(stack), time.monotonic()
        for hop in range(options.lanes):
            fill(stack, hops, hop, options.each)
        held, filled = (used_memory(stack) - empty) / wanted, time.monotonic() - began
        print(f"  {wanted:,} mails stored in {filled:.0f} s, {held:.0f} bytes of memory each", flush=True)
        began = time.monotonic()
        stack.set_dead()
        hops.wait(wanted, "all lanes are empty")
        found = hops.records()
    different = len({(hop, number) for _, hop, number in found})
    seconds = found[-1][0] - began
    report.row(f"{options.lanes:,} next hops with {options.each:,} mails each", wanted / seconds, "mails/s")
    report.row("memory of a waiting mail of some 50 bytes", held, "bytes")
    report.row("mails that came, of those stored", different / wanted, "", goal=">= 1")
    print(f"  {options.lanes:,} lanes: {wanted / seconds:.0f}/s, {len(found) - different} twice", flush=True)


PARTS = {"rates": rates_part, "beside": beside_part, "feedback": feedback_part, "cost": cost_part, "lanes": lanes_part}


STORED, SENT, START = 10000, 5000, 8      # mails/s into lanes, and out of them; seconds until a group is there. For the announcement alone


def seconds_of(options):
    """About how long each part takes on two cores."""
    def took(mails):
        return mails / STORED + mails / SENT + START
    groups = [int(nodes) for nodes in options.relays.split(",")]
    return {"rates": sum(37 + (45 if nodes > 1 else 0) + (60 if nodes > 1 else 30) * options.fast / STORED + START for nodes in groups),
            "beside": options.rounds * (took(100 * options.few) + took(100 * options.few) + options.many / STORED),
            "feedback": len(FEEDBACK) * took(options.feedback), "cost": 3 * options.rounds * took(options.cost), "lanes": took(options.lanes * options.each)}


def run(report, options):
    parts = options.parts.split(",")
    for name in parts:
        if name not in PARTS:
            raise StackError(f"parts={name}: there is {', '.join(PARTS)}")
    seconds = seconds_of(options)
    print(f"bench shape takes about {sum(seconds[name] for name in parts) / 60:.0f} minutes: "
          + ", ".join(f"{name} {seconds[name] / 60:.1f}" for name in parts) + ". parts=NAME,... measures some of it", flush=True)
    for name in parts:
        PARTS[name](report, options)
    report.remark(f"Load average {report.machine['load_at_start']:.1f} at the start, {os.getloadavg()[0]:.1f} at the end.")
