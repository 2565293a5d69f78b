"""mbsync and offlineimap, which keep copies of mailboxes, load nothing again because a site joins.

They have synchronised with the full site before it replicates. After the join they do so again,
with the full site and then with the one that was empty, as clients do that move there.
"""
import contextlib
import shutil
import time
from pathlib import Path

import pytest
from copying import Mbsync, Offlineimap
from site_user import mail
from support.stack import digest, resp
from support.stack.group import FAST
from test_joining import MORE, filled, wait_same

pytestmark = pytest.mark.long

WITHIN = 240.0
USERS = ["copy0@example.org", "copy1@example.org"]
LANES = {**FAST, "replica_lane": "8MB", "replicator_memory": "8MB"}


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
