#!/usr/bin/python3
"""docs/benchmarks.md: one page of the newest figures, from docs/lab/results/NAME.json.

    page.py [--take] [--check]

--take first copies each build/bench/NAME.json that is newer than the result of that name. It leaves
out quick runs, and runs of a tree with changes: nobody could repeat them. --check writes nothing,
and fails where the page or a plot is not what the results give. A result is what report.py writes;
one that was filled from an older page has `load` and `source` beside it, and may lack figures.
"""
import json
import math
import re
import sys
import textwrap
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from report import BUILD, REPOSITORY, shown  # noqa: E402 (after the path)

LAB = REPOSITORY / "docs/lab"
RESULTS = LAB / "results"
PAGE = REPOSITORY / "docs/benchmarks.md"
ROWS, REMARKS = 8, 2  # of a benchmark on the page

# In their order on the page: the page of the lab that tells more, and which rows are shown, if
# there are more than ROWS. The first row is the one of the summary.
QUEUE, MAILBOX, BOTH = "Queue half", "Mailbox half", "Both halves"
BENCHMARKS = {
    "gateway": (QUEUE, "gateway", [
        r"end to end, 70/30, Dovelane$", r"end to end, 70/30, Dovelane by proxy$",
        r"our CPU, 70/30, Dovelane( by proxy)?$", r"dot to 250 p50, half.*Dovelane( by proxy)?$",
        r"250 to the next hop's 250, p50, half.*Dovelane$"]),
    "postfix": (QUEUE, "gateway", []),
    "relay": (QUEUE, "relay", []),
    "recovery": (QUEUE, "relay", []),
    "ordered": (QUEUE, "relay", []),
    "shape": (QUEUE, "shape", [
        r"^10,000/s over 3 relays: least", r"^10,000/s over 3 relays, killed: (least|fullest 10)",
        r"^1/s over 3 relays: fullest 10", r"^100 next hops", r"10 connections, the stock",
        r"another next hop", r"next hops with .* mails each$"]),
    "lane": (QUEUE, "lane", [
        r"0\.4 KB, 1 a command", r"0\.4 KB, 10 a command", r"^20 KB", r"fill cold memory",
        r"PUSH and ACK on a lane of"]),
    "geo": (QUEUE, "geo", []),
    "soak": (QUEUE, "gateway", [r"mails in and out", r"twice", r"resident memory", r"SIGTERM"]),
    "lag": (MAILBOX, "replication", [r"p50", r"backlog", r"seeding", r"A's return"]),
    "imap": (MAILBOX, "replication", [r"^\w+ p50, Dovelane"]),
    "unchanged": (MAILBOX, "replication", []),
    "plugin": (MAILBOX, "replication", []),
    "mailbox": (MAILBOX, "mailbox", [
        r"deliver to 1 mailbox", r"list all, \w+:", r"fetch unread, 1 client", r"fetch read, 10",
        r"delete, 1 client", r"submit with a copy, 10", r"periodic fetch, large", r"deliver 200"]),
    "instructions": (MAILBOX, "instructions", [
        r"sdbox: instructions$", r"in turn", r"delete, (sdbox|mdbox): "]),
    "users": (MAILBOX, "users", []),
    "seeding": (MAILBOX, "users", [r"mails a second", r"all mails there", r"workers", r"UID"]),
    "fair": (MAILBOX, "replication", []),
    "linear": (MAILBOX, "mailbox", [r"^expunge", r"MOVE", r"mails$"]),
    "orset": (MAILBOX, "orset", []),
    "end-to-end": (BOTH, "two-disks", [r"leave the lanes", r"milter and nodes", r"to safe, p50"]),
    "commit": (BOTH, "two-disks", []),
}

