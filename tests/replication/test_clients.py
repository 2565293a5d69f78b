"""What clients are told: those that are connected meanwhile, and those that come back with what they know of another site."""
import random
import re
import time

import pytest
from site_user import Site, mail
from support.modseqs import wait_alike
from support.stack import digest
from support.stack.digest import wait_equal, wait_same_uids
from support.stack.imap import parsed

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "watched@example.org"


def test_an_idle_client_is_told_of_what_another_site_did(group):
    there = group("sdbox", "maildir")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
        wait_equal(there.replicas, [USER], WITHIN)
        with b.imap(USER) as client:
            client.select("INBOX")
            tag = client.idle()
            site.append("INBOX", "n")
            assert client.wait_untagged(rb"\* 2 EXISTS", WITHIN)
            site.flag("INBOX", "m", "+", "\\Flagged", "kw")
            assert client.wait_untagged(rb"\* 1 FETCH .*\\Flagged.*kw|\* 1 FETCH .*kw.*\\Flagged", WITHIN)
            site.expunge("INBOX", "m")
            assert client.wait_untagged(rb"\* 1 EXPUNGE", WITHIN)
            client.done(tag)


def test_a_clash_of_uids_moves_each_mail_once(group):
    """x at A and y at B got one UID. A client at each site sees each of both move at most once, and never one UID for two mails."""
    there = group("sdbox", "mdbox")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    with a.imap(USER) as one, b.imap(USER) as other:
        there.cut()
        for client, name in ((one, "x"), (other, "y")):
            client.append("INBOX", mail(name))
            client.select("INBOX")
            client.command("NOOP")
        there.heal()
        wait_equal(there.replicas, [USER], WITHIN)
        for client in (one, other):
            told = client.command("NOOP")[1]
            moved = sum(b" EXPUNGE" in line for line in told)
            assert moved <= 2, told
            assert set(client.uids("INBOX")) == {"m", "x", "y"}
        assert one.uids("INBOX") == other.uids("INBOX")


@pytest.mark.parametrize("specs", ["sdbox,maildir", "maildir,mdbox", "mdbox,sdbox"])
def test_folders_made_and_deleted_one_after_the_other(group, specs):
    """While a client does that, the list of mailboxes changes under each look. A client that is connected elsewhere lists what there is."""
    there, count = group(*specs.split(",")), 200
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
        wait_equal(there.replicas, [USER], WITHIN)
        with b.imap(USER) as client:
            def listed(wanted):
                end = time.monotonic() + WITHIN
                while (found := sum(line.startswith(b"* LIST") for line in client.command('LIST "" "F*"')[1])) != wanted:
                    assert time.monotonic() < end, f"{found} of {wanted}"
                    time.sleep(0.05)

            listed(0)
            for n in range(count):
                site.create(f"F{n}")
            listed(count)
            for n in range(count):
                site.delete(f"F{n}")
            listed(0)
    wait_equal(there.replicas, [USER], WITHIN)
    # Dovecot's own word where a Maildir goes while anybody, here a worker, takes the lock in it.
    assert there.logs(r"dovelane-.*Error: (?!dotlock .* was immediately deleted under us)", 10) == ""


@pytest.mark.parametrize("formats", [("sdbox", "maildir"), ("mdbox", "sdbox")], ids=" ".join)
def test_a_folder_that_outlives_its_deletion_keeps_its_uids(group, formats):
    """DELETE F at A, append to F at B: it comes back to A under its UIDVALIDITY, with no lower UIDNEXT, though its last mails were expunged before."""
    there = group(*formats)
    a, b = there.replicas
    with Site(a, USER) as site:
        site.create("F")
        for n in range(5):
            site.append("F", f"m{n}")
        site.expunge("F", "m3")
        site.expunge("F", "m4")
    old = wait_same_uids(there.replicas, USER, WITHIN)
    validity, uidnext = old[a.name].folders["F"].validity, max(found.folders["F"].uidnext for found in old.values())
    there.cut()
    with Site(a, USER) as site:
        site.delete("F")
    with Site(b, USER) as site:
        site.append("F", "new")
    there.heal()
    for _ in range(2):      # and so it stays
        for name, found in wait_same_uids(there.replicas, USER, WITHIN).items():
            folder = found.folders["F"]
            assert folder.validity == validity, (name, folder.validity, validity)
            assert folder.uidnext > min(folder.messages) >= uidnext, (name, folder.uidnext, [*folder.messages], uidnext)
        with Site(a, USER) as site:
            site.append("F", "newer")


