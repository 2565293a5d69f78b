"""What a mailbox's index log proves, and what it does not: rebuilds, rotations and restored backups before anybody looked."""
import os
import struct
import subprocess

import pytest
from worker_sites import append, imap, make_world, needs_dovecot
from support.worker_world import CLOSE, USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@pytest.fixture
def pair(tmp_path_factory):
    made = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    yield made[1], made[2], made
    made.stop()


def close(site):
    site.work(CLOSE)
    site.disconnect()


def fill(world, *names):
    for name in names:
        append(world[1], "INBOX", name)
    world.settle()
    world.settle()
    [mails] = world[1].root().rglob("INBOX/dbox-Mails")
    return mails


def rotate(site):
    """Once: the log before is dovecot.index.log.2, which the library opens only when it is asked for."""
    [log] = site.root().rglob("INBOX/**/dovecot.index.log")
    with open(log, "r+b") as file:
        file.seek(20)
        file.write(struct.pack("<I", 1000000000))   # when it was made
    site.doveadm("-o", "mail_index_log_rotate_min_size=1", "-o", "mail_index_log_rotate_max_size=100M", "-o", "mail_index_log_rotate_min_age=1h",
                 "flags", "add", "-u", USER, "\\Flagged", "mailbox", "INBOX", "all")
    assert list(site.root().rglob("INBOX/**/dovecot.index.log.2"))


def uid_of(site, name):
    box = site.imap()
    box.select("INBOX", readonly=True)
    uid = box.uid("SEARCH", None, "SUBJECT", f'"{name}"')[1][0].split()[0]     # the first that begins with it
    box.logout()
    return uid.decode()


def expunge(site, name):
    box = site.imap()
    box.select("INBOX")
    uid = uid_of(site, name)
    assert box.uid("STORE", uid, "+FLAGS", "(\\Deleted)")[0] == "OK"
    box.expunge()
    box.logout()


def shown(site):
    box = site.imap()
    box.select("INBOX", readonly=True)
    said = box.fetch("1:*", "(BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1]
    box.logout()
    return sorted(part[1].partition(b":")[2].strip().decode() for part in said if isinstance(part, tuple))


def settle(world):
    world[1].ingest()
    world.settle()
    world[1].ingest()
    world.settle()
    assert shown(world[1]) == shown(world[2])
    return shown(world[1])


def test_a_rebuild_that_a_rotation_hid_removes_nothing(pair):
    a, _, world = pair
    names = sorted(f"m{n:02}" for n in range(40))
    mails = fill(world, *names)
    close(a)
    for path in sorted(mails.glob("u.*"), key=lambda path: int(path.name[2:]))[2:5]:
        path.unlink()
    a.doveadm("force-resync", "-u", USER, "INBOX")
    rotate(a)
    assert settle(world) == names


@pytest.mark.parametrize("rotated", [False, True], ids=["", "rotated"])
def test_a_backup_whose_log_says_the_same_removes_no_mail_of_a_later_time(pair, rotated):
    """The mailbox alone is put back; Y gets X's UID, by the same words in the log, and is expunged."""
    a, _, world = pair
    mails = fill(world, "m0", "m1", "m2")
    close(a)
    kept = a.base / "kept"
    subprocess.run(["cp", "-a", str(mails), str(kept)], check=True)
    fill(world, "X")
    uid = uid_of(a, "X")
    close(a)
    for path in mails.glob("*"):
        path.unlink()
    subprocess.run(["cp", "-a", f"{kept}/.", str(mails)], check=True)
    append(a, "INBOX", "Y")
    assert uid_of(a, "Y") == uid
    if rotated:
        rotate(a)
    expunge(a, "Y")
    assert settle(world) == ["X", "m0", "m1", "m2"]


def test_kept_logs_lead_to_a_later_one_by_more_than_its_number(pair):
    """A log is kept, the old mailbox is put back beside it, and a rebuild that keeps nothing begins a log with the number that comes next."""
    a, _, world = pair
    mails = fill(world, "m0", "m1", "m2")
    kept = a.base / "kept"
    subprocess.run(["cp", "-a", str(mails), str(kept)], check=True)
    fill(world, "X", "Z")
    uid = uid_of(a, "X")
    close(a)
    log = mails / "dovecot.index.log"
    os.link(log, mails / f"dovelane.index.log-{log.stat().st_ino}")     # as the plugin does before a rebuild
    a.doveadm("force-resync", "-u", USER, "INBOX")
    for path in mails.glob("u.*"):
        path.unlink()
    subprocess.run(["cp", "-a", "--remove-destination", f"{kept}/.", str(mails)], check=True)
    for name in ("Y", "Y2", "Y3"):
        append(a, "INBOX", name)
    imap(a, "INBOX", *(("store", "1:3", how, "(\\Flagged)") for how in ("+FLAGS", "-FLAGS", "+FLAGS", "-FLAGS")))
    a.doveadm("force-resync", "-u", USER, "INBOX")
    assert uid_of(a, "Y") == uid
    expunge(a, "Y")
    assert settle(world) == ["X", "Y2", "Y3", "Z", "m0", "m1", "m2"]
