"""Who used how much CPU, from /proc/PID/stat of every process.

utime + stime there come from the scheduler's exact clock and are cut to 10 ms; over a run of seconds that is below 0.01 ms
a mail. What a process's ended children used stands in its cutime + cstime, so nothing is missed when one of Postfix's ends.
Loopback's softirq work is charged to the process that sends.
"""
import os
from dataclasses import dataclass

TICKS_MS = 1000 / os.sysconf("SC_CLK_TCK")
KTHREADD = 2


@dataclass
class Entry:
    """One process's stat line."""
    pid: int
    name: str
    parent: int
    own: float     # milliseconds
    ended: float   # of its children that ended


def processes():
    for word in os.listdir("/proc"):
        if not word.isdigit():
            continue
        try:
            with open(f"/proc/{word}/stat", "rb") as file:
                stat = file.read()
        except OSError:
            continue
        begin, end = stat.index(b"("), stat.rindex(b")")
        fields = stat[end + 2:].split()
        user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
        yield Entry(int(word), stat[begin + 1:end].decode(errors="replace"), int(fields[1]), (user + system) * TICKS_MS,
                    (ended_user + ended_system) * TICKS_MS)


def stolen():
    """Milliseconds the hypervisor took from all cores."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) * TICKS_MS


def snapshot(services, master=None):
    """Group to CPU milliseconds so far. services: pid to group name; master: pid of Postfix's master.

    Beside the groups of the services: postfix/DAEMON; kernel (its threads: journal, writeback, workers); others (everything
    that is not ours: the noise); stolen.
    """
    groups = {"kernel": 0.0, "others": 0.0, "stolen": stolen()}
    for entry in processes():
        if entry.pid == os.getpid():
            continue
        if entry.pid == master:
            shares = {"postfix/master": entry.own, "postfix/ended": entry.ended}
        elif master is not None and entry.parent == master:
            shares = {f"postfix/{entry.name}": entry.own}
        elif entry.pid in services:
            shares = {services[entry.pid]: entry.own + entry.ended}
        elif KTHREADD in (entry.pid, entry.parent):
            shares = {"kernel": entry.own}
        else:
            shares = {"others": entry.own + entry.ended}
        for group, used in shares.items():
            groups[group] = groups.get(group, 0.0) + used
    return groups


def used(before, after):
    """Milliseconds per group between two snapshots."""
    spent = {group: after.get(group, 0.0) - before.get(group, 0.0) for group in sorted({*before, *after})}
    # A daemon that ended meanwhile: its whole life went to master's children's account, also what was before.
    spent["postfix/ended"] = spent.get("postfix/ended", 0.0) + sum(
        value for group, value in spent.items() if group.startswith("postfix/") and value < 0)
    return {group: max(0.0, value) for group, value in spent.items()}
