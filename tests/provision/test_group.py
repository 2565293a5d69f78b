"""How the group's description gets from host to host: signed, never older; and how certificates are renewed."""
import json

import pytest

import authority
import desired
import distribute
import group
import redis
import resp
from host import Trouble

pytestmark = pytest.mark.long


class Nodes:
    """The small keys in the nodes' Redis, by member."""

    def __init__(self, monkeypatch):
        self.keys, self.log, self.older = {}, [], set()
        monkeypatch.setattr(distribute, "connect", lambda host, m, me, seconds=3: Node(self.keys.setdefault(m["name"], {}), m["name"] in self.older))
        monkeypatch.setattr(distribute, "log", lambda level, text: self.log.append(text))


class Node:
    def __init__(self, keys, older=False):
        self.keys, self.older = keys, older

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def call(self, verb, *words):
        if verb == "LANE.BEATS" and self.older:
            raise resp.Refused("the Redis says: ERR unknown command 'LANE.BEATS', with args beginning with: ")
        if verb == "EVAL":
            self.keys[words[2]] = str(words[3]).encode()
        return self.keys.get(words[0]) if verb == "GET" else self.keys.pop(words[0], None) if verb == "DEL" else None


@pytest.fixture
def nodes(monkeypatch):
    return Nodes(monkeypatch)


def with_second(description):
    new = group.add(description, "mx2", "192.0.2.2", True, "")
    group.member(new, "mx2")["keys"] = []
    return new


def seal(host, description):
    return group.seal(host.text(f"{desired.AUTHORITY}/ca.key"), description)


def test_a_host_takes_the_newest_description_and_gives_it_to_the_others(ready, dovelane, nodes):
    host = ready
    old = host.text(group.FILE)
    new, _ = distribute.change(host, with_second)
    host.path(group.FILE).write_text(old)  # as a host that was away has it
    nodes.keys = {}
    nodes.keys.setdefault("mx1", {})[distribute.KEY] = new.encode()
    assert dovelane("group", "sync")[0] == 0
    assert host.text(group.FILE) == new and "node mx2" in host.text("/etc/dovelane/dovelane.conf")
    assert dovelane("group", "sync")[0] == 0
    assert nodes.keys["mx2"][distribute.KEY] == new.encode() and nodes.keys["mx1"][distribute.APPLIED] == b"2"


@pytest.mark.parametrize("forge", ["serial", "signature", "rollback", "rubbish", "empty", "other authority"])
def test_forged_and_old_descriptions_change_nothing(ready, dovelane, nodes, forge):
    host = ready
    first = host.text(group.FILE)
    good, description = distribute.change(host, with_second)
    dovelane("group", "sync")
    text = {"serial": good.replace('"serial": 2', '"serial": 99'), "signature": "\n".join([good.splitlines()[0], "AAAA", *good.splitlines()[2:], ""]), "rollback": first, "rubbish": "\x00\xff" * 50,
            "empty": "", "other authority": group.seal(authority.new_authority()[0], {**description, "serial": 99})}[forge]
    nodes.keys["mx2"][distribute.KEY] = text.encode()
    before = host.text("/etc/dovelane/dovelane.conf")
    nodes.log.clear()
    assert dovelane("group", "sync")[0] == 0
    assert host.text(group.FILE) == good and host.text("/etc/dovelane/dovelane.conf") == before
    assert nodes.keys["mx2"][distribute.KEY] == good.encode(), "the good one is put there again"
    if forge not in ("empty", "rollback"):
        assert any("node mx2" in line and "refused" in line for line in nodes.log), nodes.log


def test_new_passwords_reach_all_nodes(ready, dovelane, nodes):
    """Of a program that runs here, and of one that does not: the authority's host has it for others. The replicator's: as a group of before has it."""
    for path in (desired.user_file("dovelane-relay"), desired.kept_user_file("dovelane-replicator")):
        if not ready.exists(path):
            ready.path(path).write_text("dovelane-replicator of-before\n")
        program = ready.text(path).split()[0]
        ready.path(path).write_text(f"{program} new-password-of-{program}\n")
    status, said = dovelane("init", "--yes")
    assert status == 0 and "serial 2" in said, said
    for program in ("dovelane-relay", "dovelane-replicator"):
        assert redis.hashed(f"new-password-of-{program}") in ready.text(redis.USERS)
        assert redis.hashed(f"new-password-of-{program}").encode() in nodes.keys["mx1"][distribute.KEY]
    assert "nothing to do" in dovelane("init", "--yes")[1]


