"""Talks to the recording sinks' control sockets, and to programs' metrics sockets."""
import json
import re
import socket


def command(system, name, **words):
    """One command of a sink's control socket; the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(system[f"sink-{name}"].note["control"])
        connection.sendall(json.dumps(words).encode() + b"\n")
        return json.loads(connection.makefile().readline())


def rules(system, name, *entries):
    return command(system, name, do="rules", rules=list(entries))


def metrics(system, service):
    """All counters of a program."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(system[service].note["metrics"])
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return {name: int(value) for name, value in re.findall(r"^dovelane_(\w+) (-?\d+)$", text, re.M)}
