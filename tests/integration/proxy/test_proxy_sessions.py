"""Sessions of dovelane-proxy: who may speak and how, in crowds, under faults, and at its end."""
import os
import pwd
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.stack import oracle
from support.stack.generator import Generator
from support.waiting import eventually
from test_proxy import (  # noqa: F401
    CONTENT,
    entries,
    log,
    metrics,
    running,
    send,
    stack_of,
    system,
    talk,
    wait_for,
)


def test_nobody_but_postfix_is_served(system):
    path = Path(system["proxy"].note["socket"])
    assert path.stat().st_mode & 0o777 == 0o660 and path.stat().st_gid == pwd.getpwnam("postfix").pw_gid
    path.chmod(0o666)  # as if the directory and the mode guarded nothing
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect({str(path)!r}); print(s.recv(100))"
    done = subprocess.run(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, user="nobody", cwd="/", check=False)
    path.chmod(0o660)
    assert done.stdout == b"b''\n" or b"ConnectionReset" in done.stderr, (done.stdout, done.stderr)
    assert "is not proxy_user = postfix" in log(system)


SMUGGLED = [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r.\r\n", b"\r\n.\r", b"\r\n\x00.\r\n", b"\r\n..\r\n", b"\r\r\n.\r\r\n"]


@pytest.mark.parametrize("end", SMUGGLED)
def test_no_mail_is_smuggled_in_by_another_end(system, end):
    """Straight to the proxy, and by it to Postfix: what is inside one mail stays inside it, or is refused."""
    for recipient in ("u1@a.example", "u1@plain.example"):
        evil = b"MAIL FROM:<evil@x.example>\r\nRCPT TO:<smuggled@plain.example>\r\nDATA\r\nSubject: evil\r\n\r\nx\r\n.\r\n"
        with talk(system) as client:
            client.sendall(f"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n".encode())
            wait_for(client, b"354 ")
            client.sendall(CONTENT + b"x" + end + evil)
            answers = b""
            while b"250 2.0.0" not in answers and b"550 5.5.2" not in answers:
                answers += client.recv(65536)
            assert answers.count(b"250 2.0.0") + answers.count(b"550 5.5.2") == 1 and b"354" not in answers
    assert b"smuggled@plain.example" not in b"".join(str(e.envelope).encode() for e in entries(system)[0])
    assert "smuggled@plain.example" not in "".join(line for line in log(system, "postfix").splitlines() if "to=<" in line)


@pytest.mark.core
def test_a_crowd_of_connections_and_a_mail_gets_through(system):
    crowd = []
    try:
        for _ in range(800):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(60)
            client.connect(system["proxy"].note["socket"])
            crowd.append(client)
        assert send(system, "u1@a.example")[0] == 250
        assert all(client.recv(100).startswith(b"220 ") for client in crowd)
    finally:
        for client in crowd:
            client.close()
    eventually("they are forgotten", lambda: "dovelane_proxy_sessions 0\n" in metrics(system))


@pytest.mark.long
def test_large_mails_at_once_do_not_take_more_memory_than_they_may():
    content = CONTENT + (b"z" * 70 + b"\r\n") * 200000
    with stack_of(settings={"max_entry": "25MB", "proxy_memory": "64MB", "store_deadline": "30s", "settle": "45s"}) as system:
        answers = []
        threads = [threading.Thread(target=lambda n=n: answers.append(send(system, f"u{n}@a.example", content=content)[0])) for n in range(6)]
        system.stop("redis-mx2")  # nobody is done before the last one came
        for thread in threads:
            thread.start()
        eventually("one is too many", lambda: "reason=busy proxy_memory" in log(system))
        system.cont("redis-mx2")
        for thread in threads:
            thread.join()
        assert answers == [250] * 6
        peak = int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{system['proxy'].pid}/status").read_text())[1])
        assert peak < 200 * 1024, f"{peak} kB"


# ---- faults under load ----

def load_of(system, **plan):
    generator = Generator(smtp=system.smtp, domains=["a.example", "b.example", "plain.example"],
                          **{"sessions": 8, "recipients": (1, 3), "retry_after": 0.3, "mails": 1000000, "rate": 60, **plan})
    thread = threading.Thread(target=generator.run)
    thread.start()
    return generator, thread


def flowing(generator, more=30):
    wanted = len(generator.ledger.promised) + more
    eventually("mail is accepted", lambda: len(generator.ledger.promised) >= wanted)


@pytest.mark.core
@pytest.mark.parametrize("victim", ["proxy", "redis-mx2", "relay-mx1", "reload"])
def test_nothing_is_lost(victim):
    with stack_of(relays=True, settings={"retry_first": "1s", "retry_most": "2s"}) as system:
        generator, thread = load_of(system)
        try:
            for _ in range(1 if victim == "reload" else 2):
                flowing(generator)
                if victim == "reload":
                    system.kill("proxy", signal.SIGUSR1)
                    eventually("it is followed", lambda: "has taken over" in log(system))
                else:
                    system.kill(victim)
                    system.start(victim)
            flowing(generator)
        finally:
            generator.stop()
            thread.join()
        verdict = oracle.wait_delivered(system, generator.ledger, seconds=300)
        print(verdict.summary())
        assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
        # What was stored when the proxy died is delivered, and its client, who was told 4xx, sends it again: a mail per session and kill.
        # A node that is away for longer than revoke_wait may have kept what it had acked, and the log says so.
        if victim == "proxy" or (victim == "redis-mx2" and "may be sent more than once" in log(system)):
            assert len(verdict.duplicates) <= 2 * 8 * 3, verdict.report()
        else:
            assert not verdict.unexplained, verdict.report()
        if victim == "reload":
            refused = [line for line in log(system, "postfix").splitlines() if "proxy-reject" in line or "connect to proxy filter" in line]
            assert not refused, refused[:5]
            eventually("the one before has ended", lambda: "ended after its last session" in log(system))


@pytest.mark.exhaustive
def test_memory_and_descriptors_stay_flat():
    """DOVELANE_SOAK says for how many seconds; 600 by default."""
    seconds = float(os.environ.get("DOVELANE_SOAK", "600"))

    def sizes(system):
        found = {}
        for name in ("proxy", "redis-mx1", "redis-mx2", "relay-mx1", "relay-mx2"):
            pid = system[name].pid
            resident = int(re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])
            found[name] = (resident, len(os.listdir(f"/proc/{pid}/fd")))
        return found
    with stack_of(relays=True) as system:
        generator, thread = load_of(system, rate=200, sessions=20)
        try:
            time.sleep(seconds / 4)  # buffers have grown to what they need
            before = sizes(system)
            time.sleep(seconds * 3 / 4)
            after = sizes(system)
        finally:
            generator.stop()
            thread.join()
        verdict = oracle.wait_delivered(system, generator.ledger, seconds=300)
        print(before, after, verdict.summary())
        assert not (verdict.lost or verdict.damaged or verdict.strange or verdict.duplicates), verdict.report()
        for name, (resident, descriptors) in after.items():
            assert resident <= before[name][0] * 1.2 + 8192, (name, before[name], after[name])
            assert descriptors <= before[name][1] + 40, (name, before[name], after[name])  # sessions and connections come and go
        system.end("proxy")
        assert log(system).splitlines()[-1].endswith("ended")


