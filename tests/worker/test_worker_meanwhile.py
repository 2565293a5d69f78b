"""A client copies or moves a mail to where another site's copy of it is about to be placed: his
is a copy of his own, which no removal takes away that had not seen it."""
import pytest
from worker_sites import append, equal, imap, make_world, needs_dovecot, subjects

pytestmark = [needs_dovecot, pytest.mark.long]

MIXES = ["sdbox,sdbox", "mdbox,sdbox", "sdbox,mdbox", "maildir,mdbox", "mdbox,maildir"]


@pytest.mark.parametrize("how", ["COPY", "MOVE"])
@pytest.mark.parametrize("formats", MIXES)
def test_what_was_moved_by_two_is_taken_back_by_one(tmp_path_factory, formats, how):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "F", "f")
        append(a, "INBOX", "m")
        world.settle()
        equal(world)
        imap(a, "INBOX", ("uid", "MOVE", "1", "F"))
        a.ingest()
        imap(b, "INBOX", ("uid", how, "1", "F"))    # before b hears of a's
        world.carry()
        imap(a, "F", ("uid", "MOVE", "2", "INBOX"))
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (1, 2)
    finally:
        world.stop()


@pytest.mark.parametrize("formats", MIXES)
def test_what_was_copied_by_two_is_expunged_by_one(tmp_path_factory, formats):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))
        a.ingest()
        imap(b, "INBOX", ("uid", "MOVE", "1", "F"))
        world.carry()
        imap(a, "F", ("uid", "STORE", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (0, 1)
    finally:
        world.stop()
