"""What init changes: shown first, done once, finished after a kill, and taken back whole."""
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import MAIN, MASTER, PlayedHost, tree

import conf
import desired
import files
import journal
import plan
import postfix
import redis
import undo

INIT = ("init", "--address", "192.0.2.1", "--name", "mx1", "--yes")


def test_a_dry_run_shows_everything_and_changes_nothing(host, dovelane):
    before = tree(host.root)
    status, said = dovelane(*INIT, "--dry-run")
    assert status == 0 and tree(host.root) == before and not host.did
    for what in ("+++ /etc/dovelane/dovelane.conf", "+++ /etc/postfix/master.cf", "+++ /etc/redis/redis-dovelane.conf", "enable and start redis-server@dovelane.service", "in_flow_delay = 0",
                 "nothing was done"):
        assert what in said
    assert "PRIVATE KEY" not in said


@pytest.mark.long
def test_a_second_run_has_nothing_to_do(host, dovelane):
    status, said = dovelane(*INIT)
    assert status == 0 and "dovelane join 192.0.2.1:7002 --token" in said, said
    before, host.did = tree(host.root), []
    status, said = dovelane(*INIT)
    assert status == 0 and "nothing to do" in said and "join" not in said
    assert tree(host.root) == before and not host.did


def test_nobody_else_can_read_what_is_secret(host, dovelane):
    dovelane(*INIT)
    for path in host.path("/etc/dovelane").rglob("*"):
        if path.is_file() and re.search(r"(user|operator|ca\.key)$", str(path)):
            assert not path.stat().st_mode & 0o007, path
    assert host.path("/var/lib/dovelane-provision").stat().st_mode & 0o777 == 0o700
    assert host.path(redis.NODE).stat().st_mode & 0o777 == 0o640


def test_nothing_is_diverted_nor_replicated_until_told(host, dovelane):
    dovelane(*INIT)
    assert "divert = { }" in host.text(conf.FILE) and not host.exists("/etc/dovecot/conf.d/11-dovelane.conf")
    status, said = dovelane("group", "divert", "add", "lmtp:unix:private/dovecot-lmtp", "--wait", "0", "--yes")
    assert status == 0 and 'divert = { "lmtp:unix:private/dovecot-lmtp" }' in host.text(conf.FILE), said
    assert ["reload", "dovelane-milter.service"] in host.did
    status, said = dovelane("group", "replicate", "on", "--yes")
    assert status == 2 and "two are needed" in said
    status, said = dovelane("group", "divert", "add", "example.org", "--yes")
    assert status == 2 and "cannot be diverted" in said


def test_undo_brings_back_exactly_what_was_there(host, dovelane):
    host.path("/etc/default/dovelane").write_text("DOVELANE_NODE=old\n")
    host.path("/etc/default/dovelane").chmod(0o600)
    host.path("/var/lib/dovelane-replicator").mkdir()
    before, units = tree(host.root), dict(host.units)
    dovelane(*INIT)
    host.path("/var/lib/dovelane/nodes-dovelane-relay").write_text("made by a program")
    host.path("/var/lib/dovelane-replicator/reserve").write_text("made by another one")
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0 and tree(host.root) == before, said
    assert {unit: state for unit, state in host.units.items() if state != (False, False)} == units
    assert dovelane("init", "--undo", "--yes")[1].startswith("nothing to do")


@pytest.mark.long
def test_undo_keeps_what_an_admin_did_to_postfix_since(host, dovelane):
    dovelane(*INIT)
    main_cf, master_cf = host.path("/etc/postfix/main.cf"), host.path("/etc/postfix/master.cf")
    main_cf.write_text(main_cf.read_text() + "relayhost = [192.0.2.9]\n")
    master_cf.write_text(master_cf.read_text() + "extra unix - - n - - smtp\n")
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0, said
    assert main_cf.read_text() == MAIN + "relayhost = [192.0.2.9]\n"
    assert [words.split() for _, _, words in postfix.entries(master_cf.read_text())] == [words.split() for _, _, words in postfix.entries(MASTER + "extra unix - - n - - smtp\n")]


