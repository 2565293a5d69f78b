"""What Postfix does with a milter that answers too late: the ground on which an engine may stand that cannot keep silent.

late_milter.c, which uses libmilter, discards every mail; one of them later than Postfix waits (content_timeout). Postfix
then queues that mail, shuts the connection down for all who hold it, and its session goes on without the milter. So no mail
is lost, and no answer is taken for that of another mail."""
import contextlib
import os
import shutil
import signal
import smtplib
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from support.relay_world import eventually
from support.stack import Stack, probe, programs
from support.stack.shape import SinkShape

pytestmark = pytest.mark.long

WAITS, LATE = 5, 9  # seconds: Postfix, and the milter with a late mail


class Late:
    """A Postfix with late-milter, and what became of each mail."""

    def __init__(self, replies):
        self.base = Path(tempfile.mkdtemp(prefix="late-"))
        self.base.chmod(0o755)
        self.socket, self.journal, self.replies = self.base / "socket", self.base / "journal", replies
        self.stack = Stack(postfix="stock", sinks=[SinkShape("a", ours=True)], postconf={
            "smtpd_milters": f"{{ unix:{self.socket}, default_action=accept, content_timeout={WAITS}s }}"})
        self.process, self.sent = None, []

    def __enter__(self):
        self.start()
        self.stack.up()
        return self

    def __exit__(self, *_):
        try:
            self.stack.down()
        finally:
            self.stop()
            shutil.rmtree(self.base)

    def start(self):
        program = programs.needed(self.stack.shape.build / "tests" / "integration" / "milter" / "late-milter", "the late milter")
        self.process = subprocess.Popen([program, self.socket, self.journal, self.replies])
        eventually("the late milter answers", lambda: probe.milter(f"unix:{self.socket}") is None, 30)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)

    def connect(self):
        host, _, port = self.stack.smtp.rpartition(":")
        client = smtplib.SMTP(host, int(port), timeout=60)
        client.ehlo("client.example")
        return client

    def mail(self, client, late=0):
        """Sends a mail, which must be answered 250; its id."""
        name = f"late-{self.replies}-{len(self.sent)}"
        self.sent.append(name)
        content = f"X-Oracle-Id: {name}\r\n" + (f"X-Late: {late}\r\n" if late else "") + "\r\nhello\r\n"
        assert client.mail("s@x.example")[0] == client.rcpt("u@a.example")[0] == 250
        assert client.data(content.encode())[0] == 250
        return name

    def noted(self, what):
        return [line.split()[1] for line in self.journal.read_text().splitlines() if line.split()[0] == what]

    def delivered(self):
        journal = Path(self.stack["sink-a"].note["journal"])
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line.split("\t")[2] for line in lines]

    def log(self):
        return Path(self.stack["postfix"].log).read_text()

    def account(self, discarded, delivered):
        """Each mail was discarded in time, or delivered: never both, never twice, never neither."""
        eventually("all are delivered", lambda: set(delivered) <= set(self.delivered()), 60)
        time.sleep(1)
        found = [name for name in self.delivered() if name in {*discarded, *delivered}]
        assert sorted(found) == sorted(delivered), self.log()[-3000:]
        assert set(discarded) <= set(self.noted("discards"))


@pytest.fixture(scope="module", params=["replies", "silent"])
def late(request):
    if os.geteuid() != 0:
        pytest.skip("Postfix's master must be started by root")
    with Late(request.param) as running:
        yield running


@pytest.mark.test
@pytest.mark.core
def test_a_late_answer_is_no_other_mails_answer(late):
    """Mails of the session before the late answer, at its time, and behind it; and another session, which notices nothing."""
    kept, other = late.connect(), late.connect()
    discarded = [late.mail(kept), late.mail(kept), late.mail(other)]
    warnings = late.log().count("reply packet header")
    began = time.monotonic()
    queued = [late.mail(kept, LATE)]
    assert WAITS - 1 < time.monotonic() - began < LATE, "Postfix waits no longer than content_timeout"
    eventually("Postfix' log says so", lambda: late.log().count("reply packet header") > warnings)
    assert late.log().count("reply packet header") == warnings + 1
    while not set(queued[:1]) <= set(late.noted("discards")):
        assert time.monotonic() - began < LATE + 30
        queued.append(late.mail(kept))
        discarded.append(late.mail(other))
        time.sleep(0.5)
    queued += [late.mail(kept), late.mail(kept)]
    discarded += [late.mail(late.connect()), late.mail(other)]
    late.account(discarded, queued)
    assert not set(queued[1:]) & set(late.noted("discards")), "the session goes on without the milter"


def waiting(late, client):
    """Begins a late mail without awaiting its answer; (id, when)."""
    name = f"late-{late.replies}-{len(late.sent)}"
    late.sent.append(name)
    assert client.mail("s@x.example")[0] == client.rcpt("u@a.example")[0] == 250
    client.putcmd("data")
    assert client.getreply()[0] == 354
    client.send(f"X-Oracle-Id: {name}\r\nX-Late: {LATE}\r\n\r\nhello\r\n.\r\n".encode())
    eventually("the milter has it", lambda: name in late.noted("waits"), 30)
    return name


def test_postfix_is_reloaded_while_the_milter_is_late(late):
    kept, other = late.connect(), late.connect()
    discarded = [late.mail(kept), late.mail(other)]
    queued = [waiting(late, kept)]
    late.stack["postfix"].reload()
    assert kept.getreply()[0] == 250
    with contextlib.suppress(smtplib.SMTPException):  # a process of before the reload may end with its session
        queued.append(late.mail(kept))
    discarded.append(late.mail(late.connect()))
    eventually("the late answer", lambda: queued[0] in late.noted("discards"), LATE + 30)
    discarded.append(late.mail(late.connect()))
    late.account(discarded, queued)


def test_the_milter_is_ended_while_it_is_late(late):
    """By SIGTERM, as a service manager does it, and killed when it is not gone by then; then it is there again."""
    kept, other = late.connect(), late.connect()
    discarded = [late.mail(kept), late.mail(other)]
    queued = [waiting(late, kept)]
    late.process.send_signal(signal.SIGTERM)
    assert kept.getreply()[0] == 250
    late.stop()
    queued += [late.mail(kept), late.mail(other), late.mail(late.connect())]
    late.start()
    discarded.append(late.mail(late.connect()))
    late.account(discarded, queued)
