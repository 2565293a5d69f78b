"""Commands of lane.so, and their replies, as values: nothing here reads or writes.

Times are in milliseconds here, and in seconds everywhere else.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .model import Entry

T = TypeVar("T")
Word = str | bytes | int
Command = tuple[Word, ...]
Reply = Any  # what redis-py made of a reply, or a Refusal

HEAD = struct.Struct("<III")
HAS_ID = 1 << 31
PUSH_WORDS = {-1: "DONE", -2: "REVOKED", -3: "FULL", -4: "MEMORY", -5: "POLICY", -6: "WRONGTYPE"}
# One command stays far below Redis's proto-max-bulk-len, and holds the server up for a moment only.
PUSH_ENTRIES, PUSH_BYTES = 1000, 16 << 20
IDS_AT_ONCE = 10000


@dataclass(frozen=True)
class Refusal:
    """An error reply."""

    text: str

    @property
    def passes(self) -> bool:
        """Whether the server's state is the reason, and not the command."""
        return self.text.split(" ", 1)[0] in PASSING or "read only replica" in self.text


PASSING = {"LOADING", "READONLY", "MISCONF", "NOREPLICAS", "BUSY", "MASTERDOWN", "OOM", "TRYAGAIN"}


def milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def chunks(entries: Sequence[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Parts that each fit into one command."""
    first = size = 0
    for at, entry in enumerate(entries):
        more = size_of(entry)
        if at > first and (at - first == PUSH_ENTRIES or size + more > PUSH_BYTES):
            yield entries[first:at]
            first, size = at, 0
        size += more
    if entries:
        yield entries[first:]


def push(lane: str, entries: Sequence[Entry], delay: float, expire: float | None) -> Command:
    parts: list[bytes] = []
    for each in entries:
        parts += [HEAD.pack(1 | HAS_ID, len(each.meta), len(each.body)), each.id, each.meta,
                  each.body]
    words: list[Word] = ["LANE.PUSH", 1, lane]
    if delay > 0:
        words += ["DELAY", milliseconds(delay)]
    if expire is not None:
        words += ["EXPIRE", milliseconds(expire)]
    return (*words, "PACKED", b"".join(parts))


def push_words(reply: Reply, total: int) -> list[str]:
    """Per entry what refused it; empty for what is stored, now or before."""
    if isinstance(reply, Refusal):
        return [reply.text] * total
    numbers = struct.unpack(f"<{total}q", reply[1])
    return ["" if n > 0 or n == -1 else PUSH_WORDS.get(n, f"answer {n}") for n in numbers]


def revoke(lane: str, ids: Iterable[bytes]) -> Command:
    return ("LANE.REVOKE", lane, *ids)


def ack_ids(lane: str, ids: Sequence[bytes]) -> list[Command]:
    return [("LANE.ACK", lane, "PACKED", b"".join(ids[at:at + IDS_AT_ONCE]))
            for at in range(0, len(ids), IDS_AT_ONCE)]


def ack_sequences(lane: str, sequences: Sequence[int]) -> Command:
    return ("LANE.ACK", lane, "SEQS", len(sequences), *sequences)


def take(lanes: Sequence[str], count: int, lease: float, block: float) -> Command:
    words: list[Word] = ["LANE.TAKE", len(lanes), *lanes, "COUNT", count,
                         "LEASE", milliseconds(lease)]
    if milliseconds(block) > 0:  # 0 would wait for ever
        words += ["BLOCK", milliseconds(block)]
    return tuple(words)


@dataclass(frozen=True)
class Taken:
    """An entry as TAKE gives it."""

    lane: str
    lease: int
    sequence: int
    id: bytes
    revision: int
    attempts: int
    age: float
    meta: bytes
    body: bytes


def taken(reply: Reply) -> list[Taken]:
    return [Taken(lane.decode(), lease, sequence, uid, revision, attempts, age / 1000, meta, body)
            for lane, lease, entries in reply
            for sequence, uid, revision, attempts, age, meta, body in entries]


def nack(lane: str, lease: int, how: str, delay: float, sequences: Sequence[int]) -> Command:
    return ("LANE.NACK", lane, lease, how, milliseconds(delay), "SEQS", len(sequences), *sequences)


def extend(lane: str, lease: int, seconds: float, sequence: int) -> Command:
    return ("LANE.EXTEND", lane, lease, milliseconds(seconds), "SEQS", 1, sequence)


def get(lane: str, ids: Sequence[bytes]) -> Command:
    return ("LANE.GET", lane, "PACKED", b"".join(ids), "NOBODY")


def got_ids(reply: Reply) -> set[bytes]:
    return {entry[1] for entry in reply}


def move(lane: str, to: str, ids: Sequence[bytes]) -> Command:
    return ("LANE.MOVE", lane, to, "PACKED", b"".join(ids))


def bury(lane: str, lease: int, to: str, sequences: Sequence[int]) -> list[Command]:
    """Moves leased entries. Not NACK FATAL: a lane whose settings were lost with its server's data
    would drop them. The delay keeps others from taking them in between."""
    return [nack(lane, lease, "KEEP", 1.0, sequences),
            ("LANE.MOVE", lane, to, "SEQS", len(sequences), *sequences)]


def create(lane: str, maxlen: int | None, maxbytes: int | None, strict: bool | None,
           maxattempts: int | None, dead: str | None) -> Command:
    words: list[Word] = ["LANE.CREATE", lane]
    for name, number in (("MAXLEN", maxlen), ("MAXBYTES", maxbytes), ("MAXATTEMPTS", maxattempts)):
        words += [name, number] if number is not None else []
    words += ["STRICT" if strict else "SKIP"] if strict is not None else []
    words += ["DEAD", dead] if dead is not None else []
    return tuple(words)


SERVER: Command = ("LANE.INFO",)


def text(word: Reply) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)


def pairs(reply: Reply) -> dict[str, int | str]:
    """LANE.INFO's flat array."""
    return {text(name): value if isinstance(value, int) else text(value)
            for name, value in zip(reply[::2], reply[1::2])}
