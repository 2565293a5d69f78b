"""Fixtures for replicas: groups that are ended with their test, rows of the table that run together, and the report."""
import os
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from support.stack.group import Group, installed

BUILD = Path(os.environ.get("DOVELANE_BUILD") or Path(__file__).resolve().parents[2] / "build").resolve()
REPORT, REPORT_BESIDE = BUILD / "replication-table.txt", BUILD / "replication-beside.txt"
FIGURES, BESIDE = {}, {}
# What a replica's log must never say, whatever is done to it.
FORBIDDEN = r"Panic: |Sanitizer|killed with signal (6|11)|runtime error: "


def built():
    """Whether there is a replicator to test."""
    return all((BUILD / "dovecot-plugin" / name).exists()
               for name in ("plugin/lib20_dovelane_plugin.so", "replicator/dovelane-replicator", "worker/dovelane-worker"))


def need(*specs, replication="dovelane"):
    """Skips what this machine cannot run."""
    if os.geteuid() != 0:
        pytest.skip("Dovecot's master must be started by root")
    known = installed()
    for spec in specs:
        version = spec.partition("@")[2]
        if version and version not in known:
            pytest.skip(f"Dovecot {version} is not here: DOVELANE_TRIXIE_ROOT, "
                        "DOVELANE_FORKY_ROOT name root directories of Debian 13, 14")
    if replication == "dovelane" and not built():
        pytest.skip(f"the replicator is not built in {BUILD}")


# Dovecot's own, without anything of ours in it (3 of 63 groups of two stock Dovecots): sessions that make a user's first folders at once lock the list's index and a
# mailbox's in opposite order, and the one that the kernel refuses to wait dies.
OWN = r"(imap|lmtp)\(.*Panic: fcntl\(.*dovecot\.list\.index\.log, write-lock, F_SETLKW\) locking failed: Resource deadlock avoided"
OWN_END = r"service\((imap|lmtp)\): child \d+ killed with signal 6"


# And another one, shown by a stock Dovecot 2.3.19 (sdbox, mdbox): a save whose mailbox another session deletes or renames between its commit and the sync of its
# directory complains of the mail, which is gone by then. The kernel's log tells such an end from others.
OWN_FAULT = r"(\w{3} +\d+ [\d:]{8}) .*service\((imap|lmtp|dovelane-worker)\): child (\d+) killed with signal 11"
OWN_TRAP = r"^(\S+?)[,.]\d+\S* (\S+)\[(\d+)\]: segfault at 18 ip \S+ sp \S+ error 4 in libdovecot-storage\.so"
FIRST_PIDS = "pid:[4026531836]"  # the namespace whose process ids the kernel's log has
NEAR = 3  # seconds from the kernel's line to the master's, which is written when the process has gone


def own_traps():
    """[(when, program, pid)] of the kernel's log."""
    said = subprocess.run(["dmesg", "--time-format", "iso"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode(errors="replace")
    return [(datetime.fromisoformat(found[1]), found[2], int(found[3])) for found in re.finditer(OWN_TRAP, said, re.MULTILINE)]


def without_own_faults(lines, traps, pids_are_known):
    """The lines without those that the kernel's log explains, each by a line of its own: by the process id, or by the moment
    where the ids are those of another namespace."""
    left, traps = [], list(traps)
    for line in lines:
        found = re.search(OWN_FAULT, line)
        trap = found and next((trap for trap in traps if explains(trap, found, pids_are_known)), None)
        if trap:
            traps.remove(trap)
        else:
            left.append(line)
    return left


def explains(trap, found, pids_are_known):
    when, program, pid = trap
    if program != found[2][:15]:
        return False
    if pids_are_known:
        return pid == int(found[3])
    said = datetime.strptime(f"{when.year} {found[1]}", "%Y %b %d %H:%M:%S")
    return abs((said - when).total_seconds()) <= NEAR


def panics(group):
    lines = group.logs(FORBIDDEN, 1000).splitlines()
    if any(re.search(OWN_FAULT, line) for line in lines):
        lines = without_own_faults(lines, own_traps(), os.readlink("/proc/self/ns/pid") == FIRST_PIDS)
    own = sum(bool(re.search(OWN, line)) for line in lines)
    left = []
    for line in lines:
        if re.search(OWN, line):
            continue
        if own and re.search(OWN_END, line):
            own -= 1
            continue
        left.append(line)
    return "\n".join(left[-40:])


@pytest.fixture
def group(request):
    """A factory: `group("sdbox", "mdbox@2.4")` starts replicas. All are ended with the test, however it ends."""
    started = []

    def start(*specs, **options):
        need(*specs, replication=options.get("replication", "dovelane"))
        fresh = Group(*specs, **options)
        started.append(fresh)
        return fresh.up()

    yield start
    told = []
    for entry in reversed(started):
        try:
            if getattr(request.node, "call_failed", False) and entry.mark:
                print(f"\nlogs of {entry.directory}:\n{entry.logs('dovelane|Error|Panic|Fatal', 30)}")
            told.append(panics(entry) if entry.mark else "")
        finally:
            entry.down()
    assert not any(told), "\n".join(told)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call" and outcome.get_result().failed:
        item.call_failed = True


def record(kind, specs, outcomes):
    """Keeps what became of rows for the report."""
    for name, outcome in outcomes.items():
        FIGURES.setdefault(name, {})[(kind, specs)] = outcome


def beside(scenario, specs, words):
    """What dsync did in a scenario that is no row."""
    BESIDE.setdefault(scenario, {})[specs] = words


def pytest_sessionfinish(session):
    if FIGURES:
        write_report(REPORT, table_report(), f"{len(FIGURES)} rows")
    if BESIDE:
        write_report(REPORT_BESIDE, beside_report(), f"{len(BESIDE)} scenarios")


def write_report(path, lines, what):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    except OSError as error:
        print(f"{path}: {error}")
    print(f"\n{path}: {what}")


def beside_report():
    """build/replication-beside.txt: what stock dsync does where the table has no row."""
    lines = ["What stock `doveadm sync` does in scenarios that are no rows of the table; held to nothing.", ""]
    for scenario, found in BESIDE.items():
        lines += [scenario, *(f"    {specs:<44} {words}" for specs, words in sorted(found.items())), ""]
    return lines


def table_report():
    """build/replication-table.txt: each row, what Dovelane and what stock dsync made of it."""
    lines = ["The scenario table: what two replicas show after both sides worked apart. dsync: stock `doveadm sync`, twice, with its",
             "state; it is shown beside and held to nothing. UIDs n/m: messages with one UID everywhere. Journal: answered operations that",
             "the row was judged by, too.", ""]
    for name, found in FIGURES.items():
        row = next(iter(found.values())).row
        lines.append(f"{name}: {row.title}")
        for (kind, specs), outcome in sorted(found.items()):
            equal, total = outcome.same_uids
            took = f" after {outcome.seconds:.1f} s" if kind == "dovelane" else ""
            journal = f", journal {outcome.journal.acknowledged}" if outcome.journal else ""
            said = f"as wanted{took}, UIDs {equal}/{total}{journal}" if outcome.ok else " ".join(str(outcome.complaint).split())[:400]
            lines.append(f"    {kind:<8} {specs:<24} {said}")
        lines.append("")
    return lines
