"""The relay against Postfix's own delivery programs: both empty a queue that was filled before, into the same next hop, in one run.

    postfix    mails in its incoming queue, delivered by qmgr(8) with smtp(8), to Dovecot by lmtp(8)
    dovelane   the same mails in a lane on two nodes, delivered by one relay, acked on both

Before each run nothing is delivered: Postfix's mails wait in its hold queue, and the config calls our nodes dead. A run begins when the mails
are moved to the incoming queue and qmgr is told, or when the relays hear that their nodes live. It ends when the sink's counter has
the last one; with Dovecot, when the deliverer's log has (Dovecot counts nothing). Variants take turns; figures are medians of the rounds.

Fairness: hops next hops with as many mails each, then the same with one of them in trouble (refuses connections; never answers a connection; greets
and is silent; answers each command late). The rate is that of the others' mails.
"""
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import cpu
import disk
from bench_gateway import SIZES, TUNED, groups_of, place, quiet, sink_count
from report import BUILD, median
from support.stack import Stack, StackError, resp

from support import envelope
from support.relay_world import timeouts

ABOUT = "how fast and how cheap a relay empties its lanes, against Postfix's smtp(8) and lmtp(8) with the same queue"
OPTIONS = {"rounds": 5, "mails": 10000, "dovecot_mails": 2000, "warmup": 500, "dir": "/var/tmp", "disk": "auto", "hops_to": "sink,dovecot",
           "sizes": "1 KB,10 KB", "variants": "postfix,dovelane", "fair": 5, "hops": 100, "fair_mails": 100, "users": 100}
QUICK = {"rounds": 1, "mails": 1000, "dovecot_mails": 200, "warmup": 100, "fair": 1, "fair_mails": 20}

TITLES = {"postfix": "Postfix", "dovelane": "Dovelane"}
HOPS = {"sink": "smtp-sink", "dovecot": "Dovecot LMTP"}
PATIENCE = 300
IMAGE_MB = 2048  # the mailboxes and logs of all rounds are on it as well
HEAD = ("Received: from client.example (client.example [192.0.2.1])\r\n\tby mx.stack.example (Postfix) with ESMTP id 4jWhSH0G8Sz1SS5l\r\n"
        "\tfor <{to}>; Sat, 21 Nov 2026 10:00:00 +0000 (UTC)\r\nFrom: <sender@example.com>\r\nTo: <{to}>\r\n"
        "Subject: bench\r\nDate: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-Id: <{number}@client.example>\r\n\r\n")
LINE = b"The quick brown fox jumps over the lazy dog, and the lazy dog lies.\r\n"
# The cache of connections costs smtp(8) more than it saves beside the sink, but Dovecot starts a process per connection.
POSTFIX = dict(TUNED, lmtp_connection_cache_on_demand="yes", lmtp_destination_recipient_limit=1,
               smtpd_client_restrictions="check_client_access static:HOLD")


