"""What a push promises: all copies, or none and an error that says why."""
import signal

import pytest
from dovelane_lanes import (Entry, LaneFull, NoMemory, NoNode, NotStored, Refused, new_id)
from support.waiting import eventually

pytestmark = pytest.mark.check


def states(server, lane="q"):
    return [e[7] for e in server.client().read(lane)]


def test_an_entry_is_on_two_nodes_and_the_first_gives_it(nodes):
    with nodes.client(takeover=60) as lanes:
        uid = lanes.push("q", b"one", meta=b"m")
    assert nodes.held() == {"a": ["one"], "b": ["one"], "c": []}
    assert states(nodes["a"]) == ["waiting"] and states(nodes["b"]) == ["delayed"]
    entry = nodes["a"].client().read("q")[0]
    assert entry[1] == uid and len(uid) == 16 and entry[5] == b"m"


def test_the_same_id_is_stored_once(nodes):
    with nodes.client() as lanes:
        uid = new_id()
        assert [lanes.push("q", b"one", id=uid) for _ in range(3)] == [uid] * 3
    assert nodes.held() == {"a": ["one"], "b": ["one"], "c": []}


def test_many_are_stored_in_order_and_in_parts(nodes):
    bodies = [f"{n}" for n in range(2500)]
    with nodes.client(copies=3, takeover=60) as lanes:
        ids = lanes.push_many("q", [Entry(body.encode()) for body in bodies])
        assert len(set(ids)) == 2500
        assert lanes.lengths("q") == {"a": 2500, "b": 2500, "c": 2500}
        assert lanes.push_many("q", []) == []
    assert nodes.held() == dict.fromkeys("abc", bodies)


def test_a_dead_node_is_left_out(nodes):
    with nodes.client(retry_after=60, takeover=60) as lanes:
        lanes.push("q", b"before")
        nodes["a"].kill()
        lanes.push("q", b"then")
        lanes.push("q", b"after")
    assert nodes.held() == {"b": ["before", "then", "after"], "c": ["then", "after"]}
    assert states(nodes["b"])[2] == "waiting", "b is the first one now"


def test_too_few_nodes_and_nothing_is_left(nodes):
    nodes["a"].kill()
    with nodes.client(copies=3) as lanes:
        for _ in range(2):  # the second time it is known before anything is stored
            with pytest.raises(NotStored) as told:
                lanes.push("q", b"one")
            text = str(told.value)
            assert "1 of 1 entries for lane q are not stored on 3 nodes" in text
            assert "node a: " in text and "They are on no node" in text, text
            assert not told.value.in_doubt
    assert nodes.held() == {"b": [], "c": []}


def test_a_node_that_returns_is_used_again(nodes):
    with nodes.client(copies=3) as lanes:
        lanes.push("q", b"one")
        nodes["b"].kill()
        with pytest.raises(NotStored):
            lanes.push("q", b"two")
        nodes["b"].start()

        def stored():
            try:
                return lanes.push("q", b"three")
            except NotStored:
                return None
        eventually("a push to all three", stored)
    assert nodes.held()["b"] == ["three"]


def test_a_full_lane_is_passed_over_and_then_told(nodes):
    with nodes.client(retry_after=60, takeover=60) as lanes:
        nodes["a"].client()("LANE.CREATE", "q", "MAXLEN", 1)
        lanes.push("q", b"one")
        lanes.push("q", b"two")
        lanes.push("q", b"three")
        assert nodes.held() == {"a": ["one"], "b": ["one", "two", "three"], "c": ["two", "three"]}
        assert states(nodes["b"])[2] == "waiting", "a is passed over for a moment"
        lanes.create("q", maxlen=1)
        with pytest.raises(LaneFull) as told:
            lanes.push("q", b"four")
        assert "node b: FULL: a bound of the lane is reached" in str(told.value)
    assert nodes.held() == {"a": ["one"], "b": ["one", "two", "three"], "c": ["two", "three"]}


def test_a_part_of_a_push_is_revoked_where_it_was_stored(nodes):
    for name in "ab":
        nodes[name].client()("LANE.CREATE", "q", "MAXLEN", 2)
    with nodes.client() as lanes:
        with pytest.raises(LaneFull) as told:
            lanes.push_many("q", [Entry(b"1"), Entry(b"2"), Entry(b"3"), Entry(b"4")])
        assert len(told.value.failures) == 2 and len(told.value.stored) == 2
        assert told.value.failures[0].reasons.keys() == {"a", "b"}
    assert nodes.held() == {"a": ["1", "2"], "b": ["1", "2"], "c": []}, "c had the rest, once"


def test_a_server_without_memory(nodes):
    for server in nodes.values():
        server.client()("CONFIG", "SET", "maxmemory", 1)
    with nodes.client() as lanes, pytest.raises(NoMemory, match="above its maxmemory"):
        lanes.push("q", b"one")


