"""A site with role = backup keeps what other sites remove, and puts it back by an admin's word."""
import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest
from worker_sites import (MIXES, append, crash_world, delete, directory_of, equal, first_and_others,
                          guarded, imap, mail, make_world, needs_dovecot, subjects)
from support.stack import dovecot
from support.frames import CLOSE, CONFIRMED, HELLO_TOO, TICK
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.long]

# The last site is the backup.
WORLDS = first_and_others("sdbox,maildir,sdbox maildir,sdbox,mdbox sdbox,mdbox,maildir")
PAIRS = first_and_others("maildir,sdbox sdbox,maildir sdbox,mdbox")


@contextmanager
def world_of(tmp_path_factory, formats, step=None, **settings):
    if step:
        world, flag = crash_world(tmp_path_factory, formats.split(","), step)
    else:
        world, flag = make_world(tmp_path_factory, formats.split(",")), None
    try:
        role(world, "backup", **settings)
        yield (world, flag) if step else world
    finally:
        world.stop()
        if flag:
            shutil.rmtree(flag.parent, ignore_errors=True)


def backup(world):
    return world[len(world.sites)]


def role(world, name, **settings):
    """Of the last site; its worker is told when it is started next."""
    site = backup(world)
    if site.sock:
        site.work(CLOSE)
        site.disconnect()
    site.settings = {"role": name, "keep_expunged": "2592000000",
                     "replicas": " ".join(f"site-{n}={n}" for n in world.sites), **settings}


def expunge(site, folder, uids="1:*"):
    imap(site, folder, ("uid", "STORE", uids, "+FLAGS", "(\\Deleted)"), ("expunge",))


def kept(site, *words):
    """[{title: value}]"""
    rows = [row.split("\t") for row in site.admin("kept", *words)]
    if not rows or not rows[0][0].startswith("#"):
        return rows[0][0]
    titles = rows[0][1:]
    return [dict(zip(titles, row)) for row in rows[1:]]


def totals(replies):
    """The numbers of the last row."""
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", replies[-1])}


def unexpunge(site, *words):
    return totals(site.admin("unexpunge", *words))


def files(site):
    return sorted(p for p in (site.state() / "kept").rglob("*") if p.is_file())


@pytest.mark.parametrize("formats", WORLDS)
def test_what_is_removed_elsewhere_is_put_back_everywhere(tmp_path_factory, formats):
    with world_of(tmp_path_factory, formats) as world:
        a, b = world[1], backup(world)
        append(a, "INBOX", "one", "(\\Seen Kw)")
        append(a, "INBOX", "two", "(\\Flagged)")
        append(a, "INBOX", "stays")
        world.settle()
        before = equal(world, uids=False)
        expunge(a, "INBOX", "1:2")
        world.settle()
        assert subjects(equal(world), "INBOX") == 1
        there = kept(b)
        assert [(m["mailbox"], m["by"], m["subject"], m["now"]) for m in there] == \
            [("INBOX", "site-1", "one", "kept"), ("INBOX", "site-1", "two", "kept")]
        assert "Kw" in there[0]["flags"] and "\\Seen" in there[0]["flags"]
        assert there[0]["from"] == "a@example.org"
        assert unexpunge(b, "--dry-run") == {"restored": 2, "before": 0, "here": 0, "failed": 0,
                                             "bytes": len(mail("one")) + len(mail("two"))}
        world.settle()
        assert subjects(equal(world), "INBOX") == 1
        assert unexpunge(b)["restored"] == 2
        world.settle()
        assert equal(world, uids=False) == before
        # A second time nothing is put back, unless it is asked for.
        assert unexpunge(b) == {"restored": 0, "before": 2, "here": 0, "failed": 0, "bytes": 0}
        assert all(m["now"].startswith("put back ") for m in kept(b))
        assert unexpunge(b, "--again", there[0]["id"])["restored"] == 1
        world.settle()
        assert subjects(equal(world), "INBOX") == 4


