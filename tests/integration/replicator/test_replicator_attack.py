"""dovelane-replicator: what a local user, a peer, and an admin of many users can do to it."""
import contextlib
import itertools
import os
import random
import socket
import sqlite3
import threading
import time

import pytest

from support.lane_server import wait_for
from support.replicator_worker import Ended, INGEST, NOTE, Worker, text
from support.replicator_world import users
from test_replicator import LIVE, meta, world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]


def flood(replica, names):
    """As many hints as the FIFO takes, until the replicator is gone."""
    fd = os.open(replica.directory / "dovelane-hint", os.O_WRONLY)
    try:
        for at in range(0, len(names), 100):
            os.write(fd, b"".join(b"1\t%s\n" % name.encode() for name in names[at:at + 100]))
    except BrokenPipeError:
        pass
    finally:
        os.close(fd)


class MadeUp(set):
    def __contains__(self, name):
        return name.startswith("x")


def held_by(site, names):
    with site.lock:
        return sum(name in names and not worker.is_cut() for name, worker in site.open_users.items())


def test_who_answers_late_but_always_answers_leaves_workers_to_the_others(world):  # noqa: F811
    """A FIFO among a user's files that is let go after a while, again and again: no worker is ever lost."""
    w = world(2, worker_timeout="1h", replicator_workers="4")
    site, bad, good = w[0].site, [f"bad{n}" for n in range(6)], [f"good{n}" for n in range(6)]
    for name in bad:
        site.slow[name] = 11.
        w[0].change(name, "x")
    wait_for(lambda: all(f"user={name}: ingest" in w[0].log.read_text() for name in bad) and held_by(site, bad) <= 2, 120, "a late answer of each")
    most = 0
    for turn in range(5):
        for name in bad:
            w[0].change(name, f"{turn}")    # there is always something to do for them
        for name in good:
            w[0].change(name, f"{turn}")
        end = time.monotonic() + 3
        while time.monotonic() < end:
            most = max(most, held_by(site, bad))
        w.converge(good)
    assert most == 2 and w[0].metric("replicator_workers_lost") == 0
    site.slow.clear()
    w.quiet(bad + good)


@contextlib.contextmanager
def always_busy(replica, names, gap=0.1):
    """There is always another hint of theirs."""
    stop = threading.Event()

    def hints():
        fd = os.open(replica.directory / "dovelane-hint", os.O_WRONLY | os.O_NONBLOCK)
        while not stop.wait(gap):
            for name in names:
                with contextlib.suppress(BlockingIOError):
                    os.write(fd, b"1\t%s\t-\tINBOX\n" % name.encode())
        os.close(fd)
    thread = threading.Thread(target=hints)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_who_lets_go_just_before_he_is_lengthy_is_so_by_the_sum(world):  # noqa: F811
    w = world(2, worker_timeout="1h", replicator_workers="4")
    bad, good = [f"bad{n}" for n in range(4)], [f"good{n}" for n in range(8)]
    for name in bad:
        w[0].site.slow[name] = 9.
    with always_busy(w[0], bad):
        wait_for(lambda: held_by(w[0].site, bad) == 4, 60, "all workers are theirs")
        for name in good:
            w[1].change(name, "x")
        w.converge(good, 60)    # before: one user in a minute
        w[0].site.slow.clear()


@pytest.mark.parametrize("how", ["a word now and then", "a word before the end"])
def test_who_says_a_word_holds_a_worker_no_less(world, monkeypatch, how):  # noqa: F811
    """His process stands still in between, and goes on, or dies, as he likes."""
    real, over = Worker.answer, threading.Event()

    def answer(self, kind, r):
        if kind == INGEST and (self.user or "").startswith("bad") and not over.is_set():
            if how == "a word before the end":
                over.wait(11)
                self.write(NOTE, bytes([2]) + text("a word"))
                raise Ended
            while not over.wait(1):
                self.write(NOTE, bytes([2]) + text("a word"))
        real(self, kind, r)
    monkeypatch.setattr(Worker, "answer", answer)
    w = world(2, worker_timeout="3s" if how == "a word now and then" else "1h", replicator_workers="4")
    bad, good = [f"bad{n}" for n in range(4)], [f"good{n}" for n in range(4)]
    for name in bad:
        w[0].change(name, "x")
    wait_for(lambda: held_by(w[0].site, bad) == 4, 60, "all workers are theirs")
    for name in good:
        w[0].change(name, "x")
    w.converge(good, 90)
    wait_for(lambda: w[0].metric("replicator_workers_lost") >= (2 if how == "a word now and then" else 4), 60, "the end of those questions")
    for _ in range(20):
        assert held_by(w[0].site, bad) <= 3, "one is left for the others"
        time.sleep(0.1)
    for name in good:
        w[0].change(name, "y")
    w.converge(good)
    over.set()


