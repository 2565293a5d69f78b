"""Takeover and return with real programs: dead nodes are taken over, nodes that come back are refilled, and nothing is delivered twice without a reason
(docs/takeover.md)."""
import json
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from support import admin
from support import envelope
from support.relay_peer import Meeting
from support.relay_world import World
from support.stack import programs, resp
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]

# settle >= what a milter may take to promise; the rest as short as a busy host allows.
QUICK = {"takeover": "automatic", "beat": "200ms", "suspect_after": "1s", "dead_after": "3s", "alone_wait": "4s", "restless_most": "3s", "handover_wait": "20s", "return_max": "1s",
         "compare_every": "2s"}
ALONE = {**QUICK, "alone_wait": "0s"}    # two nodes: who is left hears nobody, and need not wait


@pytest.fixture
def world(stack, tmp_path):
    made = []

    def make(alive=True, **options):
        w = World(stack, tmp_path, **{**QUICK, **options})
        made.append(w)
        if alive:
            for node in options.get("relays", ("mx1", "mx2")):
                w.logged(r"(?m)info: alive|alive$|alive, though", node)
        return w

    yield make
    for each in made:
        each.end()


def whole(w, node):
    flat = w.connections[node].call("LANE.WHOLE")
    return {flat[i].decode() for i in range(0, len(flat), 2)}


def reconnect(w, node):
    """After the node's Redis was started again."""
    w.connections[node].close()
    w.connections[node] = resp.Connection(w.stack.nodes[node], timeout=30)


def state(w, node, at="mx1"):
    """What the node's last beat says, as the server of `at` has it."""
    for name, _, _, _, text in w.connections[at].call("LANE.BEAT")[0]:
        if name.decode() == node:
            return dict(word.split("=", 1) for word in text.decode().split())["state"]
    return None


def alive(w, node, at=None):
    eventually(f"{node} is alive", lambda: state(w, node, at or node) == "alive")


def fill(w, peer, n, owners=("mx1", "mx2"), copies=None, size=300):
    """n entries in one PUSH per node; their ids."""
    entries = [(envelope.entry_id(), envelope.encode([f"u{i}@example.net"], size=size), b"Subject: %d\r\n\r\n" % i + b"x" * size + b"\r\n") for i in range(n)]
    w.push_everywhere(copies or owners, w.lane(peer, owners), *entries)
    return [name for name, _, _ in entries]


def recipients(peer):
    return sorted(address for mail in list(peer.mails) for address in mail.recipients)


def wait_delivered(w, peer, n, nodes=("mx1", "mx2")):
    w.empty(*nodes)
    assert recipients(peer) == sorted(f"u{i}@example.net" for i in range(n)), "each once"


def test_nodes_start_become_whole_and_deliver(world):
    w = world()
    assert whole(w, "mx1") == whole(w, "mx2") == {"mx1+mx2"}
    peer = w.peer()
    w.store(peer)
    w.store(peer, owners=["mx2", "mx1"])
    w.empty()
    assert len(peer.mails) == 2
    assert w.count("status=sent", "mx1") == w.count("status=sent", "mx2") == 1


def test_what_nodes_hold_that_were_never_whole_is_united(world):
    """Nobody is whole, all can be reached: gaps of every kind are filled on both sides, and nothing is dropped."""
    w = world(alive=False, relays=(), refill_block=7)
    peer = w.peer()
    lane = w.lane(peer)
    entries = [(envelope.entry_id(), envelope.encode([f"u{i}@example.net"]), b"Subject: %d\r\n\r\n" % i + b"x" * (700000 if i % 50 == 0 else i) + b"\r\n")
               for i in range(200)]
    for node, held in (("mx1", [e for i, e in enumerate(entries) if i % 3]), ("mx2", [e for i, e in enumerate(entries) if i % 5 or i % 3 == 0])):
        for entry in held:
            w.push(node, lane, entry)
    assert w.length("mx1") == 133 and w.length("mx2") == 174
    w.stack.start("relay-mx1")
    w.stack.start("relay-mx2")
    w.logged("compared with", "mx1")
    w.logged(r"compared with .* 0 dropped", "mx2")
    wait_delivered(w, peer, 200)
    assert sorted(peer.bodies()) == sorted(body for _, _, body in entries)


