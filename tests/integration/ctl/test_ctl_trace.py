"""dovelane trace: the story of a mail, out of logs of all forms and of what lies in lanes."""

import gzip
import json
import smtplib
import subprocess
from pathlib import Path

import pytest

from support import admin
from support.json_schemas import judged
from support.relay_world import World
from support.stack import Stack
from support.waiting import eventually

pytestmark = pytest.mark.long

ID, ENTRY = "4jWv5K1lQ7z2xT", "019abcde0123456789abcdef01234567"
LANE = "dovelane:lmtp:[10.0.0.5]:24|mx1>mx2"
STORED = (
    f"{ID}: from=<s@x.example>, size=344, nrcpt=1, message-id=<m1@x.example>, "
    "client=c.example[192.0.2.1], action=lane, entries=1, nodes=mx1>mx2, store=0.8ms"
)


def attempt(status, reply, why="first", to="u@example.org"):
    return (
        f"{ID}: to=<{to}>, relay=10.0.0.5[10.0.0.5]:24, delay=1, delays=1/0/0/0, "
        f"dsn=2.0.0, status={status} ({reply}), why={why}, lane={LANE}, id={ENTRY}"
    )


def line(host, program, text, second, micro=0):
    return f"2026-11-27T10:00:{second:02}.{micro:06}+00:00 {host} {program}[1]: {text}"


def ours(host, name, text, second, micro=0):
    return line(host, f"postfix/dovelane-{name}", text, second, micro)


@pytest.fixture(scope="module")
def nodes():
    """Two nodes without relays: their lanes are empty."""
    with Stack(postfix="none", nodes=2, relays=False) as entry:
        yield entry


@pytest.fixture
def trace(nodes, tmp_path):
    """Writes files, and asks for a mail in them."""

    def ask(name, *files, status=0, json_=True):
        words = []
        for number, text in enumerate(files):
            path = tmp_path / f"{number}.log"
            path.write_text("\n".join(text) + "\n")
            words += ["-f", path]
        said = admin.run(nodes, *(["-j"] if json_ else []), "trace", *words, name)
        assert said.status == status, said
        return judged(said.out) if json_ else said.out

    return ask


def events(mail):
    return [event["event"] for event in mail["events"]]


WHOLE = [
    line("mx1", "postfix/smtpd", f"{ID}: client=c.example[192.0.2.1]", 1),
    line("mx1", "postfix/cleanup", f"{ID}: message-id=<m1@x.example>", 1, 100),
    ours("mx1", "milter", STORED, 1, 200),
    ours("mx1", "relay", attempt("deferred", "451 4.2.0 try (again) later"), 2),
    ours("mx1", "relay", attempt("sent", "250 2.0.0 <u@example.org> gKq1AbCdEf Saved", "retry"), 5),
    ours("mx1", "relay", f"{ID}: removed", 5, 100),
]
DOVECOT = [
    "Nov 27 10:00:05 lmtp(u)<99><gKq1AbCdEf>: Info: msgid=<m1@x.example>: saved mail to INBOX",
    "Nov 27 10:00:06 replicator: Info: something else",
]


@pytest.mark.parametrize("name", [ID, ENTRY, "<m1@x.example>", "m1@x.example"])
def test_each_name_of_a_mail_finds_all_of_it(trace, name):
    said = trace(name, WHOLE, DOVECOT)
    (mail,) = said["mails"]
    assert events(mail) == [
        "accepted",
        "headers",
        "stored",
        "deferred",
        "saved",
        "delivered",
        "removed",
    ]
    assert (mail["queue_ids"], mail["entry_ids"], mail["message_ids"]) == (
        [ID],
        [ENTRY],
        ["m1@x.example"],
    )
    (recipient,) = mail["recipients"]
    assert (recipient["address"], recipient["state"], recipient["attempts"]) == (
        "u@example.org",
        "delivered",
        2,
    )
    (place,) = mail["places"]
    assert (place["user"], place["mailbox"], place["by"]) == ("u", "INBOX", "delivery")
    assert mail["events"][2]["nodes"] == ["mx1", "mx2"]
    assert mail["events"][3]["reply"] == "451 4.2.0 try (again) later"