def test_only_the_authoritys_host_changes_the_group(ready, dovelane):
    host = ready
    host.path(f"{desired.AUTHORITY}/ca.key").unlink()
    for words in (("invite",), ("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--yes"), ("group", "remove", "mx2", "--yes")):
        status, said = dovelane(*words)
        assert status == 2 and "authority is on mx1: run this there" in said


def test_a_host_that_was_taken_out_is_told_so(ready, dovelane, nodes):
    host = ready
    distribute.change(host, with_second)
    gone = {**desired.read_group(host)[1], "members": [group.member(desired.read_group(host)[1], "mx2")], "serial": 9}
    host.path(group.FILE).write_text(seal(host, gone))
    status, said = dovelane("group", "sync")
    assert status == 2 and "mx1 is in the group no more" in said


def changed(description, path, value):
    d = json.loads(json.dumps(description))
    at = d
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return d


@pytest.mark.parametrize("path, value", [
    (["members", 0, "name"], "mx1\n}"), (["members", 0, "name"], 7), (["members", 0, "address"], "192.0.2.1:7001\" }"), (["members", 0, "address"], "127.0.0.1:7001"), (["members", 0, "site"], "a b"),
    (["members", 0, "site_id"], "1"), (["members", 0, "gateway"], "yes"), (["members", 0, "keys"], ["x"]), (["members"], None), (["authority"], "mx1\x1b[2J"), (["divert"], ["example.org"]),
    (["divert"], "lmtp:[192.0.2.5]:24"), (["namespaces"], ["in\nbox"]), (["copies"], "2"), (["copies"], True), (["serial"], 1.5), (["replicate"], "on"),
    (["acl"], "user default on nopass ~* &* +@all"), (["acl"], "user dovelane on nopass resetchannels +@all"), (["acl"], f"user dovelane on #{'0' * 64} resetchannels nopass +@all"),
    (["gone_sites"], {"a b": 1}), (["gone_sites"], {"two": "1"}), (["gone_sites"], ["two"]),
    (["acl"], f"user dovelane on #{'0' * 64} resetchannels >x +@all"), (["acl"], f"user dovelane on #{'0' * 64} resetchannels +@all >x"), (["acl"], f"user dovelane-replicator:a@b on #{'0' * 64} resetchannels ~a>b (>x +@all)"),
    (["acl"], f"user dovelane-replicator:a b@c on #{'0' * 64} resetchannels +@all"), (["acl"], "user operator on #" + "0" * 64 + " resetchannels +@all"), (["acl"], "include /etc/passwd")])
def test_what_may_not_come_into_a_configuration_file_is_named(first, path, value):
    description = desired.read_group(first)[1]
    assert group.check(description) is description
    with pytest.raises(Trouble, match="this program does not use that") as said:
        group.check(changed(description, path, value))
    assert "\x1b" not in str(said.value) and "\n" not in str(said.value)


def test_what_is_signed_is_checked_before_root_writes_it(ready, dovelane, nodes):
    good, description = ready.text(group.FILE), desired.read_group(ready)[1]
    bad = changed({**description, "serial": 9}, ["acl"], "user default on nopass ~* &* +@all")
    nodes.keys["mx1"] = {distribute.KEY: seal(ready, bad).encode()}
    assert dovelane("group", "sync")[0] == 0
    assert ready.text(group.FILE) == good
    assert any("mx1" in line and "this program does not use that" in line for line in nodes.log), nodes.log


@pytest.mark.parametrize("text", ["[" * 200000, "no JSON", "7", "null"], ids=["nested", "text", "number", "null"])
def test_what_is_signed_and_no_description_is_refused(ready, text):
    key = ready.text(f"{desired.AUTHORITY}/ca.key")
    with pytest.raises(Trouble, match="it is signed, and|this program does not use that"):
        group.unseal(ready.text(group.CA_FILE), f"{group.HEAD}\n{authority.sign_text(key, text.encode())}\n{text}")


# ---- renewal ----

