#!/usr/bin/python3
"""A mail client for tests: many sessions, known ids, and an exact memory of what was answered.

Behaves as a real client does: what was answered 4xx, or not at all, is sent again with the same id, to the recipients that are
still open. Everything that was answered goes into a Ledger.
"""
import argparse
import asyncio
import json
import random
import re
import secrets
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from support.stack.ledger import Ledger
else:
    from .ledger import Ledger

QUEUED = re.compile(r"queued as (\S+)")
LINE = b"The quick brown fox jumps over the lazy dog, and the mail goes through. 0123456789\r\n"


class Disconnected(Exception):
    """The connection is gone, or useless."""


# How a connection can fail a mail.
UNANSWERED = (Disconnected, OSError, asyncio.TimeoutError, asyncio.IncompleteReadError)


@dataclass
class Plan:
    """What is sent. recipients: a number, or (least, most) drawn per mail, over all the domains."""
    smtp: str
    mails: int = 100
    sessions: int = 10
    recipients: tuple = (1, 1)
    domains: list = field(default_factory=lambda: ["example.org"])
    users: int = 50
    sender: str = "sender@stack.example"
    size: tuple = (1024, 1024)
    rate: float = None              # mails a second, over all sessions; None: as fast as answers come
    per_session: int = 100          # mails over one connection
    pipelining: bool = True
    retry: bool = True
    retry_after: float = 1.0
    give_up: float = 120.0          # seconds a mail is tried
    timeout: float = 60.0           # for an answer
    run: str = ""
    seed: int = None

    def __post_init__(self):
        self.run = self.run or secrets.token_hex(4)
        for name in ("recipients", "size"):
            value = getattr(self, name)
            setattr(self, name, (value, value) if isinstance(value, int) else tuple(value))


@dataclass
class Mail:
    """One mail, and the recipients that are still open."""
    id: str
    open: list
    content: bytes
    first_tried: float = None


