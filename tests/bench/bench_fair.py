"""What one bad user, and a mail to very many who are refused, cost the others.

    neighbours  two replicas and 100 users who change something one after the other, each change timed until a client at B sees
                it. In turn without and with one more user, whose home at B is full, and who has more at A than a lane or the
                memory of a replicator holds (110 mails of 900 kB). Each round has another such user; afterwards his disk gets
                room, and all of his mails must be there
    bounces     a relay and two nodes; a next hop refuses all recipients of a mail of 200 kB and names each of them in its answer:
                transactions, bytes and commands that the notices cost
"""
import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import replicas
from bench_lag import wait_count
from replicas import mail, percentile
from report import median
from support.stack import Stack, dovecot
from support.stack.failure import StackError
from support.stack.group import Group
from support.stack.imap import Imap

from support.relay_peer import CHUNKS
from support.relay_world import World

ABOUT = "what a user who cannot take changes, and a mail to very many who are refused, cost the others"
OPTIONS = {"rounds": 5, "users": 100, "changes": 100, "backlog": 110, "size": 900_000, "refused": "400,4000", "dir": "/var/tmp", "parts": "neighbours,bounces"}
QUICK = {"rounds": 1, "users": 10, "changes": 20, "backlog": 80, "refused": "40,400"}
PATIENCE = 600


# -- neighbours ----------------------------------------------------------------------------------------------------------

def mounted(replica, *words):
    """A command that sees the mounts of a replica's Dovecot, and makes them there. Its root, too, may be another one."""
    subprocess.run(["nsenter", "--target", str(replica.pid), "--mount", "--root", *map(str, words)], check=True)


def lags(there, options, dice):
    """ms from A's OK of an APPEND to the moment when a client at B that asks all the time sees it."""
    a, b = there.replicas
    found = []
    for number in range(options.changes):
        user = f"good{dice.randrange(options.users)}@example.org"
        with contextlib.closing(Imap(a.note["imap"], user)) as here, contextlib.closing(Imap(b.note["imap"], user)) as there_:
            there_.select("INBOX")
            time.sleep(dice.uniform(0.005, 0.06))
            here.append("INBOX", mail(f"n{number}", 2048))
            began = time.perf_counter()
            while not any(b" EXISTS" in line for line in there_.command("NOOP")[1]):
                if time.perf_counter() > began + 60:
                    raise StackError(f"a change of {user} did not come to B within 60 s")
            found.append((time.perf_counter() - began) * 1000)
    return found


def first_mails(there, options):
    """Each user has a mail at both, and a client that looks makes no INBOX."""
    a, b = there.replicas
    for number in range(options.users):
        user = f"good{number}@example.org"
        with contextlib.closing(Imap(a.note["imap"], user)) as session:
            session.append("INBOX", mail("first", 1024))
    for number in range(options.users):
        wait_count(b, 1, f"good{number}@example.org")


def full_home(replica, user):
    """His home at that replica is on a disk of 2 MB."""
    home = replica.home(user)
    home.mkdir(parents=True)
    shutil.chown(home.parent, dovecot.MAIL_USER)
    mounted(replica, "mount", "-t", "tmpfs", "-o", "size=2m,mode=0777", "tmpfs", home)
    return home


def bad_user(there, options, number):
    a, b = there.replicas
    user = f"bad{number}@example.org"
    home = full_home(b, user)
    with contextlib.closing(Imap(a.note["imap"], user)) as session:
        for at in range(options.backlog):
            session.append("INBOX", mail(f"b{at}", options.size))
    return user, home


