"""A folder's index begins anew under the UIDVALIDITY that its clients know: their modseqs are of
the one before (docs/replication-protocol.md, "Modseqs").
"""
import struct

import pytest
from qresync import Client, missed
from worker_sites import append, delete, equal, imap, indexes, make_world, needs_dovecot, subjects
from support.frames import CLOSE, PARCEL, num, text

pytestmark = needs_dovecot

RAISE = 12
MIXES = ["sdbox,mdbox", pytest.param("maildir,sdbox", marks=pytest.mark.long),
         pytest.param("mdbox,maildir", marks=pytest.mark.long)]


@pytest.fixture(params=MIXES)
def world(request):
    world = make_world(None, request.param.split(","))
    yield world
    world.stop()


def begin(world, folder, mails):
    """Clients of both sites that know it all, after some changes."""
    if folder != "INBOX":
        imap(world[1], None, ("create", folder))
    for i in range(mails):
        append(world[1], folder, f"m{i}")
    world.settle()
    clients = {number: Client(folder) for number in world.sites}
    for _ in range(2):
        for number, client in clients.items():
            client.visit(world[number])
        for i in range(1, mails + 1):
            imap(world[1], folder, ("store", str(i), "+FLAGS", "(\\Flagged)"))
            imap(world[1], folder, ("store", str(i), "-FLAGS", "(\\Flagged)"))
        world.settle()
    for number, client in clients.items():
        client.visit(world[number])
    return clients


def test_of_a_folder_that_comes_back(world):
    """Site 1's user deletes it, and site 2's puts a mail into it."""
    clients = begin(world, "F", 5)
    delete(world[1], "F")
    append(world[2], "F", "new")
    world.settle()
    assert subjects(equal(world), "F") == 1
    for turn in range(2):
        for client in clients.values():
            for site in world.sites.values():
                client.visit(site)
                assert not missed(client, site), (turn, site.number)
        imap(world[turn + 1], "F", ("store", "1", "+FLAGS", f"(kw{turn})"))
        world.settle()


def test_of_a_folder_that_comes_back_again_and_again(world):
    """Its modseqs went on above a floor that nobody looked at since, when it is deleted again."""
    clients = begin(world, "F", 5)
    for turn in range(3):
        delete(world[1], "F")
        append(world[2], "F", f"new{turn}")
        world.settle()
        assert subjects(equal(world), "F") == 1
        for client in clients.values():
            for site in world.sites.values():
                client.visit(site)
                assert not missed(client, site), (turn, site.number)


def test_of_a_folder_that_comes_back_much_later(world):
    """No site had it for a while."""
    clients = begin(world, "F", 5)
    delete(world[1], "F")
    world[1].ingest()
    append(world[2], "F", "new")  # heard of later
    world.settle()
    assert subjects(equal(world), "F") == 1
    for client in clients.values():
        for site in world.sites.values():
            client.visit(site)
            assert not missed(client, site), site.number


def lose_index(site):
    site.work(CLOSE)
    for path in indexes(site):
        if path.is_file() and path.name.startswith("dovecot.index"):
            path.unlink()


@pytest.mark.parametrize("folder", ["INBOX", "F"])
def test_of_a_folder_whose_index_is_lost(world, folder):
    clients = begin(world, folder, 5)
    imap(world[1], folder, ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    lose_index(world[1])
    world.settle()
    assert subjects(equal(world), folder) == 4
    imap(world[1], folder, ("store", "1", "+FLAGS", "(\\Answered)"))
    world.settle()
    for client in clients.values():
        for site in world.sites.values():
            client.visit(site)
            assert not missed(client, site), site.number


def test_of_an_index_that_is_lost_before_what_was_raised_is_looked_at(world):
    """By more than what clients are taken to do meanwhile."""
    client = begin(world, "INBOX", 5)[1]
    far = client.modseq + 200_000
    body = struct.pack("<QQ", 0, 0) + b"".join(map(num, (0, far, far, 1, 1, 5)))
    world[1].work(PARCEL, num(2) + num(RAISE) + text(body))
    client.visit(world[1])
    assert client.modseq >= far
    lose_index(world[1])
    world.settle()
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    client.visit(world[1])
    assert not missed(client, world[1])


@pytest.mark.long
def test_what_a_peer_pushed_far_is_gone_on_above():
    """As far as a RAISE is believed. What the new index begins with is that far below."""
    world = make_world(None, ["maildir", "sdbox"])
    try:
        client = begin(world, "INBOX", 5)[1]
        far = client.modseq + (1 << 32) - 1
        body = struct.pack("<QQ", 0, 0) + b"".join(map(num, (0, far, far, 1, 1, 5)))
        world[1].work(PARCEL, num(2) + num(RAISE) + text(body))
        client.visit(world[1])
        assert client.modseq >= far
        imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        lose_index(world[1])
        world.settle()
        client.visit(world[1])
        assert client.modseq > far
        assert not missed(client, world[1])
    finally:
        world.stop()
