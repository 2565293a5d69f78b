"""OpenDKIM as a milter in front of ours signs; its signature holds behind the relay. In front of
dovelane-proxy no milter sees content: there the mail is signed before, or on another port."""
import base64
import subprocess
from pathlib import Path

import pytest
from support.beside import Beside, needs
from support.scripted_hops import Farm
from support.stack import Stack
from support.stack.service import Service
from support.raw_mail import BODIES, Client, Message
from support.waiting import eventually
from support.ways import verifies

pytestmark = [pytest.mark.long, needs("opendkim")]

CONTENT = ("plain", "8-bit", "dots", "header-folded", "header-twice", "line-998", "mime-nest",
           "body-trailing-blanks", "header-spaces", "attachment-5MB")
CONF = """\
Mode s
Domain x.example
Selector sel
KeyFile {home}/key.pem
Canonicalization {form}
InternalHosts 127.0.0.1
Background no
Syslog no
RequireSafeKeys no
UserID opendkim
"""


def prepare(home, form):
    """Its configuration and key; the record that a verifier would find."""
    key = subprocess.run(["openssl", "genrsa", "-traditional", "2048"], check=True,
                         capture_output=True).stdout
    public = subprocess.run(["openssl", "rsa", "-pubout", "-outform", "DER"], input=key, check=True,
                            capture_output=True).stdout
    (home / "key.pem").write_bytes(key)
    (home / "key.pem").chmod(0o644)
    (home / "opendkim.conf").write_text(CONF.format(home=home, form=form))
    return b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)


def program(home, port):
    return ["opendkim", "-f", "-x", home / "opendkim.conf", "-p", f"inet:{port}@127.0.0.1"]


@pytest.fixture(scope="module", params=["simple/simple", "relaxed/relaxed"])
def signed(request):
    ways = Beside()
    try:
        home, port = ways.home("opendkim"), ways.system.ports.take()
        ways.record = prepare(home, request.param)
        ways.program("opendkim", program(home, port), [])
        eventually("OpenDKIM listens", lambda: ways.connects(f"127.0.0.1:{port}"))
        ways.front(f"inet:127.0.0.1:{port}")
        yield ways
    finally:
        ways.end()


@pytest.mark.parametrize("name", ["smtp", "lmtp"])
@pytest.mark.parametrize("what", CONTENT)
def test_its_signature_holds_behind_us(signed, what, name):
    """And is the one that it would be without us: the signed bytes are the same."""
    stock, ours = signed.both(Message(BODIES[what]), name)
    assert "action=lane" in signed.milter_line(), signed.milter_line()
    for mail in (*stock, *ours):
        assert mail.body.count(b"DKIM-Signature: ") == 1
        assert verifies(mail.body, signed.record)
    before = [mail.body.partition(b"\r\n\r\n")[2] for mail in (*stock, *ours)]
    assert before[0] == before[1]


def test_nothing_is_lost_when_ours_are_killed(signed):
    signed.kept_while_killed()
    assert all(verifies(mail.body, signed.record) for mail in signed.hops["smtp"].mails[-20:])


def test_what_the_command_says(signed):
    found, said = signed.checked()
    assert "milter-tcp" in found and "milter-order" not in found, said


@pytest.fixture
def proxied(tmp_path_factory):
    """dovelane-proxy on port 25, OpenDKIM on the service `submission` alone."""
    farm = Farm()
    hop = farm.hop()
    system = Stack(postfix="proxy", nodes=1, copies=1, maps={"smtp.example": hop.destination}).up()
    system.hop = hop
    try:
        home = Path(system.directory) / "opendkim"
        home.mkdir(mode=0o755)
        system.record = prepare(home, "relaxed/simple")
        system.signer = f"127.0.0.1:{system.ports.take()}"
        service = Service("opendkim", program(home, system.signer.partition(":")[2]),
                          system.log("opendkim"))
        system.add(service).start(system.mark, system.save)
        eventually("OpenDKIM listens", lambda: Beside.connects(system.signer))
        yield system
    finally:
        system.down()
        farm.end()


def serve(system, more):
    """Adds services to master.cf."""
    master = Path(system["postfix"].note["config_directory"]) / "master.cf"
    master.write_text(master.read_text() + more)
    subprocess.run(system["postfix"].command("reload"), check=True, capture_output=True, timeout=60)


def sent(system, address, raw):
    """What arrives of it, once."""
    before = len(system.hop.mails)
    client = Client(address)
    client.send(Message(raw), "smtp.example")
    client.close()
    eventually("it arrives", lambda: len(system.hop.mails) > before)
    assert len(system.hop.mails) == before + 1
    return system.hop.mails[-1].body


def test_with_the_proxy_submission_signs_and_signed_mail_is_diverted(proxied):
    submission = f"127.0.0.1:{proxied.ports.take()}"
    serve(proxied, f"{submission} inet n - n - - smtpd\n"
                   f"    -o smtpd_milters=inet:{proxied.signer}\n")
    eventually("submission listens", lambda: Beside.connects(submission))
    for what in CONTENT:
        signed = sent(proxied, submission, BODIES[what])
        assert verifies(signed, proxied.record), what
        # The same mail comes in from outside, with its signature.
        arrived = sent(proxied, proxied.smtp, signed)
        assert verifies(arrived, proxied.record), what
    log = Path(proxied["proxy"].log).read_text()
    assert log.count("action=lane") >= len(CONTENT) - 1, log[-2000:]
