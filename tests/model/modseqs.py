#!/usr/bin/python3
"""Modseqs across sites: a client that was told anything anywhere is told everywhere what it lacks.

A model of docs/replication-protocol.md, "Modseqs". Sites change mails, send batches and RAISEs to
each other, apply and settle, in any order. Beside them goes each client that there could be: one
that visits any site at any time. It knows what it was told, and the HIGHESTMODSEQ that it was told
last. When nothing is on its way any more, each client must be told at each site what it lacks.

A mail is a set of changes, an expunge is a change like another: its record in the log is written
again where a mail's modseq is raised. A site may lose its index, or its folder goes and comes back:
its modseqs begin again, and all its mails are raised above what clients were told of the old one.

modseqs.py [--long]   all orders of a few steps, then random ones of many; then each rule that is
                      left out on purpose must be noticed

The rule that a mail is not raised again where it has that modseq is what lets three sites come to
rest: without it RAISEs that overtake each other beget others for ever.
"""
import random
import sys

NOTHING = (None, 0, frozenset(), False, None)
# of a site's mailbox: lo, hi, mails that wait to be settled, whether they conflict, and
# HIGHESTMODSEQ before changes were written here for them


class Rules:
    """What a site does. A mutant leaves something out."""

    def __init__(self, **left_out):
        self.raises = left_out.pop("raises", True)        # a conflict is answered by a RAISE
        self.checks = left_out.pop("checks", True)        # a RAISE that comes too late is one, too
        self.unwritten = left_out.pop("unwritten", True)  # equal flags get a modseq, too
        self.lands = left_out.pop("lands", True)          # what is applied gets the sender's modseq
        self.goes_on = left_out.pop("goes_on", True)      # a new index goes on above the old one
        self.collides = left_out.pop("collides", True)    # and what comes before is a conflict
        assert not left_out


