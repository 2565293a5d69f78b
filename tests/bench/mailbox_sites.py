"""The Dovecots that the bench `mailbox` compares: alike but for the plugin, with the same mail.

Stock is one Dovecot. Ours is two sites that replicate to each other; the first is measured. What a
mail's or a client's command costs is counted in the processes imap, lmtp and submission. All else
has groups of its own: the rest of that Dovecot (master, auth, login, log), what replicates at the
measured site (main, workers, Redis), and the other site as a whole.
"""
import contextlib
import os
import re
import shutil
import smtplib
import subprocess
import tempfile
import time
from pathlib import Path

import memory
import replicas
from bench_imap import in_memory
from cgroups import cgroups
from replicas import Timed, mail
from support.stack import dovecot, programs
from support.stack.failure import StackError
from support.stack.group import PROGRAMS, Group
from support.stack.shape import SinkShape

MEASURED = ("imap", "lmtp", "submission")
PARTS = ("mail", "rest", "here", "peer")
LIBEXEC = ("/usr/lib/dovecot", "/usr/libexec/dovecot", "/usr/local/libexec/dovecot")
SENDER = "sender@bench.example"
SUBMISSION = """
protocols = imap lmtp submission
submission_relay_host = 127.0.0.1
submission_relay_port = {sink}
service submission-login {{
  inet_listener submission {{
    port = {port}
  }}
  inet_listener submissions {{
    port = 0
  }}
}}
"""
MOST_USERS = 100
QUIET, QUIET_MS = 0.1, 2.0 # seconds, and the CPU in them of sites that have nothing to do
PATIENCE = 1800 # seconds, until two full sites are equal
PAGES, INODE = 4096, 1536 # bytes that a file takes in memory: a multiple of the one, and the other


def program(name):
    """Where Dovecot has this program of its own; None: it is not installed."""
    found = (Path(place) / name for place in LIBEXEC)
    return next((path for path in found if path.exists()), None)


class BenchGroup(Group):
    """Processes join their control group before they become what they are; a next hop swallows
    what is submitted."""

    def __init__(self, *specs, doors, **options):
        super().__init__(*specs, links=False, **options)
        self.doors, self.next_hop = doors, None

    def assemble(self):
        port = self.ports.take()
        self.add(programs.smtp_sink(SinkShape("next"), port, self.log("sink")))
        self.next_hop = port
        super().assemble()

    def wrapper(self, base, name, path, door, cores):
        """A program that becomes another one, in a group, on some cores."""
        script = base / f"in-group-{name}"
        on = f"taskset -c {','.join(map(str, sorted(cores)))} " if cores else ""
        script.write_text(f'#!/bin/sh\necho 0 > {door} && exec {on}{path} "$@"\n')
        script.chmod(0o755)
        return script

    def replica(self, letter, spec, letters, nodes):
        base = self.directory / letter
        base.mkdir(exist_ok=True)
        text, port = "", self.ports.take()
        if program("submission"):
            text += SUBMISSION.format(sink=self.next_hop, port=port)
        door, cores = self.doors(letter, "mail")
        for name in MEASURED:
            path = program(name)
            if path:
                script = self.wrapper(base, name, path, door, cores)
                text += f"service {name} {{\n  executable = {script}\n}}\n"
        self.more = {spec.family: text}
        replica = super().replica(letter, spec, letters, nodes)
        replica.note["submission"] = f"127.0.0.1:{port}" if program("submission") else None
        return replica

    def dovelane_part(self, letter, spec, base, root, letters, nodes):
        text = super().dovelane_part(letter, spec, base, root, letters, nodes)
        door, cores = self.doors(letter, "here")
        for name in PROGRAMS.values():
            path = re.search(rf"executable = (\S*/{name})\b", text)[1]
            text = text.replace(f"executable = {path}",
                                f"executable = {self.wrapper(base, name, path, door, cores)}")
        return text


