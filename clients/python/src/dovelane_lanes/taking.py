"""Plans of those who take: take, ack, give back, bury, extend.

Copies of one entry lie on several nodes, and one of them is to give it. The rule: an entry that was
taken from a node is given only if no live node before it in the list still holds it. Else it is put
off on this node for `takeover` seconds. An ack goes to the node that gave the entry last of all. So
who takes a copy elsewhere meanwhile finds that node still holding it, or his own copy gone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import wire
from .errors import LeaseLost, NoNode, Refused
from .group import Answer, Ask, Group, Pause, Plan, Unreachable
from .model import Job, Why

Key = tuple[str, int, int]
# Seconds by which our idea of when a server loaded its file may be wrong.
SLACK = 0.05


def key_of(job: Job) -> Key:
    return job.node, job.lease, job.sequence


@dataclass
class Taker:
    """One consumer. Jobs that it was given are in `out` until they are acked or given back."""

    group: Group
    lanes: Sequence[str]
    dead: str | None
    lease: float
    takeover: float
    poll: float
    out: dict[Key, Job] = field(default_factory=dict)
    hurry: bool = False  # nobody waits any more: a take ends as soon as it can
    looked: float = float("-inf")  # when it looked last whether later nodes have something

    # ---- take ----

    def take(self, count: int, wait: float) -> Plan[list[Job]]:
        """Up to `count` jobs; none when nothing came for `wait` seconds."""
        self.hurry = False
        end = self.group.clock() + wait
        while True:
            jobs = yield from self._look(count)
            left = end - self.group.clock()
            if jobs or left <= 0 or self.hurry:
                break
            jobs = yield from self._wait(count, min(left, self.poll))
            if jobs:
                break
        if not jobs and not self.group.live():
            raise NoNode(f"take from {', '.join(self.lanes)}", self.group.reasons())
        return jobs

    def _look(self, count: int) -> Plan[list[Job]]:
        """What there is now. The first live node gives nearly all. The others have what it does
        not have, so they are looked at when it gave too little, and first of all now and then."""
        order = list(range(len(self.group.nodes)))
        if self.group.clock() - self.looked >= self.poll:
            order = order[1:] + order[:1]
            self.looked = self.group.clock()
        jobs: list[Job] = []
        for at in order:
            if len(jobs) < count:
                jobs += yield from self._take_from(at, count - len(jobs), 0)
        return jobs

    def _wait(self, count: int, seconds: float) -> Plan[list[Job]]:
        """Waits at one node, and never for long: another one may get something meanwhile."""
        live = self.group.live()
        if not live:
            yield Pause(min(seconds, self.group.retry_after / 4))
            return []
        return (yield from self._take_from(live[0], count, seconds))

    def _take_from(self, at: int, count: int, block: float) -> Plan[list[Job]]:
        command = wire.take(self.lanes, count, self.lease, block)
        answers = yield from self.group.exchange([Ask(at, [command], takes=True)])
        answer = answers[at]
        if isinstance(answer, Unreachable):
            return []
        if isinstance(answer[0], wire.Refusal):
            if not answer[0].passes:
                raise Refused(self.group.name(at), "LANE.TAKE", answer[0].text)
            self.group.fail(at, answer[0].text)
            return []
        taken = wire.taken(answer[0])
        if taken:
            yield from self.group.refresh()
        if at > 0 and taken:
            taken = yield from self._not_before(at, taken)
        jobs = [self._job(at, each) for each in taken]
        self.out.update((key_of(job), job) for job in jobs)
        return jobs

    def _job(self, at: int, t: wire.Taken) -> Job:
        loaded = self.group.nodes[at].loaded_at
        why: Why = "first"
        if t.attempts:
            why = "retry"
        elif at:
            why = "takeover"
        elif loaded is not None and t.age >= self.group.clock() - loaded - SLACK:
            why = "restart"
        return Job(t.lane, t.id, t.body, t.meta, t.attempts, t.age, self.group.name(at), why,
                   t.sequence, t.lease, t.revision)

    # ---- which node gives it ----

    def _not_before(self, at: int, taken: list[wire.Taken]) -> Plan[list[wire.Taken]]:
        """Those that no live node before this one holds, and that were not acked meanwhile."""
        earlier = [n for n in self.group.live() if n < at]
        if not earlier:
            return taken
        held, buried = yield from self._held(earlier, taken)
        free = [t for t in taken if not t.id or (t.lane, t.id) not in held | buried]
        commands = self._put_off([t for t in taken if (t.lane, t.id) in held],
                                 [t for t in taken if (t.lane, t.id) in buried - held])
        first = len(commands)
        commands += [wire.extend(t.lane, t.lease, self.lease, t.sequence) for t in free]
        answers = yield from self.group.exchange([Ask(at, commands)])
        answer = answers[at]
        if isinstance(answer, Unreachable):
            return []  # the leases are over, or end with their time
        return [t for t, reply in zip(free, answer[first:])
                if not isinstance(reply, wire.Refusal) and reply[0] == 1]

    def _held(self, earlier: Sequence[int], taken: Iterable[wire.Taken],
              ) -> Plan[tuple[set[tuple[str, bytes]], set[tuple[str, bytes]]]]:
        """(lane, id) of what these nodes hold in the lane, and of what they buried."""
        lanes: dict[str, list[bytes]] = {}
        for t in taken:
            if t.id:
                lanes.setdefault(t.lane, []).append(t.id)
        places = [(lane, ids, where) for lane, ids in lanes.items()
                  for where in (lane, self.dead) if where and (where == lane or lane != self.dead)]
        held: set[tuple[str, bytes]] = set()
        buried: set[tuple[str, bytes]] = set()
        if not places:
            return held, buried
        answers = yield from self.group.exchange(
            [Ask(n, [wire.get(where, ids) for _, ids, where in places]) for n in earlier])
        for n, answer in answers.items():
            if isinstance(answer, Unreachable):
                continue
            for (lane, _, where), reply in zip(places, answer):
                if isinstance(reply, wire.Refusal):
                    if not reply.passes:
                        raise Refused(self.group.name(n), "LANE.GET", reply.text)
                    continue
                found = {(lane, uid) for uid in wire.got_ids(reply)}
                (held if where == lane else buried).update(found)
        return held, buried

    def _put_off(self, held: Sequence[wire.Taken], buried: Sequence[wire.Taken],
                 ) -> list[wire.Command]:
        commands = [wire.nack(lane, lease, "KEEP", self.takeover, sequences)
                    for (lane, lease), sequences in _by_lease(held).items()]
        for (lane, lease), sequences in _by_lease(buried).items():
            commands += wire.bury(lane, lease, self.dead or lane, sequences)
        return commands

    # ---- ack ----

    def ack(self, jobs: Sequence[Job]) -> Plan[None]:
        """Removes them everywhere. A node that does not answer gets its ack when it is back."""
        for job in jobs:
            self.out.pop(key_of(job), None)
        names = [node.name for node in self.group.nodes]
        givers = [names.index(job.node) for job in jobs]
        others = {at: [j for j, giver in zip(jobs, givers) if giver != at and j.id]
                  for at in range(len(names))}
        own = {at: [j for j, giver in zip(jobs, givers) if giver == at]
               for at in range(len(names))}
        told = yield from self._ack_at(others)
        told += yield from self._ack_at(own)
        if jobs and not told:
            raise NoNode(f"ack in {', '.join(sorted({j.lane for j in jobs}))}",
                         self.group.reasons())

    def _ack_at(self, where: Mapping[int, Sequence[Job]]) -> Plan[int]:
        """How many nodes did it."""
        asks = [Ask(at, _acks(jobs)) for at, jobs in where.items() if jobs]
        answers: Mapping[int, Answer] = {}
        if asks:
            answers = yield from self.group.exchange(asks)
        told = 0
        for at, answer in answers.items():
            trouble = _trouble(answer)
            if trouble is None:
                told += 1
            elif isinstance(trouble, wire.Refusal) and not trouble.passes:
                raise Refused(self.group.name(at), "LANE.ACK", trouble.text)
            else:
                self.group.remember(at, _ids_by_lane(where[at]))
                if isinstance(trouble, wire.Refusal):
                    self.group.fail(at, trouble.text)
        return told

    # ---- give back, bury, extend ----

    def release(self, jobs: Sequence[Job], delay: float, failed: bool) -> Plan[int]:
        """Gives jobs back; how many were still this consumer's."""
        return (yield from self._nack(jobs, "RETRY" if failed else "KEEP", delay))

    def bury(self, jobs: Sequence[Job]) -> Plan[int]:
        """Puts jobs into the dead-letter lane, and their copies, too."""
        if not self.dead:
            raise ValueError("bury: this consumer has no dead-letter lane: name it, consumer(...,"
                             " dead=LANE), the one with which the lane was created")
        asks = []
        for at, node in enumerate(self.group.nodes):
            ids = _ids_by_lane([j for j in jobs if j.node != node.name])
            if ids:
                asks.append(Ask(at, [wire.move(lane, self.dead, these)
                                     for lane, these in ids.items()]))
        if asks:
            # Where it does not succeed the copy comes due, and is buried by who takes it.
            yield from self.group.exchange(asks)
        replies = yield from self._give_up(jobs, lambda lane, lease, sequences: wire.bury(
            lane, lease, self.dead or lane, sequences))
        return sum(reply[0] for reply in replies[1::2])

    def _nack(self, jobs: Sequence[Job], how: str, delay: float) -> Plan[int]:
        replies = yield from self._give_up(jobs, lambda lane, lease, sequences: [
            wire.nack(lane, lease, how, delay, sequences)])
        return sum(reply[0] + reply[1] for reply in replies)

    def _give_up(self, jobs: Sequence[Job],
                 commands: Callable[[str, int, Sequence[int]], list[wire.Command]],
                 ) -> Plan[list[wire.Reply]]:
        """The replies to these commands for each lease, at the nodes that gave the jobs."""
        for job in jobs:
            self.out.pop(key_of(job), None)
        by_node = self._by_node(jobs)
        if not by_node:
            return []
        answers = yield from self.group.exchange(
            [Ask(at, [command for (lane, lease), sequences in _by_lease(ones).items()
                      for command in commands(lane, lease, sequences)])
             for at, ones in by_node.items()])
        replies: list[wire.Reply] = []
        for at, answer in answers.items():
            refused = _trouble(answer)
            if isinstance(refused, wire.Refusal) and not refused.passes:
                raise Refused(self.group.name(at), "LANE.NACK or LANE.MOVE", refused.text)
            if refused is None and not isinstance(answer, Unreachable):
                replies += answer
        return replies

    def _by_node(self, jobs: Iterable[Job]) -> dict[int, list[Job]]:
        names = [node.name for node in self.group.nodes]
        found: dict[int, list[Job]] = {}
        for job in jobs:
            found.setdefault(names.index(job.node), []).append(job)
        return found

    def extend(self, jobs: Sequence[Job], seconds: float) -> Plan[None]:
        """Their leases end so many seconds from now; LeaseLost names those that are over."""
        by_node = self._by_node(jobs)
        if not by_node:
            return
        answers = yield from self.group.exchange(
            [Ask(at, [wire.extend(j.lane, j.lease, seconds, j.sequence) for j in ones])
             for at, ones in by_node.items()])
        lost: list[Job] = []
        for at, answer in answers.items():
            if isinstance(answer, Unreachable):
                lost += by_node[at]
                continue
            for job, reply in zip(by_node[at], answer):
                if isinstance(reply, wire.Refusal):
                    if not reply.passes:
                        raise Refused(job.node, "LANE.EXTEND", reply.text)
                    lost.append(job)
                elif reply[0] != 1:
                    lost.append(job)
        if lost:
            raise LeaseLost(lost, len(jobs))

    def end(self, failed: bool) -> Plan[int]:
        """Gives back what is still out: an attempt is counted only if the program failed."""
        return (yield from self._nack(list(self.out.values()), "RETRY" if failed else "KEEP", 0))


def _by_lease(ones: Iterable[wire.Taken | Job]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for each in ones:
        found.setdefault((each.lane, each.lease), []).append(each.sequence)
    return found


def _ids_by_lane(jobs: Iterable[Job]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for job in jobs:
        if job.id:
            found.setdefault(job.lane, []).append(job.id)
    return found


def _acks(jobs: Sequence[Job]) -> list[wire.Command]:
    """By id; what was pushed without one is named by its sequence."""
    commands = [command for lane, ids in _ids_by_lane(jobs).items()
                for command in wire.ack_ids(lane, ids)]
    nameless: dict[str, list[int]] = {}
    for job in jobs:
        if not job.id:
            nameless.setdefault(job.lane, []).append(job.sequence)
    return commands + [wire.ack_sequences(lane, ones) for lane, ones in nameless.items()]


def _trouble(answer: Answer) -> Unreachable | wire.Refusal | None:
    if isinstance(answer, Unreachable):
        return answer
    return next((reply for reply in answer if isinstance(reply, wire.Refusal)), None)
