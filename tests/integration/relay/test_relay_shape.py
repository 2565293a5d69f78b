"""What rules of `shape` hold a relay, and a whole group, to (docs/shape.md): rates, connections, suspension, age, size, and what next hops ask for by their replies.

Bounds are judged by what came too early or too often, which a busy machine cannot make worse."""
import re
import signal
import time

import pytest

from support import envelope
from support.relay_peer import Meeting
from support.relay_world import timeouts
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]

NODES = ("mx1", "mx2", "mx3")
AUTOMATIC = {"takeover": "automatic", "beat": "200ms", "suspect_after": "1s", "dead_after": "3s", "alone_wait": "4s", "restless_most": "3s", "handover_wait": "20s",
             "return_max": "1s", "compare_every": "2s"}


def group(world, rules, nodes=3, **settings):
    """So many nodes that take over for each other, and a rule for all next hops."""
    names = NODES[:nodes]
    w = world(nodes=nodes, relays=names, shapes=[("*", rules)], **{**AUTOMATIC, **settings})
    for node in names:
        w.logged(r"(?m)info: alive|alive$|alive, though", node)
    return w


def timed(peer):
    """The peer's list of the moments at which it took a mail."""
    times = []
    peer.say("DOT", lambda session: (times.append(time.monotonic()), "250 2.0.0 Ok")[1])
    return times


def fill(w, peer, n, size=100, nodes=NODES):
    """n entries of each node, whose second owner is the next one."""
    for i, node in enumerate(nodes):
        owners = [node, nodes[(i + 1) % len(nodes)]][:len(nodes)]
        w.push_everywhere(owners, w.lane(peer, owners), *[
            (envelope.entry_id(), envelope.encode([f"u{k}@example.net"], size=size), b"Subject: x\r\n\r\n" + b"x" * size + b"\r\n") for k in range(n)])


def too_many(times, rate, burst):
    """The most mails above the rate in any stretch of time that begins with a mail."""
    worst = 0
    for i, begin in enumerate(times):
        for k in range(i, len(times)):
            worst = max(worst, (k - i + 1) - burst - rate * (times[k] - begin))
    return worst


def sent(w, node):
    return w.count("status=sent", node)


# -- rates of a group --------------------------------------------------------------------------------------------------------

def test_a_rate_is_the_groups_and_every_relay_has_its_turn(world):
    w = group(world, {"rate": "50/s", "burst": 1})
    times = timed(peer := w.peer())
    fill(w, peer, 70)
    w.empty()
    assert len(times) == 210 and all(sent(w, node) == 70 for node in NODES)
    # Tokens are fetched for two tenths of a second at most, by all relays together.
    assert too_many(times, 50, 1 + 50 * 0.2 + 3) <= 0.05 * 50, times


def test_a_rate_holds_while_the_node_that_counts_is_killed(world):
    w = group(world, {"rate": "60/s", "burst": 1})
    times = timed(peer := w.peer())
    fill(w, peer, 100)
    eventually("it is under way", lambda: len(times) > 60)
    counting = [node for node in NODES if w.connections[node].call("EXISTS", f"dovelane.bucket:{peer.destination}")]
    assert len(counting) == 1, counting
    w.stack[f"redis-{counting[0]}"].send(signal.SIGKILL)
    left = [node for node in NODES if node != counting[0]]
    w.connections.pop(counting[0]).close()
    w.empty(*left)
    assert {address for mail in peer.mails for address in mail.recipients} == {f"u{k}@example.net" for k in range(100)}
    assert too_many(times, 60, 1 + 60 * 0.4 + 3) <= 0.05 * 60, times


def test_what_was_booked_at_a_node_that_is_killed_is_not_sent_besides(world):
    """Each relay books its next token ahead: the node that counts from then on must not give the same time away again."""
    w = group(world, {"rate": "1/s", "burst": 1})
    times = timed(peer := w.peer())
    fill(w, peer, 12)
    eventually("it is under way", lambda: len(times) >= 5)
    counting, = [node for node in NODES if w.connections[node].call("EXISTS", f"dovelane.bucket:{peer.destination}")]
    w.stack.kill(f"relay-{counting}")
    w.stack.kill(f"redis-{counting}")
    before = len(times)
    eventually("it goes on", lambda: len(times) >= before + 12)
    assert too_many(times, 1, 1) <= 0.6, times
    assert times[before] - times[before - 1] < 4, "two tokens' time, and one that the relay took along"


