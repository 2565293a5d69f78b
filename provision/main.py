"""dovelane init, join, invite and cert, and the command line; members.py has `dovelane group`. The C program `dovelane` starts this for these words."""
import argparse
import calendar
import contextlib
import json
import os
import secrets
import sys
import time

import ask
import authority
import desired
import distribute
import dovecot
import enroll
import files
import group
import invitation
import members
import network
import postfix
import redis
import undo
from ask import change_host, confirmed, document, say, show_changes
from host import Host, Trouble, plain
from journal import DIRECTORY, Journal

JOINED = DIRECTORY + "/joined.json"
ENROLL_UNIT = "dovelane-enroll.service"
SETTINGS = DIRECTORY + "/enroll.json"
ABOUT = "Sets this host up: alone, or in a group of hosts. `dovelane --help` names the other commands."
ANSWERS = 10  # seconds within which the node of this host answers, when all is done

# ---- what this host is ----

def roles(host, options, default_site):
    """(gateway, site) from the options, or from what is installed; says which."""
    gateway, replicas = options.gateway, options.replicas or bool(options.site)
    can_gateway = postfix.there(host) and bool(host.program("dovelane-milter"))
    can_replicate = dovecot.has_replicator(host)
    if not gateway and not replicas:
        gateway, replicas = can_gateway, can_replicate
        why = [f"gateway: {'Postfix and dovelane-milter are here' if gateway else 'no (Postfix or dovelane-milter is not here)'}",
               f"replicas: {'Dovecot and dovelane-replicator are here' if replicas else 'no (Dovecot or dovelane-replicator is not here)'}"]
        say("what this host is to be, from what is installed: " + "; ".join(why) + ". --gateway, --replicas say otherwise")
        if not gateway and not replicas:
            raise Trouble("nothing is here to be set up: install the packages dovelane (beside Postfix) or dovelane-dovecot (beside Dovecot) first")
    if gateway and not can_gateway:
        raise Trouble("--gateway: Postfix and dovelane-milter must be installed and Postfix be configured (/etc/postfix/main.cf, master.cf)")
    if replicas and not can_replicate:
        raise Trouble("--replicas: Dovecot and dovelane-replicator (package dovelane-dovecot) must be installed")
    return gateway, (options.site or default_site) if replicas else ""


def new_local(host, options, name, address):
    gateway, site = roles(host, options, name)
    reinject, bounce = postfix.ports(host) if gateway else ("", "")
    return {"name": group.check_name(name), "address": address, "gateway": gateway, "site": site and group.check_name(site, "site"), "reinject_port": reinject, "bounce_port": bounce,
            "maxmemory": redis.check_memory(host, options.maxmemory) if options.maxmemory else redis.most_memory(host)}


def refuse_undoing(journal):
    if journal.data["undoing"]:
        raise Trouble("an `--undo` was begun here and did not end: `dovelane init --undo` finishes it")


# ---- init ----

def init(host, journal, options):
    if options.undo:
        return undo_all(host, journal, options)
    refuse_init(host, journal, options)
    local = desired.read_local(host)
    if not local:
        if not options.address:
            raise Trouble("say --address: the address by which the group's other hosts reach this one, like --address 10.0.0.1")
        address = group.whole_address(options.address)
        network.check_listen(host, address)
        local = new_local(host, options, options.name or host.name(), address)
    elif options.address and group.whole_address(options.address) != local["address"]:
        raise Trouble(f"this host is {local['name']} at {local['address']}: `dovelane init --undo` first, to begin anew with {options.address}")

    if options.maxmemory and options.maxmemory.lower() != local["maxmemory"]:
        raise Trouble(f"--maxmemory counts when the node is made. Now edit maxmemory in {redis.FILE}, and restart {redis.UNIT} when `dovelane nodes` ends with 0")

    def build():
        refuse_init(host, journal, options)
        return plan_init(host, journal, desired.read_local(host) or local)
    fresh = not host.exists(distribute.MARK)
    done = change_host(journal, options, build, lambda plan: put_to_use(host, journal, plan))
    if done is False:
        return 0 if options.dry_run else 1
    if not options.dry_run:
        redis.wait(host, local["address"], ANSWERS)
    if done and fresh:
        say("\nDiverting and replicating are off until you say otherwise (`dovelane group --help`).")
        return invite(host, journal, options)
    return 0