@pytest.mark.long
def test_undo_takes_out_of_postfix_only_what_is_ours(host, dovelane):
    """Services, milters and values that an admin chose later stay, also where they look like ours."""
    host.path("/etc/postfix/main.cf").write_text(MAIN + "smtpd_milters = inet:127.0.0.1:11332\n")
    dovelane(*INIT)
    ours = milters(host)
    host.run("postconf", "-M", "127.0.0.1:10030/inet=127.0.0.1:10030 inet n - n - - smtpd -o syslog_name=own")
    host.run("postconf", "-P", f"smtp/inet/smtpd_milters=inet:127.0.0.1:1,{ours},inet:127.0.0.1:2")
    host.run("postconf", "-P", "smtp/inet/smtpd_tls_security_level=may")
    host.run("postconf", "-e", "in_flow_delay=2s")
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0, said
    services = {name: words for name, _, words in postfix.entries(host.text("/etc/postfix/master.cf"))}
    assert set(services) == {"smtp", "submission", "cleanup", "127.0.0.1:10030"} and "smtpd_tls_security_level=may" in services["smtp"]
    assert milters(host) == "inet:127.0.0.1:1,inet:127.0.0.1:11332,inet:127.0.0.1:2"
    assert "in_flow_delay = 2s" in host.text("/etc/postfix/main.cf") and "enable_long_queue_ids" not in host.text("/etc/postfix/main.cf")


@pytest.mark.long
def test_undo_keeps_a_list_of_milters_that_the_service_had(host, dovelane):
    host.path("/etc/postfix/master.cf").write_text(MASTER.replace("smtpd\nsubmission", "smtpd -o smtpd_milters=inet:127.0.0.1:3\nsubmission"))
    dovelane(*INIT)
    host.run("postconf", "-M", "extra/unix=extra unix - - n - - smtp")
    assert dovelane("init", "--undo", "--yes")[0] == 0
    assert milters(host) == "inet:127.0.0.1:3"


def test_undo_refuses_while_mail_waits(host, dovelane, monkeypatch):
    dovelane(*INIT)
    before = tree(host.root)
    monkeypatch.setattr(redis, "waiting", lambda *_: [("dovelane:lmtp:x|mx1>mx2", 3)])
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 2 and "3 entries wait in 1 lanes" in said and "drain --to-postfix" in said
    assert tree(host.root) == before
    assert dovelane("init", "--undo", "--yes", "--force")[0] == 2  # which is for files
    assert dovelane("init", "--undo", "--yes", "--lose-mail")[0] == 0


