"""Debian's own Postfix with lanes, relays and a Dovecot: what is asked of it again and again."""
import re
import smtplib
from pathlib import Path

from . import admin
from .mail import queue_id
from .relay_world import eventually
from .stack import debian, dovecot, lanes, resp


class Site(debian.DebianStack):
    """The stack, and what is asked of it again and again."""

    def log_of(self, name):
        return Path(self[name].log).read_text()

    def connect(self, port="smtp"):
        host, _, number = self["postfix"].note[port].rpartition(":")
        client = smtplib.SMTP(host, int(number), timeout=60)
        client.ehlo("client.example")
        return client

    def send(self, recipient, *headers, sender="s@x.example", port="smtp", subject="x"):
        """(code, text) of the answer to the dot."""
        with self.connect(port) as client:
            assert client.mail(sender)[0] == 250
            code, text = client.rcpt(recipient)
            assert code == 250, text
            return client.data("\r\n".join((f"Subject: {subject}", *headers, "", "hello", "")).encode())

    def milter_line(self, text):
        """What the milter said of the mail that was answered so; "" when it did not see its end."""
        return next((line for line in self.log_of("milter").splitlines() if f" {queue_id(text)}: from=" in line), "")

    def postfix_lines(self, text):
        return [line for line in self.log_of("postfix").splitlines() if queue_id(text) in line]

    def mailbox(self, user, subject):
        """The texts of the user's mails with that subject."""
        return [mail for mail in self.mails(user) if f"\nSubject: {subject}\n" in mail]

    def mails(self, user):
        said = dovecot.doveadm(self["dovecot"].note, "fetch", "-u", f"{user}@example.org", "text", "mailbox", "INBOX").decode()
        return [mail.replace("\r\n", "\n") for mail in re.split(r"(?m)^text:\n", said)[1:]]

    def arrives(self, user, subject):
        return eventually(f"{subject} arrives at {user}", lambda: self.mailbox(user, subject))

    def stored(self):
        found = []
        for address in self.nodes.values():
            with resp.Connection(address) as redis:
                found += [name for name in lanes.names(redis) if redis.call("LANE.LEN", name)]
        return found

    def ready(self):
        """Waits until a mail is diverted: the milter is connected to its nodes. All users have their mailboxes."""
        if not dovecot.users_with_mail(self["dovecot"].note):
            dovecot.make_mailboxes(self["dovecot"].note, dovecot.USERS)
        eventually("the nodes are alive and whole", lambda: admin.run(self, "nodes").status == 0, 60)
        eventually("mail is diverted", lambda: "action=lane" in self.milter_line(self.send("user9@example.org", subject="ready")[1]), 60)
        return self
