"""The fault matrix: for every next hop that misbehaves, the outcome of each recipient is the one that Postfix's smtp(8) or lmtp(8) gives it.

Each cell is one script (scripted_hops.py): a protocol, the extensions that are offered, and a fault at one place of the first session. Postfix and the
relay each get a hop of their own with this script and one mail for three recipients. Compared are status and DSN code of the first attempt; afterwards
everything must have arrived or bounced at both, and nothing twice but where a log says "may be sent more than once".

What differs on purpose stands in `on_purpose`, with its reason. The whole table is written to build/relay-faults.txt.
"""
import concurrent.futures
import os
import re
import resource
import smtplib
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import envelope
from support.scripted_hops import EXTENSIONS, HANDSHAKES, SILENT, TEXTS, Farm, Fault
from support.stack import Stack, resp
from support.stack.shape import SinkShape

PEOPLE = ("a", "b", "c")
PLAIN = b"From: s@x.test\r\nTo: a@x.test\r\nSubject: x\r\nDate: Mon, 1 Jan 2024 00:00:00 +0000\r\nMessage-ID: <m@x.test>\r\n\r\nhello\r\n"
LARGE = PLAIN + b"".join(b"%060d\r\n" % n for n in range(6000))

REPLIES = [*(kind for kind in TEXTS if kind != "plain-behind"), "421", "close", "reset", "close-after", "stall", "slow"]
DOTS = [*REPLIES, "close-kept", "reset-kept", "stall-kept"]
MAIN = ["4xx", "5xx", "421", "close", "stall"]
WITHOUT_CHUNKS = tuple(word for word in EXTENSIONS if word != "CHUNKING")
SETS = {"none": (), "pipelining": ("PIPELINING",), "all-but-chunking": WITHOUT_CHUNKS, "all": EXTENSIONS}


@dataclass(frozen=True)
class Cell:
    lmtp: bool
    offers: str         # name of the set
    extensions: tuple
    faults: tuple       # of (place, kind)
    tls: str = ""       # may, encrypt, verify: STARTTLS is offered
    shows: str = "server"   # the certificate of the first session
    trust: str = "xforward"

    @property
    def theirs(self):
        """What Postfix meets: smtp(8) has no XCLIENT, so the same at XFORWARD, and at EHLO for the second one."""
        if self.trust != "xclient":
            return self.faults
        return tuple(({"XCLIENT": "XFORWARD", "EHLO2": "EHLO"}.get(place, place), kind) for place, kind in self.faults)

    @property
    def chunked(self):
        return "CHUNKING" in self.extensions

    @property
    def by_bdat(self):
        """What the relay has to hear by RFC 3030 when the fault waits at DATA, which is never said: RCPT decides, and who is accepted has the mail."""
        said = {"4xx": ("deferred", "4.7.1"), "5xx": ("bounced", "5.7.1")}
        refused = {each: said[kind] for place, kind in self.faults for n, each in enumerate(PEOPLE, 1) if place in (f"RCPT{n}", "RCPT*")}
        return [refused.get(each, ("sent", "2.0.0")) for each in PEOPLE]

    @property
    def body(self):
        return LARGE if any(place == "BODY" for place, _ in self.faults) else PLAIN

    @property
    def silent(self):
        return any(kind in SILENT or (place == "BODY" and (kind in TEXTS or kind == "421")) or (place, kind) == ("TLS", "record") for place, kind in self.faults)

    def __str__(self):
        return f"{'lmtp' if self.lmtp else 'smtp'} {self.offers:<20} " + "".join(
            [f"tls={self.tls} " if self.tls else "", f"shows={self.shows} " if self.shows != "server" else ""]) + "+".join(f"{place}={kind}" for place, kind in self.faults)


