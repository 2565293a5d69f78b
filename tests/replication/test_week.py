"""A minute of the week of users and faults (week.py), and what its judges see.

DOVELANE_SEED chooses which; `make week` makes an hour of it.
"""
import os
import random

import pytest
import week
from conftest import BUILD
from site_user import Site, mail
from support.stack import digest
from week_clients import KINDS, Again, Missed, Trouble, name_in
from week_judges import Ledger, Uids, when

SEED = os.environ.get("DOVELANE_SEED", "1")
USER = "watched@example.org"


def options(tmp_path, *words):
    return week.parsed(["--seed", SEED, "--json", str(tmp_path / "week.json"),
                        "--keep", str(BUILD / "week"), *words])


@pytest.fixture(autouse=True)
def all_programs():
    if absent := week.missing():
        pytest.skip(f"not here: {', '.join(absent)} (./setup long)")


def a_week(group, tmp_path, *words):
    chosen = options(tmp_path, *words)
    there = group(*week.SPECS, users=week.names(chosen.users), **week.STARTED)
    clean, told = week.one(there, tmp_path, chosen)
    print(told)
    assert clean, told


@pytest.mark.long
def test_a_minute_of_eight_users(group, tmp_path):
    a_week(group, tmp_path, "--minutes", "1", "--users", "8", "--every", "20", "--pace", "3")


@pytest.mark.exhaustive
def test_an_hour_of_fifty_users(group, tmp_path):
    a_week(group, tmp_path)


def shown_of(**folders):
    """A digest: {folder: {UID: (name, flags)}}."""
    def message(name, *flags):
        return digest.Message(name, name, name, frozenset(flags), "")
    return digest.Digest({folder: digest.Folder(1, 9, {
        uid: message(*held) for uid, held in mails.items()}) for folder, mails in folders.items()})


def test_the_ledger_sees_what_is_lost_and_what_is_there_twice():
    ledger = Ledger()
    for name in ("kept", "lost", "twice", "gone", "back"):
        ledger.added(name, "INBOX")
    for name in ("gone", "back"):
        del ledger.there[name]
        ledger.gone.add(name)
    ledger.unsure.add("perhaps")
    told, counts = ledger.judge(shown_of(
        INBOX={1: ("kept",), 2: ("twice",), 3: ("perhaps",)},
        Work={1: ("twice",), 2: ("back",), 3: ("perhaps",)}))
    assert (counts["lost"], counts["doubles"], counts["expunged and back"]) == (1, 1, 1), told
    assert counts["mails"] == 3 and len(told) == 3


LOG = """
Nov 28 09:00:10 lmtp(u@e)<12><ab+cd>: Info: save: box=INBOX, uid=7, msgid=<x@g>
Nov 28 09:00:11 imap(u@e)<13><ab/cd>: Info: copy from Work: box=INBOX, uid=8, msgid=<z@g>
Nov 28 09:00:12 dovelane-replicator: Info: user=u@e: INBOX: UID 7: placed, msgid=<y@g>, size=3
Nov 28 09:00:13 dovelane-replicator: Info: user=u@e: INBOX: UID 9: placed, msgid=<x@g>, size=3
"""


@pytest.mark.parametrize("name, dropped, removed, why", [
    ("x", None, False, "clash"),
    ("y", None, False, "clash"),
    ("z", None, False, "unexplained"),
    ("z", ("a", "09:00:20"), False, "unexplained"),
    ("z", ("a", "09:00:11"), False, "behind"),
    ("z", ("b", "09:00:20"), False, "behind"),
    ("z", ("a", "09:00:20"), True, "behind")])
def test_why_a_mail_is_loaded_again(name, dropped, removed, why):
    uids = Uids().read("a", LOG)
    assert uids.uids["u@e", "INBOX", "x"] == {7, 9}
    dropped = dropped and (dropped[0], when(f"Nov 28 {dropped[1]}"))
    again = Again("INBOX", name, "b", dropped)
    assert uids.why("u@e", again, {("INBOX", name)} if removed else set()) == why


