"""How the relay speaks to next hops: by the name that the Postfix beside it would say, whatever the kernel calls the host, and with its TLS and its
protocols."""
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.relay_peer import Peer
from support.relay_world import QUICK
from support.stack import SinkShape, Stack
from support.mail import queue_id, send
from support.waiting import eventually
from test_relay_engine import certificates, server  # pylint: disable=unused-import

pytestmark = pytest.mark.long


def on_a_host(service, name, hosts=None):
    """The service runs where the kernel calls the host that, and /etc/hosts has that text."""
    prepare = f"hostname {name}"
    if hosts is not None:
        path = Path(service.cwd) / "hosts"
        path.write_text(hosts)
        prepare += f" && mount --bind {path} /etc/hosts"
    service.argv = ["unshare", "--uts", "--mount", "sh", "-c", f'{prepare} && exec "$@"', "sh", *service.argv]


def greetings(peer):
    return [line.split()[1] for line in peer.seen("^(EHLO|LHLO) ")]


def test_a_strict_next_hop_takes_what_postfix_would_have_delivered():
    """The kernel's name is short, as Debian's is; the next hop wants a full one, as many guides to hardening say."""
    strict = {"smtpd_helo_required": "yes", "smtpd_helo_restrictions": "reject_non_fqdn_helo_hostname"}
    with Stack(postfix="stock", sinks=[SinkShape("strict", ours=True)], postconf=strict) as hop:
        with Stack(postfix="divert", nodes=2, relays=False, maps={"strict.example": f"smtp:[127.0.0.1]:{hop.smtp.rpartition(':')[2]}"}, settings=QUICK) as system:
            for node in ("mx1", "mx2"):
                on_a_host(system[f"relay-{node}"], node)
                system.start(f"relay-{node}")
            eventually("the mail is diverted", lambda: "action=lane" in Path(system["milter"].log).read_text() or send(system, "u@strict.example")[0] != 250)
            _, text = send(system, "last@strict.example")
            journal = Path(hop["sink-strict"].note["journal"])
            eventually("it arrives", lambda: journal.exists() and "last@strict.example" in journal.read_text(), 30)
            log = Path(system["relay-mx1"].log).read_text()
            assert re.search(rf"{queue_id(text)}: to=<last@strict.example>.*status=sent", log) and "status=bounced" not in log
            assert "this host calls itself mx.stack.example to next hops (by " in log and "warning: this host calls itself" not in log


class Named:
    """A relay beside the settings of a Postfix, that need not run, and next hops."""

    def __init__(self, world, tmp_path):
        self.config = tmp_path / "postfix"
        self.config.mkdir()
        self.write()
        self.world = world(nodes=1, relays=(), bounce=True, postfix_config=str(self.config))

    def write(self, main=""):
        self.replace("main.cf", "compatibility_level = 3.6\nmyhostname = mx.site.example\n"
                                f"{main}\n")
        self.replace("master.cf", "smtp unix - - n - - smtp\nrelay unix - - n - - smtp\n"
                                  "lmtp unix - - n - - lmtp\n")

    def replace(self, name, text):
        """At once: a half-written file is another matter."""
        path = self.config / name
        path.with_suffix(".new").write_text(text)
        os.utime(path.with_suffix(".new"), (time.time() - 60,) * 2)  # nobody is writing it any more
        path.with_suffix(".new").rename(path)

    def start(self, *how):
        on_a_host(self.world.relay(), *how)
        self.world.stack.start("relay-mx1")

    def without_postfix(self):
        """Neither its settings nor its programs are there."""
        shutil.rmtree(self.config)
        relay = self.world.relay()
        relay.argv = ["env", "PATH=/none", *relay.argv]

    def says(self, lmtp=False, transport=None):
        """The name in a greeting."""
        peer = self.world.peer(lmtp=lmtp)
        destination = peer.destination if transport is None else peer.destination.replace("smtp:", transport + ":", 1)
        self.world.store(destination, owners=["mx1"])
        eventually("it arrives", lambda: peer.mails)
        return greetings(peer)[0]


