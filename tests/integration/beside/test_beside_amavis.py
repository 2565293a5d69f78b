"""amavis, as its README.postfix has it: after the queue (content_filter), and before it
(smtpd_proxy_filter). Either way it hands the mail back to an smtpd of its own. Our milter belongs
on that one: on port 25 all mail would stay Postfix's, and the command says so."""
import contextlib
import os
import shutil
import signal
import smtplib
import subprocess
from pathlib import Path

import pytest
from support.beside import Beside, needs, same_text
from support.scripted_hops import Farm
from support.stack import Stack
from support.stack.service import Service
from support.raw_mail import BODIES, HEADER, Message
from support.waiting import eventually
from support.ways import envelope_of

pytestmark = [pytest.mark.long, needs("amavisd")]

CONTENT = ("plain", "8-bit", "dots", "header-folded", "mime-nest", "attachment-5MB")
CONF = """\
use strict;
$max_servers = 4; $daemon_user = 'amavis'; $daemon_group = 'amavis';
$MYHOME = '{home}'; $TEMPBASE = "$MYHOME/tmp"; $QUARANTINEDIR = undef; $db_home = "$MYHOME/db";
$pid_file = "$MYHOME/amavisd.pid"; $lock_file = "$MYHOME/amavisd.lock";
$mydomain = 'stack.example'; $myhostname = 'mx.stack.example';
$enable_db = 0; $enable_zmq = 0; $nanny_details_level = 0; $enable_dkim_verification = 0;
$do_syslog = 0; $DO_SYSLOG = 0; $LOGFILE = "$MYHOME/log"; $log_level = 2;
@mynetworks = qw( 127.0.0.0/8 ); @local_domains_maps = (1);
@bypass_virus_checks_maps = (1); @bypass_spam_checks_maps = (1);
@av_scanners = (); @av_scanners_backup = (); @decoders = ();
$final_bad_header_destiny = D_PASS; $final_banned_destiny = D_REJECT;
$warnbadhsender = 0; $virus_admin = undef; $banned_admin = undef;
$banned_filename_re = new_RE( qr'\\.exe$'i );
$inet_socket_bind = '127.0.0.1'; $inet_socket_port = [{ports}];
$interface_policy{{{ports0}}} = 'STOCK';
$policy_bank{{'STOCK'}} = {{ forward_method => 'smtp:[127.0.0.1]:{back0}' }};
$forward_method = 'smtp:[127.0.0.1]:{back1}'; $notify_method = $forward_method;
1;
"""
BACK = """\
{back} inet n - n - - smtpd
    -o content_filter=
    -o smtpd_proxy_filter=
    -o {{ smtpd_milters = {milters} }}
    -o smtpd_authorized_xforward_hosts=127.0.0.0/8
    -o receive_override_options=no_unknown_recipient_checks
"""
AGENT = """\
smtp-amavis unix - - n - 4 smtp
    -o smtp_send_xforward_command=yes
    -o smtp_dns_support_level=disabled
"""
EXE = (HEADER + b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n"
       b"Content-Type: application/octet-stream; name=x.exe\r\n"
       b"Content-Disposition: attachment; filename=x.exe\r\n\r\nMZ\r\n--b--\r\n")


def settings(home, conf, ports, backs):
    """Writes amavisd.conf, beside the home, where it may not write itself."""
    for name in ("tmp", "db"):
        (home / name).mkdir()
        (home / name).chmod(0o777)
    conf.write_text(CONF.format(home=home, ports=", ".join(map(str, ports)), ports0=ports[0],
                                back0=backs[0], back1=backs[1]))
    return ["amavisd", "-c", conf, "foreground"]


class Amavis(Beside):
    """One amavis with a port for each way. option: how port 25 hands the mail to it."""

    def __init__(self, option, on_port_25=False):
        self.option, self.on_port_25 = option, on_port_25
        super().__init__()

    def prepare(self):
        take = self.system.ports.take
        home = self.home("amavis", "amavis")
        ports, backs = [take(), take()], [take(), take()]
        conf = self.home("amavis-conf") / "amavisd.conf"
        self.program("amavis", settings(home, conf, ports, backs), [])
        for port in ports:
            eventually("amavis listens", lambda at=port: self.connects(f"127.0.0.1:{at}"))
        self.ports, self.backs = ports, backs
        self.change(master=self.served)
        eventually("the way back", lambda: self.connects(f"127.0.0.1:{backs[1]}"))
        if not self.on_port_25:
            self.wait_able()

    def served(self, text):
        """master.cf with amavis. Our milter is on the second way back, or on port 25."""
        ours = "unix:dovelane/milter.sock"
        reader = f"inet:127.0.0.1:{self.milter.server_address[1]}"
        smtp, here = self.system.smtp, "" if self.on_port_25 else "    -o smtpd_milters=\n"
        text = text.replace(f"{smtp} inet n - n - - smtpd\n", f"{smtp} inet n - n - - smtpd\n{here}"
                            f"    -o {self.option.format(self.ports[1])}\n", 1)
        text += f"    -o {self.option.format(self.ports[0])}\n"     # the stock port is the last
        text = text.replace(f"-o smtpd_milters={reader}", "-o smtpd_milters=", 1)
        text += BACK.format(back=f"127.0.0.1:{self.backs[0]}", milters=reader)
        text += BACK.format(back=f"127.0.0.1:{self.backs[1]}",
                            milters="" if self.on_port_25 else ours)
        return text + AGENT

    def milter_line(self):
        """The last line about a mail: its id is that of the way back."""
        with open(self.system["milter"].log, encoding="utf-8", errors="replace") as log:
            return [line for line in log if " action=" in line][-1:][0]


