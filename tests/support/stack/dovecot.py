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
protocols = imap lmtp
ssl = no
mail_uid = {uid}
mail_gid = {gid}
first_valid_uid = 1
first_valid_gid = 1
default_process_limit = 400
mail_max_userip_connections = 0

service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
  unix_listener lmtp {{
    mode = 0666
  }}
}}
service auth {{
  client_limit = 2000
}}
service stats {{
  unix_listener stats-writer {{
    mode = 0666
  }}
}}
"""

V23 = """\
disable_plaintext_auth = no
mail_home = {mail}/%d/%n
mail_location = {storage}:~/{storage}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%u {users}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = passwd-file
  args = username_format=%u {users}
}}
userdb {{
  driver = static
  args = allow_all_users=yes uid={uid} gid={gid} home={mail}/%d/%n
}}
"""

# From 2.4.5 on it would mark each mail as having attachments or not; what a mail is said to have is what the tests gave it.
V24 = """\
mail_attachment_detection_options =
auth_allow_cleartext = yes
lmtp_user_concurrency_limit = unlimited
mail_driver = {storage}
mail_path = ~/{storage}
mail_home = {mail}/%{{user | domain}}/%{{user | username}}
passdb passwd-file {{
  passwd_file_path = {users}
  default_password_scheme = PLAIN
}}
passdb static {{
  password = {password}
}}
userdb passwd-file {{
  passwd_file_path = {users}
}}
userdb static {{
  allow_all_users = yes
  fields {{
    uid = {uid}
    gid = {gid}
    home = {mail}/%{{user | domain}}/%{{user | username}}
  }}
}}
"""


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


def write_config(base, mark, ports, log, storage="sdbox", root=None, users=None, more="", number=None):
    """Writes the configuration of either version; returns what is worth knowing of it. `more` is added at its end."""
    if os.geteuid() != 0:
        raise StackError("Dovecot's master must be started by root: run this as root, or without --dovecot")
    number = number or version(root)
    account = pwd.getpwnam(MAIL_USER)
    run, state, mail = base / "run", base / "state", base / "mail"
    for directory in (run, state, mail):
        directory.mkdir(parents=True, exist_ok=True)
    shutil.chown(mail, account.pw_uid, account.pw_gid)
    inside = {name: seen(base / name, root) for name in ("run", "state", "mail", "users")}
    (base / "users").write_text("".join(
        f"{user}:{{PLAIN}}{PASSWORD}:{account.pw_uid}:{account.pw_gid}::"
        f"{inside['mail']}/{user.partition('@')[2]}/{user.partition('@')[0]}::\n" for user in users or USERS))
    imap, lmtp = ports.take(), ports.take()
    values = dict(inside, name=instance(mark), log=seen(log, root), uid=account.pw_uid, gid=account.pw_gid, imap=imap, lmtp=lmtp,
                  password=PASSWORD, storage=storage)
    text = (COMMON + (V23 if number < (2, 4) else V24)).format(**values) + more
    if number >= (2, 4):
        told = ".".join(str(part) for part in number)
        text = f"dovecot_config_version = {told}\ndovecot_storage_version = {told}\n" + text
    config = base / "dovecot.conf"
    config.write_text(text)
    return {"config": str(config), "lmtp": f"127.0.0.1:{lmtp}", "lmtp_socket": str(run / "lmtp"), "imap": f"127.0.0.1:{imap}",
            "password": PASSWORD, "mail": str(mail), "storage": storage, "version": ".".join(map(str, number))}


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
