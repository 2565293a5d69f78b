"""Every mend that `dovelane check replicas` names, tried; test_ctl_mends.py counts these with the
others. Dovecot's settings are what `doveconf` shows of a file; the nodes are real."""

import os
import re
import shutil
import stat
import subprocess

import pytest
from support.lane_server import BUILD, ROOT, LaneServer
from support.mends import Check, command, mends, settings
from support.stack.dovecot import version
from support.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("doveconf"), reason="no Dovecot here"),
]
REPLICATOR = BUILD / "dovecot-plugin" / "replicator" / "dovelane-replicator"
LISTS = "#!/bin/sh\nprintf 'anna@example.org\\nbert@example.org\\n'\n"
STORAGE = {
    "2.3": {
        "sdbox": "mail_location = sdbox:~/sdbox",
        "maildir": "mail_location = maildir:~/Maildir",
        "mbox": "mail_location = mbox:~/mail",
        "memory": "mail_location = sdbox:~/sdbox:INDEX=MEMORY",
    },
    "2.4": {
        "sdbox": "mail_driver = sdbox\nmail_path = ~/sdbox",
        "maildir": "mail_driver = maildir\nmail_path = ~/Maildir",
        "mbox": "mail_driver = mbox\nmail_path = ~/mail",
        "memory": "mail_driver = sdbox\nmail_path = ~/sdbox\nmail_index_path = MEMORY",
    },
}


class Site:
    """A host of a group of two, as its files have it."""

    def __init__(self, directory, name, address):
        self.directory, self.name, self.address = directory, name, address
        (directory / "state").mkdir(parents=True, mode=0o700)
        (directory / "bin").mkdir()
        (directory / "dirty").mkdir()
        (directory / "dirty").chmod(0o1733)
        self.conf, self.dovecot = directory / "dovelane.conf", directory / "dovecot.conf"
        version = (
            subprocess.run(
                ["dovecot", "--version"], capture_output=True, text=True, timeout=60, check=True
            )
            .stdout.split()[0]
            .partition("-")[0]
        )
        self.version = version[:3]
        self.form = (
            ""
            if self.version == "2.3"
            else f"dovecot_config_version = {version}\ndovecot_storage_version = {version}\n"
        )
        self.mail = STORAGE[self.version]["sdbox"]
        self.namespace = "  inbox = yes\n  separator = /\n"
        self.more = self.plugins("dovelane")
        self.services = (
            (ROOT / "packaging/examples/dovecot-replication-services.conf")
            .read_text()
            .replace("user = dovelane-replicator", "user = root")
        )
        self.services = self.services.replace(
            "executable = dovelane-replicator -n site-a",
            f"executable = {REPLICATOR} -n {name} -C {self.conf}",
        )
        self.ids, self.namespaces, self.settings = {"site-a": 1, "site-b": 2}, ["inbox"], {}
        self.roles = {}
        self.check = Check(
            lambda *words: command(
                self.conf,
                "--dovecot-config",
                self.dovecot,
                *words,
                before=("env", f"PATH={directory}/bin:{os.environ['PATH']}"),
            )
        )
        self.doveadm(LISTS)
        self.write()

    def doveadm(self, script):
        (self.directory / "bin" / "doveadm").write_text(script)
        (self.directory / "bin" / "doveadm").chmod(0o755)

    def plugins(self, *names, protocol=None, gone=()):
        if self.version == "2.3":
            text = f"mail_plugins = {' '.join(names)}\n"
        else:
            text = (
                "mail_plugins {\n"
                + "".join(f"  {name} = yes\n" for name in names)
                + "".join(f"  {name} = no\n" for name in gone)
                + "}\n"
            )
        return f"protocol {protocol} {{\n{text}}}\n" if protocol else text

    def write(self):
        marks = self.dirty(self.directory / "dirty")
        self.dovecot.write_text(
            f"{self.form}protocols = imap lmtp\n{self.mail}\n{self.more}{marks}"
            f"namespace inbox {{\n{self.namespace}}}\n{self.services}"
        )
        words = {
            "copies": 1,
            "replicator_dir": f'"{self.directory}/state"',
            "dirty_dir": f'"{self.directory}/dirty"',
            "replicate_namespaces": "{ " + ", ".join(self.namespaces) + " }",
            **self.settings,
        }
        self.conf.write_text(
            "".join(f"{key} = {value}\n" for key, value in words.items())
            + "".join(
                f'replica {name} {{ id = {n}  redis = "{self.address[name]}"  '
                f"role = {self.roles.get(name, 'full')} }}\n"
                for name, n in self.ids.items()
            )
        )

    def dirty(self, path):
        return f"plugin {{\n  dovelane_dirty_dir = {path}\n}}\n" if self.version == "2.3" else ""

    def change(self, old, new):
        assert old in self.services
        self.services = self.services.replace(old, new)
        self.write()

    def finds(self, name, **words):
        return self.check.finds(name, "replicas", **words)

    def lacks(self, name, **words):
        return self.check.lacks(name, "replicas", **words)


