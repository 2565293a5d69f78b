"""Index files that are lost while a worker has them open, or has not: nothing else is lost."""
import re
import time

import pytest
from worker_sites import (append, delete, equal, guid_of, imap, indexes, make_world,
                          needs_dovecot)
from support.frames import CLOSE

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


INDEX_ID = slice(4, 8)  # in the header of an index' log


def give_id(log, old):
    """The log of an index that was just made gets the id of the one before."""
    assert not log.with_name(log.name.removesuffix(".log")).exists()
    with open(log, "r+b") as f:
        f.seek(INDEX_ID.start)
        f.write(old)


def lose_indexes(site, names, when, *folders):
    """A client makes them anew, in a later second or (by their ids) in the one of the old ones."""
    ids = {}
    for path in indexes(site):
        if path.is_file() and re.match(names, path.name):
            if path.name.endswith(".log"):
                ids[path] = path.read_bytes()[INDEX_ID]
            path.unlink()
    if when == "later":
        time.sleep(2.1)
    for folder in folders:
        imap(site, folder, ("noop",))
    if when != "later":
        for path, old in ids.items():
            give_id(path, old)


@pytest.mark.test
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_lost_index_loses_nothing(world, closed):
    for i in range(5):
        append(world[1], "INBOX", f"m{i}", "(\\Seen Kw)")
    world.settle()
    before = equal(world, uids=False)
    for site in world.sites.values():
        if closed:
            site.work(CLOSE)
        for path in indexes(site):
            if path.is_file() and path.name.startswith("dovecot.index"):
                path.unlink()
        world.settle()
        world.settle()
        assert equal(world, uids=False) == before


@pytest.mark.test
@pytest.mark.parametrize("fmt", ["sdbox", "mdbox", "maildir"])
@pytest.mark.parametrize("lost", ["mailboxes", "list", "all"])
@pytest.mark.parametrize("when", ["later", "in the same second"])
def test_an_index_that_a_client_made_anew_is_another_one(tmp_path_factory, fmt, lost, when):
    """While the worker has the old one in memory, which it would hold against the new one. Its id is
    the second in which it was made."""
    world = make_world(tmp_path_factory, [fmt, fmt])
    try:
        site = world[1]
        imap(site, None, ("create", "F"))
        for folder in ("INBOX", "F"):
            append(site, folder, f"of {folder}", "(\\Seen Kw)")
        world.settle()
        before = equal(world, uids=False)
        names = {"mailboxes": r"dovecot\.(map\.)?index", "list": r"dovecot\.list\.index",
                 "all": r"dovecot\.(map\.|list\.)?index"}[lost]
        lose_indexes(site, names, when, "INBOX", "F")
        begun = len(site.log.read_text())
        for _ in range(3):
            world.settle()
            imap(site, "INBOX", ("noop",))
        assert equal(world, uids=False) == before
        said = site.log.read_text()[begun:]
        assert not re.search("Corrupted|duplicate transaction|indexid changed", said), said
    finally:
        world.stop()


@pytest.mark.test
def test_what_is_found_by_another_question_is_looked_at_soon(tmp_path_factory):
    """Main asks for no look at the mailboxes before its next sweep."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        site = world[1]
        imap(site, None, ("create", "E"))
        append(site, "E", "m", "(\\Seen Kw)")
        world.settle()
        imap(world[2], None, ("rename", "E", "F"))  # the worker of site 1 has the list open now
        world.settle()
        before = equal(world, uids=False)
        for path in indexes(site):
            if path.is_file() and "index" in path.name:
                path.unlink()
        time.sleep(2.1)  # as above
        imap(site, "F", ("list",), ("create", "G"), ("delete", "G"))
        site.admin("status")
        assert any("looking at all anew" in said for _, said in site.notes), site.notes
        world.settle(ingest=False)
        assert equal(world, uids=False) == before
    finally:
        world.stop()


def test_a_folder_that_is_deleted_has_lost_no_index(world):
    """Where the hint names it, it is opened before all are listed."""
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "one")
    world.settle()
    for site in world.sites.values():
        site.ingest(("", "F"))
    guid = guid_of(world[1], "F")
    delete(world[1], "F")
    world[1].ingest((guid, "F"))
    world.settle()
    for site in world.sites.values():
        assert "F" not in site.contents()
        assert not any("was removed" in said for _, said in site.notes), site.notes


@pytest.mark.test
@pytest.mark.parametrize("fmt", ["sdbox", "mdbox"])
@pytest.mark.parametrize("when", ["later", "in the same second"])
def test_mails_that_a_dbox_does_not_list_are_found_before_any_is_placed(tmp_path_factory, fmt, when):
    """Dovecot shows an empty mailbox where the indexes are lost: one mail would be placed beside its
    own file, and one that no other site has would not be seen."""
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    try:
        site = world[1]
        for name in ("gone", "kept"):
            append(site, "INBOX", name, "(\\Seen)")
        world.settle()
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        (_, (kept,)) = equal(world, uids=False)["INBOX"]
        append(site, "INBOX", "not replicated")
        for _ in range(3):
            lose_indexes(site, r"dovecot\.(map\.)?index", when, "INBOX")
            world.settle()
        (_, found) = equal(world, uids=False)["INBOX"]
        assert len(found) == 2 and kept in found, (kept, found)
    finally:
        world.stop()
