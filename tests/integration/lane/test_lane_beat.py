"""LANE.BEAT and LANE.WHOLE: what a server knows of nodes, and of itself."""
import pytest

from support.lane_server import LaneServer, ReplyError

pytestmark = [pytest.mark.core, pytest.mark.check]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("server")) as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    client("SWAPDB", 0, 1)
    yield client
    server.close_clients()


def beats(answer):
    return {b[0].decode(): (b[1], b[2], b[4]) for b in answer[0]}


def whole(c):
    flat = c("LANE.WHOLE")
    assert flat == c("LANE.BEAT")[1]
    return {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}


def make_whole(c, owners="mx1+mx2", token="t1"):
    assert c("LANE.WHOLE", "BEGIN", owners, token) == "OK"
    return c("LANE.WHOLE", "END", owners, token)


# ---- beats ----

def test_a_beat_stays_until_the_next_of_that_name(c):
    c("LANE.BEAT", "mx1", "inc1", 1, "state=alive")
    assert beats(c("LANE.BEAT", "mx2", "inc2", 7, "state=ready"))["mx1"] == (b"inc1", 1, b"state=alive")
    # What was there before it is the answer, so a relay sees who beats in its name.
    before = c("LANE.BEAT", "mx1", "inc9", 3, "state=returning")
    assert beats(before)["mx1"] == (b"inc1", 1, b"state=alive") and beats(before)["mx2"] == (b"inc2", 7, b"state=ready")
    assert beats(c("LANE.BEAT"))["mx1"] == (b"inc9", 3, b"state=returning")
    age = next(b[3] for b in c("LANE.BEAT")[0] if b[0] == b"mx2")
    assert 0 <= age < 60000


def test_nothing_but_a_restart_takes_beats_away(c):
    c("LANE.BEAT", "mx1", "i", 1, "x")
    c("FLUSHALL")
    assert "mx1" in beats(c("LANE.BEAT"))
    c("CONFIG", "SET", "maxmemory", 1)
    try:
        c("LANE.BEAT", "mx1", "i", 2, "x")
        assert make_whole(c) == 1
    finally:
        c("CONFIG", "SET", "maxmemory", 0)
    assert beats(c("LANE.BEAT"))["mx1"] == (b"i", 2, b"x")


def test_names_are_bounded_in_number(c):
    for i in range(300):
        c("LANE.BEAT", f"n{i}", "i", i, "x")
    names = beats(c("LANE.BEAT"))
    assert len(names) == 256 and "n299" in names and "n44" in names and "n43" not in names


@pytest.mark.parametrize("words, said", [
    (["LANE.BEAT", "mx1"], "wrong number"), (["LANE.BEAT", "", "i", 1, "x"], "ERR value: name"), (["LANE.BEAT", "n" * 65, "i", 1, "x"], "allowed is 1 to 64 bytes"),
    (["LANE.BEAT", "n", "i", "one", "x"], "ERR value: counter"), (["LANE.BEAT", "n", "i", 1, "x" * 9000], "allowed is 1 to 8192 bytes"),
    (["LANE.WHOLE", "BEGIN"], "expected.*SINCE"), (["LANE.WHOLE", "BEGIN", "a"], "wrong number"), (["LANE.WHOLE", "START", "a+b", "t"], "BEGIN or END"), (["LANE.WHOLE", "END", "", "t"], "ERR value: owners"),
    (["LANE.WHOLE", "END", "a+b", ""], "ERR value: token")], ids=lambda w: " ".join(map(str, w))[:30] if isinstance(w, list) else None)
def test_bad_arguments(c, words, said):
    with pytest.raises(ReplyError, match=said):
        c(*words)
    assert whole(c) == {}


# ---- whole ----

def test_whole_is_who_ended_what_was_begun(c):
    assert c("LANE.WHOLE", "END", "mx1+mx2", "t1") == 0 and whole(c) == {}
    c("LANE.WHOLE", "BEGIN", "mx1+mx2", "t1")
    assert whole(c) == {}
    assert c("LANE.WHOLE", "END", "mx1+mx2", "t0") == 0 and c("LANE.WHOLE", "END", "mx1+mx3", "t1") == 0 and whole(c) == {}
    assert c("LANE.WHOLE", "END", "mx1+mx2", "t1") == 1
    assert whole(c) == {b"mx1+mx2": b"t1"}


def test_comparing_again_takes_nothing_away(c):
    make_whole(c)
    c("LANE.WHOLE", "BEGIN", "mx1+mx2", "t2")
    assert whole(c) == {b"mx1+mx2": b"t1"}
    # Others who read "t1" before and read it again must not believe that it was lost between.
    assert c("LANE.WHOLE", "END", "mx1+mx2", "t2") == 1 and whole(c) == {b"mx1+mx2": b"t1"}


def since(c):
    flat = c("LANE.WHOLE", "SINCE")
    return {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}


def test_since_when_it_is_whole(c):
    assert since(c) == {}
    before = c.info()["clock-ms"]
    make_whole(c)
    c("LANE.WHOLE", "BEGIN", "mx1+mx3", "t")
    c("LANE.PUT", "q", "hello")
    stored = c("LANE.READ", "q", 0)[1][0][4]
    told = since(c)
    assert list(told) == [b"mx1+mx2"] and stored <= told[b"mx1+mx2"] <= c.info()["clock-ms"] - before
    made = c.info()["clock-ms"] - since(c)[b"mx1+mx2"]
    make_whole(c, token="t2")
    assert c.info()["clock-ms"] - since(c)[b"mx1+mx2"] <= made + 5000 and since(c)[b"mx1+mx2"] >= told[b"mx1+mx2"], "it was so before"
    c("FLUSHALL")
    assert since(c) == {}


