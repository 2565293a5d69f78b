#!/usr/bin/python3
"""A week of users and faults in an hour: what clients have to load again, and what they miss.

    week.py [--minutes N] [--users N] [--seed N] [--every SECONDS] [--pace SECONDS]

Three sites of mixed storages; each user has one client that stays (mbsync, offlineimap, IDLE with
QRESYNC, POP3), and another one that changes things; a fault every minute. DOVELANE_BUILD names the
build directory. A table at the end, and BUILD/bench/week.json; what concerns users with a complaint
is kept in BUILD/week.
"""
import argparse
import json
import os
import random
import re
import shutil
import smtplib
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/replication"))
from site_user import Site, deliver  # noqa: E402
from support.history import rounds  # noqa: E402
from support.history.record import Recorder  # noqa: E402
from support.modseqs import wait_alike  # noqa: E402
from support.stack import digest  # noqa: E402
from support.stack.failure import StackError  # noqa: E402
from support.stack.group import Group  # noqa: E402
from support.stack.imap import ImapError, Lost  # noqa: E402
from week_clients import KINDS, Copier, Trouble  # noqa: E402
from week_judges import Ledger, Uids  # noqa: E402

BUILD = Path(os.environ.get("DOVELANE_BUILD") or ROOT / "build")
SPECS = ("sdbox", "mdbox", "maildir")
FIXED = ("INBOX", "Archive", "Work")
# How often a user's other client does what; people read and mark more than they tidy up.
WEIGHTS = {"deliver": 40, "append": 8, "flag": 34, "move": 9, "expunge": 5, "create": 2,
           "rename": 1, "delete": 1}
FLAGS = ("\\Seen", "\\Flagged", "\\Answered")
# Each client's save says its UID, by which a mail's new UID is known to have been forced (`Uids`);
# the replicator's say it by themselves. POP3 as docs/replication-guide.md says.
MORE = {"2.3": """
mail_plugins = $mail_plugins notify mail_log
plugin {
  mail_log_events = save copy
  mail_log_fields = uid box msgid
}
pop3_uidl_format = %g
""", "2.4": """
mail_plugins {
  notify = yes
  mail_log = yes
}
mail_log_events = save copy
mail_log_fields = uid box msgid
pop3_uidl_format = %{guid}
"""}
STARTED = {"more": MORE, "protocols": ("pop3",)}
MUST_BE_ZERO = ("UIDVALIDITY changes", "flags missed", "mails missed", "again, unexplained")
SYNCS_AT_A_TIME = 4


def names(count):
    return [f"w{number}@example.org" for number in range(count)]


