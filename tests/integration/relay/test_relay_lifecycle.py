"""The relay, its node and its peers are killed, stopped, taken over and told to end: nothing is lost, and a second delivery has its reason."""
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import envelope
from support.relay_peer import CLOSE, HANG
from support.relay_world import BODY, World, eventually, timeouts
from support.stack import resp
from support.stack.shape import SinkShape

WAITING, SENT, FAILED, BOUNCED = range(4)
core = pytest.mark.core


class Gate:
    """An answer that waits until the test opens the gate."""

    def __init__(self, text="250 2.0.0 Ok"):
        self.text, self.opened, self.reached = text, threading.Event(), threading.Event()

    def __call__(self, session):
        self.reached.set()
        assert self.opened.wait(200)
        return self.text


def gated(peer, verb="DOT", times=1):
    gate = Gate()
    peer.say(verb, gate, times=times)
    return gate


# -- the relay ends ----------------------------------------------------------------------------------------------------------

@pytest.mark.check
@core
def test_a_relay_killed_in_the_middle_delivers_once_more(world):
    w = world(destination_concurrency=1)
    peer = w.peer()
    peer.say("DOT", HANG, times=1)
    names = [w.store(peer) for _ in range(5)]
    eventually("one mail waits for its last answer", lambda: peer.rules[0].used)
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.empty()
    assert len(peer.mails) == len(names)
    w.logged("status=sent .* why=retry")


@core
def test_sigterm_finishes_what_is_in_hand(world):
    w = world(destination_concurrency=1)
    peer = w.peer()
    gate = gated(peer)
    for _ in range(5):
        w.store(peer)
    assert gate.reached.wait(30)
    eventually("all are in hand", lambda: all(e.state == "leased" for e in w.entries("mx1")))
    w.relay().send(signal.SIGTERM)
    w.logged("stopping, 5 mails in hand")
    late = w.store(peer)
    gate.opened.set()
    w.logged("dovelane-relay.*: stopped")
    assert len(peer.mails) == 5
    for node in ("mx1", "mx2"):
        left, = w.entries(node)
        assert left.id == late.hex() and left.state == "waiting" and left.attempts == 0, "the later one was not touched"


def test_sigterm_gives_back_what_takes_too_long(world):
    w = world(destination_concurrency=1, **timeouts("60s"))
    peer = w.peer()
    peer.say("DOT", HANG, times=1)
    for _ in range(3):
        w.store(peer)
    eventually("one hangs", lambda: peer.rules[0].used)
    w.relay().send(signal.SIGTERM)
    w.logged("still in hand")
    w.logged("dovelane-relay.*: stopped")
    assert sorted(e.envelope["recipients"][0].attempts for e in w.entries("mx1")) == [0, 0, 1], "those not begun with do not count"
    assert not any(e.attempts for e in w.entries("mx1")), "nor does what was given back on purpose"
    for node in ("mx1", "mx2"):
        texts = [r.text for e in w.entries(node) for r in e.envelope["recipients"] if r.text]
        assert len(texts) == 1 and "unknown-reply: " in texts[0]
    peer.well()
    w.stack.restart("relay-mx1")  # it has said that it stopped, and may not be gone yet
    w.empty()
    w.logged("status=sent .* why=unknown-reply")


