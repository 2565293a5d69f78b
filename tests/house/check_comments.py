#!/usr/bin/env python3
"""Header comments and messages are in the plain English of docs/style.md, as check_words.py has it.

    usage: check_comments.py [--list PREFIX]

Read are the comments of each header (.h, .def), and each text in quotes of the product that reads
like a sentence: log lines, errors, findings, help. Of its Python and shell programs the same, with
docstrings and what a shell script begins with, and Debian's descriptions and README files
(script_texts.py). A sentence of more than 25 words is a fault, and so is a word to avoid. Code,
drawings, SQL and scripts do not count. --list prints what is wrong in the files whose names begin
with PREFIX.
"""

import pathlib
import re
import sys

import check_words
import script_texts
from check_words import WORDS

ROOT = check_words.ROOT
ROOMS = ("ctl", "dovecot-plugin", "lib", "milter", "proxy", "redis-module", "relay")
SCRIPTS = ("clients", "debian", "docker", "docs/make_site.py", "packaging", "provision", "setup")
STRING = r'"(?:\\.|[^"\\\n])*"'
TOKEN = re.compile(rf"/\*.*?\*/|//[^\n]*|{STRING}|'(?:\\.|[^'\\\n])+'", re.S)
# Between two parts of one text there may be a macro as PRIu64: it is one word.
BETWEEN = re.compile(r"\s*(?:PRI\w+\s*)?\Z")
# A comment's sentence may begin with any name, and so does a row of a legend: "0: none; -1: no".
END = re.compile(r"(?<=[.!?])[\")]*\s+|[;,] +(?=-?\w+: )")
READ_AT_LEAST = {"ctl/main.c", "lib/config/settings.def", "provision/main.py", "setup",
                 "debian/dovelane.prerm", "debian/control", "docker/stage",
                 "debian/dovelane.README.Debian"}
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH|PRAGMA|REPLACE|DROP)\b")
# A script in Lua, a configuration with sections.
SCRIPT = re.compile(r"\b(redis\.call|local \w+ =|function\()|^\[ ?\w+ ?\]$", re.M)
ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def names(*places):
    listed = check_words.git("ls-files", "--cached", "--others", "--exclude-standard", *places)
    found = listed.split() or [path.relative_to(ROOT).as_posix() for place in places
                               for path in ((ROOT / place).rglob("*") if (ROOT / place).is_dir()
                                            else [ROOT / place])]
    return sorted(name for name in set(found) if (ROOT / name).is_file())


def sources():
    """{name: text} of what is read."""
    read = {name: (ROOT / name).read_text(encoding="utf-8") for name in names(*ROOMS)
            if name.endswith((".c", ".h", ".def"))}
    for name in names(*SCRIPTS):
        text = (ROOT / name).read_bytes().decode("utf-8", "replace")
        if script_texts.kind(name, text):
            read[name] = text
    return read


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


def texts(name, text):
    """What of a file a reader or an admin sees."""
    what = script_texts.kind(name, text)
    if what:
        return map(message, script_texts.READERS[what](text))
    # An include is no prose.
    return proses(name, re.sub(r'^\s*#\s*include\s+"[^"]*"', "", text, flags=re.M))


def page(name, text):
    """What is counted of a file, as check_words.py reads a page."""
    kept = (said for said in texts(name, text) if is_prose(said))
    # A heading of a page is none here.
    return "\n\n".join(re.sub(r"^([#<])", r"\\\1", said.strip(), flags=re.M) for said in kept)


def measured(text, words):
    """(long sentences, words to avoid) of what is counted."""
    long = sum(count > WORDS for count, _ in check_words.sentences(text))
    return long, sum(count for _, count in check_words.found_words(text, words))


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
    assert measured(page("a.py", long), words) == (1, 0)
    long = "#!/bin/sh\nsay '" + "word " * 13 + "\n" + "word " * 13 + "' # whoever\n"
    assert measured(page("a", long), words) == (1, 0)
    assert measured(page("a.py", f"f({'1, ' * 30})  # whoever"), words) == (0, 0)


def main():
    check_words.END = END
    self_test()
    script_texts.self_test()
    words = check_words.avoided(check_words.STYLE.read_text(encoding="utf-8"))
    prefix = sys.argv[-1] if "--list" in sys.argv[1:-1] else ""
    pages = {name: page(name, text) for name, text in sources().items() if name.startswith(prefix)}
    said = list(check_words.faults(pages, words))
    print(*said, sep="\n")
    print(f"comments and messages: {len(pages)} files read; {len(said)} complaints")
    return bool(said) or (not prefix and not READ_AT_LEAST <= pages.keys())


if __name__ == "__main__":
    sys.exit(main())
