"""dovelane shape: what next hops get is said to all relays, obeyed within a second, and forgotten by none."""
import json
import re
import signal
import smtplib
from pathlib import Path

import pytest
from support import admin
from support.mends import Check, mends
from support.stack import SinkShape, Stack, oracle, resp
from support.waiting import eventually

pytestmark = pytest.mark.long

HOP = "smtp:[mx1.example.net]:25"


@pytest.fixture(scope="module")
def running():
    with Stack(postfix="divert", nodes=2, sinks=[SinkShape("a", [], ours=True)], settings={"store_deadline": "600ms", "max_entry": "1MB", "settle": "1300ms"}) as entry:
        eventually("the relays have shown themselves", lambda: all(obeyed(entry, node) is not None for node in entry.nodes))
        yield entry


@pytest.fixture
def shape(running):
    """The command; afterwards nothing is said any more."""
    yield lambda *words, **options: admin.done(running, "shape", *words, **options)
    for rule in 2 * json.loads(admin.done(running, "shape", "-j"))["rules"]:     # of a suspension it stays first that it ended
        if rule["from"] == "said" and rule["pattern"] in admin.done(running, "shape"):
            admin.done(running, "shape", rule["pattern"], *(["--class", rule["class"]] if "class" in rule else []), "--remove")


def obeyed(running, node):
    """The serial number that this node's relay says it obeys."""
    with resp.Connection(running.nodes[node]) as connection:
        return connection.call("HGET", "dovelane.config", "shape")


def said(running, node):
    with resp.Connection(running.nodes[node]) as connection:
        return (connection.call("GET", "dovelane.shape") or b"").decode()


def words_of(document):
    return {each["word"]: (each["value"], each["pattern"], each["from"]) for each in document["words"]}


def explained(running, hop=HOP, *more):
    return json.loads(admin.done(running, "shape", "-j", "--explain", hop, *more))


# ---- saying ----

def test_what_is_said_reaches_every_relay_and_milter_and_stays(running, shape):
    assert shape() == "no rules: the general settings count for all next hops\n"
    out = shape(HOP, "rate=100/s", "burst=20")
    assert re.fullmatch(r"smtp:\[mx1.example.net\]:25  \(root \(uid 0.*\), \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)\n    rate=100/s burst=20\n", out), out
    serial = said(running, "mx1").split()[0]
    assert all(said(running, node).split()[0] == serial and obeyed(running, node).decode() == serial for node in running.nodes)
    for program in ("milter", "relay-mx1", "relay-mx2"):
        assert f"rules of `dovelane shape` changed ({serial} on root" in Path(running[program].log).read_text()
    # Two nodes' servers forget it, and so does a relay's memory.
    for node in running.nodes:
        running.kill(f"relay-{node}")
        running.kill(f"redis-{node}")
    for node in running.nodes:
        running.start(f"redis-{node}")
        running.start(f"relay-{node}")
    eventually("the nodes are told again", lambda: all(said(running, node).startswith(serial) for node in running.nodes), 60)
    eventually("the relays obey again", lambda: all((obeyed(running, node) or b"").decode() == serial for node in running.nodes), 60)
    assert "rate=100/s burst=20" in shape()


def test_words_are_changed_one_by_one_and_a_class_is_a_rule_of_its_own(shape):
    shape(HOP, "rate=100/s", "connections=5")
    shape(HOP, "--class", "bulk", "weight=5")
    out = shape(HOP, "rate=50/s", "timeout=2h")
    assert "    rate=50/s connections=5 timeout=2h\n" in out and "smtp:[mx1.example.net]:25, class bulk  (" in out and "    weight=5\n" in out
    assert "    rate=50/s timeout=2h\n" in shape(HOP, "connections=")
    assert "timeout=2h" not in shape(HOP, "--remove") and "class bulk" in shape()
    assert shape(HOP, "--class", "bulk", "weight=") == "no rules: the general settings count for all next hops\n"


def test_a_dry_run_changes_nothing(running, shape):
    before = said(running, "mx1")
    out = shape("*", "rate=1/s", "--dry-run")
    assert "*  (root" in out and out.endswith("nothing was changed (--dry-run)\n") and said(running, "mx1") == before
    assert shape() == "no rules: the general settings count for all next hops\n"
    assert json.loads(shape("-j", "*", "rate=1/s", "--dry-run"))["dry_run"] is True


