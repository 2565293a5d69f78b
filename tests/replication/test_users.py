"""Users come and go: `doveadm dovelane forget`, and who is made again under the name of one who was forgotten.

Nothing of the former one comes to the present one, whatever a site that was away, a lane or an old home still has of him; and no mail is
removed by it."""
import re
import shutil
from pathlib import Path

import pytest
from peer_by_hand import Hand, told_in
from site_user import Site, deliver
from support.frames import RETIRE, RETIRED
from support.stack import resp
from support.stack.digest import read, wait_equal
from support.stack.failure import StackError
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

WITHIN = 420.0
USER, STAYS = "carl@example.org", "stays@example.org"
BLOCKED = "his mailboxes here are those of the user of this name who was forgotten"


def start(group, *specs, **how):
    return group(*specs, users=[USER, STAYS], anybody=False, **how)


def set_users(there, *users):
    for replica in there.replicas:
        replica.set_users(users)


def dovelane(replica, *words):
    return replica.doveadm("dovelane", *words, timeout=240).decode()


def refused(replica, *words):
    with pytest.raises(StackError) as raised:
        dovelane(replica, *words)
    return str(raised.value).partition(": exit ")[2]


def names(replica, user=USER, folder="INBOX"):
    folders = read(replica, user).folders
    return sorted(m.name for m in folders[folder].messages.values()) if folder in folders else []


def wait_names(replicas, *wanted, user=USER):
    for replica in replicas:
        eventually(lambda r=replica: f"{sorted(wanted)} at {r.name}, not {names(r, user)}", lambda r=replica: names(r, user) == sorted(wanted), WITHIN)


def is_known(replica, user=USER):
    return user in dovelane(replica, "status", "-A")


def wait_told(replica):
    """No other site is left that does not know."""
    eventually(lambda: dovelane(replica, "forget"), lambda: USER not in dovelane(replica, "forget"), WITHIN)


def fill(there):
    """The former user: mails and a folder at both sites."""
    a, b = there.replicas[:2]
    with Site(a, USER) as site:
        site.append("INBOX", "old one")
        site.create("Work")
        site.append("Work", "old work")
        site.subscribe("Work")
    wait_equal(there.replicas, [USER], WITHIN)
    with Site(b, USER) as site:
        site.append("INBOX", "old two", "\\Flagged")
    wait_equal(there.replicas, [USER], WITHIN)


def take_home(replica, user=USER):
    """As an admin does who keeps it for a while."""
    away = replica.home(user).with_name("away-" + replica.home(user).name)
    replica.home(user).rename(away)
    return away


def remove(there, user=USER, homes=True):
    set_users(there, STAYS)
    for replica in there.replicas if homes else []:
        eventually(lambda r=replica: not r.home(user).exists() or shutil.rmtree(r.home(user)) is None, seconds=WITHIN)


def test_of_an_unknown_user_nothing_is_forgotten(group):
    a, _ = start(group, "sdbox", "maildir").replicas
    assert "nothing is kept of him here" in refused(a, "forget", "-u", "nobody@example.org")
    assert "no user has such a name" in refused(a, "forget", "-u", "a/b")
    assert "needs a user" in refused(a, "forget", "--force")
    dovelane(a, "forget")
    deliver(a, STAYS, "one")
    wait_names([a], "one", user=STAYS)


def test_a_living_user_is_not_forgotten_unless_it_is_said(group):
    there = start(group, "sdbox", "maildir")
    a, b = there.replicas
    fill(there)
    words = refused(a, "forget", "-u", USER)
    assert "the userdb has this user" in words and "--force" in words
    with Site(b, USER) as site:
        site.append("INBOX", "goes on")
    wait_equal(there.replicas, [USER], WITHIN)
    # Said, though he lives: nothing of him is replicated any more, and no mail goes.
    had = names(a)
    dovelane(a, "forget", "-u", USER, "--force")
    wait_told(a)
    for replica in (a, b):
        eventually(lambda r=replica: BLOCKED in refused(r, "status", "-u", USER), seconds=WITHIN)
    with Site(b, USER) as site:
        site.append("INBOX", "alone")
    logged(b.log, BLOCKED)
    assert names(a) == had and "alone" not in names(a) and names(b) == sorted([*had, "alone"])
    # The way out: the mailboxes are his, and without their old states the sites unite them.
    for replica in (a, b):
        shutil.rmtree(next(replica.store(USER).rglob("dovelane")))
        eventually(lambda r=replica: "resync" not in dovelane(r, "resync", "-u", USER), seconds=WITHIN)
    wait_equal(there.replicas, [USER], WITHIN)
    assert names(a) == sorted([*had, "alone"])


