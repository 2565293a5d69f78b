"""What confirms changes opens few users: a hello is said before one is closed, and one that comes waits for the next opening."""
import contextlib
import os
import signal
import threading

import pytest
from support import replicator_worker
from support.frames import ANSWER, ANSWER_READING, BATCH, QUESTION
from support.replicator_worker import Worker, batch_body
from support.replicator_world import users
from support.waiting import eventually
from test_replicator import meta, world  # noqa: F401

STILL = {"hello_every": "1h", "resend_after": "1h", "resend_most": "1h", "worker_idle": "1h"}


@contextlib.contextmanager
def stopped(replica):
    os.kill(replica.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(replica.process.pid, signal.SIGCONT)


def confirm(w, user, number, times=1, sender=2):
    """Of that site, which has this many of the first site's numbers, and gave none that is not known there."""
    known = len(w[0].site.items(user).get(sender, []))
    body, digest = batch_body(sender, known, {"1": number}), w[0].site.hellos[0][1]
    entries = [[1, os.urandom(16), meta(digest, user, kind=BATCH, sender=sender, to=1), body] for _ in range(times)]
    w[sender - 1].redis.client()("LANE.PUSH", 1, f"dovelane:replica:{w[sender - 1].name}>site-a", "ENTRIES", times, *sum(entries, []))



def unconfirmed(replica):
    """-1: nobody has counted yet."""
    counts = [row[3] for row in replica.admin("lag")[0][1:]]
    return -1 if "-" in counts else sum(map(int, counts))


def closed_at(replica, user):
    eventually(f"a close of {user}",
               lambda: user not in replica.site.open_users and user in replica.site.closed)


def test_a_hello_that_is_owed_is_said_before_its_user_is_closed_for_another(world):  # noqa: F811
    """Else he is opened once more for it. Nor is anybody opened for the hello where it comes to. On
    a busy machine a user may be closed for another just before a parcel of his comes."""
    w = world(2, replicator_workers=1, **STILL)
    names = users(12)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    for r in w.replicas:
        assert set(r.site.opened) == set(names), r.name
        assert len(r.site.opened) <= len(names) + 3, (r.name, r.site.opened)


def open_another(w, user, other):
    """user has a change that nobody has confirmed, and is closed; the other one is open."""
    with stopped(w[1]):
        w[0].change(user, "x")
        eventually("a change that is not confirmed", lambda: unconfirmed(w[0]) > 0)
        w[0].change(other, "x")
        closed_at(w[0], user)
        eventually("both not confirmed", lambda: unconfirmed(w[0]) == 2)


def test_what_confirms_all_opens_nobody_and_counts_at_once(world):  # noqa: F811
    w = world(2, replicator_workers=1, **STILL)
    open_another(w, "u", "other")
    eventually("a lag of 0", lambda: unconfirmed(w[0]) == 0)
    lane = w[1].redis.client()
    eventually("an empty lane", lambda: lane("LANE.LEN", "dovelane:replica:site-b>site-a") == 0)
    assert w[0].site.opened.count("u") == 1
    assert ("u", 2, BATCH) not in w[0].site.parcels
    state = w[0].site.state("u")
    assert state.confirmed.get(2, 0) == 0
    order, real = [], Worker.answer

    def answer(self, kind, r):
        if self.user == "u" and self.site is w[0].site:
            order.append((kind, state.confirmed.get(2, 0)))
        real(self, kind, r)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "answer", answer)
        w[0].change("u", "y")
        w.quiet(["u"])
        assert [kind for kind, _ in order][:2] == [replicator_worker.PARCEL, replicator_worker.INGEST]
    assert order[1][1] == 1     # it came before the next look


def test_the_newest_of_each_site_is_kept(world):  # noqa: F811
    w = world(3, replicator_workers=1, **STILL)
    w[0].change("u", "x")
    w.quiet(["u"])
    w[0].change("other", "x")
    closed_at(w[0], "u")
    w.quiet(["other"])
    before, done = w[0].site.parcels.count, w[0].metric("replicator_taken")
    had = [before(("u", site, BATCH)) for site in (2, 3)]
    for site in (2, 3):
        confirm(w, "u", 1, 20, sender=site)
    eventually("all of them in hand", lambda: w[0].metric("replicator_taken") >= done + 40)
    assert [before(("u", site, BATCH)) for site in (2, 3)] == had
    opened = w[0].site.opened.count("u")
    w[0].change("u", "y")
    eventually("a look", lambda: w[0].site.state("u").looks == 2)
    assert [before(("u", site, BATCH)) for site in (2, 3)] == [n + 1 for n in had]
    assert w[0].site.opened.count("u") == opened + 1


def test_it_waits_no_longer_than_sweep_active_whatever_comes_after_it(world):  # noqa: F811
    w = world(2, **STILL | {"worker_idle": "100ms", "sweep_active": "2s", "active_for": "1s"})
    w[0].change("u", "x")
    w.quiet(["u"])
    eventually("the last sweep", lambda: w[0].site.state("u").sweeps == 1)
    closed_at(w[0], "u")
    opened, over = w[0].site.opened.count("u"), threading.Event()

    def speak():
        while not over.wait(0.2):
            confirm(w, "u", 1)
    speaking = threading.Thread(target=speak)
    speaking.start()
    try:
        eventually("an opening", lambda: w[0].site.opened.count("u") > opened)
    finally:
        over.set()
        speaking.join()


@pytest.mark.parametrize("number,epoch", [(1, 7), (3, 7), (2, 8)], ids=["one lacks", "one too many", "another epoch"])
def test_what_does_not_confirm_just_all_is_taken_at_once(world, monkeypatch, number, epoch):  # noqa: F811
    """More than were given means that the state is an old copy."""
    w = world(2, replicator_workers=1, **STILL)
    w[0].change("u", "x", "y")
    w.quiet(["u"])
    w[0].change("other", "x")
    closed_at(w[0], "u")
    w.quiet(["other"])
    opened = w[0].site.opened.count("u")
    confirm(w, "u", 2)
    monkeypatch.setattr(replicator_worker, "EPOCH", epoch)
    confirm(w, "u", number)
    monkeypatch.undo()
    eventually("an opening", lambda: w[0].site.opened.count("u") == opened + 1)


def test_one_to_whom_a_new_state_owes_a_word_is_not_kept_waiting(world, monkeypatch):  # noqa: F811
    """That it has read its mailboxes is said to a site that has confirmed all."""
    w = world(2, **STILL | {"worker_idle": "100ms"})
    w[0].change("u", "x")
    w.quiet(["u"])
    real = Worker.send

    def send(self, site, kind, body, bulk=False, first=0):
        real(self, site, ANSWER_READING if kind == ANSWER else kind, body, bulk, first)
    monkeypatch.setattr(Worker, "send", send)
    assert w[1].admin("resync", "u")[1] == 0
    eventually("a question", lambda: ("u", 2, QUESTION) in w[0].site.parcels)
    closed_at(w[0], "u")
    opened = w[0].site.opened.count("u")
    confirm(w, "u", 1)
    eventually("an opening", lambda: w[0].site.opened.count("u") > opened)


def test_a_resend_says_what_a_hello_would(world):  # noqa: F811
    """Both are wanted of users who are closed for others: main hung in that."""
    w = world(2, replicator_workers=1, **STILL | {"resend_after": "100ms", "resend_most": "100ms"})
    names = users(6)
    for name in names:
        for r in w.replicas:
            r.site.slow[name] = 0.06
    for turn in range(5):
        for name in names:
            for r in w.replicas:
                r.change(name, f"{r.name}-{turn}")
    w.converge(names)
