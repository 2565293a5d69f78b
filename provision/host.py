"""The host that is changed: its files below a root directory, its programs, its units.

Tests give another root and a runner of their own; everything else runs as root on the host itself.
"""
import grp
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess

import files


class Trouble(Exception):
    """What the admin reads: the thing, the value, the way out."""


def plain(text, longest=1000):
    """What another host said, as one line for a terminal: no control characters, which could play what was not said."""
    text = "".join(c if c.isprintable() else "?" for c in str(text))
    return text if len(text) <= longest else text[:longest] + " ..."


class Host:
    def __init__(self, root="/"):
        self.root = pathlib.Path(root)

    def path(self, path):
        return self.root / str(path).lstrip("/")

    def exists(self, path):
        return os.path.lexists(self.path(path))

    def read(self, path):
        """The file's bytes; None where there is no file."""
        try:
            return files.read(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except files.Unsafe as e:
            raise Trouble(str(e)) from None

    def text(self, path):
        content = self.read(path)
        return None if content is None else content.decode("utf-8", "replace")

    # ---- programs ----

    def run(self, *words, check=True, given=None, seconds=150):
        """Runs a program, its output as text. A failure names the command and what it said."""
        words = [str(word) for word in words]
        try:
            done = subprocess.run(words, input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds, check=False,
                                  stdin=subprocess.DEVNULL if given is None else None)
        except FileNotFoundError:
            raise Trouble(f"the program {words[0]} is not installed") from None
        except subprocess.TimeoutExpired:
            raise Trouble(f"`{' '.join(words)}` did not end within {seconds} s") from None
        if check and done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise Trouble(f"`{' '.join(words)}` failed: {' / '.join(said[-5:]) or f'status {done.returncode}'}")
        return done

    def program(self, name):
        found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        return found if found and self.exists(found) else None

    # ---- users ----

    @staticmethod
    def uid(name):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            raise Trouble(f"there is no user {name}: `systemd-sysusers` makes those of the installed packages") from None

    @staticmethod
    def gid(name):
        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            raise Trouble(f"there is no group {name}: `systemd-sysusers` makes those of the installed packages") from None

    # ---- units ----

    def enabled(self, unit):
        return self.run("systemctl", "is-enabled", unit, check=False).stdout.strip() in ("enabled", "enabled-runtime")

    def active(self, unit):
        return self.run("systemctl", "is-active", unit, check=False).stdout.strip() in ("active", "activating", "reloading")

    def running(self, unit):
        """Not while it waits for its next try to start, which systemctl(1) calls activating."""
        return self.run("systemctl", "is-active", unit, check=False).stdout.strip() in ("active", "reloading")

    def systemctl(self, verb, *words):
        """A failure has the last log lines of the unit: systemctl(1) says only that it failed."""
        try:
            return self.run("systemctl", verb, *words)
        except Trouble as e:
            text = re.sub(r"Created symlink \S+ → \S+ ?/? ?", "", str(e))
            raise Trouble(text + self.last_lines(words[-1])) from None

    def last_lines(self, unit, n=5):
        """What the unit's own programs logged last, for the end of an error; "" where there is nothing."""
        unit = unit if "." in unit else f"{unit}.service"
        done = self.run("journalctl", "-q", "-b", f"_SYSTEMD_UNIT={unit}", "-n", n, "-o", "cat", "--no-pager", check=False)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        return "".join(f"\n  {unit}: {plain(line, 300)}" for line in lines)

    # ---- what it is ----

    @staticmethod
    def name():
        return socket.gethostname().split(".")[0].lower()

    def memory(self):
        """Bytes of memory; what a container may use where that is less."""
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                total = min(total, int(self.path(path).read_text()))
            except (OSError, ValueError):
                pass
        return total
