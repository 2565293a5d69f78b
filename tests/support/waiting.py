"""The one way in which tests wait: for something, never for a time.

A limit in seconds is only a guard against hanging.
"""
import os
import re
import time
from pathlib import Path

from .stack.failure import StackError, log_tail

ASAN = os.environ.get("DOVELANE_ASAN") == "1"
VALGRIND = os.environ.get("DOVELANE_VALGRIND") == "1"
SLOW = 5 if ASAN else 20 if VALGRIND else 1


class DidNotHappen(AssertionError, StackError):
    """A test fails with it; a stack or a benchmark says it as it says all that went wrong."""


def eventually(what, condition=None, seconds=90, pause=0.1):
    """Waits until condition() is true; what it gave. The pauses grow to `pause`.

    what: words for the error, or a function that gives them then. They may be left out.
    """
    if condition is None:
        what, condition = "the condition", what
    begin = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begin
        if waited > seconds * SLOW:
            raise DidNotHappen(f"did not happen: {what() if callable(what) else what}")
        time.sleep(min(pause, 0.005 + waited / 10))
    return value


def logged(log, pattern, times=1, seconds=240):
    """All matches, of which so many are awaited: another process writes the log."""
    def found():
        path = Path(log)
        text = path.read_text(errors="replace") if path.exists() else ""
        matches = re.findall(pattern, text)
        return len(matches) >= times and matches
    return eventually(lambda: f"{pattern} {times} times in {log}\n{log_tail(log)}", found, seconds)
