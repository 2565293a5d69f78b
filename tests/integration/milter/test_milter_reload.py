"""SIGUSR1: a reload, and an upgrade, without one client noticing."""
import os
import re
import signal
import smtplib
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import sinks
from support.stack import Stack, lanes, programs
from support.stack.shape import SinkShape
from support.milter import milters, serving

pytestmark = pytest.mark.long

LIMIT = 60


@pytest.fixture
def system(engine):
    with Stack(postfix="divert", sinks=[SinkShape("a", ours=True)], divert=["a"], relays=False) as running:
        end = time.monotonic() + LIMIT
        while "action=lane" not in log(running):
            assert time.monotonic() < end, log(running)[-2000:]
            mail(connect(running), "probe@a.example")
        yield running
        for pid in milters(running):  # those that took over from the one that the stack started
            os.kill(pid, signal.SIGTERM)
        wait(lambda: not milters(running))


def log(system):
    return Path(system["milter"].log).read_text()


def wait(condition, what=lambda: ""):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def connect(system):
    host, _, port = system.smtp.rpartition(":")
    client = smtplib.SMTP(host, int(port))
    client.ehlo("client.example")
    return client


def mail(client, recipient):
    """The answers that were not 2xx or 3xx."""
    answers = [client.mail("s@x.example"), client.rcpt(recipient)]
    if answers[1][0] == 250:
        answers.append(client.data(b"Subject: x\r\n\r\nhello\r\n"))
    return [answer for answer in answers if answer[0] >= 400]


def reload(system):
    """Sends the signal to the one that serves, waits for its successor."""
    old = serving(system)
    os.kill(old, signal.SIGUSR1)
    wait(lambda: serving(system) != old, lambda: log(system)[-2000:])
    return old, serving(system)