def test_the_text_says_it_and_names_what_was_not_read(trace):
    said = trace(ID, WHOLE, DOVECOT, json_=False)
    for words in (
        "stored       on mx1, mx2, from=<s@x.example>, client=c.example[192.0.2.1]",
        "deferred     <u@example.org> at 10.0.0.5[10.0.0.5]:24: 451 4.2.0 try (again) later",
        "why=retry",
        "saved        INBOX of u",
        "recipient   <u@example.org> delivered, 2 attempts",
        "not read: the log of node mx2",
    ):
        assert words in said, said
    assert "not read: the log of node mx1" not in said


def renamed(lines, host):
    return [text.replace("+00:00 mx1 ", f"+00:00 {host} ") for text in lines]


def test_a_text_log_is_read_whatever_its_host_is_called(trace):
    """The name in a line is the host's. Which node it is, the relay says at its start."""
    lines = renamed(WHOLE, "vm17.example")
    said = trace(ID, lines)
    assert len(said["mails"][0]["events"]) == 6
    for row in said["not_read"]:
        assert row["kind"] == "node" and row["perhaps"] == ["vm17.example"]
    start = ours("vm17.example", "relay", "dovelane-relay 0.2.0 for node mx1", 0)
    said = trace(ID, [start, *lines])
    assert [(row["name"], row["perhaps"]) for row in said["not_read"]] == [("mx2", [])]
    nodes = {(e["host"], e["program"], e.get("node")) for e in said["mails"][0]["events"]}
    assert ("vm17.example", "postfix/dovelane-relay", "mx1") in nodes
    assert ("vm17.example", "postfix/dovelane-milter", None) in nodes
    text = trace(ID, lines, json_=False)
    assert "not known: the log of node mx2: no line names it; it may be vm17.example" in text
    assert "not read" not in text


@pytest.mark.parametrize(
    "start",
    [
        ours("vm17", "milter", "dovelane-relay 0.2.0 for node mx1", 0),
        ours("vm17", "relay", attempt("deferred", "451 dovelane-relay 0.2.0 for node mx1"), 0),
        line("vm17", "dovecot", "lmtp(u)<9><x>: msgid=<dovelane-relay 0.2.0 for node mx1>: saved", 0),
    ],
    ids=["milter", "reply", "dovecot"],
)
def test_only_a_relay_says_which_node_a_host_is(trace, start):
    said = trace(ID, [start, *renamed(WHOLE, "vm17")])
    assert {row["name"]: row["perhaps"] for row in said["not_read"]} == {
        "mx1": ["vm17"],
        "mx2": ["vm17"],
    }


def test_two_relays_of_one_host_are_told_apart_by_their_logs(trace):
    """As in a test's stack; in one log together nobody knows which one wrote a line."""
    start = [ours("vm", "relay", f"dovelane-relay 0.2.0 for node {node}", 0) for node in "mx1 mx2".split()]
    lines = renamed(WHOLE, "vm")
    apart = trace(ID, [start[0], *lines], [start[1]])
    assert {e.get("node") for e in apart["mails"][0]["events"] if "relay" in e["program"]} == {"mx1"}
    together = trace(ID, [*start, *lines])
    assert not together["not_read"]
    assert all("node" not in e for e in together["mails"][0]["events"])


