"""docs/admin-guide.md on two booted Debians, from the first command to the last of "Uninstall". The tests of a release run in their order, on the same two
machines: each begins where the one before ended.
"""
import os
import re
import time

import hosts
import pytest
from gateway import LEAVING, UNITS, Pair, delivered, delivered_by_postfix, divert, follow_tls, shut_in, stored
from guide import at_once
from machine import World, call

pytestmark = pytest.mark.exhaustive

HERE = hosts.release_here()
RELEASES = [pytest.param(release, marks=[pytest.mark.here] if release == HERE else []) for release in ("bookworm", "trixie")]


@pytest.fixture(scope="module", params=RELEASES)
def pair(request):
    with World() as world:
        made = Pair(world, request.param)
        yield made
        made.close()


def active(pair):
    for machine in pair.machines.values():
        states = machine.run("systemctl is-active " + " ".join(UNITS), check=False).split()
        assert states == ["active"] * len(UNITS), dict(zip(UNITS, states))


@pytest.mark.long
def test_the_programs_bring_no_listener(pair):
    begin = time.monotonic()
    before = pair.listeners()
    pair.follow("### 1. The programs")
    assert pair.listeners() == before
    for machine in pair.machines.values():
        assert machine.run("systemctl is-enabled dovelane-milter dovelane-proxy dovelane-relay redis-server", check=False).split() == ["disabled"] * 4
    at_once(lambda machine: machine.reboot(), pair.machines.values())
    at_once(lambda machine: machine.wait("ss -ltn | grep -q :25 && systemctl is-active dovecot"), pair.machines.values())
    assert pair.listeners() == before, "after a reboot"
    print(f"step 1 on two hosts: {time.monotonic() - begin:.0f} s")


@pytest.mark.long
def test_the_node_runs_behind_its_firewall(pair):
    pair.follow("### 2. The node's Redis")
    for name, machine in pair.machines.items():
        assert machine.run("systemctl is-active redis-server@dovelane").strip() == "active"
        other = "10.0.0.2" if name == "mx1" else "10.0.0.1"
        assert machine.run(f"redis-cli -h {other} -p 7001 ping").strip() == "PONG"
        with pytest.raises(Exception, match="status 124"):
            pair.world.run("timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{machine.address}/7001")
        pair.world.run("timeout", "20", "bash", "-c", f"exec 3<>/dev/tcp/{machine.address}/25")


def test_a_missing_node_name_is_named(pair):
    """Before step 3: no /etc/default/dovelane yet, and the program says what to write there."""
    machine = pair.machines["mx1"]
    machine.run("install -D -m 0644 /usr/share/doc/dovelane/examples/dovelane.conf /etc/dovelane/dovelane.conf; systemctl start --no-block dovelane-milter")
    said = machine.wait("journalctl -u dovelane-milter | grep -m 1 'after DOVELANE_NODE= in /etc/default/dovelane'")
    assert "(not set)" in said
    machine.run("systemctl stop dovelane-milter; rm /etc/dovelane/dovelane.conf")


@pytest.mark.long
def test_the_guide_to_the_first_diverted_mail(pair):
    begin = time.monotonic()
    pair.follow("### 3. One file for all hosts", "### 4. Postfix: two settings and two ports", "### 5. Dovecot, if it is reached by a UNIX socket", "### 6. Relay and milter",
                "### 7. The milter on port 25")
    active(pair)
    assert pair.send("before@example.org")
    pair.follow("## The first diverted destination")
    pair.whole()
    for name, machine in pair.machines.items():
        said = machine.wait("dovelane check || [ $? = 1 ]", what="nothing is critical, once the programs have told their new configuration")
        print(f"{name}: {said.splitlines()[-1]}")
    sent = pair.send("first@example.org")
    log = pair.machines["mx1"].wait("grep 'status=sent.*why=first' /var/log/mail.log", what="the relay delivered it")
    assert "action=lane" in pair.machines["mx1"].read("/var/log/mail.log") and "first@example.org" in log
    assert set(sent) <= set(pair.mailboxes())
    print(f"steps 3 to the first diverted mail on two hosts: {time.monotonic() - begin:.0f} s; typed: {pair.reader.commands}, "
          f"edited by hand: { {name: len(files) for name, files in pair.reader.edited.items()} }")


