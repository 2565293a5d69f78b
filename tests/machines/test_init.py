"""dovelane init, join, invite, group, cert and undo on booted Debians: from bare hosts with the programs to the first diverted mail and the first
replicated flag, in four commands and without a file edited by hand. The tests of this file run in their order, on the same three machines.

DOVELANE_DEBS: a folder with the packages of `make deb`; then all of it is also done with these in the place of `make install`.
"""
import hashlib
import os
import pathlib
import re
import stat
import time

import hosts
import pytest
from machine import World, base_tree, call, chroot

pytestmark = pytest.mark.exhaustive

ADDRESSES = {"mx1": "10.0.0.1", "mx2": "10.0.0.2", "mx3": "10.0.0.3"}
PACKAGES = ["postfix", "dovecot-imapd", "dovecot-lmtpd", "redis-server", "python3", "libhiredis-dev", "libev-dev", "libmilter-dev", "libconfuse-dev", "libmicrohttpd-dev", "libjansson-dev", "libncurses-dev", "libsqlite3-dev"]
LMTP = "lmtp:unix:private/dovecot-lmtp"
SEND = "import smtplib, sys; s = smtplib.SMTP(sys.argv[1], 25, timeout=60); s.sendmail('a@x.example', ['anna@example.org'], 'Subject: ' + sys.argv[2] + '\\n\\nhello\\n'); s.quit()"
# What differs on a host that is left alone, too: logs, queues, what servers keep of their own.
RESTLESS = r"/(dev|proc|run|sys|tmp|var/(log|cache|tmp|vmail|lib/(systemd|postfix|dovecot|dbus|logrotate)|spool/(postfix/(active|bounce|corrupt|defer|deferred|flush|hold|incoming|maildrop|pid|private|public|saved|trace)|cron|rsyslog)))(/|$)|/etc/(resolv.conf|aliases.db|\.pwd\.lock|\.updated)$|/root/|/usr/lib/python|/usr/(lib|share)/.*\.pyc$"


DEBIAN = {"bookworm": 12, "trixie": 13}


def debs(release):
    """The packages for a release; a test without them is left out, and says so."""
    folder = os.environ.get("DOVELANE_DEBS")
    found = [each for name in ("redis-module-lane", "dovelane", "dovelane-dovecot") for each in pathlib.Path(folder or "/nowhere").glob(f"{name}_*~deb{DEBIAN[release]}u*.deb")]
    if len(found) != 3:
        pytest.skip(f"DOVELANE_DEBS={folder or ''} has no packages for {release}: make deb, there")
    return found


def tree_with_programs(release, folder, way):
    def prepare(tree):
        chroot(tree, "useradd", "--system", "--create-home", "--home-dir", "/var/vmail", "vmail")
        chroot(tree, "systemctl", "disable", "redis-server")
        (tree / "etc/postfix/main.cf").write_text(hosts.MAIN_CF.format(name="localhost"), encoding="ascii")
    programs = debs(release) if way == "packages" else hosts.installed(release, folder)
    return base_tree(release, PACKAGES, "init", prepare, "1"), programs


def furnish(machine, programs):
    """A mail server that works, and beside it the installed programs: nothing of Dovelane is configured, and nothing runs."""
    hosts.configure(machine)
    if isinstance(programs, list):
        machine.install(*programs)
        return
    call("tar", "-C", machine.tree, "--no-overwrite-dir", "-xf", programs)
    machine.chroot("systemd-sysusers", "dovelane.conf")
    for name in sorted(machine.place("/usr/lib/tmpfiles.d").glob("dovelane*.conf")):
        machine.chroot("systemd-tmpfiles", "--create", name.name)


def make_anew(machine, base, programs):
    """Another host with this one's name and address: nothing is left of the disk."""
    call("umount", machine.tree)
    call("rm", "-rf", *(machine.folder / part for part in ("tree", "upper", "work")))
    machine.make_tree(base)
    machine.write("/etc/hostname", f"{machine.name}\n")
    machine.write("/etc/machine-id", hashlib.md5(os.urandom(8)).hexdigest() + "\n")
    machine.write_hosts()
    furnish(machine, programs)


