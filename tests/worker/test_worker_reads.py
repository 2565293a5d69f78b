"""Who only asks what there is of a user makes nothing: no state, no mailbox, no home."""
import pytest
from worker_sites import append, make_world, needs_dovecot
from support.worker_world import Failed, USER

pytestmark = needs_dovecot

NOBODY = "nobody-yet@example.org"


@pytest.fixture
def site(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox"])
    yield world[1]
    world.stop()


def everything(site):
    return sorted(str(path) for path in (site.base / "mail").rglob("*"))


def test_a_user_without_a_state_is_opened_for_work_only(site):
    before = everything(site)
    with pytest.raises(Failed, match="permanent=1 nothing of this user was replicated here yet"):
        site.open(NOBODY, existing=True)
    assert everything(site) == before
    site.disconnect()
    assert site.open(NOBODY)
    assert any("nobody-yet" in path and path.endswith("state.db") for path in everything(site))


def test_a_user_with_a_state_is_opened_for_both(site):
    append(site, "INBOX", "m")
    site.ingest()
    site.disconnect()
    assert site.open(USER, existing=True)
    assert site.admin("verify")[-1] == "verdict\tsame"


def test_a_user_whom_the_userdb_does_not_know(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox"], ids={USER: 12345})
    try:
        site = world[1]
        before = everything(site)
        for ask in (lambda: site.lookup(NOBODY), lambda: site.open(NOBODY, existing=True)):
            with pytest.raises(Failed, match="no such user"):
                ask()
            site.disconnect()
        assert everything(site) == before
    finally:
        world.stop()
