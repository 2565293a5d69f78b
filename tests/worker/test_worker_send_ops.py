"""What goes out to the peers, and when: in parts, with the bodies, and again from where it is missing."""
import pytest
from worker_sites import append, equal, fetch_changed, mail, needs_dovecot, subjects
from support.worker_world import (ANSWER_READING, BATCH, BODIES, BODY, CLOSE, CONFIRMED, EXCHANGE,
                                  NEW, QUESTION, RESERVE, SEND, WANT)

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def append_many(site, number, size):
    box = site.imap()
    for i in range(number):
        ok, said = box.append("INBOX", None, None, mail(f"many{i}", size))
        assert ok == "OK", said
    box.logout()


def test_what_is_committed_goes_out_while_the_rest_of_a_mailbox_is_read(world):
    append(world[1], "INBOX", "first")
    world.settle()
    append_many(world[1], 70, 100000)
    _, highest = fetch_changed(world[1], 1)
    world[1].ingest()
    frames = world[1].frames
    reserved = max(at for at, kind in enumerate(frames) if kind == RESERVE)
    assert 3 <= frames[:reserved].count(SEND) < frames.count(SEND), frames
    assert all(kind == BATCH for kind, _, _ in world[1].outbox[2])
    world.carry()
    changed, _ = fetch_changed(world[2], highest)  # a client that comes from there sees them, though the last batch has not come
    assert len(changed) >= 15
    world.settle()
    assert subjects(equal(world), "INBOX") == 71
    assert not {WANT, BODY, BODIES} & {kind for _, _, kind, _ in world.carried}


def test_a_backlog_goes_out_in_parts_and_from_where_it_is_missing(world):
    append(world[1], "INBOX", "first")
    world.settle()
    append_many(world[1], 120, 100000)
    world[1].ingest()
    assert not world[1].done["sites"][2]["more"]
    begins = world[1].firsts
    world[1].outbox[2].clear()  # none of it came into the lane
    parts = []
    how = CONFIRMED
    while not parts or world[1].done["sites"][2]["more"]:
        world[1].ship(2, how)
        parts.append(world[1].firsts)
        how = NEW
    assert len(parts) == 2 and sum(parts, []) == begins and len(begins) >= 6, (begins, parts)
    world[1].outbox[2].clear()
    world[1].ship(2, NEW, begins[3])
    assert world[1].firsts == begins[3:]
    world[1].ship(2, NEW, begins[0])
    assert world[1].firsts == begins[:len(parts[0])] and world[1].done["sites"][2]["more"]
    world[1].work(CLOSE)
    world[1].ingest()
    assert world[1].firsts == parts[1], "what was not sent goes out whatever is asked, also when the user was closed"
    world.settle()
    assert subjects(equal(world), "INBOX") == 121
    assert not {WANT, BODY, BODIES} & {kind for _, _, kind, _ in world.carried}


def test_one_batch_is_sent_to_a_site_that_took_nothing_of_all(world):
    """Whether it can take it by now; what is new goes on where it was."""
    append(world[1], "INBOX", "first")
    world.settle()
    append_many(world[1], 50, 100000)
    world[1].ingest()
    begins = world[1].firsts
    assert len(begins) >= 3
    world[1].outbox[2].clear()
    world[1].ship(2, CONFIRMED, 1)
    assert world[1].firsts == begins[:1] and not world[1].done["sites"][2]["more"]
    append(world[1], "INBOX", "later")
    world[1].ingest()
    assert len(world[1].firsts) == 1 and world[1].firsts[0] > begins[-1]
    world[1].outbox[2].clear()
    world[1].ship(2, CONFIRMED)
    assert world[1].firsts[:len(begins)] == begins
    world.settle()
    assert subjects(equal(world), "INBOX") == 52


def test_bodies_that_do_not_fit_beside_others_come_too(world):
    """Of one ingest: too large for a batch with the others, for any batch, and two of the same bytes."""
    for size in (900000, 900000, 900000, 1200000, 10, 900000):
        append(world[1], "INBOX", "same" if size == 10 else f"m{size}", size=size)
    append(world[1], "INBOX", "same", size=10)
    world.settle()
    assert subjects(equal(world), "INBOX") == 7
    asked = [kind for _, _, kind, _ in world.carried if kind in (WANT, BODY, BODIES)]
    assert asked == [WANT, BODY, BODY], asked  # for the one that is larger than what goes along with an op


def test_an_answer_to_a_question_of_before_has_the_site_asked_at_once(world):
    """A new state's exchange began while the other site was away, and the user was closed meanwhile."""
    append(world[1], "INBOX", "one")
    world[1].ship(2, EXCHANGE)
    assert [kind for kind, _, _ in world[1].outbox[2]] == [QUESTION]
    world[1].work(CLOSE)
    world.carry()
    assert [(of, kind) for of, _, kind, _ in world.carried] == [(1, QUESTION), (2, ANSWER_READING)]
    assert QUESTION in [kind for kind, _, _ in world[1].outbox[2]]
    assert world[1].done["sites"][2]["asking"]


@pytest.mark.long
def test_who_has_answered_a_new_state_is_known_to_the_next_session(three):
    """More new users than workers: the user is closed between the answers of two sites."""
    site, heard = three[1], "the state has what the other sites have; reading the mailboxes"
    append(three[2], "INBOX", "one")
    three[2].ingest()
    site.ingest()
    assert [[kind for kind, _, _ in site.outbox[to]].count(QUESTION) for to in (2, 3)] == [1, 1]
    while three.carry(drop=lambda of, to, kind: 3 in (of, to)):
        pass
    site.work(CLOSE)
    site.ingest()
    assert [[kind for kind, _, _ in site.outbox[to]].count(QUESTION) for to in (2, 3)] == [0, 1], "asked who has answered"
    assert heard not in [said for _, said in site.notes]
    while three.carry():
        pass
    assert heard in [said for _, said in site.notes]


@pytest.mark.long
def test_a_second_answer_of_who_has_answered_asks_nothing(three):
    """Its question was sent again, since the user was closed meanwhile; a third site is still away."""
    site = three[1]
    append(three[2], "INBOX", "one")
    three[2].ingest()
    site.ingest()
    site.work(CLOSE)
    site.ingest()
    questions = [body for kind, _, body in site.outbox[2] if kind == QUESTION]
    assert len(questions) == 2
    while three.carry(drop=lambda of, to, kind: 3 in (of, to)):
        pass
    asked = len([of for of, to, kind, _ in three.carried if (of, to, kind) == (1, 2, QUESTION)])
    site.outbox[2].append((QUESTION, 1, questions[0]))  # as if it had come late
    while three.carry(drop=lambda of, to, kind: 3 in (of, to)):
        pass
    again = len([of for of, to, kind, _ in three.carried if (of, to, kind) == (1, 2, QUESTION)])
    assert again == asked + 1, "it was asked by its late answer"


@pytest.mark.long
def test_a_new_state_waits_for_nobody_who_was_taken_out_of_the_group(three):
    """Of the two others one has answered; then the other is removed, and this site started with the smaller group."""
    site, note = three[1], "the state has what the other sites have; reading the mailboxes"
    append(site, "INBOX", "one")
    site.ingest()
    while three.carry(drop=lambda of, to, kind: 3 in (of, to)):
        pass
    site.disconnect()
    site.sites = [n for n in site.sites if n != 3]
    site.outbox.pop(3)
    site.ingest()
    told = [said for _, said in site.notes]
    assert note in told and not any("not all other sites" in said for said in told), told
    assert site.done["sites"][2]["unconfirmed"] > 0, site.done
