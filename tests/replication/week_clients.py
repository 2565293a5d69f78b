"""Clients that keep what they loaded, and count what they have to load again (week.py).

Each has `visit(replica)`, which synchronises once and raises Trouble where it cannot, `judge`,
which compares what it has with what a site shows, and `counts`.
"""
import contextlib
import poplib
import re
import select
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from copying import Mbsync, Offlineimap
from support.stack import digest
from support.stack.dovecot import PASSWORD
from support.stack.imap import SYSTEM, ImapError, Lost, mailbox, parsed

LETTERS = {"S": "\\seen", "F": "\\flagged", "R": "\\answered", "T": "\\deleted", "D": "\\draft"}
KNOWN_BY_ALL = {flag.lower() for flag in SYSTEM}


class Trouble(Exception):
    """The site could not be reached, or did not do all."""


def name_in(data):
    found = digest.NAME.search(data[:4096])
    return found[1].decode().strip() if found else "?"


@dataclass
class Again:
    """A mail that a client had loaded before in that folder, and loads at a site.

    dropped: (site, when the visit began) in which it went from what the client has; None where it
    was there until this visit.
    """
    folder: str
    name: str
    site: str
    dropped: tuple


@dataclass
class Missed:
    """A mail that a site has once, and the client has not.

    loaded: the site that it was loaded from last; None where it never was. dropped: as in Again.
    """
    folder: str
    name: str
    loaded: str
    dropped: tuple


class Keeper:
    """What all clients remember: which mails of a folder they ever loaded, and how often."""

    def __init__(self, user, tell):
        self.user, self.tell = user, tell
        self.counts, self.loaded, self.again = Counter(), Counter(), []
        self.dropped, self.site, self.loaded_from, self.missed = {}, None, {}, []

    def load(self, folder, name):
        self.loaded[folder, name] += 1
        self.loaded_from[folder, name] = self.site
        self.counts["loads"] += 1
        if self.loaded[folder, name] > 1:
            self.again.append(Again(folder, name, self.site, self.dropped.get((folder, name))))
            self.tell(f"loads {name} in {folder} again")
        self.dropped.pop((folder, name), None)

    def validity_changed(self, what):
        self.counts["UIDVALIDITY changes"] += 1
        self.tell(f"UIDVALIDITY: {what}")

    def visit(self, replica):
        """Synchronises with a site."""
        self.site = replica.letter
        with self.watched():
            self.sync(replica)

    @contextlib.contextmanager
    def watched(self):
        """Remembers which mails the client has no more, and since when."""
        began, before = time.time(), self.names()
        try:
            yield
        finally:
            self.dropped.update(dict.fromkeys(before - self.names(), (self.site, began)))

    def names(self):
        return {(folder, name) for folder, held in self.content().items() for name, _ in held}

    def wait(self, seconds, stopping):
        """Until the next visit is due."""
        stopping.wait(seconds)

    def read_one(self, dice):
        """The user reads a mail that is not read yet."""

    def rest(self):
        """Before the last visit: nothing is open."""

    def never_asks(self, folder, uid):
        """Whether it would never load a mail that came to this folder under this UID by now."""
        return False

    def compare(self, folder, mine, shown, flags=True):
        """mine: [(name, flags)]; shown: a site's. A mail marked \\Deleted may be shown or not."""
        doomed = {name for name, marks in [*mine, *shown] if "\\deleted" in marks}
        sides = [Counter(one) for one in (mine, shown)]
        names = [Counter(name for name, _ in one) for one in (mine, shown)]
        for name in sorted((names[0] | names[1]).keys() - doomed):
            if names[0][name] != names[1][name]:
                self.counts["mails missed"] += 1
                self.tell(f"{folder}: has {name} {names[0][name]} times, "
                          f"the site {names[1][name]} times")
                if (names[0][name], names[1][name]) == (0, 1):
                    key = folder, name
                    self.missed.append(Missed(*key, self.loaded_from.get(key),
                                              self.dropped.get(key)))
            elif flags and (left := [each for each in (sides[0] - sides[1]) if each[0] == name]):
                self.counts["flags missed"] += 1
                self.tell(f"{folder}: {name} is {sorted(left[0][1])}, at the site "
                          f"{[sorted(marks) for other, marks in shown if other == name]}")

    def judge(self, shown):
        """shown: the digest of the site that was visited last."""
        theirs = {folder: [(mail.name, mail.flags & KNOWN_BY_ALL)
                           for mail in held.messages.values()]
                  for folder, held in shown.folders.items()}
        mine = self.content()
        for folder in sorted({*theirs, *mine}):
            self.compare(folder, mine.get(folder, []), theirs.get(folder, []))


