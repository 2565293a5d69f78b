"""A real Prometheus (Debian's package) with the rules of packaging/monitoring, in a hurry."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from support.waiting import eventually
from support.stack.ports import Ports
from support.stack.scrape import Page

HERE = Path(__file__).resolve().parents[2] / "packaging" / "monitoring"


def hurried(rules):
    """Each alert waits for two seconds and looks back for twenty, not for minutes."""
    rules = re.sub(r"(?m)^( +for:) .*$", r"\1 2s", rules)
    rules = re.sub(r"\[(5m|1h)\]", "[20s]", rules)
    rules = rules.replace("offset 1h", "offset 20s")
    for before, now in (("_lag_seconds) > 600", 3), ("_oldest_seconds) > 900", 3)):
        assert before in rules
        rules = rules.replace(before, f"{before.rpartition(' ')[0]} {now}")
    return rules


class Prometheus:
    def __init__(self, directory, targets):
        """targets: program and page of each."""
        self.ports, self.since = Ports(), time.monotonic()
        self.address = f"127.0.0.1:{self.ports.take()}"
        self.log = open(directory / "prometheus.log", "wb")
        (directory / "rules.yml").write_text(hurried((HERE / "dovelane.rules.yml").read_text()))
        lines = ["global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}"]
        lines += ["rule_files: [rules.yml]", "scrape_configs:", "- job_name: dovelane"]
        lines += ["  static_configs:"]
        for program, page in targets:
            lines.append(f'  - targets: ["{page.host}:{page.port}"]')
            lines.append(f"    labels: {{program: {program}}}")
        (directory / "prometheus.yml").write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [
                shutil.which("prometheus"),
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={self.address}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
        self.ports.close()

    def ask(self, path):
        try:
            with urllib.request.urlopen(
                f"http://{self.address}/api/v1/{path}", timeout=20
            ) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    def query_range(self, expression, begin, end, step):
        """Labels, and [time, number] of each point, of each series between two times of day."""
        words = {"query": expression, "start": begin, "end": end, "step": step}
        result = self.ask("query_range?" + urllib.parse.urlencode(words)).get("result", [])
        return [(one["metric"], [(t, float(v)) for t, v in one["values"]]) for one in result]

    def firing(self, **labels):
        """Names of the alerts that fire, with those labels."""
        return {
            alert["labels"]["alertname"]
            for alert in self.ask("alerts").get("alerts", [])
            if alert["state"] == "firing" and labels.items() <= alert["labels"].items()
        }

    def now(self):
        """What is broken, or mended, is so from now on: see fires() and resolves()."""
        self.since = time.monotonic()

    def fires(self, name, **labels):
        assert name in (HERE / "dovelane.rules.yml").read_text()
        eventually(f"{name} fires", lambda: name in self.firing(**labels))
        print(f"{name} fired after {time.monotonic() - self.since:.0f} s")

    def resolves(self, name):
        eventually(f"{name} resolves", lambda: name not in self.firing())
        print(f"{name} resolved after {time.monotonic() - self.since:.0f} s")

    def scraped(self):
        """All targets are up, and in the form that it asked for."""
        targets = self.ask("targets?state=active").get("activeTargets", [])
        return targets and all(target["health"] == "up" for target in targets)

    def calm(self):
        eventually(
            lambda: f"nothing fires: {self.firing()}", lambda: self.scraped() and not self.firing()
        )


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
    """A factory: where a program of that name answers."""
    made = []

    def page(program):
        made.append(Page(program))
        return made[-1]

    yield page
    for one in made:
        one.close()
