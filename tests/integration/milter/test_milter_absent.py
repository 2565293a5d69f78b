"""A dead, hung or missing milter, with on_store_failure = queue and the lines of packaging/examples/master.cf: nobody is refused, nothing is lost, nothing comes
twice, and as soon as there is a milter again mail is diverted again, without a word to Postfix."""
import re
import threading

import pytest

from support.relay_world import eventually
from support.stack import debian
from support.debian_site import Site

pytestmark = pytest.mark.long

HEAD, TAIL = b"Subject: under way\r\n\r\nhel", b"lo\r\n.\r\n"


@pytest.fixture
def site(engine):
    with Site(postfix="none", nodes=2, takeover="automatic") as running:
        yield running.ready()


def mail(client, subject, user="user1"):
    """The answer to each command of a whole mail."""
    return [client.mail("s@x.example"), client.rcpt(f"{user}@example.org"), client.data(f"Subject: {subject}\r\n\r\nhello\r\n".encode())]


def begin(client, subject=None):
    assert client.mail("s@x.example")[0] == client.rcpt("user1@example.org")[0] == 250
    if subject:
        client.putcmd("data")
        assert client.getreply()[0] == 354
        client.send(HEAD)
    return client


def end(client):
    client.send(TAIL)
    return client.getreply()


class UnderWay:
    """Sessions that the milter already knows, each at another place; `finish` has each send what it still has to send, and one mail more."""

    def __init__(self, site):
        self.greeted, self.reused, self.envelope, self.content = (site.connect() for _ in range(4))
        for client in (self.greeted, self.reused, self.envelope, self.content):
            client.sock.settimeout(300)
        assert mail(self.reused, "before")[2][0] == 250
        begin(self.envelope)
        begin(self.content, "under way")
        self.answers = []

    def finish(self):
        self.threads = [threading.Thread(target=lambda do=do: self.answers.extend(do())) for do in (
            lambda: mail(self.greeted, "under way") + mail(self.greeted, "one more"),
            lambda: mail(self.reused, "under way") + mail(self.reused, "one more"),
            lambda: [self.envelope.data(HEAD + b"lo\r\n")] + mail(self.envelope, "one more"),
            lambda: [end(self.content)] + mail(self.content, "one more"))]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(300)
        return self.answers

    MAILS = {"before": 1, "under way": 4, "one more": 4}
    ANSWERS = 6 + 6 + 4 + 4


def new_sessions(site, count):
    """Sessions that begin now, all at a time; the answers to their dots."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(site.send("user2@example.org", subject="new"))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return answers


def nobody_was_refused(answers, count):
    assert len(answers) == count and all(code == 250 for code, _ in answers), answers


def everything_came_once(site, new):
    for subject, count in UnderWay.MAILS.items():
        eventually(f"{count} of {subject}", lambda: len(site.mailbox("user1", subject)) >= count)
        assert len(site.mailbox("user1", subject)) == count
    eventually("the new ones", lambda: len(site.mailbox("user2", "new")) >= new)
    assert len(site.mailbox("user2", "new")) == new and not site.stored()


@pytest.mark.test
@pytest.mark.core
def test_killed(site):
    under_way = UnderWay(site)
    site.kill("milter")
    under_way.finish()
    nobody_was_refused(new_sessions(site, 30), 30)
    nobody_was_refused(under_way.join(), UnderWay.ANSWERS)
    everything_came_once(site, 30)
    site.start("milter")
    site.ready()


def test_hung(site):
    """More sessions than its listener has room for. Then what the service manager's watchdog does: those that were waiting in the middle of a session go on."""
    under_way = UnderWay(site)
    site.stop("milter")
    under_way.finish()
    nobody_was_refused(new_sessions(site, 40), 40)
    assert any(thread.is_alive() for thread in under_way.threads)  # content_timeout is longer
    site.kill("milter")
    nobody_was_refused(under_way.join(), UnderWay.ANSWERS)
    everything_came_once(site, 40)
    site.start("milter")
    site.ready()


def test_hung_and_awake_again(site):
    site.stop("milter")
    nobody_was_refused(new_sessions(site, 5), 5)
    site.cont("milter")
    site.ready()
    eventually("the new ones", lambda: len(site.mailbox("user2", "new")) >= 5)
    assert len(site.mailbox("user2", "new")) == 5


def test_missing(site):
    under_way = UnderWay(site)
    site.end("milter")
    assert not (site.queue / "dovelane" / "milter.sock").exists()
    under_way.finish()
    nobody_was_refused(new_sessions(site, 10), 10)
    nobody_was_refused(under_way.join(), UnderWay.ANSWERS)
    everything_came_once(site, 10)
    site.start("milter")
    site.ready()


def test_a_new_session_waits_fifteen_seconds_at_most():
    """Connecting, and the answer to the first word: Postfix greets its client after both."""
    text = (debian.EXAMPLES / "master.cf").read_text()
    seconds = {name: int(value) for name, value in re.findall(r"(\w+)_timeout=(\d+)s", text)}
    assert seconds["connect"] + seconds["command"] <= 15 < seconds["content"]
