"""From the lanes of two gateway nodes to the disks of two sites: nothing of it is played (docs/two-disks.md)."""
import pytest
from replica_disks import come_back, destroy
from replica_disks import shown as shown_to
from site_user import Site, mail
from support.relay_world import World
from support.stack import Stack, probe
from support.stack.digest import wait_equal
from support.stack.group import GROUP_KEY
from support.waiting import eventually

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "edge@example.org"


class Edge(World):
    """Two nodes with relays, whose destination is the LMTP of both sites of a group."""

    def __init__(self, stack, tmp_path, there, until="replicated", **settings):
        key = tmp_path / "group.key"
        key.write_text(GROUP_KEY)
        key.chmod(0o600)
        self.there = there
        super().__init__(stack, tmp_path, relays=(), group_key_file=str(key), **settings)
        hops = ["[127.0.0.1]:" + replica.note["lmtp"].rpartition(":")[2] for replica in there.replicas]
        self.destination = "lmtp:" + ",".join(hops)
        inside = {"delivery_id": "yes", "until": until, "sites": 2, "replicated_wait": "5s"}
        sites = {replica.note["site"]: {"id": number, "redis": there[f"redis-{replica.letter}"].note["address"], "lmtp": hop}
                 for number, (replica, hop) in enumerate(zip(there.replicas, hops), 1)}
        for node in self.connections:
            self.configure(node, hangup=False, destinations={self.destination: inside}, replicate_namespaces='{ "inbox" }', replicas=sites)
        for node in self.connections:
            self.stack.start(f"relay-{node}")

    def put(self, name, rcpt=USER):
        return self.store(self.destination, rcpt, body=mail(name))

    def retained(self, site):
        def found():
            for node in self.connections:
                states = [(to.state, to.site) for entry in self.entries(node) for to in entry.envelope["recipients"]]
                if not states or set(states) != {(4, site)}:
                    return False
            return True
        eventually(f"both owners retain it, at site {site}", found, WITHIN)


@pytest.fixture
def edge(tmp_path):
    """A factory; ended before the sites are."""
    made = []

    def make(there, **options):
        stacks = []

        def start(**shape):
            stacks.append(Stack(**shape))
            made.append((stacks[-1], []))
            return stacks[-1].up()
        world = Edge(start, tmp_path, there, **options)
        made[-1][1].append(world)
        return world

    yield make
    for stack, worlds in reversed(made):
        try:
            for world in worlds:
                world.end()
            if stack.mark:
                print(stack.tails())
        finally:
            stack.down()


def shown(replica, name, user=USER):
    return shown_to(replica, name, user)


def ready(there):
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)


@pytest.mark.test
def test_a_mail_leaves_the_lanes_when_it_is_on_two_disks(group, edge):
    there = group("sdbox", "maildir")
    w = edge(there)
    a, b = there.replicas
    ready(there)
    w.put("one")
    w.put("detail", "edge+detail@example.org")
    w.empty()
    for name in ("one", "detail"):
        assert shown(b, name) == 1, "before the lanes let go of it"
        assert shown(a, name) == 1
    there.cut()
    w.put("two")
    w.retained(1)
    asked = questions(w)
    eventually("it is asked for again and again", lambda: questions(w) >= asked + 3)
    w.retained(1)
    assert shown(a, "two") == 1 and shown(b, "two") == 0
    there.heal()
    w.empty()
    assert shown(b, "two") == 1
    wait_equal(there.replicas, [USER], WITHIN)
    assert w.count("status=sent") == 3 and not w.count("why=site-")


def questions(w):
    """How many the relay of mx1 has asked."""
    return probe.metric("unix:" + w.relay().note["metrics"], "relay_questions")


@pytest.mark.parametrize("until", ["delivered", "replicated"])
def test_the_receiving_site_is_destroyed_before_it_has_shipped(group, edge, until):
    """Delivered: the mail that was answered 250 is nowhere. Replicated: the other site gets it, and the first one from there."""
    there = group("sdbox", "sdbox")
    w = edge(there, until=until)
    a, b = there.replicas
    ready(there)
    there.cut()
    w.put("only copy")
    if until == "delivered":
        w.empty()
        assert shown(a, "only copy") == 1
    else:
        w.retained(1)
    destroy(there, "a")
    if until == "replicated":
        w.logged("status=sent .* why=site-away", seconds=300)
        w.retained(2)
        assert shown(b, "only copy") == 1
    come_back(there, "a")
    there.heal()
    wait_equal(there.replicas, [USER], WITHIN)
    w.empty()
    for replica in there.replicas:
        assert shown(replica, "first") == 1
        assert shown(replica, "only copy") == (until == "replicated")
    assert w.count("status=sent") == (2 if until == "replicated" else 1)


NO_KEY = {"2.3": "plugin {\n  dovelane_group_key_file =\n}\n", "2.4": "dovelane_group_key_file =\n"}
DELIMITER = dict.fromkeys(("2.3", "2.4"), "recipient_delimiter = -\n")


@pytest.mark.parametrize("more, rcpt", [(NO_KEY, USER), (DELIMITER, "edge-detail@example.org")], ids=["no-key", "delimiter"])
def test_a_mail_that_its_site_never_knows_is_delivered_twice_and_no_more(group, edge, more, rcpt):
    there = group("sdbox", "sdbox", anybody=False, users=[USER], more=more)
    w = edge(there)
    a, b = there.replicas
    ready(there)
    w.put("one", rcpt)
    w.logged("status=sent .* why=site-lost", seconds=300)
    w.logged(": let go before enough sites had it on disk, why=never-known", seconds=300)
    w.logged("took mail twice and does not know it")
    w.empty()
    assert w.count("status=sent") == 2
    assert 1 <= shown(a, "one") <= 2
    wait_equal(there.replicas, [USER], WITHIN)
