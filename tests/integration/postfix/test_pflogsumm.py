"""What admins read: Debian's pflogsumm over the logs of Postfix, the milter and the relays counts what happened."""
import re
import shutil
import smtplib
import subprocess
import time
from pathlib import Path

import pytest

from support.stack import Stack
from support.stack.shape import SinkShape

pytestmark = pytest.mark.long

LIMIT = 60
PFLOGSUMM = shutil.which("pflogsumm", path="/usr/sbin:/usr/bin")


def wait(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def send(system, recipients, number):
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", recipients, f"Subject: {number}\r\n\r\n{'x' * number}\r\n".encode())


def version():
    """pflogsumm's, as numbers."""
    said = subprocess.run([PFLOGSUMM, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.search(r"(\d+)\.(\d+)", said).groups())


def lines(system):
    logs = [system["postfix"].log, system["milter"].log] + [service.log for name, service in system.services.items() if name.startswith("relay-")]
    return [line for log in dict.fromkeys(map(str, logs)) for line in Path(log).read_text().splitlines()]


@pytest.mark.skipif(not PFLOGSUMM, reason="pflogsumm is not installed")
def test_pflogsumm_counts_what_happened(tmp_path):
    with Stack(postfix="divert", sinks=[SinkShape("a", ours=True), SinkShape("plain", ours=True)], divert=["a"],
               settings={"retry_first": "1s"}) as system:
        wait(lambda: any("action=lane" in line for line in lines(system)) or send(system, ["probe@a.example"], 1), lambda: lines(system)[-20:])
        wait(lambda: sum("status=sent" in line for line in lines(system)) == sum("cleanup" in line and "message-id=" in line for line in lines(system)), lambda: lines(system))
        before = len(lines(system))
        known = set(lines(system))
        system.rules("a", {"at": "rcpt", "match": "^u3", "reply": "451 4.7.1 come again", "times": 1})
        for number in range(10):
            send(system, [f"u{number}.{k}@a.example" for k in range(1 + number % 3)], number)
        for number in range(4):
            send(system, [f"u{number}@plain.example"], number)
        recipients = sum(1 + number % 3 for number in range(10)) + 4
        wait(lambda: sum("status=sent" in line for line in lines(system) if line not in known) == recipients, lambda: lines(system)[before - 20:])
        wait(lambda: sum(": removed" in line for line in lines(system) if line not in known) >= 14, lambda: lines(system)[-20:])
        new = [line for line in lines(system) if line not in known]
    log = tmp_path / "mail.log"
    log.write_text("\n".join(new) + "\n")
    text = subprocess.run([PFLOGSUMM, "--problems-first", log], check=True, capture_output=True, text=True).stdout
    told = {name: value for value, name in re.findall(r"^ +(\d+k?) +(\w[\w ]*?) *(?:\(.*)?$", text, re.MULTILINE)}
    assert told["delivered"] == str(recipients), text
    deferrals = [line for line in new if "status=deferred" in line]
    assert deferrals and f"({len(deferrals)}" in re.search(r"deferred.*", text)[0], text
    if version() >= (1, 2):  # it takes the size of a mail, and so its having been received, from Postfix's qmgr alone
        assert told["received"] == "4", text
        return
    assert told["received"] == "14", text
    sizes = {found[1]: int(found[2]) for line in new if (found := re.search(r" (\w+): from=<[^>]*>, size=(\d+)", line))}
    assert len(sizes) == 14 and told["bytes received"] == str(sum(sizes.values())), text
    sent = [re.search(r" (\w+): to=", line)[1] for line in new if "status=sent" in line]
    assert told["bytes delivered"] == str(sum(sizes[name] for name in sent)), text
    assert not re.search(r"No message size|sender not in log", text), text


def test_a_mails_story_reads_as_postfixs(tmp_path):
    with Stack(postfix="divert", sinks=[SinkShape("a", ours=True)], divert=["a"]) as system:
        wait(lambda: any("action=lane" in line for line in lines(system)) or send(system, ["probe@a.example"], 1), lambda: lines(system)[-20:])
        story = next(line for line in lines(system) if "action=lane" in line)
        name = re.search(r"\]: (\w+): from=<", story)[1]
        wait(lambda: any(f"{name}: removed" in line for line in lines(system)), lambda: lines(system)[-20:])
        own = [line for line in lines(system) if f" {name}: " in line and "/dovelane-" in line]
    stamp = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d \S+ postfix/dovelane-"
    assert re.search(stamp + rf"milter\[\d+\]: {name}: from=<s@x\.example>, size=\d+, nrcpt=1, ", own[0])
    assert re.search(stamp + rf"relay\[\d+\]: {name}: to=<probe@a\.example>, relay=\S+, delay=[\d.]+, delays=[\d.]+/[\d.]+/[\d.]+/[\d.]+, dsn=2\.\d\.\d, status=sent \(250 ", own[1])
    assert re.search(stamp + rf"relay\[\d+\]: {name}: removed$", own[2]) and len(own) == 3
