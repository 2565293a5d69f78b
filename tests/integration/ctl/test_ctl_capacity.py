"""dovelane capacity: its arithmetic against what memory really does."""
import re
import threading

from support import admin
import pytest
from support.relay_world import eventually
from support.stack import SinkShape, resp
from support.stack.generator import Generator

pytestmark = pytest.mark.long


def numbers(out):
    """node: (used MB, of MB, kB/s, mails/s, seconds to spill, seconds to full)"""
    unit = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    found = {}
    for line in out.splitlines()[1:]:
        words = line.split()
        times = re.findall(r"([\d.]+) (s|min|h|d)\b", line)
        found[words[0]] = (*map(float, words[1:5]), *(float(value) * unit[name] for value, name in times))
    return found


def info(address):
    with resp.Connection(address) as connection:
        words = connection.call("LANE.INFO")
        stats = connection.call("INFO", "stats").decode()
    used = int(dict(zip(words[0::2], words[1::2]))[b"used-memory"])
    return used, int(re.search(r"total_net_input_bytes:(\d+)", stats)[1])


def test_an_idle_gateway_lasts_for_long(stack):
    running = stack(postfix="none", nodes=2)
    found = numbers(admin.done(running, "capacity", "--seconds", "0.5"))
    assert set(found) == {"mx1", "mx2"}
    for used, most, rate, mails, *times in found.values():
        assert used < 20 and most == 512 and rate < 20 and mails == 0 and times[1] > times[0] > 3600


def test_memory_grows_by_at_most_what_the_rate_says(stack):
    """All next hops away, mails of two sizes: the factor covers what they take, and does not exaggerate."""
    running = stack(postfix="divert", sinks=[SinkShape("a", [], ours=True)])
    running.sink("a", do="down")
    before = {node: info(address) for node, address in running.nodes.items()}
    generator = Generator(smtp=running.smtp, mails=10**6, sessions=10, domains=["a.example"], size=(2000, 60000), rate=60)
    load = threading.Thread(target=generator.run)
    load.start()
    try:
        eventually("mail flows", lambda: len(generator.ledger.promised) > 50)
        found = numbers(admin.done(running, "capacity", "--seconds", "3"))
        eventually("memory fills", lambda: len(generator.ledger.promised) > 500)
    finally:
        generator.stop()
        load.join()
    for node, address in running.nodes.items():
        used, came = (now - then for now, then in zip(info(address), before[node]))
        assert 0.9 * came < used < came * 1.2, (used, came)
        _, most, rate, mails, spill, full = found[node]
        assert mails > 20 and spill < full
        assert abs(full - (most * 1024 - found[node][0] * 1024) / (rate * 1.2)) < 0.1 * full + 2