@pytest.fixture
def named(world, tmp_path):
    return lambda: Named(world, tmp_path)


def test_each_transport_says_what_its_service_would(named):
    n = named()
    n.write("smtp_helo_name = out.site.example\nlmtp_lhlo_name = in.site.example")
    master = n.config / "master.cf"
    master.write_text(master.read_text().replace("relay unix - - n - - smtp\n", "relay unix - - n - - smtp\n  -o smtp_helo_name=relay.site.example\n"))
    n.start("mx1")
    assert (n.says(), n.says(transport="relay"), n.says(lmtp=True)) == ("out.site.example", "relay.site.example", "in.site.example")
    # What a next hop refuses goes to the port of the own Postfix, under the same name.
    peer = n.world.peer()
    peer.say("RCPT", "550 5.1.1 no")
    n.world.store(peer, owners=["mx1"])
    eventually("it bounces", lambda: n.world.bounce.mails)
    assert greetings(n.world.bounce) == ["out.site.example"]


def comes_from(n, lmtp=False):
    peer = n.world.peer(lmtp=lmtp)
    n.world.store(peer, owners=["mx1"])
    eventually("it arrives", lambda: peer.mails)
    return peer.clients[-1][0]


def own_addresses():
    """Of this host, beside loopback ones: one of IPv4, or none."""
    run = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=False)
    found = [address["local"] for link in json.loads(run.stdout or "[]")
             for address in link["addr_info"] if address["scope"] == "global"]
    return found[:1]


def read_again(n, main, turn=itertools.count()):
    name = f"turn{next(turn)}.site.example"
    n.write(f"{main}\nsmtp_helo_name = {name}")
    n.world.relay().send(signal.SIGHUP)
    n.world.logged(f"this host calls itself {name}")


def test_the_relay_connects_from_the_address_that_postfix_would_take(named):
    n = named()
    n.write("smtp_bind_address = 127.0.0.3")
    n.start("mx1")
    assert (comes_from(n), comes_from(n, lmtp=True)) == ("127.0.0.3", "127.0.0.1")
    # One address alone is a virtual host's; but smtp(8) takes no loopback one unasked.
    read_again(n, "inet_interfaces = 127.0.0.1\nlmtp_bind_address = [127.0.0.5]")
    assert (comes_from(n), comes_from(n, lmtp=True)) == ("127.0.0.1", "127.0.0.5")
    for own in own_addresses():
        read_again(n, f"inet_interfaces = {own}\nlmtp_bind_address = 127.0.0.6")
        assert (comes_from(n), comes_from(n, lmtp=True)) == (own, "127.0.0.6")
        read_again(n, f"inet_interfaces = {own}, 127.0.0.1")
        assert comes_from(n) == "127.0.0.1"
    # Not this host's: Postfix warns and connects all the same, or not at all.
    read_again(n, "smtp_bind_address = 192.0.2.77")
    assert comes_from(n) == "127.0.0.1"
    n.world.logged(r"warning: .*cannot connect from 192\.0\.2\.77 \(smtp_bind_address")
    read_again(n, "lmtp_bind_address = 192.0.2.77\nlmtp_bind_address_enforce = yes")
    assert comes_from(n) == "127.0.0.1"
    peer = n.world.peer(lmtp=True)
    n.world.store(peer, owners=["mx1"])
    n.world.logged(r"is away: connect to .*: Cannot assign requested address")
    assert not peer.clients


