"""A lane as a value of Redis: keyspace commands under leases and blocked clients, ACL, command info, settings."""
import shutil
import subprocess

import pytest

from support.lane_server import (ASAN, BUILD, LaneServer, MODULE, ReplyError, SLOW, VALGRIND,
                                 ident, number, wait_for)

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LaneServer(tmp_path_factory.mktemp("server"), "--lane.node", "mx1", "--lane.settle-ms", "0", "--notify-keyspace-events", "KEA") as s:
        yield s


@pytest.fixture
def c(server):
    client = server.client()
    client("FLUSHALL")
    yield client
    server.close_clients()


COMMANDS = ("CREATE PUSH PUT MPUT ACK REVOKE META TAKE NACK EXTEND READ GET IDS MOVE READY LIST LEN INFO BEAT BEATS WHOLE RESET CHECK APPLY").split()


# ---- keyspace commands ----

REMOVALS = [["FLUSHALL"], ["FLUSHALL", "ASYNC"], ["FLUSHDB"], ["FLUSHDB", "ASYNC"], ["DEL", "lane"], ["UNLINK", "lane"], ["SET", "lane", "x"],
            ["PEXPIRE", "lane", 1], ["RENAME", "lane", "elsewhere"], ["MOVE", "lane", 5], ["SWAPDB", 0, 5], ["LANE.RESET", "lane"],
            ["RENAME", "other", "lane"], ["COPY", "other", "lane", "REPLACE"]]


@pytest.mark.parametrize("words", REMOVALS, ids=lambda w: " ".join(map(str, w)))
def test_lane_goes_away_under_leases_and_blocked_clients(server, c, words):
    c.push("lane", *range(200))
    c.push("other", 999)
    holder, taker, reader = server.client(), server.client(), server.client()
    lease, entries = holder.take("lane", 150)
    c("LANE.CREATE", "empty")
    taker.send("LANE.TAKE", 2, "empty", "nothing", "BLOCK", 0)
    reader.send("LANE.READY", c("LANE.READY", 0)[0], "BLOCK", 0)
    assert taker.silent(0.02)
    c.push("delayed", 1, delay=20)
    c(*words)
    c("SELECT", 0)  # Valkey up to 8.1.1 leaves the connection in the database of a MOVE (valkey#4024)
    assert holder("LANE.EXTEND", "gone", lease, 5, "UPTO", 2**62) == [0, 0]
    if words[0] != "SET":
        holder("LANE.NACK", "lane", lease, "RETRY", 0, "UPTO", 2**62)
        holder("LANE.ACK", "lane", "SEQS", len(entries), *[e[0] for e in entries])
    holder.close()
    c("SET", "marker", 1)
    c.push("nothing", 5)
    assert number(taker.reply()[0][2][0][1]) == 5
    wait_for(lambda: c.info()["leased"] == 1)
    taker.close()
    wait_for(lambda: c.info()["leased"] == 0)
    c("PING")


def test_leases_survive_the_removal_of_another_lane(server, c):
    c.push("a", 1)
    c.push("b", 2)
    holder = server.client()
    holder.take("a")
    holder.take("b")
    c("DEL", "a")
    assert c.info()["leased"] == 1
    holder.close()
    wait_for(lambda: c.info()["leased"] == 0)
    assert c.read("b")[0][3] == 1


def test_renamed_lane_is_known_by_its_new_name(c):
    c.push("old", 1, 2)
    c("RENAME", "old", "new")
    assert c("LANE.LIST", 0)[1][0] == b"new"
    assert c("LANE.READY", 0)[1] == [b"new"]
    assert c.ids("new", 9) == [1, 2]


def test_renamed_delayed_entry_comes_due_under_its_new_name(server, c):
    c.push("old", 1, delay=100 * SLOW)
    waiting = server.client()
    waiting.send("LANE.TAKE", 1, "new", "BLOCK", 0)
    waiting.silent(0.01)
    c("RENAME", "old", "new")
    assert number(waiting.reply()[0][2][0][1]) == 1


def test_copy_is_deep_and_leases_nothing(c):
    c.push("lane", 1, 2)
    c("LANE.META", "lane", 1, ident(1), 1, "meta")
    c.take("lane")
    c("COPY", "lane", "copy")
    assert c.info("copy")["leased"] == 0
    assert c.digest("lane") == c.digest("copy")
    c("LANE.ACK", "lane", "UPTO", 2**62)
    assert [e[1] for e in c.read("copy")] == [ident(1), ident(2)]
    c("COPY", "copy", "lane", "DB", 3)
    c("SELECT", 3)
    assert c("LANE.LEN", "lane") == 2 and c("LANE.LIST", 0)[1][0] == b"lane"
    c("SELECT", 0)


