"""Bodies: large ones, lost ones, other ones under the same GUID or hash."""
import hashlib
import os
import re
import shutil
import time

import pytest
from worker_sites import MIXES, append, drop_file, equal, imap, mail, make_world, needs_dovecot, subjects
from support.worker_world import BODIES, BODY, CLOSE, TICK, USER, WANT, text

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def test_a_large_mail_travels_in_parts(world):
    append(world[1], "INBOX", "large", size=3500000)
    world.settle()
    assert subjects(equal(world), "INBOX") == 1
    assert sum(kind == BODY for _, _, kind, _ in world.carried) == 4


def test_small_mails_that_are_asked_for_come_together(world):
    """Their ops came by an exchange, without bodies. Two have the same bytes; the first answer is lost."""
    imap(world[1], None, ("create", "Box"))
    world.settle()
    for i in range(8):
        append(world[1], "INBOX", f"m{i % 7}", "(\\Seen)" if i == 3 else None)
    for i in range(3):
        append(world[1], "Box", f"in{i}", size=300000)
    world[1].ingest()
    world[1].outbox[2].clear()
    lost = []

    def drop(_, to, kind):
        if kind == BODIES and not lost:
            lost.append(to)
            return True
        return False
    world[2].admin("resync")
    for _ in range(100):
        if not world.carry(drop):
            break
    assert lost == [2], world.carried
    world[2].admin("resync")
    world.settle()
    now = equal(world)
    assert (subjects(now, "INBOX"), subjects(now, "Box")) == (8, 3)
    kinds = [kind for _, to, kind, _ in world.carried if to == 2]
    assert kinds.count(BODIES) >= 2 and BODY not in kinds, kinds


def crossed(world, at):
    """Bytes carried since then."""
    return sum(size for *_, size in world.carried[at:])


def test_what_was_copied_or_moved_crosses_no_link_again(world):
    """Its bytes are there already, or come once with what it was copied from."""
    size = 300000
    imap(world[1], None, ("create", "Box"))
    for i in range(3):
        append(world[1], "INBOX", f"m{i}", size=size)
    world.settle()
    begin = len(world.carried)
    imap(world[1], "INBOX", ("uid", "MOVE", "1:2", "Box"))
    world.settle()
    assert (subjects(equal(world), "INBOX"), subjects(equal(world), "Box")) == (1, 2)
    assert crossed(world, begin) < size // 10
    begin = len(world.carried)
    imap(world[1], "INBOX", ("uid", "COPY", "3", "Box"), ("uid", "COPY", "3", "INBOX"))
    append(world[1], "Box", "new", size=size)
    imap(world[1], "Box", ("uid", "COPY", "*", "INBOX"))
    world.settle()
    assert (subjects(equal(world), "INBOX"), subjects(equal(world), "Box")) == (3, 4)
    assert size < crossed(world, begin) < 2 * size


def test_bodies_that_are_lost_are_asked_for_again(world):
    for i in range(3):
        append(world[1], "INBOX", f"m{i}", size=1200000)
    for site in world.sites.values():
        site.ingest()
    lost = []

    def drop(_, to, kind):
        if kind == BODY and len(lost) < 4:
            lost.append(to)
            return True
        return False
    for _ in range(100):
        if not world.carry(drop):
            break
    assert len(lost) == 3
    world[2].admin("resync")
    world.settle()
    assert subjects(equal(world), "INBOX") == 3


