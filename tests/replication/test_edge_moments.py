"""From Postfix's 250 to the disks of two sites: the receiving site is destroyed at each moment of a mail's way, under load (docs/two-disks.md).

Real Postfix, milter, nodes, relays and Dovecots. What was answered 250 is shown once at each site when all is quiet.
"""
import signal
import smtplib
import threading
import time

import pytest
from replica_disks import come_back, destroy, shown
from site_user import Site, mail
from support.relay_world import QUICK
from support.stack import Stack, lanes, resp
from support.stack.digest import wait_equal
from support.stack.group import GROUP_KEY
from support.waiting import eventually

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "moments@example.org"
RETAINED = 4


class Edge:
    def __init__(self, tmp_path, there, until):
        key = tmp_path / "group.key"
        key.write_text(GROUP_KEY)
        key.chmod(0o600)
        self.there, self.answered = there, []
        hops = ["[127.0.0.1]:" + replica.note["lmtp"].rpartition(":")[2] for replica in there.replicas]
        destination = "lmtp:" + ",".join(hops)
        inside = {"delivery_id": "yes", "until": until, "sites": 2, "replicated_wait": "5s"}
        sites = {replica.note["site"]: {"id": number, "redis": there[f"redis-{replica.letter}"].note["address"], "lmtp": hop}
                 for number, (replica, hop) in enumerate(zip(there.replicas, hops), 1)}
        # 250 means: in the lanes; a busy machine has time for that
        settings = {**QUICK, "store_deadline": "10s", "settle": "12s", "group_key_file": str(key), "destinations": {destination: inside}, "replicas": sites,
                    "replicate_namespaces": '{ "inbox" }'}
        self.stack = Stack(postfix="divert", nodes=2, policy="tempfail", maps={"example.org": destination}, settings=settings).up()
        self.connections = {node: resp.Connection(address, timeout=60) for node, address in self.stack.nodes.items()}

    def end(self):
        for connection in self.connections.values():
            connection.close()
        self.stack.down()

    def send(self, *names):
        """Through Postfix; returns when all are answered 250."""
        host, _, port = self.stack.smtp.rpartition(":")
        with smtplib.SMTP(host, int(port), timeout=240) as session:
            for name in names:
                session.sendmail("sender@stack.example", [USER], mail(name))
                self.answered.append(name)

    def relays(self, number):
        for node in self.connections:
            self.stack[f"relay-{node}"].kill(number)

    def states(self):
        """Of all recipients on all nodes: (state, site)."""
        return [(each.state, each.site) for node, address in self.stack.nodes.items() for entry in lanes.entries(node, address)
                for each in entry.envelope["recipients"]]

    def empty(self):
        eventually("empty lanes", lambda: not self.states(), WITHIN)

    def retained(self, count):
        """So many are, on both nodes; nothing else is there."""
        eventually(f"{count} retained mails", lambda: self.states() == [(RETAINED, 1)] * 2 * count, WITHIN)

    def asked_lane(self, prefix):
        with resp.Connection(self.there["redis-a"].note["address"]) as c:
            return sum(c.call("LANE.LEN", f"dovelane:{prefix}:{name}") for name in ("1", "mx1", "mx2"))


@pytest.fixture
def edge(tmp_path):
    made = []

    def make(there, until):
        made.append(Edge(tmp_path, there, until))
        return made[-1]
    yield make
    for each in made:
        each.end()


class Load(threading.Thread):
    """Mails one after the other, until it is ended."""

    def __init__(self, edge):
        super().__init__(daemon=True)
        self.edge, self.over, self.error = edge, threading.Event(), None
        self.start()

    def run(self):
        try:
            n = 0
            while not self.over.is_set():
                self.edge.send(f"load{n}")
                n += 1
                self.over.wait(0.02)
        except Exception as error:      # pylint: disable=broad-except
            self.error = error

    def end(self):
        self.over.set()
        self.join(WITHIN)
        assert self.error is None, self.error


# -- the moments: at each one's end site a is gone, with its disk -------------------------------------------------------------------------

def before_delivery(w):
    w.relays(signal.SIGSTOP)
    w.send("one", "two", "three")
    destroy(w.there, "a")
    w.relays(signal.SIGCONT)


