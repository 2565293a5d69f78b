"""A group that is upgraded host by host has nodes, milters, relays and replicators of two versions: mail flows between them, each takes over what the other held, and each
reads what the other wrote. The earlier version is built from this repository's history (stack/versions.py)."""
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support import admin
from support import envelope
from support import replicator_world
from support.lane_server import LaneServer, ReplyError
from support.sinks import metrics
from support.stack import SinkShape, Stack, lanes, oracle, resp, versions
from support.stack.generator import Generator
from support.stack.ledger import Ledger
from support.stack.secure import Secure
from support.mail import queue_id, send
from support.milter import milter_log
from support.waiting import eventually
from test_takeover import QUICK

pytestmark = pytest.mark.long

SINKS = [SinkShape("a", ours=True), SinkShape("b", ["lmtp"], ours=True)]
DOMAINS = ["a.example", "b.example"]
SETTINGS = {**QUICK, "alone_wait": "0s", "retry_first": "300ms", "retry_most": "1s", "settle": "1300ms", "store_deadline": "600ms", "max_entry": "1MB"}


@pytest.fixture(scope="module")
def old():
    return versions.built(versions.GATEWAY)


class Mixed(Stack):
    """Some of its services are the earlier version's."""

    def __init__(self, build, *names, **options):
        super().__init__(**options)
        self.old, self.names = build, names

    def assemble(self):
        super().assemble()
        for name in self.names:
            versions.change(self[name], self.shape.build, self.old)


def group(build, *names):
    return Mixed(build, *names, postfix="divert", nodes=2, sinks=SINKS, settings=SETTINGS, takeover="automatic")


def log(system, name):
    return Path(system[name].log).read_text()


def ready(system):
    """All nodes are alive, and the milter knows it."""
    eventually("all nodes are alive", lambda: admin.run(system, "nodes").status == 0, 60)

    def diverts():
        text = send(system, "probe@a.example")[1]
        return "action=lane" in milter_log(system, queue_id(text))
    eventually("mail is diverted", diverts, 60)


def held(system):
    return {node: lanes.length(address) for node, address in system.nodes.items()}


def generate(system, mails):
    return Generator(smtp=system.smtp, mails=mails, sessions=4, recipients=(1, 2), domains=DOMAINS).run()


def judged(system, *ledgers):
    """All that was promised is delivered, nothing without a reason twice, and nobody was refused or told to come again."""
    ledger = Ledger()
    for one in ledgers:
        ledger.pairs.update(one.pairs)
    verdict = oracle.wait_delivered(system, ledger, seconds=120).check()
    assert set(verdict.delivered) == verdict.promised and not verdict.returned
    assert not [pair for _, pair in ledger.known() if pair.refused or pair.tempfails]


def each_sink(system, do):
    for name in "ab":
        system.sink(name, do=do)


FIRST, SECOND = ("redis-mx1", "relay-mx1", "milter"), ("redis-mx2", "relay-mx2")


@pytest.mark.parametrize("names", [FIRST, SECOND], ids=["the milter's host is old", "the other host is old"])
def test_a_group_of_both_versions(old, names):
    """Mail flows; a node of one version takes over from one of the other, which comes back and is refilled."""
    with group(old, *names) as system:
        ready(system)
        ledgers = [generate(system, 60)]
        judged(system, *ledgers)
        # The commands of both versions know the other's nodes, and turn diverting off and on.
        for build in (system.shape.build, old):
            own = "relay-mx1" if (build == old) == ("relay-mx1" in names) else "relay-mx2"   # of the same version
            said = subprocess.run([build / "ctl" / "dovelane", "-c", system[own].note["conf"], "nodes"], stdout=subprocess.PIPE, check=False, timeout=60)
            assert said.returncode == 0 and said.stdout.decode().count("alive") >= 2, said.stdout.decode()
        # mx1 is the first owner of what its milter stores: it dies with mail in hand.
        each_sink(system, "down")
        ledgers.append(generate(system, 60))
        assert all(held(system).values())
        system.kill("relay-mx1")
        system.kill("redis-mx1")
        each_sink(system, "up")
        judged(system, *ledgers)
        # Empty, it comes back, and is refilled from the other version's node, which has mail again.
        each_sink(system, "down")
        ledgers.append(generate(system, 40))
        system.start("redis-mx1")
        system.start("relay-mx1")
        ready(system)
        ledgers.append(generate(system, 40))
        eventually("both hold the same", lambda: len(set(held(system).values())) == 1 and all(held(system).values()))
        each_sink(system, "up")
        judged(system, *ledgers)
        eventually("the lanes are empty", lambda: not any(held(system).values()))