def test_a_part_of_a_mail_that_was_removed_meanwhile_does_not_stay(world):
    site, bodies = world[2], world[2].state() / "bodies"
    world.settle()
    append(world[1], "INBOX", "large", size=2_500_000)
    world[1].ingest()
    while not (bodies.exists() and list(bodies.iterdir())):
        assert world.carry()
    for each in world.sites.values():
        for lane in each.outbox.values():
            lane.clear()
    imap(world[1], "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
    world.settle()
    assert equal(world)["INBOX"][1] == [] and not list(bodies.iterdir())


def saved_apart(world, texts):
    """One GUID, saved at each site with its own bytes before they hear of each other."""
    append(world[1], "INBOX", "first")
    world.settle()
    for site, text in zip(world.sites.values(), texts):
        drop_file(site, "1700000000.M1P1.host", text)
    world.settle()
    return [digest for *_, digest in equal(world)["INBOX"][1]]


def short(text):
    return hashlib.sha256(text).hexdigest()[:12]


def test_one_guid_saved_with_other_trace_lines_is_one_mail(tmp_path_factory):
    """A gateway's second delivery."""
    world = make_world(tmp_path_factory, ["maildir", "maildir"])
    try:
        trace = "Return-Path: <s@x>\r\nDelivered-To: u\r\nReceived: from a\r\n\tby site {}; now\r\n"
        texts = [trace.format(n).encode() + mail("second") for n in (1, 2)]
        digests = saved_apart(world, texts)
        wins = min(texts, key=lambda text: hashlib.sha256(text).digest())
        assert sorted(digests) == sorted([short(mail("first")), short(wins)])
    finally:
        world.stop()


@pytest.mark.parametrize("forms", [["maildir", "maildir"], ["maildir", "maildir", "maildir"]])
@pytest.mark.parametrize("what", ["another mail", "cut short", "a header more"])
def test_one_guid_with_other_contents_is_two_mails(tmp_path_factory, forms, what):
    """A GUID is a claim: neither mail is removed for it, at no site, whichever hash is the smaller one."""
    world = make_world(tmp_path_factory, forms)
    try:
        texts = [mail(f"contents {n}", 5000) for n in range(len(forms))] if what == "another mail" else \
            [mail("contents", 5000)[:-100 * n or None] for n in range(len(forms))] if what == "cut short" else \
            [b"X-Seen: %d\r\n" % n + mail("contents", 5000) for n in range(len(forms))]
        digests = saved_apart(world, texts)
        assert sorted(digests) == sorted([short(mail("first"))] + [short(text) for text in texts]), digests
        imap(world[1], "INBOX", ("store", "1:*", "+FLAGS", "(\\Flagged)"))
        world.settle()
        assert all("\\Flagged" in str(flags) for _, *flags in equal(world)["INBOX"][1])
        for n, site in world.sites.items():
            imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Deleted)"), ("expunge",))
            world.settle()
            assert subjects(equal(world), "INBOX") == len(forms) + 1 - n
    finally:
        world.stop()


@pytest.mark.long
def test_a_copy_of_a_file_that_was_edited_in_place_is_made_of_those_bytes(tmp_path_factory):
    """Two mails with one GUID: the peer has the other bytes under it too."""
    world = make_world(tmp_path_factory, ["maildir", "maildir"])
    try:
        imap(world[1], None, ("create", "Box"), ("create", "Other"))
        append(world[1], "INBOX", "before", size=20000)
        imap(world[1], "INBOX", ("uid", "COPY", "1", "Other"))
        world.settle()
        path = next(p for part in ("new", "cur") for p in (world[1].root() / part).iterdir())
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data.replace(b"before", b"behind"))
        imap(world[1], "INBOX", ("uid", "COPY", "1", "Box"))
        world.settle()
        for site in world.sites.values():
            now = site.contents()
            shown = {box: [digest for *_, digest in now[box][1]] for box in ("Box", "Other")}
            assert shown == {box: [hashlib.sha256(mail(words, 20000)).hexdigest()[:12]] for box, words in (("Box", "behind"), ("Other", "before"))}, shown
    finally:
        world.stop()


