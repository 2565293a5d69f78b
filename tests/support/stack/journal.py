"""What clients were answered, and so what every replica must show: an OR-Set model of each user's mail.

An element is one mail in one folder, whatever the folder is called by now. Traffic (traffic.py) never adds the same element twice, so after quiet:

    added and answered, never asked to be removed       there, exactly once
    removed and answered                                gone
    asked, but not answered                             either, though at most once (a folder's delete expunges its mails first)
    a flag                                              what `Flag.allowed` says; between two quiet moments a flag that several
                                                        sites changed in both directions may end either way, alike everywhere
    an element that was added several times             as often as that at most; once at least, if it was removed by nobody since
    a subscription                                      as a flag
    an annotation                                       the last value that one site gave; any of those that several sites gave
    a folder that was renamed                           under one name: its new one, or one of those that several sites gave it

No two folders ever had one name, but for those that are united. A folder that one site deletes and another one renames may live, empty.
A folder's delete takes away what its site had seen. What another site added while the two were apart must live on, and so must the
folder. What was added near in time without a partition may go either way.

An mdbox whose process was killed in the middle of a change is rebuilt by Dovecot itself from its files: expunged mails that were not
purged come back, and a mail that is being saved at that moment may end up there twice, the same GUID under two UIDs. Without any
replication too (`tests/support/stack` on one mdbox shows both), and nothing tells such a mail from one that a client copied; those of a folder
that was deleted come back in INBOX. For users whose mdbox was rebuilt, none of it is a complaint.

A Maildir whose imap process was killed while it gave a mail a keyword that was new there shows the next new keyword in its place, or "unknown-0":
the file has the letter before dovecot-keywords tells what it means. Of such a mail no keyword that nobody set is a complaint.

A CREATE of a name that nobody else makes may be answered ALREADYEXISTS: another session of the user's that brings the list index up to
date completes what it finds half made (docs/replicator/sweeping.md has figures of Dovecot alone). The folder is there, and its GUID tells whose
process completed it: a client's counts as created, any other one's is a refusal.
"""
import threading
from dataclasses import dataclass, field

ON, OFF = "+", "-"
CLIENTS = ("imap", "lmtp")
# A folder that another site made may not be here yet, or be gone; as may a mail (RFC 5530: EXPUNGEISSUED).
ABSENT = ("TRYCREATE", "EXPUNGEISSUED", "NONEXISTENT", "Mailbox doesn't exist", "UIDVALIDITY changed", "mailbox was deleted", "Mailbox was deleted")


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

    def last(self):
        """Of two sessions' changes that overlap in time, either may have come last."""
        return [change for n, change in enumerate(self.changes)
                if not any(later.sure and change.is_before(later) for later in self.changes[n + 1:])]

    def allowed(self):
        """The values it may have now."""
        if not self.changes:
            return {self.value} if self.value is not None else {True, False}
        sites = {change.site for change in self.changes}
        kinds = {change.how for change in self.changes}
        if len(sites) == 1:
            allowed = {change.how == ON for change in self.last()}
            if not any(change.sure for change in self.changes):
                allowed |= {self.value} if self.value is not None else {True, False}
            return allowed
        if len(kinds) == 1 and any(change.sure for change in self.changes):
            return {kinds == {ON}}
        return {True, False}


class Annotation(Flag):
    """One METADATA entry of a folder: `how` of a change is the value, None when it was unset."""

    def allowed(self):
        sites = {change.site for change in self.changes}
        allowed = {change.how for change in (self.last() if len(sites) == 1 else self.changes)}
        return allowed if any(change.sure for change in self.changes) else allowed | {self.value}


@dataclass
class Folder:
    """One folder, which keeps the name that it was made with as its key."""
    site: str
    sure: bool                  # its creation was answered
    names: set                  # what it may be called now
    name: str                   # what it was called last
    deleted: str = "no"         # no, maybe, yes
    renamed: set = field(default_factory=set)   # sites that renamed it since the last quiet moment
    settled: str = None         # its name then


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
    adds: int = 1               # since the last quiet moment, and what was there then
    misread: bool = False       # its letter for a keyword may mean another one
    doubled: bool = False       # by the storage: which of its copies a client acts on is not known any more


