"""The alerts of packaging/monitoring: each fires when the real thing is broken, and goes."""

import re
import shutil
import smtplib
import subprocess
from pathlib import Path

import pytest

from support import admin
from support.prometheus import HERE, pages, watched  # noqa: F401
from support.replicator_world import Twin, World
from support.waiting import eventually
from watched_gateway import gateway, holders, in_hand, node, send  # noqa: F401

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus: ./setup long"),
]
ROOT = HERE.parents[1]


def test_a_next_hop_goes_down(gateway):  # noqa: F811
    system = gateway()
    prometheus = system.prometheus
    prometheus.now()
    system.sink("a", do="down")
    send(system)
    prometheus.fires("DovelaneMailIsOld")
    prometheus.fires("DovelaneNextHopDown")
    prometheus.now()
    system.sink("a", do="up")
    prometheus.resolves("DovelaneNextHopDown")
    prometheus.resolves("DovelaneMailIsOld")
    prometheus.calm()


def test_a_node_is_killed(gateway):  # noqa: F811
    system = gateway()
    prometheus = system.prometheus
    prometheus.now()
    system.kill("relay-mx3")
    system.kill("redis-mx3")
    prometheus.fires("DovelaneDown")
    prometheus.fires("DovelaneNodeSilent")
    prometheus.now()
    system.start("redis-mx3")
    system.start("relay-mx3")
    prometheus.resolves("DovelaneDown")
    prometheus.resolves("DovelaneNodeSilent")
    prometheus.calm()


def test_two_nodes_stand_still(gateway):  # noqa: F811
    """They hold the second copies of mail that waits."""
    system = gateway()
    prometheus = system.prometheus
    system.sink("a", do="down")
    for _ in range(5):
        send(system)
    _, *others = eventually("two hold it", lambda: len(h := holders(system)) >= 2 and h)
    prometheus.now()
    for name in others:
        system.stop(f"relay-{name}")
        system.stop(f"redis-{name}")
    prometheus.fires("DovelaneCopiesMissing")
    prometheus.now()
    for name in others:
        system.cont(f"redis-{name}")
        system.cont(f"relay-{name}")
    prometheus.resolves("DovelaneCopiesMissing")
    system.sink("a", do="up")
    prometheus.calm()


def test_a_node_lost_what_it_held(gateway):  # noqa: F811
    """It comes back empty, and cannot ask those who have the other copies: they stand still."""
    system = gateway()
    prometheus = system.prometheus
    system.sink("a", do="down")
    for _ in range(5):
        send(system)
    empty, *others = eventually("two hold it", lambda: len(h := holders(system)) >= 2 and h)
    prometheus.now()
    for name in others:
        system.stop(f"redis-{name}")
    system.kill(f"redis-{empty}")
    system.start(f"redis-{empty}")
    prometheus.fires("DovelaneNodeNotWhole", node=empty)
    prometheus.now()
    for name in others:
        system.cont(f"redis-{name}")
    prometheus.resolves("DovelaneNodeNotWhole")
    assert empty in holders(system)
    system.sink("a", do="up")
    prometheus.calm()


def test_mail_takes_the_disk_queue(gateway):  # noqa: F811
    system = gateway()
    prometheus = system.prometheus
    prometheus.now()
    for name in ("redis-mx2", "redis-mx3"):
        system.stop(name)
    prometheus.fires("DovelaneDiskQueueInsteadOfLanes")
    send(system)
    prometheus.now()
    for name in ("redis-mx2", "redis-mx3"):
        system.cont(name)
    prometheus.resolves("DovelaneDiskQueueInsteadOfLanes")
    prometheus.calm()


def test_mail_is_answered_4xx(gateway):  # noqa: F811
    system = gateway(policy="tempfail")
    prometheus = system.prometheus
    prometheus.now()
    for name in ("redis-mx2", "redis-mx3"):
        system.stop(name)
    milter = system.pages["milter"].values
    eventually("too few nodes", lambda: milter()["store_able"] == 0)
    with pytest.raises(smtplib.SMTPDataError, match="4"):
        send(system)
    prometheus.fires("DovelaneTempfail")
    prometheus.now()
    for name in ("redis-mx2", "redis-mx3"):
        system.cont(name)
    prometheus.resolves("DovelaneTempfail")
    prometheus.calm()
    send(system)


def test_diverting_is_switched_off(gateway):  # noqa: F811
    system = gateway()
    prometheus = system.prometheus
    prometheus.now()
    admin.done(system, "divert", "off")
    prometheus.fires("DovelaneDivertOff")
    prometheus.now()
    admin.done(system, "divert", "on")
    prometheus.resolves("DovelaneDivertOff")
    prometheus.calm()


@pytest.mark.parametrize(
    "before, after",
    [
        ("", "always_bcc = archive@q.example\n"),  # for all mail
        ("smtpd_milters =", "x_milters ="),  # nobody asks the milter
        ("", "smtp_generic_maps = inline:{ { a@b.example = c@d.example } }\n"),  # for a transport
    ],
)
def test_a_change_of_postfix_ends_diverting(gateway, before, after):  # noqa: F811
    """It says so in the log alone, and all mail arrives."""
    system = gateway()
    prometheus = system.prometheus
    main = Path(system["postfix"].note["config_directory"]) / "main.cf"
    text = main.read_text()
    prometheus.now()
    main.write_text(text.replace(before, after) if before else text + after)
    system["postfix"].reload()
    prometheus.fires("DovelanePostfixKeepsMail")
    prometheus.now()
    main.write_text(text)
    system["postfix"].reload()
    prometheus.resolves("DovelanePostfixKeepsMail")
    prometheus.calm()


