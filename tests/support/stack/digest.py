"""What one replica shows of a user, and whether replicas show the same.

The digest is read by IMAP, as a client would: folders, and of each message name, GUID, SHA-256 of the whole mail, flags, keywords,
INTERNALDATE; subscriptions; attributes: METADATA, access rights where the server has them, and Sieve scripts with the active one (of the
user's files, since ManageSieve does not run). UIDs are no part of it; they are held to the hard rule: no (folder, UIDVALIDITY, UID) names two mails.
"""
import contextlib
import hashlib
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .imap import Imap, ImapError, Lost, mailbox, parsed

NAME = re.compile(rb"^X-Mail: *([^\r\n]+)", re.MULTILINE | re.IGNORECASE)
# What a server decides by itself, or only says to one session.
NOT_A_FLAG = {"\\recent"}


class Unequal(AssertionError):
    """Replicas differ, and the text says where."""


@dataclass(frozen=True)
class Message:
    """What must be equal everywhere."""
    name: str               # header X-Mail, else the digest's first digits
    guid: str
    sha256: str
    flags: frozenset        # system flags and keywords, in small letters
    date: str               # INTERNALDATE

    def __str__(self):
        return f"{self.name} [{' '.join(sorted(self.flags))}] {self.date} guid {self.guid} sha {self.sha256[:12]}"


@dataclass
class Folder:
    validity: int
    uidnext: int
    messages: dict          # UID to Message

    def doubled(self):
        """{mail name: its UIDs}, of those that have several and one GUID."""
        uids = {}
        for uid, message in sorted(self.messages.items()):
            uids.setdefault((message.name, message.guid), []).append(uid)
        return {name: found for (name, _), found in uids.items() if len(found) > 1}


@dataclass
class Digest:
    """One user at one replica."""
    folders: dict
    subscribed: frozenset = frozenset()
    attributes: dict = field(default_factory=dict)      # (folder, entry), (folder, "acl WHO"), ("", "sieve NAME"), ("", "sieve active") to the value

    def content(self):
        """The part that two replicas are compared by."""
        folders = {name: Counter(folder.messages.values()) for name, folder in self.folders.items()}
        return folders, self.subscribed, self.attributes

    def shape(self):
        """{folder: {mail name: sorted list of its copies' flags}}: what a scenario expects."""
        shown = {}
        for name, folder in self.folders.items():
            mails = shown[name] = {}
            for message in folder.messages.values():
                mails.setdefault(message.name, []).append(tuple(sorted(message.flags)))
            for copies in mails.values():
                copies.sort()
        return shown

    def count(self):
        return sum(len(folder.messages) for folder in self.folders.values())


def flags_of(words):
    return frozenset(word.decode(errors="replace").lower() for word in words) - NOT_A_FLAG


def read_folder(session, name):
    lines = session.select(name, again=True)
    numbers = {}
    for line in lines:
        found = re.match(rb"\* OK \[(UIDVALIDITY|UIDNEXT) (\d+)", line)
        if found:
            numbers[found[1]] = int(found[2])
    messages = {}
    for uid, items in session.fetch("1:*", "FLAGS INTERNALDATE X-GUID BODY.PEEK[]"):
        body = items.get(b"BODY[]", b"")
        sha = hashlib.sha256(body).hexdigest()
        named = NAME.search(body[:4096])
        messages[uid] = Message(named[1].decode().strip() if named else sha[:12], items[b"X-GUID"].decode(), sha,
                                flags_of(items[b"FLAGS"]), items[b"INTERNALDATE"].decode())
    return Folder(numbers.get(b"UIDVALIDITY"), numbers.get(b"UIDNEXT"), messages)


def names(lines, skip=(b"\\noselect", b"\\nonexistent")):
    found = []
    for line in lines:
        words = parsed(line)
        if len(words) > 4 and words[1] in (b"LIST", b"LSUB") and not {flag.lower() for flag in words[2]} & set(skip):
            found.append(decoded(words[4]))
    return found


def decoded(name):
    """A folder's name from modified UTF-7."""
    import base64

    def one(match):
        if not match[1]:
            return "&"
        coded = match[1].replace(",", "/")
        return base64.b64decode(coded + "=" * (-len(coded) % 4)).decode("utf-16-be")
    return re.sub(r"&([^-]*)-", one, name.decode(errors="replace"))


def annotations(session, name):
    """{(folder, entry): value}, private and shared; folder "": the server's, of which Dovecot lists what is below a name, but not all."""
    found, entries = {}, "/private /shared" if name else "/private/comment /private/vendor /shared/vendor"
    for line in session.command(f"GETMETADATA (DEPTH infinity) {mailbox(name)} ({entries})")[1]:
        words = parsed(line)
        if len(words) >= 4 and words[1] == b"METADATA" and isinstance(words[3], list):
            found.update({(name, entry.decode()): value.decode(errors="replace") for entry, value in zip(words[3][0::2], words[3][1::2])})
    return found


