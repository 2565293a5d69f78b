"""Every mend that `dovelane check` names, tried: of dovelane.conf, Postfix and the next hops. test_ctl_mends_nodes.py,
test_ctl_mends_host.py, test_ctl_mends_plugin.py, test_ctl_mends_replicas.py, test_ctl_mends_sites.py and test_ctl_shape.py
have the others."""
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

from support import admin
import pytest
import test_ctl_mends_host
import test_ctl_mends_nodes
import test_ctl_mends_plugin
import test_ctl_mends_replicas
import test_ctl_mends_sites
import test_ctl_shape
from support.lane_server import BUILD, PORTS, ROOT
from support.mends import Check, command, mends, settings
from support.stack import SinkShape, Stack, programs
from support.waiting import eventually

pytestmark = pytest.mark.long


def test_no_finding_is_forgotten():
    """The command's own table, and the tests: each name has one, and no test has a name that check has not."""
    listed = [line.split()[1] for line in subprocess.run([BUILD / "ctl" / "dovelane", "check", "--list"], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()]
    units = (Path(__file__).parents[2] / "machines" / "test_check_units.py").read_text()
    tried = set(re.findall(r'"([a-z-]+)"', "".join(re.findall(r"(?m)^@mends\(([^)]*)\)", units))))
    for module in (test_ctl_mends_host, test_ctl_mends_nodes, test_ctl_mends_plugin, test_ctl_mends_replicas, test_ctl_mends_sites, test_ctl_shape, sys.modules[__name__]):
        for value in vars(module).values():
            tried |= set(getattr(value, "mends", ())) if callable(value) and value is not mends else set()
    assert len(listed) == len(set(listed)) > 90 and tried == set(listed), (set(listed) - tried, tried - set(listed))


# ---- dovelane.conf ----

class Conf:
    """A dovelane.conf of a good installation, to be spoilt; nothing runs."""

    def __init__(self, directory):
        self.directory, self.path = directory, directory / "dovelane.conf"
        self.nodes = {f"mx{n}": {"redis": f"127.0.0.1:{n}"} for n in (1, 2, 3)}
        self.more = ""
        self.settings = {"copies": 2, "bounce_port": '"127.0.0.1:10626"', "reinject_port": '"127.0.0.1:10627"', "divert": '{ "smtp:[192.0.2.1]:25" }',
                         "milter_socket": f'"{directory}/s"', "state_directory": f'"{directory}"'}
        self.check = Check(lambda *words: command(self.path, *words))
        self.write()

    def write(self, **changes):
        self.settings.update(changes)
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        nodes = [f"node {name} {{ " + " ".join(f'{key} = "{value}"' for key, value in words.items()) + " }" for name, words in self.nodes.items()]
        self.path.write_text("\n".join([*lines, *nodes, self.more, ""]))


@pytest.fixture
def conf(tmp_path):
    return Conf(tmp_path)


def test_a_good_configuration_has_no_finding(conf):
    assert re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", conf.check.run("config"))


@mends("spread-unused")
@pytest.mark.parametrize("where", ["for all", "destination"])
def test_a_least_number_of_sites_without_sites(conf, where):
    hop = "smtp:[192.0.2.1]:25"
    conf.check.lacks("spread-unused", "config")
    if where == "destination":
        conf.more = f'destination "{hop}" {{ spread_least = 2 }}'
    conf.write(**({"spread_least": 2} if where == "for all" else {}))
    found = conf.check.finds("spread-unused", "config")
    assert found.mend.startswith("spread_over = site") and "spread_least = 2" in found.text
    for n, name in enumerate(conf.nodes):
        conf.nodes[name]["site"] = f"s{n}"
    conf.write(spread_over="site")
    conf.check.lacks("spread-unused", "config")


def test_a_least_number_that_one_destination_uses(conf):
    for n, name in enumerate(conf.nodes):
        conf.nodes[name]["site"] = f"s{n}"
    conf.more = 'destination "smtp:[192.0.2.1]:25" { spread_over = site }'
    conf.write(spread_least=2)
    conf.check.lacks("spread-unused", "config")


@mends("hop-labels-unused")
@pytest.mark.parametrize("why", ["no node", "ordered"])
def test_a_next_hops_place_that_nothing_follows(conf, why):
    """With nodes that are learned of: else dovelane.conf is refused."""
    for n, name in enumerate(conf.nodes):
        conf.nodes[name]["site"] = f"s{n}"
    conf.more = 'destination "*" { site = s1 }'
    conf.write(membership="learned")
    conf.check.lacks("hop-labels-unused", "config")
    conf.more = 'destination "*" { site = s7 }' if why == "no node" else 'destination "*" { site = s1 placement = ordered }'
    conf.write(membership="learned")
    mend = "or take them out" if why == "no node" else "take one of the two out: site and zone, or placement = ordered"
    assert mend in conf.check.finds("hop-labels-unused", "config").mend
    conf.more = 'destination "*" { placement = ordered }'
    conf.write(membership="learned")
    conf.check.lacks("hop-labels-unused", "config")


OF_SETTINGS = [("bounce-port-empty", {"bounce_port": '""'}), ("reinject-port-empty", {"reinject_port": '""'}), ("divert-empty", {"divert": "{}"}), ("copies-one", {"copies": 1})]


@pytest.mark.parametrize("name, spoil", OF_SETTINGS, ids=str)
@mends(*(row[0] for row in OF_SETTINGS), each=True)
def test_a_setting_as_the_mend_writes_it(conf, name, spoil):
    conf.write(**spoil)
    conf.write(**dict([settings(conf.check.finds(name, "config").mend)]))
    conf.check.lacks(name, "config")


@mends("copies-all")
def test_one_node_more(conf):
    conf.write(copies=3)
    assert conf.check.finds("copies-all", "config").mend == "one node more than copies"
    conf.nodes["mx4"] = {"redis": "127.0.0.1:4"}
    conf.write()
    conf.check.lacks("copies-all", "config")


@mends("copies-more")
def test_a_group_of_one_host(conf, tmp_path):
    """As `dovelane init` leaves it: the others join later."""
    spare = {name: conf.nodes.pop(name) for name in list(conf.nodes)[1:]}
    conf.write(copies=2, membership="learned")
    conf.check.lacks("copies-more", "config")
    conf.path.with_name("group").write_text("")
    mend = conf.check.finds("copies-more", "config").mend
    assert mend == "dovelane invite, and dovelane join on the next host; or copies = 1"
    conf.write(copies=1, membership="learned")
    conf.check.lacks("copies-more", "config")
    conf.nodes.update(spare)
    conf.write(copies=2, membership="learned")
    conf.check.lacks("copies-more", "config")


@mends("node-in-dead")
def test_a_node_that_is_dead(conf):
    conf.write(dead='{ "mx2" }')
    assert conf.check.finds("node-in-dead", "config").mend.startswith("take it out")
    conf.write(dead="{}")
    conf.check.lacks("node-in-dead", "config")


@mends("destination-not-in-divert")
def test_a_destination_of_its_own(conf):
    conf.more = 'destination "smtp:[192.0.2.1]:26" { tls = may }'
    conf.write()
    assert conf.check.finds("destination-not-in-divert", "config").mend == "write its title as divert has it, or take the section out"
    conf.more = ""
    conf.write()
    conf.check.lacks("destination-not-in-divert", "config")
    conf.more = 'destination "smtp:[192.0.2.1]:25" { tls = may }'
    conf.write()
    conf.check.lacks("destination-not-in-divert", "config")


@mends("learned-any-ca")
def test_nodes_that_are_learned_by_any_authority(conf):
    conf.nodes = {f"mx{n}": {"redis": f"127.0.0.1:{n}", "tls": "yes"} for n in (1, 2, 3)}
    conf.write(membership="learned")
    name, value = settings(conf.check.finds("learned-any-ca", "config").mend)
    conf.write(**{name: value})
    conf.check.lacks("learned-any-ca", "config")


@mends("unlabelled")
def test_a_node_that_was_learned_and_says_not_where_it_is(conf):
    learned = conf.directory / "nodes-dovelane-relay"
    conf.nodes = {"mx1": {"redis": "127.0.0.1:1", "site": "fra"}, "mx2": {"redis": "127.0.0.1:2", "site": "ams"}}
    learned.write_text("1 node mx3 127.0.0.1:3 - - -\n")
    conf.write(membership="learned", spread_over="site")
    mend = conf.check.finds("unlabelled", "nodes", about="node mx3").mend
    assert mend == 'site = "..." in its section on its own host; restart its relay'
    learned.write_text("2 node mx3 127.0.0.1:3 - - - ams -\n")
    conf.check.lacks("unlabelled", "nodes")


@mends("replicas-together", "replicator-user-left")
def test_replicas_that_come_as_one_user(conf):
    """The setting of before, and the user of before once each replica has its own."""
    for name in ("site-a", "site-b"):
        (conf.directory / f"{name}.user").write_text(f"{name} secret\n")
    shared = conf.directory / "dovelane-replicator"
    shared.write_text("dovelane-replicator secret\n")
    conf.more = "".join(f'replica site-{n} {{ id = {i}  redis = "127.0.0.1:700{i}" }}\n' for i, n in enumerate("ab", 1))
    conf.write(replicate_namespaces="{ inbox }")
    conf.check.lacks("replicas-together", "config")  # no users at all: that is another finding's
    conf.write(node_user_file=f'"{conf.directory}/%p"')
    name, value = settings(conf.check.finds("replicas-together", "config").mend)
    conf.write(**{name: value.replace("/etc/dovelane/dovelane-replicator", str(conf.directory))})
    conf.check.lacks("replicas-together", "config")
    done = re.match(r"rm (\S+), when", conf.check.finds("replicator-user-left", "config").mend)[1]
    assert done == str(shared)
    Path(done).unlink()
    conf.check.lacks("replicator-user-left", "config")


@mends("directory-missing")
def test_a_directory_of_a_socket(conf):
    conf.write(milter_socket=f'"{conf.directory}/none/s"')
    done = re.match(r"(install -d -o \w+ -g \w+ -m 0750 \S+), on hosts with a milter", conf.check.finds("directory-missing", "config").mend)[1]
    subprocess.run(re.sub("-o dovelane -g postfix", "", done), shell=True, check=True, timeout=60)  # its users need not be here
    conf.check.lacks("directory-missing", "config")


@mends("state-directory")
def test_a_state_directory_that_cannot_be_written(conf, tmp_path):
    missing = tmp_path / "state"
    conf.write(state_directory=f'"{missing}"')
    assert conf.check.finds("state-directory", "config").mend.startswith("systemd-tmpfiles --create, ")
    rule = tmp_path / "rule.conf"
    rule.write_text(f"d {missing} 0750 - -\n")
    subprocess.run(["systemd-tmpfiles", "--create", rule], check=True, timeout=60)
    conf.check.lacks("state-directory", "config")


# ---- Postfix ----

@pytest.fixture(scope="module")
def running():
    with Stack(postfix="divert", nodes=1, copies=1, relays=(), sinks=[SinkShape("a", [], ours=True)],
               postconf={"in_flow_delay": "0", "enable_long_queue_ids": "yes", "milter_content_timeout": "60s", "virtual_alias_maps": ""}) as entry:
        yield entry


class Copy:
    """A copy of the stack's Postfix configuration."""

    def __init__(self, entry, tmp_path):
        self.entry, self.directory = entry, tmp_path / "conf"
        shutil.copytree(entry["postfix"].note["config_directory"], self.directory, dirs_exist_ok=True)
        self.write(milter_socket=entry["milter"].note["socket"], state_directory=str(tmp_path), postfix_config="", ignore="{}", proxy_next="", route="{}",
                   **{f"{way}_port": entry["postfix"].note[way] for way in ("reinject", "bounce")})
        self.smtp = f"{entry['postfix'].note['smtp']}/inet"
        self.master = self.directory / "master.cf"
        self.check = Check(lambda *words: admin.run(entry, "check", *words, "postfix").out)
        self.where = ("--postfix-config", str(self.directory))

    def write(self, **settings_):
        programs.write_settings(self.entry["relay-mx1"], settings_)

    def edit(self, *words):
        subprocess.run(["postconf", "-c", self.directory, *words], check=True, timeout=60)

    def option(self, service, words):
        """Gives a service of master.cf (NAME/inet) one more option, as a mend writes it: "-o { name = value }"."""
        text, line = self.master.read_text(), service.replace("/inet", " inet")
        before, found, after = text.partition(f"\n{line}")
        first, _, rest = after.partition("\n")
        options = re.match(r"(?:[ \t].*\n|#.*\n)*", rest)[0]
        assert found
        self.master.write_text(f"{before}{found}{first}\n{options}    {words}\n{rest[len(options):]}")

    def finds(self, name, **more):
        return self.check.finds(name, *self.where, **more)

    def lacks(self, name, **more):
        return self.check.lacks(name, *self.where, **more)


@pytest.fixture
def postfix(running, tmp_path):
    return Copy(running, tmp_path)


def test_a_good_postfix_has_no_finding(postfix):
    assert re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", postfix.check.run(*postfix.where))


OF_MAIN = [("flow-delay", "in_flow_delay=1s"), ("queue-ids", "enable_long_queue_ids=no"), ("milter-protocol", "milter_protocol=2"),
           ("local-milter", "non_smtpd_milters=unix:dovelane/milter.sock"), ("main-setting", "soft_bounce=yes")]


@pytest.mark.parametrize("name, spoil", OF_MAIN, ids=str)
@mends(*(row[0] for row in OF_MAIN), each=True)
def test_a_line_of_main_cf_as_the_mend_writes_it(postfix, name, spoil):
    postfix.edit("-e", spoil)
    postfix.edit("-e", "{} = {}".format(*settings(postfix.finds(name).mend.replace(" in main.cf", ""))))
    postfix.lacks(name)


MILTERS = "milters = ours"
OF_MILTERS = [
    ("milter-action", "default_action=reject, content_timeout=90s", "default_action=accept"),
    ("milter-timeout-short", "default_action=accept, content_timeout=5s", "content_timeout=60s"),
    ("milter-timeout-long", "default_action=accept, content_timeout=500s", "content_timeout=60s"),
]


@pytest.mark.parametrize("name, spoil, mend", OF_MILTERS, ids=str)
@mends(*(row[0] for row in OF_MILTERS), each=True)
def test_an_option_of_the_milter_as_the_mend_writes_it(postfix, name, spoil, mend):
    entry = "smtpd_milters={{ unix:dovelane/milter.sock, {} }}"
    postfix.edit("-e", entry.format(spoil))
    assert mend in postfix.finds(name).mend
    option = mend.partition("=")[0]
    postfix.edit("-e", entry.format(re.sub(rf"{option}=\w+", mend, spoil)))
    postfix.lacks(name)


@mends("milter-order", "milter-tcp")
def test_other_milters(postfix):
    other, ours = "inet:127.0.0.1:11332", "{ unix:dovelane/milter.sock, default_action=accept }"
    postfix.edit("-e", f"smtpd_milters={ours} {other}")
    assert postfix.finds("milter-order").mend == "put it last in smtpd_milters"
    postfix.edit("-e", f"smtpd_milters={other} {ours}")
    postfix.lacks("milter-order")
    assert postfix.finds("milter-tcp").mend == "its UNIX socket, where it has one"
    postfix.edit("-e", f"smtpd_milters=unix:/run/other.sock {ours}")
    postfix.lacks("milter-tcp")


@mends("milter-unasked")
def test_a_service_that_asks_no_milter(postfix):
    """As content filters' guides have the service to which they give mail back."""
    option = f"{postfix.smtp}/receive_override_options"
    postfix.edit("-P", f"{option}=no_unknown_recipient_checks,no_milters")
    assert postfix.finds("milter-unasked").mend == "receive_override_options without no_milters"
    postfix.edit("-P", f"{option}=no_unknown_recipient_checks")
    postfix.lacks("milter-unasked")


@mends("tls-line")
def test_a_line_that_tells_of_tls(postfix):
    postfix.edit("-e", "smtpd_tls_received_header=yes")
    ignore(postfix, postfix.finds("tls-line").mend)
    postfix.lacks("tls-line")
    postfix.write(ignore="{}")


@mends("milter-path")
def test_an_absolute_path_in_a_chroot(postfix):
    line, text = f"{postfix.smtp.partition('/')[0]} inet n - n - - smtpd", postfix.master.read_text()
    assert line in text
    postfix.edit("-e", "smtpd_milters={ unix:/dovelane/milter.sock, default_action=accept }")
    postfix.master.write_text(text.replace(line, line.replace("n - n - -", "n - y - -")))
    mend = postfix.finds("milter-path").mend
    postfix.edit("-e", f"smtpd_milters={{ {mend}, default_action=accept }}")
    postfix.lacks("milter-path")


@mends("milter-unused")
def test_a_milter_that_nobody_uses(postfix):
    postfix.edit("-e", "smtpd_milters=")
    option = re.match(r"-o \{ smtpd_milters = \{ unix:\S+, default_action=accept", postfix.finds("milter-unused").mend)[0]
    postfix.option(postfix.smtp, f"{option} }} }}")
    postfix.lacks("milter-unused")


@mends("own-users")
def test_a_service_of_our_own_users(postfix):
    postfix.edit("-M", "submission/inet=submission inet n - n - - smtpd")
    assert postfix.finds("own-users", about="submission").mend == "-o smtpd_milters without ours"
    postfix.edit("-P", "submission/inet/smtpd_milters=unix:/run/other.sock")
    postfix.lacks("own-users")
    for port in ("587", "127.0.0.1:465"):
        postfix.edit("-M", f"{port}/inet={port} inet n - n - - smtpd")
        postfix.finds("own-users", about=port)
        postfix.edit("-P", f"{port}/inet/smtpd_milters=unix:/run/other.sock")
        postfix.lacks("own-users")


@mends("maps-unseen")
def test_maps_that_nobody_looks_at(postfix, tmp_path):
    (tmp_path / "virtual").write_text("")
    postfix.edit("-e", f"virtual_alias_maps=regexp:{tmp_path}/virtual")
    name, _ = settings(postfix.finds("maps-unseen").mend)
    postfix.write(**{name: str(postfix.directory)})  # the mend has Debian's place
    postfix.lacks("maps-unseen")


def ignore(postfix, mend):
    postfix.write(ignore=re.search(r"ignore = (\{.*?\})", mend)[1])


@mends("table-result")
def test_a_result_of_a_table(postfix, tmp_path):
    table = tmp_path / "checks"
    table.write_text("/^Subject: x/ HOLD\n")
    postfix.edit("-e", f"header_checks=regexp:{table}")
    assert postfix.finds("table-result").mend.startswith("REJECT or DISCARD instead")
    mends_ = [each.mend for each in postfix.check.look(*postfix.where)[0]]  # other parameters have that one's value by default
    postfix.write(ignore="{ %s }" % ", ".join(re.search(r'ignore = \{ (".*?") \}', mend)[1] for mend in mends_))
    postfix.lacks("table-result")
    postfix.write(ignore="{}")
    table.write_text("/^Subject: x/ REJECT\n")
    postfix.lacks("table-result")
    postfix.edit("-e", "header_checks=", f"milter_header_checks=regexp:{table}")
    table.write_text("/^Subject: x/ DISCARD\n")
    assert postfix.finds("table-result").mend.startswith("REJECT instead")
    table.write_text("/^Subject: x/ REJECT\n")
    postfix.lacks("table-result")
    postfix.edit("-e", "milter_header_checks=")


@mends("cleanup-setting")
def test_a_setting_of_cleanup(postfix):
    postfix.edit("-e", "always_bcc=archive@example.org")
    mend = postfix.finds("cleanup-setting").mend
    ignore(postfix, mend)
    postfix.lacks("cleanup-setting")
    postfix.write(ignore="{}")
    assert "-o cleanup_service_name=NAME for this service, and a service NAME unix ... cleanup with -o always_bcc=" in mend
    postfix.edit("-M", "ours/unix=ours unix n - n - 0 cleanup")
    postfix.edit("-P", f"{postfix.smtp}/cleanup_service_name=ours", "ours/unix/always_bcc=")
    postfix.lacks("cleanup-setting")


@mends("transport-setting")
def test_a_setting_of_a_transport(postfix):
    before = postfix.entry["relay-mx1"].note["settings"].get("divert", "{}")
    postfix.write(divert='{ "smtp:[127.0.0.1]:24" }')
    postfix.edit("-e", "smtp_tls_security_level=verify", "lmtp_header_checks=regexp:{{/^X:/ IGNORE}}")
    postfix.edit("-e", "smtp_fallback_relay=relay.example")
    found, _ = postfix.check.look(*postfix.where)
    assert any("each host in brackets" in each.mend for each in found)
    postfix.edit("-e", "smtp_fallback_relay=")
    found = postfix.finds("transport-setting", about="master.cf")
    assert "`tls` in the destination's section, or ignore" in found.mend
    ignore(postfix, found.mend.partition(", or ")[2])
    postfix.lacks("transport-setting")
    postfix.write(ignore="{}")
    postfix.edit("-e", "smtp_tls_security_level=")
    postfix.lacks("transport-setting")  # of lmtp, which delivers to none of divert
    postfix.write(divert=before)


@mends("parameter-unknown")
def test_a_parameter_that_is_newer_than_we_are(postfix, tmp_path):
    """A postconf(1) that knows one more, as the next Postfix's will."""
    real, ours = shutil.which("postconf"), tmp_path / "bin"
    ours.mkdir()
    (ours / "postconf").write_text(f'#!/bin/sh\n{real} "$@" || exit\ncase "$*" in *-d) echo "of_the_future = 1";; esac\n')
    (ours / "postconf").chmod(0o755)
    there = Check(lambda *words: admin.run(postfix.entry, "check", *words, "postfix", path=ours).out)
    assert "of_the_future" in there.finds("parameter-unknown", *postfix.where).text
    postfix.lacks("parameter-unknown")


@mends("service-setting")
def test_a_setting_of_a_service(postfix):
    postfix.edit("-e", "content_filter=smtp:[127.0.0.1]:10024")
    mend = postfix.finds("service-setting").mend
    ignore(postfix, mend)
    postfix.lacks("service-setting")
    postfix.write(ignore="{}")
    postfix.edit("-P", f"{postfix.smtp}/{re.match(r'-o (content_filter=) for this service', mend)[1]}")
    postfix.lacks("service-setting")


@mends("our-name")
def test_a_name_without_a_dot(postfix):
    postfix.edit("-e", "myhostname=mx1")
    name, value = settings(postfix.finds("our-name").mend)
    postfix.write(**{name: value.strip('"')})
    postfix.lacks("our-name")
    postfix.write(host_name="")
    postfix.edit("-e", "myhostname=mx1.example.org")
    postfix.lacks("our-name")


@mends("no-postfix")
def test_no_postfix_there(postfix, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "say --postfix-config DIR" in postfix.check.finds("no-postfix", "--postfix-config", str(tmp_path / "empty")).mend
    postfix.lacks("no-postfix")


# ---- ports of our own ----

OF_PORTS = [("port-milters", "reinject", "smtpd_milters=unix:/run/other.sock"), ("port-delivers", "bounce", "content_filter="),
            ("port-poison", "reinject", "smtpd_helo_restrictions=permit")]


@pytest.mark.parametrize("name, port, spoil", OF_PORTS, ids=str)
@mends(*(row[0] for row in OF_PORTS), each=True)
def test_an_option_of_a_port_as_the_mend_writes_it(postfix, name, port, spoil):
    service = f"{postfix.entry['postfix'].note[port]}/inet"
    postfix.edit("-P", f"{service}/{spoil}")
    postfix.option(service, postfix.finds(name).mend)
    postfix.lacks(name)


@mends("hops")
def test_mail_with_many_hops(postfix):
    service = f"{postfix.entry['postfix'].note['reinject']}/inet"
    postfix.edit("-P", f"{service}/hopcount_limit=50", f"{service}/cleanup_service_name=cleanup")
    mend = postfix.finds("hops").mend
    assert re.match(r"-o hopcount_limit=1000 and -o cleanup_service_name=dovelane-reinject, and that service with -o hopcount_limit=1000", mend), mend
    postfix.edit("-M", "dovelane-reinject/unix=dovelane-reinject unix n - n - 0 cleanup")
    postfix.edit("-P", f"{service}/hopcount_limit=1000", f"{service}/cleanup_service_name=dovelane-reinject", "dovelane-reinject/unix/hopcount_limit=1000")
    postfix.lacks("hops")


def free_port():
    return f"127.0.0.1:{PORTS.take()}"


@mends("port-missing", "port-silent")
def test_a_port_that_is_not_there_and_then_not_yet(postfix):
    real = postfix.entry["postfix"].note["config_directory"]
    address = free_port()
    postfix.write(reinject_port=address)
    assert postfix.finds("port-missing").mend == "the lines of the admin guide in master.cf"
    block = re.search(rf"(?m)^{re.escape(postfix.entry['postfix'].note['reinject'])} inet.*\n(?:[ \t].*\n)*", postfix.master.read_text())[0]
    lines = block.replace(postfix.entry["postfix"].note["reinject"], address)
    postfix.master.write_text(postfix.master.read_text() + lines)
    postfix.lacks("port-missing")
    assert postfix.finds("port-silent").mend.startswith("systemctl start postfix; where it runs: postfix reload, when the lines of master.cf are right")
    master = Path(real) / "master.cf"
    before = master.read_text()
    master.write_text(before + lines)
    try:
        subprocess.run(["postfix", "-c", real, "reload"], check=True, timeout=60, stderr=subprocess.DEVNULL)
        eventually("it listens", lambda: "port-silent" not in postfix.check.run(*postfix.where))
        postfix.lacks("port-silent")
    finally:
        master.write_text(before)
        subprocess.run(["postfix", "-c", real, "reload"], check=True, timeout=60, stderr=subprocess.DEVNULL)


def greeter(words):
    """A server that says these words to whoever comes; its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def greet():
        while True:
            try:
                client, _ = server.accept()
                with client:
                    client.sendall(words)
            except OSError:
                return
    threading.Thread(target=greet, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


@mends("port-stranger")
def test_a_port_of_another_program(postfix):
    reinject, address = postfix.entry["postfix"].note["reinject"], greeter(b"220 other.example ESMTP \x1b[2JExim\r\n")
    text = postfix.master.read_text()
    postfix.master.write_text(text.replace(reinject, address))
    postfix.write(reinject_port=address)
    found = postfix.finds("port-stranger")
    assert found.mend.startswith("another port, here and in master.cf") and found.text.endswith("ESMTP \\x1b[2JExim")
    postfix.master.write_text(text)
    postfix.write(reinject_port=reinject)
    postfix.lacks("port-stranger")


@mends("port-bounces")
def test_a_port_that_bounces_what_comes_back(postfix):
    text = postfix.master.read_text()
    postfix.edit("-P", f"{postfix.entry['postfix'].note['reinject']}/inet/content_filter=error:x")
    assert postfix.finds("port-bounces").mend == "another port"
    address = free_port()
    block = re.search(rf"(?m)^{re.escape(postfix.entry['postfix'].note['reinject'])} inet.*\n(?:[ \t].*\n)*", text)[0]
    postfix.master.write_text(postfix.master.read_text() + block.replace(postfix.entry["postfix"].note["reinject"], address))
    postfix.write(reinject_port=address)
    postfix.lacks("port-bounces")


# ---- the proxy's way ----

class Proxied:
    """The copy with the two services of the proxy's way in, as examples/master-proxy.cf has them."""

    def __init__(self, postfix):
        self.postfix, self.next = postfix, greeter(b"220 mx.stack.example ESMTP Postfix\r\n")
        self.before, self.behind = "192.0.2.1:25/inet", f"{self.next}/inet"
        postfix.write(proxy_next=self.next, proxy_socket=f"{postfix.directory}/proxy.sock", route='{ "a.example=smtp:[192.0.2.1]:25" }')
        postfix.edit("-M", f"{self.before}=192.0.2.1:25 inet n - n - - smtpd", f"{self.behind}={self.next} inet n - n - - smtpd", "pcleanup/unix=pcleanup unix n - n - 0 cleanup")
        self.set(self.before, f"smtpd_proxy_filter=unix:{postfix.directory}/proxy.sock", "smtpd_milters=", "smtpd_proxy_timeout=100s")
        self.set(self.behind, "smtpd_milters=", "smtpd_authorized_xforward_hosts=127.0.0.0/8", "message_size_limit=0", "cleanup_service_name=pcleanup", "smtpd_proxy_filter=")
        self.set("pcleanup/unix", "message_size_limit=0")

    def set(self, service, *options):
        self.postfix.edit("-P", *(f"{service}/{option}" for option in options))


@pytest.fixture
def proxied(postfix):
    return Proxied(postfix)


def test_a_good_proxys_way_has_no_finding(proxied):
    assert re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", proxied.postfix.check.run(*proxied.postfix.where))


OF_PROXY = [("proxy-before-milters", "before", "smtpd_milters=unix:/run/x.sock"), ("proxy-timeout", "before", "smtpd_proxy_timeout=10s"),
            ("proxy-behind-proxy", "behind", "smtpd_proxy_filter=127.0.0.1:9"), ("proxy-behind-milters", "behind", "smtpd_milters=unix:/run/x.sock"),
            ("proxy-size", "behind", "message_size_limit=1000000"), ("proxy-xforward", "behind", "smtpd_authorized_xforward_hosts=")]


@pytest.mark.parametrize("name, service, spoil", OF_PROXY, ids=str)
@mends(*(row[0] for row in OF_PROXY), each=True)
def test_an_option_of_the_proxys_services_as_the_mend_writes_it(proxied, name, service, spoil):
    proxied.set(getattr(proxied, service), spoil)
    option = re.match(r"-o (\w+=[^ ,]*)", proxied.postfix.finds(name).mend)[1]
    proxied.set(getattr(proxied, service), option)
    proxied.postfix.lacks(name)


@mends("proxy-next-missing", "proxy-next-silent")
def test_nobody_behind_the_proxy(proxied):
    address = free_port()
    proxied.postfix.write(proxy_next=address)
    assert proxied.postfix.finds("proxy-next-missing").mend == "the lines of examples/master-proxy.cf"
    proxied.postfix.edit("-M", f"{address}/inet={address} inet n - n - - smtpd")
    proxied.postfix.lacks("proxy-next-missing")
    assert "`systemctl reload postfix`" in proxied.postfix.finds("proxy-next-silent").mend
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))):  # what a reload makes of it: test_a_port_that_is_not_there_and_then_not_yet
        proxied.postfix.lacks("proxy-next-silent")