@pytest.mark.test
@pytest.mark.parametrize("how", ["flushall", "kill"])
def test_a_node_that_lost_everything_is_refilled_and_delivers(world, how):
    w = world()
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 300)
    eventually("both know of an attempt on each", lambda: all(entry.revision for node in ("mx1", "mx2") for entry in w.entries(node)))
    if how == "flushall":
        w.connections["mx1"].call("FLUSHALL")
        w.logged(r"returning \(not whole\)")
    else:
        w.stack.kill("redis-mx1")
        w.stack.start("redis-mx1")
        reconnect(w, "mx1")
        w.logged(r"returning \(the node's Redis was restarted\)")
    w.logged(r"compared with mx2: 300 entries fetched")
    eventually("mx1 is whole", lambda: whole(w, "mx1") == {"mx1+mx2"})
    assert w.length("mx1") == w.length("mx2") == 300
    # What was known of the recipients has come along.
    assert all(entry.revision for entry in w.entries("mx1"))
    peer.well()
    wait_delivered(w, peer, 300)
    alive(w, "mx1")
    # It was away for longer than dead_after, maybe: then mx2 delivers some of it.
    eventually("each one says that it may have been delivered before", lambda: w.count("status=sent.*why=return") + w.count("status=sent.*why=takeover", "mx2") == 300)
    time.sleep(1)  # what comes within a beat of the return's end may say so, too
    w.store(peer)
    w.logged("status=sent.*why=first")


def test_a_witness_that_is_emptied_while_it_is_fetched_from_is_none(world):
    """What it gives then lacks what it lost: who is filled from it must not call itself whole, or the third one drops what both lack."""
    w = world(nodes=3, relays=("mx1", "mx2", "mx3"), copies=3, refill_block=1, refill_rate="64kB")
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 40, owners=("mx1", "mx2", "mx3"), size=10000)
    w.logged("status=deferred", "mx1")
    w.connections["mx1"].call("FLUSHALL")
    eventually("mx1 has the first of it from mx2", lambda: 0 < w.length("mx1") < 20)
    w.connections["mx2"].call("FLUSHALL")
    w.logged(r"mx1\+mx2\+mx3: the comparison was in vain: the other owner is not whole any more", "mx1")
    for node in ("mx1", "mx2"):
        eventually(f"{node} is whole", lambda node=node: whole(w, node))
        assert w.length(node) == 40
    peer.well()
    w.empty()
    assert set(recipients(peer)) == {f"u{i}@example.net" for i in range(40)}


def test_an_emptied_node_without_others_stores_again(world):
    """copies = 1: nobody can be compared with, so nothing is waited for."""
    w = world(nodes=1, relays=("mx1",), copies=1)
    assert whole(w, "mx1") == {"mx1"}
    w.connections["mx1"].call("FLUSHALL")
    eventually("it is whole again", lambda: whole(w, "mx1") == {"mx1"}, 60)
    alive(w, "mx1")
    peer = w.peer()
    w.store(peer, owners=["mx1"])
    w.empty("mx1")
    assert len(peer.mails) == 1


def test_a_lost_connection_of_the_comparison_alone_is_no_loss(world):
    w = world()
    before, own = w.count("returning"), w.connections["mx1"]

    def comparing():
        return re.findall(r"(?m)^id=(\d+) .* name=dovelane-relay-compare ", own.call("CLIENT", "LIST").decode())
    mine = eventually("the comparisons are connected", lambda: len(found := comparing()) >= 2 and found)
    for number in mine:
        own.call("CLIENT", "KILL", "ID", number)
    eventually("they are connected again", lambda: len(comparing()) >= 2 and not set(mine) & set(comparing()))
    number = int(next(b[2] for b in own.call("LANE.BEAT")[0] if b[0] == b"mx1"))
    eventually("it has beaten since", lambda: int(next(b[2] for b in own.call("LANE.BEAT")[0] if b[0] == b"mx1")) > number + 3)
    assert w.count("returning") == before and state(w, "mx1") == "alive"


