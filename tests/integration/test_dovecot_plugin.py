"""The plugin in a real Dovecot: what it tells the replicator of every kind of change, in every mailbox format.

A hint is written before the command that made it is answered, so after the answer the FIFO holds all there is: nothing waits
and nothing is timed here.
"""
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time

import pytest
from plugin_world import FOLDERS, FORMATS, PUBLIC_USER, World
from stack.dovecot import version
from stack.modules import module_directory

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root")
pytestmark = needs_root
COUNT = iter(range(1, 100000))


@pytest.fixture(scope="module", params=FORMATS)
def world(request):
    fresh = World(request.param)
    yield fresh
    wrong = fresh.wrong()
    fresh.end()
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def sdbox():
    fresh = World("sdbox")
    yield fresh
    wrong = fresh.wrong()
    fresh.end()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def started():
    """A factory of Dovecots that a test may spoil."""
    worlds = []

    def start(*words, **options):
        worlds.append(World(*words, **options))
        return worlds[-1]

    yield start
    for fresh in worlds:
        fresh.end()


@pytest.fixture
def user():
    return f"user{next(COUNT)}@example.org"


def emptied(world, *users):
    """Makes the users' INBOXes; from here on hints are the test's own."""
    for user in users:
        with world.imap(user) as session:
            session.do("select")
    world.hints()


# -- what gives a hint -----------------------------------------------------------------------------------------------------------


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


# -- whose mailbox ---------------------------------------------------------------------------------------------------------------


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
        refused = [line for line in world.log.read_text().splitlines() if "is not replicated" in line]
        assert len(refused) == 1 and user in refused[0] and what in refused[0], refused


# -- when nobody reads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody_reads(sdbox):
    sdbox.unmark()
    sdbox.deaf()
    yield sdbox
    sdbox.listen()
    sdbox.hints()
    sdbox.unmark()


def mark_of(user):
    return user.replace("@", "%40").replace(".", "%2E")


def test_without_a_reader_a_mark_is_left(nobody_reads, user):
    world = nobody_reads
    with world.imap(user) as session:
        session.mail()
        assert world.marks() == [mark_of(user)]
        session.do("select")
        session.do("store", "1", "+FLAGS", "\\Seen")  # the mark is there already
        assert world.marks() == [mark_of(user)]
        world.unmark()
        session.do("store", "1", "+FLAGS", "\\Flagged")
        assert world.marks() == [mark_of(user)]
        world.unmark()
        world.listen()
        session.do("store", "1", "-FLAGS", "\\Flagged")
        assert world.named() == [(user, "INBOX")]
        assert world.marks() == []
    assert os.stat(world.dirty).st_mode & 0o7777 == 0o1733


def test_a_reader_that_goes_away_is_missed_at_once(sdbox, user):
    world = sdbox
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        assert set(world.named()) == {(user, "INBOX")} and world.marks() == []
        world.deaf()
        session.do("store", "1", "+FLAGS", "\\Seen")
        assert world.marks() == [mark_of(user)]
        world.listen()
        session.do("store", "1", "-FLAGS", "\\Seen")
        assert world.named() == [(user, "INBOX")]


def test_a_new_fifo_under_the_same_name_is_found(sdbox, user):
    world = sdbox
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        world.hints()
        world.deaf()
        world.fifo.unlink()
        os.mkfifo(world.fifo)
        os.chmod(world.fifo, 0o666)
        world.listen()
        session.do("store", "1", "+FLAGS", "\\Seen")
        assert world.named() == [(user, "INBOX")]
        assert world.marks() == []


def test_a_full_fifo_leaves_a_mark_and_delays_nobody(sdbox, user):
    world = sdbox
    world.unmark()
    filler = os.open(world.fifo, os.O_WRONLY | os.O_NONBLOCK)
    line = b"1\tfiller\t-\t" + b"x" * 52 + b"\n"  # 64 bytes
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, line)
    os.close(filler)
    with world.imap(user) as session:
        session.mail()
        assert world.marks() == [mark_of(user)]
    assert {name for name, *_ in world.hints()} == {"filler"}
    world.unmark()


def test_a_plain_file_in_the_fifos_place_is_not_written_to(sdbox, user):
    world = sdbox
    world.unmark()
    world.deaf()
    aside = world.fifo.with_suffix(".aside")
    world.fifo.rename(aside)
    try:
        world.fifo.touch()
        os.chmod(world.fifo, 0o666)
        with world.imap(user) as session:
            session.mail()
        assert world.fifo.read_bytes() == b"" and world.marks() == [mark_of(user)]
    finally:
        aside.rename(world.fifo)
        world.listen()


