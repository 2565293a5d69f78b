"""From a lane through the relay into our own Dovecot: the plugin takes the relay's word for which mail it is."""
import os

from support import envelope
import pytest
from support.plugin_world import World as Dovecot
from support.relay_world import BODY, World
from support.stack.delivery_id import guid

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root"),
              pytest.mark.long]


@pytest.fixture
def dovecot():
    fresh = Dovecot("sdbox")
    yield fresh
    wrong = fresh.wrong()
    fresh.end()
    assert not wrong, "\n".join(wrong)


def test_what_two_relays_deliver_is_one_mail_to_the_plugin(stack, tmp_path, dovecot):
    """As after a partition: both owners hold the entry and neither hears of the other."""
    hop = f"lmtp:[127.0.0.1]:{dovecot.lmtp_port}"
    w = World(stack, tmp_path, group_key_file=str(dovecot.key), destinations={hop: {"delivery_id": "yes"}})
    try:
        name = envelope.entry_id()
        for node in ("mx1", "mx2"):
            w.store(hop, "u1@example.org", "u2@example.org", owners=[node], name=name)
        w.empty()
        for user in ("u1@example.org", "u2@example.org"):
            assert dovecot.guids(user) == [guid(name.hex(), BODY, user)] * 2
            text = dovecot.doveadm("fetch", "-u", user, "text", "mailbox", "INBOX")
            assert "Dovelane-Id" not in text and name.hex() not in text
    finally:
        w.end()


def test_bdat_into_dovecot(stack, tmp_path, dovecot):
    """Byte by byte, also what DATA would have to change; and who is refused does not hold up the others."""
    hop = f"lmtp:[127.0.0.1]:{dovecot.lmtp_port}"
    w = World(stack, tmp_path, nodes=1, bounce=True, destination_concurrency=1)
    bodies = [BODY, b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\n", b"Subject: large\r\n\r\n" + b".0123456789\r\n" * 30000]
    try:
        for body in bodies:
            w.store(hop, "u3@example.org", owners=["mx1"], body=body)
        w.store(hop, "u3@example.org", "no-domain-at-all@@", owners=["mx1"])
        w.empty()
        w.store(hop, "nobody-else@@", owners=["mx1"])
        w.empty()
        w.store(hop, "u3@example.org", owners=["mx1"])
        w.empty()
        assert not w.count("lost connection|timed out|out of turn|accepted without")
        # Dovecot puts its Return-Path, Delivered-To and Received before the message.
        got = dovecot.doveadm("fetch", "-u", "u3@example.org", "text", "mailbox", "INBOX").encode().replace(b"\r\n", b"\n")
        for body in bodies:
            assert body.replace(b"\r\n", b"\n") in got
        assert len(dovecot.guids("u3@example.org")) == 5 and len(w.bounce.mails) == 2
    finally:
        w.end()


FORMS = {
    "no line end": b"Subject: x\r\n\r\nx",
    "bare LF": b"Subject: x\r\n\r\na\nb\n",
    "bare CR": b"Subject: x\r\n\r\na\rb\r\r\nc\r\n",
    "dots": b"Subject: x\r\n\r\n.\r\n..\r\n.x\r\n",
    "trace lines": b"Received: from a by b; now\r\nReceived: from c\r\n by d\r\nSubject: x\r\n\r\nx\r\n",
    "large": b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 30000,
    "8 bit": "Subject: x\r\n\r\nä\0ö\r\n".encode(),
    "no header": b"\r\nx\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_line_covers_the_bytes_that_arrive(stack, tmp_path, dovecot, form):
    """Whatever the way changes (a line end, a dot), the plugin hashes what the relay hashed; by DATA and by BDAT."""
    hop, body = f"lmtp:[127.0.0.1]:{dovecot.lmtp_port}", FORMS[form]
    for words in ({}, {"discard_ehlo_keywords": "{ chunking }"}):
        w = World(stack, tmp_path, nodes=1, group_key_file=str(dovecot.key), destinations={hop: {"delivery_id": "yes", **words}})
        try:
            name = envelope.entry_id()
            w.store(hop, "U4@example.org", owners=["mx1"], name=name, body=body)
            w.empty()
        finally:
            w.end()
        assert dovecot.guids("u4@example.org")[-1] == guid(name.hex(), body, "U4@example.org")