@pytest.mark.long
def test_one_more_destination(pair):
    divert(pair, '"lmtp:unix:private/dovecot-lmtp", "smtp:[10.0.0.100]:2525"')
    pair.whole()


@pytest.mark.long
def test_units_are_verified_and_shut_in(pair):
    for machine in pair.machines.values():
        shut_in(machine, pair.release, UNITS + ["dovelane-proxy"])
        assert machine.run("systemctl --failed --no-legend").strip() == ""


@pytest.mark.long
def test_a_reboot_of_one_host_with_mail_flowing(pair):
    machine = pair.machines["mx1"]
    with pair.load() as load:
        load.more()
        print(f"shutdown: {machine.reboot():.1f} s")
        active(pair)
        assert machine.run("systemctl --failed --no-legend").strip() == ""
        pair.whole()
        load.more()
    assert "action=lane" in machine.read("/var/log/mail.log")


@pytest.mark.long
def test_a_stop_of_redis_keeps_what_lanes_hold_and_leaves_no_mail_behind(pair):
    sent = stored(pair)
    machine = pair.machines["mx1"]
    begin = time.monotonic()
    machine.run("systemctl stop redis-server@dovelane")
    print(f"stop of Redis: {time.monotonic() - begin:.1f} s")
    assert machine.run("ls /var/lib/redis/dovelane").split() == ["dump.rdb"]
    machine.run("systemctl start redis-server@dovelane")
    assert machine.run("ls /var/lib/redis/dovelane").split() == []
    assert int(re.search(r"keys=(\d+)", machine.run("redis-cli -h 10.0.0.1 -p 7001 INFO keyspace"))[1]) > 0
    pair.whole()
    delivered(pair, sent)


def test_units_are_reloaded_restarted_and_killed_with_mail_flowing(pair):
    machine = pair.machines["mx1"]
    with pair.load() as load:
        for script in ("systemctl reload dovelane-milter", "systemctl reload dovelane-relay", "systemctl restart dovelane-relay", "systemctl restart dovelane-milter",
                       "systemctl restart redis-server@dovelane", "systemctl kill -s KILL dovelane-relay", "systemctl kill -s KILL dovelane-milter",
                       "systemctl kill -s KILL redis-server@dovelane", "systemctl stop dovelane-milter; sleep 2; systemctl start dovelane-milter", "systemctl reload postfix",
                       "systemctl restart rsyslog; logrotate --force /etc/logrotate.d/rsyslog"):
            machine.run(script)
            load.more(20)
            machine.wait("systemctl is-active " + " ".join(UNITS))
            pair.whole()
    assert "dovelane-relay" in machine.read("/var/log/mail.log"), "lines go to the new file after a rotation"


def test_power_loss_of_one_host_with_mail_flowing(pair):
    machine = pair.machines["mx2"]
    with pair.load() as load:
        load.more()
        machine.cut_power()
        time.sleep(3)
        machine.boot()
        active(pair)
        pair.whole()
        load.more()


def test_one_host_comes_and_goes_and_the_other_refuses_nothing(pair):
    """mx1 reboots and loses its power by turns, DOVELANE_REBOOTS times in all; clients use mx2. A node that returns so often would stay away for longer
    each time, up to ten minutes: not here.
    """
    machine, seconds = pair.machines["mx1"], []
    pair.each("echo 'restless_most = 15s' >> /etc/dovelane/dovelane.conf; systemctl restart dovelane-relay; systemctl reload dovelane-milter")
    pair.whole()
    with pair.load(to=["mx2"]) as load:
        for number in range(int(os.environ.get("DOVELANE_REBOOTS", "4"))):
            begin = time.monotonic()
            if number % 2:
                machine.cut_power()
                machine.boot()
            else:
                machine.reboot()
            pair.whole(300)
            seconds.append(round(time.monotonic() - begin))
            load.more(20)
    assert load.refused == 0
    print(f"{len(seconds)} times away, whole again after {seconds} s")
    pair.each("sed -i '/^restless_most/d' /etc/dovelane/dovelane.conf; systemctl reload dovelane-relay dovelane-milter")


