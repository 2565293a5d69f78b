"""Debian's own Postfix: main.cf and master.cf as the package installs them, chrooted services in a populated chroot, aliases, submission with Dovecot's
SASL, header checks, a content milter over TCP, mailboxes by LMTP over a UNIX socket in private/; and what packaging/ has for all that, as it stands there.

Only places differ from an installation: directories, addresses, the log (there is no syslog), and the user that stands for dovelane. The programs run with the
filters of their units.
"""
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from . import dovecot, postfix, programs
from .failure import StackError
from .process import MARK
from .service import Service
from .shape import REPOSITORY
from .stack import Stack

EXAMPLES = REPOSITORY / "packaging" / "examples"
SHARE = Path("/usr/share/postfix")
USER, USER_GROUP = "nobody", "nogroup"  # for dovelane: any user that may not enter private/
MAILBOX = "lmtp:unix:private/dovecot-lmtp"
HOST = "mx.debian.example"

# What the package's questions leave in main.cf for an "Internet Site", and what most such sites add: virtual mailboxes, an alias map, header checks,
# submission.
SITE = """\
smtpd_relay_restrictions = permit_mynetworks permit_sasl_authenticated defer_unauth_destination
myhostname = {host}
mydestination = $myhostname, localhost
relayhost =
mynetworks = 127.0.0.0/8
mailbox_size_limit = 0
recipient_delimiter = +
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps = hash:{config}/aliases
alias_database = hash:{config}/aliases

virtual_mailbox_domains = example.org
virtual_mailbox_maps = hash:{config}/vmailbox
virtual_transport = {mailbox}
virtual_alias_maps = hash:{config}/virtual
relay_domains = {relayed}
transport_maps = hash:{config}/transport
header_checks = regexp:{config}/header_checks
smtpd_milters = {content_milter}
smtpd_sasl_type = dovecot
smtpd_sasl_path = private/auth

# The places.
queue_directory = {queue}
data_directory = {data}
maillog_file = {log}
maillog_file_prefixes = {log_prefix}
import_environment = MAIL_CONFIG MAIL_DEBUG MAIL_LOGTAG TZ XAUTHORITY DISPLAY LANG=C POSTLOG_SERVICE POSTLOG_HOSTNAME {mark}
"""

FILES = {
    "aliases": "team: user2@example.org\npostmaster: user3@example.org\n",
    "vmailbox": "".join(f"{user} x\n" for user in dovecot.USERS),
    "virtual": "info@example.org user4@example.org\n",
    "header_checks": "/^X-Virus:/ REJECT no viruses here\n/^Subject: .*lottery/ PREPEND X-Lottery: yes\n/^X-Secret:/ IGNORE\n",
}
INDEXED = ("vmailbox", "virtual", "transport")

DOVECOT = """
service lmtp {{
  unix_listener {queue}/private/dovecot-lmtp {{
    user = postfix
    group = postfix
    mode = 0600
  }}
}}
service auth {{
  unix_listener {queue}/private/auth {{
    user = postfix
    group = postfix
    mode = 0660
  }}
}}
"""


def services(text):
    """The services of a master.cf, in order: {(name, type): its lines}."""
    found = {}
    for line in text.splitlines():
        if line.startswith((" ", "\t")) and found:
            found[last].append(line)
        elif line.strip() and not line.startswith("#"):
            last = tuple(line.split()[:2])
            found[last] = [line]
    return found


def written(found):
    return "\n".join(line for lines in found.values() for line in lines) + "\n"


