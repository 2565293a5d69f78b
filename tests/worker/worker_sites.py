"""What the tests of dovelane-worker do at its sites, and ask of them.

DOVELANE_BUILD names the build directory, DOVELANE_FORMATS the storages of the sites (default: all three mixes; a test
that is not exhaustive is so with the first of them alone).
"""
import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.frames import CLOSE, TICK
from support.stack import dovecot
from support.worker_world import GUARD, LOCATION, USER, Site, World

needs_dovecot = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("dovecot"), reason="needs root and Dovecot")

BUILD = Path(os.environ.get("DOVELANE_BUILD", "build"))
WORKER = BUILD / "dovecot-plugin" / "worker" / "dovelane-worker"


def first_and_others(names):
    """Parameters: the first leaves a test in its tier, with the others it is exhaustive."""
    return [pytest.param(name, marks=[pytest.mark.exhaustive] * (at > 0)) for at, name in enumerate(names.split())]


MIXES = first_and_others(os.environ.get("DOVELANE_FORMATS", "maildir,sdbox sdbox,sdbox mdbox,maildir"))


def mail(subject, size=0):
    body = b"".join(b"line %06d of some text that is no longer than this\r\n" % i for i in range(size // 50))
    return b"From: a@example.org\r\nSubject: %s\r\n\r\nhello %s\r\n" % (subject.encode(), subject.encode()) + body


def make_world(_, formats, crash=None, public=False, acl=False, more=None, ids=None, env=None):
    # Not below pytest's own directory, which each run of pytest takes the rights from that other users have.
    base = Path(tempfile.mkdtemp(prefix="worker-"))
    base.chmod(0o711)
    worker = WORKER
    if crash:
        worker, given = WORKER.with_name("dovelane-worker-crashing"), env

        def env(number):
            return {**((given(number) if callable(given) else given) or {}), "DOVELANE_CRASH_AT": crash}
    return World(base, formats, worker.resolve(), env, public, acl, more, ids)


def rotate_log(site, folder):
    """Its index log is another file, and the one before is gone, as it is after two days: that needs age and 32 KiB of changes."""
    box = site.imap()
    box.select(folder)
    keywords = " ".join(f"{i:02}" + "Long" * 11 for i in range(20))
    for i in range(40):
        assert box.store("1", "+FLAGS" if i % 2 == 0 else "-FLAGS", f"({keywords})")[0] == "OK"
    (log,) = [path for path in site.root().rglob("dovecot.index.log") if folder in str(path)]
    box.logout()
    with open(log, "r+b") as f:
        f.seek(20)
        f.write(struct.pack("<I", 1000000000))  # when it was made
    imap(site, folder, ("store", "1", "+FLAGS", "(\\Seen)"), ("store", "1", "-FLAGS", "(\\Seen)"))
    log.with_name("dovecot.index.log.2").unlink()


def append(site, folder, subject, flags=None, size=0):
    box = site.imap()
    ok, said = box.append(folder, flags, None, mail(subject, size))
    assert ok == "OK", said
    box.logout()


def imap(site, folder, *commands):
    """IMAP commands in a selected folder (None: in none)."""
    box = site.imap()
    if folder:
        assert box.select(f'"{folder}"')[0] == "OK"
    for command, *args in commands:
        ok, said = getattr(box, command)(*args)
        assert ok == "OK", (command, args, said)
    box.logout()


def guid_of(site, folder):
    said = site.doveadm("mailbox", "status", "-u", USER, "guid", folder).decode()
    return said.split("guid=")[1].strip()


def delete(site, folder, journal=None, called=None):
    """As a client with the plugin: its intent comes first. journal: the directory it is in, if not the INBOX's; called: what the line calls it."""
    line = f"D\t{guid_of(site, folder)}\t{folder if called is None else called}\n"
    path = (journal or site.state()) / "intents"
    if not path.parent.exists():
        path.parent.mkdir()
        shutil.chown(path.parent, "nobody", "nogroup")
    with open(path, "a", encoding="ascii") as f:
        f.write(line)
    shutil.chown(path, "nobody", "nogroup")
    imap(site, None, ("delete", f'"{folder}"'))


def subscribe(site, *names, on=True):
    """As a client with the plugin."""
    path = site.state() / "intents"
    with open(path, "a", encoding="ascii") as f:
        f.writelines(f"{'S' if on else 'U'}\t-\t{name}\n" for name in names)
    shutil.chown(path, "nobody", "nogroup")
    site.doveadm("mailbox", "subscribe" if on else "unsubscribe", "-u", USER, *names)


def directory_of(site, folder):
    (path,) = [p for p in site.root().rglob("*") if p.is_dir() and p.name in (folder, f".{folder}")]
    return path


def indexes(site):
    return [p for p in site.root().rglob("dovecot*") if "dovelane" not in p.parts]


def copy_owned(source, target):
    """A backup that is made, or restored: another directory, whose files have the times of the old one's."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    subprocess.run(["chown", "-R", "-h", "nobody:nogroup", str(target)], check=True)


# Settings of 2.3 and of 2.4: a part of the mailboxes is elsewhere, or their directories are called
# otherwise.
LAYOUTS = {"index": ("INDEX=~/index", "mail_index_path = ~/index"),
           "control": ("CONTROL=~/control", "mail_control_path = ~/control"),
           "fs": ("LAYOUT=fs", "mailbox_list_layout = fs")}


def laid_out(fmt, layout):
    """For make_world's more; layout: one of those, or None."""
    if layout is None:
        return ""
    v23, v24 = LAYOUTS[layout]
    if dovecot.version() >= (2, 4):
        return f"{v24}\n"
    return f"mail_location = {fmt}:{LOCATION[fmt]}:{v23}\n"


@contextmanager
def guarded(path, mode=0o700, owner=0):
    """Meanwhile the directory is root's, or has that mode: the user cannot enter or list it."""
    was = path.stat()
    os.chown(path, owner, was.st_gid)
    path.chmod(mode)
    try:
        yield
    finally:
        os.chown(path, was.st_uid, was.st_gid)
        path.chmod(was.st_mode & 0o7777)


def equal(world, uids=True):
    first, *others = [s.contents(uids) for s in world.sites.values()]
    for other in others:
        assert other == first
    for site in world.sites.values():
        verdict = site.admin("verify", "bodies")
        assert verdict[-1] == "verdict\tsame", verdict
    digests = {site.admin("verify")[0] for site in world.sites.values()}
    assert len(digests) == 1
    return first


def subjects(contents, folder):
    return len(contents[folder][1])


def kill_workers(site):
    """By SIGKILL, in whatever state they are. What is asked next is asked of another one."""
    killed = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, name, rest = re.fullmatch(r"(\d+) \((.*)\) \S (.*)", stat.read_text().strip()).groups()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("dovelane-worker"[:15]) and int(rest.split()[0]) == site.process.pid:
            os.kill(int(number), signal.SIGKILL)
            killed += 1
    assert killed, "no worker"
    site.disconnect()


def keep_state(site):
    site.work(CLOSE)
    site.disconnect()
    shutil.rmtree(site.base / "old", ignore_errors=True)
    shutil.copytree(site.state(), site.base / "old")


def rewind_state(site):
    site.disconnect()
    shutil.rmtree(site.state())
    shutil.copytree(site.base / "old", site.state())
    subprocess.run(["chown", "-R", "nobody:nogroup", str(site.state())], check=True)


def flags_of(world, uids=False):
    """{subject: flags}, alike at all sites."""
    shown = equal(world, uids)["INBOX"][1]
    names = {hashlib.sha256(mail(f"{kind}{n}")).hexdigest()[:12]: f"{kind}{n}" for kind in ("known", "here", "peer") for n in range(4)}
    assert len({digest for *_, digest in shown}) == len(shown), shown
    return {names[digest]: set(flags) for _, flags, _, digest in shown}


def store(site, subject, how, flags):
    box = site.imap()
    box.select("INBOX")
    (number,) = box.search(None, "SUBJECT", subject)[1][0].split()
    assert box.store(number, how, flags)[0] == "OK"
    box.logout()


def drop_file(site, name, contents):
    """A delivery by another program than Dovecot."""
    path = site.root() / "new" / name
    path.write_bytes(contents)
    shutil.chown(path, "nobody", "nogroup")


def fetch_changed(site, since):
    """{sequence number} of the mails that have changed since that modseq, and HIGHESTMODSEQ."""
    box = site.imap()
    box.select("INBOX")
    _, said = box._simple_command("STATUS", "INBOX", "(HIGHESTMODSEQ)")
    highest = int(re.search(rb"HIGHESTMODSEQ (\d+)", box._untagged_response("OK", said, "STATUS")[1][0])[1])
    _, said = box._simple_command("FETCH", "1:*", "(FLAGS)", f"(CHANGEDSINCE {since})")
    lines = box._untagged_response("OK", said, "FETCH")[1]
    box.logout()
    return {int(line.split()[0]) for line in lines if line}, highest


# What main asks first of the worker that is started next.
FIRST = {"ingest": Site.ingest, "tick": lambda site: site.work(TICK)}


def look_meanwhile(site, flag, what, work=None):
    """A look at the mailboxes, and what() when it has read the log. work: another thing than a look, and what() when it comes to the step."""
    reached = flag.with_name(f"{flag.name}.reached")
    flag.write_text("stop")
    looking = threading.Thread(target=work or site.ingest)
    looking.start()
    end = time.monotonic() + GUARD
    while not reached.exists():
        assert looking.is_alive() and time.monotonic() < end, "the look does not begin"
        time.sleep(0.01)
    what()
    reached.unlink()
    looking.join(GUARD)
    assert not looking.is_alive()


def crash_world(tmp_path_factory, formats, step):
    """A world, and the file whose being there lets a worker die at that step."""
    flag = Path(tempfile.mkdtemp(prefix="worker-crash-")) / "now"
    flag.parent.chmod(0o777)
    return make_world(tmp_path_factory, formats, f"{step}:{flag}"), flag
