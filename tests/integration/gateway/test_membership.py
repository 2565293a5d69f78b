"""Who belongs to a group: a node's name is asked for on every connection, so one server can never be two copies."""
import re
from pathlib import Path

import pytest

from support import admin
from support import envelope
from support.stack import programs, resp
from support.stack.scrape import Page
from support.waiting import eventually
from test_takeover import ALONE, alive, fill, recipients, reconnect, state, whole, world  # noqa: F401  (world: a fixture)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("how", ["one server, two names", "two servers, one name"])
def test_two_nodes_are_two_servers_with_names_of_their_own(world, how):  # noqa: F811
    """mx3 is mx2's server by another address; or a server of its own that says it is mx2."""
    w = world(alive=False, relays=(), nodes=2 if how.startswith("one") else 3)
    if how.startswith("one"):
        third = f"unix:{w.stack.directory}/mx2/redis.sock"
    else:
        third = w.stack.nodes["mx3"]
        w.connections["mx3"].call("CONFIG", "SET", "lane.node", "mx2")
    for node in ("mx1", "mx2"):
        w.relay(node).note["nodes"] = {**{name: w.stack.nodes[name] for name in ("mx1", "mx2")}, "mx3": third}
        programs.write_settings(w.relay(node))
        w.stack.start(f"relay-{node}")
    for node in ("mx1", "mx2"):
        w.logged(r'warning: node mx3 \(\S+, relay-\w+\): it says it is node "mx2": set lane.node mx3 there, or mend the address in dovelane.conf', node)
        alive(w, node)
    eventually("they are whole for the two that there are", lambda: whole(w, "mx1") == whole(w, "mx2") == {"mx1+mx2"})
    said = admin.run(w.stack, "check", "nodes")
    assert said.status == 2 and 'node mx3' in said.out and 'it says it is node "mx2"' in said.out + said.err, said
    peer = w.peer()
    w.store(peer)
    w.empty("mx1", "mx2")
    assert len(peer.mails) == 1


TWO_AND_ONE = {"mx1": ("mx1", "mx2"), "mx2": ("mx1", "mx2"), "mx3": ("mx3", "mx1")}
RING = {"mx1": ("mx1", "mx2"), "mx2": ("mx2", "mx3"), "mx3": ("mx3", "mx1")}


def learned(world, files=TWO_AND_ONE, **options):  # noqa: F811
    """Three hosts of which no file names all nodes: mx1's and mx2's these two, mx3's itself and mx1, or as `files` has it."""
    w = world(alive=False, relays=(), nodes=3, **{**ALONE, "membership": "learned", **options})
    for node, known in files.items():
        service = w.relay(node)
        state = Path(service.note["conf"]).parent / "state"
        state.mkdir()
        service.note["nodes"] = {name: w.stack.nodes[name] for name in known}
        programs.write_settings(service, {"state_directory": str(state)})
    return w


def begun(w, *nodes):
    for node in nodes:
        w.stack.start(f"relay-{node}")
    for node in nodes:
        alive(w, node)


PAIRS = {"mx1": {"mx1+mx2", "mx1+mx3"}, "mx2": {"mx1+mx2", "mx2+mx3"}, "mx3": {"mx1+mx3", "mx2+mx3"}}


def all_three(w):
    for node, sets in PAIRS.items():
        eventually(f"{node} is whole with each other node", lambda node=node, sets=sets: whole(w, node) == sets)
        alive(w, node)


def whole_servers(system, *nodes):
    """They are alive, and whole for each pair that they make."""
    def look():
        for node in nodes:
            with resp.Connection(system.nodes[node]) as connection:
                beats, sets = connection.call("LANE.BEAT")
            if not any(beat[0].decode() == node and "state=alive" in beat[4].decode() for beat in beats):
                return False
            if not {"+".join(sorted((node, other))).encode() for other in nodes if other != node} <= set(sets[::2]):
                return False
        return True
    eventually(f"{nodes} are alive and whole", look, 60)


def content(w, node):
    """`dovelane nodes` on that host finds nothing to look at; what it prints."""
    said = []

    def good():
        said.append(admin.run(w.stack, "nodes", node=node))
        return said[-1].status == 0
    try:
        eventually(f"dovelane nodes at {node}", good)
    except AssertionError as error:
        raise AssertionError(said[-1].out + said[-1].err) from error
    return said[-1].out


