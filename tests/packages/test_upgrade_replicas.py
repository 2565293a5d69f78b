"""Two sites of 0.1.0 are upgraded to the packages, one after the other, while clients use both: what was answered is at both, once."""
import json
import re
import signal
import subprocess
import sys
import time

import hosts as mail_server
import packaged

ADDRESSES = {"site-a": "10.0.0.1", "site-b": "10.0.0.2"}
USER = "anna@example.org"
CLIENT = packaged.ROOT / "tests/machines/imap.py"
LOAD = packaged.ROOT / "tests/packages/imap_load.py"


def configure(host):
    """The replication guide's way, without TLS."""
    examples = "/usr/share/doc/dovelane/examples"
    host.write("/etc/redis/redis-dovelane.conf", host.read(f"{examples}/redis-dovelane.conf").replace("10.0.0.1", host.address)
               .replace("lane.node mx1", f"lane.node {host.name}").replace("4gb", "200mb") + "pidfile /run/redis-dovelane/redis-server.pid\n")
    host.write("/etc/dovelane/dovelane.conf", "".join(f'replica {name} {{ id = {i}  redis = "{address}:7001"  tls = no }}\n' for i, (name, address) in enumerate(ADDRESSES.items(), 1)) +
               'replicate_namespaces = { "inbox" }\n')
    host.write("/etc/dovecot/conf.d/11-dovelane.conf", host.read(f"{examples}/11-dovelane.conf").replace("-n site-a", f"-n {host.name}"))
    auth = host.read("/etc/dovecot/conf.d/10-auth.conf")
    host.write("/etc/dovecot/conf.d/10-auth.conf", auth.replace("!include auth-system.conf.ext", ""))
    host.write("/etc/dovecot/local.conf", re.sub(r"service lmtp \{.*", "", mail_server.DOVECOT_23, flags=re.S))


def start(host):
    host.run("useradd --system --create-home --home-dir /var/vmail vmail; chown redis:redis /etc/redis/redis-dovelane.conf; systemctl daemon-reload; "
             "systemctl enable --now redis-server@dovelane; systemctl reset-failed dovecot; systemctl restart dovecot")
    host.wait("doveadm dovelane status | grep -q here")


class Sites:
    def __init__(self, world, tree):
        self.world = world
        self.hosts = [world.machine(name, address, tree) for name, address in ADDRESSES.items()]
        for host in self.hosts:
            configure(host)
            host.boot()
            start(host)

    def seen(self):
        return [json.loads(self.world.run("/usr/bin/python3", CLIENT, address, USER, "list")) for address in ADDRESSES.values()]

    def same(self, timeout=240):
        end = time.monotonic() + timeout
        while True:
            seen = self.seen()
            if seen[0] == seen[1]:
                return seen[0]
            assert time.monotonic() < end, "\n".join(host.run("doveadm dovelane status; doveadm dovelane status -A; doveadm dovelane verify -A; tail -20 /var/log/mail.log", check=False)
                                                     for host in self.hosts)
            time.sleep(0.5)


def test_replicas_of_0_1_0_upgraded_under_load(world, old, debs, tmp_path):
    sites, journal = Sites(world, old), tmp_path / "journal"
    journal.touch()
    load = world.popen(sys.executable, LOAD, "--sites", ",".join(ADDRESSES.values()), "--user", USER, "--journal", journal, stdout=subprocess.PIPE, text=True)

    def more(lines=40, timeout=180):
        wanted, end = len(journal.read_text().splitlines()) + lines, time.monotonic() + timeout
        while len(journal.read_text().splitlines()) < wanted:
            assert load.poll() is None and time.monotonic() < end, "the clients do not get on"
            time.sleep(0.2)

    try:
        more()
        for host in sites.hosts:
            print(host.install(*debs.all()))
            host.run("systemctl is-active dovecot redis-server@dovelane")
            host.wait("doveadm dovelane status | grep -q here")
            assert host.run("doveadm dovelane -V 2>/dev/null; dovelane -V").strip().endswith(debs.field("dovelane", "Version").split("-")[0])
            more()  # one site of each version
            host.run("systemctl restart redis-server@dovelane")
            more()
    finally:
        load.send_signal(signal.SIGTERM)
        said = load.communicate(timeout=120)[0]
    seen = sites.same()
    done = [line.split() for line in journal.read_text().splitlines()]
    subjects = [mail["subject"] for mail in seen["INBOX"]["mails"].values()]
    appended = [name for what, name in done if what == "append"]
    assert [name for name in appended if subjects.count(name) != 1] == []
    flagged = {mail["subject"] for mail in seen["INBOX"]["mails"].values() if "\\Flagged" in mail["flags"]}
    assert {name for what, name in done if what == "flag"} <= flagged
    assert {name for what, name in done if what == "create"} <= set(seen)
    for host in sites.hosts:
        host.wait("doveadm dovelane verify -A", what="each site's mailboxes are as its state says")
    print(f"{said.strip()}; {len(done)} answered OK in all, all at both sites, each once")
    for host in sites.hosts:
        host.reboot()
        assert host.run("systemctl --failed --no-legend") == ""
    assert sites.same() == seen


def test_replicas_with_mail_under_way_while_one_site_is_off(world, old, debs):
    """What was said by 0.1.0 for a site that was off is read by 0.2.0 when it comes back."""
    sites = Sites(world, old)
    a, b = sites.hosts
    world.run("/usr/bin/python3", CLIENT, ADDRESSES["site-a"], USER, "append", "INBOX", "first")
    sites.same()
    b.power_off()
    for number in range(20):
        world.run("/usr/bin/python3", CLIENT, ADDRESSES["site-a"], USER, "append", "INBOX", f"while off {number}")
    b.boot()
    b.run("systemctl stop dovecot")
    b.install(*debs.all())
    b.run("systemctl restart redis-server@dovelane dovecot")
    b.wait("doveadm dovelane status | grep -q here")
    assert len(sites.same()["INBOX"]["mails"]) == 21
    a.install(*debs.all())
    sites.same()