def test_a_changed_uid_of_a_maildir_file_without_its_crlf_size_cuts_nothing(tmp_path_factory):
    """Other programs name the size of the LF form only; Dovecot would name the copy after it, and show that much."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        append(world[1], "INBOX", "first")
        world.settle()
        text = mail("lf" * 20).replace(b"\r\n", b"\n")
        drop_file(world[1], f"1700000000.M1P1.host,S={len(text)}", text)
        append(world[2], "INBOX", "clash")
        world.settle()
        now = equal(world)
        assert subjects(now, "INBOX") == 3 and {uid for uid, *_ in now["INBOX"][1]} != {1, 2, 3}, now
        assert hashlib.sha256(mail("lf" * 20)).hexdigest()[:12] in [digest for *_, digest in now["INBOX"][1]]
    finally:
        world.stop()


@pytest.mark.parametrize("second", ["even", "odd"])
def test_a_body_that_is_not_its_hash_is_asked_of_the_next_site(three, second):
    """First the file at the site that is asked has rotted, then the next one's answer was changed on its way. Which
    site would be asked first is told by the second in which the user was opened."""
    def wants():
        return sum(kind == WANT and a == 3 for a, _, kind, _ in three.carried)

    def next_try(after):
        time.sleep(after)
        three[3].work(TICK)

    def cut(a, to, _):
        return {a, to} == {1, 3}
    three.settle()
    append(three[2], "INBOX", "mail", size=20000)
    three[2].ingest()
    three[2].outbox[3].clear()
    while three.carry():
        pass
    path = next(p for part in ("new", "cur") for p in (three[2].root() / part).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    three[3].work(CLOSE)
    while int(time.time()) % 2 != (second == "odd"):
        time.sleep(0.01)
    three[3].admin("resync", "2")
    while three.carry(cut):
        pass
    assert wants() == 1 and any("not what they were" in note for _, note in three[2].notes), three[2].notes
    # Whom a session asks first is left to its time of day: perhaps the same site once more.
    for wait in 1.1, 2.1:
        next_try(wait)
        if three[3].outbox[1]:
            break
        while three.carry(cut):
            pass
    asked = wants()
    path.write_bytes(data)
    while not any(kind == BODIES for kind, _, _ in three[1].outbox[3]):
        assert three.carry()
    three[1].outbox[3][:] = [(kind, bulk, body[:-1] + bytes([body[-1] ^ 1])) for kind, bulk, body in three[1].outbox[3]]
    while three.carry():
        pass
    assert wants() == asked + 1, "asked for again at once"
    next_try(2.1 * asked)
    while three.carry():
        pass
    shown = [digest for *_, digest in three[3].contents()["INBOX"][1]]
    assert wants() == asked + 2 and shown == [hashlib.sha256(mail("mail", 20000)).hexdigest()[:12]], (wants(), shown)


def move_edited(world):
    """A mail's file at the first site, a Maildir, gets other bytes without Dovecot, and a client moves the mail."""
    imap(world[1], None, ("create", "Box"))
    append(world[1], "INBOX", "before", size=20000)
    world.settle()
    path = next(p for part in ("new", "cur") for p in (world[1].root() / part).iterdir())
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"before", b"behind"))
    imap(world[1], "INBOX", ("uid", "MOVE", "1", "Box"))
    world.settle()


@pytest.mark.long
@pytest.mark.parametrize("to", ["maildir", "sdbox", "mdbox"])
def test_a_move_of_a_file_that_was_edited_in_place(tmp_path_factory, to):
    world = make_world(tmp_path_factory, ["maildir", to])
    try:
        move_edited(world)
        for n, site in world.sites.items():
            now = site.contents()
            shown = [digest for *_, digest in now["Box"][1]]
            assert shown == [hashlib.sha256(mail("behind", 20000)).hexdigest()[:12]], (n, shown)
    finally:
        world.stop()


def test_such_a_mail_survives_the_loss_of_the_site_that_moved_it(tmp_path_factory):
    """Both sites show it; then the home of the one that moved it is lost."""
    world = make_world(tmp_path_factory, ["maildir", "maildir"])
    try:
        move_edited(world)
        world[1].disconnect()
        shutil.rmtree(world[1].root())
        world.settle()
        shown = {n: subjects(site.contents(), "Box") for n, site in world.sites.items()}
        assert shown == {1: 1, 2: 1}, shown
    finally:
        world.stop()


