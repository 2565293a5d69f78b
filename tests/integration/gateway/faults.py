"""Faults that hit nodes at work, and the most that each may cost (docs/takeover/costs.md, "What each failure costs").

Three nodes on hosts of their own, a milter, next hops that take a tenth of a second, and a load. A fault is a function that first makes sure, from outside, that
the victim has work in flight, and says which pairs (mail, recipient) may come twice for it; then it strikes, and leaves everything as it shall stay. What is asserted is
always the same: nothing that was answered 250 is lost, damaged or invented; at most those came twice, each with a reason in a log; the lanes get empty; and the
nodes that are left are alive, whole, and drain for nobody else.

A machine that stands still for seconds can make the nodes find each other dead where the fault is no reason to. Then another fault was tried than the one meant:
the case does not count, and is tried again. What must hold whatever happened is asserted in every try.
"""
import itertools
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from support import sinks
from support.stack import lanes, oracle, resp
from support.stack.hosts import HostedStack
from support.stack.shape import SinkShape
from support.waiting import eventually
from test_loss import Load, diverting, unexplained

SETTINGS = {"takeover": "automatic", "beat": "200ms", "suspect_after": "2s", "dead_after": "15s", "alone_wait": "0s", "handover_wait": "20s", "restless_most": "3s",
            "compare_every": "2s", "settle": "1300ms", "store_deadline": "600ms", "max_entry": "1MB", "retry_first": "500ms", "retry_most": "1s", "revoke_wait": "25s",
            "lane_time": "24h"}
QUICK_DEATH = {"suspect_after": "1s", "dead_after": "3s", "return_max": "1s"}
KEEPS = {"none": [], "rdb": ["save 1 1"], "aof": ["appendonly yes", "appendfsync everysec"]}
NODES = ("mx1", "mx2", "mx3")
VICTIM = "mx1"
MOST_RECIPIENTS = 3
TRIES = 3


class Idle(Exception):
    """The victim had nothing in flight: the fault would prove nothing."""


# -- what is in flight ---------------------------------------------------------------------------------------------------------


def entries(system, node):
    return list(lanes.entries(node, system.look_at(node)))


def first_owner(entry):
    return entry.lane.rpartition("|")[2].split(">")[0]


def pairs(found):
    return {(entry.oracle_id, recipient) for entry in found for recipient in entry.open}


def leased(system, node):
    return pairs(entry for entry in entries(system, node) if entry.state == "leased")


def delivered(system):
    return set(oracle.Deliveries(system).read().mails)


def untold(system, node):
    """What the node delivered, and other owners still hold: acks that nobody told them."""
    own, done = pairs(entries(system, node)), delivered(system)
    others = {pair for other in system.nodes if other != node for pair in pairs(entry for entry in entries(system, other) if first_owner(entry) == node)}
    return (others - own) & done


@dataclass
class Case:
    system: object
    load: object
    story: list = field(default_factory=list)
    twice: set = field(default_factory=set)   # pairs that may be delivered a second time
    more: int = 0                             # and so many that cannot be named: they are in a program, not in a lane
    deaths: set = field(default_factory=set)  # nodes that others shall find dead
    left: tuple = NODES                       # nodes that are there at the end

    def tell(self, text):
        self.story.append(text)

    def may_come_twice(self, which, what):
        self.twice |= which
        self.tell(f"{len(which)} {what}")

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def log(self, name):
        return Path(self.system[name].log).read_text(errors="replace")

    def said(self, name, pattern, after=0, seconds=60):
        return eventually(f"{pattern} in the log of {name}", lambda: re.compile(pattern, re.M).search(self.log(name), after), seconds)

    def size(self, name):
        return len(self.log(name))

    def found_dead(self):
        return {node for name in self.system.nodes for node in re.findall(r"warning: node (\w+) is (?:dead \(silent|\w+ for too long)", self.log(f"relay-{name}"))}

    def wait_dead(self, node=VICTIM):
        self.deaths.add(node)
        eventually(f"{node} is found dead", lambda: node in self.found_dead(), 90)

    # -- the relay's work, while it stands still -----------------------------------------------------------------------------------

    def freeze_relay(self, node=VICTIM):
        """Stops the relay when it has something in hand. Returns what it has: pairs in entries that are leased."""
        for _ in range(40):
            eventually(f"the relay of {node} has something in hand", lambda: leased(self.system, node), 60)
            self.system.stop(f"relay-{node}")
            time.sleep(0.1)  # what it sent last has arrived
            if hand := leased(self.system, node):
                return hand
            self.system.cont(f"relay-{node}")
        raise Idle(f"the relay of {node} is never met with anything in hand")

    def in_hand(self, node=VICTIM):
        self.tell(f"{len(eventually(f'the relay of {node} has something in hand', lambda: leased(self.system, node), 60))} in hand")

    def pushes(self):
        counters = sinks.metrics(self.system, "milter")
        return counters["store_entries_total"] - counters["store_held_total"] - counters["store_refused_total"]


