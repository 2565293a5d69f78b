"""dovelane_commit = peers, with a replicator that the test plays: what is asked, and that no answer makes a failure of a save."""
import contextlib
import os
import re
import socket
import threading

import pytest
from support.plugin_world import World
from support.stack import dovecot
from support.waiting import eventually

pytestmark = pytest.mark.long

USER = "held@example.org"
LATE, NOTHING = "no other site has said within", "does not wait for another site: "
MAIL = b"Subject: t\r\n\r\nx\r\n"


def setting(wait="300s", commit="peers"):
    lines = f"dovelane_commit = {commit}\n", f"dovelane_commit_wait = {wait}\n"
    return "".join(lines) if dovecot.version() >= (2, 4) else "plugin {\n  " + "  ".join(lines) + "}\n"


class Replicator:
    """Listens where the replicator's service does; `answer`: what it says to a line, None: it ends the connection, "": nothing."""

    def __init__(self, world):
        self.path = world.base / "run" / "dovelane-commit"
        self.asked, self.answer, self.kept = [], lambda line: b"+\n", []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.path.chmod(0o666)
        self.listener.listen(100)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                threading.Thread(target=self.talk, args=(peer,), daemon=True).start()

    def talk(self, peer):
        with contextlib.suppress(OSError), peer:
            for line in peer.makefile("rb"):
                self.asked.append(line)
                reply = self.answer(line)
                if reply is None:
                    return
                peer.sendall(reply)

    def end(self):
        self.listener.close()
        self.path.unlink(missing_ok=True)

    def fields(self):
        return [line.decode().rstrip("\n").split("\t") for line in self.asked]

    def guids(self):
        return [guid for fields in self.fields() for guid in fields[3].split(" ")]


@pytest.fixture
def start():
    worlds = []

    def make(form="sdbox", wait="300s", listens=True, commit="peers"):
        w = World(form, more=setting(wait, commit))
        worlds.append((w, Replicator(w) if listens else None))
        return worlds[-1]
    yield make
    for w, replicator in worlds:
        if replicator:
            replicator.end()
        wrong = w.wrong()
        w.end()
        assert not [line for line in wrong if "dovelane_commit" not in line], wrong


@pytest.mark.test
@pytest.mark.parametrize("form", ["sdbox", "mdbox", "maildir"])
def test_the_guids_that_are_asked_for_are_those_of_the_mails(start, form):
    w, replicator = start(form)
    with w.imap(USER) as imap:
        imap.mail()
        imap.mail()
    w.deliver(USER, "second@example.org")
    w.lda(USER)
    assert {tuple(fields[:3]) for fields in replicator.fields()} == {("1", USER, "inbox"), ("1", "second@example.org", "inbox")}
    mails = w.guids(USER)
    assert len(mails) == 4 and [guid for fields in replicator.fields() if fields[1] == USER for guid in [fields[3]]] == mails
    assert w.guids("second@example.org") == [fields[3] for fields in replicator.fields() if fields[1] != USER]
    assert len(set(replicator.guids())) == 5


def test_many_mails_of_one_append_are_asked_for_in_parts(start):
    w, replicator = start()
    with w.imap(USER) as imap:
        imap.send(b"x APPEND INBOX" + b"".join(b" {%d+}\r\n%s" % (len(MAIL), MAIL) for _ in range(130)) + b"\r\n")
        line = imap.readline()
        assert line.startswith(b"x OK"), line
    assert [len(fields[3].split(" ")) for fields in replicator.fields()] == [63, 63, 4]
    assert replicator.guids() == w.guids(USER)


@pytest.mark.test
def test_what_saves_nothing_new_is_not_asked_for(start):
    w, replicator = start()
    with w.imap(USER) as imap:
        imap.mail()
        imap.do("create", "F")
        imap.do("select")
        imap.do("copy", "1", "F")
        imap.do("store", "1", "+FLAGS", "\\Flagged")
        assert imap.append("nowhere", None, None, MAIL)[0] == "NO"
        imap.move("1", "F")
    assert w.doveadm("save", "-u", USER, "-m", "F", stdin="Subject: s\n\nx\n") == ""
    assert len(replicator.asked) == 1


