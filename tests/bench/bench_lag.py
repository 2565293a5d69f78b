"""How late a replica is: one change, a stream of them, a whole mailbox, and what a failover hides.

    lag        a change at A until a client at B sees it: by polling (NOOP again and again), and by IDLE beside an IDLE client at A
    stream     mails appended at A as fast as A takes them (one by one), until B has the last: against A's own rate
    batches    B is stopped while A gets mails, then goes on: mails a second until B has all
    move       a client at A moves a whole mailbox in one command, Maildir too: until B shows it; against `doveadm sync` of the same move
    seeding    B is new and A has a mailbox: until B has it, against `doveadm sync`; no UID of A may change (lane: bytes that a lane holds)
    failover   A is killed at random under load: what it answered and B does not show; all of it must be there when A returns
"""
import contextlib
import os
import random
import re
import signal
import statistics
import tempfile
import time

import replicas
from replicas import MAIL_USER, Timed, mail, multi_append, percentile
from report import median
from support.stack.failure import StackError
from support.stack.group import Group
from support.stack.imap import Imap, Lost

ABOUT = "how late a replica is, how fast it applies, and what a failover hides"
OPTIONS = {"changes": 400, "stream": 2000, "mails": 10000, "size": 10240, "trials": 20, "rounds": 3, "seedings": 2, "dir": "/var/tmp", "version": "",
           "storages": "sdbox,mdbox", "parts": "lag,stream,batches,move,seeding,failover", "moved": 5000, "move_storages": "maildir,sdbox,mdbox", "lane": 0}
QUICK = {"changes": 40, "stream": 300, "mails": 1000, "trials": 3, "rounds": 1, "seedings": 1, "moved": 500}
PATIENCE = 600
# Mails a second in batches (issue: apply rates), seeding against doveadm sync.
BATCH_GOALS = {"sdbox": ">= 3000", "mdbox": ">= 10000"}
SEED_GOALS = {"sdbox": "<= 1.0", "mdbox": "<= 0.333"}


@contextlib.contextmanager
def group(options, *storages, replication="dovelane", settings=None):
    """Replicas with the default settings but for these."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        specs = [storage + (f"@{options.version}" if options.version else "") for storage in storages]
        with Group(*specs, replication=replication, directory=directory, settings=settings or {}, links=False) as fresh:
            yield fresh


def exists(session, folder="INBOX"):
    """Messages in the folder, as STATUS says."""
    answer = session.one(f"STATUS {folder} (MESSAGES)")
    return int(answer.rpartition(b"MESSAGES ")[2].split(b")")[0])


def wait_count(replica, wanted, user=MAIL_USER, folder="INBOX", pause=0.002):
    """When the replica had so many messages (monotonic)."""
    end = time.monotonic() + PATIENCE
    with contextlib.closing(Timed(replica.note["imap"], user)) as session:
        while time.monotonic() < end:
            if exists(session, folder) >= wanted:
                return time.monotonic()
            time.sleep(pause)
    raise StackError(f"{replica.name} has not got {wanted} messages within {PATIENCE} s")


def wait_one_validity(there):
    """Until the INBOX has one UIDVALIDITY at all: a change of it ends a client's session."""
    end = time.monotonic() + PATIENCE
    while True:
        shown = set()
        for replica in there.replicas:
            with contextlib.closing(Timed(replica.note["imap"], MAIL_USER)) as session:
                shown.add(session.one("STATUS INBOX (UIDVALIDITY)").rpartition(b"UIDVALIDITY ")[2])
        if len(shown) == 1:
            return
        if time.monotonic() > end:
            raise StackError(f"the INBOX has not one UIDVALIDITY within {PATIENCE} s: {shown}")
        time.sleep(0.05)


# -- one change ----------------------------------------------------------------------------------------------------------

