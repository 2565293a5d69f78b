"""What a benchmark hands over: figures with what they are compared to, as a table for people and as JSON.

A row is {measure, value, unit, comparator, comparator_value, ratio, goal, met}. A goal is written ">= 0.6" or "<= 2 ms"; it is
held against the ratio where there is a comparator, else against the value. Figures that are given to no goal have None there.
"""
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DOVELANE_BUILD") or REPOSITORY / "build").resolve()
GOAL = re.compile(r"(>=|<=)\s*([0-9.]+(?:e[-+]?\d+)?)")


def output(*command):
    """First line that a command prints, or None."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False, cwd=REPOSITORY)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def first_match(path, pattern):
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None


def machine():
    """What the figures depend on."""
    memory = first_match("/proc/meminfo", r"^MemTotal:\s*(\d+)")
    return {"cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.processor(), "cores": os.cpu_count(),
            "memory_mb": int(memory) // 1024 if memory else None, "kernel": platform.release(),
            "virtual": first_match("/proc/cpuinfo", r"^flags\s*:.*\b(hypervisor)\b") is not None,
            "load_at_start": os.getloadavg()[0]}


def versions():
    return {"system": first_match("/etc/os-release", r'^PRETTY_NAME="(.*)"'),
            "postfix": output("/usr/sbin/postconf", "-dh", "mail_version"),
            "dovecot": output("/usr/sbin/dovecot", "--version"),
            "redis": output(os.environ.get("DOVELANE_REDIS_SERVER") or "redis-server", "--version"),
            "gcc": output("gcc", "-dumpfullversion"), "python": platform.python_version()}


def commit():
    """The commit that was measured, with "+changes" when the folder differs from it."""
    name = output("git", "rev-parse", "--short=12", "HEAD")
    changed = output("git", "status", "--porcelain", "--untracked-files=no")
    return f"{name}+changes" if changed else name


def rounded(value):
    """Four digits that mean something."""
    if not isinstance(value, float) or value == 0:
        return value
    return float(f"{value:.4g}")


def shown(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return str(value)


def median(values):
    return float(statistics.median(values))


class Report:
    """The figures of one benchmark."""

    def __init__(self, name, about=""):
        self.name, self.about = name, about
        self.date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.machine, self.versions, self.commit = machine(), versions(), commit()
        self.rows, self.tables, self.remarks, self.details = [], [], [], {}

    def row(self, measure, value, unit, comparator=None, comparator_value=None, goal=None):
        """Adds one figure."""
        ratio = value / comparator_value if comparator_value else None
        met = None
        if goal is not None:
            found = GOAL.match(goal)
            held = ratio if comparator is not None else value
            met = held is not None and (held >= float(found[2]) if found[1] == ">=" else held <= float(found[2]))
        self.rows.append({"measure": measure, "value": rounded(value), "unit": unit, "comparator": comparator,
                          "comparator_value": rounded(comparator_value), "ratio": rounded(ratio), "goal": goal, "met": met})

    def table(self, title, columns, lines):
        """Adds a table for people; what it shows should also be in rows."""
        self.tables.append((title, columns, lines))

    def remark(self, text):
        """A sentence under the tables: what the reader must know to believe the figures."""
        self.remarks.append(text)

    def detail(self, name, value):
        """Anything else worth keeping in the JSON: settings, single rounds."""
        self.details[name] = value

    def goals(self):
        """How many goals there are, and how many are met."""
        held = [row["met"] for row in self.rows if row["goal"]]
        return f"{sum(held)} of {len(held)} goals met" if held else "no goals"

    def as_dict(self):
        """What is kept of it; page.py makes docs/benchmarks.md of such."""
        return {"name": self.name, "about": self.about, "machine": self.machine,
                "versions": self.versions, "date": self.date, "commit": self.commit,
                "rows": self.rows, "remarks": self.remarks, "details": self.details}

    def write(self):
        """build/bench/NAME.json."""
        path = BUILD / "bench" / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        return path

    def text(self):
        """All of it, in Markdown that reads well as plain text."""
        where = self.machine
        parts = [f"## {self.name}: {self.about}" if self.about else f"## {self.name}",
                 f"{self.date}, commit {self.commit}, {where['cores']} x {where['cpu']}{' (virtual)' if where['virtual'] else ''}, "
                 f"{where['memory_mb']} MB, Linux {where['kernel']}, {self.versions['system']}, "
                 f"Postfix {self.versions['postfix']}"]
        parts += [f"{title}\n\n{markdown(columns, lines)}" for title, columns, lines in self.tables]
        rows = self.rows if not self.tables else [row for row in self.rows if row["goal"] or row["comparator"]]
        if rows:
            parts.append(markdown(["measure", "value", "against", "ratio", "goal", ""], [line_of(row) for row in rows]))
        if self.remarks:
            parts.append("\n".join(f"- {remark}" for remark in self.remarks))
        return "\n\n".join(parts) + "\n"


def line_of(row):
    """A row as cells."""
    against = "" if row["comparator"] is None else f"{row['comparator']}: {shown(row['comparator_value'])}"
    return [row["measure"], f"{shown(row['value'])} {row['unit']}", against, shown(row["ratio"]), row["goal"] or "",
            {None: "", True: "met", False: "NOT MET"}[row["met"]]]


def markdown(columns, lines):
    """A table whose columns line up; numbers to the right."""
    cells = [[cell if isinstance(cell, str) else shown(cell) for cell in line] for line in lines]
    wide = [max(len(cell) for cell in column) for column in zip(columns, *cells)]
    right = [index > 0 and all(re.fullmatch(r"[-+]?[\d,.]*( \D+)?", line[index]) for line in cells)
             for index in range(len(columns))]

    def one(line):
        return "| " + " | ".join(cell.rjust(width) if to_right else cell.ljust(width)
                                 for cell, width, to_right in zip(line, wide, right)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if to_right else "-") for width, to_right in zip(wide, right)) + "|"
    return "\n".join([one(columns), rule, *map(one, cells)])