def scripts(lmtp, extensions, kinds, dots):
    """Every place with every kind."""
    for place in ("CONNECT", "EHLO", "MAIL", "RCPT1", "RCPT2", "RCPT3", "RCPT*", "DATA"):
        yield from (((place, kind),) for kind in kinds)
    if not lmtp:
        yield from ((("EHLO", "5xx"), ("HELO", kind)) for kind in kinds)
    if any(word.startswith("XFORWARD") for word in extensions):
        yield from ((("XFORWARD", kind),) for kind in kinds)
    for place in ("DOT1", "DOT2", "DOT3", "DOT*") if lmtp else ("DOT",):
        yield from (((place, kind),) for kind in dots)
    yield from ((("BODY", kind),) for kind in ("4xx", "5xx", "421", "close", "reset", "stall", "slow-read", "2xx") if kind in kinds or kind == "slow-read")
    yield from ((("RCPT*", "4xx"), ("RSET", kind)) for kind in kinds)
    yield from ((("QUIT", kind),) for kind in kinds)
    for rcpt, later in (("4xx", "5xx"), ("5xx", "4xx"), ("5xx", "close")):
        yield (("RCPT2", rcpt), ("DATA", later))
        yield (("RCPT2", rcpt), ("DOT1" if lmtp else "DOT", later))
        yield (("RCPT1", rcpt), ("RCPT3", later))
    yield (("RCPT*", "5xx"), ("DATA", "3xx"))
    yield (("MAIL", "5xx"), ("RCPT*", "2xx"))


SOME = ["4xx", "5xx", "421", "close", "reset", "close-after", "stall", "3xx", "noise"]
INTRODUCED = ("XCLIENT NAME ADDR PORT PROTO HELO LOGIN",)


def secure_scripts(level, lmtp):
    """STARTTLS and what follows it: (certificate that is shown, faults)."""
    for kind in (*REPLIES, "plain-behind"):
        yield "server", (("STARTTLS", kind),)
        yield "server", (("EHLO2", kind),)
    for kind in HANDSHAKES:
        yield "server", (("TLS", kind),)
    for name in ("server", "name", "expired", "other"):
        yield name, ()
    for kind in SOME:
        yield "server", (("STARTTLS", "5xx"), ("MAIL", kind))
        yield "server", (("TLS", "garbage"), ("RCPT2", kind))
        yield "server", (("RCPT2", kind),)
        yield "server", (("DATA", kind),)
        yield "server", (("DOT2" if lmtp else "DOT", kind),)
        yield "server", (("RCPT*", "4xx"), ("RSET", kind))
        if kind in ("4xx", "5xx", "421", "close", "reset", "stall"):
            yield "server", (("BODY", kind),)


def secure_cells(whole):
    if not whole:
        for lmtp, level, shows, faults in ((False, "may", "server", (("STARTTLS", "4xx"),)), (False, "may", "server", (("TLS", "garbage"),)),
                                           (True, "may", "server", (("TLS", "half-stall"),)), (False, "encrypt", "server", (("STARTTLS", "5xx"),)),
                                           (False, "encrypt", "server", (("STARTTLS", "plain-behind"),)), (False, "encrypt", "server", (("TLS", "half-close"),)),
                                           (True, "encrypt", "server", (("EHLO2", "421"),)), (False, "encrypt", "other", ()), (False, "verify", "other", ()),
                                           (True, "verify", "name", ()), (False, "verify", "server", (("STARTTLS", "stall"),)), (False, "verify", "server", (("BODY", "5xx"),))):
            yield Cell(lmtp, "all", EXTENSIONS, faults, level, shows)
        return
    for lmtp in (False, True):
        for name in ("none", "all-but-chunking", "all"):
            for level in ("may", "encrypt", "verify"):
                yield from (Cell(lmtp, name, SETS[name], faults, level, shows) for shows, faults in secure_scripts(level, lmtp))


def introduced_cells(whole):
    """XCLIENT, and EHLO again."""
    for lmtp in (False, True):
        for name in ("none", "all-but-chunking", "all") if whole else ("all",):
            offers = (*SETS[name], *INTRODUCED, *(word for word in EXTENSIONS if word.startswith("XFORWARD") and name == "none"))
            for kind in REPLIES if whole else ("4xx", "5xx", "421", "close", "stall") if not lmtp else ("5xx", "reset"):
                yield Cell(lmtp, f"{name} XCLIENT", offers, (("XCLIENT", kind),), trust="xclient")
                yield Cell(lmtp, f"{name} XCLIENT", offers, (("EHLO2", kind),), trust="xclient")


def cells(whole):
    """All of them; see plain_cells for what is not whole."""
    yield from plain_cells(whole)
    yield from secure_cells(whole)
    yield from introduced_cells(whole)


