"""The judges can fail: each is shown something wrong and must say so. Needs no replicator."""
import os
import re
import time
from datetime import datetime

import conftest
import pytest
from site_user import Site
from support.stack import digest
from support.stack.digest import Unequal
from support.stack.group import Group
from support.stack.journal import OFF, ON, Annotation, Change, Flag, Journal
from support.stack.traffic import MAILS_AND_FOLDERS, Traffic

USER = "judged@example.org"


@pytest.fixture(scope="module")
def apart():
    """Two replicas that know nothing of each other."""
    conftest.need(replication="off")
    with Group("sdbox", "maildir", replication="off", extras=("acl", "sieve")) as group:
        yield group


def sites(group, user):
    return [Site(replica, user) for replica in group.replicas]


def complaints(group, user, **how):
    return digest.compare(group.replicas, user, **how)[0]


def test_a_missing_mail_is_a_difference(apart):
    with Site(apart.replicas[0], USER) as site:
        site.append("INBOX", "m")
    assert any("only at dovecot-a: m" in line for line in complaints(apart, USER))
    with pytest.raises(Unequal, match="only at dovecot-a: m"):
        digest.wait_equal(apart.replicas, [USER], within=0.1)


def test_flags_folders_subscriptions_and_attributes_are_compared(apart):
    user = "parts@example.org"
    a, b = sites(apart, user)
    with a, b:
        a.create("F")
        a.subscribe("F")
        b.create("G")
        for site, value in ((a, "x"), (b, "y")):
            site.annotate("INBOX", "/private/comment", value)
        a.annotate("", "/private/vendor/vendor.dovelane/all", "of the server")
        a.grant("INBOX", "bob", "lr")
        b.script("mine", "keep;", active=True)
    told = " ".join(complaints(apart, user))
    for wanted in ("folder 'F' only at dovecot-a", "subscribed: only at dovecot-a ['F']", "only at dovecot-a [(('', '/private/vendor/vendor.dovelane/all')",
                   "(('INBOX', '/private/comment'), 'x')", "(('INBOX', '/private/comment'), 'y')", "(('INBOX', 'acl bob'), 'lr')",
                   "(('', 'sieve mine'), 'keep;", "(('', 'sieve active'), 'mine')"):
        assert wanted in told, (wanted, told)


def test_one_uid_for_two_mails_breaks_the_hard_rule(apart):
    user = "clash@example.org"
    a, b = sites(apart, user)
    with a, b:
        a.append("INBOX", "x")
        b.append("INBOX", "y")
        b.close()
        validity = digest.read(apart.replicas[0], user).folders["INBOX"].validity
        apart.replicas[1].doveadm("mailbox", "update", "-u", user, "--uid-validity", str(validity), "INBOX")
    digests = {replica.name: digest.read(replica, user) for replica in apart.replicas}
    assert any("UID 1: x" in line for line in digest.clashes(digests))


def test_the_journal_notices_a_lost_a_resurrected_and_a_doubled_mail(apart):
    user, journal = "journal@example.org", Journal()
    with Site(apart.replicas[0], user) as site:
        for name in ("lost", "kept", "removed", "doubled"):
            journal.claim(user, "INBOX", name, "a", time.monotonic())
            journal.added(user, "INBOX", name, time.monotonic(), True)
        for name in ("kept", "removed", "doubled", "doubled", "strange"):
            site.append("INBOX", name)
        journal.removed(user, "INBOX", "removed")
        journal.stored(user, "INBOX", "kept", "\\Seen", ON, "a", True)
    told = "\n".join(journal.judge({user: digest.read(apart.replicas[0], user)}))
    for wanted in ("lost in INBOX: LOST", "removed in INBOX: there, though", "doubled in INBOX: 2 copies", "strange in INBOX: nobody",
                   "kept in INBOX: \\seen is False"):
        assert wanted in told, told
    assert len(told.splitlines()) == 5, told


