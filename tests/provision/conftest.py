"""A host of its own below a temporary directory: real files, real openssl, postconf and dovelane; only systemd and the servers are played."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "provision"))

import distribute  # noqa: E402
import enroll  # noqa: E402
import main  # noqa: E402
import network  # noqa: E402
import redis  # noqa: E402
import relay  # noqa: E402
from host import Host, Trouble  # noqa: E402

MASTER = """# as Debian has it
smtp      inet  n       -       y       -       -       smtpd
submission inet n       -       y       -       -       smtpd
cleanup   unix  n       -       y       -       0       cleanup
"""
MAIN = "compatibility_level = 3.6\nmyhostname = mx1.example.org\n"


CHECK_LISTEN, CHECK_PORT, WAIT, FOLLOW = network.check_listen, network.check_port, redis.wait, relay.follow  # which tests of their own ask for


class PlayedHost(Host):
    def __init__(self, root, like=None):
        """like: another one, of which it is a copy."""
        super().__init__(root)
        self.units = dict(like.units) if like else {"postfix": (True, True), "dovecot.service": (True, True)}
        self.did, self.logged = [], ""
        if like:
            shutil.copytree(like.root, self.root, symlinks=True)
            return
        for folder in ("etc/postfix", "etc/redis", "etc/default", "etc/dovecot/conf.d", "usr/lib/dovecot", "usr/lib/redis/modules", "var/lib/dovelane", "var/lib/redis"):
            (self.root / folder).mkdir(parents=True)
        for name in ("usr/lib/dovecot/lmtp", "usr/lib/dovecot/dovelane-replicator", "usr/lib/redis/modules/lane.so"):
            (self.root / name).touch()
        (self.root / "etc/postfix/main.cf").write_text(MAIN)
        (self.root / "etc/postfix/master.cf").write_text(MASTER)

    def program(self, name):
        return f"/usr/sbin/{name}"

    @staticmethod
    def uid(name):
        return os.getuid()

    @staticmethod
    def gid(name):
        return os.getgid()

    def run(self, *words, check=True, given=None, seconds=150):
        words = [str(word) for word in words]
        if words[0] == "systemctl":
            return self.played(words[1], [word for word in words[2:] if not word.startswith("-")])
        if words[:2] == ["dovelane", "nodes"]:
            return self.forgets(words[2:])
        if words[0] == "dovelane":
            return super().run(BUILD / "ctl/dovelane", *words[1:], check=check)
        if words[0] == "postconf" and "-c" not in words:
            return super().run("postconf", "-c", self.path("/etc/postfix"), *words[1:], check=check)
        if words[0] in ("doveconf", "postfix"):
            return said("namespace inbox {\n  inbox = yes\n}\n")
        if words[0] == "journalctl":
            return said(self.logged)
        if words[0] == "dovecot":
            return said("2.3.19.1 (9b53102964)\n")
        return super().run(*words, check=check, given=given, seconds=seconds)

    def forgets(self, words):
        self.did.append(["nodes", *words])
        return said("")

    def played(self, verb, units):
        for unit in units:
            enabled, active = self.units.get(unit, (False, False))
            if verb in ("is-enabled", "is-active"):
                yes = enabled if verb == "is-enabled" else active
                return said((verb[3:] if yes else "no") + "\n")
            self.did.append([verb, unit])
            self.units[unit] = {"enable": (True, True), "start": (enabled, True), "restart": (enabled, True), "stop": (enabled, False), "disable": (False, active)}.get(verb, (enabled, active))
        return said("")


def said(text):
    return subprocess.CompletedProcess([], 0, text, "")


def away(*_words, **_more):
    raise Trouble("the node is away")


def alone(patch):
    """No node is reached."""
    patch.setattr(distribute, "connect", away)
    patch.setattr(redis, "wait", lambda *_: None)
    patch.setattr(redis, "load_users", lambda *_: None)
    patch.setattr(redis, "load_certificate", lambda *_: None)
    patch.setattr(redis, "waiting", lambda *_: [])
    patch.setattr(enroll, "wait_open", lambda *_: None)
    patch.setattr(network, "check_listen", lambda *_: None)
    patch.setattr(network, "check_port", lambda *_: None)
    patch.setattr(relay, "follow", lambda *_: None)


@pytest.fixture(autouse=True)
def servers(monkeypatch):
    """Unless a test says how."""
    alone(monkeypatch)


@pytest.fixture
def host(tmp_path):
    return PlayedHost(tmp_path / "root")


@pytest.fixture(scope="session")
def first(tmp_path_factory):
    """A gateway that is the first of its group, made once: many tests begin there."""
    made = PlayedHost(tmp_path_factory.mktemp("first") / "root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis, "wait", lambda *_: None)
        patch.setattr(distribute, "sync", lambda *_: None)
        patch.setattr(distribute, "connect", away)
        patch.setattr(enroll, "wait_open", lambda *_: None)
        patch.setattr(network, "check_listen", lambda *_: None)
        patch.setattr(network, "check_port", lambda *_: None)
        patch.setattr(relay, "follow", lambda *_: None)
        with pytest.raises(SystemExit) as end:
            main.start(["init", "--address", "192.0.2.1", "--name", "mx1", "--gateway", "--yes"], made)
    assert not end.value.code
    return made


@pytest.fixture
def ready(host, first, tmp_path):
    """The host, after init: its files are replaced by those of the first."""
    shutil.rmtree(host.root)
    PlayedHost.__init__(host, host.root, first)
    return host


@pytest.fixture
def dovelane(host, capsys):
    """Runs a command line on the host; (status, output)."""
    def run(*words, on=None):
        with pytest.raises(SystemExit) as end:
            main.start(list(words), on or host)
        out = capsys.readouterr()
        return end.value.code or 0, out.out + out.err
    return run


def tree(root, without=()):
    """{path: what it is} of all below root."""
    found = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        name = str(path.relative_to(root))
        if not any(re.match(pattern, name) for pattern in without):
            st = path.lstat()
            found[name] = (oct(st.st_mode), path.read_bytes() if path.is_file() else None)
    return found
