"""Was a mail lost? Compares what was promised with where it is now.

promised   pairs (mail, recipient) that the client was answered 250 for            (Ledger)
waiting    pairs in a lane of a node that answers, or in Postfix's queue
returned   pairs whose non-delivery notice reached a sink, or is on its way there
delivered  pairs that a sink answered 250 for, or that lie in a Dovecot mailbox
lost       promised - waiting - returned - delivered

The order of looking matters while mail still moves: it moves from a lane to Postfix's queue to a sink, so the places are read
in this order, and a mail on its way is seen at least once.
"""
import json
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import dovecot, lanes, resp
from .pysink import Sink as PythonSink

TOKEN = re.compile(rb"[0-9A-Za-z][0-9A-Za-z-]{7,}")
ENTRY = re.compile(rb"\b[0-9a-f]{32}\b")
# What a log says about a delivery that may rightly be a second one: of one recipient, or (without to=) of the whole mail.
EXCUSE = re.compile(r"\bwhy=(?!first\b)[a-z-]+|may be sent more than once")
RECIPIENT = re.compile(r"\bto=<([^>]*)>")


@dataclass
class Duplicate:
    """A pair that was delivered more than once, and what the logs say about it."""
    mail: str
    recipient: str
    times: int
    allowed: int                # deliveries the client itself caused, by sending again what was not answered
                                # lines: those of the mail that speak of no recipient, or of this one
    lines: list = field(default_factory=list)

    @property
    def explained(self):
        return self.times <= self.allowed or any(EXCUSE.search(line) for line in self.lines)

    def __str__(self):
        head = f"{self.mail} to {self.recipient}: {self.times} times ({'explained' if self.explained else 'UNEXPLAINED'}" \
               f"{f', the client sent it {self.allowed} times' if self.allowed > 1 else ''})"
        return "\n".join([head] + ["    " + line for line in self.lines])


@dataclass
class Verdict:
    """The outcome. All members are of pairs (mail id, recipient)."""
    promised: set
    delivered: Counter
    waiting: dict               # pair to the places it was seen in
    returned: dict              # pair to status and reason
    lost: list
    duplicates: list
    damaged: list
    strange: list               # delivered, though never sent or refused with 5xx
    unreachable: list           # nodes that did not answer: what only they hold counts as lost

    @property
    def unexplained(self):
        return [entry for entry in self.duplicates if not entry.explained]

    @property
    def clean(self):
        """Nothing lost, damaged or strange, and each duplicate has its reason."""
        return not (self.lost or self.damaged or self.strange or self.unexplained)

    def summary(self):
        return {"promised": len(self.promised), "delivered": len(self.delivered), "waiting": len(self.waiting),
                "returned": len(self.returned), "lost": len(self.lost), "duplicates": len(self.duplicates),
                "unexplained": len(self.unexplained), "damaged": len(self.damaged), "strange": len(self.strange),
                "unreachable": self.unreachable}

    def report(self, most=10):
        """For a failing test."""
        lines = [", ".join(f"{name} {value}" for name, value in self.summary().items() if value != [])]
        for title, items in (("lost", self.lost), ("damaged", self.damaged), ("strange", self.strange)):
            lines += [f"{title}: {mail} to {recipient}" for mail, recipient in items[:most]]
        lines += [f"duplicate: {entry}" for entry in self.duplicates[:most]]
        return "\n".join(lines)

    def check(self):
        """Raises AssertionError with the report unless clean."""
        assert self.clean, self.report()
        return self


class Deliveries:
    """Reads the sinks' journals, each line once."""

    def __init__(self, stack):
        self.journals = {service.note["journal"]: 0 for service in stack.services.values() if "journal" in service.note}
        self.mails, self.times, self.returned, self.damaged = Counter(), {}, {}, set()

    def read(self):
        for path, position in self.journals.items():
            try:
                with open(path, "rb") as journal:
                    journal.seek(position)
                    text = journal.read()
            except FileNotFoundError:
                continue
            text = text[:text.rfind(b"\n") + 1]
            self.journals[path] = position + len(text)
            for line in text.decode(errors="replace").splitlines():
                moment, kind, mail, recipient, note = line.split("\t", 4)
                if kind in ("mail", "damaged"):
                    self.mails[mail, recipient] += 1
                    self.times.setdefault((mail, recipient), int(moment))
                if kind == "damaged":
                    self.damaged.add((mail, recipient))
                elif kind == "dsn":
                    self.returned[mail, recipient] = note
        return self


def in_mailboxes(stack):
    """Counter of pairs in Dovecot's mailboxes."""
    found = Counter()
    if "dovecot" not in stack.services:
        return found
    note = stack["dovecot"].note
    for user in dovecot.users_with_mail(note):
        text = dovecot.doveadm(note, "-f", "tab", "fetch", "-u", user, "hdr.x-oracle-id", "ALL").decode(errors="replace")
        for line in text.splitlines()[1:]:
            if line.strip():
                found[line.strip(), user] += 1
    return found


