"""The gateway against Postfix's disk queue and against its own floor, in one run.

    stock      Postfix takes each mail into its disk queue and relays it to smtp-sink
    tmpfs      the same with Postfix's queue in memory
    slow       the same with a disk whose commit takes 5 ms: emulated, with group commit (slow_commit.c)
    floor      Postfix with a milter that discards; the generator itself fills smtp-sink at the same rate
    dovelane   Postfix with dovelane-milter, copies on 2 nodes, relays that empty them to smtp-sink
    libfloor, libmilter  as floor and dovelane, with the milter's engine on libmilter (milter_engine)
    proxyfloor Postfix with an smtp-sink as its before-queue proxy; the generator itself fills the other smtp-sink at the same rate
    proxy      Postfix with dovelane-proxy, else as dovelane
    dovelane3, proxy3  the same with 3 copies on 3 nodes

In each round every variant gets a fresh stack of its own and a warm-up; then they take each load in turn, one at a time, in an
order that turns. A run ends when smtp-sink has counted its last mail. Figures are medians of the rounds.

Loads: sizes (closed loop, `sessions` kept connections); 1 KB with other sessions or with fresh connections, for some variants; "paced", the open loop, which runs at half of
what each variant took of the last size (rate=R: at R mails a second for all); "way", the same with the generator as next hop, for the time of each mail from its
250 to the next hop's 250.

disk=own puts everything below `dir` as it is, disk=journal on an ext4 with a journal in a file there, auto takes the
first unless it is an ext4 without a journal (disk.py). wait=N waits up to N seconds before each run for a quiet machine.
"""
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import cpu
import disk
from report import BUILD, median
from support.stack import Stack, StackError
from support.stack.process import MARK

ABOUT = "mail through Postfix, two nodes and relays to smtp-sink"
ALL = "stock,tmpfs,slow,floor,dovelane,libfloor,libmilter,dovelane3,proxyfloor,proxy,proxy3"
OPTIONS = {"rounds": 5, "mails": 3000, "warmup": 1000, "sessions": 20, "per_connection": 0, "copies": 2, "dir": "/var/tmp",
           "disk": "auto", "variants": ALL, "loads": "1 KB,10 KB,70/30,1 session,100 sessions,fresh,paced,way", "rate": 0, "rate_mails": 1500, "commit_ms": 5,
           "wait": 0}
QUICK = {"rounds": 1, "mails": 600, "warmup": 200, "rate_mails": 300, "variants": "stock,slow,floor,dovelane,proxyfloor,proxy"}

SIZES = {"1 KB": "1024", "10 KB": "10240", "70/30": "1024:70,10240:30"}
PACED, WAY = "paced", "way"
# Loads of 1 KB mails that differ in how they come: (sessions, mails per connection; None: as the options say).
SHAPES = {"1 session": (1, 0), "100 sessions": (100, 0), "fresh": (None, 1)}
SHAPED = ("stock", "floor", "dovelane", "libfloor", "libmilter", "proxyfloor", "proxy")
ON_LIBMILTER = {"libfloor", "libmilter"}
# A single session takes one mail at a time, and many mails would take long.
FEWER = {"1 session": 3, "fresh": 2}
TITLES = {"stock": "stock Postfix", "tmpfs": "stock, queue on tmpfs", "slow": "stock, emulated 5 ms commit", "floor": "floor (discard)",
          "dovelane": "Dovelane", "libfloor": "libmilter's floor (discard)", "libmilter": "Dovelane on libmilter",
          "dovelane3": "Dovelane, 3 copies", "proxyfloor": "proxy floor (swallow)", "proxy": "Dovelane by proxy",
          "proxy3": "Dovelane by proxy, 3 copies"}
PATIENCE = 120
DIVERTED = "dovelane_mails_diverted_total"

# What makes stock Postfix fastest for one near next hop; the stack itself sets in_flow_delay = 0, max_use = 100000, no peer name
# lookups and no client limits (tests/support/stack/postfix.py). The connection cache is off because it costs more CPU (scache, passing
# descriptors) than a new connection on loopback: docs/lab/gateway.md.
TUNED = {
    "default_destination_concurrency_limit": 20,
    "initial_destination_concurrency": 20,
    "smtp_connection_cache_on_demand": "no",
    "qmgr_message_active_limit": 100000,
    "qmgr_message_recipient_limit": 100000,
}
POSTFIX = {"stock": "stock", "tmpfs": "stock", "slow": "stock", "floor": "discard", "dovelane": "divert", "libfloor": "discard", "libmilter": "divert",
           "dovelane3": "divert", "proxyfloor": "swallow",
           "proxy": "proxy", "proxy3": "proxy"}