def test_explain_says_which_rule_each_word_has(running, shape):
    shape("*", "rate=10/s", "timeout=1h")
    shape(".example.net", "rate=20/s", "burst=7")
    shape(HOP, "--class", "bulk", "weight=3")
    assert words_of(explained(running)) == {"rate": ("20/s", ".example.net", "said"), "burst": ("7", ".example.net", "said"), "timeout": ("1h", "*", "said")}
    of_bulk = explained(running, HOP, "--class", "bulk")
    assert words_of(of_bulk)["weight"] == ("3", HOP, "said") and of_bulk["class"] == "bulk" and (of_bulk["rate_per_second"], of_bulk["burst"]) == (20, 7)
    out = shape("--explain", "smtp:[10.0.0.5]:25")
    assert re.search(r"(?m)^smtp:\[10.0.0.5\]:25\n  rate=10/s  by \*  \(root .*\)\n  timeout=1h  by \*  \(root .*\)\nnow at most 10 mails a second, 10 at once\n$", out), out


def test_a_next_hop_is_suspended_and_resumed(running, shape):
    shape(HOP, "--suspend", "their postmaster asked", "--for", "2h")
    now = explained(running)
    assert now["suspended"] and now["suspended_why"] == "their postmaster asked" and "suspended_until_at" in now
    assert 'suspend="their postmaster asked" suspend_until="20' in shape()
    # Again, without an end.
    shape(HOP, "--suspend", "moved")
    assert "suspended_until_at" not in explained(running) and explained(running)["suspended_why"] == "moved"
    shape("*", "--suspend", "all of it")
    shape(HOP, "--resume")
    assert not explained(running)["suspended"] and explained(running, "smtp:[10.0.0.5]:25")["suspended"]
    shape("*", "--resume")
    assert not explained(running, "smtp:[10.0.0.5]:25")["suspended"]
    again = admin.run(running, "shape", "*", "--resume")
    assert again.status == 2 and "it is not suspended" in again.err


def test_a_suspension_that_is_over_is_forgotten_with_the_next_change(running, shape):
    shape(HOP, "--suspend", "for a moment", "--for", "1s")
    assert explained(running)["suspended"]
    eventually("it ends by itself", lambda: not explained(running)["suspended"])
    assert "for a moment" not in shape("*", "weight=2")


WRONG = [
    (("example.net", "rate=1/s"), '"example.net" is no next hop: write smtp:['),
    (("smtp:example.net:25", "rate=1/s"), "is no next hop that mail can be diverted for"),
    ((HOP, "rate=fast"), "rate = fast: write it like 100/s, 6000/min"),
    ((HOP, "rat=1/s"), "rat is no word of a shape; the words are rate, burst"),
    ((HOP, "rate"), "rate is no WORD=VALUE: write it like rate=100/s"),
    ((HOP,), "give words (rate=100/s), or one of --suspend REASON, --resume, --remove"),
    ((HOP, "rate=1/s", "--remove"), "give words (rate=100/s), or one of"),
    ((HOP, "--class", "bulk", "rate=1/s"), "rate is not for one class (bulk), but for all that a next hop gets: write it into a rule without a class"),
    ((HOP, "--class", "bulk", "--suspend", "x"), "suspend is not for one class (bulk)"),
    ((HOP, "--class", "A B", "rate=1/s"), 'class = "A B": a class\'s name has 1 to 15'),
    ((HOP, "--remove"), "no such rule was said here; `dovelane shape` lists them"),
    ((HOP, "burst="), "burst was not said here"),
    ((HOP, "suspend_until=2030-01-01"), "suspend_until without suspend: add the reason"),
    ((HOP, "rate=1/s", "--for", "2h"), "--for and --until are for --suspend REASON"),
    ((HOP, "--suspend", "x", "--for", "2"), "shape --for 2: write it like 30m, 2h, 1d"),
    ((HOP, "--suspend", "x", "--until", "2020-01-01"), "--until 2020-01-01: that is past; times are in UTC"),
    ((HOP, "--suspend", "x", "--until", "soon"), "--until soon: write it like 2026-12-01"),
    ((HOP, "--suspend", "none"), "--suspend none: give a reason"),
    (("--remove",), "for which next hops?"),
    (("--explain", ".example.net"), "name one next hop, smtp:["),
    (("--explain", HOP, "rate=1/s"), "it takes no further words"),
]


@pytest.mark.parametrize("words, expected", WRONG, ids=lambda value: "-".join(value) if isinstance(value, tuple) else "")
def test_what_cannot_be_is_refused_with_the_way_out(running, words, expected):
    before = said(running, "mx1")
    wrong = admin.run(running, "shape", *words)
    assert wrong.status == 2 and expected in wrong.err and not wrong.out, wrong
    assert said(running, "mx1") == before


