#!/usr/bin/env python3
"""Notifications with asyncio: three senders, each entry on two of the nodes.

    notify.py a=redis://10.0.0.1:7009 b=redis://10.0.0.2:7009 c=redis://10.0.0.3:7009
"""
from __future__ import annotations

import asyncio
import sys

from dovelane_lanes import AsyncLaneClient, Entry, Job


async def send(job: Job, sent: set[bytes]) -> None:
    """Sends one. What may have been sent before is looked up by its id."""
    if job.redelivered and job.id in sent:
        return
    await asyncio.sleep(0)  # here a real one speaks to a phone
    sent.add(job.id)


async def sender(lanes: AsyncLaneClient, sent: set[bytes]) -> None:
    async with lanes.consumer("notify", lease=30) as consumer:
        async for job in consumer.jobs(10, wait=0.2):
            try:
                await send(job, sent)
            except OSError:
                await consumer.release(job, delay=60, failed=True)
            else:
                await consumer.ack(job)


async def main() -> None:
    nodes = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if len(nodes) < 2:
        sys.exit("notify: name two nodes at least, as a=redis://10.0.0.1:7009")
    sent: set[bytes] = set()
    async with AsyncLaneClient(nodes, copies=2) as lanes:
        texts = [Entry(f"your train is {n} minutes late".encode()) for n in range(50)]
        await lanes.push_many("notify", texts, expire=3600)  # worth nothing in an hour
        later = await lanes.push("notify", b"tomorrow's weather", delay=86400)
        await asyncio.gather(*(sender(lanes, sent) for _ in range(3)))
        (told,) = await lanes.revoke("notify", later)
        print(f"sent {len(sent)}, revoked: {told.state}")


if __name__ == "__main__":
    asyncio.run(main())
