"""Fixtures for replicas: groups that are ended with their test, rows of the table that run together, and the report."""
import os
import re
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from stack.group import Group, installed  # noqa: E402

BUILD = Path(os.environ.get("DOVELANE_BUILD") or Path(__file__).resolve().parents[2] / "build").resolve()
REPORT = BUILD / "replication-table.txt"
FIGURES = {}
# What a replica's log must never say, whatever is done to it.
FORBIDDEN = r"Panic: |Sanitizer|killed with signal (6|11)|runtime error: "


def built():
    """Whether there is a replicator to test."""
    return all((BUILD / "dovecot-plugin" / name).exists()
               for name in ("plugin/lib20_dovelane_plugin.so", "replicator/main/dovelane-replicator", "replicator/worker/dovelane-worker"))


def need(*specs, replication="dovelane"):
    """Skips what this machine cannot run."""
    if os.geteuid() != 0:
        pytest.skip("Dovecot's master must be started by root")
    known = installed()
    for spec in specs:
        version = spec.partition("@")[2]
        if version and version not in known:
            pytest.skip(f"Dovecot {version} is not here: DOVELANE_TRIXIE_ROOT names a Debian 13 root directory")
    if replication == "dovelane" and not built():
        pytest.skip(f"the replicator is not built in {BUILD}")


# Dovecot's own, without anything of ours in it (3 of 63 groups of two stock Dovecots): sessions that make a user's first folders at once lock the list's index and a
# mailbox's in opposite order, and the one that the kernel refuses to wait dies.
OWN = r"(imap|lmtp)\(.*Panic: fcntl\(.*dovecot\.list\.index\.log, write-lock, F_SETLKW\) locking failed: Resource deadlock avoided"
OWN_END = r"service\((imap|lmtp)\): child \d+ killed with signal 6"


def panics(group):
    lines = group.logs(FORBIDDEN, 1000).splitlines()
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


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs only when asked for")


def record(kind, specs, outcomes):
    """Keeps what became of rows for the report."""
    for name, outcome in outcomes.items():
        FIGURES.setdefault(name, {})[(kind, specs)] = outcome


def pytest_sessionfinish(session):
    """build/replication-table.txt: each row, what Dovelane and what stock dsync made of it."""
    if not FIGURES:
        return
    lines = ["The scenario table: what two replicas show after both sides worked apart. dsync: stock `doveadm sync`, twice, with its",
             "state; it is shown beside and held to nothing. UIDs n/m: messages with one UID everywhere.", ""]
    for name, found in FIGURES.items():
        row = next(iter(found.values())).row
        lines.append(f"{name}: {row.title}")
        for (kind, specs), outcome in sorted(found.items()):
            equal, total = outcome.same_uids
            took = f" after {outcome.seconds:.1f} s" if kind == "dovelane" else ""
            said = f"as wanted{took}, UIDs {equal}/{total}" if outcome.ok else " ".join(str(outcome.complaint).split())[:400]
            lines.append(f"    {kind:<8} {specs:<24} {said}")
        lines.append("")
    try:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text("\n".join(lines))
    except OSError as error:
        print(f"{REPORT}: {error}")
    print(f"\n{REPORT}: {len(FIGURES)} rows")
