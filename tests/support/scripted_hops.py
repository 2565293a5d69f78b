"""Next hops by script: any number of ports in one thread, SMTP or LMTP, with whatever extensions are wanted.

Each keeps every byte of every session, and the mails that it took. In its first session a hop may misbehave, by faults:

    Fault(place, kind)

Places: CONNECT, EHLO (also LHLO), HELO, STARTTLS (its answer), TLS (the ClientHello), EHLO2 (in the same session again, by TLS or after XCLIENT),
XFORWARD, XCLIENT, MAIL, RCPT1, RCPT2, ... RCPT* (each of them), DATA, BODY (the first bytes of a message), BDAT (a chunk that is not the last), DOT (the answer to the dot or to the last chunk; LMTP: DOT1, DOT2, ... for the
first, second, ... recipient that was accepted), RSET, QUIT. A fault without its place does nothing. Kinds: see `KINDS`.

STARTTLS is offered where a hop has `certificates`: names of what it shows in its sessions in turn, the last one for all that follow.

From its second session or second MAIL on a hop is well: what was not lost arrives, what arrives twice was doubled.
"""
import asyncio
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

EXTENSIONS = ("PIPELINING", "SIZE 104857600", "8BITMIME", "ENHANCEDSTATUSCODES", "DSN", "SMTPUTF8", "CHUNKING",
              "XFORWARD NAME ADDR PORT PROTO HELO IDENT")

# What is said instead of the answer. {code} and {text} are the answer that was due.
TEXTS = {
    "4xx": "450 4.7.1 not now\r\n",
    "5xx": "550 5.7.1 never\r\n",
    "4xx-no-dsn": "451 try again\r\n",
    "5xx-no-dsn": "554 go away\r\n",
    "552": "552 too many\r\n",
    "5xx-4.x.x": "550 4.7.1 which is it\r\n",
    "bare-code": "{code}\r\n",
    "bare-lf": "{code} {text}\n",
    "lines": "{code}-first\r\n{code}-second\r\n{code} {text}\r\n",
    "two-codes": "{code}-first\r\n450 4.7.1 second\r\n",
    "noise-first": "SSH-2.0-noise\r\n{code} {text}\r\n",
    "empty-first": "\r\n{code} {text}\r\n",
    "control": "{code} a\x01b\x7fc\x80d\r\n",
    "noise": "SSH-2.0-noise\r\n",
    "long-line": "{code} " + "x" * 6000 + "\r\n",
    "300-lines": "{code}-x\r\n" * 300 + "{code} {text}\r\n",
    "2xx": "250 2.0.0 fine\r\n",
    "3xx": "354 go on\r\n",
    "1xx": "150 1.0.0 soon\r\n",
    "6xx": "650 6.0.0 what\r\n",
    "twice": "{code} {text}\r\n{code} {text}\r\n",
    "plain-behind": "{code} {text}\r\n250 2.0.0 said before anything was secret\r\n",
}
# What is done: ends the connection (with FIN, with RST) instead of an answer, behind it, behind a 421; says nothing for ever; says it
# slowly, reads slowly; `kept` at a dot: the mail counts as taken although nobody was told.
DEEDS = ("421", "close", "close-kept", "reset", "reset-kept", "close-after", "stall", "stall-kept", "slow", "slow-read")
# The answers to a ClientHello. half: the first bytes of the server's own flight, and then?
HELLOS = {"garbage": bytes(range(256)), "plain": b"454 4.7.0 no TLS after all\r\n", "alert": b"\x15\x03\x03\x00\x02\x02\x28", "record": b"\x16\x03\x03\x40\x00\xff" + bytes(16383)}
HANDSHAKES = (*HELLOS, "close", "reset", "stall", "half-close", "half-reset", "half-stall")
KINDS = (*TEXTS, *DEEDS, *HANDSHAKES)
SILENT = ("stall", "stall-kept", "half-stall", "noise")  # for some clients only a time limit ends these


@dataclass
class Fault:
    place: str
    kind: str

    def __str__(self):
        return f"{self.place}={self.kind}"


