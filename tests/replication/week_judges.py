"""Judges of a week (week.py): each user's mails, and why a client loads one again."""
import re
import time
from collections import Counter, defaultdict


class Ledger:
    """A user's mails, by name, as his clients were answered."""

    def __init__(self):
        self.there, self.gone, self.unsure = {}, set(), set()
        self.removed = set()    # (folder, name), by clients
        self.free = set()   # neither moved nor expunged yet: each mail is so once

    def added(self, name, folder):
        self.there[name] = folder
        self.free.add(name)

    def judge(self, shown):
        """shown: a digest; what all sites show. (what went wrong, its counts)"""
        found, told, counts = defaultdict(list), [], Counter()
        for folder, held in shown.folders.items():
            for mail in held.messages.values():
                found[mail.name].append(folder)
        for name, folder in self.there.items():
            if name not in found and name not in self.unsure:
                counts["lost"] += 1
                told.append(f"lost: {name}, last in {folder}")
        for name, folders in found.items():
            if len(folders) > 1 and name not in self.unsure:
                counts["doubles"] += 1
                told.append(f"double: {name} in {', '.join(folders)}")
            if name in self.gone and name not in self.unsure:
                counts["expunged and back"] += 1
                told.append(f"expunged, and in {', '.join(folders)}")
        counts["mails"] = len(self.there)
        counts["unsure"] = len(self.unsure)
        return told, counts


class Uids:
    """Which UIDs each mail had, and since when at which site.

    Dovecot logs what clients save, the replicator what it places.
    """

    SAVED = re.compile(r"\w\(([^)\s]+@[^)\s]+)\)<.*?(?:save|copy from [^:]*): "
                       r"box=([^,]*), uid=(\d+), msgid=<([^@>]*)@")
    PLACED = re.compile(r"user=(\S+): (.*?): UID (\d+): placed, msgid=<([^@>]*)@")

    def __init__(self):
        self.names, self.uids, self.since = defaultdict(set), defaultdict(set), {}

    def read(self, site, text):
        for line in text.splitlines():
            if found := self.SAVED.search(line) or self.PLACED.search(line):
                user, box, uid, name = found.groups()
                self.names[user, box, int(uid)].add(name)
                self.uids[user, box, name].add(int(uid))
                self.since.setdefault((site, user, box, name), when(line))
        return self

    def why(self, user, again, removed):
        """Why a client has to load a mail again.

        clash: two sites gave one UID to two mails, of which one must get another (IMAP allows no
        other way). behind: it went to a site that had not got the mail yet, or one that had not
        heard yet that it was removed. removed: {(folder, name)} that the user took away.
        """
        uids = self.uids[user, again.folder, again.name]
        if any(len(self.names[user, again.folder, uid]) > 1 for uid in uids):
            return "clash"
        if again.dropped:
            site, at = again.dropped
            there = self.since.get((site, user, again.folder, again.name))
            if there is None or there >= int(at):
                return "behind"
            if site != again.site and (again.folder, again.name) in removed:
                return "behind"
        return "unexplained"

    def lacked(self, user, missed):
        """Whether the client had the mail from one site, and removed it at another one that did
        not have it yet, and got it later: in a later second than that in which the visit began.
        """
        if missed.dropped is None or missed.loaded in (None, missed.dropped[0]):
            return False
        site, at = missed.dropped
        there = self.since.get((site, user, missed.folder, missed.name))
        return there is not None and there > int(at)


def when(line):
    """The time of a line of Dovecot's log, in seconds."""
    return time.mktime(time.strptime(f"{time.localtime().tm_year} {line[:15]}",
                                     "%Y %b %d %H:%M:%S"))
