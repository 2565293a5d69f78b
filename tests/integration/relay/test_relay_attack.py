"""Next hops, senders and bad days that try to break the relay: no mail is lost, and the mail of others goes on."""
import threading

import pytest

from support import envelope
from support.relay_peer import HANG
from support.relay_world import BODY, eventually
from test_relay_engine import certificates, server  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]


def test_results_that_an_envelope_has_no_room_for_are_shortened(world):
    """An envelope has at most 1 MiB. One that was stored just below it must not stop the relay when the next hop says much about each recipient."""
    w = world()
    peer, other = w.peer(), w.peer()
    peer.say("RCPT", "450 4.2.0 " + "later " * 80)
    recipients = [f"u{n}@example.net" for n in range(1000)]
    meta = envelope.encode([envelope.recipient(r, "ORCPT=rfc822;" + "o" * 1000) for r in recipients], size=len(BODY))
    assert len(meta) < 1 << 20
    w.store(peer, meta=meta)
    w.logged("to=<u999@example.net>.*status=deferred")
    w.store(other, "other@example.net")
    eventually("another mail is delivered", lambda: other.mails)
    peer.well()
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == sorted(recipients)


@pytest.mark.parametrize("lmtp", [False, True], ids=["smtp", "lmtp"])
@pytest.mark.parametrize("said", [b"2", b"250 ", b"250-more\r\n"])
def test_a_piece_of_a_reply_on_a_kept_connection(world, lmtp, said):
    """The server begins to speak while nobody asked: no attempt, the next mail has another connection."""
    w = world(retry_first="60s", retry_most="60s", connection_idle="60s")
    peer = w.peer(lmtp=lmtp)

    def later(session):
        threading.Timer(0.3, lambda: session.socket.sendall(said)).start()

    peer.say("IDLE", later, times=1)
    w.store(peer, "a@example.net")
    eventually("the connection is closed", lambda: peer.mails and not peer.open)
    w.store(peer, "b@example.net")
    w.empty()
    assert len(peer.mails) == 2 and w.count("status=deferred") == 0


def test_a_relay_killed_between_two_transactions_of_a_mail_does_not_repeat_the_first(world):
    w = world()
    peer = w.peer()
    peer.say("DOT", HANG, match="u149@", times=1)
    recipients = [f"u{n}@example.net" for n in range(150)]
    w.store(peer, *recipients)
    eventually("the second transaction waits for its last answer", lambda: peer.rules[0].used)
    for node in ("mx1", "mx2"):
        eventually(f"{node} knows of the first", lambda node=node: sum(state for state, _ in w.states(node).values()) == 100)
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == sorted(recipients)


def test_a_server_that_sends_no_end_of_tickets(world, certificates):
    """Each ticket costs a client much more than a server: one that sends more than any needs is left, and others do not wait for it."""
    w = world(nodes=1, destinations={"*": {"tls": "may", "tls_ca_file": str(certificates / "ca.pem")}})
    tickets = server(certificates)
    tickets.num_tickets = 1000
    peer, other = w.peer(tls=tickets), w.peer()
    w.store(peer, owners=["mx1"])
    w.logged(r"is away: .* while performing the EHLO handshake")
    w.store(other, owners=["mx1"])
    eventually("another mail is delivered", lambda: other.mails)
    tickets.num_tickets = 2
    w.empty()
    assert len(peer.mails) == 1
