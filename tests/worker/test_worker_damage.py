"""What a site loses of its mails, indexes or state behind Dovecot's back removes nothing anywhere and comes back; the brake."""
import base64
import imaplib
import re
import shutil
import subprocess
import threading

import pytest
from worker_sites import append, copy_owned, delete, directory_of, equal, guarded, guid_of, imap, indexes, laid_out, mail, make_world, needs_dovecot, subjects
from support.frames import CLOSE
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def test_a_lost_mail_directory_is_fetched_back(world):
    imap(world[1], None, ("create", "F"))
    for i in range(4):
        append(world[1], "F", f"m{i}", "(\\Flagged)")
    world.settle()
    before = equal(world, uids=False)
    site = world[2]
    site.work(CLOSE)
    for path in list(site.root().rglob("*")):
        if path.name in ("F", ".F") and path.is_dir():
            shutil.rmtree(path)
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


def box_directory(site, name):
    found = [path for path in site.root().rglob("*") if path.name in (name, f".{name}") and path.is_dir()]
    return found[0]


def rights(path, readable):
    for one in (path, *path.rglob("*")):
        shutil.chown(one, *(("nobody", "nogroup") if readable else ("root", "root")))
        if one.is_dir():
            one.chmod(0o700)


@pytest.mark.parametrize("warm", [True, False])
def test_a_folder_that_cannot_be_read_keeps_no_other_one_from_coming_back(world, warm):
    """It belongs to root for good, and no site has it. It was there, beside the one that goes: it is not that one, renamed."""
    site = world[1]
    for name in ("Old", "Lost"):
        imap(site, None, ("create", name))
    append(site, "Lost", "m")
    world.settle()
    shutil.copytree(box_directory(site, "Old"), box_directory(site, "Old").with_name({"maildir": ".Strange"}.get(site.format, "Strange")))
    rights(box_directory(site, "Strange"), False)
    world.settle()
    before = world[2].contents(uids=False)
    if not warm:
        site.work(CLOSE)
    shutil.rmtree(box_directory(site, "Lost"))
    world.settle()
    world.settle()
    assert world[2].contents(uids=False) == before
    assert b"messages=1" in site.doveadm("mailbox", "status", "-u", USER, "messages", "Lost"), site.notes


def test_a_folder_that_was_renamed_and_cannot_be_read_is_not_made_again(world):
    """It waits, and the log says for what."""
    site = world[1]
    if site.format != "maildir":
        pytest.skip("of dbox, the index may be readable where the mails are not")
    imap(site, None, ("create", "Lost"))
    append(site, "Lost", "m")
    world.settle()
    path = box_directory(site, "Lost")
    there = path.rename(path.with_name(".Other"))
    rights(there, False)
    world.settle()
    world.settle()
    assert not path.exists() and "Lost" in world[2].contents()
    assert any("Lost is gone" in said and "Other cannot be read" in said for _, said in site.notes), site.notes
    rights(there, True)
    world.settle()
    world.settle()
    now = equal(world, uids=False)
    assert subjects(now, "Other") == 1 and "Lost" not in now


KINDS = [("sdbox", None), ("mdbox", None), ("maildir", None), ("maildir", "fs")]  # with layouts


@pytest.mark.parametrize("fmt,layout", KINDS)
def test_mailboxes_that_cannot_be_listed_are_there(tmp_path_factory, fmt, layout):
    """Their directory can be entered and not read: Dovecot's list is empty, and has not failed."""
    world = make_world(tmp_path_factory, [fmt, "maildir"], more={1: laid_out(fmt, layout)})
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "F", "f0")
        world.settle()
        directory = a.root() / ("" if fmt == "maildir" else "mailboxes")
        with guarded(directory, 0o300, directory.stat().st_uid):
            for n in range(2):
                append(a, "F", f"of A {n}")
                append(b, "F", f"of B {n}")
                world.settle()
                world.settle()
        assert not any("is gone" in said for _, said in a.notes), a.notes
        world.settle()
        assert messages(a, "F") == messages(b, "F") == 5
    finally:
        world.stop()


