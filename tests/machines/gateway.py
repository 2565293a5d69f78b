"""Two mail servers that follow docs/admin-guide.md, and mail that is counted by id while something happens to them."""
import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import guide
import hosts
from guide import at_once
from hosts import ADDRESSES
from machine import Failed

GUIDE = "admin-guide.md"
HERE = pathlib.Path(__file__).parent
REDIS_CONF = "/etc/redis/redis-dovelane.conf"
# Stands for ssh mx2: what was sent is taken to the other machine after the block.
SSH = "#!/bin/sh\nshift\necho \"$@\" > /var/tmp/ssh.command\nexec cat > /var/tmp/ssh.input\n"
NOT_HERE = {
    "apt-get install git make": "true",
    'git clone "$REPOSITORY" /usr/src/dovelane': "mkdir -p /usr/src/dovelane; cp /var/tmp/setup /usr/src/dovelane/",
    "make install": "tar -C / -xf /var/tmp/dovelane.tar",
    "sysctl -p /etc/sysctl.d/90-dovelane.conf": "true",  # a container may not
    "dovelane check": "dovelane check || [ $? = 1 ]",  # 1: warnings, of which the guide says that they are right
}
LEAVING = {
    "make -C /usr/src/dovelane uninstall": "tar -tf /var/tmp/dovelane.tar | sed -n 's/^\\.//p' | grep -v '/$' | while read -r file; do rm -f \"$file\"; done",
}


class Follower(guide.Reader):
    def do(self, name, block):
        super().do(name, block)
        machine = self.machines[name]
        if machine.place("/var/tmp/ssh.input").exists():
            other = self.machines["mx2"]
            shutil.move(machine.place("/var/tmp/ssh.input"), other.place("/var/tmp/ssh.input"))
            other.run(machine.read("/var/tmp/ssh.command").strip() + " < /var/tmp/ssh.input; rm /var/tmp/ssh.input")


class Pair:
    """mx1 and mx2, each with the Postfix and the Dovecot that somebody had before."""

    def __init__(self, world, release):
        self.world, self.release = world, release
        tree, programs = hosts.mail_server(release), hosts.installed(release, world.folder)
        self.machines = {name: world.machine(name, address, tree) for name, address in ADDRESSES.items()}
        for machine in self.machines.values():
            hosts.configure(machine)
            shutil.copy(hosts.ROOT / "setup", machine.place("/var/tmp/setup"))
            shutil.copy(programs, machine.place("/var/tmp/dovelane.tar"))
            machine.write("/usr/local/bin/ssh", SSH, 0o755)
        at_once(lambda machine: machine.boot(), self.machines.values())
        own = {"mx1": {}, "mx2": {"-h 10.0.0.1": "-h 10.0.0.2", "bind 10.0.0.1": "bind 10.0.0.2", "lane.node mx1": "lane.node mx2", "DOVELANE_NODE=mx1": "DOVELANE_NODE=mx2",
                                  "mx1.crt": "mx2.crt", "mx1.key": "mx2.key"}}
        self.reader = Follower(self.machines, own, per_host=[REDIS_CONF], instead=NOT_HERE)
        self.journals = world.folder / "journals"
        self.journals.mkdir()
        self.hold = self.journals / "hold"
        self.sink = world.popen("/usr/bin/python3", HERE / "mail.py", "sink", "--journal", self.journals / "sink", "--hold", self.hold, stdout=subprocess.PIPE, text=True)
        assert self.sink.stdout.readline() == "ready\n"

    def each(self, script, **keywords):
        return {name: machine.run(script, **keywords) for name, machine in self.machines.items()}

    def follow(self, *headings):
        for heading in headings:
            self.reader.follow(GUIDE, heading)

    def whole(self, timeout=180):
        """Waits until every node is alive and whole."""
        for machine in self.machines.values():
            machine.wait("dovelane nodes", timeout, "dovelane nodes ends with 0")

    def listeners(self):
        return {name: set(re.findall(r"^LISTEN\s+\S+\s+\S+\s+(\S+)", machine.run("ss -ltn"), re.M)) for name, machine in self.machines.items()}

    def send(self, rcpt, to="10.0.0.1", mails=1, rate=50.0, size=0):
        """Sends mails one after the other; returns their ids, all of them answered 250."""
        journal = self.journals / f"sent-{time.monotonic_ns()}"
        self.world.run("/usr/bin/python3", HERE / "mail.py", "send", "--to", to, "--rcpt", rcpt, "--journal", journal, "--mails", mails, "--rate", rate, "--size", size)
        return journal.read_text(encoding="ascii").split()

    @contextlib.contextmanager
    def load(self, rcpt="u@next.example", rate=20, to=tuple(ADDRESSES)):
        """Mail flows to both hosts; at the end every id that was answered 250 has arrived. Yields a Load, whose counts are told afterwards."""
        load = Load(self, rcpt, rate, to)
        try:
            yield load
            load.finish()
        finally:
            load.stop()

    def arrived(self):
        path = self.journals / "sink"
        return path.read_text(encoding="ascii").split() if path.exists() else []

    def mailboxes(self):
        """The ids of all mails in the Maildirs of both hosts."""
        return [line for machine in self.machines.values() for line in machine.run("grep -rhs '^X-Id:' /var/vmail | sed 's/X-Id: //'", check=False).split()]

    def close(self):
        self.sink.kill()
        self.sink.wait()


class Load:
    def __init__(self, pair, rcpt, rate, to):
        self.pair, self.journal = pair, pair.journals / f"load-{time.monotonic_ns()}"
        self.before = len(pair.arrived())
        self.journal.touch()
        self.process = pair.world.popen("/usr/bin/python3", HERE / "mail.py", "send", "--to", ",".join(ADDRESSES[name] for name in to), "--rcpt", rcpt, "--journal", self.journal, "--rate", rate,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.more(20)

    def promised(self):
        return self.journal.read_text(encoding="ascii").split()

    def more(self, mails=50, timeout=120):
        """Waits until that many more mails were answered 250."""
        wanted, end = len(self.promised()) + mails, time.monotonic() + timeout
        while len(self.promised()) < wanted:
            assert time.monotonic() < end, f"no {mails} mails were accepted within {timeout} s"
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.1)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def finish(self, timeout=240):
        self.stop()
        self.said = self.process.communicate()[0]
        promised, end = set(self.promised()), time.monotonic() + timeout
        while missing := promised - set(self.pair.arrived()):
            if time.monotonic() > end:
                where = self.pair.each("dovelane nodes; dovelane mailq; postqueue -p | tail -5; tail -30 /var/log/mail.log", check=False)
                raise Failed(f"{len(missing)} of {len(promised)} mails that were answered 250 did not arrive within {timeout} s: {sorted(missing)[:5]}\n"
                             + "\n".join(f"{name}: {text}" for name, text in where.items()))
            time.sleep(0.3)
        arrived = self.pair.arrived()[self.before:]
        self.doubled = len(arrived) - len(set(arrived))
        self.refused = int(re.search(r"refused (\d+)", self.said)[1])
        print(f"{len(promised)} mails answered 250, 0 lost, {self.doubled} came twice, {self.refused} attempts refused", file=sys.stderr)
