"""What it costs that a mail leaves the lanes when it is on the disks of two sites (until = replicated), against when one Dovecot has it (delivered).

Postfix with dovelane-milter, two nodes with relays, two Dovecot sites; the sender is smtp_load. One system for each of both settings, turn by turn; an idle one
waits. What one site opens to the other one's Redis goes through a proxy that makes the round trip (`trips`, milliseconds), and is there with 0, too.

    full     a closed loop of `sessions`: mails a second from the first to the last that left the lanes, CPU a mail
    paced    `rate` mails a second: dot to 250, and from a delivery to "safe" (dovelane_safe_seconds); retained bytes, the most that was seen
    held     the sites are cut off each other, and `held` mails are retained: CPU of relays and nodes while nothing else happens
"""
import contextlib
import json
import subprocess
import threading
import time
from pathlib import Path

import replicas
from report import BUILD, median
from support.stack import Stack, StackError, lanes, probe, programs, resp
from support.stack.group import GROUP_KEY, Group
from support.stack.scrape import Page
from support.waiting import eventually

ABOUT = "until = replicated against delivered: Postfix, lanes, relays, two Dovecot sites"
LONG = True
OPTIONS = {"rounds": 3, "mails": 600, "sessions": 20, "rate": 40, "paced": 800, "size": 10240, "users": 20, "trips": "0,12,100", "held": 10000, "held_seconds": 60,
           "dir": "/var/tmp"}
QUICK = {"rounds": 1, "mails": 60, "paced": 60, "rate": 10, "trips": "0", "held": 50, "held_seconds": 5}
UNTIL = ("delivered", "replicated")
DOMAIN = "example.org"
PATIENCE = 600


class System:
    """A gateway and two sites, from Postfix's port to the disks."""

    def __init__(self, until, options, opened):
        self.until, self.options = until, options
        self.sites = opened.enter_context(Group("sdbox", "sdbox", settings={"replicator_nice": "0"}))
        hops = ["[127.0.0.1]:" + replica.note["lmtp"].rpartition(":")[2] for replica in self.sites.replicas]
        destination = "lmtp:" + ",".join(hops)
        key = Path(self.sites.directory) / "group.key"
        key.write_text(GROUP_KEY)
        key.chmod(0o600)
        inside = {"delivery_id": "yes", "until": until}
        if until == "replicated":
            inside |= {"sites": 2, "replicated_wait": "10min"}
        replicas_here = {replica.note["site"]: {"id": number, "redis": self.sites[f"redis-{replica.letter}"].note["address"], "lmtp": hop}
                         for number, (replica, hop) in enumerate(zip(self.sites.replicas, hops), 1)}
        settings = {"group_key_file": str(key), "destinations": {destination: inside}, "replicate_namespaces": '{ "inbox" }', "replicas": replicas_here}
        self.gateway = opened.enter_context(Stack(postfix="divert", nodes=2, maps={DOMAIN: destination}, settings=settings, maxmemory="2gb",
                                                  sessions=options.sessions + 20))
        self.pages = {}
        for name in ("mx1", "mx2"):
            page = self.pages[name] = Page("relay")
            opened.callback(page.close)
            programs.write_settings(self.gateway[f"relay-{name}"], {"metrics_listen": page.listen})
            self.gateway.restart(f"relay-{name}")
        self.connections = {name: opened.enter_context(resp.Connection(address, timeout=60)) for name, address in self.gateway.nodes.items()}

    def left(self):
        """Entries in all lanes of mail."""
        return sum(count for connection in self.connections.values() for count, _ in lanes.names(connection).values())

    def empty(self):
        eventually(f"the lanes of {self.until} are empty", lambda: self.left() == 0, PATIENCE, 0.02)
        return time.time_ns()

    def generate(self, mails, rate=0):
        argv = [BUILD / "tests/bench/smtp_load", "--to", self.gateway.smtp, "--mails", mails, "--sessions", self.options.sessions, "--sizes", self.options.size,
                "--domain", DOMAIN, "--users", self.options.users, "--rate", rate, "--run", f"{self.until}{time.time_ns()}"]
        done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise StackError(f"{self.until}: {done.stderr.decode(errors='replace').strip()}")
        return json.loads(done.stdout)

    def pids(self, *prefixes):
        """Of the gateway's services."""
        return [service.pid for name, service in self.gateway.services.items() if name.startswith(prefixes) and service.pid]

    def processes(self):
        """By what their CPU is counted as; Postfix's and Dovecot's come and go, so those that end meanwhile are not in it."""
        here = {"milter": self.pids("milter"), "nodes": self.pids("redis-"), "relays": self.pids("relay-")}
        here["replication"] = replicas.replication_pids(self.sites)
        return here

    def cpu(self):
        return {name: replicas.cpu_ms(pids) for name, pids in self.processes().items()}

    def retained(self):
        """(mails, bytes) of the relays."""
        return [sum(probe.metric("unix:" + self.gateway[f"relay-{name}"].note["metrics"], of) or 0 for name in self.pages)
                for of in ("relay_retained", "relay_retained_bytes")]

    def safe(self):
        """Buckets of dovelane_safe_seconds: upper end to how many, of both relays; cumulative."""
        found = {}
        for page in self.pages.values():
            for name, value in page.values().items():
                if name.startswith("safe_seconds_bucket"):
                    end = name.rpartition('le="')[2].partition('"')[0]
                    found[float(end)] = found.get(float(end), 0) + value
        return found


