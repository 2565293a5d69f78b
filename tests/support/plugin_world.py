"""A private Dovecot with our plugin, in one mailbox format, and the ends of what the plugin writes: FIFO, dirty marks, intents."""
import contextlib
import imaplib
import os
import poplib
import pwd
import secrets
import shutil
import socket
import subprocess
import time
import tempfile
from pathlib import Path

from support.stack import modules, process
from support.stack.dovecot import version
from support.stack.ports import Ports
from support.stack.service import Service

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
PASSWORD = "secret"
ACCOUNT = "nobody"
PUBLIC_USER = "everybody"
FORMATS = ("sdbox", "mdbox", "maildir")
FOLDERS = {"sdbox": "sdbox", "mdbox": "mdbox", "maildir": "Maildir"}

imaplib.Commands.update({"SETMETADATA": ("AUTH", "SELECTED"), "MOVE": ("SELECTED",)})

COMMON = """\
base_dir = {run}
state_dir = {state}
instance_name = {name}
hostname = dovecot.stack.example
log_path = {log}
listen = 127.0.0.1
protocols = imap lmtp pop3
ssl = no
mail_uid = {uid}
mail_gid = {gid}
first_valid_uid = 1
first_valid_gid = 1
imap_metadata = yes
postmaster_address = postmaster@example.org
lmtp_save_to_detail_mailbox = yes
recipient_delimiter = +
lda_mailbox_autocreate = yes
service imap-login {{
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service pop3-login {{
  inet_listener pop3 {{
    port = {pop3}
  }}
  inet_listener pop3s {{
    port = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    port = {lmtp}
  }}
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
mail_location = {location}
mail_attribute_dict = file:%h/attributes
{plugins}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = allow_all_users=yes uid={uid} gid={gid} home={mail}/%d/%n
}}
namespace inbox {{
  inbox = yes
  separator = /
}}
namespace theirs {{
  type = shared
  separator = /
  prefix = shared/%%u/
  location = {format}:%%h/{folder}
  subscriptions = no
  list = children
}}
namespace ours {{
  type = public
  separator = /
  prefix = Public/
  location = {format}:{public}
  subscriptions = no
}}
plugin {{
  dovelane_hint_path = {fifo}
  dovelane_dirty_dir = {dirty}
  dovelane_group_key_file = {key}
  dovelane_public_user = everybody
}}
"""

V24 = """\
auth_allow_cleartext = yes
lmtp_user_concurrency_limit = unlimited
mail_home = {mail}/%{{user | domain}}/%{{user | username}}
{location}
mail_attribute {{
  dict file {{
    path = %{{home}}/attributes
  }}
}}
{plugins}
passdb static {{
  password = {password}
}}
userdb static {{
  allow_all_users = yes
  fields {{
    uid = {uid}
    gid = {gid}
    home = {mail}/%{{user | domain}}/%{{user | username}}
  }}
}}
namespace inbox {{
  inbox = yes
  separator = /
}}
namespace theirs {{
  type = shared
  separator = /
  prefix = shared/$user/
  mail_driver = {format}
  mail_path = %{{owner_home}}/{folder}
  subscriptions = no
  list = children
}}
namespace ours {{
  type = public
  separator = /
  prefix = Public/
  mail_driver = {format}
  mail_path = {public}
  subscriptions = no
}}
"""

V24_SETTINGS = """\
dovelane_hint_path = {fifo}
dovelane_dirty_dir = {dirty}
dovelane_group_key_file = {key}
dovelane_public_user = everybody
"""


