"""dovelane check: each trap is named, with the setting that mends it; an installation without any is called good."""
import re
import shutil
import subprocess
from pathlib import Path

import admin
import pytest
from lane_server import BUILD
from relay_world import eventually
from stack import SinkShape, Stack, programs, resp


@pytest.fixture(scope="module")
def running():
    """One for all: each test mends what it spoils."""
    with Stack(postfix="divert", nodes=3, copies=2, sinks=[SinkShape("a", [], ours=True)],
               postconf={"in_flow_delay": "0", "enable_long_queue_ids": "yes", "milter_content_timeout": "60s", "virtual_alias_maps": ""},
               redis_conf=["timeout 0"]) as entry:
        yield entry
        assert not entry.complaints()


def check(entry, *words, config=None, **options):
    said = admin.run(entry, "check", *(["--postfix-config", config] if config else []), *words, **options)
    return said.status, said.out


@pytest.fixture
def postfix(running, tmp_path):
    """A copy of the stack's Postfix configuration, to be spoiled: `with_main(name=value)`, `with_service(service, name=value)`."""
    class Copy:
        directory = tmp_path / "conf"

        def __init__(self):
            shutil.copytree(running["postfix"].note["config_directory"], self.directory, dirs_exist_ok=True)
            # The way that the milter's own host sees it; the relay's file does not say.
            programs.write_settings(running["relay-mx1"], {"milter_socket": running["milter"].note["socket"], "state_directory": str(tmp_path)})
            self.smtp = running["postfix"].note["smtp"]

        def edit(self, *words):
            subprocess.run(["postconf", "-c", self.directory, *words], check=True, timeout=60)

        def says(self, pattern, status=None):
            code, out = check(running, "-v", "postfix", config=self.directory)
            found = re.search(pattern, out)
            assert found and (status is None or code == status), (code, out)

    return Copy()


def test_a_good_installation_is_called_good(running, postfix):
    eventually("the relays have shown themselves", lambda: "is not connected" not in check(running, "nodes")[1])
    status, out = check(running, config=postfix.directory)
    assert status == 0 and re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", out), out
    status, out = check(running, "-v", config=postfix.directory)
    assert status == 0 and "our milter is the last" in out and "in_flow_delay is 0" in out and "node mx3: answers" in out


MAIN = [
    ("in_flow_delay=1s", "CRITICAL main.cf: in_flow_delay is 1s.*\n.*mend: in_flow_delay = 0", 2),
    ("enable_long_queue_ids=no", "WARNING  main.cf: queue ids are short.*\n.*mend: enable_long_queue_ids = yes", 1),
    ("always_bcc=archive@example.org", "CRITICAL service .*always_bcc = archive@example.org", 2),
    ("sender_bcc_maps=hash:/x", "CRITICAL service .*sender_bcc_maps", 2),
    ("lmtp_header_checks=regexp:{{/^X:/ IGNORE}}", "CRITICAL main.cf: lmtp_header_checks = ", 2),
    ("content_filter=smtp:[127.0.0.1]:10024", "CRITICAL service .*content_filter = .* diverting is off.*\n.*ignore = { \"content_filter\" }", 2),
    ("virtual_alias_maps=hash:/etc/postfix/virtual", "ok       service .*virtual_alias_maps = .* stays in Postfix's queue", 0),
    ("milter_default_action=tempfail", "CRITICAL service .*default_action is tempfail", 2),
    ("milter_content_timeout=5s", "CRITICAL service .*content_timeout is 5s", 2),
    ("milter_content_timeout=15s", "CRITICAL service .*content_timeout is 15s", 2),
    ("milter_protocol=2", "CRITICAL service .*milter_protocol is 2", 2),
    ("smtpd_milters=unix:dovelane/milter.sock, inet:127.0.0.1:11332", "CRITICAL service .*not the last.*\n.*mend: put it last", 2),
    ("smtpd_milters=inet:127.0.0.1:11332 { unix:dovelane/milter.sock, default_action=accept }", "WARNING  service .*inet:127.0.0.1:11332 is a milter over TCP", 1),
    ("smtpd_milters={ unix:dovelane/milter.sock, default_action=reject, content_timeout=90s }", "CRITICAL service .*default_action is reject", 2),
    ("smtpd_milters=", "WARNING  master.cf: no smtpd uses the milter", 1),
    ("non_smtpd_milters=unix:dovelane/milter.sock", "WARNING  main.cf: non_smtpd_milters", 1),
    ("myhostname=mx1", "WARNING  host_name: this host calls itself mx1 .* a name without a dot", 1),
]