def test_whatever_comes_all_the_time_each_class_has_its_turn(world):  # noqa: F811
    """Hints for known names without end, and users who wait apart: others' parcels came never, or by one pick in 16 that those had."""
    w = world(2, worker_timeout="1h", replicator_workers="4")
    good, many, bad = [f"good{n}" for n in range(4)], [f"many{n}" for n in range(150)], [f"bad{n}" for n in range(3)]
    for name in good + many:
        w[0].change(name, "x")
    w.converge(good + many)
    for name in bad:
        w[0].site.slow[name] = 11.
        w[0].change(name, "x")
    wait_for(lambda: all(f"user={name}: ingest" in w[0].log.read_text() for name in bad), 120, "a late answer of each")
    w[0].site.slow.clear()
    w.quiet(bad)
    for name in many:
        w[0].site.slow[name] = 0.05
    with always_busy(w[0], many), always_busy(w[0], bad, 0.02):
        wait_for(lambda: w[0].metric("replicator_waiting") > 100, 60, "a queue")
        for name in good:
            w[1].change(name, "y")
        w.converge(good, 60)
        w[0].site.slow.clear()


def ledger(replica):
    return {row[0] for row in replica.admin("lag", "*")[0][1:]}


def test_all_spellings_of_a_name_are_one_user(world):  # noqa: F811
    """Dovecot takes MALLORY for mallory. Each spelling would be one user more: with a worker of its own, hellos, a row for ever."""
    w = world(2, worker_timeout="2s", replicator_workers="3")
    site, good = w[0].site, [f"good{n}" for n in range(4)]
    spelt = ["".join(c) for c in itertools.product(*((c, c.upper()) for c in "mallory"))]
    for r in w.replicas:
        r.site.canonical = str.lower
    site.slow["mallory"] = 3600.
    site.add("mallory", "x")
    most = 0
    for turn in range(4):
        for name in spelt:
            w[0].hint(name)
        for name in good:
            w[0].change(name, f"{turn}")
        end = time.monotonic() + 3
        while time.monotonic() < end:
            most = max(most, held_by(site, spelt))
        w.converge(good)
    assert most == 1
    assert not set(site.opened) - {"mallory", *good}
    site.slow.clear()
    w.quiet(["mallory", *good])
    wait_for(lambda: ledger(w[0]) == {"mallory", *good} == ledger(w[1]), 60, "no row of another spelling")


def test_what_is_asked_under_another_spelling_is_done(world):  # noqa: F811
    """Where a site's userdb tells names apart that another one's does not; and an admin's question."""
    w = world(2)
    w[0].site.canonical = str.lower
    w[1].change("Bob", "of B")
    wait_for(lambda: w[0].site.items("bob") == {2: ["of B"]}, 60, "it is bob's there")
    rows, code, errors = w[0].admin("status", "BOB")
    assert (code, errors) == (0, []) and rows
    w[0].mark("bOb")
    w[0].site.add("bob", "of A")
    wait_for(lambda: w[1].site.items("bob").get(1) == ["of A"], 60, "what a mark told of him")
    wait_for(lambda: ledger(w[0]) == {"bob"}, 60, "one row")


def test_a_slow_user_who_has_always_something_to_do_leaves_the_others_their_turn(world):  # noqa: F811
    w = world(2, worker_timeout="1s", replicator_workers="3", hint_wait="0ms", worker_idle="1h")
    site, bad = w[0].site, [f"bad{n}" for n in range(3)]
    for name in bad:
        site.slow[name] = 3600.
        w[0].change(name, "x")
    wait_for(lambda: all(f"user={name}: the worker did not answer within worker_timeout" in w[0].log.read_text() for name in bad), 120, "a failure of each")
    site.slow.clear()
    w.quiet(bad)
    stop = threading.Event()

    def busy():
        while not stop.wait(0.01):
            w[0].change("bad0", "again")
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for name in bad[1:]:
            w[0].change(name, "y")
        w.quiet(bad[1:])
    finally:
        stop.set()
        thread.join()
    w.quiet(bad)


