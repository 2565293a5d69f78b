"""What can go wrong. Each error names the lane or node, the reason, and what to do."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class LaneError(Exception):
    """The base of all errors of this package."""


class NoNode(LaneError):
    """Nodes that are needed did not answer. `reasons` says why, by the name of the node."""

    def __init__(self, what: str, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__(f"{what}: no answer: {told(reasons)}")


class Refused(LaneError):
    """A node answered with an error that another try does not mend: rights, a wrong key."""

    def __init__(self, node: str, command: str, text: str) -> None:
        self.node, self.command, self.text = node, command, text
        super().__init__(f"node {node} refuses {command}: {text}")


class LeaseLost(LaneError):
    """The leases of these entries are over: they are, or will be, given to somebody else."""

    def __init__(self, lost: Sequence[object], total: int) -> None:
        self.lost = tuple(lost)
        super().__init__(f"{len(lost)} of {total} leases are over (their time, or their connection,"
                         " ended): who takes these entries next does them again")


@dataclass(frozen=True)
class Failure:
    """An entry that is not stored on enough nodes.

    `reasons`: why not, by node. `in_doubt`: nodes on which it may still lie, and why; it may yet be
    delivered from there. Empty: it is on no node, and a push with a new id is safe.
    """

    id: bytes
    reasons: Mapping[str, str]
    in_doubt: Mapping[str, str] = field(default_factory=dict)


class NotStored(LaneError):
    """Entries that are not stored on as many nodes as asked for, revoked where they were.

    `failures` has them; `stored` has the ids of those of the same push that are stored.
    """

    def __init__(self, lane: str, copies: int, failures: Sequence[Failure],
                 stored: Sequence[bytes] = ()) -> None:
        self.lane, self.copies = lane, copies
        self.failures, self.stored = tuple(failures), tuple(stored)
        super().__init__(self._text())

    @property
    def in_doubt(self) -> list[bytes]:
        """The ids that may still lie on a node."""
        return [each.id for each in self.failures if each.in_doubt]

    def _text(self) -> str:
        reasons: dict[str, str] = {}
        doubts: dict[str, str] = {}
        for each in self.failures:
            reasons.update(each.reasons)
            doubts.update(each.in_doubt)
        total = len(self.failures) + len(self.stored)
        copies = f"{self.copies} node" + ("s" if self.copies > 1 else "")
        text = (f"{len(self.failures)} of {total} entries for lane {self.lane} are not stored on"
                f" {copies}: {told(reasons)}")
        if not doubts:
            return text + ". They are on no node: push them again later, with new ids"
        return (text + f". {len(self.in_doubt)} may still lie there: {told(doubts)}."
                " Call revoke() for these ids until it is certain")


class LaneFull(NotStored):
    """All that was refused was refused by a bound of the lane: MAXLEN or MAXBYTES."""


class NoMemory(NotStored):
    """All that was refused was refused because a server is above its maxmemory."""


def told(reasons: Mapping[str, str]) -> str:
    """Reasons by node, in one line."""
    return "; ".join(f"node {node}: {why}" for node, why in reasons.items()) or "none is named"
