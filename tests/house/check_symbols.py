#!/usr/bin/env python3
"""What nm says of the objects.

usage: check_symbols.py pure library.a...   the pure cores allocate through what is injected, do no
                                            I/O and read no clock
       check_symbols.py used build-folder   another object of the product uses each external symbol
       check_symbols.py self-test
"""
import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# bcmp is what clang makes of a memcmp that is only compared with 0.
ALLOWED = re.compile(r"""^(?:
    mem(?:cpy|move|set|cmp|chr|mem) | bcmp
  | str(?:len|cmp|ncmp|chr|rchr|spn|cspn|casecmp|ncasecmp|nlen|str)
  | qsort | bsearch | snprintf | vsnprintf | abort | __assert_fail | __stack_chk_fail | __\w+_chk
  | _GLOBAL_OFFSET_TABLE_ | __asan_\w+ | __ubsan_\w+ | __tls_get_addr | __bswap\w+ | __popcountdi2
  | __ctype_\w+
)$""", re.X)

# (source, symbol): why it is external though no other object of the product uses it. "*" is any
# text. An entry that nobody needs any more is a fault, too.
MAIN = "a program begins there"
MODULE = "Dovecot asks a module for it by name"
INSTEAD = "a library calls it instead of its own or of libc's: the file's head says why"
ENTRIES = {
    ("ctl/main.c", "main"): MAIN,
    ("milter/main.c", "main"): MAIN,
    ("proxy/main.c", "main"): MAIN,
    ("relay/main.c", "main"): MAIN,
    ("dovecot-plugin/replicator/main.c", "main"): MAIN,
    ("dovecot-plugin/worker/main.c", "main"): MAIN,
    ("lib/config/config_doc.c", "main"): MAIN,
    ("lib/base/log_fields_doc.c", "main"): MAIN,
    ("lib/base/metrics_doc.c", "main"): MAIN,
    ("lib/postfix/parameters_doc.c", "main"): MAIN,
    ("redis-module/module.c", "RedisModule_OnLoad"): "the server asks a module for it by name",
    ("dovecot-plugin/plugin/plugin.c", "dovelane_plugin_*"): MODULE,
    ("dovecot-plugin/plugin/settings_module.c", "dovelane_settings_*"): MODULE,
    ("dovecot-plugin/doveadm/doveadm_dovelane.c", "doveadm_dovelane_plugin_*"): MODULE,
    ("dovecot-plugin/replicator/bridge.c", "epoll_wait"): INSTEAD,
    ("dovecot-plugin/worker/session/recent.c", "mailbox_recent_flags_*"): INSTEAD,
    ("dovecot-plugin/worker/session/file_names.c", "maildir_uidlist_*"): INSTEAD,
    ("dovecot-plugin/worker/metadata/sieve.c", "doveadm_*"): "Sieve's module wants it of doveadm",
}
# The same for what only tests use beside its own file.
PIECE = "a piece of its file that is tested alone: the whole reaches only some of its cases"
JUDGE = "tests look at a state from outside"
FOR_TESTS = {
    ("lib/shape/backoff.c", "backoff_rules_at"): JUDGE,
    ("lib/shape/backoff.c", "backoff_rules_count"): JUDGE,
    ("lib/ingress/depth.c", "depth_free"): "a program keeps its one until it ends; tests make many",
    ("dovecot-plugin/protocol/delivery_id.c", "delivery_id_code"): PIECE,
    ("dovecot-plugin/protocol/delivery_id.c", "delivery_key_parse"): PIECE,
    ("dovecot-plugin/orset/state/life.c", "orset_remembered"): JUDGE,
    ("dovecot-plugin/orset/state/epoch.c", "orset_epoch_doubt"):
        "docs/replication-protocol.md offers it to callers of the core; the replicator is none",
    ("dovecot-plugin/orset/exchange/exchange.c", "orset_raise"): PIECE,
    ("dovecot-plugin/orset/state/prefetch.c", "orset_prefetch"):
        "the figures of docs/lab are measured with it",
    ("dovecot-plugin/store/state_sqlite.c", "state_sqlite_rows"): JUDGE,
    ("lib/mail/mime.c", "mime_says_8bit"): PIECE,
    ("relay/delivery/bounce.c", "bounce_body"): PIECE,
    ("relay/delivery/bounce.c", "bounce_header"): PIECE,
    ("relay/delivery/delivery_log.c", "delivery_seconds"): PIECE,
    ("relay/delivery/retry.c", "retry_due"): PIECE,
}
# Product sources, built once more for a test.
TEST_BUILDS = {"dovecot-plugin/worker/dovelane-worker-crashing"}


