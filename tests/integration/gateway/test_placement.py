"""Where copies are: a site that is lost, with spread_over and without; which nodes are used."""
import contextlib
from pathlib import Path

import pytest
from support import sinks
from support.stack import Stack, lanes, oracle
from support.stack.shape import SinkShape
from support.waiting import eventually
from test_loss import Load, diverting

pytestmark = [pytest.mark.core, pytest.mark.long]

SITES = {"mx1": "fra", "mx2": "fra", "mx3": "ams", "mx4": "ams"}
QUICK = {
    "dead_after": "5s",
    "suspect_after": "1s",
    "beat": "100ms",
    "max_entry": "1MB",
    "store_deadline": "1s",
    "settle": "2s",
    "handover_wait": "5s",
    "alone_wait": "5s",
    "retry_first": "1s",
    "retry_most": "2s",
}


def two_sites(**settings):
    return Stack(
        postfix="divert",
        nodes=4,
        copies=2,
        takeover="automatic",
        redis_conf=["lane.settle-ms 2000"],
        labels={node: {"site": site} for node, site in SITES.items()},
        sinks=[SinkShape("a", ours=True)],
        settings={**QUICK, **settings},
    )


def held(system):
    """Owners, as the lanes' names say them, to the entries that wait under them."""
    found = {}
    for node, address in system.nodes.items():
        for entry in lanes.entries(node, address):
            pair = tuple(entry.lane.rpartition("|")[2].split(">"))
            found.setdefault(pair, set()).add(entry.id)
    return found


def owners(system):
    return set(held(system))


def lose_nodes(system, *nodes):
    for node in nodes:
        system.kill(f"relay-{node}")
        system.kill(f"redis-{node}")


def lose(system, site):
    lose_nodes(system, *(node for node in SITES if SITES[node] == site))


def lose_a_site_under_load(system):
    """The verdict on all that was promised, when fra was lost with mail on it."""
    sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
    load = Load(system, domains=["a.example"], recipients=(1, 1), rate=40)
    try:
        diverting(system, 60)
        before = owners(system)
        lose(system, "fra")
        load.flowing(20)
    finally:
        ledger = load.end()
    sinks.rules(system, "a")
    eventually("the others have delivered all that they hold", lambda: not under(system), 240)
    return before, ledger


def under(system):
    return [
        entry
        for node, address in system.nodes.items()
        if SITES[node] != "fra"
        for entry in lanes.entries(node, address)
    ]


@pytest.mark.test
def test_a_site_is_lost_and_no_mail_with_it():
    # By spread_least: with spread_over alone, mail that comes while one site is heard is in that one.
    with two_sites(spread_over="site", spread_least=2) as system:
        before, ledger = lose_a_site_under_load(system)
        assert before and all({SITES[node] for node in pair} == {"fra", "ams"} for pair in before)
        oracle.wait_delivered(system, ledger).check()


def test_without_spread_over_the_same_loss_loses_mail():
    with two_sites() as system:
        before, ledger = lose_a_site_under_load(system)
        assert ("mx1", "mx2") in before
        assert oracle.judge(system, ledger).lost


def test_too_few_sites_leave_mail_in_postfixs_queue():
    with two_sites(spread_over="site", spread_least=2) as system:
        load = Load(system, domains=["a.example"], recipients=(1, 1), rate=20)
        try:
            diverting(system, 10)
            lose(system, "fra")
            eventually(
                "the milter says why",
                lambda: "in 1 sites, spread_least = 2" in Path(system["milter"].log).read_text()
                or not sinks.metrics(system, "milter")["store_able"],
            )
            load.flowing(20)
        finally:
            ledger = load.end()
        oracle.wait_delivered(system, ledger).check()


def placed(system, load):
    """The owners of the next mails."""
    before = held(system)
    load.flowing(20)
    return {pair for pair, ids in held(system).items() if ids - before.get(pair, set())}


def test_the_nearest_nodes_are_used_and_others_when_distances_change():
    with Stack(
        postfix="divert",
        nodes=3,
        copies=2,
        takeover="automatic",
        paths=True,
        redis_conf=["lane.settle-ms 2000"],
        sinks=[SinkShape("a", ours=True)],
        settings={**QUICK, "prefer": "near", "path_timeout": "800ms"},
    ) as system:
        sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
        system.link("delay", "mx2-active", "mx2-standby", ms=40)
        load = Load(system, domains=["a.example"], recipients=(1, 1), rate=20)
        try:
            diverting(system, 10)
            eventually("mx3 is nearer", lambda: placed(system, load) == {("mx1", "mx3")})
            system.link("delay", "mx3-active", "mx3-standby", ms=90)
            eventually("mx2 is nearer", lambda: placed(system, load) == {("mx1", "mx2")})
        finally:
            ledger = load.end()
        sinks.rules(system, "a")
        oracle.wait_delivered(system, ledger).check()


