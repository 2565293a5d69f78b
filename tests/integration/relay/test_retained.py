"""A mail is delivered, and its owners keep it until enough sites have it on disk (docs/two-disks.md)."""
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import envelope
from support.relay_world import BODY
from support.site_world import SiteWorld
from support.stack import probe, resp
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


def asked(site, times=1):
    return eventually(f"{site.name} is asked {times} times", lambda: len(site.questions) >= times and list(site.questions))


@pytest.mark.check
def test_a_mail_is_kept_until_its_site_says_that_it_is_safe(world):
    w = world()
    a, b = w.sites
    name = w.put("b@example.net", "c@example.net")
    assert w.retained("mx1", "mx2") == 1
    questions = asked(a, 4)     # both, and again
    assert {q.guid for q in questions} == {guid(name.hex(), BODY, each) for each in ("b@example.net", "c@example.net")}
    assert {(q.node, q.sites) for q in questions} == {("mx1", 2)} and {q.recipient for q in questions} == {"b@example.net", "c@example.net"}
    assert w.length("mx1") == w.length("mx2") == 1 and not w.count(": removed")
    a.ship()
    w.empty()
    w.logged(": retained until enough sites have it on disk, site=site-a")
    w.logged(": removed")
    assert sorted(a.peer.mails[0].recipients + a.peer.mails[-1].recipients) == ["b@example.net", "c@example.net"]
    assert len(a.peer.mails) == 2 and not b.peer.mails and not b.questions, "LMTP: one each"


def test_a_recipient_that_was_named_twice(world):
    """One GUID, so one answer."""
    w = world()
    a, _ = w.sites
    w.put("b@example.net", "b@example.net")
    w.retained("mx1", "mx2")
    a.ship()
    w.empty()


def test_one_recipient_that_is_not_safe_keeps_the_entry(world):
    w = world()
    a, _ = w.sites
    name = w.put("b@example.net", "c@example.net")
    safe = guid(name.hex(), BODY, "b@example.net")
    a.word = lambda question: "safe" if question.guid == safe else None
    asked(a, 3)
    eventually("only the other one is asked for", lambda: [q.guid for q in a.questions[-3:]].count(safe) == 0)
    assert w.retained("mx1", "mx2") == 1
    a.word = lambda question: "safe"
    w.empty()
    assert len(a.peer.mails) == 2


def test_many_are_asked_for_and_removed_together(world):
    w = world(destination_concurrency=4)
    a, b = w.sites
    a.word = silent
    names = [w.put(f"u{i}@example.net") for i in range(300)]
    asked(a, 300)
    a.ship()
    a.word = a.by_rule
    w.empty()
    assert a.disk == b.disk == {guid(name.hex(), BODY, f"u{i}@example.net") for i, name in enumerate(names)}
    assert len(a.peer.mails) == 300 and w.count("dovelane-relay .* for node mx1") == 1


def test_until_delivered_asks_nobody(world):
    w = world(section={"until": "delivered"})
    w.put()
    w.empty()
    assert len(w.sites[0].peer.mails) == 1 and not w.sites[0].questions
    assert not w.count("relay-ask"), "no connection to a site's node"


# -- a site's disk is lost -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("until", ["delivered", "replicated"])
def test_the_receiving_sites_disk_is_lost_before_it_has_shipped(world, until):
    """Today's order loses the mail; retained, it is delivered anew, as the same mail."""
    w = world(section={"until": until})
    a, b = w.sites
    a.word = silent
    name = w.put()
    eventually("it is delivered", lambda: a.peer.mails)
    if until == "delivered":
        w.empty()
    else:
        w.retained("mx1", "mx2")
    a.lose_disk()
    a.word = a.by_rule
    if until == "delivered":
        assert not a.disk and not b.disk, "nobody has it, who was answered 250"
        return
    same = guid(name.hex(), BODY, "b@example.net")
    eventually("it is there again", lambda: a.look() or same in a.disk)
    w.logged("status=sent .* why=site-lost")
    a.ship()
    w.empty()
    assert a.disk == b.disk == {same}


@pytest.mark.check
def test_a_site_that_never_knows_a_mail_gets_it_twice_and_no_more(world):
    """Its state is the same one all the time, so it has lost nothing."""
    w = world(section={"replicated_wait": "500ms"})
    a, b = w.sites
    a.word = lambda question: "unknown"
    w.put()
    w.logged(": let go before enough sites had it on disk, why=never-known")
    w.empty()
    assert len(a.peer.mails) == 2 and not b.peer.mails
    assert w.count("took mail twice and does not know it") == 1
    metrics = "unix:" + w.relay().note["metrics"]
    assert probe.metric(metrics, "relay_never_known") == probe.metric(metrics, "relay_site_lost") == 1


def test_a_site_that_loses_its_disk_again_and_again_gets_the_mail_each_time(world):
    """Another epoch is another state: the mail may have been on the lost one."""
    w = world(section={"replicated_wait": "500ms"})
    a, b = w.sites

    def other_state(question):
        a.epoch = len(a.peer.mails)
        return "unknown"

    a.word = other_state
    w.put()
    eventually("it is delivered four times", lambda: len(a.peer.mails) >= 4)
    assert not w.count("let go")
    a.word = lambda question: "safe"
    w.empty()