def test_a_rate_holds_while_the_node_that_counts_stands_still(world):
    w = group(world, {"rate": "60/s", "burst": 1})
    times = timed(peer := w.peer())
    fill(w, peer, 100)
    eventually("it is under way", lambda: len(times) > 30)
    counting, = [node for node in NODES if w.connections[node].call("EXISTS", f"dovelane.bucket:{peer.destination}")]
    w.stack[f"redis-{counting}"].send(signal.SIGSTOP)
    before = len(times)
    try:
        eventually("others count", lambda: len(times) > before + 30)
    finally:
        w.stack[f"redis-{counting}"].send(signal.SIGCONT)
    w.empty()
    assert too_many(times, 60, 1 + 60 * 0.4 + 3) <= 0.05 * 60, times


def test_bytes_of_a_second(world):
    w = group(world, {"byte_rate": "200kB/s", "byte_burst": "10kB"}, nodes=2)
    times = timed(peer := w.peer())
    fill(w, peer, 40, size=10000, nodes=NODES[:2])
    w.empty()
    assert len(times) == 80
    assert too_many(times, 200e3 / 10e3, 1 + 20 * 0.4 + 2) <= 1, times


def test_a_burst_comes_at_once_and_no_second_one(world):
    w = group(world, {"rate": "1/min", "burst": 20}, nodes=2)
    times = timed(peer := w.peer())
    fill(w, peer, 30, nodes=NODES[:2])
    eventually("the burst is out", lambda: len(times) >= 20)
    time.sleep(1)
    assert len(times) <= 21
    w.configure("mx1", shapes=[]), w.configure("mx2", shapes=[])
    w.empty()
    assert len(times) == 60


def test_another_rate_counts_at_once(world):
    """What was booked by the old one does not hold the mail."""
    w = group(world, {"rate": "1/h", "burst": 1}, nodes=2)
    times = timed(peer := w.peer())
    fill(w, peer, 30, nodes=NODES[:2])
    eventually("the first one is out", lambda: len(times) == 1)
    for node in NODES[:2]:
        w.configure(node, shapes=[("*", {"rate": "1000/s"})])
    w.empty()
    assert len(times) == 60


def test_a_low_rate_opens_a_connection_when_a_mail_may_leave(world):
    """Not each time that one has ended because it was idle."""
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"rate": "20/min", "burst": 1})], connection_idle="1200ms")
    times = timed(peer := w.peer())
    fill(w, peer, 4, nodes=["mx1"])
    w.empty()
    assert len(times) == 4 and peer.sessions <= 8 and too_many(times, 1 / 3, 1) <= 0.5, (times, peer.sessions)


def test_a_relay_that_waits_for_its_rate_stops_at_once_and_gives_back(world):
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"rate": "1/h", "burst": 1})])
    times = timed(peer := w.peer())
    fill(w, peer, 10, nodes=["mx1"])
    eventually("the first one is out", lambda: len(times) == 1)
    w.stack.end("relay-mx1")
    assert "mails are still in hand" not in w.log() and "]: stopped" in w.log()
    assert {each.state for each in w.entries("mx1")} == {"waiting"} and w.length("mx1") == 9


def test_a_slow_next_hop_does_not_keep_the_others_waiting(world):
    w = world(nodes=1, relays=["mx1"], destination_in_flight=50)
    slow, quick = w.peer(), w.peer()
    w.configure(shapes=[(slow.destination, {"rate": "1/h"})])
    fill(w, slow, 100, nodes=["mx1"])
    fill(w, quick, 500, nodes=["mx1"])
    eventually("the quick one has all", lambda: len(quick.mails) == 500)
    assert len(slow.mails) <= 1


# -- connections -------------------------------------------------------------------------------------------------------------

def test_connections_of_a_group(world):
    w = group(world, {"connections": 4}, destination_concurrency_first=10, destination_concurrency=20)
    peer = w.peer()
    fill(w, peer, 300)
    w.empty()
    assert len(peer.mails) == 900 and peer.most_open <= 4 and all(sent(w, node) == 300 for node in NODES)


def test_one_connection_goes_around(world):
    w = group(world, {"connections": 1})
    peer = w.peer()
    fill(w, peer, 20)
    w.empty()
    assert len(peer.mails) == 60 and peer.most_open == 1