def polled_lags(there, options, dice):
    """ms from A's OK to the moment a client at B that asks all the time sees it; appends and flag changes in turn."""
    for replica in there.replicas:       # each makes an INBOX: which UIDVALIDITY wins is settled before anybody stays logged in
        Imap(replica.note["imap"], MAIL_USER).close()
    wait_one_validity(there)
    replicas.wait_idle(there)
    a, b = (Imap(replica.note["imap"], MAIL_USER) for replica in there.replicas)
    a.select("INBOX")
    a.append("INBOX", mail("first", 1024))
    wait_count(there.replicas[1], 1)
    b.select("INBOX")
    found = {"append": [], "flag": []}
    for number in range(options.changes):
        time.sleep(dice.uniform(0.005, 0.06))
        kind = "append" if number % 2 == 0 else "flag"
        if kind == "append":
            a.append("INBOX", mail(f"l{number}", options.size))
            mark = b" EXISTS"
        else:
            a.command(f"STORE 1 {'+' if number % 4 == 1 else '-'}FLAGS.SILENT (\\Flagged)")
            mark = b" FETCH"
        began = time.perf_counter()
        end = began + 30
        while not any(mark in line for line in b.command("NOOP")[1]):
            if time.perf_counter() > end:
                raise StackError(f"a {kind} did not come to B within 30 s")
        found[kind].append((time.perf_counter() - began) * 1000)
    for session in (a, b):
        session.close()
    return found


