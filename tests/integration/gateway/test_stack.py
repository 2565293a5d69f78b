"""The tool that the other tests stand on: it starts and ends what it says, and its oracle can say no."""
import json
import re
import smtplib
import subprocess
import time
from pathlib import Path

import pytest

from support.stack import SinkShape, Stack, StackError, dovecot, oracle, ports, probe, process
from support.stack.generator import Generator

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "stack" / "stack"


def recording(name, protocol="smtp"):
    return SinkShape(name, [protocol], ours=True)


def used_ports(stack):
    text = json.dumps(stack.describe())
    return {int(port) for port in re.findall(r"127\.0\.0\.1\]?:(\d+)", text)}


def assert_gone(mark, directory, numbers):
    assert [entry.pid for entry in process.marked(mark)] == []
    assert [number for number in numbers if ports.listening(number)] == []
    assert not ports.unix_sockets(directory)
    assert not Path(directory).exists()


def test_stock_postfix_delivers_everything_and_down_leaves_nothing(stack):
    running = stack(sinks=[recording("a"), recording("b", "lmtp"), "c"], dovecot=True)
    dovecot.make_mailboxes(running["dovecot"].note, [f"u{number}@example.org" for number in range(10)])
    ledger = Generator(smtp=running.smtp, mails=40, sessions=5, recipients=(1, 20), users=10,
                       domains=["a.example", "b.example", "example.org"]).run()
    verdict = oracle.wait_delivered(running, ledger).check()
    assert len(verdict.promised) == len(ledger.pairs) == sum(verdict.delivered.values())
    mark, directory, numbers = running.mark, running.directory, used_ports(running)
    pids = set(running.pids()) | {service.pid for service in running.services.values()}
    assert len(pids) > 10 and all(ports.listening(number) for number in numbers)
    running.down()
    assert_gone(mark, directory, numbers)
    assert running.remarks == []
    assert [pid for pid in pids if process.start_time(pid)] == []


def test_command_line_up_in_one_process_and_down_in_another(tmp_path_factory):
    directory = Path(f"/tmp/stack-cli-{time.time_ns()}")
    done = subprocess.run([PROGRAM, "up", "--dir", directory, "--sink", "a:-L", "--pysink", "b", "--map", "c.example=b",
                           "--map", "b.example=b"], stdout=subprocess.PIPE, check=True, timeout=120)
    shown = json.loads(done.stdout)
    try:
        saved = json.loads((directory / "stack.json").read_text())
        assert saved["domains"]["c.example"] == saved["destinations"]["b"] == shown["destinations"]["b"]
        assert shown["destinations"]["a"].startswith("lmtp:[127.0.0.1]:")
        loaded = Stack.load(directory)
        before = loaded["sink-a"].pid
        subprocess.run([PROGRAM, "kill", "--dir", directory, "sink-a"], check=True, timeout=60)
        assert loaded["sink-a"].pid is None
        subprocess.run([PROGRAM, "start", "--dir", directory, "sink-a"], check=True, timeout=60)
        assert Stack.load(directory)["sink-a"].pid not in (None, before)
        numbers = used_ports(loaded)
    finally:
        subprocess.run([PROGRAM, "down", "--dir", directory], check=True, timeout=120)
    assert_gone(saved["mark"], directory, numbers)


def test_failed_up_names_the_log_and_leaves_nothing():
    broken = Stack(sinks=[recording("a"), SinkShape("bad", ["--no-such-option"])])
    with pytest.raises(StackError, match="sink-bad ended while starting(.|\n)*usage"):
        broken.up()
    assert not broken.directory.exists()
    assert broken["sink-a"].pid is None


def test_down_keeps_a_directory_that_was_there_before(tmp_path_factory):
    directory = Path(f"/tmp/stack-kept-{time.time_ns()}")
    directory.mkdir(mode=0o755)
    (directory / "mine").write_text("stays")
    try:
        with Stack(directory, postfix="none", sinks=[recording("a")]):
            pass
        assert [entry.name for entry in directory.iterdir()] == ["mine"]
    finally:
        (directory / "mine").unlink()
        directory.rmdir()


def test_mail_for_a_sink_that_is_down_waits_in_the_queue_and_is_not_lost(stack):
    running = stack(sinks=[recording("a")])
    running.sink("a", do="down")
    ledger = Generator(smtp=running.smtp, mails=20, recipients=(1, 3), domains=["a.example"]).run()
    verdict = oracle.judge(running, ledger).check()
    assert set(verdict.waiting) == verdict.promised and not verdict.delivered
    running.sink("a", do="up")
    running["postfix"].flush()
    verdict = oracle.wait_delivered(running, ledger).check()
    assert set(verdict.delivered) == verdict.promised and not verdict.waiting


