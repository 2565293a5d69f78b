"""The world of two_disks.py: owners, sites and relays, what is on its way between them, and what each
does next.

An entry at an owner: 0, or its revision << 4 | WAITING, or | RETAINED + the site that took it.
"""

WAITING, RETAINED = 1, 2
UP, AWAY, LOST = range(3)
SAFE, UNKNOWN, OP, BODY, CONFIRM = range(1, 6)
SITE = 100  # of a link: an end that is no owner


class Rules:
    """What programs do. A mutant does one thing otherwise."""

    def __init__(self, **other):
        self.retains = other.pop("retains", "owners")   # all of them
        self.confirms = other.pop("confirms", "disk")   # ... what is on the own disk
        self.names = other.pop("names", "recipient")    # a confirmation: entry and recipient
        self.unites = other.pop("unites", True)         # confirmations are a set of sites
        self.timeout = other.pop("timeout", False)      # owners let go by time
        self.spills = other.pop("spills", False)        # as waiting mail is
        self.guid = other.pop("guid", "entry")          # what a second delivery is known by
        self.unknown = other.pop("unknown", True)       # who has not got it says so
        self.removals = other.pop("removals", True)     # what a user removed needs no copy
        self.discards = other.pop("discards", True)     # nor what Sieve discarded
        self.compares = other.pop("compares", True)     # a site that lost its disk, with all others
        self.moves = other.pop("moves", True)           # a lost site's mail goes to the next one
        self.asks_again = other.pop("asks_again", True)  # until it is answered
        self.epochs = other.pop("epochs", True)         # one of a lost disk does not count
        self.strict = other.pop("strict", True)         # of a mutant also what is not lost yet
        assert not other


class Shape:
    """How many there are, and how often each thing may fail. story: what has happened already."""

    def __init__(self, mails=1, nodes=2, sites=2, want=2, away="keep", returns=True, discards=(),
                 accepted=True, story=(), **faults):
        self.mails, self.nodes, self.sites, self.want = mails, nodes, sites, want
        self.away, self.returns, self.discards = away, returns, frozenset(discards)
        self.accepted, self.story, self.faults = accepted, story, faults

    def __str__(self):
        what = ", ".join(f"{n} {kind}" for kind, n in self.faults.items() if n)
        return (f"{self.mails} mails, {self.nodes} owners, {self.want} of {self.sites} sites, "
                f"{self.away}{'' if self.returns else ', lost for ever'}: {what or 'no fault'}"
                f"{', from a story on' if self.story else ''}")


