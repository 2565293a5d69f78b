"""What somebody else does meanwhile is not lost: an admin who edits while the question waits, a host that joins, a unit that was stopped."""
import sys
import threading

import pytest
from test_group import nodes, seal, with_second  # noqa: F401 (a fixture)
from test_plan import INIT, milters

import conf
import desired
import distribute
import group
import journal
from conftest import MAIN

pytestmark = pytest.mark.long

GUARD = 60


@pytest.fixture
def asked(monkeypatch):
    """Answers questions with yes; before each of them something happens."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    def during(*happens):
        questions = []

        def answer(question):
            questions.append(question)
            if len(questions) <= len(happens):
                happens[len(questions) - 1]()
            return "y"
        monkeypatch.setattr("builtins.input", answer)
        return questions
    return during


ATTENDED = tuple(word for word in INIT if word != "--yes")


def test_who_is_asked_once_is_not_asked_again(host, dovelane, asked):
    """A plan that is made again is the same, to the letter."""
    questions = asked()
    assert dovelane(*ATTENDED)[0] == 0 and len(questions) == 1


def test_an_edit_while_the_question_waits_is_shown_and_kept(host, dovelane, asked):
    main_cf = host.path("/etc/postfix/main.cf")
    questions = asked(lambda: main_cf.write_text(MAIN + "relayhost = [192.0.2.9]\n"))
    status, said = dovelane(*ATTENDED)
    assert status == 0 and len(questions) == 2 and "changed while the question waited" in said, said
    assert "relayhost = [192.0.2.9]" in main_cf.read_text() and "in_flow_delay = 0" in main_cf.read_text()


def test_a_file_that_was_made_while_the_question_waits_is_refused(host, dovelane, asked):
    host.path("/etc/dovelane").mkdir()
    questions = asked(lambda: host.path(conf.FILE).write_text("copies = 2\n"))
    status, said = dovelane(*ATTENDED)
    assert status == 2 and len(questions) == 1 and "was written by hand" in said
    assert host.text(conf.FILE) == "copies = 2\n" and not host.exists("/etc/dovelane/group")


def test_two_inits_at_once_make_one_authority(host, dovelane, asked):
    def other():
        assert dovelane(*INIT)[0] == 0
        seen.append(host.text(f"{desired.AUTHORITY}/ca.key"))
    seen = []
    asked(other)
    dovelane(*ATTENDED)
    assert host.text(f"{desired.AUTHORITY}/ca.key") == seen[0]


def test_an_edit_while_an_undo_asks_is_not_lost(host, dovelane, asked):
    dovelane(*INIT)
    path = host.path(conf.FILE)
    asked(lambda: path.write_text(path.read_text() + "lane_time = 2h\n"))
    status, said = dovelane("init", "--undo")
    assert status == 2 and "changed by hand" in said and "lane_time = 2h" in path.read_text()
    assert host.active("dovelane-group.timer"), "nothing was undone"


def test_mail_that_comes_while_an_undo_asks_is_not_lost(host, dovelane, asked, monkeypatch):
    import redis
    dovelane(*INIT)
    asked(lambda: monkeypatch.setattr(redis, "waiting", lambda *_: [("dovelane:lmtp:x|mx1>mx2", 3)]))
    status, said = dovelane("init", "--undo")
    assert status == 2 and "3 entries wait" in said and host.exists(conf.FILE)


def newer_users(monkeypatch):
    real = desired.Secrets.acl
    line = f"user dovelane-new on #{'0' * 64} resetchannels -@all +ping\n"
    monkeypatch.setattr(desired.Secrets, "acl", lambda self, description: real(self, description) + line)


@pytest.mark.parametrize("joins", ["while it asks", "while it writes"])
def test_a_join_during_an_upgrade_is_not_lost(ready, dovelane, asked, monkeypatch, joins):
    """Both would have made serial 2: two descriptions of one serial never unite."""
    newer_users(monkeypatch)

    def join():
        distribute.change(ready, with_second)
    if joins == "while it asks":
        asked(join)
    else:
        asked()
        real = desired.key_steps
        monkeypatch.setattr(desired, "key_steps", lambda s: (join() if not group.member(desired.read_group(ready)[1], "mx2") else None, real(s))[1])
    status, said = dovelane("init")
    description = desired.read_group(ready)[1]
    assert status == 0 and description["serial"] == 3 and group.names(description) == "mx1, mx2", said
    assert "dovelane-new" in description["acl"] and "node mx2" in ready.text(conf.FILE)


def test_users_change_when_every_node_knows_what_they_name(ready, dovelane, nodes, monkeypatch):  # noqa: F811
    """A Redis that is started with a user whose command it does not know ends at once."""
    dovelane("init")
    distribute.change(ready, with_second)
    before = desired.read_group(ready)[1]["acl"]
    newer_users(monkeypatch)
    nodes.older = {"mx2"}
    status, said = dovelane("init", "--yes")
    assert status == 0 and "stay as they are: that of mx2 runs an older lane.so" in said, said
    assert desired.read_group(ready)[1]["acl"] == before and "dovelane-new" not in ready.text("/etc/redis/dovelane/users.acl")
    nodes.older = set()
    assert dovelane("init", "--yes")[0] == 0
    assert "dovelane-new" in desired.read_group(ready)[1]["acl"] and "dovelane-new" in ready.text("/etc/redis/dovelane/users.acl")


def test_a_change_is_made_to_the_newest_that_the_nodes_have(ready, dovelane, nodes):  # noqa: F811
    """authority/ came back from an old copy: a join then must neither be lost to the newer description, nor take its members away."""
    newer = {**with_second(desired.read_group(ready)[1]), "serial": 7}
    nodes.keys["mx1"] = {distribute.KEY: seal(ready, newer).encode()}
    _, description = distribute.change(ready, lambda d: group.add(d, "mx3", "192.0.2.3", True, ""))
    assert description["serial"] == 8 and group.names(description) == "mx1, mx2, mx3"


def test_two_descriptions_of_one_serial_unite_and_are_said(ready, dovelane, nodes):  # noqa: F811
    distribute.change(ready, with_second)
    other = {**group.add(desired.read_group(ready)[1], "mx3", "192.0.2.3", True, ""), "serial": 2}
    nodes.keys["mx2"] = {distribute.KEY: seal(ready, other).encode()}
    assert dovelane("group", "sync")[0] == 0
    description = desired.read_group(ready)[1]
    assert description["serial"] == 3 and group.names(description) == "mx1, mx2"
    assert any("two descriptions of the group with serial 2" in line and "mx1, mx2, mx3" in line for line in nodes.log), nodes.log
    assert nodes.keys["mx2"][distribute.KEY] == ready.read(group.FILE)


def test_a_join_while_nodes_are_asked_is_not_lost(ready, dovelane, nodes, monkeypatch):  # noqa: F811
    first = ready.text(group.FILE)
    newer = {**desired.read_group(ready)[1], "serial": 2, "copies": 1}
    real = distribute.gather

    def gather(*words):
        found = real(*words)
        if group.names(desired.read_group(ready)[1]) == "mx1":
            distribute.change(ready, with_second, looked=True)
            distribute.change(ready, lambda d: {**d, "copies": 3}, looked=True)
        return found
    nodes.keys["mx1"] = {distribute.KEY: seal(ready, newer).encode()}
    monkeypatch.setattr(distribute, "gather", gather)
    dovelane("group", "sync")
    assert group.names(desired.read_group(ready)[1]) == "mx1, mx2" and ready.text(group.FILE) != first


def test_what_an_admin_stopped_stays_stopped(ready, dovelane, nodes):  # noqa: F811
    host = ready
    for unit in ("dovelane-milter.service", "dovelane-relay.service", "redis-server@dovelane.service", "dovelane-group.timer", "dovelane-cert.timer"):
        host.systemctl("stop", unit)
        host.systemctl("disable", unit)
    host.run("postconf", "-PX", "smtp/inet/smtpd_milters")
    before, host.did = dict(host.units), []
    assert dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")[0] == 0
    assert dovelane("cert", "renew", "--now")[0] == 0
    assert "192.0.2.5" in host.text(conf.FILE)
    assert host.units == before and not host.did and "dovelane" not in milters(host)
    assert dovelane("init", "--yes")[0] == 0  # an admin's word
    assert host.active("dovelane-milter.service") and host.enabled("dovelane-milter.service") and "dovelane" in milters(host)


def test_the_timer_leaves_to_init_what_an_upgrade_brought(ready, dovelane, nodes, monkeypatch):  # noqa: F811
    """Another example configuration would restart the node's Redis, whenever the group changes next."""
    import templates
    real = templates.read
    monkeypatch.setattr(templates, "read", lambda name: real(name) + ("# new\n" if name == "redis-dovelane.conf" else ""))
    ready.did = []
    assert dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")[0] == 0
    assert "# new" not in ready.text("/etc/redis/redis-dovelane.conf") and ["restart", "redis-server@dovelane.service"] not in ready.did
    status, said = dovelane("init", "--yes")
    assert status == 0 and "+# new" in said and "# new" in ready.text("/etc/redis/redis-dovelane.conf")


