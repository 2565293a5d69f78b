"""pluto's experiment: what IMAP commands cost with replication, against stock Dovecot, in one run.

    stock      Dovecot alone
    again      another Dovecot alone: what its ratio to the first differs from 1 is the machine's doing
    dovelane   plugin and replicator; the peer is on the same machine
    far        the same, the peer 12 ms away (round trip)
    dead       the same, the peer and both Redis are gone

In each round every variant does 1,000 consecutive CREATE, DELETE, APPEND, STORE, FETCH, COPY, EXPUNGE; which variant begins turns with each, so that what is compared is measured within seconds. Before another variant is measured, what replicates has
finished. The measured Dovecot and the client have one core (one waits for the other), everything else (replicator at nice 10,
peer, Redis) the other. Theirs is the one that the disk interrupts, and the kernel's threads that write are there, which else wait for
what replicates, the peer and the links that stand for a network among it. The peer's files are in memory, since it stands for
another host, which has a disk of its own.

Everything is measured with the measured Dovecot's files in three places:
    in memory          tmpfs, where an IMAP command is as fast as it can be and the least that is added shows
    on ext4 in memory  a file system of its own for each variant, with journal and syncs, on a device that is always as fast
    on disk            the same on this machine's disk
A goal that the second stock Dovecot misses against the first is not judged there: the machine is not steady enough to tell.
"""
import contextlib
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import memory
import replicas
from report import median
from replicas import Timed, cpu_ms, mail, made, percentile, ratio_interval, wait_idle
from support.stack.group import Group

ABOUT = "IMAP commands with replication, against stock Dovecot"
OPTIONS = {"rounds": 30, "ext4_rounds": 15, "disk_rounds": 4, "commands": 1000, "size": 10240, "storage": "sdbox", "version": "", "delay_ms": 12, "dir": "/var/tmp",
           "variants": "stock,again,dovelane,far,dead"}
QUICK = {"rounds": 2, "ext4_rounds": 1, "disk_rounds": 1, "commands": 100}

ALONE = ("stock", "again") # variants without replication
TITLES = {"stock": "stock Dovecot", "again": "stock again", "dovelane": "Dovelane", "far": "peer 12 ms away", "dead": "peer and Redis dead"}
ORDER = ("CREATE", "DELETE", "APPEND", "STORE", "FETCH", "COPY", "EXPUNGE")
# Of a client's times the upper end of the ratio's interval, of CPU the ratio.
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
        replicas.pin(replicas.kernel_threads("jbd2/loop"), self.options.ours)
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
            if self.name not in ALONE:
                wait_idle(self.group)
            self.pin()
            processes = [one.pid for one in self.replica.processes("imap")]
            behind = replicas.replication_pids(self.group)
            before, before_behind = cpu_ms(processes), cpu_ms(behind)
            with replicas.on(self.options.ours):
                times = session.times(commands)
            spent = cpu_ms(processes) - before
        if self.name not in ALONE:
            wait_idle(self.group)
        return {"times": times, "cpu": spent / len(commands), "behind": (cpu_ms(behind) - before_behind) / len(commands)}


def variant(name, options, directory):
    """A group for the variant, not yet started."""
    spec = options.storage + (f"@{options.version}" if options.version else "")
    if name in ALONE:
        return Group(spec, replication="off", directory=directory)
    return Group(spec, spec, replication="dovelane", directory=directory, settings={})


@contextlib.contextmanager
def mounted(path, *what):
    path.mkdir()
    subprocess.run(["mount", *what, path], check=True)
    os.chmod(path, 0o755)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def in_memory(path):
    return mounted(path, "-t", "tmpfs", "tmpfs")


@contextlib.contextmanager
def on_ext4(path, image, megabytes):
    """A new ext4 for each Dovecot that is measured. On one file system they would wait for each other's data in its journal, and what a directory's place in
    an old one costs differs: of four stock Dovecots the kernel's instructions per APPEND differed by a third. Every block of the image is written first."""
    with open(image, "wb") as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image], check=True)
    with mounted(path, "-o", "loop,nodiscard", image):
        yield


@contextlib.contextmanager
def on_ext4_in_memory(path, megabytes):
    under = path.with_name("under")
    with in_memory(under), on_ext4(path, under / "image", megabytes):
        yield


# where the files are: the option with its rounds, and how the place is made, for so many rounds
PLACES = {
    "in memory": ("rounds", lambda path, rounds: in_memory(path)),
    "on ext4 in memory": ("ext4_rounds", lambda path, rounds: on_ext4_in_memory(path, 512 + 30 * rounds)),
    "on disk": ("disk_rounds", lambda path, rounds: on_ext4(path, path.with_name("image"), 512 + 30 * rounds)),
}


@contextlib.contextmanager
def kernel_on(cores):
    """The kernel's threads that write, and end a write, run on these cores. There is one setting for all of them; it is put back."""
    path = Path("/sys/devices/virtual/workqueue/cpumask")
    if not os.access(path, os.W_OK):
        yield # a kernel without it, or a container
        return
    before = path.read_text()
    path.write_text(f"{sum(1 << core for core in cores):x}")
    try:
        yield
    finally:
        path.write_text(before)