class Generator:
    """Sends a plan. `run` blocks; `send` is the coroutine."""

    def __init__(self, plan=None, **options):
        self.plan = plan or Plan(**options)
        self.ledger = Ledger()
        self.random = random.Random(self.plan.seed)
        self.queue = self.done = None
        self.unfinished = 0
        self.stopping = False

    def run(self):
        asyncio.run(self.send())
        return self.ledger

    def stop(self):
        """Begins no more new mails (safe from another thread)."""
        self.stopping = True

    async def send(self):
        plan, self.queue = self.plan, asyncio.Queue(maxsize=2 * self.plan.sessions)
        self.ledger.began = time.time_ns()
        self.done = asyncio.Event()
        workers = [asyncio.create_task(Session(self).run()) for _ in range(plan.sessions)]
        feeder = asyncio.create_task(self.feed())
        try:
            ended, _ = await asyncio.wait([feeder, *workers], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()  # a session only ends by an error of this program
        finally:
            self.ledger.ended = time.time_ns()
            for task in (feeder, *workers):
                task.cancel()
            await asyncio.gather(feeder, *workers, return_exceptions=True)
        return self.ledger

    async def feed(self):
        """Puts the mails into the queue, at the rate if there is one (open loop: a slow server is not spared), and waits for
        the last one."""
        plan, began = self.plan, time.monotonic()
        for number in range(plan.mails):
            if self.stopping:
                break
            if plan.rate:
                await asyncio.sleep(max(0.0, began + number / plan.rate - time.monotonic()))
            self.unfinished += 1
            self.ledger.mails += 1
            self.done.clear()
            await self.queue.put(self.compose(number))
        if self.unfinished:
            await self.done.wait()

    def compose(self, number):
        plan, name = self.plan, f"{self.plan.run}-{number}"
        wanted = self.random.randint(*plan.recipients)
        recipients = set()
        while len(recipients) < min(wanted, plan.users * len(plan.domains)):
            recipients.add(f"u{self.random.randrange(plan.users)}@{self.random.choice(plan.domains)}")
        size = self.random.randint(*plan.size)
        body = b".a line that begins with a dot\r\n" + LINE * (size // len(LINE))
        head = (f"From: <{plan.sender}>\r\nTo: undisclosed-recipients:;\r\nSubject: mail {name}\r\n"
                f"Message-ID: <{name}@generator.example>\r\nDate: Thu, 01 Jan 2026 00:00:00 +0000\r\n"
                f"X-Oracle-Id: {name}\r\nX-Oracle-Sum: {zlib.crc32(body):08x}\r\n\r\n").encode()
        stuffed = re.sub(rb"(?m)^\.", b"..", body)
        return Mail(name, sorted(recipients), head + stuffed + b".\r\n")

    def finished(self, mail, later):
        """After an attempt: the mail is done, or comes again."""
        plan = self.plan
        if mail.open and plan.retry and time.monotonic() - mail.first_tried < plan.give_up:
            asyncio.get_running_loop().call_later(later, self.again, mail)
            return
        self.ledger.given_up += len(mail.open)
        self.unfinished -= 1
        if not self.unfinished:
            self.done.set()

    def again(self, mail):
        asyncio.get_running_loop().create_task(self.queue.put(mail))


class Session:
    """One SMTP session after the other, mail by mail."""

    def __init__(self, generator):
        self.generator = generator
        self.plan = generator.plan
        self.ledger = generator.ledger
        self.reader = self.writer = None
        self.sent = 0

    async def run(self):
        try:
            while True:
                mail = await self.generator.queue.get()
                if mail.first_tried is None:
                    mail.first_tried = time.monotonic()
                try:
                    await self.connect()
                    self.ledger.attempts += 1
                    await self.transact(mail)
                except UNANSWERED:
                    self.ledger.lost_connections += 1
                    self.drop()
                self.generator.finished(mail, self.plan.retry_after)
        finally:
            self.drop()

    async def connect(self):
        if self.writer is not None and self.sent < self.plan.per_session:
            return
        if self.writer is not None:
            self.writer.write(b"QUIT\r\n")
            self.drop()
        host, _, port = self.plan.smtp.rpartition(":")
        self.reader, self.writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), self.plan.timeout)
        self.sent = 0
        for line in (None, "EHLO generator.example"):
            if line:
                self.writer.write(line.encode() + b"\r\n")
            code, text = await self.reply()
            if code != 220 and code != 250:
                raise Disconnected(f"{code} {text}")

    def drop(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def reply(self):
        lines = []
        while True:
            try:
                line = await asyncio.wait_for(self.reader.readline(), self.plan.timeout)
            except ValueError:
                raise Disconnected("a line without end") from None
            if not line.endswith(b"\n") or not line[:3].isdigit():
                raise Disconnected(f"no reply: {line!r}")
            lines.append(line[4:].decode(errors="replace").strip())
            if line[3:4] != b"-":
                return int(line[:3]), " ".join(lines)

    async def ask(self, commands):
        """Replies to the commands; in one write if pipelining is on."""
        if self.plan.pipelining:
            self.writer.write("".join(command + "\r\n" for command in commands).encode())
            return [await self.reply() for _ in commands]
        replies = []
        for command in commands:
            self.writer.write(command.encode() + b"\r\n")
            replies.append(await self.reply())
        return replies

    async def transact(self, mail):
        tried = list(mail.open)
        replies = await self.ask([f"MAIL FROM:<{self.plan.sender}>"] + [f"RCPT TO:<{name}>" for name in tried] + ["DATA"])
        accepted = []
        for name, (code, text) in zip(tried, replies[1:-1]):
            if replies[0][0] != 250:
                code, text = replies[0]
            if code in (250, 251):
                accepted.append(name)
            else:
                self.note(mail, name, code, text)
        self.sent += 1
        code, text = replies[-1]
        if code != 354:
            for name in accepted:
                self.note(mail, name, code, text)
            await self.reset_if_open(replies)
            return
        await self.finish(mail, accepted)

    async def reset_if_open(self, replies):
        if any(code == 421 for code, _ in replies):
            raise Disconnected("421")
        self.writer.write(b"RSET\r\n")
        await self.reply()

    async def finish(self, mail, accepted):
        """The content, the dot, and the one answer that counts."""
        began = time.time_ns()
        try:
            self.writer.write(mail.content if accepted else b".\r\n")
            await self.writer.drain()
            code, text = await self.reply()
        except UNANSWERED:
            for name in accepted:
                self.ledger.pair(mail.id, name).unknown += 1
            raise
        now = time.time_ns()
        queue_id = QUEUED.search(text)
        for name in accepted:
            self.note(mail, name, code, text, now, now - began, queue_id[1] if queue_id else None)
        if code == 421:
            raise Disconnected(text)

    def note(self, mail, name, code, text, now=None, waited=0, queue_id=None):
        """Keeps the outcome; what is settled is no longer open."""
        pair = self.ledger.pair(mail.id, name)
        if code == 250 and now is not None:
            pair.promises += 1
            if pair.promised is None:
                pair.promised, pair.waited = now, waited
            if queue_id:
                pair.queue_ids.append(queue_id)
            mail.open.remove(name)
        elif 500 <= code <= 599:
            pair.refused = f"{code} {text}"
            mail.open.remove(name)
        else:
            pair.tempfails += 1


def span(text):
    least, _, most = text.partition("-")
    return int(least), int(most or least)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smtp", required=True, metavar="HOST:PORT")
    parser.add_argument("--mails", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--recipients", type=span, default=(1, 1), metavar="N[-M]")
    parser.add_argument("--domains", default="example.org", metavar="A,B")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--sender", default="sender@stack.example")
    parser.add_argument("--size", type=span, default=(1024, 1024), metavar="BYTES[-BYTES]")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--per-session", type=int, default=100)
    parser.add_argument("--no-pipelining", dest="pipelining", action="store_false")
    parser.add_argument("--no-retry", dest="retry", action="store_false")
    parser.add_argument("--give-up", type=float, default=120)
    parser.add_argument("--ledger", help="file for the ledger")
    arguments = vars(parser.parse_args())
    path = arguments.pop("ledger")
    arguments["domains"] = arguments["domains"].split(",")
    ledger = Generator(**arguments).run()
    if path:
        ledger.write(path)
    print(json.dumps(ledger.summary(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
