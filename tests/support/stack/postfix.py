"""A private Postfix: own configuration, queue, data and log; its processes are those of its own master(8).

What differs from a plain Postfix, and why, stands beside each line of main.cf below.
"""
import os
import shutil
import subprocess
import time
from pathlib import Path

from .failure import StackError, failed
from .process import MARK, Process
from .service import Service

# A relay hands a permanently failed mail to the bounce port and says why in its first header line. header_checks turn that
# line into the reason of Postfix's own non-delivery notice; without one, the reason of content_filter holds. The checks of
# MIME parts and attached messages are off: they default to header_checks, and an attachment must not give reasons.
BOUNCE_HEADER = "Dovelane-Bounce"
BOUNCE_DEFAULT = "error:5.0.0 undeliverable"

MAIN = """\
compatibility_level = 3.6
{where}
maillog_file = {log}
maillog_file_prefixes = {log_prefix}
import_environment = MAIL_CONFIG MAIL_DEBUG MAIL_LOGTAG TZ XAUTHORITY DISPLAY LANG=C POSTLOG_SERVICE POSTLOG_HOSTNAME {mark}

myhostname = mx.stack.example
mydomain = stack.example
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtp_dns_support_level = disabled
lmtp_dns_support_level = disabled
smtp_host_lookup = native
lmtp_host_lookup = native
smtpd_peername_lookup = no

# No mailboxes here: what is mapped is relayed, the rest bounces with a reason.
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
local_transport = error:5.1.1 no mailboxes on this host
transport_maps = texthash:{transport}
relay_domains = texthash:{transport}
relay_recipient_maps =
default_transport = error:5.4.4 no map leads there
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_recipient_restrictions = permit_mynetworks, reject
append_dot_mydomain = no
biff = no
notify_classes =

# A discarded mail never gives its flow token back; with the default 1s the way in drops to some 20 mails a second.
in_flow_delay = 0
# Queue ids of diverted mails would be used again within seconds otherwise: their queue files vanish at once.
enable_long_queue_ids = yes
# The default 100 forks a process per 100 mails.
max_use = 100000
default_process_limit = {processes}
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
smtpd_error_sleep_time = 0
smtpd_soft_error_limit = 10000
smtpd_hard_error_limit = 20000
message_size_limit = 52428800
mailbox_size_limit = 0

# Tests cannot wait five minutes for a second attempt.
queue_run_delay = 5s
minimal_backoff_time = 5s
maximal_backoff_time = 30s
"""

MASTER = """\
# service type  private unpriv  chroot  wakeup  maxproc command + args
{smtp} inet n - n - - smtpd{proxy}
# Re-injection: what a relay gives back to the disk queue must not meet the milter again.
{reinject} inet n - n - - smtpd
    -o smtpd_milters=
    -o content_filter=
    -o receive_override_options=no_address_mappings,no_unknown_recipient_checks
    -o {{ smtpd_helo_restrictions = check_helo_access inline:{{{{ dovelane-hold.invalid = HOLD relays died with it in hand }}}} }}
    -o smtpd_authorized_xforward_hosts=127.0.0.0/8
    -o message_size_limit=0
    -o hopcount_limit=1000
    -o cleanup_service_name=reinjectcleanup
reinjectcleanup unix n - n - 0 cleanup
    -o message_size_limit=0
    -o hopcount_limit=1000
# All that comes in here bounces.
{bounce} inet n - n - - smtpd
    -o smtpd_milters=
    -o {{ content_filter = {bounce_default} }}
    -o message_size_limit=0
    -o hopcount_limit=1000
    -o receive_override_options=no_address_mappings,no_unknown_recipient_checks
    -o cleanup_service_name=bouncecleanup
    -o smtpd_authorized_xforward_hosts=127.0.0.0/8
bouncecleanup unix n - n - 0 cleanup
    -o message_size_limit=0
    -o hopcount_limit=1000
    -o {{ header_checks = regexp:{{{{/^{bounce_header}:[[:space:]]*(.*)/ FILTER error:$$1}}}} }}
    -o mime_header_checks=
    -o nested_header_checks=
pickup    unix  n       -       n       60      1       pickup
cleanup   unix  n       -       n       -       0       cleanup
qmgr      unix  n       -       n       300     1       qmgr
rewrite   unix  -       -       n       -       -       trivial-rewrite
bounce    unix  -       -       n       -       0       bounce
defer     unix  -       -       n       -       0       bounce
trace     unix  -       -       n       -       0       bounce
verify    unix  -       -       n       -       1       verify
flush     unix  n       -       n       1000?   0       flush
proxymap  unix  -       -       n       -       -       proxymap
proxywrite unix -       -       n       -       1       proxymap
smtp      unix  -       -       n       -       -       smtp
relay     unix  -       -       n       -       -       smtp
lmtp      unix  -       -       n       -       -       lmtp
showq     unix  n       -       n       -       -       showq
error     unix  -       -       n       -       -       error
retry     unix  -       -       n       -       -       error
discard   unix  -       -       n       -       -       discard
anvil     unix  -       -       n       -       1       anvil
scache    unix  -       -       n       -       1       scache
tlsmgr    unix  -       -       n       1000?   1       tlsmgr
postlog   unix-dgram n  -       n       -       1       postlogd
"""


