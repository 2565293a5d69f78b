"""The client for threads. What it does is in pushing.py and taking.py; this runs it."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from . import pushing, wire
from .group import Answer, Ask, Group, Pause, Plan
from .links import SyncLink
from .model import Entry, Job, Revoked, new_id
from .options import Options, check_lanes, check_take
from .taking import Taker

T = TypeVar("T")
Links = Sequence[SyncLink]


class Runner:
    """Runs plans: asks several nodes at the same time, one of them in the caller's thread."""

    def __init__(self, options: Options, group: Group) -> None:
        self.options, self.group = options, group
        self.control = self.links(options.timeout, takes=False)
        self.threads = ThreadPoolExecutor(8 * len(options.nodes), "dovelane-lanes")

    def links(self, timeout: float, takes: bool) -> Links:
        extra = dict(self.options.extra)
        return [SyncLink(url, timeout, extra, takes, node.opened)
                for node, url in zip(self.group.nodes, self.options.nodes.values())]

    def run(self, plan: Plan[T], takes: Links = ()) -> T:
        try:
            step = next(plan)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = plan.send([])
                else:
                    step = plan.send(self._ask(step, takes))
        except StopIteration as end:
            value: T = end.value
            return value

    def _ask(self, asks: Sequence[Ask], takes: Links) -> list[Answer]:
        calls: list[Callable[[], Answer]] = [self._call(ask, takes) for ask in asks]
        others = [self.threads.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]

    def _call(self, ask: Ask, takes: Links) -> Callable[[], Answer]:
        link = (takes if ask.takes else self.control)[ask.node]
        return lambda: link.ask(ask.commands)

    def close(self) -> None:
        self.threads.shutdown()
        for link in self.control:
            link.close()


class LaneClient:
    """Stores entries on `copies` of the nodes, and makes consumers. Threads may share it.

        with LaneClient({"a": "redis://10.0.0.1:7009", "b": "redis://10.0.0.2:7009"}) as lanes:
            lanes.push("billing", b"61 seconds")

    All programs name the nodes in the same order. A URL may be redis://, rediss:// (TLS) or
    unix://, with user and password in it. Other arguments: Options.
    """

    def __init__(self, nodes: Mapping[str, str], *, copies: int = 2, takeover: float = 30.0,
                 timeout: float = 5.0, retry_after: float = 1.0, poll: float = 1.0,
                 **extra: Any) -> None:
        self.options = Options(nodes, copies, takeover, timeout, retry_after, poll, extra)
        self._group = self.options.group()
        self._runner = Runner(self.options, self._group)

    def __enter__(self) -> LaneClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close its consumers first: they give back what they have."""
        self._runner.close()

    def push(self, lane: str, body: bytes, *, id: bytes | None = None, meta: bytes = b"",
             delay: float = 0.0, expire: float | None = None) -> bytes:
        """Stores one entry on `copies` nodes, or raises NotStored; its id.

        delay: not given before; expire: not given after. To push again after a lost answer, use the
        same id.
        """
        entry = Entry(body, new_id() if id is None else id, meta)
        return self.push_many(lane, [entry], delay=delay, expire=expire)[0]

    def push_many(self, lane: str, entries: Iterable[Entry], *, delay: float = 0.0,
                  expire: float | None = None) -> list[bytes]:
        """Stores all of them; NotStored names those that are not, the others are stored."""
        job = pushing.Push(self._group, lane, self.options.copies, delay, expire,
                           self.options.takeover)
        return self._runner.run(pushing.push(job, list(entries)))

    def revoke(self, lane: str, *ids: bytes) -> list[Revoked]:
        """Takes entries back, and says of each whether that was in time."""
        return self._runner.run(pushing.revoke(self._group, lane, ids))

    def create(self, lane: str, *, maxlen: int | None = None, maxbytes: int | None = None,
               strict: bool | None = None, maxattempts: int | None = None,
               dead: str | None = None) -> None:
        """LANE.CREATE on all nodes, or changes what is named. Without it a lane has no bounds.

        This client tells it again to nodes that were down, or have lost their data.
        """
        command = wire.create(lane, maxlen, maxbytes, strict, maxattempts, dead)
        self._runner.run(pushing.create(self._group, command))

    def lengths(self, lane: str) -> dict[str, int]:
        """Entries of each node that answers, copies included."""
        return self._runner.run(pushing.ask_all(self._group, ("LANE.LEN", lane)))

    def consumer(self, *lanes: str, dead: str | None = None, lease: float = 60.0) -> Consumer:
        """One that takes from these lanes. dead: their dead-letter lane, as `create` named it."""
        check_lanes(lanes)
        taker = Taker(self._group, lanes, dead, lease, self.options.takeover, self.options.poll)
        return Consumer(taker, self._runner)


class Consumer:
    """Takes entries, on connections of its own. Of several threads one takes at a time.

    When it is closed in order, what it has is given back. When the program failed (an exception
    left the `with`), that counts as an attempt of each entry that it had.
    """

    def __init__(self, taker: Taker, runner: Runner) -> None:
        self._taker, self._runner = taker, runner
        self._takes = runner.links(runner.options.take_timeout, takes=True)
        self._one_take = threading.Lock()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(failed=kind is not None and issubclass(kind, Exception))

    def close(self, failed: bool = False) -> None:
        self._runner.run(self._taker.end(failed))
        for link in self._takes:
            link.close()

    def take(self, count: int = 1, wait: float = 0.0) -> list[Job]:
        """Up to `count` jobs; none when nothing came for `wait` seconds. NoNode: no node lives."""
        check_take(count, wait)
        with self._one_take:
            return self._runner.run(self._taker.take(count, wait), self._takes)

    def jobs(self, count: int = 1, wait: float | None = None) -> Iterator[Job]:
        """Jobs one by one; ends when nothing came for `wait` seconds (None: never).

        count: how many it takes at a time. Those behind the first have their leases meanwhile.
        """
        while True:
            found = self.take(count, self._taker.poll * 10 if wait is None else wait)
            if not found and wait is not None:
                return
            yield from found

    def ack(self, *jobs: Job) -> None:
        """They are done: removes them from all nodes."""
        self._runner.run(self._taker.ack(jobs))

    def release(self, *jobs: Job, delay: float = 0.0, failed: bool = False) -> int:
        """Gives them back, to be taken again after `delay`. failed: that counts as an attempt.
        How many were still this consumer's: a lease may be over."""
        return self._runner.run(self._taker.release(jobs, delay, failed))

    def bury(self, *jobs: Job) -> int:
        """Puts them into the dead-letter lane."""
        return self._runner.run(self._taker.bury(jobs))

    def extend(self, *jobs: Job, lease: float | None = None) -> None:
        """Their leases end `lease` seconds from now. LeaseLost names those that are over."""
        self._runner.run(self._taker.extend(jobs, self._taker.lease if lease is None else lease))
