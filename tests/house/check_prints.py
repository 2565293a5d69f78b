#!/usr/bin/env python3
"""Reads ctl/ and fails where it prints otherwise than by ctl/out.h, which escapes what a terminal would obey.

puts and fputs may print texts that are constants. What is not in the format itself is escaped, so a
newline there would be shown as \\x0a.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(r"\b(v?f?printf|v?dprintf|perror|psignal|fwrite|f?putc|json_dumpf|json_dumpfd|herror)\s*\(")
PUTS = re.compile(r"\bf?puts\s*\(\s*([^;]*)")
ESCAPED = re.compile(r'\bout(?:_error)?\s*\(\s*(?:"(?:\\.|[^"\\])*"\s*)+,[^;]*?"(?:\\.|[^"\\])*\\n')
CONSTANT = re.compile(r'"|HELP\b|help\b|v->help\)|l->heading\)|terminal \? "')


def faults(name, text):
    """Comments and texts do not count."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for each in ESCAPED.finditer(code):
        yield f"{name}: {each[0].split(chr(10))[0]}: a newline belongs into the format (ctl/out.h)"
    code = re.sub(r"\(\n\s*", "(", code)     # what is printed may begin on the next line
    for number, line in enumerate(code.splitlines(), 1):
        bare = re.sub(r'"(\\.|[^"\\])*"', '""', line)
        if FORBIDDEN.search(bare):
            yield f"{name}: {line.strip()}: out() and its siblings print strings (ctl/out.h)"
        found = PUTS.search(line)
        if found and not CONSTANT.match(found[1]):
            yield f"{name}: {line.strip()}: puts() is for texts that are constants (ctl/out.h)"


def main():
    assert list(faults("x.c", 'printf("%s", s);\n')) and list(faults("x.c", "puts(reply->str);\n"))  # it sees
    assert list(faults("x.c", "puts(\n    s);\n")) and not list(faults("x.c", 'puts(\n    "a");\n'))
    assert not list(faults("x.c", 'puts("a");\nsnprintf(a, 1, "printf(");\n'))
    assert list(faults("x.c", 'out("%s%s\\n", a,\n    b ? "\\n" : "");\n'))
    assert not list(faults("x.c", 'out("a\\n"\n    "%s\\n", a ? "b" : "");\nout("\\n");\n'))
    found = [fault for path in sorted((ROOT / "ctl").glob("*.[ch]")) if path.name not in ("out.c",) for fault in faults(path.name, path.read_text())]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
