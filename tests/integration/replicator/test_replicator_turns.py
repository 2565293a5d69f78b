"""Exchanges of many users: they take turns, and each comes to its end."""
import contextlib
import os
import threading
import time

import pytest
from support.frames import ANSWER, BATCH, DONE, INGEST, PARCEL, QUESTION, SHIP, TICK, num, text
from support.replicator_worker import Worker
from support.replicator_world import users
from support.waiting import eventually
from test_replicator import meta, world  # noqa: F401

pytestmark = pytest.mark.long


@pytest.mark.parametrize("count", [30, 120])
def test_exchanges_of_more_users_than_workers_come_to_their_end(world, count):  # noqa: F811
    """A user who waits for an answer keeps its worker for a while, though others wait for one: closed,
    it would ask anew, for ever. And they take turns: all at once they would wait for longer than that."""
    w = world(2, replicator_workers=3)
    names = users(count)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    for name in names:
        w[1].site.slow[name] = 0.02
    before = w[0].metric("replicator_exchanges")
    for name in names:
        assert w[0].admin("resync", name)[1] == 0
    eventually("an answer to each user's question", lambda: w[0].site.exchanged >= set(names))
    assert w[0].metric("replicator_exchanges") - before <= 3 * len(names)


def test_a_wish_for_a_tick_outlives_the_time_as_active(world):  # noqa: F811
    """Users leave memory, looked through each 30 s. A new state whose peer is down would never go on."""
    w = world(2, replicator_workers=1, worker_idle="100ms", active_for="1s")
    w[0].site.wishes["u"] = 32000
    w[0].change("u", "x")
    w.quiet(["u"])
    eventually("a TICK", lambda: w[0].site.ticks == ["u"])


def test_many_new_states_wait_for_their_turn(world):  # noqa: F811
    """Of a new state nothing is read before its exchange, so none is opened for that until its turn comes."""
    w = world(2, replicator_workers=3)
    names = users(120)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    for name in names:
        w[1].site.slow[name] = 0.02
    w[0].site.joining.update(names)
    opened = len(w[0].site.opened)
    for name in names:
        w[0].change(name, "y")
    eventually("an answer to each new state", lambda: not w[0].site.joining)
    w.quiet(names)
    assert w[0].site.joins_asked <= 3 * len(names)
    assert len(w[0].site.opened) - opened <= 15 * len(names)


def test_a_sweep_begins_no_more_new_states_than_get_their_turn_soon(world):  # noqa: F811
    """Each is opened to learn that it is new; all at once they are in the way of those whose turn it is. At
    either site 200 wait at first, and one a second is begun however long the turns are (sweep.c, TRICKLE)."""
    w = world(2, replicator_workers=3, sweep_rate=10000)
    names = users(600)
    for r in w.replicas:
        r.site.listed = names
        r.site.joining.update(names)
    w[1].site.slow.update(dict.fromkeys(names, 0.02))
    began = time.monotonic()
    for r in w.replicas:
        r.mark("+all")
    eventually("some answers", lambda: len(w[0].site.exchanged) >= 20, 300)
    begun = len(set(w[0].site.opened))
    trickled = 2 * int(time.monotonic() - began + 1)
    assert begun <= len(w[0].site.exchanged) + 300 + trickled, begun
    eventually("an answer to each new state",
               lambda: not w[0].site.joining and not w[1].site.joining, 300)


@contextlib.contextmanager
def asking_for_ever(w, names, monkeypatch):
    """Workers of these users of the first site say that they wait for an answer, whatever comes."""
    real, over, began = Worker.answer, threading.Event(), set()

    def answer(self, kind, r):
        if over.is_set() or self.user not in names or self.site is not w[0].site or kind not in (INGEST, PARCEL, SHIP, TICK):
            real(self, kind, r)
            return
        began.add(self.user)
        for site in self.peers() if kind != PARCEL else ():     # after each answer a question anew
            self.send(site, QUESTION, {})
        sites = b"".join(num(site) + num(0) + bytes([0, 0, 0, 1]) for site in self.peers())
        self.write(DONE, bytes([0]) + text("") + num(len(self.peers())) + sites + num(0) * 2 + b"\1" + num(0) * 2 + num(700))

    monkeypatch.setattr(Worker, "answer", answer)
    w[0].site.joining.update(names)
    for name in names:
        w[0].hint(name)
    try:
        eventually("all at it", lambda: began == set(names))
        yield
    finally:
        over.set()
        w[0].site.joining.difference_update(names)


