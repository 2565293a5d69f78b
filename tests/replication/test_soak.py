"""Three replicas, twenty users, clients at all of them, kills and partitions at random from a seed; equal after each heal."""
import os
import random
import time

import pytest
from stack import digest
from stack.journal import Journal
from stack.traffic import Traffic, make_folders
from test_kill import VICTIMS, hit

# The goal is 30 s on a machine of its own; on a shared one this only guards against waiting for ever. The time is printed.
WITHIN = 420.0
OPERATIONS = 1000
USERS = [f"s{n}@example.org" for n in range(20)]
SEED = int(os.environ.get("DOVELANE_SEED", "41"))


def partition(group, dice, journal):
    """Cuts one site off, or all from each other. What was done."""
    who = dice.choice([None, *(replica.letter for replica in group.replicas)])
    how = dice.choice(["cut", "silence"])
    group.cut(who, how=how)
    journal.partitions.append((who, time.monotonic(), None))
    modes = {name: link["mode"] for name, link in group.network(do="state").items()}
    assert how in modes.values(), modes
    return f"{how} {who or 'all'}"


def heal(group, journal):
    now = time.monotonic()
    journal.partitions[:] = [(who, began, ended or now) for who, began, ended in journal.partitions]
    group.heal()


def one_round(group, number, seed, journal):
    """At least 1,000 answered operations among faults; then heal, and all is equal and as the journal says."""
    dice, faults, wanted = random.Random(f"{seed}/{number}"), [], journal.acknowledged + OPERATIONS
    with Traffic(group.replicas, USERS, journal, seed=f"{seed}/{number}", run=f"r{number}", imap=2, lmtp=1) as traffic:
        while journal.acknowledged < wanted:
            assert traffic.wait(dice.randrange(40, 160), 300), f"traffic stands still after {faults}"
            kind = dice.choice(["kill", "kill", "partition", "heal"])
            if kind == "kill":
                what = hit(group, dice, dice.choice(VICTIMS))
                faults += [f"kill {what}"] if what else []
            elif kind == "partition":
                faults.append(partition(group, dice, journal))
            else:
                heal(group, journal)
    heal(group, journal)
    began = time.monotonic()
    try:
        agreed = digest.wait_equal(group.replicas, USERS, WITHIN, moving=journal.moving(group.rebuilt))
    except AssertionError as error:
        raise AssertionError(f"round {number} of seed {seed} after {faults}: {error}") from None
    took = time.monotonic() - began
    complaints = journal.judge({user: next(iter(digests.values())) for user, digests in agreed.items()}, group.rebuilt())
    assert not complaints, f"round {number} of seed {seed} after {faults}:\n" + "\n".join(complaints[:30])
    assert faults, "no fault happened"
    equal, total = (sum(column) for column in zip(*(digest.same_uids(digests) for digests in agreed.values())))
    print(f"round {number}: {journal.acknowledged} answered, {journal.unanswered} not, equal after {took:.1f} s, UIDs {equal}/{total}, "
          f"faults: {', '.join(faults)}", flush=True)


def soak(group, rounds):
    journal = Journal()
    make_folders(group.replicas, USERS)
    for number in range(rounds):
        one_round(group, number, SEED, journal)


def test_soak(group):
    soak(group("sdbox", "mdbox", "maildir"), 2)


@pytest.mark.long
@pytest.mark.parametrize("specs", [("sdbox", "mdbox", "maildir"), ("sdbox@2.3", "maildir@2.4", "mdbox@2.4")], ids=" ".join)
def test_long_soak(group, specs):
    soak(group(*specs), int(os.environ.get("DOVELANE_SOAK_ROUNDS", "25")))
