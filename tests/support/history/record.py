"""The file of a history: a JSON object a line, in no order but that of `invoked` and `at`.

    {"event": "history", "seed": 7, "sites": {"a": "sdbox", ...}}
    {"event": "op", "id": 12, "user": "u", "site": "a", "client": "a1", "kind": "append", ...,
     "invoked": 3.2, "responded": 3.4, "outcome": "ok"}
    {"event": "link", "open": ["a-b", ...], "began": 4.0, "ended": 4.1}
    {"event": "fault", "what": "kill -9 of dovelane-worker at a", "at": 5.0}
    {"event": "rest", "user": "u", "phase": 1, "began": 9.0, "ended": 9.5, "shown": {"a": {...}}}

All times are of one monotonic clock. `outcome` is "ok", "no" (the server refused) or "lost" (no
answer came: `responded` is null, and nobody knows whether it was done). Between `began` and `ended`
of a link event the network may be as before or as after. At rest all sites have everything.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

FOREVER = float("inf")


def now():
    return round(time.monotonic(), 6)


@dataclass
class Op:
    """One operation: what was asked is in `asked`, with what was answered."""

    id: int
    user: str
    site: str
    client: str
    kind: str
    invoked: float
    responded: float
    outcome: str
    asked: dict = field(default_factory=dict)

    def __getitem__(self, name):
        return self.asked[name]

    def get(self, name, default=None):
        return self.asked.get(name, default)

    @property
    def ok(self):
        return self.outcome == "ok"

    def is_before(self, other):
        return self.responded is not None and self.responded < other.invoked

    def __str__(self):
        words = [
            f"{name}={value}"
            for name, value in self.asked.items()
            if name in ("folder", "target", "mail", "uid", "how", "flags", "why")
        ]
        end = "-" if self.responded is None else f"{self.responded:.3f}"
        return (
            f"#{self.id} {self.kind}@{self.site} {' '.join(words)} [{self.invoked:.3f}, {end}]"
            f" {self.outcome}"
        )


@dataclass
class Link:
    """From `began` to `ended` on, these pairs of sites are open ("a-b"), and no others."""

    open: frozenset
    began: float
    ended: float


@dataclass
class Rest:
    """What all sites showed of a user when everything was everywhere: {site: {folder: {...}}}."""

    user: str
    phase: int
    began: float
    ended: float
    shown: dict
    excused: str = ""  # why storages may show what no client did, or ""


@dataclass
class History:
    sites: dict = field(default_factory=dict)
    head: dict = field(default_factory=dict)
    ops: list = field(default_factory=list)
    links: list = field(default_factory=list)
    rests: list = field(default_factory=list)
    faults: list = field(default_factory=list)


class Recorder:
    """Writes a history. Thread-safe."""

    def __init__(self, path):
        self.path, self.lock, self.count = Path(path), threading.Lock(), 0
        self.answered = 0
        self.file = open(self.path, "w", encoding="utf-8")

    def write(self, **event):
        with self.lock:
            self.file.write(json.dumps(event, sort_keys=True) + "\n")

    def number(self):
        with self.lock:
            self.count += 1
            return self.count

    def op(self, **event):
        with self.lock:
            self.answered += event["outcome"] == "ok"
        self.write(event="op", **event)

    def close(self):
        self.file.close()


def read(path):
    """The History of a file."""
    found = History()
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        add(found, json.loads(line))
    found.ops.sort(key=lambda op: op.invoked)
    found.links.sort(key=lambda link: link.began)
    found.rests.sort(key=lambda rest: rest.began)
    return found


def add(history, event):
    kind = event.pop("event")
    if kind == "history":
        history.sites, history.head = event["sites"], event
    elif kind == "op":
        plain = {
            name: event.pop(name)
            for name in ("id", "user", "site", "client", "kind", "invoked", "responded", "outcome")
        }
        history.ops.append(Op(**plain, asked=event))
    elif kind == "link":
        history.links.append(Link(frozenset(event["open"]), event["began"], event["ended"]))
    elif kind == "rest":
        history.rests.append(Rest(**event))
    else:
        history.faults.append(event)
