"""Mailman 3: its LMTP server is a next hop, which `divert` may name; what it sends to the members
comes in by SMTP as any client's."""
import os
import re
import socket
import subprocess

import pytest
from support.beside import Beside, needs
from support.raw_mail import BODIES, HEADER
from support.waiting import eventually

pytestmark = [pytest.mark.long, needs("mailman", "runuser")]

CONF = """\
[mailman]
layout: here
site_owner: owner@x.example
[paths.here]
var_dir: {home}
bin_dir: /usr/lib/mailman3/bin
queue_dir: $var_dir/queue
list_data_dir: $var_dir/lists
log_dir: $var_dir/log
lock_dir: $var_dir/locks
data_dir: $var_dir/data
cache_dir: $var_dir/cache
etc_dir: $var_dir/etc
messages_dir: $var_dir/messages
archive_dir: $var_dir/archives
template_dir: $var_dir/templates
pid_file: $var_dir/master.pid
lock_file: $lock_dir/master.lck
[webservice]
hostname: 127.0.0.1
port: {rest}
[mta]
incoming: mailman.mta.null.NullMTA
lmtp_host: 127.0.0.1
lmtp_port: {lmtp}
smtp_host: {host}
smtp_port: {port}
max_recipients: 10
""" + "".join(f"[runner.{name}]\nstart: no\n" for name in (
    "archive", "bad", "bounces", "command", "digest", "nntp", "rest", "retry", "shunt", "task",
    "virgin"))
LIST = "talk@lists.example"
MEMBERS = [f"m{n}@smtp.example" for n in range(3)]


class Mailman(Beside):
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.lmtp = free.getsockname()[1]
        super().__init__(more={"lists.example": f"lmtp:[127.0.0.1]:{self.lmtp}"})

    def prepare(self):
        home = self.home("mailman", "list")
        host, _, port = self.system.smtp.rpartition(":")
        self.conf = home / "mailman.cfg"
        self.conf.write_text(CONF.format(home=home, lmtp=self.lmtp, host=host, port=port,
                                         rest=self.system.ports.take()))
        self.command("create", "-o", "s@x.example", LIST)
        members = home / "members"
        members.write_text("".join(f"{each}\n" for each in (*MEMBERS, "s@x.example")))
        self.command("addmembers", "-W", members, LIST)
        self.program("mailman", ["runuser", "-u", "list", "--", "/usr/lib/mailman3/bin/master",
                                 "-C", self.conf], [], cwd=home)
        eventually("mailman listens", lambda: self.connects(f"127.0.0.1:{self.lmtp}"), 300)

    def command(self, *words):
        done = subprocess.run(["runuser", "-u", "list", "--", "/usr/lib/mailman3/bin/mailman", "-C",
                               self.conf, *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=self.conf.parent, timeout=300,
                              check=False, env=dict(os.environ, LC_ALL="C.UTF-8"))
        assert done.returncode == 0, done.stdout.decode()

    def posted(self, raw, address):
        """What the members get of it, each once."""
        hop = self.hops["smtp"]
        before = len(hop.mails)
        self.deliver(raw, LIST, address)

        def got():
            return sorted(who for mail in hop.mails[before:] for who in mail.kept)
        eventually("the members have it", lambda: len(got()) >= len(MEMBERS), 180)
        assert got() == MEMBERS
        return sorted({posting(mail.wire) for mail in hop.mails[before:]})


def posting(wire):
    """A posting as Mailman got it: without the lines of the way to the members, and those with
    which the list names this one mail."""
    head, empty, body = wire.partition(b"\r\n\r\n")
    lines = re.split(rb"\r\n(?![ \t])", head)
    return b"\r\n".join(line for line in lines if not re.match(
        rb"(?i)(received|message-id-hash|x-message-id-hash|date|message-id):", line)) + empty + body


@pytest.fixture(scope="module")
def mailman():
    ways = Mailman()
    yield ways
    ways.end()


def numbered(what, number):
    """Mailman knows a mail by its Message-ID."""
    return addressed(BODIES[what], b"m%d.%s" % (number, what.encode()))


def addressed(raw, name):
    """To the list: what does not say so is held for its moderator."""
    return raw.replace(b"<m@x.example>", b"<%s@x.example>" % name, 1).replace(
        b"b@example.net", LIST.encode(), 1)


def test_postings_reach_the_members_once_and_alike(mailman):
    for what in ("plain", "dots", "header-folded", "mime-nest"):
        stock = mailman.posted(numbered(what, 1), mailman.stock)
        ours = mailman.posted(numbered(what, 2), mailman.system.smtp)
        assert ours == stock


def test_both_ways_are_diverted(mailman):
    """The posting to Mailman, and what Mailman sends."""
    with open(mailman.system["relay-mx1"].log, encoding="utf-8", errors="replace") as log:
        sent = [line for line in log if "status=sent" in line]
    assert any(f"to=<{LIST}>" in line for line in sent), sent[-5:]
    assert any(f"to=<{MEMBERS[0]}>" in line for line in sent), sent[-5:]


def test_nothing_is_lost_when_ours_are_killed(mailman):
    """Each posting reaches each member."""
    posted = iter(range(10**6))

    def send(raw):
        mailman.deliver(addressed(raw, b"k%d" % next(posted)), LIST)
    mailman.kept_while_killed(send=send, mails=15)


def test_an_address_that_is_no_list_comes_back(mailman):
    """Mailman refuses it for good; Postfix makes the bounce."""
    hop = mailman.hops["smtp"]
    before = len(hop.mails)
    mailman.deliver(HEADER + b"\r\nnobody\r\n", "nobody@lists.example", sender="back@smtp.example")
    eventually("it comes back", lambda: len(hop.mails) > before)
    assert b"nobody@lists.example" in hop.mails[-1].wire