def plain_cells(whole):
    """The short form: the extremes of what may be offered, the main kinds. The whole: also every extension alone and every one missing."""
    sets = dict(SETS) if whole else {name: SETS[name] for name in ("none", "all")}
    for lmtp in (False, True):
        for name, extensions in sets.items():
            kinds, dots = (REPLIES, DOTS) if whole else (MAIN + ["close-after", "3xx"], MAIN + ["close-kept", "reset"])
            yield from (Cell(lmtp, name, extensions, faults) for faults in scripts(lmtp, extensions, kinds, dots))
        if not whole:
            continue
        for word in EXTENSIONS:
            rest = tuple(other for other in EXTENSIONS if other != word)
            for name, extensions in (("only " + word.split(" ")[0], (word,)), ("no " + word.split(" ")[0], rest)):
                yield from (Cell(lmtp, name, extensions, faults) for faults in scripts(lmtp, extensions, MAIN, MAIN))


# -- running them --------------------------------------------------------------------------------------------------------------

PHASES = ("connect", "helo", "starttls", "xforward", "mail", "rcpt", "data_init", "data_xfer", "data_done", "rset")
ATTEMPT = re.compile(r"to=<(\w)@([pr]\d+)\.test>, .*?dsn=([\d.]+), status=(\w+) \((.*)")  # a long reason is cut, with its parenthesis
TWICE = "may be sent more than once"


def attempts(system):
    """(name of hop, recipient) to its lines in both logs, as (status, dsn, text)."""
    found = {}
    for service in ("postfix", "relay-mx1"):
        for line in Path(system[service].log).read_text(errors="replace").splitlines():
            if match := ATTEMPT.search(line):
                found.setdefault((match[2], match[1]), []).append((match[4], match[3], match[5]))
    return found


