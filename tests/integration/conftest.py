"""Fixtures for all tests against real servers."""

import pytest

from support.relay_world import World
from support.stack import Stack


def end_and_look(entry, complaints):
    """Ends the programs first, because sanitizers also speak at the end; then reads the logs, then removes all."""
    try:
        for service in entry.services.values():
            if not service.name.startswith(("dovecot", "postfix")):
                service.end()
        complaints += entry.complaints()
    finally:
        entry.down()


@pytest.fixture
def stack(request):
    """A factory: `stack(postfix="divert", sinks=["a"])` starts one. All are ended with the test, however it ends."""
    started = []

    def start(**shape):
        fresh = Stack(**shape)
        started.append(fresh)
        return fresh.up()

    yield start
    failed = getattr(request.node, "call_failed", False)
    complaints = []
    for entry in reversed(started):
        if failed and entry.mark:
            print(f"\nlogs of {entry.directory}:\n{entry.tails()}")
        end_and_look(entry, complaints)
    assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="module", params=["own", "libmilter"])
def engine(request):
    """For the tests of the milter: each runs with both engines. Other tests have the one that DOVELANE_MILTER_ENGINE names
    (not for test_versions.py: the earlier version has no such setting)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVELANE_MILTER_ENGINE", request.param)
        yield request.param


@pytest.fixture
def world(stack, tmp_path):
    """A factory: a relay with next hops that do as they are told (relay_world.py)."""
    made = []

    def make(**options):
        made.append(World(stack, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call" and outcome.get_result().failed:
        item.call_failed = True