def between_delivery_and_meta(w):
    """Dovecot takes it on a connection that was there already, and the relay does not hear it."""
    a = w.there.replicas[0]
    w.there.cut()
    for n in range(50):
        before = len(w.states())
        w.send(f"warm{n}")
        eventually("the warm one is retained", lambda count=before: len(w.states()) == count + 2 and {state for state, _ in w.states()} == {RETAINED}, WITHIN)
        assert a.kill_some("lmtp", number=signal.SIGSTOP)
        w.send(f"caught{n}")
        time.sleep(0.5)     # the relay takes it; where that is too short, another one is sent
        w.relays(signal.SIGSTOP)
        a.kill_some("lmtp", number=signal.SIGCONT)
        there_now = [state for state, _ in w.states() if state != RETAINED]
        if there_now and wait_shown(a, f"caught{n}"):
            break
        w.relays(signal.SIGCONT)
        eventually("all is retained", lambda: {state for state, _ in w.states()} == {RETAINED}, WITHIN)
    else:
        raise AssertionError("no mail was caught between its delivery and its META")
    destroy(w.there, "a")
    w.relays(signal.SIGCONT)


def wait_shown(replica, name):
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if shown(replica, name, USER):
            return True
        time.sleep(0.1)
    return False


def between_meta_and_question(w):
    """The site's node takes no question."""
    w.there.stop("redis-a")
    w.send("one", "two", "three")
    w.retained(3)
    w.there.cont("redis-a")
    destroy(w.there, "a")


def between_question_and_on_disk(w):
    w.there.cut()
    w.send("one", "two", "three")
    w.retained(3)
    eventually("the site has taken the questions", lambda: w.asked_lane("asked") == 0)
    destroy(w.there, "a")


def between_on_disk_and_safe(w):
    """Site b hears site a, and is not heard."""
    w.there.network(do="cut", links=["a>b"])
    w.send("one", "two", "three")
    b = w.there.replicas[1]
    eventually("site b has them", lambda: all(shown(b, name, USER) for name in ("one", "two", "three")), WITHIN)
    w.retained(3)
    destroy(w.there, "a")


def between_safe_and_ack(w):
    """The answer lies in the relay's lane."""
    w.there.cut()
    w.send("one", "two", "three")
    w.retained(3)
    w.relays(signal.SIGSTOP)
    w.there.heal()
    eventually("an answer", lambda: w.asked_lane("answered") > 0, WITHIN)
    destroy(w.there, "a")
    w.relays(signal.SIGCONT)


def amid_load(w):
    """At no moment in particular: of each mail at another."""
    load = Load(w)
    eventually("some mails", lambda: len(w.answered) >= 40, WITHIN)
    destroy(w.there, "a")
    before = len(w.answered)
    eventually("more mails", lambda: len(w.answered) >= before + 20, WITHIN)
    load.end()


MOMENTS = [before_delivery, between_delivery_and_meta, between_meta_and_question, between_question_and_on_disk, between_on_disk_and_safe, between_safe_and_ack,
           amid_load]


def all_quiet(w, there):
    come_back(there, "a")
    there.heal()
    w.empty()
    wait_equal(there.replicas, [USER], WITHIN)
    return {replica.letter: {name: shown(replica, name, USER) for name in ("first", *w.answered)} for replica in there.replicas}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_the_receiving_site_is_destroyed(group, edge, moment):
    there = group("sdbox", "sdbox")
    w = edge(there, "replicated")
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    moment(w)
    found = all_quiet(w, there)
    wrong = {letter: {name: times for name, times in shows.items() if times != 1} for letter, shows in found.items()}
    assert wrong == {"a": {}, "b": {}}
    assert len(w.answered) >= 2


def test_until_delivered_loses_what_is_not_lost_here(group, edge):
    """The same as between question and ON_DISK: what this test finds is what the others would find."""
    there = group("sdbox", "sdbox")
    w = edge(there, "delivered")
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut()
    w.send("one", "two", "three")
    w.empty()
    assert shown(there.replicas[0], "one", USER) == 1
    destroy(there, "a")
    found = all_quiet(w, there)
    assert found["b"] == {"first": 1, "one": 0, "two": 0, "three": 0}
