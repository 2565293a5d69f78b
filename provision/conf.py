"""dovelane.conf: a part that is made from the group's description, and below it the admin's own, which stays as it is.

A setting that the own part has is left out of the made one: each may stand only once in the file.
"""
import hashlib
import re

import group
from host import Trouble

FILE = "/etc/dovelane/dovelane.conf"
BEGIN = "# >>> made by `dovelane init`: change nothing up to <<<. Settings of your own go below; one that stands there is left out here."
END = "# <<< "
OWN = "\n# Your own settings, kept as they are (dovelane.conf(5) has all; `dovelane-relay -t` tries the file):\n"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(values):
    return "{ " + ", ".join(map(quoted, values)) + " }" if values else "{ }"


def settings(description, local, own_replica=True):
    """[(name, line)] of what the group says, and of what this host is. own_replica: its replicator has a user of its own."""
    members = description["members"]
    gateway = any(m["gateway"] for m in members)
    sites = [m for m in members if m["site"]]
    lines = [("log", 'log = "syslog"'), ("node_ca_file", 'node_ca_file = "/etc/dovelane/tls/ca.crt"'), ("node_user_file", 'node_user_file = "/etc/dovelane/%p/user"')]
    if gateway:
        lines += [("copies", f"copies = {description['copies']}"), ("takeover", "takeover = automatic"), ("membership", "membership = learned"),
                  ("divert", f"divert = {listed(description['divert'])}")]
        lines += [("socket_at", 'socket_at = { "private/dovecot-lmtp=/run/dovecot/dovelane-lmtp" }')]
    if local["gateway"]:
        lines += [("milter_socket_group", 'milter_socket_group = "postfix"'), ("bounce_port", f"bounce_port = {quoted(local['bounce_port'])}"),
                  ("reinject_port", f"reinject_port = {quoted(local['reinject_port'])}")]
    lines += [("", f"node {m['name']} {{ redis = {quoted(m['address'])}  tls = yes }}") for m in members if m["gateway"]]
    if sites:
        lines += [("replicate_namespaces", f"replicate_namespaces = {listed(description['namespaces'])}")]
        lines += [("replica_user_file", 'replica_user_file = "/etc/dovelane/dovelane-replicator/%r.user"')] if own_replica else []
    for m in sites:
        node = f"  node = {quoted(m['name'])}" if m["name"] != m["site"] else ""
        role = group.role(description, m["site"])
        node += f"  role = {role}" if role != "full" else ""
        lines += [("", f"replica {m['site']} {{ id = {m['site_id']}  redis = {quoted(m['address'])}  tls = yes{node} }}")]
    return lines


def check_sum(body):
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def parts(text):
    """(made part without its marks or None, own part, edited)."""
    begin = text.find("# >>> made by `dovelane init`")
    end = re.search(r"^# <<< (\w+)\n", text, re.M)
    if begin < 0 or not end or end.start() < begin:
        return None, text, False
    body = text[text.index("\n", begin) + 1:end.start()]
    return body, text[:begin] + text[end.end():], check_sum(body) != end[1]


def render(old, description, local, own_replica=True):
    """The file's new text. old: what is there, or None."""
    made, own, edited = parts(old) if old is not None else ("", OWN, False)
    if made is None:
        raise Trouble(f"{FILE} was written by hand: `dovelane init` does not change it. Move it away and run this again; settings of your own then go to the end of the new file")
    has = set(re.findall(r"^\s*(\w+)\s*\+?=", own, re.M))
    body = "".join(line + "\n" for name, line in settings(description, local, own_replica) if name not in has)
    if edited and body != made:
        raise Trouble(f"{FILE}: the lines between >>> and <<< were changed by hand: nothing was done. Put your settings below <<<: what is there is left out above. "
                      f"Remove all from >>> to <<<, these two lines as well. Then run this again")
    if edited:
        return old
    return f"{BEGIN}\n{body}{END}{check_sum(body)}\n{own}"
