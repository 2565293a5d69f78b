#!/usr/bin/env python3
"""Mail with ids, and a place where it goes.

    mail.py send --to mx1,mx2 --rcpt u@next.example --journal FILE [--mails N] [--rate R]   until N are answered 250, or SIGTERM
    mail.py sink --port 2525 --journal FILE [--hold FILE]                                   answers 451 while that file is there

Each journal has a line an id: of the generator when the server answered 250 to its mail, of the sink for each delivery, before its own 250.
"""
import argparse
import itertools
import os
import random
import signal
import smtplib
import socketserver
import threading


def send(options):
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    hosts = itertools.cycle(options.to.split(","))
    mark = f"{random.randrange(16**8):08x}"
    answered = refused = 0
    with open(options.journal, "a", encoding="ascii", buffering=1) as journal:
        for number in itertools.count():
            if stop.is_set() or answered == options.mails:
                break
            name = f"{mark}-{number}"
            body = f"From: s@client.example\r\nTo: {options.rcpt}\r\nSubject: {name}\r\nX-Id: {name}\r\n\r\n{'x' * 70}\r\n"
            # Random, so that it takes as much room on a disk as it says.
            body += "".join(f"{random.randrange(16**70):070x}\r\n" for _ in range(options.size // 72))
            try:
                with smtplib.SMTP(next(hosts), 25, "client.example", timeout=100) as client:
                    client.sendmail("s@client.example", [options.rcpt], body)
                journal.write(name + "\n")
                answered += 1
            except (OSError, smtplib.SMTPException) as error:
                refused += 1
                print(f"{name}: {error}", flush=True)
            stop.wait(1 / options.rate)
    print(f"answered {answered} refused {refused}", flush=True)


class Sink(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text.encode() + b"\r\n")

    def handle(self):
        try:
            self.session()
        except OSError:
            return  # the client hung up

    def session(self):
        self.say("220 sink.example ESMTP")
        taken = False
        while line := self.rfile.readline():
            verb = line.split(None, 1)[0].upper() if line.split() else b""
            held = self.server.hold and os.path.exists(self.server.hold)
            if verb in (b"EHLO", b"LHLO"):
                self.say("250-sink.example\r\n250 8BITMIME")
            elif verb == b"QUIT":
                self.say("221 bye")
                return
            elif verb in (b"MAIL", b"RCPT") and held:
                taken = False
                self.say("451 4.3.0 held by the test")
            elif verb == b"DATA" and not taken:
                self.say("503 5.5.1 no recipients")
            elif verb == b"DATA":
                self.say("354 go")
                self.data()
                taken = False
            else:
                taken = taken or verb == b"RCPT"
                self.say("250 ok")

    def data(self):
        name = None
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                return
            if line.lower().startswith(b"x-id:") and not name:
                name = line.split(b":", 1)[1].strip().decode()
        with self.server.lock, open(self.server.journal, "a", encoding="ascii") as journal:
            journal.write(f"{name}\n")
        self.say("250 2.0.0 taken")


def sink(options):
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
        request_queue_size = 128
    with Server(("0.0.0.0", options.port), Sink) as server:
        server.journal, server.hold, server.lock = options.journal, options.hold, threading.Lock()
        print("ready", flush=True)
        server.serve_forever()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["send", "sink"])
    for name, default in (("--to", ""), ("--rcpt", ""), ("--journal", ""), ("--hold", "")):
        parser.add_argument(name, default=default)
    for name, default in (("--mails", -1), ("--size", 0), ("--port", 2525)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--rate", type=float, default=20)
    options = parser.parse_args()
    {"send": send, "sink": sink}[options.what](options)


if __name__ == "__main__":
    main()
