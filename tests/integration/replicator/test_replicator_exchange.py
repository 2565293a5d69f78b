"""An exchange of many steps ends, also where more users have one than there are workers."""
import json

import pytest
from support.lane_server import wait_for
from support.replicator_worker import ANSWER, ANSWER_READING, QUESTION, Worker
from support.replicator_world import users
from test_replicator import world  # noqa: F401

pytestmark = pytest.mark.long

STEPS = 25


@pytest.mark.parametrize("kind", [ANSWER, ANSWER_READING], ids=["answer", "answer of a new state"])
def test_who_waits_for_an_answer_keeps_his_worker(world, monkeypatch, kind):  # noqa: F811
    real, ended = Worker.parcel, set()

    def parcel(self, r):
        at = r.at
        site, got, body = r.num(), r.num(), r.text()
        r.end()
        if got == QUESTION:
            self.send(site, kind, json.loads(body), bulk=True)
        elif got in (ANSWER, ANSWER_READING):
            step = json.loads(body).get("step", 0) + 1
            if site in self.asking and step < STEPS:
                self.send(site, QUESTION, {"step": step}, bulk=True)
            elif site in self.asking:
                self.asking.discard(site)
                ended.add(self.user)
        else:
            r.at = at
            return real(self, r)
        self.done()
    monkeypatch.setattr(Worker, "parcel", parcel)
    w = world(2, replicator_workers=3)
    names = users(4)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    for name in names:
        w[1].site.slow[name] = 0.05
        assert w[0].admin("resync", name)[1] == 0
    wait_for(lambda: ended >= set(names), 90, "all exchanges")
