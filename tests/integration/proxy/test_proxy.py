"""dovelane-proxy between two smtpds of a real Postfix: what goes to lanes, what goes on, and the one answer for both.

The relays do not run in the shared system: entries stay where the proxy put them.
"""
import os
import re
import smtplib
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import admin
from support import sinks
from support.stack import Stack, lanes, programs, resp
from support.stack.shape import SinkShape
from support.waiting import eventually

SINKS = [SinkShape("a", ours=True), SinkShape("b", ["lmtp"], ours=True), SinkShape("plain", ours=True)]
DIVERTED = ["a", "b"]
CONTENT = b"Subject: x\r\nMessage-ID: <m@x>\r\n\r\nhello\r\n"


def stack_of(relays=False, **options):
    settings = {"max_entry": "1MB", "bulk_entry": "64kB", "proxy_timeout": "5s", **options.pop("settings", {})}
    return Stack(postfix="proxy", sinks=SINKS, divert=DIVERTED, relays=relays, settings=settings, **options)


@pytest.fixture(scope="module")
def running():
    with stack_of() as system:
        yield system


@pytest.fixture
def system(running):
    """The shared system, with empty lanes and whole."""
    yield running
    running.cont("proxy")
    if not Path(running["proxy"].note["socket"]).exists():  # a test that failed left it leaving
        running.restart("proxy")
    for node in ("mx1", "mx2"):
        running.cont(f"redis-{node}")
        running.start(f"redis-{node}")
        with resp.Connection(running.nodes[node]) as redis:
            redis.call("FLUSHALL")
    eventually("the proxy stores again", lambda: send(running, "u@a.example") and all(entries(running)))
    for node in ("mx1", "mx2"):
        with resp.Connection(running.nodes[node]) as redis:
            redis.call("FLUSHALL")


def send(system, *recipients, content=CONTENT, mail_options=(), rcpt_options=(), sender="s@x.example"):
    """(code, text) of the answer to the dot; or of the one before that says no. A recipient is an address, or one with options of its own."""
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.ehlo("client.example")
        assert client.mail(sender, mail_options)[0] == 250
        for recipient in recipients:
            address, options = (recipient, rcpt_options) if isinstance(recipient, str) else recipient
            code, text = client.rcpt(address, options)
            assert code == 250, text
        try:
            return client.data(content)
        except smtplib.SMTPDataError as error:
            return error.smtp_code, error.smtp_error


def entries(system):
    return [list(lanes.entries(node, address)) for node, address in system.nodes.items()]


def bodies(system):
    with resp.Connection(system.nodes["mx1"]) as redis:
        return [entry[6] for name in lanes.names(redis) for entry in redis.call("LANE.READ", name, 1)[1]]


def log(system, service="proxy"):
    return Path(system[service].log).read_text()


def said_of(system, text):
    """The proxy's lines about the mail whose 250 was that; a mail that went on whole has Postfix's queue id, and its line names that."""
    name = re.search(rb"queued as (\S+)", text)[1].decode()
    return "\n".join(line for line in log(system).splitlines() if f" {name}: " in line or line.endswith(f"queued as {name}"))


def delivered(system, name, recipient):
    journal = Path(system[f"sink-{name}"].note["journal"])
    return journal.read_text().count(recipient) if journal.exists() else 0


def talk(system):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(system["proxy"].note["socket"])
    wait_for(client, b"220 ")
    return client


def wait_for(client, what):
    got = b""
    while what not in got:
        more = client.recv(65536)
        assert more, got
        got += more
    return got


def offered(system):
    return int(re.search(r"(?m)^dovelane_store_entries_total (\d+)$", metrics(system))[1])


def metrics(system):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(system["proxy"].note["metrics"])
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


# ---- what lies in the lanes ----

