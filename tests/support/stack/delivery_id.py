"""The line by which the relay names a mail to our own Dovecot, and the GUID that follows: dovecot-plugin/protocol/delivery_id.h."""
import hashlib
import hmac
import secrets


def digest(text):
    text = text.replace(b"\r\n", b"\n")
    return hashlib.sha256(text + b"\n" * (text[-1:] not in (b"", b"\n"))).hexdigest()


def code(key, entry, text, recipient):
    said = f"dovelane-id 2:{entry}:{digest(text)}:{recipient.lower()}"
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()[:32]


def line(key, text, *recipients, entry=None):
    """(entry, the line) in front of text."""
    entry = entry or secrets.token_hex(16)
    codes = "".join(("\r\n " if n % 2 == 0 else " ") + code(key, entry, text, one) for n, one in enumerate(recipients))
    return entry, f"Dovelane-Id: {entry}{codes}\r\n".encode()


def guid(entry, text, recipient):
    said = hashlib.sha256(f"dovelane-guid 2:{entry}:{digest(text)}:{recipient}".encode()).digest()[:12]
    return (said + hashlib.sha256(b"dovelane-guid check:" + said).digest()[:4]).hex()