def rights(session, name):
    """{who: rights}, the owner's own left out."""
    for line in session.command(f"GETACL {mailbox(name)}")[1]:
        words = parsed(line)
        if words[1:2] == [b"ACL"]:
            found = {who.decode(): "".join(sorted(given.decode())) for who, given in zip(words[3::2], words[4::2])}
            return {who: given for who, given in found.items() if who not in (session.user, "owner")}
    return {}


def scripts(home):
    """{name: text} of the Sieve scripts in a home, the active one's name behind "active"."""
    found = {path.stem: path.read_text(errors="replace").replace("\r\n", "\n") for path in sorted((home / "sieve").glob("*.sieve"))}
    active = home / ".dovecot.sieve"
    if active.is_symlink():
        found["active"] = active.readlink().stem
    return found


def named(session, replica, user, folders):
    """All attributes of a user."""
    has_rights = b"ACL" in b" ".join(session.command("CAPABILITY")[1]).split()
    found = annotations(session, "")
    for name in folders:
        with contextlib.suppress(ImapError):    # it went meanwhile, which the folders tell
            found.update(annotations(session, name))
            if has_rights:
                found.update({(name, f"acl {who}"): given for who, given in rights(session, name).items()})
    with contextlib.suppress(FileNotFoundError):
        found.update({("", f"sieve {name}"): text for name, text in scripts(replica.home(user)).items()})
    return found


def read(replica, user):
    """The user's Digest at a replica."""
    with Imap(replica.note["imap"], user) as session:
        folders = {}
        for name in sorted(names(session.command('LIST "" "*"')[1]), reverse=True):     # children first
            try:
                folders[name] = read_folder(session, name)
            except ImapError as error:
                session.selected = None
                # Dovecot lists the parent of a mailbox as one, too, after it was deleted from a Maildir (its list index says so).
                if "Mailbox doesn't exist" in str(error) and any(other.startswith(name + "/") for other in folders):
                    continue
                folders[name] = Folder(None, None, {0: Message(f"cannot be opened: {error}", replica.name, "", frozenset(), "")})
        subscribed = frozenset(names(session.command('LSUB "" "*"')[1], skip=()))
        return Digest(folders, subscribed, named(session, replica, user, folders))


def difference(one, other, names_of=("first", "second")):
    """What differs, in words; an empty list when nothing does."""
    told = []
    ours, theirs = one.content(), other.content()
    for name in sorted({*ours[0], *theirs[0]}):
        if name not in ours[0] or name not in theirs[0]:
            where = names_of[1] if name not in ours[0] else names_of[0]
            held = one.folders.get(name) or other.folders.get(name)
            told.append(f"folder {name!r} only at {where} ({len(held.messages)} mails{''.join(f'; {m}' for m in list(held.messages.values())[:3])})")
            continue
        for place, more, less in ((names_of[0], ours[0][name], theirs[0][name]), (names_of[1], theirs[0][name], ours[0][name])):
            told += [f"{name}: only at {place}: {message} x{times}" for message, times in (more - less).items()]
    for what, mine, yours in (("subscribed", ours[1], theirs[1]), ("attributes", set(ours[2].items()), set(theirs[2].items()))):
        if mine != yours:
            told.append(f"{what}: only at {names_of[0]} {sorted(mine - yours)}, only at {names_of[1]} {sorted(yours - mine)}")
    return told


def clashes(digests):
    """Where the hard rule of UIDs is broken. digests: replica name to Digest."""
    seen, told = {}, []
    for replica, digest in digests.items():
        for name, folder in digest.folders.items():
            for uid, message in folder.messages.items():
                key = (name, folder.validity, uid)
                before = seen.setdefault(key, (replica, message))
                if (before[1].sha256, before[1].guid) != (message.sha256, message.guid):
                    told.append(f"{name} UIDVALIDITY {folder.validity} UID {uid}: {before[1].name} ({before[1].guid}) at {before[0]}, "
                                f"{message.name} ({message.guid}) at {replica}")
    return told


def validities(digests):
    """Folders whose UIDVALIDITY differs: it is the highest that any site gave (docs/replication-protocol.md, rule 7)."""
    told = []
    for name in sorted(set.intersection(*({*digest.folders} for digest in digests.values()))):
        found = {replica: digest.folders[name].validity for replica, digest in digests.items()}
        if len(set(found.values())) > 1:
            told.append(f"{name}: UIDVALIDITY differs: {found}")
    return told