@pytest.mark.parametrize("formats", [("sdbox", "maildir"), ("mdbox", "sdbox")], ids="-".join)
def test_who_is_made_again_begins_with_nothing(group, formats):
    there = start(group, *formats)
    a, b = there.replicas
    fill(there)
    remove(there)
    assert "site-a" in dovelane(a, "forget", "-u", USER)
    wait_told(a)
    assert not is_known(a)
    eventually(lambda: not is_known(b), seconds=WITHIN)
    assert "nothing is kept of him here" in refused(a, "forget", "-u", USER)
    set_users(there, STAYS, USER)
    deliver(a, USER, "new at a")
    deliver(b, USER, "new at b")
    wait_names(there.replicas, "new at a", "new at b")
    found = wait_equal(there.replicas, [USER], WITHIN)[USER]
    assert all("Work" not in digest.folders for digest in found.values())
    with Site(b, USER) as site:
        site.expunge("INBOX", "new at a")
    wait_names(there.replicas, "new at b")


def test_made_again_on_both_while_they_are_apart(group):
    there = start(group, "sdbox", "mdbox")
    a, b = there.replicas
    fill(there)
    remove(there)
    dovelane(b, "forget", "-u", USER)
    wait_told(b)
    there.cut()
    set_users(there, STAYS, USER)
    for replica in (a, b):
        deliver(replica, USER, f"new at {replica.letter}")
        with Site(replica, USER) as site:
            site.create("Work")
            site.append("Work", f"work at {replica.letter}")
    there.heal()
    wait_equal(there.replicas, [USER], WITHIN)
    assert names(a) == ["new at a", "new at b"] and names(a, folder="Work") == ["work at a", "work at b"]


def old_ones_at_b(there, while_away=()):
    """b goes away with the former user's home; he is removed, forgotten and made again meanwhile."""
    a, b = there.replicas
    fill(there)
    there.end(b.name)
    for name in while_away:     # stays in the lane to b
        deliver(a, USER, name)
    if while_away:
        eventually(lambda: dovelane(a, "lag"), lambda: int(re.search(r"site-b\s+2\s+\d+\s+(\d+)", dovelane(a, "lag"))[1]) > 0, WITHIN)
    a.set_users([STAYS])
    shutil.rmtree(a.home(USER))
    assert "learns it when it is back" in dovelane(a, "forget", "-u", USER) or USER in dovelane(a, "forget")
    set_users(there, STAYS, USER)
    deliver(a, USER, "new one")
    wait_names([a], "new one")
    return a, b


@pytest.mark.parametrize("formats", [("sdbox", "maildir"), ("maildir", "sdbox")], ids="-".join)
def test_forgotten_while_a_site_is_away(group, formats):
    """Its mailboxes are the former user's. It neither gives them to the present one, nor has his mails removed; and an admin is told."""
    there = start(group, *formats)
    a, b = old_ones_at_b(there, ["old three"])
    there.start(b.name)
    logged(b.log, BLOCKED)
    wait_told(a)
    assert not is_known(b) and BLOCKED in refused(b, "status", "-u", USER)
    deliver(b, USER, "for the new one")     # which is in the old home now
    with Site(a, USER) as site:
        site.append("INBOX", "new two")
    logged(b.log, BLOCKED, 2)
    assert names(a) == ["new one", "new two"]
    assert {"old one", "old two", "for the new one"} <= set(names(b)) and "new one" not in names(b)
    # The way out: the old home goes, and what came meanwhile is put into the new one.
    away = take_home(b)
    dovelane(b, "resync", "-u", USER)
    wait_equal(there.replicas, [USER], WITHIN)
    assert names(a) == names(b) == ["new one", "new two"]
    form = "maildir" if formats[1] == "maildir" else "sdbox"
    b.doveadm("import", "-u", USER, f"{form}:{away}/{form}", "back", "HEADER", "X-Mail", "for the new one")
    wait_equal(there.replicas, [USER], WITHIN)
    assert any("for the new one" in [m.name for m in f.messages.values()] for f in read(a, USER).folders.values())


def test_what_lay_in_a_lane_is_not_the_present_users(group):
    """The site that was away has no home of the former user's any more, but what was sent to it meanwhile."""
    there = start(group, "sdbox", "maildir")
    a, b = old_ones_at_b(there, ["old three", "old four"])
    shutil.rmtree(b.home(USER))
    there.start(b.name)
    wait_names(there.replicas, "new one")
    wait_told(a)
    deliver(b, USER, "new two")
    wait_names(there.replicas, "new one", "new two")
    wait_equal(there.replicas, [USER], WITHIN)


