"""As much of Redis' protocol as is needed here: one command, one reply, by TLS, with an end to waiting."""
import socket
import ssl

import group
from host import Trouble


class Refused(Trouble):
    """Redis answered, and said no."""


class Redis:
    def __init__(self, address, ca_file, user, password, seconds=5):
        host, port = group.split_address(address)
        self.address = address
        try:
            context = ssl.create_default_context(cafile=str(ca_file))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self.socket = context.wrap_socket(socket.create_connection((host, port), timeout=seconds), server_hostname=host)
        except (OSError, ValueError) as e:
            raise Trouble(f"the Redis at {address} cannot be reached: {e}") from None
        self.input = self.socket.makefile("rb")
        self.call("AUTH", user, password)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.input.close()
        self.socket.close()

    def call(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        try:
            self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            return self.reply()
        except (OSError, ValueError) as e:
            raise Trouble(f"the Redis at {self.address} does not answer: {e}") from None

    def reply(self, depth=0):
        line = self.input.readline(64 * 1024)
        if not line.endswith(b"\r\n"):
            raise OSError("the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise Refused(f"the Redis at {self.address} says: {rest.decode('utf-8', 'replace')}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            n = int(rest)
            if n < 0:
                return None
            if n > 64 * 1024 * 1024:
                raise OSError("a reply that is too long")
            content = self.input.read(n + 2)
            if len(content) != n + 2:
                raise OSError("the connection was closed")
            return content[:-2]
        if kind == b"*":
            if depth > 2 or int(rest) > 10000:
                raise OSError("a reply that is too long")
            return [self.reply(depth + 1) for _ in range(max(0, int(rest)))]
        raise OSError(f"a reply that begins with {kind!r}")
