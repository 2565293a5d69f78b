"""As much of Redis' protocol as is needed here: one command, one reply, by TLS, with an end to waiting."""
import socket
import ssl
import time

import group
import network
from host import Trouble, plain

LARGEST = 1 << 20  # bytes of one text; none that is asked for comes near it
WHOLE, ELEMENT = 4 << 20, 100  # bytes of a reply with all that is in it; of each element, beside its text


class Refused(Trouble):
    """Redis answered, and said no."""


class Unreached(Trouble):
    """Redis did not answer: whether it has anything is not known."""


class Timed:
    """Reads from a socket until a deadline: who sends a byte now and then holds nobody up."""

    def __init__(self, connection, seconds):
        self.socket, self.seconds, self.have = connection, seconds, b""
        self.begin()

    def begin(self):
        """From now on."""
        self.end = time.monotonic() + self.seconds

    def left(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"it took longer than {self.seconds} s")
        return left

    def send(self, content):
        self.socket.settimeout(self.left())
        self.socket.sendall(content)

    def more(self):
        self.socket.settimeout(self.left())
        got = self.socket.recv(64 * 1024)
        if not got:
            raise OSError("the connection was closed")
        self.have += got

    def line(self, most):
        """Up to and without the line feed."""
        while b"\n" not in self.have:
            if len(self.have) > most:
                raise OSError("a line that is too long")
            self.more()
        line, _, self.have = self.have.partition(b"\n")
        return line

    def exactly(self, n):
        while len(self.have) < n:
            self.more()
        content, self.have = self.have[:n], self.have[n:]
        return content


class Redis:
    """seconds: for the connection until the login, and then for each command."""

    def __init__(self, address, ca_file, user, password, seconds=5):
        host, port = group.split_address(address)
        self.address, self.socket = address, None
        end = time.monotonic() + seconds
        try:
            context = ssl.create_default_context(cafile=str(ca_file))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self.socket = socket.create_connection((host, port), timeout=seconds)
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
            self.stream = Timed(self.socket, seconds)
            self.stream.end = end
            self.command("AUTH", user, password)
        except (OSError, ValueError) as e:
            self.close()
            raise Unreached(f"the Redis at {address} cannot be reached: {plain(network.said(e))}") from None
        except Trouble:
            self.close()
            raise

    def close(self):
        if self.socket:
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, *words):
        self.stream.begin()
        try:
            return self.command(*words)
        except (OSError, ValueError) as e:
            raise Unreached(f"the Redis at {self.address} does not answer: {plain(network.said(e))}") from None

    def command(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.stream.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        self.left = WHOLE
        return self.reply()

    def takes(self, n):
        self.left -= n
        if self.left < 0:
            raise OSError("a reply that is too long")

    def reply(self, depth=0):
        line = self.stream.line(64 * 1024)
        self.takes(ELEMENT + len(line))
        kind, rest = line[:1], line[1:].rstrip(b"\r")
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise Refused(f"the Redis at {self.address} says: {plain(rest.decode('utf-8', 'replace'))}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            n = int(rest)
            if n < 0:
                return None
            if n > LARGEST:
                raise OSError("a reply that is too long")
            self.takes(n)
            return self.stream.exactly(n + 2)[:-2]
        if kind == b"*":
            if depth > 2 or int(rest) > 10000:
                raise OSError("a reply that is too long")
            return [self.reply(depth + 1) for _ in range(max(0, int(rest)))]
        raise OSError(f"a reply that begins with {kind!r}")
