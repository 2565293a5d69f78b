"""Installed, removed and purged on a booted Debian: nothing starts by itself, nothing is lost before a purge, nothing is left behind one."""
import re

import packaged
from packaged import Mail, difference, files_of, gateway_files, gateway_start, wait_in_lanes, whole

UNITS = "dovelane-milter dovelane-proxy dovelane-relay"


def one_host(world, bare, name="mx1", address="10.0.0.1"):
    host = world.machine(name, address, bare)
    host.boot()
    return host


def replicated(host):
    """Dovecot with the plugin, as one of two sites."""
    host.write("/etc/dovelane/dovelane.conf", 'replica site-a { id = 1  redis = "10.0.0.1:7001"  tls = no }\nreplica site-b { id = 2  redis = "10.0.0.2:7001"  tls = no }\n'
               'replicate_namespaces = { "inbox" }\n')
    host.run("cp /usr/share/doc/dovelane/examples/11-dovelane.conf /etc/dovecot/conf.d/; systemctl reset-failed dovecot; systemctl restart dovecot && doveadm dovelane status")


def test_what_is_installed_neither_runs_nor_is_enabled_and_a_purge_leaves_nothing(world, bare, debs):
    host = one_host(world, bare)
    before = files_of(host)
    host.install(*debs.all())
    assert host.run(f"systemctl is-enabled {UNITS}", check=False).split() == ["disabled"] * 3
    assert host.run(f"systemctl is-active {UNITS} redis-server@dovelane", check=False).split() == ["inactive"] * 4
    assert host.run("systemctl --failed --no-legend") == ""
    assert "dovelane" in host.run("id dovelane; id dovelane-proxy; id dovelane-replicator")
    for path in ("/var/lib/dovelane", "/var/lib/redis/dovelane", "/var/spool/postfix/dovelane", "/var/spool/postfix/dovelane-proxy"):
        host.run(f"test -d {path}")
    assert host.run("dovelane -V").startswith("dovelane ")
    assert debs.field("dovelane", "Version").startswith(host.run("dovelane -V").split()[1])
    assert "mailq" in host.run("""bash -c '. /usr/share/bash-completion/completions/dovelane; COMP_LINE="dovelane mai"; COMP_POINT=12; _dovelane; echo "${COMPREPLY[@]}"'""")
    host.run("for f in /etc/apparmor.d/dovelane-*; do apparmor_parser -Q -K -T $f || exit 1; done")
    assert host.run("systemctl is-active dovecot postfix redis-server").split() == ["active"] * 3
    host.run(f"dpkg --remove {' '.join(packaged.NAMES)}")
    purged = host.run(f"dpkg --purge {' '.join(packaged.NAMES)}")
    print(purged)
    assert difference(before, files_of(host)) == []
    assert host.run("find /var/spool/postfix /var/lib/redis /var/lib/dovecot /run -name '*dovelane*'") == ""
    assert host.run("systemctl is-active dovecot postfix redis-server").split() == ["active"] * 3


def test_a_gateway_is_not_removed_while_it_holds_mail_and_a_purge_says_what_goes(world, bare, debs, tmp_path):
    hosts = [world.machine(name, address, bare) for name, address in packaged.HOSTS.items()]
    one = hosts[0]
    mail = Mail(world, tmp_path)
    for host in hosts:
        host.boot()
    before = files_of(one)
    master = one.read("/etc/postfix/master.cf"), one.read("/etc/postfix/main.cf")
    for host in hosts:
        host.install(*debs.all("dovelane-dovecot"))
        gateway_files(host)
        gateway_start(host)
    whole(hosts)
    waiting = wait_in_lanes(mail, hosts, 30)
    # Postfix names us.
    code, said = one.status("dpkg --remove dovelane")
    assert code and "Postfix still hands it mail" in said and "master.cf" in said, said
    one.run("postconf -PX smtp/inet/smtpd_milters && systemctl reload postfix")
    # Mail lies in its lanes.
    code, said = one.status("dpkg --remove dovelane")
    assert code and f"{waiting} mails lie in lanes" in said and "drain --to-postfix" in said, said
    assert one.run("systemctl is-active dovelane-relay dovelane-milter").split() == ["active"] * 2
    code, said = one.status("dpkg --remove redis-module-lane")
    assert code and "Remove dovelane first, or stop the relay" in said, said
    one.run("dovelane drain --to-postfix", timeout=300)
    one.run("dpkg --remove dovelane redis-module-lane dovelane-doc")
    assert one.run(f"systemctl is-active {UNITS} redis-server@dovelane", check=False).split() == ["inactive"] * 4
    one.run("test -s /etc/dovelane/dovelane.conf -a -s /etc/redis/redis-dovelane.conf -a -s /etc/default/dovelane && id dovelane")
    one.reboot()
    assert one.run("systemctl --failed --no-legend") == ""
    mail.hold(False)
    one.run("postqueue -f"), hosts[1].run("postqueue -f")
    one.wait("mailq | grep -q 'Mail queue is empty'", 120)
    hosts[1].wait("mailq | grep -q 'Mail queue is empty'", 120)
    assert mail.lost() == set()
    said = one.run("dpkg --purge dovelane redis-module-lane dovelane-doc")
    for path in ("/etc/dovelane", "/etc/default/dovelane", "/var/lib/dovelane", "/etc/redis/redis-dovelane.conf", "the user dovelane is gone"):
        assert path in said, said
    one.write("/etc/postfix/master.cf", master[0])
    one.write("/etc/postfix/main.cf", master[1])
    assert difference(before, files_of(one)) == []
    mail.close()


