"""`make install` from sources on two booted Debians: by the guide, over 0.1.0 and back again while mail flows, and `make uninstall`. The tests of a
release run in their order, on the same two machines.
"""
import os
import pathlib
import re

import hosts
import pytest
from gateway import UNITS, Pair, delivered_by_postfix, divert, stored
from guide import at_once
from machine import World, call

pytestmark = pytest.mark.exhaustive

OLD, OLD_FOLDER = "44edfa3", "dovelane-0.1.0"  # there was no release of it
# DOVELANE_UPGRADES=20: so many times there and back.
ROUNDS = int(os.environ.get("DOVELANE_UPGRADES", "2"))
# What packages, servers and logs write by themselves.
RESTLESS = r"^/(proc|sys|dev|run|tmp|root|var/(tmp|log|cache|vmail|backups|lib/(apt|dpkg|systemd|ucf|dovecot|postfix|dbus|logrotate)|spool/(postfix|rsyslog|cron)))(/|$)|\.(pyc|dpkg-\w+)$|__pycache__|/etc/.*-$|/usr/src/"
# Of the packages that ./setup installed; the guide says that they stay.
OF_PACKAGES = r"^/etc/(alternatives|ssl|rc\d\.d|systemd/system|python3[^/]*|redis|dovecot|ld\.so|perl|default|logrotate\.d|init\.d|nftables|apparmor\.d)|^/var/lib/(redis|python)|^/usr/(bin|lib|share)/|^/(bin|lib)/"


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def pair(request):
    with World() as world:
        made = Pair(world, request.param, sources=[hosts.built(request.param)[1], hosts.built(request.param, OLD, OLD_FOLDER)[1]])
        yield made
        made.close()


@pytest.mark.long
@pytest.mark.here
def test_where_0_1_0_had_its_module_is_a_link_afterwards(tmp_path):
    build = pathlib.Path(os.environ.get("DOVELANE_BUILD", hosts.ROOT / "build"))
    old = tmp_path / "usr/lib/dovelane/lane.so"
    old.parent.mkdir(parents=True)
    old.write_text("0.1.0", encoding="ascii")
    for _ in range(2):
        call("meson", "install", "-C", build, "--no-rebuild", "--destdir", tmp_path)
        assert old.is_symlink() and old.resolve() == tmp_path / "usr/lib/redis/modules/lane.so" and old.stat().st_size > 10000


def paths(machine):
    """What lies on the disk and is no package's."""
    owned = set(re.sub(r"^/usr(?=/(bin|lib|sbin)/)", "", line) for line in machine.run("cat /var/lib/dpkg/info/*.list").splitlines())
    found = machine.run("find / /var -xdev -print", timeout=600).splitlines()
    return {path for path in found if not re.search(RESTLESS, path) and re.sub(r"^/usr(?=/(bin|lib|sbin)/)", "", path) not in owned}


def version(machine):
    """What runs is what is installed; returns its version."""
    for unit in ("dovelane-milter", "dovelane-relay"):
        machine.wait(f"[ $(readlink /proc/$(systemctl show -P MainPID {unit})/exe) = /usr/sbin/{unit} ]", what=f"{unit} is the installed one")
    maps = machine.run("grep lane.so /proc/$(systemctl show -P MainPID redis-server@dovelane)/maps")
    assert "deleted" not in maps, maps
    return machine.run("dovelane -V").split()[1]


def change_over(machine, folder):
    """docs/upgrade.md, "The order", with `make install`."""
    for script in (f"make -C /usr/src/{folder} install", "systemctl daemon-reload; systemd-tmpfiles --create", "dovelane-relay -t", "systemctl reload dovelane-milter",
                   "systemctl stop dovelane-relay", "systemctl restart redis-server@dovelane", "systemctl start dovelane-relay"):
        machine.run(script)
    return version(machine)


def test_make_install_by_the_guide(pair):
    pair.before = {name: paths(machine) for name, machine in pair.machines.items()}
    pair.follow("### 1. The programs", "### 2. The node's Redis", "### 3. One file for all hosts", "### 4. Postfix: two settings and two ports",
                "### 5. Dovecot, if it is reached by a UNIX socket")
    # Many changes within minutes are what is done here; a node that came and went often would stay away longer each time.
    pair.each("echo 'restless_most = 15s' >> /etc/dovelane/dovelane.conf")
    pair.follow("### 6. Relay and milter", "### 7. The milter on port 25", "## The first diverted destination")
    divert(pair, '"lmtp:unix:private/dovecot-lmtp", "smtp:[10.0.0.100]:2525"')
    pair.whole()
    for machine in pair.machines.values():
        assert version(machine) == "0.2.0"
        assert machine.run("systemctl is-active " + " ".join(UNITS)).split() == ["active"] * len(UNITS)


def test_one_of_two_hosts_goes_back_and_is_upgraded_under_load(pair):
    """Nothing is lost, comes twice or is refused, with empty lanes and with mail that waits in them. mx2 stays as it is."""
    machine = pair.machines["mx1"]
    # docs/upgrade.md, "Going back", 1 and 3: what 0.1.0 wants in the file; 0.2.0 takes it, too.
    machine.run("sed -i 's#^loadmodule .*#loadmodule /usr/lib/dovelane/lane.so#' /etc/redis/redis-dovelane.conf; echo pidfile /run/redis-dovelane/redis-server.pid >> /etc/redis/redis-dovelane.conf")
    doubled = refused = mails = 0
    for number in range(ROUNDS):
        with pair.load() as load:
            if number % 2:
                pair.hold.touch()
            for folder, expected in ((OLD_FOLDER, "0.1.0"), ("dovelane", "0.2.0")):
                assert change_over(machine, folder) == expected
                load.more(20)
                pair.whole(300)
                load.more(20)
            if number % 2:
                pair.hold.unlink()
                machine.run("dovelane flush; postqueue -f", check=False)
        doubled, refused, mails = doubled + load.doubled, refused + load.refused, mails + len(load.promised())
        print(f"{number + 1} times back to 0.1.0 and to 0.2.0 again: {mails} mails answered 250, 0 lost, {doubled} came twice, {refused} refused")
    assert (doubled, refused) == (0, 0)
    lanes = int(machine.run("grep -c 'dovelane-milter.*action=lane' /var/log/mail.log"))
    print(f"mx1 diverted {lanes} of them")
    assert lanes > 20 * ROUNDS


def test_make_uninstall_leaves_what_the_guide_says(pair):
    sent = stored(pair)
    pair.machines["mx1"].run("dovelane drain --to-postfix", timeout=300)
    pair.follow("## Switching off, and going back")
    delivered_by_postfix(pair, sent)
    for name, machine in pair.machines.items():
        left = sorted(path for path in paths(machine) - pair.before[name] if not re.search(OF_PACKAGES, path) or "dovelane" in path.lower() or "lane.so" in path)
        print(f"{name} has more than before, beside Debian's packages: {left}")
        assert left == []
        assert machine.run("getent passwd dovelane dovelane-proxy dovelane-replicator; getent group dovelane dovelane-proxy dovelane-replicator; grep -rIl dovelane /etc | grep -v -- '-$'", check=False) == ""
    at_once(lambda machine: machine.reboot(), pair.machines.values())
    for machine in pair.machines.values():
        assert machine.run("systemctl --failed --no-legend").strip() == ""
        sent = pair.send("after@example.org", to=machine.address)
        machine.wait(f"grep -rqs {sent[0]} /var/vmail")
    pair.reader.done()
