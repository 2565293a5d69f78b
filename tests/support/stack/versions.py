"""An earlier version of ours, built from this repository's history: what a group meets while it is upgraded host by host."""
import fcntl
import shutil
import subprocess
from pathlib import Path

from . import programs
from .failure import StackError
from .shape import REPOSITORY

NAME, COMMIT = "0.1.0", "44edfa334becf31ac3d59c5512aa557348a8eeff"
PLACE = REPOSITORY / "build" / NAME
GATEWAY = ("redis-module/lane.so", "milter/dovelane-milter", "relay/dovelane-relay", "proxy/dovelane-proxy", "ctl/dovelane")
REPLICATOR = ("redis-module/lane.so", "tests/unit/replicator/replicator-bare")
DOVECOT = ("redis-module/lane.so", "dovecot-plugin/all")


def run(*command):
    done = subprocess.run([str(word) for word in command], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise StackError(f"version {NAME}: {' '.join(map(str, command))}: {done.stdout.decode(errors='replace')[-2000:]}")


def unpack(source):
    """That version's files."""
    known = subprocess.run(["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if known.returncode:
        raise StackError(f"version {NAME} (commit {COMMIT[:7]}) is not in this clone's history, and cannot be built: `git fetch --unshallow`, or clone without --depth")
    fresh = source.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    archive = PLACE / "source.tar"
    run("git", "archive", "-o", archive, COMMIT)
    run("tar", "-x", "-f", archive, "-C", fresh)
    archive.unlink()
    fresh.rename(source)


def built(targets):
    """Its build directory, with these targets; made once, and kept. Several tests may ask at a time."""
    source, build = PLACE / "src", PLACE / "build"
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not source.exists():
            unpack(source)
        if not (build / "build.ninja").exists():
            run("meson", "setup", build, source)
        names = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], stdout=subprocess.PIPE, check=True).stdout.decode()
        known = [line.partition(":")[0] for line in names.splitlines() if not line.startswith("ninja:")]
        wanted = []
        for target in targets:
            folder = target.removesuffix("all")
            wanted += [name for name in known if name.startswith(folder) and name.endswith((".so", "/dovelane-replicator", "/dovelane-worker"))] if target.endswith("/all") else [target]
        run("ninja", "-C", build, *wanted)
    return Path(build)


def change(service, new, old):
    """The service of a stack is that version's from its next start on. new, old: build directories; the other way round takes it back."""
    if "conf" in service.note and service.name.startswith("redis-"):
        conf = Path(service.note["conf"])
        conf.write_text(conf.read_text().replace(f"loadmodule {new}/", f"loadmodule {old}/"))
    service.argv = [word.replace(f"{new}/", f"{old}/", 1) if word.startswith(f"{new}/") else word for word in service.argv]
    if "settings" in service.note:
        service.note["settings"].pop("metrics_listen", None)
        programs.write_settings(service, programs.no_metrics(service.argv[0]))
