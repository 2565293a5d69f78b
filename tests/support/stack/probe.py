"""Does a service answer? One function per kind; each returns None when it does, else what was seen instead.

A probe speaks the service's own protocol to the end, so that "up" means more than an open port, and the service's log shows
no broken connection.
"""
import socket
import struct
import time

from . import resp
from .failure import failed


def redis(address):
    """PONG, also after loading; with the lane module, LANE.INFO."""
    try:
        with resp.Connection(address, timeout=5) as connection:
            connection.call("PING")
            connection.call("LANE.INFO")
    except (OSError, resp.RedisError) as error:
        return str(error)
    return None


def plain_redis(address):
    try:
        with resp.Connection(address, timeout=5) as connection:
            connection.call("PING")
    except (OSError, resp.RedisError) as error:
        return str(error)
    return None


def connect(address, timeout):
    if address.startswith("unix:"):
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(timeout)
        stream.connect(address[len("unix:"):])
        return stream
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


def greeting(address, wanted, farewell):
    """A server that speaks first (SMTP, LMTP, IMAP): its greeting, then a polite end."""
    try:
        with connect(address, 20) as stream:
            lines = stream.makefile("rb")
            line = lines.readline()
            if not line.startswith(wanted):
                return f"greeting is {line!r}"
            stream.sendall(farewell)
            while lines.readline():
                pass
    except OSError as error:
        return str(error)
    return None


def smtp(address):
    return greeting(address, b"220", b"QUIT\r\n")


def imap(address):
    return greeting(address, b"* OK", b"a LOGOUT\r\n")


def milter(address):
    """An option negotiation, as Postfix does it, and a quit."""
    try:
        with connect(address, 10) as stream:
            stream.sendall(packet(b"O", struct.pack("!III", 6, 0x1FF, 0x1FFFFF)))
            head = receive(stream, 5)
            receive(stream, struct.unpack("!I", head[:4])[0] - 1)
            stream.sendall(packet(b"Q", b""))
            if head[4:] != b"O":
                return f"negotiation was answered with {head[4:]!r}"
    except OSError as error:
        return str(error)
    return None


def packet(command, data):
    return struct.pack("!I", len(data) + 1) + command + data


def receive(stream, size):
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            raise ConnectionError("closed in the middle of an answer")
        data += more
    return data


def metrics(address):
    """The counters' socket gives some text."""
    try:
        with connect(address, 10) as stream:
            return None if stream.recv(1) else "no counters"
    except OSError as error:
        return str(error)


def metric(address, name):
    """The value of one counter or gauge; None when there is none of that name."""
    with connect(address, 10) as stream:
        for line in stream.makefile("r"):
            words = line.split()
            if words and words[0] in (f"dovelane_{name}", f"dovelane_{name}_total"):
                return int(words[1])
    return None


def control(address):
    """The Python sink's control socket."""
    try:
        with connect(address, 10) as stream:
            stream.sendall(b'{"do": "counters"}\n')
            return None if stream.makefile("rb").readline() else "no answer"
    except OSError as error:
        return str(error)


def links(address):
    """The control socket of the links."""
    try:
        with connect(address, 10) as stream:
            stream.sendall(b'{"do": "state"}\n')
            return None if stream.makefile("rb").readline() else "no answer"
    except OSError as error:
        return str(error)


KINDS = {"links": links, "redis": redis, "plain-redis": plain_redis, "smtp": smtp, "imap": imap, "milter": milter, "metrics": metrics,
         "control": control}


def wait(service, probes, log, process=None, seconds=60):
    """Waits until all probes (kind, address) are content, the process lives; a clear StackError otherwise."""
    end = time.monotonic() + seconds
    pause = 0.01
    for kind, address in probes:
        while (seen := KINDS[kind](address)) is not None:
            if process is not None and not process.alive():
                raise failed(f"{service} ended while starting", log)
            if time.monotonic() > end:
                raise failed(f"{service} does not answer at {address} within {seconds} s: {seen}", log)
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
