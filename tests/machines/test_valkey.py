"""docs/admin-guide.md with a Valkey for mx1's node and a Redis for mx2's, by the guide's table of names. The tests run in their order, on the same two machines."""
import re

import pytest
from gateway import UNITS, Pair, delivered, divert, follow_tls, shut_in, stored, table
from machine import World

pytestmark = pytest.mark.exhaustive

# Debian 12 has no Valkey.
NAMES = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", "\n".join(table("**Valkey**")), re.M))
SERVER = {"mx1": "valkey-server@dovelane", "mx2": "redis-server@dovelane"}


@pytest.fixture(scope="module")
def pair():
    with World() as world:
        made = Pair(world, "trixie", groups={"mx1": "host-valkey"}, own={"mx1": NAMES})
        yield made
        made.close()


def active(pair):
    for name, machine in pair.machines.items():
        assert machine.run(f"systemctl is-active {SERVER[name]} " + " ".join(UNITS[1:]), check=False).split() == ["active"] * len(UNITS)
        assert machine.run("systemctl --failed --no-legend").strip() == ""


def test_the_guide_to_the_first_diverted_mail(pair):
    before = pair.listeners()
    pair.follow("### 1. The programs")
    assert pair.listeners() == before
    assert pair.machines["mx1"].run("systemctl is-enabled valkey-server", check=False).strip() == "disabled"
    assert not pair.machines["mx1"].place("/usr/bin/redis-server").exists()
    pair.follow("### 2. The node's Redis", "### 3. One file for all hosts", "### 4. Postfix: two settings and two ports", "### 5. Dovecot, if it is reached by a UNIX socket",
                "### 6. Relay and milter", "### 7. The milter on port 25", "## The first diverted destination")
    divert(pair, '"lmtp:unix:private/dovecot-lmtp", "smtp:[10.0.0.100]:2525"')
    pair.whole()
    active(pair)
    sent = pair.send("first@example.org")
    pair.machines["mx1"].wait("grep 'status=sent.*why=first' /var/log/mail.log", what="the relay delivered it")
    assert set(sent) <= set(pair.mailboxes())
    machine = pair.machines["mx1"]
    assert machine.run("stat -c '%U %a' /var/lib/valkey/dovelane").split() == ["valkey", "750"]
    shut_in(machine, pair.release, [SERVER["mx1"], "dovelane-relay"])


@pytest.mark.parametrize("name", ["mx1", "mx2"])
def test_a_stop_keeps_what_lanes_hold(pair, name):
    sent, machine = stored(pair), pair.machines[name]
    folder = f"/var/lib/{SERVER[name].split('-')[0]}/dovelane"
    machine.run(f"systemctl stop {SERVER[name]}")
    assert machine.run(f"ls {folder}").split() == ["dump.rdb"]
    machine.run(f"systemctl start {SERVER[name]}")
    assert machine.run(f"ls {folder}").split() == []
    pair.whole()
    delivered(pair, sent)


def test_restarts_reloads_kills_and_a_reboot_with_mail_flowing(pair):
    machine = pair.machines["mx1"]
    with pair.load() as load:
        for script in (f"systemctl restart {SERVER['mx1']}", "systemctl reload dovelane-milter dovelane-relay", f"systemctl kill -s KILL {SERVER['mx1']}"):
            machine.run(script)
            load.more(20)
            pair.whole(300)
        print(f"shutdown: {machine.reboot():.1f} s")
        active(pair)
        pair.whole(300)
        load.more()


@pytest.mark.parametrize("name", ["mx1", "mx2"])
def test_without_its_file_it_does_not_start_and_is_not_tried_for_ever(pair, name):
    """So it is, too, where a relay's Wants= pulls in the server that this host's node has not."""
    machine, unit = pair.machines[name], SERVER[name]
    file = f"/etc/{unit.split('-')[0]}/{unit.split('-')[0]}-dovelane.conf"
    machine.run(f"systemctl stop {unit}; mv {file} {file}.away")
    code, said = machine.status(f"systemctl start {unit}")
    assert code and "ssertion failed" in said, said
    machine.run("systemctl restart dovelane-relay")
    assert set(machine.run(f"systemctl show -P ActiveState -P NRestarts {unit}").split()) == {"inactive", "0"}
    assert machine.run("systemctl --failed --no-legend").strip() == ""
    machine.run(f"mv {file}.away {file}; systemctl start {unit}")
    pair.whole(300)


def test_tls_and_users(pair):
    pair.machines["mx1"].run("dovelane divert off")
    follow_tls(pair)
    pair.whole(300)
    pair.machines["mx1"].run("dovelane divert on")
    with pair.load() as load:
        load.more()
    for machine in pair.machines.values():
        said = machine.wait("dovelane check || [ $? = 1 ]")
        assert "unencrypted" not in said and "needs no password" not in said, said
