"""Relays ask whether deliveries are safe; main has workers look, asks the other sites, and answers. Scripted workers say what is on which disk."""
import hashlib
import os
import struct

import pytest
from support.frames import ASK_DISK, BATCH, ON_DISK, batch_head, num, text
from support.waiting import eventually
from test_replicator import meta, world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]

USER = "u@example.net"


def guid(n):
    return f"{n:032x}"


def ask(replica, *numbers, sites=2, user=USER, node="mx1"):
    c = replica.redis.client()
    for n in numbers:
        body = f"1 {guid(n)} {node} {sites} {user}".encode()
        c("LANE.PUSH", 1, f"dovelane:asked:{replica.number}", "ENTRIES", 1, 1, hashlib.sha256(body).digest()[:16], "", body)


def answers(replica, node="mx1"):
    """{number: word} of all in the lane."""
    _, entries = replica.redis.client()("LANE.READ", f"dovelane:answered:{node}", 1, "COUNT", 100000)
    return {int(entry[6].split(b" ")[1], 16): entry[6].split(b" ")[4].decode() for entry in entries}


def until(replica, wanted, node="mx1"):
    eventually(f"answers {wanted}", lambda: answers(replica, node) == wanted)


def settled(w, user=USER):
    """And a question may be asked again at once: a node knows for five seconds what it let go."""
    for replica in w.replicas:
        replica.redis.client()("CONFIG", "SET", "lane.settle-ms", 0)
    w[0].change(user, "x")
    w.quiet([user])


def looks(replica, user=USER):
    return sum(who == user and words[0] == "on-disk" for who, words in replica.site.verbs)


def nothing_asked(replica):
    eventually("an empty lane", lambda: replica.redis.client()("LANE.LEN", f"dovelane:asked:{replica.number}") == 0)


@pytest.mark.test
def test_each_word_of_the_worker_has_its_answer(world):  # noqa: F811
    w = world(2)
    settled(w)
    words = w[0].site.words
    words.update({(USER, guid(1)): "here", (USER, guid(2)): "removed", (USER, guid(4)): "wait", (USER, guid(5)): "here"})
    w[1].site.words[USER, guid(1)] = "here"
    ask(w[0], 1, 2, 3, 4, 5)
    until(w[0], {1: "safe", 2: "safe", 3: "unknown"})
    nothing_asked(w[0])         # those that are not answered are asked again
    assert w[0].metric("replicator_questions_open") == 2
    w[1].site.words[USER, guid(5)] = words[USER, guid(4)] = "here"
    ask(w[0], 4, 5)
    until(w[0], {1: "safe", 2: "safe", 3: "unknown", 5: "safe"})
    assert w[0].metric("replicator_answers_safe") == 3


def test_what_waits_for_another_site_is_not_looked_for_again_and_again(world):  # noqa: F811
    w = world(2)
    settled(w)
    w[0].site.words[USER, guid(1)] = "here"
    ask(w[0], 1)
    eventually("a look", lambda: looks(w[0]) == 1)
    nothing_asked(w[0])
    for n in range(8):
        count = w[0].metric("replicator_questions")
        ask(w[0], 1, node=f"mx{n % 2 + 1}")
        eventually("a question that was taken", lambda: w[0].metric("replicator_questions") > count)
        nothing_asked(w[0])
    # one look for each relay's first question
    assert looks(w[0]) == 2
    w[1].site.words[USER, guid(1)] = "here"
    ask(w[0], 1)
    until(w[0], {1: "safe"})
    until(w[0], {1: "safe"}, "mx2")


