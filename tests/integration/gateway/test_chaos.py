"""Random faults under load, told by a seed: one node at a time loses what it held, is killed, or is cut off, and is whole again before the next one is; meanwhile
programs are killed and stand still, clocks jump, connections die, packets are lost, and memory is short, on any other node, at any moment of the recovery; with three copies
another one may be lost at the same time, and with `replace_after` a node is away until others have copied what it held, and then one of those is emptied. Every mail that was answered 250 arrives, every second copy carries a reason, the lanes get empty, and what goes to the ordered destination (a) comes in the order of the 250s, but for what a log calls
otherwise.

`make chaos SEED=... ROUNDS=...` runs one story; a failure prints it."""
import os
import random
import re
import threading
import time
from pathlib import Path

import pytest

import faults
from faults import NODES, entries
from support.relay_world import eventually
from support.stack import hosts, oracle, resp
from support.stack.hosts import HostedStack
from support.stack.shape import SinkShape
from test_loss import Load, diverting, unexplained

pytestmark = pytest.mark.skipif(bool(hosts.refused()), reason=hosts.refused() or "")

ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", 3))
SEED = os.environ.get("DOVELANE_SEED", "1")
WORK = {"at": "dot", "delay": 0.05}  # what next hops take for a mail


class Chaos:
    def __init__(self, seed, copies=2, replace_after=None):
        self.chance, self.story, self.copies = random.Random(seed), [], copies
        self.keeps = self.chance.choice(sorted(faults.KEEPS))
        self.often = [self.FOR_LONG] if replace_after else []  # every second loss
        self.losses = {**self.LOSSES, **dict.fromkeys(self.often, Chaos.lose_node_for_long)}
        more = {"replace_after": replace_after} if replace_after else {}
        self.system = HostedStack(postfix="divert", sinks=[SinkShape(name, ours=True) for name in (*"abc", "plain")], divert=["a", "b", "c"], policy="queue", nodes=3, copies=copies,
                                  settings={**faults.SETTINGS, **faults.QUICK_DEATH, **more, "destinations": {"a": {"placement": "ordered"}}}, redis_conf=["protected-mode no", *faults.KEEPS[self.keeps]],
                                  clock=["milter", *(f"{what}-{node}" for what in ("redis", "relay") for node in NODES)])

    def dice(self, node):
        """For what happens in a round, in several threads."""
        return random.Random(f"{self.story[-1]} {node}")

    def both(self, what, node):
        for name in (f"relay-{node}", f"redis-{node}"):
            getattr(self.system, what)(name)

    def next_hops(self, rule):
        for name in "abc":
            self.system.rules(name, rule)

    def copied(self):
        """Mails that got another owner in the place of a lost one."""
        return sum(int(n) for node in NODES for n in re.findall(r"lost for good: (\d+) of \d+ mails were copied", Path(self.system[f"relay-{node}"].log).read_text(errors="replace")))

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

    def has_other_owners(self, node, others, seconds=20):
        """Whether all that was the node's and the others' is only the others' by then; what disturbs meanwhile may keep that from happening."""
        end = time.monotonic() + seconds
        while any(node in entry.lane.split("|")[1].split(">") for other in others for entry in entries(self.system, other)):
            if time.monotonic() > end:
                return False
            time.sleep(0.3)
        return True

    def lose_node_for_long(self, node):
        """Until others have copied what waits there, and one of those may be lost, too; next hops that defer leave something to copy."""
        dice, others = self.dice(node), [other for other in NODES if other != node]
        self.next_hops({"at": "mail", "reply": "450 4.3.2 not now"})
        try:
            time.sleep(1)
            self.both("kill", node)
            if dice.random() < 0.3:
                time.sleep(5)  # in the middle of it, as far as a test can tell
            elif self.has_other_owners(node, others):
                self.system.hosts.heal()
                faults.healthy(self.system, others)
                second = dice.choice(others)
                self.lose_content(second)
                self.then = f", then {second} emptied"
                time.sleep(dice.choice([0, 1]))
            self.system.start(f"redis-{node}")
            self.system.start(f"relay-{node}")
        finally:
            self.next_hops(WORK)

    FOR_LONG = "node, for long"
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
            if what in self.losses:
                self.losses[what](self, node)
            else:
                self.DISTURBANCES[what](self, node, seconds)
        except Exception as error:
            self.failed = f"{what} {node}: {error}"

    # -- a story ---------------------------------------------------------------------------------------------------------------------------

    def round(self):
        chance = self.chance
        loss, node = chance.choice(sorted(self.LOSSES) + len(self.LOSSES) * self.often), chance.choice(NODES)
        # With three copies a second node may be lost at the same time.
        more = [*self.DISTURBANCES, *(list(self.LOSSES) * 2 if self.copies == 3 else ())]
        what, where = chance.choice(sorted(more)), chance.choice([other for other in NODES if other != node])
        later, seconds = chance.random() * 2, chance.choice([0.2, 0.7, 1.5, 5])
        self.story.append(f"{loss} {node} + {what} {where} after {later:.1f} s for {seconds} s")
        self.failed, self.then = None, ""
        other = threading.Thread(target=self.disturb, args=(what, where, later, seconds))
        other.start()
        try:
            self.losses[loss](self, node)
        finally:
            other.join()
            self.system.hosts.heal()
            self.story[-1] += self.then
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
        print(f"\nkeeps {self.keeps}: {self.story}; {verdict.summary()}, in order {looked}, copied {self.copied()}")
        assert not (verdict.lost or verdict.damaged or verdict.strange), verdict.report()
        assert not unexplained(verdict, self.system), verdict.report()
        assert not overtaken, f"{len(overtaken)} of {looked}: " + "\n".join(str(each) for each in overtaken[:5])
        for node in NODES:
            eventually(f"{node} is empty", lambda node=node: not entries(self.system, node), 60)


def chaos(seed, rounds, copies=2, replace_after=None):
    story = Chaos(seed, copies, replace_after)
    with story.system as system:
        faults.healthy(system, copies=copies)
        story.next_hops(WORK)
        try:
            story.run(rounds)
            assert not any(story.FOR_LONG in each for each in story.story) or story.copied(), "a node was away for long, and nothing was copied"
        except BaseException:
            print(f"seed {seed}, keeps {story.keeps}: {story.story}\n{system.tails(25)}")
            raise


def test_chaos():
    chaos(SEED, ROUNDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10))
def test_chaos_for_long(seed):
    chaos(f"{SEED}.{seed}", int(os.environ.get("DOVELANE_ROUNDS", 20)))


@pytest.mark.exhaustive
def test_chaos_with_three_copies_for_long():
    chaos(f"{SEED}.three", int(os.environ.get("DOVELANE_ROUNDS", 20)), copies=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_chaos_while_what_a_lost_node_held_is_copied_for_long(seed):
    chaos(f"{SEED}.copied.{seed}", int(os.environ.get("DOVELANE_ROUNDS", 20)), replace_after="1s")