# -- killed, and back or never back ----------------------------------------------------------------------------------------------


def kill(victim, back):
    def strike(case):
        system = case.system
        if victim == "milter":
            system.stop("milter")
            time.sleep(0.2)
            case.more = case.load.generator.unfinished * MOST_RECIPIENTS
            case.tell(f"{case.load.generator.unfinished} mails in the milter")
            if not case.more:
                raise Idle("no mail in the milter")
            system.kill("milter")
        else:
            hand = case.freeze_relay()
            case.tell(f"{len(hand)} in hand")
            if victim == "redis":
                system.stop("redis-mx1")
                case.may_come_twice(hand - set(case.load.generator.ledger.promised), "of them not promised yet")
                system.kill("redis-mx1")
                system.cont("relay-mx1")
            elif victim == "relay":
                case.may_come_twice(hand, "of them may come twice")
                if not back:
                    case.may_come_twice(untold(system, VICTIM), "acks that were not told")
                system.kill("relay-mx1")
            else:
                case.may_come_twice(hand, "of them may come twice")
                case.may_come_twice(untold(system, VICTIM), "acks that were not told")
                system.kill("relay-mx1")
                system.kill("redis-mx1")
        if back and victim == "node":
            case.wait_dead()
        if back:
            if victim in ("redis", "node"):
                system.start("redis-mx1")
            if victim in ("relay", "node"):
                system.start("relay-mx1")
            if victim == "milter":
                system.start("milter")
        elif victim != "milter":
            case.wait_dead()
            case.left = ("mx2", "mx3")
    return strike


def freeze_relays(case, victims):
    """The first one with something in hand; the others, who own nothing first while it lives, as they are."""
    hands = {victims[0]: case.freeze_relay(victims[0])}
    for node in victims[1:]:
        case.system.stop(f"relay-{node}")
    time.sleep(0.1)
    return hands | {node: leased(case.system, node) for node in victims[1:]}


def killed_and_back(victims, wait):
    """Relay and Redis of these nodes at one time; back when they were found dead, or at once."""
    def strike(case):
        system = case.system
        for node, hand in freeze_relays(case, victims).items():
            case.may_come_twice(hand, f"in hand of {node}")
        for node in victims:
            case.may_come_twice(untold(system, node), f"acks of {node} that were not told")
        for node in victims:
            system.kill(f"relay-{node}")
            system.kill(f"redis-{node}")
        for node in victims if wait else ():
            case.wait_dead(node)
        for node in victims:
            system.start(f"redis-{node}")
            system.start(f"relay-{node}")
    return strike


def clocks_apart(seconds):
    """The milter's host is so far ahead or behind; the node comes back with what it held, so soon that nobody takes over."""
    def strike(case):
        case.system.jump("milter", seconds)
        case.load.flowing()
        diverting(case.system)
        killed_and_back([VICTIM], False)(case)
        case.tell(f"the milter's clock is {seconds:+d} s off")
    return strike


def handover(case):
    """A node is away for so long that it is taken over, and comes back under load: what the taker has in hand then is finished by it, and given back."""
    case.system.end("relay-mx1")
    case.wait_dead()
    eventually("it is taken over", lambda: re.search("why=takeover", case.log("relay-mx2") + case.log("relay-mx3")), 60)
    case.load.flowing()
    before = {name: case.size(f"relay-{name}") for name in ("mx2", "mx3")}
    case.system.start("relay-mx1")
    eventually("it is given back", lambda: any(re.search("mx1.*given back|given back.*mx1", case.log(f"relay-{name}")[before[name]:]) for name in before), 90)