@mends("route-empty")
def test_a_proxy_without_routes(proxied):
    proxied.postfix.write(route="{}")
    name, value = settings(proxied.postfix.finds("route-empty").mend)
    proxied.postfix.write(**{name: value})
    proxied.postfix.lacks("route-empty")


# ---- next hops, and this host's Dovecot ----

@mends("hop-silent", "hop-socket")
def test_next_hops_that_do_not_answer(conf):
    address, path = free_port(), conf.directory / "lmtp"
    away = f"[127.0.0.1]:{free_port().partition(':')[2]}"
    conf.write(divert=f'{{ "smtp:[127.0.0.1]:{address.partition(":")[2]}", "lmtp:unix:{path}" }}')
    assert conf.check.finds("hop-silent", "dovecot").mend == "start it, or open the way to it"
    assert conf.check.finds("hop-socket", "dovecot").mend == "start it, or mend its unix_listener"
    with socket.create_server(("127.0.0.1", int(address.partition(":")[2]))), socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        conf.check.lacks("hop-silent", "dovecot")
        conf.check.lacks("hop-socket", "dovecot")
        conf.write(divert=f'{{ "smtp:{away}, [127.0.0.1]:{address.partition(":")[2]}" }}')
        said = conf.check.finds("hop-silent", "dovecot").text
        assert "the list's mail is tried at its other hosts" in said, said


