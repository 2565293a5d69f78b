"""Postfix's own tools, as people use them: smtp-source through stock Postfix, the milter and the
proxy to smtp-sink.

Every variant is a stack of its own, as in bench_gateway.py, tuned alike; they take each command in
turn, in an order that turns. A run begins with smtp-source and ends when smtp-sink has counted the
last mail. smtp-source says no times of single mails, so there is none here. Figures are medians.
"""
import contextlib
import os
import subprocess
import tempfile
import time

import cpu
from bench_gateway import groups_of, metrics, place, sink_count, stack_of, wait_for
from report import median
from support.stack import StackError

ABOUT = "smtp-source through stock Postfix, milter and proxy to smtp-sink"
OPTIONS = {"rounds": 5, "mails": 3000, "warmup": 1000, "sessions": 20, "length": 1024, "copies": 2,
           "dir": "/var/tmp", "disk": "auto", "variants": "stock,dovelane,libmilter,proxy",
           "loads": "a connection each,kept connections,10 recipients"}
QUICK = {"rounds": 1, "mails": 400, "warmup": 100}

TITLES = {"stock": "stock Postfix", "tmpfs": "stock, queue on tmpfs",
          "dovelane": "Dovelane, milter", "libmilter": "Dovelane, libmilter",
          "proxy": "Dovelane, proxy"}
# smtp-source's options: -d keeps a connection for the next mail, -r is recipients a mail.
LOADS = {"a connection each": [], "kept connections": ["-d"], "10 recipients": ["-d", "-r", "10"]}
GOALS = {"dovelane": ">= 1.3", "proxy": ">= 2.0"}
DIVERTED = "dovelane_mails_diverted_total"


def command(address, load, mails, options):
    words = ["smtp-source", "-s", options.sessions, "-l", options.length, "-m", mails, *LOADS[load],
             "-f", "s@x.example", "-t", "b@sink.example", address]
    return [str(word) for word in words]


def send(stack, load, mails, options):
    """One run: mails a second in and to the end, and CPU a mail."""
    sink = stack["sink-sink"]
    had, counters = sink_count(sink.log)[0], metrics(stack)
    services, master = groups_of(stack), stack["postfix"].pid
    before, start = cpu.snapshot(services, master), time.time_ns()
    done = subprocess.run(command(stack.smtp, load, mails, options), capture_output=True,
                          check=False)
    answered = time.time_ns()
    if done.returncode != 0 or done.stderr:
        raise StackError(f"{load}: {done.stderr.decode(errors='replace').strip()[-500:]}")
    out = wait_for(sink.log, had + mails)
    time.sleep(0.2)  # acks and unlinked queue files belong to the mails' cost
    spent, after = cpu.used(before, cpu.snapshot(services, master), generator=0), metrics(stack)
    return {"in": mails / (answered - start) * 1e9, "rate": mails / (out - start) * 1e9,
            "cpu": cpu.ours(spent) / mails, "twice": sink_count(sink.log)[0] - had - mails,
            "diverted": (after[DIVERTED] - counters[DIVERTED]) / mails if after else None}


def one_round(number, options):
    """(variant, load, result) of each."""
    variants = options.variants.split(",")
    with contextlib.ExitStack() as open_now:
        stacks = {}
        for variant in variants:
            directory = open_now.enter_context(
                tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
            os.chmod(directory, 0o755)
            stacks[variant] = open_now.enter_context(stack_of(variant, directory, options))
            send(stacks[variant], "kept connections", options.warmup, options)
        for turn, load in enumerate(options.loads.split(",")):
            first = (number + turn) % len(variants)
            for variant in variants[first:] + variants[:first]:
                yield variant, load, send(stacks[variant], load, options.mails, options)


def run(report, options):
    if os.geteuid() != 0:
        raise StackError("Postfix's master must be started by root: run this as root")
    for load in options.loads.split(","):
        if load not in LOADS:
            raise StackError(f"loads: there is no {load!r}, but {', '.join(LOADS)}")
    found = {}
    with place(options) as (options.dir, where):
        for number in range(options.rounds):
            for variant, load, result in one_round(number, options):
                found.setdefault((load, variant), []).append(result)
                print(f"  round {number + 1} {load:<18} {variant:<10} {result['rate']:6.0f} mails/s"
                      f"  {result['cpu']:.2f} ms of CPU", flush=True)
    options.dir = str(options.dir)
    order = [(load, variant) for load in options.loads.split(",")
             for variant in options.variants.split(",")]
    figures = {key: {name: median([each[name] for each in found[key]])
                     for name in ("in", "rate", "cpu")} for key in order}
    for (load, variant), one in figures.items():
        stock = figures.get((load, "stock"), {})
        if variant != "stock":
            report.row(f"end to end, {load}, {TITLES[variant]}", one["rate"], "mails/s",
                       TITLES["stock"], stock.get("rate"), GOALS.get(variant))
            report.row(f"CPU, {load}, {TITLES[variant]}", one["cpu"], "ms/mail", TITLES["stock"],
                       stock.get("cpu"))
            least = min((each["diverted"] for each in found[load, variant]
                         if each["diverted"] is not None), default=None)
            report.row(f"mails through lanes, {load}, {TITLES[variant]}", least, "share",
                       goal=">= 1.0")
    report.table("Mails a second: answered 250, and out at smtp-sink; CPU of all of a mail's way",
                 ["smtp-source", "variant", "in/s", "out/s", "of stock", "CPU ms/mail"],
                 [[load, TITLES[variant], one["in"], one["rate"],
                   one["rate"] / figures[load, "stock"]["rate"] if (load, "stock") in figures
                   else None, one["cpu"]] for (load, variant), one in figures.items()])
    commands = [" ".join(command("HOST:PORT", load, options.mails, options)) for load in LOADS]
    report.remark(f"{options.rounds} rounds, by turns, {options.copies} copies, disk: {where}. "
                  + "; ".join(commands))
    twice = sum(each["twice"] for rounds in found.values() for each in rounds)
    if twice:
        report.remark(f"{twice} mails came out more than once.")
    report.detail("rounds", {", ".join(key): rounds for key, rounds in found.items()})