def test_with_all_power_off_and_one_node_gone_for_good_the_others_deliver_when_told(world):
    """Nobody is whole, and one of the owners will never answer: an admin's word takes its place."""
    w = world(nodes=3, relays=("mx1", "mx2", "mx3"), copies=3)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 20, owners=("mx1", "mx2", "mx3"))
    for node in ("mx1", "mx2"):
        w.connections[node].call("SAVE")
    for node in ("mx1", "mx2", "mx3"):
        w.stack.kill(f"relay-{node}")
    for node in ("mx1", "mx2", "mx3"):
        w.stack.kill(f"redis-{node}")
    peer.well()
    for node in ("mx1", "mx2"):
        w.stack.start(f"redis-{node}")
        reconnect(w, node)
        assert w.length(node) == 20
        w.stack.start(f"relay-{node}")
    w.logged("returning", "mx1")
    for node in ("mx1", "mx2"):
        w.configure(node, dead='{ "mx3" }')
    w.empty("mx1", "mx2")
    assert set(recipients(peer)) == {f"u{i}@example.net" for i in range(20)}
    alive(w, "mx1")
    alive(w, "mx2")


@pytest.mark.check
def test_a_dead_node_is_taken_over_and_comes_back(world):
    w = world(**ALONE)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 100)
    w.logged("status=deferred", "mx1")
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    peer.well()  # not before: what is in hand when it is killed may come twice
    w.logged("node mx1 is dead", "mx2")
    wait_delivered(w, peer, 100, ["mx2"])
    w.logged("why=takeover", "mx2", times=100)
    # It comes back empty, while mx2 drains for it.
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 50, copies=["mx2"])
    w.logged("status=deferred", "mx2")
    w.stack.start("redis-mx1")
    reconnect(w, "mx1")
    w.stack.start("relay-mx1")
    w.logged("compared with mx2: 50 entries fetched")
    alive(w, "mx1")
    w.logged("node mx1 is ready to come back", "mx2")
    peer.well()
    eventually("the rest", lambda: len(recipients(peer)) == 150)
    w.empty()
    assert w.count(r"u\d+@example.net>.*status=sent", "mx1") == 50


@pytest.mark.test
def test_what_was_delivered_meanwhile_is_not_delivered_again(world):
    """A relay that stood still for long finds itself taken over: what its own server still holds is compared away."""
    w = world(**ALONE, retry_first="6s", retry_most="6s")
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 200)
    eventually("nothing is in hand", lambda: {entry.state for entry in w.entries("mx1")} == {"delayed"})
    w.stack.stop("mx1")
    peer.well()
    w.logged("node mx1 is dead", "mx2")
    w.empty("mx2")
    w.stack.cont("mx1")
    w.logged(r"returning \(the relay stood still|returning \(the node's Redis stood still")
    eventually("it is alive again", lambda: w.count(r"alive$|: alive") and state(w, "mx1") == "alive")
    wait_delivered(w, peer, 200)


def test_orphans_go_within_a_while(world):
    """An entry that one whole owner holds and the other does not was delivered, or never promised."""
    w = world()
    peer = w.peer()
    w.store(peer, owners=["mx1", "mx2"], copies=["mx2"])
    w.logged("1 dropped that were delivered or never promised", "mx2")
    w.empty()
    assert not peer.mails


# -- what an admin sees ------------------------------------------------------------------------------------------------------

def table(w, status, node="mx2"):
    """node: its row of `dovelane nodes`; None when its status is another."""
    said = admin.run(w.stack, "nodes", "-v", node=node)
    if said.status != status:
        return None
    head, *rows = said.out.splitlines()
    names = ["node", "state", "beat", "whole", "heard by", "took over", "done", "in hand", "entries", "memory", "rtt", "times", "where", "config",
             "active path", "standby path"]
    assert re.split(r" {1,}(?!by|over|hand|path)", head) == names, head
    return {row.split()[0]: row.replace(" ms ", "ms ").split() for row in rows}


