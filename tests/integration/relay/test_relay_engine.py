"""What the delivery engine does with what a next hop offers: BDAT, TLS, XCLIENT, 8BITMIME, and Dovelane-Id."""
import os
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from support import scripted_hops
from support.relay_peer import ALL, CHUNKS, CLOSE, HANG, RAW, RESET
from support.relay_world import BODY, World, eventually, timeouts
from support.stack import delivery_id, resp
from support.stack.shape import SinkShape

pytestmark = pytest.mark.core
EIGHT = "Subject: gr\u00fc\u00dfe\r\nMIME-Version: 1.0\r\n\r\n\u00e4\r\n".encode()
LMTP = pytest.mark.parametrize("lmtp", [False, True], ids=["smtp", "lmtp"])


@pytest.fixture
def world(stack, tmp_path):
    made = []

    def make(**options):
        made.append(World(stack, tmp_path, **{"nodes": 1, "destination_concurrency": 1, **options}))
        return made[-1]

    yield make
    for each in made:
        each.end()


def store(w, peer, *recipients, **options):
    return w.store(peer, *recipients, owners=["mx1"], **options)


# -- BDAT ---------------------------------------------------------------------------------------------------------------------

@LMTP
def test_a_small_mail_is_one_write_and_one_round_trip(world, lmtp):
    w = world()
    peer = w.peer(lmtp=lmtp, offers=CHUNKS, batch=True)  # answers nothing before it has the message
    store(w, peer, "b@example.net", "c@example.net")
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == ["b@example.net", "c@example.net"]
    assert {m.body for m in peer.mails} == {BODY}
    read, = [read for read in peer.reads if b"MAIL FROM" in read]
    assert read.startswith(b"MAIL FROM:<a@example.org>") and read.endswith(b"BDAT %d LAST\r\n" % len(BODY) + BODY)


@LMTP
@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelined", "lockstep"])
@pytest.mark.parametrize("size", [10, 200000], ids=["small", "large"])
def test_bdat_carries_every_byte(world, lmtp, pipelining, size):
    w = world()
    peer = w.peer(lmtp=lmtp, offers=CHUNKS if pipelining else ("CHUNKING",))
    bodies = [b"Subject: dots\r\n\r\n" + b"." * size + b"\r\n.\r\n..\r\n\r\n", b"Subject: bare CR\r\n\r\na\rb\r\n.\r\n" + b"x" * size + b"\r\n"]
    for body in bodies:
        store(w, peer, body=body)
    w.empty()
    assert sorted(peer.bodies()) == sorted(bodies) and not peer.seen("^DATA") and peer.sessions == 1


def test_bdat_ends_lines_as_data_does(world):
    w = world()
    for offers in (CHUNKS, ALL):
        peer = w.peer(offers=offers)
        store(w, peer, body=b"Subject: x\r\n\r\none\ntwo\r\n.three")
        w.empty()
        assert peer.bodies() == [b"Subject: x\r\n\r\none\r\ntwo\r\n.three\r\n"]


def test_a_large_message_is_not_sent_for_nobody(world):
    w = world()
    peer = w.peer(offers=CHUNKS)
    peer.say("RCPT", "450 4.2.0 later", times=1)
    body = b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 20000
    store(w, peer, body=body)
    w.empty()
    assert peer.bodies() == [body] and len(peer.seen("^BDAT")) == 1 and peer.sessions == 1


@LMTP
def test_the_connection_goes_on_when_every_recipient_is_refused(world, lmtp):
    """RFC 3030: the octets are there whatever was said to RCPT, and the BDAT has its answer."""
    w = world(bounce=True)
    peer = w.peer(lmtp=lmtp, offers=CHUNKS)
    peer.say("RCPT", "550 5.1.1 unknown", match="unknown")
    store(w, peer, "unknown@example.net", "unknown2@example.net")
    eventually("the bounce", lambda: w.bounce.mails)
    store(w, peer, "b@example.net")
    w.empty()
    assert [m.recipients for m in peer.mails] == [["b@example.net"]] and peer.sessions == 1
    assert peer.seen("^BDAT") and peer.seen("^RSET")


