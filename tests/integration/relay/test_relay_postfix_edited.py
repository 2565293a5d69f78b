"""Postfix's settings while somebody edits them: what is missing, half-written or not to be read
makes nothing less strict in the relay."""
import os
import shutil
import time

import pytest

from support.half_written import Writer
from support.relay_world import eventually
from test_naming import Named
from test_next_hop_addresses import arrived

pytestmark = pytest.mark.long


@pytest.fixture
def named(world, tmp_path):
    return Named(world, tmp_path)


@pytest.mark.parametrize("left_there", ["services", "programs"])
def test_a_relay_that_starts_while_main_cf_is_away_waits_for_it(named, left_there):
    """mv main.cf main.cf.bak, and a restart."""
    named.write("smtp_tls_security_level = encrypt")
    (named.config / "main.cf").unlink()
    relay = named.world.relay()
    if left_there == "services":
        relay.argv = ["env", "PATH=/none", *relay.argv]
    else:
        shutil.rmtree(named.config)
    named.start("mx1")
    bare = named.world.peer()
    named.world.store(bare, owners=["mx1"])
    named.world.logged("cannot be read, and no mail is sent to any: there is a Postfix, but no "
                       ".*/main.cf: put it back, or set postfix_config = ")
    named.world.logged("is away: Postfix's settings for next hops cannot be read")
    assert not bare.clients
    if left_there == "services":
        return
    named.config.mkdir()
    named.write("smtp_tls_security_level = encrypt")
    eventually("it is tried", lambda: len(bare.seen("^EHLO")) > 2)
    assert not bare.mails
    named.write()
    eventually("it arrives", lambda: bare.mails)


def test_a_half_written_main_cf_takes_no_tls_away(named):
    named.write("smtp_tls_security_level = encrypt")
    whole = (named.config / "main.cf").read_text()
    named.start("mx1")
    named.world.logged("this host calls itself mx.site.example")
    writer = Writer(named.config / "main.cf", whole.partition("smtp_tls")[0])
    try:
        named.world.logged("changed just now: the older ones stay until")
        bare = named.world.peer()
        named.world.store(bare, owners=["mx1"])
        named.world.logged("TLS is required")
        assert not bare.mails
    finally:
        writer.end()
    named.write("smtp_tls_security_level = encrypt\nsmtp_helo_name = whole.site.example")
    named.world.logged("this host calls itself whole.site.example")
    assert not bare.mails
    # What is meant so counts when it stays so.
    (named.config / "main.cf").write_text(whole.replace("encrypt", "none"))
    eventually("it arrives", lambda: bare.mails)


def test_more_tls_counts_at_once(named):
    named.start("mx1")
    named.world.logged("this host calls itself mx.site.example")
    writer = Writer(named.config / "main.cf",
                    (named.config / "main.cf").read_text() + "smtp_tls_security_level = encrypt\n")
    try:
        named.world.logged("settings for next hops ask for more TLS")
    finally:
        writer.end()
    bare = named.world.peer()
    named.world.store(bare, owners=["mx1"])
    named.world.logged("TLS is required")
    assert not bare.mails


def test_more_tls_of_a_half_written_main_cf_counts_and_nothing_else(named):
    """Its myhostname is not there yet."""
    named.write("smtp_helo_name = whole.site.example")
    named.start("mx1")
    named.world.logged("this host calls itself whole.site.example")
    writer = Writer(named.config / "main.cf", "compatibility_level = 3.6\n"
                    "smtp_tls_security_level = encrypt\n")
    try:
        bare = named.world.peer()
        named.world.logged("settings for next hops ask for more TLS")
        named.world.store(bare, "a@x.example", owners=["mx1"])
        named.world.logged("TLS is required")
        assert all("whole.site.example" in line for line in bare.seen("^EHLO")), bare.seen("^EHLO")
    finally:
        writer.end()


def test_a_connection_that_was_open_without_tls_gets_no_mail_once_tls_is_wanted(named):
    named.start("mx1")
    named.world.configure(connection_idle="300s")
    named.world.logged("config read again")
    bare = named.world.peer()
    named.world.store(bare, "a@x.example", owners=["mx1"])
    eventually("it arrives", lambda: arrived(bare, "a@x.example"))
    named.write("smtp_tls_security_level = encrypt")
    named.world.logged("settings for next hops read again")
    named.world.store(bare, "b@x.example", owners=["mx1"])
    eventually("b", lambda: arrived(bare, "b@x.example") or named.world.count("TLS is required"))
    assert not arrived(bare, "b@x.example")


def test_a_relay_that_starts_in_the_middle_of_it_waits(named):
    whole = ("compatibility_level = 3.6\nmyhostname = mx.site.example\n"
             "smtp_tls_security_level = encrypt\n")
    writer = Writer(named.config / "main.cf", whole.partition("smtp_tls")[0])
    bare = named.world.peer()
    try:
        named.start("mx1")
        named.world.store(bare, owners=["mx1"])
        named.world.logged("changed just now: no mail is sent to any until")
    finally:
        writer.end()
    named.replace("main.cf", whole)
    eventually("it is tried", lambda: len(bare.seen("^EHLO")) > 2)
    assert not bare.mails


def test_settings_that_cannot_be_read_are_asked_for_less_and_less(named, tmp_path):
    programs, calls = tmp_path / "programs", tmp_path / "calls"
    programs.mkdir()
    (programs / "postconf").write_text(f"#!/bin/sh\ndate +%s.%N >>{calls}\n"
                                       "echo 'postconf: fatal: no such luck' >&2\nexit 1\n")
    (programs / "postconf").chmod(0o755)
    relay = named.world.relay()
    relay.argv = ["env", f"PATH={programs}", *relay.argv]
    named.start("mx1")
    eventually("it is asked five times",
               lambda: calls.exists() and len(calls.read_text().split()) >= 5)
    at = [float(each) for each in calls.read_text().split()[:5]]
    gaps = [later - before for before, later in zip(at, at[1:])]
    assert all(gap > 0.9 * 2 ** (n + 1) for n, gap in enumerate(gaps)), gaps
    # A change is looked at without delay.
    shutil.rmtree(programs)
    programs.symlink_to("/usr/sbin")
    before = named.world.count("this host calls itself mx.site.example")
    named.write("# changed")
    named.world.logged("this host calls itself mx.site.example", times=before + 1)


def test_a_main_cf_that_was_only_read_is_as_it_was(named):
    """Where reading changes st_atime, asking postconf(1) because of that would have no end."""
    named.start("mx1")
    named.world.logged("this host calls itself mx.site.example")
    main = named.config / "main.cf"
    for n in range(1, 4):
        os.utime(main, ns=(n, main.stat().st_mtime_ns))
        time.sleep(1)   # so that each would be seen
    text = main.read_text()
    named.replace("main.cf", text + "smtp_helo_name = other.site.example\n")
    named.world.logged("this host calls itself other.site.example")
    assert named.world.count("settings for next hops read again") == 1


def test_a_main_cf_from_the_future_is_waited_with_as_well(named):
    """Written by a host whose clock is ahead, or before ours was set back: it may be half-written."""
    named.write("smtp_tls_security_level = encrypt")
    named.start("mx1")
    named.world.logged("this host calls itself mx.site.example")
    new = named.config / "main.new"
    new.write_text("compatibility_level = 3.6\nmyhostname = mx.site.example\n")
    os.utime(new, (time.time() + 3600,) * 2)
    new.rename(named.config / "main.cf")
    named.world.logged("changed just now: the older ones stay until", seconds=60)
    named.world.logged("settings for next hops read again")