def test_a_user_whose_name_is_too_long_for_a_hint_marks_all(sdbox):
    world, user = sdbox, "n" * 250 + "@" + "d" * 250
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        session.do("store", "1", "+FLAGS", "\\Seen")
    assert world.hints() == []
    assert world.marks() == ["+all"]
    world.unmark()


def test_with_no_way_to_tell_mail_goes_on_and_the_log_says_so(started, user):
    world = started("sdbox")
    world.deaf()
    world.fifo.unlink()
    world.dirty.rmdir()
    with world.imap(user) as session:
        for _ in range(20):
            session.mail()
    said = [line for line in world.log.read_text().splitlines() if "no hint to" in line]
    assert len(said) == 1, said
    assert str(world.fifo) in said[0] and f"{world.dirty}/{mark_of(user)}" in said[0] and "1733" in said[0]


def test_a_wrong_setting_is_named(started, user):
    """2.4 checks the configuration before it starts; 2.3 knows nothing of plugins' settings, so mail goes on and the log says it."""
    world = started("sdbox")
    world.service.end()
    world.config.write_text(world.config.read_text().replace(f"dovelane_dirty_dir = {world.dirty}",
                                                             "dovelane_dirty_dir = some/dir"))
    if version() >= (2, 4):
        done = subprocess.run(world.words("doveconf", "-c", world.config), capture_output=True, text=True, check=False)
        assert done.returncode != 0
        said = [line for line in done.stderr.splitlines() if "dovelane_dirty_dir = some/dir" in line]
        assert said and "absolute" in said[0], done.stderr
        return
    world.service.start(world.mark)
    with world.imap(user) as session:
        session.mail()
    assert world.named() == []
    said = [line for line in world.log.read_text().splitlines() if "dovelane_dirty_dir = some/dir" in line]
    assert said and "absolute" in said[0] and user in said[0]


# -- deletions -------------------------------------------------------------------------------------------------------------------


def test_a_deletion_is_in_the_journal(world, user):
    with world.imap(user) as session:
        session.do("create", "F")
        session.mail("F")
    guid = world.doveadm("-f", "tab", "mailbox", "status", "-u", user, "guid", "F").split()[-1]
    with world.imap(user) as session:
        session.do("delete", "F")
    assert world.journal(user) == [["D", guid, "F"], ["d", guid]]
    world.hints()


def test_a_deletion_that_fails_takes_its_intent_back(world, user):
    emptied(world, user)
    assert world.doveadm("mailbox", "delete", "-u", user, "nothing", check=False).returncode != 0
    assert world.journal(user) == [["D", "-", "nothing"], ["x", "-"]]
    world.hints()


def test_a_parent_that_is_only_a_name_has_an_intent_too(world, user):
    with world.imap(user) as session:
        session.do("create", "P")
        session.do("create", "P/C")
        session.do("delete", "P")
        (_, parent, _), _ = world.journal(user)
        session.do("delete", "P/C")
        journal = world.journal(user)
        assert [line[0] for line in journal] == ["D", "d", "D", "d"]
        assert journal[2][2] == "P/C" and journal[2][1] not in (parent, "-")
        if world.form != "maildir" and version() < (2, 4):  # else it went with its last child
            session.do("delete", "P")
            assert world.journal(user)[4:] == [["D", "-", "P"], ["d", "-"]]
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
    guid = world.doveadm("-f", "tab", "mailbox", "status", "-u", user, "guid", "F").split()[-1]
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
    said = [line for line in world.log.read_text().splitlines() if "journal of deletions" in line]
    assert len(said) == 1 and "bring the folder back" in said[0]


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
    assert [line[0] for line in world.journal(user)] == ["D", "d"]
    world.hints()


# -- GUIDs of gateway deliveries -------------------------------------------------------------------------------------------------


def delivery_id(world, entry=None, key=None):
    """(entry, header line) as the relay makes them."""
    entry = entry or secrets.token_hex(16)
    key = key or bytes.fromhex(world.key.read_text())
    mac = hmac.new(key, b"dovelane-id:" + entry.encode(), hashlib.sha256).hexdigest()[:32]
    return entry, f"Dovelane-Id: {entry} {mac}\r\n".encode()


def guid_for(entry, recipient):
    return hashlib.sha256(f"dovelane-guid:{entry}:{recipient}".encode()).hexdigest()[:32]


