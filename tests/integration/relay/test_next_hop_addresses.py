"""A next hop with more than one address, one whose address changes, and a list while its hosts and
the fallback relay of Postfix come and go: of a relay beside the settings of a Postfix that does not
run."""
import re
import socket
import threading
from pathlib import Path

import pytest

from support.relay_peer import HANG, Meeting, Peer
from support.waiting import eventually
from test_naming import Named

pytestmark = pytest.mark.long

LATER = "450 4.2.0 later"
LONG = {"retry_first": "60s", "retry_most": "60s"}


class At(Peer):
    """At another address of this host."""

    def __init__(self, address, **options):
        self.address = address
        super().__init__(**options)

    def up(self):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.address, self.port))
        self.port = self.listener.getsockname()[1]
        self.listener.listen(128)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()


def at(world, *addresses):
    """Peers at one port of these addresses."""
    peers = [At(addresses[0])]
    peers += [At(address, port=peers[0].port) for address in addresses[1:]]
    world.peers += peers
    return peers


@pytest.fixture
def named(world, tmp_path):
    return Named(world, tmp_path)


def arrived(peer, recipient):
    return sum(recipient in mail.recipients for mail in list(peer.mails))


TWINS = "127.0.0.2 twin.example\n127.0.0.3 twin.example\n"


def test_what_one_address_defers_is_tried_at_the_other(named):
    named.start("mx1", TWINS)
    named.world.configure(**LONG)
    first, second = at(named.world, "127.0.0.2", "127.0.0.3")
    hop = f"smtp:[twin.example]:{first.port}"
    for n, (deferring, other) in enumerate(((first, second), (second, first))):
        first.well()
        second.well()
        deferring.say("RCPT", LATER)
        named.world.store(hop, f"{n}@x.example", owners=["mx1"])
        eventually("it arrives at the other", lambda: arrived(other, f"{n}@x.example"))


@pytest.mark.parametrize("limit, asked", [("2", 2), ("1", 1), ("0", 2)])
def test_so_many_sessions_as_postfix_would_have(named, limit, asked):
    named.write(f"smtp_mx_session_limit = {limit}")
    named.start("mx1", TWINS)
    named.world.configure(**LONG)
    peers = at(named.world, "127.0.0.2", "127.0.0.3")
    for peer in peers:
        peer.say("RCPT", LATER)
    named.world.store(f"smtp:[twin.example]:{peers[0].port}", "b@x.example", owners=["mx1"])
    line, = named.world.logged("to=<b@x.example>.*status=deferred.*")
    assert "relay=twin.example[127.0.0." in line and "450 4.2.0 later" in line
    assert sum(len(peer.seen("^RCPT")) for peer in peers) == asked


def test_a_next_hop_whose_address_changed_is_reached_at_the_new_one(named):
    named.start("mx1", "127.0.0.2 moving.example\n")
    before, after = at(named.world, "127.0.0.2", "127.0.0.3")
    hop = f"smtp:[moving.example]:{before.port}"
    named.world.store(hop, "a@x.example", owners=["mx1"])
    eventually("it arrives", lambda: arrived(before, "a@x.example"))
    before.down()
    named.world.peers.remove(before)
    (Path(named.world.relay().cwd) / "hosts").write_text("127.0.0.3 moving.example\n")
    named.world.store(hop, "b@x.example", owners=["mx1"])
    eventually("it arrives at the new address", lambda: arrived(after, "b@x.example"))
    assert named.world.relay().alive()


def test_a_host_of_a_list_that_is_back_is_the_first_again(named):
    named.start("mx1")
    first, second = named.world.peer(), named.world.peer()
    hop = f"smtp:{first.hop},{second.hop}"
    first.down()
    for n in range(5):
        named.world.store(hop, f"{n}@x.example", owners=["mx1"])
    eventually("the second has them", lambda: len(second.mails) == 5)
    named.world.logged(re.escape(f"next hop smtp:{first.hop} of {hop} is away: "))
    assert not named.world.count("status=deferred")
    first.up()

    def sent():
        named.world.store(hop, "new@x.example", owners=["mx1"])
        return arrived(first, "new@x.example")
    eventually("the first has new mail", sent)


def test_a_list_that_is_away_is_away(named):
    named.start("mx1")
    first, second = named.world.peer(), named.world.peer()
    for peer in (first, second):
        peer.down()
    named.world.store(f"smtp:{first.hop},{second.hop}", "b@x.example", owners=["mx1"])
    named.world.logged(r"to=<b@x.example>, relay=none.*status=deferred \(connect to "
                       rf"127.0.0.1\[127.0.0.1\]:{second.port}: ")
    second.up()
    eventually("it arrives", lambda: arrived(second, "b@x.example"))
    first.up()


