"""Bounds: what a client makes beyond one stays at its site, and is named; all else of its user goes on, at all sites."""
import pytest
from worker_sites import append, equal, imap, mail, make_world, needs_dovecot, subscribe
from support.worker_world import BODY, CLOSE, PARCEL, TICK, WANT, num, text

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@pytest.fixture
def pair(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox", "maildir"])
    append(world[1], "INBOX", "m")
    world.settle()
    yield world
    world.stop()


def copies(site, n, folder="INBOX"):
    """The folder gets copies of its mails until it has n."""
    box = site.imap()
    have = int(box.select(folder)[1][0])
    while have < n:
        more = min(have, n - have)
        assert box.copy(f"1:{more}", folder)[0] == "OK"
        have += more
    box.logout()


def mails(site, folder="INBOX"):
    box = site.imap()
    n = int(box.select(folder)[1][0])
    box.logout()
    return n


def notes(site, text):
    return [note for _, note in site.notes if text in note]


def test_600_copies_made_at_each_of_two_sites_at_once_are_all_at_both(pair):
    """Before, "commit: an earlier call of this transaction failed" at both, for ever."""
    for n in (1, 2):
        copies(pair[n], 600)
        pair[n].ingest()
    pair.settle()
    append(pair[1], "INBOX", "later")
    imap(pair[2], "INBOX", ("store", "1:300", "+FLAGS", "(\\Flagged)"))
    pair.settle()
    assert mails(pair[1]) == mails(pair[2]) == 601
    equal(pair, uids=False)


def test_more_copies_than_are_replicated_stay_where_they_are_and_are_named(pair):
    copies(pair[1], 1003)
    pair.settle()
    assert (mails(pair[1]), mails(pair[2])) == (1003, 1000)
    assert notes(pair[1], "is not replicated: there are 1000 copies of it in the mailbox")
    append(pair[1], "INBOX", "later")
    pair.settle()
    assert mails(pair[2]) == 1001


def test_a_mail_that_is_moved_to_its_1000_copies_stays_at_the_peers(pair):
    """Before, the second look took it for removed. What is expunged in that folder makes room for it."""
    imap(pair[1], None, ("create", "F"))
    imap(pair[1], "INBOX", ("copy", "1", "F"))
    copies(pair[1], 1000, "F")
    pair.settle()
    imap(pair[1], "INBOX", ("uid", "MOVE", "1", "F"))
    for _ in range(3):
        pair.settle()
        assert (mails(pair[1]), mails(pair[2])) == (0, 1)
        assert (mails(pair[1], "F"), mails(pair[2], "F")) == (1001, 1000)
        pair[1].work(CLOSE)
    box = pair[1].imap()
    box.select("F")
    box.store("1:600", "+FLAGS", "(\\Deleted)")
    box.expunge()
    box.logout()
    for _ in range(2):
        pair.settle()
    assert mails(pair[1]) == mails(pair[2]) == 0
    assert mails(pair[1], "F") == mails(pair[2], "F") == 401


def test_keywords_beyond_the_bound_are_left_out_and_the_mails_go(pair):
    """A client with a new keyword for each mail. Before: "its ops are not taken from here on"."""
    box = pair[1].imap()
    for n in range(26):
        assert box.append("INBOX", " ".join(f"k{n}x{i}" for i in range(99)), None, mail(f"m{n}"))[0] == "OK"
    box.logout()
    pair.settle()
    append(pair[1], "INBOX", "later")
    pair.settle()
    assert mails(pair[2]) == 28
    assert notes(pair[1], "is not replicated: this user has 2500 keywords")
    assert "\tkeywords=2500\t" in "\n".join(pair[1].admin("status")) and "\tfull" in "\n".join(pair[1].admin("status"))
    assert not notes(pair[2], "its ops are not taken")


def test_subscriptions_beyond_the_bound_are_named_and_the_rest_goes(pair):
    names = [f"s{n}" + "x" * 240 for n in range(2200)]
    for at in range(0, len(names), 100):
        subscribe(pair[1], *names[at:at + 100])
    append(pair[1], "INBOX", "later")
    pair.settle()
    assert mails(pair[2]) == 2
    assert notes(pair[1], "is not replicated: this user's subscriptions are 524288 bytes")


def test_a_want_that_names_a_large_mail_very_often_is_answered_in_turns(pair):
    """Each part costs a read of all of it: before, 1,000 of them were one question, in which nobody else was served."""
    append(pair[1], "INBOX", "large", size=10_000_000)
    pair[1].ingest()
    for kind, _, body in pair[1].outbox[2]:
        pair[2].work(PARCEL, num(1) + num(kind) + text(body))
    asked, = [body for kind, _, body in pair[2].outbox[1] if kind == WANT]
    assert asked[:1] == num(1)
    one = asked[1:-1] + num(0)  # the last is the offset
    pair[1].outbox[2].clear()
    body = num(20) + one * 20
    pair[1].work(PARCEL, num(2) + num(WANT) + text(body))

    def parts():
        return sum(kind == BODY for kind, _, _ in pair[1].outbox[2])
    assert parts() == 7 and pair[1].done["tick"] == 1
    pair[1].work(TICK)
    assert parts() == 14 and pair[1].done["tick"] == 1
    pair[1].work(TICK)
    assert parts() == 20
    # Whoever asks again and again is not given all of it.
    for _ in range(8):
        pair[1].work(PARCEL, num(2) + num(WANT) + text(body))
    pair[1].outbox[2].clear()
    while pair[1].done["tick"] == 1:
        pair[1].work(TICK)
    assert parts() == 4 * 13


def test_many_large_mails_come_over_in_turns(pair):
    for n in range(10):
        append(pair[1], "INBOX", f"large{n}", size=12_000_000)
    for _ in range(60):
        pair.settle()
        for site in (pair[1], pair[2]):
            if site.done["tick"] == 1:
                site.work(TICK)
    assert mails(pair[2]) == 11
    equal(pair, uids=False)
