"""dovelane hold --add: standing rules for mail that comes in, obeyed by every milter and forgotten by none."""
import re
import smtplib
from pathlib import Path

from support import admin
import pytest
from support.relay_world import eventually
from support.stack import SinkShape, oracle, resp

pytestmark = pytest.mark.long


def start(stack):
    return stack(postfix="divert", sinks=[SinkShape("a", [], ours=True), SinkShape("b", [], ours=True)],
                 settings={"store_deadline": "600ms", "max_entry": "1MB", "settle": "1300ms", "revoke_wait": "100ms"})


def send(running, subject, sender="s@example.org", recipients=("x@a.example",)):
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(sender, list(recipients), f"Subject: {subject}\r\nX-Oracle-Id: {subject}-12345678\r\n\r\ntext\r\n")


def held(running):
    return sorted(each["recipients"][0]["address"] for each in admin.queue(running) if each["queue_name"] == "hold")


def delivered(running, *subjects):
    wanted = {f"{subject}-12345678" for subject in subjects}
    eventually(f"{subjects} are delivered", lambda: wanted <= {mail for mail, _ in oracle.Deliveries(running).read().mails})


def test_mail_that_fits_is_held_from_the_start_and_the_rest_goes(stack):
    running = start(stack)
    out = admin.done(running, "hold", "--add", "--sender", "*@bad.example", "--header", "^subject: .*prize")
    assert out == "1  --sender '*@bad.example' --header '^subject: .*prize'\n"
    out = admin.done(running, "hold", "--add", "--rcpt", "boss@*")
    assert "2  --rcpt 'boss@*'\n" in out and admin.done(running, "hold", "--list") == out
    send(running, "prize1", "x@bad.example")
    send(running, "other1", "x@bad.example")
    send(running, "prize2")
    send(running, "split1", recipients=("boss@a.example", "y@b.example"))  # two next hops: two entries
    delivered(running, "other1", "prize2", "split1")
    assert held(running) == ["boss@a.example", "x@a.example"]
    assert "hold=rule" in Path(running["milter"].log).read_text()
    assert admin.done(running, "hold", "--remove", "1") == "1  --rcpt 'boss@*'\n"
    send(running, "prize3", "x@bad.example")
    delivered(running, "prize3")
    admin.done(running, "release", "--all")
    delivered(running, "prize1")
    eventually("all is gone", lambda: not admin.queue(running))


def test_rules_survive_restarts_of_milter_and_nodes(stack):
    running = start(stack)
    admin.done(running, "hold", "--add", "--all")
    running.kill("milter")
    for node in ("redis-mx1", "redis-mx2"):
        running.kill(node)
        running.start(node)
    running.start("milter")

    def told():
        found = []
        for address in running.nodes.values():
            with resp.Connection(address) as connection:
                found.append(connection.call("GET", "dovelane.holds"))
        return all(found)

    eventually("the nodes are told", told)
    eventually("the relays are back", lambda: "1  --all" in admin.done(running, "hold", "--list"))
    send(running, "later1")
    eventually("it is held", lambda: held(running) == ["x@a.example"])


def test_what_cannot_be_a_rule(stack):
    running = stack(postfix="none", nodes=2)
    for words, said in ((("--age", "1h"), "--age"), (("--error", "x"), "--error"), (("--id", "X"), "--id")):
        wrong = admin.run(running, "hold", "--add", *words)
        assert wrong.status == 2 and said in wrong.err
    assert admin.run(running, "hold", "--add").status == 2
    assert admin.done(running, "hold", "--list") == "no standing rules\n"
    missing = admin.run(running, "hold", "--remove", "1")
    assert missing.status == 2 and "shows 0 rules" in missing.err
    nobody = admin.run(running, "hold", "--add", "--sender", "x")
    assert nobody.status == 1 and "no milter is connected" in nobody.out
    assert re.fullmatch(r"1  --sender 'x'\n", admin.done(running, "hold", "--list"))
