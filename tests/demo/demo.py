#!/usr/bin/python3
"""Shows what dovelane does: real mail through a private Postfix, three nodes, their relays and a Dovecot, on loopback.

Needs root (Postfix's and Dovecot's masters do), the packages of ./setup run, and a build. Everything stands under one
temporary directory and is gone at the end, which is checked. Exit code 0 only if every mail arrived.
"""
import imaplib
import os
import re
import signal
import smtplib
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stack import (SinkShape, Stack, StackError, dovecot, lanes, oracle, ports, probe,  # noqa: E402
                           process, resp)
from support.stack.generator import Generator  # noqa: E402
from support.stack.ledger import Ledger, percentile  # noqa: E402

MAILS = 300
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """Something did not arrive as it should."""


def title(text):
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}", flush=True)


def say(text=""):
    print(f"   {text}" if text else "", flush=True)


def until(condition, what, seconds=30):
    """Waits for something that must become true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def run_text(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False).stdout.decode()
    except OSError:
        return ""


def versions():
    redis = re.search(r"v=(\S+)", run_text("redis-server", "--version"))
    return (run_text("postconf", "-dh", "mail_version").strip(), ".".join(map(str, dovecot.version())),
            redis[1] if redis else "?")


def command(stack, *words):
    """`dovelane WORDS`, as an admin calls it on a host of the group. Its status."""
    conf = next(service.note["conf"] for service in stack.services.values() if service.name.startswith("relay-"))
    return subprocess.run([stack.shape.build / "ctl" / "dovelane", "-c", conf, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=60, check=False).returncode


def by_hand(stack, ledger, sender, recipient, subject, name):
    """One mail as a client sends it; prints Postfix's answer."""
    host, port = stack.smtp.split(":")
    text = (f"From: <{sender}>\r\nTo: <{recipient}>\r\nSubject: {subject}\r\nX-Oracle-Id: {name}\r\n\r\n"
            f"{subject}.\r\n")
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
        say(f"node {node} holds {held[node]} mail{'s' if held[node] != 1 else ''}:" if found else f"node {node} holds nothing")
        for lane, (count, size) in sorted(found.items()):
            say(f"    {lane.removeprefix(lanes.PREFIX):<44} LANE.LEN {count:>4}   {size:>7} bytes")
    return held


def disk_queue(stack):
    """Entries in Postfix's disk queue."""
    text = run_text("postqueue", "-c", stack["postfix"].note["config_directory"], "-j")
    return len(text.splitlines())


def lanes_empty(stack):
    return all(lanes.length(address) == 0 for node, address in stack.nodes.items() if stack[f"redis-{node}"].alive())


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
    title("1. Mail that an admin holds (dovelane hold --add --sender '*') stays in memory, on two of the nodes")
    if command(stack, "hold", "--add", "--sender", "*"):
        raise Failed("dovelane hold --add failed")
    by_hand(stack, ledger, "alice@client.example", "bob@example.org", "Lunch at noon", "demo-1")
    by_hand(stack, ledger, "alice@client.example", "carol@example.org", "Minutes of the meeting", "demo-2")
    by_hand(stack, ledger, "shop@client.example", "orders@next.example", "Order 4711", "demo-3")
    say()
    held = show_lanes(stack)
    say(f"Postfix's disk queue: {disk_queue(stack)} mails")
    if sum(held.values()) != 6:
        raise Failed("two nodes should hold each of the three mails")
    say()
    say("A lane's name says where its mail goes and who owns it: the first owner delivers, the second would if that were lost.")


def act_deliver(stack, ledger):
    title("2. It is released (dovelane release --all), and goes out")
    if command(stack, "hold", "--remove", "1") or command(stack, "release", "--all"):
        raise Failed("dovelane release failed")
    until(lambda: lanes_empty(stack), "lanes empty")
    until(lambda: oracle.in_mailboxes(stack)["demo-1", "bob@example.org"], "bob's mail")
    show_lanes(stack)
    say()
    say("bob reads his mail by IMAP:")
    head, _, body = read_by_imap(stack, "bob@example.org", "demo-1").partition("\r\n\r\n")
    keep = False
    for line in head.split("\r\n"):
        keep = line.startswith(("Received:", "Subject:", "From:", "Return-Path:", "Delivered-To:")) or (keep and line[:1] in " \t")
        if keep:
            say(f"    | {line}")
    say("    |")
    say(f"    | {body.strip()}")


