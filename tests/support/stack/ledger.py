"""What a client knows of the mails it sent: the left side of the oracle's comparison.

A pair is one recipient of one mail. Exactly these may be demanded: pairs that were answered 250. A pair whose connection
broke between the final dot and the answer is *unknown*: it may or may not arrive, and since a real client sends it again, it
may rightly arrive once more for each such break.
"""
import json
from dataclasses import dataclass, field


@dataclass
class Pair:
    """One recipient of one mail. Times are of time.time_ns()."""
    promised: int = None        # when the first 250 came
    promises: int = 0           # how often 250 was said
    unknown: int = 0            # how often no answer came behind the dot
    tempfails: int = 0
    refused: str = None         # the 5xx reply
    queue_ids: list = field(default_factory=list)
    waited: int = 0             # ns from the dot to the 250

    def as_data(self):
        return [self.promised, self.promises, self.unknown, self.tempfails, self.refused, self.queue_ids, self.waited]


class Ledger:
    """Pairs by (id, recipient)."""

    def __init__(self):
        self.pairs = {}
        self.mails = 0
        self.attempts = 0
        self.lost_connections = 0
        self.given_up = 0
        self.began = None
        self.ended = None

    def pair(self, mail, recipient):
        key = (mail, recipient)
        if key not in self.pairs:
            self.pairs[key] = Pair()
        return self.pairs[key]

    def known(self):
        """All pairs, also while a generator in another thread adds some: copying may run into that, and begins anew."""
        while True:
            try:
                return list(self.pairs.items())
            except RuntimeError:
                pass

    @property
    def promised(self):
        return {key: pair for key, pair in self.known() if pair.promises}

    @property
    def unknown(self):
        """Pairs about which nothing is promised, but which may arrive."""
        return {key: pair for key, pair in self.known() if pair.unknown and not pair.promises}

    def queue_ids(self):
        """Queue id to mail id."""
        return {queue_id: key[0] for key, pair in self.known() for queue_id in pair.queue_ids}

    def answer_times(self):
        """Milliseconds from dot to 250, sorted, one per mail and transaction."""
        times = {}
        for (mail, _), pair in self.known():
            if pair.promises:
                times[mail, tuple(pair.queue_ids)] = pair.waited / 1e6
        return sorted(times.values())

    def summary(self):
        seconds = (self.ended - self.began) / 1e9 if self.ended and self.began else 0
        times = self.answer_times()
        return {"mails": self.mails, "pairs": len(self.pairs), "promised": len(self.promised), "unknown": len(self.unknown),
                "refused": sum(1 for _, pair in self.known() if pair.refused), "given_up": self.given_up,
                "tempfails": sum(pair.tempfails for _, pair in self.known()), "attempts": self.attempts,
                "lost_connections": self.lost_connections, "seconds": round(seconds, 3),
                "mails_per_second": round(self.mails / seconds, 1) if seconds else None,
                "dot_to_250_ms": {"p50": percentile(times, 50), "p99": percentile(times, 99), "max": percentile(times, 100)}}

    def merge(self, other):
        """Takes over what another generator's ledger knows (ids differ by run)."""
        self.pairs.update(other.pairs)
        for name in ("mails", "attempts", "lost_connections", "given_up"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        began = [value for value in (self.began, other.began) if value]
        ended = [value for value in (self.ended, other.ended) if value]
        self.began, self.ended = min(began, default=None), max(ended, default=None)

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"mails": self.mails, "attempts": self.attempts, "lost_connections": self.lost_connections,
                       "given_up": self.given_up, "began": self.began, "ended": self.ended,
                       "pairs": [[mail, recipient, *pair.as_data()] for (mail, recipient), pair in self.pairs.items()]}, file)

    @classmethod
    def read(cls, path):
        with open(path) as file:
            text = json.load(file)
        ledger = cls()
        for name in ("mails", "attempts", "lost_connections", "given_up", "began", "ended"):
            setattr(ledger, name, text[name])
        for mail, recipient, *rest in text["pairs"]:
            ledger.pairs[mail, recipient] = Pair(*rest)
        return ledger


def percentile(values, percent):
    """The nearest-rank percentile of sorted values, rounded; None of none."""
    if not values:
        return None
    rank = min(len(values) - 1, max(0, -(-len(values) * percent // 100) - 1))
    return round(values[rank], 3)
