"""The alerts of replicas: each fires when the real thing is broken, and goes."""

import shutil
import signal

import pytest
from site_user import Site
from support.prometheus import pages, watched  # noqa: F401
from support.stack.digest import wait_equal
from test_damage import vanish
from test_unplaced import in_its_namespace

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus: ./setup long"),
]
USER = "watched@example.org"
WITHIN = 420


@pytest.fixture
def sites(group, pages, watched):  # noqa: F811
    """A factory: two sites, their replicators, and a Prometheus that scrapes them."""

    def make(*specs, **options):
        there = group(*specs, **options)
        targets = []
        for replica in there.replicas:
            page = pages("replicator")
            page.listened_by(replica)
            there.restart(replica.name)
            targets.append(("replicator", page))
        with Site(there.replicas[0], USER) as site:
            site.append("INBOX", "first")
        wait_equal(there.replicas, [USER], WITHIN)
        there.prometheus = watched(targets)
        there.prometheus.calm()
        return there

    return make


def test_a_site_is_away(sites):
    """Its Dovecot first, whose changes wait in its lanes; then its node."""
    there = sites("sdbox", "mdbox")
    prometheus = there.prometheus
    prometheus.now()
    there.end("dovecot-b")
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", "second")
    prometheus.fires("DovelaneDown")
    prometheus.fires("DovelaneReplicaBehind")
    prometheus.now()
    there.kill("redis-b")
    prometheus.fires("DovelaneReplicaAway")
    prometheus.now()
    there.start("redis-b")
    there.start("dovecot-b")
    prometheus.resolves("DovelaneReplicaAway")
    prometheus.resolves("DovelaneReplicaBehind")
    prometheus.calm()
    wait_equal(there.replicas, [USER], WITHIN)


def test_the_brake_holds(sites):
    """Thirty files of a Maildir are removed by hand."""
    there = sites("maildir", "sdbox")
    prometheus, user = there.prometheus, "brake@example.org"
    prometheus.now()
    vanish(there, user)
    prometheus.fires("DovelaneBrakeHolds")
    prometheus.now()
    there.replicas[0].doveadm("dovelane", "restore", "-u", user)
    prometheus.resolves("DovelaneBrakeHolds")
    prometheus.calm()
    wait_equal(there.replicas, [user], WITHIN)


def test_a_disk_is_full(sites):
    """At B there is room for three megabytes; A has eight."""
    there = sites("sdbox", "sdbox")
    a, b = there.replicas
    prometheus = there.prometheus
    mount = b.store(USER) / "mailboxes/INBOX/dbox-Mails"
    owner, kept = mount.stat(), b.store(USER) / "kept"
    options = f"size=3m,uid={owner.st_uid},gid={owner.st_gid},mode=0700"
    in_its_namespace(b, "cp", "-a", mount, kept)
    in_its_namespace(b, "mount", "-t", "tmpfs", "-o", options, "tmpfs", mount)
    in_its_namespace(b, "cp", "-a", f"{kept}/.", mount)
    prometheus.now()
    with Site(a, USER) as site:
        for n in range(8):
            site.append("INBOX", f"m{n}", size=1 << 20)
    prometheus.fires("DovelaneMailsUnplaced")
    prometheus.now()
    in_its_namespace(b, "mount", "-o", "remount,size=100m", mount)
    prometheus.resolves("DovelaneMailsUnplaced")
    prometheus.calm()
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_folder_cannot_be_read(sites):
    """A client moves a mail into it before the replicator looks, and then it is root's."""
    there = sites("sdbox", "sdbox")
    a = there.replicas[0]
    prometheus = there.prometheus
    with Site(a, USER) as site:
        for folder in ("From", "To"):
            site.create(folder)
        site.append("From", "moved")
        wait_equal(there.replicas, [USER], WITHIN)
        folder = a.store(USER) / "mailboxes/To"
        owner = folder.stat()
        assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
        site.move("From", "moved", "To")
    shutil.chown(folder, 0, 0)
    assert a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    prometheus.now()
    prometheus.fires("DovelaneFolderUnreadable")
    prometheus.now()
    assert there.replicas[1].doveadm("fetch", "-u", USER, "uid", "mailbox", "From", "all").strip()
    shutil.chown(folder, owner.st_uid, owner.st_gid)
    a.doveadm("dovelane", "resync", "-u", USER)
    prometheus.resolves("DovelaneFolderUnreadable")
    prometheus.calm()
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_backup_has_no_room(sites):
    """Half a megabyte for what it keeps, and three are removed elsewhere."""
    there = sites("sdbox", "sdbox", backup="b")
    a, b = there.replicas
    prometheus = there.prometheus
    with Site(a, USER) as site:
        for n in range(3):
            site.append("INBOX", f"m{n}", size=1 << 20)
    wait_equal(there.replicas, [USER], WITHIN)
    kept, owner = b.store(USER) / "dovelane/kept", b.store(USER).stat()
    kept.mkdir()
    shutil.chown(kept, owner.st_uid, owner.st_gid)
    options = f"size=512k,uid={owner.st_uid},gid={owner.st_gid},mode=0700"
    in_its_namespace(b, "mount", "-t", "tmpfs", "-o", options, "tmpfs", kept)
    prometheus.now()
    with Site(a, USER) as site:
        for n in range(3):
            site.expunge("INBOX", f"m{n}")
    prometheus.fires("DovelaneBackupCannotKeep")
    prometheus.now()
    in_its_namespace(b, "mount", "-o", "remount,size=100m", kept)
    prometheus.resolves("DovelaneBackupCannotKeep")
    prometheus.calm()
    wait_equal(there.replicas, [USER], WITHIN)