@pytest.fixture
def sites(tmp_path):
    servers = {
        name: LaneServer(tmp_path, "--lane.node", name, name=f"redis-{name}", module_line=True)
        for name in ("site-a", "site-b")
    }
    for server in servers.values():
        server.start()
    address = {name: f"unix:{server.path}" for name, server in servers.items()}
    found = [Site(tmp_path / name, name, address) for name in servers]
    for site in found:
        site.server, site.servers = servers[site.name], servers
    yield found
    for server in servers.values():
        server.stop(quiet=True)


@pytest.fixture
def site(sites):
    return sites[0]


@mends("replica-unchecked")
def test_a_good_group_has_no_finding(sites):
    """The first one to look has nobody to compare with; then each has the other's word."""
    a, b = sites
    found = a.finds("replica-unchecked", about="site-b")
    assert (
        "`dovelane check replicas` there" in found.mend
        and "(right until it is checked there, too)" in found.text
    )
    assert re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", b.check.run("replicas"))
    a.lacks("replica-unchecked")
    assert re.fullmatch(r"0 critical, 0 warnings, \d+ good\n", a.check.run("replicas"))


@mends("replicas-few")
def test_one_replica_alone(site):
    site.ids.pop("site-b")
    site.write()
    assert site.finds("replicas-few").mend.startswith("a section `replica NAME")
    assert "replicas-few" not in site.check.run("config")
    site.ids["site-b"] = 2
    site.write()
    site.lacks("replicas-few")


@mends("dovecot-unknown", "replicator-service")
def test_a_dovecot_whose_file_is_wrong_and_one_without_the_service(site):
    good, site.services = site.services, "service {\n"
    site.write()
    found = site.finds("dovecot-unknown")
    assert found.mend == "`doveconf -n` shows it once it is mended" and "doveconf: " in found.text
    site.services = ""
    site.write()
    site.lacks("dovecot-unknown")
    assert "11-dovelane.conf" in site.finds("replicator-service").mend
    site.services = good
    site.write()
    site.lacks("replicator-service")


@pytest.mark.parametrize(
    "spoilt, says",
    [
        ("-n site-x", "no replica of that name"),
        ("", "-n NAME is not in its executable"),
        ("-n site-a -C /nowhere", "it reads /nowhere"),
    ],
)
@mends("replicator-start")
def test_a_replicator_that_would_not_start(site, spoilt, says):
    good = f"-n site-a -C {site.conf}"
    site.change(good, f"-C {site.conf} {spoilt}" if "-C" not in spoilt else spoilt)
    found = site.finds("replicator-start")
    assert says in found.text and "executable = dovelane-replicator -n NAME" in found.mend
    site.change(f"-C {site.conf} {spoilt}" if "-C" not in spoilt else spoilt, good)
    site.lacks("replicator-start")


@mends("replicator-start")
def test_a_replicator_without_its_directory(site):
    (site.directory / "state").rmdir()
    assert "No such file or directory" in site.finds("replicator-start").text
    (site.directory / "state").mkdir(mode=0o700)
    site.lacks("replicator-start")


OF_SERVICES = [
    ("replicator-processes", "process_min_avail = 1", "process_min_avail = 0"),
    ("worker-processes", "process_limit = 10 ", "process_limit = 9 "),
    ("worker-processes", "client_limit = 1\n", ""),
    ("worker-socket", "mode = 0600\n    user = root", "mode = 0600\n    user = daemon"),
    ("hint-socket", "mode = 0622", "mode = 0600"),
    ("admin-socket", "  unix_listener dovelane-admin {\n    mode = 0600\n  }\n", ""),
]


