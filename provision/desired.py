"""What a host of the group is to be: from the group's description, this host's choices and its secrets to the list of changes."""
import hashlib
import hmac
import json
import re
import secrets

import authority
import conf
import dovecot
import group
import postfix
import redis
from host import Trouble
from journal import DIRECTORY
from plan import Directory, File, Missing, Plan, Reaction, Unit

LOCAL = DIRECTORY + "/host.json"
AUTHORITY = "/etc/dovelane/authority"
OF_GATEWAY = {"dovelane-milter": "dovelane", "dovelane-proxy": "dovelane-proxy", "dovelane-relay": "dovelane"}
REPLICATOR = "dovelane-replicator"
OF_REPLICAS = {REPLICATOR: REPLICATOR}
OF_ALL = {"dovelane": "root"}
GROUPS = {**OF_ALL, **OF_GATEWAY, **OF_REPLICAS}
SECRET, CERTIFICATE = "its content is secret", "the authority's certificate"
TIMERS = ("dovelane-group.timer", "dovelane-cert.timer")


def user_file(program):
    return f"/etc/dovelane/{program}/user"


def kept_user_file(program):
    """On the authority's host: of a program that does not run here, for hosts on which it does."""
    return f"{AUTHORITY}/{program}.user"


REPLICAS_KEY = f"{AUTHORITY}/replicas.key"  # of which the secret of each site is made


def replica_file(site):
    """With the secret of a site's replicator, on that site's host."""
    return f"/etc/dovelane/{REPLICATOR}/{site}.user"


def programs(local):
    """Whose passwords this host has."""
    return list(OF_ALL) + (list(OF_GATEWAY) if local["gateway"] else []) + (list(OF_REPLICAS) if local["site"] else [])


def read_local(host):
    text = host.text(LOCAL)
    return json.loads(text) if text else None


def has_authority(host):
    return host.exists(f"{AUTHORITY}/ca.key")


def read_group(host):
    """(sealed, description) of what this host knows; (None, None) where it is in no group."""
    sealed = host.text(group.FILE)
    if sealed is None:
        return None, None
    return sealed, group.unseal(host.text(group.CA_FILE), sealed)