def forgotten(system, node, seconds=60):
    """`dovelane nodes --forget` is refused while the node is needed, says so with 2, and does it in the end, with 0."""
    said = []

    def taken_out():
        said.append(admin.run(system, "nodes", "--forget", node))
        return said[-1].status != 2
    eventually(f"{node} is taken out", taken_out, seconds)
    assert said[-1].status == 0 and f"node {node} is not in the group any more" in said[-1].out and "does not answer" not in said[-1].err, said[-1]


def test_a_new_node_needs_one_address(world):  # noqa: F811
    """Its file names itself and one other; the others learn of it while they run, and it comes back without the one that it was given."""
    w = learned(world)
    begun(w, "mx1", "mx2")
    eventually("both are whole for the two", lambda: whole(w, "mx1") == whole(w, "mx2") == {"mx1+mx2"})
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    fill(w, peer, 20)
    w.stack.start("relay-mx3")
    all_three(w)
    assert w.count("returning", "mx1") == w.count("returning", "mx2") == 1, "nobody stopped working for it"
    w.logged("node mx3 is one of the group now", "mx1")
    w.logged("node mx2 is one of the group now", "mx3")
    out = content(w, "mx1")
    assert re.search(r"(?m)^mx3 +alive .*yes", out) and "mx3 joined: it has no section in" in out, out
    content(w, "mx3")  # the same configuration, in whatever order each learned of the nodes
    peer.well()
    w.store(peer, "new@example.net", owners=["mx3", "mx2"])
    w.empty()
    assert sorted(recipients(peer)) == sorted(["new@example.net", *(f"u{i}@example.net" for i in range(20))])
    # The only node that its file names is away: it knows the other one.
    w.stack.kill("relay-mx1")
    w.stack.kill("redis-mx1")
    w.stack.kill("relay-mx3")
    w.stack.start("relay-mx3")
    w.logged("returning", "mx3", times=2)
    eventually("mx3 is alive", lambda: state(w, "mx3", "mx2") == "alive")
    w.store(peer, "again@example.net", owners=["mx3", "mx2"])
    w.store(peer, "taken@example.net", owners=["mx1", "mx3"], copies=["mx3"])
    w.empty("mx2", "mx3")
    assert {"again@example.net", "taken@example.net"} <= set(recipients(peer))


def other_user(w, away, at):
    """The relay of `away` has a user of its own, which the server of `at` does not know, as if a firewall were between them, one way. What opens it."""
    user = Path(w.relay(away).note["conf"]).parent / "user"
    user.write_text("other secret\n")
    user.chmod(0o600)
    programs.write_settings(w.relay(away), {"node_user_file": str(user)})

    def let_in(server):
        w.connections[server].call("ACL", "SETUSER", "other", "on", ">secret", "allkeys", "allcommands")
    for server in set(w.connections) - {at}:
        let_in(server)
    return lambda: let_in(at)


def test_nodes_whose_files_name_each_other_in_a_ring_begin_together(world):  # noqa: F811
    """Each has a section of one, and is in the file of the other: none of them waits until the one that it does not know is one of the group."""
    w = learned(world, RING)
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)
    assert not any(w.count("not in the group yet", node) for node in RING)
    content(w, "mx1")


def test_in_a_ring_too_each_reaches_all_before_it_counts(world):  # noqa: F811
    """mx1 does not reach mx3, which it has no section of: its log names that one."""
    w = learned(world, RING)
    let_in = other_user(w, "mx1", "mx3")
    for node in RING:
        w.stack.start(f"relay-{node}")
    w.logged("not in the group yet, and takes nothing: it does not reach node mx3. Mend that", "mx1")
    w.logged("not in the group yet, and takes nothing: it is not reached by node mx1. Mend that", "mx3")
    assert known(w, "mx1") == {"mx2"} and state(w, "mx1") == "returning"
    let_in()
    all_three(w)


def test_who_hears_nobody_takes_nothing_before_it_has_joined(world):  # noqa: F811
    """Nor does it go on without the others by itself, however long: an admin says that they are gone for good."""
    w = learned(world)
    w.stack.kill("redis-mx1")
    w.stack.start("relay-mx3")
    w.logged("not in the group yet, and takes nothing: no other node's server has told which nodes there are", "mx3")

    def waits():
        since = re.search(rb"state=(\w+) since=(\d+)", dict((beat[0], beat[4]) for beat in w.connections["mx3"].call("LANE.BEAT")[0])[b"mx3"])
        assert since[1] == b"returning"
        return int(since[2]) > 15  # settle, alone_wait and dead_after are over
    eventually("it has waited", waits)
    w.configure("mx3", dead='{"mx1"}')
    alive(w, "mx3")


