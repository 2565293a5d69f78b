"""Several private Dovecots, each with dovelane-worker as a service, and this program in place of dovelane-replicator: it speaks
frames with the workers, carries parcels from one to the other, and keeps the reserve.

Nothing here waits for a time to pass: parcels are carried until no lane holds any and nobody asks for a TICK within a second.
"""
import errno
import hashlib
import imaplib
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from support.frames import (ADMIN, APART, CLOSE, CONFIRMED, CREDENTIALS, DONE, EXCHANGE, FAIL, HELLO,
                            HELLO_TOO, INGEST, LOOKUP, NEW, NOTE, OPEN, ORIGINS, PARCEL, READY, REPLY, RESERVE,
                            RESERVED, Reader, SEND, SHIP, TICK, frame, num, text)
from support.stack import dovecot
from support.stack.dovecot import PASSWORD
from support.stack.ports import Ports
from support.waiting import logged

USER = "user@example.org"
GUARD = 120  # seconds until something that should answer is given up

LOCATION = {"sdbox": "~/sdbox", "mdbox": "~/mdbox", "maildir": "~/Maildir"}

SERVICE = """\
mail_fsync = never
service dovelane-worker {{
  executable = {worker}
  client_limit = 1
  process_limit = 4
  unix_listener dovelane-worker {{
    mode = 0600
  }}
}}
"""


def pigeonhole():
    """Whether Sieve is installed."""
    return any(Path(lib, "dovecot", "modules", "doveadm", "lib10_doveadm_sieve_plugin.so").exists()
               for lib in ("/usr/lib", "/usr/lib64", "/usr/local/lib"))


class Failed(Exception):
    """The worker said FAIL, or went away."""


