"""Whom the userdb wants to be replicated, and between which sites: its field dovelane_replicate."""
import shutil

import pytest
from site_user import Site, deliver
from support.stack.digest import read, wait_equal
from support.stack.failure import StackError
from support.waiting import eventually

pytestmark = pytest.mark.long

WITHIN = 420.0
ALL, SOME = "all@example.org", "some@example.org"


def start(group, *specs):
    return group(*specs, users=[ALL], anybody=False)


def say(there, value):
    """Of SOME, at all sites."""
    for replica in there.replicas:
        replica.set_users({ALL: "", SOME: f"userdb_dovelane_replicate={value}" if value else ""})


def look(replica, user=SOME):
    """resync, which asks the userdb anew: its answer, or why not."""
    try:
        return replica.doveadm("dovelane", "resync", "-u", user, timeout=240).decode()
    except StackError as error:
        return str(error)


def status(replica, user=SOME):
    try:
        return replica.doveadm("dovelane", "status", "-u", user, timeout=240).decode()
    except StackError as error:
        return str(error)


def names(replica, user=SOME):
    return sorted(m.name for m in read(replica, user).folders["INBOX"].messages.values())


def wait_names(replicas, *wanted, user=SOME):
    for replica in replicas:
        eventually(lambda r=replica: f"{sorted(wanted)} at {r.name}, not {names(r, user)}", lambda r=replica: names(r, user) == sorted(wanted), WITHIN)


def test_one_who_is_not_replicated(group):
    there = start(group, "sdbox", "maildir")
    a, b = there.replicas
    say(there, "no")
    for replica in (a, b):
        assert "dovelane_replicate=no" in look(replica)
        assert "dovelane_replicate=no" in status(replica)
        deliver(replica, SOME, f"at {replica.letter}")
    deliver(a, ALL, "for all")
    wait_names([a, b], "for all", user=ALL)
    assert [names(r) for r in (a, b)] == [["at a"], ["at b"]]
    assert not list(a.home(SOME).rglob("state.db")), "nothing is kept of him"
    # It is said otherwise later: what is there is united.
    say(there, "yes")
    for replica in (a, b):
        eventually(lambda r=replica: status(r), lambda r=replica: "Error" not in look(r), WITHIN)
    wait_equal([a, b], [SOME], WITHIN)
    assert names(a) == ["at a", "at b"]


def test_a_change_is_seen_without_a_word(group):
    """By the sweep of all users, also of one who is always open."""
    there = start(group, "sdbox", "sdbox")
    a, b = there.replicas
    say(there, "")
    deliver(a, SOME, "one")
    wait_equal([a, b], [SOME], WITHIN)
    say(there, "no")
    for replica in (a, b):
        eventually(lambda r=replica: status(r), lambda r=replica: "dovelane_replicate=no" in status(r), WITHIN)
    with Site(a, SOME) as site:
        site.expunge("INBOX", "one")
        site.append("INBOX", "two")
    assert names(b) == ["one"]
    say(there, "")
    wait_equal([a, b], [SOME], WITHIN)
    assert names(b) == ["two"]


def test_one_who_is_at_two_of_three_sites(group):
    there = start(group, "sdbox", "maildir", "sdbox")
    a, b, c = there.replicas
    say(there, "site-b,site-c")
    for replica in there.replicas:
        look(replica)
    assert "he is not replicated at this site" in status(a)
    deliver(b, SOME, "at b")
    deliver(c, SOME, "at c")
    wait_names([b, c], "at b", "at c")
    wait_equal([b, c], [SOME], WITHIN)
    # Site a, the lowest of the group, is asked for nothing: the UIDs are settled without it.
    eventually(lambda: status(b), lambda: all("uids-to-settle=0" in status(r) for r in (b, c)), WITHIN)
    said = " ".join(status(b).split())
    assert "site=1 not-replicated by=dovelane_replicate" in said and "site=3 confirmed" in said
    lag = b.doveadm("dovelane", "lag", "-u", SOME).decode()
    assert [line.split()[2] for line in lag.splitlines() if line.startswith("site-a")] == ["0"]
    assert not a.store(SOME).exists()
    say(there, "site-a,site-b,site-c")
    for replica in there.replicas:
        eventually(lambda r=replica: status(r), lambda r=replica: "Error" not in look(r), WITHIN)
    wait_equal(there.replicas, [SOME], WITHIN)
    assert names(a) == ["at b", "at c"]


def test_a_slip_of_the_pen_is_told(group):
    there = start(group, "sdbox", "sdbox")
    a, _ = there.replicas
    say(there, "site-a,site-x")
    assert "there is no replica site-x in dovelane.conf; yes, no, or some of site-a, site-b" in look(a)
    shutil.rmtree(a.home(SOME), ignore_errors=True)
