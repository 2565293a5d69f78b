"""IMAP clients of one site each, at random from a seed, which record what they do and are answered.

They are few, with few mails and folders, so that operations meet. A session sees folders before it
acts in them, mostly by SELECT with QRESYNC, and what it was shown is a `read` of the history.
"""

import random
import re
import threading
import time

from support.stack import digest
from support.stack.imap import Imap, ImapError, Lost, mailbox, parsed

from .checker import FIXED, RENAMED
from .record import now

FLAGS = ("\\Seen", "\\Flagged", "work", "\\Deleted")
# Made and deleted by anybody, under the same names again.
POOL = ("P1", "P2")
WEIGHTS = {
    "look": 8,
    "append": 10,
    "store": 20,
    "expunge": 6,
    "copy": 5,
    "move": 6,
    "create": 2,
    "rename": 3,
    "delete": 2,
    "fill": 4,
    "subscribe": 3,
    "list": 3,
}
# What clients do more than else in a phase.
MOODS = {
    "mixed": WEIGHTS,
    "flags": {"look": 4, "append": 3, "store": 60, "expunge": 2},
    "copies": {"look": 4, "append": 8, "store": 6, "expunge": 10, "copy": 14, "move": 14},
    "folders": {**WEIGHTS, "create": 10, "rename": 8, "delete": 8, "fill": 12, "list": 6},
}
LINE = b"Each mail of this history has a name of its own. 0123456789\r\n"


