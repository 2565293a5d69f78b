"""What one site does, the others show; and what several do at once ends in one."""
import ctypes
import os
import shutil
import struct
import time

import pytest
from worker_sites import append, delete, equal, guid_of, imap, mail, make_world, needs_dovecot, subjects, subscribe
from support.frames import CLOSE, TICK
from support.worker_world import USER

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@pytest.mark.test
def test_changes_of_one_site_reach_the_other(world):
    a = world[1]
    append(a, "INBOX", "one", "(\\Seen)")
    append(a, "INBOX", "two")
    imap(a, None, ("create", '"Work/Sub"'), ("subscribe", '"Work/Sub"'))
    append(a, "Work/Sub", "three", "(\\Flagged $Foo)")
    world.settle()
    assert subjects(equal(world), "INBOX") == 2
    imap(a, "INBOX", ("store", "1", "+FLAGS", "(\\Answered Kw)"), ("copy", "2", '"Work/Sub"'),
         ("store", "2", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    now = equal(world)
    assert subjects(now, "INBOX") == 1 and subjects(now, "Work/Sub") == 2
    imap(a, None, ("rename", '"Work/Sub"', '"Other"'))
    world.settle()
    assert subjects(equal(world), "Other") == 2
    assert b"Work/Sub" in world[2].doveadm("mailbox", "list", "-s", "-u", USER)
    delete(a, "Other")
    subscribe(a, "Work/Sub", on=False)
    world.settle()
    assert "Other" not in equal(world)
    assert b"Work/Sub" not in world[2].doveadm("mailbox", "list", "-s", "-u", USER)


def test_a_second_ingest_makes_no_op(world):
    append(world[1], "INBOX", "one", "(\\Seen)")
    world.settle()
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    world[1].work(CLOSE)
    world[2].work(CLOSE)
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before


def test_moved_mail_is_not_shipped_again(world):
    append(world[1], "INBOX", "one", size=300000)
    imap(world[1], None, ("create", "Box"))
    world.settle()
    world.carried.clear()
    imap(world[1], "INBOX", ("copy", "1", "Box"), ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    assert subjects(equal(world), "Box") == 1


def both(world, first, second):
    """Both sites know the same, then change without hearing of each other."""
    world.settle()
    first(world[1])
    second(world[2])
    world.settle()
    return equal(world)


def test_appends_at_once_are_both_there_with_one_uid_each(world):
    now = both(world, lambda s: append(s, "INBOX", "a"), lambda s: append(s, "INBOX", "b"))
    assert subjects(now, "INBOX") == 2


def test_many_appends_at_once(world):
    def some(name):
        return lambda s: [append(s, "INBOX", f"{name}{i}") for i in range(12)]
    assert subjects(both(world, some("a"), some("b")), "INBOX") == 24


def test_flags_at_once_are_united(world):
    append(world[1], "INBOX", "one")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)")),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Answered)")))
    assert now["INBOX"][1][0][1] == {"\\Flagged", "\\Answered"}


def test_setting_again_wins_over_clearing(world):
    append(world[1], "INBOX", "one", "(\\Flagged)")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)")),
               lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)"), ("store", "1", "+FLAGS", "(\\Flagged)")))
    assert now["INBOX"][1][0][1] == {"\\Flagged"}


def test_setting_many_again_and_again_wins_for_those_alone(world):
    """Clearing here and there, and then setting in ranges that overlap: what is kept of it are ranges, for each flag its own."""
    for i in range(6):
        append(world[1], "INBOX", f"m{i}", "(\\Flagged \\Answered)")
    cleared = ("store", "1:6", "-FLAGS", "(\\Flagged \\Answered)")
    now = both(world, lambda s: imap(s, "INBOX", cleared),
               lambda s: imap(s, "INBOX", cleared, *[("store", which, "+FLAGS", flag) for _ in range(3) for which, flag in
                                                     (("1:3", "(\\Flagged)"), ("2:4", "(\\Flagged)"), ("6", "(\\Answered)"))]))
    assert [flags for _, flags, *_ in now["INBOX"][1]] == [{"\\Flagged"}] * 4 + [set(), {"\\Answered"}]


def test_expunge_wins_over_a_flag(world):
    append(world[1], "INBOX", "one")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",)),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Seen)")))
    assert subjects(now, "INBOX") == 0


