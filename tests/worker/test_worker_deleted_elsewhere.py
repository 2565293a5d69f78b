"""A client renames a folder in the moment in which another site's deletion of it is done here. He
has not seen that, so the folder lives, by his name, without the mails that were deleted.
"""
import pytest
from worker_sites import append, delete, equal, imap, make_world, needs_dovecot, subjects

pytestmark = [needs_dovecot, pytest.mark.long]

MIXES = [pytest.param("sdbox,sdbox", marks=pytest.mark.test), "mdbox,sdbox", "sdbox,mdbox",
         "maildir,maildir"]


@pytest.mark.parametrize("formats", MIXES)
@pytest.mark.parametrize("then", ["nothing", "a mail"])
@pytest.mark.parametrize("first", ["expunged", "there"])
def test_a_rename_that_no_look_has_seen_outlives_the_deletion(formats, then, first):
    world = make_world(None, formats.split(","))
    try:
        imap(world[1], None, ("create", "F"))
        append(world[1], "F", "old")
        world.settle()
        assert subjects(equal(world), "F") == 1
        if first == "expunged":
            imap(world[1], "F", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        delete(world[1], "F")
        world[1].ingest()
        imap(world[2], None, ("rename", "F", "G"))
        if then == "a mail":
            append(world[2], "G", "new")
        world.settle(ingest=False)
        world.settle()
        now = equal(world)
        assert "F" not in now
        assert subjects(now, "G") == (1 if then == "a mail" else 0), now
    finally:
        world.stop()