def test_who_joins_is_not_held_up_by_a_table_that_changes_all_the_time(world):  # noqa: F811
    w = learned(world)
    begun(w, "mx1", "mx2")
    serial = 0

    def joined():
        nonlocal serial
        serial += 1
        mx1 = w.connections["mx1"]
        mx1.call("SET", "dovelane.nodes", f"{serial} gone mx8\n" + re.sub(r"\d+ gone mx8\n", "", (mx1.call("GET", "dovelane.nodes") or b"").decode()))
        return "it is one of the group now" in w.log("mx3")
    w.stack.start("relay-mx3")
    eventually("mx3 has joined", joined)


def known(w, node):
    """Whom the node's relay counts, by its last beat."""
    texts = {name.decode(): text.decode() for name, _, _, _, text in w.connections[node].call("LANE.BEAT")[0]}
    return set(re.findall(r"(?:=|,)([a-z0-9]+):", texts.get(node, "")))


@pytest.mark.parametrize("away, at, said", [("mx2", "mx3", "it is not reached by node mx2"), ("mx3", "mx2", "it does not reach node mx2")], ids=["not reached", "does not reach"])
def test_a_newcomer_that_not_all_reach_holds_nobody_up(world, away, at, said):  # noqa: F811
    w = learned(world)
    let_in = other_user(w, away, at)
    begun(w, "mx1", "mx2")
    eventually("both are whole for the two", lambda: whole(w, "mx1") == whole(w, "mx2") == {"mx1+mx2"})
    w.stack.start("relay-mx3")
    w.logged(f"warning: this node is not in the group yet, and takes nothing: {said}", "mx3")
    w.logged(r"node mx3 \(\S+, relay-join\): connected", "mx1")
    assert known(w, "mx1") == {"mx2"} and known(w, "mx2") == {"mx1"} and state(w, "mx3", "mx3") == "returning"
    shown = admin.run(w.stack, "nodes", node="mx1")
    assert shown.status == 1 and re.search(r"(?m)^mx3 \(\S+\) is joining: ", shown.out), shown
    # Neither who returns waits for it, nor whose memory of it is new, nor ordered mail of two generations.
    w.connections["mx1"].call("FLUSHALL")
    w.logged(r"returning \(not whole\)", "mx1")
    w.stack.kill("relay-mx2")
    w.stack.start("relay-mx2")
    eventually("mx2 is back", lambda: w.count("(?m)alive$|: alive|alive, though", "mx2") >= 2)
    alive(w, "mx1")
    eventually("both are whole for the two", lambda: whole(w, "mx1") == whole(w, "mx2") == {"mx1+mx2"})
    peer = w.peer()
    for generation in (5, 6):
        for node in ("mx1", "mx2"):
            w.push(node, w.lane(peer) + f"|mx1.{generation}", (b"%016d" % generation, envelope.encode([f"u{generation}@example.net"]), b"Subject: x\r\n\r\nx\r\n"))
    w.empty("mx1", "mx2")
    assert recipients(peer) == ["u5@example.net", "u6@example.net"]
    assert known(w, "mx1") == {"mx2"} and known(w, "mx2") == {"mx1"}
    # The way is open.
    let_in()
    w.logged("every node that beats reaches this one: it is one of the group now", "mx3")
    all_three(w)
    content(w, "mx1")


def test_a_node_that_joins_and_is_not_wanted_is_forgotten_at_once(world):  # noqa: F811
    w = learned(world)
    begun(w, "mx1", "mx2")
    w.connections["mx1"].call("SET", "dovelane.nodes", "1 joining mx4 127.0.0.1:1 - - -\n" + (w.connections["mx1"].call("GET", "dovelane.nodes") or b"").decode())
    eventually("all know", lambda: b"1 joining mx4" in (w.connections["mx2"].call("GET", "dovelane.nodes") or b""))
    assert "mx4 (127.0.0.1:1) is joining" in admin.run(w.stack, "nodes").out
    w.logged(r"node mx4 \(127.0.0.1:1, relay-join\): connect", "mx2")
    forgotten(w.stack, "mx4")
    eventually("nobody waits for it", lambda: all(b" gone mx4" in w.connections[node].call("GET", "dovelane.nodes") for node in ("mx1", "mx2")))
    assert known(w, "mx1") == {"mx2"}


