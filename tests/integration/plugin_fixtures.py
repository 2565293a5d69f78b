"""Dovecots with the plugin, for the tests of what it does: one for each mailbox format and module, or one that a test may spoil."""
import hashlib
import hmac
import os
import secrets

import pytest
from plugin_world import FORMATS, World

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


def delivery_id(world, entry=None, key=None):
    """(entry, header line) as the relay makes them."""
    entry = entry or secrets.token_hex(16)
    key = key or bytes.fromhex(world.key.read_text())
    mac = hmac.new(key, b"dovelane-id:" + entry.encode(), hashlib.sha256).hexdigest()[:32]
    return entry, f"Dovelane-Id: {entry} {mac}\r\n".encode()


def guid_for(entry, recipient):
    return hashlib.sha256(f"dovelane-guid:{entry}:{recipient}".encode()).hexdigest()[:32]


TEXT = b"Subject: t\r\n\r\nhello\r\n"
