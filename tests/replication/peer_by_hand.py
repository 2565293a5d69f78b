"""A replica that is only this program: it writes into its lane what a peer could send, byte by byte as docs/replication-protocol.md has it.

Running hashes are written as 0: not known. So only what else is wrong with a batch is judged.
"""
import hashlib
import os
import time

from site_user import mail
from support.stack import lanes, resp

BATCH = 1
NOW = 1_767_225_600


def num(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def u64(n):
    return n.to_bytes(8, "little")


def text(data):
    data = data.encode() if isinstance(data, str) else data
    return num(len(data)) + data


class Hand:
    """Site `letter` of a group whose Dovecot of that letter is stopped."""

    def __init__(self, group, user, letter="a", to="b", epoch=0xABCDEF):
        self.group, self.user, self.letter, self.to, self.epoch = group, user, letter, to, epoch
        self.site, self.peer = ord(letter) - 96, ord(to) - 96
        self.number, self.digest = 0, self.group_digest()

    def group_digest(self):
        """As the other site writes it into its own lane."""
        end = time.monotonic() + 240
        with resp.Connection(self.group[f"redis-{self.to}"].note["address"]) as connection:
            while time.monotonic() < end:
                for name in lanes.names(connection, f"dovelane:replica:site-{self.to}>site-{self.letter}"):
                    for _, _, _, _, _, meta, _, _ in connection.call("LANE.READ", name, 1, "COUNT", 1, "BYTES", 1 << 20)[1]:
                        return meta[1:17]
                time.sleep(0.05)
        raise AssertionError(f"site-{self.to} sent nothing to site-{self.letter}")

    def meta(self, user, kind=BATCH, version=1):
        return bytes([version]) + self.digest + text(user) + bytes([kind]) + num(self.site) + num(self.peer)

    def push(self, body, user=None, **how):
        with resp.Connection(self.group[f"redis-{self.letter}"].note["address"]) as connection:
            words = (1, f"dovelane:replica:site-{self.letter}>site-{self.to}", "ENTRIES", 1, 1, os.urandom(16), self.meta(user or self.user, **how), body)
            answer = connection.call("LANE.PUSH", *words)
            assert not isinstance(answer, resp.RedisError), answer

    # -- ops; each says how many numbers it takes ------------------------------------------------------------------------

    def add(self, name, claim=0, size=300, folder=b"\0"):
        """(op, numbers, the mail it is about)"""
        body = mail(name, size)
        sha = hashlib.sha256(body).digest()
        guid = hashlib.md5(name.encode()).digest()
        op = bytes([1]) + folder + guid + sha + num(NOW) + num(NOW) + num(len(body)) + num(1) + num(claim) + text(guid.hex()) + num(0) + num(0)
        return op, 2, body

    def unknown(self, kind=77, size=40):
        return bytes([kind]) + b"\0" + os.urandom(size), 1, None

    def subscribe(self, name):
        return bytes([6 + 1]) + text(b"inbox\0" + name.encode()) + b"\1" + num(0), 1, None

    def batch(self, *ops, version=1, first=None, seen=None, vector=()):
        """A BATCH's body with these ops, from the next number on; the numbers are used up."""
        first = self.number + 1 if first is None else first
        last = first - 1 + sum(numbers for _, numbers, _ in ops)
        entries = [(self.site, self.epoch, last if seen is None else seen), *vector]
        head = num(len(entries)) + b"".join(u64(site) + u64(epoch) + num(number) + u64(0) for site, epoch, number in entries) + num(0)
        batch = bytes([version]) + head + num(0) + num(first) + u64(0) + num(len(ops)) + b"".join(text(op) for op, _, _ in ops)
        bodies = [body for _, _, body in ops if body is not None]
        self.number = max(self.number, last)
        return text(batch) + num(len(bodies)) + b"".join(hashlib.sha256(body).digest() + text(body) for body in bodies)

    def send(self, *ops, user=None, **how):
        self.push(self.batch(*ops, **how), user)
