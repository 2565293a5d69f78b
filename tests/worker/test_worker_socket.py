"""Who may speak with a worker: root, and the user whose the socket is. It hands out every user's mail."""
import os

import pytest
from worker_sites import make_world, needs_dovecot
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]
REPLICATORS, ANOTHER = 12346, 12345


@pytest.fixture
def site(tmp_path_factory):
    """Its socket belongs to the replicator's user, and is open to all: as a slip in the configuration leaves it."""
    world = make_world(tmp_path_factory, ["sdbox"])
    path = world[1].base / "run" / "dovelane-worker"
    for part in (world[1].base, path.parent):
        part.chmod(0o755)
    os.chown(path, REPLICATORS, REPLICATORS)
    path.chmod(0o666)
    yield world[1]
    world.stop()


def opens_a_user_as(site, uid):
    """Whether the worker does what is asked of it by a process of that user."""
    site.disconnect()
    os.seteuid(uid)
    try:
        site.connect()
    finally:
        os.seteuid(0)
    try:
        site.ensure()
        return True
    except (Failed, ConnectionError):
        return False


@pytest.mark.test
def test_root_and_the_sockets_owner_alone_are_let_in(site):
    assert opens_a_user_as(site, 0)
    assert opens_a_user_as(site, REPLICATORS)
    assert not opens_a_user_as(site, ANOTHER)
    assert site.said(f"uid {ANOTHER}, process {os.getpid()}, connected and was sent away")
    assert opens_a_user_as(site, REPLICATORS)
