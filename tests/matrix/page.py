#!/usr/bin/env python3
"""The matrix as text: a line of a cell, the tables, and COMPATIBILITY.md.

    page.py        keeps what ran here (build/matrix/CELL.json) as tests/matrix/results/CELL.json,
                   and writes COMPATIBILITY.md from all that is kept: of a cell that ran elsewhere, too
    page.py markdown    prints COMPATIBILITY.md from what is kept; changes nothing
"""
import itertools
import json
import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cells import LEVELS, NAMES, RELEASES, Cell  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RAN, KEPT = ROOT / "build" / "matrix", ROOT / "tests" / "matrix" / "results"
SHOWN = 5  # failures of one step
COLUMNS = 100
HEAD = """\
# What dovelane was built and tested with

For who chooses a Debian release, a compiler or a server for it. `make compatibility` writes this page from what
`make matrix` ran; change tests/matrix/page.py, not this page. A cell that did not run says so.

A cell is a Debian release, a compiler, and the server that holds the lanes. The source is built in a fresh root directory
of that release, and the tests start that release's own Postfix, Dovecot and Redis (or Valkey). The cell `mixed-gcc` is
replication alone: the sites of one group have the Dovecots of all three releases. In the other cells tests of mixed
Dovecots skip, so this page shows no result of theirs; [migration](docs/migration.md#going-back) says what is on record.
Versions that are not in a row below were not tried: Dovecot 2.3.20 and 2.3.21, or packages of dovecot.org.

| column | meaning |
|---|---|
| built | `meson setup` and `ninja` end well; how many compiler warnings came |
| core | unit tests, the core integration tests, and those of plugin, Postfix and replication that depend on the release |
| whole | all tests except those that are marked long |

In a column: passed / failed / skipped.

"""
DIFFERENCES = """
## What newer releases do otherwise

| seen in | what | what follows |
|---|---|---|
| Dovecot 2.4 | `mailbox_list_drop_noselect` is on: who lists removes an empty directory, also one in which another session makes a mailbox just then | the plugin begins such a CREATE again |
| Dovecot 2.4.5 | `mail_attachment_detection_options` is on: each new mail gets `$HasAttachment` or `$HasNoAttachment` | replicated as any keyword |
| Postfix 3.11 | stray CR becomes a space before a proxy filter sees it | such a mail is diverted, no longer `reason=bare-cr` |
| Postfix 3.11 | `postqueue -j` has `orig_address` | `dovelane mailq -j` has not |
| Debian 14 | `master.cf` runs smtpd alone in a chroot | nothing to do |
| pflogsumm 1.3 | takes sizes and received mails from qmgr's lines alone | mails in lanes count as delivered, not as received |
| Valkey 8.1.1 | after `MOVE` or `COPY` to another database a connection stays in that one, once a module hears of keys (valkey-io/valkey, pull request 4024) | Dovelane: nothing, it uses neither. Lanes alone: see lane commands, [Known trouble](docs/lane-commands.md#known-trouble) |
| OpenSSL 3.5 | `openssl x509 -days` refuses numbers below 1 | only tests were concerned |
"""
MUSL = """
## musl

musl's compiler in Debian has no libraries but the C library. So each source file of the gateway (Redis module, milter,
proxy, relay, command) is compiled against musl's headers. Linked, and run, are the programs that need no other library:
the fuzzers and the models. A dovelane that runs on musl needs musl builds of libev, hiredis, libConfuse and OpenSSL; that
was not tried.
"""


def steps(result, level):
    return [step for step in result["steps"] if step["level"] == level]


def failed(result):
    return sum(step["failed"] for step in result["steps"])


def good(result):
    """It ended, and nothing failed."""
    return bool(result and result["finished"] and result["steps"] and not failed(result))


def built(result):
    found = steps(result, "built") if result else []
    if not found:
        return "did not run"
    warnings = sum(len(step.get("warnings", [])) for step in found)
    told = "no warning" if not warnings else f"{warnings} warning{'s' * (warnings > 1)}"
    return f"failed, {told}" if any(step["failed"] for step in found) else f"yes, {told}"


def counts(result, level):
    found = steps(result, level) if result else []
    if not found:
        return "did not run"
    told = " / ".join(str(sum(step[what] for step in found)) for what in ("passed", "failed", "skipped"))
    return told if result["finished"] else f"{told}, then stopped"