@pytest.mark.parametrize("formats", PAIRS)
def test_a_deleted_folder(tmp_path_factory, formats):
    with world_of(tmp_path_factory, formats) as world:
        a, b = world[1], backup(world)
        imap(a, None, ("create", "F"))
        for name in ("one", "two", "three"):
            append(a, "F", name)
        world.settle()
        before = equal(world, uids=False)
        delete(a, "F")
        world.settle()
        assert "F" not in equal(world)
        assert [m["mailbox"] for m in kept(b, "--mailbox", "F")] == ["F"] * 3
        ids = {m["subject"]: m["id"] for m in kept(b)}
        assert unexpunge(b, "--into", "Found", ids["two"])["restored"] == 1
        world.settle()
        assert subjects(equal(world), "Found") == 1
        # What was put back into another folder is there: it is not put back once more.
        assert unexpunge(b, "--mailbox", "F") == {
            "restored": 2, "before": 1, "here": 0, "failed": 0,
            "bytes": len(mail("one")) + len(mail("three"))}
        world.settle()
        after = equal(world, uids=False)
        assert all(m in before["F"][1] for m in after["F"][1])
        assert subjects(after, "F") == 2


@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_that_was_moved_is_not_kept(tmp_path_factory, formats):
    with world_of(tmp_path_factory, formats) as world:
        a, b = world[1], backup(world)
        imap(a, None, ("create", "F"))
        for name in ("one", "two"):
            append(a, "INBOX", name)
        world.settle()
        imap(a, "INBOX", ("uid", "MOVE", "1:2", "F"))
        world.settle()
        assert subjects(equal(world), "F") == 2
        assert not files(b)
        expunge(a, "F", "1")
        world.settle()
        assert [(m["mailbox"], m["subject"]) for m in kept(b)] == [("F", "one")]


def test_a_renamed_folder_keeps_nothing(tmp_path_factory):
    with world_of(tmp_path_factory, "sdbox,maildir") as world:
        a, b = world[1], backup(world)
        imap(a, None, ("create", "F"))
        append(a, "F", "one")
        world.settle()
        imap(a, None, ("rename", "F", "G"))
        world.settle()
        assert subjects(equal(world), "G") == 1
        assert not files(b)


def test_other_sites_keep_nothing(tmp_path_factory):
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        a, b = world[1], backup(world)
        append(a, "INBOX", "one")
        append(a, "INBOX", "two")
        world.settle()
        expunge(b, "INBOX", "1")    # by a client there
        world.settle()
        assert not (a.state() / "kept").exists()
        assert not files(b)
        assert "this site's role is full" in kept(a)
        assert kept(b) == []


def test_the_role_changes(tmp_path_factory):
    """backup, full, backup: what was kept stays, can be put back, and is removed by its age."""
    with world_of(tmp_path_factory, "sdbox,maildir") as world:
        a, b = world[1], backup(world)
        for name in ("one", "two", "three"):
            append(a, "INBOX", name)
        world.settle()
        expunge(a, "INBOX", "1")
        world.settle()
        role(world, "full")
        expunge(a, "INBOX", "2")
        world.settle()
        assert [m["subject"] for m in kept(b)] == ["one"]
        assert any(row.startswith("role\tfull\tkept=1") for row in b.admin("status"))
        role(world, "backup")
        expunge(a, "INBOX", "3")
        world.settle()
        assert [m["subject"] for m in kept(b)] == ["one", "three"]
        assert any(row.startswith("role\tbackup\tkept=2") for row in b.admin("status"))
        role(world, "full")
        assert unexpunge(b)["restored"] == 2
        world.settle()
        assert subjects(equal(world), "INBOX") == 2


def test_those_that_are_too_old_are_removed(tmp_path_factory):
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        a, b = world[1], backup(world)
        for name in ("old", "put back", "young"):
            append(a, "INBOX", name)
        world.settle()
        expunge(a, "INBOX", "1:3")
        world.settle()
        ids = {m["subject"]: m["id"] for m in kept(b)}
        assert unexpunge(b, ids["put back"])["restored"] == 1
        day = (b.state() / "kept") / time.strftime("%Y%m%d", time.gmtime(time.time() - 40 * 86400))
        day.mkdir()
        shutil.chown(day, "nobody", "nogroup")
        for name in ("old", "put back"):
            (path,) = [p for p in files(b) if p.name.startswith(ids[name])]
            path.rename(day / path.name)
            os.utime(day / path.name, (time.time() - 40 * 86400,) * 2)
        role(world, "backup")
        done = b.ingest()
        assert done["kept_purged"] == 2
        assert [m["subject"] for m in kept(b)] == ["young"]
        assert not day.exists()


CRYPT = {
    (2, 3): "mail_plugins = $mail_plugins mail_crypt\n"
            "plugin {\n  mail_crypt_save_version = 2\n}\n",
    (2, 4): "mail_plugins {\n  mail_crypt = yes\n}\n"
            "crypt_write_algorithm = aes-256-gcm-sha256\n"}


