#!/usr/bin/env python3
"""Reads comments, docstrings and documents, and fails where one cites what does not exist.

    documents   docs/NAME.md, the section named with it, and that section's numbered point
    links       the file and the heading behind a Markdown link
    files       names of sources, and paths from the root
    tests       names of tests
    codes       F1 ... (docs/failure-catalogue.md); "rule N", of the list that its file belongs to
    literature  RFC numbers and "... et al." (docs/references.md)

COMPATIBILITY.md is left out: it quotes what compilers said when it was made.
"""
import ast
import fnmatch
import io
import os
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".c", ".h", ".def", ".py", ".md", ".sh", ".build", ".conf", ".cf", ".in", ".yml",
            ".1", ".5", ".8", ".service"}
NAMES = {"Makefile", "setup", "Dockerfile", "meson_options.txt"}
MANUALS = (".1", ".5", ".8")
LEFT_OUT = {"COMPATIBILITY.md", "tests/house/check_references.py"}
CATALOGUE, REFERENCES = "docs/failure-catalogue.md", "docs/references.md"
PROTOCOL, CORE = "docs/replication-protocol.md", "dovecot-plugin/orset/orset.h"
CORE_FOLDERS = ("dovecot-plugin/orset/", "tests/unit/orset/")
CODES = 47  # the catalogue has F1 to F47
GUIDES = {"admin guide": "docs/admin-guide.md", "replication guide": "docs/replication-guide.md",
          "admin reference": "docs/admin-reference.md",
          "replication reference": "docs/replication-reference.md"}
TOP = ("lib|milter|proxy|relay|ctl|redis-module|dovecot-plugin|tests|docs"
       "|packaging|provision|docker|debian|clients")

# Files that are cited and are not ours: whose they are. One that nobody cites any more is a fault.
FOREIGN = {
    "client.py": "an example's, on a third host",
    "lib.h": "Dovecot",
    "mail-transaction-log.h": "Dovecot",
    "mdbox-save.c": "Dovecot",
    "milter8.c": "Postfix",
    "redismodule.h": "Redis",
    "sdbox-save.c": "Dovecot",
    "seccomp.h": "libseccomp",
    "sys/queue.h": "glibc",
}


# --- what can be cited ---------------------------------------------------------------------------


def headings(text):
    """(title, text of its section) of each heading; what is between fences is none."""
    plain = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M | re.S)
    found = [(m.start(), len(m[1]), m[2].strip()) for m in re.finditer(r"^(#+) (.+)$", plain, re.M)]
    ends = [next((s for s, d, _ in found[index + 1:] if d <= depth), len(plain))
            for index, (_, depth, _) in enumerate(found)]
    return [(title, plain[start:end]) for (start, _, title), end in zip(found, ends)]


def defined(path, text):
    """Names of tests in a file; of tables that tests walk through, the rows."""
    if path.endswith(".py"):
        return re.findall(r"^ *(?:def|class) (\w+)", text, re.M)
    return re.findall(r"\bSTART_TEST\((\w+)\)", text) + re.findall(r"^ *X\((\w+),", text, re.M)


