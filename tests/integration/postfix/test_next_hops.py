"""Next hops that are lists of hosts, and fallback relays: each host is tried after the one before,
as smtp(8) and lmtp(8) of the Postfix beside it do. Each case goes both ways."""
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import admin
from support.relay_peer import CLOSE, Peer
from support.relay_world import QUICK
from support.waiting import eventually
from support.stack import Stack
from test_disk_first import line_of
from support.mail import send

pytestmark = pytest.mark.long

LATER = "450 4.2.0 later"
NO = "550 5.1.1 no"
DOWN = "down"
# What the hosts say: {verb: answer} of each, or DOWN.
CASES = {
    "well": ({}, {}),
    "first-down": (DOWN, {}),
    "first-greets-421": ({"CONNECT": "421 4.3.2 not now"}, {}),
    "first-greets-554": ({"CONNECT": "554 5.3.2 not you"}, {}),
    "first-hangs-up-at-once": ({"CONNECT": CLOSE}, {}),
    "first-knows-no-hello": ({"EHLO": "502 5.5.1 what", "HELO": "451 4.3.0 later"}, {}),
    "first-defers-sender": ({"MAIL": LATER}, {}),
    "first-refuses-sender": ({"MAIL": NO}, {}),
    "first-defers-all": ({"RCPT": LATER}, {}),
    "first-defers-one": ({"RCPT late": LATER}, {}),
    "first-refuses-one": ({"RCPT late": NO}, {}),
    "first-defers-data": ({"DATA": LATER}, {}),
    "first-defers-message": ({"DOT": LATER}, {}),
    "first-refuses-message": ({"DOT": NO}, {}),
    "first-leaves-at-mail": ({"MAIL": CLOSE}, {}),
    "first-leaves-at-dot": ({"DOT": CLOSE}, {}),
    "first-down-second-refuses": (DOWN, {"RCPT": NO}),
    "first-defers-second-refuses-one": ({"RCPT": LATER}, {"RCPT late": NO}),
    "both-defer": ({"RCPT": LATER}, {"RCPT": LATER}),
    "first-defers-second-down": ({"RCPT": LATER}, DOWN),
    "both-down": (DOWN, DOWN),
}
# By which next hop: a list, a list with a port by name and blanks alone, one host; all that is
# deferred goes to the fallback relay, of SMTP.
KINDS = {"list": ("smtp", "[127.0.0.1]:{0}, [127.0.0.1]:{1}"),
         "blanks": ("relay", "[127.0.0.1]:{0} [127.0.0.1]:{1}"),
         "lmtp": ("lmtp", "inet:127.0.0.1:{0},127.0.0.1:{1}"),
         "one": ("smtp", "[127.0.0.1]:{0}")}
ROWS = [(kind, case) for kind in KINDS for case, hosts in CASES.items()
        if (kind != "one" or hosts[1] == {}) and (kind != "blanks" or case in list(CASES)[:2])
        and not (kind == "lmtp" and case == "first-knows-no-hello")]


class Row:
    def __init__(self, kind, case):
        transport, text = KINDS[kind]
        self.kind, self.case, self.domain = kind, case, f"{kind}-{case}.example"
        self.hosts = [Peer(lmtp=kind == "lmtp") for _ in range(2)]
        for host, said in zip(self.hosts, CASES[case]):
            if said == DOWN:
                host.down()
                continue
            for verb, answer in said.items():
                verb, _, match = verb.partition(" ")
                host.say(verb, answer, match=match)
        self.destination = f"{transport}:" + text.format(*(host.port for host in self.hosts))


class World:
    def __init__(self):
        self.rows = {(kind, case): Row(kind, case) for kind, case in ROWS}
        self.fallback = Peer()
        settings = QUICK | {"retry_first": "60s", "retry_most": "60s"}
        postconf = {"smtp_fallback_relay": f"[127.0.0.1]:{self.fallback.port}",
                    "minimal_backoff_time": "600s", "maximal_backoff_time": "600s"}
        self.system = Stack(postfix="divert", nodes=1, settings=settings, postconf=postconf,
                            maps={row.domain: row.destination for row in self.rows.values()}).up()
        self.add_stock_port()
        eventually("the milter diverts", lambda: self.diverts(("list", "well")))

    def add_stock_port(self):
        note = self.system["postfix"].note
        self.stock = f"127.0.0.1:{self.system.ports.take()}"
        master = Path(note["config_directory"]) / "master.cf"
        more = f"{self.stock} inet n - n - - smtpd\n    -o smtpd_milters=\n"
        master.write_text(master.read_text() + more)
        os.utime(master, (time.time() - 60,) * 2)
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True,
                       timeout=120)

    def diverts(self, which):
        text = send(self.system, f"probe@{self.rows[which].domain}")[1]
        return "action=lane" in line_of(self.system, text)

    def end(self):
        self.system.down()
        for peer in [self.fallback, *(host for row in self.rows.values() for host in row.hosts)]:
            try:
                peer.end()
            except OSError:
                pass    # is down already

    def outcome(self, row, way):
        """{recipient: (status, which host took it)} of one mail."""
        recipients = [f"{way}-{name}@{row.domain}" for name in ("soon", "late")]
        log = Path(self.system["postfix" if way == "stock" else "relay-mx1"].log)

        class Way:
            smtp = self.stock if way == "stock" else self.system.smtp
        text = send(Way, *recipients)[1]
        if way == "ours":
            assert "action=lane" in line_of(self.system, text), line_of(self.system, text)

        def statuses():
            found = re.findall(r"to=<(\S+)>,.* status=(\w+) ", log.read_text(errors="replace"))
            return {to: status for to, status in found if to in recipients}
        eventually(f"{recipients} have results", lambda: len(statuses()) == 2)
        hosts = {"first": row.hosts[0], "second": row.hosts[1], "fallback": self.fallback}
        took = {to: [name for name, peer in hosts.items() for mail in list(peer.mails)
                     if any(to in each for each in mail.recipients)] for to in recipients}
        return {to.partition("-")[2]: (statuses()[to], took[to]) for to in recipients}


@pytest.fixture(scope="module")
def world():
    made = World()
    yield made
    made.end()


@pytest.mark.parametrize("kind, case", ROWS)
def test_a_mail_goes_where_postfix_would_have_it_go(world, kind, case):
    row, said = world.rows[kind, case], {}

    def run(way):
        said[way] = world.outcome(row, way)
    ways = [threading.Thread(target=run, args=(way,)) for way in ("stock", "ours")]
    for way in ways:
        way.start()
    for way in ways:
        way.join()
    assert set(said) == {"stock", "ours"} and said["stock"] == said["ours"], said


@pytest.mark.parametrize("kind", ["list", "blanks", "lmtp"])
def test_route_shows_the_list_as_divert_has_it(world, kind):
    row = world.rows[kind, "well"]
    said = admin.run(world.system, "route", f"x@{row.domain}").out
    spelled = row.destination.replace(", ", ",").replace(" ", ",")
    assert re.search(rf"next hop +{re.escape(spelled)}\n +diverted +yes", said), said