def in_a_line(result):
    if not result:
        return "did not run"
    parts = [f"built: {built(result)}"] + [f"{level}: {counts(result, level)}" for level in LEVELS[1:] if steps(result, level)]
    if not result["finished"]:
        parts.append(f"stopped: {result.get('trouble', 'was ended')}")
    return "; ".join(parts)


def rows(head, lines):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(line) + " |" for line in lines)])


def table(results):
    """The results; name to result or None."""
    return rows(["cell", "built", "core", "whole"],
                [[name, built(result), counts(result, "core"), counts(result, "whole")] for name, result in results.items()])


def versions(results):
    """What each release has, as its cells found it."""
    lines = []
    for release, title in RELEASES.items():
        mine = [result["versions"] for name, result in results.items() if result and result.get("versions") and Cell(name).release == release]
        if not mine:
            lines.append([f"{title}, {release}", "did not run", "", ""])
            continue
        servers = sorted({each["server"] for each in mine})
        lines.append([f"{title}, {release}", mine[0]["dovecot"], mine[0]["postfix"], ", ".join(servers)])
    told = rows(["release", "Dovecot", "Postfix", "server of the lanes"], lines)
    for name, result in results.items():
        if result and result.get("mixed"):
            told += f"\n\nThe sites of {name} have Dovecot {', '.join(result['mixed'])}."
    return told


def compilers(results):
    """The compilers, the commit and the day of each cell."""
    lines = []
    for name, result in results.items():
        if result and result.get("versions"):
            lines.append([name, result["versions"]["compiler"], result["commit"][:12], result["date"][:10]])
    return rows(["cell", "compiler", "commit", "date"], lines)


def details(results):
    """What failed, warned and was left out, cell by cell."""
    text = []
    for name, result in results.items():
        lines = []
        for step in result["steps"] if result else []:
            lines += [f"- {step['name']}: failed: `{failure[:200]}`" for failure in step["failures"][:SHOWN]]
            if len(step["failures"]) > SHOWN:
                lines.append(f"- {step['name']}: failed: {len(step['failures']) - SHOWN} more")
            lines += [f"- warning: `{warning[:300]}`" for warning in step.get("warnings", [])]
            lines += [f"- {step['name']}: {number} skipped: {reason[:200]}" for reason, number in step.get("skips", {}).items()]
        if result and not result["finished"]:
            lines.append(f"- stopped before its end: {result.get('trouble', 'was ended')}")
        if lines:
            text += [f"\n### {name}\n", *lines]
    return "\n".join(text) + "\n" if text else "\nNothing failed, warned or was skipped.\n"


def is_prose(line):
    return bool(line) and line[0] not in "|#"


def wrapped(page):
    """With prose in lines of at most COLUMNS; a list's item goes on below its words."""
    lines = []
    for prose, group in itertools.groupby(page.split("\n"), is_prose):
        block = list(group)
        if not prose:
            lines += block
            continue
        items = [[]]
        for line in block:
            items += [[]] if line.startswith("- ") else []
            items[-1].append(line.strip())
        for item in filter(None, items):
            lines += textwrap.wrap(" ".join(item), COLUMNS, break_long_words=False, break_on_hyphens=False,
                                   subsequent_indent="  " if item[0].startswith("- ") else "")
    return "\n".join(lines)


def whole_page(results):
    return wrapped(HEAD + table(results) + "\n\n## Versions\n\n" + versions(results) + "\n\n"
                   + compilers(results) + "\n" + DIFFERENCES + MUSL
                   + "\n## What failed, warned or was skipped\n" + details(results))


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def better(new, old):
    """Whether a cell's new result takes the place of the kept one: the later one does, but none that was ended that of a whole run."""
    return not old or (new["finished"], new["date"]) >= (old["finished"], old["date"])


def keep():
    """Takes over what ran here. Returns all results; name to result or None."""
    KEPT.mkdir(exist_ok=True)
    results = {}
    for name in NAMES:
        here, results[name] = read(RAN / f"{name}.json"), read(KEPT / f"{name}.json")
        if here and better(here, results[name]):
            (KEPT / f"{name}.json").write_text(json.dumps(here, indent=1) + "\n")
            results[name] = here
    return results


def main():
    if sys.argv[1:] == ["markdown"]:
        print(whole_page({name: read(KEPT / f"{name}.json") for name in NAMES}), end="")
        return
    results = keep()
    if not any(results.values()):
        sys.exit("compatibility: no cell ran (make matrix); COMPATIBILITY.md stays as it is")
    (ROOT / "COMPATIBILITY.md").write_text(whole_page(results))


if __name__ == "__main__":
    main()