class Copier(Keeper):
    """A user of mbsync or offlineimap: what is new in the Maildir was loaded."""

    def __init__(self, program, directory, user, tell):
        super().__init__(user, tell)
        self.program, self.seen = program, {}
        self.words = Path(program.base) / "words"

    def never_asks(self, folder, uid):
        return self.program.never_asks(folder, uid)

    def paths(self):
        return [path for path in self.program.mail.rglob("*") if path.parent.name in ("cur", "new")
                and path.is_file()]

    def folder_of(self, path):
        return str(path.parent.parent.relative_to(self.program.mail))

    def sync(self, replica):
        try:
            done, said = self.program.attempt(replica)
        except subprocess.TimeoutExpired as error:
            raise Trouble(str(error)) from None
        finally:
            self.look()
        with open(self.words, "a", encoding="utf-8") as file:
            file.write(said)
        for line in re.findall(r"(?i).*(?:uidvalidity|validity problem).*", said):
            if "no UIDVALIDITY, creating new" not in line:      # of mbsync's own Maildir
                self.validity_changed(line)
        if not done:
            raise Trouble(" ".join(said.split())[-300:])

    def look(self):
        """A file's name begins with what no other file ever has."""
        for path in self.paths():
            key = self.key(path)
            if key not in self.seen:
                self.seen[key] = name_in(path.read_bytes())
                self.load(key[0], self.seen[key])

    def key(self, path):
        return self.folder_of(path), re.split("[,:]", path.name)[0]

    @staticmethod
    def flags(path):
        letters = path.name.partition(":2,")[2]
        return frozenset(LETTERS[letter] for letter in letters if letter in LETTERS)

    def read_one(self, dice):
        unread = [path for path in self.paths() if "\\seen" not in self.flags(path)]
        if unread:
            path = dice.choice(sorted(unread))
            base, _, letters = path.name.partition(":2,")
            letters = "".join(sorted({*letters, "S"}))
            path.rename(path.parent.parent / "cur" / f"{base}:2,{letters}")

    def content(self):
        found = {self.folder_of(path / "x"): [] for path in self.program.mail.rglob("cur")}
        for path in self.paths():
            found[self.folder_of(path)].append((self.seen[self.key(path)], self.flags(path)))
        return found


class Popper(Keeper):
    """A user of POP3 who leaves mails at the server."""

    def __init__(self, user, tell):
        super().__init__(user, tell)
        self.had = {}

    def sync(self, replica):
        host, _, port = replica.note["pop3"].rpartition(":")
        try:
            session = poplib.POP3(host, int(port), timeout=240)
            session.user(self.user)
            session.pass_(PASSWORD)
            listed = [line.decode().split(" ", 1) for line in session.uidl()[1]]
            for number, uidl in listed:
                if uidl not in self.had:
                    self.had[uidl] = name_in(b"\n".join(session.retr(int(number))[1]))
                    self.load("INBOX", self.had[uidl])
            there = {uidl for _, uidl in listed}
            self.had = {uidl: name for uidl, name in self.had.items() if uidl in there}
            session.quit()
        except (OSError, EOFError, poplib.error_proto) as error:
            raise Trouble(str(error)) from None

    def content(self):
        return {"INBOX": [(name, frozenset()) for name in self.had.values()]}

    def judge(self, shown):
        mine = self.content()["INBOX"]
        theirs = [(mail.name, frozenset()) for mail in shown.folders["INBOX"].messages.values()]
        self.compare("INBOX", mine, theirs, flags=False)


