"""How an empty site gets large mailboxes of a full one, and what the clients of the full one pay.

    many      20 mailboxes of 11,000 mails; a few of them against `doveadm sync` over a pipe
    one       1 mailbox of 200,000 mails
    orders    3 mailboxes of 2,000 mails through the smallest lane: the full site starts first, the
              empty one does, both at once

No UID of the full site may change, both must show the same, and then nothing may happen.
files: disk; memory; journal, a new ext4 of its own.
"""
import seeding
from report import median

ABOUT = "what it takes to fill an empty site with large mailboxes"
OPTIONS = {"mailboxes": 20, "mails": 11000, "huge": 200000, "size": 1000, "rounds": 2, "turns": 2,
           "order_mailboxes": 3, "order_mails": 2000, "order_size": 5000,
           "orders": "full,empty,both", "order_rounds": 1, "settle": 330, "watch": 60, "nice": 10,
           "storage": "sdbox", "files": "disk", "dir": "/var/tmp", "version": "",
           "parts": "many,one,orders"}
QUICK = {"mailboxes": 4, "mails": 500, "huge": 2000, "rounds": 1, "turns": 1, "order_mails": 300,
         "order_size": 20000, "settle": 5, "watch": 5}
LONG = True
SMALL_LANES = {"replica_lane": "8MB", "replicator_memory": "8MB"}
SITES = {"a": "full", "b": "empty"}


def told(report, what, mails, found):
    """What a large seeding tells."""
    report.row(f"{what}: all mails there", found.took, "s")
    for letter, site in SITES.items():
        for name, program, goal in ((f"{letter}-worker", "workers", "<= 0.15"),
                                    (f"{letter}-replicator", "main", None),
                                    (f"redis-{letter}", "Redis", None)):
            cpu = found.cpu[name] / mails
            report.row(f"{what}: CPU of the {site} site's {program}", cpu, "ms/mail", goal=goal)
    judged(report, what, found)
    for letter, (cpu, written) in found.rest.items():
        at_rest = f"{what}, at rest, {SITES[letter]} site"
        report.row(f"{at_rest}: CPU", cpu / 10, "% of a core", goal="<= 0.2")
        report.row(f"{at_rest}: written", written, "bytes/s", goal="<= 0")


def judged(report, what, found):
    report.row(f"{what}: mails of the full site under another UID", found.changed, "", goal="<= 0")
    report.row(f"{what}: mails that are not the same", found.differences, "", goal="<= 0")


def against_dsync(report, options, mail, shows):
    """The same mailboxes, by turns, with the priority that what replicates has."""
    few = list(shows)[:options.turns]
    mails = options.turns * options.mails
    what = f"{options.turns} x {options.mails} mails"
    ours, theirs = [], []
    for _ in range(options.rounds):
        theirs.append(seeding.by_dsync(options, mail, few))
        found = seeding.seed(changed(options, watch=0), mail, shows, users=few)
        ours.append((found.took, sum(found.cpu.values())))
        judged(report, what, found)
    report.detail("dsync_and_ours_s_cpu_ms", [theirs, ours])
    seconds, cpu = ([median([run[at] for run in runs]) for runs in (ours, theirs)] for at in (0, 1))
    report.row(f"{what}: mails a second", mails / seconds[0], "/s", "doveadm sync",
               mails / seconds[1], ">= 3")
    report.row(f"{what}: mails a second of CPU, all of both sites", mails * 1000 / cpu[0], "/s",
               "doveadm sync", mails * 1000 / cpu[1])


def changed(options, **values):
    return type(options)(**{**vars(options), **values})


def many_part(report, options):
    with seeding.filled(options, options.mailboxes, options.mails) as (mail, shows):
        if options.rounds:
            against_dsync(report, options, mail, shows)
        found = seeding.seed(options, mail, shows)
    mails = options.mailboxes * options.mails
    told(report, f"{options.mailboxes} x {options.mails} mails", mails, found)


def one_part(report, options):
    with seeding.filled(options, 1, options.huge) as (mail, shows):
        found = seeding.seed(options, mail, shows)
    told(report, f"1 x {options.huge} mails", options.huge, found)


def orders_part(report, options):
    few = changed(options, size=options.order_size, watch=0)
    for order in options.orders.split(",") * options.order_rounds:
        with seeding.filled(few, options.order_mailboxes, options.order_mails) as (mail, shows):
            found = seeding.seed(few, mail, shows, order, SMALL_LANES)
        starts = "both start at once" if order == "both" else f"the {order} site starts first"
        what = f"{options.order_mailboxes} x {options.order_mails} mails, small lanes, {starts}"
        report.row(f"{what}: all mails there", found.took, "s")
        judged(report, what, found)


PARTS = {"many": many_part, "one": one_part, "orders": orders_part}


def run(report, options):
    for name in options.parts.split(","):
        print(f"  {name}", flush=True)
        PARTS[name](report, options)
