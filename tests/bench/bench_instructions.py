"""What a client's command costs its imap process, in instructions and system calls, and what a
change costs the worker.

A stock Dovecot, and one with the plugin, a replicator and a second site, have the same mailbox.
Dovecot keeps modseqs in both, as it does from the first client with CONDSTORE on. An imap process
is run by hand (`imap -u USER`), once under callgrind and once under strace. It gets one command at
a time, as a client sends them. Each is done with `few` and with `many` operations: the difference
is what an operation costs, without the process' start and end. What else the machine does changes
that little, where times are as wide as what is looked for.

callgrind counts outside the kernel, so the system calls are counted beside it.

    commands  the above
    turns     instructions of a worker for a mail: of users in turn, each opened for it, against
              one user who stays open (worker_counts.py)
"""
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Callable

import worker_counts
from mailbox_rows import ranges
from mailbox_sites import program, sites
from replicas import mail, multi_append
from report import median
from support.stack.failure import StackError

ABOUT = "a client's command, and a worker's change, in instructions"
OPTIONS = {"mails": 1100, "size": 10240, "few": 20, "many": 80, "rounds": 2,
           "storages": "sdbox,mdbox,maildir",
           "files": "memory", "dir": "/var/tmp", "variants": "stock,ours",
           "rows": "fetch read,fetch unread,flag,append,delete", "parts": "commands,turns",
           "few_turns": 1, "many_turns": 4}
QUICK = {"many_turns": 2, "few": 5, "many": 15, "rounds": 1, "storages": "sdbox"}
LONG = True
GOAL = "<= 1.05"
USER = "m0@example.org"


@dataclass
class Row:
    """An operation. of(uid): its commands, each a text and perhaps a literal. wanted: which mails
    of the mailbox; none: new ones, which are put there before, or what is made."""
    name: str
    of: Callable
    wanted: str = ""
    undo: str = ""      # what puts a set of mails back


ROWS = {row.name: row for row in (
    Row("fetch read", lambda uid: [(f"UID FETCH {uid} BODY[]", None)], "SEEN"),
    Row("fetch unread", lambda uid: [(f"UID FETCH {uid} BODY[]", None)], "UNSEEN",
        "-FLAGS.SILENT (\\Seen)"),
    Row("flag", lambda uid: [(f"UID STORE {uid} +FLAGS (\\Flagged)", None)], "SEEN",
        "-FLAGS.SILENT (\\Flagged)"),
    Row("append", lambda uid: [("APPEND INBOX", mail(f"n{uid}", 10240))]),
    Row("delete", lambda uid: [(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)", None),
                               (f"UID EXPUNGE {uid}", None)]),
)}


# -- an imap process -----------------------------------------------------------------------------

class ByHand:
    """`imap -u USER` behind a tool's command line, which gets commands by its standard input."""

    def __init__(self, replica, tool):
        words = [*tool, program("imap"), "-c", replica.note["inner_config"], "-u", USER]
        # GDB: Dovecot leaves its modules loaded, so that callgrind can name their functions
        self.process = subprocess.Popen(
            replica.entered(*map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**os.environ, "GDB": "1"})
        self.process.stdout.readline()

    def do(self, text, literal=None):
        """One command, up to its answer."""
        command = f"x {text}".encode()
        if literal is not None:
            command += b" {%d+}\r\n%s" % (len(literal), literal)
        self.process.stdin.write(command + b"\r\n")
        self.process.stdin.flush()
        for line in iter(self.process.stdout.readline, b""):
            if line.startswith(b"x "):
                if not line.startswith(b"x OK"):
                    raise StackError(f"imap by hand: {text}: {line.decode(errors='replace')}")
                return
        said = self.process.stderr.read().decode(errors="replace").strip()
        raise StackError(f"imap by hand ended before its answer to {text}: {said}")

    def end(self):
        """Says LOGOUT and waits."""
        self.do("LOGOUT")
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        if self.process.wait() != 0:
            raise StackError(f"imap by hand: exit {self.process.returncode}")


# imap becomes doveconf, and imap again: callgrind follows, and the last one's figures stay.
def under_callgrind(out):
    return ["valgrind", "--tool=callgrind", "-q", "--trace-children=yes",
            f"--callgrind-out-file={out}"]


def total(out, pattern):
    found = re.search(pattern, out.read_text())
    if not found:
        raise StackError(f"{out} has no sum: the tool ended before imap did")
    return int(found[1])


def instructions(out):
    return total(out, r"(?m)^(?:summary|totals): (\d+)")


def under_strace(out):
    return ["strace", "-c", "-o", str(out)]


def system_calls(out):
    return total(out, r"(?m)^100\.00\s+[\d.]+\s+\S+\s+(\d+).*total$")


