"""The gateway against Postfix's disk queue and against its own floor, in one run.

    stock      Postfix takes each mail into its disk queue and relays it to smtp-sink
    floor      Postfix with a milter that discards; the generator itself fills smtp-sink at the same rate
    dovelane   Postfix with dovelane-milter, copies on 2 nodes, relays that empty them to smtp-sink

In each round every variant gets a fresh stack of its own and a warm-up; then they take each size in turn, one at a time, in an
order that turns. A run ends when smtp-sink has counted its last mail. Figures are medians of the
rounds. disk=own puts everything below `dir` as it is, disk=journal on an ext4 with a journal in a file there, auto takes the
first unless it is an ext4 without a journal (disk.py). wait=N waits up to N seconds before each run for a quiet machine.
"""
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time

import cpu
import disk
from report import BUILD, median
from stack import Stack, StackError

ABOUT = "mail through Postfix, two nodes and relays to smtp-sink"
OPTIONS = {"rounds": 3, "mails": 6000, "warmup": 1500, "sessions": 20, "per_connection": 0, "copies": 2, "dir": "/var/tmp",
           "disk": "auto", "variants": "stock,floor,dovelane", "sizes": "1 KB,10 KB,70/30", "rate": 400, "rate_mails": 2000,
           "wait": 0}
QUICK = {"rounds": 1, "mails": 1000, "warmup": 300, "rate_mails": 400}

SIZES = {"1 KB": "1024", "10 KB": "10240", "70/30": "1024:70,10240:30"}
TITLES = {"stock": "stock Postfix", "floor": "floor (discard)", "dovelane": "Dovelane"}
PACED = "paced"  # the run at a fixed rate, beside the sizes; it sends the last of them
PATIENCE = 120
DIVERTED = "dovelane_mails_diverted_total"

# What makes stock Postfix fastest for one near next hop; the stack itself sets in_flow_delay = 0, max_use = 100000, no peer name
# lookups and no client limits (tests/stack/postfix.py). The connection cache is off because it costs more CPU (scache, passing
# descriptors) than a new connection on loopback: docs/benchmarks.md.
TUNED = {
    "default_destination_concurrency_limit": 20,
    "initial_destination_concurrency": 20,
    "smtp_connection_cache_on_demand": "no",
    "qmgr_message_active_limit": 100000,
    "qmgr_message_recipient_limit": 100000,
}
POSTFIX = {"stock": "stock", "floor": "discard", "dovelane": "divert"}


def groups_of(stack):
    """pid to the name under which its CPU is reported."""
    names = {}
    for name, service in stack.services.items():
        if name != "postfix" and service.pid:
            names[service.pid] = name.partition("-")[0]
    return names


def sink_count(log):
    """(mails that smtp-sink has counted, when it wrote that). It writes its counters at each mail's end."""
    with open(log, "rb") as file:
        written = os.fstat(file.fileno()).st_mtime_ns
        file.seek(max(0, os.fstat(file.fileno()).st_size - 200))
        last = file.read().rpartition(b"mesg=")[2].split()
    return (int(last[0]) if last else 0), written


def wait_for(log, wanted):
    """When the sink counted the last one (CLOCK_REALTIME, ns)."""
    end = time.monotonic() + PATIENCE
    seen, moved = None, time.monotonic()
    while True:
        count, written = sink_count(log)
        if count >= wanted:
            return written
        if count != seen:
            seen, moved = count, time.monotonic()
        if time.monotonic() > end and time.monotonic() - moved > 10:
            raise StackError(f"{wanted - count} mails have not come out {PATIENCE} s after the last came in; see {log}")
        time.sleep(0.005)


