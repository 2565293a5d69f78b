"""A real Prometheus (Debian's package) with the rules of packaging/monitoring, in a hurry."""

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

from support.waiting import eventually
from support.stack.ports import Ports

HERE = Path(__file__).resolve().parents[2] / "packaging" / "monitoring"


def hurried(rules):
    """Each alert waits for two seconds and looks back for twenty, not for minutes."""
    rules = re.sub(r"(?m)^( +for:) .*$", r"\1 2s", rules)
    rules = re.sub(r"\[(5m|1h)\]", "[20s]", rules)
    return rules.replace("_lag_seconds) > 600", "_lag_seconds) > 3")


class Prometheus:
    def __init__(self, directory, targets):
        """targets: program and page of each."""
        self.ports = Ports()
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

    def firing(self):
        alerts = self.ask("alerts").get("alerts", [])
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def fires(self, name):
        eventually(f"{name} fires", lambda: name in self.firing())

    def resolves(self, name):
        eventually(f"{name} resolves", lambda: name not in self.firing())

    def scraped(self):
        """All targets are up, and in the form that it asked for."""
        targets = self.ask("targets?state=active").get("activeTargets", [])
        return targets and all(target["health"] == "up" for target in targets)