def has_ended(system):
    """It may be started again."""
    eventually("it has ended", lambda: not Path(f"/proc/{system['proxy'].pid}").exists() or "ended" in log(system).splitlines()[-1])
    system.end("proxy")
    system.start("proxy")


def test_sigterm_leaves_time_for_the_mail_of_which_nothing_was_heard_yet(system):
    """Postfix may have answered MAIL: the proxy's answer to it goes with the greeting, and its commands come with the first RCPT."""
    with talk(system) as client:
        system.kill("proxy", signal.SIGTERM)
        eventually("it stops", lambda: not Path(system["proxy"].note["socket"]).exists() or "ended" in log(system))
        client.sendall(b"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<late@a.example>\r\nDATA\r\n")
        wait_for(client, b"354 ")
        client.sendall(CONTENT + b".\r\nQUIT\r\n")
        assert b"250 2.0.0 Ok: queued" in wait_for(client, b"221 ")
    has_ended(system)


def test_sigterm_finishes_what_is_under_way(system):
    system.stop("redis-mx2")
    with talk(system) as client:
        client.sendall(b"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<last@a.example>\r\nDATA\r\n")
        wait_for(client, b"354 ")
        system.kill("proxy", signal.SIGTERM)
        # QUIT comes with the last dot: behind its answer the proxy may close, and a client that is slow would find it gone.
        client.sendall(CONTENT + b".\r\nQUIT\r\n")
        assert b"250 2.0.0 Ok" in wait_for(client, b"221 ")
    system.cont("redis-mx2")
    has_ended(system)


@pytest.mark.core
def test_sigterm_serves_who_has_connected_before_it(system):
    """Postfix has its connection, and has taken MAIL perhaps, while it still waits in the socket's queue."""
    system.stop("proxy")
    clients = [socket.socket(socket.AF_UNIX) for _ in range(100)]  # more than are taken in one turn
    for n, client in enumerate(clients):
        client.settimeout(60)
        client.connect(system["proxy"].note["socket"])
        client.sendall(b"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<u%d@a.example>\r\nDATA\r\n" % n + CONTENT + b".\r\nQUIT\r\n")
    system.kill("proxy", signal.SIGTERM)
    system.cont("proxy")
    for client in clients:
        with client:
            assert b"250 2.0.0 Ok: queued" in wait_for(client, b"221 ")
    has_ended(system)


def test_sigterm_leaves_time_for_the_mail_whose_first_words_were_heard(system):
    """MAIL and RCPT are still on their way: their client may have been told 250 for MAIL."""
    with talk(system) as client:
        client.sendall(b"EHLO x\r\n" + b"NOOP\r\n" * 3)
        wait_for(client, b"250 2.0.0 Ok\r\n")
        system.kill("proxy", signal.SIGTERM)
        eventually("it stops", lambda: not Path(system["proxy"].note["socket"]).exists() or "ended" in log(system).splitlines()[-1])
        time.sleep(0.2)  # some looks of it for those that are idle
        client.sendall(b"MAIL FROM:<s@x.example>\r\nRCPT TO:<late@a.example>\r\nDATA\r\n")
        wait_for(client, b"354 ")
        client.sendall(CONTENT + b".\r\nQUIT\r\n")
        assert b"250 2.0.0 Ok: queued" in wait_for(client, b"221 ")
    has_ended(system)
