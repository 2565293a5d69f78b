"""What the tests of the packages share: the packages, 0.1.0 as `make install` left it, a gateway of two hosts, what a file system holds."""
import contextlib
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys

import hosts
import machine

ROOT = machine.ROOT
MAIL = ROOT / "tests/machines/mail.py"
NAMES = ["redis-module-lane", "dovelane", "dovelane-dovecot", "dovelane-doc"]
OLD = "44edfa3"  # 0.1.0: there was no package of it
OLD_FILES = "var/tmp/0.1.0.tar"  # what its `make install` installs, in a tree that has it
HOSTS = {"mx1": "10.0.0.1", "mx2": "10.0.0.2"}
HOP = f"smtp:[{machine.HUB_ADDRESS}]:2525"
# Names differ between releases where a library's version is in them: apt is asked for them by pattern.
LIBRARIES = ["^libconfuse[0-9]+$", "^libev4(t64)?$", "^libhiredis[0-9.]+$", "^libmicrohttpd[0-9]+(t64)?$", "^libmilter[0-9.]+$", "libjansson4", "^libncursesw6$", "^libtinfo6$", "libsqlite3-0"]
# dh_apparmor removes apparmor.d/disable where it is empty. What each package of Debian writes by itself while it runs is not ours to compare.
MOVING = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/var/backups", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd",
          "/var/lib/postfix", "/var/spool/postfix", "/var/lib/redis/dump.rdb", "/var/lib/dovecot", "/etc/ld.so.cache", "/etc/apparmor.d/disable", "/etc/machine-id", "/var/mail", "/root"]
ACCOUNTS = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid", "/etc/subgid",
            "/etc/subuid-", "/etc/subgid-", "/etc/.pwd.lock"]


def release_here():
    text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    return re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)[1]


def beside(release):
    return ["postfix", "redis-server", "redis-tools", "dovecot-imapd", "dovecot-lmtpd", "apparmor", *LIBRARIES]


class Debs:
    def __init__(self, folder):
        self.folder = folder
        for name in NAMES:
            assert list(folder.glob(f"{name}_*.deb")), f"{folder} has no {name}: make deb"

    def __getitem__(self, name):
        return next(self.folder.glob(f"{name}_*.deb"))

    def all(self, *without):
        return [self[name] for name in NAMES if name not in without]

    def field(self, name, field):
        return machine.call("dpkg-deb", "-f", self[name], field).strip()

    def newer(self, folder, number, *without):
        """The same packages with a higher version: a list of files."""
        version, made = self.field("dovelane", "Version"), folder / f"newer-{number}"
        made.mkdir()
        for name in (name for name in NAMES if name not in without):
            files = made / name
            machine.call("dpkg-deb", "-R", self[name], files)
            control = files / "DEBIAN/control"
            control.write_text(control.read_text(encoding="utf-8").replace(version, f"{version}+t{number}"), encoding="utf-8")
            machine.call("dpkg-deb", "--root-owner-group", "-Znone", "-b", files, made / f"{name}_{version}+t{number}.deb")
            machine.remove_tree(files)
        return sorted(made.glob("*.deb"))


def in_favour(folder, name):
    """A package for whose sake dpkg removes `name`, and which then cannot be unpacked: the removal comes to nothing."""
    files = folder / f"instead-of-{name}"
    (files / "DEBIAN").mkdir(parents=True)
    (files / "DEBIAN/control").write_text(f"Package: instead-of-{name}\nVersion: 1\nArchitecture: all\nMaintainer: test <test@example.org>\n"
                                          f"Conflicts: {name}\nReplaces: {name}\nDescription: stands in the place of another\n", encoding="ascii")
    (files / "DEBIAN/preinst").write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
    (files / "DEBIAN/preinst").chmod(0o755)
    machine.call("dpkg-deb", "--root-owner-group", "-b", files, f"{files}.deb")
    return pathlib.Path(f"{files}.deb")


def old_version(release):
    """What puts 0.1.0 into a tree of that release, as `make install` did there."""
    def prepare(tree):
        files = hosts.built(release, OLD)[0]
        machine.call("tar", "--no-overwrite-dir", "-C", tree, "-xf", files, "./usr")
        shutil.copy(files, tree / OLD_FILES)
    return prepare