# dovelane-proxy stands between the first and the second smtpd.
BEFORE = "\n    -o smtpd_proxy_filter=unix:dovelane-proxy/proxy.sock"
BEHIND = """\
{next} inet n - n - - smtpd
    -o smtpd_authorized_xforward_hosts=127.0.0.0/8
    -o receive_override_options=no_unknown_recipient_checks
    -o message_size_limit=0
    -o cleanup_service_name=dovelane-cleanup
    -o smtpd_client_restrictions=
    -o smtpd_relay_restrictions=permit_mynetworks,reject
dovelane-cleanup unix n - n - 0 cleanup
    -o message_size_limit=0
"""


class Postfix(Service):
    """Started by postfix(1), because master(8) detaches; its pid is in its pid file.

    It ends as any service does, by SIGTERM to the master, who ends his children: that is what `postfix stop` does too, but
    that one then sleeps whole seconds.
    """

    kind = "postfix"

    def command(self, verb):
        return ["postfix", "-c", self.note["config_directory"], verb]

    def launch(self, mark):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C", "TZ": "UTC", MARK: mark}
        #        (Path(self.note["queue_directory"]) / "quick-start").touch()
        try:
            done = subprocess.run(self.command("start"), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=120, start_new_session=True, check=False)
        except subprocess.TimeoutExpired:
            raise failed("postfix start did not come back within 120 s", self.log) from None
        if done.returncode != 0:
            raise failed(f"postfix start: {done.stdout.decode(errors='replace').strip()}", self.log)
        pid_file = Path(self.note["queue_directory"]) / "pid" / "master.pid"
        end = time.monotonic() + 30
        while True:
            try:
                self.process = Process(int(pid_file.read_text()))
                if self.process.alive():
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > end:
                raise failed(f"postfix wrote no pid to {pid_file}", self.log)
            time.sleep(0.02)

    def reload(self):
        """Rereads main.cf and master.cf."""
        subprocess.run(self.command("reload"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=60, check=True)

    def flush(self):
        """Has everything in the queue tried now."""
        subprocess.run(["postqueue", "-c", self.note["config_directory"], "-f"], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=True)


def make_queue(queue):
    """Makes the queue's directories from Postfix's own list (postfix-files), as `postfix check` would.

    With all of them there, postfix-script may skip that check (`quick-start`), which costs most of a second.
    """
    meta = subprocess.run(["postconf", "-dh", "meta_directory"], stdout=subprocess.PIPE, check=True, timeout=30).stdout.decode().strip()
    owners = {"$mail_owner": "postfix", "$setgid_group": "postdrop", "-": None}
    for line in (Path(meta) / "postfix-files").read_text().splitlines():
        fields = line.split(":")
        if not line.startswith("$queue_directory/") or fields[1] != "d":
            continue
        path = queue / fields[0].removeprefix("$queue_directory/")
        path.mkdir(parents=True, exist_ok=True)
        shutil.chown(path, owners.get(fields[2], fields[2]), owners.get(fields[3], fields[3]))
        path.chmod(int(fields[4], 8))


def prepare(base, mark, shape, ports, log, domains, queue, milter=None):
    """Writes the configuration; `milter` is a socket path below the queue directory, or None."""
    if os.geteuid() != 0:
        raise StackError("Postfix's master must be started by root: run this as root, or use --postfix none")
    if not shutil.which("postfix", path="/usr/sbin:/usr/bin:" + os.environ.get("PATH", "")):
        raise StackError("Postfix is not installed: run ./setup")
    config, data = base / "conf", base / "data"
    for directory in (config, data, queue):
        directory.mkdir(parents=True, exist_ok=True)
    shutil.chown(data, "postfix", "postfix")
    data.chmod(0o700)
    make_queue(queue)
    address = {name: f"127.0.0.1:{ports.take()}" for name in ("smtp", "reinject", "bounce")}
    proxied = shape.postfix in ("proxy", "swallow")
    if proxied:
        address["next"] = f"127.0.0.1:{ports.take()}"
    transport = config / "transport"
    transport.write_text("".join(f"{domain} {destination}\n" for domain, destination in domains.items()))
    where = "\n".join(f"{name} = {path}" for name, path in
                      (("queue_directory", queue), ("data_directory", data), ("mail_owner", "postfix"),
                       ("setgid_group", "postdrop")))
    main = MAIN.format(where=where, log=log, log_prefix=Path(log).parent, mark=f"{MARK}={mark}", transport=transport,
                       processes=shape.sessions + 50)
    if milter:
        main += f"\nsmtpd_milters = unix:{milter}\nmilter_default_action = " \
                f"{'accept' if shape.policy == 'queue' else 'tempfail'}\n"
    if proxied:  # else all mail from here would be the host's own, whose header Postfix completes
        main += "\nlocal_header_rewrite_clients =\n"
    for name, value in shape.postconf.items():
        kept = [line for line in main.split("\n") if not line.startswith(f"{name} =")]
        main = "\n".join(kept) + f"{name} = {value}\n"
    (config / "main.cf").write_text(main)
    master = MASTER.format(bounce_header=BOUNCE_HEADER, bounce_default=BOUNCE_DEFAULT, proxy=BEFORE if proxied else "", **address)
    (config / "master.cf").write_text(master + (BEHIND.format(**address) if proxied else ""))
    for path in config.iterdir():
        # Postfix reads a file that changed within the last second again and again, 0.3 s apart, before it trusts it.
        os.utime(path, (time.time() - 60,) * 2)
    note = dict(address, config_directory=str(config), queue_directory=str(queue), main=str(config / "main.cf"),
                transport=str(transport))
    probes = [("smtp", address["smtp"]), ("smtp", address["reinject"]), ("smtp", address["bounce"])]
    return Postfix("postfix", [], log, probes, grace=20, note=note)
