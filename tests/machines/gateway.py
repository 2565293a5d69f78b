"""Two mail servers that follow docs/admin-guide.md, and mail that is counted by id while something happens to them."""
import contextlib
import itertools
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
from machine import Failed, call

GUIDE = "admin-guide.md"
HERE = pathlib.Path(__file__).parent
REDIS_CONF = "/etc/redis/redis-dovelane.conf"
UNITS = ["redis-server@dovelane", "dovelane-relay", "dovelane-milter"]
# Stands for ssh HOST: what was sent is taken to that machine after the block.
SSH = "#!/bin/sh\necho \"$1\" > /var/tmp/ssh.host\nshift\necho \"$@\" > /var/tmp/ssh.command\nexec cat > /var/tmp/ssh.input\n"
# For machines that reach nothing.
NO_NETWORK = {
    "apt-get install git make": "true",
    'git clone "$REPOSITORY" /usr/src/dovelane': "test -x /usr/src/dovelane/setup",
    "sysctl -p /etc/sysctl.d/90-dovelane.conf": "true",  # a container may not
    "dovelane check": "dovelane check || [ $? = 1 ]",  # 1: warnings, of which the guide says that they are right
}
NOT_HERE = {
    **NO_NETWORK,
    'git clone "$REPOSITORY" /usr/src/dovelane': "mkdir -p /usr/src/dovelane; cp /var/tmp/setup /usr/src/dovelane/",
    "make install": "tar -C / -xf /var/tmp/dovelane.tar",
}
LEAVING = {
    "make -C /usr/src/dovelane uninstall": "tar -tf /var/tmp/dovelane.tar | sed -n 's/^\\.//p' | grep -v '/$' | while read -r file; do rm -f \"$file\"; done",
}


# --askpass wants a terminal.
ASKPASS = re.compile(r"^(\S+-cli .*--user dovelane) --askpass", re.M)
PASSWORD = r"REDISCLI_AUTH=$(cut -d ' ' -f 2 /etc/dovelane/dovelane/user) \1"


class Follower(guide.Reader):
    def commands_for(self, name, block):
        return ASKPASS.sub(PASSWORD, super().commands_for(name, block))

    def do(self, name, block):
        super().do(name, block)
        machine = self.machines[name]
        if machine.place("/var/tmp/ssh.input").exists():
            other = self.machines[machine.read("/var/tmp/ssh.host").strip()]
            shutil.move(machine.place("/var/tmp/ssh.input"), other.place("/var/tmp/ssh.input"))
            other.run(machine.read("/var/tmp/ssh.command").strip() + " < /var/tmp/ssh.input; rm /var/tmp/ssh.input")


class Pair:
    """mx1 and mx2, each with the Postfix and the Dovecot that somebody had before.

    sources: tars of /usr/src that both have, with which `make install` is what it says; without any, the files that it installs are put there.
    groups: {host: group of ./setup} where it is another one than `host`; own: {host: {text of the guide: what it is there}}, beside what names the host.
    """

    def __init__(self, world, release, sources=(), groups=None, own=None):
        self.world, self.release = world, release
        programs = None if sources else hosts.installed(release, world.folder)
        self.machines = {name: world.machine(name, address, hosts.mail_server(release, (groups or {}).get(name, "host"))) for name, address in ADDRESSES.items()}
        for machine in self.machines.values():
            hosts.configure(machine)
            machine.write("/usr/local/bin/ssh", SSH, 0o755)
            for source in sources:
                call("tar", "-C", machine.tree, "-xf", source)
            if programs:
                shutil.copy(hosts.ROOT / "setup", machine.place("/var/tmp/setup"))
                shutil.copy(programs, machine.place("/var/tmp/dovelane.tar"))
        at_once(lambda machine: machine.boot(), self.machines.values())
        names = {"mx1": {}, "mx2": {"-h 10.0.0.1": "-h 10.0.0.2", "bind 10.0.0.1": "bind 10.0.0.2", "lane.node mx1": "lane.node mx2", "DOVELANE_NODE=mx1": "DOVELANE_NODE=mx2",
                                  "mx1.crt": "mx2.crt", "mx1.key": "mx2.key"}}
        self.reader = Follower(self.machines, {name: {**(own or {}).get(name, {}), **names[name]} for name in ADDRESSES}, per_host=[REDIS_CONF], instead=NO_NETWORK if sources else NOT_HERE)
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


def divert(pair, names):
    """A name more in `divert`, as the reference's "Growing" says it."""
    for machine in pair.machines.values():
        machine.run(f"sed -i 's#^divert = .*#divert = {{ {names} }}#' /etc/dovelane/dovelane.conf; systemctl reload dovelane-relay dovelane-milter")


def stored(pair, mails=40, size=0):
    """Mails that lie in lanes, since their next hop says 451."""
    machine = pair.machines["mx1"]
    pair.hold.touch()
    sent, end = [], time.monotonic() + 120
    while len(machine.run("dovelane mailq -j").splitlines()) < mails:  # a milter that was just started gives its first mails to Postfix
        assert time.monotonic() < end, machine.run("dovelane nodes; grep dovelane-milter /var/log/mail.log | tail -5", check=False)
        sent += pair.send("u@next.example", mails=mails // 4, size=size)
    return set(sent)


def delivered(pair, sent, timeout=180):
    pair.hold.unlink(missing_ok=True)
    end = time.monotonic() + timeout
    while sent - set(pair.arrived()):
        assert time.monotonic() < end, f"{len(sent - set(pair.arrived()))} of {len(sent)} did not arrive\n" + pair.machines["mx1"].run("dovelane nodes; dovelane mailq; tail -20 /var/log/mail.log", check=False)
        pair.machines["mx1"].run("dovelane flush", check=False)
        time.sleep(1)


def delivered_by_postfix(pair, sent, timeout=180):
    pair.hold.unlink(missing_ok=True)
    end = time.monotonic() + timeout
    while sent - set(pair.arrived()):
        assert time.monotonic() < end, f"{len(sent - set(pair.arrived()))} did not arrive: {pair.each('find /var/spool/postfix -type f -name [0-9]*')}"
        pair.each("postqueue -f")
        time.sleep(1)


def follow_tls(pair):
    """To "A second network", which is another way."""
    pair.reader.instead["dovelane check nodes"] = "dovelane check nodes || true"  # asked again when all is whole
    pair.follow("## Two hosts: TLS and users")


def exposure(release):
    """What the guide says of systemd-analyze security: {unit: the most that it may be}."""
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table("### How far the units are shut in")]
    column = rows[0].index({"bookworm": "Debian 12", "trixie": "Debian 13"}[release])
    return {row[0]: float(row[column]) for row in rows[2:] if row[column]}


def table(heading):
    """The lines of the table below a heading of the guide, or below a line that begins so."""
    lines = (hosts.ROOT / "docs" / GUIDE).read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(heading))
    begin += next(number for number, line in enumerate(lines[begin:]) if line.startswith("|"))
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[begin:]))


def shut_in(machine, release, units):
    """No unit is worse than the guide says, and systemd finds no fault with any."""
    assert machine.run("systemd-analyze verify --man=no " + " ".join(f"{unit}.service" for unit in units) + " 2>&1 | grep -i dovelane || true") == ""
    found = {unit: re.search(r"Overall exposure level for \S+: ([0-9.]+)", machine.run(f"systemd-analyze security --no-pager {unit}.service"))[1] for unit in units}
    print(f"{machine.name} ({release}) exposure: {found}")
    allowed = exposure(release)
    assert {unit: level for unit, level in found.items() if float(level) > allowed[unit]} == {}, f"the guide says {allowed}"