class Group:
    def __init__(self, world, release, way):
        self.world, self.commands = world, []
        self.base, self.programs = tree_with_programs(release, world.folder, way)
        self.machines = {name: world.machine(name, address, self.base) for name, address in ADDRESSES.items()}
        for machine in self.machines.values():
            furnish(machine, self.programs)
            machine.start()
        for machine in self.machines.values():
            machine.wait_booted()

    def __getitem__(self, name):
        return self.machines[name]

    def type(self, name, words):
        """What an admin types on that host."""
        self.commands.append(f"{name}# {words}")
        return self[name].run(f"{words} --yes" if re.match("dovelane (init|join|group (divert|replicate|role|remove))", words) else words, timeout=300)

    def send(self, name, subject):
        self.world.run("python3", "-c", SEND, ADDRESSES[name], subject)

    def diverted(self, name, subject):
        """Sends a mail that is diverted; a mail that goes by the queue meanwhile (the group is not whole yet) is no failure."""
        end = time.monotonic() + 120
        while True:
            self.send(name, subject)
            log = self[name].wait("grep -a 'dovelane-milter.*action=' /var/log/mail.log | tail -1 | grep .")
            if "action=lane" in log or time.monotonic() > end:
                assert "action=lane" in log, log
                return
            time.sleep(1)

    def settled(self, names):
        for name in names:
            self[name].wait("dovelane group", 180, f"all hosts have what {name} has of the group")
            self[name].wait("dovelane nodes", 180, f"all nodes are alive and whole, as {name} sees it")


HERE = hosts.release_here()
CASES = [pytest.param((release, way), marks=[pytest.mark.here] if release == HERE else [], id=f"{release}-{way}") for release in DEBIAN for way in ("install", "packages")]


@pytest.fixture(scope="module", params=CASES)
def group(request):
    with World() as world:
        yield Group(world, *request.param)


def joining(said):
    return re.search(r"^ +(dovelane join \S+ --token \S+.*)$", said, re.M)[1]


def flags(machine, user="anna@example.org"):
    return machine.run(f"doveadm fetch -u {user} 'hdr.subject flags' mailbox INBOX all", check=False)


def test_two_bare_hosts_become_an_encrypted_pair(group):
    begin = time.monotonic()
    said = group.type("mx1", "dovelane init --address 10.0.0.1")
    group.type("mx2", joining(said))
    group.type("mx1", f"dovelane group divert add {LMTP}")
    group.type("mx1", "dovelane group replicate on")
    group.settled(["mx1", "mx2"])
    group["mx1"].run("doveadm dovelane resync -u anna@example.org")
    group.diverted("mx1", "first")
    group["mx2"].wait("doveadm fetch -u anna@example.org hdr.subject mailbox INBOX all | grep first", 120, "the first replicated mail")
    group["mx2"].run("doveadm flags add -u anna@example.org '\\Flagged' mailbox INBOX all")
    group["mx1"].wait("doveadm fetch -u anna@example.org flags mailbox INBOX all | grep Flagged", 120, "the first replicated flag")
    print(f"{len(group.commands)} commands typed, 0 files edited, {time.monotonic() - begin:.0f} s from the first command to the first replicated flag")
    assert len(group.commands) == 4


def test_the_pair_is_good_and_speaks_tls_only(group):
    for name in ("mx1", "mx2"):
        machine = group[name]
        said = machine.wait("dovelane check || [ $? = 1 ]", 120)
        assert "0 critical" in said, said
        assert "0 loaded units" in machine.run("systemctl --failed --no-pager")
        assert "nothing to do" in machine.run("dovelane init --yes")
        with pytest.raises(Exception, match="status"):
            group.world.run("redis-cli", "-h", machine.address, "-p", "7001", "ping", timeout=20)
        assert "NOAUTH" in machine.run(f"redis-cli -h {machine.address} -p 7001 --tls --cacert /etc/dovelane/tls/ca.crt ping", check=False)
        assert not machine.run("systemctl is-active dovelane-enroll", check=False).startswith("active"), "the door is closed"


def test_a_third_host_joins_with_one_command_and_the_others_learn_of_it(group):
    group["mx3"].before = snapshot(group["mx3"])
    invited = joining(group["mx1"].run("dovelane invite"))
    group.commands.clear()
    group.type("mx3", invited)
    assert len(group.commands) == 1
    group.settled(ADDRESSES)
    group["mx3"].wait("doveadm fetch -u anna@example.org flags mailbox INBOX all | grep Flagged", 120, "what the others had")
    group.diverted("mx3", "by the third")
    group["mx2"].wait("doveadm fetch -u anna@example.org hdr.subject mailbox INBOX all | grep 'by the third'", 120)


def test_a_site_gets_a_role_with_one_command(group):
    group.type("mx1", "dovelane group role mx3 backup")
    group["mx3"].wait("doveadm dovelane status | grep 'here, backup'", 120, "the role")
    assert "backup" in group["mx1"].run("dovelane group") and "its role is backup" in group["mx3"].run("doveadm dovelane preflight -v || true")
    group.type("mx1", "dovelane group role mx3 full")
    group["mx3"].wait("! doveadm dovelane status | grep 'here, backup'", 120, "the role's end")


def test_a_token_is_good_once_and_the_door_is_closed_afterwards(group):
    token = joining(group["mx1"].run("dovelane invite --minutes 5"))
    group["mx1"].run("ss -ltn | grep -q :7002")
    code, said = group["mx2"].status(f"{token} --yes")
    assert code == 2 and "is in a group already" in said
    group["mx1"].run("systemctl stop dovelane-enroll")


