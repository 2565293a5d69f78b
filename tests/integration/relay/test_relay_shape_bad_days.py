"""Rules of `shape` on bad days: a Postfix that takes no bounces, suspensions that outlast a mail's time, rules that change while mail is sent, and next hops that close what waits."""
import time

import pytest

from support import admin, envelope
from support.relay_peer import CLOSE, HANG, Meeting
from support.relay_world import timeouts
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]

AUTOMATIC = {"takeover": "automatic", "beat": "200ms", "suspect_after": "1s", "dead_after": "3s", "alone_wait": "0s", "restless_most": "3s",
             "handover_wait": "20s", "return_max": "1s", "compare_every": "2s"}
BOUNCES = {"timeout": "2s", "timeout_action": "bounce"}


def too_many(times, rate, burst):
    """The most mails above the rate in any stretch of time that begins with a mail."""
    return max(k - i + 1 - burst - rate * (times[k] - begin) for i, begin in enumerate(times) for k in range(i, len(times)))


def fill(w, peer, n, size=100, owners=("mx1",), lane=None):
    w.push_everywhere(owners, lane or w.lane(peer, owners), *[
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


@pytest.mark.parametrize("hangs", ["bounces", "queue"])
def test_a_port_that_hangs_does_not_hold_up_the_other_way_out(world, hangs):
    """Bounces by age, and what goes to Postfix's queue because it is old, have places of their own."""
    w = world(nodes=1, relays=["mx1"], bounce=True, settle="1300ms", lane_time="2s", spill_rate=1000, **timeouts("1000s"))
    queue, busy = w.peer(), w.peer()
    w.configure(reinject_port=f"127.0.0.1:{queue.port}", shapes=[(busy.destination, BOUNCES)])
    w.logged("config read again")
    busy.say("RCPT", "450 4.2.1 mailbox busy")
    {"bounces": w.bounce, "queue": queue}[hangs].say("MAIL", HANG)
    slow, quick, way = (busy, "smtp:[127.0.0.1]:1", queue) if hangs == "bounces" else ("smtp:[127.0.0.1]:1", busy, w.bounce)
    fill(w, slow, 300)
    way_hangs = w.bounce if hangs == "bounces" else queue
    eventually("that way is full", lambda: way_hangs.seen("MAIL"))
    time.sleep(3)
    fill(w, quick, 150)
    eventually("the other way is open", lambda: len(way.mails) == 150, 60)
    assert w.length("mx1") == 300


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


@pytest.mark.parametrize("ended", ["by resume", "by itself", "by remove"])
def test_a_relay_that_starts_behind_a_suspension_does_not_count_it(world, ended):
    """It never saw that nothing was sent: the rules say so."""
    w = world(nodes=1, relays=["mx1"], bounce=True, settle="1300ms", destination_in_flight=1)
    peer = w.peer()
    w.configure(shapes=[("*", {"timeout": "15s", "timeout_action": "bounce", "rate": "3/s", "burst": 1})])
    w.logged("config read again")
    admin.done(w.stack, "shape", peer.destination, "--suspend", "x", *(["--for", "18s"] if ended == "by itself" else []))
    fill(w, peer, 30)
    w.logged("is suspended: x")
    time.sleep(17)
    if ended != "by itself":
        admin.done(w.stack, "shape", peer.destination, "--" + ended.split()[1])
    w.stack.kill("relay-mx1")
    time.sleep(2)       # by then it has ended by itself, too
    w.stack.start("relay-mx1")
    w.empty()
    assert len(peer.mails) == 30 and not w.bounce.mails


def test_a_suspension_holds_who_takes_over(world):
    """The node that has the lanes is killed: the next one sends nothing either, and what waited then has its whole time."""
    names = ("mx1", "mx2")
    w = world(nodes=2, relays=names, bounce=True, **AUTOMATIC, settle="1300ms", retry_first="1s", retry_most="2s", destination_in_flight=1)
    peer, other = w.peer(), w.peer()
    for node in names:
        w.logged(r"(?m)info: alive|alive$|alive, though", node)
        w.configure(node, shapes=[("*", {"timeout": "25s", "timeout_action": "bounce"}), (peer.destination, {"rate": "10/s", "burst": 1})])
    admin.done(w.stack, "shape", peer.destination, "--suspend", "x")
    fill(w, peer, 30, owners=names)
    w.logged("is suspended: x")
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    w.connections.pop("mx1").close()
    w.logged("every owner before us is dead, we take over", "mx2")
    fill(w, other, 1, owners=["mx2"])
    eventually("mx2 delivers what it may", lambda: len(other.mails) == 1)
    time.sleep(27)      # the mail's time is over, and a round has passed
    assert not peer.mails and not w.bounce.mails and w.length("mx2") == 30
    admin.run(w.stack, "shape", peer.destination, "--resume")
    w.stack.kill("relay-mx2")       # the next one knows only what the rules say
    w.stack.start("relay-mx2")
    w.empty("mx2")
    came = sorted(address for mail in peer.mails for address in mail.recipients)
    assert came == sorted(f"u{k}@example.net" for k in range(30)) and not w.bounce.mails


# -- ordered lanes ----------------------------------------------------------------------------------------------------------

def test_a_rate_keeps_the_order_of_a_lane(world):
    """Also while the relay is killed: one at a time, in the order in which they came, and none faster than the rule says."""
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"rate": "10/s", "burst": 1})])
    peer = w.peer()
    times = []
    peer.say("DOT", lambda session: (times.append(time.monotonic()), "250 2.0.0 Ok")[1])
    fill(w, peer, 60, lane=f"{w.lane(peer, ['mx1'])}|mx1.5")
    eventually("it is under way", lambda: len(times) > 20)
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.empty()
    came = [address for mail in list(peer.mails) for address in mail.recipients]
    assert list(dict.fromkeys(came)) == [f"u{k}@example.net" for k in range(60)] and len(came) <= 61
    assert too_many(times, 10, 1 + 10 * 0.2 + 1) <= 0.5, times
    assert peer.most_open == 1 and not w.count("out of order")


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
    w.connections["mx1"].call("HSET", f"{key}|backoff", kind, f"{value} {int(time.time() * 1000) + 600000} 600000")
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


def test_a_clock_that_was_set_back_makes_no_back_off_longer(world):
    """The node's key says an end that is far ahead by its clock now; what was asked for was four seconds."""
    w = world(nodes=1, relays=["mx1"])
    peer = w.peer()
    w.connections["mx1"].call("HSET", f"dovelane.bucket:{peer.destination}|backoff", "suspend", f"0 {int(time.time() * 1000) + 36000000} 4000")
    w.configure(shapes=[(peer.destination, {"backoff": "yes"})])
    w.logged("config read again")
    w.store(peer, owners=["mx1"])
    w.logged("is suspended: the next hop asked for that")
    eventually("it is over", lambda: len(peer.mails) == 1, 60)
