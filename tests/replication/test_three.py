"""Three replicas: what two cannot show."""
import random
import re
import time

import pytest
from site_user import Site
from support.modseqs import wait_alike
from support.stack import digest
from support.stack.digest import wait_equal, wait_same_uids, wait_shape
from support.stack.group import FAST
from support.stack.imap import parsed
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "three@example.org"
FORMATS = ["sdbox", "mdbox", "maildir"]


def sites(group, user=USER):
    return [Site(replica, user) for replica in group.replicas]


def test_five_appends_each(group):
    there = group(*FORMATS)
    for site in sites(there):
        with site:
            site.append("INBOX", f"{site.replica.letter}0")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut()
    for site in sites(there):
        with site:
            for n in range(1, 6):
                site.append("INBOX", f"{site.replica.letter}{n}")
    there.heal()
    shape = wait_equal(there.replicas, [USER], WITHIN)[USER]["dovecot-a"].shape()
    assert shape == {"INBOX": {f"{letter}{n}": [()] for letter in "abc" for n in range(6)}}


def crossing(there, size, count, name):
    """Bytes over each link while so many mails of A's reach all; of how many more a body may have crossed because a machine stood still."""
    before, said = there.network(do="state"), len(there.logs("did not come in time", 0))
    with Site(there.replicas[0], USER) as a:
        for n in range(count):
            a.append("INBOX", f"{name}{n}", size=size)
    wait_equal(there.replicas, [USER], WITHIN)
    bytes_of = {link: now["bytes"] - before[link]["bytes"] for link, now in there.network(do="state").items()}
    return bytes_of, sum(int(n) for n in re.findall(r"(\d+) bodies were asked for and did not come in time", there.logs("did not come in time", 0)[said:]))


def test_a_body_crosses_each_link_once(group):
    """20 mails of 100 kB at A: what comes over A's links to B and to C is about one body per mail and link. An add that comes in a state exchange's answer before its
    batch is asked for: a new group's sites begin with one, so more rounds than one may be needed. Nothing is sent again because its answer is late."""
    there, size, count = group(*FORMATS, settings={**FAST, "resend_after": "5min", "resend_most": "10min"}), 100_000, 20
    with Site(there.replicas[0], USER) as a:
        a.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    seen = []
    for name in "mno":
        state, again = crossing(there, size, count, name)
        others = sum(state[link] for link in ("b>c", "c>b", "a>b", "a>c"))
        seen.append((state, again))
        if all(count * size * 0.3 < state[link] < (count + again) * size * 1.5 for link in ("b>a", "c>a")) and others < (count * 0.5 + again) * size:
            return
    raise AssertionError(f"bodies crossed more than once, or another way: {seen}")


def test_remove_reaches_c_before_the_add(group):
    there = group(*FORMATS)
    a, b, c = sites(there)
    with a, b, c:
        a.append("INBOX", "first")
        a.close()
        wait_equal(there.replicas, [USER], WITHIN)
        there.cut("a", "c")
        a.append("INBOX", "m")
        a.append("INBOX", "n")
        a.close()
        wanted = {"INBOX": {"first": [()], "m": [()], "n": [()]}}
        assert wait_shape(there.replicas[1], USER, wanted, WITHIN) is None
        b.expunge("INBOX", "m")
        b.flag("INBOX", "n", "+", "\\Seen")
        b.close()
        time.sleep(1)
    there.heal()
    shapes = wait_equal(there.replicas, [USER], WITHIN)[USER]
    assert shapes["dovecot-c"].shape() == {"INBOX": {"first": [()], "n": [("\\seen",)]}}


@pytest.mark.test
def test_a_dies_after_b_has_its_mail_and_c_has_not(group):
    there = group(*FORMATS)
    a, b, c = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut("a", "c")
    with Site(a, USER) as site:
        site.append("INBOX", "m", "\\Flagged")
        site.create("F")
        site.append("F", "f")
    wanted = {"INBOX": {"first": [()], "m": [("\\flagged",)]}, "F": {"f": [()]}}
    assert wait_shape(b, USER, wanted, WITHIN) is None
    a.kill()
    there.kill("redis-a")
    assert wait_shape(c, USER, wanted, WITHIN) is None, "C never got the dead site's mail from B"
    wait_equal([b, c], [USER], WITHIN)


@pytest.mark.test
def test_new_replica_gets_everything(group):
    """C comes up empty when A and B have long had mail."""
    there = group(*FORMATS)
    c = there.replicas[2]
    there.end(c.name)
    with Site(there.replicas[0], USER) as a:
        for n in range(30):
            a.append("INBOX", f"m{n}", *(["\\Seen", "kw"] if n % 3 else []))
        a.create("F/G")
        a.copy("INBOX", "m1", "F/G")
        a.expunge("INBOX", "m2")
    wait_equal(there.replicas[:2], [USER], WITHIN)
    there.start(c.name)
    shape = wait_equal(there.replicas, [USER], WITHIN)[USER]["dovecot-c"].shape()
    assert len(shape["INBOX"]) == 29 and shape["F/G"] == {"m1": [("\\seen", "kw")]}