@pytest.mark.core
def test_twenty_long_sessions_see_only_250s_across_three_upgrades(system):
    refused, sent, step = [], [], threading.Barrier(21)

    def session(number):
        client = connect(system)
        for count in range(10):
            if count in (2, 4, 7):
                step.wait(LIMIT)  # all are in the middle of a session
                step.wait(LIMIT)  # the upgrade was done
            name = f"u{number}.{count}@a.example"
            bad = mail(client, name)
            (refused if bad else sent).append((name, bad))
        client.quit()

    threads = [threading.Thread(target=session, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    processes = {serving(system)}
    for _ in range(3):
        step.wait(LIMIT)
        processes |= set(reload(system))
        step.wait(LIMIT)
    for thread in threads:
        thread.join(LIMIT)
    assert not refused and len(sent) == 200
    assert len(processes) == 4
    for address in system.nodes.values():
        stored = [r.address for e in lanes.entries("", address) for r in e.envelope["recipients"]]
        assert sorted(name for name in stored if name[0] == "u") == sorted(name for name, _ in sent)
    wait(lambda: milters(system) == [serving(system)], lambda: str(milters(system)) + log(system)[-2000:])
    assert log(system).count("ended after its last session") == 3


def test_a_reload_hands_on_no_descriptors(system):
    def descriptors():
        return len(list(Path(f"/proc/{serving(system)}/fd").iterdir()))
    reload(system)
    before = descriptors()
    for _ in range(2):
        reload(system)
        assert not mail(connect(system), "u@a.example")
    wait(lambda: descriptors() <= before, lambda: f"{descriptors()} after {before}")


def test_a_bad_file_changes_nothing(system):
    conf = Path(system["milter"].note["conf"])
    good, old = conf.read_text(), serving(system)
    conf.write_text(good + '\ncopies = "many"\n')
    os.kill(old, signal.SIGUSR1)
    wait(lambda: "reload: nothing is changed" in log(system))
    assert "dovelane.conf:" in log(system).split("nothing is changed", 1)[1].splitlines()[0]
    assert serving(system) == old and not mail(connect(system), "u@a.example")
    conf.write_text(good)
    assert reload(system)[0] == old and not mail(connect(system), "u@a.example")


def test_a_second_one_is_refused_and_takes_nothing(system):
    """Neither the socket nor the metrics."""
    note = system["milter"].note
    directory = sorted(Path(note["metrics"]).parent.iterdir())
    said = subprocess.run([programs.needed(system.shape.build / "milter" / "dovelane-milter", "the milter"), "-c", note["conf"], "-n", note["node"]], capture_output=True, text=True,
                          timeout=LIMIT, check=False, env={**os.environ, **system["milter"].env})
    assert said.returncode and "another process answers there" in said.stdout + said.stderr, said
    assert sinks.metrics(system, "milter")["mails_diverted_total"] >= 1, "they are those of the one that is at work"
    assert sorted(Path(note["metrics"]).parent.iterdir()) == directory
    assert not mail(connect(system), "u@a.example")


def test_a_reload_while_the_new_process_comes_up_is_not_lost(system):
    """Two `systemctl reload` in a row: the second signal reaches the process that is about to leave."""
    conf = Path(system["milter"].note["conf"])
    good, old = conf.read_text(), serving(system)
    kept = connect(system)  # the old one has a session, and stays
    assert not mail(kept, "u1@a.example")
    conf.write_text("\n".join(line for line in good.splitlines() if not line.startswith("divert")))
    os.kill(old, signal.SIGUSR1)
    wait(lambda: len(milters(system)) == 2)
    new = next(pid for pid in milters(system) if pid != old)
    os.kill(new, signal.SIGSTOP)
    conf.write_text(good)
    os.kill(old, signal.SIGUSR1)
    os.kill(new, signal.SIGCONT)
    wait(lambda: serving(system) not in (old, new), lambda: log(system)[-2000:])
    before = log(system).count("action=")
    assert not mail(connect(system), "u2@a.example")
    wait(lambda: log(system).count("action=") > before)
    assert log(system)[log(system).rindex("action="):].startswith("action=lane")
    assert not mail(kept, "u3@a.example")
    kept.quit()


def test_a_program_that_does_not_come_up_changes_nothing(system):
    """The new file is good for -t, and yet the new process cannot start."""
    conf = Path(system["milter"].note["conf"])
    good, old = conf.read_text(), serving(system)
    conf.write_text(good + '\nmilter_socket_group = "no-such-group-here"\n')
    os.kill(old, signal.SIGUSR1)
    wait(lambda: "the new process did not come up" in log(system), lambda: log(system)[-2000:])
    assert "there is no such group" in log(system)
    assert serving(system) == old and milters(system) == [old] and not mail(connect(system), "u@a.example")
    conf.write_text(good)


def test_the_file_is_read_anew(system):
    conf = Path(system["milter"].note["conf"])
    before = conf.read_text()
    conf.write_text("\n".join(line for line in before.splitlines() if not line.startswith("divert")))
    kept = connect(system)  # a session of before
    assert not mail(kept, "u1@a.example")
    reload(system)
    assert not mail(connect(system), "u2@a.example")
    # with the next hop, as it is to be written into divert
    assert f"action=queue reason=not-in-divert {system.destinations['a']} to=<u2@a.example>" in log(system).splitlines()[-1]
    assert not mail(kept, "u3@a.example")
    assert "action=lane" in log(system).splitlines()[-1]
    kept.quit()
    conf.write_text(before)


def test_a_reload_changes_the_engine_and_changes_it_back(system, engine):
    conf = Path(system["milter"].note["conf"])
    before = conf.read_text()
    lines = [line for line in before.splitlines() if not line.startswith("milter_engine")]
    other = {"own": "libmilter", "libmilter": "own"}[engine]
    clients = [connect(system)]
    for text, name in ("\n".join([*lines, f"milter_engine = {other}"]) + "\n", other), (before, engine):
        assert not mail(clients[-1], "u1@a.example")
        conf.write_text(text)
        reload(system)
        assert f"milter_engine = {name}" in [line for line in log(system).splitlines() if " started: " in line][-1]
        clients.append(connect(system))
    for number, client in enumerate(clients):  # sessions of all three
        assert not mail(client, f"u{number}@a.example")
        assert "action=lane" in log(system).splitlines()[-1]
        client.quit()
    wait(lambda: milters(system) == [serving(system)], lambda: str(milters(system)) + log(system)[-2000:])


def test_the_old_one_does_not_take_the_new_ones_socket_along(system):
    kept = connect(system)
    assert not mail(kept, "u1@a.example")
    old, new = reload(system)
    os.kill(old, signal.SIGTERM)  # although it still has a session
    wait(lambda: milters(system) == [new])
    assert serving(system) == new and not mail(connect(system), "u2@a.example")


def test_the_service_manager_is_told(system, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT)
        system["milter"].env.update(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000")
        system.restart("milter")
        assert manager.recv(1000).decode() == f"MAINPID={serving(system)}\nREADY=1"
        assert {manager.recv(1000) for _ in range(3)} == {b"WATCHDOG=1"}
        _, new = reload(system)
        said = b"WATCHDOG=1"
        while said == b"WATCHDOG=1":
            said = manager.recv(1000)
        assert said.decode() == f"MAINPID={new}\nREADY=1"
        os.kill(new, signal.SIGTERM)
        while manager.recv(1000) != b"STOPPING=1":
            pass


def test_the_socket_is_taken_over_when_the_nodes_are_connected(system):
    """The first mail after a reload is not refused for want of nodes."""
    before = len(log(system))
    _, new = reload(system)
    wait(lambda: "started: version" in log(system)[before:], lambda: log(system)[before:])
    early, _, _ = log(system)[before:].partition("started: version")
    for node in system.nodes:
        assert re.search(rf"node {node} \(.*, store\): connected", early), (new, log(system)[before:])