def test_connections_and_mails_over_one_of_a_relay(world):
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"relay_connections": 2, "connection_mails": 3})], destination_concurrency_first=10)
    peer = w.peer()
    fill(w, peer, 30, nodes=["mx1"])
    w.empty()
    assert peer.most_open <= 2 and peer.sessions >= 10


def test_feedback_as_postfix_defines_it(world):
    """One success adds a whole connection where positive feedback is 1."""
    w = world(nodes=1, relays=["mx1"], shapes=[("*", {"feedback_positive": "1"})], destination_concurrency_first=1, destination_concurrency=8)
    peer = w.peer()
    fill(w, peer, 8, nodes=["mx1"])
    w.empty()
    peer.say("DOT", gate := Meeting(6))
    fill(w, peer, 60, nodes=["mx1"])
    w.empty()
    assert gate.most >= 6


# -- suspended ---------------------------------------------------------------------------------------------------------------

def test_suspended_until_it_is_not(world):
    """Its mail stays where it is, however old it is, and does not go another way."""
    w = world(nodes=1, relays=["mx1"], lane_time="1s", reinject_port="127.0.0.1:1")
    peer, other = w.peer(), w.peer()
    w.configure(shapes=[(peer.destination, {"suspend": "they move house"})])
    w.store(peer, owners=["mx1"])
    w.store(other, owners=["mx1"])
    eventually("the other next hop has its mail", lambda: len(other.mails) == 1)
    w.logged(r"is suspended: they move house")
    time.sleep(2.5)     # more than a round behind lane_time
    assert not peer.mails and w.length("mx1") == 1 and not re.search("given to Postfix", w.log())
    w.configure(shapes=[])
    w.empty()
    assert len(peer.mails) == 1
    w.logged("is not suspended any more")


def test_a_suspension_takes_what_waits_out_of_hand(world):
    w = world(nodes=1, relays=["mx1"], destination_concurrency_first=1, destination_concurrency=1, **timeouts("100s"))
    peer = w.peer()
    peer.say("DOT", gate := Meeting(99))
    fill(w, peer, 20, nodes=["mx1"])
    eventually("one is being sent", lambda: gate.here == 1)
    w.configure(shapes=[(peer.destination, {"suspend": "x"})])
    w.logged("is suspended: x")
    eventually("nineteen are back", lambda: sum(e.state == "waiting" for e in w.entries("mx1")) == 19)
    gate.met.set()
    eventually("the one is done", lambda: w.length("mx1") == 19)
    assert len(peer.mails) == 1


def test_a_suspension_ends_by_itself(world):
    w = world(nodes=1, relays=["mx1"])
    peer = w.peer()
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4))
    w.configure(shapes=[(peer.destination, {"suspend": "x", "suspend_until": end})])
    w.logged("config read again")
    w.store(peer, owners=["mx1"])
    w.logged("is suspended: x")
    w.empty()
    assert time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) >= end


# -- age, size, schedule -----------------------------------------------------------------------------------------------------

def test_what_waits_for_too_long_bounces(world):
    w = world(nodes=1, relays=["mx1"], bounce=True, shapes=[("*", {"timeout": "2s", "timeout_action": "bounce"})], settle="1300ms")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.1 mailbox busy")
    w.store(peer, "late@example.net", owners=["mx1"])
    w.empty()
    assert w.count(r"to=<late@example.net>.*dsn=5.4.7, status=bounced \(delivery time expired; the last error was: 4.2.1 .*mailbox busy")
    bounced, = w.bounce.mails
    assert b"Dovelane-Bounce: 5.4.7 delivery time expired" in bounced.body and not peer.mails


def test_what_waits_for_an_away_next_hop_bounces_too(world):
    w = world(nodes=1, relays=["mx1"], bounce=True, shapes=[("*", {"timeout": "2s", "timeout_action": "bounce"})], settle="1300ms")
    w.store("smtp:[127.0.0.1]:1", owners=["mx1"])
    w.empty()
    assert len(w.bounce.mails) == 1


