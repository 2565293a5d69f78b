"""The group's description: who is in it, what is diverted, whether mailboxes are replicated. One text, the same on all hosts.

The authority signs it, with a serial that only grows. So it may lie in every node's Redis, and who writes there can neither
change it nor bring an older one back.

    dovelane-group 1 (2 where a site has a role: a program that knows no roles refuses it)
    <signature, base64, of all that follows>
    <JSON>
"""
import contextlib
import fcntl
import ipaddress
import json
import re

import authority
from host import Trouble, plain

FILE = "/etc/dovelane/group"
CA_FILE = "/etc/dovelane/tls/ca.crt"
HEAD, WITH_ROLES = "dovelane-group 1", "dovelane-group 2"
ROLES = "full", "on-demand", "backup"
LARGEST = 256 * 1024
PORT = 7001
MOST_MEMBERS = 64
LOCK = "/var/lib/dovelane-provision/group.lock"


def first(name):
    return {"serial": 0, "authority": name, "copies": 2, "divert": [], "replicate": False, "namespaces": ["inbox"], "next_site_id": 1, "acl": "", "members": []}


def seal(key, description):
    text = json.dumps(description, indent=1, sort_keys=True) + "\n"
    if len(text) > LARGEST - 1024:
        raise Trouble(f"the description of the group would have {len(text)} characters, and may have {LARGEST - 1024}: it has too many sites. Each site has a user at each site's node: take sites out with `dovelane group remove`")
    head = WITH_ROLES if description.get("roles") else HEAD
    return f"{head}\n{authority.sign_text(key, text.encode())}\n{text}"


def unseal(ca_cert, sealed):
    """The description, when the authority signed it."""
    if len(sealed) > LARGEST:
        raise Trouble(f"it has {len(sealed)} characters, more than {LARGEST}")
    head, _, rest = sealed.partition("\n")
    signature, _, text = rest.partition("\n")
    if head not in (HEAD, WITH_ROLES):
        raise Trouble(f"it begins with {head[:40]!r} where {HEAD!r} is expected: this program is too old for it, or it is something else")
    if not authority.signed(authority.public_key(ca_cert), text.encode(), signature):
        raise Trouble("the signature is not that of the group's authority")
    try:
        return check(json.loads(text))
    except (ValueError, RecursionError) as e:
        raise Trouble(f"it is signed, and cannot be read: {e}") from None


def check(description):
    """Itself, when all of it may be written into configuration files: who has the authority's key decides about the group, and not about root's files."""
    d, wrong = description, []
    try:
        wrong += [f"{key} = {d[key]!r}" for key, most in (("serial", 2**53), ("copies", MOST_MEMBERS), ("next_site_id", 2**31)) if type(d[key]) is not int or not 0 <= d[key] <= most]
        wrong += [f"replicate = {d['replicate']!r}"] if type(d["replicate"]) is not bool else []
        wrong += [f"a namespace {name!r}" for name in d["namespaces"] if not re.fullmatch(r"[^\x00-\x1f\x7f]{1,255}", name)]
        wrong += [f"a line of acl {line[:60]!r}" for line in d["acl"].splitlines() if not ACL_LINE.fullmatch(line)]
        wrong += [f"{len(d['members'])} members"] if len(d["members"]) > MOST_MEMBERS else []
        check_name(d["authority"])
        for hop in d["divert"]:
            check_next_hop(hop)
        for m in d["members"]:
            wrong += check_member(m)
        for site, number in d.get("gone_sites", {}).items():
            check_name(site, "site")
            wrong += [f"the number {number!r} of a site"] if type(number) is not int or not 1 <= number < 2**31 else []
        for site, turn in d.get("site_turns", {}).items():
            check_name(site, "site")
            wrong += [f"the turn {turn!r} of a site"] if type(turn) is not int or not 1 <= turn < 2**31 else []
        for site, role in d.get("roles", {}).items():
            check_name(site, "site")
            wrong += [f"the role {role!r} of a site"] if role not in ROLES else []
    except (KeyError, TypeError, AttributeError) as e:
        wrong.append(f"what cannot be read ({e!r})")
    except Trouble as e:
        wrong.append(str(e))
    if wrong:
        raise Trouble(f"it is signed, and has {plain('; '.join(wrong))}: this program does not use that. Is the authority's host of another version, or not in your hands alone?")
    return d


ACL_LINE = re.compile(r"user default off resetchannels -@all|user dovelane[a-z-]*(?::[a-z0-9.-]+@[a-z0-9.-]+)? on #[0-9a-f]{64} resetchannels(?!.*nopass)(?!.*[ (]>) [\x20-\x22\x24-\x3b\x3d-\x7e]*")


def check_member(m):
    check_name(m["name"])
    if m["site"]:
        check_name(m["site"], "site")
    good = whole_address(m["address"]) == m["address"] and type(m["gateway"]) is bool and type(m["site"]) is str and type(m["site_id"]) is int
    good = good and all(re.fullmatch(r"[0-9a-f]{64}", key) for key in m.get("keys", []))
    return [] if good else [f"a member {m!r}"]


