"""An mdbox that lost its map: what Dovecot's rebuild puts back is there once, and nothing of it that was expunged."""
import fcntl
import re
import shutil
import threading
import time

import pytest
from worker_sites import append, crash_world, equal, imap, make_world, needs_dovecot, subjects
from support.frames import CLOSE, HELLO_TOO, TICK
from support.worker_world import USER, Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@pytest.mark.long
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_lost_map_of_an_mdbox_doubles_nothing_and_brings_nothing_back(tmp_path_factory, closed):
    """Its files have the mails still, also those that were expunged and not purged, and one that nobody has heard of yet."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    try:
        site, peer = world[1], world[2]
        imap(site, None, ("create", "F"))
        for i in range(6):
            append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "F", "f")
        imap(site, "INBOX", ("copy", "1", "INBOX"), ("copy", "2", "F"))
        world.settle()
        imap(site, "INBOX", ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        imap(site, "INBOX", ("copy", "3", "F"), ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        imap(peer, "INBOX", ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        before = equal(world, uids=False)
        if closed:
            site.work(CLOSE)
        append(site, "INBOX", "late")
        for path in map_and_indexes(site):
            path.unlink()
        for _ in range(3):
            world.settle()
        late = equal(world, uids=False)
        # "late", and the one that was moved to F and lives there: whether a client moved it back nobody knows.
        assert len(late["INBOX"][1]) == len(before["INBOX"][1]) + 2 and late["F"] == before["F"], site.notes
        assert [m for m in before["INBOX"][1] if m not in late["INBOX"][1]] == []
    finally:
        world.stop()


def map_and_indexes(site):
    return [path for path in site.root().rglob("dovecot*index*") if path.name.startswith(("dovecot.index", "dovecot.map.index"))]


def lose_map(site):
    """An mdbox's map and all indexes, of a closed user."""
    site.work(CLOSE)
    for path in map_and_indexes(site):
        path.unlink()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_mail_that_an_old_map_does_not_know_is_found_in_a_known_file(tmp_path_factory, meanwhile):
    """Map and indexes are a backup's, the files are not. Dovecot alone shows the mail after `doveadm force-resync` only."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    try:
        site = world[1]
        for n in range(3):
            append(site, "INBOX", f"m{n}")
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        for _ in range(2):
            world.settle()
        site.work(CLOSE)
        site.disconnect()
        kept = {path: path.read_bytes() for path in map_and_indexes(site)}
        (file,) = site.root().rglob("m.*")
        before = file.stat().st_size
        append(site, "INBOX", "late", "(\\Seen)")
        assert file.stat().st_size > before
        for path in map_and_indexes(site):
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)
            shutil.chown(path, "nobody", "nogroup")
        if meanwhile:
            append(site, "INBOX", "behind it in the file")
        for _ in range(3):
            world.settle()
        assert subjects(equal(world, uids=False), "INBOX") == 3 + meanwhile, site.notes
        assert any("does not know all of its mails" in said for _, said in site.notes)
    finally:
        world.stop()


@pytest.mark.parametrize("lost", ["before", "after"])
def test_what_was_expunged_when_a_worker_died_is_not_brought_back_by_a_rebuild(tmp_path_factory, lost):
    """By a peer's word: the mailbox has done it, and the state does not know. The map is lost before the next worker looks, or after it did; the
    rebuild gives the mails other UIDs."""
    world, flag = crash_world(tmp_path_factory, ["mdbox", "sdbox"], "remove")
    site, peer = world[1], world[2]

    try:
        for i in range(4):
            append(site, "INBOX", f"m{i}")
        world.settle()
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        site.doveadm("purge", "-u", USER)
        world.settle()
        imap(peer, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        flag.write_text("")
        with pytest.raises(Failed, match="site 1"):
            world.settle()
        site.disconnect()
        site.done = {}
        if lost == "before":
            lose_map(site)
        for each in world.sites.values():
            each.ingest()
            each.ship(3 - each.number, HELLO_TOO)
        world.settle()
        if lost == "after":
            assert subjects(equal(world), "INBOX") == 2
            lose_map(site)
        for _ in range(3):
            world.settle()
        assert subjects(equal(world), "INBOX") == 2, site.notes
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)


def test_a_mail_that_is_expunged_again_after_a_rebuild_stays_expunged(tmp_path_factory):
    """Nothing else is to be done in the mailbox, so that the expunge is what the first sync behind the rebuild carries out."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    site, peer = world[1], world[2]
    try:
        for i in range(3):
            append(site, "INBOX", f"m{i}")
        world.settle()
        imap(peer, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        lose_map(site)
        for _ in range(3):
            world.settle()
        assert subjects(equal(world), "INBOX") == 2, site.notes
        assert len(site.said("rebuilding indexes")) == 1
    finally:
        world.stop()


def test_a_mail_that_is_being_saved_is_not_taken_for_one_that_the_map_lost(tmp_path_factory):
    """Its bytes are in the file, which is locked until the map knows it. A rebuild would take it for another mail, and it would be there twice."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    try:
        site = world[1]
        append(site, "INBOX", "first")
        world.settle()
        site.work(CLOSE)
        site.disconnect()
        shutil.rmtree(site.state())  # the next look is the first one
        (file,) = site.root().rglob("m.*")
        before = file.read_bytes()
        with open(file, "r+b") as saved:
            fcntl.lockf(saved, fcntl.LOCK_EX)
            saved.seek(0, 2)
            saved.write(before)
            saved.flush()
            end = threading.Timer(3, lambda: saved.truncate(len(before)))
            end.start()
            world.settle()  # waits for that
            end.join()
        for _ in range(2):
            world.settle()
        assert subjects(equal(world), "INBOX") == 1
        assert not any("rebuilding" in said for _, said in site.notes), site.notes
    finally:
        world.stop()


def test_the_log_tells_of_a_save_for_which_a_first_look_waits(tmp_path_factory):
    """Once, when it lasts, with the file's name. Meanwhile nothing of the user's is looked at, and it is tried again, less and less often."""
    world = make_world(tmp_path_factory, ["mdbox", "sdbox"])
    try:
        site = world[1]
        append(site, "INBOX", "first")
        world.settle()
        site.work(CLOSE)
        site.disconnect()
        shutil.rmtree(site.state())  # the next look is the first one
        (file,) = site.root().rglob("m.*")
        before = file.read_bytes()
        with open(file, "r+b") as saved:
            fcntl.lockf(saved, fcntl.LOCK_EX)
            saved.seek(0, 2)
            saved.write(before)
            saved.flush()

            def told():
                return [said for _, said in site.notes if f"{file}: a process has it locked" in said]
            world.carry()
            end, tries = time.monotonic() + 120, 0
            while not told() or tries < 8:
                assert time.monotonic() < end and tries < 60, site.notes
                site.work(TICK)
                while world.carry():
                    pass
                time.sleep(min(site.done["tick"], 8000) / 1000)
                tries += 1
            assert len(told()) == 1 and re.search(r"has waited for that for \d\d+ s", told()[0]), told()
            saved.truncate(len(before))
        world.settle()
        world.settle()
        assert subjects(equal(world), "INBOX") == 1
        assert len([said for _, said in site.notes if "nobody saves into it any more" in said]) == 1, site.notes
        assert not any("rebuilding" in said for _, said in site.notes), site.notes
    finally:
        world.stop()
