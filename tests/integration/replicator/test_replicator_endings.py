"""Processes of workers that do not end, and questions for which Dovecot has no process: who is judged by that, and who is not."""
import threading
import time

import pytest

from support.replicator_worker import HELLO, INGEST, Worker
from test_replicator import world  # noqa: F401
from test_replicator_attack import always_busy

pytestmark = pytest.mark.long


@pytest.mark.exhaustive
def test_who_has_a_process_that_cannot_be_ended_gets_no_other(world, monkeypatch):  # noqa: F811
    """It waits for a file system that does not answer: no signal ends it."""
    over, processes, lock, real = threading.Event(), set(), threading.Lock(), Worker.answer

    def answer(self, kind, r):
        if kind == INGEST and self.user == "bad" and not over.is_set():
            with lock:
                processes.add(self)
            over.wait()   # nothing is read any more, not even that main is gone
        real(self, kind, r)
    monkeypatch.setattr(Worker, "answer", answer)
    w = world(2, worker_timeout="1s", replicator_workers="2", worker_idle="100ms")
    w[0].site.credentials = {"bad": 1, "good": 2}
    try:
        with always_busy(w[0], ["bad"], 1):
            time.sleep(250)   # twice as long as main waits for the end of one
    finally:
        over.set()
    assert len(processes) == 1


@pytest.mark.core
def test_whose_question_waits_for_a_process_of_dovecots_is_not_slow(world, monkeypatch):  # noqa: F811
    none, real, most = threading.Event(), Worker.answer, [0]

    def answer(self, kind, r):
        if kind == HELLO and self.site is w[0].site and not none.is_set():
            none.wait()
        real(self, kind, r)
    w = world(2, worker_timeout="2s", replicator_workers="4", worker_idle="5s")
    monkeypatch.setattr(Worker, "answer", answer)
    names = [f"u{n}" for n in range(4)]
    for name in names:
        w[0].change(name, "x")
    time.sleep(8)   # some questions are given up meanwhile
    none.set()
    w.converge(names, 120)
    for turn in range(8):
        for name in names:
            w[0].site.slow[name] = 0.5
            w[0].change(name, f"{turn}")
        end = time.monotonic() + 1.5
        while time.monotonic() < end and most[0] < 2:
            with w[0].site.lock:
                most[0] = max(most[0], len(w[0].site.open_users))
            time.sleep(0.02)
    w[0].site.slow.clear()
    assert most[0] > 1, "they share one worker"
