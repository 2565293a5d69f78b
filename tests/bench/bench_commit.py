"""What a reply costs that waits for another site (dovelane_commit = peers), against one that does not (local).

Two groups of two sites, the one with peers and the other with local, turn by turn; what a site opens to the other one's Redis goes through a proxy that
makes the round trip (`trips`, milliseconds) and is there with 0, too. append: one IMAP session; lmtp: a connection for each delivery. Both wait for one reply
after the other, so the time is a client's. CPU: of replicators, workers and Redises of both sites, and of the proxy, a mail.
"""
import contextlib
import smtplib
import statistics
import time

import replicas
from replicas import MAIL_USER, Timed, mail, made, percentile, ratio_interval
from support.stack.failure import StackError
from support.stack.group import Group

ABOUT = "a reply that waits for another site against one that does not"
OPTIONS = {"rounds": 10, "appends": 40, "deliveries": 40, "size": 10240, "storages": "sdbox,maildir", "trips": "0,12,100", "dir": "/var/tmp"}
QUICK = {"rounds": 2, "appends": 10, "deliveries": 10, "storages": "sdbox", "trips": "0,12"}
SIDES = ("local", "peers")


def setting(commit):
    lines = f"dovelane_commit = {commit}\n", "dovelane_commit_wait = 60s\n"
    return {"2.3": "plugin {\n  " + "  ".join(lines) + "}\n", "2.4": "".join(lines)}


class Side:
    def __init__(self, group):
        self.group, self.replica, self.number = group, group.replicas[0], 0
        self.session = Timed(self.replica.note["imap"])
        self.session.times([made("APPEND INBOX", mail("first", 1024))])

    def cpu(self):
        return replicas.cpu_ms(replicas.replication_pids(self.group))

    def append(self, size):
        self.number += 1
        return self.session.times([made("APPEND INBOX", mail(f"a{self.number}", size))])[0]

    def lmtp(self, size):
        self.number += 1
        host, _, port = self.replica.note["lmtp"].rpartition(":")
        text = mail(f"d{self.number}", size)
        with smtplib.LMTP(host, int(port), timeout=240) as session:
            began = time.perf_counter_ns()
            session.sendmail("sender@stack.example", [MAIL_USER], text)
            return (time.perf_counter_ns() - began) / 1e6

    def never_late(self):
        with open(self.replica.log, errors="replace") as log:
            text = log.read()
        for words in ("no other site has said within", "does not wait for another site"):
            if words in text:
                raise StackError(f"{self.replica.log}: {words}: what was measured did not wait")


def one_round(sides, kind, count, size):
    """Milliseconds of each operation by side, and CPU a mail, all work of replication behind it included."""
    times, cpu = {}, {}
    for name, side in sides.items():
        replicas.wait_idle(side.group)
        before = side.cpu()
        times[name] = [getattr(side, kind)(size) for _ in range(count)]
        replicas.wait_idle(side.group)
        cpu[name] = (side.cpu() - before) / count
    return times, cpu


def measure(report, sides, kind, words, count, options):
    rounds = []
    for number in range(options.rounds):
        order = SIDES if number % 2 else SIDES[::-1]
        rounds.append(one_round({name: sides[name] for name in order}, kind, count, options.size))
    every = {name: [value for times, _ in rounds for value in times[name]] for name in SIDES}
    for what, of in (("p50", statistics.median), ("p99", lambda times: percentile(times, 0.99))):
        report.row(f"{words}, {what}", of(every["peers"]), "ms", "local", of(every["local"]))
    ratio, low, high = ratio_interval([statistics.median(times["peers"]) for times, _ in rounds], [statistics.median(times["local"]) for times, _ in rounds])
    report.row(f"{words}: ratio of the medians [{low:.1f}, {high:.1f}]", ratio, "x")
    report.row(f"{words}: CPU of replication", statistics.median(cpu["peers"] for _, cpu in rounds), "ms/mail", "local",
               statistics.median(cpu["local"] for _, cpu in rounds))


def run(report, options):
    for storage in options.storages.split(","):
        with contextlib.ExitStack() as opened:
            groups = {name: opened.enter_context(Group(storage, storage, settings={}, more=setting(name))) for name in SIDES}
            sides = {name: Side(group) for name, group in groups.items()}
            for trip in options.trips.split(","):
                print(f"  {storage}, round trip {trip} ms", flush=True)
                for group in groups.values():
                    group.delay(float(trip))
                for kind, count in (("append", options.appends), ("lmtp", options.deliveries)):
                    measure(report, sides, kind, f"{kind}, {storage}, round trip {trip} ms", count, options)
            sides["peers"].never_late()
    report.remark(f"{options.rounds} rounds of {options.appends} APPENDs and {options.deliveries} deliveries of {options.size} B, one after the other; both sites and "
                  "the client on one machine.")
