"""Redis that goes away, lanes that are full, memory that is short."""
import signal
import time

import pytest

from support.frames import NEW
from support.replicator_world import users
from support.waiting import eventually
from test_replicator import world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.mark.test
def test_flushall_in_mid_load_loses_nothing(world):
    w = world(3)
    names = users(20)
    for n in range(10):
        for name in names:
            w[n % 3].change(name, f"{n}")
        if n in (3, 7):
            w[n % 3].redis.client()("FLUSHALL")
    w.quiet(names)


@pytest.mark.test
def test_redis_killed_and_back_loses_nothing(world):
    w = world(2)
    names = users(20)
    for name in names:
        w[0].change(name, "before")
    w[0].redis.process.kill()
    w[0].redis.process.wait()
    for name in names:
        w[0].change(name, "while it is away")
    eventually("ingest without Redis", lambda: all(not w[0].site.state(n).mailbox for n in names))
    w[0].redis.start()
    w.quiet(names)


def test_a_full_lane_is_sent_later(world):
    w = world(2, up=False, replica_lane="8MB")
    w[0].start()
    names = users(20)
    for name in names:
        w[0].change(name, "x" * 1_000_000)
    eventually("a full lane", lambda: w[0].says("FULL"))
    w[1].start()
    w.quiet(names)


NEVER = {"resend_after": "1h", "resend_most": "1h", "hello_every": "1h", "exchange_after": "1h"}


def test_a_lane_that_was_full_and_has_room_is_filled_at_once(world):
    """Not after the waits for a full lane and for what is not confirmed."""
    w = world(2, up=False, replica_lane="8MB", **NEVER)
    w[0].start().sends()
    names = users(20)
    for name in names:
        w[0].change(name, "x" * 1_000_000)
    eventually("a full lane", lambda: w[0].says("FULL"))
    w[1].start()
    eventually("room in the lane", lambda: w[0].says("was full and has room again"))
    w.converge(names)
    assert w[1].site.twice == 0


def test_a_backlog_larger_than_the_lane_goes_on_where_it_was_full(world):
    """Nothing of it is sent twice, and little is made for nothing while the lane is full."""
    w = world(2, up=False, replica_lane="8MB", **NEVER)
    w[0].start().sends()
    w[0].site.batch_bytes, w[0].site.ship_bytes = 1_000_000, 2_000_000
    w[0].change("u", *[str(n) * 1_000_000 for n in range(10)], *[str(n) * 500_000 for n in range(10, 40)])
    eventually("a full lane", lambda: w[0].says("FULL"))
    w[0].change("u", "more")
    eventually("an ingest beside a full lane", lambda: not w[0].site.state("u").mailbox)
    w[1].start()
    w.converge(["u"])
    assert w[1].site.twice == 0
    room = w[0].log.read_text().count("has room again")
    assert room >= 1
    assert w[0].site.made <= 41 + 3 * (room + 6), room # 6: tries after 1, 2, 4... seconds before anybody takes


def test_little_is_under_way_when_a_lane_fills(world):
    """A node that answers late, as on a busy machine: what does not fit was made for nothing."""
    w = world(2, up=False, replica_lane="8MB", **NEVER)
    w[0].start().sends()
    w[0].site.batch_bytes, w[0].site.ship_bytes = 1_000_000, 2_000_000
    w[0].redis.process.send_signal(signal.SIGSTOP)
    w[0].change("u", *[str(n) * 500_000 for n in range(10, 50)])
    eventually("a parcel", lambda: w[0].site.made)
    time.sleep(2)
    w[0].redis.process.send_signal(signal.SIGCONT)
    assert w[0].site.made <= 6
    w[1].start()
    w.converge(["u"])
    assert w[1].site.twice == 0


def test_what_is_made_for_a_full_lane_while_nobody_takes_is_little(world):
    """A try now and then, of one user's next batches; not of all that each has."""
    w = world(2, up=False, replica_lane="8MB", **NEVER)
    w[0].start().sends()
    w[0].site.batch_bytes, w[0].site.ship_bytes = 1_000_000, 2_000_000
    names = users(10)
    for name in names:
        w[0].change(name, *[f"{name}{n}" + "x" * 900_000 for n in range(8)])
    eventually("a full lane and all ingested",
               lambda: w[0].says("FULL") and not any(w[0].site.state(n).mailbox for n in names))
    eventually("tries", lambda: w[0].log.read_text().count("ship new") > 4)
    assert w[0].site.made < 80
    w[1].start()
    w.converge(names)
    assert w[1].site.twice == 0


def test_a_worker_that_dies_while_a_full_lane_is_filled_has_it_done_again(world):
    w = world(2, up=False, replica_lane="8MB", **NEVER)
    w[0].start().sends()
    w[0].site.batch_bytes, w[0].site.ship_bytes = 1_000_000, 2_000_000
    w[0].change("u", *[str(n) * 500_000 for n in range(10, 40)])
    eventually("a full lane", lambda: w[0].says("FULL"))
    w[0].site.dying.append(NEW)
    w[1].start()
    w.converge(["u"])
    assert not w[0].site.dying


def test_memory_that_is_short_is_not_taken_for_a_full_lane(world):
    """The lanes are empty all the time: everybody would be sent again each second for as long as it lasts."""
    w = world(2)
    names = users(20)
    w[0].redis.client()("CONFIG", "SET", "maxmemory", "1mb")
    for name in names:
        w[0].change(name, "mail")
    eventually("a push that is refused", lambda: w[0].says("MEMORY"))
    time.sleep(3)
    assert not w[0].says("was full and has room")
    w[0].redis.client()("CONFIG", "SET", "maxmemory", "0")
    w.quiet(names)


def test_a_lane_that_memory_was_too_short_for_gets_its_bound_later(world):
    """Else the first PUSH makes it, and it grows without end while nobody takes."""
    w = world(2, up=False, replica_lane="8MB")
    node = w[0].redis.client()
    node("CONFIG", "SET", "maxmemory", "1")
    w[0].start()
    eventually("a lane that is refused", lambda: w[0].says("cannot be made"))
    assert node("LANE.LIST", 0)[1] == []
    node("CONFIG", "SET", "maxmemory", "0")
    w[1].start()
    w[0].change("u", "mail")
    w.quiet(["u"])
    assert [node.info(lane)["maxbytes"] for lane in node("LANE.LIST", 0)[1][::3]] == [8 << 20]