@core
def test_options_and_exit_codes(world, tmp_path):
    w = world(nodes=1, relays=[])
    program, conf = w.relay().argv[0], w.relay().note["conf"]
    run = lambda *words: subprocess.run([program, *words], capture_output=True, text=True, timeout=30)
    assert run("-V").stdout.startswith("dovelane-relay ")
    assert run("-c", conf, "-n", "mx1", "-t").returncode == 0
    assert run("-c", conf).returncode != 0, "a relay speaks for a node"
    assert run("-c", conf, "-n", "mx9", "-t").returncode != 0
    bad = tmp_path / "bad.conf"
    bad.write_text("copies = 99\n")
    assert run("-c", bad, "-n", "mx1", "-t").returncode != 0
    for setting in ("tls_ca_file", "tls_cert_file"):
        bad.write_text(Path(conf).read_text() + f'destination "smtp:[next.example]:25" {{ tls = encrypt {setting} = "{tmp_path}/none.pem" }}\n')
        said = run("-c", bad, "-n", "mx1", "-t")
        assert said.returncode == 2 and f'destination "smtp:[next.example]:25": {tmp_path}/none.pem: no ' in said.stderr, said.stderr
    relay = subprocess.Popen([program, "-c", conf, "-n", "mx1"], stderr=subprocess.PIPE, text=True)
    assert any("connected" in line for line in iter(relay.stderr.readline, ""))
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(30) == 0


# -- the own node ------------------------------------------------------------------------------------------------------------

def late_push(w, lane, name, body, revoke):
    """What a milter has written into a server that stands still: a PUSH, and maybe its revocation right behind. The connection."""
    host, _, port = w.stack.nodes["mx1"].rpartition(":")
    milter = socket.create_connection((host, int(port)))
    words = ["LANE.PUSH", 1, lane, "ENTRIES", 1, 1, name, envelope.encode(["late@example.net"]), body]
    data = resp.Connection.encode(words)
    if revoke:
        data += resp.Connection.encode(["LANE.REVOKE", lane, name])
    threading.Thread(target=milter.sendall, args=(data,), daemon=True).start()
    return milter


@core
@pytest.mark.parametrize("size", [100, 4000000], ids=["small", "large"])
def test_a_push_that_a_stopped_server_executes_late_can_be_revoked(world, size):
    w = world()
    peer = w.peer()
    lane = w.lane(peer)
    body = BODY + b"x" * size + b"\r\n"
    w.store(peer, "before@example.net")
    w.empty()
    w.stack.stop("redis-mx1")
    both = late_push(w, lane, envelope.entry_id(), body, revoke=True)
    later = envelope.entry_id()
    push = late_push(w, lane, later, body, revoke=False)
    w.logged("the node's Redis stood still")
    w.stack.cont("redis-mx1")
    # The second milter gives up a little later still, well within settle. One entry may also be the first milter's, between its PUSH and its REVOKE.
    eventually("the second push was executed, and the first is taken back", lambda: [entry.id for entry in w.entries("mx1")] == [later.hex()])
    assert w.connections["mx1"].call("LANE.REVOKE", lane, later) == [b"REMOVED"]
    w.logged("taking again")
    w.store(peer, "after@example.net")
    w.empty()
    assert [r for m in peer.mails for r in m.recipients] == ["before@example.net", "after@example.net"]
    both.close()
    push.close()


@core
def test_what_is_not_revoked_is_delivered_after_the_server_stood_still(world):
    w = world()
    peer = w.peer()
    w.stack.stop("redis-mx1")
    push = late_push(w, w.lane(peer), envelope.entry_id(), BODY, revoke=False)
    w.logged("the node's Redis stood still")
    w.stack.cont("redis-mx1")
    eventually("delivered", lambda: peer.mails)
    w.empty()
    assert len(peer.mails) == 1 and w.count("status=sent .* why=first") == 1
    push.close()


@core
def test_a_relay_that_stood_still_takes_nothing_at_first(world):
    w = world()
    peer = w.peer()
    gate = gated(peer)
    w.store(peer, "before@example.net")
    assert gate.reached.wait(30)
    w.relay().kill(signal.SIGSTOP)
    name = w.store(peer, "revoked@example.net")
    w.store(peer, "kept@example.net")
    threading.Event().wait(1.2)  # it must stand still for longer than a store may take
    w.relay().send(signal.SIGCONT)
    w.logged("the relay stood still")
    assert w.connections["mx1"].call("LANE.REVOKE", w.lane(peer), name) == [b"REMOVED"]
    assert w.connections["mx2"].call("LANE.REVOKE", w.lane(peer), name) == [b"REMOVED"]
    gate.opened.set()
    w.empty()
    assert [r for m in peer.mails for r in m.recipients] == ["before@example.net", "kept@example.net"]


