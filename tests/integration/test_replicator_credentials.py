"""dovelane-replicator and its workers: a worker can open users of one user id only, and another one is asked for the others."""
import pytest

from lane_server import wait_for
from replicator_world import World, users

pytestmark = pytest.mark.core
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
    """The scripted worker ends at ELSEWHERE, and is an error of the test where main asks one for the list that opened somebody."""
    w = world(IDS, replicator_workers=workers)
    for turn in range(4):
        for n, name in enumerate(users(N)):
            w[(n + turn) % 2].change(name, f"{name} {turn}")
    w.quiet(users(N))
    for replica in w.replicas:
        assert replica.metric("replicator_failures") == replica.metric("replicator_workers_lost") == 0
        # As soon as main knows that there are several ids it asks no process that is a user's already.
        assert len(replica.site.sent_elsewhere) <= int(workers)


def test_users_of_one_id_share_the_workers(world):
    w = world(1, replicator_workers="3")
    for turn in range(4):
        for name in users(N):
            w[turn % 2].change(name, f"{name} {turn}")
    w.quiet(users(N))
    for replica in w.replicas:
        assert replica.site.sent_elsewhere == []
        assert len(replica.site.connections) <= 4  # one of them was root still when the users were listed


def test_a_user_whose_id_changes_is_opened_by_another_worker(world):
    w = world(1)
    w[0].change(users(1)[0], "before")
    w.quiet(users(1))
    for replica in w.replicas:
        replica.site.credentials[users(1)[0]] = 9
    w[0].change(users(1)[0], "after")
    w.quiet(users(1))
    wait_for(lambda: w[0].metric("replicator_failures") == 0, what="no failure")


def test_elsewhere_out_of_place_is_a_failure_like_others(world):
    """A worker that has opened nobody cannot need another process: main must not ask for ever."""
    w = world(1)
    (name,) = users(1)
    with w[0].site.lock:
        w[0].site.always_elsewhere = 2
    w[0].change("somebody@example.net", "x")
    w[0].change(name, "x")
    wait_for(lambda: w[0].site.always_elsewhere == 0, what="two such answers")
    w.converge([name, "somebody@example.net"])
