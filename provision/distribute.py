"""How all hosts come to know the group's description, and how certificates are renewed: by small keys in the nodes' Redis.

    key                      who writes                 who reads          what
    dovelane.group           any host                   all hosts          the description, signed, with its serial
    dovelane.group.applied   that node's host           `dovelane group`   the serial that this host has put to use, and why it takes no newer one
    dovelane.group.request   that node's host           the authority's    a request for a new certificate, signed with the key of the present one
    dovelane.group.answer    the authority's host       that node's host   the new certificate

Each host looks every minute (dovelane-group.timer): it takes the newest description that the authority signed, and gives it to nodes
that have an older one. So a host that was away learns when it is back, from whomever it reaches.

Two locks. The journal's (journal.lock) is held while this host is changed, and while nodes are asked. The description's (group.lock) is held for a moment,
from its reading to its writing: the listener lets a host in without waiting for the first.
"""
import concurrent.futures
import contextlib
import json
import syslog
import time

import authority
import conf
import desired
import files
import group
import redis
import relay
import resp
from host import Trouble, plain
from journal import DIRECTORY

KEY, APPLIED, REQUEST, ANSWER = "dovelane.group", "dovelane.group.applied", "dovelane.group.request", "dovelane.group.answer"
# Also when the node's memory is full: then an admin needs it most.
SET = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], ARGV[1])"
MARK = DIRECTORY + "/applied"
NEW_KEY = DIRECTORY + "/new.key"
WARN_DAYS = 14
AT_ONCE = 16  # nodes that are asked at a time: one that is slow holds nobody up


def log(level, text):
    syslog.openlog("dovelane-group", syslog.LOG_PID, syslog.LOG_MAIL)
    syslog.syslog(level, plain(text))


def put(connection, key, value):
    connection.call("EVAL", SET, 1, key, value)


# ---- changing it: only where the authority is ----

def need_authority(host):
    _, description = desired.read_group(host)
    if not description:
        raise Trouble("this host is in no group yet: `dovelane init` makes one, `dovelane join` enters one")
    if not desired.has_authority(host):
        raise Trouble(f"the group's authority is on {description['authority']}: run this there")


def sites(description):
    return [m["site"] for m in description["members"] if m["site"]]


def change(host, fn, looked=False, anew=False):
    """Signs fn(description) and puts it in its place; (sealed, description). What is unchanged keeps its serial, unless anew.

    The nodes are asked first, unless the caller has looked: where authority/ came back from a copy, they have newer ones.
    """
    need_authority(host)
    if not looked:
        look(host)
    with group.lock(host):
        sealed, old = desired.read_group(host)
        new = fn(json.loads(json.dumps(old)))
        if new == old and not anew:
            return sealed, old
        if (sites(new), new.get("site_turns")) != (sites(old), old.get("site_turns")) and host.exists(desired.REPLICAS_KEY):
            new["acl"] = desired.with_replicas(old["acl"], desired.Secrets(host).acl(new))
        new["serial"] = old["serial"] + 1
        sealed = group.seal(host.text(f"{desired.AUTHORITY}/ca.key"), new)
        files.write(host.path(group.FILE), sealed.encode())
        return sealed, new


def older(host, description, me):
    """Names of the nodes that run a lane.so which does not know all commands that today's users name. Those would be refused there, and a Redis that is
    started with them would end at once."""
    def is_older(m):
        try:
            with connect(host, m, me) as connection:
                connection.call("LANE.BEATS")
        except resp.Refused as e:
            return "unknown command" in str(e)
        except Trouble:
            return False  # away: it is told when it is back, and its own host says so if it must
        return False
    members = description["members"]
    return [m["name"] for m, is_one in zip(members, each(is_older, members)) if is_one]


# ---- looking at the nodes ----

def connect(host, member, me, seconds=3):
    """The own node as its operator, another's as the admin's command."""
    if member["name"] == me:
        return redis.operator(host, member["address"], seconds)
    name, password = host.text(desired.user_file("dovelane")).split()
    return resp.Redis(member["address"], host.path(group.CA_FILE), name, password, seconds)


