"""Ordered lanes, one by one: a lane's mails leave in its order, a lower generation before a higher one, whoever owns them (docs/takeover/order.md, "Order")."""
import time

import pytest

from support import admin
from support import envelope
from support.relay_peer import CLOSE, Meeting
from support.relay_world import BODY, World
from support.waiting import eventually
from test_takeover import QUICK, alive

pytestmark = pytest.mark.core

HELD, ASIDE = 1, 8


@pytest.fixture
def world(stack, tmp_path):
    made = []

    def make(**options):
        w = World(stack, tmp_path, **{"head_hold": "60s", **options})
        made.append(w)
        return w

    yield make
    for each in made:
        each.end()


def name_of(w, peer, generation, owners=("mx1", "mx2"), origin="mx1"):
    return f"{w.lane(peer, owners)}|{origin}.{generation}"


def fill(w, peer, users, generation=5, owners=("mx1", "mx2"), copies=None, origin="mx1"):
    """An entry to each of the users, in this order."""
    entries = [(envelope.entry_id(), envelope.encode([f"{user}@example.net"], size=len(BODY)), BODY) for user in users]
    w.push_everywhere(copies or owners, name_of(w, peer, generation, owners, origin), *entries)


def users(*numbers, prefix="u"):
    return [f"{prefix}{i}" for i in range(*numbers)]


def delivered(peer):
    """Users in the order in which the peer got their first copy."""
    return list(dict.fromkeys(address.partition("@")[0] for mail in list(peer.mails) for address in mail.recipients))


def test_one_mail_at_a_time_in_the_lanes_order(world):
    w = world()
    peer = w.peer()
    fill(w, peer, users(100))
    w.empty()
    assert delivered(peer) == users(100)
    assert peer.most_open == 1 and len(peer.mails) == 100


def test_a_deferred_mail_keeps_those_behind_it_waiting(world):
    w = world()
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u3@", times=3)
    fill(w, peer, users(10))
    w.empty()
    assert delivered(peer) == users(10)
    assert w.count("status=deferred") == 3 and not w.count("out of order")


def test_a_restarted_relay_waits_for_the_same_mail(world):
    """The server knows nothing of the wait: a delay there would let the next mail out."""
    w = world(retry_first="3s", retry_most="3s")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@", times=1)
    fill(w, peer, users(5))
    w.logged("status=deferred")
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.empty()
    assert delivered(peer) == users(5)


def test_a_mail_steps_aside_when_head_hold_is_over(world):
    w = world(head_hold="800ms", retry_first="300ms", retry_most="500ms")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u2@")
    fill(w, peer, users(6))
    w.logged(": out of order: .*head_hold.*; those behind it go first, lane=.*, id=")
    eventually("the others are delivered", lambda: delivered(peer) == ["u0", "u1", "u3", "u4", "u5"])
    for node in ("mx1", "mx2"):
        entry, = w.entries(node)
        assert entry.envelope["marks"] == ASIDE, f"{node} must know it, too"
    assert w.count("status=deferred.*u2|u2.*status=deferred") >= 2
    # What comes later does not wait for it either, and it is delivered when its time comes.
    fill(w, peer, users(6, 8))
    eventually("those behind it", lambda: delivered(peer)[-2:] == ["u6", "u7"])
    peer.well()
    w.empty()
    assert delivered(peer)[-1] == "u2"


def test_head_hold_zero_waits_for_nothing(world):
    w = world(head_hold="0s")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@", times=1)
    fill(w, peer, users(4))
    w.empty()
    assert delivered(peer) == ["u1", "u2", "u3", "u0"]


def test_a_next_hop_that_is_away_makes_nobody_step_aside(world):
    w = world(head_hold="300ms")
    peer = w.peer()
    peer.down()
    fill(w, peer, users(5))
    w.logged("is away")
    time.sleep(1)
    peer.up()
    w.empty()
    assert delivered(peer) == users(5) and not w.count("out of order")


def test_a_lost_answer_keeps_its_place(world):
    w = world()
    peer = w.peer()
    peer.say("DOT", CLOSE, times=2)
    fill(w, peer, users(4))
    w.empty()
    assert delivered(peer) == users(4)
    w.logged("why=unknown-reply")


