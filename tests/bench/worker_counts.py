"""What a change costs dovelane-worker in instructions: of a user who is open, and of one whom it
opens for it and closes again, as where more users change by turns than there are workers.

One site without peers; the worker runs under callgrind. Each user's INBOX gets mails by IMAP, one
at a time, and the worker is asked to look at it. The difference of a long and a short run is what
a change costs.
"""
import contextlib
import imaplib
import tempfile
from pathlib import Path

from report import BUILD
from replicas import mail
from support.frames import CLOSE
from support.stack.dovecot import PASSWORD
from support.waiting import eventually
from support.worker_world import World

WORKER = BUILD / "dovecot-plugin" / "worker" / "dovelane-worker"
USERS, SIZE = 10, 2048
SCRIPT = """#!/bin/sh
export GDB=1
exec valgrind --tool=callgrind -q --callgrind-out-file={out} {worker} "$@"
"""


@contextlib.contextmanager
def under_callgrind(directory):
    """(site, the file in which its worker leaves its counts when it ends)."""
    base = Path(directory, "d")
    base.mkdir(mode=0o711)
    out, script = Path(directory, "out"), base / "worker"
    out.touch()
    out.chmod(0o666)        # the worker gives its rights up before callgrind writes
    script.write_text(SCRIPT.format(out=out, worker=WORKER))
    script.chmod(0o755)
    world = World(base, ["sdbox"], script)
    try:
        yield world[1], out
    finally:
        world.stop()


def append(site, user, number):
    box = imaplib.IMAP4("127.0.0.1", site.port)
    box.login(user, PASSWORD)
    box.append("INBOX", None, None, mail(f"{user}-{number}", SIZE))
    box.logout()


def look(site, user):
    """The worker looks at his INBOX; who was open is closed before."""
    if site.opened and site.user != user:
        site.work(CLOSE)
    if not site.opened:
        site.open(user)
    site.ingest(("", "INBOX"))


def work(site, by_turns, rounds):
    """All of one run's."""
    users = [f"u{n}@example.org" for n in range(USERS if by_turns else 1)]
    for number in range(rounds + 1):
        for user in users if by_turns or number == 0 else users * USERS:
            append(site, user, number)
            look(site, user)
    site.work(CLOSE)
    site.disconnect()


def one_run(place, by_turns, rounds, total):
    """Instructions of a worker, as total() reads them from its file."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place) as directory:
        Path(directory).chmod(0o777)
        with under_callgrind(directory) as (site, out):
            work(site, by_turns, rounds)
            eventually("the worker's counts", lambda: "totals:" in out.read_text())
            return total(out)


def a_change(place, by_turns, few, many, total):
    counts = [one_run(place, by_turns, rounds, total) for rounds in (few, many)]
    return (counts[1] - counts[0]) / (USERS * (many - few))
