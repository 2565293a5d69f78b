"""Traffic control: how many connections a next hop gets, when it counts as away, how it comes back, and that others do not pay for it."""
import time

import pytest

from support import envelope
from support.relay_peer import CLOSE, HANG, Meeting
from support.relay_world import timeouts
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]


def store_many(w, peer, count):
    return [w.store(peer, owners=["mx1"]) for _ in range(count)]


# -- how many connections ----------------------------------------------------------------------------------------------------

def test_at_first_there_are_few_connections(world):
    w = world(nodes=1, destination_concurrency_first=3, destination_concurrency=10)
    peer = w.peer()
    peer.say("DOT", gate := Meeting(99))
    store_many(w, peer, 30)
    eventually("three carry mails", lambda: gate.here == 3)
    assert peer.open == 3
    gate.met.set()
    w.empty()
    assert len(peer.mails) == 30


def test_success_opens_more_up_to_the_limit(world):
    w = world(nodes=1, destination_concurrency_first=2, destination_concurrency=6)
    peer = w.peer()
    peer.say("DOT", gate := Meeting(6))
    gate.met.set()
    for _ in range(50):     # only a window that is full grows, and a busy machine brings the mails one by one
        store_many(w, peer, 60)
        w.empty()
        if peer.most_open == 6:
            break
    peer.well()
    peer.say("DOT", gate := Meeting(6))
    store_many(w, peer, 12)  # goes on only when six wait at a time: the window has grown that far
    w.empty()
    assert gate.most == 6 and peer.most_open == 6


def test_a_connection_that_breaks_takes_one_off(world):
    w = world(nodes=1, destination_concurrency_first=4, destination_concurrency=4, destination_in_flight=50)
    peer = w.peer()
    peer.say("DOT", gate := Meeting(4))
    store_many(w, peer, 4)
    assert gate.met.wait(60)
    w.empty()
    peer.well()
    peer.say("MAIL", "250 2.1.0 Ok", times=3)
    peer.say("RCPT", CLOSE, times=2)
    peer.say("DOT", gate := Meeting(99))
    store_many(w, peer, 20)
    eventually("two are left", lambda: gate.here == 2 and peer.rules[1].used == 2)
    assert w.count("is away") == 0
    gate.met.set()
    w.empty()
    assert len(peer.mails) == 24


# -- how long a connection is used -------------------------------------------------------------------------------------------

def test_a_connection_carries_so_many_mails(world):
    w = world(nodes=1, destination_concurrency=1, connection_reuse=3)
    peer = w.peer()
    store_many(w, peer, 9)
    w.empty()
    assert [sum(m.session == n for m in peer.mails) for n in (1, 2, 3)] == [3, 3, 3] and peer.sessions == 3


def test_a_connection_is_used_for_so_long(world):
    w = world(nodes=1, destination_concurrency=1, connection_age="1s", connection_idle="60s")
    peer = w.peer()
    store_many(w, peer, 1)
    w.empty()
    time.sleep(1.1)
    store_many(w, peer, 1)
    w.empty()
    assert peer.sessions == 2
    eventually("a QUIT", lambda: peer.seen("^QUIT"))  # another session's thread reads it


def test_an_idle_connection_is_closed(world):
    w = world(nodes=1, connection_idle="200ms")
    peer = w.peer()
    store_many(w, peer, 1)
    eventually("closed", lambda: peer.sessions == 1 and peer.open == 0)
    assert peer.seen("^QUIT")


# -- away and back -----------------------------------------------------------------------------------------------------------

def test_a_next_hop_whose_connections_all_break_is_away(world):
    """It answers and greets, but no mail goes through: not every mail is tried, and none is tried without end."""
    w = world(nodes=1, destination_concurrency_first=3, retry_first="300ms", retry_most="300ms")
    peer = w.peer()
    peer.say("RCPT", CLOSE)
    store_many(w, peer, 60)
    w.logged(r"next hop smtp:\S+ is away: lost connection with .* while sending RCPT TO", times=3)
    entries = w.entries("mx1")
    tried = sum(e.envelope["recipients"][0].attempts > 0 for e in entries)
    assert len(entries) == 60 and tried < 20
    peer.well()
    w.empty()
    assert len(peer.mails) == 60
    w.logged(r"next hop smtp:\S+ is back")


