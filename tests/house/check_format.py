#!/usr/bin/env python3
"""C sources are as .clang-format says, and their lines end at column 100.

Pictures and tables in comments may be wider. Which line ends where is the formatter's word, and each
of its versions has its own: without clang-format-14 (Debian 12's) only the columns are looked at.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, PICTURE = 100, 170
FORMATTER = shutil.which("clang-format-14")
AT_ONCE = 50


def sources():
    listed = subprocess.run(["git", "ls-files", "*.c", "*.h"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split()]
    return [path for ending in ("c", "h") for path in ROOT.rglob(f"*.{ending}")
            if not any(part.startswith("build") for part in path.relative_to(ROOT).parts)]


def comment_lines(text):
    """Numbers of the lines that a block comment begins or fills."""
    found = set()
    for match in re.finditer(r"^[ \t]*/\*.*?\*/", text, re.S | re.M):
        first = text.count("\n", 0, match.start()) + 1
        found.update(range(first, first + match.group().count("\n") + 1))
    return found


def wide(path):
    text = path.read_text(encoding="utf-8")
    comments = comment_lines(text)
    for number, line in enumerate(text.split("\n"), 1):
        most = PICTURE if number in comments else COLUMNS
        if len(line) > most:
            yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, more than {most}"


def unformatted(paths):
    for i in range(0, len(paths), AT_ONCE):
        told = subprocess.run([FORMATTER, "--dry-run", "--Werror", *paths[i:i + AT_ONCE]], cwd=ROOT, capture_output=True, text=True)
        for line in told.stderr.splitlines():
            if "clang-format-violations" in line:
                yield line.replace(f"{ROOT}/", "") + ": `make format` mends it"


def main():
    paths = sources()
    found = [line for path in paths for line in wide(path)]
    if FORMATTER:
        found += unformatted(paths)
    print("\n".join(found[:50]))
    print(f"{len(paths)} sources, {len(found)} lines are not as they are to be")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
