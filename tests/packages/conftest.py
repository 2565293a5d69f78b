"""Booted Debians with the packages of `make deb`. DOVELANE_RELEASE: of which release (default: this host's; another one's packages are
built in a tree of it). DOVELANE_DEBS: where this host's packages are."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "machines")]
import machine  # noqa: E402
import packaged  # noqa: E402
import releases  # noqa: E402

RELEASE = os.environ.get("DOVELANE_RELEASE") or packaged.release_here()


@pytest.fixture(scope="session")
def debs():
    if RELEASE != packaged.release_here():
        return packaged.Debs(releases.built(RELEASE))
    return packaged.Debs(pathlib.Path(os.environ.get("DOVELANE_DEBS", machine.ROOT / "build/deb")))


@pytest.fixture(scope="session")
def bare():
    """A tree with what the packages depend on and stand beside, and nothing of ours."""
    return machine.base_tree(RELEASE, packaged.beside(RELEASE), name="packages")


@pytest.fixture(scope="session")
def old(bare):
    """A tree with 0.1.0."""
    return machine.base_tree(RELEASE, packaged.beside(RELEASE), name="packages-old", prepare=packaged.old_version(RELEASE), key=packaged.OLD)


@pytest.fixture
def world():
    with machine.World() as made:
        yield made