def test_traps_of_main_cf(postfix):
    for setting, said, status in MAIN:
        name = setting.partition("=")[0]
        before = subprocess.run(["postconf", "-c", postfix.directory, name], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode().strip()
        postfix.edit("-e", setting)
        postfix.says(said, status)
        postfix.edit("-e", before)


def test_the_milters_own_patience_counts_too(postfix, running):
    """However short the store's times are."""
    programs.write_settings(running["relay-mx1"], {"revoke_wait": "0s"})
    for setting, said, status in (("milter_content_timeout=5s", "CRITICAL service .*content_timeout is 5s", 2), ("milter_content_timeout=16s", "default_action is accept", 0)):
        postfix.edit("-e", setting)
        postfix.says(said, status)
    programs.write_settings(running["relay-mx1"], {"revoke_wait": "10s"})


def test_traps_of_tables(postfix, tmp_path):
    for result, found in (("HOLD", True), ("FILTER smtp:x", True), ("REDIRECT a@b", True), ("REJECT on HOLD", False)):
        table = tmp_path / "checks"
        table.write_text(f"# HOLD\n/^Subject: x/ {result}\n")
        postfix.edit("-e", f"header_checks=regexp:{table}")
        code, out = admin_check(postfix)
        assert ("diverted mail would escape it" in out) == found and (code == 2) == found, (result, out)
    postfix.edit("-e", "header_checks=", f"smtpd_recipient_restrictions=check_client_access cidr:{table}, permit")
    table.write_text("192.0.2.0/24 FILTER smtp:[127.0.0.1]\n")
    postfix.says("CRITICAL service .*smtpd_recipient_restrictions: cidr:.*FILTER", 2)
    postfix.edit("-e", "smtpd_recipient_restrictions=local, permit", "smtpd_restriction_classes=local", f"local=check_client_access cidr:{table}")
    postfix.says("CRITICAL service .*local: cidr:.*FILTER", 2)


def admin_check(postfix):
    return check(postfix.running, "postfix", config=postfix.directory)


@pytest.fixture(autouse=True)
def _know_the_stack(postfix, running):
    postfix.running = running


def test_traps_of_master_cf(postfix, running):
    master = postfix.directory / "master.cf"
    before = master.read_text()
    reinject, bounce = (running["postfix"].note[name] for name in ("reinject", "bounce"))
    for change, said in (
            (("    -o smtpd_milters=\n    -o content_filter=\n", "    -o content_filter=\n"), f"CRITICAL reinject_port {reinject}: it has milters"),
            (("    -o content_filter=\n", "    -o content_filter=error:x\n"), f"CRITICAL reinject_port {reinject}: its content_filter"),
            (("    -o { content_filter = ", "    -o { x_filter = "), f"CRITICAL bounce_port {bounce}: its content_filter is \"\""),
            (("dovelane-hold.invalid = HOLD", "other.invalid = HOLD"), f"WARNING  reinject_port {reinject}: a mail that relays died of"),
            (("    -o hopcount_limit=1000\n    -o cleanup_service_name=reinjectcleanup\n", "    -o cleanup_service_name=reinjectcleanup\n"),
             f"WARNING  reinject_port {reinject}: its hopcount_limit is 50, in its cleanup service 1000"),
            (("    -o cleanup_service_name=bouncecleanup\n", ""), f"WARNING  bounce_port {bounce}: its hopcount_limit is 1000, in its cleanup service 50"),
            ((reinject, "127.0.0.1:9"), f"CRITICAL reinject_port {reinject}: no service of master.cf listens there"),
    ):
        assert change[0] in before
        master.write_text(before.replace(*change))
        postfix.says(re.escape(said), 2 if said.startswith("C") else 1)
    # The milter of one service alone, in braces, with a chroot and an absolute path.
    smtp = running["postfix"].note["smtp"]
    line = f"{smtp} inet n - n - - smtpd"
    assert line in before
    postfix.edit("-e", "smtpd_milters=")
    master.write_text(before.replace(line, line.replace("n - n - -", "n - y - -") + "\n  -o { smtpd_milters = { unix:/dovelane/milter.sock, default_action=accept } }"))
    postfix.says("WARNING  service .*absolute path in a chroot", 1)


def test_traps_of_nodes(running, postfix):
    eventually("the relays have shown themselves", lambda: "is not connected" not in check(running, "nodes")[1])
    with resp.Connection(running.nodes["mx2"]) as node:
        for name, value, good, said, status in (
                ("maxmemory-policy", "allkeys-lru", "noeviction", "CRITICAL node mx2: maxmemory-policy is allkeys-lru", 2),
                ("save", "60 1", "", "WARNING  node mx2: save is 60 1", 1),
                ("stop-writes-on-bgsave-error", "yes", "no", "WARNING  node mx2: stop-writes-on-bgsave-error", 1),
                ("maxmemory", "0", "512mb", "WARNING  node mx2: maxmemory is not set", 1),
                ("timeout", "60", "0", "WARNING  node mx2: timeout is 60", 1),
                ("lane.settle-ms", "100", "5000", "CRITICAL node mx2: lane.settle-ms is 100, below settle", 2),
        ):
            node.call("CONFIG", "SET", name, value)
            code, out = check(running, "redis")
            node.call("CONFIG", "SET", name, good)
            assert said in out and code == status, (code, out)
    running.kill("redis-mx3")
    code, out = check(running, "nodes")
    running.start("redis-mx3")
    assert code == 2 and re.search("CRITICAL node mx3: .*does not answer", out)


def test_unequal_configurations_and_missing_relays(running, postfix):
    running.end("relay-mx3")
    programs.write_settings(running["relay-mx2"], {"revoke_wait": "3s"})
    running.restart("relay-mx2")
    eventually("it is told", lambda: re.search("CRITICAL relay of mx2: has another configuration", check(running, "nodes")[1]))
    eventually("it is told", lambda: "CRITICAL relay of mx3: is not connected" in check(running, "nodes")[1])
    code, out = check(running, "nodes")
    programs.write_settings(running["relay-mx2"], {"revoke_wait": "10s"})
    running.restart("relay-mx2")
    running.start("relay-mx3")
    assert code == 2 and not re.search("(?m)^(CRITICAL|WARNING) .*(relay of mx1|milter)", out)


def test_next_hops(running, postfix):
    running.sink("a", do="down")
    code, out = check(running, "dovecot")
    running.sink("a", do="up")
    assert code == 1 and re.search("WARNING  next hop smtp:.*Connection refused", out)


def test_the_config_itself(running, postfix):
    before = dict(running["relay-mx1"].note["settings"])
    programs.write_settings(running["relay-mx1"], {"bounce_port": "", "reinject_port": "", "divert": "{}", "copies": 3, "dead": '{"mx2"}'})
    code, out = check(running, "config")
    programs.write_settings(running["relay-mx1"], {**before, "dead": "{}"})
    assert code == 1 and "destination" not in out
    assert "proxy_socket" not in out
    for said in ("bounce_port is empty", "reinject_port is empty", "divert is empty", "3 nodes and copies = 3", "mx2 is in dead"):
        assert said in out, out
    conf = Path(running["relay-mx1"].note["conf"])
    conf.write_text(conf.read_text() + '\ndestination "smtp:[192.0.2.1]:26" { tls = may }\n')
    code, out = check(running, "config")
    assert code == 1 and 'destination "smtp:[192.0.2.1]:26" is not in divert' in out, out
    conf.write_text("copies = 9\n")
    assert admin.run(running, "check", "config").status == 2
    programs.write_settings(running["relay-mx1"])


def test_directories_of_sockets_that_are_missing(running, postfix, tmp_path):
    before = dict(running["relay-mx1"].note["settings"])
    away = {"milter_socket": f"{tmp_path}/m/s", "proxy_socket": f"{tmp_path}/p/s", "proxy_next": "127.0.0.1:9"}
    programs.write_settings(running["relay-mx1"], away)
    code, out = check(running, "config")
    for setting, path, user in (("milter_socket", "m", "dovelane"), ("proxy_socket", "p", "dovelane-proxy")):
        assert f"WARNING  config: {tmp_path}/{path}, the directory of {setting}, is not there [directory-missing]\n           mend: install -d -o {user} -g postfix" in out, out
        (tmp_path / path).mkdir()
    assert code == 1 and "is not there" not in check(running, "config")[1]
    programs.write_settings(running["relay-mx1"], {"proxy_socket": "/var/spool/postfix/dovelane-proxy/proxy.sock", "proxy_next": "", **before})


@pytest.mark.parametrize("program", ["milter", "proxy"])
def test_a_socket_whose_directory_is_missing_is_no_good_file_for_its_program(tmp_path, program):
    """For others it may be: their host need not have that program."""
    config = tmp_path / "dovelane.conf"
    config.write_text(f'copies = 1\nnode mx1 {{ redis = "127.0.0.1:7001" }}\nproxy_next = "127.0.0.1:9"\n{program}_socket = "{tmp_path}/none/s"\n')

    def test(name):
        done = subprocess.run([BUILD / name / f"dovelane-{name}", "-c", config, "-t"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=60, check=False)
        return done.returncode, done.stderr.decode()
    code, said = test(program)
    assert code == 2 and f"dovelane.conf: {program}_socket = {tmp_path}/none/s: there is no directory {tmp_path}/none: make it" in said, said
    assert test("relay") == (0, "")
    (tmp_path / "none").mkdir()
    assert test(program) == (0, "")


@pytest.mark.parametrize("program, node, status, words", [
    ("milter", "", 0, ""),                                              # the units say -n ${DOVELANE_NODE}: a Postfix host without a node
    ("milter", "mx9", 2, "-n mx9: "), ("relay", "mx1", 0, ""), ("relay", "mx9", 2, "has no node of that name: write its section, or its right name after DOVELANE_NODE=")])
def test_the_name_of_a_node_that_a_program_is_given(tmp_path, program, node, status, words):
    config = tmp_path / "dovelane.conf"
    config.write_text(f'copies = 1\nnode mx1 {{ redis = "127.0.0.1:7001" }}\nmilter_socket = "{tmp_path}/s"\n')
    done = subprocess.run([BUILD / program / f"dovelane-{program}", "-c", config, "-n", node, "-t"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == status and words in done.stderr.decode(), done


def test_a_relay_that_is_silent_is_critical(stack):
    """A group of which a relay takes nothing must not be called good, though its Redis answers."""
    entry = stack(postfix="none", nodes=2, takeover="automatic", relays=("mx1", "mx2"))
    eventually("both are alive", lambda: check(entry, "-v", "nodes")[1].count("its relay is alive") == 2)
    entry.kill("relay-mx2")
    eventually("it is silent", lambda: (said := check(entry, "nodes"))[0] == 2 and re.search(r"CRITICAL node mx2: silent: no beat of its relay for \d+ s", said[1]))
    assert re.search(r"(?m)^mx2 +silent ", admin.run(entry, "nodes").out)
    entry.start("relay-mx2")
    eventually("it is good again", lambda: check(entry, "-v", "nodes")[1].count("its relay is alive") == 2)
