"""Mail that goes in circles: it ends, its sender hears of it once, and nothing of it stays in a lane."""
import re
import signal
from pathlib import Path

from support import admin
import pytest
from support import envelope

from support.relay_world import QUICK
from support.stack import SinkShape, Stack, lanes, resp
from support.stack.programs import listed
from support.mail import postqueue, send
from support.waiting import eventually

pytestmark = pytest.mark.long

LOOPING = b"".join(b"Received: from x by y; round %d\r\n" % number for number in range(60)) + b"Subject: round and round\r\n\r\nhello\r\n"
SETTINGS = {**QUICK, "revoke_wait": "200ms"}


def host(next_hop="smtp:[127.0.0.1]:9"):
    """A gateway that relays loop.example to that next hop, with a mailbox for senders."""
    return Stack(postfix="divert", nodes=2, sinks=[SinkShape("sender", ours=True)], maps={"loop.example": next_hop}, settings=SETTINGS)


def port(system):
    return f"smtp:[127.0.0.1]:{system.smtp.rpartition(':')[2]}"


def point(system, destination):
    """loop.example goes there from now on."""
    system.domains["loop.example"] = destination
    mta = system["postfix"]
    Path(mta.note["transport"]).write_text("".join(f"{domain} {hop}\n" for domain, hop in system.domains.items()))
    mta.reload()
    system.configure(divert=listed(sorted(set(system.domains.values()))))
    system.restart("milter")
    for node in ("mx1", "mx2"):
        system[f"relay-{node}"].send(signal.SIGHUP)


def journal(system):
    path = Path(system["sink-sender"].note["journal"])
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def empty(*systems):
    for system in systems:
        eventually("the lanes are empty", lambda system=system: not any(lanes.length(address) for address in system.nodes.values()))
        eventually("Postfix's queue is empty", lambda system=system: not postqueue(system))


def logs(system, *names):
    return "".join(Path(system[name].log).read_text() for name in names or ("relay-mx1", "relay-mx2"))


def old_lines(system):
    """master.cf as version 0.1.0 had it: the limits of port 25 are those of all ports."""
    mta = system["postfix"]
    path = Path(mta.note["config_directory"]) / "master.cf"
    good = path.read_text()
    path.write_text(good.replace("    -o hopcount_limit=1000\n", ""))
    mta.reload()
    return path, good


def store(system, recipient="u@loop.example"):
    """A mail with sixty Received lines in a lane of mx1 and mx2."""
    meta = envelope.encode([recipient], size=len(LOOPING), sender="s@sender.example")
    name = envelope.entry_id()
    for node in ("mx2", "mx1"):
        with resp.Connection(system.nodes[node]) as redis:
            redis.call("LANE.PUSH", 1, f"dovelane:{system.domains['loop.example']}|mx1>mx2", "ENTRIES", 1, 1, name, meta, LOOPING)


def test_two_hosts_that_send_it_to_each_other():
    with host() as one, host() as two:
        point(one, port(two))
        point(two, port(one))
        eventually("it is diverted", lambda: "action=lane" in logs(one, "milter") or send(one, "probe@loop.example", sender="")[0] != 250)
        code, _ = send(one, "u@loop.example", sender="s@sender.example")
        assert code == 250
        eventually("its sender hears of it", lambda: [line for system in (one, two) for line in journal(system)], 120)
        empty(one, two)
        said, = [line for system in (one, two) for line in journal(system)]
        assert said[3] in ("s@sender.example", "u@loop.example"), said
        assert len(re.findall(r"status=bounced \(.*too many hops", logs(one) + logs(two))) >= 1
        assert "did not take it" not in logs(one) + logs(two)
        # It went round until port 25 had enough of it, and not longer.
        assert 20 < len(re.findall(r"to=<u@loop\.example>.*status=sent", logs(one) + logs(two))) <= 50


def test_draining_takes_it_to_postfix():
    with host() as system:
        store(system)
        drained = admin.run(system, "drain", "--to-postfix", timeout=120)
        assert drained.status == 0 and "the lanes are empty" in drained.out, drained
        item, = postqueue(system)
        assert item["sender"] == "s@sender.example"


def test_old_lines_of_the_port_for_what_comes_back_are_named_too():
    with host() as system:
        path, good = old_lines(system)
        store(system)
        assert admin.run(system, "requeue", "--all", "--yes").status == 0
        warning = eventually("it is refused", lambda: re.search(r"warning: .*reinject_port did not take it .*too many hops.*", logs(system)))
        assert "Add -o hopcount_limit=1000" in warning[0]
        path.write_text(good)
        system["postfix"].reload()
        system.restart("relay-mx1")  # else it asks again only after a while
        eventually("Postfix has it", lambda: postqueue(system))
        eventually("the lanes are empty", lambda: not any(lanes.length(address) for address in system.nodes.values()))


def test_old_lines_are_named_with_their_cure():
    """On a host whose master.cf has no such limit the mail stays, and the log says what to add; then it bounces."""
    with host() as system:
        path, good = old_lines(system)
        point(system, port(system))  # its own port 25: too many hops at once
        store(system)
        warning = eventually("it is refused", lambda: re.search(r"warning: .*the bounce port did not take it .*too many hops.*", logs(system)))
        assert "Add -o hopcount_limit=1000 to that port's smtpd, and to a cleanup service of its own" in warning[0]
        assert not journal(system)
        path.write_text(good)
        system["postfix"].reload()
        eventually("its sender hears of it", lambda: journal(system))
        empty(system)
        assert len(journal(system)) == 1


def test_raised_limits_make_no_loop_of_their_own():
    """The worst slip: a next hop that is the port for mail that comes back. It has a limit, too."""
    with host() as system:
        point(system, "smtp:[127.0.0.1]:" + system["postfix"].note["reinject"].rpartition(":")[2])
        store(system)
        eventually("its sender hears of it", lambda: journal(system), 240)
        empty(system)
        assert len(journal(system)) == 1
        assert len(re.findall(r"to=<u@loop\.example>", logs(system, "postfix"))) <= 1000
