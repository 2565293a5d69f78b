"""Two ways to the same next hops: stock Postfix, and Dovelane before and behind it.

One Postfix has two ways in. At one a milter that changes nothing reads the mail, and smtp(8) or
lmtp(8) delivers it from the queue; at the other dovelane-milter takes it, and dovelane-relay
delivers it. Both go to the same ports, which keep every byte."""
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

from support.raw_mail import Client, Message
from support.waiting import eventually
from support.scripted_hops import EXTENSIONS, Farm
from support.stack import Stack, pymilter

ONE_BY_ONE = {"default_destination_concurrency_limit": "1", "lmtp_destination_concurrency_limit": "1", "smtp_destination_concurrency_limit": "1",
              "smtp_send_xforward_command": "yes", "lmtp_send_xforward_command": "yes", "strict_smtputf8": "no"}
SETTINGS = {"destination_concurrency": "1", "max_entry": "40MB", "store_deadline": "20s", "settle": "25s", "copies": "1"}


class Ways:
    def __init__(self, more=(), settings=(), postconf=()):
        """more: {domain: destination} of other next hops, or a function that makes it of the hops.
        settings, postconf: more lines of dovelane.conf and main.cf."""
        self.farm = Farm()
        self.milter = pymilter.Server(("127.0.0.1", 0), pymilter.Reader)
        threading.Thread(target=self.milter.serve_forever, daemon=True).start()
        self.hops = {}
        for protocol in ("smtp", "lmtp"):
            self.hops[protocol] = self.farm.hop(lmtp=protocol == "lmtp", offers=[word for word in EXTENSIONS if word != "CHUNKING"])
            self.hops[protocol + "-chunking"] = self.farm.hop(lmtp=protocol == "lmtp")
            self.hops[protocol + "-bare"] = self.farm.hop(lmtp=protocol == "lmtp", offers=["PIPELINING"])
            self.hops[protocol + "-send"] = self.farm.hop(lmtp=protocol == "lmtp", offers=["PIPELINING"])
        maps = {f"{name}.example": hop.destination for name, hop in self.hops.items()} | dict(more(self.hops) if callable(more) else more)
        settings = dict(SETTINGS, **dict(settings), destinations={self.hops[name].destination: {"without_8bitmime": "send"} for name in ("smtp-send", "lmtp-send")})
        self.system = Stack(postfix="divert", nodes=1, maps=maps, settings=settings, postconf=ONE_BY_ONE | dict(postconf)).up()
        self.add_stock_port()
        self.wait_able()

    def add_stock_port(self):
        note = self.system["postfix"].note
        self.stock = f"127.0.0.1:{self.system.ports.take()}"
        master = Path(note["config_directory"]) / "master.cf"
        text = master.read_text() + f"{self.stock} inet n - n - - smtpd\n    -o smtpd_milters=inet:127.0.0.1:{self.milter.server_address[1]}\n"
        master.write_text(text)
        os.utime(master, (time.time() - 60,) * 2)
        subprocess.run(self.system["postfix"].command("reload"), check=True, capture_output=True)
        eventually("the second way in", lambda: self.connects(self.stock))

    @staticmethod
    def connects(address):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return False
        return True

    def wait_able(self):
        """The milter looks at Postfix's new configuration first."""
        eventually("the milter diverts", lambda: self.through(self.system.smtp, Message(), "lmtp") and "action=lane" in self.milter_line())
        for hop in self.hops.values():
            hop.mails.clear()

    def milter_line(self):
        """What the milter said about the last mail."""
        lines = Path(self.system["milter"].log).read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if f" {self.queue_id}: " in line), "")

    def through(self, address, message, name, most=90):
        """The transactions that the hop saw for it, and waits for them."""
        hop = self.hops[name]
        before = len(hop.mails)
        client = Client(address)
        self.queue_id = client.send(message, f"{name}.example")
        client.close()
        wanted = len({each.lower() for each in message.recipients})
        eventually(f"{self.queue_id} arrives", lambda: sum(len(mail.kept) for mail in hop.mails[before:]) >= wanted, most)
        return hop.mails[before:]

    def both(self, message, name):
        stock = self.through(self.stock, message, name)
        ours = self.through(self.system.smtp, message, name)
        return stock, ours

    def end(self):
        self.system.down()
        self.farm.end()
        self.milter.shutdown()
        self.milter.server_close()


def envelope_of(mail):
    """The commands with a size of X, recipients sorted as qmgr(8) sorts them."""
    lines = [re.sub(r" SIZE=\d+", " SIZE=X", line) for line in mail.commands]
    return lines[:1] + sorted(lines[1:-1]) + lines[-1:]


def verifies(message, record):
    import dkim
    return dkim.verify(message, dnsfunc=lambda name, timeout=5: record)
