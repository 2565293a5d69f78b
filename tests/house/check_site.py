#!/usr/bin/env python3
"""Each page of docs/ is on the site (docs/make_site.py), by docs/index.md, and all links resolve.

    usage: check_site.py

Where mkdocs is installed, the site is built, any warning is a fault, and each link of the pages
that come out has its page and its heading. Nothing of it is loaded from another host.
"""

import html
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
sys.dont_write_bytecode = True
import make_site  # noqa: E402 (after the path)

LINK = re.compile(r"""(?:href|src)=["']([^"']+)["']""")
OUTSIDE = re.compile(r"""<(?:script|img|link)\b[^>]*(?:href|src)=["'](?:https?:)?//[^>]*>""")


def bare_links(folder):
    """Links of the copies to files that are not there."""
    for page in sorted(folder.rglob("*.md")):
        text = re.sub(r"^ *```.*?^ *```|`[^`]*`", "", page.read_text(), flags=re.M | re.S)
        for match in make_site.LINK.finditer(text):
            target = match[3].partition("#")[0]
            if target and "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(folder)}: a link to {target}, which is not on the site"


def built_links(folder):
    """Links of the built pages to pages and headings that are not there."""
    texts = {page.resolve(): page.read_text() for page in folder.rglob("*.html")}
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in texts.items()}
    for page, text in texts.items():
        name = page.relative_to(folder.resolve())
        yield from (f"{name} loads from another host: {m[0]}" for m in OUTSIDE.finditer(text))
        for link in map(html.unescape, LINK.findall(text)):
            target, _, anchor = link.partition("#")
            if name.name == "404.html" or re.match(r"[a-z]+:", target):
                continue  # 404.html is served below any address
            there = pathlib.Path(os.path.normpath(page.parent / target)) if target else page
            there = there / "index.html" if there.is_dir() else there
            if not there.exists():
                yield f"{name}: a link to {link}, which is not on the site"
            elif anchor and there in anchors and anchor not in anchors[there]:
                yield f"{name}: a link to {link}, whose heading is not there"


def self_test():
    known = {"README.md": "index.md", "docs/index.md": "roles.md", "docs/a.md": "a.md",
             "docs/b/index.md": "b/index.md", "docs/b/c.md": "b/c.md"}
    index = "# I\n[x](../README.md)\n## One\n[a](a.md#h)\n## Two\n[b](b/index.md) [a](a.md)\n"
    found = make_site.navigation(index, known)
    assert found == [("One", ["docs/a.md"]), ("Two", ["docs/b/index.md", "docs/b/c.md"])], found
    apart = make_site.navigation("## One\n[a](a.md)\n", {"docs/a.md": "", "docs/a/d.md": ""})
    assert apart == [("One", ["docs/a.md", "docs/a/d.md"])], apart
    assert make_site.unplaced(found, {**known, "docs/d.md": "d.md"}) == ["docs/d.md"]
    text = "[c](../../README.md#a--b) [`s`](../../lib/x.c) [w](https://a.b/) ![p](../p.svg)\n"
    linked = make_site.relinked(text, "docs/b/c.md", known)
    assert linked == "[c](../index.md#a-b) `s` [w](https://a.b/) ![p](../p.svg)\n", linked
    text = "a\n* b\n  c\n\n  ```\n  d\n  ```\n  1. e\n\nf\n```\n* g\n```\n"
    made = "a\n\n*   b\n    c\n\n\n        d\n    1.  e\n\nf\n```\n* g\n```\n"
    assert make_site.indented(text) == made, make_site.indented(text)


def main():
    self_test()
    with tempfile.TemporaryDirectory(prefix="dovelane-site-") as place:
        folder = pathlib.Path(place)
        said = [f"{path} is on no way from docs/index.md: link it there, in a section"
                for path in make_site.make(folder)]
        said += bare_links(folder / "pages")
        how = "not built: there is no mkdocs here, or no theme material"
        if make_site.can_build():
            how = "built"
            said += ["mkdocs is not content with it"] if make_site.build(folder) else []
            said += built_links(folder / "html")
    print(*said, sep="\n")
    print(f"site: {len(make_site.pages())} pages, {how}, {len(said)} complaints")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
