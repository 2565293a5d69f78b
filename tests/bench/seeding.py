"""What the benchmark `seeding` measures: an empty site that is filled.

The mail is saved by a Dovecot that knows nothing of replication, and becomes the full site's by a
rename. CPU is counted by control groups, so a worker that ended is in it.
"""
import concurrent.futures
import contextlib
import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import replicas
from bench_imap import in_memory, mounted
from cgroups import cgroups
from mailbox_sites import counted
from replicas import mail
from support.stack import dovecot
from support.stack.failure import StackError
from support.stack.group import PROGRAMS, Group
from support.stack.imap import Imap

PATIENCE = 7200
FETCHED, WANTED = 1000, "FLAGS INTERNALDATE X-GUID BODY.PEEK[]"      # mails in one FETCH; of each
IMAGE, INODES = 8 << 30, 1000000


class Sites(Group):
    """Two sites of which only the Redis nodes run; main and workers join their control groups."""

    def __init__(self, *specs, groups, **options):
        super().__init__(*specs, links=False, **options)
        self.groups = groups

    def wanted(self, service):
        return not service.name.startswith("dovecot-")

    def dovelane_part(self, letter, spec, base, root, letters, nodes):
        text = super().dovelane_part(letter, spec, base, root, letters, nodes)
        for kind, name in PROGRAMS.items():
            path = re.search(rf"executable = (\S*/{name})\b", text)[1]
            script = base / f"in-group-{kind}"
            door = self.groups[f"{letter}-{kind}"].door
            script.write_text(f'#!/bin/sh\necho 0 > {door} && exec {path} "$@"\n')
            script.chmod(0o755)
            text = text.replace(f"executable = {path}", f"executable = {script}")
        return text

    def cpu(self):
        """Milliseconds so far: "a-worker", "a-replicator" and so on, and "redis-a"."""
        found = {name: group.ms() for name, group in self.groups.items()}
        for letter in self.nodes_of:
            found[f"redis-{letter}"] = replicas.cpu_ms([self.services[f"redis-{letter}"].pid])
        return found

    def written(self, replica):
        """Bytes that main, workers and Redis of the site gave to the disk so far."""
        pids = [one.pid for name in PROGRAMS.values() for one in replica.processes(name)]
        return replicas.bytes_written([*pids, self.services[f"redis-{replica.letter}"].pid])


@contextlib.contextmanager
def place(options):
    """A directory for it all."""
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir)
        directory = Path(stack.enter_context(made))
        directory.chmod(0o755)
        if options.files != "disk":
            stack.enter_context(FILES[options.files](directory / "d"))
            directory = directory / "d"
            directory.chmod(0o755)
        yield directory


@contextlib.contextmanager
def with_journal(path):
    """A new ext4. One without a journal, as a virtual machine's may be, gives no inode again that
    was freed seconds ago, and looks through all of these for each new file."""
    image = path.with_name("image")
    with open(image, "wb") as file:
        file.truncate(IMAGE)
    at_once = "lazy_itable_init=0,lazy_journal_init=0"
    subprocess.run(["mkfs.ext4", "-q", "-N", str(INODES), "-E", at_once, image], check=True)
    with mounted(path, "-o", "loop", image):
        image.unlink()
        yield


FILES = {"memory": in_memory, "journal": with_journal}


def specs(options, count):
    return [options.storage + (f"@{options.version}" if options.version else "")] * count


# -- the mail ------------------------------------------------------------------------------------

def names(count):
    return [f"m{number}@example.org" for number in range(count)]


def sized(options, number):
    """Sizes from `size` to twice that."""
    return options.size + number * 37 % options.size


def fill(replica, user, options, mails):
    """One mailbox; ten elevenths of it are read."""
    read = mails * 10 // 11
    with contextlib.closing(replicas.Timed(replica.note["imap"], user)) as session:
        for at in range(0, mails, 200):
            parts = []
            for number in range(at, min(at + 200, mails)):
                data = mail(f"{user.partition('@')[0]}-{number}", sized(options, number))
                flag = b"\\Seen" if number < read else b""
                parts.append(b" (%s) {%d+}\r\n%s" % (flag, len(data), data))
            session.socket.sendall(b"x APPEND INBOX" + b"".join(parts) + b"\r\n")
            session.answer()


@contextlib.contextmanager
def filled(options, mailboxes, mails):
    """(directory of all mail, {user: what it shows}) of a stock Dovecot that has ended."""
    users = names(mailboxes)
    with place(options) as directory:
        with Group(*specs(options, 1), replication="off", users=users,
                   directory=directory / "stock") as stock:
            replica = stock.replicas[0]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda user: fill(replica, user, options, mails), users))
            shows = {user: content(replica, user) for user in users}
            replica.end()
            Path(replica.note["mail"]).rename(directory / "mail")
        yield directory / "mail", shows


def give(replica, mail_directory, users=None):
    """The site gets the mail: all of it, or copies of some users'."""
    there = Path(replica.note["mail"])
    if users is None:
        shutil.rmtree(there)
        mail_directory.rename(there)
        return
    for user in users:
        home = replica.home(user)
        if not home.parent.exists():
            home.parent.mkdir(parents=True)
            shutil.chown(home.parent, dovecot.MAIL_USER)
        subprocess.run(["cp", "-a", mail_directory / home.relative_to(there), home], check=True)


# -- what a site shows ---------------------------------------------------------------------------

