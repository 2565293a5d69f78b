"""All that one register may be: an OR-Set at several sites, and every order that a history allows.

A register is one flag of a mail, one subscription, one mail in one folder, or whether a folder is
there. Each change makes a dot, or takes dots away that its site has seen. `Search` walks through
the moments of a history and keeps the set of all configurations that are possible then:

- an operation takes effect in one moment between its invocation and its response. One without a
  response takes effect in any later moment, or never;
- a site sees its own changes at once, and those of another site in the order in which they were
  made there, each at any moment after it was made. What a site has seen it does not forget;
- nothing crosses a link that is cut, though it may go round by a third site;
- a read shows what its site had seen in one moment between invocation and response;
- at rest every site has seen everything.

So the order is taken for known only where two operations of one site do not overlap, where one
was answered before the other began (who was first cannot have seen the second), where the network
was cut, and at rest. Everything else may be in either order. A history is refused if no
configuration is left. What a read shows must be true of some moment of the same walk: so a site
that forgets its own client's change, or shows one that it had lost, is refused, too.

A site sees lazily here: only when one of its operations needs to have seen something. `available`
says what it could have seen. That keeps all outcomes, and few configurations.
"""

from dataclasses import dataclass
from itertools import product

# Beyond these a register is left undecided: configurations at once, and views tried in all.
MOST, TRIES = 1000, 50_000


@dataclass(frozen=True)
class Step:
    """One operation, as a register knows it.

    act: what `outcomes` of the register's kind knows; value: what a read showed.
    sure: it took effect if it was answered. Else it may have had none.
    """

    id: int
    site: str
    invoked: float
    responded: float  # None: no answer
    act: str
    sure: bool = True
    value: object = None


BASE = -1  # the dot of what was there at the last rest


class Flag:
    """Setting wins over a clearing that has not seen it."""

    undoes = False
    final = staticmethod(lambda labels: bool(labels))

    @staticmethod
    def outcomes(step, alive):
        """[(label of a new dot or None, dots that are gone)]: what it may do where `alive`
        ({dot: label}) is seen. Who sets what is set may say so again, or say nothing."""
        if step.act == "set":
            return [(1, frozenset())] + ([(None, frozenset())] if alive else [])
        return [(None, frozenset(alive))]

    @staticmethod
    def shows(value, labels):
        return bool(labels) == value


class Keyword(Flag):
    """As Flag; but who clears a keyword and sets it again before his site has looked has done
    nothing (docs/replicator/limits.md, "What is missing")."""

    undoes = True


class Cleared:
    r"""\Deleted: clearing wins over a setting that has not seen it. Label 1 is set, 0 cleared."""

    undoes = False
    final = staticmethod(lambda labels: 1 in labels and 0 not in labels)

    @staticmethod
    def outcomes(step, alive):
        on, off = ([dot for dot, label in alive.items() if label == one] for one in (1, 0))
        shown = bool(on) and not off
        if step.act == "set":
            return [(1, frozenset(off))] + ([(None, frozenset())] if shown else [])
        return [(0, frozenset(on))] + ([(None, frozenset())] if not shown else [])

    @staticmethod
    def shows(value, labels):
        return Cleared.final(labels) == value


class Copies:
    """How many copies of one mail a folder has. Labels number them: a copy takes the smallest
    number that its site does not have, so copies that two sites make at once are one."""

    undoes = False
    final = staticmethod(lambda labels: len(set(labels)))

    @staticmethod
    def outcomes(step, alive):
        labels = set(alive.values())
        if step.act == "add":
            number = next(n for n in range(1, len(labels) + 2) if n not in labels)
            return [(number, frozenset())]
        if step.act == "wipe":  # the whole folder
            return [(None, frozenset(alive))]
        # Which of several a UID was is not asked; and it may be gone by then, or be another UID's.
        one = [
            (None, frozenset(dot for dot, label in alive.items() if label == gone))
            for gone in sorted(labels)
        ]
        return one + [(None, frozenset())]

    @staticmethod
    def shows(value, labels):
        """While a mail gets another UID it is shown under both, so more than one says nothing."""
        return bool(labels) == bool(value)


