"""What a change costs in a large mailbox, and a MOVE of many mails against dsync's: CPU of the workers.

    changes  two pairs of sites, one with a mailbox of `small` mails and one of `large`, the same at
             both sites of a pair, where nobody but one client has ever logged in. A flag, an append
             and an expunge, one at a time, in turn in the small and in the large one: CPU of the
             worker where the client is, of the peer's, and of the client's own imap process, which
             does the same to the same index
    move     a client moves `moved` mails of a Maildir to another folder: CPU of both workers; and
             `doveadm sync` of the same move between two Maildirs, with its processes' CPU
"""
import contextlib
import imaplib
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from report import BUILD

from support.worker_world import USER, World

ABOUT = "changes in a large mailbox, and a large MOVE: CPU of the workers"
OPTIONS = {"small": 1000, "large": 1000000, "storage": "mdbox", "changes": 60, "moved": 20000, "parts": "changes,move", "dir": "/var/tmp"}
QUICK = {"large": 20000, "changes": 10, "moved": 1000}
LONG = True
WORKER = BUILD / "dovecot-plugin" / "worker" / "dovelane-worker"
KINDS = "flag", "append", "expunge"
imaplib.Commands.setdefault("MOVE", ("SELECTED",))


# -- processes -----------------------------------------------------------------------------------------------------------

def children(site, name):
    """Pids of that Dovecot's services with that name."""
    found = []
    for word in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path("/proc", word, "stat").read_text()
            begin, end = stat.index("("), stat.rindex(")")
            if stat[begin + 1:end] == name[:15] and int(stat[end + 2:].split()[1]) == site.process.pid:
                found.append(int(word))
    return found


def cpu(pid):
    """Milliseconds, from the scheduler's exact clock."""
    return int(Path("/proc", str(pid), "schedstat").read_text().split()[0]) / 1e6


def written(pid):
    return int(next(line for line in Path("/proc", str(pid), "io").read_text().splitlines() if line.startswith("wchar")).split()[1])


# -- sites ---------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def pair(storages, options):
    base = Path(tempfile.mkdtemp(prefix="dovelane-linear-", dir=options.dir))
    base.chmod(0o711)
    world = None
    try:
        # A client that expunges from a million mails needs more than Dovecot gives it by default.
        world = World(base / "world", storages, WORKER, more=dict.fromkeys((1, 2), "default_vsz_limit = 2 G\n"))
        yield world
    finally:
        if world is not None:
            world.stop()
        shutil.rmtree(base, ignore_errors=True)


def fill(site, number):
    """Small mails by MULTIAPPEND, into the INBOX."""
    box = site.imap()
    for begin in range(0, number, 5000):
        parts = []
        for n in range(begin, min(begin + 5000, number)):
            text = b"Subject: m%d\r\nFrom: a@example.org\r\n\r\nbody %d\r\n" % (n, n)
            parts.append(b" () {%d+}\r\n%s" % (len(text), text))
        box.send(b"x APPEND INBOX" + b"".join(parts) + b"\r\n")
        while not (line := box.readline()).startswith(b"x "):
            pass
        assert line.startswith(b"x OK"), line
    box.logout()


def workers(world):
    return [children(site, "dovelane-worker")[0] for site in world.sites.values()]


# -- changes -------------------------------------------------------------------------------------------------------------

