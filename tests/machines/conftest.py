import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import machine  # noqa: E402


@pytest.fixture
def world():
    """A network for machines, for one test."""
    with machine.World() as made:
        yield made


def pytest_runtest_logreport(report):
    """A failure is told when it happens: a run takes an hour."""
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}:\n{report.longreprtext}", file=sys.stderr, flush=True)
