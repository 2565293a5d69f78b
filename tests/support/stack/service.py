"""A service: how one program is started, seen to answer, hurt, and ended.

Everything needed to start it again is data, so a service read back from stack.json can be killed and started by another
process than the one that made it.
"""
import signal
from pathlib import Path

from . import probe
from .failure import failed
from .process import Process, spawn, state_and_start


class Service:
    """One program in the foreground as a process of its own."""

    kind = "program"

    def __init__(self, name, argv, log, probes=(), cwd=None, env=None, grace=10.0, remove=(), note=None):
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = str(log)
        self.probes = [list(entry) for entry in probes]
        self.cwd = None if cwd is None else str(cwd)
        self.env = dict(env or {})
        self.grace = grace
        self.remove = [str(path) for path in remove]
        self.note = dict(note or {})
        self.process = None

    def start(self, mark, started=lambda: None):
        """Starts it and waits until it answers. Does nothing when it runs. `started` is called as soon as there is a process, so
        that it is on record whatever happens while waiting.
        """
        if self.alive():
            return
        for path in self.remove:
            Path(path).unlink(missing_ok=True)
        self.launch(mark)
        started()
        probe.wait(self.name, self.probes, self.log, self.process)
        if not self.alive():
            raise failed(f"{self.name} ended at once", self.log)

    def launch(self, mark):
        self.process = spawn(self.argv, mark, self.log, cwd=self.cwd, env=self.env)

    def alive(self):
        return self.process is not None and self.process.alive()

    def state(self):
        """runs, stopped (by SIGSTOP), or gone."""
        if not self.alive():
            return "gone"
        known = state_and_start(self.process.pid)
        return "stopped" if known and known[0] in "Tt" else "runs"

    @property
    def pid(self):
        return self.process.pid if self.alive() else None

    def send(self, number):
        return self.process is not None and self.process.send(number)

    def kill(self, number=signal.SIGKILL):
        """Sends the signal, and waits for its effect if that is sure: KILL ends it, STOP stops it."""
        if not self.send(number):
            return
        if number == signal.SIGKILL:
            self.process.wait_gone(10)
        elif number == signal.SIGSTOP:
            self.process.wait_stopped(10)

    def end(self):
        """Ends it. Returns None, or a remark when it had to be killed."""
        if not self.alive():
            return None
        if self.process.end(self.grace):
            return None
        return f"{self.name} did not end within {self.grace:g} s of SIGTERM and was killed"

    def record(self):
        """For stack.json."""
        return {"kind": self.kind, "argv": self.argv, "log": self.log, "probes": self.probes, "cwd": self.cwd, "env": self.env,
                "grace": self.grace, "remove": self.remove, "note": self.note,
                "pid": self.process.pid if self.process else None,
                "started": self.process.started if self.process else None}

    @classmethod
    def restore(cls, name, record):
        service = cls(name, record["argv"], record["log"], record["probes"], record["cwd"], record["env"], record["grace"],
                      record["remove"], record["note"])
        if record["pid"] is not None:
            service.process = Process(record["pid"], record["started"] or -1)
        return service
