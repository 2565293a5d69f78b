"""A mail that its site saved behind those of others waits for these, for seconds at most, whatever that site says it has."""
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from disk_questions import ASKED, ask, confirmed, guid_of_mail, synced
from worker_sites import FIRST, append, equal, imap, kill_workers, make_world, needs_dovecot
from support.frames import (BATCH, CLOSE, CONFIRMED, HELLO_TOO, NEW, PARCEL, TICK, Reader, num,
                            text, u64)
from support.worker_world import Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

GUARD = 80     # seconds until a mail that waits is given up: other rules let it go after two minutes


def uids(site, folder="INBOX"):
    validity, mails = site.contents()[folder]
    return validity, [(uid, body) for uid, _, _, body in mails]


def shown(site, folder="INBOX"):
    return len(uids(site, folder)[1])


def make(tmp_path_factory, storage, crash=None):
    """Site 1 has one mail, as the others have. It is cut off from now on: what comes to it is given by hand."""
    formats = [storage, "sdbox", "sdbox"]
    world = make_world(tmp_path_factory, formats, crash, more=synced(formats))
    imap(world[1], None, ("create", "F"))
    append(world[1], "INBOX", "first")
    append(world[1], "F", "first of F")
    world.settle()
    return world


@pytest.fixture(params=["sdbox", "mdbox", "maildir"])
def world(request, tmp_path_factory):
    world = make(tmp_path_factory, request.param)
    yield world
    world.stop()


def pump(world):
    """Sites 2 and 3 say all to each other. What they have for site 1 is told again later (CONFIRMED)."""
    held = lambda a, to, kind: to == 1 or a == 1  # noqa: E731
    for number in 2, 3:
        world[number].ingest()
    for _ in range(3):
        while world.carry(held):
            pass
        for number in 2, 3:
            for to, s in list(world[number].done["sites"].items()):
                if to != 1 and (s["more"] or s["owed"] or s["unconfirmed"]):
                    world[number].ship(to, NEW if s["more"] else HELLO_TOO if s["owed"] else CONFIRMED)


def save_above_a_hole(site, subject, folder="INBOX"):
    """The mail before it is removed at once: other sites never have one of that UID."""
    append(site, folder, f"before {subject}")
    append(site, folder, subject)
    box = site.imap()
    box.select(folder)
    (number,) = box.search(None, "SUBJECT", f'"before {subject}"')[1][0].split()
    box.store(number, "+FLAGS", "(\\Deleted)")
    box.expunge()
    box.logout()


def claims(body, site, number, cut=False):
    """That BATCH, with a vector in which each origin of a site has that number, if it had less. cut: and no more than that."""
    whole = Reader(body)
    batch = Reader(whole.text())
    changed = bytes([batch.u8()])
    n = batch.num()
    changed += num(n)
    for _ in range(n):
        by, epoch, counter, chain = batch.u64(), batch.u64(), batch.num(), batch.u64()
        if by == site and counter < number:
            counter, chain = number, 0
        changed += u64(by) + u64(epoch) + num(counter) + u64(chain)
    rest = batch.data[batch.at:]
    return text(changed + (rest[:1] if cut else rest)) + body[whole.at:]


def give(world, a, lies=lambda body: body):
    """Site 1 gets what site a has for it."""
    lane = world[a].outbox[1]
    lane.clear()
    world[a].ship(1, CONFIRMED)
    given = [body for kind, _, body in lane if kind == BATCH]
    lane.clear()
    assert given
    for body in given:
        world[1].work(PARCEL, num(a) + num(BATCH) + text(lies(body)))


def comes(world, subjects, folder="INBOX"):
    """When the time is over that a mail waits."""
    end = time.monotonic() + GUARD
    while shown(world[1], folder) < subjects:
        assert time.monotonic() < end, world[1].done
        assert 0 < world[1].done["tick"] <= 10000, world[1].done
        time.sleep(world[1].done["tick"] / 1000)
        world[1].work(TICK)


def one_after_the_other(world):
    """Site 2 saves its mail behind that of site 3."""
    for number in 3, 2:
        append(world[number], "INBOX", f"of {number}")
        pump(world)
    before = uids(world[2])
    assert len(before[1]) == 3 and before == uids(world[3])
    return before


def test_a_mail_waits_for_what_its_giver_had_before_it(world):
    """Site 1 hears of site 2's mail first: no UID changes at the others."""
    before = one_after_the_other(world)
    give(world, 2)
    assert shown(world[1]) == 1 and world[1].done["unplaced"] == 1
    give(world, 3)
    assert uids(world[1]) == before
    world.settle()
    assert before == uids(world[1]) == uids(world[2]) == uids(world[3])


def test_so_does_the_first_one_that_comes_after_the_user_was_opened(world):
    """That site was known to be ahead already, from before he was closed."""
    imap(world[3], "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)"))
    pump(world)
    imap(world[2], "INBOX", ("store", "1", "+FLAGS", "(\\Answered)"))
    pump(world)
    give(world, 2)
    assert world[1].done["sites"][2]["behind"]
    world[1].work(CLOSE)
    before = one_after_the_other(world)
    give(world, 2)
    assert shown(world[1]) == 1
    give(world, 3)
    assert uids(world[1]) == before
    world.settle()
    assert before == uids(world[1]) == uids(world[2]) == uids(world[3])


def test_one_that_waits_is_there_when_the_user_was_closed_meanwhile(world):
    one_after_the_other(world)
    give(world, 2)
    assert shown(world[1]) == 1
    world[1].work(CLOSE)
    world[1].work(TICK)
    assert shown(world[1]) == 2
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 3