def test_no_more_than_fits_into_a_node_is_taken(running, shape):
    shape(*["smtp:[a]:25", "suspend=" + "x" * 200])
    many = [f"smtp:[{n:0200d}.example.net]:25" for n in range(150)]
    for hop in many[:3]:
        shape(hop, "rate=1/s")
    text = said(running, "mx1")
    filler = "".join(f"{hop}\trate=1/s\n" for hop in many * 2)[:60000 - len(text)].rpartition("\n")[0] + "\n"
    serial = int(text.split()[0]) + 1
    for node in running.nodes:
        with resp.Connection(running.nodes[node]) as connection:
            connection.call("SET", "dovelane.shape", text.replace(text.split()[0], str(serial), 1) + filler)
    full = admin.run(running, "shape", "smtp:[b]:25", "suspend=" + "y" * 200)
    assert full.status == 2 and "that would be more than 60000 bytes of rules" in full.err, full
    for node in running.nodes:
        with resp.Connection(running.nodes[node]) as connection:
            connection.call("SET", "dovelane.shape", f"{serial + 1} on root")


def test_a_suspended_next_hop_gets_nothing_until_it_is_resumed(running, shape):
    hop = re.search(r'(?m)^divert = .*?"([^"]+)"', Path(running["relay-mx1"].note["conf"]).read_text())[1]
    shape(hop, "--suspend", "they asked")
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@example.org", ["x@a.example"], "Subject: x\r\nX-Oracle-Id: suspended-12345678\r\n\r\ntext\r\n")
    eventually("it waits", lambda: admin.queue(running))
    admin.done(running, "flush")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@example.org", ["x@a.example"], "Subject: x\r\nX-Oracle-Id: suspended-87654321\r\n\r\ntext\r\n")
    eventually("both wait", lambda: len(admin.queue(running)) == 2)
    assert not oracle.Deliveries(running).read().mails
    shape(hop, "--resume")
    eventually("both are delivered", lambda: {"suspended-12345678", "suspended-87654321"} <= {mail for mail, _ in oracle.Deliveries(running).read().mails})


# ---- who obeys ----

def test_a_relay_that_is_away_is_named_and_obeys_when_it_is_back(running, shape):
    running.kill("relay-mx2")
    eventually("what it told is believed no longer", lambda: obeyed(running, "mx2") is None)
    slow = admin.run(running, "shape", "-j", HOP, "rate=7/s")
    assert slow.status == 1 and json.loads(slow.out)["not_obeying"] == [{"who": "the relay of mx2", "why": "is not connected; it obeys when it is back"}], slow
    running.start("relay-mx2")
    serial = said(running, "mx1").split()[0]
    eventually("it obeys", lambda: (obeyed(running, "mx2") or b"").decode() == serial)


def test_a_node_that_is_away_is_told_when_it_is_back(running, shape):
    running.kill("redis-mx2")
    away = admin.run(running, "shape", HOP, "rate=8/s")
    assert away.status == 1 and "mx2" in away.err
    serial = said(running, "mx1").split()[0]
    running.start("redis-mx2")
    eventually("it is told", lambda: said(running, "mx2").startswith(serial), 60)
    eventually("its relay obeys", lambda: (obeyed(running, "mx2") or b"").decode() == serial, 60)


# ---- the file ----

@pytest.fixture
def filed(running):
    """Sections of dovelane.conf in the relays' files; they read them at SIGHUP."""
    def write(text):
        for node in running.nodes:
            conf = Path(running[f"relay-{node}"].note["conf"])
            conf.write_text(re.sub(r"\n# shapes(.|\n)*", "", conf.read_text()) + "\n# shapes\n" + text)
            running[f"relay-{node}"].send(signal.SIGHUP)
    yield write
    write("")


def test_the_file_and_what_was_said_are_shown_together(running, shape, filed):
    filed(f'shape "{HOP}" {{ rate = 5/s suspend = "as filed" }}\nshape "{HOP}" {{ class = bulk weight = 3 }}\n')
    out = shape()
    assert f'{HOP}  (dovelane.conf)\n    rate=5/s suspend="as filed"\n{HOP}, class bulk  (dovelane.conf)\n    weight=3\n' == out
    shape(HOP, "rate=9/s")
    assert words_of(explained(running))["rate"] == ("9/s", HOP, "said") and words_of(explained(running))["suspend"] == ("as filed", HOP, "file")
    wrong = admin.run(running, "shape", HOP, "suspend=")
    assert wrong.status == 2 and "suspend was not said here; it is in dovelane.conf. Take it out there, or give it the value none" in wrong.err
    shape(HOP, "--resume")
    assert not explained(running)["suspended"]


