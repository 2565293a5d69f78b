"""dovelane-replicator and its workers: a worker can open users of one user id only, and another one is asked for the others."""
import pytest

from support.lane_server import wait_for
from support.replicator_world import World, users

pytestmark = [pytest.mark.core, pytest.mark.long]
N, IDS = 12, 5  # users, user ids


@pytest.fixture
def world(request):
    started = []

    def start(ids, **settings):
        w = World(2, **settings)
        started.append(w)
        for replica in w.replicas:
            replica.site.credentials = {name: 1 + n % ids for n, name in enumerate(users(N))}
            replica.site.listed = users(N)
        return w.up()

    yield start
    for w in started:
        w.end(getattr(request.node, "call_failed", False))


@pytest.mark.parametrize("workers", ["1", "3"])
def test_users_of_several_ids_take_turns(world, workers):
    """The scripted worker takes it for an error of the test if main asks one that has opened somebody to open a user of another id, to look one up,
    or to list them."""
    w = world(IDS, replicator_workers=workers)
    for turn in range(4):
        for n, name in enumerate(users(N)):
            w[(n + turn) % 2].change(name, f"{name} {turn}")
    w.quiet(users(N))
    for replica in w.replicas:
        assert replica.metric("replicator_failures") == replica.metric("replicator_workers_lost") == 0
        assert replica.site.sent_elsewhere == []
        assert sorted(replica.site.lookups) == sorted(users(N)), "once each"


def test_users_of_one_id_share_the_workers(world):
    w = world(1, replicator_workers="3")
    for turn in range(4):
        for name in users(N):
            w[turn % 2].change(name, f"{name} {turn}")
    w.quiet(users(N))
    for replica in w.replicas:
        assert replica.site.sent_elsewhere == []
        assert len(replica.site.connections) <= 4  # one of them looks up and lists


def test_a_user_whose_id_changes_is_opened_by_another_worker(world):
    w = world(1)
    w[0].change(users(1)[0], "before")
    w.quiet(users(1))
    for replica in w.replicas:
        replica.site.credentials[users(1)[0]] = 9
    w[0].change(users(1)[0], "after")
    w.quiet(users(1))
    wait_for(lambda: w[0].metric("replicator_failures") == 0, what="no failure")


def test_a_user_who_is_always_elsewhere_holds_nobody_up(world):
    """Each time he is looked up anew, and another process begins; from the second time on he waits longer each time."""
    w = world(1)
    (name,) = users(1)
    with w[0].site.lock:
        w[0].site.always_elsewhere = 3
    w[0].change("somebody@example.net", "x")
    w[0].change(name, "x")
    wait_for(lambda: w[0].site.always_elsewhere == 0, what="such answers")
    w.converge([name, "somebody@example.net"])


def test_who_hangs_when_he_is_looked_up_holds_up_only_lookups(world):
    w = world(1, worker_timeout="1s")
    known, unknown = users(1)[0], "new@example.net"
    w[0].change(known, "x")
    w.quiet([known])
    w[0].site.slow_lookups = 3600.
    w[0].change(unknown, "x")
    wait_for(lambda: unknown in w[0].site.lookups, what="a lookup")
    w[0].change(known, "y")
    w.converge([known])
    w[0].site.slow_lookups = 0
    w.quiet([known, unknown])


def test_a_user_of_whom_nothing_is_wanted_is_closed_after_worker_idle(world):
    w = world(1, worker_idle="200ms", worker_timeout="10min", hello_every="1h", resend_after="1h", resend_most="1h")
    (name,) = users(1)
    w[0].change(name, "x")
    w.converge([name])
    wait_for(lambda: name in w[0].site.closed and name not in w[0].site.open_users, what="its close")