def test_what_one_user_leaves_in_a_lane_silences_nobody_else(world):  # noqa: F811
    """A parcel that a worker does not come to an end with stays in the lane. In a quiet group that looked like a peer that takes nothing."""
    w = world(2, worker_timeout="1h", hello_every="12s", resend_after="1h", resend_most="1h")
    w[0].site.slow["bad"] = 3600.
    w[1].change("bad", "x")
    wait_for(lambda: w[0].metric("replicator_in_hand_bytes") > 0, what="a parcel that stays")
    w[1].change("good", "x")
    w.converge(["good"])
    wait_for(lambda: "user=good: ship hello site-a" in w[1].log.read_text().split("user=good: ingest", 1)[1], 60, "a hello, after 12 seconds")
    w[0].site.slow.clear()


def test_names_that_are_made_up_hold_nobody_up_and_fill_no_memory(world):  # noqa: F811
    """The FIFO is writable for all processes that open mailboxes. Who finds it full leaves a mark, and a mark of somebody known is obeyed."""
    w = world(2)
    w[0].change("real", "before")
    w.converge(["real"])
    w[0].site.unknown = MadeUp()
    thread = threading.Thread(target=flood, args=(w[0], [f"x{i}" for i in range(60_000)]), daemon=True)
    thread.start()
    wait_for(lambda: w[0].metric("replicator_users") > 9000, 120, "many names")
    w[0].site.add("real", "one")
    w[0].mark("real")
    w[1].change("other", "two")
    w.converge(["real", "other"])
    assert w[0].metric("replicator_users") < 12_000, w[0].metric("replicator_users")
    assert w[0].says("nobody knows")
    w[0].stop()
    thread.join(60)
    assert not thread.is_alive()


def test_parcels_without_bytes_count_in_memory(world):  # noqa: F811
    w = world(2, replicator_memory="8MB", worker_timeout="10min")
    w[0].change("u", "x")
    w.converge(["u"])
    digest, lane, c = w[1].site.hellos[0][1], LIVE.format("site-a", "site-b"), w[0].redis.client()
    w[1].site.slow["u"] = 60
    for _ in range(25):
        entries = [part for _ in range(1000) for part in (1, os.urandom(16), meta(digest, "u"), b"")]
        c("LANE.PUSH", 1, lane, "ENTRIES", 1000, *entries)
    wait_for(lambda: w[1].metric("replicator_in_hand_bytes") >= 8_000_000, 120, "as many as it takes")
    time.sleep(1)
    assert w[1].metric("replicator_in_hand_bytes") < 10_000_000 and c("LANE.LEN", lane) > 5000


def test_lag_of_very_many_users_has_an_end(world):  # noqa: F811
    w = world(2)
    w[0].stop()
    db = sqlite3.connect(w[0].directory / "state" / "replicator.db")
    db.executemany("INSERT INTO users VALUES (?)", [(f"user{i}@example.net",) for i in range(40_000)])
    db.commit()
    db.close()
    w[0].start(sweep_rate="1")
    rows, code, errors = w[0].admin("lag", "*")
    assert (code, errors, len(rows)) == (0, [], 40_001)


def dirty(replica):
    return set(os.listdir(replica.directory / "dirty"))


def test_the_mark_for_all_made_again_and_again_leaves_the_sweeps_a_rest(world):  # noqa: F811
    w = world(2, sweep_rate="20")
    w[0].site.listed = [f"u{n}" for n in range(30)]
    w[0].mark("+all")
    wait_for(lambda: all(w[0].site.state(user).sweeps == 1 for user in w[0].site.listed), 60, "a sweep")
    wait_for(lambda: w[0].log.read_text().count("swept:") == 2, what="its end")    # the other one was at the start
    w[0].mark("+all")
    for name in ("x", "y"):
        w[0].site.add(name, "marked")
        w[0].mark(name)
        wait_for(lambda name=name: w[0].site.items(name) and name not in dirty(w[0]), what="another user's mark, which does not wait")
    assert "+all" in dirty(w[0]) and w[0].log.read_text().count("swept:") == 2
    w[0].site.add("u7", "told by the mark for all")
    w.converge(["u7"])
    assert "+all" not in dirty(w[0])


def test_directories_in_the_place_of_marks_do_not_have_their_users_looked_at_all_the_time(world):  # noqa: F811
    w = world(2)
    names = [f"u{n}" for n in range(200)]
    for name in names:
        w[0].change(name, "x")
    w.converge(names)
    looks = sum(w[0].site.state(name).looks for name in names)
    before = w[0].metric("replicator_dirty")
    for name in names:
        made = w[0].directory / "made" / name    # with what is in it at once, or it would be removed before
        (made / "x").mkdir(parents=True)
        made.rename(w[0].directory / "dirty" / name)
    wait_for(lambda: w[0].metric("replicator_dirty") - before > 200 * 12, 60, "twelve looks at all marks")
    assert sum(w[0].site.state(name).looks for name in names) - looks < 1000    # before: all of them each time
    w[0].site.add("another", "marked")
    w[0].mark("another")
    w.converge(["another"])
    w[0].site.add("u5", "without a mark or hint, but for the directory")
    w.converge(["u5"])