def test_it_waits_no_longer_than_for_that(world):
    """What its giver had before it was no mail, and the hole stays."""
    imap(world[3], "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)"))
    pump(world)
    save_above_a_hole(world[2], "of 2")
    pump(world)
    give(world, 2)
    assert shown(world[1]) == 1
    give(world, 3)
    assert shown(world[1]) == 2
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 2


def test_it_waits_not_for_what_its_giver_has_of_its_own(world):
    """A long list of ops comes in several batches, of which each names the last number."""
    save_above_a_hole(world[2], "of 2")
    pump(world)
    give(world, 2, lambda body: claims(body, 2, 1000))
    assert world[1].done["sites"][2]["behind"]
    assert shown(world[1]) == 2
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 2


def test_a_mail_waits_not_long_for_what_never_comes(world):
    """Site 2 says that it has ops of site 3 that there are not. Nothing waits but what comes behind that mail."""
    save_above_a_hole(world[2], "of 2")
    append(world[2], "F", "of 2, in F")
    pump(world)
    give(world, 2, lambda body: claims(body, 3, 1 << 40))
    assert shown(world[1]) == 1 and shown(world[1], "F") == 2
    append(world[1], "INBOX", "of 1")
    append(world[3], "F", "of 3, in F")
    pump(world)
    give(world, 3)
    assert shown(world[1], "F") == 3
    comes(world, 3)
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 3


def test_a_site_that_always_names_more_holds_up_no_mail_for_longer(world):
    """Each batch brings a mail above a hole, and names what did not come before."""
    end, n, number = time.monotonic() + GUARD, 0, 1 << 40
    while shown(world[1]) == 1:
        assert time.monotonic() < end
        n, number = n + 1, number + 1
        save_above_a_hole(world[2], f"of 2, {n}")
        pump(world)
        give(world, 2, lambda body, to=number: claims(body, 3, to))
    assert n > 1
    comes(world, 1 + n)
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 1 + n


def test_nor_does_one_whose_batches_cannot_be_read(world):
    save_above_a_hole(world[2], "of 2")
    pump(world)
    end, number = time.monotonic() + GUARD, 1 << 40
    give(world, 2, lambda body: claims(body, 3, number))
    assert shown(world[1]) == 1
    while shown(world[1]) == 1:
        assert time.monotonic() < end
        time.sleep(0.5)
        number += 1
        give(world, 2, lambda body: claims(body, 3, number, cut=True))
        world[1].work(TICK)
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 2


def asked_while_it_waits(world):
    """A client's reply at site 2 is held back until another site says that it has his mail on its disk. The GUID."""
    one_after_the_other(world)
    give(world, 2)
    guid = guid_of_mail(world[2], "of 2")
    ask(world, 2, 1, guid)
    assert shown(world[1]) == 1 and confirmed(world, 1, 2)[0] == set()
    return guid


def test_a_mail_that_waits_is_said_to_be_on_the_disk_when_it_was_placed(world):
    """What the state knows of it is not enough: it may be taken back by a power loss. It is said in the round that places the mail."""
    guid = asked_while_it_waits(world)
    while shown(world[1]) == 1:
        assert confirmed(world, 1, 2)[0] == set()
        time.sleep(world[1].done["tick"] / 1000)
        world[1].work(TICK)
    assert confirmed(world, 1, 2)[0] == {(ASKED, guid)}
    kill_workers(world[1])
    assert shown(world[1]) == 2
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 3


@pytest.mark.parametrize("first", FIRST)
def test_a_worker_that_is_killed_while_a_mail_waits_has_confirmed_nothing(world, first):
    """The next one does not wait: it places the mail, and says so to who asks again."""
    guid = asked_while_it_waits(world)
    kill_workers(world[1])
    assert shown(world[1]) == 1
    ask(world, 2, 1, guid)
    assert bool(confirmed(world, 1, 2)[0]) == (shown(world[1]) == 2)
    FIRST[first](world[1])
    assert shown(world[1]) == 2 and confirmed(world, 1, 2)[0] == {(ASKED, guid)}
    kill_workers(world[1])
    assert shown(world[1]) == 2
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 3


def test_what_its_giver_had_before_it_comes_to_another_worker_than_the_mail(world):
    """The first one was killed while the mail waited. All sites agree on the UIDs afterwards, and each mail is there once."""
    one_after_the_other(world)
    give(world, 2)
    assert shown(world[1]) == 1
    kill_workers(world[1])
    give(world, 3)
    assert shown(world[1]) == 3
    world.settle()
    assert len(equal(world)["INBOX"][1]) == 3


@pytest.mark.parametrize("step", ["place", "place-said", "saving"])
def test_a_worker_that_dies_when_the_wait_is_over_has_confirmed_nothing(tmp_path_factory, step):
    flag = Path(tempfile.mkdtemp(prefix="worker-crash-")) / "now"
    flag.parent.chmod(0o777)
    world = make(tmp_path_factory, "sdbox", f"{step}:{flag}")
    try:
        guid = asked_while_it_waits(world)
        flag.touch()
        end = time.monotonic() + GUARD
        with pytest.raises(Failed):
            while time.monotonic() < end:
                time.sleep(world[1].done["tick"] / 1000)
                world[1].work(TICK)
        assert confirmed(world, 1, 2)[0] == set()
        world[1].disconnect()
        FIRST["tick"](world[1])
        ask(world, 2, 1, guid)
        assert shown(world[1]) == 2 and confirmed(world, 1, 2)[0] == {(ASKED, guid)}
        world.settle()
        assert len(equal(world)["INBOX"][1]) == 3
    finally:
        world.stop()
        shutil.rmtree(flag.parent, ignore_errors=True)