def each(fn, members):
    """[fn(member)], many at a time."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(fn, members))


def gather(host, description, me):
    """[(member, sealed text or "", a request or None)] of the nodes that answer."""
    def ask_node(m):
        try:
            with connect(host, m, me) as connection:
                text = connection.call("GET", KEY) or b""
                request = connection.call("GET", REQUEST) if m["name"] != me and desired.has_authority(host) else None
                return m, text.decode("utf-8", "replace"), request
        except Exception:  # whatever a broken node answers: the others are asked all the same
            return None
    return [found for found in each(ask_node, description["members"]) if found]


def look(host):
    """Takes the newest description that the nodes have; (sealed, description, what was gathered)."""
    _, description = desired.read_group(host)
    found = gather(host, description, desired.read_local(host)["name"])
    return *adopt(host, found), found


def adopt(host, found):
    """The newest description that the authority signed: what is known here, or what a node has. Forged and old ones are refused, and said."""
    with group.lock(host):
        sealed, description = desired.read_group(host)
        newest, best, other = sealed, description, None
        for m, text, _ in found:
            if not text or text == sealed:
                continue
            try:
                theirs = group.unseal(host.text(group.CA_FILE), text)
            except Trouble as e:
                log(syslog.LOG_WARNING, f"warning: node {m['name']} has a description of the group that is refused: {e}")
                continue
            if theirs["serial"] > best["serial"]:
                newest, best, other = text, theirs, None
            elif theirs["serial"] == best["serial"] and theirs != best:
                other = m, theirs
            elif theirs["serial"] < description["serial"]:
                log(syslog.LOG_INFO, f"node {m['name']} has serial {theirs['serial']} of the group's description and gets {description['serial']}")
        if best is not description:
            log(syslog.LOG_INFO, f"the group's description has serial {best['serial']} now, was {description['serial']}: {group.names(best)}")
            files.write(host.path(group.FILE), newest.encode())
    return unite(host, best, *other) if other else (newest, best)


def unite(host, ours, m, theirs):
    """Two of one serial: none would ever replace the other. It comes from an authority that was brought back from an old copy."""
    log(syslog.LOG_WARNING, f"warning: there are two descriptions of the group with serial {ours['serial']}: node {m['name']} has one with {group.names(theirs)}, this host one with "
        f"{group.names(ours)}. That of {ours['authority']}, which has the authority, counts: see there with `dovelane group` whether a host or a next hop is missing")
    return change(host, lambda description: description, looked=True, anew=True) if desired.has_authority(host) else desired.read_group(host)


def publish(host, sealed, found, me):
    """Gives it to the nodes that have another one."""
    def give(m):
        try:
            with connect(host, m, me) as connection:
                put(connection, KEY, sealed)
        except Exception as e:  # as above
            log(syslog.LOG_WARNING, f"warning: {m['name']} did not take the group's description: {e}")
    each(give, [m for m, text, _ in found if text != sealed])


def mark_of(host, sealed):
    """What this host was made of: also an edit of dovelane.conf is looked at, within a minute."""
    return files.digest(sealed.encode()) + files.digest(host.read(conf.FILE) or b"")


def apply(host, journal, tell=lambda text: None, always=False):
    """Makes of this host what the description decides; whether something was changed. Under the journal's lock."""
    sealed, description = desired.read_group(host)
    me = group.member(description, desired.read_local(host)["name"])
    if not always and host.text(MARK) == mark_of(host, sealed) and not journal.data["pending"]:
        tell_applied(host, me, description["serial"])  # a Redis that was started anew has forgotten it
        return False
    try:
        changed = make(host, journal, sealed, description, tell, always)
    except Trouble as e:
        if me:
            tell_applied(host, me, None, str(e).splitlines()[0])
        raise
    files.write(host.path(MARK), mark_of(host, sealed).encode(), 0o600)
    tell_applied(host, me, description["serial"])
    return changed


def make(host, journal, sealed, description, tell, fresh):
    """fresh: the relay may have been told or started just before."""
    local = desired.read_local(host)
    plan = desired.plan(host, journal, sealed, description, local, desired.Secrets(host), whole=False)
    refused = plan.refused()
    if refused:
        raise Trouble("\n".join(refused))
    changed = plan.apply(tell)
    if local["gateway"]:
        relay.follow(host, group.member(description, local["name"]), tell, changed or fresh)
    return changed


def tell_applied(host, me, serial, trouble=""):
    """The serial that this host has put to use (None: as before), and behind it why it takes no newer one."""
    with contextlib.suppress(Trouble), connect(host, me, me["name"]) as own:
        if serial is None:
            serial = (own.call("GET", APPLIED) or b"0").split()[0].decode("ascii", "replace")
        put(own, APPLIED, f"{serial} {trouble}".rstrip())


def sync(host, journal):
    """What the timer does. Under the journal's lock."""
    local = desired.read_local(host)
    if not local or not desired.read_group(host)[1]:
        return
    me = local["name"]
    _, description, found = look(host)
    answer_requests(host, description, me, found)
    publish(host, desired.read_group(host)[0], found, me)
    take_answer(host, journal, me)
    apply(host, journal, lambda text: log(syslog.LOG_INFO, text))


# ---- certificates ----

def install_certificate(host, journal, key, cert):
    sealed, description = desired.read_group(host)
    local, secrets_ = desired.read_local(host), desired.Secrets(host)
    secrets_.key, secrets_.cert = key, cert
    plan = desired.plan(host, journal, sealed, description, local, secrets_, whole=False)
    if plan.refused():
        raise Trouble("\n".join(plan.refused()))
    plan.apply()
    log(syslog.LOG_INFO, f"a new certificate is in use, until {time.strftime('%Y-%m-%d', time.localtime(authority.dates(cert)[1]))}")
    files.remove(host.path(NEW_KEY))


def due(cert, now=None):
    """Whether a third of its life or less is left."""
    start, end = authority.dates(cert)
    return (now or time.time()) > end - (end - start) / 3