def test_a_late_word_of_before_the_second_delivery_lets_nothing_go(world):
    """Answers that came twice, and to no question since."""
    w = world(section={"replicated_wait": "60s"})
    a, b = w.sites
    a.word = lambda question: "unknown"
    w.put()
    eventually("it is delivered twice", lambda: len(a.peer.mails) == 2)
    a.word = silent
    w.logged("status=sent .* why=site-lost")
    w.retained("mx1", "mx2")
    question = a.questions[-1]
    with resp.Connection(a.address, timeout=30) as connection:
        for _ in range(10):
            a.say(connection, question, "unknown")
            eventually("the relay has taken it", lambda: connection.call("LANE.LEN", "dovelane:answered:mx1") == 0)
    assert w.retained("mx1", "mx2") == 1 and not w.count("let go") and len(a.peer.mails) == 2


def test_the_receiving_site_is_lost_for_good(world):
    w = world()
    a, b = w.sites
    a.word = silent
    name = w.put()
    w.retained("mx1", "mx2")
    a.go_away()
    a.disk = set()
    w.logged("site site-a is away for more than 2 s")
    w.logged("status=sent .* why=site-away")
    eventually("the other one is asked from then on", lambda: b.questions)
    assert w.retained("mx1", "mx2") == 2
    a.come_back()
    b.ship()
    w.empty()
    assert a.disk == b.disk == {guid(name.hex(), BODY, "b@example.net")}
    assert len(a.peer.mails) == len(b.peer.mails) == 1


def test_a_site_whose_port_alone_cannot_be_reached(world):
    w = world()
    a, b = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    a.peer.down()
    w.logged("status=sent .* why=site-away")
    assert w.retained("mx1", "mx2") == 2
    b.ship()
    w.empty()
    assert len(b.peer.mails) == 1
    a.peer.up()


def test_a_mail_whose_site_is_away_stays_there_until_another_one_takes_it(world):
    w = world()
    a, b = w.sites
    a.word = silent
    b.peer.say("RCPT", "550 5.1.1 nobody here")
    w.put()
    w.retained("mx1", "mx2")
    a.go_away()
    w.logged(r"5.1.1 nobody here.*why=site-away")
    assert w.retained("mx1", "mx2") == 1, "it is not bounced: somebody has it"
    a.come_back()
    a.word = lambda question: "safe"
    w.empty()
    assert not b.peer.mails


# -- relays and nodes ----------------------------------------------------------------------------------------------------------

def test_a_relay_killed_between_meta_and_ack_asks_again(world):
    w = world()
    a, _ = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    w.stack.kill("relay-mx1")
    a.ship()
    a.word = a.by_rule
    w.stack.start("relay-mx1")
    w.empty()
    assert len(a.peer.mails) == 1


def test_a_relay_killed_between_the_250_and_meta_delivers_the_same_mail_again(world):
    w = world()
    a, b = w.sites
    a.word = silent
    opened, reached = threading.Event(), threading.Event()

    def gate(session):
        reached.set()
        assert opened.wait(200)
        return "250 2.0.0 Ok"

    a.peer.say("DOT", gate, times=1)
    name = w.put()
    assert reached.wait(60)
    w.stack.stop("relay-mx1")     # the answer waits in its socket
    opened.set()
    eventually("it is delivered", lambda: a.peer.mails)
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.logged("status=sent .* why=retry")
    w.retained("mx1", "mx2")
    a.ship()
    a.word = a.by_rule
    w.empty()
    assert a.disk == b.disk == {guid(name.hex(), BODY, "b@example.net")} and len(a.peer.mails) == 2


def test_the_node_that_delivered_is_lost_and_the_next_owner_asks(world):
    w = world()
    a, _ = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    w.stack.kill("mx1")
    w.connections.pop("mx1").close()
    w.stack.set_dead("mx1")
    eventually("it asks in its own name", lambda: a.questions[-1].node == "mx2")
    assert not w.count("status=sent", "mx2"), "it is not delivered again"
    a.ship()
    a.word = a.by_rule
    w.empty("mx2")
    assert len(a.peer.mails) == 1


# -- the ways out that are not for it ------------------------------------------------------------------------------------------

def test_retained_mail_is_not_given_to_postfix(world):
    w = world(lane_time="1s", revoke_wait="0s", reinject_port="127.0.0.1:1")
    postfix = w.peer()
    w.configure("mx1", reinject_port=f"127.0.0.1:{postfix.port}")
    a, _ = w.sites
    a.word = silent
    w.put("b@example.net")
    w.retained("mx1", "mx2")
    late = w.peer()
    late.say("RCPT", "450 4.2.0 later")
    w.store(late, "spilled@example.net")
    w.logged("to=<spilled@example.net>.*given to Postfix's queue", seconds=240)
    asked(a, 3)
    assert w.retained("mx1", "mx2") == 1
    assert [mail.recipients for mail in postfix.mails] == [["spilled@example.net"]]
    a.word = lambda question: "safe"
    w.empty()


