"""The GUIDs that the plugin gives to the gateway's deliveries; Sieve and valgrind beside it."""
import os
import shutil

import pytest
from plugin_fixtures import COUNT, TEXT, delivery_id, emptied, guid_for, mark_of, needs_root, started, user, world
from support.plugin_world import FORMATS
from support.stack.dovecot import version
from support.stack.modules import module_directory

pytestmark = [needs_root, pytest.mark.long]


def stored(world, user, folder="INBOX"):
    return world.doveadm("fetch", "-u", user, "text", "mailbox", folder)


def test_a_gateway_delivery_has_the_guid_of_its_id(world, user):
    entry, header = delivery_id(world, user)
    world.deliver(user, text=header + TEXT)
    world.deliver(user, text=header + TEXT)
    assert world.guids(user) == [guid_for(entry, user)] * 2
    entry, header = delivery_id(world, user)
    world.lda(user, "-a", user, text=(header + TEXT).decode().replace("\r\n", "\n"))
    assert world.guids(user)[2:] == [guid_for(entry, user)]
    assert "Dovelane-Id" not in stored(world, user)
    world.hints()


def test_trace_lines_of_the_way_may_stand_above_the_line(world, user):
    """A mail that goes through Postfix's queue after all: Received of its smtpd, folded."""
    entry, header = delivery_id(world, user)
    world.deliver(user, text=header + TEXT)
    world.deliver(user, text=b"Received: from a (b [c])\r\n\tby d; now\r\nDelivered-To: x\r\n" + header + TEXT)
    assert world.guids(user) == [guid_for(entry, user)] * 2
    assert stored(world, user).count("by d; now") == 1
    world.hints()


REPLAYS = {
    "for another recipient": lambda header, text: header + text,
    "other bytes": lambda header, text: header + text.replace(b"hello", b"h3llo"),
    "a line more": lambda header, text: header + b"X-Other: way\r\n" + text,
    "below a header of the sender's": lambda header, text: b"Subject: mine\r\n" + header + text,
    "the old message edited and sent again": lambda header, text: b"Resent-From: me\r\n" + header + text + b"footer\r\n",
    "a Sieve redirect": lambda header, text: b"X-Sieve: Pigeonhole\r\nX-Sieve-Redirected-From: a@b\r\n" + header + text,
    "twice, the right one below": lambda header, text: b"Dovelane-Id: " + b"0" * 32 + b" " + b"0" * 32 + b"\r\n" + header + text,
    "attached": lambda header, text: b"Content-Type: message/rfc822\r\n\r\n" + header + text,
}


@pytest.mark.parametrize("way", REPLAYS)
def test_a_line_that_is_sent_again_says_nothing_of_another_mail(world, user, way):
    """Whoever has the line, by whichever way it came to him, cannot give its GUID to other bytes or to another recipient's mail."""
    owner = "owner@example.org" if way == "for another recipient" else user
    entry, header = delivery_id(world, owner)
    world.deliver(user, text=REPLAYS[way](header, TEXT))
    if way != "for another recipient":
        world.deliver(user, text=header + TEXT)
    guids = world.guids(user)
    assert guids[0] != guid_for(entry, user)
    assert guids[1:] == ([guid_for(entry, user)] if len(guids) > 1 else [])
    assert stored(world, user).count("Dovelane-Id") == (1 if way == "attached" else 0)
    world.hints()


def test_a_replay_to_all_recipients_of_a_mail_is_the_same_mail(world):
    """The codes are for the recipients of one transaction: no one of them says anything to somebody else."""
    users = [f"codes{next(COUNT)}@example.org" for _ in range(3)]
    entry, header = delivery_id(world, *users[:2])
    world.deliver(*users, text=header + TEXT)
    assert [world.guids(user) == [guid_for(entry, user)] for user in users] == [True, True, False]
    assert not any("Dovelane-Id" in stored(world, user) for user in users)
    world.hints()


def test_two_addresses_of_a_user_are_two_mails(world, user):
    name, _, domain = user.partition("@")
    other = f"{name}+INBOX@{domain}"
    entry, header = delivery_id(world, user, other)
    world.deliver(user, other, text=header + TEXT)
    assert sorted(world.guids(user)) == sorted([guid_for(entry, user), guid_for(entry, other)])
    world.hints()


def test_each_recipient_of_one_delivery_gets_their_own(world):
    """Also those who get a copy of the first one's mail, in which the line is no more."""
    users = [f"each{next(COUNT)}@example.org" for _ in range(3)]
    entry, header = delivery_id(world, *users)
    world.deliver(*users, text=header + TEXT)
    world.deliver(*users, text=TEXT)
    for user in users:
        first, second = world.guids(user)
        assert first == guid_for(entry, user) != second
    world.hints()