def test_a_revoked_id_is_refused_and_a_new_one_is_not(nodes):
    with nodes.client() as lanes:
        uid = lanes.push("q", b"one")
        (told,) = lanes.revoke("q", uid)
        assert told.state == "removed" and told.certain
        assert nodes.held() == {"a": [], "b": [], "c": []}
        with pytest.raises(NotStored, match="this id was revoked"):
            lanes.push("q", b"one", id=uid)
        lanes.push("q", b"one")


def test_what_a_revocation_finds(nodes):
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        ids = [lanes.push("q", body) for body in (b"1", b"2")]
        first, second = consumer.take(2)
        consumer.ack(first)
        told = lanes.revoke("q", *ids, new_id())
        assert [each.state for each in told] == ["delivered", "leased", "absent"]
        assert [each.certain for each in told] == [True, False, True]
        consumer.release(second)
        assert lanes.revoke("q", ids[1])[0].certain
        nodes["c"].kill()
        (told,) = lanes.revoke("q", ids[1])
        assert not told.certain and list(told.unreached) == ["c"]


def test_a_node_that_stands_still_leaves_a_doubt_that_revoke_ends(nodes):
    """It gets the entry with its next breath: only it can say what became of it."""
    with nodes.client("a", "b", timeout=0.5, retry_after=0.2) as lanes:
        lanes.push("q", b"before")
        nodes["b"].process.send_signal(signal.SIGSTOP)
        with pytest.raises(NotStored) as told:
            lanes.push("q", b"one")
        (uid,) = told.value.in_doubt
        assert "no answer within 0.5 s" in str(told.value)
        assert "may still lie there: node b" in str(told.value)
        nodes["b"].process.send_signal(signal.SIGCONT)
        eventually("a certain answer", lambda: lanes.revoke("q", uid)[0].certain)
    assert nodes.held()["a"] == nodes.held()["b"] == ["before"]


def test_what_was_acked_before_it_could_be_revoked_counts_as_stored(nodes):
    nodes["b"].client()("LANE.CREATE", "q", "MAXLEN", 1)
    nodes["b"].client().push("q", 1)
    uid = new_id()
    nodes["a"].client()("LANE.ACK", "q", "IDS", 1, uid)
    with nodes.client("a", "b") as lanes:
        assert lanes.push("q", b"one", id=uid) == uid


def test_a_server_with_another_name_is_refused(nodes):
    nodes["b"].client()("CONFIG", "SET", "lane.node", "mx9")
    with nodes.client("a", "b") as lanes, pytest.raises(NotStored, match="calls itself mx9"):
        lanes.push("q", b"one")
    assert nodes.held() == {"a": [], "b": [], "c": []}


def test_what_is_wrong_is_said_before_anything_is_sent(nodes):
    with pytest.raises(ValueError, match="copies is 4, allowed is 1 to 3"):
        nodes.client(copies=4)
    with pytest.raises(ValueError, match="takeover is 0"):
        nodes.client(takeover=0)
    with pytest.raises(ValueError, match="16"):
        Entry(b"x", b"short")
    with pytest.raises(TypeError, match="body is str, allowed is bytes"):
        Entry("text")


def test_a_node_that_lost_a_lanes_settings_is_told_them(nodes):
    with nodes.client() as lanes:
        nodes["b"].kill()
        lanes.create("q", maxlen=7)
        nodes["b"].start()
        nodes["a"].kill()
        nodes["a"].start()

        def bounds():
            lanes.lengths("q")
            return [server.client().info("q")["maxlen"] for server in nodes.values()
                    if server.client()("EXISTS", "q")]
        eventually("the bound at all three", lambda: bounds() == [7, 7, 7])
        for server in nodes.values():
            server.kill()
        with pytest.raises(NoNode, match="node a: .*; node b: .*; node c: "):
            lanes.create("q", maxlen=8)


def test_a_key_of_another_kind(nodes):
    for server in nodes.values():
        server.client()("SET", "q", "text")
    with nodes.client() as lanes, lanes.consumer("q") as consumer:
        with pytest.raises(NotStored, match="something else than a lane"):
            lanes.push("q", b"one")
        with pytest.raises(Refused, match="node [abc] refuses LANE.TAKE: WRONGTYPE"):
            consumer.take()


def test_delay_and_expiry(nodes):
    with nodes.client(takeover=60) as lanes, lanes.consumer("q") as consumer:
        lanes.push("q", b"late", delay=3600)
        lanes.push("q", b"short", expire=3600)
        assert [job.body for job in consumer.take(9)] == [b"short"]
        assert nodes["a"].client().info("q")["expiring"] == 1


def test_a_server_that_was_restarted_costs_no_push(nodes):
    """The connections of before are dead, which is learnt only when one is used."""
    with nodes.client("a", "b") as lanes:
        lanes.push("q", b"one")
        nodes["a"].kill()
        nodes["a"].start()
        lanes.push("q", b"two")
    assert nodes.held()["a"] == ["two"] and nodes.held()["b"] == ["one", "two"]
