"""dovelane group: who is in the group, and what all its hosts do. A change is shown and asked about before it is signed."""
import re
import time

import ask
import authority
import desired
import distribute
import group
from ask import document, say
from host import Trouble
from journal import Gone

FORGET = 60  # seconds: a node that has just stopped is silent long enough after dead_after (15 s)


# ---- looking ----

def show(host, _journal, _options):
    _, description = desired.read_group(host)
    if not description:
        raise Trouble("this host is in no group yet: `dovelane init` makes one, `dovelane join` enters one")
    me = desired.read_local(host)["name"]
    facts = {key: description[key] for key in ("serial", "authority", "divert", "replicate")}
    if not document.chosen:
        say(group_text(facts))
    rows = []
    for m in description["members"]:
        rows.append(host_row(m, group.role(description, m["site"]), *applied(host, m, me), description["serial"]))
        if not document.chosen:
            say(host_text(rows[-1]))
    document.add(**facts, hosts=rows)
    return 0 if all(row["has_it"] for row in rows) else 1


def group_text(facts):
    return (f"serial {facts['serial']}, authority on {facts['authority']}; diverted: "
            f"{', '.join(facts['divert']) or 'nothing'}; replication: "
            f"{'on' if facts['replicate'] else 'off'}")


def host_row(m, role, serial, trouble, newest):
    row = {"name": m["name"], "address": m["address"], "gateway": bool(m["gateway"]),
           "has_it": serial == newest and not trouble}
    if m["site"]:
        row.update(site=m["site"], site_id=m["site_id"], role=role)
    if serial is not None:
        row["serial"] = serial
    if trouble:
        row["trouble"] = trouble
    return row


def host_text(row):
    site = f"site {row['site']} ({row['site_id']})" if "site" in row else ""
    role = row.get("role", "full")
    what = ", ".join(filter(None, ["gateway" if row["gateway"] else "", site, role if role != "full" else ""]))
    has = "has it" if row["has_it"] else state(row.get("serial"), row.get("trouble", ""))
    return f"  {row['name']:<16} {row['address']:<24} {what:<30} {has}"


def state(serial, trouble):
    return trouble if serial is None else f"has serial {serial}" + (f", and refuses: {trouble}" if trouble else "")


def applied(host, m, me):
    """(serial that the host put to use, why it does not go on); None for the serial where the node cannot be asked."""
    try:
        with distribute.connect(host, m, me) as connection:
            text = (connection.call("GET", distribute.APPLIED) or b"0").decode("utf-8", "replace")
        serial, _, trouble = text.partition(" ")
        return int(serial), trouble
    except (Trouble, ValueError) as e:
        return None, str(e)


# ---- changing it ----

class Newer(Exception):
    """The group was changed while the question waited."""


def change(host, journal, options, fn, notes):
    """Shows what fn(description) comes to, asks, signs it, and waits until the other hosts have it; (status, description).

    notes(old, new): lines for the admin, beside this host's own changes. Status None: nothing was done.
    """
    distribute.need_authority(host)
    distribute.look(host)
    while True:
        _, old = desired.read_group(host)
        new = fn(old)
        if new == old:
            say("nothing to do: it is so already")
        elif not ask.agreed(options, texts(host, journal, old, new) + notes(old, new)):
            return None, old
        elif options.yes:
            old = None

        def newest(description, shown=old):
            if shown is not None and description != shown:
                raise Newer
            return fn(description)
        try:
            _, description = distribute.change(host, newest)
            break
        except Newer:
            say("\nthe group was changed while the question waited; what would be done now:\n")
    with journal.lock():
        distribute.sync(host, journal)
    return wait(host, description, options.wait), description


def texts(host, journal, old, new):
    """What the change comes to on this host, and where else."""
    local = desired.read_local(host)
    new = {**new, "serial": old["serial"] + 1}
    plan = desired.plan(host, journal, "the group's description, signed\n", new, local, desired.Secrets(host), whole=False)
    if refused := plan.refused():
        raise Trouble("\n".join(refused))
    others = [m["name"] for m in new["members"] if m["name"] != local["name"]]
    return plan.texts() + ([f"the same on {', '.join(others)}: each host looks once a minute"] if others else [])