OPTIONS = {"after the queue": "content_filter=smtp-amavis:[127.0.0.1]:{}",
           "before the queue": "smtpd_proxy_filter=127.0.0.1:{}"}


@pytest.fixture(scope="module", params=OPTIONS)
def amavis(request):
    ways = Amavis(OPTIONS[request.param])
    ways.before_queue = request.param.startswith("before")
    yield ways
    ways.end()


@pytest.mark.parametrize("name", ["smtp", "lmtp"])
def test_filtered_mail_is_diverted_and_the_same(amavis, name):
    for what in CONTENT:
        stock, ours = amavis.both(Message(BODIES[what]), name)
        assert "action=lane" in amavis.milter_line(), amavis.milter_line()
        assert [unported(amavis, mail.wire) for mail in ours] == \
            [unported(amavis, mail.wire) for mail in stock]
        assert [envelope_of(mail) for mail in ours] == [envelope_of(mail) for mail in stock]
        assert ours[0].wire.count(b"amavis") or ours[0].wire.count(b"Amavis")


def unported(amavis, wire):
    """amavis's Received line says at which of its ports."""
    wire = same_text(wire)
    for port in amavis.ports:
        wire = wire.replace(b"port %d" % port, b"port X")
    return wire


def test_what_it_refuses_does_not_arrive(amavis):
    before = len(amavis.hops["smtp"].mails)
    if amavis.before_queue:
        with pytest.raises(smtplib.SMTPDataError) as refused:
            amavis.deliver(EXE, "b@smtp.example")
        assert refused.value.smtp_code == 554
    else:
        amavis.deliver(EXE, "b@smtp.example")       # it comes back to the sender by Postfix
    amavis.through(amavis.system.smtp, Message(), "smtp")
    assert not any(b"x.exe" in mail.wire for mail in amavis.hops["smtp"].mails[before:])


def test_nothing_is_lost_when_ours_are_killed(amavis):
    amavis.kept_while_killed()


def test_what_the_command_says_of_the_right_place(amavis):
    found, said = amavis.checked()
    assert not found & {"service-setting", "milter-unused", "main-setting"}, said


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_on_port_25_itself_all_mail_stays_postfixs(option):
    ways = Amavis(option, on_port_25=True)
    try:
        found, said = ways.checked()
        assert "service-setting" in found and option.partition("=")[0] in said, said
        log, off = ways.system["milter"].log, f"diverting is off: {option.partition('=')[0]} = "

        def told():
            return Path(log).read_text(encoding="utf-8", errors="replace").rfind(off)
        # The milter looks at main.cf and master.cf again some seconds after they changed.
        eventually("the milter has read master.cf", lambda: told() >= 0)
        since = told()
        for what in ("plain", "dots"):
            before = len(ways.hops["smtp"].mails)
            ways.through(ways.system.smtp, Message(BODIES[what]), "smtp")
            assert len(ways.hops["smtp"].mails) == before + 1
        said = Path(log).read_text(encoding="utf-8", errors="replace")[since:]
        # Before the queue a milter is told the envelope alone, so that it has no mail to tell of.
        assert "action=lane" not in said, said
    finally:
        ways.end()


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_the_proxy_behind_it(option):
    """amavis gives its mail to the smtpd that has dovelane-proxy."""
    with Farm() as farm:
        hop = farm.hop()
        with Stack(postfix="proxy", nodes=1, copies=1,
                   maps={"smtp.example": hop.destination}) as it:
            port, first = it.ports.take(), f"127.0.0.1:{it.ports.take()}"
            home, conf = Path(it.directory) / "amavis", Path(it.directory) / "amavisd.conf"
            home.mkdir()
            shutil.chown(home, "amavis")
            back = it.smtp.rpartition(":")[2]
            service = Service("amavis", settings(home, conf, [port, it.ports.take()], [back, back]),
                              it.log("amavis"))
            service.start(it.mark)
            try:
                eventually("amavis listens", lambda: Beside.connects(f"127.0.0.1:{port}"))
                master = Path(it["postfix"].note["config_directory"]) / "master.cf"
                text = master.read_text().replace(
                    f"{it.smtp} inet n - n - - smtpd",
                    f"{it.smtp} inet n - n - - smtpd\n    -o content_filter=\n"
                    "    -o smtpd_authorized_xforward_hosts=127.0.0.0/8", 1)
                master.write_text(text + AGENT + f"{first} inet n - n - - smtpd\n"
                                                 f"    -o {option.format(port)}\n")
                subprocess.run(it["postfix"].command("reload"), check=True, capture_output=True)
                eventually("the way in", lambda: Beside.connects(first))
                for number, what in enumerate(("plain", "8-bit", "dots", "mime-nest"), 1):
                    with smtplib.SMTP(first) as client:
                        client.sendmail("s@x.example", ["b@smtp.example"], BODIES[what])
                    eventually("it arrives", lambda least=number: len(hop.mails) >= least)
                    assert len(hop.mails) == number
                    assert b"(amavis" in hop.mails[-1].body
                    assert hop.mails[-1].body.endswith(BODIES[what].partition(b"\r\n\r\n")[2])
                # The last line may come behind the mail.
                eventually("all went to lanes", lambda: Path(it["proxy"].log).read_text().count(
                    "action=lane") == 4)
            finally:
                group = service.process.pid
                service.end()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
