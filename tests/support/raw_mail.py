"""Mails that must arrive with the same bytes, and a client that puts them on the wire as they are."""
import base64
import os
import re
import socket
from dataclasses import dataclass, field

HEADER = b"From: s@x.example\r\nTo: b@example.net\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\nMessage-ID: <m@x.example>\r\nSubject: x\r\n"
PLAIN = HEADER + b"\r\nhello\r\n"


@dataclass
class Message:
    """What a client says. `raw` is put on the wire as it is, but for its dots."""
    raw: bytes = PLAIN
    sender: str = "s@x.example"
    mail: str = ""
    recipients: list = field(default_factory=lambda: ["b"])
    rcpt: str = ""
    chunks: int = 0         # by BDAT, in so many chunks
    hello: str = "EHLO client.example"


class Client:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.answer()

    def answer(self):
        while True:
            line = self.file.readline()
            assert line, "Postfix closed the connection"
            if line[3:4] != b"-":
                return line.decode(errors="replace").rstrip()

    def say(self, line, expect="2"):
        self.socket.sendall(line if isinstance(line, bytes) else line.encode() + b"\r\n")
        said = self.answer()
        assert said.startswith(expect), (line[:200], said)
        return said

    def send(self, message, domain):
        """Postfix's queue id."""
        self.say(message.hello)
        self.say(" ".join(filter(None, [f"MAIL FROM:<{message.sender}>", message.mail])))
        for each in message.recipients:
            self.say(" ".join(filter(None, [f"RCPT TO:<{each if '@' in each else each + '@' + domain}>", message.rcpt])))
        if message.chunks:
            size = len(message.raw) // message.chunks + 1
            pieces = [message.raw[at:at + size] for at in range(0, len(message.raw), size)] or [b""]
            for piece in pieces[:-1]:
                self.say(f"BDAT {len(piece)}\r\n".encode() + piece)
            said = self.say(f"BDAT {len(pieces[-1])} LAST\r\n".encode() + pieces[-1])
        else:
            self.say("DATA", "3")
            said = self.say(re.sub(rb"(?m)^\.", b"..", message.raw) + b".\r\n")
        return re.search(r"queued as (\S+)", said)[1]

    def close(self):
        self.say("QUIT")
        self.file.close()
        self.socket.close()


