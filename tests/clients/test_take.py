"""Who gives an entry, what an ack removes, and what becomes of entries when something ends."""
import asyncio
import re
import signal

import pytest
from clients.conftest import taken
from dovelane_lanes import Entry, LeaseLost, NoNode, new_id
from support.waiting import eventually

pytestmark = pytest.mark.check
NOTHING = {"a": [], "b": [], "c": []}


def bodies(jobs):
    return [job.body.decode() for job in jobs]


def push(lanes, *texts, lane="q"):
    return lanes.push_many(lane, [Entry(text.encode()) for text in texts])


def test_in_order_from_the_first_node_and_gone_from_all(nodes):
    with nodes.client(copies=3) as lanes, lanes.consumer("q") as consumer:
        ids = push(lanes, *"123")
        jobs = consumer.take(2)
        assert bodies(jobs) == ["1", "2"] and [job.id for job in jobs] == ids[:2]
        assert {(j.node, j.why, j.attempts) for j in jobs} == {("a", "first", 0)}
        assert not jobs[0].redelivered
        consumer.ack(*jobs)
        assert nodes.held() == dict.fromkeys("abc", ["3"])
        consumer.ack(*consumer.take(9))
        assert nodes.held() == NOTHING and consumer.take(9) == []


def test_a_waiting_consumer_gets_what_comes(nodes):
    async def both():
        async with nodes.async_client(poll=30) as lanes, lanes.consumer("q") as consumer:
            waiting = asyncio.create_task(consumer.take(1, wait=60))
            a = nodes["a"].client()
            await asyncio.to_thread(eventually, "a blocked TAKE", lambda: b"blocked_clients:1" in
                                    a("INFO", "clients"))
            await lanes.push("q", b"one")
            assert bodies(await waiting) == ["one"]
    asyncio.run(asyncio.wait_for(both(), 60))


def test_the_next_node_gives_what_a_dead_one_had(nodes):
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        ids = push(lanes, *"123")
        consumer.ack(*consumer.take(1))
        nodes["a"].kill()
        jobs = taken(consumer)
        while len(jobs) < 2:
            jobs += taken(consumer)
        assert [job.id for job in jobs] == ids[1:]
        assert {(job.node, job.why) for job in jobs} == {("b", "takeover")}
        consumer.ack(*jobs)
        assert nodes.held() == {"b": [], "c": []}


def test_a_node_that_returns_empty_has_nothing_lost(nodes):
    """What it had lies elsewhere, and comes due there."""
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        ids = push(lanes, *"123")
        nodes["a"].kill()
        nodes["a"].start()
        ids += push(lanes, "4")
        got = {}
        while len(got) < 4:
            jobs = taken(consumer)
            got |= {job.id: job.body for job in jobs}
            consumer.ack(*jobs)
        assert set(got) == set(ids)
        assert nodes.held() == NOTHING


@pytest.mark.parametrize("state", ["waiting", "leased", "delayed"])
def test_a_copy_is_put_off_while_the_first_node_holds_the_entry(nodes, state):
    """The copy's time comes again and again; nobody is given it."""
    with nodes.client("a", "b", takeover=0.05) as lanes, lanes.consumer("q") as first, \
            lanes.consumer("q") as second:
        lanes.push("q", b"one")
        if state != "waiting":
            (job,) = first.take()
            if state == "delayed":
                first.release(job, delay=3600)
        b = nodes["b"].client()

        def put_off():
            """So often was it given back by b, without anything for the consumer."""
            look = second._taker._take_from(1, 9, 0)
            assert second._runner.run(look, second._takes) == []
            calls = re.search(rb"cmdstat_lane.nack:calls=(\d+)", b("INFO", "commandstats"), re.I)
            return calls and int(calls[1]) >= 3
        eventually("a copy that was put off three times", put_off)
        (entry,) = b.read("q")
        assert entry[3] == 0, "no attempt is counted"


def test_a_copy_that_is_acked_while_it_is_taken_is_not_given(nodes):
    """The plan is stopped between its TAKE and its question, and the other consumer acks there."""
    with nodes.client("a", "b", takeover=0.01) as lanes, lanes.consumer("q") as first, \
            lanes.consumer("q") as second:
        lanes.push("q", b"one")
        (job,) = first.take()
        runner, plan = second._runner, second._taker._take_from(1, 9, 0)
        b = nodes["b"].client()
        eventually("a copy that is due", lambda: b.info("q")["waiting"] == 1)
        answer = runner._ask(next(plan), second._takes)
        step = plan.send(answer)
        assert answer[0][0][0][2], "it has the copy"
        while step[0].commands[0][0] != "LANE.GET":
            step = plan.send(runner._ask(step, second._takes))
        first.ack(job)
        with pytest.raises(StopIteration) as end:
            while True:
                step = plan.send(runner._ask(step, second._takes))
        assert end.value.value == []


