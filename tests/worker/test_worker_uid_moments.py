"""What clients see of a mail's flags while it gets another UID: what was cleared is shown nowhere
again, and what was set stays shown.

The worker of the second site stops at one step, where a client does what it does, and at a later
one, where another client looks. No scan came between.
"""
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from worker_sites import WORKER, append, equal, imap, needs_dovecot
from support.worker_world import GUARD, Failed, World

pytestmark = [needs_dovecot, pytest.mark.long]

PAIRS = ["sdbox,sdbox", "maildir,maildir", "mdbox,mdbox"]
STEPS = ["renumber", "renumber-copied", "renumber-bound"]
LATER = "renumber-expunged"
DELETED, FLAGGED = "\\Deleted", "\\Flagged"


class Moments:
    """Two sites, whose mails "mine" and "theirs" clash; the second site's worker stops at steps."""

    def __init__(self, formats, steps, flags):
        self.directory = Path(tempfile.mkdtemp(prefix="worker-moments-"))
        self.directory.chmod(0o777)
        self.files = {step: self.directory / step for step in steps}
        at = ",".join(f"{step}:{path}" for step, path in self.files.items())
        base = Path(tempfile.mkdtemp(prefix="worker-"))
        base.chmod(0o711)
        worker = WORKER.with_name("dovelane-worker-crashing").resolve()
        self.world = World(base, formats.split(","), worker,
                           lambda n: {"DOVELANE_CRASH_AT": at if n == 2 else "none"})
        self.here, self.there, self.trouble = self.world[2], self.world[1], []
        append(self.there, "INBOX", "before")
        self.world.settle()
        append(self.here, "INBOX", "mine", f"({flags})")
        append(self.there, "INBOX", "theirs", f"({flags})")
        self.thread = threading.Thread(target=self.settle)

    def settle(self):
        try:
            self.world.settle()
        except Failed as error:
            self.trouble.append(error)

    def begin(self):
        for path in self.files.values():
            path.write_text("stop")
        self.thread.start()

    def reached(self, step):
        return self.files[step].with_name(f"{step}.reached")

    def until(self, step):
        end = time.monotonic() + GUARD
        while not self.reached(step).exists():
            assert self.thread.is_alive() and time.monotonic() < end, f"{step} was not reached"
            time.sleep(0.01)

    def on(self, step):
        self.reached(step).unlink()

    def end(self):
        self.thread.join(GUARD)
        assert not self.thread.is_alive() and not self.trouble, self.trouble

    def shown(self, site=None):
        """[flags] of "mine" under each UID that it has, the lowest first."""
        box = (site or self.here).imap()
        assert box.select("INBOX", readonly=True)[0] == "OK"
        uids = box.uid("search", "SUBJECT", "mine")[1][0].split()
        said = [box.uid("fetch", uid, "(FLAGS)")[1][0].decode() for uid in uids]
        box.logout()
        return [set(re.search(r"FLAGS \((.*?)\)", one)[1].split()) - {"\\Recent"} for one in said]

    def stop(self):
        for path in self.directory.iterdir():
            path.unlink()
        for site in self.world.sites.values():
            print(f"--- site {site.number}\n{site.log.read_text()[-3000:]}\n{site.notes[-20:]}")
        self.world.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def moments():
    made = []

    def make(formats, steps, flags=""):
        made.append(Moments(formats, steps, flags))
        return made[-1]
    yield make
    for one in made:
        one.stop()


def old_uid(site):
    box = site.imap()
    assert box.select("INBOX", readonly=True)[0] == "OK"
    uids = box.uid("search", "SUBJECT", "mine")[1][0].split()
    box.logout()
    return uids[0].decode()


# What the mail had, what a client does under its old UID, what it has then.
CHANGES = [(DELETED, ("-FLAGS", DELETED), set()),
           ("", ("+FLAGS", DELETED), {DELETED}),
           (f"{FLAGGED} Kw", ("-FLAGS", f"{FLAGGED} Kw"), set()),
           ("", ("+FLAGS", f"{FLAGGED} Kw"), {FLAGGED, "Kw"}),
           (f"{DELETED} Kw", ("FLAGS", "\\Answered"), {"\\Answered"})]