@pytest.mark.parametrize("reply", [b"-no site\n", b"nonsense\n", b"-" + b"x" * 5000 + b"\n", b"\0\n", b"\n"])
def test_any_word_but_yes_ends_the_wait(start, reply):
    w, replicator = start()
    replicator.answer = lambda line: reply
    with w.imap(USER) as imap:
        imap.mail()
        imap.mail()     # said once a minute of a process
    assert len(w.said(NOTHING)) == 1 and len(w.guids(USER)) == 2
    assert LATE not in w.log.read_text()


@pytest.mark.test
def test_no_word_ends_the_wait_by_its_time(start):
    w, replicator = start(wait="300ms")
    replicator.answer = lambda line: b""
    with w.imap(USER) as imap:
        imap.mail()
    w.deliver(USER)
    first, second = w.guids(USER)
    eventually("two lines", lambda: w.log.read_text().count(LATE) == 2)
    for guid in (first, second):
        assert re.search(rf"{LATE} 300 ms that it has the 1 mails that were saved in INBOX, {guid} the first", w.log.read_text())


def test_the_recipients_of_one_delivery_share_one_wait(start):
    """Their replies come all at once: if each waited for its own time, a client would give up, and deliver to all of them again."""
    w, replicator = start(wait="3s")
    replicator.answer = lambda line: b""
    recipients = [f"r{n}@example.org" for n in range(60)]
    w.deliver(*recipients)      # within 60 s
    # Asked all the same: a replicator counts them. Who does not wait for an answer may be read late,
    # and by a thread of its own: in any order.
    eventually("a question of each", lambda: len(replicator.asked) >= len(recipients))
    assert sorted(fields[1] for fields in replicator.fields()) == sorted(recipients)
    eventually("a line of each", lambda: w.log.read_text().count(LATE) == len(recipients))
    replicator.answer = lambda line: b"+\n"
    w.deliver(*recipients[:3])      # the next mail's wait is its own
    assert len(replicator.asked) == len(recipients) + 3
    assert w.log.read_text().count(LATE) == len(recipients)


def test_an_answer_for_doveadm_is_one_line_of_the_log(start):
    """A replicator that cannot start says that to whoever connects."""
    w, replicator = start()
    replicator.answer = lambda line: b"-it cannot start\n=\t75\n"
    with w.imap(USER) as imap:
        imap.mail()
    assert [line.endswith("it cannot start") for line in w.said(NOTHING)] == [True]


def test_a_replicator_that_is_killed_is_asked_again(start):
    w, replicator = start()
    replicator.answer = lambda line: None if len(replicator.asked) < 4 else b"+\n"
    with w.imap(USER) as imap:
        imap.mail()
    assert len(replicator.asked) == 4 and len(set(replicator.asked)) == 1
    assert LATE not in w.log.read_text() and NOTHING not in w.log.read_text()


@pytest.mark.test
def test_nobody_listens(start):
    w, _ = start(listens=False)
    with w.imap(USER) as imap:
        for _ in range(3):
            imap.mail()
    assert len(w.said(NOTHING + str(w.base / "run" / "dovelane-commit") + ": No such file or directory")) == 1
    os.mkfifo(w.base / "run" / "dovelane-commit")
    with w.imap(USER) as imap:
        imap.mail()
    eventually("a line", lambda: w.log.read_text().count(NOTHING) == 2)
    assert len(w.guids(USER)) == 4


def test_by_default_nobody_is_asked(start):
    w, replicator = start(commit="local")
    with w.imap(USER) as imap:
        imap.mail()
    w.deliver(USER)
    assert replicator.asked == [] and len(w.guids(USER)) == 2


@pytest.mark.skipif(dovecot.version() >= (2, 4), reason="2.4 checks times by itself")
@pytest.mark.parametrize("of, says", [({"commit": "always"}, "dovelane_commit = always: one of local, peers"), ({"wait": "1 fortnight"}, "dovelane_commit_wait = 1 fortnight: "),
                                      ({"wait": "1 day"}, "dovelane_commit_wait = 86400000 ms: 1 ms to 300 s"), ({"wait": "0"}, "dovelane_commit_wait = 0 ms: 1 ms to 300 s")], ids=str)
def test_a_wrong_setting_is_named(start, of, says):
    w, replicator = start(**of)
    with w.imap(USER) as imap:
        imap.mail()
    w.said(says)
    assert replicator.asked == []
