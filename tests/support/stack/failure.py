"""The one error of this package: what failed, where its log is, and the log's end."""
from pathlib import Path


class StackError(Exception):
    """Something could not be started, or did not answer."""


def log_tail(path, lines=15):
    """The end of a log file, indented, for an error text."""
    try:
        with open(path, "rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 16384))
            text = log.read().decode(errors="replace").replace("\r", "\n")
    except OSError as error:
        return f"  (no log: {error})"
    last = text.rstrip("\n").split("\n")[-lines:]
    return "\n".join("  " + line for line in last) if text.strip() else "  (the log is empty)"


def failed(what, log=None):
    """A StackError for `what`, with the tail of the log that explains it."""
    if log is None:
        return StackError(what)
    return StackError(f"{what}\nlast lines of {Path(log)}:\n{log_tail(log)}")
