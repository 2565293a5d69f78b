"""Queues on several Redis or Valkey servers with lane.so: an entry is stored on n of them.

LaneClient and AsyncLaneClient push, revoke, and make consumers, which take, ack, release, bury and
extend. README.md says what holds when a node dies.
"""
from .aio import AsyncConsumer, AsyncLaneClient
from .client import Consumer, LaneClient
from .errors import (Failure, LaneError, LaneFull, LeaseLost, NoMemory, NoNode, NotStored, Refused)
from .model import Entry, Job, Revoked, new_id

__all__ = [
    "AsyncConsumer", "AsyncLaneClient", "Consumer", "Entry", "Failure", "Job", "LaneClient",
    "LaneError", "LaneFull", "LeaseLost", "NoMemory", "NoNode", "NotStored", "Refused", "Revoked",
    "new_id",
]
__version__ = "0.2.0"