def test_what_a_removed_module_left_on_the_disk_is_there_again_when_it_comes_back(world, bare, debs, tmp_path):
    host = one_host(world, bare)
    mail = Mail(world, tmp_path)
    host.install(*debs.all("dovelane-dovecot"))
    gateway_files(host)
    config = host.read("/etc/dovelane/dovelane.conf")
    host.write("/etc/dovelane/dovelane.conf", re.sub(r"node mx2 .*\n", "", config).replace("copies = 2", "copies = 1"))
    gateway_start(host)
    whole([host])
    wait_in_lanes(mail, [host], 20)
    code, said = host.status("DOVELANE_REMOVE_ANYWAY=1 dpkg --remove dovelane redis-module-lane")
    assert code == 0, said
    host.run("test -s /var/lib/redis/dovelane/dump.rdb")
    assert host.run("systemctl is-active redis-server@dovelane", check=False).strip() == "inactive"
    host.reboot()
    assert host.run("systemctl --failed --no-legend") == ""
    host.install(*debs.all("dovelane-dovecot"))
    mail.hold(False)
    host.run("systemctl start redis-server@dovelane dovelane-relay dovelane-milter")
    host.wait("dovelane mailq | grep -q -i empty", 180)
    assert mail.lost() == set()
    mail.close()


def one_node_gateway(host, debs):
    """A gateway of one node, so that a removal of one package does not need another host."""
    host.install(*debs.all("dovelane-dovecot"))
    gateway_files(host)
    config = host.read("/etc/dovelane/dovelane.conf")
    host.write("/etc/dovelane/dovelane.conf", re.sub(r"node mx2 .*\n", "", config).replace("copies = 2", "copies = 1"))
    gateway_start(host)
    whole([host])


def in_lanes_and_queue(host):
    """The mails that this host has in lanes, or that its relay has given to Postfix since their next hop was away."""
    host.wait("dovelane nodes", 180)
    return int(host.run("(dovelane mailq -j; postqueue -j) | wc -l"))


def test_what_cannot_be_told_is_not_taken_for_no_mail(world, bare, debs, tmp_path):
    """Each way in which the count of the mails fails: the removal is refused, says why, and everything runs as before."""
    host = one_host(world, bare)
    mail = Mail(world, tmp_path)
    one_node_gateway(host, debs)
    waiting = wait_in_lanes(mail, [host], 5)
    host.run("postconf -PX smtp/inet/smtpd_milters && systemctl reload postfix")
    config = host.read("/etc/dovelane/dovelane.conf")
    cases = {
        "a setting that is none": (lambda: host.write("/etc/dovelane/dovelane.conf", config + "\nnonsense = 1\n"), "nonsense"),
        "no dovelane.conf": (lambda: host.run("mv /etc/dovelane/dovelane.conf /root/"), "dovelane.conf"),
        "no node of this host": (lambda: host.write("/etc/default/dovelane", ""), "DOVELANE_NODE"),
        "a Redis that hangs": (lambda: host.run("systemctl kill -s STOP redis-server@dovelane"), "mx1"),
    }
    for case, (break_it, named) in cases.items():
        break_it()
        code, said = host.status("dpkg --remove dovelane")
        assert code and "cannot be told whether the node of this host holds mail" in said and named in said, f"{case}: {said}"
        host.run("systemctl kill -s CONT redis-server@dovelane; rm -f /root/dovelane.conf")
        host.write("/etc/dovelane/dovelane.conf", config)
        host.write("/etc/default/dovelane", "DOVELANE_NODE=mx1\n")
        assert host.run("systemctl is-active dovelane-relay dovelane-milter").split() == ["active"] * 2, case
    # A server that is not up yet: what it is loading is mail.
    host.run("systemctl stop dovelane-relay redis-server@dovelane; systemctl kill -s STOP redis-server@dovelane || true; "
             "mkdir -p /run/systemd/system/redis-server@dovelane.service.d; printf '[Service]\\nExecStartPre=/bin/sleep 600\\nNoExecPaths=\\nTimeoutStartSec=900\\n' "
             "> /run/systemd/system/redis-server@dovelane.service.d/slow.conf; systemctl daemon-reload; systemctl --no-block start redis-server@dovelane")
    host.wait("systemctl show -p ActiveState --value redis-server@dovelane | grep -q activating")
    code, said = host.status("dpkg --remove dovelane")
    assert code and "cannot be told" in said, said
    host.run("rm /run/systemd/system/redis-server@dovelane.service.d/slow.conf; systemctl daemon-reload; systemctl stop redis-server@dovelane; "
             "systemctl start redis-server@dovelane dovelane-relay")
    host.wait(f"dovelane mailq -j | wc -l | grep -qx {waiting}")
    # A stopped server has what it held in its file, and the mail is there when both are back.
    host.run("systemctl stop dovelane-relay redis-server@dovelane")
    host.run("dpkg --remove dovelane")
    host.install(debs["dovelane"])
    mail.hold(False)
    host.run("systemctl start redis-server@dovelane dovelane-relay")
    host.wait("dovelane mailq | grep -q -i empty", 180)
    assert mail.lost() == set()
    mail.close()


