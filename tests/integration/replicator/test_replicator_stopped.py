"""Who stops, kills or takes over his worker costs other users nothing but what is written in SECURITY.md."""
import contextlib
import struct
import threading
import time
from pathlib import Path

import pytest
from support.lane_server import wait_for
from support.replicator_worker import CLOSE, INGEST, OPEN, RESERVE, Ended, Worker, num
from test_replicator import world  # noqa: F401
from test_replicator_attack import always_busy

pytestmark = pytest.mark.long

RAISE, NOTED = 1, 2


@pytest.fixture
def over():
    event = threading.Event()
    yield event
    event.set()


def opened(r):
    return type(r)(r.data[r.at:]).text().decode()


def waits_of(w, names, turns):
    """Seconds that their changes took, turn by turn."""
    took = []
    for turn in range(turns):
        begun = time.monotonic()
        for name in names:
            w[0].change(name, f"{begun}.{turn}")
        w.converge(names, 120)
        took.append(round(time.monotonic() - begun, 1))
        time.sleep(0.5)
    return took


def users(w, bad, good):
    for r in w.replicas:
        r.site.credentials = {name: n + 1 for n, name in enumerate(bad + good)}
    for name in good:
        w[0].change(name, "x")
    w.converge(good)


def test_a_worker_that_does_not_close_is_not_waited_for_while_others_are_free(world, monkeypatch, over):  # noqa: F811
    real, closing = Worker.answer, []

    def answer(self, kind, r):
        if kind == CLOSE and self.site is w[0].site and self.user == "bad" and not over.is_set():
            closing.append(self)
            while not self.is_cut() and not over.is_set():
                time.sleep(0.05)
            raise Ended
        real(self, kind, r)
    w = world(2, worker_timeout="15s", replicator_workers="4", worker_idle="200ms", hello_every="1h", resend_after="1h", resend_most="1h")
    users(w, ["bad"], ["good"])
    wait_for(lambda: "good" not in w[0].site.open_users, 20, "good's close")
    monkeypatch.setattr(Worker, "answer", answer)
    with always_busy(w[0], ["bad"], 5):
        wait_for(lambda: closing, 20, "a CLOSE that is not answered")
        assert max(waits_of(w, ["good"], 4)) < 10
    assert closing


def test_who_stops_his_worker_before_its_first_word_is_slow_then(world, monkeypatch, over):  # noqa: F811
    """The process is his before the worker says anything about him. Four such users took all workers again and again."""
    real, stopped, bad, good = Worker.answer, [], [f"bad{n}" for n in range(4)], ["good0", "good1"]

    def answer(self, kind, r):
        if kind == OPEN and self.site is w[0].site and not over.is_set() and opened(r).startswith("bad"):
            stopped.append(self)
            while not self.is_cut() and not over.is_set():
                time.sleep(0.05)
            raise Ended
        real(self, kind, r)
    w = world(2, worker_timeout="8s", replicator_workers="4", worker_idle="200ms")
    users(w, bad, good)
    monkeypatch.setattr(Worker, "answer", answer)
    with always_busy(w[0], bad, 0.5):
        wait_for(lambda: len(stopped) >= 4, 60, "all four")
        took = waits_of(w, good, 12)
    assert sum(t > 5 for t in took) <= 2, took     # before: nearly all


def test_who_kills_his_worker_before_its_first_word_keeps_nobody_from_new_workers(world, monkeypatch, over):  # noqa: F811
    real, kills, bad, good = Worker.answer, {}, [f"bad{n}" for n in range(12)], [f"good{n}" for n in range(8)]

    def answer(self, kind, r):
        if kind == OPEN and self.site is w[0].site and not over.is_set() and opened(r).startswith("bad"):
            kills[opened(r)] = kills.get(opened(r), 0) + 1
            if kills[opened(r)] % 2:
                raise Ended
        real(self, kind, r)
    w = world(2, worker_timeout="10min", replicator_workers="4", worker_idle="200ms")
    users(w, bad, good)
    monkeypatch.setattr(Worker, "answer", answer)
    with always_busy(w[0], bad, 0.02):
        wait_for(lambda: len(kills) == 12, 60, "each was killed")
        took = waits_of(w, good, 6)
    assert sorted(took)[3] < 2, took       # before: 2.7 to 3.8


# -- a worker that its user has taken over --------------------------------------------------------------------------------

def memory(pid):
    """MiB."""
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")) // 1024


def asks(what, epoch=7, counter=0):
    body = bytes([what]) + struct.pack("<Q", epoch) + num(counter)
    return struct.pack("<IB", len(body) + 1, RESERVE) + body


def test_answers_that_a_worker_does_not_read_do_not_fill_the_memory_of_main(world, monkeypatch, over):  # noqa: F811
    real, begun, ended = Worker.answer, threading.Event(), threading.Event()

    def answer(self, kind, r):
        if kind != INGEST or self.user != "bad":
            return real(self, kind, r)
        begun.set()
        with contextlib.suppress(OSError):
            for _ in range(4000):      # 100 MB of answers
                self.socket.sendall(asks(RAISE) * 2000)
        ended.set()
        raise Ended
    monkeypatch.setattr(Worker, "answer", answer)
    w = world(2, worker_timeout="60s", replicator_workers="4")
    before, most = memory(w[0].process.pid), 0
    w[0].change("bad", "x")
    assert begun.wait(20)
    while not ended.wait(0.2):
        most = max(most, memory(w[0].process.pid))
    assert most < before + 64
    w[0].change("good", "x")
    w.converge(["good"], 60)


@pytest.mark.parametrize("reads", [False, True])
def test_a_worker_that_asks_before_it_was_answered_is_ended(world, monkeypatch, over, reads):  # noqa: F811
    """Main waits for the disk with each of them, and would do nothing else, also for one that reads its answers."""
    real, ended = Worker.answer, threading.Event()

    def drain(connection):
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass

    def answer(self, kind, r):
        if kind != INGEST or self.user != "bad":
            return real(self, kind, r)
        if reads:
            threading.Thread(target=drain, args=(self.socket,), daemon=True).start()
        n = 0
        with contextlib.suppress(OSError):
            while not ended.is_set():
                self.socket.sendall(b"".join(asks(RAISE, 7, (n + i) * 10 ** 6) for i in range(100)))
                n += 100
        raise Ended
    monkeypatch.setattr(Worker, "answer", answer)
    w = world(2, worker_timeout="60s", replicator_workers="4")
    try:
        w[0].change("bad", "x")
        wait_for(lambda: w[0].says("user=bad: worker: a frame of type"), 20, "a word on it")
        w[0].change("good", "x")
        w.converge(["good"], 60)
    finally:
        ended.set()


def test_a_worker_has_one_record_of_the_reserve(world, monkeypatch, over):  # noqa: F811
    """His own, whatever it says of numbers and epochs."""
    real, done = Worker.answer, threading.Event()

    def answer(self, kind, r):
        if kind == INGEST and self.user == "bad":
            for n in range(500):
                self.socket.sendall(asks(NOTED, n, n + 1))
                self.read()
            done.set()
        real(self, kind, r)
    w = world(2, replicator_workers="4")
    users(w, [], ["bad", "good"])
    path = w[0].directory / "state" / "reserve"
    before = path.stat().st_size
    monkeypatch.setattr(Worker, "answer", answer)
    w[0].change("bad", "y")
    assert done.wait(60)
    assert path.stat().st_size == before
