"""What a peer sends that no peer of this version and good will sends. The other site takes nothing by half, says why, and goes on."""
import re
import shutil
import time
from pathlib import Path

import conftest
import pytest
from peer_by_hand import Hand
from site_user import Site
from support.frames import RETIRE, RETIRED, u64
from support.stack.digest import read, wait_equal, wait_shape
from support.stack.failure import StackError
from support.stack.group import Group
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

WITHIN = 420.0
OTHER = "other@example.org"


@pytest.fixture(scope="module")
def alone():
    """B, where everybody has a mail, and nobody in A's place any more."""
    conftest.need()
    users = [f"forged{number}@example.org" for number in range(20)]
    with Group("sdbox", "sdbox") as there:
        a, b = there.replicas
        for user in users:
            with Site(b, user) as site:
                site.append("INBOX", "own")
        with Site(b, OTHER) as site:
            site.create("F")
        wait_equal(there.replicas, [*users, OTHER], WITHIN)      # a new state waits for those that are silent
        there.end(a.name)
        yield there, users
        told = conftest.panics(there)
    assert not told, told


@pytest.fixture
def hand(alone):
    """This program in A's place, for a user of the test's own."""
    there, users = alone
    return Hand(there, users.pop())


def at_b(hand):
    return hand.group.replicas[1]


def inbox(*names):
    return {"INBOX": {name: [()] for name in names}}


def shows(hand, *names):
    assert (seen := wait_shape(at_b(hand), hand.user, inbox(*names), WITHIN)) is None, f"shows {seen}"


def test_the_hand_speaks_as_a_peer_does(hand):
    hand.send(hand.add("x"), hand.add("y"))
    shows(hand, "own", "x", "y")
    hand.send(hand.add("z"))
    shows(hand, "own", "x", "y", "z")


def test_an_op_of_a_newer_version_stops_that_stream_and_is_never_skipped(hand):
    hand.send(hand.add("x"), hand.unknown(), hand.add("y"))
    logged(at_b(hand).log, rf"user={hand.user}: .*op 3 of site 1 is of kind 77; update this site")
    hand.send(hand.add("z"))                   # behind the unknown one
    with Site(at_b(hand), hand.user) as site:             # B's own work and its other users go on
        site.append("INBOX", "own2")
    hand.number, kept = 0, hand.number
    hand.send(hand.add("o"), user=OTHER)
    hand.number = kept
    seen = wait_shape(at_b(hand), OTHER, {"INBOX": {"o": [()]}, "F": {}}, WITHIN)
    assert seen is None, seen
    shows(hand, "own", "own2", "x")
    assert set(read(at_b(hand), hand.user).shape()["INBOX"]) == {"own", "own2", "x"}
    # The update: what stands under that number is understood now. The origin sends it again, since it was not confirmed.
    hand.number = 2
    hand.send(hand.subscribe("F"), hand.add("y"), hand.add("z"))
    shows(hand, "own", "own2", "x", "y", "z")
    assert read(at_b(hand), hand.user).subscribed == {"F"}


def test_a_batch_and_a_parcel_of_a_newer_version(hand):
    hand.push(hand.batch(hand.add("x"), version=2))
    logged(at_b(hand).log, r"a batch of version 2; this site speaks 1")
    hand.number = 0
    hand.push(hand.batch(hand.add("x")), version=9)
    logged(at_b(hand).log, r"version")
    hand.number = 0
    hand.send(hand.add("x"))
    shows(hand, "own", "x")


@pytest.mark.parametrize("claim", [2 ** 32 - 1, 2 ** 32 - 2, 2 ** 31, 2 ** 31 - 1])
def test_a_uid_claim_that_would_use_up_all_uids(hand, claim):
    """A UIDNEXT near 2^32 makes each later save panic."""
    hand.send(hand.add("x", claim=claim))
    shows(hand, "own", "x")
    with Site(at_b(hand), hand.user) as site:
        site.append("INBOX", "after")
        assert max(uid for uids in site.imap.uids("INBOX").values() for uid in uids) < 1000
    shows(hand, "own", "x", "after")


@pytest.mark.parametrize("user", ["../../etc@example.org", "nobody/../x@example.org", "\x01@example.org"])
def test_a_user_whom_nobody_knows(hand, user):
    before = {path.name for path in Path(at_b(hand).note["mail"]).rglob("*") if path.is_dir()}
    hand.send(hand.add("x"), user=user)
    hand.number = 0
    hand.send(hand.add("y"))
    shows(hand, "own", "y")
    made = {path.name for path in Path(at_b(hand).note["mail"]).rglob("*") if path.is_dir()} - before
    assert not {name for name in made if name in user.replace("@example.org", "").split("/")}, made


def test_numbers_of_another_origin_count_for_nothing_in_a_batch(hand):
    """The vector says that B's own future is known: B's next mails must not be taken for old news. An alarm, and a new epoch there."""
    hand.send(hand.add("x"), vector=[(hand.peer, 12345, 2 ** 40)])
    shows(hand, "own", "x")
    with Site(at_b(hand), hand.user) as site:
        site.append("INBOX", "after")
    shows(hand, "own", "x", "after")


def test_one_number_for_two_ops_is_an_alarm(hand):
    hand.send(hand.add("x"))
    shows(hand, "own", "x")
    hand.number = 1
    hand.send(hand.add("y"))      # 2 and 3, and 2 was x's
    with Site(at_b(hand), hand.user) as site:
        site.append("INBOX", "after")
    shows(hand, "own", "x", "after")
    assert hand.group.logs("ALARM: site 1: op 2 to 3 .*two ops share a number"), hand.group.logs("site 1")


