"""What the benches of replicas share: a client that times commands, CPU of processes to the nanosecond, a ratio with its interval."""
import contextlib
import os
import random
import socket
import statistics
import tempfile
import time
from pathlib import Path

from support.stack import dovecot
from support.stack.failure import StackError
from support.stack.imap import quoted

MAIL_USER = "bench@example.org"
REPLICATION = ("dovelane-replicator", "dovelane-worker")


class Timed:
    """A logged-in session that sends bytes made beforehand and reads up to the tagged answer; little else is in the times."""

    def __init__(self, address, user=MAIL_USER):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.socket.recv(65536)
        self.one(f"LOGIN {quoted(user)} {quoted(dovecot.PASSWORD)}")

    def close(self):
        self.socket.close()

    def answer(self):
        """Reads to the answer tagged x. Literals of our own mails hold no such line."""
        data = self.rest
        while True:
            at = data.find(b"x ") if data.startswith(b"x ") else data.find(b"\r\nx ") + 2
            if at >= 2 or data.startswith(b"x "):
                end = data.find(b"\r\n", at)
                if end >= 0:
                    self.rest = data[end + 2:]
                    if data[at:at + 4] != b"x OK":
                        raise StackError(f"IMAP: {data[at:end].decode(errors='replace')}")
                    return data[:end]
            more = self.socket.recv(262144)
            if not more:
                raise StackError("IMAP: the connection was closed")
            data += more

    def one(self, text, literal=None):
        """One command, not timed; its answer."""
        self.socket.sendall(made(text, literal))
        try:
            return self.answer()
        except StackError as error:
            raise StackError(f"{text[:80]}: {error}") from None

    def times(self, commands):
        """Milliseconds of each command, one after the other."""
        found, clock, send, answer = [], time.perf_counter_ns, self.socket.sendall, self.answer
        for command in commands:
            began = clock()
            send(command)
            answer()
            found.append((clock() - began) / 1e6)
        return found


def made(text, literal=None):
    """A command's bytes."""
    if literal is None:
        return b"x " + text.encode() + b"\r\n"
    return b"x %s {%d+}\r\n%s\r\n" % (text.encode(), len(literal), literal)


def mail(name, size):
    head = f"From: <a@stack.example>\r\nSubject: {name}\r\nX-Mail: {name}\r\nMessage-ID: <{name}@bench.example>\r\n\r\n".encode()
    line = b"a line of a mail that is as long as lines of mails are wont to be, more or less.\r\n"
    return head + (line * (size // len(line) + 1))[:max(0, size - len(head) - 2)].rstrip(b"\r\n") + b"\r\n"


def multi_append(session, folder, mails, block=200):
    """Many mails with few commands (MULTIAPPEND)."""
    for at in range(0, len(mails), block):
        parts = b"".join(b" {%d+}\r\n%s" % (len(data), data) for data in mails[at:at + block])
        session.socket.sendall(b"x APPEND " + quoted(folder).encode() + parts + b"\r\n")
        session.answer()


def cpu_ms(pids):
    """CPU milliseconds of processes so far, from the scheduler's own clock."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/schedstat") as file:
                total += int(file.read().split()[0])
        except OSError:
            pass
    return total / 1e6


def bytes_written(pids):
    """What processes gave to the disk so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("write_bytes"))
    return total


def memory_kb(pid):
    """Memory of a process that is its own (RssAnon)."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def replication_pids(group):
    """Everything that works for replication: replicators, workers, nodes, links."""
    found = [service.pid for name, service in group.services.items() if name.startswith(("redis-", "links")) and service.pid]
    for replica in group.replicas:
        if replica.alive():
            for program in REPLICATION:
                found += [one.pid for one in replica.processes(program)]
    return found


def wait_idle(group, seconds=120, quiet_ms=3.0):
    """Waits until what replicates has nothing more to do: under 3 ms of CPU in 0.15 s, twice."""
    end, calm = time.monotonic() + seconds, 0
    while calm < 2:
        pids = replication_pids(group)
        before = cpu_ms(pids)
        time.sleep(0.15)
        calm = calm + 1 if cpu_ms(pids) - before < quiet_ms else 0
        if time.monotonic() > end:
            return False
    return True


def kernel_threads(prefix):
    """Their process ids, by the beginning of their name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().startswith(prefix):
                found.append(int(path.parent.name))
    return found


def pin(pids, cores):
    for pid in pids:
        try:
            os.sched_setaffinity(pid, cores)
        except (OSError, ValueError):
            pass


@contextlib.contextmanager
def on(cores):
    """This process, on these cores."""
    before = os.sched_getaffinity(0)
    pin([0], cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def interrupts():
    """How many each core had so far, by device (its line's last word)."""
    with open("/proc/interrupts") as file:
        cores = len(file.readline().split())
        lines = [line.split() for line in file]
    return {(words[0], words[-1]): [int(word) for word in words[1:cores + 1]] for words in lines
            if words[0].rstrip(":").isdigit() and len(words) > cores + 1}


def disk_core(directory):
    """The core that is interrupted when core 0 writes there; 0 where that cannot be seen. The kernel ends a write on that core, in a thread that may
    have to wait for what runs there."""
    with on({0}), tempfile.TemporaryFile(dir=directory) as file:
        before = interrupts()
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
        grown = {line: [now - then for now, then in zip(counts, before.get(line, counts))] for line, counts in interrupts().items()}
    most = max(grown.values(), key=sum, default=[0])
    return most.index(max(most)) if sum(most) >= 100 else 0


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ratio_interval(ours, theirs, draws=4000):
    """(ratio, lower, upper end of its 95 % interval) of two figures per round, medians of its commands for example. Both of a round were measured side by side,
    within seconds, while the machine's speed varies over minutes: each round has its ratio, and what is told is the median of these; the interval by drawing
    rounds."""
    dice, ratios = random.Random(1), [one / other for one, other in zip(ours, theirs)]
    found = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(draws))
    return statistics.median(ratios), found[int(draws * 0.025)], found[int(draws * 0.975)]
