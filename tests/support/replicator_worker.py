"""A scripted dovelane-worker: speaks the frames of docs/replicator/worker.md, and keeps a toy state per user instead of mailboxes.

A user's state is, per site, a list of items in order. A batch has the vector, the number of its first item and the items; a gap
is refused; an exchange gives all of it. That is enough to tell whether main loses, forgets, mixes up or wrongly orders anything."""
import contextlib
import json
import os
import pathlib
import select
import socket
import struct
import threading
import time

from support.frames import (ADMIN, ANSWER, APART, ASK_DISK, BATCH, BODIES, CLOSE, CONFIRMED, CREDENTIALS, DONE,
                            ELSEWHERE, EXCHANGE, FAIL, FORGET, HELLO, INGEST, LOOKUP, NEW, NOTE,
                            ON_DISK, OPEN, PARCEL, QUESTION, READY, REPLY, RESERVE, RESERVED, Reader, SEND,
                            SHIP, TICK, WANT, batch_head, frame, num, text)

OK, REFUSED, TEMPORARY = range(3)
CHECK, RAISE, NOTED, CLEAN = range(4)
EPOCH = 7   # of all states


def head(first, n, vector):
    return batch_head(first, n, [(int(site), EPOCH, last) for site, last in vector.items()])


def batch_body(site, own, vector, items=(), first=0):
    """Of a BATCH of that site, which has given so many numbers."""
    body = {"vector": {**vector, str(site): own}, "first": first, "items": list(items)}
    return text(head(first, len(items), vector) + json.dumps(body).encode())


def behind_head(body):
    r = Reader(Reader(body).text())
    r.take(1)
    for _ in range(r.num()):
        r.take(16)
        r.num()
        r.take(8)
    r.take(2)
    r.num()
    r.take(8)
    r.num()
    return r.data[r.at:]


class State:
    def __init__(self, site):
        self.site = site
        self.items = {}      # site: its items, in order
        self.mailbox = []    # own items that nobody has looked at yet
        self.first = 1       # own items before are dropped (FORGET)
        self.sent, self.confirmed, self.behind, self.owed, self.more = {}, {}, {}, {}, {}
        self.looks, self.sweeps = 0, 0

    def own(self):
        return self.items.setdefault(self.site, [])

    def vector(self):
        return {str(s): len(items) for s, items in self.items.items()}


class Site:
    """What the workers of one replica have in common."""

    def __init__(self, number, directory):
        self.number, self.path = number, pathlib.Path(directory) / "dovelane-worker"
        self.lock = threading.RLock()
        self.states, self.open_users, self.wrong = {}, {}, []
        self.credentials = {}   # user: those under which it is opened, 1 where it is not said
        self.canonical = lambda user: user   # what the userdb calls him
        self.sent_elsewhere, self.always_elsewhere, self.lookups, self.slow_lookups = [], 0, [], 0
        self.unknown, self.failing, self.refusing, self.crashing, self.slow, self.deaf = set(), set(), set(), {}, {}, False
        self.parcels = []  # (user, from, kind) as they came
        self.wishes, self.ticks = {}, []    # user: milliseconds after which he wishes a TICK, once; who had one
        self.joining, self.joins_asked = set(), 0   # users whose states are new; questions of theirs
        self.lacking = {}       # user: [mails that wait for their bytes, bytes of each]
        self.held = {}          # user: mails whose removal the brake holds
        self.unseen = {}        # user: folders that cannot be read, and for which removals wait
        self.state_bytes = {}   # user: the size of his state
        self.not_whole = {}     # user: 2: he went on though a site has not answered, 3: one reads its mailboxes
        self.wants, self.came = [], {}  # users who asked for bodies, in order; user: (mails, bytes) that were placed
        self.body_bytes = 0     # all that came of bodies
        self.want_most = 1000   # mails asked for at one time
        self.again = 0          # milliseconds after which what has not come is asked for again; 0: never
        self.late, self.exchanged = 0, set()    # answers whose question nobody remembered; users who got theirs
        self.reserved, self.opened, self.closed, self.hellos, self.verbs, self.connections = [], [], [], [], [], []
        self.words, self.epochs, self.owners = {}, {}, {}   # (user, GUID): here, removed or wait; user: epoch of his state, id of his files
        self.apart = {}     # user: sites that he is not replicated with
        self.listed = None  # names of the userdb; None: cannot be listed
        self.together, self.first_rows = 0, 0   # so many users' answers have a first row each before any has its second one
        self.row_sent = threading.Condition(self.lock)
        self.batch_bytes = 100_000
        self.ship_bytes = 8_000_000     # of batches for one question
        self.dying = []                 # ways of SHIP in which the next worker ends
        self.twice, self.made, self.probes = 0, 0, 0    # items that came though they were known; batches; those sent alone
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(50)
        self.acceptor = threading.Thread(target=self.accept, daemon=True)
        self.acceptor.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=Worker(self, connection).run, daemon=True).start()

    def end(self):
        # A thread that waits in accept() would not notice a close, and go on with whoever gets the descriptor's number next.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join(20)
        self.listener.close()
        self.kill_workers()

    def kill_workers(self):
        for c in self.connections[:]:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def owner(self, user):
        """Whose files the user's are."""
        return self.owners.get(user, os.geteuid())

    def word(self, user, guid):
        """What on-disk says of it."""
        return self.words.get((user, guid), "unknown")

    def state(self, user):
        with self.lock:
            if user not in self.states:
                self.states[user] = State(self.number)
            return self.states[user]

    def add(self, user, *items):
        with self.lock:
            self.state(user).mailbox += items

    def items(self, user):
        """All that this replica has of the user, by site."""
        with self.lock:
            state = self.states.get(user)
            return {s: list(i) for s, i in state.items.items() if i} if state else {}


