"""What the milter puts into lanes, what it leaves to Postfix, and what it does when storing fails.

The relays do not run here: entries stay where the milter put them.
"""
import concurrent.futures
import contextlib
import re
import smtplib
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.relay_world import eventually
from support.stack import Stack, lanes, programs, resp
from support.stack.shape import SinkShape
from support.mail import bodies, entries, postqueue, queue_id, send
from support.milter import milter_log

SINKS = [SinkShape("a", ours=True), SinkShape("b", ["lmtp"], ours=True), SinkShape("plain", ours=True)]
DIVERTED = ["a", "b"]
pytestmark = pytest.mark.usefixtures("engine")


def stack_of(**options):
    settings = {"max_entry": "1MB", "bulk_entry": "64kB", **options.pop("settings", {})}
    return Stack(postfix="divert", sinks=SINKS, divert=DIVERTED, relays=False, settings=settings, **options)


@pytest.fixture(scope="module")
def running(engine):
    with stack_of() as system:
        yield system


@pytest.fixture
def system(running):
    """The shared system, with empty lanes and whole."""
    yield running
    for node in ("mx1", "mx2"):
        running.cont(f"redis-{node}")
        running.start(f"redis-{node}")
        with resp.Connection(running.nodes[node]) as redis:
            redis.call("FLUSHALL")
    wait_able(running)


def metric(system, service, name):
    path = system[service].note["metrics"]
    with resp.socket.socket(resp.socket.AF_UNIX) as connection:
        connection.connect(path)
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(re.search(rf"^dovelane_{name} (-?\d+)$", text, re.M)[1])


