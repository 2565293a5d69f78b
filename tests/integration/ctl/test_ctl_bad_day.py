"""The admin's commands while nodes vanish, Postfix refuses, and another admin does the same."""
import signal
import subprocess

from support import admin
import pytest
from support.relay_world import World
from support.stack import programs
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture
def world(stack, tmp_path):
    """Two nodes; relays that are not started yet, and a port back that the test controls."""
    worlds = []

    def start(**settings):
        w = World(stack, tmp_path, relays=(), revoke_wait="100ms", **settings)
        worlds.append(w)
        back = w.peer()
        for node in w.stack.nodes:
            programs.write_settings(w.relay(node), {"reinject_port": f"127.0.0.1:{back.port}"})
        return w, w.peer(), back

    yield start
    for each in worlds:
        each.end()


def begin(w, *words):
    return subprocess.Popen([w.stack.shape.build / "ctl" / "dovelane", "-c", w.relay().note["conf"], *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_a_drain_calls_no_lane_empty_that_it_cannot_see(world):
    """All nodes hang in the middle of it."""
    w, peer, _ = world()
    for number in range(10):
        w.store(peer, f"b{number}@example.net")
    drain = begin(w, "drain", "--to-postfix")
    eventually("it has begun", lambda: w.connections["mx1"].call("EXISTS", "dovelane.drain"))
    for node in w.stack.nodes:
        w.stack.stop(f"redis-{node}")
    out, err = drain.communicate(timeout=120)
    for node in w.stack.nodes:
        w.stack.cont(f"redis-{node}")
    assert drain.returncode == 1 and "lanes are empty" not in out
    assert "node mx1" in err and "node mx2" in err and "as far as the nodes that answer know" in err


def test_a_drain_without_a_node_says_so(world):
    w, peer, _ = world()
    w.store(peer, "b@example.net", owners=("mx2",))
    w.stack.stop("redis-mx2")
    said = admin.run(w.stack, "drain", "--to-postfix", timeout=120)
    w.stack.cont("redis-mx2")
    assert said.status == 1 and "lanes are empty" not in said.out and "what only it holds is not in Postfix's queue" in said.err


def test_a_node_that_is_lost_in_the_middle_of_delete_is_said_to_be_away(world):
    """What was marked on the others is deleted in the end, so it must not be called unchanged."""
    w, peer, _ = world()
    for number in range(1000):
        w.store(peer, f"b{number}@example.net")
    delete = begin(w, "delete", "--all")
    eventually("it has begun", lambda: w.length("mx1") < 1000)
    w.stack.stop("redis-mx2")
    out, err = delete.communicate(timeout=60)
    w.stack.cont("redis-mx2")
    assert delete.returncode == 1 and out.startswith("1000 mails deleted") and "could not be changed" not in err, (out, err)
    assert "keeps its copy as it was" in err
    w.stack.start("relay-mx1")
    w.empty()
    assert not peer.mails


def test_what_postfix_never_takes_keeps_nothing_back(world):
    """More such mails, and older ones, than are looked at together."""
    w, peer, back = world()
    peer.down()
    back.say("RCPT", "554 5.7.1 never", match="poison")
    for number in range(120):
        w.store(peer, f"poison{number}@example.net")
    for number in range(50):
        w.store(peer, f"b{number}@example.net")
    w.stack.start("relay-mx1")
    drain = begin(w, "drain", "--to-postfix")
    try:
        eventually("the others are in Postfix's queue", lambda: w.length("mx1") == 120, 60)
    finally:
        drain.send_signal(signal.SIGINT)
        drain.communicate(timeout=60)
        peer.up()
    w.empty()
    assert len(back.mails) == 50 and len(peer.mails) == 120, "each by one way, once"


def test_release_ends_a_requeue_that_postfix_refuses(world):
    w, peer, back = world()
    peer.down()
    back.say("RCPT", "554 5.7.1 never")
    w.stack.start("relay-mx1")
    w.store(peer, "b@example.net", queue_id="BACK1")
    admin.done(w.stack, "requeue", "BACK1")
    w.logged("did not take it")
    peer.up()
    assert admin.done(w.stack, "release", "BACK1").startswith("1 mail released.")
    w.empty()
    assert len(peer.mails) == 1 and not back.mails


def test_rules_of_admins_who_are_there_at_once_are_all_kept(world):
    w, _, _ = world()
    admins = [begin(w, "hold", "--add", "--sender", f"x{number}@*") for number in range(8)]
    for each in admins:
        assert each.wait(timeout=60) == 1  # no milter
        each.communicate()
    listed = admin.run(w.stack, "hold", "--list").out
    # One whose answer came too late is said again, and then there twice, which does no harm.
    assert sorted({line.split("'")[1] for line in listed.splitlines()}) == [f"x{number}@*" for number in range(8)]


def closed(w, which, *words):
    """The command with these descriptors closed by its caller."""
    program = w.stack.shape.build / "ctl" / "dovelane"
    config = w.stack["relay-mx1"].note["conf"]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {which}', "sh", program, "-c", config, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_printed_goes_to_no_node(world):
    """Without 0, 1 and 2 the connection to a node would be one of them."""
    w, *_ = world(nodes=3)
    w.stack.kill("redis-mx2")
    for words in (("nodes", "-v"), ("mailq",), ("show", "Q1"), ("hold", "--all", "--yes")):
        assert closed(w, "<&- >&- 2>&-", *words).returncode in (1, 2)
    for node in ("mx1", "mx3"):
        errors = w.connections[node].call("INFO", "errorstats").decode()
        assert "errorstat_ERR:" not in errors, errors


@pytest.mark.parametrize(
    "words", [("mailq",), ("--help",), ("trace", "--help"), ("-j", "nodes")], ids=str
)
@pytest.mark.parametrize("where, why", [(">/dev/full", "No space left"), (">&-", "Bad file desc")])
def test_output_that_is_lost_is_said(world, words, where, why):
    w, *_ = world()
    said = closed(w, where, *words)
    assert said.returncode == 2 and "the output cannot be written: " + why in said.stderr, said