@pytest.mark.parametrize("name, loaded, dropped, forced", [
    ("z", "b", ("a", "09:00:10"), True),
    ("z", "b", ("a", "09:00:11"), False),       # it may have been there
    ("z", "b", ("a", "09:00:12"), False),       # it was
    ("z", "a", ("a", "09:00:10"), False),       # a removal that nobody asked for
    ("z", "a", ("b", "09:00:10"), False),       # the site never had it: a loss
    ("z", None, ("a", "09:00:10"), False),
    ("z", "b", None, False)])
def test_which_missed_mail_a_site_lacked(name, loaded, dropped, forced):
    uids = Uids().read("a", LOG)
    dropped = dropped and (dropped[0], when(f"Nov 28 {dropped[1]}") + 0.5)
    assert uids.lacked("u@e", Missed("INBOX", name, loaded, dropped)) == forced


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_mail_is_missed_by_who_asks_for_higher_uids_alone(group, tmp_path, kind):
    """One site has a mail that the other one gets when the client was there."""
    two = group("sdbox", "sdbox", replication="off", users=[USER], **week.STARTED)
    told, (a, b) = [], two.replicas
    client = KINDS[kind](tmp_path, USER, told.append)
    for site, names in ((a, ("m", "n")), (b, ("m",))):
        site.doveadm("mailbox", "update", "-u", USER, "--uid-validity", "1700000000", "INBOX")
        with Site(site, USER) as other:
            for name in names:
                other.append("INBOX", name)
    client.visit(a)
    client.visit(b)
    with Site(b, USER) as other:
        other.append("INBOX", "n")
    client.visit(b)
    client.judge(digest.read(b, USER))
    client.rest()
    missed = [(one.name, one.loaded, one.dropped[0]) for one in client.missed]
    assert missed == ([("n", "a", "b")] if kind == "mbsync" else []), told
    assert client.never_asks("INBOX", 2) == (kind == "mbsync") and not client.never_asks("INBOX", 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_clients_see_what_is_wrong(group, tmp_path, kind):
    """At a site without replication, where an admin does what no replica may do."""
    there = group("sdbox", replication="off", users=[USER], **week.STARTED)
    site, told = there.replicas[0], []
    client = KINDS[kind](tmp_path, USER, told.append)
    with Site(site, USER) as other:
        for name in ("m", "n", "o"):
            other.append("INBOX", name)
        client.visit(site)
        assert client.counts["loads"] == 3 and not client.again
        other.expunge("INBOX", "n")
        other.append("INBOX", "n")
        other.flag("INBOX", "m", "+", "\\Flagged")
        client.visit(site)
        assert client.again == [Again("INBOX", "n", "a", None)], told
        client.read_one(random.Random(1))
        client.visit(site)
        shown = digest.read(site, USER)
        client.judge(shown)
        assert not (client.counts["flags missed"] or client.counts["mails missed"]), told
        doctored(shown)
        client.judge(shown)
        assert client.counts["mails missed"] == 1, told
        assert client.counts["flags missed"] == (kind != "pop3"), told
    client.rest()
    if kind != "pop3":
        site.doveadm("mailbox", "update", "-u", USER, "--uid-validity", "4000000000", "INBOX")
        try:
            client.visit(site)
        except Trouble:
            pass
        assert client.counts["UIDVALIDITY changes"], told


def doctored(shown):
    """Another flag of one mail, and one mail more, than there are."""
    mails = shown.folders["INBOX"].messages
    first, last = min(mails), max(mails)
    mails[first] = digest.Message(**{**vars(mails[first]), "flags": frozenset({"\\answered"})})
    mails[last + 1] = digest.Message(**{**vars(mails[last]), "name": "other"})


def test_a_mail_says_its_name():
    assert name_in(mail("x-1")) == "x-1" and name_in(b"Subject: none\n\n") == "?"
