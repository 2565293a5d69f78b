"""A mail that a site cannot place: it is kept, tried again, shown by status; nobody else waits for it."""
import shutil
import subprocess
import time

import pytest
from site_user import Site
from support.stack.digest import wait_equal, wait_shape
from support.stack.dovecot import MAIL_USER
from support.stack.imap import ImapError

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "small@example.org"
OTHER = "roomy@example.org"


def in_its_namespace(replica, *words):
    """A command that sees the mounts of a replica's Dovecot, and makes them there. Its root, too, may be another one."""
    subprocess.run(["nsenter", "--target", str(replica.pid), "--mount", "--root", *map(str, words)], check=True)


def status(replica, user):
    """Fields of the state's row."""
    row = replica.doveadm("dovelane", "status", "-u", user).decode().splitlines()[0]
    return {name: int(value) for name, _, value in (word.partition("=") for word in row.split()) if value.isdigit()}


def wait_status(replica, user, well):
    end = time.monotonic() + WITHIN
    while not well(found := status(replica, user)):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


@pytest.mark.test
@pytest.mark.parametrize("storage", ["sdbox", "mdbox"])
def test_a_disk_that_is_full_at_one_site(group, storage):
    """B's disk for the user's mail holds 3 MB, A's mails are 8: what does not fit waits, and comes when there is room."""
    there = group("sdbox", storage)
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    # The mail's own directory, not the state's: a disk that holds neither is the next test.
    mount = b.store(USER) / {"sdbox": "mailboxes/INBOX/dbox-Mails", "mdbox": "storage"}[storage]
    owner = mount.stat()
    options = f"size=3m,uid={owner.st_uid},gid={owner.st_gid},mode=0700"
    copy = b.store(USER) / "kept"
    subprocess.run(["cp", "-a", str(mount), str(copy)], check=True)
    in_its_namespace(b, "mount", "-t", "tmpfs", "-o", options, "tmpfs", mount)
    in_its_namespace(b, "cp", "-a", f"{copy}/.", mount)
    with Site(a, USER) as site:
        for n in range(8):
            site.append("INBOX", f"m{n}", "\\Flagged", size=1 << 20)
        site.append("INBOX", "gone", size=1 << 20)
        site.expunge("INBOX", "gone")
    with Site(a, OTHER) as other:
        other.append("INBOX", "o")
    assert wait_shape(b, OTHER, {"INBOX": {"o": [()]}}, WITHIN) is None
    found = wait_status(b, USER, lambda found: found["unplaced"] > 0)
    assert found["unplaced"] < 9
    with pytest.raises(ImapError), Site(b, USER) as site:
        for n in range(4):
            site.append("INBOX", f"b{n}", size=1 << 20)
    in_its_namespace(b, "mount", "-o", "remount,size=100m", mount)
    digests = wait_equal(there.replicas, [USER], WITHIN)[USER]
    shape = digests["dovecot-a"].shape()["INBOX"]
    assert {name: shape[name] for name in (f"m{n}" for n in range(8))} == {f"m{n}": [("\\flagged",)] for n in range(8)}
    assert "gone" not in shape and "first" in shape
    wait_status(b, USER, lambda found: found["unplaced"] == 0)


@pytest.mark.parametrize("storage", ["sdbox", "maildir"])
def test_a_disk_that_holds_neither_mail_nor_state(group, storage):
    """All of B's home is on 4 MB, the state's database too."""
    there = group("sdbox", storage)
    a, b = there.replicas
    home = b.home(USER)
    home.mkdir(parents=True)
    shutil.chown(home.parent, MAIL_USER)
    in_its_namespace(b, "mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "tmpfs", home)
    with Site(a, USER) as site:
        for n in range(12):
            site.append("INBOX", f"m{n}", size=1 << 20)
    with Site(a, OTHER) as other:
        other.append("INBOX", "o")
    assert wait_shape(b, OTHER, {"INBOX": {"o": [()]}}, WITHIN) is None
    time.sleep(3)
    in_its_namespace(b, "mount", "-o", "remount,size=100m", home)
    shape = wait_equal(there.replicas, [USER], WITHIN)[USER]["dovecot-a"].shape()
    assert shape == {"INBOX": {f"m{n}": [()] for n in range(12)}}


QUOTA = {"2.3": """
mail_plugins = $mail_plugins quota
plugin {
  quota = count:User quota
  quota_rule = *:storage=60K
  quota_vsizes = yes
}
""", "2.4": """
mail_plugins {
  quota = yes
}
quota "User quota" {
  driver = count
  storage_size = 60K
}
"""}


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_quota_that_the_union_exceeds(group, version):
    """Each site let its mail in; together they are above the quota. Both have both, and neither lets more in."""
    there = group(f"sdbox@{version}", "sdbox", more=QUOTA)
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut()
    for replica, name in ((a, "x"), (b, "y")):
        with Site(replica, USER) as site:
            site.append("INBOX", name, size=45_000)
    there.heal()
    shape = wait_equal(there.replicas, [USER], WITHIN)[USER]["dovecot-a"].shape()
    assert shape == {"INBOX": {name: [()] for name in "mxy"}}
    for replica in there.replicas:
        with Site(replica, USER) as site, pytest.raises(ImapError, match="OVERQUOTA"):
            site.append("INBOX", "more", size=20_000)


def test_a_mail_larger_than_a_lane(group):
    """25 MB through lanes of 8 MiB, in parts; what comes behind it does not wait for ever."""
    there = group("sdbox", "mdbox", settings={"replica_lane": "8388608", "replicator_memory": "8388608", "sweep_active": "2s", "sweep_dirty": "500ms",
                                               "resend_after": "1s", "resend_most": "5s", "hello_every": "2s", "exchange_after": "3s"})
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "huge", size=25 << 20)
        site.append("INBOX", "small")
        site.append("INBOX", "huge2", "\\Seen", size=12 << 20)
    with Site(a, OTHER) as other:
        other.append("INBOX", "o")
    assert wait_shape(b, OTHER, {"INBOX": {"o": [()]}}, WITHIN) is None
    shape = wait_equal(there.replicas, [USER], WITHIN)[USER]["dovecot-b"].shape()
    assert shape == {"INBOX": {"huge": [()], "small": [()], "huge2": [("\\seen",)]}}
