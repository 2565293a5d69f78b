"""Dovecot: a socket of LMTP for the relay, and the replication of mailboxes where the group has it on."""
import re

import templates
from host import Trouble

DIRECTORY = "/etc/dovecot/conf.d"
LMTP = f"{DIRECTORY}/90-dovelane.conf"
REPLICATION = f"{DIRECTORY}/11-dovelane.conf"


def there(host):
    return bool(host.program("doveconf")) and host.path(DIRECTORY).is_dir()


def has_lmtp(host):
    return there(host) and host.exists("/usr/lib/dovecot/lmtp")


def has_replicator(host):
    return there(host) and host.exists("/usr/lib/dovecot/dovelane-replicator")


def version(host):
    found = re.match(r"(\d+)\.(\d+)", host.run("dovecot", "--version").stdout)
    if not found:
        raise Trouble("`dovecot --version` says no version")
    return int(found[1]), int(found[2])


def lmtp_file(host):
    text = templates.read("dovecot-lmtp.conf")
    if version(host) >= (2, 4):
        limit = host.run("doveconf", "-h", "lmtp_user_concurrency_limit", check=False).stdout.strip()
        if limit == "10":  # the default; one that an admin chose stays
            text += "\n# The relay's destination_concurrency: more at once for one user were answered 451.\nlmtp_user_concurrency_limit = 20\n"
        elif "lmtp_user_concurrency_limit" in (host.text(LMTP) or ""):
            return host.text(LMTP)
    return text


def namespaces(host):
    """Names of the sections that hold the users' own mail."""
    said = host.run("doveconf", "-n", check=False).stdout
    return [name for name, body in re.findall(r"^namespace (\S+) \{\n(.*?)^\}", said, re.M | re.S) if re.search(r"^\s+inbox = yes", body, re.M)] or ["inbox"]


def replication_file(host, site):
    made = templates.read(f"dovecot-replication-{'2.4' if version(host) >= (2, 4) else '2.3'}.conf") + templates.read("dovecot-replication-services.conf")
    return made.replace("dovelane-replicator -n site-a", f"dovelane-replicator -n {site}")


def restart(host):
    host.run("doveconf", "-n")
    if host.active("dovecot"):
        host.systemctl("restart", "dovecot")


def reload(host):
    host.run("doveconf", "-n")
    if host.active("dovecot"):
        host.systemctl("reload", "dovecot")