def test_all_forms_say_the_same(trace, nodes, tmp_path):
    """As text, as JSON, as the journal gives it, behind another program's prefix, and packed."""
    object_ = {
        "time": "2026-11-27T11:00:01.000200+01:00",
        "host": "mx1",
        "program": "postfix/dovelane-milter",
        "pid": 1,
        "node": "mx1",
        "level": "info",
        "event": "mail",
        "queue_id": ID,
        "from": "s@x.example",
        "size": 344,
        "nrcpt": 1,
        "message_id": "<m1@x.example>",
        "client_name": "c.example",
        "client_address": "192.0.2.1",
        "action": "lane",
        "entries": 1,
        "nodes": ["mx1", "mx2"],
        "store_ms": 0.8,
        "message": STORED,
    }
    journal = {
        "__REALTIME_TIMESTAMP": "1795773601000200",
        "_HOSTNAME": "mx1",
        "SYSLOG_IDENTIFIER": "postfix/dovelane-milter",
        "MESSAGE": STORED,
    }
    fields = {
        f"DOVELANE_{key.upper()}": ">".join(value) if isinstance(value, list) else str(value)
        for key, value in object_.items()
        if key not in ("time", "host", "program", "pid", "level", "event", "message", "node")
    }
    forms = [
        ours("mx1", "milter", STORED, 1, 200),
        json.dumps(object_, separators=(",", ":")),
        json.dumps(journal),
        json.dumps({**journal, "MESSAGE": list(STORED.encode())}),
        json.dumps({**journal, **fields}),
        ours("mx1", "milter", json.dumps(object_, separators=(",", ":")), 1, 200),
    ]
    found = []
    for form in forms:
        (mail,) = trace(ID, [form])["mails"]
        (event,) = mail["events"]
        found.append(
            {
                key: event[key]
                for key in (
                    "at",
                    "host",
                    "event",
                    "queue_id",
                    "from",
                    "size",
                    "nrcpt",
                    "message_id",
                    "client_name",
                    "client_address",
                    "nodes",
                    "store_ms",
                    "entries",
                )
            }
        )
    assert all(one == found[0] for one in found), found
    packed = tmp_path / "old.log.gz"
    packed.write_bytes(gzip.compress((forms[0] + "\n").encode()))
    assert "stored" in admin.done(nodes, "trace", "-f", packed, ID)


def test_two_logs_of_a_host_say_a_thing_once(trace):
    said = trace(ID, WHOLE, [text.replace(":05.", ":06.") for text in WHOLE])
    assert (
        events(said["mails"][0]).count("removed") == 1
        and events(said["mails"][0]).count("deferred") == 1
    )


def test_clocks_that_differ_are_named_and_do_not_turn_the_story_round(trace):
    late = [
        ours("mx2", "relay", attempt("sent", "250 ok", "takeover"), 0, 700000),
        ours("mx2", "relay", f"{ID}: removed", 0, 800000),
    ]
    (mail,) = trace(ID, WHOLE[:4], late)["mails"]
    assert events(mail) == ["accepted", "headers", "stored", "delivered", "removed", "deferred"]
    (clock,) = mail["clocks"]
    assert (clock["host"], clock["than"]) == ("mx2", "mx1") and 0.29 < clock[
        "behind_seconds"
    ] < 0.31
    assert mail["recipients"][0]["state"] == "delivered"


def test_what_goes_on_in_postfix_is_followed_both_ways(trace):
    on = "4jWw000000zzzz"
    there = [
        ours(
            "mx1",
            "relay",
            f"{ID}: to=<u@example.org>, relay=127.0.0.1[127.0.0.1]:10627, delay=3: "
            "given to Postfix's queue "
            f"(250 2.0.0 Ok: queued as {on}), why=lane_time, lane={LANE}, id={ENTRY}",
            8,
        ),
        line(
            "mx1", "postfix/qmgr", f"{on}: from=<s@x.example>, size=400, nrcpt=1 (queue active)", 9
        ),
        line(
            "mx1",
            "postfix/lmtp",
            f"{on}: to=<u@example.org>, relay=none, delay=1, delays=1/0/0/0, dsn=4.4.1, "
            "status=deferred (connect to 10.0.0.5: Connection refused)",
            10,
        ),
        line(
            "mx1",
            "postfix/lmtp",
            f"{on}: to=<u@example.org>, relay=10.0.0.5[10.0.0.5]:24, delay=9, delays=1/0/0/0, "
            "dsn=2.0.0, "
            "status=sent (250 2.0.0 ok)",
            19,
        ),
        line("mx1", "postfix/qmgr", f"{on}: removed", 19, 10),
    ]
    for name in (ID, on):
        (mail,) = trace(name, WHOLE[:3] + there)["mails"]
        assert events(mail) == [
            "accepted",
            "headers",
            "stored",
            "handed_over",
            "queued",
            "deferred",
            "delivered",
            "removed",
        ]
        assert sorted(mail["queue_ids"]) == sorted([ID, on])


