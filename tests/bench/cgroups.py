"""CPU of groups of processes, those that ended included, to the microsecond.

A control group (cgroup v2) counts what its members use, and a process that they start is a member,
too. No controller is needed for that. /proc cannot tell it: what an ended child used stands at its
parent, which is Dovecot's master for an IMAP session and for the replicator's workers alike.
"""
import contextlib
import os
import time
from pathlib import Path

from support.stack.failure import StackError


def mount_point():
    """Where the cgroup v2 hierarchy is."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        where, _, what = line.partition(" - ")
        if what.startswith("cgroup2 "):
            return Path(where.split()[4])
    raise StackError("no cgroup v2 is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified")


class Cgroup:
    """One group."""

    def __init__(self, path):
        self.path = path

    @property
    def door(self):
        """A process that writes 0 there is a member."""
        return self.path / "cgroup.procs"

    def take(self, pids):
        """Makes them members; what they used before is not counted."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self.door.write_text(str(pid))

    def ms(self):
        """CPU milliseconds of all members so far, user and system."""
        with open(self.path / "cpu.stat") as file:
            return float(next(file).split()[1]) / 1e3 # usage_usec comes first


@contextlib.contextmanager
def cgroups(*names):
    """Name to a new group; they are removed in the end, when their members should be gone."""
    parent = mount_point() / f"dovelane-bench-{os.getpid()}"
    try:
        for name in names:
            (parent / name).mkdir(parents=True)
    except OSError as error:
        raise StackError(f"CPU is counted by control groups; none can be made: {error}") from None
    try:
        yield {name: Cgroup(parent / name) for name in names}
    finally:
        for path in (*(parent / name for name in names), parent):
            remove(path)


def remove(path):
    """A member that has just ended leaves its group a moment later."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            path.rmdir()
            return
        except OSError:
            time.sleep(0.05)
