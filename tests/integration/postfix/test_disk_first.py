"""Disk first: for each rule one mail, which must take Postfix's way and come out of it as Postfix makes it."""
import os
import re
import resource
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.stack import Stack, lanes, resp
from support.stack.shape import SinkShape
from support.mail import postqueue, queue_id, send
from support.waiting import eventually

pytestmark = pytest.mark.long

SINKS = [SinkShape("a", ours=True), SinkShape("plain", ours=True)]
LIMIT = 30


@pytest.fixture(scope="module")
def system():
    with Stack(postfix="divert", sinks=SINKS, divert=["a"], relays=False, settings={"max_entry": "1MB"}) as running:
        end = time.monotonic() + LIMIT
        while not diverts(running):
            assert time.monotonic() < end, log(running)[-3000:]
        yield running


def log(system):
    return Path(system["milter"].log).read_text()


def clear(system):
    for address in system.nodes.values():
        with resp.Connection(address) as redis:
            redis.call("FLUSHALL")


def line_of(system, text):
    """The milter's line about the mail, "" when there is none."""
    return next((line for line in log(system).splitlines() if f" {queue_id(text)}: " in line), "")


def diverts(system):
    code, text = send(system, "probe@a.example")
    assert code == 250
    clear(system)
    return "action=lane" in line_of(system, text)


def arrived(system, name):
    """Recipients of all that came to a sink."""
    path = Path(system[f"sink-{name}"].note["journal"])
    return [line.split("\t")[3] for line in path.read_text().splitlines()] if path.exists() else []


class Setting:
    """main.cf with more lines, for a while. What the milter finds in it, it tells; when only maps changed it says nothing, and mail shows whether it has seen it (`left`)."""

    def __init__(self, system, text, finding=None):
        self.system, self.text, self.finding = system, text, finding
        self.main = Path(system["postfix"].note["config_directory"]) / "main.cf"
        self.before = self.main.read_text()

    def changed(self):
        """Each parameter stands there once: of one that stands twice every program of Postfix warns, postlogd(8) to its own socket, too, in which it waits
        for itself for ever when that is full."""
        name = None
        names, kept = set(re.findall(r"(?m)^(\w+)\s*=", self.text)), []
        for line in self.before.splitlines():
            if not line.startswith((" ", "\t", "#")):
                name = line.partition("=")[0].strip()
            if name not in names or line.startswith("#"):
                kept.append(line)
        return "\n".join([*kept, self.text, ""])

    def reload(self, text):
        self.seen = len(log(self.system))
        self.main.write_text(text)
        os.utime(self.main, (time.time() - 60,) * 2)  # nobody is writing it any more
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True, timeout=120)

    def __enter__(self):
        self.reload(self.changed())
        if self.finding:
            eventually(lambda: log(self.system)[-2000:],
                       lambda: f"diverting is off: {self.finding}" in log(self.system)[self.seen:])
        return self

    def __exit__(self, *_):
        self.reload(self.before)
        eventually(lambda: log(self.system)[-2000:], lambda: diverts(self.system))


# ---- maps: only the mails they would change ----

def left(system, recipient, reason):
    """Waits until a mail to the recipient is left to Postfix for that reason."""
    eventually(lambda: log(system)[-2000:],
               lambda: f"action=queue reason={reason}" in line_of(system, send(system, recipient)[1]))
    clear(system)  # of those before the milter had looked


