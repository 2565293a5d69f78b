"""Links to nodes: TLS with verified certificates, a user for each program with its own rights, two addresses per node (docs/design.md, "Mail in" 3)."""
import os
import re
import subprocess
import textwrap
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from support import admin
from support import sinks
from support.stack import SinkShape, Stack, oracle, programs, resp
from support.stack.generator import Generator
from support.stack.secure import Secure, authority, certificate
from support.waiting import eventually

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
SINK = [SinkShape("a", ours=True)]


def clients(system, node):
    """Name to user of the programs' connections to a node."""
    with resp.Connection(system.nodes[node]) as connection:
        text = connection.call("CLIENT", "LIST").decode()
    return dict(re.findall(r" name=(dovelane-\S+) .* user=(\S+)", text))


def text_of(system, service):
    return Path(system[service].log).read_text(errors="replace")


def once(system, ledger):
    """All of it is delivered, and nothing of it twice. (The sink has mail of other runs, too.)"""
    verdict = oracle.wait_delivered(system, ledger, seconds=300)
    assert not (verdict.lost or verdict.damaged or verdict.waiting or verdict.duplicates), verdict.report()


def diverting(system):
    """Waits until the milter uses the nodes."""
    def one():
        once(system, Generator(smtp=system.smtp, domains=["a.example"], mails=1, sessions=1).run())
        return sinks.metrics(system, "milter")["mails_diverted_total"]
    eventually("mail is diverted", one, 60)


# ---- TLS and users -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure():
    with Stack(postfix="divert", secure=True, sinks=SINK, settings={"takeover": "automatic", "membership": "learned", "dead_after": "9s", "settle": "5s"}) as system:
        for node in system.nodes:
            eventually(f"{node} is alive", lambda node=node: re.search(r" alive\b", text_of(system, f"relay-{node}")), 60)
        diverting(system)
        yield system
        assert not system.complaints()
        for service in ("milter", "relay-mx1", "relay-mx2"):
            assert not re.search("NOPERM|NOAUTH|WRONGPASS", text_of(system, service)), service


def test_every_program_works_by_tls_as_its_own_user(secure):
    ledger = Generator(smtp=secure.smtp, domains=["a.example"], mails=40, sessions=4, recipients=(1, 3)).run()
    once(secure, ledger)
    assert sinks.metrics(secure, "milter")["mails_diverted_total"] > 1
    for node in secure.nodes:
        users = clients(secure, node)
        assert len(users) >= 6
        assert all(user == ("dovelane-milter" if re.match("dovelane-(store|switch)", name) else "dovelane-relay") for name, user in users.items()), users
        with resp.Connection(secure.nodes[node]) as connection:
            assert connection.call("ACL", "LOG") == []


def test_nodes_tell_each_other_of_themselves_as_their_own_users(secure):
    for node in secure.nodes:
        with resp.Connection(secure.nodes[node]) as connection:
            eventually(f"{node} knows both", lambda connection=connection: len(re.findall(rb"(?m)^\d+ node mx[12] 127\S+ - yes -$", connection.call("GET", "dovelane.nodes") or b"")) == 2)
            assert connection.call("ACL", "LOG") == []


def test_the_admins_command_has_the_rights_that_it_needs(secure):
    sinks.command(secure, "a", do="down")
    try:
        def some():
            Generator(smtp=secure.smtp, domains=["a.example"], mails=1, sessions=1).run()
            return len(found := admin.queue(secure)) >= 3 and found
        mails = eventually("some mails wait", some, 60)
        name = mails[0].get("id") or mails[0].get("queue_id")
        for words in (["nodes"], ["check", "nodes"], ["mailq"], ["qshape"], ["capacity", "--seconds", "1"], ["divert", "status"], ["show", name], ["cat", name], ["hold", name],
                      ["release", name], ["hold", "--add", "--sender", "nobody@nowhere.example"], ["divert", "off"], ["divert", "on"], ["shape", "smtp:[h]:25", "rate=1/s"], ["shape"], ["delete", name], ["flush"],
                      ["top", "--once"]):
            said = admin.run(secure, *words)
            assert not re.search("NOPERM|NOAUTH|does not answer", said.out + said.err) and said.status < 2, (words, said)
        for node in secure.nodes:
            with resp.Connection(secure.nodes[node]) as connection:
                assert connection.call("ACL", "LOG") == []
    finally:
        sinks.command(secure, "a", do="up")