@contextlib.contextmanager
def all_variants(options, place, rounds):
    with contextlib.ExitStack() as open_now:
        if os.cpu_count() > 1:
            open_now.enter_context(kernel_on(options.ours))
        found = {}
        for name in options.variants.split(","):
            directory = open_now.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
            os.chmod(directory, 0o755)
            files = Path(directory) / "a"
            open_now.enter_context(place(files, rounds))
            open_now.enter_context(in_memory(Path(directory) / "b"))
            found[name] = Variant(name, open_now.enter_context(variant(name, options, directory)), options)
            found[name].prepare()
        yield found


def commands_part(report, options, where, place, count):
    rounds = {}
    with all_variants(options, place, count) as variants:
        for number in range(count):
            for turn, kind in enumerate(ORDER):
                names = list(variants)
                first = (number + turn) % len(names)
                for name in names[first:] + names[:first]:
                    rounds.setdefault((kind, name), []).append(variants[name].measure(kind, number))
            print(f"  {where}, round {number + 1}: " + "  ".join(f"{kind} " + "/".join(
                f"{statistics.median(rounds[kind, name][-1]['times']):.3f}" for name in variants) for kind in ORDER), flush=True)
        figures(report, options, where, rounds, list(variants))


WHAT = (("p50", lambda one: statistics.median(one["times"])), ("p99", lambda one: percentile(one["times"], 0.99)), ("cpu", lambda one: one["cpu"]))


def stock_of(rounds, kind, of):
    """Of each round: the mean of the stock Dovecots, whose own noise would else be half of a ratio's."""
    return [statistics.fmean(of(one) for one in together) for together in zip(*(rounds[kind, name] for name in ALONE if (kind, name) in rounds))]


def figures(report, options, where, rounds, names):
    """Ratios with their intervals as rows and as a table, pluto's table, and the CPU."""
    lines, cpu_lines, ratio_lines, detail = [], [], [], {}
    for kind in ORDER:
        unsteady = set()
        for name in names:
            here = rounds[kind, name]
            every = [value for one in here for value in one["times"]]
            lines.append([kind, TITLES[name], statistics.fmean(every), statistics.pstdev(every), statistics.median(every),
                          percentile(every, 0.99), percentile(every, 0.999)])
            cpu_lines.append([kind, TITLES[name], median([one["cpu"] for one in here]), median([one["behind"] for one in here])])
            detail[f"{kind}, {name}"] = [{what: of(one) for what, of in WHAT} | {"behind": one["behind"]} for one in here]
            if name == "stock":
                continue
            ratios = []
            for what, of in WHAT:
                ours = [of(one) for one in here]
                theirs = [of(one) for one in rounds[kind, "stock"]] if name == "again" else stock_of(rounds, kind, of)
                ratio, low, high = ratio_interval(ours, theirs)
                ratios.append(f"{ratio:.2f} [{low:.2f}, {high:.2f}]")
                judged_by, words = (ratio, "ratio") if what == "cpu" else (high, "upper end of the ratio")
                if name == "again" and judged_by > float(GOALS[what].split()[1]):
                    unsteady.add(what)
                report.row(f"{kind} {what}, {where}, {TITLES[name]}", median(ours), "ms", "stock", median(theirs))
                judged = name not in ALONE and what not in unsteady
                report.row(f"{kind} {what}, {where}, {TITLES[name]}: {words} {ratio:.3f} [{low:.3f}, {high:.3f}]", judged_by, "x",
                           goal=GOALS[what] if judged else None)
            ratio_lines.append([kind, TITLES[name], *ratios])
        if unsteady:
            report.remark(f"{kind}, {where}: stock against stock misses the goals for {', '.join(sorted(unsteady))}, so they are not judged.")
    report.table(f"{options.commands} consecutive commands {where} in {len(rounds[ORDER[0], 'stock'])} rounds, ms as a client sees them (as pluto's table: "
                 "mean, standard deviation, median)", ["command", "variant", "mean", "deviation", "median", "p99", "p99.9"], lines)
    report.table(f"Files {where}: ratios to stock with their 95 % intervals; goals (of p50 and p99 the upper ends): " + ", ".join(f"{what} {goal}" for what, goal in GOALS.items()),
                 ["command", "variant", *GOALS], ratio_lines)
    report.table(f"CPU ms per command, {where}: in the imap process, and in all that replicates (both replicators, workers, nodes, links)",
                 ["command", "variant", "imap", "behind"], cpu_lines)
    report.detail(f"rounds {where}", detail)


def choose_cores(options):
    """What is measured, and the client, have one that what replicates does not have."""
    options.ours = [replicas.disk_core(options.dir)]
    options.rest = [1] if options.ours == [0] else [0]


def run(report, options):
    choose_cores(options)
    report.remark(f"Storage {options.storage}, mails of {options.size} bytes; medians of the rounds' ratios to stock, each measured within "
                  "seconds, and their 95 % interval by drawing rounds. Times are a Python client's, about 0.03 ms of its own in each.")
    with memory.given():
        for where, (option, place) in PLACES.items():
            count = getattr(options, option)
            if count:
                commands_part(report, options, where, place, count)
