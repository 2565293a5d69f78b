"""What many users cost.

    idle       all have changed once, and nothing happens: CPU, Redis commands, bytes written
    joining    A has all mails, B and both sites' states are lost: until B has them, and all rest
    turns      one mail to each of many, against as many to one of them: CPU of what replicates, openings of users

Each part is a group of two sites with the default settings; workers=32 sets replicator_workers.
"""
import contextlib
import os
import shutil
import smtplib
import socket
import tempfile
import time
from pathlib import Path

import replicas
from mailbox_sites import copy_homes
from replicas import Timed, cpu_ms, mail
from report import median
from support.stack import resp
from support.stack.failure import StackError
from support.stack.group import Group

ABOUT = "what many users cost"
OPTIONS = {"users": 1000, "settle": 600, "watch": 600, "every": 60, "dir": "/var/tmp",
           "joining": "300,3000", "mails": 3, "version": "", "workers": 0, "pace": 30, "parts": "idle,joining,turns"}
QUICK = {"users": 300, "settle": 90, "watch": 60, "every": 20, "joining": "60"}
LONG = True
PATIENCE = 600
AUTO = "namespace inbox {\n" + "".join(
    f"  mailbox {name} {{\n    auto = subscribe\n    special_use = \\{name}\n  }}\n"
    for name in ("Drafts", "Sent", "Junk", "Trash")) + "}\n"


@contextlib.contextmanager
def group(options, **more):
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        specs = ["sdbox" + (f"@{options.version}" if options.version else "")] * 2
        if options.workers:
            more["workers"] = options.workers
        with Group(*specs, directory=directory, settings={}, links=False, **more) as fresh:
            yield fresh


# -- nothing happens -----------------------------------------------------------------------------

def main_and_workers(replica):
    return [one.pid for program in replicas.REPLICATION for one in replica.processes(program)]


def used(there, replica):
    """CPU milliseconds of main and workers, of Redis; commands; bytes written: so far."""
    pids = main_and_workers(replica)
    redis = there.services[f"redis-{replica.letter}"].pid
    calls = resp.calls(there.nodes_of[replica.letter])
    return cpu_ms(pids), cpu_ms([redis]), calls, replicas.bytes_written(pids)


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
    idle_rows(report, options, f"idle, {options.users} users", found)
    report.remark(f"Idle: from {options.settle} s after the last change on, for {options.watch} s. "
                  "A site is its main, its workers and its Redis.")


def idle_rows(report, options, users, found):
    """What `watch` found."""
    for name, stretches in found.items():
        what = f"{users}, {name}"
        columns = list(zip(*stretches))
        cpu = [(ours + redis) / 10 for ours, redis in zip(columns[0], columns[1])]
        report.row(f"{what}: CPU, mean", sum(cpu) / len(cpu), "% of a core", goal="<= 0.2")
        report.row(f"{what}: CPU, median of {options.every} s", median(cpu), "% of a core")
        report.row(f"{what}: CPU of Redis alone, median", median(columns[1]) / 10, "% of a core")
        report.row(f"{what}: Redis commands, median", median(columns[2]), "a second", goal="<= 1")
        written = sum(columns[3]) * options.every / 1e6
        report.row(f"{what}: written", written, "MB", goal="<= 0")
    columns = ["main and workers, CPU ms", "Redis, CPU ms", "Redis commands", "bytes written"]
    report.detail(f"{users}: per second", {"columns": columns, "sites": found})


# -- a site is filled ----------------------------------------------------------------------------

def append(replica, user, mails):
    with contextlib.closing(Timed(replica.note["imap"], user)) as session:
        for number in range(mails):
            session.one("APPEND INBOX", mail(f"m{number}", 2048))


def lose(there, users):
    """Both sites' states, what lies in lanes, and the second site's mail."""
    a, b = there.replicas
    for replica in there.replicas:
        known = Path(replica.note["base"]) / "replicator"
        shutil.rmtree(known, ignore_errors=True)
        known.mkdir()
        with contextlib.closing(resp.Connection(there.nodes_of[replica.letter])) as redis:
            redis.call("FLUSHALL")
    for user in users:
        shutil.rmtree(a.store(user) / "dovelane", ignore_errors=True)
        shutil.rmtree(b.home(user), ignore_errors=True)


def numbers(replica):
    """What every client would have to load again if it changed."""
    rows = replica.doveadm("-f", "tab", "mailbox", "status", "-A", "messages uidvalidity uidnext", "*")
    return {row for row in rows.decode().splitlines() if "\t0\t" not in row}


def wait_filled(replica, users, mails):
    end, left = time.monotonic() + PATIENCE * 5, list(users)
    while left:
        if time.monotonic() > end:
            raise StackError(f"{len(left)} of {len(users)} users are not there after {PATIENCE * 5} s")
        left = [user for user in left if len(list((replica.store(user) / "mailboxes").glob("INBOX/dbox-Mails/u.*"))) < mails]
        time.sleep(0.5)