def wait_able(system):
    """Waits until the milter stores again (both its nodes are connected)."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        send(system, "u@a.example")
        if all(entries(system)):
            for address in system.nodes.values():
                with resp.Connection(address) as redis:
                    redis.call("FLUSHALL")
            return
        time.sleep(0.2)
    raise AssertionError("the milter stores nothing: " + Path(system["milter"].log).read_text()[-3000:])


def delivered_by_postfix(system, name):
    return Path(system[f"sink-{name}"].note["journal"]).read_text().count("\n") if Path(system[f"sink-{name}"].note["journal"]).exists() else 0


# ---- what lies in the lanes ----

@pytest.mark.check
@pytest.mark.core
def test_a_diverted_mail_lies_on_both_nodes_when_250_is_said(system):
    code, text = send(system, "u1@a.example")
    mx1, mx2 = entries(system)
    assert code == 250
    assert [e.id for e in mx1] == [e.id for e in mx2] and len(mx1) == 1
    assert mx1[0].lane == f"dovelane:{system.destinations['a']}|mx1>mx2"
    assert not postqueue(system)
    assert "action=lane, entries=1, nodes=mx1>mx2" in milter_log(system, queue_id(text))


def test_the_envelope_is_kept_whole(system):
    _, text = send(system, "u1@a.example", sender="s@x.example",
                   mail_options=["BODY=8BITMIME", "RET=HDRS", "ENVID=abc+2B"], rcpt_options=["NOTIFY=FAILURE", "ORCPT=rfc822;o+2Bx@y"])
    envelope = entries(system)[0][0].envelope
    assert envelope["sender"] == "s@x.example"
    assert set(envelope["sender_args"].split()) >= {"BODY=8BITMIME", "RET=HDRS", "ENVID=abc+2B"}
    assert envelope["queue_id"] == queue_id(text)
    assert envelope["host"] == "mx.stack.example"
    assert envelope["client_addr"] == "127.0.0.1" and int(envelope["client_port"]) > 0
    assert envelope["helo"] == "client.example" and envelope["protocol"] == "ESMTP"
    assert envelope["message_id"] == "<m@x>"
    assert abs(envelope["arrived"] / 1e6 - time.time()) < 60
    recipient, = envelope["recipients"]
    assert (recipient.address, recipient.args, recipient.state) == ("u1@a.example", "NOTIFY=FAILURE ORCPT=rfc822;o+2Bx@y", lanes.WAITING)


def test_recipients_are_grouped_by_destination_and_named_once(system):
    send(system, "u1@a.example", "u2@b.example", "u3@a.example", "U1@a.example")
    for node in entries(system):
        by_lane = {entry.lane: [r.address for r in entry.envelope["recipients"]] for entry in node}
        assert by_lane == {f"dovelane:{system.destinations['a']}|mx1>mx2": ["u1@a.example", "u3@a.example"],
                           f"dovelane:{system.destinations['b']}|mx1>mx2": ["u2@b.example"]}


def test_the_null_sender_stays_null(system):
    send(system, "u1@a.example", sender="")
    assert entries(system)[0][0].envelope["sender"] == ""


HEADERS = (b"subject:no space\r\nX-Two:  two spaces\r\nX-Tab:\ttab\r\nX-Folded: one\r\n\ttwo\r\n  three\r\nX-Empty:\r\n"
           b"X-Long: " + b"x" * 900 + b"\r\nX-8bit: gr\xc3\xbc\xc3\x9fe\r\n")


@pytest.mark.parametrize("body", [b"", b"\r\n", b"one line\r\n", b".\r\n..\r\n.x\r\n", b"8-bit \xe4\xf6\xfc \x00 nul\r\n",
                                  b"y" * 998 + b"\r\n", b"no line end"])
def test_bytes_are_those_that_came_in(system, body):
    send(system, "u1@a.example", content=HEADERS + b"\r\n" + body)
    (_, stored), = bodies(system)
    head, _, rest = stored.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    received = [lines.pop(0)]
    while lines[0][:1] == b"\t" and received[0].startswith(b"Received:"):
        received.append(lines.pop(0))
    text = b"\r\n".join(lines) + b"\r\n"
    # Postfix adds From, Date and Message-Id where they are missing, behind what was there.
    assert text.startswith(HEADERS)
    expected = body if body.endswith(b"\r\n") or not body else body + b"\r\n"
    assert rest == expected
    assert b" ".join(received).startswith(b"Received: from client.example (unknown [127.0.0.1]) \tby mx.stack.example (Dovelane) with ESMTP id ")
    assert b"for <u1@a.example>; " in b" ".join(received)


def test_a_large_mail_takes_the_bulk_connection(system):
    send(system, "u1@a.example", content=b"Subject: large\r\n\r\n" + (b"z" * 70 + b"\r\n") * 10000)
    for node in entries(system):
        assert len(node) == 1 and node[0].envelope["size"] > 720000


# ---- what is Postfix's ----

@pytest.mark.parametrize("reason, options", [
    ("not-in-divert", {"recipients": ["u1@a.example", "u2@plain.example"]}),
    ("notify", {"recipients": ["u1@a.example"], "rcpt_options": ["NOTIFY=SUCCESS,FAILURE"]}),
    ("notify", {"recipients": ["u1@a.example"], "rcpt_options": ["NOTIFY=DELAY"]}),
    ("too-large", {"recipients": ["u1@a.example"], "content": b"Subject: x\r\n\r\n" + (b"z" * 70 + b"\r\n") * 20000}),
])
def test_the_rules_leave_the_whole_mail_to_postfix(system, reason, options):
    code, text = send(system, *options["recipients"], **{name: value for name, value in options.items() if name != "recipients"})
    assert code == 250
    assert f"action=queue reason={reason}" in milter_log(system, queue_id(text))
    assert entries(system) == [[], []]


def raw(system, *commands, content=b"Subject: x\r\n\r\nhello\r\n"):
    """Commands as they stand, which smtplib would mend; the answer to the dot."""
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.ehlo("client.example")
        for command in commands:
            code, text = client.docmd(command)
            assert code == 250, (command, text)
        return client.data(content)


@pytest.mark.core
@pytest.mark.parametrize("sender, recipient, reason", [
    ("<\"a\tb\"@x.example>", "<u1@a.example>", "rewritten"),
    ("<s@x.example>", "<\"c\x01d\"@a.example>", "address"),
    ("<s>", "<u1@a.example>", "rewritten"),
    ("<@q.example:s@x.example>", "<u1@a.example>", "rewritten"),
    ("<s%y.example>", "<u1@a.example>", "rewritten"),
    ("<s@x.example>", "<@q.example:u1@a.example>", "rewritten"),
    ("<s@x.example>", "<u1@a.example.>", "rewritten"),
])
def test_addresses_that_postfix_would_write_anew_are_postfix_work(system, sender, recipient, reason):
    code, text = raw(system, f"MAIL FROM:{sender}", f"RCPT TO:{recipient}")
    assert code == 250
    assert f"action=queue reason={reason}" in milter_log(system, queue_id(text))
    assert entries(system) == [[], []]


@pytest.mark.parametrize("address", ["\"quoted user\"@a.example", "\"a\\\"b\"@a.example", "u+tag@a.example", "U.Ser@a.example"])
def test_addresses_that_stay_as_they_are_are_diverted(system, address):
    code, text = raw(system, f"MAIL FROM:<{address}>", f"RCPT TO:<{address}>")
    assert code == 250
    envelope = entries(system)[0][0].envelope
    assert (envelope["sender"], envelope["recipients"][0].address) == (address, address)


def test_lines_that_postfix_would_fold_are_postfix_work(system):
    for content in (b"Subject: x\r\n\r\n" + b"y" * 999 + b"\r\n", b"Subject: " + b"y" * 1500 + b"\r\n\r\nhello\r\n"):
        code, text = send(system, "u1@a.example", content=content)
        assert code == 250 and "action=queue reason=long-line" in milter_log(system, queue_id(text))
    assert entries(system) == [[], []]


def test_a_delivery_id_that_a_sender_wrote_is_dropped(system):
    """Copied from a mail that he got, it would make his own look as if Dovecot had it already."""
    ours = b"Dovelane-Id: " + b"0" * 32 + b" " + b"0" * 32 + b"\r\n"
    content = ours + b"Subject: x\r\n" + ours.upper().replace(b"\r\n", b"\r\n\tfolded\r\n") + b"X-Dovelane-Id: stays\r\n\r\nDovelane-Id: in the body stays\r\n"
    send(system, "u1@a.example", content=content)
    (_, body), = bodies(system)
    assert b"Subject: x\r\nX-Dovelane-Id: stays\r\n" in body and body.endswith(b"\r\n\r\nDovelane-Id: in the body stays\r\n")
    assert body.lower().count(b"dovelane-id:") == 2
    # What Postfix delivers itself may go to the same Dovecot.
    system.stop("sink-plain")
    try:
        _, text = send(system, "u1@plain.example", content=content)
        kept = subprocess.run(["postcat", "-c", system["postfix"].note["config_directory"], "-qhb", queue_id(text)], stdout=subprocess.PIPE, check=True).stdout
    finally:
        system.cont("sink-plain")
    assert kept.lower().count(b"dovelane-id:") == 2 and b"X-Dovelane-Id: stays" in kept


def test_a_thousand_recipients_are_one_entry(system):
    recipients = [f"u{number}@a.example" for number in range(1000)]
    assert send(system, *recipients)[0] == 250
    for node in entries(system):
        assert [r.address for e in node for r in e.envelope["recipients"]] == recipients


@pytest.mark.long
def test_many_mails_at_once_do_not_take_more_memory_than_they_may():
    """The milter holds at most milter_memory; the rest goes to Postfix's queue."""
    content = b"Subject: large\r\n\r\n" + (b"z" * 70 + b"\r\n") * 200000
    with stack_of(settings={**LONG_WAIT, "max_entry": "25MB", "milter_memory": "64MB"}) as system:
        log = Path(system["milter"].log)
        wait_able(system)
        system.stop("redis-mx2")  # none is done before the others come
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            sent = [pool.submit(send, system, f"u{number}@a.example", content=content) for number in range(6)]
            while "action=queue reason=busy" not in log.read_text() and not all(each.done() for each in sent):
                time.sleep(0.05)
            system.cont("redis-mx2")
            answers = [each.result() for each in sent]
        assert all(code == 250 for code, _ in answers)
        assert "action=queue reason=busy" in log.read_text()
        peak = int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{system['milter'].pid}/status").read_text())[1])
        assert peak < 200 * 1024, f"{peak} kB"