def refuse_init(host, journal, options):
    refuse_undoing(journal)
    _, description = desired.read_group(host)
    if not description and desired.has_authority(host) and not journal.there:
        raise Trouble(f"{desired.AUTHORITY} has the key of a group, and {group.FILE} is not there. Bring all of /etc/dovelane back from the same copy, and the "
                      f"group goes on. Or move {desired.AUTHORITY} away, to make a new group: no host of the old one is in it")
    if description and not desired.has_authority(host) and options.address:
        local = desired.read_local(host)
        raise Trouble(f"this host joined the group of {description['authority']} as {local['name'] if local else '?'}, and makes none of its own: `dovelane init --undo` first. Without --address `dovelane init` mends what is here")


def plan_init(host, journal, local):
    """From the host as it is now."""
    secrets_ = desired.Secrets(host)
    sealed, description = desired.read_group(host)
    if description and not desired.has_authority(host):  # it joined
        return desired.plan(host, journal, sealed, description, local, secrets_)
    secrets_.make_authority()
    acl = users(host, secrets_, description) if description else None
    if not description:
        sealed, description = first_description(host, local, secrets_)
    elif description["acl"] != acl:
        # Signed again when it is done: a host may join until then.
        description = {**description, "acl": acl, "serial": description["serial"] + 1}
        sealed = group.seal(secrets_.ca_key, description)
    if not secrets_.cert:
        me = group.member(description, local["name"])
        secrets_.cert = authority.sign(secrets_.ca_key, secrets_.ca_cert, authority.request(secrets_.key), me["name"],
                                       authority.alternatives(me["name"], group.split_address(me["address"])[0]))
    return desired.plan(host, journal, sealed, description, local, secrets_)


def users(host, secrets_, description):
    """The users of the nodes' Redis: as today's programs need them, once every node knows what they name."""
    acl, local = secrets_.acl(description), desired.read_local(host)
    if description["acl"] == acl or not local:
        return acl
    older = distribute.older(host, description, local["name"])
    if not older:
        return acl
    say(f"the users of the nodes' Redis stay as they are: that of {', '.join(older)} runs an older lane.so. When all hosts are upgraded, and their {redis.UNIT} was restarted, run this again")
    return description["acl"]


def first_description(host, local, secrets_):
    """The group with this host in it."""
    description = group.add(group.first(local["name"]), local["name"], local["address"], local["gateway"], local["site"])
    group.member(description, local["name"])["keys"] = [authority.key_id(authority.openssl("pkey", "-pubout", given=secrets_.key.encode()).decode())]
    if local["site"]:
        description["namespaces"] = dovecot.namespaces(host)
    description = {**description, "acl": secrets_.acl(description), "serial": 1}
    return group.seal(secrets_.ca_key, description), description


def put_to_use(host, journal, plan):
    """Under the journal's lock."""
    started = time.monotonic()
    if desired.read_group(host)[1] and desired.has_authority(host) and desired.read_local(host):  # no local: /etc/dovelane came back from a copy
        # Its users, in the newest description: not in that of the plan, beside which somebody may have joined.
        secrets_ = desired.Secrets(host)
        acl = users(host, secrets_, desired.read_group(host)[1])
        distribute.change(host, lambda description: {**description, "acl": desired.with_replicas(acl, secrets_.acl(description))})
        plan = plan_init(host, journal, desired.read_local(host))
        if plan.refused():
            raise Trouble("\n".join(plan.refused()))
    plan.apply(lambda text: say(f"  {text}"))
    distribute.apply(host, journal, always=True)
    with contextlib.suppress(Trouble):
        distribute.sync(host, journal)
    say(f"done in {time.monotonic() - started:.0f} s; `dovelane init --undo` brings all of it back as it was")


def undo_all(host, journal, options):
    if not journal.there:
        say("nothing to do: nothing was changed here, or all of it is as it was")
        return 0
    shown, done = undo_lines(host, journal, options), False
    _, description = desired.read_group(host)
    local = desired.read_local(host)
    while not done:
        show_changes(shown)
        if options.dry_run:
            say("nothing was done (--dry-run)")
            return 0
        if not confirmed(options, "Undo all that? [y/N] "):
            return 1
        with journal.lock():
            lines = undo_lines(host, journal, options)  # what was edited while the question waited is not lost
            done = lines == shown or options.yes
            if done:
                undo.stop_own(host)
                undo.run(host, journal, lambda text: say(f"  {text}"), options.lose_mail)
        shown = lines
    say("all is as it was")
    if description and local and local["name"] != description["authority"]:
        say(f"the group still counts on {local['name']}: `dovelane group remove {local['name']}` on {description['authority']} takes it out")
    return 0


def undo_lines(host, journal, options):
    """All that an undo would do; Trouble where it must not."""
    if not journal.data["undoing"]:
        undo.refuse(host, options.force, options.lose_mail)
    edited = undo.edited_files(host, journal)
    if edited and not options.force:
        raise Trouble(f"changed by hand since: {', '.join(edited)}. --force brings these back, too; save first what you want to keep")
    return undo.what(host, journal)


