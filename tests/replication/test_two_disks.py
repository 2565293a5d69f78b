"""A relay asks a site whether a delivery is safe; the site's replicator answers. The test is the relay: real Dovecots, replicators and Redises."""
import contextlib
import hashlib
import os
import re
import shutil
import smtplib
import time

import pytest
from site_user import Site, mail
from support.stack import delivery_id, digest, resp
from support.stack.digest import wait_equal
from support.stack.group import FAST, GROUP_KEY
from support.waiting import eventually

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "two@example.org"
NODE = "mx1"
KEY = GROUP_KEY.encode()


class Relay:
    """Asks one site, as the relay of node mx1."""

    def __init__(self, group, letter, sites=2):
        self.group, self.letter, self.sites = group, letter, sites
        self.replica = next(r for r in group.replicas if r.letter == letter)
        self.number = ord(letter) - ord("a") + 1

    def connection(self):
        return resp.Connection(self.group[f"redis-{self.letter}"].note["address"])

    def deliver(self, name, rcpt=USER, entry=None, text=None):
        """The GUID that follows from the delivery."""
        text = mail(name) if text is None else text
        entry, header = delivery_id.line(KEY, text, rcpt, entry=entry)
        host, _, port = self.replica.note["lmtp"].rpartition(":")
        with smtplib.LMTP(host, int(port), timeout=240) as session:
            session.sendmail("sender@stack.example", [rcpt], header + text)
        return delivery_id.guid(entry, text, rcpt)

    def ask(self, *guids, rcpt=USER):
        with self.connection() as c:
            for guid in guids:
                body = f"1 {guid} {NODE} {self.sites} {rcpt}".encode()
                c.call("LANE.PUSH", 1, f"dovelane:asked:{self.number}", "ENTRIES", 1, 1,
                       hashlib.sha256(body).digest()[:16], "", body)

    def answers(self):
        """{guid: word}; they are taken away."""
        found = {}
        with self.connection() as c:
            for _, _, entries in c.call("LANE.TAKE", 1, f"dovelane:answered:{NODE}", "COUNT", 1000):
                for entry in entries:
                    version, guid, site, epoch, word = entry[6].decode().split(" ")
                    assert (version, site) == ("1", str(self.number)) and int(epoch, 16) > 0
                    found[guid] = word
                    c.call("LANE.ACK", f"dovelane:answered:{NODE}", "IDS", 1, entry[1])
        return found

    def until(self, *guids, word="safe", rcpt=USER):
        """Asks until all are answered so, as a relay does, but sooner. Others may be answered, too."""
        open_ones, asked = set(guids), 0.0

        def answered():
            nonlocal asked
            with contextlib.suppress(OSError):
                if time.monotonic() - asked > 6:
                    asked = time.monotonic()
                    self.ask(*sorted(open_ones), rcpt=rcpt)
                for guid, said in self.answers().items():
                    assert said == word or guid not in open_ones, (guid, said)
                    open_ones.discard(guid)
            return not open_ones
        eventually(f"{word} of {len(guids)} deliveries", answered, WITHIN)


def destroy(path):
    """Also while somebody writes into it."""
    def is_gone():
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    eventually(f"{path} is gone", is_gone, WITHIN)


def messages(replica):
    """How many mails of the user the site's state has."""
    return int(re.search(rb"messages=(\d+)", replica.doveadm("dovelane", "status", "-u", USER))[1])


def ready(there, user=USER):
    with Site(there.replicas[0], user) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [user], WITHIN)


def has(replica, name, user=USER):
    return name in digest.read(replica, user).shape().get("INBOX", {})


@pytest.mark.test
def test_a_delivery_is_safe_when_the_other_site_has_it_on_its_disk(group):
    """Not before, while the link is cut; once, and again when it is asked for again."""
    there = group("sdbox", "maildir")
    a = Relay(there, "a")
    ready(there)
    one = a.deliver("one")
    a.until(one)
    assert has(there.replicas[1], "one")
    there.cut()
    two = a.deliver("two")
    for _ in range(3):
        a.ask(two)
        time.sleep(1)
        assert a.answers() == {}
    assert not has(there.replicas[1], "two")
    there.heal()
    a.until(two)
    assert has(there.replicas[1], "two")
    a.until(one, two)
    # an address with a detail is the same user's
    three = a.deliver("three", rcpt="two+detail@example.org")
    a.until(three, rcpt="two+detail@example.org")
    assert has(there.replicas[1], "three")


@pytest.mark.test
def test_what_is_removed_or_discarded_needs_no_copy_and_what_is_not_known_is_said(group):
    there = group("sdbox", "sdbox")
    a = Relay(there, "a")
    ready(there)
    first = a.deliver("asked first")
    a.until(first)          # from here on removals are noted
    there.cut()
    before = messages(there.replicas[0])
    removed, kept = a.deliver("removed"), a.deliver("kept")
    # What comes and goes between two looks at a mailbox is unknown (docs/two-disks.md).
    eventually("both were looked at", lambda: messages(there.replicas[0]) == before + 2, WITHIN)
    with Site(there.replicas[0], USER) as site:
        site.expunge("INBOX", "removed")
    # A question that was asked before this look waits for the other site.
    eventually("the removal was seen", lambda: messages(there.replicas[0]) == before + 1, WITHIN)
    a.until(removed)
    a.ask(kept)
    nobody = "00" * 15 + "01"
    a.until(nobody, word="unknown")
    assert a.answers().get(kept) is None
    there.heal()
    a.until(kept)
    # removed at the other site, which says so
    other = a.deliver("removed there")
    a.until(other)
    with Site(there.replicas[1], USER) as site:
        site.expunge("INBOX", "removed there")
    wait_equal(there.replicas, [USER], WITHIN)
    a.until(other)


