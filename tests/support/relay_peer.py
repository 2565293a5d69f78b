"""A next hop under a test's control: speaks SMTP or LMTP, remembers every byte, and misbehaves as told.

    peer.say("RCPT", "450 4.2.0 later", match="b@", times=1)     the first rule that fits answers instead of the peer
    peer.say("DATA", CLOSE)

Verbs: CONNECT, EHLO (also LHLO), HELO, STARTTLS, XCLIENT, XFORWARD, MAIL, RCPT, DATA, BDAT (before its bytes are read), BODY (after the first bytes of a message), DOT (also of a whole BDAT), RSET, IDLE (right
behind the answer to a dot). Answers: a text (LF becomes CRLF, and a CRLF is added), CLOSE, RESET, HANG (no answer until the peer ends),
RAW(bytes), or a function of the session that returns one of these.
"""
import re
import socket
import struct
import threading
from dataclasses import dataclass, field

CLOSE, RESET, HANG = "close", "reset", "hang"
CHUNKS = ("PIPELINING", "CHUNKING", "SIZE 104857600", "8BITMIME", "DSN", "SMTPUTF8")
ALL = ("PIPELINING", "SIZE 104857600", "8BITMIME", "DSN", "SMTPUTF8", "XFORWARD NAME ADDR PORT PROTO HELO IDENT")


class RAW(bytes):
    """Sent as it is."""


@dataclass
class Mail:
    """A message that the peer answered 2xx for, to at least one recipient."""
    sender: str
    recipients: list
    body: bytes
    session: int
    lines: list             # the commands of its transaction


@dataclass
class Rule:
    verb: str
    answer: object
    match: str
    times: int
    used: int = 0


@dataclass
class Session:
    number: int
    socket: socket.socket
    data: bytearray = field(default_factory=bytearray)
    lines: list = field(default_factory=list)
    held: list = field(default_factory=list)
    secure: bool = False


class Meeting:
    """An answer that waits until so many sessions are waiting for it, or it is told to."""

    def __init__(self, wanted, text="250 2.0.0 Ok"):
        self.wanted, self.text, self.lock, self.met, self.here, self.most = wanted, text, threading.Lock(), threading.Event(), 0, 0

    def __call__(self, session):
        with self.lock:
            self.here += 1
            self.most = max(self.most, self.here)
            if self.here >= self.wanted:
                self.met.set()
        assert self.met.wait(200)
        with self.lock:
            self.here -= 1
        return self.text


class Gone(Exception):
    """The session is over."""