TEXT = b"Subject: t\r\n\r\nhello\r\n"


def test_a_gateway_delivery_has_the_guid_of_its_id(world, user):
    entry, header = delivery_id(world)
    world.deliver(user, text=header + TEXT)
    world.deliver(user, text=header + b"X-Other: way\r\n" + TEXT)
    assert world.guids(user) == [guid_for(entry, user)] * 2
    entry, header = delivery_id(world)
    world.lda(user, "-a", user, text=(header + TEXT).decode().replace("\r\n", "\n"))
    assert world.guids(user)[2:] == [guid_for(entry, user)]
    world.hints()


def test_two_addresses_of_a_user_are_two_mails(world, user):
    name, _, domain = user.partition("@")
    other = f"{name}+INBOX@{domain}"
    entry, header = delivery_id(world)
    world.deliver(user, other, text=header + TEXT)
    assert sorted(world.guids(user)) == sorted([guid_for(entry, user), guid_for(entry, other)])
    world.hints()


def test_each_recipient_of_one_delivery_gets_their_own(world):
    users = [f"each{next(COUNT)}@example.org" for _ in range(3)]
    entry, header = delivery_id(world)
    world.deliver(*users, text=header + TEXT)
    for user in users:
        assert world.guids(user) == [guid_for(entry, user)]
    world.hints()


def test_an_id_without_a_valid_code_has_no_authority(world, user):
    entry, header = delivery_id(world, key=b"0123456789abcdef")
    for text in (header + TEXT, header + TEXT, f"Dovelane-Id: {entry}\r\n".encode() + TEXT, TEXT, b"Dovelane-Id:\r\n" + TEXT):
        world.deliver(user, text=text)
    guids = world.guids(user)
    assert len(set(guids)) == 5 and guid_for(entry, user) not in guids
    world.hints()


def test_the_id_is_for_one_delivery_only(world, user):
    """Also when the session goes on, and for other saves of the same user."""
    entry, header = delivery_id(world)
    world.deliver(user, text=header + TEXT)
    world.deliver(user, text=TEXT)
    with world.imap(user) as session:
        session.mail(text=header + TEXT)
    first, *others = world.guids(user)
    assert first == guid_for(entry, user)
    assert first not in others and len(set(others)) == 2
    world.hints()


def test_a_key_others_can_read_is_not_used(started, user):
    world = started("sdbox")
    entry, header = delivery_id(world)
    world.write_key(world.key.read_text(), mode=0o444)
    world.deliver(user, text=header + TEXT)
    assert world.guids(user) != [guid_for(entry, user)] and len(world.guids(user)) == 1
    said = [line for line in world.log.read_text().splitlines() if "dovelane_group_key_file" in line]
    assert said and str(world.key) in said[0] and "0444" in said[0]


def sieve_settings():
    if version() >= (2, 4):
        return ("protocol lmtp {\n  mail_plugins {\n    dovelane = yes\n    sieve = yes\n  }\n}\n"
                "sieve_script personal {\n  driver = file\n  path = ~/.dovecot.sieve\n}\n")
    return "protocol lmtp {\n  mail_plugins = dovelane sieve\n}\nplugin {\n  sieve = ~/.dovecot.sieve\n}\n"


@pytest.mark.skipif(not os.path.exists(os.path.join(module_directory(), "lib90_sieve_plugin.so")), reason="no Sieve here")
def test_sieve_does_not_come_before_us(started, user):
    world = started("sdbox", more=sieve_settings())
    emptied(world, user)
    script = world.home(user) / ".dovecot.sieve"
    script.write_text('require ["fileinto", "mailbox", "copy", "imap4flags"];\n'
                      'setflag "\\\\Flagged";\nfileinto :create :copy "Sorted";\n')
    shutil.chown(script, "nobody")
    entry, header = delivery_id(world)
    world.deliver(user, text=header + TEXT)
    assert world.guids(user, "Sorted") == [guid_for(entry, user)]
    assert world.guids(user) == [guid_for(entry, user)]
    assert {name for _, name in world.named()} == {"INBOX", "Sorted"}
    assert not world.wrong(), world.wrong()


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here")
@pytest.mark.parametrize("form", FORMATS)
def test_valgrind_finds_nothing_in_our_code(started, user, form):
    world = started(form, valgrind=True)
    entry, header = delivery_id(world)
    other = f"other{next(COUNT)}@example.org"
    world.deliver(user, other, text=header + TEXT)
    world.deliver(user, text=delivery_id(world, key=b"x" * 16)[1] + TEXT)
    with world.imap(user) as session:
        session.do("select")
        session.mail()
        session.do("store", "1:*", "+FLAGS", "\\Deleted keyword")
        session.do("create", "F")
        session.do("copy", "1", "F")
        session.move("2", "F")
        session.do("expunge")
        session.metadata("F", "/private/comment", "x")
        session.do("rename", "F", "G")
        session.do("subscribe", "G")
        session.do("select", f"shared/{other}/INBOX")
        session.do("store", "1", "+FLAGS", "\\Flagged")
        world.deaf()
        session.do("store", "1", "-FLAGS", "\\Flagged")
        session.do("delete", "G")
    assert world.guids(other) == [guid_for(entry, other)]
    assert set(world.marks()) == {mark_of(user), mark_of(other)}
    world.service.end()
    watched, ours = world.found_by_valgrind()
    assert watched >= 2 and not ours, "\n".join(ours)
    assert not world.wrong(), world.wrong()


