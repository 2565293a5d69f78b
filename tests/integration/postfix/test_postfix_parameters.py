"""Postfix's parameters, as lib/postfix/parameters.def classifies them: all that the installed Postfix knows are there, and each that keeps mail in
Postfix does. docs/postfix-parameters.md is made from the same table."""
import re
import shutil
import smtplib
import subprocess
from contextlib import contextmanager
from pathlib import Path

from support import admin
import pytest
from support import scripted_hops
from support.lane_server import BUILD
from support.stack import programs
from test_disk_first import Setting, clear, diverts, left, line_of, log, system  # pylint: disable=unused-import
from support.mail import bodies, postqueue, send
from support.waiting import eventually

# What else than "yes", "no" and a table a parameter takes.
VALUES = {"line_length_limit": "512", "tcp_port": "2525", "tls_security_level": "verify",
          "dns_resolver_options": "res_debug", "discard_ehlo_keywords": "chunking", "discard_lhlo_keywords": "chunking",
          "destination_rate_delay": "3s", "transport_rate_delay": "3s", "content_filter": "smtp:[127.0.0.1]:9", "smtpd_proxy_filter": "127.0.0.1:9",
          "always_bcc": "a@b.example", "masquerade_domains": "b.example", "defer_transports": "smtp"}
AGENTS = {"smtp": "smtp:[127.0.0.1]:24", "lmtp": "lmtp:unix:/nobody"}


