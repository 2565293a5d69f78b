"""The plugin in a real Dovecot: what it tells the replicator of every kind of change, in every mailbox format, and of whose mailbox.

A hint is written before the command that made it is answered, or, less than 2 ms behind another one of its mailbox, when the session
waits again: after the answer to what settle() asks the FIFO holds all there is.
"""
from pathlib import Path

import pytest

from support.lane_server import wait_for
from plugin_fixtures import COUNT, emptied, needs_root, started, user, world
from support.plugin_world import PUBLIC_USER
from support.stack import modules
from support.stack.dovecot import version

pytestmark = [needs_root, pytest.mark.long]


def test_each_change_by_imap_is_one_hint(world, user):
    emptied(world, user)
    with world.imap(user) as session:
        def gave(*names):
            assert world.named() == [(user, name) for name in names]

        session.do("select")
        gave()
        session.mail()
        gave("INBOX")
        session.do("store", "1", "+FLAGS", "\\Flagged")
        gave("INBOX")
        session.do("store", "1", "+FLAGS", "keyword")
        gave("INBOX")
        session.do("fetch", "1", "(BODY[])")  # sets \Seen
        gave("INBOX")
        session.do("create", "F")
        gave("F")
        session.do("subscribe", "F")
        gave("F")
        session.do("unsubscribe", "F")
        gave("F")
        session.do("copy", "1", "F")
        gave("F")
        session.metadata("F", "/private/comment", "x")
        gave("F")
        session.move("1", "F")
        assert sorted(world.named()) == [(user, "F"), (user, "INBOX")]
        session.do("rename", "F", "G")
        gave("F", "G")
        session.do("select", "G")
        session.do("store", "1", "+FLAGS", "\\Deleted")
        gave("G")
        session.do("expunge")
        gave("G")
        session.do("close")
        session.do("delete", "G")
        gave("G")
        if world.form == "maildir":
            return  # "Renaming INBOX isn't supported"
        session.do("rename", "INBOX", "old")
        assert set(world.named()) == {(user, "INBOX"), (user, "old")}


@pytest.mark.skipif(version() >= (2, 4), reason="2.4 sets plugins up in sections, which -o cannot")
def test_rights_and_scripts_that_dovecot_changes_are_hinted(world, user):
    emptied(world, user)

    def gave(settings, *words, stdin=None):
        world.doveadm(*[word for setting in settings for word in ("-o", setting)], *words, stdin=stdin)
        return set(world.named())
    acl = ["mail_plugins=acl dovelane", "plugin/acl=vfile"]
    assert gave(acl, "acl", "set", "-u", user, "INBOX", "user=bob", "lookup") == {(user, "INBOX")}
    assert gave(acl, "acl", "delete", "-u", user, "INBOX", "user=bob") == {(user, "INBOX")}
    if Path(modules.module_directory(), "doveadm", "lib10_doveadm_sieve_plugin.so").exists():
        assert gave(["plugin/sieve=file:~/sieve;active=~/.dovecot.sieve"], "sieve", "put", "-u", user, "x", stdin="keep;\n") == {(user, "INBOX")}


def test_a_change_of_many_mails_is_one_hint(world, user):
    emptied(world, user)
    with world.imap(user) as session:
        for _ in range(60):
            session.mail()
        session.do("create", "F")
        assert world.named() == [(user, "INBOX")] * 60 + [(user, "F")]
        session.do("select")
        session.do("store", "1:*", "+FLAGS", "\\Flagged")
        assert world.named() == [(user, "INBOX")]
        session.do("copy", "1:*", "F")
        assert world.named() == [(user, "F")]
        session.move("1:30", "F")
        assert sorted(world.named()) == [(user, "F"), (user, "INBOX")]
        session.do("store", "1:*", "+FLAGS", "\\Deleted")
        world.hints()
        session.do("expunge")
        assert world.named() == [(user, "INBOX")]