@dataclass
class Mail:
    """One transaction whose message arrived whole."""
    sender: str
    commands: list          # MAIL, RCPT of those accepted and refused, DATA or BDAT, as they came
    accepted: list          # recipients
    kept: list              # those among them that count as delivered
    wire: bytes             # the message as it came over the wire: with dots and its end; of BDAT only the chunks
    session: int
    chunked: bool = False
    forwarded: dict = field(default_factory=dict)   # what XFORWARD said
    secure: bool = False                            # it came by TLS

    @property
    def body(self):
        """The message without what the protocol adds."""
        if self.chunked:
            return self.wire
        return re.sub(rb"(\A|\r\n)\.", rb"\1", self.wire[:-3])


def certificates(where):
    """Makes an authority (ca.pem), and .pem and .key of its servers `server` (next.example and 127.0.0.1), `name` (elsewhere.example) and `expired`, and of
    `other`, which no authority knows."""
    def run(*words):
        subprocess.run(["openssl", *words], cwd=where, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *new, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    run("req", "-x509", *new, "-days", "2", "-keyout", "other.key", "-out", "other.pem", "-subj", "/CN=next.example")
    # openssl ca: from 3.5 on x509 has no days below 1, and before 3.4 it has no dates.
    (where / "ca.conf").write_text("[ca]\ndefault_ca=it\n[it]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=sha256\npolicy=any\n"
                                   "email_in_dn=no\nunique_subject=no\n[any]\ncommonName=supplied\n")
    (where / "index").touch()
    far = ("20000101000000Z", "20490101000000Z")
    for name, host, dates in (("server", "next.example", far), ("name", "elsewhere.example", far),
                              ("expired", "next.example", ("20000101000000Z", "20000102000000Z"))):
        (where / "ext").write_text(f"subjectAltName=DNS:{host}{',IP:127.0.0.1' if name == 'server' else ''}\n")
        run("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={host}")
        run("ca", "-batch", "-config", "ca.conf", "-create_serial", "-notext", "-cert", "ca.pem", "-keyfile", "ca.key", "-startdate", dates[0],
            "-enddate", dates[1], "-in", f"{name}.csr", "-extfile", "ext", "-out", f"{name}.pem")
    return where


class Hop:
    """One port."""

    def __init__(self, farm, lmtp=False, offers=EXTENSIONS, faults=(), room=None, name="hop.example", certificates=()):
        self.certificates = certificates
        self.farm, self.lmtp, self.offers, self.faults, self.name = farm, lmtp, offers, list(faults), name
        self.mails, self.sessions, self.met = [], [], []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if room:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)  # inherited: the client fills it soon
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]

    @property
    def destination(self):
        return f"{'lmtp' if self.lmtp else 'smtp'}:[127.0.0.1]:{self.port}"

    def times_kept(self, recipient):
        return sum(mail.kept.count(recipient) for mail in list(self.mails))


