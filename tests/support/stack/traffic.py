"""IMAP and LMTP clients at every replica, at random from a seed, with a Journal of what they were answered."""
import random
import smtplib
import threading
import time

from . import digest
from .imap import ImapError, Lost
from .journal import OFF, ON

FLAGS = ("\\Seen", "\\Flagged", "\\Answered", "work", "later")
FOLDERS = ("INBOX", "Archive", "Work")
LINE = b"Every mail of this traffic has a name of its own, and says it in its header. 0123456789\r\n"
# How often a client does what.
WEIGHTS = {"append": 30, "store": 30, "expunge": 10, "copy": 8, "move": 8, "create": 3, "fill": 4, "delete": 2, "rename": 2,
           "subscribe": 2, "annotate": 3}
MAILS_AND_FOLDERS = {kind: weight for kind, weight in WEIGHTS.items() if kind not in ("rename", "subscribe", "annotate")}
ENTRIES = ("/private/comment", "/shared/comment")


def body(name, size):
    head = (f"From: <a@stack.example>\r\nTo: <u@example.org>\r\nSubject: {name}\r\nX-Mail: {name}\r\n"
            f"Message-ID: <{name}@traffic.example>\r\n\r\n").encode()
    return head + LINE * (size // len(LINE) + 1)


class Client(threading.Thread):
    """One client of one replica; a user and a new session every few commands."""

    def __init__(self, traffic, replica, number, lmtp=False):
        super().__init__(daemon=True)
        self.traffic, self.replica, self.lmtp = traffic, replica, lmtp
        self.journal, self.site = traffic.journal, replica.letter
        self.random = random.Random(f"{traffic.seed}/{replica.letter}/{number}")
        self.label = f"{traffic.run}{replica.letter}{number}"
        self.made = 0
        self.session = self.user = None
        self.trouble = None

    def run(self):
        try:
            while not self.traffic.stopping.is_set():
                if self.traffic.pace:
                    time.sleep(self.random.uniform(0, 2 * self.traffic.pace))
                if self.lmtp:
                    self.deliver()
                else:
                    self.converse()
        except Exception as error:  # an error of this program: the test must hear of it
            self.trouble = error
            raise
        finally:
            self.hang_up()

    def hang_up(self):
        if self.session is not None:
            self.session.drop()
            self.session = None

    def name(self):
        self.made += 1
        return f"{self.label}-{self.made}"

    def deliver(self):
        user, name = self.random.choice(self.traffic.users), self.name()
        self.journal.claim(user, "INBOX", name, self.site, time.monotonic())
        host, _, port = self.replica.note["lmtp"].rpartition(":")
        why = ""
        try:
            with smtplib.LMTP(host, int(port), timeout=240) as session:
                session.sendmail("a@stack.example", [user], body(name, self.random.randrange(200, 4000)))
            outcome = "ok"
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
            outcome, why = "no", str(error)
        except (smtplib.SMTPException, OSError):
            outcome = "lost"
        self.journal.added(user, "INBOX", name, time.monotonic(), outcome == "ok")
        self.journal.count("deliver", outcome, why)
        if outcome != "ok":
            time.sleep(0.05)

    def converse(self):
        """Some commands of one user."""
        self.user = self.random.choice(self.traffic.users)
        kind = "connect"
        try:
            self.session = self.replica.imap(self.user)
            for _ in range(self.random.randrange(3, 12)):
                if self.traffic.stopping.is_set():
                    break
                kind = self.random.choices(*zip(*self.traffic.weights.items()))[0]
                getattr(self, kind)()
        except Lost:
            self.journal.count(kind, "lost")
            time.sleep(0.05)
        except ImapError as error:
            self.journal.count(kind, "no", str(error))
        finally:
            self.hang_up()

    def pick(self, folders=FOLDERS):
        """(folder, mail, UID) of a mail that is there; None when there is none."""
        folder = self.random.choice(folders)
        try:
            self.session.select(folder, again=True)
        except ImapError:
            return None
        there = [(mail, uid) for mail, uids in self.session.uids(folder).items() for uid in uids]
        if not there:
            return None
        return (folder, *self.random.choice(there))

    def add(self, folder, name, command, copied=False, kind="append", flags=()):
        """Runs a command that adds an element. command() tells whether it was surely done."""
        if not self.journal.claim(self.user, folder, name, self.site, time.monotonic(), copied, flags):
            return False
        sure = False
        try:
            sure = command()
            # A COPY of a UID that is not there any more is answered OK, without COPYUID.
            self.journal.count(kind, "ok" if sure else "nothing")
        except ImapError:
            if kind == "append":    # NO to an APPEND: nothing was added. (Of COPY and MOVE some may be done.)
                self.journal.unclaim(self.user, folder, name)
            raise
        except Lost:
            self.cut_short(folder, name, flags)
            raise
        finally:
            if self.journal.element(self.user, folder, name):
                self.journal.added(self.user, folder, name, time.monotonic(), sure)
        return sure

    def cut_short(self, folder, mail, flags):
        if self.replica.note["storage"] == "maildir":
            self.journal.cut_short(self.user, folder, mail, flags)

    def append(self, folder=None):
        folder, name = folder or self.random.choice(FOLDERS), self.name()
        chosen = [flag for flag in FLAGS if self.random.random() < 0.1]
        data = body(name, self.random.randrange(200, 6000))

        def command():
            if folder != "INBOX" and folder in FOLDERS:
                self.need(folder)
            self.session.append(folder, data, chosen)
            return True
        self.add(folder, name, command, flags=chosen)

    def need(self, folder):
        try:
            self.session.create(folder)
        except ImapError:
            pass

    def store(self):
        picked = self.pick()
        if not picked:
            return
        folder, mail, uid = picked
        flag, how = self.random.choice(FLAGS), ON if self.random.random() < 0.6 else OFF
        sure, began = False, time.monotonic()
        try:
            self.session.store(folder, uid, how + "FLAGS", flag)
            # The mail may have been expunged, or have a new UID, since this client looked.
            for _, items in self.session.fetch(uid, "FLAGS BODY.PEEK[HEADER.FIELDS (X-MAIL)]"):
                sure = (flag.lower().encode() in [word.lower() for word in items[b"FLAGS"]]) == (how == ON)
            self.journal.count("store", "ok")
        except Lost:
            self.cut_short(folder, mail, (flag,))
            raise
        finally:
            self.journal.stored(self.user, folder, mail, flag, how, self.site, sure, began, time.monotonic())

    def expunge(self):
        picked = self.pick()
        if not picked:
            return
        folder, mail, uid = picked
        self.journal.removing(self.user, folder, mail, self.site)
        _, lines = self.session.command(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
        _, lines = self.session.command(f"UID EXPUNGE {uid}")
        if any(b" EXPUNGE" in line for line in lines):
            if not list(self.session.fetch(uid, "FLAGS")):
                self.journal.count("expunge", "ok")
                # Another one's EXPUNGE may have been shown here too: only a single one is surely ours. And a mail that got another UID in this
                # moment was told away under its old one, which is what the answer was about.
                if sum(b" EXPUNGE" in line for line in lines) == 1 and mail not in self.session.uids(folder):
                    self.journal.removed(self.user, folder, mail)

    def target(self, folder):
        return self.random.choice([name for name in FOLDERS if name != folder])

    def copy(self):
        picked = self.pick()
        if not picked:
            return
        folder, mail, uid = picked
        target = self.target(folder)
        self.need(target)
        self.add(target, mail, lambda: "COPYUID" in self.session.copy(folder, uid, target), copied=True, kind="copy")

    def move(self):
        picked = self.pick()
        if not picked:
            return
        folder, mail, uid = picked
        target = self.target(folder)
        self.need(target)

        def command():
            self.journal.removing(self.user, folder, mail, self.site)
            text, lines = self.session.move(folder, uid, target)
            done = any(b"COPYUID" in line for line in lines) or "COPYUID" in text
            if done and sum(b" EXPUNGE" in line for line in lines) == 1:
                self.journal.removed(self.user, folder, mail)
            return done
        self.add(target, mail, command, copied=True, kind="move")

    # -- folders that come and go ----------------------------------------------------------------------------------------

    def create(self):
        name = f"T-{self.name()}"
        sure = False
        try:
            self.session.create(name)
            sure = True
            self.journal.count("create", "ok")
        except ImapError as error:
            if "ALREADYEXISTS" not in str(error):
                raise
            sure = self.journal.created_by(self.replica.maker(self.session.guid(name)), str(error))
        finally:
            self.journal.folder(self.user, name, self.site, sure)

    def temporary(self, ours):
        """A temporary folder of the user that this session can see; `ours`: made at this site, as its deleter must be."""
        with self.journal.lock:
            names = [known.name for (user, _), known in self.journal.folders.items()
                     if user == self.user and known.deleted == "no" and known.sure and (not ours or known.site == self.site)]
        return self.random.choice(names) if names else None

    def fill(self):
        """A mail into such a folder."""
        name = self.temporary(ours=False)
        if name:
            self.append(name)

    def delete(self):
        name = self.temporary(ours=True)
        if not name:
            return
        began = time.monotonic()
        self.journal.deleting(self.user, name)
        try:
            self.session.delete(name)
        except (Lost, ImapError):
            self.journal.half_deleted(self.user, name)
            raise
        self.journal.deleted(self.user, name, self.site, began, time.monotonic())
        self.journal.count("delete", "ok")


    def rename(self):
        """To a name that nothing had; another site may do so, too."""
        name, target = self.temporary(ours=False), f"T-{self.name()}"
        if name:
            self.journal.renaming(self.user, name, target, self.site)
            self.session.rename(name, target)
            self.journal.renamed(self.user, target)
            self.journal.count("rename", "ok")

    # -- what folders have beside mails ----------------------------------------------------------------------------------

    def tell(self, kind, command, journal):
        """Runs a command that sets something of a folder that is there for good; journal(folder, sure, began, ended)."""
        folder, sure, began = self.random.choice(FOLDERS), False, time.monotonic()
        try:
            command(folder)
            sure = True
            self.journal.count(kind, "ok")
        finally:
            journal(folder, sure, began, time.monotonic())

    def subscribe(self):
        how = ON if self.random.random() < 0.6 else OFF
        self.tell("subscribe", lambda folder: self.session.subscribe(folder, how == ON),
                  lambda folder, *known: self.journal.subscribed(self.user, folder, how, self.site, *known))

    def annotate(self):
        entry, value = self.random.choice(ENTRIES), self.name() if self.random.random() < 0.8 else None
        self.tell("annotate", lambda folder: self.session.set_metadata(folder, entry, value),
                  lambda folder, *known: self.journal.annotated(self.user, folder, entry, value, self.site, *known))


def make_folders(replicas, users):
    """Makes the folders that all clients use at one replica and waits until all have them. A folder that two sites make at once is united,
    and its mails get other UIDs in clients' hands: traffic that is to show something else begins here."""
    for user in users:
        session = replicas[0].imap(user)
        for folder in FOLDERS[1:]:
            session.create(folder)
        session.drop()
    digest.wait_equal(replicas, users, 420)


class Traffic:
    """with Traffic(replicas, users, journal, seed) as traffic: ... — clients run as long as the block."""

    def __init__(self, replicas, users, journal, seed, imap=2, lmtp=1, run="r", pace=0.0, weights=None):
        self.weights = weights or WEIGHTS
        self.users, self.journal, self.seed, self.run, self.pace = list(users), journal, seed, run, pace
        self.stopping = threading.Event()
        self.clients = [Client(self, replica, number, lmtp=number >= imap) for replica in replicas for number in range(imap + lmtp)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping.set()
        for client in self.clients:
            client.join(420)
        troubles = [client.trouble for client in self.clients if client.trouble is not None]
        if troubles:
            raise troubles[0]

    def wait(self, operations, seconds):
        """Until so many more operations were answered; False when it took longer."""
        wanted, end = self.journal.acknowledged + operations, time.monotonic() + seconds
        while self.journal.acknowledged < wanted:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True
