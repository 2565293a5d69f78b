"""The values that clients give and get."""
from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Literal

ID_SIZE = 16

Why = Literal["first", "retry", "restart", "takeover"]


def new_id() -> bytes:
    """The id of a new entry: 16 random bytes."""
    return secrets.token_bytes(ID_SIZE)


@dataclass(frozen=True)
class Entry:
    """What is pushed. A push that is repeated with the same id stores nothing twice."""

    body: bytes
    id: bytes = field(default_factory=new_id)
    meta: bytes = b""

    def __post_init__(self) -> None:
        for what in ("body", "meta", "id"):
            if not isinstance(getattr(self, what), bytes):
                raise TypeError(f"{what} is {type(getattr(self, what)).__name__}, allowed is bytes:"
                                " encode it")
        if len(self.id) != ID_SIZE:
            raise ValueError(f"id is {self.id!r} of {len(self.id)} bytes, allowed is {ID_SIZE}")


@dataclass(frozen=True)
class Job:
    """An entry that was taken: this consumer's until its lease ends.

    `attempts`: how many leases of it failed before, on this node. `age`: seconds since this node
    stored it. `why`: see `redelivered`.
    """

    lane: str
    id: bytes
    body: bytes
    meta: bytes
    attempts: int
    age: float
    node: str
    why: Why
    sequence: int
    lease: int
    revision: int = 0

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have had it before.

        True for `retry` (a lease of it failed), `restart` (its server was restarted since it was
        stored) and `takeover` (this node is not the first one of the list, so the first one may
        have given it). False is no proof that nobody had it: see README.md.
        """
        return self.why != "first"


RevokeState = Literal["removed", "leased", "delivered", "absent"]


@dataclass(frozen=True)
class Revoked:
    """What became of an entry that was revoked.

    `removed`: it lay on a node and is gone. `leased`: a consumer has it, and may still ack it.
    `delivered`: a consumer acked it before. `absent`: no node that answered has it. Nodes in
    `unreached` may still have it: ask again.
    """

    id: bytes
    state: RevokeState
    unreached: dict[str, str]

    @property
    def certain(self) -> bool:
        """Whether it is on no node any more, delivered or not."""
        return self.state != "leased" and not self.unreached
