"""Programs that keep a copy of a user's mail: mbsync and offlineimap.

What each calls a sync is its own; the copies are Maildirs, a directory a folder.
"""
import re
import subprocess

from support.stack import dovecot

WITHIN = 240.0
MBSYNC = """
FSync no

IMAPStore far
Host 127.0.0.1
Port {port}
User {user}
Pass {password}
SSLType None
AuthMechs LOGIN

MaildirStore near
Path {mail}/
Inbox {mail}/INBOX
SubFolders Verbatim

Channel copy
Far :far:
Near :near:
Patterns *
Create Near
Sync {sync}
SyncState {base}/state/
"""
OFFLINEIMAP = """
[general]
accounts = copy
metadata = {base}/metadata
ui = basic
fsync = False
[Account copy]
localrepository = near
remoterepository = far
[Repository near]
type = Maildir
localfolders = {mail}
[Repository far]
type = IMAP
remotehost = 127.0.0.1
remoteport = {port}
remoteuser = {user}
remotepass = {password}
ssl = no
starttls = no
auth_mechanisms = LOGIN
createfolders = False
"""


class Program:
    """One that keeps a copy of one user's mail."""

    def __init__(self, directory, user, sync="Pull"):
        self.base, self.user, self.sync = directory / type(self).__name__ / user, user, sync
        self.mail = self.base / "mail"
        for path in (self.mail, self.base / "state"):
            path.mkdir(parents=True)

    def attempt(self, replica):
        """Synchronises; whether it says that it did, and what else it says."""
        config = self.base / "config"
        port = replica.note["imap"].rpartition(":")[2]
        config.write_text(self.CONFIG.format(port=port, user=self.user, password=dovecot.PASSWORD,
                                             base=self.base, mail=self.mail, sync=self.sync))
        done = subprocess.run([*self.WORDS, config], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=WITHIN, check=False)
        return done.returncode == 0, done.stdout.decode(errors="replace")

    def run(self, replica):
        """Synchronises; what it says."""
        done, said = self.attempt(replica)
        assert done, said
        return said

    def never_asks(self, folder, uid):
        """Whether it would never load a mail that came to this folder under this UID by now."""
        return False

    def files(self):
        """{file below a cur or new, without its flags: when it was last changed}."""
        found = [path for path in self.mail.rglob("*") if path.parent.name in ("cur", "new")]
        return {str(path.relative_to(self.mail)).partition(":")[0]: path.stat().st_mtime_ns
                for path in found}


class Mbsync(Program):
    CONFIG, WORDS = MBSYNC, ("mbsync", "-V", "-a", "-c")

    @staticmethod
    def complaint(said):
        return re.findall(r".*(?:UIDVALIDITY|Error).*", said)

    def never_asks(self, folder, uid):
        """It asks for UIDs above the highest one that it has seen there."""
        state = self.base / "state" / folder
        found = state.exists() and re.search(r"^MaxPulledUid (\d+)$", state.read_text(), re.M)
        return bool(found) and uid <= int(found[1])


class Offlineimap(Program):
    CONFIG, WORDS = OFFLINEIMAP, ("offlineimap", "-o", "-c")

    @staticmethod
    def complaint(said):
        return re.findall(r".*(?:Copy message|[Vv]alidity|ERROR).*", said)