@pytest.mark.core
def test_a_second_one_is_refused_and_takes_nothing(system):
    """Neither the socket nor the metrics."""
    note = system["proxy"].note
    assert send(system, "u@a.example")[0] == 250
    said = subprocess.run([programs.needed(system.shape.build / "proxy" / "dovelane-proxy", "the proxy"), "-c", note["conf"], "-n", note["node"]], capture_output=True, text=True,
                          timeout=60, check=False, env={**os.environ, **system["proxy"].env})
    assert said.returncode and "another process answers there" in said.stdout + said.stderr, said
    assert sinks.metrics(system, "proxy")["mails_diverted_total"] >= 1, "they are those of the one that is at work"
    assert send(system, "u@a.example")[0] == 250


def test_a_diverted_mail_lies_on_both_nodes_when_250_is_said(system):
    code, text = send(system, "u1@a.example", "u2@b.example", "U1@a.example")
    assert code == 250
    by_lane = [{entry.lane: [r.address for r in entry.envelope["recipients"]] for entry in node} for node in entries(system)]
    assert by_lane == 2 * [{f"dovelane:{system.destinations['a']}|mx1>mx2": ["u1@a.example"],
                            f"dovelane:{system.destinations['b']}|mx1>mx2": ["u2@b.example"]}]
    assert "action=lane, entries=2, nodes=mx1>mx2" in said_of(system, text)
    eventually("Postfix logs it", lambda: "END-OF-MESSAGE: " + f"250 {text.decode()}" in log(system, "postfix"))


def test_the_envelope_says_what_postfix_forwards(system):
    _, text = send(system, "u1@a.example", mail_options=["BODY=8BITMIME", "RET=HDRS", "ENVID=abc+2B"], rcpt_options=["NOTIFY=FAILURE", "ORCPT=rfc822;o+2Bx@y"])
    envelope = entries(system)[0][0].envelope
    assert set(envelope["sender_args"].split()) >= {"BODY=8BITMIME", "RET=HDRS", "ENVID=abc+2B"}
    assert envelope["queue_id"] == text.split()[-1].decode()
    assert envelope["host"] == "mx.stack.example"
    assert envelope["client_addr"] == "127.0.0.1" and int(envelope["client_port"]) > 0
    assert envelope["helo"] == "client.example" and envelope["protocol"] == "ESMTP" and envelope["message_id"] == "<m@x>"
    recipient, = envelope["recipients"]
    assert (recipient.address, recipient.args, recipient.state) == ("u1@a.example", "NOTIFY=FAILURE ORCPT=rfc822;o+2Bx@y", lanes.WAITING)


@pytest.mark.parametrize("body", [b"", b"\r\n", b".\r\n..\r\n.x\r\n", b"8-bit \xe4\xf6\xfc \x00 nul\r\n", b"y" * 998 + b"\r\n"])
def test_bytes_are_those_that_came_in_behind_postfix_own_received(system, body):
    header = b"subject:no space\r\nX-Folded: one\r\n\ttwo\r\nX-Empty:\r\nMessage-ID: <m@x>\r\n"
    dropped = b"Bcc: hidden@x.example,\r\n\tother@x.example\r\nReturn-Path: <a@b>\r\nDovelane-Id: forged\r\n"
    host, _, port = system.smtp.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        file = client.makefile("rb")
        wire = re.sub(rb"(?m)^\.", b"..", header + dropped + b"\r\n" + body)
        for line, answer in ((b"", b"220"), (b"EHLO client.example\r\n", b"250"), (b"MAIL FROM:<s@x.example>\r\n", b"250"), (b"RCPT TO:<u1@a.example>\r\n", b"250"),
                             (b"DATA\r\n", b"354"), (wire + b".\r\n", b"250")):
            client.sendall(line)
            while (said := file.readline())[3:4] == b"-":
                pass
            assert said.startswith(answer), said
    stored, = bodies(system)
    received, _, rest = stored.partition(b"subject:")
    assert re.fullmatch(rb"Received: from client.example \(unknown \[127.0.0.1\]\)\r\n\tby mx.stack.example \(Postfix\) with ESMTP\r\n"
                        rb"\tfor <u1@a.example>; [^\r\n]+\r\n", received)
    assert b"subject:" + rest == header + b"\r\n" + body