@pytest.mark.parametrize("verb", ["COPY", "MOVE"])
@pytest.mark.parametrize("to", ["maildir", "sdbox"])
def test_a_copy_whose_source_cannot_be_read_here_is_asked_for(tmp_path_factory, to, verb):
    """An admin put the file back as root, mode 0600. The peer has its bytes, and the place where they belong is another folder."""
    world = make_world(tmp_path_factory, ["maildir", to])
    try:
        imap(world[1], None, ("create", "Box"))
        append(world[1], "INBOX", "m", size=20000)
        world.settle()
        files = [p for p in world[2].root().rglob("*") if p.is_file() and p.stat().st_size > 19000 and "state.db" not in p.name]
        assert len(files) == 1, files
        os.chown(files[0], 0, 0)
        files[0].chmod(0o600)
        imap(world[1], "INBOX", ("uid", verb, "1", "Box"))
        for _ in range(8):
            world.settle()
            time.sleep(1)
        shown = {n: str(site.doveadm("mailbox", "status", "-u", USER, "messages", "Box")).strip() for n, site in world.sites.items()}
        assert shown[1] == shown[2], (shown, [said for _, said in world[2].notes][-5:])
    finally:
        world.stop()


def test_a_copy_of_one_guid_that_was_saved_with_other_bytes(tmp_path_factory):
    """A gateway's two deliveries, too large to go along with their ops; the site whose bytes win copies its mail at once."""
    world = make_world(tmp_path_factory, ["maildir", "maildir"])
    try:
        imap(world[1], None, ("create", "Box"))
        append(world[1], "INBOX", "first")
        world.settle()
        mails = {n: mail(f"via {n}", 1500000) for n in world.sites}
        winner = min(mails, key=lambda n: hashlib.sha256(mails[n]).digest())
        for n, site in world.sites.items():
            drop_file(site, "1700000000.M1P1.host", mails[n])
        for site in world.sites.values():
            site.ingest()
        imap(world[winner], "INBOX", ("uid", "COPY", "2", "Box"))
        world.settle()
        wanted = hashlib.sha256(mails[winner]).hexdigest()[:12]
        shown = {n: {box: [digest for *_, digest in site.contents()[box][1]] for box in ("Box", "INBOX")} for n, site in world.sites.items()}
        assert all(s["Box"] == [wanted] and wanted in s["INBOX"] for s in shown.values()), (winner, wanted, shown)
    finally:
        world.stop()


ODD = [b"Subject: odd0\r\n\r\na\r\r\nb\r\r\r\nc\r\n", b"Subject: odd1\r\n\r\nends in CR\r", b"Subject: odd2\r\n\r\nno end of line",
       b"Subject: odd3\r\n\r\nbare \r and \r\r stay\r\r\r\r\nthere\r\r", b"\r", b"Subject: odd5\r\r\n\r\r\n" + b"line\r\r\n" * 100000]


def plain(text):
    """What all saves of a mail have in common."""
    return re.sub(rb"\r*\n", b"\r\n", text).rstrip(b"\r")


def shown(site):
    box = site.imap()
    box.select("INBOX", readonly=True)
    mails = [part[1] for part in box.fetch("1:*", "(BODY.PEEK[])")[1] if isinstance(part, tuple)]
    box.logout()
    return sorted(plain(mail) for mail in mails)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("crlf", [(), (1,), (1, 2)], ids=["lf", "crlf-at-one", "crlf"])
@pytest.mark.parametrize("lost", [1, 2])
def test_bytes_that_a_save_does_not_keep(mix, lost, crlf):
    """CRs before CRLF, and at the end: it is one mail at both sites, and whoever loses his home gets all of it back."""
    world = make_world(None, mix.split(","), more=dict.fromkeys(crlf, "mail_save_crlf = yes\n"))
    try:
        world.settle()
        for n, text in enumerate(ODD):
            for site in world.sites.values():
                if site.format == "maildir":
                    drop_file(site, f"1700000000.M{n}P{site.number}.host", text)
                elif text != b"\r":  # of which IMAP makes nothing
                    assert site.imap().append("INBOX", None, None, text)[0] == "OK"
        world.settle()
        wanted = shown(world[1])
        assert wanted == shown(world[2]) and len(wanted) >= 10
        for site in world.sites.values():
            assert site.admin("verify", "bodies")[-1].endswith("same"), site.admin("verify", "bodies")
        world[lost].disconnect()
        shutil.rmtree(world[lost].root())
        world.settle()
        for site in world.sites.values():
            assert shown(site) == wanted, [note for note in site.notes if "not sent" in note[1]]
            assert site.admin("verify", "bodies")[-1].endswith("same"), site.admin("verify", "bodies")
    finally:
        world.stop()
