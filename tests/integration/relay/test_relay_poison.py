"""Mails that relays die of: alone from the third time on, to Postfix's hold queue from the sixth, left alone from the ninth; the others are delivered."""
import subprocess
import time
from pathlib import Path

import pytest

from support.relay_peer import HANG, Meeting
from support.relay_world import BODY, World, eventually, timeouts
from support.stack import resp

pytestmark = [pytest.mark.core, pytest.mark.long]
HOLD = "dovelane-hold.invalid"


def dies(w, happened):
    """The relay is killed when that has happened, and comes back."""
    eventually("the relay has begun with it", happened)
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")


def count(w, lane, times, node="mx1"):
    """As if relays had died so often with all of the lane in hand."""
    for _ in range(times):
        for name, lease, entries in w.connections[node].call("LANE.TAKE", 1, lane, "COUNT", 1000, "BYTES", 1 << 24):
            w.connections[node].call("LANE.NACK", name, lease, "RETRY", 0, "SEQS", len(entries), *(e[0] for e in entries))


def state(w, name):
    """(state, failed leases) of an entry, None when it is gone."""
    return next(((e.state, e.attempts) for e in w.entries("mx1") if e.id == name.hex()), None)


def test_relays_die_of_a_mail_and_the_rest_is_delivered(world):
    w = world(destination_concurrency=1, reinject_port="127.0.0.1:1")
    postfix = w.peer()
    w.stack.end("relay-mx1")
    w.configure("mx1", hangup=False, reinject_port=f"127.0.0.1:{postfix.port}")
    w.stack.start("relay-mx1")
    peer = w.peer()
    peer.say("DOT", HANG, match="poison@")
    poison = w.store(peer, "poison@example.net")
    others = [w.store(peer, f"u{n}@example.net") for n in range(20)]
    for crash in range(1, 7):
        dies(w, lambda crash=crash: peer.rules[0].used == crash)
        eventually("its lease is over", lambda crash=crash: (state(w, poison) or ("", crash))[1] >= crash)
    w.empty()
    mail, = postfix.mails
    assert mail.recipients == ["poison@example.net"] and mail.body == BODY and postfix.seen(f"^EHLO {HOLD}$")
    assert sorted(r for m in peer.mails for r in m.recipients) == sorted(f"u{n}@example.net" for n in range(len(others)))
    w.logged(r"to=<poison@example\.net>: relays died 6 times with this mail in hand; given to Postfix's hold queue \(250 ")
    w.logged(r"to=<poison@example\.net>.*: given to Postfix's queue .*why=poison")


def test_suspects_come_into_hand_one_by_one(world):
    w = world(nodes=1, relays=[])
    peers = [w.peer(), w.peer()]
    for peer in peers:
        for n in range(10):
            w.store(peer, f"u{n}@example.net", owners=["mx1"])
        count(w, w.lane(peer, ["mx1"]), 3)
    good = w.peer()
    for _ in range(10):
        w.store(good, owners=["mx1"])
    here, most = [], []

    def look(session):
        here.append(session)
        most.append(len(here))
        time.sleep(0.02)  # long enough for another one to be seen
        here.remove(session)
        return "250 2.0.0 Ok"

    for peer in peers:
        peer.say("DOT", look)
    w.stack.start("relay-mx1")
    w.empty()
    assert [len(p.mails) for p in peers] == [10, 10] and len(good.mails) == 10
    assert set(most) == {1}


def test_mails_behind_a_suspect_are_not_kept_back(world):
    w = world(nodes=1, relays=[])
    peer = w.peer()
    w.store(peer, "suspect@example.net", owners=["mx1"])
    count(w, w.lane(peer, ["mx1"]), 4)
    for n in range(30):
        w.store(peer, f"u{n}@example.net", owners=["mx1"])
    peer.say("RCPT", "450 4.2.0 later", match="suspect@")
    w.stack.start("relay-mx1")
    eventually("the others are delivered", lambda: len(peer.mails) == 30)
    peer.well()
    w.empty()


def test_without_the_port_back_it_is_tried_alone_and_stays_when_it_fails(world):
    w = world(nodes=1, relays=[])
    peer = w.peer()
    w.store(peer, owners=["mx1"])
    count(w, w.lane(peer, ["mx1"]), 7)
    w.stack.start("relay-mx1")
    w.empty()
    assert len(peer.mails) == 1


def test_what_cannot_even_be_held_is_left_alone(world):
    w = world(nodes=1, relays=[], retry_most="2s")
    peer = w.peer()
    name = w.store(peer, owners=["mx1"])
    count(w, w.lane(peer, ["mx1"]), 9)
    w.store(peer, "good@example.net", owners=["mx1"])
    w.stack.start("relay-mx1")
    eventually("the other one is delivered", lambda: peer.mails)
    w.logged(rf"error: lane=\S+, id={name.hex()}: the relay died 9 times with it in hand.*left in its lane", times=2)
    assert state(w, name) == ("delayed", 9) and len(peer.mails) == 1


def test_a_hold_port_that_is_away_loses_nothing(world):
    w = world(nodes=1, relays=[], reinject_port="127.0.0.1:1")
    postfix = w.peer()
    postfix.down()
    w.configure("mx1", hangup=False, reinject_port=f"127.0.0.1:{postfix.port}")
    peer = w.peer()
    name = w.store(peer, owners=["mx1"])
    count(w, w.lane(peer, ["mx1"]), 6)
    w.stack.start("relay-mx1")
    w.logged("reinject_port did not take it")
    assert state(w, name)[1] == 6
    postfix.up()
    w.empty()
    assert len(postfix.mails) == 1 and not peer.mails


def test_a_lost_connection_to_the_node_is_no_crash(world):
    w = world(nodes=1, retry_first="100ms", retry_most="100ms", **timeouts("200s"))
    peer = w.peer()
    peer.say("DOT", gate := Meeting(99, "450 4.2.0 later"), times=1)
    name = w.store(peer, "slow@example.net", owners=["mx1"])
    eventually("it is being sent", lambda: gate.here)
    for lost in range(1, 4):
        w.connections["mx1"].call("CLIENT", "KILL", "TYPE", "normal")
        eventually("taken again", lambda lost=lost: state(w, name) == ("leased", lost))
    # It comes back with three failed leases, and is not alone in hand: three mails wait for each other.
    peer.say("DOT", Meeting(3))
    w.store(peer, owners=["mx1"])
    gate.met.set()
    w.logged("status=deferred")
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 3


def test_postfix_puts_it_on_hold(stack, tmp_path):
    system = stack(postfix="stock", nodes=1, relays=False)
    w = World.__new__(World)
    w.stack, w.peers, w.bounce = system, [], None
    w.connections = {"mx1": resp.Connection(system.nodes["mx1"])}
    try:
        peer = w.peer()
        w.store(peer, owners=["mx1"])
        count(w, w.lane(peer, ["mx1"]), 6)
        system.start("relay-mx1")
        w.empty()
        hold = Path(system["postfix"].note["queue_directory"]) / "hold"
        name, = eventually("it is on hold", lambda: [path.name for path in hold.iterdir()])
        text = subprocess.run(["postcat", "-c", system["postfix"].note["config_directory"], "-q", name], capture_output=True, text=True, timeout=60,
                              check=True).stdout
        assert "recipient: b@example.net" in text and "hello" in text
        log = Path(system["postfix"].log)
        eventually("Postfix' log says why", lambda: "relays died with it in hand" in log.read_text())
    finally:
        w.end()
