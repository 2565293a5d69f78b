"""From 0.1.0, which `make install` brought, to the packages, with mail in lanes and mail coming in: nothing is refused, lost or left behind."""
import packaged
from packaged import Mail, gateway_files, gateway_start, wait_in_lanes, whole


def pid(host, unit):
    return int(host.run(f"systemctl show -p MainPID --value {unit}"))


def replaced(host, *units):
    """Waits until the processes of these units are of the program that is on the disk now."""
    for unit in units:
        host.wait(f"test $(readlink /proc/$(systemctl show -p MainPID --value {unit})/exe) = /usr/sbin/{unit}", what=f"{unit} is the new one")


def change_over(host):
    """The step of an upgrade that is the admin's, node by node."""
    host.run("systemctl stop dovelane-relay && systemctl restart redis-server@dovelane && systemctl start dovelane-relay")


def deliver_all(mail, hosts):
    mail.hold(False)
    for host in hosts:
        host.run("dovelane flush --all --yes; postqueue -f", check=False)
    hosts[0].wait("dovelane mailq | grep -q -i empty", 240)
    for host in hosts:
        host.wait("mailq | grep -q 'Mail queue is empty'", 120)
    assert mail.lost() == set()


def test_packages_over_0_1_0_under_load(world, old, debs, tmp_path):
    hosts = [world.machine(name, address, old) for name, address in packaged.HOSTS.items()]
    mail = Mail(world, tmp_path)
    for host in hosts:
        gateway_files(host)
        host.boot()
        assert host.run("dovelane -V") == "dovelane 0.1.0\n"
        gateway_start(host)
    whole(hosts)
    waiting = wait_in_lanes(mail, hosts, 100)
    servers = {host.name: pid(host, "redis-server@dovelane") for host in hosts}
    with mail.load(hosts):
        for host in hosts:
            relay = pid(host, "dovelane-relay")
            print(host.install(*debs.all("dovelane-dovecot")))
            assert host.run("systemctl is-active dovelane-milter dovelane-relay redis-server@dovelane").split() == ["active"] * 3
            assert pid(host, "redis-server@dovelane") == servers[host.name], "an upgrade restarts no node"
            assert pid(host, "dovelane-relay") != relay
            replaced(host, "dovelane-milter", "dovelane-relay")
            whole(hosts)
        # What was in the lanes before is there, and more came.
        assert int(hosts[0].run("dovelane mailq -j | wc -l")) >= waiting
        # The step that is the admin's, node by node.
        for host in hosts:
            change_over(host)
            whole(hosts)
            host.run("grep -q /usr/lib/redis/modules/lane.so /proc/$(systemctl show -p MainPID --value redis-server@dovelane)/maps")
    deliver_all(mail, hosts)
    print(f"{len(mail.sent.read_text().split())} answered 250, none lost, {mail.doubled()} came twice")
    for host in hosts:
        # Nothing of 0.1.0 that no package has.
        left = host.run("find /usr -name '*dovelane*' -not -type d | grep -v -e /usr/lib/dovecot/ -e __pycache__ | xargs -n 1 dpkg -S 2>&1 >/dev/null | grep -v '/usr/lib/systemd'", check=False)
        assert left == ""
        host.reboot()
        assert host.run("systemctl --failed --no-legend") == ""
        whole(hosts)
    mail.close()


def test_twenty_upgrades_of_one_of_two_hosts_under_load(world, old, debs, tmp_path):
    """The first one from 0.1.0, while the other host stays at 0.1.0; all others from a package to a newer one. Then back to the first."""
    hosts = [world.machine(name, address, old) for name, address in packaged.HOSTS.items()]
    mail = Mail(world, tmp_path)
    for host in hosts:
        gateway_files(host)
        host.boot()
        gateway_start(host)
    whole(hosts)
    one, other = hosts
    with mail.load(hosts):
        for number in range(20):
            files = debs.newer(tmp_path, number, "dovelane-dovecot", "dovelane-doc") if number else debs.all("dovelane-dovecot", "dovelane-doc")
            before = len(mail.sent.read_text().split())
            one.install(*files)
            replaced(one, "dovelane-milter", "dovelane-relay")
            whole(hosts)
            if number % 4 == 0:
                change_over(one)
                whole(hosts)
            print(f"upgrade {number + 1}, {one.run('dpkg-query -W dovelane').split()[1]}: {len(mail.sent.read_text().split()) - before} mails meanwhile", flush=True)
        assert other.run("dovelane -V") == "dovelane 0.1.0\n"
        # Back to an older package.
        one.install(*debs.all("dovelane-dovecot", "dovelane-doc"))
        replaced(one, "dovelane-milter", "dovelane-relay")
        whole(hosts)
        assert one.run("dpkg-query -W -f '${Version}' dovelane") == debs.field("dovelane", "Version")
    deliver_all(mail, hosts)
    print(f"{len(mail.sent.read_text().split())} answered 250, none refused, none lost, {mail.doubled()} came twice")
    assert mail.doubled() == 0
    assert one.run("systemctl --failed --no-legend") == ""
    mail.close()