TOOLS = {"instructions": (under_callgrind, instructions),
         "system calls": (under_strace, system_calls)}


# -- what an operation costs ---------------------------------------------------------------------

@contextlib.contextmanager
def mails_for(site, row, count, options):
    """UIDs, and afterwards the mailbox is as it was."""
    with contextlib.closing(site.session(USER)) as session:
        session.one("SELECT INBOX")
        first = session.next_uid()
        if row.name == "delete":
            multi_append(session, "INBOX", [mail(f"x{n}", options.size) for n in range(count)])
            session.one("NOOP")
        wanted = row.wanted or f"UID {first}:*"
        uids = list(range(count)) if row.name == "append" else session.uids(wanted)[:count]
        session.logout()
    if len(uids) != count:
        raise StackError(f"{row.name}: {len(uids)} mails for {count} operations; mails=N, many=N")
    site.settle()
    yield uids
    with contextlib.closing(site.session(USER)) as session:
        session.one("SELECT INBOX")
        if row.undo:
            session.one(f"UID STORE {ranges(uids)} {row.undo}")
        session.remove(f"UID {first}:*")
        session.logout()
    site.settle()


def one_run(site, row, count, tool, options):
    """What an imap process counts that does so many operations."""
    command, counted = TOOLS[tool]
    with mails_for(site, row, count, options) as uids, tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        out = Path(directory, "out")
        out.touch()
        out.chmod(0o666)        # imap gives its rights up before callgrind writes
        imap = ByHand(site.replica, command(out))
        imap.do("SELECT INBOX (CONDSTORE)")
        for uid in uids:
            for text, literal in row.of(uid):
                imap.do(text, literal)
        imap.end()
        return counted(out)


def an_operation(site, row, tool, options):
    few, many = (one_run(site, row, count, tool, options) for count in (options.few, options.many))
    return (many - few) / (options.many - options.few)


def read_once(site):
    """Each mail is opened and flagged, so that a first round does not differ from later ones: what
    Dovecot keeps of a mail in its cache is there from now on."""
    with contextlib.closing(site.session(USER)) as session:
        session.one("SELECT INBOX")
        session.drain("UID FETCH 1:* BODY.PEEK[]")
        for sign in "+-":
            session.one(f"UID STORE 1:* {sign}FLAGS.SILENT (\\Flagged)")
        session.logout()


def measure(report, options, storage, found):
    lines = []
    for name in options.rows.split(","):
        row, line = ROWS[name], [name]
        for tool in TOOLS:
            rounds = {variant: [] for variant in found}
            for _ in range(options.rounds):
                for variant, site in found.items():
                    rounds[variant].append(an_operation(site, row, tool, options))
            middle = {variant: median(these) for variant, these in rounds.items()}
            report.row(f"{name}, {storage}: {tool}", middle["ours"], "an operation", "stock",
                       middle["stock"], GOAL)
            report.detail(f"{name}, {storage}: {tool}", rounds)
            line += [*middle.values(), middle["ours"] / middle["stock"]]
        print("  " + "  ".join(f"{cell:.4g}" if isinstance(cell, float) else cell
                               for cell in line), flush=True)
        lines.append(line)
    columns = [f"{tool}: {what}" for tool in TOOLS for what in (*found, "ours to stock")]
    report.table(f"{storage}: an operation, of its imap process", ["operation", *columns], lines)


def commands_part(report, options):
    for name in options.rows.split(","):
        if name not in ROWS:
            raise StackError(f"rows={name}: there is {', '.join(ROWS)}")
    for storage in options.storages.split(","):
        these = dict(vars(options), storage=storage, mailboxes=1, condstore=1)
        with sites(SimpleNamespace(**these)) as found:
            for site in found.values():
                read_once(site)
            measure(report, options, storage, found)
    report.remark("Instructions outside the kernel, by callgrind; system calls, by strace. "
                  f"Medians of {options.rounds} rounds; a mailbox of {options.mails} mails of "
                  f"{options.size} B.")


def turns_part(report, options):
    one, each = (worker_counts.a_change(options.dir, by_turns, options.few_turns,
                                        options.many_turns, instructions)
                 for by_turns in (False, True))
    report.row("a mail of each user in turn: instructions of the worker", each, "a mail",
               "of one user", one)


PARTS = {"commands": commands_part, "turns": turns_part}


def run(report, options):
    for tool in "valgrind", "strace":
        if not shutil.which(tool):
            raise StackError(f"{tool} is not installed: ./setup bench")
    for name in options.parts.split(","):
        if name not in PARTS:
            raise StackError(f"parts={name}: there is {', '.join(PARTS)}")
        PARTS[name](report, options)
