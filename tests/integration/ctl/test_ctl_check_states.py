"""dovelane check: a sick group is never called good. What `dovelane nodes` knows of a node, check says."""
import re

from support import admin
import pytest
from support.relay_world import eventually
from support.stack import SinkShape, Stack, resp

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def group():
    """Three nodes, whose relays beat."""
    with Stack(postfix="none", nodes=3, copies=2, sinks=[SinkShape("a", [], ours=True)], settings={"takeover": "automatic"}) as stack:
        yield stack


def check(group):
    said = admin.run(group, "check", "nodes", "-v")
    return said.status, said.out


def all_alive(group):
    eventually("all are alive", lambda: len(re.findall(r"(?m)^ok +node mx\d: its relay is alive$", check(group)[1])) == 3)


def as_mx3(group, text, incarnation="other", servers=("mx1", "mx2", "mx3")):
    for name in servers:
        with resp.Connection(group.nodes[name]) as server:
            server.call("LANE.BEAT", "mx3", incarnation, 1, text)


def test_a_silent_node_is_critical_and_a_good_one_is_not(group):
    all_alive(group)
    group.kill("relay-mx2")
    eventually("it is named", lambda: re.search(r"CRITICAL node mx2: silent: no beat of its relay for \d+ s", check(group)[1]))
    status, out = check(group)
    assert status == 2 and "ok       node mx1: its relay is alive" in out, out
    group.start("relay-mx2")
    all_alive(group)


def test_a_stop_is_a_warning(group):
    all_alive(group)
    group.end("relay-mx2")
    out = check(group)[1]
    assert re.search(r"(WARNING |CRITICAL) node mx2: (leaving: its relay was stopped|silent: no beat)", out), out
    group.start("relay-mx2")
    all_alive(group)


@pytest.mark.parametrize("since, finding", [(5, "WARNING "), (4000, "CRITICAL")])
def test_a_node_that_returns_is_a_warning_at_first_and_critical_when_it_does_not_end(group, since, finding):
    all_alive(group)
    group.end("relay-mx3")

    def told():
        as_mx3(group, f"state=returning since={since} run=r config=c done=0 hand=0 hears=")
        return re.search(rf"{finding} node mx3: returning", check(group)[1])
    eventually("it is named", told)
    group.start("relay-mx3")
    all_alive(group)


def test_two_relays_of_one_name_are_critical(group):
    all_alive(group)
    group.end("relay-mx3")

    def told():
        for incarnation, server in (("one", "mx1"), ("two", "mx2")):
            as_mx3(group, "state=alive since=9 run=r config=c done=0 hand=0 hears=", incarnation, (server,))
        return "CRITICAL node mx3: two relays beat by the name mx3" in check(group)[1]
    eventually("it is named", told)
    group.start("relay-mx3")
    all_alive(group)