def test_in_an_ordered_lane_the_next_mail_does_not_wait(world):
    w = world()
    a, _ = w.sites
    a.word = silent
    lane = f"dovelane:{w.destination}|mx1>mx2|origin.1"
    for who in ("one@example.net", "two@example.net", "three@example.net"):
        w.push_everywhere(("mx1", "mx2"), lane, (envelope.entry_id(), envelope.encode([who], size=len(BODY)), BODY))
    eventually("all are delivered", lambda: len(a.peer.mails) == 3)
    assert [mail.recipients[0] for mail in a.peer.mails] == ["one@example.net", "two@example.net", "three@example.net"]
    assert not w.count("out of order")
    eventually("and retained", lambda: w.retained("mx1", "mx2") == 1)
    a.word = lambda question: "safe"
    w.empty()
    assert len(a.peer.mails) == 3


# -- memory ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("away", ["keep", "let_go"])
def test_memory_that_is_full_of_retained_mail(world, away):
    """replicated_memory: 1 % of 512 MB, half of it for each relay."""
    w = world(section={"replicated_away": away, "replicated_memory": 1, "replicated_wait": "500ms"})
    a, _ = w.sites
    a.word = silent
    body = BODY + b"0123456789abcdef\r\n" * 55000
    for _ in range(4):
        w.put(body=body)
    w.logged("destination .*: more mail is retained than replicated_memory = 1% allows")
    if away == "keep":
        asked(a, 12)
        assert w.length("mx1") == w.length("mx2") == 4 and not w.count("let go")
    else:
        w.logged(": let go before enough sites had it on disk, why=away", times=2)
        eventually("what is allowed stays", lambda: w.length("mx1") == w.length("mx2") == 2)
    a.word = lambda question: "safe"
    w.empty()
    assert len(a.peer.mails) == 4


def test_until_delivered_again_lets_go(world):
    w = world()
    a, _ = w.sites
    a.word = silent
    w.put()
    w.retained("mx1", "mx2")
    inside = dict(w.relay().note["settings"]["destinations"][w.destination], until="delivered")
    for node in ("mx1", "mx2"):
        w.configure(node, destinations={w.destination: inside})
    w.logged(": let go before enough sites had it on disk, why=until")
    w.empty()


def test_the_settings_must_fit(world, tmp_path):
    w = world(relays=())
    program, conf = w.relay().argv[0], w.relay().note["conf"]
    good = Path(conf).read_text()

    def says(text):
        bad = tmp_path / "bad.conf"
        bad.write_text(text)
        done = subprocess.run([program, "-c", bad, "-n", "mx1", "-t"], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    assert says(good)[0] == 0
    for change, words in (((r'    delivery_id = "yes"\n', ""), "needs delivery_id = yes"), ((r'    sites = 2', "    sites = 3"), "but there are 2 replica sections"),
                          ((r'    lmtp = [^\n]*', ""), "is no replica's lmtp: write lmtp = "), ((r'destination "lmtp:', 'destination "smtp:'), "is for lmtp: to our own Dovecot"),
                          ((r'destination "lmtp:[^"]*"', 'destination "*"'), "needs a section for each next hop")):
        code, said = says(re.sub(*change, good, count=1))
        assert code and words in said, said


# -- beside rules of `shape` --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("answer", [None, "450 4.2.1 mailbox busy", "450 4.2.1 mailbox busy, and the relay is killed"])
def test_what_a_site_lost_does_not_bounce_by_a_rule_of_later(world, answer):
    """It was answered 250 and delivered: neither its size nor its age is a reason to bounce it then, whatever the site answers when it comes again."""
    w = world(section={"until": "replicated"}, bounce=True, settle="1300ms", revoke_wait="0s", retry_first="200ms", retry_most="400ms")
    a, _ = w.sites
    a.word = silent
    name = w.put()
    w.retained("mx1", "mx2")
    for node in ("mx1", "mx2"):
        w.configure(node, shapes=[("*", {"size_most": "1", "timeout": "1s", "timeout_action": "bounce"})])
        w.logged("config read again", node)
    if answer:
        for site in w.sites:
            site.peer.say("RCPT", answer.split(",")[0])
    a.lose_disk()
    a.word = a.by_rule
    if answer:
        eventually("it was refused again and again", lambda: w.count("4.2.1 mailbox busy") >= 3 or w.bounce.mails)
        if "killed" in answer:
            w.stack.kill("relay-mx1")
            w.stack.start("relay-mx1")
        time.sleep(6)       # a round that looks for what is too old
        assert not w.bounce.mails and w.length("mx1") == 1
        for site in w.sites:
            site.peer.well()
    same = guid(name.hex(), BODY, "b@example.net")
    eventually("it is there again", lambda: a.look() or same in a.disk or w.bounce.mails)
    assert same in a.disk and not w.bounce.mails
    a.ship()
    w.empty()
    assert not w.bounce.mails
