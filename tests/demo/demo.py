#!/usr/bin/python3
"""Shows both halves of dovelane, on loopback: mail through a private Postfix, three nodes and their
relays; and a user's mailboxes at three Dovecot sites.

    demo.py           shows it, and leaves nothing behind
    demo.py --watch   shows it, and leaves it running, with its addresses
    demo.py --stop    ends what --watch left

Needs root (Postfix's and Dovecot's masters do), the packages of ./setup run, and a build. All
stands under temporary directories, and that all of it is gone at the end is checked. Exit code 0
only if every mail arrived, and all sites showed the same.
"""

import os
import re
import signal
import smtplib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mail_half import Mail, judge, run_text  # noqa: E402
from mailbox_half import Sites  # noqa: E402
from telling import Failed, say, table, title  # noqa: E402
from support.stack import StackError, dovecot, ports, process  # noqa: E402
from support.stack.imap import ImapError, Lost  # noqa: E402
from support.stack.shape import REPOSITORY  # noqa: E402
from support.waiting import DidNotHappen, eventually  # noqa: E402

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BUILD = Path(os.environ.get("DOVELANE_BUILD") or REPOSITORY / "build")
PID_FILE, LOG = BUILD / "demo.pid", BUILD / "demo.log"


def versions():
    redis = re.search(r"v=(\S+)", run_text("redis-server", "--version"))
    return (
        run_text("postconf", "-dh", "mail_version").strip(),
        ".".join(map(str, dovecot.version())),
        redis[1] if redis else "?",
    )


def children():
    """Living processes whose parent is this one: it adopts every orphan of what it started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def down(stack):
    """Ends one; (processes that ran, that are left, sockets that were open, that are left, whether
    its directory is)."""
    if not stack.mark:
        return 0, 0, 0, 0, False
    ran = len(
        set(stack.pids()) | {service.pid for service in stack.services.values() if service.pid}
    )
    used = {int(port) for port in re.findall(r"127\.0\.0\.1\]?:(\d+)", str(stack.describe()))}
    used = {port for port in used if ports.listening(port)}
    sockets = ports.unix_sockets(stack.directory)
    marks, directory = stack.marks(), stack.directory
    stack.down()
    left = [entry for mark in marks for entry in process.marked(mark)]
    left_sockets = sum(map(ports.listening, used)) + len(ports.unix_sockets(directory))
    for remark in stack.remarks:
        say(f"note: {remark}")
    return ran, len(left), len(used) + len(sockets), left_sockets, directory.exists()


def clean_up(stacks):
    """Ends everything; True when nothing is left."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    title("Cleaning up")
    ran, left, sockets, left_sockets, kept = map(sum, zip(*map(down, stacks)))
    left = max(left, len(children()))
    say(
        f"{ran} processes ended, {left} left; {sockets} sockets closed, {left_sockets} left; "
        f"directories {'still there' if kept else 'gone'}"
    )
    return not left and not left_sockets and not kept


def interrupted(number, _):
    """One interrupt is enough: a second one must not break the cleaning up."""
    for other in INTERRUPTS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def accept_interrupts():
    for number in INTERRUPTS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupted)


def play(mail, sites):
    mta, imap, redis = versions()
    print(
        f"Dovelane: Postfix {mta}, Redis {redis} with lane.so, Dovecot {imap}; all private, on"
        " loopback"
    )
    began = time.monotonic()
    mail.up()
    say(
        "Three nodes are up, have compared what they hold, and take mail after "
        f"{time.monotonic() - began:.1f} s."
    )
    say()
    smtp, next_hop = mail.stack.smtp, mail.stack["sink-next"].note["address"]
    say(
        f"client ─SMTP─▶ Postfix {smtp} ─milter─┬▶ mx1 ─relay─┬▶ Dovecot  "
        f" {mail.stack['dovecot'].note['lmtp']}"
    )
    blank = " " * (len(smtp) + 32)
    say(f"{blank}├▶ mx2        ├▶ next MTA  {next_hop}")
    say(f"{blank}└▶ mx3        └▶ smtp-sink {mail.stack['sink-plain'].note['address']}")
    mail.play()
    sites.up()
    sites.play()
    title("Did everything arrive?")
    table(
        [
            ("", "sent", "arrived", "lost", "twice"),
            *judge(mail.stack, mail.ledger),
            ("bob's mails at three sites, all of them equal", *sites.counts()),
        ]
    )


def next_steps():
    title("Next")
    say(
        "docs/admin-guide.md: the mail half beside your Postfix.  docs/replication-guide.md: the"
        " mailboxes."
    )
    say("make run WATCH=1 leaves this running, to try it by hand.")


def stay(mail, sites, told):
    """Until somebody ends it: `make stop`, or a signal. What it says from now on is in the log."""
    title("It runs on. make stop ends it")
    table(mail.addresses() + sites.addresses())
    PID_FILE.write_text(f"{os.getpid()}\n")
    os.setsid()
    with LOG.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.write(told, b"1")
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return


def main(told=None):
    process.become_subreaper()
    accept_interrupts()
    began = time.monotonic()
    error, halves, stacks = None, [], []
    try:
        halves += [Mail(), Sites()]
        stacks += [half.stack for half in halves]
        play(*halves)
        if told is None:
            next_steps()
        else:
            stay(*halves, told)
    except (
        Failed,
        StackError,
        DidNotHappen,
        AssertionError,
        ImapError,
        Lost,
        smtplib.SMTPException,
        OSError,
    ) as caught:
        error = caught
        for stack in stacks:
            if stack.mark:
                print(f"\n{stack.tails(8)}", file=sys.stderr)
    except KeyboardInterrupt:
        error = "interrupted"
    clean = clean_up(stacks)
    if told is not None:
        PID_FILE.unlink(missing_ok=True)
    if error is not None:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 130 if error == "interrupted" else 1
    if not clean:
        print("\nThe demo left something behind.", file=sys.stderr)
        return 1
    title(
        "All mail arrived, all sites are equal, nothing is left behind "
        f"({time.monotonic() - began:.0f} s)."
        if told is None
        else "It is ended."
    )
    return 0


def running():
    """The process that --watch left, or None."""
    try:
        pid = int(PID_FILE.read_text())
        return pid if b"demo.py" in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    except (OSError, ValueError):
        return None


def watch():
    """A child goes on when all was shown; this process ends then."""
    if running():
        sys.exit(f"It runs already, as process {running()}: make stop ends it.")
    hears, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hears)
        sys.exit(main(tells))
    os.close(tells)
    for number in INTERRUPTS:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    while True:
        try:
            if os.read(hears, 1):
                return 0
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except InterruptedError:
            continue


def stop():
    pid = running()
    if pid is None:
        say("Nothing runs that make run WATCH=1 left.")
        return 0
    os.kill(pid, signal.SIGTERM)
    eventually("its end", lambda: running() is None)
    print(LOG.read_text().rstrip())
    return 0 if " 0 left; " in LOG.read_text() else 1


if __name__ == "__main__":
    WAYS = {(): main, ("--watch",): watch, ("--stop",): stop}
    if tuple(sys.argv[1:]) not in WAYS:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        command = "make stop" if "--stop" in sys.argv else "make run"
        sys.exit(f"{command}: Postfix's and Dovecot's masters need root: sudo {command}")
    sys.exit(WAYS[tuple(sys.argv[1:])]())