def test_the_timer_leaves_to_init_what_a_killed_init_has_still_to_do(ready, dovelane, nodes):  # noqa: F811
    kept = journal.Journal(ready)
    kept.expect(["check and reload Postfix"])
    assert dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")[0] == 0
    assert "check and reload Postfix" in journal.Journal(ready).data["pending"]
    status, said = dovelane("init", "--yes")
    assert status == 0 and "check and reload Postfix" in said


def test_a_timer_finds_nothing_after_an_undo(ready, dovelane, tmp_path):
    """It waited for the lock that the undo held, and removed."""
    held, timer, ended = journal.Journal(ready), journal.Journal(ready), []

    def wait():
        try:
            with timer.lock():
                ended.append("locked")
        except journal.Gone:
            ended.append("gone")
    with held.lock():
        thread = threading.Thread(target=wait)
        thread.start()
        held.directory.rename(tmp_path / "gone")
    thread.join(GUARD)
    assert ended == ["gone"] and not ready.exists(journal.DIRECTORY)


def test_a_slow_node_holds_nobody_up(ready, nodes, monkeypatch):  # noqa: F811
    """All are asked at a time: each answers only when all were asked."""
    description = {**desired.read_group(ready)[1]}
    for n in range(2, 9):
        description = group.add(description, f"mx{n}", f"192.0.2.{n}", True, "")
    meet, real = threading.Barrier(8), distribute.connect
    monkeypatch.setattr(distribute, "connect", lambda *words: (meet.wait(GUARD), real(*words))[1])
    assert len(distribute.gather(ready, description, "mx1")) == 8
