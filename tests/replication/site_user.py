"""One user at one replica, as a scenario's script speaks of it: mails are called by name, not by UID."""
import re
import smtplib

from support.stack import digest
from support.stack.imap import Imap, mailbox

LINE = b"All work and no play makes a test suite a dull reader; every mail says who it is. 0123456789\r\n"


def mail(name, size=300):
    """A mail that carries its name in X-Mail. The same name and size are the same bytes."""
    head = (f"From: <sender@stack.example>\r\nTo: <user@example.org>\r\nSubject: mail {name}\r\nX-Mail: {name}\r\n"
            f"Message-ID: <{name}@generator.example>\r\nDate: Thu, 01 Jan 2026 00:00:00 +0000\r\n\r\n").encode()
    return head + (LINE * (size // len(LINE) + 1))[:max(2, size - 2)].rstrip(b"\r\n") + b"\r\n"


def deliver(replica, user, name, size=300):
    """One mail by LMTP; returns when the server has promised it."""
    host, _, port = replica.note["lmtp"].rpartition(":")
    with smtplib.LMTP(host, int(port), timeout=240) as session:
        session.sendmail("sender@stack.example", [user], mail(name, size))


class Site:
    """A session that opens itself again when the server closed it."""

    def __init__(self, replica, user):
        self.replica, self.user, self.session = replica, user, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.session is not None:
            self.session.close()
            self.session = None

    @property
    def imap(self) -> Imap:
        if self.session is None:
            self.session = self.replica.imap(self.user)
        return self.session

    def uid(self, folder, name, copy=None):
        """The UIDs of a mail: all its copies, or only the n-th."""
        self.imap.select(folder, again=True)
        found = self.imap.uids(folder).get(name)
        assert found, f"{self.replica.name}: no mail {name!r} in {folder!r} of {self.user}"
        return found if copy is None else found[copy]

    def append(self, folder, name, *flags, size=300):
        return self.imap.append(folder, mail(name, size), flags)

    def deliver(self, name, size=300):
        deliver(self.replica, self.user, name, size)

    def flag(self, folder, name, how, *flags):
        """how: "+" or "-" or "=" """
        self.imap.store(folder, self.uid(folder, name), {"+": "+FLAGS", "-": "-FLAGS", "=": "FLAGS"}[how], *flags)

    def expunge(self, folder, name, copy=None):
        """As a client that looks again: the mail may have got another UID since its own was asked for."""
        before = left = self.uid(folder, name)
        for _ in range(10):
            self.imap.expunge(folder, left if copy is None else left[min(copy, len(left) - 1)])
            left = self.imap.uids(folder).get(name, [])
            if len(left) < (1 if copy is None else len(before)):
                return
        raise AssertionError(f"{name} was not expunged: UIDs {before}, now {left}")

    def expunge_marked(self, folder):
        """A client's EXPUNGE of whatever is marked."""
        self.imap.select(folder, again=True)
        self.imap.command("EXPUNGE")

    def copy(self, folder, name, target):
        self.imap.copy(folder, self.uid(folder, name, 0), target)

    def move(self, folder, name, target):
        self.imap.move(folder, self.uid(folder, name), target)

    def create(self, folder):
        self.imap.create(folder)

    def delete(self, folder):
        self.imap.delete(folder)

    def rename(self, folder, target):
        self.imap.rename(folder, target)

    def subscribe(self, folder, on=True):
        self.imap.subscribe(folder, on)

    def annotate(self, folder, entry, value):
        self.imap.set_metadata(folder, entry, value)

    # -- rights and scripts ----------------------------------------------------------------------------------------------

    def grant(self, folder, who, rights):
        """rights "": none any more."""
        self.imap.command(f"SETACL {mailbox(folder)} {who} {rights}" if rights else f"DELETEACL {mailbox(folder)} {who}")

    def rights(self, folder):
        """{who: rights}, the owner's own left out."""
        return digest.rights(self.imap, folder)

    def script(self, name, text, active=False):
        self.replica.doveadm("sieve", "put", "-u", self.user, *(["-a"] if active else []), name, text=text.encode())

    def script_active(self, name):
        self.replica.doveadm("sieve", "activate", "-u", self.user, name)

    def script_delete(self, name):
        self.replica.doveadm("sieve", "delete", "-u", self.user, name)

    def scripts(self):
        """{name: text}, the active one's name behind "active"."""
        found = {}
        for line in self.replica.doveadm("sieve", "list", "-u", self.user).decode().splitlines():
            name, _, mark = line.strip().partition(" ")
            text = self.replica.doveadm("sieve", "get", "-u", self.user, name).decode().replace("\r\n", "\n")
            found[name] = text.removeprefix("sieve script:").strip()
            if mark.strip():
                found["active"] = name
        return found

    def annotations(self, *folders):
        """{(folder, entry): value} of the private and shared annotations."""
        return {key: value for folder in folders for key, value in digest.annotations(self.imap, folder).items()}

    # -- behind Dovecot's back (Maildir) ---------------------------------------------------------------------------------

    def maildir_files(self, name=None):
        """Files of INBOX's Maildir; those of one mail."""
        store = self.replica.store(self.user)
        found = [path for folder in ("new", "cur") for path in sorted((store / folder).glob("*"))]
        return [path for path in found if name is None or re.search(rf"^X-Mail: {name}\r?$".encode(), path.read_bytes(), re.M)]

    def maildir_drop(self, name):
        """A delivery by another program: tmp/, then a rename into new/."""
        import os
        import shutil
        store = self.replica.store(self.user)
        path = store / "tmp" / f"1700000000.M{abs(hash(name)) % 999999}P1.elsewhere"
        path.write_bytes(mail(name).replace(b"\r\n", b"\n"))
        owner = store.stat()
        shutil.chown(path, owner.st_uid, owner.st_gid)
        os.rename(path, store / "new" / path.name)

    def maildir_flag(self, name, letters):
        """Another program marks the mail by renaming its file."""
        path, = self.maildir_files(name)
        path.rename(path.parent.parent / "cur" / (path.name.partition(":2,")[0] + ":2," + letters))

    def maildir_unlink(self, name):
        for path in self.maildir_files(name):
            path.unlink()
