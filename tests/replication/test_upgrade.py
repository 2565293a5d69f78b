"""A group goes from Dovecot 2.3 to 2.4 site by site, under load, and back: as the guide says, on the same files."""
import conftest
import pytest
from support.stack import digest
from support.stack.journal import Journal
from support.stack.traffic import Traffic, make_folders

pytestmark = pytest.mark.long

WITHIN = 420.0
USERS = [f"u{n}@example.org" for n in range(4)]
# Both ways, and through a group of both versions each time.
STEPS = (("a", "2.4"), ("b", "2.4"), ("a", "2.3"), ("b", "2.3"))


@pytest.mark.parametrize("storage", ["sdbox", "mdbox", "maildir"])
def test_site_by_site_to_another_version_and_back(group, storage):
    conftest.need(f"{storage}@2.4")
    there, journal = group(f"{storage}@2.3", f"{storage}@2.3"), Journal()
    make_folders(there.replicas, USERS)

    def judged():
        agreed = digest.wait_equal(there.replicas, USERS, WITHIN, moving=journal.moving(there.rebuilt))
        complaints = journal.judge({user: next(iter(digests.values())) for user, digests in agreed.items()}, there.rebuilt())
        assert not complaints, "\n".join(complaints[:20])

    for step, (letter, version) in enumerate((("a", "2.3"), *STEPS)):
        if step:
            (site,), (other,) = ([one for one in there.replicas if (one.letter == letter) == is_it] for is_it in (True, False))
            before = journal.acknowledged
            with Traffic([other], USERS, journal, seed=100 + step, run=f"o{step}") as traffic:  # the other one serves meanwhile
                assert traffic.wait(50, 240)
                there.change_version(site, version)
                assert traffic.wait(50, 240)
            assert journal.acknowledged - before >= 100
        with Traffic(there.replicas, USERS, journal, seed=step, run=f"s{step}") as traffic:
            assert traffic.wait(200, 240)
        judged()
        for replica in there.replicas:
            for user in USERS:
                assert "verdict same" in replica.doveadm("dovelane", "verify", "-u", user).decode(), (replica.name, user)
