#!/usr/bin/env python3
"""What docs/bad-days.md quotes is printed by a program, and what it has an admin type exists.

In the first column of its tables a quote of two words and more is a line of a log or an answer:
each of its parts between "..." must stand in a text of the sources. A quote that begins with a
command is none. In the whole page each command of `dovelane` and `doveadm dovelane` must exist.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/bad-days.md"
SOURCES = ("*.c", "*.h", "packaging/systemd/*.in")
COMMANDS = r"(?:dovelane|doveadm|systemctl|postqueue|redis-cli)\b"
STRING = r'"((?:[^"\\\n]|\\.)*)"'


def texts(source):
    """The strings of a C file, those that follow each other as one; each part between formats."""
    for match in re.finditer(rf"{STRING}(?:\s*(?:PRI\w+\s*)?{STRING})*", source):
        whole = "".join(re.findall(STRING, match[0])).replace('\\"', '"').replace("%%", "\0")
        yield from (part.replace("\0", "%") for part in re.split(r"%[-+ #0-9.*]*[a-zA-Z]+", whole))


def quotes(page):
    """(line, quote) of the first columns."""
    for number, line in enumerate(page.split("\n"), 1):
        if line.startswith("| ") and line.count("|") == 4:
            for quote in re.findall(r"`([^`]+)`", line.split("|")[1]):
                if " " in quote and not re.match(COMMANDS, quote):
                    yield number, quote


def faults(page, printed, verbs):
    for number, quote in quotes(page):
        for part in quote.split("..."):
            part = part.strip(" :,;()%")
            if part and part not in printed:
                yield f"{number}: no program prints this: {part}"
    for kind, pattern in (("dovelane", r"(?<!doveadm )\bdovelane ([a-z]+)(?=[ `\n])"),
                          ("doveadm dovelane", r"doveadm dovelane ([a-z-]+)")):
        for match in re.finditer(pattern, page):
            if match[1] not in verbs[kind]:
                number = page.count("\n", 0, match.start()) + 1
                yield f"{number}: {kind} has no {match[1]}"


def read(pattern):
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True)
    found = [ROOT / name for name in listed.stdout.split()] or ROOT.rglob(pattern)
    paths = [path for path in found if not {"tests", "build"} & set(path.relative_to(ROOT).parts)]
    return [path.read_text(encoding="utf-8") for path in paths]


def known():
    """What is printed, and the commands that exist."""
    printed = [text for source in read("*.c") + read("*.h") for text in texts(source)]
    printed += read("packaging/systemd/*.in")
    ctl = (ROOT / "ctl/commands.c").read_text(encoding="utf-8")
    doveadm = (ROOT / "dovecot-plugin/doveadm/doveadm_dovelane.c").read_text(encoding="utf-8")
    verbs = {
        "dovelane": set(re.findall(r'(?m)^    \{"(\w+)", ', ctl)),
        "doveadm dovelane": set(re.findall(r'"dovelane ([a-z-]+)"', doveadm)),
    }
    return "\n".join(printed), verbs


def self_test():
    """Each kind of fault is found, and nothing else."""
    source = 'log("node %s is \\"dead\\" (%.0f s, "\n    "and nobody hears it): 5%% of %zu mails");'
    printed, verbs = "\n".join(texts(source)), {"dovelane": {"nodes"}, "doveadm dovelane": {"lag"}}
    good = ('| `node ... is "dead" (... s, and nobody hears it): 5% of ...` | c | `dovelane nodes` |\n'
            "| `doveadm dovelane lag` says so | c | d |\n")
    assert not list(faults(good, printed, verbs)), list(faults(good, printed, verbs))
    for bad in ("| `node ... is gone` | c | d |", "| a | b | `dovelane knots` |",
                "| a | b | `doveadm dovelane log -u USER` |"):
        assert len(list(faults(bad + "\n", printed, verbs))) == 1, bad


def main():
    self_test()
    page = PAGE.read_text(encoding="utf-8")
    found = [f"docs/bad-days.md:{fault}" for fault in faults(page, *known())]
    print("\n".join(found))
    print(f"bad days: {len(list(quotes(page)))} quotes, {len(found)} faults")
    return 1 if found or len(list(quotes(page))) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