def neighbours(report, options):
    dice = random.Random(7)
    without, with_him, lines = [], [], []   # medians of each round in lines
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        os.chmod(directory, 0o755)
        with Group("sdbox", "sdbox", directory=directory, settings={}, links=False) as there:
            b = there.replicas[1]
            first_mails(there, options)
            lags(there, options, dice)      # nobody counts the first ones
            for number in range(options.rounds):
                replicas.wait_idle(there)
                alone = lags(there, options, dice)
                user, home = bad_user(there, options, number)
                beside = lags(there, options, dice)
                without += alone
                with_him += beside
                if not there.logs(rf"user={user}: not now"):
                    raise StackError(f"{b.name} could take what {user} has: he is no bad user")
                lines.append([number + 1, median(alone), median(beside), median(beside) / median(alone), max(alone), max(beside)])
                mounted(b, "mount", "-o", "remount,size=400m", home)
                wait_count(b, options.backlog, user, pause=0.5)
    report.table("ms until B shows a change of one of the others, by round",
                 ["round", "without him", "with him", "ratio", "most without", "most with"], lines)
    ratio, low, high = replicas.ratio_interval([line[2] for line in lines], [line[1] for line in lines])
    report.row(f"a change of one of {options.users} users, beside one whose home is full at B: ratio, median of the rounds", ratio, "", goal="<= 1.2")
    report.row("the same, p50", median(with_him), "ms", "without him", median(without))
    report.row("the same, 95th percentile", percentile(with_him, 0.95), "ms", "without him", percentile(without, 0.95))
    report.row("the same, longest", max(with_him), "ms", "without him", max(without))
    report.remark(f"The ratio's 95 % interval over the rounds: {low:.2f} to {high:.2f}.")
    report.detail("rounds", lines)


# -- bounces -------------------------------------------------------------------------------------------------------------

def counted(world):
    """LANE.META commands and bytes that came in, on all nodes."""
    commands = received = 0
    for connection in world.connections.values():
        said = connection.call("INFO", "everything").decode()
        for line in said.splitlines():
            if line.lower().startswith("cmdstat_lane.meta:"):
                commands += int(line.partition("calls=")[2].partition(",")[0])
            if line.startswith("total_net_input_bytes:"):
                received += int(line.partition(":")[2])
    return commands, received


def refused(count, options):
    """(transactions, bytes of mail, META commands, bytes into the nodes) of the notices of one mail."""
    with contextlib.ExitStack() as open_now:
        directory = Path(open_now.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir)))
        world = World(lambda **shape: open_now.enter_context(Stack(**shape)), directory, bounce=True, destination_concurrency=1)
        open_now.callback(world.end)
        peer = world.peer(offers=CHUNKS)
        peer.say("RCPT", lambda session: f"550 5.1.1 {session.lines[-1].partition(':')[2].split()[0]}: Recipient address rejected: User unknown in local table")
        body = b"Subject: x\r\n\r\n" + b"0123456789abcde\r\n" * (200_000 // 17)
        people = [f"user{number}@example.net" for number in range(count)]
        before = counted(world)
        world.store(peer, *people, body=body)
        end = time.monotonic() + PATIENCE
        while any(world.length(node) for node in world.connections):
            if time.monotonic() > end:
                raise StackError(f"the lanes are not empty within {PATIENCE} s")
            time.sleep(0.1)
        after = counted(world)
        told = sorted(address for notice in world.bounce.mails for address in notice.recipients)
        if told != sorted(people):
            raise StackError(f"{len(told)} of {count} recipients were told of")
        return len(world.bounce.mails), sum(len(notice.body) for notice in world.bounce.mails), after[0] - before[0], after[1] - before[1]


def bounces(report, options):
    counts = [int(word) for word in options.refused.split(",")]
    found = {count: refused(count, options) for count in counts}
    few, many = counts[0], counts[-1]
    report.table("notices of one mail of 200 kB whose recipients are all refused, each by name", ["recipients", "transactions", "bytes of notices", "LANE.META", "bytes into the nodes"],
                 [[count, *found[count]] for count in counts])
    times = many / few
    for at, name in enumerate(("transactions", "bytes of notices", "LANE.META commands", "bytes into the nodes")):
        report.row(f"{name}, {many} recipients", found[many][at], "", f"{few} recipients, times {times:g}", found[few][at] * times, "<= 1.5")
    report.remark("Behind each notice but the last, of 1,000 recipients at most, all owners get the envelope: of bytes, this part grows with the square.")


def run(report, options):
    if "neighbours" in options.parts:
        neighbours(report, options)
    if "bounces" in options.parts:
        bounces(report, options)
