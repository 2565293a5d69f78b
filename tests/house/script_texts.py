"""What scripts and Debian's files say: the texts that check_comments.py reads beside those of C."""

import ast
import re

QUOTED = re.compile(r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'""", re.S)
# Without a parenthesis in it: what is in another one is read first.
SUBSTITUTION = re.compile(r"(?<!\\)\$\([^()]*\)")
WRITTEN = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n(.*?)^\t*\2$", re.M | re.S)
COMMENT = re.compile(r"^[ \t]*#.*$|(?<=[ \t;])#[ \t].*$", re.M)
VARIABLE = re.compile(r"\$\{[^}]*\}|\$\w+|\$[?!#@*]")


def kind(name, text):
    """"python", "shell", "readme", "control", or "" for something else."""
    if name.startswith("debian/") and name.endswith((".README.Debian", "/control")):
        return "readme" if name.endswith("README.Debian") else "control"
    first = text.partition("\n")[0]
    if name.endswith(".py") or re.match(r"#!.*\bpython", first):
        return "python"
    return "shell" if re.match(r"#!.*\b(ba|da)?sh\b", first) else ""


class Texts:
    """The texts of a Python program. What is put into a text is the word "value"."""

    def __init__(self, source):
        self.inner = set()
        self.tree = ast.parse(source)

    def text(self, node):
        """A text, also one of parts and of sums; None: the node is something else."""
        said = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = node.value
        elif isinstance(node, ast.JoinedStr):
            said = "".join(self.text(part) or "value" for part in node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = self.text(node.left), self.text(node.right)
            said = "".join(side or "value" for side in sides) if any(sides) else None
        if said is not None:
            self.inner.add(id(node))
        return said

    def all(self):
        """Each whole text. The walk meets a text before its parts."""
        for node in ast.walk(self.tree):
            if id(node) not in self.inner and (said := self.text(node)):
                yield said


def python_texts(source):
    """Docstrings, errors, help."""
    yield from Texts(source).all()


def head(source):
    """The comment that a shell script begins with; some print it as their help."""
    lines = re.match(r"(?:#!.*\n)?((?:#.*\n)*)", source)[1].split("\n")
    bare = (re.sub(r"^# ?", "", line) for line in lines)
    return "\n".join("" if re.match(r"\s{2,}\S", line) else line for line in bare)


def quoted(source):
    for found in QUOTED.finditer(source):
        if found[0][0] != "\\":
            yield VARIABLE.sub("value", found[0][1:-1])


def shell_texts(source):
    """The head, what is written from here to a word, and what is in quotes."""
    yield head(source)
    for found in WRITTEN.finditer(source):
        # A log's prefix before each line is no word of the sentence.
        yield VARIABLE.sub("value", re.sub(r"^[\w-]+: ", "", found[3], flags=re.M))
    rest = COMMENT.sub("", WRITTEN.sub("\n", source))
    while SUBSTITUTION.search(rest):
        for found in SUBSTITUTION.finditer(rest):
            yield from quoted(found[0])
        rest = SUBSTITUTION.sub("value", rest)
    yield from quoted(rest)


def readme_texts(source):
    """All but what is set in, and titles."""
    kept = re.sub(r"^.+\n(=+|-+)$", "", source, flags=re.M)
    yield re.sub(r"^\s{2,}\S.*$", "", kept, flags=re.M)


def control_texts(source):
    """The descriptions of packages: a title, and paragraphs with a lone full stop between them."""
    for found in re.finditer(r"^Description: (.*\n)((?: .*\n?)*)", source, re.M):
        yield found[1] + re.sub(r"^ \.?", "", "\n" + found[2], flags=re.M)


READERS = {"python": python_texts, "shell": shell_texts, "readme": readme_texts,
           "control": control_texts}


def self_test():
    source = '"""Head."""\nf("a" + b + f"c {d!r}, " "e")\ng(h="i")\n'
    assert sorted(python_texts(source)) == ["Head.", "avaluec value, e", "i"]
    source = ('#!/bin/sh\n# Head of\n# it.\n\n# it\'s "no"\necho "a $b (c)" \'d\' # "no"\n'
              'x=$(y "e f" $(z \'g\'))\ncat <<EOF\nh: i $j\nh: k\nEOF\n"l"\n')
    assert [said.strip() for said in shell_texts(source)] == [
        "Head of\nit.", "i value\nk", "g", "e f", "a value (c)", "d", "l"]
    assert list(readme_texts("T\n=\na\n    b\nc")) == ["\na\n\nc"]
    source = "A: b\nDescription: c\n d\n .\n e\n\nF: g\n"
    assert list(control_texts(source)) == ["c\n\nd\n\ne\n"]
    assert kind("a", "#!/bin/sh\n") == "shell" and kind("a.py", "") == "python"
    assert not kind("a", "sh\n") and kind("debian/control", "") == "control"
