"""postscreen(8) in front: it answers port 25, and hands the client on to the smtpd that has our
milter; who talks too early, or is on its list, never gets there."""
import socket

import pytest
from support.beside import Beside
from support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def screened():
    ways = Beside({"postscreen_greet_action": "enforce", "postscreen_greet_wait": "2s",
                   "postscreen_access_list": "cidr:{ {127.0.0.9 reject} {127.0.0.1 permit} }",
                   "postscreen_denylist_action": "drop", "postscreen_blacklist_action": "drop"})
    try:
        smtp = ways.system.smtp
        ways.change(master=lambda text: text.replace(
            f"{smtp} inet n - n - - smtpd",
            f"{smtp} inet n - n - 1 postscreen\nsmtpd pass - - n - - smtpd\n"
            "tlsproxy unix - - n - 0 tlsproxy\ndnsblog unix - - n - 0 dnsblog", 1))
        ways.wait_able()
        yield ways
    finally:
        ways.end()


def test_mail_is_the_same(screened):
    screened.all_the_same("smtp")
    screened.all_the_same("lmtp", ["plain", "8-bit"])


def asked(screened, source, said):
    """How the conversation begins for a client with this address."""
    host, _, port = screened.system.smtp.rpartition(":")
    with socket.create_connection((host, int(port)), 30, (source, 0)) as client:
        client.sendall(said)
        return b"".join(iter(lambda: client.recv(1000), b""))


def test_who_is_screened_off_gets_no_further(screened):
    seen = screened.system["milter"].log
    before = open(seen, encoding="utf-8", errors="replace").read()
    assert b"521 5.3.2" in asked(screened, "127.0.0.9", b"")
    talks = b"EHLO early.example\r\nMAIL FROM:<a@x.example>\r\nRCPT TO:<b@smtp.example>\r\nQUIT\r\n"
    assert b"550 5.5.1" in asked(screened, "127.0.0.8", talks)
    assert open(seen, encoding="utf-8", errors="replace").read() == before


def test_nothing_is_lost_when_ours_are_killed(screened):
    screened.kept_while_killed()


def test_what_the_command_says(screened):
    """The milter is found on the service behind postscreen."""
    found, said = screened.checked()
    assert "milter-unused" not in found and "milter-order" not in found, said


def test_a_client_waits_for_its_greeting(screened):
    """It is not on the list: after the pregreet test it is handed on, and its mail is diverted."""
    host, _, port = screened.system.smtp.rpartition(":")
    hop = screened.hops["smtp"]
    before = len(hop.mails)
    with socket.create_connection((host, int(port)), 30, ("127.0.0.7", 0)) as client:
        lines = client.makefile("rb")
        # The first line alone is a trap for who does not wait for the second.
        assert lines.readline().startswith(b"220-") and lines.readline().startswith(b"220 ")
        for said, code in ((b"EHLO c.example\r\n", b"250 "),
                           (b"MAIL FROM:<s@x.example>\r\n", b"250 "),
                           (b"RCPT TO:<b@smtp.example>\r\n", b"250 "), (b"DATA\r\n", b"354 "),
                           (b"Subject: x\r\n\r\nx\r\n.\r\n", b"250 ")):
            client.sendall(said)
            while (line := lines.readline())[3:4] == b"-":
                pass
            assert line.startswith(code), line
    eventually("it arrives", lambda: len(hop.mails) > before)
