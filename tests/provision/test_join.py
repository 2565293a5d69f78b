"""`dovelane join` as it is typed: on a second played host, through a real listener."""
import sys

import pytest
from conftest import MAIN, PlayedHost
from test_enroll import Open
from test_plan import Killed, killed_after, milters
from test_races import asked  # noqa: F401 (a fixture)

import conf
import desired
import files
import group
import invitation
import main


@pytest.fixture
def opened(ready):
    made = Open(ready)
    yield made
    if made.thread and made.thread.is_alive():
        made.close()


@pytest.fixture
def second(tmp_path):
    return PlayedHost(tmp_path / "second")


def words(where, token, *more):
    return "join", where, "--token", token, "--address", "192.0.2.2", "--name", "mx2", "--gateway", *more


def test_a_token_that_begins_with_a_dash_is_no_option(second, dovelane):
    """All of one authority begin alike: in one group of 64 nobody could join as he was told."""
    token = invitation.make_token(b"\xf8" + bytes(31), bytes(invitation.SECRET))
    assert token[0] == "-"
    status, said = dovelane(*words("127.0.0.1:1", token, "--yes"), on=second)
    assert status and "nobody listens at 127.0.0.1:1" in said, said


def test_a_host_joins_and_belongs_to_one_group(opened, second, dovelane):
    token = opened.invite()
    where = opened.listen()
    status, said = dovelane(*words(where, token, "--yes"), on=second)
    assert status == 0 and "this host is mx2 of mx1, mx2" in said, said
    assert second.text(group.FILE) == opened.host.text(group.FILE) and "node mx1" in second.text(conf.FILE)
    assert second.active("dovelane-group.timer") and not desired.has_authority(second)
    status, said = dovelane("init", "--address", "192.0.2.2", "--yes", on=second)
    assert status == 2 and "joined the group of mx1 as mx2, and makes none of its own" in said
    another = opened.invite()
    status, said = dovelane(*words(opened.listen(), another, "--yes"), on=second)
    assert status == 2 and "is in a group already" in said and "init --undo" in said
    assert opened.invitations.look(enroll_secret(another)) is None, "the invitation is still good"


@pytest.mark.long
def test_init_mends_a_host_that_joined(opened, second, dovelane):
    """As it does where the group was made: after an upgrade, or when something was stopped and shall run again."""
    token = opened.invite()
    assert dovelane(*words(opened.listen(), token, "--yes"), on=second)[0] == 0
    assert "nothing to do" in dovelane("init", "--yes", on=second)[1]
    sealed = second.text(group.FILE)
    second.systemctl("stop", "dovelane-milter.service")
    second.run("postconf", "-PX", "smtp/inet/smtpd_milters")
    status, said = dovelane("init", "--yes", on=second)
    assert status == 0 and "started dovelane-milter.service" in said and "join" not in said, said
    assert milters(second).count("dovelane/milter.sock") == 1 and second.text(group.FILE) == sealed and not desired.has_authority(second)


def enroll_secret(token):
    return invitation.read_token(token)[1]


@pytest.mark.long
def test_a_host_with_an_authority_of_its_own_is_refused(opened, second, dovelane):
    """One host of a group has one: a second would sign what nobody else takes."""
    token = opened.invite()
    where = opened.listen()
    assert dovelane("init", "--address", "192.0.2.2", "--name", "mx2", "--gateway", "--yes", on=second)[0] == 0
    key = second.text(f"{desired.AUTHORITY}/ca.key")
    status, said = dovelane(*words(where, token, "--yes"), on=second)
    assert status == 2 and "is in a group already" in said
    second.path(group.FILE).unlink()
    status, said = dovelane(*words(where, token, "--yes"), on=second)
    assert status == 2 and "has an authority of its own (/etc/dovelane/authority)" in said and "--undo" in said
    assert second.text(f"{desired.AUTHORITY}/ca.key") == key and opened.members() == ["mx1"]


@pytest.mark.long
def test_an_edit_while_a_join_asks_is_shown_and_kept(opened, second, dovelane, asked):  # noqa: F811
    token = opened.invite()
    where = opened.listen()
    main_cf = second.path("/etc/postfix/main.cf")
    questions = asked(lambda: main_cf.write_text(MAIN + "relayhost = [192.0.2.9]\n"))
    status, said = dovelane(*words(where, token), on=second)
    assert status == 0 and len(questions) == 2 and "changed while the question waited" in said, said
    assert "relayhost = [192.0.2.9]" in main_cf.read_text() and "in_flow_delay = 0" in main_cf.read_text()


@pytest.mark.long
def test_a_file_made_while_a_join_asks_is_refused_before_the_token_is_used(opened, second, dovelane, asked):  # noqa: F811
    token = opened.invite()
    where = opened.listen()
    second.path("/etc/dovelane").mkdir()
    asked(lambda: second.path(conf.FILE).write_text("copies = 2\n"))
    status, said = dovelane(*words(where, token), on=second)
    assert status == 2 and "was written by hand" in said and second.text(conf.FILE) == "copies = 2\n"
    assert opened.members() == ["mx1"] and opened.invitations.any_open()


def test_a_join_that_was_killed_is_finished_by_the_same_command(opened, second, dovelane, monkeypatch):
    """Killed at a write after the group has let it in."""
    token = opened.invite()
    where = opened.listen()
    real, settle = files.write, main.settle

    def settled(*what):
        killed_after(monkeypatch, 20)
        settle(*what)
    monkeypatch.setattr(main, "settle", settled)
    with pytest.raises(Killed):
        main.start(list(words(where, token, "--yes")), second)
    monkeypatch.setattr(files, "write", real)
    monkeypatch.setattr(main, "settle", settle)
    status, said = dovelane(*words(where, token, "--yes"), on=second)
    assert status == 0 and opened.members() == ["mx1", "mx2"], said
    assert second.active("dovelane-milter.service") and second.active("dovelane-group.timer")


@pytest.mark.long
def test_a_host_that_is_taken_out_is_named_with_what_it_still_knows(opened, second, dovelane):
    token = opened.invite()
    assert dovelane(*words(opened.listen(), token, "--yes"), on=second)[0] == 0
    status, said = dovelane("group", "remove", "mx2", "--wait", "0", "--yes", on=opened.host)
    assert status == 0 and "mx2 still knows the passwords" in said and "New passwords" in said, said
    assert "node mx2" not in opened.host.text(conf.FILE)
    status, said = dovelane("group", "remove", "mx2", "--wait", "0", "--yes", on=opened.host)
    assert status == 2 and "the group has no host mx2" in said
