"""The same mail through stock Postfix and through Dovelane arrives with the same bytes: docs/byte-identity.md.

One Postfix has two ways in. At one a milter that changes nothing reads the mail, and smtp(8) or lmtp(8) delivers it from the queue; at the
other dovelane-milter takes it, and dovelane-relay delivers it. Both go to the same port, which keeps every byte.
"""
import base64
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.scripted_hops import EXTENSIONS, Farm
from support.stack import Stack, pymilter
from support.raw_mail import BODIES, HEADER, Client, Message, attachment

pytestmark = pytest.mark.long

ONE_BY_ONE = {"default_destination_concurrency_limit": "1", "lmtp_destination_concurrency_limit": "1", "smtp_destination_concurrency_limit": "1",
              "smtp_send_xforward_command": "yes", "lmtp_send_xforward_command": "yes", "strict_smtputf8": "no"}
SETTINGS = {"destination_concurrency": "1", "max_entry": "40MB", "store_deadline": "20s", "settle": "25s", "copies": "1"}


# -- the client ----------------------------------------------------------------------------------------------------------------


# -- the two ways --------------------------------------------------------------------------------------------------------------

class Ways:
    def __init__(self, more=(), settings=(), postconf=()):
        """more: {domain: destination} of other next hops, or a function that makes it of the hops.
        settings, postconf: more lines of dovelane.conf and main.cf."""
        self.farm = Farm()
        self.milter = pymilter.Server(("127.0.0.1", 0), pymilter.Reader)
        threading.Thread(target=self.milter.serve_forever, daemon=True).start()
        self.hops = {}
        for protocol in ("smtp", "lmtp"):
            self.hops[protocol] = self.farm.hop(lmtp=protocol == "lmtp", offers=[word for word in EXTENSIONS if word != "CHUNKING"])
            self.hops[protocol + "-chunking"] = self.farm.hop(lmtp=protocol == "lmtp")
            self.hops[protocol + "-bare"] = self.farm.hop(lmtp=protocol == "lmtp", offers=["PIPELINING"])
            self.hops[protocol + "-send"] = self.farm.hop(lmtp=protocol == "lmtp", offers=["PIPELINING"])
        maps = {f"{name}.example": hop.destination for name, hop in self.hops.items()} | dict(more(self.hops) if callable(more) else more)
        settings = dict(SETTINGS, **dict(settings), destinations={self.hops[name].destination: {"without_8bitmime": "send"} for name in ("smtp-send", "lmtp-send")})
        self.system = Stack(postfix="divert", nodes=1, maps=maps, settings=settings, postconf=ONE_BY_ONE | dict(postconf)).up()
        self.add_stock_port()
        self.wait_able()

    def add_stock_port(self):
        note = self.system["postfix"].note
        self.stock = f"127.0.0.1:{self.system.ports.take()}"
        master = Path(note["config_directory"]) / "master.cf"
        text = master.read_text() + f"{self.stock} inet n - n - - smtpd\n    -o smtpd_milters=inet:127.0.0.1:{self.milter.server_address[1]}\n"
        master.write_text(text)
        os.utime(master, (time.time() - 60,) * 2)
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True)
        eventually("the second way in", lambda: self.connects(self.stock))

    @staticmethod
    def connects(address):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def wait_able(self):
        """The milter looks at Postfix's new configuration first."""
        eventually("the milter diverts", lambda: self.through(self.system.smtp, Message(), "lmtp") and "action=lane" in self.milter_line())
        for hop in self.hops.values():
            hop.mails.clear()

    def milter_line(self):
        """What the milter said about the last mail."""
        lines = Path(self.system["milter"].log).read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if f" {self.queue_id}: " in line), "")

    def through(self, address, message, name, most=90):
        """The transactions that the hop saw for it, and waits for them."""
        hop = self.hops[name]
        before = len(hop.mails)
        client = Client(address)
        self.queue_id = client.send(message, f"{name}.example")
        client.close()
        wanted = len({each.lower() for each in message.recipients})
        eventually(f"{self.queue_id} arrives", lambda: sum(len(mail.kept) for mail in hop.mails[before:]) >= wanted, most)
        return hop.mails[before:]

    def both(self, message, name):
        stock = self.through(self.stock, message, name)
        ours = self.through(self.system.smtp, message, name)
        return stock, ours

    def end(self):
        self.system.down()
        self.farm.end()
        self.milter.shutdown()
        self.milter.server_close()