def test_an_admin_holds_one_and_the_others_go_on(world):
    w = world()
    peer = w.peer()
    entries = [(envelope.entry_id(), envelope.encode([f"{user}@example.net"], size=len(BODY), marks=HELD if user == "u0" else 0), BODY) for user in users(3)]
    w.push_everywhere(("mx1", "mx2"), name_of(w, peer, 5), *entries)
    eventually("the others go", lambda: delivered(peer) == ["u1", "u2"])
    w.logged("out of order: an admin holds it")
    eventually("one is left", lambda: w.length("mx1") == 1)


def test_a_refused_mail_bounces_in_its_turn(world):
    w = world(bounce=True)
    peer = w.peer()
    peer.say("RCPT", "550 5.1.1 unknown", match="u1@")
    fill(w, peer, users(4))
    w.empty()
    assert delivered(peer) == ["u0", "u2", "u3"] and len(w.bounce.mails) == 1


def test_mail_that_is_spread_is_not_held_up(world):
    """An ordered lane that waits takes no place of the next hop's."""
    w = world(head_hold="100s", retry_first="100s", retry_most="100s")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@")
    fill(w, peer, users(5))
    w.logged("status=deferred")
    for i in range(20):
        w.store(peer, f"s{i}@example.net")
    eventually("20 mails pass", lambda: len(peer.mails) == 20)
    assert sorted(delivered(peer)) == sorted(users(20, prefix="s"))
    eventually("the others wait", lambda: w.length("mx1") == 5)


def test_each_origin_and_destination_has_its_own_order(world):
    w = world(retry_first="100s", retry_most="100s")
    peer, other = w.peer(), w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@")
    fill(w, peer, users(3))
    w.logged("status=deferred")
    fill(w, peer, users(3, prefix="v"), origin="mx2", generation=9)
    fill(w, other, users(3, prefix="w"), generation=9)
    eventually("both are delivered", lambda: len(peer.mails) == len(other.mails) == 3)
    assert delivered(peer) == users(3, prefix="v") and delivered(other) == users(3, prefix="w")


@pytest.mark.parametrize("owners", [("mx1", "mx2"), ("mx1", "mx3"), ("mx3", "mx1"), ("mx3", "mx4")])
def test_a_lower_generation_goes_first(world, owners):
    """Whoever has the higher one: all owners the same, some, or none."""
    w = world(nodes=4, relays=("mx1", "mx2", "mx3", "mx4"))
    peer = w.peer()
    gate = Meeting(2)    # never met by one session: the test opens it
    peer.say("DOT", gate, times=1)
    fill(w, peer, users(5), generation=5)
    eventually("the first one is on its way", lambda: gate.here == 1)
    fill(w, peer, users(5, 10), generation=6, owners=owners)
    fill(w, peer, users(10, 12), generation=7, owners=owners)
    time.sleep(1)
    assert not peer.mails and peer.open == 1
    gate.met.set()
    w.empty()
    assert delivered(peer) == users(12)


def test_a_higher_generation_does_not_wait_for_what_stepped_aside(world):
    w = world(nodes=3, relays=("mx1", "mx2", "mx3"), head_hold="500ms")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@")
    fill(w, peer, users(3), generation=5)
    fill(w, peer, users(3, 6), generation=6, owners=("mx2", "mx3"))
    eventually("the others are delivered", lambda: delivered(peer) == users(1, 6))
    peer.well()
    w.empty()


def before_death(w, node):
    """Nothing was sent before mx1 was found dead: it may be alive and deliver."""
    log = w.log(node)
    assert 0 < log.index("node mx1 is dead") < log.index("status=sent"), log


AUTOMATIC = {**QUICK, "nodes": 3, "relays": ("mx1", "mx2", "mx3"), "alone_wait": "0s"}


def test_a_survivor_delivers_the_dead_nodes_generation_first(world):
    """mx1 dies with its mail; what came later has other owners, and waits until mx2 has taken over what was mx1's."""
    w = world(**AUTOMATIC)
    for node in AUTOMATIC["relays"]:
        alive(w, node)
    peer = w.peer()
    for name in ("relay-mx1", "redis-mx1"):
        w.stack.stop(name)
    fill(w, peer, users(10), generation=5, copies=("mx2",))
    fill(w, peer, users(10, 15), generation=6, owners=("mx2", "mx3"))
    fill(w, peer, users(15, 20), generation=7, owners=("mx3", "mx2"))
    eventually("all are delivered", lambda: len(delivered(peer)) == 20, 60)
    assert delivered(peer) == users(20)
    before_death(w, "mx2")
    for name in ("redis-mx1", "relay-mx1"):
        w.stack.cont(name)


