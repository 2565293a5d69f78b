"""Unchanged mailboxes: what a client that opens and closes every folder each minute costs (nupas), with replication, against stock Dovecot.

A user of 15,200 messages in 16 folders, and one of a hundredth of it. In ten blocks each, in turn, a client opens and closes every folder
1,000 times in all: what it waits for, what its imap process keeps in memory, and what replication does meanwhile, which must not grow with
the mailbox.
"""
import contextlib
import statistics

import replicas
from bench_imap import PLACES, TITLES, all_variants, choose_cores
from replicas import Timed, cpu_ms, made, mail, percentile, ratio_interval, wait_idle
from report import median

ABOUT = "unchanged mailboxes opened and closed, with replication, against stock Dovecot"
OPTIONS = {"messages": 15200, "folders": 16, "cycles": 1000, "size": 1024, "storage": "sdbox", "version": "", "dir": "/var/tmp",
           "variants": "stock,dovelane", "delay_ms": 0}
QUICK = {"messages": 1520, "cycles": 50}


def fill(replica, user, messages, folders):
    names = ["INBOX"] + [f"F{n}" for n in range(folders - 1)]
    with contextlib.closing(Timed(replica.note["imap"], user)) as session:
        for number, name in enumerate(names):
            if name != "INBOX":
                session.one(f"CREATE {name}")
            replicas.multi_append(session, name, [mail(f"{number}-{n}", 1024) for n in range(messages // folders)])
    return names


def open_and_close(replica, user, names, cycles):
    """Milliseconds of each SELECT with its UNSELECT; memory of imap at the end; CPU ms in imap per pair."""
    commands = [(made(f"SELECT {name}"), made("UNSELECT")) for name in names]
    with contextlib.closing(Timed(replica.note["imap"], user)) as session:
        pid = replica.processes("imap")[0].pid
        before, times = cpu_ms([pid]), []
        for _ in range(cycles):
            for pair in commands:
                times.append(sum(session.times(pair)))
        return {"times": times, "memory": replicas.memory_kb(pid), "cpu": (cpu_ms([pid]) - before) / len(times)}


def measure(report, options, chosen):
    users = {"large": options.messages, "small": max(options.folders, options.messages // 100)}
    names = {}
    for name, one in chosen.items():
        for user, messages in users.items():
            names[user] = fill(one.replica, f"{user}@example.org", messages, options.folders)
        if name == "dovelane":
            wait_idle(one.group, 300)
    blocks, found, behind = 10, {}, {}
    for block in range(blocks):
        for name in list(chosen)[::1 if block % 2 else -1]:
            for user in users:
                one = chosen[name]
                one.pin()
                pids = replicas.replication_pids(one.group)
                before = cpu_ms(pids)
                with replicas.on(options.ours):
                    found.setdefault((name, user), []).append(
                        open_and_close(one.replica, f"{user}@example.org", names[user], max(1, options.cycles // blocks)))
                behind.setdefault((name, user), []).append(cpu_ms(pids) - before)
    lines = []
    for (name, user), here in found.items():
        every = [value for one in here for value in one["times"]]
        lines.append([f"{users[user]} messages", TITLES[name], statistics.median(every), percentile(every, 0.99),
                      median([one["cpu"] for one in here]), median([one["memory"] for one in here]), sum(behind[name, user])])
    report.table(f"SELECT and UNSELECT of every one of {options.folders} folders, {options.cycles} times: ms, imap's CPU ms, "
                 "imap's own memory in kB, and CPU ms of all that replicates in the whole time",
                 ["user", "variant", "p50", "p99", "CPU", "kB", "behind"], lines)
    for user in users:
        ours, theirs = found["dovelane", user], found["stock", user]
        for what, of, goal in (("p50", lambda one: statistics.median(one["times"]), "<= 1.05"),
                               ("p99", lambda one: percentile(one["times"], 0.99), "<= 1.15"),
                               ("memory of imap", lambda one: one["memory"], "<= 1.05")):
            ratio, low, high = ratio_interval([of(one) for one in ours], [of(one) for one in theirs])
            report.row(f"unchanged mailboxes, {users[user]} messages, {what}: upper end of the ratio {ratio:.3f} [{low:.3f}, {high:.3f}]",
                       high, "x", goal=goal)
    large, small = sum(behind["dovelane", "large"]), sum(behind["dovelane", "small"])
    report.row(f"CPU of all that replicates while mailboxes are opened and closed, {users['large']} messages", large, "ms",
               f"{users['small']} messages", max(small, 1.0))


def run(report, options):
    report.remark(f"Storage {options.storage}, files in memory; medians of ten blocks, 95 % interval of the ratio of medians by drawing blocks in pairs.")
    choose_cores(options)
    with all_variants(options, PLACES["in memory"][1], 1) as variants:
        measure(report, options, variants)