def content(replica, user, folder="INBOX"):
    """(UIDVALIDITY, {GUID: (UID, digest of the bytes, flags and date)}), as a client reads it."""
    with Imap(replica.note["imap"], user) as session:
        answer = b" ".join(session.select(folder, again=True))
        validity = int(re.search(rb"UIDVALIDITY (\d+)", answer)[1])
        last = int(re.search(rb"UIDNEXT (\d+)", answer)[1])
        found = {}
        for at in range(1, last, FETCHED):
            chosen = f"{at}:{min(at + FETCHED, last) - 1}"
            for uid, items in session.fetch(chosen, WANTED):
                flags = sorted(set(items[b"FLAGS"]) - {b"\\Recent"})
                told = b"\0".join((*flags, items[b"INTERNALDATE"], items[b"BODY[]"]))
                guid = items[b"X-GUID"]
                if guid in found:
                    raise StackError(f"{replica.name}: {user} has UID {uid} under another, too")
                found[guid] = (uid, hashlib.sha256(told).digest()[:16])
        return validity, found


def changed(before, after):
    """Mails that are not under the UIDVALIDITY and UID that they had: a client loads them again."""
    if before[0] != after[0]:
        return len(before[1])
    return sum(1 for guid, (uid, _) in before[1].items() if after[1].get(guid, (None,))[0] != uid)


def differing(one, other):
    """Mails that only one has, or that have other bytes, flags or dates."""
    ours, theirs = ({guid: told for guid, (_, told) in shown[1].items()} for shown in (one, other))
    return len(set(ours.items()) ^ set(theirs.items()))


# -- seeding -------------------------------------------------------------------------------------

def wait_filled(replica, mails):
    """Until each user has as many."""
    end = time.monotonic() + PATIENCE
    for user, wanted in mails.items():
        while True:
            with contextlib.suppress(StackError):   # the site may not answer yet
                if counted(replica, user) >= wanted:
                    break
            if time.monotonic() > end:
                raise StackError(f"{replica.name}: {user} lacks mails after {PATIENCE} s")
            time.sleep(0.5)


def start(there, order, apart=1.0):
    """Starts both sites: "full" first, "empty" first, or "both" at once."""
    a, b = (replica.name for replica in there.replicas)
    if order == "both":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(there.start, (a, b)))
        return
    first, second = (a, b) if order == "full" else (b, a)
    there.start(first)
    time.sleep(apart)
    there.start(second)


@dataclass
class Seeded:
    """What one seeding told."""
    took: float         # seconds until all mails were there
    cpu: dict           # milliseconds, as Sites.cpu names them
    rest: dict          # {site: (CPU ms, bytes written) a second}, long after it
    changed: int        # mails of the full site that a client has to load again
    differences: int    # mails that are not the same everywhere


def at_rest(there, settle, watched):
    """{site: (CPU ms, bytes written) a second}, a while after the last change."""
    def used():
        return there.cpu(), {replica.letter: there.written(replica) for replica in there.replicas}
    time.sleep(settle)
    before = used()
    time.sleep(watched)
    after = used()
    found = {}
    for letter in after[1]:
        names = [name for name in after[0] if letter in name.split("-")]
        cpu = sum(after[0][name] - before[0][name] for name in names)
        found[letter] = (cpu / watched, (after[1][letter] - before[1][letter]) / watched)
    return found


def compare(there, users, shows):
    """(mails of the full site under another UID, mails that are not the same everywhere)."""
    a, b = there.replicas
    other, wrong = 0, 0
    for user in users:
        full, empty = content(a, user), content(b, user)
        other += changed(shows[user], full)
        wrong += differing(shows[user], full) + differing(full, empty) + changed(full, empty)
    if other or wrong:
        print(there.logs("UIDVALIDITY|settled|given up|refused|Error|Panic|Fatal", 30))
    return other, wrong


def seed(options, mail_directory, shows, order="full", settings=None, users=None):
    """Fills an empty site."""
    users = list(users or shows)
    kinds = [f"{letter}-{kind}" for letter in "ab" for kind in PROGRAMS]
    with contextlib.ExitStack() as stack:
        groups = stack.enter_context(cgroups(*kinds))
        there = stack.enter_context(Sites(*specs(options, 2), groups=groups, users=users,
                                          settings=settings or {},
                                          directory=mail_directory.with_name("sites")))
        a, b = there.replicas
        give(a, mail_directory, None if len(users) == len(shows) else users)
        began = time.monotonic()
        start(there, order)
        wait_filled(b, {user: len(shows[user][1]) for user in users})
        took = time.monotonic() - began
        if not replicas.wait_idle(there, PATIENCE):
            raise StackError(f"the sites are not idle {PATIENCE} s after all mails were there")
        cpu, ended = there.cpu(), time.monotonic()
        other, wrong = compare(there, users, shows)
        rest = {}
        if options.watch:
            rest = at_rest(there, max(0, ended + options.settle - time.monotonic()), options.watch)
        return Seeded(took, cpu, rest, other, wrong)


def by_dsync(options, mail_directory, users):
    """Seconds and CPU milliseconds of `doveadm sync` over a pipe, user by user."""
    with Group(*specs(options, 2), replication="dsync", users=users,
               directory=mail_directory.with_name("synced")) as there:
        a, b = there.replicas
        give(a, mail_directory, users)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)
        try:
            for user in users:
                code, words = there.sync(a, b, user, stateful=False)
                if code:
                    raise StackError(f"doveadm sync: {words}")
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        for user in users:
            if differing(content(a, user), content(b, user)):
                raise StackError(f"doveadm sync: {user} is not equal")
        return took, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