def test_a_moved_mails_arrival_is_hinted_before_its_removal(world, user):
    """doveadm has the target open all the time and does nothing in between: removals that are looked at first would be at the peers first."""
    with world.imap(user) as session:
        for name in ("S1", "S2", "S3"):
            session.do("create", name)
            session.mail(name)
        session.do("create", "Archive")
    world.hints()
    world.doveadm("move", "-u", user, "Archive", "mailbox", "S*", "all")
    arrived, left = False, set()
    for _, name in (names := world.named()):
        if name == "Archive":
            arrived = True
        elif name not in left:
            assert arrived, names
            arrived = False
            left.add(name)
    assert left == {"S1", "S2", "S3"}


def test_of_changes_one_after_the_other_the_last_is_hinted(world, user):
    """The first at once, the others at the end of a gap, or when the mailbox is closed."""
    emptied(world, user)
    with world.imap(user) as session:
        session.mail()
        for end in ("CAPABILITY", "CLOSE"):
            session.do("select")
            world.hints()
            stores = b"".join(b"x%d STORE 1 %sFLAGS (\\Flagged)\r\n" % (n, b"-+"[n % 2:n % 2 + 1]) for n in range(2000))
            session.send(stores + b"x2000 " + end.encode() + b"\r\n")
            while not session.readline().startswith(b"x2000 "):
                pass
            if end == "CAPABILITY":
                early = world.named()
                session.settle()
            else:
                early = []
            hinted = early + world.named()
            assert set(hinted) == {(user, "INBOX")} and 2 <= len(hinted) < 2000, len(hinted)


@pytest.mark.parametrize("end", ["CAPABILITY", "COPY 1 Other", "LOGOUT"])
def test_of_copies_one_after_the_other_the_last_is_hinted(world, user, end):
    """Each opens its target anew. What the last one left waiting goes out at the end of the gap, with another one's, or with the session."""
    emptied(world, user)
    with world.imap(user) as session:
        session.mail()
        session.do("create", "Copies")
        session.do("create", "Other")
        session.do("select")
        other = [(user, "Other")] if "Other" in end else []
        for copies in (2,) if end == "LOGOUT" else (500, 2):
            world.hints()
            session.send(b"".join(b"x%d COPY 1 Copies\r\n" % n for n in range(copies)) + b"y " + end.encode() + b"\r\n")
            answers = 0
            while answers <= copies:
                answers += session.readline().startswith((b"x", b"y "))
            hinted = world.named()
            if end != "LOGOUT":
                session.settle()
            least = 2 + len(other)
            wait_for(lambda: hinted.extend(world.named()) or len(hinted) >= least, seconds=30, what="the last one's hint")
            assert sorted(set(hinted)) == sorted({(user, "Copies"), *other}) and len(hinted) <= copies + len(other), hinted
            assert not other or hinted[-1:] == other


def test_looking_gives_no_hint(world, user):
    emptied(world, user)
    with world.imap(user) as session:
        session.mail()
        session.do("create", "F")
        world.hints()
        session.do("list")
        session.do("status", "INBOX", "(MESSAGES UIDNEXT UNSEEN)")
        session.do("select")
        session.do("fetch", "1:*", "(UID FLAGS ENVELOPE BODYSTRUCTURE BODY.PEEK[])")
        session.do("search", None, "TEXT", "x")
        session.do("noop")
        session.do("store", "1", "-FLAGS", "\\Answered")  # it has none
        session.do("close")
        assert world.named() == []


def test_deliveries_pop3_and_doveadm_give_hints(world, user):
    emptied(world, user)
    world.deliver(user)
    assert world.named() == [(user, "INBOX")]
    world.lda(user)
    assert world.named() == [(user, "INBOX")]
    with world.pop3(user) as session:
        session.dele(1)
        assert world.named() == []
    assert world.named() == [(user, "INBOX")]
    world.doveadm("save", "-u", user, "-m", "INBOX", stdin="Subject: d\n\nx\n")
    assert world.named() == [(user, "INBOX")]
    world.doveadm("mailbox", "create", "-u", user, "F")
    assert world.named() == [(user, "F")]
    world.doveadm("flags", "add", "-u", user, "\\Flagged", "mailbox", "INBOX")
    assert world.named() == [(user, "INBOX")]
    world.doveadm("move", "-u", user, "F", "mailbox", "INBOX", "all")
    assert sorted(world.named()) == [(user, "F"), (user, "INBOX")]
    world.doveadm("expunge", "-u", user, "mailbox", "F", "all")
    assert world.named() == [(user, "F")]
    world.doveadm("mailbox", "update", "-u", user, "--min-next-uid", "1000", "F")
    assert world.named() == [(user, "F")]


