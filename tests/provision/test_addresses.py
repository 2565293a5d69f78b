"""An address, a port or a size that cannot be is said before anything is written or a token is used, with the way out."""
import errno
import json
import socket
import ssl
import threading

import pytest
from conftest import CHECK_LISTEN, CHECK_PORT, WAIT, PlayedHost, tree
from test_enroll import Open
from test_join import enroll_secret, words
from test_plan import INIT

import enroll
import invitation
import network
import redis
from host import Trouble

pytestmark = pytest.mark.long


@pytest.fixture
def looks(monkeypatch):
    """Addresses and ports are looked at, as on a real host."""
    monkeypatch.setattr(network, "check_listen", CHECK_LISTEN)


@pytest.fixture
def opened(ready):
    made = Open(ready)
    yield made
    if made.thread and made.thread.is_alive():
        made.close()


def has_no(where):
    """203.0.113.77 is for documentation (RFC 5737): no host has it."""
    return f"{where} is no address of this host"


def test_an_address_of_another_host_is_said_before_anything_is_written(host, dovelane, looks, monkeypatch):
    monkeypatch.setattr(network, "own_addresses", lambda _: ["10.0.0.1", "fd00::1"])
    before = tree(host.root)
    for more in ((), ("--dry-run",)):
        status, said = dovelane("init", "--address", "203.0.113.77", "--name", "mx1", "--yes", *more)
        assert status == 2 and has_no("203.0.113.77") in said and "this host has 10.0.0.1, fd00::1" in said
    assert tree(host.root) == before and not host.did


def test_the_hosts_own_addresses_are_those_that_others_reach():
    from host import Host
    assert not [a for a in network.own_addresses(Host()) if a.startswith("127.")]


def test_a_port_that_is_taken_is_said_with_its_holder(host):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = taken.getsockname()
        with pytest.raises(Trouble, match=rf"port {at[1]} of 127.0.0.1 is taken \(by .*\): say another one, like 127.0.0.1:7001"):
            network.try_to_listen(host, socket.AF_INET, at, "x")
    network.try_to_listen(host, socket.AF_INET, at, "x")
    with pytest.raises(Trouble, match="port 25 of 127.0.0.1 is below 1024"):
        network.try_to_listen(host, socket.AF_INET, ("127.0.0.1", 25), "x")


