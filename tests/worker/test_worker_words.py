"""What an admin is told of names: which wait, and that mailboxes differ by them; and in which words."""
import pytest
from names_world import Client, another_user, names_world, same, shown, subjects_of
from support.frames import CLOSE, TICK
from worker_sites import append, equal, guarded, imap, make_world, needs_dovecot
from support.worker_world import USER

pytestmark = needs_dovecot

LONG = ("l" * 100, "m" * 100, "n" * 100)    # a directory of a Maildir++ has 255 bytes

SENT = "namespace inbox {\n  mailbox Sent {\n    special_use = \\Sent\n    auto = subscribe\n  }\n}\n"


@pytest.fixture
def two(tmp_path_factory):
    world = names_world(tmp_path_factory, "sdbox", "maildir")
    yield world
    world.stop()


def folder_line(lines, name):
    (line,) = [line for line in lines if line.split("\t")[:2] == ["folder", name]]
    return line


def test_a_folder_whose_name_a_storage_cannot_hold_is_told(two):
    another_user(two, "long")
    a, b = two[1], two[2]
    with Client(a) as client:
        client.create(LONG)
        client.append(LONG, "m")
    two.settle()
    assert set(subjects_of(shown(b))) == {("INBOX",)}
    assert b.done["names"] == 1 and a.done["names"] == 0
    status = b.admin("status")
    assert "\tnames=1" in status[0] and folder_line(status, "/".join(LONG)).endswith("\tnot-here")
    assert b.admin("verify")[-1] == "verdict\tdifferent"
    assert a.admin("verify")[-1] == "verdict\tsame"
    with Client(a) as client:
        client.rename(LONG[:1], ("short",))
        client.rename(("short",) + LONG[1:], ("shorter",))
    two.settle()
    two.settle()
    assert same(two)[("shorter",)] == ["m"]
    assert b.ingest()["names"] == 0


def test_a_folder_that_cannot_get_its_name_keeps_its_mails_and_takes_more(two):
    another_user(two, "kept")
    a, b = two[1], two[2]
    with Client(a) as client:
        client.create(("F",))
        client.append(("F",), "m")
    two.settle()
    with Client(a) as client:
        client.create(LONG[:2])
        client.rename(("F",), LONG)
        client.append(LONG, "n")
    two.settle()
    assert subjects_of(shown(b))[("F",)] == ["m", "n"]
    status = b.admin("status")
    assert "\tnames=1" in status[0]
    assert folder_line(status, "F").endswith("\tto-be=" + "/".join(LONG))
    verify = b.admin("verify")
    assert verify[-1] == "verdict\tdifferent" and "\tnames=1" in folder_line(verify, "F")
    with Client(a) as client:
        client.rename(LONG, ("G",))
    two.settle()
    two.settle()
    assert same(two)[("G",)] == ["m", "n"]


