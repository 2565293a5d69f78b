"""Memory that the host has really given.

A guest's page that was never touched, or that was given back to the host while it was free (free page reporting of a balloon), is fetched from the host when it is
next written: some 8 us, in the middle of whatever is measured. An IMAP APPEND into files in memory takes 0.16 or 0.23 ms by that alone.
"""
import contextlib
import mmap
import os
from pathlib import Path

ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
NEVER = 11 # larger than any block of free pages, so that none is reported
LEFT = 1 << 30 # bytes that nobody touches: what starts meanwhile wants some


def available():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def touch_free():
    """Writes to all free memory once."""
    size = available() - LEFT
    if size <= 0:
        return
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


@contextlib.contextmanager
def given():
    """Free memory is touched and not given back; the setting is put back at the end. Where it may not be changed, it is only touched."""
    before = ORDER.read_text() if os.access(ORDER, os.W_OK) else None
    if before:
        with contextlib.suppress(OSError): # an older kernel takes no such order
            ORDER.write_text(str(NEVER))
    touch_free()
    try:
        yield
    finally:
        if before:
            ORDER.write_text(before)