def test_the_nodes_as_a_table(world):
    w = world(**ALONE)
    peer = w.peer()
    w.store(peer)
    w.empty()
    rows = eventually("mx1 says what it did", lambda: (rows := table(w, 0)) and rows["mx1"][6] == "1" and rows)
    assert rows["mx1"][1] == "alive" and rows["mx1"][3:6] == ["yes", "mx2", "-"] and float(rows["mx1"][2]) < 5
    assert rows["mx1"][13] == rows["mx2"][13] and len(rows["mx1"][13]) == 16
    assert admin.run(w.stack, "check", "-v", "nodes").out.count("holds all that it promised") == 2
    w.connections["mx1"].call("FLUSHALL")
    assert "0 of its 1 set of" in admin.run(w.stack, "check", "nodes").out
    w.configure("mx2", hangup=False, dead='{"mx1"}')
    said = admin.run(w.stack, "nodes", node="mx2")
    assert re.search("(?m)^mx1 +alive ", said.out) and "dead names mx1, but its relay beats (alive): take it out" in said.out and said.status == 1, said
    w.configure("mx2", hangup=False, dead="{}")
    w.stack.kill("mx1")
    eventually("mx1 is silent", lambda: (rows := table(w, 1)) and rows["mx1"][1] == "silent")
    w.configure("mx2", hangup=False, dead='{"mx1"}')
    assert table(w, 1)["mx1"][1] == "dead" and "but its relay beats" not in admin.run(w.stack, "nodes", node="mx2").out
    w.configure("mx2", hangup=False, dead="{}")
    row = eventually("it was taken over", lambda: (row := table(w, 1)["mx2"])[5] == "mx1" and row)
    assert row[1] == "alive" and row[4] == "-"
    w.configure("mx2", hangup=False, lane_time="2h")
    assert table(w, 1)["mx2"][13].endswith("*"), "the relay has not read the file"


def test_two_relays_of_one_name_are_noticed(world):
    w = world()
    for counter in range(1, 4):
        eventually("ours beats", lambda: any(b[0] == b"mx1" and b[1] != b"another" for b in w.connections["mx1"].call("LANE.BEAT")[0]))
        w.connections["mx1"].call("LANE.BEAT", "mx1", "another", counter, "state=alive")
    w.logged("another relay beats as node mx1")
    peer = w.peer()
    w.store(peer)
    time.sleep(1)
    assert not peer.mails and state(w, "mx1") == "alive", "what lies there is the other's"


@pytest.mark.test
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_what_is_delivered_is_told_at_once_when_the_own_server_is_gone(world, how):
    w = world(**ALONE)
    peer, gate = w.peer(), Meeting(2)
    peer.say("DOT", gate)
    w.store(peer)
    eventually("it is at its next hop", lambda: gate.here)
    getattr(w.stack, how)("redis-mx1")
    gate.met.set()
    w.empty("mx2")
    assert len(peer.mails) == 1
    if how == "stop":
        w.logged("node mx1 is dead", "mx2")  # who takes over has nothing to deliver again
        w.stack.cont("redis-mx1")
    else:
        w.stack.start("redis-mx1")
        reconnect(w, "mx1")
        w.logged(r"returning \(the node's Redis was restarted\)")
    alive(w, "mx1")
    w.empty()
    assert len(peer.mails) == 1


# -- links -------------------------------------------------------------------------------------------------------------------

class Network:
    """Every relay reaches every other node's Redis through a link of its own; its own one directly."""

    def __init__(self, w):
        self.stack, nodes, links = w.stack, w.stack.nodes, []
        for node in nodes:
            own = dict(nodes)
            for other in nodes:
                if other != node:
                    port = w.stack.ports.take()
                    own[other] = f"127.0.0.1:{port}"
                    links.append(f"{node}>{other}={port}={nodes[other]}")
            w.relay(node).note["nodes"] = own
            programs.write_settings(w.relay(node))
        self.control = Path(tempfile.mkdtemp(prefix="links-")) / "control"
        script = Path(__file__).resolve().parents[2] / "support" / "stack" / "links.py"
        self.process = subprocess.Popen(["/usr/bin/python3", script, "--control", self.control, *links])
        eventually("the links are there", self.control.exists)
        for node in nodes:
            w.stack.start(f"relay-{node}")
        for node in nodes:
            w.logged(r"(?m)alive$|: alive|alive, though", node)

    def do(self, what, *links, **more):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.control))
            connection.sendall(json.dumps({"do": what, **more, **({"links": links} if links else {})}).encode() + b"\n")
            assert b"error" not in connection.makefile("rb").readline()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.control.unlink(missing_ok=True)
        self.control.parent.rmdir()


