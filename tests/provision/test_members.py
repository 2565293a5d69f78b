"""`dovelane group` changes: shown, asked about, and carried to an end on all hosts."""
import sys

import pytest
from conftest import said
from test_group import nodes  # noqa: F401 (a fixture)
from test_races import asked  # noqa: F401 (a fixture)

import conf
import desired
import distribute
import group
import members
import redis

HOP = "lmtp:[192.0.2.5]:24"


@pytest.fixture
def pair(ready, nodes):  # noqa: F811
    """mx1 and mx2, both gateways and sites; mx2 has what there is."""
    def two(description):
        new = group.add(description, "mx2", "192.0.2.2", True, "two")
        group.member(new, "mx1").update(site="one", site_id=new["next_site_id"])
        group.member(new, "mx2")["keys"] = []
        return {**new, "next_site_id": new["next_site_id"] + 1, "copies": 1}
    distribute.change(ready, two)
    nodes.keys["mx2"] = {distribute.APPLIED: b"99"}
    return ready


# ---- shown and asked ----

@pytest.mark.parametrize("words", [("divert", "add", HOP), ("replicate", "on"), ("remove", "mx2")], ids=["divert", "replicate", "remove"])
def test_a_change_of_the_group_is_shown_and_asked_about(pair, dovelane, monkeypatch, words):
    before = pair.text(group.FILE)
    status, text = dovelane("group", *words, "--dry-run")
    assert status == 0 and "nothing was done (--dry-run)" in text and (f"+++ {conf.FILE}" in text or words[0] == "replicate"), text
    status, text = dovelane("group", *words)
    assert status == 2 and "nobody is there to be asked" in text
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    status, text = dovelane("group", *words)
    assert status == 1 and "nothing was done" in text and pair.text(group.FILE) == before
    monkeypatch.setattr("builtins.input", lambda question: "y")
    status, text = dovelane("group", *words)
    assert status == 0 and pair.text(group.FILE) != before, text


def test_replicate_says_whose_clients_are_cut_off(pair, dovelane):
    _, text = dovelane("group", "replicate", "on", "--dry-run")
    assert "Dovecot is restarted on mx1, mx2: clients are cut off" in text and "Before replicate on" in text


@pytest.mark.parametrize("hop, warned", [("lmtp:unix:private/dovecot-lmtp", True), ("lmtp:[127.0.0.1]:24", True), ("lmtp:inet:localhost:24", True), (HOP, False)])
def test_a_next_hop_on_each_host_asks_for_one_set_of_mailboxes(pair, dovelane, hop, warned):
    """Its mail comes into another host's mailboxes when a host is lost: nothing brings it back while replication is off."""
    words = ("group", "divert", "add", hop, "--yes", "--wait", "0")
    assert ("replicate on` comes first" in dovelane(*words)[1]) == warned
    dovelane("group", "divert", "remove", hop, "--yes", "--wait", "0")
    distribute.change(pair, lambda d: {**d, "replicate": True})
    assert "replicate on` comes first" not in dovelane(*words)[1]


@pytest.mark.long
def test_a_change_of_the_group_while_it_asks_is_shown(pair, dovelane, asked):  # noqa: F811
    questions = asked(lambda: distribute.change(pair, lambda d: {**d, "divert": ["lmtp:[192.0.2.9]:24"]}))
    status, text = dovelane("group", "divert", "add", HOP)
    assert status == 0 and len(questions) == 2 and "changed while the question waited" in text, text
    assert desired.read_group(pair)[1]["divert"] == ["lmtp:[192.0.2.9]:24", HOP]


@pytest.mark.long
def test_what_is_waited_for_is_said(pair, dovelane, nodes, monkeypatch):  # noqa: F811
    nodes.keys["mx2"][distribute.APPLIED] = b"1"
    status, text = dovelane("group", "divert", "add", HOP, "--yes", "--wait", "0")
    assert status == 1 and "mx1 has it; waiting for mx2 (each looks once a minute" in text and "not yet: mx2" in text


# ---- a host less ----

def test_a_node_that_goes_is_forgotten(pair, dovelane):
    status, text = dovelane("group", "remove", "mx2", "--yes")
    assert status == 0 and ["nodes", "--forget", "mx2"] in pair.did and "node mx2 is forgotten" in text, text
    assert "peers --remove` is needed" in text and "number 1 stays that of the site two" in text


def test_what_keeps_a_node_from_being_forgotten_is_said(pair, dovelane, monkeypatch):
    monkeypatch.setattr(members, "FORGET", 0)
    refused = said("")
    refused.returncode, refused.stderr = 1, "dovelane: node mx2 beats\n"
    monkeypatch.setattr(pair, "forgets", lambda words: refused)
    status, text = dovelane("group", "remove", "mx2", "--yes")
    assert status == 1 and "`dovelane nodes --forget mx2` is still to be done; it says: node mx2 beats" in text


@pytest.mark.long
def test_one_gateway_that_is_left_is_said_with_what_becomes_of_mail(pair, dovelane):
    distribute.change(pair, lambda d: {**d, "copies": 2, "divert": [HOP]})
    status, text = dovelane("group", "remove", "mx2", "--yes")
    assert status == 0 and "1 gateway is left (mx1), and copies = 2: no mail is diverted" in text, text
    assert f"dovelane group divert remove {HOP}" in text and "copies = 1` below # <<<" in text
    assert not [did for did in pair.did if did[0] == "nodes"]


# ---- an undo, and lanes of replicas ----

@pytest.mark.parametrize("replicate, lane, refused", [(True, "dovelane:replica:one>two", True), (True, "dovelane:replica:one>two:bulk", True), (True, "dovelane:replica:one>three", False),
                                                      (False, "dovelane:replica:one>two", False), (False, "dovelane:lmtp:x|mx1>mx2", True)])
def test_a_lane_that_nobody_can_empty_holds_no_undo_up(pair, dovelane, monkeypatch, replicate, lane, refused):
    distribute.change(pair, lambda d: {**d, "replicate": replicate})
    monkeypatch.setattr(redis, "waiting", lambda *_: [(lane, 1)])
    status, text = dovelane("init", "--undo", "--dry-run", "--force")
    assert (status == 2) == refused, text