def wait(host, description, seconds):
    me, end = desired.read_local(host)["name"], time.monotonic() + seconds
    left, told = [m for m in description["members"] if m["name"] != me], set()
    if left:
        say(f"  {me} has it; waiting for {', '.join(m['name'] for m in left)} (each looks once a minute; Ctrl-C does no harm)")
    while left:
        states = {m["name"]: applied(host, m, me) for m in left}
        for name, (serial, trouble) in states.items():
            if serial is not None and serial >= description["serial"] and not trouble:
                say(f"  {name} has it")
            elif serial is not None and trouble and name not in told:
                say(f"  {name} refuses: {trouble}")
                told.add(name)
        left = [m for m in left if states[m["name"]][0] is None or states[m["name"]][0] < description["serial"] or states[m["name"]][1]]
        if left and time.monotonic() > end:
            say(f"  not yet: {', '.join(m['name'] for m in left)} (one that is away learns it when it is back; `dovelane group` shows it)")
            return 1
        if left:
            time.sleep(1)
    say("all hosts have it")
    return 0


def done(status, options):
    """The exit status: a question that was answered with no is 1."""
    return (0 if options.dry_run else 1) if status is None else status


def divert(host, journal, options):
    hops = [group.check_next_hop(hop) for hop in options.next_hop]

    def fn(description):
        if not any(m["gateway"] for m in description["members"]):
            raise Trouble("the group has no gateway: nothing can be diverted")
        for hop in hops:
            if options.what == "remove" and hop not in description["divert"]:
                raise Trouble(f"{hop} is not diverted; these are: {', '.join(description['divert']) or 'none'}")
        keep = [hop for hop in description["divert"] if hop not in hops]
        return {**description, "divert": keep + (hops if options.what == "add" else [])}
    return done(change(host, journal, options, fn, own_mailboxes)[0], options)


def own_mailboxes(old, new):
    """What is on each host itself: while a host is away, another one delivers what it had into its own mailboxes."""
    local = [hop for hop in new["divert"] if hop not in old["divert"] and re.match(r"lmtp:(unix:|(inet:)?\[?(127\.|::1|localhost))", hop)]
    if not local or new["replicate"] or len(new["members"]) < 2:
        return []
    return [f"{local[0]} is each host's own, and replication is off: while a host is away, another one delivers into its own mailboxes. "
            "Are they the same (one storage)? If not, `dovelane group replicate on` comes first: init.md, \"Both halves\""]


def replicate(host, journal, options):
    def fn(description):
        sites = [m for m in description["members"] if m["site"]]
        if options.what == "on" and len(sites) < 2:
            raise Trouble(f"the group has {len(sites)} sites: two are needed to replicate")
        return {**description, "replicate": options.what == "on"}

    def notes(_, new):
        names = ", ".join(m["name"] for m in new["members"] if m["site"])
        first = f"Dovecot is restarted on {names}: clients are cut off, and connect again"
        if options.what == "on":
            return [first, "is one site empty? Then keep clients and deliveries away from it first: init.md, \"Before replicate on\""]
        return [first, "what was not sent yet is not sent any more, until it is on again: `doveadm dovelane lag -A` on each site shows it"]
    return done(change(host, journal, options, fn, notes)[0], options)


ABOUT_ROLES = {
    "full": "what it has of a mail stays as it is: a text that was left elsewhere is fetched when it is read",
    "on-demand": "of large mails that come from now on it stores the header only; its Dovecot needs two settings: replication-guide.md, \"A site with bodies on demand\"",
    "backup": "it keeps what other sites remove. Keep clients and deliveries away from it: replication-guide.md, \"A backup site\"",
}


def give_role(host, journal, options):
    def notes(_, new):
        hosts = {m["site"]: m["name"] for m in new["members"] if m["site"]}
        lines = [ABOUT_ROLES[options.role]]
        if options.site not in hosts:
            lines.append(f"no host of the group is the site {options.site} yet (sites: {', '.join(hosts) or 'none'}): who joins with --site {options.site} has this role from the beginning")
        elif new["replicate"]:
            lines.append(f"Dovecot is restarted on {', '.join(hosts.values())}: clients are cut off, and connect again")
        return lines
    return done(change(host, journal, options, lambda d: group.with_role(d, options.site, options.role), notes)[0], options)


# ---- a host less ----