class Group:
    """Sites with one mailbox of some mails, lanes between them, and all clients there can be.

    site: [HIGHESTMODSEQ, (changes, modseq) of each mail, settling, highest that was heard]
    scan: changes of clients that no batch told yet: [lo, hi, {mail: changes}]
    lanes[i][j]: parcels from i to j, in their order
    clients: per mail, (what is known of it, HIGHESTMODSEQ): what any client can have come to
    """

    def __init__(self, sites, mails, rules, highest, losses=0):
        self.n, self.mails, self.rules = sites, mails, rules
        self.high = list(highest)
        self.mail = [[(0, 1)] * mails for _ in range(sites)]
        self.settling = [NOTHING] * sites
        self.floor = [0] * sites  # above what clients were told of the index that was lost
        self.heard = [0] * sites
        self.scan = [None] * sites
        self.lanes = [[() for _ in range(sites)] for _ in range(sites)]
        self.changes, self.losses = 0, losses
        self.clients = [{(0, h) for h in self.high} | {(0, 0)} for _ in range(mails)]

    def copy(self):
        new = object.__new__(Group)
        new.n, new.mails, new.rules, new.changes = self.n, self.mails, self.rules, self.changes
        new.losses, new.floor = self.losses, self.floor[:]
        new.high, new.mail = self.high[:], [m[:] for m in self.mail]
        new.settling, new.heard, new.scan = self.settling[:], self.heard[:], self.scan[:]
        new.lanes = [lane[:] for lane in self.lanes]
        new.clients = [set(c) for c in self.clients]
        return new

    def key(self):
        return (tuple(self.high), tuple(map(tuple, self.mail)), tuple(self.settling),
                tuple(self.heard), tuple(self.scan), tuple(map(tuple, self.lanes)), self.changes,
                self.losses, tuple(self.floor),
                tuple(frozenset(c) for c in self.clients))

    # --- clients

    def visits(self):
        """Each client may come to each site at this moment, again and again."""
        for m, known in enumerate(self.clients):
            todo = list(known)
            while todo:
                has, since = todo.pop()
                for i in range(self.n):
                    changes, modseq = self.mail[i][m]
                    # Some keep the highest HIGHESTMODSEQ that they ever were told.
                    for told in {self.high[i], max(since, self.high[i])}:
                        after = (changes if modseq > since else has, told)
                        if after not in known:
                            known.add(after)
                            todo.append(after)

    def misses(self):
        """Of a group in which nothing is on its way: a client that some site tells too little."""
        for m, known in enumerate(self.clients):
            for i in range(self.n):
                changes, modseq = self.mail[i][m]
                for has, since in known:
                    if has != changes and modseq <= since:
                        return f"site {i} does not tell mail {m} to who has {has:b} of " \
                               f"{changes:b} and {since}, but {modseq}"
        return None

    # --- sites

    def change(self, i, m):
        """A client changes a mail."""
        self.high[i] += 1
        bit = 1 << self.changes
        self.changes += 1
        self.mail[i][m] = (self.mail[i][m][0] | bit, self.high[i])
        lo, _, told = self.scan[i] or (self.high[i], 0, ())
        self.scan[i] = (lo, self.high[i], told + ((m, bit),))

    def lose(self, i):
        """Its index is another one. What clients changed and no batch told is found by comparing,
        so that it is not known under which modseqs."""
        self.losses -= 1
        told, self.high[i] = max(self.high[i], self.floor[i]), 1
        self.mail[i] = [(changes, 1) for changes, _ in self.mail[i]]
        if self.scan[i]:
            self.scan[i] = (0, 1, self.scan[i][2])
        if self.rules.goes_on:
            waits = bool(self.settling[i][2])
            self.note(i, told + 1, told + 1, frozenset(range(self.mails)))
            self.floor[i] = told + 1
            self.collides(i, waits)

    def begins(self, i):
        return self.high[i] < self.floor[i]

    def collides(self, i, does):
        """What comes before a new index went on above the old one: who was told more than that
        has it may be a client of the old one."""
        lo, hi, mails, conflict, before = self.settling[i]
        self.settling[i] = (lo, hi, mails, conflict or (does and self.rules.collides), before)

    def ship(self, i):
        """The site looks at its mailbox, and tells what clients changed."""
        lo, hi, told = self.scan[i]
        if lo < self.floor[i]:
            lo, hi = 0, max(hi, self.floor[i])
        self.scan[i] = None
        self.send(i, ("batch", lo, hi, told))

    def send(self, i, parcel):
        for j in range(self.n):
            if j != i:
                self.lanes[i][j] += (parcel,)

    def note(self, i, lo, hi, mails):
        was_lo, was_hi, was, conflict, before = self.settling[i]
        self.settling[i] = (lo if was_lo is None else min(lo, was_lo), max(hi, was_hi),
                            was | mails, conflict, before)
        self.heard[i] = max(self.heard[i], hi)

    def take(self, i, j, equal=False):
        """j takes i's next parcel. equal: its mails have the flags that it sets already."""
        kind, lo, hi, told = self.lanes[i][j][0]
        self.lanes[i][j] = self.lanes[i][j][1:]
        if kind == "raise":
            late = lo < self.floor[j] and self.rules.collides
            if mails := frozenset(m for m in told if late or self.mail[j][m][1] < lo):
                self.note(j, lo, hi, mails)
                self.collides(j, self.begins(j))
            return
        self.note(j, lo, hi, frozenset(m for m, _ in told))
        self.collides(j, self.begins(j))
        if equal:
            for m, bit in told:
                self.mail[j][m] = (self.mail[j][m][0] | bit, self.mail[j][m][1])
            return
        lo, hi, mails, conflict, before = self.settling[j]
        conflict = conflict or self.high[j] >= lo
        before = self.high[j] if before is None else before
        self.high[j] += 1
        for m, bit in told:
            self.mail[j][m] = (self.mail[j][m][0] | bit, self.high[j])
        self.settling[j] = (lo, hi, mails, conflict, before)

    def settle(self, i):
        """What was applied gets modseqs that hold at all sites."""
        lo, hi, mails, conflict, before = self.settling[i]
        now = self.high[i]
        if before is None:
            conflict = conflict or (self.rules.checks and now >= lo)
        else:
            unwritten = any(self.mail[i][m][1] <= before for m in mails) and self.rules.unwritten
            conflict = conflict or unwritten or (now >= lo and lo != before + 1) or \
                (now >= hi and hi != before + 1)
        self.settling[i] = NOTHING
        if not conflict:
            if now < hi and self.rules.lands:
                self.raise_mails(i, mails, hi)
            return
        if not self.rules.raises:
            self.raise_mails(i, mails, max(now, self.heard[i]) + 1)
            return
        value = max(now, self.heard[i]) + 1 + i
        self.raise_mails(i, mails, value)
        self.send(i, ("raise", value, value, tuple(sorted(mails))))

    def raise_mails(self, i, mails, value):
        for m in mails:
            self.mail[i][m] = (self.mail[i][m][0], max(value, self.mail[i][m][1]))
        self.high[i] = max(self.high[i], value)

    # --- steps

    def steps(self, changes):
        for i in range(self.n):
            if self.scan[i]:
                yield self.ship, (i,)
            if self.settling[i][2]:
                yield self.settle, (i,)
            for j in range(self.n):
                if self.lanes[i][j]:
                    yield self.take, (i, j)
                    if self.lanes[i][j][0][0] == "batch":
                        yield self.take, (i, j, True)
            if self.losses > 0:
                yield self.lose, (i,)
            if self.changes < changes:
                for m in range(self.mails):
                    yield self.change, (i, m)

    def do(self, step):
        step[0].__func__(self, *step[1])
        self.visits()


