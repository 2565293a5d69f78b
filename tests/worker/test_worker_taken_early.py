"""A peer's ops come before the look that finds what a client removed here: the removal takes what he
may have seen, and not the copy that another site's client made meanwhile."""
import pytest
from worker_sites import append, delete, equal, imap, make_world, needs_dovecot, subjects
from support.frames import EXCHANGE, PARCEL, num, text

pytestmark = [needs_dovecot, pytest.mark.long]

FORMATS = ["sdbox,sdbox", "sdbox,mdbox", "maildir,sdbox", "sdbox,maildir"]


def told(a, b):
    """b's worker takes what a's has said so far; what it says itself waits."""
    while a.outbox[b.number]:
        kind, _, body = a.outbox[b.number].pop(0)
        b.work(PARCEL, num(a.number) + num(kind) + text(body))


EXPUNGE = [("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",)]
MOVE = [("uid", "MOVE", "1", "INBOX")]


@pytest.mark.parametrize("how, left", [(MOVE, 2), (EXPUNGE, 1)], ids=["move", "expunge"])
@pytest.mark.parametrize("formats", FORMATS)
def test_a_copy_made_elsewhere_outlives_a_removal_that_had_not_seen_it(tmp_path_factory, formats, how, left):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(b, "INBOX", ("uid", "COPY", "1", "F"))
        b.ingest()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))    # before a hears of b's
        a.ingest()
        imap(b, "F", *how)
        told(a, b)                                     # before b looks
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (left, 1)
    finally:
        world.stop()


@pytest.mark.parametrize("formats", FORMATS)
def test_a_copy_made_elsewhere_outlives_a_deletion_that_had_not_seen_it(tmp_path_factory, formats):
    """Its folder lives on with it."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(b, "INBOX", ("uid", "COPY", "1", "F"))
        b.ingest()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))
        a.ingest()
        delete(b, "F")
        told(a, b)
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (1, 1)
    finally:
        world.stop()


@pytest.mark.parametrize("formats", FORMATS)
def test_a_copy_that_was_seen_goes_with_the_mail(tmp_path_factory, formats):
    """Where the look came first, the mail is gone for good."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(b, "INBOX", ("uid", "COPY", "1", "F"))
        b.ingest()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))
        a.ingest()
        told(a, b)
        imap(b, "F", *EXPUNGE)
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (1, 0)
    finally:
        world.stop()


@pytest.mark.parametrize("formats", FORMATS)
def test_a_copy_that_an_exchange_brings_outlives_a_removal_that_had_not_seen_it(tmp_path_factory, formats):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(b, "INBOX", ("uid", "COPY", "1", "F"))
        b.ingest()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))
        a.ingest()
        a.outbox[2].clear()         # no op tells of the copies
        b.outbox[1].clear()
        imap(b, "F", *EXPUNGE)
        b.ship(1, EXCHANGE)
        world.settle(ingest=False)
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (1, 1)
    finally:
        world.stop()
