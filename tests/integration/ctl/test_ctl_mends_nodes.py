"""Every mend that `dovelane check` names, tried: of the nodes, what their relays say, their certificates and their users."""
import json
import re
import smtplib
import socket
import struct
import subprocess
import time
from pathlib import Path

from support import admin
import pytest
from support.lane_server import BUILD
from support.mends import Check, command, mends
from support.stack import SinkShape, Stack, programs, resp
from support.stack.secure import Secure, certificate
from support.waiting import eventually
from test_ctl_terminal import INFO, Node

pytestmark = pytest.mark.long


# ---- a gateway that works ----

@pytest.fixture(scope="module")
def running():
    with Stack(postfix="divert", nodes=2, copies=1, sinks=[SinkShape("a", [], ours=True)], redis_conf=["timeout 0"]) as entry:
        yield entry


@pytest.fixture
def check(running):
    checks = Check(lambda *words: admin.run(running, "check", *words).out)
    eventually("the relays have shown themselves", lambda: not checks.look("nodes")[0])
    return checks


@pytest.fixture
def mx2(running):
    with resp.Connection(running.nodes["mx2"]) as node:
        yield node


OF_REDIS = [("eviction", "maxmemory-policy", "allkeys-lru"), ("saves", "save", "60 1"), ("stop-writes", "stop-writes-on-bgsave-error", "yes"),
            ("client-timeout", "timeout", "60"), ("replicas-wanted", "min-replicas-to-write", "1"), ("settle", "lane.settle-ms", "100"),
            ("bulk-length", "proto-max-bulk-len", "1mb"), ("client-memory", "maxmemory-clients", "0")]


@pytest.mark.parametrize("name, setting, spoil", OF_REDIS, ids=str)
@mends(*(row[0] for row in OF_REDIS), each=True)
def test_a_setting_of_redis_as_the_mend_writes_it(check, mx2, name, setting, spoil):
    mx2.call("CONFIG", "SET", setting, spoil)
    mend = check.finds(name, "nodes", about="mx2").mend
    option, value = re.match(r"(\S+) (\S+?)(?: in its redis.conf.*)?$", mend).groups()
    assert option == setting
    mx2.call("CONFIG", "SET", option, "" if value == '""' else value)
    check.lacks(name, "nodes")