def test_when_a_file_was_loaded(tmp_path):
    with LaneServer(tmp_path, name="first") as server:
        c = server.client()
        assert c.info()["loaded-ms"] == 0
        c("LANE.PUT", "q", "hello")
        c("DEBUG", "RELOAD")
        now = c.info()
        assert 0 < now["loaded-ms"] <= now["clock-ms"]
        assert c("LANE.READ", "q", 0)[1][0][4] >= now["clock-ms"] - now["loaded-ms"], "what the file brought is older than that"


def test_a_later_begin_makes_an_end_void(c):
    c("LANE.WHOLE", "BEGIN", "mx1+mx2", "t1")
    c("LANE.WHOLE", "BEGIN", "mx1+mx2", "t2")
    assert c("LANE.WHOLE", "END", "mx1+mx2", "t1") == 0 and whole(c) == {}


@pytest.mark.parametrize("words", [["FLUSHALL"], ["FLUSHALL", "ASYNC"], ["FLUSHDB"], ["SWAPDB", 0, 3], ["DEBUG", "RELOAD"]], ids=lambda w: " ".join(map(str, w)))
def test_what_may_lose_entries_loses_whole(c, words):
    make_whole(c)
    c("LANE.WHOLE", "BEGIN", "mx1+mx3", "t3")
    c(*words)
    assert whole(c) == {}
    assert c("LANE.WHOLE", "END", "mx1+mx3", "t3") == 0, "a comparison that was under way is void"


def test_other_databases_do_not_matter(c):
    make_whole(c)
    c("SELECT", 5)
    c("FLUSHDB")
    c("SWAPDB", 3, 4)
    assert whole(c) == {b"mx1+mx2": b"t1"}


OWNED, ORDERED = "dovelane:smtp:[h]:25|mx1>mx2", "dovelane:smtp:[h]:25|mx1>mx2|mx1.7"


def expire(c, lane):
    """A hundredth of a second, and then somebody looks for it."""
    c("PEXPIRE", lane, 10)
    while c("EXISTS", lane):
        pass


TAKEN_AWAY = {
    "DEL": lambda c, lane: c("DEL", lane), "UNLINK": lambda c, lane: c("UNLINK", lane), "RESET": lambda c, lane: c("LANE.RESET", lane),
    "RENAME": lambda c, lane: c("RENAME", lane, "elsewhere"),
    # SELECT: Valkey 8.1 leaves a client in the other database when a module hears of it (valkey-io/valkey, pull request 4024).
    "MOVE": lambda c, lane: c("MOVE", lane, 5) and c("SELECT", 0), "SET": lambda c, lane: c("SET", lane, "x"), "expiry": expire}


@pytest.mark.parametrize("how", TAKEN_AWAY)
@pytest.mark.parametrize("lane", [OWNED, ORDERED])
def test_a_lane_with_owners_that_is_taken_away_loses_whole(c, how, lane):
    make_whole(c)
    c("LANE.WHOLE", "BEGIN", "mx1+mx3", "t3")
    c("LANE.PUT", lane, "a mail")
    TAKEN_AWAY[how](c, lane)
    assert whole(c) == {}
    assert c("LANE.WHOLE", "END", "mx1+mx3", "t3") == 0, "a comparison that was under way is void"


@pytest.mark.parametrize("how", TAKEN_AWAY)
@pytest.mark.parametrize("lane", ["queue", "dovelane:", "queue|mx1>mx2", "dovelane:replica:a>b", "dovelane.divert"])
def test_lanes_of_others_lose_nothing_of_ours(c, how, lane):
    make_whole(c)
    c("LANE.PUT", OWNED, "a mail")
    c("LANE.PUT", lane, "not a mail")
    TAKEN_AWAY[how](c, lane)
    assert whole(c) == {b"mx1+mx2": b"t1"} and c("LANE.LEN", OWNED) == 1


def test_a_lane_of_another_database_loses_nothing(c):
    make_whole(c)
    c("SELECT", 5)
    c("LANE.PUT", OWNED, "a mail")
    c("DEL", OWNED)
    assert whole(c) == {b"mx1+mx2": b"t1"}


def test_a_lane_with_owners_that_another_takes_the_place_of_loses_whole(c):
    make_whole(c)
    c("LANE.PUT", OWNED, "a mail")
    c("LANE.PUT", "queue", "not a mail")
    c("RENAME", "queue", OWNED)
    assert whole(c) == {}


def test_a_restart_and_a_replica_are_not_whole(tmp_path):
    with LaneServer(tmp_path, "--appendonly", "yes", name="first") as first, LaneServer(tmp_path, name="second") as second:
        c = first.client()
        make_whole(c)
        r = second.client()
        make_whole(r)
        r("REPLICAOF", "127.0.0.1", 1)
        assert whole(r) == {}
        r("REPLICAOF", "NO", "ONE")
        assert whole(r) == {}
        first.restart()
        assert whole(first.client()) == {}


def test_beats_are_heard_by_a_command_that_leaves_none(server):
    c = server.client()
    c("LANE.BEAT", "mx1", "i", 1, "x")
    c("LANE.WHOLE", "BEGIN", "mx1+mx2", "t")
    c("LANE.WHOLE", "END", "mx1+mx2", "t")
    (heard, sets), (asked, _) = c("LANE.BEATS"), c("LANE.BEAT")
    assert [beat[:3] + beat[4:] for beat in heard] == [beat[:3] + beat[4:] for beat in asked]
    assert [b"mx1", b"i", 1, b"x"] in [beat[:3] + beat[4:] for beat in heard] and sets == [b"mx1+mx2", b"t"]
    with pytest.raises(ReplyError, match="wrong number"):
        c("LANE.BEATS", "mx1", "i", 2, "x")
