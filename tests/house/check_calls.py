#!/usr/bin/env python3
"""Which file uses which, by what the linker joins; fails where that is not as the tables say
(docs/design.md, "The house").

usage: check_calls.py build-folder             compares with the tables
       check_calls.py build-folder tables      prints the tables as they should be
       check_calls.py build-folder FOLDER      lists the folder's uses that go up, and its knots
       check_calls.py self-test

    use      a file calls a function of another file, or takes its address, in one of the
             programs. Several places in the file count once. A callback's call is no use
    upward   the other file's room comes later in WALLS (check_includes.py)
    knot     files that all reach each other by uses. A folder's knot is that of all files below it

Both tables must match exactly, so that they only become larger knowingly.
"""
import collections
import pathlib
import sys
import tempfile

import check_includes
import check_symbols

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Each folder with its largest knot, where that is more than one file.
KNOTS = {
    "dovecot-plugin": 3,
    "dovecot-plugin/plugin": 3,
    "dovecot-plugin/replicator": 2,
    "dovecot-plugin/replicator/site": 2,
    "dovecot-plugin/replicator/users": 2,
    "dovecot-plugin/worker": 3,
    "dovecot-plugin/worker/bodies": 3,
    "dovecot-plugin/worker/ingest": 3,
    "dovecot-plugin/worker/metadata": 2,
    "dovecot-plugin/worker/session": 3,
    "lib": 4,
    "lib/store": 4,
    "milter": 2,
    "proxy": 2,
    "redis-module": 7,
    "redis-module/core": 7,
    "redis-module/keyspace": 5,
    "relay": 4,
    "relay/heartbeat": 4,
    "relay/repair": 3,
    "relay/smtp": 4,
}
# Each room with the rooms above it that it uses nevertheless, and how often.
UPWARD = {}
# What a program defines for a library to call it instead of libc's.
INSTEAD = {("milter/engine_libmilter.c", "accept")}


def room_of(source, walls):
    folder = source
    while folder and folder not in walls:
        folder = folder.rpartition("/")[0]
    return folder


def folders_of(source):
    parts = source.split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]


def uses_of(build, walls):
    """(User, source, function) of the product's own files, in its programs."""
    product = [p for p in build.programs if not build.of_tests(p)]
    used = check_symbols.users(build, product, lambda source: room_of(source, walls))
    given, _ = check_symbols.nm(*build.source, folder=build.folder, kinds="TW")
    functions = {(build.source[o], name) for o, names in given.items() for name in names}
    return {(user, *what) for what, users in used.items() if what in functions - INSTEAD
            for user in users if user != what[0] and room_of(what[0], walls)}


def knots_of(edges):
    """Tarjan's strongly connected components, of more than one file."""
    order, low, stack, found = {}, {}, [], []

    def visit(file):
        order[file] = low[file] = len(order)
        stack.append(file)
        for other in sorted(edges.get(file, ())):
            if other not in order:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == order[file]:
            place = stack.index(file)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for file in sorted(edges):
        if file not in order:
            visit(file)
    return sorted(found, key=lambda knot: (-len(knot), knot))


def knots_below(folder, uses):
    edges = collections.defaultdict(set)
    for user, source, _ in uses:
        if user.startswith(folder + "/") and source.startswith(folder + "/"):
            edges[user].add(source)
    return knots_of(edges)


def upward_of(uses, walls):
    """Of each room the uses of rooms above it: {room: {room above: [(user, source, symbol)]}}"""
    place = {room: n for n, room in enumerate(walls)}
    above = collections.defaultdict(lambda: collections.defaultdict(list))
    for use in sorted(uses):
        room, other = room_of(use[0], walls), room_of(use[1], walls)
        if place[other] > place[room]:
            above[room][other].append(use)
    return above


def tables_of(uses, walls):
    folders = {folder for use in uses for folder in folders_of(use[0])}
    knots = {f: len(k[0]) for f in sorted(folders) if (k := knots_below(f, uses))}
    upward = {room: {other: len(list_) for other, list_ in sorted(above.items())}
              for room, above in sorted(upward_of(uses, walls).items())}
    return knots, upward


def differences(has, allowed, what):
    for key in sorted(has.keys() | allowed.keys()):
        is_, should = has.get(key, 0), allowed.get(key, 0)
        if is_ != should:
            yield f"{what(key)}: {is_}, and the table has {should}"


def flat(upward):
    return {(room, other): n for room, above in upward.items() for other, n in above.items()}