# ---- what goes on ----

@pytest.mark.core
@pytest.mark.parametrize("reason, recipient, options", [
    ("not-in-divert", "u1@plain.example", {}),
    ("notify", "u1@a.example", {"rcpt_options": ["NOTIFY=SUCCESS,FAILURE"]}),
    ("rewritten", '"u 1"@a.example', {}),
    ("rewritten", "u1%b.example@a.example", {}),
    ("too-large", "u1@a.example", {"content": CONTENT + (b"z" * 70 + b"\r\n") * 20000}),
    ("too-large", "u1@a.example", {"content": CONTENT + (b"z" * 70 + b"\r\n") * 20000, "mail_options": ["SIZE=2000000"]}),
    ("long-line", "u1@a.example", {"content": CONTENT + b"z" * 999 + b"\r\n"}),
    ("bare-cr", "u1@a.example", {"content": CONTENT + b"a\r \rb\r\n"}),
    ("odd-header", "u1@a.example", {"content": b"this is no header\r\n"}),
    ("hops", "u1@a.example", {"content": b"Received: x\r\n" * 49 + CONTENT}),
])
def test_what_the_rules_leave_to_postfix_goes_on(system, reason, recipient, options):
    code, text = send(system, recipient, **options)
    if reason == "bare-cr" and any(entries(system)):  # newer Postfixes (3.11.7) take stray CR out before a proxy sees the mail
        assert code == 250 and all(b"\r\na   b\r\n" in body and not re.search(rb"\r(?!\n)", body) for body in bodies(system))
        return
    assert entries(system) == [[], []]
    line = said_of(system, text) if code == 250 else "\n".join(log(system).splitlines()[-5:])
    assert f"reason={reason}" in line
    if reason == "hops":  # as without us: cleanup(8) has counted
        assert code == 554 and b"too many hops" in text
    else:
        assert code == 250


@pytest.mark.core
def test_one_mail_for_lanes_and_for_postfix(system):
    code, text = send(system, "u1@a.example", "split@plain.example")
    assert code == 250 and "action=split, entries=1" in said_of(system, text)
    for node in entries(system):
        assert [[r.address for r in entry.envelope["recipients"]] for entry in node] == [["u1@a.example"]]
    eventually("Postfix delivers its part", lambda: delivered(system, "plain", "split@plain.example") == 1)