def test_the_old_mailboxes_are_kept_for_the_present_user(group):
    """An admin says so by removing the state alone."""
    there = start(group, "sdbox", "maildir")
    a, b = old_ones_at_b(there)
    there.start(b.name)
    logged(b.log, BLOCKED)
    shutil.rmtree(b.store(USER) / "dovelane")
    dovelane(b, "resync", "-u", USER)
    wait_names(there.replicas, "new one", "old one", "old two")
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_third_site_hears_of_it_from_the_second(group):
    there = start(group, "sdbox", "sdbox", "sdbox")
    a, b, c = there.replicas
    fill(there)
    there.end(c.name)
    remove(there, homes=False)
    dovelane(a, "forget", "-u", USER)
    logged(b.log, "was forgotten at replica site-a")
    there.end(a.name)       # and what it sent to c
    there.end("redis-a")
    for replica in (a, b):
        shutil.rmtree(replica.home(USER))
    set_users(there, STAYS, USER)
    deliver(b, USER, "new one")
    there.start(c.name)
    logged(c.log, "was forgotten at replica site-b")
    logged(c.log, BLOCKED)
    assert names(b) == ["new one"]
    there.start("redis-a")
    there.start(a.name)
    wait_names([a, b], "new one")
    shutil.rmtree(c.home(USER))
    dovelane(c, "resync", "-u", USER)
    wait_names(there.replicas, "new one")


def test_where_the_userdb_answers_for_every_name(group):
    """static: he is forgotten first, and then the homes go, one after the other; none is fetched back."""
    there = group("sdbox", "maildir")
    a, b = there.replicas
    fill(there)
    assert "--force" in refused(a, "forget", "-u", USER)
    dovelane(a, "forget", "-u", USER, "--force")
    wait_told(a)
    shutil.rmtree(a.home(USER))
    dovelane(a, "resync", "-u", USER)
    assert names(a) == []
    shutil.rmtree(b.home(USER))
    deliver(b, USER, "new one")
    wait_names(there.replicas, "new one")
    assert not any("old" in str(path) for path in Path(a.home(USER)).rglob("*"))


def test_who_is_renamed_keeps_his_mails_and_leaves_nothing_behind(group):
    there = start(group, "sdbox", "maildir")
    a, b = there.replicas
    fill(there)
    fresh = "karl@example.org"
    set_users(there, STAYS)
    for replica in (a, b):
        replica.home(USER).rename(replica.home(fresh))
    before = None
    set_users(there, STAYS, fresh)
    dovelane(a, "forget", "-u", USER)
    wait_told(a)
    deliver(a, fresh, "as karl")
    before = wait_equal(there.replicas, [fresh], WITHIN)[fresh]
    assert all(sorted(m.name for m in digest.folders["INBOX"].messages.values()) == ["as karl", "old one", "old two"] for digest in before.values())
    set_users(there, STAYS, fresh, USER)
    deliver(b, USER, "another carl")
    wait_names(there.replicas, "another carl")
    wait_equal(there.replicas, [USER, fresh], WITHIN)


def test_the_lane_to_a_site_that_is_away_does_not_grow_with_time(group):
    """He is told of once, and again when the lane was lost."""
    there = start(group, "sdbox", "maildir")
    a, b = there.replicas
    fill(there)
    there.end(b.name)
    remove(there)
    dovelane(a, "forget", "-u", USER)
    with resp.Connection(there["redis-a"].note["address"]) as redis:
        def told():
            return len(told_in(redis, "a", "b", RETIRE, USER))

        def turns(n):       # each is as long as the longest wait until one is told again
            begun = Path(a.log).read_text().count("swept: ")
            logged(a.log, "swept: ", begun + n)
        turns(4)    # by then it is known that nobody takes
        before = told()
        turns(6)
        assert told() == before > 0
        redis.call("FLUSHALL")
        eventually("he is told of again", lambda: told() > 0, WITHIN)
    there.start(b.name)
    wait_told(a)
    logged(b.log, "was forgotten at replica site-a")


def test_many_who_were_forgotten_are_told_of_in_parts(group):
    """By a site that heard of them; the lane to the third one is lost before that takes any."""
    there = group("sdbox", "sdbox", "sdbox")
    a, b, c = there.replicas
    deliver(b, STAYS, "one")
    wait_names(there.replicas, "one", user=STAYS)
    there.end(a.name)
    there.end(c.name)
    hand, many = Hand(there, STAYS), [f"gone{n}@example.org" for n in range(700)]
    for name in many:
        hand.retire((1, 0x77), user=name)
    eventually("all are written down", lambda: hand.was_told(RETIRED, many[-1]), WITHIN)
    with resp.Connection(there["redis-b"].note["address"]) as redis:
        redis.call("FLUSHALL")
    there.start(c.name)
    eventually(lambda: dovelane(b, "forget")[-300:],
               lambda: "site-c" not in dovelane(b, "forget"), WITHIN)
    assert Path(c.log).read_text().count("was forgotten at replica site-b") == len(many)
