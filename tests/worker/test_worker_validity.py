"""No client meets one UID of one UIDVALIDITY for two mails under a folder's name: what a client
makes gets a UIDVALIDITY that no folder had here, and where two sites that were apart gave the same
one, UIDs go on behind those that were shown."""
import re
import shutil

import pytest
from worker_sites import append, delete, equal, guid_of, imap, make_world, needs_dovecot, subjects
from support.frames import CLOSE, PARCEL, num, text
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

COUNTER = "dovecot-uidvalidity"


def set_counter(site, value):
    """Dovecot's own: the next folder that a client makes has the next number."""
    for path in site.root().glob(f"{COUNTER}*"):
        path.unlink()
    for name, said in ((COUNTER, f"{value:08x}"), (f"{COUNTER}.{value:08x}", "")):
        (site.root() / name).write_text(said, encoding="ascii")
        shutil.chown(site.root() / name, "nobody", "nogroup")


def counters(site):
    return [path.name for path in site.root().glob(f"{COUNTER}.*")]


def validity(site, folder):
    said = site.doveadm("mailbox", "status", "-u", USER, "uidvalidity", folder).decode()
    return int(re.search(r"uidvalidity=(\d+)", said)[1])


def uids(site, folder):
    told = site.doveadm("fetch", "-u", USER, "uid", "mailbox", folder, "all").decode()
    return [int(n) for n in re.findall(r"\d+", told)]


def made_at_two(world):
    """F, made at site 2 and by its worker at site 1; its UIDVALIDITY."""
    append(world[1], "INBOX", "m")
    world.settle()
    imap(world[2], None, ("create", "F"))
    append(world[2], "F", "theirs")
    value = validity(world[2], "F")
    set_counter(world[1], value - 1)
    world.settle()
    assert validity(world[1], "F") == value
    return value


def test_a_folder_that_a_client_makes_has_no_uidvalidity_of_another_sites(world):
    value = made_at_two(world)
    delete(world[1], "F")
    world.settle()
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "ours")
    assert validity(world[1], "F") > value and uids(world[1], "F") == [1]
    assert len(counters(world[1])) == 1
    world.settle()
    assert subjects(equal(world), "F") == 1


def test_a_counter_of_a_backup_goes_on_behind_what_was_given(world):
    value = made_at_two(world)
    world[1].work(CLOSE)
    set_counter(world[1], value - 100)
    world[1].ingest()
    imap(world[1], None, ("create", "G"))
    assert validity(world[1], "G") > value
    assert len(counters(world[1])) == 1
    world.settle()


@pytest.mark.parametrize("damage", ["no number", "no file", "two files"])
def test_a_counter_that_says_nothing(world, damage):
    """The name of the empty file counts."""
    value = made_at_two(world)
    world[1].work(CLOSE)
    set_counter(world[1], value - 100)
    if damage == "no number":
        (world[1].root() / COUNTER).write_text("x", encoding="ascii")
    elif damage == "no file":
        (world[1].root() / COUNTER).unlink()
    else:
        (world[1].root() / f"{COUNTER}.{value - 200:08x}").touch()
        (world[1].root() / COUNTER).write_text(f"{value - 150:08x}", encoding="ascii")
    world[1].ingest()
    imap(world[1], None, ("create", "G"))
    assert validity(world[1], "G") > value
    assert len(counters(world[1])) == 1
    world.settle()


@pytest.mark.parametrize("last", ["looked at", "after the last look", "never looked at"])
def test_another_folder_of_the_name_has_the_same_uidvalidity(world, last):
    """As one that was made at a site which had not heard of the first. Its mails do not get UIDs
    that were shown."""
    append(world[1], "INBOX", "m")
    world.settle()
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "first")
    if last != "never looked at":
        world.settle()
    if last != "looked at":
        append(world[1], "F", "more")
    value, shown, guid = validity(world[1], "F"), uids(world[1], "F"), guid_of(world[1], "F")
    delete(world[1], "F")
    with open(world[1].state() / "intents", "a", encoding="ascii") as journal:
        journal.write(f"N\t{guid}\t{shown[-1] + 1} {value}\n")
    world.settle()
    set_counter(world[2], value - 1)
    imap(world[2], None, ("create", "F"))
    append(world[2], "F", "second")
    assert validity(world[2], "F") == value and uids(world[2], "F") == [1]
    world.settle()
    assert subjects(equal(world), "F") == 1
    for site in world.sites.values():
        found = uids(site, "F")
        assert validity(site, "F") == value and found[0] > shown[-1], (site.number, shown, found)