def same_uids(digests):
    """(messages whose UID is equal everywhere, messages): a goal, not a rule."""
    equal = total = 0
    first, *others = digests.values()
    for name, folder in first.folders.items():
        for uid, message in folder.messages.items():
            total += 1
            equal += all(name in other.folders and other.folders[name].validity == folder.validity
                         and other.folders[name].messages.get(uid) == message for other in others)
    return equal, total


def compare(replicas, user, uids=True):
    """Differences between all replicas for a user, the UID rule included; and the digests."""
    digests = {}
    for replica in replicas:
        try:
            digests[replica.name] = read(replica, user)
        except (Lost, ImapError) as error:
            return [f"{replica.name} cannot be read: {error}"], digests
    first, *others = digests
    told = [line for other in others for line in difference(digests[first], digests[other], (first, other))]
    return told + (clashes(digests) + validities(digests) if uids else []), digests


def settled(replicas, user, uids, moving):
    """(what differs, or is still moving, in words; the digests)"""
    differences, digests = compare(replicas, user, uids)
    return differences or (moving(user, digests) if moving else []), digests


def is_as_before(digests, before):
    """UIDs included: a mail that gets another one is shown under both for a moment, and so may be equally at all replicas."""
    return all(digests[name].content() == before[name].content() and
               all(folder.messages.keys() == before[name].folders[path].messages.keys() for path, folder in digests[name].folders.items())
               for name in before)


def wait_equal(replicas, users, within=30.0, uids=True, moving=None):
    """Waits until all replicas show the same of all users; {user: {replica: Digest}}. Unequal when they do not in time.

    Equal counts only when it is still so after everybody became equal: then nothing that was on its way changed it.
    moving(user, digests): what is shown alike and will not stay so, in words (Journal.moving).
    """
    end, agreed = time.monotonic() + within, {}
    pause = 0.02
    while True:
        told = {}
        for user in users:
            if user in agreed:
                continue
            differences, digests = settled(replicas, user, uids, moving)
            if differences:
                told[user] = differences
            else:
                agreed[user] = digests
        if not told:
            for user, before in list(agreed.items()):
                differences, digests = settled(replicas, user, uids, moving)
                if differences or not is_as_before(digests, before):
                    told[user] = differences or ["it was equal, and changed then"]
                    del agreed[user]
        if not told:
            return agreed
        if time.monotonic() > end:
            lines = [f"{user}: {line}" for user, differences in told.items() for line in differences[:12]]
            first = next(iter(told))
            lines[1:1] = [line for replica in replicas for line in what_it_says(replica, first)]
            head = f"not equal within {within:g} s, {len(told)} of {len(users)} users differ:"
            raise Unequal("\n  ".join([head, *lines[:80]]))
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


def what_it_says(replica, user):
    """Of a replica whose user does not become equal: what it knows of him, what is under way, and
    the last complaints of its log."""
    for words in (("status", "-u", user), ("lag", "-u", user)):
        try:
            said = replica.doveadm("dovelane", *words, timeout=20).decode(errors="replace")
        except Exception as error:  # pylint: disable=broad-except  # the mailboxes' failure is told
            said = f"{words[0]}: {error}"
        yield from (f"{replica.name}: {' '.join(line.split())}" for line in said.splitlines()[:4])
    with contextlib.suppress(OSError):
        log = Path(replica.log).read_text(errors="replace").splitlines()
        complaints = [line for line in log if re.search(r"(?i)warning|error|panic|fatal", line)]
        yield from (f"{replica.name}: {line[:300]}" for line in complaints[-5:])


def wait_same_uids(replicas, user, within=30.0):
    """As wait_equal, and each mail has one UID everywhere: mails that reach a site in another order get other UIDs there, until a round has settled
    them. {replica: Digest}."""
    end = time.monotonic() + within
    while True:
        digests = wait_equal(replicas, [user], within)[user]
        equal, total = same_uids(digests)
        if equal == total:
            return digests
        if time.monotonic() > end:
            raise Unequal(f"{user}: {total - equal} of {total} mails have not the same UID everywhere within {within:g} s")
        time.sleep(0.2)


def wait_shape(replica, user, wanted, within=30.0):
    """Waits until one replica shows what is wanted (Digest.shape); touches no other. None, or what it shows instead."""
    end = time.monotonic() + within
    pause = 0.02
    while True:
        try:
            digest = read(replica, user)
            if digest.shape() == wanted:
                return None
            seen = digest.shape()
        except (Lost, ImapError) as error:
            seen = str(error)
        if time.monotonic() > end:
            return seen
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)
