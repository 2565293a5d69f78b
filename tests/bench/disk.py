"""The disk under Postfix's queue: what a promise costs there, and a file system with a journal where the machine's has none.

ext4 without a journal (some virtual machines' root) looks through all files deleted in the last minute whenever one is created;
after some ten thousand mails each new queue file costs Postfix's cleanup about 0.8 ms of CPU, in every variant. No mail
server runs like that, so the queue can be put on an ordinary ext4 in a file on the same disk.
"""
import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CLONE_NEWNS = 0x20000
IMAGE_MB, JOURNAL_MB = 384, 64


def file_system(path):
    """(device, type) of the mount that holds a path."""
    best = ("", "?", "?")
    with open("/proc/mounts") as file:
        for line in file:
            device, point, kind = line.split()[:3]
            point = point.encode().decode("unicode_escape")
            if os.path.commonpath([point, path]) == point and len(point) >= len(best[0]):
                best = (point, device, kind)
    return best[1], best[2]


def fsync_ms(directory, times=200, size=1024):
    """Sorted milliseconds of create, write, fsync of one file after another, as Postfix's cleanup does per mail."""
    content, taken = b"x" * size, []
    for number in range(times):
        path = Path(directory) / f"fsync-{number}"
        begin = time.perf_counter_ns()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(handle, content)
        os.fsync(handle)
        taken.append((time.perf_counter_ns() - begin) / 1e6)
        os.close(handle)
        os.unlink(path)
    return sorted(taken)


def has_journal(path):
    """False when it is an ext4 without one."""
    device, kind = file_system(path)
    if kind != "ext4":
        return True
    name = os.path.basename(os.path.realpath(device))
    return any(entry.rpartition("-")[0] == name for entry in os.listdir("/proc/fs/jbd2"))


def call(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stdout.decode(errors='replace').strip()}")


@contextlib.contextmanager
def journaled(parent, megabytes=IMAGE_MB):
    """A directory on a new ext4 with a journal, kept in a file below `parent`.

    It is mounted in a mount namespace of this process and its children, and the file is unlinked at once: whatever happens
    to us, both go with our last process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNS)")
    call("mount", "--make-rprivate", "/")
    place = Path(tempfile.mkdtemp(prefix="bench-disk-", dir=parent))
    try:
        image, point = place / "image", place / "d"
        point.mkdir()
        try:
            with open(image, "wb") as file:  # written, not sparse: its blocks must not be allocated while it is measured
                for _ in range(megabytes):
                    file.write(bytes(1 << 20))
                os.fsync(file.fileno())
            call("mkfs.ext4", "-q", "-F", "-J", f"size={JOURNAL_MB}", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
            call("mount", "-o", "loop", image, point)
        finally:
            image.unlink(missing_ok=True)
        place.chmod(0o755)
        try:
            yield point
        finally:
            call("umount", point)
    finally:
        shutil.rmtree(place, ignore_errors=True)