@pytest.fixture
def check(running):
    return Check(lambda *words: admin.run(running, "check", *words).out)


@mends("hop-suspended")
@pytest.mark.parametrize("by", ["said", "file"])
def test_a_suspended_next_hop_is_found(running, shape, filed, check, by):
    check.lacks("hop-suspended", "nodes")
    if by == "said":
        shape(HOP, "--suspend", "their postmaster asked", "--for", "2h")
    else:
        filed(f'shape "{HOP}" {{ suspend = "their postmaster asked" }}\n')
    found = check.finds("hop-suspended", "nodes", about=HOP)
    assert found.mend == f"dovelane shape '{HOP}' --resume" and "their postmaster asked" in check.look("nodes")[1]
    shape(*found.mend.replace("'", "").split()[2:])
    check.lacks("hop-suspended", "nodes")


def test_mailq_show_and_top_say_why_nothing_is_sent(running, shape, check):
    hop = running.destinations["a"]
    shape(hop, "--suspend", "their postmaster asked", "--for", "2h")
    host, _, port = running.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", ["u@a.example"], b"Subject: x\r\n\r\nhello\r\n")
    why = "suspended: their postmaster asked"
    eventually("mailq says so", lambda: f"({why})" in admin.done(running, "mailq"))
    mail, = admin.queue(running)
    assert mail["recipients"][0]["delay_reason"] == why
    assert why in admin.done(running, "show", mail["queue_id"])
    assert f"{hop}  {why} (" in admin.run(running, "top", "--once").out
    check.finds("hop-suspended", "nodes", about=hop)
    check.lacks("hop-away", "nodes")
    shape(hop, "--resume")
    eventually("it is delivered", lambda: not admin.queue(running))


def test_a_warm_up_is_explained_in_a_readable_unit(running, shape):
    shape(HOP, "warmup=2020-01-01: " + " ".join(["50"] * 3))
    assert "now at most" not in admin.done(running, "shape", "--explain", HOP), "its days are over"
    shape(HOP, "warmup=2099-01-01: 50 100")
    assert "\nnow at most 2.08333 mails an hour, 2.08333 at once\n" in admin.done(running, "shape", "--explain", HOP)


def test_what_replies_asked_for_is_explained(running, shape):
    shape(HOP, "backoff=yes")
    with resp.Connection(running.nodes["mx2"]) as connection:
        now = int(connection.call("TIME")[0]) * 1000
        connection.call("HSET", f"dovelane.bucket:{HOP}|backoff", "rate", f"0.5 {now + 3600000} 3600000", "connections", f"3 {now + 3600000} 7200000", "suspend", f"0 {now - 1} 1000")
        try:
            asked = explained(running)["asked"]
            assert [(each["what"], each["value"], each["node"]) for each in asked] == [("rate", 0.5, "mx2"), ("connections", 3, "mx2")]
            out = admin.done(running, "shape", "--explain", HOP)
            assert re.search(r"(?m)^its replies asked for less \(backoff\), until \d{4}-\S+ \S+: rate times 0.5$", out) and ": connections=3\n" in out
            shape(HOP, "backoff=no")
            assert "asked" not in admin.done(running, "shape", "--explain", HOP)
        finally:
            connection.call("DEL", f"dovelane.bucket:{HOP}|backoff")


def test_a_class_without_a_section_is_remarked(running, shape):
    said = admin.run(running, "shape", HOP, "--class", "nosuch", "weight=3")
    assert said.status == 0 and "dovelane.conf has no section `class nosuch`: the rule counts for no mail until there is one" in said.err


@mends("backoff-rules")
def test_a_file_of_rules_for_replies_that_cannot_be_read_is_found(running, filed, check, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("421 * * suspend 1m\n421 * * stop\n")
    filed(f'backoff_rules = "{rules}"\n')
    check.lacks("backoff-rules", "config")
    filed(f'backoff_rules = "{rules}"\nshape "*" {{ backoff = yes }}\n')
    found = check.finds("backoff-rules", "config")
    assert found.mend.startswith("mend that line, or name another file") and f"{rules}:2: stop is no action" in check.look("config")[1]
    rules.write_text("421 * * suspend 1m\n")
    check.lacks("backoff-rules", "config")
