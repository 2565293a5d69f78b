"""Postfix and the milter in step: an answer is written only while Postfix waits for it. Later, Postfix has queued
the mail, and what the lanes hold of it would be a second copy (test_milter_late.py).

The test plays Postfix on the milter's socket. To an engine on libmilter it says the end of the header, too, which that one
answers; and there is a word of progress before each answer."""
import contextlib
import ctypes
import os
import pwd
import re
import socket
import struct
import time
from pathlib import Path

import pytest

from support.stack import Stack, lanes, programs, resp
from support.stack.probe import packet
from support.stack.shape import SinkShape

LIMIT = 60
# ptrace(2), waitpid(2)
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WAIT_ALL = 17, 0x4206, 0x4207, 0x40000000
NEGOTIATION = packet(b"O", struct.pack("!III", 6, 0x1FF, 0x1FFFFF))
CLIENT = packet(b"C", b"client\x004\x1f\x90192.0.2.1\0")


@pytest.fixture(scope="module")
def running(engine):
    """With time between the end of a message and its answer, when a node stands still."""
    with Stack(postfix="divert", sinks=[SinkShape("a", ours=True)], divert=["a"], relays=False, settings={"store_deadline": "4s", "max_entry": "1MB"}) as system:
        yield system


@pytest.fixture
def system(running):
    running.cont("milter")
    running.cont("redis-mx2")
    wait(lambda: answers_to(running, mail(running, "READY")) == b"d", lambda: log(running))
    for address in running.nodes.values():
        with resp.Connection(address) as redis:
            redis.call("FLUSHALL")
    yield running


def wait(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def log(system):
    return Path(system["milter"].log).read_text()


def on_libmilter(system):
    return system["milter"].note["settings"].get("milter_engine") == "libmilter"


def mail(system, queue_id, end=packet(b"E", b""), header=b""):
    """What Postfix says of one mail, to its end."""
    eoh = packet(b"N", b"") if on_libmilter(system) else b""
    mailer, _, host = system.destinations["a"].partition(":")
    return b"".join((
        packet(b"D", b"M{mail_addr}\0s@x.example\0"), packet(b"M", b"<s@x.example>\0"),
        packet(b"D", f"R{{rcpt_mailer}}\0{mailer}\0{{rcpt_host}}\0{host}\0{{rcpt_addr}}\0u@a.example\0".encode()), packet(b"R", b"<u@a.example>\0"),
        packet(b"D", f"Ei\0{queue_id}\0".encode()), packet(b"L", b"Subject\0 x\0"), header, eoh, packet(b"B", b"hello\r\n"), end))


def connect(system):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LIMIT)
    connection.connect(system["milter"].note["socket"])
    connection.sendall(NEGOTIATION)
    head = connection.recv(5, socket.MSG_WAITALL)
    assert head[4:] == b"O"
    connection.recv(struct.unpack("!I", head[:4])[0] - 1, socket.MSG_WAITALL)
    return connection


def rest(connection):
    """All that the milter says until it has answered a mail, or closes: its commands."""
    commands, stream = b"", connection.makefile("rb")
    while len(head := stream.read(5)) == 5:
        stream.read(struct.unpack("!I", head[:4])[0] - 1)
        commands += head[4:]
        if head[4:] in b"ady":
            break
    return re.sub(rb"p([m-]*[ady])$", rb"\1", commands.replace(b"c", b""))


def unanswered(system, connection):
    """Closed without an answer. libmilter cannot close it: it stays without one."""
    if not on_libmilter(system):
        return rest(connection) == b""
    connection.settimeout(3)
    said = b""
    with contextlib.suppress(TimeoutError):
        while piece := connection.recv(1000):
            said += piece
    return not re.search(rb"\0\0\0.[ady]", said, re.DOTALL)


def answers_to(system, said):
    with connect(system) as connection:
        connection.sendall(CLIENT + said)
        return rest(connection)


def stored(system):
    return [len(list(lanes.entries(node, address))) for node, address in system.nodes.items()]


def queue_ids(system, *nodes):
    """Of all that these nodes hold."""
    entries = [e for node in nodes for e in lanes.entries(node, system.nodes[node])]
    return {e.envelope["queue_id"] for e in entries}


