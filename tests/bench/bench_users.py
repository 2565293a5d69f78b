"""What many users cost.

    idle       all have changed once, and nothing happens: CPU, Redis commands, bytes written

Each part is a group of two sites with the default settings.
"""
import contextlib
import os
import tempfile
import time

import replicas
from replicas import Timed, cpu_ms, mail
from report import median
from stack import resp
from stack.failure import StackError
from stack.group import Group

ABOUT = "what many users cost"
OPTIONS = {"users": 1000, "settle": 600, "watch": 600, "every": 60, "dir": "/var/tmp",
           "version": "", "parts": "idle"}
QUICK = {"users": 300, "settle": 90, "watch": 60, "every": 20}
LONG = True
PATIENCE = 600


@contextlib.contextmanager
def group(options):
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        specs = ["sdbox" + (f"@{options.version}" if options.version else "")] * 2
        with Group(*specs, directory=directory, settings={}, links=False) as fresh:
            yield fresh


# -- nothing happens -----------------------------------------------------------------------------

def main_and_workers(replica):
    return [one.pid for program in replicas.REPLICATION for one in replica.processes(program)]


def bytes_written(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("write_bytes"))
    return total


def used(there, replica):
    """CPU milliseconds of main and workers, of Redis; commands; bytes written: so far."""
    pids = main_and_workers(replica)
    redis = there.services[f"redis-{replica.letter}"].pid
    calls = resp.calls(there.nodes_of[replica.letter])
    return cpu_ms(pids), cpu_ms([redis]), calls, bytes_written(pids)


def watch(there, options):
    """Per site what `used` tells, of each stretch of time, as a second of it."""
    found = {replica.name: [] for replica in there.replicas}
    last = {replica.name: used(there, replica) for replica in there.replicas}
    at, end = time.monotonic(), time.monotonic() + options.watch
    while at < end - 1:
        time.sleep(options.every)
        now = time.monotonic()
        for replica in there.replicas:
            figures = used(there, replica)
            grown = zip(figures, last[replica.name])
            found[replica.name].append([(new - old) / (now - at) for new, old in grown])
            last[replica.name] = figures
        at = now
    return found


def idle_part(report, options):
    with group(options) as there:
        a = there.replicas[0]
        for number in range(options.users):
            with contextlib.closing(Timed(a.note["imap"], f"u{number}@example.org")) as session:
                session.one("APPEND INBOX", mail("x", 2048))
        changed = time.monotonic()
        if not replicas.wait_idle(there, PATIENCE):
            raise StackError(f"the sites are not quiet {PATIENCE} s after the last change")
        time.sleep(max(0, changed + options.settle - time.monotonic()))
        found = watch(there, options)
    for name, stretches in found.items():
        what = f"idle, {options.users} users, {name}"
        columns = list(zip(*stretches))
        cpu = [(ours + redis) / 10 for ours, redis in zip(columns[0], columns[1])]
        report.row(f"{what}: CPU, mean", sum(cpu) / len(cpu), "% of a core", goal="<= 0.2")
        report.row(f"{what}: CPU, median of {options.every} s", median(cpu), "% of a core")
        report.row(f"{what}: CPU of Redis alone, median", median(columns[1]) / 10, "% of a core")
        report.row(f"{what}: Redis commands, median", median(columns[2]), "a second", goal="<= 1")
        written = sum(columns[3]) * options.every / 1e6
        report.row(f"{what}: written", written, "MB", goal="<= 0")
    report.remark(f"Idle: from {options.settle} s after the last change on, for {options.watch} s. "
                  "A site is its main, its workers and its Redis.")
    columns = ["main and workers, CPU ms", "Redis, CPU ms", "Redis commands", "bytes written"]
    report.detail("idle_per_second", {"columns": columns, "sites": found})


PARTS = {"idle": idle_part}


def run(report, options):
    for name in options.parts.split(","):
        print(f"  {name}", flush=True)
        PARTS[name](report, options)