class Held:
    """A folder as a QRESYNC client (RFC 7162) knows it."""

    def __init__(self):
        self.validity, self.modseq, self.uidnext, self.exists = 0, 0, 1, 0
        self.mails = {}     # UID: [name, flags]

    def numbers(self):
        return f"UIDVALIDITY {self.validity}, UIDNEXT {self.uidnext}, modseq {self.modseq}"


class Idler(Keeper):
    """A client that stays in IDLE in INBOX, and looks at all folders with QRESYNC when it comes."""

    def __init__(self, user, tell):
        super().__init__(user, tell)
        self.folders, self.session, self.at = {}, None, None

    def rest(self):
        if self.session is not None:
            self.session.drop()
            self.session = None

    def sync(self, replica):
        try:
            if self.session is None or self.at != replica.name:
                self.rest()
                self.session, self.at = replica.imap(self.user), replica.name
                self.session.command("ENABLE QRESYNC")
            listed = digest.names(self.session.command('LIST "" "*"')[1])
            for gone in self.folders.keys() - {*listed}:
                del self.folders[gone]
            for folder in sorted(listed, key=lambda name: name == "INBOX"):
                self.select(folder)
        except (Lost, ImapError) as error:
            self.rest()
            raise Trouble(str(error)) from None

    def select(self, folder):
        held = self.folders.setdefault(folder, Held())
        since = (f" (QRESYNC ({held.validity} {held.modseq} 1:{held.uidnext - 1}))"
                 if held.modseq and held.uidnext > 1 else "")
        try:
            _, lines = self.session.command(f"SELECT {mailbox(folder)}{since}")
        except ImapError as error:      # it goes in this moment
            self.tell(f"SELECT {folder}: {error}")
            self.session.selected = None
            return
        told = b"".join(line for line in lines if line.startswith(b"* OK"))
        number = {word: int(found[1]) if (found := re.search(rb"\[%s (\d+)" % word, told)) else 0
                  for word in (b"UIDVALIDITY", b"HIGHESTMODSEQ")}
        if held.validity not in (0, number[b"UIDVALIDITY"]):
            self.validity_changed(f"{folder} {held.validity}, then {number[b'UIDVALIDITY']}")
            self.folders[folder] = held = Held()
        held.validity = number[b"UIDVALIDITY"]
        self.take(held, lines)
        self.fetch_new(folder, held)
        held.modseq = number[b"HIGHESTMODSEQ"]
        self.session.selected = folder
        if len(held.mails) != held.exists:
            self.list_uids(folder, held)

    def ask(self, held, words):
        lines = self.session.command(words)[1]
        self.take(held, lines)
        return lines

    def take(self, held, lines):
        """What untagged lines say; the flags of a mail that is not loaded yet come with it."""
        for line in lines:
            if found := re.match(rb"\* (\d+) EXISTS", line):
                held.exists = int(found[1])
            elif found := re.match(rb"\* VANISHED (\(EARLIER\) )?([\d:,]+)", line):
                for part in found[2].split(b","):
                    ends = [int(end) for end in part.split(b":")]
                    for uid in [uid for uid in held.mails if min(ends) <= uid <= max(ends)]:
                        del held.mails[uid]
                    held.exists -= 0 if found[1] else max(ends) - min(ends) + 1
            elif re.match(rb"\* \d+ FETCH ", line):
                self.take_fetch(held, parsed(line)[3])

    def take_fetch(self, held, words):
        items = dict(zip(words[0::2], words[1::2]))
        uid = int(items.get(b"UID", 0))
        if uid in held.mails and b"FLAGS" in items:
            held.mails[uid][1] = digest.flags_of(items[b"FLAGS"]) & KNOWN_BY_ALL

    def search(self, held, what):
        found = []
        for line in self.ask(held, f"UID SEARCH {what}"):
            if line.startswith(b"* SEARCH"):
                found += [int(word) for word in line.split()[2:] if word.isdigit()]
        return found

    def fetch_new(self, folder, held):
        self.load_uids(folder, held, [uid for uid in self.search(held, f"UID {held.uidnext}:*")
                                      if uid >= held.uidnext])

    def load_uids(self, folder, held, uids):
        if not uids:
            return
        for line in self.ask(held, f"UID FETCH {','.join(map(str, uids))} (FLAGS BODY.PEEK[])"):
            if not re.match(rb"\* \d+ FETCH ", line):
                continue
            words = parsed(line)[3]
            items = dict(zip(words[0::2], words[1::2]))
            if b"BODY[]" in items:
                uid, name = int(items[b"UID"]), name_in(items[b"BODY[]"])
                held.mails[uid] = [name, digest.flags_of(items[b"FLAGS"]) & KNOWN_BY_ALL]
                held.uidnext = max(held.uidnext, uid + 1)
                self.load(folder, name)

    def list_uids(self, folder, held):
        """As clients do whose number of mails is not the site's."""
        there = set(self.search(held, "ALL"))
        ghosts = held.mails.keys() - there
        self.counts["ghosts"] += len(ghosts)
        for uid in ghosts:
            self.tell(f"{folder}: a ghost, UID {uid}, {held.mails.pop(uid)[0]}")
        if late := sorted(there - held.mails.keys()):
            self.counts["below UIDNEXT"] += sum(uid < held.uidnext for uid in late)
            self.tell(f"{folder}: has not {late}; {held.numbers()}")
            self.load_uids(folder, held, late)

    def wait(self, seconds, stopping):
        """In IDLE, as long as the session lasts."""
        held = self.folders.get("INBOX")
        if self.session is None or held is None or self.session.selected != "INBOX":
            stopping.wait(seconds)
            return
        with self.watched():
            self.idle(held, seconds)

    def idle(self, held, seconds):
        try:
            tag, lines = self.session.begin("IDLE"), []
            while not (line := self.session.line()).startswith(b"+"):
                lines.append(line)
            self.take(held, lines)
            woken = select.select([self.session.socket], [], [], seconds)[0]
            lines = self.session.done(tag)[1]
            self.take(held, lines)
            self.counts["told in IDLE"] += bool(woken and lines)
            self.fetch_new("INBOX", held)
        except (Lost, ImapError, OSError) as error:
            self.tell(f"in IDLE: {error}")
            self.rest()

    def read_one(self, dice):
        held = self.folders.get("INBOX")
        mails = held.mails if held else {}
        unread = [uid for uid, (_, flags) in mails.items() if "\\seen" not in flags]
        if unread and self.session is not None and self.session.selected == "INBOX":
            try:
                self.ask(held, f"UID STORE {dice.choice(unread)} +FLAGS (\\Seen)")
            except (Lost, ImapError) as error:
                self.tell(f"STORE: {error}")
                self.rest()

    def content(self):
        return {folder: [(name, flags) for name, flags in held.mails.values()]
                for folder, held in self.folders.items()}


def mbsync(directory, user, tell):
    # What the user reads goes to the site; nothing else does.
    what = "PullNew PullDelete PullFlags PushFlags\nExpunge Near"
    return Copier(Mbsync(directory, user, what), directory, user, tell)


def offlineimap(directory, user, tell):
    return Copier(Offlineimap(directory, user), directory, user, tell)


def pop3(_, user, tell):
    return Popper(user, tell)


def idle(_, user, tell):
    return Idler(user, tell)


KINDS = {"mbsync": mbsync, "offlineimap": offlineimap, "idle": idle, "pop3": pop3}
