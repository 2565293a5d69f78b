"""pluto's experiment: what IMAP commands cost with replication, against stock Dovecot, in one run.

    stock      Dovecot alone
    dovelane   plugin and replicator; the peer is on the same machine
    far        the same, the peer 12 ms away (round trip)
    dead       the same, the peer and both Redis are gone

In each round every variant does 1,000 consecutive CREATE, APPEND, STORE, FETCH, COPY, EXPUNGE, DELETE, command by command in an order
that turns, so that what is compared is measured within seconds. Before another variant is measured, what replicates has
finished. The measured Dovecot and the client have one core (one waits for the other), everything else (replicator at nice 10,
peer, Redis) the other. Theirs is the one that the disk interrupts: the kernel ends a write in a thread there, which else waits for
what replicates, the peer and the links that stand for a network among it. The peer's files are in memory, since it stands for
another host, which has a disk of its own.
"""
import contextlib
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import replicas
from report import median
from replicas import Timed, cpu_ms, mail, made, percentile, ratio_interval, wait_idle
from stack.group import Group

ABOUT = "IMAP commands with replication, against stock Dovecot"
OPTIONS = {"rounds": 10, "commands": 1000, "size": 10240, "storage": "sdbox", "version": "", "delay_ms": 12, "dir": "/var/tmp",
           "variants": "stock,dovelane,far,dead"}
QUICK = {"rounds": 2, "commands": 100}

TITLES = {"stock": "stock Dovecot", "dovelane": "Dovelane", "far": "peer 12 ms away", "dead": "peer and Redis dead"}
ORDER = ("CREATE", "APPEND", "STORE", "FETCH", "COPY", "EXPUNGE", "DELETE")
GOALS = {"p50": "<= 1.05", "p99": "<= 1.15", "cpu": "<= 1.05"}


def commands_of(kind, number, options):
    """(what to do first, the commands that are timed). Each round works in mailboxes of its own."""
    count, box = options.commands, f"R{number}"
    if kind == "CREATE":
        return [], [made(f"CREATE C{number}-{n}") for n in range(count)]
    if kind == "DELETE":
        return [], [made(f"DELETE C{number}-{n}") for n in range(count)]
    if kind == "APPEND":
        return [f"CREATE {box}", f"SELECT {box}"], [made(f"APPEND {box}", mail(f"r{number}-{n}", options.size)) for n in range(count)]
    if kind == "STORE":
        return [f"SELECT {box}"], [made(f"STORE {n + 1} +FLAGS (\\Seen)") for n in range(count)]
    if kind == "FETCH":
        return [f"SELECT {box}"], [made(f"FETCH {n + 1} BODY.PEEK[]") for n in range(count)]
    if kind == "COPY":
        return [f"CREATE {box}c", f"SELECT {box}"], [made(f"COPY {n + 1} {box}c") for n in range(count)]
    return [f"SELECT {box}", "STORE 1:* +FLAGS.SILENT (\\Deleted)"], [made(f"UID EXPUNGE {n + 1}") for n in range(count)]


class Variant:
    """One Dovecot that is measured, and what stands behind it."""

    def __init__(self, name, group, options):
        self.name, self.group, self.options = name, group, options
        self.replica = group.replicas[0]
        self.pin()

    def pin(self):
        """The measured Dovecot and its client, of which one waits for the other, have a core of their own; all the rest share the other one. What starts later
        is where its parent is, so this comes after a session and its worker are there."""
        if os.cpu_count() < 2:
            return
        replicas.pin([self.replica.pid] + [one.pid for one in self.replica.processes()], self.options.ours)
        replicas.pin(replicas.replication_pids(self.group), self.options.rest)
        for other in self.group.replicas[1:]:
            replicas.pin([one.pid for one in other.processes()], self.options.rest)

    def prepare(self):
        with contextlib.closing(Timed(self.replica.note["imap"])) as session:
            session.one("CREATE Warm")
            session.one("APPEND Warm", mail("warm", self.options.size))
        if self.name == "far":
            self.group.delay(self.options.delay_ms)
        if self.name == "dead":
            wait_idle(self.group)
            self.group.replicas[1].kill()
            for name in ("redis-a", "redis-b"):
                self.group.kill(name)

    def measure(self, kind, number):
        """Milliseconds of each command, and CPU ms per command in the session's own process and in what replicates."""
        first, commands = commands_of(kind, number, self.options)
        with contextlib.closing(Timed(self.replica.note["imap"])) as session:
            for text in first + ["SUBSCRIBE Warm", "UNSUBSCRIBE Warm"]:
                session.one(text)
            if self.name != "stock":
                wait_idle(self.group)
            self.pin()
            processes = [one.pid for one in self.replica.processes("imap")]
            behind = replicas.replication_pids(self.group)
            before, before_behind = cpu_ms(processes), cpu_ms(behind)
            with replicas.on(self.options.ours):
                times = session.times(commands)
            spent = cpu_ms(processes) - before
        if self.name != "stock":
            wait_idle(self.group)
        return {"times": times, "cpu": spent / len(commands), "behind": (cpu_ms(behind) - before_behind) / len(commands)}


