"""A client's options, and their checks: equal for both kinds of client."""
from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .group import Group

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
# A TAKE that waits is answered this much earlier than its connection would give it up.
MARGIN = 2.0


@dataclass(frozen=True)
class Options:
    """Times are in seconds.

    `copies`: on how many nodes an entry is stored. `takeover`: after how long a copy is given by
    another node, if nobody acked it; longer than a job takes. `timeout`: of a connection and of an
    answer. `retry_after`: how long a node that failed is left alone. `poll`: how often consumers
    look at the nodes behind the first live one. `extra`: arguments for redis-py's connections, as
    ssl_ca_certs.
    """

    nodes: Mapping[str, str]
    copies: int = 2
    takeover: float = 30.0
    timeout: float = 5.0
    retry_after: float = 1.0
    poll: float = 1.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.nodes:
            if not NAME.fullmatch(name):
                raise ValueError(f"node {name!r}: a name has 1 to 64 of A-Z a-z 0-9 . _ -")
        if not 1 <= self.copies <= len(self.nodes):
            raise ValueError(f"copies is {self.copies}, allowed is 1 to {len(self.nodes)}: so many"
                             " nodes are named")
        for what in ("takeover", "timeout", "retry_after", "poll"):
            value = getattr(self, what)
            if not 0 < value <= 31536000:
                raise ValueError(f"{what} is {value}, allowed is more than 0, and a year at most")

    def group(self) -> Group:
        return Group(list(self.nodes), time.monotonic, self.retry_after)

    @property
    def take_timeout(self) -> float:
        return self.timeout + self.poll + MARGIN


def check_take(count: int, wait: float) -> None:
    if not 1 <= count <= 1_000_000:
        raise ValueError(f"count is {count}, allowed is 1 to 1000000")
    if wait < 0:
        raise ValueError(f"wait is {wait}, allowed is 0 or more")


def check_lanes(lanes: tuple[str, ...]) -> None:
    if not lanes or isinstance(lanes[0], bytes):
        raise ValueError(f"lanes are {lanes!r}: name at least one, as text")