@contextlib.contextmanager
def parcels_for(w, names):
    """Of the second site, a few bytes each, so that they are opened at the first all the time."""
    over, digest, lane = threading.Event(), w[0].site.hellos[0][1], "dovelane:replica:site-b>site-a"

    def push():
        call = w[1].redis.client()
        while names and not over.wait(0.05):
            entries = [[1, os.urandom(16), meta(digest, name, kind=99, sender=2, to=1), b""] for name in names]
            call("LANE.PUSH", 1, lane, "ENTRIES", len(names), *sum(entries, []))
    pushing = threading.Thread(target=push)
    pushing.start()
    try:
        yield
    finally:
        over.set()
        pushing.join()


@pytest.mark.parametrize("workers,opened", [(2, False), (4, False), (4, True)])
def test_who_asks_for_ever_leaves_others_their_turns(world, monkeypatch, workers, opened):  # noqa: F811
    """A site that never ends an exchange, or workers that were taken over, would have all turns for good. opened: each
    time that they are, for something else, they would go before those who wait."""
    w = world(2, replicator_workers=workers, worker_timeout="20s")    # a turn takes a second
    good, bad = users(10), [f"bad{i}" for i in range(8 if opened else 3)]
    for name in good:
        w[0].change(name, "x")
    w.quiet(good)
    with asking_for_ever(w, bad, monkeypatch), parcels_for(w, bad if opened else []):
        w[0].site.joining.update(good[:5])
        for name in good[:5]:
            w[0].change(name, "y")
        for name in good[5:]:
            assert w[0].admin("resync", name)[1] == 0
        eventually("the others' exchanges", lambda: w[0].site.exchanged >= set(good))


def test_a_long_exchange_ends_though_others_wait_for_turns(world, monkeypatch):  # noqa: F811
    """It takes more than one turn. Users whom the other site does not know are asked about again and again."""
    real, left, names = Worker.parcel, {"long": 6}, users(40)

    def parcel(self, r):
        at, site, kind, _ = r.at, r.num(), r.num(), r.text()
        if kind == ANSWER and self.user == "long" and site in self.asking and self.site is w[0].site and left["long"] > 0:
            left["long"] -= 1       # what was answered stands in the state, whoever has it open
            self.send(site, QUESTION, {})
            self.done()
            return
        r.at = at
        real(self, r)
    monkeypatch.setattr(Worker, "parcel", parcel)
    w = world(2, replicator_workers=4, worker_timeout="60s", hello_every="1h")      # a turn takes 3 s
    w[0].change("long", "x")
    w.quiet(["long"])
    w[1].site.unknown.update(names)
    for name in names:
        w[0].hint(name)
        assert w[0].admin("resync", name)[1] == 0
    w[1].site.slow["long"] = 0.9
    w[0].site.joining.add("long")
    w[0].hint("long")
    eventually("the end of the long exchange", lambda: "long" not in w[0].site.joining, 120)


@pytest.mark.parametrize("idle,parcels", [("100ms", True), ("60s", False)])
def test_who_is_opened_while_he_waits_for_his_turn_keeps_his_place(world, idle, parcels):  # noqa: F811
    """Of other users, whom the other site does not know, one is always before who begins anew."""
    w = world(2, replicator_workers=4, hello_every="1h", worker_idle=idle)
    w[0].change("waits", "x")
    w.quiet(["waits"])
    names = users(45)
    w[1].site.unknown.update(names)
    for name in names:
        w[0].hint(name)
        assert w[0].admin("resync", name)[1] == 0
    w[0].site.joining.add("waits")
    w[0].hint("waits")
    with parcels_for(w, ["waits"] if parcels else []):
        eventually("its exchange", lambda: "waits" not in w[0].site.joining)


