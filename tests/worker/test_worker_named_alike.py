"""Another site gives a folder the name that one of this site has. Both have a mailbox here, so the
one goes aside, and its mails into the other one. What clients did in it after the last look, in the
moment in which its folder is united, counts.
"""
import os

import pytest
from test_worker_kill import HOW, PAIRS, scene  # noqa: F401
from test_worker_kill_united import DELETED, RESCUED, flags_in_h, hear, in_h
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


LEAVING = ("batch", "place-said", "place")
"""Mails are to leave a mailbox: it is looked at behind the first of these steps, their copies are made between the others, and then they go."""


def two_names_become_one(s):
    """Both sites know G and K; the second one calls G N, and the first one calls K so. The second one has a session in K, whose mails leave it for N."""
    imap(s.there, None, ("create", "G"))
    append(s.there, "G", "ga", "(\\Seen)")
    s.world.settle()
    imap(s.here, None, ("create", "K"))
    for name in ("ka", "kb"):
        append(s.here, "K", name, "(\\Seen)")
    s.world.settle()
    imap(s.here, None, ("rename", "G", "N"))
    s.here.ingest()
    imap(s.there, None, ("rename", "K", "N"))
    s.there.ingest()


def flags_in(site, folder):
    """Flags by subject."""
    said = site.doveadm("-f", "tab", "fetch", "-u", USER, "hdr.subject flags", "mailbox", folder).decode().splitlines()[1:]
    return {subject: set(flags.split()) - {"\\Recent"} for subject, flags in (line.split("\t") for line in said)}


def a_session_goes_on(s, *commands):
    """In K, in which it looked before."""
    two_names_become_one(s)
    box = s.here.imap()
    assert box.select("K")[0] == "OK"

    def change():
        for command, *args in commands:
            ok, said = getattr(box, command)(*args)
            assert ok == "OK", (command, args, said)
    s.meanwhile(change, lambda: s.world.settle(ingest=False))
    box.shutdown()
    at_rest(s)


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", LEAVING)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_session_changes_flags_of_mails_that_leave_its_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    a_session_goes_on(s, ("store", "1", "-FLAGS", "(\\Seen)"), ("store", "2", "+FLAGS", "(\\Flagged kw)"))
    for site in (s.here, s.there):
        assert flags_in(site, "N") == {"ka": set(), "kb": {"\\Seen", "\\Flagged", "kw"}, "ga": {"\\Seen"}}


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", LEAVING)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_session_removes_a_mail_that_leaves_its_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    a_session_goes_on(s, ("store", "1", *DELETED), ("expunge",))
    for site in (s.here, s.there):
        assert flags_in(site, "N") == {"kb": {"\\Seen"}, "ga": {"\\Seen"}}


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", LEAVING)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_session_marks_a_mail_that_leaves_its_mailbox(scene, formats, step, how):
    s = scene(formats, step, how)
    a_session_goes_on(s, ("store", "1", *DELETED), ("store", "2", *DELETED), ("store", "2", *RESCUED))
    for site in (s.here, s.there):
        assert flags_in(site, "N") == {"ka": {"\\Seen", "\\Deleted"}, "kb": {"\\Seen"}, "ga": {"\\Seen"}}


@pytest.mark.long
@pytest.mark.parametrize("step", LEAVING)
@pytest.mark.parametrize("formats", PAIRS)
def test_a_session_moves_a_mail_that_leaves_its_mailbox(scene, formats, step):
    """The copy is a mail of its own; what it was copied from goes."""
    s = scene(formats, step, "stands")
    a_session_goes_on(s, ("copy", "1", "INBOX"), ("store", "1", *DELETED), ("expunge",))
    for site in (s.here, s.there):
        assert flags_in(site, "N") == {"kb": {"\\Seen"}, "ga": {"\\Seen"}}
        assert flags_in(site, "INBOX") == {"ka": {"\\Seen"}}
