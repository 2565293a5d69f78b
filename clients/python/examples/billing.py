#!/usr/bin/env python3
"""Billing records on two of the named nodes, booked in their order.

    billing.py a=redis://10.0.0.1:7009 b=redis://10.0.0.2:7009 c=redis://10.0.0.3:7009

The switch stores records in batches. The billing system takes them, books them and acks them. A
record that cannot be booked is tried three times. Then it waits in another lane for a person, who
mends the cause and stores it anew.
"""
from __future__ import annotations

import sys
from collections.abc import Callable

from dovelane_lanes import Consumer, Entry, Job, LaneClient, NotStored

LANE, FOR_A_PERSON = "billing", "billing:manual"


def store(lanes: LaneClient, entries: list[Entry]) -> list[Entry]:
    """Those that are not stored: keep them, and store them later, with new ids."""
    try:
        lanes.push_many(LANE, entries)
        return []
    except NotStored as error:
        print(f"billing: {error}", file=sys.stderr)
        failed = {each.id for each in error.failures}
        return [Entry(each.body) for each in entries if each.id in failed]


def bill(consumer: Consumer, book: Callable[[Job], bool], patience: float) -> int:
    """Books what comes, until nothing came for so many seconds; how many it booked.

    An entry may come twice (README.md). `book` has to know by job.id what it has booked.
    """
    booked = 0
    while jobs := consumer.take(100, wait=patience):
        for at, job in enumerate(jobs):
            if not book(job):
                consumer.release(job, failed=True)
                consumer.release(*jobs[at + 1:])  # in strict order, what is behind it waits
                break
            consumer.ack(job)
            booked += 1
    return booked


def main() -> None:
    nodes = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if len(nodes) < 2:
        sys.exit("billing: name two nodes at least, as a=redis://10.0.0.1:7009")
    done: dict[bytes, bytes] = {}

    def book(job: Job) -> bool:
        if not job.body.startswith(b"call 42:"):
            done.setdefault(job.id, job.body)
        return job.id in done

    with LaneClient(nodes, copies=2) as lanes:
        lanes.create(LANE, strict=True, maxlen=1000000, maxattempts=3, dead=FOR_A_PERSON)
        records = [Entry(f"call {n}: {n * 7 % 300} s".encode()) for n in range(1, 251)]
        for batch in records[:100], records[100:], records[100:]:  # one of them again: no harm
            if store(lanes, batch):
                sys.exit("billing: no room")
        with lanes.consumer(LANE, dead=FOR_A_PERSON) as consumer:
            booked = bill(consumer, book, 0.1)
        with lanes.consumer(FOR_A_PERSON) as person:
            (job,) = person.take()
            print(f"booked {booked}, for a person: {job.body.decode()}")
            lanes.push(LANE, job.body.replace(b"call 42", b"call 42 again"))
            person.ack(job)
        with lanes.consumer(LANE) as consumer:
            booked = bill(consumer, book, 0.1)
        first = next(iter(nodes))
        print(f"stored anew, booked {booked}, left {lanes.lengths(LANE)[first]}")
        expected = [r.body for r in records if not r.body.startswith(b"call 42:")]
        assert list(done.values())[:-1] == expected, "in order, each once"


if __name__ == "__main__":
    main()
