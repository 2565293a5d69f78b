"""What clients were answered, and so what every replica must show: an OR-Set model of each user's mail.

An element is one mail in one folder. Traffic (traffic.py) never adds the same element twice, so after quiet:

    added and answered, never asked to be removed       there, exactly once
    removed and answered                                gone
    asked, but not answered                             either, though at most once (a folder's delete expunges its mails first)
    a flag                                              what `Flag.allowed` says; between two quiet moments a flag that several
                                                        sites changed in both directions may end either way, alike everywhere

A folder's delete takes away what its site had seen. What another site added while the two were apart must live on, and so must the
folder. What was added near in time without a partition may go either way.

An mdbox whose process was killed in the middle of a change is rebuilt by Dovecot itself from its files: expunged mails that were not
purged come back, and a mail that is being saved at that moment may end up there twice, the same GUID under two UIDs. Without any
replication too (`tests/stack` on one mdbox shows both), and nothing tells such a mail from one that a client copied; those of a folder
that was deleted come back in INBOX. For users whose mdbox was rebuilt, none of it is a complaint.

A CREATE of a name that nobody else makes may be answered ALREADYEXISTS: another session of the user's that brings the list index up to
date completes what it finds half made (docs/replicator.md has figures of Dovecot alone). The folder is there, and its GUID tells whose
process completed it: a client's counts as created, any other one's is a refusal.
"""
import threading
from dataclasses import dataclass, field

ON, OFF = "+", "-"
CLIENTS = ("imap", "lmtp")
# A folder that another site made may not be here yet, or be gone; as may a mail (RFC 5530: EXPUNGEISSUED).
ABSENT = ("TRYCREATE", "EXPUNGEISSUED", "NONEXISTENT", "Mailbox doesn't exist", "UIDVALIDITY changed", "mailbox was deleted")


@dataclass
class Change:
    """One STORE of one flag; began before it was sent, ended when what it did was seen. None: after the one before."""
    site: str
    how: str
    sure: bool
    began: float = None
    ended: float = None

    def is_before(self, other):
        return self.ended is None or other.began is None or self.ended <= other.began


@dataclass
class Flag:
    """One flag of one element: its value at the last quiet moment, and what happened since."""
    value: object = False       # True, False, or None: not known
    changes: list = field(default_factory=list)

    def allowed(self):
        """The values it may have now."""
        if not self.changes:
            return {self.value} if self.value is not None else {True, False}
        sites = {change.site for change in self.changes}
        kinds = {change.how for change in self.changes}
        if len(sites) == 1:
            # Of two sessions' changes that overlap in time, either may have come last.
            last = [change for n, change in enumerate(self.changes)
                    if not any(later.sure and change.is_before(later) for later in self.changes[n + 1:])]
            allowed = {change.how == ON for change in last}
            if not any(change.sure for change in self.changes):
                allowed |= {self.value} if self.value is not None else {True, False}
            return allowed
        if len(kinds) == 1 and any(change.sure for change in self.changes):
            return {kinds == {ON}}
        return {True, False}


@dataclass
class Element:
    """One mail in one folder."""
    added_at: str               # site
    began: float                # of the add
    sure: bool                  # the add was answered
    ended: float = None
    removed: str = "no"         # no, maybe, yes
    flags: dict = field(default_factory=dict)
    copied: bool = False        # its flags at its birth are those of another element, at a moment nobody knows
    doubled: bool = False       # by the storage: which of its copies a client acts on is not known any more


