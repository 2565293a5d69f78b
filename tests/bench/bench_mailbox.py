"""M-Store's table: what mailboxes do in a second with replication, against a stock Dovecot.

The sites have the same Dovecot, storage, settings and mail (mailbox_sites.py). Each row
(mailbox_rows.py) is done by stock and ours by turns, part by part, in so many rounds. The verdict
is the CPU of the processes imap, lmtp and submission: stock's for an operation, divided by ours.
The rates are no verdict: the clients and both sites share this machine's cores, the clients and
what is measured one half of them, all else the other. What replication costs is a column.

    mailboxes, mails, size   the store: so many of them, each with so many mails of so many bytes
    rounds, parts            each row so often, each time in so many parts
    rows                     groups of rows (mailbox_rows.ROWS)
    storages                 sdbox, mdbox, maildir: one after the other
    condstore                1: a client has used CONDSTORE, as the replicator's workers always do;
                             from then on Dovecot keeps modseqs, at stock, too
    files                    memory: a tmpfs, where the least that is added shows; disk: below dir
    variants                 with `again`, a second stock Dovecot: what the machine's noise is
"""
import time
from types import SimpleNamespace

import replicas
from mailbox_rows import ROWS
from mailbox_sites import changed, cores, differences, program, sites
from report import median
from support.stack.failure import StackError

ABOUT = "mailboxes with replication, against a stock Dovecot: M-Store's table"
OPTIONS = {"mailboxes": 20, "mails": 11000, "size": 10240, "rounds": 5, "parts": 5, "condstore": 0,
           "deliveries": 300, "fetches": 1000, "deletes": 300, "submissions": 200, "sessions": 100,
           "storages": "sdbox", "files": "memory", "dir": "/var/tmp", "variants": "stock,ours",
           "rows": ",".join(ROWS)}
QUICK = {"mailboxes": 10, "mails": 55, "rounds": 2, "parts": 2, "deliveries": 20, "fetches": 50,
         "deletes": 20, "submissions": 20, "sessions": 20}
LONG = True
GOAL = ">= 0.95"
STEADY = (0.95, 1 / 0.95)
LEAST_BOXES, LEAST_MAILS = 10, 55


def one_part(site, steps):
    """(operations, seconds, CPU milliseconds by part of the site); None: nothing was left to do."""
    before, began = site.cpu(), time.perf_counter()
    with replicas.on(cores()[0]):
        count = next(steps, None)
    seconds = time.perf_counter() - began
    site.settle()
    after = site.cpu()
    return count and (count, seconds, {part: after[part] - before[part] for part in after})


def measure(found, row, options, names):
    """Of one row, once: name to rate, and CPU milliseconds an operation by part of the site. Sites
    take turns after each part of the work, since the machine's speed changes within seconds."""
    steps = {name: row.steps(found[name], options) for name in names}
    done = {name: [] for name in names}
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
    spent = {kind: sum(one[2][kind] for one in done) / count for kind in kinds}
    return dict(spent, rate=count / sum(one[1] for one in done))


def wanted(options, report):
    """The rows that can be measured here."""
    found = []
    for name in options.rows.split(","):
        if name not in ROWS:
            raise StackError(f"rows={name}: there is {', '.join(ROWS)}")
        for row in ROWS[name]:
            if row.needs and not program(row.needs):
                report.remark(f"Left out: {row.name}; Dovecot's {row.needs} is not installed.")
            else:
                found.append(row)
    return found


def compare(rounds, name):
    """The ratio of stock's CPU to this variant's, with its 95 % interval."""
    stock, other = ([one["mail"] for one in rounds[which]] for which in ("stock", name))
    return replicas.ratio_interval(stock, other)


def middle(rounds, part):
    return median([one[part] for one in rounds])


def beside(rounds):
    """What replicates at the measured site: workers, main and Redis, and what the rest of that
    Dovecot (master, auth, login, log) did more than stock's."""
    more = middle(rounds["ours"], "rest") - middle(rounds["stock"], "rest")
    return middle(rounds["ours"], "here") + max(0.0, more)


def shown(ratio, low, high):
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


def line_of(report, storage, row, rounds):
    """The row's line of the table; its verdict goes to the report. Where a second stock Dovecot is
    not as good as the first, the machine is not steady enough for one."""
    found = {name: compare(rounds, name) for name in rounds if name != "stock"}
    steady = "again" not in found or STEADY[0] <= found["again"][0] <= STEADY[1]
    ratio, low, high = found["ours"]
    report.row(f"{row.name}, {storage}: CPU, stock's to ours [{low:.2f}, {high:.2f}]", ratio, "x",
               goal=GOAL if steady else None)
    if not steady:
        report.remark(f"{row.name}, {storage}: stock's to stock's again is "
                      f"{found['again'][0]:.2f}, so it is not judged.")
    both = [middle(rounds[name], what) for what in ("rate", "mail") for name in ("stock", "ours")]
    ratios = [shown(*found[name]) for name in ("ours", "again") if name in found]
    return [row.name, *both, *ratios, beside(rounds), middle(rounds["ours"], "peer"), row.paper]


COLUMNS = ["operation", "stock/s", "ours/s", "stock ms", "ours ms", "stock's CPU to ours",
           "replication ms", "peer ms", "M-Store/s"]


def turns(found, rows, options):
    """Row's name to variant to figures of each round."""
    names = list(found)
    rounds = {row.name: {name: [] for name in names} for row in rows}
    for number in range(options.rounds):
        for turn, row in enumerate(rows):
            first = (number + turn) % len(names)
            figures = measure(found, row, options, names[first:] + names[:first])
            for name in names:
                rounds[row.name][name].append(figures[name])
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
        lost = [line for site in found.values() for line in changed(site, options)]
    columns = COLUMNS[:]
    if "again" in found:
        columns.insert(6, "to stock again")
    title = (f"{storage}: operations a second; CPU ms an operation of imap, lmtp and submission, "
             "with their ratio and its 95 % interval; of what replicates, here and at the peer; "
             "M-Store's rate in 2007")
    lines = [line_of(report, storage, row, rounds[row.name]) for row in rows]
    report.table(title, columns, lines)
    for what, those in (("differ at the other site", lacks), ("are not as full as before", lost)):
        report.row(f"mailboxes that {what}, {storage}", len(those), "mailboxes", goal="<= 0")
    report.detail(f"rounds {storage}", rounds)


def run(report, options):
    if options.mailboxes < LEAST_BOXES or options.mails < LEAST_MAILS:
        raise StackError(f"at least mailboxes={LEAST_BOXES} mails={LEAST_MAILS}, for 10 clients")
    names = options.variants.split(",")
    if not {"stock", "ours"} <= set(names) <= {"stock", "again", "ours"}:
        raise StackError(f"variants={options.variants}: stock and ours, perhaps again")
    rows = wanted(options, report)
    for storage in options.storages.split(","):
        one_storage(report, options, storage, rows)
    report.remark(f"{options.mailboxes} mailboxes of {options.mails} mails of {options.size} B, "
                  f"one eleventh unread. Files: {options.files}; {options.rounds} rounds; "
                  f"condstore={options.condstore}. "
                  "M-Store X.400's figures are of 2007, by another protocol on another machine.")