# -- standing still ----------------------------------------------------------------------------------------------------------------


def stop(victim, seconds):
    """dead_after is 15 s, suspect_after 2 s: a delay, a store failure, a death."""
    def strike(case):
        system = case.system
        if victim == "milter":
            system.stop("milter")
            time.sleep(0.2)
            case.tell(f"{case.load.generator.unfinished} mails in the milter")
            if not case.load.generator.unfinished:
                system.cont("milter")
                raise Idle("no mail in the milter")
            if seconds >= 30:  # Postfix waits no longer (milter_command_timeout) and keeps the mail
                case.more = case.load.generator.unfinished * MOST_RECIPIENTS
            time.sleep(seconds)
            system.cont("milter")
            return
        hand = case.freeze_relay()
        case.tell(f"{len(hand)} in hand")
        if seconds >= 30:
            case.may_come_twice(hand, "of them may come twice")
            case.may_come_twice(untold(system, VICTIM), "acks that were not told")
        if victim in ("redis", "node"):
            system.stop("redis-mx1")
        if victim == "redis":
            system.cont("relay-mx1")
        time.sleep(seconds)
        if seconds >= 30:
            case.wait_dead()
        if victim in ("redis", "node"):
            system.cont("redis-mx1")
        if victim in ("relay", "node"):
            system.cont("relay-mx1")
    return strike


def clean_stop(victim):
    def strike(case):
        case.in_hand()
        case.system.end("relay-mx1")
        if victim == "node":
            case.system.end("redis-mx1")
            case.system.start("redis-mx1")
        case.system.start("relay-mx1")
    return strike


# -- what a server holds, and may hold ------------------------------------------------------------------------------------------------


def emptied(case):
    hand = case.freeze_relay()
    case.tell(f"{len(hand)} in hand")
    case.may_come_twice(hand - set(case.load.generator.ledger.promised), "of them not promised yet")
    before = case.size("relay-mx1")
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        connection.call("FLUSHALL")
    case.system.cont("relay-mx1")
    case.said("relay-mx1", r"returning \((not whole|the relay stood still)", before)  # it may have been stopped for long, on a busy machine


def two_emptied(case):
    hand = set.union(*freeze_relays(case, [VICTIM, "mx2"]).values())
    case.tell(f"{len(hand)} in hand")
    case.may_come_twice(hand - set(case.load.generator.ledger.promised), "of them not promised yet")
    for node in (VICTIM, "mx2"):
        with resp.Connection(case.system.look_at(node)) as connection:
            connection.call("FLUSHALL")
    for node in (VICTIM, "mx2"):
        case.system.cont(f"relay-{node}")
    for node in (VICTIM, "mx2"):
        case.said(f"relay-{node}", r"returning \((not whole|the relay stood still)")


def save(connection):
    """A file as of now; one that is being written in the background comes first."""
    def look():
        try:
            return connection.call("SAVE")
        except resp.RedisError as error:
            assert "in progress" in str(error)
            return None
    eventually("the file is written", look, 60)


def old_aof(case):
    """The same with an append-only file of before."""
    files = Path(case.system["redis-mx1"].note["conf"]).parent / "appendonlydir"

    def copied():
        shutil.rmtree(files.with_name("old"), ignore_errors=True)
        before = {entry.id for entry in entries(case.system, VICTIM)}
        case.system.stop("redis-mx1")
        shutil.copytree(files, files.with_name("old"))  # written with each turn of its loop, if not on the disk yet
        case.system.cont("redis-mx1")
        return before & {entry.id for entry in entries(case.system, VICTIM)}
    held = eventually("something is in the file", copied, 60)
    eventually("some of what is in the file is delivered", lambda: held - {entry.id for entry in entries(case.system, VICTIM)}, 60)
    hand = case.freeze_relay()
    case.tell(f"{len(hand)} in hand")
    case.system.stop("redis-mx1")
    case.may_come_twice(hand - set(case.load.generator.ledger.promised), "of them not promised yet")
    case.system.kill("redis-mx1")
    shutil.rmtree(files)
    files.with_name("old").rename(files)
    case.system.cont("relay-mx1")
    case.system.start("redis-mx1")
    case.said("relay-mx1", r"compared with .* [1-9]\d* dropped")


