"""A replica that is only this program: it writes into its lane what a peer could send, byte by byte as docs/replication-protocol.md has it.

Running hashes are written as 0: not known. So only what else is wrong with a batch is judged.
"""
import hashlib
import os
import time

from site_user import mail
from support.frames import BATCH, RETIRE, Reader, batch_head, num, text, u64
from support.stack import lanes, resp

NOW = 1_767_225_600


def told_in(connection, one, other, kind, user):
    """The bodies of that kind about the user that lie in the lane from one site to another."""
    found = []
    for name in lanes.names(connection, f"dovelane:replica:site-{one}>site-{other}"):
        words = ("LANE.READ", name, 1, "COUNT", 100000, "BYTES", 1 << 26)
        for _, _, _, _, _, meta, body, _ in connection.call(*words)[1]:
            read = Reader(meta)
            read.take(17)
            if read.text() == user.encode() and read.take(1)[0] == kind:
                found.append(body)
    return found


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

    def meta(self, user, kind=BATCH, version=1, site=None):
        return (bytes([version]) + self.digest + text(user) + bytes([kind])
                + num(site or self.site) + num(self.peer))

    def push(self, body, user=None, **how):
        with resp.Connection(self.group[f"redis-{self.letter}"].note["address"]) as connection:
            words = (1, f"dovelane:replica:site-{self.letter}>site-{self.to}", "ENTRIES", 1, 1, os.urandom(16), self.meta(user or self.user, **how), body)
            answer = connection.call("LANE.PUSH", *words)
            assert not isinstance(answer, resp.RedisError), answer

    def retire(self, *origins, user=None, **how):
        """These (site, epoch) are of users of that name who were forgotten."""
        body = b"".join(u64(site) + u64(epoch) for site, epoch in origins)
        self.push(body, user, kind=RETIRE, **how)

    def was_told(self, kind, user=None):
        """The bodies of that kind about the user that lie in the other site's lane to this one."""
        with resp.Connection(self.group[f"redis-{self.to}"].note["address"]) as connection:
            return told_in(connection, self.to, self.letter, kind, user or self.user)

    # -- ops; each says how many numbers it takes ------------------------------------------------------------------------

    def add(self, name, claim=0, size=300, folder=b"\0"):
        """(op, numbers, the mail it is about)"""
        body = mail(name, size)
        op, numbers, _ = self.claim(hashlib.md5(name.encode()).digest(), hashlib.sha256(body).digest(), len(body), claim, folder)
        return op, numbers, body

    def claim(self, guid, sha256, size, uid=0, folder=b"\0"):
        """A mail of which it gives no bytes."""
        op = bytes([1]) + folder + guid + sha256 + num(NOW) + num(NOW) + num(size) + num(1) + num(uid) + text(guid.hex()) + num(0) + num(0)
        return op, 2, None

    def unknown(self, kind=77, size=40):
        return bytes([kind]) + b"\0" + os.urandom(size), 1, None

    def subscribe(self, name):
        return bytes([6 + 1]) + text(b"inbox\0" + name.encode()) + b"\1" + num(0), 1, None

    def batch(self, *ops, version=1, first=None, seen=None, vector=()):
        """A BATCH's body with these ops, from the next number on; the numbers are used up."""
        first = self.number + 1 if first is None else first
        last = first - 1 + sum(numbers for _, numbers, _ in ops)
        entries = [(self.site, self.epoch, last if seen is None else seen), *vector]
        batch = batch_head(first, len(ops), entries, version) + b"".join(text(op) for op, _, _ in ops)
        bodies = [body for _, _, body in ops if body is not None]
        self.number = max(self.number, last)
        return text(batch) + num(len(bodies)) + b"".join(hashlib.sha256(body).digest() + text(body) for body in bodies)

    def send(self, *ops, user=None, **how):
        self.push(self.batch(*ops, **how), user)
