"""What each program's user may do in a node's Redis: every command that the server has is tried as every user, with every kind of key. All that succeeds is in the table
below, so a command that is new, or a right that is, fails here until somebody has decided who may have it."""
import re

import pytest

from support.lane_server import BUILD, LaneServer, ReplyError, ident
from support.stack.secure import Secure

pytestmark = [pytest.mark.core, pytest.mark.long]

MAIL, ORDER = "dovelane:smtp:[h]:25|mx1>mx2", "dovelane:order"
SITES = "site-a", "site-b", "site-c"
LANES = {site: {f"dovelane:replica:{site}>{other}{kind}" for other in SITES if other != site for kind in ("", ":bulk")} for site in SITES}
REPLICA = set().union(*LANES.values())
ASKED, ANSWERED = {f"dovelane:asked:{n}" for n in (1, 2, 3)}, "dovelane:answered:mx1"
SIGNALS = {f"dovelane.{name}" for name in ("divert", "holds", "shape", "nodes", "drain", "look", "away", "config", "group", "group.site-a")}
BUCKETS = {f"dovelane.bucket:smtp:[h]:25{kind}" for kind in ("", "|connections", "|backoff")}
KEYS = {MAIL, ORDER, "other", ANSWERED, *ASKED, *REPLICA, *SIGNALS, *BUCKETS}

# Which of the module's commands a program may have at all; the admin's, and those that nobody has.
MODULE = {"lane.create", "lane.push", "lane.put", "lane.mput", "lane.ack", "lane.revoke", "lane.meta", "lane.take", "lane.nack", "lane.extend", "lane.read", "lane.get", "lane.ids",
          "lane.move", "lane.ready", "lane.list", "lane.len", "lane.info", "lane.beat", "lane.beats", "lane.whole", "lane.reset", "lane.check", "lane.apply"}


def on(keys, *commands):
    return {(command, key) for command in commands for key in ({keys} if isinstance(keys, str) else keys)}


def alone(*commands):
    return {(command, None) for command in commands}


CONNECTION = alone("auth", "hello", "quit", "reset", "ping", "client|setname", "lane.info")
STORES = alone("lane.beats", "lane.list") | on(MAIL, "lane.push", "lane.revoke", "lane.info") | on({"dovelane.divert", "dovelane.holds", "dovelane.shape", "dovelane.nodes"}, "get")
NOTICES = {"dovelane.divert", "dovelane.holds", "dovelane.shape", "dovelane.nodes"}

MAY = {
    "dovelane-milter": STORES,
    "dovelane-proxy": STORES,
    "dovelane-relay":
        alone("lane.beat", "lane.whole", "lane.list", "lane.ready", "multi", "exec") |
        on({MAIL, ORDER}, "lane.push", "lane.take", "lane.ack", "lane.nack", "lane.extend", "lane.meta", "lane.read", "lane.get", "lane.ids", "lane.len", "lane.move", "lane.info") |
        alone("time") | on(BUCKETS, "eval", "get", "set", "hget", "hgetall", "hset", "hdel", "pexpire", "pexpireat") |
        on(NOTICES, "get", "set", "eval") | on("dovelane.drain", "get") | on("dovelane.look", "spop") | on({"dovelane.away", "dovelane.config"}, "eval", "del", "hset", "pexpire") |
        on(ASKED, "lane.push") | on(ANSWERED, "lane.take", "lane.ack"),
    "dovelane":
        alone("lane.beats", "lane.whole", "lane.list", "client|list", "config|get", "info", "time", "acl|getuser") |
        on(MAIL, "lane.read", "lane.get", "lane.ack", "lane.meta", "lane.info") |
        on(SIGNALS, "get", "set", "del", "exists", "sadd", "hget", "hgetall", "eval"),
    "dovelane-replicator":
        alone("lane.ready") | on(REPLICA, "lane.create", "lane.push", "lane.take", "lane.ack", "lane.len", "lane.info") |
        on(ASKED, "lane.take", "lane.ack") | on(ANSWERED, "lane.push"),
}


def to(site, other):
    return {lane for lane in LANES[site] if lane.removesuffix(":bulk").endswith(f">{other}")}