def test_the_proxy_works_by_tls_as_its_own_user(stack):
    system = stack(postfix="proxy", secure=True, sinks=SINK)
    once(system, Generator(smtp=system.smtp, domains=["a.example"], mails=20, sessions=2).run())
    users = clients(system, "mx2")
    assert {"dovelane-store", "dovelane-store-bulk"} <= set(users) and {user for name, user in users.items() if re.match("dovelane-(store|switch)", name)} == {"dovelane-proxy"}, users
    for node in system.nodes:
        with resp.Connection(system.nodes[node]) as connection:
            assert connection.call("ACL", "LOG") == []


def sources(*folders):
    return "".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.c")))


def granted(acl, user):
    line = next(line for line in acl.splitlines() if line.startswith(f"user {user} "))
    return set(re.findall(r"\+(lane\.\w+)", line))


def test_the_rights_are_what_the_programs_send(secure):
    acl = Secure.acl(SecureOf(secure))
    links = sources("lib")
    everyone = {"lane.info"}
    # LANE.BEAT: where a server knows nothing else, and its users are those of then.
    stores = {word.lower() for word in re.findall(r'"(LANE\.[A-Z]+)[" ]', links)} - {"lane.beat"}
    assert granted(acl, "dovelane-milter") == stores | everyone
    for user, folder in (("dovelane-relay", "relay"), ("dovelane", "ctl"), ("dovelane-replicator", "dovecot-plugin/replicator")):
        sent = {word.lower() for word in re.findall(r'"(LANE\.[A-Z]+)[" ]', sources(folder))}
        sent |= {"lane.beats"} if "beats_ask" in sources(folder) else set()
        assert granted(acl, user) == sent | everyone, user


class SecureOf:
    """The files of a stack that runs."""

    def __init__(self, system):
        self.directory, self.build, self.sites = system.directory / "secure", system.shape.build, ()
        self.settings = {"node_user_file": str(self.directory / "%p.user")}


