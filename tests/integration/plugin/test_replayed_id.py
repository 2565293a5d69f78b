"""A relay's line that somebody has got hold of, sent again by each way into our own Dovecot: no mail is taken for another one."""
import os
import shutil
import smtplib
import subprocess
import time

import pytest
from support.plugin_world import World
from support.stack.delivery_id import guid, line
from support.stack.dovecot import version
from support.stack.modules import module_directory

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root"),
              pytest.mark.long]
GENUINE = b"From: a@example.org\r\nTo: u@example.org\r\nDate: Tue, 24 Nov 2026 10:00:00 +0000\r\nMessage-Id: <g@example.org>\r\n" \
          b"Subject: genuine\r\n\r\nthe genuine text\r\n"
FORGED = GENUINE.replace(b"genuine", b"forged")
VICTIM, OTHER = "victim@example.org", "other@example.org"


def sieve(submission):
    if version() >= (2, 4):
        return (f"submission_host = {submission}\nprotocol lmtp {{\n  mail_plugins {{\n    dovelane = yes\n    sieve = yes\n  }}\n}}\n"
                "sieve_script personal {\n  driver = file\n  path = ~/.dovecot.sieve\n}\n")
    return (f"submission_host = {submission}\nprotocol lmtp {{\n  mail_plugins = dovelane sieve\n}}\n"
            "plugin {\n  sieve = ~/.dovecot.sieve\n}\n")


class Ways:
    """Dovecot with the plugin behind a Postfix that delivers to it by its own lmtp(8), without a milter."""

    def __init__(self, stack):
        self.postfix = stack(postfix="stock", sinks=["s"], postconf={"transport_maps": "", "default_transport": "lmtp:unix:none"})
        note = self.postfix.services["postfix"].note
        self.smtp, self.config = note["smtp"], note["config_directory"]
        has_sieve = os.path.exists(os.path.join(module_directory(), "lib90_sieve_plugin.so"))
        self.dovecot = World("sdbox", more=sieve(self.smtp) if has_sieve else "")
        self.sieve = has_sieve
        subprocess.run(["postconf", "-c", self.config, f"default_transport = lmtp:[127.0.0.1]:{self.dovecot.lmtp_port}"], check=True)
        self.postfix.services["postfix"].reload()
        self.key = bytes.fromhex(self.dovecot.key.read_text())

    def send(self, way, text, *recipients):
        if way == "LMTP":
            self.dovecot.deliver(*recipients, text=text)
        elif way == "submission":
            host, _, port = self.smtp.rpartition(":")
            with smtplib.SMTP(host, int(port), timeout=60) as client:
                client.sendmail("attacker@example.org", recipients, text)
        else:
            subprocess.run(["sendmail", "-C", self.config, "-i", "-f", "attacker@example.org", *recipients],
                           input=text.replace(b"\r\n", b"\n"), check=True)

    def mails(self, user, count):
        deadline = time.monotonic() + 120
        while len(found := self.dovecot.guids(user)) < count:
            assert time.monotonic() < deadline, (user, found)
            time.sleep(0.1)
        return found

    def text(self, user):
        return self.dovecot.doveadm("fetch", "-u", user, "text", "mailbox", "INBOX")


@pytest.fixture
def ways(stack):
    made = Ways(stack)
    yield made
    wrong = made.dovecot.wrong()
    made.dovecot.end()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", ["LMTP", "submission", "sendmail"])
def test_another_mail_with_a_line_that_was_seen(ways, way):
    """First the forged one, as while the genuine one waits for its next try."""
    entry, header = line(ways.key, GENUINE, VICTIM, OTHER)
    ways.dovecot.deliver(OTHER, text=header + GENUINE)
    assert ways.dovecot.guids(OTHER) == [guid(entry, GENUINE, OTHER)]
    for text in (header + FORGED, b"Subject: edited\r\n" + header + GENUINE, header + b"Resent-From: x@example.org\r\n" + GENUINE):
        ways.send(way, text, VICTIM)
    ways.mails(VICTIM, 3)
    ways.dovecot.deliver(VICTIM, text=header + GENUINE)
    found = ways.mails(VICTIM, 4)
    assert found[3] == guid(entry, GENUINE, VICTIM) and found.count(found[3]) == 1 and len(set(found)) == 4
    assert "Dovelane-Id" not in ways.text(VICTIM)


@pytest.mark.parametrize("way", ["LMTP", "submission", "sendmail"])
def test_the_line_to_somebody_whom_it_does_not_name(ways, way):
    entry, header = line(ways.key, GENUINE, OTHER)
    ways.send(way, header + GENUINE, VICTIM)
    ways.mails(VICTIM, 1)
    entry, header = line(ways.key, GENUINE, VICTIM, entry=entry)
    ways.dovecot.deliver(VICTIM, text=header + GENUINE)
    found = ways.mails(VICTIM, 2)
    assert found[0] != found[1] == guid(entry, GENUINE, VICTIM)


def test_a_sieve_redirect_carries_no_line_that_counts(ways):
    if not ways.sieve:
        pytest.skip("no Sieve here")
    ways.dovecot.deliver(OTHER, text=GENUINE)  # makes the home
    script = ways.dovecot.home(OTHER) / ".dovecot.sieve"
    script.write_text(f'redirect "{VICTIM}";\n')
    shutil.chown(script, "nobody")
    entry, header = line(ways.key, GENUINE, OTHER, VICTIM)
    ways.dovecot.deliver(OTHER, text=header + GENUINE)
    ways.mails(VICTIM, 1)
    ways.dovecot.deliver(VICTIM, text=header + GENUINE)
    found = ways.mails(VICTIM, 2)
    assert found[1] == guid(entry, GENUINE, VICTIM) != found[0]
    assert "Dovelane-Id" not in ways.text(VICTIM)


def test_an_old_line_of_version_0_1_0_says_nothing(ways):
    """Mails stored by it have such a line, which is good for any recipient and any bytes there."""
    import hashlib
    import hmac
    entry = "%032x" % 1
    code = hmac.new(ways.key, b"dovelane-id:" + entry.encode(), hashlib.sha256).hexdigest()[:32]
    for text in (FORGED, GENUINE):
        ways.dovecot.deliver(VICTIM, text=f"Dovelane-Id: {entry} {code}\r\n".encode() + text)
    old = hashlib.sha256(f"dovelane-guid:{entry}:{VICTIM}".encode()).hexdigest()[:32]
    found = ways.mails(VICTIM, 2)
    assert len(set(found)) == 2 and old not in found
