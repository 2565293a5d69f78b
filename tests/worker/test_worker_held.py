"""Files that go behind Dovecot's back: what is held until an admin says so, and what is not."""
import re
import time

import pytest
from worker_sites import append, equal, imap, indexes, mail, make_world, needs_dovecot, rotate_log, subjects
from support.frames import CLOSE

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def fill(world, number, count):
    """Mails at that site, which are everywhere. What all sites have then. A Maildir has those with flags in cur/, where a sync notices what went."""
    box = world[number].imap()
    for i in range(count):
        assert box.append("INBOX", "(\\Seen)" if i % 2 else "(\\Flagged)", None, mail(f"m{i}"))[0] == "OK"
    box.logout()
    world.settle()
    world.settle()
    return equal(world, uids=False)


def files(site):
    return sorted((site.root() / "cur").iterdir())


def held(site):
    """What an admin is told: of the user, of INBOX, and in the last line of the log."""
    said = [int(m[1]) for _, note in site.notes if (m := re.search(r"INBOX: \d+ mails are gone .*: (\d+) are held", note))]
    state, *_, folder = (line for line in site.admin("status") if line.startswith(("state", "folder\tINBOX")))
    return (int(re.search(r"\theld=(\d+)", state)[1]), int((re.search(r"\theld=(\d+)", folder) or [0, 0])[1]), said[-1] if said else 0)


def settle_held(world, mails):
    """Until so many are held at site 1, and the log's last line says the same: two changes of a directory in one second are one to Dovecot."""
    for _ in range(5):
        world.settle()
        if held(world[1]) == (mails, mails, mails):
            return
        time.sleep(1)
    assert held(world[1]) == (mails, mails, mails), world[1].notes


@pytest.fixture
def pair(tmp_path_factory):
    made = make_world(tmp_path_factory, ["maildir", "sdbox"])
    yield made
    made.stop()


@pytest.mark.parametrize("accept", [True, False])
def test_files_removed_behind_dovecots_back_wait_for_a_word(pair, accept):
    before = fill(pair, 1, 30)
    for path in files(pair[1])[:25]:
        path.unlink()
    settle_held(pair, 25)
    assert pair[2].contents(uids=False) == before
    pair[1].work(CLOSE)
    assert pair[1].admin("accept" if accept else "restore") == ["INBOX\taccepted=25" if accept else "INBOX\trestored=25"]
    pair.settle()
    assert subjects(equal(pair, uids=False), "INBOX") == (5 if accept else 30)
    assert held(pair[1])[:2] == (0, 0)


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_word_is_on_what_the_admin_was_told_of(pair, accept, closed):
    """What goes while mails are held waits, too, and is told of; what nobody has noticed yet is not decided on."""
    site, peer = pair[1], pair[2]
    before = fill(pair, 1, 100)
    gone = files(site)
    for path in gone[:30]:
        path.unlink()
    settle_held(pair, 30)
    for path in gone[30:50]:
        path.unlink()
    if closed:
        site.work(CLOSE)
    settle_held(pair, 50)
    assert peer.contents(uids=False) == before
    if closed:
        site.work(CLOSE)
    for path in gone[50:90]:
        path.unlink()
    assert site.admin("accept" if accept else "restore") == ["INBOX\taccepted=50" if accept else "INBOX\trestored=50"]
    settle_held(pair, 40)
    assert subjects(peer.contents(), "INBOX") == (50 if accept else 100)
    site.admin("restore")
    pair.settle()
    pair.settle()
    assert subjects(equal(pair, uids=False), "INBOX") == (50 if accept else 100)


@pytest.mark.parametrize("number", [1, 2], ids=["saved-here", "placed-here"])
def test_files_that_come_back_are_held_no_more(pair, number):
    """Dovecot gives them other UIDs. They are the same mails, and no second ones."""
    site = pair[1]
    before = fill(pair, number, 40)
    away = site.base / "away"
    away.mkdir()
    gone = files(site)[:30]
    for path in gone:
        path.rename(away / path.name)
    settle_held(pair, 30)
    for path in gone[:10]:
        (away / path.name).rename(path)
    pair.settle()
    assert held(site)[:2] == (20, 20)
    assert pair[2].contents(uids=False) == before
    assert site.admin("restore") == ["INBOX\trestored=20"]
    pair.settle()
    assert equal(pair, uids=False) == before and equal(pair)


def test_what_another_site_removes_is_held_no_more(pair):
    site, peer = pair[1], pair[2]
    fill(pair, 1, 40)
    gone = files(site)
    for path in gone[:30]:
        path.unlink()
    settle_held(pair, 30)
    there = {m[0] for m in site.contents()["INBOX"][1]}
    lost = [m[0] for m in peer.contents()["INBOX"][1] if m[0] not in there]
    imap(peer, "INBOX", ("uid", "store", ",".join(map(str, lost[:12])), "+FLAGS", "(\\Deleted)"), ("expunge",))
    pair.settle()
    assert held(site)[:2] == (18, 18)
    assert site.admin("accept") == ["INBOX\taccepted=18"]
    pair.settle()
    assert subjects(equal(pair), "INBOX") == 10


@pytest.mark.long
def test_a_lost_index_ends_the_holding(pair):
    """What is missing then is damage, and is placed again."""
    site = pair[1]
    before = fill(pair, 1, 40)
    for path in files(site)[:30]:
        path.unlink()
    settle_held(pair, 30)
    site.work(CLOSE)
    for path in indexes(site):
        if path.is_file() and path.name.startswith("dovecot.index"):
            path.unlink()
    pair.settle()
    pair.settle()
    assert held(site)[:2] == (0, 0)
    assert equal(pair, uids=False) == before


def test_what_is_held_of_an_inbox_outlasts_its_renaming(tmp_path_factory):
    """RENAME INBOX moves what the user sees there. What nobody has decided on is not removed by that, and is placed again."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        site = world[1]
        fill(world, 1, 30)
        site.work(CLOSE)
        imap(site, "INBOX", ("store", "2:26", "+FLAGS", "(\\Deleted)"), ("expunge",))
        rotate_log(site, "INBOX")
        settle_held(world, 25)
        rotate_log(site, "INBOX")
        settle_held(world, 25)
        imap(site, None, ("rename", "INBOX", "Archive"))
        world.settle()
        world.settle()
        now = equal(world)
        assert subjects(now, "Archive") == 5 and subjects(now, "INBOX") == 25
        assert held(site)[:2] == (0, 0)
    finally:
        world.stop()


def test_a_few_files_removed_behind_dovecots_back_are_removed_everywhere(tmp_path_factory):
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(5):
            append(world[1], "INBOX", f"m{i}", "(\\Seen)")
        world.settle()
        next(iter((world[1].root() / "cur").iterdir())).unlink()
        world.settle()
        assert subjects(equal(world), "INBOX") == 4
    finally:
        world.stop()
