"""Another site gives a folder the name that one of this site has. Both have a mailbox here, so the
one goes aside, and its mails into the other one. What clients did in it after the last look, in the
moment in which its folder is united, counts.
"""
import os

import pytest
from test_worker_kill import HOW, PAIRS, scene  # noqa: F401
from test_worker_kill_united import flags_in_h, in_h
from worker_sites import append, imap
from support.worker_world import USER

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root"), pytest.mark.exhaustive]


def named_alike(s):
    """The first site's G is known at both; the second one makes H, and then G becomes H."""
    imap(s.there, None, ("create", "G"))
    for name in ("ta", "tb"):
        append(s.there, "G", name, "(\\Seen)")
    s.world.settle()
    imap(s.here, None, ("create", "H"))
    for name in ("ha", "hb"):
        append(s.here, "H", name, "(\\Seen)")
    s.here.ingest()
    imap(s.there, None, ("rename", "G", "H"))
    s.there.ingest()


def at_rest(s):
    s.rest()
    for site in (s.here, s.there):
        shown = [line.strip() for line in site.doveadm("mailbox", "list", "-u", USER).decode().splitlines()]
        assert not [name for name in shown if "-dovelane-" in name], shown


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_comes_while_its_folder_gets_another_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    named_alike(s)
    s.meanwhile(lambda: append(s.here, "H", "hc", "(\\Flagged)"), lambda: s.world.settle(ingest=False))
    at_rest(s)
    for site in (s.here, s.there):
        assert flags_in_h(site) == {"hc": {"\\Flagged"}, **{name: {"\\Seen"} for name in ("ha", "hb", "ta", "tb")}}


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_is_removed_while_its_folder_gets_another_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    named_alike(s)
    s.meanwhile(lambda: imap(s.here, "H", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",)), lambda: s.world.settle(ingest=False))
    at_rest(s)
    assert in_h(s.there) == in_h(s.here) == ["hb", "ta", "tb"]


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch"))
@pytest.mark.parametrize("formats", PAIRS)
def test_flags_change_while_their_folder_gets_another_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    named_alike(s)
    s.meanwhile(lambda: imap(s.here, "H", ("store", "1", "-FLAGS", "(\\Seen)"), ("store", "2", "+FLAGS", "(\\Flagged)")), lambda: s.world.settle(ingest=False))
    at_rest(s)
    for site in (s.here, s.there):
        assert flags_in_h(site) == {"ha": set(), "hb": {"\\Seen", "\\Flagged"}, "ta": {"\\Seen"}, "tb": {"\\Seen"}}