@core
def test_a_lost_connection_to_the_node_delivers_nothing_twice(world):
    w = world()
    peer = w.peer()
    gate = gated(peer)
    for _ in range(3):
        w.store(peer)
    assert gate.reached.wait(30)
    w.connections["mx1"].call("CLIENT", "KILL", "TYPE", "normal")
    w.logged(r"node mx1 \(\S+ relay\): connected", times=2)
    gate.opened.set()
    w.empty()
    assert len(peer.mails) == 3


@core
def test_refused_acks_stop_taking(world):
    w = world(destination_in_flight=2, destination_concurrency=1)
    peer = w.peer()
    gate = gated(peer)
    for _ in range(6):
        w.store(peer)
    assert gate.reached.wait(30)
    redis = w.connections["mx1"]
    redis.call("CONFIG", "SET", "min-replicas-to-write", 1)
    gate.opened.set()
    w.logged("node mx1 refuses ACK: NOREPLICAS")
    assert len(peer.mails) <= 2
    redis.call("CONFIG", "SET", "min-replicas-to-write", 0)
    w.logged("node mx1 takes acks again")
    w.empty()
    assert len(peer.mails) == 6


@core
def test_meta_that_memory_has_no_room_for_is_shortened(world):
    w = world(nodes=1)
    peer = w.peer(lmtp=True)
    gate = gated(peer)
    gate.text = "450 4.2.2 " + "a long story " * 20
    w.store(peer, "later@example.net", "good@example.net", owners=["mx1"])
    assert gate.reached.wait(30)
    redis = w.connections["mx1"]
    redis.call("CONFIG", "SET", "maxmemory", 1)
    gate.opened.set()
    w.logged("to=<later@example.net>.* why=retry")
    assert w.count("to=<good@example.net>") == 1, "who has it is remembered"
    redis.call("CONFIG", "SET", "maxmemory", "512mb")
    w.empty()


@core
def test_a_node_that_lost_everything_is_used_again(world):
    w = world()
    peer = w.peer()
    gate = gated(peer)
    w.store(peer, "held@example.net")
    assert gate.reached.wait(30)
    w.stack.kill("redis-mx1")
    gate.opened.set()
    w.logged("to=<held@example.net>.*status=sent")
    w.stack.start("redis-mx1")
    w.connections["mx1"] = resp.Connection(w.stack.nodes["mx1"])
    w.store(peer, "new@example.net")
    w.empty()
    assert [r for m in peer.mails for r in m.recipients] == ["held@example.net", "new@example.net"]


def test_what_a_node_brings_back_from_its_disk_says_so(world):
    w = world(retry_first="30s", retry_most="30s")
    peer = w.peer()
    gate = gated(peer)
    w.store(peer, "again@example.net")
    assert gate.reached.wait(30)
    w.connections["mx1"].call("SAVE")
    gate.opened.set()
    w.logged("to=<again@example.net>.*status=sent.*why=first")
    w.empty("mx1")
    w.stack.kill("redis-mx1")
    w.stack.start("redis-mx1")
    w.logged("to=<again@example.net>.*status=sent.*why=return")
    assert [m.recipients for m in peer.mails] == [["again@example.net"]] * 2


# -- the other owners --------------------------------------------------------------------------------------------------------

@core
def test_the_next_owner_takes_over_when_told(world):
    w = world(retry_first="30s", retry_most="30s")
    peer = w.peer(lmtp=True)
    peer.say("DOT", "451 4.3.0 later", match="open@", times=1)
    w.store(peer, "sent@example.net", "open@example.net")
    eventually("both owners know", lambda: all(
        w.states(node) == {"sent@example.net": (SENT, 1), "open@example.net": (WAITING, 1)} for node in ("mx1", "mx2")))
    w.stack.kill("relay-mx1")
    w.configure("mx2", dead='{"mx1"}', retry_first="100ms", retry_most="100ms")
    w.logged("every owner before us is dead, we take over", "mx2")
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == ["open@example.net", "sent@example.net"]
    w.logged("to=<open@example.net>.* status=sent .* why=takeover", "mx2")
    assert not w.count("to=<sent@example.net>", "mx2")