# ---- invite ----

def invite(host, journal, options):
    distribute.need_authority(host)
    _, description = desired.read_group(host)
    local = desired.read_local(host)
    replace = getattr(options, "replace", None)
    if replace == local["name"]:
        raise Trouble(f"{replace} is this host, which has the authority: it cannot take its own place")
    if replace and not group.member(description, replace):
        raise Trouble(f"the group has no host {replace} to be replaced; it has {group.names(description)}")
    address, _ = group.split_address(local["address"])
    settings = json.loads(host.text(SETTINGS) or "{}")
    minutes = getattr(options, "minutes", None)
    minutes = invitation.LIFE // 60 if minutes is None else minutes
    if not 1 <= minutes <= 1440:
        raise Trouble(f"--minutes {minutes}: 1 to 1440 are allowed; a token is better used soon")
    port = port_of_invitation(host, settings, getattr(options, "port", None), address)
    files.write(host.path(SETTINGS), json.dumps({"address": address, "port": port}).encode(), 0o600)
    secret = invitation.Invitations(host).new(replace, minutes * 60)
    host.systemctl("restart" if settings.get("port", port) != port else "start", ENROLL_UNIT)
    enroll.wait_open(address, port)
    token = invitation.make_token(authority.fingerprint(host.text(group.CA_FILE)), secret)
    document.add(address=group.join_address(address, port), token=token, good_seconds=minutes * 60,
                 **({"replaces": replace} if replace else {}))
    if document.chosen:
        return 0
    what = f"on the host that takes {replace}'s place" if replace else "on the next host"
    say(f"\nFor {minutes} minute{'' if minutes == 1 else 's'}, and once, {what} (port {port} must be open for it, and {redis_port(local)} between all hosts):\n")
    say(f"    dovelane join {group.join_address(address, port)} --token {token}{f' --name {replace}' if replace else ''}\n")
    return 0


def port_of_invitation(host, settings, asked, address):
    """Where the listener goes. Before a token is printed that nobody could use."""
    open_at = settings.get("port") if invitation.Invitations(host).any_open() else None
    port = asked if asked is not None else open_at or enroll.PORT
    if not 1 <= port <= 65535:
        raise Trouble(f"--port {port}: 1 to 65535 are allowed")
    if open_at and port != open_at:
        say(f"the invitations that are open were for port {open_at}: in their lines write {port} now")
    if port != open_at or not host.running(ENROLL_UNIT):
        network.check_port(host, address, port, "say another --port")
    return port


def redis_port(local):
    return group.split_address(local["address"])[1]


def listen(host, _journal, _options):
    """The unit dovelane-enroll runs this; it ends when no invitation is open."""
    settings = json.loads(host.text(SETTINGS) or "{}")
    enroller = enroll.Enroller(host, lambda fn: distribute.change(host, fn))
    enroll.serve(enroller, settings.get("address"), settings.get("port", enroll.PORT), tell=say)
    if enroller.joined:
        # In a unit of its own: this one may not change the host.
        host.systemctl("start", "--no-block", "dovelane-group.service")
    return 0


# ---- join ----

def join(host, journal, options):
    refuse_undoing(journal)
    door = enroll.Door(options.address_of_group, read_token(options))
    kept = json.loads(host.text(JOINED) or "{}")
    if kept.get("token") != files.digest(door.secret):
        kept = None
    if kept:
        with journal.lock():
            settle(host, journal, kept)
        return 0
    if not enter(host, journal, options, door):
        return 0 if options.dry_run else 1
    return 0


def read_token(options):
    if options.token != "-":
        return options.token
    return sys.stdin.readline().strip()


