"""The door for a host that joins, with real TLS on loopback: one invited host gets in once, and nobody else does."""
import base64
import json
import socket
import ssl
import threading
import time

import pytest
from conftest import PlayedHost

import authority
import desired
import distribute
import enroll
import group
import invitation
from host import Trouble

pytestmark = pytest.mark.long

GUARD = 60  # seconds; only against hanging


class Open:
    """A host with an authority, and its listener in a thread while an invitation is open."""

    def __init__(self, host):
        self.host = host
        self.invitations = invitation.Invitations(host)
        host.path(invitation.FILE).unlink()  # init's own
        self.ca = host.text(group.CA_FILE)
        self.said, self.thread, self.port = [], None, None

    def invite(self, replace=None, life=60):
        return invitation.make_token(authority.fingerprint(self.ca), self.invitations.new(replace, life))

    def listen(self, now=time.time):
        ready = threading.Event()

        def opened(port):
            self.port = port
            ready.set()
        self.enroller = enroll.Enroller(self.host, lambda fn: distribute.change(self.host, fn), now)
        self.thread = threading.Thread(target=enroll.serve, args=(self.enroller, "127.0.0.1", 0, self.said.append, opened), daemon=True)
        self.thread.start()
        assert ready.wait(GUARD)
        return f"127.0.0.1:{self.port}"

    def door(self, token):
        return enroll.Door(f"127.0.0.1:{self.port}", token)

    def join(self, token, name="mx2", address="192.0.2.2", key=None, **more):
        door = self.door(token)
        door.meet()
        return door.join(key or authority.new_key(), name=name, address=address, site=more.get("site", ""), gateway=more.get("gateway", True))

    def members(self):
        return [m["name"] for m in desired.read_group(self.host)[1]["members"]]

    def close(self):
        with self.invitations.changed() as data:
            data["open"].clear()
        self.thread.join(GUARD)
        assert not self.thread.is_alive()


@pytest.fixture
def opened(ready):
    made = Open(ready)
    yield made
    if made.thread and made.thread.is_alive():
        made.close()


def test_an_invited_host_gets_what_it_needs_and_no_more(opened):
    token = opened.invite()
    opened.listen()
    key = authority.new_key()
    said = opened.join(token, key=key)
    assert authority.belongs(said["cert"], opened.ca, key) is None and opened.members() == ["mx1", "mx2"]
    text = authority.openssl("x509", "-noout", "-text", given=said["cert"].encode()).decode()
    assert "DNS:mx2, IP Address:192.0.2.2" in text and "CA:FALSE" in text
    assert set(said["passwords"]) == {"dovelane", "dovelane-milter", "dovelane-proxy", "dovelane-relay"}, "it has no mailboxes: no replicator's"
    assert "PRIVATE KEY" not in json.dumps(said)


def test_the_door_closes_when_nobody_is_expected_any_more(opened):
    token = opened.invite()
    opened.listen()
    opened.join(token)
    opened.thread.join(GUARD)
    assert not opened.thread.is_alive()
    with pytest.raises(Trouble, match="nobody listens at .* ended or was used"):
        opened.join(token)


def test_a_token_that_was_used_is_refused(opened):
    token = opened.invite()
    opened.invite()  # another one keeps the door open
    opened.listen()
    opened.join(token)
    with pytest.raises(Trouble, match="was used by mx2 already"):
        opened.join(token, name="mx3", address="192.0.2.3")
    assert opened.members() == ["mx1", "mx2"]


def test_two_at_once_with_one_token_are_one(opened):
    token, got = opened.invite(), []
    opened.invite()
    opened.listen()

    def one(n):
        try:
            got.append(opened.join(token, name=f"mx{n}", address=f"192.0.2.{n}"))
        except Trouble as e:
            got.append(str(e))
    threads = [threading.Thread(target=one, args=(n,)) for n in (2, 3, 4, 5)]
    [t.start() for t in threads]
    [t.join(GUARD) for t in threads]
    assert sum(isinstance(each, dict) for each in got) == 1 and len(opened.members()) == 2, got


