"""dovelane trace: in which mailbox at which site a mail is, out of the sites' logs."""

import subprocess
from pathlib import Path

import pytest
from site_user import deliver
from support.json_schemas import judged
from support.stack.digest import wait_equal
from support.waiting import eventually

pytestmark = pytest.mark.long

USER = "traced@example.org"
WITHIN = 420.0


def trace(there, *logs):
    program = there.shape.build / "ctl" / "dovelane"
    path = Path(there.replicas[0].log).with_name("dovelane.conf")
    words = [word for log in logs for word in ("-f", log)]
    done = subprocess.run(
        [program, "-c", path, "-j", "trace", *words, "one@generator.example"],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    return judged(done.stdout)


def test_a_mail_is_found_at_both_sites(group):
    there = group("maildir", "sdbox", links=False)
    deliver(there.replicas[0], USER, "one")
    wait_equal(there.replicas, [USER], WITHIN)
    logs = [replica.log for replica in there.replicas]

    def both():
        mails = trace(there, *logs)["mails"]
        return mails and len(mails[0]["places"]) == 2 and mails[0]

    mail = eventually("both logs have it", both)
    delivered, placed = mail["places"]
    assert (delivered["by"], delivered["mailbox"], delivered["user"]) == ("delivery", "INBOX", USER)
    assert (placed["by"], placed["mailbox"], placed["user"]) == ("replication", "INBOX", USER)
    assert (delivered["node"], placed["node"]) == ("site-a", "site-b") and not mail["unseen"]
    assert next(event for event in mail["events"] if event["event"] == "placed")["site"] == 1
    assert {
        (row["replica"], row["log_read"]) for row in trace(there, logs[0])["mails"][0]["unseen"]
    } >= {("site-b", False)}
