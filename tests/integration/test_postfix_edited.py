"""Postfix's settings while somebody edits them: what is missing, half-written or not to be read makes
nothing less strict, neither in the relay nor in the milter."""
import os
import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from relay_world import eventually
from test_disk_first import Setting, diverts, left, line_of, log, system, wait  # pylint: disable=unused-import
from test_milter import send
from test_naming import Named

pytestmark = pytest.mark.long


@pytest.fixture
def named(world, tmp_path):
    return Named(world, tmp_path)


# ---- the relay ----

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
    named.world.logged("cannot be read, and no mail is sent to any: there is a Postfix, but no .*/main.cf: "
                       "put it back, or set postfix_config = ")
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


class Writer(threading.Thread):
    """Somebody whose main.cf is not whole yet, and who stops now and then: while it changes each
    second, Postfix's programs wait before they read it."""

    def __init__(self, path, text):
        super().__init__(daemon=True)
        self.path, self.over = path, threading.Event()
        path.write_text(text)
        self.start()

    def run(self):
        while not self.over.wait(2.5):
            with self.path.open("a", encoding="utf-8") as main:
                main.write("# more\n")

    def end(self):
        self.over.set()
        self.join()


def test_a_half_written_main_cf_takes_no_tls_away(named):
    named.write("smtp_tls_security_level = encrypt")
    whole = (named.config / "main.cf").read_text()
    named.start("mx1")
    named.world.logged("this host calls itself mx.site.example")
    writer = Writer(named.config / "main.cf", whole.partition("smtp_tls")[0])
    try:
        named.world.logged("changed just now: those of before stay until")
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
        named.world.logged("settings for next hops read again")
    finally:
        writer.end()
    bare = named.world.peer()
    named.world.store(bare, owners=["mx1"])
    named.world.logged("TLS is required")
    assert not bare.mails


def test_a_relay_that_starts_in_the_middle_of_it_waits(named):
    whole = "compatibility_level = 3.6\nmyhostname = mx.site.example\nsmtp_tls_security_level = encrypt\n"
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
    eventually("it is asked five times", lambda: calls.exists() and len(calls.read_text().split()) >= 5)
    at = [float(each) for each in calls.read_text().split()[:5]]
    gaps = [later - before for before, later in zip(at, at[1:])]
    assert all(gap > 0.9 * 2 ** (n + 1) for n, gap in enumerate(gaps)), gaps
    # A change is looked at without delay.
    shutil.rmtree(programs)
    programs.symlink_to("/usr/sbin")
    before = named.world.count("this host calls itself mx.site.example")
    named.write("# changed")
    named.world.logged("this host calls itself mx.site.example", times=before + 1)


# ---- the milter ----

def test_a_half_written_main_cf_takes_no_alias_away(system):
    with Setting(system, "virtual_alias_maps = inline:{ { x@a.example = y@plain.example } }"):
        left(system, "x@a.example", "map")
        main = Path(system["postfix"].note["config_directory"]) / "main.cf"
        whole, seen = main.read_text(), len(log(system))
        assert whole.rstrip().rpartition("\n")[2].startswith("virtual_alias_maps")
        writer = Writer(main, whole.rstrip().rpartition("\n")[0] + "\n")
        try:
            wait(lambda: "has just been written" in log(system)[seen:], lambda: log(system)[-2000:])
            assert "action=queue reason=map" in line_of(system, send(system, "x@a.example")[1])
        finally:
            writer.end()
        main.write_text(whole)
        os.utime(main, (time.time() - 60,) * 2)


def test_what_forbids_counts_at_once(system):
    main = Path(system["postfix"].note["config_directory"]) / "main.cf"
    whole, seen = main.read_text(), len(log(system))
    writer = Writer(main, whole + "\nalways_bcc = a@plain.example\n")
    try:
        wait(lambda: "diverting is off: always_bcc" in log(system)[seen:], lambda: log(system)[-2000:])
        assert "action=queue reason=postfix always_bcc" in line_of(system, send(system, "x@a.example")[1])
    finally:
        writer.end()
        main.write_text(whole)
        os.utime(main, (time.time() - 60,) * 2)
    wait(lambda: diverts(system), lambda: log(system)[-2000:])


def test_a_table_that_only_a_result_of_another_one_names_is_watched(system, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"a@nobody.example check_recipient_access texthash:{second}\n")
    second.write_text("b@nobody.example OK\n")
    with Setting(system, f"smtpd_client_restrictions = check_sender_access texthash:{first}"):
        wait(lambda: diverts(system), lambda: log(system)[-2000:])
        second.write_text("b@nobody.example HOLD\n")
        wait(lambda: re.search("diverting is off: smtpd_client_restrictions = .*second.*HOLD", log(system)), lambda: log(system)[-2000:])
        left(system, "x@a.example", "postfix")
        second.write_text("b@nobody.example OK\n")
        wait(lambda: diverts(system), lambda: log(system)[-2000:])


@pytest.mark.parametrize("spelling", ["unix:./dovelane/../dovelane/milter.sock", "unix:linked.sock"])
def test_our_milter_by_another_name_is_ours(system, spelling):
    note = system["postfix"].note
    link = Path(note["queue_directory"]) / "linked.sock"
    link.symlink_to("dovelane/milter.sock")
    seen = len(log(system))
    try:
        with Setting(system, f"smtpd_milters = {spelling}"):
            wait(lambda: diverts(system), lambda: log(system)[-2000:])
            with Setting(system, "always_bcc = a@plain.example", "always_bcc"):
                pass
            assert "no smtpd service has" not in log(system)[seen:]
    finally:
        link.unlink()
