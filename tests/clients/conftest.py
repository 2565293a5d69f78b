"""Three real servers with lane.so, and clients of clients/python for them."""
import asyncio
import os
import shlex
import shutil
import signal
import sys
import time

import pytest

from support import lane_server
from support.lane_server import ROOT, LaneServer

PACKAGE = ROOT / "clients" / "python"
sys.path.insert(0, str(PACKAGE / "src"))
pytest.importorskip("redis", reason="python3-redis is not installed")

from dovelane_lanes import AsyncLaneClient, LaneClient  # noqa: E402

NAMES = ("a", "b", "c")
# Short, so that tests need not wait for long; what must not come before has a longer one.
QUICK = {"takeover": 0.3, "timeout": 10.0, "retry_after": 0.1, "poll": 0.1}


def pytest_generate_tests(metafunc):
    """Tests that name `product` run with each server that this host has, or with the one named."""
    if "product" in metafunc.fixturenames:
        named = os.environ.get("DOVELANE_REDIS_SERVER")
        found = [named] if named else [name for name in ("redis-server", "valkey-server")
                                       if shutil.which(name)]
        metafunc.parametrize("product", found)


class Nodes(dict):
    """The servers by name."""

    def urls(self, *only):
        return {name: f"unix://{self[name].path}" for name in only or self}

    def client(self, *only, **more):
        return LaneClient(self.urls(*only), **(QUICK | more))

    def async_client(self, *only, **more):
        return AsyncLaneClient(self.urls(*only), **(QUICK | more))

    def held(self, lane="q"):
        """Bodies by node, of those that live."""
        return {name: [e[6].decode() for e in server.client().read(lane)]
                for name, server in self.items() if server.process.poll() is None}


@pytest.fixture
def nodes(tmp_path):
    made = Nodes()
    try:
        for name in NAMES:
            made[name] = LaneServer(tmp_path, "--appendonly", "no", name=name).start()
        yield made
    finally:
        for server in made.values():
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)  # a test may have failed before
            server.stop()


@pytest.fixture
def products(product, monkeypatch):
    monkeypatch.setattr(lane_server, "SERVER", shlex.split(product))


@pytest.fixture
def run():
    """Runs a coroutine, with a guard against hanging."""
    return lambda coroutine, seconds=120: asyncio.run(asyncio.wait_for(coroutine, seconds))


def taken(consumer, count=100, seconds=20):
    """The first jobs that come; a guard against hanging."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := consumer.take(count, wait=1):
            return found
    raise AssertionError("nothing came")
