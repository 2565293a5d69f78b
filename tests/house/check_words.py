#!/usr/bin/env python3
"""Documents are in the plain English of docs/style.md: short sentences, and no word of its list.

    usage: check_words.py [--pages | --readability COMMIT]

A sentence of more than 25 words is a fault, and so is a word to avoid. Code, tables, headings and
pages that are lists do not count. --pages prints each page's words per sentence; --readability
writes docs/lab/readability.md, beside what the pages were at COMMIT.
"""

import datetime
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STYLE = ROOT / "docs/style.md"
READABILITY = ROOT / "docs/lab/readability.md"
WORDS = 25
LISTS = {  # their prose is lists of names, or lines of results
    "docs/benchmarks.md",
    "docs/postfix-parameters.md",
    "docs/style.md",  # it names the words
}
# A sentence may begin with code, or the name of a page or a program, as smtp(8).
END = re.compile(r"(?<=[.!?])[\")]*\s+(?=[\"(A-Z0-9]|code|[\w/-]+\.md|dovelane|doveadm|\w+\(\d\))")
SHORT = re.compile(r"\b(e\.g|i\.e|et al|vs|etc)\.$", re.I)  # a full stop that ends no sentence


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def names():
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "*.md").split()
    there = [name for name in listed if (ROOT / name).exists()]
    found = there or [
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    ]
    return sorted(name for name in set(found) if name not in LISTS)


def plain(line):
    """A line as a reader hears it: a link is its text, code is one word."""
    line = re.sub(r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])?", "", line)
    line = re.sub(r"`[^`]*`", "code", line)
    return re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?", r"\1", line).replace("*", "")


def paragraphs(text):
    """What is prose; a list's item is a paragraph of its own."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1[^\n]*", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    block = []
    for line in [*text.split("\n"), ""]:
        bare = line.strip()
        item = re.match(r"([-*+]|\d+\.)\s+", bare)
        left_out = re.match(r"\||#|<|\[[^\]]+\]: ", bare)
        if (not bare or item or left_out) and block:
            yield plain(" ".join(block))
            block = []
        if bare and not left_out:
            block.append(bare[item.end():] if item else bare)


def sentences(text):
    """(words, text) of each sentence."""
    for paragraph in paragraphs(text):
        begun = ""
        for part in END.split(paragraph):
            begun = f"{begun} {part}".strip()
            if SHORT.search(part):
                continue
            count = len(re.findall(r"\S*\w\S*", begun))
            if count:
                yield count, begun
            begun = ""
        if begun:
            yield len(begun.split()), begun


def avoided(style):
    """{word to avoid: what to write}, from the table of docs/style.md."""
    table = style.partition("| avoid | write |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.M)
    return {word.strip(): instead.strip() for word, instead in rows if "---" not in word}


def found_words(text, words):
    """(word, how often) in the prose."""
    prose = "\n".join(paragraphs(text))
    for word in words:
        # "There is none" is English; "it is none of them" is not ours.
        count = len(re.findall(rf"(?<!\bthere )\b{re.escape(word)}\b", prose, re.I))
        if count:
            yield word, count


def longest_line(text):
    code, most = False, 0
    for line in text.split("\n"):
        code ^= line.lstrip().startswith("```")
        if not code and " " in line.strip() and line.lstrip()[0] not in "|<":
            most = max(most, len(line))
    return most


def figures(text):
    """(sentences, words per sentence, share of long ones in %, longest line) of a page."""
    counts = [count for count, _ in sentences(text)]
    long = sum(count > WORDS for count in counts)
    mean = statistics.fmean(counts) if counts else 0
    return len(counts), mean, 100 * long / len(counts) if counts else 0, longest_line(text)


def faults(pages, words):
    for name, text in pages.items():
        for count, said in sentences(text):
            if count > WORDS:
                yield f"{name}: a sentence of {count} words, at most {WORDS}: split it: {said}"
        for word, count in found_words(text, words):
            yield f'{name}: "{word}", {count} times: write "{words[word]}" (docs/style.md)'


def row(name, text):
    count, mean, share, line = figures(text)
    return f"{name:40} {count:5} {mean:6.1f} {share:5.0f} % {line:5}"


def cells(text):
    if not text:
        return "| - | - | - "
    _, mean, share, line = figures(text)
    return f"| {mean:.1f} | {share:.0f} % | {line} "


def readability(pages, commit):
    """The page that shows what has become of each page since COMMIT."""
    pages.pop(READABILITY.relative_to(ROOT).as_posix(), None)
    before = {name: git("show", f"{commit}:{name}") for name in pages}
    for name in git("ls-tree", "-r", "--name-only", commit).split():
        if name.endswith(".md") and name not in LISTS and (ROOT / name) != READABILITY:
            before[name] = git("show", f"{commit}:{name}")
    lines = [
        f"| {name} {cells(before[name])}{cells(pages.get(name))}|" for name in sorted(before)
    ]
    all_before, all_now = "\n\n".join(before.values()), "\n\n".join(pages.values())
    lines.append(f"| **all** {cells(all_before)}{cells(all_now)}|")
    READABILITY.parent.mkdir(exist_ok=True)
    now, today = git("rev-parse", "HEAD"), datetime.date.today()
    text = PAGE.format(commit=commit[:8], now=now[:8], day=f"{today.day} {today:%B %Y}",
                       words=WORDS, rows="\n".join(lines))
    READABILITY.write_text(text, encoding="utf-8")


PAGE = """# How easy the pages are to read

For who rewrites a page. `tests/house/check_words.py --readability {commit}` makes this page: the
pages at commit {commit}, and as they are now. It was made on {day}, on commit {now}.
Code, tables and headings do not count. A page that did not exist then, or does not now, has a dash.
Pages that are lists are left out.

Per page: words per sentence (the mean), the share of sentences of more than {words} words, and the
longest line of prose.

| page | then: words | long | line | now: words | long | line |
|---|---:|---:|---:|---:|---:|---:|
{rows}
"""


def self_test():
    words = {"whoever": "each", "is none": "is not"}
    text = "# Whoever\n\n" + "word " * 26 + "e.g. this.\n- Whoever `is` there. If there is none.\n\n| whoever |\n"
    assert [count for count, _ in sentences("One two. Three `x y` [four](a b). 5")] == [2, 3, 1]
    said = list(faults({"a": text}, words))
    assert len(said) == 2 and "28 words" in said[0] and '"whoever", 1 times' in said[1], said
    assert not list(faults({"a": "Short. Word" + " word" * 24 + ". `Whoever` wrote this."}, words))


def main():
    self_test()
    words = avoided(STYLE.read_text(encoding="utf-8"))
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in names()}
    if "--pages" in sys.argv:
        print(f"{'page':40} sent. w/sent.  long  line")
        print(*(row(name, text) for name, text in pages.items()), sep="\n")
        return 0
    if "--readability" in sys.argv:
        readability(pages, sys.argv[-1])
        return 0
    said = list(faults(pages, words))
    print(*said, sep="\n")
    print(f"words: {len(pages)} pages read, {len(words)} words to avoid; {len(said)} complaints")
    return bool(said) or len(words) < 10


if __name__ == "__main__":
    sys.exit(main())
