#!/usr/bin/python3
"""docs/benchmarks.md and its plots are what docs/lab/results gives, and each benchmark can be on it.

    usage: check_benchmarks.py

Each tests/bench/bench_NAME.py has what run.py asks of it, and a place on the page (page.py). What
report.py writes of a run can be shown; a quick run, and one of a changed tree, are left out.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
sys.dont_write_bytecode = True
import page  # noqa: E402 (after the path)
from report import Report  # noqa: E402 (after the path)

NEEDED = {"ABOUT", "OPTIONS", "QUICK", "run"}


def defined(path):
    """Names that a module defines; it is not run."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def benchmarks():
    found = {}
    for path in (ROOT / "tests/bench").glob("bench_*.py"):
        found[path.stem.removeprefix("bench_").replace("_", "-")] = set(defined(path))
    return found


def faults(found, known, results):
    for name, names in sorted(found.items()):
        if NEEDED - names:
            yield f"bench {name} lacks {', '.join(sorted(NEEDED - names))}"
    for name in sorted(found.keys() ^ known.keys()):
        yield f"{name} is a benchmark, or a place of page.py's BENCHMARKS, and not both"
    for name, (_, lab, patterns) in known.items():
        if not (page.LAB / f"{lab}.md").exists():
            yield f"page.py: {name} is to be in docs/lab/{lab}.md, which does not exist"
        for pattern in patterns if name in results else ():
            if not any(re.search(pattern, row["measure"]) for row in results[name]["rows"]):
                yield f"page.py: no row of {name} has {pattern}"


def self_test():
    """A run's report is shown, with its goals and its bar."""
    report = Report("gateway", "a way")
    report.commit = "abcdef123456"
    report.row("rate", 30, "/s", "another", 10, ">= 2")
    report.row("time", 4.0, "ms", goal="<= 2")
    report.row("size", 5, "MB")
    text = page.section("gateway", report.as_dict(), "gateway", [])
    for said in ("| rate | 30 /s | another: 10 | 3 | >= 2, met |", "**not met**", "1 of 2", "\n\nA way. The"):
        assert said in text, (said, text)
    bars = [page.better(row) for row in report.rows]
    assert bars == [3.0, 0.5, None], bars
    assert page.left_out(report.as_dict()) is None
    report.commit += "+changes"
    assert page.left_out(report.as_dict())
    assert page.left_out({**report.as_dict(), "commit": None, "remarks": ["A quick run: good"]})
    assert list(faults({"gone": set()}, {}, {})) and not list(faults({}, {}, {}))


def main():
    self_test()
    results = page.read()
    said = list(faults(benchmarks(), page.BENCHMARKS, results))
    print(*said, sep="\n")
    sys.argv = ["page.py", "--check"]
    stale = page.main()
    print(f"benchmarks: {len(results)} results read, {len(said)} complaints")
    return bool(said or stale or not results)


if __name__ == "__main__":
    sys.exit(main())