class Journal:
    """All elements of all users. Thread-safe."""

    def __init__(self):
        self.lock = threading.RLock()
        self.elements = {}          # (user, folder, mail) to Element
        self.folders = {}           # (user, folder) to {"site", "sure", "deleted": no|maybe|yes, ...}
        self.acknowledged = 0
        self.unanswered = 0
        self.refused = 0            # NO, for another reason than that the folder is not there (yet, or any more)
        self.refusals = []          # their texts
        self.overtaken = 0          # CREATEs that another session completed
        self.kinds = {}
        self.partitions = []        # (site or None, began, ended or None); None: everybody apart

    # -- what traffic says -----------------------------------------------------------------------------------------------

    def count(self, kind, outcome, why=""):
        """outcome: "ok", "nothing" (answered, and it was not there to be done with), "no" (the server refused, and said why),
        "lost" (no answer)."""
        with self.lock:
            self.acknowledged += outcome == "ok"
            if outcome == "no" and not any(word in why for word in ABSENT):
                self.refused += 1
                self.refusals.append(f"{kind}: {why}")
            self.unanswered += outcome == "lost"
            if outcome == "ok":
                self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def created_by(self, maker, why):
        """A CREATE of a name of its own was answered ALREADYEXISTS, and the folder is there: `maker` is the program that made it (Replica.maker).
        Whether that counts as created."""
        sure = maker in CLIENTS
        with self.lock:
            self.overtaken += sure
        self.count("create", "ok" if sure else "no", f"{why} (made by {maker})")
        return sure

    def claim(self, user, folder, mail, site, now, copied=False, flags=()):
        """Enters an element, with the flags it is born with, before its command is sent; False when it was ever there."""
        with self.lock:
            key = (user, folder, mail)
            if key in self.elements:
                return False
            self.elements[key] = Element(site, now, False, copied=copied, flags={flag.lower(): Flag(True) for flag in flags})
            return True

    def added(self, user, folder, mail, now, sure):
        with self.lock:
            element = self.elements[user, folder, mail]
            element.sure, element.ended = sure, now
            # What a storage kept of a command that was cut short may be the mail without its flags.
            for flag in element.flags.values() if not sure else ():
                flag.value = None

    def unclaim(self, user, folder, mail):
        """The server said NO: it was not done."""
        with self.lock:
            del self.elements[user, folder, mail]

    def removing(self, user, folder, mail, site):
        with self.lock:
            element = self.elements.get((user, folder, mail))
            if element and element.removed == "no":
                element.removed = "maybe"

    def removed(self, user, folder, mail):
        with self.lock:
            self.elements[user, folder, mail].removed = "yes"

    def stored(self, user, folder, mail, flag, how, site, sure, began=None, ended=None):
        with self.lock:
            element = self.elements.get((user, folder, mail))
            if element:
                element.flags.setdefault(flag.lower(), Flag(None if element.copied else False)).changes.append(
                    Change(site, how, sure, began, ended))

    def folder(self, user, name, site, sure):
        with self.lock:
            self.folders[user, name] = {"site": site, "sure": sure, "deleted": "no"}

    def deleting(self, user, name):
        with self.lock:
            self.folders[user, name]["deleted"] = "maybe"

    def half_deleted(self, user, name):
        """The delete was not answered, or refused after it had begun: its mails may be gone, and the folder there."""
        with self.lock:
            for (owner, folder, _), element in self.elements.items():
                if (owner, folder) == (user, name) and element.removed == "no":
                    element.removed = "maybe"

    def deleted(self, user, name, site, began, ended):
        """The folder's delete was answered: what this site cannot have seen lives on."""
        with self.lock:
            self.folders[user, name]["deleted"] = "yes"
            for (owner, folder, _), element in self.elements.items():
                if (owner, folder) != (user, name) or element.removed == "yes":
                    continue
                if element.added_at == site and element.ended is not None and element.ended <= began:
                    element.removed = "yes"
                elif not self.apart(element.added_at, site, element.began, ended):
                    element.removed = "maybe"

    def apart(self, one, other, since, until):
        """Whether two sites could not hear each other for the whole time."""
        return one != other and any((who is None or who in (one, other)) and began <= since and (ended is None or ended >= until)
                                    for who, began, ended in self.partitions)

    # -- the verdict -----------------------------------------------------------------------------------------------------

    def judge(self, digests, rebuilt=()):
        """Complaints about what all replicas show alike. digests: user to one Digest; rebuilt: users whose mdbox Dovecot rebuilt somewhere.
        Afterwards what is shown is what was."""
        complaints = []
        with self.lock:
            for user, digest in digests.items():
                complaints += [f"{user}: {line}" for line in self.judge_user(user, digest, user in rebuilt)]
        return complaints

    def moving(self, rebuilt):
        """For digest.wait_equal: says which mails that were added once are shown under several UIDs. A mail that gets another UID has two for
        a moment (docs/replicator.md, Renumbering), and where it gets it at all replicas at once they all show both. What stays so is no moment:
        then the replicas never come to rest. rebuilt(): users whose mdbox Dovecot rebuilt somewhere, where it may stay so."""
        def told(user, digests):
            lines = [f"{name} in {path} at {replica}: UIDs {' '.join(map(str, uids))}, and it was added once"
                     for replica, digest in digests.items() for path, folder in digest.folders.items()
                     for name, uids in folder.doubled().items() if self.is_single(user, path, name)]
            return lines if lines and user not in rebuilt() else []
        return told

    def is_single(self, user, folder, mail):
        """Whether a mail that is there twice is a fault of the replicas."""
        with self.lock:
            element = self.elements.get((user, folder, mail))
        return element is not None and not element.doubled

    @staticmethod
    def excuse(element, found):
        """What a rebuilt mdbox does by itself."""
        if len(found) > 1 and len({(message.guid, message.sha256) for message in found}) == 1:
            element.doubled = True
        if found and element.removed == "yes":
            element.removed, element.copied = "no", True    # with flags that nobody knows
            element.flags = {}

    def judge_user(self, user, digest, rebuilt=False):
        shown = {}
        for name, folder in digest.folders.items():
            for message in folder.messages.values():
                shown.setdefault((name, message.name), []).append(message)
        told = []
        for (owner, folder, mail), element in list(self.elements.items()):
            if owner != user:
                continue
            found = shown.pop((folder, mail), [])
            if rebuilt:
                self.excuse(element, found)
            if element.doubled:
                element.removed = "no" if found else "yes"
                continue
            if len(found) > 1:
                told.append(f"{mail} in {folder}: {len(found)} copies of what was added once")
            if found and element.removed == "yes":
                told.append(f"{mail} in {folder}: there, though its removal was answered")
            if not found and element.sure and element.removed == "no":
                told.append(f"{mail} in {folder}: LOST, though answered at {element.added_at}")
            if not found:
                if not element.sure or element.removed != "no":
                    element.removed = "yes"     # equal everywhere after quiet: it will not come back
                continue
            element.sure = True
            if element.removed == "maybe":
                element.removed = "no"
            told += self.judge_flags(folder, mail, element, found[0])
        # Mails of a folder that was deleted and not purged: a rebuild puts them into INBOX. Such a mail is there from now on.
        known = {mail for owner, folder, mail in self.elements if owner == user and self.folders.get((user, folder), {}).get("deleted", "no") != "no"}
        for folder, mail in [key for key in shown if rebuilt and key[0] == "INBOX" and key[1] in known]:
            del shown[folder, mail]
            self.elements[user, folder, mail] = Element("", 0.0, True, copied=True)
        told += [f"{mail} in {folder}: nobody put it there" for folder, mail in shown]
        for (owner, folder), known in self.folders.items():
            if owner != user:
                continue
            there = folder in digest.folders
            holds = any(key[:2] == (user, folder) and element.removed == "no" for key, element in self.elements.items())
            if known["sure"] and known["deleted"] == "no" and not there:
                told.append(f"folder {folder}: LOST, though its creation was answered")
            if known["deleted"] == "yes" and there and not holds:
                told.append(f"folder {folder}: there and empty, though its deletion was answered")
        return told

    @staticmethod
    def judge_flags(folder, mail, element, message):
        told = []
        for name, flag in element.flags.items():
            value = name in message.flags
            if value not in flag.allowed():
                done = " ".join(f"{change.how}{change.site}{'' if change.sure else '?'}" for change in flag.changes)
                told.append(f"{mail} in {folder}: {name} is {value}, before it was {flag.value}, then {done or 'nothing'}")
            flag.value, flag.changes = value, []
        known = set(element.flags)
        for name in message.flags - known - {"\\deleted"}:
            if not element.copied:
                told.append(f"{mail} in {folder}: {name} is set, and nobody set it")
            element.flags[name] = Flag(True)
        if element.copied:
            element.copied = False
        return told
