#!/usr/bin/python3
"""A mail leaves the lanes when it is on the disks of enough sites: a model of docs/two-disks.md.

Mails that owners store and promise, relays that deliver them by LMTP, sites that ship op and body
to each other, confirm, and answer the relays' questions, in any order. Each site has a disk, each
owner a memory. Properties, checked in every state:

- a mail that was answered 250 is in an owner's memory, or on `sites` disks, where a site that lost
  its disk counts until it has compared itself with all others; or the rule `let go` let it go,
  counted; or its user removed it;
- from every state on, when nothing more fails, all comes to rest. Then each mail is shown once at
  each site that is there, and no owner holds an entry, but under `keep` while fewer than `sites`
  sites exist.

Not in it, since other models and tests have it: how owners compare (tests/model/rules.c), that two
deliveries of one GUID are one message (orset-simulate), order, revocation. Nothing has a duration.

two_disks.py [--long | --stories]   all states with few faults, then random orders of many faults;
                                    then each rule that is broken on purpose must be noticed

two_disks_world.py has the programs' rules and steps; here is what walks through them.
"""
from collections import deque
import random
import sys

from two_disks_world import BODY, OP, Rules, Shape, World, told


def explore(shape, rules=Rules(), most=None, deep=True):
    """All states. (how many, what went wrong, the story of it). A state from which progress leads
    to no rest is wrong, too: `onward` has one step of progress for each."""
    first = World(shape, rules)
    for name, *values in shape.story:
        getattr(first, name)(*values)
    start = first.key()
    came, onward, todo = {start: None}, {}, deque([(first, start)])
    while todo:
        world, key = todo.pop() if deep else todo.popleft()
        steps = world.steps()
        rests = not steps or steps[0][0] is not None or \
            steps[0][1].__name__ in ("time_out", "spill")
        wrong = world.wrong() or (rests and world.wrong_at_rest())
        if wrong or (most and len(came) > most):
            return len(came), wrong, story(came, key) if wrong else None
        for number, step in enumerate(steps):
            new = world.after(step)
            other = new.key()
            if number == 0 and not rests:
                onward[key] = other
            if other not in came:
                came[other] = (key, told(step))
                todo.append((new, other))
    return len(came), restless(onward), None


def restless(onward):
    """Each chain of progress must end."""
    ends = set()
    for key in onward:
        chain, on = [], set()
        while key in onward and key not in ends:
            if key in on:
                return "stuck: it does not come to rest"
            on.add(key)
            chain.append(key)
            key = onward[key]
        ends.update(chain)
    return None


def story(came, key):
    steps = []
    while came[key]:
        key, step = came[key]
        steps.append(step)
    return steps[::-1]


def walk(seed, rules=Rules(), shape=None):
    """One random order with many faults."""
    dice = random.Random(seed)
    sites = dice.choice([2, 2, 3, 3, 4])
    shape = shape or Shape(dice.randint(1, 5), dice.randint(2, 3), sites, dice.randint(2, sites),
                  dice.choice(["keep", "keep", "let go"]), dice.random() < 0.8,
                  [0] if dice.random() < 0.2 else [], dice.random() < 0.5,
                  crashes=dice.randint(0, 3), disks=dice.randint(0, 3), memories=dice.randint(0, 3),
                  lanes=dice.randint(0, 2), cuts=dice.randint(0, 4), kills=dice.randint(0, 3),
                  removals=dice.randint(0, 1), repeats=dice.randint(0, 3))
    world, done = World(shape, rules), []
    chance = dice.choice([0.05, 0.2, 0.5])
    for _ in range(3000):
        if wrong := world.wrong():
            return wrong, done
        progress = list(world.progress())
        faults = list(world.fails())
        if not progress and (wrong := world.wrong_at_rest()):
            return wrong, done
        if not progress and not faults:
            return None, done
        if faults and (not progress or dice.random() < chance):
            step = dice.choice(faults)
        else:
            step = (None, *dice.choice(progress))
        done.append(told(step))
        world = world.after(step)
    return "stuck: it does not come to rest", done


SHORT = [
    Shape(crashes=1, disks=1),
    Shape(cuts=1, kills=1),
    Shape(disks=1, returns=False),
    Shape(disks=1, returns=False, away="let go"),
    Shape(accepted=False, memories=1, kills=1),
    Shape(discards=[0], disks=1, kills=1),
    Shape(removals=1, kills=1, lanes=1),
    Shape(mails=2),
]
LONG = [
    Shape(disks=1, memories=1),
    Shape(sites=3),
    Shape(disks=1, removals=1),
    Shape(crashes=1, memories=1, kills=1, lanes=1),
    Shape(nodes=3, memories=2, kills=1),
    Shape(cuts=1, kills=1, lanes=1, away="let go"),
    Shape(disks=2),
    Shape(cuts=1, disks=1),
]


