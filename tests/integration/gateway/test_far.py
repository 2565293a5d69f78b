"""Nodes that are far away: times follow the round-trip time, so that nothing is left, suspected or
diverted for distance alone; what is cut or dead is found all the same (docs/placement.md)."""
import re
from pathlib import Path

import pytest
from support import sinks
from support.stack import Stack, oracle
from support.stack.scrape import Page
from support.stack.shape import SinkShape
from support.waiting import eventually
from test_links import Load, clients
from test_loss import diverting

pytestmark = [pytest.mark.core, pytest.mark.long]

FAR = ("mx2-active", "mx2-standby", "mx3-active", "mx3-standby")
PROGRAMS = ("milter", "relay-mx1", "relay-mx2", "relay-mx3")
LEFT = "the server answers at its other address|connected at its standby address"
SUSPECTED = r"is suspected|is dead|stood still"


@pytest.fixture
def page():
    fresh = Page("milter")
    yield fresh
    fresh.close()


def far_stack(page):
    return Stack(
        postfix="divert",
        nodes=3,
        copies=2,
        takeover="automatic",
        paths=True,
        sinks=[SinkShape("a", ours=True)],
        settings={"metrics_listen": page.listen},
    )


def logs(system):
    return {program: Path(system[program].log).read_text() for program in PROGRAMS}


def said_since(system, before, what):
    return [
        line
        for program, text in logs(system).items()
        for line in text[len(before[program]) :].splitlines()
        if re.search(what, line)
    ]


def on_active(system):
    return not any("standby" in name for node in system.nodes for name in clients(system, node))


def farthest(page):
    values = page.values()
    return min(values.get(f'node_rtt_seconds{{node="{node}"}}', 0) for node in ("mx2", "mx3"))


def move_away(system, page, rtt):
    """A new delay is for new connections: all are lost once, and come back on either path."""
    system.link("delay", *FAR, ms=rtt / 2)
    eventually("all are back on the active path", lambda: on_active(system), 120)
    eventually("the milter has measured it", lambda: farthest(page) >= rtt / 1000, 60)
    eventually("mail is diverted", lambda: page.values()["store_able"] == 1, 60)
    diverting(system)


def counted(system):
    """Mails to Postfix's queue, connections lost."""
    milter = sinks.metrics(system, "milter")
    return (
        milter["mails_queued_total"],
        milter["store_refused_total"],
        *(sinks.metrics(system, program)["node_losses_total"] for program in PROGRAMS),
    )


# A path is left when it gives no answer for path_timeout (0.4 s at least) and a quarter of that, and
# the other one has answered meanwhile: at 400 ms that cannot be, at 800 ms it was so.
@pytest.mark.parametrize("rtt", [400, 800], ids=lambda rtt: f"{rtt}ms")
def test_nothing_is_left_or_suspected_for_distance_alone(page, rtt):
    with far_stack(page) as system:
        load = Load(system, sessions=6, rate=20)
        try:
            move_away(system, page, rtt)
            before, counts = logs(system), counted(system)
            load.more(300)
            assert counted(system) == counts
            assert not said_since(system, before, f"{LEFT}|{SUSPECTED}")
            assert on_active(system)
        finally:
            ledger = load.end()
        oracle.wait_delivered(system, ledger).check()


def test_a_cut_path_is_left_and_a_dead_node_found_though_it_is_far(page):
    with far_stack(page) as system:
        load = Load(system, sessions=6, rate=20)
        try:
            move_away(system, page, 400)
            system.link("silence", "mx2-active")
            eventually(
                "the milter goes on over the standby path",
                lambda: "dovelane-store:standby" in clients(system, "mx2"),
                60,
            )
            load.more(20)
            before = logs(system)
            system.kill("relay-mx3")
            system.kill("redis-mx3")
            eventually(
                "mx3 is found dead",
                lambda: said_since(system, before, "node mx3 is dead"),
                120,
            )
            load.more(20)
        finally:
            ledger = load.end()
        oracle.wait_delivered(system, ledger).check()
