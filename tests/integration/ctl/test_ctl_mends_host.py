"""Every mend that `dovelane check` names, tried: of the host it runs on. Units: tests/machines/test_check_units.py, under a real systemd.

Disks, /etc and /proc are this host's own, but for what a test mounts over them in a mount namespace of its own.
"""
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.lane_server import ROOT
from support.mends import Check, command, mends
from support.stack import programs

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="root's eyes, users and mounts"),
              pytest.mark.long]


class Host:
    """A dovelane.conf that `nobody` may read, and a file in the place of /etc/default/dovelane."""

    def __init__(self, directory):
        self.directory, self.conf, self.defaults = directory, directory / "dovelane.conf", directory / "default"
        self.defaults.write_text("DOVELANE_NODE=mx1\n")
        self.before = ()
        self.write()
        self.check = Check(self.run)

    def write(self, *lines, **nodes):
        sections = [f'node {name} {{\n  redis = "{address}"\n  tls = no\n}}' for name, address in {"mx1": "127.0.0.1:1", **nodes}.items()]
        self.conf.write_text("\n".join(("copies = 1", *sections, f'state_directory = "{self.directory}"', *lines, "")))
        self.conf.chmod(0o644)

    def run(self, *words):
        return command(self.conf, "--defaults", str(self.defaults), *words, "host", before=self.before)


AS = ("--as", "nobody")


@pytest.fixture
def host():
    """In a directory that `nobody` may enter: pytest's own are root's, and each run of pytest makes them so again."""
    with tempfile.TemporaryDirectory(prefix="dovelane-host-") as directory:
        os.chmod(directory, 0o755)
        yield Host(Path(directory))


def shell(words):
    subprocess.run(words, shell=True, check=True, timeout=60)


def over(*pairs):
    """Runs a command where these files stand over those: (ours, theirs)."""
    script = " && ".join([*(f"mount --bind {shlex.quote(str(ours))} {shlex.quote(str(theirs))}" for ours, theirs in pairs), 'exec "$0" "$@"'])
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)


# ---- files and users ----

@mends("file-unreadable")
def test_files_that_a_service_cannot_read(host):
    host.conf.chmod(0o600)
    shell(host.check.finds("file-unreadable", *AS).mend)
    host.check.lacks("file-unreadable", *AS)
    inner = host.directory / "tls"
    inner.mkdir(mode=0o700)
    host.write(f'node_ca_file = "{inner}/ca.crt"')
    (inner / "ca.crt").write_text("")
    shell(host.check.finds("file-unreadable", *AS).mend)
    host.check.lacks("file-unreadable", *AS)
    (inner / "ca.crt").unlink()
    assert host.check.finds("file-unreadable", *AS).mend == f"put it there, or node_ca_file in {host.conf}"
    (inner / "ca.crt").write_text("")
    host.check.lacks("file-unreadable", *AS)


@mends("password-useless", "password-owner", "passwords-together")
def test_password_files(host):
    file = host.directory / "dovelane-relay.user"
    host.write(f'node_user_file = "{host.directory}/%p.user"')
    (host.directory / "dovelane-milter.user").write_text("dovelane-milter secret\n")
    shell(f"chmod 0640 {host.directory}/dovelane-milter.user; chgrp nogroup {host.directory}/dovelane-milter.user")
    file.write_text("dovelane-relay\n")
    assert host.check.finds("password-useless", *AS).mend == "chmod 0640; one line, a name and a password"
    file.write_text("dovelane-relay secret\n")
    shell(f"chmod 0640 {file}; chgrp nogroup {file}")
    host.check.lacks("password-useless", *AS)
    file.chmod(0o644)
    assert "can be read or written by everybody" in host.check.finds("password-useless", *AS).text
    file.chmod(0o640)
    assert re.search(f"ok +dovelane-relay: nobody may read {file}", host.check.lacks("password-useless", "-v", *AS))
    os.chown(file, 12345, -1)
    assert host.check.finds("password-owner", *AS).mend == "chown root of that file"
    shell(f"chown root {file}")
    host.check.lacks("password-owner", *AS)
    line, where = re.match(r'(node_user_file = "/etc/dovelane/(%p/user)"), each file into the directory of its program', host.check.finds("passwords-together", *AS).mend).groups()
    for program in ("dovelane-milter", "dovelane-relay"):
        (host.directory / program).mkdir()
        (host.directory / f"{program}.user").rename(host.directory / program / "user")
    host.write(line.replace("/etc/dovelane/%p/user", f"{host.directory}/{where}"))
    host.check.lacks("passwords-together", *AS)