class Peer:
    def __init__(self, lmtp=False, offers=ALL, path=None, port=0, batch=False, tls=None):
        """tls: an ssl.SSLContext for STARTTLS, which is then offered."""
        self.lmtp, self.offers, self.path, self.batch, self.tls = lmtp, offers, path, batch, tls
        self.clients = []   # the address of each
        self.reads, self.resumed = [], 0    # what each recv brought, handshakes that resumed a session
        self.lock = threading.Lock()
        self.rules, self.mails, self.lines, self.sessions = [], [], [], 0
        self.open, self.most_open = 0, 0
        self.over = threading.Event()
        self.listener, self.port, self.sockets = None, port, set()
        self.up()

    # -- the test's side ---------------------------------------------------------------------------------------------------

    def up(self):
        if self.path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(self.path))
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
            self.port = self.listener.getsockname()[1]
        self.listener.listen(128)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def down(self):
        """Nobody listens any more, and every session is reset."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            for each in self.sockets:
                self.reset(each)

    def end(self):
        self.over.set()
        self.down()

    @property
    def hop(self):
        return f"unix:{self.path}" if self.path else f"[127.0.0.1]:{self.port}"

    @property
    def destination(self):
        return ("lmtp:" if self.lmtp else "smtp:") + self.hop

    def say(self, verb, answer, match="", times=1 << 30):
        with self.lock:
            self.rules.append(Rule(verb, answer, match, times))

    def well(self):
        with self.lock:
            self.rules.clear()

    def seen(self, pattern):
        """All command lines that match."""
        with self.lock:
            return [line for line in self.lines if re.search(pattern, line)]

    def bodies(self):
        with self.lock:
            return [mail.body for mail in self.mails]

    # -- the wire ------------------------------------------------------------------------------------------------------------

    @staticmethod
    def reset(each):
        try:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.shutdown(socket.SHUT_RD)
            each.close()
        except OSError:
            pass

    @staticmethod
    def left(each):
        """The client has said QUIT or closed, and this session's thread has not read that yet."""
        try:
            return each.recv(4, socket.MSG_PEEK | socket.MSG_DONTWAIT) in (b"", b"QUIT")
        except ConnectionError:
            return True
        except OSError:     # nothing has come; or TLS took it over
            return False

    def accept(self, listener):
        while True:
            try:
                accepted, client = listener.accept()
            except OSError:
                return
            with self.lock:
                self.sessions += 1
                self.clients.append(client)
                self.open += 1
                self.most_open = max(self.most_open, self.open - sum(map(self.left, self.sockets)))
                self.sockets.add(accepted)
                if not self.path:
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                session = Session(self.sessions, accepted)
            threading.Thread(target=self.serve, args=(session,), daemon=True).start()

    def serve(self, session):
        try:
            self.talk(session)
        except (Gone, OSError):
            pass
        with self.lock:
            self.open -= 1
            self.sockets.discard(session.socket)
        session.socket.close()

    def decide(self, session, verb, line, default):
        """What to say, by the first rule that fits."""
        with self.lock:
            rule = next((r for r in self.rules if r.verb == verb and r.used < r.times and re.search(r.match, line)), None)
            if rule:
                rule.used += 1
        said = rule.answer if rule else default
        return said(session) if callable(said) else said

    def tell(self, session, verb, said):
        """Says it. The class of the reply code, as a digit."""
        if said is None:
            return "2"
        if said == HANG:
            self.over.wait()
            raise Gone
        if said == CLOSE:
            raise Gone
        if said == RESET:
            self.reset(session.socket)
            raise Gone
        data = said if isinstance(said, RAW) else said.replace("\n", "\r\n").encode() + b"\r\n"
        if self.batch and verb in ("XFORWARD", "MAIL", "RCPT"):
            # A server that collects its answers until DATA: a client that does not pipeline would wait for ever.
            session.held.append(data)
        else:
            session.socket.sendall(b"".join(session.held) + data)
            session.held.clear()
        return chr(data[0]) if data else "5"    # RAW(b""): no answer at all

    def answer(self, session, verb, line, default):
        return self.tell(session, verb, self.decide(session, verb, line, default))

    def read(self, session):
        data = session.socket.recv(1 << 20)
        if not data:
            raise Gone
        with self.lock:
            self.reads.append(data)
        session.data += data

    def line(self, session):
        while b"\n" not in session.data:
            self.read(session)
        line, _, rest = bytes(session.data).partition(b"\n")
        session.data[:] = rest
        line = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
        session.lines.append(line)
        with self.lock:
            self.lines.append(line)
        return line

    # -- the protocol --------------------------------------------------------------------------------------------------------

    def talk(self, session):
        if self.answer(session, "CONNECT", "", "220 peer.example ESMTP") != "2":
            raise Gone
        sender, accepted = None, []
        while True:
            line = self.line(session)
            verb = line.split(" ")[0].upper()
            if verb in ("EHLO", "LHLO"):
                offers = [f"250-{offer}" for offer in self.offers]
                if self.tls and not session.secure:
                    offers.append("250-STARTTLS")
                wrong = (verb == "LHLO") != self.lmtp
                self.answer(session, "EHLO", line, "500 wrong protocol" if wrong else "\n".join(["250-peer.example", *offers, "250 OK"]))
            elif verb == "MAIL":
                session.lines = session.lines[-1:] if not session.held else session.lines[-2:]
                sender = line[line.index("<") + 1:line.rindex(">")] if "<" in line else ""
                accepted = []
                if self.answer(session, "MAIL", line, "250 2.1.0 Ok") != "2":
                    sender = None
            elif verb == "RCPT":
                address = line[line.index("<") + 1:line.rindex(">")]
                default = "503 5.5.1 nested" if sender is None else "250 2.1.5 Ok"
                if self.answer(session, "RCPT", line, default) == "2":
                    accepted.append(address)
            elif verb == "DATA":
                if self.answer(session, "DATA", line, "354 go on" if accepted else "554 5.5.1 no valid recipients") != "3":
                    continue
                body = self.message(session)
                self.dot(session, sender, accepted, body)
                sender, accepted = None, []
            elif verb == "BDAT":
                if self.bdat(session, line, sender, accepted):
                    sender, accepted = None, []
            elif verb == "STARTTLS":
                if self.answer(session, "STARTTLS", line, "220 2.0.0 go" if self.tls else "502 no") == "2":
                    self.secure(session)
            elif verb == "XCLIENT":
                self.answer(session, "XCLIENT", line, "220 peer.example ESMTP")
            elif verb == "RSET":
                sender, accepted = None, []
                self.answer(session, "RSET", line, "250 2.0.0 Ok")
            elif verb == "QUIT":
                self.answer(session, "QUIT", line, "221 2.0.0 Bye")
                raise Gone
            elif verb in ("HELO", "XFORWARD"):
                self.answer(session, verb, line, "250 peer.example")
            else:
                self.answer(session, verb, line, "500 5.5.2 what?")

    def message(self, session):
        """The message as a server reads it: up to the lone dot, without the doubled ones."""
        while not session.data:
            self.read(session)
        self.answer(session, "BODY", "", None)
        looked = 0
        while not session.data.startswith(b".\r\n") and session.data.find(b"\r\n.\r\n", looked) < 0:
            looked = max(0, len(session.data) - 4)
            self.read(session)
        if session.data.startswith(b".\r\n"):
            raw, rest = b"", bytes(session.data[3:])
        else:
            raw, _, rest = bytes(session.data).partition(b"\r\n.\r\n")
            raw += b"\r\n"
        session.data[:] = rest
        return re.sub(rb"(\A|\r\n)\.", rb"\1", raw)

    def bdat(self, session, line, sender, accepted):
        """RFC 3030: its bytes are read before it is answered. True when that ended the transaction."""
        said = self.decide(session, "BDAT", line, None)
        if said in (CLOSE, RESET, HANG):
            self.tell(session, "BDAT", said)
        size = int(line.split(" ")[1])
        assert line.endswith(" LAST")
        while len(session.data) < size:
            self.read(session)
        body = bytes(session.data[:size])
        del session.data[:size]
        if said is None and not accepted:
            said = "554 5.5.1 no valid recipients"
        if said is not None:
            self.tell(session, "BDAT", said)
            return said[:1] in ("2", b"2")
        self.dot(session, sender, accepted, body)
        return True

    def secure(self, session):
        session.socket = self.tls.wrap_socket(session.socket, server_side=True)
        session.secure = True
        with self.lock:
            self.resumed += session.socket.session_reused

    def dot(self, session, sender, accepted, body):
        """Remembered before it is told: a test that sees the answer's effect finds the mail."""
        for each in [[address] for address in accepted] if self.lmtp else [accepted]:
            said = self.decide(session, "DOT", ",".join(each), "250 2.0.0 Ok: queued as PEER1")
            if said[:1] in ("2", b"2"):
                with self.lock:
                    self.mails.append(Mail(sender, list(each), body, session.number, list(session.lines)))
            self.tell(session, "DOT", said)
        self.answer(session, "IDLE", "", None)
