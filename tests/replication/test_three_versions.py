"""Three sites, each with another version of Dovecot, as while a group is upgraded. What clients do
at each of them, apart and together, under kills too, ends equal at all."""
import random

import pytest
from site_user import Site
from support.modseqs import wait_alike
from support.stack import digest
from support.stack.digest import wait_equal, wait_same_uids
from support.stack.group import STORAGES, installed
from support.stack.journal import Journal
from support.stack.traffic import Traffic, make_folders
from test_clients import QresyncClient, change_something
from test_kill import VICTIMS, hit, judged
from test_soak import Partition

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "three@example.org"
USERS = [f"v{n}@example.org" for n in range(4)]


def three():
    """The whole names of three versions that are here ("2.4.1"); fewer where there are no three."""
    return [name for name in installed() if name.count(".") == 2][:3]


@pytest.fixture(name="there", params=range(3), ids=lambda turn: f"{STORAGES[turn]}-first")
def started(request, group):
    """A group of the three versions, each with another storage; turns show all pairs of both."""
    versions = three()
    if len(versions) < 3:
        pytest.skip(f"there is no third Dovecot beside {' and '.join(versions)}: "
                    "DOVELANE_TRIXIE_ROOT, DOVELANE_FORKY_ROOT name root directories of Debian 13 "
                    "and 14")
    storages = [*STORAGES, *STORAGES][request.param:]
    made = group(*(f"{storage}@{version}" for storage, version in zip(storages, versions)))
    assert [replica.note["version"] for replica in made.replicas] == versions
    return made


def sites(there):
    return [Site(replica, USER) for replica in there.replicas]


def begin(there):
    """INBOX with m0 to m5, and the folders F, D and E, at all sites."""
    with Site(there.replicas[0], USER) as site:
        for n in range(6):
            site.append("INBOX", f"m{n}")
        for folder in "FDE":
            site.create(folder)
        site.append("F", "f")
        site.append("D", "d")
    wait_same_uids(there.replicas, USER, WITHIN)


def test_changes_of_each_site_reach_the_others(there):
    """One site after the other makes a change of each kind; the folder F is renamed by all."""
    begin(there)
    folder, shape = "F", {"INBOX": {f"m{n}": [()] for n in range(6)}, "F": {"f": [()]},
                          "D": {"d": [()]}, "E": {}}
    for n, site in enumerate(sites(there)):
        with site:
            name = site.replica.letter
            site.append("INBOX", name, "\\Flagged", "kw")
            site.flag("INBOX", f"m{n}", "+", "\\Seen", f"k{n}")
            site.copy("INBOX", f"m{n}", folder)
            site.move("INBOX", f"m{3 + n}", folder)
            site.annotate("INBOX", f"/private/{name}", f"by {name}")
            site.rename(folder, f"G/{name}")
            site.subscribe(f"G/{name}")
        inbox, moved = shape["INBOX"], shape.pop(folder)
        folder = f"G/{name}"
        inbox[name], inbox[f"m{n}"] = [("\\flagged", "kw")], [("\\seen", f"k{n}")]
        moved[f"m{n}"], moved[f"m{3 + n}"] = [("\\seen", f"k{n}")], inbox.pop(f"m{3 + n}")
        shape[folder] = moved
        shown = wait_same_uids(there.replicas, USER, WITHIN)
        for replica, found in shown.items():
            assert found.shape() == shape, replica
    with Site(there.replicas[2], USER) as site:
        site.delete("D")
        site.expunge("INBOX", "m0")
    shape.pop("D")
    shape["INBOX"].pop("m0")
    for replica, found in wait_same_uids(there.replicas, USER, WITHIN).items():
        assert found.shape() == shape, replica


