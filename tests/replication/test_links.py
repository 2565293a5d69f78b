"""The network between sites does what a partition test believes it does."""
import json
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.stack import links
from support.stack import probe
from support.stack.ports import Ports


@pytest.fixture
def line(tmp_path):
    """An echo server behind the link a>b: (connect, order)."""
    ports, held = Ports(), []
    echo, there = ports.take(), ports.take()
    server = socket.create_server(("127.0.0.1", echo))

    def answer(end):
        while data := end.recv(65536):
            end.sendall(data)

    def serve():
        try:
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
        except OSError:
            pass
    threading.Thread(target=serve, daemon=True).start()
    control = str(tmp_path / "control")
    process = subprocess.Popen(["/usr/bin/python3", links.__file__, "--control", control, f"a>b={there}=127.0.0.1:{echo}"])
    end = time.monotonic() + 120
    while probe.links(f"unix:{control}") and time.monotonic() < end:
        time.sleep(0.01)

    def order(**words):
        with probe.connect(f"unix:{control}", 60) as stream:
            stream.sendall(json.dumps(words).encode() + b"\n")
            return json.loads(stream.makefile("rb").readline())

    def connect(timeout=60.0):
        held.append(socket.create_connection(("127.0.0.1", there), timeout))
        return held[-1]
    yield connect, order
    for one in [*held, server]:
        one.close()
    process.terminate()
    process.wait(60)
    ports.close()


def echoed(end, data=b"hello"):
    end.sendall(data)
    got = b""
    while len(got) < len(data):
        more = end.recv(65536)
        if not more:
            raise ConnectionError
        got += more
    return got == data


def test_carries_and_counts(line):
    connect, order = line
    end = connect()
    assert echoed(end, b"x" * 100000)
    assert order(do="state")["a>b"]["bytes"] == 200000


def test_cut_closes_and_refuses_until_healed(line):
    connect, order = line
    end = connect()
    assert echoed(end)
    assert order(do="cut")["a>b"]["mode"] == "cut"
    with pytest.raises(OSError):
        echoed(end)
    with pytest.raises(OSError):
        echoed(connect())
    order(do="heal", links=["a>b"])
    assert echoed(connect())


def test_silence_carries_nothing_and_loses_nothing(line):
    connect, order = line
    end = connect(0.5)
    assert echoed(end)
    order(do="silence")
    end.sendall(b"late")
    with pytest.raises(TimeoutError):
        end.recv(10)
    order(do="heal")
    end.settimeout(60)
    assert end.recv(10) == b"late"


def test_delay_holds_each_byte_back_in_both_directions(line):
    connect, order = line
    order(do="delay", ms=30)
    end = connect()
    for _ in range(3):
        began = time.monotonic()
        assert echoed(end)
        assert time.monotonic() - began >= 0.06
    assert order(do="delay", ms=0)["a>b"]["ms"] == 0
    assert "error" in order(do="nonsense") and Path(links.__file__).exists()