def enter(host, journal, options, door):
    """Whether this host was let in. What the group answers is kept, so that a run that is killed after that is finished by the same command."""
    refuse_second(host)
    door.meet()
    # Before the token is used, and the group knows this host by that address.
    address = group.whole_address(options.address or group.join_address(door.local_address, group.PORT))
    network.check_listen(host, address)
    description, replace = door.look()
    name = options.name or replace or host.name()
    local = new_local(host, options, name, address)
    if replace and not options.site and local["site"]:
        local["site"] = group.member(description, replace)["site"] or local["site"]
    preview = group.add(description, name, address, local["gateway"], local["site"], bool(replace))
    say(f"group of {group.names(description)}; its authority, on {description['authority']}, is the one of the token")
    key = desired.Secrets(host).key

    def build():
        refuse_undoing(journal)
        refuse_second(host)
        secrets_ = desired.Secrets(host)
        secrets_.ca_cert = door.ca_cert
        secrets_.passwords = {program: secrets.token_hex(24) for program in desired.GROUPS if program != desired.REPLICATOR}
        secrets_.own_replica = secrets.token_hex(32)
        return desired.plan(host, journal, "the group's description, signed, with this host in it\n", preview, local, secrets_)

    def let_in(_plan):
        said = door.join(key, name=name, address=address, site=local["site"], gateway=local["gateway"])
        kept = {"token": files.digest(door.secret), "key": key, "ca": door.ca_cert, "local": local, **said}
        files.write(host.path(JOINED), json.dumps(kept).encode(), 0o600)
        settle(host, journal, kept)
    return change_host(journal, options, build, let_in)


def refuse_second(host):
    if desired.read_group(host)[1]:
        raise Trouble("this host is in a group already: `dovelane init --undo` takes it out of that; `dovelane group` shows it")
    if desired.has_authority(host):
        raise Trouble(f"this host has an authority of its own ({desired.AUTHORITY}), and a group has one such host. `dovelane init --undo` first; or move that directory away, if no host needs it")


def settle(host, journal, kept):
    """Under the journal's lock."""
    secrets_ = desired.Secrets(host)
    secrets_.ca_cert, secrets_.key, secrets_.cert, secrets_.passwords = kept["ca"], kept["key"], kept["cert"], dict(kept["passwords"])
    secrets_.own_replica = secrets_.passwords.pop(desired.REPLICATOR, None)
    description = group.unseal(kept["ca"], kept["group"])
    say("the group has let this host in")
    started = time.monotonic()
    plan = desired.plan(host, journal, kept["group"], description, kept["local"], secrets_)
    if refused := plan.refused():
        raise Trouble("\n".join(refused))
    plan.apply(lambda text: say(f"  {text}"))
    distribute.apply(host, journal, always=True)
    redis.wait(host, kept["local"]["address"], ANSWERS)
    if kept["local"]["gateway"]:
        # One that was forgotten (`dovelane group remove`) takes nothing until this is said; of others it says that there is nothing to do.
        host.run("dovelane", "nodes", "--join", kept["local"]["name"], check=False)
    files.remove(host.path(JOINED))
    with contextlib.suppress(Trouble):
        distribute.sync(host, journal)
    say(f"done in {time.monotonic() - started:.0f} s: this host is {kept['local']['name']} of {group.names(description)}. `dovelane init --undo` brings it back as it was; the group must then be told, "
        f"too: `dovelane group remove {kept['local']['name']}` on {description['authority']}")


# ---- cert ----

def certificate_row(of, cert):
    ends = authority.dates(cert)[1]
    shown = authority.openssl("x509", "-noout", "-subject", "-nameopt", "multiline",
                              given=cert.encode()).decode()
    return {"of": of, "name": shown.split("=")[-1].strip(),
            "ends_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends)),
            "left_seconds": int(ends - time.time())}


def certificate_text(row):
    ends = calendar.timegm(time.strptime(row["ends_at"], "%Y-%m-%dT%H:%M:%SZ"))
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends))
    left = row["left_seconds"] / 86400
    return f"{row['of']:<10} {row['name']:<28} until {until} ({left:.0f} days)"


def show_certificates(host, _journal, _options):
    rows, status = [], 0
    for what, cert in (("authority", host.text(group.CA_FILE)),
                       ("this node", desired.Secrets(host).cert)):
        if not cert:
            raise Trouble("this host has no certificate yet: `dovelane init` or `dovelane join` "
                          "makes it")
        rows.append(certificate_row(what, cert))
        if not document.chosen:
            say(certificate_text(rows[-1]))
        status = max(status, 2 if rows[-1]["left_seconds"] < distribute.WARN_DAYS * 86400 else 0)
    document.add(certificates=rows)
    return status


def renew(host, journal, options):
    with journal.lock():
        came = distribute.renew(host, journal, options.now)
    if came == "asked" and options.wait:
        say("asked; the authority's host looks every minute")
        end = time.monotonic() + options.wait
        while time.monotonic() < end and came == "asked":
            time.sleep(2)
            with journal.lock():
                if distribute.take_answer(host, journal, desired.read_local(host)["name"]) or not host.exists(distribute.NEW_KEY):
                    came = "renewed"
    say({None: "nothing to do: more than a third of its life is left (--now renews all the same)", "renewed": "renewed, and in use",
         "asked": "asked for; it is put to use as soon as the authority's host has answered"}[came])
    return 0 if came != "asked" or not options.wait else 1


