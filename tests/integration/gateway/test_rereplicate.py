"""What a node held that is lost for good gets another owner, so that the next loss costs no mail either (docs/takeover/copying.md, "Copying what a lost node held")."""
import re

import pytest

from support.relay_peer import Meeting
from support import envelope
from support.stack import lanes
from support.waiting import eventually
from test_takeover import QUICK, alive, fill, recipients, reconnect, wait_delivered, world  # noqa: F401  (world: a fixture)

pytestmark = [pytest.mark.core, pytest.mark.long]

THREE = {"nodes": 3, "relays": ("mx1", "mx2", "mx3"), "retry_first": "2s", "retry_most": "2s"}


def held(w, node):
    """Owners, as the lanes' names say them, to how many entries the node holds."""
    found = {}
    for name, (count, _) in lanes.names(w.connections[node]).items():
        owners = name.rpartition("|")[2]
        found[owners] = found.get(owners, 0) + count
    return found


def copied(w, n):
    """Waits until mx1 and mx3 hold all of it, under their name. What comes too late on a busy machine comes up again when its copy was dropped."""
    eventually("mx1 and mx3 hold it all", lambda: held(w, "mx1") == held(w, "mx3") == {"mx1>mx3": n}, 120)


def lose(w, node):
    w.stack.kill(f"relay-{node}")
    w.stack.kill(f"redis-{node}")


@pytest.mark.test
def test_what_a_lost_node_held_survives_the_next_loss(world):  # noqa: F811
    w = world(**THREE, replace_after="5s", refill_block=64)
    first, second = w.peer(), w.peer()
    for peer in (first, second):
        peer.say("MAIL", "450 4.0.0 not now")
    fill(w, first, 300, owners=("mx2", "mx1"))
    fill(w, second, 100, owners=("mx1", "mx2"))
    w.logged("status=deferred", "mx2")
    lose(w, "mx2")
    copied(w, 400)
    assert w.count(r"node mx2 is lost for good: \d+ of \d+ mails were copied, and lie in \S+mx1>mx3 now") >= 2
    assert sum(int(n) for n in re.findall(r"lost for good: (\d+) of", w.log("mx1"))) == 400
    # What was known of the recipients has come along.
    assert any(entry.revision for entry in w.entries("mx3"))
    lose(w, "mx1")
    first.well()
    second.well()
    wait_delivered(w, first, 300, ["mx3"])
    wait_delivered(w, second, 100, ["mx3"])


def test_a_lost_node_that_comes_back_with_all_it_held_delivers_nothing_again(world):  # noqa: F811
    """Its file says that it owns what has other owners now: it is told so when it is there again. An admin's word is enough to begin."""
    w = world(**THREE, replace_after="0s")
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 200, owners=("mx2", "mx1"))
    w.logged("status=deferred", "mx2")
    w.connections["mx2"].call("SAVE")
    lose(w, "mx2")
    for node in ("mx1", "mx3"):
        w.configure(node, dead='{ "mx2" }')
    copied(w, 200)
    for node in ("mx1", "mx3"):
        w.configure(node, dead="{}")
    w.stack.start("redis-mx2")
    reconnect(w, "mx2")
    eventually("it is told", lambda: not held(w, "mx2"))
    w.stack.start("relay-mx2")
    alive(w, "mx2")
    peer.well()
    wait_delivered(w, peer, 200, ["mx1", "mx2", "mx3"])
    assert not w.count("status=sent", "mx2")
    w.logged("status=sent.*why=takeover", times=200)  # what the lost one had in hand, maybe


def test_a_lost_nodes_server_that_lives_on_does_not_bring_back_what_was_copied(world):  # noqa: F811
    """Its relay alone is gone: it is whole for the old owners, and the only one that is when the survivor's server was emptied."""
    w = world(**THREE, replace_after="0s")
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 200, owners=("mx2", "mx1"))
    w.logged("status=deferred", "mx2")
    w.stack.kill("relay-mx2")
    for node in ("mx1", "mx3"):
        w.configure(node, dead='{ "mx2" }')
    copied(w, 200)
    eventually("the old owner was told", lambda: not held(w, "mx2"))
    peer.well()
    wait_delivered(w, peer, 200, ["mx1", "mx3"])
    w.stack.kill("redis-mx1")
    w.stack.start("redis-mx1")
    reconnect(w, "mx1")
    w.logged("mx1.mx2: compared with mx2", "mx1", times=w.count("mx1.mx2: compared with mx2", "mx1") + 1)
    alive(w, "mx1")
    wait_delivered(w, peer, 200, ["mx1", "mx3"])


