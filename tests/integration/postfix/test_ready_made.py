"""Postfix as ready-made mail servers set it: docker-mailserver, mailcow and Mailu (docs/stacks.md).
What of their settings acts on a mail for a mailbox is here, in our words; their programs are not.
The same mail goes through such a Postfix alone and through Dovelane, as in test_byte_identity.py."""
import re
import smtplib
import socketserver
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from support.scripted_hops import certificates
from support.stack import pymilter
from support.raw_mail import BODIES, HEADER, Message
from test_byte_identity import Ways, envelope_of, eventually
from test_postfix_sameness import alike

pytestmark = pytest.mark.long

# What all three have, and a test's Postfix has not by itself.
ALL = {"smtpd_helo_required": "yes", "recipient_delimiter": "+", "smtpd_forbid_bare_newline": "no",
       "compatibility_level": "3.6", "disable_vrfy_command": "yes", "smtpd_delay_reject": "yes"}


def inner(hops):
    """LMTP to another container, by name: Dovecot's."""
    hops["inner"] = hops["lmtp"]
    return {"inner.example": f"lmtp:inet:localhost:{hops['lmtp'].port}"}


class Shape(Ways):
    """Both ways in have a content milter, by TCP as between containers; ours has our own behind."""

    def __init__(self, postconf, master=lambda text, _: text, settings=()):
        super().__init__(inner, settings, ALL | postconf)
        self.front = pymilter.Server(("127.0.0.1", 0), pymilter.Session)
        threading.Thread(target=self.front.serve_forever, daemon=True).start()
        front = f"inet:127.0.0.1:{self.front.server_address[1]}"
        self.config = Path(self.system["postfix"].note["config_directory"])
        self.change("main.cf", lambda text: text.replace("smtpd_milters = ",
                                                         f"smtpd_milters = {front}, ", 1))
        self.change("master.cf", lambda text: re.sub("smtpd_milters=inet:.*",
                                                     f"smtpd_milters={front}", text))
        self.change("master.cf", lambda text: master(text, self.system.smtp))
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True)
        self.wait_able()

    def change(self, name, how):
        path = self.config / name
        before = path.read_text()
        path.write_text(how(before))
        assert path.read_text() != before or name == "master.cf"

    def same(self, message, name="inner"):
        stock, ours = self.both(message, name)
        assert "action=lane" in self.milter_line(), self.milter_line()
        assert [alike(mail.wire) for mail in ours] == [alike(mail.wire) for mail in stock]
        assert [envelope_of(mail) for mail in ours] == [envelope_of(mail) for mail in stock]
        return stock, ours

    def stays(self, message, why, name="inner"):
        self.both(message, name)
        assert re.search(f"action=queue reason={why}", self.milter_line()), self.milter_line()

    def end(self):
        super().end()
        self.front.shutdown()
        self.front.server_close()


@pytest.fixture
def shape():
    made = []

    def make(*how, **more):
        made.append(Shape(*how, **more))
        return made[0]
    yield make
    for each in made:
        each.end()


def behind_postscreen(text, smtp):
    """smtpd(8) gets its clients from postscreen(8), and our milter is the smtpd's."""
    return text.replace(f"{smtp} inet n - n - - smtpd",
                        f"{smtp} inet n - n - 1 postscreen\nsmtpd pass - - n - - smtpd\n"
                        "tlsproxy unix - - n - 0 tlsproxy\ndnsblog unix - - n - 0 dnsblog", 1)


def test_docker_mailserver(shape):
    """With rspamd. Aliases in a file, header_checks, LMTP; what goes out has checks of its own."""
    ways = shape({"header_checks": "regexp:{ {/^X-Mailer:/ IGNORE} "
                                   "{/^Mime-Version: 1.0/ REPLACE MIME-Version: 1.0} }",
                  "smtp_header_checks": "regexp:{ {/^Received:.*with ESMTPSA/ IGNORE} }",
                  "virtual_alias_maps": "inline:{ alias@inner.example=b@inner.example }",
                  "smtpd_discard_ehlo_keywords": "silent-discard, dsn", "smtputf8_enable": "no",
                  "postscreen_greet_action": "enforce", "postscreen_dnsbl_action": "enforce",
                  "postscreen_bare_newline_action": "enforce"}, behind_postscreen)
    for what in ("plain", "8-bit", "header-folded", "mime-nest"):
        ways.same(Message(BODIES[what]))
    ways.stays(Message(), "postfix smtp_header_checks", "smtp")
    raw = HEADER + b"X-Mailer: it\r\nMime-Version: 1.0 (it)\r\n\r\nx\r\n"
    _, ours = ways.same(Message(raw, recipients=["b+tag"]))
    assert b"X-Mailer" not in ours[0].wire and b"\r\nMIME-Version: 1.0\r\n" in ours[0].wire
    ways.stays(Message(recipients=["alias"]), "map virtual_alias_maps")