def test_a_bounce_is_named_and_is_another_mail(trace):
    notice = "4jWw000000bbbb"
    there = WHOLE[:3] + [
        ours("mx1", "relay", attempt("bounced", "550 5.1.1 nobody"), 4),
        ours(
            "mx1",
            "relay",
            f"{ID}: to=<u@example.org>, relay=127.0.0.1[127.0.0.1]:10626: given to the bounce port "
            f"(250 2.0.0 Ok: queued as {notice})",
            5,
        ),
        line(
            "mx1",
            "postfix/smtp",
            f"{notice}: to=<s@x.example>, relay=x, delay=1, dsn=2.0.0, status=sent (250 ok)",
            6,
        ),
    ]
    (mail,) = trace(ID, there)["mails"]
    assert events(mail) == ["accepted", "headers", "stored", "bounced", "notified"]
    (mail,) = trace(notice, there)["mails"]
    assert events(mail) == ["notified", "delivered"]


def test_several_mails_are_told_apart(trace):
    other = [
        text.replace(ID, "4jXXXXXXXXXXXX").replace(ENTRY, ENTRY[::-1]).replace("gKq1", "zzzz")
        for text in WHOLE
    ]
    saved = DOVECOT[0].replace("gKq1", "zzzz").replace("INBOX", "Lists")
    said = trace("m1@x.example", WHOLE + other, [*DOVECOT, saved])
    assert [mail["places"][0]["mailbox"] for mail in said["mails"]] == ["INBOX", "Lists"], said
    assert [len(mail["events"]) for mail in said["mails"]] == [7, 7]
    said = trace(ID, WHOLE + other, DOVECOT)
    assert len(said["mails"]) == 1 and [one["queue_id"] for one in said["others"]] == [
        "4jXXXXXXXXXXXX"
    ]
    # A queue id that Postfix gave again.
    again = [text.replace("T10:00", "T10:07").replace("m1@", "m2@") for text in WHOLE]
    said = trace(ID, WHOLE + again)
    assert [events(mail)[0] for mail in said["mails"]] == ["accepted", "accepted"] and len(
        said["mails"]
    ) == 2


def test_each_recipient_has_its_end(trace):
    there = WHOLE[:3] + [
        ours("mx1", "relay", attempt("sent", "250 ok", to="a@example.org"), 2),
        ours("mx1", "relay", attempt("deferred", "452 full", to="b@example.org"), 2, 5),
        ours("mx1", "relay", attempt("bounced", "550 no", to="c@example.org"), 2, 9),
    ]
    (mail,) = trace(ID, there)["mails"]
    assert {r["address"][0]: r["state"] for r in mail["recipients"]} == {
        "a": "delivered",
        "b": "deferred",
        "c": "bounced",
    }


def test_a_mail_that_nobody_knows(trace):
    said = trace("4jQQQQQQQQQQQQ", WHOLE, status=1)
    assert not said["mails"] and [log["lines"] for log in said["logs"]] == [0]


def test_the_empty_message_id_names_no_mail(nodes):
    said = admin.run(nodes, "-j", "trace", "-f", "-", "<>")
    assert said.status == 2 and not said.out and "queue id" in said.err, said


def test_a_log_that_cannot_be_read_says_so(nodes, tmp_path):
    said = admin.run(nodes, "-j", "trace", "-f", tmp_path, ID)
    (log,) = judged(said.out)["logs"]
    assert said.status == 1 and log["trouble"] == "not read to its end: Is a directory", said