class Secrets:
    """Keys and passwords: those that are there, else new ones."""

    def __init__(self, host):
        self.host = host
        self.ca_key, self.ca_cert = host.text(f"{AUTHORITY}/ca.key"), host.text(group.CA_FILE)
        self.passwords = {program: line.split()[1] for program in GROUPS if (line := host.text(user_file(program)) or host.text(kept_user_file(program)))}
        local = read_local(host)
        own = host.text(replica_file(local["site"])) if local and local["site"] else None
        self.own_replica = own.split()[1] if own else None
        self.replicas_key = (host.text(REPLICAS_KEY) or "").strip()
        operator = host.text(redis.OPERATOR_FILE)
        self.operator = operator.split()[1] if operator else secrets.token_hex(24)
        pem = host.text(redis.NODE) or ""
        found = re.findall(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n", pem, re.S)
        self.key = next((part for part in found if "PRIVATE KEY" in part), None) or host.text(DIRECTORY + "/new.key") or authority.new_key()
        self.cert = next((part for part in found if "BEGIN CERTIFICATE" in part), None)

    def make_authority(self):
        if not self.ca_key:
            self.ca_key, self.ca_cert = authority.new_authority()
        elif not self.ca_cert:
            self.ca_cert = self.host.text(f"{AUTHORITY}/ca.crt")
            if not self.ca_cert:
                raise Trouble(f"{AUTHORITY}/ca.key is there, and no ca.crt beside it: bring that back from a backup, or remove {AUTHORITY} if no host was ever let in")
        for program in GROUPS:
            if program != REPLICATOR:  # one for all sites: groups of before have it, until each site has its own
                self.passwords.setdefault(program, secrets.token_hex(24))
        self.replicas_key = self.replicas_key or secrets.token_hex(32)

    def replica(self, site, description):
        """The secret of a site's replicator: the authority's host knows those of all, another host its own. Each host that is made this site gets another."""
        if not self.replicas_key:
            return self.own_replica
        turn = (description or {}).get("site_turns", {}).get(site, 0)
        return hmac.new(self.replicas_key.encode(), (f"{site} {turn}" if turn else site).encode(), hashlib.sha256).hexdigest()

    def acl(self, description):
        """The users of the nodes' Redis, as the program that knows their rights prints them. They are those of all nodes: redis.users() leaves out those of other sites' nodes."""
        sites = [m["site"] for m in description["members"] if m["site"]] if self.replicas_key else []
        with authority.scratch() as d:
            names = {user_file(program): program for program in self.passwords} | {replica_file(site): f"{REPLICATOR}:{site}" for site in sites}
            for path, name in names.items():
                file = d / path.removeprefix("/etc/dovelane/")
                file.parent.mkdir(mode=0o700, exist_ok=True)
                file.write_text(f"{name} in-place-of-{name}\n")
                file.chmod(0o600)
            text = f'node_user_file = "{d}/%p/user"\n'
            if sites:
                text += f'replicate_namespaces = {{ inbox }}\nreplica_user_file = "{d}/{REPLICATOR}/%r.user"\n'
            (d / "conf").write_text(text + "".join(f'replica {site} {{ id = {n}  redis = "127.0.0.1:{n}" }}\n' for n, site in enumerate(sites, 1)))
            lines = self.host.run("dovelane", "-c", d / "conf", "acl").stdout
        # It prints hashes. So no password lies in a file that a kill would leave there.
        for program, password in self.passwords.items():
            lines = lines.replace(redis.hashed(f"in-place-of-{program}"), redis.hashed(password))
        for site in sites:
            for node in sites:
                name = f"{REPLICATOR}:{site}@{node}"
                lines = lines.replace(redis.hashed(at_node(f"in-place-of-{REPLICATOR}:{site}", name)), redis.hashed(at_node(self.replica(site, description), name)))
        return lines


def at_node(secret, name):
    """The password with which a replicator comes to a node as NAME@NODE (dovelane.conf(5), replica_user_file)."""
    return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()


def with_replicas(acl, fresh):
    """The older users, and fresh ones of replicas."""
    lines = [line for line in acl.splitlines() if not redis.AT_NODE.match(line)] + [line for line in fresh.splitlines() if redis.AT_NODE.match(line)]
    return "".join(line + "\n" for line in lines)


class Described(File):
    """The group's description, never in the place of a newer one. A join may come at any moment, and the listener does not wait for this host's changes."""

    def __init__(self, sealed, description):
        super().__init__(group.FILE, sealed, edits="merged", note=f"the group's description, serial {description['serial']}: {group.names(description)}")
        self.serial = description["serial"]

    def difference(self, host, journal, changed):
        known = read_group(host)[1]
        return None if known and known["serial"] >= self.serial else super().difference(host, journal, changed)

    def apply(self, host, journal):
        with group.lock(host):
            if self.difference(host, journal, set()):
                super().apply(host, journal)


def group_of(host, program):
    """Who may read a program's password. A replicator whose Dovecot was set up before it had a user of its own runs as it did."""
    older = program == REPLICATOR and re.search(r"^\s*user = dovelane$", host.text(dovecot.REPLICATION) or "", re.M)
    return "dovelane" if older else GROUPS[program]


def secret_steps(host, local, secrets_, description):
    """Who may read what: each program its own password, root all, Redis its key."""
    steps = [Directory("/etc/dovelane"), Directory("/etc/dovelane/tls"), File(group.CA_FILE, secrets_.ca_cert, note=CERTIFICATE)]
    for program in programs(local):
        private, reader = GROUPS[program] == "root", group_of(host, program)
        mode = 0o600 if private else 0o640
        steps += [Directory(f"/etc/dovelane/{program}", 0o700 if private else 0o750, "root", reader)]
        if program in secrets_.passwords:
            steps += [File(user_file(program), f"{program} {secrets_.passwords[program]}\n", mode, "root", reader, note=SECRET)]
        if program == REPLICATOR and (secret := secrets_.replica(local["site"], description)):
            steps += [File(replica_file(local["site"]), f"{program}:{local['site']} {secret}\n", mode, "root", reader, note=SECRET)]
    return steps + [File(redis.OPERATOR_FILE, f"operator {secrets_.operator}\n", 0o600, note=SECRET)]


def authority_steps(local, secrets_):
    """The key last: where it is, its certificate is."""
    others = [program for program in GROUPS if program not in programs(local) and program in secrets_.passwords]
    replicas = [File(REPLICAS_KEY, secrets_.replicas_key + "\n", 0o600, note=SECRET)] if secrets_.replicas_key else []
    return [Directory("/etc/dovelane"), Directory(AUTHORITY, 0o700), File(f"{AUTHORITY}/ca.crt", secrets_.ca_cert, note=CERTIFICATE),
            *(File(kept_user_file(program), f"{program} {secrets_.passwords[program]}\n", 0o600, note=SECRET) for program in others), *replicas,
            File(f"{AUTHORITY}/ca.key", secrets_.ca_key, 0o600, note=SECRET)]


OF_REDIS = ("redis", "redis")


def key_steps(secrets_):
    """The node's key comes before the description that names it."""
    pem = (secrets_.cert or "a certificate of the group's authority comes here\n") + secrets_.key
    return [Directory(redis.DIRECTORY, 0o750, *OF_REDIS), File(redis.CA, secrets_.ca_cert, 0o640, *OF_REDIS, note=CERTIFICATE), File(redis.NODE, pem, 0o640, *OF_REDIS, note=SECRET)]


def redis_steps(host, description, local, secrets_, whole):
    me = group.member(description, local["name"])
    address, (where, port) = me["address"], group.split_address(me["address"])
    own = OF_REDIS
    server = [File(redis.FILE, redis.config(host, local, where, port), 0o640, *own, edits="kept"), Directory("/var/lib/redis/dovelane", 0o750, *own)] if whole else []
    return [File(redis.USERS, redis.users(host.text(redis.USERS), description["acl"], secrets_.operator, local["site"]), 0o640, *own, note=SECRET, edits="merged"), *server,
            Unit(redis.UNIT, then=lambda: redis.wait(host, address)),
            Reaction("restart the node's Redis with its new configuration", [redis.FILE], lambda: (host.systemctl("restart", redis.UNIT), redis.wait(host, address)), redis.UNIT),
            Reaction("the node's Redis reads its users (ACL LOAD)", [redis.USERS], lambda: redis.load_users(host, address), redis.UNIT),
            Reaction("the node's Redis takes its new certificate (CONFIG SET)", [redis.NODE], lambda: redis.load_certificate(host, address), redis.UNIT)]


def sections(text, kind):
    return dict(re.findall(rf"^{kind} (\S+) (\{{.*)$", text or "", re.M))


def gateway_steps(journal, host, old, new):
    """What follows from the group. old, new: texts of dovelane.conf."""
    before, after = sections(old, "node"), sections(new, "node")
    moved = any(before[name] != after[name] for name in before if name in after)
    relay, milter = "dovelane-relay.service", "dovelane-milter.service"
    moved = moved or f"restart {relay}" in journal.data["pending"]  # by a run that was cut short
    return [Reaction(f"{'restart' if moved else 'reload'} {relay}", [conf.FILE], lambda: host.systemctl("restart" if moved else "reload", relay), relay), Unit(relay),
            Reaction(f"reload {milter}", [conf.FILE], lambda: host.systemctl("reload", milter), milter), Unit(milter)]


def neighbour_steps(host, local):
    """Dovecot's and Postfix's part: decided by what this host is, and not by the group."""
    steps = []
    if dovecot.has_lmtp(host):
        steps += [File(dovecot.LMTP, dovecot.lmtp_file(host)), Reaction("reload Dovecot: the relay's socket", [dovecot.LMTP], lambda: dovecot.reload(host), "dovecot.service")]
    texts = postfix.edited(host, local)
    steps += [File(f"{postfix.DIRECTORY}/{name}", texts[name], edits="merged") for name in postfix.FILES]
    return steps + [Reaction("check and reload Postfix", [f"{postfix.DIRECTORY}/{name}" for name in postfix.FILES], lambda: postfix.reload(host))]


def replica_steps(host, description, old, new, local, whole):
    watched = [dovecot.REPLICATION]
    if not description["replicate"]:
        return [Missing(dovecot.REPLICATION)] + [Reaction("restart Dovecot: without replication", watched, lambda: dovecot.restart(host), "dovecot.service")]
    if sections(old, "replica") != sections(new, "replica"):
        watched.append(conf.FILE)
    there = host.exists(dovecot.REPLICATION) and not whole
    return ([] if there else [File(dovecot.REPLICATION, dovecot.replication_file(host, local["site"]), edits="kept")]) + [
            Reaction("restart Dovecot: replication", watched, lambda: dovecot.restart(host), "dovecot.service")]


def wrong_settings(host, text):
    """What the programs themselves say of the file that would be written."""
    if not text:
        return []
    with authority.scratch() as d:
        (d / "dovelane.conf").write_text(text)
        said = host.run("dovelane", "-c", d / "dovelane.conf", "check", "config", check=False).stderr.strip()
    return [f"{conf.FILE} would not be good: {said.replace(str(d), '/etc/dovelane')}"] if said else []


def plan(host, journal, sealed, description, local, secrets_, whole=True):
    """All that this host is to be. A host that is what it should be has nothing to do.

    whole=False: only what follows from the group, as the timers do it. An admin may have stopped a unit, or taken the milter out of Postfix, and that
    stays; and what an upgrade brought waits for an admin's `dovelane init`.
    """
    if not group.member(description, local["name"]):
        raise Trouble(f"{local['name']} is in the group no more: `dovelane init --undo` takes it apart")
    steps, conflicts, old = [File(LOCAL, json.dumps(local, indent=1, sort_keys=True) + "\n", 0o600, edits="merged")], [], host.text(conf.FILE)
    if secrets_.ca_key:
        steps += authority_steps(local, secrets_)
    steps += secret_steps(host, local, secrets_, description) + key_steps(secrets_)
    steps += [Described(sealed, description)]
    try:
        new = conf.render(old, description, local, not local["site"] or bool(secrets_.replica(local["site"], description)))
    except Trouble as e:
        conflicts.append(str(e))
        new = old
    conflicts += wrong_settings(host, new)
    steps += [File(conf.FILE, new or "", edits="merged")]
    steps += redis_steps(host, description, local, secrets_, whole)
    if local["gateway"]:
        steps += [File("/etc/default/dovelane", f"DOVELANE_NODE={local['name']}\n")] if whole else []
        steps += gateway_steps(journal, host, old, new) + (neighbour_steps(host, local) if whole else [])
    if local["site"] and dovecot.has_replicator(host):  # a removed package leaves Dovecot without it
        steps += replica_steps(host, description, old, new, local, whole)
    steps += [Unit(timer) for timer in TIMERS]
    return Plan(host, journal, [step for step in steps if whole or not isinstance(step, Unit)], conflicts, whole)
