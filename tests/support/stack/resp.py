"""Redis's protocol (RESP2) over one blocking connection, just enough to look into lanes."""
import socket


class RedisError(Exception):
    """An error reply."""


class Connection:
    """`call` for one command, `pipeline` for many; replies are bytes, int, None or lists of these."""

    def __init__(self, address, timeout=10.0):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(timeout)
            self.socket.connect(address[len("unix:"):])
        else:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()

    @staticmethod
    def encode(words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        return b"".join(parts)

    def reply(self):
        """One reply; error replies are returned as RedisError, so that a pipeline keeps its place."""
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the Redis server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return RedisError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            if length < 0:
                return None
            data = self.stream.read(length + 2)
            if len(data) != length + 2:
                raise ConnectionError("the Redis server closed the connection")
            return data[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self.reply() for _ in range(int(rest))]
        raise ConnectionError(f"not a RESP reply: {line[:60]!r}")

    def pipeline(self, commands):
        self.socket.sendall(b"".join(self.encode(words) for words in commands))
        return [self.reply() for _ in commands]

    def call(self, *words):
        answer = self.pipeline([words])[0]
        if isinstance(answer, RedisError):
            raise answer
        return answer


def calls(address):
    """How many commands a server was ever given, but for INFO, with which this asks."""
    with Connection(address, timeout=5) as connection:
        lines = connection.call("INFO", "commandstats").decode().splitlines()
    counts = [line.split("calls=")[1].split(",")[0] for line in lines
              if "calls=" in line and not line.startswith("cmdstat_info:")]
    return sum(map(int, counts))
