"""Under load, something is killed, stands still, or stays away: nothing that was answered 250 is lost.

Each round stops the victim first and looks, from outside, at the work it has in flight: a fault that hits an idle process
proves nothing. Duplicates: none when a store failed (a node that stood still, or is away); for a killed relay, milter or node at
most what it had in flight, and each with its reason in the log.

A round of each kind takes some seconds: `make test` does a few, `make test-long` twenty (DOVELANE_ROUNDS says otherwise).
"""
import os
import re
import threading
import time

import pytest

from support import sinks
from support.stack import Stack, lanes, oracle, resp
from support.stack.generator import Generator
from support.stack.shape import SinkShape

ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", 3))
LONG_ROUNDS = 20
SINKS = [SinkShape("a", ours=True), SinkShape("b", ["lmtp"], ours=True), SinkShape("c", ours=True), SinkShape("plain", ours=True)]
DOMAINS = ["a.example", "b.example", "c.example", "plain.example"]
VICTIMS = {"milter": ["milter"], "relay": ["relay-mx1"], "node": ["redis-mx1", "relay-mx1"]}


def stack_of(policy, **more):
    return Stack(postfix="divert", **more, sinks=SINKS, divert=["a", "b", "c"], policy=policy,
                 settings={"retry_first": "1s", "retry_most": "2s"})


class Load:
    """A generator in a thread of its own."""

    def __init__(self, system, **plan):
        self.generator = Generator(smtp=system.smtp, **{"domains": DOMAINS, "sessions": 12, "recipients": (1, 3), "retry_after": 0.3, "mails": 1000000, "rate": 80, **plan})
        self.thread = threading.Thread(target=self.generator.run)
        self.thread.start()

    @property
    def promised(self):
        return len(self.generator.ledger.promised)

    def end(self):
        self.generator.stop()
        self.thread.join()
        return self.generator.ledger

    def flowing(self, more=20):
        """Waits until that many more recipients were promised."""
        wanted, end = self.promised + more, time.monotonic() + 60
        while self.promised < wanted:
            assert time.monotonic() < end, "no mail is accepted any more"
            time.sleep(0.02)


def diverting(system, more=20):
    """Waits until the milter has stored that many more entries: the nodes are in use."""
    held, end = None, time.monotonic() + 60
    while True:
        now = sinks.metrics(system, "milter")["store_held_total"]
        held = now if held is None else held
        if now >= held + more:
            return
        assert time.monotonic() < end, "nothing is diverted any more"
        time.sleep(0.05)


def leased_recipients(system, node):
    """Recipients that are open in leased entries: what a relay has in hand."""
    return sum(len(entry.open) for entry in lanes.entries(node, system.nodes[node]) if entry.state == "leased")