@pytest.mark.parametrize("name, good, bad", OF_SERVICES, ids=str)
@mends(*(row[0] for row in OF_SERVICES), each=True)
def test_a_setting_of_the_services(site, name, good, bad):
    kept = site.services
    site.change(good, bad)
    mend = site.finds(name).mend
    named = (
        good.split(" = ")[0].strip().split()[-1]
        if " {" not in good
        else "unix_listener dovelane-admin"
    )
    assert named in mend and (name != "worker-socket" or "user = root" in mend), mend
    site.services = kept
    site.write()
    site.lacks(name)


@mends("commit-socket")
def test_replies_that_wait_for_another_site_need_their_socket(site):
    kept = site.services
    setting = "dovelane_commit = peers\n"
    site.services += setting if version() >= (2, 4) else f"plugin {{\n  {setting}}}\n"
    site.write()
    site.lacks("commit-socket")
    waiting = site.services
    for bad in ("mode = 0600", ""):
        site.services = waiting.replace("mode = 0666", bad)
        site.write()
        assert "unix_listener dovelane-commit" in site.finds("commit-socket").mend
    site.services = waiting
    site.write()
    site.lacks("commit-socket")
    site.services = kept.replace("mode = 0666", "mode = 0600") if "dovelane-commit" in kept else kept
    site.roles = {"site-a": "on-demand"}
    site.write()
    assert "role = on-demand" in site.finds("commit-socket").text
    site.roles = {}
    site.services = kept
    site.write()
    site.lacks("commit-socket")


@mends("user-missing")
def test_a_user_who_is_not_there(site):
    site.change("user = root", "user = dovelane-nobody")
    found = site.finds("user-missing")
    assert found.mend == "systemd-sysusers" and "dovelane-nobody" in found.text
    site.change("user = dovelane-nobody", "user = root")
    site.lacks("user-missing")


def do(mend):
    """A mend that is a command."""
    subprocess.run(["sh", "-c", re.split(r" \(", mend)[0]], timeout=60, check=True)


@mends("replicator-directory", "dirty-directory")
def test_directories_as_the_mends_make_them(site):
    (site.directory / "state").chmod(0o777)
    do(site.finds("replicator-directory").mend)
    site.lacks("replicator-directory")
    assert stat.S_IMODE((site.directory / "state").stat().st_mode) == 0o700
    for spoil in (
        (site.directory / "dirty").rmdir,
        lambda: (site.directory / "dirty").chmod(0o700),
    ):
        spoil()
        do(site.finds("dirty-directory").mend)
        site.lacks("dirty-directory")


@mends("dirty-setting")
def test_a_plugin_that_leaves_its_marks_elsewhere(site):
    good = site.dirty
    site.dirty = lambda path: (
        good("/var/elsewhere") if site.version == "2.3" else "dovelane_dirty_dir = /var/elsewhere\n"
    )
    site.write()
    name, value = settings(site.finds("dirty-setting").mend)
    assert (name, value) == ("dovelane_dirty_dir", str(site.directory / "dirty"))
    site.dirty = good if site.version == "2.3" else lambda path: f"{name} = {value}\n"
    site.write()
    site.lacks("dirty-setting")


@mends("namespace-missing", "separator-unset")
def test_namespaces(site):
    site.namespaces = ["inbox", "shared"]
    site.write()
    found = site.finds("namespace-missing", about="shared")
    assert found.mend.startswith("replicate_namespaces = the titles of `namespace` sections")
    site.namespaces = ["inbox"]
    site.write()
    site.lacks("namespace-missing")
    site.namespace = "  inbox = yes\n"
    site.write()
    name, value = settings(site.finds("separator-unset").mend)
    site.namespace += f"  {name} = {value}\n"
    site.write()
    site.lacks("separator-unset")


@pytest.mark.parametrize("name, storage", [("format-unfit", "mbox"), ("index-memory", "memory")])
@mends("format-unfit", "index-memory", each=True)
def test_storages_that_cannot_be_replicated(site, name, storage):
    site.mail = STORAGE[site.version][storage]
    site.write()
    assert "each user is refused" in site.finds(name).text
    site.mail = STORAGE[site.version]["maildir"]
    site.write()
    site.lacks(name)