class Ended(Exception):
    pass


class Worker:
    def __init__(self, site, connection):
        self.site, self.socket, self.stream = site, connection, connection.makefile("rb")
        self.user = self.sites = self.kept = None
        self.old = False
        self.most = 0           # seconds; then the kernel's timer ends one that does not answer
        self.asking = set()     # sites that an exchange waits for; ends with CLOSE
        self.placed = [0, 0]    # mails and bytes, since the last DONE
        self.kept_mails = [0] * 5   # mails, bytes, restored, purged; those that cannot be kept

    def run(self):
        try:
            while True:
                kind, r = self.read()
                if kind != HELLO and self.sites is None:
                    raise AssertionError("no HELLO first")
                with self.site.lock:
                    pause = self.site.slow_lookups if kind == LOOKUP else self.site.slow.get(self.user, 0)
                    if kind == LOOKUP and pause:
                        self.site.lookups.append(Reader(r.data[r.at:]).text().decode())
                if pause:
                    time.sleep(min(pause, self.most))
                if pause > self.most:
                    raise Ended
                self.answer(kind, r)
        except (Ended, OSError, ValueError):
            pass
        except Exception as wrong:  # what a test has to know
            self.site.wrong.append(repr(wrong))
            raise
        finally:
            with self.site.lock:
                if self.user and self.site.open_users.get(self.user) is self:
                    self.site.open_users.pop(self.user)
            self.stay()
            self.stream.close()
            self.socket.close()

    def stay(self):
        """What its user does to the process when main is done with it."""

    def is_cut(self):
        """Main has ended its half of the connection, and this thread has not come to that yet."""
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLRDHUP)
        except (OSError, ValueError):
            return True
        return bool(poll.poll(0))

    # -- frames --

    def read(self):
        head = self.stream.read(4)
        if len(head) < 4:
            raise Ended
        size = struct.unpack("<I", head)[0]
        body = self.stream.read(size)
        if len(body) < size:
            raise Ended
        return body[0], Reader(body[1:])

    def write(self, kind, body=b""):
        if self.is_cut():
            raise BrokenPipeError
        self.socket.sendall(frame(kind, body))

    def reserve(self, what, counter):
        key = (self.user.encode() * 16)[:16] if self.old else b""
        self.write(RESERVE, bytes([what]) + key + struct.pack("<Q", EPOCH) + num(counter))
        kind, r = self.read()
        assert kind == RESERVED, kind
        ok, new_epoch = r.take(2)
        self.site.reserved.append((self.user, what, counter, ok, new_epoch))
        assert ok, (self.user, what, counter, new_epoch)

    def done(self, result=OK, why="", tick=0):
        sites = []
        tick = (tick or self.site.wishes.get(self.user, 0) or 1000 * (self.user in self.site.joining)
                or self.site.again * (self.user in self.site.lacking))
        if self.user:
            s = self.site.state(self.user)
            for site in self.peers():
                left = max(0, len(s.own()) - max(s.confirmed.get(site, 0), s.first - 1))
                sites.append(num(site) + num(left) + bytes([s.behind.get(site, False), s.owed.get(site, False), s.more.get(site, False),
                                                           site in self.asking]))
        unplaced = self.site.lacking.get(self.user, (0, 0))[0]
        joins = b"" if self.old else bytes([1 if self.user in self.site.joining else self.site.not_whole.get(self.user, 0)])
        placed = b"" if self.old else b"".join(map(num, [*self.placed, *self.kept_mails, self.site.unseen.get(self.user, 0)]))
        names = b"" if self.old else num(0) + num(self.site.state_bytes.get(self.user, 0))
        self.placed = [0, 0]
        self.write(DONE, bytes([result]) + text(why) + num(len(sites)) + b"".join(sites) + num(unplaced) + num(self.site.held.get(self.user, 0)) + names + joins + placed + num(tick))

    def peers(self):
        return [s for s in self.sites if s != self.site.number]

    # -- what main asks --

    def answer(self, kind, r):
        with self.site.lock:
            {HELLO: self.hello, OPEN: self.open, INGEST: self.ingest, PARCEL: self.parcel, SHIP: self.ship, TICK: self.done_tick,
             ADMIN: self.admin, CLOSE: self.close, LOOKUP: self.lookup}[kind](r)

    def hello(self, r):
        version, own = r.num(), r.num()
        self.sites = [r.num() for _ in range(r.num())]
        digest = r.take(16)
        names = [r.text() for _ in range(r.num())]
        settings = {r.text().decode(): r.text().decode() for _ in range(r.num())}
        r.end()
        assert version in (2, 8) and own == self.site.number
        self.most = 2 * (int(settings["worker_timeout"]) // 1000 + 1)
        self.old = version == 2  # of 0.1.0: a worker served whoever it was given
        self.site.hellos.append((self.sites, digest, names, settings))
        if not self.old:
            self.write(NOTE, bytes([3]) + text("the process is there"))

    def nobody(self):
        return b"\x01" if self.old else b"\x02"

    def lookup(self, r):
        user = r.text().decode()
        r.end()
        assert self.user is None and self.kept is None, "it has opened somebody"
        self.site.lookups.append(user)
        if user in self.site.unknown:
            self.write(FAIL, self.nobody() + text("no such user"))
        elif user in self.site.failing:
            self.write(FAIL, b"\x00" + text("cannot be opened now"))
        else:
            self.write(CREDENTIALS, struct.pack("<Q", self.site.credentials.get(user, 1)) + text(self.site.canonical(user)))

    def open(self, r):
        user = r.text().decode()
        told = 1 if self.old else struct.unpack("<Q", r.take(8))[0]
        if not self.old:
            r.u8()  # existing
        r.end()
        assert self.user is None, "a user is open already"
        if user in self.site.unknown:
            self.write(FAIL, self.nobody() + text("no such user"))
            return
        if user in self.site.failing:
            self.write(FAIL, b"\x00" + text("cannot be opened now"))
            return
        credentials = self.site.credentials.get(user, 1)
        assert self.kept in (None, told), "this worker is another user's"
        self.kept = credentials if self.kept is None else self.kept
        wrongly = self.site.always_elsewhere > 0
        self.site.always_elsewhere -= wrongly
        if wrongly or told != credentials:
            self.site.sent_elsewhere.append(user)
            self.write(ELSEWHERE)
            raise Ended
        other = self.site.open_users.get(user)
        assert other is None or other.is_cut(), f"{user} is at two workers"
        self.user = user
        self.site.open_users[user] = self
        self.site.opened.append(user)
        self.reserve(CHECK, len(self.site.state(user).own()))
        if user in self.site.apart:
            self.write(APART, text(b"".join(struct.pack("<Q", site) for site in self.site.apart[user])))
        s = self.site.state(user)
        self.write(READY, bytes([0, user in self.site.joining]) + num(len(s.own()) - s.first + 1))

    def close(self, r):
        r.end()
        self.reserve(CLEAN, len(self.site.state(self.user).own()))
        self.site.closed.append(self.user)
        self.site.open_users.pop(self.user)
        self.asking.clear()
        self.done()
        self.user = None

    def done_tick(self, r):
        self.site.ticks.append(self.user)
        self.site.wishes.pop(self.user, None)
        self.want()
        self.done()

    # -- bodies: a toy mail is so many bytes of its own number --

    def want(self):
        """Asks the first other site for what is missing."""
        mails, size = self.site.lacking.get(self.user, (0, 0))
        if mails and self.user not in self.site.joining:
            n = min(mails, self.site.want_most)
            self.site.wants.append(self.user)
            self.write(SEND, num(self.peers()[0]) + num(WANT) + b"\x01" + num(0) + text(num(n) + b"".join(
                num(1) + bytes(8) + num(i + 1) + struct.pack("<QQQQ", size, i, 0, 0) + num(0) for i in range(n))))

    def give(self, site, r):
        """One BODIES with all of them."""
        mails = []
        for _ in range(r.num()):
            r.num(), r.take(8), r.num()
            sha256 = r.take(32)
            r.num()
            mails.append(sha256 + text(bytes(struct.unpack("<Q", sha256[:8])[0])))
        r.end()
        self.write(SEND, num(site) + num(BODIES) + b"\x01" + num(0) + text(num(len(mails)) + b"".join(mails)))

    def place(self, r):
        n = r.num()
        for _ in range(n):
            r.take(32)
            self.site.body_bytes += len(r.text())
        r.end()
        left, each = self.site.lacking.pop(self.user, (0, 0))
        if left > n:
            self.site.lacking[self.user] = [left - n, each]
        n = min(n, left)    # what was asked for twice is placed once
        mails, had = self.site.came.get(self.user, (0, 0))
        self.site.came[self.user] = (mails + n, had + n * each)
        self.placed = [self.placed[0] + n, self.placed[1] + n * each]
        self.want()

    def ask(self, site):
        if site not in self.asking:
            self.site.joins_asked += self.user in self.site.joining
            self.asking.add(site)
            self.send(site, QUESTION, {})

    def maybe_crash(self):
        if self.site.crashing.get(self.user, 0) > 0:
            self.site.crashing[self.user] -= 1
            raise Ended

    def ingest(self, r):
        s = self.site.state(self.user)
        boxes = [(r.text(), r.text()) for _ in range(r.num())]
        sweep = r.take(1)[0]
        r.end()
        assert not (sweep and boxes)
        s.looks += not sweep
        s.sweeps += sweep
        self.maybe_crash()
        if self.user in self.site.joining:     # nothing is read before all have answered
            self.done()
            return
        self.read_mailbox(s)
        self.done()

    def read_mailbox(self, s):
        if s.mailbox:
            self.reserve(RAISE, len(s.own()) + len(s.mailbox))
            s.own().extend(s.mailbox)
            s.mailbox.clear()
            self.batches(0, min((s.sent.get(p, 0) for p in self.peers()), default=0) + 1)
        self.want()

    def batches(self, site, first, always=False, one=False):
        s, own = self.site.state(self.user), self.site.state(self.user).own()
        first, room = max(first, s.first), self.site.ship_bytes
        for p in [site] if site else self.peers():
            s.more[p] = False
        while True:
            items, size = [], 0
            for item in own[first - 1:]:
                if items and size + len(item) > self.site.batch_bytes:
                    break
                items.append(item)
                size += len(item)
            if not items and not always:
                return
            self.send(site, BATCH, {"vector": s.vector(), "first": first, "items": items}, first=first if items else 0)
            self.site.made += bool(items)
            always = False
            first += len(items)
            room -= size
            for p in [site] if site else self.peers():
                s.sent[p] = max(s.sent.get(p, 0), first - 1)
                s.owed[p] = False
                s.more[p] = first <= len(own) and room <= 0
            if one or first > len(own) or room <= 0:
                return

    def send(self, site, kind, body, bulk=False, first=0):
        told = json.dumps(body).encode()
        if kind == BATCH:
            others = {site: last for site, last in body["vector"].items() if site != str(self.site.number)}
            told = text(head(body["first"], len(body["items"]), others) + told)
        self.write(SEND, num(site) + num(kind) + bytes([bulk]) + num(first) + text(told))

    def parcel(self, r):
        site, kind, body = r.num(), r.num(), r.text()
        r.end()
        self.site.parcels.append((self.user, site, kind))
        self.maybe_crash()
        if self.user in self.site.refusing:
            self.done(TEMPORARY, "disk full")
            return
        if kind == ASK_DISK:
            here = [body[at:at + 16] for at in range(8, len(body), 16) if self.site.word(self.user, body[at:at + 16].hex()) == "here"]
            if here:
                told = body[:8] + struct.pack("<Q", self.site.epochs.get(self.user, EPOCH)) + b"".join(here)
                self.write(SEND, num(site) + num(ON_DISK) + b"\x00" + num(0) + text(told))
            self.done()
            return
        if not body or kind not in (BATCH, QUESTION, ANSWER, WANT, BODIES):
            self.done(REFUSED, "no body" if not body else "unknown kind")
            return
        if kind == WANT:
            self.give(site, Reader(body))
            self.done()
            return
        if kind == BODIES:
            self.place(Reader(body))
            self.done()
            return
        body = json.loads(behind_head(body) if kind == BATCH else body)
        s = self.site.state(self.user)
        mine = s.items.setdefault(site, [])
        if kind == QUESTION:
            self.send(site, ANSWER, {"items": {str(k): v for k, v in s.items.items()}}, bulk=True)
        elif kind == ANSWER and site not in self.asking:
            self.site.late += 1    # it was closed meanwhile: nothing is known of the question any more
            self.done()
            return
        elif kind == ANSWER:
            self.asking.discard(site)
            self.site.exchanged.add(self.user)
            self.site.joining.discard(self.user)
            for other, items in body["items"].items():
                have = s.items.setdefault(int(other), [])
                assert have == items[:len(have)] or items == have[:len(items)], "two items under one number"
                have.extend(items[len(have):])
        else:
            s.confirmed[site] = max(s.confirmed.get(site, 0), body["vector"].get(str(self.site.number), 0))
            if body["first"] <= len(mine) + 1:
                new = body["items"][len(mine) + 1 - body["first"]:]
                known = body["items"][:len(mine) + 1 - body["first"]]
                self.site.twice += len(known)
                assert known == mine[body["first"] - 1:body["first"] - 1 + len(known)], "two items under one number"
                mine.extend(new)
                s.owed[site] = s.owed.get(site, False) or bool(body["items"])
            s.behind[site] = any(n > len(s.items.get(int(o), [])) for o, n in body["vector"].items())
        if kind == ANSWER:
            s.behind[site] = False
            self.read_mailbox(s)
        self.done()

    def ship(self, r):
        site, how, begin = r.num(), r.take(1)[0], r.num()
        r.end()
        assert site in self.peers(), f"SHIP for site {site}"
        assert not begin or how == NEW or (how == CONFIRMED and begin == 1)
        if how in self.site.dying:
            self.site.dying.remove(how)
            raise Ended
        s = self.site.state(self.user)
        if how == CONFIRMED and begin:
            was, more, self.site.probes = s.sent.get(site, 0), s.more.get(site, False), self.site.probes + 1
            self.batches(site, s.confirmed.get(site, 0) + 1, one=True)
            s.sent[site], s.more[site] = max(was, s.sent.get(site, 0)), more
            self.done()
            return
        if how == CONFIRMED:
            s.sent[site] = s.confirmed.get(site, 0)
        elif begin:
            s.sent[site] = max(s.confirmed.get(site, 0), min(s.sent.get(site, 0), begin - 1))
        if how == EXCHANGE:
            self.ask(site)
        elif how == FORGET:
            others = [s.confirmed.get(p, 0) for p in self.peers() if p != site] or [len(s.own())]
            s.first = max(s.first, min(others) + 1)
        else:
            self.batches(site, s.sent.get(site, 0) + 1, always=how != NEW)
        self.done()

    def admin(self, r):
        args = [r.text().decode() for _ in range(r.num())]
        r.end()
        self.site.verbs.append((self.user, args))
        if self.user is None:
            assert args == ["users"]
            assert self.kept is None or self.old, "it is not root any more"
            for name in self.site.listed or []:
                self.write(REPLY, b"\x01" + text(name))
            self.done(OK if self.site.listed is not None else REFUSED)
            return
        if args[0] == "on-disk":
            self.write(REPLY, b"\x00" + text(f"owner {self.site.owner(self.user)}"))
            self.write(REPLY, b"\x00" + text(f"epoch {self.site.epochs.get(self.user, EPOCH):x}"))
            for guid in args[1:]:
                self.write(REPLY, b"\x00" + text(f"{guid} {self.site.word(self.user, guid)}"))
            self.done()
            return
        if args[0] == "accept":
            self.done(REFUSED, "nothing is held")
            return
        self.write(REPLY, b"\x01" + text("#\tfolder\tmails"))
        self.write(REPLY, b"\x00" + text(f"+INBOX\t{sum(len(i) for i in self.site.state(self.user).items.values())}"))
        if self.site.together:
            self.site.first_rows += 1
            self.site.row_sent.notify_all()
            assert self.site.row_sent.wait_for(lambda: self.site.first_rows >= self.site.together, 60)
            self.write(REPLY, b"\x00" + text("+verdict\tsame"))
        self.done()
