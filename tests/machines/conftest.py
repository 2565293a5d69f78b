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


@pytest.fixture(scope="module")
def module_world():
    """The same for all tests of a file, which run in their order there."""
    with machine.World() as made:
        yield made