class Person:
    """A user: the client that stays, at its site, and what the other one did."""

    def __init__(self, week, number, kind):
        self.week, self.kind = week, kind
        self.user = names(number + 1)[-1]
        self.dice = random.Random(f"{week.options.seed}/{number}")
        self.home = self.at = number // len(KINDS) % len(week.group.replicas)
        self.ledger, self.lock = Ledger(), threading.Lock()
        self.path = week.directory / f"{self.user}.log"
        self.file = open(self.path, "w", encoding="utf-8")
        self.client = KINDS[kind](week.directory / "clients", self.user, self.tell)
        self.made, self.folders, self.failed = 0, [], False

    def tell(self, what):
        self.file.write(f"{time.strftime('%H:%M:%S')} {what}\n")
        self.file.flush()

    @property
    def replica(self):
        return self.week.group.replicas[self.at]

    def name(self):
        self.made += 1
        return f"{self.user.partition('@')[0]}-{self.made}"

    # -- the client that stays -------------------------------------------------------------------

    def choose(self):
        """Fails over where the site failed, or is cut off; comes home later; seldom roams."""
        sites, before = range(len(self.week.group.replicas)), self.at
        others = [site for site in sites if site != self.at]
        away = self.week.away == self.replica.letter
        if self.failed or (away and self.dice.random() < 0.5) or self.dice.random() < 0.01:
            self.at = self.dice.choice(others)
        elif self.at != self.home and not away and self.dice.random() < 0.2:
            self.at = self.home
        if self.at != before:
            self.client.counts["site changes"] += 1
            self.tell(f"goes to {self.replica.letter}")

    def visit(self):
        """Whether it synchronised."""
        try:
            self.client.visit(self.replica)
            self.client.counts["syncs"] += 1
            self.failed = False
        except Trouble as error:
            self.client.counts["syncs failed"] += 1
            self.failed = True
            self.tell(f"visit to {self.replica.letter}: {error}")
        return not self.failed

    def live(self):
        stopping, slots = self.week.stopping, self.week.slots
        pause = self.week.options.pace
        stopping.wait(self.dice.uniform(0, pause))
        while not stopping.is_set():
            self.choose()
            if isinstance(self.client, Copier):
                with slots:
                    if self.dice.random() < 0.3:
                        self.client.read_one(self.dice)
                    self.visit()
            else:
                self.visit()
                if self.dice.random() < 0.3:
                    self.client.read_one(self.dice)
            self.client.wait(self.dice.expovariate(1 / pause), stopping)

    def last_visit(self):
        """Once more, when all is quiet: one that is done."""
        self.client.rest()
        for _ in range(5):
            if self.visit():
                return
            time.sleep(1)
        self.client.counts["mails missed"] += 1
        self.tell("no visit is done any more")

    # -- the other client ------------------------------------------------------------------------

    def change(self, dice):
        """One change, mostly at the site of the client that stays."""
        replica = self.replica if dice.random() < 0.85 else dice.choice(self.week.group.replicas)
        weights = dict(WEIGHTS)
        if isinstance(self.client, Copier):
            # mbsync calls a sync failed for ever, once a folder that it knows is gone.
            del weights["rename"], weights["delete"]
        kind = dice.choices(*zip(*weights.items()))[0]
        try:
            if kind == "deliver":
                outcome = self.deliver(replica, dice)
            else:
                with Site(replica, self.user) as site:
                    outcome = getattr(self, kind)(site, dice)
        except (ImapError, smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
            outcome = f"no: {error}"
        except (Lost, OSError, smtplib.SMTPException, AssertionError) as error:
            outcome = f"lost: {error}"
        self.tell(f"{kind} at {replica.letter}: {outcome}")
        self.week.count(kind, outcome.partition(":")[0].partition(" ")[0])

    def deliver(self, replica, dice):
        name = self.name()
        self.ledger.unsure.add(name)
        deliver(replica, self.user, name, dice.randrange(300, 20000))
        self.ledger.unsure.discard(name)
        self.ledger.added(name, "INBOX")
        return f"done {name}"

    def pick(self, site, dice, free=True):
        """(folder, name) of a mail that this site shows once; None where there is none."""
        folder = dice.choice([*FIXED, "INBOX", "INBOX", *self.folders])
        names = [name for name, uids in site.imap.uids(folder).items()
                 if len(uids) == 1 and (not free or name in self.ledger.free)]
        return (folder, dice.choice(names)) if names else None

    def append(self, site, dice):
        name, folder = self.name(), dice.choice(FIXED[1:])
        self.ledger.unsure.add(name)
        site.append(folder, name, *dice.sample(FLAGS, 1), size=dice.randrange(300, 20000))
        self.ledger.unsure.discard(name)
        self.ledger.added(name, folder)
        return f"done {name} {folder}"

    def flag(self, site, dice):
        picked = self.pick(site, dice, free=False)
        if not picked:
            return "nothing"
        how, flag = dice.choice("++-"), dice.choice(FLAGS)
        site.flag(*picked, how, flag)
        return f"done {picked[1]} {how}{flag}"

    def move(self, site, dice):
        picked = self.pick(site, dice)
        if not picked:
            return "nothing"
        folder, name = picked
        target = dice.choice([other for other in [*FIXED, *self.folders] if other != folder])
        uid, = site.uid(folder, name)
        self.ledger.removed.add((folder, name))
        self.ledger.free.discard(name)
        self.ledger.unsure.add(name)
        text, lines = site.imap.move(folder, uid, target)
        if "COPYUID" in text or any(b"COPYUID" in line for line in lines):
            self.ledger.there[name] = target
        self.ledger.unsure.discard(name)
        return f"done {name} {folder} {target}"

    def expunge(self, site, dice):
        picked = self.pick(site, dice)
        if not picked:
            return "nothing"
        folder, name = picked
        self.ledger.free.discard(name)
        self.ledger.unsure.add(name)
        self.ledger.removed.add((folder, name))
        site.expunge(folder, name)
        del self.ledger.there[name]
        self.ledger.gone.add(name)
        self.ledger.unsure.discard(name)
        return f"done {name} {folder}"

    def create(self, site, _):
        if len(self.folders) >= 5:
            return "nothing"
        self.made += 1
        site.create(f"F{self.made}")
        self.folders.append(f"F{self.made}")
        return f"done F{self.made}"

    def rename(self, site, dice):
        """To a name that no folder ever had: a mail loaded there is a first load."""
        if not self.folders:
            return "nothing"
        folder = self.folders.pop(dice.randrange(len(self.folders)))
        self.made += 1
        site.rename(folder, f"F{self.made}")
        self.folders.append(f"F{self.made}")
        return f"done {folder} F{self.made}"

    def delete(self, site, dice):
        """What the site has not seen of it survives: nobody knows which mails."""
        if not self.folders:
            return "nothing"
        folder = self.folders.pop(dice.randrange(len(self.folders)))
        names = {name for name, place in self.ledger.there.items() if place == folder}
        self.ledger.unsure |= names | {*site.imap.uids(folder)}
        self.ledger.free -= self.ledger.unsure
        site.delete(folder)
        return f"done {folder}"

    # -- at the end ------------------------------------------------------------------------------

    def is_forced(self, missed, shown, uids):
        """A site that lacked the mail let the client remove it, and it never asks for its UID."""
        there = [uid for uid, mail in shown.folders[missed.folder].messages.items()
                 if mail.name == missed.name]
        return (uids.lacked(self.user, missed) and len(there) == 1
                and self.client.never_asks(missed.folder, there[0]))

    def judge(self, shown, uids):
        """Counts; complaints are in the log."""
        self.client.judge(shown)
        counts = Counter(self.client.counts)
        for again in self.client.again:
            why = uids.why(self.user, again, self.ledger.removed)
            counts[f"again, {why}"] += 1
            self.tell(f"loaded again, {why}: {again}, "
                      f"UIDs {sorted(uids.uids[self.user, again.folder, again.name])}")
        for missed in self.client.missed:
            if self.is_forced(missed, shown, uids):
                counts["mails missed"] -= 1
                counts["missed, behind"] += 1
                self.tell(f"missed, behind: {missed}")
        told, found = self.ledger.judge(shown)
        for line in told:
            self.tell(line)
        return counts, found, bool(told) or any(counts[what] for what in MUST_BE_ZERO)


class Week:
    def __init__(self, group, directory, options):
        self.group, self.directory, self.options = group, Path(directory), options
        self.stopping, self.slots = threading.Event(), threading.Semaphore(SYNCS_AT_A_TIME)
        self.done, self.counting, self.away, self.troubles = Counter(), threading.Lock(), None, []
        kinds = list(KINDS)
        self.people = [Person(self, number, kinds[number % len(kinds)])
                       for number in range(options.users)]

    def count(self, kind, outcome):
        with self.counting:
            self.done[f"{kind} {outcome}"] += 1

    def begin(self):
        """Folders and first mails at one site, and then at all."""
        for person in self.people:
            with Site(self.group.replicas[person.home], person.user) as site:
                for folder in FIXED[1:]:
                    site.create(folder)
                for _ in range(4):
                    name = person.name()
                    site.append("INBOX", name, size=1000)
                    person.ledger.added(name, "INBOX")
        agreed = digest.wait_equal(self.group.replicas, self.users(), rounds.WITHIN)
        return {user: validities(digests) for user, digests in agreed.items()}

    def users(self):
        return [person.user for person in self.people]

    def change(self, number):
        """One of several threads that do what users' other clients do."""
        dice = random.Random(f"{self.options.seed}/change/{number}")
        rate = len(self.people) / self.options.pace / CHANGERS
        while not self.stopping.wait(dice.expovariate(rate)):
            person = dice.choice(self.people)
            if person.lock.acquire(blocking=False):
                try:
                    person.change(dice)
                finally:
                    person.lock.release()

    def guarded(self, what, *arguments):
        """An error of this program ends the week, and is told."""
        try:
            what(*arguments)
        except Exception as error:  # pylint: disable=broad-except
            self.troubles.append(error)
            self.stopping.set()
            raise

    def strike(self, faults, dice, kinds):
        """One fault, and its end before the next one."""
        began = time.monotonic()
        if not kinds:
            kinds += rounds.FAULTS
            dice.shuffle(kinds)
        what = faults.strike(kinds.pop())
        found = re.match(r"(?:cut|silence) ([a-z])$", what)
        self.away = found[1] if found else None
        self.note(what)
        self.stopping.wait(dice.uniform(0.3, 0.7) * self.options.every)
        faults.heal()
        self.away = None
        self.stopping.wait(max(0, began + self.options.every - time.monotonic()))
        return what

    def note(self, what):
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)

    def run(self):
        """The time that it lasts; the faults that were done."""
        recorder, struck = Recorder(self.directory / "faults.jsonl"), []
        dice, kinds = random.Random(self.options.seed), []
        faults = rounds.Faults(self.group, recorder, dice)
        work = [(person.live,) for person in self.people]
        work += [(self.change, number) for number in range(CHANGERS)]
        threads = [threading.Thread(target=self.guarded, args=words, daemon=True) for words in work]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + 60 * self.options.minutes
            while time.monotonic() < end and not self.stopping.is_set():
                struck.append(self.strike(faults, dice, kinds))
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(300)
            recorder.close()
        assert not self.troubles, self.troubles
        assert not any(thread.is_alive() for thread in threads), "a client hangs"
        return struck

    def quiet(self):
        """Waits until all sites are equal, and again after the last visit of each client."""
        digest.wait_equal(self.group.replicas, self.users(), rounds.WITHIN)
        for user in self.users():
            wait_alike(self.group.replicas, user, rounds.WITHIN)
        for person in self.people:
            person.last_visit()
        return digest.wait_equal(self.group.replicas, self.users(), rounds.WITHIN)

    def judge(self, agreed, before):
        uids = Uids()
        for replica in self.group.replicas:
            uids.read(replica.letter, Path(replica.log).read_text(errors="replace"))
        kinds, mails, wrong = defaultdict(Counter), Counter(), []
        for person in self.people:
            digests = agreed[person.user]
            counts, found, bad = person.judge(digests[person.replica.name], uids)
            counts["users"] = 1
            kinds[person.kind] += counts
            mails += found
            for folder, number in validities(digests).items():
                was = before[person.user].get(folder, number)
                if number != was:
                    mails["UIDVALIDITY changes"] += 1
                    person.tell(f"UIDVALIDITY of {folder}: {was}, then {number}")
                    bad = True
            if bad:
                wrong.append(person)
        return kinds, mails, wrong, len(uids.uids)


