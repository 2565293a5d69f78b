"""What a replica shows, without touching it: its users' homes are copied to a Dovecot of the same kind that has no plugin and no peer, and read there.

A session at the replica itself would do a part of what is waited for (it syncs a Maildir, completes folders that were begun) and the plugin would tell the
replicator to look. A copy that was made in the middle of a change may be read as anything: it is made anew for each reading.
"""
import shutil
import subprocess
import time

from . import digest
from .group import Group, remove_tree


class SnapshotReader:
    """with SnapshotReader("sdbox", "mdbox") as reader: reader.wait_equal(group.replicas, users, within) — the specs are those of the group."""

    def __init__(self, *specs):
        self.group = Group(*specs, replication="off")

    def __enter__(self):
        self.group.up()
        return self

    def __exit__(self, *_):
        self.group.down()

    def take(self, replicas, user):
        """Copies of what all have of the user."""
        for replica, copy in zip(replicas, self.group.replicas):
            home = copy.home(user)
            if home.exists():
                remove_tree(home)
            home.parent.mkdir(parents=True, exist_ok=True)
            shutil.copystat(replica.home(user).parent, home.parent)
            owner = replica.home(user).parent.stat()
            shutil.chown(home.parent, owner.st_uid, owner.st_gid)
            subprocess.run(["cp", "-a", str(replica.home(user)), str(home)], check=False, stderr=subprocess.DEVNULL)    # what goes meanwhile is not copied
            for lock in [*home.rglob("*.lock"), *home.rglob("*.newlock")]:  # of processes that are not here, or were killed: Dovecot would wait for minutes
                lock.unlink()

    def wait_equal(self, replicas, users, within):
        """Until all show the same; seconds that it took. Its own copying and reading is a part of them."""
        began, left, told = time.monotonic(), list(users), []
        while left:
            self.take(replicas, left[0])
            told, _ = digest.compare(self.group.replicas, left[0])
            if not told:
                left.pop(0)
            elif time.monotonic() - began > within:
                raise digest.Unequal(f"{left[0]}: untouched, not equal within {within:g} s:\n  " + "\n  ".join(told[:12]))
            else:
                left.append(left.pop(0))
                time.sleep(0.1)
        return time.monotonic() - began