def test_what_no_node_takes_is_not_done(world):  # noqa: F811
    """The command says so with 2 and nothing else; where one node did not take it, with 1."""
    w = learned(world)
    user = Path(w.relay("mx1").note["conf"]).parent / "admin"
    user.write_text("admin secret\n")
    user.chmod(0o600)
    begun(w, "mx1", "mx2")
    programs.write_settings(w.relay("mx1"), {"node_user_file": str(user)})
    w.connections["mx1"].call("SET", "dovelane.nodes", "1 joining mx4 127.0.0.1:1 - - -\n" + (w.connections["mx1"].call("GET", "dovelane.nodes") or b"").decode())
    eventually("all know", lambda: b"1 joining mx4" in (w.connections["mx2"].call("GET", "dovelane.nodes") or b""))

    def may(rights, *nodes):
        for node in nodes:
            w.connections[node].call("ACL", "SETUSER", "admin", "on", ">secret", "allkeys", "allcommands", rights)
    may("-eval", "mx1", "mx2")
    said = admin.run(w.stack, "nodes", "--forget", "mx4")
    assert said.status == 2 and "node mx2 did not take it" in said.err and "no node took it" in said.err and "not in the group" not in said.out, said
    assert b"joining mx4" in w.connections["mx2"].call("GET", "dovelane.nodes")
    may("+eval", "mx1")
    said = admin.run(w.stack, "nodes", "--forget", "mx4")
    assert said.status == 1 and "node mx2 did not take it" in said.err and "node mx4 is not in the group any more" in said.out, said
    eventually("the relays tell the others", lambda: b" gone mx4" in w.connections["mx2"].call("GET", "dovelane.nodes"))


def test_a_node_that_joins_is_forgotten_only_when_nobody_holds_mail_with_it(world):  # noqa: F811
    """mx2 has a section of it, so it counts there, though mx1 does not reach it."""
    w = learned(world)
    other_user(w, "mx1", "mx3")
    begun(w, "mx1", "mx2")
    w.relay("mx2").note["nodes"]["mx3"] = w.stack.nodes["mx3"]
    w.configure("mx2")
    w.stack.start("relay-mx3")
    w.logged("not in the group yet, and takes nothing: it is not reached by node mx1", "mx3")
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    w.store(peer, "kept@example.net", owners=["mx2", "mx3"])

    def refused(why):
        said = admin.run(w.stack, "nodes", "--forget", "mx3")
        return said.status == 2 and re.search(why, said.err)
    assert refused("its relay beat .* stop it first")
    w.stack.kill("relay-mx3")
    eventually("its mail at mx2 is seen", lambda: refused("node mx2 shares 1 mails with it"))
    assert b"joining mx3" in w.connections["mx2"].call("GET", "dovelane.nodes")


