"""Redis' protocol, spoken with a node that means harm or is broken: an end to waiting, and no tricks with the terminal."""
import contextlib
import socket
import ssl
import threading

import pytest

import authority
import main
import resp
from host import Trouble

GUARD = 60
OK = b"+OK\r\n"


@pytest.fixture
def node(tmp_path):
    """node(fn): a TLS server on loopback; fn(connection) plays one connection. Its address and its authority's file."""
    key, ca = authority.new_authority()
    own = authority.new_key()
    (tmp_path / "ca").write_text(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    both = authority.Secret(authority.sign(key, ca, authority.request(own), "mx1", authority.alternatives("mx1", "127.0.0.1")) + own)
    context.load_cert_chain(str(both))
    server, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def start(fn):
        def play():
            with contextlib.suppress(OSError), server.accept()[0] as raw, context.wrap_socket(raw, server_side=True) as tls:
                fn(tls, stop)
        threading.Thread(target=play, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}", tmp_path / "ca"
    yield start
    stop.set()
    server.close()


def drip(tls, stop):
    """A byte now and then, for as long as the test may take."""
    tls.recv(9999)
    for _ in range(GUARD * 10):
        if stop.wait(0.1):
            return
        tls.sendall(b"+")


def test_a_node_that_drips_ends_at_the_deadline(node):
    with pytest.raises(Trouble, match="took longer than 1 s|timed out"):
        resp.Redis(*node(drip), "u", "p", 1)


def test_a_command_has_a_deadline_too(node):
    def play(tls, stop):
        tls.recv(9999)
        tls.sendall(OK)
        drip(tls, stop)
    with resp.Redis(*node(play), "u", "p", GUARD) as redis, pytest.raises(Trouble, match="took longer than 1 s|timed out"):
        redis.stream.seconds = 1
        redis.call("PING")


@pytest.mark.parametrize("sent", [b"$99999999999\r\n", b"*99999\r\n", b"*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", b"+\xff\r\n", b":x\r\n", b"$3\r\nab", b"?\r\n", b""])
def test_what_is_no_reply_is_trouble(node, sent):
    def play(tls, _stop):
        tls.recv(9999)
        tls.sendall(sent)
    with pytest.raises(Trouble):
        resp.Redis(*node(play), "u", "p", GUARD)


def test_replies_are_read(node):
    def play(tls, _stop):
        for reply in (OK, b"*3\r\n:1\r\n$2\r\na\n\r\n$-1\r\n"):
            tls.recv(9999)
            tls.sendall(reply)
    with resp.Redis(*node(play), "u", "p", GUARD) as redis:
        assert redis.call("X") == [1, b"a\n", None]


def test_a_nodes_words_play_no_tricks_with_the_terminal(node, capsys):
    def play(tls, _stop):
        tls.recv(9999)
        tls.sendall(b"-ERR \x1b[2Jall is well\x07\r\n")
    with pytest.raises(resp.Refused) as refused:
        resp.Redis(*node(play), "u", "p", GUARD)
    assert "\x1b" not in str(refused.value) and "all is well" in str(refused.value)
    main.say("one\x1b]0;x\x07\ntwo")
    assert capsys.readouterr().out == "one?]0;x?\ntwo\n"
