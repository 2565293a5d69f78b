"""Three nodes, a milter and a Prometheus that scrapes them."""

import smtplib

import pytest

from support.waiting import eventually
from support.stack import programs, resp
from support.stack.shape import SinkShape

NODES = ("mx1", "mx2", "mx3")


@pytest.fixture
def gateway(stack, pages, watched):  # noqa: F811
    """A factory: three nodes, a milter and Prometheus, with mail that was diverted.

    also: what else it scrapes, program and page of each."""

    def make(policy="queue", also=(), **settings):
        system = stack(
            postfix="divert",
            nodes=3,
            takeover="automatic",
            policy=policy,
            sinks=[SinkShape("a", ours=True)],
            divert=["a"],
            maps={"a.example": "a", "q.example": "smtp:[127.0.0.1]:9"},
            settings={
                "suspect_after": "1s",
                "dead_after": "8s",
                "retry_first": "1s",
                "retry_most": "1s",
                "alone_wait": "1s",
                **settings,
            },
        )
        targets = []
        for name in ("milter", *(f"relay-{node}" for node in NODES)):
            page = pages(name.split("-")[0])
            programs.write_settings(system[name], {"metrics_listen": page.listen})
            system.kill(name)
            system.start(name)
            targets.append((name, page))
        system.pages = dict(targets)
        eventually("mail is diverted", lambda: sent_to_lanes(system))
        system.prometheus = watched([*targets, *also])
        system.prometheus.calm()
        return system

    return make


def send(system, recipient="u@a.example", body="hello"):
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", [recipient], f"Subject: x\r\n\r\n{body}\r\n")


def sent_to_lanes(system):
    milter = system.pages["milter"].values
    if milter().get("store_able") != 1:
        return False
    send(system)
    return milter().get("mails_diverted_total", 0) > 0


def node(system, name):
    return resp.Connection(system.nodes[name], timeout=60)


def holders(system):
    """The nodes that hold mail, as their relays see it."""
    pages = {name: system.pages[f"relay-{name}"] for name in NODES}
    return [name for name, page in pages.items() if page.values().get("node_entries", 0) > 0]


def in_hand(system):
    """The node whose relay has mail in hand."""
    pages = {name: system.pages[f"relay-{name}"] for name in NODES}
    return next((n for n, page in pages.items() if page.values().get("relay_in_hand", 0) > 0), None)