class Run:
    """All cells at once, in one stack."""

    def __init__(self, chosen, seconds):
        self.cells = list(chosen)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * len(self.cells) + 1000)), hard))
        self.farm = Farm()
        self.bounce = self.farm.hop(offers=WITHOUT_CHUNKS)
        self.hops = {}
        certificates = self.farm.issue()
        for n, cell in enumerate(self.cells):
            for who in "pr":
                self.hops[f"{who}{n}"] = self.farm.hop(lmtp=cell.lmtp, offers=cell.extensions, faults=[Fault(*each) for each in (cell.theirs if who == "p" else cell.faults)],
                                                       certificates=(cell.shows, "server") if cell.tls else (),
                                                       room=32768 if cell.body is LARGE else None)
        limits = {f"smtp_{phase}_timeout": f"{seconds}s" for phase in PHASES}
        postconf = {f"{protocol}_{phase}_timeout": f"{seconds}s" for protocol in ("smtp", "lmtp") for phase in (*PHASES, "quit")}
        postconf["lmtp_lhlo_timeout"] = f"{seconds}s"
        postconf |= {"smtp_send_xforward_command": "yes", "lmtp_send_xforward_command": "yes", "minimal_backoff_time": "1h", "maximal_backoff_time": "1h",
                     "queue_run_delay": "1h", "in_flow_delay": "0"}
        # Where what they want is not "*": by the cell's number.
        policies, sections = certificates / "policies", {"*": {"trust": "xforward"}}
        theirs = {"may": "may", "encrypt": "encrypt", "verify": "secure match=next.example"}
        policies.write_text("".join(f"[127.0.0.1]:{self.hops[f'p{n}'].port} {theirs[cell.tls]}\n" for n, cell in enumerate(self.cells) if cell.tls))
        for n, cell in enumerate(self.cells):
            if cell.tls:
                sections[self.hops[f"r{n}"].destination] = {"trust": "xforward", "tls": cell.tls, "tls_name": "next.example", "tls_ca_file": str(certificates / "ca.pem")}
            elif cell.trust != "xforward":
                sections[self.hops[f"r{n}"].destination] = {"trust": cell.trust}
        for protocol in ("smtp", "lmtp"):
            postconf |= {f"{protocol}_tls_policy_maps": f"texthash:{policies}", f"{protocol}_tls_CAfile": str(certificates / "ca.pem")}
        maps = {f"{name}.test": hop.destination for name, hop in self.hops.items() if name[0] == "p"}
        maps["x.test"] = "discard:"
        settings = {"retry_first": "200ms", "retry_most": "400ms", "bounce_port": f"127.0.0.1:{self.bounce.port}", "connection_idle": "1s",
                    "destinations": sections, **limits}
        self.stack = Stack(postfix="stock", nodes=1, maps=maps, divert=[], settings=settings, postconf=postconf)

    def __enter__(self):
        self.stack.up()
        return self

    def __exit__(self, *_):
        self.stack.down()
        self.farm.end()

    def logs(self):
        return attempts(self.stack)

    def inject(self):
        with resp.Connection(self.stack.nodes["mx1"], timeout=60) as redis:
            for n, cell in enumerate(self.cells):
                people = [f"{each}@r{n}.test" for each in PEOPLE]
                meta = envelope.encode(people, size=len(cell.body), sender="s@x.test", client_name="c.test", client_addr="192.0.2.1", helo="c.test", protocol="ESMTP")
                redis.call("LANE.PUSH", 1, f"dovelane:{self.hops[f'r{n}'].destination}|mx1", "ENTRIES", 1, 1, envelope.entry_id(), meta, cell.body)
                if cell.tls:
                    time.sleep(0.01)    # hundreds of new TLS next hops in one turn are a pause, after which the relay gives back what waits
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self.submit, range(4)))

    def submit(self, part):
        host, _, port = self.stack.smtp.rpartition(":")
        with smtplib.SMTP(host, int(port)) as client:
            for n in range(part, len(self.cells), 4):
                client.sendmail("s@x.test", [f"{each}@p{n}.test" for each in PEOPLE], self.cells[n].body)

    def flush(self):
        subprocess.run(["postqueue", "-c", self.stack["postfix"].note["config_directory"], "-f"], check=True, timeout=60)

    def wait(self, what, condition, seconds=300, again=None):
        """Waits until nothing is left. again: what is done every few seconds meanwhile."""
        end, due = time.monotonic() + seconds, 0
        while left := condition():
            assert time.monotonic() < end, f"{what}: {left[:10]}"
            if again and time.monotonic() >= due:
                again()
                due = time.monotonic() + 5
            time.sleep(0.2 if len(self.cells) < 1000 else 2)

    def untried(self):
        seen = self.logs()
        return [f"{self.cells[int(name[1:])]} {name} {each}" for name in self.hops for each in PEOPLE if (name, each) not in seen]

    def unfinished(self):
        seen = self.logs()
        return [f"{self.cells[int(name[1:])]} {name} {each} {seen[name, each]}" for name in self.hops for each in PEOPLE
                if seen[name, each][-1][0] not in ("sent", "bounced")]

    def go(self):
        self.inject()
        self.wait("first attempts", self.untried)
        first = {key: lines[0] for key, lines in self.logs().items()}
        self.wait("last attempts", self.unfinished, again=self.flush)
        # The last line of a mail that bounces is written before the bounce is given to the bounce port.
        self.wait("bounces", self.unbounced)
        results = [self.judge(n, first) for n in range(len(self.cells))]
        paused = "stood still" in Path(self.stack["relay-mx1"].log).read_text(errors="replace")
        for each in results:
            each.paused = paused
        return results

    def unbounced(self):
        seen, given = self.logs(), sum((mail.kept for mail in list(self.bounce.mails)), [])
        return [str(key) for key, lines in seen.items() if key[0][0] == "r" and lines[-1][0] == "bounced" and f"{key[1]}@{key[0]}.test" not in given]

    def judge(self, n, first):
        cell, seen = self.cells[n], self.logs_once()
        outcome = {who: [first[f"{who}{n}", each][:2] for each in PEOPLE] for who in "pr"}
        wrong = []
        for each in PEOPLE:
            name = f"r{n}"
            lines = seen[name, each]
            kept = self.hops[name].times_kept(f"{each}@{name}.test")
            said_twice = sum(TWICE in text for _, _, text in lines)
            bounced = lines[-1][0] == "bounced"
            # Said 2xx before it had the message: it has taken it, for Postfix too.
            early = ("BODY", "2xx") in cell.faults
            if not kept and not bounced and not early:
                wrong.append(f"{each} is lost")
            if kept > 1 + said_twice or (kept and bounced and not said_twice):
                wrong.append(f"{each} arrived {kept} times{', and bounced' if bounced else ''}")
        if cell.tls in ("encrypt", "verify") and not all(mail.secure for mail in self.hops[f"r{n}"].mails):
            wrong.append("a mail went in the clear")
        if cell.tls == "verify" and cell.shows != "server" and any(mail.session == 1 for mail in self.hops[f"r{n}"].mails):
            wrong.append("a mail went to a stranger")
        met = {who: {fault.place for fault in self.hops[f"{who}{n}"].faults if any(self.fits(fault.place, place) for place in self.hops[f"{who}{n}"].met)} for who in "pr"}
        both = met["p"] == {place for place, _ in cell.theirs} and met["r"] == {place for place, _ in cell.faults}
        if cell.chunked and "DATA" in met["r"] and any(status == "sent" for status, _ in cell.by_bdat):
            wrong.append("DATA was said where CHUNKING is offered")
        return Result(cell, outcome["p"], outcome["r"], both, wrong,
                      [first[f"{who}{n}", "a"][2] for who in "pr"])

    @staticmethod
    def fits(wanted, place):
        return wanted == place or (wanted.endswith("*") and place.startswith(wanted[:-1]))

    def logs_once(self):
        if not hasattr(self, "last"):
            self.last = self.logs()
        return self.last


