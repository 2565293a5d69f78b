"""The door for a host that joins: one TLS connection, one line of JSON there, one back.

The newcomer asks for the authority's certificate first, over a connection that proves nothing. It goes on only when the SHA-256 is
the one in the token. The second connection is verified by that certificate, and by a name in it that no node has. So a node that was
broken into cannot play this part. Only there goes the secret. The newcomer's key stays where it was made.

    {"op": "hello"}                                      -> {"ca", "time"}
    {"op": "look", "secret"}                             -> {"group", "replace"}            the invitation is not used
    {"op": "join", "secret", "name", "address", ...}     -> {"group", "cert", "passwords"}  the invitation is used
    any of them                                          -> {"error": "what is wrong, and the way out"}
"""
import asyncio
import base64
import json
import re
import socket
import ssl
import time
import traceback

import authority
import desired
import files
import group
import invitation
import network
import resp
from host import Trouble, plain

PORT = 7002
LONGEST = 16 * 1024
CONNECTION = 30  # seconds, all of it; nodes are asked meanwhile
MOST_CONNECTIONS = 64
CLOCKS = 300  # seconds apart
AS_PRINTED = f"write the line as `dovelane invite` printed it (mostly port {PORT})"
ANSWER, LONGEST_ANSWER = 60, 1 << 20  # seconds from the connection to the answer; bytes


# ---- the host that takes in ----

class Enroller:
    def __init__(self, host, change, now=time.time):
        """change(fn): puts fn(description) in the place of the group's description; (its sealed text, itself)."""
        self.host, self.change, self.now = host, change, now
        self.invitations = invitation.Invitations(host, now)
        self.ca_key, self.ca_cert = host.text(f"{desired.AUTHORITY}/ca.key"), host.text(f"{desired.AUTHORITY}/ca.crt")
        self.joined = []

    def answer(self, line):
        try:
            asked = files.read_json(line)
            if not isinstance(asked, dict):
                raise ValueError
            op = {"hello": self.hello, "look": self.look, "join": self.join}[asked.get("op")]
        except (ValueError, KeyError, TypeError):
            return {"error": "this is not what `dovelane join` says: is it of another version?"}
        try:
            return op(asked)
        except Trouble as e:
            return {"error": str(e)}
        except Exception:  # the newcomer is told, and the journal has the rest
            traceback.print_exc()
            return {"error": "an error in the program on the inviting host: `journalctl -u dovelane-enroll` there has it"}

    def hello(self, _asked):
        return {"ca": self.ca_cert, "time": self.now()}

    @staticmethod
    def secret(asked):
        try:
            return base64.b64decode(asked.get("secret") or "", validate=True)
        except (ValueError, TypeError):
            return b""

    def look(self, asked):
        replace = self.invitations.look(self.secret(asked))
        return {"group": self.host.text(group.FILE), "replace": replace}

    def join(self, asked):
        name, address, site, csr = (str(asked.get(key) or "") for key in ("name", "address", "site", "csr"))
        with self.invitations.use(self.secret(asked), name) as invited:
            replace = invited["replace"]
            if replace and replace != name:
                raise Trouble(f"this invitation is for a host that takes the place of {replace}: join with --name {replace}")
            host_part, _ = group.split_address(group.whole_address(address))
            if site and not self.host.exists(desired.REPLICAS_KEY):
                raise Trouble("run `dovelane init` on the inviting host first: it was made by an earlier version, and has no key for replicas")

            def with_it(description):
                new = group.add(description, name, address, bool(asked.get("gateway")), site, bool(replace))
                group.member(new, name)["keys"] = [authority.key_id(authority.request_key(csr))]
                return new

            with_it(desired.read_group(self.host)[1])  # refused before the invitation is used
            cert = authority.sign(self.ca_key, self.ca_cert, csr, name, authority.alternatives(name, host_part))
        sealed, description = self.change(with_it)
        self.joined.append(name)
        local, secrets_ = {"gateway": bool(asked.get("gateway")), "site": site}, desired.Secrets(self.host)
        passwords = {**secrets_.passwords, desired.REPLICATOR: secrets_.replica(site, description) if site else None}
        return {"group": sealed, "cert": cert, "passwords": {program: passwords[program] for program in desired.programs(local)}}


class Listener:
    """Serves while an invitation is open; then it closes its socket and ends."""

    def __init__(self, enroller, tell=print):
        self.enroller, self.tell = enroller, tell
        self.running = {}  # task: since when

    async def one(self, reader, writer):
        task = asyncio.current_task()
        while len(self.running) >= MOST_CONNECTIONS:
            oldest = next(iter(self.running))
            del self.running[oldest]
            oldest.cancel()
        self.running[task] = None
        peer = (writer.get_extra_info("peername") or ("?",))[0]
        try:
            async with asyncio.timeout(CONNECTION):
                line = await reader.readline()
                answer = self.enroller.answer(line) if line.endswith(b"\n") else {"error": "a line was cut short"}
                if "error" in answer:
                    self.tell(f"refused {peer}: {plain(answer['error'])}")
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (asyncio.CancelledError, TimeoutError, OSError, ValueError, ssl.SSLError):
            writer.transport.abort()
        finally:
            self.running.pop(task, None)

    async def serve(self, host, port, ready=lambda port: None):
        server = await asyncio.start_server(self.one, host, port, ssl=self.context(), limit=LONGEST, ssl_handshake_timeout=10, backlog=64)
        ready(server.sockets[0].getsockname()[1])
        try:
            while self.enroller.invitations.any_open():
                await asyncio.sleep(0.2)
        finally:
            server.close()
        end = time.monotonic() + CONNECTION
        while self.running and time.monotonic() < end:
            await asyncio.sleep(0.05)

    def context(self):
        """With a certificate of its own, that lives as long as the invitations."""
        e, context = self.enroller, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        key = authority.new_key()
        cert = authority.sign(e.ca_key, e.ca_cert, authority.request(key), "Dovelane enrollment", f"DNS:{authority.ENROLLER}", seconds=2 * 86400)
        both = authority.Secret(cert + key)
        context.load_cert_chain(str(both))
        return context


