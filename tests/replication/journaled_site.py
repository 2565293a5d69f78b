"""A Site whose commands are told to a Journal of acknowledged operations: what was answered, and nothing else."""
import time

from site_user import Site
from support.stack.journal import OFF, ON


class JournaledSite(Site):
    def __init__(self, replica, user, journal):
        super().__init__(replica, user)
        self.journal, self.at = journal, replica.letter

    # -- mails -----------------------------------------------------------------------------------------------------------

    def adds(self, folder, name, command, **how):
        self.journal.claim_again(self.user, folder, name, self.at, time.monotonic(), **how)
        command()
        self.journal.added(self.user, folder, name, time.monotonic(), True)
        self.journal.count("add", "ok")

    def removes(self, folder, name, command):
        self.journal.removing(self.user, folder, name, self.at)
        command()
        self.journal.removed(self.user, folder, name)
        self.journal.count("remove", "ok")

    def append(self, folder, name, *flags, size=300):
        self.adds(folder, name, lambda: super(JournaledSite, self).append(folder, name, *flags, size=size), flags=flags)

    def deliver(self, name, size=300):
        self.adds("INBOX", name, lambda: super(JournaledSite, self).deliver(name, size))

    def copy(self, folder, name, target):
        self.adds(target, name, lambda: super(JournaledSite, self).copy(folder, name, target), copied=True)

    def move(self, folder, name, target):
        self.removes(folder, name, lambda: self.adds(target, name, lambda: super(JournaledSite, self).move(folder, name, target), copied=True))

    def expunge(self, folder, name, copy=None):
        self.removes(folder, name, lambda: super(JournaledSite, self).expunge(folder, name, copy))

    def expunge_marked(self, folder):
        for name in self.journal.marked(self.user, folder):
            self.journal.removing(self.user, folder, name, self.at)
        super().expunge_marked(folder)

    def flag(self, folder, name, how, *flags):
        began = time.monotonic()
        super().flag(folder, name, how, *flags)
        changes = {flag: OFF if how == "-" else ON for flag in flags}
        if how == "=":
            changes.update(dict.fromkeys({*self.journal.element(self.user, folder, name).flags} - {flag.lower() for flag in flags}, OFF))
        for flag, change in changes.items():
            self.journal.stored(self.user, folder, name, flag, change, self.at, True, began, time.monotonic())
        self.journal.count("store", "ok")

    # -- folders and what they have --------------------------------------------------------------------------------------

    def create(self, folder):
        super().create(folder)
        self.journal.folder(self.user, folder, self.at, True)
        self.journal.count("create", "ok")

    def delete(self, folder):
        began = time.monotonic()
        self.journal.deleting(self.user, folder)
        super().delete(folder)
        self.journal.deleted(self.user, folder, self.at, began, time.monotonic())
        self.journal.count("delete", "ok")

    def rename(self, folder, target):
        self.journal.renaming(self.user, folder, target, self.at)
        super().rename(folder, target)
        self.journal.renamed(self.user, target)
        self.journal.count("rename", "ok")

    def subscribe(self, folder, on=True):
        super().subscribe(folder, on)
        self.journal.subscribed(self.user, folder, ON if on else OFF, self.at, True)
        self.journal.count("subscribe", "ok")

    def annotate(self, folder, entry, value):
        super().annotate(folder, entry, value)
        self.journal.annotated(self.user, folder, entry, value, self.at, True)
        self.journal.count("annotate", "ok")