def test_what_strangers_wrote_drives_nothing(trace):
    """A reply and an address with control characters, quotes, and lines that are no lines."""
    evil = WHOLE[:3] + [
        ours("mx1", "relay", attempt("deferred", '451 \x1b[2J\x9b1m"}{'), 2),
        f"{{{ID}",
        f'{{"time":"{ID}"',
        ID,
        ID * 40000,
        f'{{"time":"2026-11-27T10:00:01Z","queue_id":["{ID}"],"message":7}}',
        f"Nov 27 10:00:05 {ID}",
    ]
    said = trace(ID, evil, json_=False)
    assert "\x1b" not in said and "\\x1b[2J" in said
    trace(ID, evil)
    trace('"a\\"@x', [text.replace("<m1@x.example>", '<"a\\"@x>') for text in evil])


def test_a_message_id_of_very_many_mails_is_bounded(nodes, tmp_path):
    """Whoever sends them all with one Message-ID does not keep the admin waiting for hours."""
    log = tmp_path / "log"
    ids = [f"4jWv5K{number:07}T" for number in range(3000)]
    log.write_text(
        "".join(
            ours("mx1", "milter", STORED.replace(ID, each), 1)
            + "\n"
            + ours("mx1", "relay", attempt("sent", "250 ok").replace(ID, each), 2)
            + "\n"
            for each in ids
        ).replace(ENTRY, "")
    )
    said = admin.run(nodes, "-j", "trace", "-f", log, "m1@x.example")
    mails = judged(said.out)["mails"]
    assert [mail["queue_ids"] for mail in mails] == [[each] for each in ids[:100]]
    assert all(events(mail) == ["stored", "delivered"] for mail in mails)
    assert "more belongs to it than is shown here" in said.err


def test_an_address_and_a_reply_forge_no_other_field(trace):
    """A quoted local part, a Message-ID and a reply may have what the line has behind them."""
    other = "f" * 32
    rest = "dsn=4.0.0, status=deferred (host h said: 451 no)"
    to = '"x>, relay=evil[192.0.2.9]:25, status=sent (250 ok), why=first"@example.org'
    sender = '"s>, size=9, nrcpt=7, message-id=<other@x>, client=evil[192.0.2.9]"@x.example'
    story = [
        ours("mx1", "milter", STORED.replace("s@x.example", sender), 1, 200),
        ours("mx1", "relay", attempt("deferred", "451 4.2.0 no), why=first, id=" + other, to=to), 2),
        line("mx1", "postfix/smtp", f"{ID}: to=<{to}>, relay=h[192.0.2.3]:25, delay=1, {rest}", 3),
        line("mx1", "postfix/qmgr", f"{ID}: from=<{sender}>, size=344, nrcpt=1 (queue active)", 4),
    ]
    (mail,) = trace(ID, story)["mails"]
    assert events(mail) == ["stored", "deferred", "deferred", "queued"]
    assert mail["message_ids"] == ["m1@x.example"] and mail["entry_ids"] == [ENTRY]
    stored, first, second, queued = mail["events"]
    assert stored["from"] == queued["from"] == sender
    assert stored["size"] == queued["size"] == 344 and stored["nrcpt"] == queued["nrcpt"] == 1
    assert stored["client_address"] == "192.0.2.1"
    assert first["to"] == second["to"] == to and "evil" not in first["relay"] + second["relay"]
    assert [r["state"] for r in mail["recipients"]] == ["deferred"]


