"""What an admin is told of names: which wait, and that mailboxes differ by them; and in which words."""
import pytest
from names_world import Client, another_user, names_world, same, shown, subjects_of
from worker_sites import append, make_world, needs_dovecot
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
        assert folder_line(said, "INBOX").endswith("\tuidvalidity=1")
        assert world[2].admin("verify")[-1] == "verdict\tsame"
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