# What a reader must know to read the rows.
NOTES = {
    "gateway": "The floor is Postfix with a milter, or a proxy, that only discards: the most that "
               "Postfix can take. 70/30 is a mix of mails of 1 KB and 10 KB. The dot ends a mail, "
               "and 250 is the answer to it. Both nodes are on this machine. A node on another "
               "host adds its round trip to the 250.",
    "relay": "Both empty the same queue into the same next hop. smtp-sink takes mail and drops it.",
    "recovery": "A refill brings back all mail of a node whose Redis is empty.",
    "ordered": "Ordered mail of one next hop leaves one by one, in the order in which it came.",
    "shape": "A rate is the whole group's. Killed: Redis and relay of the node that counts end by "
             "kill -9, and the figure is of what comes then.",
    "lane": "Rates are of entries that are stored and removed again. Acks that ride come with the "
            "next push.",
    "geo": "GeoRep is a published system ([references](references.md)). Removed: a client goes on "
           "when its message is stored and removed again. In turn: after two round trips.",
    "soak": "Mail is sent at 80 % of the most that each way in takes.",
    "lag": "A and B are two sites. A client at A changes something, and a client at B sees it.",
    "imap": "Time of a command with replication, against that without. Brackets have the 95 % "
            "interval; for p50 and p99 its upper end is held against the goal.",
    "unchanged": "Time with replication against that without. Brackets have the 95 % interval; its "
                 "upper end is held against the goal.",
    "mailbox": "CPU of a stock Dovecot for an operation, divided by that with replication: 1 is as "
               "good as stock. Brackets have the 95 % interval. Close calls are judged by "
               "[instructions](#instructions).",
    "instructions": "An operation is of the client's imap process. Instructions hardly depend on "
                    "what else the machine does, so they tell where CPU is too close to tell.",
    "users": "A site is all that replicates there, and its Redis.",
    "seeding": "CPU is that of the workers, for each mail.",
    "fair": "A full home at B must not delay the others; ten times as many refusals may cost ten "
            "times as much.",
    "linear": "CPU of one change in a mailbox of a million mails, against one of a thousand.",
    "orset": "The state is what a site remembers of each mail, to merge changes.",
    "end-to-end": "A mail stays in memory until two sites have it on disk, against until one "
                  "has it.",
    "commit": "A reply that waits until another site has the mail, against one that does not wait.",
}

HEAD = """<!-- made by: tests/bench/page.py -->
# Benchmarks

How fast Dovelane is, beside what, and how to repeat it. Each benchmark runs Dovelane and what it is
held against by turns, on one machine.

* **ratio** is Dovelane's figure divided by the other one's.
* **goal** is held against the ratio, or against the figure where there is nothing to compare to.
* **A bar** says how many times better than the other one Dovelane is; where there is none, than the
  goal. Right of the line is better. A red bar misses its goal, a grey one has none.

The machines were small (two cores), and most had other work: the load says so. Compare ratios, not
rates of different days. [The lab](lab/index.md) has how each figure came to be, and how to
measure.
"""


def better(row):
    """How many times better than the comparator, else than the goal; None if that has no sense."""
    goal = re.match(r"(>=|<=)\s*([0-9.]+)", row.get("goal") or "")
    ratio, value = row.get("ratio"), row.get("value")
    more = goal[1] == ">=" if goal else row["unit"].endswith("/s")
    if ratio is None and goal and float(goal[2]) > 0 and value is not None and value > 0:
        ratio = value / float(goal[2])
    if not ratio or ratio <= 0:
        return None
    return ratio if more else 1 / ratio


def chosen(rows, patterns):
    """What is shown of a benchmark: those of its patterns, else those with a goal or comparator."""
    if len(rows) <= ROWS:
        return rows
    if patterns:
        found = [row for pattern in patterns for row in rows if re.search(pattern, row["measure"])]
        return list({id(row): row for row in found}.values())[:ROWS] or rows[:ROWS]
    held = [row for row in rows if row.get("goal") or row.get("comparator")]
    return (held or rows)[:ROWS]


def plain(text):
    """A measure's name in a cell."""
    return text.replace("|", "/")


def figure(value):
    return f"{value:,}" if isinstance(value, int) else shown(value)


