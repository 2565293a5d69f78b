"""dovelane_commit = peers: an APPEND, or a delivery without Dovelane-Id, is answered when another site has the mail on its disk."""
import smtplib
import threading
from pathlib import Path

import pytest
from replica_disks import come_back, destroy
from replica_disks import shown as shown_to
from site_user import Site, mail
from support.stack import digest, probe
from support.stack.digest import wait_equal
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "commit@example.org"
LATE = "no other site has said within"
NOTHING = "does not wait for another site: "


def setting(wait="300s", commit="peers"):
    """So long that no test comes to its end by the time, but where the time is what is tested."""
    lines = f"dovelane_commit = {commit}\n", f"dovelane_commit_wait = {wait}\n"
    return {"2.3": "plugin {\n  " + "  ".join(lines) + "}\n", "2.4": "".join(lines)}


def ready(there, *users):
    """Both sites know the users."""
    for user in users or [USER]:
        with Site(there.replicas[0], user) as site:
            site.append("INBOX", "first")
    wait_equal(there.replicas, [*users] or [USER], WITHIN)


def metric(replica, name):
    return probe.metric(f"unix:{replica.note['base']}/metrics", f"replicator_commits_{name}")


def said(replica, words):
    return logged(replica.log, rf"(?m)^.*{words}.*$")


def silent(replica, words):
    with open(replica.log, errors="replace") as log:
        return words not in log.read()


def shown(replica, name, user=USER):
    return shown_to(replica, name, user)


def lost_and_back(there, *wanted, user=USER):
    """Site a is destroyed now. What it had answered is at b already, and at a when it is back."""
    destroy(there, "a")
    a, b = there.replicas
    for name in wanted:
        assert shown(b, name, user) == 1, name
    come_back(there, "a")
    wait_equal(there.replicas, [user], WITHIN)
    for name in wanted:
        assert shown(a, name, user) == 1, name


@pytest.mark.test
@pytest.mark.parametrize("specs", [("sdbox", "maildir"), ("maildir", "mdbox"), ("mdbox", "sdbox")], ids=" ".join)
def test_a_mail_is_at_the_other_site_when_its_append_is_answered(group, specs):
    there = group(*specs, more=setting())
    a, b = there.replicas
    ready(there)
    with Site(a, USER) as site:
        for n in range(5):
            site.append("INBOX", f"m{n}")
            assert shown(b, f"m{n}") == 1
        site.append("INBOX", "last", "\\Flagged", size=200_000)
    lost_and_back(there, "last", "m0", "m4")
    assert silent(a, LATE) and silent(a, NOTHING)


@pytest.mark.parametrize("commit", ["local", "peers"])
def test_the_disk_is_lost_while_the_link_is_slow(group, commit):
    """The reply of peers waits for it, and that of local does not: its mail, which was answered, is nowhere."""
    there = group("sdbox", "sdbox", more=setting(commit=commit))
    a, b = there.replicas
    ready(there)
    there.delay(4000)
    with Site(a, USER) as site:
        site.append("INBOX", "answered")
    destroy(there, "a")
    there.delay(0)
    come_back(there, "a")
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in (a, b):
        assert shown(replica, "answered") == (commit == "peers")


def test_many_mails_of_one_append(group):
    """More than one question has room for."""
    there = group("sdbox", "sdbox", more=setting())
    a, b = there.replicas
    ready(there)
    names = [f"m{n}" for n in range(150)]
    with Site(a, USER) as site:
        parts = b"".join(b" {%d+}\r\n%s" % (len(mail(name)), mail(name)) for name in names)
        site.imap.socket.sendall(b"x APPEND INBOX" + parts + b"\r\n")
        while not (line := site.imap.line()).startswith(b"x "):
            pass
        assert line.startswith(b"x OK"), line
    there.kill("redis-a")
    a.kill()
    found = digest.read(b, USER).shape()["INBOX"]
    assert [name for name in names if name not in found] == []
    assert silent(a, LATE)


@pytest.mark.test
@pytest.mark.parametrize("spec", ["maildir", "sdbox"])
def test_a_delivery_to_several_users(group, spec):
    """Of which a Maildir would link one's file to the others': each has a mail of its own to wait for."""
    there = group(spec, "sdbox", more=setting())
    a, b = there.replicas
    users = [f"rcpt{n}@example.org" for n in range(3)]
    ready(there, *users)
    asked = metric(a, "safe")
    host, _, port = a.note["lmtp"].rpartition(":")
    with smtplib.LMTP(host, int(port), timeout=240) as session:
        session.ehlo_or_helo_if_needed()
        session.mail("sender@stack.example")
        assert all(session.rcpt(user)[0] == 250 for user in users)
        assert session.data(mail("to all"))[0] == 250
        assert [session.getreply()[0] for _ in users[1:]] == [250, 250]     # each recipient has a reply of its own
    assert metric(a, "safe") == asked + len(users)
    there.kill("redis-a")
    a.kill()
    assert [shown(b, "to all", user) for user in users] == [1, 1, 1]
    assert silent(a, LATE) and silent(a, NOTHING)


