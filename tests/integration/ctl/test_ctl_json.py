"""dovelane -j: what every verb prints is as its schema has it, and says what the text says."""

import base64
import json
import os
import re
import resource
import subprocess
import time

from support import admin, envelope, json_schemas
from support.lane_server import BUILD
import pytest
from support.relay_world import BODY, World
from support.stack import programs, resp
from support.waiting import ASAN, eventually

pytestmark = [pytest.mark.core, pytest.mark.long]

DAY = 86400 * 10**6
SEEN = set()  # schemas that something was printed by
# Of a host's set-up, which has tests of its own: tests/provision/test_json.py.
PROVISION = {"init", "join", "invite", "group", "cert", "enroll"}


def dovelane(*words):
    return subprocess.run(
        [BUILD / "ctl" / "dovelane", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def judged(said):
    """The objects, one a line."""
    made = [json_schemas.judged(line) for line in said.out.splitlines()]
    SEEN.update(each["schema"] for each in made)
    json_schemas.errors(said.err)
    return made


def ask(stack, *words, status=0, **options):
    """The document, whichever side of the verb `-j` is on."""
    said = admin.run(stack, *words, "-j", **options)
    assert said.status == status, said
    (made,) = judged(said)
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    from support.stack import Stack

    with Stack(
        postfix="none",
        nodes=2,
        relays=False,
        settings={
            "max_entry": "1MB",
            "retry_first": "1h",
            "retry_most": "1h",
            "settle": "1300ms",
            "store_deadline": "600ms",
        },
    ) as stack:
        made = World.__new__(World)
        made.tmp_path, made.peers, made.bounce = tmp_path_factory.mktemp("w"), [], None
        made.stack = stack
        made.connections = {
            node: resp.Connection(address, timeout=30) for node, address in stack.nodes.items()
        }
        yield made
        made.end()


@pytest.fixture
def mails(world):
    """One mail that is plain, one with all that an envelope can have, one that cannot be read."""
    for connection in world.connections.values():
        connection.call("FLUSHALL")
    peer = world.peer()
    now = time.time_ns() // 1000
    world.store(peer, "b@example.net", queue_id="Q1", sender="a@example.org")
    tried = envelope.recipient(
        "c@example.net", attempts=2, reason="4.4.2 lost connection", last_attempt=now - 10**6
    )
    world.store(
        peer,
        meta=envelope.encode(
            [tried, "d@example.net"],
            size=len(BODY),
            queue_id="Q2",
            arrived=now - DAY,
            sender="",
            client_name="mail.example",
            client_addr="192.0.2.1",
            helo="mail",
            protocol="ESMTPS",
            login="me",
            message_id="<1@example.org>",
        ),
        copies=("mx1",),
    )
    world.store(peer, meta=b"\x07nonsense")
    return world


# ---- what waits ----


def test_mailq(mails):
    said = admin.run(mails.stack, "-j", "mailq")
    rows = {each["queue_id"]: each for each in judged(said)}
    assert said.status == 0 and len(rows) == 3 and rows["Q1"]["nodes"] == ["mx1", "mx2"]
    assert (
        rows["Q2"]["nodes"] == ["mx1"]
        and rows["Q2"]["recipients"][0]["delay_reason"] == "lost connection"
    )
    assert [each for each in rows.values() if each.get("unreadable")]
    assert admin.run(mails.stack, "mailq", "--json", "-p").out == said.out
    text = admin.done(mails.stack, "mailq")
    assert all(key in text for key in rows)


def test_show_and_cat(mails):
    made = ask(mails.stack, "show", "--all")
    first = next(each for each in made["mails"] if each["queue_id"] == "Q2")
    assert first["client"]["login"] == "me" and first["recipients"][0]["attempts"] == 2
    assert {each["node"]: each["state"] for each in first["copies"]} == {
        "mx1": "waiting",
        "mx2": "absent",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["arrived_at"])
    assert base64.b64decode(ask(mails.stack, "cat", "Q1")["message_base64"]) == BODY
    assert ask(mails.stack, "show", "nobody", status=1)["mails"] == []


def test_the_class_of_a_mail_is_shown(mails):
    hop = mails.peer().destination
    lane = f"dovelane:{hop}|mx1>mx2|+bulk"
    mails.push_everywhere(
        ("mx1", "mx2"), lane, (envelope.entry_id(), envelope.encode(["e@example.net"], size=len(BODY), queue_id="Q4"), BODY)
    )
    rows = {each["queue_id"]: each for each in judged(admin.run(mails.stack, "-j", "mailq"))}
    assert rows["Q4"]["class"] == "bulk" and rows["Q4"]["lane"] == lane and "class" not in rows["Q1"]
    assert [each["class"] for each in ask(mails.stack, "show", "Q4")["mails"]] == ["bulk"]
    assert re.search(r"(?m)^class +bulk$", admin.done(mails.stack, "show", "Q4"))
    made = ask(mails.stack, "top", "--once", status=1)  # no relay beats
    assert {each["lane"]: each.get("class") for each in made["lanes"]}[lane] == "bulk"
    assert hop in [each["next_hop"] for each in made["next_hops"]]


def test_qshape(mails):
    made = ask(mails.stack, "qshape")
    assert made["all"]["total"] == 3 and made["domains"][0]["domain"] == "example.net"
    assert made["all"]["by_age"][0] == 1 and made["all"]["by_age"][-1] == 2
    assert ask(mails.stack, "qshape", "-s")["of"] == "senders"


# ---- what is done about mails ----


@pytest.mark.parametrize("verb", ["hold", "release", "flush", "delete", "requeue"])
def test_a_change(mails, verb):
    programs.write_settings(mails.relay("mx1"), {"reinject_port": "127.0.0.1:9"})
    made = ask(mails.stack, verb, "--dry-run", "Q1", "Q2")
    assert (
        made["verb"] == verb
        and made["dry_run"]
        and {each["queue_id"] for each in made["mails"]} == {"Q1", "Q2"}
    )
    made = ask(mails.stack, verb, "Q1")
    assert made["matched"] == 1 and made["done"] + made["already"] == 1 and made["failed"] == 0
    assert ask(mails.stack, verb, "nobody", status=0 if verb == "flush" else 1)["matched"] == 0


def test_too_many_is_an_error(mails):
    peer = mails.peer()
    for number in range(4):
        mails.push_everywhere(
            ("mx1",),
            mails.lane(peer, ("mx1",)),
            *[
                (envelope.entry_id(), envelope.encode(["b@example.net"], size=1), b"x")
                for _ in range(300)
            ],
        )
    said = admin.run(mails.stack, "hold", "--all", "-j")
    assert said.status == 2 and said.out == ""
    assert json_schemas.errors(said.err) == [
        "that is more than 1000: nothing was done; add --yes if it is meant"
    ]


def test_hold_rules(mails):
    assert ask(mails.stack, "hold", "--list")["rules"] == []
    made = ask(mails.stack, "hold", "--add", "--sender", "x@*", status=1)  # no milter is here
    assert made["rules"][0]["number"] == 1 and made["obeyed"] is False
    assert ask(mails.stack, "hold", "--remove", "1", status=1)["rules"] == []


def test_shape(mails):
    assert ask(mails.stack, "shape")["rules"] == []
    # No relay is here.
    made = ask(mails.stack, "shape", ".example.net", "--class", "bulk", "weight=3", status=1)
    assert made["rules"][0]["words"] == [{"word": "weight", "value": "3"}] and made["not_obeying"]
    made = ask(mails.stack, "shape", "--explain", "smtp:[a.example.net]:25", "--class", "bulk")
    assert made["words"][0]["pattern"] == ".example.net" and not made["suspended"]
    made = ask(mails.stack, "shape", "*", "--suspend", "x", "--for", "1h", "--dry-run")
    assert made["dry_run"] and len(made["rules"]) == 2
    assert ask(mails.stack, "shape", ".example.net", "--class", "bulk", "--remove", status=1)


def test_divert_and_drain(mails):
    made = ask(mails.stack, "divert", "status", status=1)
    assert made["on"] and "since_at" not in made and made["milters"] == []
    made = ask(mails.stack, "divert", "off", status=1)
    assert not made["on"] and "uid" in made["by"] and made["since_at"].endswith("Z")
    for connection in mails.connections.values():
        connection.call("FLUSHALL")
    programs.write_settings(mails.relay("mx1"), {"reinject_port": "127.0.0.1:9"})
    said = admin.run(mails.stack, "-j", "drain", "--to-postfix", timeout=120)
    rows = judged(said)
    assert said.status == 0 and rows[-1]["event"] == "end" and rows[-1]["empty"], said
    assert {each["event"] for each in rows[:-1]} == {"progress"}


# ---- is all well? ----


def test_check(mails):
    said = admin.run(mails.stack, "check", "-v", "config", "nodes", "-j")
    (made,) = judged(said)
    assert said.status in (1, 2) and {each["level"] for each in made["findings"]} >= {
        "good",
        "warning",
    }
    for each in made["findings"]:
        assert each["level"] == "good" or (each["name"] and each["mend"]), each
    text = admin.run(mails.stack, "check", "-v", "config", "nodes").out
    sum_ = f"{made['critical']} critical, {made['warning']} warning"
    assert sum_ in text and text.count("mend: ") == made["critical"] + made["warning"]
    (made,) = judged(dovelane_said("check", "--list", "-j"))
    assert len(made["findings"]) > 50


def dovelane_said(*words):
    done = dovelane(*words)
    return admin.Said(done.returncode, done.stdout, done.stderr)


def test_nodes(mails):
    made = ask(mails.stack, "nodes", status=1)  # no relay beats
    assert [each["node"] for each in made["nodes"]] == ["mx1", "mx2"]
    assert made["nodes"][0]["paths"][0]["path"] == "active" and made["nodes"][0]["entries"] >= 1
    assert ask(mails.stack, "nodes", "-v", status=1)["nodes"][0]["used_bytes"] > 0


def test_capacity(mails):
    made = ask(mails.stack, "capacity", "--seconds", "0.2")
    assert {each["node"] for each in made["nodes"]} == {"mx1", "mx2"}
    assert all(each["used_bytes"] > 0 for each in made["nodes"])


def test_top(mails):
    made = ask(mails.stack, "top", "--once", status=1)  # no relay beats
    assert [each["node"] for each in made["nodes"]] == ["mx1", "mx2"] and made["nodes"][0][
        "entries"
    ] == 3
    assert made["lanes"][0]["entries"] == 3 and made["lanes"][0]["copies"] == 2
    assert made["lanes"][0]["in_per_second"] == 0 and made["next_hops"][0]["oldest_seconds"] >= 0


def test_acl(mails, tmp_path):
    user = tmp_path / "dovelane.user"
    user.write_text("admin secret\n")
    user.chmod(0o600)
    config = tmp_path / "dovelane.conf"
    config.write_text(
        f'copies = 1\nnode mx1 {{ redis = "127.0.0.1:1" }}\nnode_user_file = "{tmp_path}/%p.user"\n'
    )
    said = dovelane_said("-c", str(config), "acl", "-j")
    (made,) = judged(said)
    assert [each["user"] for each in made["users"]] == ["default", "admin"], said
    assert (
        "\n".join(each["line"] for each in made["users"]) + "\n"
        == dovelane("-c", str(config), "acl").stdout
    )
    assert len(json_schemas.errors(said.err)) == 4


def test_route(mails):
    programs.write_settings(
        mails.relay("mx1"),
        {
            "route": '{ "example.net=lmtp:[127.0.0.1]:24" }',
            "divert": '{ "lmtp:[127.0.0.1]:24" }',
            "postfix_config": "",
        },
    )
    admin.run(mails.stack, "divert", "on")
    made = ask(mails.stack, "route", "--proxy", "b@example.net")
    assert made["diverted"] and made["next_hop"] == "lmtp:[127.0.0.1]:24" and made["copies"] == 2
    made = ask(mails.stack, "route", "--proxy", "b@example.com", status=1)
    assert not made["diverted"] and made["reasons"][0]["reason"] == "no-route"


def test_membership(stack):
    entry = stack(
        postfix="none",
        nodes=2,
        relays=False,
        settings={"membership": "learned", "takeover": "automatic"},
    )
    made = ask(entry, "nodes", "--join", "mx1")
    assert made["node"] == "mx1" and made["result"] == "not-gone"


# ---- what goes wrong ----


def test_a_node_that_is_away_is_an_error_of_its_own(stack):
    entry = stack(postfix="none", nodes=2, relays=False)
    entry.kill("redis-mx2")
    said = admin.run(entry, "-j", "mailq")
    assert said.status == 1 and any("node mx2" in each for each in json_schemas.errors(said.err))
    entry.kill("redis-mx1")
    said = admin.run(entry, "nodes", "-j")
    assert (said.status, said.out) == (2, "") and json_schemas.errors(said.err)[
        -1
    ] == "no node answers"


@pytest.mark.parametrize(
    "words",
    [
        ("-j",),
        ("-j", "nonsense"),
        ("mailq", "-j", "--nonsense"),
        ("mailq", "-j", "--age", "soon"),
        ("-j", "--nonsense"),
        ("hold", "-j"),
        ("-j", "init"),
        ("group", "-j", "nonsense"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_json_too(words, tmp_path):
    config = tmp_path / "dovelane.conf"
    config.write_text('copies = 1\nnode mx1 { redis = "127.0.0.1:1" }\n')
    said = dovelane("-c", str(config), *words)
    assert (said.returncode, said.stdout) == (2, "") and json_schemas.errors(said.stderr), said


def test_help_is_text_though(tmp_path):
    for words in (
        ("-j", "--help"),
        ("mailq", "-j", "--help"),
        ("hold", "-h", "-j"),
        ("-j", "help", "nodes"),
    ):
        said = dovelane(*words)
        assert said.returncode == 0 and "usage: dovelane" in said.stdout and said.stderr == "", said


# ---- bounds ----


def peak_kilobytes(stack, *words):
    """Most memory that the command had."""
    reader, writer = os.pipe()
    program = [
        str(stack.shape.build / "ctl" / "dovelane"),
        "-c",
        stack["relay-mx1"].note["conf"],
        *words,
    ]
    child = os.fork()
    if not child:
        os.close(reader)
        with open(os.devnull, "wb") as out:
            subprocess.run(program, stdout=out, check=True)
        os.write(writer, str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as source:
        said = int(source.read())
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(ASAN, reason="ASan keeps what is freed")
def test_mailq_needs_no_memory_for_its_length(world):
    for connection in world.connections.values():
        connection.call("FLUSHALL")
    peer = world.peer()
    few, many, size = 200, 20000, 200
    meta = {}
    for number in range(many):
        entry = (
            envelope.entry_id(),
            envelope.encode([f"b{number}@example.net"], size=1, message_id="<" + "x" * 800 + ">"),
            b"x",
        )
        meta.setdefault(number // size, []).append(entry)
        if number % size == size - 1:
            world.push_everywhere(("mx1", "mx2"), world.lane(peer), *meta.pop(number // size))
        if number == few - 1:
            short = peak_kilobytes(world.stack, "mailq", "-j")
    long = peak_kilobytes(world.stack, "mailq", "-j")
    assert len(admin.queue(world.stack)) == many
    assert long - short < 8192, (short, long)  # their envelopes alone are 16 MB


# ---- nothing is forgotten ----

OF_VERBS = {verb: "change" for verb in ("hold", "release", "flush", "requeue", "delete")}
# By which tests a schema is filled elsewhere.
# trace/1: test_ctl_trace.py
ELSEWHERE = {f"{verb}/1" for verb in PROVISION} | {"error/1", "trace/1"}


def test_every_verb_has_a_schema():
    verbs = set(re.findall(r"(?m)^  ([a-z]+) ", dovelane("--help").stdout))
    wanted = {f"{OF_VERBS.get(verb, verb)}/1" for verb in verbs}
    assert wanted <= json_schemas.names(), "a verb has no schema in docs/json"


def test_every_schema_is_filled_by_a_test(request):
    """The last of this file, which has run as a whole then: no share of it, none chosen."""
    here = {item.originalname for item in request.session.items if item.module is request.module}
    all_here = {name for name in vars(request.module) if name.startswith("test_")}
    if here != all_here or not request.config.getoption("share").endswith("/1"):
        pytest.skip("of a run of the whole file")
    assert json_schemas.names() - SEEN == ELSEWHERE