@pytest.mark.parametrize("formats", ["sdbox,maildir", "maildir,mdbox"])
def test_a_public_folder_that_is_deleted_is_deleted_everywhere(tmp_path_factory, formats):
    """The intent is in the public namespace's own control directory, as whoever deletes there writes it."""
    world = make_world(tmp_path_factory, formats.split(","), public=True)
    try:
        for folder in ("Public/Gone", "Public/Stays", "Mine"):
            imap(world[1], None, ("create", folder))
            append(world[1], folder, "in " + folder, "(\\Flagged)")
        world.settle()
        assert {"Public/Gone", "Public/Stays", "Mine"} <= set(equal(world, uids=False))
        delete(world[2], "Public/Gone", world[2].base / "public" / "dovelane")
        delete(world[2], "Mine")
        world.settle()
        now = equal(world, uids=False)
        assert "Public/Gone" not in now and "Mine" not in now and subjects(now, "Public/Stays") == 1
        world.settle()
        assert equal(world, uids=False) == now
        assert not list((world[2].base / "public" / "dovelane").iterdir())
    finally:
        world.stop()


def test_a_folder_deleted_here_and_filled_there_lives_with_that_mail(world):
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "old")
    now = both(world, lambda s: delete(s, "F"), lambda s: append(s, "F", "new"))
    assert subjects(now, "F") == 1


@pytest.mark.parametrize("later", [1, 2])
def test_a_folder_made_on_both_is_one(world, later):
    """Also when its UIDVALIDITY, a second or more apart, is higher where the id that stays was not made, and the reverse."""
    def make(name):
        def run(site):
            imap(site, None, ("create", "H"))
            if site.number == later:
                site.doveadm("mailbox", "update", "-u", USER, "--uid-validity", str(int(time.time()) + 100), "H")
            append(site, "H", name)
        return run
    assert subjects(both(world, make("a"), make("b")), "H") == 2


def test_one_mail_copied_on_both_is_one_copy(world):
    append(world[1], "INBOX", "one")
    imap(world[1], None, ("create", "H"))
    now = both(world, lambda s: imap(s, "INBOX", ("copy", "1", "H")), lambda s: imap(s, "INBOX", ("copy", "1", "H")))
    assert subjects(now, "H") == 1


def test_renames_at_once_end_in_one_name(world):
    imap(world[1], None, ("create", "G"))
    append(world[1], "G", "one")
    now = both(world, lambda s: imap(s, None, ("rename", "G", "G1")), lambda s: imap(s, None, ("rename", "G", "G2")))
    assert sorted(now) in (["G1", "INBOX"], ["G2", "INBOX"])
    assert sum(len(m) for _, m in now.values()) == 1


# What the journal's line calls it, and what the folder is called that lives on: nothing in a shared namespace, and no name that it cannot have had.
LAST_NAMES = [("G", "G"), ("", "F"), ("INBOX", "F"), ("Public/G", "F"), ("F", "F")]


@pytest.mark.long
@pytest.mark.parametrize("called, lives_as", LAST_NAMES, ids=[called or "nothing" for called, _ in LAST_NAMES])
@pytest.mark.parametrize("then", ["nothing more", "another F"])
def test_renamed_and_deleted_here_before_a_look_while_a_mail_came_there(tmp_path_factory, called, lives_as, then):
    """That mail lives, in the folder under its last name."""
    world = make_world(tmp_path_factory, ["sdbox", "maildir"], public=True)
    try:
        imap(world[1], None, ("create", "F"))
        append(world[1], "F", "seen")
        world.settle()
        append(world[2], "F", "unseen")
        world[2].ingest()
        imap(world[1], None, ("rename", "F", "G"))
        delete(world[1], "G", called=called)
        if then == "another F":
            imap(world[1], None, ("create", "F"))
            append(world[1], "F", "of the other F")
        world.settle()
        world.settle()
        now = equal(world)
        mails = sum(subjects(now, folder) for folder in now if folder != "INBOX")
        assert lives_as in now and mails == (1 if then == "nothing more" else 2), now
        if then == "nothing more" or lives_as == "G":
            assert subjects(now, lives_as) == 1 and sorted(now) == sorted({"INBOX", lives_as} | ({"F"} if then == "another F" else set())), now
    finally:
        world.stop()


@pytest.mark.parametrize("words", [("F x", "G"), ("F x", "G x", "G")], ids="-".join)
def test_the_last_deletion_that_began_says_the_name(tmp_path_factory, words):
    world = make_world(tmp_path_factory, ["sdbox", "mdbox"])
    try:
        imap(world[1], None, ("create", "F"))
        append(world[1], "F", "seen")
        world.settle()
        append(world[2], "F", "unseen")
        world[2].ingest()
        guid, journal = guid_of(world[1], "F"), world[1].state() / "intents"
        with open(journal, "a", encoding="ascii") as f:
            for word in words[:-1]:     # refused ones
                f.write(f"D\t{guid}\t{word.split()[0]}\nx\t{guid}\n")
        shutil.chown(journal, "nobody", "nogroup")
        imap(world[1], None, ("rename", "F", "G"))
        delete(world[1], words[-1])
        world.settle()
        assert sorted(equal(world)) == ["G", "INBOX"]
    finally:
        world.stop()


