"""Rules of `shape` on bad days: a Postfix that takes no bounces, suspensions that outlast a mail's time, rules that change while mail is sent, and next hops that close what waits."""
import time

import pytest

from support import admin, envelope
from support.relay_peer import CLOSE, HANG, Meeting
from support.relay_world import timeouts
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]

BOUNCES = {"timeout": "2s", "timeout_action": "bounce"}


def fill(w, peer, n, size=100):
    w.push_everywhere(["mx1"], w.lane(peer, ["mx1"]), *[
        (envelope.entry_id(), envelope.encode([f"u{k}@example.net"], size=size), b"Subject: x\r\n\r\n" + b"x" * size + b"\r\n") for k in range(n)])


# -- bounces that cannot be given away -------------------------------------------------------------------------------------

def test_without_a_bounce_port_what_is_too_old_is_tried_by_the_schedule(world):
    w = world(nodes=1, relays=["mx1"], shapes=[("*", BOUNCES)], settle="1300ms", retry_first="1h", retry_most="2h")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.1 mailbox busy")
    w.store(peer, "late@example.net", owners=["mx1"])
    w.logged(r"to=<late@example.net>: cannot be bounced, bounce_port is not set")
    time.sleep(12)      # two more rounds
    assert w.count("cannot be bounced") == 1 and w.length("mx1") == 1


def test_bounces_that_hang_do_not_fill_the_relays_memory(world):
    """As many are read into the relay as on the way to Postfix's queue."""
    w = world(nodes=1, relays=["mx1"], bounce=True, settle="1300ms", shapes=[("*", BOUNCES)], **timeouts("100s"))
    w.bounce.say("MAIL", HANG)
    peer = w.peer()
    peer.say("RCPT", "450 4.2.1 mailbox busy")
    w.configure(shapes=[("*", {**BOUNCES, "suspend": "x"})])
    w.logged("config read again")
    fill(w, peer, 600)
    time.sleep(3)
    w.configure(shapes=[("*", {**BOUNCES, "rate": "1/h", "burst": 1})])
    w.logged(r"delivery time expired", times=50)
    time.sleep(6)
    assert w.count("delivery time expired") <= 120


# -- a suspension that outlasts a mail's time -------------------------------------------------------------------------------

def test_what_waited_while_suspended_is_tried_before_it_bounces(world):
    w = world(nodes=1, relays=["mx1"], bounce=True, settle="1300ms", destination_in_flight=1)
    peer = w.peer()
    rule = {"timeout": "15s", "timeout_action": "bounce"}
    w.configure(shapes=[(peer.destination, {**rule, "suspend": "x"})])
    w.logged("config read again")
    fill(w, peer, 30)
    w.logged("is suspended: x")
    time.sleep(18)
    w.configure(shapes=[(peer.destination, {**rule, "rate": "3/s", "burst": 1})])
    w.empty()
    assert len(peer.mails) == 30 and not w.bounce.mails


# -- rules that change while mail is sent -----------------------------------------------------------------------------------

def test_fewer_connections_of_a_relay_count_at_once(world):
    w = world(nodes=1, relays=["mx1"], destination_concurrency_first=10, **timeouts("100s"))
    peer = w.peer()
    peer.say("DOT", gate := Meeting(99))
    fill(w, peer, 60)
    eventually("ten are being sent", lambda: gate.here == 10)
    admin.done(w.stack, "shape", peer.destination, "relay_connections=1")
    w.logged("rules of `dovelane shape` changed")
    peer.well()
    at_once, most = [0], [0]

    def dot(session):
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.05)
        at_once[0] -= 1
        return "250 2.0.0 Ok"
    peer.say("DOT", dot)
    gate.met.set()
    w.empty()
    assert len(peer.mails) == 60 and most[0] == 1, most


# -- a next hop that closes what waits --------------------------------------------------------------------------------------

def test_a_next_hop_that_closes_idle_connections_is_not_run_down(world):
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"rate": "1/h", "burst": 1})])
    peer = w.peer()
    fill(w, peer, 10)
    eventually("the first one is out", lambda: len(peer.mails) == 1)
    peer.say("EHLO", lambda session: (session.socket.sendall(b"250 peer\r\n"), CLOSE)[1])
    with peer.lock:
        for each in peer.sockets:
            peer.reset(each)
    before = peer.sessions
    time.sleep(5)
    assert peer.sessions - before < 100, peer.sessions - before     # 20,000 without a pause between them


@pytest.mark.parametrize("kind, value", [("rate", "-5"), ("rate", "nan"), ("rate", "1e300")])
def test_no_number_of_a_servers_key_ends_a_rate(world, tmp_path, kind, value):
    """Whoever may write to the node's Redis could put one there that no rule has."""
    rules = tmp_path / "backoff.rules"
    rules.write_text('421 4.7.* "too many" suspend 8s\n')
    w = world(nodes=1, relays=["mx1"], backoff_rules=str(rules))
    peer = w.peer()
    key = f"dovelane.bucket:{peer.destination}"
    w.connections["mx1"].call("HSET", f"{key}|backoff", kind, f"{value} {int(time.time() * 1000) + 600000}")
    w.connections["mx1"].call("SET", key, "nan nan nan")
    times = []
    peer.say("DOT", lambda session: (times.append(time.monotonic()), "250 2.0.0 Ok")[1])
    w.configure(shapes=[(peer.destination, {"rate": "10/s", "burst": 1, "backoff": "yes"})])
    w.logged("config read again")
    w.store(peer, owners=["mx1"])
    eventually("the key was read", lambda: len(times) == 1)
    time.sleep(1.5)
    for _ in range(40):
        w.store(peer, owners=["mx1"])
    w.empty()
    assert len(times) == 41 and times[-1] - times[1] >= 2.5, times