def eventually(what, condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def ways():
    made = Ways()
    yield made
    made.end()


# -- comparing -----------------------------------------------------------------------------------------------------------------

RECEIVED = re.compile(rb"\AReceived: from [^\r]+\r\n\tby mx\.stack\.example \((?:Postfix|Dovelane)\) with (?P<with>\w+) id (?P<id>\w+)"
                      rb"(?:\r\n\tfor <[^>]+>; |;\r\n\t)\w{3}, [ \d]\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000 \(UTC\)\r\n")
# What Postfix's cleanup makes up for a local client's mail that lacks it; the two mails are not one mail.
MADE_UP = [(re.compile(rb"^((?:Resent-)?Message-Id: <)\w+(@mx\.stack\.example>)\r$", re.M), rb"\1X\2\r"),
           (re.compile(rb"^((?:Resent-)?Date:) \w{3}, [ \d]\d \w{3} 20(?!24)\d\d \d\d:\d\d:\d\d \+0000 \(UTC\)\r$", re.M), rb"\1 X\r")]


def received(wire):
    """The Received line without its queue id, its date, and the name of who wrote it."""
    line = RECEIVED.match(wire)[0].replace(b"(Dovelane)", b"(Postfix)")
    return re.sub(rb"( id )\w+|\w{3}, [^,]*\r\n\Z", rb"\1", line)


def without_received(wire):
    """The wire's bytes behind the first line, which must be the Received line of whoever delivered it."""
    found = RECEIVED.match(wire)
    assert found, wire[:400]
    rest = wire[found.end():]
    head, empty, body = rest.partition(b"\r\n\r\n")
    head += b"\r\n"
    for pattern, replacement in MADE_UP:
        head = pattern.sub(replacement, head)
    return head[:-2] + empty + body


def envelope_of(mail):
    """The commands with a size of X, recipients sorted as qmgr(8) sorts them."""
    lines = [re.sub(r" SIZE=\d+", " SIZE=X", line) for line in mail.commands]
    return lines[:1] + sorted(lines[1:-1]) + lines[-1:]


def same(stock, ours):
    """One transaction of each; equal on the wire."""
    (stock,), (ours,) = stock, ours
    assert received(ours.wire) == received(stock.wire)
    if ours.chunked:
        assert without_received(ours.body) == without_received(stock.body)
        assert envelope_of(ours)[:-1] == envelope_of(stock)[:-1]
    else:
        assert without_received(ours.wire) == without_received(stock.wire)
        assert envelope_of(ours) == envelope_of(stock)
    size = re.search(r" SIZE=(\d+)", ours.commands[0])
    assert not size or int(size[1]) == len(ours.body)
    return ours


def diverted(ways, message, name="smtp"):
    stock, ours = ways.both(message, name)
    assert "action=lane" in ways.milter_line(), ways.milter_line()
    return same(stock, ours)


def queued(ways, message, reason, name="smtp"):
    """Such a mail is left to Postfix, and so arrives as Postfix sends it."""
    stock, ours = ways.both(message, name)
    assert f"action=queue reason={reason}" in ways.milter_line(), ways.milter_line()
    assert without_received(ours[0].wire) == without_received(stock[0].wire) and envelope_of(ours[0]) == envelope_of(stock[0])


# -- the corpus ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["smtp", "lmtp"])
@pytest.mark.parametrize("what", BODIES)
def test_every_message_arrives_as_postfix_sends_it(ways, what, name):
    diverted(ways, Message(BODIES[what]), name)


def test_a_mail_of_25_MB(ways):
    diverted(ways, Message(attachment(25_000_000)))


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("what", ["plain", "8-bit", "dots", "bare-cr", "nul", "bare-lf", "no-header", "body-empty-line", "header-folded-empty", "attachment-5MB"])
def test_mail_that_came_in_chunks(ways, what, chunks):
    diverted(ways, Message(BODIES[what], chunks=chunks))


@pytest.mark.parametrize("name", ["smtp-chunking", "lmtp-chunking"])
@pytest.mark.parametrize("what", ["plain", "8-bit", "dot-first", "dots", "dots-many", "bare-cr", "nul", "no-header", "body-empty-line", "mime-nest", "attachment-5MB"])
def test_a_next_hop_that_takes_chunks_gets_the_same_message(ways, what, name):
    """smtp(8) does not send BDAT; what it sends with dots and we without is the same message."""
    diverted(ways, Message(BODIES[what]), name)


# -- the envelope --------------------------------------------------------------------------------------------------------------

ENVELOPES = {
    "null-sender": Message(sender=""),
    "size": Message(mail="SIZE=5"),
    "8bitmime": Message(BODIES["8-bit"], mail="BODY=8BITMIME"),
    "7bit": Message(mail="BODY=7BIT"),
    "lower-case": Message(mail="body=8bitmime ret=hdrs envid=abc", rcpt="notify=never orcpt=rfc822;a@b"),
    "ret-envid": Message(mail="RET=FULL ENVID=QQ314159"),
    "xtext": Message(mail="RET=HDRS ENVID=a+2Bb+3Dc+20d", rcpt="ORCPT=rfc822;Bob+40x+2By@example.com"),
    "xtext-needless": Message(mail="ENVID=+41+42", rcpt="ORCPT=rfc822;+41@b"),
    "orcpt-type": Message(rcpt="ORCPT=x400;/g+3Db"),
    "notify-never": Message(rcpt="NOTIFY=NEVER"),
    "notify-failure": Message(rcpt="NOTIFY=FAILURE ORCPT=rfc822;q@b"),
    "all": Message(mail="SIZE=100 BODY=8BITMIME RET=HDRS ENVID=x", rcpt="NOTIFY=NEVER ORCPT=rfc822;q@b"),
    "recipients": Message(recipients=["c", "a", "b", "z.9", "with+tag", "under_score", "UPPER", "q=r", "a'b"]),
    "recipient-twice": Message(recipients=["a", "b", "a", "A"]),
    "recipient-percent": Message(recipients=["c%d.example"]),
    "recipient-quoted": Message(recipients=['"b c"', '"d(e"', '"f\\\\g"']),
    "sender-odd": Message(sender="bounces+a=b.example@x.example"),
    "utf8-asked": Message(mail="SMTPUTF8"),
    "utf8-header": Message(HEADER + "X-Name: größe\r\n\r\nx\r\n".encode(), mail="SMTPUTF8 BODY=8BITMIME"),
    "utf8-recipient": Message(mail="SMTPUTF8 BODY=8BITMIME", recipients=["grün"]),
    "utf8-sender": Message(mail="SMTPUTF8", sender="grün@x.example"),
    "utf8-orcpt": Message(mail="SMTPUTF8", rcpt="ORCPT=utf-8;gr\\x{F6}\\x{DF}e@b"),
    "utf8-not-asked": Message(HEADER + "X-Name: größe\r\n\r\nx\r\n".encode()),
}


@pytest.mark.parametrize("name", ["smtp", "lmtp", "smtp-chunking"])
@pytest.mark.parametrize("what", ENVELOPES)
def test_every_envelope_arrives_as_postfix_sends_it(ways, what, name):
    diverted(ways, ENVELOPES[what], name)


@pytest.mark.parametrize("what", ["8bitmime", "ret-envid", "notify-never", "recipients", "utf8-asked"])
def test_a_next_hop_without_extensions(ways, what):
    message = ENVELOPES[what] if what != "8bitmime" else Message(mail="BODY=8BITMIME")
    diverted(ways, message, "smtp-bare")
    diverted(ways, message, "lmtp-bare")


def test_what_is_forwarded_about_the_client(ways):
    stock, ours = ways.both(Message(), "smtp")
    for each in (stock[0].forwarded, ours[0].forwarded):
        assert each.pop("PORT").isdigit() and len(each.pop("IDENT")) > 8
    # Postfix says nothing about what it does not know.
    assert ours[0].forwarded.pop("NAME") == "[UNAVAILABLE]"
    assert ours[0].forwarded == stock[0].forwarded


def test_mails_of_a_destination_keep_their_order(ways):
    """Stock Postfix gets them one by one: its queue manager promises no order."""
    wanted = [HEADER + b"X-Number: %d\r\n\r\n%s\r\n" % (n, b"x\r\n" * (n * 7919 % 7000)) for n in range(40)]
    hop = ways.hops["smtp"]
    for raw in wanted[:10]:
        ways.through(ways.stock, Message(raw), "smtp")
    before = len(hop.mails)
    client = Client(ways.system.smtp)
    for raw in wanted:
        ways.queue_id = client.send(Message(raw), "smtp.example")
        assert "action=lane" in ways.milter_line(), ways.milter_line()
    client.close()
    eventually("all arrive", lambda: len(hop.mails) >= before + len(wanted))
    numbers = [int(re.search(rb"X-Number: (\d+)", mail.wire)[1]) for mail in hop.mails[before - 10:]]
    assert numbers == [*range(10), *range(40)]


# -- DKIM ----------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def key():
    private = subprocess.run(["openssl", "genrsa", "-traditional", "2048"], check=True, capture_output=True).stdout
    public = subprocess.run(["openssl", "rsa", "-pubout", "-outform", "DER"], input=private, check=True, capture_output=True).stdout
    return private, b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)