@pytest.mark.parametrize("formats", ["sdbox,sdbox", "maildir,maildir"])
@pytest.mark.parametrize("last", ["looked at", "after the last look"])
def test_another_folder_has_the_uidvalidity_that_one_of_the_name_had_before_it_was_made_anew(formats, last):
    """A client deletes it and makes it again. It lives on by another site's mail, so it is one
    folder, which has the new mailbox's UIDVALIDITY. The one before is remembered."""
    world = make_world(None, formats.split(","))
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        imap(world[2], None, ("create", "F"))
        append(world[2], "F", "first")
        if last == "looked at":
            append(world[2], "F", "more")
        world.settle()
        if last == "after the last look":
            append(world[2], "F", "more")
        value, shown, guid = validity(world[2], "F"), uids(world[2], "F"), guid_of(world[2], "F")
        append(world[1], "F", "lives on")
        delete(world[2], "F")
        with open(world[2].state() / "intents", "a", encoding="ascii") as journal:
            journal.write(f"N\t{guid}\t{shown[-1] + 1} {value}\n")
        imap(world[2], None, ("create", "F"))
        assert validity(world[2], "F") > value
        world.settle()
        assert "F" in equal(world)
        delete(world[1], "F")
        world.settle()
        assert "F" not in equal(world)
        set_counter(world[1], value - 1)
        imap(world[1], None, ("create", "F"))
        append(world[1], "F", "second")
        assert validity(world[1], "F") == value
        world.settle()
        assert subjects(equal(world), "F") == 1
        assert validity(world[2], "F") == value and uids(world[2], "F")[0] > shown[-1], (shown, uids(world[2], "F"))
    finally:
        world.stop()


def take(world, site, parcels, other):
    """The site takes what the other one sent."""
    for kind, _, body in parcels:
        world[site].work(PARCEL, num(other) + num(kind) + text(body))


@pytest.mark.parametrize("formats", ["sdbox,sdbox", "maildir,sdbox", "mdbox,maildir"])
@pytest.mark.parametrize("mails", [0, 1])
def test_a_folder_that_lives_on_gets_the_mailbox_of_another_one(formats, mails):
    """Its mails and mailbox were deleted, and another site's folder of its name has a mailbox, with
    an earlier UIDVALIDITY. That site had put a mail into the first one before it heard."""
    world = make_world(None, formats.split(","))
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        here, there = world[1].outbox, world[2].outbox
        imap(world[1], None, ("create", "F"))
        world[1].ingest()
        made, here[2] = here[2], []
        value = validity(world[1], "F")
        append(world[1], "F", "first")
        append(world[1], "F", "second")
        world[1].ingest()
        shown = uids(world[1], "F")
        set_counter(world[2], value - 2)
        imap(world[2], None, ("create", "F"))
        assert validity(world[2], "F") == value - 1
        world[2].ingest()
        delete(world[1], "F")
        world[1].ingest()
        theirs, there[1] = there[1], []
        take(world, 1, theirs, 2)
        assert validity(world[1], "F") == value - 1
        if mails:
            append(world[1], "F", "here")
        take(world, 2, made, 1)
        assert validity(world[2], "F") == value
        append(world[2], "F", "lives on")
        world[2].ingest()
        world.settle()
        assert subjects(equal(world), "F") == 1 + mails
        assert validity(world[1], "F") == value and uids(world[1], "F")[0] > shown[-1], (shown, uids(world[1], "F"))
    finally:
        world.stop()
