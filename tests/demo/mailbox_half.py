"""The mailbox half: one user at three Dovecot sites, whose clients go on when links are cut."""

import threading
import time

from telling import Failed, say, table, title
from support.stack import digest
from support.stack.group import Group
from support.stack.imap import Lost
from support.waiting import eventually

STORAGES = ("sdbox", "maildir", "mdbox")
USER = "bob@example.org"
STAYS = ("Lunch", "New plan")  # of what is saved; bob removes the others


def mail(subject):
    return (
        f"From: <alice@example.org>\r\nTo: <{USER}>\r\nSubject: {subject}\r\nX-Mail: {subject}\r\n"
        f"\r\n{subject}.\r\n"
    ).encode()


class Sites:
    """Three Dovecots with a replicator each; between them links that can be cut."""

    def __init__(self):
        self.stack = Group(*STORAGES, users=[USER], settings=None, workers=2)

    @property
    def replicas(self):
        return self.stack.replicas

    def up(self):
        self.stack.up()

    def imap(self, number):
        return self.replicas[number].imap(USER)

    def equal(self):
        """What all three show as soon as they show the same; after how many milliseconds."""
        began, shown = time.monotonic(), []

        def same():
            try:
                shown[:] = [digest.read(replica, USER) for replica in self.replicas]
            except Lost:  # its UIDVALIDITY changed, say: clients log in again
                return False
            return not any(digest.difference(shown[0], other) for other in shown[1:])

        eventually("the three sites show the same", same)
        return shown[0], (time.monotonic() - began) * 1000

    def act_idle(self):
        title("5. bob's mailboxes are at three Dovecot sites, and each takes his changes")
        for replica in self.replicas:
            say(f"{replica.note['site']}  IMAP {replica.note['imap']}  {replica.note['storage']}")
        with self.imap(0) as a:
            a.create("Plans")
            for folder, subject in (
                ("INBOX", "Lunch"),
                ("INBOX", "Invoice"),
                ("Plans", "Old plan"),
            ):
                a.append(folder, mail(subject))
        self.equal()
        told = self.hear_of_a_flag()
        say(
            f'A client flags "Lunch" at site-a. Clients in IDLE hear of it after {told[0]:.0f} ms'
            " at site-a itself,"
        )
        say(
            f"{told[1]:.0f} ms at site-b, {told[2]:.0f} ms at site-c. (Dovecot lets a client in"
            " IDLE wait 500 ms.)"
        )

    def hear_of_a_flag(self):
        """Milliseconds until a client in IDLE at each site is told of it."""
        heard, ready = {}, threading.Semaphore(0)

        def listen(number):
            with self.imap(number) as session:
                session.select("INBOX")
                tag = session.idle()
                ready.release()
                heard[number] = session.wait_untagged(rb"FETCH .*Flagged", 60)
                session.done(tag)

        threads = [threading.Thread(target=listen, args=(n,)) for n in range(len(self.replicas))]
        for thread in threads:
            thread.start()
        for thread in threads:
            ready.acquire()
        with self.imap(0) as a:
            a.select("INBOX")
            began = time.monotonic()
            a.store("INBOX", 1, "+FLAGS", "\\Flagged")
        for thread in threads:
            thread.join()
        if None in heard.values():
            raise Failed("a client in IDLE did not hear of a flag")
        return [(heard[n] - began) * 1000 for n in range(len(self.replicas))]

    def act_cut(self):
        title("6. All links between the sites are cut, and bob goes on at each of them")
        self.stack.cut()
        with self.imap(0) as a, self.imap(1) as b, self.imap(2) as c:
            a.select("INBOX")
            a.store("INBOX", 1, "+FLAGS", "\\Seen")
            a.rename("Plans", "Projects")
            b.append("Plans", mail("New plan"))
            b.select("INBOX")
            b.store("INBOX", 1, "+FLAGS", "\\Answered")
            c.delete("Plans")
            c.select("INBOX")
            c.expunge("INBOX", 2)
        table(
            [
                ("site", "what bob does there"),
                ("site-a", 'reads "Lunch" (\\Seen); renames the folder Plans to Projects'),
                ("site-b", 'answers "Lunch" (\\Answered); files "New plan" in Plans'),
                ("site-c", 'expunges "Invoice"; deletes the folder Plans with "Old plan" in it'),
            ]
        )
        self.stack.heal()
        shown, took = self.equal()
        say(f"The links are mended. {took:.0f} ms later the three sites show the same:")
        for name, folder in sorted(shown.folders.items()):
            for message in folder.messages.values():
                say(f"    {name:<9} {message.name:<9} {' '.join(sorted(message.flags))}")
        wanted = {
            "INBOX": {"Lunch": [("\\answered", "\\flagged", "\\seen")]},
            "Projects": {"New plan": [()]},
        }
        if shown.shape() != wanted:
            raise Failed(f"the sites show {shown.shape()} instead of {wanted}")
        say(
            "Flags of all sites count. The delete took what site-c had seen and nothing else: the"
            " new plan"
        )
        say("and its folder live, under the new name.")

    def act_index(self):
        title("7. site-a loses bob's index files, which hold his flags")
        before, _ = self.equal()
        gone = [
            path for path in self.replicas[0].store(USER).rglob("dovecot.*index*") if path.is_file()
        ]
        for path in gone:
            path.unlink()
        began = time.monotonic()
        with self.imap(0) as a:
            a.select("INBOX")
        shown, _ = self.equal()
        if shown.shape() != before.shape():
            raise Failed(f"the sites show {shown.shape()} instead of {before.shape()}")
        say(
            f"{len(gone)} files were removed. {(time.monotonic() - began) * 1000:.0f} ms after"
            " bob's next login all is there again,"
        )
        say("and the other sites lost nothing meanwhile.")

    def counts(self):
        """Sent and meant to stay, there, lost, twice."""
        shown, _ = self.equal()
        there = [
            message.name
            for folder in shown.folders.values()
            for message in folder.messages.values()
        ]
        left = set(STAYS)
        return len(left), len(there), len(left - set(there)), len(there) - len(set(there))

    def addresses(self):
        a = self.replicas[0]
        return [
            (
                f"IMAP, {one.note['site']}",
                one.note["imap"],
                f"{USER}, password {one.note['password']}",
            )
            for one in self.replicas
        ] + [
            (
                "the replicas",
                f"doveadm -c {a.note['config']} dovelane status -u {USER}",
                "lag, verify ...",
            )
        ]

    def play(self):
        for act in (self.act_idle, self.act_cut, self.act_index):
            act()
