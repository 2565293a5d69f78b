"""Sites that a test plays: an LMTP port, a Redis for questions and answers, and a disk that can be lost.

    w = SiteWorld(stack, tmp_path)
    a, b = w.sites
    a.word = lambda question: "safe"        what it answers; None: nothing yet

By default a site answers as docs/two-disks.md says: "safe" for what is on enough of the sites' disks, "unknown" for what it has not. `ship()` brings to
the other sites what one has.
"""
import hashlib
import re
import threading
import time
from dataclasses import dataclass

from support.relay_world import World
from support.stack import programs, resp
from support.stack.delivery_id import guid
from support.waiting import eventually

KEY = "the group key of a test, known to all"


def entry_id(body):
    return hashlib.sha256(body).digest()[:16]


@dataclass
class Question:
    guid: str
    node: str
    sites: int
    recipient: str


def read_question(body):
    version, name, node, sites, recipient = body.decode().split(" ", 4)
    assert version == "1" and len(name) == 32
    return Question(name, node, int(sites), recipient)


class Site:
    def __init__(self, world, name, number):
        stack = world.stack
        self.world, self.name, self.number = world, name, number
        self.peer = world.peer(lmtp=True)
        self.redis = stack.add(programs.redis(stack.directory / name, name, stack.shape, stack.ports, stack.log(f"redis-{name}")))
        stack.start(f"redis-{name}")
        self.address = self.redis.note["address"]
        self.questions, self.disk, self.taken, self.word, self.over = [], set(), 0, self.by_rule, False
        self.epoch = 1     # of its state: another one after a loss
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    @property
    def section(self):
        return {"id": self.number, "redis": self.address, "lmtp": self.peer.hop}

    def work(self):
        while not self.over:
            try:
                with resp.Connection(self.address, timeout=30) as connection:
                    while not self.over:
                        self.answer_all(connection)
            except (OSError, ValueError, resp.RedisError):
                time.sleep(0.05)

    def answer_all(self, connection):
        lane = f"dovelane:asked:{self.number}"
        for _, _, entries in connection.call("LANE.TAKE", 1, lane, "COUNT", 100, "LEASE", 60000, "BLOCK", 100) or []:
            for entry in entries:
                question = read_question(entry[6])
                connection.call("LANE.ACK", lane, "IDS", 1, entry[1])
                self.questions.append(question)
                if (word := self.word(question)) is not None:
                    self.say(connection, question, word)

    def say(self, connection, question, word):
        body = f"1 {question.guid} {self.number} {self.epoch:x} {word}".encode()
        connection.call("LANE.PUSH", 1, f"dovelane:answered:{question.node}", "ENTRIES", 1, 1, entry_id(body), "", body)

    def look(self):
        """What came by LMTP since the last look is on its disk."""
        mails = list(self.peer.mails)
        for mail in mails[self.taken:]:
            found = re.match(rb"Dovelane-Id: (\w{32})(?:\r\n [^\r]*)+\r\n", mail.body)
            self.disk |= {guid(found[1].decode(), mail.body[found.end():], each) for each in mail.recipients}
        self.taken = len(mails)

    def by_rule(self, question):
        self.look()
        if question.guid not in self.disk:
            return "unknown"
        return "safe" if sum(question.guid in each.disk for each in self.world.sites) >= question.sites else None

    def ship(self):
        """The other sites have on disk what this one has."""
        self.look()
        for each in self.world.sites:
            each.disk |= self.disk

    def lose_disk(self):
        self.look()
        self.disk = set()
        self.epoch += 1

    def go_away(self):
        """Neither its port nor its Redis answers."""
        self.peer.down()
        self.world.stack.kill(f"redis-{self.name}")

    def come_back(self):
        self.peer.up()
        self.world.stack.start(f"redis-{self.name}")

    def end(self):
        self.over = True
        self.thread.join(60)
        if self.peer.listener.fileno() < 0:
            self.peer.up()


class SiteWorld(World):
    """Nodes and relays as World has them, and two sites a and b, of one destination. Any setting of its section may be given as `section`."""

    def __init__(self, stack, tmp_path, relays=("mx1", "mx2"), names=("site-a", "site-b"), section=None, **settings):
        key = tmp_path / "group.key"
        key.write_text(KEY)
        key.chmod(0o600)
        super().__init__(stack, tmp_path, relays=(), group_key_file=str(key), **settings)
        self.key = key
        self.sites = [Site(self, name, number) for number, name in enumerate(names, 1)]
        self.destination = "lmtp:" + ",".join(site.peer.hop for site in self.sites)
        inside = {"delivery_id": "yes", "until": "replicated", "sites": 2, "replicated_wait": "2s", **(section or {})}
        for node in self.connections:
            self.configure(node, hangup=False, destinations={self.destination: inside}, replicate_namespaces='{ "inbox" }',
                           replicas={site.name: site.section for site in self.sites})
        for node in relays:
            self.stack.start(f"relay-{node}")

    def put(self, *recipients, **more):
        return self.store(self.destination, *(recipients or ("b@example.net",)), **more)

    def retained(self, *nodes):
        """Waits until the only entry is retained on these nodes; at which site."""
        def found():
            for node in nodes or self.connections:
                states = [recipient for entry in self.entries(node) for recipient in entry.envelope["recipients"]]
                if not states or any(each.state != 4 for each in states):
                    return None
            return {each.site for each in states}
        sites, = eventually("the entry is retained on all its owners", found)
        return sites

    def end(self):
        for site in self.sites:
            site.end()
        super().end()
