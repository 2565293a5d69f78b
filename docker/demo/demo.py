#!/usr/bin/python3
"""Shows both halves of dovelane in the containers of docker-compose.yml.

    demo              the whole: 120 mails go in, a node dies, two sites differ and agree
    demo kill NODE    mx1, mx2 or mx3 dies with mail in its lanes, another takes over, it comes back
    demo fill         more mail than the nodes can hold
    demo load         5000 mails as fast as they go in
    demo cut          cuts the link between the sites; it stays cut
    demo heal         mends it
    demo conflict     both sites change the same, while the link is cut
    demo lag          how fast a change is at the other site, also on a slow link
    demo log [NAME]   what the programs of a container said (all: the last lines of each)

Each says what it does, what should happen, and what was found. Status 0: it was so. 1: it was not.
"""

import contextlib
import fcntl
import os
import signal
import smtplib
import sys

import mail
import sites
import world
from support.stack import StackError, resp
from support.stack.imap import ImapError, Lost
from support.waiting import DidNotHappen
from telling import Failed, say, table, title

WRONG = (
    Failed,
    DidNotHappen,
    StackError,
    AssertionError,
    ImapError,
    Lost,
    smtplib.SMTPException,
    OSError,
    resp.RedisError,
)


def ready():
    """What a killed command left dead, held or late is made whole; healing is `heal`'s."""
    for node in world.NODES:
        world.stage(node, "start")
    world.nodes_ready()
    mail.release(mail.SENDER.format(run="*"))
    if any(state["ms"] for state in world.link("state").values()):
        world.link("delay", ms=0)


@contextlib.contextmanager
def alone():
    """One command at a time: two that each kill a node kill more than two copies survive."""
    with (world.LOGS / "demo.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another demo command is at work. This one waits for its end.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def linked():
    if world.is_cut():
        raise Failed("the link between the sites is cut: docker compose run --rm demo heal")


def whole():
    print("Dovelane: Postfix with three nodes, and two Dovecot sites (2.4 on Debian 13, 2.3 on 12)")
    linked()
    ledger = mail.Ledger()
    mail.deliver(ledger)
    mail.kill(ledger, "mx1")
    sites.lag()
    counts = sites.conflict()
    title("Did everything arrive?")
    shown = world.equal(mail.BOB)
    row = ledger.row("mails, each told by its id")
    table(
        [
            ("", "sent", "arrived", "lost", "twice"),
            row,
            ("one user's mails at two sites, both equal", *counts),
        ]
    )
    say(f"bob has {shown.count()} mails, the same at both sites.")
    if any(row[3:] + counts[2:]):
        raise Failed("mails are lost, or there twice")
    title("To click, as long as this runs")
    table(
        [
            (
                "both webmails",
                f"http://{os.environ['WEBMAIL']}/",
                "log in as bob, any password, on both sides",
            ),
            (
                "Prometheus",
                f"http://{os.environ['PROMETHEUS']}/consoles/dovelane.html",
                "nodes, sites, alerts",
            ),
            ("SMTP", os.environ["SMTP"], "for anybody@example.org"),
            ("IMAP", os.environ["IMAP"], "anybody@example.org, any password"),
            (
                "more",
                "docker compose run --rm demo help",
                "kill, cut, heal, fill, conflict, lag, load",
            ),
        ]
    )
    title("All mail arrived, each once, and both sites are equal.")


def with_ledger(act, *words):
    ledger = mail.Ledger()
    act(ledger, *words)
    if ledger.promised:
        ledger.judge("this run's mails")


def kill(node="mx1"):
    if node not in world.NODES:
        raise Failed(f"{node} is not a node; these are: {', '.join(world.NODES)}")
    with_ledger(mail.kill, node)


def fill():
    with_ledger(mail.fill)


def load():
    with_ledger(mail.load)


def conflict():
    linked()
    sites.conflict()


def lag():
    linked()
    sites.lag()


def log(name=None):
    found = dict(world.tails(6 if name is None else 1_000_000))
    if name is not None and name not in found:
        raise Failed(f"no log of {name}: there are {', '.join(found)}")
    for container, lines in found.items():
        if name in (None, container):
            title(container)
            for line in lines:
                say(line)


def explain():
    print(__doc__)


# Of these several may run at a time, also where a container is down.
LOOKS = {"log", "help"}
COMMANDS = {
    "kill": kill,
    "fill": fill,
    "load": load,
    "cut": sites.cut,
    "heal": sites.heal,
    "conflict": conflict,
    "lag": lag,
    "log": log,
    "help": explain,
}


def main(words):
    name, arguments = (words[0], words[1:]) if words else ("", [])
    act = COMMANDS.get(name, whole if not words else None)
    if act is None or len(arguments) > (1 if name in ("kill", "log") else 0):
        print(__doc__, file=sys.stderr)
        return 1
    try:
        with contextlib.ExitStack() as stack:
            if name not in LOOKS:
                stack.enter_context(alone())
                ready()
            act(*arguments)
    except KeyboardInterrupt:
        title("Interrupted.")
        return 130
    except WRONG as error:
        title(f"It went wrong: {error}")
        if name not in LOOKS:
            for container in world.silent():
                say(f"{container} does not answer: docker compose up -d {container}")
            say("docker compose run --rm demo log NAME: what the programs of a container said.")
        return 1
    if name and name not in LOOKS:
        title("It is as it should be.")
    return 0


if __name__ == "__main__":
    # The first process of a container is not ended by signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
