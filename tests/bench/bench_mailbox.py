"""M-Store's table: what mailboxes do in a second with replication, against a stock Dovecot.

The sites have the same Dovecot, storage, settings and mail (mailbox_sites.py). Each row (mailbox_rows.py)
is done by stock and ours by turns, part by part, in so many rounds. The verdict is the CPU of the processes imap, lmtp
and submission: stock's for an operation, divided by ours. Of a rate here no verdict can be made: the
clients and both sites share this machine's cores. What replication costs beside that is told beside it.

    mailboxes, mails, size   the store: so many of them, each with so many mails of so many bytes
    rounds, parts            each row so often, each time in so many parts, of which the sites do one each
    rows                     groups of rows (mailbox_rows.ROWS)
    storages                 sdbox, mdbox, maildir: one after the other
    files                    memory: a tmpfs, where the least that is added shows; disk: below dir
    variants                 with `again`, a second stock Dovecot: what the machine's noise is
"""
import time
from types import SimpleNamespace

import replicas
from mailbox_rows import ROWS
from mailbox_sites import differences, program, sites
from report import median
from stack.failure import StackError

ABOUT = "mailboxes with replication, against a stock Dovecot: M-Store's table"
OPTIONS = {"mailboxes": 20, "mails": 11000, "size": 10240, "rounds": 5, "parts": 5, "deliveries": 300, "fetches": 1000,
           "deletes": 300, "submissions": 200, "sessions": 100, "storages": "sdbox", "files": "memory",
           "dir": "/var/tmp", "variants": "stock,ours", "rows": ",".join(ROWS)}
QUICK = {"mailboxes": 10, "mails": 55, "rounds": 2, "parts": 2, "deliveries": 20, "fetches": 50, "deletes": 20,
         "submissions": 20, "sessions": 20}
LONG = True
GOAL = ">= 0.95"
LEAST_BOXES, LEAST_MAILS = 10, 55


def one_part(site, steps):
    """(operations, seconds, CPU milliseconds by part of the site); None: there was nothing left to do."""
    before, began = site.cpu(), time.perf_counter()
    count = next(steps, None)
    seconds = time.perf_counter() - began
    site.settle()
    after = site.cpu()
    return count and (count, seconds, {part: after[part] - before[part] for part in after})


def measure(found, row, options, names):
    """Of one row, once: name to rate, and CPU milliseconds an operation by part of the site. Sites take turns after
    each part of the work, a tenth of a second or so, since the machine's speed changes within seconds."""
    steps, done = {name: row.steps(found[name], options) for name in names}, {name: [] for name in names}
    for name in names:
        next(steps[name])
        found[name].settle()
    while True:
        turn = {name: one_part(found[name], steps[name]) for name in names}
        if None in turn.values():
            return {name: summed(found[name].parts, done[name]) for name in names}
        for name in names:
            done[name].append(turn[name])


def summed(kinds, done):
    """The parts of a row's work as one."""
    count = sum(one[0] for one in done)
    return {"rate": count / sum(one[1] for one in done), **{kind: sum(one[2][kind] for one in done) / count for kind in kinds}}


def wanted(options, report):
    """The rows that can be measured here."""
    found = []
    for name in options.rows.split(","):
        if name not in ROWS:
            raise StackError(f"rows={name}: there is {', '.join(ROWS)}")
        for row in ROWS[name]:
            if row.needs and not program(row.needs):
                report.remark(f"Left out: {row.name}, since Dovecot's {row.needs} is not installed.")
            else:
                found.append(row)
    return found


def compare(rounds, name):
    """The ratio of stock's CPU to this variant's, with its 95 % interval."""
    return replicas.ratio_interval([one["mail"] for one in rounds["stock"]], [one["mail"] for one in rounds[name]])


def middle(rounds, part):
    return median([one[part] for one in rounds])


def beside(rounds, storage):
    """What replicates at the measured site: workers, main and Redis, and what the rest of that Dovecot
    (master, auth, login, log) did more than stock's."""
    more = middle(rounds["ours"], "rest") - middle(rounds["stock"], "rest")
    return middle(rounds["ours"], "here") + max(0.0, more)


def line_of(report, storage, row, rounds):
    """The row's line of the table; its verdict goes to the report."""
    ratio, low, high = compare(rounds, "ours")
    report.row(f"{row.name}, {storage}: CPU, stock's to ours [{low:.2f}, {high:.2f}]", ratio, "x", goal=GOAL)
    cells = [row.name, middle(rounds["stock"], "rate"), middle(rounds["ours"], "rate"),
             middle(rounds["stock"], "mail"), middle(rounds["ours"], "mail"), f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
             beside(rounds, storage), middle(rounds["ours"], "peer"), row.paper]
    if "again" in rounds:
        same, low, high = compare(rounds, "again")
        cells.insert(6, f"{same:.2f} [{low:.2f}, {high:.2f}]")
    return cells


COLUMNS = ["operation", "stock/s", "ours/s", "stock ms", "ours ms", "stock's CPU to ours", "replication ms",
           "peer ms", "M-Store/s"]


def turns(found, rows, options):
    """Row's name to variant to figures of each round."""
    rounds, names = {row.name: {name: [] for name in found} for row in rows}, list(found)
    for number in range(options.rounds):
        for turn, row in enumerate(rows):
            first = (number + turn) % len(names)
            for name, figures in measure(found, row, options, names[first:] + names[:first]).items():
                rounds[row.name][name].append(figures)
        print(f"  round {number + 1}: " + "  ".join(
            f"{row.name} " + "/".join(f"{rounds[row.name][name][-1]['mail']:.3f}" for name in names)
            for row in rows), flush=True)
    return rounds


def one_storage(report, options, storage, rows):
    began = time.monotonic()
    with sites(SimpleNamespace(**dict(vars(options), storage=storage))) as found:
        print(f"  {storage}: full after {time.monotonic() - began:.0f} s", flush=True)
        rounds = turns(found, rows, options)
        lacks = differences(found["ours"])
    columns = COLUMNS[:]
    if "again" in found:
        columns.insert(6, "to stock again")
    report.table(f"{storage}: operations in a second, CPU ms an operation of imap, lmtp and submission, the ratio "
                 "with its 95 % interval; CPU ms of what replicates, here and at the other site; M-Store's rate "
                 "in 2007", columns, [line_of(report, storage, row, rounds[row.name]) for row in rows])
    report.row(f"mailboxes that differ at the other site, {storage}", len(lacks), "mailboxes", goal="<= 0")
    report.detail(f"rounds {storage}", rounds)


def run(report, options):
    if options.mailboxes < LEAST_BOXES or options.mails < LEAST_MAILS:
        raise StackError(f"at least mailboxes={LEAST_BOXES} and mails={LEAST_MAILS}: there are 10 clients")
    names = options.variants.split(",")
    if not {"stock", "ours"} <= set(names) <= {"stock", "again", "ours"}:
        raise StackError(f"variants={options.variants}: stock and ours, perhaps again")
    rows = wanted(options, report)
    for storage in options.storages.split(","):
        one_storage(report, options, storage, rows)
    report.remark(f"{options.mailboxes} mailboxes of {options.mails} mails of {options.size} bytes, one eleventh "
                  f"unread, files in {options.files}; {options.rounds} rounds by turns. M-Store X.400's figures "
                  "are of 2007, by another protocol on another machine: for colour.")
