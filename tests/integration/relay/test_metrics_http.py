"""metrics_listen: what a scraper sees is true, and nobody who connects there holds up mail."""

import signal
import socket
import threading
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from support.relay_peer import HANG
from support.waiting import eventually
from support.stack import programs, secure
from support.stack.scrape import OPENMETRICS, Page, promtool

pytestmark = pytest.mark.test


@pytest.fixture
def page():
    fresh = Page("relay")
    yield fresh
    fresh.close()


@pytest.fixture
def relay(world, page):
    """A relay with such a page, and what else its settings say."""

    def make(**settings):
        w = world(relays=("mx1",), metrics_listen=page.listen, **settings)
        return w

    return make


def served(page, **options):
    eventually("the port is served", lambda: page.ask(**options))


def descriptors(w):
    return len(list(Path(f"/proc/{w.stack['relay-mx1'].process.pid}/fd").iterdir()))


@pytest.mark.check
def test_what_is_delivered_is_counted(relay, page):
    w = relay()
    served(page)
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 not now", times=1)
    names = [w.store(peer) for _ in range(20)]
    w.empty()
    assert len(peer.mails) == len(names)
    hop = f'nexthop="{peer.destination}"'
    eventually("all are counted", lambda: page.values().get(f"lane_seconds_count{{{hop}}}") == 20)
    seen = page.values()
    assert seen[f'deliveries_total{{{hop},result="sent"}}'] == 20 == seen["relay_sent_total"]
    assert (
        seen[f'deliveries_total{{{hop},result="deferred"}}']
        == 1
        == seen[f'deferrals_total{{{hop},reason="4.2.0"}}']
    )
    assert seen[f'delivery_seconds_count{{{hop},phase="transfer"}}'] == 21
    assert seen[f'delivery_seconds_bucket{{{hop},phase="transfer",le="+Inf"}}'] == 21
    assert seen[f'delivery_seconds_count{{{hop},phase="lane"}}'] == 20
    eventually(
        "the node's memory", lambda: page.values().get('node_memory_bytes{node="mx1"}', 0) > 0
    )
    classic = page.ask()
    assert classic[1]["Content-Type"].startswith("text/plain; version=0.0.4")
    assert promtool(classic[2]) == ""
    modern = page.ask(Accept=f"{OPENMETRICS},text/plain;q=0.5")
    assert modern[1]["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics(modern[2])}
    assert (
        families["dovelane_lane_seconds"].unit == "seconds"
        and families["dovelane_deliveries"].type == "counter"
    )
    assert {name for name in families} == {
        family.name for family in openmetrics(page.text(Accept=OPENMETRICS))
    }


def test_what_waits_in_lanes_is_told(relay, page):
    w = relay(destination_concurrency=1)
    served(page)
    peer = w.peer()
    peer.say("DOT", HANG, times=1)
    for _ in range(5):
        w.store(peer)
    hop = f'nexthop="{peer.destination}"'
    eventually("five", lambda: page.values().get(f"lane_entries{{{hop}}}") == 5)
    seen = page.values()
    assert seen["node_entries"] == 5 and seen[f"lane_bytes{{{hop}}}"] == seen["node_bytes"] > 0
    assert 0 < seen[f"lane_oldest_seconds{{{hop}}}"] < 100
    away = w.peer()
    away.end()
    w.peers.remove(away)
    w.store(away)
    down = f'nexthop_down{{nexthop="{away.destination}",reason="4.4.1"}}'
    eventually("it is away", lambda: page.values().get(down) == 1)
    assert page.values()[f'lane_entries{{nexthop="{away.destination}"}}'] == 1


def test_why_mail_waits_is_told(relay, page):
    """By the status code; of more than a thousand entries the rest is unread."""
    w = relay(retry_first="1h", retry_most="1h", destination_in_flight=2000)
    served(page)
    peer, full = w.peer(), w.peer(lmtp=True)
    peer.say("RCPT", "450 4.2.2 full", match="full@")
    peer.say("RCPT", "451 4.7.1 grey", match="grey@")
    full.say("RCPT", "452 4.3.1 no room")
    for to in ("full@example.net", "grey@example.net", "grey@example.net"):
        w.store(peer, to)
    hop = f'nexthop="{peer.destination}"'

    def told(page, hop):
        start = f"lane_deferred_reason_entries{{{hop},reason="
        found = {k[len(start) + 1 : -2]: v for k, v in page.values().items() if k.startswith(start)}
        return {reason: n for reason, n in found.items() if n}

    eventually("both reasons", lambda: told(page, hop) == {"4.2.2": 1, "4.7.1": 2})
    for _ in range(1100):
        w.store(full)
    hop = f'nexthop="{full.destination}"'
    eventually(
        lambda: f"all are told: {told(page, hop)}",
        lambda: sum(told(page, hop).values()) == 1100 and 0 < told(page, hop)["unread"] < 1100,
    )


def test_a_node_that_is_away_has_no_memory_to_tell(relay, page):
    """What it had when it was heard last would keep an alert firing, or keep one from it."""
    w = relay()
    served(page)
    eventually("both", lambda: page.values().get('node_memory_bytes{node="mx2"}', 0) > 0)
    w.stack.kill("redis-mx2")
    eventually(
        "it is gone", lambda: not [k for k in page.values() if "memory" in k and '"mx2"' in k]
    )
    assert page.values()['node_memory_bytes{node="mx1"}'] > 0
    w.stack.start("redis-mx2")
    eventually("it is back", lambda: page.values().get('node_memory_bytes{node="mx2"}', 0) > 0)


def test_probes(relay, page):
    w = relay()
    served(page)
    assert page.ask("/healthz")[::2] == (200, "ok\n")
    eventually("it is ready", lambda: page.ask("/readyz")[0] == 200)
    assert page.ask("/readyz", method="HEAD")[::2] == (200, "")
    assert page.ask("/other")[0] == 404 and page.ask("/metrics", method="POST")[0] == 405
    w.stack.kill("redis-mx1")
    eventually(
        "it is not",
        lambda: page.ask("/readyz")[::2] == (503, "the node's server cannot be reached\n"),
    )
    assert page.ask("/healthz")[0] == 200 and page.values()["relay_lanes"] >= 0


# -- hostile clients ----


def trickle(page, stop):
    """A request that never ends: a byte now and then."""
    while not stop.is_set():
        try:
            with page.raw() as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                while not stop.wait(0.2):
                    client.sendall(b"a")
        except OSError:
            stop.wait(0.05)


def huge(page, stop):
    """A header of a megabyte, in pieces that nobody waits for."""
    while not stop.is_set():
        try:
            with page.raw() as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n")
                client.recv(100)
        except OSError:
            stop.wait(0.05)


def test_hostile_clients_hold_up_no_mail(relay, page):
    w = relay()
    served(page)
    before = descriptors(w)
    stop, open_ones = threading.Event(), []
    threads = [
        threading.Thread(target=what, args=(page, stop)) for what in [trickle] * 20 + [huge] * 4
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(1000):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((page.host, page.port))
            open_ones.append(client)
        peer = w.peer()
        names = [w.store(peer) for _ in range(100)]
        w.empty()
        assert len(peer.mails) == len(names)
        assert (
            descriptors(w) <= before + 16 + 20
        )
    finally:
        stop.set()
        for client in open_ones:
            client.close()
        for thread in threads:
            thread.join(90)
    eventually("it is served again", lambda: page.ask())
    assert page.values()["relay_sent_total"] == 100


def test_a_slow_client_is_dropped(relay, page):
    """Though each byte comes in time."""
    relay()
    served(page)
    with page.raw() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        client.settimeout(0.2)
        for _ in range(1000):
            try:
                client.sendall(b"a")
                if client.recv(100) == b"":
                    break
            except socket.timeout:
                continue
            except OSError:
                break
        else:
            pytest.fail("it is not dropped")


def test_it_ends_amid_requests(relay, page):
    w = relay()
    served(page)
    with page.raw() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        w.stack["relay-mx1"].end()
    w.logged("stopped")


# -- TLS and passwords ----


def write_user(path, text):
    fresh = path.with_suffix(".new")
    fresh.write_text(text + "\n")
    fresh.chmod(0o600)
    fresh.rename(path)


def test_a_password(relay, page, tmp_path):
    file = tmp_path / "user"
    write_user(file, "prometheus s3cret")
    relay(metrics_user_file=str(file))
    served(page)
    for path in ("/metrics", "/healthz", "/readyz", "/other"):
        status, headers, _ = page.ask(path)
        assert status == 401 and headers["WWW-Authenticate"].startswith("Basic")
    for wrong in (
        "prometheus:s3cre",
        "prometheus:s3cret ",
        "prometheus:",
        ":s3cret",
        "Prometheus:s3cret",
        "prometheus",
    ):
        assert page.ask(user=wrong)[0] == 401, wrong
    assert (
        page.ask(Authorization="Basic !!!")[0] == 401
        and page.ask(Authorization="Bearer s3cret")[0] == 401
    )
    assert page.ask(user="prometheus:s3cret")[0] == 200
    write_user(file, "prometheus another")
    assert (
        page.ask(user="prometheus:s3cret")[0] == 401
        and page.ask(user="prometheus:another")[0] == 200
    )
    file.unlink()
    assert page.ask(user="prometheus:another")[0] == 500


def test_tls(relay, page, tmp_path):
    secure.authority(tmp_path)
    secure.certificate(tmp_path, "one")
    cert, key, ca = tmp_path / "one.crt", tmp_path / "one.key", tmp_path / "ca.crt"
    w = relay(metrics_tls_cert_file=str(cert), metrics_tls_key_file=str(key))
    served(page, ca=ca)
    assert page.ask(ca=ca)[0] == 200 and page.ask() is None
    peer = w.peer()
    w.store(peer)
    w.empty()
    eventually("one is counted", lambda: page.values(ca=ca).get("relay_sent_total") == 1)
    (tmp_path / "second").mkdir()
    secure.authority(tmp_path / "second")
    secure.certificate(tmp_path / "second", "one")
    for name in ("one.key", "one.crt"):
        (tmp_path / "second" / name).rename(tmp_path / name)
    eventually("the new certificate is shown", lambda: page.ask(ca=tmp_path / "second" / "ca.crt"))
    assert page.values(ca=tmp_path / "second" / "ca.crt")["relay_sent_total"] == 1


# -- the port ----


def test_a_port_that_is_taken_stops_no_mail(relay, page):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((page.host, page.port))
        other.listen()
        w = relay()
        peer = w.peer()
        w.store(peer)
        w.empty()
        w.logged(
            f"metrics_listen = {page.listen}: {page.host} port {page.port}: Address already in use"
        )
    served(page)
    assert page.values()["relay_sent_total"] == 1
    w.logged("served now")


def test_a_reload_moves_it(relay, page):
    w = relay()
    served(page)
    other = Page("relay")
    try:
        service = w.stack["relay-mx1"]
        programs.write_settings(service, {"metrics_listen": other.listen})
        service.send(signal.SIGHUP)
        served(other)
        assert page.ask() is None
        programs.write_settings(service, {"metrics_listen": ""})
        service.send(signal.SIGHUP)
        eventually("nobody answers", lambda: other.ask() is None)
        assert page.ask() is None
    finally:
        other.close()