@pytest.mark.parametrize("changes, allowed", [
    ([("a", ON, True)], {True}),
    ([("a", ON, True), ("a", OFF, True)], {False}),
    ([("a", ON, True), ("a", OFF, False)], {True, False}),
    ([("a", ON, True), ("b", ON, False)], {True}),
    ([("a", ON, True), ("b", OFF, True)], {True, False}),
    ([("a", OFF, True), ("b", OFF, True)], {False}),
    ([], {False}),
    ([("a", ON, True, 1, 3), ("a", OFF, True, 2, 4)], {True, False}),
    ([("a", ON, True, 1, 2), ("a", OFF, True, 3, 4)], {False}),
    ([("a", ON, True, 1, 2), ("a", OFF, False, 3, 4), ("a", ON, True, 5, 6)], {True}),
    ([("a", ON, False, 1, 2)], {True, False}),
])
def test_flags_that_the_journal_allows(changes, allowed):
    assert Flag(False, [Change(*change) for change in changes]).allowed() == allowed


def test_what_a_partition_hid_from_a_folder_delete_must_live(apart):
    journal, user = Journal(), "folders@example.org"
    journal.folder(user, "T", "a", True)
    for name, site, began in (("seen", "a", 1.0), ("near", "b", 1.0), ("hidden", "b", 11.0)):
        journal.claim(user, "T", name, site, began)
        journal.added(user, "T", name, began + 0.1, True)
    journal.partitions.append((None, 10.0, None))
    journal.deleted(user, "T", "a", 12.0, 12.1)
    state = {mail: element.removed for (_, _, mail), element in journal.elements.items()}
    assert state == {"seen": "yes", "near": "maybe", "hidden": "no"}
    assert any("hidden in T: LOST" in line for line in journal.judge({user: digest.Digest({"INBOX": digest.Folder(1, 1, {})})}))


def shown(*mails):
    """A digest with these in INBOX: (name, GUID)."""
    messages = {uid: digest.Message(name, guid, guid, frozenset(), "") for uid, (name, guid) in enumerate(mails, 1)}
    return {"u": digest.Digest({"INBOX": digest.Folder(1, 9, messages)})}


def test_what_a_rebuilt_mdbox_does_is_excused_for_its_user_alone():
    """It may bring back what was expunged and double what was being saved; it does not lose, and what is double has one GUID."""
    def journal():
        made = Journal()
        for name in ("removed", "doubled", "kept"):
            made.claim("u", "INBOX", name, "a", 1.0)
            made.added("u", "INBOX", name, 1.1, True)
        made.removed("u", "INBOX", "removed")
        return made
    found = shown(("removed", "r"), ("doubled", "d"), ("doubled", "d"), ("kept", "k"))
    assert len(journal().judge(found)) == 2
    assert len(journal().judge(found, {"other"})) == 2
    excused = journal()
    assert excused.judge(found, {"u"}) == []
    assert excused.judge(shown(("doubled", "d"), ("kept", "k"))) == ["u: removed in INBOX: LOST, though answered at a"]
    assert len(journal().judge(shown(("doubled", "d"), ("doubled", "other"), ("kept", "k")), {"u"})) == 1
    assert len(journal().judge(shown(("doubled", "d")), {"u"})) == 1


@pytest.mark.parametrize(("flag", "shown_as", "excused"), [("later", "work", True), ("later", "\\seen", False), ("\\Seen", "work", False)])
def test_a_letter_that_a_killed_process_left_in_a_maildir_is_excused_once(flag, shown_as, excused):
    journal = Journal()
    for name in ("cut", "other"):
        journal.claim("u", "INBOX", name, "a", 1.0)
        journal.added("u", "INBOX", name, 1.1, True)
    journal.cut_short("u", "INBOX", "cut", (flag,))

    def seen(*flags):
        mails = {uid: digest.Message(mail, mail, mail, frozenset(flags), "") for uid, mail in ((1, "cut"), (2, "other"))}
        return {"u": digest.Digest({"INBOX": digest.Folder(1, 9, mails)}, frozenset(), {})}
    assert [line.split()[1] for line in journal.judge(seen(shown_as))] == ([] if excused else ["cut"]) + ["other"]
    assert len(journal.judge(seen(shown_as, "later"))) == 2