class World:
    """One Dovecot. `plugin` False leaves it as Debian ships it, to compare with; `more` is added to its configuration; with
    `valgrind` imap and lmtp run under it.
    """

    def __init__(self, form="sdbox", plugin=True, location=None, more="", valgrind=False):
        self.form, self.plugin, self.ports = form, plugin, Ports()
        self.base = Path(tempfile.mkdtemp(prefix="dovelane-plugin-"))
        os.chmod(self.base, 0o755)
        self.mark = f"{self.base}:{secrets.token_hex(4)}"
        account = pwd.getpwnam(ACCOUNT)
        for name in ("run", "state", "mail", "public", "dirty"):
            (self.base / name).mkdir()
        for name in ("mail", "public"):
            shutil.chown(self.base / name, account.pw_uid, account.pw_gid)
        os.chmod(self.base / "dirty", 0o1733)
        self.dirty, self.mail, self.log = self.base / "dirty", self.base / "mail", self.base / "log"
        self.fifo, self.key = self.base / "hint", self.base / "key"
        self.write_key(secrets.token_hex(32) + "\n")
        os.mkfifo(self.fifo)
        os.chmod(self.fifo, 0o666)
        self.modules = modules.lay(BUILD, self.base / "modules")
        self.imap_port, self.pop3_port, self.lmtp_port = (self.ports.take() for _ in range(3))
        self.config = self.base / "dovecot.conf"
        self.config.write_text(self.text(account, location) + more + (self.wrapped() if valgrind else ""))
        self.reader = None
        self.left = b""
        self.service = Service("dovecot", modules.command(self.modules, ["dovecot", "-F", "-c", self.config]), self.log,
                               [("imap", f"127.0.0.1:{self.imap_port}"), ("smtp", f"127.0.0.1:{self.lmtp_port}")], grace=15)
        try:
            self.service.start(self.mark)
        except BaseException:
            self.end()
            raise
        self.listen()

    def text(self, account, location):
        new = version() >= (2, 4)
        folder = FOLDERS[self.form]
        values = {"run": self.base / "run", "state": self.base / "state", "mail": self.mail, "log": self.log, "name":
                  process.instance(self.mark), "uid": account.pw_uid, "gid": account.pw_gid, "imap": self.imap_port,
                  "pop3": self.pop3_port, "lmtp": self.lmtp_port, "password": PASSWORD, "fifo": self.fifo, "dirty": self.dirty,
                  "key": self.key, "public": self.base / "public", "format": self.form, "folder": folder}
        if new:
            values["location"] = location or f"mail_driver = {self.form}\nmail_path = ~/{folder}"
            values["plugins"] = "mail_plugins {\n  dovelane = yes\n}" if self.plugin else ""
            told = ".".join(map(str, version()))
            return (f"dovecot_config_version = {told}\ndovecot_storage_version = {told}\n"
                    + (COMMON + V24 + (V24_SETTINGS if self.plugin else "")).format(**values))
        values["location"] = location or f"{self.form}:~/{folder}"
        values["plugins"] = "mail_plugins = dovelane" if self.plugin else ""
        return (COMMON + V23).format(**values)

    def wrapped(self):
        """Configuration that starts imap and lmtp under valgrind, whose reports go to files that found_by_valgrind() reads."""
        reports = self.base / "valgrind"
        reports.mkdir()
        os.chmod(reports, 0o1777)
        text = ""
        for name in ("imap", "lmtp"):
            script = self.base / f"{name}.sh"
            # GDB: Dovecot leaves its modules loaded, so that reports name our functions
            script.write_text("#!/bin/sh\nexport GDB=1\nexec valgrind -q --leak-check=full --show-leak-kinds=definite "
                              f"--log-file={reports}/{name}.%p {os.path.dirname(modules.module_directory())}/{name} \"$@\"\n")
            script.chmod(0o755)
            text += f"service {name} {{\n  executable = {script}\n}}\n"
        return text

    def found_by_valgrind(self):
        """(processes that were watched, reports that name our code). The processes must have ended."""
        ours, paths = [], list((self.base / "valgrind").iterdir())
        names = [f"({path.name}:" for path in (ROOT / "dovecot-plugin" / "plugin").glob("*.c")]
        for path in paths:
            for report in path.read_text(errors="replace").split("== \n"):
                if "dovelane" in report or any(name in report for name in names):
                    ours.append(report)
        return len(paths), ours

    def write_key(self, text, mode=0o400):
        self.key.unlink(missing_ok=True)
        self.key.write_bytes(text if isinstance(text, bytes) else text.encode())
        shutil.chown(self.key, ACCOUNT)
        os.chmod(self.key, mode)

    def end(self):
        self.deaf()
        self.service.end()
        process.sweep(self.mark)
        self.ports.close()
        shutil.rmtree(self.base, ignore_errors=True)

    def said(self, words):
        """The log's lines with these words, of which one is awaited: Dovecot's log process may write after the answer."""
        end = time.monotonic() + 60
        while not (lines := [line for line in self.log.read_text(errors="replace").splitlines() if words in line]):
            assert time.monotonic() < end, f"the log does not say: {words}"
            time.sleep(0.02)
        return lines

    def wrong(self):
        """Lines of the log that no test provokes."""
        bad = ("Panic", "Fatal", "BUG", "signal 6", "signal 11", "Error:")
        return [line for line in self.log.read_text(errors="replace").splitlines() if any(word in line for word in bad)]

    # -- what the plugin writes -----------------------------------------------------------------------------------------------

    def listen(self):
        """Becomes the FIFO's reader, as the replicator is."""
        if self.reader is None:
            self.reader = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)

    def deaf(self):
        if self.reader is not None:
            os.close(self.reader)
            self.reader, self.left = None, b""

    def hints(self):
        """All hints since the last call: (user, GUID, name). They are written before a command is answered; one less than 2 ms behind another one of its
        mailbox when the session waits again (settle())."""
        data = self.left
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.reader, 65536):
                data += more
        *lines, self.left = data.split(b"\n")
        assert self.left == b"", "a hint in two parts"
        found = []
        for line in lines:
            assert len(line) < 512, line
            one, user, guid, name = line.decode().split("\t")
            assert one == "1"
            found.append((user, guid, name))
        return found

    def named(self):
        """The hints without their GUIDs."""
        return [(user, name) for user, _guid, name in self.hints()]

    def marks(self):
        return sorted(os.listdir(self.dirty))

    def unmark(self):
        for name in os.listdir(self.dirty):
            (self.dirty / name).unlink()

    def home(self, user):
        name, _, domain = user.partition("@")
        return self.mail / domain / name

    def journal(self, user):
        """The lines of the user's journal of intents, each as a list of fields."""
        path = self.home(user) / FOLDERS[self.form] / "dovelane" / "intents"
        return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []

    # -- ways in --------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def imap(self, user):
        session = Imap("127.0.0.1", self.imap_port, timeout=60)
        try:
            session.login(user, PASSWORD)
            yield session
        finally:
            with contextlib.suppress(OSError, imaplib.IMAP4.error):
                session.logout()

    @contextlib.contextmanager
    def pop3(self, user):
        session = poplib.POP3("127.0.0.1", self.pop3_port, timeout=60)
        session.user(user)
        session.pass_(PASSWORD)
        yield session
        session.quit()

    def deliver(self, *recipients, text=b"Subject: t\r\n\r\nx\r\n"):
        """One LMTP transaction; smtplib does not know that each recipient has an answer of its own after the data."""
        with socket.create_connection(("127.0.0.1", self.lmtp_port), 60) as peer:
            lines = peer.makefile("rb")

            def expect(code, command=b""):
                peer.sendall(command)
                while (line := lines.readline())[3:4] == b"-":
                    pass
                assert line.startswith(code), (command, line)

            expect(b"220")
            expect(b"250", b"LHLO client.example\r\n")
            expect(b"250", b"MAIL FROM:<s@example.net>\r\n")
            for recipient in recipients:
                expect(b"250", f"RCPT TO:<{recipient}>\r\n".encode())
            expect(b"354", b"DATA\r\n")
            peer.sendall(text + b".\r\n")
            for _ in recipients:
                expect(b"250")
            expect(b"221", b"QUIT\r\n")

    def words(self, *words):
        return modules.command(self.modules, words)

    def doveadm(self, *words, check=True, stdin=None):
        # Maildir's lock file without a process number, of one that was killed as it made it, is stale after 120 s.
        done = subprocess.run(self.words("doveadm", "-c", self.config, *words), capture_output=True, text=True, timeout=300,
                              check=False, input=stdin)
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done if not check else done.stdout

    def lda(self, user, *words, text="Subject: t\n\nx\n"):
        done = subprocess.run(self.words("/usr/lib/dovecot/dovecot-lda", "-c", self.config, "-e", "-d", user, *words),
                              capture_output=True, text=True, timeout=60, check=False, input=text)
        assert done.returncode == 0, (done.stdout, done.stderr)

    def guids(self, user, folder="INBOX"):
        """GUIDs of the mails of a folder, in their order."""
        return self.doveadm("-f", "tab", "fetch", "-u", user, "guid", "mailbox", folder).split()[1:]


class Imap(imaplib.IMAP4):
    """imaplib that takes no NO for an answer."""

    def do(self, name, *words):
        kind, data = getattr(self, name)(*words)
        assert kind == "OK", (name, words, data)
        self.settle()
        return data

    def settle(self):
        """The hint of a change less than 2 ms after another one in the selected mailbox is written at the end of these: by a timer, and Dovecot's timers that
        are due come before the next command."""
        if self.state in ("AUTH", "SELECTED"):
            time.sleep(0.005)
            assert self.capability()[0] == "OK"

    def mail(self, folder="INBOX", text=b"Subject: t\r\n\r\nx\r\n"):
        self.do("append", folder, None, None, text)

    def metadata(self, folder, key, value):
        kind, data = self._simple_command("SETMETADATA", folder, f'({key} "{value}")')
        assert kind == "OK", data

    def move(self, numbers, folder):
        kind, data = self._simple_command("MOVE", numbers, folder)
        assert kind == "OK", data
        self.settle()