def table(columns, lines):
    rule = "|" + "---|" * len(columns)
    return "\n".join([f"| {' | '.join(columns)} |", rule, *(f"| {' | '.join(l)} |" for l in lines)])


def item(text):
    return textwrap.fill(text, 100, initial_indent="* ", subsequent_indent="  ",
                         break_long_words=False, break_on_hyphens=False)


def cells(row):
    value = "" if row.get("value") is None else f"{figure(row['value'])} {row['unit']}".strip()
    against = ""
    if row.get("comparator"):
        theirs = row.get("comparator_value")
        against = row["comparator"] + ("" if theirs is None else f": {figure(theirs)}")
    met = {None: "", True: ", met", False: ", **not met**"}[row.get("met")]
    ratio = "" if row.get("ratio") is None else shown(row["ratio"])
    return [plain(row["measure"]), value, plain(against), ratio, (row.get("goal") or "") + met]


def number(text):
    """The number in what a program says of its version."""
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else text


def machine_of(result):
    where = result.get("machine") or {}
    said = f"{where['cores']} x {where['cpu']}" if where.get("cpu") else "machine not noted"
    if where.get("virtual") and "virtual" not in said:
        said += " (virtual)"
    load = result.get("load")
    if load is None and where.get("load_at_start") is not None:
        load = f"load average {where['load_at_start']:.1f} at the start"
    named = [("system", ""), ("postfix", "Postfix "), ("dovecot", "Dovecot "), ("redis", "Redis ")]
    known = result.get("versions") or {}
    versions = [name + number(known[key]) if name else known[key]
                for key, name in named if known.get(key)]
    return ", ".join([said, *versions]) + (f"; {load}" if load else "")


def goals(rows):
    held = [row["met"] for row in rows if row.get("met") is not None]
    return f"{sum(held)} of {len(held)}" if held else "no goals"


def options_of(result):
    return " ".join(f"{name}={value}" for name, value in (result.get("run_with") or {}).items())


def section(name, result, lab, patterns):
    rows = chosen(result["rows"], patterns)
    more = len(result["rows"]) - len(rows)
    commit = f", commit {result['commit'][:8]}" if result.get("commit") else ""
    words = options_of(result)
    repeat = f"tests/bench/run.py {name} {words}" if words else f"make bench-{name}"
    left = f" The other {more} rows are in [its file](lab/results/{name}.json)." if more else ""
    columns = ["what", "Dovelane", "against", "ratio", "goal"]
    about = f"{result['about'][0].upper()}{result['about'][1:]}."
    about = " ".join([about, NOTES.get(name, "")]).strip()
    about = textwrap.fill(about, 100, break_long_words=False, break_on_hyphens=False)
    parts = [f"### {name}", about, table(columns, map(cells, rows))]
    if svg(rows):
        parts.append(f"![Bars of the rows above](lab/results/{name}.svg)")
    items = [f"Measured {result['date'][:10]}{commit}: {machine_of(result)}.",
             f"Goals met: {goals(result['rows'])}.{left}",
             f"Repeat: `{repeat}`. More: [the lab](lab/{lab}.md)."]
    items[1:1] = result.get("remarks", [])[:REMARKS]
    return "\n\n".join([*parts, "\n".join(map(item, items))])


