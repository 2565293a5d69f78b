"""What a change costs does not depend on how many mails its mailbox holds, and what many cost grows
as their number does.

Costs are counted, not timed: index records, index logs' records and rows of the state that the worker
reads, bytes that it writes into rows, or copies (count_calls.c).
"""
import mmap
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from worker_sites import BUILD, append, fetch_changed, guid_of, imap, look_meanwhile, mail, make_world, needs_dovecot, subscribe
from support.frames import PARCEL, num, text
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

LIBRARY = BUILD / "tests" / "worker" / "count_calls.so"
NAMES = "uids", "steps", "written", "copied", "records"
SIZE = 8 * len(NAMES)


class Counted:
    """Two sites of one storage whose workers count."""

    def __init__(self, storage, crash=None):
        self.files = {}
        here = Path(tempfile.mkdtemp(prefix="worker-counts-"))
        here.chmod(0o777 if crash else 0o711)
        self.dir = here
        for number in (1, 2):
            path = here / f"site{number}"
            path.write_bytes(bytes(SIZE))
            path.chmod(0o666)
            with path.open("r+b") as file:
                self.files[number] = mmap.mmap(file.fileno(), SIZE)
        library = here / LIBRARY.name
        shutil.copy(LIBRARY, library)
        library.chmod(0o644)

        def env(number):
            return {"LD_PRELOAD": library, "DOVELANE_COUNTS": here / f"site{number}"}

        self.flag = here / "now"
        self.world = make_world(None, [storage, storage], crash and f"{crash}:{self.flag}", env=env)

    def counts(self, number):
        return dict(zip(NAMES, struct.unpack(f"<{len(NAMES)}Q", self.files[number][:SIZE])))

    def spent(self, number, work):
        before = self.counts(number)
        work()
        return {name: value - before[name] for name, value in self.counts(number).items()}

    def stop(self):
        self.world.stop()
        shutil.rmtree(self.dir)


@pytest.fixture
def counted(request):
    made = []

    def make(storage, crash=None):
        made.append(Counted(storage, crash))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def fill(site, number):
    """By one MULTIAPPEND."""
    box = site.imap()
    parts = []
    for n in range(number):
        one = mail(f"old{n}")
        parts.append(b" () {%d+}\r\n%s" % (len(one), one))
    box.send(b"x APPEND INBOX" + b"".join(parts) + b"\r\n")
    while not (line := box.readline()).startswith(b"x "):
        pass
    assert line.startswith(b"x OK"), line
    box.logout()


def give_to_both(world, number):
    """The same mails under the same UIDs, as after `doveadm sync`."""
    fill(world[1], number)
    shutil.rmtree(world[2].home(), ignore_errors=True)
    subprocess.run(["cp", "-a", world[1].home(), world[2].home()], check=True)


CHANGES = {"flag": [("uid", "store", "{uid}", "+FLAGS", "(\\Flagged)")],
           "append": [("append", "INBOX", None, None, mail("new"))],
           "expunge": [("uid", "store", "{uid}", "+FLAGS.SILENT", "(\\Deleted)"), ("expunge",)]}


def imap_names(site):
    return site.doveadm("mailbox", "list", "-u", USER, "-s").decode().split()


def cost_of(sites, change, uid):
    """{site: counts} of the third change of a kind: what is read once in a session is read by then."""
    world, here = sites.world, sites.world[1]
    guid = guid_of(here, "INBOX")
    for turn in range(3):
        commands = [[str(uid + turn) if word == "{uid}" else word for word in command]
                    for command in CHANGES[change]]
        imap(here, "INBOX", *commands)
        spent = {1: sites.spent(1, lambda: here.ingest((guid, "INBOX")))}
        spent[2] = sites.spent(2, lambda: world.settle(ingest=False))
    return spent


