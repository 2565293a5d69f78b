"""The gateway for a long time at a high load: does anything grow, is anything lost?

Each way in by itself: the most that it takes is measured, then the generator sends `share` percent of that (open loop), in pieces, and is the next hop itself: it counts each
mail that comes out, and those that come twice. Between the pieces memory and descriptors of every process of ours are noted. At the end of the last piece,
while its mails are under way, the way in is ended by SIGTERM: mails that are being stored get their answer, and no process of it stays.

What grew is what the last quarter has more than the second: the first is for buffers that find their size.
"""
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from bench_gateway import place, stack_of
from report import BUILD
from support.stack import StackError

LONG = True
ABOUT = "memory, descriptors and mails after a long time at a high load"
OPTIONS = {"minutes": 30, "share": 80, "ways": "dovelane,proxy", "sessions": 20, "copies": 2, "dir": "/var/tmp", "disk": "auto", "warmup": 2000, "commit_ms": 5}
QUICK = {"minutes": 1, "warmup": 500}
PIECE = 20  # seconds
GREW_MOST_KB = 4096
GREW_MOST_FDS = 20
LOG_MOST = 16 << 20


def load(stack, mails, rate, options):
    argv = [BUILD / "tests" / "bench" / "smtp_load", "--to", stack.smtp, "--mails", mails, "--sessions", options.sessions, "--per-connection", 50,
            "--sizes", "1024:70,10240:30", "--domain", "sink.example", "--rate", rate, "--next-hop", stack["sink-sink"].note["address"], "--run", f"soak{time.time_ns()}"]
    done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise StackError(f"{done.stderr.decode(errors='replace').strip()}; logs in {stack.directory}/log")
    return json.loads(done.stdout)


def empty_logs(stack):
    """Millions of mails write gigabytes of them. Each is opened for appending."""
    for log in (stack.directory / "log").iterdir():
        if log.stat().st_size > LOG_MOST:
            os.truncate(log, 0)


def sizes(stack):
    """Name to (resident KB, descriptors) of each process of ours; of Postfix, whose processes come and go, nothing."""
    found = {}
    for name, service in stack.services.items():
        if service.pid and name.partition("-")[0] in ("milter", "proxy", "redis", "relay"):
            status = Path(f"/proc/{service.pid}/status").read_text()
            found[name] = int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]), len(os.listdir(f"/proc/{service.pid}/fd"))
    return found


def end_under_load(stack, service, rate, options):
    """SIGTERM in the middle of a piece: how long it took to end, and its last line. What its clients are told is the generator's end: it may be anything."""
    def piece():
        try:
            load(stack, rate * 5, rate, options)
        except StackError:
            pass  # a 4xx, or Postfix's queue has some: the generator waits for mails that come later
    thread = threading.Thread(target=piece, daemon=True)
    thread.start()
    time.sleep(2)
    began = time.monotonic()
    stack.end(service)
    return time.monotonic() - began, Path(stack[service].log).read_text().rstrip().rpartition("\n")[2]


def grown(samples, name, index):
    """Between the second quarter and the last one, medians."""
    values = [sample[name][index] for sample in samples]
    quarter = max(1, len(values) // 4)
    second, last = sorted(values[quarter:2 * quarter]), sorted(values[-quarter:])
    return last[len(last) // 2] - second[len(second) // 2]


def soak(report, way, options):
    service = "milter" if way == "dovelane" else "proxy"
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        with stack_of(way, directory, options) as stack:
            stack.end("sink-sink")
            load(stack, options.warmup, 0, options)
            most = load(stack, 2 * options.warmup, 0, options)["first"]["mails_per_second"]
            rate = max(1, int(most * options.share / 100))
            samples, mails, twice, worst, end = [], 0, 0, 0.0, time.monotonic() + 60 * options.minutes
            while time.monotonic() < end or len(samples) < 4:
                said = load(stack, rate * min(PIECE, max(1, 15 * options.minutes)), rate, options)
                mails, twice, worst = mails + said["first"]["mails"], twice + said["twice"], max(worst, said["first"]["due_to_250_ms"]["p99"])
                samples.append(sizes(stack))
                empty_logs(stack)
                print(f"  {way}: {mails} mails at {rate}/s, p99 {said['first']['due_to_250_ms']['p99']:.1f} ms, KB and descriptors: {samples[-1]}", flush=True)
            took, last = end_under_load(stack, service, rate, options)
    report.row(f"{way}: mails in and out again, none lost", mails, "mails")
    report.row(f"{way}: rate, {options.share} % of {most:.0f}/s", rate, "mails/s")
    report.row(f"{way}: mails that came out twice", twice, "mails", goal="<= 0")
    report.row(f"{way}: due to 250, p99 of the worst piece", worst, "ms")
    for name in samples[0]:
        report.row(f"{way}: {name}, resident memory grew", grown(samples, name, 0), "KB", goal=f"<= {GREW_MOST_KB}")
        report.row(f"{way}: {name}, descriptors grew", grown(samples, name, 1), "descriptors", goal=f"<= {GREW_MOST_FDS}")
    report.row(f"{way}: SIGTERM under load, until {service} has ended", took, "s", goal="<= 20")
    if not last.endswith("ended"):
        raise StackError(f"{service} did not end by itself: {last}")
    report.detail(f"samples of {way}", samples)


def run(report, options):
    with place(options) as (options.dir, _):
        for way in options.ways.split(","):
            soak(report, way, options)
    options.dir = str(options.dir)
