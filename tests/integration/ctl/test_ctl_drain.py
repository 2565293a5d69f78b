"""Out of memory, into Postfix's disk queue: dovelane drain, lane_time, and a node that fills up. Nothing refused, nothing lost, nothing twice."""
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from support import admin
import pytest
from support.stack import SinkShape, lanes, oracle, resp
from support.stack.generator import Generator
from support.waiting import eventually

pytestmark = pytest.mark.long

SINKS = [SinkShape("a", [], ours=True), SinkShape("b", ["lmtp"], ours=True)]
DOMAINS = ["a.example", "b.example"]
# A mail rests for settle + revoke_wait before it may go to Postfix.
QUICK = {"retry_first": "1s", "retry_most": "2s", "store_deadline": "600ms", "max_entry": "1MB", "settle": "1300ms", "revoke_wait": "200ms"}


def diverting(stack, down=True, settings=None, **options):
    running = stack(postfix="divert", sinks=SINKS, settings={**QUICK, **(settings or {})}, **options)
    for name in "ab" if down else "":
        running.sink(name, do="down")
    return running


def held(running):
    return {node: lanes.length(address) for node, address in running.nodes.items()}


def places(verdict):
    """What kind of place each pair waits in, and how many do."""
    found = {}
    for where in verdict.waiting.values():
        kinds = "+".join(sorted({"postfix" if place.startswith("postfix") else "lane" for place in where}))
        found[kinds] = found.get(kinds, 0) + 1
    return found


def delivered_once(running, ledger):
    for name in "ab":
        running.sink(name, do="up")
    running["postfix"].flush()
    verdict = oracle.wait_delivered(running, ledger, seconds=300).check()
    assert not verdict.duplicates and set(verdict.delivered) == verdict.promised
    return verdict


def accepted(ledger):
    """Nobody was told to come again, or to go."""
    assert not [key for key, pair in ledger.known() if pair.tempfails or pair.refused or pair.unknown]
    return ledger


@pytest.mark.core
def test_drain_moves_everything_to_postfix_and_ends_diverting(stack):
    running = diverting(stack)
    ledger = accepted(Generator(smtp=running.smtp, mails=150, sessions=5, recipients=(1, 3), domains=DOMAINS).run())
    assert all(held(running).values())
    said = admin.run(running, "drain", "--to-postfix", timeout=120)
    assert said.status == 0 and "the lanes are empty; diverting is off" in said.out, said
    assert re.search(r"\[#{30}\] (\d+) of \1 mails", said.err)
    assert not any(held(running).values())
    verdict = oracle.judge(running, ledger).check()
    assert places(verdict) == {"postfix": len(verdict.promised)}
    assert "diverting is off" in admin.done(running, "divert", "status")
    delivered_once(running, ledger)


def test_lanes_between_dovecot_replicas_are_no_mail(stack):
    """They may lie on a node's server, too."""
    running = diverting(stack)
    with resp.Connection(running.nodes["mx1"]) as redis:
        redis.call("LANE.PUT", "dovelane:replica:a>b", "a parcel")
        assert "empty" in admin.done(running, "mailq")
        said = admin.run(running, "drain", "--to-postfix", timeout=120)
        assert said.status == 0 and "the lanes are empty; diverting is off" in said.out, said
        assert redis.call("LANE.LEN", "dovelane:replica:a>b") == 1


def test_drain_under_load_and_with_next_hops_that_work(stack):
    """Mail keeps coming, some is in delivery: it arrives by either way, once."""
    running = diverting(stack, down=False)
    generator = Generator(smtp=running.smtp, mails=100000, sessions=8, recipients=(1, 2), domains=DOMAINS, rate=80)
    load = threading.Thread(target=generator.run)
    load.start()
    try:
        eventually("mail flows", lambda: len(generator.ledger.promised) > 100)
        assert admin.run(running, "drain", "--to-postfix", timeout=120).status == 0
        assert not any(held(running).values())
    finally:
        generator.stop()
        load.join()
    accepted(generator.ledger)
    delivered_once(running, generator.ledger)


