"""The client for asyncio. What it does is in pushing.py and taking.py; this runs it.

A plan that has begun goes on to its end when the task that waits for it is cancelled. So a
connection is never left in the middle of an answer, and what a cancelled take got is the next
take's.
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from . import pushing, wire
from .errors import LaneError
from .group import Answer, Ask, Group, Pause, Plan
from .links import AsyncLink
from .model import Entry, Job, Revoked, new_id
from .options import Options, check_lanes, check_take
from .taking import Taker

T = TypeVar("T")
Links = Sequence[AsyncLink]


class AsyncRunner:
    """Runs plans, each in a task of its own."""

    def __init__(self, options: Options, group: Group) -> None:
        self.options, self.group = options, group
        self.control = self.links(options.timeout, takes=False)
        self.tasks: set[asyncio.Task[Any]] = set()

    def links(self, timeout: float, takes: bool) -> Links:
        extra = dict(self.options.extra)
        return [AsyncLink(url, timeout, extra, takes, node.opened)
                for node, url in zip(self.group.nodes, self.options.nodes.values())]

    def start(self, plan: Plan[T], takes: Links = ()) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(self._run(plan, takes))
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left who asks; asyncio would complain

    async def run(self, plan: Plan[T], takes: Links = ()) -> T:
        return await asyncio.shield(self.start(plan, takes))

    async def _run(self, plan: Plan[T], takes: Links) -> T:
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = plan.send([])
                else:
                    step = plan.send(await self._ask(step, takes))
        except StopIteration as end:
            value: T = end.value
            return value

    async def _ask(self, asks: Sequence[Ask], takes: Links) -> list[Answer]:
        return list(await asyncio.gather(*(
            (takes if ask.takes else self.control)[ask.node].ask(ask.commands) for ask in asks)))

    async def close(self) -> None:
        while self.tasks:
            await asyncio.wait(set(self.tasks))
        for link in self.control:
            await link.close()


class AsyncLaneClient:
    """LaneClient for asyncio: the same methods, to be awaited. For one event loop."""

    def __init__(self, nodes: Mapping[str, str], *, copies: int = 2, takeover: float = 30.0,
                 timeout: float = 5.0, retry_after: float = 1.0, poll: float = 1.0,
                 **extra: Any) -> None:
        self.options = Options(nodes, copies, takeover, timeout, retry_after, poll, extra)
        self._group = self.options.group()
        self._runner = AsyncRunner(self.options, self._group)

    async def __aenter__(self) -> AsyncLaneClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its consumers first: they give back what they have."""
        await self._runner.close()

    async def push(self, lane: str, body: bytes, *, id: bytes | None = None, meta: bytes = b"",
                   delay: float = 0.0, expire: float | None = None) -> bytes:
        """As LaneClient.push. One that is cancelled may still store its entry: use the id again."""
        entry = Entry(body, new_id() if id is None else id, meta)
        return (await self.push_many(lane, [entry], delay=delay, expire=expire))[0]

    async def push_many(self, lane: str, entries: Iterable[Entry], *, delay: float = 0.0,
                        expire: float | None = None) -> list[bytes]:
        job = pushing.Push(self._group, lane, self.options.copies, delay, expire,
                           self.options.takeover)
        return await self._runner.run(pushing.push(job, list(entries)))

    async def revoke(self, lane: str, *ids: bytes) -> list[Revoked]:
        return await self._runner.run(pushing.revoke(self._group, lane, ids))

    async def create(self, lane: str, *, maxlen: int | None = None, maxbytes: int | None = None,
                     strict: bool | None = None, maxattempts: int | None = None,
                     dead: str | None = None) -> None:
        command = wire.create(lane, maxlen, maxbytes, strict, maxattempts, dead)
        await self._runner.run(pushing.create(self._group, command))

    async def lengths(self, lane: str) -> dict[str, int]:
        return await self._runner.run(pushing.ask_all(self._group, ("LANE.LEN", lane)))

    def consumer(self, *lanes: str, dead: str | None = None, lease: float = 60.0) -> AsyncConsumer:
        check_lanes(lanes)
        taker = Taker(self._group, lanes, dead, lease, self.options.takeover, self.options.poll)
        return AsyncConsumer(taker, self._runner)


class AsyncConsumer:
    """Consumer for asyncio: the same methods, to be awaited. Of several tasks one takes at a
    time."""

    def __init__(self, taker: Taker, runner: AsyncRunner) -> None:
        self._taker, self._runner = taker, runner
        self._takes = runner.links(runner.options.take_timeout, takes=True)
        self._taking: asyncio.Task[list[Job]] | None = None
        self._one_take = asyncio.Lock()

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close(failed=kind is not None and issubclass(kind, Exception))

    async def close(self, failed: bool = False) -> None:
        self._taker.hurry = True
        if self._taking is not None:
            try:
                await self._taking
            except LaneError:
                pass  # a cancelled take's: it got nothing
        await self._runner.run(self._taker.end(failed))
        for link in self._takes:
            await link.close()

    async def take(self, count: int = 1, wait: float = 0.0) -> list[Job]:
        """As Consumer.take. After one that was cancelled, its jobs are given by the next."""
        check_take(count, wait)
        async with self._one_take:
            if self._taking is None:
                self._taking = self._runner.start(self._taker.take(count, wait), self._takes)
            try:
                found = await asyncio.shield(self._taking)
            except asyncio.CancelledError:
                self._taker.hurry = True
                raise
            except BaseException:
                self._taking = None
                raise
            self._taking = None
            return found

    async def jobs(self, count: int = 1, wait: float | None = None) -> AsyncIterator[Job]:
        while True:
            found = await self.take(count, self._taker.poll * 10 if wait is None else wait)
            if not found and wait is not None:
                return
            for job in found:
                yield job

    async def ack(self, *jobs: Job) -> None:
        await self._runner.run(self._taker.ack(jobs))

    async def release(self, *jobs: Job, delay: float = 0.0, failed: bool = False) -> int:
        return await self._runner.run(self._taker.release(jobs, delay, failed))

    async def bury(self, *jobs: Job) -> int:
        return await self._runner.run(self._taker.bury(jobs))

    async def extend(self, *jobs: Job, lease: float | None = None) -> None:
        await self._runner.run(
            self._taker.extend(jobs, self._taker.lease if lease is None else lease))