@pytest.mark.test
def test_a_site_whose_disk_is_destroyed_says_that_it_lacks_the_mail(group):
    """With the link cut, so that its disk had the only copy. It does not say so before it has heard the other site."""
    there = group("sdbox", "sdbox")
    a = Relay(there, "a")
    ready(there)
    kept = a.deliver("kept")
    a.until(kept)
    there.cut()
    lost = a.deliver("lost")
    destroy(there.replicas[0].home(USER))
    a.ask(lost, kept)
    there.replicas[0].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX")
    time.sleep(2)
    assert a.answers() == {}        # it has heard nobody yet
    with a.connection() as c:
        c.call("FLUSHALL")          # what its lane had for the other site, too
    there.heal()
    a.until(lost, word="unknown")
    a.until(kept)                   # the other site gave it back
    wait_equal(there.replicas, [USER], WITHIN)
    assert not has(there.replicas[0], "lost") and has(there.replicas[0], "kept")
    # the relay delivers it once more: the same mail, at either site
    a.until(a.deliver("lost"))


def test_hostile_questions_do_no_harm(group):
    there = group("sdbox", "sdbox")
    a = Relay(there, "a")
    ready(there)
    bodies = [b"", b"1", b"\0" * 40, os.urandom(300), b"1 " + b"0" * 32 + b" mx1 2 ../../etc/passwd", b"1 " + b"0" * 32 + b" mx1 64 " + USER.encode(),
              b"1 " + b"0" * 32 + b" mx1 2 nobody@nowhere.example", b"1 " + b"0" * 32 + b" mx1 2 " + b"x" * 300, b"1 " + b"0" * 32 + b" mx1 1 u"]
    with a.connection() as c:
        for body in bodies:
            for name in (hashlib.sha256(body).digest()[:16], os.urandom(16), b""):
                c.call("LANE.PUSH", 1, "dovelane:asked:1", "ENTRIES", 1, 1, name, "x", body)
    one = a.deliver("one")
    a.until(one)
    with a.connection() as c:
        # those without an id cannot be named, and are let go of by nobody
        eventually("a lane that holds no more than those without an id", lambda: c.call("LANE.LEN", "dovelane:asked:1") <= len(bodies))
    # of users who are not there no mail is known
    assert {*a.answers().values()} <= {"unknown"}


@pytest.mark.parametrize("victim", ["dovelane-replicator", "dovelane-worker", "redis"])
def test_kills_at_either_site_lose_no_answer_and_make_none_too_early(group, victim):
    """Mails one after the other, a kill beside each: safe is what both disks have."""
    there = group("sdbox", "maildir")
    a = Relay(there, "a")
    ready(there)
    for n in range(6):
        guid = a.deliver(f"m{n}")
        a.ask(guid)
        letter = "ab"[n % 2]
        replica = there.replicas[n % 2]
        if victim == "redis":
            there.kill(f"redis-{letter}")
            there.start(f"redis-{letter}")
        else:
            eventually(f"a {victim}", lambda: replica.kill_some(victim))
        a.until(guid)
        # the other site's disk alone: nothing of A's counts
        files = {p.name for p in there.replicas[1].store(USER).rglob("*") if p.is_file()}
        assert files and has(there.replicas[1], f"m{n}")
    wait_equal(there.replicas, [USER], WITHIN)


def test_three_sites_two_of_which_are_enough(group):
    """One of them is away: two disks are enough for those who want two, and not for those who want three."""
    there = group("sdbox", "maildir", "sdbox", settings={**FAST})
    two, three = Relay(there, "a", 2), Relay(there, "a", 3)
    ready(there)
    there.cut("a", "c")
    there.cut("b", "c")
    guid, other = two.deliver("m"), three.deliver("n")
    two.until(guid)
    three.ask(other)
    time.sleep(3)
    assert other not in three.answers()
    there.heal()
    three.until(other)
    assert all(has(replica, "n") for replica in there.replicas)


def test_a_disk_that_was_lost_since_it_confirmed_gets_the_mail_back(group):
    """Of three: B confirms, and loses its disk before C can confirm. Until it has heard the others it counts as lost; then it has the mail."""
    there = group("sdbox", "sdbox", "sdbox")
    a = Relay(there, "a", 3)
    ready(there)
    there.cut("a", "c")
    there.cut("b", "c")
    guid = a.deliver("m")
    a.ask(guid)
    eventually("B's copy", lambda: has(there.replicas[1], "m"))
    time.sleep(2)       # B's word is there
    assert a.answers() == {}
    there.cut()
    destroy(there.replicas[1].home(USER))
    there.heal()
    a.until(guid)
    assert has(there.replicas[0], "m") and has(there.replicas[2], "m")
    there.replicas[1].doveadm("mailbox", "status", "-u", USER, "messages", "INBOX")
    wait_equal(there.replicas, [USER], WITHIN)
    assert all(has(replica, "m") for replica in there.replicas)