@core
def test_an_unknown_outcome_is_known_after_a_takeover(world):
    w = world(retry_first="30s", retry_most="30s")
    peer = w.peer()
    peer.say("DOT", CLOSE, times=1)
    w.store(peer)
    eventually("recorded", lambda: all(w.states(node)["b@example.net"] == (WAITING, 1) for node in ("mx1", "mx2")))
    w.stack.kill("relay-mx1")
    w.configure("mx2", hangup=False, dead='{"mx1"}', retry_first="100ms", retry_most="100ms")
    w.relay("mx2").send(signal.SIGHUP)
    w.empty()
    w.logged("why=unknown-reply", "mx2")


@core
def test_an_owner_that_lives_again_gets_its_lanes_back(world):
    w = world(relays=["mx2"], dead='{"mx1"}')
    peer = w.peer()
    w.store(peer)
    w.empty()
    assert len(peer.mails) == 1
    w.configure("mx2", dead="{}")
    w.logged("an owner before us is alive, we leave it", "mx2")
    w.store(peer)
    w.configure("mx1", hangup=False, dead="{}")
    w.stack.start("relay-mx1")
    w.empty()
    assert len(peer.mails) == 2
    w.logged("why=first", "mx1")
    assert w.count("status=sent", "mx2") == 1


@core
def test_a_bad_config_is_refused_and_the_old_one_kept(world):
    w = world(nodes=1)
    peer = w.peer()
    conf = Path(w.relay().note["conf"])
    good = conf.read_text()
    for n, text in enumerate(['nonsense {', good.replace("node mx1", "node mx7"), good.replace("127.0.0.1", "127.0.0.2")], 1):
        conf.write_text(text)
        w.relay().send(signal.SIGHUP)
        w.logged("the config stays as it was", times=n)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 1


@core
@pytest.mark.parametrize("meanwhile", ["", "its link is another"])
def test_a_peer_that_was_away_is_told_what_was_delivered(world, meanwhile):
    w = world(relays=["mx1"])
    peer = w.peer()
    w.logged("node mx2 .*relay-peer.*connected")
    # It answers, but under another name, so that it is not talked to; and it keeps what it holds.
    w.connections["mx2"].call("CONFIG", "SET", "lane.node", "mx9")
    w.connections["mx2"].call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    w.logged('it says it is node "mx9"')
    for _ in range(5):
        w.store(peer)
    w.empty("mx1")
    assert w.length("mx2") == 5
    if meanwhile:
        nodes = w.relay().note["nodes"]
        nodes["mx2"] = {"redis": w.stack.nodes["mx2"], "standby": w.stack["redis-mx2"].note["socket"]}
        w.configure()
        w.logged("config read again")
    w.connections["mx2"].call("CONFIG", "SET", "lane.node", "mx2")
    w.empty("mx2")
    assert len(peer.mails) == 5


@core
def test_a_peer_that_refuses_acks_is_asked_again(world):
    w = world(relays=["mx1"])
    peer = w.peer()
    w.logged("node mx2 .*relay-peer.*connected")
    w.connections["mx2"].call("CONFIG", "SET", "min-replicas-to-write", 1)
    w.push("mx1", w.lane(peer), (name := envelope.entry_id(), envelope.encode(["b@example.net"], size=len(BODY)), BODY))
    w.empty("mx1")
    w.connections["mx2"].call("CONFIG", "SET", "min-replicas-to-write", 0)
    w.push("mx2", w.lane(peer), (name, envelope.encode(["b@example.net"], size=len(BODY)), BODY))
    w.empty()
    assert len(peer.mails) == 1


