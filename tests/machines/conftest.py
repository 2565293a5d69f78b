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
