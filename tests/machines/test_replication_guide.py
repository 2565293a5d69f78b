"""docs/replication-guide.md, "Two sites" and "Going back", on two booted Debians. The tests of a pair run in their order, on the same two machines."""
import json
import shutil
import sys
import time

import gateway
import hosts
import pytest
from guide import at_once
from machine import World

pytestmark = pytest.mark.exhaustive

GUIDE = "replication-guide.md"
HERE = hosts.release_here()
ADDRESSES = {"site-a": "10.0.0.1", "site-b": "10.0.0.2"}
USER = "anna@example.org"
CLIENT = hosts.ROOT / "tests/machines/imap.py"


class Sites:
    def __init__(self, world, releases):
        self.world = world
        self.machines = {}
        for (name, address), release in zip(ADDRESSES.items(), releases):
            self.machines[name] = machine = world.machine(name, address, hosts.mail_server(release))
            hosts.configure(machine)
            shutil.copy(hosts.ROOT / "setup", machine.place("/var/tmp/setup"))
            shutil.copy(hosts.installed(release, world.folder), machine.place("/var/tmp/dovelane.tar"))
            machine.write("/usr/local/bin/ssh", gateway.SSH, 0o755)
        at_once(lambda machine: machine.boot(), self.machines.values())
        self.a, self.b = self.machines.values()
        own = {"site-a": {}, "site-b": {"-h 10.0.0.1": "-h 10.0.0.2", "bind 10.0.0.1": "bind 10.0.0.2", "lane.node site-a": "lane.node site-b",
                                          "site-a.crt": "site-b.crt", "site-a.key": "site-b.key", "site-a.acl": "site-b.acl", "site-a.user": "site-b.user"}}
        self.reader = gateway.Follower(self.machines, own, per_host=[gateway.REDIS_CONF], instead={**gateway.NOT_HERE, "./setup host": "./setup host"})
        self.begin = time.monotonic()

    def client(self, name, *words):
        """What an IMAP client at that site sees or does."""
        return json.loads(self.world.run("/usr/bin/python3", CLIENT, ADDRESSES[name], USER, *words))

    def same(self, timeout=120):
        """Waits until a client sees the same at both sites: UIDs, flags and subjects of each folder. Returns it."""
        end = time.monotonic() + timeout
        while True:
            seen = [self.client(name, "list") for name in ADDRESSES]
            if seen[0] == seen[1]:
                return seen[0]
            assert time.monotonic() < end, f"{seen[0]}\n{seen[1]}\n" + "\n".join(m.run("doveadm dovelane status; doveadm dovelane status -A; tail -20 /var/log/mail.log", check=False) for m in self.machines.values())
            time.sleep(0.3)


PAIRS = [pytest.param(pair, id="-".join(pair), marks=[pytest.mark.here] if set(pair) == {HERE} else []) for pair in (("bookworm", "bookworm"), ("trixie", "trixie"), ("bookworm", "trixie"))]


@pytest.fixture(scope="module", params=PAIRS)
def sites(request):
    with World() as world:
        yield Sites(world, request.param)


def test_the_guide_to_the_first_replicated_flag(sites):
    """site-a has mail, site-b is empty."""
    for number in range(5):
        sites.client("site-a", "append", "INBOX", f"before {number}")
    before = sites.client("site-a", "list")
    sites.reader.follow(GUIDE, "## Two sites")
    for machine in sites.machines.values():
        said = machine.run("doveadm dovelane status")
        assert "here" in said, said
    sites.a.run(f"doveadm dovelane resync -u {USER}")
    assert sites.same() == before, "nothing changed for clients of site-a, and site-b shows the same"
    uid = min(int(uid) for uid in before["INBOX"]["mails"])
    sites.client("site-b", "flag", "INBOX", str(uid), "\\Flagged")
    assert "\\Flagged" in sites.same()["INBOX"]["mails"][str(uid)]["flags"]
    print(f"two bare hosts to the first replicated flag: {time.monotonic() - sites.begin:.0f} s; typed: {sites.reader.commands}, "
          f"edited by hand: { {name: len(files) for name, files in sites.reader.edited.items()} }", file=sys.stderr)


def test_units_and_directories(sites):
    for machine in sites.machines.values():
        assert machine.run("systemctl --failed --no-legend").strip() == ""
        assert machine.status("systemd-tmpfiles --create dovelane.conf dovelane-redis.conf") == (0, "")


def test_what_happens_while_a_site_is_off_is_there_afterwards(sites):
    """A clean reboot, a power loss, a stop of Dovecot and one of Redis; at the other site clients go on."""
    ways = {"reboot": (lambda m: m.power_off(), lambda m: m.boot()), "power": (lambda m: m.cut_power(), lambda m: m.boot()),
            "dovecot": (lambda m: m.run("systemctl stop dovecot"), lambda m: m.run("systemctl start dovecot")),
            "redis": (lambda m: m.run("systemctl stop redis-server@dovelane"), lambda m: m.run("systemctl start redis-server@dovelane"))}
    for machine, other in ((sites.b, "site-a"), (sites.a, "site-b")):
        for word, (down, up) in ways.items():
            down(machine)
            sites.client(other, "append", "INBOX", f"while {machine.name} {word}")
            sites.client(other, "create", f"made-{machine.name}-{word}")
            up(machine)
            machine.wait("ss -ltn | grep -q :143")
            seen = sites.same()
            assert f"while {machine.name} {word}" in {mail["subject"] for mail in seen["INBOX"]["mails"].values()} and f"made-{machine.name}-{word}" in seen