@pytest.fixture
def network():
    made = []

    def make(w):
        made.append(Network(w))
        return made[-1]

    yield make
    for each in made:
        each.end()


def at_peace(w):
    """All live, hear each other, hold all they promised, and nobody serves lanes for another."""
    def look():
        for node in w.connections:
            texts = {b[0].decode(): b[4].decode() for b in w.connections[node].call("LANE.BEAT")[0]}
            if any("state=alive" not in texts.get(name, "") or "+" in texts[name] or "silent" in texts[name] for name in w.connections) or not whole(w, node):
                return False
        return True
    eventually("peace", look, 60)


def test_a_cut_between_two_that_a_third_hears_is_nobodys_death(world, network):
    w = world(alive=False, relays=(), nodes=3)
    net = network(w)
    net.do("cut", "mx1>mx2", "mx2>mx1")
    peer = w.peer()
    ids = fill(w, peer, 50)
    w.empty("mx1")
    assert w.length("mx2") == len(ids), "acks that cannot be told are owed"
    time.sleep(4)  # longer than dead_after
    assert not w.count("is dead") and not w.count("is dead", "mx2") and not w.count("is dead", "mx3"), "their beats come by the third's server"
    net.do("heal")
    wait_delivered(w, peer, 50)
    at_peace(w)


@pytest.mark.test
@pytest.mark.parametrize("how", ["cut", "silence"])
def test_a_partition_is_healed(world, network, how):
    """Each side thinks that the other is dead. What both held may come twice; nothing is lost, and nothing stays."""
    w = world(alive=False, relays=(), **ALONE)
    net = network(w)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 50)
    fill(w, peer, 50, owners=["mx2", "mx1"])
    net.do(how)
    for one, other in (("mx1", "mx2"), ("mx2", "mx1")):
        w.logged(f"node {other} is dead", one)
    peer.well()
    w.empty()
    net.do("heal")
    at_peace(w)
    times = [recipients(peer).count(f"u{i}@example.net") for i in range(50)]
    assert all(2 <= count <= 4 for count in times), times
    w.logged(r"returning \(taken over\)")
    before = len(recipients(peer))
    fill(w, peer, 20)
    w.empty()
    assert len(recipients(peer)) == before + 20


def test_a_link_that_can_be_opened_from_one_side_only(world, network):
    w = world(alive=False, relays=(), **ALONE)
    net = network(w)
    net.do("cut", "mx1>mx2")
    peer = w.peer()
    fill(w, peer, 50)
    w.empty("mx1")
    time.sleep(4)
    assert not w.count("is dead") and not w.count("is dead", "mx2"), "one direction is enough to hear each other"
    # What mx1 cannot tell mx2, mx2 finds out by comparing.
    wait_delivered(w, peer, 50)
    eventually("mx2 dropped all", lambda: sum(map(int, re.findall(r"compared with mx1: 0 entries fetched .* (\d+) dropped", w.log("mx2")))) == 50)


def reads(w, node):
    found = re.search(rb"(?i)cmdstat_lane.read:calls=(\d+)", w.connections[node].call("INFO", "commandstats"))
    return int(found[1]) if found else 0