class World:
    """One state. `key()` is all of it.

    promised, decided, removed, let_go: bits of mails; asked: where a question is asked once
    node[i]: an entry for each mail; None: its memory was lost
    status[s]; whole[s]: its disk was not lost, or it has compared itself with all others, of which
    met[s] are those that it has met so far (bits)
    epoch[s]: another one with each new disk; knows[s][t]: which of t's s knows, None: none
    disk[s][m], soft[s][m]: ids under which the mail is on the disk, only in memory (bits)
    op[s][m]: it has the op; gone[s][m]: a user removed the mail, or Sieve discarded it
    said[s][m]: sites that confirmed to s (bits)
    uid[s][m]: only where confirmations are by UID
    flight: what is on its way, in no order
    cut: links; left: faults that may come yet
    """

    def __init__(self, shape, rules):
        self.shape, self.rules = shape, rules
        m = shape.mails
        first = WAITING if shape.accepted else 0
        self.promised = self.decided = (1 << m) - 1 if shape.accepted else 0
        self.removed = self.let_go = self.asked = 0
        self.node = ((first,) * m,) * shape.nodes
        self.status, self.whole = (UP,) * shape.sites, (True,) * shape.sites
        self.met = self.epoch = (0,) * shape.sites
        self.knows = (self.met,) * shape.sites
        self.disk = self.soft = self.op = self.gone = self.said = self.uid = (
            ((0,) * m,) * shape.sites)
        self.flight, self.cut = frozenset(), frozenset()
        self.left = dict(shape.faults)

    def key(self):
        return (self.promised, self.decided, self.removed, self.let_go, self.asked, self.node,
                self.status, self.whole, self.met, self.epoch, self.knows, self.disk, self.soft,
                self.op, self.gone, self.said, self.uid, self.flight, self.cut,
                tuple(self.left.values()))

    def put(self, name, index, value):
        """Rows are never changed, but replaced: states share them."""
        row = getattr(self, name)
        setattr(self, name, row[:index] + (value,) + row[index + 1:])

    def put2(self, name, s, m, value):
        rows = getattr(self, name)
        self.put(name, s, rows[s][:m] + (value,) + rows[s][m + 1:])

    # --- what holds

    def linked(self, a, b):
        return (min(a, b), max(a, b)) not in self.cut

    def reaches(self, i, s):
        return self.status[s] == UP and self.linked(i, SITE + s)

    def meet(self, s, t):
        return self.status[s] == self.status[t] == UP and self.linked(SITE + s, SITE + t)

    def serves(self, i):
        """Owner i is alive, and none that it hears comes before it."""
        return self.node[i] is not None and all(
            self.node[j] is None or not self.linked(j, i) for j in range(i))

    def was_delivered(self, m):
        return any(memory and memory[m] > WAITING for memory in self.node) or any(
            self.disk[s][m] or self.gone[s][m] for s in range(self.shape.sites))

    def copies(self, m):
        return sum(bool(self.disk[s][m]) or not self.whole[s] for s in range(self.shape.sites))

    def wrong(self):
        for m in range(self.shape.mails):
            bit = 1 << m
            if not self.promised & bit or (self.removed | self.let_go) & bit:
                continue
            if m in self.shape.discards or any(memory and memory[m] for memory in self.node):
                continue
            if not any(self.disk[s][m] for s in range(self.shape.sites)):
                return f"lost: mail {m}"
            if self.copies(m) < self.shape.want and self.rules.strict:
                return f"too few: mail {m} was let go on the disks of {self.copies(m)} sites"
        return None

    def wrong_at_rest(self):
        there = [s for s in range(self.shape.sites) if self.status[s] == UP]
        for m in range(self.shape.mails):
            bit = 1 << m
            enough = len(there) >= self.shape.want or self.shape.away == "let go"
            if enough and any(memory and memory[m] for memory in self.node):
                return f"stuck: an owner holds mail {m} for ever"
            if not self.promised & bit or (self.removed | self.let_go) & bit or \
               m in self.shape.discards:
                continue
            for s in there:
                shown = bin(self.disk[s][m]).count("1")
                if shown != 1:
                    return f"{'lost' if not shown else 'twice'}: site {s} shows mail {m} " \
                           f"{shown} times"
        return None

    # --- owners and relays

    def store(self, i, m):
        self.put2("node", i, m, WAITING)

    def promise(self, m):
        self.promised |= 1 << m
        self.decided |= 1 << m

    def give_up(self, m):
        """The sender is not told 250; what was stored is delivered all the same."""
        self.decided |= 1 << m

    def write(self, i, m, state, told):
        """META with the next revision, or ACK: at home, then, unless the relay is killed, at the
        others."""
        entry = (self.node[i][m] >> 4) + 1 << 4 | state if state else 0
        for j in range(self.shape.nodes):
            if j == i or (told and self.node[j] and self.node[j][m] and self.linked(i, j)):
                self.put2("node", j, m, entry)

    def deliver(self, i, m, s, how):
        """LMTP's 250 comes behind the disk's. how: 0, or when its relay is killed: 1 before META,
        2 before the others are told."""
        if m in self.shape.discards:
            self.put2("gone", s, m, 1)
        elif not self.gone[s][m]:
            self.put2("disk", s, m, self.disk[s][m] | 1 if self.rules.guid == "entry" else 2 << s)
            self.put2("soft", s, m, 0)
            self.number(s, m)
        if how != 1:
            retains = self.rules.retains
            self.write(i, m, RETAINED + s if retains != "nobody" else 0, told=how != 2)
            if retains == "server":
                for j in range(self.shape.nodes):
                    if j != i and self.node[j] is not None and self.linked(i, j):
                        self.put2("node", j, m, 0)

    def ask(self, i, m, s):
        """A question that is answered at once; the answer takes its time."""
        if not self.rules.asks_again:
            self.asked |= 1 << m
        self.flight |= {(self.answer(m, s), s, i, m)}

    def answer(self, m, s):
        """safe, unknown, or None: not yet."""
        rules = self.rules
        if self.gone[s][m] and (rules.discards if m in self.shape.discards else rules.removals):
            return SAFE
        others = bin(self.said[s][m]).count("1") if rules.unites else self.said[s][m]
        if self.disk[s][m] and 1 + others >= self.shape.want:
            return SAFE
        if not self.disk[s][m] and not self.soft[s][m] and not self.gone[s][m] and \
           self.whole[s] and rules.unknown:
            return UNKNOWN
        return None

    def take_answer(self, word, s, i, m, killed=False):
        self.flight -= {(word, s, i, m)}
        if self.node[i] is None or not self.node[i][m] & 15:
            return
        if word == SAFE:
            self.write(i, m, 0, told=not killed)
        elif self.node[i][m] & 15 == RETAINED + s:
            self.write(i, m, WAITING, told=True)

    def compare_owners(self, i, j):
        """Between two whole owners, what one lacks was let go; else the later revision counts."""
        for m in range(self.shape.mails):
            if not self.decided >> m & 1:
                continue
            if not self.node[i][m] or not self.node[j][m]:
                entry = 0
            else:
                entry = max(self.node[i][m], self.node[j][m])
            self.put2("node", i, m, entry)
            self.put2("node", j, m, entry)

    def back_node(self, i, j):
        self.put("node", i, self.node[j][:])

    # --- sites

    def ship(self, s, t, m):
        self.flight |= {(OP, s, t, m), (BODY, s, t, m, self.disk[s][m])}

    def take_op(self, _, s, t, m):
        self.flight -= {(OP, s, t, m)}
        if not self.gone[t][m]:
            self.put2("op", t, m, 1)

    def take_body(self, _, s, t, m, ids):
        """A body without its op is asked for again."""
        self.flight -= {(BODY, s, t, m, ids)}
        if self.op[t][m] and not self.gone[t][m]:
            self.put2("soft", t, m, self.soft[t][m] | ids & ~self.disk[t][m])

    def place(self, s, m):
        self.put2("disk", s, m, self.disk[s][m] | self.soft[s][m])
        self.put2("soft", s, m, 0)
        self.number(s, m)

    def number(self, s, m):
        if self.rules.names == "uid" and not self.uid[s][m]:
            self.put2("uid", s, m, max(self.uid[s]) + 1)

    def has(self, t, m):
        """What t confirms."""
        if self.rules.confirms == "op" and self.op[t][m]:
            return True
        if self.rules.confirms == "memory" and self.soft[t][m]:
            return True
        return bool(self.disk[t][m])

    def confirm(self, t, s, m):
        what = m
        if self.rules.names == "uid":
            what = self.uid[s][m]
        self.flight |= {(CONFIRM, t, s, what, self.epoch[t])}

    def take_confirm(self, _, t, s, what, epoch, again=False):
        if not again:
            self.flight -= {(CONFIRM, t, s, what, epoch)}
        if self.rules.epochs and self.knows[s][t] != epoch:
            return
        for m in range(self.shape.mails):
            named = {"recipient": m == what, "entry": m // 2 == what // 2,
                     "uid": self.uid[s][m] == what}[self.rules.names]
            if named and self.rules.unites:
                self.put2("said", s, m, self.said[s][m] | 1 << t)
            elif named:
                self.put2("said", s, m, min(self.said[s][m] + 1, 3))

    def tell_removal(self, s, t, m):
        self.forget(t, m)

    def forget(self, s, m):
        for name in ("disk", "soft", "op"):
            self.put2(name, s, m, 0)
        self.put2("gone", s, m, 1)

    def remove(self, s, m):
        self.removed |= 1 << m
        self.forget(s, m)

    def hello(self, s, t):
        """s hears t's epoch. What t confirmed in another one does not count any more."""
        if self.knows[s][t] != self.epoch[t]:
            self.put2("knows", s, t, self.epoch[t])
            for m in range(self.shape.mails):
                if self.rules.unites:
                    self.put2("said", s, m, self.said[s][m] & ~(1 << t))

    def exchange(self, s, t):
        """s, which lost its disk, takes over what t has on its own."""
        self.put("met", s, self.met[s] | 1 << t)
        self.hello(s, t)
        self.hello(t, s)
        for m in range(self.shape.mails):
            if self.gone[t][m]:
                self.forget(s, m)
            elif self.disk[t][m] and not self.gone[s][m]:
                self.put2("op", s, m, 1)
                self.put2("disk", s, m, self.disk[s][m] | self.disk[t][m])
                self.number(s, m)
        # Who lost its disk, too, has nothing that it can be compared with
        if all(self.met[s] >> r & 1 or r == s or not self.whole[r]
               for r in range(self.shape.sites)):
            self.put("whole", s, True)
            self.put("met", s, 0)

    # --- faults

    def crash(self, s):
        """Memory is gone, also what was heard; its lanes may be."""
        self.put("status", s, AWAY)
        for name in ("soft", "said"):
            self.put(name, s, (0,) * self.shape.mails)

    def lose_disk(self, s):
        """For ever; or what comes back is an old backup, which has none of these mails."""
        self.put("status", s, LOST)
        self.put("whole", s, not self.rules.compares)
        self.put("met", s, 0)
        self.put("epoch", s, self.epoch[s] + 1)
        self.put("knows", s, (None,) * self.shape.sites)
        if not self.rules.compares:
            self.put("knows", s, self.epoch)
            for t in range(self.shape.sites):
                self.put2("knows", t, s, self.epoch[s])
        for name in ("disk", "soft", "op", "gone", "said", "uid"):
            self.put(name, s, (0,) * self.shape.mails)

    def back_site(self, s):
        self.put("status", s, UP)

    def lose_memory(self, i):
        self.put("node", i, None)

    def empty_lanes(self, s):
        self.flight = frozenset(each for each in self.flight if s not in self.ends(each))

    def cut_link(self, a, b):
        self.cut |= {(a, b)}

    def heal(self, a, b):
        self.cut -= {(a, b)}

    def let_go_of(self, i, m):
        self.let_go |= 1 << m
        self.write(i, m, 0, told=True)

    def time_out(self, i, m):
        self.write(i, m, 0, told=True)

    def spill(self, i, m, s):
        """Postfix delivers it, and knows nothing of ids."""
        self.write(i, m, 0, told=True)
        self.put2("disk", s, m, self.disk[s][m] | 128)

    @staticmethod
    def ends(parcel):
        return (parcel[1],) if parcel[0] <= UNKNOWN else parcel[1:3]

    # --- steps

    def progress(self):
        """What programs do when nothing fails. Each step changes something."""
        shape = self.shape
        for link in self.cut:
            yield self.heal, link
        for s in range(shape.sites):
            if self.status[s] == AWAY or (self.status[s] == LOST and shape.returns):
                yield self.back_site, (s,)
        for i in range(shape.nodes):
            for j in range(shape.nodes):
                if self.node[i] is None and self.node[j] is not None and self.linked(i, j):
                    yield self.back_node, (i, j)
        for parcel in self.flight:
            yield from self.arrives(parcel)
        yield from self.sites_do()
        for i in range(shape.nodes):
            if self.node[i] is not None:
                for m in range(shape.mails):
                    yield from self.owner_does(i, m)
        for m in range(shape.mails):
            if not self.decided >> m & 1:
                if all(memory and memory[m] for memory in self.node):
                    yield self.promise, (m,)
                elif self.left != shape.faults or self.was_delivered(m):
                    yield self.give_up, (m,)
        for j in range(shape.nodes):
            for i in range(j):
                if None not in (self.node[i], self.node[j]) and self.linked(i, j) and \
                   any(self.decided >> m & 1 and self.node[i][m] != self.node[j][m]
                       for m in range(shape.mails)):
                    yield self.compare_owners, (i, j)

    def arrives(self, parcel):
        kind, a, b = parcel[:3]
        if kind <= UNKNOWN:
            if self.node[b] is None or self.reaches(b, a):
                yield self.take_answer, parcel
        elif self.meet(a, b):
            yield {OP: self.take_op, BODY: self.take_body,
                   CONFIRM: self.take_confirm}[kind], parcel

    def sites_do(self):
        shape, rules = self.shape, self.rules
        for s in range(shape.sites):
            if self.status[s] != UP:
                continue
            for m in range(shape.mails):
                if self.soft[s][m]:
                    yield self.place, (s, m)
            for t in range(shape.sites):
                if t == s or not self.meet(s, t):
                    continue
                if self.knows[s][t] != self.epoch[t]:
                    yield self.hello, (s, t)
                if not self.whole[s] and not self.met[s] >> t & 1 and \
                   (self.whole[t] or all(not w for w in self.whole)):
                    yield self.exchange, (s, t)
                for m in range(shape.mails):
                    lacks = self.disk[s][m] & ~self.disk[t][m] & ~self.soft[t][m]
                    believed = self.said[s][m] >> t & 1 and rules.unites
                    if lacks and not self.gone[t][m] and not believed:
                        if not self.op[t][m] and (OP, s, t, m) not in self.flight or \
                           (BODY, s, t, m, self.disk[s][m]) not in self.flight:
                            yield self.ship, (s, t, m)
                    if self.gone[s][m] and not self.gone[t][m] and \
                       (self.op[t][m] or self.disk[t][m]):
                        yield self.tell_removal, (s, t, m)
                    yield from self.confirms(s, t, m)

    def confirms(self, t, s, m):
        """t to s, if s has the mail, and as often as s does not know it."""
        if not self.disk[s][m] or not self.has(t, m):
            return
        if self.rules.unites and self.said[s][m] >> t & 1:
            return
        if not self.rules.unites and self.said[s][m] >= 2:
            return
        what = self.uid[s][m] if self.rules.names == "uid" else m
        if self.rules.names == "uid" and not what:
            return
        if self.rules.epochs and self.knows[s][t] != self.epoch[t]:
            return
        if (CONFIRM, t, s, what, self.epoch[t]) not in self.flight:
            yield self.confirm, (t, s, m)

    def owner_does(self, i, m):
        shape, entry = self.shape, self.node[i][m]
        if not entry:
            if not self.decided >> m & 1 and not self.was_delivered(m):
                yield self.store, (i, m)
            return
        if not self.serves(i):
            return
        state = entry & 15
        near = [s for s in range(shape.sites) if self.reaches(i, s)]
        if state == WAITING:
            if near:
                yield self.deliver, (i, m, near[0], 0)
            return
        s = state - RETAINED
        if s in near:
            word = self.answer(m, s)
            if word and (word, s, i, m) not in self.flight and not self.asked >> m & 1:
                yield self.ask, (i, m, s)
        elif self.rules.moves and near:
            yield self.deliver, (i, m, near[0], 0)
        if shape.away == "let go" and s in near and shape.want > 1 + sum(
                t != s and self.meet(s, t) for t in range(shape.sites)):
            yield self.let_go_of, (i, m)

    def fails(self):
        shape, left = self.shape, self.left
        sites, nodes = range(shape.sites), range(shape.nodes)
        if left.get("crashes"):
            for s in sites:
                if self.status[s] == UP:
                    yield "crashes", self.crash, (s,)
        if left.get("disks") and sum(not w for w in self.whole) < shape.want - 1:
            for s in sites:
                if self.status[s] != LOST and self.whole[s]:
                    yield "disks", self.lose_disk, (s,)
        if left.get("memories") and self.node.count(None) < shape.nodes - 1:
            for i in nodes:
                if self.node[i] is not None:
                    yield "memories", self.lose_memory, (i,)
        if left.get("lanes"):
            for s in sites:
                if any(s in self.ends(each) for each in self.flight):
                    yield "lanes", self.empty_lanes, (s,)
        if left.get("cuts"):
            ends = [*nodes, *(SITE + s for s in sites)]
            for a in ends:
                for b in ends:
                    if a < b and (a, b) not in self.cut:
                        yield "cuts", self.cut_link, (a, b)
        for i in nodes:
            for m in range(shape.mails):
                if self.node[i] is not None and self.node[i][m]:
                    yield from self.owner_fails(i, m)
        if left.get("removals"):
            for s in sites:
                for m in range(shape.mails):
                    if self.status[s] == UP and self.disk[s][m]:
                        yield "removals", self.remove, (s, m)
        if left.get("repeats"):
            for parcel in self.flight:
                if parcel[0] == CONFIRM and self.meet(*parcel[1:3]):
                    yield "repeats", self.take_confirm, (*parcel, True)

    def owner_fails(self, i, m):
        left, state = self.left, self.node[i][m] & 15
        if left.get("kills") and self.serves(i):
            near = [s for s in range(self.shape.sites) if self.reaches(i, s)]
            if near and (state == WAITING or state - RETAINED not in [-1, *near]):
                yield "kills", self.deliver, (i, m, near[0], 1)
                yield "kills", self.deliver, (i, m, near[0], 2)
            for parcel in self.flight:
                if parcel[0] == SAFE and parcel[2:] == (i, m):
                    yield "kills", self.take_answer, (*parcel, True)
        if state >= RETAINED and self.promised >> m & 1:
            if self.rules.timeout:
                yield None, self.time_out, (i, m)
            if self.rules.spills and self.status[0] == UP:
                yield None, self.spill, (i, m, 0)

    def steps(self):
        return [*((None, *step) for step in self.progress()), *self.fails()]

    def after(self, step):
        fault, what, values = step
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        if fault:
            new.left = {**self.left, fault: self.left[fault] - 1}
        what.__func__(new, *values)
        return new


def told(step):
    return f"{step[1].__name__}{step[2]}"