def test_databases_are_apart(c):
    c.push("lane", 1)
    c("SELECT", 1)
    assert c("LANE.LEN", "lane") == 0
    c.push("lane", 2)
    c("LANE.ACK", "lane", "IDS", 1, ident(2))
    c("SELECT", 0)
    assert c("LANE.LEN", "lane") == 1


def test_swapdb_takes_lanes_along(c):
    c.push("lane", 1)
    c("SELECT", 1)
    c.push("two", 2)
    c("SWAPDB", 0, 1)
    assert c("LANE.LIST", 0)[1][0] == b"lane"
    c("SELECT", 0)
    assert c("LANE.LIST", 0)[1][0] == b"two" and c("LANE.READY", 0)[1] == [b"two"]


def test_memory_usage_is_known(c):
    c.push("lane", *range(100), body=b"x" * 1000)
    usage = c("MEMORY", "USAGE", "lane")
    assert 100_000 < usage < 130_000


def test_memory_comes_back(c):
    if VALGRIND or ASAN:
        pytest.skip("the allocator is another one")
    def used():
        return c.info()["used-memory"]
    c.push("warm", *range(1000))
    c("FLUSHALL")
    before = used()
    for round_ in range(3):
        for base in range(0, 20000, 1000):
            c.push("lane", *range(base, base + 1000), body=b"x" * 500)
        c.take("lane", 20000)
        c("LANE.ACK", "lane", "UPTO", 2**62)
    assert used() - before < 1_000_000


def test_ten_thousand_lanes_of_one_entry_cost_little(c):
    if VALGRIND or ASAN:
        pytest.skip("the allocator is another one")
    before = c.info()["used-memory"]
    c.pipe(*[["LANE.PUSH", 1, f"dovelane:lmtp:[10.0.0.{n}]:24|mx1>mx2", "ENTRIES", 1, 1, ident(n), "m" * 24, "x" * 1000] for n in range(10000)])
    assert (c.info()["used-memory"] - before) / 10000 < 1024 + 2048


def test_keyspace_events(server, c):
    listener = server.client()
    listener("PSUBSCRIBE", "__keyevent@0__:*")
    c.push("lane", 1)
    c("LANE.ACK", "lane", "UPTO", 2**62)
    assert [listener.reply()[2].decode().split(":", 1)[1] for _ in range(3)] == ["lane.push", "lane.ack", "del"]


def test_watch_notices_changes(server, c):
    other = server.client()
    c("WATCH", "lane")
    other.push("lane", 1)
    c("MULTI")
    c("PING")
    assert c("EXEC") is None


# ---- commands as the server knows them ----

def test_every_command_is_documented(c):
    docs = c("COMMAND", "DOCS", *[f"lane.{n}" for n in COMMANDS])
    docs = {docs[i].decode().upper(): docs[i + 1] for i in range(0, len(docs), 2)}
    assert set(docs) == {f"LANE.{n}" for n in COMMANDS}
    for name, flat in docs.items():
        doc = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
        assert doc[b"summary"] and doc[b"complexity"] and doc[b"since"] == b"1.0.0" and (b"arguments" in doc) == (name != "LANE.BEATS"), name


def test_registered_are_exactly_the_documented_ones(c):
    names = {n.decode().upper() for n in c("COMMAND", "LIST", "FILTERBY", "MODULE", "lane")}
    assert names == {f"LANE.{n}" for n in COMMANDS}


@pytest.mark.parametrize("words, keys", [
    (["LANE.PUSH", 2, "a", "b", "ENTRIES", 0], "a b"), (["LANE.PUT", "a", "body"], "a"), (["LANE.MPUT", "a", "", 3], "a"), (["LANE.TAKE", 3, "a", "b", "c", "COUNT", 1], "a b c"),
    (["LANE.CREATE", "a", "MAXLEN", 1, "DEAD", "d"], "a d"), (["LANE.CREATE", "a", "STRICT"], "a"), (["LANE.MOVE", "a", "b", "UPTO", 1], "a b"),
    (["LANE.ACK", "a", "UPTO", 1], "a"), (["LANE.REVOKE", "a", ident(1)], "a"), (["LANE.META", "a", 1, ident(1), 1, ""], "a"),
    (["LANE.NACK", "a", 1, "RETRY", 0, "UPTO", 1], "a"), (["LANE.EXTEND", "a", 1, 1, "UPTO", 1], "a"), (["LANE.READ", "a", 0], "a"),
    (["LANE.GET", "a", "UPTO", 1], "a"), (["LANE.IDS", "a", 0], "a"), (["LANE.LEN", "a"], "a"), (["LANE.INFO", "a"], "a"), (["LANE.RESET", "a"], "a"),
    (["LANE.APPLY", "a", "CLEAR"], "a")], ids=lambda w: str(w[0]) if isinstance(w, list) else None)