def acting(*folders, subscribed=(), attributes=None):
    """A digest with these folders, each (name, mail ...)."""
    found = {name: digest.Folder(1, 9, {uid: digest.Message(mail, mail, mail, frozenset(), "") for uid, mail in enumerate(mails, 1)})
             for name, *mails in (("INBOX",), *folders)}
    return {"u": digest.Digest(found, frozenset(subscribed), attributes or {})}


def test_a_folder_that_was_renamed_is_shown_under_one_of_its_new_names():
    def journal(*renames):
        made = Journal()
        made.folder("u", "T", "a", True)
        made.claim("u", "T", "m", "a", 1.0)
        made.added("u", "T", "m", 1.1, True)
        for site, name, target, sure in renames:
            made.renaming("u", name, target, site)
            if sure:
                made.renamed("u", target)
        return made
    two = [("a", "T", "T1", True), ("b", "T", "T2", True)]
    for renames, name, told in (([("a", "T", "T1", True)], "T1", 0), ([("a", "T", "T1", True)], "T", 1), ([("a", "T", "T1", False)], "T", 0),
                                (two, "T1", 0), (two, "T2", 0), (two, "T", 1)):
        assert len(journal(*renames).judge(acting((name, "m")))) == told, (renames, name)
    assert any("shown as T1 and T2" in line for line in journal(*two).judge(acting(("T1", "m"), ("T2",))))
    assert any("LOST" in line for line in journal(*two).judge(acting(("T2",))))
    settled = journal(*two)
    assert settled.judge(acting(("T2", "m"))) == [] and len(settled.judge(acting(("T1", "m")))) == 1


def test_a_folder_that_was_deleted_here_and_renamed_there_may_live():
    for sites, told in (("ab", 0), ("aa", 1)):
        journal = Journal()
        journal.folder("u", "T", "a", True)
        journal.renaming("u", "T", "T1", sites[1])
        journal.renamed("u", "T1")
        journal.deleting("u", "T1")
        journal.deleted("u", "T1", sites[0], 1.0, 1.1)
        assert len(journal.judge(acting(("T1",)))) == told, sites


def test_a_folder_that_was_renamed_and_deleted_and_lives_on_has_its_new_name():
    for name, told in (("T", 1), ("T1", 0), ("T2", 1)):
        journal = Journal()
        journal.folder("u", "T", "a", True)
        journal.renaming("u", "T", "T1", "a")
        journal.renamed("u", "T1")
        journal.deleting("u", "T1")
        journal.deleted("u", "T1", "a", 1.0, 1.1)
        journal.claim("u", "T", "m", "b", 1.0)
        journal.added("u", "T", "m", 1.05, True)
        journal.keys["u", "T2"] = "T"
        assert len(journal.judge(acting((name, "m")))) == told, name


def test_children_are_renamed_with_their_parent():
    journal = Journal()
    for name in ("P", "P/C", "Pure"):
        journal.folder("u", name, "a", True)
    journal.renaming("u", "P", "Q", "a")
    journal.renamed("u", "Q")
    assert journal.judge(acting(("Q",), ("Q/C",), ("Pure",))) == []
    assert journal.judge(acting(("P",), ("Q/C",), ("Pure",))) == ["u: folder P: shown as P, and is Q (deleted: no)"]


def test_subscriptions_and_annotations_are_what_was_answered():
    journal, entry = Journal(), "/private/comment"
    journal.subscribed("u", "F", ON, "a", True)
    journal.subscribed("u", "G", ON, "a", True, 1, 2)
    journal.subscribed("u", "G", OFF, "a", True, 3, 4)
    journal.annotated("u", "INBOX", entry, "x", "a", True, 1, 2)
    journal.annotated("u", "INBOX", entry, "y", "a", True, 3, 4)
    assert journal.judge(acting(subscribed="F", attributes={("INBOX", entry): "y"})) == []
    assert len(journal.judge(acting(subscribed="GH", attributes={("INBOX", entry): "x", ("INBOX", "/shared/comment"): "z"}))) == 5


