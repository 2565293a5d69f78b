"""mbsync and offlineimap, which keep copies of mailboxes, load nothing again because a site joins.

They have synchronised with the full site before it replicates. After the join they do so again,
with the full site and then with the one that was empty, as clients do that move there.
"""
import contextlib
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from site_user import mail
from support.stack import digest, dovecot, resp
from support.stack.group import FAST
from test_joining import MORE, filled, wait_same

pytestmark = pytest.mark.long

WITHIN = 240.0
USERS = ["copy0@example.org", "copy1@example.org"]
LANES = {**FAST, "replica_lane": "8MB", "replicator_memory": "8MB"}
MBSYNC = """
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
Sync Pull
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
"""


class Program:
    """One that keeps a copy of one user's mail."""

    def __init__(self, directory, user):
        self.base, self.user = directory / type(self).__name__ / user, user
        self.mail = self.base / "mail"
        for path in (self.mail, self.base / "state"):
            path.mkdir(parents=True)

    def run(self, replica):
        """Synchronises; what it says."""
        config = self.base / "config"
        port = replica.note["imap"].rpartition(":")[2]
        config.write_text(self.CONFIG.format(port=port, user=self.user, password=dovecot.PASSWORD,
                                             base=self.base, mail=self.mail))
        done = subprocess.run([*self.WORDS, config], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=WITHIN, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, said
        return said

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


class Offlineimap(Program):
    CONFIG, WORDS = OFFLINEIMAP, ("offlineimap", "-o", "-c")

    @staticmethod
    def complaint(said):
        return re.findall(r".*(?:Copy message|[Vv]alidity|ERROR).*", said)


@pytest.fixture(params=[Mbsync, Offlineimap], ids=["mbsync", "offlineimap"])
def program(request):
    if not shutil.which(request.param.WORDS[0]):
        pytest.skip(f"{request.param.WORDS[0]} is not here (./setup test)")
    return request.param


def copied(program, replica, directory):
    """A copy of each user's mail."""
    copies = [program(directory, user) for user in USERS]
    for copy in copies:
        copy.run(replica)
        shown = digest.read(replica, copy.user)
        assert len(copy.files()) == shown.count() > 0, (copy.files(), shown.shape())
    return copies


def give_mail(replica, count, size):
    """Mails, of which some were removed again, and folders."""
    for user in USERS:
        filled(replica, user)
        with replica.imap(user) as session:
            session.create("Archive/2025")
            for number in range(count):
                session.append("Archive/2025", mail(f"{user[:5]}-{number}", size))
            session.expunge("Archive/2025", session.uids("Archive/2025")[f"{user[:5]}-3"])


def new_site(there, replica):
    """A site that has never replicated, and has no mail."""
    there.end(replica.name)
    for name in ("replicator", "mail/example.org"):
        path = Path(replica.note["base"]) / name
        shutil.rmtree(path, ignore_errors=True)
    (Path(replica.note["base"]) / "replicator").mkdir()
    with contextlib.closing(resp.Connection(there.nodes_of[replica.letter])) as redis:
        redis.call("FLUSHALL")


def moved_in(stock, site):
    """What a site without replication had is another site's."""
    there, old = Path(site.note["mail"]), Path(stock.note["mail"])
    stock.end()
    shutil.rmtree(there)
    shutil.move(old, there)


def judge(copies, before, replica):
    """Nothing comes again, nothing goes, and the program sees no other UIDVALIDITY."""
    for copy in copies:
        said = copy.run(replica)
        assert not copy.complaint(said), said
        assert copy.files() == before[copy], said


def test_the_judge_sees_a_mailbox_that_has_to_be_loaded_again(group, program, tmp_path):
    stock, = group("sdbox", replication="off", more=MORE, users=USERS).replicas
    give_mail(stock, 8, 300)
    copies = copied(program, stock, tmp_path)
    before = {copy: copy.files() for copy in copies}
    judge(copies, before, stock)
    stock.doveadm("mailbox", "update", "-u", USERS[1], "--uid-validity", "4000000000",
                  "Archive/2025")
    judge(copies[:1], before, stock)
    with pytest.raises(AssertionError, match="(?i)validity"):
        judge(copies[1:], before, stock)


@pytest.mark.parametrize("first", ["full", pytest.param("empty", marks=pytest.mark.exhaustive)])
def test_programs_that_copy_load_nothing_again_when_a_site_joins(group, program, tmp_path, first):
    """18 MB of mail go through lanes of 8 MB."""
    stock, = group("sdbox", replication="off", more=MORE, users=USERS).replicas
    give_mail(stock, 150, 60000)
    copies = copied(program, stock, tmp_path)
    before = {copy: copy.files() for copy in copies}
    there = group("sdbox", "sdbox", more=MORE, users=USERS, settings=LANES)
    a, b = there.replicas
    for replica in (a, b):
        new_site(there, replica)
    moved_in(stock, a)
    time.sleep(1)       # a mailbox made from now on would be younger
    for replica in ((a, b) if first == "full" else (b, a)):
        there.start(replica.name)
        time.sleep(1)
    wait_same(a, USERS, 6)
    judge(copies, before, a)
    digest.wait_equal(there.replicas, USERS, WITHIN)
    judge(copies, before, a)
    judge(copies, before, b)
