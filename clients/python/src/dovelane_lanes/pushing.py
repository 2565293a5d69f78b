"""Plans of those who store: push, revoke, and what is done on all nodes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import wire
from .errors import Failure, LaneFull, NoMemory, NoNode, NotStored, Refused
from .group import Answer, Ask, Group, Plan, Unreachable
from .model import Entry, Revoked, RevokeState

WHY = {
    "FULL": "FULL: a bound of the lane is reached (MAXLEN, MAXBYTES)",
    "MEMORY": "MEMORY: the server is above its maxmemory",
    "POLICY": "POLICY: maxmemory-policy is not noeviction: configure the server",
    "WRONGTYPE": "WRONGTYPE: the key holds something else than a lane",
    "REVOKED": "REVOKED: this id was revoked, and is refused for lane.settle-ms: take a new one",
}
NOT_ASKED = "not asked: too few nodes are live"


@dataclass
class Progress:
    """One entry on its way to its nodes."""

    entry: Entry
    held: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)  # it was sent, and no answer came
    words: dict[int, str] = field(default_factory=dict)  # why not, by node
    given: bool = False  # a node that holds it gives it without waiting for another to fail
    delivered: bool = False  # acked before it could be revoked

    def untried(self, nodes: Sequence[int]) -> list[int]:
        return [at for at in nodes if at not in self.held and at not in self.words]


@dataclass(frozen=True)
class Part:
    """The entries of one command."""

    entries: Sequence[Progress]
    backup: bool


@dataclass
class Push:
    """One push of several entries.

    The first node that stores an entry gives it as soon as `delay` is over. The other copies wait
    `takeover` seconds longer: an ack removes them before.
    """

    group: Group
    lane: str
    copies: int
    delay: float
    expire: float | None
    takeover: float
    sent: dict[int, list[Part]] = field(default_factory=dict)

    def asks(self, entries: Sequence[Progress]) -> list[Ask]:
        """The next nodes for all that are on too few."""
        order = sorted(range(len(self.group.nodes)),
                       key=lambda at: self.group.passed_over(self.lane, at))
        wanted: dict[tuple[int, bool], list[Progress]] = {}
        for each in entries:
            backup, lacks = each.given, self.copies - len(each.held)
            for at in each.untried(order)[:lacks]:
                wanted.setdefault((at, backup), []).append(each)
                backup = True
        self.sent = {}
        for (at, backup), group in sorted(wanted.items(), key=lambda item: item[0]):
            parts = wire.chunks(group, lambda p: len(p.entry.body) + len(p.entry.meta))
            self.sent.setdefault(at, []).extend(Part(part, backup) for part in parts)
        return [Ask(at, [self._command(part) for part in parts])
                for at, parts in self.sent.items()]

    def _command(self, part: Part) -> wire.Command:
        delay = self.delay + self.takeover if part.backup else self.delay
        return wire.push(self.lane, [p.entry for p in part.entries], delay, self.expire)

    def learn(self, at: int, answer: Answer) -> None:
        for number, part in enumerate(self.sent[at]):
            if isinstance(answer, Unreachable):
                words = [answer.reason] * len(part.entries)
            else:
                words = wire.push_words(answer[number], len(part.entries))
            for each, word in zip(part.entries, words):
                self._learn_one(at, each, word, part.backup)
                if word in ("FULL", "MEMORY"):
                    group = self.group
                    group.nodes[at].full[self.lane] = group.clock() + group.retry_after
                if isinstance(answer, Unreachable) and answer.sent:
                    each.perhaps.add(at)

    @staticmethod
    def _learn_one(at: int, each: Progress, word: str, backup: bool) -> None:
        if word:
            each.words[at] = word
        else:
            each.held.add(at)
            each.given = each.given or not backup


def push(job: Push, entries: Sequence[Entry]) -> Plan[list[bytes]]:
    """Stores all on `copies` nodes each, or raises NotStored; the ids."""
    progress = [Progress(entry) for entry in entries]
    yield from job.group.refresh()
    if len(job.group.live()) < job.copies:
        raise _too_few(job, progress)
    while asks := job.asks([p for p in progress if len(p.held) < job.copies]):
        answers = yield from job.group.exchange(asks)
        for at, answer in answers.items():
            job.learn(at, answer)
    failed = [p for p in progress if len(p.held) < job.copies]
    if failed:
        left = yield from _take_back(job, failed)
        failed = [p for p in failed if not p.delivered]
        if failed:
            raise _not_stored(job, progress, failed, left)
    return [entry.id for entry in entries]


def _take_back(job: Push, failed: Sequence[Progress]) -> Plan[dict[bytes, dict[str, str]]]:
    """Revokes what is on too few nodes. By id: where that did not succeed, and why."""
    where: dict[int, list[Progress]] = {}
    for each in failed:
        for at in sorted(each.held | each.perhaps):
            where.setdefault(at, []).append(each)
    left: dict[bytes, dict[str, str]] = {}
    if not where:
        return left
    answers = yield from job.group.exchange(
        [Ask(at, [wire.revoke(job.lane, [p.entry.id for p in ones])])
         for at, ones in where.items()])
    for at, ones in where.items():
        for each, word in zip(ones, _revoke_words(answers[at], len(ones))):
            if word == "GONE":
                each.delivered = True
            elif word not in ("REMOVED", "ABSENT"):
                why = "a consumer has it" if word == "LEASED" else f"not revoked: {word}"
                left.setdefault(each.entry.id, {})[job.group.name(at)] = why
    return left


def _revoke_words(answer: Answer, total: int) -> list[str]:
    if isinstance(answer, Unreachable):
        return [answer.reason] * total
    if isinstance(answer[0], wire.Refusal):
        return [answer[0].text] * total
    return [wire.text(word) for word in answer[0]]


def _too_few(job: Push, progress: Sequence[Progress]) -> NotStored:
    reasons = {node.name: NOT_ASKED for node in job.group.nodes} | job.group.reasons()
    return NotStored(job.lane, job.copies, [Failure(p.entry.id, reasons) for p in progress])


def _not_stored(job: Push, progress: Sequence[Progress], failed: Sequence[Progress],
                left: Mapping[bytes, Mapping[str, str]]) -> NotStored:
    failures = [
        Failure(p.entry.id, {job.group.name(at): WHY.get(word.split(" ")[0], word)
                             for at, word in sorted(p.words.items())},
                left.get(p.entry.id, {})) for p in failed]
    missing = {p.entry.id for p in failed}
    stored = [p.entry.id for p in progress if p.entry.id not in missing]
    words = {word for p in failed for word in p.words.values()}
    kind = {"FULL": LaneFull, "MEMORY": NoMemory}.get(words.pop() if len(words) == 1 else "",
                                                      NotStored)
    return kind(job.lane, job.copies, failures, stored)


def revoke(group: Group, lane: str, ids: Sequence[bytes]) -> Plan[list[Revoked]]:
    """Takes entries back from all nodes."""
    if not ids:
        return []
    everywhere = range(len(group.nodes))
    answers = yield from group.exchange([Ask(at, [wire.revoke(lane, ids)]) for at in everywhere])
    _raise_refusals(group, "LANE.REVOKE", answers)
    unreached = _unreached(group, answers)
    if len(unreached) == len(group.nodes):
        raise NoNode(f"revoke in lane {lane}", unreached)
    words = [_revoke_words(answers[at], len(ids)) for at in everywhere
             if group.name(at) not in unreached]
    return [Revoked(uid, _state({each[n] for each in words}), unreached)
            for n, uid in enumerate(ids)]


def _state(words: set[str]) -> RevokeState:
    states: tuple[tuple[str, RevokeState], ...] = (
        ("GONE", "delivered"), ("LEASED", "leased"), ("REMOVED", "removed"))
    return next((state for word, state in states if word in words), "absent")


def create(group: Group, command: wire.Command) -> Plan[None]:
    """On all nodes; those that do not answer, or lose it with their data, are told later."""
    if command not in group.settings:
        group.settings.append(command)
    told = yield from ask_all(group, command)
    for node in group.nodes:
        if node.name not in told:
            node.run_id = ""  # whichever server it is then, it is told


def ask_all(group: Group, command: wire.Command) -> Plan[dict[str, wire.Reply]]:
    """The reply of every node that answers, by name."""
    answers = yield from group.exchange([Ask(at, [command]) for at in range(len(group.nodes))])
    _raise_refusals(group, wire.text(command[0]), answers)
    unreached = _unreached(group, answers)
    if len(unreached) == len(group.nodes):
        raise NoNode(wire.text(command[0]), unreached)
    return {group.name(at): answer[0] for at, answer in answers.items()
            if not isinstance(answer, Unreachable) and group.name(at) not in unreached}


def _unreached(group: Group, answers: Mapping[int, Answer]) -> dict[str, str]:
    found = {}
    for at, answer in answers.items():
        if isinstance(answer, Unreachable):
            found[group.name(at)] = answer.reason
        elif isinstance(answer[0], wire.Refusal):
            found[group.name(at)] = answer[0].text
    return found


def _raise_refusals(group: Group, command: str, answers: Mapping[int, Answer]) -> None:
    for at, answer in answers.items():
        if not isinstance(answer, Unreachable):
            for reply in answer:
                if isinstance(reply, wire.Refusal) and not reply.passes:
                    raise Refused(group.name(at), command, reply.text)