def svg(rows):
    """Bars on a logarithmic scale around the line at 1; "" when no row has one."""
    bars = [(row, better(row)) for row in rows]
    bars = [(row, value) for row, value in bars if value]
    if not bars:
        return ""
    most = max(2.0, *(max(value, 1 / value) for _, value in bars))
    left, half, high, top = 360, 150, 20, 6
    height = top * 2 + high * len(bars)
    middle, scale = left + half, half / math.log(most)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 2 * half + 70}" '
             f'height="{height}" font-family="Helvetica,Arial,sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>']
    for index, (row, value) in enumerate(bars):
        y, long = top + index * high, math.log(value) * scale
        colour = {True: "#4a6fa5", False: "#b5443c", None: "#9a9a9a"}[row.get("met")]
        name = row["measure"] if len(row["measure"]) <= 58 else row["measure"][:57] + "…"
        lines += [f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
                  f'<rect x="{min(middle, middle + long):.1f}" y="{y + 3}" '
                  f'width="{max(abs(long), 1):.1f}" height="{high - 6}" fill="{colour}"/>',
                  f'<text x="{max(middle, middle + long) + 5:.1f}" y="{y + 14}">{value:.3g}</text>']
    lines.append(f'<line x1="{middle}" y1="0" x2="{middle}" y2="{height}" stroke="#333"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def summary(results):
    lines = []
    for name, (half, _, patterns) in BENCHMARKS.items():
        if name in results:
            row = cells(chosen(results[name]["rows"], patterns)[0])
            ratio = f"ratio {row[3]}" if row[3] else ""
            said = f"{row[1]} ({ratio})" if row[1] and ratio else row[1] or ratio
            said = f"{row[0]}: {said}" + (f", against {row[2]}" if row[2] else "")
            lines.append([f"[{name}](#{name})", half, said, goals(results[name]["rows"])])
    return table(["benchmark", "of", "its first figure", "goals met"], lines)


def page(results):
    parts = [HEAD.rstrip("\n"), summary(results)]
    for half in (QUEUE, MAILBOX, BOTH):
        parts.append(f"## {half}")
        parts += [section(name, results[name], lab, patterns)
                  for name, (of, lab, patterns) in BENCHMARKS.items()
                  if of == half and name in results]
    missing = [f"`make bench-{name}`" for name in BENCHMARKS if name not in results]
    if missing:
        parts.append(f"No result is kept yet of {' and '.join(missing)}.")
    return "\n\n".join(parts) + "\n"


def read(folder=RESULTS):
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def left_out(result):
    """Why a run may not be shown, or None."""
    if any("quick run" in remark for remark in result.get("remarks", ())):
        return "it was a quick run"
    if "+" in (result.get("commit") or ""):
        return "its tree had changes that are not committed"
    return None if result["rows"] else "it has no figures"


def changed_options(name, result):
    """Options of the run that are not the benchmark's own."""
    defaults = __import__(f"bench_{name.replace('-', '_')}").OPTIONS
    used = result.get("details", {}).get("options", {})
    return {key: value for key, value in used.items() if defaults.get(key, value) != value}


def take():
    """Copies what is newer; single rounds stay behind."""
    kept = read()
    for name, result in read(BUILD / "bench").items():
        why = left_out(result) if name in BENCHMARKS else "page.py does not know it"
        if why is None and result["date"] <= kept.get(name, {"date": ""})["date"]:
            why = "the page has a newer one"
        if why is None:
            text = {**result, "run_with": changed_options(name, result)}
            text.pop("details", None)
            (RESULTS / f"{name}.json").write_text(json.dumps(text, indent=1) + "\n")
        print(f"{name}: {'taken' if why is None else f'left out, {why}'}")


def files(results):
    """{path: text} of all that is made."""
    made = {PAGE: page(results)}
    for name, result in results.items():
        plot = svg(chosen(result["rows"], BENCHMARKS[name][2]))
        if plot:
            made[RESULTS / f"{name}.svg"] = plot
    return made


def main():
    if "--take" in sys.argv[1:]:
        take()
    made = files(read())
    stray = set(RESULTS.glob("*.svg")) - made.keys()
    if "--check" in sys.argv[1:]:
        stale = [path for path, text in made.items()
                 if not path.exists() or path.read_text() != text]
        for path in [*stale, *stray]:
            print(f"{path.relative_to(REPOSITORY)} is not what the results give: make bench-page")
        return bool(stale or stray)
    for path in stray:
        path.unlink()
    for path, text in made.items():
        path.write_text(text)
    print(f"{PAGE}: {len(made) - 1} plots")
    return 0


if __name__ == "__main__":
    sys.exit(main())
