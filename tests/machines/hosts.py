"""Mail servers as somebody has them before Dovelane comes: a Debian with Postfix and Dovecot; and Dovelane's programs for that Debian."""
import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess

import machine
from machine import ROOT, TREES, base_tree, call, chroot

ADDRESSES = {"mx1": "10.0.0.1", "mx2": "10.0.0.2"}
MAIN_CF = """compatibility_level = 3.6
myhostname = {name}.example.org
mydestination = localhost
mynetworks = 127.0.0.0/8
inet_protocols = ipv4
alias_maps =
virtual_mailbox_domains = example.org
virtual_transport = lmtp:unix:private/dovecot-lmtp
relay_domains = next.example
transport_maps = hash:/etc/postfix/transport
smtp_helo_name = {name}.example.org
minimal_backoff_time = 5s
maximal_backoff_time = 5s
queue_run_delay = 5s
"""
DOVECOT_23 = """mail_location = maildir:~/Maildir
namespace inbox {
  separator = .
}
ssl = no
disable_plaintext_auth = no
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=vmail gid=vmail home=/var/vmail/%n
}
service lmtp {
  unix_listener /var/spool/postfix/private/dovecot-lmtp {
    mode = 0600
    user = postfix
    group = postfix
  }
}
"""
DOVECOT_24 = """mail_driver = maildir
mail_path = ~/Maildir
mail_inbox_path =
namespace inbox {
  inbox = yes
  separator = .
}
ssl = no
auth_allow_cleartext = yes
passdb static {
  password = secret
}
userdb static {
  fields {
    uid = vmail
    gid = vmail
    home = /var/vmail/%{user|username}
  }
}
service lmtp {
  unix_listener /var/spool/postfix/private/dovecot-lmtp {
    mode = 0600
    user = postfix
    group = postfix
  }
}
lmtp_user_concurrency_limit = 20
"""


def release_here():
    words = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text(encoding="utf-8").splitlines() if "=" in line)
    return words.get("VERSION_CODENAME", "").strip('"')


def mail_server(release, group="host"):
    """A tree with Postfix and Dovecot, and with the packages in apt's cache that ./setup GROUP will want: machines reach no archive."""
    key = (ROOT / "setup").read_text(encoding="utf-8")

    def prepare(tree):
        (tree / "etc/dpkg/dpkg.cfg.d/fast").write_text("force-unsafe-io\n", encoding="ascii")
        download(tree, group)
        chroot(tree, "useradd", "--system", "--create-home", "--home-dir", "/var/vmail", "vmail")
        # Debian brings no main.cf without a question, and its Postfix is up from the first boot on.
        (tree / "etc/postfix/main.cf").write_text(MAIN_CF.format(name="localhost"), encoding="ascii")
    return base_tree(release, ["postfix", "dovecot-imapd", "dovecot-lmtpd"], "mail" if group == "host" else f"mail-{group}", prepare, key)


def download(tree, group):
    """Puts the packages of a group of ./setup into apt's cache, as `apt-get -d` does."""
    shutil.copy(ROOT / "setup", tree / "root/setup")
    listed = chroot(tree, "/root/setup", "--list", group)
    wanted = [line.split()[0] for line in listed.splitlines() if line.endswith(" missing")]
    chroot(tree, "apt-get", "-q", "-y", *machine.apt_options(), "--no-install-recommends", "-d", "install", *wanted, timeout=1800)
    (tree / "root/setup").unlink()