def nm(*files, folder=".", kinds="ABCDGRSTVW"):
    """Per object what it gives to others (of these kinds), and what it wants from them."""
    run = subprocess.run(["nm", "-A", *files], cwd=folder, capture_output=True, text=True)
    if run.returncode or "plugin needed" in run.stderr:  # to read what is compiled with -flto
        sys.exit(run.stderr or f"nm: status {run.returncode}")
    given, wanted = collections.defaultdict(set), collections.defaultdict(set)
    for line in run.stdout.splitlines():
        place, kind, name = re.match(r"(.*?):\s*(?:[0-9a-f]+ )?\s*(\w) (\S+)", line).groups()
        if kind in "Uwv":
            wanted[place].add(name)
        elif kind in kinds:
            given[place].add(name)
    return given, wanted


# ---- pure: what a core wants from outside ----

def outside(library):
    given, wanted = nm(library)
    if not given:
        sys.exit(f"{library}: no symbols, so nothing was checked")
    inside = set().union(*given.values())
    return {name: place for place, names in wanted.items() for name in names - inside}


def pure(libraries):
    wrong = [f"{place}: uses {name}" for library in libraries
             for name, place in sorted(outside(library).items()) if not ALLOWED.match(name)]
    print("\n".join(wrong) or f"{len(libraries)} pure libraries, nothing from outside")
    return 1 if wrong else 0


# ---- used: what nobody calls ----

class Build:
    """build.ninja's word: an object's source, and what programs and modules are linked from."""

    def __init__(self, folder, root):
        self.folder, self.source, self.inputs, archives = folder, {}, {}, set()
        text = (folder / "build.ninja").read_text().replace("$\n", "")
        for output, rule, rest in re.findall(r"^build (\S+): (\w+) (.*)$", text, re.M):
            inputs = [i for i in rest.split() if not i.startswith("|")]
            if rule.endswith("_COMPILER"):
                self.source[output] = os.path.relpath(folder / inputs[0], root)
            elif rule.endswith("_LINKER"):
                self.inputs[output] = inputs
                if rule.startswith("STATIC"):
                    archives.add(output)
        self.programs = sorted(self.inputs.keys() - archives)
        self.given, self.wanted = nm(*self.source, folder=folder)

    def of_tests(self, program):
        return program.startswith("tests/") or program in TEST_BUILDS

    def linked(self, program):
        """What the linker takes: objects given by name, and of libraries what is asked for."""
        taken, offered, names = [], {}, [program]
        for name in names:  # grows
            for member in self.inputs[name]:
                if member in self.inputs and member not in names:
                    names.append(member)
                elif member in self.source and name == program:
                    taken.append(member)
                for symbol in self.given.get(member, ()):
                    offered.setdefault(symbol, member)
        known = set(taken)
        for output in taken:  # grows
            new = {offered[s] for s in self.wanted.get(output, ()) if s in offered} - known
            taken += sorted(new)
            known |= new
        return taken


def users(build, programs, counts):
    """Of each (source, symbol) the sources that use it in one of the programs."""
    used = collections.defaultdict(set)
    for program in programs:
        objects = build.linked(program)
        giver = {symbol: o for o in objects for symbol in build.given.get(o, ())}
        for o in objects:
            for symbol in build.wanted.get(o, ()):
                if symbol in giver and counts(build.source[o]):
                    used[build.source[giver[symbol]], symbol].add(build.source[o])
    return used


def listed(entries, source, symbol):
    fits = (e for e in entries if e[0] == source and
            re.fullmatch(e[1].replace("*", ".*"), symbol))
    return next(fits, None)


