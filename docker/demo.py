#!/usr/bin/python3
"""Sends mail through the containers of docker-compose.yml and shows what became of it. Status 0: every mail arrived once.

Other containers are looked at as anybody could: Postfix by SMTP, the nodes by Redis commands, Dovecot by IMAP, the sink by the
files it wrote to /sink.
"""
import imaplib
import secrets
import signal
import smtplib
import sys
import time
from collections import Counter
from pathlib import Path

from support.stack import lanes, resp

NODES = {"mx1": "mx1:6379", "mx2": "mx2:6379"}
SINK = Path("/sink")
SENDER = "alice@client.example"
HEADER = "X-Demo-Run"
# Recipient, how many mails, what it shows.
PLAN = [("bob@example.org", 50, "diverted, LMTP to Dovecot"),
        ("carol@example.org", 50, "diverted, LMTP to Dovecot"),
        ("orders@sink.example", 50, "diverted, SMTP to the sink"),
        ("archive@slow.example", 10, "diverted, SMTP to the sink, which answers 2 s late"),
        ("paper@queue.example", 10, "not in divert: Postfix's own disk queue")]


class Failed(Exception):
    """Something did not arrive as it should."""


def title(text):
    print(f"\n{text}\n", flush=True)


def say(text=""):
    print(f"   {text}" if text else "", flush=True)


def until(condition, what, seconds=60):
    """The seconds until something became true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + seconds:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - began


def send(client, recipient, number, run):
    """One mail; returns Postfix's answer to the final dot and its milliseconds."""
    text = (f"From: <{SENDER}>\r\nTo: <{recipient}>\r\nSubject: Mail {number}\r\n{HEADER}: {run}\r\n"
            f"Message-Id: <{run}.{number}.{recipient}>\r\n\r\nThis is mail {number} to {recipient}.\r\n")
    client.mail(SENDER)
    client.rcpt(recipient)
    began = time.monotonic()
    code, answer = client.data(text)
    if code != 250:
        raise Failed(f"{recipient}: Postfix answered {code} {answer.decode()}")
    return answer.decode(), (time.monotonic() - began) * 1000


def send_all(run):
    for recipient, mails, what in PLAN:
        with smtplib.SMTP("postfix", 25, timeout=30) as client:
            client.ehlo("demo.client.example")
            answers = [send(client, recipient, number, run) for number in range(1, mails + 1)]
        middle = sorted(ms for _, ms in answers)[mails // 2]
        say(f"{mails:>3} to {recipient:<21} {what}")
        say(f"       last answer: 250 {answers[-1][0]}; median {middle:.1f} ms")


def held(node):
    """Lane names of a node to (entries, bytes)."""
    with resp.Connection(NODES[node]) as connection:
        return lanes.names(connection)


def show_lanes():
    for node in NODES:
        found = held(node)
        say(f"{node} holds {sum(count for count, _ in found.values())} mails" + (":" if found else ""))
        for lane, (count, size) in sorted(found.items()):
            say(f"    LANE.LEN {lane:<42} {count:>4}   {size:>6} bytes")


def in_mailbox(user, run):
    """The mails of this run, as an IMAP client gets them."""
    client = imaplib.IMAP4("dovecot", 143, timeout=30)
    try:
        client.login(user, "any")
        client.select("INBOX", readonly=True)
        found = client.search(None, "HEADER", HEADER, run)[1][0].split()
        return [part[1].decode() for part in client.fetch(b",".join(found), "(BODY.PEEK[])")[1] if len(part) == 2] if found else []
    finally:
        client.logout()


def in_sink(run):
    """Recipient to how many mails of this run the sink got; it writes the envelope above the mail."""
    counts = Counter()
    for path in SINK.iterdir():
        lines = path.read_text(errors="replace").splitlines()
        if f"{HEADER}: {run}" in lines:
            counts.update(line.partition("<")[2].partition(">")[0] for line in lines if line.startswith("X-Rcpt-Args:"))
    return counts


def arrived(run):
    return {user: len(in_mailbox(user, run)) for user in ("bob@example.org", "carol@example.org")} | in_sink(run)


def show_arrived(run, found):
    wrong = 0
    for recipient, mails, _ in PLAN:
        number = found.get(recipient, 0)
        wrong += number != mails
        where = "Dovecot, by IMAP" if recipient.endswith("@example.org") else "the sink"
        say(f"{recipient:<21} sent {mails:>3}   arrived {number:>3}   {where}" + ("" if number == mails else "   WRONG"))
    if wrong:
        raise Failed(f"{wrong} recipients got more or fewer mails than were sent")
    say()
    say("One of bob's, with the way it took:")
    head, _, body = in_mailbox("bob@example.org", run)[0].partition("\r\n\r\n")
    for line in head.split("\r\n") + ["", *body.splitlines()]:
        say(f"    | {line}")


def demo():
    run = secrets.token_hex(6)
    total = sum(mails for _, mails, _ in PLAN)
    title(f"1. {total} mails go in at Postfix, port 25. Each 250 says that two nodes hold the mail, or Postfix's disk queue")
    send_all(run)
    title("2. Right after that: what is not delivered yet waits on both nodes")
    show_lanes()
    title("3. The relays deliver")
    seconds = until(lambda: not any(held(node) for node in NODES), "empty lanes")
    say(f"lanes empty after {seconds:.1f} s")
    show_lanes()
    wanted = {recipient: mails for recipient, mails, _ in PLAN}
    until(lambda: sum(arrived(run).values()) >= sum(wanted.values()), "all mails at their ends")
    title("4. What arrived")
    show_arrived(run, arrived(run))
    title(f"All {total} mails arrived, each once.")


if __name__ == "__main__":
    # The first process of a container is not ended by signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        demo()
    except (Failed, OSError, smtplib.SMTPException, imaplib.IMAP4.error, resp.RedisError) as error:
        sys.exit(f"demo: {error}")