class Watch(threading.Thread):
    """The most that is retained while it runs."""

    def __init__(self, system):
        super().__init__(daemon=True)
        self.system, self.most, self.over = system, [0, 0], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            with contextlib.suppress(OSError):
                self.most = [max(pair) for pair in zip(self.most, self.system.retained())]

    def end(self):
        self.over.set()
        self.join()
        return self.most


def quantile(before, after, share):
    """Between the ends of the bucket that it is in; None: nothing was counted."""
    ends = sorted(after)
    counts = [after[end] - before.get(end, 0) for end in ends]
    if not counts or counts[-1] == 0:
        return None
    wanted, low, had = share * counts[-1], 0.0, 0
    for end, count in zip(ends, counts):
        if count >= wanted:
            return low + (end - low) * (wanted - had) / (count - had) if end != float("inf") else low
        low, had = end, count
    return low


def full(system, mails):
    before = system.cpu()
    said = system.generate(mails)
    out = system.empty()
    replicas.wait_idle(system.sites)
    after = system.cpu()
    return {"rate": mails / ((out - said["start_ns"]) / 1e9), "rate in": said["first"]["mails_per_second"], "cpu": {name: (after[name] - before[name]) / mails for name in after}}


def paced(system, mails, rate):
    before, watch = system.safe(), Watch(system)
    said = system.generate(mails, rate)
    system.empty()
    most = watch.end()
    answers, after = said["first"]["dot_to_250_ms"], system.safe()
    return {"p50": answers["p50"], "p99": answers["p99"], "most": most, **{f"safe p{percent}": quantile(before, after, percent / 100) for percent in (50, 99)}}


def compared(report, words, unit, found, of, scale=1.0):
    values = {until: median([of(entry) for entry in found[until]]) for until in UNTIL}
    report.row(words, values["replicated"] * scale, unit, "delivered", values["delivered"] * scale)


def one_trip(report, systems, trip, options):
    found = {name: {until: [] for until in UNTIL} for name in ("full", "paced")}
    for system in systems.values():
        system.sites.delay(float(trip))
    for number in range(options.rounds):
        for until in UNTIL if number % 2 else UNTIL[::-1]:
            found["full"][until].append(full(systems[until], options.mails))
            found["paced"][until].append(paced(systems[until], options.paced, options.rate))
        print(f"  round trip {trip} ms, round {number + 1}: {found['full']['replicated'][-1]['rate']:.0f} and {found['full']['delivered'][-1]['rate']:.0f} mails/s", flush=True)
    words = f"round trip {trip} ms"
    compared(report, f"{words}: mails a second, until they left the lanes", "mails/s", found["full"], lambda entry: entry["rate"])
    compared(report, f"{words}: mails a second, answered", "mails/s", found["full"], lambda entry: entry["rate in"])
    for part in ("milter", "nodes", "relays", "replication"):
        compared(report, f"{words}: CPU, {part}", "ms/mail", found["full"], lambda entry, part=part: entry["cpu"][part])
    for share in ("p50", "p99"):
        compared(report, f"{words}, {options.rate} mails/s: dot to 250, {share}", "ms", found["paced"], lambda entry, share=share: entry[share])
    paces = found["paced"]["replicated"]
    for share in ("p50", "p99"):
        report.row(f"{words}, {options.rate} mails/s: delivery to safe, {share}", 1000 * median([entry[f"safe {share}"] or 0 for entry in paces]), "ms")
    report.row(f"{words}, {options.rate} mails/s: retained, the most that was seen", max(entry["most"][0] for entry in paces), "mails")
    report.row(f"{words}, {options.rate} mails/s: retained, the most that was seen", max(entry["most"][1] for entry in paces) / 1e6, "MB")
    report.detail(f"trip {trip}", found)


def held(report, system, options):
    """Retained mails, while nothing comes: what they cost of a core."""
    system.sites.delay(0)
    system.sites.cut()
    system.generate(options.held)
    eventually(f"{options.held} retained mails", lambda: system.retained()[0] >= options.held, PATIENCE, 0.5)
    before, began = system.cpu(), time.monotonic()
    time.sleep(options.held_seconds)
    after, took = system.cpu(), time.monotonic() - began
    mails, kept = system.retained()
    for part in ("relays", "nodes", "replication"):
        report.row(f"{mails:.0f} retained mails: CPU, {part}", (after[part] - before[part]) / 10 / took, "% of a core")
    report.row(f"{mails:.0f} retained mails: bytes of them", kept / 1e6, "MB")
    began = time.monotonic()
    system.sites.heal()
    system.empty()
    report.row(f"{mails:.0f} retained mails: healed, until all have left the lanes", time.monotonic() - began, "s")


def run(report, options):
    with contextlib.ExitStack() as opened:
        systems = {until: System(until, options, opened) for until in UNTIL}
        for system in systems.values():     # the users' states are there
            system.generate(options.users * 2)
            system.empty()
            replicas.wait_idle(system.sites)
        for trip in options.trips.split(","):
            one_trip(report, systems, trip, options)
        if options.held:
            held(report, systems["replicated"], options)
    report.remark(f"{options.rounds} rounds; mails of {options.size} B to {options.users} users, {options.sessions} sessions; all of it, the sender and both sites on one machine. "
                  "CPU of Postfix and of Dovecot's own processes is in neither.")