def test_oracle_finds_a_loss(stack):
    running = stack(sinks=[recording("a")])
    running.sink("a", do="down")
    ledger = Generator(smtp=running.smtp, mails=10, domains=["a.example"]).run()
    victim = sorted(ledger.promised)[3]
    queue_id = ledger.pairs[victim].queue_ids[0]
    config = running["postfix"].note["config_directory"]
    subprocess.run(["postsuper", "-c", config, "-d", queue_id], check=True, timeout=60, stderr=subprocess.DEVNULL)
    running.sink("a", do="up")
    running["postfix"].flush()
    verdict = oracle.wait_delivered(running, ledger, seconds=5)
    assert verdict.lost == [victim]
    with pytest.raises(AssertionError, match=f"lost: {victim[0]} to {victim[1]}"):
        verdict.check()


def test_oracle_finds_a_duplicate_without_a_reason(stack):
    running = stack(sinks=[recording("a")])
    ledger = Generator(smtp=running.smtp, mails=5, domains=["a.example"]).run()
    oracle.wait_delivered(running, ledger).check()
    mail, recipient = sorted(ledger.promised)[0]
    host, port = running["sink-a"].note["address"].split(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("x@example.com", [recipient], f"X-Oracle-Id: {mail}\r\n\r\nonce more\r\n")
    verdict = oracle.judge(running, ledger)
    assert [(entry.mail, entry.recipient, entry.times) for entry in verdict.unexplained] == [(mail, recipient, 2)]
    assert any("status=sent" in line for line in verdict.duplicates[0].lines)
    assert not verdict.clean


def test_duplicate_after_a_lost_reply_is_explained_by_the_log(stack):
    running = stack(sinks=[recording("a")])
    running.rules("a", {"at": "dot", "do": "close", "store": True, "times": 1})
    ledger = Generator(smtp=running.smtp, mails=3, domains=["a.example"]).run()
    time.sleep(0.5)
    running["postfix"].flush()
    end = time.monotonic() + 40
    while not (verdict := oracle.judge(running, ledger)).duplicates and time.monotonic() < end:
        time.sleep(0.5)
    assert len(verdict.duplicates) == 1 and not verdict.unexplained
    assert any("may be sent more than once" in line for line in verdict.duplicates[0].lines)
    verdict.check()


def test_oracle_finds_a_damaged_mail(stack):
    running = stack(postfix="none", sinks=[recording("a")])
    host, port = running["sink-a"].note["address"].split(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("x@example.com", ["u@a.example"], "X-Oracle-Id: one\r\nX-Oracle-Sum: 00000001\r\n\r\nother text\r\n")
    assert oracle.Deliveries(running).read().damaged == {("one", "u@a.example")}


def test_permanent_failure_comes_back_as_a_notice(stack):
    running = stack(sinks=[recording("a"), recording("back")])
    running.rules("a", {"at": "rcpt", "match": "^u0@", "reply": "550 5.1.1 nobody of that name"})
    ledger = Generator(smtp=running.smtp, mails=2, recipients=2, users=2, domains=["a.example"], sender="me@back.example").run()
    verdict = oracle.wait_delivered(running, ledger).check()
    assert sorted(verdict.returned) == sorted(pair for pair in verdict.promised if pair[1] == "u0@a.example")
    assert all("5.1.1" in note and "nobody of that name" in note for note in verdict.returned.values())


@pytest.mark.check
@pytest.mark.core
def test_mail_in_lanes_waits_on_each_copy_and_goes_out_when_the_relays_start(stack):
    running = stack(postfix="divert", nodes=3, copies=2, relays=False, sinks=[recording("a"), recording("b", "lmtp")], dovecot=True)
    dovecot.make_mailboxes(running["dovecot"].note, [f"u{number}@example.org" for number in range(6)])
    ledger = Generator(smtp=running.smtp, mails=30, sessions=4, recipients=(1, 12), users=6, size=(100, 60000),
                       domains=["a.example", "b.example", "example.org"]).run()
    verdict = oracle.judge(running, ledger).check()
    assert set(verdict.waiting) == verdict.promised and not verdict.delivered
    assert {len(places) for places in verdict.waiting.values()} == {2}
    for node in running.nodes:
        running.start(f"relay-{node}")
    verdict = oracle.wait_delivered(running, ledger).check()
    assert sum(verdict.delivered.values()) == len(verdict.promised) and not verdict.waiting and not verdict.duplicates


@pytest.mark.core
def test_what_a_relay_cannot_deliver_comes_back_with_the_next_hops_words(stack):
    running = stack(postfix="divert", sinks=[recording("a"), recording("back")], divert=["a"])
    running.rules("a", {"at": "rcpt", "match": "^u0@", "reply": "550 5.1.1 nobody of that name"},
                  {"at": "rcpt", "match": "^u1@", "reply": "552 5.2.2 mailbox full: sorry; <x> $1"})
    ledger = Generator(smtp=running.smtp, mails=3, recipients=3, users=3, domains=["a.example"], sender="me@back.example").run()
    verdict = oracle.wait_delivered(running, ledger).check()
    notes = {(recipient, note.split()[0], words) for (_, recipient), note in verdict.returned.items()
             for words in ("nobody of that name", "mailbox full: sorry; <x> $1") if words in note}
    assert notes == {("u0@a.example", "5.1.1", "nobody of that name"), ("u1@a.example", "5.2.2", "mailbox full: sorry; <x> $1")}
    assert len(verdict.returned) == 6 and len(verdict.delivered) == 3


@pytest.mark.check
@pytest.mark.core
def test_a_lost_node_is_named_and_its_mail_is_found_on_the_other(stack):
    running = stack(postfix="divert", relays=False, sinks=[recording("a")])
    ledger = Generator(smtp=running.smtp, mails=10, domains=["a.example"]).run()
    running.kill("mx1")
    verdict = oracle.judge(running, ledger).check()
    assert verdict.unreachable == ["mx1: gone"] and {len(places) for places in verdict.waiting.values()} == {1}
    running.kill("mx2")
    assert oracle.judge(running, ledger).lost == sorted(ledger.promised)
    running.start("redis-mx2")
    assert len(oracle.judge(running, ledger).lost) == 10


@pytest.mark.parametrize("reason", ["5.1.1 host 192.0.2.7 said: 550 <gone@a.example>: no; such: user $1", None])
def test_bounce_port_returns_the_mail_with_the_reason_of_its_header(stack, reason):
    running = stack(sinks=[recording("a"), recording("back")])
    host, port = running["postfix"].note["bounce"].split(":")
    head = f"Dovelane-Bounce: {reason}\r\n" if reason else ""
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("me@back.example", ["gone@a.example"], head + "X-Oracle-Id: one\r\n\r\ntext\r\n")
    deliveries = oracle.Deliveries(running)
    end = time.monotonic() + 30
    while not deliveries.read().returned and time.monotonic() < end:
        time.sleep(0.1)
    assert list(deliveries.returned) == [("one", "gone@a.example")]
    status, _, text = (reason or "5.0.0 undeliverable").partition(" ")
    note = deliveries.returned["one", "gone@a.example"]
    assert note.startswith(status + " ") and text in note
    assert not deliveries.mails


def test_generator_repeats_what_was_refused_for_now_and_marks_what_was_not_answered(stack):
    running = stack(postfix="none", sinks=[recording("a")])
    running.rules("a", {"at": "rcpt", "reply": "450 4.2.0 later", "times": 3},
                  {"at": "dot", "do": "close", "times": 1},
                  {"at": "rcpt", "match": "^u7@", "reply": "550 5.1.1 no"})
    ledger = Generator(smtp=running["sink-a"].note["address"], mails=10, sessions=2, recipients=(8, 8), users=8,
                       domains=["a.example"], retry_after=0.1).run()
    summary = ledger.summary()
    assert summary["refused"] == 10 and summary["promised"] == 70 and summary["given_up"] == 0
    assert summary["tempfails"] == 3 and sum(pair.unknown for pair in ledger.pairs.values()) in range(4, 8)
    oracle.judge(running, ledger).check()
    assert not oracle.judge(running, ledger).duplicates


def test_stopped_service_stays_and_a_killed_one_starts_again(stack):
    running = stack(sinks=[recording("a")])
    before = running["sink-a"].pid
    running.stop("a")
    assert process.state_and_start(before)[0] == "T"
    running.cont("a")
    running.kill("a")
    assert running["sink-a"].pid is None
    ledger = Generator(smtp=running.smtp, mails=5, domains=["a.example"]).run()
    running.start("a")
    assert running["sink-a"].pid != before
    assert json.loads((running.directory / "stack.json").read_text())["services"]["sink-a"]["pid"] == running["sink-a"].pid
    oracle.wait_delivered(running, ledger).check()


def test_sink_answers_in_order_behind_a_delayed_reply(stack):
    running = stack(postfix="none", sinks=[recording("a", "lmtp")])
    running.rules("a", {"at": "dot", "match": "^u1@", "delay": 0.3, "reply": "452 4.2.2 full"})
    began = time.monotonic()
    with probe.connect(running["sink-a"].note["address"], 10) as stream:
        recipients = "".join(f"RCPT TO:<u{number}@a.example>\r\n" for number in range(3))
        stream.sendall(f"LHLO x\r\nMAIL FROM:<>\r\n{recipients}DATA\r\nX-Oracle-Id: one\r\n\r\nx\r\n.\r\nQUIT\r\n".encode())
        codes = [line[:3] for line in stream.makefile("rb") if line[3:4] == b" "]
    assert codes == [b"220", b"250", b"250", b"250", b"250", b"250", b"354", b"250", b"452", b"250", b"221"]
    assert time.monotonic() - began >= 0.3
    assert set(oracle.Deliveries(running).read().mails) == {("one", "u0@a.example"), ("one", "u2@a.example")}