def test_a_removal_that_comes_to_nothing_changes_nothing(world, bare, debs, tmp_path):
    """dpkg removes a package in favour of another one, which then is not unpacked: postinst abort-remove."""
    host = one_host(world, bare)
    mail = Mail(world, tmp_path)
    one_node_gateway(host, debs)
    wait_in_lanes(mail, [host], 5)
    host.run("postconf -PX smtp/inet/smtpd_milters && systemctl reload postfix")

    def in_vain(name):
        file = packaged.in_favour(tmp_path, name)
        host.write(f"/var/tmp/{file.name}", "")
        host.place(f"/var/tmp/{file.name}").write_bytes(file.read_bytes())
        code, said = host.status(f"DOVELANE_REMOVE_ANYWAY=1 dpkg -i /var/tmp/{file.name}")
        assert code and "in favour of" in said, said
        assert host.run(f"dpkg-query -W -f '${{db:Status-Status}}' {name}") == "installed"
        return said

    processes = host.run("systemctl show -p MainPID --value redis-server@dovelane dovelane-relay dovelane-milter")
    in_vain("dovelane")
    assert host.run("systemctl is-active redis-server@dovelane dovelane-relay dovelane-milter").split() == ["active"] * 3
    assert host.run("systemctl show -p MainPID --value redis-server@dovelane dovelane-relay dovelane-milter") != processes, "they were stopped meanwhile"
    assert host.run("systemctl is-active dovelane-proxy", check=False).strip() == "inactive", "what did not run is not started"
    in_vain("redis-module-lane")
    assert host.run("systemctl is-enabled redis-server@dovelane").strip() == "enabled"
    assert host.run("systemctl is-active redis-server@dovelane").strip() == "active"
    assert in_lanes_and_queue(host) == 5
    assert host.run("find /run /etc/systemd -name '*.stopped' -o -lname /dev/null -name '*-server@dovelane*'") == ""
    # An admin's own mask stays.
    host.run("systemctl stop redis-server@dovelane; systemctl disable redis-server@dovelane; systemctl mask redis-server@dovelane")
    host.run("rm -r /var/tmp/instead*")
    packaged.machine.remove_tree(tmp_path / "instead-of-redis-module-lane")
    in_vain("redis-module-lane")
    assert host.run("systemctl is-enabled redis-server@dovelane", check=False).strip() == "masked"
    host.run("systemctl unmask redis-server@dovelane; systemctl enable --now redis-server@dovelane; systemctl restart dovelane-relay")
    mail.hold(False)
    host.wait("dovelane mailq | grep -q -i empty", 180)
    assert mail.lost() == set()
    # Dovecot's configuration is where it was.
    host.install(debs["dovelane-dovecot"])
    host.run("cp /usr/share/doc/dovelane/examples/11-dovelane.conf /etc/dovecot/conf.d/; systemctl reset-failed dovecot; systemctl restart dovecot")
    in_vain("dovelane-dovecot")
    host.run("test -e /etc/dovecot/conf.d/11-dovelane.conf -a ! -e /etc/dovecot/conf.d/11-dovelane.conf.removed && systemctl reset-failed dovecot && "
             "systemctl restart dovecot && systemctl is-active dovecot")
    mail.close()