CHANGERS = 6


def is_here(kind):
    return kind not in ("mbsync", "offlineimap") or shutil.which(kind) is not None


def missing():
    """Programs of clients that are not here."""
    return [kind for kind in KINDS if not is_here(kind)]


def validities(digests):
    """{folder: UIDVALIDITY}, equal at all sites."""
    return {folder: held.validity for folder, held in next(iter(digests.values())).folders.items()
            if folder in FIXED}


ROWS = ("users", "syncs", "syncs failed", "site changes", "loads", "again, clash", "again, behind",
        "again, unexplained", "UIDVALIDITY changes", "flags missed", "mails missed", "missed, behind", "ghosts",
        "below UIDNEXT", "told in IDLE")


def table(kinds, mails, done, struck):
    lines = ["".join(f"{word:>13}" if n else f"{'':<22}" for n, word in enumerate(["", *kinds]))]
    lines += [f"{row:<22}" + "".join(f"{counts[row]:>13}" for counts in kinds.values())
              for row in ROWS]
    lines.append("mails: " + ", ".join(f"{name} {mails[name]}" for name in (
        "mails", "unsure", "lost", "doubles", "expunged and back", "UIDVALIDITY changes")))
    lines.append("changes: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    lines.append(f"{len(struck)} faults: " + ", ".join(
        f"{name} {count}" for name, count in sorted(Counter(struck).items())))
    return "\n".join(lines)