# ---- the command line ----

def host_options(parser, address_help):
    parser.add_argument("--address", metavar="A[:PORT]", help=address_help)
    parser.add_argument("--name", help="this host's name in the group (default: the host's, up to the first dot)")
    parser.add_argument("--gateway", action="store_true", help="beside Postfix: milter, relay and node")
    parser.add_argument("--replicas", action="store_true", help="beside Dovecot: mailboxes can be replicated")
    parser.add_argument("--site", metavar="NAME", help="the replica's name (default: the host's; implies --replicas)")
    parser.add_argument("--maxmemory", metavar="SIZE", help="of the node's Redis, like 4gb (default: a quarter of the memory)")
    ask.common(parser)


class Parser(argparse.ArgumentParser):
    """With -j what is wrong is said as JSON, too."""

    def error(self, message):
        if not document.chosen:
            super().error(message)
        document.complain(f"{message}; see `{self.prog} --help`")
        sys.exit(2)


def parser():
    top = Parser(prog="dovelane", description=ABOUT)
    top.add_argument("-j", "--json", action="store_true", help="one JSON document (docs/json.md)")
    verbs = top.add_subparsers(required=True, metavar="init|join|invite|cert|group")
    p = verbs.add_parser("init", help="make a group, of this host alone; again: what is not as it should be is mended")
    host_options(p, "the address by which other hosts reach this one")
    p.add_argument("--undo", action="store_true", help="bring all back as it was before init or join")
    p.add_argument("--force", action="store_true", help="with --undo: also where files were changed by hand, or other hosts need this one's authority")
    p.add_argument("--lose-mail", action="store_true", help="with --undo: also while entries wait in this node's lanes, which are lost")
    p.set_defaults(run=init)
    p = verbs.add_parser("join", help="enter a group by an invitation")
    p.add_argument("address_of_group", metavar="A:PORT", help="as `dovelane invite` printed it")
    p.add_argument("--token", required=True, help="the same; - reads it from standard input")
    host_options(p, "the address by which other hosts reach this one (default: from where it reaches A)")
    p.set_defaults(run=join)
    p = verbs.add_parser("invite", help="let one host in")
    p.add_argument("--replace", metavar="NAME", help="a host that takes the place of one that is lost: same name, same number, new keys")
    p.add_argument("--minutes", type=int, help=f"how long the token is good (default {invitation.LIFE // 60})")
    p.add_argument("--port", type=int, help=f"where the newcomer comes to (default {enroll.PORT})")
    p.set_defaults(run=invite)
    p = verbs.add_parser("cert", help="the certificates, and until when they are good")
    p.set_defaults(run=show_certificates)
    more = p.add_subparsers(metavar="[renew]").add_parser("renew", help="get a new one when a third of its life or less is left")
    more.add_argument("--now", action="store_true", help="also before that")
    more.add_argument("--wait", type=int, default=0, metavar="SECONDS", help="wait for the answer of the authority's host")
    more.set_defaults(run=renew)
    members.options(verbs.add_parser("group", help="who is in the group, what is diverted, whether mailboxes are replicated"))
    p = verbs.add_parser("enroll")
    p.set_defaults(run=listen)
    return top


def with_its_token(words):
    """One may begin with a dash, as an option does."""
    for i, word in enumerate(words[:-1]):
        if word == "--token":
            return [*words[:i], f"--token={words[i + 1]}", *words[i + 2:]]
    return words


def start(words=None, host=None):
    words = list(sys.argv[1:] if words is None else words)
    document.begin(words[:1] in (["--json"], ["-j"]))
    options = parser().parse_args(with_its_token(words))
    try:
        host = host or Host()
        if os.geteuid() and str(host.root) == "/":
            raise Trouble("this is for root")
        status = options.run(host, Journal(host), options)
        if document.chosen:
            document.print(words[1])
        sys.exit(status)
    except (Trouble, files.Unsafe) as e:
        if document.chosen:
            document.complain(str(e))
            sys.exit(2)
        # Of a timer: as an error, which the unit's LogLevelMax= lets through (sd-daemon(3)).
        level = "<3>" if os.environ.get("JOURNAL_STREAM") and not sys.stderr.isatty() else ""
        print(f"{level}dovelane: " + "\n".join(map(plain, str(e).split("\n"))), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read it has seen enough; what ran to its end is done, the same command does the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except (KeyboardInterrupt, EOFError):
        said = "interrupted; the same command goes on where this one ended"
        if document.chosen:
            document.complain(said)
        else:
            print(f"\ndovelane: {said}", file=sys.stderr)
        sys.exit(2)
