"""kill -9 of the proxy, and of the Postfix behind it, at each step of a mail: the client is told 250 and the mail is where it must be, or it is not told 250.

The front is a real Postfix; the one behind the proxy is played here, since it must die (or look on while the proxy does) at one certain step."""
import smtplib
import socket
import threading

import pytest

from support.stack import Stack, lanes, resp
from support.stack.shape import SinkShape
from test_proxy import CONTENT, entries, eventually, log, send

SINKS = [SinkShape("a", ours=True), SinkShape("plain", ours=True)]
LIMIT = 60
# Where the server behind the proxy is when something dies: before it answers that command; "dot-answered" behind its 250 to the last dot.
STEPS = ("connect", "EHLO", "XFORWARD", "MAIL", "RCPT", "DATA", "content", "dot", "dot-answered")
# Whose the recipients are: the lane's and Postfix's; Postfix's alone; the lane's, which is full, so that they are Postfix's at last.
MAILS = {"both": ("lane@a.example", "next@plain.example"), "next": ("next@plain.example",), "rest": ("lane@a.example",)}


class Behind:
    """A mail server that is told at which step to stop; whatever it answered 250 to, it has."""

    def __init__(self):
        self.lock, self.step, self.reached, self.go_on = threading.Lock(), None, threading.Event(), threading.Event()
        self.kept, self.open = [], []
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen(50)
        self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def plan(self, step, dies):
        """At that step, once: dies as by kill -9, or waits until `go_on` is set, and dies then."""
        self.kept.clear()
        self.reached.clear()
        self.go_on.clear()
        if dies:
            self.go_on.set()
        self.step = step

    def accept(self):
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def at(self, step):
        with self.lock:
            if self.step != step:
                return False
            self.step = None
        self.reached.set()
        self.go_on.wait(LIMIT)
        return True

    def serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            try:
                self.talk(connection, lines)
            except OSError:
                pass

    def talk(self, connection, lines):
        if self.at("connect"):
            return
        connection.sendall(b"220 behind.example ESMTP\r\n")
        recipients = []
        for line in lines:
            word = line.split(None, 1)[0].decode().upper() if line.strip() else ""
            if self.at(word):
                return
            if word == "RCPT":
                recipients.append(line[line.index(b"<") + 1:line.index(b">")].decode())
            if word == "DATA":
                connection.sendall(b"354 go on\r\n")
                for number, text in enumerate(iter(lines.readline, b".\r\n")):
                    if not text or (number == 0 and self.at("content")):
                        return
                if self.at("dot"):
                    return
                self.kept += recipients
                if self.step == "dot-answered":
                    connection.sendall(b"250 2.0.0 Ok: queued as BEHIND\r\n")
                    self.at("dot-answered")
                    return
                recipients = []
            if word == "EHLO":
                connection.sendall(b"250-behind.example\r\n250-8BITMIME\r\n250-XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE\r\n250 DSN\r\n")
            else:
                connection.sendall(b"221 2.0.0 bye\r\n" if word == "QUIT" else b"250 2.0.0 Ok\r\n")
            if word == "QUIT":
                return


@pytest.fixture(scope="module")
def behind():
    return Behind()


@pytest.fixture(scope="module")
def running(behind):
    with Stack(postfix="proxy", sinks=SINKS, divert=["a"], relays=False,
               settings={"max_entry": "1MB", "store_deadline": "4s", "proxy_timeout": "60s", "proxy_next": behind.address, "postfix_config": ""}) as system:
        yield system


@pytest.fixture
def system(running, behind):
    behind.plan(None, True)
    running.start("proxy")
    running.cont("redis-mx2")
    flush(running)
    eventually("mail is stored", lambda: answer_to(running, "ready@a.example") == 250 and all(entries(running)))
    flush(running)
    behind.kept.clear()
    return running


def flush(system):
    for address in system.nodes.values():
        with resp.Connection(address) as redis:
            redis.call("FLUSHALL")


def fill(system):
    """The lane takes nothing."""
    with resp.Connection(system.nodes["mx2"]) as redis:
        redis.call("LANE.CREATE", f"dovelane:{system.destinations['a']}|mx1>mx2", "MAXBYTES", 1)


def answer_to(system, *recipients):
    """The code of the dot's answer; 0: there was none, or one before it said no."""
    try:
        return send(system, *recipients, content=CONTENT)[0]
    except (smtplib.SMTPException, OSError):
        return 0


def stored(system):
    return [sorted(r.address for entry in node for r in entry.envelope["recipients"]) for node in entries(system)]


def is_kept(system, behind, recipient):
    return recipient in behind.kept or all(recipient in node for node in stored(system))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", MAILS)
def test_who_is_behind_dies(system, behind, kind, step):
    if kind == "rest":
        fill(system)
    behind.plan(step, dies=True)
    code = answer_to(system, *MAILS[kind])
    assert behind.reached.wait(60), log(system)    # it may be told of its own answer later than the client
    if step == "dot-answered":
        assert code == 250 and all(is_kept(system, behind, recipient) for recipient in MAILS[kind]), (code, behind.kept, stored(system))
    else:
        assert code == 451, (code, log(system))
        eventually("what was stored is taken back", lambda: stored(system) == [[], []])


class Client(threading.Thread):
    """A client of its own, since its server is about to die."""

    def __init__(self, system, kind):
        super().__init__()
        self.system, self.kind, self.code = system, kind, None
        self.start()

    def run(self):
        self.code = answer_to(self.system, *MAILS[self.kind])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["both", "next"])
def test_the_proxy_dies(system, behind, kind, step):
    behind.plan(step, dies=False)
    client = Client(system, kind)
    assert behind.reached.wait(LIMIT), log(system)
    if step == "dot-answered":
        client.join(LIMIT)
    system.kill("proxy")
    behind.go_on.set()
    client.join(LIMIT)
    if step == "dot-answered":
        assert client.code == 250 and all(is_kept(system, behind, recipient) for recipient in MAILS[kind]), (client.code, behind.kept, stored(system))
    else:
        assert client.code in (0, 451), client.code


@pytest.mark.parametrize("waits", [True, False])
def test_the_proxy_dies_around_the_store(system, behind, waits):
    """While a node has not acked; and right behind the client's 250."""
    if not waits:
        assert answer_to(system, "lane@a.example") == 250
        system.kill("proxy")
        assert stored(system) == [["lane@a.example"]] * 2
        return
    system.stop("redis-mx2")
    client = Client(system, "rest")
    eventually("one node has it", lambda: [r.address for entry in lanes.entries("mx1", system.nodes["mx1"]) for r in entry.envelope["recipients"]] == ["lane@a.example"])
    system.kill("proxy")
    system.cont("redis-mx2")
    client.join(LIMIT)
    assert client.code in (0, 451) or (client.code == 250 and is_kept(system, behind, "lane@a.example")), client.code

