"""Next hops that fail: what is tried again, what bounces, and what the envelope says meanwhile."""
import re
import time

import pytest

from support import envelope
from support.relay_peer import ALL, CLOSE, HANG, RAW, RESET
from support.relay_world import BODY, eventually, timeouts

pytestmark = [pytest.mark.core, pytest.mark.long]
WAITING, SENT, FAILED, BOUNCED = range(4)


# -- temporary failures ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelined", "lockstep"])
@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
def test_4xx_is_tried_again(world, verb, pipelining):
    w = world(nodes=1)
    peer = w.peer(offers=ALL if pipelining else ())
    peer.say(verb, "450 4.7.1 not now", times=1)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 1
    w.logged(r"dsn=4\.7\.1, status=deferred \(host 127\.0\.0\.1\[127\.0\.0\.1\]:\d+ said: 450 4\.7\.1 not now "
             r"\(in reply to [\w ]+\)\), why=first")
    w.logged("status=sent .* why=retry")


@pytest.mark.test
@pytest.mark.parametrize("verb", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "BODY", "DOT"])
@pytest.mark.parametrize("how", [CLOSE, RESET])
def test_a_lost_connection_is_tried_again(world, verb, how):
    w = world(nodes=1, **timeouts("60s"))  # a peer on a busy machine takes its time for 18 MB
    peer = w.peer()
    peer.say(verb, how, times=1)
    body = b"Subject: x\r\n\r\n" + b"0123456789\r\n" * (1500000 if verb == "BODY" else 1)
    w.store(peer, owners=["mx1"], body=body)
    w.empty()
    assert peer.bodies() == [body]
    w.logged("status=sent .* why=" + {"CONNECT": "first", "EHLO": "first", "DOT": "unknown-reply"}.get(verb, "retry"))


@pytest.mark.parametrize("verb", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
def test_silence_is_a_lost_connection(world, verb):
    w = world(nodes=1, **timeouts("300ms"))
    peer = w.peer()
    peer.say(verb, HANG, times=1)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 1
    w.logged("timed out with 127.0.0.1")


@pytest.mark.parametrize("verb", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "DOT"])
@pytest.mark.parametrize("answer", [RAW(b"SSH-2.0-OpenSSH\r\n"), RAW(b"250-a\r\n251 b\r\n"), RAW(b"2" * 5000),
                                    RAW(b"250-x\r\n" * 300), RAW(b"250 ok\r\n250 ok\r\n250 ok\r\n"), RAW(b"354 go\r\n354 go\r\n")],
                         ids=["ssh", "two-codes", "long-line", "endless", "too-many", "wrong-turn"])
def test_garbage_ends_the_connection_and_loses_nothing(world, verb, answer):
    w = world(nodes=1)
    peer = w.peer()
    peer.say(verb, answer, times=1)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert peer.bodies()
    # Whoever answers a dot with two 250 has the mail; nobody else got it from a connection that was in disorder.
    assert len(peer.mails) == 1 or verb == "DOT"


@pytest.mark.parametrize("offers", [ALL, ALL + ("CHUNKING",)], ids=["data", "bdat"])
def test_421_is_one_answer_and_the_last_mail(world, offers):
    """What the server says behind it counts, as with smtp(8); the connection is not used again."""
    w = world(nodes=1, destination_concurrency=1)
    peer = w.peer(lmtp=True, offers=offers)
    peer.say("RCPT", "421 4.3.2 going down", match="b@", times=1)
    w.store(peer, "b@example.net", "c@example.net", owners=["mx1"])
    w.empty()
    assert [(m.recipients, m.session) for m in peer.mails] == [(["c@example.net"], 1), (["b@example.net"], 2)]
    assert w.count(r"dsn=4\.3\.2, status=deferred") == 1


def test_each_recipient_has_its_own_result(world):
    w = world(bounce=True)
    peer = w.peer(lmtp=True)
    peer.say("RCPT", "550 5.1.1 unknown", match="unknown@")
    peer.say("DOT", "452 4.2.2 full", match="full@")
    peer.say("DOT", "554 5.6.0 no such thing", match="never@")
    w.store(peer, "good@example.net", "unknown@example.net", "full@example.net", "never@example.net")
    # Two with different reasons: two submissions. What is done is known to every owner.
    eventually("two bounces", lambda: len(w.bounce.mails) == 2)
    for node in ("mx1", "mx2"):
        eventually(f"{node} knows", lambda node=node: {k: v[0] for k, v in w.states(node).items()} == {
            "good@example.net": SENT, "unknown@example.net": BOUNCED, "full@example.net": WAITING, "never@example.net": BOUNCED})
    peer.well()
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == ["full@example.net", "good@example.net"]
    assert len(peer.seen("RCPT TO:<good@")) == 1, "what was sent is not sent again"