def verifies(message, record):
    import dkim
    return dkim.verify(message, dnsfunc=lambda name, timeout=5: record)


SIGNED = ["plain", "8-bit", "8-bit-header", "dot-first", "dots", "dots-many", "control", "line-998", "body-empty-line", "body-one-empty-line", "body-blank-lines",
          "body-trailing-blanks", "header-60kB", "header-line-900", "header-folded", "header-folded-first", "header-spaces", "header-twice",
          "header-odd-names", "header-received", "header-status", "mime-nest", "mime-binary-part", "attachment-5MB"]


@pytest.mark.parametrize("form", ["simple/simple", "relaxed/relaxed", "relaxed/simple", "simple/relaxed"])
@pytest.mark.parametrize("what", SIGNED)
def test_dkim_signatures_verify_behind_us(ways, key, what, form):
    import dkim
    head, body = (word.encode() for word in form.split("/"))
    raw = BODIES[what]
    if what == "attachment-5MB" and form != "simple/simple":
        pytest.skip("one form of the large one")
    names = sorted({line.split(b":")[0].lower() for line in raw.partition(b"\r\n\r\n")[0].split(b"\r\n") if re.match(rb"[^ \t:]+:", line)} - {b"received"})
    signature = dkim.sign(raw, b"sel", b"x.example", key[0], canonicalize=(head, body), include_headers=names)
    signed = signature + raw
    assert verifies(signed, key[1]), "the test's own signature"
    ours = ways.through(ways.system.smtp, Message(signed), "smtp")
    assert "action=lane" in ways.milter_line()
    assert verifies(ours[0].body, key[1])


