"""The relay delivers: SMTP and LMTP, what it says and what it passes on, and what it tells the owners."""
import re

import pytest

from support import envelope
from support.relay_peer import ALL
from support.relay_world import BODY, eventually

pytestmark = pytest.mark.core
SENT, WAITING = 1, 0


@pytest.mark.parametrize("lmtp", [False, True], ids=["smtp", "lmtp"])
def test_a_mail_is_delivered_and_every_owner_is_told(world, lmtp):
    w = world()
    peer = w.peer(lmtp=lmtp)
    name = w.store(peer, "b@example.net")
    w.empty()
    mail, = peer.mails
    assert (mail.sender, mail.recipients, mail.body) == ("a@example.org", ["b@example.net"], BODY)
    line, = w.logged(r"4jWhSH0G8Sz1SS5l: to=<b@example.net>.*")
    assert re.search(r"relay=127\.0\.0\.1\[127\.0\.0\.1\]:%d, delay=[\d.]+, delays=[\d.]+/[\d.]+/[\d.]+/[\d.]+, dsn=2\.0\.0, "
                     r"status=sent \(250 2\.0\.0 .*\), why=first, lane=dovelane:\S+, id=%s$" % (peer.port, name.hex()), line)
    w.logged(r"4jWhSH0G8Sz1SS5l: removed")
    assert not w.count("to=<", "mx2"), "only the first owner delivers"


def test_lmtp_over_a_unix_socket(world, tmp_path):
    w = world(nodes=1)
    peer = w.peer(lmtp=True, path=tmp_path / "lmtp")
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 1
    w.logged(rf"relay=localhost\[{tmp_path}/lmtp\]")


def test_commands_are_pipelined(world):
    w = world(nodes=1)
    peer = w.peer(batch=True)  # answers nothing before DATA
    w.store(peer, "b@example.net", "c@example.net", owners=["mx1"])
    w.empty()
    assert peer.mails[0].recipients == ["b@example.net", "c@example.net"]


def test_without_pipelining_every_command_waits_for_its_answer(world):
    w = world(nodes=1)
    peer = w.peer(offers=())
    early = []

    def look(session):
        early.extend(bytes(session.data).splitlines())
        return "250 2.1.0 Ok"

    peer.say("MAIL", look)
    peer.say("RCPT", look)
    w.store(peer, "b@example.net", "c@example.net", owners=["mx1"], sender_args="SIZE=5 BODY=8BITMIME RET=HDRS SMTPUTF8")
    w.empty()
    assert not early, "nothing was sent ahead"
    assert peer.mails[0].lines[-4:] == ["MAIL FROM:<a@example.org>", "RCPT TO:<b@example.net>", "RCPT TO:<c@example.net>", "DATA"]


def test_a_server_that_knows_no_ehlo(world):
    w = world(nodes=1)
    peer = w.peer()
    peer.say("EHLO", "502 5.5.1 unknown")
    w.store(peer, owners=["mx1"])
    w.empty()
    assert peer.seen("^HELO ") and peer.mails


def test_arguments_and_the_client_are_passed_on(world):
    w = world(nodes=1, destinations={"*": {"trust": "xforward"}})
    peer = w.peer()
    w.store(peer, envelope.recipient("b@example.net", "NOTIFY=NEVER ORCPT=rfc822;x@y"), owners=["mx1"], queue_id="4jWhSH0G8Sz1SS5l",
            sender_args="SIZE=1000 BODY=8BITMIME RET=HDRS ENVID=abc+2B AUTH=<>", client_name="client.example",
            client_addr="192.0.2.1", client_port="4711", helo="client.example", protocol="ESMTPS")
    w.empty()
    assert peer.seen("^(XFORWARD|MAIL|RCPT)") == [
        "XFORWARD NAME=client.example ADDR=192.0.2.1 PORT=4711",
        "XFORWARD PROTO=ESMTPS HELO=client.example IDENT=4jWhSH0G8Sz1SS5l",
        f"MAIL FROM:<a@example.org> SIZE={len(BODY)} BODY=8BITMIME ENVID=abc+2B RET=HDRS",
        "RCPT TO:<b@example.net> ORCPT=rfc822;x@y NOTIFY=NEVER"]


def test_the_null_sender(world):
    w = world(nodes=1)
    peer = w.peer()
    w.store(peer, owners=["mx1"], sender="")
    w.empty()
    assert peer.mails[0].sender == ""


