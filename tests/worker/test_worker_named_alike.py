"""Another site gives a folder the name that one of this site has. Both have a mailbox here, so the
one goes aside, and its mails into the other one. What clients did in it after the last look, in the
moment in which its folder is united, counts.
"""
import os

import pytest
from test_worker_kill import HOW, PAIRS, scene  # noqa: F401
from test_worker_kill_united import flags_in_h, hear, in_h
from worker_sites import append, delete, imap
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


def h_is_gone(s, mails):
    for site in (s.here, s.there):
        assert not mails & set(in_h(site)), (in_h(s.here), in_h(s.there))


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch", "place-said", "place"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_folder_is_deleted_while_it_gets_another_mailbox(scene, formats, step, how):
    """What its site had in it goes, in whichever mailbox that is just then."""
    s = scene(formats, step, how)
    named_alike(s)
    s.meanwhile(lambda: delete(s.here, "H"), lambda: s.world.settle(ingest=False))
    at_rest(s)
    h_is_gone(s, {"ha", "hb"})


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("batch", "place-said", "place"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_folder_is_deleted_while_it_gets_a_mailbox_of_its_own_again(scene, formats, step, how):
    """Both sites have an H, which is one mailbox; the first site's is deleted there, before it hears of the second one's."""
    s = scene(formats, step, how)
    s.world.settle()
    for site, name in ((s.there, "ta"), (s.here, "ha")):
        imap(site, None, ("create", "H"))
        append(site, "H", name)
    s.there.ingest()
    s.here.ingest()
    delete(s.there, "H")
    s.there.ingest()
    hear(s.here, s.there, s.there.outbox[2].pop(0))
    s.meanwhile(lambda: delete(s.here, "H"), lambda: s.world.settle(ingest=False))
    at_rest(s)
    h_is_gone(s, {"ha", "ta"})


@pytest.mark.long
@pytest.mark.parametrize("step", ("unite", "batch", "place-said"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_folder_is_deleted_whose_name_another_one_just_got(scene, formats, step):
    """The second site calls the first one's G H, and the first one calls the second one's K so. Who deletes H there has not seen K's mails by that name."""
    s = scene(formats, step, "stands")
    for site, folder in ((s.there, "G"), (s.here, "K")):
        imap(site, None, ("create", folder))
        append(site, folder, f"in-{folder}")
    s.world.settle()
    imap(s.here, None, ("rename", "G", "H"))
    imap(s.there, None, ("rename", "K", "H"))
    s.there.ingest()
    s.here.ingest()
    s.meanwhile(lambda: delete(s.here, "H"), lambda: s.world.settle(ingest=False))
    at_rest(s)
    assert in_h(s.here) == in_h(s.there) == ["in-K"]