@mends("plugin-missing", "plugin-acts", "acl-left-out")
def test_plugins(site):
    site.more = ""
    site.write()
    found = site.finds("plugin-missing")
    assert "imap, lmtp, lda, doveadm" in found.text and "mail_plugins" in found.mend
    site.more = site.plugins("dovelane", "acl", "lazy_expunge")
    site.write()
    site.lacks("plugin-missing")
    found = site.finds("plugin-acts")
    assert "the workers load lazy_expunge" in found.text and found.mend.startswith(
        "protocol dovelane { mail_plugins"
    )
    site.more += site.plugins("dovelane", protocol="dovelane", gone=("acl", "lazy_expunge"))
    site.write()
    site.lacks("plugin-acts")
    assert (
        site.finds("acl-left-out").mend == "acl in the mail_plugins of protocol dovelane { }, too"
    )
    site.more = site.plugins("dovelane", "acl", "lazy_expunge") + site.plugins(
        "dovelane", "acl", protocol="dovelane", gone=("lazy_expunge",)
    )
    site.write()
    site.lacks("acl-left-out")


@mends("fsync-never")
@pytest.mark.parametrize("where", ["{}", "protocol lmtp {{\n{}\n}}"], ids=["for all", "lmtp"])
def test_mail_that_is_not_on_the_disk(site, where):
    site.lacks("fsync-never")
    plugins = site.more
    site.more = plugins + where.format("mail_fsync = never") + "\n"
    site.write()
    mend = site.finds("fsync-never").mend
    assert mend == "mail_fsync = optimized, or no such line, in Dovecot's files"
    site.more = plugins + where.format(mend.partition(",")[0]) + "\n"
    site.write()
    site.lacks("fsync-never")


@mends("backup-crypt")
def test_a_backup_site_and_mail_crypt(site):
    site.more = site.plugins("dovelane", "mail_crypt")
    site.write()
    site.lacks("backup-crypt")
    site.roles = {"site-a": "backup"}
    site.write()
    found = site.finds("backup-crypt")
    assert "site-a has role = backup" in found.text and "role = full" in found.mend
    site.more = site.plugins("dovelane")
    site.write()
    site.lacks("backup-crypt")


@mends("on-demand-crypt")
def test_a_site_on_demand_and_mail_crypt(site):
    site.more = site.plugins("dovelane", "mail_crypt")
    site.write()
    site.lacks("on-demand-crypt")
    site.roles = {"site-a": "on-demand"}
    site.write()
    found = site.finds("on-demand-crypt")
    assert "site-a has role = on-demand" in found.text and "role = full" in found.mend
    site.more = site.plugins("dovelane")
    site.write()
    site.lacks("on-demand-crypt")


@mends("dsync-replicator")
def test_dovecots_own_replicator(site):
    """Its plugin is not spoken of as one that acts on mail: the mend is another."""
    site.more = site.plugins("dovelane", "notify", "replication")
    if site.version == "2.3":
        site.more += "plugin {\n  mail_replica = tcp:b:1\n}\nservice replicator {\n  process_min_avail = 1\n}\n"
    site.write()
    found = site.finds("dsync-replicator")
    assert "the plugin replication" in found.text and "notify and replication out" in found.mend
    assert "plugin-acts" not in site.check.run("replicas")
    assert "1 critical" in site.check.run("replicas")
    site.more = site.plugins("dovelane")
    if site.version == "2.3":
        site.more += "service replicator {\n  process_min_avail = 1\n}\n"
        site.write()
        assert "service replicator" in site.finds("dsync-replicator").text
        assert "0 critical" in site.check.run("replicas")
        site.more = site.plugins("dovelane")
    site.write()
    site.lacks("dsync-replicator")


@mends("dsync-job")
def test_a_job_that_runs_dsync(site):
    """In a cron.d of the test's own."""
    jobs = site.directory / "cron.d"
    jobs.mkdir()
    here = f'mount --bind {jobs} /etc/cron.d && exec "$@"'
    site.check = Check(
        lambda *words: command(
            site.conf,
            "--dovecot-config",
            site.dovecot,
            *words,
            before=(
                *("unshare", "--mount", "--propagation", "private", "sh", "-c", here, "sh"),
                *("env", f"PATH={site.directory}/bin:{os.environ['PATH']}"),
            ),
        )
    )
    (jobs / "sync").write_text("*/5 * * * * root doveadm sync -A tcp:b\n")
    found = site.finds("dsync-job")
    assert "/etc/cron.d/sync runs dsync" in found.text and "take the job out" in found.mend
    (jobs / "sync").write_text("# doveadm sync -A tcp:b\n")
    site.lacks("dsync-job")


