"""Postfix with a program beside it that a mail passes, too (docs/stacks.md): the same mail goes
through both alone and with Dovelane; then both ways at once, while our programs are killed."""
import contextlib
import os
import re
import shutil
import signal
import smtplib
import subprocess
import threading
from pathlib import Path

import pytest
from support import admin
from support.stack import programs
from support.stack.service import Service
from support.raw_mail import BODIES, HEADER, Message
from support.waiting import eventually
from support.ways import Ways, envelope_of

CONTENT = ("plain", "8-bit", "dots", "header-folded", "mime-nest", "attachment-5MB")
# Queue ids, dates, and the name of the program in the lines of Postfix, ours, and filters.
OWN = re.compile(rb"(?<=[ \t]id )[\w-]+|\w{3}, +\d+ \w{3} \d{4} [\d:]{8} [+-]\d{4}(?: \(\w+\))?|"
                 rb"(?<=\()(?:Postfix|Dovelane)(?=\))")
ADDED = re.compile(rb"(?im)^(?:Message-Id: <\w+|Date: \w{3}, [ \d]\d \w{3} 20(?!24).*)")


def needs(*programs):
    """A mark of a test file."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [each for each in programs if not shutil.which(each, path=path)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}: "
                                                    "./setup beside installs it")


def same_text(wire):
    """A mail without what is of this mail alone."""
    head, empty, body = wire.partition(b"\r\n\r\n")
    return ADDED.sub(b"X", OWN.sub(b"X", head)) + empty + body


def port_of(address):
    return int(address.rpartition(":")[2])


class Beside(Ways):

    def __init__(self, postconf=(), settings=(), more=()):
        self.programs = []
        super().__init__(more, settings, postconf)
        self.config = Path(self.system["postfix"].note["config_directory"])
        self.directory = Path(self.system.directory)
        # For the command, which has the relay's file.
        programs.write_settings(self.system["relay-mx1"],
                                {"milter_socket": self.system["milter"].note["socket"]})
        try:
            self.prepare()
        except BaseException:
            self.end()
            raise

    def prepare(self):
        """What a kind of it has more: the program, its services in master.cf."""

    def program(self, name, argv, probes, **more):
        """Starts one; it ends with the stack."""
        service = Service(name, argv, self.system.log(name), probes, **more)
        self.programs.append(service)
        service.start(self.system.mark)
        return service

    def end(self):
        """Those that write their title over their environment are known by their group alone."""
        for service in self.programs:
            group = service.process.pid
            service.end()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        super().end()

    def home(self, name, owner="root"):
        """A directory of such a program."""
        path = self.directory / name
        path.mkdir(mode=0o755)
        shutil.chown(path, owner)
        return path

    def change(self, **how):
        """Other text of main.cf or master.cf: main=function, master=function."""
        for name, function in how.items():
            path = self.config / f"{name}.cf"
            path.write_text(function(path.read_text()))
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True,
                       timeout=60)

    def front(self, *addresses):
        """Milters in front of both ways."""
        theirs = ", ".join(addresses)
        self.change(main=lambda text: text.replace("smtpd_milters = ",
                                                   f"smtpd_milters = {theirs}, "),
                    master=lambda text: re.sub("-o smtpd_milters=inet:.*",
                                               f"-o {{ smtpd_milters = {theirs} }}", text))
        self.wait_able()

    def same(self, message, name="smtp", reason=None):
        """What arrives. reason: why it must stay Postfix's; by default it must not."""
        stock, ours = self.both(message, name)
        line = self.milter_line()
        assert ("action=lane" if reason is None else f"action=queue reason={reason}") in line, line
        assert [same_text(mail.wire) for mail in ours] == [same_text(mail.wire) for mail in stock]
        assert [envelope_of(mail) for mail in ours] == [envelope_of(mail) for mail in stock]
        return ours

    def all_the_same(self, name="smtp", content=CONTENT):
        for what in content:
            self.same(Message(BODIES[what]), name)

    def checked(self):
        """What `dovelane check postfix` finds, each in brackets."""
        said = admin.run(self.system, "check", "postfix")
        return set(re.findall(r"\[([\w-]+)\]\n", said.out)), said.out

    def kept_while_killed(self, name="smtp", send=None, mails=36, tells=None):
        """Milter and relay are killed meanwhile. Each mail that was promised is there; none
        twice but those that a kill had in hand. tells: the number of a mail that has arrived."""
        hop, promised, lock = self.hops[name], [], threading.Lock()
        send = send or (lambda raw: self.deliver(raw, f"b@{name}.example"))
        tells = tells or (lambda mail: re.search(rb"X-Number: (\d+)", mail.wire))
        before = len(hop.mails)

        def client(first):
            for number in range(first, mails, 3):
                raw = HEADER + b"X-Number: %d\r\n\r\nhello\r\n" % number
                try:
                    send(raw)
                except (OSError, smtplib.SMTPException):
                    continue        # not promised
                with lock:
                    promised.append(number)
        clients = [threading.Thread(target=client, args=(first,)) for first in range(3)]
        for each in clients:
            each.start()
        for share, victim in ((4, "milter"), (2, "relay-mx1"), (1.4, "milter")):
            eventually("some are sent", lambda least=mails / share: len(promised) >= least or
                       not any(each.is_alive() for each in clients))
            self.system.kill(victim)
            self.system.start(victim)
        for each in clients:
            each.join()
        assert len(promised) > mails / 2, promised

        def arrived():
            return [int(found[1]) for mail in hop.mails[before:] if (found := tells(mail))]
        eventually("all arrive", lambda: set(promised) <= set(arrived()), 180)
        # What was in hand at the three kills: of each of the clients, and of the relay.
        assert len(arrived()) - len(set(arrived())) <= 3 * len(clients) + 20

    def deliver(self, raw, recipient, address=None, sender="s@x.example"):
        host, _, port = (address or self.system.smtp).rpartition(":")
        with smtplib.SMTP(host, int(port), local_hostname="client.example", timeout=60) as client:
            client.sendmail(sender, [recipient], raw)