def is_clean(kinds, mails):
    return not (any(counts[what] for counts in kinds.values() for what in MUST_BE_ZERO)
                or any(mails[what] for what in ("lost", "doubles", "expunged and back",
                                                "UIDVALIDITY changes")))


def keep(week, people, where):
    """Logs of users with a complaint, their programs' words, and the sites' logs."""
    where = Path(where)
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    for person in people:
        shutil.copy(person.path, where)
        words = getattr(person.client, "words", None)
        if words and words.exists():
            shutil.copy(words, where / f"{person.user}.{person.kind}")
    shutil.copy(week.directory / "faults.jsonl", where)
    for replica in week.group.replicas:
        shutil.copy(replica.log, where / f"dovecot-{replica.letter}.log")
    return where


def one(group, directory, options):
    """A week; whether all is as it must be, and the table."""
    week = Week(group, directory, options)
    began = time.monotonic()
    try:
        before = week.begin()
        struck = week.run()
        week.note("quiet")
        agreed = week.quiet()
    except (AssertionError, StackError):
        print(f"kept in {keep(week, week.people, options.keep)}")
        raise
    kinds, mails, wrong, known = week.judge(agreed, before)
    told = table(kinds, mails, week.done, struck)
    if wrong:
        told += f"\nkept in {keep(week, wrong, options.keep)}: " + ", ".join(
            person.user for person in wrong)
    assert known, "no save was logged: what is forced cannot be told"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(
        {"seed": options.seed, "minutes": options.minutes, "seconds": time.monotonic() - began,
         "kinds": kinds, "mails": mails, "changes": week.done, "faults": struck}, indent=1))
    return is_clean(kinds, mails), told


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=60, help="seconds from fault to fault")
    parser.add_argument("--pace", type=float, default=20,
                        help="seconds between two changes, or visits, of a user")
    parser.add_argument("--json", type=Path, default=BUILD / "bench/week.json")
    parser.add_argument("--keep", default=str(BUILD / "week"))
    return parser.parse_args(words)


def main():
    options = parsed()
    if absent := missing():
        print(f"not here: {', '.join(absent)} (./setup long)")
        return 2
    with (Group(*SPECS, users=names(options.users), **STARTED) as group,
          tempfile.TemporaryDirectory() as directory):
        clean, told = one(group, directory, options)
    print(told)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