def explore(sites, mails, changes, highest, losses=0, rules=Rules(), most=20):
    """All orders. (states, what went wrong)"""
    first = Group(sites, mails, rules, highest, losses)
    first.visits()
    seen, todo = {first.key()}, [first]
    while todo:
        group = todo.pop()
        steps = list(group.steps(changes))
        if all(step[0].__name__ in ("change", "lose") for step in steps) and (wrong := group.misses()):
            return len(seen), wrong
        if max(group.high) > max(highest) + most:
            return len(seen), "the numbers run away"
        for step in steps:
            new = group.copy()
            new.do(step)
            if (key := new.key()) not in seen:
                seen.add(key)
                todo.append(new)
    return len(seen), None


def walk(seed, rules=Rules()):
    """One random order of many steps, with times at which nothing is on its way."""
    dice = random.Random(seed)
    sites, mails = dice.randint(2, 4), dice.randint(1, 4)
    group = Group(sites, mails, rules, [dice.randint(1, 6) for _ in range(sites)])
    group.visits()
    for _ in range(dice.randint(1, 4)):
        group.losses = dice.choice([0, 0, 1, 2])
        changes = group.changes + dice.randint(1, 12)
        idle = 0
        while steps := list(group.steps(changes)):
            quiet = [s for s in steps if s[0].__name__ not in ("change", "lose")]
            group.do(dice.choice(steps if dice.random() < 0.5 or not quiet else quiet))
            idle = idle + 1 if group.changes == changes else 0
            if idle > 400 * sites * mails:
                return "it does not come to rest"
        if wrong := group.misses():
            return wrong
    return None


MUTANTS = {
    "no RAISE": Rules(raises=False),
    "a RAISE that comes too late is taken": Rules(checks=False),
    "a mail whose flags are equal already gets no modseq": Rules(unwritten=False),
    "what is applied keeps the next modseq of its site": Rules(lands=False),
    "a new index begins again": Rules(goes_on=False),
    "what comes before a new index went on is no conflict": Rules(collides=False),
}


def main(long):
    shapes = [(2, 1, 2, (2, 2), 0), (2, 1, 3, (2, 4), 0), (2, 2, 2, (1, 3), 0),
              (3, 1, 1, (2, 1, 3), 0), (2, 1, 2, (2, 4), 1)]
    shapes += [(2, 2, 3, (2, 3), 0), (3, 1, 2, (1, 1, 1), 0), (2, 2, 2, (1, 3), 1)] if long else []
    for sites, mails, changes, highest, losses in shapes:
        states, wrong = explore(sites, mails, changes, highest, losses)
        print(f"{sites} sites, {mails} mails, {changes} changes, {losses} lost indexes: "
              f"{states} states", flush=True)
        if wrong:
            sys.exit(wrong)
    walks = 10000 if long else 100
    for seed in range(walks):
        if wrong := walk(seed):
            sys.exit(f"seed {seed}: {wrong}")
    print(f"{walks} random orders")
    for name, rules in MUTANTS.items():
        if not explore(2, 2, 2, (1, 3), rules=rules)[1] and \
           not explore(2, 1, 2, (2, 4), 1, rules)[1] and not any(walk(s, rules) for s in range(200)):
            sys.exit(f"not noticed: {name}")


if __name__ == "__main__":
    main("--long" in sys.argv[1:])
