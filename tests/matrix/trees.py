"""Root directories of Debian releases, made once and kept: DOVELANE_TREES (default /var/cache/dovelane-trees).

RELEASE-base is what docker/make-base-image.sh --tree makes. RELEASE-cells is that with the packages that `./setup cell` names.
Both stay as they are: a cell works in an overlay, or in a copy where the kernel gives none.
"""
import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENTER = pathlib.Path(__file__).with_name("enter")
TREES = pathlib.Path(os.environ.get("DOVELANE_TREES") or "/var/cache/dovelane-trees")


class NoTree(Exception):
    """A tree could not be made; says why."""


@contextlib.contextmanager
def one_at_a_time():
    """Two runs must not make the same tree."""
    TREES.mkdir(parents=True, exist_ok=True)
    with open(TREES / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def logged(log, command, **more):
    with open(log, "ab") as out:
        out.write(f"+ {' '.join(map(str, command))}\n".encode())
        out.flush()
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, **more)
    if done.returncode:
        raise NoTree(f"{' '.join(map(str, command))}: exit status {done.returncode}; its messages are in {log}")


def remove(tree):
    subprocess.run(["rm", "-rf", "--one-file-system", str(tree)], check=True)


def base(release, log):
    tree = TREES / f"{release}-base"
    if not tree.exists():
        made = tree.with_suffix(".new")
        remove(made)
        logged(log, [ROOT / "docker" / "make-base-image.sh", "--tree", made], env=dict(os.environ, RELEASE=release))
        made.rename(tree)
    return tree


def with_packages(release, log):
    """The tree for the cells of a release."""
    with one_at_a_time():
        tree = TREES / f"{release}-cells"
        if not tree.exists():
            made = tree.with_suffix(".new")
            remove(made)
            logged(log, ["cp", "-a", "--reflink=auto", base(release, log), made])
            logged(log, [ENTER, made, "apt-get", "-q", "update"])
            install(made, log)
            made.rename(tree)
        elif (tree / "root" / "setup").read_bytes() != (ROOT / "setup").read_bytes():
            install(tree, log)  # it names other packages now, perhaps
        return tree


def install(tree, log):
    """The copy of ./setup stands in the tree only after it ended well."""
    shutil.copy2(ROOT / "setup", tree / "root" / "setup.new")
    logged(log, [ENTER, tree, "/root/setup.new", "cell"])
    (tree / "root" / "setup.new").rename(tree / "root" / "setup")


def forget(release):
    for name in ("base", "cells"):
        remove(TREES / f"{release}-{name}")


class Place:
    """Where a cell works: over its release's tree. `inside` is a folder that both see, before, after and while it works."""

    def __init__(self, tree, name, beside=None):
        """beside: release to its tree, which is at /matrix/RELEASE in there."""
        self.tree, self.beside = tree, beside or {}
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"run-{name}-", dir=TREES))
        self.overlaid = not self.command("true").wait()
        if not self.overlaid:
            self.beside = {name: self.copied(root, f"copy-{name}")
                           for name, root in self.beside.items()}
            self.copied(tree, "copy")
        self.inside = self.directory / ("upper" if self.overlaid else "copy") / "matrix"
        self.inside.mkdir(exist_ok=True)

    def copied(self, tree, name):
        subprocess.run(["cp", "-a", "--reflink=auto", str(tree), str(self.directory / name)],
                       check=True)
        return self.directory / name

    def command(self, *words, out=subprocess.DEVNULL):
        """Starts a command in there, with a network of its own."""
        where = ["--lonely", self.directory / "copy"] if getattr(self, "overlaid", True) is False else \
            ["--over", self.directory, "--lonely", self.tree]
        for name, root in self.beside.items():
            where = ["--beside", f"{name}={root}", *where]
        return subprocess.Popen([str(word) for word in [ENTER, *where, *words]], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        remove(self.directory)
