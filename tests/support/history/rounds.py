"""One history: clients at all sites of a group, faults of a seed, and what all show at rest."""

import contextlib
import random
import time
from pathlib import Path

from support.stack import digest
from support.stack.failure import StackError

from .checker import FIXED, check
from .clients import MOODS, Clients, Shared
from .record import Recorder, now, read

WITHIN = 420.0
KILLED = ("dovelane-worker", "dovelane-replicator", "redis")
FAULTS = ("cut", "cut one", "cut two", "silence", "slow", "restart", *KILLED, "dovelane-worker")


class Faults:
    """Does to a group what a seed says, and records it."""

    def __init__(self, group, recorder, dice):
        self.group, self.recorder, self.dice = group, recorder, dice
        self.letters = [replica.letter for replica in group.replicas]

    def pairs(self, without=None):
        return [
            f"{one}-{other}"
            for one in self.letters
            for other in self.letters
            if one < other and without not in (one, other)
        ]

    def tell(self, what):
        self.recorder.write(event="fault", what=what, at=now())
        return what

    def link(self, command, pairs):
        began = now()
        command()
        self.recorder.write(event="link", open=pairs, began=began, ended=now())

    def heal(self):
        self.link(self.group.heal, self.pairs())
        self.group.delay(0)
        return self.tell("heal")

    def strike(self, what):
        if what in ("cut", "silence"):
            self.link(lambda: self.group.cut(how=what), [])
            return self.tell(f"{what} all")
        if what == "cut one":
            letter = self.dice.choice(self.letters)
            how = self.dice.choice(("cut", "silence"))
            self.link(self.group.heal, self.pairs())
            self.link(lambda: self.group.cut(letter, how=how), self.pairs(letter))
            return self.tell(f"{how} {letter}")
        if what == "cut two":
            one, other = sorted(self.dice.sample(self.letters, 2))
            self.link(self.group.heal, self.pairs())  # for a moment all is open
            left = [pair for pair in self.pairs() if pair != f"{one}-{other}"]
            self.link(lambda: self.group.cut(one, other), left)
            return self.tell(f"cut {one} from {other}")
        if what == "slow":
            milliseconds = self.dice.choice((30, 120, 400))
            self.group.delay(milliseconds)
            return self.tell(f"{milliseconds} ms between all")
        replica = self.dice.choice(self.group.replicas)
        if what == "restart":
            self.group.restart(replica.name)
            return self.tell(f"restart {replica.letter}")
        return self.kill(what, replica)

    def kill(self, what, replica):
        if what == "redis":
            name = f"redis-{replica.letter}"
            self.group.kill(name)
            time.sleep(self.dice.uniform(0, 0.3))
            self.group.start(name)
            return self.tell(f"kill -9 {name}")
        end = time.monotonic() + 60  # a worker is there only while there is something to do
        while not replica.kill_some(what, self.dice.choice):
            if time.monotonic() > end:
                return self.tell(f"no {what} at {replica.letter}")
            time.sleep(0.002)
            replica = self.dice.choice(self.group.replicas)
        return self.tell(f"kill -9 {what} at {replica.letter}")


def rest(group, recorder, user, phase):
    """Waits until all sites have everything, and records what they show then."""
    replicas, began = group.replicas, now()
    end = time.monotonic() + WITHIN
    while True:
        digest.wait_equal(replicas, [user], max(1.0, end - time.monotonic()))
        told = unsettled(replicas, user)
        if not told:
            break
        if time.monotonic() > end:
            raise digest.Unequal("\n".join([f"{user}: equal, and verify does not say so", *told]))
        time.sleep(0.1)
    # A mail that gets another UID everywhere is shown under both for a moment: not any more.
    digests = digest.wait_equal(replicas, [user], WITHIN)[user]
    shown = {replica.letter: seen(digests[replica.name]) for replica in replicas}
    excused = "an mdbox was rebuilt" if user in group.rebuilt() else ""
    recorder.write(
        event="rest", user=user, phase=phase, began=began, ended=now(), shown=shown, excused=excused
    )