@mends("user-missing")
def test_a_service_without_its_user(host):
    """As on a real host: /etc/dovelane/dovelane.conf, in an /etc of this test's own."""
    etc = host.directory / "etc"
    shell(f"cp -a /etc {etc}; sed -i '/^dovelane/d' {etc}/passwd {etc}/shadow {etc}/group {etc}/gshadow; mkdir -p {etc}/dovelane {etc}/default {etc}/sysusers.d; "
          f"cp {host.conf} {etc}/dovelane/dovelane.conf; chmod 755 {etc} {etc}/dovelane; printf 'DOVELANE_NODE=mx1\\n' > {etc}/default/dovelane; "
          f"grep -q '^postfix:' {etc}/group || echo 'postfix:x:12399:' >> {etc}/group; rm -f /etc/sysusers.d/none; cp {ROOT}/packaging/systemd/dovelane.sysusers {etc}/sysusers.d/dovelane.conf")
    here = over((etc, "/etc"))
    check = Check(lambda *words: command("/etc/dovelane/dovelane.conf", *words, "host", before=here))
    mend = check.finds("user-missing", about="dovelane-relay").mend
    assert mend == "systemd-sysusers"
    subprocess.run([*here, mend, "/etc/sysusers.d/dovelane.conf"], check=True, timeout=60)  # the others' users are no matter of this test
    check.lacks("user-missing")


# ---- which node it is ----

@mends("node-unnamed", "node-unknown", "node-address", "node-others")
def test_the_name_of_this_host(host):
    def mend(found):
        """As it is written, with this host's name."""
        line, file = re.match(r"(DOVELANE_NODE=NAME) in (\S+), with the name of this host's own section", found.mend).groups()
        Path(file).write_text(line.replace("=NAME", "=mx1") + "\n")
    host.write(mx2="192.0.2.77:1")
    for name, text in (("node-unnamed", ""), ("node-unknown", "DOVELANE_NODE=mx9\n"), ("node-others", "DOVELANE_NODE='mx2'\n")):
        host.defaults.write_text(text)
        mend(host.check.finds(name, *AS))
        assert "it is node mx1" in host.check.lacks(name, "-v", *AS)
    host.write(mx1="192.0.2.76:1", mx2="192.0.2.77:1")
    found = host.check.finds("node-address", *AS)
    assert found.level == "WARNING" and "right behind address translation" in found.text  # of another host nothing is said
    host.write()
    mend(found)
    host.check.lacks("node-address", *AS)


@pytest.fixture
def names(host):
    """/etc/hosts, which alone says what a name is: no name server is asked."""
    hosts, switch = host.directory / "hosts", host.directory / "nsswitch.conf"
    hosts.write_text("127.0.0.1 localhost\n")
    switch.write_text("passwd: files\ngroup: files\nhosts: files\n")
    host.before = over((hosts, "/etc/hosts"), (switch, "/etc/nsswitch.conf"))
    return hosts


@mends("node-unresolved")
def test_a_node_that_has_a_name_for_an_address(host, names):
    host.write(mx1="mx1.example:7001", mx2="mx2.example:7001")
    found = host.check.finds("node-unresolved", *AS)
    assert found.level == "WARNING" and "whether mx1.example:7001 is an address of this host is not known" in found.text and "/etc/hosts" in found.mend
    names.write_text("127.0.0.1 localhost\n127.0.1.1 mx1.example\n192.0.2.77 mx2.example\n")
    assert "ok       host: it is node mx1" in host.check.lacks("node-unresolved", "-v", *AS)


def test_a_name_is_judged_as_its_addresses_are(host, names):
    host.write(mx1="mx1.example:7001", mx2="mx2.example:7001")
    names.write_text("127.0.0.1 localhost mx2.example\n192.0.2.76 mx1.example\n")
    found = host.check.finds("node-others", *AS)
    assert "mx1.example:7001 is not an address of this host, and node mx2's is (mx2.example:7001)" in found.text
    names.write_text("127.0.0.1 localhost\n192.0.2.76 mx1.example\n192.0.2.77 mx2.example\n")  # behind address translation: nobody can tell
    found, = host.check.look(*AS)[0]
    assert (found.name, found.level) == ("node-address", "WARNING")
    names.write_text("127.0.0.1 localhost mx1.example\n192.0.2.76 mx1.example\n")  # one of its addresses is enough
    assert "ok       host: it is node mx1" in host.run("-v", *AS)


# ---- disks ----