@dataclass
class Result:
    cell: Cell
    postfix: list       # (status, dsn) of a, b, c
    relay: list
    both_met: bool      # the fault was met by both
    wrong: list         # lost, doubled
    texts: list         # what was logged for a
    paused: bool = False    # the relay stood still in that run: what waited went back without a line in the log

    @property
    def reason(self):
        """Why it may differ; None: it may not. "": it does not."""
        if self.postfix == self.relay:
            return ""
        return on_purpose(self)

    def line(self):
        def outcomes(pairs):
            return " ".join(f"{status[:1]}{dsn}" for status, dsn in pairs)
        verdict = "same" if self.postfix == self.relay else f"differs: {self.reason or 'NOT ON PURPOSE'}"
        return f"{str(self.cell):<70} {outcomes(self.postfix):<24} {outcomes(self.relay):<24} {verdict}{'; '.join(['', *self.wrong])}"


BROKEN = {"3xx", "1xx", "6xx", "2xx"}   # at most places: an answer that is none to this command
GARBAGE = {"noise-first", "empty-first", "noise", "long-line", "300-lines", "two-codes"}


WELL = [("sent", "2.0.0")] * len(PEOPLE)


def on_purpose(result):
    """The differences that are meant: why, or None. In each the relay gives the mail another chance where Postfix, which has more than one host to
    try and knows nothing better, decides at once or goes on with a peer that is out of step."""
    places = {place.rstrip("*123") for place, _ in result.cell.faults}
    kinds = {kind for _, kind in result.cell.faults}
    differ = [(theirs, ours) for theirs, ours in zip(result.postfix, result.relay) if theirs != ours]
    if result.cell.chunked and "DATA" in places:
        return "with CHUNKING the relay says no DATA, and meets no fault there" if result.relay == result.cell.by_bdat else None
    if result.cell.tls == "may" and all(theirs == ("deferred", "4.7.5") for theirs in result.postfix):
        return "a handshake that fails where TLS may be: in the clear at once, in a new session; Postfix after minimal_backoff_time" if result.relay == WELL else None
    if not all(ours[0] == "deferred" for _, ours in differ):
        return None
    if "plain-behind" in kinds:
        return "what came behind the 220 came without TLS: the connection ends; Postfix forgets it" if {ours[1] for _, ours in differ} == {"4.4.2"} else None
    if "STARTTLS" in places and all(theirs[0] == "bounced" and ours == ("deferred", "4" + theirs[1][1:]) for theirs, ours in differ):
        return "a next hop that refuses TLS where it must be judges no mail: it is away, and what waits too long goes to Postfix"
    if places & {"CONNECT", "EHLO", "HELO"}:
        if all(theirs[0] == "bounced" for theirs, _ in differ):
            return "a next hop that refuses to talk judges no mail: it is away, and what waits too long goes to Postfix"
        if kinds & (BROKEN | GARBAGE):
            return "a next hop that does not speak SMTP is away"
        return None
    if "twice" in kinds and all(theirs[0] == "sent" or theirs[1] == "5.5.0" for theirs, _ in differ) and all(ours[1] == "4.4.2" for _, ours in differ):
        return "out of step: the connection ends, nothing is concluded from it"
    if kinds & BROKEN and all(ours[1] == "4.4.2" for _, ours in differ):
        return "out of step: the connection ends, nothing is concluded from it"
    if kinds & GARBAGE and all(ours[1] == "4.4.2" for _, ours in differ):
        return "no SMTP reply: the connection ends; Postfix skips the line and may take the next answer for this one's"
    return None


MOST = 2500     # cells in one stack: each is two servers