def test_a_node_is_taken_out_for_good(world):  # noqa: F811
    w = learned(world, replace_after="3s")
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)
    peer = w.peer()
    peer.say("MAIL", "450 4.0.0 not now")
    forget = ("nodes", "--forget", "mx3")

    def refused(*words, why):
        said = admin.run(w.stack, *words)
        assert said.status == 2 and re.search(why, said.err), said

    refused(*forget, why=r"its relay beat \d.* \(alive\): stop it first")
    refused("nodes", "--forget", "mx2", why="it has a section in .*take the section out")
    refused("nodes", "--forget", "mx9", why="there is no such node")
    w.store(peer, "kept@example.net", owners=["mx2", "mx3"])
    w.store(peer, "alone@example.net", owners=["mx3"])
    w.stack.kill("relay-mx3")
    w.logged("node mx3 is dead", "mx1")
    w.logged("node mx3 is dead", "mx2")
    w.configure("mx1", hangup=False)
    refused(*forget, why=r"mx2 shares 1 mails with it.*copied")
    w.logged(r"node mx3 is lost for good: 1 of 1 mails were copied", "mx2", seconds=60)
    refused(*forget, "--lost", "mx9", why="there is no such node")
    eventually("what only it has is seen", lambda: "its server holds 1 mails that no other node has" in admin.run(w.stack, *forget).err)
    w.stack.kill("redis-mx3")
    # An admin's host that has sections alone knows not all who would have to be asked.
    state_directory = Path(w.relay("mx1").note["conf"]).parent / "state"
    w.configure("mx1", hangup=False, state_directory=str(state_directory / "none"))
    refused(*forget, why=r"node mx3 \(.*no program of this host has learned of it.*call this on a node's host")
    w.configure("mx1", hangup=False, state_directory=str(state_directory))
    forgotten(w.stack, "mx3")
    again = admin.run(w.stack, *forget)
    assert again.status == 0 and "node mx3 was taken out already" in again.out, again
    for node in ("mx1", "mx2"):
        w.logged(r"node mx3 is not in the group any more", node)
    out = content(w, "mx1")
    assert "mx3 was taken out for good" in out and not re.search("(?m)^mx3 +(alive|silent)", out), out
    # It comes back with its old file.
    w.stack.start("redis-mx3")
    reconnect(w, "mx3")
    w.stack.start("relay-mx3")
    w.logged(r"error: this node was taken out of the group by `dovelane nodes --forget`", "mx3")
    eventually("it is returning", lambda: state(w, "mx3", "mx3") == "returning")
    refused("nodes", "--join", "mx3", why="it has no section in")
    assert admin.run(w.stack, "nodes", "--join", "mx3", node="mx3").status in (0, 1)
    w.logged("this node may join the group again", "mx3")
    w.logged("it is one of the group now", "mx3")
    all_three(w)
    peer.well()
    w.store(peer, "new@example.net", owners=["mx3", "mx1"])
    w.empty()
    assert sorted(recipients(peer)) == ["kept@example.net", "new@example.net"]


def test_a_node_that_was_taken_out_is_no_metric_any_more(world):  # noqa: F811
    """Else an alert on silent nodes would go on until the relay is started again."""
    w = learned(world)
    page = Page("relay")
    programs.write_settings(w.relay("mx1"), {"metrics_listen": page.listen})
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)

    def of(node):
        return {name: value for name, value in page.values().items() if f'{{node="{node}"' in name}

    eventually("mx3 is there", lambda: of("mx3").get('node_state{node="mx3",state="alive"}') == 1)
    w.stack.kill("relay-mx3")
    w.stack.kill("redis-mx3")
    eventually(
        "mx3 is silent", lambda: of("mx3").get('node_state{node="mx3",state="silent"}') == 1
    )
    for node in ("mx1", "mx2"):
        w.logged("node mx3 is dead", node)
    forgotten(w.stack, "mx3")
    w.logged(r"node mx3 is not in the group any more", "mx1")
    eventually("mx3 is not there", lambda: not of("mx3"))
    assert of("mx2")['node_state{node="mx2",state="alive"}'] == 1
    page.close()


def test_a_node_that_is_taken_in_again_joins_as_a_new_one(world):  # noqa: F811
    """Not all reach it where it is now: it counts nowhere, though relays that go on since it was taken out still have its name."""
    w = learned(world, replace_after="3s")
    let_in = other_user(w, "mx2", "mx3")
    let_in()
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)
    w.stack.kill("relay-mx3")
    forgotten(w.stack, "mx3")
    for node in ("mx1", "mx2"):
        w.logged("node mx3 is not in the group any more", node)
    w.connections["mx3"].call("ACL", "DELUSER", "other")
    eventually("what mx2 said there is old", lambda: all(name != b"mx2" or age > 4000 for name, _, _, age, _ in w.connections["mx3"].call("LANE.BEAT")[0]))
    w.stack.start("relay-mx3")
    w.logged("error: this node was taken out of the group", "mx3")
    said = admin.run(w.stack, "nodes", "--join", "mx3", node="mx3")
    assert said.status in (0, 1) and "node mx3 may join again" in said.out, said
    w.logged("not in the group yet, and takes nothing: it is not reached by node mx2", "mx3")
    assert "mx3 (" in (shown := admin.run(w.stack, "nodes").out) and "is joining" in shown, shown
    assert state(w, "mx3", "mx3") == "returning"
    let_in()
    w.logged("it is one of the group now", "mx3")
    all_three(w)
    content(w, "mx1")


