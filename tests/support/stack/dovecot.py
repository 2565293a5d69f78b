"""A private Dovecot: LMTP over TCP and a UNIX socket, IMAP; every user@example.org exists.

Debian 12 has 2.3 and Debian 13 has 2.4, whose configuration languages differ; one text for each. Users of a passwd-file can
be listed (doveadm -A); any other name is let in by a static user database behind it. `root` is another system's root directory,
in which that system's Dovecot runs; everything it needs lies below it then, and its configuration names paths as seen there.
"""
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from .failure import StackError
from .process import instance
from .service import Service

PASSWORD = "secret"
USERS = [f"user{number}@example.org" for number in range(1, 10)]
MAIL_USER = "nobody"

COMMON = """\
base_dir = {run}
state_dir = {state}
instance_name = {name}
hostname = dovecot.stack.example
log_path = {log}
listen = 127.0.0.1
protocols = {protocols}
ssl = no
mail_uid = {uid}
mail_gid = {gid}
first_valid_uid = 1
first_valid_gid = 1
service stats {{
  unix_listener stats-writer {{
    mode = 0666
  }}
}}
"""

LOGIN = """\
service {protocol}-login {{
  inet_listener {protocol} {{
    port = {port}
  }}
  inet_listener {protocol}s {{
    port = 0
  }}
}}
"""

LMTP = """\
service lmtp {{
  inet_listener lmtp {{
    port = {port}
  }}
  unix_listener lmtp {{
    mode = 0666
  }}
}}
"""

# Many clients at a time.
LIMITS = """\
default_process_limit = 400
mail_max_userip_connections = 0
service auth {
  client_limit = 2000
}
"""

V23 = """\
disable_plaintext_auth = no
mail_home = {home}
mail_location = {form}:~/{path}
"""

LISTED23 = """\
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%u {users}
}}
userdb {{
  driver = passwd-file
  args = username_format=%u {users}
}}
"""

ANYBODY23 = """\
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = allow_all_users=yes uid={uid} gid={gid} home={home}
}}
"""

# From 2.4.5 on it would mark each mail as having attachments or not; what a mail is said to have is
# what the tests gave it.
V24 = """\
dovecot_config_version = {number}
dovecot_storage_version = {number}
mail_attachment_detection_options =
auth_allow_cleartext = yes
mail_driver = {form}
mail_path = ~/{path}
mail_home = {home}
"""

LISTED24 = """\
passdb passwd-file {{
  passwd_file_path = {users}
  default_password_scheme = PLAIN
}}
userdb passwd-file {{
  passwd_file_path = {users}
}}
"""

ANYBODY24 = """\
passdb static {{
  password = {password}
}}
userdb static {{
  allow_all_users = yes
  fields {{
    uid = {uid}
    gid = {gid}
    home = {home}
  }}
}}
"""

INBOX = "namespace inbox {\n  inbox = yes\n  separator = /\n}\n"

# Other plugins that a Dovecot can be given, as a site has them.
EXTRAS = {
    "acl": {"2.3": """
mail_plugins = $mail_plugins acl
plugin {
  acl = vfile
}
protocol imap {
  mail_plugins = $mail_plugins imap_acl
}
""", "2.4": """
mail_plugins {
  acl = yes
}
acl_driver = vfile
protocol imap {
  mail_plugins {
    imap_acl = yes
  }
}
"""},
    "sieve": {"2.3": """
plugin {
  sieve = file:~/sieve;active=~/.dovecot.sieve
}
protocol lmtp {
  mail_plugins = $mail_plugins sieve
}
""", "2.4": """
sieve_script personal {
  type = personal
  driver = file
  path = ~/sieve
  active_path = ~/.dovecot.sieve
}
protocol lmtp {
  mail_plugins {
    sieve = yes
  }
}
"""},
}


def version(root=None):
    """(major, minor, patch) of the installed Dovecot."""
    try:
        text = subprocess.run([*entered(root), "dovecot", "--version"], stdout=subprocess.PIPE, check=True, timeout=20).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise StackError(f"Dovecot is not installed ({error}): run ./setup") from None
    return tuple(int(part) for part in text.split()[0].split("-")[0].split(".")[:3])


def entered(root):
    """The beginning of a command that runs in another system's root directory."""
    return ["chroot", str(root)] if root else []


def seen(path, root):
    """The path as programs below the root see it."""
    return Path("/") / Path(path).relative_to(root) if root else Path(path)


def family(number):
    """"2.3" or "2.4": which language its configuration is in."""
    return "2.3" if number < (2, 4) else "2.4"


def attributes(number, name):
    """Where a user's IMAP metadata are: in a file of that name in the home."""
    if number < (2, 4):
        return f"mail_attribute_dict = file:%h/{name}\n"
    return f"mail_attribute {{\n  dict file {{\n    path = %{{home}}/{name}\n  }}\n}}\n"


