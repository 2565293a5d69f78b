#!/usr/bin/env python3
"""Reads the #include lines, and fails where the house's walls are crossed
(docs/design.md, "The house").

    usage: check_includes.py [upward]     upward: lists the includes that UPWARD counts

    paths    #include "..." names a file of ours by its path from the root
    walls    a room is a folder; it may include what is in it, and the rooms that WALLS lists for it
    upward   UPWARD counts what a room includes of rooms above it. It may only become less
    pure     the two cores include nothing but themselves and the C library without I/O
    guards   a header's guard is its path
    library  a source that calls the C library includes the header of that function, by itself or
             by headers of ours: other libraries' headers bring it in one release and not in the
             next
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)

# Each room with the rooms that it may include: those below it. A header that all rooms of a
# program share is a room of its own.
WALLS = {
    "lib/base": "",
    "lib/mail": "lib/base",
    "lib/cluster": "lib/base",
    "lib/shape": "lib/base",
    "lib/config/acting_plugins.h": "",
    "lib/config": "lib/base lib/mail lib/cluster lib/shape",
    "lib/redis": "lib/base lib/cluster lib/config",
    "lib/postfix": "lib/base lib/config",
    "lib/daemon": "lib/base lib/config lib/redis",
    "lib/store": "lib/base lib/mail lib/cluster lib/config lib/redis",
    "lib/ingress":
        "lib/base lib/mail lib/cluster lib/shape lib/config lib/redis lib/postfix lib/daemon "
        "lib/store",
    "redis-module/core": "",
    "redis-module/server": "redis-module/core",
    "redis-module/propagate": "redis-module/server",
    "redis-module/keyspace": "redis-module/server redis-module/propagate",
    "redis-module/persist": "redis-module/propagate redis-module/keyspace",
    "redis-module/commands": "redis-module/server redis-module/propagate redis-module/keyspace",
    "redis-module": "redis-module/server redis-module/persist redis-module/commands",
    "milter": "lib/base lib/mail lib/config lib/postfix lib/daemon lib/store lib/ingress",
    "proxy": "lib/base lib/mail lib/config lib/postfix lib/daemon lib/store lib/ingress",
    "relay/relay.h": "lib/config lib/redis",
    "relay/smtp": "lib/base lib/mail lib/config lib/redis lib/postfix",
    "relay/cluster": "lib/base lib/mail lib/cluster lib/config lib/redis relay/relay.h",
    "relay/tables":
        "lib/base lib/mail lib/config lib/redis lib/postfix relay/relay.h relay/smtp "
        "relay/cluster",
    "relay/acks": "lib/base lib/mail lib/redis relay/relay.h relay/cluster relay/tables",
    "relay/shape":
        "lib/base lib/redis lib/shape relay/relay.h relay/smtp relay/cluster relay/tables "
        "relay/acks",
    "relay/delivery":
        "lib/base lib/mail lib/postfix relay/relay.h relay/smtp relay/cluster relay/tables "
        "relay/acks relay/shape",
    "relay/intake":
        "lib/base lib/mail relay/relay.h relay/cluster relay/tables relay/acks relay/shape "
        "relay/delivery",
    "relay/retained":
        "lib/base lib/mail lib/redis relay/relay.h relay/cluster relay/tables relay/acks "
        "relay/delivery relay/intake",
    "relay/repair":
        "lib/base lib/mail lib/redis relay/relay.h relay/cluster relay/tables relay/acks "
        "relay/intake",
    "relay/heartbeat":
        "lib/base lib/mail lib/cluster lib/redis relay/relay.h relay/cluster relay/tables "
        "relay/acks relay/shape relay/delivery relay/intake relay/repair",
    "relay/gauges":
        "lib/base lib/mail lib/cluster lib/redis lib/daemon relay/relay.h relay/cluster "
        "relay/tables relay/acks relay/shape relay/repair",
    "relay":
        "lib/base lib/postfix lib/daemon relay/relay.h relay/smtp relay/cluster relay/tables "
        "relay/acks relay/shape relay/delivery relay/intake relay/retained relay/heartbeat "
        "relay/gauges",
    "ctl":
        "lib/base lib/mail lib/cluster lib/shape lib/config lib/config/acting_plugins.h lib/redis "
        "lib/postfix lib/ingress",
    "dovecot-plugin/compat.h": "",
    "dovecot-plugin/orset": "",
    "dovecot-plugin/orset/base": "dovecot-plugin/orset",
    "dovecot-plugin/orset/state": "dovecot-plugin/orset dovecot-plugin/orset/base",
    "dovecot-plugin/orset/ops":
        "dovecot-plugin/orset dovecot-plugin/orset/base dovecot-plugin/orset/state",
    "dovecot-plugin/orset/exchange":
        "dovecot-plugin/orset dovecot-plugin/orset/base dovecot-plugin/orset/state "
        "dovecot-plugin/orset/ops",
    "dovecot-plugin/store": "dovecot-plugin/orset dovecot-plugin/orset/base",
    "dovecot-plugin/protocol":
        "dovecot-plugin/compat.h dovecot-plugin/orset/base dovecot-plugin/orset/ops",
    "dovecot-plugin/indexlog": "dovecot-plugin/compat.h",
    "dovecot-plugin/stub": "dovecot-plugin/compat.h",
    "dovecot-plugin/mailbox": "dovecot-plugin/compat.h dovecot-plugin/orset",
    "dovecot-plugin/compare":
        "dovecot-plugin/orset dovecot-plugin/orset/base dovecot-plugin/orset/ops "
        "dovecot-plugin/orset/exchange dovecot-plugin/store",
    "dovecot-plugin/plugin":
        "dovecot-plugin/compat.h dovecot-plugin/protocol dovecot-plugin/indexlog "
        "dovecot-plugin/stub",
    "dovecot-plugin/doveadm":
        "lib/config dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/protocol "
        "dovecot-plugin/mailbox dovecot-plugin/compare",
    "dovecot-plugin/replicator/site/group.h": "lib/config dovecot-plugin/protocol",
    "dovecot-plugin/replicator/replicator.h":
        "lib/base lib/config dovecot-plugin/protocol dovecot-plugin/replicator/site/group.h",
    "dovecot-plugin/replicator/site":
        "lib/base lib/mail lib/config dovecot-plugin/protocol "
        "dovecot-plugin/replicator/site/group.h dovecot-plugin/replicator/replicator.h",
    "dovecot-plugin/replicator/lanes":
        "lib/base lib/mail lib/redis dovecot-plugin/replicator/replicator.h "
        "dovecot-plugin/replicator/site",
    "dovecot-plugin/replicator/users":
        "lib/base dovecot-plugin/protocol dovecot-plugin/replicator/replicator.h "
        "dovecot-plugin/replicator/site dovecot-plugin/replicator/lanes",
    "dovecot-plugin/replicator/workers":
        "lib/base dovecot-plugin/store dovecot-plugin/protocol "
        "dovecot-plugin/replicator/replicator.h dovecot-plugin/replicator/site "
        "dovecot-plugin/replicator/lanes dovecot-plugin/replicator/users",
    "dovecot-plugin/replicator/admin":
        "lib/base lib/daemon dovecot-plugin/replicator/replicator.h "
        "dovecot-plugin/replicator/site "
        "dovecot-plugin/replicator/lanes dovecot-plugin/replicator/users "
        "dovecot-plugin/replicator/workers",
    "dovecot-plugin/replicator":
        "lib/base lib/daemon lib/redis dovecot-plugin/compat.h dovecot-plugin/store "
        "dovecot-plugin/replicator/replicator.h dovecot-plugin/replicator/site "
        "dovecot-plugin/replicator/lanes dovecot-plugin/replicator/users "
        "dovecot-plugin/replicator/admin dovecot-plugin/replicator/workers",
    "dovecot-plugin/worker/session":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/orset/state dovecot-plugin/orset/exchange dovecot-plugin/store "
        "dovecot-plugin/protocol dovecot-plugin/indexlog dovecot-plugin/mailbox",
    "dovecot-plugin/worker/logs":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/store dovecot-plugin/indexlog dovecot-plugin/worker/session",
    "dovecot-plugin/worker/bodies":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/protocol dovecot-plugin/stub dovecot-plugin/mailbox "
        "dovecot-plugin/worker/session dovecot-plugin/worker/logs",
    "dovecot-plugin/worker/metadata":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/worker/session dovecot-plugin/worker/logs",
    "dovecot-plugin/worker/kept":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/protocol dovecot-plugin/worker/session dovecot-plugin/worker/bodies",
    "dovecot-plugin/worker/apply":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/orset/state dovecot-plugin/orset/ops dovecot-plugin/protocol "
        "dovecot-plugin/stub dovecot-plugin/worker/session dovecot-plugin/worker/logs dovecot-plugin/worker/bodies "
        "dovecot-plugin/worker/kept dovecot-plugin/worker/metadata",
    "dovecot-plugin/worker/ingest":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/orset/ops dovecot-plugin/protocol dovecot-plugin/worker/session "
        "dovecot-plugin/worker/logs dovecot-plugin/worker/bodies dovecot-plugin/worker/metadata "
        "dovecot-plugin/worker/apply",
    "dovecot-plugin/worker/exchange":
        "dovecot-plugin/compat.h dovecot-plugin/orset dovecot-plugin/orset/base "
        "dovecot-plugin/orset/ops dovecot-plugin/orset/exchange dovecot-plugin/store "
        "dovecot-plugin/protocol dovecot-plugin/worker/session dovecot-plugin/worker/bodies",
    "dovecot-plugin/worker":
        "lib/config/acting_plugins.h dovecot-plugin/compat.h dovecot-plugin/orset "
        "dovecot-plugin/orset/base "
        "dovecot-plugin/orset/ops dovecot-plugin/orset/exchange dovecot-plugin/store "
        "dovecot-plugin/protocol dovecot-plugin/worker/session dovecot-plugin/worker/bodies "
        "dovecot-plugin/worker/kept dovecot-plugin/worker/metadata dovecot-plugin/worker/apply "
        "dovecot-plugin/worker/ingest dovecot-plugin/worker/exchange",
}
# Functions of the C library by their header. Dovecot's lib.h promises all of these.
LIBRARY = {
    "stdio.h": "fclose fflush fgets fopen fprintf fputs printf puts snprintf sscanf vsnprintf",
    "stdlib.h": "abort atoi atoll bsearch calloc exit free getenv malloc mkdtemp mkstemp qsort "
                "realloc strtod strtol strtoll strtoul strtoull",
    "string.h": "explicit_bzero memchr memcmp memcpy memmem memmove memset strchr strcmp strcspn "
                "strdup strerror strlen strncmp strndup strpbrk strrchr strspn strstr",
    "sys/socket.h": "accept4 getsockopt sendmsg setsockopt socket",
}
PROMISES_ALL = "lib.h"
SAID = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
# Each room with the rooms above it that it includes nevertheless, and how often.
UPWARD = {}
# The pure cores, rooms and all, do no I/O and read no clock: of the C library just these.
PURE = ("redis-module/core", "dovecot-plugin/orset")
PURE_SYSTEM = {"assert.h", "limits.h", "stdalign.h", "stdbool.h", "stddef.h", "stdint.h",
               "string.h", "inttypes.h", "stdarg.h", "stdio.h",
               "stdlib.h"}  # snprintf, qsort; check_symbols.py sees to the rest


def room_of(path, walls):
    folder = path.rpartition("/")[0]
    return path if path in walls else folder if folder in walls else None


def guard_fault(path, text):
    guard = "DOVELANE_" + re.sub(r"\W", "_", path).upper()
    found = re.search(r"^#ifndef (\w+)\n#define \1$", text, re.M)
    has = found[1] if found else "missing"
    # A list that tests include more than once has none.
    if has != guard and not (has == "missing" and path.startswith("tests/")):
        yield f"{path}: its guard is {has}, and should be {guard}"


def reach(path, files, known):
    """What a file includes of the C library and others, by itself and by headers of ours."""
    if path not in known:
        known[path] = set()
        for kind, name in INCLUDE.findall(files.get(path, "")):
            known[path] |= {name} if kind == "<" or name not in files else reach(name, files, known)
    return known[path]


def library_faults(files):
    known = {}
    for path, text in sorted(files.items()):
        has = reach(path, files, known)
        if not path.endswith(".c") or PROMISES_ALL in has:
            continue
        calls = set(re.findall(r"(?<![\w.>])(\w+)\s*\(", SAID.sub(" ", text)))
        for header, functions in LIBRARY.items():
            called = sorted(calls & set(functions.split()))
            if called and header not in has:
                yield f"{path}: calls {called[0]} and lacks #include <{header}>"


def faults(files, walls, upward, pure):
    """What is wrong with files: {path: text}; and the includes that go upward."""
    found, above = [], collections.defaultdict(list)
    for path, text in sorted(files.items()):
        room = room_of(path, walls)
        if path.endswith(".h"):
            found += guard_fault(path, text)
        if room is None and not path.startswith("tests/"):
            found.append(f"{path}: its folder is no room in WALLS")
        for kind, name in INCLUDE.findall(text):
            where = f"{path}: #include {name}"
            if kind == "<":
                if room and room.startswith(pure) and name not in PURE_SYSTEM:
                    found.append(f"{where}: a pure core includes only {sorted(PURE_SYSTEM)}")
            elif name not in files:
                found.append(f"{where}: no path of a file from the root")
            elif room:
                target = room_of(name, walls)
                if target in upward.get(room, {}):
                    above[room, target].append(where)
                elif target != room and target not in walls[room].split():
                    found.append(f"{where}: {room} must not include what is in {target or 'tests'}")
    found += library_faults(files)
    for room, targets in upward.items():
        for target, number in targets.items():
            has = above[room, target]
            if len(has) != number:
                found += has if len(has) > number else []
                found.append(f"{room} includes {target} {len(has)} times; UPWARD has {number}")
    return found, above


# ---- self-test ----


def guarded(name):
    return f"#ifndef DOVELANE_{name}\n#define DOVELANE_{name}\n#endif\n"


HOUSE = {
    "low/a.h": guarded("LOW_A_H"),
    "low/a.c": '#include "low/a.h"\n#include <string.h>\n#include "high/shared.h"\n',
    "high/shared.h": guarded("HIGH_SHARED_H"),
    "high/b.h": guarded("HIGH_B_H"),
    "tests/list.h": "",
    "high/b.c": '# include "low/a.h"\n#include "high/b.h"\n#include "high/shared.h"\n',
    "mid/c.c": '#include "high/b.h"\n',
    "tests/t.c": '#include "high/b.h"\n#include "low/a.h"\n#include <time.h>\n',
}
HOUSE_WALLS = {"high/shared.h": "", "low": "high/shared.h", "mid": "low",
               "high": "high/shared.h low"}
PLANTED = [
    ("low/x.c", '#include "high/b.h"\n', "must not include"),
    ("low/x.c", '#include "tests/t.c"\n', "must not include"),
    ("high/x.c", '#include "mid/c.c"\n', "must not include"),
    ("low/x.c", '#include "a.h"\n', "no path"),
    ("tests/x.c", '#include "../low/a.h"\n', "no path"),
    ("low/x.c", "#include <time.h>\n", "pure"),
    ("low/deep/x.c", "", "no room"),
    ("new/x.c", "", "no room"),
    ("mid/x.c", '#include "high/b.h"\n', "UPWARD has 1"),
    ("mid/c.c", "", "UPWARD has 1"),
    ("tests/x.c", "void f(char *p) { free(p); }", "free and lacks #include <stdlib.h>"),
    ("tests/x.c", '#include "low/a.h"\nint n = snprintf(0, 0, "");', "#include <stdio.h>"),
    ("low/a.h", guarded("A_H"), "its guard"),
    ("low/a.h", "", "its guard"),
    ("tests/list.h", guarded("LIST_H"), "its guard"),
]


def self_test():
    upward = {"mid": {"high": 1}}
    assert faults(HOUSE, HOUSE_WALLS, upward, ("low",))[0] == []
    for path, text, what in PLANTED:
        found, _ = faults({**HOUSE, path: text}, HOUSE_WALLS, upward, ("low",))
        assert any(what in fault for fault in found), (path, text, found)


def main():
    self_test()
    folders = {room.split("/")[0] for room in WALLS} | {"tests"}
    paths = [p for folder in sorted(folders) for p in (ROOT / folder).rglob("*.[chd]*")
             if p.suffix in (".c", ".h", ".def")]
    files = {p.relative_to(ROOT).as_posix(): p.read_text(errors="replace") for p in paths}
    found, above = faults(files, WALLS, UPWARD, PURE)
    if sys.argv[1:] == ["upward"]:
        print("\n".join(line for lines in above.values() for line in lines))
    print("\n".join(found + [""]) + f"house: {len(files)} files, {len(WALLS)} rooms, {len(found)} "
          f"walls crossed; {sum(map(len, above.values()))} includes go upward, as listed")
    return 1 if found or len(files) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