@mends("maxmemory-none", "memory-full", "memory-spills")
def test_memory(check, mx2):
    mx2.call("CONFIG", "SET", "maxmemory", "0")
    assert check.finds("maxmemory-none", "nodes", about="mx2").mend == "maxmemory, well below what the host has"
    used = int(re.search(rb"used_memory:(\d+)", mx2.call("INFO", "memory"))[1])
    for name, percent, mend in (("memory-full", 95, "raise maxmemory"), ("memory-spills", 80, "which next hop is away?")):
        mx2.call("CONFIG", "SET", "maxmemory", str(used * 100 // percent))
        assert mend in check.finds(name, "nodes", about="mx2").mend
        mx2.call("CONFIG", "SET", "maxmemory", "512mb")
        check.lacks(name, "nodes")
    check.lacks("maxmemory-none", "nodes")


@mends("other-configuration", "relay-missing")
def test_a_relay_with_another_configuration_and_none(running, check):
    before = dict(running["relay-mx2"].note["settings"])
    programs.write_settings(running["relay-mx2"], {"revoke_wait": "3s"})
    running.restart("relay-mx2")
    eventually("it is told", lambda: any(each.name == "other-configuration" for each in check.look("nodes")[0]))
    assert check.finds("other-configuration", "nodes", about="relay of mx2").mend.startswith("the same dovelane.conf on all hosts")
    running.end("relay-mx2")
    eventually("it is told", lambda: any(each.name == "relay-missing" for each in check.look("nodes")[0]))
    assert check.finds("relay-missing", "nodes", about="relay of mx2").mend == "start dovelane-relay there"
    running["relay-mx2"].note["settings"].clear()
    programs.write_settings(running["relay-mx2"], before)
    running.start("relay-mx2")
    eventually("it is good", lambda: not check.look("nodes")[0])
    check.lacks("other-configuration", "nodes")
    check.lacks("relay-missing", "nodes")


@mends("milter-missing")
def test_no_milter(running, check):
    running.end("milter")
    eventually("it is told", lambda: any(each.name == "milter-missing" for each in check.look("nodes")[0]))
    assert check.finds("milter-missing", "nodes").mend == "start dovelane-milter on the hosts that take mail"
    running.start("milter")
    eventually("it is connected", lambda: not check.look("nodes")[0])
    check.lacks("milter-missing", "nodes")


@mends("hop-away")
def test_a_next_hop_that_is_away(running, check):
    running.sink("a", do="down")
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@example.org", ["x@a.example"], "Subject: x\r\n\r\ntext\r\n")
    eventually("it is told", lambda: any(each.name == "hop-away" for each in check.look("nodes")[0]))
    assert check.finds("hop-away", "nodes").mend == "the next hop"
    running.sink("a", do="up")
    admin.done(running, "flush")
    eventually("it is there again", lambda: not check.look("nodes")[0])
    check.lacks("hop-away", "nodes")


@mends("draining")
def test_a_drain(running, check):
    """The command that drains, stopped in its middle as an admin stops it."""
    program = running.shape.build / "ctl" / "dovelane"
    with subprocess.Popen([program, "-c", running["relay-mx1"].note["conf"], "drain", "--to-postfix"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as drain:
        eventually("it drains", lambda: any(each.name == "draining" for each in check.look("nodes")[0]))
        assert check.finds("draining", "nodes").mend == "wait for the end of `dovelane drain`, or end it"
        drain.terminate()
        drain.communicate(timeout=60)
    admin.done(running, "divert", "on")
    eventually("it is over", lambda: not check.look("nodes")[0])
    check.lacks("draining", "nodes")


@mends("node-silent")
def test_a_node_that_does_not_answer(running, check):
    running.kill("redis-mx2")
    assert check.finds("node-silent", "nodes", about="mx2").mend.startswith("start its Redis with lane.so")
    running.start("redis-mx2")
    eventually("it is there", lambda: not check.look("nodes")[0])
    check.lacks("node-silent", "nodes")


# ---- what nodes say of themselves: beats, as relays leave them ----

# However busy the machine is, what a test said a moment ago is not old.
SLOW = {"takeover": "automatic", "suspect_after": "60s", "dead_after": "200s", "replace_after": "400s"}


@pytest.fixture(scope="module")
def silent():
    """Two real servers without relays: what a relay would say, the test says."""
    with Stack(postfix="none", nodes=2, copies=2, relays=(), settings=SLOW) as entry:
        yield entry


def beat(entry, node, text, incarnation="one", servers=("mx1", "mx2")):
    for name in servers:
        with resp.Connection(entry.nodes[name]) as server:
            server.call("LANE.BEAT", node, incarnation, int(time.time() * 1000), f"{text} run=r config=c done=0 hand=0")


@pytest.fixture
def beats(silent):
    return Check(lambda *words: admin.run(silent, "check", *words).out)


ALIVE = "state=alive since=9"
OF_BEATS = [
    ("returning", "state=returning since=5 hears=mx1:alive", "wait; `dovelane nodes` ends with 0 when it is over"),
    ("returning-long", "state=returning since=4000 hears=mx1:alive", "`dovelane nodes`, and the log of its relay, say what it waits for"),
    ("leaving", "state=leaving since=1 hears=mx1:alive", "systemctl start dovelane-relay there"),
]


@pytest.mark.parametrize("name, says, mend", OF_BEATS, ids=str)
@mends(*(row[0] for row in OF_BEATS), each=True)
def test_a_state_until_its_relay_is_alive(silent, beats, name, says, mend):
    beat(silent, "mx1", f"{ALIVE} hears=mx2:alive")
    beat(silent, "mx2", says)
    assert beats.finds(name, "nodes", about="mx2").mend == mend
    beat(silent, "mx1", f"{ALIVE} hears=mx2:alive")
    beat(silent, "mx2", f"{ALIVE} hears=mx1:alive")
    beats.lacks(name, "nodes")


@mends("beat-none", "unheard", "two-relays")
def test_beats_that_miss_are_not_heard_or_are_two(stack):
    entry = stack(postfix="none", nodes=2, copies=2, relays=(), settings=SLOW)
    check = Check(lambda *words: admin.run(entry, "check", *words).out)
    assert check.finds("beat-none", "nodes", about="mx2").mend.startswith("systemctl start dovelane-relay there")
    beat(entry, "mx1", f"{ALIVE} hears=")
    beat(entry, "mx2", f"{ALIVE} hears=mx1:alive")
    check.lacks("beat-none", "nodes")
    assert check.finds("unheard", "nodes", about="mx2").mend.startswith("the network, firewall and certificates")
    beat(entry, "mx1", f"{ALIVE} hears=mx2:alive")
    check.lacks("unheard", "nodes", about="mx2")
    for incarnation, server in (("one", "mx1"), ("two", "mx2")):
        beat(entry, "mx2", f"{ALIVE} hears=mx1:alive", incarnation, (server,))
    assert check.finds("two-relays", "nodes", about="mx2").mend.startswith("the right DOVELANE_NODE")
    beat(entry, "mx2", f"{ALIVE} hears=mx1:alive", "two")
    check.lacks("two-relays", "nodes")


@mends("beat-silent")
def test_a_relay_that_stopped_to_beat(stack):
    entry = stack(postfix="none", nodes=2, copies=2, relays=("mx1", "mx2"), settings={"takeover": "automatic"})
    check = Check(lambda *words: admin.run(entry, "check", *words).out)
    eventually("both beat", lambda: not any(each.name.startswith("beat") for each in check.look("nodes")[0]))
    entry.kill("relay-mx2")
    eventually("it is silent", lambda: any(each.name == "beat-silent" for each in check.look("nodes")[0]))
    assert check.finds("beat-silent", "nodes", about="mx2").mend.startswith("systemctl restart dovelane-relay there")
    assert re.search(r"(?m)^mx2 +silent ", admin.run(entry, "nodes").out)
    entry.start("relay-mx2")
    eventually("it beats", lambda: not any(each.name == "beat-silent" for each in check.look("nodes")[0]))
    check.lacks("beat-silent", "nodes")


@mends("not-whole")
def test_a_node_that_is_not_whole(stack):
    entry = stack(postfix="none", nodes=2, copies=2, relays=("mx1",), settings={"takeover": "automatic"})
    check = Check(lambda *words: admin.run(entry, "check", *words).out)
    assert check.finds("not-whole", "nodes", about="mx2").mend.startswith("`dovelane nodes`, and the log of its relay")
    entry.start("relay-mx2")
    eventually("both are whole", lambda: not any(each.name == "not-whole" for each in check.look("nodes")[0]))
    check.lacks("not-whole", "nodes")


@mends("together")
def test_mail_whose_copies_are_all_at_one_site(stack):
    entry = stack(postfix="divert", nodes=3, copies=2, settings={"takeover": "automatic", "retry_first": "1s", "retry_most": "1s"}, sinks=[SinkShape("a", [], ours=True)],
                  labels={"mx1": {"site": "fra"}, "mx2": {"site": "fra"}, "mx3": {"site": "ams"}})
    check = Check(lambda *words: admin.run(entry, "check", *words).out)
    check.lacks("together", "nodes")
    good = admin.run(entry, "check", "-v", "nodes").out
    assert "site fra: its loss would lose no mail; mail goes to Postfix's queue then" in good
    assert "site ams: its loss would lose no mail; mail is diverted on" in good
    rows = {row["node"]: row for row in json.loads(admin.run(entry, "nodes", "-j").out)["nodes"]}
    assert rows["mx3"]["site"] == "ams" and 0 < rows["mx3"]["rtt_seconds"] < 60
    entry.rules("a", {"at": "mail", "reply": "450 4.3.2 not now"})

    def placed():
        """mx1 and mx2 count as whole together soon."""
        with smtplib.SMTP(entry.smtp) as smtp:
            smtp.sendmail("x@example.net", ["y@a.example"], b"Subject: x\r\n\r\nx\r\n")
        return any(each.name == "together" for each in check.look("nodes")[0])
    eventually("a mail has its copies at fra", placed)
    found = check.finds("together", "nodes", about="site fra")
    assert re.fullmatch(r"its loss would lose \d+ mails?: all copies that answer are there; mail goes to Postfix's queue then", found.text)
    assert found.mend == "spread_over in dovelane.conf, or wait until they are delivered"
    entry.rules("a")
    eventually("it is delivered", lambda: not any(each.name == "together" for each in check.look("nodes")[0]))
    check.lacks("together", "nodes")


SHORT = {"path_timeout": "100ms", "suspect_after": "1s", "store_deadline": "500ms"}


@mends("time-short")
def test_times_that_are_short_for_a_node_that_is_far_away(stack, tmp_path):
    entry = stack(postfix="none", nodes=2, copies=2, paths=True, settings={"takeover": "automatic", "beat": "200ms", **SHORT})
    text, conf = Path(entry["relay-mx1"].note["conf"]).read_text(), tmp_path / "dovelane.conf"
    conf.write_text(text)
    check = Check(lambda *words: command(conf, *words))
    check.lacks("time-short", "nodes")
    entry.link("delay", "mx2-active", "mx2-standby", ms=200)
    eventually("mx2 answers", lambda: "node mx2: answers" in check.run("-v", "nodes"))
    check.finds("time-short", "nodes", about="mx2")
    found = [each for each in check.look("nodes")[0] if each.name == "time-short"]
    assert {each.about for each in found} == {"node mx2"}
    assert {re.match(r"is \d+ ms away \(round trip\), and (\w+) = \d+ms is short for that: ", each.text)[1] for each in found} == set(SHORT)
    for each in found:
        name, value = re.match(r"take (\w+) out of dovelane.conf on all hosts, so that it follows the distance, or write \1 = (\d+)ms there; then restart", each.mend).groups()
        assert int(value) > 400
        # Both mends: it is taken out, or a longer time is written.
        text, n = re.subn(rf"(?m)^{name} = .*$", "" if name != "suspect_after" else f"{name} = {2 * int(value)}ms", text)
        assert n == 1
    conf.write_text(text)
    check.lacks("time-short", "nodes")
    rows = {row["node"]: row for row in json.loads(nodes(conf, "-j"))["nodes"]}
    assert rows["mx1"]["path_timeout_seconds"] == 0.4 and rows["mx1"]["store_deadline_seconds"] == 1.5
    assert 0.8 <= rows["mx2"]["path_timeout_seconds"] <= 2.5 and 1.6 <= rows["mx2"]["store_deadline_seconds"] <= 2.5
    assert rows["mx1"]["suspect_after_seconds"] == rows["mx2"]["suspect_after_seconds"] > 1
    assert re.search(r"(?m)^mx1 .* 0\.4/\d\.\d/1\.5s ", nodes(conf, "-v"))


def nodes(conf, *words):
    done = subprocess.run([BUILD / "ctl" / "dovelane", "-c", conf, "nodes", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1) and not done.stderr, done
    return done.stdout


@mends("versions")
def test_lane_so_of_two_versions(tmp_path):
    """There is one lane.so here: the nodes are this test's own servers."""
    def info(name, version):
        return [name.encode() if each == b"mx1" else each for each in INFO[:4]] + ["version", version, *INFO[6:]]
    with Node("nothing", info("mx1", 1)) as one, Node("nothing", info("mx2", 2)) as two:
        conf = tmp_path / "dovelane.conf"
        conf.write_text("copies = 2\n" + "".join(f'node mx{n} {{ redis = "127.0.0.1:{node.server_address[1]}" }}\n' for n, node in ((1, one), (2, two))))
        check = Check(lambda *words: command(conf, *words))
        assert check.finds("versions", "nodes", about="mx2").mend == "the same version everywhere"
        two.info = info("mx2", 1)
        check.lacks("versions", "nodes")
        one.shutdown()
        two.shutdown()


# ---- clocks ----

def jump(file, seconds):
    with open(file, "r+b" if file.exists() else "wb") as out:
        out.write(struct.pack("q", seconds))


@pytest.mark.parametrize("seconds, word", [(90, "90.0 s before"), (-90, "90.0 s behind")])
@mends("clock-apart")
def test_a_redis_whose_clock_is_another(stack, tmp_path, seconds, word):
    """One server's time of day is moved (clock_jump.c), as where no chrony runs."""
    file = tmp_path / "jump"
    jump(file, 0)
    system = stack(postfix="none", nodes=0)
    service = system.add(programs.redis(tmp_path / "mx1", "mx1", system.shape, system.ports, system.log("redis-mx1")))
    service.env |= {"LD_PRELOAD": str(BUILD / "tests/support/clock-jump.so"), "CLOCK_JUMP": str(file)}
    service.start(system.mark)
    conf = tmp_path / "dovelane.conf"
    conf.write_text(programs.settings_text({"copies": 1, "log": "stderr"}, {"mx1": {"redis": service.note["address"]}}))
    check = Check(lambda *words: command(conf, *words))
    eventually("it answers", lambda: not any(each.name == "node-silent" for each in check.look("nodes")[0]))
    check.lacks("clock-apart", "nodes")
    jump(file, seconds)
    found = check.finds("clock-apart", "nodes")
    assert re.search(rf"its clock is {word.replace('90.0', r'(89.9|90.0|90.1)')} this host's", found.text) and found.mend == "chrony or systemd-timesyncd on every host"
    jump(file, 0)
    check.lacks("clock-apart", "nodes")


# ---- links: a node that is reached over a network, and its users ----

@pytest.fixture
def far(stack, tmp_path):
    """A node on an address that is no loopback's, with TLS and users or without."""
    class Far:
        def __init__(self):
            self.system = stack(postfix="none", nodes=0)
            self.files = Secure(tmp_path / "secure", BUILD)
            self.port = self.system.ports.take()
            self.conf = tmp_path / "dovelane.conf"
            self.address = next((line.split()[3].partition("/")[0] for line in subprocess.run(["ip", "-o", "-4", "address", "show", "scope", "global"], capture_output=True,
                                                                                              text=True, timeout=60, check=False).stdout.splitlines()), None)
            if not self.address:
                pytest.skip("this machine has no address but loopback's")
            lines = [f"bind 127.0.0.1 {self.address}", "protected-mode no", *self.files.redis_conf("mx1", self.port)]
            self.service = self.system.add(programs.redis(tmp_path / "mx1", "mx1", self.system.shape, self.system.ports, self.system.log("redis-mx1"), more=lines))
            self.service.start(self.system.mark)
            self.check = Check(lambda *words: command(self.conf, *words))

        def write(self, port, **node):
            settings = {"copies": 1, "log": "stderr"}
            if node:
                settings |= self.files.settings
            self.conf.write_text(programs.settings_text(settings, {"mx1": {"redis": f"{self.address}:{port}", **node}}))
    return Far()


def make_secure(far):
    """TLS, and a user for each program, as the mends say."""
    certificate(far.files.directory, "far", subject=f"IP:{far.address}")
    with resp.Connection(far.service.note["address"]) as node:
        node.call("CONFIG", "SET", "tls-cert-file", str(far.files.directory / "far.crt"), "tls-key-file", str(far.files.directory / "far.key"))
        (far.files.directory / "mx1.acl").write_text(far.files.acl())
        node.call("ACL", "LOAD")
    far.write(far.port, tls="yes")


@mends("unencrypted", "no-password")
def test_a_link_without_tls_and_users(far):
    plain = far.service.note["address"].rpartition(":")[2]
    far.write(plain)
    eventually("it answers", lambda: not any(each.name == "node-silent" for each in far.check.look("nodes")[0]))
    assert far.check.finds("unencrypted", "nodes").mend == "tls = yes, and tls-port in its redis.conf"
    assert far.check.finds("no-password", "nodes").mend == "node_user_file, and aclfile with what `dovelane acl` prints"
    make_secure(far)
    far.check.lacks("unencrypted", "nodes")
    far.check.lacks("no-password", "nodes")


@mends("password-refused")
def test_a_password_that_a_node_refuses(far):
    make_secure(far)
    eventually("it answers", lambda: not any(each.name == "node-silent" for each in far.check.look("nodes")[0]))
    far.check.lacks("password-refused", "nodes")
    file = far.files.directory / "dovelane-relay.user"
    kept = file.read_text()
    file.write_text("dovelane-relay of-another-group\n")
    finding = far.check.finds("password-refused", "nodes", about="node mx1")
    assert finding.mend == f"copy {file} from a host where it is accepted (all hosts have the same), with its owner and mode, and restart dovelane-relay"
    assert f"refuses the user and the password of {file}: " in finding.text and "WRONGPASS" in finding.text and "of-another-group" not in finding.text
    file.write_text(kept)
    far.check.lacks("password-refused", "nodes")


class Link:
    """A node by TLS on loopback, whose default user may all: the test's own way in."""

    def __init__(self, stack, tmp_path):
        self.system = stack(postfix="none", nodes=0)
        self.files = Secure(tmp_path / "secure", BUILD)
        self.port = self.system.ports.take()
        self.service = self.system.add(programs.redis(tmp_path / "mx1", "mx1", self.system.shape, self.system.ports, self.system.log("redis-mx1"),
                                                      more=self.files.redis_conf("mx1", self.port)))
        self.service.start(self.system.mark)
        self.conf = tmp_path / "dovelane.conf"
        self.check = Check(lambda *words: command(self.conf, *words))

    def write(self, **settings):
        self.conf.write_text(programs.settings_text({"copies": 1, "log": "stderr", **self.files.settings, **settings}, {"mx1": {"redis": f"127.0.0.1:{self.port}", "tls": "yes"}}))
        eventually("it answers", lambda: not any(each.name == "node-silent" for each in self.check.look("nodes")[0]))

    def call(self, *words):
        with resp.Connection(self.service.note["address"]) as node:
            return node.call(*words)

    def use(self, pair):
        self.call("CONFIG", "SET", "tls-cert-file", str(pair[0]), "tls-key-file", str(pair[1]))


@pytest.fixture
def link(stack, tmp_path):
    return Link(stack, tmp_path)


@mends("certificate-ends", "certificate-ended")
def test_certificates_that_end(link):
    link.use(certificate(link.files.directory, "mx1", days=10))
    link.write()
    assert "CONFIG SET tls-cert-file" in link.check.finds("certificate-ends", "nodes", about="mx1").mend
    link.use(certificate(link.files.directory, "mx1"))
    link.check.lacks("certificate-ends", "nodes")
    crt, key = certificate(link.files.directory, "client", days=20)
    link.write(node_cert_file=str(crt), node_key_file=str(key))
    assert "restart the programs one by one" in link.check.finds("certificate-ends", "nodes").mend
    # One that has ended: the server does not ask for it here, and only our own is looked at without being refused.
    subprocess.run(["openssl", "x509", "-req", "-in", "client.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-not_before", "20200101000000Z", "-not_after", "20200201000000Z", "-out", "client.crt"]
                   if b"not_before" in subprocess.run(["openssl", "x509", "-help"], capture_output=True, timeout=60, check=True).stderr else
                   ["openssl", "x509", "-req", "-in", "client.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", "-1", "-out", "client.crt"],
                   cwd=link.files.directory, check=True, timeout=60, capture_output=True)
    link.check.finds("certificate-ended", "nodes")
    link.check.lacks("certificate-ends", "nodes")
    certificate(link.files.directory, "client")
    link.check.lacks("certificate-ended", "nodes")
    link.check.lacks("certificate-ends", "nodes")


@mends("acl-missing", "acl-wider", "acl-narrower", "clock-untold")
def test_users_that_are_not_todays(link):
    link.write()
    link.call("ACL", "SETUSER", "dovelane-milter", "+flushall")
    link.call("ACL", "SETUSER", "dovelane-relay", "-lane.take")
    link.call("ACL", "DELUSER", "dovelane-replicator")
    link.call("ACL", "SETUSER", "dovelane", "-time")
    for name in ("acl-wider", "acl-narrower", "acl-missing", "clock-untold"):
        assert link.check.finds(name, "nodes").mend.removeprefix("when the programs of all hosts are of this version: ") == "`dovelane acl` again, into the aclfile of that Redis, and ACL LOAD"
    # In a group that `dovelane init` made, what is written by hand would be made anew.
    group = link.conf.parent / "group"
    group.touch()
    for name in ("acl-wider", "acl-narrower", "acl-missing", "clock-untold"):
        assert link.check.finds(name, "nodes").mend.endswith("`dovelane init`, on the authority's host first, then on all others")
    group.unlink()
    acl = subprocess.run([BUILD / "ctl" / "dovelane", "-c", link.conf, "acl"], capture_output=True, text=True, timeout=60, check=True).stdout
    (link.files.directory / "mx1.acl").write_text("user default on nopass ~* &* +@all\n" + "".join(acl.splitlines(True)[1:]))
    link.call("ACL", "LOAD")
    for name in ("acl-wider", "acl-narrower", "acl-missing", "clock-untold"):
        link.check.lacks(name, "nodes")


@mends("acl-wider")
def test_users_of_an_older_version(link):
    """A right that is wider only because of where it is: +eval on keys of its own stays, +eval on others is named."""
    link.write()
    link.call("ACL", "SETUSER", "dovelane-milter", "clearselectors", "(~dovelane.divert ~dovelane.holds +get +set +eval)", "(%R~dovelane.nodes %R~dovelane.shape +get)",
              "(%R~dovelane:lmtp:* %R~dovelane:smtp:* %R~dovelane:relay:* +lane.info)", "+lane.beat", "-lane.beats")
    link.call("ACL", "SETUSER", "dovelane-relay", "+eval")
    out = link.check.look("nodes")[1]
    assert link.check.finds("acl-wider", "nodes").mend == "when the programs of all hosts are of this version: `dovelane acl` again, into the aclfile of that Redis, and ACL LOAD"
    wider = re.search(r"dovelane-milter may do more than dovelane-milter needs: (.*) \[", out)
    assert wider and set(wider[1].lower().split()) == {"+lane.beat", "~dovelane.divert", "~dovelane.holds", "+set", "+eval"}, out
    assert re.search(r"dovelane-relay may do more than dovelane-relay needs: \+eval ~dovelane:lmtp:\*", out), out
    link.check.lacks("acl-narrower", "nodes")
    acl = subprocess.run([BUILD / "ctl" / "dovelane", "-c", link.conf, "acl"], capture_output=True, text=True, timeout=60, check=True).stdout
    (link.files.directory / "mx1.acl").write_text("user default on nopass ~* &* +@all\n" + "".join(acl.splitlines(True)[1:]))
    link.call("ACL", "LOAD")
    link.check.lacks("acl-wider", "nodes")


@mends("acl-missing", "acl-wider")
def test_users_of_replicas(link):
    """At the node of one of them; NAME@NODE each."""
    sites = ["mx1", "site-b"]
    link.files.__init__(link.files.directory / "more", BUILD, sites)
    replicas = "".join(f'replica {name} {{ id = {n}  redis = "127.0.0.1:{link.port if n == 1 else 9}"  tls = yes }}\n' for n, name in enumerate(sites, 1))

    def write(**nodes):
        link.conf.write_text(programs.settings_text({"copies": 1, "log": "stderr", "replicate_namespaces": "{ inbox }", **link.files.settings, "node_ca_file": str(link.ca)}, nodes) + replicas)
    link.ca = link.files.directory.parent / "ca.crt"
    acl = link.files.directory.parent / "mx1.acl"

    def load(*words):
        acl.write_text("user default on nopass ~* &* +@all\n" + "".join(link.files.acl(*words).splitlines(True)[1:]))
        link.call("ACL", "LOAD")
    load("--site", "-")
    write(mx1={"redis": f"127.0.0.1:{link.port}", "tls": "yes"})
    eventually("it answers", lambda: not any(each.name == "node-silent" for each in link.check.look("nodes")[0]))
    found = link.check.finds("acl-missing", "nodes")
    assert "it has no user dovelane-replicator:mx1@mx1, which the replicator of mx1 would come as" in found.text
    load("--site", "mx1")
    link.check.lacks("acl-missing", "nodes")
    link.call("ACL", "SETUSER", "dovelane-replicator:site-b@mx1", "~dovelane:replica:*")
    found = link.check.finds("acl-wider", "nodes")
    assert "its user dovelane-replicator:site-b@mx1 may do more than the replicator of site-b needs: ~dovelane:replica:*" in found.text
    write()  # where nobody but replicas uses that server
    assert "~dovelane:replica:*" in link.check.finds("acl-wider", "nodes", about="node mx1").text
    load("--site", "mx1")
    link.check.lacks("acl-wider", "nodes")
    write(mx1={"redis": f"127.0.0.1:{link.port}", "tls": "yes"})
    link.check.lacks("acl-wider", "nodes")


@mends("address-silent", "address-wrong")
def test_standby_addresses(stack, tmp_path):
    system = stack(postfix="none", nodes=2, relays=False)
    conf = tmp_path / "dovelane.conf"
    check = Check(lambda *words: command(conf, *words))
    sockets = {node: system[f"redis-{node}"].note["socket"] for node in system.nodes}

    def write(standby):
        conf.write_text(programs.settings_text({"log": "stderr"}, {node: {"redis": address, "standby": standby[node]} for node, address in system.nodes.items()}))
    write({"mx1": sockets["mx2"], "mx2": sockets["mx1"]})
    assert check.finds("address-wrong", "nodes").mend == "redis and standby in the sections of the nodes"
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    write({"mx1": sockets["mx1"], "mx2": closed})
    assert check.finds("address-silent", "nodes", about="mx2").mend == "that network, or the address"
    write(sockets)
    check.lacks("address-silent", "nodes")
    check.lacks("address-wrong", "nodes")