def test_dbox_hints_have_the_mailbox_guid(world, user):
    world.hints()
    with world.imap(user) as session:
        session.mail()
        session.do("create", "F")
        session.mail("F")
    (_, inbox, _), *_, (_, folder, _) = world.hints()
    if world.form == "maildir":
        assert (inbox, folder) == ("-", "-")  # a delivery need not read the uidlist for it
        return
    for name, guid in (("INBOX", inbox), ("F", folder)):
        assert world.doveadm("-f", "tab", "mailbox", "status", "-u", user, "guid", name).split()[-1] == guid


def test_one_lmtp_process_serves_many_users(world):
    users = [f"many{next(COUNT)}@example.org" for _ in range(25)]
    emptied(world, *users)
    world.deliver(*users)
    assert sorted(world.named()) == sorted((user, "INBOX") for user in users)
    for user in users:
        world.deliver(user)
    assert world.named() == [(user, "INBOX") for user in users]


def test_mail_for_a_new_folder_is_hinted_under_its_name(world, user):
    name, _, domain = user.partition("@")
    emptied(world, user)
    world.deliver(f"{name}+detail@{domain}")
    assert set(world.named()) == {(user, "detail")}


def test_a_maildir_delivery_beside_a_locked_uidlist_is_hinted(started, user):
    """Dovecot answers success and writes nothing to the log: only the hint tells of it."""
    world = started("maildir")
    world.deliver(user)
    lock = world.home(user) / "Maildir" / "dovecot-uidlist.lock"
    lock.write_text("held")
    world.hints()
    world.deliver(user)
    assert world.named() == [(user, "INBOX")]
    assert len(list((world.home(user) / "Maildir" / "new").iterdir())) == 2
    lock.unlink()


def test_a_change_in_a_shared_mailbox_is_its_owners(world, user):
    owner = f"owner{next(COUNT)}@example.org"
    emptied(world, user, owner)
    world.deliver(owner)
    world.hints()
    with world.imap(user) as session:
        session.do("select", f"shared/{owner}/INBOX")
        session.do("store", "1", "+FLAGS", "\\Flagged")
    (hinted, guid, name), = world.hints()
    assert (hinted, name) == (owner, "")  # the owner knows it under another name: the GUID tells
    assert guid == world.doveadm("-f", "tab", "mailbox", "status", "-u", owner, "guid", "INBOX").split()[-1]


def test_a_change_in_a_public_mailbox_is_the_public_users(world, user):
    folder = f"Public/board{next(COUNT)}"
    emptied(world, user)
    with world.imap(user) as session:
        session.do("create", folder)
        session.mail(folder)
    assert set(world.named()) == {(PUBLIC_USER, folder)}


def test_what_has_no_log_is_refused_by_name_and_works(started, user):
    if version() >= (2, 4):
        locations = ["mail_driver = maildir\nmail_path = ~/Maildir\nmail_index_path = MEMORY",
                     "mail_driver = mbox\nmail_path = ~/mbox\nmail_inbox_path = ~/inbox",
                     "mail_driver = maildir\nmail_path = ~/Maildir\nmailbox_list_layout = fs"]
    else:
        locations = ["maildir:~/Maildir:INDEX=MEMORY", "mbox:~/mbox:INBOX=~/inbox", "maildir:~/Maildir:LAYOUT=fs"]
    for location, what in zip(locations, ("index in memory", "storage mbox", "layout fs")):
        world = started("sdbox", location=location)
        with world.imap(user) as session:
            session.do("select")
            session.mail()
            session.do("store", "1", "+FLAGS", "\\Seen")
        assert world.named() == []
        refused = world.said("is not replicated")
        assert len(refused) == 1 and user in refused[0] and what in refused[0], refused
