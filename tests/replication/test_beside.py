"""What stock `doveadm sync` does in the scenarios that are no rows of the table: three sites, a dead one, damage, an old backup.

It goes into the report (build/replication-beside.txt), whatever it does. What Dovelane does there, test_three.py, test_damage.py and test_power.py show.
"""
import conftest
import pytest
from site_user import Site
from support.stack import digest
from support.stack.imap import Lost
from test_damage import indexes, mails, store, uidlist

pytestmark = pytest.mark.long

USER = "beside@example.org"
THREE = ("sdbox", "mdbox", "maildir")
ALL = {f"m{n}" for n in range(8)}


@pytest.fixture
def dsync(group):
    return lambda *specs: group(*specs, replication="dsync")


def append(replica, *names):
    with Site(replica, USER) as site:
        for name in names:
            site.append("INBOX", name)


def told_of(replica, wanted):
    """What one site shows of what it should."""
    for again in (True, True, False):   # a dbox that finds its files gone is rebuilt, for the next session
        try:
            shown = digest.read(replica, USER).shape().get("INBOX", {})
            break
        except Lost as lost:
            if not again:
                return f"cannot be read: {lost}"
    found = {name: len(copies) for name, copies in shown.items()}
    lost, back = sorted(wanted - found.keys()), sorted(found.keys() - wanted)
    doubled = sorted(name for name, times in found.items() if times > 1)
    words = [f"{what} {' '.join(names)}" for what, names in (("LOST:", lost), ("came back:", back), ("doubled:", doubled)) if names]
    return ", ".join(words) or "as wanted"


def tell(scenario, group, wanted, more=""):
    shown = {replica.letter: told_of(replica, wanted) for replica in group.replicas if replica.alive()}
    words = next(iter(shown.values())) if len(set(shown.values())) == 1 else "; ".join(f"at {letter}: {words}" for letter, words in shown.items())
    conftest.beside(scenario, " ".join(f"{replica.note['storage']}@{replica.note['version']}" for replica in group.replicas), words + more)


def test_three_sites_five_appends_each(dsync):
    there = dsync(*THREE)
    append(there.replicas[0], "first")
    there.sync_all(USER, rounds=2)
    for replica in there.replicas:
        append(replica, *(f"{replica.letter}{n}" for n in range(5)))
    rounds = 0
    while rounds < 4 and (not rounds or digest.compare(there.replicas, USER, uids=False)[0]):
        there.sync_all(USER)
        rounds += 1
    digests = {replica.name: digest.read(replica, USER) for replica in there.replicas}
    equal, total = digest.same_uids(digests)
    tell("three sites, five appends each while apart", there, {"first", *(f"{letter}{n}" for letter in "abc" for n in range(5))},
         f", after {rounds} rounds, {equal} of {total} with one UID")


def test_a_dies_after_b_has_its_mail_and_c_has_not(dsync):
    there = dsync(*THREE)
    a, b, c = there.replicas
    append(a, "first")
    there.sync_all(USER, rounds=2)
    append(a, "last")
    there.sync(a, b, USER)
    a.kill()
    there.sync(b, c, USER)
    tell("A dies after B has its mail and C has not", there, {"first", "last"})


@pytest.mark.parametrize("damage", [indexes, uidlist, mails, store], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("storage", ["sdbox", "mdbox", "maildir"])
def test_what_is_gone_at_a(dsync, storage, damage):
    there = dsync(storage, "sdbox")
    a, b = there.replicas
    append(a, *sorted(ALL))
    there.sync_all(USER, rounds=2)
    damage(a, USER)
    codes = [there.sync(a, b, USER)[0] for _ in range(2)]
    there.sync(a, b, USER, stateful=False, options=("-f",))
    tell(f"damage: {damage.__name__} of A gone", there, ALL, f" (exit codes {codes[0]} {codes[1]}, then -f)")


@pytest.mark.parametrize("storage", ["sdbox", "mdbox", "maildir"])
def test_an_old_backup(dsync, storage):
    there = dsync(storage, "sdbox")
    a, b = there.replicas
    append(a, *sorted(ALL))
    there.sync_all(USER, rounds=2)
    kept = a.snapshot(USER)
    with Site(a, USER) as site:
        site.expunge("INBOX", "m1")
        site.append("INBOX", "since")
    there.sync_all(USER, rounds=2)
    a.restore(kept)
    for _ in range(2):
        there.sync(a, b, USER)
    there.sync(a, b, USER, stateful=False, options=("-f",))
    tell("A's home restored from an old backup", there, ALL - {"m1"} | {"since"})