def uncommented(text, name):
    """master.cf with a service that the package has as a comment."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"#{name} "))
    end = start + 1
    while lines[end].startswith("#  -o ") or lines[end].startswith("#     "):
        end += 1
    block = [line[1:] for line in lines[start:end] if not line.startswith("#     ")]
    return "\n".join(lines[:start] + block + lines[end:]) + "\n"


def readdressed(found, key, address):
    """The service listens elsewhere."""
    lines = found[key]
    return {(address if other == key else other[0], other[1]):
            [lines[0].replace(key[0], address, 1), *lines[1:]] if other == key else its for other, its in found.items()}


def master(addresses, content_milter, diverting=True):
    """Debian's master.cf with submission, and the example's services in it as the guide says."""
    found = services(uncommented((SHARE / "master.cf.dist").read_text(), "submission inet"))
    found[("submission", "inet")].insert(1, "  -o smtpd_relay_restrictions=permit_sasl_authenticated,reject")
    if diverting:
        found |= services((EXAMPLES / "master.cf").read_text())
        smtp = found[("smtp", "inet")]
        assert smtp[1].count("smtpd_milters = {") == 1
        smtp[1] = smtp[1].replace("smtpd_milters = {", f"smtpd_milters = {content_milter}, {{")
    for name, key in (("smtp", "smtp"), ("submission", "submission"), ("bounce", "127.0.0.1:10026"), ("reinject", "127.0.0.1:10027")):
        if (key, "inet") in found:
            found = readdressed(found, (key, "inet"), addresses[name])
    return written(found)


def socket_directory():
    """(path, mode, owner, group) of the milter's socket's directory, as tmpfiles.d makes it."""
    for line in (REPOSITORY / "packaging" / "systemd" / "dovelane-postfix.tmpfiles").read_text().splitlines():
        found = re.match(r"d (/var/spool/postfix/\S+)\s+(\d+) (\w+) (\w+)", line)
        if found:
            return found.groups()
    raise StackError("dovelane-postfix.tmpfiles has no directory below /var/spool/postfix")


def as_unit(service, sbin, groups=()):
    """The service runs as its unit has it, but for the user's name, and from a place where that user may run programs."""
    sbin.mkdir(exist_ok=True)
    program = Path(shutil.copy(service.argv[0], sbin))
    unit = REPOSITORY / "packaging" / "systemd" / f"{program.name}.service.in"
    service.argv = ["/usr/bin/python3", str(Path(__file__).with_name("as_unit.py")), str(unit), USER, ",".join([USER_GROUP, *groups]), str(program),
                    *service.argv[1:]]
    shutil.chown(service.cwd, USER, USER_GROUP)