def test_host_by_host_with_mail_in_lanes_and_back(old):
    """Each host goes to the present version, and one goes back, while mail comes in and waits in lanes."""
    with group(old, *FIRST, *SECOND) as system:
        ready(system)
        each_sink(system, "down")
        ledgers = [generate(system, 30)]
        for names, to_old in ((SECOND, False), (FIRST, False), (SECOND, True)):
            for name in reversed(names):
                system.end(name)
            for name in names:
                versions.change(system[name], *((system.shape.build, old) if to_old else (old, system.shape.build)))
                system.start(name)
            ready(system)
            ledgers.append(generate(system, 20))
        each_sink(system, "up")
        judged(system, *ledgers)
        eventually("the lanes are empty", lambda: not any(held(system).values()))


def test_a_milter_hands_over_to_the_present_version(old, tmp_path):
    """The reload behind an upgrade: the program's file is another, sessions of before go on."""
    with group(old, *FIRST, *SECOND) as system:
        system.end("milter")
        program = system.directory / "dovelane-milter"
        shutil.copy(old / "milter" / "dovelane-milter", program)
        system["milter"].argv[0] = str(program)
        system.start("milter")
        ready(system)
        fresh = system.directory / "new"
        shutil.copy(system.shape.build / "milter" / "dovelane-milter", fresh)
        fresh.rename(program)
        before = log(system, "milter").count("started: version")
        system["milter"].send(signal.SIGUSR1)
        ledger = generate(system, 60)
        eventually("the new one serves", lambda: log(system, "milter").count("started: version") > before)
        judged(system, ledger, generate(system, 20))
        for path in Path("/proc").glob("[0-9]*/cmdline"):  # it is no child of the stack's
            words = path.read_bytes().split(b"\0") if path.exists() else []
            if words and words[0] == os.fsencode(program):
                os.kill(int(path.parent.name), signal.SIGTERM)