class Watch:
    """Looks at the nodes while mail flows: the most entries seen on each at one time."""

    def __init__(self, stack):
        self.stack, self.most, self.ended = stack, {node: 0 for node in stack.nodes}, threading.Event()
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
    title(f"3. {MAILS} mails, 10 sessions, to Dovecot and to two SMTP servers")
    with Watch(stack) as watch:
        more = Generator(smtp=stack.smtp, mails=MAILS, sessions=10, recipients=(1, 3), users=8, size=(500, 20000),
                         domains=["example.org", "next.example", "sink.example"]).run()
        until(lambda: lanes_empty(stack), "lanes empty")
    figures = more.summary()
    ledger.merge(more)
    say(f"in        {figures['mails']} mails for {figures['promised']} recipients, all answered 250, "
        f"{figures['mails_per_second']:.0f} mails/s")
    say(f"250 after {figures['dot_to_250_ms']['p50']:.1f} ms p50, {figures['dot_to_250_ms']['max']:.1f} ms max: "
        f"both copies are stored by then")
    say("copies    " + ", ".join(f"up to {most} mails at one time on {node}" for node, most in watch.most.items()))
    oracle.wait_delivered(stack, without_sink(more))
    times = oracle.delivery_times(stack, more)
    say(f"end to end (final dot to having it at the next SMTP server): {percentile(times, 50):.1f} ms p50, {times[-1]:.1f} ms max")


def act_loss(stack, ledger):
    title("4. Node mx1 is lost with all it holds")
    command(stack, "hold", "--add", "--sender", "*")
    for number in range(1, 6):
        by_hand(stack, ledger, "alice@client.example", f"u{number}@example.org", f"Before the loss {number}", f"demo-loss-{number}")
    command(stack, "hold", "--remove", "1")
    show_lanes(stack)
    stack.kill("mx1")
    command(stack, "release", "--all")  # its status is 1: mx1 does not answer
    say("mx1's Redis and its relay are killed (SIGKILL); nobody is told")
    began = time.monotonic()
    until(lambda: lanes_empty(stack), "lanes of the others empty", 120)
    say(f"{time.monotonic() - began:.0f} s later (dead_after is 15 s) the next owners have delivered what they held copies of:")
    log = "".join(Path(stack[f"relay-{node}"].log).read_text(errors="replace") for node in ("mx2", "mx3")).splitlines()
    lines = [line for line in log if "why=takeover" in line]
    for line in [line for line in log if "mx1 is dead" in line][:1]:
        say(f"    | {line.partition('warning: ')[2]}")
    for line in lines[:2]:
        parts = re.findall(r"\w+: to=<[^>]*>|status=\w+|why=[\w-]+|lane=[^,\s]+", line)
        say(f"    | {', '.join(parts)}")
    say(f"    | ... {len(lines)} such lines in all")
    if len(lines) != 5:
        raise Failed("mx2 and mx3 should have taken over five mails")


def act_go_on(stack, ledger):
    title("5. New mail goes on, to the two that are left; then mx1 comes back, empty")
    by_hand(stack, ledger, "alice@client.example", "bob@example.org", "Still with us", "demo-4")
    more = Generator(smtp=stack.smtp, mails=20, sessions=4, domains=["example.org", "next.example"]).run()
    ledger.merge(more)
    log = Path(stack["milter"].log).read_text(errors="replace")
    say(f"{more.summary()['mails']} more mails answered 250, {more.summary()['dot_to_250_ms']['p50']:.1f} ms p50")
    line = [line for line in log.splitlines() if "action=" in line]
    say(f"the milter's last word: {line[-1][line[-1].find('action='):]}")
    stack.start("mx1")
    began = time.monotonic()
    until(lambda: command(stack, "nodes") == 0, "mx1 alive again", 120)
    say(f"mx1 was compared with the others, and is whole and alive after {time.monotonic() - began:.0f} s")


def without_sink(ledger):
    """The pairs whose next hop keeps ids; smtp-sink only counts."""
    part = Ledger()
    part.pairs = {key: pair for key, pair in ledger.known() if not key[1].endswith("@sink.example")}
    return part


def sink_mails(stack):
    """Mails that smtp-sink counted."""
    found = re.findall(r"mesg=(\d+)", Path(stack["sink-plain"].log).read_text(errors="replace"))
    return int(found[-1]) if found else 0