class DebianStack(Stack):
    """Postfix, Dovecot, a content milter, two nodes; `sinks` are relayed to by transport_maps. Everything of ours runs as the user above.

    content_milter, main, master: what an admin changes.
    """

    def assemble(self):
        base, shape = self.directory, self.shape
        self.queue = base / "queue"
        self.addresses = {name: f"127.0.0.1:{self.ports.take()}" for name in ("smtp", "submission", "reinject", "bounce", "milter")}
        self.content_milter = "inet:" + self.addresses["milter"]
        self.prepare_mailboxes()
        self.add(Service("content-milter", ["/usr/bin/python3", Path(__file__).with_name("pymilter.py"), "--listen", self.addresses["milter"]],
                         self.log("content-milter"), [("milter", self.content_milter.removeprefix("inet:"))], grace=3))
        for sink in shape.sinks:
            self.destinations[sink.name] = self.add(programs.python_sink(base / sink.name, sink, self.ports.take(), self.log(f"sink-{sink.name}"))).note["destination"]
        self.divert = [MAILBOX, *self.destinations.values()]
        mta = self.prepare_postfix()
        shape.settings.setdefault("milter_socket_group", "postfix")
        shape.settings.setdefault("socket_at", f'{{ "private/dovecot-lmtp={self["dovecot"].note["relay_socket"]}" }}')
        self.assemble_nodes(None)
        for service in self.services.values():
            if service.name.startswith("relay-"):
                as_unit(service, base / "sbin")
        self.prepare_milter()
        self.add(mta)

    def prepare_mailboxes(self):
        private = self.queue / "private"
        private.mkdir(parents=True)
        example = (EXAMPLES / "dovecot-lmtp.conf").read_text().replace("user = dovelane", f"user = {USER}").replace("group = dovelane", f"group = {USER_GROUP}")
        base = self.directory / "dovecot"
        base.mkdir()
        note = dovecot.write_config(base, self.mark, self.ports, self.log("dovecot"), more=DOVECOT.format(queue=self.queue) + example)
        note["relay_socket"] = str(base / "run" / "dovelane-lmtp")
        probes = [("smtp", f"unix:{private}/dovecot-lmtp"), ("smtp", "unix:" + note["relay_socket"]), ("imap", note["imap"])]
        self.add(Service("dovecot", ["dovecot", "-F", "-c", note["config"]], self.log("dovecot"), probes, grace=15, note=note))

    def prepare_postfix(self):
        base, log = self.directory / "postfix", self.log("postfix")
        config, data = base / "conf", base / "data"
        for directory in (config, data):
            directory.mkdir(parents=True)
        shutil.chown(data, "postfix", "postfix")
        postfix.make_queue(self.queue)
        mailname = config / "mailname"
        mailname.write_text(HOST + "\n")
        main = (SHARE / "main.cf.debian").read_text() + (SHARE / "main.cf.tls").read_text()
        main += SITE.format(host=HOST, config=config, mailbox=MAILBOX, relayed=" ".join(f"{name}.example" for name in self.destinations) or "none.example",
                            content_milter=self.content_milter, queue=self.queue, data=data, log=log, log_prefix=Path(log).parent, mark=f"{MARK}={self.mark}")
        main += f"myorigin = {mailname}\n" + (EXAMPLES / "main.cf").read_text()
        main += "".join(f"{name} = {value}\n" for name, value in self.shape.postconf.items())
        names = re.findall(r"(?m)^(\w+)\s*=", main)
        kept = []  # the last of equal names counts, and Postfix warns about the others
        for line in main.splitlines():
            name = re.match(r"(\w+)\s*=", line)
            if name:
                names.remove(name[1])
                if name[1] in names:
                    continue
            kept.append(line)
        (config / "main.cf").write_text("\n".join(kept) + "\n")
        (config / "master.cf").write_text(master(self.addresses, self.content_milter))
        files = FILES | {"transport": "".join(f"{name}.example {hop}\n" for name, hop in self.destinations.items())}
        for name, text in files.items():
            (config / name).write_text(text)
        for name in INDEXED:
            subprocess.run(["postmap", "-c", config, f"hash:{config / name}"], check=True, timeout=60)
        subprocess.run(["postalias", "-c", config, f"hash:{config / 'aliases'}"], check=True, timeout=60)
        for path in config.iterdir():
            os.utime(path, (time.time() - 60,) * 2)
        # Debian's own script copies what chrooted services need: in Debian 12 the unit runs it, in 13 `postfix start` does.
        script = Path("/usr/lib/postfix/configure-instance.sh")
        if "run by postfix-script" not in script.read_text():
            subprocess.run([script], env=dict(os.environ, MAIL_CONFIG=str(config)), check=True, timeout=120, stdout=subprocess.DEVNULL)
        note = dict(self.addresses, config_directory=str(config), queue_directory=str(self.queue), main=str(config / "main.cf"))
        probes = [("smtp", self.addresses[name]) for name in ("smtp", "submission", "reinject", "bounce")]
        self.shape.settings.update(bounce_port=self.addresses["bounce"], reinject_port=self.addresses["reinject"], postfix_config=str(config))
        return postfix.Postfix("postfix", [], log, probes, grace=20, note=note)

    def prepare_milter(self):
        path, mode, _, group = socket_directory()
        directory = self.queue / Path(path).relative_to("/var/spool/postfix")
        directory.mkdir()
        shutil.chown(directory, USER, group)
        directory.chmod(int(mode, 8))
        settings = self["relay-mx1"].note["settings"].copy()
        settings.pop("metrics_socket")
        nodes = self.nodes
        milter = programs.milter(self.directory / "milter", self.shape, settings, nodes, directory / "milter.sock", self.directory / "postfix" / "conf",
                                 self.log("milter"))
        as_unit(milter, self.directory / "sbin", [group])
        self.add(milter)

    def remove_contents(self):
        super().remove_contents()
        for name in ("queue", "sbin"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