@pytest.mark.long
@pytest.mark.parametrize("fmt,layout", KINDS)
def test_a_folder_whose_directory_cannot_be_entered_is_there(tmp_path_factory, fmt, layout):
    """Nor is what another site deletes meanwhile taken for deleted here."""
    world = make_world(tmp_path_factory, [fmt, "maildir"], more={1: laid_out(fmt, layout)})
    try:
        a, b = world[1], world[2]
        for name in ("Kept", "Deleted"):
            imap(a, None, ("create", name))
            append(a, name, "m")
        world.settle()
        with guarded(box_directory(a, "Kept")), guarded(box_directory(a, "Deleted")):
            world.settle()
            append(b, "Kept", "of B")
            delete(b, "Deleted")
            world.settle()
            world.settle()
        assert not any("is gone" in said for _, said in a.notes), a.notes
        for _ in range(3):
            world.settle()
        assert messages(a, "Kept") == messages(b, "Kept") == 2
        assert "Deleted" not in equal(world, uids=False)
    finally:
        world.stop()


def test_mail_directory_of_one_site_gone(world):
    for i in range(4):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged)")
    world.settle()
    before = equal(world, uids=False)
    site = world[1]
    site.work(CLOSE)
    site.disconnect()
    keep = site.base / "kept"
    shutil.move(site.state(), keep)
    shutil.rmtree(site.root())
    site.root().mkdir()
    shutil.move(keep, site.state())
    shutil.chown(site.root(), "nobody", "nogroup")
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


def test_a_forced_resync_removes_nothing_and_adds_nothing(world):
    for i in range(6):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged Kw)")
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    before = equal(world, uids=False)
    for site in world.sites.values():
        if site.format == "mdbox":
            site.doveadm("purge", "-u", USER)  # else the storage itself brings back what was expunged
        site.doveadm("force-resync", "-u", USER, "INBOX")
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


def test_an_index_of_yesterday_loses_nothing(world):
    append(world[1], "INBOX", "old", "(Kw)")
    world.settle()
    for site in world.sites.values():
        if site.format == "mdbox":
            continue  # its index and its map of the storage are restored together, or not at all
        site.work(CLOSE)
        kept = {p: p.read_bytes() for p in indexes(site) if p.is_file() and p.name.startswith("dovecot.index")}
        append(site, "INBOX", f"new{site.number}", "(\\Flagged)")
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Seen)"))
        world.settle()
        before = equal(world, uids=False)
        site.work(CLOSE)
        for path, data in kept.items():
            path.write_bytes(data)
        world.settle()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


@pytest.mark.test
@pytest.mark.parametrize("opened", ["closed", "open", "opened before", "mailbox alone"])
@pytest.mark.parametrize("fmt", ["sdbox", "maildir"])
def test_flags_of_a_backup_are_no_users(tmp_path_factory, fmt, opened):
    """The mail is put back and the state stays: while the worker has the user open, or after another one
    had opened him and looked at nothing; or a folder alone."""
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        for folder in ("INBOX", "F"):
            append(site, folder, "old", "(\\Seen Kw)")
        world.settle()
        world.settle()
        site.work(CLOSE)
        backup = site.base / "backup"
        copy_owned(site.home(), backup)
        for folder in ("INBOX", "F"):
            imap(site, folder, ("store", "1", "-FLAGS", "(\\Seen)"), ("store", "1", "+FLAGS", "(Other)"))
            append(site, folder, "new", "(\\Flagged)")
        world.settle()
        world.settle()
        before = equal(world, uids=False)
        if opened != "open":
            site.work(CLOSE)
            site.disconnect()
        if opened == "mailbox alone":
            folder = directory_of(site, "F")
            copy_owned(backup / folder.relative_to(site.home()), folder)
        else:
            kept = backup / site.state().relative_to(site.home())
            shutil.rmtree(kept)
            site.state().rename(kept)
            site.home().rename(site.base / "replaced")
            backup.rename(site.home())
        if opened == "opened before":
            site.ensure()
            site.disconnect()
            site.opened = False
        for _ in range(3):
            world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def notice(site, folder):
    """A client reads all mails, so that Dovecot finds out what is not there."""
    box = site.imap()
    box.select(f'"{folder}"')
    try:
        box.fetch("1:*", "(BODY.PEEK[])")
        box.noop()
        box.logout()
    except imaplib.IMAP4.error:
        pass  # it is empty by now, or Dovecot ends the session of a mailbox that it rebuilds
    site.doveadm("mailbox", "status", "-u", USER, "messages", folder)