def test_a_mail_is_answered_when_it_is_stored(system):
    wait(lambda: answers_to(system, mail(system, "PLAIN")) == b"d", lambda: log(system))  # again only if the machine stood still: what is not answered so is nowhere
    assert stored(system) == [1, 1] and "PLAIN: from=<s@x.example>" in log(system)


def test_who_does_not_wait_gets_no_answer(system):
    """What stands behind the end of a message says that the answer is not awaited."""
    if on_libmilter(system):
        pytest.skip("libmilter does not say what comes before the answer; Postfix says nothing then")
    assert answers_to(system, mail(system, "AHEAD") + packet(b"A", b"")) == b""
    assert stored(system) == [0, 0]
    with connect(system) as connection:
        system.stop("redis-mx2")
        connection.sendall(CLIENT + mail(system, "AHEAD2"))
        connection.sendall(packet(b"A", b""))
        assert rest(connection) == b""
        system.cont("redis-mx2")
    wait(lambda: stored(system) == [0, 0], lambda: log(system))


def test_lines_like_ours_are_deleted_as_long_as_they_are_few(running):
    """For each Postfix looks through the header from its beginning. Of a mail that is Postfix's, too: this one asks for a notice."""
    line = packet(b"L", b"Dovelane-Id\0 x\0")
    for number, answers in ((32, b"m" * 32 + b"a"), (33, b"y"), (100_000, b"y")):
        said = mail(running, "LIKE", header=number * line).replace(packet(b"R", b"<u@a.example>\0"), packet(b"R", b"<u@a.example>\0NOTIFY=SUCCESS\0"))
        wait(lambda: answers_to(running, said) == answers, lambda: log(running))
    assert "LIKE: from=<s@x.example>, nrcpt=1, action=refuse reason=Dovelane-Id lines: 100000" in log(running)


def test_who_hangs_up_leaves_no_copies(system):
    system.stop("redis-mx2")
    with connect(system) as connection:
        connection.sendall(CLIENT + mail(system, "GONE"))
        # What libmilter has not read yet, it does not read after a hang-up: no mail was complete.
        if on_libmilter(system):
            wait(lambda: "GONE" in queue_ids(system, "mx1"), lambda: log(system))
    wait(lambda: "GONE: Postfix hung up before the answer" in log(system), lambda: log(system))
    system.cont("redis-mx2")
    wait(lambda: answers_to(system, mail(system, "NEXT")) == b"d", lambda: log(system))
    wait(lambda: queue_ids(system, *system.nodes) == {"NEXT"}, lambda: log(system))
    assert "GONE: from=" not in log(system)


def test_a_long_wait_is_reported(system):
    system.stop("redis-mx2")
    began = time.monotonic()
    answers = answers_to(system, mail(system, "LONG"))
    assert answers.strip(b"p") == b"a" and "LONG: from=<s@x.example>" in log(system)
    assert b"p" in answers or time.monotonic() - began > 6  # when all stood still, both were due


def test_a_milter_that_stood_still_answers_nothing(system):
    """For longer than Postfix may wait (session.c): it may have gone on with its next mail. More connections than one turn of its loop reports."""
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(connect(system)) for _ in range(250)]
        late = [CLIENT + mail(system, f"STILL{number}") for number in range(len(connections))]
        if on_libmilter(system):  # Postfix has its answer to the end of the header before it goes on
            for number, connection in enumerate(connections):
                early, eoh, late[number] = late[number].partition(packet(b"N", b""))
                connection.sendall(early + eoh)
                assert connection.recv(5, socket.MSG_WAITALL) == packet(b"c", b"")
        system.stop("milter")
        for number, connection in enumerate(connections):
            connection.sendall(late[number])
        time.sleep(10.5)
        system.cont("milter")
        wait(lambda: all(f"STILL{number}: this process stood still" in log(system) for number in range(len(connections))), lambda: log(system)[-3000:])
        quick = connections if not on_libmilter(system) else connections[::50]
        assert all(unanswered(system, connection) for connection in quick)
    assert "STILL0: this process stood still" in log(system) and stored(system) == [0, 0]


