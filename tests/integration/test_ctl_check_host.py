"""dovelane check host: what would stop a service at its next start, though it runs now."""
import os
import re
import subprocess
from pathlib import Path

import pytest
from lane_server import BUILD

pytestmark = pytest.mark.core

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with another user's eyes")


class Host:
    """A dovelane.conf that `nobody` may read, below a directory that it may enter."""

    def __init__(self, directory):
        self.directory, self.conf, self.defaults = directory, directory / "dovelane.conf", directory / "default"
        part = directory
        while part != Path("/tmp") and part != Path("/"):
            part.chmod(part.stat().st_mode | 0o011)
            part = part.parent
        self.write()
        self.defaults.write_text("DOVELANE_NODE=mx1\n")

    def write(self, *lines, mx1="127.0.0.1:1"):
        self.conf.write_text("\n".join((f'copies = 1\nnode mx1 {{ redis = "{mx1}" }}\nstate_directory = "{self.directory}"', *lines, "")))
        self.conf.chmod(0o644)

    def check(self, path=None):
        environment = dict(os.environ, PATH=f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"])
        done = subprocess.run([BUILD / "ctl" / "dovelane", "-c", self.conf, "check", "-v", "--as", "nobody", "--defaults", self.defaults, "host"], capture_output=True, text=True,
                              timeout=60, check=False, env=environment)
        return done.returncode, done.stdout


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@needs_root
def test_files_that_a_service_cannot_read_are_critical(host):
    code, out = host.check()
    assert "CRITICAL" not in out and re.search("ok +dovelane-relay: nobody may read .*dovelane.conf", out), out
    host.conf.chmod(0o600)
    code, out = host.check()
    for program in ("milter", "relay"):
        assert re.search(rf"CRITICAL dovelane-{program}: its user nobody cannot read {host.conf} \({host.conf}: Permission denied\)", out), out
    mend = re.search(r"mend: (chgrp .*)", out)[1]
    subprocess.run(mend, shell=True, check=True, timeout=60)
    code, out = host.check()
    assert code != 2 and "CRITICAL" not in out, out


@needs_root
def test_a_directory_on_the_way_counts_too(host):
    inner = host.directory / "tls"
    inner.mkdir(mode=0o700)
    (inner / "ca.crt").write_text("")
    host.write(f'node_ca_file = "{inner}/ca.crt"')
    code, out = host.check()
    assert code == 2 and f"cannot read {inner}/ca.crt ({inner}: Permission denied)" in out, out
    subprocess.run(re.search(r"mend: (chmod .*)", out)[1], shell=True, check=True, timeout=60)
    assert "CRITICAL" not in host.check()[1]


@needs_root
def test_password_files(host):
    for program in ("dovelane-milter", "dovelane-relay"):
        (host.directory / program).mkdir()
        (host.directory / program / "user").write_text(f"{program} secret\n")
        (host.directory / program / "user").chmod(0o640)
        os.chown(host.directory / program / "user", 0, 65534)
    host.write(f'node_user_file = "{host.directory}/%p/user"')
    code, out = host.check()
    assert "CRITICAL" not in out and "side by side" not in out, out
    (host.directory / "dovelane-relay" / "user").chmod(0o644)
    code, out = host.check()
    assert code == 2 and re.search(r"CRITICAL dovelane-relay: its password is of no use: .*can be read or written by everybody", out), out
    (host.directory / "dovelane-relay" / "user").chmod(0o600)
    assert re.search("CRITICAL dovelane-relay: its user nobody cannot read", host.check()[1])


def test_the_old_layout_of_passwords(host):
    host.write(f'node_user_file = "{host.directory}/%p.user"')
    code, out = host.check()
    assert re.search(r"WARNING  config: node_user_file = .*side by side.*\n +mend: node_user_file = \"/etc/dovelane/%p/user\"", out), out


def test_the_name_of_this_host(host):
    assert "ok       host: it is node mx1" in host.check()[1]
    host.defaults.write_text("DOVELANE_NODE=mx9\n")
    code, out = host.check()
    assert code == 2 and "DOVELANE_NODE=mx9" in out and "has no node of that name" in out, out
    host.defaults.unlink()
    code, out = host.check()
    assert re.search("WARNING  host: .* names no node: no relay can be started here", out), out
    # Another host's name: its address is none of ours, and that of our own node is.
    host.defaults.write_text("DOVELANE_NODE='mx2'\n")
    host.write('node mx2 {\n  redis = "192.0.2.77:1"\n  tls = no\n}')
    code, out = host.check()
    assert code == 2 and "192.0.2.77:1 is no address of this host, but that of another node is" in out, out