def idle_lags(there, options, dice):
    """ms from A's OK to an IDLE client's EXISTS, at A itself and at B, for the same appends."""
    import threading
    a = Imap(there.replicas[0].note["imap"], MAIL_USER)
    idlers = [Imap(replica.note["imap"], MAIL_USER) for replica in there.replicas]
    tags = []
    for session in idlers:
        session.select("INBOX")
        tags.append(session.idle())
    found = [[], []]
    for number in range(max(5, options.changes // 10)):
        time.sleep(dice.uniform(0.02, 0.2))
        seen = [None, None]

        def watch(at):
            seen[at] = idlers[at].wait_untagged(rb" EXISTS", 30)
        threads = [threading.Thread(target=watch, args=(at,)) for at in (0, 1)]
        for thread in threads:
            thread.start()
        a.append("INBOX", mail(f"i{number}", 1024))
        began = time.monotonic()
        for thread in threads:
            thread.join()
        if None in seen:
            raise StackError("an IDLE client was told nothing within 30 s")
        for at in (0, 1):
            found[at].append((seen[at] - began) * 1000)
    for session in idlers:
        session.drop()
    a.close()
    return found


def lag_part(report, options):
    dice = random.Random(5)
    with group(options, "sdbox", "sdbox") as there:
        lags = polled_lags(there, options, dice)
        near, far = idle_lags(there, options, dice)
    for kind, values in lags.items():
        report.row(f"lag of one {kind}, p50", percentile(values, 0.5), "ms", goal="<= 10 ms")
        report.row(f"lag of one {kind}, p99", percentile(values, 0.99), "ms", goal="<= 50 ms")
    more = [there_ms - here_ms for here_ms, there_ms in zip(near, far)]
    report.row("IDLE at B, p50", median(far), "ms", "IDLE at A itself", median(near))
    report.row("IDLE at B later than IDLE at A, p50", percentile(more, 0.5), "ms", goal="<= 10 ms")
    report.row("IDLE at B later than IDLE at A, p99", percentile(more, 0.99), "ms", goal="<= 50 ms")
    report.remark("Dovecot itself tells an IDLE client of any change of another session about 0.5 s late; so the lag is measured by a "
                  "client that asks with NOOP, and IDLE at B is held against IDLE at A.")
    report.detail("lags_ms", {"polled": lags, "idle_a": near, "idle_b": far})


# -- many changes --------------------------------------------------------------------------------------------------------

def stream_part(report, options):
    """A's own rate one by one, and B's until it has the last."""
    for storage in options.storages.split(","):
        ours, bare = [], []
        with group(options, storage, storage) as there:
            a, b = there.replicas
            total = 0
            for number in range(options.rounds):
                commands = [replicas.made("APPEND INBOX", mail(f"s{number}-{n}", options.size)) for n in range(options.stream)]
                with contextlib.closing(Timed(a.note["imap"])) as session:
                    began = time.monotonic()
                    session.times(commands)
                    bare.append(options.stream / (time.monotonic() - began))
                total += options.stream
                ours.append(options.stream / (wait_count(b, total) - began))
        report.row(f"stream of single saves, {storage}: at B", median(ours), "mails/s", "at A", median(bare), ">= 0.9")


def batches_part(report, options):
    for storage in options.storages.split(","):
        rates = []
        for _ in range(options.rounds):
            # A lane with room for all of them: what does not fit is sent again later, and that is not what is measured.
            with group(options, storage, storage, settings={"replica_lane": options.mails * (options.size + 1024) * 2}) as there:
                a, b = there.replicas
                with contextlib.closing(Timed(a.note["imap"])) as session:
                    session.one("APPEND INBOX", mail("first", 1024))
                wait_count(b, 1)
                stopped = b.processes("dovelane-replicator") + b.processes("dovelane-worker")
                for one in stopped:
                    one.send(signal.SIGSTOP)
                with contextlib.closing(Timed(a.note["imap"])) as session:
                    multi_append(session, "INBOX", [mail(f"b{n}", options.size) for n in range(options.mails)])
                replicas.wait_idle(there)
                for one in stopped:
                    one.send(signal.SIGCONT)
                began = time.monotonic()
                rates.append(options.mails / (wait_count(b, options.mails + 1) - began))
        report.row(f"backlog of {options.mails} mails, {storage}: taken, applied", median(rates), "mails/s",
                   goal=BATCH_GOALS.get(storage))


def moved(options, storage, replication, carry):
    """Seconds of a client's MOVE of a full mailbox, and from its end until B shows all of them in the other one; CPU of B's workers a mail, in ms."""
    mails = [mail(f"v{n}", 1024) for n in range(options.moved)]
    with group(options, storage, storage, replication=replication, settings={"replica_lane": options.moved * 4096 + 67108864} if replication == "dovelane" else None) as there:
        a, b = there.replicas
        with contextlib.closing(Timed(a.note["imap"])) as session:
            multi_append(session, "INBOX", mails)
            session.one("CREATE Archive")
        carry(there, a, b)
        wait_count(b, options.moved)
        replicas.wait_idle(there)
        used = replicas.cpu_ms([one.pid for one in b.processes("dovelane-worker")])
        with contextlib.closing(Timed(a.note["imap"])) as session:
            session.one("SELECT INBOX")
            began = time.monotonic()
            session.one("MOVE 1:* Archive")
        answered = time.monotonic()
        carry(there, a, b)
        wait_count(b, options.moved, folder="Archive", pause=0.02)
        wait_gone(b)
        ended = time.monotonic()
        replicas.wait_idle(there)
        return answered - began, ended - answered, (replicas.cpu_ms([one.pid for one in b.processes("dovelane-worker")]) - used) / options.moved


def wait_gone(replica):
    end = time.monotonic() + PATIENCE
    with contextlib.closing(Timed(replica.note["imap"])) as session:
        while exists(session):
            if time.monotonic() > end:
                raise StackError(f"{replica.name}: moved mails are still in the INBOX after {PATIENCE} s")
            time.sleep(0.02)


def by_dsync(there, a, b):
    code, words = there.sync(a, b, MAIL_USER, stateful=False)
    if code not in (0, 2):
        raise StackError(f"doveadm sync: {words}")


def move_part(report, options):
    for storage in options.move_storages.split(","):
        found = [(moved(options, storage, "dovelane", lambda *_: None), moved(options, storage, "dsync", by_dsync)) for _ in range(options.rounds)]
        ours, theirs = ([run[i] for run in found] for i in (0, 1))
        report.row(f"MOVE of {options.moved} mails in one command, {storage}: at B after the client's OK", median([r[1] for r in ours]), "s", "doveadm sync",
                   median([r[1] for r in theirs]), "<= 1.0")
        report.row(f"MOVE of {options.moved} mails, {storage}: CPU of B's worker", median([r[2] for r in ours]), "ms/mail")


def shown(replica, user=MAIL_USER):
    """UIDVALIDITY and UIDs of the INBOX."""
    with contextlib.closing(Timed(replica.note["imap"], user)) as session:
        validity = re.search(rb"UIDVALIDITY (\d+)", session.one("STATUS INBOX (UIDVALIDITY)"))[1]
        session.one("SELECT INBOX")
        return validity, re.search(rb"\* SEARCH([ \d]*)", session.one("UID SEARCH ALL"))[1].split()


def changed(before, after):
    """Mails that are not under the UID they had."""
    return len(before[1]) if before[0] != after[0] else len(set(before[1]) - set(after[1]))


def seed_ours(options, storage):
    """An empty B joins: seconds from its start until it has everything; UIDs of A that are others than before; CPU of A's and B's workers a mail, in ms."""
    with group(options, storage, storage, settings={"replica_lane": options.lane} if options.lane else None) as there:
        a, b = there.replicas
        there.end(b.name)
        with contextlib.closing(Timed(a.note["imap"])) as session:
            multi_append(session, "INBOX", [mail(f"e{n}", options.size) for n in range(options.mails)])
        replicas.wait_idle(there)
        before, cpu = shown(a), replicas.cpu_ms([one.pid for one in a.processes("dovelane-worker")])
        began = time.monotonic()
        there.start(b.name)
        took = wait_count(b, options.mails, pause=0.2) - began
        replicas.wait_idle(there)
        used = [replicas.cpu_ms([one.pid for one in replica.processes("dovelane-worker")]) for replica in (a, b)]
        return took, changed(before, shown(a)), (used[0] - cpu) / options.mails, used[1] / options.mails


def seed_dsync(options, storage):
    with group(options, storage, storage, replication="dsync") as there:
        a, b = there.replicas
        with contextlib.closing(Timed(a.note["imap"])) as session:
            multi_append(session, "INBOX", [mail(f"e{n}", options.size) for n in range(options.mails)])
        began = time.monotonic()
        code, words = there.sync(a, b, MAIL_USER, stateful=False)
        took = time.monotonic() - began
        if code not in (0, 2):
            raise StackError(f"doveadm sync: {words}")
        wait_count(b, options.mails)
        return took


def seeding_part(report, options):
    for storage in options.storages.split(","):
        ours, theirs = [], []
        for _ in range(options.seedings):
            theirs.append(seed_dsync(options, storage))
            ours.append(seed_ours(options, storage))
        what = f"seeding {options.mails} x {options.size} B, {storage}"
        report.row(what, median([r[0] for r in ours]), "s", "doveadm sync", median(theirs), SEED_GOALS.get(storage))
        report.row(f"{what}: UIDs of the full site that changed", max(r[1] for r in ours), "mails", goal="<= 0")
        for site, n in (("full", 2), ("empty", 3)):
            report.row(f"{what}: CPU of the {site} site's workers", median([r[n] for r in ours]), "ms/mail", goal="<= 0.15")


# -- failover ------------------------------------------------------------------------------------------------------------

def failover_part(report, options):
    """Kills all of A while a client appends; counts what B lacks at once, and after A's return."""
    dice, missing, answered_all, lost = random.Random(9), [], 0, 0
    with group(options, "sdbox", "sdbox") as there:
        a, b = there.replicas
        for trial in range(options.trials):
            answered, user = [], f"f{trial}@example.org"
            session = Imap(a.note["imap"], user)
            end = time.monotonic() + dice.uniform(0.3, 1.0)
            while time.monotonic() < end:
                name = f"t{trial}-{len(answered)}"
                session.append("INBOX", mail(name, options.size))
                answered.append(name)
            there.kill("redis-a")
            a.kill()
            with contextlib.suppress(Lost):
                session.drop()
            with Imap(b.note["imap"], user) as other:
                seen = other.uids("INBOX")
            missing.append(len([name for name in answered if name not in seen]))
            answered_all += len(answered)
            there.start("redis-a")
            there.start(a.name)
            deadline = time.monotonic() + 120
            while True:
                with Imap(b.note["imap"], user) as other:
                    seen = other.uids("INBOX")
                gone = [name for name in answered if name not in seen]
                if not gone or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            lost += len(gone)
    report.row("failover: mails answered by A and not at B when A was killed, median", float(statistics.median(missing)), "mails")
    report.row("failover: the most of them", float(max(missing)), "mails")
    report.row("failover: mails answered by A that B lacks after A's return", float(lost), "mails", goal="<= 0")
    report.remark(f"Failover: {options.trials} trials, {answered_all} mails answered; A and its Redis killed at once while a client appended "
                  f"without pause. Not at B at that moment: {missing}.")


PARTS = {"lag": lag_part, "stream": stream_part, "batches": batches_part, "move": move_part, "seeding": seeding_part, "failover": failover_part}


def run(report, options):
    for name in options.parts.split(","):
        print(f"  {name}", flush=True)
        PARTS[name](report, options)
