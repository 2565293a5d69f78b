"""From 0.1.0, which `make install` brought, to the packages, with mail in lanes and mail coming in: nothing is refused, lost or left behind."""
import machine
import packaged
import pytest
from packaged import Mail, gateway_files, gateway_start, whole


@pytest.fixture(scope="session")
def old(bare):
    """A tree with 0.1.0. It is built on this host, so only for this host's release."""
    from conftest import RELEASE
    if RELEASE != packaged.release_here():
        pytest.skip("0.1.0 is built on this host, for its release")
    return machine.base_tree(RELEASE, packaged.beside(RELEASE), name="packages-old", prepare=packaged.old_version, key=packaged.OLD)


def pid(host, unit):
    return int(host.run(f"systemctl show -p MainPID --value {unit}"))


def executable(host, process):
    return host.run(f"readlink /proc/{process}/exe").strip()


def test_packages_over_0_1_0_under_load(world, old, debs, tmp_path):
    hosts = [world.machine(name, address, old) for name, address in packaged.HOSTS.items()]
    mail = Mail(world, tmp_path)
    for host in hosts:
        gateway_files(host)
        host.boot()
        assert host.run("dovelane -V") == "dovelane 0.1.0\n"
        gateway_start(host)
    whole(hosts)
    mail.hold(True)
    assert mail.send(hosts, mails=100, rate=50).wait(120) == 0
    assert hosts[0].run("dovelane mailq -j | wc -l").strip() == "100"
    servers = {host.name: pid(host, "redis-server@dovelane") for host in hosts}
    with mail.load(hosts):
        for host in hosts:
            relay = pid(host, "dovelane-relay")
            print(host.install(*debs.all("dovelane-dovecot")))
            assert host.run("systemctl is-active dovelane-milter dovelane-relay redis-server@dovelane").split() == ["active"] * 3
            assert pid(host, "redis-server@dovelane") == servers[host.name], "an upgrade restarts no node"
            assert pid(host, "dovelane-relay") != relay
            for unit in ("dovelane-milter", "dovelane-relay"):
                host.wait(f"test $(readlink /proc/$(systemctl show -p MainPID --value {unit})/exe) = /usr/sbin/{unit}", what=f"{unit} is the new one")
            whole(hosts)
        # What was in the lanes before is there, and more came.
        assert int(hosts[0].run("dovelane mailq -j | wc -l")) >= 100
        # The step that is the admin's, node by node.
        for host in hosts:
            host.run("systemctl stop dovelane-relay && systemctl restart redis-server@dovelane && systemctl start dovelane-relay")
            whole(hosts)
            host.run("grep -q /usr/lib/redis/modules/lane.so /proc/$(systemctl show -p MainPID --value redis-server@dovelane)/maps")
    mail.hold(False)
    for host in hosts:
        host.run("dovelane flush --all --yes; postqueue -f", check=False)
    hosts[0].wait("dovelane mailq | grep -q -i empty", 240)
    for host in hosts:
        host.wait("mailq | grep -q 'Mail queue is empty'", 120)
    assert mail.lost() == set()
    print(f"{len(mail.sent.read_text().split())} answered 250, none lost, {mail.doubled()} came twice")
    for host in hosts:
        # Nothing of 0.1.0 that no package has.
        left = host.run("find /usr -name '*dovelane*' -not -type d | grep -v -e /usr/lib/dovecot/ -e __pycache__ | xargs -n 1 dpkg -S 2>&1 >/dev/null | grep -v '/usr/lib/systemd'", check=False)
        assert left == ""
        host.reboot()
        assert host.run("systemctl --failed --no-legend") == ""
        whole(hosts)
    mail.close()