def test_keys_are_found(c, words, keys):
    assert b" ".join(c("COMMAND", "GETKEYS", *words)).decode() == keys


def test_acl_key_patterns_hold(server, c):
    c("ACL", "SETUSER", "relay", "on", "nopass", "+@all", "~mine:*", "%R~seen:*")
    c.push("mine:a", 1)
    c.push("seen:a", 2)
    user = server.client()
    user("AUTH", "relay", "x")
    assert user.ids("mine:a") == [1] and user("LANE.LEN", "seen:a") == 1
    assert user("LANE.INFO")[0] == b"version"
    for words in (["LANE.PUSH", 2, "mine:a", "yours", "ENTRIES", 0], ["LANE.TAKE", 1, "seen:a"], ["LANE.TAKE", 2, "mine:a", "yours"],
                  ["LANE.ACK", "seen:a", "UPTO", 1], ["LANE.CREATE", "mine:b", "DEAD", "yours"], ["LANE.MOVE", "mine:a", "yours", "UPTO", 1],
                  ["LANE.LEN", "yours"]):
        with pytest.raises(ReplyError, match="^NOPERM"):
            user(*words)


def test_acl_refusal_does_not_use_a_transaction_number(server, c):
    c("ACL", "SETUSER", "milter", "on", "nopass", "+@all", "~mine:*")
    user = server.client()
    user("AUTH", "milter", "x")
    with pytest.raises(ReplyError, match="^NOPERM"):
        user("LANE.PUSH", 1, "yours", "SESSION", "acl", 1, "ENTRIES", 0)
    assert user("LANE.PUSH", 1, "mine:a", "SESSION", "acl", 1, "ENTRIES", 0)[0] == 1


def test_apply_is_not_for_clients(c):
    with pytest.raises(ReplyError, match="^ERR LANE.APPLY is for replication"):
        c("LANE.APPLY", "lane", "CLEAR")


def test_read_only_scripts_may_look(c):
    c.push("lane", 1)
    assert c("EVAL_RO", "return redis.call('LANE.LEN', KEYS[1])", 1, "lane") == 1
    with pytest.raises(ReplyError):
        c("EVAL_RO", "return redis.call('LANE.ACK', KEYS[1], 'UPTO', 1)", 1, "lane")


# ---- settings ----

def test_settings(c):
    assert c("CONFIG", "GET", "lane.node")[1] == b"mx1"
    c("CONFIG", "SET", "lane.node", "mx2.example.net")
    assert c.info()["node"] == b"mx2.example.net"
    c("CONFIG", "SET", "lane.node", "mx1")
    for name, value in (("lane.node", "two words"), ("lane.node", "x" * 65), ("lane.settle-ms", -1), ("lane.lease-ms", 0), ("lane.max-sessions", 0)):
        with pytest.raises(ReplyError):
            c("CONFIG", "SET", name, value)
    assert c("CONFIG", "GET", "lane.lease-ms")[1] == b"60000"


def test_settings_in_the_file_beside_loadmodule(tmp_path):
    conf = tmp_path / "redis.conf"
    conf.write_text(f"loadmodule {MODULE}\nlane.node mx9\nlane.settle-ms 1234\n")
    with LaneServer(tmp_path, str(conf), module_line=False) as server:
        i = server.client().info()
        assert i["node"] == b"mx9" and i["settle-ms"] == 1234


def test_only_onload_is_exported():
    if not shutil.which("nm") or ASAN:
        pytest.skip("no nm, or a sanitized build")
    out = subprocess.run(["nm", "-D", "--defined-only", BUILD / "redis-module" / "lane.so"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in out.splitlines()] == ["RedisModule_OnLoad"]


def test_module_refuses_arguments(tmp_path):
    server = LaneServer(tmp_path, "--loadmodule", str(MODULE), "node=mx1", module_line=False)
    with pytest.raises(AssertionError, match="ended"):
        server.start()
    assert server.log_says("takes no arguments")
    server.stop(quiet=True)