def test_a_mail_that_is_too_large_bounces(world):
    w = world(nodes=1, relays=["mx1"], bounce=True)
    peer = w.peer()
    w.configure(shapes=[(peer.destination, {"size_most": "10kB"})])
    w.store(peer, owners=["mx1"], body=b"Subject: x\r\n\r\n" + b"y" * 20000 + b"\r\n")
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 1 and len(w.bounce.mails) == 1
    w.logged(r"dsn=5.3.4, status=bounced \(message size 200\d\d exceeds size limit 10\d+ of next hop smtp:")


def test_a_schedule_of_its_own(world):
    w = world(nodes=1, relays=["mx1"], retry_first="1h", retry_most="2h")
    peer, other = w.peer(), w.peer()
    w.configure(shapes=[(peer.destination, {"retry_first": "200ms", "retry_most": "400ms"})])
    for each in (peer, other):
        each.say("RCPT", "450 4.2.0 later", times=2)
        w.store(each, owners=["mx1"])
    eventually("the third attempt succeeds", lambda: len(peer.mails) == 1)
    assert len(other.seen("RCPT")) == 1 and not other.mails


# -- what a next hop asks for ------------------------------------------------------------------------------------------------

def backing_off(world, tmp_path, line, nodes=1, **settings):
    rules = tmp_path / "backoff.rules"
    rules.write_text(line + "\n")
    names = NODES[:nodes]
    w = world(nodes=nodes, relays=names, shapes=[("*", {"backoff": "yes"})], backoff_rules=str(rules), **settings)
    return w, w.peer()


def test_a_reply_suspends_and_others_hear_of_it(world, tmp_path):
    w, peer = backing_off(world, tmp_path, '421 4.7.* "too many" suspend 8s', nodes=2)
    peer.say("MAIL", "421 4.7.28 too many mails from you", times=1)
    w.store(peer, owners=["mx1"])
    w.logged(r"next hop \S+ is backed off from for 8 s, by rule backoff.rules:1")
    w.store(peer, owners=["mx2"])
    fill(w, peer, 5, nodes=["mx1", "mx2"])
    begin = time.monotonic()
    w.logged(r"next hop \S+ is backed off from for [78] s: another relay", "mx2")
    early = len(peer.mails)
    w.empty()
    assert early <= 6 and time.monotonic() - begin > 4 and len(peer.mails) == 12


def test_a_rule_that_takes_back_off_back_ends_it(world, tmp_path):
    w, peer = backing_off(world, tmp_path, '421 4.7.* "too many" suspend 1h', retry_first="200ms", retry_most="200ms")
    peer.say("MAIL", "421 4.7.28 too many mails from you", times=1)
    w.store(peer, owners=["mx1"])
    w.logged(r"next hop \S+ is suspended: the next hop asked for that in a reply \(backoff\)")
    w.configure("mx1", shapes=[("*", {"backoff": "no"})])
    w.logged("is not suspended any more")
    w.empty()
    assert len(peer.mails) == 1


def test_a_greeting_that_says_too_many_connections(world, tmp_path):
    w, peer = backing_off(world, tmp_path, '421 * "too many connections" connections 1 1h', destination_concurrency_first=5)
    peer.say("CONNECT", "421 4.7.0 too many connections", times=1)
    fill(w, peer, 40, nodes=["mx1"])
    w.empty()
    assert len(peer.mails) == 40 and peer.most_open == 1


def test_replies_that_no_rule_knows_change_nothing(world, tmp_path):
    w, peer = backing_off(world, tmp_path, '421 4.7.* "too many" suspend 1h')
    peer.say("RCPT", "450 4.2.1 try again", times=1)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert "backed off" not in w.log()


# -- servers that refuse -----------------------------------------------------------------------------------------------------

def test_a_server_that_refuses_to_count_costs_precision_and_no_mail(world):
    """An aclfile of before knows no dovelane.bucket: each relay goes by its own clock."""
    w = world(nodes=1, relays=[])
    for words in (("ACL", "SETUSER", "default", "-eval", "-EVAL"),):
        w.connections["mx1"].call(*words)
    w.stack.start("relay-mx1")
    times = timed(peer := w.peer())
    w.configure(shapes=[(peer.destination, {"rate": "20/s", "burst": 1, "connections": 2})])
    w.logged("config read again")
    fill(w, peer, 40, nodes=["mx1"])
    w.empty()
    w.logged("cannot be counted for the group")
    assert len(times) == 40 and too_many(times, 20, 3) <= 2 and peer.most_open <= 2
