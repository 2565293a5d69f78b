"""CONDSTORE and QRESYNC clients that change sites: what each is told
(docs/replication-protocol.md, "Modseqs").
"""
import random
import struct
import time

import pytest
from qresync import Client, missed, truth
from worker_sites import append, crash_world, equal, imap, mail, make_world, needs_dovecot
from support.frames import CLOSE, HELLO_TOO, PARCEL, TICK, num, text
from support.modseqs import owes
from support.worker_world import GUARD, USER, Failed

pytestmark = needs_dovecot

RAISE, RAISED = 12, 13
MIXES = ["sdbox,sdbox", pytest.param("maildir,sdbox,mdbox", marks=pytest.mark.long)]


def start(formats, mails=6):
    world = make_world(None, formats.split(","))
    begin(world, mails)
    return world


def begin(world, mails=6):
    box = world[1].imap()
    for i in range(mails):
        assert box.append("INBOX", None, None, mail(f"m{i}"))[0] == "OK"
    box.logout()
    world.settle()
    for site in world.sites.values():  # from now on each mail has a modseq of its own
        Client().visit(site)


@pytest.mark.parametrize("formats", MIXES)
def test_a_client_of_a_quiet_group_misses_nothing(formats):
    """It synced at one site; a change at the other, after which all is quiet; it comes there."""
    world, client = start(formats), Client()
    try:
        client.visit(world[1])
        for turn in range(6):
            here, there = (1, 2) if turn % 2 == 0 else (2, 1)
            imap(world[there], "INBOX",
                 ("store", str(turn % 5 + 1), "+FLAGS", f"(\\Flagged kw{turn})"))
            world.settle()
            client.visit(world[there])
            assert not missed(client, world[there]), f"turn {turn}"
            client.visit(world[here])
            assert not missed(client, world[here]), f"turn {turn}"
    finally:
        world.stop()


def test_a_quiet_group_counts_alike():
    """Changes of one site after those of the other need nobody to raise anything."""
    world = start("sdbox,sdbox")
    try:
        for turn in range(6):
            imap(world[turn % 2 + 1], "INBOX", ("store", "1", "+FLAGS", f"(kw{turn})"))
            world.settle()
        before = len(world.carried)
        for turn in range(6):
            imap(world[turn % 2 + 1], "INBOX", ("store", "2", "+FLAGS", f"(kw{turn})"))
            world.settle()
        assert not [kind for _, _, kind, _ in world.carried[before:] if kind == RAISE]
    finally:
        world.stop()


def conflict(world, client):
    """Each site gives one modseq to another change. The client knows that of site 1 only."""
    client.visit(world[1])
    for number, site in world.sites.items():
        imap(site, "INBOX", ("store", str(number), "+FLAGS", "(\\Flagged)"))
        site.ingest()
    client.visit(world[1])


@pytest.mark.test
def test_who_comes_before_a_raise_is_told_by_the_next_visit():
    """The mailboxes are equal, and the RAISE is on its way: a client from the other site misses a
    change. HIGHESTMODSEQ is one number, so that cannot be mended; the next visit tells it."""
    world, client, held = start("sdbox,sdbox"), Client(), []
    carry = world.carry

    def hold():
        for site in world.sites.values():
            for to, lane in site.outbox.items():
                held.extend((site, to, parcel) for parcel in lane if parcel[0] == RAISE)
                lane[:] = [parcel for parcel in lane if parcel[0] != RAISE]
        return carry()

    try:
        conflict(world, client)
        world.carry = hold
        world.settle(ingest=False)
        assert held and truth(world[1]) == truth(world[2])
        assert any(owes(site.state()) for site in world.sites.values())
        client.visit(world[2])
        assert missed(client, world[2]), "it was told all: this test shows nothing"
        world.carry = carry
        for site, to, parcel in held:
            site.outbox[to].append(parcel)
        world.settle(ingest=False)
        assert not any(owes(site.state()) for site in world.sites.values())
        for site in (world[2], world[1]):
            client.visit(site)
            assert not missed(client, site)
    finally:
        world.stop()


@pytest.mark.long
def test_a_raise_that_is_lost_is_sent_again():
    world, client, lost = start("sdbox,sdbox"), Client(), []
    carry = world.carry

    def drop(_, to, kind):
        if kind == RAISE and to == 2 and not lost:
            lost.append(to)
            return True
        return False

    try:
        conflict(world, client)
        world.carry = lambda: carry(drop)
        world.settle(ingest=False)
        assert lost
        world[1].work(CLOSE)  # what it owes is in a row
        end = time.monotonic() + GUARD
        while sum(kind == RAISED and to == 1 for _, to, kind, _ in world.carried) == 0:
            assert time.monotonic() < end, "the RAISE does not come again"
            time.sleep(0.5)
            world[1].work(TICK)
            world.settle(ingest=False)
        client.visit(world[2])
        assert not missed(client, world[2])
    finally:
        world.stop()