@pytest.mark.test
def test_the_rest_is_sent_when_some_recipients_are_refused(world):
    w = world(nodes=1)
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 later", match="b@", times=1)
    w.store(peer, "b@example.net", "c@example.net", owners=["mx1"])
    w.empty()
    assert [m.recipients for m in peer.mails] == [["c@example.net"], ["b@example.net"]]


def test_data_accepted_although_nobody_is_left(world):
    w = world(nodes=1)
    for lmtp in (False, True):
        peer = w.peer(lmtp=lmtp)
        peer.say("RCPT", "450 4.2.0 later", times=1)
        peer.say("DATA", "354 go on", times=1)
        w.store(peer, owners=["mx1"])
        w.empty()
        assert [m.body for m in peer.mails if m.recipients] == [BODY]


def test_waits_double(world):
    w = world(nodes=1, retry_first="100ms", retry_most="10s")
    peer = w.peer()
    times = []
    peer.say("MAIL", lambda session: times.append(time.monotonic()) or "450 4.0.0 no", times=5)
    w.store(peer, owners=["mx1"])
    w.empty()
    waits = [b - a for a, b in zip(times, times[1:])]
    # At least what the schedule says, never less; how much later is the machine's business.
    for n, wait in enumerate(waits):
        assert wait >= 0.75 * 0.1 * 2 ** n - 0.01


def test_an_entry_before_its_time_goes_back(world):
    """A takeover finds entries without their delay: the envelope has it."""
    w = world(nodes=1, retry_first="2s", retry_most="2s")
    peer = w.peer()
    now = time.time_ns() // 1000
    began = time.monotonic()
    w.store(peer, envelope.recipient("b@example.net", attempts=1, code=450, reason="4.0.0 no", last_attempt=now), owners=["mx1"])
    w.empty()
    assert time.monotonic() - began >= 1.4
    w.logged("status=sent .* why=retry")


# -- permanent failures ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
def test_5xx_bounces_with_its_reason(world, verb):
    w = world(bounce=True)
    peer = w.peer()
    peer.say(verb, "550-5.7.1 go\n550 5.7.1 away")
    w.store(peer, envelope.recipient("b@example.net", "NOTIFY=FAILURE ORCPT=rfc822;x@y"), sender_args="RET=HDRS ENVID=abc")
    w.empty()
    assert not peer.mails
    bounce, = w.bounce.mails
    assert (bounce.sender, bounce.recipients) == ("a@example.org", ["b@example.net"])
    first, rest = bounce.body.split(b"\r\n", 1)
    assert re.match(rb"Dovelane-Bounce: 5\.7\.1 host 127\.0\.0\.1\[127\.0\.0\.1\]:\d+ said: 550 .*away \(in reply to [\w ]+\)$", first)
    assert rest == BODY
    assert w.bounce.seen("^MAIL")[0].endswith("ENVID=abc RET=HDRS")
    assert w.bounce.seen("^RCPT")[0].endswith("ORCPT=rfc822;x@y NOTIFY=FAILURE")
    w.logged(r"dsn=5\.7\.1, status=bounced")


def test_recipients_with_one_reason_bounce_together(world):
    w = world(bounce=True)
    peer = w.peer()
    peer.say("MAIL", "553 5.1.8 no such sender")
    w.store(peer, "b@example.net", "c@example.net")
    w.empty()
    assert [m.recipients for m in w.bounce.mails] == [["b@example.net", "c@example.net"]]


def test_what_the_server_cannot_take_bounces(world):
    w = world(bounce=True)
    small, ascii_only = w.peer(offers=("SIZE 20",)), w.peer(offers=("PIPELINING",))
    w.store(small)
    w.store(ascii_only, "b@example.net", sender="\u00f6@example.org", sender_args="SMTPUTF8")
    w.store(ascii_only, "plain@example.net", sender_args="SMTPUTF8")
    w.empty()
    reasons = sorted(m.body.split(b"\r\n")[0].split(b" ", 2)[1] for m in w.bounce.mails)
    assert reasons == [b"5.3.4", b"5.6.7"]
    assert not small.seen("^MAIL") and [m.recipients for m in ascii_only.mails] == [["plain@example.net"]]


