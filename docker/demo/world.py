"""The other containers, as anybody could look at them.

Nodes are asked by Redis commands, Dovecot by IMAP, Postfix by SMTP, and programs for their counters
over HTTP. What the sink wrote is in /sink, and the programs' logs are in /log.

A node's first process (docker/stage) kills it, the link between the sites
(tests/support/stack/links.py) is cut by a word to it: no Docker socket is needed.
"""

import json
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from support.stack import digest, lanes, resp
from support.stack.imap import Imap, Lost
from support.waiting import eventually
from telling import Failed

NODES = ("mx1", "mx2", "mx3")
SITES = ("site-a", "site-b")
LOGS, SINK = Path("/log"), Path("/sink")
STAGE, LINK = 7099, ("link", 7100)
# Where each container answers as long as it runs; a node that was killed, too.
DOORS = [
    *((node, STAGE) for node in NODES),
    *((site, 143) for site in SITES),
    LINK,
    ("postfix", 25),
    ("sink", 2525),
]


def ask(address, line):
    """One line there, one line back."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(line.encode() + b"\n")
        return connection.makefile().readline().strip()


def silent():
    """Containers that do not answer."""
    for name, port in DOORS:
        try:
            socket.create_connection((name, port), 5).close()
        except OSError:
            yield name


# -- nodes -----------------------------------------------------------------------------------------


def stage(node, word):
    return ask((node, STAGE), word)


def living():
    return [node for node in NODES if stage(node, "state") == "running"]


def held(node):
    """Lane names of a node to (entries, bytes)."""
    with resp.Connection(f"{node}:6379") as connection:
        return lanes.names(connection)


def in_lanes():
    """Entries of all living nodes together."""
    return sum(count for node in living() for count, _ in held(node).values())


def command(*words):
    """`dovelane WORDS`, as an admin calls it: its status and what it says."""
    done = subprocess.run(
        ["dovelane", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def nodes_ready(seconds=120):
    eventually("all nodes alive and whole", lambda: command("nodes")[0] == 0, seconds)


# -- sites -----------------------------------------------------------------------------------------


class Site:
    """One Dovecot, as support.stack.digest wants it."""

    def __init__(self, name):
        self.name, self.note = name, {"imap": f"{name}:143"}

    def imap(self, user):
        return Imap(self.note["imap"], user)

    @staticmethod
    def home(_):
        """Of the other container: no Sieve scripts are seen here."""
        return Path("/nowhere")


A, B = map(Site, SITES)


def equal(user, what="the two sites show the same"):
    """What both show, as soon as they show the same."""
    shown = []

    def same():
        try:
            shown[:] = [digest.read(site, user) for site in (A, B)]
        except Lost:  # its UIDVALIDITY changed, say: clients log in again
            return False
        return not digest.difference(shown[0], shown[1])

    eventually(what, same, 120)
    return shown[0]


def link(what, **more):
    """cut, heal, delay (ms=...), state: the links' states, FROM>TO to its own."""
    return json.loads(ask(LINK, json.dumps({"do": what, **more})))


def is_cut():
    return any(state["mode"] != "open" for state in link("state").values())


# -- what programs say of themselves ---------------------------------------------------------------


def metric(host, port, name):
    """The sum of a metric's values there, or None where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.URLError):
        return None
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found)) if found else None


def unconfirmed(site):
    """Changes at a site that the other one has not confirmed."""
    return metric(site, 7064, "dovelane_replica_unconfirmed_changes")


class Log:
    """What a container says from now on."""

    def __init__(self, *names):
        self.files = [LOGS / f"{name}.log" for name in names]
        self.begin = {path: path.stat().st_size if path.exists() else 0 for path in self.files}

    def lines(self, pattern):
        found = []
        for path in self.files:
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self.begin[path])
                    text = file.read().decode(errors="replace")
                found += [line for line in text.splitlines() if re.search(pattern, line)]
        return found


def tails(lines=6):
    """The last that each container said, for who asks why it went wrong."""
    for path in sorted(LOGS.glob("*.log")):
        last = path.read_text(errors="replace").splitlines()[-lines:]
        yield path.stem, last


# -- what arrived ----------------------------------------------------------------------------------

HEADER = "X-Demo-Mail"


def in_mailbox(site, user, run):
    """Ids of the mails of a run in a user's INBOX, as often as they are there."""
    with site.imap(user) as session:
        session.select("INBOX")
        _, lines = session.command("UID SEARCH HEADER", HEADER, run)
        uids = [uid for line in lines if line.startswith(b"* SEARCH") for uid in line.split()[2:]]
        if not uids:
            return []
        found = session.fetch(b",".join(uids).decode(), f"BODY.PEEK[HEADER.FIELDS ({HEADER})]")
        return [
            value.partition(b":")[2].strip().decode()
            for _, items in found
            for key, value in items.items()
            if key.startswith(b"BODY[")
        ]


class Sink:
    """What smtp-sink wrote: a file a mail, with the envelope above it. Each is read once."""

    def __init__(self):
        self.seen = {path.name for path in SINK.iterdir()}
        self.got = []  # (recipient, id)

    def look(self):
        for path in SINK.iterdir():
            if path.name in self.seen:
                continue
            lines = path.read_text(errors="replace").splitlines()
            if not lines or not any(not line for line in lines[:-1]):
                continue  # it is being written
            self.seen.add(path.name)
            name = next(
                (line.partition(":")[2].strip() for line in lines if line.startswith(f"{HEADER}:")),
                "",
            )
            self.got += [
                (line.partition("<")[2].partition(">")[0], name)
                for line in lines
                if line.startswith("X-Rcpt-Args:")
            ]
        return self.got


def failed(text):
    raise Failed(text)