def in_hand(system, node="mx1", seconds=15):
    """Waits until the relay has something in hand: after standing still it takes nothing for a while, on purpose."""
    end = time.monotonic() + seconds
    while not (found := leased_recipients(system, node)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def stop_and_look(system, victim, load):
    """Makes the victim stand still; returns what it has in flight, seen from the others: recipients that the relay has in hand, entries
    under way to the node, mails under way in the milter."""
    if victim == "milter":
        system.stop("milter")
        time.sleep(0.3)
        # A milter that stands still keeps every session in its transaction: nothing is promised while clients wait.
        before = load.promised
        time.sleep(0.2)
        return load.generator.unfinished if load.promised == before else 0
    in_hand(system)
    system.stop("relay-mx1")
    taken = leased_recipients(system, "mx1")
    if victim == "relay":
        return taken
    system.stop("redis-mx1")
    time.sleep(0.3)
    counters = sinks.metrics(system, "milter")
    pushed = counters["store_entries_total"] - counters["store_held_total"] - counters["store_refused_total"]
    return taken + 3 * pushed if pushed else 0


def lanes_empty(system, node, seconds=30):
    end = time.monotonic() + seconds
    while lanes.length(system.nodes[node]):
        assert time.monotonic() < end, f"{node}'s lanes do not get empty"
        time.sleep(0.05)


def hand_over(system, victim):
    """As the admin reference says: what the dead one owned first is delivered by the other; then it may come back. Returns how many
    recipients the other one has in hand at that moment: a returning relay delivers them a second time."""
    system.set_dead("mx1")
    if victim == "node":
        lanes_empty(system, "mx2")  # mx1 will come back empty
    else:
        time.sleep(1.0)
    before = leased_recipients(system, "mx2")
    system.set_dead()
    time.sleep(0.1)
    return before + leased_recipients(system, "mx2")


def one_round(system, victim, fault, load):
    """Returns what was in flight."""
    names = VICTIMS[victim]
    busy = stop_and_look(system, victim, load)
    if fault == "stop":
        time.sleep(2.2)  # longer than store_deadline: the milter has given up by then
        for name in names:
            system.cont(name)
        return busy
    for name in names:
        system.kill(name)
    if fault == "away":
        time.sleep(2.0)
    if victim == "node" or (victim == "relay" and fault == "away"):
        busy += hand_over(system, victim)
    for name in names:
        system.start(name)
    return busy


KEPT = re.compile(r"postfix/(?:qmgr\[\d+\]: (?=\w+: from=)|cleanup\[\d+\]: (?=\w+: milter-reject: END-OF-MESSAGE))(\w+): ")
QUEUE_ID = re.compile(r"postfix/cleanup\[\d+\]: (\w+): message-id=")


def unexplained(verdict, system):
    """Second copies without a reason in the logs. A milter that was killed in a transaction writes no `action=` line, and that is the reason: its
    copies were stored and not revoked, while Postfix kept the mail (policy queue) or the client sent it again (tempfail). So one of the
    mail's queue ids is unknown to the milter's log, and was delivered. The same when it was killed behind its line and Postfix had no
    answer yet: Postfix says that it kept or refused what the milter calls `action=lane`. With an engine that has threads that takes
    longer than a moment."""
    spoken = {line.split(": ")[1] for line in log_of(system, "milter") if "action=" in line} - untold(system)
    sent = [line for name in (*(f"relay-{node}" for node in system.nodes), "postfix") for line in log_of(system, name) if "status=sent" in line]

    def killed(entry):
        silent = {found[1] for line in entry.lines if (found := QUEUE_ID.search(line))} - spoken
        return any(f"{name}: to=<{entry.recipient}>" in line for name in silent for line in sent)
    return [entry for entry in verdict.unexplained if not killed(entry)]


def untold(system):
    """Queue ids of mails that lie in lanes by the milter's log, and that Postfix kept or refused nevertheless."""
    laned = {line.split(": ")[1] for line in log_of(system, "milter") if "action=lane" in line}
    kept = {found[1] for line in log_of(system, "postfix") if (found := KEPT.search(line))}
    return laned & kept


def log_of(system, name):
    with open(system[name].log, errors="replace") as log:
        return log.read().splitlines()


def run(policy, victim, fault, rounds, **more):
    with stack_of(policy, **more) as system:
        for name in "abc":
            sinks.rules(system, name, {"at": "dot", "delay": 0.15})
        load, busy = Load(system), []
        try:
            # On a host that is short of time the load pauses now and then, and the fault would hit an idle victim: that round does not count.
            while sum(1 for count in busy if count > 0) < rounds and len(busy) < 4 * rounds:
                load.flowing()
                diverting(system)
                busy.append(one_round(system, victim, fault, load))
            load.flowing()
            diverting(system)
        finally:
            ledger = load.end()
        verdict = oracle.wait_delivered(system, ledger, seconds=300)
        print(f"\n{policy} {victim} {fault}: in flight {busy}; {verdict.summary()}")
        assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
        # A relay that dies between its own node's ack and the other's leaves the other an entry that is delivered; a milter that dies between two
        # pushes leaves one owner an entry that was never promised (the mail came again). Until nodes compare, these stay there.
        # Everything else has left the lanes.
        waiting = [pair for pair in verdict.waiting if fault == "stop" or pair not in verdict.delivered]
        assert not waiting, waiting
        assert sum(1 for count in busy if count > 0) == rounds, f"the victim was idle: {busy}"
        assert not unexplained(verdict, system), verdict.report()
        if fault == "stop":
            assert not verdict.duplicates, verdict.report()
        # A mail has up to three recipients; hands and entries are counted in recipients already.
        assert len(verdict.duplicates) <= sum(busy) * (3 if victim == "milter" else 1), verdict.report()


KINDS = [(policy, victim, fault) for policy in ("queue", "tempfail") for victim in VICTIMS for fault in ("kill", "stop", "away")]
# The milter's takes a minute; test_milter_absent.py kills it, too.
QUICK = [("queue", victim, "kill") for victim in VICTIMS if victim != "milter"]


@pytest.mark.parametrize("policy, victim, fault",
                         [pytest.param(*kind, marks=[] if kind in QUICK else pytest.mark.long) for kind in KINDS])
def test_nothing_is_lost(policy, victim, fault):
    run(policy, victim, fault, ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("policy, fault", [pytest.param(policy, fault, marks=[pytest.mark.exhaustive] * (policy == "tempfail"))
                                           for policy, victim, fault in KINDS if victim == "milter"])
def test_nothing_is_lost_by_libmilter(policy, fault, monkeypatch):
    """The milter's other engine."""
    monkeypatch.setenv("DOVELANE_MILTER_ENGINE", "libmilter")
    run(policy, "milter", fault, ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("victim, fault", [("relay", "kill"), pytest.param("node", "stop", marks=pytest.mark.exhaustive)])
def test_nothing_is_lost_by_tls_and_with_users(victim, fault):
    run("queue", victim, fault, 1, secure=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("milter_engine", ["own", "libmilter"])
@pytest.mark.parametrize("policy, victim, fault", KINDS)
def test_nothing_is_lost_in_twenty_rounds(policy, victim, fault, milter_engine, monkeypatch):
    monkeypatch.setenv("DOVELANE_MILTER_ENGINE", milter_engine)
    run(policy, victim, fault, LONG_ROUNDS)


@pytest.mark.long
@pytest.mark.core
def test_a_thousand_mails_of_up_to_fifty_recipients_arrive_once():
    mails = int(os.environ.get("DOVELANE_MAILS", 1000))
    with stack_of("queue") as system:
        ledger = Generator(smtp=system.smtp, domains=DOMAINS, mails=mails, sessions=10, recipients=(1, 50), users=40, size=(300, 8000)).run()
        verdict = oracle.wait_delivered(system, ledger, seconds=300).check()
        print(verdict.summary())
        assert len(verdict.promised) == len(ledger.pairs) > 10 * mails
        assert not verdict.duplicates and not verdict.waiting and not verdict.returned
        counters = sinks.metrics(system, "milter")
        # With four domains and up to fifty recipients most mails have one that is not diverted: Postfix's, as a whole.
        assert counters["mails_diverted_total"] + counters["mails_queued_total"] == mails
        assert counters["mails_diverted_total"] > 0


@pytest.mark.core
def test_diverted_mail_of_up_to_fifty_recipients_arrives_once():
    with stack_of("queue") as system:
        ledger = Generator(smtp=system.smtp, domains=DOMAINS[:3], mails=500, sessions=10, recipients=(1, 50), users=40).run()
        verdict = oracle.wait_delivered(system, ledger, seconds=300).check()
        assert not verdict.duplicates and not verdict.waiting
        assert sinks.metrics(system, "milter")["mails_diverted_total"] == 500


@pytest.mark.long
@pytest.mark.parametrize("seconds", [pytest.param(5, id="5s"), pytest.param(20, id="20s", marks=pytest.mark.exhaustive)])
def test_a_next_hop_that_is_away_delays_and_loses_nothing(seconds):
    with stack_of("queue") as system:
        load = Load(system, rate=50)
        load.flowing()
        sinks.command(system, "a", do="down")
        time.sleep(seconds)
        waiting = lanes.length(system.nodes["mx1"])
        sinks.command(system, "a", do="up")
        load.flowing()
        verdict = oracle.wait_delivered(system, load.end(), seconds=300).check()
        assert waiting > 20, "nothing waited for the next hop"
        assert not verdict.waiting
        # A mail whose final dot was sent when the connection broke may come twice, and its log line says so.
        assert not verdict.unexplained


@pytest.mark.long
@pytest.mark.core
def test_permanent_failures_bounce_with_the_next_hops_words():
    with stack_of("queue") as system:
        sinks.rules(system, "a", {"at": "rcpt", "match": "^u1@", "reply": "550 5.1.1 no such dove"})
        ledger = Generator(smtp=system.smtp, domains=["a.example"], mails=60, sessions=4, recipients=(1, 4), users=4, sender="back@plain.example").run()
        verdict = oracle.wait_delivered(system, ledger, seconds=300).check()
        returned = {pair for pair in verdict.returned}
        assert returned == {pair for pair in ledger.promised if pair[1].startswith("u1@")} and returned
        assert any("no such dove" in note for note in verdict.returned.values()), list(verdict.returned.values())[:3]
        assert not verdict.waiting
