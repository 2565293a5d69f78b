#!/usr/bin/env python3
"""Header comments and messages are in the plain English of docs/style.md, as check_words.py has it.

    usage: check_comments.py [--list PREFIX | --write]

Read are the comments of each header (.h, .def), and each text in quotes of the product that reads
like a sentence: log lines, errors, findings, help. Counted are sentences of more than 25 words, and
words to avoid. Code, drawings, SQL and scripts do not count. comments_allowed.txt says how many a
file may have that is not rewritten yet: more is a fault. --write counts anew, and lets no sum grow.
--list prints what is counted in the files whose names begin with PREFIX.
"""

import pathlib
import re
import subprocess
import sys

import check_words
from check_words import WORDS

ROOT = check_words.ROOT
ALLOWED = pathlib.Path(__file__).with_name("comments_allowed.txt")
ROOMS = ("ctl", "dovecot-plugin", "lib", "milter", "proxy", "redis-module", "relay")
STRING = r'"(?:\\.|[^"\\\n])*"'
TOKEN = re.compile(rf"/\*.*?\*/|//[^\n]*|{STRING}|'(?:\\.|[^'\\\n])+'", re.S)
# Between two parts of one text there may be a macro as PRIu64: it is one word.
BETWEEN = re.compile(r"\s*(?:PRI\w+\s*)?\Z")
# A comment's sentence may begin with any name, and so does a row of a legend: "0: none; -1: no".
END = re.compile(r"(?<=[.!?])[\")]*\s+|[;,] +(?=-?\w+: )")
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH|PRAGMA|REPLACE|DROP)\b")
SCRIPT = re.compile(r"\b(redis\.call|local \w+ =|function\()")
ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
HEAD = """# What a file may have that is not rewritten yet (check_comments.py): sentences of more than
# 25 words, words to avoid. `check_comments.py --write` counts anew, and lets no sum grow.
"""


def names():
    listed = check_words.git("ls-files", "--cached", "--others", "--exclude-standard", *ROOMS)
    found = listed.split() or [path.relative_to(ROOT).as_posix()
                               for room in ROOMS for path in (ROOT / room).rglob("*.*")]
    return sorted(name for name in set(found)
                  if name.endswith((".c", ".h", ".def")) and (ROOT / name).exists())


def comment(text):
    """A comment as prose; a line that is set in by more than a list's item is a drawing or code."""
    lines = text[2:].removesuffix("*/").split("\n") if text.startswith("/*") else [text[2:]]
    bare = [re.sub(r"^\s*\* ?", "", line) for line in lines]
    return "\n".join("" if re.match(r"\s{2,}\S", line) and at else line.strip()
                     for at, line in enumerate(bare))


def message(text):
    """A text in quotes as prose: %s is a word, and a usage or what is set in is no prose."""
    said = re.sub(r"\\.", lambda found: ESCAPES.get(found[0], found[0]), text)
    said = re.sub(r"%[-+ #0]*(\*|\d+)?(\.(\*|\d+))?[hlzjt]*[a-zA-Z]", "value", said)
    return "\n".join("" if re.match(r"\s{2,}\S|.*\S {2,}\S|[A-Z \-]+$|usage: ", line) else line
                     for line in said.split("\n"))


def is_prose(said):
    words = said.split()
    names = sum("_" in word for word in words)
    return (len(words) > 3 and names < len(words) / 2 and not SQL.match(said)
            and not SCRIPT.search(said))


def proses(name, text):
    """Each comment of a header, and each text in quotes."""
    begun, end = "", None
    for token in TOKEN.finditer(text):
        if token[0][0] == "'":
            continue
        if token[0][0] == "/":
            if not name.endswith(".c"):
                yield comment(token[0])
            continue
        if end is not None and BETWEEN.match(text[end:token.start()]):
            begun += ("value" if "PRI" in text[end:token.start()] else "") + token[0][1:-1]
        else:
            yield message(begun)
            begun = token[0][1:-1]
        end = token.end()
    yield message(begun)