def in_lanes(stack):
    """(pair to places, nodes that did not answer)."""
    found, unreachable = {}, []
    for node, address in stack.nodes.items():
        state = stack[f"redis-{node}"].state()
        if state != "runs":
            unreachable.append(f"{node}: {state}")
            continue
        try:
            for entry in lanes.entries(node, address):
                for recipient in entry.open:
                    found.setdefault((entry.oracle_id, recipient), []).append(f"{node} {entry.lane} ({entry.state})")
        except (OSError, resp.RedisError) as error:
            unreachable.append(f"{node}: {error}")
    return found, unreachable


def in_queue(stack, known):
    """(waiting pairs to places, returning pairs to reasons) of Postfix's queue. known: queue id to mail id."""
    waiting, returning = {}, {}
    if "postfix" not in stack.services:
        return waiting, returning
    config = stack["postfix"].note["config_directory"]
    done = subprocess.run(["postqueue", "-c", config, "-j"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    for line in done.stdout.splitlines():
        item = json.loads(line)
        recipients = [entry["address"] for entry in item["recipients"]]
        mail = known.get(item["queue_id"])
        if mail is None:
            text = subprocess.run(["postcat", "-c", config, "-bhq", item["queue_id"]], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=60, check=False).stdout.replace(b"\n", b"\r\n")
            head = text[:text.find(b"\r\n\r\n") + 2]
            for entry in PythonSink.returned(0, head, text):
                _, _, mail_of_notice, recipient, note = entry.split("\t", 4)
                returning[mail_of_notice, recipient] = note
            found = lanes.ORACLE_ID.search(head)
            mail = found[1].decode() if found else None
        if mail:
            for recipient in recipients:
                waiting.setdefault((mail, recipient), []).append(f"postfix {item['queue_name']} {item['queue_id']}")
    return waiting, returning


def log_lines(stack, mails, ledger):
    """Mail id to the lines of all logs that speak of it: by its id, its queue ids, and the entry ids found beside these."""
    owner = {}
    for queue_id, mail in ledger.queue_ids().items():
        if mail in mails:
            owner[queue_id.encode()] = mail
    owner.update({mail.encode(): mail for mail in mails})
    logs = [service.log for service in stack.services.values() if not service.name.startswith("sink-")]
    for pattern in (ENTRY, None):
        found = {mail: [] for mail in mails}
        fresh = {}
        for path in logs:
            try:
                text = Path(path).read_bytes()
            except OSError:
                continue
            for line in text.splitlines():
                about = {owner[token] for token in TOKEN.findall(line) if token in owner}
                for mail in about:
                    found[mail].append(f"{Path(path).stem}: {line.decode(errors='replace')}")
                    if pattern:
                        fresh.update({entry: mail for entry in pattern.findall(line)})
        owner.update(fresh)
    return found


def judge(stack, ledger, looks=4):
    """The verdict of now. `ledger`: one, or several merged.

    What seems lost is looked for again: showq(8) reads the active queue before the incoming one and misses what moves from one
    to the other meanwhile. What is lost stays lost in every look.
    """
    verdict = look(stack, ledger)
    for _ in range(looks - 1):
        if not verdict.lost:
            break
        time.sleep(0.25)
        before, verdict = set(verdict.lost), look(stack, ledger)
        verdict.lost = [pair for pair in verdict.lost if pair in before]
    return verdict


def look(stack, ledger):
    """One look at all places."""
    lanes_waiting, unreachable = in_lanes(stack)
    queue_waiting, returning = in_queue(stack, ledger.queue_ids())
    deliveries = Deliveries(stack).read()
    delivered = deliveries.mails + in_mailboxes(stack)
    returned = {**returning, **deliveries.returned}
    waiting = {pair: lanes_waiting.get(pair, []) + queue_waiting.get(pair, []) for pair in {**lanes_waiting, **queue_waiting}}
    promised = set(ledger.promised)
    lost = sorted(pair for pair in promised if pair not in delivered and pair not in waiting and pair not in returned)
    refused = {key for key, pair in ledger.known() if pair.refused and not pair.promises and not pair.unknown}
    strange = sorted(pair for pair in delivered if pair not in ledger.pairs or pair in refused)
    several = {pair: count for pair, count in delivered.items() if count > 1}
    lines = log_lines(stack, {mail for mail, _ in several}, ledger) if several else {}
    duplicates = []
    for (mail, recipient), count in sorted(several.items()):
        pair = ledger.pairs.get((mail, recipient))
        allowed = max(1, pair.promises + pair.unknown) if pair else 1
        about = [line for line in lines[mail] if (to := RECIPIENT.search(line)) is None or to[1] == recipient]
        duplicates.append(Duplicate(mail, recipient, count, allowed, about))
    return Verdict(promised, delivered, waiting, returned, lost, duplicates, sorted(deliveries.damaged), strange, unreachable)


def wait_delivered(stack, ledger, seconds=300, settle=0.3):
    """Waits until every promised pair is delivered or returned (or the time is over), then judges.

    It looks at the journals only, and at mailboxes less often, so that waiting does not disturb what it waits for.
    """
    end = time.monotonic() + seconds
    deliveries, mailboxes, next_look = Deliveries(stack), Counter(), 0.0
    promised = ledger.promised.keys()
    while True:
        deliveries.read()
        missing = [pair for pair in promised if pair not in deliveries.mails and pair not in deliveries.returned
                   and pair not in mailboxes]
        if not missing or time.monotonic() > end:
            break
        if time.monotonic() > next_look and any(pair not in deliveries.mails for pair in missing):
            mailboxes = in_mailboxes(stack)
            next_look = time.monotonic() + 2
        time.sleep(0.1)
    end = min(end, time.monotonic() + 60)
    while time.monotonic() < end and under_way(stack, Deliveries(stack).read().mails):
        time.sleep(0.2)
    time.sleep(settle)
    return judge(stack, ledger)


def under_way(stack, delivered):
    """Pairs that were delivered more than once and will be again: the reason stands beside the last
    delivery. The first node of an entry's lane delivers it; what a dead relay left on another one
    may stay there."""
    return [pair for pair, places in in_lanes(stack)[0].items() if delivered[pair] > 1
            and any(re.match(rf"(\S+) .*\|\1\b", place) for place in places)]


# What a log says about a mail that went another way than through its place in an ordered lane.
OUT_OF_ORDER = re.compile(r"out of order: |given to Postfix's queue")
QUEUE_ID = re.compile(r"\]: (?:[a-z]+: )?([0-9A-Za-z]{8,}): ")


@dataclass
class Overtaken:
    """A mail that was promised before the other one was even sent, and was delivered after it."""
    mail: str
    by: str
    domain: str
    lines: list = field(default_factory=list)

    def __str__(self):
        return "\n".join([f"{self.by} to {self.domain} was delivered before {self.mail}, which was promised before it was sent"] + ["    " + line for line in self.lines])


def overtaken(stack, ledger, domains):
    """Mails to these domains (each one ordered destination) whose first copy came out of the order of the 250s, though no log calls it so. Looked at is what the milter
    stored in lanes, and the client sent once: of one that it sent again nobody knows which copy was promised. Returns (how many were looked at, those)."""
    times = Deliveries(stack).read().times
    stored, excused, owner = set(), set(), ledger.queue_ids()
    for service in stack.services.values():
        if service.name == "milter" or service.name.startswith("relay-"):
            for line in Path(service.log).read_text(errors="replace").splitlines():
                about = QUEUE_ID.search(line)
                if about and about[1] in owner:
                    stored |= {owner[about[1]]} if "action=lane" in line else set()
                    excused |= {owner[about[1]]} if OUT_OF_ORDER.search(line) else set()
    found, looked = [], 0
    for domain in domains:
        sent = {}
        for (mail, recipient), pair in ledger.promised.items():
            if recipient.endswith("@" + domain) and (mail, recipient) in times and mail in stored - excused and pair.promises == 1 and not pair.unknown and not pair.tempfails:
                began, promised, first = sent.get(mail, (0, 0, 1 << 62))
                sent[mail] = max(began, pair.promised - pair.waited), max(promised, pair.promised), min(first, times[mail, recipient])
        looked += len(sent)
        by_promise, last, latest = sorted(sent.items(), key=lambda item: item[1][1]), 0, (0, None)
        for mail, (began, _, first) in sorted(sent.items(), key=lambda item: item[1][0]):
            while last < len(by_promise) and by_promise[last][1][1] < began:
                latest = max(latest, (by_promise[last][1][2], by_promise[last][0]))
                last += 1
            if latest[0] > first:
                found.append(Overtaken(latest[1], mail, domain))
    lines = log_lines(stack, {mail for each in found[:5] for mail in (each.mail, each.by)}, ledger) if found else {}
    for each in found[:5]:
        each.lines = lines[each.mail] + lines[each.by]
    return looked, found


def delivery_times(stack, ledger):
    """Milliseconds from the client's final dot to the recording sinks' having it, sorted: end to end."""
    times = Deliveries(stack).read().times
    return sorted((times[key] - (pair.promised - pair.waited)) / 1e6 for key, pair in ledger.promised.items() if key in times)
