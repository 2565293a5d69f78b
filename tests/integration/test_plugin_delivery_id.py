"""The GUIDs that the plugin gives to the gateway's deliveries; Sieve and valgrind beside it."""
import os
import shutil

import pytest
from plugin_fixtures import COUNT, TEXT, delivery_id, emptied, guid_for, mark_of, needs_root, started, user, world
from plugin_world import FORMATS
from stack.dovecot import version
from stack.modules import module_directory

pytestmark = needs_root


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
