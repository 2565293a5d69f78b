"""A worker that is ended or held up while it unites two folders of one name."""
import os
import re
import time

import pytest
from worker_sites import append, delete, imap, rotate_log
from support.frames import NEW, PARCEL, TICK, WANT, num, text
from test_worker_kill import HOW, PAIRS, scene  # noqa: F401

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="Dovecot's master must be started by root"), pytest.mark.exhaustive]


def two_of_one_name(s, mails=("a", "b")):
    """Each site makes H and fills it, and no one has heard of the other; the second one's becomes the first one's."""
    s.world.settle()
    for site, kind in ((s.there, "t"), (s.here, "h")):
        imap(site, None, ("create", "H"))
        for name in mails:
            append(site, "H", kind + name, "(\\Seen)")
        site.ingest()


def in_h(site):
    box = site.imap()
    ok, _ = box.select("H", readonly=True)
    found = []
    if ok == "OK":
        said = box.fetch("1:*", "(BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1]
        found = sorted(re.search(rb"Subject: *(\S+)", part[1])[1].decode() for part in said if isinstance(part, tuple))
    box.logout()
    return found


def flags_in_h(site):
    box = site.imap()
    box.select("H", readonly=True)
    found = {}
    for part in box.fetch("1:*", "(FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1]:
        if isinstance(part, tuple):
            flags = re.search(rb"FLAGS \(([^)]*)\)", part[0])[1].decode().split()
            found[re.search(rb"Subject: *(\S+)", part[1])[1].decode()] = set(flags) - {"\\Recent"}
    box.logout()
    return found


@pytest.mark.long
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_is_removed_before_its_folder_is_united(scene, formats):
    """The look that should have found it comes after the batch."""
    s = scene(formats, "none", "dies")
    two_of_one_name(s)
    imap(s.here, "H", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",), ("store", "1", "-FLAGS", "(\\Seen)"))
    s.world.settle(ingest=False)
    s.rest()
    assert in_h(s.there) == ["hb", "ta", "tb"]
    box = s.there.imap()
    box.select("H", readonly=True)
    assert len(box.search(None, "SEEN")[1][0].split()) == 2
    box.logout()


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch", "adopt"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_is_removed_while_its_folder_is_united(scene, formats, step, how):
    s = scene(formats, step, how)
    two_of_one_name(s)
    s.meanwhile(lambda: imap(s.here, "H", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",)), lambda: s.world.settle(ingest=False))
    s.rest()
    assert in_h(s.there) == ["hb", "ta", "tb"]


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch", "adopt"))
@pytest.mark.parametrize("formats", PAIRS)
def test_flags_change_while_their_folder_is_united(scene, formats, step, how):
    """What a client cleared stays cleared, what he set stays set; what nobody touched is as it was."""
    s = scene(formats, step, how)
    two_of_one_name(s, ("a", "b", "c"))
    s.meanwhile(lambda: imap(s.here, "H", ("store", "1", "-FLAGS", "(\\Seen)"), ("store", "2", "+FLAGS", "(\\Flagged)")), lambda: s.world.settle(ingest=False))
    s.rest()
    for site in (s.here, s.there):
        assert flags_in_h(site) == {"ha": set(), "hb": {"\\Seen", "\\Flagged"}, "hc": {"\\Seen"}, "ta": {"\\Seen"}, "tb": {"\\Seen"}, "tc": {"\\Seen"}}


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch", "adopt"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_folder_is_deleted_while_it_is_united(scene, formats, step, how):
    """What the deleting site had in it goes; what it had not seen stays, and the folder with it."""
    s = scene(formats, step, how)
    two_of_one_name(s)
    s.meanwhile(lambda: delete(s.here, "H"), lambda: s.world.settle(ingest=False))
    s.rest()
    assert in_h(s.there) == ["ta", "tb"]


def hear(site, sender, parcel):
    kind, _, body = parcel
    site.work(PARCEL, num(sender.number) + num(kind) + text(body))


def unite_there_alone(s):
    """What the second site has goes there, and nothing comes from there."""
    s.there.outbox[2].clear()
    for _ in range(30):
        while s.here.outbox[1]:
            hear(s.there, s.here, s.here.outbox[1].pop(0))
        for parcel in list(s.there.outbox[2]):
            s.there.outbox[2].remove(parcel)
            if parcel[0] == WANT:
                hear(s.here, s.there, parcel)
        if 0 < s.there.done.get("tick", 0) <= 1000:
            time.sleep(0.2)
            s.there.work(TICK)
        for to, state in list(s.here.done.get("sites", {}).items()):
            if state["more"]:
                s.here.ship(to, NEW)
        if in_h(s.there) == ["ha", "hb", "hc", "ta", "tb", "tc"] and not s.here.outbox[1]:
            break


@pytest.mark.long
@pytest.mark.parametrize("formats", ("sdbox,sdbox", "maildir,maildir"))
def test_what_the_other_site_did_in_one_parcel_with_the_union(scene, formats):
    """It has united the folders, and its clients went on; here all of that comes at once."""
    s = scene(formats, "none", "dies")
    two_of_one_name(s, ("a", "b", "c"))
    unite_there_alone(s)
    s.there.ingest()
    box = s.there.imap()
    box.select("H")
    for name, how, flag in (("ha", "+FLAGS", "\\Flagged"), ("hb", "+FLAGS", "\\Deleted"), ("hc", "-FLAGS", "\\Seen")):
        [uid] = box.uid("SEARCH", None, "SUBJECT", name)[1][0].split()
        assert box.uid("STORE", uid, how, f"({flag})")[0] == "OK"
    box.expunge()
    box.logout()
    s.there.ingest()
    s.there.outbox[2].clear()
    s.there.ship(2, 1)
    assert len(s.there.outbox[2]) == 1
    s.world.settle(ingest=False)
    s.rest()
    for site in (s.here, s.there):
        assert flags_in_h(site) == {"ha": {"\\Seen", "\\Flagged"}, "hc": set(), "ta": {"\\Seen"}, "tb": {"\\Seen"}, "tc": {"\\Seen"}}


@pytest.mark.long
def test_flags_set_while_their_folder_is_united_and_the_log_was_rotated(scene):
    """Who set them is not told by anything any more; that they are set is."""
    s = scene("sdbox,sdbox", "adopt", "dies")
    two_of_one_name(s, ("a", "b", "c"))

    def change():
        imap(s.here, "H", ("store", "2", "+FLAGS", "(\\Flagged)"), ("store", "3", "+FLAGS", "(mykw)"))
        rotate_log(s.here, "H")
    s.meanwhile(change, lambda: s.world.settle(ingest=False))
    s.rest()
    for site in (s.here, s.there):
        found = flags_in_h(site)
        assert "\\Flagged" in found["hb"] and "mykw" in found["hc"], found


DELETED = ("+FLAGS", "(\\Deleted)")
RESCUED = ("-FLAGS", "(\\Deleted)")


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", ("unite", "batch", "adopt"))
@pytest.mark.parametrize("formats", PAIRS)
def test_a_mail_is_marked_while_its_folder_is_united(scene, formats, step, how):
    """\\Deleted is a client's word like any other flag, where nobody rescued the mail."""
    s = scene(formats, step, how)
    two_of_one_name(s, ("a", "b", "c"))
    imap(s.here, "H", ("store", "3", *DELETED))
    s.here.ingest()

    def mark():
        imap(s.here, "H", ("store", "1", *DELETED), ("store", "2", *DELETED), ("store", "2", *RESCUED), ("store", "3", *RESCUED))
    s.meanwhile(mark, lambda: s.world.settle(ingest=False))
    s.rest()
    for site in (s.here, s.there):
        assert flags_in_h(site) == {"ha": {"\\Seen", "\\Deleted"}, **{name: {"\\Seen"} for name in ("hb", "hc", "ta", "tb", "tc")}}


@pytest.mark.long
@pytest.mark.parametrize("step", ("unite", "batch", "adopt"))
@pytest.mark.parametrize("formats", ("sdbox,sdbox", "maildir,maildir"))
def test_a_mail_is_marked_that_was_rescued_in_the_other_folder(scene, formats, step):
    """Who marked it here had not seen that."""
    s = scene(formats, step, "stands")
    two_of_one_name(s, ("a", "b", "c"))
    unite_there_alone(s)
    s.there.ingest()
    box = s.there.imap()
    box.select("H")
    [uid] = box.uid("SEARCH", None, "SUBJECT", "ha")[1][0].split()
    for change in (DELETED, RESCUED):
        assert box.uid("STORE", uid, *change)[0] == "OK"
        s.there.ingest()
    box.logout()
    s.there.outbox[2].clear()
    s.there.ship(2, 1)
    s.meanwhile(lambda: imap(s.here, "H", ("store", "1", *DELETED)), lambda: s.world.settle(ingest=False))
    s.rest()
    for site in (s.here, s.there):
        assert flags_in_h(site)["ha"] == {"\\Seen"}
