#!/usr/bin/env python3
"""Compares redis-module/server/redisapi.h, which is written by hand, with the redismodule.h of the distribution's source package.

Every call must have the same type there, every constant the same value, every structure the same size and every field the same
offset, but for what servers allow: type methods may have grown there (a server reads of ours what the version in front says), and
command arguments may be older there (a server steps by the size we tell). The header comes from $DOVELANE_REDISMODULE_H, or from
`apt-get source redis` (kept in ~/.cache/dovelane); where neither can be had the test says so and is skipped (status 77).
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
OURS = ROOT / "redis-module" / "server" / "redisapi.h"
CC = os.environ.get("CC", "cc").split()
SKIPPED = 77

# structure: fields; RedisModule... is left out of the name
STRUCTURES = {
    "TypeMethods": "version rdb_load rdb_save aof_rewrite mem_usage digest free aux_load aux_save aux_save_triggers "
                   "free_effort unlink copy defrag mem_usage2 free_effort2 unlink2 copy2",
    "Event": "id dataver",
    "ClientInfo": "version flags id addr port db",
    "FlushInfo": "version sync dbnum",
    "SwapDbInfo": "version dbnum_first dbnum_second",
    "CommandArg": "name type key_spec_index token summary since flags deprecated_since subargs",
    "CommandHistoryEntry": "since changes",
    "CommandKeySpec": "notes flags begin_search_type bs.index.pos bs.keyword.keyword bs.keyword.startfrom find_keys_type "
                      "fk.range.lastkey fk.range.keystep fk.range.limit fk.keynum.keynumidx fk.keynum.firstkey fk.keynum.keystep",
    "CommandInfoVersion": "version sizeof_historyentry sizeof_keyspec sizeof_arg",
    "CommandInfo": "version summary complexity since history tips arity key_specs args",
}
ENUMS = ["REDISMODULE_ARG_TYPE_" + n for n in "STRING INTEGER DOUBLE KEY PATTERN UNIX_TIME PURE_TOKEN ONEOF BLOCK".split()] + [
    "REDISMODULE_KSPEC_BS_" + n for n in "INVALID UNKNOWN INDEX KEYWORD".split()] + [
    "REDISMODULE_KSPEC_FK_" + n for n in "OMITTED UNKNOWN RANGE KEYNUM".split()]

# structure: the version that stands in its first field
MAY_HAVE_GROWN = {"RedisModuleTypeMethods": "REDISMODULE_TYPE_METHOD_VERSION"}
# structure: fields that servers before 7.2 do not have
MAY_BE_MISSING = {"CommandArg": "display_text"}


def skip(why):
    print(f"SKIPPED: redisapi.h was not compared: {why}")
    sys.exit(SKIPPED)


def suite_of_this_system():
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.split("=")[1].strip('"')
    return None


def from_source_package(target):
    suite = suite_of_this_system()
    if not shutil.which("apt-get") or not suite:
        skip("no apt-get here, and DOVELANE_REDISMODULE_H is not set")
    with tempfile.TemporaryDirectory() as d:
        tmp = pathlib.Path(d)
        (tmp / "src.list").write_text(f"deb-src http://deb.debian.org/debian {suite} main\n")
        for sub in ("lists/partial", "cache/archives/partial"):
            (tmp / sub).mkdir(parents=True)
        options = ["-o", f"Dir::Etc::sourcelist={tmp}/src.list", "-o", "Dir::Etc::sourceparts=/dev/null",
                   "-o", f"Dir::State::lists={tmp}/lists", "-o", f"Dir::Cache={tmp}/cache",
                   "-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=0", "-o", "APT::Sandbox::User="]
        for command in (["update"], ["source", "--download-only", "redis"]):
            done = subprocess.run(["apt-get", *options, *command], cwd=tmp, capture_output=True, text=True)
            if done.returncode:
                skip(f"apt-get {' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
        tars = list(tmp.glob("redis_*.orig.tar.*"))
        if not tars:
            skip("the source package of redis has no .orig.tar")
        subprocess.run(["tar", "xf", tars[0], "--wildcards", "--strip-components=2", "*/src/redismodule.h"], cwd=tmp, check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp / "redismodule.h", target)


def their_header():
    given = os.environ.get("DOVELANE_REDISMODULE_H")
    if given:
        return pathlib.Path(given)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    kept = cache / "dovelane" / f"redismodule-{suite_of_this_system()}.h"
    if not kept.exists():
        from_source_package(kept)
    return kept


def compile_and_run(source, run=True):
    with tempfile.TemporaryDirectory() as d:
        c = pathlib.Path(d) / "t.c"
        c.write_text(source)
        command = [*CC, "-std=gnu11", "-w", "-o", f"{d}/t", str(c)] if run else [*CC, "-std=gnu11", "-w", "-fsyntax-only", str(c)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr
        return (subprocess.run([f"{d}/t"], capture_output=True, text=True, check=True).stdout if run else ""), ""


def layout_program(header, theirs):
    lines = [f'#include <stdio.h>\n#include <stddef.h>\n#include "{header}"\nint main(void) {{']
    for structure, fields in STRUCTURES.items():
        name = "RedisModule" + structure
        newer = MAY_BE_MISSING.get(structure, "").split()
        if all(field in theirs for field in newer):
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in fields.split() + [field for field in newer if field in theirs]:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    for enum in ENUMS:
        lines.append(f'printf("{enum} %d\\n", (int){enum});')
    return "\n".join(lines) + "return 0; }\n"


def call_checks(header, ours):
    lists = re.findall(r"#define REDISAPI_(?:REQUIRED|OPTIONAL)\(X\).*?(?<!\\)\n", ours, re.S)
    known = header.read_text()
    names = re.findall(r"\bX\((\w+),", "".join(lists))
    assert len(names) > 50, "the lists of calls were not found"
    missing = [n for n in names if f"(*RedisModule_{n})" not in known]
    source = f'#include <stddef.h>\n#include "{header}"\n' + "".join(lists)
    for n in missing:
        source += f"/* not in this version */ void (*RedisModule_{n})(void);\n"
    source += ("#define X(name, returns, takes) enum { same_##name = 1 / __builtin_types_compatible_p("
               "__typeof__(RedisModule_##name), returns (*) takes) };\n")
    required = lists[0]
    source += "REDISAPI_REQUIRED(X)\n"
    not_required = [n for n in missing if f"X({n}," in required]
    assert not not_required, f"required, but not in {header}: {not_required}"
    for name, value in re.findall(r"#define (REDISMODULE_\w+) (.+)", ours):
        sign = ">=" if name in MAY_HAVE_GROWN.values() else "=="
        source += f"enum {{ value_{name} = 1 / (({name}) {sign} ({value})) }};\n"
    return source, len(names)


def main():
    header = their_header()
    ours = OURS.read_text()
    checks, calls = call_checks(header, ours)
    _, errors = compile_and_run(checks, run=False)
    if errors:
        sys.exit(f"redisapi.h differs from {header}:\n{errors}")
    mine, errors = compile_and_run(layout_program(OURS, header.read_text()))
    assert mine, errors
    theirs, errors = compile_and_run(layout_program(header, header.read_text()))
    assert theirs, errors
    for a, b in zip(mine.splitlines(), theirs.splitlines(), strict=True):
        if a != b and not (a.split()[0] in MAY_HAVE_GROWN and int(a.split()[1]) < int(b.split()[1])):
            sys.exit(f"layout differs: ours {a}, theirs {b}")
    print(f"{calls} calls and {len(mine.splitlines())} sizes, offsets and values are the same in {header}")


main()