def test_tls_and_users(sites):
    """By the guide; a client goes on at one site while the other one is changed over."""
    sites.reader.follow(GUIDE, "## TLS and users between the sites")
    sites.client("site-a", "append", "INBOX", "with TLS from site-a")
    sites.client("site-b", "append", "INBOX", "with TLS from site-b")
    assert {"with TLS from site-a", "with TLS from site-b"} <= {mail["subject"] for mail in sites.same()["INBOX"]["mails"].values()}
    for name, machine in sites.machines.items():
        machine.wait("[ $(doveadm dovelane status | grep -c -w -e up -e here) = 2 ]", what="both sites are up")
        cli = f"redis-cli -h {ADDRESSES[name]} -p 7001"
        assert machine.run(f"{cli} --tls --cacert /etc/dovelane/tls/ca.crt LANE.INFO", check=False).startswith("NOAUTH"), "nobody without a password"
        assert "PONG" not in machine.run(f"timeout 5 {cli} ping", check=False), "nobody without TLS"
        assert machine.run(f"stat -c '%U:%G %a' /etc/dovelane/dovelane-replicator/{name}.user /etc/dovelane/dovelane/user").split() == ["root:dovelane-replicator", "640", "root:root", "600"]
        runs_as(machine, "dovelane-replicator")
    assert not sites.b.place("/etc/dovelane/dovelane-replicator/site-a.user").exists(), "a site has its own"
    assert not sites.b.place("/etc/dovelane/tls/ca.key").exists(), "the authority stays where it was made"
    sites.b.reboot()
    sites.b.wait("ss -ltn | grep -q :143")
    sites.client("site-b", "append", "INBOX", "after a reboot")
    assert "after a reboot" in {mail["subject"] for mail in sites.same()["INBOX"]["mails"].values()}


def runs_as(machine, user):
    """Dovecot's master makes it as root, and it becomes the user of its service."""
    machine.wait(f"""[ "$(ps -eo user:32,args | sed -n 's/ .*[d]ovelane-replicator -n .*//p')" = {user} ]""", what=f"the replicator runs as {user}")


AS_BEFORE = """
systemctl stop dovecot
mv /var/lib/dovelane-replicator/reserve /var/lib/dovelane-replicator/replicator.db* /var/lib/dovelane/
chown dovelane: /var/lib/dovelane/reserve /var/lib/dovelane/replicator.db* /var/lib/dovelane/dirty
chgrp -R dovelane /etc/dovelane/dovelane-replicator
sed -i 's/user = dovelane-replicator$/user = dovelane/' /etc/dovecot/conf.d/11-dovelane.conf
systemd-tmpfiles --create dovelane.conf
systemctl start dovecot
"""


def exchanged(sites, what):
    for name in ADDRESSES:
        sites.client(name, "append", "INBOX", f"{what} at {name}")
    assert {f"{what} at {name}" for name in ADDRESSES} <= {mail["subject"] for mail in sites.same()["INBOX"]["mails"].values()}


def test_hosts_of_before_go_on_and_get_the_replicators_own_user(sites):
    """What 0.1.0's hosts are after an upgrade: owners, groups and Dovecot's file as they were. Then one of them half-way, and both by the upgrade page."""
    for machine in sites.machines.values():
        machine.run(AS_BEFORE)
        machine.wait("ss -ltn | grep -q :143")
        runs_as(machine, "dovelane")
        assert machine.run("stat -c '%U %a' /var/lib/dovelane/dirty; stat -c '%G %a' /etc/dovelane/dovelane-replicator").split() == ["dovelane", "1733", "dovelane", "750"]
        assert "[replicator-user]" in machine.run("dovelane check dovecot", check=False)
    exchanged(sites, "as before")
    sites.b.run("sed -i 's/user = dovelane$/user = dovelane-replicator/' /etc/dovecot/conf.d/11-dovelane.conf && systemctl restart dovecot")
    sites.b.wait("grep -q '/var/lib/dovelane/reserve belongs to another user' /var/log/mail.log", what="it says that the files were not moved")
    assert not sites.b.place("/var/lib/dovelane-replicator/reserve").exists()
    sites.reader.follow("upgrade.md", "## The replicator's own user")
    for machine in sites.machines.values():
        machine.wait("ss -ltn | grep -q :143")
        runs_as(machine, "dovelane-replicator")
        assert "[replicator-user]" not in machine.run("dovelane check dovecot", check=False)
    exchanged(sites, "its own")


def test_going_back(sites):
    sites.reader.instead.update(gateway.LEAVING)
    for machine in sites.machines.values():
        machine.wait("doveadm dovelane verify -A", what="both are the same")
    seen = sites.same()
    sites.b.run("systemctl stop dovecot")
    sites.reader.follow(GUIDE, "## Going back")
    sites.b.run("systemctl start dovecot")
    for name, machine in sites.machines.items():
        assert sites.client(name, "list") == seen
        machine.reboot()
        machine.wait("ss -ltn | grep -q :143")
        assert machine.run("systemctl --failed --no-legend").strip() == "" and sites.client(name, "list") == seen
