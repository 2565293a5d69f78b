"""The commands of the mail half: kill, fill, load; and `deliver`, with which the demo begins."""

import fnmatch
import re
import secrets
import smtplib
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

import world
from support.waiting import eventually
from telling import Failed, say, table, title

SENDER = "demo-{run}@client.example"
BOB, ORDERS = "bob@example.org", "orders@sink.example"
# Recipient, how many mails, what it shows.
PLAN = [
    (BOB, 50, "diverted, LMTP to Dovecot at site-a"),
    (ORDERS, 50, "diverted, SMTP to the sink"),
    ("archive@slow.example", 10, "diverted, SMTP to the sink, which answers 2 s late"),
    ("paper@queue.example", 10, "not in divert: Postfix's own disk queue"),
]
# More than two nodes of 96 MB hold.
FILL_MAILS, FILL_SIZE = 130, 1_500_000
LOAD_MAILS, LOAD_SIZE, LOAD_SESSIONS = 5000, 4000, 20


@dataclass
class Ledger:
    """What Postfix promised by its 250, and where it has to arrive."""

    run: str = field(default_factory=lambda: secrets.token_hex(4))
    promised: list = field(default_factory=list)  # (recipient, id)
    sink: world.Sink = field(default_factory=world.Sink)

    @property
    def sender(self):
        return SENDER.format(run=self.run)

    def send(self, recipient, mails, size=0):
        """Each a message of its own; milliseconds until Postfix's 250, in order."""
        took = []
        with smtplib.SMTP("postfix", 25, timeout=120) as client:
            client.ehlo("demo.client.example")
            for _ in range(mails):
                name = f"{self.run}.{len(self.promised) + 1}"
                text = (
                    f"From: <{self.sender}>\r\nTo: <{recipient}>\r\nSubject: Mail {name}\r\n"
                    f"{world.HEADER}: {name}\r\nMessage-Id: <{name}@client.example>\r\n\r\n"
                    f"This is mail {name}.\r\n" + ("x" * 76 + "\r\n") * (size // 78)
                )
                client.mail(self.sender)
                client.rcpt(recipient)
                began = time.monotonic()
                code, answer = client.data(text)
                if code != 250:
                    raise Failed(f"{recipient}: Postfix answered {code} {answer.decode()}")
                took.append((time.monotonic() - began) * 1000)
                self.promised.append((recipient, name))
        return sorted(took)

    def arrived(self):
        found = [(to, name) for to, name in self.sink.look() if name.startswith(self.run)]
        for user in sorted({to for to, _ in self.promised if to.endswith("@example.org")}):
            found += [(user, name) for name in world.in_mailbox(world.A, user, self.run + ".")]
        return found

    def wait(self, seconds=180):
        """Until all that was promised arrived."""
        wanted = set(self.promised)
        eventually(
            lambda: f"{len(wanted - set(self.arrived()))} of {len(wanted)} mails are missing",
            lambda: wanted <= set(self.arrived()),
            seconds,
            pause=0.3,
        )

    def row(self, what):
        """sent, arrived, lost, twice."""
        found, wanted = Counter(self.arrived()), set(self.promised)
        return (
            what,
            len(wanted),
            len(wanted & set(found)),
            len(wanted - set(found)),
            sum(count - 1 for count in found.values()),
        )

    def judge(self, what):
        """The closing table; what is wrong is raised."""
        row = self.row(what)
        table([("", "sent", "arrived", "lost", "twice"), row])
        if row[3] or row[4]:
            raise Failed(f"{row[3]} mails are lost, {row[4]} are there twice")

    def entered(self, log):
        """How the milter let this run's mails in: lanes, Postfix's disk queue."""
        lines = log.lines(
            rf"from=<{re.escape(self.sender)}>.* action=|action=.*from=<{re.escape(self.sender)}>"
        )
        actions = Counter(found[1] for line in lines if (found := re.search(r"action=(\w+)", line)))
        return actions["lane"], sum(actions.values()) - actions["lane"]


def release(sender):
    """Ends hold rules of the sender (a pattern, as hold and release know it), and frees its mail.

    (The status is 1 where a node does not answer.)
    """
    _, said = world.command("hold", "--list")
    for line in reversed(said.splitlines()):  # a removal renumbers what is below
        number, fits = re.search(r"\d+", line), re.search(r"demo-\w+@client\.example", line)
        if number and fits and fnmatch.fnmatch(fits[0], sender):
            world.command("hold", "--remove", number[0])
    world.command("release", "--sender", sender, "--yes")


class Held:
    """This run's mail waits in its lanes, by a rule of `dovelane hold`, to be looked at."""

    def __init__(self, ledger):
        self.sender = ledger.sender

    def __enter__(self):
        status, said = world.command("hold", "--add", "--sender", self.sender)
        if status:
            raise Failed(f"dovelane hold --add: {said}")
        return self

    def release(self):
        release(self.sender)

    def __exit__(self, *_):
        self.release()


def show_nodes(nodes=world.NODES):
    rows = [("node", "lane", "mails", "bytes")]
    for node in nodes:
        if node not in world.living():
            rows.append((node, "dead", "", ""))
            continue
        found = world.held(node)
        rows += [
            (node, lane.removeprefix("dovelane:"), *found[lane]) for lane in sorted(found)
        ] or [(node, "holds nothing", "", "")]
    table(rows)


def deliver(ledger):
    total = sum(mails for _, mails, _ in PLAN)
    title(
        f"{total} mails go in at Postfix. Each 250 says that two nodes have it, or the disk queue"
    )
    log = world.Log("postfix")
    for recipient, mails, what in PLAN:
        took = ledger.send(recipient, mails)
        say(f"{mails:>3} to {recipient:<21} {what}; 250 after {took[mails // 2]:.1f} ms (median)")
    say("Right after the last one, these wait for their next hop:")
    show_nodes()
    began = time.monotonic()
    ledger.wait()
    # The slow sink has a mail before it says so; who is killed between both delivers it twice.
    eventually("all lanes empty", lambda: not world.in_lanes())
    lanes, queue = ledger.entered(log)
    say(
        f"All arrived {time.monotonic() - began:.1f} s later. {lanes} were in lanes,"
        f" {queue} in the disk queue."
    )


def kill(ledger, node):
    title(f"Node {node} is killed with mail in its lanes: SIGKILL to its Redis and its relay")
    say(
        "Should: the mail is on another node, which delivers it; new mail goes on; nothing is lost."
    )
    log = world.Log("postfix", *world.NODES)
    try:
        with Held(ledger) as hold:
            for recipient in (BOB, ORDERS):
                ledger.send(recipient, 10)
            say("20 mails, held for a moment (dovelane hold) to show where they are:")
            show_nodes()
            before = sum(count for count, _ in world.held(node).values())
            world.stage(node, "kill")
            began = time.monotonic()
            say(f"{node} is dead, and {before} mails in its memory are gone.")
            hold.release()
        for recipient in (BOB, ORDERS):
            ledger.send(recipient, 10)
        lanes, queue = ledger.entered(log)
        say(
            f"20 more mails were answered 250 meanwhile. Of all 40, {lanes} went to lanes,"
            f" {queue} to the disk queue."
        )
        ledger.wait()
        taken = log.lines("why=takeover")
        say(
            f"All 40 arrived within {time.monotonic() - began:.1f} s of its death."
            " (dead_after is 8 s here.)"
        )
        say(
            f"{len(taken)} came because another node took over:"
            if taken
            else "Another node was the first owner of all; this one had the second copies."
        )
        for line in log.lines(f"{node} is dead")[:1] + taken[:1]:
            say(f"    | {line.partition(']: ')[2][:110]}")
    finally:
        world.stage(node, "start")
    began = time.monotonic()
    world.nodes_ready()
    say(
        f"{node} is back: empty, then compared with the others, and whole after"
        f" {time.monotonic() - began:.1f} s."
    )
    if queue:
        raise Failed(f"{queue} mails took the disk queue, and two nodes were left to hold them")


def fill(ledger):
    megabytes = FILL_MAILS * FILL_SIZE / 1e6
    title(f"The nodes are filled: {megabytes:.0f} MB of held mail, each mail on two nodes of 96 MB")
    say(
        "Should: what the nodes cannot hold goes to Postfix's disk queue. No client is refused,"
        " nothing is lost."
    )
    log = world.Log("postfix")
    with Held(ledger):
        took = ledger.send(BOB, FILL_MAILS, FILL_SIZE)
        lanes, queue = ledger.entered(log)
        say(
            f"{FILL_MAILS} mails were answered 250, {took[FILL_MAILS // 2]:.0f} ms (median),"
            f" {took[-1]:.0f} ms (the slowest):"
            f" {lanes} are in lanes, {queue} took the disk queue."
        )
        for line in log.lines(r"action=queue")[:1]:
            say(f"    | ... {line[line.find('action='):][:110]}")
        show_nodes()
    began = time.monotonic()
    ledger.wait(300)
    say(f"Released. All arrived within {time.monotonic() - began:.1f} s.")
    if not queue:
        raise Failed("the nodes were not full")


def load(ledger):
    title(
        f"Postfix's smtp-source sends {LOAD_MAILS} mails of {LOAD_SIZE} bytes,"
        f" {LOAD_SESSIONS} sessions at a time"
    )
    say("Should: all are answered 250, and each arrives once at the sink.")
    user = f"load-{ledger.run}-"
    began = time.monotonic()
    done = subprocess.run(
        [
            "smtp-source",
            "-s",
            str(LOAD_SESSIONS),
            "-m",
            str(LOAD_MAILS),
            "-l",
            str(LOAD_SIZE),
            "-N",
            "-f",
            ledger.sender,
            "-t",
            f"{user}@sink.example",
            "postfix:25",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise Failed(f"smtp-source: {done.stderr.strip()}")
    say(f"All were answered 250: {LOAD_MAILS / seconds:.0f} mails a second.")

    def arrived():
        return [to for to, _ in ledger.sink.look() if to.startswith(user)]

    eventually(
        lambda: f"{len(arrived())} of {LOAD_MAILS} arrived",
        lambda: len(set(arrived())) >= LOAD_MAILS,
        300,
        pause=0.5,
    )
    say(f"The last one arrived {time.monotonic() - began:.1f} s after the first was sent.")
    found = arrived()
    lost, twice = LOAD_MAILS - len(set(found)), len(found) - len(set(found))
    table(
        [
            ("", "sent", "arrived", "lost", "twice"),
            ("smtp-source", LOAD_MAILS, len(set(found)), lost, twice),
        ]
    )
    if lost or twice:
        raise Failed(f"{lost} mails are lost, {twice} are there twice")
