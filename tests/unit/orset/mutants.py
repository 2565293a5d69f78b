#!/usr/bin/env python3
"""Breaks the core on purpose, one line at a time, in a scratch copy; every break must be caught.

    mutants.py [part of a name ...]      prints each mutant with the test that caught it; fails when one lives
    mutants.py --stale                   prints those whose line is not there any more; fails when there are some

Tests, cheapest first: unit, the short exhaustive walk, the fuzz driver, 300 runs of the simulator.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = "dovecot-plugin/orset"
CORE, STATE = ROOT / PLACE, ROOT / "dovecot-plugin/store"
MEMSTORE = ROOT / "tests/support/memstore"
TESTS, FUZZ = ROOT / "tests/unit/orset", ROOT / "tests/fuzz/orset"

# name, file, what stands there, what stands there instead
MUTANTS = [
    ("remembered removes dropped after an exchange", "exchange.c",
     "int r = orset_pending_covered(os, x->base.map[i], from, x->base.seen[i]);",
     "int r = orset_pending_covered(os, x->base.map[i], 0, ORSET_COUNTER_MAX);"),
    ("removes not remembered in an exchange", "merge.c",
     "return orset_covered(os, d) ? 0 : orset_pending_kill(os, d, by);", "return 0;"),
    ("a remove of what has not come is forgotten", "apply_op.c",
     "        if (f)\n            r = orset_message_remove(os, f, d, x->local);\n        if (r == 0 && !orset_covered(os, d))\n            r = orset_pending_kill(os, d, x->by);",
     "        if (f)\n            r = orset_message_remove(os, f, d, x->local);"),
    ("remembered flags not taken by an exchanged message", "merge.c",
     "if ((r = orset_pending_take_flags(os, kept)) < 0 || (r", "if ((r"),
    ("vector raised at the hello", "exchange.c",
     "        e = take_body(os, x, kind, &x->base, &r);", "        e = take_body(os, x, kind, &x->base, &r);\n        if (e == 0)\n            e = orset_raise(os, x);"),
    ("an older giver is not noticed", "exchange.c", "return older ? orset_fail(", "return older && !x ? orset_fail("),
    ("covered and absent does not remove", "merge.c", "return d.counter <= orset_peer_has(now, d.origin) ||", "return"),
    ("what this replica removed is taken over again", "merge.c",
     "int killed = orset_covered(os, d) ? 1 : orset_pending_killed(os, d);", "int killed = orset_pending_killed(os, d);"),
    ("k is always 1", "local_changes.c", "i < n && os->copies.v[i].k <= (uint32_t)k; i++)", "i < n && false; i++)"),
    ("a peer's dots of one message without end", "bounds.c", "if (theirs >= ORSET_PEER_SAME_MAX &&", "if (false &&"),
    ("a peer's epochs on one subscription without end", "bounds.c", "if (theirs >= ORSET_PEER_SUBSCRIBED_MAX &&", "if (false &&"),
    ("a bound that is found dry does not count", "apply_op.c", "if (x->beyond < 0)", "if (false)"),
    ("the copies in memory outlive a message's removal", "group.c", "        memmove(&c->v[at], &c->v[at + 1], (c->n - at - 1) * sizeof *c->v);\n        c->n--;", "        ;"),
    ("k is never used again", "local_changes.c", "int n = orset_copies(os, guid, f->index), k = 1;", "int n = orset_copies(os, guid, f->index), k = 2;"),
    ("setting wins for \\Deleted", "group.c", "s->system &= (uint8_t)~no.system;", "(void)no;"),
    ("a clearing removes flags it did not see", "apply_op.c",
     "if (m->flag[j].dot.origin == d.origin && m->flag[j].dot.counter == d.counter) {", "if (m->flag[j].flag == fresh.flag) {"),
    ("presence is not renewed by an append", "apply_op.c", "if ((r = renew_presence(x, f, true)) < 0 ||\n        (r = orset_read_count",
     "if ((r = renew_presence(x, f, x->dry)) < 0 || (x->dry ? 0 : (orset_take_number(x), 0)) ||\n        (r = orset_read_count"),
    ("a flag acts on one dot of the message", "local_flags.c", "    for (int i = 0; i < n; i++) {\n        const struct message *o = m;",
     "    for (int i = 0; i < n; i++) {\n        const struct message *o = m;\n        if (i > 0)\n            break;"),
    ("an expunge takes one dot of the message", "local_changes.c", "orset_emit_remove(os, f, dots, (unsigned)kept)",
     "orset_emit_remove(os, f, dots, 1)"),
    ("dirty told in a round is lost", "uid.c", "    } else if (r == 0) {\n        r = ORSET_KNOWN;\n    }",
     "    } else if (r == 0) {\n        r = ORSET_KNOWN;\n    }\n    f->uid_told = f->uid_dirty = false;"),
    ("the earlier round wins", "message.c", "? a->round < m->round", "? a->round > m->round"),
    ("UIDs are settled without a base", "uid.c", "t->base = uid_next > t->base ? uid_next : t->base;", "t->base = t->base ? t->base : uid_next;"),
    ("the earlier name wins", "folder.c", "if (orset_stamp_order(s, f->name_stamp) <= 0)", "if (f->name_stamp.clock && orset_stamp_order(s, f->name_stamp) >= 0)"),
    ("missing is removed", "local_changes.c", "return orset_unbind(os, home, &os->m[0], true);\n}",
     "return orset_local_expunge(os, folder, uid);\n}"),
    ("a scan takes a doomed mail for a new one", "local_changes.c", "if (r == 0 && (r = orset_task_doomed(", "if (false && (r = orset_task_doomed("),
    ("a mail is removed before its copy is made", "task_list.c", "r = all ? 1 : fill_remove(os, n);", "r = all || fill_remove(os, n) >= 0;"),
    ("a placed mail is not matched after a crash", "local_changes.c", "        if (g->found.counter) {\n            *folder = i;\n            return 1;",
     "        if (false) {\n            *folder = i;\n            return 1;"),
    ("a new epoch renumbers nothing", "new_epoch.c", "if (n.keep < os->origin[old].counter) {", "if (false) {"),
    ("a new epoch renumbers messages, not flags", "renumber.c", "        orset_renumber_dot(n, &m->flag[i].dot);\n    if (moved)",
     "        (void)n;\n    if (moved)"),
    ("a new epoch keeps its stamps", "renumber.c", "if (s->clock <= n->clock ||", "if (s->clock > 0 ||"),
    ("the old epoch's entry stays too high", "new_epoch.c", "os->origin[old].counter = n.keep;", ""),
    ("no look at the running hash of rows", "epoch.c", "if (known < 0 || (known > 0 && mine != chain))", "if (false)"),
    ("no running hash of an origin's ops", "op_batch.c", "chain && o->chain && chain != o->chain)", "false)"),
    ("doubt sees vectors only", "merge.c", "return d->origin == os->self && orset_own_unknown(os, d->counter)", "return false"),
    ("no share of the origins", "quota.c", "return n <= SHARE[q] ? 0", "return n > 0 ? 0"),
    ("a new epoch is a new share", "quota.c", "if (os->origin[i].id.site == site)", "if (i == by)"),
    ("the greatest bytes win", "group.c", "if (c > 0 || (c == 0 && orset_dot_order(os, o->p.dot, *dot) >= 0))",
     "if (c < 0 || (c == 0 && orset_dot_order(os, o->p.dot, *dot) >= 0))"),
    ("a \\Deleted that a lost copy had is cleared", "local_flags.c", "        orset_flags_or(&set, &more);",
     "        cut.system |= reassert->system & ORSET_DELETED;"),
    ("of a joined pair both give way", "match_mails.c", "if (memcmp(y->guid, x->guid, 16) > 0)", "if (false)"),
    ("join matches by nothing", "match_mails.c", "        if (r == 0)\n            continue;\n        if (dot_r)", "        if (r >= 0)\n            continue;\n        if (dot_r)"),
    ("a peer's vector counts for other origins", "op_batch.c", "    for (unsigned i = 0; i < p.n; i++) {\n        if (p.seen[i] <= os->origin[p.map[i]].counter)",
     "    for (unsigned i = 0; i < p.n; i++) {\n        struct origin *o = &os->origin[p.map[i]];\n        if (e == 0 && p.map[i] != os->self && p.map[i] != p.sender && p.seen[i] > o->counter)\n            o->counter = p.seen[i], o->dirty = true;\n"
     "        if (p.seen[i] <= o->counter)"),
    ("what left a name goes by any name", "moved.c", "memcmp(f->name, name, len) != 0 ||", "len == 0 ||"),
    ("what left a name goes though its folder lost it", "moved.c", "orset_stamp_order(left->name, f->name_stamp) != 0)", "left->folder == 0)"),
    ("what left a name goes though it was placed", "moved.c", "return r > 0 ? os->m[0].p.uid == 0 : r;", "return r;"),
    ("a folder goes though it has a mailbox", "moved.c", "f->npresence == 0 || is_shown(arg, f->index))", "f->npresence == 0)"),
    ("a renamed folder leaves its new name", "homes.c", "    if (!f->renamed)\n        left.name =", "    left.name ="),
    ("a cut row of what left is believed", "doomed.c", "return r.bad || r.at != r.end || left->folder >= os->nfolders", "return left->folder >= os->nfolders"),
]

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-w"]


def compile_and_run(name, sources, core, libraries, arguments, work):
    program = work / name
    build = subprocess.run(["gcc", *FLAGS, f"-I{work}", f"-I{ROOT}", "-o", program, *sources, core / "liborset.a", *libraries],
                           capture_output=True, text=True)
    if build.returncode:
        raise RuntimeError(build.stderr)
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600, cwd=work)
    except subprocess.TimeoutExpired:
        return "it does not end"
    if run.returncode == 0:
        return None
    text = (run.stdout + run.stderr).strip().splitlines() or [f"signal {-run.returncode}"]
    failed = [line for line in text if re.search(r":F:|:E:|FAILED|fuzz:|differ|wrong", line)]
    return re.sub(r"^.*?:[FE]:", "", (failed or text)[0])[:110]


def catch(core, objects, work):
    """The first test that fails, and what it says."""
    subprocess.run(["ar", "rcs", core / "liborset.a", *objects], check=True)
    state = sorted(STATE.glob("*.c"))
    tests = [
        ("unit", sorted(TESTS.glob("unit*.c")) + state, ["-lsqlite3", "-lcheck", "-lsubunit", "-lm", "-lrt", "-lpthread"], []),
        ("exhaust", sorted(TESTS.glob("exhaust*.c")), [], ["short"]),
        ("fuzz random", [FUZZ / "random.c", FUZZ / "fuzz.c", FUZZ / "seeds.c"], [], ["2000"]),
        ("simulate", sorted(TESTS.glob("simulate*.c")) + state, ["-lsqlite3"], ["300"]),
    ]
    for name, sources, libraries, arguments in tests:
        says = compile_and_run(name.replace(" ", "-"), sources, core, libraries, arguments, work)
        if says:
            return name, says
    return None


def try_mutant(mutant, scratch, objects):
    name, file, old, new = mutant
    work = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    core = work / PLACE
    shutil.copytree(CORE, core)
    mutated = next(core.rglob(file))
    text = mutated.read_text()
    if text.count(old) != 1:
        return name, None, f"STALE: {file} has it {text.count(old)} times"
    mutated.write_text(text.replace(old, new))
    mine = work / "mutant.o"
    build = subprocess.run(["gcc", *FLAGS, f"-I{work}", "-c", mutated, "-o", mine], capture_output=True, text=True)
    if build.returncode:
        return name, None, "STALE: does not compile: " + build.stderr.splitlines()[0]
    caught = catch(core, [mine if o.stem == pathlib.Path(file).stem else o for o in objects], work)
    shutil.rmtree(work)
    return (name, *caught) if caught else (name, None, "LIVES")


def stale():
    """Each mutant's line is in its file, once. Nothing is compiled."""
    found = []
    for name, file, old, _ in MUTANTS:
        texts = [path.read_text() for path in CORE.rglob(file)]
        if len(texts) != 1 or texts[0].count(old) != 1:
            found.append(f"{name}: {file} does not have its line once")
    print("\n".join(found) or f"{len(MUTANTS)} mutants, each has its line")
    return 1 if found else 0


def main():
    if sys.argv[1:] == ["--stale"]:
        return stale()
    wanted = [m for m in MUTANTS if len(sys.argv) == 1 or any(a in m[0] for a in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        objects = []
        for source in sorted([*CORE.rglob("*.c"), *MEMSTORE.glob("*.c")]):
            objects.append(scratch / (source.stem + ".o"))
            subprocess.run(["gcc", *FLAGS, f"-I{ROOT}", "-c", source, "-o", objects[-1]], check=True)
        lives = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, test, says in pool.map(lambda m: try_mutant(m, scratch, objects), wanted):
                lives += test is None
                print(f"{name:<52} {test or '-':<12} {says}", flush=True)
    print(f"{len(wanted) - lives} of {len(wanted)} caught")
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
