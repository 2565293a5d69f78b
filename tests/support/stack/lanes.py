"""What lies in the lanes: entries read from every node, without leasing them."""
import re
from dataclasses import dataclass

from ..frames import Cut, Reader
from . import resp

PREFIX = "dovelane:"
WAITING, SENT, FAILED, BOUNCED, RETAINED = range(5)
TEXTS = ("queue_id host sender sender_args client_name client_addr client_port helo protocol login login_method login_sender "
         "tls_version tls_cipher tls_bits tls_subject tls_issuer message_id").split()
ORACLE_ID = re.compile(rb"^X-Oracle-Id:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)


class EnvelopeError(ValueError):
    """The meta part is not an envelope."""


@dataclass
class Recipient:
    address: str
    args: str
    state: int
    attempts: int
    code: int
    text: str
    last_attempt: int
    site: int = 0


def recipient(number, text):
    address, args, state = text(), text(), number()
    site = number() if state == RETAINED else 0
    return Recipient(address, args, state, number(), number(), text(), number(), site)


def decode_envelope(data):
    """The fields by name; `recipients` is a list of Recipient."""
    if data[:1] not in (b"\x01", b"\x02", b"\x03"):
        raise EnvelopeError(f"version {data[:1]!r}")
    reader = Reader(data, 1)
    number = reader.num

    def text():
        return reader.text().decode(errors="surrogateescape")

    try:
        envelope = {"arrived": number(), "size": number(), **{name: text() for name in TEXTS}}
        envelope["recipients"] = [recipient(number, text) for _ in range(number())]
        envelope["marks"] = 0 if data[:1] == b"\x01" else number()
        reader.end()
    except Cut as error:
        raise EnvelopeError(str(error)) from None
    return envelope


@dataclass
class Entry:
    """One entry of one lane on one node."""
    node: str
    lane: str
    sequence: int
    id: str
    revision: int
    attempts: int
    age: int
    state: str
    envelope: dict
    oracle_id: str

    @property
    def open(self):
        """Addresses that are not delivered yet; a failure counts until Postfix has it."""
        return [recipient.address for recipient in self.envelope["recipients"] if recipient.state in (WAITING, FAILED)]


def names(connection, pattern=PREFIX + "*"):
    """Lane name to (entries, bytes)."""
    found, cursor = {}, 0
    while True:
        cursor, flat = connection.call("LANE.LIST", cursor, "MATCH", pattern, "COUNT", 1000)
        cursor = int(cursor)
        for key, length, size in zip(flat[0::3], flat[1::3], flat[2::3]):
            found[key.decode()] = (length, size)
        if not cursor:
            return found


def length(address, pattern=PREFIX + "*"):
    """Entries in all lanes of a node that fit the pattern."""
    with resp.Connection(address) as connection:
        return sum(entries for entries, _ in names(connection, pattern).values())


def entries(node, address, pattern=PREFIX + "*"):
    """Every entry of the node's lanes."""
    with resp.Connection(address, timeout=30) as connection:
        for lane in names(connection, pattern):
            position = 1
            while position:
                position, block = connection.call("LANE.READ", lane, position, "COUNT", 500, "BYTES", 4 << 20)
                for sequence, name, revision, attempts, age, meta, body, state in block:
                    found = ORACLE_ID.search(body[:65536])
                    yield Entry(node, lane, sequence, name.hex(), revision, attempts, age, state.decode(), decode_envelope(meta),
                                found[1].decode() if found else None)