class Ghosts(set):
    def __contains__(self, name):
        return name.startswith("ghost")


def test_a_site_that_makes_names_up_keeps_nobody_from_others(world):  # noqa: F811
    """Nor are they kept in memory without end."""
    w = world(3, hello_every="1h")
    for r in w.replicas:
        r.site.unknown = Ghosts()
    w[0].change("known@example.net", "x")
    w.quiet(["known@example.net"])
    digest, call = w[0].site.hellos[0][1], w[1].redis.client()
    for kind in (ANSWER, BATCH):    # nobody asked
        for n in range(0, 20000, 200):
            entries = [[1, os.urandom(16), meta(digest, f"ghost{n + i}", kind=kind, sender=2, to=1), b""] for i in range(200)]
            call("LANE.PUSH", 1, "dovelane:replica:site-b>site-a", "ENTRIES", 200, *sum(entries, []))
    eventually("names that are dropped", lambda: w[0].metric("replicator_dropped") > 30000)
    for name in ("known@example.net", "new@example.net"):
        w[0].change(name, "hinted")
    eventually("both at the third site",
               lambda: all("hinted" in w[2].site.items(name).get(1, []) for name in ("known@example.net", "new@example.net")))
    assert w[0].metric("replicator_users") < 1100
    assert w[0].says("names too many users")


def test_a_sweep_goes_on_while_all_turns_are_taken(world, monkeypatch):  # noqa: F811
    w = world(2, replicator_workers=4, worker_timeout="24h")    # a turn takes more than an hour
    names = users(20)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    with asking_for_ever(w, [f"bad{i}" for i in range(3)], monkeypatch):
        for name in names:
            assert w[0].admin("resync", name)[1] == 0
        w[0].site.listed = ["one", "two", "three"]
        w[0].mark("+all")
        eventually("a look at the others",
                   lambda: all(w[0].site.state(name).sweeps for name in w[0].site.listed))


@pytest.mark.parametrize("behind", ["already", "since", "not"])
def test_a_state_made_anew_while_its_user_is_open_is_asked_about_at_once(world, behind):  # noqa: F811
    """READY could not say so. Its worker waits 30 s, and then goes on with what the mailboxes have."""
    w = world(2, exchange_after="24h", worker_idle="1h")
    w[0].change("u", "x")
    w.quiet(["u"])
    state = w[0].site.state("u")
    for _ in range(2 if behind == "already" else 0):    # before the second look main has heard of it
        state.behind[2], looks = True, state.looks
        w[0].hint("u")
        eventually("a look", lambda: state.looks > looks)  # noqa: B023
    w[0].site.joining.add("u")
    state.behind[2] = behind != "not"
    w[0].hint("u")
    eventually("an answer", lambda: not w[0].site.joining)


def test_who_has_a_folder_that_cannot_be_read_is_not_forgotten(world):  # noqa: F811
    """Else its alert would end, or last for ever: nobody would hear that the folder can be read again."""
    w = world(2, replicator_workers=1, worker_idle="100ms", active_for="1s")
    for name in ("unreadable", "other"):
        w[0].change(name, "x")
    w.quiet(["unreadable", "other"])
    w[0].site.unseen["unreadable"] = 2
    w[0].hint("unreadable")
    eventually("the gauge", lambda: w[0].metric("replicator_unreadable") == 2)
    for name in ("unreadable", "other"):
        assert w[0].admin("status", name)[1] == 0
    eventually("the other one leaves memory", lambda: w[0].metric("replicator_users") < 2, 120)
    assert w[0].metric("replicator_users") == 1 and w[0].metric("replicator_unreadable") == 2
    w[0].site.unseen.clear()
    w[0].hint("unreadable")
    eventually("nothing to be told", lambda: w[0].metric("replicator_unreadable") == 0)