def rows():
    said = subprocess.run([BUILD / "lib" / "parameters-doc", "rows"], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    return [line.split("\t") for line in said.splitlines()]


def spoiled(name, off):
    """A value with which the parameter acts."""
    words = off.split("|")
    return VALUES.get(name) or ("no" if "yes" in words else "yes" if "no" in words else "inline:{{x = y}}")


# What `postconf -d` of each version has that the one before had not.
NEW = {
    "3.8": "allow_srv_lookup_fallback ignore_srv_lookup_error smtpd_client_ipv4_prefix_length "
           "smtpd_client_ipv6_prefix_length tls_ffdhe_auto_groups use_srv_lookup",
    "3.9": "force_mime_input_conversion lmtp_sasl_password_result_delimiter lmtp_tls_enable_rpk "
           "maillog_file_permissions smtp_sasl_password_result_delimiter smtp_tls_enable_rpk "
           "smtpd_tls_enable_rpk tlsproxy_tls_enable_rpk",
    "3.10": "full_name_encoding_charset lmtp_tls_enforce_sts_mx_patterns lmtp_tlsrpt_enable "
            "lmtp_tlsrpt_skip_reused_handshakes lmtp_tlsrpt_socket_name "
            "smtp_tls_enforce_sts_mx_patterns smtp_tlsrpt_enable "
            "smtp_tlsrpt_skip_reused_handshakes smtp_tlsrpt_socket_name "
            "smtpd_hide_client_session socketmap_max_reply_size tls_required_enable",
    "3.11": "default_cache_db_type lmtp_log_tls_feature_status lmtp_requiretls_policy "
            "non_bdb_custom_mapping non_bdb_migration_allow_root_prefixes "
            "non_bdb_migration_allow_user_prefixes non_bdb_migration_level "
            "non_bdb_migration_log_redirect non_bdb_migration_service_name "
            "non_empty_end_of_header_action relocated_prefix_enable requiretls_enable "
            "requiretls_esmtp_header requiretls_redact_dsn smtp_log_tls_feature_status "
            "smtp_requiretls_policy smtpd_reject_filter_maps"}


@pytest.mark.check
@pytest.mark.parametrize("version", NEW)
def test_the_table_has_what_later_versions_brought(version):
    names = {prefix + name for name, kind, *_ in rows() for prefix in ("", "smtp_", "lmtp_")
             if (kind == "agent") == bool(prefix)}
    assert not [name for name in NEW[version].split() if name not in names]


class Copy:
    """A copy of the stack's configuration, for `dovelane check`."""

    def __init__(self, entry, tmp_path):
        self.entry, self.directory = entry, tmp_path / "conf"
        shutil.copytree(entry["postfix"].note["config_directory"], self.directory)
        self.main = self.directory / "main.cf"
        self.clean = self.main.read_text()
        self.write(milter_socket=entry["milter"].note["socket"], state_directory=str(tmp_path), ignore="{}",
                   divert="{" + ", ".join(f'"{hop}"' for hop in AGENTS.values()) + "}",
                   **{f"{way}_port": entry["postfix"].note[way] for way in ("reinject", "bounce")})

    def write(self, **settings):
        programs.write_settings(self.entry["relay-mx1"], settings)

    def check(self):
        return admin.run(self.entry, "check", "-v", "--postfix-config", self.directory, "postfix").out

    @contextmanager
    def having(self, *settings):
        subprocess.run(["postconf", "-c", self.directory, "-e", *settings], check=True, timeout=60)
        yield self.check()
        self.main.write_text(self.clean)


@pytest.fixture
def copy(system, tmp_path):
    kept = dict(system["relay-mx1"].note["settings"])
    yield Copy(system, tmp_path)
    programs.write_settings(system["relay-mx1"], kept)


def test_the_installed_postfix_has_no_parameter_that_the_table_lacks(copy):
    assert "parameter-unknown" not in copy.check()


def forbidding(copy):
    """(name as postconf(1) prints it, the values with which it does nothing, the next hop that it is about or None) of each that this Postfix has."""
    known = subprocess.run(["postconf", "-c", copy.directory, "-d"], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    for name, prefix, klass, reader, off, _ in rows():
        if klass != "keeps mail in Postfix" or "proxy" in reader or "without brackets" in reader:
            continue
        agents = [""] if prefix == "plain" else AGENTS
        for agent in agents:
            full = f"{agent}_{name}" if agent else name
            if re.search(rf"(?m)^{full} =", known):  # else of another version, or of one of both agents
                yield full, spoiled(name, off), off.split("|"), AGENTS.get(agent, "")


def test_each_that_keeps_mail_in_postfix_is_found(copy):
    found = list(forbidding(copy))
    assert len(found) > 50
    with copy.having(*(f"{name}={value}" for name, value, _, _ in found)) as said:
        for name, value, _, hop in found:
            assert re.search(rf"(?m)^CRITICAL.*\b{name} = {re.escape(value[:8])}.*{re.escape(hop)}", said), (name, value, said)
    for turn in range(max(len(off) for _, _, off, _ in found)):
        with copy.having(*(f"{name}={off[min(turn, len(off) - 1)]}" for name, _, off, _ in found)) as said:
            assert "CRITICAL" not in said, said


def test_what_a_transport_of_its_own_says_counts_for_it(copy):
    with copy.having("default_destination_rate_delay=2s", "lmtp_destination_rate_delay=0s") as said:
        assert AGENTS["smtp"] in said and AGENTS["lmtp"] not in said and "smtp_destination_rate_delay = 2s" in said, said


def test_what_is_given_up_is_told_when_it_is_set(copy):
    with copy.having("delay_warning_time=4h", "smtp_connect_timeout=5s") as said:
        assert re.search(r"ok .*not for diverted mail: delay_warning_time: no notice of delay", said), said
        assert re.search(r"ok .*not for diverted mail: smtp_connect_timeout: ", said), said


def test_a_section_stands_in_for_the_parameter(copy):
    with copy.having("smtp_tls_security_level=verify") as said:
        assert "smtp_tls_security_level = verify" in said
        with Path(copy.entry["relay-mx1"].note["conf"]).open("a", encoding="utf-8") as conf:
            conf.write(f'\ndestination "{AGENTS["smtp"]}" {{ tls = encrypt }}\n')
        assert "smtp_tls_security_level = verify" not in copy.check()


def test_options_of_a_delivery_agent(copy):
    master = copy.directory / "master.cf"
    before = master.read_text()
    for options, said in (("-o smtp_header_checks=regexp:{{/^X:/ IGNORE}}", "smtp_header_checks = "),
                          ("-o { smtp_generic_maps = inline:{ a=b } }", "smtp_generic_maps = "),
                          ("flags=DORX", "flags = DORX"),
                          ("-o syslog_name=postfix/out", None)):
        master.write_text(re.sub(r"(?m)^(smtp +unix .* smtp)$", rf"\1 {options}", before))
        found = re.findall("CRITICAL.*", copy.check())
        assert (said in found[0] and AGENTS["smtp"] in found[0] and len(found) == 1) if said else not found, (options, found)


def test_an_option_that_acts_by_another_parameter_or_in_another_service(copy):
    master = copy.directory / "master.cf"
    before = master.read_text()
    for service, options, said in (
            ("smtp", "-o fallback_relay=relay.example", "smtp_fallback_relay = relay.example of smtp/unix"),
            ("smtp", "-o { default_delivery_status_filter = inline:{ { 5.7.1 = 4.7.1 } } }", "smtp_delivery_status_filter = "),
            ("smtp", "-o soft_bounce=yes", "soft_bounce = yes of smtp/unix"),
            ("smtp", "-osoft_bounce=yes", "-oNAME=VALUE = smtp/unix: write -o NAME=VALUE"),
            ("smtp", "{ flags=DR }", "flags = DR"),
            ("qmgr", "-o soft_bounce=yes", "soft_bounce = yes"),
            ("qmgr", "-o defer_transports=smtp", "defer_transports = smtp"),
            ("qmgr", "-o default_destination_rate_delay=3s", "smtp_destination_rate_delay = 3s"),
            ("cleanup", "-oalways_bcc=o@x.example", "-oNAME=VALUE = cleanup/unix"),
            ("qmgr", "-o syslog_name=postfix/q", None)):
        master.write_text(re.sub(rf"(?m)^({service} +unix .* {service})$", rf"\1 {options}", before))
        assert master.read_text() != before
        found = "\n".join(re.findall("CRITICAL.*", copy.check()))
        assert said in found if said else not found, (options, found)


def test_a_transport_that_another_agent_serves(copy):
    """With smtp(8) taken out of master.cf nothing is to leave the host."""
    master = copy.directory / "master.cf"
    before = master.read_text()
    for instead, said in (("smtp unix - - n - - discard", "smtp/unix = discard"), ("smtp unix - - n - - error", "smtp/unix = error"),
                          ("smtp unix - - n - - lmtp", "smtp/unix = lmtp"), ("#", "smtp/unix = no service of master.cf")):
        master.write_text(re.sub(r"(?m)^smtp +unix .* smtp$", instead, before))
        found = re.findall("CRITICAL.*", copy.check())
        assert found and all(said in line and AGENTS["smtp"] in line for line in found), (instead, found)
    master.write_text(before)
    with copy.having("master_service_disable=smtp/unix, foo.inet") as said:
        assert re.search(f"CRITICAL.*master_service_disable = smtp/unix.*{re.escape(AGENTS['smtp'])}", said) and AGENTS["lmtp"] not in said, said


def test_a_service_that_resolves_by_another_trivial_rewrite(copy):
    master = copy.directory / "master.cf"
    before = master.read_text()
    master.write_text(re.sub(r"(?m)^(\S+ +inet .* smtpd)$", r"\1 -o rewrite_service_name=other", before))
    assert re.search("CRITICAL.*rewrite_service_name = other", copy.check())


# ---- and mail stays ----

@contextmanager
def service(running, name, options):
    """A service of the running master.cf with more behind its command, for a while."""
    master = Path(running["postfix"].note["config_directory"]) / "master.cf"
    setting = Setting(running, "")
    before = master.read_text()
    master.write_text(re.sub(rf"(?m)^({name} +unix .* \w+)$", rf"\1 {options}", before))
    setting.reload(setting.before)
    yield
    master.write_text(before)
    setting.reload(setting.before)
    eventually(lambda: log(running)[-2000:], lambda: diverts(running))


@pytest.mark.long
@pytest.mark.parametrize("text", [
    "smtp_header_checks = regexp:{ { /^User-Agent:/ IGNORE } }", "smtp_delivery_status_filter = inline:{ { 5.7.1 = 4.7.1 } }",
    "default_delivery_status_filter = inline:{ { 5.7.1 = 4.7.1 } }", "smtp_reply_filter = regexp:{ { /^5/ 450 4.0.0 later } }",
    "smtp_fallback_relay = [127.0.0.1]:9, relay.example", "smtp_destination_rate_delay = 1s"])
def test_mail_of_a_transport_stays(system, text):
    with Setting(system, text):
        left(system, "x@a.example", "postfix")
        name = text.partition(" ")[0].replace("default_delivery", "smtp_delivery")
        assert f"is not diverted: {name} = " in log(system)


def test_options_of_the_running_agent_count(system):
    with service(system, "smtp", "-o smtp_header_checks=regexp:{{/^User-Agent:/ IGNORE}}"):
        left(system, "x@a.example", "postfix")
    with service(system, "smtp", "flags=DOR"):
        left(system, "x@a.example", "postfix")
    with service(system, "lmtp", "flags=DOR"):
        assert diverts(system)


@pytest.mark.long
@pytest.mark.parametrize("text, finding", [
    ("soft_bounce = yes", "soft_bounce = yes"),
    ("milter_header_checks = regexp:{ { /^X-Spam: / REDIRECT spam@plain.example } }", "milter_header_checks = "),
    ("milter_header_checks = regexp:{ { /^X-Spam: / DISCARD } }", "milter_header_checks = "),
    ("header_checks = regexp:{ { /^Received:.*by mx/ IGNORE } }", "header_checks = ")])
def test_all_mail_stays(system, text, finding):
    with Setting(system, text, finding):
        left(system, "x@a.example", "postfix")


@pytest.mark.long
def test_each_table_of_a_union_is_watched(system, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a@nobody.example OK\n")
    second.write_text("b@nobody.example HOLD\n")
    text = f"smtpd_client_restrictions = check_sender_access unionmap:{{texthash:{first}, texthash:{second}}}"
    with Setting(system, text, "smtpd_client_restrictions"):
        left(system, "x@a.example", "postfix")
        second.write_text("b@nobody.example OK\n")
        eventually(lambda: log(system)[-2000:], lambda: diverts(system))


def test_a_deferred_transport_waits_in_postfix(system):
    with Setting(system, "defer_transports = smtp"):
        left(system, "x@a.example", "postfix")
        eventually(lambda: postqueue(system),
                   lambda: {item["queue_name"] for item in postqueue(system)} == {"deferred"})
        subprocess.run(["postsuper", "-c", system["postfix"].note["config_directory"], "-d", "ALL"], check=True, capture_output=True, timeout=60)


def taken_with_xverp(system):
    """One that was there before the setting refuses MAIL FROM."""
    try:
        _, text = send(system, "x@a.example", mail_options=["XVERP"])
    except AssertionError:
        return False
    return "action=queue reason=postfix XVERP" in line_of(system, text)


def test_a_mail_with_xverp_is_postfixs(system):
    with Setting(system, "smtpd_authorized_verp_clients = 127.0.0.0/8"):
        eventually("an smtpd that has read the setting", lambda: taken_with_xverp(system))


# ---- our Received line ----

def received(running, *commands):
    """The Received line of a mail in a lane, of a session with these commands behind EHLO; None when the mail stayed Postfix's."""
    clear(running)
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.ehlo("client.example")
        for command in commands:
            assert client.docmd(command)[0] == 220, command
        client.ehlo("client.example")
        client.sendmail("s@x.example", ["x@a.example"], b"Subject: x\r\n\r\nhello\r\n")
    eventually(lambda: log(running)[-2000:], lambda: bodies(running) or postqueue(running))
    found = bodies(running)
    return re.match(rb"Received: (?:[^\r]|\r\n\t)*", found[0][1])[0].decode() if found else None


def test_the_login_stands_where_postfix_would_write_it(system):
    xclient = "smtpd_authorized_xclient_hosts = 127.0.0.0/8"
    with Setting(system, xclient):
        line = received(system, "XCLIENT LOGIN=u@x.example")
        assert "Authenticated" not in line and "with ESMTPA id" in line, line
    with Setting(system, f"{xclient}\nsmtpd_sasl_authenticated_header = yes"):
        eventually(lambda: log(system)[-2000:],
                   lambda: "Authenticated" in received(system, "XCLIENT LOGIN=u@x.example"))
        line = received(system, r"XCLIENT LOGIN=a(+29b(\c")
        assert re.match(r"Received: from client\.example \(\S+ \[127\.0\.0\.1\]\)\r\n\t\(Authenticated sender: a\(\)b\(\?c\)\)\r\n\tby mx", line), line
        assert "Authenticated" not in received(system)


def test_what_hides_the_client_hides_it_in_our_line(system):
    if subprocess.run(["postconf", "-d", "smtpd_hide_client_session"], capture_output=True, check=False, timeout=60).stderr:
        pytest.skip("Postfix below 3.10 has no smtpd_hide_client_session")
    with Setting(system, "smtpd_hide_client_session = yes"):  # of Postfix 3.10
        eventually(lambda: log(system)[-2000:],
                   lambda: re.match(r"Received: by mx\.stack\.example \(Dovelane\) id \w+\r\n\tfor <x@a\.example>; ", received(system)))


def test_a_mail_by_tls_is_postfixs_where_its_line_tells_of_tls(system, tmp_path):
    scripted_hops.certificates(tmp_path)
    tls = f"smtpd_tls_security_level = may\nsmtpd_tls_chain_files = {tmp_path}/server.key, {tmp_path}/server.pem"
    with Setting(system, f"{tls}\nsmtpd_tls_received_header = yes"):
        def by_tls():
            host, _, port = system.smtp.rpartition(":")
            with smtplib.SMTP(host, int(port)) as client:
                if not client.ehlo("client.example")[1].count(b"STARTTLS"):
                    return b"queued as NONE"    # an smtpd of before the reload
                client.starttls()
                client.ehlo("client.example")
                client.mail("s@x.example")
                client.rcpt("x@a.example")
                return client.data(b"Subject: x\r\n\r\nhello\r\n")[1]
        eventually(lambda: log(system)[-2000:],
                   lambda: "action=queue reason=postfix smtpd_tls_received_header" in line_of(system, by_tls()))
        assert diverts(system)  # of a session without TLS
        system.configure(ignore='{ "smtpd_tls_received_header" }')
        system.restart("milter")
        try:
            eventually(lambda: log(system)[-2000:],
                       lambda: "action=lane" in line_of(system, by_tls()))
        finally:
            system.configure(ignore=None)
            system.restart("milter")