def test_postfix_refusal_is_the_answer_for_all(system):
    """Nothing was stored by then, so nothing can come twice."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        system.configure(proxy_next=f"127.0.0.1:{closed.getsockname()[1]}")
        system.restart("proxy")
        for recipients in (["u1@a.example", "u2@plain.example"], ["u2@plain.example"]):
            code, text = send(system, *recipients)
            assert (code, text[:5]) == (451, b"4.3.0")
        assert entries(system) == [[], []]
        assert send(system, "u1@a.example")[0] == 250  # which needs no Postfix
    system.configure(proxy_next=system["postfix"].note["next"])
    system.restart("proxy")


def test_a_recipient_without_a_route_goes_on(system):
    routes = system["proxy"].note["settings"]["route"]
    system.configure(route=f'{{"a.example={system.destinations["a"]}"}}')
    system.restart("proxy")
    code, text = send(system, "u1@a.example", "routeless@b.example")
    assert code == 250 and "reason=no-route to=<routeless@b.example>" in said_of(system, text)
    assert [[r.address for r in e.envelope["recipients"]] for e in entries(system)[0]] == [["u1@a.example"]]
    system.configure(route=routes)
    system.restart("proxy")


def full_lane(system, destination):
    with resp.Connection(system.nodes["mx2"]) as redis:
        redis.call("LANE.CREATE", f"dovelane:{system.destinations[destination]}|mx1>mx2", "MAXBYTES", 1)


@pytest.mark.core
def test_what_cannot_be_stored_goes_on_and_the_rest_stays(system):
    full_lane(system, "a")
    code, text = send(system, "full@a.example", "u2@b.example", "third@plain.example")
    assert code == 250 and f"reason=store ({system.destinations['a']} mx2: FULL)" in said_of(system, text) and "action=split" in said_of(system, text)
    assert [[r.address for r in e.envelope["recipients"]] for node in entries(system) for e in node] == [["u2@b.example"]] * 2
    eventually("Postfix delivers the rest", lambda: delivered(system, "a", "full@a.example") == 1 and delivered(system, "plain", "third@plain.example") == 1)


def test_a_mail_that_cannot_be_stored_has_one_line(system):
    full_lane(system, "a")
    code, text = send(system, "full@a.example")
    line, = said_of(system, text).splitlines()
    assert code == 250 and re.search(r"action=queue reason=store \(mx2: FULL\), next=250 .* queued as ", line)


@pytest.mark.check
@pytest.mark.core
def test_a_killed_node_means_postfix_queue_at_once(system):
    system.kill("redis-mx2")
    eventually("the proxy knows it", lambda: "1 of 2 nodes can be used" in said_of(system, send(system, "u1@a.example")[1]))


@pytest.mark.core
def test_a_node_that_stands_still_gets_revoked_and_keeps_nothing(system):
    system.stop("redis-mx2")
    code, text = send(system, "still@a.example")
    system.cont("redis-mx2")
    assert code == 250 and "reason=store" in said_of(system, text)
    eventually("nothing is in a lane", lambda: entries(system) == [[], []])
    eventually("Postfix delivers it", lambda: delivered(system, "a", "still@a.example") == 1)


def test_a_client_that_hangs_up_leaves_nothing_behind(system):
    """Its sender is told 4xx by Postfix, and sends it again."""
    system.stop("redis-mx2")
    with talk(system) as client:
        client.sendall(b"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<u1@a.example>\r\nDATA\r\n")
        wait_for(client, b"354 ")
        began = offered(system)
        client.sendall(CONTENT + b".\r\n")
    eventually("it was being stored", lambda: offered(system) == began + 1)
    eventually("it is seen", lambda: "Postfix hung up before the answer" in log(system))
    eventually("it is taken back", lambda: lanes.length(system.nodes["mx1"]) == 0)
    system.cont("redis-mx2")
    eventually("from both", lambda: "action=tempfail" in log(system) and entries(system) == [[], []])


def test_a_proxy_that_stood_still_promises_nothing_old(system):
    """Both nodes have acked meanwhile, but too long ago: the copies are taken back, and Postfix's queue has the mail. Or Postfix has it by the deadline."""
    system.stop("redis-mx2")
    began, answer = offered(system), []
    client = threading.Thread(target=lambda: answer.append(send(system, "late@a.example")))
    client.start()
    eventually("it is being stored", lambda: offered(system) == began + 1)
    system.stop("proxy")
    system.cont("redis-mx2")
    time.sleep(3.5)  # twice store_deadline, and more
    system.cont("proxy")
    client.join()
    assert answer[0][0] == 250, answer
    eventually("nothing is in a lane", lambda: entries(system) == [[], []])
    eventually("Postfix delivers it", lambda: delivered(system, "a", "late@a.example") == 1)


def test_a_thousand_recipients_each_by_its_way(system):
    recipients = [f"u{number}@{'a' if number % 2 else 'plain'}.example" for number in range(1000)]
    code, text = send(system, *recipients)
    assert code == 250 and "recipients passed on: 500 of 1000" in said_of(system, text)
    for node in entries(system):
        assert [r.address for e in node for r in e.envelope["recipients"]] == [r for r in recipients if r.endswith("@a.example")]


