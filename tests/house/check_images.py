#!/usr/bin/env python3
"""Fails where an image of docker/Dockerfile gets a program of ours without a library it needs.

    usage: check_images.py BUILD
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What each Debian has, or what comes with the packages of the others.
EVERYWHERE = {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64", "libssl", "libcrypto"}


def needed(program):
    """Names without versions: libev, libhiredis."""
    said = subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True)
    return {name.partition(".so")[0].partition("_ssl")[0]
            for name in re.findall(r"NEEDED +(\S+)", said.stdout)} - EVERYWHERE


def stages(text):
    """(name, packages, programs)"""
    for stage in re.split(r"^FROM ", text.replace("\\\n", " "), flags=re.M)[1:]:
        lines = stage.splitlines()
        packages = [word for line in lines
                    for part in re.findall(r"apt-get [^&]*install ([^&]*)", line)
                    for word in part.split()]
        programs = [word.removeprefix("/build/") for line in lines
                    if line.startswith("COPY --from=build ") for word in line.split()[2:-1]]
        yield lines[0].split()[-1], packages, programs


def main():
    build, found, wrong = pathlib.Path(sys.argv[1]), 0, []
    for name, packages, programs in stages((ROOT / "docker/Dockerfile").read_text()):
        found += len(programs)
        for program in programs:
            for library in sorted(needed(build / program)):
                if not any(re.fullmatch(re.escape(library) + r"[\d.]+(t64)?", each)
                           for each in packages):
                    wrong.append(f"docker/Dockerfile: the image {name} has {program},"
                                 f" and no package for {library}")
    if not found:
        wrong.append("docker/Dockerfile: no image gets a program from the build")
    print(*wrong, f"images: {found} programs, {len(wrong)} complaints", sep="\n")
    return bool(wrong)


sys.exit(main())