@pytest.mark.long
def test_undo_follows_no_link_that_another_user_made(host, dovelane, tmp_path):
    """The directories are those of the users dovelane and redis, and dirty/ is everybody's."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "shadow").write_text("x")
    dovelane(*INIT)
    state, lanes = host.path("/var/lib/dovelane"), host.path("/var/lib/redis/dovelane")
    (state / "dirty").mkdir(parents=True, exist_ok=True)
    (state / "dirty" / "x").symlink_to(victim)
    if lanes.exists():
        shutil.rmtree(lanes)
    lanes.parent.mkdir(parents=True, exist_ok=True)
    lanes.symlink_to(victim)
    assert dovelane("init", "--undo", "--yes")[0] == 0
    assert (victim / "shadow").read_text() == "x" and not (state / "dirty" / "x").is_symlink()


def test_undo_goes_by_what_it_has_open_when_a_directory_becomes_a_link_meanwhile(tmp_path, monkeypatch):
    top, victim = tmp_path / "top", tmp_path / "victim"
    (top / "x").mkdir(parents=True)
    (top / "x" / "shadow").write_text("made")
    victim.mkdir()
    (victim / "shadow").write_text("theirs")
    real = os.unlink

    def unlink(name, **more):
        if (top / "x").is_dir() and not (top / "x").is_symlink():
            (top / "x").rename(tmp_path / "elsewhere")
            (top / "x").symlink_to(victim)
        real(name, **more)
    monkeypatch.setattr(os, "unlink", unlink)
    undo.remove_below(top, set())
    assert (victim / "shadow").read_text() == "theirs"


@pytest.mark.long
def test_undo_keeps_an_admins_files_and_edits_that_a_later_run_kept(host, dovelane):
    dovelane(*INIT)
    main_cf, own = host.path("/etc/postfix/main.cf"), host.path("/etc/dovelane/maps")
    main_cf.write_text(main_cf.read_text().replace("in_flow_delay", "relayhost = [192.0.2.9]\nin_flow_delay").replace("enable_long_queue_ids", "#"))
    own.write_text("an admin's")
    assert dovelane(*INIT)[0] == 0      # writes main.cf once more
    assert "relayhost" in main_cf.read_text() and "enable_long_queue_ids" in main_cf.read_text()
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0, said
    assert "relayhost = [192.0.2.9]" in main_cf.read_text() and own.read_text() == "an admin's"


@pytest.mark.long
def test_undo_puts_a_link_back(host, dovelane):
    main_cf = host.path("/etc/postfix/main.cf")
    main_cf.rename(main_cf.with_name("main.real"))
    main_cf.symlink_to("main.real")
    dovelane(*INIT)
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 0, said
    assert main_cf.is_symlink() and main_cf.read_text() == MAIN


def test_undo_refuses_to_lose_a_file_that_was_edited(host, dovelane):
    dovelane(*INIT)
    path = host.path(conf.FILE)
    path.write_text(path.read_text() + "lane_time = 2h\n")
    status, said = dovelane("init", "--undo", "--yes")
    assert status == 2 and conf.FILE in said and "--force" in said


class Killed(BaseException):
    pass


def killed_after(monkeypatch, n):
    """The n-th write of a file is the last thing that this process does."""
    real, count = files.write, [0]

    def write(*words, **more):
        if count[0] == n:
            raise Killed
        count[0] += 1
        real(*words, **more)
    monkeypatch.setattr(files, "write", write)
    return count, real


def kills(tmp_path, monkeypatch, prepare, words):
    """For each write of a command: a host on which the command was killed there."""
    n = 0
    while True:
        host = PlayedHost(tmp_path / f"root{n}")
        prepare(host)
        count, real = killed_after(monkeypatch, n)
        import main
        try:
            main.start(list(words), host)
        except Killed:
            monkeypatch.setattr(files, "write", real)
            yield n, host
        except SystemExit:
            monkeypatch.setattr(files, "write", real)
            assert n > 5, "it was killed nowhere"
            return
        n += 13  # not each: it costs some runs


@pytest.mark.parametrize("end", [pytest.param("again", marks=pytest.mark.long), "undo"])
def test_a_run_that_was_killed_is_finished_or_undone(tmp_path, monkeypatch, dovelane, end):
    fresh = tree(PlayedHost(tmp_path / "fresh").root)
    for n, host in kills(tmp_path, monkeypatch, lambda host: None, INIT):
        if end == "again":
            status, said = dovelane(*INIT, on=host)
            assert status == 0, (n, said)
            active = {unit for unit, state in host.units.items() if state == (True, True)}
            assert {"redis-server@dovelane.service", "dovelane-milter.service", "dovelane-relay.service", "dovelane-group.timer"} <= active, n
            assert "nothing to do" in dovelane(*INIT, on=host)[1]
            key, cert = desired.Secrets(host).key, desired.Secrets(host).cert
            assert "PRIVATE" in key and "CERTIFICATE" in cert
        status, said = dovelane("init", "--undo", "--yes", on=host)
        assert status == 0, (n, said)
        left = tree(host.root, [r"var/lib/dovelane-provision(/before|/lock)?$"])
        assert left == fresh, (n, sorted(set(left) ^ set(fresh)))


@pytest.mark.long
def test_an_undo_that_was_killed_is_finished(tmp_path, monkeypatch, dovelane):
    fresh = tree(PlayedHost(tmp_path / "fresh").root)

    def prepare(host):
        assert dovelane(*INIT, on=host)[0] == 0
    seen = 0
    for n, host in kills_of_undo(tmp_path, monkeypatch, prepare):
        seen += 1
        status, said = dovelane("init", "--undo", "--yes", on=host)
        assert status == 0, (n, said)
        assert tree(host.root) == fresh, n
    assert seen


def kills_of_undo(tmp_path, monkeypatch, prepare):
    import main
    for n in range(4):
        host = PlayedHost(tmp_path / f"undone{n}")
        prepare(host)
        _, real = killed_after(monkeypatch, n)
        try:
            main.start(["init", "--undo", "--yes"], host)
        except Killed:
            monkeypatch.setattr(files, "write", real)
            yield n, host
        except SystemExit:
            monkeypatch.setattr(files, "write", real)
            return


@pytest.mark.long
def test_init_waits_for_an_undo_that_did_not_end(host, dovelane):
    dovelane(*INIT)
    data = json.loads(host.text(journal.DIRECTORY + "/journal.json"))
    host.path(journal.DIRECTORY + "/journal.json").write_text(json.dumps({**data, "undoing": True}))
    status, said = dovelane(*INIT)
    assert status == 2 and "--undo` finishes it" in said


# ---- dovelane.conf ----

@pytest.mark.long
def test_an_admins_own_settings_stay(host, dovelane):
    dovelane(*INIT)
    path = host.path(conf.FILE)
    path.write_text(path.read_text() + "lane_time = 2h\ncopies = 3\n")
    assert dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")[0] == 0
    text = path.read_text()
    assert text.endswith("lane_time = 2h\ncopies = 3\n") and text.count("copies") == 1 and "192.0.2.5" in text


def test_an_edited_group_part_is_never_written_over(host, dovelane):
    dovelane(*INIT)
    path = host.path(conf.FILE)
    edited = path.read_text().replace("divert = { }", 'divert = { "lmtp:[192.0.2.7]:24" }')
    path.write_text(edited)
    status, said = dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")
    assert status == 2 and "changed by hand" in said and "below <<<" in said
    assert path.read_text() == edited


def test_a_file_that_was_written_by_hand_is_refused(host, dovelane):
    host.path("/etc/dovelane").mkdir()
    host.path(conf.FILE).write_text('node mx1 { redis = "127.0.0.1:7001" }\n')
    before = tree(host.root)
    status, said = dovelane(*INIT)
    assert status == 2 and "was written by hand" in said and "Move it away" in said and tree(host.root) == before


def test_a_setting_that_is_wrong_is_said_before_anything_is_written(host, dovelane):
    dovelane(*INIT)
    path = host.path(conf.FILE)
    path.write_text(path.read_text() + "lane_tme = 2h\n")
    status, said = dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")
    assert status == 2 and "lane_tme" in said and "would not be good" in said


# ---- Postfix ----

def milters(host, service="smtp/inet"):
    return host.run("postconf", "-P", f"{service}/smtpd_milters", check=False).stdout.partition(" = ")[2].strip()


@pytest.mark.long
@pytest.mark.parametrize("own, begins", [("inet:127.0.0.1:11332", "inet:127.0.0.1:11332,{unix:dovelane"), ("inet:127.0.0.1:1 inet:127.0.0.1:2", "inet:127.0.0.1:1,inet:127.0.0.1:2,{unix:dovelane"),
                                         ("{ inet:127.0.0.1:1, connect_timeout=3s }, inet:127.0.0.1:2", "{inet:127.0.0.1:1,connect_timeout=3s},inet:127.0.0.1:2,{unix:dovelane")])
def test_the_milter_is_the_last_and_others_stay(host, dovelane, own, begins):
    host.path("/etc/postfix/main.cf").write_text(MAIN + f"smtpd_milters = {own}\n")
    assert dovelane(*INIT)[0] == 0
    assert milters(host).startswith(begins) and milters(host).count("dovelane/milter.sock") == 1
    assert host.run("postconf", "-h", "smtpd_milters").stdout.strip() == own


def test_behind_postscreen_it_is_the_smtpd_that_gets_the_milter(host, dovelane):
    host.path("/etc/postfix/master.cf").write_text("smtp inet n - y - 1 postscreen\nsmtpd pass - - y - - smtpd\ncleanup unix n - y - 0 cleanup\n")
    assert dovelane(*INIT)[0] == 0
    assert "dovelane/milter.sock" in milters(host, "smtpd/pass")


def test_a_port_that_is_taken_is_left_alone(host, dovelane):
    host.path("/etc/postfix/master.cf").write_text(MASTER + "127.0.0.1:10626 inet n - n - - smtpd -o syslog_name=amavis\n")
    assert dovelane(*INIT)[0] == 0
    services = {name for name, _, _ in postfix.entries(host.text("/etc/postfix/master.cf"))}
    assert "127.0.0.1:10726" in services and 'bounce_port = "127.0.0.1:10726"' in host.text(conf.FILE)
    assert "syslog_name=amavis" in host.text("/etc/postfix/master.cf")


def test_what_no_group_can_be_made_of_is_refused(host, dovelane):
    for words, why in ((("--address", "127.0.0.1"), "other hosts do not reach"), (("--address", "0.0.0.0"), "other hosts do not reach"), (("--address", "mx_1"), "is no address"),
                       ((), "say --address"), (("--address", "192.0.2.1", "--name", "MX 1"), "is no node's name")):
        status, said = dovelane("init", "--yes", *words)
        assert status == 2 and why in said, said
    assert not os.path.exists(host.path("/etc/dovelane"))


CLOSED = """
import sys, types
sys.path.insert(0, sys.argv[1])
import ask, main
def many():
    for _ in range(1000):
        ask.say("x" * 1000)
def run(host, journal, options):
    if sys.argv[2] == "at-once":
        many()
    ask.confirmed(options, "?")
    many()
    print("done", file=sys.stderr)
    return 0
main.Journal = lambda host: None
main.parser = lambda: types.SimpleNamespace(parse_args=lambda words: types.SimpleNamespace(run=run, yes=True))
main.start([], types.SimpleNamespace(root="/nowhere"))
"""


@pytest.mark.parametrize("when, ends", [("at-once", (141, "")), ("later", (0, "done\n"))])
def test_who_stops_reading_gets_no_traceback_and_stops_no_work(when, ends):
    """`dovelane init --dry-run | head`; and a run that is under way when its reader goes."""
    source = os.path.dirname(os.path.abspath(plan.__file__))
    command = subprocess.Popen(["/usr/bin/python3", "-c", CLOSED, source, when], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if when == "at-once":
        assert command.stdout.readline()
    command.stdout.close()
    said = command.stderr.read()
    assert (command.wait(), said) == ends
