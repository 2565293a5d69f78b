"""Asks a program's metrics_listen, as a scraper does."""

import base64
import http.client
import re
import socket
import ssl
import subprocess
from pathlib import Path

from .ports import Ports

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
OFFSET = {"milter": 0, "proxy": 1, "relay": 2, "replicator": 3}
LINE = re.compile(r"^dovelane_(\w+)(?:\{(.*)\})? (\S+)$", re.M)


class Page:
    """Where one program answers. base: what metrics_listen says."""

    def __init__(self, program, host="127.0.0.1"):
        self.held, self.host = Ports(), host
        self.port = self.held.take()
        self.base = self.port - OFFSET[program]
        self.listen = f"{host}:{self.base}"

    def close(self):
        self.held.close()

    def listened_by(self, replica):
        """A replica of a group has it from its next start on."""
        conf = Path(replica.note["base"]) / "dovelane.conf"
        text, n = re.subn(
            r"(?m)^metrics_listen = .*$", f'metrics_listen = "{self.listen}"', conf.read_text()
        )
        assert n == 1
        conf.write_text(text)

    def connection(self, ca=None, timeout=20):
        if not ca:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPSConnection(
            self.host,
            self.port,
            timeout=timeout,
            context=ssl.create_default_context(cafile=str(ca)),
        )

    def ask(self, path="/metrics", method="GET", user=None, ca=None, **headers):
        """Status, headers and text; None: nobody answers there."""
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        connection = self.connection(ca)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        except (ConnectionError, http.client.HTTPException, ssl.SSLError, socket.timeout):
            return None
        finally:
            connection.close()

    def text(self, **options):
        answer = self.ask(**options)
        return answer[2] if answer and answer[0] == 200 else ""

    def values(self, **options):
        """Name and labels as they stand there, to number."""
        return {
            name + ("{" + labels + "}" if labels else ""): float(value)
            for name, labels, value in LINE.findall(self.text(**options))
        }

    def raw(self, timeout=60):
        return socket.create_connection((self.host, self.port), timeout)


def promtool(text):
    """What promtool finds wrong in the classic form."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    return done.stdout.decode() + (f"status {done.returncode}" if done.returncode else "")