def test_an_empty_site_that_can_ask_nobody_makes_no_inbox(group):
    """The youngest INBOX's UIDVALIDITY wins: a site that begins alone would have all clients of the others load theirs again."""
    there = group("maildir", "sdbox")
    a, b = there.replicas
    there.end(b.name)
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    validity = digest.read(a, USER).folders["INBOX"].validity
    there.cut("a", "b")
    there.start(b.name)
    b.doveadm("dovelane", "resync", "-u", USER)
    logged(b.log, f"user={USER}: not all other sites could be asked")
    while int(time.time()) <= validity:     # what is made from now on is younger
        time.sleep(0.1)
    b.doveadm("dovelane", "resync", "-u", USER)
    assert not (b.store(USER) / "mailboxes" / "INBOX").exists()
    there.heal()
    deadline = time.monotonic() + WITHIN
    while not list((b.store(USER) / "mailboxes").rglob("u.*")):     # who looked with a client would make an INBOX
        assert time.monotonic() < deadline, there.logs(USER)
        time.sleep(0.1)
    shown = wait_equal(there.replicas, [USER], WITHIN)[USER]
    assert len(shown["dovecot-b"].shape()["INBOX"]) == 1
    assert {one.folders["INBOX"].validity for one in shown.values()} == {validity}


def test_another_empty_site_s_answer_makes_no_inbox(group):
    """The site that has mail has not been heard yet."""
    there = group("maildir", "sdbox", "sdbox")
    a, b, c = there.replicas
    for empty in (b, c):
        there.end(empty.name)
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    validity = digest.read(a, USER).folders["INBOX"].validity
    there.cut("a")
    there.start(b.name)
    b.doveadm("dovelane", "resync", "-u", USER)
    logged(b.log, f"user={USER}: not all other sites could be asked")
    there.start(c.name)
    c.doveadm("dovelane", "resync", "-u", USER)
    logged(c.log, f"user={USER}: not all other sites could be asked")
    for empty in (b, c):
        assert not (empty.store(USER) / "mailboxes" / "INBOX").exists(), empty.name
    there.heal()
    deadline = time.monotonic() + WITHIN
    while not all(list((empty.store(USER) / "mailboxes").rglob("u.*")) for empty in (b, c)):
        assert time.monotonic() < deadline, there.logs(USER)
        time.sleep(0.1)
    shown = wait_equal(there.replicas, [USER], WITHIN)[USER]
    assert {one.folders["INBOX"].validity for one in shown.values()} == {validity}


def test_same_gateway_delivery_at_two_replicas_shows_once(group):
    """One lane entry, delivered at A and, after a takeover, at B: one mail. A forged id counts for nothing."""
    import smtplib

    from site_user import mail
    from support.stack.delivery_id import line
    from support.stack.group import GROUP_KEY
    there = group("sdbox", "maildir")

    def deliver(replica, entry, name, key=GROUP_KEY.encode()):
        host, _, port = replica.note["lmtp"].rpartition(":")
        _, header = line(key, mail(name), USER, entry=entry)
        with smtplib.LMTP(host, int(port), timeout=240) as session:
            session.sendmail("sender@stack.example", [USER], header + mail(name))

    one, two, three = ("%032x" % number for number in (1, 2, 3))
    there.cut()
    deliver(there.replicas[0], one, "m")
    deliver(there.replicas[1], one, "m")
    deliver(there.replicas[0], two, "n")
    deliver(there.replicas[0], two, "n")
    deliver(there.replicas[0], three, "forged", b"x" * 32)
    deliver(there.replicas[1], three, "forged", b"x" * 32)
    there.heal()
    digests = wait_equal(there.replicas, [USER], WITHIN)[USER]
    for found in digests.values():
        counts = {name: len(copies) for name, copies in found.shape()["INBOX"].items()}
        assert counts == {"m": 1, "n": 1, "forged": 2}, counts


def test_a_namespace_left_out_on_one_side_is_refused_by_name(group):
    """Groups that differ must not listen to each other: one vector would cover what the other does not hold."""
    from pathlib import Path
    there = group("sdbox", "sdbox")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    conf = Path(b.note["base"]) / "dovelane.conf"
    good = conf.read_text()
    conf.write_text(good.replace('replicate_namespaces = {"inbox"}', 'replicate_namespaces = {"inbox", "other"}'))
    there.restart(b.name)
    with Site(a, USER) as site:
        site.append("INBOX", "n")
    eventually("one of them says so",
               lambda: re.search("replicate_namespaces|namespace.*differ|digest",
                                 there.logs("replicate_namespaces|differ|digest")))
    assert digest.read(b, USER).shape() == {"INBOX": {"m": [()]}}
    conf.write_text(good)
    there.restart(b.name)
    assert wait_shape(b, USER, {"INBOX": {"m": [()], "n": [()]}}, WITHIN) is None