def test_an_id_without_a_valid_code_has_no_authority(world, user):
    entry, header = delivery_id(world, user, key=b"0123456789abcdef")
    for text in (header + TEXT, header + TEXT, f"Dovelane-Id: {entry}\r\n".encode() + TEXT, TEXT, b"Dovelane-Id:\r\n" + TEXT,
                 header.replace(b"\r\n", b"", 1) + b" x" * 10000 + b"\r\n" + TEXT):
        world.deliver(user, text=text)
    guids = world.guids(user)
    assert len(set(guids)) == 6 and guid_for(entry, user) not in guids
    assert "Dovelane-Id" not in stored(world, user)
    world.hints()


def test_the_id_is_for_one_delivery_only(world, user):
    """Also when the session goes on, and for other saves of the same user; what a client saves, it saves byte by byte."""
    entry, header = delivery_id(world, user)
    world.deliver(user, text=header + TEXT)
    world.deliver(user, text=TEXT)
    with world.imap(user) as session:
        session.mail(text=header + TEXT)
    first, *others = world.guids(user)
    assert first == guid_for(entry, user)
    assert first not in others and len(set(others)) == 2
    assert stored(world, user).count("Dovelane-Id") == 1
    world.hints()


def test_a_key_others_can_read_is_not_used(started, user):
    world = started("sdbox")
    entry, header = delivery_id(world, user)
    world.write_key(world.key.read_text(), mode=0o444)
    world.deliver(user, text=header + TEXT)
    assert world.guids(user) != [guid_for(entry, user)] and len(world.guids(user)) == 1
    said = world.said("dovelane_group_key_file")
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
    entry, header = delivery_id(world, user)
    world.deliver(user, text=header + TEXT)
    assert world.guids(user, "Sorted") == [guid_for(entry, user)]
    assert not any("Dovelane-Id" in stored(world, user, folder) for folder in ("INBOX", "Sorted"))
    assert world.guids(user) == [guid_for(entry, user)]
    assert {name for _, name in world.named()} == {"INBOX", "Sorted"}
    assert not world.wrong(), world.wrong()


def discarded(world, user, name="discarded"):
    """GUIDs of deliveries that saved nothing, as the plugin noted them."""
    found = [path for path in world.home(user).rglob(name) if path.parent.name == "dovelane"]
    return found[0].read_text().splitlines() if found else []


@pytest.mark.skipif(not os.path.exists(os.path.join(module_directory(), "lib90_sieve_plugin.so")), reason="no Sieve here")
def test_a_delivery_that_saves_nothing_is_noted(started, user):
    """And no other: who asks for it is told that it needs no copy."""
    world = started("sdbox", more=sieve_settings())
    emptied(world, user)
    script = world.home(user) / ".dovecot.sieve"
    entry, header = delivery_id(world, user)
    for text in ("keep;\n", 'require "fileinto";\nrequire "mailbox";\nfileinto :create "Sorted";\n'):
        script.write_text(text)
        shutil.chown(script, "nobody")
        world.deliver(user, text=header + TEXT)
    assert discarded(world, user) == []
    script.write_text("discard;\n")
    world.deliver(user, text=TEXT)      # no delivery of the gateway's
    assert discarded(world, user) == []
    world.deliver(user, text=header + TEXT)
    assert discarded(world, user) == [guid_for(entry, user)]
    (path,) = world.home(user).rglob("discarded")
    path.write_text("x" * 131072 + "\n")
    world.deliver(user, text=header + TEXT)
    assert not path.exists()
    assert discarded(world, user, "discarded.old")[-1] == guid_for(entry, user)
    world.deliver(user, text=header + TEXT)
    assert discarded(world, user) == [guid_for(entry, user)]
    path.unlink()
    path.mkdir()        # it cannot be written: that is logged, and the delivery is as ever
    world.deliver(user, text=header + TEXT)
    assert world.said("makes it once more")


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here")
@pytest.mark.parametrize("form", FORMATS)
def test_valgrind_finds_nothing_in_our_code(started, user, form):
    world = started(form, valgrind=True)
    other = f"other{next(COUNT)}@example.org"
    entry, header = delivery_id(world, user, other)
    world.deliver(user, other, text=header + TEXT)
    world.deliver(user, text=delivery_id(world, user, key=b"x" * 16)[1] + TEXT)
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