def test_users_whose_workers_hang_have_one_worker_at_a_time(world):  # noqa: F811
    """A FIFO among a user's files stops whoever opens it. Such users would have all workers, each for worker_timeout."""
    w = world(2, worker_timeout="1s", replicator_workers="3")
    site, bad, good = w[0].site, [f"bad{n}" for n in range(6)], [f"good{n}" for n in range(6)]
    for name in bad:
        site.slow[name] = 3600.
        w[0].change(name, "x")
    wait_for(lambda: all(f"user={name}: the worker did not answer within worker_timeout" in w[0].log.read_text() for name in bad), 120, "a failure of each")
    most, lost = 0, w[0].metric("replicator_workers_lost")
    for turn in range(8):
        for name in good:
            w[0].change(name, f"{turn}")
        while w[0].metric("replicator_workers_lost") < lost + turn:
            with site.lock:
                most = max(most, sum(name in bad and not worker.is_cut() for name, worker in site.open_users.items()))
        w.converge(good)
    assert most == 1
    # An answer in between makes nobody trustworthy: he would have a worker of his own for each time he hangs.
    site.slow.clear()
    w.quiet(bad)
    for name in bad:
        site.slow[name] = 3600.
        w[0].change(name, "y")
    lost = w[0].metric("replicator_workers_lost")
    while w[0].metric("replicator_workers_lost") < lost + 4:
        with site.lock:
            most = max(most, sum(name in bad and not worker.is_cut() for name, worker in site.open_users.items()))
    assert most == 1
    site.slow.clear()  # the first one to answer clears nobody else's name: each has his turn
    w.quiet(bad + good)


def test_names_that_are_made_up_are_looked_up_behind_those_that_are_known(world):  # noqa: F811
    """After a start nobody's credentials are known: who floods the FIFO then must not be before everybody else."""
    w = world(2)
    w[0].change("real", "before")
    w.converge(["real"])
    w[0].stop()
    w[0].start()
    w[0].site.unknown = MadeUp()
    w[0].site.lookups.clear()
    thread = threading.Thread(target=flood, args=(w[0], [f"x{i}" for i in range(20_000)]), daemon=True)
    thread.start()
    wait_for(lambda: len(w[0].site.lookups) > 100, 60, "the first lookups")
    w[0].site.add("real", "after")
    w[0].mark("real")  # as the plugin does that finds the FIFO full
    w.converge(["real"])
    assert "real" in w[0].site.lookups
    w[0].site.unknown = set()


class Stopped:
    """Users with ids of their own. The bad ones stop each process of theirs when main is done with it.
    The kernel's timer ends it after 10 s."""

    def __init__(self, world, monkeypatch, bad, good, **settings):  # noqa: F811
        self.over, self.processes, self.stopped, self.most = threading.Event(), set(), [], {}
        self.bad, self.good = [f"bad{n}" for n in range(bad)], [f"good{n}" for n in range(good)]
        ids = {name: n for n, name in enumerate(self.bad + self.good, 1)}
        run, lock = Worker.run, threading.Lock()

        def count():
            self.most["processes"] = max(self.most.get("processes", 0), len(self.processes))
            self.most["stopped"] = max(self.most.get("stopped", 0), len(self.stopped))
            of_one = max((self.stopped.count(each) for each in self.stopped), default=0)
            self.most["of one"] = max(self.most.get("of one", 0), of_one)

        def counted(self_):
            if self_.site is self.site:
                with lock:
                    self.processes.add(self_)
                    count()
            run(self_)

        def stay(self_):
            if self_.site is self.site and self_.kept in [ids[name] for name in self.bad]:
                with lock:
                    self.stopped.append(self_.kept)
                    count()
                self.over.wait(11)
                with lock:
                    self.stopped.remove(self_.kept)
            with lock:
                self.processes.discard(self_)
        monkeypatch.setattr(Worker, "run", counted)
        monkeypatch.setattr(Worker, "stay", stay)
        self.site = None
        self.world = world(2, worker_timeout="1h", worker_idle="100ms", **settings)
        self.site = self.world[0].site
        self.site.credentials = ids
        self.change_good("first")

    def change_good(self, what):
        for name in self.good:
            self.world[0].change(name, what)
        self.world.converge(self.good, 5)