def test_mailcow(shape, tmp_path):
    """A login's name and TLS in the Received line, X-Original-To by lmtp(8), maps by proxymap(8)."""
    certificates(tmp_path)
    ways = shape({"smtpd_tls_security_level": "may", "smtpd_tls_received_header": "yes",
                  "smtpd_tls_chain_files": f"{tmp_path}/server.key, {tmp_path}/server.pem",
                  "smtpd_sasl_authenticated_header": "yes", "lmtp_destination_recipient_limit": "1",
                  "virtual_alias_maps": "proxy:inline:{ alias@inner.example=b@inner.example }",
                  "recipient_canonical_maps": "proxy:inline:{ c@inner.example=b@inner.example }",
                  "recipient_canonical_classes": "envelope_recipient", "mail_name": "Other",
                  "smtpd_discard_ehlo_keywords": "chunking, silent-discard, smtputf8",
                  "delay_warning_time": "4h", "maximal_backoff_time": "1800s"},
                 lambda text, smtp: behind_postscreen(
                     re.sub(r"(?m)^(lmtp .* lmtp)$", r"\1 flags=O", text), smtp),
                 {"ignore": '{ "flags", "smtpd_tls_received_header" }'})
    stock, ours = ways.both(Message(), "inner")
    assert "action=lane" in ways.milter_line(), ways.milter_line()
    line = b"X-Original-To: b@inner.example\r\n"
    assert line in stock[0].wire and line not in ours[0].wire
    assert alike(stock[0].wire.replace(line, b"", 1)) == alike(ours[0].wire)
    ways.stays(Message(recipients=["alias"]), "map virtual_alias_maps")
    ways.stays(Message(recipients=["c"]), "map recipient_canonical_maps")
    hop = ways.hops["inner"]
    before = len(hop.mails)
    host, _, port = ways.system.smtp.rpartition(":")
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.check_hostname = False
    with smtplib.SMTP(host, int(port)) as client:
        client.starttls(context=context)
        client.sendmail("s@x.example", ["b@inner.example"], BODIES["plain"])
    eventually("it arrives", lambda: len(hop.mails) > before)
    assert b" with ESMTPS id " in hop.mails[-1].wire and b"using TLS" not in hop.mails[-1].wire


class Socketmap(socketserver.ThreadingUnixStreamServer):
    """socketmap_table(5): {"NAME KEY": value}."""
    daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while length := b"".join(iter(lambda: self.rfile.read(1).strip(b":"), b"")):
                asked = self.rfile.read(int(length)).decode()
                self.rfile.read(1)
                value = self.server.table.get(asked)
                said = (f"OK {value}" if value else "NOTFOUND ").encode()
                self.wfile.write(b"%d:%s," % (len(said), said))

    def __init__(self, path, table):
        super().__init__(str(path), self.Handler)
        path.chmod(0o777)
        self.table = table
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_mailu(shape, tmp_path):
    """Clients by a proxy with XCLIENT, all maps by one socketmap, no postscreen."""
    tmp_path.chmod(0o755)
    path = Path("/tmp") / f"podop-{tmp_path.name}.socket"
    maps = Socketmap(path, {"alias alias@inner.example": "b@inner.example",
                            "sendermap other@x.example": "s@x.example"})
    podop = f"socketmap:unix:{path}:"
    try:
        ways = shape({"smtpd_authorized_xclient_hosts": "127.0.0.0/8", "notify_classes": "delay",
                      "mynetworks": "127.0.0.0/8 192.0.2.9",
                      "virtual_alias_maps": podop + "alias",
                      "sender_canonical_maps": podop + "sendermap",
                      "sender_canonical_classes": "envelope_sender",
                      "recipient_canonical_maps": podop + "recipientmap",
                      "delay_warning_time": "5m", "lmtp_host_lookup": "native"})
        for what in ("plain", "8-bit", "header-folded"):
            ways.same(Message(BODIES[what]))
        client = "EHLO c.example\r\nXCLIENT ADDR=192.0.2.9 NAME=c.example LOGIN=u@x.example"
        ways.stays(Message(recipients=["alias"]), "map virtual_alias_maps")
        ways.stays(Message(sender="other@x.example"), "map sender_canonical_maps")
        arrived = [by_proxy(ways, address, client) for address in (ways.stock, ways.system.smtp)]
        assert alike(arrived[0]) == alike(arrived[1])
        assert b"(c.example [192.0.2.9])" in arrived[1]
    finally:
        maps.shutdown()
        maps.server_close()
        path.unlink()


def by_proxy(ways, address, first):
    """The bytes that arrive of a mail of a client behind a proxy."""
    hop = ways.hops["inner"]
    before = len(hop.mails)
    host, _, port = address.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        for line in first.split("\r\n"):
            assert client.docmd(line)[0] // 100 == 2, line
        client.ehlo("c.example")
        client.sendmail("s@x.example", ["b@inner.example"], BODIES["plain"])
    eventually("it arrives", lambda: len(hop.mails) > before)
    return hop.mails[-1].wire
