"""replicated_away = keep: where as much mail is retained as may be, Postfix's queue takes the next."""
import signal
import smtplib
from pathlib import Path

import pytest
from support import sinks
from support.stack import SinkShape, Stack, programs, resp
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]


def send(system, domain):
    with smtplib.SMTP(system.smtp, timeout=120) as smtp:
        text = b"Subject: x\r\n\r\n" + b"0123456789abcdef\r\n" * 17_000
        smtp.sendmail("x@example.net", [f"y@{domain}"], text)


def beats(system):
    with resp.Connection(system.nodes["mx1"]) as node:
        return {beat[0]: beat[4] for beat in node.call("LANE.BEAT")[0]}


def held(system):
    return sinks.metrics(system, "milter")["store_held_total"]


def test_a_site_that_never_answers_fills_no_more_than_its_part(tmp_path):
    key = tmp_path / "group.key"
    key.write_text("the group key of a test, known to all")
    key.chmod(0o600)
    with Stack(
        postfix="divert",
        nodes=2,
        copies=2,
        takeover="automatic",
        maxmemory="64mb",
        sinks=[SinkShape("a", ["lmtp"], ours=True), SinkShape("b", ours=True)],
        settings={"group_key_file": str(key), "replicate_namespaces": '{ "inbox" }'},
    ) as system:
        destination = system.destinations["a"]
        inside = {"delivery_id": "yes", "until": "replicated", "replicated_memory": 1}
        replicas = {
            "site-a": {"id": 1, "redis": "127.0.0.1:1", "lmtp": destination.removeprefix("lmtp:")},
            "site-b": {"id": 2, "redis": "127.0.0.1:2", "lmtp": "[127.0.0.1]:3"},
        }
        for name in ("milter", "relay-mx1", "relay-mx2"):
            programs.write_settings(
                system[name], {"destinations": {destination: inside}, "replicas": replicas}
            )
            system.kill(name)
            system.start(name)
        eventually("both nodes can be used", lambda: sinks.metrics(system, "milter")["store_able"])

        def is_full():
            send(system, "a.example")
            return b" retained=most" in beats(system)[b"mx1"]

        eventually("mx1 retains as much as it may", is_full)

        def is_refused():
            before = held(system)
            send(system, "a.example")
            return held(system) == before

        eventually("the milter has heard it", is_refused)
        said = Path(system["milter"].log).read_text()
        assert "retain as much as replicated_memory allows" in said
        before = held(system)
        send(system, "b.example")
        assert held(system) == before + 1, "another destination is not concerned"
        inside["until"] = "delivered"
        for name in ("milter", "relay-mx1", "relay-mx2"):
            programs.write_settings(system[name], {"destinations": {destination: inside}})
            system[name].send(signal.SIGHUP)
        eventually("there is room", lambda: not is_refused())
        assert b" retained=most" not in beats(system)[b"mx1"]
