#!/usr/bin/python3
"""Breaks the core and the worker by hand, one place at a time; histories of clients must notice.

    made_faults.py [part of a name ...]     builds each in a copy, and says which history caught it

A fault that no history catches is shown to the core's own tests (tests/unit/orset/mutants.py has
more of those), or to the worker's. Fails when one lives, or when a place is not found any more.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path("dovecot-plugin")
# Histories for each fault, at most; the first that fails is enough.
ROUNDS = int(os.environ.get("DOVELANE_ROUNDS", "12"))
WITHIN = 150.0  # seconds to become equal: three times as long as is needed on a busy machine
SEED = int(os.environ.get("DOVELANE_SEED", "1"))
CORE_TESTS = ("orset unit", "orset exhaust short", "orset simulate")
WORKER_TESTS = ROOT / "tests/worker/test_worker_meanwhile.py"


@dataclass(frozen=True)
class Fault:
    name: str
    file: str       # below dovecot-plugin/
    old: str
    new: str


FAULTS = [
    # -- the core: rules of docs/replication-protocol.md
    Fault("a clearing takes settings it had not seen", "orset/ops/apply_op.c",
          "if (m->flag[j].dot.origin == d.origin && m->flag[j].dot.counter == d.counter) {",
          "if (m->flag[j].flag == fresh.flag) {"),
    Fault("setting wins for \\Deleted", "orset/state/group.c",
          "s->system &= (uint8_t)~no.system;", "(void)no;"),
    Fault("the earlier of two names wins", "orset/state/folder.c",
          "if (orset_stamp_order(s, f->name_stamp) <= 0)",
          "if (f->name_stamp.clock && orset_stamp_order(s, f->name_stamp) >= 0)"),
    Fault("a peer's new mail does not keep its folder", "orset/ops/apply_op.c",
          "    if (r == 0 && renew && !x->dry && !killed)\n",
          "    if (r == 0 && renew && !x->dry && !killed && x->local)\n"),
    Fault("a second copy is the first one", "orset/ops/local_changes.c",
          "i < n && os->copies.v[i].k <= (uint32_t)k; i++)", "i < n && false; i++)"),
    Fault("a remove of what has not come is forgotten", "orset/ops/apply_op.c",
          "            r = orset_message_remove(os, f, d, x->local);\n"
          "        if (r == 0 && !orset_covered(os, d))",
          "            r = orset_message_remove(os, f, d, x->local);\n"
          "        if (r == 0 && false && !orset_covered(os, d))"),
    Fault("an expunge takes one of the copies that sites made at once", "orset/ops/local_changes.c",
          "orset_emit_remove(os, f, dots, (unsigned)kept)", "orset_emit_remove(os, f, dots, 1)"),
    Fault("a peer's UIDVALIDITY is not taken", "orset/ops/apply_op.c",
          "    if (value <= f->uid_validity)\n",
          "    if (value <= f->uid_validity || !x->local)\n"),
    Fault("who unsubscribes takes subscriptions he had not seen", "orset/state/metadata.c",
          "gone |= dots[i].origin == kill[j].origin && dots[i].counter == kill[j].counter;",
          "gone |= kill[j].counter > 0;"),
    Fault("an exchange takes back what was removed here", "orset/exchange/merge.c",
          "int killed = orset_covered(os, d) ? 1 : orset_pending_killed(os, d);",
          "int killed = orset_pending_killed(os, d);"),
    # -- the worker: what a mailbox says, and what is written into it
    Fault("flags are written over a client's change", "worker/apply/apply.c",
          "bool differs = got > 0 && !flags_equal(&seen, now);", "bool differs = FALSE;"),
    Fault("a client's expunge is taken for damage", "worker/ingest/scan_missing.c",
          "        array_push_back(&l->in->removals, &removal);\n        return 0;\n"
          "    case MISSING_QUARANTINED",
          "        return missing(l, uid);\n    case MISSING_QUARANTINED"),
    Fault("what others removed stays in the mailbox", "worker/apply/apply.c",
          "    mail_expunge(mail);\n    return TRUE;", "    return TRUE;"),
    Fault("mails are placed without keywords", "worker/apply/place_save.c",
          "mailbox_save_set_flags(ctx, flags, *keywords);",
          "mailbox_save_set_flags(ctx, flags, NULL);"),
    Fault("mails are placed with the date of today", "worker/apply/place_save.c",
          "mailbox_save_set_received_date(ctx, (time_t)facts->received, 0);", ""),
    Fault("a mail with a new UID stays under the old one, too", "worker/apply/renumber_old.c",
          "        mail_expunge(mail);\n", "        ;\n"),
    Fault("a mail with a new UID loses its flags", "worker/apply/renumber_old.c",
          "    mailbox_save_copy_flags(ctx, mail);\n", ""),
    Fault("new mails are told without their flags", "worker/ingest/scan_present.c",
          ": orset_local_add(l->s->os, l->x->folder, l->mail->uid, &facts, now, &dot);",
          ": orset_local_add(l->s->os, l->x->folder, l->mail->uid, &facts,\n"
          "                                    &(struct orset_flags){0}, &dot);"),
    Fault("the last change in a log is passed over", "worker/ingest/scan.c",
          "        array_append_array(&l->uids, &l->log.touched);\n",
          "        array_append_array(&l->uids, &l->log.touched);\n"
          "        if (array_count(&l->uids) > 0) {\n"
          "            struct seq_range *last = array_back_modifiable(&l->uids);\n"
          "            seq_range_array_remove(&l->uids, last->seq2);\n        }\n"),
    Fault("what was written is not remembered as seen", "worker/apply/apply.c",
          "        e = orset_done_flags(s->os, r->folder, item->uid, &item->seen);\n",
          "        struct orset_flags none = {0};\n"
          "        e = orset_done_flags(s->os, r->folder, item->uid, &none);\n"),
    Fault("an unsubscription is taken for damage", "worker/metadata/subscriptions.c",
          "    bool said = journal_subscription(l->journal, vname, FALSE);",
          "    bool said = FALSE;"),
    Fault("an unsubscription from elsewhere is not done", "worker/metadata/subscriptions.c",
          "    a.on = orset_subscribed(s->os, a.name, a.len);", "    a.on = TRUE;"),
    Fault("DELETE is taken for damage", "worker/ingest/mailbox_diff.c",
          "        bool deleted = journal_deleted(t->journal, x->guid);",
          "        bool deleted = FALSE;"),
    Fault("RENAME stays at its site", "worker/ingest/mailbox_diff.c",
          "        int r = strcmp(x->vname, f->vname) != 0 ? renamed(s, x, f->vname) : 1;",
          "        int r = 1;"),
]


class Copy:
    """A copy of the sources with a build of its own, which is made anew for each fault."""

    def __init__(self, directory):
        self.root = Path(directory)
        # What is there, not what is committed: a fault is looked for in what is being worked on.
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True,
                               stdout=subprocess.PIPE).stdout.split(b"\0")
        for name in filter(None, map(os.fsdecode, files)):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        self.build = self.root / "build"
        self.call("meson", "setup", self.build)
        self.make()

    def make(self):
        """All but the tests."""
        listed = json.loads((self.build / "meson-info" / "intro-targets.json").read_text())
        names = [os.path.relpath(target["filename"][0], self.build) for target in listed
                 if not os.path.relpath(target["defined_in"], self.root).startswith("tests/")]
        self.call("ninja", "-C", self.build, *names)

    def call(self, *words, **how):
        done = subprocess.run(words, cwd=self.root, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, **how)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}:\n{done.stdout.decode()[-3000:]}")

    def place(self, fault):
        return self.root / PLUGIN / fault.file

    def break_it(self, fault):
        """The text as it was; None when there is no such place, or several."""
        text = self.place(fault).read_text()
        if text.count(fault.old) != 1:
            return None
        self.place(fault).write_text(text.replace(fault.old, fault.new))
        self.make()
        return text

    def mend(self, fault, text):
        self.place(fault).write_text(text)


def caught_by_histories(build, rounds=ROUNDS, seed=SEED):
    """(history that noticed, its first complaint), or None."""
    words = ["/usr/bin/python3", Path(__file__).with_name("histories.py"), "--until-caught",
             "--seed", str(seed), "--rounds", str(rounds), "--within", str(WITHIN)]
    done = subprocess.run(words, env={**os.environ, "DOVELANE_BUILD": str(build)}, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=7200)
    text = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return None
    told = [line for line in text.splitlines() if line.startswith("caught ")]
    if not told:
        raise RuntimeError(f"histories.py: exit {done.returncode}:\n{text[-3000:]}")
    return told[0]


def caught_by_core(build):
    """The first of the core's own tests that fails, or None."""
    for name in CORE_TESTS:
        done = subprocess.run(["meson", "test", "-C", build, name],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            return name
    return None


def caught_by_worker(build):
    """The first of the worker's tests that fails, or None."""
    words = ["/usr/bin/python3", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
             "--tier=check,test,long", WORKER_TESTS]
    done = subprocess.run(words, env={**os.environ, "DOVELANE_BUILD": str(build)}, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return None
    text = done.stdout.decode(errors="replace")
    failed = re.search(r"^FAILED \S*::(\w+)", text, re.M) or re.search(r"^_+ (\w+).* _+$", text, re.M)
    if done.returncode != 1 or not failed:
        raise RuntimeError(f"{WORKER_TESTS.name}: exit {done.returncode}:\n{text[-3000:]}")
    return failed[1]


def try_fault(copy, fault):
    """(whether it is caught, in words by what)"""
    text = copy.break_it(fault)
    if text is None:
        return False, f"STALE: {fault.file} has not exactly one such place"
    try:
        found = caught_by_histories(copy.build)
        if found is None:
            core = fault.file.startswith("orset/")
            found = (caught_by_core if core else caught_by_worker)(copy.build)
            found = found and f"no history of {ROUNDS}; {found}"
        return found is not None, found or f"LIVES: {ROUNDS} histories saw nothing"
    finally:
        copy.mend(fault, text)


def main():
    wanted = [fault for fault in FAULTS
              if len(sys.argv) == 1 or any(part in fault.name for part in sys.argv[1:])]
    living = 0
    with tempfile.TemporaryDirectory(prefix="made-faults-") as directory:
        copy = Copy(directory)
        for fault in wanted:
            caught, words = try_fault(copy, fault)
            living += not caught
            print(f"{fault.name}: {words}", flush=True)
    print(f"{len(wanted) - living} of {len(wanted)} made faults caught")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