def test_a_source_that_is_no_address_of_the_family(named):
    n = named()
    n.write("smtp_bind_address = ::1\nlmtp_bind_address = [127.0.0.5]")
    n.start("mx1")
    # smtp(8) warns, and connects all the same.
    assert (comes_from(n), comes_from(n, lmtp=True)) == ("127.0.0.1", "127.0.0.5")
    n.world.logged(r"warning: .*cannot connect from ::1 \(smtp_bind_address")
    for text in ("lmtp_bind_address = ::1\nlmtp_bind_address_enforce = yes", "lmtp_bind_address = mx1.site.example"):
        read_again(n, text)
        assert comes_from(n) == "127.0.0.1"
        peer = n.world.peer(lmtp=True)
        n.world.store(peer, owners=["mx1"])
        n.world.logged(rf"is away: connect to .*\[127\.0\.0\.1\]:{peer.destination.rpartition(':')[2]}: Invalid argument")
        assert not peer.clients
    # The same address twice is one.
    for own in own_addresses():
        read_again(n, f"inet_interfaces = {own}, [{own}]")
        assert comes_from(n) == own


def test_a_reload_reads_it_again(named):
    n = named()
    n.start("mx1")
    assert n.says() == "mx.site.example"
    n.write("smtp_helo_name = new.site.example")
    n.world.relay().send(signal.SIGHUP)
    n.world.logged(r"this host calls itself new\.site\.example to next hops \(by .*/postfix/main\.cf\)")
    assert n.says() == "new.site.example"
    n.world.configure(host_name="own.site.example")
    n.world.logged(r"this host calls itself own\.site\.example to next hops \(by host_name\)")
    assert n.says() == "own.site.example"
    # What runs beside the loop has not ended it, and its children are waited for by nobody else.
    assert n.world.relay().alive()


def test_settings_that_cannot_be_read_change_nothing(named):
    """An editor writes the file, or somebody mistyped."""
    n = named()
    n.write("smtp_bind_address = 127.0.0.3")
    n.start("mx1")
    n.world.logged("this host calls itself mx.site.example")
    good = (n.config / "main.cf").read_text()
    n.replace("main.cf", good + "smtp_bind_address = ${broken\n")
    n.world.logged("Postfix's settings for next hops cannot be read, the older ones stay: .*")
    assert (n.says(), comes_from(n)) == ("mx.site.example", "127.0.0.3")
    n.replace("main.cf", good.replace("127.0.0.3", "127.0.0.4").replace("mx.", "mx2."))
    n.world.logged("this host calls itself mx2.site.example")
    assert comes_from(n) == "127.0.0.4"


@pytest.mark.parametrize("main", ["gone", "a link to nothing", "a directory"])
def test_a_main_cf_that_is_away_while_it_is_edited_changes_nothing(named, main):
    """Nothing goes out without the TLS that it asks for, nor with a name that only the kernel has."""
    n = named()
    n.write("smtp_tls_security_level = encrypt")
    n.start("mx1", "127.0.0.1 localhost\n127.0.1.1 mx1.made-up.example mx1\n")
    n.world.logged("this host calls itself mx.site.example")
    kept = (n.config / "main.cf").rename(n.config / "main.cf.kept")
    if main == "a link to nothing":
        (n.config / "main.cf").symlink_to("nowhere")
    elif main == "a directory":
        (n.config / "main.cf").mkdir()
    n.world.logged("Postfix's settings for next hops cannot be read, the older ones stay: .*")
    bare = n.world.peer()
    n.world.store(bare, owners=["mx1"])
    n.world.logged("TLS is required")
    assert set(greetings(bare)) == {"mx.site.example"} and not bare.mails
    if main == "a directory":
        (n.config / "main.cf").rmdir()
    kept.rename(n.config / "main.cf")
    n.write("smtp_tls_security_level = may")
    eventually("it arrives", lambda: bare.mails)


def test_before_the_settings_were_read_no_mail_is_sent(named):
    n = named()
    good = (n.config / "main.cf").read_text()
    n.replace("main.cf", good + "smtp_bind_address = ${broken\n")
    n.start("mx1")
    peer = n.world.peer()
    n.world.store(peer, owners=["mx1"])
    why = "Postfix's settings for next hops cannot be read"
    n.world.logged(f"{why}, and no mail is sent to any: postconf .*broken")
    n.world.logged(f"is away: {why}: postconf .*broken")
    assert not peer.clients
    n.replace("main.cf", good)
    eventually("it arrives", lambda: peer.mails)
    assert greetings(peer) == ["mx.site.example"]