def unsettled(replicas, user):
    """What `verify` says at the first site where that is not "same"; nothing: it is at all."""
    for replica in replicas:
        try:
            said = replica.doveadm("dovelane", "verify", "-u", user).decode(errors="replace")
        except StackError as error:
            said = str(error)
        if "verdict same" not in " ".join(said.split()):
            return [f"{replica.name}: {line}" for line in said.splitlines()[:40]]
    return []


def is_settled(replicas, user):
    """Whether no site has anything for another one, and states are the same."""
    return not unsettled(replicas, user)


def seen(shown):
    folders = {
        name: {
            "validity": folder.validity,
            "uidnext": folder.uidnext,
            "mails": [
                [
                    uid,
                    message.name,
                    sorted(message.flags),
                    message.guid,
                    message.sha256,
                    message.date,
                ]
                for uid, message in sorted(folder.messages.items())
            ],
        }
        for name, folder in shown.folders.items()
    }
    return {"folders": folders, "subscribed": sorted(shown.subscribed)}


def show_unequal(group, recorder, user, phase):
    """Of a user who did not come to rest: what each site shows, for the verdict."""
    shown = {}
    for replica in group.replicas:
        with contextlib.suppress(Exception):
            shown[replica.letter] = seen(digest.read(replica, user))
    recorder.write(
        event="rest", user=user, phase=phase, began=now(), ended=now(), shown=shown, excused=""
    )


def begin(group, user):
    """Folders that are always there, at one site, and then at all."""
    session = group.replicas[0].imap(user)
    for folder in FIXED[1:]:
        session.create(folder)
    session.drop()


def plan(dice, strikes):
    """Faults of one phase; each cut heals in the phase or at its end."""
    return dice.sample(FAULTS, strikes)


def run(group, path, seed, phases=2, operations=240, strikes=2, users=2, each=2):
    """One history in a file; what it did, in words. Unequal sites are in the file as they are."""
    dice, recorder = random.Random(seed), Recorder(path)
    names = [f"h{seed}u{n}@example.org" for n in range(users)]
    sites = {replica.letter: replica.note["storage"] for replica in group.replicas}
    recorder.write(event="history", seed=seed, sites=sites)
    faults, done = Faults(group, recorder, dice), []
    try:
        for user in names:
            begin(group, user)
        for user in names:
            rest(group, recorder, user, 0)
        shared = Shared(names, recorder, seed)
        for phase in range(1, phases + 1):
            mood = dice.choice(list(MOODS))
            shared.feel(mood)
            done.append(mood)
            with Clients(shared, group.replicas, each, f"{phase}") as clients:
                for what in plan(dice, strikes):
                    waited = clients.wait(dice.randrange(10, operations // (strikes + 1)), 240)
                    assert waited, f"clients stand still after {done}"
                    done.append(faults.strike(what))
                assert clients.wait(operations // (strikes + 1), 240), "clients stand still"
                if dice.random() < 0.5:  # under load, or when it is over
                    done.append(faults.heal())
                    clients.wait(operations // (strikes + 1), 240)
            faults.heal()
            for user in names:
                settle(group, recorder, user, phase)
    finally:
        recorder.close()
    return done


def settle(group, recorder, user, phase):
    try:
        rest(group, recorder, user, phase)
    except AssertionError as error:
        recorder.write(event="fault", what=f"no rest: {error}"[:20_000], at=now())
        show_unequal(group, recorder, user, phase)
        raise


def judged(path):
    """The verdict on the history in a file."""
    return check(read(path))


def kept(path, where):
    """Moves a failing history away; its new place."""
    where = Path(where)
    where.mkdir(parents=True, exist_ok=True)
    return Path(path).rename(where / Path(path).name)
