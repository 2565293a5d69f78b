"""The list of changes: each says what differs, does it, and does nothing when it is done already.

Order counts. A file is in its place before the unit that reads it is started. Postfix comes last, since from then on mail comes.
"""
import difflib

import files


class Step:
    """What is not for everybody (no bits for others) has its mode and owner mended; what is public keeps those that an admin gave it."""

    path, mode, owner, group = "", 0o755, "root", "root"

    def wrong_access(self, host, now):
        """now: as files.state() says it."""
        if self.mode & 0o007 or now["kind"] == "link":
            return None
        has = (now["mode"], now["uid"], now["gid"])
        return None if has == (self.mode, host.uid(self.owner), host.gid(self.group)) else f"set {self.path} to {self.access()}; it is {has[1]}:{has[2]} {has[0]:04o}"

    def access(self):
        return f"{self.owner}:{self.group} {self.mode:04o}"


class Directory(Step):
    def __init__(self, path, mode=0o755, owner="root", group="root"):
        self.path, self.mode, self.owner, self.group = path, mode, owner, group

    def difference(self, host, _journal, _changed):
        if not host.path(self.path).is_dir():
            return f"make the directory {self.path} ({self.access()})"
        return self.wrong_access(host, files.state(host.path(self.path)))

    def apply(self, host, journal):
        journal.remember(self.path)
        files.make_directory(host.path(self.path), self.mode, host.uid(self.owner), host.gid(self.group))


class File(Step):
    """note: shown in the place of its content ("secret"). edits: what becomes of another's changes: "merged" (content was made from the file as it is),
    "kept" (a file that is the admin's once it is there), or "refused": nothing is written over them."""

    def __init__(self, path, content, mode=0o644, owner="root", group="root", note=None, edits="refused"):
        self.path, self.mode, self.owner, self.group, self.note, self.edits = path, mode, owner, group, note, edits
        self.content = content.encode() if isinstance(content, str) else content

    def difference(self, host, journal, _changed):
        old = host.read(self.path)
        if self.edits == "kept" and (old == self.content or journal.edited(self.path)):
            return None
        if old == self.content:
            return self.wrong_access(host, files.state(host.path(self.path)))
        if self.note:
            return f"{'write' if old is None else 'replace'} {self.path} ({self.access()}): {self.note}"
        lines = difflib.unified_diff((old or b"").decode("utf-8", "replace").splitlines(), self.content.decode("utf-8", "replace").splitlines(),
                                     self.path if old is not None else "/dev/null", f"{self.path} ({self.access()})", lineterm="")
        return "\n".join(lines)

    def apply(self, host, journal):
        keeps = self.mode & 0o007 and (self.edits == "merged" or self.path in journal.data["after"])
        journal.remember(self.path)
        journal.writes(self.path, self.content)
        now, access = files.state(host.path(self.path)), (self.mode, host.uid(self.owner), host.gid(self.group))
        if now and now["kind"] == "file" and keeps:
            access = (now["mode"], now["uid"], now["gid"])
        files.write(host.path(self.path), self.content, *access)


class Missing:
    """A file of ours that must not be there any more. One that somebody else made stays."""

    def __init__(self, path):
        self.path = path

    def difference(self, host, journal, _changed):
        return f"remove {self.path}" if host.exists(self.path) and self.path in journal.data["after"] else None

    def apply(self, host, journal):
        files.remove(host.path(self.path))


class Unit:
    """Enabled and started."""

    def __init__(self, name, then=None):
        self.name, self.then = name, then

    def difference(self, host, _journal, _changed):
        words = [word for word, is_so in (("enable", host.enabled(self.name)), ("start", host.running(self.name))) if not is_so]
        return f"systemctl {' and '.join(words)} {self.name}" if words else None

    def apply(self, host, journal):
        journal.remember_unit(self.name)
        host.systemctl("enable", "--now", self.name)
        if self.then:
            self.then()


class Reaction:
    """What a running program needs after one of `files` changed; skipped for a unit that this plan has just started."""

    def __init__(self, name, watched, run, unit=None):
        self.name, self.watched, self.run, self.unit = name, set(watched), run, unit

    def difference(self, host, journal, changed):
        due = self.name in journal.data["pending"] or self.watched & changed
        if not due or (self.unit and not host.active(self.unit)):
            return None
        return self.name

    def apply(self, _host, _journal):
        self.run()


class Plan:
    def __init__(self, host, journal, steps, conflicts=(), whole=True):
        """whole: all that a host is to be, and not only what the group decides."""
        self.host, self.journal, self.steps, self.conflicts, self.whole = host, journal, steps, list(conflicts), whole

    def texts(self):
        return [text for _, text in self.differences()]

    def differences(self):
        """[(step, text)] of what is not as it should be."""
        found, changed, seen = [], set(), set()
        for step in self.steps:
            text = step.difference(self.host, self.journal, changed)
            if text and text not in seen:
                found.append((step, text))
                seen.add(text)
                if isinstance(step, (File, Missing)):
                    changed.add(step.path)
        return found

    def refused(self):
        """What is in the way: files that somebody changed since they were written here."""
        edited = [step.path for step in self.steps if isinstance(step, File) and step.edits == "refused" and step.content != self.host.read(step.path) and self.journal.edited(step.path)]
        return self.conflicts + [f"{path} was changed by hand since `dovelane init` wrote it, and would be written over: nothing was done. Save your changes elsewhere and "
                                 f"remove the file; then run this again" for path in edited]

    def apply(self, tell=lambda text: None):
        """Does what differs, in order. What is killed in the middle is finished by the next call."""
        todo = self.differences()
        if not todo:
            return False
        self.journal.prepare()
        self.journal.expect([step.name for step, _ in todo if isinstance(step, Reaction)])
        started = set()
        for step, _ in todo:
            if isinstance(step, Reaction):
                if step.unit not in started:
                    tell(step.name)
                    step.apply(self.host, self.journal)
                self.journal.done(step.name)
                continue
            # Looked at again: an earlier step may have done it (a service that starts another).
            if step.difference(self.host, self.journal, set()):
                step.apply(self.host, self.journal)
                if isinstance(step, Unit):
                    tell(f"started {step.name}")
                    started.add(step.name)
        # Reactions of units that do not run: their next start reads the files anyhow. What only a whole plan does waits for it.
        own = {step.name for step in self.steps if isinstance(step, Reaction)}
        for name in list(self.journal.data["pending"]):
            if self.whole or name in own:
                self.journal.done(name)
        return True
