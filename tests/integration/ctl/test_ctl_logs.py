"""The logs themselves: rotated, and in a journal."""

import shutil
import signal
import smtplib
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from support.json_schemas import judged
from support.relay_world import World
from support.stack import programs
from support.waiting import eventually, logged
from test_ctl_trace import events

pytestmark = pytest.mark.long


def test_a_moved_log_is_opened_anew_at_a_hangup(stack, tmp_path):
    """Milter and relay, as logrotate does it; no session ends for it."""
    logs = {name: tmp_path / f"{name}.log" for name in ("milter", "relay-mx1")}
    entry = stack(postfix="divert", sinks=["a"])
    for name, path in logs.items():
        programs.write_settings(entry[name], {"log": f"file:{path}"})
        entry.end(name)
        entry.start(name)
        logged(path, ".")
        path.rename(f"{path}.1")
        entry[name].send(signal.SIGHUP)
    eventually("both have a new file", lambda: all(path.exists() for path in logs.values()))
    host, _, port = entry.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@example.org", ["u@a.example"], "Subject: x\r\n\r\ntext\r\n")
    logged(logs["milter"], "action=lane")
    logged(logs["relay-mx1"], "status=sent")
    # A relay whose configuration is bad by then opens it anew, too.
    logs["relay-mx1"].rename(f"{logs['relay-mx1']}.2")
    programs.write_settings(entry["relay-mx1"], {"copies": "99"})
    entry["relay-mx1"].send(signal.SIGHUP)
    logged(logs["relay-mx1"], "the config stays as it was")


def test_logrotate_with_our_snippet(stack, tmp_path):
    """The file of packaging. Our systemctl does for processes what the real one does for units."""
    if not shutil.which("logrotate"):
        pytest.skip("no logrotate here")
    entry, bin_, logs = stack(postfix="divert", sinks=["a"]), tmp_path / "bin", tmp_path / "log"
    bin_.mkdir()
    units = {"milter": "dovelane-milter", "relay-mx1": "dovelane-relay"}
    script = "#!/bin/sh\ncase $4 in\n"
    for name, unit in units.items():
        (logs / unit).mkdir(parents=True)
        programs.write_settings(entry[name], {"log": f"file:{logs}/%p/mail.log"})
        entry.end(name)
        entry.start(name)
        logged(logs / unit / "mail.log", ".")
        asked = '[ "$1 $2 $3" = "kill --kill-who=main --signal=HUP" ]'
        script += f"{unit}) {asked} && kill -HUP {entry[name].process.pid};;\n"
    (bin_ / "systemctl").write_text(script + "esac\n")
    (bin_ / "systemctl").chmod(0o755)
    (bin_ / "pidof").symlink_to("/bin/false")
    snippet = (Path(__file__).resolve().parents[3] / "packaging/logrotate/dovelane").read_text()
    conf = tmp_path / "logrotate.conf"
    conf.write_text(snippet.replace("/var/log/dovelane", str(logs)))
    conf.chmod(0o644)
    done = subprocess.run(
        ["logrotate", "--force", "--state", tmp_path / "state", conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": f"{bin_}:/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    assert done.returncode == 0 and not done.stdout, done.stdout
    host, _, port = entry.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(
            "s@example.org", ["u@a.example"], "Message-ID: <rotated@x.example>\r\n\r\ntext\r\n"
        )
    logged(logs / "dovelane-milter" / "mail.log", "action=lane")
    logged(logs / "dovelane-relay" / "mail.log", "status=sent")
    assert (logs / "dovelane-relay" / "mail.log.1").exists()


def test_the_journal_gets_fields_of_each_mail(stack, tmp_path):
    path, got = str(tmp_path / "journal"), []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)

        def read():
            while data := journal.recv(65536):
                got.append(dict(text.split("=", 1) for text in data.decode().splitlines()))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        w = World(stack, tmp_path, relays=("mx1",), log=f"journal:{path}")
        peer = w.peer()
        w.store(peer, "b@example.net")

        def sent():
            return [one for one in got if one.get("DOVELANE_STATUS") == "sent"]

        (one,) = eventually("it is in the journal", sent)
        assert (
            one["SYSLOG_IDENTIFIER"] == "postfix/dovelane-relay"
            and one["PRIORITY"] == "6"
            and one["DOVELANE_NODE"] == "mx1"
        )
        assert one["DOVELANE_TO"] == "b@example.net" and one["MESSAGE"].startswith(
            one["DOVELANE_QUEUE_ID"] + ": to=<b@example.net>"
        )
        w.end()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", path)
        reader.join(60)


JOURNALD = Path("/lib/systemd/systemd-journald")
CGROUPS = "/sys/fs/cgroup"  # Debian 13's does not start where nothing is mounted there
JOURNAL = (
    "mount -t tmpfs none /run && mkdir -p /run/systemd/journal /run/log/journal && "
    f"{{ mountpoint -q {CGROUPS} || mount -t cgroup2 none {CGROUPS} || :; }} && exec {JOURNALD}"
)


def test_with_a_real_journal(stack, tmp_path):
    """A journald in a mount namespace of its own, which the relay reaches through /proc."""
    if not JOURNALD.exists() or not shutil.which("journalctl"):
        pytest.skip("no journald here")
    with open(tmp_path / "journald", "wb") as said:
        journal = subprocess.Popen(["unshare", "-m", "sh", "-c", JOURNAL], stdout=said, stderr=said)
    try:
        address = Path(f"/proc/{journal.pid}/root/run/systemd/journal/socket")
        eventually("journald listens", address.exists)
        w = World(stack, tmp_path, relays=("mx1",), log=f"journal:{address}")
        peer = w.peer()
        peer.say("RCPT", "451 4.2.0 later", times=1)
        entry_id = w.store(peer, "b@example.net").hex()
        w.empty("mx1")
        program = w.stack.shape.build / "ctl" / "dovelane"
        words = ["nsenter", "-t", str(journal.pid), "-m", "-r", program, "-c", w.relay().note["conf"]]

        def story():
            done = subprocess.run(
                [*words, "-j", "trace", entry_id], stdout=subprocess.PIPE, timeout=60, check=False
            )
            mails = judged(done.stdout)["mails"]
            return mails and mails[0]["recipients"][0].get("state") == "delivered" and mails[0]

        mail = eventually("the journal has it", story)
        assert [event["node"] for event in mail["events"]][:2] == ["mx1", "mx1"]
        assert events(mail)[:2] == ["deferred", "delivered"]
        w.end()
    finally:
        journal.terminate()
        journal.wait(60)