def serve(enroller, address, port, tell=print, ready=lambda port: None):
    asyncio.run(Listener(enroller, tell).serve(address, port, ready))


def wait_open(address, port, seconds=30):
    """Until the listener, which was just started, is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return
        except OSError as e:
            if time.monotonic() > end:
                raise Trouble(f"the listener at {group.join_address(address, port)} does not come up ({network.said(e)}): `journalctl -u dovelane-enroll` says why") from None
            time.sleep(0.1)


# ---- the host that joins ----

class Door:
    """The other end, as the newcomer sees it."""

    def __init__(self, address, token):
        self.host, self.port = group.split_address(address, PORT)
        self.where = group.join_address(self.host, self.port)
        self.fingerprint, self.secret = invitation.read_token(token)
        self.ca_cert = self.local_address = None

    def ask(self, context, asked, name=None):
        """Its answer, an object. What listens there may send anything."""
        try:
            with socket.create_connection((self.host, self.port), timeout=30) as raw, context.wrap_socket(raw, server_hostname=name) as tls:
                self.local_address = tls.getsockname()[0]
                stream = resp.Timed(tls, ANSWER)
                stream.send(json.dumps(asked).encode() + b"\n")
                line = stream.line(LONGEST_ANSWER)
        except ssl.SSLCertVerificationError as e:
            raise Trouble(f"{self.where} could not prove that the group's authority lets it take hosts in ({e.verify_message}): somebody else may listen there. Nothing secret was told to it") from None
        except ConnectionRefusedError:
            raise Trouble(f"nobody listens at {self.where}: the invitation has ended or was used (`dovelane invite` there makes a new one), or the address is another host's") from None
        except ssl.SSLError as e:
            raise Trouble(f"{self.where} answers, and is no listener of an invitation ({plain(network.said(e))}): {AS_PRINTED}") from None
        except (OSError, ValueError) as e:
            raise Trouble(f"{self.where} cannot be reached: {plain(network.said(e))}. A firewall between must let this host reach that port") from None
        if line.startswith(b"-"):
            raise Trouble(f"{self.where} answers, and is no listener of an invitation: it is the port of a node. {AS_PRINTED.capitalize()}")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self.strange("its answer is no object of JSON")
        return answer

    def strange(self, what):
        return Trouble(f"{self.where} does not answer as a host of Dovelane that has invited somebody ({what}): is it that host, and of this version?")

    def meet(self):
        """Whose door it is; nothing secret is said before."""
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        said = self.ask(anybody, {"op": "hello"})
        try:
            ca_cert = authority.openssl("x509", given=str(said["ca"]).encode()).decode()
        except (Trouble, KeyError):
            raise self.strange("it shows no certificate") from None
        if authority.fingerprint(ca_cert) != self.fingerprint:
            raise Trouble(f"{self.where} is of another group than the token: its authority has the SHA-256 {authority.fingerprint(ca_cert).hex()[:16]}..., the token's is {self.fingerprint.hex()[:16]}... "
                          f"Is the address right? Somebody may listen in its place. Nothing secret was told to it")
        self.ca_cert = ca_cert
        there = said.get("time")
        if type(there) not in (int, float) or not abs(there) < 1e12:
            raise self.strange(f"its time is {plain(there, 40)}")
        apart = time.time() - there
        if abs(apart) > CLOCKS:
            raise Trouble(f"this host's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} that of {self.where}: set it (`timedatectl set-ntp true`), then join again")

    def verified(self, **asked):
        context = ssl.create_default_context(cadata=self.ca_cert)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        said = self.ask(context, {**asked, "secret": base64.b64encode(self.secret).decode()}, authority.ENROLLER)
        if "error" in said:
            raise Trouble(f"{self.where} says: {plain(said['error'])}")
        return said

    def look(self):
        said = self.verified(op="look")
        return self.unsealed(said), str(said.get("replace") or "") or None

    def unsealed(self, said):
        try:
            return group.unseal(self.ca_cert, str(said.get("group")))
        except Trouble as e:
            raise self.strange(f"its description of the group: {e}") from None

    def join(self, key, **wanted):
        said = self.verified(op="join", csr=authority.request(key), **wanted)
        self.unsealed(said)
        wrong = authority.belongs(str(said.get("cert")), self.ca_cert, key)
        if wrong:
            raise Trouble(f"{self.where} answered with a certificate that cannot be used: {plain(wrong)}")
        passwords = said.get("passwords")
        expected = desired.programs({"gateway": wanted["gateway"], "site": wanted["site"]})
        if not isinstance(passwords, dict) or not all(re.fullmatch(r"[\x21-\x7e]{8,256}", str(passwords.get(program))) for program in expected):
            raise self.strange("passwords are missing")
        return {"group": said["group"], "cert": said["cert"], "passwords": {program: passwords[program] for program in expected}}