def test_mail_that_is_encrypted_is_not_kept_in_the_clear(tmp_path_factory):
    crypt = CRYPT[(2, 4) if dovecot.version() >= (2, 4) else (2, 3)]
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"], more={2: crypt})
    try:
        role(world, "backup")
        with pytest.raises(Failed, match="permanent=1 mail_crypt: this site's role is backup"):
            world[2].ingest()
        world[2].disconnect()
        role(world, "full")
        assert world[2].ingest()["result"] == 0
    finally:
        world.stop()


@contextmanager
def without_room(directory):
    """A full disk. Its files are another file system's, and there again afterwards."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=777", "none", str(directory)],
                   check=True)
    try:
        (directory / "fills").write_bytes(bytes(8192))
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize("formats", PAIRS)
def test_the_disk_is_full(tmp_path_factory, formats):
    """The removal waits, and nothing else does."""
    with world_of(tmp_path_factory, formats) as world:
        a, b = world[1], backup(world)
        append(a, "INBOX", "one", size=50000)
        append(a, "INBOX", "two", size=50000)
        world.settle()
        with without_room(b.state() / "kept"):
            expunge(a, "INBOX", "1:2")
            append(a, "INBOX", "three")
            world.settle()
            assert subjects(a.contents(), "INBOX") == 1
            assert subjects(b.contents(), "INBOX") == 3
            assert b.done["kept_failed"] == 2
            assert any("No space left" in note for _, note in b.notes), b.notes
            assert any("cannot-be-kept=2" in row for row in b.admin("status"))
            assert b.admin("verify")[-1] == "verdict\tdifferent"
        shutil.chown(b.state() / "kept", "nobody", "nogroup")
        b.work(TICK)
        world.settle()
        assert subjects(equal(world), "INBOX") == 1
        assert sorted(m["subject"] for m in kept(b)) == ["one", "two"]
        assert b.done["kept_failed"] == 0


def go_on(world):
    """Behind a crash: what lay in the lanes is lost, and sent again."""
    for site in world.sites.values():
        site.disconnect()
        for lane in site.outbox.values():
            lane.clear()
        site.done = {}
    for _ in range(2):
        for site in world.sites.values():
            for to in site.outbox:
                site.ship(to, CONFIRMED)
                site.ship(to, HELLO_TOO)
        world.settle()


@pytest.mark.parametrize("formats", MIXES)
@pytest.mark.parametrize("step", ["batch", "keep-written", "kept", "remove"])
def test_a_worker_that_dies_while_it_keeps(tmp_path_factory, formats, step):
    with world_of(tmp_path_factory, formats, step) as (world, flag):
        a, b = world[1], backup(world)
        for name in ("one", "two", "three"):
            append(a, "INBOX", name)
        world.settle()
        before = equal(world, uids=False)
        expunge(a, "INBOX", "1:2")
        a.ingest()
        flag.write_text("")
        with pytest.raises(Failed, match="went away"):
            while world.carry():
                pass
        assert not flag.exists()
        go_on(world)
        assert subjects(equal(world), "INBOX") == 1
        assert sorted(m["subject"] for m in kept(b)) == ["one", "two"]
        assert len([p for p in files(b) if not p.name.startswith(".")]) == 2
        assert unexpunge(b)["restored"] == 2
        world.settle()
        assert equal(world, uids=False) == before


@pytest.mark.parametrize("formats", MIXES)
def test_a_worker_that_dies_while_it_puts_back(tmp_path_factory, formats):
    with world_of(tmp_path_factory, formats, "unexpunged") as (world, flag):
        a, b = world[1], backup(world)
        append(a, "INBOX", "one")
        append(a, "INBOX", "two")
        world.settle()
        before = equal(world, uids=False)
        expunge(a, "INBOX")
        world.settle()
        flag.write_text("")
        with pytest.raises(Failed, match="went away"):
            b.admin("unexpunge")
        go_on(world)
        assert equal(world, uids=False) == before
        assert unexpunge(b) == {"restored": 0, "before": 0, "here": 2, "failed": 0, "bytes": 0}
        world.settle()
        assert equal(world, uids=False) == before


@pytest.mark.parametrize("formats", MIXES)
def test_what_a_worker_put_back_that_died_is_seen_first(tmp_path_factory, formats):
    """The same command is the first that its successor hears."""
    with world_of(tmp_path_factory, formats, "unexpunged") as (world, flag):
        a, b = world[1], backup(world)
        append(a, "INBOX", "one")
        append(a, "INBOX", "two")
        world.settle()
        before = equal(world, uids=False)
        expunge(a, "INBOX")
        world.settle()
        flag.write_text("")
        with pytest.raises(Failed, match="went away"):
            b.admin("unexpunge")
        b.disconnect()
        assert unexpunge(b) == {"restored": 0, "before": 0, "here": 2, "failed": 0, "bytes": 0}
        go_on(world)
        assert equal(world, uids=False) == before


def test_a_mail_that_is_only_told_of_is_not_here(tmp_path_factory):
    """Another site's word has the same bytes in a mailbox. They never come."""
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        a, b = world[1], backup(world)
        imap(a, None, ("create", "F"))
        append(a, "F", "other")
        append(a, "INBOX", "one")
        world.settle()
        expunge(a, "INBOX")
        world.settle()
        with guarded(directory_of(b, "F")):
            append(a, "F", "one")
            world.settle()
            assert b.done["unplaced"] == 1
            assert [m["now"] for m in kept(b)] == ["kept"]
            assert unexpunge(b)["restored"] == 1


