"""The judges can fail: each is shown something wrong and must say so. Needs no replicator."""
import time

import conftest
import pytest
from site_user import Site
from stack import digest
from stack.digest import Unequal
from stack.group import Group
from stack.journal import OFF, ON, Flag, Change, Journal
from stack.traffic import Traffic

USER = "judged@example.org"


@pytest.fixture(scope="module")
def apart():
    """Two replicas that know nothing of each other."""
    conftest.need(replication="off")
    with Group("sdbox", "maildir", replication="off") as group:
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
        a.annotate("INBOX", "/private/comment", "x")
    told = " ".join(complaints(apart, user, attributes=True))
    assert "folder 'F' only at dovecot-a" in told and "subscribed: only at dovecot-a ['F']" in told and "/private/comment" in told


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


class Shows:
    """A replica that shows one mail under these UIDs, reading after reading, and then as last."""

    def __init__(self, name, *readings):
        self.name, self.readings = name, list(readings)

    def read(self):
        uids = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        message = digest.Message("m", "g", "s", frozenset(), "")
        return digest.Digest({"INBOX": digest.Folder(1, max(uids) + 1, dict.fromkeys(uids, message))})


@pytest.fixture
def acted(monkeypatch):
    monkeypatch.setattr(digest, "read", lambda replica, user, attributes=False: replica.read())


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


def test_traffic_agrees_with_one_replica_whose_clients_are_killed(apart):
    """Without any replication what a single site shows is exactly what it answered; kill -9 included."""
    users, journal, killed = [f"t{n}@example.org" for n in range(4)], Journal(), 0
    with Traffic(apart.replicas[:1], users, journal, seed=1) as traffic:
        for _ in range(5):
            assert traffic.wait(60, 240)
            killed += apart.replicas[0].kill_some("imap") + apart.replicas[0].kill_some("lmtp")
    assert killed and journal.unanswered, "nothing was cut off: the test shows nothing"
    assert journal.judge({user: digest.read(apart.replicas[0], user) for user in users}) == []
    assert journal.acknowledged >= 300
