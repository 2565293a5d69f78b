#!/usr/bin/env python3
"""Lines of documents end at column 100. Tables, code and pages that are made may be wider.

The README is a stranger's first page: all of its lines are held to that, and it has at most 170.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, FIRST, LINES = 100, "README.md", 170
MADE = {"benchmarks.md", "log-fields.md", "metrics.md", "postfix-parameters.md", "settings.md"}


def documents():
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    found = [ROOT / name for name in listed] or [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return [path for path in found if path.name not in MADE]


def wide(name, text):
    """A word that cannot be parted, as an address, may be longer."""
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and len(line) > COLUMNS and " " in line.strip() and line.lstrip()[0] not in "|<":
            yield f"{name}:{number}: {len(line)} columns, {COLUMNS} are allowed: {line[:60]}..."


def first(name, text):
    """The README: no line is let off, and they are few."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > LINES:
        yield f"{name}: {len(lines)} lines, {LINES} are allowed: move some to docs/"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{name}:{number}: {len(line)} columns, {COLUMNS} are allowed, also in tables"


def main():
    words = "word " * 20
    assert list(wide("x", f"{words}word\n")) and not list(wide("x", f"{words}\n".strip()))
    assert not list(wide("x", f"```\n{words}word\n```\n| {words}word |\n"))
    assert len(list(first("x", f"| {words}|\n" + "a\n" * LINES))) == 2
    found = [
        fault
        for path in documents()
        for fault in wide(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    found += first(FIRST, (ROOT / FIRST).read_text(encoding="utf-8"))
    print("\n".join(found))
    print(f"documents: {len(documents())} read, {len(found)} lines are too wide")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