@pytest.mark.parametrize("said", ["<{}>: Recipient address rejected: User unknown", "No such user {} here (id {n}-gsmtp)"], ids=["address", "id"])
def test_a_bounce_does_not_grow_with_the_number_of_those_whom_it_names(world, said):
    """Each of the next hop's answers names the recipient, as Postfix's and Dovecot's do, or has an id of its own."""
    w = world(bounce=True)
    peer = w.peer(offers=CHUNKS)
    people = [f"User{n}@example.net" for n in range(150)]
    for n, one in enumerate(people):
        peer.say("RCPT", f"550 5.1.1 {said.format(one.lower(), n=n)}", match=f"<{one}>")
    peer.say("RCPT", "550 5.7.1 not for you", match="other@")
    store(w, peer, *people, "other@example.net")
    w.empty()
    assert sorted(r for m in w.bounce.mails for r in m.recipients) == sorted([*people, "other@example.net"])
    told = [(len(m.recipients), m.body.split(b"\r\n")[0].decode()) for m in w.bounce.mails]
    assert len(told) == (2 if said.startswith("<") else 10), told
    assert any(n == 1 and "said: 550 5.7.1 not for you" in text for n, text in told), told
    if said.startswith("<"):
        assert any(n == 150 and "550 5.1.1 <recipient>: Recipient address rejected: User unknown" in text for n, text in told), told


def metas(w):
    """LANE.META commands that the node has had."""
    said = w.connections["mx1"].call("INFO", "commandstats").decode().lower()
    found = re.search(r"cmdstat_lane.meta:calls=(\d+)", said)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("delivered", [False, True], ids=["none", "some"])
def test_what_is_refused_is_recorded_once(world, delivered):
    """A META is the whole envelope. Between two transactions of one mail it is needed where the first delivered something."""
    w = world(bounce=True)
    peer = w.peer(offers=CHUNKS)
    if delivered:
        peer.say("RCPT", "250 2.1.5 Ok", match="<user5@")
    peer.say("RCPT", "550 5.1.1 unknown")
    before = metas(w)
    store(w, peer, *(f"user{n}@example.net" for n in range(1, 351)))
    w.empty()
    assert sum(len(m.recipients) for m in w.bounce.mails) == 350 - delivered
    assert [m.recipients for m in peer.mails] == ([["user5@example.net"]] if delivered else [])
    assert metas(w) - before == (2 if delivered else 1)    # in front of the bounce; four of each, when each transaction was recorded


def test_an_lmtp_server_that_answers_nothing_for_nobody(world):
    """RFC 2033 section 4.3 can be read so. The next mail's answers must not be taken for that one's."""
    w = world(smtp_rset_timeout="300ms")
    peer = w.peer(lmtp=True, offers=CHUNKS)
    peer.say("RCPT", "450 4.2.0 later", match="b@", times=1)
    peer.say("BDAT", RAW(b""), times=1)
    store(w, peer, "b@example.net")
    w.empty()
    assert [m.recipients for m in peer.mails] == [["b@example.net"]] and peer.sessions == 2


@pytest.mark.parametrize("answer", ["250 2.0.0 fine", RAW(b"250 a\r\n250 b\r\n")], ids=["one", "two"])
def test_an_lmtp_server_that_accepts_for_nobody(world, answer):
    w = world()
    peer = w.peer(lmtp=True, offers=CHUNKS)
    peer.say("RCPT", "450 4.2.0 later", times=1)
    peer.say("BDAT", answer, times=1)
    store(w, peer, "b@example.net")
    w.empty()
    assert [m.recipients for m in peer.mails] == [["b@example.net"]] and peer.sessions == 2


def test_lmtp_answers_for_each_recipient(world):
    w = world(bounce=True)
    peer = w.peer(lmtp=True, offers=CHUNKS)
    peer.say("RCPT", "450 4.2.0 later", match="later@", times=1)
    peer.say("DOT", "452 4.2.2 full", match="full@", times=1)
    peer.say("DOT", "554 5.6.0 never", match="never@")
    store(w, peer, *(f"{name}@example.net" for name in ("later", "one", "full", "never", "two")))
    w.empty()
    assert sorted(r for m in peer.mails for r in m.recipients) == sorted(f"{n}@example.net" for n in ("later", "one", "full", "two"))
    assert [m.recipients for m in w.bounce.mails] == [["never@example.net"]]
    assert len(peer.seen("RCPT TO:<one@")) == 1
    assert w.count(r"dsn=5\.6\.0, status=bounced .*in reply to BDAT command") == 1


