"""A third site with role = backup: what clients remove at the others comes back from there."""
import json
import re

import pytest
from site_user import Site
from support.stack.digest import wait_equal, wait_shape
from support.stack.failure import StackError
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

USER = "kept@example.org"
WITHIN = 420.0
FORMATS = ["sdbox", "maildir", "mdbox"]


def kept(replica, *words):
    return json.loads(replica.doveadm("-f", "json", "dovelane", "kept", "-u", USER, *words))


def unexpunge(replica, *words):
    said = replica.doveadm("dovelane", "unexpunge", "-u", USER, *words).decode()
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", said.splitlines()[-1])}


def has_kept(replica):
    return re.search(rb"\skept=[1-9]", replica.doveadm("dovelane", "status", "-u", USER))


def wait_until_there(replica, mails):
    """By what the worker says: no session is opened there."""

    def is_there():
        try:
            return f"messages={mails}".encode() in replica.doveadm("dovelane", "status", "-u", USER)
        except StackError:
            return False

    eventually(f"{replica.name} has {mails} mails", is_there)


def shape_of(names):
    return {name: [()] for name in names}


def test_all_is_deleted_and_comes_back(group):
    there = group(*FORMATS, backup="c")
    a, b, c = there.replicas
    names = [f"m{n}" for n in range(30)]
    with Site(a, USER) as site:
        for name in names:
            site.append("INBOX", name)
    with Site(b, USER) as site:
        site.create("F")
        site.append("F", "f")
    wait_equal(there.replicas, [USER], WITHIN)
    assert "here, backup" in c.doveadm("dovelane", "status").decode()
    with Site(a, USER) as site:
        site.move("INBOX", "m0", "F")
    wait_equal(there.replicas, [USER], WITHIN)
    assert kept(c) == []
    with Site(a, USER) as site:
        for name in names[1:]:
            site.flag("INBOX", name, "+", r"\Deleted")
        site.expunge_marked("INBOX")
    with Site(b, USER) as site:
        site.delete("F")
    wait_shape(a, USER, {"INBOX": {}}, WITHIN)
    wait_equal(there.replicas, [USER], WITHIN)
    eventually("all are kept", lambda: len(kept(c)) == 31)
    rows = kept(c)
    assert {(row["mailbox"], row["by"]) for row in rows} == {("INBOX", "site-a"), ("F", "site-b")}
    assert {row["subject"] for row in rows} == {f"mail {name}" for name in [*names, "f"]}
    for replica in (a, b):
        with pytest.raises(StackError, match="this site's role is full"):
            replica.doveadm("dovelane", "kept", "-u", USER)
    assert unexpunge(c, "--dry-run")["restored"] == 31
    assert unexpunge(c)["restored"] == 31
    wait_shape(a, USER, {"INBOX": shape_of(names[1:]), "F": shape_of(["m0", "f"])}, WITHIN)
    wait_equal(there.replicas, [USER], WITHIN)
    assert unexpunge(c) == {"restored": 0, "before": 31, "here": 0, "failed": 0, "bytes": 0}
    for replica in there.replicas:
        assert b"different" not in replica.doveadm("dovelane", "verify", "-u", USER, "bodies")


def test_changes_by_clients_at_the_backup_are_told(group):
    """What came from other sites, and an admin's word, are none. Nobody logs in there meanwhile: a
    login makes an INBOX."""
    there = group("sdbox", "maildir", backup="b")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "one")
        site.append("INBOX", "two")
        wait_until_there(b, 2)
        site.expunge("INBOX", "one")
    eventually("it is kept", lambda: has_kept(b))
    assert unexpunge(b)["restored"] == 1
    wait_shape(a, USER, {"INBOX": shape_of(["one", "two"])}, WITHIN)
    status = b.doveadm("dovelane", "status").decode()
    assert "here, backup" in status and "changes by clients" not in status
    with Site(b, USER) as site:
        site.append("INBOX", "here")
    logged(b.log, "a client or a delivery changed a mailbox at this site, whose role is backup")
    assert "changes by clients" in b.doveadm("dovelane", "status").decode()


def test_everything_is_killed_meanwhile(group):
    """kill -9 of the backup's workers and replicator while it keeps: each removed mail is kept,
    once."""
    there = group("sdbox", "maildir", backup="b")
    a, b = there.replicas
    names = [f"m{n}" for n in range(300)]
    with Site(a, USER) as site:
        for name in names:
            site.append("INBOX", name)
    wait_equal(there.replicas, [USER], WITHIN)
    with Site(a, USER) as site:
        for at in range(0, 300, 30):
            site.imap.select("INBOX", again=True)
            uids = [uid for name in names[at:at + 30] for uid in site.uid("INBOX", name)]
            site.imap.expunge("INBOX", uids)
            b.kill_some("dovelane-worker")
            if at % 90 == 0:
                b.kill_some("dovelane-replicator")
    wait_shape(a, USER, {"INBOX": {}}, WITHIN)
    wait_equal(there.replicas, [USER], WITHIN)
    rows = kept(b)
    assert sorted(row["subject"] for row in rows) == sorted(f"mail {name}" for name in names)
    assert unexpunge(b)["restored"] == 300
    wait_shape(a, USER, {"INBOX": shape_of(names)}, WITHIN)
    wait_equal(there.replicas, [USER], WITHIN)