@contextlib.contextmanager
def threads_stopped(pid):
    """All threads but the first, the loop's. As ptrace(2) does it: a signal would stop them all."""
    def ptrace(request, thread):
        if libc.ptrace(request, thread, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = 4 * [ctypes.c_long], ctypes.c_long
    stopped = []
    try:
        for thread in sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")):
            if thread != pid:
                ptrace(PTRACE_SEIZE, thread)
                ptrace(PTRACE_INTERRUPT, thread)
                os.waitpid(thread, WAIT_ALL)
                stopped.append(thread)
        yield
    finally:
        for thread in stopped:
            ptrace(PTRACE_DETACH, thread)


@pytest.mark.skipif(os.geteuid() != 0, reason="stops threads")
def test_an_order_heard_too_late_is_given_again_while_postfix_waits(system):
    """The loop has decided, and the session's thread has no processor for longer than TELL_WITHIN.
    The mail was taken back, without an answer."""
    if not on_libmilter(system):
        pytest.skip("the engine of our own has one thread")
    for attempt in range(5):    # a machine that stands still lets the deadline pass
        name = f"STARVED{attempt}"
        line = f"{name}: from=<s@x.example>"
        system.stop("redis-mx2")
        with connect(system) as connection:
            connection.sendall(CLIENT + mail(system, name))
            wait(lambda name=name: name in queue_ids(system, "mx1"), lambda: log(system))
            with threads_stopped(system["milter"].process.pid):
                system.cont("redis-mx2")
                wait(lambda line=line: line in log(system), lambda: log(system))
                time.sleep(1.5)
            if name in queue_ids(system, *system.nodes):
                assert rest(connection) == b"d", log(system)
                assert f"{name}: Postfix may not wait" not in log(system)
                return
    pytest.fail("never stored in time")


@pytest.mark.exhaustive
def test_an_answer_that_a_blocked_log_kept_is_not_given(system, tmp_path):
    """The log line stands before the answer: syslog and disks may hang for longer than Postfix waits."""
    os.mkfifo(tmp_path / "log")
    pipe = os.open(tmp_path / "log", os.O_RDWR | os.O_NONBLOCK)

    def drained():
        with contextlib.suppress(BlockingIOError):
            while os.read(pipe, 65536):
                pass
        return True

    def restart(where):
        programs.write_settings(system["milter"], {"log": where})
        system.restart("milter")
        wait(lambda: drained() and answers_to(system, mail(system, "READY")) == b"d", lambda: "nothing is stored")

    restart(f"file:{tmp_path}/log")
    for address in system.nodes.values():
        with resp.Connection(address) as redis:
            redis.call("FLUSHALL")
    drained()
    with connect(system) as connection:
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(pipe, size * b"x")
        connection.sendall(CLIENT + mail(system, "BLOCKED"))
        wait(lambda: stored(system) == [1, 1], lambda: stored(system))
        time.sleep(10.5)
        drained()
        assert unanswered(system, connection)
    wait(lambda: drained() and stored(system) == [0, 0], lambda: stored(system))
    restart("stderr")
    os.close(pipe)


# ---- who is served ----

@pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' places")
def test_without_a_group_postfix_and_root_alone_are_served(system):
    """The socket's mode lets everybody connect (milter_socket_group is empty); the kernel says who it is."""
    path = Path(system["milter"].note["socket"])
    for part in (path.parent, *path.parent.parents):
        if part.is_relative_to(system.directory):
            part.chmod(part.stat().st_mode | 0o055)
    assert path.stat().st_mode & 0o777 == 0o666

    def served(uid):
        os.seteuid(uid)
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(LIMIT)
            connection.connect(str(path))
        finally:
            os.seteuid(0)
        with connection:
            try:
                connection.sendall(NEGOTIATION)
                return connection.recv(5, socket.MSG_WAITALL)[4:] == b"O"
            except (BrokenPipeError, ConnectionResetError):
                return False
    postfix, other = pwd.getpwnam("postfix").pw_uid, pwd.getpwnam("nobody").pw_uid
    assert served(0) and served(postfix) and not served(other)
    assert f"milter_socket: process {os.getpid()} of user {other} wants to be served, but is not Postfix's" in log(system)
    assert served(postfix)