def unused(build, entries, for_tests):
    """(Source, symbol, what is wrong): what nobody uses, and entries that are not needed."""
    product = [p for p in build.programs if not build.of_tests(p)]
    ours = {o: s for o, s in build.source.items()
            if not s.startswith("tests/") and not build.of_tests(o.split(".p/")[0])}
    by_product = users(build, product, lambda source: True)
    by_tests = users(build, set(build.programs) - set(product), lambda s: s.startswith("tests/"))
    needed = set()
    for source, symbol in sorted({(ours[o], s) for o in ours for s in build.given.get(o, ())}):
        if by_product[source, symbol]:
            continue
        tests = sorted(by_tests[source, symbol])
        entry = listed(for_tests if tests else entries, source, symbol)
        needed.add(entry)
        if not entry and tests:
            yield source, symbol, (f"only tests use it ({tests[0]}): move it, make it static, "
                                   "or list it with a reason")
        elif not entry:
            yield source, symbol, "no other object uses it: delete it, or make it static"
    for entry in [*entries, *for_tests]:
        if entry not in needed and entry[0] in ours.values():
            yield *entry, "is listed in check_symbols.py, and needs not be"


def used(folder):
    build = Build(pathlib.Path(folder).resolve(), pathlib.Path(__file__).resolve().parents[2])
    wrong = [": ".join(w) for w in unused(build, ENTRIES, FOR_TESTS)]
    if not build.given:
        sys.exit(f"{folder}: no symbols, so nothing was checked")
    print("\n".join(wrong) or
          f"{len(build.source)} objects, {len(build.programs)} programs and modules: each external "
          f"symbol has a user; {len(ENTRIES)} entries, {len(FOR_TESTS)} for tests")
    return 1 if wrong else 0


# ---- self-test ----

PLANTED = {
    "main.c": "int used(void); int main(void) { return used(); }",
    "lib.c": """int own(void) { return 1; } int used(void) { return own(); }
                int tested(void) { return 2; }""",
    "dead.c": "int dead_a(void) { return 3; }",
    "circle.c": "int dead_a(void); int dead_b(void) { return dead_a(); }",
    "other.c": "int own(void); int main(void) { return own(); }",
    "namesake.c": "int own(void) { return 4; } int dead_c(void) { return 5; }",
    "tests/test.c": "int tested(void), used(void); int main(void) { return tested() + used(); }",
}
NINJA = "".join(f"build {name}.o: c_COMPILER {name}\n" for name in PLANTED) + """\
build lib.a: STATIC_LINKER lib.c.o dead.c.o circle.c.o
build program: c_LINKER main.c.o | lib.a
build other: c_LINKER other.c.o namesake.c.o
build tests/test: c_LINKER tests/test.c.o | lib.a
"""
# dead_b() alone calls dead_a(), and no program takes it; who calls own() has another one than the
# library's.
FOUND = [("circle.c", "dead_b"), ("dead.c", "dead_a"), ("lib.c", "own"), ("lib.c", "tested"),
         ("namesake.c", "dead_c")]


def plant(folder, files, ninja):
    (folder / "tests").mkdir()
    (folder / "build.ninja").write_text(ninja)
    for name, text in files.items():
        (folder / name).write_text(text)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run([*compiler, "-c", name, "-o", name + ".o"], cwd=folder, check=True)
    return Build(folder, folder)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        build = plant(pathlib.Path(folder).resolve(), PLANTED, NINJA)
    mains = {("main.c", "main"): "", ("other.c", "main"): ""}
    assert [w[:2] for w in unused(build, mains, {})] == FOUND
    entries = {**mains, **{e: "" for e in FOUND if e[1] != "tested"}}
    for_tests = {("lib.c", "tes*"): ""}
    assert not list(unused(build, entries, for_tests))
    stale = list(unused(build, {**entries, ("lib.c", "used"): ""}, for_tests))
    assert [w[:2] for w in stale] == [("lib.c", "used")], stale
    assert not list(unused(build, {**entries, ("not_built_here.c", "x"): ""}, for_tests))
    print("what is planted is found")
    return 0


def main():
    what, *arguments = sys.argv[1:]
    if what == "pure":
        return pure(arguments)
    return used(*arguments) if what == "used" else self_test()


if __name__ == "__main__":
    sys.exit(main())