class Mailbox:
    """A pair of sites with so many mails, and a client in it."""

    def __init__(self, world, number):
        self.world, self.number = world, number
        here, there = world[1], world[2]
        fill(here, number)
        shutil.rmtree(there.home(), ignore_errors=True)
        subprocess.run(["cp", "-a", here.home(), there.home()], check=True)
        began = time.monotonic()
        world.settle()
        self.first = time.monotonic() - began
        self.pids = workers(world)
        self.first_cpu = [cpu(pid) for pid in self.pids]
        said = here.doveadm("mailbox", "status", "-u", USER, "guid", "INBOX").decode()
        self.guid = said.split("guid=")[1].strip()
        self.box = here.imap()
        self.box.select("INBOX")
        self.pids.append(children(here, "imap")[0])

    def change(self, kind, turn):
        """CPU in ms: where the client is, at the peer, in the client's imap."""
        before = [cpu(pid) for pid in self.pids]
        uid = str(self.number // 2 + 3 * turn)
        if kind == "append":
            said = [self.box.append("INBOX", None, None, b"Subject: n%d\r\n\r\nnew %d\r\n" % (turn, turn))]
        elif kind == "flag":
            said = [self.box.uid("STORE", uid, "+FLAGS", "(\\Flagged)")]
        else:
            said = [self.box.uid("STORE", uid, "+FLAGS.SILENT", "(\\Deleted)"), self.box.expunge()]
        assert all(ok == "OK" for ok, _ in said), said
        self.world[1].ingest((self.guid, "INBOX"))
        self.world.settle(ingest=False)
        return [cpu(pid) - old for pid, old in zip(self.pids, before)]


def changes(report, options):
    with pair([options.storage] * 2, options) as few, pair([options.storage] * 2, options) as many:
        boxes = {"small": Mailbox(few, options.small), "large": Mailbox(many, options.large)}
        found = {(kind, size): [] for kind in KINDS for size in boxes}
        for kind in KINDS:
            for turn in range(options.changes + 3):
                for size, box in boxes.items():
                    found[kind, size].append(box.change(kind, turn))
    lines = []
    for kind in KINDS:
        cost = {size: [statistics.median(column) for column in zip(*found[kind, size][3:])] for size in boxes}
        for place, name in enumerate(("the client's site", "the peer", "the client's imap")):
            lines.append([kind, name, cost["small"][place], cost["large"][place], cost["large"][place] / cost["small"][place]])
            if place < 2:
                report.row(f"{kind}, worker of {name}: {options.large} mails", cost["large"][place], "ms", f"{options.small} mails",
                           cost["small"][place], goal="<= 1.2")
        report.row(f"{kind} in {options.large} mails, worker of the peer", cost["large"][1], "ms", "a stock imap's own", cost["large"][2])
    report.table("CPU ms of one change", ["change", "process", f"{options.small} mails", f"{options.large} mails", "ratio"], lines)
    report.table("The first look at both sites, which have the same mails", ["mails", "s", "CPU us a mail, client's site", "the peer"],
                 [[str(box.number), box.first, *[used * 1000 / box.number for used in box.first_cpu]] for box in boxes.values()])


# -- move ----------------------------------------------------------------------------------------------------------------

def dsync_of_a_move(world, options):
    """CPU ms of `doveadm sync` between two Maildirs after the same move in one of them."""
    base = world.base / "plain"
    for name in (base, base / "one", base / "other"):
        name.mkdir()
        shutil.chown(name, "nobody", "nogroup")

    def doveadm(*words):
        subprocess.run(["doveadm", "-c", world[1].config, "-o", f"mail_location=maildir:{base}/one/Maildir", *words], check=True)

    doveadm("import", "-u", USER, f"maildir:{world[1].root()}", "", "ALL")
    doveadm("mailbox", "create", "-u", USER, "Target")
    doveadm("sync", "-u", USER, f"maildir:{base}/other/Maildir")
    doveadm("move", "-u", USER, "Target", "mailbox", "INBOX", "ALL")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    doveadm("sync", "-u", USER, f"maildir:{base}/other/Maildir")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    arrived = sum(1 for part in ("cur", "new") for _ in (base / "other" / "Maildir" / ".Target" / part).iterdir())
    assert arrived == options.moved, arrived
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def move(report, options):
    with pair(["maildir", "maildir"], options) as world:
        box = world[1].imap()
        box.create("Target")
        fill(world[1], options.moved)
        world.settle()
        theirs = dsync_of_a_move(world, options)
        pids = workers(world)
        before, wrote = [cpu(pid) for pid in pids], [written(pid) for pid in pids]
        box.select("INBOX")
        assert box.uid("MOVE", f"1:{options.moved}", "Target")[0] == "OK"
        world[1].ingest()
        world.settle(ingest=False)
        ours = [cpu(pid) - old for pid, old in zip(pids, before)]
        wrote = [(written(pid) - old) / options.moved / 1000 for pid, old in zip(pids, wrote)]
        box.logout()
    report.table(f"MOVE of {options.moved} mails, Maildir", ["", "client's site", "the peer", "both", "doveadm sync"],
                 [["CPU us a mail", *[used * 1000 / options.moved for used in (*ours, sum(ours), theirs)]],
                  ["kB written a mail", *wrote, sum(wrote), ""]])
    report.row(f"MOVE of {options.moved} on Maildir, CPU of both workers", sum(ours), "ms", "doveadm sync", theirs, goal="<= 1")


def run(report, options):
    report.remark("Workers are asked by the benchmark in place of dovelane-replicator, one change at a time; medians. "
                  "An expunge has the library move all index records behind it, and copy all of them where it is carried out, in any process.")
    for part in options.parts.split(","):
        {"changes": changes, "move": move}[part](report, options)