class QresyncClient:
    """Keeps a folder's names and flags by UID as RFC 7162 says, with what it is told alone. `known` is that, `ever` all that a UID was seen to name."""

    def __init__(self):
        self.validity, self.modseq, self.uidnext = 0, 0, 1
        self.known, self.ever = {}, {}

    def learn(self, uid, items):
        named = next((value for key, value in items.items() if key.startswith(b"BODY[")), None)
        name = named.partition(b":")[2].strip().decode() if named is not None else self.known[uid][0]
        self.known[uid] = name, digest.flags_of(items[b"FLAGS"])

    def visit(self, session):
        """One visit at some site; the UIDs that it says have vanished."""
        session.command("ENABLE QRESYNC")
        since = f" (QRESYNC ({self.validity} {self.modseq} 1:{self.uidnext - 1}))" if self.modseq else ""
        _, lines = session.command(f"SELECT INBOX{since}")
        session.selected = "INBOX"
        told = b"".join(line for line in lines if line.startswith(b"* OK"))
        validity, uidnext, modseq = (int(re.search(rb"\[%s (\d+)" % word, told)[1]) for word in (b"UIDVALIDITY", b"UIDNEXT", b"HIGHESTMODSEQ"))
        assert self.validity in (0, validity), f"UIDVALIDITY {self.validity}, then {validity}"
        vanished = set()
        for line in lines:
            if found := re.match(rb"\* VANISHED \(EARLIER\) ([\d:,]+)", line):
                ends = [[int(end) for end in part.split(b":")] for part in found[1].split(b",")]
                vanished.update(uid for part in ends for uid in range(part[0], part[-1] + 1))
        self.known = {uid: seen for uid, seen in self.known.items() if uid not in vanished}
        for line in lines:
            words = parsed(line)
            if len(words) >= 4 and words[2] == b"FETCH":
                items = dict(zip(words[3][0::2], words[3][1::2]))
                if int(items[b"UID"]) in self.known:
                    self.learn(int(items[b"UID"]), items)
        for uid, items in session.fetch(f"{self.uidnext}:*", "FLAGS BODY.PEEK[HEADER.FIELDS (X-MAIL)]"):
            if uid >= self.uidnext:     # n:* is the last mail in any case
                self.learn(uid, items)
        self.validity, self.uidnext, self.modseq = validity, max(uidnext, self.uidnext), modseq
        return vanished


def change_something(site, dice, name):
    """Flags, a new mail, an expunge."""
    names = [known for known in site.imap.uids("INBOX")]
    for known in dice.sample(names, 2):
        site.flag("INBOX", known, dice.choice("+-"), dice.choice(["\\Seen", "\\Flagged", "kw"]))
    site.append("INBOX", name, *(["\\Answered"] if dice.random() < 0.5 else []))
    site.expunge("INBOX", dice.choice(names))


def test_a_qresync_client_that_hops_between_sites(group):
    """Both sites change flags, append and expunge while they are apart; then the client comes to one of them with what it knows of the other. It has all
    mails, with their flags, is never told that one is gone which is there, and no UID names two mails. What it is not told (an expunge has no modseq that could be
    raised) is a ghost until it lists the UIDs: counted, no more."""
    there, dice, client, ghosts = group("sdbox", "maildir"), random.Random(12), QresyncClient(), []
    with Site(there.replicas[0], USER) as a:
        for n in range(14):
            a.append("INBOX", f"m{n}")
    wait_same_uids(there.replicas, USER, WITHIN)
    expunged = set()
    for turn in range(8):
        there.cut()
        for replica in there.replicas:
            with Site(replica, USER) as site:
                change_something(site, dice, f"{replica.letter}{turn}")
        there.heal()
        wait_same_uids(there.replicas, USER, WITHIN)
        wait_alike(there.replicas, USER, WITHIN)
        replica = dice.choice(there.replicas)
        with replica.imap(USER) as session:
            vanished = client.visit(session)
            true = {uid: (name, flags) for name, uids in session.uids("INBOX").items() for uid in uids
                    for _, items in session.fetch(uid, "FLAGS") for flags in [digest.flags_of(items[b"FLAGS"])]}
        where = f"turn {turn}, at {replica.name}"
        assert not vanished & true.keys(), f"{where}: told that {vanished & true.keys()} are gone, which are there"
        assert {uid: client.known.get(uid) for uid in true} == true, where
        for uid, (name, _) in true.items():
            assert client.ever.setdefault(uid, name) == name, f"{where}: UID {uid} named {client.ever[uid]}, now {name}"
        expunged |= vanished & client.ever.keys()
        ghosts.append(len(client.known.keys() - true.keys()))
        client.known = {uid: seen for uid, seen in client.known.items() if uid in true}     # it lists the UIDs
    assert expunged, "nothing was told gone: this test shows nothing"
    print(f"ghosts at each visit: {ghosts}")


def test_a_qresync_client_that_is_there_is_told_what_vanished_elsewhere(group):
    there = group("sdbox", "mdbox")
    a, b = there.replicas
    with Site(a, USER) as site:
        for name in "mno":
            site.append("INBOX", name)
    wait_same_uids(there.replicas, USER, WITHIN)
    with b.imap(USER) as client:
        client.command("ENABLE QRESYNC")
        uid, = client.uids("INBOX")["n"]
        tag = client.idle()
        with Site(a, USER) as site:
            site.expunge("INBOX", "n")
        assert client.wait_untagged(rb"\* VANISHED %d\r" % uid, WITHIN)
        client.done(tag)
