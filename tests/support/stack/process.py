"""Processes: started with a mark, known by pid and start time, ended by pid only.

A pid alone names nothing for long: it is used again. So every process is kept as (pid, start time). Daemons that fork and
change their session are found by a mark in their environment, which the kernel shows as it was at exec. Postfix cleans its
environment, so main.cf names the mark in `import_environment`; Dovecot writes its process titles over it, so its instance
name, which begins each title, is made from the mark.
"""
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

MARK = "DOVELANE_STACK"


def state_and_start(pid):
    """(state letter, clock ticks since boot when it began); None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2:].split()
    return fields[0].decode(), int(fields[19])


def start_time(pid):
    """When the process began; None when there is none, or only a zombie."""
    known = state_and_start(pid)
    return None if known is None or known[0] in "ZX" else known[1]


class Process:
    """One process; alive only while the same process has the pid."""

    def __init__(self, pid, started=None):
        self.pid = pid
        self.started = start_time(pid) if started is None else started

    def alive(self):
        """Whether it runs (or is stopped). Our own child's exit status is taken here, because a zombie keeps its pid."""
        known = state_and_start(self.pid)
        if known is None or known[1] != self.started:
            return False
        if known[0] not in "ZX":
            return True
        try:
            # A killed server whose main thread is gone may have others that still hold its port: only then there is nothing to reap yet.
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def send(self, number):
        """Sends a signal; False when the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, seconds):
        """True when the process ended within the time."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def wait_stopped(self, seconds):
        """Waits until SIGSTOP has taken effect."""
        end = time.monotonic() + seconds
        while self.alive() and state_and_start(self.pid)[0] != "T" and time.monotonic() < end:
            time.sleep(0.005)

    def end(self, grace, first=signal.SIGTERM):
        """Asks it to end, wakes it if it was stopped, and kills it after the grace. True when asking was enough."""
        if not self.send(first):
            return True
        self.send(signal.SIGCONT)
        if self.wait_gone(grace):
            return True
        self.send(signal.SIGKILL)
        self.wait_gone(5)
        return False


def spawn(argv, mark, log, cwd=None, env=None, pass_fds=()):
    """Starts a program in a session of its own, output to the log file."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "LD_PRELOAD", "LD_LIBRARY_PATH"):
        if name in os.environ:
            environment[name] = os.environ[name]
    environment.update(env or {})
    environment[MARK] = mark
    with open(log, "ab", buffering=0) as output:
        child = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                 start_new_session=True, cwd=cwd, env=environment, pass_fds=pass_fds)
    child.returncode = 0  # reaped by Process.alive, by pid: Popen must neither warn nor take the status
    return Process(child.pid)


def instance(mark):
    """The Dovecot instance name that stands for the mark."""
    return "stack-" + mark.rpartition(":")[2]


def marked(mark):
    """All living processes that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    title = f"dovecot-{instance(mark)}/".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ, open(f"/proc/{entry}/cmdline", "rb") as command:
                if wanted not in environ.read().split(b"\0") and not command.read(200).startswith(title):
                    continue
        except OSError:
            continue
        process = Process(int(entry))
        if process.started is not None:
            found.append(process)
    return found


def sweep(mark, grace=3.0):
    """Ends whatever still carries the mark: first asked, then killed. Returns how many had to be."""
    swept = 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = marked(mark)
        if number == signal.SIGTERM:
            swept = len(left)
        for process in left:
            process.send(number)
            process.send(signal.SIGCONT)
        end = time.monotonic() + grace
        for process in left:
            process.wait_gone(max(0.01, end - time.monotonic()))
    return swept


def become_subreaper():
    """Makes daemons that lose their parent ours (prctl PR_SET_CHILD_SUBREAPER), so that what we started stays countable."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
