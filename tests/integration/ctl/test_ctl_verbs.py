"""dovelane hold, release, flush, requeue, delete: on every owner, obeyed by the relay that serves the lane."""
import re
import time
from pathlib import Path

from support import admin
from support import envelope
import pytest
from support.relay_world import World, eventually
from support.stack import programs

pytestmark = [pytest.mark.core, pytest.mark.long]

HELD, REQUEUE, DELETED = 1, 2, 4
# A mail that a milter may still be taking back is left alone: settle + revoke_wait.
QUICK = {"revoke_wait": "100ms"}


@pytest.fixture
def world(stack, tmp_path):
    worlds = []

    def start(**options):
        worlds.append(World(stack, tmp_path, **{**QUICK, **options}))
        return worlds[-1]

    yield start
    for each in worlds:
        each.end()


def marks(w, node):
    return {entry.envelope["queue_id"]: entry.envelope["marks"] for entry in w.entries(node)}


def test_held_mail_stays_and_is_delivered_after_its_release(world):
    w = world(relays=())
    peer = w.peer()
    w.store(peer, "b@example.net", queue_id="HELD1")
    w.store(peer, "c@example.net", queue_id="FREE1")
    out = admin.done(w.stack, "hold", "HELD1")
    assert out.startswith("1 mail held.")
    assert marks(w, "mx1") == marks(w, "mx2") == {"HELD1": HELD, "FREE1": 0}
    w.stack.start("relay-mx1")
    eventually("the other is delivered", lambda: len(peer.mails) == 1)
    eventually("the relay has given the held one back", lambda: admin.queue(w.stack)[0]["queue_name"] == "hold" and w.entries("mx1")[0].state == "delayed")
    assert re.search(r"(?m)^HELD1! ", admin.done(w.stack, "mailq"))
    assert "1 was so already" in admin.done(w.stack, "hold", "HELD1")
    assert len(peer.mails) == 1
    assert admin.done(w.stack, "release", "HELD1").startswith("1 mail released.")
    w.empty()
    assert [mail.recipients for mail in peer.mails] == [["c@example.net"], ["b@example.net"]]


def test_a_takeover_obeys_hold_and_delete(world):
    """What mx2 holds for mx1 has the marks, too: with mx1 dead nothing held or deleted comes out."""
    w = world(relays=())
    peer = w.peer()
    for name in ("HELD2", "GONE2", "FREE2"):
        w.store(peer, f"{name}@example.net", queue_id=name)
    admin.done(w.stack, "hold", "HELD2")
    admin.done(w.stack, "delete", "GONE2")
    assert marks(w, "mx2") == {"HELD2": HELD, "FREE2": 0}
    w.stack.kill("redis-mx1")
    w.stack.configure(dead=programs.listed(["mx1"]))
    w.stack.start("relay-mx2")
    eventually("the free one is delivered", lambda: peer.mails)
    eventually("the held one was looked at", lambda: [entry.state for entry in w.entries("mx2")] == ["delayed"])
    assert [mail.recipients for mail in peer.mails] == [["FREE2@example.net"]] and marks(w, "mx2") == {"HELD2": HELD}


def test_deleted_while_an_owner_was_away_is_removed_there_when_it_is_back(world):
    w = world(relays=())
    peer = w.peer()
    w.store(peer, "b@example.net", queue_id="AWAY1")
    w.stack.stop("redis-mx2")
    said = admin.run(w.stack, "delete", "AWAY1")
    assert said.status == 1 and "1 of them with an owner that does not answer" in said.err and "mx2" in said.err
    assert marks(w, "mx1") == {"AWAY1": DELETED}, "without it mx2 would deliver the mail when mx1 dies"
    w.stack.start("relay-mx1")
    eventually("the relay has seen the mark", lambda: w.entries("mx1")[0].state != "waiting")
    w.stack.cont("redis-mx2")
    w.empty()
    assert not peer.mails and "deleted, as an admin's mark says" in w.log()