def body(name, size):
    head = (
        f"From: <a@stack.example>\r\nTo: <u@example.org>\r\nSubject: {name}\r\n"
        f"X-Mail: {name}\r\nMessage-ID: <{name}@history.example>\r\n\r\n"
    ).encode()
    return head + LINE * (size // len(LINE) + 1)


class Shared:
    """What clients of one history know of each other's work: names only."""

    def __init__(self, users, recorder, seed):
        self.users, self.recorder, self.seed = list(users), recorder, seed
        self.feel("mixed")
        self.stopping = threading.Event()
        self.lock, self.renamed = threading.Lock(), {user: [] for user in self.users}

    def feel(self, mood):
        """What clients do from now on. In some moods they meet in few folders."""
        self.weights = MOODS[mood]
        self.folders = {"flags": ("INBOX",), "copies": FIXED}.get(mood)

    def add(self, user, name, instead_of=None):
        with self.lock:
            names = self.renamed[user]
            if instead_of in names:
                names.remove(instead_of)
            names.append(name)

    def choose(self, user, dice):
        with self.lock:
            return dice.choice(self.renamed[user][-4:]) if self.renamed[user] else None


class Client(threading.Thread):
    """One client; a user and a session for a few operations each."""

    def __init__(self, shared, replica, number, label):
        super().__init__(daemon=True)
        self.shared, self.replica, self.site = shared, replica, replica.letter
        self.name_of, self.made = f"{replica.letter}{number}", 0
        self.label = f"{label}{self.name_of}"
        self.random = random.Random(f"{shared.seed}/{self.label}")
        self.session = self.user = self.trouble = None
        self.known = {}  # (user, folder): the last whole read

    def run(self):
        try:
            while not self.shared.stopping.is_set():
                self.converse()
        except Exception as error:  # of this program: the test must hear of it
            self.trouble = error
            raise
        finally:
            self.hang_up()

    def hang_up(self):
        if self.session is not None:
            self.session.drop()
            self.session = None

    def name(self, start=""):
        self.made += 1
        return f"{start}{self.label}-{self.made}"

    def converse(self):
        self.user = self.random.choice(self.shared.users)
        try:
            self.session = Imap(self.replica.note["imap"], self.user, timeout=120)
            self.session.command("ENABLE QRESYNC")
            for _ in range(self.random.randrange(4, 12)):
                if self.shared.stopping.is_set():
                    break
                kind = self.random.choices(*zip(*self.shared.weights.items()))[0]
                getattr(self, kind)()
        except Lost:
            time.sleep(0.05)
        except ImapError:  # at login or ENABLE
            time.sleep(0.05)
        finally:
            self.hang_up()

    def record(self, kind, command, **asked):
        """Runs a command and records it, with what command() gives of the answer. None: refused."""
        number, invoked = self.shared.recorder.number(), now()
        outcome, responded, more = "lost", None, {}
        try:
            more = command(number) or {}
            outcome, responded = "ok", now()
            return more
        except ImapError as error:
            self.session.selected = None
            more = {"why": str(error)[:200]}
            if kind == "read" or not is_unsure(str(error)):
                outcome, responded = "no", now()
            return None
        except Lost as error:
            more = {"why": str(error)[:200]}
            raise
        finally:
            self.shared.recorder.op(
                id=number,
                user=self.user,
                site=self.site,
                client=self.name_of,
                kind=kind,
                invoked=invoked,
                responded=responded,
                outcome=outcome,
                **asked,
                **more,
            )

    # -- reading ----------------------------------------------------------------------------------

    def folder(self):
        """One that this client knows of."""
        if self.shared.folders:
            return self.random.choice(self.shared.folders)
        dice = self.random.random()
        if dice < 0.6:
            return self.random.choice(FIXED)
        if dice < 0.8:
            return self.random.choice(POOL)
        return self.shared.choose(self.user, self.random) or "INBOX"

    def look(self, folder=None):
        """Selects and reads a folder; its rows [UID, mail, flags, modseq], or None."""
        folder = folder or self.folder()
        read = self.record("read", lambda number: self.read(number, folder), folder=folder)
        return read and read["mails"]

    def read(self, number, folder):
        before = self.known.get((self.user, folder))
        quick = before is not None and self.random.random() < 0.7
        words = f" (QRESYNC ({before['validity']} {before['modseq']}))" if quick else ""
        self.session.selected = None
        _, lines = self.session.command(f"SELECT {mailbox(folder)}{words}")
        self.session.selected = folder
        numbers = {"UIDVALIDITY": 0, "UIDNEXT": 0, "HIGHESTMODSEQ": 0}
        exists, changed, vanished = 0, [], []
        for line in lines:
            found = re.match(rb"\* OK \[(UIDVALIDITY|UIDNEXT|HIGHESTMODSEQ) (\d+)", line)
            if found:
                numbers[found[1].decode()] = int(found[2])
            elif found := re.match(rb"\* (\d+) EXISTS", line):
                exists = int(found[1])
            elif found := re.match(rb"\* VANISHED \(EARLIER\) ([0-9:,]+)", line):
                vanished += uid_set(found[1].decode())
            elif re.match(rb"\* \d+ FETCH", line):
                items = pairs(line)
                changed.append([int(items[b"UID"]), flags(items[b"FLAGS"])])
        since = None
        if quick and numbers["UIDVALIDITY"] == before["validity"]:
            since = {
                "read": before["read"],
                "vanished": [uid for uid in vanished if uid < numbers["UIDNEXT"]],
                "changed": changed,
            }
        mails = []
        _, lines = self.session.command(
            "UID FETCH 1:* (FLAGS MODSEQ BODY.PEEK[HEADER.FIELDS (X-MAIL)])"
        )
        for line in lines:
            items = pairs(line) if re.match(rb"\* \d+ FETCH", line) else {}
            head = next((value for key, value in items.items() if key.startswith(b"BODY[")), None)
            # NIL: it was expunged while this was read.
            if head not in (None, b"NIL"):
                mails.append(
                    [
                        int(items[b"UID"]),
                        head.partition(b":")[2].strip().decode(),
                        flags(items[b"FLAGS"]),
                        int(items[b"MODSEQ"][0]),
                    ]
                )
        read = {
            "validity": numbers["UIDVALIDITY"],
            "uidnext": numbers["UIDNEXT"],
            "modseq": numbers["HIGHESTMODSEQ"],
            "mails": mails,
            "whole": len(mails) == exists and all(row[1] for row in mails),
            "since": since,
        }
        if read["whole"]:
            self.known[self.user, folder] = {**read, "read": number}
        return read

    def list(self):
        def command(_):
            folders = digest.names(self.session.command('LIST "" "*"')[1])
            subscribed = digest.names(self.session.command('LSUB "" "*"')[1], skip=())
            return {"folders": folders, "subscribed": subscribed}

        self.record("list", command)

    # -- mails ------------------------------------------------------------------------------------

    def append(self, folder=None):
        folder, name = folder or self.folder(), self.name("m")
        chosen = [flag for flag in FLAGS[:3] if self.random.random() < 0.15]
        data = body(name, self.random.choice((200, 200, 3000)))

        def command(_):
            answer = self.session.append(folder, data, chosen)
            return {"answer": list(answer)} if answer else {}

        self.record(
            "append", command, folder=folder, mail=name, flags=[flag.lower() for flag in chosen]
        )
        if self.random.random() < 0.2:
            self.look(folder)

    def pick(self):
        """(folder, UID, mail) of what was just shown; the folder is selected."""
        folder = self.folder()
        mails = self.look(folder)
        if not mails:
            return None
        uid, mail, *_ = self.random.choice(mails[-3 if self.shared.folders else -6:])
        return folder, uid, mail

    def store(self):
        picked = self.pick()
        for _ in range(self.random.randrange(1, 4)):
            if not picked or self.session.selected is None:
                return
            folder, uid, mail = picked
            how = self.random.choices("+-=", (6, 5, 1))[0]
            chosen = self.random.sample(
                FLAGS[:3] if how == "=" else FLAGS, self.random.choice((1, 1, 2))
            )
            sign = "" if how == "=" else how

            def command(_, words=f"UID STORE {uid} {sign}FLAGS ({' '.join(chosen)})", uid=uid):
                _, lines = self.session.command(words)
                return {
                    "found": any(
                        pairs(line).get(b"UID") == b"%d" % uid
                        for line in lines
                        if re.match(rb"\* \d+ FETCH", line)
                    )
                }

            self.record(
                "store",
                command,
                folder=folder,
                uid=uid,
                mail=mail,
                how=how,
                flags=[flag.lower() for flag in chosen],
            )
        if self.random.random() < 0.4:
            self.look(picked[0])

    def expunge(self):
        picked = self.pick()
        if picked:
            folder, uid, mail = picked

            def command(_):
                self.session.command(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
                _, lines = self.session.command(f"UID EXPUNGE {uid}")
                return {"vanished": uid in gone(lines)}

            self.record("expunge", command, folder=folder, uid=uid, mail=mail)
            if self.random.random() < 0.6:
                self.look(folder)

    def target(self, folder):
        others = (*POOL, self.shared.choose(self.user, self.random) or "INBOX")
        names = self.shared.folders or (*FIXED, *others)
        return self.random.choice([name for name in names if name != folder])

    def copy(self):
        self.carry("copy")

    def move(self):
        self.carry("move")

    def carry(self, kind):
        picked = self.pick()
        if not picked:
            return
        folder, uid, mail = picked
        target = self.target(folder)

        def command(_):
            text, lines = self.session.command(f"UID {kind.upper()} {uid} {mailbox(target)}")
            found = re.search(
                r"COPYUID (\d+) \d+ (\d+)", text + b" ".join(lines).decode(errors="replace")
            )
            return {
                "copied": found is not None,
                "vanished": uid in gone(lines),
                **({"answer": [int(found[1]), int(found[2])]} if found else {}),
            }

        self.record(kind, command, folder=folder, uid=uid, mail=mail, target=target)
        if self.random.random() < 0.5:
            self.look(target)

    # -- folders ----------------------------------------------------------------------------------

    def create(self):
        if self.random.random() < 0.6:
            self.simply("create", self.random.choice(POOL), self.session.create)
            return
        name = self.name(RENAMED)
        if self.simply("create", name, self.session.create):
            self.shared.add(self.user, name)

    def simply(self, kind, folder, command, **more):
        def run(_):
            command(folder)

        done = self.record(kind, run, folder=folder, **more) is not None
        if self.random.random() < 0.4:
            self.list()
        return done

    def rename(self):
        folder, target = self.shared.choose(self.user, self.random), self.name(RENAMED)
        if folder:
            if self.simply(
                "rename", folder, lambda name: self.session.rename(name, target), target=target
            ):
                self.shared.add(self.user, target, folder if self.random.random() < 0.5 else None)

    def delete(self):
        folder = self.random.choice([*POOL, self.shared.choose(self.user, self.random) or "P1"])
        self.simply("delete", folder, self.session.delete)

    def fill(self):
        self.append(self.random.choice([*POOL, self.shared.choose(self.user, self.random) or "P2"]))

    def subscribe(self):
        on = self.random.random() < 0.55
        self.simply(
            "subscribe" if on else "unsubscribe",
            self.random.choice(FIXED),
            lambda folder: self.session.subscribe(folder, on),
        )


def is_unsure(why):
    """Whether a NO leaves open what was done: a Maildir that gets another name while a mail is saved
    may have that mail, under its new name."""
    return "Mailbox was deleted under us" in why


def pairs(line):
    """{item: value} of a FETCH answer."""
    words = parsed(line)
    return dict(zip(words[3][0::2], words[3][1::2])) if len(words) >= 4 else {}


def flags(words):
    return sorted(digest.flags_of(words))


def uid_set(text):
    """UIDs of a set that the server gave. Of VANISHED (EARLIER) it may be large, but is finite."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found += range(int(first), min(int(last or first), int(first) + 100_000) + 1)
    return found


def gone(lines):
    return {
        uid
        for line in lines
        for found in [re.match(rb"\* VANISHED ([0-9:,]+)", line)]
        if found
        for uid in uid_set(found[1].decode())
    }


class Clients:
    """with Clients(shared, replicas, each=2, label): ... - as long as the block."""

    def __init__(self, shared, replicas, each, label):
        self.shared = shared
        self.all = [
            Client(shared, replica, number, label) for replica in replicas for number in range(each)
        ]

    def __enter__(self):
        self.shared.stopping.clear()
        for client in self.all:
            client.start()
        return self

    def __exit__(self, *_):
        self.shared.stopping.set()
        for client in self.all:
            client.join(420)
        troubles = [client.trouble for client in self.all if client.trouble is not None]
        if troubles:
            raise troubles[0]

    def wait(self, answered, seconds):
        """Until so many more operations were answered; False when it took longer."""
        wanted, end = self.shared.recorder.answered + answered, time.monotonic() + seconds
        while self.shared.recorder.answered < wanted:
            if time.monotonic() > end or any(client.trouble for client in self.all):
                return False
            time.sleep(0.01)
        return True
