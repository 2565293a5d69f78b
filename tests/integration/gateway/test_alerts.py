"""The alerts of packaging/monitoring: each fires when the real thing is broken, and goes."""

import json
import os
import re
import shutil
import smtplib
import subprocess
from pathlib import Path

import pytest

from support.prometheus import HERE, Prometheus
from support.waiting import eventually
from support.replicator_world import Twin, World
from support.stack import programs, resp
from support.stack.scrape import Page
from support.stack.shape import SinkShape

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus: ./setup long"),
]
ROOT = HERE.parents[1]


@pytest.fixture
def watched(tmp_path):
    """A factory: a Prometheus that scrapes pages."""
    started = []

    def watch(targets):
        started.append(Prometheus(tmp_path, targets))
        eventually("all is scraped", started[-1].scraped)
        return started[-1]

    yield watch
    for one in started:
        one.end()


@pytest.fixture
def pages():
    made = []

    def page(program):
        made.append(Page(program))
        return made[-1]

    yield page
    for one in made:
        one.close()


@pytest.fixture
def replicators(request):
    """A factory: sites with a replicator each, whose workers are scripted."""
    started = []

    def start(n):
        started.append(World(n))
        return started[-1].up()

    yield start
    for one in started:
        one.end(getattr(request.node, "call_failed", False))


@pytest.fixture
def gateway(stack, pages, watched):
    """Three nodes, a milter and Prometheus, with mail that was diverted."""
    system = stack(
        postfix="divert",
        nodes=3,
        takeover="automatic",
        sinks=[SinkShape("a", ours=True)],
        divert=["a"],
        settings={
            "suspect_after": "1s",
            "dead_after": "8s",
            "retry_first": "1s",
            "alone_wait": "1s",
        },
    )
    targets = []
    for name in ("milter", "relay-mx1", "relay-mx2", "relay-mx3"):
        page = pages(name.split("-")[0])
        programs.write_settings(system[name], {"metrics_listen": page.listen})
        system.kill(name)
        system.start(name)
        targets.append((name, page))
    system.pages = dict(targets)
    eventually("mail is diverted", lambda: sent_to_lanes(system))
    system.prometheus = watched(targets)
    return system


def send(system, recipient="u@a.example"):
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", [recipient], "Subject: x\r\n\r\nhello\r\n")


def sent_to_lanes(system):
    send(system)
    return system.pages["milter"].values().get("mails_diverted_total", 0) > 0


def calm(prometheus):
    eventually("nothing fires", lambda: prometheus.scraped() and not prometheus.firing())


def test_a_next_hop_goes_down(gateway):
    calm(gateway.prometheus)
    gateway.sink("a", do="down")
    send(gateway)
    gateway.prometheus.fires("DovelaneNextHopDown")
    gateway.sink("a", do="up")
    calm(gateway.prometheus)


def test_a_node_is_killed(gateway):
    calm(gateway.prometheus)
    gateway.kill("relay-mx3")
    gateway.kill("redis-mx3")
    gateway.prometheus.fires("DovelaneDown")
    gateway.prometheus.fires("DovelaneNodeSilent")
    gateway.start("redis-mx3")
    gateway.start("relay-mx3")
    calm(gateway.prometheus)


def test_mail_takes_the_disk_queue(gateway):
    calm(gateway.prometheus)
    for node in ("redis-mx2", "redis-mx3"):
        gateway.stop(node)
    gateway.prometheus.fires("DovelaneDiskQueueInsteadOfLanes")
    send(gateway)
    for node in ("redis-mx2", "redis-mx3"):
        gateway.cont(node)
    gateway.prometheus.resolves("DovelaneDiskQueueInsteadOfLanes")
    calm(gateway.prometheus)


def test_memory_is_short(gateway):
    calm(gateway.prometheus)
    with resp.Connection(gateway.nodes["mx1"], timeout=30) as node:
        used = int(re.search(rb"used_memory:(\d+)", node.call("INFO", "memory"))[1])
        node.call("CONFIG", "SET", "maxmemory", str(used * 10 // 8))
        gateway.prometheus.fires("DovelaneMemoryShort")
        node.call("CONFIG", "SET", "maxmemory", "512mb")
    gateway.prometheus.resolves("DovelaneMemoryShort")
    calm(gateway.prometheus)


def test_a_peer_is_away(replicators, pages, watched):
    w, page = replicators(2), pages("replicator")
    w[0].stop()
    w[0].start(metrics_listen=f'"{page.listen}"')
    w[0].change("u", "one")
    w.converge(["u"])
    prometheus = watched([("replicator", page)])
    calm(prometheus)
    w[1].stop()
    w[0].change("u", "two")
    prometheus.fires("DovelaneReplicaBehind")
    w[1].redis.stop()
    prometheus.fires("DovelaneReplicaAway")
    w[1].redis.start()
    w[1].start()
    calm(prometheus)
    w.converge(["u"])


def test_two_hosts_have_one_name(replicators, pages, watched):
    w, page = replicators(2), pages("replicator")
    w[0].stop()
    w[0].start(metrics_listen=f'"{page.listen}"')
    prometheus = watched([("replicator", page)])
    calm(prometheus)
    twin = Twin(w[0]).start()
    prometheus.fires("DovelaneNameTwice")
    twin.stop()
    calm(prometheus)


def test_the_brake_holds(replicators, pages, watched):
    w, page = replicators(2), pages("replicator")
    w[0].stop()
    w[0].start(metrics_listen=f'"{page.listen}"')
    prometheus = watched([("replicator", page)])
    calm(prometheus)
    w[0].site.held["u"] = 30
    w[0].change("u", "one")
    prometheus.fires("DovelaneBrakeHolds")
    del w[0].site.held["u"]
    w[0].change("u", "two")
    calm(prometheus)


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
    alerts = re.findall(r"- alert: (\w+)", (HERE / "dovelane.rules.yml").read_text())
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert alerts == sorted(set(alerts), key=alerts.index)
    assert sorted(re.findall(r"(?m)^\| (Dovelane\w+) \|", page)) == sorted(alerts)
    tested = re.findall(r"alertname: (\w+)", (HERE / "dovelane.rules.test.yml").read_text())
    assert set(tested) == set(alerts)


def test_rules_and_dashboard_name_metrics_that_exist():
    build = Path(os.environ.get("DOVELANE_BUILD") or ROOT / "build")
    names = subprocess.run(
        [build / "lib" / "metrics-doc", "names"], stdout=subprocess.PIPE, check=True
    )
    known = {
        line.split("\t")[0]: line.split("\t")[1] for line in names.stdout.decode().splitlines()
    }
    board = json.loads((HERE / "dashboard.json").read_text())
    texts = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    texts += [
        (HERE / "dovelane.rules.yml").read_text(),
        (HERE / "dovelane.rules.test.yml").read_text(),
    ]
    for name in set(re.findall(r"\bdovelane_\w+", "\n".join(texts))):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in known or known.get(base) == "histogram", name


def test_the_dashboard_is_one_that_grafana_takes():
    """What its schema asks for: ids that differ, a place for each panel, queries with a source."""
    board = json.loads((HERE / "dashboard.json").read_text())
    panels = board["panels"]
    assert board["title"] and board["uid"] and board["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"] and panel["datasource"]["type"] == "prometheus"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