def test_one_that_is_kept_twice_is_one(tmp_path_factory):
    """Its removal was tried again on another day, or when it had been put back."""
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        a, b = world[1], backup(world)
        for name in ("one", "two"):
            append(a, "INBOX", name)
        world.settle()
        expunge(a, "INBOX")
        world.settle()
        day = (b.state() / "kept") / time.strftime("%Y%m%d", time.gmtime(time.time() - 86400))
        day.mkdir()
        for path in files(b):
            head = path.read_bytes()
            (day / path.name).write_bytes(re.sub(rb"removed \d+", b"removed 1700000000", head))
        subprocess.run(["chown", "-R", "nobody:nogroup", str(day)], check=True)
        assert unexpunge(b)["restored"] == 2
        assert unexpunge(b)["before"] == 2
        world.settle()
        expunge(a, "INBOX", "1:*")
        world.settle()
        assert unexpunge(b) == {"restored": 2, "before": 2, "here": 0, "failed": 0,
                                "bytes": len(mail("one")) + len(mail("two"))}


def test_a_file_that_was_damaged_is_told(tmp_path_factory):
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        a, b = world[1], backup(world)
        append(a, "INBOX", "one")
        append(a, "INBOX", "two")
        world.settle()
        expunge(a, "INBOX")
        world.settle()
        ids = {m["subject"]: m["id"] for m in kept(b)}
        (path,) = [p for p in files(b) if p.name == ids["one"]]
        os.truncate(path, path.stat().st_size - 5)
        assert unexpunge(b)["restored"] == 2
        (note,) = [text for _, text in b.notes if "its bytes are not those that were kept" in text]
        assert ids["one"] in note


def test_ids_are_long(kept_world):
    """So that nobody makes a mail whose id is another one's."""
    assert [len(m["id"]) for m in kept(backup(kept_world))] == [24]


@pytest.mark.parametrize("words, says", [
    (["kept", "--since", "soon"], "--since soon is no time"),
    (["kept", "--into", "F"], "options of unexpunge"),
    (["kept", "--since"], "--since needs a value"),
    (["unexpunge", "--all"], "--all: there is no such option"),
    (["unexpunge", "0123456789ab"], "0123456789ab is no kept mail's id")])
def test_a_request_that_cannot_be(kept_world, words, says):
    (answer,) = backup(kept_world).admin(*words)
    assert answer.startswith("-") and says in answer


@pytest.fixture(scope="module")
def kept_world(tmp_path_factory):
    with world_of(tmp_path_factory, "sdbox,sdbox") as world:
        append(world[1], "INBOX", "one")
        world.settle()
        expunge(world[1], "INBOX")
        world.settle()
        yield world


@pytest.mark.parametrize("since", ["1h", "@1000000000", "2001-02-03", "2001-02-03 04:05",
                                   "2001-02-03T04:05:06"])
def test_times(kept_world, since):
    assert len(kept(backup(kept_world), "--since", since)) == 1


@pytest.mark.parametrize("words", [["--mailbox", "Nowhere"], ["--until", "2001-01-01"],
                                   ["--since", "@4000000000"]])
def test_nothing_fits(kept_world, words):
    """That is no fault: of all users, most have none."""
    assert kept(backup(kept_world), *words) == []
    assert unexpunge(backup(kept_world), *words)["restored"] == 0