def test_a_name_that_is_loopback_here_is_refused(host, monkeypatch):
    """As Debian's /etc/hosts has the host's own."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 7001))])
    with pytest.raises(Trouble, match="mx1.example.org is 127.0.1.1 here .*other hosts do not reach"):
        CHECK_LISTEN(host, "mx1.example.org:7001")


def test_a_joins_address_is_looked_at_before_the_token_is_sent(opened, tmp_path, dovelane, looks):
    second, token, heard = PlayedHost(tmp_path / "second"), opened.invite(), []
    before, where = tree(second.root), opened.listen()
    real = opened.enroller.answer
    opened.enroller.answer = lambda line: heard.append(line) or real(line)
    line = [word if word != "192.0.2.2" else "203.0.113.77" for word in words(where, token, "--yes")]
    status, said = dovelane(*line, on=second)
    assert status == 2 and has_no("203.0.113.77") in said, said
    assert tree(second.root) == before and heard == [b'{"op": "hello"}\n'] and opened.members() == ["mx1"]
    assert opened.invitations.look(enroll_secret(token)) is None, "the invitation is still good"


# ---- a node that does not run ----

@pytest.fixture
def waits(monkeypatch):
    """The own node is asked, and nobody is there."""
    monkeypatch.setattr(redis, "wait", lambda host, address, seconds=60: WAIT(host, address, 0))


def test_a_second_run_is_not_done_while_its_node_does_not_answer(host, dovelane, waits):
    host.logged = "bind: Cannot assign requested address\nFailed listening on port 7001 (tls)\n"
    assert dovelane(*INIT)[0] == 2
    host.units[redis.UNIT] = (True, True)
    status, said = dovelane(*INIT)
    assert status == 2 and "the node of this host does not answer at 192.0.2.1:7001" in said and "bind: Cannot assign" in said


def test_a_second_join_is_not_done_while_its_node_does_not_answer(opened, tmp_path, dovelane, monkeypatch):
    second, token = PlayedHost(tmp_path / "second"), opened.invite()
    where = opened.listen()
    with monkeypatch.context() as patch:
        patch.setattr(redis, "wait", lambda host, address, seconds=60: WAIT(host, address, 0))
        for _ in range(2):
            second.units[redis.UNIT] = (True, True)
            status, said = dovelane(*words(where, token, "--yes"), on=second)
            assert status == 2 and "does not answer at 192.0.2.2:7001" in said and "done" not in said, said
    status, said = dovelane(*words(where, token, "--yes"), on=second)
    assert status == 0 and "this host is mx2" in said


def test_a_unit_that_waits_for_its_next_try_is_started(host, monkeypatch):
    monkeypatch.setattr(host, "played", lambda verb, units: PlayedHost.played(host, verb, units) if verb != "is-active" else type("", (), {"stdout": "activating\n"}))
    assert host.active("x.service") and not host.running("x.service")


def test_the_error_of_a_unit_has_its_last_log_lines(host, monkeypatch):
    host.logged = "argument must be a memory value\n"

    def fails(verb, units):
        raise Trouble("`systemctl start x.service` failed: Created symlink /a → /b. / Job for x.service failed")
    monkeypatch.setattr(host, "played", fails)
    with pytest.raises(Trouble, match="x.service: argument must be a memory value") as trouble:
        host.systemctl("start", "x.service")
    assert "symlink" not in str(trouble.value)


def test_an_undo_goes_on_where_the_node_never_ran(host, dovelane, monkeypatch):
    before = tree(host.root)
    assert dovelane(*INIT)[0] == 0
    host.units[redis.UNIT] = (True, False)

    def unreached(host, address):
        raise AssertionError("it is asked")
    monkeypatch.setattr(redis, "waiting", unreached)
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0 and tree(host.root) == before, said


def test_an_undo_that_cannot_ask_the_node_names_the_whole_way_out(host, dovelane, monkeypatch):
    import resp
    assert dovelane(*INIT)[0] == 0

    def unreached(host, address):
        raise resp.Unreached("the Redis at 192.0.2.1:7001 cannot be reached: no route to host")
    monkeypatch.setattr(redis, "waiting", unreached)
    before = tree(host.root)
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 2 and "dovelane init --undo --lose-mail" in said and f"systemctl restart {redis.UNIT}" in said
    assert tree(host.root) == before
    assert dovelane("init", "--undo", "--yes", "--lose-mail")[0] == 0


# ---- sizes, ports and times ----

@pytest.mark.parametrize("size, why", [("lots", "'lots' is no size: write it like 4gb or 800mb"), ("500gb", "more than 80% of this host's memory (16384mb)"), ("1mb", "less than 64mb"), ("-1gb", "is no size"),
                                       ("4 gb", "is no size"), ("4gib", "is no size")])
def test_a_size_that_no_node_can_have_is_refused(host, dovelane, monkeypatch, size, why):
    monkeypatch.setattr(host, "memory", lambda: 16 << 30)
    before = tree(host.root)
    status, said = dovelane(*INIT, f"--maxmemory={size}")
    assert status == 2 and why in said and tree(host.root) == before, said


def test_a_size_is_taken_and_counts_once(host, dovelane, monkeypatch):
    monkeypatch.setattr(host, "memory", lambda: 16 << 30)
    assert dovelane(*INIT, "--maxmemory", "4GB")[0] == 0 and "\nmaxmemory 4gb\n" in host.text(redis.FILE)
    assert dovelane(*INIT, "--maxmemory", "4gb")[0] == 0
    status, said = dovelane(*INIT, "--maxmemory", "5gb")
    assert status == 2 and f"edit maxmemory in {redis.FILE}" in said


@pytest.mark.parametrize("words, why", [(("--minutes", "0"), "--minutes 0: 1 to 1440"), (("--minutes", "-5"), "1 to 1440"), (("--port", "0"), "--port 0: 1 to 65535"), (("--port", "70000"), "1 to 65535")])
def test_an_invitation_that_cannot_be_is_refused(ready, dovelane, words, why):
    before = ready.text(invitation.FILE)
    status, said = dovelane("invite", *words)
    assert status == 2 and why in said and "--token" not in said and ready.text(invitation.FILE) == before


def test_a_port_of_an_invitation_that_is_taken_is_said_before_a_token(ready, dovelane, monkeypatch):
    monkeypatch.setattr(network, "check_port", CHECK_PORT)
    monkeypatch.setattr(network, "resolved", lambda where, port: [(socket.AF_INET, ("127.0.0.1", port))])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, said = dovelane("invite", "--port", str(taken.getsockname()[1]))
    assert status == 2 and "is taken (by" in said and "say another --port" in said and "--token" not in said


def test_a_port_of_an_invitation_stays_while_that_is_open(ready, dovelane):
    status, said = dovelane("invite", "--port", "7005", "--minutes", "1")
    assert status == 0 and "192.0.2.1:7005" in said and "For 1 minute, and once" in said and "were for port 7002: in their lines write 7005 now" in said
    assert "192.0.2.1:7005" in dovelane("invite")[1]
    ready.path(invitation.FILE).unlink()
    assert "192.0.2.1:7002" in dovelane("invite")[1]


# ---- words of the network ----

@pytest.mark.parametrize("error, words", [
    (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host"), (TimeoutError("timed out"), "no answer"), (socket.gaierror(-2, "Name or service not known"), "that name has no address"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "nobody listens there"), (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:992)"), "it speaks no TLS: another program has that port"),
    (ssl.SSLError(1, "[SSL: SOMETHING] some words (_ssl.c:992)"), "some words"), (ssl.SSLEOFError(8, "EOF occurred in violation of protocol (_ssl.c:992)"), "the connection was closed")])
def test_errors_of_the_network_have_plain_words(error, words):
    assert network.said(error) == words


def test_a_join_at_the_port_of_another_program_says_so(opened):
    token = opened.invite()
    with socket.create_server(("127.0.0.1", 0)) as server:
        def play():
            with server.accept()[0] as raw:
                raw.recv(999)
                raw.sendall(b"220 mx1 ESMTP\r\n")
        threading.Thread(target=play, daemon=True).start()
        with pytest.raises(Trouble, match="answers, and is no listener of an invitation .it speaks no TLS.*port 7002"):
            enroll.Door(f"127.0.0.1:{server.getsockname()[1]}", token).meet()


def test_a_join_at_the_port_of_a_node_says_so(opened):
    token = opened.invite()
    opened.listen()
    opened.enroller.answer = lambda line: {}
    door = opened.door(token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "dumps", lambda what, real=json.dumps: "-NOAUTH Authentication required." if what == {} else real(what))
        with pytest.raises(Trouble, match="is no listener of an invitation: it is the port of a node"):
            door.meet()
