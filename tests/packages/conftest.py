"""Booted Debians with the packages of `make deb`. DOVELANE_DEBS: where those are; DOVELANE_RELEASE: for which release (default: this host's)."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "machines")]
import machine  # noqa: E402
import packaged  # noqa: E402

RELEASE = os.environ.get("DOVELANE_RELEASE") or packaged.release_here()


@pytest.fixture(scope="session")
def debs():
    return packaged.Debs(pathlib.Path(os.environ.get("DOVELANE_DEBS", machine.ROOT / "build/deb")))


@pytest.fixture(scope="session")
def bare():
    """A tree with what the packages depend on and stand beside, and nothing of ours."""
    return machine.base_tree(RELEASE, packaged.beside(RELEASE), name="packages")


@pytest.fixture
def world():
    with machine.World() as made:
        yield made
