"""The packages, built in a tree of a Debian release, and what that release's own lintian and apparmor_parser say of them."""
import contextlib
import hashlib
import os
import shutil
import subprocess

import machine
from machine import ROOT, TREES, call, chroot

CHECKERS = ["lintian", "apparmor"]
INSIDE = "usr/src/dovelane"


def files():
    """What git would commit, as it lies here."""
    return [name for name in call("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").splitlines() if (ROOT / name).is_file()]


def state():
    digest = hashlib.sha256()
    for name in files():
        # Tests are in the source package, and in no other one.
        if not name.startswith("tests/"):
            digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()[:12]


def tools(release):
    return machine.base_tree(release, [*call(ROOT / "setup", "--list", "deb").split()[::2], *CHECKERS], "deb")


@contextlib.contextmanager
def tree_with_source(release):
    tree = TREES / "run" / f"deb-{release}-{os.getpid()}"
    try:
        call("cp", "-a", "--reflink=auto", tools(release), tree)
        (tree / INSIDE).mkdir(parents=True)
        with subprocess.Popen(["tar", "-C", ROOT, "-c", "--null", "-T", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pack:
            with subprocess.Popen(["tar", "-C", tree / INSIDE, "-x"], stdin=pack.stdout):
                pack.stdin.write(b"\0".join(name.encode() for name in files()))
                pack.stdin.close()
        yield tree
    finally:
        with contextlib.suppress(machine.Failed):
            machine.remove_tree(tree)


def built(release):
    """A folder with the packages for a release, what lintian says (lintian.txt), and what apparmor_parser does (apparmor.txt).

    Made once per state of the sources."""
    folder = TREES / f"{release}-debs-{state()}"
    with machine.lock(TREES / f".{release}-debs.lock"):
        if not folder.exists():
            with tree_with_source(release) as tree:
                chroot(tree, "sh", "-c", f"cd /{INSIDE} && nice packaging/make-deb", timeout=3600)
                made = tree / INSIDE / "build/deb"
                (made / "lintian.txt").write_text(chroot(tree, "sh", "-c", f"lintian --allow-root --pedantic --show-overrides /{INSIDE}/build/deb/*.changes",
                                                         check=False, timeout=1200), encoding="utf-8")
                profiles = "for file in packaging/apparmor/*; do apparmor_parser -Q -K -T $file && echo $file: parsed || echo $file: failed; done"
                (made / "apparmor.txt").write_text(chroot(tree, "sh", "-c", f"cd /{INSIDE} && {profiles}"), encoding="utf-8")
                shutil.copytree(made, folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return folder