@pytest.mark.parametrize("body", [b"", b".", b".\r\n", b"a: b\r\n\r\n..\r\n.\r\nx", b"a: b\r\n\r\n" + b".line\r\n" * 30000,
                                  b"a: b\r\n\r\n" + b"x" * 70 * 1024 + b"\r\n.\r\n", b"a: b\r\n\r\nend without line"],
                         ids=["empty", "dot", "dot-line", "dots", "many-dots", "one-long-line", "open-end"])
def test_every_message_arrives_as_it_is(world, body):
    w = world(nodes=1)
    peer = w.peer()
    w.store(peer, owners=["mx1"], body=body)
    w.empty()
    closed = body if not body or body.endswith(b"\r\n") else body + b"\r\n"
    assert peer.bodies() == [closed]


@pytest.mark.parametrize("line", [b"0123456789" * 6 + b"\r\n", b"." * 60 + b"\r\n"], ids=["clean", "dots"])
def test_a_large_message(world, line):
    w = world(nodes=1)
    peer = w.peer()
    body = b"Subject: large\r\n\r\n" + line * 150000
    w.store(peer, owners=["mx1"], body=body)
    w.empty()
    assert peer.bodies() == [body]


def test_a_connection_is_used_again_and_ended_politely(world):
    w = world(nodes=1, destination_concurrency=1, connection_idle="300ms", connection_reuse=8)
    peer = w.peer()
    for _ in range(20):
        w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 20
    eventually("QUIT", lambda: len(peer.seen("^QUIT")) == 3)
    assert [len([m for m in peer.mails if m.session == n]) for n in (1, 2, 3)] == [8, 8, 4]
    assert not peer.seen("^RSET")


def test_connections_are_bounded(world):
    w = world(nodes=1, destination_concurrency=3)
    peer = w.peer()
    for _ in range(100):
        w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 100 and peer.most_open <= 3


def test_mails_in_hand_are_bounded_over_all_lanes_of_a_next_hop(world):
    from support.relay_peer import HANG
    w = world(destination_in_flight=4, destination_concurrency=1)
    peer = w.peer()
    peer.say("DOT", HANG)
    for n in range(10):
        w.store(peer, owners=["mx1"] if n % 2 else ["mx1", "mx2"])
    eventually("one mail hangs", lambda: peer.seen("^DATA"))
    leased = eventually("four are leased", lambda: [e for e in w.entries("mx1") if e.state == "leased"])
    assert len(leased) <= 4


def test_many_recipients_go_in_batches(world):
    w = world(nodes=1)
    peer = w.peer(lmtp=True)
    people = [f"user{n}@example.net" for n in range(250)]
    w.store(peer, *people, owners=["mx1"])
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == sorted(people)
    assert len(peer.seen("^MAIL")) == 3


def test_lanes_of_others_are_left_alone(world):
    w = world(relays=["mx1"])
    peer = w.peer()
    w.push("mx1", "dovelane:no-owners", (envelope.entry_id(), b"x", b"y"))
    w.push("mx1", "other", (envelope.entry_id(), b"x", b"y"))
    w.store(peer, owners=["mx2", "mx1"])
    w.store(peer, owners=["mx2"], copies=["mx1"])
    w.store("smtp:example.net", owners=["mx1"])
    w.store(peer, owners=["mx1"])
    eventually("the one of ours is delivered", lambda: len(peer.mails) == 1)
    w.logged("destination smtp:example.net: no next hop with an address")
    w.logged("dovelane:no-owners: not named by our rule")
    assert w.connections["mx1"].call("LANE.LEN", "other") == 1 and w.length("mx1") == 4


def test_lanes_that_were_there_before_the_relay(world):
    w = world(relays=[])
    peer = w.peer()
    for _ in range(5):
        w.store(peer)
    w.stack.start("relay-mx1")
    w.empty()
    assert len(peer.mails) == 5


def test_two_destinations_do_not_wait_for_each_other(world):
    from support.relay_peer import HANG
    w = world(nodes=1)
    stuck, good = w.peer(), w.peer()
    stuck.say("MAIL", HANG)
    for _ in range(5):
        w.store(stuck, owners=["mx1"])
        w.store(good, owners=["mx1"])
    eventually("the good one has its mails", lambda: len(good.mails) == 5)


def test_every_mail_of_a_burst_arrives_once(world):
    w = world()
    peers = [w.peer(lmtp=True), w.peer(offers=ALL)]
    names = set()
    for n in range(500):
        name = envelope.entry_id()
        names.add(name.hex().encode())
        w.store(peers[n % 2], name=name, body=b"X-Id: " + name.hex().encode() + b"\r\n\r\n.\r\n")
    w.empty()
    got = [re.match(rb"X-Id: (\S+)", body)[1] for peer in peers for body in peer.bodies()]
    assert len(got) == 500 and set(got) == names