# -- doveadm dovelane ------------------------------------------------------------------------------------------------------------


class Replicator:
    """Answers at the admin socket: one prepared reply per request."""

    def __init__(self, world, *replies):
        self.path = world.base / "run" / "dovelane-admin"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.requests, self.replies = [], list(replies)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while self.replies:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                self.requests.append(peer.makefile("rb").readline())
                peer.sendall(self.replies.pop(0))

    def end(self):
        self.replies.clear()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a peer
        self.socket.close()
        self.path.unlink(missing_ok=True)
        self.thread.join(10)


@contextlib.contextmanager
def answering(world, *replies):
    replicator = Replicator(world, *replies)
    try:
        yield replicator.requests
    finally:
        replicator.end()


def test_doveadm_prints_the_replicators_table(sdbox):
    reply = b"#\tuser\tsite\tbehind\n+a@example.org\t2\t17\n+b\001tc\t3\n+d\t4\t5\t6\n=\t0\n"
    with answering(sdbox, reply, reply) as requests:
        done = sdbox.doveadm("-f", "tab", "dovelane", "status", "-A", check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["user\tsite\tbehind", "a@example.org\t2\t17", "b\tc\t3\t", "d\t4\t5 6"]
        table = sdbox.doveadm("dovelane", "status").splitlines()
        assert table[0].split() == ["user", "site", "behind"] and table[1].split() == ["a@example.org", "2", "17"]
    assert requests == [b"status\t*\n", b"status\t\n"]


def test_doveadm_hands_on_verb_user_and_arguments(sdbox):
    done = b"=\t0\n"
    with answering(sdbox, *[done] * 9) as requests:
        for words in (["lag", "-u", "a@b"], ["verify", "-u", "a", "--duplicates"], ["resync", "-A", "2"],
                      ["accept", "-u", "a", "INBOX", "x\ty"], ["restore", "-u", "a"], ["new-epoch", "-u", "a"], ["peers"],
                      ["peers", "--remove", "3"], ["join", "-u", "a"]):
            assert sdbox.doveadm("dovelane", *words) == ""
    assert requests == [b"lag\ta@b\n", b"verify\ta\t--duplicates\n", b"resync\t*\t2\n", b"accept\ta\tINBOX\tx\001ty\n",
                        b"restore\ta\n", b"new-epoch\ta\n", b"peers\t\n", b"peers\t\t--remove\t3\n", b"join\ta\n"]


def test_doveadm_tells_errors_and_exit_codes(sdbox):
    with answering(sdbox, b"-no such user: a\n=\t67\n", b"+x\n", b"", b"hello\n"):
        done = sdbox.doveadm("dovelane", "verify", "-u", "a", check=False)
        assert done.returncode == 67 and "no such user: a" in done.stderr
        for _ in range(2):  # half an answer, none
            done = sdbox.doveadm("dovelane", "lag", check=False)
            assert done.returncode == 75 and "before its answer was complete" in done.stderr
        done = sdbox.doveadm("dovelane", "lag", check=False)
        assert done.returncode == 76 and "no reply: hello" in done.stderr


def test_doveadm_without_a_replicator_says_what_to_start(sdbox):
    done = sdbox.doveadm("dovelane", "status", check=False)
    assert done.returncode == 75
    assert str(sdbox.base / "run" / "dovelane-admin") in done.stderr and "dovelane-replicator" in done.stderr