def metrics(stack):
    """Counters of dovelane-milter; of another milter, or none, nothing."""
    if stack.shape.postfix != "divert":
        return {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(stack["milter"].note["metrics"])
        text = b"".join(iter(lambda: connection.recv(65536), b""))
    return {line.split()[0]: float(line.split()[1]) for line in text.decode().splitlines() if line and not line.startswith("#")}


def send(stack, variant, size, mails, options, rate=0):
    """One run: what the generator says, when the last mail was out, and who used how much CPU. rate 0: closed loop."""
    sink = stack["sink-sink"]
    argv = [BUILD / "tests" / "bench" / "smtp_load", "--to", stack.smtp, "--mails", mails, "--sessions", options.sessions,
            "--per-connection", options.per_connection, "--sizes", SIZES[size], "--domain", "sink.example",
            "--rate", rate, "--run", f"{variant}{time.time_ns()}"]
    if variant == "floor":
        argv += ["--also", sink.note["address"]]
    if options.wait:
        cpu.wait_quiet(options.wait)
    had, counters = sink_count(sink.log)[0], metrics(stack)
    services, master = groups_of(stack), stack["postfix"].pid
    before, began = cpu.snapshot(services, master), time.monotonic()
    done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise StackError(f"{variant}, {size}: {done.stderr.decode(errors='replace').strip()}; logs in {stack.directory}/log")
    load = json.loads(done.stdout)
    out = wait_for(sink.log, had + mails)
    time.sleep(0.2)  # what is still being tidied up (acks, unlinked queue files) belongs to the mails' cost
    spent, wall = cpu.used(before, cpu.snapshot(services, master), generator=load["cpu_ms"]), time.monotonic() - began
    seconds = (out - load["start_ns"]) / 1e9
    after = metrics(stack)
    answers = load["first"]["dot_to_250_ms"]
    return {"mails": mails, "seconds": seconds, "rate": mails / seconds, "rate_in": load["first"]["mails_per_second"],
            "p50": answers["p50"], "p99": answers["p99"], "p999": answers["p999"], "max": answers["max"],
            "due": load["first"].get("due_to_250_ms"), "twice": sink_count(sink.log)[0] - had - mails,
            "cpu_ms": {group: value / mails for group, value in spent.items()}, "cores": cpu.ours(spent) / 1000 / seconds,
            "others_share": spent["others"] / (wall * 1000 * os.cpu_count()),
            "diverted": (after[DIVERTED] - counters[DIVERTED]) / mails if after else None}


def stack_of(variant, directory, options):
    """A fresh stack, not yet started."""
    copies = options.copies if variant == "dovelane" else None
    return Stack(directory, postfix=POSTFIX[variant], sinks=["sink"], copies=copies, nodes=copies or 0,
                 sessions=options.sessions + 50, postconf=TUNED if variant == "stock" else {})


def one_round(number, options):
    """Every variant with every size. Yields (variant, size, result); size None: fsync times.

    All stacks of a round are there from its start, and one works at a time (an idle one uses under 1 % of a core), so that
    what is compared is measured within seconds of each other, whatever the machine does over minutes.
    """
    variants, sizes = options.variants.split(","), options.sizes.split(",")
    with contextlib.ExitStack() as open_now:
        stacks = {}
        for variant in variants:
            directory = open_now.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
            os.chmod(directory, 0o755)
            stacks[variant] = open_now.enter_context(stack_of(variant, directory, options))
        for variant, stack in stacks.items():
            yield variant, None, disk.fsync_ms(stack["postfix"].note["queue_directory"], 100)
            send(stack, variant, sizes[-1], options.warmup, options)
        for turn, size in enumerate([*sizes, PACED]):
            first = (number + turn) % len(variants)
            for variant in variants[first:] + variants[:first]:
                if size == PACED:
                    result = send(stacks[variant], variant, sizes[-1], options.rate_mails, options, options.rate)
                else:
                    result = send(stacks[variant], variant, size, options.mails, options)
                yield variant, size, result


def measure(options):
    """(variant, size) to the results of all rounds; and all fsync times."""
    found, durable = {}, []
    for number in range(options.rounds):
        for variant, size, result in one_round(number, options):
            if size is None:
                durable += result
                continue
            found.setdefault((variant, size), []).append(result)
            print(f"  round {number + 1} {size:<6} {variant:<9} {result['rate']:6.0f} mails/s  p50 {result['p50']:6.2f} "
                  f"p99 {result['p99']:6.2f} ms  others' CPU {100 * result['others_share']:.0f} %", flush=True)
    return found, sorted(durable)


def merged(rounds):
    """Medians of all rounds; CPU grouped as it is shown."""
    result = {name: median([entry[name] for entry in rounds])
              for name in ("rate", "rate_in", "p50", "p99", "p999", "cores", "others_share")}
    if rounds[0]["due"]:
        result["due"] = {name: median([entry["due"][name] for entry in rounds]) for name in ("p50", "p99")}
    result["twice"] = sum(entry["twice"] for entry in rounds)
    result["diverted"] = None if rounds[0]["diverted"] is None else min(entry["diverted"] for entry in rounds)
    groups = sorted({group for entry in rounds for group in entry["cpu_ms"]})
    result["cpu"] = {group: median([entry["cpu_ms"].get(group, 0.0) for entry in rounds]) for group in groups}
    result["postfix"] = median([sum(value for group, value in entry["cpu_ms"].items() if group.startswith("postfix/"))
                                for entry in rounds])
    ours = ("milter", "redis", "relay")
    result["ours"] = median([sum(entry["cpu_ms"].get(group, 0.0) for group in ours) for entry in rounds])
    result["all"] = median([cpu.ours(entry["cpu_ms"]) for entry in rounds])
    return result


def rows(report, results, options):
    """Every figure as a row; first what is compared, then each by itself."""
    for size in options.sizes.split(","):
        ours = results.get(("dovelane", size))
        if not ours:
            continue
        for other, goal in (("stock", ">= 1.0"), ("floor", ">= 0.6")):
            if (other, size) in results:
                report.row(f"end to end, {size}, Dovelane {options.copies} copies", ours["rate"], "mails/s", TITLES[other],
                           results[other, size]["rate"], goal)
        for other in ("stock", "floor"):
            if (other, size) in results:
                report.row(f"CPU, {size}, Dovelane {options.copies} copies", ours["all"], "ms/mail", TITLES[other],
                           results[other, size]["all"])
        report.row(f"mails through lanes, {size}", ours["diverted"], "share", goal=">= 1.0")
    for (variant, size), result in results.items():
        who = f"{size}, {TITLES[variant]}" if size != PACED else f"{options.rate} mails/s, {TITLES[variant]}"
        report.row(f"dot to 250 p50, {who}", result["p50"], "ms")
        report.row(f"dot to 250 p99, {who}", result["p99"], "ms")
        if size == PACED:
            continue
        report.row(f"end to end, {who}", result["rate"], "mails/s")
        report.row(f"CPU, {who}, all", result["all"], "ms/mail")
        report.row(f"CPU, {who}, postfix", result["postfix"], "ms/mail")
        for group, value in result["cpu"].items():
            report.row(f"CPU, {who}, {group}", value, "ms/mail")


def tables(report, results, options):
    order = sorted(results, key=lambda key: (key[1], list(TITLES).index(key[0])))
    sizes = [key for key in order if key[1] != PACED]
    report.table("Mails a second end to end (until the last is out) and in alone; cores busy with it; dot to 250 in ms (closed "
                 "loop: as fast as answers come, so under full load)",
                 ["size", "variant", "mails/s", "in/s", "cores", "p50", "p99", "p99.9"],
                 [[key[1], TITLES[key[0]], *(results[key][name] for name in ("rate", "rate_in", "cores", "p50", "p99", "p999"))]
                  for key in sizes])
    report.table(f"ms at {options.rate} mails/s, {options.sizes.split(',')[-1]} (open loop): from the dot, and from when the "
                 "mail was due, to the 250", ["variant", "dot p50", "dot p99", "dot p99.9", "due p50", "due p99"],
                 [[TITLES[key[0]], results[key]["p50"], results[key]["p99"], results[key]["p999"], results[key]["due"]["p50"],
                   results[key]["due"]["p99"]] for key in order if key[1] == PACED])
    groups = ["generator", "sink", "milter", "redis", "relay", "kernel"]
    report.table("CPU ms per mail (redis, relay: all nodes together; kernel: its threads, for the disk; ours: milter + redis + "
                 "relay)",
                 ["size", "variant", "all", "postfix", *groups, "ours"],
                 [[key[1], TITLES[key[0]], results[key]["all"], results[key]["postfix"],
                   *(results[key]["cpu"].get(group, 0.0) for group in groups), results[key]["ours"]] for key in sizes])
    daemons = sorted({group for key in sizes for group, value in results[key]["cpu"].items()
                      if group.startswith("postfix/") and value >= 0.005})
    report.table("CPU ms per mail of Postfix's programs", ["size", "variant", *(group[8:] for group in daemons)],
                 [[key[1], TITLES[key[0]], *(results[key]["cpu"].get(group, 0.0) for group in daemons)] for key in sizes])


@contextlib.contextmanager
def place(options):
    """(directory of the stacks, what it is on)."""
    if options.disk not in ("auto", "own", "journal"):
        raise StackError(f"disk={options.disk}: auto, own or journal")
    device, kind = disk.file_system(options.dir)
    if options.disk == "own" or (options.disk == "auto" and disk.has_journal(options.dir)):
        yield options.dir, f"{kind} on {device}"
        return
    with disk.journaled(options.dir) as directory:
        yield directory, f"ext4 with journal in a file on {device}"


def quiet(results, report):
    """Says so when the machine was not."""
    others = max(result["others_share"] for result in results.values())
    report.row("CPU of this machine that others used, worst variant", others, "share")
    if others > 0.1:
        report.remark(f"The machine was not quiet: others (and the hypervisor) used up to {100 * others:.0f} % of its CPU. "
                      "Rates and latencies are worth little then; CPU per mail still says something.")


def run(report, options):
    if os.geteuid() != 0:
        raise StackError("Postfix's master must be started by root: run this as root")
    for name in ("smtp_load", "discard_milter"):
        if not (BUILD / "tests" / "bench" / name).exists():
            raise StackError(f"{BUILD}/tests/bench/{name} is not built: run make")
    with place(options) as (options.dir, where):
        found, durable = measure(options)
    options.dir = str(options.dir)
    results = {key: merged(rounds) for key, rounds in found.items()}
    rows(report, results, options)
    tables(report, results, options)
    p50, p99 = durable[len(durable) // 2], durable[int(len(durable) * 0.99)]
    report.row("write + fsync of 1 KB in the queue directory, p50", p50, "ms")
    report.row("write + fsync of 1 KB in the queue directory, p99", p99, "ms")
    report.remark(f"Disk ({where}): write + fsync of 1 KB in the queue directory p50 {p50:.2f} ms, p99 {p99:.2f} ms.")
    report.remark(f"{options.rounds} rounds of {options.mails} mails per figure, {options.sessions} sessions, "
                  + (f"{options.per_connection} mails per connection." if options.per_connection else "connections kept."))
    quiet(results, report)
    twice = sum(result["twice"] for result in results.values())
    if twice:
        report.remark(f"{twice} mails came out more than once.")
    report.detail("stock_settings", TUNED)
    report.detail("disk", {"where": where, "fsync_p50_ms": p50, "fsync_p99_ms": p99, "times": len(durable)})
    report.detail("rounds", {f"{variant}, {size}": rounds for (variant, size), rounds in found.items()})