def message(to, number, size):
    head = HEAD.format(to=to, number=number).encode()
    rest = max(0, size - len(head))
    return head + (LINE * (rest // len(LINE) + 1))[:max(0, rest - 2)] + b"\r\n"


def recipients(hop, count, users):
    domain = "sink.example" if hop == "sink" else "example.org"
    return [f"user{number % (1000 if hop == 'sink' else users)}@{domain}" for number in range(count)]


class LogCount:
    """How many lines of a growing log have a word, without reading any line twice."""

    def __init__(self, path, word):
        self.file, self.word, self.count, self.rest = open(path, "rb"), word, 0, b""
        self.file.seek(0, os.SEEK_END)

    def now(self):
        data = self.rest + self.file.read()
        whole, sign, self.rest = data.rpartition(b"\n")
        self.count += whole.count(self.word) if sign else 0
        return self.count


class SinkCount:
    def __init__(self, log):
        self.log, self.had = log, sink_count(log)[0]

    def now(self):
        return sink_count(self.log)[0] - self.had


def wait_count(counter, wanted, what, step=0.01):
    """time.time_ns() when it was reached."""
    end, seen = time.monotonic() + PATIENCE, -1
    while True:
        count = counter.now()
        if count >= wanted:
            return time.time_ns()
        if count != seen:
            seen, end = count, time.monotonic() + PATIENCE
        if time.monotonic() > end:
            raise StackError(f"{what}: {wanted - count} of {wanted} mails have not come out within {PATIENCE} s")
        time.sleep(step)


# -- the queues --------------------------------------------------------------------------------------------------------------

def fill_postfix(stack, hop, size, mails, options):
    """Into the hold queue, by SMTP."""
    load = [BUILD / "tests" / "bench" / "smtp_load", "--to", stack.smtp, "--mails", mails, "--sessions", 20, "--sizes", SIZES[size], "--domain",
            "sink.example" if hop == "sink" else "example.org", "--run", f"r{time.time_ns()}"]
    if hop == "dovecot":
        load += ["--users", options.users]
    done = subprocess.run([str(word) for word in load], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise StackError(f"filling Postfix's queue: {done.stderr.decode(errors='replace').strip()}")


def start_postfix(stack):
    """From hold to incoming, where qmgr finds them."""
    note = stack["postfix"].note
    queue = Path(note["queue_directory"])
    for name in os.listdir(queue / "hold"):
        os.rename(queue / "hold" / name, queue / "incoming" / name)
    began = time.time_ns()
    for _ in range(3):  # qmgr may close before it has read a byte; told twice, it looks twice
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trigger:
            trigger.connect(str(queue / "public" / "qmgr"))
            trigger.sendall(b"I")
    return began


def fill_lane(stack, destination, to, bytes_each, owners):
    """The same mails into the lane of both nodes."""
    lane = f"dovelane:{destination}|" + ">".join(owners)
    connections = [resp.Connection(stack.nodes[node], timeout=60) for node in owners]
    for first in range(0, len(to), 100):
        words = []
        part = to[first:first + 100]
        for number, address in enumerate(part, first):
            body = message(address, f"{number}.{time.time_ns()}", bytes_each)
            meta = envelope.encode([address], size=len(body), queue_id="4jWhSH0G8Sz1SS5l", sender="sender@example.com", host="mx.stack.example",
                                   sender_args=f"SIZE={len(body)} BODY=8BITMIME", client_name="client.example", client_addr="192.0.2.1",
                                   client_port="4711", helo="client.example", protocol="ESMTP", message_id=f"<{number}@client.example>")
            words += [1, envelope.entry_id(), meta, body]
        for connection in connections:
            connection.call("LANE.PUSH", 1, lane, "ENTRIES", len(part), *words)
    for connection in connections:
        connection.close()


def start_lanes(stack):
    began = time.time_ns()
    stack.set_dead()
    return began


def metric(stack, name, node="mx1"):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(stack[f"relay-{node}"].note["metrics"])
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)


# -- one run -----------------------------------------------------------------------------------------------------------------

def drain(stack, variant, hop, size, mails, options):
    bytes_each = int(SIZES[size])
    if variant == "postfix":
        fill_postfix(stack, hop, size, mails, options)
    else:
        stack.set_dead("mx1", "mx2")
        time.sleep(0.3)
        fill_lane(stack, stack.destinations[hop], recipients(hop, mails, options.users), bytes_each, ("mx1", "mx2"))
    deliverer = "postfix" if variant == "postfix" else "relay-mx1"
    counter = SinkCount(stack["sink-sink"].log) if hop == "sink" else LogCount(stack[deliverer].log, b"status=sent")
    services, master = groups_of(stack), stack["postfix"].pid
    services[stack["relay-mx2"].pid] = "relay2"
    time.sleep(0.5)
    before, wall = cpu.snapshot(services, master), time.monotonic()
    began = start_postfix(stack) if variant == "postfix" else start_lanes(stack)
    out = wait_count(counter, mails, f"{variant} to {HOPS[hop]}")
    if hop == "sink":
        out = sink_count(stack["sink-sink"].log)[1]
    time.sleep(0.3)  # acks, unlinked queue files
    spent, wall = cpu.used(before, cpu.snapshot(services, master)), time.monotonic() - wall
    if counter.now() > mails:
        raise StackError(f"{variant} to {HOPS[hop]}: {counter.now() - mails} mails came out twice")
    seconds = (out - began) / 1e9
    of_postfix = sum(value for group, value in spent.items() if group.startswith("postfix/"))
    return {"seconds": seconds, "rate": mails / seconds, "cpu_us": {group: 1000 * value / mails for group, value in spent.items()},
            "deliverer_us": 1000 * (of_postfix if variant == "postfix" else spent["relay"]) / mails,
            "nodes_us": 1000 * spent.get("redis", 0.0) / mails if variant == "dovelane" else 0.0,
            "others_share": spent["others"] / (wall * 1000 * os.cpu_count())}


def make_stack(directory, dovecot, **options):
    return Stack(directory, postfix="stock", nodes=2, copies=2, sinks=["sink"], dovecot=dovecot, sessions=80, postconf=POSTFIX, maxmemory="4gb",
                 settings={"dead": '{"mx1", "mx2"}'}, **options)


def measure(options):
    found = {}
    hops, sizes, variants = options.hops_to.split(","), options.sizes.split(","), options.variants.split(",")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        with make_stack(directory, "dovecot" in hops) as stack:
            for hop in hops:
                for variant in variants:
                    drain(stack, variant, hop, sizes[0], options.warmup, options)
            for number in range(options.rounds):
                for hop in hops:
                    for size in sizes:
                        for variant in variants[number % len(variants):] + variants[:number % len(variants)]:
                            result = drain(stack, variant, hop, size, options.mails if hop == "sink" else options.dovecot_mails, options)
                            found.setdefault((hop, size, variant), []).append(result)
                            print(f"  round {number + 1} {HOPS[hop]:<12} {size:<6} {variant:<9} {result['rate']:6.0f} mails/s  "
                                  f"{result['deliverer_us']:5.0f} us/mail  others' CPU {100 * result['others_share']:.0f} %", flush=True)
    return found


# -- fairness ----------------------------------------------------------------------------------------------------------------

class Trouble:
    """A next hop in one kind of trouble, at an address of its own."""

    KINDS = ("refuses", "unreachable", "silent", "slow")

    def __init__(self, kind, address="127.0.1.1"):
        self.kind, self.open = kind, []
        self.listener = socket.socket()
        self.listener.bind((address, 0))
        self.port = self.listener.getsockname()[1]
        self.hop = f"smtp:[{address}]:{self.port}"
        if kind == "refuses":
            return
        self.listener.listen(0 if kind == "unreachable" else 128)
        if kind == "unreachable":  # nobody accepts: with its queue full, further SYNs get no answer
            for _ in range(4):
                each = socket.socket()
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.connect((address, self.port))
                self.open.append(each)
        else:
            threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                each, _ = self.listener.accept()
                self.open.append(each)
                threading.Thread(target=self.serve, args=(each,), daemon=True).start()

    def serve(self, each):
        with contextlib.suppress(OSError):
            if self.kind == "silent":
                each.sendall(b"220 silent ESMTP\r\n")
                return
            each.sendall(b"220 slow ESMTP\r\n")
            stream, in_data = each.makefile("rb"), False
            for line in stream:
                verb = line.strip().upper()
                if in_data and line != b".\r\n":
                    continue
                time.sleep(0.5)
                each.sendall(b"354 go on\r\n" if verb == b"DATA" else b"250 ok\r\n")
                in_data = verb == b"DATA"

    def end(self):
        self.listener.close()
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def fair_run(kind, options):
    """mails/s of the hops that are well."""
    with Stack(postfix="none", nodes=2, copies=2, sinks=["sink:-m 4000"], maxmemory="4gb",
               settings={"dead": '{"mx1", "mx2"}', **timeouts("3s")}) as stack:
        port = stack["sink-sink"].note["address"].rpartition(":")[2]
        bad = Trouble(kind) if kind != "all well" else None
        try:
            # The sink listens on 127.0.0.1 alone; names for it make next hops of their own.
            good = [f"smtp:[{'localhost' if number == 0 else alias(number)}]:{port}" for number in range(options.hops - 1)]
            for hop in good:
                fill_lane(stack, hop, recipients("sink", options.fair_mails, 1), 1024, ("mx1", "mx2"))
            other = bad.hop if bad else f"smtp:[{alias(options.hops)}]:{port}"
            if bad:
                fill_lane(stack, other, recipients("sink", max(300, options.fair_mails), 1), 1024, ("mx1", "mx2"))
            counter, wanted = SinkCount(stack["sink-sink"].log), (options.hops - 1) * options.fair_mails
            began = start_lanes(stack)
            wait_count(counter, wanted, f"fairness, {kind}")
            out = sink_count(stack["sink-sink"].log)[1]
        finally:
            if bad:
                bad.end()
    return wanted / ((out - began) / 1e9)


def alias(number):
    """Another way to write 127.0.0.1, which the relay takes for another next hop: IPv4 in fewer parts, with zeros."""
    return "127.0.0." + "0" * number + "1"


def fairness(report, options):
    kinds = ("all well", *Trouble.KINDS)
    found = {kind: [] for kind in kinds}
    for number in range(options.fair):
        for kind in kinds[number % len(kinds):] + kinds[:number % len(kinds)]:
            found[kind].append(fair_run(kind, options))
            print(f"  fair {number + 1} {kind:<12} {found[kind][-1]:6.0f} mails/s", flush=True)
    base = median(found["all well"])
    for kind in Trouble.KINDS:
        # By rounds: what the machine does meanwhile changes more from round to round than within one.
        share = median([rate / well for rate, well in zip(found[kind], found["all well"])])
        report.row(f"{options.hops - 1} next hops beside one that {'is ' if kind in ('unreachable', 'silent', 'slow') else ''}{kind}",
                   share * base, "mails/s", "beside none", base, ">= 0.9")
    report.detail("fairness", found)


# -- the report --------------------------------------------------------------------------------------------------------------

def run(report, options):
    if os.geteuid() != 0:
        raise StackError("Postfix's master must be started by root: run this as root")
    with place(options, IMAGE_MB) as (options.dir, where):
        found = measure(options)
        if options.fair:
            fairness(report, options)
    options.dir = str(options.dir)
    results = {}
    for key, rounds in found.items():
        results[key] = {name: median([entry[name] for entry in rounds]) for name in ("rate", "deliverer_us", "nodes_us", "others_share")}
        results[key]["cpu_us"] = {group: median([entry["cpu_us"].get(group, 0.0) for entry in rounds]) for group in rounds[0]["cpu_us"]}
    for hop in options.hops_to.split(","):
        for size in options.sizes.split(","):
            ours, theirs = results.get((hop, size, "dovelane")), results.get((hop, size, "postfix"))
            goal = ">= 3" if hop == "sink" else None
            if ours and theirs:
                report.row(f"drain into {HOPS[hop]}, {size}", ours["rate"], "mails/s", "Postfix", theirs["rate"], goal)
                if hop == "dovecot":  # its own work and the kernel's for its disk, on all cores: more than that no deliverer gets out of it
                    most = 1e6 * os.cpu_count() / (ours["cpu_us"]["dovecot"] + ours["cpu_us"]["kernel"])
                    report.row(f"drain into {HOPS[hop]}, {size}", ours["rate"], "mails/s", "Dovecot alone on all cores", most, ">= 0.8")
                report.row(f"CPU of what delivers, {HOPS[hop]}, {size}", ours["deliverer_us"], "us/mail", "Postfix", theirs["deliverer_us"])
            if ours:
                report.row(f"relay, {HOPS[hop]}, {size}", ours["deliverer_us"], "us/mail",
                           goal="<= 40" if hop == "sink" and size == "1 KB" else None)
                report.row(f"both nodes' Redis, {HOPS[hop]}, {size}", ours["nodes_us"], "us/mail")
    columns = ("relay", "relay2", "redis", "sink", "dovecot", "kernel")
    report.table("Mails a second out, and CPU us per mail (postfix: all its programs; relay: the one that delivers; relay2: the other node's; redis: both nodes)",
                 ["next hop", "size", "variant", "mails/s", "postfix", *columns],
                 [[HOPS[hop], size, TITLES[variant], result["rate"], sum(v for g, v in result["cpu_us"].items() if g.startswith("postfix/")),
                   *(result["cpu_us"].get(group, 0.0) for group in columns)] for (hop, size, variant), result in results.items()])
    report.remark(f"Queue on {where}. {options.rounds} rounds of {options.mails} mails into smtp-sink, {options.dovecot_mails} into Dovecot.")
    if results:
        quiet(results, report)
    report.detail("postfix_settings", POSTFIX)
    report.detail("rounds", {", ".join(key): rounds for key, rounds in found.items()})