# -- the listed cases ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["smtp", "lmtp"])
@pytest.mark.parametrize("raw", [HEADER + b"\r\n" + b"x" * 999 + b"\r\ny\r\n", HEADER + b"\r\n" + b"y" * 2045 + b"\r\n", HEADER + b"\r\n" + b"z" * 10000 + b"\r\n",
                                 HEADER + b"\r\n" + b"." * 4100 + b"\r\n", HEADER + b"X-Long: " + b"v" * 3000 + b"\r\n\r\nx\r\n",
                                 HEADER + b"\r\n" + b"x" * 998 + b"\xe4\r\n"], ids=["999", "2045", "10000", "dots", "header", "8-bit"])
def test_long_lines_are_left_to_postfix_which_folds_them(ways, raw, name):
    queued(ways, Message(raw), "long-line", name)


@pytest.mark.parametrize("address", ["@a.example:b@smtp.example", "b@smtp.example.", '"b"@smtp.example', '"b\\ c"@smtp.example', "größe@smtp.example"])
def test_addresses_that_postfix_rewrites_are_left_to_it(ways, address):
    queued(ways, Message(recipients=[address], mail="" if address.isascii() else "SMTPUTF8"), "rewritten")


def test_the_protocol_of_a_client_without_esmtp(ways):
    """Postfix tells a milter no protocol: a client that said HELO is taken for one that said EHLO."""
    (stock,), (ours,) = ways.both(Message(hello="HELO client.example"), "smtp")
    assert b" with SMTP id " in RECEIVED.match(stock.wire)[0] and b" with ESMTP id " in RECEIVED.match(ours.wire)[0]
    assert without_received(ours.wire) == without_received(stock.wire)


