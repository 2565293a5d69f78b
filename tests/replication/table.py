"""Runs rows of the scenario table on one group, all of them together: one partition serves every row, a user each."""
import contextlib
import time
from dataclasses import dataclass, field

from journaled_site import JournaledSite
from site_user import Site
from support.stack import digest
from support.stack.digest import Unequal
from support.stack.failure import StackError
from support.stack.imap import ImapError, Lost
from support.stack.journal import Journal

WITHIN = 420.0      # seconds: a guard against waiting for ever; how long it took stands in the report
MISTAKES = (AssertionError, ImapError, Lost, OSError, StackError, ValueError)


@dataclass
class Outcome:
    """What became of one row."""
    row: object
    user: str
    journal: Journal = None     # of what the clients were answered; None: dsync, or a row that it has no model of
    complaint: str = None
    shapes: dict = field(default_factory=dict)
    looked: dict = field(default_factory=dict)
    digests: dict = field(default_factory=dict)
    same_uids: tuple = (0, 0)
    seconds: float = 0.0

    @property
    def ok(self):
        return self.complaint is None


def step(outcome, what, function, *sites):
    """One row's step; a failure ends this row, not the others."""
    if not outcome.ok:
        return
    try:
        function(*sites)
    except MISTAKES as error:
        outcome.complaint = f"{what}: {type(error).__name__}: {error}"


def differences_of(group, outcome):
    """What differs between the sites, or is not what the row wants beside mails; and the digests."""
    dsync = group.replication == "dsync"        # leaves an empty INBOX its own UIDVALIDITY: no reason to end the row
    differences, digests = digest.compare(group.replicas, outcome.user, uids=not dsync)
    differences += digest.clashes(digests) if dsync else []
    if not differences and outcome.journal:
        differences = outcome.journal.moving(group.rebuilt)(outcome.user, digests)
    if not differences and outcome.row.look:
        looked = {}
        for replica in group.replicas:
            with Site(replica, outcome.user) as site:
                try:
                    looked[replica.name] = outcome.row.look(site)
                except MISTAKES as error:       # there is no such folder yet, at either
                    looked[replica.name] = type(error).__name__
        outcome.looked = looked
        if len(looked) > 1 and any(one != next(iter(looked.values())) for one in looked.values()):
            differences.append(f"differ: {looked}")
    return differences, digests


def settle(group, outcomes, what, within):
    """Waits until all rows that are still well are equal everywhere."""
    left = [outcome for outcome in outcomes if outcome.ok]
    end = time.monotonic() + within
    began = time.monotonic()
    while left:
        told = {}
        for outcome in left:
            differences, digests = differences_of(group, outcome)
            if not differences:
                outcome.shapes, outcome.digests = {name: one.shape() for name, one in digests.items()}, digests
                outcome.same_uids, outcome.seconds = digest.same_uids(digests), time.monotonic() - began
            else:
                told[outcome.user] = differences
        left = [outcome for outcome in left if outcome.user in told]
        if left and time.monotonic() > end:
            for outcome in left:
                outcome.complaint = f"{what}: not equal within {within:g} s:\n    " + "\n    ".join(told[outcome.user][:8])
            return
        if left:
            time.sleep(0.1)


def judge(group, outcomes, what):
    """By the journals: what every site shows alike is what its clients were answered."""
    rebuilt = group.rebuilt()
    for outcome in outcomes:
        if outcome.ok and outcome.journal:
            told = outcome.journal.judge({outcome.user: next(iter(outcome.digests.values()))}, rebuilt)
            outcome.complaint = f"{what}: by the journal: {'; '.join(told)}" if told else None


def site_of(outcome, replica):
    return JournaledSite(replica, outcome.user, outcome.journal) if outcome.journal else Site(replica, outcome.user)


def partition(group, outcomes):
    group.cut()
    for outcome in outcomes:
        if outcome.journal:
            outcome.journal.partitions.append((None, time.monotonic(), None))


def heal(group, outcomes):
    for outcome in outcomes:
        if outcome.journal:
            outcome.journal.heal(time.monotonic())
    group.heal()


def wrong_with(outcome, shapes):
    """Complaints about what the sites show, equal as they are."""
    told = [(name, outcome.row.complaint(shape)) for name, shape in shapes.items()]
    told += [(name, outcome.row.odd(looked)) for name, looked in outcome.looked.items()]
    return [f"{name}: {words}" for name, words in told if words]


def full_sync(group, outcome):
    """What the 2.3 replicator's daily full synchronisation would make of replicas that its usual one left different."""
    if outcome.ok or "-f" in outcome.complaint or "not equal" not in outcome.complaint:
        return
    group.sync_all(outcome.user, rounds=2, stateful=False, options=("-f",))
    differences, digests = differences_of(group, outcome)
    wrong = differences or wrong_with(outcome, {name: one.shape() for name, one in digests.items()})
    outcome.complaint = f"unequal; after a full sync (-f): {wrong[0] if wrong else 'as wanted'}; before it: {outcome.complaint}"


def run(group, rows, within=WITHIN):
    """Every row; {name: Outcome}."""
    dsync = group.replication == "dsync"
    outcomes = [Outcome(row, f"{row.name.replace('_', '-')}@example.org", Journal() if row.journal and not dsync else None) for row in rows]
    a, b = group.replicas[:2]

    def meet(what):
        if dsync:
            for outcome in outcomes:
                step(outcome, what, lambda: group.sync_all(outcome.user, rounds=2, stateful=outcome.row.stateful))
            settle(group, outcomes, what, 0)
            for outcome in outcomes:
                full_sync(group, outcome)
        else:
            heal(group, outcomes)
            settle(group, outcomes, what, within)
            judge(group, outcomes, what)

    with contextlib.ExitStack() as stack:
        sites = {outcome.user: tuple(stack.enter_context(site_of(outcome, replica)) for replica in (a, b)) for outcome in outcomes}

        def close():
            for pair in sites.values():
                for site in pair:
                    with contextlib.suppress(*MISTAKES):
                        site.close()
        for outcome in outcomes:
            step(outcome, "before", outcome.row.before, sites[outcome.user][0])
            with contextlib.suppress(*MISTAKES):
                sites[outcome.user][0].close()
        meet("before")
        partition(group, outcomes)
        for outcome in outcomes:
            one, other = sites[outcome.user]
            step(outcome, "at A", outcome.row.at_a, one)
            step(outcome, "at B", outcome.row.at_b, other)
            for site in (one, other):
                with contextlib.suppress(*MISTAKES):
                    site.close()
        meet("after the heal")
        for outcome in outcomes:
            if outcome.row.after.__name__ != "nothing":
                step(outcome, "after", outcome.row.after, *sites[outcome.user])
        close()
        meet("at the end")
    for outcome in outcomes:
        wrong = wrong_with(outcome, outcome.shapes) if outcome.ok else []
        if wrong:
            outcome.complaint = "; ".join(wrong)
    return {outcome.row.name: outcome for outcome in outcomes}