@pytest.mark.parametrize("changes, allowed", [
    ([], {None}), ([("a", "x", True, 1, 2), ("b", "y", True, 1, 2)], {"x", "y"}), ([("a", "x", False, 1, 2)], {"x", None}),
    ([("a", "x", True, 1, 3), ("a", None, True, 2, 4)], {"x", None}), ([("a", "x", True, 1, 2), ("a", "y", False, 3, 4)], {"x", "y"}),
])
def test_values_that_the_journal_allows(changes, allowed):
    assert Annotation(None, [Change(*change) for change in changes]).allowed() == allowed


def test_a_mail_that_was_added_twice_may_be_there_twice_and_no_oftener():
    def journal(removed=False):
        made = Journal()
        for at in (1.0, 2.0):
            made.claim_again("u", "INBOX", "m", "a", at)
            made.added("u", "INBOX", "m", at + 0.1, True)
        if removed:
            made.removed("u", "INBOX", "m")
        return made
    m = ("m", "g")
    assert journal().judge(shown(m)) == [] == journal().judge(shown(m, m))
    assert len(journal().judge(shown(m, m, m))) == 1 == len(journal().judge(shown()))
    assert journal(removed=True).judge(shown()) == [] == journal(removed=True).judge(shown(m))


class Shows:
    """A replica that shows one mail under these UIDs, reading after reading, and then as last."""

    log = os.devnull

    def __init__(self, name, *readings):
        self.name, self.readings = name, list(readings)

    @staticmethod
    def doveadm(*_words, **_keywords):
        return b""

    def read(self):
        uids = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        message = digest.Message("m", "g", "s", frozenset(), "")
        return digest.Digest({"INBOX": digest.Folder(1, max(uids) + 1, dict.fromkeys(uids, message))})


@pytest.fixture
def acted(monkeypatch):
    monkeypatch.setattr(digest, "read", lambda replica, user: replica.read())


def added_once():
    journal = Journal()
    journal.claim("u", "INBOX", "m", "a", 1.0)
    journal.added("u", "INBOX", "m", 1.1, True)
    return journal


def test_a_mail_that_gets_another_uid_everywhere_at_once_is_not_taken_for_two(acted):
    """Both show the old copy and the new one, alike, for two readings: nothing is judged before that is over."""
    journal = added_once()
    a, b = Shows("a", [1, 10], [1, 10], [10]), Shows("b", [9, 10], [9, 10], [10])
    agreed = digest.wait_equal([a, b], ["u"], 60, moving=journal.moving(set))
    assert journal.judge({"u": agreed["u"]["a"]}) == []


def test_what_changes_after_it_was_equal_was_not_equal_yet(acted):
    a, b = Shows("a", [1, 10], [10]), Shows("b", [9, 10], [10])
    assert {*digest.wait_equal([a, b], ["u"], 60)["u"]["b"].folders["INBOX"].messages} == {10}


def test_a_mail_that_stays_doubled_is_told(acted):
    """Unless its user's mdbox was rebuilt, or the journal knows nothing of it."""
    both = [Shows("a", [1, 10]), Shows("b", [1, 10])]
    with pytest.raises(Unequal, match="u: m in INBOX at b: UIDs 1 10, and it was added once"):
        digest.wait_equal(both, ["u"], 0, moving=added_once().moving(set))
    digest.wait_equal(both, ["u"], 0, moving=added_once().moving(lambda: {"u"}))
    digest.wait_equal(both, ["u"], 0, moving=Journal().moving(set))


def test_a_delete_that_was_not_answered_may_have_expunged():
    journal = Journal()
    journal.folder("u", "T", "a", True)
    for name, at in (("before", 1.0), ("after", 9.0)):
        journal.claim("u", "T", name, "a", at)
        journal.added("u", "T", name, at + 0.1, True)
        if name == "before":
            journal.deleting("u", "T")
            journal.half_deleted("u", "T")
    assert [line.split()[1] for line in journal.judge(shown())] == ["after"]


def test_who_made_a_folder_is_told_by_its_guid(apart):
    """While the process lives, and by the log when it is gone."""
    user = "maker@example.org"
    for replica in apart.replicas:
        session = replica.imap(user)
        session.create("F")
        guid = session.guid("F")
        assert replica.maker(guid) == "imap"
        session.close()
        end = time.monotonic() + 240
        while int.from_bytes(bytes.fromhex(guid)[8:12], "little") in {one.pid for one in replica.processes("imap")} and time.monotonic() < end:
            time.sleep(0.05)
        assert replica.maker(guid) == "imap"
        assert replica.maker("00" * 8 + "ffffff7f" + "00" * 4) is None