def test_a_server_that_does_not_tell_which_nodes_there_are_is_named(world):  # noqa: F811
    """Its relay is not ready before it does."""
    w = learned(world)
    begun(w, "mx1", "mx2")
    for node in ("mx1", "mx2"):
        w.stack.end(f"relay-{node}")
    w.connections["mx1"].call("DEL", "dovelane.nodes")
    w.connections["mx1"].call("LPUSH", "dovelane.nodes", "x")
    for node in ("mx1", "mx2"):
        w.stack.start(f"relay-{node}")
    for node, follows in (("mx1", "nothing is taken here after a start"), ("mx2", "nobody who joins is learned of from it")):
        w.logged(rf"error: node mx1 does not tell which nodes there are \(the key dovelane.nodes\): WRONGTYPE .*: DEL dovelane.nodes there. Until then {follows}", node)
    alive(w, "mx2")
    assert state(w, "mx1", "mx1") in (None, "returning")
    w.connections["mx1"].call("DEL", "dovelane.nodes")
    alive(w, "mx1")
    assert w.count("does not tell which nodes", "mx1") == w.count("tells which nodes there are again", "mx1") == 1


def test_a_file_of_nodes_that_cannot_be_read_is_no_empty_one(world):  # noqa: F811
    """Its relay says so, leaves it as it is, and takes nothing: it could deliver what belongs to nodes that it knew. It goes on by itself."""
    w = learned(world)
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)
    file = Path(w.relay("mx1").note["conf"]).parent / "state" / "nodes-dovelane-relay"
    kept, aside = file.read_text(), file.with_name("aside")
    file.rename(aside)
    file.symlink_to(file.name)
    w.configure("mx1")
    w.logged(r"error: \S+: the config stays as it was: \S+/nodes-dovelane-relay: Too many levels of symbolic links: who joined", "mx1")
    w.stack.kill("relay-mx1")
    w.stack.start("relay-mx1")
    w.logged(r"warning: \S+/nodes-dovelane-relay: Too many levels of symbolic links: who joined .* nothing is taken here until it can be read", "mx1")
    w.logged("returning", "mx1", times=2)
    said = admin.run(w.stack, "nodes").out
    assert re.search(r"(?m)^\S+/nodes-dovelane-relay: Too many levels of symbolic links: who joined", said), said
    assert state(w, "mx1") == "returning" and file.is_symlink() and "node mx3 " in kept
    aside.replace(file)
    all_three(w)
    assert "node mx3 " in file.read_text()


def test_a_node_that_is_taken_in_again_with_another_address_waits_for_restarts_that_the_log_asks_for(world):  # noqa: F811
    """Relays that go on since it was taken out have its place, and its old address."""
    w = learned(world, replace_after="3s")
    server = Path(w.stack["redis-mx3"].note["socket"].removeprefix("unix:"))
    before = server.with_name("before.sock")
    before.symlink_to(server.name)
    w.relay("mx3").note["nodes"]["mx3"] = f"unix:{before}"
    programs.write_settings(w.relay("mx3"))
    begun(w, "mx1", "mx2", "mx3")
    all_three(w)
    w.stack.kill("relay-mx3")
    forgotten(w.stack, "mx3")
    for node in ("mx1", "mx2"):
        w.logged("node mx3 is not in the group any more", node)
    before.unlink()
    w.connections["mx3"].call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually("what they said there is old", lambda: all(age > 4000 for _, _, _, age, _ in w.connections["mx3"].call("LANE.BEAT")[0]))
    w.relay("mx3").note["nodes"]["mx3"] = f"unix:{server}"
    programs.write_settings(w.relay("mx3"))
    w.stack.start("relay-mx3")
    w.logged("error: this node was taken out of the group", "mx3")
    assert admin.run(w.stack, "nodes", "--join", "mx3", node="mx3").status in (0, 1)
    for node in ("mx1", "mx2"):
        w.logged(rf"warning: node mx3 joins, reached otherwise \(.*{server}\) than it is known here \(.*{before}\)\. .* restart this relay", node)
    assert state(w, "mx3", "mx3") == "returning"
    for node in ("mx1", "mx2"):
        w.stack.kill(f"relay-{node}")
        w.stack.start(f"relay-{node}")
    w.logged("it is one of the group now", "mx3", times=2)
    all_three(w)
