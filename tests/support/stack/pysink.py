#!/usr/bin/python3
"""A next hop that keeps no mail but remembers who got what, and fails on command.

Speaks SMTP or LMTP with PIPELINING, 8BITMIME, SMTPUTF8 and XFORWARD. For every recipient it answers 250 for, one line goes to
the journal *before* the answer goes out, as a mailbox is written before the reply: the line may exist without the reply (then a
second delivery is right), never the other way round. The journal is appended to with one write(2) per mail, so SIGKILL loses
nothing of it.

    time (ns) TAB kind TAB id TAB recipient TAB note

Kinds: `mail`; `damaged` (arrived, but the body's checksum is not the one in its header); `dsn` (id and recipient are those of
the returned mail, the note is its status and reason); `other` (no id).

Rules make it fail. A rule is an object, the first that fits is used:

    at      connect, ehlo, mail, rcpt, data or dot
    match   a regular expression that must be found in the address (mail: sender; rcpt, dot: recipient), optional
    reply   "450 4.2.0 not now"; without it the normal reply
    delay   seconds before the reply
    do      close (end the connection instead of replying), reset (with RST), hang (never reply)
    store   at dot, with close, reset or hang: the mail counts as received although nobody is told
    times   how often; then the rule is spent
    chance  0 to 1

In LMTP, `dot` rules are looked at per recipient. Control socket, one JSON object per line: {"do": "rules", "rules": [...]},
{"do": "down"} (stops listening, resets connections), {"do": "up"}, {"do": "counters"}.
"""
import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import time
import zlib

