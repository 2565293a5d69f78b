"""What is done to retained mail by admins, by hostile sites, and by many of them."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from support.relay_world import BODY
from support.site_world import SiteWorld, entry_id
from support.stack import resp
from support.stack.delivery_id import guid
from support.waiting import eventually

pytestmark = pytest.mark.test


@pytest.fixture
def world(stack, tmp_path):
    made = []

    def make(**options):
        made.append(SiteWorld(stack, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def silent(question):
    """No answer yet."""


def say(site, node, body, name=None):
    with resp.Connection(site.address, timeout=30) as connection:
        connection.call("LANE.PUSH", 1, f"dovelane:answered:{node}", "ENTRIES", 1, 1, name or entry_id(body), "", body)


def answers_taken(site, node="mx1"):
    def none_left():
        with resp.Connection(site.address, timeout=30) as connection:
            return connection.call("LANE.LEN", f"dovelane:answered:{node}") in (0, None)
    eventually("all answers are taken", none_left)


def test_forged_answers_let_nothing_go(world):
    w = world()
    a, b = w.sites
    a.word = silent
    name = w.put()
    w.retained("mx1", "mx2")
    own, other = guid(name.hex(), BODY, "b@example.net"), guid("0" * 32, BODY, "b@example.net")
    for at, number, which, word in ((a, 2, own, "safe"), (b, 1, own, "safe"), (a, 1, other, "safe"), (a, 1, own.upper(), "safe"), (b, 2, own, "unknown"),
                                    (a, 1, own, "SAFE"), (a, 1, own, "safe "), (a, "01", own, "safe"), (a, 2**64, own, "safe"), (a, 1, "", "safe"),
                                    (a, 1, own + "0", "safe"), (a, 2**32 + 1, own, "safe")):
        say(at, "mx1", f"1 {which} {number} 1 {word}".encode())
    for body in (b"", b"\0" * 40, b"1 " + b"a" * 5000, b"2 " + own.encode() + b" 1 1 safe", b"x" * 700000, b"\xff\xfe 1 1 1"):
        say(a, "mx1", body)
    answers_taken(a), answers_taken(b)
    before = len(a.questions)
    eventually("it is asked for as before", lambda: len(a.questions) > before + 2)
    assert w.retained("mx1", "mx2") == 1 and len(a.peer.mails) == 1 and not b.peer.mails
    a.word = lambda question: "safe"
    w.empty()
    assert len(a.peer.mails) == 1


def ctl(w, *words):
    program = Path(os.environ["DOVELANE_BUILD"]) / "ctl" / "dovelane"
    done = subprocess.run([program, "-c", w.relay().note["conf"], *words], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_what_an_admin_does_to_it(world):
    w = world()
    a, b = w.sites
    a.word = silent
    name = w.put("b@example.net", "c@example.net")
    w.retained("mx1", "mx2")
    said = {words: ctl(w, *words) for words in (("mailq",), ("mailq", "-j"), ("show", name.hex()), ("show", "-j", name.hex()), ("cat", name.hex()), ("hold", name.hex()),
                                                 ("requeue", name.hex()), ("release", name.hex()))}
    assert "retained until" in said["mailq",][1] and {each["address"] for each in json.loads(said["mailq", "-j"][1])["recipients"]} == {
        "b@example.net", "c@example.net"}
    assert "retained" in said["show", name.hex()][1] and "hello" in said["cat", name.hex()][1]
    before = len(a.questions)
    eventually("it is asked for as before", lambda: len(a.questions) > before + 2)
    assert w.retained("mx1", "mx2") == 1
    assert ctl(w, "delete", name.hex())[0] == 0
    w.empty()
    assert len(a.peer.mails) == 2 and not b.peer.mails


@pytest.mark.parametrize("times", [3])
def test_until_switched_to_and_fro_while_mail_flows(world, times):
    w = world()
    a, b = w.sites
    inside = dict(w.relay().note["settings"]["destinations"][w.destination])
    a.word = silent
    names = []
    for i in range(times):
        for until in ("delivered", "replicated"):
            for _ in range(20):
                names.append(w.put(f"u{len(names)}@example.net"))
            for node in ("mx1", "mx2"):
                w.configure(node, destinations={w.destination: dict(inside, until=until)})
    eventually("all are delivered", lambda: len({m.recipients[0] for m in a.peer.mails}) == len(names))
    a.ship()
    a.word = a.by_rule
    w.empty()
    assert len(a.peer.mails) == len(names) and not b.peer.mails


def test_replicas_and_the_section_vanish(world):
    w = world()
    a, b = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    for node in ("mx1", "mx2"):
        w.configure(node, destinations={}, replicas={}, replicate_namespaces="")
    w.empty()
    assert len(a.peer.mails) == 1 and not b.peer.mails


@pytest.mark.parametrize("trouble", ["refuses", "full", "stands still"])
def test_a_sites_redis_in_trouble(world, trouble):
    w = world(section={"replicated_wait": "30s"})
    a, b = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    eventually("asked", lambda: a.questions)
    with resp.Connection(a.address, timeout=30) as connection:
        if trouble == "refuses":
            connection.call("ACL", "SETUSER", "default", "-lane.take")
        elif trouble == "full":
            connection.call("CONFIG", "SET", "maxmemory", "1mb")
        else:
            a.redis.send(19)
        time.sleep(8)
        lines = w.log().count("\n")
        time.sleep(5)
        grown = w.log().count("\n") - lines
        print("log lines in 5 s:", grown)
        assert w.retained("mx1", "mx2") == 1 and len(a.peer.mails) == 1
        if trouble == "refuses":
            connection.call("ACL", "SETUSER", "default", "+lane.take")
        elif trouble == "full":
            connection.call("CONFIG", "SET", "maxmemory", "0")
        else:
            a.redis.send(18)
    a.word = lambda question: "safe"
    w.empty()
    assert len(a.peer.mails) == 1 and grown < 1000
    assert w.count("cannot be taken") <= 2, "once a minute"


@pytest.mark.long
def test_thousands(world):
    w = world(relays=("mx1",), destination_concurrency=16, log_level="info", section={"replicated_wait": "60s"})
    a, b = w.sites
    a.word = silent
    n = 4000
    for i in range(n):
        w.put(f"u{i}@example.net")
    eventually("all are delivered", lambda: len(a.peer.mails) == n, 280)
    eventually("all are asked for", lambda: len({q.guid for q in a.questions}) == n)

    def cpu():
        stat = Path(f"/proc/{w.relay().pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    before = cpu()
    time.sleep(30)
    print("CPU seconds of 30 s :", cpu() - before)
    print("RSS:", [x for x in Path(f"/proc/{w.relay().pid}/status").read_text().splitlines() if "VmRSS" in x])
    w.stack.kill("relay-mx1")
    began = time.monotonic()
    a.questions.clear()
    w.stack.start("relay-mx1")
    eventually("all are asked for again", lambda: len({q.guid for q in a.questions}) == n, 280)
    print("seconds after a restart until all are asked for:", time.monotonic() - began, "CPU", cpu())
    a.ship()
    a.word = a.by_rule
    eventually("none is left", lambda: w.length("mx1") == 0, 280)
    assert len(a.peer.mails) == n