def catalogue_rows(text):
    """[(number, tests, position)]"""
    return [(int(m[1]), m[4], m.start())
            for m in re.finditer(r"^\| F(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)]


class Tree:
    """files: {path: text}; the text of what nobody reads is empty."""

    def __init__(self, files):
        self.files = files
        self.names = {}  # a path, or the end of one: how many have it
        for path in files:
            parts = path.split("/")
            for upto in range(1, len(parts) + 1):
                for start in range(upto) if upto == len(parts) else [0]:
                    self.names.setdefault("/".join(parts[start:upto]), []).append(path)
        self.tests = {}  # name: files that define it
        for path, text in files.items():
            for name in defined(path, text) if path.startswith("tests/") else ():
                self.tests.setdefault(name, set()).add(path)
        self.sections = {p: headings(text) for p, text in files.items() if p.endswith(".md")}
        self.codes = {number for number, _, _ in catalogue_rows(files.get(CATALOGUE, ""))}
        self.rules = {
            CORE: len(re.findall(r"^ \* +\d+ [A-Z\\]", files.get(CORE, ""), re.M)),
            PROTOCOL: len(re.findall(r"^\d+\. ", self.section(PROTOCOL, "The rules") or "", re.M)),
        }

    def has(self, name):
        """A file or folder, by its path or the end of it. NAME and CELL mean any name."""
        name = re.sub("NAME|CELL", "*", name.rstrip("/"))
        if "*" not in name:
            return name in self.names
        return any(fnmatch.fnmatchcase(path, name) for path in self.names)

    def section(self, path, title):
        """The text of a section, of what stands behind a bold title, or None.

        The heading may go on behind a comma.
        """
        title = title.lower()
        for heading, body in self.sections.get(path, ()):
            heading = heading.replace("`", "").lower()
            if title in (heading, heading.split(",")[0]):
                return body
        bold = re.search(rf"\*\*{re.escape(title)}\b.*?(?=\n\n|\Z)", self.files.get(path, ""),
                         re.S | re.I)
        return bold and bold[0]

    def anchors(self, path):
        titles = (title for title, _ in self.sections.get(path, ()))
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# --- where it is cited ---------------------------------------------------------------------------


def line_of(text, position):
    return text.count("\n", 0, position)


def blocks(comments):
    """(line, text): comments on lines that follow each other are one text."""
    block, first, last = [], 0, 0
    for number, comment in comments:
        if block and number != last + 1:
            yield first, "\n".join(block)
            block = []
        first, last = first if block else number, number
        block.append(comment.lstrip().lstrip("#"))
    if block:
        yield first, "\n".join(block)


def notes(path, text):
    """(line, text) of all that is for readers: documents, bare comments, docstrings."""
    if path.endswith((".md", *MANUALS)):
        yield 1, text.replace("\\-", "-") if path.endswith(MANUALS) else text
    elif path.endswith((".c", ".h", ".def")):
        comment, string = r"/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*", r'"(?:\\.|[^"\\\n])*"'
        for m in re.finditer(f"{comment}|{string}", text, re.S):
            if m[0][0] == "/":
                bare = re.sub(r"^[ \t]*(?:/?\*+/?|//)|\*/$", " ", m[0], flags=re.M)
                yield 1 + line_of(text, m.start()), bare
    elif path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            holder = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            if holder and ast.get_docstring(node):
                yield node.body[0].lineno, ast.get_docstring(node, False)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        yield from blocks((t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT)
    else:
        lines = enumerate(text.splitlines(), 1)
        found = ((number, re.search(r"(?:^|\s)#.*", line)) for number, line in lines)
        yield from blocks((number, m[0]) for number, m in found if m)


# --- what is cited in vain -----------------------------------------------------------------------


def document_faults(tree, text):
    """docs/NAME.md, "Section" and "Other one", 3 and 4"""
    guide = rf'\b({"|".join(GUIDES)})(?=, ")'
    for match in re.finditer(rf"\b(docs/(?:[\w-]+/)*[\w-]+\.md)(?!\w)|{guide}", text):
        path, title, at = match[1] or GUIDES[match[2]], None, match.end()
        while path in tree.files:  # else file_faults tells it
            named = re.match(r'[,;]?\s+\(?(?:and\s+)?"([^"]{1,80})"'
                              r'|,\s+([A-Z]\w*(?: \w+){0,5})(?=\))', text[at:])
            point = re.match(r"(?:,|,?\s+and)?\s+(?:step\s+)?(\d{1,2})(?![\w%]|\.\d)", text[at:])
            if named:
                title = " ".join((named[1] or named[2]).split())
                if tree.section(path, title) is None:
                    yield match.start(), f'{path} has no section "{title}"'
                    break
            elif point:
                where = tree.files[path] if title is None else tree.section(path, title)
                if not re.search(rf"^ *{point[1]}\. ", where, re.M):
                    yield match.start(), f'{path}, "{title}" has no point {point[1]}'
            else:
                break
            at += (named or point).end()


def link_faults(tree, path, text):
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = match[1].partition("#")
        if "://" in target:
            continue
        there = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if there not in tree.names:
            yield match.start(), f"a link to {there}, which does not exist"
        elif anchor and anchor not in tree.anchors(there):
            yield match.start(), f"a link to #{anchor}, which is no heading of {there}"


def file_faults(tree, path, text, foreign, seen):
    endings = "c|h|py|def|md|sh|build"
    before, part = r"(?<![\w/.$<*~@-])", r"[\w.*@-]"
    for match in re.finditer(rf"{before}((?:{part}+/)*{part}*[\w*]\.(?:{endings}))(?![\w/*-])"
                             rf"|{before}((?:{TOP})/[\w.*@/-]*[\w*/])", text):
        name = match[1] or match[2]
        if name in foreign:
            seen.add(name)
            continue
        if name.startswith("../"):
            name = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if not tree.has(name) and not (match[2] and tree.has(name + ".*")):
            yield match.start(), f"there is no file {name}"


def test_faults(tree, text):
    for match in re.finditer(r"(?<![\w./*])(test_[\w*]*[a-z0-9*])(?![\w./*])|`(\*\w+\*)`", text):
        name = match[1] or match[2]
        known = name in tree.tests or fnmatch.filter(tree.tests, name)
        if not known and not tree.has(name + ".[cp]*"):
            yield match.start(), f"there is no test {name}"


def code_faults(tree, text):
    for match in re.finditer(r"""(?<![\w"'{./=-])F(\d{1,2})(?![\w"}]|[.-]\w|'(?!s))""", text):
        if int(match[1]) not in tree.codes:
            yield match.start(), f"F{match[1]} is not in {CATALOGUE}"
    for match in re.finditer(r"(?<!\w)\([A-EG-Z]\d{1,2}\)|\bDESIGN \d+|\bissue \d+", text):
        yield match.start(), f"{match[0]}: a number of a list that no reader has"


def rule_faults(tree, path, text):
    for match in re.finditer(r"\b[Rr]ules? (\d+(?:(?:,| and) \d+)*)", text):
        before, behind = text[max(0, match.start() - 60):match.start()], text[match.end():]
        linked = re.match(r"\]\([\w./-]*replication-protocol\.md#the-rules\)", behind)
        protocol = path == PROTOCOL or PROTOCOL in before or linked
        book = PROTOCOL if protocol else CORE if path.startswith(CORE_FOLDERS) else None
        for number in re.findall(r"\d+", match[1]):
            if not 1 <= int(number) <= tree.rules.get(book, 0):
                yield match.start(), f"rule {number}: {book or 'no list of rules'} has none"


def literature_faults(tree, text):
    known = tree.files.get(REFERENCES, "")
    for match in re.finditer(r"\bRFC ?(\d{4,5})", text):
        if f"| RFC {match[1]} |" not in known:
            yield match.start(), f"RFC {match[1]} is not in {REFERENCES}"
    for match in re.finditer(r"\b([A-Z]\w+)\s+et\s+al\.|\bthe\s+paper(?:'s)?\b", text):
        if not match[1] or f"{match[1]} et al." not in known:
            yield match.start(), f"{' '.join(match[0].split())}: which one? ({REFERENCES})"


def catalogue_faults(tree):
    """All rows, in order; and each test is in the file that is named before it."""
    rows = catalogue_rows(tree.files.get(CATALOGUE, ""))
    if [number for number, _, _ in rows] != list(range(1, CODES + 1)):
        yield 0, f"the rows are not F1 to F{CODES}, each once and with three cells"
    for number, tests, at in rows:
        if tests.startswith("none"):
            continue
        cited, files = re.findall(r"`([^`]+)`", tests), []
        if not cited:
            yield at, f"F{number} names no test; write none"
        for name in cited:
            if "." in name:
                files = [path for path in tree.names.get(name, ()) if path.startswith("tests/")]
            elif not tree.tests.get(name, set()).intersection(files):
                yield at, f"F{number}: {name} is no test of the file named before it"


def faults(files, foreign):
    """(path, line, what) of all that is cited in vain."""
    tree, seen = Tree(files), set()
    for path, text in sorted(files.items()):
        if path in LEFT_OUT:
            continue
        for first, note in notes(path, text):
            found = [*document_faults(tree, note), *file_faults(tree, path, note, foreign, seen),
                     *test_faults(tree, note), *rule_faults(tree, path, note),
                     *literature_faults(tree, note)]
            if path.endswith(".md"):
                found += link_faults(tree, path, note)
            yield from ((path, first + line_of(note, at), what) for at, what in found)
        # In the whole text: tests name codes in texts that they print, too.
        yield from ((path, 1 + line_of(text, at), what) for at, what in code_faults(tree, text))
    where = tree.files.get(CATALOGUE, "")
    yield from ((CATALOGUE, 1 + line_of(where, at), what) for at, what in catalogue_faults(tree))
    unused = sorted(set(foreign) - seen)
    yield from (("FOREIGN", 0, f"nobody cites {name} any more") for name in unused)


# --- this check, checked -------------------------------------------------------------------------

ROWS = ["| F1 | h | r | `test_a.py` `test_one` |",
        *(f"| F{n} | h | r | none |" for n in range(2, CODES + 1))]
GOOD = """/* docs/a.md, "In" 1, and docs/a.md, "Bold one"; docs/a/b.md, "Part"; F2 and F3's;
 * RFC 5321, Meyer
 * et al.; test_one, test_a.py, ../tests/test_a.py, lib/good.*, tests;
 * docs/replication-protocol.md, rule 2; alien.h */
call("F99", "docs/none.md", "RFC 9999");
"""
HOUSE = {
    CATALOGUE: "\n".join(ROWS) + "\n",
    REFERENCES: "| RFC 5321 | SMTP |\n| Meyer et al. | a work |\n",
    PROTOCOL: "# P\n## The rules\n1. One.\n2. Two.\n",
    CORE: "/* orset\n *\n *  1 Dots.\n */\n",
    "docs/a/b.md": "# B\n## Part\n",
    "docs/a.md": "# A\n## In, out\n1. First.\n\n**Bold one.** Text.\n"
                 "[a](#in-out) [b](replication-protocol.md#the-rules)\n",
    "tests/test_a.py": "def test_one():\n    pass\n",
    "lib/good.c": GOOD,
    "dovecot-plugin/orset/x.c": "/* rule 1 */\n",
}
# Each is found when a comment of lib/bad.c, or a document, has it.
PLANTED = [
    "docs/none.md", "docs/a/none.md", 'docs/a/b.md, "None"', 'docs/a.md, "None"',
    'docs/a.md ("None")', 'docs/a.md, "In" 1 and 7.',
    'docs/a.md, "In" and\n * "None"', "none.c", "lib/none", "../none.h", "test_none",
    "F48.", "F48's", "(M5)", "DESIGN 8", "issue 24", "rule 1",
    "docs/replication-protocol.md, rule 3", "RFC 9999", "Mayer et al.", "the paper",
]
DOCUMENTS = ["[a](none.txt)", "[a](#none)", "[a](a.md#none)", "`*none*`", "`none_test.py`"]
DAMAGED = [("| F7 |", "| G7 |"), ("`test_one`", "`test_two`"), ("`test_a.py` `test_one`", "yes"),
           ("`test_a.py` ", "")]


def self_test():
    """Every kind of citation is found where it is dangling, and nowhere else."""
    alien = {"alien.h": "another one's"}
    assert not list(faults(HOUSE, alien)), list(faults(HOUSE, alien))
    for planted in PLANTED:
        found = list(faults({**HOUSE, "lib/bad.c": f"/* a\n * {planted} */\n"}, alien))
        assert [f[0] for f in found] == ["lib/bad.c"] and found[0][1] in (2, 3), (planted, found)
    for planted in DOCUMENTS:
        found = list(faults({**HOUSE, "docs/bad.md": f"# B\n{planted}\n"}, alien))
        assert [f[:2] for f in found] == [("docs/bad.md", 2)], (planted, found)
    python = '"""none.c"""\n# RFC 9999\nx = "none.c"\n'
    assert len(list(faults({**HOUSE, "tests/b.py": python}, alien))) == 2
    assert len(list(faults({**HOUSE, "dovecot-plugin/orset/x.c": "/* rule 2 */\n"}, alien))) == 1
    assert len(list(faults(HOUSE, {**alien, "more.h": "nobody's"}))) == 1
    for damaged in DAMAGED:
        rows = HOUSE[CATALOGUE].replace(*damaged)
        assert list(faults({**HOUSE, CATALOGUE: rows}, alien)), damaged


def read():
    files = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))]
        for name in names:
            path = pathlib.Path(folder, name)
            readable = (path.suffix in SUFFIXES or name in NAMES) and not path.is_symlink()
            text = path.read_text(errors="replace") if readable else ""
            files[path.relative_to(ROOT).as_posix()] = text
    return files


def main():
    self_test()
    files = read()
    found = sorted(set(faults(files, FOREIGN)))
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    print(f"references: {len(files)} files read, {len(found)} cited in vain")
    return 1 if found or len(files) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