def gateway_files(host):
    """The guide's way, without TLS, for one of two hosts. The PID file: 0.1.0's drop-in needed it, and nobody had said so."""
    name, address = host.name, host.address
    examples = pathlib.Path("/usr/share/doc/dovelane/examples")
    redis = host.read(examples / "redis-dovelane.conf").replace("10.0.0.1", address).replace("lane.node mx1", f"lane.node {name}").replace("4gb", "200mb")
    host.write("/etc/redis/redis-dovelane.conf", redis + f"pidfile /run/redis-dovelane/redis-server.pid\n")
    config = host.read(examples / "dovelane.conf").replace("divert = { }", f'divert = {{ "{HOP}" }}')
    host.write("/etc/dovelane/dovelane.conf", config)
    host.write("/etc/default/dovelane", f"DOVELANE_NODE={name}\n")
    master = host.read("/etc/postfix/master.cf")
    lines = host.read(examples / "master.cf")
    host.write("/etc/postfix/master.cf", master + lines[re.search(r"^127\.0\.0\.1:10[06]27", lines, re.M).start():])  # 10027: 0.1.0


def gateway_users(hosts):
    """TLS and users, as the guide of 0.1.0 has it: certificates and passwords are made on the first host. The operator is the admin's own user."""
    first = hosts[0]
    first.run("install -d /etc/dovelane/tls && cd /etc/dovelane/tls && "
              "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=Dovelane -keyout ca.key -out ca.crt && umask 077 && "
              "for program in dovelane dovelane-milter dovelane-proxy dovelane-relay dovelane-replicator; do echo $program $(openssl rand -hex 24) > ../$program.user; done")
    for host in hosts:
        first.run(f"cd /etc/dovelane/tls && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={host.name} -keyout {host.name}.key -out {host.name}.csr && "
                  f"echo 'subjectAltName = DNS:{host.name}, IP:{host.address}' > {host.name}.ext && "
                  f"openssl x509 -req -in {host.name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile {host.name}.ext -out {host.name}.crt")
        config = re.sub(r"^node mx(.*) tls = no", r"node mx\1 tls = yes", host.read("/etc/dovelane/dovelane.conf"), flags=re.M)
        host.write("/etc/dovelane/dovelane.conf", 'node_ca_file = "/etc/dovelane/tls/ca.crt"\nnode_user_file = "/etc/dovelane/%p.user"\n' + config)
        redis = host.read("/etc/redis/redis-dovelane.conf").replace("port 7001", "port 0\ntls-port 7001\ntls-cert-file /etc/redis/dovelane/node.crt\ntls-key-file "
                          "/etc/redis/dovelane/node.key\ntls-ca-cert-file /etc/redis/dovelane/ca.crt\ntls-auth-clients no\naclfile /etc/redis/dovelane/users.acl", 1)
        host.write("/etc/redis/redis-dovelane.conf", redis)
    files = first.run("cd /etc/dovelane && tar -c tls *.user | base64")
    for host in hosts:
        host.write("/etc/dovelane/taken", files)
        host.run("cd /etc/dovelane && base64 -d taken | tar -x && rm taken && chgrp dovelane dovelane-milter.user dovelane-relay.user && chgrp dovelane-proxy dovelane-proxy.user && "
                 "chmod 0640 *.user && install -d -o redis -g redis -m 0750 /etc/redis/dovelane && cd tls && install -o redis -g redis -m 0640 ca.crt /etc/redis/dovelane/ && "
                 f"install -o redis -g redis -m 0640 {host.name}.crt /etc/redis/dovelane/node.crt && install -o redis -g redis -m 0640 {host.name}.key /etc/redis/dovelane/node.key")
        new_users(host)


def new_users(host):
    """`dovelane acl`, with the operator behind it, into the server's file."""
    host.run("(dovelane acl 2>/dev/null; echo 'user operator on >secret ~* &* +@all') > /etc/redis/dovelane/users.acl; chown redis: /etc/redis/dovelane/users.acl")


def load_users(host):
    assert host.run(f"redis-cli -h {host.address} -p 7001 --tls --cacert /etc/dovelane/tls/ca.crt --user operator --pass secret ACL LOAD 2>&1").endswith("OK\n")


def gateway_postfix(host):
    host.run("postconf -e in_flow_delay=0 enable_long_queue_ids=yes mynetworks=10.0.0.0/24,127.0.0.0/8 mydestination= relay_domains=next.example "
             f"inet_interfaces=all 'transport_maps=inline:{{next.example={HOP}}}' smtpd_relay_restrictions=permit_mynetworks,reject "
             f"myhostname={host.name}.example.org smtp_destination_rate_delay=0 minimal_backoff_time=5s queue_run_delay=5s maximal_backoff_time=10s && "
             "postconf -P smtp/inet/smtpd_milters='unix:dovelane/milter.sock' && systemctl restart postfix")


def gateway_start(host):
    host.run("chown redis:redis /etc/redis/redis-dovelane.conf; systemctl daemon-reload; "
             "systemctl enable --now redis-server@dovelane && systemctl enable --now dovelane-relay dovelane-milter")
    gateway_postfix(host)