def test_an_outsider_is_not_fooled_by_an_owner_that_lost_its_copy(world):
    """mx1 may have older mail and hangs, mx2 lost its copy: two are lost, one more than is promised here. mx3, which never had it, must not begin with the newer mail, also when
    it has found mx1 dead; until mx1 is back, or an admin says that it will not be."""
    w = world(**AUTOMATIC)
    for node in AUTOMATIC["relays"]:
        alive(w, node)
    peer = w.peer()
    for name in ("relay-mx1", "redis-mx1"):
        w.stack.stop(name)
    w.connections["mx2"].call("FLUSHALL")
    w.logged(r"returning \(not whole\)", "mx2")
    fill(w, peer, users(3), generation=6, owners=("mx3", "mx2"))
    w.logged("node mx1 is dead", "mx3")
    time.sleep(1)
    assert not peer.mails
    w.configure("mx3", dead='{"mx1"}')
    eventually("mx3 goes on", lambda: delivered(peer) == users(3), 60)
    for name in ("redis-mx1", "relay-mx1"):
        w.stack.cont(name)


def test_what_came_to_an_emptied_node_waits_for_what_it_lost(world):
    """Two mails are stored between a FLUSHALL and its being noticed: they stand first in that node's copy, and must neither be delivered nor stay there."""
    w = world(**{**QUICK, "dead_after": "60s", "compare_every": "10min", "retry_first": "100s", "retry_most": "100s"})
    for node in ("mx1", "mx2"):
        alive(w, node)
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@", times=1)
    fill(w, peer, users(5))
    w.logged("status=deferred")
    eventually("mx2 knows", lambda: any(entry.revision for entry in w.entries("mx2")))
    entries = [(envelope.entry_id(), envelope.encode([f"{user}@example.net"], size=len(BODY)), BODY) for user in users(5, 7)]
    words = [word for name, meta, body in entries for word in (1, name, meta, body)]
    w.push("mx2", name_of(w, peer, 5), *entries)
    w.connections["mx1"].pipeline([("FLUSHALL",), ("LANE.PUSH", 1, name_of(w, peer, 5), "ENTRIES", 2, *words)])
    w.logged(r"returning \(not whole\)")
    w.logged("compared with mx2: 5 entries fetched")
    alive(w, "mx1")
    assert [entry.envelope["recipients"][0].address.partition("@")[0] for entry in w.entries("mx1")] == users(7)
    admin.done(w.stack, "flush")
    w.empty()
    assert delivered(peer) == users(7) and not w.count("status=sent", "mx2")


def test_an_emptied_node_does_not_begin_with_what_came_since(world):
    """Nobody has noticed the FLUSHALL yet: the next beat is half a second away, and the lane has a mail."""
    w = world(**{**QUICK, "dead_after": "60s", "compare_every": "10min", "beat": "500ms", "suspect_after": "2s"})
    for node in ("mx1", "mx2"):
        alive(w, node)
    peer = w.peer()
    gate = Meeting(2)
    peer.say("DOT", gate, times=1)
    fill(w, peer, users(5))
    eventually("the first one is on its way", lambda: gate.here == 1)
    entries = [(envelope.entry_id(), envelope.encode([f"{user}@example.net"], size=len(BODY)), BODY) for user in users(5, 7)]
    w.push("mx2", name_of(w, peer, 5), *entries)
    w.connections["mx1"].pipeline([("FLUSHALL",), ("LANE.PUSH", 1, name_of(w, peer, 5), "ENTRIES", 2, *(word for name, meta, body in entries for word in (1, name, meta, body)))])
    gate.met.set()
    w.logged(r"returning \(not whole\)")
    w.empty()
    assert delivered(peer) == users(7)


@pytest.mark.check
def test_a_killed_relay_goes_on_in_order(world):
    w = world()
    peer = w.peer()
    gate = Meeting(2)
    peer.say("DOT", gate, match="", times=1)
    fill(w, peer, users(30))
    eventually("one is on its way", lambda: gate.here == 1)
    w.stack.kill("relay-mx1")
    gate.met.set()
    w.stack.start("relay-mx1")
    w.empty()
    assert delivered(peer) == users(30)


def test_show_tells_what_stepped_aside(world):
    w = world(head_hold="0s", retry_first="100s", retry_most="100s")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="u0@")
    fill(w, peer, users(1))
    w.logged("out of order")
    eventually("it went back", lambda: w.entries("mx1")[0].state == "delayed")
    out = admin.done(w.stack, "show", w.entries("mx1")[0].id)
    assert "order       mail from mx1, generation 5; stepped aside" in out, out