MAIL, REPLICA = "dovelane:smtp:[h]:25|mx1>mx2", "dovelane:replica:a>b"
PUSH = ("ENTRIES", 1, 1, b"x" * 16, "", "body")
REFUSED = {
    "dovelane-milter": [("LANE.TAKE", 1, MAIL), ("LANE.ACK", MAIL, "UPTO", 9), ("LANE.READ", MAIL, 0), ("LANE.GET", MAIL, "SEQS", 1, 1), ("SET", MAIL, "x"),
                        ("DEL", MAIL), ("GET", MAIL), ("LANE.PUSH", 1, REPLICA, *PUSH), ("LANE.PUSH", 1, "other", *PUSH), ("CONFIG", "GET", "*"), ("SET", "dovelane.drain", "on"),
                        ("EVAL", "return redis.call('LANE.TAKE', 1, KEYS[1])", 1, MAIL), ("EVAL", "return redis.call('DEL', KEYS[1])", 1, "dovelane.divert"), ("SET", "dovelane.nodes", "1 gone mx1")],
    "dovelane-relay": [("LANE.REVOKE", MAIL, b"x" * 16), ("LANE.PUSH", 1, REPLICA, *PUSH), ("LANE.TAKE", 1, REPLICA), ("LANE.READ", REPLICA, 0), ("SET", "dovelane.drain", "on"),
                       ("DEL", MAIL), ("LANE.RESET", MAIL), ("FLUSHALL",), ("CONFIG", "SET", "maxmemory", 1), ("ACL", "LIST"), ("SHUTDOWN",), ("RENAME", MAIL, "x")],
    "dovelane": [("LANE.PUSH", 1, MAIL, *PUSH), ("LANE.TAKE", 1, MAIL), ("LANE.READ", REPLICA, 0), ("LANE.ACK", REPLICA, "UPTO", 9), ("CONFIG", "SET", "maxmemory", 1),
                 ("ACL", "SETUSER", "x"), ("FLUSHALL",), ("DEL", MAIL), ("SHUTDOWN",), ("CLIENT", "KILL", "TYPE", "normal")],
    "dovelane-replicator": [("LANE.PUSH", 1, MAIL, *PUSH), ("LANE.TAKE", 1, MAIL), ("LANE.ACK", MAIL, "UPTO", 9), ("LANE.READ", REPLICA, 0), ("LANE.BEAT",), ("LANE.WHOLE",),
                            ("GET", "dovelane.divert"), ("SET", "dovelane.divert", "1 off"), ("EVAL", "return 1", 0), ("CONFIG", "GET", "*")],
}
ALLOWED = {
    "dovelane-milter": [("LANE.PUSH", 1, MAIL, *PUSH), ("LANE.REVOKE", MAIL, b"x" * 16), ("GET", "dovelane.divert"), ("LANE.LIST", 0)],
    "dovelane-relay": [("LANE.PUSH", 1, MAIL, *PUSH), ("LANE.TAKE", 1, MAIL), ("LANE.ACK", MAIL, "UPTO", 9), ("GET", "dovelane.drain")],
    "dovelane": [("LANE.READ", MAIL, 0), ("CLIENT", "LIST"), ("CONFIG", "GET", "maxmemory"), ("GET", "dovelane.holds")],
    "dovelane-replicator": [("LANE.CREATE", REPLICA, "MAXBYTES", 1000), ("LANE.PUSH", 1, REPLICA, *PUSH), ("LANE.TAKE", 1, REPLICA), ("LANE.ACK", REPLICA, "UPTO", 9)],
}


def lone_server(stack, tmp_path, default="user default off resetchannels -@all", **options):
    """A node with users, whose default user may nothing; and the files."""
    files = Secure(tmp_path / "secure", BUILD)
    file = tmp_path / "users.acl"
    file.write_text("\n".join([default, *files.acl().splitlines()[1:]]) + "\n")
    system = stack(postfix="none", nodes=0)
    shape = system.shape
    service = system.add(programs.redis(tmp_path / "mx1", "mx1", shape, system.ports, system.log("redis-mx1"), more=[f"aclfile {file}", *options.get("more", ())]))
    service.probes = []
    service.start(system.mark)

    def answers():
        try:
            with resp.Connection(service.note["address"]) as connection:
                connection.pipeline([("PING",)])
            return True
        except OSError:
            return False
    eventually("the server listens", answers)
    return files, service.note["address"]


def test_each_user_is_refused_what_is_not_its_own(stack, tmp_path):
    files, address = lone_server(stack, tmp_path)
    with resp.Connection(address) as nobody:
        answers = nobody.pipeline([("PING",), ("LANE.PUSH", 1, MAIL, *PUSH), ("CONFIG", "GET", "*")])
        assert all(re.match("NOAUTH|NOPERM", str(answer)) for answer in answers), answers
    for user, commands in REFUSED.items():
        password = (files.directory / f"{user}.user").read_text().split()[1]
        with resp.Connection(address) as connection:
            assert connection.call("AUTH", user, password) == b"OK"
            for command in ALLOWED[user]:
                connection.call(*command)
            for command in commands:
                answer = connection.pipeline([command])[0]
                assert isinstance(answer, resp.RedisError) and re.search("NOPERM|No permissions|can't run this command|permission", str(answer)), (user, command, answer)


