"""What main asks and other sessions see: hints, sweeps, IDLE, CONDSTORE clients that change sites, spoilt parcels."""
import random

import pytest
from worker_sites import append, delete, equal, fetch_changed, guid_of, imap, mail, make_world, needs_dovecot, subjects
from support.worker_world import DONE, EXCHANGE, PARCEL, num, text

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def test_a_hint_about_one_mailbox_is_enough(world):
    append(world[1], "INBOX", "first")
    imap(world[1], None, ("create", "F"))
    world.settle()
    append(world[1], "F", "in F")
    append(world[1], "INBOX", "not hinted")
    world[1].ingest((guid_of(world[1], "F"), "F"))
    world.settle(ingest=False)
    now = world[2].contents()
    assert subjects(now, "F") == 1 and subjects(now, "INBOX") == 1
    guid = guid_of(world[1], "F")
    delete(world[1], "F")
    world[1].ingest((guid, "F"))
    world.settle(ingest=False)
    assert "F" not in world[2].contents()


def test_a_sweep_looks_only_into_what_differs(world):
    append(world[1], "INBOX", "first")
    world.settle()
    world[1].ingest(sweep=True)
    append(world[1], "INBOX", "second")
    world[1].ingest(sweep=True)
    world.settle(ingest=False)
    assert subjects(equal(world), "INBOX") == 2


def test_other_sessions_see_what_is_applied(world):
    append(world[1], "INBOX", "first")
    world.settle()
    box = world[2].imap()
    box.select("INBOX")
    append(world[1], "INBOX", "second")
    world.settle()
    box.noop()
    assert box.response("EXISTS")[1][-1] == b"2"
    box.logout()


def test_a_client_that_hops_misses_no_change(world):
    append(world[1], "INBOX", "one")
    append(world[1], "INBOX", "two")
    world.settle()
    for i in range(20):
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", f"(Kw{i})"))
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
    _, there = fetch_changed(world[2], 1)
    _, here = fetch_changed(world[1], 1)
    assert here < there
    world.settle()
    changed, highest = fetch_changed(world[1], there)
    assert 2 in changed and highest > there


def test_a_client_that_hops_misses_no_change_before_many_others(world):
    """This site counts further than the other one; what it changed first is still behind that one's number."""
    append(world[1], "INBOX", "one")
    append(world[1], "INBOX", "two")
    world.settle()
    for site in world.sites.values():
        fetch_changed(site, 1)   # from now on each mail has a modseq of its own
    imap(world[1], "INBOX", ("store", "2", "+FLAGS", "(\\Flagged)"))
    for i in range(20):
        imap(world[1], "INBOX", ("store", "1", "+FLAGS", f"(Mine{i})"))
    for i in range(10):
        imap(world[2], "INBOX", ("store", "1", "+FLAGS", f"(Kw{i})"))
    _, there = fetch_changed(world[2], 1)
    _, here = fetch_changed(world[1], 1)
    assert here > there
    world.settle()
    changed, _ = fetch_changed(world[1], there)
    assert 2 in changed


def test_a_client_that_hops_misses_no_change_after_ten_thousand_others(tmp_path_factory):
    """Of all that the other site has not confirmed, however much it is."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    try:
        box = world[1].imap()
        for i in range(501):
            assert box.append("INBOX", None, None, mail(f"m{i}"))[0] == "OK"
        box.logout()
        world.settle()
        for site in world.sites.values():
            fetch_changed(site, 1)   # from now on each mail has a modseq of its own
        for i in range(21):
            imap(world[1], "INBOX", ("store", "1:500", "+FLAGS", f"(Kw{i})"))
            world[1].ingest()
        imap(world[1], "INBOX", ("store", "501", "+FLAGS", "(\\Flagged)"))
        imap(world[2], "INBOX", *[("store", "1", "+FLAGS" if i % 2 == 0 else "-FLAGS", "(\\Seen)") for i in range(201)])
        _, there = fetch_changed(world[2], 1)
        changed, here = fetch_changed(world[1], 1)
        assert 501 in changed and here < there
        world[1].ingest()
        assert world[1].done["sites"][2]["unconfirmed"] > 10000
        world.settle()
        changed, _ = fetch_changed(world[1], there)
        assert 501 in changed
    finally:
        world.stop()


def test_spoilt_parcels_harm_nobody_but_their_sender(tmp_path_factory):
    """Whatever a peer sends, the worker answers and goes on; its own mailboxes can be read."""
    world = make_world(tmp_path_factory, ["sdbox", "sdbox"])
    dice = random.Random(4)
    try:
        append(world[1], "INBOX", "one", "(Kw)", size=5000)
        append(world[1], "INBOX", "large", size=1300000)
        imap(world[1], None, ("create", "F"), ("subscribe", "F"))
        append(world[2], "INBOX", "two")
        seen = []
        for site in world.sites.values():
            site.ingest()
        for exchange in range(2):  # of new states, and of those that have read their mailboxes
            while lanes := [(a.number, to, lane) for a in world.sites.values() for to, lane in a.outbox.items() if lane]:
                sender, to, lane = lanes[0]
                kind, _, body = lane.pop(0)
                seen.append((sender, to, kind, body))
                world[to].work(PARCEL, num(sender) + num(kind) + text(body))
            if exchange == 0:
                world[1].ship(2, EXCHANGE)
        assert {kind for _, _, kind, _ in seen} >= {1, 2, 3, 4, 5, 11}
        for _ in range(600):
            sender, to, kind, body = dice.choice(seen)
            spoilt = bytearray(body[:4000])
            for _ in range(dice.randint(1, 6)):
                if spoilt:
                    spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
            if dice.random() < 0.3:
                spoilt = spoilt[:dice.randrange(len(spoilt) + 1)]
            if dice.random() < 0.1:
                kind = dice.randrange(1, 12)
            world[to].ensure()
            ended, _ = world[to].job(PARCEL, num(sender) + num(kind) + text(bytes(spoilt)))
            assert ended == DONE
        for site in world.sites.values():
            assert site.admin("status")
            assert "INBOX" in site.contents()
            assert "Panic" not in site.log.read_text()
    finally:
        world.stop()
