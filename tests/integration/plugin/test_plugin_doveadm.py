"""doveadm dovelane: what it asks of the replicator, and prints."""
import base64
import contextlib
import json
import socket
import threading
import urllib.request

import pytest
from plugin_fixtures import needs_root, sdbox, started, world
from support.stack import dovecot
from support.stack.ports import Ports

pytestmark = [needs_root, pytest.mark.long]


class Replicator:
    """Answers at the admin socket: one prepared reply per request."""

    def __init__(self, world, *replies):
        self.path = world.base / "run" / "dovelane-admin"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.requests, self.replies = [], list(replies)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while self.replies:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                self.requests.append(peer.makefile("rb").readline())
                peer.sendall(self.replies.pop(0))

    def end(self):
        self.replies.clear()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a peer
        self.socket.close()
        self.path.unlink(missing_ok=True)
        self.thread.join(10)


@contextlib.contextmanager
def answering(world, *replies):
    replicator = Replicator(world, *replies)
    try:
        yield replicator.requests
    finally:
        replicator.end()


def test_doveadm_prints_the_replicators_table(sdbox):
    reply = b"#\tuser\tsite\tbehind\n+a@example.org\t2\t17\n+b\001tc\t3\n+d\t4\t5\t6\n=\t0\n"
    with answering(sdbox, reply, reply) as requests:
        done = sdbox.doveadm("-f", "tab", "dovelane", "status", "-A", check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["user\tsite\tbehind", "a@example.org\t2\t17", "b\tc\t3\t", "d\t4\t5 6"]
        table = sdbox.doveadm("dovelane", "status").splitlines()
        assert table[0].split() == ["user", "site", "behind"] and table[1].split() == ["a@example.org", "2", "17"]
    assert requests == [b"status\t*\n", b"status\t\n"]


def test_doveadm_hands_on_verb_user_and_arguments(sdbox):
    done = b"=\t0\n"
    with answering(sdbox, *[done] * 11) as requests:
        for words in (["lag", "-u", "a@b"], ["verify", "-u", "a", "--duplicates"], ["resync", "-A", "2"],
                      ["accept", "-u", "a", "INBOX", "x\ty"], ["restore", "-u", "a"], ["new-epoch", "-u", "a"], ["peers"],
                      ["peers", "--remove", "3"], ["join", "-u", "a"],
                      ["kept", "-u", "a", "--since", "2026-11-28 07:30", "--mailbox", "A B"],
                      ["unexpunge", "-u", "a", "--into", "F", "--dry-run", "--again", "0123456789ab"]):
            assert sdbox.doveadm("dovelane", *words) == ""
    assert requests == [b"lag\ta@b\n", b"verify\ta\t--duplicates\n", b"resync\t*\t2\n", b"accept\ta\tINBOX\tx\001ty\n",
                        b"restore\ta\n", b"new-epoch\ta\n", b"peers\t\n", b"peers\t\t--remove\t3\n", b"join\ta\n",
                        b"kept\ta\t--mailbox\tA B\t--since\t2026-11-28 07:30\n",
                        b"unexpunge\ta\t--into\tF\t--dry-run\t--again\t0123456789ab\n"]


def test_doveadm_tells_errors_and_exit_codes(sdbox):
    with answering(sdbox, b"-no such user: a\n=\t67\n", b"+x\n", b"", b"hello\n"):
        done = sdbox.doveadm("dovelane", "verify", "-u", "a", check=False)
        assert done.returncode == 67 and "no such user: a" in done.stderr
        for _ in range(2):  # half an answer, none
            done = sdbox.doveadm("dovelane", "lag", check=False)
            assert done.returncode == 75 and "before its answer was complete" in done.stderr
        done = sdbox.doveadm("dovelane", "lag", check=False)
        assert done.returncode == 76 and "no reply: hello" in done.stderr


def test_doveadm_without_a_replicator_says_what_to_start(sdbox):
    done = sdbox.doveadm("dovelane", "status", check=False)
    assert done.returncode == 75
    assert str(sdbox.base / "run" / "dovelane-admin") in done.stderr and "dovelane-replicator" in done.stderr


LAG = (b"#\tuser\tsite\tchanges\toldest\n+a@example.org\tsite-b\t17\t3\n"
       b"+b@example.org\tsite-b\t0\t0\n=\t0\n")
ROWS = [{"user": "a@example.org", "site": "site-b", "changes": "17", "oldest": "3"},
        {"user": "b@example.org", "site": "site-b", "changes": "0", "oldest": "0"}]


def test_json_has_an_object_for_each_row_and_only_texts(sdbox):
    with answering(sdbox, LAG, b"#\tuser\tsite\n=\t0\n"):
        assert json.loads(sdbox.doveadm("-f", "json", "dovelane", "lag", "-A")) == ROWS
        assert json.loads(sdbox.doveadm("-f", "json", "dovelane", "lag", "-A")) == []


def test_the_http_api_gives_the_same_rows(started):
    ports = Ports()
    port = ports.take()
    old = dovecot.version() < (2, 4)
    listen = "address" if old else "listen"
    site = started("sdbox", more="doveadm_api_key = secret\nservice doveadm {\n"
                   f"inet_listener http {{\n{listen} = 127.0.0.1\nport = {port}\n}}\n}}\n")
    wanted = json.dumps([["dovelaneLag", {"allUsers": True}, "mine"]]).encode()
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/doveadm/v1", wanted, {
        "Content-Type": "application/json",
        "Authorization": "X-Dovecot-API " + base64.b64encode(b"secret").decode()})
    with answering(site, LAG) as requests:
        with urllib.request.urlopen(ask, timeout=300) as answer:
            assert json.load(answer) == [["doveadmResponse", ROWS, "mine"]]
    assert requests == [b"lag\t*\n"]
    ports.close()