def settle(chosen):
    """All results. What needs a time limit gets a short one; a machine that was too slow for it gets a second, longer one."""
    chosen = list(chosen)
    results = []
    for cells_now, seconds in (([c for c in chosen if not c.silent], 300), ([c for c in chosen if c.silent], 3)):
        for at in range(0, len(cells_now), MOST):
            with Run(cells_now[at:at + MOST], seconds) as run:
                results += run.go()
    # The faults are those of a hop's first session. Where that went by without a mail, one of the two met none: no comparison.
    again = [r for r in results if (r.cell.silent and (r.reason is None or r.wrong))
             or (r.reason is None and not r.wrong and (r.paused or not r.both_met))]
    if again and len(again) < 200:
        with Run([r.cell for r in again], 15 if all(r.cell.silent for r in again) else 30) as run:
            second = run.go()
        results = [r for r in results if r not in again] + second
    return results


def report(results, path):
    lines = [r.line() for r in sorted(results, key=lambda r: str(r.cell))]
    same = sum(r.postfix == r.relay for r in results)
    meant = sum(bool(r.reason) for r in results)
    head = [f"{len(results)} cells, {same} the same, {meant} differ on purpose, {sum(r.reason is None for r in results)} differ, "
            f"{sum(bool(r.wrong) for r in results)} lost or doubled; {sum(r.both_met for r in results)} in which both met the whole fault",
            "outcomes of recipients a, b, c: s sent, d deferred, b bounced, and the DSN code; Postfix's, then the relay's", ""]
    path.write_text("\n".join(head + lines) + "\n")
    return head[0]


def check(results, name):
    build = Path(os.environ.get("DOVELANE_BUILD") or Path(__file__).resolve().parents[3] / "build")
    print(report(results, build / name))
    bad = [r.line() + "\n        " + "\n        ".join(r.texts) for r in results if r.reason is None or r.wrong]
    assert not bad, f"{len(bad)} cells:\n" + "\n".join(bad[:200])


# -- what a next hop lacks -----------------------------------------------------------------------------------------------------

EIGHT = PLAIN.replace(b"Subject", b"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\nSubject").replace(b"hello", b"gr\xc3\xbc\xc3\x9fe")
LACKING = {  # extensions; message; sender's local part; arguments
    "size": (("SIZE 100",), PLAIN, "s", ""),
    "size-0": (("SIZE 0",), PLAIN, "s", ""),
    "size-none": (("SIZE",), PLAIN, "s", ""),
    "size-odd": (("SIZE huge",), PLAIN, "s", ""),
    "utf8-asked": (("8BITMIME",), PLAIN, "s", "SMTPUTF8"),
    "utf8-sender": (("8BITMIME",), PLAIN, "gr\u00fcn", "SMTPUTF8"),
    "utf8-header": (("8BITMIME",), PLAIN.replace(b"Subject: x", "Subject: gr\u00fcn".encode()), "s", "SMTPUTF8 BODY=8BITMIME"),
    "utf8-offered": (("8BITMIME", "SMTPUTF8"), PLAIN, "gr\u00fcn", "SMTPUTF8"),
    "utf8-not-asked": (("8BITMIME",), PLAIN.replace(b"Subject: x", "Subject: gr\u00fcn".encode()), "s", ""),
    "8bit-undeclared": ((), EIGHT.replace(b"8bit", b"7bit"), "s", ""),
    "dsn": ((), PLAIN, "s", "RET=HDRS ENVID=x"),
}