def join(options, count, idle):
    """Seconds until the mails are there; CPU ms a user of workers and main, per site; mailboxes
    changed at the full site, and that are not equal; what `watch` finds afterwards, if asked."""
    users = [f"u{number}@example.org" for number in range(count)]
    with group(options, users=users, more={"2.3": AUTO, "2.4": AUTO}) as there:
        a, b = there.replicas
        there.end(b.name)
        append(a, users[0], options.mails)
        there.end(a.name)
        lose(there, users)
        for user in users[1:]:
            shutil.rmtree(a.home(user), ignore_errors=True)     # a sweep may have made it
        copy_homes(a.home(users[0]), a, users[1:])
        there.start(a.name)
        before = numbers(a)
        there.start(b.name)
        began = time.monotonic()
        wait_filled(b, users, options.mails)
        took = time.monotonic() - began
        cpu = {(replica.name, program): cpu_ms([one.pid for one in replica.processes(program)]) / count
               for replica in there.replicas for program in replicas.REPLICATION}
        if not replicas.wait_idle(there, PATIENCE):
            raise StackError(f"the sites are not quiet {PATIENCE} s after all mails were there")
        after, rested = numbers(a), time.monotonic()    # to look may be activity
        if idle:
            time.sleep(max(0, rested + options.settle - time.monotonic()))
        found = watch(there, options) if idle else {}
        return took, cpu, len(before - after), len(after ^ numbers(b)), found


def joining_part(report, options):
    found, counts = {}, [int(count) for count in options.joining.split(",")]
    for count in counts:
        idle = count == max(counts)
        took, cpu, changed, unequal, at_rest = join(options, count, idle)
        what = f"joining, {count} users with {options.mails} mails"
        report.row(f"{what}: all mails there", took, "s")
        for (site, program), ms in cpu.items():
            report.row(f"{what}: CPU of {program} of {site}", ms, "ms a user", goal="<= 20" if "worker" in program else None)
        report.row(f"{what}: mailboxes of the full site with other numbers", changed, "", goal="<= 0")
        report.row(f"{what}: mailboxes that the sites show with other numbers", unequal, "", goal="<= 0")
        if idle:
            idle_rows(report, options, f"joined, idle, {count} users", at_rest)
        found[count] = sum(cpu.values())
    few, many = min(found), max(found)
    if few != many:
        report.row(f"joining, CPU a user, {many} against {few} users", found[many] / found[few], "", goal="<= 1.2")


# -- mail for one after the other ----------------------------------------------------------------

def deliver(replica, users, pace):
    """pace: milliseconds from the end of one to the next."""
    host, _, port = replica.note["lmtp"].rpartition(":")
    with smtplib.LMTP(host, int(port), timeout=PATIENCE) as session:
        for number, user in enumerate(users):
            session.sendmail("sender@stack.example", [user], mail(f"d{number}", 2048))
            time.sleep(pace / 1000)


def replication_cpu(there):
    return sum(sum(used(there, replica)[:2]) for replica in there.replicas)


def openings(there):
    """How often a worker has opened a user, at both sites."""
    return sum(counter(replica, "dovelane_replicator_opens_total") for replica in there.replicas)


def counter(replica, name):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(Path(replica.note["base"]) / "metrics"))
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.split()[0] == name)


def turns_part(report, options):
    """One after the other, as fast as they are taken, and with a pause, in which each is replicated by itself."""
    users = [f"u{number}@example.org" for number in range(options.users)]
    loads = {"one": [users[0]] * len(users), "each": users}
    with group(options, users=users) as there:
        deliver(there.replicas[0], users, 0)    # all are new
        for pace in 0, options.pace:
            cost = {}
            for name, load in loads.items():
                if not replicas.wait_idle(there, PATIENCE):
                    raise StackError(f"the sites are not quiet after {PATIENCE} s")
                before, opened = replication_cpu(there), openings(there)
                deliver(there.replicas[0], load, pace)
                if not replicas.wait_idle(there, PATIENCE):
                    raise StackError(f"the sites are not quiet {PATIENCE} s after the last mail")
                cost[name] = (replication_cpu(there) - before) / len(load), (openings(there) - opened) / len(load)
            what = f"a mail to each of {len(users)} users in turn, {pace} ms apart"
            report.row(f"{what}: CPU of main, workers and Redis of both sites", cost["each"][0], "ms a mail", "to one user", cost["one"][0],
                       goal="<= 2")
            report.row(f"{what}: openings of users at both sites", cost["each"][1], "a mail", "to one user", cost["one"][1])


PARTS = {"idle": idle_part, "joining": joining_part, "turns": turns_part}


def run(report, options):
    for name in options.parts.split(","):
        print(f"  {name}", flush=True)
        PARTS[name](report, options)