def test_stdin_is_read_too(nodes):
    program = nodes.shape.build / "ctl" / "dovelane"
    done = subprocess.run(
        [program, "-c", nodes["relay-mx1"].note["conf"], "trace", "-f", "-", ID],
        input="\n".join(WHOLE),
        text=True,
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "deferred" in done.stdout and "stdin: 6 lines" in done.stdout


# ---- real stacks ----


def files(entry, *names):
    return [word for name in names for word in ("-f", entry[name].log)]


@pytest.mark.parametrize("form", ["text", "json"])
def test_from_postfix_through_lanes_into_dovecot(stack, form):
    entry = stack(postfix="divert", dovecot=True, settings={"log_format": form})
    host, _, port = entry.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(
            "s@example.org",
            ["u@example.org"],
            "Message-ID: <whole@x.example>\r\nSubject: x\r\n\r\ntext\r\n",
        )
    words = files(entry, "milter", "relay-mx1", "relay-mx2", "postfix", "dovecot")

    def whole():
        said = judged(admin.run(entry, "-j", "trace", *words, "whole@x.example").out)
        return (
            said["mails"]
            and {"stored", "delivered", "saved", "removed"} <= set(events(said["mails"][0]))
            and said
        )

    said = eventually("all of it is in the logs", whole)
    (mail,) = said["mails"]
    order = [
        event
        for event in events(mail)
        if event in ("accepted", "stored", "saved", "delivered", "removed")
    ]
    assert order == ["accepted", "stored", "saved", "delivered", "removed"], mail
    assert mail["recipients"][0]["state"] == "delivered" and mail["places"][0]["mailbox"] == "INBOX"
    assert not mail["lanes"] and len(mail["entry_ids"]) == 1
    by_queue, by_entry = (
        judged(admin.done(entry, "-j", "trace", *words, name))
        for name in (mail["queue_ids"][0], mail["entry_ids"][0])
    )
    assert events(by_queue["mails"][0]) == events(by_entry["mails"][0]) == events(mail)
    if form == "json":
        assert not said["not_read"] and {event.get("node") for event in mail["events"]} >= {"mx1"}
        for name in ("milter", "relay-mx1", "relay-mx2"):
            lines = Path(entry[name].log).read_text().splitlines()
            assert lines and all(json.loads(text)["message"] for text in lines), name
    else:
        assert not said["not_read"] and {"mx1"} <= {event.get("node") for event in mail["events"]}


def test_deferred_then_delivered_and_what_lies_in_the_lane_meanwhile(stack, tmp_path):
    w = World(stack, tmp_path)
    peer = w.peer()
    peer.say("RCPT", "451 4.2.0 later", times=2)
    peer.say("RCPT", "450 4.2.1 not yet", match="slow@")
    entry_id = w.store(peer, "b@example.net", "slow@example.net").hex()
    w.logged("to=<b@example.net>.*status=sent")
    w.logged("to=<slow@example.net>.*status=deferred", times=2)
    (mail,) = judged(admin.done(w.stack, "-j", "trace", *files(w.stack, "relay-mx1"), entry_id))[
        "mails"
    ]
    (lane,) = mail["lanes"]
    assert {r["address"]: r["open"] for r in lane["recipients"]}["slow@example.net"]
    assert {r["address"]: r["state"] for r in mail["recipients"]} == {
        "b@example.net": "delivered",
        "slow@example.net": "deferred",
    }
    peer.well()
    w.empty()
    (mail,) = judged(admin.done(w.stack, "-j", "trace", *files(w.stack, "relay-mx1"), entry_id))[
        "mails"
    ]
    assert not mail["lanes"] and {r["state"] for r in mail["recipients"]} == {"delivered"}
    w.end()


def test_a_node_is_killed_between(stack, tmp_path):
    """The first owner dies before the delivery; the other one takes over. The story names both."""
    w = World(stack, tmp_path, relays=("mx1",))
    peer = w.peer()
    peer.say("RCPT", "451 4.2.0 later")
    entry_id = w.store(peer, "b@example.net").hex()
    w.logged("to=<b@example.net>.*status=deferred")
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    said = admin.run(w.stack, "-j", "trace", *files(w.stack, "relay-mx1"), entry_id)
    assert (
        said.status == 1
        and "node mx1" in said.err
        and "what only it holds is missing here" in said.err
    )
    assert json.loads(said.out)["mails"][0]["lanes"][0]["copies"] == [
        {"node": "mx2", "state": "waiting"}
    ]
    peer.well()
    w.configure("mx2", hangup=False, dead='{"mx1"}')
    w.stack.start("relay-mx2")
    w.logged("to=<b@example.net>.*status=sent", "mx2")
    (mail,) = judged(
        admin.run(w.stack, "-j", "trace", *files(w.stack, "relay-mx1", "relay-mx2"), entry_id).out
    )["mails"]
    assert "deferred" in events(mail) and mail["recipients"][0]["state"] == "delivered"
    (sent,) = (event for event in mail["events"] if event["event"] == "delivered")
    assert sent["why"] == "takeover"
    w.end()
