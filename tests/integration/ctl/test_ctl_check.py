"""dovelane check: an installation without any trap is called good; traps that have several faces. test_ctl_mends.py has each trap and its mend."""
import re
import shutil
import subprocess
from pathlib import Path

from support import admin
import pytest
from support.lane_server import BUILD
from support.relay_world import eventually
from support.stack import SinkShape, Stack, programs

pytestmark = pytest.mark.long


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
    ("sender_bcc_maps=hash:/x", "CRITICAL service .*sender_bcc_maps", 2),
    ("virtual_alias_maps=hash:/etc/postfix/virtual", "ok       service .*virtual_alias_maps = .* stays in Postfix's queue", 0),
    ("milter_default_action=tempfail", "CRITICAL service .*default_action is tempfail", 2),
    ("milter_default_action=shutdown",
     "CRITICAL service .*default_action is shutdown: .*refused, and the client hung up on", 2),
    ("milter_content_timeout=15s", "CRITICAL service .*content_timeout is 15s", 2),
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
