"""dovelane route: what would become of a mail, asked of a running Postfix, and true when the mail is sent."""
import contextlib
import re
import shutil
import smtplib
import subprocess
from pathlib import Path

from support import admin
import pytest
from support.stack import SinkShape, Stack, programs
from support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def running():
    with Stack(postfix="divert", sinks=[SinkShape("a", [], ours=True)]) as entry:
        # The milter's own host has one file for all; here the relay's must say the same.
        ours, milters = entry["relay-mx1"], entry["milter"].note["settings"]
        keys = ("milter_socket", "postfix_config", "divert", "ignore")
        programs.write_settings(ours, {key: milters[key] for key in keys if key in milters})
        yield entry


@contextlib.contextmanager
def settings(entry, **changes):
    """Of the relay's host, with these changes. Each test finds them as the others did: which ran
    before it depends on the share of the tier."""
    host = entry["relay-mx1"]
    before = {name: host.note["settings"][name] for name in changes if name in host.note["settings"]}
    programs.write_settings(host, changes)
    try:
        yield
    finally:
        for name in changes:
            host.note["settings"].pop(name)
        programs.write_settings(host, before)


@contextlib.contextmanager
def divert_off(entry):
    admin.done(entry, "divert", "off")
    try:
        yield
    finally:
        admin.done(entry, "divert", "on")


def route(entry, *words):
    """What it says, of which the last line is always the verdict."""
    said = admin.run(entry, "route", "--postfix-config", entry["postfix"].note["config_directory"], *words)
    if said.status != 2:
        assert re.fullmatch("  diverted   yes: to lanes on 2 nodes" if said.status == 0 else "  diverted   no: Postfix's own queue", said.out.splitlines()[-1]), said
    return said


def fate(entry, recipient, sender="s@example.org"):
    """What the milter did with a mail: "lane", or the reason."""
    host, _, port = entry.smtp.rpartition(":")
    log = Path(entry["milter"].log)
    seen = len(log.read_text())
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(sender, [recipient], "Subject: x\r\n\r\ntext\r\n")
    found = eventually("the milter logs it", lambda: re.search(r"action=([a-z]+)(?: reason=([a-z-]+))?", log.read_text()[seen:]))
    return found[2] or found[1]


def test_a_mail_that_is_diverted(running):
    said = route(running, "--sender", "s@example.org", "x@a.example")
    assert said.status == 0 and re.search(r"next hop +smtp:\[127\.0\.0\.1\]:\d+\n", said.out) and "diverted   yes: to lanes on 2 nodes" in said.out, said
    assert fate(running, "x@a.example") == "lane"


def test_divert_off_is_a_reason(running):
    with divert_off(running):
        said = route(running, "x@a.example")
        assert said.status == 1 and "reason=divert-off" in said.out and "diverted   no: Postfix's own queue" in said.out, said
        assert fate(running, "x@a.example") == "divert-off"


def test_a_next_hop_that_is_not_in_divert(running):
    with settings(running, divert="{}"):
        said = route(running, "x@a.example")
    assert said.status == 1 and re.search(r'because +reason=not-in-divert: `divert` has no "smtp:\[127\.0\.0\.1\]:\d+"', said.out), said