def test_a_body_that_is_not_the_ops(hand):
    """The bytes beside an op are another mail: they are not placed under its name; it waits, and status says so."""
    op, numbers, body = hand.add("x")
    other = body.replace(b"sender@", b"forger@")
    hand.send((op, numbers, other), hand.add("y"))
    shows(hand, "own", "y")
    end = time.monotonic() + 240
    while b"unplaced=1" not in (told := at_b(hand).doveadm("dovelane", "status", "-u", hand.user)):
        assert time.monotonic() < end, told
        time.sleep(0.2)
    shows(hand, "own", "y")


# -- RETIRE: users who were forgotten, by what a peer says of them --

BLOCKED = "his mailboxes here are those of the user of this name who was forgotten"
NOBODYS = [(1, 0x77), (2, 0x78), (3, 0x79), (0, 0), (2 ** 64 - 1, 2 ** 64 - 1)]


def dovelane(hand, *words):
    return at_b(hand).doveadm("dovelane", *words, timeout=240).decode()


def said_of(hand):
    """What `status` says of the user, were it that it refuses."""
    try:
        return dovelane(hand, "status", "-u", hand.user)
    except StackError as refusal:
        return str(refusal)


def own_epoch(hand):
    return int(re.search(r"state\s+site=2\s+epoch=([0-9a-f]+)", said_of(hand))[1], 16)


def blocked(hand):
    eventually(lambda: said_of(hand), lambda: BLOCKED in said_of(hand), WITHIN)


def taken(hand, user):
    """All that the hand pushed before is taken, since this, of another user, is confirmed."""
    had = len(hand.was_told(RETIRED, user))
    hand.retire((1, 1), user=user)
    eventually(f"site-b confirms a RETIRE of {user}",
               lambda: len(hand.was_told(RETIRED, user)) > had, WITHIN)


def test_origins_that_nobody_has_are_retired_again_and_again(hand):
    """Each time it is confirmed, and nobody's state is one of them."""
    hand.send(hand.add("x"))
    shows(hand, "own", "x")
    for turn in range(1, 4):
        hand.retire(*NOBODYS)
        eventually(f"{turn} confirmations",
                   lambda n=turn: len(hand.was_told(RETIRED)) == n, WITHIN)
    hand.send(hand.add("y"))
    shows(hand, "own", "x", "y")
    assert BLOCKED not in said_of(hand)


@pytest.mark.parametrize("whose", ["ours", "the sender's own"])
def test_the_origin_of_a_site_that_lives_is_retired(hand, whose):
    """He stands still at this site, no mail of his is lost, and an admin can have him go on."""
    hand.send(hand.add("x"))
    shows(hand, "own", "x")
    origin = (2, own_epoch(hand)) if whose == "ours" else (hand.site, hand.epoch)
    hand.retire(origin)
    blocked(hand)
    logged(at_b(hand).log, rf"user={hand.user}: was forgotten at replica site-a")
    hand.send(hand.add("y"))
    with Site(at_b(hand), hand.user) as site:       # his clients see nothing of it
        site.append("INBOX", "after")
    hand.number, kept = 0, hand.number
    other = Hand(hand.group, OTHER, epoch=hand.epoch + len(whose))
    other.send(other.add(f"beside {whose}"))
    hand.number = kept
    eventually("the other user's mail",
               lambda: f"beside {whose}" in read(at_b(hand), OTHER).shape()["INBOX"], WITHIN)
    shows(hand, "own", "x", "after")
    # The way out: a new state of the same mailboxes. What was said of the old one is not of it.
    shutil.rmtree(next(at_b(hand).store(hand.user).rglob("dovelane")))
    eventually("a resync",
               lambda: "resync" not in dovelane(hand, "resync", "-u", hand.user), WITHIN)
    hand.retire(origin)
    taken(hand, OTHER)
    eventually(lambda: said_of(hand), lambda: BLOCKED not in said_of(hand), WITHIN)
    shows(hand, "own", "x", "after")


@pytest.mark.parametrize("site", [2, 3], ids=["ours", "nobody's"])
def test_a_retirement_in_the_name_of_another_site(hand, site):
    hand.send(hand.add("x"))
    shows(hand, "own", "x")
    hand.retire((2, own_epoch(hand)), site=site)
    taken(hand, OTHER)
    assert BLOCKED not in said_of(hand) and not hand.was_told(RETIRED)
    hand.send(hand.add("y"))
    shows(hand, "own", "x", "y")


def test_malformed_retirements_are_dropped(hand):
    hand.send(hand.add("x"))
    shows(hand, "own", "x")
    own = u64(2) + u64(own_epoch(hand))
    for body in (b"", own[:-1], own + b"\0", own * 1025):
        for kind in (RETIRE, RETIRED):
            hand.push(body, kind=kind)
    logged(at_b(hand).log, "a malformed parcel about a user who was forgotten is dropped")
    taken(hand, OTHER)
    assert BLOCKED not in said_of(hand) and not hand.was_told(RETIRED)
    hand.send(hand.add("y"))
    shows(hand, "own", "x", "y")


def test_many_names_of_nobody_have_no_true_one_forgotten(hand):
    """Else the former user's mailboxes would be the present one's."""
    dovelane(hand, "forget", "-u", hand.user, "--force")
    blocked(hand)
    for part in range(6):
        hand.retire(*((1, part << 32 | n) for n in range(1, 701)))
    taken(hand, OTHER)
    site = at_b(hand)
    hand.group.end(site.name)
    hand.group.start(site.name)
    blocked(hand)
    assert len(hand.was_told(RETIRED)) == 1, "only what is remembered is confirmed"
