"""kill -9 of the server in the middle of a pipelined load, with an append-only file: the project's own client (lib/redis/wire, lib/redis/node) goes on by itself."""
import random
import subprocess

import pytest

from support.lane_server import BUILD, LaneServer, SLOW, number, wait_for

pytestmark = pytest.mark.core

PUSHER = BUILD / "tests" / "integration" / "lane" / "lane-pusher"


class Pusher:
    """Its output goes to a file: a pipe that nobody reads would hold it up."""

    def __init__(self, folder, server, entries=10**6, window=1000, batch=10, node=""):
        self.path = folder / "answers"
        with self.path.open("w") as out:
            self.process = subprocess.Popen([PUSHER, f"unix:{server.path}", node, "lane", str(entries), str(window), str(batch)], stdout=out, stderr=subprocess.PIPE)
        self.file = self.path.open("rb")
        self.seen = 0

    def lines(self):
        return self.path.read_text().splitlines()

    def answers(self):
        return [line.split() for line in self.lines() if line[0].isdigit() and " " in line]

    def more(self, n):
        """Waits until there are so many lines more."""
        self.file.read()
        self.seen = start = 0

        def come():
            assert self.process.poll() in (None, 0), self.process.stderr.read()
            self.seen += self.file.read().count(b"\n")
            return self.seen - start >= n
        wait_for(come, 60, f"{n} answers more")

    def end(self):
        self.process.terminate()
        assert self.process.wait(60 * SLOW) == 0, self.process.stderr.read()
        return self.answers()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.file.close()


@pytest.fixture
def pusher(tmp_path):
    started = []

    def start(*words, **more):
        started.append(Pusher(tmp_path, *words, **more))
        return started[-1]
    yield start
    for p in started:
        p.stop()


def kill_under_load(tmp_path, pusher, fsync, kills):
    """Entries in the lane, those that were answered before each kill, all answers."""
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    with LaneServer(tmp_path, "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0") as server:
        p = pusher(server)
        promised = []
        for i in range(kills):
            wait_for(lambda: p.lines().count("ready, a new life") == i + 1, 60, "a connection")
            p.more(rng.randrange(200, 3000 if SLOW == 1 else 400))
            server.kill()
            # What the client has read by now; more may lie in its socket.
            promised.append({int(n) for n, _ in p.answers()})
            server.start()
        wait_for(lambda: p.lines().count("ready, a new life") == kills + 1, 60, "a connection")
        p.more(500)
        answers = p.end()
        c = server.client()
        held = [number(e[1]) for e in c.read("lane")]
        assert c("LANE.CHECK", "lane") == "OK" and c("LANE.LEN", "lane") == len(held)
        assert p.lines().count("lost") == kills and p.lines().count("ready, a new life") == kills + 1
        # The file's own idea of it all.
        before = c.digest("lane")
        server.restart()
        assert server.client().digest("lane") == before
        return held, promised, answers


@pytest.mark.parametrize("fsync, kills", [("always", 4), ("everysec", 4), pytest.param("always", 40, marks=pytest.mark.exhaustive), pytest.param("everysec", 40, marks=pytest.mark.exhaustive)])
def test_killed_server_loses_no_promise_and_the_client_stores_nothing_twice(tmp_path, pusher, fsync, kills):
    held, promised, answers = kill_under_load(tmp_path, pusher, fsync, kills)
    entries = len(answers)
    assert held == sorted(set(held)), "in order, none twice"
    assert sorted(int(n) for n, _ in answers) == list(range(entries)), "every entry was answered once"
    again, there = sum(a == "DONE" for _, a in answers), set(held)
    lost = {n for before in promised for n in before if n not in there}
    print(f"{fsync}: {kills} kills, {entries} entries, {len(held)} held, {len(lost)} promised and lost, {again} answered DONE when sent again")
    if fsync == "always":
        assert held == list(range(entries)), "what was promised is there"


def test_client_does_without_the_file_what_it_can(tmp_path, pusher):
    """Nothing on disk: a server that was killed comes back empty. What was unanswered is stored by the new one, once."""
    with LaneServer(tmp_path) as server:
        p = pusher(server)
        p.more(1000)
        server.kill()
        wait_for(lambda: "lost" in p.lines(), what="the client's notice")
        promised = {int(n) for n, _ in p.answers()}
        server.start()
        p.more(1000)
        answers = p.end()
        held = [number(e[1]) for e in server.client().read("lane")]
        assert held == sorted(set(range(len(answers))) - promised) and not any(a == "DONE" for _, a in answers)


def test_two_servers_under_one_name(tmp_path, pusher):
    """Somebody else answers where the server was, with the same name: another run_id, so another life. The client notices, and goes on there."""
    options = ["--lane.node", "mx1"]
    with LaneServer(tmp_path, *options, name="one") as one, LaneServer(tmp_path, *options, name="two") as two:
        p = pusher(one, node="mx1", window=100, batch=1)
        p.more(500)
        # The other one takes over the address; then the connection breaks.
        one.path.rename(f"{one.path}.away")
        two.path.rename(one.path)
        one.client_at(f"{one.path}.away")("CLIENT", "KILL", "TYPE", "normal")
        wait_for(lambda: p.lines().count("ready, a new life") == 2, 20, "the other one")
        p.more(500)
        answers = p.end()
        first, second = one.client_at(f"{one.path}.away"), two.client_at(one.path)
        held = [number(e[1]) for e in first.read("lane")] + [number(e[1]) for e in second.read("lane")]
        assert {int(n) for n, _ in answers} == set(range(len(answers))) <= set(held)
        for c in (first, second):
            mine = [number(e[1]) for e in c.read("lane")]
            assert mine == sorted(set(mine)) and mine
        two.path = one.path
        one.path = one.path.with_name(one.path.name + ".away")


def test_a_server_of_another_name_gets_nothing(tmp_path, pusher):
    with LaneServer(tmp_path, "--lane.node", "mx2") as server:
        p = pusher(server, 10, node="mx1")
        c = server.client()

        def asked():
            stats = c("INFO", "commandstats").lower()
            return int(stats.split(b"cmdstat_lane.info:calls=")[1].split(b",")[0]) if b"cmdstat_lane.info:" in stats else 0

        wait_for(lambda: asked() >= 3, 20, "three attempts")
        assert not p.lines() and c("DBSIZE") == 0