def variant(name, options, directory):
    """A group for the variant, not yet started."""
    spec = options.storage + (f"@{options.version}" if options.version else "")
    if name == "stock":
        return Group(spec, replication="off", directory=directory)
    return Group(spec, spec, replication="dovelane", directory=directory, settings={})


@contextlib.contextmanager
def in_memory(path):
    """The peer stands for another host: its files shall not share the measured one's disk."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextlib.contextmanager
def all_variants(options):
    with contextlib.ExitStack() as open_now:
        found = {}
        for name in options.variants.split(","):
            directory = open_now.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
            os.chmod(directory, 0o755)
            open_now.enter_context(in_memory(Path(directory) / "b"))
            found[name] = Variant(name, open_now.enter_context(variant(name, options, directory)), options)
            found[name].prepare()
        yield found


def commands_part(report, options, variants):
    rounds = {}
    for number in range(options.rounds):
        for turn, kind in enumerate(ORDER):
            names = list(variants)
            first = (number + turn) % len(names)
            for name in names[first:] + names[:first]:
                rounds.setdefault((kind, name), []).append(variants[name].measure(kind, number))
        print(f"  round {number + 1}: " + "  ".join(f"{kind} " + "/".join(
            f"{statistics.median(rounds[kind, name][-1]['times']):.3f}" for name in variants) for kind in ORDER), flush=True)
    figures(report, options, rounds, list(variants))


def figures(report, options, rounds, names):
    """Ratios with their intervals as rows, pluto's table and the CPU as tables."""
    lines, cpu_lines, detail = [], [], {}
    for kind in ORDER:
        for name in names:
            here = rounds[kind, name]
            every = [value for one in here for value in one["times"]]
            lines.append([kind, TITLES[name], statistics.fmean(every), statistics.pstdev(every), statistics.median(every),
                          percentile(every, 0.99), percentile(every, 0.999)])
            cpu_lines.append([kind, TITLES[name], median([one["cpu"] for one in here]), median([one["behind"] for one in here])])
            detail[f"{kind}, {name}"] = [{"p50": statistics.median(one["times"]), "p99": percentile(one["times"], 0.99),
                                          "cpu": one["cpu"], "behind": one["behind"]} for one in here]
            if name == "stock" or "stock" not in names:
                continue
            stock = rounds[kind, "stock"]
            for what, of in (("p50", lambda one: statistics.median(one["times"])), ("p99", lambda one: percentile(one["times"], 0.99)),
                             ("cpu", lambda one: one["cpu"])):
                ours, theirs = [of(one) for one in here], [of(one) for one in stock]
                ratio, low, high = ratio_interval(ours, theirs)
                report.row(f"{kind} {what}, {TITLES[name]}", median(ours), "ms", "stock", median(theirs))
                report.row(f"{kind} {what}, {TITLES[name]}: upper end of the ratio {ratio:.3f} [{low:.3f}, {high:.3f}]", high, "x",
                           goal=GOALS[what])
    report.table(f"{options.commands} consecutive commands in {options.rounds} rounds, ms as a client sees them (as pluto's table: "
                 "mean, standard deviation, median)", ["command", "variant", "mean", "deviation", "median", "p99", "p99.9"], lines)
    report.table("CPU ms per command: in the imap process, and in all that replicates (both replicators, workers, nodes, links)",
                 ["command", "variant", "imap", "behind"], cpu_lines)
    report.detail("rounds", detail)


def run(report, options):
    options.ours = [replicas.disk_core(options.dir)]
    options.rest = [1] if options.ours == [0] else [0]
    report.remark(f"Storage {options.storage}, mails of {options.size} bytes; {options.rounds} rounds, medians of the rounds' ratios to stock, each "
                  "measured within seconds, and their 95 % interval by drawing rounds. Times are a Python client's, about 0.03 ms of its own in each.")
    with all_variants(options) as variants:
        commands_part(report, options, variants)