class Session(asyncio.Protocol):
    def __init__(self, hop):
        self.hop, self.number = hop, len(hop.sessions) + 1
        self.raw, self.buffer, self.out = bytearray(), bytearray(), bytearray()
        self.held, self.message, self.chunk = False, None, None
        self.sender, self.accepted, self.commands, self.nrcpt = None, [], [], 0
        self.mute = self.mute_before = self.secure = False
        self.nmail = 0
        self.pending, self.chunks, self.chunking, self.bodied, self.forwarded = [], b"", False, False, {}
        self.tls, self.incoming, self.outgoing, self.greeted, self.upgrade = None, ssl.MemoryBIO(), ssl.MemoryBIO(), 0, False
        hop.sessions.append(self)

    # -- bytes ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hop.farm.transports.add(transport)
        self.answer("CONNECT", f"220 {self.hop.name} ESMTP")
        self.flush()

    def connection_lost(self, error):
        self.hop.farm.transports.discard(self.transport)

    def data_received(self, data):
        if self.tls and not self.mute:
            self.incoming.write(data)
            data = self.decrypted()
        self.raw += data
        self.buffer += data
        self.work()

    def send(self, data):
        if self.tls:
            self.tls.write(data)
            data = self.outgoing.read()
        self.transport.write(data)

    def decrypted(self):
        """What has come as far as it can be read; b"" during the handshake."""
        data = b""
        try:
            if not self.secure:
                if self.incoming.pending and (kind := self.fault("TLS")):
                    self.spoil(kind)
                    return b""
                self.tls.do_handshake()
                self.secure = True
                self.transport.write(self.outgoing.read())
            while more := self.tls.read(65536):
                data += more
        except ssl.SSLWantReadError:
            self.transport.write(self.outgoing.read())
        except ssl.SSLError:
            # A client that does not like the certificate says so, and goes.
            if not self.transport.is_closing():
                self.transport.write(self.outgoing.read())
                self.close()
        return data

    def spoil(self, kind):
        """The server's part of the handshake, as the fault wants it."""
        if kind in HELLOS:
            self.transport.write(HELLOS[kind])
            self.held = True
            return
        if kind.startswith("half-"):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.transport.write(self.outgoing.read()[:40])
        # What follows is not said by TLS.
        self.out.clear()
        self.mute = True
        kind = kind.removeprefix("half-")
        if kind == "close":
            self.close()
        elif kind == "reset":
            self.reset()

    def begin_tls(self):
        name = self.hop.certificates[min(self.number, len(self.hop.certificates)) - 1]
        self.flush()
        self.tls = self.hop.farm.contexts[name].wrap_bio(self.incoming, self.outgoing, server_side=True)
        if self.buffer:
            early = bytes(self.buffer)
            self.buffer.clear()
            self.data_received(early)

    def eof_received(self):
        return False

    def work(self):
        while not self.held and not self.transport.is_closing() and self.step():
            pass
        self.flush()

    def flush(self):
        if self.out and not self.transport.is_closing():
            self.send(bytes(self.out))
        self.out.clear()

    def close(self):
        self.flush()
        self.held = True
        self.transport.close()

    def reset(self):
        self.held = True
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # -- answers -------------------------------------------------------------------------------------------------------------

    def fault(self, place):
        if self.number > 1 or self.nmail > 1:
            return None
        for fault in self.hop.faults:
            if fault.place == place or (fault.place.endswith("*") and re.fullmatch(re.escape(fault.place[:-1]) + r"\d+", place)):
                self.hop.met.append(place)
                return fault.kind
        return None

    def answer(self, place, normal):
        """Says what is due, or what the fault makes of it. The first digit of what was said; None: nothing, or not whole."""
        kind = self.fault(place)
        if self.mute:
            return None
        if kind is None:
            self.out += normal.encode() + b"\r\n"
            return normal[0]
        return self.misbehave(kind, normal)

    def misbehave(self, kind, normal):
        last = normal.split("\r\n")[-1]
        code, text = last[:3], last[4:]
        if kind in TEXTS:
            said = TEXTS[kind].format(code=code, text=text)
            if kind in ("lines", "300-lines", "bare-lf", "noise-first", "empty-first", "twice") and "\r\n" in normal:
                # The answer to EHLO: what it offers stays.
                head = {"noise-first": "SSH-2.0-noise\r\n", "empty-first": "\r\n", "twice": normal + "\r\n",
                        "300-lines": f"{code}-X-NONE\r\n" * 300}.get(kind, "")
                said = head + (normal.replace("\r\n", "\n") + "\n" if kind == "bare-lf" else normal + "\r\n")
            self.out += said.encode("latin-1")
            lines = [line for line in said.split("\n") if line[:3].isdigit()]
            return lines[-1][0] if lines else None
        if kind == "421":
            self.out += b"421 4.3.2 closing\r\n"
            self.close()
            return "4"
        if kind == "close-after":
            self.out += normal.encode() + b"\r\n"
            self.close()
            return normal[0]
        if kind == "slow":
            self.flush()
            self.held = True
            self.dribble((normal + "\r\n").encode())
            return normal[0]
        if kind.startswith("close"):
            self.close()
        elif kind.startswith("reset"):
            self.flush()
            self.reset()
        elif kind.startswith("stall"):
            self.flush()
            self.mute = True
        return None

    def dribble(self, data):
        if self.transport.is_closing():
            return
        self.send(data[:3])
        if data[3:]:
            self.hop.farm.loop.call_later(0.005, self.dribble, data[3:])
        else:
            self.held = False
            if self.upgrade:
                self.upgrade = False
                self.begin_tls()
            self.work()

    # -- commands ------------------------------------------------------------------------------------------------------------

    def step(self):
        """Takes one command, or a message. False: more bytes are needed."""
        if self.pending:
            self.conclude_one()
            return True
        if self.chunk is not None:
            return self.take_chunk()
        if self.message is not None:
            return self.take_message()
        end = self.buffer.find(b"\n")
        if end < 0:
            return False
        line = bytes(self.buffer[:end]).rstrip(b"\r").decode("utf-8", "surrogateescape")
        del self.buffer[:end + 1]
        verb = line.split(" ")[0].upper()
        take = getattr(self, "on_" + verb.lower(), None)
        if take:
            take(line)
        else:
            self.answer("OTHER", "500 5.5.2 what?")
        return True

    def on_ehlo(self, line):
        if (line[:1].upper() == "L") != self.hop.lmtp:
            self.out += b"500 5.5.1 wrong protocol\r\n"
            return
        self.greeted += 1
        words = [self.hop.name, *self.hop.offers, *(["STARTTLS"] if self.hop.certificates and not self.tls else [])]
        self.answer("EHLO" if self.greeted == 1 else "EHLO2", "\r\n".join([f"250-{word}" for word in words[:-1]] + [f"250 {words[-1]}"]))

    on_lhlo = on_ehlo

    def on_helo(self, line):
        self.answer("HELO", f"250 {self.hop.name}")

    def on_starttls(self, line):
        if not self.hop.certificates or self.tls:
            self.answer("OTHER", "502 5.5.1 no TLS")
        elif self.answer("STARTTLS", "220 2.0.0 go") == "2" and not self.transport.is_closing():
            if self.held:
                self.upgrade = True     # still saying it, slowly
            else:
                self.begin_tls()

    def on_xclient(self, line):
        self.answer("XCLIENT", f"220 {self.hop.name} ESMTP")

    def on_xforward(self, line):
        self.forwarded.update(word.partition("=")[::2] for word in line.split(" ")[1:])
        self.answer("XFORWARD", "250 2.0.0 Ok")

    @staticmethod
    def path(line):
        return line[line.index("<") + 1:line.rindex(">")] if "<" in line and ">" in line else ""

    def forget(self):
        self.sender, self.accepted, self.commands, self.nrcpt = None, [], [], 0

    def on_mail(self, line):
        self.forget()
        self.nmail += 1
        self.commands = [line]
        if self.answer("MAIL", "250 2.1.0 Ok") == "2":
            self.sender = self.path(line)

    def on_rcpt(self, line):
        self.commands.append(line)
        self.nrcpt += 1
        normal = "250 2.1.5 Ok" if self.sender is not None else "503 5.5.1 MAIL first"
        if self.answer(f"RCPT{self.nrcpt}", normal) == "2" and self.sender is not None:
            self.accepted.append(self.path(line))

    def on_data(self, line):
        self.commands.append(line)
        if self.answer("DATA", "354 go on" if self.accepted else "554 5.5.1 no valid recipients") == "3":
            self.message = len(self.raw) - len(self.buffer)
            self.searched = 0
            self.bodied = False

    def on_bdat(self, line):
        words = line.split(" ")
        self.commands.append(line)
        self.chunk = (int(words[1]), len(words) > 2 and words[2].upper() == "LAST")
        if not self.chunking:
            self.chunks, self.bodied, self.chunking = b"", False, True

    def on_rset(self, line):
        self.forget()
        self.chunking = False
        self.answer("RSET", "250 2.0.0 Ok")

    def on_noop(self, line):
        self.answer("NOOP", "250 2.0.0 Ok")

    def on_quit(self, line):
        self.answer("QUIT", "221 2.0.0 Bye")
        if not self.held and not self.mute:
            self.close()

    # -- the message ---------------------------------------------------------------------------------------------------------

    def body_begins(self):
        """False when the fault leaves nothing to go on with."""
        if self.bodied or not self.buffer:
            return True
        self.bodied = True
        kind = self.fault("BODY")
        if kind is None:
            return True
        if kind == "slow-read":
            self.sip()
        elif kind.startswith("stall"):
            self.transport.pause_reading()
            self.held = True
            return False
        elif kind in TEXTS or kind == "421":
            # Says it, and takes the rest without another word: an answer that was sent and then overtaken by a reset would be a race.
            self.out += TEXTS[kind].format(code="250", text="2.0.0 Ok").encode("latin-1") if kind in TEXTS else b"421 4.3.2 closing\r\n"
            self.flush()
            self.mute = True
        else:
            self.misbehave(kind, "250 2.0.0 Ok")
            return False
        return True

    def sip(self):
        if self.transport.is_closing():
            return
        self.transport.pause_reading()
        self.hop.farm.loop.call_later(0.01, self.swallow)

    def swallow(self):
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.hop.farm.loop.call_later(0.01, self.sip)

    def take_message(self):
        if not self.body_begins():
            return False
        if self.buffer.startswith(b".\r\n"):
            size = 3
        else:
            at = self.buffer.find(b"\r\n.\r\n", self.searched)
            if at < 0:
                self.searched = max(0, len(self.buffer) - 4)
                return False
            size = at + 5
        wire = bytes(self.buffer[:size])
        del self.buffer[:size]
        self.message = None
        self.conclude(wire, False)
        return True

    def take_chunk(self):
        if not self.body_begins():
            return False
        size, last = self.chunk
        if len(self.buffer) < size:
            return False
        self.chunks += bytes(self.buffer[:size])
        del self.buffer[:size]
        self.chunk = None
        if not last:
            self.answer("BDAT", "250 2.0.0 Ok" if self.accepted else "554 5.5.1 no valid recipients")
            return True
        self.chunking = False
        if self.accepted:
            self.conclude(self.chunks, True)
        else:
            self.answer("DATA", "554 5.5.1 no valid recipients")
        return True

    def conclude(self, wire, chunked):
        self.mail = Mail(self.sender, self.commands, self.accepted, [], wire, self.number, chunked, self.forwarded, self.secure)
        self.forwarded = {}
        self.hop.mails.append(self.mail)
        places = [(f"DOT{n}", [who]) for n, who in enumerate(self.accepted, 1)] if self.hop.lmtp else [("DOT", self.accepted)]
        self.pending = places
        self.forget()

    def conclude_one(self):
        """The next answer to the end of the message. Remembered before it leaves."""
        place, whom = self.pending.pop(0)
        kind = next((f.kind for f in self.hop.faults if f.place in (place, "DOT*")), "") if self.number == 1 and self.nmail == 1 else ""
        said = self.answer(place, f"250 2.0.0 Ok: queued as HOP{len(self.hop.mails)}")
        if said == "2" or (kind.endswith("-kept") or kind == "noise") and not self.mute_before:
            self.mail.kept += whom
        self.mute_before = self.mute


class Farm:
    """The thread of all hops. `with Farm() as farm: hop = farm.hop(lmtp=True)`."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.transports, self.servers = set(), []
        self.contexts, self.directory = {}, None
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def issue(self):
        """Certificates for hops: their directory."""
        self.directory = tempfile.TemporaryDirectory(prefix="certificates-")
        where = certificates(Path(self.directory.name))
        where.chmod(0o755)
        for name in ("server", "name", "expired", "other"):
            self.contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.contexts[name].load_cert_chain(where / f"{name}.pem", where / f"{name}.key")
        return where

    def hop(self, **how):
        fresh = Hop(self, **how)
        server = asyncio.run_coroutine_threadsafe(self.loop.create_server(lambda: Session(fresh), sock=fresh.listener, backlog=64), self.loop).result(30)
        self.servers.append(server)
        return fresh

    def end(self):
        def stop():
            for server in self.servers:
                server.close()
            for transport in list(self.transports):
                transport.abort()
            self.loop.call_soon(self.loop.stop)
        self.loop.call_soon_threadsafe(stop)
        self.thread.join(30)
        self.loop.close()
        if self.directory:
            self.directory.cleanup()