def test_a_token_that_ended_is_refused(opened):
    token = opened.invite(life=60)
    opened.invite(life=7200)
    opened.listen()
    opened.invitations.now = opened.enroller.invitations.now = lambda: time.time() + 3000
    with pytest.raises(Trouble, match=r"this token ended \d+ min ago"):
        opened.join(token)


def test_a_wrong_secret_is_refused_and_many_end_all_invitations(opened):
    good = opened.invite()
    opened.listen()
    bad = invitation.make_token(authority.fingerprint(opened.ca), b"x" * invitation.SECRET)
    for _ in range(invitation.MOST_TRIES):
        with pytest.raises(Trouble, match="not known here"):
            opened.join(bad)
    opened.thread.join(GUARD)
    assert not opened.thread.is_alive()
    with pytest.raises(Trouble, match="nobody listens"):
        opened.join(good)
    with pytest.raises(Trouble, match="tries with wrong tokens"):
        opened.invitations.look(invitation.read_token(good)[1])
    assert opened.members() == ["mx1"]
    opened.invite()  # a new one begins anew
    assert opened.invitations.any_open()


def test_what_is_stored_does_not_let_anybody_in(opened):
    token = opened.invite()
    _, secret = invitation.read_token(token)
    stored = opened.host.read(invitation.FILE)
    assert secret.hex().encode() not in stored and base64.b64encode(secret) not in stored and token.encode() not in stored


def test_another_authority_is_told_nothing(opened, tmp_path, dovelane):
    """Somebody listens in the place of the host that invited."""
    other = PlayedHost(tmp_path / "other")
    assert dovelane("init", "--address", "192.0.2.1", "--name", "mx1", "--gateway", "--yes", on=other)[0] == 0
    foreign = Open(other)
    foreign.invite()
    foreign.listen()
    token = opened.invite()
    heard = []
    real = foreign.enroller.answer
    foreign.enroller.answer = lambda line: heard.append(line) or real(line)
    door = foreign.door(token)
    with pytest.raises(Trouble, match="is of another group than the token.*Nothing secret was told"):
        door.meet()
    assert heard == [b'{"op": "hello"}\n']
    foreign.close()