@pytest.mark.long
def test_a_worker_that_dies_between_raising_and_saying_so():
    (world, flag), client = crash_world(None, ["sdbox", "sdbox"], "modseqs"), Client()
    try:
        begin(world)
        conflict(world, client)
        flag.write_text("")
        with pytest.raises(Failed, match="went away"):
            world.settle(ingest=False)
        for site in world.sites.values():
            site.disconnect()
            site.done = {}
        world[1].ship(2, HELLO_TOO)
        world[2].ship(1, HELLO_TOO)
        world.settle()
        client.visit(world[2])
        assert not missed(client, world[2])
    finally:
        world.stop()


def change(site, dice, name):
    true = truth(site)
    what = dice.random()
    if what < 0.15 or len(true) < 3:
        append(site, "INBOX", name, dice.choice([None, "(\\Seen)"]))
    elif what < 0.3:
        imap(site, "INBOX", ("uid", "STORE", str(dice.choice(list(true))), "+FLAGS", "(\\Deleted)"),
             ("expunge",))
    else:
        imap(site, "INBOX",
             ("uid", "STORE", str(dice.choice(list(true))), dice.choice(["+FLAGS", "-FLAGS"]),
              dice.choice(["(\\Seen)", "(\\Flagged)", "(kw)", "(\\Answered \\Draft)"])))


def hop_about(formats, seed, rounds):
    """Clients come to any site at any time; when all is quiet each misses no flag anywhere."""
    world, dice = start(formats), random.Random(seed)
    clients = [Client() for _ in range(4)]
    wrong, ghosts = [], 0  # a ghost: a mail that is gone, and the client was not told
    try:
        for turn in range(rounds):
            for step in range(dice.randint(1, 6)):
                site = dice.choice(list(world.sites.values()))
                change(site, dice, f"t{turn}s{step}")
                if dice.random() < 0.6:
                    site.ingest()
                for _ in range(dice.randint(0, 3)):
                    world.carry()
                if dice.random() < 0.7:
                    dice.choice(clients).visit(dice.choice(list(world.sites.values())))
            world.settle()
            for client in clients:
                for site in dice.sample(list(world.sites.values()), len(world.sites)):
                    client.visit(site)
                    lacks = missed(client, site)
                    ghosts += sum(now is None for _, now in lacks.values())
                    wrong += [(turn, site.number, uid, *flags) for uid, flags in lacks.items()
                              if flags[1] is not None]
                    client.known = truth(site)
        raises = sum(kind == RAISE for _, _, kind, _ in world.carried)
        print(f"seed {seed}: {ghosts} ghosts, {raises} RAISEs")
        assert not wrong, wrong
    finally:
        world.stop()


@pytest.mark.parametrize("formats", MIXES)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.long
def test_clients_that_hop_at_random_miss_no_flag(formats, seed):
    hop_about(formats, seed, 12)


def raise_body(modseq, uid=1):
    """Of INBOX."""
    return struct.pack("<QQ", 0, 0) + b"".join(map(num, (0, modseq, modseq, 1, uid, uid)))


def highest(site):
    client = Client()
    client.visit(site)
    return client.modseq


def tell_far(site, modseq):
    """What the worker says to a RAISE of site 2."""
    return site.work(PARCEL, num(2) + num(RAISE) + text(raise_body(modseq)))


REFUSED = 1


@pytest.mark.test
@pytest.mark.parametrize("far", [1 << 33, 1 << 48, (1 << 48) + 1, 1 << 62])
def test_a_raise_that_no_site_asks_for_is_refused(far):
    """Its own numbers would be more than the others believe; and at 2^62 there are none left."""
    world = start("sdbox,sdbox")
    try:
        before = highest(world[1])
        done = tell_far(world[1], far)
        assert done["result"] == REFUSED and f"INBOX: site 2 asks for modseq {far}:" in done["text"]
        assert highest(world[1]) == before
        assert tell_far(world[1], before + 4096)["result"] == 0
        assert highest(world[1]) == before + 4096
    finally:
        world.stop()


@pytest.mark.test
@pytest.mark.parametrize("far", [(1 << 48) - 1, (1 << 62) - 1, (1 << 62) + 5])
def test_a_mailbox_without_modseqs_to_go_to_is_not_tried_again_and_again(far):
    """Flags and mails go on to come, whatever its HIGHESTMODSEQ is."""
    world = start("sdbox,sdbox")
    try:
        world[1].doveadm("mailbox", "update", "-u", USER, "--min-highest-modseq", str(far), "INBOX")
        world.settle()
        conflict(world, Client())
        append(world[1], "INBOX", "later")
        append(world[2], "INBOX", "later, too")
        world.settle()
        equal(world, uids=False)
        for site in world.sites.values():
            site.work(TICK)
            assert not 0 < site.done["tick"] <= 1000, site.done
        assert any("further than sites raise each other" in note for _, note in world[1].notes)
    finally:
        world.stop()
