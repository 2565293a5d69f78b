"""Submission with a login, by Dovecot's auth: our milter may be there, too. The login stands in the
Received line where smtpd_sasl_authenticated_header wants it."""
import smtplib

import pytest
from support import admin
from support.beside import Beside, same_text
from support.stack import dovecot
from support.raw_mail import BODIES
from support.waiting import eventually
from support.ways import envelope_of

pytestmark = pytest.mark.long

SERVICE = """\
{address} inet n - n - - smtpd
    -o smtpd_sasl_auth_enable=yes
    -o smtpd_relay_restrictions=permit_sasl_authenticated,reject
    -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject
    -o smtpd_milters={milters}
"""
USER, PASSWORD = "user1@example.org", dovecot.PASSWORD


class Submission(Beside):
    """Two services, with a login: `stock_login`, and ours."""

    def __init__(self, header):
        super().__init__({"smtpd_sasl_authenticated_header": header})

    def prepare(self):
        self.dovecot(self.home("sasl"))
        take, ours = self.system.ports.take, "unix:dovelane/milter.sock"
        self.stock_login, self.login = f"127.0.0.1:{take()}", f"127.0.0.1:{take()}"
        reader = f"inet:127.0.0.1:{self.milter.server_address[1]}"
        self.change(master=lambda text: text +
                    SERVICE.format(address=self.stock_login, milters=reader) +
                    SERVICE.format(address=self.login, milters=ours))
        for address in (self.stock_login, self.login):
            eventually("submission listens", lambda at=address: self.connects(at))
        self.wait_able()

    def dovecot(self, home):
        socket = home / "auth"
        log = self.system.log("dovecot")
        note = dovecot.write_config(
            home, self.system.mark, self.system.ports, log,
            more=f"service auth {{\n  unix_listener {socket} {{\n    mode = 0666\n  }}\n}}\n")
        self.program("dovecot", ["dovecot", "-F", "-c", note["config"]], [("imap", note["imap"])])
        self.change(main=lambda text: text +
                    f"smtpd_sasl_type = dovecot\nsmtpd_sasl_path = {socket}\n")

    def submit(self, address, raw, recipients=("b@smtp.example",)):
        host, _, port = address.rpartition(":")
        with smtplib.SMTP(host, int(port), local_hostname="client.example", timeout=60) as client:
            client.login(USER, PASSWORD)
            client.sendmail("s@x.example", recipients, raw)

    def arrived(self, address, raw, name):
        hop = self.hops[name]
        before = len(hop.mails)
        self.submit(address, raw, [f"b@{name}.example"])
        eventually("it arrives", lambda: len(hop.mails) > before)
        assert len(hop.mails) == before + 1
        return hop.mails[-1]


@pytest.fixture(scope="module", params=["yes", "no"])
def submission(request):
    ways = Submission(request.param)
    ways.header = request.param == "yes"
    yield ways
    ways.end()


@pytest.mark.parametrize("name", ["smtp", "lmtp"])
def test_the_same_mail_arrives_with_and_without_us(submission, name):
    for what in ("plain", "8-bit", "dots", "header-folded", "attachment-5MB"):
        stock = submission.arrived(submission.stock_login, BODIES[what], name)
        ours = submission.arrived(submission.login, BODIES[what], name)
        assert same_text(ours.wire) == same_text(stock.wire)
        assert envelope_of(ours) == envelope_of(stock)
        named = f"(Authenticated sender: {USER})".encode() in ours.wire.partition(b"\r\n\r\n")[0]
        assert named == submission.header
    with open(submission.system["milter"].log, encoding="utf-8", errors="replace") as log:
        last = [line for line in log if " action=" in line][-1]
    assert "action=lane" in last


def test_without_a_login_nothing_is_taken(submission):
    host, _, port = submission.login.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=60) as client:
        client.ehlo("client.example")
        client.mail("s@x.example")
        assert client.rcpt("b@smtp.example")[0] == 554
        client.rset()
        with pytest.raises(smtplib.SMTPAuthenticationError):
            client.login(USER, "wrong")


def test_nothing_is_lost_when_ours_are_killed(submission):
    submission.kept_while_killed(send=lambda raw: submission.submit(submission.login, raw))


def test_the_login_is_kept_with_the_mail_that_waits(submission):
    """What `dovelane mailq --sasl-user` looks for."""
    submission.system.kill("relay-mx1")
    try:
        submission.submit(submission.login, BODIES["plain"])
        said = admin.run(submission.system, "mailq", "--login", USER)
        assert "b@smtp.example" in said.out, said
    finally:
        submission.system.start("relay-mx1")
