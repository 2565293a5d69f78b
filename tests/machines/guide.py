"""A guide's code blocks, in their order, as what a reader does with them on each host. Text and truth cannot part: what is run is what stands there.

The word behind a block's fence says what it is (it is not shown where Markdown is rendered):

    sh                     commands, on each host
    sh on mx1              commands, on that host alone
    file PATH              a file with exactly this content
    lines PATH             settings that are put into a file: those of the same names there go
    service PATH           a service of master.cf, in the place of the one of its name
    quote NAME             shows a part of a file that commands copy; nothing to do
    log                    an example of output; nothing to do
    example                another way, not taken here

A block without such a word, in a section that is followed, is an error, and so is a PATH that the text before the block, or its first line, does not
name. What differs between hosts is said by the guide in words ("on the other host `mx2`") and here by a table.
"""
import pathlib
import re
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"sh": 0, "sh on": 1, "file": 1, "lines": 1, "service": 1, "quote": 1, "log": 0, "example": 0}
FENCE = re.compile(r"^(\s*)```(.*)$")


def at_once(function, things):
    """Calls a function for each thing in a thread of its own; raises the first error."""
    errors = []

    def run(thing):
        try:
            function(thing)
        except BaseException as error:  # raised below
            errors.append(error)
    threads = [threading.Thread(target=run, args=(thing,)) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class GuideError(Exception):
    pass


class Block:
    def __init__(self, kind, argument, text, where, before):
        self.kind, self.argument, self.text, self.where = kind, argument, text, where
        if kind in ("file", "lines", "service", "quote") and argument not in before + text.splitlines()[0]:
            raise GuideError(f"{where}: the text before the block does not name {argument}")


def blocks(document, heading):
    """The blocks below a heading ("### 2. The node's Redis"), to the next heading of its level or above."""
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    if heading not in lines:
        raise GuideError(f"{document} has no heading {heading!r}")
    level = heading.split()[0]
    found, inside, before = [], None, []
    for number, line in enumerate(lines[lines.index(heading) + 1:], lines.index(heading) + 2):
        fence = FENCE.match(line)
        if inside is None:
            if re.match(rf"#{{1,{len(level)}}} ", line):
                break
            if fence:
                inside, indent, words, where = [], fence[1], fence[2].split(), f"{document}:{number}"
            else:
                before.append(line)
        elif fence:
            kind = " ".join(words[:-1]) if " ".join(words[:-1]) in KINDS and KINDS[" ".join(words[:-1])] else " ".join(words)
            if kind not in KINDS or len(words) != len(kind.split()) + KINDS[kind]:
                raise GuideError(f"{where}: ``` {' '.join(words)}: not one of {', '.join(KINDS)}")
            found.append(Block(kind, words[-1] if KINDS[kind] else None, "\n".join(inside) + "\n", where, "\n".join(before)))
            inside = None
        else:
            inside.append(line[len(indent):])
            before.append(line)
    return found


class Reader:
    """One who follows a guide on some hosts at once.

    own: {host: {text of the guide: what it is on that host}}, put into commands, names of files, and into the files that `per_host` names.
    instead: {line of the guide: commands for it}, for what cannot be done in a test (a network); a line that is never met is an error, see done().
    """

    def __init__(self, machines, own, per_host=(), instead=None):
        self.machines, self.own, self.per_host, self.instead = machines, own, list(per_host), dict(instead or {})
        self.unused = set(self.instead)
        self.commands = {name: 0 for name in machines}
        self.edited = {name: set() for name in machines}

    def follow(self, document, heading):
        for block in blocks(document, heading):
            names = [name for name in self.machines if block.kind != "sh on" or block.argument == name]
            at_once(lambda name, block=block: self.do(name, block), names)

    def for_host(self, name, text):
        for here, there in self.own[name].items():
            text = text.replace(here, there)
        return text

    def do(self, name, block):
        machine = self.machines[name]
        if block.kind.startswith("sh"):
            if "systemctl restart" in block.text:
                machine.run("systemctl reset-failed")   # nobody types so fast that its limit of starts is met
            machine.run("set -e\ncd /root\n" + self.commands_for(name, block))
        elif block.kind in ("file", "lines", "service"):
            path = self.for_host(name, block.argument)
            text = self.for_host(name, block.text) if block.argument in self.per_host else block.text
            before = machine.read(path) if machine.place(path).exists() else ""
            made = {"file": lambda: text, "lines": lambda: merged(before, text), "service": lambda: replaced_service(before, text)}[block.kind]()
            if made != before:
                machine.write(path, made, mode=None)
                self.edited[name].add(path)

    def commands_for(self, name, block):
        script = []
        for line in self.for_host(name, block.text).splitlines():
            known = line.split("#")[0].strip()
            if known in self.instead:
                self.unused.discard(known)
                line = self.instead[known]
            if known and not line.startswith((" ", "done", "for ")):
                self.commands[name] += 1
            script.append(line)
        return "\n".join(script) + "\n"

    def done(self):
        if self.unused:
            raise GuideError(f"the guide has no longer these lines: {sorted(self.unused)}")


def key(line):
    """The name that a line sets: `port 7001`, `copies = 2`, `node mx1 { ...`; None for a comment."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    return " ".join(words[:2]) if words[0] in ("node", "replica", "destination") else words[0].rstrip("=")


def merged(text, lines):
    """The file with these lines: each in the place of the one of its name, new ones at the end. `tls-port` takes the place of `port`, if that is 0 here."""
    new = {key(line): line for line in lines.splitlines() if key(line)}
    out = []
    for line in text.splitlines():
        out.append(new.pop(key(line), line) if key(line) else line)
    return "\n".join(out + list(new.values())) + "\n"


def replaced_service(text, lines):
    """master.cf with this service in the place of the one of its name and type, with that one's options."""
    name = lines.split()[:2]
    out, skipping, put = [], False, False
    for line in text.splitlines():
        if line[:1] not in (" ", "\t"):
            skipping = line.split()[:2] == name
            if skipping:
                out += lines.splitlines()
                put = True
        if not skipping:
            out.append(line)
    if not put:
        raise GuideError(f"master.cf has no service {' '.join(name)}")
    return "\n".join(out) + "\n"
