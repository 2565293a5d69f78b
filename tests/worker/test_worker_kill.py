"""dovelane-worker, ended or held up between two commits, while clients and peers go on: what they did is there afterwards, exactly.

Each step is a crash_at() of the worker. The worker dies there, or only stops there until the client has done what it does: no kill is
needed for a client to come between.
"""
import contextlib
import hashlib
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from worker_sites import FIRST, WORKER, append, drop_file, equal, first_and_others, imap, mail
from support.frames import CLOSE, HELLO_TOO, TICK, text
from support.worker_world import GUARD, Failed, World

PAIRS = first_and_others(os.environ.get("DOVELANE_PAIRS", "sdbox,sdbox maildir,maildir mdbox,mdbox"))
pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root"), pytest.mark.exhaustive]


class Scene:
    """Two sites; the worker of the second dies or stops at a step, once it is armed."""

    def __init__(self, formats, step, how):
        self.directory = Path(tempfile.mkdtemp(prefix="worker-kill-"))
        self.directory.chmod(0o777)
        self.flag, self.reached, self.how = self.directory / "now", self.directory / "now.reached", how
        base = Path(tempfile.mkdtemp(prefix="worker-"))
        base.chmod(0o711)
        worker = WORKER.with_name("dovelane-worker-crashing").resolve()
        self.world = World(base, formats.split(","), worker, lambda n: {"DOVELANE_CRASH_AT": f"{step}:{self.flag}" if n == 2 else "none"})
        self.here, self.there = self.world[2], self.world[1]

    def stop(self):
        for path in (self.flag, self.reached):
            path.unlink(missing_ok=True)
        for site in self.world.sites.values():
            print(f"--- site {site.number}\n{site.log.read_text()[-3000:]}\n{site.notes[-20:]}")
        self.world.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def meanwhile(self, do, settle=None):
        """do() while the second site's worker is dead or stands at the step; then everything comes to rest."""
        settle = settle or self.world.settle
        trouble = []

        def run():
            try:
                settle()
            except Failed as error:
                trouble.append(error)
        self.flag.write_text("" if self.how == "dies" else "stop")
        thread = threading.Thread(target=run)
        thread.start()
        end = time.monotonic() + GUARD
        while thread.is_alive() and not self.reached.exists() and time.monotonic() < end:
            time.sleep(0.01)
        if self.how == "dies":
            thread.join(GUARD)
            assert trouble and "site 2" in str(trouble[0]) and not self.flag.exists(), trouble
        else:
            assert self.reached.exists(), "the step was not reached"
        do()
        self.reached.unlink(missing_ok=True)
        thread.join(GUARD)
        assert not thread.is_alive() and (self.how == "dies" or not trouble), trouble
        if self.how == "dies":
            self.restart()

    def restart(self):
        self.here.disconnect()
        self.here.done = {}

    def rest(self):
        """Everybody says all again, and what he has, until nobody has anything to say."""
        for site in self.world.sites.values():
            site.ingest()
            for to in site.outbox:
                site.ship(to, HELLO_TOO)
        self.world.settle()
        for site in self.world.sites.values():
            for to in site.outbox:
                site.ship(to, 1)
        self.world.settle()
        self.world.settle()
        return equal(self.world)


@pytest.fixture
def scene(request):
    made = []

    def make(formats, step, how):
        made.append(Scene(formats, step, how))
        return made[-1]
    yield make
    for one in made:
        one.stop()


def flags_of(now, folder="INBOX"):
    return [set(flags) for _, flags, _, _ in now[folder][1]]


def client(site, *commands):
    """UID commands of a client that looks anew."""
    imap(site, "INBOX", *[("uid", *command) for command in commands])


HOW = ("dies", "stands")


@pytest.mark.test
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_that_was_just_placed_is_removed_by_a_client(scene, formats, how):
    s = scene(formats, "place", how)
    append(s.there, "INBOX", "before")
    s.world.settle()
    for n in range(3):
        append(s.there, "INBOX", f"m{n}")
    s.meanwhile(lambda: client(s.here, ("store", "3", "+FLAGS", "(\\Deleted)"), ("expunge", "3")))
    assert len(s.rest()["INBOX"][1]) == 3


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_that_was_just_placed_gets_other_flags(scene, formats, how):
    s = scene(formats, "place", how)
    append(s.there, "INBOX", "before")
    s.world.settle()
    append(s.there, "INBOX", "m", "(\\Seen \\Flagged work later)")
    s.meanwhile(lambda: client(s.here, ("store", "2", "-FLAGS", "(\\Seen work)"), ("store", "2", "+FLAGS", "(\\Answered mine)")))
    assert flags_of(s.rest())[1] == {"\\Flagged", "\\Answered", "later", "mine"}