@pytest.mark.parametrize("formats", ["sdbox,maildir", "maildir,sdbox", "mdbox,maildir"])
def test_an_emptied_mail_directory_removes_nothing_anywhere(tmp_path_factory, formats):
    """Fewer mails than the brake would let go: an unmounted disk, and a client that looks into it."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        for i in range(6):
            append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "F", "only")
        world.settle()
        before = equal(world, uids=False)
        for path in [*site.root().rglob("u.*"), *site.root().rglob("m.*"), *site.root().rglob("cur/*"), *site.root().rglob("new/*")]:
            path.unlink()
        for folder in ("INBOX", "F"):
            notice(site, folder)
        world.settle()
        assert world[2].contents(uids=False) == before
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def guids(site, folder):
    """{body: [GUID]} as the storage says."""
    said = site.doveadm("-f", "flow", "fetch", "-u", USER, "guid text", "mailbox", folder, "ALL").decode(errors="replace")
    found = {}
    for one in said.split("guid=")[1:]:
        found.setdefault(re.search(r"Subject: (\S+)", one)[1], []).append(one.split()[0])
    return {subject: sorted(them) for subject, them in found.items()}


@pytest.mark.parametrize("shuffled", [False, True], ids=["in-order", "other-uids"])
def test_a_lost_uidlist_of_a_maildir_changes_no_guid(tmp_path_factory, shuffled):
    """Mails that were placed or copied have their GUID in dovecot-uidlist only. other-uids: and they get other UIDs, too."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    try:
        site = world[2]
        for i in range(6):
            append(world[1], "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "INBOX", "heremail", "(\\Seen)")
        imap(site, "INBOX", ("copy", "1", "INBOX"))
        world.settle()
        before, named = equal(world, uids=False), guids(world[1], "INBOX")
        assert guids(site, "INBOX") == named and len(named["heremail"]) == 2 and len(set(named["heremail"])) == 1
        (site.root() / "dovecot-uidlist").unlink()
        if shuffled:
            site.work(CLOSE)
            files = sorted([*site.root().glob("cur/*"), *site.root().glob("new/*")])
            for number, path in enumerate(reversed(files)):
                path.rename(path.with_name(f"1600000{number:03d}.M1P1.other{path.name[path.name.find(':'):] if ':' in path.name else ''}"))
            for path in indexes(site):
                if path.is_file() and path.name.startswith("dovecot.index"):
                    path.unlink()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before
        assert guids(world[1], "INBOX") == named and guids(site, "INBOX") == named, site.notes
        site.work(CLOSE)
        world.settle()
        assert guids(site, "INBOX") == named
    finally:
        world.stop()


@pytest.mark.parametrize("first", [2, 5])
def test_a_mail_directory_that_is_emptied_slowly_removes_nothing_anywhere(tmp_path_factory, first):
    """Somebody looks while only some files are gone: few enough to be believed, or more than are left."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        for i in range(8):
            append(site, "INBOX", f"m{i}", "(\\Flagged)")
        world.settle()
        before = equal(world, uids=False)
        files = sorted([*site.root().glob("cur/*"), *site.root().glob("new/*")])
        for path in files[:first]:
            path.unlink()
        notice(site, "INBOX")
        site.ingest()
        for path in files[first:]:
            path.unlink()
        notice(site, "INBOX")
        world.settle()
        assert world[2].contents(uids=False) == before
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def test_some_files_of_a_dbox_gone_come_back(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        for i in range(6):
            append(world[1], "INBOX", f"m{i}", "(\\Flagged)")
        world.settle()
        before = equal(world, uids=False)
        for path in sorted(world[1].root().rglob("u.*"))[:2]:
            path.unlink()
        notice(world[1], "INBOX")
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def test_expunges_that_are_read_while_they_happen_stay(world):
    """A scan between a client's request and Dovecot's carrying it out must still know, at the next one, who asked."""
    site, ended = world[1], threading.Event()

    def client():
        try:
            box = site.imap()
            box.select("INBOX")
            for i in range(40):
                assert box.append("INBOX", None, None, mail(f"m{i}"))[0] == "OK"
                box.noop()
                box.store("1:*", "+FLAGS", "(\\Deleted)")
                box.expunge()
            box.logout()
        finally:
            ended.set()

    thread = threading.Thread(target=client)
    thread.start()
    while not ended.is_set():
        site.ingest()
    thread.join()
    world.settle()
    world.settle()
    assert subjects(equal(world), "INBOX") == 0


@pytest.mark.parametrize("warm", [True, False])
def test_an_old_home_in_the_place_of_the_new_one(world, warm):
    """All of it, state and mail, while a worker has the user open or not: nothing is doubled, lost, or back again."""
    site = world[1]
    for i in range(4):
        append(site, "INBOX", f"m{i}")
    world.settle()
    site.work(CLOSE)
    kept = site.base / "kept"
    subprocess.run(["cp", "-a", str(site.home()), str(kept)], check=True)
    append(site, "INBOX", "new", "(\\Seen)")
    imap(site, "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    append(world[2], "INBOX", "other")
    world.settle()
    before = equal(world, uids=False)
    if not warm:
        site.work(CLOSE)
    shutil.rmtree(site.home())
    subprocess.run(["cp", "-a", str(kept), str(site.home())], check=True)
    world.settle()
    world.settle()
    assert equal(world, uids=False) == before


@pytest.mark.parametrize("warm", [True, False])
def test_a_state_that_is_no_database_is_put_aside(world, warm):
    site = world[1]
    for i in range(4):
        append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
    world.settle()
    if not warm:
        site.work(CLOSE)
    (site.state() / "state.db").write_bytes(b"this is no database\n" * 1000)
    append(site, "INBOX", "new")
    world.settle()
    site.work(CLOSE)
    world.settle()
    assert subjects(equal(world), "INBOX") == 5
    if not warm:  # else the worker's log had all of it, and made it whole again
        assert list(site.state().glob("state.db.spoilt-*"))


TOO_LONG = "/".join(["x" * 200] * 6)
TOO_DEEP = "/".join("x" * 65)  # what a Maildir can have


def messages(site, folder):
    return int(re.search(rb"messages=(\d+)", site.doveadm("mailbox", "status", "-u", USER, "messages", folder))[1])


@pytest.mark.parametrize("how", ["move", "rename-inbox"])
def test_what_goes_into_a_folder_that_is_not_replicated_stays_at_the_peers(tmp_path_factory, how):
    """Its name is longer than what is replicated. The peers have the last copies but for this site's."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    try:
        for i in range(4):
            append(world[1], "INBOX", f"m{i}")
        world.settle()
        if how == "move":
            imap(world[1], None, ("create", f'"{TOO_LONG}"'))
            imap(world[1], "INBOX", ("uid", "MOVE", "1:2", f'"{TOO_LONG}"'))
        else:
            box = world[1].imap()
            assert box.rename("INBOX", f'"{TOO_LONG}"')[0] == "OK"
            box.select("INBOX")
            box.logout()
        for _ in range(3):
            world.settle()
        assert messages(world[1], TOO_LONG) == (2 if how == "move" else 4)
        assert messages(world[2], "INBOX") == 4, world[1].notes
        for n in range(2):  # and after a look at the INBOX alone, whether the others were looked at before or not
            append(world[1], "INBOX", f"later{n}")
            world[1].ingest((guid_of(world[1], "INBOX"), "INBOX"))
            world.settle(ingest=False)
            assert messages(world[2], "INBOX") == 5 + n, world[1].notes
            world[1].work(CLOSE)
    finally:
        world.stop()


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("formats", [["sdbox", "maildir"], ["maildir", "mdbox"], ["mdbox", "sdbox"]])
def test_a_folder_that_is_renamed_beyond_a_bound_stays_at_the_peers(formats, made):
    """And is made again; by who made one of its name, too. Before, that was no folder at the peers, and the other one's DELETE emptied theirs."""
    world, beyond = make_world(None, formats), TOO_DEEP if formats[0] == "maildir" else TOO_LONG
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        for i in range(3):
            append(site, "F", f"m{i}")
        append(site, "INBOX", "moved")
        world.settle()
        imap(site, "INBOX", ("uid", "MOVE", "1", "F"))
        imap(site, None, ("rename", "F", f'"{beyond}"'))
        if made:
            imap(site, None, ("create", "F"))
            append(site, "F", "new")
        for _ in range(2):
            world.settle()
            world.settle()
            assert messages(site, beyond) == 4 and messages(site, "F") == messages(world[2], "F") == 3 + made, site.notes
            assert messages(world[2], "INBOX") == 1
            site.work(CLOSE)
        delete(site, beyond)
        for _ in range(2):
            world.settle()
        assert subjects(equal(world), "F") == 3 + made
        assert any("F was renamed to a name that is not replicated" in said for _, said in site.notes)
    finally:
        world.stop()


def test_subscriptions_that_cannot_be_read_hold_nothing_else_up(tmp_path_factory):
    """A file of root's, as after a restore by hand."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    try:
        site = world[1]
        append(site, "INBOX", "m0")
        imap(site, None, ("subscribe", "INBOX"))
        world.settle()
        (file,) = [path for path in site.root().rglob("subscriptions")]
        shutil.chown(file, "root", "root")
        file.chmod(0o600)
        imap(site, None, ("create", "F"))
        append(site, "F", "in F")
        append(site, "INBOX", "m1")
        world.settle()
        assert messages(world[2], "INBOX") == 2 and messages(world[2], "F") == 1
        assert any("subscriptions cannot be listed" in said for _, said in site.notes), site.notes
        shutil.chown(file, "nobody", "nogroup")
        imap(site, None, ("subscribe", "F"))
        world.settle()
        world.settle()
        box = world[2].imap()
        assert any(b"F" in line for line in box.lsub()[1]), box.lsub()
        box.logout()
    finally:
        world.stop()


def test_a_long_name_that_was_subscribed_leaves_the_state_as_it_is(tmp_path_factory):
    """It is longer in UTF-8 than in the file, and longer than any that is replicated."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        site = world[1]
        append(site, "INBOX", "m")
        imap(site, None, ("subscribe", "INBOX"))
        world.settle()
        file = site.root() / "subscriptions"
        name = base64.b64encode(("\u4e00" * 1500).encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        version = file.read_bytes().splitlines()[0]
        file.write_bytes(version + b"\n\n" + b"INBOX\n&" + name.encode() + b"-\n")
        shutil.chown(file, "nobody", "nogroup")
        for _ in range(3):
            world.settle()
            site.work(CLOSE)
        assert not list(site.state().glob("state.db.spoilt-*")), site.notes
        assert subjects(equal(world, uids=False), "INBOX") == 1
    finally:
        world.stop()


@pytest.mark.long
@pytest.mark.parametrize("damage", ["directory", "index"])
@pytest.mark.parametrize("waits", ["renamed", "subscriptions"])
@pytest.mark.parametrize("fmt", ["sdbox", "maildir"])
def test_a_deletion_that_was_carried_out_is_no_evidence_later(tmp_path_factory, fmt, waits, damage):
    """The journal was kept as a whole while something it says had to wait. A folder that lived on by another site's mail, and whose index or
    directory was lost later, was then deleted once more: at all sites."""
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    try:
        a, b = world[1], world[2]
        for name in ("Old", "Junk"):
            imap(a, None, ("create", name))
            append(a, name, name)
        world.settle()
        world.settle()
        if waits == "renamed":
            imap(a, None, ("rename", "Old", f'"{TOO_DEEP if fmt == "maildir" else TOO_LONG}"'))
            world.settle()
            world.settle()
            delete(a, "Old")    # it was made again
        else:
            imap(a, None, ("subscribe", "INBOX"))
            world.settle()
            (file,) = a.root().rglob("subscriptions")
            shutil.chown(file, "root", "root")
            file.chmod(0o600)
        world.settle()
        delete(a, "Junk")
        append(b, "Junk", "as it is deleted")
        for _ in range(3):
            world.settle()
        for n in range(3):
            append(b, "Junk", f"later{n}")
        for _ in range(3):
            world.settle()
        assert messages(a, "Junk") == messages(b, "Junk") == 4
        a.work(CLOSE)
        if damage == "directory":
            shutil.rmtree(box_directory(a, "Junk"))
        else:
            for path in box_directory(a, "Junk").rglob("dovecot*"):
                if path.is_file():
                    path.unlink()
        for _ in range(4):
            world.settle()
        assert messages(a, "Junk") == messages(b, "Junk") == 4, a.notes
    finally:
        world.stop()
