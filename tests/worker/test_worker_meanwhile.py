"""A client copies or moves a mail to where another site's copy of it is about to be placed: his
is a copy of his own, which no removal takes away that had not seen it."""
import os
import re

import pytest
from support.frames import PARCEL, num, text
from worker_sites import append, crash_world, equal, imap, look_meanwhile, make_world, needs_dovecot, subjects

pytestmark = [needs_dovecot, pytest.mark.long]

MIXES = ["sdbox,sdbox", "mdbox,sdbox", "sdbox,mdbox", "maildir,mdbox", "mdbox,maildir"]


def told(a, b):
    """b's worker takes what a's has said so far; what it says itself waits."""
    while a.outbox[b.number]:
        kind, _, body = a.outbox[b.number].pop(0)
        b.work(PARCEL, num(a.number) + num(kind) + text(body))


@pytest.mark.parametrize("how", ["COPY", "MOVE"])
@pytest.mark.parametrize("formats", MIXES)
def test_what_was_moved_by_two_is_taken_back_by_one(tmp_path_factory, formats, how):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "F", "f")
        append(a, "INBOX", "m")
        world.settle()
        equal(world)
        imap(a, "INBOX", ("uid", "MOVE", "1", "F"))
        a.ingest()
        imap(b, "INBOX", ("uid", how, "1", "F"))    # before b hears of a's
        told(a, b)
        imap(a, "F", ("uid", "MOVE", "2", "INBOX"))  # before a hears of b's
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (1, 2)
    finally:
        world.stop()


