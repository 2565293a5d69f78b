"""The mail half: a private Postfix, three nodes with their relays, and next hops."""

import imaplib
import re
import smtplib
import subprocess
import threading
import time
from pathlib import Path

from telling import Failed, say, title
from support.stack import SinkShape, Stack, lanes, oracle, probe, resp
from support.stack.generator import Generator
from support.stack.ledger import Ledger, percentile
from support.waiting import DidNotHappen, eventually

MAILS = 300
HELD = 6  # three mails, each on two nodes
DEAD_AFTER = 8  # seconds; 15 by default


def run_text(*words):
    """A command's output, or nothing where it is not there."""
    try:
        return subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False
        ).stdout.decode()
    except OSError:
        return ""


def command(stack, *words):
    """`dovelane WORDS`, as an admin calls it on a host of the group. Its status."""
    conf = next(
        service.note["conf"]
        for service in stack.services.values()
        if service.name.startswith("relay-")
    )
    return subprocess.run(
        [stack.shape.build / "ctl" / "dovelane", "-c", conf, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    ).returncode


def by_hand(stack, ledger, sender, recipient, subject, name):
    """One mail as a client sends it; prints Postfix's answer."""
    host, port = stack.smtp.split(":")
    text = (
        f"From: <{sender}>\r\nTo: <{recipient}>\r\nSubject: {subject}\r\nX-Oracle-Id:"
        f" {name}\r\n\r\n{subject}.\r\n"
    )
    with smtplib.SMTP(host, int(port), timeout=60) as client:
        client.ehlo("client.example")
        client.mail(sender)
        client.rcpt(recipient)
        began = time.time_ns()
        code, answer = client.data(text)
        now = time.time_ns()
    say(f"{sender} → {recipient:<24} {code} {answer.decode()}   ({(now - began) / 1e6:.1f} ms)")
    if code != 250:
        raise Failed(f"{name} was answered {code}")
    pair = ledger.pair(name, recipient)
    pair.promises, pair.promised, pair.waited = 1, now, now - began
    pair.queue_ids.append(answer.decode().split()[-1])
    ledger.mails += 1


def show_lanes(stack):
    """What each living node holds, lane by lane. Returns entries per node."""
    held = {}
    for node, address in stack.nodes.items():
        if not stack[f"redis-{node}"].alive():
            say(f"node {node}: dead")
            continue
        with resp.Connection(address) as connection:
            found = lanes.names(connection)
        held[node] = sum(count for count, _ in found.values())
        say(
            f"node {node} holds {held[node]} mail{'s' if held[node] != 1 else ''}:"
            if found
            else f"node {node} holds nothing"
        )
        for lane, (count, size) in sorted(found.items()):
            say(f"    {lane.removeprefix(lanes.PREFIX):<44} LANE.LEN {count:>4}   {size:>7} bytes")
    return held


def disk_queue(stack):
    """Entries in Postfix's disk queue."""
    text = run_text("postqueue", "-c", stack["postfix"].note["config_directory"], "-j")
    return len(text.splitlines())


def in_lanes(stack):
    """Entries of all living nodes together."""
    return sum(
        lanes.length(address)
        for node, address in stack.nodes.items()
        if stack[f"redis-{node}"].alive()
    )


def read_by_imap(stack, user, name):
    """The header lines that tell the way, as an IMAP client sees them."""
    host, port = stack["dovecot"].note["imap"].split(":")
    client = imaplib.IMAP4(host, int(port), timeout=30)
    try:
        client.login(user, stack["dovecot"].note["password"])
        client.select("INBOX", readonly=True)
        found = client.search(None, "HEADER", "X-Oracle-Id", name)[1][0].split()
        if len(found) != 1:
            raise Failed(f"{user} has {len(found)} copies of {name}")
        return client.fetch(found[0], "(BODY.PEEK[])")[1][0][1].decode()
    finally:
        client.logout()


def act_hold(stack, ledger):
    title("1. Mail is held for a moment (dovelane hold --add --sender '*'), to show where it is")
    if command(stack, "hold", "--add", "--sender", "*"):
        raise Failed("dovelane hold --add failed")
    by_hand(stack, ledger, "alice@client.example", "bob@example.org", "Lunch at noon", "demo-1")
    by_hand(
        stack,
        ledger,
        "alice@client.example",
        "carol@example.org",
        "Minutes of the meeting",
        "demo-2",
    )
    by_hand(stack, ledger, "shop@client.example", "orders@next.example", "Order 4711", "demo-3")
    held = show_lanes(stack)
    say(f"Postfix's disk queue: {disk_queue(stack)} mails")
    if sum(held.values()) != HELD:
        raise Failed("two nodes should hold each of the three mails")
    say(
        "A lane's name says where its mail goes and who has it: mx1 delivers it, mx2 does if mx1"
        " dies."
    )
    if command(stack, "hold", "--remove", "1"):
        raise Failed("dovelane hold --remove failed")
    milter = Path(stack["milter"].log)
    eventually(
        "the milter holds no more mail",
        lambda: re.findall(
            r"standing rules of `dovelane hold` changed", milter.read_text(errors="replace")
        )[1:],
    )


class Watch:
    """Looks at the nodes while mail flows: the most entries seen on each at one time."""

    def __init__(self, stack):
        self.stack, self.most, self.ended = (
            stack,
            {node: 0 for node in stack.nodes},
            threading.Event(),
        )
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        connections = {node: resp.Connection(address) for node, address in self.stack.nodes.items()}
        while not self.ended.wait(0.01):
            for node, connection in connections.items():
                count = sum(entries for entries, _ in lanes.names(connection).values())
                self.most[node] = max(self.most[node], count)
        for connection in connections.values():
            connection.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def act_many(stack, ledger):
    title(f"2. Meanwhile: {MAILS} mails, 10 sessions, to Dovecot and to two SMTP servers")
    with Watch(stack) as watch:
        more = Generator(
            smtp=stack.smtp,
            mails=MAILS,
            sessions=10,
            recipients=(1, 3),
            users=8,
            size=(500, 20000),
            domains=["example.org", "next.example", "sink.example"],
        ).run()
        eventually("only what is held is in lanes", lambda: in_lanes(stack) == HELD)
    figures = more.summary()
    ledger.merge(more)
    say(
        f"in        {figures['mails']} mails for {figures['promised']} recipients, all answered"
        f" 250, {figures['mails_per_second']:.0f} mails/s"
    )
    say(
        f"250 after {figures['dot_to_250_ms']['p50']:.1f} ms p50,"
        f" {figures['dot_to_250_ms']['max']:.1f} ms max: both copies are stored by then"
    )
    say(
        "copies    "
        + ", ".join(
            f"up to {most} mails at one time on {node}" for node, most in watch.most.items()
        )
    )
    oracle.wait_delivered(stack, without_sink(more))
    times = oracle.delivery_times(stack, more)
    say(
        f"end to end (final dot to having it at the next SMTP server): {percentile(times, 50):.1f}"
        f" ms p50, {times[-1]:.1f} ms max"
    )


def act_loss(stack, ledger):
    title("3. Node mx1 dies with all it holds (its Redis and its relay: SIGKILL); nobody is told")
    stack.kill("mx1")
    began = time.monotonic()
    command(stack, "release", "--all")  # its status is 1: mx1 does not answer
    eventually("lanes of the others empty", lambda: in_lanes(stack) == 0, 120)
    eventually("bob's mail", lambda: oracle.in_mailboxes(stack)["demo-1", "bob@example.org"])
    say(
        "The mail of step 1 was released, and mx2 delivers its copies after"
        f" {time.monotonic() - began:.0f} s (dead_after is {DEAD_AFTER} s here, 15 s by default):"
    )
    log = "".join(
        Path(stack[f"relay-{node}"].log).read_text(errors="replace") for node in ("mx2", "mx3")
    ).splitlines()
    lines = [line for line in log if "why=takeover" in line]
    for line in [line for line in log if "mx1 is dead" in line][:1]:
        say(f"    | {line.partition('warning: ')[2]}")
    for line in lines:
        say(f"    | {', '.join(re.findall(r'to=<[^>]*>|status=[a-z]+|why=[a-z-]+', line))}")
    if len(lines) != 3:
        raise Failed("mx2 should have taken over three mails")
    say("bob reads his mail by IMAP:")
    head = read_by_imap(stack, "bob@example.org", "demo-1").partition("\r\n\r\n")[0]
    for line in re.sub(r"\r\n[ \t]+", " ", head).split("\r\n"):
        if line.startswith(("Received: from client", "From:", "Subject:")):
            say(f"    | {line}")


def act_go_on(stack, ledger):
    title("4. New mail goes on, to the two that are left; then mx1 comes back, empty")
    by_hand(stack, ledger, "alice@client.example", "bob@example.org", "Still with us", "demo-4")
    more = Generator(
        smtp=stack.smtp, mails=20, sessions=4, domains=["example.org", "next.example"]
    ).run()
    ledger.merge(more)
    log = Path(stack["milter"].log).read_text(errors="replace")
    say(
        f"{more.summary()['mails']} more mails answered 250,"
        f" {more.summary()['dot_to_250_ms']['p50']:.1f} ms p50"
    )
    line = [line for line in log.splitlines() if "action=" in line]
    say(f"the milter's last word: {line[-1][line[-1].find('action='):]}")
    stack.start("mx1")
    began = time.monotonic()
    eventually("mx1 alive again", lambda: command(stack, "nodes") == 0, 120)
    say(
        "mx1 was compared with the others, and is whole and alive after"
        f" {time.monotonic() - began:.0f} s"
    )


def without_sink(ledger):
    """The pairs whose next hop keeps ids; smtp-sink only counts."""
    part = Ledger()
    part.pairs = {key: pair for key, pair in ledger.known() if not key[1].endswith("@sink.example")}
    return part


def sink_mails(stack):
    """Mails that smtp-sink counted."""
    found = re.findall(r"mesg=(\d+)", Path(stack["sink-plain"].log).read_text(errors="replace"))
    return int(found[-1]) if found else 0


def judge(stack, ledger):
    """A row of the closing table: sent, arrived, lost, twice; what is wrong is raised."""
    wanted = len(
        {mail for mail, recipient in ledger.promised if recipient.endswith("@sink.example")}
    )
    try:
        eventually("smtp-sink's count", lambda: sink_mails(stack) >= wanted)
    except DidNotHappen:
        pass
    verdict = oracle.wait_delivered(stack, without_sink(ledger))
    counted = sink_mails(stack)
    if not verdict.clean or verdict.waiting or verdict.returned:
        raise Failed(verdict.report())
    if counted != wanted:
        raise Failed(f"smtp-sink counted {counted} mails of {wanted}")
    return [
        (
            "recipients of mail, each told by its id",
            len(verdict.promised),
            len(verdict.delivered),
            len(verdict.lost),
            len(verdict.duplicates),
        ),
        ("mails at smtp-sink, which only counts", wanted, counted, wanted - counted, 0),
    ]


class Mail:
    """The half that begins at Postfix and ends at the next hop."""

    def __init__(self):
        self.stack = Stack(
            postfix="divert",
            nodes=3,
            takeover="automatic",
            dovecot=True,
            sinks=[SinkShape("next", ours=True), SinkShape("plain")],
            maps={"example.org": "dovecot", "next.example": "next", "sink.example": "plain"},
            settings={"dead_after": f"{DEAD_AFTER}s"},
        )
        self.ledger = Ledger()

    def up(self):
        stack = self.stack
        stack.up()
        eventually("all nodes alive and whole", lambda: command(stack, "nodes") == 0)
        eventually(
            "nodes that the milter finds able to hold mail",
            lambda: probe.metric(f"unix:{stack['milter'].note['metrics']}", "store_able") == 1,
        )

    def play(self):
        for act in (act_hold, act_many, act_loss, act_go_on):
            act(self.stack, self.ledger)

    def addresses(self):
        """What a visitor can try, as long as it runs."""
        stack = self.stack
        conf = next(
            service.note["conf"]
            for service in stack.services.values()
            if service.name.startswith("relay-")
        )
        return [
            ("SMTP, Postfix", stack.smtp, "for anybody@example.org, @next.example, @sink.example"),
            (
                "IMAP, Dovecot",
                stack["dovecot"].note["imap"],
                f"anybody@example.org, password {stack['dovecot'].note['password']}",
            ),
            ("nodes", ", ".join(stack.nodes.values()), "redis-cli -p PORT LANE.BEAT"),
            (
                "the gateway",
                f"{stack.shape.build}/ctl/dovelane -c {conf} top",
                "nodes, show, trace ...",
            ),
        ]