def test_verify_looks_at_the_uidvalidity(tmp_path_factory):
    """One of the far future is refused by the other sites."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        world[1].doveadm("mailbox", "update", "-u", USER, "--uid-validity", "4000000000", "INBOX")
        world.settle()
        said = world[1].admin("verify")
        assert said[-1] == "verdict\tdifferent", said
        assert folder_line(said, "INBOX").endswith("\tuidvalidity=1\tuidnext=0")
        assert world[2].admin("verify")[-1] == "verdict\tsame"
    finally:
        world.stop()


def uidnext(site, folder):
    said = site.doveadm("mailbox", "status", "-u", USER, "uidnext", folder).decode()
    return int(said.split("uidnext=")[1])


def expunge_last(site, folder, count):
    box = site.imap()
    box.select(folder)
    total = int(box.search(None, "ALL")[1][0].split()[-1])
    box.store(f"{total - count + 1}:*", "+FLAGS", "(\\Deleted)")
    box.expunge()
    box.logout()


@pytest.mark.parametrize("formats", ["sdbox maildir", "maildir mdbox"])
def test_a_uid_that_a_peer_gave_to_a_mail_that_is_gone_is_not_given_again(tmp_path_factory, formats):
    world = make_world(tmp_path_factory, formats.split())
    try:
        a, b = world[1], world[2]
        append(a, "INBOX", "m0")
        world.settle()
        for n in range(1, 4):
            append(a, "INBOX", f"m{n}")
        a.ingest()
        expunge_last(a, "INBOX", 3)
        a.ingest()
        world.settle()
        assert [len(mails) for _, mails in equal(world).values()] == [1]
        assert uidnext(a, "INBOX") == 5 == uidnext(b, "INBOX")
        append(b, "INBOX", "next")
        world.settle()
        assert [mail[0] for mail in equal(world)["INBOX"][1]] == [1, 5]
    finally:
        world.stop()


@pytest.mark.parametrize("formats", ["sdbox sdbox", "mdbox mdbox"])
def test_uidnext_follows_where_no_look_has_read_the_mailbox(tmp_path_factory, formats):
    """A user is opened by a sweep, which passes over mailboxes whose files are as they were. Then
    a mail comes and goes elsewhere."""
    world = make_world(tmp_path_factory, formats.split())
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "F", "m0")
        world.settle()
        b.ingest()
        b.work(CLOSE)
        b.disconnect()
        b.ingest(sweep=True)
        append(a, "F", "m1")
        a.ingest()
        expunge_last(a, "F", 1)
        a.ingest()
        a.outbox[2].clear()  # what is sent again comes without the mail
        world.settle(ingest=False)
        assert uidnext(b, "F") == 3
        assert b.admin("verify")[-1] == "verdict\tsame"
    finally:
        world.stop()


def test_uidnext_follows_a_mail_that_could_not_be_saved(tmp_path_factory):
    """It is gone elsewhere by the time when it can be."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        a, b = world[1], world[2]
        append(a, "INBOX", "m0")
        world.settle()
        (log,) = b.root().rglob("INBOX/dbox-Mails/dovecot.index.log")
        append(a, "INBOX", "m1")
        a.ingest()
        with guarded(log.parent, 0o500, log.parent.stat().st_uid):
            assert world.carry() and b.done["unplaced"] == 1
            expunge_last(a, "INBOX", 1)
            a.ingest()
            world.settle(ingest=False)
            assert b.done["unplaced"] == 0
            assert uidnext(b, "INBOX") == 3
            assert b.admin("verify")[-1] == "verdict\tsame"
        append(b, "INBOX", "next")
        world.settle()
        assert [mail[0] for mail in equal(world)["INBOX"][1]] == [1, 3]
    finally:
        world.stop()


def test_verify_names_a_site_that_would_give_a_peers_uid_again(tmp_path_factory):
    """The index of a mailbox that cannot be written: UIDNEXT stays behind, and that is said.
    It is tried again."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        a, b = world[1], world[2]
        append(a, "INBOX", "m0")
        world.settle()
        append(a, "INBOX", "m1")
        a.ingest()
        expunge_last(a, "INBOX", 1)
        a.ingest()
        a.outbox[2].clear()  # what is sent again comes without the mail
        b.work(CLOSE)
        b.disconnect()
        (log,) = b.root().rglob("INBOX/dbox-Mails/dovecot.index.log")
        with guarded(log, 0o400, log.stat().st_uid):
            world.settle()
        b.work(CLOSE)
        b.disconnect()  # it keeps the index as it opened it
        said = b.admin("verify")
        assert said[-1] == "verdict\tdifferent", said
        assert folder_line(said, "INBOX").endswith(
            "\tuidnext=1\tuidnext-here=2\tlast-of-site-1=2"), said
        assert a.admin("verify")[-1] == "verdict\tsame"
        b.work(TICK)
        assert uidnext(b, "INBOX") == 3
        assert b.admin("verify")[-1] == "verdict\tsame"
    finally:
        world.stop()


def test_special_use_is_each_sites_own(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "maildir"], more={1: SENT, 2: SENT})
    try:
        for site in world.sites.values():
            append(site, "INBOX", f"m{site.number}")
            append(site, "Sent", f"s{site.number}")
        world.settle()
        world.settle()
        told = [said for site in world.sites.values() for _, said in site.notes]
        assert not [said for said in told if "specialuse" in said], told
    finally:
        world.stop()


def test_the_log_calls_a_folder_by_its_name(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        append(world[1], "INBOX", "m")
        world.settle()
        for site in world.sites.values():
            append(site, "INBOX", f"n{site.number}")
        world.settle()
        told = [said for site in world.sites.values() for _, said in site.notes]
        assert [said for said in told if "UIDs of INBOX settled" in said], told
    finally:
        world.stop()