ID = re.compile(rb"^X-Oracle-Id:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
SUM = re.compile(rb"^X-Oracle-Sum:[ \t]*([0-9a-f]{8})", re.IGNORECASE | re.MULTILINE)
FINAL = re.compile(rb"^Final-Recipient:[ \t]*rfc822;[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
STATUS = re.compile(rb"^Status:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
ACTION = re.compile(rb"^Action:[ \t]*failed", re.IGNORECASE | re.MULTILINE)
REASON = re.compile(rb"^Diagnostic-Code:[ \t]*(.*(?:\r?\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE)
DSN = re.compile(rb"^Content-Type:[ \t]*multipart/report", re.IGNORECASE | re.MULTILINE)
ADDRESS = re.compile(rb"[^:]*:[ \t]*<([^>]*)>")
MAXIMUM_LINE = 8192


class Rule:
    """One scripted fault."""

    def __init__(self, words):
        unknown = set(words) - {"at", "match", "reply", "delay", "do", "store", "times", "chance"}
        if unknown:
            raise ValueError(f"rule: unknown {', '.join(sorted(unknown))}")
        self.at = words["at"]
        self.match = re.compile(words["match"]) if words.get("match") else None
        self.reply = words.get("reply")
        self.delay = float(words.get("delay", 0))
        self.do = words.get("do")
        self.store = bool(words.get("store"))
        self.left = words.get("times")
        self.chance = words.get("chance")

    def fits(self, at, address):
        if self.at != at or self.left == 0:
            return False
        if self.match and not self.match.search(address):
            return False
        if self.chance is not None and random.random() >= self.chance:
            return False
        if self.left is not None:
            self.left -= 1
        return True


class Sink:
    """What all connections share: rules, journal, counters, the listener."""

    def __init__(self, arguments):
        self.lmtp = arguments.protocol == "lmtp"
        self.name = arguments.name
        host, _, port = arguments.listen.rpartition(":")
        self.host, self.port = host, int(port)
        self.journal = os.open(arguments.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.rules = []
        self.connections = set()
        self.counters = {"connections": 0, "mails": 0, "recipients": 0, "refused": 0, "bytes": 0}
        self.listener = None

    def rule(self, at, address=""):
        for rule in self.rules:
            if rule.fits(at, address):
                return rule
        return None

    async def up(self):
        if self.listener is None:
            self.listener = await asyncio.get_running_loop().create_server(
                lambda: Session(self), self.host, self.port, backlog=1024, reuse_address=True)

    async def down(self):
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for session in list(self.connections):
            session.reset()

    def remember(self, recipients, data):
        """Writes who got it. data: the message as received, still dot-stuffed."""
        end = data.find(b"\r\n\r\n")
        head = bytes(data[:end + 2] if end >= 0 else data)
        now = time.time_ns()
        found = ID.search(head)
        if found is None:
            lines = self.returned(now, head, bytes(data)) or [f"{now}\tother\t-\t{name}\t" for name in recipients]
        else:
            wanted = SUM.search(head)
            body = bytes(data[end + 4:]) if end >= 0 else b""
            if body.startswith(b"..") or b"\n.." in body:
                body = re.sub(rb"(?m)^\.\.", b".", body)
            whole = wanted is None or int(wanted[1], 16) == zlib.crc32(body)
            kind = "mail" if whole else "damaged"
            name = found[1].decode(errors="replace")
            lines = [f"{now}\t{kind}\t{name}\t{recipient}\t" for recipient in recipients]
        os.write(self.journal, ("\n".join(lines) + "\n").encode(errors="replace"))
        self.counters["mails"] += 1
        self.counters["recipients"] += len(recipients)
        self.counters["bytes"] += len(data)

    @staticmethod
    def returned(now, head, data):
        """Journal lines for a non-delivery notice: which recipients of which mail came back."""
        if not DSN.search(head):
            return []
        found = ID.search(data[len(head):])
        name = found[1].decode(errors="replace") if found else "-"
        lines = []
        for block in re.split(rb"\r?\n\r?\n", data):
            final = FINAL.search(block)
            if final is None or not ACTION.search(block):
                continue
            status, reason = STATUS.search(block), REASON.search(block)
            note = " ".join(((status[1] if status else b"") + b" " + (reason[1] if reason else b"")).decode(errors="replace").split())
            lines.append(f"{now}\tdsn\t{name}\t{final[1].decode(errors='replace')}\t{note}")
        return lines


class Session(asyncio.Protocol):
    """One connection. Commands are taken from the buffer one by one; a delayed reply holds the ones behind it back."""

    def __init__(self, sink):
        self.sink = sink
        self.buffer = bytearray()
        self.out = []
        self.late = []  # replies behind a delayed one
        self.transport = None
        self.waiting = False
        self.in_data = False
        self.searched = 0
        self.sender = None
        self.recipients = []

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sink.connections.add(self)
        self.sink.counters["connections"] += 1
        self.answer("connect", "", f"220 {self.sink.name} {'LMTP' if self.sink.lmtp else 'ESMTP'} sink")
        self.flush()

    def connection_lost(self, _):
        self.sink.connections.discard(self)

    def reset(self):
        """Ends with RST."""
        if not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def data_received(self, data):
        self.buffer += data
        self.work()

    def work(self):
        while not self.waiting and not self.transport.is_closing():
            if not (self.take_message() if self.in_data else self.take_command()):
                break
        self.flush()

    def flush(self):
        if self.out and not self.transport.is_closing():
            self.transport.write(("\r\n".join(self.out) + "\r\n").encode())
        self.out.clear()

    # -- replies ---------------------------------------------------------------------------------------------------------

    def answer(self, at, address, normal):
        """Gives the normal reply, or does what a rule says. True when the normal or a 2xx/3xx reply was given."""
        rule = self.sink.rule(at, address)
        if rule is None:
            self.out.append(normal)
            return True
        if rule.do:
            self.break_off(rule)
            return False
        reply = rule.reply or normal
        self.out.append(reply)
        if rule.delay:
            self.wait(rule.delay)
        if reply[0] in "45":
            self.sink.counters["refused"] += 1
        if reply.startswith("421"):
            self.flush()
            self.transport.close()
        return reply[0] in "23"

    def say(self, reply):
        (self.late if self.waiting else self.out).append(reply)

    def wait(self, seconds):
        """Holds the last reply back, and with it all that follows; those before it go out at once."""
        if self.waiting:
            return
        self.late = [self.out.pop()]
        self.flush()
        self.waiting = True
        asyncio.get_running_loop().call_later(seconds, self.resume)

    def resume(self):
        if self.transport.is_closing():
            return
        self.waiting = False
        self.out, self.late = self.late, []
        self.work()

    def break_off(self, rule):
        self.waiting = True
        if rule.do == "hang":
            self.flush()
        elif rule.do == "reset":
            self.reset()
        else:
            self.flush()
            self.transport.close()

    # -- commands --------------------------------------------------------------------------------------------------------

    def take_command(self):
        end = self.buffer.find(b"\n")
        if end < 0:
            if len(self.buffer) > MAXIMUM_LINE:
                self.transport.close()
            return False
        line = bytes(self.buffer[:end]).rstrip(b"\r")
        del self.buffer[:end + 1]
        verb = line[:4].upper()
        handler = {b"MAIL": self.mail, b"RCPT": self.rcpt, b"DATA": self.data, b"EHLO": self.hello, b"LHLO": self.hello,
                   b"HELO": self.hello, b"QUIT": self.quit, b"RSET": self.rset, b"NOOP": self.noop, b"XFOR": self.noop}.get(verb)
        if handler is None:
            self.out.append("500 5.5.2 unknown command")
        else:
            handler(line)
        return True

    def hello(self, line):
        verb = line[:4].upper()
        if (verb == b"LHLO") != self.sink.lmtp:
            self.out.append(f"500 5.5.1 this is {'LMTP' if self.sink.lmtp else 'SMTP'}")
            return
        extensions = ["PIPELINING", "SIZE 104857600", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN",
                      "XFORWARD NAME ADDR PORT PROTO HELO SOURCE IDENT"]
        words = [self.sink.name] + (extensions if verb != b"HELO" else [])
        reply = "\r\n".join(["250-" + word for word in words[:-1]] + ["250 " + words[-1]])
        self.answer("ehlo", line[5:].decode(errors="replace"), reply)
        self.sender, self.recipients = None, []

    def mail(self, line):
        found = ADDRESS.match(line)
        address = (found[1] if found else b"").decode(errors="replace")
        if self.answer("mail", address, "250 2.1.0 Ok"):
            self.sender, self.recipients = address, []

    def rcpt(self, line):
        found = ADDRESS.match(line)
        address = (found[1] if found else b"").decode(errors="replace")
        if self.sender is None:
            self.out.append("503 5.5.1 MAIL first")
        elif self.answer("rcpt", address, "250 2.1.5 Ok"):
            self.recipients.append(address)

    def data(self, _):
        if not self.recipients:
            self.out.append("503 5.5.1 no valid recipients")
        elif self.answer("data", "", "354 End with a dot"):
            self.in_data = True
            self.searched = 0

    def rset(self, _):
        self.sender, self.recipients = None, []
        self.out.append("250 2.0.0 Ok")

    def noop(self, _):
        self.out.append("250 2.0.0 Ok")

    def quit(self, _):
        self.out.append("221 2.0.0 Bye")
        self.flush()
        self.transport.close()

    # -- the message -----------------------------------------------------------------------------------------------------

    def take_message(self):
        if self.buffer.startswith(b".\r\n"):
            end, size = 0, 3
        else:
            end, size = self.buffer.find(b"\r\n.\r\n", max(0, self.searched - 4)), 5
            if end < 0:
                self.searched = len(self.buffer)
                return False
        message = self.buffer[:end + 2 if size == 5 else 0]
        del self.buffer[:end + size]
        self.in_data = False
        recipients, self.recipients, self.sender = self.recipients, [], None
        if self.sink.lmtp:
            self.lmtp_dot(recipients, message)
        else:
            self.smtp_dot(recipients, message)
        return True

    def smtp_dot(self, recipients, message):
        rule = self.sink.rule("dot", " ".join(recipients))
        good = rule is None or (rule.store if rule.do else (rule.reply or "250")[0] == "2")
        if good:
            self.sink.remember(recipients, message)
        self.conclude(rule, "250 2.0.0 Ok")

    def lmtp_dot(self, recipients, message):
        rules = [self.sink.rule("dot", recipient) for recipient in recipients]
        told = [recipient for recipient, rule in zip(recipients, rules)
                if rule is None or (rule.store if rule.do else (rule.reply or "250")[0] == "2")]
        if told:
            self.sink.remember(told, message)
        for recipient, rule in zip(recipients, rules):
            self.conclude(rule, f"250 2.0.0 <{recipient}> Ok")
            if rule is not None and rule.do:
                return

    def conclude(self, rule, normal):
        if rule is None:
            self.say(normal)
            return
        if rule.do:
            self.break_off(rule)
            return
        reply = rule.reply or normal
        self.say(reply)
        if reply[0] in "45":
            self.sink.counters["refused"] += 1
        if rule.delay:
            self.wait(rule.delay)


async def control(sink, reader, writer):
    """One JSON object per line, one answer per line."""
    try:
        while line := await reader.readline():
            try:
                words = json.loads(line)
                if words["do"] == "rules":
                    sink.rules = [Rule(rule) for rule in words["rules"]]
                elif words["do"] == "down":
                    await sink.down()
                elif words["do"] == "up":
                    await sink.up()
                elif words["do"] != "counters":
                    raise ValueError(f"cannot do {words['do']!r}")
                answer = dict(sink.counters, listening=sink.listener is not None)
            except (ValueError, KeyError, TypeError, OSError, re.error) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(arguments):
    sink = Sink(arguments)
    await sink.up()
    if os.path.exists(arguments.control):
        os.unlink(arguments.control)
    await asyncio.start_unix_server(lambda reader, writer: control(sink, reader, writer), arguments.control)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--protocol", choices=("smtp", "lmtp"), default="smtp")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--control", required=True, metavar="SOCKET")
    parser.add_argument("--name", default="sink.example")
    asyncio.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
