"""metrics_listen of the milter and the proxy, with real mail through Postfix."""

import os
import re
import signal
import smtplib
from pathlib import Path

import pytest

from support.waiting import eventually
from support.stack.scrape import Page, promtool
from support.stack.shape import SinkShape

pytestmark = pytest.mark.test


@pytest.fixture(params=["milter", "proxy"])
def way(request):
    fresh = Page(request.param)
    fresh.program = request.param
    yield fresh
    fresh.close()


@pytest.fixture
def system(stack, way):
    running = stack(
        postfix={"milter": "divert", "proxy": "proxy"}[way.program],
        sinks=[SinkShape("a", ours=True)],
        divert=["a"],
        maps={"a.example": "a", "q.example": "smtp:[127.0.0.1]:9"},
        relays=False,
        settings={"metrics_listen": way.listen},
    )
    yield running
    for pid in processes(
        running, way.program
    ):  # those that took over from the one that the stack started
        os.kill(pid, signal.SIGTERM)
    eventually("all have ended", lambda: not processes(running, way.program))


def processes(system, program):
    conf, found = system[program].note["conf"].encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            conf in words
            and words[0].endswith(b"dovelane-" + program.encode())
            and b"-t" not in words
        ):
            found.append(int(path.parent.name))
    return found


def send(system, recipient):
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", [recipient], "Subject: x\r\n\r\nhello\r\n")


def test_what_came_in_is_counted(system, way):
    eventually("it is served, and ready", lambda: (way.ask("/readyz") or [0])[0] == 200)
    eventually(
        "mail is diverted",
        lambda: send(system, "u@a.example") or way.values()["mails_diverted_total"] >= 5,
    )
    send(system, "u@q.example")
    eventually("one is Postfix's", lambda: way.values()["mails_queued_total"] >= 1)
    seen = way.values()
    lanes, queue = ('answer_seconds_count{result="%s"}' % result for result in ("lanes", "queue"))
    assert seen[lanes] == seen["mails_diverted_total"] and seen[queue] == seen["mails_queued_total"]
    reasons = [n for name, n in seen.items() if name.startswith("mails_queued_reasons_total")]
    assert sum(reasons) == seen["mails_queued_total"]
    for node in system.nodes:
        assert (
            seen[f'store_seconds_count{{node="{node}"}}'] == seen["store_held_total"]
            and seen[f'node_usable{{node="{node}"}}'] == 1
        )
    allowed = [n for name, n in seen.items() if name.startswith("divert_allowed{nexthop=")]
    assert seen["divert_on"] == 1 and allowed == [1] and promtool(way.text()) == ""


def test_a_node_that_stands_still_is_named(system, way):
    eventually(
        "mail is diverted",
        lambda: send(system, "u@a.example") or way.values().get("mails_diverted_total", 0) >= 1,
    )
    system.stop("redis-mx2")
    try:
        refusal = 'store_refusals_total{node="mx2",reason="timeout"}'
        send(system, "u@a.example")
        eventually("its refusals", lambda: way.values().get(refusal) or send(system, "u@a.example"))
        eventually("it cannot be used", lambda: way.values()['node_usable{node="mx2"}'] == 0)
        eventually("too few", lambda: way.ask("/readyz")[0] == 503)
        assert way.values()["answer_seconds_count{result=\"failover\"}"] >= 1
    finally:
        system.cont("redis-mx2")
    eventually("all are back", lambda: way.ask("/readyz")[0] == 200)


def test_a_handover_takes_the_port(system, way):
    eventually(
        "mail is diverted",
        lambda: send(system, "u@a.example") or way.values().get("mails_diverted_total", 0) >= 3,
    )
    for _ in range(2):
        old = processes(system, way.program)
        assert len(old) == 1
        os.kill(old[0], signal.SIGUSR1)
        eventually("the new one has it", lambda: way.values().get("mails_diverted_total") == 0)
        eventually("the old one has ended", lambda: old[0] not in processes(system, way.program))
        eventually(
            "its mails are counted",
            lambda: send(system, "u@a.example") or way.values()["mails_diverted_total"] >= 3,
        )
    assert not re.search(
        r"metrics_listen = .*no metrics", Path(system[way.program].log).read_text()
    )