def test_who_stops_his_process_behind_its_last_word_has_one(world, monkeypatch):  # noqa: F811
    s = Stopped(world, monkeypatch, 1, 4, replicator_workers="2")
    with always_busy(s.world[0], s.bad):
        wait_for(lambda: s.stopped, what="a process that is stopped")
        for turn in range(15):
            s.change_good(f"{turn}")
            assert s.most["of one"] == 1 and s.most["processes"] <= 6, s.most
            time.sleep(1)
        s.over.set()
    assert s.world[0].says("user=bad0: its worker was done, and its process ended")
    s.world.quiet(s.bad + s.good)


def test_those_who_stop_theirs_behind_the_last_word_share_one(world, monkeypatch):  # noqa: F811
    """process_limit is 2 * replicator_workers + 2: where main asks for more, Dovecot has none for anybody."""
    s = Stopped(world, monkeypatch, 8, 4, replicator_workers="2")
    with always_busy(s.world[0], s.bad):
        end = time.monotonic() + 25
        while time.monotonic() < end:
            time.sleep(0.1)
            assert s.most["of one"] <= 1 and s.most["processes"] <= 6, s.most
        judged = [f"user={name}: its worker was done" for name in s.bad]
        wait_for(lambda: all(s.world[0].says(each) for each in judged), 60, "a judgement of each")
        wait_for(lambda: len(s.stopped) <= 1, 20, "the end of those that were not judged yet")
        s.most.clear()
        for turn in range(5):
            s.change_good(f"{turn}")
            time.sleep(3)
        assert s.most["stopped"] == 1, "all of them, one at a time"
        s.over.set()
    s.world.quiet(s.bad + s.good)


@contextlib.contextmanager
def a_full_hand(w, names):
    """The second site always has a parcel for these users of the first, as fast as they are done with."""
    over, digest, lane = threading.Event(), w[0].site.hellos[0][1], "dovelane:replica:site-b>site-a"
    w[0].site.slow.update(dict.fromkeys(names, 0.05))

    def push():
        call, body = w[1].redis.client(), os.urandom(300_000)
        while not over.wait(0.002):
            if int(call("LANE.LEN", lane)) < 60:    # the hand has 28 of them
                entry = [1, os.urandom(16), meta(digest, random.choice(names), kind=99, sender=2, to=1), body]
                call("LANE.PUSH", 1, lane, "ENTRIES", 1, *entry)
    pushing = threading.Thread(target=push)
    pushing.start()
    try:
        wait_for(lambda: w[0].metric("replicator_in_hand_bytes") > 7_000_000, 30, "a hand that is full")
        yield
    finally:
        over.set()
        pushing.join()


def test_a_site_that_fills_the_hand_keeps_no_answers_of_others_away(world):  # noqa: F811
    """They come by the bulk lane, as bodies do, of which nothing was taken while the other lane had half of the hand."""
    w = world(3, replicator_memory="8M", hello_every="1h")
    names = users(8)
    for name in names:
        w[0].change(name, "x")
    w[2].change("victim", "x")
    w.quiet([*names, "victim"])
    with a_full_hand(w, names):
        for n in range(5):
            w[0].site.exchanged.clear()
            assert w[0].admin("resync", "victim")[1] == 0
            wait_for(lambda: "victim" in w[0].site.exchanged, 30, "the third site's answer")


def addresses(process):
    """Most bytes that it ever had, whether it has written there or not."""
    with open(f"/proc/{process.pid}/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmPeak"))


@contextlib.contextmanager
def lying(redis, answer):
    """Who connects to that server meets another one, which gives that answer to whatever it is asked."""
    call, real, met = redis.client(), f"{redis.path}.real", []
    os.rename(redis.path, real)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(redis.path))
    listener.listen(50)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                met.append(listener.accept()[0])
                met[-1].sendall(answer)
    accepting = threading.Thread(target=accept)
    accepting.start()
    call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    try:
        wait_for(lambda: len(met) >= 4, 30, "some connections")
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for s in [listener, *met]:
            s.close()
        os.replace(real, redis.path)


def test_a_server_that_names_lists_without_end_stops_nobody(world):  # noqa: F811
    """Each is allocated when it is named, and takes seconds to be freed; and whoever names them is asked again."""
    w = world(3, hello_every="1h")
    w[0].change("u", "x")
    w.quiet(["u"])
    before = addresses(w[0].process)
    with lying(w[1].redis, b"*500000000\r\n" * 7):
        w[0].change("u", "later")
        wait_for(lambda: "later" in w[2].site.items("u").get(1, []), 60, "a change at the third site")
    assert addresses(w[0].process) < before + (1 << 30)    # each list has 4 GB
    w.quiet(["u"])