class Session(Timed):
    """A session that can read long answers without keeping them."""

    def drain(self, text):
        """One command whose answer is only read to its end."""
        self.socket.sendall(replicas.made(text))
        tail = b""
        while True:
            more = self.socket.recv(1 << 18)
            tail = (tail + more)[-300:]
            last = tail[:-2].rpartition(b"\r\n")[2]
            if tail.endswith(b"\r\n") and last.startswith(b"x "):
                break
            if not more:
                raise StackError("IMAP: the connection was closed")
        if not last.startswith(b"x OK"):
            raise StackError(f"IMAP: {last.decode(errors='replace')}")

    def uids(self, criteria):
        """What UID SEARCH finds."""
        found = re.search(rb"\* SEARCH([ \d]*)", self.one(f"UID SEARCH {criteria}"))
        return [int(word) for word in found[1].split()]

    def next_uid(self, folder="INBOX"):
        """The UID that the next mail gets."""
        answer = self.one(f"STATUS {folder} (UIDNEXT)")
        return int(answer.rpartition(b"UIDNEXT ")[2].split(b")")[0])

    def remove(self, criteria, folder="INBOX"):
        """Deletes what is found."""
        self.one(f"SELECT {folder}")
        found = ",".join(map(str, self.uids(criteria)))
        if found:
            self.one(f"UID STORE {found} +FLAGS.SILENT (\\Deleted)")
            self.one(f"UID EXPUNGE {found}")

    def idle(self):
        """Sends IDLE and returns when the server waits."""
        self.socket.sendall(b"x IDLE\r\n")
        self.until(b"+ ")

    def until(self, mark):
        """Reads until the mark is seen."""
        data = b""
        while mark not in data:
            more = self.socket.recv(65536)
            if not more:
                raise StackError("IMAP: the connection was closed")
            data += more

    def done(self):
        """Ends IDLE."""
        self.socket.sendall(b"DONE\r\n")
        self.answer()

    def logout(self):
        self.socket.sendall(b"x LOGOUT\r\n")
        while self.socket.recv(4096):
            pass
        self.close()


class Site:
    """A Dovecot that is measured."""

    def __init__(self, name, group, parts, options):
        self.name, self.group, self.parts = name, group, parts
        self.replica = group.replicas[0]
        users = [f"m{n}@example.org" for n in range(max(options.mailboxes, MOST_USERS))]
        self.users, self.full = users, users[:options.mailboxes]
        self.empty = [f"e{n}@example.org" for n in range(10)]

    def session(self, user):
        return Session(self.replica.note["imap"], user)

    @contextlib.contextmanager
    def sessions(self, users):
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(contextlib.closing(self.session(user))) for user in users]

    def lmtp(self):
        """A connection that delivers."""
        host, _, port = self.replica.note["lmtp"].rpartition(":")
        return smtplib.LMTP(host, int(port))

    def submission(self, user):
        """A connection of a user who may send."""
        host, _, port = self.replica.note["submission"].rpartition(":")
        connection = smtplib.SMTP(host, int(port))
        connection.login(user, dovecot.PASSWORD)
        return connection

    def place(self):
        """What runs already joins its groups."""
        for service in self.group.services.values():
            if service.name.startswith("redis-") and service.pid:
                self.parts["here" if service.name == "redis-a" else "peer"].take([service.pid])
        for replica in self.group.replicas:
            others = {one.pid for name in PROGRAMS.values() for one in replica.processes(name)}
            part = self.parts["rest" if replica.letter == "a" else "peer"]
            part.take([one.pid for one in replica.processes() if one.pid not in others])

    def cpu(self):
        """Milliseconds so far, by part."""
        return {part: group.ms() for part, group in self.parts.items()}

    def settle(self):
        """Waits until nothing is replicated any more, and what ended is counted."""
        end, calm = time.monotonic() + PATIENCE, 0
        time.sleep(0.05)
        while len(self.group.replicas) > 1 and calm < 2:
            before = self.cpu()
            time.sleep(QUIET)
            after = self.cpu()
            spent = sum(after[part] - before[part] for part in PARTS)
            calm = calm + 1 if spent < QUIET_MS else 0
            if time.monotonic() > end:
                raise StackError(f"{self.name}: replication is not idle within {PATIENCE} s")


# -- their mail ----------------------------------------------------------------------------------

def fill(site, options):
    """One mailbox, of which the first ten elevenths are read; the home's path. The others are
    copies of it."""
    user = "seed@example.org"
    with contextlib.closing(site.session(user)) as session:
        session.one("CREATE Sent")
        read = options.mails * 10 // 11
        for at in range(0, options.mails, 200):
            parts = []
            for n in range(at, min(at + 200, options.mails)):
                data = mail(f"s{n}", options.size)
                flag = b"\\Seen" if n < read else b""
                parts.append(b" (%s) {%d+}\r\n%s" % (flag, len(data), data))
            session.socket.sendall(b"x APPEND INBOX" + b"".join(parts) + b"\r\n")
            session.answer()
        session.one("SELECT INBOX" + (" (CONDSTORE)" if options.condstore else ""))
        session.drain("FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)")
        for sign in "+-" if options.condstore else "":      # a change is what keeps it for good
            session.one(f"STORE 1 {sign}FLAGS.SILENT (\\Flagged)")
        session.logout()
    return site.replica.home(user)


