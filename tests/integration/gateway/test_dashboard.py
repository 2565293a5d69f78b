"""The dashboard: Grafana's own schema takes it, and each panel shows something of a real stack."""

import json
import os
import re
import shutil
import smtplib
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import dashboard
from support.prometheus import HERE, pages, watched  # noqa: F401
from support.stack.group import Group
from support.waiting import eventually
from watched_gateway import gateway, send  # noqa: F401

pytestmark = pytest.mark.long
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("DOVELANE_BUILD") or ROOT / "build")
# The directory jsonschema/ of github.com/grafana/grafana-foundation-sdk, made from Grafana's own
# schemas; and Debian's python3-jsonschema.
SCHEMAS = os.environ.get("DOVELANE_GRAFANA_SCHEMAS")


# -- the file ----


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


@pytest.mark.skipif(not SCHEMAS, reason="DOVELANE_GRAFANA_SCHEMAS names no schemas of Grafana's")
def test_the_dashboard_passes_grafanas_schema():
    """The board, each panel's options and its own settings, and each query; unknown names fail."""
    validator = pytest.importorskip("jsonschema").Draft7Validator

    def faults(schema, part, value):
        text = json.loads((Path(SCHEMAS) / f"{schema}.jsonschema.json").read_text())
        if part and part not in text["definitions"]:
            return []
        rule = {**text, "$ref": f"#/definitions/{part}"} if part else text
        return [f"{list(e.path)}: {e.message[:200]}" for e in validator(rule).iter_errors(value)]

    board = dashboard.board()
    found = faults("dashboard", None, board)
    for panel in board["panels"]:
        if panel["type"] == "row":
            found += faults("dashboard", "RowPanel", panel)
            continue
        found += faults("dashboard", "Panel", panel)
        found += faults(panel["type"], "Options", panel["options"])
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        found += faults(panel["type"], "FieldConfig", custom)
        for target in panel["targets"]:
            found += faults("prometheus", None, target)
    assert not found, "\n".join(found)


# -- a real stack ----

USER = "seen@example.org"
PHASE = 15  # seconds, for the picture; nothing passes or fails by them


@pytest.fixture
def sites(pages):  # noqa: F811
    """Two Dovecots whose replicators a scraper sees."""
    if os.geteuid() != 0:
        pytest.skip("Dovecot's master must be started by root")
    group = Group("sdbox", "mdbox").up()
    group.pages = []
    try:
        for replica in group.replicas:
            page = pages("replicator")
            page.listened_by(replica)
            group.restart(replica.name)
            group.pages.append(("replicator", page))
        yield group
    finally:
        group.down()


def traffic(system, group, stop):
    """Mail by the milter and into a mailbox, some of it Postfix's, until it is told to stop."""
    with group.replicas[0].imap(USER) as session:
        n = 0
        while not stop.wait(0.1):
            n += 1
            if n % 5 == 0:
                session.append("INBOX", b"Subject: %d\r\n\r\nhello\r\n" % n)
            try:
                send(system, "u@q.example" if n % 10 == 0 else "u@a.example", "x" * (n * 37 % 900))
            except (OSError, smtplib.SMTPException):
                continue


def story(system, group):
    """What an admin sees on a bad day."""
    time.sleep(PHASE)
    system.rules("a", {"at": "rcpt", "reply": "450 4.2.0 not now", "chance": 0.5})
    time.sleep(PHASE)
    system.rules("a")
    system.sink("a", do="down")
    time.sleep(PHASE)
    system.sink("a", do="up")
    for name in ("relay-mx2", "redis-mx2"):
        system.stop(name)
    time.sleep(PHASE)
    for name in ("redis-mx2", "relay-mx2"):
        system.cont(name)
    group.cut()
    time.sleep(PHASE)
    group.heal()
    time.sleep(PHASE)


@pytest.mark.skipif(not shutil.which("prometheus"), reason="no Prometheus: ./setup long")
def test_each_panel_shows_something(gateway, sites):  # noqa: F811
    """Three nodes and two sites. With python3-matplotlib there is build/dashboard.png, too."""
    system = gateway(also=sites.pages)
    prometheus, begin, stop = system.prometheus, time.time(), threading.Event()
    sender = threading.Thread(target=traffic, args=(system, sites, stop))
    sender.start()
    try:
        story(system, sites)
    finally:
        stop.set()
        sender.join()
    panels = [panel for panel in dashboard.board()["panels"] if panel["type"] != "row"]

    def empty():
        shown = ((p["title"], dashboard.series(prometheus, p, begin, time.time())) for p in panels)
        return [title for title, lines in shown if not lines]

    eventually(lambda: f"all panels show something; not {empty()}", lambda: not empty())
    try:
        dashboard.draw(prometheus, begin, time.time(), BUILD / "dashboard.png")
    except ImportError:
        print("no picture: python3-matplotlib is missing")
