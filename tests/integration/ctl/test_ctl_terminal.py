"""What comes from other nodes, servers and senders never drives the admin's terminal, and never ends the command by a crash.

A node that is hostile, or broken, is this test's own server: no real one answers so. What real servers keep and hand on (mails,
the texts of relays and milters) is asked of real ones.
"""
import os
import pty
import re
import socketserver
import subprocess
import threading

from support import json_schemas, admin
from support import envelope
import pytest
from support.lane_server import BUILD
from support.stack import resp

pytestmark = [pytest.mark.core, pytest.mark.long]

# ANSI and C1 (as one byte, and as UTF-8), a bell, a forged line, text that turns its direction, a byte that is no UTF-8.
EVIL = b"\x1b[2J\x9b31m\xc2\x9b1m\x07\r\nCRITICAL forged\xe2\x80\xae\xff\x7f"
INFO = ["node", b"mx1", "grammar", 1, "version", 1, "run-id", b"r", "used-memory", 1, "maxmemory", 1000, "entries", 1, "settle-ms", 5000]


def bad(text):
    """What a terminal would obey in the bytes that a command printed, and lines that it did not mean."""
    shown = text.decode("utf-8", errors="surrogateescape")
    found = [c for c in shown if (c < " " and c not in "\n") or "\x7f" <= c < "\xa0" or c in "\u202e\u2028" or "\udc80" <= c <= "\udcff"]
    return found + [line for line in shown.splitlines() if line.startswith("CRITICAL forged")]


def encoded(value):
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, (list, tuple)):
        return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))
    if value is None:
        return b"$-1\r\n"
    data = value if isinstance(value, bytes) else value.encode()
    return b"$%d\r\n" % len(data) + data + b"\r\n"


LINE = EVIL.replace(b"\r\n", b" ")  # an error is one line
NESTED = [b"0", [EVIL] * 9]
BEAT = [[[b"mx1", EVIL, 1, 10, b"state=" + EVIL + b" config=" + EVIL], [b"mx1", b"other", 2, 5, EVIL]], [EVIL, 1]]
BROKEN = [[[None, 7, b"x", b"y", None], 5, [b"mx1"], [[], [], [], [], []]], 3]
SHAPES = {
    "an error": lambda words: b"-ERR " + LINE + b"\r\n",
    "a text": lambda words: encoded(EVIL),
    "a text that looks right": lambda words: encoded({b"GET": b"1790000000000 on " + EVIL, b"CLIENT": b"id=1 addr=127.0.0.1:1 name=dovelane-switch:h\x1b[2J:off:1:aa:2 x\n"}
                                                     .get(words[0], b"sender " + EVIL)),
    "a number": lambda words: encoded(-7),
    "nothing": lambda words: encoded(None),
    "a list": lambda words: encoded([EVIL] * 8),
    "nested lists": lambda words: encoded({b"LANE.LIST": [0, [b"dovelane:smtp:" + EVIL, 1, 1]], b"LANE.BEATS": BEAT,
                                           b"LANE.READ": [0, [[1, b"i" * 16, 1, 1, 1, EVIL, None, b"waiting"]]]}.get(words[0], NESTED)),
    "lists of the wrong things": lambda words: encoded({b"LANE.BEATS": BROKEN, b"LANE.LIST": [0, [None, None, None, 1, 2, 3, b"x"]],
                                                        b"LANE.READ": [None, [None, 3, [1, 2], [None] * 9, [1, b"i" * 16, None, None, None, b"", 1, 2]]]}
                                                       .get(words[0], [None, [None, 1], [], -1, b""])),
    "half a list": lambda words: b"*5\r\n:1\r\n",
    "no protocol": lambda words: EVIL * 3 + b"\r\n",
}