def test_the_watchdog_ends_a_relay_that_hangs(pair):
    machine = pair.machines["mx1"]
    before = machine.run("systemctl show -P NRestarts dovelane-relay").strip()
    with pair.load():
        machine.run("kill -STOP $(systemctl show -P MainPID dovelane-relay)")
        machine.wait(f"[ $(systemctl show -P NRestarts dovelane-relay) != {before} ] && systemctl is-active dovelane-relay", 120, "the watchdog restarted it")
        pair.whole()
    assert "Watchdog timeout" in machine.run("journalctl -u dovelane-relay --no-pager | grep -i watchdog")


FILL = "for n in 1 2 3; do cat /dev/zero > /var/fill$n 2> /dev/null; sync; done; df /var | tail -1"
NO_ROOM = "it could not save what it holds"


def test_a_full_disk_hangs_neither_a_stop_nor_a_reboot(pair):
    """/var of mx1 is full. Nothing is lost: mx2 holds what mx1 cannot save."""
    machine = pair.machines["mx1"]
    machine.power_off()
    machine.limit_disk("/var", int(call("du", "-sm", machine.place("/var")).split()[0]) + 300)
    machine.boot()
    pair.whole()
    sent = stored(pair, size=100000)
    in_lanes = len(machine.run("dovelane mailq -j").splitlines())  # Postfix has the first, perhaps, of a milter that was just started
    print("full:", machine.run(FILL))
    said = pair.world.run("/usr/bin/python3", "-c", "import smtplib; c = smtplib.SMTP('10.0.0.1'); c.ehlo(); print(c.mail('a@client.example', ['SIZE=1000']))")
    assert "(452" in said, said
    begin = time.monotonic()
    machine.run("systemctl stop redis-server@dovelane", timeout=300)
    print(f"stop of a Redis that cannot save: {time.monotonic() - begin:.0f} s")
    assert NO_ROOM in machine.run("journalctl -u redis-server@dovelane --no-pager")
    machine.run("for n in 4 5 6; do cat /dev/zero > /var/fill$n 2> /dev/null; sync; done")  # what the attempts to save gave back
    machine.run("systemctl start redis-server@dovelane")
    pair.whole()
    print(f"reboot with a full disk: shutdown {machine.reboot(timeout=300):.0f} s")
    pair.whole()
    assert len(machine.run("dovelane mailq -j").splitlines()) >= in_lanes
    # Room within the half minute: saved after all.
    machine.run("systemctl stop --no-block redis-server@dovelane")
    machine.wait("journalctl -b -u redis-server@dovelane | grep -q 'Error trying to save the DB'")
    machine.run("rm /var/fill*")
    machine.wait("[ $(systemctl show -P ActiveState redis-server@dovelane) = inactive ]")
    print("Postfix after a boot with a full disk:", machine.run("systemctl is-active 'postfix*'", check=False).split())
    machine.run("systemctl start postfix")
    assert machine.run("ls /var/lib/redis/dovelane").split() == ["dump.rdb"]
    machine.run("systemctl start redis-server@dovelane")
    pair.whole()
    delivered(pair, sent)
    assert machine.run("systemctl --failed --no-legend").strip() == ""