@LMTP
@pytest.mark.parametrize("how", [CLOSE, RESET, HANG])
@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "BDAT", "DOT"])
def test_a_loss_behind_the_last_byte_is_unknown(world, lmtp, how, verb):
    """The whole mail is with the server from the start: it may be delivered, whichever answer was the last to come."""
    w = world(**timeouts("300ms"))
    peer = w.peer(lmtp=lmtp, offers=CHUNKS)
    peer.say(verb, how, times=1)
    store(w, peer)
    w.empty()
    assert peer.bodies() == [BODY]
    w.logged("status=deferred .*while .* -- message may be sent more than once")
    w.logged("status=sent .* why=unknown-reply")


def test_a_loss_in_the_middle_of_a_chunk_is_none(world):
    w = world(**timeouts("60s"))  # a peer on a busy machine takes its time for 18 MB
    peer = w.peer(offers=CHUNKS)
    peer.say("BDAT", CLOSE, times=1)
    body = b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 1500000
    store(w, peer, body=body)
    w.empty()
    assert peer.bodies() == [body]
    w.logged("status=deferred .*while sending message body")
    w.logged("status=sent .* why=retry")


@pytest.mark.parametrize("offers", [CHUNKS, ("CHUNKING",)], ids=["pipelined", "lockstep"])
def test_a_refused_chunk_ends_by_rset(world, offers):
    w = world()
    peer = w.peer(offers=offers)
    peer.say("BDAT", "450 4.3.0 no room", times=1)
    store(w, peer)
    w.empty()
    assert peer.bodies() == [BODY] and peer.sessions == 1
    assert [line.split(" ")[0] for line in peer.lines] == ["EHLO", "MAIL", "RCPT", "BDAT", "RSET", "MAIL", "RCPT", "BDAT", "QUIT"][:len(peer.lines)]


def test_extensions_that_are_not_to_be_used(world):
    w = world(destinations={"*": {"discard_ehlo_keywords": "{ chunking, size }"}})
    peer = w.peer(offers=CHUNKS)
    store(w, peer)
    w.empty()
    assert peer.seen("^DATA") and peer.seen("^MAIL") == ["MAIL FROM:<a@example.org>"]


# -- TLS ----------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return scripted_hops.certificates(tmp_path_factory.mktemp("certificates"))