@mends("hop-private")
def test_a_socket_that_is_postfixs_alone(conf):
    name = conf.directory / "private" / "lmtp"
    conf.write(divert=f'{{ "lmtp:unix:{name}" }}')
    assert conf.check.finds("hop-private", "dovecot").mend == "one more unix_listener in service lmtp for the relay's user, and socket_at (admin guide)"
    path = conf.directory / "lmtp"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        conf.write(socket_at=f'{{ "{name}={path}" }}')
        conf.check.lacks("hop-private", "dovecot")


def dovecot_of(conf):
    """A file that takes the place of this host's dovecot.conf for check, and the lines that its version begins with."""
    version = subprocess.run(["dovecot", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.split()[0].partition("-")[0]
    form = "" if version.startswith("2.3") else f"dovecot_config_version = {version}\ndovecot_storage_version = {version}\n"
    theirs = conf.directory / "dovecot.conf"
    script = f'mount --bind {theirs} /etc/dovecot/dovecot.conf && exec "$0" "$@"'
    conf.check.run = lambda *words: command(conf.path, *words, before=("unshare", "--mount", "--propagation", "private", "sh", "-c", script))
    return theirs, form


@pytest.mark.skipif(not shutil.which("doveconf"), reason="no Dovecot here")
@mends("replicator-user")
def test_a_replicator_that_runs_as_the_relays_user(conf):
    theirs, form = dovecot_of(conf)
    services = form + (ROOT / "packaging/examples/dovecot-replication-services.conf").read_text()
    theirs.write_text(services.replace("user = dovelane-replicator", "user = dovelane"))
    name, value = settings(conf.check.finds("replicator-user", "dovecot").mend)
    theirs.write_text(services.replace("user = dovelane-replicator", f"{name} = {value}"))
    conf.check.lacks("replicator-user", "dovecot")


@pytest.mark.skipif(not shutil.which("doveconf"), reason="no Dovecot here")
@mends("user-concurrency")
def test_a_dovecot_that_takes_few_deliveries_for_one_user(conf):
    theirs, form = dovecot_of(conf)
    theirs.write_text(f"{form}lmtp_user_concurrency_limit = 2\n")
    name, value = settings(conf.check.finds("user-concurrency", "dovecot").mend)
    theirs.write_text(f"{form}{name} = {value}\n")
    conf.check.lacks("user-concurrency", "dovecot")