def test_the_others_are_asked_in_a_circle_behind_the_own_node():
    with Stack(postfix="divert", nodes=3, copies=2, sinks=[SinkShape("a", ours=True)], settings=QUICK) as system:
        sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
        load = Load(system, domains=["a.example"], recipients=(1, 1), rate=20)
        try:
            for pair in (("mx1", "mx2"), ("mx2", "mx3"), ("mx3", "mx1")):
                system["milter"].argv[-1] = pair[0]
                system.restart("milter")
                eventually(f"{pair} are used", lambda pair=pair: placed(system, load) == {pair})
        finally:
            ledger = load.end()
        sinks.rules(system, "a")
        oracle.wait_delivered(system, ledger).check()


def test_a_node_whose_connections_are_behind_comes_after_others():
    """24 MB at 100 kB a second: most waits in the milter, and small mails go to mx3 meanwhile."""
    with Stack(
        postfix="divert",
        nodes=3,
        copies=2,
        takeover="automatic",
        paths=True,
        redis_conf=["lane.settle-ms 2000"],
        sinks=[SinkShape("a", ours=True)],
        # half of milter_memory may wait for one node's connections
        settings={**QUICK, "max_entry": "4500kB", "milter_memory": "64MB", "path_timeout": "800ms"},
    ) as system:
        sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
        small = Load(system, domains=["a.example"], recipients=(1, 1), rate=20)
        large = None
        try:
            diverting(system, 10)
            eventually("mx2 is next", lambda: placed(system, small) == {("mx1", "mx2")}, 120)
            system.link("rate", "mx2-active", "mx2-standby", bytes=100000)
            eventually("mx2 is used again", lambda: placed(system, small) == {("mx1", "mx2")}, 120)
            large = Load(
                system,
                domains=["a.example"],
                recipients=(1, 1),
                size=(4000000, 4000000),
                sessions=6,
                mails=6,
                per_session=1,
                rate=None,
            )
            eventually("mx3 is used", lambda: placed(system, small) == {("mx1", "mx3")}, 120)
            system.link("rate", "mx2-active", "mx2-standby", bytes=0)
            eventually("it has caught up", lambda: placed(system, small) == {("mx1", "mx2")}, 120)
        finally:
            ledger = small.end()
            if large:
                ledger.pairs.update(large.end().pairs)
        sinks.rules(system, "a")
        oracle.wait_delivered(system, ledger).check()


def deliveries(system):
    """By the relays' logs: how often each has delivered."""
    return {node: Path(system[f"relay-{node}"].log).read_text().count("status=sent") for node in system.nodes}


def delivered_by(system, before):
    return {node for node, n in deliveries(system).items() if n > before[node]}


@contextlib.contextmanager
def near_ams(**nodes):
    """Three copies of each mail for a next hop in ams: the system and its load. The choice of nodes is as without: mx2 is the next one. Its turn comes last."""
    with Stack(
        postfix="divert",
        nodes=len(nodes),
        copies=3,
        takeover="automatic",
        redis_conf=["lane.settle-ms 2000"],
        labels={node: {"site": site} for node, site in nodes.items()},
        sinks=[SinkShape("a", ours=True)],
        settings={**QUICK, "destinations": {"*": {"site": "ams"}}},
    ) as system:
        load = Load(system, domains=["a.example"], recipients=(1, 1), rate=20)
        nearer = {("mx1", "mx3", "mx2")}
        try:
            # Which nodes are used while they start is another matter: those mails are delivered before.
            diverting(system, 10)
            sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
            eventually("all nodes are used as they are to be", lambda: placed(system, load) == nearer)
            sinks.rules(system, "a")
            eventually("nothing waits elsewhere", lambda: owners(system) <= nearer)
            sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
            assert placed(system, load) == nearer
            yield system, load
        finally:
            ledger = load.end()
        oracle.wait_delivered(system, ledger).check()


def test_who_is_nearer_to_the_next_hop_takes_over_first():
    with near_ams(mx1="fra", mx2="fra", mx3="ams", mx4="ams") as (system, load):
        ledger = load.end()
        before = deliveries(system)
        lose_nodes(system, "mx1")
        sinks.rules(system, "a")
        oracle.wait_delivered(system, ledger).check()
        assert delivered_by(system, before) == {"mx3"}


def test_the_last_of_three_owners_delivers_all_when_the_nearer_one_was_lost_first():
    """The nearer node dies, then the origin: the last one in the lanes' names has all. Both return with what they held."""
    with near_ams(mx1="fra", mx2="fra", mx3="ams") as (system, load):
        lose_nodes(system, "mx3", "mx1")
        before = deliveries(system)
        sinks.rules(system, "a")
        eventually("mx2 has delivered all", lambda: not list(lanes.entries("mx2", system.nodes["mx2"])), 120)
        assert delivered_by(system, before) == {"mx2"}
        for node in ("mx3", "mx1"):
            system.start(f"redis-{node}")
            system.start(f"relay-{node}")
        sinks.rules(system, "a", {"at": "mail", "reply": "450 4.3.2 not now"})
        eventually("all three are used again", lambda: placed(system, load) == {("mx1", "mx3", "mx2")}, 120)
        sinks.rules(system, "a")