@pytest.mark.core
def test_divert_off_is_obeyed(system):
    admin.done(system, "divert", "off")
    code, text = send(system, "u1@a.example")
    assert code == 250 and "reason=divert-off" in said_of(system, text) and entries(system) == [[], []]
    admin.done(system, "divert", "on")
    assert send(system, "u1@a.example")[0] == 250
    assert [len(node) for node in entries(system)] == [1, 1]


def test_tempfail_takes_back_and_says_so():
    with stack_of(policy="tempfail") as system:
        full_lane(system, "a")
        code, _ = send(system, "u1@a.example", "u2@b.example")
        assert code == 451 and entries(system) == [[], []]
        assert "action=tempfail" in log(system)


def test_postfix_settings_that_diverted_mail_would_miss_keep_diverting_off():
    with stack_of(postconf={"header_checks": "regexp:{{/^X-Never:/ REJECT}}"}) as system:
        code, text = send(system, "u1@a.example")
        assert code == 250 and "reason=postfix header_checks" in said_of(system, text) and entries(system) == [[], []]


@pytest.mark.parametrize("setting", [{"remote_header_rewrite_domain": "mend.example"}, {"message_drop_headers": "bcc, " + ", ".join(f"x-ours-{n}" for n in range(60))}])
def test_headers_that_cleanup_would_change_keep_diverting_off(system, tmp_path, setting):
    """What it does to every header, and names to drop of which there are more than fit in."""
    (name, value), = setting.items()
    real = Path(system["proxy"].note["settings"]["postfix_config"])
    for file in ("main.cf", "master.cf"):
        (tmp_path / file).write_text((real / file).read_text() + (f"{name} = {value}\n" if file == "main.cf" else ""))
    system.configure(postfix_config=str(tmp_path))
    system.restart("proxy")
    try:
        code, text = send(system, "u1@a.example")
        assert code == 250 and f"reason=postfix {name}" in said_of(system, text) and entries(system) == [[], []]
    finally:
        system.configure(postfix_config=str(real))
        system.restart("proxy")


@pytest.mark.long
def test_a_mail_at_the_size_limit_is_not_refused_behind_its_lanes():
    """The second smtpd counts the first one's Received line, too; it must not say no when the other recipients' copies lie in their lanes."""
    with stack_of(postconf={"message_size_limit": "20000", "recipient_delimiter": "+"}) as system:
        for size in (19700, 19950, 20000):
            code, text = send(system, "u1@a.example", "u2@plain.example", content=(CONTENT + b"y" * 70 + b"\r\n" + (b"z" * 70 + b"\r\n") * 300)[:size - 2] + b"\r\n")
            assert code == 250 and "action=split" in said_of(system, text), (size, code, text)
        assert send(system, "u1@a.example", "u2@plain.example", content=CONTENT + (b"z" * 70 + b"\r\n") * 300)[0] == 552
        assert [len(node) for node in entries(system)] == [3, 3]


def test_what_a_client_that_logged_in_says_of_itself_goes_no_further(system):
    """The port behind has no login, and would refuse AUTH=. Here as the first smtpd passes it on, which a login would allow it."""
    with talk(system) as client:
        client.sendall(b"EHLO x\r\nMAIL FROM:<root@web1> SIZE=9 AUTH=<>\r\nRCPT TO:<login@plain.example>\r\nDATA\r\n")
        wait_for(client, b"354 ")
        client.sendall(CONTENT + b".\r\n")
        assert wait_for(client, b"\r\n").startswith(b"250 ")
    eventually("Postfix delivers it", lambda: delivered(system, "plain", "login@plain.example") == 1)