def old_file(case):
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        aof = b"yes" in connection.call("CONFIG", "GET", "appendonly")
    (old_aof if aof else old_rdb)(case)


def old_rdb(case):
    """The file holds what was delivered since, and lacks what came since."""
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        connection.call("CONFIG", "SET", "save", "")
        eventually("something is in the file", lambda: entries(case.system, VICTIM))
        save(connection)
    held = {entry.id for entry in entries(case.system, VICTIM)}
    eventually("some of what is in the file is delivered", lambda: held - {entry.id for entry in entries(case.system, VICTIM)}, 60)
    kill("redis", True)(case)
    case.said("relay-mx1", r"compared with .* [1-9]\d* dropped")


def memory_full(case):
    case.in_hand()
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        before = sinks.metrics(case.system, "milter")["store_refused_total"]
        connection.call("CONFIG", "SET", "maxmemory", "1mb")
        eventually("pushes are refused", lambda: sinks.metrics(case.system, "milter")["store_refused_total"] > before)
        case.said("relay-mx1", r"node mx1 uses \d+% of its maxmemory")
        case.said("milter", r"reason=store \([^)]*mx1: memory is full")
        case.tell(f"{sinks.metrics(case.system, 'milter')['store_refused_total'] - before} pushes refused")
        connection.call("CONFIG", "SET", "maxmemory", "512mb")


def disk_full(case):
    case.in_hand()
    make_room = case.system.fill_disk("redis-mx1")
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        eventually("Redis cannot write its file", lambda: b"aof_last_write_status:err" in connection.call("INFO", "persistence"))
    time.sleep(3)
    make_room()
    case.said("relay-mx1", "refuses ACK")


def disk_full_rdb(case):
    """No file can be saved. Nothing depends on it: nothing is refused."""
    case.in_hand()
    make_room = case.system.fill_disk("redis-mx1")
    with resp.Connection(case.system.look_at(VICTIM)) as connection:
        def failed():
            return b"rdb_last_bgsave_status:err" in connection.call("INFO", "persistence")
        eventually("Redis cannot write its file", failed, 60)
        case.load.flowing()
        diverting(case.system)
        make_room()
        eventually("it can again", lambda: not failed(), 60)
    assert not re.search("refuses ACK", case.log("relay-mx1"))


def clock(victim, seconds):
    names = ["milter"] if victim == "milter" else ["redis-mx1", "relay-mx1"]

    def strike(case):
        case.in_hand()
        with resp.Connection(case.system.look_at(VICTIM)) as connection:
            before = int(connection.call("TIME")[0])
            for name in names:
                case.system.jump(name, seconds)
            if victim == "node":
                eventually("the clock jumped", lambda: abs(int(connection.call("TIME")[0]) - before - seconds) < 60)
            case.tell(f"{', '.join(names)} by {seconds} s")
        time.sleep(4)
        assert not re.search(r"returning \((?!start)", case.log("relay-mx1")), "a clock is no reason to return"
    return strike


# -- the network ---------------------------------------------------------------------------------------------------------------------------


def partition(case):
    """The victim is alone, and reaches the next hops; so does the other part. Both deliver what they held at the cut and think theirs; the one that is alone takes over nothing."""
    system = case.system
    for name in "abc":
        system.rules(name, {"at": "mail", "reply": "450 4.3.2 not now"})
    eventually("a backlog", lambda: len(pairs(entries(system, VICTIM))) > 60, 60)
    system.hosts.cut(VICTIM, "mx2", "mx3")
    # The next hops take nothing yet. The milter reaches all, and learns within suspect_after that these two hear each other no more.
    case.wait_dead()
    backlog = {pair for node in NODES for pair in pairs(entry for entry in entries(system, node) if VICTIM in entry.lane.rpartition("|")[2].split(">"))}
    case.may_come_twice(backlog, "held by both parts")
    for name in "abc":
        system.rules(name, {"at": "dot", "delay": 0.1})
    eventually("the part of two has delivered", lambda: not any(first_owner(entry) == VICTIM for node in ("mx2", "mx3") for entry in entries(system, node)), 60)
    eventually("so has the one that is alone", lambda: not any(first_owner(entry) == VICTIM for entry in entries(system, VICTIM)), 60)
    assert not re.search("why=takeover", case.log("relay-mx1")), "who is alone takes over nothing"
    assert not re.search(r"node mx\d is dead", case.log("relay-mx1"))
    system.hosts.heal()