@pytest.mark.parametrize("formats", MIXES)
def test_what_was_copied_by_two_is_expunged_by_one(tmp_path_factory, formats):
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "m")
        world.settle()
        imap(a, "INBOX", ("uid", "COPY", "1", "F"))
        a.ingest()
        imap(b, "INBOX", ("uid", "MOVE", "1", "F"))
        told(a, b)
        imap(a, "F", ("uid", "STORE", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
        world.settle()
        shown = equal(world)
        assert (subjects(shown, "INBOX"), subjects(shown, "F")) == (0, 1)
    finally:
        world.stop()


def ops(site):
    """Those that a peer has not confirmed."""
    state, = (line for line in site.admin("status") if line.startswith("state"))
    return int(re.search(r"\twaiting=(\d+)", state)[1])


def flags(site):
    """Of the one mail in INBOX."""
    (_, shown, *_), = site.contents()["INBOX"][1]
    return shown


# What a client of site 2 does that no look has seen, while site 1 sets \\Answered; what both have then.
UNSEEN = [(("+FLAGS", "(\\Flagged)"), {"\\Seen", "Old", "\\Flagged", "\\Answered"}),
          (("+FLAGS", "(\\Deleted)"), {"\\Seen", "Old", "\\Deleted", "\\Answered"}),
          (("+FLAGS", "(New)"), {"\\Seen", "Old", "New", "\\Answered"}),
          (("-FLAGS", "(\\Seen)"), {"Old", "\\Answered"}),
          (("-FLAGS", "(Old)"), {"\\Seen", "\\Answered"}),
          (("FLAGS", "(\\Draft)"), {"\\Draft", "\\Answered"})]


@pytest.mark.test
@pytest.mark.parametrize("formats", ["maildir,sdbox", "sdbox,maildir", "sdbox,mdbox"])
def test_a_store_that_no_look_has_seen_is_not_written_over(tmp_path_factory, formats):
    """The peer's flags come to the mailbox before its next look: what differs there is a client's."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        a, b = world[1], world[2]
        for number, (change, wanted) in enumerate(UNSEEN):
            append(a, "INBOX", f"m{number}", "(\\Seen Old)")
            world.settle()
            imap(a, "INBOX", ("store", "1", "+FLAGS", "(\\Answered)"))
            a.ingest()
            imap(b, "INBOX", ("store", "1", *change))
            world.carry()           # written there, and nobody looked before
            assert flags(b) == wanted
            world.settle()
            equal(world)
            assert flags(a) == wanted
            imap(a, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
            world.settle()
    finally:
        world.stop()


# What a mail has; what a client of site 2 does that no look has seen; what clients of site 1 do at
# the same time, a look behind each; what all have then.
D, F, K = "\\Deleted", "\\Flagged", "Kw"
CROSSED = [((), [("+FLAGS", D), ("-FLAGS", D)], [("+FLAGS", D)], set()),
           ((), [("+FLAGS", D), ("FLAGS", "")], [("+FLAGS", D)], set()),
           ((), [("+FLAGS", D), ("FLAGS", F)], [("+FLAGS", D)], {F}),
           ((), [("+FLAGS", D), ("-FLAGS", D), ("+FLAGS", D)], [("+FLAGS", D)], {D}),
           ((), [("+FLAGS", D)], [("+FLAGS", D), ("-FLAGS", D)], set()),
           ((D,), [("-FLAGS", D)], [("+FLAGS", D)], set()),
           ((D,), [("+FLAGS", D)], [("-FLAGS", D)], set()),
           ((D,), [("-FLAGS", D), ("+FLAGS", D)], [("-FLAGS", D)], set()),
           ((), [("+FLAGS", F), ("-FLAGS", F)], [("+FLAGS", F)], {F}),
           ((), [("+FLAGS", F), ("-FLAGS", F)], [("+FLAGS", F), ("-FLAGS", F)], set()),
           ((F,), [("-FLAGS", F)], [("-FLAGS", F), ("+FLAGS", F)], {F}),
           ((F,), [("-FLAGS", F), ("+FLAGS", F)], [("-FLAGS", F)], {F}),
           ((), [("+FLAGS", K), ("-FLAGS", K)], [("+FLAGS", K)], {K}),
           ((), [("+FLAGS", K), ("-FLAGS", K)], [("+FLAGS", K), ("-FLAGS", K)], set()),
           ((K,), [("-FLAGS", K)], [("-FLAGS", K), ("+FLAGS", K)], {K})]


def stores(changes):
    return [("store", "1", how, f"({flag})") for how, flag in changes]


@pytest.mark.parametrize("change,wanted", UNSEEN)
@pytest.mark.parametrize("formats", ["sdbox,maildir", "sdbox,mdbox"])
def test_a_store_between_a_batch_and_its_flags_is_not_written_over(tmp_path_factory, formats, change, wanted):
    """No look comes before these flags any more: what differs in the mailbox is a client's."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), "batch")
    try:
        a, b = world[1], world[2]
        append(a, "INBOX", "m", "(\\Seen Old)")
        world.settle()
        imap(a, "INBOX", ("store", "1", "+FLAGS", "(\\Answered)"))
        a.ingest()
        look_meanwhile(b, flag, lambda: imap(b, "INBOX", ("store", "1", *change)), world.carry)
        world.settle()
        equal(world)
        assert flags(a) == wanted
    finally:
        world.stop()


@pytest.mark.long
@pytest.mark.parametrize("formats", ["sdbox,sdbox", "sdbox,maildir", "mdbox,sdbox"])
def test_flags_at_once_that_no_look_has_seen_end_by_the_rule(tmp_path_factory, formats):
    """The peer's flags come before its next look, of clients that had not seen what its own did."""
    world = make_world(tmp_path_factory, formats.split(","))
    wrong = []
    try:
        for case in CROSSED:
            had, unseen, there, wanted = case
            append(world[1], "INBOX", "m", f"({' '.join(had)})")
            world.settle()
            imap(world[2], "INBOX", *stores(unseen))
            for one in stores(there):
                imap(world[1], "INBOX", one)
                world[1].ingest()
                told(world[1], world[2])
            world.settle()
            equal(world)
            if flags(world[2]) != wanted:
                wrong.append((case, flags(world[2])))
            imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
            world.settle()
    finally:
        world.stop()
    assert not wrong


@pytest.mark.test
@pytest.mark.parametrize("formats", ["maildir,sdbox", "sdbox,maildir", "mdbox,sdbox"])
def test_a_new_mail_is_told_with_its_flags(tmp_path_factory, formats):
    """In its own op: told by a second one, a batch may end between the two, and each mail costs one
    more."""
    world = make_world(tmp_path_factory, formats.split(","))
    try:
        append(world[1], "INBOX", "m", "(\\Seen \\Flagged \\Deleted \\Draft Kw)")
        world[1].ingest()
        world.settle(ingest=False)
        assert flags(world[2]) == {"\\Seen", "\\Flagged", "\\Deleted", "\\Draft", "Kw"}
        assert flags(world[1]) == flags(world[2])
        told = []
        for given in (None, "(\\Seen)", "(\\Seen \\Flagged \\Deleted Kw)"):
            before = ops(world[1])
            append(world[1], "INBOX", f"with {given}", given)
            world[1].ingest()
            told.append(ops(world[1]) - before)
        assert told == [1, 1, 1]
    finally:
        world.stop()


# What a client does to a mail before a look, between its reading of the log and of the mails, and
# what all have then.
LOOKED_AT = [([("+FLAGS", F)], [("-FLAGS", F)], set()),
             ([("+FLAGS", F)], [("-FLAGS", F), ("+FLAGS", F)], {F}),
             ([("+FLAGS", F)], [("FLAGS", "\\Seen")], {"\\Seen"}),
             ([("+FLAGS", D), ("-FLAGS", D)], [("+FLAGS", D)], {D}),
             ([("+FLAGS", D)], [("-FLAGS", D)], set()),
             ([("+FLAGS", K)], [("-FLAGS", K)], set())]


@pytest.mark.test
@pytest.mark.parametrize("formats", ["maildir,sdbox", "sdbox,maildir", "mdbox,sdbox"])
def test_flags_that_change_during_a_look_end_as_clients_said_last(tmp_path_factory, formats):
    """Of a Maildir the look may find a mail's file under another name. Then it reads the index anew,
    so the mails behind have flags of which it has not read who set or cleared them."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), "scan")
    wrong = []
    try:
        append(world[1], "INBOX", "before")
        world.settle()
        for before, meanwhile, wanted in LOOKED_AT:
            append(world[1], "INBOX", "new")
            append(world[1], "INBOX", "m")
            imap(world[1], "INBOX", *[("store", "3", *change) for change in before])
            look_meanwhile(world[1], flag, lambda: imap(
                world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Seen)"),
                *[("store", "3", how, f"({flags})") for how, flags in meanwhile]))
            world.settle()
            equal(world)
            shown = [set(mail[1]) for mail in world[1].contents()["INBOX"][1]]
            if shown[1:] != [{"\\Seen"}, wanted]:
                wrong.append((before, meanwhile, wanted, shown))
            imap(world[1], "INBOX", ("store", "2:3", "+FLAGS", "(\\Deleted)"), ("expunge",))
            world.settle()
    finally:
        world.stop()
    assert not wrong


# What a client does to a mail, the letters that another program gives its file then, what all have.
BESIDE = [([("+FLAGS", F)], "", set()),
          ([("+FLAGS", F)], "S", {"\\Seen"}),
          ([("+FLAGS", D)], "", set()),
          ([("+FLAGS", D), ("-FLAGS", D)], "T", {D}),
          ([("+FLAGS", "\\Seen"), ("-FLAGS", "\\Seen")], "S", {"\\Seen"})]


@pytest.mark.test
def test_another_programs_word_on_a_maildirs_file_is_the_last_one(tmp_path_factory):
    """Before the next look. Its sync finds the file under another name."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    wrong = []
    try:
        for before, letters, wanted in BESIDE:
            append(world[1], "INBOX", "m")
            world.settle()
            imap(world[1], "INBOX", *stores(before))
            (path,) = (world[1].root() / "cur").iterdir()
            path.rename(path.with_name(f"{path.name.partition(':2,')[0]}:2,{letters}"))
            # a change within a second of the last one is found when cur/ has another time
            at = path.parent.stat().st_mtime + 2
            os.utime(path.parent, (at, at))
            world.settle()
            equal(world)
            if flags(world[1]) != wanted:
                wrong.append((before, letters, wanted, flags(world[1])))
            imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
            world.settle()
    finally:
        world.stop()
    assert not wrong


@pytest.mark.test
@pytest.mark.parametrize("formats", ["maildir,sdbox", "sdbox,maildir", "mdbox,sdbox"])
def test_what_is_expunged_during_a_look_is_gone(tmp_path_factory, formats):
    """A known mail, and a new one; between them one whose file has another name by then."""
    world, flag = crash_world(tmp_path_factory, formats.split(","), "scan")
    try:
        append(world[1], "INBOX", "stays")
        append(world[1], "INBOX", "known")
        world.settle()
        append(world[1], "INBOX", "new")
        append(world[1], "INBOX", "goes")
        imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
        look_meanwhile(world[1], flag, lambda: imap(
            world[1], "INBOX", ("store", "3", "+FLAGS", "(\\Seen)"),
            ("store", "2,4", "+FLAGS", "(\\Deleted)"), ("expunge",)))
        world.settle()
        assert [mail[0] for mail in equal(world)["INBOX"][1]] == [1, 3]
    finally:
        world.stop()
