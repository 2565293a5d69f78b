"""Throughput of nodes that are apart, beside GeoRep's (docs/references.md).

Each node is a Redis with the lane module and has a gateway beside it with so many clients (geo_load.c): a client stores a message on
`copies` nodes, the gateway takes it from its own node and removes it on all. What goes to another node, and its answer, is late by half a
round trip each. The gateways choose owners by the project's own placement. All nodes and all gateways share this machine's cores.

    stored     a client goes on when all owners have its message: what a 250 waits for
    removed    when it is removed again, too. As the relay does it, a message is taken as soon as its own node has it: a delivered
               message needs no second copy
    in turn    the same, but it is taken only when all owners have it: two round trips

    local      nodes side by side: GeoRep had 7 machines
    paper      each other node as far away as GeoRep's mean
    regions    real distances (regions.py), nodes in the order of that list; each region is a site. near: prefer = near; areas: spread_over a
               region's area, so that the second copy leaves it
    disk       the same with Redis's append-only file, on what `dir` is on
    bytes      what TCP carried between nodes, both ways, against (copies - 1) x payload
    cut        a whole gateway (Postfix, milter, relays, next hops): a site is cut off for `cut_seconds` under load, and heals
"""
import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import regions
from report import BUILD, median
from support.stack import StackError, oracle
from support.stack.generator import Generator
from support.stack.hosts import HostedStack
from support.stack.shape import SinkShape

ABOUT = "throughput of nodes that are apart, beside GeoRep"
OPTIONS = {"rounds": 3, "seconds": 5.0, "clients": "1,3,10,30,100", "size": 160, "dir": "/var/tmp", "cut_seconds": 40, "cut_rate": 60,
           "parts": "local,paper,regions,disk,bytes,cut"}
QUICK = {"rounds": 1, "seconds": 1.0, "clients": "10,100"}

LOAD = BUILD / "tests" / "bench" / "geo_load"
MODULE = BUILD / "redis-module" / "lane.so"
UNTIL = {"stored": "stored", "removed": "removed", "in turn": "both"}
LOCAL = {7: 47572}                                  # messages a second, of GeoRep
MEAN_RTT = {3: 174, 7: 108}                         # milliseconds
APART = {(3, 100): 793, (7, 10): 353, (7, 100): 3449}
APPEND = {"off": ("--appendonly", "no"), "everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
          "always": ("--appendonly", "yes", "--appendfsync", "always")}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        try:
            s.connect(str(path))
            s.sendall(b"PING\r\n")
            return s.recv(5) == b"+PONG"
        except OSError:
            return False


@contextlib.contextmanager
def nodes(number, folder, append="off"):
    """(UNIX socket, port) of each."""
    with tempfile.TemporaryDirectory(dir=folder) as own, contextlib.ExitStack() as stack:
        found = []
        for i in range(number):
            place, port = Path(own) / str(i), free_port()
            place.mkdir()
            server = stack.enter_context(subprocess.Popen(
                [os.environ.get("DOVELANE_REDIS_SERVER") or "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--unixsocket", place / "s",
                 "--save", "", *APPEND[append], "--dir", place, "--loadmodule", MODULE], stdout=subprocess.DEVNULL))
            stack.callback(server.kill)
            found.append((place / "s", port))
        end = time.monotonic() + 30
        while not all(answers(path) for path, _ in found):
            if time.monotonic() > end:
                raise StackError("a Redis of the benchmark does not answer")
            time.sleep(0.02)
        yield found


def far(number, milliseconds):
    return [[0 if i == k else milliseconds for k in range(number)] for i in range(number)]