def third_hears(case):
    """Two nodes are cut off each other; both hear the third."""
    case.in_hand()
    case.system.hosts.cut(VICTIM, "mx2")
    time.sleep(16)
    case.system.hosts.heal()


def one_way(case):
    """One opens no connection to the other any more, and what was open died."""
    case.in_hand()
    case.system.hosts.refuse(VICTIM, "mx2")
    case.tell(f"{case.system.hosts.forget(VICTIM, 'mx2')} flows died")
    time.sleep(16)
    case.system.hosts.heal()


def forgotten_flows(case):
    """All connections of the victim with other hosts' servers, and with the milter, die in silence; new ones work."""
    case.in_hand()
    # A mail is under way for a millisecond or two.
    eventually("mail is under way", lambda: case.load.generator.unfinished, 60)
    case.more = case.load.generator.unfinished * MOST_RECIPIENTS
    case.tell(f"{case.load.generator.unfinished} mails under way")
    if not case.more:
        raise Idle("no mail in the milter")
    died = case.system.hosts.forget(VICTIM, "mx2", "mx3", "rest")
    case.tell(f"{died} flows died")
    assert died
    time.sleep(12)
    case.system.hosts.heal()


def path_cut(case):
    """The active path to the node goes in silence, with mail under way and in hand; after a while it is back."""
    system = case.system
    case.in_hand()
    milter, relay = case.size("milter"), case.size("relay-mx2")
    eventually("mail is under way", case.pushes, 60)
    system.cut_path(VICTIM)
    case.said("milter", r"node mx1 .*store\): connected at its standby address", milter)
    case.said("relay-mx2", r"node mx1 .*relay-peer\): connected at its standby address", relay)
    case.load.flowing()
    diverting(system)
    case.tell("went on at the standby address")
    assert not re.search(r"returning \((?!start)", case.log("relay-mx1")), "a path is no reason to return"
    milter = case.size("milter")
    system.hosts.heal()
    case.said("milter", r"node mx1 .*store\): connected$", milter)


def packets_lost(case):
    case.in_hand()
    case.system.hosts.lose(0.05)
    time.sleep(8)
    case.system.hosts.heal()


# -- the table ----------------------------------------------------------------------------------------------------------------------------------


@dataclass
class Fault:
    name: str
    strike: object
    settings: dict = field(default_factory=dict)
    keeps: tuple = tuple(KEEPS)
    clock: tuple = ()
    disk: dict = field(default_factory=dict)  # as HostedStack's
    copies: int = 2
    standby: bool = False


ALL = ("milter", "relay", "redis", "node")
FAULTS = [
    *(Fault(f"{victim} killed", kill(victim, True), QUICK_DEATH if victim == "node" else {}) for victim in ALL),
    *(Fault(f"{victim} killed for good", kill(victim, False), QUICK_DEATH) for victim in ALL),
    *(Fault(f"{victim} stopped {seconds}s", stop(victim, seconds)) for victim in ALL for seconds in (1, 10, 30)),
    *(Fault(f"{victim} restarted", clean_stop(victim)) for victim in ("relay", "node")),
    Fault("emptied", emptied),
    Fault("node killed, back at once", killed_and_back([VICTIM], False)),
    *(Fault(f"node killed, clocks apart {seconds:+d}s", clocks_apart(seconds), clock=("milter",)) for seconds in (3600, -3600)),
    Fault("handover", handover, QUICK_DEATH),
    Fault("old rdb", old_file),
    Fault("memory full", memory_full),
    Fault("disk full", disk_full, keeps=("aof",), disk={"redis-mx1": "16m"}),
    Fault("disk full, rdb", disk_full_rdb, keeps=("rdb",), disk={"redis-mx1": "16m"}),
    *(Fault(f"clock of {victim} {seconds:+d}s", clock(victim, seconds), clock=("milter",) if victim == "milter" else ("redis-mx1", "relay-mx1"))
      for victim in ("node", "milter") for seconds in (3600, -3600)),
    Fault("partition", partition, {**QUICK_DEATH, "alone_wait": "5min"}),
    Fault("active path cut", path_cut, {"store_deadline": "5s", "settle": "11s"}, standby=True),
    Fault("cut, a third hears", third_hears),
    Fault("one way", one_way),
    Fault("flows forgotten", forgotten_flows),
    Fault("packets lost", packets_lost),
    # Three copies: two nodes may be lost at one time.
    Fault("three copies, node killed", killed_and_back([VICTIM], True), QUICK_DEATH, copies=3),
    Fault("three copies, two nodes killed", killed_and_back([VICTIM, "mx2"], True), QUICK_DEATH, copies=3),
    Fault("three copies, two nodes killed, back at once", killed_and_back([VICTIM, "mx2"], False), copies=3),
    Fault("three copies, emptied", emptied, copies=3),
    Fault("three copies, two emptied", two_emptied, copies=3),
]
BY_NAME = {fault.name: fault for fault in FAULTS}


