"""Random faults under load, told by a seed: one node at a time loses what it held, is killed, or is cut off, and is whole again before the next one is; meanwhile
programs are killed and stand still, clocks jump, connections die, packets are lost, and memory is short, on any other node, at any moment of the recovery; with three copies
another one may be lost at the same time. Every mail that was answered 250 arrives, every second copy carries a reason, the lanes get empty, and what goes to the ordered destination (a) comes in the order of the 250s, but for what a log calls
otherwise.

`make chaos SEED=... ROUNDS=...` runs one story; a failure prints it."""
import os
import random
import threading
import time

import pytest

import faults
from faults import NODES, entries
from relay_world import eventually
from stack import hosts, oracle, resp
from stack.hosts import HostedStack
from stack.shape import SinkShape
from test_loss import Load, diverting, unexplained

pytestmark = pytest.mark.skipif(bool(hosts.refused()), reason=hosts.refused() or "")

ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", 3))
SEED = os.environ.get("DOVELANE_SEED", "1")


class Chaos:
    def __init__(self, seed, copies=2):
        self.chance, self.story, self.copies = random.Random(seed), [], copies
        self.keeps = self.chance.choice(sorted(faults.KEEPS))
        self.system = HostedStack(postfix="divert", sinks=[SinkShape(name, ours=True) for name in (*"abc", "plain")], divert=["a", "b", "c"], policy="queue", nodes=3, copies=copies,
                                  settings={**faults.SETTINGS, **faults.QUICK_DEATH, "destinations": {"a": {"placement": "ordered"}}}, redis_conf=["protected-mode no", *faults.KEEPS[self.keeps]],
                                  clock=["milter", *(f"{what}-{node}" for what in ("redis", "relay") for node in NODES)])

    def dice(self, node):
        """For what happens in a round, in several threads."""
        return random.Random(f"{self.story[-1]} {node}")

    def both(self, what, node):
        for name in (f"relay-{node}", f"redis-{node}"):
            getattr(self.system, what)(name)

    # -- what loses a node, until it is whole again ------------------------------------------------------------------------------

    def lose_node(self, node):
        self.both("kill", node)
        time.sleep(self.dice(node).choice([0, 2, 6]))  # before and after it is found dead
        self.system.start(f"redis-{node}")
        self.system.start(f"relay-{node}")

    def lose_redis(self, node):
        self.system.kill(f"redis-{node}")
        time.sleep(self.dice(node).choice([0, 0, 6]))
        self.system.start(f"redis-{node}")

    def lose_content(self, node):
        with resp.Connection(self.system.look_at(node)) as connection:
            connection.call("FLUSHALL")

    def lose_a_second(self, node):
        """It comes back with a file that is older than what it promised and delivered since."""
        if self.keeps != "aof":
            with resp.Connection(self.system.look_at(node)) as connection:
                faults.save(connection)
            time.sleep(1)
        self.lose_redis(node)

    def lose_connections(self, node):
        others = [other for other in NODES if other != node]
        self.system.hosts.cut(node, *others)
        time.sleep(self.dice(node).choice([1, 6]))
        self.system.hosts.heal()

    LOSSES = {"node": lose_node, "redis": lose_redis, "emptied": lose_content, "old file": lose_a_second, "cut off": lose_connections}

    # -- what loses nothing ----------------------------------------------------------------------------------------------------------

    def kill_relay(self, node, _):
        self.system.kill(f"relay-{node}")
        self.system.start(f"relay-{node}")

    def restart_relay(self, node, _):
        self.system.restart(f"relay-{node}")

    def kill_milter(self, *_):
        self.system.kill("milter")
        self.system.start("milter")

    def pause(self, node, seconds, names=("relay", "redis")):
        for name in names:
            self.system.stop(f"{name}-{node}")
        time.sleep(seconds)
        for name in names:
            self.system.cont(f"{name}-{node}")

    def pause_relay(self, node, seconds):
        self.pause(node, seconds, ["relay"])

    def pause_redis(self, node, seconds):
        self.pause(node, seconds, ["redis"])

    def fill_memory(self, node, seconds):
        with resp.Connection(self.system.look_at(node)) as connection:
            connection.call("CONFIG", "SET", "maxmemory", "1mb")
            time.sleep(seconds)
            connection.call("CONFIG", "SET", "maxmemory", "512mb")

    def forget_flows(self, node, _):
        self.system.hosts.forget(node, *(other for other in NODES if other != node), "rest")

    def refuse(self, node, seconds):
        """Until the network is healed as a whole."""
        other = self.dice(node).choice([other for other in NODES if other != node])
        self.system.hosts.refuse(node, other)
        self.system.hosts.forget(node, other)

    def lose_packets(self, *_):
        self.system.hosts.lose(0.03)

    def jump(self, node, _):
        """The time of day of one host, an hour to a second, to either side of everybody else's; it stays so."""
        chance = self.dice(node)
        names, seconds = chance.choice([["milter"], [f"relay-{node}", f"redis-{node}"]]), chance.choice([-3600, -60, -3, 3, 60, 3600])
        for name in names:
            self.system.jump(name, seconds)

    DISTURBANCES = {"nothing": lambda *_: None, "relay killed": kill_relay, "relay restarted": restart_relay, "milter killed": kill_milter, "node paused": pause,
                    "relay paused": pause_relay, "redis paused": pause_redis, "memory full": fill_memory, "clock": jump, "flows forgotten": forget_flows, "refused one way": refuse,
                    "packets lost": lose_packets}

    def disturb(self, what, node, later, seconds):
        time.sleep(later)
        try:
            if what in self.LOSSES:
                self.LOSSES[what](self, node)
            else:
                self.DISTURBANCES[what](self, node, seconds)
        except Exception as error:
            self.failed = f"{what} {node}: {error}"

    # -- a story ---------------------------------------------------------------------------------------------------------------------------

    def round(self):
        chance = self.chance
        loss, node = chance.choice(sorted(self.LOSSES)), chance.choice(NODES)
        # With three copies a second node may be lost at the same time.
        more = [*self.DISTURBANCES, *(list(self.LOSSES) * 2 if self.copies == 3 else ())]
        what, where = chance.choice(sorted(more)), chance.choice([other for other in NODES if other != node])
        later, seconds = chance.random() * 2, chance.choice([0.2, 0.7, 1.5, 5])
        self.story.append(f"{loss} {node} + {what} {where} after {later:.1f} s for {seconds} s")
        self.failed = None
        other = threading.Thread(target=self.disturb, args=(what, where, later, seconds))
        other.start()
        try:
            self.LOSSES[loss](self, node)
        finally:
            other.join()
            self.system.hosts.heal()
        assert not self.failed, self.failed
        faults.healthy(self.system, copies=self.copies)

    def run(self, rounds):
        load = Load(self.system, rate=60)
        try:
            for _ in range(rounds):
                load.flowing()
                diverting(self.system)
                self.round()
        finally:
            ledger = load.end()
        verdict = oracle.wait_delivered(self.system, ledger, seconds=300)
        looked, overtaken = oracle.overtaken(self.system, ledger, ["a.example"])
        print(f"\nkeeps {self.keeps}: {self.story}; {verdict.summary()}, in order {looked}")
        assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
        assert not unexplained(verdict, self.system), verdict.report()
        assert not overtaken, f"{len(overtaken)} of {looked}: " + "\n".join(str(each) for each in overtaken[:5])
        for node in NODES:
            eventually(f"{node} is empty", lambda node=node: not entries(self.system, node), 60)


def chaos(seed, rounds, copies=2):
    story = Chaos(seed, copies)
    with story.system as system:
        faults.healthy(system, copies=copies)
        for name in "abc":
            system.rules(name, {"at": "dot", "delay": 0.05})
        try:
            story.run(rounds)
        except BaseException:
            print(f"seed {seed}, keeps {story.keeps}: {story.story}\n{system.tails(25)}")
            raise


def test_chaos():
    chaos(SEED, ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_chaos_for_long(seed):
    chaos(f"{SEED}.{seed}", int(os.environ.get("DOVELANE_ROUNDS", 20)))


@pytest.mark.long
def test_chaos_with_three_copies_for_long():
    chaos(f"{SEED}.three", int(os.environ.get("DOVELANE_ROUNDS", 20)), copies=3)
