"""A site that joins, or that lost its users' mail, replaces no UIDVALIDITY of those who are there.

Nobody looks at the empty site meanwhile: a session there would make its own mailboxes."""
import shutil
import time
from pathlib import Path

import pytest
from site_user import Site
from support.stack import digest
from support.stack.group import FAST

pytestmark = pytest.mark.long

WITHIN = 240.0
NAMES = {"Drafts": "\\Drafts", "Sent": "\\Sent", "Junk": "\\Junk", "Trash": "\\Trash"}
AUTO = "namespace inbox {\n" + "".join(f"  mailbox {name} {{\n    auto = subscribe\n    special_use = {use}\n  }}\n" for name, use in NAMES.items()) + "}\n"
MORE = {"2.3": AUTO, "2.4": AUTO}


def shown(replica, user):
    """{folder: (UIDVALIDITY, names of its mails)}."""
    return {name: (folder.validity, sorted(m.name for m in folder.messages.values())) for name, folder in digest.read(replica, user).folders.items()}


def wait_same(replica, users, folders):
    """Until the replicas say that they have the same, and all of it is placed."""
    end = time.monotonic() + WITHIN
    for user in users:
        while True:
            said = replica.doveadm("dovelane", "verify", "-u", user, check=False).decode()
            if "verdict\tsame" in said.replace(" ", "\t") and "unplaced=0" in said and said.count("folder") >= folders:
                break
            assert time.monotonic() < end, f"{user}: {said}"
            time.sleep(0.3)


def filled(replica, user):
    """Sessions that have been there for long: each folder is made by its client, at another time than the others."""
    with Site(replica, user) as site:
        site.append("INBOX", "one")
        for name in NAMES:
            site.append(name, f"in {name}")
        site.append("INBOX", "two")
        site.expunge("INBOX", "one")


@pytest.mark.parametrize("formats", [("maildir", "sdbox"), ("sdbox", "maildir"), ("mdbox", "mdbox")], ids="-".join)
def test_a_joining_site_makes_no_folder_younger_than_those_of_the_full_one(group, formats):
    there = group(*formats, more=MORE)
    a, b = there.replicas
    there.end(b.name)
    users = [f"join{n}@example.org" for n in range(8)]
    for user in users:
        filled(a, user)
    time.sleep(2)   # a mailbox made from now on would be younger
    before = {user: shown(a, user) for user in users}
    there.start(b.name)
    wait_same(a, users, 5)
    assert {user: shown(a, user) for user in users} == before
    digest.wait_equal(there.replicas, users, WITHIN)
    assert {user: shown(a, user) for user in users} == before
    # The home of one is lost at the other site.
    user = users[0]
    there.end(b.name)
    shutil.rmtree(b.home(user))
    time.sleep(2)
    there.start(b.name)
    b.doveadm("dovelane", "resync", "-u", user)
    wait_same(a, [user], 5)
    assert shown(a, user) == before[user]
    digest.wait_equal(there.replicas, [user], WITHIN)
    assert shown(a, user) == before[user]


def without_state(replica, users):
    """As a site that had mail before it replicated."""
    shutil.rmtree(Path(replica.note["base"]) / "replicator")
    (Path(replica.note["base"]) / "replicator").mkdir()
    for user in users:
        shutil.rmtree(replica.store(user) / "dovelane")


@pytest.mark.parametrize("pause", [0, 1])
def test_sites_that_start_together_leave_the_full_one_its_mailboxes(group, pause):
    users = [f"two{n}@example.org" for n in range(20)]
    there = group("sdbox", "sdbox", users=users, more=MORE, settings={**FAST, "sweep_all": "1h"})
    a, b = there.replicas
    there.end(b.name)
    for user in users:
        filled(a, user)
    there.end(a.name)
    without_state(a, users)
    for user in users:
        shutil.rmtree(b.home(user), ignore_errors=True)
    time.sleep(2)
    there.start(a.name)
    time.sleep(pause)
    there.start(b.name)
    wait_same(a, users, 5)
    found = {user: shown(a, user) for user in users}
    logs = there.logs("UIDVALIDITY [0-9]+ becomes", 100)
    assert not logs, logs
    assert all(found[user]["INBOX"][1] == ["two"] for user in users)
    digest.wait_equal(there.replicas, users, WITHIN)
    assert {user: shown(a, user) for user in users} == found
