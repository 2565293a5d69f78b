"""Classes of mail share a next hop by their weights: what is heavier overtakes, and nothing starves (docs/classes.md)."""
import pytest

from support import envelope
from support.relay_peer import Meeting
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.test]

CLASSES = {"submission": {"match": ["sasl_user *"], "weight": 8}, "bulk": {"match": ["all"], "weight": 1}}
BODY = b"Subject: x\r\n\r\nhello\r\n"


def fill(w, peer, count, of_class, name=None, owners=("mx1",)):
    """So many entries in the lane of a class, to name0@, name1@ and so on."""
    name = name or of_class
    entries = [(envelope.entry_id(), envelope.encode([f"{name}{i}@example.net"], size=len(BODY)), BODY) for i in range(count)]
    w.push_everywhere(owners, w.lane(peer, owners, of_class), *entries)


def delivered(peer):
    """The names of what came, in its order, without numbers."""
    return [mail.recipients[0].partition("@")[0].rstrip("0123456789") for mail in list(peer.mails)]


def leased(w, name, node="mx1"):
    return sum(e.state == "leased" and e.envelope["recipients"][0].address.startswith(name) for e in w.entries(node))


def slow(w, **options):
    """A next hop that takes one mail after the other, and waits with the first one until its gate says go on."""
    peer = w.peer(**options)
    peer.say("DOT", gate := Meeting(99), times=1)
    return peer, gate


def blocked(w, peer, gate, count=2000):
    """So much bulk, with all the room there is in hand."""
    fill(w, peer, count, "bulk")
    eventually("the first one waits for its answer", lambda: gate.here == 1)
    eventually("all the room is full", lambda: leased(w, "bulk") == 100)


@pytest.fixture
def classed(world):
    def make(classes=CLASSES, **options):
        return world(nodes=1, relays=("mx1",), destination_concurrency=1, destination_in_flight=100, classes=classes, **options)
    return make


def test_submission_overtakes_bulk_which_goes_on_in_its_share(classed):
    w = classed()
    peer, gate = slow(w)
    blocked(w, peer, gate)
    fill(w, peer, 50, "submission")
    eventually("they are in hand, though bulk has all the room", lambda: leased(w, "submission") == 50)
    gate.met.set()
    w.empty()
    order = delivered(peer)
    assert len(order) == 2050 and order.count("submission") == 50
    last = max(i for i, name in enumerate(order) if name == "submission")
    assert 50 + 5 <= last <= 50 + 8, "after 50 of the heavy class: a light one for 8 of them, and the one on its way"
    assert len({mail.recipients[0] for mail in peer.mails}) == 2050, "each once"


def test_light_mail_does_not_starve(classed):
    """The other way round: submission has all the room, and bulk comes."""
    w = classed()
    peer, gate = slow(w)
    fill(w, peer, 900, "submission")
    eventually("all the room is full", lambda: gate.here == 1 and leased(w, "submission") == 100)
    fill(w, peer, 50, "bulk")
    eventually("some are in hand", lambda: leased(w, "bulk") >= 8)
    gate.met.set()
    w.empty()
    order = delivered(peer)
    assert len(order) == 950
    # One of nine; a TAKE that is under way may leave one class alone for a moment.
    assert order[:540].count("bulk") >= 40 and order[:90].count("bulk") <= 20


def test_mail_without_a_class_weighs_as_much_as_1(classed):
    w = classed()
    peer, gate = slow(w)
    fill(w, peer, 1000, None, "plain")
    eventually("all the room is full", lambda: gate.here == 1 and leased(w, "plain") == 100)
    fill(w, peer, 40, "submission")
    eventually("they are in hand", lambda: leased(w, "submission") == 40)
    gate.met.set()
    w.empty()
    order = delivered(peer)
    assert len(order) == 1040
    assert max(i for i, name in enumerate(order) if name == "submission") <= 46


def test_mail_of_a_class_that_has_no_section_any_more_is_delivered(classed):
    w = classed()
    peer, gate = slow(w)
    fill(w, peer, 300, "bulk")
    eventually("they are in hand", lambda: leased(w, "bulk") == 100)
    w.configure(classes={})
    w.logged("config read again")
    fill(w, peer, 300, "never-known")
    fill(w, peer, 300, None, "plain")
    gate.met.set()
    w.empty()
    order = delivered(peer)
    assert [order.count(name) for name in ("bulk", "never-known", "plain")] == [300, 300, 300]


def test_weights_change_with_the_config(classed):
    w = classed({name: {**section, "weight": 1} for name, section in CLASSES.items()})
    peer, gate = slow(w)
    blocked(w, peer, gate, 1000)
    w.configure(classes=CLASSES)
    w.logged("config read again")
    fill(w, peer, 40, "submission")
    eventually("they are in hand", lambda: leased(w, "submission") == 40)
    gate.met.set()
    w.empty()
    assert max(i for i, name in enumerate(delivered(peer)) if name == "submission") <= 46


def test_a_next_hop_that_goes_away_gives_all_classes_back(classed):
    w = classed()
    peer = w.peer()
    peer.down()
    fill(w, peer, 100, "bulk")
    fill(w, peer, 100, "submission")
    fill(w, peer, 100, None, "plain")
    w.logged(r"next hop smtp:\S+ is away")
    eventually("nothing is in hand", lambda: not any(leased(w, name) for name in ("bulk", "submission", "plain")))
    peer.up()
    w.empty()
    assert len({mail.recipients[0] for mail in peer.mails}) == 300