@pytest.mark.test
def test_an_interrupted_drain_leaves_mail_in_its_lanes_to_be_delivered(stack):
    running = diverting(stack, settings={"revoke_wait": "1min"})  # nothing may go for a minute
    ledger = accepted(Generator(smtp=running.smtp, mails=20, domains=DOMAINS).run())
    program = running.shape.build / "ctl" / "dovelane"
    with subprocess.Popen([program, "-c", running["relay-mx1"].note["conf"], "drain", "--to-postfix"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as drain:
        eventually("the relays drain", lambda: "an admin drains this node" in Path(running["relay-mx1"].log).read_text())
        drain.send_signal(signal.SIGINT)
        _, err = drain.communicate(timeout=60)
    assert drain.returncode == 1 and b"interrupted" in err and b"20 mails left in lanes" in err
    for name in "ab":
        running.sink(name, do="up")
    oracle.wait_delivered(running, ledger, seconds=300).check()
    assert not any(held(running).values())


@pytest.mark.core
def test_mail_older_than_lane_time_goes_to_postfix_and_arrives_once(stack):
    running = diverting(stack, settings={"lane_time": "3s", "spill_rate": 20})
    began = time.monotonic()
    ledger = accepted(Generator(smtp=running.smtp, mails=60, sessions=5, domains=DOMAINS).run())
    eventually("the lanes are empty", lambda: not any(held(running).values()), 90)
    assert time.monotonic() - began > 3 + 60 / 20 - 1.5, "spill_rate bounds it"
    verdict = oracle.judge(running, ledger).check()
    assert places(verdict) == {"postfix": len(verdict.promised)}
    assert "why=lane_time" in Path(running["relay-mx1"].log).read_text()
    delivered_once(running, ledger)


def test_held_mail_stays_in_memory(stack):
    running = diverting(stack, settings={"lane_time": "2s"})
    ledger = accepted(Generator(smtp=running.smtp, mails=10, domains=DOMAINS).run())
    admin.done(running, "hold", "--rcpt", "*@a.example")
    rest = len(admin.queue(running, "--rcpt", "*@a.example"))
    eventually("the others are gone", lambda: set(held(running).values()) == {rest}, 60)
    said = admin.run(running, "drain", "--to-postfix", timeout=120)
    assert said.status == 1 and f"{rest} mails left in lanes: {rest} held" in said.err
    admin.done(running, "requeue", "--all")
    eventually("they are gone", lambda: not any(held(running).values()), 60)
    delivered_once(running, ledger)


def memory(address):
    with resp.Connection(address) as connection:
        info = connection.call("LANE.INFO")
        found = dict(zip(info[0::2], info[1::2]))
        return int(found[b"used-memory"]) / int(found[b"maxmemory"])


def test_a_node_that_fills_up_spills_its_oldest_mail(stack):
    """The next hops are away and mail keeps coming, several times what memory holds."""
    running = diverting(stack, maxmemory="40mb", settings={"spill_rate": 1000})
    generator = Generator(smtp=running.smtp, mails=1800, sessions=10, domains=DOMAINS, size=(60000, 60000), rate=80)  # 108 MB
    load = threading.Thread(target=generator.run)
    load.start()
    highest = 0
    while load.is_alive():
        highest = max([highest, *map(memory, running.nodes.values())])
        time.sleep(0.1)
    load.join()
    ledger = accepted(generator.ledger)
    assert len(ledger.promised) == 1800 and highest > 0.65
    verdict = oracle.judge(running, ledger).check()
    found = places(verdict)
    assert sum(found.values()) == len(verdict.promised) == 1800 and found["lane"] > 0 and found["postfix"] > 500, found
    assert any("why=memory" in Path(running[f"relay-{node}"].log).read_text() for node in running.nodes)
    delivered_once(running, ledger)
