"""dovelane top: what it shows of real nodes, once and in tmux; a dead node holds up nothing."""

import re
import shutil
import subprocess
import time

from support import admin, envelope, json_schemas
import pytest
from support.relay_world import World
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture
def world(stack, tmp_path):
    worlds = []

    def start(**options):
        worlds.append(World(stack, tmp_path, takeover="automatic", **options))
        return worlds[-1]

    yield start
    for each in worlds:
        each.end()


def once(w, *words, status=0):
    said = admin.run(w.stack, "top", "--once", "-j", *words)
    assert said.status == status, said
    return json_schemas.judged(said.out)


def alive(w):
    eventually("the nodes are alive", lambda: admin.run(w.stack, "nodes").status == 0)


def test_once(world):
    w = world(retry_first="1h", retry_most="1h")
    peer = w.peer()
    peer.say("RCPT", "450 4.2.0 greylisted", match="later@")
    for number in range(3):
        w.store(peer, "later@example.net", queue_id=f"later{number}")
    alive(w)
    made = once(w)
    assert [(each["node"], each["state"], each["entries"]) for each in made["nodes"]] == [
        ("mx1", "alive", 3),
        ("mx2", "alive", 3),
    ]
    (lane,) = made["lanes"]
    assert (
        lane["entries"] == 3
        and lane["copies"] == 2
        and lane["oldest_seconds"] >= 0
        and lane["in_per_second"] == 0
    )
    (hop,) = made["next_hops"]
    assert hop["next_hop"] == peer.destination and hop["entries"] == 3
    text = admin.done(w.stack, "top", "--once", "--sort", "age")
    assert re.search(r"(?m)^mx1 +alive ", text) and re.search(
        rf"(?m)^ +3 .*  {re.escape(w.lane(peer))}$", text
    ), text
    assert "\n\n ENTRIES" in text and "\\x" not in text, text
    assert admin.run(w.stack, "top", "--once", "--sort", "beauty").status == 2
    assert "there is no terminal" in admin.run(w.stack, "top").err


def test_replicas_and_a_next_hop_that_is_away(world):
    w = world()
    w.store("smtp:[127.0.0.1]:1", "b@example.net")
    entry = (envelope.entry_id(), b"meta", b"body")
    w.push("mx1", "dovelane:replica:site-a>site-b", entry)
    alive(w)
    hop = eventually(
        "the relay says that it is away",
        lambda: [each for each in once(w)["next_hops"] if "error" in each],
    )
    assert (
        hop[0]["next_hop"] == "smtp:[127.0.0.1]:1"
        and "refused" in hop[0]["error"]
        and hop[0]["node"] in ("mx1", "mx2")
    )
    (waiting,) = once(w)["replicas"]
    assert (waiting["from"], waiting["to"], waiting["entries"]) == (
        "site-a",
        "site-b",
        1,
    ) and waiting["oldest_seconds"] >= 0
    assert "site-a > site-b" in admin.done(w.stack, "top", "--once")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_node_that_is_away_is_shown_and_holds_up_nothing(world, how):
    w = world(relays=())
    w.store(w.peer(), "b@example.net")
    getattr(w.stack, how)("redis-mx2")
    began = time.monotonic()
    made = once(w, status=1)
    took = time.monotonic() - began
    if how == "stop":
        w.stack.cont("redis-mx2")
    first, second = made["nodes"]
    assert (
        first["entries"] == 1
        and second["state"] == "away"
        and second["why"]
        and "entries" not in second
    )
    assert made["lanes"][0]["entries"] == 1 and took < 60