def copy_homes(source, replica, users):
    """The user's homes, as those of a site that has had them for long."""
    for user in users:
        home = replica.home(user)
        if not home.parent.exists():
            home.parent.mkdir(parents=True)
            shutil.chown(home.parent, dovecot.MAIL_USER)
        subprocess.run(["cp", "-a", str(source), str(home)], check=True)


def counted(replica, user, folder="INBOX"):
    """Messages there, as STATUS says."""
    with contextlib.closing(Session(replica.note["imap"], user)) as session:
        answer = session.one(f"STATUS {folder} (MESSAGES)")
    return int(answer.rpartition(b"MESSAGES ")[2].split(b")")[0])


def warm(site):
    """Each user gets a mail and loses it again: INBOXes are made, and users become known."""
    with contextlib.closing(site.lmtp()) as lmtp:
        for user in site.users + site.empty:
            lmtp.sendmail(SENDER, [user], mail("warm", 2048))
    for user in site.users + site.empty:
        with contextlib.closing(site.session(user)) as session:
            session.remove("SUBJECT warm")
            session.logout()


def differences(site):
    """[(user, mails here, mails at the other site)] of those that are not equal."""
    if len(site.group.replicas) < 2:
        return []
    counts = [(user, *(counted(replica, user) for replica in site.group.replicas))
              for user in site.users + site.empty]
    return [line for line in counts if line[1] != line[2]]


def changed(site, options):
    """[(user, mails)] of those that have not the number of mails that they began with."""
    wanted = dict.fromkeys(site.users + site.empty, 0)
    wanted.update(dict.fromkeys(site.full, options.mails))
    counts = [(user, counted(site.replica, user)) for user in wanted]
    return [(user, count) for user, count in counts if count != wanted[user]]


def wait_equal(site):
    end = time.monotonic() + PATIENCE
    while found := differences(site):
        if time.monotonic() > end:
            raise StackError(f"the sites are not equal within {PATIENCE} s: {found[:5]}")
        time.sleep(2)


# -- all of it -----------------------------------------------------------------------------------

def check_memory(options, replicas_in_all):
    """Before anything is made."""
    each = -(-options.size // PAGES) * PAGES + INODE
    wanted = options.mailboxes * options.mails * each * replicas_in_all
    if options.files == "memory" and wanted > memory.available() - (1 << 30):
        raise StackError(f"{wanted >> 20} MB of mail and 1 GB do not fit into the free memory: "
                         "mailboxes=N, mails=N, or files=disk")


def cores():
    """Those of the processes that are measured, and those of all else; none: too few."""
    known = sorted(os.sched_getaffinity(0))
    half = len(known) // 2
    return (set(known[:half]), set(known[half:])) if half else (set(), set())


def made(name, stack, options, groups):
    """A site and what belongs to it, started."""
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir))
    os.chmod(directory, 0o755)
    base = Path(directory) / "d"
    if options.files == "memory":
        stack.enter_context(in_memory(base))
    else:
        base.mkdir()
        base.chmod(0o755)
    parts, (ours, rest) = {part: groups[f"{name}-{part}"] for part in PARTS}, cores()

    def doors(letter, part):
        there = part if letter == "a" else "peer"
        return parts[there].door, ours if there == "mail" else rest

    specs, replication = [options.storage], "off"
    if name == "ours":
        specs, replication = 2 * specs, "dovelane"
    group = BenchGroup(*specs, doors=doors, replication=replication, directory=base, settings={})
    site = Site(name, stack.enter_context(group), parts, options)
    site.place()
    return site


@contextlib.contextmanager
def sites(options):
    """Name to site, each full, and the two of ours equal."""
    names = options.variants.split(",")
    check_memory(options, len(names) + ("ours" in names))
    with contextlib.ExitStack() as stack:
        kinds = [f"{name}-{part}" for name in names for part in PARTS]
        groups = stack.enter_context(cgroups(*kinds))
        found = {name: made(name, stack, options, groups) for name in names}
        first = found[names[0]]
        source = fill(first, options)
        for site in found.values():
            for replica in site.group.replicas:
                copy_homes(source, replica, site.full)
        for site in found.values():
            warm(site)
            site.settle()
            wait_equal(site)
        yield found
