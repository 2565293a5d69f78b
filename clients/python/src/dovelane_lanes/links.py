"""Connections to nodes, by redis-py: all that this package has of it is here.

redis-py tries nothing again: a push goes to another node instead, and a take to the next one.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff

from . import wire
from .group import Answer, Unreachable

# redis-py has no types before release 5.
_SYNC: Any = redis.Redis
_ASYNC: Any = redis.asyncio.Redis
_SYNC_RETRY: Any = getattr(redis, "retry").Retry
_ASYNC_RETRY: Any = getattr(redis.asyncio, "retry").Retry
_NO_BACKOFF: Any = NoBackoff


def _options(url: str, timeout: float, extra: dict[str, Any], takes: bool, retry: Any,
             ) -> dict[str, Any]:
    given = {"socket_timeout": timeout, "retry": retry}
    if not url.startswith("unix:"):  # such a connection has no time to wait for
        given |= {"socket_connect_timeout": timeout, "socket_keepalive": True}
    # Leases belong to one connection: a second one would never see the first one's end.
    return given | extra | ({"max_connections": 1} if takes else {}) | {"decode_responses": False}


def _values(replies: Sequence[Any]) -> list[wire.Reply]:
    return [wire.Refusal(_text(each)) if isinstance(each, Exception) else each for each in replies]


def _text(error: Exception) -> str:
    """As the server wrote it: redis-py cuts the first word off where it has a class for it."""
    word = {"NoPermissionError": "NOPERM", "ReadOnlyError": "READONLY",
            "OutOfMemoryError": "OOM"}.get(type(error).__name__, "")
    text = str(error)
    return f"{word} {text}" if word and not text.startswith(word) else text


def _failure(error: Exception, timeout: float) -> Unreachable:
    said = str(error).rstrip(".") or type(error).__name__
    if isinstance(error, redis.exceptions.AuthenticationError) or said.startswith("WRONGPASS"):
        return Unreachable(f"the server refuses user and password: {said}", sent=False)
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return Unreachable("LOADING: the server reads its file", sent=False)
    if isinstance(error, (redis.exceptions.TimeoutError, TimeoutError)):
        return Unreachable(f"no answer within {timeout:g} s")
    return Unreachable(said)


FAILURES = (redis.exceptions.RedisError, OSError, TimeoutError)


class SyncLink:
    """One node's connections, for threads. `opened` is called for each new one: redis-py opens it
    by itself where the server ended the one before."""

    def __init__(self, url: str, timeout: float, extra: dict[str, Any], takes: bool,
                 opened: Callable[[], None]) -> None:
        def connected(connection: Any) -> None:
            connection.on_connect()
            opened()

        self.timeout = timeout
        options = _options(url, timeout, extra, takes, _SYNC_RETRY(_NO_BACKOFF(), 0))
        self.redis = _SYNC.from_url(url, redis_connect_func=connected, **options)

    def ask(self, commands: Sequence[wire.Command]) -> Answer:
        try:
            with self.redis.pipeline(transaction=False) as pipe:
                for words in commands:
                    pipe.execute_command(*words)
                return _values(pipe.execute(raise_on_error=False))
        except FAILURES as error:
            return _failure(error, self.timeout)
        except BaseException:  # a signal's: the rest of an answer must not be the next one's
            self.close()
            raise

    def close(self) -> None:
        self.redis.connection_pool.disconnect()


class AsyncLink:
    """The same for asyncio."""

    def __init__(self, url: str, timeout: float, extra: dict[str, Any], takes: bool,
                 opened: Callable[[], None]) -> None:
        async def connected(connection: Any) -> None:
            if not hasattr(connection, "host"):  # redis-py 4 names both when a socket's peer ends
                connection.host, connection.port = connection.path, 0
            await connection.on_connect()
            opened()

        self.timeout = timeout
        options = _options(url, timeout, extra, takes, _ASYNC_RETRY(_NO_BACKOFF(), 0))
        self.redis = _ASYNC.from_url(url, redis_connect_func=connected, **options)

    async def ask(self, commands: Sequence[wire.Command]) -> Answer:
        try:
            async with self.redis.pipeline(transaction=False) as pipe:
                for words in commands:
                    pipe.execute_command(*words)
                return _values(await pipe.execute(raise_on_error=False))
        except FAILURES as error:
            return _failure(error, self.timeout)

    async def close(self) -> None:
        await self.redis.connection_pool.disconnect()