def shared(number, name, kind, prefix, form, path, more=""):
    """A namespace that is not the user's own; kind: "public", or "shared"."""
    where = (f"  location = {form}:{path}\n" if number < (2, 4)
             else f"  mail_driver = {form}\n  mail_path = {path}\n")
    return (f"namespace {name} {{\n  type = {kind}\n  separator = /\n  prefix = {prefix}\n"
            f"  subscriptions = no\n{where}{more}}}\n")


def prepare_folders(base, *more):
    """What the configuration names below its base; its mail is MAIL_USER's."""
    account = pwd.getpwnam(MAIL_USER)
    for name in ("run", "state", "mail", *more):
        (base / name).mkdir(parents=True, exist_ok=True)
    shutil.chown(base / "mail", account.pw_uid, account.pw_gid)
    return account


def text(base, name, log, ports, form, number, *, path=None, root=None, listed=True, anybody=True,
         domains=True, more=""):
    """The configuration, in the language of the version.

    ports: protocol to port; form: the storage, at `path` in the home (default: its own name).
    listed: users are in base/users; anybody: all others exist, too. domains: homes are
    mail/DOMAIN/NAME, else mail/NAME.
    """
    old, account = number < (2, 4), pwd.getpwnam(MAIL_USER)
    home = ("%d/%n" if old else "%{user | domain}/%{user | username}") if domains else (
        "%n" if old else "%{user | username}")
    values = {folder: seen(base / folder, root) for folder in ("run", "state", "mail", "users")}
    values.update(name=name, log=seen(log, root), uid=account.pw_uid, gid=account.pw_gid,
                  password=PASSWORD, protocols=" ".join(ports), form=form, path=path or form,
                  home=f"{values['mail']}/{home}", number=".".join(map(str, number)))
    parts = [V23, COMMON] if old else [V24, COMMON]
    parts += [LISTED23 if old else LISTED24] * listed + [ANYBODY23 if old else ANYBODY24] * anybody
    made = "".join(parts).format(**values)
    for protocol, port in ports.items():
        made += (LMTP if protocol == "lmtp" else LOGIN).format(protocol=protocol, port=port)
    if "lmtp" in ports and not old:
        made += "lmtp_user_concurrency_limit = unlimited\n"
    return made + more


def passwd_line(user, homes, extra=""):
    """Of a passwd-file. extra: more fields of the userdb, each "userdb_NAME=VALUE"."""
    account = pwd.getpwnam(MAIL_USER)
    name, _, domain = user.partition("@")
    return (f"{user}:{{PLAIN}}{PASSWORD}:{account.pw_uid}:{account.pw_gid}::"
            f"{homes}/{domain}/{name}::{extra}\n")


def write_config(base, mark, ports, log, storage="sdbox", root=None, users=None, more="",
                 number=None, anybody=True, protocols=()):
    """A stack's Dovecot, of either version; what is worth knowing of it. `more` is at the end.

    protocols: what it speaks beside IMAP and LMTP ("pop3").
    """
    if os.geteuid() != 0:
        raise StackError("Dovecot's master must be started by root: run this as root, or without --dovecot")
    number = number or version(root)
    prepare_folders(base)
    homes = seen(base / "mail", root)
    (base / "users").write_text("".join(passwd_line(user, homes) for user in (USERS if users is None else users)))
    at = {protocol: ports.take() for protocol in ("imap", "lmtp", *protocols)}
    config = base / "dovecot.conf"
    config.write_text(text(base, instance(mark), log, at, storage, number, root=root,
                           anybody=anybody, more=LIMITS + more))
    return {"config": str(config), "lmtp": f"127.0.0.1:{at['lmtp']}",
            "lmtp_socket": str(base / "run" / "lmtp"), "imap": f"127.0.0.1:{at['imap']}",
            "password": PASSWORD, "mail": str(base / "mail"), "storage": storage,
            "users": str(base / "users"), "homes": str(homes),
            **{protocol: f"127.0.0.1:{at[protocol]}" for protocol in protocols},
            "version": ".".join(map(str, number))}


def prepare(base, mark, ports, log):
    """The Dovecot of a stack."""
    note = write_config(base, mark, ports, log)
    probes = [("smtp", note["lmtp"]), ("smtp", "unix:" + note["lmtp_socket"]), ("imap", note["imap"])]
    return Service("dovecot", ["dovecot", "-F", "-c", note["config"]], log, probes, grace=15, note=note)


def users_with_mail(note):
    """Every user who ever got mail: the static user database cannot list them, their homes can."""
    found = []
    for domain in sorted(os.listdir(note["mail"])):
        found += [f"{user}@{domain}" for user in sorted(os.listdir(os.path.join(note["mail"], domain)))]
    return found


def make_mailboxes(note, users):
    """Their INBOXes, as a site has had them for long. Of two deliveries at a time that make those of one user one may panic (Dovecot 2.3: "Resource deadlock
    avoided" for dovecot.list.index.log), and whatever it had in hand comes twice."""
    for user in users:
        doveadm(note, "mailbox", "create", "-u", user, "INBOX")


def doveadm(note, *words):
    """Output of doveadm against this Dovecot."""
    done = subprocess.run(["doveadm", "-c", note["config"], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                          check=False)
    if done.returncode != 0:
        raise StackError(f"doveadm {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