@pytest.mark.test
def test_the_other_site_is_away(group):
    """The reply is given all the same, and counted; when it is back, replies wait for it again."""
    there = group("sdbox", "sdbox", more=setting("1s"))
    a, b = there.replicas
    ready(there)
    late = metric(a, "late")
    there.cut()
    with Site(a, USER) as site:
        site.append("INBOX", "alone")
        assert shown(a, "alone") == 1 and shown(b, "alone") == 0
        eventually("one that was late", lambda: metric(a, "late") == late + 1)
        said(a, LATE + " 1000 ms that it has the 1 mails")
        with smtplib.LMTP(*a.note["lmtp"].rsplit(":", 1), timeout=240) as session:
            assert session.sendmail("sender@stack.example", [USER], mail("delivered")) == {}
        eventually("another one", lambda: metric(a, "late") == late + 2)
        there.heal()
        wait_equal(there.replicas, [USER], WITHIN)
        assert shown(b, "alone") == 1
        safe = metric(a, "safe")

        def again():
            site.append("INBOX", "again")
            return metric(a, "safe") > safe
        eventually("a reply that waited", again)


class Appending(threading.Thread):
    def __init__(self, replica, name):
        super().__init__(daemon=True)
        self.replica, self.name_of_mail, self.error = replica, name, None
        self.start()

    def run(self):
        try:
            with Site(self.replica, USER) as site:
                site.append("INBOX", self.name_of_mail)
        except Exception as error:      # pylint: disable=broad-except
            self.error = error

    def ended(self):
        self.join(WITHIN)
        assert not self.is_alive() and self.error is None, self.error


@pytest.mark.parametrize("victim", ["dovelane-replicator", "dovelane-worker", "redis-a", "redis-b", "dovecot-b"])
def test_something_is_killed_while_a_reply_waits(group, victim):
    """It is started again, and the reply waits on until the other site has the mail."""
    there = group("sdbox", "sdbox", more=setting())
    a, b = there.replicas
    ready(there)
    there.cut()
    waits = Appending(a, "waits")
    eventually("a question", lambda: metric(a, "open") == 1)
    if victim.startswith("dovelane"):
        eventually(f"a {victim}", lambda: a.kill_some(victim))
    else:
        there.kill(victim)
        there.start(victim)
    assert waits.is_alive()
    there.heal()
    waits.ended()
    assert shown(b, "waits") == 1
    there.kill("redis-a")
    a.kill()
    assert shown(b, "waits") == 1
    assert silent(a, LATE)


def test_a_process_that_is_killed_while_it_waits_has_saved_its_mail(group):
    there = group("sdbox", "sdbox", more=setting())
    a, b = there.replicas
    ready(there)
    there.cut()
    waits = Appending(a, "waits")
    eventually("a question", lambda: metric(a, "open") == 1)
    eventually("an imap", lambda: a.kill_some("imap"))
    waits.join(WITHIN)
    assert waits.error is not None
    eventually("no question", lambda: metric(a, "open") == 0)
    assert shown(a, "waits") == 1
    there.heal()
    wait_equal(there.replicas, [USER], WITHIN)
    assert shown(b, "waits") == 1


OTHER = {"2.3": "namespace other {\n  prefix = other/\n  separator = /\n  location = sdbox:~/other\n}\n",
         "2.4": "namespace other {\n  prefix = other/\n  separator = /\n  mail_path = ~/other\n}\n"}


@pytest.mark.test
def test_nothing_to_wait_for_is_no_wait(group):
    """While the link is cut and the wait is long: each of these is answered."""
    apart = "apart@example.org"
    more = {version: text + OTHER[version] for version, text in setting().items()}
    there = group("sdbox", "sdbox", more=more, users=[USER, apart], anybody=False)
    a, _b = there.replicas
    a.set_users({USER: "", apart: "userdb_dovelane_replicate=no"})
    ready(there)
    a.doveadm("dovelane", "resync", "-u", apart, check=False)
    said(a, f"user={apart}: .*he is not replicated")     # it counts from his next opening on
    there.cut()
    late = metric(a, "late")
    with Site(a, USER) as site:
        site.copy("INBOX", "first", "INBOX")        # a copy has the GUID of what it was made from
        site.create("Moved")
        site.move("INBOX", "first", "Moved")
        site.create("other/x")
        site.append("other/x", "elsewhere")
    said(a, NOTHING + "the mailbox's namespace is not replicated")
    with Site(a, apart) as site:
        site.append("INBOX", "his own")
    said(a, NOTHING + "the mail is in no mailbox that is replicated here|" + NOTHING + "the user")
    assert metric(a, "late") == late and silent(a, LATE)


def test_no_replicator_is_no_wait(group):
    """Its service has no socket for it, as in a configuration of before."""
    there = group("sdbox", "sdbox", more=setting())
    a, _b = there.replicas
    ready(there)
    there.cut()
    (Path(a.note["base"]) / "run" / "dovelane-commit").unlink()
    with Site(a, USER) as site:
        for n in range(3):
            site.append("INBOX", f"m{n}")
    assert len(said(a, NOTHING + r".*dovelane-commit: No such file or directory")) >= 1
    assert silent(a, LATE)