def test_renames_into_each_other_make_no_cycle(world):
    imap(world[1], None, ("create", "G"), ("create", "P"))
    append(world[1], "G", "g")
    append(world[1], "P", "p")
    now = both(world, lambda s: imap(s, None, ("rename", "G", "P/G")), lambda s: imap(s, None, ("rename", "P", "G/P")))
    assert sum(len(m) for _, m in now.values()) == 2


def test_swapped_names(world):
    imap(world[1], None, ("create", "X"), ("create", "Y"))
    append(world[1], "X", "x")
    append(world[1], "Y", "y")
    append(world[1], "Y", "y2")
    world.settle()
    imap(world[1], None, ("rename", "X", "T"), ("rename", "Y", "X"), ("rename", "T", "Y"))
    world.settle()
    now = equal(world)
    assert subjects(now, "X") == 2 and subjects(now, "Y") == 1


def test_a_renamed_parent_takes_its_children(world):
    imap(world[1], None, ("create", "P"), ("create", "P/C"))
    append(world[1], "P/C", "c")
    now = both(world, lambda s: imap(s, None, ("rename", "P", "Q")), lambda s: imap(s, None, ("create", "P/New")))
    assert subjects(now, "Q/C") == 1 and "P/New" in now


def test_renamed_inbox_moves_its_mail(world):
    if world[1].format == "maildir":
        pytest.skip("Dovecot does not rename a Maildir's INBOX")
    append(world[1], "INBOX", "old")
    now = both(world, lambda s: imap(s, None, ("rename", "INBOX", "Archive")), lambda s: append(s, "INBOX", "new"))
    assert subjects(now, "Archive") == 1 and subjects(now, "INBOX") == 1


def test_undeleting_wins(world):
    append(world[1], "INBOX", "one", "(\\Deleted)")
    now = both(world, lambda s: imap(s, "INBOX", ("store", "1", "-FLAGS", "(\\Deleted)")),
               lambda s: imap(s, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)")))
    assert now["INBOX"][1][0][1] == set()


@pytest.mark.long
@pytest.mark.parametrize("how", [("-FLAGS", "(\\Deleted)"), ("FLAGS", "()")])
def test_undeleting_what_was_deleted_in_the_same_breath_wins(world, how):
    """The mailbox looks as if nothing had been done to it since the last look."""
    append(world[1], "INBOX", "one")
    append(world[1], "INBOX", "two")
    both(world, lambda s: None, lambda s: None)
    set_it = ("store", "1:2", "+FLAGS", "(\\Deleted)")
    now = both(world, lambda s: imap(s, "INBOX", set_it, ("store", "1", *how)), lambda s: imap(s, "INBOX", set_it))
    assert [flags for _, flags, *_ in now["INBOX"][1]] == [set(), {"\\Deleted"}]


@pytest.mark.long
@pytest.mark.parametrize("flag", ["\\Deleted", "\\Flagged"])
def test_what_a_client_did_unseen_is_no_answer_to_a_peers_change(world, flag):
    """No look came between the client's change and the peer's op: neither knew of the other. Clearing \\Deleted wins, setting \\Flagged."""
    append(world[1], "INBOX", "one", "(\\Flagged)")
    world.settle()
    if flag == "\\Deleted":
        imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Flagged \\Deleted)"), ("store", "1", "FLAGS", "(\\Flagged)"))
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"))
    else:
        imap(world[1], "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)"), ("store", "1", "+FLAGS", "(\\Flagged)"))
        imap(world[2], "INBOX", ("store", "1", "-FLAGS", "(\\Flagged)"))
    world[1].ingest()
    world.carry()
    world.settle()
    ((_, flags, *_),) = equal(world)["INBOX"][1]
    assert flags == {"\\Flagged"}


def test_three_sites(three):
    three.settle()
    for n, site in three.sites.items():
        for i in range(5):
            append(site, "INBOX", f"{n}-{i}")
        imap(site, None, ("create", "Same"))
        append(site, "Same", f"s{n}")
    three.settle()
    now = equal(three)
    assert subjects(now, "INBOX") == 15 and subjects(now, "Same") == 3


