#!/usr/bin/env python3
"""Fails where docker/Dockerfile and docker-compose.yml break what docs/docker.md promises.

    usage: check_images.py

Programs of ours come into an image by their Debian packages alone, which are made from all that the
build reads. What comes from the clone is readable to all, whatever its modes there (a umask of 077,
say). Nothing names an architecture. Nothing is published beyond 127.0.0.1.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURE = re.compile(r"amd64|x86[-_]64|arm64|aarch64|--platform|^\s*platform:", re.M)


def stages(text):
    """(name, lines), with continued lines as one."""
    for stage in re.split(r"^FROM ", text.replace("\\\n", " "), flags=re.M)[1:]:
        lines = stage.splitlines()
        yield lines[0].split()[-1], lines[1:]


def sources(line):
    """What a COPY names, without its options and its target."""
    return [word for word in line.split()[1:-1] if not word.startswith("--")]


def faults(dockerfile, compose, meson):
    for name, text in (("docker/Dockerfile", dockerfile), ("docker-compose.yml", compose)):
        for found in ARCHITECTURE.finditer(text):
            yield f"{name} names an architecture: {found[0].strip()}"
    found = dict(stages(dockerfile))
    copied = {
        word for line in found["packages"] if line.startswith("COPY ") for word in sources(line)
    }
    for folder in re.findall(r"^subdir\('([\w-]+)'\)", meson, re.M):
        if folder not in copied:
            yield f"docker/Dockerfile: the packages are made without {folder}/"
    for name, lines in found.items():
        opened = [
            word
            for line in lines
            for words in re.findall(r"chmod -R a\+rX ([^&]*)", line)
            for word in words.split()
        ]
        for line in lines:
            target = line.split()[-1] if line.strip() else ""
            if (
                name != "packages"
                and line.startswith("COPY ")
                and "--from" not in line
                and not any(word.startswith(target.rstrip("/")) for word in opened)
                and not any(target.startswith(f"{word}/") for word in opened)
            ):
                yield f"docker/Dockerfile: {name} leaves {target} with the modes of the clone"
            if line.startswith("COPY --from=") and not all(
                re.fullmatch(r"/debs/[\w*-]+\.deb", word) for word in sources(line)
            ):
                yield f"docker/Dockerfile: {name} copies something else than packages: {line}"
    for port in re.findall(r'"(\S+:\d+)"$|\["(\S+:\d+)"\]', compose, re.M):
        if not "".join(port).startswith("127.0.0.1:"):
            yield f"docker-compose.yml publishes {''.join(port)}"


def main():
    said = list(
        faults(
            *(
                (ROOT / name).read_text()
                for name in ("docker/Dockerfile", "docker-compose.yml", "meson.build")
            )
        )
    )
    print(*said, f"images: {len(said)} complaints", sep="\n")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
