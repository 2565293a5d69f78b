"""Postfix's settings while somebody edits them: what is half-written makes nothing less strict in
the milter; what it watches; how it finds its own socket."""
import os
import re
import time
from pathlib import Path

import pytest

from support.half_written import Writer
from support.mail import send
from support.waiting import eventually
from test_disk_first import system  # pylint: disable=unused-import
from test_disk_first import Setting, diverts, left, line_of, log

pytestmark = pytest.mark.long


def logged(running, pattern, seen=0):
    eventually(lambda: log(running)[-2000:], lambda: re.search(pattern, log(running)[seen:]))


def test_a_half_written_main_cf_takes_no_alias_away(system):
    with Setting(system, "virtual_alias_maps = inline:{ { x@a.example = y@plain.example } }"):
        left(system, "x@a.example", "map")
        main = Path(system["postfix"].note["config_directory"]) / "main.cf"
        whole, seen = main.read_text(), len(log(system))
        assert whole.rstrip().rpartition("\n")[2].startswith("virtual_alias_maps")
        writer = Writer(main, whole.rstrip().rpartition("\n")[0] + "\n")
        try:
            logged(system, "has just been written", seen)
            assert "action=queue reason=map" in line_of(system, send(system, "x@a.example")[1])
        finally:
            writer.end()
        main.write_text(whole)
        os.utime(main, (time.time() - 60,) * 2)


def test_a_main_cf_from_the_future_takes_no_alias_away(system):
    """Written by a host whose clock is ahead of ours."""
    eventually("nothing of before counts any more",
               lambda: "action=lane" in line_of(system, send(system, "x@a.example")[1]))
    with Setting(system, "virtual_alias_maps = inline:{ { x@a.example = y@plain.example } }"):
        left(system, "x@a.example", "map")
        main = Path(system["postfix"].note["config_directory"]) / "main.cf"
        whole, seen = main.read_text(), len(log(system))
        half = main.with_suffix(".half")
        half.write_text(whole.rstrip().rpartition("\n")[0] + "\n")
        os.utime(half, (time.time() + 3600,) * 2)
        half.rename(main)
        logged(system, "has just been written", seen)
        main.write_text(whole)
        os.utime(main, (time.time() - 60,) * 2)


def test_what_forbids_counts_at_once(system):
    main = Path(system["postfix"].note["config_directory"]) / "main.cf"
    whole, seen = main.read_text(), len(log(system))
    writer = Writer(main, whole + "\nalways_bcc = a@plain.example\n")
    try:
        logged(system, "diverting is off: always_bcc", seen)
        text = send(system, "x@a.example")[1]
        assert "action=queue reason=postfix always_bcc" in line_of(system, text)
    finally:
        writer.end()
        main.write_text(whole)
        os.utime(main, (time.time() - 60,) * 2)
    eventually(lambda: log(system)[-2000:], lambda: diverts(system))


def test_a_table_that_only_a_result_of_another_one_names_is_watched(system, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"a@nobody.example check_recipient_access texthash:{second}\n")
    second.write_text("b@nobody.example OK\n")
    with Setting(system, f"smtpd_client_restrictions = check_sender_access texthash:{first}"):
        eventually(lambda: log(system)[-2000:], lambda: diverts(system))
        second.write_text("b@nobody.example HOLD\n")
        logged(system, "diverting is off: smtpd_client_restrictions = .*second.*HOLD")
        left(system, "x@a.example", "postfix")
        second.write_text("b@nobody.example OK\n")
        eventually(lambda: log(system)[-2000:], lambda: diverts(system))


@pytest.mark.parametrize("spelling",
                         ["unix:./dovelane/../dovelane/milter.sock", "unix:linked.sock"])
def test_our_milter_by_another_name_is_ours(system, spelling):
    note = system["postfix"].note
    link = Path(note["queue_directory"]) / "linked.sock"
    link.symlink_to("dovelane/milter.sock")
    seen = len(log(system))
    try:
        with Setting(system, f"smtpd_milters = {spelling}"):
            eventually(lambda: log(system)[-2000:], lambda: diverts(system))
            with Setting(system, "always_bcc = a@plain.example", "always_bcc"):
                pass
            assert "no smtpd service has" not in log(system)[seen:]
    finally:
        link.unlink()