def test_two_stores_that_were_filled_apart_become_one(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(10):
            append(world[1], "INBOX", f"only1-{i}")
            append(world[2], "INBOX", f"only2-{i}")
        imap(world[1], None, ("create", "Sent"))
        imap(world[2], None, ("create", "Sent"))
        append(world[1], "Sent", "s1")
        append(world[2], "Sent", "s2")
        world.settle()
        now = equal(world)
        assert subjects(now, "INBOX") == 20 and subjects(now, "Sent") == 2
    finally:
        world.stop()


def test_mails_that_were_copied_by_hand_are_those_that_were_waited_for(world):
    """join: the site has heard of the mails and has none of their bodies; then a copy of them comes, with other GUIDs."""
    site = world[2]
    world.settle()
    for n in range(3):
        append(world[1], "INBOX", f"large{n}", "(\\Seen)", size=1_100_000)
    world[1].ingest()
    while world.carry(lambda a, b, kind: a == 2):   # it cannot ask for bodies
        pass
    assert site.contents()["INBOX"][1] == [] and "unplaced=3" in site.admin("status")[0]
    for n in (2, 0, 1):
        append(site, "INBOX", f"large{n}", size=1_100_000)
    assert site.admin("join") == []
    world.settle()
    shown = [sorted((digest, flags) for _, flags, _, digest in each.contents()["INBOX"][1]) for each in world.sites.values()]
    assert len(shown[0]) == 3 and shown[0] == shown[1] and all(flags == {"\\Seen"} for _, flags in shown[0]), shown


def names_moved_in(queue):
    """What inotify saw moved into its directories, in order."""
    data, at, names = os.read(queue, 1 << 16), 0, []
    while at < len(data):
        _, _, _, size = struct.unpack_from("iIII", data, at)
        names.append(data[at + 16:at + 16 + size].rstrip(b"\0").decode())
        at += 16 + size
    return names


@pytest.mark.parametrize("how", ["store", "append"])
def test_what_a_letter_means_is_written_before_a_file_has_it(tmp_path_factory, how):
    """A worker killed between the two would have left a letter that the next new keyword gets, at all sites."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        append(world[2], "INBOX", "one")
        world.settle()
        libc, moved_to, nonblock = ctypes.CDLL(None, use_errno=True), 0x80, os.O_NONBLOCK
        queue = libc.inotify_init1(nonblock)
        root = world[1].root()
        for path in (root, root / "cur"):
            assert libc.inotify_add_watch(queue, os.fsencode(path), moved_to) >= 0
        if how == "store":
            imap(world[2], "INBOX", ("store", "1", "+FLAGS", "(later)"))
        else:
            append(world[2], "INBOX", "two", "(later)")
        world.settle()
        seen = [name for name in names_moved_in(queue) if name == "dovecot-keywords" or name.endswith("a")]
        os.close(queue)
        assert seen[0] == "dovecot-keywords" and len(seen) > 1, seen
        assert (root / "dovecot-keywords").read_text() == "0 later\n"
        imap(world[1], None, ("append", "INBOX", "(work)", None, mail("three")))
        world.settle()
        shown = [set(flags) for _, flags, *_ in equal(world)["INBOX"][1]]
        assert shown == [*([set()] if how == "append" else []), {"later"}, {"work"}]
    finally:
        world.stop()


@pytest.mark.test
def test_the_question_after_a_refused_commit_uses_no_mailbox_of_before(tmp_path_factory):
    """What is known of the mailboxes is read again after a rollback. A worker that carried out what was owed had those of
    before in hand by then: freed ones, which the allocator overwrites here."""
    overwrites = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.perturb=90"}
    world = make_world(tmp_path_factory, ["sdbox", "maildir"], env=overwrites)
    try:
        imap(world[1], None, ("create", "F"))
        for folder in ("INBOX", "F"):
            append(world[1], folder, "one")
        world.settle()
        for site, flag in ((2, "(\\Flagged)"), (1, "(\\Seen)")):    # that of site 1 is found when the other one is written
            for folder in ("INBOX", "F"):
                imap(world[site], folder, ("store", "1", "+FLAGS", flag))
        world[2].ingest()
        world[1].refuses = True     # so the flags of the first mailbox are not said, and those of the other one not tried
        while world[2].outbox[1]:
            with pytest.raises(AssertionError, match="temporary failure: the reserve file cannot be written"):
                world.carry()
        world[1].refuses = False
        world[1].work(TICK)
        world.settle()
        now = equal(world)
        assert [now[folder][1][0][1] for folder in ("INBOX", "F")] == [{"\\Seen", "\\Flagged"}] * 2
    finally:
        world.stop()


@pytest.mark.long
def test_status_counts_all_mails_of_a_mailbox_that_two_sites_made():
    """Two folders of one name are one mailbox: what it has is told, as verify tells it."""
    world = make_world(None, ["sdbox", "maildir"])
    try:
        for site, names in ((world[1], "xy"), (world[2], "z")):
            imap(site, None, ("create", "Apart"))
            for name in names:
                append(site, "Apart", name)
        world.settle()
        world.settle()
        for site in world.sites.values():
            told = [line for line in site.admin("status") if line.startswith("folder\tApart\t")]
            assert len(told) == 1 and "\tmessages=3\t" in told[0], told
    finally:
        world.stop()