def test_strange_parcels_harm_nobody(group):
    """In A's lane to B: what A really sent, with its bytes changed in every place that fits into a second; then B still works."""
    import os

    from support.stack import lanes, resp
    there = group("sdbox", "mdbox")
    a, b = there.replicas
    dice = random.Random(7)
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut()
    with Site(a, USER) as site:
        site.append("INBOX", "n")
        site.flag("INBOX", "m", "+", "kw")
    lane, entries = "dovelane:replica:site-a>site-b", []
    with resp.Connection(there["redis-a"].note["address"]) as connection:
        end = time.monotonic() + 240
        while not entries and time.monotonic() < end:
            found = [name for name in lanes.names(connection) if "site-a" in name and "site-b" in name and "bulk" not in name]
            if found:
                lane = found[0]
                entries = connection.call("LANE.READ", lane, 1, "COUNT", 50, "BYTES", 4 << 20)[1]
            time.sleep(0.05)
        assert entries, "A put nothing into its lane"
        sent = 0
        for _ in range(300):
            _, _, _, _, _, meta, body, _ = dice.choice(entries)
            meta, body = bytearray(meta), bytearray(body)
            for _ in range(dice.randrange(1, 4)):
                victim = meta if dice.random() < 0.2 and meta else body
                if victim:
                    victim[dice.randrange(len(victim))] = dice.randrange(256)
            if dice.random() < 0.2:
                del body[dice.randrange(len(body) + 1):]
            answer = connection.pipeline([("LANE.PUSH", *push(lane, os.urandom(16), bytes(meta), bytes(body)))])[0]
            assert not isinstance(answer, resp.RedisError), answer
            sent += 1
    there.heal()
    shape = wait_equal(there.replicas, [USER], 420)[USER]["dovecot-b"].shape()
    assert sent == 300 and shape["INBOX"].keys() >= {"m", "n"}


def push(lane, name, meta, body):
    """Words of a LANE.PUSH outside any transaction (docs/lane-commands.md)."""
    return (1, lane, "ENTRIES", 1, 1, name, meta, body)


class CondstoreClient:
    """Keeps flags by UID with what CHANGEDSINCE tells alone."""

    def __init__(self):
        self.known, self.modseq, self.ghosts = {}, 0, 0

    def learn(self, lines):
        for words in map(parsed, lines):
            if len(words) >= 4 and words[2] == b"FETCH":
                items = dict(zip(words[3][0::2], words[3][1::2]))
                self.known[int(items[b"UID"])] = digest.flags_of(items[b"FLAGS"])

    def visit(self, replica):
        """What it knows then, and what is true. It lists the UIDs, too: of expunges it is not
        told."""
        with replica.imap(USER) as session:
            session.command("ENABLE CONDSTORE")
            told = b"".join(session.select("INBOX"))
            since = f"(FLAGS) (CHANGEDSINCE {self.modseq})" if self.modseq else "(FLAGS MODSEQ)"
            self.learn(session.command(f"UID FETCH 1:* {since}")[1])
            true = {uid: digest.flags_of(items[b"FLAGS"])
                    for uid, items in session.fetch("1:*", "FLAGS")}
        self.modseq = int(re.search(rb"\[HIGHESTMODSEQ (\d+)", told)[1])
        self.ghosts += len(self.known.keys() - true.keys())
        self.known = {uid: flags for uid, flags in self.known.items() if uid in true}
        return self.known, true


def flag_some(there, dice, count):
    for site in sites(there):
        with site:
            for _ in range(count):
                name = dice.choice([*site.imap.uids("INBOX")])
                site.flag("INBOX", name, dice.choice("+-"),
                          dice.choice(["\\Seen", "\\Flagged", "kw"]))


@pytest.mark.parametrize("formats", [("sdbox", "maildir")], ids=" ".join)
def test_condstore_client_that_hops_between_replicas(group, formats):
    """Who changes the replica at every visit has the right flags after each quiet: when all count
    alike. So has one who came before that, too, and was told less then; docs/replication-protocol.md
    says so of changes on their way."""
    there, dice = group(*formats), random.Random(11)
    patient, hasty = CondstoreClient(), CondstoreClient()
    with Site(there.replicas[0], USER) as a:
        for n in range(12):
            a.append("INBOX", f"m{n}")
    wait_same_uids(there.replicas, USER, WITHIN)
    for turn in range(8):
        there.cut()
        flag_some(there, dice, 3)
        there.heal()
        wait_equal(there.replicas, [USER], WITHIN)
        hasty.visit(dice.choice(there.replicas))
        wait_alike(there.replicas, USER, WITHIN)
        for client in (patient, hasty):
            replica = dice.choice(there.replicas)
            known, true = client.visit(replica)
            who = "hasty" if client is hasty else "patient"
            assert known == true, f"turn {turn}, {who} at {replica.name}"
    print(f"{patient.ghosts} ghosts")
