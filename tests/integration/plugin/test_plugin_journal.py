"""The plugin's journal of folders that are deleted."""
import contextlib
import fcntl
import os
import subprocess
import time

from plugin_fixtures import emptied, needs_root, started, user, world
from support.plugin_world import FOLDERS
from support.stack.dovecot import version

pytestmark = needs_root


def status(world, user, word, folder):
    return world.doveadm("-f", "tab", "mailbox", "status", "-u", user, word, folder).split()[-1]


def test_a_deletion_is_in_the_journal(world, user):
    with world.imap(user) as session:
        session.do("create", "F")
        session.mail("F")
    guid, validity = status(world, user, "guid", "F"), status(world, user, "uidvalidity", "F")
    with world.imap(user) as session:
        session.do("delete", "F")
    assert world.journal(user) == [["D", guid, "F"], ["N", guid, f"2 {validity}"]]
    world.hints()


def test_a_deletion_says_which_uids_were_given(world, user):
    """Also those of mails that are gone; of an empty folder there is nothing to say."""
    with world.imap(user) as session:
        for folder in ("F", "G"):
            session.do("create", folder)
        session.mail("F")
        session.mail("F")
        session.do("select", "F")
        session.do("store", "1:*", "+FLAGS", "(\\Deleted)")
        session.do("expunge")
        session.do("close")
        validity = status(world, user, "uidvalidity", "F")
        for folder in ("F", "G"):
            session.do("delete", folder)
    said = [line[::2] for line in world.journal(user)]
    assert said == [["D", "F"], ["N", f"3 {validity}"], ["D", "G"]]
    world.hints()


def test_a_deletion_that_fails_takes_its_intent_back(world, user):
    emptied(world, user)
    assert world.doveadm("mailbox", "delete", "-u", user, "nothing", check=False).returncode != 0
    assert world.journal(user) == [["D", "-", "nothing"], ["x", "-"]]
    world.hints()


def test_the_name_of_somebody_elses_folder_is_not_said(world, user):
    """He knows it under another one; the GUID tells."""
    owner = f"of-{user}"
    with world.imap(owner) as session:
        session.do("create", "F")
        session.mail("F")
    guid, validity = status(world, owner, "guid", "F"), status(world, owner, "uidvalidity", "F")
    with world.imap(user) as session:
        session.do("delete", f"shared/{owner}/F")
    assert world.journal(owner) == [["D", guid, ""], ["N", guid, f"2 {validity}"]]
    world.hints()


def test_subscriptions_are_said_before_they_change(world, user):
    """Also of a name that has no mailbox; not what changes nothing."""
    emptied(world, user)
    with world.imap(user) as session:
        session.do("create", "F")
        session.do("subscribe", "F")
        session.do("subscribe", "F")
        session.do("subscribe", "INBOX")
        session.do("unsubscribe", "F")
        session.do("unsubscribe", "F")
    for what in ("subscribe", "unsubscribe"):
        world.doveadm("mailbox", what, "-u", user, "no such")
    assert world.journal(user) == [["S", "-", "F"], ["S", "-", "INBOX"], ["U", "-", "F"], ["S", "-", "no such"], ["U", "-", "no such"]]
    world.hints()


def test_a_parent_that_is_only_a_name_has_an_intent_too(world, user):
    with world.imap(user) as session:
        session.do("create", "P")
        session.do("create", "P/C")
        session.do("delete", "P")
        (_, parent, _), = world.journal(user)
        session.do("delete", "P/C")
        journal = world.journal(user)
        assert [line[0] for line in journal] == ["D", "D"]
        assert journal[1][2] == "P/C" and journal[1][1] not in (parent, "-")
        if world.form != "maildir" and version() < (2, 4):  # else it went with its last child
            session.do("delete", "P")
            assert world.journal(user)[2:] == [["D", "-", "P"]]
    world.hints()


@contextlib.contextmanager
def deleting(world, user, folder):
    """A process that is in the middle of deleting the folder: it waits for the lock of the folder's log. Killed at the end."""
    log, = [path for path in world.home(user).rglob("dovecot.index.log")
            if folder in path.parent.parts[-2:] or f".{folder}" in path.parts]
    before = len(world.journal(user))
    with open(log, "r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        words = world.words("doveadm", "-c", world.config, "mailbox", "delete", "-u", user, folder)
        deleter = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while len(world.journal(user)) == before:
                assert time.monotonic() < end and deleter.poll() is None
                time.sleep(0.005)
            yield
        finally:
            deleter.kill()
            deleter.wait()


def test_killed_in_the_middle_of_a_deletion_the_intent_stands(world, user):
    with world.imap(user) as session:
        session.do("create", "F")
        session.mail("F")
    guid = status(world, user, "guid", "F")
    with deleting(world, user, "F"):
        pass
    assert world.journal(user) == [["D", guid, "F"]]
    assert "F" in world.doveadm("mailbox", "list", "-u", user).split()
    assert world.guids(user, "F")
    world.hints()


def test_a_journal_that_cannot_be_written_does_not_hinder_a_deletion(started, user):
    world = started("sdbox")
    with world.imap(user) as session:
        session.do("create", "F")
        (world.home(user) / "sdbox" / "dovelane").write_text("in the way")
        session.do("delete", "F")
    said = world.said("journal of intents")
    assert len(said) == 1 and "bring the folder back" in said[0]


def test_a_fifo_in_the_place_of_the_journal_holds_nobody_up(started, user):
    """Its user may put one there, and others delete folders that he shares."""
    world = started("sdbox")
    with world.imap(user) as session:
        session.do("create", "F")
        place = world.home(user) / "sdbox" / "dovelane"
        place.mkdir(exist_ok=True)
        (place / "intents").unlink(missing_ok=True)
        os.mkfifo(place / "intents")
        subprocess.run(["chown", "-R", f"--reference={place.parent}", str(place)], check=True)
        session.do("delete", "F")
    assert "F" not in world.doveadm("mailbox", "list", "-u", user).split()
    assert world.said("journal of intents")


def test_the_journal_is_locked_while_a_deletion_is_under_way(world, user):
    """So that its reader does not take the intent for void while the folder is still there; and a journal that was taken away
    meanwhile is made anew."""
    with world.imap(user) as session:
        for folder in ("F", "G"):
            session.do("create", folder)
            session.mail(folder)
        session.do("create", "H")
        session.do("delete", "H")  # now there is a journal
    path = world.home(user) / FOLDERS[world.form] / "dovelane" / "intents"

    def free():
        with open(path, "rb") as journal:
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    assert free()
    with deleting(world, user, "F"):
        assert world.journal(user)[-1][::2] == ["D", "F"]
        assert not free()
    assert free()
    path.rename(path.with_suffix(".work"))
    with world.imap(user) as session:
        session.do("delete", "G")
    assert [line[0] for line in world.journal(user)] == ["D", "N"]
    world.hints()
