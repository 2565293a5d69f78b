"""metrics_listen of the replicator: peers, their lag, and what waits for them."""

import pytest
from support.waiting import eventually
from support.stack.scrape import Page, promtool
from test_replicator import world  # noqa: F401

pytestmark = pytest.mark.test


@pytest.fixture
def page():
    fresh = Page("replicator")
    yield fresh
    fresh.close()


def test_a_peer_that_stops_and_comes_back(world, page):  # noqa: F811
    w = world(2)
    w[0].stop()
    w[0].start(metrics_listen=f'"{page.listen}"')
    eventually("it is ready", lambda: (page.ask("/readyz") or [0])[0] == 200)
    w[0].site.state_bytes.update(u=5000, v=7000)
    w[1].change("v", "there")
    w[0].change("u", "here")
    w.converge(["u", "v"])
    peer = f'peer="{w[1].name}"'
    eventually(
        "it is confirmed", lambda: page.values()[f"replica_unconfirmed_changes{{{peer}}}"] == 0
    )
    eventually("it is applied", lambda: page.values().get(f"replica_apply_seconds_count{{{peer}}}"))
    seen = page.values()
    assert seen[f"replica_lag_seconds{{{peer}}}"] == 0 and seen[f"replica_up{{{peer}}}"] == 1
    assert seen[f"replica_confirm_seconds_count{{{peer}}}"] >= 1
    assert seen["replicator_state_bytes"] > 0
    assert seen["replicator_users_state_bytes"] == 12000
    assert seen["replicator_largest_state_bytes"] == 7000
    w[1].stop()
    for n in range(5):
        w[0].change("u", f"later {n}")
    eventually("a lag", lambda: page.values()[f"replica_lag_seconds{{{peer}}}"] > 0)
    eventually("all", lambda: page.values()[f"replica_unconfirmed_changes{{{peer}}}"] == 5)
    assert page.values()[f"replica_unconfirmed_users{{{peer}}}"] == 1
    eventually("in its lane", lambda: page.values().get(f"replica_lane_entries{{{peer}}}", 0) > 0)
    assert promtool(page.text()) == ""
    w[1].start()
    w.converge(["u"])
    eventually("no lag", lambda: page.values()[f"replica_lag_seconds{{{peer}}}"] == 0)
    w[1].redis.stop()
    eventually("its node is away", lambda: page.values()[f"replica_up{{{peer}}}"] == 0)
    assert page.ask("/readyz")[0] == 200
    w[0].redis.stop()
    eventually("the own one", lambda: page.ask("/readyz")[0] == 503)
    assert page.ask("/healthz")[0] == 200