def remove(host, journal, options):
    _, before = desired.read_group(host)
    gone = group.member(before, options.name) if before else None
    status, description = change(host, journal, options, lambda d: group.remove(d, options.name), lambda old, new: what_goes(old, new, options.name))
    if status is None:
        return done(status, options)
    if gone and gone["gateway"]:
        status = max(status, forget(host, description, options.name))
    say(f"{options.name} still knows the passwords of its programs, and its certificate is good for at most {authority.DAYS} days. Where that host is not in your hands any more: init.md, \"New passwords\"")
    return status


def gateways(description):
    return [m["name"] for m in description["members"] if m["gateway"]]


def what_goes(old, new, name):
    m, left = group.member(old, name), gateways(new)
    lines = [f"{name} is in the group no more. Is it lost, and made anew? Then do not remove it: `dovelane invite --replace {name}`"]
    if m["gateway"] and len(left) >= old["copies"]:
        lines.append(f"`dovelane nodes --forget {name}`, when its relay has stopped (`dovelane init --undo` there)")
    elif m["gateway"]:
        lines.append(f"{len(left)} gateway is left ({', '.join(left)}), and copies = {old['copies']}: no mail is diverted until another one joins. "
                     f"Mail goes by Postfix as without Dovelane")
    if m["site"]:
        lines.append(f"the number {m['site_id']} stays that of the site {m['site']}: a host that joins as that site goes on with it. "
                     f"Changes that wait for it are kept no longer; it fetches what it lacks then. So no `doveadm dovelane peers --remove` is needed")
    return lines


def forget(host, description, name):
    """Its node leaves the table of the nodes that is left behind in the other nodes; the exit status."""
    left = gateways(description)
    if len(left) < description["copies"]:
        say(f"{len(left)} gateway is left, and copies = {description['copies']}: mail goes by Postfix. Until another gateway joins, `dovelane check` misses {name}.\n"
            f"To keep each mail on one node alone instead: `copies = 1` below # <<< in dovelane.conf, `dovelane group sync`, `dovelane nodes --forget {name}`.\n"
            f"To divert no more: `dovelane group divert remove {' '.join(description['divert']) or 'HOP'}`")
        return 0
    if not desired.read_local(host)["gateway"]:
        say(f"`dovelane nodes --forget {name}` on one of {', '.join(left)} ends it")
        return 1
    end = time.monotonic() + FORGET
    while True:
        ran = host.run("dovelane", "nodes", "--forget", name, check=False)
        said = (ran.stderr or ran.stdout).strip().removeprefix("dovelane: ")
        if ran.returncode == 0 or "there is no such node" in said:
            say(f"  node {name} is forgotten")
            return 0
        if time.monotonic() > end:
            say(f"`dovelane nodes --forget {name}` is still to be done; it says: {said}")
            return 1
        time.sleep(3)


def sync(host, journal, _options):
    try:
        with journal.lock():
            distribute.sync(host, journal)
    except Gone as e:  # an undo was faster than the timer
        say(str(e))
    return 0


# ---- the command line ----

def options(p):
    p.set_defaults(run=show)
    verbs = p.add_subparsers(metavar="[divert|replicate|role|remove|sync]")

    def verb(name, run, text):
        d = verbs.add_parser(name, help=text)
        d.add_argument("--wait", type=int, default=90, metavar="SECONDS", help="how long to wait for the other hosts (default 90)")
        ask.common(d)
        d.set_defaults(run=run)
        return d
    d = verb("divert", divert, "what is diverted, on all hosts")
    d.add_argument("what", choices=["add", "remove"])
    d.add_argument("next_hop", nargs="+", help="as Postfix resolves it: lmtp:unix:private/dovecot-lmtp, lmtp:[10.0.0.5]:24")
    d = verb("replicate", replicate, "whether mailboxes are replicated, on all sites")
    d.add_argument("what", choices=["on", "off"])
    d = verb("role", give_role, "what a site stores")
    d.add_argument("site", help="as `dovelane group` names it; it may join later")
    d.add_argument("role", choices=group.ROLES)
    verb("remove", remove, "take a host out").add_argument("name")
    verbs.add_parser("sync", help="look for what is new, now (dovelane-group.timer does it every minute)").set_defaults(run=sync)