def attachment(size):
    boundary = b"=_b"
    lines = base64.encodebytes(os.urandom(size * 3 // 4 // 77 * 76)).replace(b"\n", b"\r\n")
    return (HEADER + b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"" + boundary + b"\"\r\n\r\npreamble\r\n--" + boundary
            + b"\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\ngr\xc3\xbc\xc3\x9fe\r\n--" + boundary
            + b"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n" + lines + b"\r\n--" + boundary + b"--\r\n")


def nest(depth):
    inner = HEADER + b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n.inner\r\n"
    for n in range(depth):
        b = b"nest%d" % n
        kind = b"message/rfc822" if n % 2 else b"text/plain"
        inner = (HEADER + b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed;\r\n\tboundary=\"" + b + b"\"\r\n\r\n--" + b + b"\r\nContent-Type: "
                 + kind + b"\r\n\r\n" + inner + b"\r\n--" + b + b"--\r\nepilogue %d\r\n" % n)
    return inner


def long_headers(size):
    lines = [b"X-Long-%04d: %s\r\n" % (n, b"v" * 60) for n in range(size // 74)]
    return HEADER + b"".join(lines) + b"\r\nbody\r\n"


BODIES = {
    "plain": PLAIN,
    "8-bit": HEADER + b"\r\n" + bytes(range(128, 256)) + b"\r\n\xff\xfe\r\n",
    "8-bit-header": HEADER + b"X-Name: \xe4\xf6\xfc \xc3\xa4\r\n\r\nx\r\n",
    "dot-first": HEADER + b"\r\n.\r\n",
    "dots": HEADER + b"\r\n.\r\n..\r\n...\r\n.x\r\n..x\r\nx.\r\n\r\n.\r\n\r\n",
    "dot-in-header": b".Subject: x\r\n\r\nx\r\n",
    "dots-many": HEADER + b"\r\n" + b".\r\n" * 50000,
    "bare-cr": HEADER + b"\r\na\rb\r\r\nc\r\n\rd\r\n\r\r\n",
    "bare-cr-header": HEADER + b"X-A: a\rb\r\nX-B: c\r\r\n\r\nx\r\n",
    "bare-lf": HEADER + b"\r\na\nb\n\nc\r\n\n",
    "bare-lf-header": HEADER + b"X-A: a\nX-B: b\r\n\r\nx\r\n",
    "bare-lf-ends-header": HEADER + b"\nbody\r\n",
    "nul": HEADER + b"\r\na\x00b\x00\r\n\x00\r\n",
    "control": HEADER + b"\r\n" + bytes(c for c in range(1, 32) if c not in (10, 13)) + b"\x7f\r\n",
    "line-998": HEADER + b"\r\n" + b"x" * 998 + b"\r\ny\r\n",
    "line-998-dot": HEADER + b"\r\n." + b"x" * 997 + b"\r\ny\r\n",
    "line-998-8bit": HEADER + b"\r\n" + b"\xe4" * 998 + b"\r\n",
    "body-empty-line": HEADER + b"\r\n",
    "body-one-empty-line": HEADER + b"\r\n\r\n",
    "body-blank-lines": HEADER + b"\r\n\r\n\r\n\r\n",
    "body-trailing-blanks": HEADER + b"\r\nx  \r\n\t\r\n \r\n",
    "header-60kB": long_headers(58000),
    "header-line-900": HEADER + b"X-Long: " + b"v" * 900 + b"\r\n\r\nx\r\n",
    "header-folded": HEADER + b"X-A: one\r\n two\r\n\tthree\r\n  \tfour  \r\n \r\n\r\nx\r\n",
    "header-folded-first": HEADER + b"X-A:\r\n one\r\nX-B: \r\n\t two\r\n\r\nx\r\n",
    "header-folded-empty": HEADER + b"X-A: one\r\n \r\n\t\r\n two\r\n\r\nx\r\n",
    "header-folded-many": HEADER + b"References:" + b"".join(b"\r\n <%d@x.example>" % n for n in range(500)) + b"\r\n\r\nx\r\n",
    "header-spaces": HEADER + b"X-A:none\r\nX-B:   three\r\nX-C:\ttab\r\nX-D: \r\nX-E:\r\nX-F: trailing \t \r\nX-G:\t\r\n\r\nx\r\n",
    "header-blank-before-colon": HEADER + b"X-A : x\r\nX-B\t: y\r\nX-C \t :z\r\n\r\nx\r\n",
    "header-nul": HEADER + b"X-A: a\0b\r\nX-B: y\r\n\r\nx\r\n",
    "header-control": HEADER + b"X-A: a\x01b\x7f\r\nX-B: \x0b\x0c\r\n\r\nx\r\n",
    "header-twice": HEADER + b"Subject: again\r\nsubject: AGAIN\r\nX-A: 1\r\nX-A: 2\r\n\r\nx\r\n",
    "header-odd-names": HEADER + b"X_y!#$%&'*+-./=?^`{|}~9: x\r\nx: y\r\n\r\nx\r\n",
    "header-removed-by-cleanup": HEADER + b"Bcc: z@x.example\r\nReturn-Path: <z@x.example>\r\nContent-Length: 5\r\nResent-Bcc: z@x.example\r\n\r\nx\r\n",
    "header-mbox": b"From s@x.example Mon Jan  1 00:00:00 2024\r\n" + PLAIN,
    "header-received": b"Received: from a by b; Mon, 1 Jan 2024 00:00:00 +0000\r\n" * 20 + PLAIN,
    "header-status": HEADER + b"Status: RO\r\nX-Status: A\r\nDelivered-To: q@x.example\r\n\r\nx\r\n",
    "no-header": b"\r\nbody alone\r\n",
    "no-header-no-empty-line": b"this is no header\r\nX: y\r\n\r\nbody\r\n",
    "no-header-then-one": HEADER + b"this ends the header\r\nX-A: b\r\n\r\nx\r\n",
    "missing-headers": b"Subject: no date, no id, no from\r\n\r\nx\r\n",
    "mime-nest": nest(12),
    "mime-binary-part": HEADER + b"MIME-Version: 1.0\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n\x80\x81\r\n",
    "mime-odd": HEADER + b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type : text/plain\r\n\r\na\r\n--x-\r\n--x--y\r\n--x--\r\n",
    "attachment-5MB": attachment(5_000_000),
}