def test_going_back_to_0_1_0_under_load(world, old, debs, tmp_path):
    """docs/upgrade.md, "Going back", on one of two hosts, with mail in its lanes. The other one goes on with 0.2.0."""
    hosts = [world.machine(name, address, old) for name, address in packaged.HOSTS.items()]
    one, other = hosts
    mail = Mail(world, tmp_path)
    for host in hosts:
        gateway_files(host)
        host.boot()
        gateway_start(host)
        host.install(*debs.all("dovelane-dovecot"))
        change_over(host)
    whole(hosts)
    waiting = wait_in_lanes(mail, hosts, 50)
    with mail.load(hosts):
        one.run("postconf -PX smtp/inet/smtpd_milters && systemctl reload postfix")
        print(one.run("DOVELANE_REMOVE_ANYWAY=1 dpkg --remove dovelane redis-module-lane dovelane-doc"))
        one.run(f"tar -C / -xf /{packaged.OLD_FILES} && systemctl unmask redis-server@dovelane && systemctl daemon-reload && systemd-tmpfiles --create dovelane.conf; "
                "systemctl start redis-server@dovelane dovelane-relay dovelane-milter && "
                "postconf -P smtp/inet/smtpd_milters=unix:dovelane/milter.sock && systemctl reload postfix")
        assert one.run("dovelane -V") == "dovelane 0.1.0\n"
        whole(hosts)
        assert int(one.run("dovelane mailq -j | wc -l")) >= waiting
    deliver_all(mail, hosts)
    print(f"{len(mail.sent.read_text().split())} answered 250, none refused, none lost, {mail.doubled()} came twice")
    one.reboot()
    assert one.run("systemctl --failed --no-legend") == ""
    whole(hosts)
    mail.close()


def narrow(host):
    """What `dovelane check` says of users of nodes that lack a right."""
    return [line for line in host.run("dovelane check nodes || true").splitlines() if "[acl-narrower]" in line]


def test_users_of_0_1_0_that_lack_a_right_are_named_by_the_package(world, old, debs, tmp_path):
    """An admin who reads no page sees it when the package is installed, and whenever he looks. What he is told to type ends it."""
    hosts = [world.machine(name, address, old) for name, address in packaged.HOSTS.items()]
    mail = Mail(world, tmp_path)
    for host in hosts:
        gateway_files(host)
        host.boot()
    packaged.gateway_users(hosts)
    for host in hosts:
        gateway_start(host)
    whole(hosts)
    for host in hosts:
        said = host.install(*debs.all("dovelane-dovecot"))
        print(said)
        assert "dovelane acl" in said and "on all hosts" in said, said
        whole(hosts)
    for host in hosts:
        change_over(host)
        whole(hosts)
    for host in hosts:
        for user in ("dovelane-milter", "dovelane-relay"):
            assert any(f"its user {user} " in line for line in narrow(host)), narrow(host)
    for host in hosts:
        packaged.new_users(host)
        packaged.load_users(host)
        whole(hosts)
    assert [narrow(host) for host in hosts] == [[], []]
    # A later upgrade has nothing to say of it.
    later = hosts[0].install(*debs.newer(tmp_path, 1, "dovelane-dovecot", "dovelane-doc"))
    assert "dovelane acl" not in later, later
    wait_in_lanes(mail, hosts, 20)
    deliver_all(mail, hosts)
    mail.close()