@pytest.mark.parametrize("held", ["mail in hand", "nothing in hand"])
def test_a_server_refuses_writes(gateway, held):  # noqa: F811
    """As with a disk that is full for its AOF. With mail in hand acks are refused, else TAKE is."""
    system = gateway()
    prometheus = system.prometheus
    if held == "mail in hand":
        system.rules("a", {"at": "dot", "delay": 5})
        send(system)
        first = eventually("it is in hand", lambda: in_hand(system))
    else:
        system.sink("a", do="down")
        send(system)
        first = eventually("it is stored", lambda: holders(system))[0]
        eventually("nothing is in hand", lambda: not in_hand(system))
    with node(system, first) as server:
        prometheus.now()
        server.call("CONFIG", "SET", "min-replicas-to-write", 1)
        system.sink("a", do="up")
        prometheus.fires("DovelaneAcksRefused")
        prometheus.now()
        server.call("CONFIG", "SET", "min-replicas-to-write", 0)
    system.rules("a")
    prometheus.resolves("DovelaneAcksRefused")
    prometheus.calm()


def test_memory_is_short(gateway):  # noqa: F811
    system = gateway()
    prometheus = system.prometheus
    with node(system, "mx1") as server:
        used = int(re.search(rb"used_memory:(\d+)", server.call("INFO", "memory"))[1])
        prometheus.now()
        server.call("CONFIG", "SET", "maxmemory", str(used * 10 // 8))
        prometheus.fires("DovelaneMemoryShort")
        prometheus.now()
        server.call("CONFIG", "SET", "maxmemory", "512mb")
    prometheus.resolves("DovelaneMemoryShort")
    prometheus.calm()


def test_memory_will_be_full(gateway):  # noqa: F811
    """Mail for a next hop that is away, a megabyte a time, as long as it takes."""
    system = gateway()
    prometheus = system.prometheus
    prometheus.now()
    system.sink("a", do="down")

    def fires():
        send(system, body="\r\n".join(["x" * 900] * 1100))
        return "DovelaneMemoryFullSoon" in prometheus.firing()

    eventually("it comes", fires, pause=0.5)
    prometheus.fires("DovelaneMemoryFullSoon")
    prometheus.now()
    system.sink("a", do="up")
    prometheus.resolves("DovelaneMemoryFullSoon")
    prometheus.calm()


def test_relays_die_of_a_mail(gateway):  # noqa: F811
    """Six times, with the mail in hand: then Postfix holds it."""
    system = gateway(destination_concurrency="1")
    prometheus = system.prometheus
    system.rules("a", {"at": "dot", "do": "hang"})
    send(system)
    prometheus.now()
    for _ in range(6):
        first = eventually("it is in hand", lambda: in_hand(system))
        system.kill(f"relay-{first}")
        system.start(f"relay-{first}")
    prometheus.fires("DovelaneMailHeldAsPoison")
    prometheus.now()
    system.rules("a")
    prometheus.resolves("DovelaneMailHeldAsPoison")
    prometheus.calm()


# -- the files ----


def promtool(*words):
    return subprocess.run(
        ["promtool", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )


def test_the_rules_pass_their_tests():
    done = promtool("test", "rules", str(HERE / "dovelane.rules.test.yml"))
    assert done.returncode == 0, done.stdout.decode()


def test_the_example_is_a_config(tmp_path):
    text = (HERE / "prometheus.yml").read_text()
    assert "/etc/prometheus/dovelane.rules.yml" in text
    copy = tmp_path / "prometheus.yml"
    copy.write_text(
        text.replace("/etc/prometheus/dovelane.rules.yml", str(HERE / "dovelane.rules.yml"))
    )
    done = promtool("check", "config", str(copy))
    assert done.returncode == 0, done.stdout.decode()


def test_each_alert_is_tested_and_explained():
    """What it means, and how soon it fires; by promtool, and by a break of the real thing."""
    alerts = re.findall(r"- alert: (\w+)", (HERE / "dovelane.rules.yml").read_text())
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert alerts == sorted(set(alerts), key=alerts.index)
    assert sorted(re.findall(r"(?m)^\| (Dovelane\w+) \|", page)) == sorted(alerts * 2)
    tested = re.findall(r"alertname: (\w+)", (HERE / "dovelane.rules.test.yml").read_text())
    assert set(tested) == set(alerts)
    broken = [ROOT / "tests" / "integration" / "gateway" / "test_alerts.py"]
    broken += [ROOT / "tests" / "replication" / "test_replica_alerts.py"]
    fired = re.findall(r'\.fires\("(\w+)"', "".join(path.read_text() for path in broken))
    assert set(fired) == set(alerts)


def test_two_hosts_have_one_name(request, pages, watched):  # noqa: F811
    w, page = World(2).up(), pages("replicator")
    try:
        w[0].stop()
        w[0].start(metrics_listen=f'"{page.listen}"')
        prometheus = watched([("replicator", page)])
        prometheus.calm()
        prometheus.now()
        twin = Twin(w[0]).start()
        prometheus.fires("DovelaneNameTwice")
        twin.stop()
        prometheus.now()
        prometheus.resolves("DovelaneNameTwice")
        prometheus.calm()
    finally:
        w.end(getattr(request.node, "call_failed", False))
