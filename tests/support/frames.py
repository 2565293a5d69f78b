"""How this project's programs write numbers, texts, frames and batches: one writer, one reader.

docs/envelope.md, docs/replicator/worker.md and docs/replication-protocol.md say what is in them.
"""
import struct

# Frames to a worker, and its own.
(HELLO, OPEN, INGEST, PARCEL, SHIP, TICK, ADMIN, CLOSE, RESERVED, LOOKUP,
 RETIRED_ORIGINS) = range(1, 12)
(READY, FAIL, SEND, RESERVE, DONE, REPLY, NOTE, ELSEWHERE, CREDENTIALS, ORIGINS,
 APART) = range(64, 75)
# Kinds of parcels between sites.
(BATCH, QUESTION, ANSWER, WANT, BODY, UID_DIRTY, UID_ASK, UID_ANSWER, BODIES, READING,
 ANSWER_READING, RAISE, RAISED, RETIRE, RETIRED, ASK_DISK, ON_DISK) = range(1, 18)
# What a SHIP asks for: HELLO_TOO is "new", and a batch without ops where nothing is.
NEW, CONFIRMED, HELLO_TOO, EXCHANGE, FORGET = range(5)


class Cut(ValueError):
    """More was to be read than there is, or less."""


def num(value):
    """LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return num(len(data)) + data


def u64(value):
    return struct.pack("<Q", value)


def frame(kind, body=b""):
    return struct.pack("<IB", len(body) + 1, kind) + body


def batch_head(first, n, vector=(), version=1):
    """How a batch begins: a vector of (site, epoch, number), no modseqs, hashes that are not known."""
    origins = b"".join(u64(site) + u64(epoch) + num(last) + u64(0) for site, epoch, last in vector)
    return bytes([version]) + num(len(vector)) + origins + num(0) + num(0) + num(first) + u64(0) + num(n)


class Reader:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Cut("truncated")
        self.at += n
        return self.data[self.at - n:self.at]

    def u8(self):
        return self.take(1)[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def num(self):
        value = shift = 0
        while shift < 64:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise Cut("an overlong number")

    def text(self):
        return self.take(self.num())

    def end(self):
        if self.at != len(self.data):
            raise Cut("bytes are left over")