def configure(host):
    """The mail server that was there before: mail for example.org to Dovecot, mail for next.example to the hub."""
    host.write("/etc/postfix/main.cf", MAIN_CF.format(name=host.name))
    host.write("/etc/postfix/transport", f"next.example smtp:[{machine.HUB_ADDRESS}]:2525\n")
    host.write("/etc/mailname", f"{host.name}.example.org\n")
    host.write("/etc/aliases", "root: vmail\n")
    host.chroot("postmap", "/etc/postfix/transport")
    host.chroot("postfix", "check")  # makes its directories: Dovecot may start before it, and has a socket there
    is_24 = host.place("/etc/dovecot/conf.d/10-metrics.conf").exists() or "dovecot_config_version" in host.read("/etc/dovecot/dovecot.conf")
    if is_24:
        for name in ("10-mail.conf", "10-auth.conf"):
            host.place(f"/etc/dovecot/conf.d/{name}").unlink(missing_ok=True)
        host.write("/etc/dovecot/conf.d/20-lmtp.conf", "")  # it takes the domain from a user's name
    else:
        auth = host.place("/etc/dovecot/conf.d/10-auth.conf")
        auth.write_text(auth.read_text(encoding="utf-8").replace("!include auth-system.conf.ext", ""), encoding="utf-8")
    host.write("/etc/dovecot/local.conf", DOVECOT_24 if is_24 else DOVECOT_23)


def installed(release, folder):
    """A tar of what `make install` installs, built for that release; of another release than this host's it is built once per state of the sources."""
    if release == release_here():
        build = pathlib.Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
        if not (build / "build.ninja").exists():
            raise machine.Failed(f"{build} is not built: make, or DOVELANE_BUILD=FOLDER")
        tree, tar = folder / f"install-{release}", folder / f"install-{release}.tar"
        if not tar.exists():
            call("meson", "install", "-C", build, "--no-rebuild", "--destdir", tree)
            call("tar", "--owner=0", "--group=0", "-C", tree, "-cf", tar, ".")
            shutil.rmtree(tree)
        return tar
    return built(release)[0]


def sources(commit):
    """What Git has of the sources, now or in a commit of before; without tests, of which nothing is installed. A tar, and a name for its state."""
    if commit:
        return subprocess.run(["git", "-C", ROOT, "archive", commit, "--", ".", ":(exclude)tests"], stdout=subprocess.PIPE, check=True).stdout, commit
    files = [name for name in call("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").splitlines() if (ROOT / name).is_file() and not name.startswith("tests/")]
    state = hashlib.sha256()
    for name in files:
        state.update(name.encode() + (ROOT / name).read_bytes())
    packed = subprocess.run(["tar", "-C", ROOT, "-c", "--null", "-T", "-"], input=b"\0".join(name.encode() for name in files) + b"\0", stdout=subprocess.PIPE, check=True).stdout
    return packed, state.hexdigest()[:12]


def built(release, commit=None, folder="dovelane"):
    """Builds in a tree of that release, once per state of the sources. Two tars: what `make install` installs, and /usr/src/FOLDER as it is after `make`."""
    packed, state = sources(commit)
    files, source = (TREES / f"{release}-{what}-{state}.tar" for what in ("install", "source"))
    with machine.lock(TREES / f".{release}-install.lock"):
        if files.exists() and source.exists():
            return files, source
        tools = base_tree(release, call(ROOT / "setup", "--list", "build").split()[::2], "build")
        tree = TREES / "run" / f"build-{release}-{os.getpid()}"
        try:
            call("cp", "-a", "--reflink=auto", tools, tree)
            (tree / "usr/src" / folder / "tests").mkdir(parents=True)
            subprocess.run(["tar", "-C", tree / "usr/src" / folder, "-x"], input=packed, check=True)
            (tree / "usr/src" / folder / "tests/meson.build").touch()
            inside = f"cd /usr/src/{folder} && meson setup build -Dprefix=/usr && nice ninja -C build && meson install -C build --no-rebuild --destdir /var/tmp/made && rm build/meson-logs/install-log.txt"
            chroot(tree, "sh", "-c", inside, timeout=1800)
            # posix: to the nanosecond, or ninja would build anew.
            for tar, where, what in ((files, tree / "var/tmp/made", "."), (source, tree, f"usr/src/{folder}")):
                call("tar", "--format=posix", "--owner=0", "--group=0", "-C", where, "-cf", tar.with_suffix(".new"), what)
                tar.with_suffix(".new").rename(tar)
        finally:
            with contextlib.suppress(machine.Failed):
                machine.remove_tree(tree)
    return files, source