def test_three_sites_are_counted_each_once(world):  # noqa: F811
    w = world(3)
    settled(w)
    for n in (0, 1):
        w[n].site.words[USER, guid(1)] = w[n].site.words[USER, guid(2)] = "here"
    ask(w[0], 1, sites=3)
    ask(w[0], 2, sites=2)
    until(w[0], {2: "safe"})
    for _ in range(3):      # B says it again and again
        before = len(w[1].site.parcels)
        ask(w[0], 1, sites=3, node="mx2")
        eventually("a parcel at B", lambda: len(w[1].site.parcels) > before)
    assert answers(w[0]) == {2: "safe"}
    w[2].site.words[USER, guid(1)] = "here"
    ask(w[0], 1, sites=3)
    until(w[0], {1: "safe", 2: "safe"})
    ask(w[0], 3, sites=4)       # there are no four
    w[0].site.words[USER, guid(3)] = "here"
    nothing_asked(w[0])


def test_who_has_fewer_sites_has_his_mail_on_all_of_his(world):  # noqa: F811
    w = world(3)
    two, one = "two@example.net", "one@example.net"
    for replica in w.replicas:
        replica.site.apart = {two: [3], one: [2, 3]}
    settled(w)
    for n in (0, 1, 2):
        w[n].site.words[two, guid(1)] = w[n].site.words[USER, guid(3)] = "wait"
    w[0].site.words.update({(two, guid(1)): "here", (one, guid(2)): "here", (USER, guid(3)): "here"})
    ask(w[0], 1, sites=3, user=two)
    ask(w[0], 2, sites=2, user=one)
    ask(w[0], 3, sites=2)
    until(w[0], {2: "safe"})
    nothing_asked(w[0])
    w[1].site.words[two, guid(1)] = "here"
    ask(w[0], 1, sites=3, user=two)
    until(w[0], {1: "safe", 2: "safe"})
    ask(w[0], 2, sites=4, user=one)     # the group itself is too small
    nothing_asked(w[0])
    assert answers(w[0]) == {1: "safe", 2: "safe"}


def hello(w, sender, epoch):
    """A BATCH of that site under that epoch."""
    body = text(batch_head(0, 0, [(sender, epoch, 0)]) + b'{"vector": {}, "first": 0, "items": []}')
    digest = w[0].site.hellos[0][1]
    w[sender - 1].redis.client()("LANE.PUSH", 1, f"dovelane:replica:{w[sender - 1].name}>site-a", "ENTRIES", 1, 1, os.urandom(16),
                                 meta(digest, USER, kind=BATCH, sender=sender, to=1), body)


def confirm(w, sender, asked, epoch, n):
    body, digest = struct.pack("<QQ", asked, epoch) + bytes.fromhex(guid(n)), w[0].site.hellos[0][1]
    w[sender - 1].redis.client()("LANE.PUSH", 1, f"dovelane:replica:{w[sender - 1].name}>site-a", "ENTRIES", 1, 1, os.urandom(16),
                                 meta(digest, USER, kind=ON_DISK, sender=sender, to=1), body)


def taken(w, do):
    before = w[0].metric("replicator_taken")
    do()
    eventually("a parcel that was taken", lambda: w[0].metric("replicator_taken") > before)


def until_all_is_dealt_with(w):
    """What came before this question is."""
    ask(w[0], 99)
    eventually("its answer", lambda: 99 in answers(w[0]))


@pytest.mark.test
def test_a_site_that_is_heard_with_another_epoch_has_confirmed_nothing(world):  # noqa: F811
    w = world(3)
    settled(w)
    for n in (0, 1):
        w[n].site.words[USER, guid(1)] = "here"
    ask(w[0], 1, sites=3)
    eventually("B was asked", lambda: any(kind == ASK_DISK for _, _, kind in w[1].site.parcels))
    until_all_is_dealt_with(w)
    w[1].site.words.clear()     # its disk is lost
    taken(w, lambda: hello(w, 2, 8))
    w[2].site.words[USER, guid(1)] = "here"
    taken(w, lambda: ask(w[0], 1, sites=3))      # C's word
    until_all_is_dealt_with(w)
    assert any(kind == ASK_DISK for _, _, kind in w[2].site.parcels)
    assert answers(w[0]) == {99: "unknown"}
    w[1].site.words[USER, guid(1)] = "here"
    w[1].site.epochs[USER] = 8
    ask(w[0], 1, sites=3)
    until(w[0], {1: "safe", 99: "unknown"})


