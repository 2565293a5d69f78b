"""rspamd as a milter in front of ours: its headers are in the diverted mail, and what it refuses
or puts off never gets to us."""
import smtplib
from pathlib import Path

import pytest
from support.beside import Beside, needs
from support.raw_mail import BODIES, HEADER, Message
from support.waiting import eventually

pytestmark = [pytest.mark.long, needs("rspamd", "redis-server")]

GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
LOCAL = {
    # Nothing of the network but our ports; 127.0.0.1 is a client as any other.
    "options.inc": 'local_addrs = ["192.0.2.0/24"];\ndns { nameserver = ["127.0.0.1:{dns}"]; '
                   'timeout = 0.01s; retransmits = 1; }\n'
                   'control_socket = "{home}/control mode=0600";\ntempdir = "{home}";\n'
                   "disable_hyperscan = true;\n",
    "logging.inc": 'type = "console"; level = "notice";\n',
    "worker-normal.inc": "enabled = false;\n",
    "worker-controller.inc": "enabled = false;\n",
    "worker-fuzzy.inc": "enabled = false;\n",
    "worker-proxy.inc": 'bind_socket = ["127.0.0.1:{port}", "{queue}/rspamd/milter.sock '
                        'mode=0660 owner=_rspamd group=postfix"];\ncount = 2;\n'
                        'upstream "local" {{ self_scan = yes; default = yes; }}\n',
    "redis.conf": 'servers = "127.0.0.1:{redis}";\n',
    "greylist.conf": 'servers = "127.0.0.1:{redis}";\ntimeout = 1s;\ncheck_local = true;\n',
    "milter_headers.conf": 'use = ["x-spamd-bar", "x-spam-level", "spam-header"];\n'
                           "extended_spam_headers = false;\nskip_local = false;\n",
    # What the corpus scores by itself matters not.
    "actions.conf": "greylist = 40;\nadd_header = 60;\nreject = 80;\n",
    "multimap.conf": 'MARKED {{ type = "header"; header = "X-Marked"; map = "{home}/marked"; '
                     "score = 50.0; regexp = true; }}\n",
    **{f"{name}.conf": "enabled = false;\n" for name in (
        "fuzzy_check", "rbl", "surbl", "neural", "history_redis", "phishing", "asn", "spf",
        "dmarc", "dkim", "arc", "mx_check", "replies", "ratelimit", "hfilter",
        "metadata_exporter")},
}


@pytest.fixture(scope="module")
def rspamd():
    ways = Beside({"smtpd_peername_lookup": "no"})
    try:
        home = ways.home("rspamd", "_rspamd")
        (home / "local.d").mkdir()
        (home / "marked").write_text("/greylist/i\n")
        numbers = {name: ways.system.ports.take() for name in ("port", "redis", "dns")}
        queue = ways.system["postfix"].note["queue_directory"]
        (Path(queue) / "rspamd").mkdir()
        for name, text in LOCAL.items():
            for key, value in {"{home}": home, "{queue}": queue, "{{": "{", "}}": "}",
                               **{f"{{{k}}}": v for k, v in numbers.items()}}.items():
                text = text.replace(key, str(value))
            (home / "local.d" / name).write_text(text)
        ways.program("rspamd-redis", ["redis-server", "--port", numbers["redis"], "--bind",
                                      "127.0.0.1", "--save", "", "--dir", home],
                     [("plain-redis", f"127.0.0.1:{numbers['redis']}")])
        ways.program("rspamd", ["rspamd", "-f", "-u", "_rspamd", "-g", "_rspamd",
                                "-c", "/etc/rspamd/rspamd.conf",
                                *[f"--var={name}={home}" for name in
                                  ("LOCAL_CONFDIR", "RUNDIR", "DBDIR", "LOGDIR")]], [])
        eventually("rspamd listens", lambda: ways.connects(f"127.0.0.1:{numbers['port']}"), 300)
        ways.tcp = f"inet:127.0.0.1:{numbers['port']}"
        ways.front(ways.tcp)
        yield ways
    finally:
        ways.end()


@pytest.mark.parametrize("name", ["smtp", "lmtp"])
def test_its_headers_are_in_the_mail(rspamd, name):
    rspamd.all_the_same(name)
    assert b"\r\nX-Spamd-Bar: " in rspamd.same(Message(BODIES["plain"]), name)[0].wire


def test_what_it_refuses_is_refused(rspamd):
    before = {name: len(hop.mails) for name, hop in rspamd.hops.items()}
    for address in (rspamd.stock, rspamd.system.smtp):
        with pytest.raises(smtplib.SMTPDataError) as refused:
            rspamd.deliver(HEADER + b"\r\n" + GTUBE + b"\r\n", "b@smtp.example", address)
        assert refused.value.smtp_code == 554 and b"Gtube" in refused.value.smtp_error
    rspamd.all_the_same(content=["plain"])
    assert len(rspamd.hops["smtp"].mails) == before["smtp"] + 2


def test_what_it_puts_off_comes_when_it_is_tried_again(rspamd):
    """Greylisted: 451, and in no lane; taken when it is sent again."""
    raw = HEADER + b"X-Marked: greylist\r\n\r\nplease\r\n"
    with pytest.raises(smtplib.SMTPDataError) as refused:
        rspamd.deliver(raw, "b@smtp.example")
    assert refused.value.smtp_code == 451
    before = len(rspamd.hops["smtp"].mails)

    def taken():
        try:
            rspamd.deliver(raw, "b@smtp.example")
        except smtplib.SMTPDataError as again:
            assert again.smtp_code == 451
            return False
        return True
    eventually("it is taken", taken)
    eventually("it arrives", lambda: len(rspamd.hops["smtp"].mails) > before)
    assert "X-Marked: greylist" in rspamd.hops["smtp"].mails[-1].wire.decode()
    assert len(rspamd.hops["smtp"].mails) == before + 1


def test_nothing_is_lost_when_ours_are_killed(rspamd):
    rspamd.kept_while_killed()


def test_what_the_command_says(rspamd):
    """The order is right; that it is asked by TCP costs time."""
    found, said = rspamd.checked()
    assert "milter-tcp" in found and "milter-order" not in found, said


def test_by_its_unix_socket(rspamd):
    """As docs/stacks.md has it; the last test, since it stays so."""
    rspamd.change(main=lambda text: text.replace(rspamd.tcp, "unix:rspamd/milter.sock"),
                  master=lambda text: text.replace(rspamd.tcp, "unix:rspamd/milter.sock"))
    rspamd.wait_able()
    found, said = rspamd.checked()
    assert not found & {"milter-tcp", "milter-order", "milter-unused"}, said
    assert b"\r\nX-Spamd-Bar: " in rspamd.same(Message(BODIES["plain"]))[0].wire
