"""dovelane mailq, show, cat, qshape: what waits in lanes, as Postfix's own commands print what waits in its queue."""
import json
import re
import smtplib
import subprocess
import time

from support import admin
from support import envelope
import pytest
from support.relay_world import BODY, World
from support.stack import SinkShape
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture
def world(stack, tmp_path):
    worlds = []

    def start(**options):
        worlds.append(World(stack, tmp_path, **options))
        return worlds[-1]

    yield start
    for each in worlds:
        each.end()


def send(running, sender, recipients, subject="hello"):
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(sender, recipients, f"Subject: {subject}\r\nX-Oracle-Id: {subject}-12345678\r\n\r\ntext\r\n")


def postqueue(running, flag):
    config = running["postfix"].note["config_directory"]
    return subprocess.run(["postqueue", "-c", config, flag], stdout=subprocess.PIPE, check=True, timeout=60, env={"TZ": "UTC", "PATH": "/usr/sbin:/usr/bin"}).stdout.decode()


def shape_of(text):
    """The text with what differs from mail to mail made equal, and its blanks kept."""
    text = re.sub(r"(?m)^[0-9A-Za-z]{12,17}(?=[*! ])", lambda found: "I" * len(found[0]), text)
    text = re.sub(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d", "DATE", text)
    text = re.sub(r"(?m)^ *\(.*\)$", "(REASON)", text)
    return re.sub(r"I +\d+ DATE", "I SIZE DATE", text)


def test_a_waiting_mail_looks_as_in_postqueue(stack):
    """The same mail once in Postfix's queue and once in a lane: one text, one set of keys."""
    running = stack(postfix="divert", sinks=[SinkShape("a", [], ours=True), SinkShape("b", [], ours=True)], divert=["a"],
                    postconf={"enable_long_queue_ids": "yes"})
    assert admin.done(running, "mailq") == postqueue(running, "-p") == "Mail queue is empty\n"
    for name in "ab":
        running.sink(name, do="down")
    send(running, "s@example.org", ["x@a.example", "y@a.example"])
    send(running, "s@example.org", ["x@b.example", "y@b.example"])
    eventually("Postfix has tried", lambda: "(" in postqueue(running, "-p"))
    eventually("the relay has tried", lambda: "(" in admin.done(running, "mailq"))
    ours, theirs = admin.done(running, "mailq"), postqueue(running, "-p")
    assert shape_of(ours).replace("a.example", "b.example") == shape_of(theirs)
    assert re.search(r"\(connect to .*Connection refused\)", ours)
    mine, = admin.queue(running)
    other = json.loads(postqueue(running, "-j"))
    assert list(mine)[:len(other)] == list(other) and set(mine) - set(other) == {"nodes", "lane", "schema"}
    assert mine["nodes"] == ["mx1", "mx2"] and mine["lane"].endswith("|mx1>mx2")
    theirs = [[key for key in each if key != "orig_address"] for each in other["recipients"]]  # that one is new in Postfix 3.11
    assert [list(each) for each in mine["recipients"]] == theirs == [["address", "delay_reason"]] * 2
    assert abs(mine["arrival_time"] - time.time()) < 60 and mine["forced_expire"] is False and mine["sender"] == "s@example.org"


def test_states_are_named_as_postfix_names_its_queues(world):
    w = world(relays=(), retry_first="1h", retry_most="1h")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 greylisted, try later", match="later@")
    peer.say("DOT", "hang")
    w.store(peer, "later@example.net", queue_id="later00")
    w.store(peer, "now@example.net", queue_id="now00000")
    assert {each["queue_name"] for each in admin.queue(w.stack)} == {"incoming"}
    w.stack.start("relay-mx1")
    states = {"later00": "deferred", "now00000": "active"}
    eventually("one is deferred, one is active", lambda: {each["queue_id"]: each["queue_name"] for each in admin.queue(w.stack)} == states)
    text = admin.done(w.stack, "mailq")
    assert re.search(r"(?m)^now00000\* ", text) and re.search(r"(?m)^later00 ", text)
    deferred, = admin.queue(w.stack, "--id", "later00")
    assert deferred["recipients"] == [{"address": "later@example.net", "delay_reason": deferred["recipients"][0]["delay_reason"]}]
    assert re.search(r"said: 450 4\.2\.0 greylisted, try later", deferred["recipients"][0]["delay_reason"])


def test_selectors(world):
    w = world(relays=())
    lmtp, smtp = w.peer(lmtp=True), w.peer()
    hour = 3600 * 10**6
    now = time.time_ns() // 1000
    w.store(lmtp, "a@one.example", queue_id="A1", sender="", client_addr="192.0.2.77", arrived=None)
    w.store(smtp, "b@two.example", queue_id="B2", sender="Boss@Example.ORG", login="boss", client_addr="2001:db8::5", client_name="Mail.Example",
            body=b"Received: x\r\nSubject: your\r\n\tINVOICE 17\r\nTo: x\r\n\r\nsubject: no\r\n" + b"x" * 20000, meta=None)
    old = envelope.encode([envelope.recipient("c@three.example", attempts=2, reason="4.4.2 lost connection", last_attempt=now)], size=10, arrived=now - 2 * hour,
                          queue_id="C3", client_addr="198.51.100.1")
    w.store(smtp, meta=old)

    def ids(*words):
        return {each["queue_id"] for each in admin.queue(w.stack, *words)}

    assert ids() == ids("--all") == {"A1", "B2", "C3"}
    assert ids("--id", "B2") == {"B2"} and ids("--id", "B2", "--id", "C3") == {"B2", "C3"} and ids("--id", "b2") == set()
    assert ids("--sender", "") == {"A1"} and ids("--sender", "boss@*") == {"B2"}
    assert ids("--rcpt", "*@t*.example") == {"B2", "C3"} and ids("--rcpt", "*@t*.example", "--sender", "boss@example.org") == {"B2"}
    assert ids("--recipient", "*@t*.example") == {"B2", "C3"}
    for written in (lmtp.destination, lmtp.destination.upper(), lmtp.destination.replace("[", "[[]"), lmtp.destination.partition("]")[0] + "]*"):
        assert ids("--dest", written) == {"A1"}, written
    assert ids("--dest", "lmtp:*") == {"A1"} and ids("--dest", "smtp:*") == {"B2", "C3"}
    assert ids("--sasl-user", "*") == {"B2"}
    assert ids("--client", "192.0.2.0/25") == {"A1"} and ids("--client", "192.0.2.0/26") == set() and ids("--client", "2001:db8::/32") == {"B2"}
    assert ids("--client", "mail.*") == {"B2"} and ids("--client", "198.51.100.1") == {"C3"}
    assert ids("--age", "1h") == {"C3"} and ids("--age", "<1h") == {"A1", "B2"} and ids("--age", "1d") == set()
    assert ids("--size", "10kB") == {"B2"} and ids("--size", "<11") == {"C3"}
    assert ids("--error", "LOST conn.*") == {"C3"} and ids("--error", "refused") == set()
    assert ids("--header", "^subject: .*invoice") == {"B2"} and ids("--header", "^subject: no") == set()
    for words, said in ((("--age", "soon"), "--age soon"), (("--client", "1.2.3.4/40"), "0 to 32 bits"), (("--header", "("), "--header ("), (("--size", "1h"), "--size 1h")):
        wrong = admin.run(w.stack, "mailq", *words)
        assert wrong.status == 2 and said in wrong.err, wrong


def test_nothing_of_a_mail_drives_the_terminal(world):
    w = world(relays=())
    evil = "\x1b[2J\x9b31m\x07"  # as UTF-8
    meta = envelope.encode([envelope.recipient(f"b{evil}@ex{evil}.net", attempts=1, reason=f"4.0.0 {evil}", last_attempt=1)], size=3, queue_id=f"Q{evil}",
                           sender=f"s{evil}@example.org", client_name=evil, helo=evil)
    name = w.store(w.peer(), meta=meta)
    for words in (("mailq",), ("qshape",), ("qshape", "-s"), ("show", name.hex()), ("hold", "--dry-run", "--all")):
        said = admin.run(w.stack, *words)
        assert said.status == 0 and len(said.out) > 50
        assert not [c for c in said.out + said.err if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"], (words, said)
    each, = admin.queue(w.stack)
    assert each["sender"] == f"s{evil}@example.org"


def test_show_and_cat(world):
    w = world(relays=())
    name = w.store(w.peer(), "b@example.net", queue_id="Q7", copies=("mx1",), client_name="mail.example", client_addr="192.0.2.1", helo="mail", protocol="ESMTP")
    text = admin.done(w.stack, "show", "Q7")
    assert name.hex() in text and "copy        mx1: waiting, revision 0" in text and "copy        mx2: none" in text
    assert "client      mail.example[192.0.2.1]" in text and "recipient   b@example.net" in text
    assert admin.done(w.stack, "show", name.hex()) == text
    assert admin.run(w.stack, "cat", "Q7", raw=True).out == BODY
    missing = admin.run(w.stack, "show", "nobody")
    assert missing.status == 1 and missing.out == "" and "no lane holds nobody" in missing.err
    assert admin.run(w.stack, "show").status == 2
    assert admin.done(w.stack, "show", "--to", "b@example.net") == text == admin.done(w.stack, "show", "--next-hop", "smtp:*")
    assert "no mail in the lanes fits --sender 'x@*'" in admin.run(w.stack, "show", "--from", "x@*").err
    w.store(w.peer(), "c@example.net", queue_id="Q8", copies=("mx1",))
    assert admin.run(w.stack, "cat", "--id", "Q7", raw=True).out == BODY
    several = admin.run(w.stack, "cat", "--all")
    assert several.status == 2 and several.out == "" and "cat prints one mail, and several fit: Q7, Q8; name one" in several.err, several
    assert admin.done(w.stack, "mailq", "Q8").count("Q8") == 1 and "Q7" not in admin.done(w.stack, "mailq", "Q8")
    first, second = admin.done(w.stack, "show", "Q7", "Q8").split("\n\n")
    assert first + "\n" == text and second.startswith("queue id    Q8\n")


def test_an_unreadable_envelope_is_shown_and_does_not_end_the_list(world):
    w = world(relays=())
    broken = w.store(w.peer(), meta=b"\x07nonsense")
    w.store(w.peer(), "b@example.net", queue_id="Q8")
    text = admin.done(w.stack, "mailq")
    assert broken.hex() in text and "cannot be read: unknown version" in text and "Q8" in text
    assert {each["queue_id"] for each in admin.queue(w.stack)} == {broken.hex(), "Q8"}


def test_a_node_that_is_down_is_named_and_the_rest_is_shown(world):
    w = world(relays=())
    w.store(w.peer(), "b@example.net", queue_id="Q9")
    w.stack.kill("redis-mx2")
    said = admin.run(w.stack, "mailq", "-j")
    assert said.status == 1 and json.loads(said.out)["nodes"] == ["mx1"] and "node mx2" in said.err
    w.stack.kill("redis-mx1")
    said = admin.run(w.stack, "mailq")
    assert said.status == 2 and "no node answers" in said.err and said.out == ""


def test_qshape(world):
    w = world(relays=())
    peer, now, minute = w.peer(), time.time_ns() // 1000, 60 * 10**6
    for minutes, domain, times in ((1, "a.example", 3), (7, "a.example", 1), (100, "b.example", 1), (5000, "b.example", 12)):
        for number in range(times):
            w.store(peer, f"u{number}@{domain}", meta=envelope.encode([f"u{number}@{domain}"], size=1, arrived=now - minutes * minute))
    rows = [line.split() for line in admin.done(w.stack, "qshape").splitlines()]
    assert rows == [["T", "5", "10", "20", "40", "80", "160", "320", "640", "1280", "1280+"],
                    ["TOTAL", "17", "3", "1", "0", "0", "0", "1", "0", "0", "0", "12"],
                    ["b.example", "13", "0", "0", "0", "0", "0", "1", "0", "0", "0", "12"],
                    ["a.example", "4", "3", "1", "0", "0", "0", "0", "0", "0", "0", "0"]]
    senders = [line.split() for line in admin.done(w.stack, "qshape", "-s").splitlines()]
    assert senders[2][:2] == ["example.org", "17"]


def test_help_teaches():
    from support.stack.shape import Shape
    program = Shape(postfix="none").build / "ctl" / "dovelane"
    top = subprocess.run([program, "-h"], stdout=subprocess.PIPE, check=True, timeout=20).stdout.decode()
    names = re.findall(r"(?m)^  ([a-z]+) ", top)
    assert len(names) == len(set(names)) >= 9
    for name in names:
        one = subprocess.run([program, name, "--help"], stdout=subprocess.PIPE, check=True, timeout=20).stdout.decode()
        assert one.startswith(f"usage: dovelane {name}"), name
    assert subprocess.run([program, "nonsense"], stderr=subprocess.PIPE, check=False, timeout=20).returncode == 2