@mends("users-unlisted")
def test_a_userdb_that_lists_nobody(site):
    for script, says in (
        ("#!/bin/sh\nexit 0\n", "a user comes with his first change"),
        ("#!/bin/sh\necho 'Fatal: userdb is away' >&2\nexit 75\n", "Fatal: userdb is away"),
        # A static userdb while Dovecot runs, as 2.3.19 and 2.4.1 say it.
        ("#!/bin/sh\necho 'Error: auth-master: userdb list: User listing returned failure' >&2\nexit 75\n", "a user comes with his first change"),
    ):
        site.doveadm(script)
        found = site.finds("users-unlisted")
        assert says in found.text and "iterate_query" in found.mend
        assert ("resync -u USER" in found.mend) == ("first change" in says)
    site.doveadm(LISTS)
    site.lacks("users-unlisted")


SAID = {
    "2.3": """# 2.3.19.1 (9b53102964): /etc/dovecot/dovecot.conf
mail_location = mdbox:~/mdbox
mail_plugins = quota dovelane
namespace inbox {
  inbox = yes
  location = 
  prefix = 
  separator = /
}
plugin {
  dovelane_dirty_dir = DIRTY
}
protocols = imap lmtp sieve
service dovelane-replicator {
  executable = EXECUTABLE
  fifo_listener dovelane-hint {
    mode = 0622
  }
  process_limit = 1
  process_min_avail = 1
  unix_listener dovelane-admin {
    mode = 0600
  }
  user = root
}
service dovelane-worker {
  client_limit = 1
  executable = dovelane-worker
  process_limit = 10
  unix_listener dovelane-worker {
    mode = 0600
    user = root
  }
}
protocol imap {
  mail_plugins = quota dovelane acl imap_acl
}
protocol lmtp {
  mail_plugins = quota sieve
}
""",
    "2.4": """# 2.4.1-4 (7d8c0e5759): /etc/dovecot/dovecot.conf
dovecot_config_version = 2.4.1
dovelane_dirty_dir = DIRTY
mail_driver = mdbox
mail_path = ~/mdbox
mail_plugins {
  dovelane = yes
  quota = yes
}
protocols {
  imap = yes
  lmtp = yes
  sieve = yes
}
namespace inbox {
  inbox = yes
  separator = /
  mailbox Trash {
    auto = create
  }
}
protocol imap {
  mail_plugins {
    acl = yes
    imap_acl = yes
  }
}
protocol lmtp {
  mail_plugins {
    dovelane = no
    sieve = yes
  }
}
service dovelane-replicator {
  executable = EXECUTABLE
  process_limit = 1
  process_min_avail = 1
  user = root
  fifo_listener dovelane-hint {
    mode = 0622
  }
  unix_listener dovelane-admin {
    mode = 0600
  }
}
service dovelane-worker {
  client_limit = 1
  executable = dovelane-worker
  process_limit = 10
  unix_listener dovelane-worker {
    mode = 0600
    user = root
  }
}
""",
}


@pytest.mark.parametrize("version", list(SAID))
def test_what_either_version_says_is_understood(site, version):
    """By what doveconf of that version printed: the other one is not on this host."""
    text = (
        SAID[version]
        .replace("DIRTY", f"{site.directory}/dirty")
        .replace("EXECUTABLE", f"{REPLICATOR} -n site-a -C {site.conf}")
    )
    (site.directory / "said").write_text(text)
    (site.directory / "bin" / "doveconf").write_text(f"#!/bin/sh\ncat {site.directory}/said\n")
    (site.directory / "bin" / "doveconf").chmod(0o755)
    out = site.check.run("-v", "replicas")
    found = {each.name: each.text for each in site.check.look("replicas")[0]}
    assert set(found) == {"plugin-missing", "acl-left-out", "replica-unchecked"}, out
    assert found["plugin-missing"].startswith("the plugin dovelane is not loaded for lmtp:"), out
    for good in (
        "keeps mail as mdbox",
        "its separator is /",
        "it is site-a, and can start",
        "there is one process of it",
        "dirty takes marks",
        "the workers load no plugin that acts",
    ):
        assert good in out, (good, out)


def test_a_host_that_is_not_a_replica_hears_nothing_of_it(site):
    """`dovelane check` without a word, where the group has replicas and this host is none."""
    site.services = ""
    site.write()
    assert not re.search("replica|dovelane-", site.check.run("config"))
    eventually(
        "no finding",
        lambda: "[replicator-service]" not in command(site.conf, "--dovecot-config", site.dovecot),
    )
