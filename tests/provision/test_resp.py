"""Redis' protocol, spoken with a node that means harm or is broken: an end to waiting, and no tricks with the terminal."""
import contextlib
import re
import socket
import ssl
import subprocess
import threading

import pytest
from conftest import BUILD

import authority
import desired
import distribute
import group
import main
import redis
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


@pytest.mark.parametrize("each", [b"$1000000\r\n" + b"x" * 1000000 + b"\r\n", b"*10000\r\n" + b":1\r\n" * 10000, b"+" + b"x" * 60000 + b"\r\n"], ids=["texts", "elements", "lines"])
def test_a_list_has_a_bound_as_a_whole(node, each):
    """Each part of it is short enough: a thousand of them are memory that the host has not."""
    def play(tls, _stop):
        tls.recv(9999)
        tls.sendall(OK)
        tls.recv(9999)
        tls.sendall(b"*100\r\n" + each * 100)
    with resp.Redis(*node(play), "u", "p", GUARD) as redis, pytest.raises(resp.Unreached, match="a reply that is too long"):
        redis.call("GET", "x")


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
    main.document.begin(False)  # text, whatever a test before this one has asked for
    main.say("one\x1b]0;x\x07\ntwo")
    assert capsys.readouterr().out == "one?]0;x?\ntwo\n"


# ---- a real Redis, with the configuration and the users that init writes ----

MEMORY, CLIENTS = 100, 256  # MB


@pytest.fixture
def real(ready, tmp_path, monkeypatch):
    """(host, member): the node of a host after init, as init configured it; only its address and its places are others."""
    module = BUILD / "redis-module/lane.so"
    assert module.exists(), f"{module} is not built: make"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    key = desired.Secrets(ready).key
    cert = authority.sign(ready.text(f"{desired.AUTHORITY}/ca.key"), ready.text(group.CA_FILE), authority.request(key), "mx1", authority.alternatives("mx1", "127.0.0.1"))
    ready.path(redis.NODE).write_text(cert + key)
    text = re.sub(r"^tls-port .*", f"tls-port {port}", re.sub(r"^bind .*", "bind 127.0.0.1", ready.text(redis.FILE), flags=re.M), flags=re.M)
    text = text.replace("/etc/redis/dovelane", str(ready.path("/etc/redis/dovelane")))
    for name, value in (("dir", tmp_path), ("loadmodule", module), ("maxmemory", f"{MEMORY}mb"), ("pidfile", tmp_path / "pid"), ("logfile", tmp_path / "log"), ("daemonize", "no"), ("supervised", "no")):
        text = re.sub(rf"^{name} .*\n", "", text, flags=re.M) + f"{name} {value}\n"
    text = re.sub(r"^maxmemory-clients .*", f"maxmemory-clients {CLIENTS}mb", text, flags=re.M)
    (tmp_path / "redis.conf").write_text(text)
    server = subprocess.Popen(["redis-server", tmp_path / "redis.conf"])
    monkeypatch.undo()  # the real functions, in the place of those that play servers
    try:
        redis.wait(ready, f"127.0.0.1:{port}", GUARD)
        yield ready, {"name": "mx1", "address": f"127.0.0.1:{port}"}
    finally:
        server.kill()
        server.wait()


def test_a_real_node_takes_what_is_said_to_it(real):
    host, me = real
    for who in ("mx1", "another"):  # as the operator, and as another host's `dovelane`
        with distribute.connect(host, me, who) as connection:
            distribute.put(connection, distribute.KEY, f"by {who} \r\n")
            assert connection.call("GET", distribute.KEY) == f"by {who} \r\n".encode()
            assert connection.call("GET", distribute.REQUEST) is None
    assert distribute.gather(host, {"members": [me]}, "mx1") == [(me, "by another \r\n", None)]
    with distribute.connect(host, me, "another") as connection, pytest.raises(resp.Refused, match="NOPERM"):
        connection.call("CONFIG", "SET", "maxmemory", "1")
    assert redis.waiting(host, me["address"]) == []
    redis.load_users(host, me["address"])
    with redis.operator(host, me["address"]) as connection:
        for name in ("lmtp:x", "smtp:y"):
            connection.call("LANE.CREATE", f"dovelane:{name}|mx1>mx2")
    assert redis.waiting(host, me["address"]) == []
    host.path(desired.user_file("dovelane")).write_text("dovelane wrong\n")
    with pytest.raises(Trouble, match="WRONGPASS"):
        distribute.connect(host, me, "another")


def used(operator):
    return int(re.search(rb"used_memory:(\d+)", operator.call("INFO", "memory"))[1]) >> 20


def is_closed(connection):
    connection.settimeout(0.05)
    try:
        return not connection.recv(1 << 20)
    except OSError as e:
        return not isinstance(e, TimeoutError)


def ask_on(way_in, operator, request, times):
    """Asks and reads no answer, until the node closes the connection. What it has in memory then, MB."""
    with contextlib.suppress(OSError):
        for _ in range(times):
            way_in.socket.sendall(request)
            if used(operator) > MEMORY + 2 * CLIENTS:
                return used(operator)
    while used(operator) < MEMORY + CLIENTS and not is_closed(way_in.socket):
        pass
    return used(operator)


@pytest.mark.parametrize("request_, times", [(b"*1\r\n$10\r\nLANE.BEATS\r\n" * 100, 1000), (b"*9\r\n$9\r\nLANE.PUSH\r\n$500000000\r\nx", 1)], ids=["answers", "half a request"])
def test_who_may_only_store_takes_no_memory_beyond_bounds(real, request_, times):
    """Lanes are in this memory alone: what the kernel ends for want of it had mail that was answered 250."""
    host, me = real
    password = desired.Secrets(host).passwords["dovelane-milter"]
    with redis.operator(host, me["address"]) as operator:
        operator.call("LANE.PUSH", 1, "dovelane:lmtp:x|mx1", "ENTRIES", 1, 1, "i" * 16, "meta", "body")
        for n in range(4):
            operator.call("LANE.BEAT", f"mx{n}", "i", 1, "t" * 8000)
        for _ in range(3):
            with resp.Redis(me["address"], host.path(group.CA_FILE), "dovelane-milter", password, GUARD) as way_in:
                assert ask_on(way_in, operator, request_, times) < MEMORY + CLIENTS
        assert operator.call("LANE.LEN", "dovelane:lmtp:x|mx1") == 1


@pytest.mark.parametrize("maxmemory, clients", [("64mb", "256mb"), ("4gb", "512mb"), ("16g", "1907mb")])
def test_what_connections_may_take_follows_from_maxmemory(maxmemory, clients):
    assert redis.client_memory(maxmemory) == clients