class Node(socketserver.ThreadingTCPServer):
    """Answers LANE.INFO as the node mx1 does, and everything else in one shape; info: another answer to LANE.INFO."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, shape, info=INFO):
        self.shape, self.info = SHAPES[shape], info
        super().__init__(("127.0.0.1", 0), Connection)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
            words[0] = words[0].upper()
            self.wfile.write(encoded(self.server.info) if words[0] == b"LANE.INFO" else b"+OK\r\n" if words[0] in (b"PING", b"AUTH") else self.server.shape(words))


VERBS = [
    ("mailq",), ("show", "Q1"), ("cat", "Q1"), ("qshape",), ("hold", "--all"), ("hold", "--list"), ("hold", "--remove", "1"), ("hold", "--add", "--all"),
    ("release", "--all"), ("flush",), ("requeue", "--all"), ("delete", "--all", "--yes"), ("divert", "status"), ("divert", "off"),
    ("shape",), ("shape", "*", "rate=1/s", "--dry-run"), ("shape", "*", "--remove"), ("shape", "--explain", "smtp:[h]:25"), ("check", "-v", "nodes"),
    ("check", "-v", "host"), ("nodes",), ("nodes", "-v"), ("nodes", "--forget", "mx9"), ("nodes", "--join", "mx1"), ("capacity", "--seconds", "0.1"), ("acl",), ("top", "--once"),
]


def verbs_listed():
    said = subprocess.run([BUILD / "ctl" / "dovelane", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    return set(re.findall(r"(?m)^  ([a-z]+) ", said))


def test_no_verb_is_forgotten_here():
    # trace: test_ctl_trace.py; route: test_ctl_route.py; drain: what divert and mailq have
    elsewhere = {"trace", "route", "drain", "init", "join", "invite", "group", "cert", "enroll"}
    assert verbs_listed() - elsewhere == {words[0] for words in VERBS}


def run(tmp_path, port, words, **settings):
    config = tmp_path / "dovelane.conf"
    lines = {"copies": "1", "reinject_port": '"127.0.0.1:9"', "membership": "learned", "takeover": "automatic", "state_directory": f'"{tmp_path}"',
             "log": f'"file:{tmp_path}/log"', **settings}
    config.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()) + f'node mx1 {{ redis = "127.0.0.1:{port}" }}\n')
    done = subprocess.run([BUILD / "ctl" / "dovelane", "-c", config, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, 1, 2), (words, done)
    return done.stdout + done.stderr


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hostile_node_drives_nothing(tmp_path, shape):
    with Node(shape) as node:
        for words in VERBS if shape != "half a list" else [("mailq",), ("nodes",)]:  # each of its questions waits for the end of patience
            for json_too in ((), ("-j",)):
                said = run(tmp_path, node.server_address[1], (*words, *json_too))
                assert not bad(said), (words, said)
                for line in said.splitlines() if json_too else ():
                    json_schemas.judged(line.decode())
        node.shutdown()


@pytest.mark.parametrize("info", [EVIL, ["node", EVIL], ["node", b"mx1", "grammar", EVIL], ["node"], [None, None], 3, [["node"], ["mx1"]]], ids=str)
def test_a_node_that_is_called_like_that(tmp_path, info):
    with Node("an error", info) as node:
        said = run(tmp_path, node.server_address[1], ("mailq",))
        node.shutdown()
    assert not bad(said) and b"does not answer" in said, said


def test_names_in_the_configuration_and_on_the_command_line(tmp_path):
    said = run(tmp_path, 1, ("show", "Q\x1b[2J"))
    assert not bad(said), said
    said = run(tmp_path, 1, ("check", "nodes\x1b]0;x\x07"))
    assert not bad(said) and b"\\x1b]0;x\\x07" in said, said
    said = run(tmp_path, 1, ("mailq",), divert='{ "smtp:[\x1b[2J]:25" }')
    assert not bad(said), said


def test_what_real_servers_hand_on(stack):
    """A relay's beat, what it says of a next hop, the table of nodes, and who said `divert off`."""
    entry = stack(postfix="none", nodes=2, relays=(), settings={"membership": "learned", "takeover": "automatic"})
    evil = EVIL.replace(b"\r\n", b" ")
    for name in ("mx1", "mx2"):
        with resp.Connection(entry.nodes[name]) as server:
            server.call("LANE.BEAT", "mx1", "one", 1, b"state=" + evil + b" since=1 run=r config=" + evil + b" done=0 hand=0 hears=")
            server.call("HSET", "dovelane.away", b"smtp:" + evil, b"TLS " + EVIL)
            server.call("HSET", "dovelane.config", "relay", evil)
            server.call("SET", "dovelane.divert", b"1790000000000 off root " + evil)
            server.call("SET", "dovelane.holds", b"1790000000000 on root\nsender " + evil + b"\n\nnonsense " + evil + b"\n")
            server.call("SET", "dovelane.shape", b"1790000000000 on root\n*\tby=" + evil + b"\tsuspend=" + evil + b"\trate=" + evil + b"\t" + evil + b"=1\n" + evil + b"\trate=1/s\n")
            server.call("SET", "dovelane.nodes", b"1 node mx7" + evil.replace(b" ", b"") + b" 127.0.0.1:1 - - -\n1 joining " + evil.replace(b" ", b"") + b" 127.0.0.1:1 - - -\n")
    for words in (("nodes",), ("nodes", "-v"), ("check", "-v", "nodes"), ("divert", "status"), ("hold", "--list"), ("hold", "--remove", "2"), ("shape",),
                  ("shape", "--explain", "smtp:[h]:25"), ("shape", "*", "weight=3")):
        said = admin.run(entry, *words, raw=True)
        assert said.status in (0, 1, 2) and not bad(said.out + said.err.encode("utf-8", errors="surrogateescape")), (words, said)


def test_a_message_on_a_terminal_and_in_a_file(stack):
    entry = stack(postfix="none", nodes=1, copies=1, relays=())
    body = b"Subject: \x1b[2Jhi\r\nX-Evil: \x9b31m\xc2\x9b\r\n\r\ngr\xc3\xbcn\ttext\r\nbare\rreturn\r\n"
    meta = envelope.encode([envelope.recipient("b@example.net")], size=len(body), queue_id="Q7", sender="s@example.org")
    with resp.Connection(entry.nodes["mx1"]) as server:
        server.call("LANE.PUSH", 1, "dovelane:smtp:[127.0.0.1]:25|mx1", "ENTRIES", 1, 1, b"i" * 16, meta, body)
    said = admin.run(entry, "cat", "Q7", raw=True)
    assert said.out == body, said
    ours, theirs = pty.openpty()
    with subprocess.Popen([BUILD / "ctl" / "dovelane", "-c", entry["relay-mx1"].note["conf"], "cat", "Q7"], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:
            pass  # its other end is closed
        assert process.wait(60) == 0
    os.close(ours)
    assert seen.replace(b"\r\n", b"\n") == b"Subject: \\x1b[2Jhi\nX-Evil: \\x9b31m\\xc2\\x9b\n\ngr\xc3\xbcn\ttext\nbare\\x0dreturn\n", seen