def page(name, text):
    """What is counted of a file, as check_words.py reads a page. An include is no prose."""
    text = re.sub(r'^\s*#\s*include\s+"[^"]*"', "", text, flags=re.M)
    kept = (said for said in proses(name, text) if is_prose(said))
    # A heading of a page is none here.
    return "\n\n".join(re.sub(r"^([#<])", r"\\\1", said.strip(), flags=re.M) for said in kept)


def show(pages, words, prefix):
    for name, text in pages.items():
        if not name.startswith(prefix):
            continue
        for count, said in check_words.sentences(text):
            if count > WORDS:
                print(f"{name}: {count}: {said}")
        for word, count in check_words.found_words(text, words):
            print(f"{name}: {count} x {word!r}")


def measured(text, words):
    """(long sentences, words to avoid) of what is counted."""
    long = sum(count > WORDS for count, _ in check_words.sentences(text))
    return long, sum(count for _, count in check_words.found_words(text, words))


def allowances(text):
    rows = (line.split() for line in text.split("\n") if line and line[0] != "#")
    return {name: (int(long), int(avoid)) for name, long, avoid in rows}


def faults(pages, allowed, words):
    for name, text in pages.items():
        for now, may, what in zip(measured(text, words), allowed.get(name, (0, 0)),
                                  (f"sentences of more than {WORDS} words", "words to avoid")):
            if now > may:
                yield f"{name}: {now} {what}, {may} are allowed: check_comments.py --list {name}"
    for name in sorted(allowed.keys() - pages.keys()):
        yield f"{ALLOWED.name}: there is no file {name}: check_comments.py --write"


def write(pages, allowed, words):
    rows = {name: measured(text, words) for name, text in pages.items()}
    for column, what in ((0, "long sentences"), (1, "words to avoid")):
        now, was = (sum(row[column] for row in each.values()) for each in (rows, allowed))
        if now > was:
            sys.exit(f"check_comments: {now} {what}, and {was} are allowed: shorten, then write")
    kept = [f"{name} {long} {avoid}\n" for name, (long, avoid) in rows.items() if long or avoid]
    ALLOWED.write_text(HEAD + "".join(kept), encoding="utf-8")


def self_test():
    assert [count for count, _ in check_words.sentences("A b. c_d e; 0: f g h. G.")] == [2, 2, 4, 1]
    words = {"whoever": "who"}
    text = ('#include "a b c d whoever.h"\n/* One. Whoever\n * reads ' + "word " * 26 + '.\n *\n'
            ' *    drawing whoever */\nint a; /* whoever */\n'
            'f("whoever takes %d "\n  "of the" PRIu64 "mails\\n", "SELECT whoever a b", \'"\');\n')
    assert measured(page("a.h", text), words) == (1, 2), page("a.h", text)
    assert measured(page("a.c", text), words) == (0, 1), page("a.c", text)
    long = 'f("' + "word " * 13 + '"\n "' + "word " * 13 + '");'
    assert measured(page("a.c", long), words) == (1, 0)
    assert measured(page("a.c", long.replace('"\n "', '", "')), words) == (0, 0)


def main():
    check_words.END = END
    self_test()
    words = check_words.avoided(check_words.STYLE.read_text(encoding="utf-8"))
    pages = {name: page(name, (ROOT / name).read_text(encoding="utf-8")) for name in names()}
    if "--list" in sys.argv:
        show(pages, words, sys.argv[-1] if sys.argv[-1] != "--list" else "")
        return 0
    allowed = allowances(ALLOWED.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        write(pages, allowed, words)
        allowed = allowances(ALLOWED.read_text(encoding="utf-8"))
    said = list(faults(pages, allowed, words))
    print(*said, sep="\n")
    sums = [sum(each) for each in zip(*allowed.values())] or [0, 0]
    print(f"comments and messages: {len(pages)} files read; allowed are {sums[0]} long"
          f" sentences and {sums[1]} words; {len(said)} complaints")
    return bool(said) or len(pages) < 100


if __name__ == "__main__":
    sys.exit(main())
