"""When all sites count a user's changes alike. A client that changes the site after this misses no
flag (docs/replication-protocol.md, "Modseqs"). Equal mailboxes do not say so: a RAISE may be on its
way still."""
import contextlib
import re
import sqlite3
import tempfile
import time
from pathlib import Path

from support.history.rounds import is_settled
from support.stack.digest import Unequal, names
from support.stack.imap import ImapError, mailbox
from support.state_copy import copy_state


def highest(replicas, user):
    """{(site, folder): HIGHESTMODSEQ}"""
    found = {}
    for replica in replicas:
        with replica.imap(user) as session:
            for folder in names(session.command('LIST "" "*"')[1]):
                with contextlib.suppress(ImapError):    # a parent of folders that is none
                    _, lines = session.command(f"STATUS {mailbox(folder)} (HIGHESTMODSEQ)")
                    modseq = re.search(rb"HIGHESTMODSEQ (\d+)", b" ".join(lines))
                    found[replica.name, folder] = int(modseq[1])
    return found


def owes(state):
    """Whether a site is to raise modseqs, or waits for another one to do so: rows `k` of the
    user's state, a path."""
    with tempfile.TemporaryDirectory() as copy:
        copy_state(state, Path(copy))
        with contextlib.closing(sqlite3.connect(Path(copy) / "state.db")) as rows:
            (found,) = rows.execute("select count(*) from app where substr(key, 1, 1) = x'6b'")
    return found[0] > 0


def owing(replicas, user):
    """Names of sites."""
    return [each.name for each in replicas if owes(each.store(user) / "dovelane")]


def count_alike(replicas, user):
    """Nobody owes at two looks, and nobody raised in between. A site owes what it told until that
    is in the other one's state: so between two such looks there is nothing on its way."""
    before = highest(replicas, user)
    if not is_settled(replicas, user):
        return False
    return not owing(replicas, user) and not owing(replicas, user) and \
        highest(replicas, user) == before


def wait_alike(replicas, user, within):
    """Of mailboxes that are equal already, while no client changes anything."""
    end = time.monotonic() + within
    while not count_alike(replicas, user):
        if time.monotonic() > end:
            raise Unequal(f"{user}: modseqs are not settled within {within:g} s: "
                          f"{highest(replicas, user)}, "
                          f"owed by {owing(replicas, user)}")
        time.sleep(0.1)