def new_key(host):
    if not host.exists(NEW_KEY):
        files.write(host.path(NEW_KEY), authority.new_key().encode(), 0o600)
    return host.text(NEW_KEY)


def sign_own(host, journal):
    """On the authority's host."""
    key, local = new_key(host), desired.read_local(host)
    _, description = desired.read_group(host)
    me = group.member(description, local["name"])
    cert = sign_for(host, me, authority.request(key), looked=False)
    install_certificate(host, journal, key, cert)


def sign_for(host, m, csr, looked):
    """A new certificate for a member; its key is known as that member's from now on, beside the one before (the answer may get lost)."""
    key = authority.key_id(authority.request_key(csr))

    def know(description):
        entry = group.member(description, m["name"])
        entry["keys"] = [k for k in entry["keys"] if k != key][-1:] + [key]
        return description
    cert = authority.sign(host.text(f"{desired.AUTHORITY}/ca.key"), host.text(f"{desired.AUTHORITY}/ca.crt"), csr, m["name"],
                          authority.alternatives(m["name"], group.split_address(m["address"])[0]))
    change(host, know, looked)
    return cert


def ask(host):
    """Leaves a request in the own node, signed with the present key; the authority's host looks there every minute."""
    local, secrets_ = desired.read_local(host), desired.Secrets(host)
    _, description = desired.read_group(host)
    body = json.dumps({"name": local["name"], "csr": authority.request(new_key(host)), "cert": secrets_.cert})
    request = json.dumps({"body": body, "signature": authority.sign_text(secrets_.key, body.encode())})
    with connect(host, group.member(description, local["name"]), local["name"]) as own:
        put(own, REQUEST, request)


def judge_request(ca_cert, m, text):
    """The CSR of a member's request; Trouble when it is not that member's."""
    try:
        request = files.read_json(text)
        body = files.read_json(request["body"])
        cert, csr = str(body["cert"]), str(body["csr"])
        if body["name"] != m["name"]:
            raise Trouble(f"it is in the name of {body['name']}")
        signature, signed = str(request["signature"]), request["body"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Trouble("it is no request") from None
    public = authority.public_key(cert)
    if authority.key_id(public) not in m["keys"]:
        raise Trouble("the key that signed it is not (or no more) that of this host")
    wrong = authority.belongs(cert, ca_cert)
    if wrong:
        raise Trouble(wrong)
    if not authority.signed(public, signed, signature):
        raise Trouble("its signature is wrong")
    return csr


def answer_requests(host, description, me, found):
    for asked, _, text in found:
        m = group.member(description, asked["name"])
        if not text or not m:
            continue
        # Whatever a broken node answers: the others' requests are answered all the same.
        with contextlib.suppress(Exception), connect(host, m, me) as connection:
            try:
                csr = judge_request(host.text(group.CA_FILE), m, text[:64 * 1024])
                cert = sign_for(host, m, csr, looked=True)
                put(connection, ANSWER, json.dumps({"cert": cert}))
                log(syslog.LOG_INFO, f"{m['name']} gets a new certificate")
            except Exception as e:
                log(syslog.LOG_WARNING, f"warning: a request for a certificate in the node of {m['name']} is refused: {e}")
            connection.call("DEL", REQUEST)


def take_answer(host, journal, me):
    """Whether the certificate that was asked for came."""
    if not host.exists(NEW_KEY):
        return False
    _, description = desired.read_group(host)
    try:
        with connect(host, group.member(description, me), me) as own:
            text = own.call("GET", ANSWER)
            if not text:
                return False
            cert, key = str(files.read_json(text)["cert"]), host.text(NEW_KEY)
            wrong = authority.belongs(cert, host.text(group.CA_FILE), key)
            own.call("DEL", ANSWER)
    except (Trouble, ValueError, KeyError, TypeError) as e:
        log(syslog.LOG_WARNING, f"warning: the answer with a new certificate cannot be used: {e}")
        return False
    if wrong:
        log(syslog.LOG_WARNING, f"warning: the new certificate in this host's node is refused: {wrong}")
        return False
    install_certificate(host, journal, key, cert)
    return True


def renew(host, journal, now=False):
    """What the daily timer does: None when nothing is due, else what came of it."""
    cert = desired.Secrets(host).cert
    local = desired.read_local(host)
    if not cert or not local:
        raise Trouble("this host is in no group yet: it has no certificate to renew")
    if not now and not due(cert):
        return None
    if desired.has_authority(host):
        sign_own(host, journal)
        return "renewed"
    if take_answer(host, journal, local["name"]):
        return "renewed"
    left = (authority.dates(cert)[1] - time.time()) / 86400
    if left < WARN_DAYS:
        _, description = desired.read_group(host)
        log(syslog.LOG_WARNING, f"warning: the certificate of this host's node ends in {left:.0f} days, and {description['authority']}, which has the authority, gave no new one. "
            f"The timer dovelane-group.timer must run there, and {description['authority']} must reach this node. After the end only `dovelane invite --replace {local['name']}` helps")
    ask(host)
    return "asked"