def faults(uses, walls, knots, upward):
    has_knots, has_upward = tables_of(uses, walls)
    found = list(differences(has_knots, knots, lambda f: f"the largest knot of {f}"))
    found += differences(flat(has_upward), flat(upward), lambda k: f"uses of {k[1]} by {k[0]}")
    if found:
        found.append("`check_calls.py BUILD FOLDER` lists what is in the way")
    return found


def wrong_order(walls):
    """Upward is by the order of WALLS: what a room may include must come before it."""
    place = {room: n for n, room in enumerate(walls)}
    return [f"WALLS: {other} comes after {room}, which may include it"
            for room, below in walls.items() for other in below.split()
            if place[other] > place[room]]


# ---- what it prints ----

def print_tables(knots, upward):
    print("KNOTS = {")
    for folder, number in knots.items():
        print(f'    "{folder}": {number},')
    print("}\nUPWARD = {")
    for room, above in upward.items():
        inner = ", ".join(f'"{other}": {n}' for other, n in above.items())
        line = f'    "{room}": {{{inner}}},'
        if len(line) > 100:
            inner = "".join(f'        "{other}": {n},\n' for other, n in above.items())
            line = f'    "{room}": {{\n{inner}    }},'
        print(line)
    print("}")


def print_folder(folder, uses, walls):
    for above in upward_of(uses, walls).values():
        for user, source, symbol in (use for list_ in above.values() for use in list_):
            if user.startswith(folder + "/"):
                print(f"up: {user} uses {symbol} of {source}")
    for knot in knots_below(folder, uses):
        print(f"knot of {len(knot)}: {' '.join(knot)}")
        for user, source, symbol in sorted(uses):
            if user in knot and source in knot:
                print(f"    {user} uses {symbol} of {source}")


# ---- self-test ----

PLANTED = {
    "low/a.c": "int b(void); int a(void) { return b(); }",
    "low/b.c": "int c(void); int b(void) { return c(); }",
    "low/c.c": "int a(void); int up(void); int c(void) { return a() + up(); }",
    "high/main.c": "int a(void); int up(void) { return up(); } int main(void) { return a(); }",
    "high/table.c": "extern const int v; int high(void) { return v; }",
    "low/v.c": "int high(void), (*taken)(void) = high; const int v = 1; int w(void) { return v; }",
    "high/other.c": "int high(void), w(void); int main(void) { return high() + w(); }",
    "tests/t.c": "int a(void); int main(void) { return a(); }",
}
NINJA = "".join(f"build {name}.o: c_COMPILER {name}\n" for name in PLANTED) + """\
build low.a: STATIC_LINKER low/a.c.o low/b.c.o low/c.c.o low/v.c.o
build program: c_LINKER high/main.c.o | low.a
build other: c_LINKER high/other.c.o high/table.c.o | low.a
build tests/t: c_LINKER tests/t.c.o high/main.c.o | low.a
"""
WALLS = {"low": "", "high": "low"}
FOUND = {"low": 3}, {"low": {"high": 2}}  # up() and, as an address, high()


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()
        (folder / "low").mkdir()
        (folder / "high").mkdir()
        uses = uses_of(check_symbols.plant(folder, PLANTED, NINJA), WALLS)
    assert tables_of(uses, WALLS) == FOUND, tables_of(uses, WALLS)
    assert not faults(uses, WALLS, *FOUND)
    assert len(faults(uses, WALLS, {"low": 2, "high": 2}, {"low": {"high": 1}})) == 4
    assert len(faults(uses, WALLS, {}, {})) == 3
    assert not wrong_order(WALLS) and wrong_order({"high": "low", "low": ""})
    edges = {"a": "bc", "b": "a", "c": "de", "d": "c", "e": "f"}
    assert knots_of(edges) == [["a", "b"], ["c", "d"]]
    print("what is planted is found")
    return 0


def main():
    if sys.argv[1] == "self-test":
        return self_test()
    walls = check_includes.WALLS
    uses = uses_of(check_symbols.Build(pathlib.Path(sys.argv[1]).resolve(), ROOT), walls)
    if len(uses) < 100:
        sys.exit(f"{sys.argv[1]}: {len(uses)} uses, so nothing was checked")
    knots, upward = tables_of(uses, walls)
    if sys.argv[2:] == ["tables"]:
        print_tables(knots, upward)
        return 0
    if sys.argv[2:]:
        print_folder(sys.argv[2].rstrip("/"), uses, walls)
        return 0
    wrong = wrong_order(walls) + faults(uses, walls, KNOTS, UPWARD)
    print("\n".join(wrong) or f"{len(uses)} uses of one file by another; "
          f"{sum(flat(upward).values())} go up, as listed; the largest knot has "
          f"{max(knots.values(), default=0)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
