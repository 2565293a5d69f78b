"""Connections: TCP, TLS, users with few rights, and what is said when they do not come about."""
import subprocess

import pytest
from dovelane_lanes import AsyncLaneClient, LaneClient, NotStored, Refused
from support.lane_server import PORTS, LaneServer

pytestmark = pytest.mark.check
PRODUCER = "+lane.info +lane.push +lane.revoke"
CONSUMER = "+lane.info +lane.take +lane.ack +lane.nack +lane.extend +lane.get +lane.move"


@pytest.fixture
def certificate(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=a",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem",
                    "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    return tmp_path / "cert.pem"


@pytest.fixture
def secure(tmp_path, certificate):
    """A server with TLS alone, and its port."""
    port = PORTS.take()
    with LaneServer(tmp_path, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file",
                    tmp_path / "key.pem", "--tls-auth-clients", "no", "--bind",
                    "127.0.0.1") as server:
        yield server, port


def test_tls_and_users(secure, certificate, run):
    server, port = secure
    c = server.client()
    c("ACL", "SETUSER", "producer", "on", ">p1", "%W~q", *PRODUCER.split())
    c("ACL", "SETUSER", "worker", "on", ">p2", "~q", "~q:dead", *CONSUMER.split())
    c("LANE.CREATE", "q", "DEAD", "q:dead")

    def url(user):
        return {"a": f"rediss://{user}@127.0.0.1:{port}"}
    known = {"copies": 1, "ssl_ca_certs": str(certificate)}
    with LaneClient(url("producer:p1"), **known) as lanes:
        for body in b"1", b"2", b"3":
            lanes.push("q", body)
        lanes.revoke("q", lanes.push("q", b"4"))
        with pytest.raises(Refused, match="node a refuses LANE.TAKE: NOPERM"):
            with lanes.consumer("q") as consumer:
                consumer.take()
        with pytest.raises(NotStored, match="NOPERM"):
            lanes.push("other", b"1")
    with LaneClient(url("worker:p2"), **known) as lanes:
        with lanes.consumer("q", dead="q:dead") as consumer:
            one, two, three = consumer.take(9)
            consumer.extend(one)
            consumer.ack(one)
            assert consumer.bury(two) == 1 and consumer.release(three) == 1
    with LaneClient(url("worker:wrong"), **known) as lanes:
        with pytest.raises(NotStored, match="node a: the server refuses user and password"):
            lanes.push("q", b"1")
    with LaneClient(url("producer:p1"), copies=1) as lanes:
        with pytest.raises(NotStored, match="(?i)certificate"):
            lanes.push("q", b"1")

    async def work():
        async with AsyncLaneClient(url("producer:p1"), **known) as lanes:
            await lanes.push("q", b"5")
    run(work())
    assert [e[6] for e in c.read("q")] == [b"3", b"5"]


def test_nobody_listens(nodes):
    port = PORTS.take()
    urls = nodes.urls("a") | {"b": f"redis://127.0.0.1:{port}"}
    with LaneClient(urls) as lanes, pytest.raises(NotStored) as told:
        lanes.push("q", b"1")
    assert "node b: " in str(told.value) and "refused" in str(told.value)
    assert not told.value.in_doubt, "it was never sent"


def test_a_server_without_the_module(tmp_path):
    with LaneServer(tmp_path, module_line=False) as server:
        with LaneClient({"a": f"unix://{server.path}"}, copies=1) as lanes:
            with pytest.raises(NotStored, match="node a: LANE.INFO: unknown command"):
                lanes.push("q", b"1")