def test_tls_and_users(pair):
    pair.machines["mx1"].run("dovelane divert off")
    follow_tls(pair)
    pair.whole()
    for machine in pair.machines.values():
        said = machine.wait("dovelane check || [ $? = 1 ]")
        assert "unencrypted" not in said and "needs no password" not in said, said
    pair.machines["mx1"].run("dovelane divert on")
    with pair.load() as load:
        load.more()
    assert pair.machines["mx1"].run("redis-cli -h 10.0.0.1 -p 7001 --tls --cacert /etc/dovelane/tls/ca.crt LANE.INFO", check=False).startswith("NOAUTH")


def test_passwords_stay_hidden_when_they_are_replaced(pair):
    machine = pair.machines["mx1"]
    see = "nsenter -t $(systemctl show -P MainPID dovelane-{program}) -m setpriv --reuid=dovelane --regid=dovelane --clear-groups cat /etc/dovelane/dovelane-{other}/user"
    for replace in ("true", "install -m 0640 -g dovelane /etc/dovelane/dovelane-{other}/user /root/new; mv /root/new /etc/dovelane/dovelane-{other}/user",
                    "systemctl reload dovelane-milter"):
        for program, other in (("milter", "relay"), ("relay", "milter")):
            machine.run(replace.format(other=other))
            assert machine.status(see.format(program=program, other=program))[0] == 0, "it reads its own"
            code, said = machine.status(see.format(program=program, other=other))
            assert code != 0 and "Permission denied" in said, f"after {replace}: {program} sees {said}"
            machine.run("chgrp dovelane /etc/dovelane/dovelane-milter/user /etc/dovelane/dovelane-relay/user")


def test_the_proxy_takes_the_milters_place(pair):
    """"Two ways in", on hosts that had the milter; with mail flowing. The guide's made-up destination is the one that mail has here."""
    reader = pair.reader
    for own in reader.own.values():
        own.update({"lmtp:[10.0.0.5]:24": "smtp:[10.0.0.100]:2525", "example.org=": "next.example="})
    reader.per_host.append("/etc/dovelane/dovelane.conf")
    reader.instead["dovelane check"] = "true"  # asked below: the milters run with the file of before
    with pair.load() as load:
        pair.follow("## Two ways in")
        load.more()
        pair.each("systemctl disable --now dovelane-milter")
        for machine in pair.machines.values():
            machine.wait("dovelane check || [ $? = 1 ]")
        for script in ("systemctl reload dovelane-proxy", "systemctl restart dovelane-proxy", "systemctl kill -s KILL dovelane-proxy"):
            pair.machines["mx1"].run(script)
            load.more(20)
        print(f"shutdown: {pair.machines['mx1'].reboot():.1f} s")
        pair.whole()
        load.more()
    for machine in pair.machines.values():
        assert "dovelane-proxy" in machine.run("grep 'dovelane-proxy.*action=lane' /var/log/mail.log | tail -1")


def test_uninstall_leaves_a_mail_server_that_works(pair):
    sent = stored(pair)
    pair.reader.instead.update(LEAVING)
    pair.machines["mx1"].run("dovelane drain --to-postfix", timeout=300)
    pair.follow("## Switching off, and going back")
    delivered_by_postfix(pair, sent)
    for name, machine in pair.machines.items():
        left = machine.run("find / /var -xdev -iname '*dovelane*' -not -path '/usr/src/*' -not -path '/var/tmp/*' -not -path '/var/log/*' -not -path '/tmp/*' -not -path '/proc/*' -not -path '/sys/*'; "
                           "grep -rIl dovelane /etc | grep -v -- '-$'; getent passwd dovelane dovelane-proxy dovelane-replicator; getent group dovelane dovelane-proxy dovelane-replicator", check=False)
        assert left == "", f"{name} still has\n{left}"
    at_once(lambda machine: machine.reboot(), pair.machines.values())
    for machine in pair.machines.values():
        assert machine.run("systemctl --failed --no-legend").strip() == ""
        sent = pair.send("after@example.org", to=machine.address)
        machine.wait(f"grep -rqs {sent[0]} /var/vmail")
    pair.reader.done()
