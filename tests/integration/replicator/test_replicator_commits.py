"""Mail processes ask whether another site has what they saved: who may ask for whom, and what too many, or hostile ones, can do. Scripted workers."""
import contextlib
import multiprocessing
import os
import socket

import pytest
from support.waiting import eventually
from test_replicator import world  # noqa: F401
from test_replicator_questions import guid, looks, settled

pytestmark = [pytest.mark.core, pytest.mark.long]

USER, OTHER = "u@example.net", "other@example.net"
MINE, THEIRS = 12345, 12346     # user ids


def line(*numbers, user=USER, namespace="inbox"):
    return f"1\t{user}\t{namespace}\t{' '.join(guid(n) for n in numbers)}\n".encode()


class Process:
    """A mail process of that user id: one connection."""

    def __init__(self, replica, uid=0):
        # whose id it has the kernel notes when it connects
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        os.seteuid(uid)
        try:
            self.socket.connect(str(replica.directory / "dovelane-commit"))
        finally:
            os.seteuid(0)

    def ask(self, *numbers, **of):
        with contextlib.suppress(BrokenPipeError):      # sent away already, and told why
            self.socket.sendall(line(*numbers, **of))
        return self

    def answer(self):
        """A line, or "" when the connection has ended."""
        with contextlib.suppress(ConnectionResetError):
            return self.socket.makefile("rb").readline().decode().rstrip("\n")
        return ""

    def waits(self):
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) is None
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(120)

    def end(self):
        self.socket.close()


@pytest.fixture
def two(world):  # noqa: F811
    """The directory of sockets may be entered by all, as Dovecot's base_dir."""
    w = world(2)
    for path in (w.directory, w[0].directory):
        path.chmod(0o755)
    settled(w)
    return w


def here(w, *numbers, user=USER, sites=(0, 1)):
    for site in sites:
        for n in numbers:
            w[site].site.words[user, guid(n)] = "here"


@pytest.mark.test
def test_an_answer_comes_when_another_site_has_the_mails(two):
    w = two
    here(w, 1, 2, 3)
    process = Process(w[0])
    assert process.ask(1).answer() == "+"
    assert process.ask(2, 3).answer() == "+"
    here(w, 4, sites=[0])
    here(w, 5)
    process.ask(4, 5)
    eventually("a look", lambda: looks(w[0]) >= 3)
    assert process.waits() and w[0].metric("replicator_commits_open") == 1
    here(w, 4, sites=[1])
    assert process.answer() == "+"
    process.end()
    eventually("no process", lambda: w[0].metric("replicator_commits_open") == 0)
    assert [w[0].metric(f"replicator_commits{name}") for name in ("", "_safe", "_late", "_refused")] == [3, 3, 0, 0]
    assert w[0].metric("replicator_questions_open") == 0


def test_a_mail_that_its_site_finds_late_is_looked_for_again(two):
    w = two
    w[0].site.words[USER, guid(1)] = "wait"
    process = Process(w[0]).ask(1)
    eventually("looks", lambda: looks(w[0]) >= 3)
    assert process.waits()
    here(w, 1)
    assert process.answer() == "+"


@pytest.mark.exhaustive
def test_a_worker_that_is_busy_for_longer_than_a_relay_asks_is_waited_for(two):
    """What relays do not ask again is forgotten after 100 s. A mail process asks once."""
    w = two
    here(w, 1)
    w[0].site.slow[USER] = 115
    process = Process(w[0])
    process.socket.settimeout(400)
    assert process.ask(1).answer() == "+"


def test_who_gives_up_is_counted_and_leaves_nothing(two):
    w = two
    here(w, 1, sites=[0])
    process = Process(w[0]).ask(1)
    eventually("a look", lambda: looks(w[0]) >= 1)
    process.end()
    eventually("one that was late", lambda: w[0].metric("replicator_commits_late") == 1)
    assert w[0].metric("replicator_questions_open") == 0


@pytest.mark.test
def test_nothing_to_wait_for_is_said_at_once(two):
    w = two
    w[0].site.unknown = {OTHER}
    w[0].site.words[USER, guid(2)] = "removed"
    assert Process(w[0]).ask(1).answer() == "-the mail is in no mailbox that is replicated here"
    assert Process(w[0]).ask(1, namespace="archive").answer() == "-the mailbox's namespace is not replicated (replicate_namespaces)"
    assert Process(w[0]).ask(1, user=OTHER).answer().startswith("-")
    assert Process(w[0]).ask(2).answer() == "+"     # its user did, meanwhile
    w[0].admin("peers", "", "--remove", "2")
    assert Process(w[0]).ask(1).answer() == "-the user is replicated with no other site"


def test_a_user_without_another_site_is_not_told_that_one_has_his_mail(two):
    w = two
    w[0].site.apart = {OTHER: [2]}
    here(w, 1, user=OTHER, sites=(0,))
    first = Process(w[0]).ask(1, user=OTHER)    # nothing is known of him yet
    eventually("a look", lambda: looks(w[0], OTHER) >= 1)
    assert Process(w[0]).ask(1, user=OTHER).answer() == "-the user is replicated with no other site"
    assert first.waits() and w[0].metric("replicator_commits_safe") == 0


