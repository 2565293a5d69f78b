"""The commands that README.md and docs/docker.md tell a reader to type, as they stand there.

Three places have them: fenced blocks, `code` in the text, and the first column of a table whose
head is a command that ends in "...". A prompt ("mx1# ") and a comment are no part of a command.
"""

import re

PROGRAMS = {"apt", "apt-get", "docker", "docker-compose", "dovelane", "make", "systemctl"}
NAMES = {"docker compose", "docker buildx"}  # of programs, where they stand alone
SCRIPTS = {"./setup", "docker/make-base-image.sh"}
SETTING = re.compile(r"[A-Z_]+=\S+$")


def is_command(text):
    """Whether it is to be typed; one word alone is the name of a program, but for scripts."""
    words = text.split() if text not in NAMES else []
    while words and SETTING.match(words[0]):
        words.pop(0)
    return bool(words) and (words[0] in SCRIPTS or (words[0] in PROGRAMS and len(words) > 1))


def typed(line):
    return re.sub(r"^\s*(?:\w+# )?", "", re.sub(r"(^|\s)#\s.*", "", line)).strip()


def of_rows(lines):
    """Below the head `demo ...` each code of a first cell is the rest of a command."""
    head = None
    for line in lines:
        cell = line.split("|")[1] if line.startswith("|") else None
        codes = re.findall(r"`([^`]+)`", cell or "")
        if cell is None:
            head = None
        elif codes and codes[0].endswith(" ..."):
            head = codes[0].removesuffix(" ...")
        elif head is not None and not re.fullmatch(r"[-: ]+", cell):
            yield from (f"{head} {code}" for code in codes) if codes else [head]


def commands(text):
    """All of a page, each once, in their order."""
    fence = re.compile(r"^ *```.*?^ *```", re.M | re.S)
    found = [typed(line) for block in fence.findall(text) for line in block.splitlines()[1:-1]]
    prose = fence.sub("", text)
    whole = re.sub(r"(?m)^ *\| *`[^`|]+ \.\.\.`.*", "", prose)  # the heads are parts
    found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", whole)]
    found += of_rows([line.strip() for line in prose.splitlines()])
    return list(dict.fromkeys(each for each in found if is_command(each)))
