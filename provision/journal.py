"""What was there before the first change, and what of a change is still to be done.

It is written and synced before anything is changed. So the next run finishes one that was killed, and `--undo` finds each file as it
was. It lives in a directory that only root may enter: /var/lib/dovelane belongs to the user dovelane, who must not
choose what root puts back.
"""
import contextlib
import fcntl
import json
import os

import files
from host import Trouble

DIRECTORY = "/var/lib/dovelane-provision"
# Programs make files here that no plan names; what was not there before goes at an undo.
WATCHED = ("/var/lib/dovelane", "/var/lib/dovelane-replicator", "/var/lib/redis/dovelane", "/etc/dovelane", "/etc/redis/dovelane")


class Gone(Trouble):
    """Nothing is set up here."""


class Journal:
    def __init__(self, host):
        self.host = host
        self.directory = host.path(DIRECTORY)
        self.file = self.directory / "journal.json"
        self.data = {}
        self.load()

    def load(self):
        self.data = {"before": {}, "after": {}, "units": {}, "pending": [], "watched": None, "undoing": False}
        try:
            self.data.update(json.loads(self.file.read_text()))
        except FileNotFoundError:
            pass
        except ValueError as e:
            raise Trouble(f"{self.file} cannot be read ({e}): restore it from a backup; `dovelane init` does nothing without it") from None

    @property
    def there(self):
        return self.file.exists()

    def prepare(self):
        """Its directory. None of the rest may be changed before."""
        self.make_directory()
        (self.directory / "before").mkdir(mode=0o700, exist_ok=True)
        if self.data["watched"] is None:
            self.data["watched"] = {top: sorted(self.below(top)) for top in WATCHED}
            self.save()

    def make_directory(self):
        if not self.directory.is_dir():
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            files.make_directory(self.directory, 0o700)

    def below(self, top):
        top = self.host.path(top)
        for folder, directories, names in os.walk(top):
            for name in directories + names:
                yield os.path.relpath(os.path.join(folder, name), top)

    @contextlib.contextmanager
    def lock(self, first=False):
        """One provisioning at a time: the timers' and the admin's. What decides about a change is read under it, and it is held until the change is done.

        first: may be the first that changes this host. Others find nothing to do where an undo has just removed all.
        """
        if first:
            self.make_directory()
        with self.locked_file():
            self.load()  # what another one wrote while this one waited
            self.prepare()
            yield

    @contextlib.contextmanager
    def locked_file(self):
        path = self.directory / "lock"
        while True:
            try:
                held = open(path, "w", encoding="ascii")
            except FileNotFoundError:
                raise Gone("this host is in no group (any more): `dovelane init` makes one, `dovelane join` enters one") from None
            with held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    print("waiting for another `dovelane` that changes this host", flush=True)
                    fcntl.flock(held, fcntl.LOCK_EX)
                # An undo removes the file with all the rest: then it locks nobody out.
                if path.exists() and os.path.samestat(os.fstat(held.fileno()), os.stat(path)):
                    yield
                    return

    def save(self):
        files.write(self.file, json.dumps(self.data, indent=1, sort_keys=True).encode(), 0o600)

    # ---- files ----

    def remember(self, path):
        """Keeps what lies at path, once: a later run must not take our own file for what was there before."""
        if path in self.data["before"]:
            return
        state = files.state(self.host.path(path))
        # What a link leads to is kept, too: our file takes the link's place.
        if state and (state["kind"] == "file" or (state["kind"] == "link" and self.host.path(path).is_file())):
            copy = f"{len(self.data['before']):04}-{os.path.basename(path)}"
            files.write(self.directory / "before" / copy, self.host.read(path), 0o600)
            state["copy"] = copy
        self.data["before"][path] = state
        self.save()

    def writes(self, path, content):
        """Said before it is done: a run that is killed between the two leaves the old content or the new one, and both are known."""
        old = self.host.read(path)
        if path in self.data["after"] and old is not None and files.digest(old) not in self.data["after"][path]:
            self.data.setdefault("foreign", {})[path] = True
        self.data["after"][path] = [files.digest(content), files.digest(self.host.read(path) or b"")]
        self.save()

    def edited(self, path):
        """Whether somebody else changed what was written here."""
        content = self.host.read(path) if path in self.data["after"] else None
        return content is not None and files.digest(content) not in self.data["after"][path]

    def has_foreign(self, path):
        """Whether something of somebody else's is in it, also where a later run of ours kept it."""
        return self.edited(path) or path in self.data.get("foreign", {})

    def copy(self, path):
        return files.read(self.directory / "before" / self.data["before"][path]["copy"])

    # ---- units, and what is still to be done ----

    def remember_unit(self, unit):
        if unit not in self.data["units"]:
            self.data["units"][unit] = {"enabled": self.host.enabled(unit), "active": self.host.active(unit)}
            self.save()

    def expect(self, names):
        for name in names:
            if name not in self.data["pending"]:
                self.data["pending"].append(name)
        self.save()

    def done(self, name):
        if name in self.data["pending"]:
            self.data["pending"].remove(name)
            self.save()
