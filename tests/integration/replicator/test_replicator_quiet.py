"""A group in which nothing happens does nothing, however many users have changed before."""
import time

import pytest
from support.lane_server import wait_for
from test_replicator import world  # noqa: F401

pytestmark = pytest.mark.long

SETTINGS = {"hello_every": "100ms", "sweep_active": "100ms", "active_for": "3s"}


def commands(replica):
    """What was asked of its Redis about lanes, but for the READY that waits there for more."""
    stats = replica.redis.client()("INFO", "commandstats").decode()
    lines = [line for line in stats.splitlines() if line.lower().startswith("cmdstat_lane.") and ".ready:" not in line.lower()]
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines)


def done(w, names):
    """All that goes on: what is asked of workers and of Redis."""
    return [(sum(s.looks + s.sweeps for s in map(r.site.state, names)), r.metric("replicator_sent"), commands(r)) for r in w.replicas]


def test_two_sites_do_not_keep_each_other_awake_by_hellos(world):  # noqa: F811
    w = world(2, **SETTINGS)
    names = [f"u{n}" for n in range(30)]
    for name in names:
        w[0].change(name, "x")
    w.converge(names)
    seen = [None]

    def still():
        before, seen[0] = seen[0], done(w, names)
        time.sleep(2)
        return before == seen[0]
    wait_for(still, 120, "two seconds in which nothing is done")
    for r in w.replicas:
        assert r.metric("replicator_waiting") == 0
    w[1].change("u5", "another")    # and it is not deaf
    w.converge(names)


def test_who_is_quiet_is_looked_at_the_more_seldom(world):  # noqa: F811
    w = world(2, **SETTINGS | {"active_for": "1h"})
    begun = time.monotonic()
    w[0].change("u", "x")
    w.converge(["u"])
    state = w[0].site.state("u")
    wait_for(lambda: state.sweeps == 6, 60, "the sixth sweep")
    assert time.monotonic() - begun > 3     # 0.1, 0.2, 0.4 ... after the change; before: 0.6
    looks = state.sweeps
    w[0].change("u", "y")
    wait_for(lambda: state.sweeps >= looks + 3, 60, "a change: sweeps come soon again")
    assert time.monotonic() - begun < 60


def test_who_is_not_active_any_more_is_not_looked_at(world):  # noqa: F811
    """The next sweep or hello would come after the time in which one counts as active."""
    w = world(2, sweep_active="100ms", active_for="4s")
    begun = time.monotonic()
    w[0].change("u", "x")
    w.converge(["u"])
    state = w[0].site.state("u")
    time.sleep(8)
    # 0.1, 0.2, 0.4 ... 3.2 s after each change; 6.4 is beyond. The batch's confirmation is none.
    assert state.sweeps <= 6, time.monotonic() - begun


def test_the_length_of_an_empty_lane_is_not_asked_for_again_and_again(world):  # noqa: F811
    w = world(2, hello_every="1h", sweep_active="1h")
    w[0].change("u", "x")
    w.converge(["u"])
    wait_for(lambda: (commands(w[0]), time.sleep(3)) == (commands(w[0]), None), 60, "three seconds without a command")
    # A peer that takes nothing is noticed all the same: what is pushed is asked after.
    w[1].process.kill()
    w[1].process.wait()
    w[0].change("u", "y")
    wait_for(lambda: w[0].admin("lag")[0][1][3] == "1", what="one change that waits")
    before = commands(w[0])
    wait_for(lambda: commands(w[0]) >= before + 4, 60, "further questions")
    w[1].start()
    w.converge(["u"])