def test_an_address_that_postfix_does_not_deliver(running):
    conf = running["postfix"].note["config_directory"]
    said = route(running, "x@nowhere.invalid.")
    assert said.status in (0, 1) and "next hop" in said.out, said
    subprocess.run(["postconf", "-c", conf, "-h", "transport_maps"], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_a_map_that_cannot_be_asked_is_no_answer(running):
    conf = running["postfix"].note["config_directory"]
    before = subprocess.run(["postconf", "-c", conf, "-h", "transport_maps"], check=True, timeout=60, capture_output=True, text=True).stdout.strip()

    def use(value):
        subprocess.run(["postconf", "-c", conf, "-e", f"transport_maps={value}"], check=True, timeout=60)
        subprocess.run(["postfix", "-c", conf, "reload"], check=True, timeout=60)
    use(f"{before} socketmap:inet:127.0.0.1:1:none")
    try:
        eventually("the map is asked", lambda: "could not ask one of its maps" in route(running, "x@elsewhere.example").err)
        assert route(running, "x@elsewhere.example").status == 2
    finally:
        use(before)
    eventually("it is asked no more", lambda: route(running, "x@elsewhere.example").status != 2)


def test_hold_rules_that_would_hold_it_or_may(running):
    admin.done(running, "hold", "--add", "--recipient", "*@a.example")
    admin.done(running, "hold", "--add", "--rcpt", "*@a.example", "--header", "^subject: .*invoice")
    admin.done(running, "hold", "--add", "--rcpt", "*@b.example")
    try:
        said = route(running, "x@a.example")
    finally:
        for number in (3, 2, 1):
            admin.done(running, "hold", "--remove", number)
    assert said.out.index("held ") < said.out.index("diverted ")
    assert said.status == 0 and re.findall(r"held +(yes|perhaps), by rule (\d)", said.out) == [("yes", "1"), ("perhaps", "2")], said


def test_postfix_settings_and_maps_that_keep_it_from_lanes(running, tmp_path):
    """By the milter's own eyes (postfix_config), on a copy of the configuration, which names the running Postfix's queue directory."""
    copy = tmp_path / "conf"
    shutil.copytree(running["postfix"].note["config_directory"], copy)
    with settings(running, postfix_config=str(copy)):
        assert admin.run(running, "route", "x@a.example").status == 0
        (tmp_path / "virtual").write_text("/^x@a\\.example$/ y@a.example\n")
        subprocess.run(["postconf", "-c", copy, "-e", f"virtual_alias_maps=regexp:{tmp_path}/virtual"], check=True, timeout=60)
        said = admin.run(running, "route", "x@a.example")
        assert said.status == 1 and re.search(r"reason=map: <x@a.example>, by virtual_alias_maps", said.out), said
        assert admin.run(running, "route", "z@a.example").status == 0
        subprocess.run(["postconf", "-c", copy, "-e", "always_bcc=archive@example.org"], check=True, timeout=60)
        said = admin.run(running, "route", "z@a.example")
        assert said.status == 1 and "reason=postfix: always_bcc" in said.out, said


def test_a_milter_that_no_smtpd_asks(running, tmp_path):
    """Named nowhere, or named by a service that is told to ask none."""
    copy = tmp_path / "conf"
    shutil.copytree(running["postfix"].note["config_directory"], copy)
    with settings(running, postfix_config=str(copy)):
        assert admin.run(running, "route", "x@a.example").status == 0
        for line in ("receive_override_options=no_milters", "smtpd_milters=unix:/nowhere"):
            subprocess.run(["postconf", "-c", copy, "-e", line], check=True, timeout=60)
            said = admin.run(running, "route", "x@a.example")
            assert said.status == 1 and "reason=unasked: no smtpd(8)" in said.out, said
            subprocess.run(["postconf", "-c", copy, "-X", line.split("=")[0]], check=True,
                           timeout=60)


def test_what_it_cannot_know_is_said(running, tmp_path):
    said = admin.run(running, "route", "--postfix-config", tmp_path, "x@a.example")
    assert said.status == 2 and "postconf does not work here" in said.err, said
    assert admin.run(running, "route").status == 2 and admin.run(running, "route", "").status == 2


@pytest.mark.parametrize("given, written", [
    ("x%a.example", "x@a.example"), ("a.example!x", "x@a.example"), ("x@a.example.", "x@a.example"),
    ('"x"@a.example', "x@a.example"), ('"x y"@a.example', None), ("x@A.Example", None)])
def test_addresses_that_postfix_writes_anew(running, given, written):
    """trivial-rewrite is asked as smtpd asks it: what the milter sees is what this says, and it is Postfix's work."""
    said = route(running, given)
    if written:
        assert f", as <{written}>\n" in said.out and f"reason=rewritten: Postfix writes it as <{written}>" in said.out and said.status == 1, said
    else:
        assert said.status == 0 and ", as <" not in said.out, said
    fates = fate(running, given)
    assert fates == "lane" if said.status == 0 else f"reason={fates}:" in said.out, (fates, said)


def test_an_address_without_a_domain_gets_postfixs_own(running):
    said = route(running, "nodomain")
    assert said.status == 1 and ", as <nodomain@mx.stack.example>\n" in said.out, said


def test_a_sender_that_postfix_writes_anew(running):
    said = route(running, "--from", "s%b.example", "x@a.example")
    assert said.status == 1 and "reason=rewritten: Postfix writes the sender <s%b.example> as <s@b.example>" in said.out, said
    assert fate(running, "x@a.example", "s%b.example") == "rewritten"


def test_the_proxys_way_goes_by_the_setting_route(running):
    """Postfix is not asked where it goes, and need not run; what follows is what dovelane-proxy does (test_proxy.py: its reasons)."""
    hop = re.search(r"next hop +(\S+)", route(running, "x@a.example").out)[1]
    table = f'{{ "a.example={hop}", ".b.example=smtp:[192.0.2.1]:25" }}'
    # This Postfix is the milter's: by it diverted mail would miss a milter on the proxy's way.
    with settings(running, postfix_config="", route=table):
        for words, status, what in ((("x@a.example",), 0, f"next hop   {hop}\n"), (("x@A.EXAMPLE",), 0, f"next hop   {hop}\n"),
                                    (("x@c.b.example",), 1, 'reason=not-in-divert: `divert` has no "smtp:[192.0.2.1]:25"'),
                                    (("x@elsewhere.example",), 1, "reason=no-route: `route` has nothing for <x@elsewhere.example>"),
                                    (("x%y@a.example",), 1, "reason=rewritten"), (("nodomain",), 1, "reason=rewritten"),
                                    (("--sender", '"s t"@b.example', "x@a.example"), 1, "reason=rewritten: Postfix may write the sender")):
            said = admin.run(running, "route", "--proxy", *words)
            assert said.status == status and what in said.out, said
            assert re.match("  diverted   (yes|no): ", said.out.splitlines()[-1]), said
        with divert_off(running):
            assert "reason=divert-off" in admin.run(running, "route", "--proxy", "x@a.example").out


def test_nothing_of_an_address_drives_the_terminal(running):
    for words in (("x\x1b[2J@a.example",), ("--sender", "s\x9b1m\x07@b.example", "x@a.example"), ("--proxy", "x\x1b]0;t\x07@a.example")):
        said = route(running, *words)
        assert not [c for c in said.out + said.err if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"], said
