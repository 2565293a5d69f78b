"""A host has the group's description when its programs run with it; one that refuses says why, to all."""
import pytest
from conftest import FOLLOW, said
from test_group import nodes, with_second  # noqa: F401 (a fixture)

import conf
import distribute
import group
import relay
from host import Trouble

pytestmark = pytest.mark.long

HOP = "lmtp:[192.0.2.5]:24"


class Relay:
    """The running one: takes a file by a reload, or only by a restart, or never."""

    def __init__(self, host, monkeypatch, by):
        self.host, self.by, self.digest = host, by, "old"
        monkeypatch.setattr(relay, "wanted", lambda _: "new")
        monkeypatch.setattr(relay, "has", lambda *_: self.digest)
        monkeypatch.setattr(relay, "STEADY", 0)
        monkeypatch.setattr(relay, "RELOADED", 0)
        monkeypatch.setattr(relay, "RESTARTED", 0)
        monkeypatch.setattr(relay, "follow", FOLLOW)
        real = host.played

        def played(verb, units):
            if verb == by and relay.UNIT in units:
                self.digest = "new"
            return real(verb, units)
        monkeypatch.setattr(host, "played", played)

    def restarts(self):
        return self.host.did.count(["restart", relay.UNIT])


@pytest.mark.parametrize("by, restarts, status", [("reload", 0, 0), ("restart", 1, 0), ("never", 1, 2)])
def test_a_relay_that_refuses_to_reload_is_restarted(ready, dovelane, nodes, monkeypatch, by, restarts, status):  # noqa: F811
    """As where a node was taken out and comes back at another address: no file has both."""
    played = Relay(ready, monkeypatch, by)
    nodes.keys["mx1"] = {distribute.APPLIED: b"1"}
    got, text = dovelane("group", "divert", "add", HOP, "--yes", "--wait", "0")
    assert got == status and played.restarts() == restarts, text
    has_it = "has it" in dovelane("group")[1]
    assert has_it == (status == 0)
    if status:
        assert "runs with another dovelane.conf" in text and "systemctl restart dovelane-relay" in dovelane("group")[1]
        assert dovelane("group", "sync")[0] == 2 and played.restarts() == 1, "it is not restarted each minute"


def test_a_relay_that_an_admin_stopped_stays_stopped(ready, dovelane, nodes, monkeypatch):  # noqa: F811
    played = Relay(ready, monkeypatch, "never")
    ready.systemctl("stop", relay.UNIT)
    assert dovelane("group", "divert", "add", HOP, "--yes", "--wait", "0")[0] == 0
    assert played.restarts() == 0


def test_a_relay_that_cannot_be_asked_is_no_good_news(ready, monkeypatch):
    played = Relay(ready, monkeypatch, "reload")

    def away(*_):
        raise Trouble("the Redis at 192.0.2.1:7001 cannot be reached: no route to host")
    monkeypatch.setattr(relay, "has", away)
    with pytest.raises(Trouble, match="cannot be asked whether it has the new dovelane.conf: .*no route to host"):
        FOLLOW(ready, {"name": "mx1"}, print, True)
    assert played.restarts() == 0


def test_the_digest_of_the_file_is_as_check_says_it(ready, monkeypatch):
    monkeypatch.setattr(ready, "run", lambda *words, **more: said("ok  config: x can be read; what must be equal on all hosts has the digest 6a698c792651648c\n"))
    assert relay.wanted(ready) == "6a698c792651648c"


# ---- edits of dovelane.conf ----

def test_an_edit_of_the_made_part_is_said_at_the_next_look(ready, dovelane, nodes):  # noqa: F811
    assert dovelane("group", "sync")[0] == 0
    path = ready.path(conf.FILE)
    made = path.read_text()
    path.write_text(made.replace("copies = 2", "copies = 1"))
    for _ in range(2):
        status, text = dovelane("group", "sync")
        assert status == 2 and "between >>> and <<< were changed by hand" in text
    status, text = dovelane("group")
    assert status == 1 and "has serial 1, and refuses: /etc/dovelane/dovelane.conf" in text and "changed by hand" in text
    path.write_text(made)
    assert dovelane("group", "sync")[0] == 0 and dovelane("group")[0] == 0


def test_a_host_that_refuses_is_named_while_it_is_waited_for(ready, dovelane, nodes):  # noqa: F811
    distribute.change(ready, with_second)
    nodes.keys["mx2"] = {distribute.APPLIED: b"1 /etc/dovelane/dovelane.conf: the lines were changed by hand\x1b[2J"}
    status, text = dovelane("group", "divert", "add", HOP, "--yes", "--wait", "0")
    assert status == 1 and "mx2 refuses: /etc/dovelane/dovelane.conf: the lines were changed by hand" in text and "\x1b" not in text


def test_a_setting_of_the_own_part_leaves_the_made_one_at_the_next_look(ready, dovelane, nodes):  # noqa: F811
    """Each may stand once: until then programs refuse the file."""
    assert dovelane("group", "sync")[0] == 0
    path = ready.path(conf.FILE)
    path.write_text(path.read_text() + "copies = 1\n")
    assert dovelane("group", "sync")[0] == 0
    assert path.read_text().count("copies") == 1 and path.read_text().endswith("copies = 1\n")
    assert ["reload", relay.UNIT] in ready.did