def another_proxy(system, tmp_path, socket_path):
    note, conf = system["proxy"].note, tmp_path / "dovelane.conf"
    conf.write_text(programs.settings_text({**note["settings"], "proxy_socket": str(socket_path), "metrics_socket": "", "state_directory": str(tmp_path)}, note["nodes"]))
    said = subprocess.run([*system["proxy"].argv[:1], "-c", conf, "-n", "mx1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert said.returncode == 1
    return said.stdout


def test_what_is_no_socket_is_not_replaced(system, tmp_path):
    path = tmp_path / "proxy.sock"
    path.write_text("precious")
    said = another_proxy(system, tmp_path, path)
    assert "what is there is no socket" in said and path.read_text() == "precious", said


def test_two_proxies_on_one_socket_are_refused(system, tmp_path):
    said = another_proxy(system, tmp_path, system["proxy"].note["socket"])
    assert "another process answers there: stop it" in said, said
    assert send(system, "u1@a.example")[0] == 250


@pytest.mark.long
def test_aliases_are_postfix_work():
    with stack_of(postconf={"virtual_alias_maps": "inline:{alias@a.example=real@a.example}"}) as system:
        code, text = send(system, "alias@a.example", "other@a.example")
        assert code == 250 and "action=split" in said_of(system, text)
        assert [[r.address for r in e.envelope["recipients"]] for e in entries(system)[0]] == [["other@a.example"]]
        eventually("the alias is delivered", lambda: delivered(system, "a", "real@a.example") == 1)


def test_an_address_that_is_given_twice_goes_one_way(system):
    """Once with a notice, which is Postfix's work, once without, in other letters: all of it is Postfix's, and the store is not asked
    to store nothing, which it would never answer."""
    notice = ("twice@a.example", ["NOTIFY=SUCCESS"])
    code, _ = send(system, notice, "Twice@A.example")
    assert code == 250 and entries(system) == [[], []]
    code, text = send(system, "twice@a.example", "u2@b.example", (notice[0].upper(), notice[1]))
    assert code == 250 and "action=split" in said_of(system, text)
    assert [[r.address for r in e.envelope["recipients"]] for e in entries(system)[0]] == [["u2@b.example"]]
    eventually("Postfix delivers it", lambda: delivered(system, "a", "twice@a.example"))
    eventually("no session is left behind", lambda: "dovelane_proxy_sessions 0" in metrics(system))


@pytest.mark.long
def test_an_address_in_two_spellings_is_asked_once():
    with stack_of(postconf={"virtual_alias_maps": "inline:{alias@a.example=real@a.example}"}) as system:
        code, text = send(system, "other@a.example", "Other@A.example")
        assert code == 250 and "action=split" not in said_of(system, text)
        assert [len(e.envelope["recipients"]) for e in entries(system)[0]] == [1]


@pytest.mark.long
def test_a_map_that_hangs_holds_up_no_mail_for_longer_than_one_look_up(system, tmp_path):
    """The five seconds count from when a mail wants to know, not from when a thread is free: one after the other these took 40 s."""
    real = system["proxy"].note["settings"]["postfix_config"]
    main = (Path(real) / "main.cf").read_text()
    clients = []
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(256)
        (tmp_path / "main.cf").write_text(f"{main}\nvirtual_alias_maps = tcp:127.0.0.1:{mute.getsockname()[1]}\n")
        (tmp_path / "master.cf").write_text((Path(real) / "master.cf").read_text())
        system.configure(postfix_config=str(tmp_path), proxy_timeout="60s")
        system.restart("proxy")
        try:
            began = time.monotonic()
            for n in range(60):
                clients.append(talk(system))
                clients[n].sendall(f"EHLO x\r\nMAIL FROM:<s@x.example>\r\nRCPT TO:<hangs{n}@a.example>\r\nDATA\r\n".encode())
            for client in clients:
                wait_for(client, b"354 ")
            took = time.monotonic() - began
            for client in clients:
                client.sendall(CONTENT + b".\r\n")
            texts = [wait_for(client, b"\r\n") for client in clients]
        finally:
            for client in clients:
                client.close()
    assert all(text.startswith(b"250 ") for text in texts), texts
    assert all("reason=map" in said_of(system, text) for text in texts[::20]) and entries(system) == [[], []]
    assert took < 30, took
    system.configure(postfix_config=real, proxy_timeout="5s")
    system.restart("proxy")


def test_the_admins_check_knows_the_proxy(system):
    settings = system["proxy"].note["settings"]
    programs.write_settings(system["relay-mx1"], {name: settings[name] for name in ("proxy_socket", "proxy_next", "route", "state_directory", "postfix_config")})
    said = admin.run(system, "check", "-v", "postfix").out
    assert "its mail goes to our proxy" in said and "no smtpd uses the milter" not in said and "message_size_limit" not in said
    assert f"ok       proxy_next {settings['proxy_next']}: answers" in said
    programs.write_settings(system["relay-mx1"], {"proxy_next": "127.0.0.1:9", "proxy_timeout": "200s"})
    said = admin.run(system, "check", "postfix").out
    assert "CRITICAL proxy_next 127.0.0.1:9: no service of master.cf listens there" in said and "smtpd_proxy_timeout is 100s" in said
    programs.write_settings(system["relay-mx1"], {"proxy_next": settings["proxy_next"], "proxy_timeout": settings["proxy_timeout"]})


def test_a_port_behind_the_proxy_on_which_nobody_listens_is_named(system, tmp_path):
    """Though master.cf has it. Before any smtpd uses the proxy it is a warning: that is when an admin looks."""
    settings = system["proxy"].note["settings"]
    real = Path(settings["postfix_config"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        (tmp_path / "main.cf").write_text((real / "main.cf").read_text())
        master = (real / "master.cf").read_text().replace(settings["proxy_next"], nobody)
        (tmp_path / "master.cf").write_text(master)
        programs.write_settings(system["relay-mx1"], {**{name: settings[name] for name in ("proxy_socket", "route", "state_directory")}, "proxy_next": nobody})
        said = admin.run(system, "check", "--postfix-config", tmp_path, "postfix")
        assert said.status == 2 and f"CRITICAL proxy_next {nobody}: nobody answers there (Connection refused)" in said.out and "systemctl reload postfix" in said.out, said
        (tmp_path / "master.cf").write_text(re.sub(r"\n +-o smtpd_proxy_filter=unix:.*", "", master))
        said = admin.run(system, "check", "--postfix-config", tmp_path, "postfix")
        assert f"WARNING  proxy_next {nobody}: nobody answers there (Connection refused)" in said.out, said
        (tmp_path / "master.cf").write_text("")
        said = admin.run(system, "check", "--postfix-config", tmp_path, "postfix")
        assert f"WARNING  proxy_next {nobody}: no service of master.cf listens there" in said.out, said
    programs.write_settings(system["relay-mx1"], {**{name: settings[name] for name in ("proxy_socket", "route", "state_directory")}, "proxy_next": f"unix:{tmp_path}/none"})
    said = admin.run(system, "check", "--postfix-config", real, "postfix")
    assert f"CRITICAL proxy_next unix:{tmp_path}/none: nobody answers there (No such file or directory)" in said.out, said
    programs.write_settings(system["relay-mx1"], {"proxy_next": settings["proxy_next"]})


def test_a_slow_postfix_gets_no_more_time_than_it_may(system):
    """proxy_next is there and says nothing: the client is told 4xx, and nothing is anywhere."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        system.configure(proxy_next=f"127.0.0.1:{mute.getsockname()[1]}", proxy_timeout="1s")
        system.restart("proxy")
        code, text = send(system, "u1@a.example", "u2@plain.example")
        assert (code, text[:5]) == (451, b"4.3.0") and "no answer in time at the greeting" in log(system)
        assert entries(system) == [[], []]
    system.configure(proxy_next=system["postfix"].note["next"], proxy_timeout="5s")
    system.restart("proxy")