@dataclass(frozen=True)
class Config:
    """done: for each site its changes in their order, (step, label, dots gone); seen and
    available: for each site how many of each site's changes; read: steps that took effect and
    whose response has not come."""

    done: tuple
    seen: tuple
    available: tuple
    read: frozenset


def can_all(one, other):
    """Whether one can do all that the other can, which has the same changes."""
    return all(
        a <= b for low, high in zip(one.seen, other.seen) for a, b in zip(low, high)
    ) and all(
        a >= b for low, high in zip(one.available, other.available) for a, b in zip(low, high)
    )


class Search:
    """Judges one register of one phase."""

    def __init__(self, kind, sites, steps, links=(), base=(), limit=MOST):
        """base: labels that are there at the beginning, known to all sites. links: [Link]."""
        self.kind, self.sites, self.limit = kind, list(sites), limit
        self.steps = {step.id: step for step in steps}
        self.at = {site: n for n, site in enumerate(self.sites)}
        self.base = {BASE - n: label for n, label in enumerate(base)}
        self.open = self.everything()
        self.moments = self.timeline(steps, links)
        self.undecided, self.tries = False, 0

    def everything(self):
        return frozenset((i, j) for i in range(len(self.sites)) for j in range(i))

    def pairs(self, names):
        found = set()
        for name in names:
            one, other = sorted((self.at[site] for site in name.split("-")), reverse=True)
            found.add((one, other))
        return frozenset(found)

    def timeline(self, steps, links):
        """(time, rank, what): a link is open from the beginning of a heal, and until a cut is
        done. At one time a response comes after an invocation: then they overlap."""
        moments = []
        for step in steps:
            moments.append((step.invoked, 0, ("invoked", step)))
            if step.responded is not None:
                moments.append((step.responded, 2, ("responded", step)))
        for link in links:
            pairs = self.pairs(link.open)
            moments.append((link.began, 1, ("healed", pairs)))
            moments.append((link.ended, 1, ("cut", pairs)))
        return sorted(moments, key=lambda moment: moment[:2])

    # -- configurations --------------------------------------------------------------------------

    def alive(self, config, seen):
        """{dot: label} where so many changes of each site are seen."""
        dots, gone = dict(self.base), set()
        for origin, number in enumerate(seen):
            for step, label, kills in config.done[origin][:number]:
                if label is not None:
                    dots[step] = label
                gone |= kills
        return {dot: label for dot, label in dots.items() if dot not in gone}

    def spread(self, config):
        """What may have come to each site by now."""
        available = [list(row) for row in config.available]
        moved = True
        while moved:
            moved = False
            for one, other in self.open:
                for mine, theirs in (
                    (available[one], available[other]),
                    (available[other], available[one]),
                ):
                    for origin, number in enumerate(theirs):
                        if mine[origin] < number:
                            mine[origin], moved = number, True
        return Config(config.done, config.seen, tuple(map(tuple, available)), config.read)

    def views(self, config, site):
        """All that a site may have seen now, the least first."""
        ranges = [
            range(low, high + 1) for low, high in zip(config.seen[site], config.available[site])
        ]
        return sorted(product(*ranges), key=sum)

    def execute(self, config, step):
        """All configurations after this step took effect. Of those with the same outcome only
        the ones that have seen least: they may see the rest later."""
        site, found = self.at[step.site], {}
        for seen in self.views(config, site):
            self.tries += 1
            alive = self.alive(config, seen)
            if step.act == "read":
                outcomes = [None] if self.kind.shows(step.value, alive.values()) else []
            else:
                outcomes = self.kind.outcomes(step, alive)
                if not step.sure:
                    outcomes = [*outcomes, (None, frozenset())]
            for outcome in outcomes:
                kept = found.setdefault(outcome, [])
                if not any(all(a <= b for a, b in zip(less, seen)) for less in kept):
                    kept.append(seen)
        after = {
            self.after(config, step, site, outcome, seen)
            for outcome, kept in found.items()
            for seen in kept
        }
        return after | self.undone(config, step, site)

    def undone(self, config, step, site):
        """The change before was a clearing that nobody else has seen: both did nothing."""
        row = config.done[site]
        if (
            not self.kind.undoes
            or step.act != "set"
            or not row
            or row[-1][1] is not None
            or any(seen[site] == len(row) for n, seen in enumerate(config.seen) if n != site)
        ):
            return set()
        done = (
            *config.done[:site],
            (*row[:-1], (row[-1][0], None, frozenset())),
            *config.done[site + 1 :],
        )
        return {Config(done, config.seen, config.available, config.read | {step.id})}

    def after(self, config, step, site, outcome, seen):
        done, available = config.done, config.available
        if outcome is not None and (outcome[0] is not None or outcome[1]):
            row = (*done[site], (step.id, *outcome))
            done = (*done[:site], row, *done[site + 1 :])
            seen = (*seen[:site], len(row), *seen[site + 1 :])
            own = (*available[site][:site], len(row), *available[site][site + 1 :])
            available = (*available[:site], own, *available[site + 1 :])
        seen = (*config.seen[:site], seen, *config.seen[site + 1 :])
        return self.spread(Config(done, seen, available, config.read | {step.id}))

    def reach(self, configs, pending, until=None):
        """Everything that can be reached by letting pending steps take effect; with `until`: all
        in which that one has, and nothing after it."""
        found, work, reached = set(configs), list(configs), set()
        while work:
            config = work.pop()
            if until is not None and until in config.read:
                reached.add(config)
                continue
            for step in pending:
                if step in config.read:
                    continue
                for fresh in self.execute(config, self.steps[step]):
                    if fresh not in found:
                        found.add(fresh)
                        work.append(fresh)
            if len(found) > self.limit or self.tries > TRIES:
                self.undecided = True
                return set()
        return found if until is None else reached

    @staticmethod
    def kept(configs):
        """Without those that another one can do all for: it has seen less, and may see more."""
        alike = {}
        for config in configs:
            others = alike.setdefault((config.done, config.read), [])
            if any(can_all(other, config) for other in others):
                continue
            others[:] = [other for other in others if not can_all(config, other)]
            others.append(config)
        return {config for others in alike.values() for config in others}

    # -- the verdict -----------------------------------------------------------------------------

    def run(self, final=None):
        """None, or a complaint. final: {site: what is shown at rest}; None: it is not known."""
        nothing = tuple((0,) * len(self.sites) for _ in self.sites)
        configs = {Config(tuple(() for _ in self.sites), nothing, nothing, frozenset())}
        pending = []
        for _, _, (what, thing) in self.moments:
            if what == "invoked":
                pending.append(thing.id)
            elif what == "responded":
                configs = self.reach(configs, pending, thing.id)
                pending.remove(thing.id)
                configs = self.kept(
                    {Config(c.done, c.seen, c.available, c.read - {thing.id}) for c in configs}
                )
            elif what == "healed":
                self.open = self.open | thing
                configs = {self.spread(config) for config in configs}
            else:
                configs = self.reach(configs, pending)
                self.open = thing
            if self.undecided:
                return None
            if not configs:
                return f"impossible at {thing}"
        configs = self.reach(configs, pending)
        if self.undecided or final is None:
            return None
        allowed = {
            self.kind.final(self.alive(c, [len(row) for row in c.done]).values()) for c in configs
        }
        wrong = {site: value for site, value in final.items() if value not in allowed}
        return f"shows {wrong} at rest, allowed is {sorted(allowed)}" if wrong else None