FLOORS = {"floor", "libfloor", "proxyfloor"}
# What each way in is held against, with the ratio it must reach: (other, goal).
AGAINST = {"dovelane": (("stock", ">= 1.3"), ("floor", ">= 0.8")), "proxy": (("stock", ">= 2.3"), ("proxyfloor", ">= 0.75")),
           "libmilter": (("dovelane", ""), ("libfloor", "")), "dovelane3": (("stock", ""), ("floor", "")), "proxy3": (("stock", ""), ("proxyfloor", ""))}
OURS_AT_MOST = {"dovelane": "<= 0.25", "proxy": "<= 0.15"}
FLOOR_OF = {"dovelane": "floor", "libmilter": "libfloor", "dovelane3": "floor", "proxy": "proxyfloor", "proxy3": "proxyfloor"}
PAPER_RATE = 3600  # mails a second, with 3 copies and the mix
OTHERS_OF_CORES = {"generator", "sink", "runner", "others", "awake"}  # run on other hosts


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
    """Counters of dovelane-milter or dovelane-proxy; without them nothing."""
    if stack.shape.postfix not in ("divert", "proxy"):
        return {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(stack["milter" if stack.shape.postfix == "divert" else "proxy"].note["metrics"])
        text = b"".join(iter(lambda: connection.recv(65536), b""))
    return {line.split()[0]: float(line.split()[1]) for line in text.decode().splitlines() if line and not line.startswith("#")}


def generator(stack, variant, load, mails, options, rate):
    """The generator's command line."""
    sink = stack["sink-sink"].note["address"]
    sessions, per_connection = SHAPES.get(load, (None, None))
    sizes = SIZES.get(load) or (SIZES["1 KB"] if load in SHAPES else SIZES[sizes_of(options)[-1]])
    argv = [BUILD / "tests" / "bench" / "smtp_load", "--to", stack.smtp, "--mails", mails, "--sessions", sessions or options.sessions,
            "--per-connection", options.per_connection if per_connection is None else per_connection, "--sizes", sizes, "--domain", "sink.example",
            "--rate", rate, "--run", f"{variant}{time.time_ns()}"]
    if load == WAY:
        argv += ["--next-hop", sink]
    elif variant in FLOORS:
        argv += ["--also", sink]
    return [str(word) for word in argv]


def generate(stack, variant, load, mails, options, rate):
    """Runs it; what it says."""
    done = subprocess.run(generator(stack, variant, load, mails, options, rate), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise StackError(f"{variant}, {load}: {done.stderr.decode(errors='replace').strip()}; logs in {stack.directory}/log")
    return json.loads(done.stdout)


def send(stack, variant, load, mails, options, rate=0):
    """One run: what the generator says, when the last mail was out, and who used how much CPU. rate 0: closed loop."""
    sink = stack["sink-sink"]
    if options.wait:
        cpu.wait_quiet(options.wait)
    had, counters = sink_count(sink.log)[0], metrics(stack)
    services, master = groups_of(stack), stack["postfix"].pid
    before, began = cpu.snapshot(services, master), time.monotonic()
    said = generate(stack, variant, load, mails, options, rate)
    out = wait_for(sink.log, had + mails)
    time.sleep(0.2)  # what is still being tidied up (acks, unlinked queue files) belongs to the mails' cost
    spent, wall = cpu.used(before, cpu.snapshot(services, master), generator=said["cpu_ms"]), time.monotonic() - began
    seconds = (out - said["start_ns"]) / 1e9
    after = metrics(stack)
    answers = said["first"]["dot_to_250_ms"]
    return {"mails": mails, "seconds": seconds, "rate": mails / seconds, "rate_in": said["first"]["mails_per_second"],
            "p50": answers["p50"], "p99": answers["p99"], "p999": answers["p999"], "max": answers["max"],
            "due": said["first"].get("due_to_250_ms"), "twice": sink_count(sink.log)[0] - had - mails,
            "cpu_ms": {group: value / mails for group, value in spent.items()}, "cores": cpu.ours(spent) / 1000 / seconds,
            "others_share": spent["others"] / (wall * 1000 * os.cpu_count()),
            "diverted": (after[DIVERTED] - counters[DIVERTED]) / mails if after else None}


def send_way(stack, variant, mails, options, rate):
    """The generator takes smtp-sink's place, for good: the last run of a stack."""
    stack.end("sink-sink")
    said = generate(stack, variant, WAY, mails, options, rate)
    way = said["way_ms"]
    return {"mails": mails, "rate": rate, "p50": way["p50"], "p99": way["p99"], "p999": way["p999"], "twice": said["twice"]}


def commit_file(directory):
    """What the programs of an emulated disk share."""
    return Path("/dev/shm") / f"{Path(directory).name}.commit"


def stack_of(variant, directory, options):
    """A fresh stack, not yet started."""
    stock = POSTFIX[variant] == "stock"
    copies = None if stock or variant in FLOORS else 3 if variant.endswith("3") else options.copies
    postconf = dict(TUNED) if stock else {}
    if variant == "slow":
        library = BUILD / "tests" / "bench" / "slow_commit.so"
        shared = commit_file(directory)
        shared.write_bytes(bytes(8))
        shared.chmod(0o666)  # of all daemons, whatever they run as
        postconf["import_environment"] = (f"MAIL_CONFIG MAIL_DEBUG MAIL_LOGTAG TZ LANG=C POSTLOG_SERVICE POSTLOG_HOSTNAME {MARK} LD_PRELOAD={library} "
                                          f"SLOW_COMMIT_FILE={shared} SLOW_COMMIT_MS={options.commit_ms}")
    settings = {"milter_engine": "libmilter" if variant in ON_LIBMILTER else "own"}
    return Stack(directory, postfix=POSTFIX[variant], sinks=["sink"], copies=copies, nodes=copies or 0, settings=settings,
                 sessions=max(options.sessions, 100) + 50, postconf=postconf, queue_tmpfs=variant == "tmpfs")


def sizes_of(options):
    return [load for load in options.loads.split(",") if load in SIZES]


def takes(variant, load):
    """Whether a variant gets a load."""
    return variant in SHAPED if load in SHAPES else variant not in FLOORS if load == WAY else True


def one_run(stack, variant, load, options, fastest):
    """fastest: mails a second that each variant took of the last size."""
    half = options.rate or int(fastest[variant] / 2)
    if load == WAY:
        return send_way(stack, variant, options.rate_mails, options, half)
    if load == PACED:
        return send(stack, variant, load, options.rate_mails, options, half)
    result = send(stack, variant, load, options.mails // FEWER.get(load, 1), options)
    if load == sizes_of(options)[-1]:
        fastest[variant] = min(result["rate"], result["rate_in"])
    return result


def one_round(number, options):
    """Every variant with every load. Yields (variant, load, result); load None: fsync times.

    All stacks of a round are there from its start, and one works at a time (an idle one uses under 1 % of a core), so that
    what is compared is measured within seconds of each other, whatever the machine does over minutes.
    """
    variants, loads = options.variants.split(","), options.loads.split(",")
    with contextlib.ExitStack() as open_now:
        stacks, fastest = {}, {}
        for variant in variants:
            directory = open_now.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
            os.chmod(directory, 0o755)
            open_now.callback(commit_file(directory).unlink, missing_ok=True)
            stacks[variant] = open_now.enter_context(stack_of(variant, directory, options))
        for variant, stack in stacks.items():
            yield variant, None, disk.fsync_ms(stack["postfix"].note["queue_directory"], 100)
            warm = send(stack, variant, sizes_of(options)[-1], options.warmup, options)
            fastest[variant] = min(warm["rate"], warm["rate_in"])
        for turn, load in enumerate(loads):
            first = (number + turn) % len(variants)
            for variant in variants[first:] + variants[:first]:
                if takes(variant, load):
                    yield variant, load, one_run(stacks[variant], variant, load, options, fastest)


def measure(options):
    """(variant, load) to the results of all rounds; and all fsync times."""
    found, durable = {}, []
    for number in range(options.rounds):
        for variant, load, result in one_round(number, options):
            if load is None:
                durable += result
                continue
            found.setdefault((variant, load), []).append(result)
            others = f"  others' CPU {100 * result['others_share']:.0f} %" if "others_share" in result else ""
            print(f"  round {number + 1} {load:<12} {variant:<10} {result['rate']:6.0f} mails/s  p50 {result['p50']:6.2f} p99 {result['p99']:6.2f} ms{others}", flush=True)
    return found, sorted(durable)


def merged_way(rounds):
    return {name: median([entry[name] for entry in rounds]) for name in ("rate", "p50", "p99", "p999")} | {"twice": sum(entry["twice"] for entry in rounds)}


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
    ours = ("milter", "proxy", "redis", "relay")
    result["ours"] = median([sum(entry["cpu_ms"].get(group, 0.0) for group in ours) for entry in rounds])
    result["all"] = median([cpu.ours(entry["cpu_ms"]) for entry in rounds])
    return result


def compare(report, way, load, against, results):
    """One way in against its floor and stock Postfix."""
    ours = results[way, load]
    for other, goal in against:
        if (other, load) in results:
            report.row(f"end to end, {load}, {TITLES[way]}", ours["rate"], "mails/s", TITLES[other], results[other, load]["rate"], *filter(None, [goal]))
            report.row(f"CPU, {load}, {TITLES[way]}", ours["all"], "ms/mail", TITLES[other], results[other, load]["all"])
    report.row(f"our CPU, {load}, {TITLES[way]}", ours["ours"], "ms/mail", goal=OURS_AT_MOST.get(way))
    report.row(f"mails through lanes, {load}, {TITLES[way]}", ours["diverted"], "share", goal=">= 1.0")


def cores_for_paper(result):
    """Of Postfix, milter or proxy, nodes and relays, for the rate of Kinoshita et al."""
    return PAPER_RATE / 1000 * sum(value for group, value in result["cpu"].items() if group not in OTHERS_OF_CORES)


def latencies(report, results, options):
    """The rows of the open loop and of the way."""
    for way, floor in FLOOR_OF.items():
        ours, least, slow = (results.get((variant, PACED)) for variant in (way, floor, "slow"))
        main = way in OURS_AT_MOST and options.sessions == 20
        if ours and least:
            report.row(f"dot to 250 p99 above the floor's, {pace(options)}, {TITLES[way]}", ours["p99"] - least["p99"], "ms", goal="<= 2" if main else None)
        if ours and slow:
            report.row(f"dot to 250 p50, {pace(options)}, {TITLES[way]}", ours["p50"], "ms", TITLES["slow"], slow["p50"], "<= 0.2" if main else None)
    for (variant, load), result in results.items():
        if load == WAY:
            ours = variant in FLOOR_OF
            report.row(f"250 to the next hop's 250, p50, {pace(options)}, {TITLES[variant]}", result["p50"], "ms", goal="<= 3" if ours else None)
            report.row(f"250 to the next hop's 250, p99, {pace(options)}, {TITLES[variant]}", result["p99"], "ms", goal="<= 20" if ours else None)


def rows(report, results, options):
    """Every figure as a row; first what is compared, then each by itself."""
    for load in sizes_of(options):
        for way, against in AGAINST.items():
            if (way, load) in results:
                compare(report, way, load, against, results)
    latencies(report, results, options)
    for (variant, load), result in results.items():
        if load == WAY:
            continue
        who = f"{load}, {TITLES[variant]}" if load != PACED else f"{pace(options)}, {TITLES[variant]}"
        report.row(f"dot to 250 p50, {who}", result["p50"], "ms")
        report.row(f"dot to 250 p99, {who}", result["p99"], "ms")
        if load == PACED:
            continue
        report.row(f"end to end, {who}", result["rate"], "mails/s")
        report.row(f"CPU, {who}, all", result["all"], "ms/mail")
        report.row(f"CPU, {who}, postfix", result["postfix"], "ms/mail")
        paper = variant == "proxy3" and load == "70/30"
        report.row(f"cores for {PAPER_RATE} mails/s without generator and sink, {who}", cores_for_paper(result), "cores", goal="<= 2" if paper else None)
        for group, value in result["cpu"].items():
            report.row(f"CPU, {who}, {group}", value, "ms/mail")


def pace(options):
    return f"{options.rate} mails/s" if options.rate else "half of what the variant can (the last size)"


def tables(report, results, options):
    loads = options.loads.split(",")
    order = sorted(results, key=lambda key: (loads.index(key[1]), list(TITLES).index(key[0])))
    closed = [key for key in order if key[1] not in (PACED, WAY)]
    report.table("The table has mails a second end to end (until the last is out) and in alone, and the cores busy with it. "
                 "It has ms from the dot to the 250 (closed loop: as fast as answers come, so under full load). "
                 f"The last column is cores for {PAPER_RATE:,}/s without generator and sink.",
                 ["load", "variant", "mails/s", "in/s", "cores", "p50", "p99", "p99.9", f"cores for {PAPER_RATE:,}/s"],
                 [[key[1], TITLES[key[0]], *(results[key][name] for name in ("rate", "rate_in", "cores", "p50", "p99", "p999")), cores_for_paper(results[key])]
                  for key in closed])
    if PACED in loads:
        report.table(f"The table has ms at {pace(options)}, {sizes_of(options)[-1]} (open loop). They are from the dot, and from when "
                     "the mail was due, to the 250.", ["variant", "mails/s", "dot p50", "dot p99", "dot p99.9", "due p50", "due p99"],
                     [[TITLES[key[0]], *(results[key][name] for name in ("rate_in", "p50", "p99", "p999")), results[key]["due"]["p50"],
                       results[key]["due"]["p99"]] for key in order if key[1] == PACED])
    if WAY in loads:
        report.table(f"The table has ms at {pace(options)}, {sizes_of(options)[-1]} (open loop). They are from a mail's 250 to the next hop's 250 (0 when that "
                     "came first).",
                     ["variant", "mails/s", "p50", "p99", "p99.9"], [[TITLES[key[0]], *(results[key][name] for name in ("rate", "p50", "p99", "p999"))] for key in order if key[1] == WAY])
    groups = ["generator", "sink", "milter", "proxy", "redis", "relay", "kernel"]
    report.table("CPU ms per mail (redis, relay: all nodes together; kernel: its threads, for the disk; ours: milter or proxy, redis, "
                 "relay)",
                 ["load", "variant", "all", "postfix", *groups, "ours"],
                 [[key[1], TITLES[key[0]], results[key]["all"], results[key]["postfix"],
                   *(results[key]["cpu"].get(group, 0.0) for group in groups), results[key]["ours"]] for key in closed])
    daemons = sorted({group for key in closed for group, value in results[key]["cpu"].items()
                      if group.startswith("postfix/") and value >= 0.005})
    report.table("CPU ms per mail of Postfix's programs", ["load", "variant", *(group[8:] for group in daemons)],
                 [[key[1], TITLES[key[0]], *(results[key]["cpu"].get(group, 0.0) for group in daemons)] for key in closed])


@contextlib.contextmanager
def place(options, megabytes=disk.IMAGE_MB):
    """(directory of the stacks, what it is on). A file system made for it has so many megabytes."""
    if options.disk not in ("auto", "own", "journal"):
        raise StackError(f"disk={options.disk}: auto, own or journal")
    device, kind = disk.file_system(options.dir)
    if options.disk == "own" or (options.disk == "auto" and disk.has_journal(options.dir)):
        yield options.dir, f"{kind} on {device}"
        return
    with disk.journaled(options.dir, megabytes) as directory:
        yield directory, f"ext4 with journal in a file on {device}"


def quiet(results, report):
    """Says so when the machine was not."""
    others = max(result.get("others_share", 0) for result in results.values())
    report.row("CPU of this machine that others used, worst variant", others, "share")
    if others > 0.1:
        report.remark(f"The machine was not quiet: others (and the hypervisor) used up to {100 * others:.0f} % of its CPU. "
                      "Rates and latencies are worth little then; CPU per mail still says something.")


def run(report, options):
    if os.geteuid() != 0:
        raise StackError("Postfix's master must be started by root: run this as root")
    for name in ("smtp_load", "discard_milter", "discard_libmilter", "slow_commit.so"):
        if not (BUILD / "tests" / "bench" / name).exists():
            raise StackError(f"{BUILD}/tests/bench/{name} is not built: run make")
    known = {*SIZES, *SHAPES, PACED, WAY}
    for load in options.loads.split(","):
        if load not in known:
            raise StackError(f"loads: there is no {load!r}, but {', '.join(sorted(known))}")
    if not sizes_of(options):
        raise StackError("loads: at least one size is needed, for the warm-up: 1 KB, 10 KB or 70/30")
    with place(options) as (options.dir, where):
        found, durable = measure(options)
    options.dir = str(options.dir)
    results = {key: merged_way(rounds) if key[1] == WAY else merged(rounds) for key, rounds in found.items()}
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
    report.detail("rounds", {f"{variant}, {load}": rounds for (variant, load), rounds in found.items()})
