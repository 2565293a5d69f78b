"""The same mails by the milter and by the proxy: the same bytes and the same envelope lie in the lanes, but for the Received line."""
import re

import pytest

from support.stack import Stack, lanes, resp
from support.stack.shape import SinkShape
from support.raw_mail import BODIES, HEADER, Client, Message

SETTINGS = {"max_entry": "40MB", "store_deadline": "20s", "settle": "25s"}
# A client of this very host: by default Postfix would complete its headers (and the proxy leaves such mail to it).
POSTCONF = {"local_header_rewrite_clients": "", "strict_smtputf8": "no"}
# cleanup(8) mends these: the proxy leaves them to it.
MENDED = {"header-blank-before-colon", "header-nul", "no-header-no-empty-line", "no-header-then-one", "bare-cr", "bare-cr-header", "mime-odd"}


@pytest.fixture(scope="module")
def ways():
    with Stack(postfix="divert", sinks=[SinkShape("a")], nodes=1, relays=False, settings=SETTINGS, postconf=POSTCONF) as milter, \
            Stack(postfix="proxy", sinks=[SinkShape("a")], nodes=1, relays=False, settings=SETTINGS, postconf=POSTCONF) as proxy:
        yield milter, proxy


def stored(system, message):
    """(envelope, bytes behind the Received line) of the one entry, which is taken away; None: there is none."""
    address = system.nodes["mx1"]
    client = Client(system.smtp)
    client.send(message, "a.example")
    client.close()
    found = list(lanes.entries("mx1", address))
    with resp.Connection(address) as redis:
        bodies = [entry[6] for name in lanes.names(redis) for entry in redis.call("LANE.READ", name, 1)[1]]
        redis.call("FLUSHALL")
    if not found:
        return None
    assert len(found) == len(bodies) == 1
    received, body = re.fullmatch(rb"(Received: [^\r]*\r\n(?:\t[^\r]*\r\n)+)(.*)", bodies[0], re.S).groups()
    assert received.startswith(b"Received: from client.example (unknown [127.0.0.1])\r\n\tby mx.stack.example (")
    return found[0].envelope, body


@pytest.mark.parametrize("what", BODIES)
def test_the_same_bytes_by_both_ways_in(ways, what):
    milter, proxy = (stored(system, Message(BODIES[what])) for system in ways)
    if what in MENDED:
        assert proxy is None
        return
    assert milter and proxy, "one of them left it to Postfix"
    assert proxy[1] == milter[1]


@pytest.mark.parametrize("mail, rcpt, recipients", [
    ("", "", ["b", "c", "B", "b"]), ("SIZE=400 BODY=8BITMIME", "", ["b"]), ("RET=HDRS ENVID=a+2Bb", "NOTIFY=FAILURE ORCPT=rfc822;x+2B@y", ["b"]),
    ("SMTPUTF8", "", ["b", "\u00e4"]), ("", "NOTIFY=NEVER", ["b+c", "B.c"]),
])
def test_the_same_envelope_by_both_ways_in(ways, mail, rcpt, recipients):
    message = Message(HEADER + b"Content-Transfer-Encoding: 8bit\r\n\r\ngr\xc3\xbc\xc3\x9fe\r\n", mail=mail, rcpt=rcpt, recipients=recipients)
    milter, proxy = (stored(system, message)[0] for system in ways)
    for entry in (milter, proxy):
        for name in ("queue_id", "arrived", "client_port", "size"):
            entry.pop(name)
    assert proxy == milter
