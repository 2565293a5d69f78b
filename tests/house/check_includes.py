#!/usr/bin/env python3
"""Reads the #include lines and fails when the house's walls are crossed (docs/design.md, "The house").

    lib/ includes no program's header; programs include none of each other's; the two pure cores include
    nothing but themselves and the C library without I/O; dependencies point downwards only.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)

# folder: folders whose headers it may include, beside its own
WALLS = {
    "redis-module/lane": [],
    "redis-module/commands": ["redis-module", "redis-module/lane"],
    "redis-module": ["redis-module/commands", "redis-module/lane"],
    "lib": [],
    "milter": ["lib"],
    "proxy": ["lib"],
    "relay": ["lib"],
    "ctl": ["lib"],
    "dovecot-plugin/orset": [],
    "dovecot-plugin/state": ["dovecot-plugin/orset"],
    "dovecot-plugin": [],  # compat.h
    "dovecot-plugin/kept": ["dovecot-plugin"],
    "dovecot-plugin/delivery": ["dovecot-plugin"],
    "dovecot-plugin/plugin": ["lib", "dovecot-plugin", "dovecot-plugin/delivery", "dovecot-plugin/kept"],
    "dovecot-plugin/replicator": ["lib", "dovecot-plugin", "dovecot-plugin/delivery", "dovecot-plugin/kept", "dovecot-plugin/orset", "dovecot-plugin/state"],
    "dovecot-plugin/doveadm": ["lib", "dovecot-plugin"],
}
# The pure cores do no I/O and read no clock: of the C library just these.
PURE = {"redis-module/lane", "dovecot-plugin/orset"}
PURE_SYSTEM = {"assert.h", "limits.h", "stdalign.h", "stdbool.h", "stddef.h", "stdint.h", "string.h", "inttypes.h",
               "stdarg.h", "stdio.h", "stdlib.h"}  # snprintf, qsort; check_symbols.py sees to the rest


def folder_of(path):
    """The longest wall that the file stands in."""
    relative = path.relative_to(ROOT).as_posix()
    inside = [w for w in WALLS if relative.startswith(w + "/")]
    return max(inside, key=len) if inside else None


def resolve(path, name, folder):
    """The wall of an included header of ours, or None when it is not ours."""
    near = (path.parent / name).resolve()
    places = [near] + [ROOT / w / name for w in [folder, *WALLS[folder]]]
    for place in places:
        if place.is_file() and place.is_relative_to(ROOT):
            return folder_of(place) or place.relative_to(ROOT).as_posix()
    elsewhere = [w for w in WALLS if (ROOT / w / name).is_file()]
    return elsewhere[0] if elsewhere else None


def check_file(path):
    folder = folder_of(path)
    if folder is None:
        return
    for match in INCLUDE.finditer(path.read_text(errors="replace")):
        kind, name = match.groups()
        where = f"{path.relative_to(ROOT)}: #include {name}"
        if kind == "<":
            if folder in PURE and name not in PURE_SYSTEM:
                yield f"{where}: {folder} is a pure core, it may include only {', '.join(sorted(PURE_SYSTEM))}"
            continue
        target = resolve(path, name, folder)
        if target is not None and target != folder and target not in WALLS[folder]:
            yield f"{where}: {folder} must not include what belongs to {target}"


def main():
    files = [p for p in ROOT.rglob("*.[chd]*") if p.suffix in (".c", ".h", ".def") and "build" not in p.parts[len(ROOT.parts)]]
    wrong = [line for p in sorted(files) for line in check_file(p)]
    for line in wrong:
        print(line)
    print(f"house: {len(files)} files read, {len(wrong)} walls crossed")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