@pytest.mark.long
@pytest.mark.parametrize("lmtp", [False, True], ids=["smtp", "lmtp"])
def test_what_a_next_hop_lacks(stack, lmtp):
    with Farm() as farm:
        bounce = farm.hop(offers=WITHOUT_CHUNKS)
        hops = {f"{who}{n}": farm.hop(lmtp=lmtp, offers=LACKING[name][0]) for n, name in enumerate(LACKING) for who in "pr"}
        maps = {f"{name}.test": hop.destination for name, hop in hops.items() if name[0] == "p"} | {"x.test": "discard:"}
        system = stack(postfix="stock", nodes=1, maps=maps, divert=[], settings={"bounce_port": f"127.0.0.1:{bounce.port}"})
        host, _, port = system.smtp.rpartition(":")
        with resp.Connection(system.nodes["mx1"]) as redis, smtplib.SMTP(host, int(port)) as client:
            client.ehlo("c.test")
            client.command_encoding = "utf-8"
            for n, (_, body, sender, args) in enumerate(LACKING.values()):
                meta = envelope.encode([f"a@r{n}.test"], size=len(body), sender=f"{sender}@x.test", sender_args=args)
                redis.call("LANE.PUSH", 1, f"dovelane:{hops[f'r{n}'].destination}|mx1", "ENTRIES", 1, 1, envelope.entry_id(), meta, body)
                assert client.docmd(f"MAIL FROM:<{sender}@x.test> {args}")[0] == 250
                assert client.docmd(f"RCPT TO:<a@p{n}.test>")[0] == 250
                assert client.data(body)[0] == 250
        seen = until_tried(system, [(name, "a") for name in hops])
        got = {name: [seen[f"{who}{n}", "a"][0][:2] for who in "pr"] for n, name in enumerate(LACKING)}
        assert {name: pair for name, pair in got.items() if pair[0] != pair[1]} == {}
        assert {pair[0] for pair in got.values()} == {("sent", "2.0.0"), ("bounced", "5.3.4"), ("bounced", "5.6.7")}, "both kinds are among them"


# -- Postfix's own sink --------------------------------------------------------------------------------------------------------

def until_tried(system, keys, seconds=90):
    """Lines by recipient, once each has one."""
    end = time.monotonic() + seconds
    while True:
        seen = attempts(system)
        left = [key for key in keys if key not in seen]
        if not left:
            return seen
        assert time.monotonic() < end, f"not tried: {left}"
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize("lmtp", [False, True], ids=["smtp", "lmtp"])
def test_smtp_sink(stack, lmtp):
    """An independent peer, with its own idea of every fault: the same outcome for Postfix and the relay at each."""
    base = ["-L"] if lmtp else []
    shapes = [base + more for more in ([], ["-p"], ["-8"], ["-F"], ["-8", "-p"], ["-e"] if not lmtp else ["-p", "-F"])]
    for command in ("lhlo" if lmtp else "ehlo", "mail", "rcpt", "data", ".", "rset"):
        shapes += [base + [option, command] for option in ("-r", "-f", "-q", "-Q")]
        shapes += [base + ["-p", option, command] for option in ("-r", "-f")]
    sinks = [SinkShape(f"k{n}", options) for n, options in enumerate(shapes)]
    maps = {f"p{n}.test": f"k{n}" for n in range(len(shapes))} | {"x.test": "discard:"}
    with Farm() as farm:
        bounce = farm.hop(offers=WITHOUT_CHUNKS)
        system = stack(postfix="stock", nodes=1, sinks=sinks, maps=maps, divert=[], settings={"bounce_port": f"127.0.0.1:{bounce.port}", "retry_first": "1h", "retry_most": "1h"},
                       postconf={"minimal_backoff_time": "1h", "queue_run_delay": "1h"})
        host, _, port = system.smtp.rpartition(":")
        with resp.Connection(system.nodes["mx1"]) as redis, smtplib.SMTP(host, int(port)) as client:
            for n in range(len(shapes)):
                meta = envelope.encode([f"{each}@r{n}.test" for each in PEOPLE], size=len(PLAIN), sender="s@x.test")
                redis.call("LANE.PUSH", 1, f"dovelane:{system.destinations[f'k{n}']}|mx1", "ENTRIES", 1, 1, envelope.entry_id(), meta, PLAIN)
                client.sendmail("s@x.test", [f"{each}@p{n}.test" for each in PEOPLE], PLAIN)
        seen = until_tried(system, [(f"{who}{n}", each) for who in "pr" for n in range(len(shapes)) for each in PEOPLE])
        different = []
        for n, options in enumerate(shapes):
            theirs, ours = ([seen[f"{who}{n}", each][0][:2] for each in PEOPLE] for who in "pr")
            judged = theirs[0][0] == "bounced" and ours[0][0] == "deferred" and options[-1] in ("ehlo", "lhlo")
            if theirs != ours and not judged:
                different.append((options, theirs, ours, seen[f"p{n}", "a"][0][2], seen[f"r{n}", "a"][0][2]))
        assert not different, "\n".join(map(str, different))
        assert {lines[0][0] for lines in seen.values()} == {"sent", "deferred", "bounced"}


def test_the_matrix():
    check(settle(cells(False)), "relay-faults-short.txt")


@pytest.mark.exhaustive
def test_the_whole_matrix():
    check(settle(cells(True)), "relay-faults.txt")