class Member:
    """mx2, as its own host would have it."""

    def __init__(self, host):
        self.key = authority.new_key()
        self.ca_key, self.ca = host.text(f"{desired.AUTHORITY}/ca.key"), host.text(group.CA_FILE)
        self.cert = authority.sign(self.ca_key, self.ca, authority.request(self.key), "mx2", authority.alternatives("mx2", "192.0.2.2"))

        def know(description):
            new = with_second(description)
            group.member(new, "mx2")["keys"] = [authority.key_id(authority.public_key(self.cert))]
            return new
        distribute.change(host, know)

    def request(self, new_key, name="mx2", key=None, cert=None):
        body = json.dumps({"name": name, "csr": authority.request(new_key), "cert": cert or self.cert})
        return json.dumps({"body": body, "signature": authority.sign_text(key or self.key, body.encode())})


def test_a_member_gets_a_new_certificate_by_its_old_key(ready, dovelane, nodes):
    host = ready
    member, new = Member(host), authority.new_key()
    nodes.keys["mx2"] = {distribute.REQUEST: member.request(new).encode()}
    dovelane("group", "sync")
    cert = json.loads(nodes.keys["mx2"][distribute.ANSWER])["cert"]
    assert authority.belongs(cert, member.ca, new) is None and distribute.REQUEST not in nodes.keys["mx2"]
    assert "DNS:mx2, IP Address:192.0.2.2" in authority.openssl("x509", "-noout", "-text", given=cert.encode()).decode()


@pytest.mark.parametrize("who", ["stranger", "other name", "foreign authority", "signed by another", "replaced", "rubbish"])
def test_nobody_else_gets_one(ready, dovelane, nodes, who):
    host = ready
    member, new = Member(host), authority.new_key()
    stranger = authority.new_key()
    foreign_key, foreign = authority.new_authority()
    text = {"stranger": lambda: member.request(new, key=stranger, cert=authority.sign(member.ca_key, member.ca, authority.request(stranger), "x", "DNS:x")),
            "other name": lambda: member.request(new, name="mx1"), "foreign authority": lambda: member.request(new, cert=authority.sign(foreign_key, foreign, authority.request(member.key), "mx2", "DNS:mx2")),
            "signed by another": lambda: member.request(new, key=stranger), "replaced": lambda: member.request(new), "rubbish": lambda: "[" * 9000}[who]()
    if who == "replaced":
        def other_key(description):
            group.member(description, "mx2")["keys"] = ["0" * 64]
            return description
        distribute.change(host, other_key)
    nodes.keys["mx2"] = {distribute.REQUEST: text.encode()}
    dovelane("group", "sync")
    assert distribute.ANSWER not in nodes.keys["mx2"] and any("is refused" in line for line in nodes.log), nodes.log


def test_renewal_is_due_in_the_last_third(ready, dovelane):
    host = ready
    cert = desired.Secrets(host).cert
    start, end = authority.dates(cert)
    assert not distribute.due(cert, end - (end - start) / 3 - 60) and distribute.due(cert, end - (end - start) / 3 + 60)
    before = host.text(redis.NODE)
    assert "nothing to do" in dovelane("cert", "renew")[1] and host.text(redis.NODE) == before
    assert "renewed, and in use" in dovelane("cert", "renew", "--now")[1] and host.text(redis.NODE) != before
    secrets = desired.Secrets(host)
    assert authority.belongs(secrets.cert, secrets.ca_cert, secrets.key) is None


def test_a_renewal_that_nobody_answers_is_a_warning_when_the_end_is_near(ready, dovelane, nodes, monkeypatch):
    host = ready
    host.path(f"{desired.AUTHORITY}/ca.key").rename(host.root / "ca.key")
    assert "asked for" in dovelane("cert", "renew", "--now")[1] and not any("ends in" in line for line in nodes.log)
    monkeypatch.setattr(distribute, "WARN_DAYS", 400)
    dovelane("cert", "renew", "--now")
    assert any("gave no new one" in line for line in nodes.log)


@pytest.mark.parametrize("address, whole", [("10.0.0.1", "10.0.0.1:7001"), ("10.0.0.1:7", "10.0.0.1:7"), ("[fd00::1]:7", "[fd00::1]:7"), ("fd00::1", "[fd00::1]:7001"), ("mx1.example.org", "mx1.example.org:7001")])
def test_addresses(address, whole):
    assert group.whole_address(address) == whole


@pytest.mark.parametrize("address", ["", "10.0.0", "10.0.0.1:0", "10.0.0.1:99999", "[fd00::1", "a_b", "a b", "-a", "a\nb", "::1", "127.0.0.1", "0.0.0.0", "x" * 254])
def test_what_is_no_address(address):
    with pytest.raises(Trouble):
        group.whole_address(address)