# ---- when storing fails ----

def full_lane(system, destination):
    """Makes the lane of the destination refuse at mx2."""
    name = f"dovelane:{system.destinations[destination]}|mx1>mx2"
    with resp.Connection(system.nodes["mx2"]) as redis:
        redis.call("LANE.CREATE", name, "MAXBYTES", 1)


@pytest.mark.core
def test_recipients_that_are_held_are_deleted_from_postfix_copy(system):
    full_lane(system, "a")
    code, text = send(system, "u1@a.example", "u2@b.example")
    log = milter_log(system, queue_id(text))
    assert code == 250 and f"action=split reason=store ({system.destinations['a']} mx2: FULL)" in log
    assert [[r.address for r in e.envelope["recipients"]] for node in entries(system) for e in node] == [["u2@b.example"]] * 2
    end = time.monotonic() + 30
    while not re.search(rf"{queue_id(text)}: to=<u1@a.example>.*status=sent", Path(system["postfix"].log).read_text()):
        assert time.monotonic() < end, "Postfix did not deliver the rest"
        time.sleep(0.1)
    assert f"{queue_id(text)}: to=<u2@b.example>" not in Path(system["postfix"].log).read_text()


def test_each_spelling_of_a_held_recipient_is_deleted(system):
    full_lane(system, "a")
    code, text = send(system, "u1@a.example", "u2@b.example", "U2@b.example")
    assert code == 250 and "action=split" in milter_log(system, queue_id(text))
    end = time.monotonic() + 30
    while not re.search(rf"{queue_id(text)}: removed", Path(system["postfix"].log).read_text()):
        assert time.monotonic() < end, "Postfix did not deliver the rest"
        time.sleep(0.1)
    assert "@b.example" not in "".join(line for line in Path(system["postfix"].log).read_text().splitlines() if f"{queue_id(text)}: to=" in line)