def test_deleted_while_owner_and_next_hop_were_away_is_removed_all_the_same(world):
    """Nothing is taken for a next hop that is away."""
    w = world()
    peer = w.peer()
    peer.down()
    w.store(peer, "b@example.net", queue_id="AWAY4")
    w.logged("is away")
    w.stack.stop("redis-mx2")
    assert admin.run(w.stack, "delete", "AWAY4").status == 1
    time.sleep(2)  # the relay has looked, and could not tell mx2
    w.stack.cont("redis-mx2")
    w.empty()
    peer.up()


def test_held_while_an_owner_was_away_is_marked_there_when_it_is_back(world):
    """The relay that holds it tells the others again and again."""
    w = world(relays=(), retry_most="400ms")
    w.store(w.peer(), "b@example.net", queue_id="AWAY2")
    w.stack.stop("redis-mx2")
    assert admin.run(w.stack, "hold", "AWAY2").status == 1
    w.stack.cont("redis-mx2")
    assert marks(w, "mx2") == {"AWAY2": 0}
    w.stack.start("relay-mx1")
    eventually("mx2 knows", lambda: marks(w, "mx2") == {"AWAY2": HELD})


def test_a_mark_during_delivery_counts_when_that_fails(world):
    """The relay's result and the mark meet in one envelope: neither is lost."""
    w = world(retry_first="30s", retry_most="30s")
    peer = w.peer()
    answer = []

    def later(session):
        eventually("the test lets it go", lambda: answer, 20)
        return "450 4.2.0 not now"

    peer.say("RCPT", later, match="slow@")
    w.store(peer, "slow@example.net", "ok@example.net", queue_id="BUSY1")
    eventually("it is in delivery", lambda: peer.seen("RCPT TO:<slow"))
    assert "1 of them was in delivery" in admin.done(w.stack, "hold", "BUSY1")
    answer.append(True)
    eventually("the result is recorded", lambda: w.states("mx1")["ok@example.net"] == (1, 1))
    entry, = w.entries("mx1")
    assert entry.envelope["marks"] == HELD and w.states("mx1")["slow@example.net"] == (0, 1)
    eventually("mx2 has both, too", lambda: w.states("mx2") == w.states("mx1") and marks(w, "mx2") == {"BUSY1": HELD})
    peer.well()
    admin.done(w.stack, "release", "BUSY1")
    w.empty()
    assert sorted(sum((mail.recipients for mail in peer.mails), [])) == ["ok@example.net", "slow@example.net"]


def test_deleted_during_delivery_and_refused_is_gone(world):
    w = world(retry_first="30s", retry_most="30s")
    peer = w.peer()
    answer = []
    peer.say("RCPT", lambda session: eventually("let go", lambda: answer, 20) and "450 4.2.0 not now")
    w.store(peer, "b@example.net", queue_id="BUSY2")
    eventually("it is in delivery", lambda: peer.seen("RCPT"))
    admin.done(w.stack, "delete", "BUSY2")
    answer.append(True)
    w.empty()
    w.logged("status=deferred")
    assert not peer.mails


def test_flush_tries_deferred_mail_now_and_looks_at_next_hops_that_are_away(world):
    w = world(retry_first="1h", retry_most="1h")
    peer, away = w.peer(), w.peer()
    peer.say("RCPT", "450 4.2.0 not now", times=1)
    w.store(peer, "b@example.net", queue_id="LATER")
    away.down()
    w.store(away, "c@example.net", queue_id="AWAY3")
    w.logged("status=deferred \\(.*not now")
    w.logged("is away")
    peer.well()
    time.sleep(1.5)  # what a milter may still take back is not touched
    assert not peer.mails
    admin.done(w.stack, "flush")
    eventually("it came", lambda: len(peer.mails) == 1)
    before = w.count("is back")
    away.up()
    admin.done(w.stack, "flush", "--dest", away.destination)
    w.empty()
    assert w.count("is back") == before + 1