def load(found, rtt, **options):
    """One run of geo_load, as a dictionary."""
    with tempfile.NamedTemporaryFile("w", suffix=".rtt") as file:
        file.write("\n".join(" ".join(map(str, line)) for line in rtt) + "\n")
        file.flush()
        words = [LOAD, "--rtt", file.name, "--warm", str(max(1, 3 * max(map(max, rtt)) / 1000))]
        for path, port in found:
            words += ["--node", f"{path}={port}"]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        done = subprocess.run(words, capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise StackError(f"geo_load: {done.stderr.decode().strip()}")
    got = json.loads(done.stdout)
    if got["left"]:
        raise StackError(f"geo_load: {got['left']} messages were not removed: {got}")
    return got


def rounds(o, number, rtt, append="off", **options):
    """The median round, by what is stored and removed a second."""
    got = []
    for _ in range(o.rounds):
        with nodes(number, o.dir, append) as found:
            got.append(load(found, rtt, **{"seconds": o.seconds, "size": o.size, "copies": min(2, number), **options}))
    return sorted(got, key=rate)[len(got) // 2]


def rate(got):
    """Messages a second that were stored and removed."""
    return min(got["stored"], got["removed"])


def clients_of(o):
    return [int(word) for word in o.clients.split(",")]


def local(report, o):
    lines = []
    for number in (1, 3, 5, 7):
        line = [f"{number} nodes" if number > 1 else "1 node, one copy"]
        for clients in clients_of(o):
            got = rounds(o, number, far(number, 0), clients=clients)
            paper = LOCAL.get(number) if clients == clients_of(o)[-1] else None
            report.row(f"local, {number} nodes, {clients} clients each", rate(got), "/s", *(["GeoRep, 7 machines", paper, ">= 1.3"] if paper else []))
            line.append(rate(got))
        lines.append(line)
    report.table("Side by side: messages a second, stored and removed", ["", *(f"{n} clients" for n in clients_of(o))], lines)


def paper(report, o):
    lines, each = [], {}
    for number, mean in MEAN_RTT.items():
        for until, word in UNTIL.items():
            line = [f"{number} nodes, {mean} ms, {until}"]
            for clients in clients_of(o):
                got = rounds(o, number, far(number, mean), clients=clients, until=word, seconds=max(o.seconds, 20 * mean / 1000))
                each[number, until, clients] = rate(got) / number
                theirs = APART.get((number, clients))
                goal = ">= 1.3" if until != "in turn" else None
                report.row(f"{mean} ms, {number} nodes, {clients} clients each, {until}", rate(got), "/s", *(["GeoRep", theirs, goal] if theirs else []))
                line.append(rate(got))
            lines.append(line)
    report.table("As far as GeoRep's mean: messages a second", ["", *(f"{n} clients" for n in clients_of(o))], lines)
    most = clients_of(o)[-1]
    report.row("of a node: 7 nodes at 108 ms against 3 at 174 ms", each[7, "removed", most], "/s", "3 nodes", each[3, "removed", most])
    report.remark("A client's rate is one through its round trip, so 7 nodes at 108 ms can do 174 / 108 = 1.61 of 3 at 174 ms a node. GeoRep had 1.87.")


def at_regions(o, number, prefer, areas):
    names = regions.NAMES[:number]
    domains = [sorted(set(regions.AREAS.values())).index(regions.AREAS[name]) if areas else i for i, name in enumerate(names)]
    return rounds(o, number, regions.matrix(names), clients=clients_of(o)[-1], until="removed", prefer=prefer, least=2,
                  domains=",".join(map(str, domains)), seconds=max(o.seconds, 6))


def by_region(report, o):
    lines, each = [], {}
    for number in (3, 5, 7, 10):
        line = [f"{number} nodes"]
        for name, prefer, areas in (("near", "near", False), ("areas", "near", True), ("listed", "listed", False)):
            got = at_regions(o, number, prefer, areas)
            each[number, name] = rate(got) / number
            report.row(f"regions, {number} nodes, {name}", rate(got), "/s")
            line += [rate(got), each[number, name], got["until_stored"]["p50"]]
        lines.append(line)
    report.table(f"Real distances, {clients_of(o)[-1]} clients a node: messages a second, of a node, and ms until stored (p50)",
                 ["", "near", "a node", "ms", "another area", "a node", "ms", "as listed", "a node", "ms"], lines)
    report.row("regions, of a node: 7 against 3 nodes, near", each[7, "near"], "/s", "3 nodes", each[3, "near"], ">= 1.8")
    report.row("regions, 7 nodes: near against listed", 7 * each[7, "near"], "/s", "listed", 7 * each[7, "listed"])


def on_disk(report, o):
    most = clients_of(o)[-1]
    for append in APPEND:
        got = rounds(o, 7, far(7, 0), append, clients=most)
        report.row(f"local, 7 nodes, {most} clients each, append-only file {append}", rate(got), "/s", "GeoRep, 7 machines", LOCAL[7])
    for append in APPEND:
        got = rounds(o, 7, far(7, MEAN_RTT[7]), append, clients=most, until="removed")
        report.row(f"{MEAN_RTT[7]} ms, 7 nodes, {most} clients each, append-only file {append}", rate(got), "/s", "GeoRep", APART[7, 100])
    report.remark("Append-only files: 'always' answers when the file is synced, 'everysec' before. GeoRep's nodes write to LevelDB.")


def carried(report, o):
    most = clients_of(o)[-1]
    for size in (160, 1000, 10000):
        got = rounds(o, 7, far(7, MEAN_RTT[7]), clients=most, size=size, until="removed", seconds=max(o.seconds, 5))
        report.row(f"bytes between nodes, {size} B a message", got["bytes"] / (got["messages"] * size), "x (copies - 1) x payload", goal="<= 1.15" if size > 160 else None)


def in_a_thread(generator):
    thread = threading.Thread(target=generator.run)
    thread.start()
    return thread


def wait_for(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise StackError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def said(system, node):
    return Path(system[f"relay-{node}"].log).read_text()


def cut_once(o):
    """The verdict of one cut, in which the others took mx1 for dead."""
    hops = [SinkShape(name, ours=True) for name in "abc"]
    with HostedStack(postfix="divert", nodes=3, copies=2, takeover="automatic", sinks=hops, redis_conf=["protected-mode no"],
                     labels={f"mx{i}": {"site": f"site-{i}"} for i in (1, 2, 3)}, settings={"spread_over": "site"}) as system:
        generator = Generator(smtp=system.smtp, domains=[f"{name}.example" for name in "abc"], sessions=12, recipients=(1, 1), retry_after=0.3,
                              mails=1000000, rate=o.cut_rate)
        thread = in_a_thread(generator)
        try:
            wait_for("each relay serves", lambda: all(re.search(r": alive$", said(system, node), re.MULTILINE) for node in system.nodes))
            before = len(generator.ledger.promised)
            wait_for("mail flows", lambda: len(generator.ledger.promised) > before + 5 * o.cut_rate)
            system.hosts.cut("mx1", "mx2", "mx3")
            time.sleep(o.cut_seconds)
            system.hosts.heal()
            time.sleep(5)
        finally:
            generator.stop()
            thread.join()
        verdict = oracle.wait_delivered(system, generator.ledger, seconds=300)
        if verdict.lost or not re.search("node mx1 is dead", said(system, "mx2")):
            raise StackError(f"cut: mx1 was not taken for dead, or mail is lost: {verdict.report()}")
        return verdict


def cut(report, o):
    verdicts = [cut_once(o) for _ in range(o.rounds)]
    twice = median([len(verdict.duplicates) for verdict in verdicts])
    report.row(f"a site cut off for {o.cut_seconds} s, {o.cut_rate} mails/s: mails", median([len(verdict.promised) for verdict in verdicts]), "")
    report.row("lost", float(max(len(verdict.lost) for verdict in verdicts)), "", goal="<= 0")
    report.row("delivered twice", twice, "")
    report.row("delivered twice, in seconds of mail", twice / o.cut_rate, "s")


PARTS = {"local": local, "paper": paper, "regions": by_region, "disk": on_disk, "bytes": carried, "cut": cut}


def run(report, o):
    for part in o.parts.split(","):
        if part not in PARTS:
            raise StackError(f"no part {part!r}; there is {', '.join(PARTS)}")
        PARTS[part](report, o)