# -- a case from its start to the verdict -----------------------------------------------------------------------------------------------------------


def healthy(system, nodes=NODES, copies=2):
    """They are alive, whole for the sets that they may share, and serve lanes for nobody who is there."""
    def look():
        for node in nodes:
            with resp.Connection(system.look_at(node)) as connection:
                beats, sets = connection.call("LANE.BEAT")
            texts = {beat[0].decode(): beat[4].decode() for beat in beats}
            for name in nodes:
                text = texts.get(name, "")
                if "state=alive" not in text or any(f"{other}:" in text and re.search(rf"\b{other}:\w+\+", text) for other in nodes):
                    return False
            names = {text.decode() for text in sets[::2]}
            if copies <= len(nodes) and any("+".join(others) not in names for others in itertools.combinations(sorted(nodes), copies) if node in others):
                return False
        return True
    eventually(f"{nodes} are healthy", look, 90)


def system_of(fault, keeps):
    names = [SinkShape(name, ours=True) for name in (*"abc", "plain")]
    return HostedStack(postfix="divert", sinks=names, divert=["a", "b", "c"], policy="queue", nodes=3, copies=fault.copies, settings={**SETTINGS, **fault.settings},
                       redis_conf=["protected-mode no", *KEEPS[keeps]], clock=fault.clock, disk=fault.disk, standby=fault.standby)


def try_once(fault, keeps):
    """None when the case counts, else why it does not."""
    with system_of(fault, keeps) as system:
        healthy(system, copies=fault.copies)
        for name in "abc":
            system.rules(name, {"at": "dot", "delay": 0.1})
        load = Load(system, rate=60)
        case, void = Case(system, load), None
        try:
            load.flowing()
            diverting(system)
            try:
                fault.strike(case)
            except Idle as idle:
                void = str(idle)
                for name in ("milter", "redis-mx1", "relay-mx1"):
                    system.cont(name)
                    system.start(name)
            load.flowing()
            healthy(system, case.left, fault.copies)
            if system["milter"].alive():
                diverting(system)
        finally:
            ledger = load.end()
        judge(case, ledger, f"{fault.name}, {keeps}")
        if strangers := case.found_dead() - case.deaths:
            void = f"{', '.join(sorted(strangers))} found dead without cause"
        if void is None:
            bound = len(case.twice) + case.more
            unnamed = [entry for entry in case.verdict.duplicates if (entry.mail, entry.recipient) not in case.twice]
            assert len(unnamed) <= case.more, f"{fault.name}, {keeps}: {case.story}: {len(case.verdict.duplicates)} came twice, at most {bound} may\n{case.verdict.report()}"
    return void


def judge(case, ledger, name):
    system = case.system
    case.verdict = verdict = oracle.wait_delivered(system, ledger, seconds=300)
    print(f"\n{name}: {'; '.join(case.story)}; {verdict.summary()}")
    assert not (verdict.lost or verdict.damaged or verdict.strange), f"{name}: {case.story}\n{verdict.report()}"
    assert not unexplained(verdict, system), f"{name}: {case.story}\n{verdict.report()}"
    for node in case.left:
        eventually(f"{node} is empty", lambda node=node: not entries(system, node), 60)


def run(name, keeps):
    for _ in range(TRIES):
        void = try_once(BY_NAME[name], keeps)
        if void is None:
            return
        print(f"does not count: {void}")
    raise AssertionError(f"{name}, {keeps}: no try of {TRIES} counted; the last one: {void}")