def test_what_is_on_its_way_to_postfix_meanwhile_is_not_copied(world):  # noqa: F811
    """It is in hand without a lease, so that MOVE would take it away below it: its ack would find nothing, and it would go out again from the new lane."""
    w = world(**THREE, replace_after="0s", refill_rate="64kB", refill_block=16, revoke_wait="0s", smtp_data_done_timeout="10min")
    hop, postfix, gate = w.peer(), w.peer(), Meeting(1 << 30)
    hop.say("MAIL", "450 4.0.0 not now")
    postfix.say("DOT", gate)
    for node in ("mx1", "mx3"):
        w.configure(node, reinject_port=f"127.0.0.1:{postfix.port}")
    fill(w, hop, 150, owners=("mx2", "mx1"), size=2000)
    w.logged("status=deferred", "mx2")
    lose(w, "mx2")
    for node in ("mx1", "mx3"):
        w.configure(node, dead='{ "mx2" }')
    eventually("it is being copied", lambda: held(w, "mx1").get("mx1>mx3", 0), 60)
    w.connections["mx1"].call("SET", "dovelane.drain", "on")
    eventually("some are on their way", lambda: gate.here, 60)
    # A round takes what is older than settle and not in hand when it lists the lane: on a busy machine that is not all at once.
    w.logged(r"node mx2 is lost for good: \d+ of \d+ mails were copied, and lie", "mx1", seconds=120)
    gate.met.set()
    wait_delivered(w, postfix, 150, ["mx1", "mx3"])
    assert not hop.mails


def test_an_ordered_lane_is_copied_as_a_whole_and_keeps_its_order(world):  # noqa: F811
    """Two generations of one series: the older one gets another owner, and still goes first, in its order, when that one is all that is left."""
    w = world(**THREE, replace_after="5s", destinations={}, head_hold="10min")
    peer = w.peer()
    for node in ("mx1", "mx2", "mx3"):
        w.configure(node, destinations={peer.destination: {"placement": "ordered"}})
    peer.say("MAIL", "450 4.0.0 not now")

    def put(number, owners, generation):
        name, body = envelope.entry_id(), b"Subject: %d\r\n\r\nx\r\n" % number
        w.push_everywhere(owners, f"{w.lane(peer, owners)}|mx1.{generation}", (name, envelope.encode([f"u{number}@example.net"], size=len(body)), body))
    for number in range(60):
        put(number, ("mx2", "mx1"), 5)
    w.logged("status=deferred", "mx2")
    lose(w, "mx2")
    for number in range(60, 70):
        put(number, ("mx3", "mx1"), 6)
    w.logged(r"lost for good: 60 of 60 mails were copied, and lie in \S+\|mx1>mx3\|mx1.5 now", "mx1", seconds=120)
    older, newer = (f"{w.lane(peer, owners)}|mx1.{generation}" for owners, generation in ((("mx1", "mx3"), 5), (("mx3", "mx1"), 6)))
    for node in ("mx1", "mx3"):
        assert {name: count for name, (count, _) in lanes.names(w.connections[node]).items()} == {older: 60, newer: 10}
    lose(w, "mx1")
    peer.well()
    w.configure("mx3", dead='{ "mx1", "mx2" }')
    w.empty("mx3")
    assert [mail.recipients[0] for mail in peer.mails] == [f"u{number}@example.net" for number in range(70)]


def test_an_ordered_lane_that_is_too_large_keeps_nothing_else_from_being_copied(world):  # noqa: F811
    """It cannot be stored on another node in the time that there is for it: it alone is left out, said once, and the rest has its copies again."""
    w = world(**THREE, replace_after="0s", refill_rate="64kB", destinations={}, head_hold="10min")
    ordered, spread = w.peer(), w.peer()
    for node in ("mx1", "mx2", "mx3"):
        w.configure(node, destinations={ordered.destination: {"placement": "ordered"}})
    for peer in (ordered, spread):
        peer.say("MAIL", "450 4.0.0 not now")
    body = b"Subject: x\r\n\r\n" + 500 * (78 * b"x" + b"\r\n")
    for number in range(80):  # more than two READs bring, so that refill_rate asks for a pause of many seconds
        entry = (envelope.entry_id(), envelope.encode([f"o{number}@example.net"], size=len(body)), body)
        w.push_everywhere(("mx2", "mx1"), f"{w.lane(ordered, ('mx2', 'mx1'))}|mx1.5", entry)
    fill(w, spread, 50, owners=("mx2", "mx1"))
    w.logged("status=deferred", "mx2")
    lose(w, "mx2")
    for node in ("mx1", "mx3"):
        w.configure(node, dead='{ "mx2" }')
    eventually("the others have their copies", lambda: held(w, "mx1").get("mx1>mx3") == held(w, "mx3").get("mx1>mx3") == 50, 120)
    why = r"mx2>mx1\|mx1.5: node mx2 is lost for good: its mails cannot be stored on another node in the time"
    w.logged(why, "mx1", seconds=60)
    ordered.well()
    spread.well()
    w.empty("mx1", "mx3")
    assert [mail.recipients[0] for mail in ordered.mails] == [f"o{number}@example.net" for number in range(80)]
    assert recipients(spread) == sorted(f"u{i}@example.net" for i in range(50))
    assert w.count(why, "mx1") == 1
