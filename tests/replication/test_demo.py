"""`make run`, its WATCH=1, and `make stop`: what a visitor sees is true, and nothing is left."""
import re
import smtplib
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, need
from support.stack.imap import Imap
from support.waiting import eventually

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = Path(__file__).resolve().parents[1] / "demo" / "demo.py"


def demo(*words):
    done = subprocess.run(["/usr/bin/python3", DEMO, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_it_shows_both_halves_runs_on_and_ends():
    need()
    code, told, wrong = demo("--watch")
    try:
        assert code == 0, (told[-3000:], wrong[-3000:])
        rows = re.findall(r"(?m)^ +(recipients|mails|bob's).*?  +(\d+) +(\d+) +(\d+) +(\d+)$",
                          told)
        assert len(rows) == 3, told
        for _, sent, arrived, lost, twice in rows:
            assert int(sent) == int(arrived) > 0 and (lost, twice) == ("0", "0"), told
        address = dict(re.findall(r"(?m)^ +(SMTP, Postfix|IMAP, [\w-]+) +(\S+:\d+) ", told))
        host, port = address["SMTP, Postfix"].split(":")
        with smtplib.SMTP(host, int(port), timeout=120) as client:
            client.sendmail("a@client.example", ["bob@example.org"],
                            "X-Mail: by hand\r\n\r\nhello\r\n")

        def came():
            with Imap(address["IMAP, Dovecot"], "bob@example.org") as session:
                session.select("INBOX")
                return "by hand" in session.uids("INBOX")

        eventually("a mail by hand is in the mailbox", came)
        again, _, said = demo("--watch")
        assert again == 1 and "It runs already" in said and "make stop" in said
    finally:
        ended, last, _ = demo("--stop")
    assert ended == 0 and " 0 left; " in last and "directories gone" in last, last
    assert not (BUILD / "demo.pid").exists()
    assert demo("--stop")[:2] == (0, "   Nothing runs that make run WATCH=1 left.\n")


@pytest.mark.parametrize("words", [["run"], ["run", "WATCH=1"], ["stop"]], ids=" ".join)
def test_who_is_not_root_hears_so_before_anything_is_built(words):
    """What may be read stays so, wherever the clone is; nothing else is left of root."""
    need()
    reads = "+dac_read_search"
    done = subprocess.run(["setpriv", "--reuid", "65534", "--inh-caps", reads, "--ambient-caps",
                           reads, "make", "-s", "-C", REPOSITORY, *words],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert f"sudo make {words[0]}\n" in done.stderr and not done.stdout, (done.stdout, done.stderr)