class Disk:
    """A command in a namespace where a small file system, filled but for `left`, stands over a directory; then the same again after there is room."""

    def __init__(self, directory, options, fill):
        self.script = f"mount -t tmpfs -o {options} none {shlex.quote(str(directory))} && cd {shlex.quote(str(directory))} && {fill}"

    def around(self, room):
        return ("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{self.script}; {room}; cd /; exec "$0" "$@"')


FULL = "head -c 3900k /dev/zero > full"
OF_DISKS = [("disk-full", "size=4m", FULL, "rm full"), ("disk-little", "size=100m", "head -c 98m /dev/zero > full", "rm full"),
            ("disk-files", "size=4m,nr_inodes=12", "i=0; while true; do true > f$i || break; i=$((i+1)); done 2>/dev/null", "rm f*")]


@pytest.mark.parametrize("name, options, fill, room", OF_DISKS, ids=str)
@mends(*(row[0] for row in OF_DISKS), each=True)
def test_a_disk_that_is_nearly_full(host, name, options, fill, room):
    state = host.directory / "state"
    state.mkdir()
    host.write()
    host.conf.write_text(host.conf.read_text().replace(f'state_directory = "{host.directory}"', f'state_directory = "{state}"'))
    disk = Disk(state, options, fill)
    host.before = disk.around("true")
    assert host.check.finds(name, *AS).mend.startswith("make room there")
    host.before = disk.around(room)
    host.check.lacks(name, *AS)


@pytest.fixture
def redis(stack, tmp_path):
    system = stack(postfix="none", nodes=1, copies=1, relays=False)
    conf = tmp_path / "dovelane.conf"
    conf.write_text(programs.settings_text({"copies": 1, "log": "stderr", "state_directory": str(tmp_path)}, {"mx1": {"redis": system.nodes["mx1"]}}))
    return system, conf


def test_the_disk_of_redis(redis):
    """A clean stop could not write what it holds."""
    system, conf = redis
    from support.stack import resp
    with resp.Connection(system.nodes["mx1"]) as node:
        directory = node.call("CONFIG", "GET", "dir")[1].decode()
    check = Check(lambda *words: command(conf, *words, "host"))
    assert f"dir of the Redis of mx1, {directory} has room for" in check.lacks("disk-full", "-v")
    disk = Disk(directory, "size=64k", "true")
    check.run = lambda *words: command(conf, *words, "host", before=disk.around("true"))
    found = check.finds("disk-full")
    assert "a clean stop writes all that it holds there" in found.text and directory in found.text


def test_the_disk_of_a_redis_that_is_no_process_here_is_not_looked_at(redis, tmp_path):
    """Its address is a tunnel's: the directory of that name here is another one. In a PID namespace this host's processes are none of ours."""
    _, conf = redis
    out = command(conf, "-v", "host", before=("unshare", "--pid", "--fork", "--mount-proc"))
    assert "the Redis of mx1 is no process of this host: its disk is not looked at" in out and "dir of the Redis" not in out, out


def test_the_disk_of_postfixs_queue(host, tmp_path):
    queue = tmp_path / "queue"
    queue.mkdir()
    conf = tmp_path / "postfix"
    conf.mkdir()
    (conf / "main.cf").write_text(f"compatibility_level = 3.6\nqueue_directory = {queue}\nmessage_size_limit = 50000000\nmyhostname = mx.example\n")
    (conf / "master.cf").write_text("")
    host.write(f'postfix_config = "{conf}"')
    host.check.lacks("disk-full", *AS)
    host.before = Disk(queue, "size=60m", "true").around("true")
    assert "with less than 1.5 x message_size_limit Postfix refuses all mail" in host.check.finds("disk-full", *AS).text
    host.before = Disk(queue, "size=80m", "true").around("true")
    host.check.lacks("disk-full", *AS)


@mends("overcommit")
def test_a_host_that_forbids_a_save(redis, tmp_path):
    system, conf = redis
    mode = tmp_path / "mode"
    mode.write_text("0\n")
    here = over((mode, "/proc/sys/vm/overcommit_memory"))
    check = Check(lambda *words: command(conf, *words, "host", before=here))
    from support.stack import resp
    with resp.Connection(system.nodes["mx1"]) as node:
        node.call("CONFIG", "SET", "save", "60 1")
    mend = re.match(r"(sysctl -w \S+), and the same in /etc/sysctl.d", check.finds("overcommit").mend)[1]
    subprocess.run([*here, *mend.split()], check=True, timeout=60, stdout=subprocess.DEVNULL)
    check.lacks("overcommit")
