#!/usr/bin/env python3
"""IMAP clients of one user at several sites, until SIGTERM: appends, flags, folders. A line in the journal for each that was answered OK.

    imap_load.py --sites 10.0.0.1,10.0.0.2 --user USER --journal FILE

A session that a restart of Dovecot ends is opened again; what it was doing was not answered, and counts for nothing.
"""
import argparse
import imaplib
import itertools
import random
import signal
import threading

PASSWORD = "secret"


class Client:
    def __init__(self, host, user):
        self.imap = imaplib.IMAP4(host, timeout=60)
        self.imap.login(user, PASSWORD)
        self.folders = {"INBOX"}

    def ok(self, answer):
        if answer[0] != "OK":
            raise imaplib.IMAP4.error(str(answer))

    def append(self, name):
        self.ok(self.imap.append("INBOX", None, None, f"From: x@client.example\r\nSubject: {name}\r\n\r\nbody of {name}\r\n".encode()))

    def flag(self, name):
        """Marks the mail of that subject, if it is here already; returns whether it was."""
        self.ok(self.imap.select("INBOX"))
        found = self.imap.uid("SEARCH", "SUBJECT", name)[1][0].split()
        if found:
            self.ok(self.imap.uid("STORE", found[0], "+FLAGS", "(\\Flagged)"))
        return bool(found)

    def create(self, name):
        self.ok(self.imap.create(name))


def main():
    parser = argparse.ArgumentParser()
    for name in ("sites", "user", "journal"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sites, clients, appended, cut = options.sites.split(","), {}, [], 0
    with open(options.journal, "a", encoding="ascii", buffering=1) as journal:
        for number in itertools.count():
            if stop.is_set():
                break
            site = sites[number % len(sites)]
            try:
                client = clients.get(site) or clients.setdefault(site, Client(site, options.user))
                name = f"n{number}x"
                client.append(name)
                journal.write(f"append {name}\n")
                appended.append(name)
                other = random.choice(appended)
                if client.flag(other):
                    journal.write(f"flag {other}\n")
                if number % 20 == 0:
                    client.create(f"folder{number}")
                    journal.write(f"create folder{number}\n")
            except (OSError, imaplib.IMAP4.error):
                clients.pop(site, None)
                cut += 1
                stop.wait(0.2)
            stop.wait(0.05)
    print(f"answered {len(appended)} appends, {cut} were cut", flush=True)


if __name__ == "__main__":
    main()