@core
@pytest.mark.parametrize("how", ["away", "refuses"])
def test_a_peer_that_was_away_is_told_who_was_sent_what(world, how):
    """The record of a partial delivery reaches it when it is back, so that a takeover does not send it again."""
    w = world(relays=["mx1"], retry_first="60s", retry_most="60s")
    peer = w.peer(lmtp=True)
    peer.say("DOT", "451 4.3.0 later", match="open@")
    w.logged("node mx2 .*relay-peer.*connected")
    if how == "refuses":
        w.connections["mx2"].call("CONFIG", "SET", "min-replicas-to-write", 1)
    else:
        w.connections["mx2"].call("CONFIG", "SET", "lane.node", "mx9")
        w.connections["mx2"].call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        w.logged('it says it is node "mx9"')
    name, meta = envelope.entry_id(), envelope.encode(["sent@example.net", "open@example.net"], size=len(BODY))
    w.push("mx1", w.lane(peer), (name, meta, BODY))
    eventually("given back", lambda: w.entries("mx1")[0].state == "delayed")
    # In one go: a record that comes between finds nothing that it is about, and is done with.
    w.connections["mx2"].pipeline([("CONFIG", "SET", "min-replicas-to-write", 0), ("LANE.PUSH", 1, w.lane(peer), "ENTRIES", 1, 1, name, meta, BODY)])
    w.connections["mx2"].call("CONFIG", "SET", "lane.node", "mx2")
    eventually("mx2 knows", lambda: w.states("mx2") == {"sent@example.net": (SENT, 1), "open@example.net": (WAITING, 1)})


@core
def test_a_record_that_comes_before_its_entry_is_told_again(world):
    """The first owner delivers as soon as it holds a mail; the other one may get it only then."""
    w = world(relays=["mx1"], settle="30s", retry_first="10min", retry_most="10min")
    peer = w.peer(lmtp=True)
    peer.say("DOT", "451 4.3.0 later", match="open@")
    w.logged("node mx2 .*relay-peer.*connected")
    early, late = ((envelope.entry_id(), envelope.encode([f"{name}@example.net" for name in names], size=len(BODY)), BODY) for names in (["first"], ["sent", "open"]))
    w.push("mx1", w.lane(peer), late)
    eventually("mx2 does not know what the record is about", lambda: b"cmdstat_LANE.META" in w.connections["mx2"].call("INFO", "commandstats"))
    w.push("mx2", w.lane(peer), early, late)
    eventually("mx2 knows", lambda: [r.state for entry in w.entries("mx2") for r in entry.envelope["recipients"]] == [WAITING, SENT, WAITING])

@core
def test_a_peer_that_stands_still_delays_nothing(world):
    w = world(relays=["mx1"])
    peer = w.peer()
    for _ in range(5):
        w.store(peer, copies=["mx2"], name=None)
    w.stack.stop("redis-mx2")
    w.store(peer, copies=["mx1"])
    w.empty("mx1")
    assert len(peer.mails) == 1
    w.stack.cont("redis-mx2")


@pytest.mark.exhaustive
def test_a_lease_is_renewed_while_a_delivery_takes_long(world):
    w = world(nodes=1, **timeouts("200s"))
    peer = w.peer()
    gate = gated(peer)
    w.store(peer, owners=["mx1"])
    assert gate.reached.wait(30)
    threading.Event().wait(80)  # a lease is 60 s
    entry, = w.entries("mx1")
    assert entry.state == "leased" and entry.attempts == 0
    gate.opened.set()
    w.empty()
    assert len(peer.mails) == 1


# -- meta on every owner before an entry is given back -----------------------------------------------------------------------

def recorded(w, node):
    """Addresses that a node's only entry calls sent."""
    entry, = w.entries(node)
    return {r.address for r in entry.envelope["recipients"] if r.state == SENT}


