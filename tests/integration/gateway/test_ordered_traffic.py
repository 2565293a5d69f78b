"""Under load, ordered destinations beside others: whatever happens to nodes and relays, first copies come in the order of the 250s, but for those that a log calls out of
order; and nothing is lost (docs/takeover/order.md, "Order")."""
import re

import pytest

from faults import QUICK_DEATH, SETTINGS, VICTIM, Case, entries, healthy, kill
from support.stack import hosts, oracle
from support.stack.hosts import HostedStack
from support.stack.shape import SinkShape
from support.waiting import eventually
from test_loss import Load, diverting, unexplained

pytestmark = pytest.mark.skipif(bool(hosts.refused()), reason=hosts.refused() or "")

ORDERED = ["a", "b"]


def stand_still(case):
    case.freeze_relay()
    case.system.stop(f"redis-{VICTIM}")
    case.wait_dead()
    case.system.cont(VICTIM)


FAULTS = {"relay": kill("relay", True), "node": kill("node", True), "redis": kill("redis", True), "stop": stand_still}


def system_of(**settings):
    sinks = [SinkShape(name, ours=True) for name in "abc"] + [SinkShape("plain", ours=True)]
    return HostedStack(postfix="divert", sinks=sinks, divert=["a", "b", "c"], policy="queue", nodes=3, redis_conf=["protected-mode no"],
                       settings={**SETTINGS, **QUICK_DEATH, "destinations": {name: {"placement": "ordered"} for name in ORDERED}, **settings})


def check(system, ledger, least):
    """least: so many mails must have gone through ordered lanes, or it proves nothing."""
    verdict = oracle.wait_delivered(system, ledger, seconds=300)
    looked, found = oracle.overtaken(system, ledger, [f"{name}.example" for name in ORDERED])
    print(f"\n{verdict.summary()}, in order {looked}")
    assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
    assert not unexplained(verdict, system), verdict.report()
    assert not found, f"{len(found)} of {looked}: " + "\n".join(str(each) for each in found[:5])
    assert looked >= least
    for node in system.nodes:
        eventually(f"{node} is empty", lambda node=node: not entries(system, node), 60)


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=pytest.mark.long if fault == "node" else pytest.mark.exhaustive) for fault in FAULTS])
def test_order_is_kept(fault):
    with system_of() as system:
        healthy(system)
        for name in "abc":
            system.rules(name, {"at": "dot", "delay": 0.03})
        load = Load(system, rate=50)
        case = Case(system, load)
        try:
            load.flowing()
            diverting(system)
            FAULTS[fault](case)
            load.flowing()
            diverting(system)
            healthy(system)
            diverting(system)
        finally:
            ledger = load.end()
        check(system, ledger, 40)
        if fault != "relay":
            assert len(set(re.findall(r"generation (mx1\.\d+)", case.log("milter")))) >= 2, "the owners did not change"


@pytest.mark.exhaustive
def test_mails_that_are_deferred_step_aside_and_the_rest_is_in_order():
    with system_of(head_hold="1s") as system:
        healthy(system)
        system.rules("a", {"at": "rcpt", "reply": "450 4.2.0 not this time", "chance": 0.1})
        load = Load(system, rate=50)
        try:
            diverting(system, 200)  # two of three are ordered; what comes before the milter has heard the nodes is in no lane
        finally:
            ledger = load.end()
        system.rules("a")
        check(system, ledger, 60)
        assert "status=deferred" in "".join(Case(system, load).log(f"relay-{node}") for node in system.nodes)