@contextlib.contextmanager
def lock(host):
    """Held from the reading of the description to the writing of a newer one. Never while a node or an admin is asked."""
    with open(host.path(LOCK), "w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def member(description, name):
    return next((m for m in description["members"] if m["name"] == name), None)


def names(description):
    return ", ".join(m["name"] for m in description["members"]) or "nobody"


# ---- addresses and names ----

def split_address(address, port=PORT):
    """(host, port) of "10.0.0.1", "10.0.0.1:7001", "[fd00::1]:7001", "mx1.example.org:7001"; Trouble for anything else."""
    found = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d+))?|([^:\[\]]+)(?::(\d+))?|([0-9A-Fa-f:.]+)", address)
    wrong = Trouble(f"{address!r} is no address: write it like 10.0.0.1, 10.0.0.1:{port} or [fd00::1]:{port}")
    if not found:
        raise wrong
    host = found[1] or found[3] or found[5]
    port = int(found[2] or found[4] or port)
    if not 1 <= port <= 65535:
        raise wrong
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        pass
    if not re.fullmatch(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", host) or re.fullmatch(r"[0-9.]+", host):
        raise wrong
    return host, port


def join_address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def whole_address(address):
    host, port = split_address(address)
    try:
        where = ipaddress.ip_address(host)
        if where.is_unspecified or where.is_loopback or where.is_multicast:
            raise Trouble(f"{address}: other hosts do not reach this host there; say the address by which they do")
    except ValueError:
        pass
    return join_address(host, port)


def check_name(name, what="node"):
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?", name or ""):
        raise Trouble(f"{name!r} is no {what}'s name: it has 1 to 64 of the characters a-z 0-9 . - and begins and ends with a letter or digit")
    return name


# ---- members ----

def add(description, name, address, gateway, site, replace=False):
    """A new description with this host in it. replace: in the place of the one of that name, whose number stays."""
    check_name(name)
    if site:
        check_name(site, "site")
    address = whole_address(address)
    old = member(description, name)
    others = [m for m in description["members"] if m is not old]
    if old and not replace:
        raise Trouble(f"the group has a host {name} already (at {old['address']}): give this one another --name. If it takes the place of a host that is lost: "
                      f"`dovelane invite --replace {name}` on {description['authority']}")
    if replace and not old:
        raise Trouble(f"the group has no host {name} to be replaced; it has {names(description)}")
    for m in others:
        if split_address(m["address"])[0] == split_address(address)[0]:
            raise Trouble(f"{address} is the address of {m['name']}: say this host's with --address")
        if name == split_address(m["address"])[0] or split_address(address)[0] == m["name"]:
            raise Trouble(f"{name} at {address} and {m['name']} at {m['address']} would have one name in their certificates: say another --name or --address")
        if site and m.get("site") == site:
            raise Trouble(f"{site} is the site's name of {m['name']}: say another --site")
    if len(others) >= MOST_MEMBERS:
        raise Trouble(f"the group has {len(others)} hosts, and more are not used")
    before = old["site"] if old else ""
    if site and before and site != before:
        raise Trouble(f"{name} is the site {before}, whose number its users' states have: join with --site {before}; or take it out first, by `dovelane group remove {name}`")
    new = {"name": name, "address": address, "gateway": bool(gateway), "site": site or "", "site_id": 0}
    description = {**description, "members": others + [new]}
    if before and not site:
        description["gone_sites"] = {**description.get("gone_sites", {}), before: old["site_id"]}
    if site and (before or site in description.get("gone_sites", {})):
        # Who was this site before, perhaps a host that was stolen, knows its secret: this one gets another (desired.Secrets.replica).
        turns = description.get("site_turns", {})
        description["site_turns"] = {**turns, site: turns.get(site, 0) + 1}
    if site:
        # A number belongs to its site's name: users' state.db is that number's, also when the site comes back. No other site gets it.
        back = description.get("gone_sites", {}).get(site)
        if old and old.get("site_id"):
            new["site_id"] = old["site_id"]
        elif back and back not in [m["site_id"] for m in others]:
            new["site_id"] = back
        else:
            new["site_id"] = description["next_site_id"]
            description["next_site_id"] += 1
    description["members"].sort(key=lambda m: m["name"])
    return description


def remove(description, name):
    if not member(description, name):
        raise Trouble(f"the group has no host {name}; it has {names(description)}")
    if name == description["authority"]:
        raise Trouble(f"{name} has the group's authority and cannot be taken out")
    gone = member(description, name)
    new = {**description, "members": [m for m in description["members"] if m["name"] != name]}
    if gone["site"]:
        new["gone_sites"] = {**description.get("gone_sites", {}), gone["site"]: gone["site_id"]}
    return new


# ---- roles of sites ----

def role(description, site):
    return description.get("roles", {}).get(site, "full")


def with_role(description, site, new):
    """A role is its site's name's, as the number is: a host that comes later as that site, or again, has it."""
    check_name(site, "site")
    roles = {**description.get("roles", {}), site: new}
    return {**description, "roles": {name: said for name, said in roles.items() if said != "full"}}


# ---- next hops ----

IN_BRACKETS = r"\[[^\s\"\\{}\[\],]+\](?::[\w-]+)?"
HOST = rf"(?:{IN_BRACKETS}|[\w.-]+(?::[\w-]+)?)"    # LMTP looks up no MX
NEXT_HOP = re.compile(rf"(smtp|relay|lmtp):unix:[^\s\"\\{{}}]+|"
                      rf"(smtp|relay):{IN_BRACKETS}([, \t]+{IN_BRACKETS})*|"
                      rf"lmtp:(inet:)?{HOST}([, \t]+{HOST})*", re.ASCII)


def check_next_hop(hop):
    """As lib/config/config_wrong.c judges it: said here before all hosts get it."""
    if not NEXT_HOP.fullmatch(hop):
        raise Trouble(f"{hop!r} cannot be diverted: write a next hop as Postfix resolves it, like lmtp:[10.0.0.5]:24 or lmtp:unix:private/dovecot-lmtp")
    return hop