def placed(s, t, m):
    """Mail m is shipped from s to t; what t confirms is on its way."""
    return [("ship", s, t, m), ("take_op", OP, s, t, m), ("take_body", BODY, s, t, m, 1),
            ("place", t, m), ("confirm", t, s, m)]


# A confirmation is late: its receiver came back from an old backup, and has another mail by then
BACKUP = Shape(2, nodes=1, story=[
    ("deliver", 0, 0, 0, 0), *placed(0, 1, 0), ("lose_disk", 0), ("back_site", 0), ("hello", 0, 1),
    ("deliver", 0, 1, 0, 0), ("exchange", 0, 1)])
# ... or its sender lost its disk as well, and both have exchanged with a third
THREE = Shape(nodes=1, sites=3, want=3, story=[
    ("deliver", 0, 0, 0, 0), *placed(0, 1, 0), ("lose_disk", 0), ("lose_disk", 1),
    ("back_site", 0), ("back_site", 1), ("exchange", 0, 2), ("exchange", 1, 2), ("exchange", 1, 0),
    ("deliver", 0, 0, 0, 0), *placed(0, 2, 0)])
SHORT += [BACKUP, THREE]
# what is done otherwise, how, and the faults with which it shows
MUTANTS = {
    "acked at delivery, as today": (dict(retains="nobody"), Shape(disks=1)),
    "only the owner that delivered retains":
        (dict(retains="server"), Shape(disks=1, memories=1)),
    "owners let go by time": (dict(timeout=True), Shape(disks=1)),
    "confirmed with the op, without the body": (dict(confirms="op"), Shape(disks=1)),
    "confirmed before the body is on the disk":
        (dict(confirms="memory"), Shape(nodes=1, crashes=1, disks=1)),
    "a confirmation names the mailbox's UID": (dict(names="uid"), BACKUP),
    "a confirmation names the entry, for all its recipients":
        (dict(names="entry"), Shape(2, nodes=1, disks=1)),
    "confirmations are counted, not the sites":
        (dict(unites=False), Shape(nodes=1, sites=3, want=3)),
    "a confirmation counts whose disk was lost since": (dict(epochs=False), THREE),
    "a site with an old backup goes on without an exchange":
        (dict(compares=False), Shape(disks=2)),
    "a site that has lost the mail does not say so": (dict(unknown=False), Shape(disks=1)),
    "a lost site's mail is not given to the next one":
        (dict(moves=False), Shape(disks=1, returns=False)),
    "a question is asked once": (dict(asks_again=False), Shape(lanes=1)),
    "a mail that its user removed needs copies": (dict(removals=False), Shape(removals=1)),
    "a mail that Sieve discarded needs copies": (dict(discards=False), Shape(discards=[0])),
    "the site is part of a mail's GUID": (dict(guid="site"), Shape(crashes=1)),
    "retained entries are spilled to Postfix's queue": (dict(spills=True), Shape()),
}


def noticed(how, shape):
    """What comes of a mutant, and its story: a loss if one is found soon, else what may become
    one."""
    for strict in (False, True):
        rules, most = Rules(strict=strict, **how), 10000 if strict else 5000
        _, wrong, steps = explore(shape, rules, most, deep=False)
        if wrong:
            return wrong, steps
    return None, None


def main(long, stories):
    total = 0
    for shape in SHORT + LONG * long:
        states, wrong, steps = explore(shape)
        total += states
        print(f"{shape}: {states} states", flush=True)
        if wrong:
            sys.exit(f"{wrong}: {' '.join(steps or [])}")
    walks = 10000 if long else 200
    for seed in range(walks):
        wrong, steps = walk(seed)
        if wrong:
            sys.exit(f"seed {seed}: {wrong}: {' '.join(steps)}")
    print(f"{total} states, {walks} random orders")
    for name, (how, shape) in MUTANTS.items():
        wrong, steps = noticed(how, shape)
        if not wrong:
            sys.exit(f"not noticed: {name}")
        print(f"{name}: {wrong}" + ("\n    " + " ".join(steps) if stories else ""), flush=True)


if __name__ == "__main__":
    main("--long" in sys.argv[1:], "--stories" in sys.argv[1:])
