"""Producers and consumers at three servers, of which one is killed with -9 in the midst of it.

Held to: each entry that was promised is taken; what was acked comes again from no node that lives;
no push fails, since two nodes are left.
"""
import asyncio
import itertools
import threading

import pytest
from dovelane_lanes import Entry
from support.waiting import eventually

pytestmark = pytest.mark.check
PRODUCERS, CONSUMERS, ROUNDS, BATCH = 2, 3, 100, 10
TOTAL = PRODUCERS * ROUNDS * BATCH
KILL_AT = TOTAL // 3
# So short that copies come due all the time, and have to be put off.
OPTIONS = {"copies": 2, "takeover": 0.05, "poll": 0.05, "retry_after": 0.05}
VICTIMS = pytest.mark.parametrize("victim, returns", [("a", False), ("a", True), ("b", False)])


class Record:
    """What programs were told, with one number for each event: what came before what."""

    def __init__(self):
        self.clock, self.lock = itertools.count(1), threading.Lock()
        self.promised, self.acked, self.given, self.faults = set(), {}, [], []

    def now(self):
        with self.lock:
            return next(self.clock)

    def took(self, since, jobs):
        """`since`: when that take began."""
        for job in jobs:
            self.given.append(job)
            if self.acked.get(job.id, since) < since:
                self.faults.append(f"{job} came again; it was acked at {self.acked[job.id]},"
                                   f" this take began at {since}")

    def acks(self, jobs):
        self.acked.update((job.id, self.now()) for job in jobs)

    def all_done(self):
        return len(self.promised) == TOTAL and self.promised <= self.acked.keys()

    def judge(self, nodes, victim):
        assert not self.faults, "\n".join(self.faults[:5])
        assert len(self.promised) == TOTAL
        missing = self.promised - {job.id for job in self.given}
        assert not missing, f"{len(missing)} of {TOTAL} were promised and never taken"
        assert self.promised == self.acked.keys()
        assert self.killed, "it died when all was pushed"
        assert victim != "a" or "b" in {job.node for job in self.given}, "b took over"
        for name, bodies in nodes.held().items():
            assert bodies == [], f"{len(bodies)} are left on node {name}"


def fall(nodes, record, victim, returns):
    """Kills the victim when a third was acked, and tells that it did."""
    eventually("a third that is acked", lambda: len(record.acked) >= KILL_AT, pause=0.005)
    nodes[victim].kill()
    record.killed = len(record.promised) < TOTAL
    if returns:
        eventually("half of it", lambda: len(record.acked) >= TOTAL // 2)
        nodes[victim].start()


def entries(producer, number):
    return [Entry(f"{producer} {number} {n}".encode()) for n in range(BATCH)]


def guarded(record, work, *words):
    try:
        work(*words)
    except Exception as error:  # the test says it; a thread's own end would not
        record.faults.append(f"{work.__name__}: {error!r}")


def produce(nodes, record, producer):
    with nodes.client(**OPTIONS) as lanes:
        for number in range(ROUNDS):
            ids = lanes.push_many("q", entries(producer, number))
            record.promised.update(ids)
            # Not far ahead of consumers: so the victim dies in the midst of pushes, too.
            eventually("room", lambda: record.faults or
                       len(record.promised) - len(record.acked) < TOTAL // 4, pause=0.005)


def consume(nodes, record):
    with nodes.client(**OPTIONS) as lanes, lanes.consumer("q") as consumer:
        while not (record.all_done() or record.faults):
            since = record.now()
            jobs = consumer.take(20, wait=0.1)
            record.took(since, jobs)
            consumer.ack(*jobs)
            record.acks(jobs)


@VICTIMS
def test_threads_lose_nothing(products, nodes, victim, returns):
    record = Record()
    threads = [threading.Thread(target=guarded, args=(record, produce, nodes, record, n))
               for n in range(PRODUCERS)]
    threads += [threading.Thread(target=guarded, args=(record, consume, nodes, record))
                for _ in range(CONSUMERS)]
    for thread in threads:
        thread.start()
    try:
        fall(nodes, record, victim, returns)
    finally:
        for thread in threads:
            thread.join(120)
    record.judge(nodes, victim)


async def produce_async(lanes, record, producer):
    for number in range(ROUNDS):
        record.promised.update(await lanes.push_many("q", entries(producer, number)))
        while not record.faults and len(record.promised) - len(record.acked) >= TOTAL // 4:
            await asyncio.sleep(0.005)


async def consume_async(lanes, record):
    async with lanes.consumer("q") as consumer:
        while not (record.all_done() or record.faults):
            since = record.now()
            jobs = await consumer.take(20, wait=0.1)
            record.took(since, jobs)
            await consumer.ack(*jobs)
            record.acks(jobs)


@VICTIMS
def test_tasks_lose_nothing(products, nodes, victim, returns):
    """One client for all producers, and another for all consumers."""
    record = Record()

    async def work():
        async with nodes.async_client(**OPTIONS) as here, nodes.async_client(**OPTIONS) as there:
            await asyncio.gather(
                *(produce_async(here, record, n) for n in range(PRODUCERS)),
                *(consume_async(there, record) for _ in range(CONSUMERS)),
                asyncio.to_thread(fall, nodes, record, victim, returns))
    asyncio.run(asyncio.wait_for(work(), 120))
    record.judge(nodes, victim)