def test_requeue_goes_through_the_port_even_while_the_next_hop_is_away(world):
    w = world(relays=())
    port, away = w.peer(), w.peer()
    for node in ("mx1", "mx2"):
        w.configure(node, hangup=False, reinject_port=f"127.0.0.1:{port.port}")
    away.down()
    w.store(away, "b@example.net", "c@example.net", queue_id="BACK1", sender="s@example.org")
    w.store(away, "d@example.net", queue_id="STAY1")
    w.stack.start("relay-mx1")
    w.logged("is away")
    admin.done(w.stack, "requeue", "BACK1")  # too young yet: a milter might take it back
    mail = eventually("Postfix has it", lambda: port.mails)[0]
    assert (mail.sender, mail.recipients) == ("s@example.org", ["b@example.net", "c@example.net"])
    eventually("it left both nodes", lambda: marks(w, "mx1") == marks(w, "mx2") == {"STAY1": 0})
    away.up()
    assert w.count("BACK1: to=<[bc]@example.net>, .*given to Postfix's queue \\(250 .*why=requeue") == 2 and w.count("BACK1: removed") == 1


def test_requeue_waits_while_postfix_refuses_and_loses_nothing(world):
    w = world(relays=())
    port, away = w.peer(), w.peer()
    w.configure(hangup=False, reinject_port=f"127.0.0.1:{port.port}")
    away.down()
    port.say("RCPT", "451 4.3.0 queue file write error", match="c@", times=1)
    w.store(away, "b@example.net", "c@example.net", queue_id="BACK2")
    w.stack.start("relay-mx1")
    admin.done(w.stack, "requeue", "BACK2")
    w.empty()
    assert sorted(sum((mail.recipients for mail in port.mails), [])) == ["b@example.net", "c@example.net"], "each once, though one was refused at first"
    w.logged("reinject_port did not take it")
    away.up()


def test_dry_run_changes_nothing_and_many_want_yes(world):
    w = world(relays=())
    peer = w.peer()
    lane = w.lane(peer)
    meta = envelope.encode(["b@example.net"], size=5)
    for node in w.connections:
        for start in range(0, 1001, 91):
            w.push(node, lane, *[(number.to_bytes(16, "big"), meta, b"x") for number in range(start, start + 91)])
    assert w.length("mx1") == 1001
    said = admin.run(w.stack, "delete", "--all", "--dry-run")
    assert said.status == 0 and "1001 mails: --all" in said.err and "in 1001 Requests." in said.out
    said = admin.run(w.stack, "delete", "--all")
    assert said.status == 2 and "--yes" in said.err and w.length("mx1") == 1001
    nothing = admin.run(w.stack, "delete")
    assert nothing.status == 2 and "which mails" in nothing.err
    none = admin.run(w.stack, "delete", "nosuchid")
    assert none.status == 1 and "0 mails" in none.err
    assert "1001 mails" in admin.run(w.stack, "flush").err and admin.run(w.stack, "flush").status == 0  # harmless: it never asks
    assert admin.done(w.stack, "delete", "--all", "--yes").startswith("1001 mails deleted.")
    assert w.length("mx1") == w.length("mx2") == 0


def test_one_log_line_names_the_caller_and_what_was_chosen(world, tmp_path):
    w = world(relays=())
    w.configure(hangup=False, log=f"file:{tmp_path}/admin.log")
    w.store(w.peer(), "b@example.net", queue_id="LOG1")
    admin.done(w.stack, "hold", "--sender", "a@*", "--rcpt", "*@example.net")
    line, = Path(tmp_path / "admin.log").read_text().splitlines()
    assert re.search(r"dovelane\[\d+\]: hold by root \(uid 0.*\): 1 mail, 0 of them not on every owner, 0 gone, 0 failed; "
                     r"--sender 'a@\*' --rcpt '\*@example.net'", line)


def test_verbs_work_on_a_node_whose_memory_is_full(world):
    w = world(relays=())
    peer = w.peer()
    for name in ("FULL1", "FULL2"):
        w.store(peer, "b@example.net", queue_id=name, message_id="<some.message.id@example.org>")
    for connection in w.connections.values():
        connection.call("CONFIG", "SET", "maxmemory", "1mb")
    admin.done(w.stack, "hold", "FULL1")
    admin.done(w.stack, "delete", "FULL2")
    assert marks(w, "mx1") == marks(w, "mx2") == {"FULL1": HELD}
    assert [connection.call("SMEMBERS", "dovelane.look") != [] for connection in w.connections.values()] == [True, True]