@core
@pytest.mark.parametrize("when", ["before the own node has it", "before the peer has it", "when both have it"])
def test_a_relay_killed_around_the_record_repeats_only_what_is_open(world, when):
    """One recipient is sent, one open. META goes to the own node, then to the peer, then the entry goes back. Whoever goes on knows what both were told."""
    w = world(retry_first="5s", retry_most="5s")  # long enough to be killed before
    peer = w.peer(lmtp=True)
    peer.say("DOT", "451 4.3.0 later", match="open@", times=1)
    gate = gated(peer, "DOT")
    peer.rules.reverse()  # the first recipient's answer waits until the node is prepared
    w.store(peer, "sent@example.net", "open@example.net")
    assert gate.reached.wait(30)
    if when == "before the own node has it":
        w.connections["mx1"].call("CONFIG", "SET", "min-replicas-to-write", 1)
    if when == "before the peer has it":
        w.connections["mx2"].call("CONFIG", "SET", "min-replicas-to-write", 1)
    gate.opened.set()
    w.logged("to=<open@example.net>.*status=deferred")
    if when == "before the own node has it":
        w.logged("node mx1 refuses META")
        assert w.entries("mx1")[0].state == "leased", "it is not given back before its record is kept"
    else:
        eventually("given back", lambda: w.entries("mx1")[0].state == "delayed")
        assert recorded(w, "mx1") == {"sent@example.net"}
    if when == "when both have it":
        assert recorded(w, "mx2") == {"sent@example.net"}
    w.stack.kill("relay-mx1")
    for node in ("mx1", "mx2"):
        w.connections[node].call("CONFIG", "SET", "min-replicas-to-write", 0)
    w.configure("mx1", hangup=False, retry_first="100ms", retry_most="100ms")
    w.stack.start("relay-mx1")
    w.empty()
    again = [r for m in peer.mails for r in m.recipients].count("sent@example.net")
    assert again == (2 if when == "before the own node has it" else 1)
    assert [r for m in peer.mails for r in m.recipients].count("open@example.net") == 1


# -- Postfix -----------------------------------------------------------------------------------------------------------------

def test_postfix_tells_the_sender_why(stack, tmp_path):
    """The real bounce port: the reason of the next hop stands in the notice that the sender gets."""
    sink = SinkShape("a", ours=True)
    system = stack(postfix="stock", nodes=1, sinks=[sink])
    w = World.__new__(World)
    w.stack, w.peers, w.bounce = system, [], None
    w.connections = {"mx1": resp.Connection(system.nodes["mx1"])}
    try:
        peer = w.peer()
        peer.say("RCPT", "550 5.1.1 <b@example.net>: nobody of that name; say \"$x\" {y} (z)")
        body = b"X-Oracle-Id: 0123456789ab\r\nDovelane-bounce: 5.9.9 made up\r\nSubject: x\r\n\r\nhello\r\n"
        w.store(peer, "b@example.net", owners=["mx1"], sender="someone@a.example", body=body)
        w.store(peer, envelope.recipient("silent@example.net", "NOTIFY=NEVER"), owners=["mx1"], sender="someone@a.example", body=body)
        w.store(peer, "nowhere@example.net", owners=["mx1"], sender="", body=body)
        w.empty()
        journal = Path(system["sink-a"].note["journal"])
        log = Path(system["postfix"].log)
        eventually("all are out of Postfix's queue", lambda: len(re.findall(r"postfix/qmgr\[\d+\]: \w+: removed", log.read_text())) >= 4)
        line, = journal.read_text().splitlines()  # one notice for one sender: none for NOTIFY=NEVER, none for the null sender
        kind, name, recipient, note = line.split("\t")[1:]
        assert (kind, name, recipient) == ("dsn", "0123456789ab", "b@example.net")
        assert note.startswith("5.1.1 ") and 'said: 550 5.1.1 <b@example.net>: nobody of that name; say "$x" {y} (z)' in note
    finally:
        w.end()
