"""What the plugin alone costs an IMAP or LMTP client: the same operations on two private Dovecots, with and without it, turn by turn.

Each operation is done on one Dovecot and at once on the other, in changing order, so that both see the same machine. For each kind:
p50 and p99 without and with, the ratio of the medians with a 95 % interval over the rounds, and the CPU time of the imap process per
operation in the quietest round. deaf=1: nobody reads the FIFO, so that each change leaves (finds) a dirty mark: what a stopped replicator costs.
"""
import fcntl
import statistics
import time
from pathlib import Path

from support.plugin_world import World
from replicas import percentile, ratio_interval
from support.stack import process

ABOUT = "what the plugin alone costs a client"
OPTIONS = {"form": "sdbox", "rounds": 20, "deaf": 0}
QUICK = {"rounds": 2}
COUNTS = (("fetch", 200), ("store", 300), ("append", 60), ("copy", 100), ("lmtp", 40))
F_SETPIPE_SZ = 1031
MAIL = b"Subject: t\r\n\r\n" + b"x" * 78 + b"\r\n"
MAIL += (b"y" * 78 + b"\r\n") * 125
USER = "bench@example.org"


class Side:
    """One of the two Dovecots, with one IMAP session."""

    def __init__(self, form, plugin, deaf):
        self.world = World(form, plugin=plugin)
        fcntl.fcntl(self.world.reader, F_SETPIPE_SZ, 1024 * 1024)
        if deaf:
            self.world.deaf()
        self.context = self.world.imap(USER)
        self.imap = self.context.__enter__()
        self.imap.do("create", "F")
        for _ in range(50):
            self.imap.mail()
        self.imap.do("select")
        self.flag = False
        self.pid = self.find("/imap")

    def find(self, name):
        for found in process.marked(self.world.mark):
            if Path(f"/proc/{found.pid}/exe").resolve().name == name[1:]:
                return found.pid
        raise SystemExit(f"no process {name}")

    def cpu(self):
        """Nanoseconds on a CPU."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    def drain(self):
        if self.world.reader is not None:
            self.world.hints()

    def store(self):
        self.flag = not self.flag
        self.imap.do("store", "7", "+FLAGS" if self.flag else "-FLAGS", "\\Flagged")

    def append(self):
        self.imap.mail("F", MAIL)

    def copy(self):
        self.imap.do("copy", "3", "F")

    def fetch(self):
        self.imap.do("fetch", "5", "(FLAGS BODY.PEEK[])")

    def lmtp(self):
        self.world.deliver(USER, text=MAIL)

    def end(self):
        self.world.end()


def rounds_of(kind, sides, rounds, count):
    """Per round and side: microseconds of each operation, and of CPU in imap per operation."""
    found = {plugin: [] for plugin in sides}
    for _ in range(rounds):
        these = {plugin: [] for plugin in sides}
        before = {plugin: side.cpu() for plugin, side in sides.items()}
        for turn in range(count):
            for plugin in ((True, False) if turn % 2 else (False, True)):
                operation = getattr(sides[plugin], kind)
                start = time.perf_counter_ns()
                operation()
                these[plugin].append((time.perf_counter_ns() - start) / 1000)
        for plugin, side in sides.items():
            found[plugin].append((these[plugin], (side.cpu() - before[plugin]) / 1000 / count))
            side.drain()
    return found


def measure(report, kind, sides, rounds, count):
    found = rounds_of(kind, sides, rounds, count)
    every = {plugin: [value for times, _ in found[plugin] for value in times] for plugin in found}
    for what, of, goal in (("p50", statistics.median, "<= 1.05"), ("p99", lambda times: percentile(times, 0.99), "<= 1.15")):
        ratio, low, high = ratio_interval(*([of(times) for times, _ in found[plugin]] for plugin in (True, False)))
        report.row(f"{kind} {what}", of(every[True]), "us", "without", of(every[False]))
        report.row(f"{kind} {what}: upper end of the ratio {ratio:.3f} [{low:.3f}, {high:.3f}]", high, "x", goal=goal)
    if kind != "lmtp":      # whose process is another one at each delivery
        cpu = {plugin: min(spent for _, spent in found[plugin]) for plugin in found}
        report.row(f"{kind} CPU in imap", cpu[True], "us", "without", cpu[False], "<= 1.05")


def run(report, options):
    sides = {}
    try:
        for plugin in (False, True):
            sides[plugin] = Side(options.form, plugin, bool(options.deaf))
        report.remark(f"{options.form}{', nobody reads hints' if options.deaf else ''}; with the plugin against without; {options.rounds} rounds.")
        for kind, count in COUNTS:
            measure(report, kind, sides, options.rounds, count)
    finally:
        for side in sides.values():
            side.end()
