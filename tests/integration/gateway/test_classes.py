"""Classes of mail over takeovers and lost nodes: who takes a lane over, or copies it, keeps its class (docs/classes.md)."""
import pytest

from support import envelope
from support.relay_peer import Meeting
from support.stack import lanes
from support.waiting import eventually
from test_takeover import ALONE, QUICK, alive, reconnect, world  # noqa: F401  (world: a fixture)

pytestmark = [pytest.mark.core, pytest.mark.long]

CLASSES = {"submission": {"match": ["sasl_user *"], "weight": 8}, "bulk": {"match": ["all"], "weight": 1}}
BODY = b"Subject: x\r\n\r\nhello\r\n"


def fill(w, peer, count, of_class, owners=("mx1", "mx2")):
    entries = [(envelope.entry_id(), envelope.encode([f"{of_class}{i}@example.net"], size=len(BODY)), BODY) for i in range(count)]
    w.push_everywhere(owners, w.lane(peer, owners, of_class), *entries)


def addresses(peer):
    return [address for mail in list(peer.mails) for address in mail.recipients]


def expected(**counts):
    return sorted(f"{name}{i}@example.net" for name, count in counts.items() for i in range(count))


def held(w, node):
    """The lanes' names behind the next hop, to how many entries the node holds in them."""
    return {name.partition("|")[2]: count for name, (count, _) in lanes.names(w.connections[node]).items() if count}


@pytest.mark.test
def test_a_takeover_keeps_classes(world):  # noqa: F811
    """The node that delivers dies with all in its lanes; the next one delivers it, the heavier class first."""
    w = world(**{**ALONE, "destination_concurrency": 1, "destination_in_flight": 100, "classes": CLASSES})
    peer = w.peer()
    peer.say("DOT", first := Meeting(99), times=1)    # the first mail gets no answer from anybody
    fill(w, peer, 400, "bulk")
    fill(w, peer, 40, "submission")
    eventually("mx1 has begun", lambda: first.here == 1)
    peer.well()
    peer.say("DOT", gate := Meeting(99), times=1)
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    w.logged("every owner before us is dead, we take over", "mx2", times=2)
    eventually("mx2 has both in hand", lambda: gate.here == 1 and all(
        sum(e.state == "leased" and e.lane.endswith(f"|+{name}") for e in w.entries("mx2")) >= 10 for name in CLASSES))
    gate.met.set()
    w.empty("mx2")
    came = addresses(peer)
    assert sorted(set(came)) == expected(bulk=400, submission=40)
    assert max(i for i, address in enumerate(came) if address.startswith("submission")) < 150, "it overtook"


def test_a_node_that_returns_empty_gets_the_lanes_of_all_classes_back(world):  # noqa: F811
    w = world(**{**QUICK, "nodes": 3, "relays": ("mx1", "mx2", "mx3"), "retry_first": "2s", "retry_most": "2s", "classes": CLASSES})
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 60, "bulk")
    fill(w, peer, 20, "submission", ("mx2", "mx1"))
    before = held(w, "mx1")
    assert before == {"mx1>mx2|+bulk": 60, "mx2>mx1|+submission": 20}
    w.stack.kill("redis-mx2")
    w.stack.start("redis-mx2")
    reconnect(w, "mx2")
    eventually("mx2 has it all again", lambda: held(w, "mx2") == before, 120)
    alive(w, "mx2")
    peer.well()
    w.empty("mx1", "mx2")
    assert sorted(set(addresses(peer))) == expected(bulk=60, submission=20)


@pytest.mark.test
def test_what_a_lost_node_held_is_copied_with_its_class(world):  # noqa: F811
    w = world(**{**QUICK, "nodes": 3, "relays": ("mx1", "mx2", "mx3"), "retry_first": "2s", "retry_most": "2s", "replace_after": "5s", "refill_block": 64,
                 "classes": CLASSES})
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 150, "bulk", ("mx2", "mx1"))
    fill(w, peer, 50, "submission", ("mx1", "mx2"))
    w.logged("status=deferred", "mx2")
    w.stack.kill("relay-mx2")
    w.stack.kill("redis-mx2")
    copied = {"mx1>mx3|+bulk": 150, "mx1>mx3|+submission": 50}
    eventually("mx1 and mx3 hold it all", lambda: held(w, "mx1") == held(w, "mx3") == copied, 120)
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    peer.well()
    w.empty("mx3")
    assert sorted(addresses(peer)) == expected(bulk=150, submission=50)