def test_an_outage_has_one_line_a_mail_and_one_warning_a_minute(system):
    full_lane(system, "a")
    began, size = time.monotonic(), len(Path(system["milter"].log).read_text())
    ids = [queue_id(send(system, "u1@a.example")[1]) for _ in range(20)]
    for name in ids:
        line, = milter_log(system, name).splitlines()
        assert "action=queue reason=store (mx2: FULL), entries=1" in line
    fresh = Path(system["milter"].log).read_text()[size:]
    warnings = [line for line in fresh.splitlines() if "warning: " in line]
    assert len(warnings) <= 1 + (time.monotonic() - began) / 60
    assert all(re.search(r"mail cannot be stored on enough nodes \(mx2: FULL\): \d+ mails since", line) for line in warnings)


@pytest.mark.check
@pytest.mark.core
@pytest.mark.parametrize("node", ["mx1", "mx2"])
def test_a_killed_node_means_postfix_queue_at_once(system, node):
    system.kill(f"redis-{node}")

    def at_once():
        """Sooner than store_deadline, as soon as the milter knows it; other mails, and a machine that stood still, prove nothing."""
        began = time.monotonic()
        code, text = send(system, "u1@a.example")
        took = time.monotonic() - began
        assert code == 250
        return "1 of 2 nodes can be used" in milter_log(system, queue_id(text)) and took < 1.0
    eventually("a mail is Postfix's at once", at_once, 30)


@pytest.mark.parametrize("node", ["mx1", "mx2"])
def test_a_node_that_stands_still_gets_revoked_and_keeps_nothing(system, node):
    system.stop(f"redis-{node}")
    code, text = send(system, "u1@a.example")
    log = milter_log(system, queue_id(text))
    assert code == 250 and f"no answer in time from {node}" in log and "action=queue" in log
    system.cont(f"redis-{node}")
    end = time.monotonic() + 20
    while any(entries(system)) and time.monotonic() < end:
        time.sleep(0.05)
    assert entries(system) == [[], []]