def act_judge(stack, ledger):
    title("6. Did everything arrive?")
    wanted = len({mail for mail, recipient in ledger.promised if recipient.endswith("@sink.example")})
    try:
        until(lambda: sink_mails(stack) >= wanted, "smtp-sink's count", 15)
    except Failed:
        pass
    verdict = oracle.wait_delivered(stack, without_sink(ledger))
    counted = sink_mails(stack)
    say(f"answered 250: {len(ledger.promised)} recipients of {ledger.mails} mails")
    say(f"arrived:      {len(verdict.delivered)} of {len(verdict.promised)} in Dovecot's mailboxes and at the next server, each known "
        f"by its id;")
    say(f"              {counted} of {wanted} mails for the other {len(ledger.promised) - len(verdict.promised)} recipients at smtp-sink, "
        f"which only counts")
    say(f"lost:         {len(verdict.lost)}    duplicates: {len(verdict.duplicates)}    damaged: {len(verdict.damaged)}")
    for duplicate in verdict.duplicates:
        say(f"    {duplicate}")
    if not verdict.clean or verdict.waiting or verdict.returned:
        raise Failed(verdict.report())
    if counted != wanted:
        raise Failed(f"smtp-sink counted {counted} mails of {wanted}")


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


def clean_up(stack, before):
    """Ends everything; True when nothing is left."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    ran = len(set(stack.pids()) | {service.pid for service in stack.services.values() if service.pid})
    used = {int(port) for port in re.findall(r"127\.0\.0\.1\]?:(\d+)", str(stack.describe()))} if stack.mark else set()
    open_ports = {port for port in used if ports.listening(port)}
    sockets = ports.unix_sockets(stack.directory) if stack.directory else set()
    mark, directory = stack.mark, stack.directory
    stack.down()
    title("Cleaning up")
    left = {entry.pid for entry in process.marked(mark)} if mark else set()
    left |= set(children())
    after = ports.all_listening()
    left_sockets = {port for port in used if ports.listening(port)} | (ports.unix_sockets(directory) if directory else set())
    ours = f"{ran} processes ended, {len(left)} left; {len(open_ports)} TCP and {len(sockets)} UNIX sockets closed, " \
           f"{len(left_sockets)} left; directory {'still there' if directory and directory.exists() else 'gone'}"
    say(ours)
    foreign = "" if after == before else "  (other programs opened or closed some meanwhile)"
    say(f"listening sockets on this machine: {len(before)} before, {len(after)} after{foreign}")
    for remark in stack.remarks:
        say(f"note: {remark}")
    return not left and not left_sockets and not (directory and directory.exists())


def interrupted(number, _):
    """One interrupt is enough: a second one must not break the cleaning up."""
    for other in INTERRUPTS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def accept_interrupts():
    for number in INTERRUPTS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupted)


def play(stack, ledger):
    mta, imap, redis = versions()
    print(f"Dovelane demo: Postfix {mta}, Redis {redis} with lane.so, Dovecot {imap}, all private and on loopback")
    began = time.monotonic()
    stack.up()
    say(f"under {stack.directory}, started in {time.monotonic() - began:.1f} s")
    until(lambda: command(stack, "nodes") == 0, "all nodes alive and whole", 60)
    until(lambda: probe.metric(f"unix:{stack['milter'].note['metrics']}", "store_able") == 1, "nodes that the milter finds able to hold mail", 60)
    say(f"the nodes have heard each other, compared what they hold, and are alive after {time.monotonic() - began:.1f} s")
    say()
    say(f"client ─SMTP─▶ Postfix {stack.smtp} ─milter─┬▶ node mx1 ─relay─┬▶ Dovecot    LMTP {stack['dovecot'].note['lmtp']}")
    say(f"{'':>{len(stack.smtp)}}                                ├▶ node mx2         ├▶ next MTA   SMTP {stack['sink-next'].note['address']}")
    say(f"{'':>{len(stack.smtp)}}                                └▶ node mx3         └▶ smtp-sink  SMTP {stack['sink-plain'].note['address']}")
    for act in (act_hold, act_deliver, act_many, act_loss, act_go_on, act_judge):
        act(stack, ledger)


def main():
    process.become_subreaper()
    accept_interrupts()
    before = ports.all_listening()
    began = time.monotonic()
    error = None
    try:
        stack = Stack(postfix="divert", nodes=3, takeover="automatic", dovecot=True,
                      sinks=[SinkShape("next", ours=True), SinkShape("plain")],
                      maps={"example.org": "dovecot", "next.example": "next", "sink.example": "plain"})
        play(stack, Ledger())
    except (Failed, StackError, smtplib.SMTPException, OSError) as caught:
        error = caught
        if stack.mark:
            print(f"\n{stack.tails(8)}", file=sys.stderr)
    except KeyboardInterrupt:
        error = "interrupted"
    clean = clean_up(stack, before)
    if error is not None:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 130 if error == "interrupted" else 1
    if not clean:
        print("\nThe demo left something behind.", file=sys.stderr)
        return 1
    title(f"All mail arrived, nothing is left behind ({time.monotonic() - began:.0f} s).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