def whole(hosts):
    for host in hosts:
        host.wait("dovelane nodes", 180, "dovelane nodes ends with 0")


def diverted(hosts):
    """How many mails the milters gave to lanes, as they say; what they logged until now is in the file."""
    count = 0
    for host in hosts:
        mark = f"until-now-{random.randrange(16**8):x}"
        host.run(f"logger -p mail.info {mark}")
        host.wait(f"grep -q {mark} /var/log/mail.log")
        count += int(host.run("grep -c 'dovelane-milter.*action=lane' /var/log/mail.log", check=False))
    return count


def diverting(mail, hosts):
    """Waits until the milters divert: each finds out by itself that the nodes are whole, after `dovelane nodes` did. Nothing is left of the mails for it."""
    for host in hosts:
        before, tries = diverted([host]), 0
        while diverted([host]) == before:
            tries += 1
            assert tries <= 100 and mail.send([host], mails=1).wait(120) == 0, host.run("grep dovelane-milter /var/log/mail.log", check=False)
        host.wait("dovelane mailq | grep -q -i empty && mailq | grep -q 'Mail queue is empty'", 120)


class Mail:
    """A next hop on the hub and a client that sends to all hosts; what was answered 250, and what arrived."""

    def __init__(self, world, folder):
        self.world, self.sent, self.arrived, self.hold_file = world, folder / "sent", folder / "arrived", folder / "hold"
        for file in (self.sent, self.arrived):
            file.touch()
        self.sink = world.popen(sys.executable, MAIL, "sink", "--port", 2525, "--journal", self.arrived, "--hold", self.hold_file,
                                stdout=subprocess.PIPE, text=True)
        assert self.sink.stdout.readline() == "ready\n"

    def hold(self, on):
        self.hold_file.touch() if on else self.hold_file.unlink(missing_ok=True)

    def send(self, hosts, mails=-1, rate=20):
        return self.world.popen(sys.executable, MAIL, "send", "--to", ",".join(h.address for h in hosts), "--rcpt", "u@next.example", "--journal", self.sent,
                                "--mails", mails, "--rate", rate, stdout=subprocess.PIPE, text=True)

    @contextlib.contextmanager
    def load(self, hosts, rate=20):
        """Mail to all hosts as long as the block lasts. Nothing may be refused."""
        sender = self.send(hosts, rate=rate)
        try:
            yield
        finally:
            sender.send_signal(signal.SIGTERM)
            said = sender.communicate(timeout=120)[0]
        assert re.search(r"answered \d+ refused 0\n$", said), said

    def lost(self):
        return set(self.sent.read_text().split()) - set(self.arrived.read_text().split())

    def doubled(self):
        ids = self.arrived.read_text().split()
        return len(ids) - len(set(ids))

    def close(self):
        self.sink.kill()
        self.sink.wait()


def files_of(host):
    """Every path with its kind, rights and owner, and the bytes' digest below /etc and /usr; accounts by name."""
    prune = " -o ".join(f"-path {p}" for p in [*MOVING, *ACCOUNTS])
    listed = host.run(f"find / -xdev \\( {prune} \\) -prune -o -printf '%p|%y|%m|%u|%g|%l\\n'")
    digests = host.run("find /etc /usr /lib/systemd /opt /srv -xdev -type f -print0 | xargs -0 md5sum")
    found = {}
    for line in listed.splitlines():
        path, _, rest = line.partition("|")
        found[path] = rest
    for line in digests.splitlines():
        digest, _, path = line.partition("  ")
        if path in found:
            found[path] += "|" + digest
    found["accounts"] = host.run("cut -d : -f 1 /etc/passwd /etc/group | sort")
    return found


def difference(before, after):
    return sorted([f"+ {path}" for path in after.keys() - before.keys()] + [f"- {path}" for path in before.keys() - after.keys()] +
                  [f"~ {path}: {before[path]} became {after[path]}" for path in before.keys() & after.keys() if before[path] != after[path]])


def wait_in_lanes(mail, hosts, mails):
    """Mails that wait for their next hop: those in lanes, as many as the milters say that they gave there; a milter that is in doubt leaves one to Postfix."""
    diverting(mail, hosts)
    before = diverted(hosts)
    mail.hold(True)
    assert mail.send(hosts, mails=mails, rate=50).wait(120) == 0
    waiting = int(hosts[0].run("dovelane mailq -j | wc -l"))
    assert 0 < waiting == diverted(hosts) - before <= mails
    print(f"{waiting} of {mails} mails wait in lanes")
    return waiting