# Time for a test to do something while a mail waits for a node that stands still.
LONG_WAIT = {"store_deadline": "5s", "settle": "11s"}


def test_a_node_that_was_away_hears_of_revocations_when_it_is_back():
    """mx2 takes its copy, then nobody can reach it; mx1 never answers. The mail is Postfix's, and mx2 must not deliver it later."""
    with stack_of(settings=LONG_WAIT) as system:
        wait_able(system)
        system.stop("redis-mx1")
        with concurrent.futures.ThreadPoolExecutor(1) as pool, resp.Connection(system.nodes["mx2"]) as redis:
            answer = pool.submit(send, system, "u1@a.example")
            eventually("mx2 has its copy", lambda: lanes.length(system.nodes["mx2"]), 30)
            redis.call("CONFIG", "SET", "lane.node", "mx9")  # it answers under another name, so it is not talked to
            redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            code, text = answer.result()
            assert code == 250 and "may be sent more than once" in milter_log(system, queue_id(text))
            assert lanes.length(system.nodes["mx2"]) == 1
            redis.call("CONFIG", "SET", "lane.node", "mx2")
            system.cont("redis-mx1")
            eventually("the revocation is remembered", lambda: not any(entries(system)), 30)


def test_a_full_node_means_postfix_queue(system):
    with resp.Connection(system.nodes["mx2"]) as redis:
        redis.call("CONFIG", "SET", "maxmemory", 1)
        try:
            code, text = send(system, "u1@a.example")
        finally:
            redis.call("CONFIG", "SET", "maxmemory", 512 << 20)
    assert code == 250 and "mx2: memory is full" in milter_log(system, queue_id(text))
    assert entries(system) == [[], []]


@pytest.mark.long
def test_another_node_behind_the_address_is_not_used():
    with stack_of() as system:
        with resp.Connection(system.nodes["mx2"]) as redis:
            redis.call("CONFIG", "SET", "lane.node", "mx9")
            redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually("the milter knows it", lambda: 'it says it is node "mx9"' in Path(system["milter"].log).read_text(), 30)
        code, text = send(system, "u1@a.example")
        assert code == 250 and "1 of 2 nodes can be used" in milter_log(system, queue_id(text))


@pytest.fixture(scope="module")
def tempfail(engine):
    with stack_of(policy="tempfail", settings=LONG_WAIT) as system:
        yield system


def test_with_tempfail_nothing_stays_behind(tempfail):
    full_lane(tempfail, "a")
    code, text = send(tempfail, "u1@a.example", "u2@b.example")
    assert code == 451, text
    assert entries(tempfail) == [[], []]
    assert not postqueue(tempfail)
    with resp.Connection(tempfail.nodes["mx2"]) as redis:
        redis.call("FLUSHALL")


def test_with_tempfail_what_was_delivered_already_is_not_sent_again(tempfail):
    """One destination is refused, the other one's entry was delivered before it could be revoked: only the rest may go on."""
    import threading
    full_lane(tempfail, "a")
    tempfail.stop("redis-mx2")  # so that the mail waits, and there is time to deliver at mx1
    done = []

    def deliver():
        end = time.monotonic() + 30
        with resp.Connection(tempfail.nodes["mx1"]) as redis:
            while not done and time.monotonic() < end:
                for name in lanes.names(redis, "*" + tempfail.destinations["b"].replace("[", "\\[") + "*"):
                    for _, _, taken in redis.call("LANE.TAKE", 1, name):
                        for entry in taken:
                            redis.call("LANE.ACK", name, "IDS", 1, entry[1])
                            done.append(entry[1])
                time.sleep(0.01)
    thread = threading.Thread(target=deliver)
    thread.start()
    code, text = send(tempfail, "u1@a.example", "u2@b.example")
    thread.join()
    tempfail.cont("redis-mx2")
    assert done
    assert code == 250, text
    log = milter_log(tempfail, queue_id(text))
    assert "action=split" in log and "delivered already" in log


# ---- starting ----