class Site:
    """A Dovecot and the connection with its worker. ids: {user: his own uid, which is his gid too}; None: all are one user's."""

    def __init__(self, base, number, sites, worker, mailbox_format, env=None, public=False, acl=False, more="", ids=None):
        self.number, self.sites, self.base, self.format = number, sites, Path(base), mailbox_format
        self.outbox = {n: [] for n in sites if n != number}
        self.reserve, self.notes, self.done, self.sock, self.opened = {}, [], {}, None, False
        self.to_ask, self.joins = set(), False  # sites; what main knows of the state
        self.verdict, self.settings = False, {}
        self.refuses = False    # numbers cannot be reserved: no commit that gives some is made
        self.namespaces = ["inbox", "pub"] if public else ["inbox"]
        dovecot.prepare_folders(self.base, "public")
        shutil.chown(self.base / "public", dovecot.MAIL_USER)
        self.ports = Ports()
        self.port = self.ports.take()
        self.log = self.base / "log"
        for name, uid in (ids or {}).items():
            home = self.base / "mail" / name.partition("@")[0]
            home.mkdir()
            os.chown(home, uid, uid)
            with (self.base / "users").open("a") as users:
                users.write(f"{name}:{{PLAIN}}{PASSWORD}:{uid}:{uid}::{home}::\n")
        self.config = self.base / "dovecot.conf"
        self.config.write_text(self.text(worker, bool(ids), env or {}, public, acl, more))
        self.process = subprocess.Popen(["dovecot", "-F", "-c", str(self.config)])
        self.wait_for(self.base / "run" / "dovelane-worker")

    def text(self, worker, listed, env, public, acl, more):
        number = dovecot.version()
        family = dovecot.family(number)
        text = SERVICE.format(worker=worker) + dovecot.INBOX
        text += dovecot.attributes(number, "attributes")
        if pigeonhole():
            text += dovecot.EXTRAS["sieve"][family]
        if public:
            text += dovecot.shared(number, "pub", "public", "Public/", self.format,
                                   self.base / "public")
        if acl:
            text += dovecot.EXTRAS["acl"][family]
        if env and family == "2.3":
            text += f"import_environment = {' '.join(f'{k}={v}' for k, v in env.items())}\n"
        elif env:
            text += "import_environment {\n" + "".join(f"  {k} = {v}\n" for k, v in env.items()) + "}\n"
        return dovecot.text(self.base, f"worker-test-{os.getpid()}-{self.number}", self.log,
                            {"imap": self.port}, self.format, number,
                            path=LOCATION[self.format][2:], listed=listed, anybody=not listed,
                            domains=False, more=text + more)

    def wait_for(self, path):
        end = time.monotonic() + GUARD
        while not (path.exists() and self.listening()):
            assert self.process.poll() is None, f"Dovecot ended: {self.log.read_text() if self.log.exists() else ''}"
            assert time.monotonic() < end, f"{path} does not come"
            time.sleep(0.02)

    def said(self, words):
        """The log's lines with these words, of which one is awaited: Dovecot's log process may write after the answer."""
        return logged(self.log, rf"(?m)^.*{re.escape(words)}.*$")

    def listening(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.disconnect()
        self.process.terminate()
        self.process.wait(GUARD)
        self.ports.close()

    def home(self):
        return self.base / "mail" / USER.partition("@")[0]

    def root(self):
        return self.home() / LOCATION[self.format][2:]

    def state(self):
        return self.root() / "dovelane"

    def doveadm(self, *words, check=True):
        done = subprocess.run(["doveadm", "-c", str(self.config), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=GUARD, check=False)
        assert not check or done.returncode == 0, f"doveadm {words}: {done.stderr.decode()}"
        return done.stdout

    # --- frames

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(GUARD)
        end = time.monotonic() + GUARD
        while self.sock.connect_ex(str(self.base / "run" / "dovelane-worker")) == errno.ECONNREFUSED: # the socket is there before somebody listens
            assert time.monotonic() < end, "nobody listens"
            time.sleep(0.02)
        self.received = b""
        sites = sorted(self.sites)
        settings = dict(self.settings, **({"public_user": USER} if len(self.namespaces) > 1 else {}))
        self.send(HELLO, num(8) + num(self.number) + num(len(sites)) + b"".join(map(num, sites)) + bytes(16) +
                  num(len(self.namespaces)) + b"".join(map(text, self.namespaces)) +
                  num(len(settings)) + b"".join(text(name) + text(value) for name, value in settings.items()))

    def disconnect(self):
        if self.sock:
            self.sock.close()
        self.sock, self.opened = None, False

    def send(self, kind, body=b""):
        self.sock.sendall(frame(kind, body))

    def receive(self):
        while len(self.received) < 4 or len(self.received) < 4 + struct.unpack_from("<I", self.received)[0]:
            data = self.sock.recv(1 << 20)
            if not data:
                raise Failed(f"the worker of site {self.number} went away: {self.log.read_text()[-2000:]}")
            self.received += data
        n = struct.unpack_from("<I", self.received)[0]
        frame, self.received = self.received[4:4 + n], self.received[4 + n:]
        return frame[0], Reader(frame[1:])

    def answer_reserve(self, r):
        what, epoch, counter = r.u8(), r.u64(), r.num()
        known = self.reserve.get(self.user)
        new = self.verdict or (what == 0 and (counter != 0 if known is None else known != (epoch, counter)))
        self.verdict = False
        if self.refuses:
            self.send(RESERVED, bytes([0, 0]))
            return
        if what != 0 or not new:
            self.reserve[self.user] = (epoch, counter)
        self.send(RESERVED, bytes([1, new and what == 0]))

    def job(self, kind, body=b""):
        """Asks, and returns (type, reader) of what ended it; replies of ADMIN in self.replies, the types of all frames in self.frames, the numbers with which batches
        begin in self.firsts."""
        if self.sock is None:
            self.connect()
        self.send(kind, body)
        self.replies, self.frames, self.firsts = [], [], []
        while True:
            got, r = self.receive()
            self.frames.append(got)
            if got == SEND:
                site, parcel_kind, bulk, first, body = r.num(), r.num(), r.u8(), r.num(), r.text()
                if first:
                    self.firsts.append(first)
                for to in ([site] if site else self.outbox):
                    self.outbox[to].append((parcel_kind, bulk, body))
            elif got == RESERVE:
                self.answer_reserve(r)
            elif got in (ORIGINS, APART):
                pass
            elif got == NOTE:
                self.notes.append((r.u8(), r.text().decode(errors="replace")))
            elif got == REPLY:
                r.u8()
                self.replies.append(r.text().decode(errors="replace"))
            elif got == FAIL:
                permanent = r.u8()
                raise Failed(f"permanent={permanent} {r.text().decode(errors='replace')}")
            else:
                return got, r

    def lookup(self, user):
        """The number of his credentials, and what he is called."""
        got, r = self.job(LOOKUP, text(user))
        assert got == CREDENTIALS, got
        return r.u64(), r.text().decode()

    def open(self, user, credentials=0, existing=False):
        """False: another worker has to be asked. existing: only if he has a state."""
        self.user = user
        got, r = self.job(OPEN, text(user) + struct.pack("<Q", credentials) + bytes([existing]))
        if got == READY:
            self.ready = (r.u8(), r.u8(), r.num())
            self.opened, self.joins = True, bool(self.ready[1])
            self.to_ask = set(self.outbox) if self.joins else set()
        return got == READY

    def ensure(self):
        if self.sock is None or not self.opened:
            assert self.open(USER)

    def ask_wanted(self):
        """Asks who is to be asked, as main does when it is the user's turn: all others, before the mailboxes of a
        new state are looked at. False: nobody was."""
        wanted = sorted(self.to_ask & set(self.outbox)) if self.opened else []
        self.to_ask = set()
        for site in wanted:
            self.ship(site, EXCHANGE)
        return bool(wanted)

    def see_new(self):
        """As main does: a state that was made anew since its user was opened asks all that it has not asked by itself."""
        was, self.joins = self.joins, self.done["joins"] == 1
        if self.joins and not was:
            self.to_ask |= {site for site, s in self.done["sites"].items() if not s["asking"]}

    def work(self, kind, body=b""):
        self.ensure()
        if kind in (INGEST, TICK):
            self.ask_wanted()
        got, r = self.job(kind, body)
        assert got == DONE, got
        self.done = {"result": r.u8(), "text": r.text().decode(errors="replace"), "sites": {}}
        for _ in range(r.num()):
            site = r.num()
            self.done["sites"][site] = {"unconfirmed": r.num(), "behind": r.u8(), "owed": r.u8(), "more": r.u8(), "asking": r.u8()}
        self.done.update(unplaced=r.num(), held=r.num(), names=r.num(), state_bytes=r.num(), joins=r.u8(), placed=r.num(), placed_bytes=r.num(), kept=r.num(), kept_bytes=r.num(), kept_restored=r.num(),
                         kept_purged=r.num(), kept_failed=r.num(), unseen=r.num(), tick=r.num())
        if kind == CLOSE:
            self.opened, self.to_ask = False, set()
        else:
            self.see_new()
        assert self.done["result"] != 2, f"site {self.number}: temporary failure: {self.done['text']}"
        return self.done

    def ingest(self, *mailboxes, sweep=False):
        return self.work(INGEST, num(len(mailboxes)) + b"".join(text(g) + text(n) for g, n in mailboxes) + bytes([sweep]))

    def ship(self, site, how, begin=0):
        return self.work(SHIP, num(site) + bytes([how]) + num(begin))

    def admin(self, *words):
        self.work(ADMIN, num(len(words)) + b"".join(map(text, words)))
        if words[0] in ("resync", "new-epoch", "join"):  # as main does, though the worker asked by itself
            self.to_ask |= set(self.outbox)
        return self.replies

    # --- mail

    def imap(self):
        box = imaplib.IMAP4("127.0.0.1", self.port, timeout=GUARD)
        box.login(USER, PASSWORD)
        return box

    def folders(self, box):
        names = []
        for line in box.list()[1]:
            m = re.match(rb'\((.*?)\) "/" (.*)', line)
            if b"\\Noselect" not in m[1] and b"\\NonExistent" not in m[1]:
                names.append(m[2].decode().strip('"'))
        return sorted(names)

    def contents(self, uids=True):
        """{folder: (UIDVALIDITY, [(UID, flags, date, hash of the body)])}"""
        box, all_of_it = self.imap(), {}
        for name in self.folders(box):
            ok, answer = box.select(f'"{name}"', readonly=True)
            assert ok == "OK", answer
            validity = int(box.response("UIDVALIDITY")[1][0])
            mails = []
            if int(answer[0]):
                for part in box.fetch("1:*", "(UID FLAGS INTERNALDATE BODY.PEEK[])")[1]:
                    if not isinstance(part, tuple):
                        continue
                    head = part[0].decode()
                    flags = frozenset(f for f in re.search(r"FLAGS \((.*?)\)", head)[1].split() if f != "\\Recent")
                    mails.append((int(re.search(r"UID (\d+)", head)[1]) if uids else 0, flags,
                                  re.search(r'INTERNALDATE "(.*?)"', head)[1], hashlib.sha256(part[1]).hexdigest()[:12]))
            all_of_it[name] = (validity if uids else 0, mails if uids else sorted(mails, key=lambda m: (m[3], sorted(m[1]))))
        box.logout()
        return all_of_it


class World:
    """Sites 1, 2, ... and the lanes between them. env: of the Dovecots, or a function of the site's number; more: for the configuration, by number."""

    def __init__(self, base, formats, worker, env=None, public=False, acl=False, more=None, ids=None):
        self.base = Path(base)
        numbers = list(range(1, len(formats) + 1))
        self.sites = {n: Site(self.base / f"site{n}", n, numbers, worker, f, env(n) if callable(env) else env, public, acl, (more or {}).get(n, ""), ids)
                      for n, f in zip(numbers, formats)}
        self.carried = []
        if ids is None:
            # Its UIDVALIDITY is everybody's. Who reads the sites one after the other would else make an INBOX at each, in different seconds.
            box = self.sites[1].imap()
            box.select("INBOX")
            box.logout()

    def __getitem__(self, number):
        return self.sites[number]

    def stop(self):
        for site in self.sites.values():
            site.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    def carry(self, drop=None):
        """One parcel from each lane to its site. False when there was none."""
        any_parcel = False
        for a in self.sites.values():
            for to, lane in a.outbox.items():
                if not lane:
                    continue
                any_parcel = True
                kind, _, body = lane.pop(0)
                self.carried.append((a.number, to, kind, len(body)))
                if drop and drop(a.number, to, kind):
                    continue
                self.sites[to].work(PARCEL, num(a.number) + num(kind) + text(body))
        return any_parcel

    def settle(self, ingest=True, rounds=200):
        """Until nobody has anything to say."""
        if ingest:
            for site in self.sites.values():
                site.ingest()
        for _ in range(rounds):
            moved = False
            while self.carry():
                moved = True
            again = moved
            for site in self.sites.values():
                again = site.ask_wanted() or again
                for to, s in list(site.done.get("sites", {}).items()):
                    if s["more"]:
                        site.ship(to, NEW)
                        again = True
                    elif s["owed"]:
                        site.ship(to, HELLO_TOO)
                        again = True
                    elif s["unconfirmed"] and not moved:  # as main does when nothing is heard for a while
                        site.ship(to, CONFIRMED)
                        again = True
                if 0 < site.done.get("tick", 0) <= 1000:
                    time.sleep(site.done["tick"] / 1000)
                    site.work(TICK)
                    again = True
            if not again and not any(lane for s in self.sites.values() for lane in s.outbox.values()):
                return
        told = {n: (s.done, s.notes[-10:]) for n, s in self.sites.items()}
        raise AssertionError(f"does not come to rest: {self.carried[-20:]}, {told}")