@pytest.mark.long
@pytest.mark.parametrize("first", ("ingest", "parcel"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_that_was_just_placed_is_removed_by_a_peer(scene, formats, first):
    """Whatever the next worker is asked first: the mail must not look like a user's new one."""
    s = scene(formats, "place", "dies")
    append(s.there, "INBOX", "before")
    s.world.settle()
    append(s.there, "INBOX", "m")
    s.meanwhile(lambda: client(s.there, ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge", "2")))
    s.there.outbox[2].clear()
    s.there.ingest()
    s.there.ship(2, 1)
    if first == "ingest":
        s.here.ingest()
    s.world.settle(ingest=False)
    assert len(s.rest()["INBOX"][1]) == 1


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("flags-said", "flags"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_client_changes_flags_while_others_are_applied(scene, formats, step, how):
    s = scene(formats, step, how)
    append(s.there, "INBOX", "m", "(\\Draft \\Seen work kept old)")
    s.world.settle()
    client(s.there, ("store", "1", "+FLAGS", "(\\Flagged later)"), ("store", "1", "-FLAGS", "(\\Seen work)"))
    s.meanwhile(lambda: client(s.here, ("store", "1", "+FLAGS", "(\\Answered mine)"), ("store", "1", "-FLAGS", "(\\Draft old)")))
    assert flags_of(s.rest())[0] == {"\\Flagged", "later", "\\Answered", "mine", "kept"}


@pytest.mark.test
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_client_takes_back_what_was_just_applied(scene, formats, how):
    s = scene(formats, "flags", how)
    append(s.there, "INBOX", "m", "(\\Seen work)")
    s.world.settle()
    client(s.there, ("store", "1", "+FLAGS", "(\\Flagged later)"), ("store", "1", "-FLAGS", "(\\Seen work)"))
    s.meanwhile(lambda: client(s.here, ("store", "1", "-FLAGS", "(\\Flagged later)"), ("store", "1", "+FLAGS", "(\\Seen work)")))
    assert flags_of(s.rest())[0] == {"\\Seen", "work"}


@pytest.mark.long
@pytest.mark.parametrize("formats", PAIRS)
def test_a_flag_that_a_peer_set_and_cleared_does_not_come_back(scene, formats):
    """What was applied before the worker died is not this site's own doing."""
    s = scene(formats, "flags", "dies")
    append(s.there, "INBOX", "m")
    s.world.settle()
    client(s.there, ("store", "1", "+FLAGS", "(\\Flagged later)"))
    s.meanwhile(lambda: client(s.there, ("store", "1", "-FLAGS", "(\\Flagged later)")))
    s.there.outbox[2].clear()
    s.there.ingest()
    s.here.ingest()
    assert flags_of(s.rest())[0] == set()


RENUMBER = ("renumber", "renumber-copied", "renumber-bound", "renumber-expunged")


def clash(s):
    """Both sites append at once, so that both mails get another UID; with a client at the second that selected INBOX before."""
    append(s.there, "INBOX", "before")
    s.world.settle()
    append(s.here, "INBOX", "mine", "(\\Seen kept)")
    append(s.there, "INBOX", "theirs", "(\\Seen)")
    box = s.here.imap()
    assert box.select("INBOX")[0] == "OK"
    return box


def uid_of(site, subject):
    """The lowest UID."""
    box = site.imap()
    box.select("INBOX", readonly=True)
    found = box.uid("search", "SUBJECT", subject)[1][0].split()
    box.logout()
    return found[0].decode() if found else None


def subjects_of(site):
    box = site.imap()
    box.select("INBOX", readonly=True)
    said = box.fetch("1:*", "(FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1]
    found = {re.search(rb"Subject: *(\S+)", part[1])[1].decode(): set(re.search(r"FLAGS \((.*?)\)", part[0].decode())[1].split()) - {"\\Recent"}
             for part in said if isinstance(part, tuple)}
    box.logout()
    return found


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("view", ("new", "old"))
@pytest.mark.parametrize("step", RENUMBER)
@pytest.mark.parametrize("formats", PAIRS)
def test_flags_while_a_mail_gets_another_uid(scene, formats, step, view, how):
    """By the old UID, of a client that looks now or of one that looked before; the mail has it or had it."""
    s = scene(formats, step, how)
    box, uid = clash(s), uid_of(s.here, "mine")

    def do():
        session = box if view == "old" else s.here.imap()
        if view == "new":
            session.select("INBOX")
        seen = uid if view == "old" else session.uid("search", "SUBJECT", "mine")[1][0].split()[0].decode()
        # One command: behind it, an old view is new.
        assert session.uid("store", seen, "FLAGS", "(\\Answered extra)")[0] == "OK"
        if view == "new":
            session.logout()
    s.meanwhile(do)
    box.logout()
    assert len(s.rest()["INBOX"][1]) == 3
    assert subjects_of(s.there)["mine"] == {"\\Answered", "extra"}


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", RENUMBER)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_is_removed_while_it_gets_another_uid(scene, formats, step, how):
    """By a client that sees it under its old UID, both, or the new one: it expunges what it sees first."""
    s = scene(formats, step, how)
    clash(s).logout()

    def do():
        uid = uid_of(s.here, "mine")
        client(s.here, ("store", uid, "+FLAGS", "(\\Deleted)"), ("expunge", uid))
    s.meanwhile(do)
    s.rest()
    assert set(subjects_of(s.there)) == {"before", "theirs"}


@pytest.mark.test
@pytest.mark.parametrize("which", ("old", "new"))
@pytest.mark.parametrize("formats", PAIRS)
def test_one_of_two_uids_of_a_mail_is_removed(scene, formats, which):
    s = scene(formats, "renumber-copied", "dies")
    clash(s).logout()

    def do():
        box = s.here.imap()
        box.select("INBOX")
        uids = box.uid("search", "SUBJECT", "mine")[1][0].split()
        assert len(uids) == 2
        box.logout()
        uid = uids[0 if which == "old" else 1].decode()
        client(s.here, ("store", uid, "+FLAGS", "(\\Deleted)"), ("expunge", uid))
    s.meanwhile(do)
    s.rest()
    assert set(subjects_of(s.there)) == {"before", "theirs"}


@pytest.mark.test
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("step", ("body-said", "body-saved", "body-bound", "body-expunged"))
def test_a_mail_that_gets_the_bytes_agreed_on(scene, step, first):
    """Two sites saved one GUID with other trace lines, and the second one's mail gives way; its state stays, and has the mail once."""
    s = scene("maildir,maildir", step, "dies")
    append(s.there, "INBOX", "before")
    s.world.settle()
    texts = sorted((b"Received: by %d; now\r\nSubject: X\r\n\r\nbytes\r\n" % n for n in range(2)),
                   key=lambda text: hashlib.sha256(text).digest())
    for site, text in zip((s.there, s.here), texts):
        drop_file(site, "1700000000.M1P1.host", text)
    s.meanwhile(lambda: None)
    FIRST[first](s.here)
    assert len(s.rest()["INBOX"][1]) == 2
    assert set(subjects_of(s.here)) == {"before", "X"}
    assert not [note for note in s.here.notes if "cannot be true" in str(note)], s.here.notes


@pytest.mark.parametrize("first", ("ingest", "parcel"))
@pytest.mark.parametrize("step", ("renumber-copied", "renumber-bound"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_with_two_uids_is_removed_by_a_peer(scene, formats, step, first):
    s = scene(formats, step, "dies")
    clash(s).logout()

    def do():
        uid = uid_of(s.there, "mine")
        client(s.there, ("store", uid, "+FLAGS", "(\\Deleted)"), ("expunge", uid))
    s.meanwhile(do)
    s.there.ingest()
    s.there.ship(2, 1)
    if first == "ingest":
        s.here.ingest()
    s.world.settle(ingest=False)
    s.rest()
    assert set(subjects_of(s.there)) == {"before", "theirs"}


def rows(site, kind):
    """How many rows of that kind the closed user's state has."""
    site.work(CLOSE)
    with contextlib.closing(sqlite3.connect(site.state() / "state.db")) as state:
        return state.execute(f"select count(*) from app where substr(key, 1, 1) = ?", (kind.encode(),)).fetchone()[0]


def locked(site):
    """The lock of a Maildir's uidlist, as another process' that lives."""
    lock = site.root() / "dovecot-uidlist.lock"
    lock.write_text(f"{os.getpid()}:{socket.gethostname()}")
    return lock


def test_a_change_of_uids_is_not_ended_while_nobody_can_tell_the_copies(scene):
    """Another mail directory, so that the log tells nothing, and a uidlist that cannot be read: the copies are no new mails."""
    s = scene("sdbox,maildir", "renumber-copied", "dies")
    clash(s).logout()
    uidlist = s.here.root() / "dovecot-uidlist"

    def restore():
        subprocess.run(["cp", "-a", s.here.root(), s.here.base / "kept"], check=True)
        shutil.rmtree(s.here.root())
        subprocess.run(["mv", s.here.base / "kept", s.here.root()], check=True)
    s.meanwhile(restore)
    kept = uidlist.read_text()
    head, *lines = kept.splitlines()
    uidlist.write_text("\n".join([re.sub(" N[0-9]+", " N99", head),
                                  *(f"{91 + n} :{line.split(' :', 1)[1]}" for n, line in enumerate(lines))]) + "\n")
    lock = locked(s.here)
    assert s.here.ingest()["tick"] > 0
    said = rows(s.here, "r")
    uidlist.write_text(kept)
    lock.unlink()
    s.here.ingest()
    s.rest()
    assert len(s.here.contents()["INBOX"][1]) == 3 and said == 1
    assert rows(s.here, "r") == 0


@pytest.mark.parametrize("formats", PAIRS)
def test_a_change_of_uids_of_which_nothing_is_left(scene, formats):
    """A row without a mail, as a worker left it that was killed behind the look that found that nothing had been copied."""
    s = scene(formats, "renumber", "dies")
    clash(s).logout()

    def empty():
        with contextlib.closing(sqlite3.connect(s.here.state() / "state.db")) as state, state:
            assert state.execute("update app set value = x'' where substr(key, 1, 1) = ?", (b"r",)).rowcount == 1
    s.meanwhile(empty)
    s.here.ingest()
    assert len(s.rest()["INBOX"][1]) == 3
    assert rows(s.here, "r") == 0


@pytest.mark.parametrize("formats", PAIRS)
def test_a_client_copies_a_mail_inside_its_folder_before_the_worker_did(scene, formats):
    """The log says that the worker did not: both are the client's."""
    s = scene(formats, "renumber", "dies")
    clash(s).logout()
    s.meanwhile(lambda: client(s.here, ("copy", uid_of(s.here, "mine"), "INBOX")))
    s.rest()
    for site in (s.here, s.there):
        box = site.imap()
        box.select("INBOX", readonly=True)
        assert len(box.search(None, "SUBJECT", "mine")[1][0].split()) == 2
        assert len(box.search(None, "ALL")[1][0].split()) == 4
        box.logout()


def mail_file(site, subject):
    path, *_ = sorted(path for name in ("new", "cur") for path in (site.root() / name).iterdir() if f"Subject: {subject}".encode() in path.read_bytes())
    return path


@pytest.mark.parametrize("step", ("renumber-copied", "renumber-bound", "renumber-expunged"))
def test_old_uids_that_name_other_mails_by_now(scene, step):
    """The uidlist and the index are lost where a mail had two UIDs, and a delivery that nobody else has gets its old one."""
    s = scene("sdbox,maildir", step, "dies")
    clash(s).logout()
    old = uid_of(s.here, "mine")

    def lose():
        before = mail_file(s.here, "before")
        stamp = re.match(r"([0-9]+)\.M([0-9]+)", before.name)
        fresh = s.here.root() / "new" / f"{stamp[1]}.M{int(stamp[2]) + 1}P1.elsewhere"
        fresh.write_bytes(mail("fresh"))
        shutil.chown(fresh, "nobody", "nogroup")
        for path in (s.here.root() / "dovecot-uidlist", *s.here.root().glob("dovecot.index*")):
            path.unlink()
        assert uid_of(s.here, "fresh") == old
    s.meanwhile(lose)
    s.rest()
    assert set(subjects_of(s.there)) == {"before", "mine", "theirs", "fresh"}


@pytest.mark.parametrize("first", ("ingest", "tick", "parcel"))
def test_a_peer_removes_a_mail_whose_copy_cannot_be_told_yet(scene, first):
    """A Maildir's file is there, the log says nothing of it, and the uidlist is locked: the batch waits until it is known what was begun."""
    s = scene("sdbox,maildir", "renumber", "dies")
    clash(s).logout()
    locks = []

    def do():
        end = time.monotonic() + GUARD
        while not (pids := re.findall(r"child (\d+) returned error 99", s.here.log.read_text())):
            assert time.monotonic() < end, s.here.log.read_text()
            time.sleep(0.05)
        path = mail_file(s.here, "mine")
        copy = s.here.root() / "cur" / f"{int(time.time())}.M5P{pids[-1]}.{path.name.split('.', 2)[2].partition(':')[0]}:2,S"
        shutil.copy2(path, copy)
        shutil.chown(copy, "nobody", "nogroup")
        locks.append(locked(s.here))
        uid = uid_of(s.there, "mine")
        client(s.there, ("store", uid, "+FLAGS", "(\\Deleted)"), ("expunge", uid))
    for lane in s.there.outbox.values():
        lane.clear()
    s.meanwhile(do)
    s.there.ingest()
    s.there.outbox[2].clear()
    s.there.ship(2, 1)
    batch = list(s.there.outbox[2])
    if first != "parcel":
        FIRST[first](s.here)
    try:
        while s.world.carry():
            pass
        said = ""
    except AssertionError as error:
        said = str(error)
    held = rows(s.here, "r")
    locks[0].unlink()
    s.there.outbox[2][:] = batch
    s.world.settle(ingest=False)
    s.rest()
    assert set(subjects_of(s.there)) == {"before", "theirs"}
    assert "temporary failure" in said and "dovecot-uidlist" in said and held == 1


def test_a_worker_that_only_hears_a_tick(scene):
    s = scene("sdbox,sdbox", "place", "dies")
    append(s.there, "INBOX", "m", "(\\Seen)")
    s.meanwhile(lambda: client(s.here, ("store", "1", "-FLAGS", "(\\Seen)")))
    s.here.work(TICK)
    assert flags_of(s.rest())[0] == set()


def numbers(site, folder):
    """UIDVALIDITY and UIDNEXT as a client is told."""
    [told] = re.findall(r"UIDNEXT (\d+) UIDVALIDITY (\d+)", site.imap().status(folder, "(UIDNEXT UIDVALIDITY)")[1][0].decode())
    return int(told[1]), int(told[0])


@pytest.mark.parametrize("does", ["opens", "creates", "saves"])
@pytest.mark.parametrize("step", ["create", "creating", "opened"])
@pytest.mark.parametrize("formats", PAIRS)
def test_a_client_comes_while_a_folder_is_made_that_others_have(scene, formats, step, does):
    """Who opens a mailbox between two steps of its making gives it a UIDVALIDITY. As long as it had no mail that is nobody's; else all sites take it."""
    if does == "opens" and step == "create" or does == "creates" and step != "create":
        pytest.skip("there is nothing to open yet, or to create any more")
    s = scene(formats, step, "stands")
    for _ in range(5):  # so that the next UIDVALIDITY here is a later one
        imap(s.here, None, ("create", "A"), ("select", "A"), ("close",), ("delete", "A"))
    s.rest()
    imap(s.there, None, ("create", "F"))
    for name in "abc":
        append(s.there, "F", name)
    before = numbers(s.there, "F")

    def come():
        if does == "creates" or step == "create":
            imap(s.here, None, ("create", "F"))
        if does == "saves":
            append(s.here, "F", "mine")
        imap(s.here, "F")
        assert numbers(s.here, "F")[0] > before[0]
    s.meanwhile(come)
    s.rest()
    for site in (s.there, s.here):
        validity, uidnext = numbers(site, "F")
        assert uidnext >= before[1], (site.number, before, uidnext)
        if does == "saves":
            assert validity >= before[0], (site.number, before, validity)
        else:
            assert validity == before[0], (site.number, before, validity)


FILES = {"keywords": ["dovecot-keywords"], "uidlist": ["dovecot-uidlist"], "both": ["dovecot-keywords", "dovecot-uidlist"], "index": ["dovecot-keywords", "dovecot.index*"]}


@pytest.mark.long
@pytest.mark.parametrize("then", ["the rest stays", "all goes"])
@pytest.mark.parametrize("keyword", ["first", "second"])
@pytest.mark.parametrize("lost", FILES)
@pytest.mark.parametrize("step", ["saving", "place-said"])
def test_a_maildir_that_is_going_while_mails_are_saved_there(step, lost, keyword, then):
    """Files go one by one: a mail that is saved between gets no letter that means another keyword by now, and none is there twice; at neither site."""
    scene = Scene("sdbox,maildir", step, "stops")
    try:
        for n, word in enumerate(("first", "second", "second")):
            append(scene.there, "INBOX", f"m{n}", f"({word})")
        scene.world.settle()
        append(scene.there, "INBOX", "new", f"({keyword})")
        root = scene.here.root()

        def lose():
            for path in [path for pattern in FILES[lost] for path in root.glob(pattern)]:
                path.unlink()
        scene.meanwhile(lose)
        scene.here.work(CLOSE)
        if then == "all goes":
            shutil.rmtree(root)
        scene.world.settle()
        scene.here.contents()   # a client's session reads all names
        scene.world.settle()
        now = equal(scene.world)["INBOX"][1]
        assert sorted(tuple(flags) for _, flags, *_ in now) == sorted([("first",), ("second",), ("second",), (keyword,)]), now
    finally:
        scene.stop()