def test_two_milters_on_one_socket_are_refused(system):
    import subprocess
    service = system["milter"]
    done = subprocess.run(service.argv, stderr=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 1 and b"another process answers there: stop it" in done.stderr
    assert send(system, "u1@a.example")[0] == 250


@pytest.mark.long
def test_sigterm_lets_mails_finish_and_ends_cleanly():
    with stack_of(settings=LONG_WAIT) as system:
        wait_able(system)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            system.stop("redis-mx2")
            answer = pool.submit(send, system, "u1@a.example")
            eventually("it is being stored", lambda: lanes.length(system.nodes["mx1"]), 30)
            process = system["milter"].process
            process.send(15)
            code, text = answer.result()
            system.cont("redis-mx2")
        assert code == 250
        end = time.monotonic() + 20
        while process.alive():
            assert time.monotonic() < end
            time.sleep(0.05)
        log = Path(system["milter"].log).read_text()
        assert "action=queue" in log and log.rstrip().endswith("ended")
        assert not Path(system["milter"].note["socket"]).exists()


def test_a_port_probe_harms_nothing(system):
    for _ in range(20):
        with resp.socket.socket(resp.socket.AF_UNIX) as probe:
            probe.connect(system["milter"].note["socket"])
    assert send(system, "u1@a.example")[0] == 250
    assert len(entries(system)[0]) == 1


class Narrow:
    """A way to a node on which each connection gets slow behind its first 200 kB, until it is told to be quick."""

    def __init__(self, address):
        self.to, self.quick, self.listener = address.rpartition(":"), threading.Event(), socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection((self.to[0], int(self.to[2])))
                threading.Thread(target=self.pass_on, args=(near, far, 200_000), daemon=True).start()
                threading.Thread(target=self.pass_on, args=(far, near, 1 << 60), daemon=True).start()

    def pass_on(self, source, target, fast):
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                target.sendall(data)
                fast -= len(data)
                if fast < 0:
                    self.quick.wait(0.2)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.exhaustive
def test_a_node_that_is_too_slow_for_what_it_is_sent_gets_no_more():
    """It answers, and every large mail fails at its deadline: what was not sent would grow without bounds."""
    content = b"Subject: large\r\n\r\n" + (b"z" * 70 + b"\r\n") * 56000
    with stack_of(settings={"max_entry": "25MB", "milter_memory": "64MB", "revoke_wait": "0s"}) as system:
        milter = system["milter"]
        narrow = Narrow(system.nodes["mx2"])
        milter.note["nodes"] = {**milter.note["nodes"], "mx2": narrow.address}
        programs.write_settings(milter)
        system.restart("milter")
        wait_able(system)

        def refused():
            return "1 of 2 nodes can be used" in Path(milter.log).read_text()

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for number in range(10):
                if refused():
                    break
                assert all(code == 250 for code, _ in pool.map(lambda _: send(system, "u@a.example", content=content), range(3)))
        assert refused() and "lost" not in Path(milter.log).read_text().partition("1 of 2 nodes can be used")[0].rpartition("started: version")[2]
        narrow.quick.set()
        wait_able(system)
        code, text = send(system, "u@a.example", content=content)
        assert code == 250 and number
        narrow.listener.close()


def test_ordered_mail_is_a_series_of_the_milters_own():
    """Not the proxy's, which may run on the same host; and its last generation is kept where the milter can read it."""
    with stack_of(settings={"destinations": {"a": {"placement": "ordered"}}}) as system:
        end = time.monotonic() + 30
        while not bodies(system):
            assert time.monotonic() < end, Path(system["milter"].log).read_text()[-3000:]
            send(system, "u1@a.example")
        series = [re.fullmatch(re.escape(f"dovelane:{system.destinations['a']}|mx1>mx2|mx1.") + r"(\d+)", name) for name, _ in bodies(system)]
        assert all(series), bodies(system)
        kept = Path(system["milter"].note["settings"]["state_directory"], "generation-mx1")
        assert int(kept.read_text()) >= max(int(each[1]) for each in series)
        assert "cannot be written" not in Path(system["milter"].log).read_text()
