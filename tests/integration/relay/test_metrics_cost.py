"""What is measured of a mail costs less than 1 % of the instructions for it, a scrape even less."""

import re
import shutil
import smtplib
import subprocess
import time

import pytest

from support.lane_server import BUILD
from support.waiting import eventually
from support.stack.scrape import Page
from support.stack.shape import SinkShape

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("callgrind_control"), reason="no valgrind: ./setup long"),
]
# What a mail calls for the sake of metrics_listen; what was counted before is not among it.
OF_RELAY = ("delivery_measure", "delivery_count", "delivery_measure_end")
OF_SCRAPE = ("on_list", "on_info", "on_read", "metrics_page", "collect")
OF_MILTER = ("ingress_answered", "ingress_queued", "metric_observe", "metric_series")


# Program of tests/bench.
LOAD = BUILD / "tests" / "bench" / "metrics_load"


def under_callgrind(service, out):
    service.argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *service.argv]


def instructions(service, out, names, work):
    """Of the work: all of the program, and of these functions with what they call."""
    control = ["callgrind_control"]
    subprocess.run([*control, "-z", str(service.pid)], check=True, stdout=subprocess.DEVNULL)
    work()
    subprocess.run([*control, "-d", str(service.pid)], check=True, stdout=subprocess.DEVNULL)
    dump = eventually("a dump", lambda: list(out.parent.glob(out.name + ".[0-9]*")))[-1]
    text = subprocess.run(
        ["callgrind_annotate", "--inclusive=yes", "--threshold=100", dump],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    total = int(re.search(r"([\d,]+) .*PROGRAM TOTALS", text)[1].replace(",", ""))
    found = {}  # a function has a line for each spelling of its file
    for count, name in re.findall(r"(?m)^ *([\d,]+) .*?:(\w+)(?:'\d+)?(?: \[.*)?$", text):
        found[name] = max(found.get(name, 0), int(count.replace(",", "")))
    return sum(found.get(name, 0) for name in names), total


def judge(own, total, mails):
    print(
        f"{own / mails:.0f} of {total / mails:.0f} instructions a mail, {100 * own / total:.2f} %"
    )
    assert 0 < own < total / 100, (own, total)


def test_of_a_delivery(world, tmp_path):
    w = world(relays=())
    out, service = tmp_path / "relay", w.stack["relay-mx1"]
    under_callgrind(service, out)
    w.stack.start("relay-mx1")
    peer = w.peer()

    def deliver(n):
        before = len(peer.mails)
        for _ in range(n):
            w.store(peer)
        eventually("all are delivered", lambda: len(peer.mails) == before + n)
        w.empty()

    deliver(50)
    judge(*instructions(service, out, OF_RELAY, lambda: deliver(500)), 500)


def test_of_a_scrape(world, tmp_path):
    """A thousand entries wait, and are read for why: what that costs in 15 seconds, of a core."""
    page = Page("relay")
    w = world(
        relays=(),
        nodes=1,
        retry_first="1h",
        retry_most="1h",
        destination_in_flight=2000,
        metrics_listen=page.listen,
    )
    try:
        out, service = tmp_path / "relay", w.stack["relay-mx1"]
        w.stack.start("relay-mx1")
        peer = w.peer(lmtp=True)
        peer.say("RCPT", "450 4.2.2 full")
        for _ in range(1000):
            w.store(peer, owners=["mx1"])
        why = f'lane_deferred_reason_entries{{nexthop="{peer.destination}",reason="4.2.2"}}'
        eventually("all wait", lambda: page.values().get(why) == 1000, 300, 1)
        w.stack.end("relay-mx1")
        under_callgrind(service, out)
        w.stack.start("relay-mx1")
        eventually("they do so still", lambda: page.values().get(why) == 1000, 300, 1)
        time.sleep(5)  # until they are read anew
        own, _ = instructions(service, out, OF_SCRAPE, page.text)
        print(f"{own / 1e6:.1f} million instructions a scrape")
        assert 0 < own < 15e9 / 1000, own  # 0.1 % of a slow core
    finally:
        page.close()


def test_of_an_answer(stack, tmp_path):
    system = stack(
        postfix="divert",
        sinks=[SinkShape("a", ours=True)],
        divert=["a"],
        relays=False,
        settings={"store_deadline": "30s", "settle": "60s"},
    )
    out, service = tmp_path / "milter", system["milter"]
    system.kill("milter")
    under_callgrind(service, out)
    system.start("milter")

    def send(n):
        host, _, port = system.smtp.rpartition(":")
        with smtplib.SMTP(host, int(port)) as client:
            for _ in range(n):
                client.sendmail("s@x.example", ["u@a.example"], "Subject: x\r\n\r\nhello\r\n")

    send(50)
    own, total = instructions(service, out, OF_MILTER, lambda: send(300))
    judge(own, total, 300)


def of_a_count(nexthops, directory):
    """Instructions to find the series of two labels' values, and to count there."""

    def run(counts):
        argv = ["valgrind", "--tool=callgrind", "--callgrind-out-file=out", LOAD]
        done = subprocess.run(
            [*argv, str(nexthops), str(counts)],
            cwd=directory,
            check=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        return int(re.search(r"Collected : (\d+)", done.stderr)[1])

    few, many = 9 * nexthops, 90000  # after the first all series are there
    return (run(few + many) - run(few)) / many


def test_of_a_thousand_values_of_a_label(tmp_path):
    """A thousand next hops, 900 of them counted as `other`: looked up as fast as ten."""
    ten, thousand = of_a_count(10, tmp_path), of_a_count(1000, tmp_path)
    print(f"{ten:.0f} instructions a count of 10 next hops, {thousand:.0f} of 1,000")
    assert thousand < 3 * ten