@pytest.mark.test
def test_who_has_another_id_is_told_nothing(two):
    """And, once found out, costs no worker. Of his own users he is told."""
    w = two
    w[0].site.owners = {USER: MINE, OTHER: THEIRS}
    for user in (USER, OTHER):
        here(w, 1, 2, user=user)
    assert Process(w[0], MINE).ask(1).answer() == "+"
    before = looks(w[0])
    for _ in range(5):
        assert Process(w[0], THEIRS).ask(1, 2).answer().startswith(("-the user's files are not", "-too many mail processes wait, or this id"))
    assert looks(w[0]) == before
    assert Process(w[0], MINE).ask(2).answer() == "+"
    # the one of whom it was not known before
    assert Process(w[0], MINE).ask(1, user=OTHER).answer() == "-the user's files are not those of who asks"
    assert looks(w[0], OTHER) == 1
    assert Process(w[0], MINE).answer().startswith("-too many mail processes wait, or this id")
    assert Process(w[0]).ask(1, user=OTHER).answer() == "+"     # root's are all
    assert w[0].says("uid 12346 asked for mails of a user whose files are not its own")


@pytest.mark.parametrize("words", [b"\n", b"1\n", b"1\tu@example.net\tinbox\t\n", b"2" + line(1)[1:], line(1).replace(b" ", b"  ") + b"x\n", b"1\t../x\tinbox\t" + b"0" * 32 + b"\n",
                                   b"1\tu@example.net\tinbox\t" + b"G" * 32 + b"\n", line(*range(64)), line(1) + line(2), b"\0" * 100 + b"\n", b"x" * 5000, line(1)[:-2] + b"\n"])
def test_what_is_no_question_ends_the_connection(two, words):
    w = two
    here(w, 1, 2)
    process = Process(w[0])
    process.socket.sendall(words)
    assert process.answer() in ("-that is no question", "")
    assert Process(w[0]).ask(1).answer() == "+"


def test_a_second_question_before_the_first_ones_answer_ends_the_connection(two):
    w = two
    here(w, 1, sites=[0])
    process = Process(w[0]).ask(1)
    eventually("a look", lambda: looks(w[0]) >= 1)
    assert process.ask(2).answer() == ""
    assert w[0].metric("replicator_questions_open") == 0


def flood(directory, uid, lines, ready, over):
    """A connection of that id for each of these lines."""
    os.setgid(uid)
    os.setuid(uid)
    there = []
    for words in lines:
        s = socket.socket(socket.AF_UNIX)
        s.connect(directory)
        s.sendall(words)
        there.append(s)
    ready.set()
    over.wait()


@contextlib.contextmanager
def flooded(replica, lines):
    ready, over = multiprocessing.Event(), multiprocessing.Event()
    child = multiprocessing.Process(target=flood, args=(str(replica.directory / "dovelane-commit"), THEIRS, lines, ready, over))
    child.start()
    try:
        assert ready.wait(120)
        yield
    finally:
        over.set()
        child.join()


def test_who_opens_many_connections_takes_none_from_others(two):
    """He loses his own oldest ones; and those that ask nothing are closed."""
    w = two
    w[0].site.owners = {USER: MINE}
    here(w, 1)
    with flooded(w[0], [b""] * 1000):
        assert Process(w[0], MINE).ask(1).answer() == "+"
    eventually("no process", lambda: w[0].metric("replicator_commits_open") == 0)
    assert Process(w[0], MINE).ask(1).answer() == "+"


@pytest.mark.parametrize("repeated", [False, True], ids=["each once", "one again and again"])
def test_who_asks_for_many_mails_takes_none_from_others(two, repeated):
    """He loses his own oldest questions, where there is no room for another one's. A mail that is named many times in one question counts once."""
    w = two
    w[0].site.owners = {USER: MINE, OTHER: THEIRS}
    mine = range(1, 64)
    here(w, *mine)
    theirs = [[7] * 63 if repeated else range(1000 + 63 * n, 1063 + 63 * n) for n in range(317)]
    for n in {number for part in theirs for number in part}:
        w[0].site.words[OTHER, guid(n)] = "wait"
    with flooded(w[0], [line(*part, user=OTHER) for part in theirs]):
        eventually("questions", lambda: w[0].metric("replicator_commits") == 317)
        assert w[0].metric("replicator_questions_open") == sum(len(set(part)) for part in theirs)
        assert Process(w[0], MINE).ask(*mine).answer() == "+"
        assert w[0].metric("replicator_commits_late") == (0 if repeated else 1)
        assert w[0].metric("replicator_commits_refused") == 0
    eventually("no process", lambda: w[0].metric("replicator_commits_open") == 0)


def test_the_replicator_ends_while_one_waits(two):
    w = two
    here(w, 1, sites=[0])
    process = Process(w[0]).ask(1)
    eventually("a look", lambda: looks(w[0]) >= 1)
    w[0].stop()
    assert process.answer() == ""
