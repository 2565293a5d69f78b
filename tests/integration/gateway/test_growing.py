"""The admin reference's "Growing", with the real programs and under load: two nodes become three, and two others again. Nothing is lost, and what comes twice has its reason."""
import os
import re
import signal
from pathlib import Path

import pytest

from support import sinks
from faults import QUICK_DEATH, SETTINGS, entries
from support.stack import Stack, oracle, programs, resp
from support.stack.shape import SinkShape
from test_loss import Load, unexplained
from test_membership import forgotten, whole_servers
from support.milter import milters, serving
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

SINKS = [SinkShape(name, ours=True) for name in ("a", "b", "c", "plain")]


@pytest.fixture
def system():
    """Three hosts. Those of mx1 (with the milter) and mx2 know of two nodes, mx3's of itself and mx2; only the first two run."""
    settings = {**SETTINGS, **QUICK_DEATH, "membership": "learned", "replace_after": "3s"}
    with Stack(postfix="divert", sinks=SINKS, divert=["a", "b", "c"], policy="queue", nodes=3, relays=False, settings=settings) as running:
        running.look_at = running.nodes.get
        running["milter"].end()
        for service, known in (("relay-mx1", ("mx1", "mx2")), ("relay-mx2", ("mx1", "mx2")), ("relay-mx3", ("mx3", "mx2")), ("milter", ("mx1", "mx2"))):
            state = Path(running[service].note["conf"]).parent / "state"
            state.mkdir()
            sections(running, service, *known, state_directory=str(state))
        for name in ("relay-mx1", "relay-mx2", "milter"):
            running.start(name)
        yield running
        for pid in milters(running):  # those that took over from the one that the stack started
            os.kill(pid, signal.SIGTERM)
        eventually("all milters have ended", lambda: not milters(running))


def sections(system, service, *names, **settings):
    system[service].note["nodes"] = {name: system.nodes[name] for name in names}
    programs.write_settings(system[service], settings)


def text_of(system, service):
    return Path(system[service].log).read_text(errors="replace")


def stored(system, owners, more=10):
    """Waits until the milter has stored that many more mails there."""
    def count():
        return len(re.findall(f"action=lane, .*nodes={owners},", text_of(system, "milter")))
    least = count() + more
    eventually(f"mail is stored on {owners}", lambda: count() >= least, 60)


@pytest.mark.exhaustive
def test_two_nodes_become_three_and_two_others_under_load(system):
    whole_servers(system, "mx1", "mx2")
    for name in "abc":
        sinks.rules(system, name, {"at": "dot", "delay": 0.03})
    load = Load(system, rate=60)
    try:
        stored(system, "mx1>mx2")
        before = serving(system)
        # A host more: its relay is started, and that is all.
        system.start("relay-mx3")
        whole_servers(system, "mx1", "mx2", "mx3")
        logged(system["milter"].log, "node mx3 is one of the group now: a new process takes over")
        eventually("a new milter serves", lambda: serving(system) != before, 60)
        assert text_of(system, "relay-mx1").count("returning") == text_of(system, "relay-mx2").count("returning") == 1
        # Its partner goes for good, as planned: mail goes on to memory, on the new pair.
        system.end("relay-mx2")
        stored(system, "mx1>mx3")
        system.end("redis-mx2")
        logged(system["relay-mx1"].log, "node mx2 is dead")
        for service in ("relay-mx1", "milter"):
            sections(system, service, "mx1")
        sections(system, "relay-mx3", "mx3")
        for service in ("relay-mx1", "relay-mx3"):
            system[service].send(signal.SIGHUP)
            logged(system[service].log, "config read again")
        forgotten(system, "mx2", 90)
        for service in ("relay-mx1", "relay-mx3"):
            logged(system[service].log, "node mx2 is not in the group any more")
        stored(system, "mx1>mx3")
        load.flowing(50)
    finally:
        ledger = load.end()
    verdict = oracle.wait_delivered(system, ledger, seconds=90)
    print(f"\n{verdict.summary()}")
    assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
    assert not unexplained(verdict, system), verdict.report()
    for node in ("mx1", "mx3"):
        eventually(f"{node} is empty", lambda node=node: not entries(system, node), 60)


def test_a_way_in_that_missed_that_a_node_was_taken_out_sees_that_it_joins_again(system):
    whole_servers(system, "mx1", "mx2")
    system.start("relay-mx3")
    whole_servers(system, "mx1", "mx2", "mx3")
    logged(system["milter"].log, "node mx3 is one of the group now: a new process takes over")
    before = serving(system)
    system.end("relay-mx3")
    for node in ("mx1", "mx2"):
        with resp.Connection(system.nodes[node]) as connection:
            record = re.search(r"\d+ node mx3 (.*\n)", connection.call("GET", "dovelane.nodes").decode())
            connection.call("SET", "dovelane.nodes", "1/1 joining mx3 " + record[1])
    for service in ("relay-mx1", "relay-mx2"):
        logged(system[service].log, "node mx3 is not in the group any more")
    logged(system["milter"].log, "node mx3 was taken out of the group: a new process takes over")
    eventually("a new milter serves", lambda: serving(system) != before, 60)