def test_a_doveconf_that_fails_is_not_taken_for_a_configuration_without_us(world, bare, debs):
    host = one_host(world, bare)
    host.install(*debs.all())
    replicated(host)
    host.write("/etc/dovecot/conf.d/99-slip.conf", "no_such_setting = yes\n")
    code, said = host.status("dpkg --remove dovelane-dovecot")
    assert code and "doveconf fails" in said and "no_such_setting" in said, said
    host.run("test -e /etc/dovecot/conf.d/11-dovelane.conf -a ! -e /etc/dovecot/conf.d/11-dovelane.conf.removed")
    # Forced, the plugin's configuration is put aside all the same; and a user whom Dovecot may need stays.
    host.run("DOVELANE_REMOVE_ANYWAY=1 dpkg --remove dovelane-dovecot; test ! -e /etc/dovecot/conf.d/11-dovelane.conf")
    said = host.run("dpkg --purge dovelane-dovecot dovelane")
    assert "the user dovelane stays: doveconf fails" in said and "the user dovelane-proxy stays: doveconf fails" in said, said
    host.run("rm /etc/dovecot/conf.d/99-slip.conf; systemctl reset-failed dovecot; systemctl restart dovecot && systemctl is-active dovecot")


def test_dovecot_starts_without_the_plugin_and_replicates_when_it_is_back(world, bare, debs):
    host = one_host(world, bare)
    host.install(*debs.all())
    replicated(host)
    host.wait("pgrep -f '[d]ovelane-replicator'")
    # The admin's own file names the plugin, too: refused, and nothing is changed.
    own = "protocol imap {\n  mail_plugins = $mail_plugins dovelane\n}\n" if "2.3" in host.run("dovecot --version") else "protocol imap {\n  mail_plugins {\n    dovelane = yes\n  }\n}\n"
    host.write("/etc/dovecot/conf.d/99-own.conf", own)
    code, said = host.status("dpkg --remove dovelane-dovecot")
    assert code and "Dovecot would not start" in said and f"/etc/dovecot/conf.d/99-own.conf:{own[:own.index('dovelane')].count(chr(10)) + 1}:" in said, said
    host.run("test -e /etc/dovecot/conf.d/11-dovelane.conf && systemctl reset-failed dovecot && systemctl restart dovecot && doveadm dovelane status")
    host.run("rm /etc/dovecot/conf.d/99-own.conf && systemctl reload dovecot")
    host.run("dpkg --remove dovelane-dovecot")
    host.run("systemctl reset-failed dovecot; systemctl restart dovecot && systemctl is-active dovecot && ! pgrep -f '[d]ovelane-replicator'")
    assert "dovelane" not in host.run("doveconf -n")
    host.install(debs["dovelane-dovecot"])
    host.run("systemctl is-active dovecot && doveadm dovelane status")
    host.wait("pgrep -f '[d]ovelane-replicator'")
    host.run("dpkg --purge dovelane-dovecot dovelane redis-module-lane dovelane-doc")
    host.run("systemctl reset-failed dovecot; systemctl restart dovecot && systemctl is-active dovecot")
    assert host.run("find /etc/dovecot -name '*dovelane*'") == ""


def test_a_dovecot_with_the_relays_socket_starts_after_a_purge(world, bare, debs):
    host = one_host(world, bare)
    host.install(debs["dovelane"], debs["redis-module-lane"])
    host.run("install -m 0644 /usr/share/doc/dovelane/examples/dovecot-lmtp.conf /etc/dovecot/conf.d/90-dovelane.conf && systemctl reset-failed dovecot && systemctl restart dovecot")
    host.run("dpkg --remove dovelane && systemctl reset-failed dovecot && systemctl restart dovecot && systemctl is-active dovecot")
    said = host.run("dpkg --purge dovelane")
    assert "/etc/dovecot/conf.d/90-dovelane.conf" in said
    host.run("systemctl reset-failed dovecot; systemctl restart dovecot && systemctl is-active dovecot")
    # Where the admin's own file names the user, the user stays.
    host.install(debs["dovelane"])
    host.write("/etc/dovecot/conf.d/99-own.conf", "service lmtp {\n  unix_listener other {\n    user = dovelane\n  }\n}\n")
    host.run("systemctl reset-failed dovecot; systemctl restart dovecot")
    assert "the user dovelane stays: Dovecot's configuration names it" in host.run("dpkg --purge dovelane")
    host.run("systemctl reset-failed dovecot; systemctl restart dovecot && systemctl is-active dovecot")


def test_the_autopkgtests_pass(world, bare, debs):
    host = one_host(world, bare)
    host.install(*debs.all("dovelane-dovecot"))
    for name in ("module", "gateway"):
        host.write(f"/root/{name}", (packaged.ROOT / "debian/tests" / name).read_text(encoding="utf-8"), 0o755)
        print(host.run(f"/root/{name}", timeout=300))