class Terminal:
    """tmux with a server of its own."""

    def __init__(self, w, tmp_path, *words, columns=130, lines=40):
        self.socket = tmp_path / "tmux"
        program = [
            str(w.stack.shape.build / "ctl" / "dovelane"),
            "-c",
            w.stack["relay-mx1"].note["conf"],
            "top",
            *words,
        ]
        self.tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            str(columns),
            "-y",
            str(lines),
            " ".join(program),
        )

    def tmux(self, *words, check=True):
        done = subprocess.run(
            ["tmux", "-u", "-S", self.socket, *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0 or not check, done
        return done.stdout if done.returncode == 0 else None

    def shown(self):
        return self.tmux("capture-pane", "-p", check=False) or ""

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def until(self, text):
        return eventually(
            f"the screen has {text}",
            lambda: self.shown() if re.search(text, self.shown()) else None,
        )

    def end(self):
        self.tmux("kill-server", check=False)


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux here")
def test_in_a_terminal(world, tmp_path):
    w = world(retry_first="1h", retry_most="1h")
    peer, other = w.peer(), w.peer(lmtp=True)
    for each in (peer, other):
        each.say("RCPT", "450 4.2.0 greylisted", match="later@")
    for number in range(3):
        w.store(peer, "later@example.net", queue_id=f"L{number}")
    w.store(other, "later@example.net", queue_id="O1")
    alive(w)
    eventually(
        "all are deferred",
        lambda: {each["queue_name"] for each in admin.queue(w.stack)} == {"deferred"},
    )
    t = Terminal(w, tmp_path)
    try:
        text = t.until(r"mx1 +alive(.|\n)*mx2 +alive(.|\n)*" + re.escape(peer.destination))
        assert "dovelane top" in text and "by depth" in text
        first = [line for line in text.splitlines() if line.startswith("       3 ")]
        assert peer.destination in first[0], text
        t.press("n")
        t.until("by name")
        t.press("?")
        t.until("release it")
        t.press("?")
        t.until("NEXT HOP")
        t.press("d")
        t.until("by depth")
        t.press("h")
        t.until("hold all mail for " + re.escape(peer.destination))
        t.press("y")
        t.until("3 mails held")
        assert {
            each["queue_name"] for each in admin.queue(w.stack, "--dest", peer.destination)
        } == {"hold"}
        t.press("Down")
        t.press("f")
        t.until("flush all mail for " + re.escape(other.destination))
        t.press("n")  # not meant
        t.press("f")
        t.press("y")
        t.until("1 mail due now")
        t.press("Up")
        t.press("u")
        t.press("y")
        t.until("3 mails released")
        t.tmux("resize-window", "-x", "60", "-y", "16")
        eventually(
            "it is drawn anew",
            lambda: len(t.shown().splitlines()) <= 16
            and "mx2" in t.shown()
            and "LANE" in t.shown(),
        )
        t.tmux("resize-window", "-x", "130", "-y", "40")
        w.stack.stop("redis-mx2")
        t.until(r"mx2 +away")
        t.press("n")
        t.until("by name")  # keys are heard meanwhile
        w.stack.cont("redis-mx2")
        t.until(r"mx2 +(?!away)[a-z]+ ")
        t.press("q")
        eventually("it has ended", lambda: t.tmux("list-sessions", check=False) is None)
    finally:
        t.end()


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux here")
def test_the_answer_is_for_the_next_hop_that_the_question_named(world, tmp_path):
    """While the question waits its next hop is emptied, and another one is selected."""
    w = world(retry_first="1h", retry_most="1h")
    peer, other = w.peer(), w.peer(lmtp=True)
    for each in (peer, other):
        each.say("RCPT", "450 4.2.0 greylisted", match="later@")
        w.store(each, "later@example.net")
    w.store(peer, "later@example.net")
    alive(w)
    eventually(
        "all are deferred",
        lambda: {each["queue_name"] for each in admin.queue(w.stack)} == {"deferred"},
    )
    t = Terminal(w, tmp_path)
    try:
        t.until(r"NEXT HOP(.|\n)*" + re.escape(other.destination))
        t.press("h")
        t.until("hold all mail for " + re.escape(peer.destination))
        admin.done(w.stack, "delete", "--yes", "--dest", peer.destination)
        eventually(
            "only the other one is left, and still the question",
            lambda: peer.destination not in t.shown().replace(f"for {peer.destination}?", "")
            and other.destination in t.shown(),
        )
        t.press("C-l", "h")  # no answer but y is a yes
        t.until("hold all mail for " + re.escape(other.destination))
        t.press("n")
        w.store(peer, "later@example.net")
        w.store(peer, "later@example.net")
        t.until(r" 2 +.*" + re.escape(peer.destination))
        t.press("Up", "h")
        t.until("hold all mail for " + re.escape(peer.destination))
        admin.done(w.stack, "delete", "--yes", "--dest", peer.destination)
        eventually(
            "only the other one is left again",
            lambda: peer.destination not in t.shown().replace(f"for {peer.destination}?", ""),
        )
        t.press("y")
        eventually("it is answered", lambda: "[y/n]" not in t.shown() and " ..." not in t.shown())
        (left,) = admin.queue(w.stack)
        assert left["queue_name"] == "deferred", left
    finally:
        t.end()