def test_a_create_that_another_session_completed_is_created_and_one_by_a_worker_is_refused():
    journal = Journal()
    assert journal.created_by("imap", "NO [ALREADYEXISTS]")
    assert (journal.acknowledged, journal.overtaken, journal.refusals) == (1, 1, [])
    for maker in ("dovelane-worker", None):
        assert not journal.created_by(maker, "NO [ALREADYEXISTS]")
    assert (journal.acknowledged, journal.refused) == (1, 2) and "made by dovelane-worker" in journal.refusals[0]


@pytest.mark.long
def test_traffic_agrees_with_one_replica_whose_clients_are_killed(apart):
    """Without any replication what a single site shows is exactly what it answered; kill -9 included. (In a RENAME it may leave mailboxes.lock empty: Dovecot
    then waits two minutes.)"""
    users, journal, killed = [f"t{n}@example.org" for n in range(4)], Journal(), 0
    with Traffic(apart.replicas[:1], users, journal, seed=2, run="q") as traffic:
        assert traffic.wait(800, 240)
    assert journal.judge({user: digest.read(apart.replicas[0], user) for user in users}) == []
    assert {"rename", "subscribe", "annotate"} <= journal.kinds.keys()
    with Traffic(apart.replicas[:1], users, journal, seed=1, weights=MAILS_AND_FOLDERS) as traffic:
        for _ in range(5):
            assert traffic.wait(60, 240)
            killed += apart.replicas[0].kill_some("imap") + apart.replicas[0].kill_some("lmtp")
    assert killed and journal.unanswered, "nothing was cut off: the test shows nothing"
    assert journal.judge({user: digest.read(apart.replicas[0], user) for user in users}) == []
    assert journal.acknowledged >= 300


def ended(at, program, pid):
    return f"dovecot-b: Nov 29 {at} {program}(u@example.org)<{pid}><x>: Fatal: master: service({program}): child {pid} killed with signal 11 (core dumps disabled)"


TRAPS = [(datetime(2026, 11, 29, 5, 8, 58), "dovelane-worker", 20452), (datetime(2026, 11, 29, 5, 12, 3), "imap", 32750)]


def test_an_end_that_the_kernel_explains_is_excused_by_its_process_id():
    lines = [ended("05:12:04", "imap", 32750), ended("05:12:04", "imap", 32751), ended("05:12:04", "lmtp", 20452)]
    assert conftest.without_own_faults(lines, TRAPS, pids_are_known=True) == lines[1:]


def test_in_another_pid_namespace_an_end_is_excused_by_its_moment_once():
    lines = [ended("05:08:59", "dovelane-worker", 15397), ended("05:12:04", "imap", 22194)]
    assert not conftest.without_own_faults(lines, TRAPS, pids_are_known=False)
    twice, late, another = ended("05:12:04", "imap", 22195), ended("05:12:40", "imap", 7), ended("05:12:04", "lmtp", 8)
    assert conftest.without_own_faults([*lines, twice, late, another], TRAPS, pids_are_known=False) == [twice, late, another]


def test_a_crash_elsewhere_is_excused_by_nobody():
    assert not re.search(conftest.OWN_TRAP, "2026-11-29T05:12:03,398375+00:00 imap[5]: segfault at 20 ip 1 sp 2 error 4 in libdovecot-storage.so.0.0.0[5]", re.M)
    assert not re.search(conftest.OWN_TRAP, "2026-11-29T05:12:03,398375+00:00 imap[5]: segfault at 18 ip 1 sp 2 error 4 in libdovecot.so.0.0.0[5]", re.M)
    found = re.search(conftest.OWN_TRAP, "2026-11-29T05:12:03,398375+00:00 imap[5]: segfault at 18 ip 1 sp 2 error 4 in libdovecot-storage.so.0.0.0[5]", re.M)
    assert (found[1], found[2], found[3]) == ("2026-11-29T05:12:03", "imap", "5")