def server(certificates, name="server", most=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if most:
        context.maximum_version = most
    return context


def tls(level, certificates, **more):
    return {"*": {"tls": level, "tls_ca_file": str(certificates / "ca.pem"), **more}}


@pytest.mark.parametrize("most", [None, ssl.TLSVersion.TLSv1_2], ids=["1.3", "1.2"])
@pytest.mark.parametrize("level", ["may", "encrypt", "verify"])
@LMTP
def test_mail_goes_by_tls(world, certificates, level, most, lmtp):
    w = world(destinations=tls(level, certificates))
    peer = w.peer(lmtp=lmtp, offers=CHUNKS, tls=server(certificates, most=most))
    bodies = [BODY, b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 100000]
    for body in bodies:
        store(w, peer, body=body)
    w.empty()
    assert sorted(peer.bodies()) == sorted(bodies)
    w.logged(r"Verified TLS connection established to [\w.]+\[127\.0\.0\.1\]:\d+: TLSv1\.[23] with cipher [\w-]+ \(\d+/\d+ bits\)")
    assert [line.split(" ")[0] for line in peer.lines][:4] == [("LHLO" if lmtp else "EHLO"), "STARTTLS", ("LHLO" if lmtp else "EHLO"), "MAIL"]


def test_without_tls_nothing_is_started(world, certificates):
    w = world()
    peer = w.peer(tls=server(certificates))
    store(w, peer)
    w.empty()
    assert not peer.seen("STARTTLS")


def test_sessions_are_resumed(world, certificates):
    w = world(destinations=tls("verify", certificates), connection_reuse=1)
    peer = w.peer(tls=server(certificates))
    for _ in range(4):
        store(w, peer)
    w.empty()
    assert len(peer.mails) == 4 and peer.resumed >= 3
    w.logged("Verified TLS .*; session resumed", times=3)


@pytest.mark.parametrize("trouble", ["unknown authority", "another name"])
def test_verify_demands_authority_and_name(world, certificates, trouble):
    more = {"tls_name": "other.example"} if trouble == "another name" else {}
    w = world(destinations=tls("verify", certificates, **more))
    peer = w.peer(tls=server(certificates, "other" if trouble == "unknown authority" else "server"))
    store(w, peer)
    w.logged(r"next hop smtp:\S+ is away: cannot start TLS with .*: certificate verification failed: " +
             ("self.signed certificate" if trouble == "unknown authority" else r"hostname mismatch, it is not for other\.example"))
    assert not peer.seen("^MAIL")


@pytest.mark.parametrize("name", ["next.example", "127.0.0.1"])
def test_the_name_may_be_another_than_the_host(world, certificates, name):
    w = world(destinations=tls("verify", certificates, tls_name=name))
    peer = w.peer(tls=server(certificates))
    store(w, f"smtp:[localhost]:{peer.port}")
    w.empty()
    assert peer.mails


def test_encrypt_takes_any_certificate(world, certificates):
    w = world(destinations=tls("encrypt", certificates))
    peer = w.peer(tls=server(certificates, "other"))
    store(w, peer)
    w.empty()
    w.logged("Untrusted TLS connection")


@pytest.mark.parametrize("how", ["not offered", "refused"])
def test_no_mail_without_the_tls_that_is_required(world, certificates, how):
    w = world(destinations=tls("encrypt", certificates))
    peer = w.peer(tls=server(certificates)) if how == "refused" else w.peer()
    if how == "refused":
        peer.say("STARTTLS", "454 4.7.0 no")
    store(w, peer)
    w.logged(r"next hop smtp:\S+ is away: TLS is required, but " + (r"STARTTLS was refused by host .*: 454 4\.7\.0 no" if how == "refused" else "was not offered by"))
    assert not peer.seen("^MAIL")


@pytest.mark.parametrize("how", ["454 4.7.0 no", RAW(b"220 go\r\n220 nonsense instead of a handshake\r\n"), CLOSE])
def test_where_tls_may_be_mail_goes_without_it(world, certificates, how):
    w = world(destinations=tls("may", certificates))
    peer = w.peer(tls=server(certificates))
    peer.say("STARTTLS", how, times=1)
    store(w, peer)
    w.empty()
    assert peer.bodies() == [BODY]


def test_a_handshake_that_fails_where_tls_may_be(world, certificates):
    w = world(destinations=tls("may", certificates))
    weak = server(certificates)
    weak.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")  # it has no RSA key
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    peer = w.peer(tls=weak)
    for _ in range(3):
        store(w, peer)
    w.empty()
    assert len(peer.mails) == 3 and len(peer.seen("STARTTLS")) == 1
    w.logged("warning: cannot start TLS with .*; going on without")


def test_what_comes_behind_the_220_ends_the_connection(world, certificates):
    """RFC 3207 section 6: it was said before anything was secret."""
    w = world(destinations=tls("encrypt", certificates))
    peer = w.peer(tls=server(certificates))
    peer.say("STARTTLS", RAW(b"220 go\r\n250-injected\r\n250 CHUNKING\r\n"), times=1)
    store(w, peer)
    w.logged("replies out of turn with")


def test_our_own_certificate_is_shown(world, certificates):
    w = world(destinations=tls("verify", certificates, tls_cert_file=str(certificates / "server.pem"), tls_key_file=str(certificates / "server.key")))
    demanding = server(certificates)
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(certificates / "ca.pem")
    peer = w.peer(tls=demanding)
    store(w, peer)
    w.empty()
    assert peer.mails


def test_a_certificate_file_that_cannot_be_read_is_named(world, certificates):
    w = world(destinations={"*": {"tls": "verify", "tls_ca_file": "/does/not/exist.pem"}})
    peer = w.peer(tls=server(certificates))
    stdin = f"/proc/{w.relay().pid}/fd/0"
    before = os.readlink(stdin)
    store(w, peer)
    w.logged(r"error: destination smtp:\S+: /does/not/exist\.pem: no certificates of authorities can be read from it: No such file or directory")
    w.logged(r"is away: cannot start TLS with .*: /does/not/exist\.pem")
    # A connection that was never made has nothing to close: not a file that others use.
    assert os.readlink(stdin) == before
    w.configure(destinations=tls("verify", certificates))
    w.empty()
    assert peer.mails


# -- who the client was -----------------------------------------------------------------------------------------------------------

CLIENT = {"client_name": "client.example", "client_addr": "2001:db8::1", "client_port": "4711", "helo": "client helo", "protocol": "ESMTPSA"}


def test_nobody_is_told_who_the_client_was_unless_trusted(world):
    w = world()
    peer = w.peer(offers=ALL + ("XCLIENT NAME ADDR PORT PROTO HELO LOGIN",))
    store(w, peer, **CLIENT)
    w.empty()
    assert not peer.seen("^X")


@LMTP
def test_xclient(world, lmtp):
    """Before each mail of another client; everything is offered anew after it."""
    w = world(destinations={"*": {"trust": "xclient"}})
    peer = w.peer(lmtp=lmtp, offers=ALL + ("XCLIENT NAME ADDR PORT PROTO HELO",))
    for _ in range(2):
        store(w, peer, **CLIENT)
        eventually("it is delivered", lambda: not w.length("mx1"))
    store(w, peer, client_addr="192.0.2.1")
    w.empty()
    hello = "LHLO" if lmtp else "EHLO"
    verbs = [line.split(" ")[0] for line in peer.lines if not line.startswith("QUIT")]
    assert verbs == [hello, "XCLIENT", hello, "MAIL", "RCPT", "DATA", "MAIL", "RCPT", "DATA", "XCLIENT", hello, "MAIL", "RCPT", "DATA"]
    assert peer.seen("^XCLIENT")[0] == "XCLIENT NAME=client.example ADDR=IPv6:2001:db8::1 PORT=4711 HELO=client+20helo PROTO=ESMTP"
    assert len(peer.mails) == 3 and peer.sessions == 1


def test_a_real_postfix_as_next_hop(stack, tmp_path, certificates):
    """TLS, then XCLIENT, then BDAT, as its smtpd wants them."""
    system = stack(postfix="stock", nodes=1, sinks=[SinkShape("a", ours=True)], settings={"destinations": tls("verify", certificates, trust="xclient")})
    w = World.__new__(World)
    w.stack, w.peers, w.bounce, w.connections = system, [], None, {"mx1": resp.Connection(system.nodes["mx1"])}
    settings = {"smtpd_authorized_xclient_hosts": "127.0.0.0/8", "smtpd_tls_security_level": "encrypt", "smtpd_tls_cert_file": certificates / "server.pem",
                "smtpd_tls_key_file": certificates / "server.key", "smtpd_tls_loglevel": "1", "mynetworks": "127.0.0.0/8 192.0.2.0/24"}
    try:
        directory = system["postfix"].note["config_directory"]
        subprocess.run(["postconf", "-c", directory, "-e", *(f"{name} = {value}" for name, value in settings.items())], check=True)
        subprocess.run(["postconf", "-c", directory, "-M", "tlsmgr/unix=tlsmgr unix - - n 1000? 1 tlsmgr"], check=True)
        system["postfix"].reload()
        _, _, port = system.smtp.rpartition(":")
        for number in (1, 2):
            w.store(f"smtp:[127.0.0.1]:{port}", "u@a.example", owners=["mx1"], client_name="client.example", client_addr=f"192.0.2.{number}",
                    client_port="4711", helo="client.helo", protocol="ESMTPSA", body=b"X-Oracle-Id: 0123456789a%d\r\n" % number + BODY)
            w.empty()
        journal = Path(system["sink-a"].note["journal"])
        eventually("both arrive", lambda: journal.exists() and len(journal.read_text().splitlines()) == 2)
        log = Path(system["postfix"].log)
        for number in (1, 2):
            client = rf"smtpd\[\d+\]: \w+: client=client\.example\[192\.0\.2\.{number}\]$"
            eventually("Postfix' log names the client", lambda client=client: re.search(client, log.read_text(), re.M))
        log = log.read_text()
        # It offers no XCLIENT to a client that is not authorized: whoever was introduced is who he is until the connection ends.
        assert len(re.findall("TLS connection established from", log)) == 2
        assert not re.search("lost connection|improper command", log)
    finally:
        w.end()


def test_a_refused_xclient_costs_no_mail(world):
    w = world(destinations={"*": {"trust": "xclient"}})
    peer = w.peer(offers=ALL + ("XCLIENT ADDR",))
    peer.say("XCLIENT", "550 5.7.0 not you")
    store(w, peer, **CLIENT)
    w.empty()
    assert peer.mails


# -- what a mail needs ---------------------------------------------------------------------------------------------------------

def test_8bit_mail_is_converted_by_postfix_where_8bitmime_is_missing(world):
    w = world()
    postfix, peer = w.peer(), w.peer(offers=("PIPELINING",))
    w.configure(reinject_port=f"127.0.0.1:{postfix.port}")
    w.logged("config read again")
    store(w, peer, "b@example.net", "c@example.net", body=EIGHT, sender_args="BODY=8BITMIME")
    store(w, peer, "undeclared@example.net", body=EIGHT)
    store(w, peer, "ascii@example.net", sender_args="BODY=8BITMIME")
    w.empty()
    assert [(m.recipients, m.body) for m in postfix.mails] == [(["b@example.net", "c@example.net"], EIGHT)]
    assert sorted(m.recipients for m in peer.mails) == [["ascii@example.net"], ["undeclared@example.net"]]
    w.logged("given to Postfix's queue .* why=8bitmime", times=2)
    assert not w.count("status=bounced")


def test_it_waits_while_the_port_takes_nothing(world):
    w = world(bounce=True)
    postfix, peer = w.peer(), w.peer(offers=("PIPELINING",))
    w.configure(reinject_port=f"127.0.0.1:{postfix.port}")
    w.logged("config read again")
    postfix.say("MAIL", "452 4.3.1 no room")
    store(w, peer, body=EIGHT, sender_args="BODY=8BITMIME")
    w.logged("8BITMIME is required, but was not offered")
    postfix.well()
    w.empty()
    assert len(postfix.mails) == 1 and not w.bounce.mails


def test_without_a_port_it_bounces_or_goes_as_it_is(world):
    w = world(bounce=True)
    strict, lenient = w.peer(offers=("PIPELINING",)), w.peer(offers=("PIPELINING",))
    w.configure(destinations={lenient.destination: {"without_8bitmime": "send"}})
    w.logged("config read again")
    for peer in (strict, lenient):
        store(w, peer, body=EIGHT, sender_args="BODY=8BITMIME")
    w.empty()
    bounce, = w.bounce.mails
    assert bounce.body.startswith(b"Dovelane-Bounce: 5.6.3 8BITMIME is required") and not strict.mails
    assert lenient.bodies() == [EIGHT] and lenient.seen("^MAIL") == ["MAIL FROM:<a@example.org>"]


# -- Dovelane-Id ---------------------------------------------------------------------------------------------------------------

@pytest.fixture
def key(tmp_path):
    path = tmp_path / "group.key"
    path.write_text("00112233445566778899aabbccddeeff" * 2 + "\n")
    path.chmod(0o640)
    return path


def id_line(key, name, *recipients):
    return delivery_id.line(bytes.fromhex(key.read_text()), BODY, *recipients, entry=name.hex())[1]


@pytest.mark.parametrize("offers", [ALL, CHUNKS], ids=["data", "bdat"])
def test_our_own_dovecot_is_told_which_mail_it_is(world, key, offers):
    w = world(group_key_file=str(key))
    ours, others = w.peer(lmtp=True, offers=offers), w.peer(lmtp=True, offers=offers)
    w.configure(destinations={ours.destination: {"delivery_id": "yes"}})
    w.logged("config read again")
    people = [f"{n}@Example.net" for n in range(3)]
    name = store(w, ours, *people)
    store(w, others)
    w.empty()
    line = id_line(key, name, *people)
    assert ours.bodies() == [line + BODY] * 3 and others.bodies() == [BODY]
    assert f"SIZE={len(line + BODY)}" in ours.seen("^MAIL")[0]


def test_a_second_delivery_says_the_same(world, key):
    w = world(group_key_file=str(key), destinations={"*": {"delivery_id": "yes"}})
    peer = w.peer(lmtp=True)
    peer.say("DOT", CLOSE, times=1)
    name = store(w, peer)
    w.empty()
    assert peer.bodies() == [id_line(key, name, "b@example.net") + BODY]
    w.logged("why=unknown-reply")


@pytest.mark.parametrize("trouble", ["missing", "open to others", "short"])
def test_mail_does_not_wait_for_a_key(world, key, trouble):
    if trouble == "missing":
        key.unlink()
    elif trouble == "short":
        key.write_text("too short")
    else:
        os.chmod(key, 0o644)
    w = world(group_key_file=str(key), destinations={"*": {"delivery_id": "yes"}})
    peer = w.peer(lmtp=True)
    store(w, peer)
    w.empty()
    assert peer.bodies() == [BODY]
    w.logged("error: group_key_file: " + re.escape(str(key)))
