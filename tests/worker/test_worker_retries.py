"""What cannot be read is tried again, ever more rarely; nothing of it is lost, and all of it comes when it can be read."""
import re
import shutil
import time

import pytest
from worker_sites import append, crash_world, delete, directory_of, equal, guarded, imap, make_world, needs_dovecot, subjects
from support.frames import CLOSE, HELLO_TOO, NEW, PARCEL, TICK, num, text
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.long]

FORMATS = ["maildir", "sdbox", "mdbox"]


def next_try(site):
    """The TICK that the worker wishes, when it is due; how long that was, in ms."""
    wait = site.done["tick"]
    time.sleep(wait / 1000)
    site.work(TICK)
    return wait


@pytest.fixture(params=FORMATS)
def pair(request, tmp_path_factory):
    made = make_world(tmp_path_factory, [request.param, "maildir"])
    for name in ("Kept", "Changed"):
        imap(made[1], None, ("create", name))
        append(made[1], name, "m")
    made.settle()
    yield made
    made.stop()


def rename(site, name):
    imap(site, None, ("rename", name, "Other"))


@pytest.mark.parametrize("change,left,first", [(delete, {"INBOX", "Kept"}, 100), (rename, {"INBOX", "Kept", "Other"}, 1000)], ids=["deleted", "renamed"])
def test_each_try_of_what_cannot_be_read_comes_later(pair, change, left, first):
    """What another site did to a folder that cannot be read here. What is to be deleted may be in use only, so that is tried sooner."""
    a, b = pair[1], pair[2]
    with guarded(directory_of(a, "Changed")):
        change(b, "Changed")
        pair.settle()
        a.work(CLOSE)
        a.work(TICK)
        assert [next_try(a) for _ in range(3)] == [first, 2 * first, 4 * first]
        for _ in range(5):
            a.work(TICK)
            assert 0 < a.done["tick"] <= 8 * first, "a try before its time counted"
    next_try(a)
    pair.settle()
    assert equal(pair, uids=False).keys() == left


def test_a_removal_that_waited_and_went_well_is_not_a_failure(pair):
    """A look at one mailbox leaves what clients removed to a look at all: each time that goes well, and the next one is as soon."""
    a, b = pair[1], pair[2]
    for number in range(8):
        append(a, "Kept", f"more{number}")
    pair.settle()
    waits = []
    for _ in range(4):
        imap(a, "Kept", ("store", "1", "+FLAGS", "(\\Flagged)"), ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        imap(b, "Kept", ("store", "1", "+FLAGS", "(\\Seen)"))
        b.ingest()
        for kind, _, body in b.outbox[1]:
            a.work(PARCEL, num(2) + num(kind) + text(body))
        b.outbox[1].clear()
        waits.append(next_try(a))
        pair.settle(ingest=False)
        imap(a, "Kept", ("store", "1", "-FLAGS", "(\\Flagged)"))
        imap(b, "Kept", ("store", "1", "-FLAGS", "(\\Seen)"))
        pair.settle()
    assert max(waits) <= 1000, waits
    assert subjects(equal(pair), "Kept") == 5


def test_mail_for_a_folder_that_is_renamed_elsewhere_and_cannot_be_read(pair):
    a, b = pair[1], pair[2]
    with guarded(directory_of(a, "Changed")):
        rename(b, "Changed")
        append(b, "Other", "of B")
        pair.settle()
        a.work(TICK)
        pair.settle()
        assert b.contents().keys() == {"INBOX", "Kept", "Other"}
    for _ in range(3):
        pair.settle()
    now = equal(pair, uids=False)
    assert now.keys() == {"INBOX", "Kept", "Other"} and subjects(now, "Other") == 2


@pytest.mark.parametrize("formats", ["maildir,maildir", "sdbox,sdbox", "mdbox,maildir"])
def test_a_renumbering_that_was_cut_short_where_nothing_can_be_read(tmp_path_factory, formats):
    """How far it came is seen in the mailbox alone."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), "renumber-copied")
    try:
        imap(world[1], None, ("create", "F"))
        append(world[1], "F", "one")
        world.settle()
        flag.write_text("")
        for site in world.sites.values():
            append(site, "F", f"at{site.number}")
        with pytest.raises(Failed, match="went away") as error:
            world.settle()
        dead = world[int(re.search(r"worker of site (\d)", str(error.value))[1])]
        for site in world.sites.values():
            site.disconnect()
            for lane in site.outbox.values():
                lane.clear()
            site.done = {}
        with guarded(directory_of(dead, "F")):
            append(dead, "INBOX", "meanwhile")
            world.settle()
        for _ in range(2):
            for site in world.sites.values():
                for to in site.outbox:
                    site.ship(to, NEW)
                    site.ship(to, HELLO_TOO)
            world.settle()
        now = equal(world)
        assert (subjects(now, "F"), subjects(now, "INBOX")) == (3, 1)
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)