def test_check_names_a_user_that_may_more_or_less_than_its_program_needs(stack, tmp_path):
    files, address = lone_server(stack, tmp_path, default="user default on nopass ~* +@all")
    conf = tmp_path / "dovelane.conf"
    conf.write_text(programs.settings_text({"copies": 1, "log": "stderr", "node_user_file": str(files.directory / "%p.user")}, {"mx1": {"redis": address}}))

    def check():
        return subprocess.run([BUILD / "ctl" / "dovelane", "-c", conf, "check", "-v", "nodes"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False).stdout
    for user in ("dovelane-milter", "dovelane-relay", "dovelane-proxy", "dovelane"):
        assert f"ok       node mx1: its user {user} may do what {user} needs, and no more" in check(), check()
    with resp.Connection(address) as connection:
        connection.call("ACL", "SETUSER", "dovelane-milter", "+flushall", "~other:*")
        connection.call("ACL", "SETUSER", "dovelane-relay", "-lane.take")
        out = check()
        assert re.search(r"WARNING  node mx1: its user dovelane-milter may do more than dovelane-milter needs:(?=.* \+flushall)(?=.* ~other:\*).*\n +mend: .*`dovelane acl` again", out), out
        assert "WARNING  node mx1: its user dovelane-relay may not do what dovelane-relay needs: +lane.take" in out, out
        # The mend, followed: the lines of today are loaded again.
        for line in files.acl().splitlines()[1:]:
            connection.call("ACL", "SETUSER", line.split()[1], "reset", *re.findall(r"\([^)]*\)|\S+", line)[2:])
        assert not re.search("WARNING .*its user", check()), check()


def relay_conf(tmp_path, redis, **settings):
    conf = tmp_path / "dovelane.conf"
    node = {"redis": redis, **settings.pop("node", {})}
    conf.write_text(programs.settings_text({"copies": 1, "log": "stderr", **settings}, {"mx1": node}))
    return conf


class Relay:
    """dovelane-relay beside a log that is read while it runs."""

    def __init__(self, conf):
        self.log = conf.with_suffix(".log")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([BUILD / "relay" / "dovelane-relay", "-c", conf, "-n", "mx1"], stderr=out, stdout=out)

    def says(self, pattern):
        return eventually(f"the relay says {pattern}", lambda: re.search(pattern, self.log.read_text(errors="replace")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def test_a_wrong_password_is_told_with_its_file_and_mended_without_a_restart(stack, tmp_path):
    files, address = lone_server(stack, tmp_path)
    file = files.directory / "dovelane-relay.user"
    right = file.read_text()
    file.write_text("dovelane-relay something-secret-else\n")
    with Relay(relay_conf(tmp_path, address, node_user_file=files.settings["node_user_file"])) as relay:
        relay.says(rf"node mx1 .*AUTH as the user of {file}: WRONGPASS.*mend that file")
        time.sleep(3)
        log = relay.log.read_text()
        assert log.count("WRONGPASS") <= 3 and "something-secret" not in log, log  # one for each of its three connections
        file.write_text(right)
        relay.says("mx1 .*relay.*: connected")
        assert right.split()[1] not in relay.log.read_text()


def test_a_server_without_auth_does_not_make_us_log_the_password(stack, tmp_path):
    files, address = lone_server(stack, tmp_path, more=["rename-command AUTH another"])
    with Relay(relay_conf(tmp_path, address, node_user_file=files.settings["node_user_file"])) as relay:
        relay.says("AUTH as the user of .*unknown command .AUTH.: mend that file")
        password = (files.directory / "dovelane-relay.user").read_text().split()[1]
        assert password not in relay.log.read_text()


def test_standby_addresses_that_are_each_others_are_found(stack, tmp_path):
    system = stack(postfix="none", nodes=2, relays=False)
    own = {node: system[f"redis-{node}"].note["socket"] for node in system.nodes}
    for crossed in (False, True):
        standby = dict(zip(own, reversed(own.values()))) if crossed else own
        nodes = {node: {"redis": address, "standby": standby[node]} for node, address in system.nodes.items()}
        conf = tmp_path / "dovelane.conf"
        conf.write_text(programs.settings_text({"log": "stderr"}, nodes))
        for words, right, wrong in ((["check", "-v", "nodes"], "ok +node mx1: answers at its standby", r'CRITICAL node mx1: its standby address .* it says it is node "mx2"'),
                                    (["nodes", "-v"], "redis.sock idle", "redis.sock WRONG")):
            said = subprocess.run([BUILD / "ctl" / "dovelane", "-c", conf, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False).stdout
            assert bool(re.search(right, said)) != crossed and bool(re.search(wrong, said)) == crossed, said


def test_a_password_that_others_can_read_is_refused(tmp_path):
    files = Secure(tmp_path / "secure", BUILD)
    conf = relay_conf(tmp_path, "127.0.0.1:1", node_user_file=files.settings["node_user_file"])

    def test():
        said = subprocess.run([BUILD / "relay" / "dovelane-relay", "-c", conf, "-t"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return said.returncode, said.stdout

    file = files.directory / "dovelane-relay.user"
    assert test()[0] == 0
    file.chmod(0o644)
    assert test()[0] == 2 and f"node mx1: node_user_file {file} can be read or written by everybody (mode 0644): chmod 0640 it" in test()[1]
    file.chmod(0o640)
    file.write_text("dovelane-relay\n")
    assert "its one line must be a user's name, a blank, and the password" in test()[1]
    file.unlink()
    assert f"node_user_file {file}: No such file" in test()[1]
    crt, key = certificate(files.directory, "client")
    file.write_text("dovelane-relay something\n")
    file.chmod(0o640)
    conf = relay_conf(tmp_path, "127.0.0.1:1", node={"tls": "yes"}, node_cert_file=str(crt), node_key_file=str(key), **files.settings)
    assert test()[0] == 0, test()
    key.chmod(0o644)
    assert test()[0] == 2 and f"node_key_file {key} holds the key and can be read or written by everybody (mode 0644): chmod 0640 it" in test()[1]
    (files.directory / "ca.crt").write_text("nothing")
    conf = relay_conf(tmp_path, "127.0.0.1:1", node={"tls": "yes"}, node_ca_file=str(files.directory / "ca.crt"))
    assert test()[0] == 2 and "ca.crt" in test()[1]


def test_a_certificate_that_does_not_fit_is_told_and_never_used(stack, tmp_path):
    """Another name; an authority that nobody trusts; a port without TLS. Then the right one, without a restart."""
    system = stack(postfix="none", nodes=0)
    files = Secure(tmp_path / "secure", BUILD)
    port = system.ports.take()
    lines = files.redis_conf("mx1", port)
    service = system.add(programs.redis(tmp_path / "mx1", "mx1", system.shape, system.ports, system.log("redis-mx1"), more=lines))
    service.start(system.mark)

    def use(name, **how):
        pair = certificate(files.directory, name, **how)
        with resp.Connection(service.note["address"]) as connection:
            connection.call("CONFIG", "SET", "tls-cert-file", str(pair[0]), "tls-key-file", str(pair[1]))

    def users():
        with resp.Connection(service.note["address"]) as connection:
            return re.findall(r"user=(dovelane\S*)", connection.call("CLIENT", "LIST").decode())

    use("other", subject="DNS:other.example,IP:192.0.2.7")
    settings = dict(files.settings, node={"tls": "yes"})
    with Relay(relay_conf(tmp_path, f"127.0.0.1:{port}", **settings)) as relay:
        relay.says(rf"node mx1 \(127.0.0.1:{port}, .*certificate verification failed: .*not for 127.0.0.1.*it shows CN=other, for DNS:other.example IP:192.0.2.7, by CN=ca of a test")
        authority(files.directory, "stranger")
        use("strange", by="stranger")
        relay.says("it shows CN=strange, for IP:127.0.0.1, by CN=stranger of a test")
        assert not users()
        use("mx1")
        relay.says(r"node mx1 .*relay.*: connected")
        assert set(users()) == {"dovelane-relay"}


@pytest.mark.exhaustive
def test_a_port_without_tls_is_told_and_never_used(stack, tmp_path):
    system = stack(postfix="none", nodes=1, relays=False)
    settings = dict(Secure(tmp_path / "secure", BUILD).settings, node={"tls": "yes"})
    with Relay(relay_conf(tmp_path, system.nodes["mx1"], **settings)) as relay:
        relay.says(r"TLS: no answer \(does that port speak TLS\?\)|that port speaks no TLS")
        assert not clients(system, "mx1")


def test_a_server_that_wants_to_see_a_certificate_sees_ours(stack, tmp_path):
    system = stack(postfix="none", nodes=0)
    files = Secure(tmp_path / "secure", BUILD)
    port = system.ports.take()
    lines = [line.replace("tls-auth-clients no", "tls-auth-clients yes") for line in files.redis_conf("mx1", port)]
    service = system.add(programs.redis(tmp_path / "mx1", "mx1", system.shape, system.ports, system.log("redis-mx1"), more=lines))
    service.start(system.mark)
    settings = dict(files.settings, node={"tls": "yes"})
    with Relay(relay_conf(tmp_path, f"127.0.0.1:{port}", **settings)) as relay:
        relay.says("certificate required|handshake failure")
    authority(files.directory, "stranger")
    crt, key = certificate(files.directory, "client", by="stranger")
    with Relay(relay_conf(tmp_path, f"127.0.0.1:{port}", node_cert_file=str(crt), node_key_file=str(key), **settings)) as relay:
        # By TLS 1.3 it is refused when the handshake is over.
        relay.says(r"TLS: .*: does the server take our certificate \(node_cert_file\)\?")
        certificate(files.directory, "client")
        relay.says(r"node mx1 .*relay.*: connected")
    conf = relay_conf(tmp_path, f"127.0.0.1:{port}", node_cert_file=str(crt), node_key_file=str(key), **settings)
    said = subprocess.run([BUILD / "ctl" / "dovelane", "-c", conf, "nodes", "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert f"127.0.0.1:{port} idle" in said.stdout, said.stdout

    def check():
        done = subprocess.run([BUILD / "ctl" / "dovelane", "-c", conf, "check", "-v", "nodes"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return re.findall(r"(\w+) +node mx1: (its certificate|node_cert_file) (.*)", done.stdout)
    assert [(level, what) for level, what, _ in check()] == [("ok", "its certificate"), ("ok", "node_cert_file")], check()
    certificate(files.directory, "client", days=20)
    with resp.Connection(service.note["address"]) as connection:
        connection.call("CONFIG", "SET", "tls-cert-file", *(words := [str(each) for each in certificate(files.directory, "mx1", days=10)])[:1], "tls-key-file", words[1])
    (one, _, server), (two, _, ours) = check()
    assert one == two == "WARNING" and re.search("ends on .* in (9|10) days", server) and re.search("ends on .* in (19|20) days", ours), check()


def test_what_the_guide_says_about_tls_and_users_is_enough(stack, tmp_path):
    """The commands and lines of that section as they stand there, with other directories, addresses and owners."""
    guide = (ROOT / "docs" / "admin-guide.md").read_text()
    section = guide[guide.index("## Two hosts: TLS and users\n"):guide.index("### A second network between nodes\n")]
    system = stack(postfix="none", nodes=0)
    port = system.ports.take()
    etc = {name: tmp_path / f"etc-{name}" for name in ("mx1", "mx2")}

    def here(text, node="mx1"):
        text = text.replace("/etc/", f"{etc[node]}/").replace("10.0.0.1", "127.0.0.1").replace("10.0.0.2", "127.0.0.2").replace("7001", str(port))
        return re.sub(r"-o redis -g redis|(chgrp) [a-z-]+", lambda found: f"{found[1]} root" if found[1] else "", text)

    def sh(text):
        program = f'dovelane() {{ {BUILD}/ctl/dovelane -c {etc["mx1"]}/dovelane/dovelane.conf "$@"; }}\n'
        subprocess.run(["sh", "-e", "-c", program + text], check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    authority_, conf, acl, copy, install, redis_conf, restart, checks = map(
        textwrap.dedent, re.findall(r"```[^\n]*\n(.*?) *```", section, re.S))
    assert "ssh mx2" in copy and "systemctl restart" in restart and "dovelane check nodes" in checks
    for directory in re.findall(r"d /etc/dovelane/(\S+)", (ROOT / "packaging" / "systemd" / "dovelane.tmpfiles").read_text()):
        (etc["mx1"] / "dovelane" / directory).mkdir(parents=True)
    sh(here(authority_))
    file = etc["mx1"] / "dovelane" / "dovelane.conf"
    file.write_text(here(conf))
    sh(here(acl))
    subprocess.run(["cp", "-a", etc["mx1"], etc["mx2"]], check=True)
    for number, node in enumerate(etc, 1):
        text = here(install, node)
        sh(text if node == "mx1" else text.replace("mx1.", "mx2."))
        lines = [line for line in here(redis_conf, node).splitlines() if line != "port 0"]
        lines += [f"bind 127.0.0.{number}"]
        service = system.add(programs.redis(tmp_path / node, node, system.shape, system.ports, system.log(f"redis-{node}"), host=f"127.0.0.{number}", more=lines))
        service.probes = []
        service.start(system.mark)

    def check():
        said = subprocess.run([BUILD / "ctl" / "dovelane", "-c", file, "check", "-v", "nodes"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return said.stdout
    eventually("both nodes answer", lambda: "node mx1: answers" in (out := check()) and "node mx2: answers" in out)
    assert "NOPERM" not in check()
    said = subprocess.run([BUILD / "relay" / "dovelane-relay", "-c", file, "-t"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stdout


# ---- two addresses -------------------------------------------------------------------------------------------------------------


class Load:
    def __init__(self, system, **plan):
        self.generator = Generator(smtp=system.smtp, domains=["a.example"], **{"sessions": 8, "mails": 1000000, "rate": 60, **plan})
        self.thread = threading.Thread(target=self.generator.run)
        self.thread.start()

    def more(self, mails):
        wanted = len(self.generator.ledger.promised) + mails
        eventually(f"{mails} more mails are accepted", lambda: len(self.generator.ledger.promised) >= wanted, 60)

    def end(self):
        self.generator.stop()
        self.thread.join()
        return self.generator.ledger


@pytest.fixture
def paths(stack):
    def start(**options):
        # A deadline far beyond what a busy machine needs for the turn: what is measured is that the mail goes the other way, not how fast.
        settings = {"path_timeout": "800ms", "store_deadline": "10s", "settle": "25s", "max_entry": "5MB", "suspect_after": "10s", "dead_after": "60s", **options.pop("settings", {})}
        return stack(postfix="divert", paths=True, sinks=SINK, settings=settings, **options)
    return start


@pytest.mark.parametrize("how, secure, takeover", [("silence", False, "manual"), pytest.param("cut", False, "manual", marks=pytest.mark.exhaustive),
                                                   pytest.param("silence", True, "manual", marks=pytest.mark.exhaustive), pytest.param("silence", False, "automatic", marks=pytest.mark.exhaustive)])
def test_a_path_is_cut_in_mid_load_and_no_mail_goes_to_disk_or_twice(paths, how, secure, takeover):
    """automatic: what a node is whole for is known over the other path, too."""
    system = paths(secure=secure, settings={"takeover": takeover})
    diverting(system)
    load = Load(system)
    try:
        load.more(30)
        before = sinks.metrics(system, "milter")["mails_queued_total"]
        eventually("all are on the active path", lambda: not any("standby" in name for name in clients(system, "mx2")), 60)
        system.link(how, "mx2-active")
        eventually("the milter goes on over the standby path", lambda: re.search(r"node mx2 .*store\): connected at its standby address", text_of(system, "milter")))
        load.more(100)
        standby = clients(system, "mx2")
        assert "dovelane-store:standby" in standby, standby
        assert sinks.metrics(system, "milter")["mails_queued_total"] == before
        said = admin.run(system, "nodes", "-v")
        line = next(line for line in said.out.splitlines() if line.startswith("mx2"))
        assert said.status == 1 and re.search(r"AWAY +\S+ used \d", line), said.out
        assert re.search("node mx2: does not answer at its active address", admin.run(system, "check", "nodes").out)
        system.link("cut", "mx2-active")  # no network gives what it held after so long a time
        system.link("heal", "mx2-active")
        eventually("all are back on the active path", lambda: (names := clients(system, "mx2")) and "dovelane-store" in names and not any("standby" in name for name in names), 60)
        load.more(50)
        assert sinks.metrics(system, "milter")["mails_queued_total"] == before
    finally:
        system.link("heal")
        ledger = load.end()
    once(system, ledger)
    counters = sinks.metrics(system, "milter")
    assert counters["store_unsure_total"] == counters["store_refused_total"] == 0


def test_a_server_that_stands_still_is_not_left_for_its_other_address(paths):
    system = paths()
    load = Load(system)
    try:
        load.more(20)
        system.stop("redis-mx2")
        time.sleep(3)  # several times path_timeout
        assert "server answers at its other address" not in text_of(system, "milter")
        system.cont("redis-mx2")
        load.more(20)
    finally:
        system.cont("redis-mx2")
        ledger = load.end()
    once(system, ledger)


def test_large_mail_over_a_slow_link_holds_up_neither_small_mail_nor_beats(paths):
    """4 MB at 1 MB a second: four seconds, twice path_timeout, in which small mails pass and the link is not left."""
    system = paths(settings={"store_deadline": "15s", "settle": "40s", "path_timeout": "2s"})
    diverting(system)
    mark = len(text_of(system, "milter"))
    system.link("rate", "mx2-active", bytes=1000000)
    system.link("rate", "mx2-standby", bytes=1000000)

    def on_active_path():
        """A link's new rate is for new connections: those it had are gone, and may have come back at the standby address first."""
        said = [re.findall(rf"node mx2 \([^)]*, {purpose}\): (.*)", text_of(system, "milter")[mark:]) for purpose in ("store", "store-bulk")]
        return all(lines and lines[-1] == "connected" for lines in said)

    eventually("the active path is used", on_active_path)
    before = len(text_of(system, "milter"))
    large = Load(system, sessions=1, rate=None, mails=1, size=(4000000, 4000000), per_session=1)
    small = Load(system, sessions=2, rate=20)
    try:
        large.thread.join(120)
        assert not large.thread.is_alive()
    finally:
        first, second = small.end(), large.end()
    stored = [(datetime.fromisoformat(at).timestamp(), int(size), float(ms) / 1000) for at, size, ms in
              re.findall(r"(?m)^(\S+) .* size=(\d+), .*action=lane, .*store=([0-9.]+)ms", text_of(system, "milter"))]
    end, took = next((at, took) for at, size, took in stored if size > 1000000)
    beside = [at for at, size, _ in stored if size < 100000 and end - took < at < end]
    assert took > 2 and len(beside) >= 5, (took, len(beside))
    assert len(second.promised) == 1 and not re.search("standby|other address", text_of(system, "milter")[before:])
    assert sinks.metrics(system, "milter")["mails_queued_total"] == 0
    once(system, first)
    once(system, second)