@pytest.mark.exhaustive
def test_a_node_is_refilled_over_a_link_that_is_slow(world, network):
    """Every block comes later than half a settle after it was asked for: it is stored, and what was delivered meanwhile goes again."""
    w = world(alive=False, relays=(), **{**ALONE, "dead_after": "20s"})
    net = network(w)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    ids = fill(w, peer, 50)
    w.logged("status=deferred", "mx1")
    net.do("delay", "mx1>mx2", ms=1500)
    before = reads(w, "mx2")
    w.connections["mx1"].call("FLUSHALL")
    w.logged(r"returning \(not whole\)")
    eventually("mx2 was asked for a block", lambda: reads(w, "mx2") > before, 60)
    # Delivered while the block is on its way: both owners are told at once, and the one that was emptied forgets that within a settle.
    for node in ("mx1", "mx2"):
        w.connections[node].call("LANE.ACK", w.lane(peer), "IDS", 5, *ids[:5])
    w.logged(r"compared with mx2: 50 entries fetched", seconds=90)
    alive(w, "mx1")
    assert w.length("mx1") == w.length("mx2") == 45
    net.do("delay", ms=0)
    peer.well()
    w.empty()
    assert recipients(peer) == sorted(f"u{i}@example.net" for i in range(5, 50))


@pytest.mark.exhaustive
def test_a_body_that_is_longer_under_way_than_dead_after_is_fetched(world, network):
    w = world(alive=False, relays=(), **ALONE)
    net = network(w)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 1, size=600000)
    w.logged("status=deferred", "mx1")
    net.do("rate", "mx1>mx2", bytes=80000)
    w.connections["mx1"].call("FLUSHALL")
    w.logged(r"returning \(not whole\)")
    w.logged(r"compared with mx2: 1 entries fetched", seconds=60)
    alive(w, "mx1")
    peer.well()
    wait_delivered(w, peer, 1)


def test_acks_of_its_own_lanes_do_not_keep_a_taker_from_giving_back(world, network):
    """A backlog that flows over a slow link: some ack is always under way."""
    w = world(alive=False, relays=(), **{**ALONE, "handover_wait": "50s"})
    net = network(w)
    net.do("delay", ms=400)
    peer, waiting = w.peer(), w.peer()
    w.stack.kill("relay-mx1")
    w.logged("node mx1 is dead", "mx2")
    waiting.say("MAIL", "450 4.0.0 not now")
    fill(w, waiting, 5)
    peer.say("DOT", lambda session: time.sleep(0.2) or "250 2.0.0 Ok")
    fill(w, peer, 4000, owners=["mx2", "mx1"])
    w.stack.start("relay-mx1")
    w.logged("ready: compared", "mx1")
    alive(w, "mx1")
    assert not w.count("though not all gave back"), "mx2 gave back while it delivered its own"
    assert w.length("mx2"), "and it still did"


def heard_of(w, node, at):
    """Of a node's last beat, as the server of `at` has it: its counter, and its age in seconds."""
    return next((number, age / 1000) for name, _, number, age, _ in w.connections[at].call("LANE.BEAT")[0] if name.decode() == node)


def restarting(w):
    """Both know of 40 mails that their next hop does not want yet, and the relay of the first owner was stopped as planned."""
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 40)
    w.logged("status=deferred", "mx1")
    w.stack.end("relay-mx1")
    w.logged("leaving")
    eventually("mx2 was told", lambda: state(w, "mx1", at="mx2") == "leaving")
    peer.well()
    return peer


def test_a_planned_stop_is_no_death(world):
    """A relay that is restarted says so first: nobody takes over, though it is away for longer than dead_after."""
    w = world(**{**ALONE, "return_max": "1h"})
    restarting(w)
    eventually("it is away for long", lambda: heard_of(w, "mx1", "mx2")[1] > 5)
    beats = heard_of(w, "mx2", "mx2")[0]
    eventually("mx2 has looked since", lambda: heard_of(w, "mx2", "mx2")[0] > beats + 2)
    assert not w.count("its mail is delivered here", "mx2") and w.length("mx2") == 40


@pytest.mark.test
def test_after_a_planned_stop_each_mail_comes_once(world):
    """Nobody is found dead here. Else a busy host that lets the relay stand still for dead_after would let mails come twice, as they may."""
    w = world(**{**ALONE, "dead_after": "10min"})
    peer = restarting(w)
    w.stack.start("relay-mx1")
    wait_delivered(w, peer, 40)
    assert not w.count("status=sent", "mx2")
