"""Dovecots with the plugin, for the tests of what it does: one for each mailbox format and module, or one that a test may spoil."""
import os

import pytest
from support.plugin_world import FORMATS, World
from support.stack.delivery_id import guid, line

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root")
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


def mark_of(user):
    return user.replace("@", "%40").replace(".", "%2E")


TEXT = b"Subject: t\r\n\r\nhello\r\n"


def delivery_id(world, *recipients, text=TEXT, entry=None, key=None):
    """(entry, the relay's line in front of text)."""
    return line(key or bytes.fromhex(world.key.read_text()), text, *recipients, entry=entry)


def guid_for(entry, recipient, text=TEXT):
    return guid(entry, text, recipient)
