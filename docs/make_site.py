#!/usr/bin/env python3
"""The site of the documents: one page each of docs/, and the README and its kin.

    make_site.py FOLDER [--build]

Writes FOLDER/pages and FOLDER/mkdocs.yml; --build lets mkdocs make FOLDER/html of them. The README
is the first page. The order of the others is that of docs/index.md: its sections are the site's,
and its links their pages. The pages of docs/NAME/ belong where docs/NAME.md, or one of them, is
linked. So a page that is split into a folder needs no change here.

Markdown on the site is Python's, which is stricter than that of forges. Lists and what is in them
are indented by four, and a list needs an empty line before it. The copies are made so.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
INDEX, SITE = "docs/index.md", "Dovelane"
KIN = ("README.md", "CHANGELOG.md", "COMPATIBILITY.md", "CONTRIBUTING.md", "SECURITY.md")
NAMES = {"README.md": "index.md", INDEX: "roles.md"}  # else the path, without docs/
COPIED = {".png", ".svg", ".json", ".py", ".sh", ".1", ".8"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ITEM = re.compile(r"( *)([-*+]|\d+\.)( +)")


def pages():
    """{path in the tree: path on the site} of all pages."""
    found = [DOCS / "index.md", *sorted(DOCS.rglob("*.md"))]
    paths = [*KIN, *dict.fromkeys(path.relative_to(ROOT).as_posix() for path in found)]
    return {path: NAMES.get(path, path.removeprefix("docs/")) for path in paths}


def linked(text, path):
    """Paths in the tree that a page links, in their order, each once."""
    folder = os.path.dirname(path)
    targets = (m[3].partition("#")[0] for m in LINK.finditer(text) if "://" not in m[3])
    return list(dict.fromkeys(os.path.normpath(os.path.join(folder, t)) for t in targets if t))


def sections(index):
    """[(title, text)] of the sections of docs/index.md."""
    parts = re.split(r"(?m)^## (.+)\n", index)
    return list(zip(parts[1::2], parts[2::2]))


def folders(path):
    """The folders whose pages are a page's: the one of its name, and its own below docs/."""
    own = os.path.dirname(path)
    return (path.removesuffix(".md") + "/", *([own + "/"] if own.startswith("docs/") else []))


def navigation(index, known):
    """[(section, [paths])]: each page where it is linked first, its folder's pages behind it."""
    placed, found = {"README.md", INDEX}, []
    for title, text in sections(index):
        here = []
        for path in linked(text, INDEX):
            for each in [path, *(p for p in known if p.startswith(folders(path)))]:
                if each in known and each not in placed:
                    placed.add(each)
                    here.append(each)
        found.append((title, here))
    return found


def unplaced(found, known):
    placed = {path for _, paths in found for path in paths}
    return sorted(known.keys() - placed - {"README.md", INDEX})


def relinked(text, path, known):
    """Links as they are on the site. What is not on it keeps its words, and loses its link."""
    folder, here = os.path.dirname(path), os.path.dirname(known[path])

    def one(m):
        target, _, anchor = m[3].partition("#")
        if "://" in m[3]:
            return m[0]
        if not target:
            return f"{m[1]}[{m[2]}](#{re.sub('-+', '-', anchor)})"
        there = os.path.normpath(os.path.join(folder, target))
        on_site = known.get(there)
        if on_site is None and there.startswith("docs/") and pathlib.Path(there).suffix in COPIED:
            on_site = there.removeprefix("docs/")
        if on_site is None:
            return m[2]
        inner = LINK.sub(one, m[2])
        mark = "#" + re.sub("-+", "-", anchor) if anchor else ""  # as Python's Markdown has it
        return f"{m[1]}[{inner}]({os.path.relpath(on_site, here or '.')}{mark})"

    # Code is left as it is.
    parts = re.split(r"(^ *```.*?^ *```[^\n]*$)", text, flags=re.M | re.S)
    return "".join(part if index % 2 else LINK.sub(one, part) for index, part in enumerate(parts))