@pytest.mark.parametrize("storage", ["sdbox", "mdbox", "maildir"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_costs_the_same_in_a_large_mailbox(counted, storage, change):
    """Nobody has ever logged in at site 2, so that all mails there are recent."""
    cost = {}
    for number in (100, 3000):
        sites = counted(storage)
        give_to_both(sites.world, number)
        sites.world.settle()
        cost[number] = cost_of(sites, change, number // 2)
    for site in (1, 2):
        small, large = cost[100][site], cost[3000][site]
        assert large["uids"] <= small["uids"] + 100, cost
        assert large["steps"] <= small["steps"] + 100, cost
        assert large["records"] <= small["records"] + 100, cost
    if storage != "maildir" and change == "expunge":
        # Where it is carried out the library copies all records; where it is read of, it need not.
        assert cost[3000][1]["copied"] < cost[100][1]["copied"] + 2900 * 8, cost


@pytest.mark.parametrize("flag,before,meanwhile", [("\\Flagged", ["+FLAGS"], "-FLAGS"), ("\\Deleted", ["+FLAGS", "-FLAGS"], "+FLAGS")])
def test_what_clients_change_during_a_look_is_read_once(counted, flag, before, meanwhile):
    """A client sets a flag of each mail, one by one, and clears all of them when the look has read the log, or sets them again. Of a
    Maildir it sees that: the file of a mail that it reads has another name by then, and so it reads the index anew."""
    cost = {}
    for number in (100, 800):
        sites = counted("maildir", "scan")
        world, here = sites.world, sites.world[1]
        append(here, "INBOX", "before")
        world.settle()
        append(here, "INBOX", "new")
        fill(here, number)
        every = range(3, number + 3)

        def store(how, here=here, every=every):
            seen = "+FLAGS" if how == meanwhile else "-FLAGS"
            imap(here, "INBOX", ("store", "2", seen, "(\\Seen)"), *[("store", str(n), f"{how}.SILENT", f"({flag})") for n in every])

        for how in before:
            store(how)
        spent = sites.spent(1, lambda here=here, sites=sites, store=store: look_meanwhile(here, sites.flag, lambda: store(meanwhile)))
        cost[number] = spent["records"] / number
        world.settle()
        for site in world.sites.values():
            mails = site.contents()["INBOX"][1]
            assert [uid for uid, flags, *_ in mails if flag in flags] == [*every] * (meanwhile == "+FLAGS")
            assert len(mails) == number + 2
    assert cost[800] <= 1.2 * cost[100], cost


def test_stores_that_meet_cost_as_much_as_they_hold(counted):
    """Each batch of the one is taken while all that the other one has to tell still waits."""
    cost = {}
    for number in (1000, 6000):
        sites = counted("sdbox")
        give_to_both(sites.world, number)
        cost[number] = sites.spent(1, sites.world.settle)["steps"] / number
    assert cost[6000] <= 1.2 * cost[1000], cost


def test_many_subscriptions_are_written_a_hundred_at_a_time(counted):
    """The row that has all names is written anew for each commit."""
    cost = {}
    for number in (100, 800):
        sites = counted("sdbox")
        world = sites.world
        world.settle()
        names = [f"Folder{n:06}" for n in range(number)]
        subscribe(world[1], *names)
        world[1].ingest()
        cost[number] = sites.spent(2, lambda world=world: world.settle(ingest=False))["written"] / number
        assert len(imap_names(world[2])) == number
        subscribe(world[1], *names, on=False)
        world[1].ingest()
        world.settle(ingest=False)
        assert not imap_names(world[2])
    assert cost[800] <= cost[100] + 800, cost


def test_what_a_peer_has_not_heard_of_gets_behind_each_number_that_it_told(world):
    """A client that comes from there before has to come again ("changes on their way" in replication-protocol.md)."""
    here, there = world[1], world[2]
    for name in ("mine", "theirs"):
        append(here, "INBOX", name)
    world.settle()
    imap(here, "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)"))
    here.ingest()
    told = []
    for turn in range(3):
        for how in ("+FLAGS", "-FLAGS") * 4:
            imap(there, "INBOX", ("store", "2", how, "(\\Answered)"))
        imap(there, "INBOX", ("store", "2", "+FLAGS", f"(turn{turn})"))
        told.append(fetch_changed(there, 1)[1])
        there.ingest()
        for kind, _, body in there.outbox[1]:
            here.work(PARCEL, num(2) + num(kind) + text(body))
        there.outbox[1].clear()
    world.settle()
    for site in world.sites.values():
        for highest in told:
            changed, now = fetch_changed(site, highest)
            assert 1 in changed, (site.number, told, changed, now)
