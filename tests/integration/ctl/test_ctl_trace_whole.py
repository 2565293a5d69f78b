"""One mail from Postfix's 250 to the second site, in one answer of `dovelane trace`."""

import os
import re
import smtplib
import subprocess
from pathlib import Path

import pytest

from support.json_schemas import judged
from support.stack.group import Group
from support.waiting import eventually

pytestmark = pytest.mark.long
USER = "whole@example.org"
WHOLE = ("accepted", "stored", "saved", "delivered", "removed", "placed")


@pytest.fixture
def sites():
    if os.geteuid() != 0:
        pytest.skip("Dovecot's master must be started by root")
    group = Group("maildir", "sdbox", links=False).up()
    yield group
    group.down()


def both_halves(entry, sites, path):
    """A host's dovelane.conf, as one of both halves has it: the nodes, and the replicas."""
    replicas = Path(sites.replicas[0].log).with_name("dovelane.conf").read_text()
    text = Path(entry["relay-mx1"].note["conf"]).read_text()
    text += 'replicate_namespaces = { "inbox" }\n'
    path.write_text(text + "\n".join(re.findall(r"(?m)^replica .*\{[^}]*\}", replicas)) + "\n")
    return path


@pytest.mark.parametrize("form", ["text", "json"])
def test_from_postfix_to_the_other_site(stack, sites, tmp_path, form):
    """Accepted, stored on two nodes, delivered by LMTP to site a, and seen by site b."""
    port = sites.replicas[0].note["lmtp"].rpartition(":")[2]
    entry = stack(
        postfix="divert",
        maps={"example.org": f"lmtp:[127.0.0.1]:{port}"},
        settings={"log_format": form},
    )
    conf = both_halves(entry, sites, tmp_path / "dovelane.conf")
    host, _, port = entry.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail(
            "s@example.org",
            [USER],
            "Message-ID: <whole@x.example>\r\nSubject: x\r\n\r\ntext\r\n",
        )
    logs = [entry[name].log for name in ("milter", "relay-mx1", "relay-mx2", "postfix")]
    logs += [replica.log for replica in sites.replicas]
    files = [word for log in logs for word in ("-f", log)]
    program = entry.shape.build / "ctl" / "dovelane"

    def trace(*words):
        done = subprocess.run(
            [program, "-c", conf, *words, "trace", *files, "whole@x.example"],
            stdout=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        return done.stdout.decode()

    def whole():
        said = judged(trace("-j"))
        mails = said["mails"]
        ended = mails and any(event["event"] == "removed" for event in mails[0]["events"])
        return ended and len(mails[0]["places"]) == 2 and said

    said = eventually("both sites have it", whole)
    (mail,) = said["mails"]
    story = [event["event"] for event in mail["events"]]
    assert [event for event in story if event in WHOLE[:-1]] == list(WHOLE[:-1]), story
    assert story.index("saved") < story.index("placed")
    (stored,) = (event for event in mail["events"] if event["event"] == "stored")
    (delivered,) = (event for event in mail["events"] if event["event"] == "delivered")
    assert stored["nodes"] == ["mx1", "mx2"] and delivered["node"] in stored["nodes"]
    assert [(r["address"], r["state"]) for r in mail["recipients"]] == [(USER, "delivered")]
    assert [(p["node"], p["by"], p["user"], p["mailbox"]) for p in mail["places"]] == [
        ("site-a", "delivery", USER, "INBOX"),
        ("site-b", "replication", USER, "INBOX"),
    ]
    assert not mail["unseen"] and not mail["lanes"] and not said["not_read"]
    text = trace()
    for words in (
        "stored       on mx1, mx2",
        f"{delivered['node']:<8} delivered    <{USER}> at 127.0.0.1",
        f"site-a   saved        INBOX of {USER}",
        f"site-b   placed       INBOX of {USER}, UID 1, came in at site 1",
        f"mailbox     INBOX of {USER} at site-b, by replication",
    ):
        assert words in text, text
    assert "not " not in text, text