def test_conflicts_while_all_are_apart_and_one_dies(there):
    """UIDs, flags, names and deletions that contradict; the site of each version in turn is killed
    before the network heals. Adds win, each mail is there once, and its UID is one everywhere."""
    for n, dead in enumerate(there.replicas):
        user = f"t{n}@example.org"
        a, b, c = made = [Site(replica, user) for replica in there.replicas]
        with a, b, c:
            for name in "mno":
                a.append("INBOX", name)
            a.flag("INBOX", "m", "+", "\\Seen")
            for folder in ("F", "D"):
                a.create(folder)
                a.append(folder, folder)
            wait_same_uids(there.replicas, user, WITHIN)
            there.cut()
            for site in made:
                site.append("INBOX", f"x{site.replica.letter}")
                site.flag("INBOX", "n", "+", f"k{site.replica.letter}")
                site.rename("F", f"F{site.replica.letter}")
            a.flag("INBOX", "m", "-", "\\Seen")
            b.flag("INBOX", "m", "+", "\\Flagged")
            b.expunge("INBOX", "o")
            c.flag("INBOX", "o", "+", "\\Seen")
            a.delete("D")
            c.append("D", "late")
        there.kill(f"redis-{dead.letter}")
        dead.kill()
        there.heal()
        there.start(f"redis-{dead.letter}")
        there.start(dead.name)
        shown = wait_same_uids(there.replicas, user, WITHIN)
        shape = shown[dead.name].shape()
        assert shape.pop("INBOX") == {
            "m": [("\\flagged",)], "n": [("ka", "kb", "kc")],
            **{f"x{name}": [()] for name in "abc"}}
        assert shape.pop("D") == {"late": [()]}
        (renamed, mails), = shape.items()
        assert renamed in ("Fa", "Fb", "Fc") and mails == {"F": [()]}, shape


def test_a_qresync_client_that_hops_between_versions(there):
    """It is told of each change by the site it comes to, whatever version told it the last ones."""
    dice, client, expunged = random.Random(9), QresyncClient(), set()
    with Site(there.replicas[0], USER) as site:
        for n in range(20):
            site.append("INBOX", f"m{n}")
    wait_same_uids(there.replicas, USER, WITHIN)
    for turn in range(9):
        there.cut()
        for replica in there.replicas:
            with Site(replica, USER) as site:
                change_something(site, dice, f"{replica.letter}{turn}")
        there.heal()
        wait_same_uids(there.replicas, USER, WITHIN)
        wait_alike(there.replicas, USER, WITHIN)
        replica = there.replicas[(turn + turn // 3) % 3]
        with replica.imap(USER) as session:
            vanished = client.visit(session)
            true = {uid: (name, digest.flags_of(items[b"FLAGS"]))
                    for name, uids in session.uids("INBOX").items() for uid in uids
                    for _, items in session.fetch(uid, "FLAGS")}
        where = f"turn {turn}, at {replica.name} ({replica.note['version']})"
        assert not vanished & true.keys(), f"{where}: told that {vanished & true.keys()} are gone"
        assert {uid: client.known.get(uid) for uid in true} == true, where
        for uid, (name, _) in true.items():
            assert client.ever.setdefault(uid, name) == name, f"{where}: UID {uid} named two mails"
        expunged |= vanished
        client.known = {uid: seen for uid, seen in client.known.items() if uid in true}
    assert expunged, "nothing was told gone: this test shows nothing"


def test_traffic_partitions_and_kills(there):
    """Clients at all three, one kill of each kind, half of them while all are apart."""
    dice, journal = random.Random(7), Journal()
    make_folders(there.replicas, USERS)
    for part, victims in enumerate((VICTIMS[::2], VICTIMS[1::2])):
        with Traffic(there.replicas, USERS, journal, seed=part, run=f"p{part}") as traffic:
            assert traffic.wait(80, 240)
            partition = Partition(there, dice, journal, "cut") if part else None
            for victim in victims:
                assert traffic.wait(40, 240)
                hit(there, dice, victim)
            assert traffic.wait(80, 240)
        if partition:
            partition.heal()
        judged(there, USERS, journal)
    assert not there.logs("dovelane.*modseq tracking is corrupted", 5)
    for replica in there.replicas:
        for user in USERS:
            said = replica.doveadm("dovelane", "verify", "-u", user).decode()
            assert "verdict same" in said, (replica.name, user, said)


def test_a_site_goes_through_all_versions(there):
    """On its own files, while the others serve; the last step is one back."""
    site, journal = there.replicas[0], Journal()
    make_folders(there.replicas, USERS)
    for step, version in enumerate((*three()[1:], three()[0])):
        others = [replica for replica in there.replicas if replica.letter != site.letter]
        with Traffic(others, USERS, journal, seed=step, run=f"o{step}") as traffic:
            assert traffic.wait(50, 240)
            site = there.change_version(site, version)
            assert traffic.wait(50, 240)
        with Traffic(there.replicas, USERS, journal, seed=10 + step, run=f"s{step}") as traffic:
            assert traffic.wait(100, 240)
        judged(there, USERS, journal)
    wait_equal(there.replicas, USERS, WITHIN)