def test_a_next_hop_that_fails_the_proof_is_away_again(world):
    """Each greeting counts for one mail."""
    w = world(nodes=1, retry_first="200ms", retry_most="200ms")
    peer = w.peer()
    peer.down()
    store_many(w, peer, 40)
    w.logged(r"next hop smtp:\S+ is away")
    peer.say("MAIL", CLOSE)
    peer.up()
    w.logged(r"next hop smtp:\S+ is back", times=4)
    tried = len(peer.seen("^MAIL"))
    assert 0 < tried <= w.count(r"next hop smtp:\S+ is back")


def test_one_mail_is_the_proof_that_a_next_hop_is_back(world):
    w = world(nodes=1, retry_first="200ms", retry_most="200ms")
    peer = w.peer()
    peer.down()
    store_many(w, peer, 40)
    w.logged(r"next hop smtp:\S+ is away")
    peer.say("DOT", gate := Meeting(99), times=1)
    peer.up()
    eventually("one mail is on its way", lambda: gate.here == 1)
    leased = [e for e in w.entries("mx1") if e.state == "leased"]
    assert len(leased) == 1 and peer.most_open == 1
    gate.met.set()
    w.empty()
    assert len(peer.mails) == 40


def test_refused_mails_are_no_failure_of_the_next_hop(world):
    w = world(nodes=1, destination_concurrency_first=2)
    peer = w.peer()
    peer.say("RCPT", "450 4.2.1 not now", times=30)
    store_many(w, peer, 30)
    w.empty()
    assert w.count("is away") == 0 and len(peer.mails) == 30


# -- others do not pay -------------------------------------------------------------------------------------------------------

def test_next_hops_that_hold_all_the_memory_leave_room_for_others(world):
    """Nine silent next hops have 32 MB in hand each, which is more than there is for all."""
    w = world(nodes=1, max_entry="8MB", settle="2s", destination_concurrency=1, **timeouts("300s"))
    body = b"Subject: x\r\n\r\n" + b"0123456789abcdef" * (7 << 16) + b"\r\n"
    slow = [w.peer() for _ in range(9)]
    for peer in slow:
        peer.say("MAIL", HANG)
        for _ in range(5):
            w.store(peer, owners=["mx1"], body=body)
    eventually("they have it all", lambda: leased(w) * len(body) >= 256 << 20, seconds=90)
    good = w.peer()
    store_many(w, good, 20)
    eventually("the good one gets its mails", lambda: len(good.mails) == 20)


def leased(w):
    """How many entries are leased. They are not read for it: that is more work for the server than to give them to the relay."""
    words = w.connections["mx1"].call("LANE.INFO")
    return dict(zip(words[0::2], words[1::2]))[b"leased"]


# -- taking ------------------------------------------------------------------------------------------------------------------

def test_a_large_mail_behind_a_small_one_is_not_forgotten(world):
    """The TAKE that gave the small one ended at its bytes; READY says nothing more, and the small one's answer does not come."""
    w = world(nodes=1, **timeouts("300s"))
    peer = w.peer()
    peer.say("DOT", HANG, match="small@")
    large = b"Subject: x\r\n\r\n" + b"0123456789abcde\r\n" * 80000
    meta = envelope.encode(["small@example.net"], size=20), envelope.encode(["large@example.net"], size=len(large))
    w.push("mx1", w.lane(peer, ["mx1"]), (envelope.entry_id(), meta[0], b"Subject: x\r\n\r\nx\r\n"), (envelope.entry_id(), meta[1], large))
    eventually("the large one is delivered", lambda: peer.bodies() == [large])
    assert peer.rules[0].used == 1
