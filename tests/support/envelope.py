"""Writes the meta part of an entry (docs/envelope.md), so that tests can store mails without a milter. stack.lanes reads it."""
import os
import time

from support.stack.lanes import TEXTS


def number(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return number(len(data)) + data


def recipient(address, args="", state=0, attempts=0, code=0, reason="", last_attempt=0):
    return (text(address) + text(args) + number(state) + number(attempts) + number(code) + text(reason)
            + number(last_attempt))


def encode(recipients=("b@example.net",), size=0, arrived=None, marks=0, **texts):
    """recipients: addresses, or what recipient() gives. arrived: microseconds since 1970, now by default."""
    fields = {"queue_id": "4jWhSH0G8Sz1SS5l", "sender": "a@example.org", **texts}
    unknown = set(fields) - set(TEXTS)
    assert not unknown, f"no such field: {unknown}"
    out = (b"\x02" if marks else b"\x01") + number(time.time_ns() // 1000 if arrived is None else arrived) + number(size)
    out += b"".join(text(fields.get(name, "")) for name in TEXTS)
    out += number(len(recipients)) + b"".join(r if isinstance(r, bytes) else recipient(r) for r in recipients)
    return out + (number(marks) if marks else b"")


def entry_id():
    """As lib/mail/entryid.c makes them: 48 bits of milliseconds, 80 random bits."""
    return (time.time_ns() // 1000000).to_bytes(6, "big") + os.urandom(10)