class Journal:
    """All elements of all users. Thread-safe."""

    def __init__(self):
        self.lock = threading.RLock()
        self.elements = {}          # (user, folder, mail) to Element
        self.folders = {}           # (user, folder) to Folder
        self.keys = {}              # (user, name) to the folder that was ever called so, of those that were renamed
        self.subscriptions = {}     # (user, name) to Flag
        self.annotations = {}       # (user, folder, entry) to Annotation
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

    def key(self, user, name, *more):
        """Of a folder that is called so, or of something in it."""
        return (user, self.keys.get((user, name), name), *more)

    def element(self, user, folder, mail):
        return self.elements.get(self.key(user, folder, mail))

    def claim(self, user, folder, mail, site, now, copied=False, flags=()):
        """Enters an element, with the flags it is born with, before its command is sent; False when it was ever there."""
        with self.lock:
            key = self.key(user, folder, mail)
            if key in self.elements:
                return False
            self.elements[key] = Element(site, now, False, copied=copied, flags={flag.lower(): Flag(True) for flag in flags})
            return True

    def claim_again(self, user, folder, mail, site, now, **how):
        """As claim; but the element may have been there, or be. Who removes it from now on may mean either."""
        with self.lock:
            if not self.claim(user, folder, mail, site, now, **how):
                element = self.element(user, folder, mail)
                element.adds, element.removed = element.adds + 1, "no"

    def added(self, user, folder, mail, now, sure):
        with self.lock:
            element = self.element(user, folder, mail)
            element.sure, element.ended = sure or (element.sure and element.adds > 1), now
            # What a storage kept of a command that was cut short may be the mail without its flags.
            for flag in element.flags.values() if not sure else ():
                flag.value = None

    def unclaim(self, user, folder, mail):
        """The server said NO: it was not done."""
        with self.lock:
            del self.elements[self.key(user, folder, mail)]

    def removing(self, user, folder, mail, site):
        with self.lock:
            element = self.element(user, folder, mail)
            if element and element.removed == "no":
                element.removed = "maybe"

    def removed(self, user, folder, mail):
        with self.lock:
            element = self.element(user, folder, mail)
            element.removed = "yes" if element.adds == 1 else "maybe"

    def stored(self, user, folder, mail, flag, how, site, sure, began=None, ended=None):
        with self.lock:
            element = self.element(user, folder, mail)
            if element:
                element.flags.setdefault(flag.lower(), Flag(None if element.copied else False)).changes.append(
                    Change(site, how, sure, began, ended))

    def cut_short(self, user, folder, mail, flags):
        """A Maildir's process was killed while it set those."""
        with self.lock:
            element = self.element(user, folder, mail)
            if element and any(not flag.startswith("\\") for flag in flags):
                element.misread = True

    def subscribed(self, user, name, how, site, sure, began=None, ended=None):
        with self.lock:
            self.subscriptions.setdefault((user, name), Flag()).changes.append(Change(site, how, sure, began, ended))

    def annotated(self, user, folder, entry, value, site, sure, began=None, ended=None):
        with self.lock:
            self.annotations.setdefault(self.key(user, folder, entry), Annotation(None)).changes.append(Change(site, value, sure, began, ended))

    def marked(self, user, folder):
        """Mails of a folder that may have \\Deleted."""
        with self.lock:
            return [key[2] for key, element in self.elements.items() if key[:2] == self.key(user, folder)
                    and ("\\deleted" in element.flags and element.flags["\\deleted"].allowed() != {False})]

    def folder(self, user, name, site, sure):
        with self.lock:
            self.folders[user, name] = Folder(site, sure, {name}, name, settled=name)

    def renaming(self, user, name, target, site):
        """Before it is sent; the target is a name that nothing ever had. What is below it goes with it, if the site knows it."""
        with self.lock:
            called = {**{name: key for (owner, name), key in self.keys.items() if owner == user}, **{key: key for owner, key in self.folders if owner == user}}
            for known, key in called.items():
                if (known + "/").startswith(name + "/"):
                    folder, fresh = self.folders[user, key], target + known[len(name):]
                    folder.names.add(fresh)
                    folder.renamed.add(site)
                    folder.deleted = "maybe" if folder.deleted == "yes" else folder.deleted
                    self.keys[user, fresh] = key

    def renamed(self, user, target):
        """It was answered: the folder itself is not called any more what it was at the last quiet moment."""
        with self.lock:
            folder = self.folders[self.key(user, target)]
            folder.name = target
            folder.names.discard(folder.settled)

    def deleting(self, user, name):
        with self.lock:
            self.folders[self.key(user, name)].deleted = "maybe"

    def half_deleted(self, user, name):
        """The delete was not answered, or refused after it had begun: its mails may be gone, and the folder there."""
        with self.lock:
            for (owner, folder, _), element in self.elements.items():
                if (owner, folder) == self.key(user, name) and element.removed == "no":
                    element.removed = "maybe"

    def deleted(self, user, name, site, began, ended):
        """The folder's delete was answered: what this site cannot have seen lives on."""
        with self.lock:
            folder = self.folders[self.key(user, name)]
            folder.deleted = "maybe" if folder.renamed - {site} else "yes"
            for (owner, where, _), element in self.elements.items():
                if (owner, where) != self.key(user, name) or element.removed == "yes":
                    continue
                if element.adds == 1 and element.added_at == site and element.ended is not None and element.ended <= began:
                    element.removed = "yes"
                elif not self.apart(element.added_at, site, element.began, ended):
                    element.removed = "maybe"

    def heal(self, now):
        self.partitions[:] = [(who, began, ended or now) for who, began, ended in self.partitions]

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
        a moment (docs/replicator/applying.md, Renumbering), and where it gets it at all replicas at once they all show both. What stays so is no moment:
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
            element = self.element(user, folder, mail)
        return element is not None and not element.doubled and element.adds == 1

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
                shown.setdefault(self.key(user, name, message.name)[1:], []).append(message)
        told = self.judge_names(user, digest) + self.judge_subscriptions(user, digest) + self.judge_annotations(user, digest)
        for (owner, folder, mail), element in list(self.elements.items()):
            if owner != user:
                continue
            found = shown.pop((folder, mail), [])
            if rebuilt:
                self.excuse(element, found)
            if element.doubled:
                element.removed = "no" if found else "yes"
                continue
            if len(found) > element.adds:
                told.append(f"{mail} in {folder}: {len(found)} copies of what was added {'once' if element.adds == 1 else f'{element.adds} times'}")
            if found and element.removed == "yes":
                told.append(f"{mail} in {folder}: there, though its removal was answered")
            if not found and element.sure and element.removed == "no":
                told.append(f"{mail} in {folder}: LOST, though answered at {element.added_at}")
            if not found:
                if not element.sure or element.removed != "no":
                    element.removed = "yes"     # equal everywhere after quiet: it will not come back
                continue
            element.sure = True
            if element.removed == "maybe" and element.adds == 1:    # of copies of one mail each site may have removed another one, and all look alike
                element.removed = "no"
            if element.adds > 1:
                element.adds, element.flags, element.copied = len(found), {}, True
                continue
            told += self.judge_flags(folder, mail, element, found[0])
        # Mails of a folder that was deleted and not purged: a rebuild puts them into INBOX. Such a mail is there from now on.
        deleted = {folder for (owner, folder), known in self.folders.items() if owner == user and known.deleted != "no"}
        known = {mail for owner, folder, mail in self.elements if owner == user and folder in deleted}
        for folder, mail in [key for key in shown if rebuilt and key[0] == "INBOX" and key[1] in known]:
            del shown[folder, mail]
            self.elements[user, folder, mail] = Element("", 0.0, True, copied=True)
        told += [f"{mail} in {folder}: nobody put it there" for folder, mail in shown]
        there = {self.key(user, name)[1] for name in digest.folders}
        for (owner, folder), known in self.folders.items():
            if owner != user:
                continue
            holds = any(key[:2] == (user, folder) and element.removed == "no" for key, element in self.elements.items())
            if known.sure and known.deleted == "no" and folder not in there:
                told.append(f"folder {folder}: LOST, though its creation was answered")
            if known.deleted == "yes" and folder in there and not holds:
                told.append(f"folder {folder}: there and empty, though its deletion was answered")
            elif known.deleted == "yes" and folder in there:
                known.deleted = "no"  # its mails keep it, and it stays when they are removed
        return told

    def judge_names(self, user, digest):
        told = []
        for (owner, key), folder in self.folders.items():
            shown = [name for name in digest.folders if owner == user and self.key(user, name) == (user, key)]
            if len(shown) > 1:
                told.append(f"folder {key}: shown as {' and '.join(shown)}")
            elif shown and shown[0] not in folder.names:
                told.append(f"folder {key}: shown as {shown[0]}, and is {' or '.join(sorted(folder.names))} (deleted: {folder.deleted})")
            if shown:
                folder.names, folder.name, folder.settled, folder.renamed = {shown[0]}, shown[0], shown[0], set()
        return told

    def judge_subscriptions(self, user, digest):
        told = [f"{name}: nobody subscribed to it" for name in digest.subscribed if (user, name) not in self.subscriptions]
        for (owner, name), flag in self.subscriptions.items():
            if owner == user:
                told += self.judge_value(f"subscription to {name}", flag, name in digest.subscribed)
        return told

    def judge_annotations(self, user, digest):
        known = {(name, entry) for name, entry in digest.attributes if self.key(user, name, entry) in self.annotations}
        told = [f"{entry} of {name or 'the server'}: nobody set it" for name, entry in digest.attributes if entry.startswith("/") and (name, entry) not in known]
        for name in digest.folders:
            for (owner, folder, entry), annotation in self.annotations.items():
                if (owner, folder) == self.key(user, name):
                    told += self.judge_value(f"{entry} of {name}", annotation, digest.attributes.get((name, entry)))
        return told

    @staticmethod
    def judge_value(what, register, value):
        """One complaint or none; from now on this is the value."""
        allowed, done = register.allowed(), " ".join(f"{change.how}{change.site}{'' if change.sure else '?'}" for change in register.changes)
        told = [] if value in allowed else [f"{what} is {value}, before it was {register.value}, then {done or 'nothing'}"]
        register.value, register.changes = value, []
        return told

    @staticmethod
    def judge_flags(folder, mail, element, message):
        told = []
        for name, flag in element.flags.items():
            told += Journal.judge_value(f"{mail} in {folder}: {name}", flag, name in message.flags)
        known = set(element.flags)
        for name in message.flags - known - {"\\deleted"}:
            if not element.copied and not (element.misread and not name.startswith("\\")):
                told.append(f"{mail} in {folder}: {name} is set, and nobody set it")
            element.flags[name] = Flag(True)
        element.copied = element.misread = False
        return told
