"""What a promise costs on this disk: writing a small file and waiting until it is durable."""
import os
import time
from pathlib import Path


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