def test_a_fallback_relay_counts_as_soon_as_main_cf_has_it(named):
    named.start("mx1")
    first, fallback = named.world.peer(), named.world.peer()
    first.down()
    named.world.store(f"smtp:{first.hop}", "a@x.example", owners=["mx1"])
    named.world.logged("to=<a@x.example>.*status=deferred")
    named.write(f"smtp_fallback_relay = {fallback.hop}")
    eventually("it arrives at the fallback relay", lambda: arrived(fallback, "a@x.example"))
    named.write("smtp_helo_name = back.site.example")
    named.world.logged("this host calls itself back.site.example")
    named.world.store(f"smtp:{first.hop}", "b@x.example", owners=["mx1"])
    first.up()  # until then the mail is deferred, or waits in its lane: its only host is away
    eventually("it arrives", lambda: arrived(first, "b@x.example"))
    assert not arrived(fallback, "b@x.example")


def test_a_relay_that_dies_between_two_hosts_repeats_nothing(named):
    named.start("mx1")
    first, second = named.world.peer(), named.world.peer()
    first.say("RCPT", LATER, match="late@")
    second.say("RCPT", HANG)
    named.world.store(f"smtp:{first.hop},{second.hop}", "soon@x.example", "late@x.example",
                      owners=["mx1"])
    eventually("the second is asked", lambda: second.seen("^RCPT"))
    named.world.relay().kill()
    second.well()
    named.world.stack.start("relay-mx1")
    eventually("it arrives", lambda: arrived(second, "late@x.example"))
    named.world.empty("mx1")
    assert (arrived(first, "soon@x.example"), arrived(second, "soon@x.example")) == (1, 0)
    assert not arrived(first, "late@x.example")


def test_a_long_list_of_names_leaves_room_for_the_fallback_relay(named):
    fallback = named.world.peer()
    hosts = [f"h{n}.example" for n in range(32)]
    named.write(f"smtp_fallback_relay = {fallback.hop}")
    named.start("mx1", "".join(f"127.0.1.{n} {host}\n" for n, host in enumerate(hosts, 1)))
    hop = "smtp:" + ",".join(f"[{host}]:1" for host in hosts)
    named.world.store(hop, "a@x.example", owners=["mx1"])
    eventually("the fallback relay has it", lambda: arrived(fallback, "a@x.example"))


def test_a_list_does_not_wait_for_the_proof_that_its_first_host_is_back(named):
    named.start("mx1")
    named.world.configure(smtp_rcpt_timeout="300s")
    named.world.logged("config read again")
    first, second = named.world.peer(), named.world.peer()
    hop = f"smtp:{first.hop},{second.hop}"
    first.down()
    named.world.store(hop, "0@x.example", owners=["mx1"])
    named.world.logged("next hop smtp:.* is away")
    first.say("RCPT", gate := Meeting(99))
    first.up()
    sent = []

    def store():
        sent.append(f"{len(sent) + 1}@x.example")
        named.world.store(hop, sent[-1], owners=["mx1"])

    def tried():
        store()
        return gate.here
    eventually("the first has one", tried)
    for n in range(30):
        store()

    def left():
        return [each for each in sent if not arrived(second, each)]
    eventually("the second has the others", lambda: len(left()) == 1)
    assert gate.here == 1
    proof, = left()
    gate.met.set()
    eventually("it is back", lambda: arrived(first, proof))
    named.world.store(hop, "new@x.example", owners=["mx1"])
    eventually("it has the next one", lambda: arrived(first, "new@x.example"))


def test_a_name_is_looked_up_again_behind_a_dead_first_address(named):
    named.start("mx1", "127.0.0.2 moving.example\n127.0.0.3 moving.example\n")
    named.world.configure(connection_idle="0s", smtp_rcpt_timeout="300s")
    named.world.logged("config read again")
    peers = at(named.world, "127.0.0.2", "127.0.0.3", "127.0.0.4")
    new, hop = peers[2], f"smtp:[moving.example]:{peers[0].port}"
    named.world.store(hop, "a@x.example", owners=["mx1"])
    eventually("it arrives", lambda: peers[0].mails or peers[1].mails)
    first, second = peers[:2] if peers[0].mails else peers[1::-1]
    first.down()
    named.world.peers.remove(first)
    second.say("RCPT", HANG, match="waits@")
    named.world.store(hop, "waits@x.example", owners=["mx1"])
    eventually("one is in flight", lambda: second.seen("^RCPT"))
    named.world.store(hop, "b@x.example", owners=["mx1"])
    eventually("it arrives", lambda: arrived(second, "b@x.example"))
    (Path(named.world.relay().cwd) / "hosts").write_text("127.0.0.4 moving.example\n")

    def moved():
        named.world.store(hop, "c@x.example", owners=["mx1"])
        return arrived(new, "c@x.example")
    eventually("it goes to the new address", moved, 200, 1)


def test_mail_for_many_is_soon_through_a_long_list(named):
    """Each of 62 addresses is asked for by each recipient: that must cost next to nothing."""
    last, hosts = named.world.peer(), [f"h{n}.example" for n in range(31)]
    named.start("mx1", "".join(f"127.0.1.{n} {host}\n127.0.2.{n} {host}\n"
                               for n, host in enumerate(hosts, 1)))
    hop = "smtp:" + ",".join([*(f"[{host}]:1" for host in hosts), last.hop])
    for n in range(20):
        named.world.store(hop, *(f"{n}-{each}@x.example" for each in range(100)), owners=["mx1"])
    eventually("the last has them", lambda: len(last.mails) == 20)