@pytest.mark.parametrize("trouble", ["none", "refuses", "away"])
def test_without_a_bounce_the_mail_stays(world, trouble):
    w = world(bounce=trouble != "none")
    peer = w.peer()
    peer.say("RCPT", "550 5.1.1 unknown")
    if trouble == "refuses":
        w.bounce.say("RCPT", "554 5.7.1 no relaying", times=2)
    if trouble == "away":
        w.bounce.down()
    w.store(peer)
    for node in ("mx1", "mx2"):
        eventually(f"{node} knows", lambda node=node: w.states(node)["b@example.net"][0] == FAILED and w.states(node)["b@example.net"][1] > 1)
    assert len(peer.seen("^RCPT")) == 1, "the next hop is not asked again"
    if trouble == "none":
        w.logged("bounce_port is not set", times=2)
        return
    w.logged("the bounce port did not take it")
    if trouble == "away":
        w.bounce.up()
    w.empty()
    assert len(w.bounce.mails) == 1


def test_unreadable_envelopes_stay_where_they_are(world):
    w = world(nodes=1, bounce=True)
    peer = w.peer()
    names = [envelope.entry_id() for _ in range(5)]
    good = envelope.encode(["b@example.net"])
    for name, meta in zip(names, [b"\x01garbage", b"", b"\x02" + good[1:], envelope.encode([]), envelope.encode(["b@x>\r\nDATA"])]):
        w.push("mx1", w.lane(peer, ["mx1"]), (name, meta, BODY))
    w.store(peer, owners=["mx1"])
    eventually("the good one is delivered", lambda: peer.mails)
    for name in names:
        w.logged(rf"error: lane=\S+, id={name.hex()}: the envelope cannot be read")
    # The next hop has the good one before the node has its ack.
    eventually("the five are left", lambda: w.connections["mx1"].call("LANE.LEN", w.lane(peer, ["mx1"])) == 5)


# -- the next hop goes away --------------------------------------------------------------------------------------------------

def test_a_next_hop_that_is_away_costs_one_attempt_and_returns_at_once(world):
    w = world(nodes=1)
    peer = w.peer()
    peer.down()
    for _ in range(50):
        w.store(peer, owners=["mx1"])
    w.logged(r"relay=none, .*status=deferred \(connect to 127\.0\.0\.1\[127\.0\.0\.1\]:\d+: Connection refused\)")
    w.logged("next hop smtp:.* is away")
    assert all(e.revision == 0 for e in w.entries("mx1")), "nobody was tried"
    peer.up()
    w.empty()
    assert len(peer.mails) == 50 and w.count("is away") == 1
    w.logged("next hop smtp:.* is back")
    assert not w.count("why=retry")


def test_a_greeting_that_refuses_is_a_next_hop_that_is_away(world):
    w = world(nodes=1)
    peer = w.peer()
    peer.say("CONNECT", "554 5.3.2 no service", times=2)
    w.store(peer, owners=["mx1"])
    w.empty()
    w.logged(r"refused to talk to me: 554 5\.3\.2 no service")


def test_a_server_that_takes_few_connections(world):
    w = world(nodes=1)
    peer = w.peer()
    peer.say("CONNECT", lambda session: "421 4.7.0 too many" if peer.open > 2 else "220 peer")
    for _ in range(100):
        w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 100 and not w.count("is away")
    assert w.count("takes no more than") < 5


@pytest.mark.parametrize("how", [CLOSE, "421 4.4.2 idle for too long"])
def test_a_kept_connection_that_the_server_closed_is_no_attempt(world, how):
    w = world(nodes=1, destination_concurrency=1)
    peer = w.peer(offers=("PIPELINING",))
    peer.say("MAIL", "250 2.1.0 Ok", times=1)
    peer.say("MAIL", how, times=1)
    w.store(peer, owners=["mx1"])
    eventually("the first", lambda: peer.mails)
    w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 2 and peer.sessions == 2
    assert w.count("why=first") == 2 and not w.count("status=deferred")


def test_a_server_that_speaks_while_idle(world):
    w = world(nodes=1, destination_concurrency=1)
    peer = w.peer()
    peer.say("IDLE", RAW(b"421 4.4.2 idle\r\n"), times=1)
    for _ in range(5):
        w.store(peer, owners=["mx1"])
    w.empty()
    assert len(peer.mails) == 5


def test_a_name_that_cannot_be_resolved(world):
    w = world(nodes=1)
    good = w.peer()
    w.store("smtp:[no-such-host.invalid]:25", owners=["mx1"])
    w.store(good, owners=["mx1"])
    eventually("others go on", lambda: good.mails)
    w.logged(r"status=deferred \(no-such-host\.invalid: ")


def test_a_next_hop_by_name(world):
    w = world(nodes=1)
    peer = w.peer()
    w.store(f"smtp:[localhost]:{peer.port}", owners=["mx1"])
    w.empty()
    w.logged(rf"relay=localhost\[127\.0\.0\.1\]:{peer.port}")