def test_an_ack_reaches_the_node_that_gave_the_entry_last(nodes):
    with nodes.client(copies=3) as lanes, lanes.consumer("q") as consumer:
        lanes.push("q", b"one")
        plan = consumer._taker.ack(consumer.take())
        first = next(plan)
        second = plan.send(consumer._runner._ask(first, ()))
        assert [ask.node for ask in first] == [1, 2] and [ask.node for ask in second] == [0]
        with pytest.raises(StopIteration):
            plan.send(consumer._runner._ask(second, ()))


def test_an_ack_that_a_node_misses_is_told_when_it_is_back(nodes):
    """The first ack finds that b stands still, and the second is not sent to it at all."""
    with nodes.client("a", "b", timeout=0.5, retry_after=0.5) as lanes, \
            lanes.consumer("q") as consumer:
        push(lanes, "1", "2")
        one, two = consumer.take(2)
        nodes["b"].process.send_signal(signal.SIGSTOP)
        consumer.ack(one)
        consumer.ack(two)
        nodes["b"].process.send_signal(signal.SIGCONT)

        def told():
            assert consumer.take(9) == []
            return nodes["b"].client()("LANE.LEN", "q") == 0
        eventually("an empty lane", told)


def test_what_is_released_comes_again_at_once_or_later(nodes):
    with nodes.client(takeover=3600) as lanes, lanes.consumer("q") as consumer:
        push(lanes, *"123")
        one, two, three = consumer.take(3)
        assert consumer.release(one) == 1 and consumer.release(two, failed=True) == 1
        assert consumer.release(three, delay=3600) == 1 and consumer.release(three) == 0
        again = consumer.take(9)
        assert [(job.body, job.attempts, job.why) for job in again] == [
            (b"1", 0, "first"), (b"2", 1, "retry")]


def test_an_entry_that_is_buried_comes_from_no_node(nodes):
    with nodes.client(copies=3, takeover=0.05) as lanes:
        lanes.create("q", dead="q:dead")
        with lanes.consumer("q", dead="q:dead") as consumer:
            push(lanes, "bad", "good")
            bad, good = consumer.take(2)
            assert consumer.bury(bad) == 1
            consumer.ack(good)
            assert nodes.held() == NOTHING and nodes.held("q:dead") == dict.fromkeys("abc", ["bad"])
        with lanes.consumer("q:dead") as consumer:
            (job,) = taken(consumer)
            lanes.push("q", job.body)  # kicked: anew, with an id of its own
            consumer.ack(job)
        assert nodes.held("q:dead") == NOTHING
        with lanes.consumer("q") as consumer, pytest.raises(ValueError, match="dead="):
            consumer.bury(*consumer.take())


def test_a_lane_that_lost_its_settings_drops_nothing_that_is_buried(nodes):
    """Its server was restarted without a file: it knows of no dead-letter lane."""
    with nodes.client("a", copies=1) as lanes, lanes.consumer("q", dead="q:dead") as consumer:
        push(lanes, "bad", "worse")
        assert consumer.bury(*consumer.take(2)) == 2
    assert nodes.held("q:dead")["a"] == ["bad", "worse"] and nodes.held() == NOTHING


def test_what_failed_too_often_is_not_tried_again_at_the_next_node(nodes):
    with nodes.client("a", "b", takeover=0.05) as lanes:
        lanes.create("q", dead="q:dead", maxattempts=2)
        with lanes.consumer("q", dead="q:dead") as consumer:
            push(lanes, "bad")
            for attempts in (0, 1):
                (job,) = taken(consumer)
                assert (job.attempts, job.node) == (attempts, "a")
                consumer.release(job, failed=True)

            def buried():
                assert consumer.take(9) == []
                return all(nodes.held("q:dead")[name] == ["bad"] for name in "ab")
            eventually("the copy in its dead-letter lane", buried)
        assert nodes.held() == NOTHING


def test_a_lease_is_extended_until_it_is_lost(nodes):
    with nodes.client("a", copies=1) as lanes:
        push(lanes, "1", "2")
        with lanes.consumer("q", lease=60) as consumer:
            one, two = consumer.take(2)
            consumer.extend(one, two, lease=3600)
            nodes["a"].client()("LANE.REVOKE", "q", one.id)
            consumer.release(one)
            with pytest.raises(LeaseLost, match="1 of 2 leases are over") as told:
                consumer.extend(one, two)
            assert told.value.lost == (one,)