NAMES = ["undelete", "delete", "clear", "set", "replace"]


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("formats", PAIRS)
def test_flags_of_the_old_uid_are_shown_under_the_new_one(moments, formats, step, change):
    had, (how, flags), wanted = change
    m = moments(formats, [step, LATER], had)
    uid = old_uid(m.here)
    m.begin()
    m.until(step)
    imap(m.here, "INBOX", ("uid", "STORE", uid, how, f"({flags})"))
    m.on(step)
    m.until(LATER)
    shown = m.shown()
    m.on(LATER)
    m.end()
    assert shown == [wanted]
    m.world.settle()
    equal(m.world)
    assert m.shown() == m.shown(m.there) == [wanted]


@pytest.mark.parametrize("formats", PAIRS)
def test_a_deleted_mail_is_not_so_under_its_new_uid_while_it_has_both(moments, formats):
    """Who clears it then clears it under the old one alone."""
    m = moments(formats, ["renumber-copied", LATER], f"{DELETED} Kw")
    m.begin()
    m.until("renumber-copied")
    both = m.shown()
    m.on("renumber-copied")
    m.until(LATER)
    after = m.shown()
    m.on(LATER)
    m.end()
    assert both == [{DELETED, "Kw"}, {"Kw"}] and after == [{DELETED, "Kw"}]
    m.world.settle()
    equal(m.world)
    assert m.shown() == m.shown(m.there) == [{DELETED, "Kw"}]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("formats", PAIRS)
def test_who_expunges_takes_no_mail_that_was_rescued(moments, formats, step):
    m = moments(formats, [step, LATER], DELETED)
    uid = old_uid(m.here)
    m.begin()
    m.until(step)
    imap(m.here, "INBOX", ("uid", "STORE", uid, "-FLAGS", f"({DELETED})"))
    if step != "renumber":
        imap(m.here, "INBOX", ("expunge",))
    m.on(step)
    m.until(LATER)
    imap(m.here, "INBOX", ("expunge",))
    m.on(LATER)
    m.end()
    m.world.settle()
    equal(m.world)
    assert m.shown() == m.shown(m.there) == [set()]


# What a session does that looked before the mail got another UID, and clears \Deleted under the
# old one; what is left. The new UID is shown \Deleted until a look: a STORE of that changes nothing,
# so Dovecot logs none.
OLD_VIEW = [((), [set()]),
            ((("+FLAGS", DELETED),), [set()]),
            ((("+FLAGS", DELETED), ("-FLAGS", DELETED)), [set()]),
            ((("-FLAGS", DELETED), ("+FLAGS", DELETED)), [])]


@pytest.mark.parametrize("then, left", OLD_VIEW, ids=["expunge", "again", "rescue", "delete"])
@pytest.mark.parametrize("formats", PAIRS)
def test_who_rescues_a_mail_by_an_old_view_rescues_it(moments, formats, then, left):
    """Also where he expunges before the look."""
    m = moments(formats, [LATER], DELETED)
    uid = old_uid(m.here)
    box = m.here.imap()
    assert box.select("INBOX")[0] == "OK"
    m.begin()
    m.until(LATER)
    assert box.uid("STORE", uid, "-FLAGS", f"({DELETED})")[0] == "OK"
    for how, flag in then:
        fresh = box.uid("SEARCH", None, "SUBJECT", "mine")[1][0].split()[-1].decode()
        assert fresh != uid and box.uid("STORE", fresh, how, f"({flag})")[0] == "OK"
    assert box.expunge()[0] == "OK"
    box.logout()
    m.on(LATER)
    m.end()
    m.world.settle()
    equal(m.world)
    assert m.shown() == m.shown(m.there) == left


@pytest.mark.parametrize("formats", PAIRS)
def test_who_undeletes_in_one_breath_by_an_old_view_rescues_it(moments, formats):
    """Another site's client sets \\Deleted meanwhile, and has heard of neither."""
    m = moments(formats, [LATER], "Kw")
    box = m.here.imap()
    assert box.select("INBOX")[0] == "OK"
    [number] = box.search(None, "SUBJECT", "mine")[1][0].split()
    m.begin()
    m.until(LATER)
    for how in ("+FLAGS", "-FLAGS"):  # by number: no answer to these says that the old UID is gone
        assert box.store(number, how, f"({DELETED})")[0] == "OK"
    box.logout()
    there = m.there.imap()
    assert there.select("INBOX")[0] == "OK"
    [theirs] = there.uid("SEARCH", None, "SUBJECT", "mine")[1][0].split()
    assert there.uid("STORE", theirs, "+FLAGS", f"({DELETED})")[0] == "OK"
    there.logout()
    m.there.ingest()
    m.on(LATER)
    m.end()
    m.world.settle()
    equal(m.world)
    assert m.shown() == m.shown(m.there) == [{"Kw"}]
