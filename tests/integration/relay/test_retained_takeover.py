"""Retained mail with takeover = automatic: who serves it is killed, another one asks, and it comes back."""
import pytest

from support.relay_world import BODY
from support.site_world import SiteWorld
from support.stack import resp
from support.stack.delivery_id import guid
from support.waiting import eventually

pytestmark = pytest.mark.test

BEATS = {"dead_after": "5s", "suspect_after": "1s", "beat": "100ms", "settle": "2s", "handover_wait": "5s", "alone_wait": "5s", "compare_every": "2s",
         "retry_most": "1s"}


@pytest.fixture
def world(stack, tmp_path):
    w = SiteWorld(stack, tmp_path, shape={"takeover": "automatic", "redis_conf": ["lane.settle-ms 2000"]}, **BEATS)
    yield w
    w.end()


def asked_by(site, node):
    before = len(site.questions)
    return eventually(f"{node} asks", lambda: any(each.node == node for each in site.questions[before:]))


@pytest.mark.parametrize("what", ["relay", "node"])
def test_who_takes_over_asks_and_who_returns_asks_again(world, what):
    w = world
    a, b = w.sites
    a.word = lambda question: None
    names = [w.put(f"u{i}@example.net") for i in range(20)]
    eventually("all are delivered", lambda: len(a.peer.mails) == 20)
    asked_by(a, "mx1")
    victims = ["relay-mx1"] if what == "relay" else ["relay-mx1", "mx1"]
    for victim in victims:
        w.stack.kill(victim)
    asked_by(a, "mx2")
    eventually("all are asked for", lambda: len({q.guid for q in a.questions if q.node == "mx2"}) == 20)
    for victim in reversed(victims):
        w.stack.start(victim)
    if what == "node":
        w.connections["mx1"].close()
        w.connections["mx1"] = resp.Connection(w.stack.nodes["mx1"], timeout=30)
    asked_by(a, "mx1")
    eventually("all are asked for", lambda: len({q.guid for q in a.questions if q.node == "mx1"}) == 20)
    assert len(a.peer.mails) == 20 and not b.peer.mails, "nothing is delivered twice"
    a.ship()
    a.word = a.by_rule
    w.empty()
    assert a.disk == {guid(name.hex(), BODY, f"u{i}@example.net") for i, name in enumerate(names)}
    assert len(a.peer.mails) == 20