def test_a_node_that_was_broken_into_cannot_play_the_authority(opened):
    """It shows the authority's certificate, and has one of its own; it does not get the secret."""
    token = opened.invite()
    key = authority.new_key()
    ca_key = opened.host.text(f"{desired.AUTHORITY}/ca.key")
    cert = authority.sign(ca_key, opened.ca, authority.request(key), "mx9", authority.alternatives("mx9", "127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with authority.scratch() as d:
        (d / "pem").write_text(cert + key)
        context.load_cert_chain(d / "pem")
    heard = []
    server = socket.create_server(("127.0.0.1", 0))
    opened.port = server.getsockname()[1]

    def play():
        for _ in range(2):
            with server.accept()[0] as raw:
                try:
                    with context.wrap_socket(raw, server_side=True) as tls:
                        heard.append(tls.recv(9999))
                        tls.sendall(json.dumps({"ca": opened.ca, "time": time.time()}).encode() + b"\n")
                except OSError:
                    pass
    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    door = opened.door(token)
    door.meet()
    with pytest.raises(Trouble, match="could not prove .* Nothing secret was told to it"):
        door.look()
    thread.join(GUARD)
    assert heard == [b'{"op": "hello"}\n']
    server.close()


def raw_connection(opened):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", opened.port), timeout=GUARD))


def test_older_tls_is_refused(opened):
    opened.invite()
    opened.listen()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        context.wrap_socket(socket.create_connection(("127.0.0.1", opened.port), timeout=GUARD))


@pytest.mark.parametrize("sent", [b"x" * 1_000_000 + b"\n", b"[" * 15000 + b"\n", b"\xff\x00\n", b"{}\n", b'{"op": ["join"]}\n', b'{"op": "join", "secret": {"a": 1}}\n', b'{"op": "look", "secret": 7}\n',
                                  b'"join"\n', b"\n"], ids=range(9))
def test_nonsense_is_refused_and_the_door_stays_open(opened, sent):
    token = opened.invite()
    opened.listen()
    try:
        with raw_connection(opened) as tls:
            tls.sendall(sent)
            said = tls.recv(65536)
            assert not said or b"error" in said
    except OSError:
        pass  # it was cut off
    assert opened.join(token)["cert"]


def test_slow_clients_do_not_keep_the_door(opened):
    """More of them than are served at one time, which say nothing: the oldest go, and the invited one gets in."""
    token = opened.invite()
    opened.listen()
    slow = [raw_connection(opened) for _ in range(enroll.MOST_CONNECTIONS + 10)]
    mute = [socket.create_connection(("127.0.0.1", opened.port), timeout=GUARD) for _ in range(20)]
    try:
        assert opened.join(token)["cert"]
    finally:
        for each in slow + mute:
            each.close()


@pytest.mark.parametrize("name, address, why", [("mx1", "192.0.2.2", "has a host mx1 already"), ("mx2", "192.0.2.1", "is the address of mx1"), ("mx 2", "192.0.2.2", "is no node's name"),
                                                ("mx2", "127.0.0.1", "other hosts do not reach"), ("mx2", "192.0.2.2, DNS:enroll_.dovelane.invalid", "is no address"), ("", "192.0.2.2", "is no node's name"),
                                                ("mx2", "enroll_.dovelane.invalid", "is no address"), ("../x", "192.0.2.2", "is no node's name")])
def test_a_name_or_address_that_cannot_be_is_refused_and_the_token_stays_good(opened, name, address, why):
    token = opened.invite()
    opened.listen()
    with pytest.raises(Trouble, match=why):
        opened.join(token, name=name, address=address)
    assert opened.members() == ["mx1"]
    assert opened.join(token)["cert"]


def test_a_request_gives_only_its_key(opened):
    """Names in it, and what it says of being an authority, count for nothing."""
    token = opened.invite()
    opened.listen()
    door, key = opened.door(token), authority.new_key()
    door.meet()
    with authority.scratch() as d:
        (d / "key").write_text(key)
        csr = authority.openssl("req", "-new", "-key", d / "key", "-subj", "/CN=mx1", "-addext", "subjectAltName=DNS:enroll_.dovelane.invalid", "-addext", "basicConstraints=critical,CA:TRUE").decode()
    said = door.verified(op="join", csr=csr, name="mx2", address="192.0.2.2", site="", gateway=True)
    text = authority.openssl("x509", "-noout", "-text", given=said["cert"].encode()).decode()
    assert "CA:FALSE" in text and "enroll_" not in text and "CN = mx2" in text


def test_a_request_that_is_none_is_refused_and_the_token_stays_good(opened):
    token = opened.invite()
    opened.listen()
    for csr in ("", "nonsense", opened.ca, authority.openssl("req", "-new", "-newkey", "rsa:1024", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=x").decode()):
        door = opened.door(token)
        door.meet()
        with pytest.raises(Trouble):
            door.verified(op="join", csr=csr, name="mx2", address="192.0.2.2", site="", gateway=True)
    assert opened.join(token)["cert"]


def test_clocks_that_are_apart_are_named(opened, monkeypatch):
    token = opened.invite()
    opened.listen()
    now = time.time()
    opened.enroller.now = lambda: now + 4000
    monkeypatch.setattr(enroll.time, "time", lambda: now)  # the seconds between the two looks do not count
    with pytest.raises(Trouble, match="clock is 4000 s behind that of .*set it"):
        opened.join(token)


def test_a_token_that_was_copied_badly_is_named(opened):
    token = opened.invite()
    for wrong in (token[:-3], token + "AAAA", token.replace(token[5], "*", 1), ""):
        with pytest.raises(Trouble, match="not whole"):
            enroll.Door("127.0.0.1:1", wrong)


def test_a_lost_host_keeps_its_name_and_number(opened):
    first = opened.invite()
    opened.listen()
    opened.join(first, site="two")
    opened.thread.join(GUARD)
    token = opened.invite(replace="mx2")
    opened.listen()
    with pytest.raises(Trouble, match="join with --name mx2"):
        opened.join(token, name="mx3", address="192.0.2.3")
    old = group.member(desired.read_group(opened.host)[1], "mx2")
    opened.join(token, address="192.0.2.20", site="two")
    new = group.member(desired.read_group(opened.host)[1], "mx2")
    assert (new["site_id"], new["address"]) == (old["site_id"], "192.0.2.20:7001") and new["keys"] != old["keys"] and len(new["keys"]) == 1


def test_the_number_of_a_site_that_is_gone_is_not_given_again(opened):
    first = opened.invite()
    opened.listen()
    opened.join(first, site="two")
    number = group.member(desired.read_group(opened.host)[1], "mx2")["site_id"]
    distribute.change(opened.host, lambda description: group.remove(description, "mx2"))
    opened.thread.join(GUARD)
    token = opened.invite()
    opened.listen()
    opened.join(token, site="other")
    assert group.member(desired.read_group(opened.host)[1], "mx2")["site_id"] == number + 1


def test_a_site_that_comes_back_gets_its_old_number(opened):
    """Its users' state.db is of that number, and is refused under another one."""
    for _ in range(2):
        token = opened.invite()
        opened.listen()
        opened.join(token, site="two")
        number = group.member(desired.read_group(opened.host)[1], "mx2")["site_id"]
        distribute.change(opened.host, lambda description: group.remove(description, "mx2"))
        opened.thread.join(GUARD)
    another = opened.invite()
    opened.listen()
    opened.join(another, name="mx3", address="192.0.2.3", site="three")
    again = group.add(desired.read_group(opened.host)[1], "mx2", "192.0.2.2", True, "two")
    assert number == 1 and [m["site_id"] for m in again["members"] if m["site"]] == [1, 2]


# ---- somebody else's answers ----

def test_a_strange_answer_is_named(opened):
    """Whoever listens there may say anything; a newcomer ends with a sentence."""
    token = opened.invite()
    opened.listen()
    for line in ("[]", '"x"', "7", "null", "{}", '{"ca": 7}', '{"ca": ["x"]}', "[" * 20000, "no JSON"):
        opened.enroller.answer = lambda _asked, line=line: Raw(line)
        with pytest.raises(Trouble, match="does not answer as a host of Dovelane"):
            opened.door(token).meet()


class Raw(dict):
    """An answer that json.dumps() writes as it is."""

    def __init__(self, line):
        super().__init__()
        self.line = line


@pytest.fixture(autouse=True)
def raw_answers(monkeypatch):
    real = json.dumps
    monkeypatch.setattr(enroll.json, "dumps", lambda what, **more: what.line if isinstance(what, Raw) else real(what, **more))


def test_a_time_that_is_none_is_named(opened):
    token = opened.invite()
    opened.listen()
    for there in ("x", None, [1], 1e400, float("nan"), True, "\x1b[2J"):
        opened.enroller.now = lambda there=there: there
        with pytest.raises(Trouble, match="its time is") as said:
            opened.door(token).meet()
        assert "\x1b" not in str(said.value)


def test_an_answer_that_lacks_what_a_host_needs_is_named(opened):
    opened.invite()  # keeps the door open
    opened.listen()
    real = opened.enroller.join
    lacks = [{"group": None}, {"group": 7}, {"group": "x"}, {"cert": None}, {"cert": ["x"]}, {"passwords": None}, {"passwords": {"dovelane": "x y"}}, {"passwords": {}}]
    for n, change in enumerate(lacks, 2):
        opened.enroller.join = lambda asked, change=change: {**real(asked), **change}
        with pytest.raises(Trouble, match="does not answer as a host of Dovelane|cannot be used"):
            opened.join(opened.invite(), name=f"mx{n}", address=f"192.0.2.{n}")


def test_an_error_of_the_other_end_is_one_plain_line(opened):
    token = opened.invite()
    opened.listen()
    opened.enroller.look = lambda asked: {"error": "no\x1b[2J\nall is well"}
    door = opened.door(token)
    door.meet()
    with pytest.raises(Trouble) as said:
        door.look()
    assert "\x1b" not in str(said.value) and "\n" not in str(said.value)