def served(machine):
    return machine.run(f"echo | openssl s_client -connect {machine.address}:7001 2>/dev/null | openssl x509 -noout -serial")


def test_a_certificate_is_renewed_without_a_restart(group):
    for name in ("mx1", "mx2"):
        machine = group[name]
        before, pid = served(machine), machine.run("systemctl show -P MainPID redis-server@dovelane dovelane-relay dovelane-milter")
        assert "nothing to do" in machine.run("dovelane cert renew")
        assert "renewed, and in use" in machine.run("dovelane cert renew --now --wait 150", timeout=300)
        assert served(machine) != before and machine.run("systemctl show -P MainPID redis-server@dovelane dovelane-relay dovelane-milter") == pid
    group.settled(ADDRESSES)
    group.diverted("mx2", "after a renewal")


def test_forged_and_old_descriptions_are_refused(group):
    machine = group["mx2"]
    before = machine.run("cat /etc/dovelane/group")
    redis = "redis-cli -h 10.0.0.3 -p 7001 --tls --cacert /etc/dovelane/tls/ca.crt --no-auth-warning --user dovelane --pass $(cut -d' ' -f2 /etc/dovelane/dovelane/user)"
    machine.run(f"sed 's/\"serial\": [0-9]*/\"serial\": 999/' /etc/dovelane/group | {redis} -x SET dovelane.group")
    machine.run("dovelane group sync")
    assert machine.run("cat /etc/dovelane/group") == before
    # Whoever looked first refused it, and put the good one there again.
    logs = "".join(each.run("grep -ah 'dovelane-group.*refused' /var/log/mail.log", check=False) for each in group.machines.values())
    assert "node mx3 has a description of the group that is refused: the signature is not that of the group's authority" in logs
    group.settled(["mx1"])


def test_a_lost_host_is_made_anew_with_one_command(group):
    site = re.search(r"replica mx2 \{ id = (\d+)", group["mx1"].read("/etc/dovelane/dovelane.conf"))[1]
    old = served(group["mx2"])
    group["mx2"].cut_power()
    make_anew(group["mx2"], group.base, group.programs)
    group["mx2"].boot()
    invited = joining(group["mx1"].run("dovelane invite --replace mx2"))
    group.commands.clear()
    group.type("mx2", invited)
    assert len(group.commands) == 1 and served(group["mx2"]) != old
    assert re.search(r"replica mx2 \{ id = (\d+)", group["mx2"].read("/etc/dovelane/dovelane.conf"))[1] == site
    group.settled(ADDRESSES)
    group["mx2"].run("doveadm dovelane resync -u anna@example.org")
    group["mx2"].wait("doveadm fetch -u anna@example.org flags mailbox INBOX all | grep Flagged", 180, "its mailboxes are back")
    group.diverted("mx2", "made anew")


def snapshot(machine):
    """{path: mode, owner, content} of all that an undo answers for."""
    found = {}
    for folder, directories, names in os.walk(machine.tree):
        inside = folder[len(str(machine.tree)):] or "/"
        directories[:] = [name for name in directories if not re.match(RESTLESS, os.path.join(inside, name))]
        for name in [*directories, *names]:
            path, full = os.path.join(inside, name), os.path.join(folder, name)
            if re.match(RESTLESS, path):
                continue
            st = os.lstat(full)
            what = os.readlink(full) if stat.S_ISLNK(st.st_mode) else hashlib.sha256(open(full, "rb").read()).hexdigest() if stat.S_ISREG(st.st_mode) else ""
            found[path] = (oct(st.st_mode), st.st_uid, st.st_gid, what)
    return found


def test_an_undo_leaves_the_host_as_it_was(group):
    machine = group["mx3"]
    group["mx1"].run("dovelane divert off")
    machine.wait("dovelane init --undo --yes", 120, "undone, when no mail waits")
    after = snapshot(machine)
    differ = {path: (machine.before.get(path), after.get(path)) for path in set(machine.before) | set(after) if machine.before.get(path) != after.get(path)}
    assert not differ, differ
    assert "0 loaded units" in machine.run("systemctl --failed --no-pager")
    machine.reboot()
    assert machine.run("systemctl is-active postfix dovecot").split() == ["active", "active"]
    machine.wait("ss -ltn | grep -q :25")
    group.send("mx3", "by Postfix alone")
    machine.wait("grep -a 'status=sent.*Saved' /var/log/mail.log | tail -1 | grep postfix/lmtp", 60, "Postfix delivers as before")
    group["mx1"].run("dovelane group remove mx3 --yes --wait 150", timeout=300)
    group["mx2"].wait("! grep -q mx3 /etc/dovelane/dovelane.conf", 120)