def load_users(system, build):
    """The users of all nodes are as that version's `dovelane acl` prints them."""
    conf = system.directory / "acl.conf"
    conf.write_text(f'node_user_file = "{system.directory}/secure/%p.user"\n')
    said = subprocess.run([build / "ctl" / "dovelane", "-c", conf, "acl"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=60).stdout
    for address in system.nodes.values():
        with resp.Connection(address) as connection:
            for line in said.splitlines()[1:]:
                name, rest = line.split(None, 2)[1:]
                connection.call("ACL", "SETUSER", name, "reset", *re.findall(r"\([^)]*\)|\S+", rest))


def test_the_present_programs_work_as_the_earlier_versions_users_and_when_those_change(old):
    """Users are narrowed last of all: until then the programs of this version come as those of before."""
    with Stack(postfix="divert", secure=True, nodes=2, sinks=SINKS, settings={**SETTINGS, "takeover": "automatic"}) as system:
        load_users(system, old)
        for name in ("milter", "relay-mx1", "relay-mx2"):
            system.end(name)
            system.start(name)
        ready(system)
        ledgers = [generate(system, 40)]
        found = subprocess.run([system.shape.build / "ctl" / "dovelane", "-c", system["relay-mx1"].note["conf"], "check", "nodes"], stdout=subprocess.PIPE, check=False, timeout=60, text=True).stdout
        assert re.search(r"(?i)user dovelane-milter may do more than dovelane-milter needs:(?=.* \+lane\.beat )(?=.* \+eval).* \[acl-wider\]", found), found
        queued = metrics(system, "milter")["mails_queued_total"]
        for build in (system.shape.build, old, system.shape.build):
            load_users(system, build)
            ledgers.append(generate(system, 40))
        judged(system, *ledgers)
        assert metrics(system, "milter")["mails_queued_total"] == queued, "none went to Postfix's queue for it"
        assert admin.run(system, "divert", "off").status == 0


def test_a_server_with_an_older_module_is_restarted_before_its_users_change(old, tmp_path):
    """It would refuse today's lines as a whole. `dovelane check` and `nodes` work with it."""
    present = Path(os.environ.get("DOVELANE_BUILD") or versions.REPOSITORY / "build").resolve()
    server = LaneServer(tmp_path, "--lane.node", "mx1", "--lane.settle-ms", "5000", module=old / "redis-module" / "lane.so")
    server.start()
    try:
        files = Secure(tmp_path / "secure", present)
        conf = tmp_path / "dovelane.conf"
        conf.write_text(f'copies = 1\nlog = "stderr"\nnode_user_file = "{files.directory}/%p.user"\nnode mx1 {{ redis = "unix:{server.path}" }}\n')
        rules = {line.split()[1]: re.findall(r"\([^)]*\)|\S+", line.split(None, 2)[2]) for line in files.acl().splitlines()[1:]}
        with pytest.raises(ReplyError, match="[Uu]nknown command"):
            server.client()("ACL", "SETUSER", "dovelane-milter", "reset", *rules["dovelane-milter"])
        for name, words in rules.items():
            server.client()("ACL", "SETUSER", name, "reset", *(word.replace("+lane.beats", "+lane.beat") for word in words))
        said = subprocess.run([present / "ctl" / "dovelane", "-c", conf, "check", "nodes"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60, text=True).stdout
        assert re.search(r"(?i)dovelane-milter may do more than dovelane-milter needs: \+lane\.beat \[acl-wider\]\n +mend: restart that Redis, which runs an older lane\.so; then `dovelane acl` again", said), said
        assert "acl-narrower" not in said
    finally:
        server.stop()


# ---- files ----

ENTRIES = 50


def content(server):
    """All that is in the lanes, as the server gives it."""
    c = server.client()
    try:
        # Without their ages, which grow.
        return {name: [entry[:4] + entry[5:] for entry in c.read(name)] for name in sorted(c("KEYS", "*"))}
    finally:
        c.close()


@pytest.mark.parametrize("there", [True, False], ids=["from the earlier version", "to the earlier version"])
def test_a_file_of_the_lanes_is_read_by_the_other_version(old, there, tmp_path):
    """RDB, with what an entry has beside its body: attempts, marks, its order."""
    present = Path(os.environ.get("DOVELANE_BUILD") or versions.REPOSITORY / "build").resolve()
    writer, reader = (old, present) if there else (present, old)
    server = LaneServer(tmp_path, "--lane.node", "mx1", module=writer / "redis-module" / "lane.so")
    server.start()
    c = server.client()
    for lane in ("dovelane:smtp:[h]:25|mx1>mx2", "dovelane:lmtp:[h]:24|mx2>mx1", "dovelane:smtp:[o]:25|mx1>mx2|mx1.1"):
        c.push(lane, *range(ENTRIES), meta=envelope.encode(["u@x.example"]), body=b"Subject: x\r\n\r\nhello\r\n" * 50)
        lease, taken = c.take(lane, 5)
        assert c("LANE.NACK", lane, lease, "RETRY", 100000000, "SEQS", 3, *[entry[0] for entry in taken[:3]])[0] == 3
        assert c("LANE.META", lane, 1, taken[4][1], 7, envelope.encode(["other@x.example"])) == ["OK"]
        assert c("LANE.ACK", lane, "SEQS", 1, taken[3][0])
        c("LANE.NACK", lane, lease, "KEEP", 0, "SEQS", 1, taken[4][0])  # leases are not saved
    before = content(server)
    assert [len(entries) for entries in before.values()] == [ENTRIES - 1] * 3
    assert {(entry[2], entry[3]) for entries in before.values() for entry in entries} == {(0, 0), (0, 1), (7, 0)}  # revision, attempts
    assert c("SAVE") == "OK"
    c.close()
    server.stop()
    after = LaneServer(tmp_path, "--lane.node", "mx1", module=reader / "redis-module" / "lane.so")
    after.start()
    try:
        found = content(after)
        assert sorted(found) == sorted(before)
        for lane, entries in before.items():
            assert [entry[:4] for entry in found[lane]] == [entry[:4] for entry in entries], lane
            assert found[lane] == entries, lane
    finally:
        after.stop()


# ---- replicas ----

@pytest.mark.parametrize("first", [0, 1])
def test_replicators_of_both_versions(first):
    """The site `first` is the earlier version's; it goes to the present one and back, with its own files, while changes come."""
    build = versions.built(versions.REPLICATOR)
    present = replicator_world.PROGRAM
    earlier = build / "tests" / "unit" / "replicator" / "replicator-bare"
    world = replicator_world.World()
    users, number, good = replicator_world.users(5), 0, False
    try:
        def changes():
            nonlocal number
            for replica in world.replicas:
                for user in users:
                    replica.change(user, *(f"item-{number + i}" for i in range(3)))
                    number += 3
            world.quiet(users)

        for replica in world.replicas:
            replica.program = earlier if replica.number == first + 1 else present
        world.up()
        changes()
        for program in (present, earlier):
            world[first].stop()
            world[1 - first].change(users[0], f"meanwhile-{number}")
            world[first].program = program
            world[first].start()
            changes()
        good = True
    finally:
        world.end(not good)


def push_mails(system, owners, names, of_class=None):
    """A mail for sink a of each name, in the lane of the owners and the class, on all owners."""
    hop = re.search(r'(?m)^divert = .*?"(smtp:[^"]+)"', Path(system["relay-mx1"].note["conf"]).read_text())[1]
    lane = f"dovelane:{hop}|" + ">".join(owners) + (f"|+{of_class}" if of_class else "")
    words = []
    for name in names:
        body = f"Subject: x\r\nX-Oracle-Id: {name}\r\n\r\ntext\r\n".encode()
        words += [1, envelope.entry_id(), envelope.encode(["x@a.example"], size=len(body)), body]
    for owner in reversed(owners):
        with resp.Connection(system.nodes[owner]) as connection:
            connection.call("LANE.PUSH", 1, lane, "ENTRIES", len(names), *words)


def test_an_earlier_relay_leaves_lanes_of_classes_alone_and_its_successor_delivers_them(old):
    """It neither delivers nor takes over what it does not know; nothing of that is lost, and nothing comes twice."""
    kinds = {kind: [f"{kind}-{i:08d}" for i in range(20)] for kind in ("ours", "theirs", "dying", "plain", "taken")}
    with group(old, *SECOND) as system:
        ready(system)
        deliveries = oracle.Deliveries(system)

        def came():
            return {mail for mail, _ in deliveries.read().mails}
        push_mails(system, ["mx1", "mx2"], kinds["ours"], "bulk")
        push_mails(system, ["mx2", "mx1"], kinds["theirs"], "bulk")
        push_mails(system, ["mx2", "mx1"], kinds["plain"])
        eventually("each version's relay delivers what it knows", lambda: came() >= {*kinds["ours"], *kinds["plain"]})
        assert not came() & {*kinds["theirs"]}
        eventually("the rest is on both nodes", lambda: held(system) == {"mx1": 20, "mx2": 20})
        each_sink(system, "down")
        push_mails(system, ["mx1", "mx2"], kinds["dying"], "bulk")
        push_mails(system, ["mx1", "mx2"], kinds["taken"])
        system.kill("relay-mx1")
        system.kill("redis-mx1")
        each_sink(system, "up")
        eventually("the earlier one takes over what it knows", lambda: came() >= {*kinds["taken"]}, 60)
        assert not came() & {*kinds["theirs"], *kinds["dying"]}
        eventually("it keeps the rest", lambda: lanes.length(system.nodes["mx2"]) == 40)
        system.end("relay-mx2")
        versions.change(system["relay-mx2"], old, system.shape.build)
        system.start("relay-mx2")
        everything = {name for names in kinds.values() for name in names}
        eventually("all has come", lambda: came() >= everything, 60)
        assert all(count == 1 for (mail, _), count in deliveries.mails.items() if mail in {*kinds["theirs"], *kinds["dying"]})