@pytest.mark.test
def test_words_that_nobody_asked_for_do_not_count(world):  # noqa: F811
    """What lay in the lane, or is to another process's question, and a forged one."""
    w = world(2)
    settled(w)
    w[0].site.words[USER, guid(1)] = "here"
    ask(w[0], 1)
    eventually("a look", lambda: looks(w[0]) == 1)
    for asked, epoch in ((0, 7), (1, 7), (2 ** 64 - 1, 7), (0, 0)):
        taken(w, lambda: confirm(w, 2, asked, epoch, 1))
    assert answers(w[0]) == {} and looks(w[0]) == 1
    w[1].site.words[USER, guid(1)] = "here"
    ask(w[0], 1)
    until(w[0], {1: "safe"})


def test_a_main_that_is_killed_is_asked_again_and_counts_anew(world):  # noqa: F811
    w = world(2)
    settled(w)
    w[0].site.words[USER, guid(1)] = w[1].site.words[USER, guid(1)] = "here"
    w[1].site.words[USER, guid(1)] = "wait"
    ask(w[0], 1)
    eventually("a look", lambda: looks(w[0]) == 1)
    w[0].kill()
    w[0].start()
    w[1].site.words[USER, guid(1)] = "here"
    ask(w[0], 1)
    until(w[0], {1: "safe"})


def test_own_epoch_anew_forgets_what_others_confirmed(world):  # noqa: F811
    w = world(3)
    settled(w)
    for n in (0, 1):
        w[n].site.words[USER, guid(1)] = "here"
    ask(w[0], 1, sites=3)
    eventually("B was asked", lambda: any(kind == ASK_DISK for _, _, kind in w[1].site.parcels))
    w[0].site.epochs[USER] = 9
    del w[1].site.words[USER, guid(1)]
    w[2].site.words[USER, guid(1)] = "here"
    ask(w[0], 2)
    until(w[0], {2: "unknown"})     # the worker has told the new epoch
    taken(w, lambda: ask(w[0], 1, sites=3))     # C's word
    until_all_is_dealt_with(w)
    assert answers(w[0]) == {2: "unknown", 99: "unknown"}
    w[1].site.words[USER, guid(1)] = "here"
    ask(w[0], 1, sites=3)
    until(w[0], {1: "safe", 2: "unknown", 99: "unknown"})


def test_users_who_are_not_here_harm_nobody(world):  # noqa: F811
    w = world(2)
    settled(w)
    w[0].site.unknown = {"nobody@example.net", "nobody+x@example.net", "u+box@example.net"}
    for n, user in enumerate(("nobody@example.net", "nobody+x@example.net", "a/b", "..", "x" * 256, "u+box@example.net")):
        ask(w[0], n + 1, user=user)
    w[0].site.words[USER, guid(6)] = "removed"
    # the userdb's word; the last one's is of the user without the detail
    until(w[0], {1: "unknown", 2: "unknown", 6: "safe"})
    nothing_asked(w[0])


def test_more_questions_than_fit_into_one_request(world):  # noqa: F811
    w = world(2)
    settled(w)
    for n in range(1, 301):
        w[0].site.words[USER, guid(n)] = w[1].site.words[USER, guid(n)] = "here"
    ask(w[0], *range(1, 301))
    until(w[0], {n: "safe" for n in range(1, 301)})
    eventually("no question open", lambda: w[0].metric("replicator_questions_open") == 0)


def test_a_node_that_goes_and_comes_is_answered(world):  # noqa: F811
    w = world(2)
    settled(w)
    w[0].site.words[USER, guid(1)] = w[1].site.words[USER, guid(1)] = "here"
    w[0].redis.kill()
    w[0].redis.start()
    ask(w[0], 1)
    until(w[0], {1: "safe"})