def indented(text):
    """Lists as Python's Markdown wants them; code in a list is indented, not fenced."""
    out, offsets, fence = [], [], None
    for line in text.split("\n"):
        indent, bare = len(line) - len(line.lstrip(" ")), line.strip()
        if fence is not None:  # in code
            if bare.startswith("```"):
                fence = None
                if not offsets:
                    out.append(line)
            elif offsets:
                out.append(" " * 4 * (len(offsets) + 1) + line[fence:] if bare else "")
            else:
                out.append(line)
            continue
        if bare:
            while offsets and indent < offsets[-1] and (out[-1] == "" or ITEM.match(line)):
                offsets.pop()
            if offsets and indent < offsets[-1]:  # goes on with the paragraph of an item
                indent = offsets[-1]
        item = ITEM.match(line)
        if bare.startswith("```"):
            fence = indent
            out += [""] if offsets else [line]
        elif item and bare:
            lead = " " * 4 * len(offsets)
            if not offsets and out and out[-1] != "":
                out.append("")
            offsets.append(len(item[0]))
            out.append(lead + item[2] + " " * max(1, 4 - len(item[2])) + line[len(item[0]):])
        elif offsets and bare:
            out.append(" " * 4 * len(offsets) + " " * (indent - offsets[-1]) + bare)
        else:
            out.append(line if bare else "")
    return "\n".join(out)


def written(path, known):
    text = (ROOT / path).read_text(encoding="utf-8")
    return indented(relinked(text, path, known))


def heading(path):
    """A page's heading, without code's marks, or else its name."""
    found = re.search(r"(?m)^# (.+)", (ROOT / path).read_text(encoding="utf-8"))
    name = pathlib.Path(path).stem.replace("-", " ").capitalize()
    return found[1].replace("`", "") if found else name


def titled(path, among=SITE):
    """What the list of pages calls a page: the heading up to a colon. What repeats the title of
    the pages that it is among is left out: of "Takeover: beats" there it is "Beats"."""
    before, _, behind = heading(path).partition(": ")
    repeats = behind and before.casefold() in among.casefold()
    words = behind[:1].upper() + behind[1:] if repeats else before
    return json.dumps(words, ensure_ascii=False)


def lead(path, paths):
    """The first page of the pages that a page is among; its own path if it is alone."""
    inside = os.path.dirname(path)
    if inside.startswith("docs/"):
        index = f"{inside}/index.md"
        return index if index in paths else f"{inside}.md"
    return path


def settings(found, known, folder):
    """mkdocs.yml of the site: that of the tree, and the pages in their order."""
    lines = [f"INHERIT: {os.path.relpath(ROOT / 'mkdocs.yml', folder)}", "docs_dir: pages",
             "site_dir: html", "nav:", "  - Dovelane: index.md", "  - By role: roles.md"]
    for title, paths in found:
        lines.append(f"  - {title}:")
        for first, pages_of in itertools.groupby(paths, lambda path: lead(path, paths)):
            group = list(pages_of)
            of = first if first in group else group[0]
            deep = "  " if len(group) > 1 else ""
            lines += [f"    - {titled(of)}:"] if deep else []
            for path in group:
                among = SITE if path == of else heading(of)
                lines.append(f"    {deep}- {titled(path, among)}: {known[path]}")
    return "\n".join(lines) + "\n"


def make(folder):
    """All that mkdocs reads; returns pages that docs/index.md leads nowhere to."""
    known = pages()
    found = navigation((ROOT / INDEX).read_text(encoding="utf-8"), known)
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for path, on_site in known.items():
        target = folder / "pages" / on_site
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(written(path, known), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.suffix in COPIED and path.resolve() != pathlib.Path(__file__).resolve():
            target = folder / "pages" / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (folder / "mkdocs.yml").write_text(settings(found, known, folder), encoding="utf-8")
    return unplaced(found, known)


def can_build():
    """Whether mkdocs is here, with the theme of mkdocs.yml."""
    if shutil.which("mkdocs") is None:
        return False
    told = subprocess.run(["mkdocs", "build", "--help"], capture_output=True, text=True)
    return "material" in told.stdout


def build(folder):
    if not can_build():
        sys.exit("make_site: mkdocs, or its theme material, is missing: ./setup docs installs both")
    done = subprocess.run(["mkdocs", "build", "--quiet", "--strict", "-f", folder / "mkdocs.yml"],
                          check=False)
    return done.returncode


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: make_site.py FOLDER [--build]")
    folder = pathlib.Path(sys.argv[1]).resolve()
    left = make(folder)
    for path in left:
        print(f"make_site: {path} is on no way from {INDEX}: link it there, in a section")
    if left:
        return 1
    return build(folder) if "--build" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
