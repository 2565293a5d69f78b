"""dovelane divert: the switch that every milter obeys, and that nothing forgets."""
import re
import smtplib
import subprocess
from pathlib import Path

from support import admin
import pytest
from support.relay_world import eventually
from support.stack import SinkShape, programs, resp

pytestmark = [pytest.mark.core, pytest.mark.long]


def running(stack, **options):
    return stack(postfix="divert", sinks=[SinkShape("a", [], ours=True)], **options)


def send(entry, name):
    """Sends a mail; what the milter did with it."""
    host, _, port = entry.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@example.org", ["x@a.example"], f"Subject: {name}\r\nMessage-Id: <{name}@example.org>\r\n\r\ntext\r\n")
    log = Path(entry["milter"].log)
    postfix = Path(entry["postfix"].log)
    queue_id = eventually("Postfix logs the id", lambda: re.search(rf"([0-9A-Za-z]+): message-id=<{name}@", postfix.read_text()))[1]
    return eventually("the milter logs it", lambda: re.search(rf"{queue_id}: .*action=([a-z]+)(?: reason=([a-z-]+))?", log.read_text())).groups()


DIVERTED, LEFT = ("lane", None), ("queue", "divert-off")


def keys(entry):
    found = []
    for address in entry.nodes.values():
        with resp.Connection(address) as connection:
            found.append(connection.call("GET", "dovelane.divert"))
    return found


def test_off_is_obeyed_when_the_command_returns_and_on_again(stack):
    entry = running(stack)
    assert send(entry, "m1") == DIVERTED
    out = admin.done(entry, "divert", "off")
    assert re.search(r"(?m)^diverting is off since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d by root \(uid 0[^)]*\)$", out) and re.search(r"(?m)^milter \S+: off$", out)
    assert send(entry, "m2") == LEFT
    assert admin.done(entry, "divert", "status") == out
    admin.done(entry, "divert", "on")
    assert send(entry, "m3") == DIVERTED


def test_off_survives_the_restart_of_everything(stack):
    entry = running(stack)
    admin.done(entry, "divert", "off")
    entry.kill("milter")
    entry.start("milter")
    assert send(entry, "m1") == LEFT
    for node in ("redis-mx1", "redis-mx2"):  # without a disk they come back empty
        entry.kill(node)
        entry.start(node)
    eventually("the relays have told the nodes", lambda: all(value and b" off " in value for value in keys(entry)))
    for service in ("milter", "relay-mx1", "relay-mx2"):
        entry.kill(service)
    for node in ("redis-mx1", "redis-mx2"):
        entry.kill(node)
        entry.start(node)
    assert keys(entry) == [None, None]
    entry.start("milter")  # now only the files know
    assert send(entry, "m2") == LEFT
    assert keys(entry) == [None, None]  # a milter tells no node
    entry.start("relay-mx2")
    eventually("a relay has told the nodes, from its file", lambda: all(value and b" off " in value for value in keys(entry)))


def test_a_relay_that_kept_nothing_yet_knows_it_by_the_milters_file(stack):
    """As after an upgrade from a version whose relays did not keep it."""
    entry = running(stack)
    entry.kill("milter")
    state = Path(entry["relay-mx1"].note["settings"]["state_directory"])
    for service in ("relay-mx1", "relay-mx2"):
        entry.kill(service)
    (state / "divert").write_text("1790000000000 off root (uid 0) on this host")
    assert keys(entry) == [None, None]
    entry.start("relay-mx1")
    eventually("it tells both nodes", lambda: all(value and b" off " in value for value in keys(entry)))


def test_a_milter_that_was_away_hears_it_before_its_first_mail(stack):
    entry = running(stack)
    entry.kill("milter")
    said = admin.run(entry, "divert", "off")
    assert said.status == 1 and "no milter is connected" in said.out
    Path(entry["milter"].note["settings"]["state_directory"], "divert").unlink(missing_ok=True)
    entry.start("milter")
    assert send(entry, "m1") == LEFT


def test_one_node_is_enough_to_hear_it(stack):
    entry = running(stack)
    entry.kill("redis-mx1")
    said = admin.run(entry, "divert", "off")
    assert said.status == 1 and "node mx1" in said.err and re.search(r"(?m)^milter \S+: off$", said.out)
    entry.start("redis-mx1")
    eventually("mx1 is told by a relay", lambda: all(value and b" off " in value for value in keys(entry)))
    assert send(entry, "m1") == LEFT


def test_a_file_that_cannot_be_understood_means_off(stack):
    entry = running(stack)
    entry.end("milter")
    Path(entry["milter"].note["settings"]["state_directory"], "divert").write_text("\x00\x00")
    entry.start("milter")
    assert send(entry, "m1") == LEFT
    admin.run(entry, "divert", "on")
    eventually("it obeys", lambda: admin.run(entry, "divert", "status").status == 0)
    assert send(entry, "m2") == DIVERTED


def test_off_when_the_nodes_are_full(stack):
    entry = running(stack)
    for address in entry.nodes.values():
        with resp.Connection(address) as connection:
            connection.call("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(resp.RedisError, match="OOM"):
                connection.call("SET", "x", "y")
    admin.done(entry, "divert", "off")
    assert send(entry, "m1") == LEFT


def test_every_milter_is_listed_with_what_it_obeys(stack, tmp_path):
    entry = running(stack)
    note = entry["milter"].note
    conf, socket = tmp_path / "second.conf", tmp_path / "second.sock"
    settings = dict(note["settings"], milter_socket=str(socket), state_directory=str(tmp_path), host_name="second.example", metrics_socket="")
    conf.write_text(programs.settings_text(settings, note["nodes"]))
    with subprocess.Popen([entry.shape.build / "milter" / "dovelane-milter", "-c", conf], stderr=subprocess.PIPE) as second:
        try:
            eventually("the second one listens", lambda: socket.exists())
            out = admin.done(entry, "divert", "off")
            assert len(re.findall(r"(?m)^milter \S+: off$", out)) == 2 and "milter second.example: off" in out
            assert b" off " in (tmp_path / "divert").read_bytes()
        finally:
            second.terminate()
            second.communicate(timeout=30)
    eventually("it is gone from the list", lambda: "second" not in admin.done(entry, "divert", "status"))
