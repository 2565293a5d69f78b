"""Who used how much CPU, from /proc/PID/stat of every process.

utime + stime there come from the scheduler's exact clock and are cut to 10 ms; over a run of seconds that is below 0.01 ms
a mail. What a process's ended children used stands in its cutime + cstime, so nothing is missed when one of Postfix's ends.
Loopback's softirq work is charged to the process that sends.
"""
import os
import time
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


def awake():
    """Milliseconds that all cores together were not idle, since some moment. Exact where the kernel stops its tick when idle."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return time.monotonic() * 1000 * os.cpu_count() - (int(fields[4]) + int(fields[5])) * TICKS_MS


def snapshot(services, master=None):
    """Group to CPU milliseconds so far. services: pid to group name; master: pid of Postfix's master.

    Beside the groups of the services: postfix/DAEMON; runner (this program); kernel (its threads: journal, writeback,
    workers); awake (all cores, whoever used them).
    """
    groups = {"kernel": 0.0, "awake": awake()}
    for entry in processes():
        if entry.pid == os.getpid():
            shares = {"runner": entry.own}
        elif entry.pid == master:
            shares = {"postfix/master": entry.own, "postfix/ended": entry.ended}
        elif master is not None and entry.parent == master:
            shares = {f"postfix/{entry.name}": entry.own}
        elif entry.pid in services:
            shares = {services[entry.pid]: entry.own + entry.ended}
        elif entry.parent in services:
            shares = {services[entry.parent]: entry.own}
        elif KTHREADD in (entry.pid, entry.parent):
            shares = {"kernel": entry.own}
        else:
            continue
        for group, used in shares.items():
            groups[group] = groups.get(group, 0.0) + used
    return groups


def used(before, after, **more):
    """Milliseconds per group between two snapshots; `more` are groups known from elsewhere.

    `others` is what the cores did beyond all that: other processes, the hypervisor, interrupts. It is the noise. It is not
    summed from /proc, because a process that ended meanwhile may have left no trace there.
    """
    spent = {group: after.get(group, 0.0) - before.get(group, 0.0) for group in sorted({*before, *after})}
    spent.update(more)
    # A daemon that ended meanwhile is now in its master's account, with what it had used before: take that off there.
    for group, value in spent.items():
        if group.startswith("postfix/") and value < 0:
            spent["postfix/ended"] += value
            spent[group] = 0.0
    total = spent.pop("awake")
    return dict(spent, others=max(0.0, total - sum(spent.values())), awake=total)


def ours(spent):
    """What the measured system used, kernel threads and load included."""
    return sum(value for group, value in spent.items() if group not in ("others", "awake", "runner"))


def wait_quiet(seconds, share=0.05):
    """Waits until others use less than a share of the machine for half a second, at most some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before, began = awake(), time.monotonic()
        time.sleep(0.5)
        if awake() - before < share * (time.monotonic() - began) * 1000 * os.cpu_count():
            return