def test_a_consumer_that_ends_gives_back(nodes):
    with nodes.client(takeover=3600) as lanes:
        push(lanes, "1")
        with lanes.consumer("q") as consumer:
            assert consumer.take()[0].attempts == 0
        with pytest.raises(RuntimeError), lanes.consumer("q") as consumer:
            assert consumer.take()[0].attempts == 0, "an end in order is no attempt"
            raise RuntimeError("the program's own fault")
        with lanes.consumer("q") as consumer:
            (job,) = consumer.take()
            assert job.attempts == 1 and job.redelivered
            consumer.ack(job)


def test_a_server_that_was_restarted_with_its_file_says_so(nodes):
    a = nodes["a"]
    a.client()("CONFIG", "SET", "appendonly", "yes")
    eventually("an append-only file", lambda: b"aof_rewrite_in_progress:0" in
               a.client()("INFO", "persistence"))
    a.options = ["--appendonly", "yes"]
    with nodes.client("a", copies=1) as lanes, lanes.consumer("q") as consumer:
        push(lanes, "1")
        assert consumer.take()[0].why == "first"
        a.client()("CONFIG", "SET", "appendfsync", "always")
        push(lanes, "2")
        a.kill()
        a.start()
        info = a.client().info
        eventually("some time since", lambda: info()["clock-ms"] > info()["loaded-ms"] + 200)
        push(lanes, "3")
        jobs = taken(consumer)
        assert [(job.body, job.why) for job in jobs] == [
            (b"1", "restart"), (b"2", "restart"), (b"3", "first")]


def test_entries_without_an_id_are_acked_where_they_lie(nodes):
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        for name in "ab":
            nodes[name].client()("LANE.PUT", "q", name)
        jobs = consumer.take(9)
        assert sorted(bodies(jobs)) == ["a", "b"]
        consumer.ack(*jobs)
    assert nodes.held() == NOTHING


def test_no_node_is_told_and_does_not_end_a_wait(nodes):
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        ids = push(lanes, "1")
        for server in nodes.values():
            server.kill()
        with pytest.raises(NoNode, match="node a: .*node b: .*node c: "):
            consumer.take(wait=0.5)
        for server in nodes.values():
            server.start()
        assert consumer.take(wait=2) == []
        lanes.push("q", b"1", id=ids[0])
        assert bodies(taken(consumer)) == ["1"]


def test_a_cancelled_take_loses_nothing(nodes):
    """Its TAKE goes on; the next take has what it got, and no attempt is counted."""
    async def work():
        async with nodes.async_client("a", copies=1, poll=60) as lanes, \
                lanes.consumer("q") as consumer:
            task = asyncio.create_task(consumer.take(wait=60))
            a = nodes["a"].client()
            await asyncio.to_thread(eventually, "a blocked TAKE", lambda: b"blocked_clients:1" in
                                    a("INFO", "clients"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await lanes.push("q", b"one")
            (job,) = await consumer.take()
            assert (job.body, job.attempts) == (b"one", 0)
            await consumer.ack(job)
            assert a("LANE.LEN", "q") == 0
    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_cancelled_take_does_not_hold_up_the_end(nodes):
    async def work():
        async with nodes.async_client() as lanes, lanes.consumer("q") as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.take(wait=3600), 0.2)
    asyncio.run(asyncio.wait_for(work(), 60))


def test_tasks_that_share_a_consumer_get_different_jobs(nodes):
    async def work():
        async with nodes.async_client(takeover=3600) as lanes, lanes.consumer("q") as consumer:
            await lanes.push_many("q", [Entry(text.encode()) for text in "123"])
            found = await asyncio.gather(*(consumer.take() for _ in range(3)))
            assert sorted(bodies(sum(found, []))) == ["1", "2", "3"]
    asyncio.run(asyncio.wait_for(work(), 60))


def test_the_async_client_does_all_of_it(nodes):
    async def work():
        async with nodes.async_client(copies=3) as lanes:
            await lanes.create("q", strict=True, dead="q:dead")
            uid = await lanes.push("q", b"1")
            await lanes.push_many("q", [Entry(b"2"), Entry(b"3"), Entry(b"4", new_id())])
            assert await lanes.lengths("q") == {"a": 4, "b": 4, "c": 4}
            async with lanes.consumer("q", dead="q:dead") as consumer:
                one, two, three = await consumer.take(3)
                assert one.id == uid
                await consumer.ack(one)
                await consumer.extend(two, three)
                assert await consumer.bury(two) == 1 and await consumer.release(three) == 1
                async for job in consumer.jobs(wait=0):
                    await consumer.ack(job)
            (told,) = await lanes.revoke("q", uid)
            assert told.state == "delivered"
            assert await lanes.lengths("q") == {"a": 0, "b": 0, "c": 0}
            assert await lanes.lengths("q:dead") == {"a": 1, "b": 1, "c": 1}
    asyncio.run(asyncio.wait_for(work(), 60))