def test_a_short_name_of_postfix_is_kept_with_a_warning(named):
    n = named()
    n.write("myhostname = mx1")
    n.start("mx1")
    assert n.says() == "mx1"
    warning, = n.world.logged(r"warning: this host calls itself mx1 .*")
    assert "host_name = " in warning and "myhostname" in warning


def test_without_postfix_the_resolver_is_asked(named):
    n = named()
    n.without_postfix()
    n.start("mx1", "127.0.0.1 localhost\n127.0.1.1 mx1.site.example mx1\n")
    assert n.says() == "mx1.site.example"
    assert n.world.count("warning: this host calls itself") == 0


def test_what_has_no_full_name_is_warned_about_once(named):
    n = named()
    n.without_postfix()
    n.start("mx1", "127.0.0.1 localhost.localdomain localhost mx1\n")
    assert n.says() == "mx1"
    n.world.relay().send(signal.SIGHUP)
    n.world.logged("config read again")
    n.world.configure(log_level="info")
    n.world.logged("config read again", times=2)
    warning, = n.world.logged(r"warning: this host calls itself .*")
    assert "host_name" in warning


def test_the_proxy_says_postfixs_name_too():
    """It stands in the Received line of what goes on to proxy_next."""
    peer = Peer()
    with Stack(postfix="proxy", nodes=1, maps={"plain.example": peer.destination}, divert=[]) as system:
        system.end("proxy")
        on_a_host(system["proxy"], "mx1")
        system.start("proxy")
        assert send(system, "u@plain.example")[0] == 250
        eventually("it arrives", lambda: peer.mails)
        assert re.search(rb"(?m)^Received: from mx\.stack\.example ", peer.bodies()[0]), peer.bodies()[0]
    peer.end()


# ---- and how else the relay speaks: as the smtp(8) beside it ----

def test_tls_is_as_postfix_has_it_and_a_change_is_seen_without_a_reload(named, certificates):
    n = named()
    n.write("smtp_tls_security_level = may")
    n.start("mx1")
    peer = n.world.peer(tls=server(certificates))
    n.world.store(peer, owners=["mx1"])
    eventually("it arrives", lambda: peer.mails)
    assert peer.seen("STARTTLS")
    plain = n.world.peer()
    n.world.store(plain, owners=["mx1"])
    eventually("where it is not offered, without", lambda: plain.mails)
    n.write("smtp_tls_security_level = encrypt")
    n.world.logged(r"Postfix's settings for next hops read again", times=1)
    bare = n.world.peer()
    n.world.store(bare, owners=["mx1"])
    n.world.logged(r"TLS is required")
    assert not bare.mails


def test_a_section_says_otherwise(world, tmp_path, certificates):
    config = tmp_path / "postfix"
    config.mkdir()
    (config / "main.cf").write_text("compatibility_level = 3.6\nmyhostname = mx.site.example\nsmtp_tls_security_level = may\n")
    (config / "master.cf").write_text("smtp unix - - n - - smtp\n")
    w = world(nodes=1, postfix_config=str(config), destinations={"*": {"tls": "none"}})
    peer = w.peer(tls=server(certificates))
    w.store(peer, owners=["mx1"])
    eventually("it arrives", lambda: peer.mails)
    assert not peer.seen("STARTTLS")


def test_the_protocols_are_postfixs(named):
    n = named()
    n.write("inet_protocols = ipv6")
    n.start("mx1")
    peer = n.world.peer()
    n.world.store(peer, owners=["mx1"])
    n.world.logged("the next hop has no address of inet_protocols")
    assert not peer.mails
    n.write("inet_protocols = ipv4")
    eventually("it arrives after the change", lambda: peer.mails, 60)
