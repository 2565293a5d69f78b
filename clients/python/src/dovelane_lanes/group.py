"""The nodes, what is known of each, and how they are asked. Nothing here reads, writes or waits.

What a client does is a *plan*. That is a generator: it yields what is to be asked, or how long to
pause, and is sent the answers. client.py runs plans with threads, aio.py with asyncio: both do the same.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from . import wire

T = TypeVar("T")
# Acks that a node could not be told yet. Beyond it the oldest are dropped: those entries may be
# given again when that node returns with what it held.
MOST_PENDING = 100_000
# A node that fails again and again is left alone for up to so many times retry_after.
MOST_PATIENCE = 16


@dataclass(frozen=True)
class Ask:
    """Commands for one node. `takes`: on the connection of this consumer to which leases belong."""

    node: int
    commands: Sequence[wire.Command]
    takes: bool = False


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Unreachable:
    """No answer. `sent`: the node may have done it."""

    reason: str
    sent: bool = True


Answer = list[wire.Reply] | Unreachable
Step = list[Ask] | Pause
Plan = Generator[Step, list[Answer], T]


@dataclass
class Node:
    """What is known of a node."""

    name: str
    checked: bool = False  # it answered, by its name, since the last failure
    fresh: bool = False  # a connection was opened since: perhaps to a server that was restarted
    down_until: float = float("-inf")
    failures: int = 0  # one after the other
    reason: str = ""
    full: dict[str, float] = field(default_factory=dict)  # by lane: until when it is passed over
    run_id: str = ""  # of its server
    loaded_at: float | None = None  # when its server loaded its data from a file, by our clock
    pending: dict[tuple[str, bytes], None] = field(default_factory=dict)  # acks, oldest first

    def opened(self) -> None:
        self.fresh = True


class Group:
    """The nodes in the order in which all programs name them: the first that has it gives it."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float],
                 retry_after: float) -> None:
        self.nodes = [Node(name) for name in names]
        self.clock, self.retry_after = clock, retry_after
        self.settings: list[wire.Command] = []  # a server that lost its data has lost these, too

    def name(self, node: int) -> str:
        return self.nodes[node].name

    def live(self) -> list[int]:
        """Those of which no failure is known, or none that is recent."""
        now = self.clock()
        return [at for at, node in enumerate(self.nodes) if node.down_until <= now]

    def reasons(self, only: Iterable[int] | None = None) -> dict[str, str]:
        """Why nodes are down, by name."""
        live = set(self.live())
        wanted = range(len(self.nodes)) if only is None else only
        return {self.nodes[at].name: self.nodes[at].reason for at in wanted if at not in live}

    def fail(self, node: int, reason: str) -> None:
        """Nothing is asked of this node for a moment; then it is checked before anything else."""
        known = self.nodes[node]
        known.checked, known.reason = False, reason
        known.down_until = self.clock() + self.retry_after * min(2 ** known.failures, MOST_PATIENCE)
        known.failures = min(known.failures + 1, MOST_PATIENCE)

    def passed_over(self, lane: str, node: int) -> bool:
        """Whether others are asked first to store: it is down, or was full a moment ago."""
        known = self.nodes[node]
        return not known.checked or known.full.get(lane, 0.0) > self.clock()

    def refresh(self) -> Plan[None]:
        """Asks nodes that are new, or were down for long enough, or may have been restarted."""
        yield from self._check([at for at in self.live() if self._unknown(at)])

    def _unknown(self, at: int) -> bool:
        return not self.nodes[at].checked or self.nodes[at].fresh

    def exchange(self, asks: Sequence[Ask]) -> Plan[dict[int, Answer]]:
        """The answer of each node that is asked."""
        answers = yield from self._ask(asks)
        for at, answer in answers.items():
            if isinstance(answer, Unreachable) and answer.reason != self.nodes[at].reason:
                self.fail(at, answer.reason)
        return answers

    def _ask(self, asks: Sequence[Ask]) -> Plan[dict[int, Answer]]:
        live = set(self.live())
        answers: dict[int, Answer] = {
            ask.node: Unreachable(self.nodes[ask.node].reason, sent=False)
            for ask in asks if ask.node not in live}
        yield from self._check([a.node for a in asks
                                if a.node in live and self._unknown(a.node)])
        ready = [ask for ask in asks if self.nodes[ask.node].checked and ask.node not in answers]
        for ask in asks:
            if ask not in ready and ask.node not in answers:
                answers[ask.node] = Unreachable(self.nodes[ask.node].reason, sent=False)
        if ready:
            results = yield ready
            answers.update({ask.node: answer for ask, answer in zip(ready, results)})
        return answers

    def _check(self, nodes: Sequence[int]) -> Plan[None]:
        """Asks new and returned nodes who they are, and tells them what they missed: acks, and
        the settings of lanes."""
        if not nodes:
            return
        results = yield [Ask(at, [wire.SERVER]) for at in nodes]
        before = {at: self.nodes[at].run_id for at in nodes}
        for at, answer in zip(nodes, results):
            self._know(at, answer)
        changed = {at for at in nodes if self.nodes[at].run_id != before[at]}
        known = {at: list(self.nodes[at].pending) for at in nodes if self.nodes[at].checked}
        asks = [Ask(at, commands) for at, keys in known.items()
                if (commands := _acks(keys) + (self.settings if at in changed else []))]
        results = (yield asks) if asks else []
        for ask, answer in zip(asks, results):
            if isinstance(answer, Unreachable):
                self.fail(ask.node, answer.reason)
                self.nodes[ask.node].run_id = ""
                continue
            for key in known[ask.node]:
                self.nodes[ask.node].pending.pop(key, None)

    def _know(self, at: int, answer: Answer) -> None:
        node = self.nodes[at]
        if isinstance(answer, Unreachable):
            return self.fail(at, answer.reason)
        if isinstance(answer[0], wire.Refusal):
            return self.fail(at, f"LANE.INFO: {answer[0].text}")
        info = wire.pairs(answer[0])
        if info.get("node") and info["node"] != node.name:
            return self.fail(at, f"the server there calls itself {info['node']} (lane.node)")
        loaded = int(info.get("loaded-ms", 0))
        since = (int(info["clock-ms"]) - loaded) / 1000
        node.run_id = str(info["run-id"])
        node.loaded_at = self.clock() - since if loaded else None
        node.checked, node.fresh, node.reason, node.failures = True, False, "", 0
        node.down_until = float("-inf")

    def remember(self, at: int, acks: Mapping[str, Sequence[bytes]]) -> None:
        """Keeps acks for a node that did not answer."""
        pending = self.nodes[at].pending
        for lane, ids in acks.items():
            for uid in ids:
                pending[lane, uid] = None
        while len(pending) > MOST_PENDING:
            del pending[next(iter(pending))]


def _acks(keys: Iterable[tuple[str, bytes]]) -> list[wire.Command]:
    lanes: dict[str, list[bytes]] = {}
    for lane, uid in keys:
        lanes.setdefault(lane, []).append(uid)
    return [command for lane, ids in lanes.items() for command in wire.ack_ids(lane, ids)]
