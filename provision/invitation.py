"""Invitations: each lets one host in, once, for a while.

A token is the SHA-256 of the authority's certificate and a secret, in base64 without signs that a shell minds. The newcomer knows by
the first whom it talks to, and proves the second. Here lies a hash of the secret alone.
"""
import base64
import contextlib
import fcntl
import hashlib
import hmac
import json
import secrets
import time

import files
from host import Trouble
from journal import DIRECTORY

FILE = DIRECTORY + "/invitations.json"
SECRET = 24
MOST_TRIES = 10
LIFE = 30 * 60


def make_token(fingerprint, secret):
    return base64.urlsafe_b64encode(fingerprint + secret).decode().rstrip("=")


def read_token(token):
    """(fingerprint, secret)"""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 32 + SECRET:
        raise Trouble("the token is not whole: copy it as `dovelane invite` printed it, without a space or a line's end in it")
    return raw[:32], raw[32:]


def hashed(secret):
    return hashlib.sha256(b"dovelane invitation\0" + secret).hexdigest()


class Invitations:
    """The file of them. Each change is made under a lock and synced before anybody hears of it."""

    def __init__(self, host, now=time.time):
        self.host, self.now = host, now
        self.file = host.path(FILE)

    @contextlib.contextmanager
    def changed(self):
        with open(self.file.with_name("invitations.lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = self.load()
            yield data
            day = self.now() - 86400
            data["open"] = [i for i in data["open"] if i["until"] > day]
            files.write(self.file, json.dumps(data, indent=1).encode(), 0o600)

    def load(self):
        try:
            return json.loads(self.file.read_text())
        except FileNotFoundError:
            return {"open": [], "failed": 0}

    def new(self, replace=None, life=LIFE):
        """The secret of a new one."""
        secret = secrets.token_bytes(SECRET)
        with self.changed() as data:
            if not any(self.usable(i) for i in data["open"]):
                data["failed"] = 0
            data["open"].append({"secret": hashed(secret), "until": self.now() + life, "used": None, "replace": replace})
        return secret

    def usable(self, invitation):
        return not invitation["used"] and invitation["until"] > self.now()

    def any_open(self):
        data = self.load()
        return data["failed"] < MOST_TRIES and any(self.usable(i) for i in data["open"])

    def last_end(self):
        return max((i["until"] for i in self.load()["open"] if self.usable(i)), default=0)

    def find(self, data, secret):
        """The invitation of this secret, or Trouble that says what became of it. Who knows the secret may know that much."""
        want, found = hashed(secret), None
        for invitation in data["open"]:
            if hmac.compare_digest(invitation["secret"], want):
                found = invitation
        if data["failed"] >= MOST_TRIES:
            raise Trouble(f"there were {MOST_TRIES} tries with wrong tokens: all invitations have ended. Make a new one with `dovelane invite`")
        if not found:
            data["failed"] += 1
            if data["failed"] >= MOST_TRIES:
                for invitation in data["open"]:
                    invitation["until"] = min(invitation["until"], self.now())
            raise Trouble("this token is not known here: it was mistyped, is more than a day old, or was made before a new installation. Make a new one with `dovelane invite`")
        if found["used"]:
            raise Trouble(f"this token was used by {found['used']} already: a token is for one host. Make a new one with `dovelane invite`")
        if found["until"] <= self.now():
            raise Trouble(f"this token ended {int((self.now() - found['until']) / 60) + 1} min ago. Make a new one with `dovelane invite`")
        return found

    def look(self, secret):
        """Its --replace, without using it."""
        with self.caught() as data:
            return self.find(data, secret)["replace"]

    @contextlib.contextmanager
    def caught(self):
        """As changed(), and what was counted is kept also where it is refused."""
        trouble = None
        with self.changed() as data:
            try:
                yield data
            except Trouble as e:
                trouble = e
        if trouble:
            raise trouble

    @contextlib.contextmanager
    def use(self, secret, name):
        """Marks it used when the body raises nothing; nobody else can use it meanwhile."""
        with self.caught() as data:
            invitation = self.find(data, secret)
            yield invitation
            invitation["used"] = name