class SlowMap(threading.Thread):
    """A socketmap (socketmap_table(5)) that knows no key, and that never answers postmap(1), by which the milter asks."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.kept = path, []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        path.chmod(0o777)
        self.server.listen(64)

    def run(self):
        while True:
            connection, _ = self.server.accept()
            pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            if Path(f"/proc/{pid}/comm").read_text().strip() == "postmap":
                self.kept.append(connection)
            else:
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    @staticmethod
    def answer(connection):
        while connection.recv(4096):
            connection.sendall(b"9:NOTFOUND ,")


def test_a_postfix_that_does_not_know_the_milter_is_told_of_in_plain_words(system):
    seen = len(log(system))
    setting = Setting(system, "smtpd_milters =")
    setting.reload(setting.before.replace("smtpd_milters =", "x_milters ="))
    eventually(lambda: log(system)[-2000:],
               lambda: "Postfix sends this milter no mail, because no smtpd service has milter_socket = " in log(system)[seen:])
    line = next(line for line in log(system)[seen:].splitlines() if "sends this milter no mail" in line)
    assert "Add the lines of examples/master.cf" in line and "postfix reload" in line
    setting.__exit__()


def test_a_map_that_is_slow_is_called_slow(system):
    path = Path(system["postfix"].note["queue_directory"]) / "slow.sock"
    SlowMap(path).start()
    seen = len(log(system))
    with Setting(system, f"sender_canonical_maps = socketmap:unix:{path}:x"):
        eventually(lambda: log(system)[-2000:], lambda: (text := send(system, "slow@a.example")[1])
             and f"action=queue reason=map sender_canonical_maps socketmap:unix:{path}:x: slow" in line_of(system, text))
        said, = [line for line in log(system)[seen:].splitlines() if "warning: sender_canonical_maps" in line]
        assert "did not answer within" in said and "slow or away" in said and "may this user read it" not in said
        eventually(lambda: arrived(system, "a"), lambda: "slow@a.example" in arrived(system, "a"))
        clear(system)


@pytest.mark.parametrize("parameter, table, given, expected", [
    ("virtual_alias_maps", "inline:{ { old@a.example = new1@a.example } }", "old@a.example", ["new1@a.example"]),
    ("virtual_alias_maps", "inline:{ { @a.example = all2@plain.example } }", "any@a.example", ["all2@plain.example"]),
    ("virtual_alias_maps", "regexp:{ { /^list-(.*)@/ $$1.3@a.example } }", "list-x@a.example", ["x.3@a.example"]),
    ("recipient_canonical_maps", "inline:{ { c@a.example = canonical4@a.example } }", "c@a.example", ["canonical4@a.example"]),
    ("canonical_maps", "inline:{ { d@a.example = canonical5@a.example } }", "d@a.example", ["canonical5@a.example"]),
    ("recipient_bcc_maps", "inline:{ { watched@a.example = archive6@plain.example } }", "watched@a.example", ["watched@a.example", "archive6@plain.example"]),
    ("sender_canonical_maps", "inline:{ { s@x.example = other@x.example } }", "from7@a.example", ["from7@a.example"]),
])
def test_what_a_map_would_change_is_postfixs(system, parameter, table, given, expected):
    with Setting(system, f"{parameter} = {table}"):
        left(system, given, f"map {parameter}")
        eventually(lambda: postqueue(system),
                   lambda: set(expected) <= set(arrived(system, "a") + arrived(system, "plain")))
        if parameter != "sender_canonical_maps" and "{ @" not in table:
            _, text = send(system, "unmapped@a.example")
            assert "action=lane" in line_of(system, text)
        clear(system)


def test_an_extension_finds_its_base_address(system):
    with Setting(system, "recipient_delimiter = +\nvirtual_alias_maps = inline:{ { base@a.example = new8@a.example } }"):
        left(system, "base+ext@a.example", "map virtual_alias_maps")
        eventually(lambda: arrived(system, "a"),
                   lambda: "new8+ext@a.example" in arrived(system, "a"))


# ---- settings that forbid diverting altogether ----

@pytest.mark.parametrize("text, finding, expected", [
    ("always_bcc = all@plain.example", "always_bcc = all@plain.example", ["all@plain.example"]),
    ("sender_bcc_maps = inline:{ { s@x.example = sent@plain.example } }", "sender_bcc_maps = ", ["sent@plain.example"]),
    ("header_checks = regexp:{ { /^X-Copy: (.*)/ BCC hc@plain.example } }", "header_checks = ", ["hc@plain.example"]),
    ("header_checks = regexp:{ { /^X-Copy: (.*)/ REDIRECT rd@plain.example } }", "header_checks = ", ["rd@plain.example"]),
    ("smtpd_recipient_restrictions = check_sender_access inline:{ { s@x.example = BCC ac@plain.example } }, permit_mynetworks, reject",
     "smtpd_recipient_restrictions = ", ["ac@plain.example"]),
    ("smtpd_restriction_classes = special\nspecial = check_client_access static:{REDIRECT cl@plain.example}\n"
     "smtpd_recipient_restrictions = check_sender_access inline:{ { s@x.example = special } }, permit_mynetworks, reject", "special = ", ["cl@plain.example"]),
])
def test_what_would_be_lost_for_every_mail_turns_diverting_off(system, text, finding, expected):
    with Setting(system, text, finding):
        code, answer = send(system, "x@a.example", content=b"Subject: x\r\nX-Copy: yes\r\n\r\nhello\r\n")
        line = line_of(system, answer)  # Postfix does not even ask milters about a mail that header_checks redirect
        assert code == 250 and ("reason=postfix" in line or "REDIRECT rd@" in text and not line)
        eventually(lambda: postqueue(system),
                   lambda: set(expected) <= set(arrived(system, "plain")))


def test_what_is_held_is_held(system):
    with Setting(system, "header_checks = regexp:{ { /^X-Hold: / HOLD } }", "header_checks = "):
        send(system, "x@a.example", content=b"Subject: x\r\nX-Hold: yes\r\n\r\nhello\r\n")
        eventually(lambda: postqueue(system),
                   lambda: [item["queue_name"] for item in postqueue(system)] == ["hold"])
        subprocess.run(["postsuper", "-c", system["postfix"].note["config_directory"], "-d", "ALL"], check=True, capture_output=True)


def test_the_admin_takes_it_on_himself_by_name(system):
    with Setting(system, "always_bcc = all@plain.example", "always_bcc = "):
        system.configure(ignore='{ "always_bcc" }')
        system.restart("milter")
        try:
            eventually(lambda: log(system)[-2000:], lambda: diverts(system))
        finally:
            system.configure(ignore=None)
            system.restart("milter")


def test_postconf_that_could_not_be_run_is_run_again(system):
    """No descriptor is free for a moment. Nothing that belongs to Postfix changes afterwards."""
    pid = system["milter"].process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    seen = len(log(system))
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        os.utime(Path(system["postfix"].note["config_directory"]) / "main.cf")
        eventually(lambda: log(system)[-2000:],
                   lambda: "diverting is off: postfix_config" in log(system)[seen:])
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    eventually(lambda: log(system)[-2000:], lambda: diverts(system))


def test_no_table_costs_nothing(system):
    """Debian's default has no maps: no process is started for a mail."""
    pid = system["milter"].process.pid
    before = time_of_children(pid)
    for number in range(20):
        send(system, f"n{number}@a.example")
    assert time_of_children(pid) == before
    clear(system)


def time_of_children(pid):
    """CPU time and page faults of the processes it has waited for (proc(5), fields 11, 16 and 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return fields[8], fields[13], fields[14]