for one in SITES:
    for node in SITES:
        MAY[f"dovelane-replicator:{one}@{node}"] = (
            on(LANES[one], "lane.create", "lane.push", "lane.len") | on(f"dovelane:asked:{SITES.index(one) + 1}", "lane.take", "lane.ack") |
            on(ANSWERED, "lane.push") if one == node else
            alone("lane.ready") | on(to(node, one), "lane.take", "lane.ack", "lane.info"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("rights")
    with LaneServer(place, "--lane.settle-ms", "0") as s:
        files = Secure(place / "secure", BUILD, sites=SITES)
        s.users, s.files = {}, files
        for line in files.acl().splitlines()[1:]:
            name, rest = line.split(None, 2)[1:]
            s.client()("ACL", "SETUSER", name, "reset", *re.findall(r"\([^)]*\)|\S+", rest))
            s.users[name] = files.password(name)
        yield s


def as_user(server, name):
    c = server.client()
    c("AUTH", name, server.users[name])
    return c


# ---- every command ----

def pairs(flat):
    return {flat[i].decode() if isinstance(flat[i], bytes) else flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def words_with(name, info, key):
    """A call of the command in which each key, and each word whose meaning is not known, is `key`. None: it has no keys."""
    arity, specs = info[1], info[8]
    command = name.split("|")
    words = command + [key] * (abs(arity) - len(command))
    if not specs:
        return None
    for spec in map(pairs, specs):
        begin, find = pairs(spec["begin_search"]), pairs(spec["find_keys"])
        where, how = pairs(begin["spec"]) if begin["spec"] else {}, pairs(find["spec"]) if find["spec"] else {}
        if text(begin["type"]) != "index":
            continue  # behind a word: those that have it have another key before
        at = where["index"]
        first = at
        if text(find["type"]) == "keynum":
            first = at + how["firstkey"]
            words += [key] * (first + 1 - len(words))
            words[at + how["keynumidx"]] = "1"
        words += [key] * (first + 1 - len(words))
    return words


def every(server):
    c = server.client()
    names = sorted(text(name) for name in c("COMMAND", "LIST"))
    return [(name.lower(), info) for name, info in zip(names, c("COMMAND", "INFO", *names))]


def dry(c, user, words):
    """Whether the server would let the user. What is no call at all it refuses by other words: those must not pass for a refusal."""
    answer = c.pipe(["ACL", "DRYRUN", user, *words])[0]
    if isinstance(answer, ReplyError):
        raise AssertionError((user, words, answer))
    return text(answer) == "OK"


def calls(server):
    """(command, key or None, words) of all that there is to try."""
    for name, info in every(server):
        assert info, name
        command, arity = name.split("|"), info[1]
        if "|" not in name and info[9]:
            continue  # of several parts, each of which is a command of its own here
        if words_with(name, info, "other") is None:
            yield name, None, command + ["other"] * (abs(arity) - len(command))
            continue
        if -len(command) <= arity < 0:
            yield name, None, command
        for key in sorted(KEYS):
            yield name, key, words_with(name, info, key)


def test_the_table_has_every_command_of_the_module(server):
    assert {name for name, _ in every(server) if name.startswith("lane.")} == MODULE


@pytest.mark.parametrize("user", MAY)
def test_a_user_may_do_what_the_table_says_and_nothing_else(server, user):
    c = server.client()
    tried = list(calls(server))
    assert len({name for name, _, _ in tried}) > 250, "the server has told of its commands"
    may = {(name, key) for name, key, words in tried if dry(c, user, words)}
    assert may == MAY[user] | CONNECTION


def test_the_table_has_every_user(server):
    assert set(server.users) == set(MAY)


def test_the_users_of_a_replicas_node_can_be_had_alone(server):
    def users(*words):
        return {line.split()[1] for line in server.files.acl(*words).splitlines()[1:] if "@" in line.split()[1]}
    for node in SITES:
        assert users("--site", node) == {f"dovelane-replicator:{site}@{node}" for site in SITES}
    assert users("--site", "-") == set()
    for name, password in server.users.items():
        assert as_user(server, name)("PING") == "PONG", password


# ---- a command that may be called, for what it must not do ----

def entries(server, lane):
    return server.client()("LANE.LEN", lane)


@pytest.mark.parametrize("user", ["dovelane-milter", "dovelane-proxy"])
def test_who_stores_takes_away_nothing_that_others_stored(server, user):
    c, u = server.client(), as_user(server, user)
    c("DEL", MAIL)
    c.push(MAIL, 1, 2, 3)
    for words in (["LANE.PUSH", 1, MAIL, "ENTRIES", 0, "ACK", 1, "UPTO", 2**62], ["LANE.PUSH", 1, MAIL, "ENTRIES", 1, 1, ident(9), "", "x", "ACK", 1, "IDS", 1, ident(1)]):
        with pytest.raises(ReplyError, match="NOPERM"):
            u(*words)
    assert entries(server, MAIL) == 3
    # Whoever does not know an id cannot take it back, and whoever has one learns nothing of the others.
    u("LANE.REVOKE", MAIL, ident(77))
    assert entries(server, MAIL) == 3


@pytest.mark.parametrize("user", ["dovelane-milter", "dovelane-proxy", "dovelane", "dovelane-replicator"])
def test_only_a_relay_beats(server, user):
    u = as_user(server, user)
    server.client()("LANE.BEAT", "mx1", "true", 1, "state=alive")
    for words in (["LANE.BEAT", "mx1", "forged", 2, "state=alive"], ["LANE.BEAT"], ["LANE.BEATS", "mx1", "forged", 2, "state=alive"]):
        with pytest.raises(ReplyError, match="NOPERM|wrong number"):
            u(*words)
    assert [beat[1] for beat in server.client()("LANE.BEATS")[0] if beat[0] == b"mx1"] == [b"true"]


@pytest.mark.parametrize("user", ["dovelane-milter", "dovelane-proxy", "dovelane-replicator"])
@pytest.mark.parametrize("words", [["EVAL", "while true do end", 0], ["EVAL", "return 1", 1, "dovelane.divert"], ["EVALSHA", "0" * 40, 0], ["FCALL", "f", 0], ["FUNCTION", "LIST"],
                                   ["SCRIPT", "FLUSH"], ["SET", "dovelane.divert", "9 off x"], ["SET", "dovelane.holds", "9 on x"]], ids=lambda words: " ".join(map(str, words[:2])))
def test_no_scripts_and_no_word_of_an_admin(server, user, words):
    with pytest.raises(ReplyError, match="NOPERM"):
        as_user(server, user)(*words)
    assert server.client()("EXISTS", "dovelane.divert", "dovelane.holds") == 0
