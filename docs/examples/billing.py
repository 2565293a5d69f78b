#!/usr/bin/env python3
"""Billing records in a lane, in Python without any package.

    docs/examples/billing.py PORT|SOCKET

With redis-py it is r.execute_command("LANE.TAKE", 1, "billing", ...), with a client of its own for each worker that has no socket_timeout (BLOCK waits), no
retries (a PUT without an id would be stored twice) and no decode_responses (ids and bodies are bytes).

The switch stores records in batches and sends one again whose answer was lost; the billing system takes them in order, books, acknowledges. A record that
cannot be booked is tried three times, then waits in another lane for a person, who mends the cause and stores it anew.
"""
import socket
import sys
import uuid


class Server:
    """One connection; a call sends a command and gives its answer."""

    def __init__(self, address):
        unix = not address.isdigit()
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.connect(address if unix else ("127.0.0.1", int(address)))
        self.stream = self.socket.makefile("rb")

    def __call__(self, *words):
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.answer()

    def answer(self):
        kind, rest = (line := self.stream.readline())[:1], line[1:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if int(rest) < 0 else self.stream.read(int(rest) + 2)[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        raise RuntimeError(rest.decode())


class Switch:
    """Who stores. The session and its numbers make a repeated PUSH harmless. Where the session is forgotten (the server was restarted), the ids do so for what the
    lane still holds, and for lane.settle-ms (5 s by default) after it was acknowledged: set that to the longest time after which you send again."""

    def __init__(self, server):
        self.server, self.session, self.number = server, uuid.uuid4().hex, 0

    def store(self, records, again=False):
        """The records that are not stored, with the word that says why (FULL, MEMORY ...: no error for a library): keep them and try later."""
        self.number += not again
        entries = [part for uid, text in records for part in (1, uid.bytes, b"", text)]
        answers = self.server("LANE.PUSH", 1, "billing", "SESSION", self.session, self.number, "ENTRIES", len(records), *entries)[1]
        return [(record, answer) for record, answer in zip(records, answers) if not isinstance(answer, int) and answer != "DONE"]


def bill(server, book, most=100, patience=0):
    """Books what there is, in order; gives back what cannot be booked. Returns how many were booked, when nothing came for that many milliseconds
    (patience None: goes on for ever). Commands may follow a TAKE with BLOCK on its connection, but not be sent before its answer came."""
    booked, wait = 0, () if patience == 0 else ("BLOCK", patience or 0)
    while got := server("LANE.TAKE", 1, "billing", "COUNT", most, *wait):
        key, lease, entries = got[0]
        waiting = [entry[0] for entry in entries]
        fine = []
        try:
            for sequence, uid, revision, attempts, age, meta, body in entries:
                if not book(body.decode()):
                    server("LANE.NACK", key, lease, "RETRY", 0, "SEQS", 1, sequence)
                    waiting.remove(sequence)
                    break  # STRICT: what is behind it waits
                fine.append(sequence)
                waiting.remove(sequence)
        finally:  # also when the program is asked to end: what is only dropped with the connection has failed once
            if fine:
                server("LANE.ACK", key, "SEQS", len(fine), *fine)
                booked += len(fine)
            if waiting:
                server("LANE.NACK", key, lease, "KEEP", 0, "SEQS", len(waiting), *waiting)
    return booked


def main():
    if len(sys.argv) != 2:
        sys.exit("billing: name the server: a port of this host, or a socket")
    server = Server(sys.argv[1])
    server("LANE.CREATE", "billing", "STRICT", "MAXLEN", 1000000, "MAXATTEMPTS", 3, "DEAD", "billing:manual")
    records = [(uuid.uuid4(), f"call {n}: {n * 7 % 300} s") for n in range(1, 251)]
    switch = Switch(server)
    for batch in records[:100], records[100:]:
        assert not switch.store(batch), "no room"
        assert not switch.store(batch, again=True), "a repeated number gets the answer of then"
    assert server("LANE.LEN", "billing") == len(records), "each once"
    book = []
    booked = bill(server, lambda text: text.split(":")[0] != "call 42" and not book.append(text))
    waiting = server("LANE.READ", "billing:manual", 0)[1]
    print(f"booked {booked}, for a person {len(waiting)}: {waiting[0][6].decode()}")
    assert book == [text for _, text in records if not text.startswith("call 42:")], "in order, each once"
    # MOVE keeps the attempts, and this one has none left: stored anew it has three again.
    assert not switch.store([(uuid.uuid4(), waiting[0][6].decode())])
    server("LANE.ACK", "billing:manual", "UPTO", waiting[-1][0])
    print(f"stored anew, booked {bill(server, lambda text: True, patience=100)}, left {server('LANE.LEN', 'billing')}")


if __name__ == "__main__":
    main()