@pytest.mark.parametrize("raw, theirs, made", [
    (HEADER, b"Subject: x\r\n.\r\n", b"Subject: x\r\n\r\n.\r\n"),
], ids=["no-empty-line"])
def test_what_the_milter_protocol_loses(ways, raw, theirs, made):
    """The difference is this one and no other."""
    (stock,), (ours,) = ways.both(Message(raw), "smtp")
    assert "action=lane" in ways.milter_line()
    assert theirs in stock.wire and made in ours.wire
    assert without_received(ours.wire) == without_received(stock.wire.replace(theirs, made))


def test_a_header_that_a_milter_cannot_be_sent_is_cut_for_both(ways):
    diverted(ways, Message(HEADER + b"References:" + b"".join(b"\r\n <%06d@x.example>" % n for n in range(4000)) + b"\r\nX-B: y\r\n\r\nx\r\n"))


def test_the_size_that_is_announced(ways):
    """Ours is the message's; Postfix announces the bytes of the queue file's records."""
    (stock,), (ours,) = ways.both(Message(BODIES["dots-many"]), "smtp")
    size = {name: int(re.search(r" SIZE=(\d+)", mail.commands[0])[1]) for name, mail in (("stock", stock), ("ours", ours))}
    assert size["ours"] == len(ours.body) and size["stock"] != len(stock.body)


def test_recipients_keep_the_order_in_which_they_were_given(ways):
    (stock,), (ours,) = ways.both(Message(recipients=["c", "a", "b"]), "smtp")
    assert [line.split("@")[0] for line in ours.commands[1:-1]] == ["RCPT TO:<c", "RCPT TO:<a", "RCPT TO:<b"]
    assert [line.split("@")[0] for line in stock.commands[1:-1]] == ["RCPT TO:<a", "RCPT TO:<b", "RCPT TO:<c"]


def test_a_transaction_has_more_recipients(ways):
    """RFC 5321 has every server take 100; Postfix stops at 50 (default_destination_recipient_limit)."""
    people = [f"u{n}" for n in range(120)]
    stock, ours = ways.both(Message(recipients=people), "smtp")
    assert [len(mail.kept) for mail in ours] == [100, 20] and max(len(mail.kept) for mail in stock) == 50
    assert sorted(sum((mail.kept for mail in ours), [])) == sorted(sum((mail.kept for mail in stock), []))
    assert {without_received(mail.wire) for mail in ours} == {without_received(mail.wire) for mail in stock}


EIGHT = HEADER + b"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\ngr\xc3\xbc\xc3\x9fe\r\n"


@pytest.mark.parametrize("name", ["smtp-bare", "lmtp-bare"])
def test_8_bit_mail_for_a_server_that_does_not_take_it_is_recoded_by_postfix(ways, name):
    """Through the re-injection port, whose Received line it carries on top of ours."""
    (stock,), (ours,) = ways.both(Message(EIGHT, mail="BODY=8BITMIME"), name)
    assert "action=lane" in ways.milter_line()
    assert b"gr=C3=BC" in stock.wire
    assert without_received(without_received(ours.wire)) == without_received(stock.wire)


@pytest.mark.parametrize("name", ["smtp-send", "lmtp-send"])
def test_8_bit_mail_that_is_sent_although_the_server_does_not_say_that_it_takes_it(ways, name):
    """without_8bitmime = send. smtp(8) makes quoted-printable of it, which no signature survives."""
    (stock,), (ours,) = ways.both(Message(EIGHT, mail="BODY=8BITMIME"), name)
    assert b"gr=C3=BC" in stock.wire and ours.body.endswith(EIGHT)
    assert "BODY" not in ours.commands[0] and "BODY" not in stock.commands[0]
