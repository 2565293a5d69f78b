"""What is refused, user by user and by name, and what of other people's mailboxes is replicated and what not."""
import subprocess
import time
from pathlib import Path

import pytest
from site_user import Site
from support.stack import digest
from support.stack.digest import wait_equal, wait_shape
from support.stack.failure import StackError
from support.waiting import logged

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "fine@example.org"
ACTS_BY_ITSELF = ["sieve", "imap_sieve", "lazy_expunge", "trash", "push_notification"]


def status(replica, user, *more):
    """What `doveadm dovelane status` says of a user: (exit code 0?, words)."""
    try:
        return True, replica.doveadm("dovelane", "status", "-u", user, *more).decode()
    except StackError as error:
        return False, str(error)


def configured(group, replica, text, back=""):
    """dovecot.conf with text at its end, Dovecot started anew with it."""
    conf = Path(replica.note["config"])
    conf.write_text(conf.read_text().removesuffix(back) + text)
    group.restart(replica.name)


def with_plugin(replica, name):
    if replica.note["version"].startswith("2.3"):
        return f"protocol dovelane {{\n  mail_plugins = $mail_plugins {name}\n}}\n"
    return f"protocol dovelane {{\n  mail_plugins {{\n    {name} = yes\n  }}\n}}\n"


def without_plugin(replica, _):
    if replica.note["version"].startswith("2.3"):
        return "protocol dovelane {\n  mail_plugins = dovelane\n}\n"
    return "protocol dovelane {\n  mail_plugins {\n    trash = no\n    quota = no\n  }\n}\n"


def everywhere(replica, name):
    """As a site has it that uses the plugin; trash needs quota."""
    if replica.note["version"].startswith("2.3"):
        return f"mail_plugins = $mail_plugins quota {name}\n"
    return f"mail_plugins {{\n  quota = yes\n  {name} = yes\n}}\n"


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_plugin_that_acts_on_mail_by_itself_is_refused_by_name(group, version):
    there = group(f"sdbox@{version}", "sdbox")
    a, b = there.replicas
    with Site(b, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    text = ""
    for name in ACTS_BY_ITSELF:
        modules = Path(a.note["root"] or "/") / "usr/lib/dovecot/modules"
        if not list(modules.glob(f"lib*_{name}_plugin.so")):
            continue
        there_now = with_plugin(a, name)
        configured(there, a, there_now, text)
        text = there_now
        well, told = status(a, USER)
        # Some of them cannot even be loaded by what is no delivery agent.
        assert not well and (f"plugin {name} would act on replicated mail: leave it out of mail_plugins in protocol dovelane" in told
                             or f"Couldn't load required plugin" in told and f"_{name}_plugin.so" in told), (name, told)
    assert text, "no such plugin is installed"
    configured(there, a, everywhere(a, "trash") + without_plugin(a, "trash"), text)     # the way out that the error names
    well, told = status(a, USER)
    assert well, told
    configured(there, a, with_plugin(a, "trash"), everywhere(a, "trash") + without_plugin(a, "trash"))
    text = with_plugin(a, "trash")
    with Site(b, USER) as site:
        site.append("INBOX", "n")
    configured(there, a, "", text)          # left out again: what came meanwhile is there
    assert wait_shape(a, USER, {"INBOX": {"m": [()], "n": [()]}}, WITHIN) is None


FIELDS = {
    "2.3": {"mbox": "userdb_mail=mbox:~/mbox:INBOX=~/inbox", "memory": "userdb_mail=sdbox:~/sdbox:INDEX=MEMORY", "imapc": "userdb_mail=imapc:~/imapc"},
    "2.4": {"mbox": "userdb_mail_driver=mbox userdb_mail_path=~/mbox userdb_mail_inbox_path=~/inbox",
            "memory": "userdb_mail_index_path=MEMORY", "imapc": "userdb_mail_driver=imapc userdb_mail_path=~/imapc"},
}
SAYS = {"mbox": "storage mbox is not replicated", "imapc": "storage imapc is not replicated", "memory": "index is in memory only"}


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_storage_without_a_log_is_refused_user_by_user(group, version):
    there = group(f"sdbox@{version}", "sdbox", more={name: "imapc_host = 127.0.0.1\nimapc_password = x\n" for name in ("2.3", "2.4")})
    a, b = there.replicas
    users = Path(a.note["base"]) / "users"
    line = users.read_text().splitlines()[0]
    added = [line.replace("user1", what).replace(line.partition(":")[0], f"{what}@example.org") + fields + "\n"
             for what, fields in FIELDS[version].items()]
    there.end(a.name)                       # Dovecot looks at a changed file only once a second; until then these are users as any
    users.write_text(users.read_text() + "".join(added))
    there.start(a.name)
    for what, words in SAYS.items():
        well, told = status(a, f"{what}@example.org")
        # 2.3 wants to know the server's separator before anything can be said of its storage.
        assert not well and (words in told and "namespace inbox" in told or (what, version) == ("imapc", "2.3") and "imapc: " in told), (what, told)
    with Site(a, USER) as site:             # the others' mail is replicated
        site.append("INBOX", "m")
    assert wait_shape(b, USER, {"INBOX": {"m": [()]}}, WITHIN) is None


VIRTUAL = {
    "2.3": """
mail_plugins = $mail_plugins virtual
namespace virtual {
  prefix = virtual/
  separator = /
  location = virtual:~/virtual
}
""", "2.4": """
mail_plugins {
  virtual = yes
}
namespace virtual {
  prefix = virtual/
  separator = /
  mail_driver = virtual
  mail_path = ~/virtual
}
"""}


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_virtual_mailboxes_are_left_alone(group, version):
    """They show what is replicated where it lies; a plugin for them is no reason to refuse anybody."""
    there = group(f"sdbox@{version}", "sdbox", more={version: VIRTUAL[version]})
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
        box = a.home(USER) / "virtual" / "All"
        box.mkdir(parents=True)
        (box / "dovecot-virtual").write_text("INBOX\n  all\n")
        import shutil
        for path in (box.parent, box, box / "dovecot-virtual"):
            shutil.chown(path, "nobody", "nogroup")
        site.close()
        site.flag("virtual/All", "m", "+", "\\Flagged")
    assert wait_shape(b, USER, {"INBOX": {"m": [("\\flagged",)]}}, WITHIN) is None
    well, told = status(a, USER)
    assert well and "virtual" not in told, told


def test_a_virtual_namespace_that_shall_be_replicated_is_refused_by_name(group):
    there = group("sdbox@2.3", more=VIRTUAL, settings={"replicate_namespaces": '{"inbox", "virtual"}'})
    well, told = status(there.replicas[0], USER)
    assert not well and "namespace virtual: storage virtual is not replicated" in told, told


SHARED = {
    "2.3": """
namespace shared {
  type = shared
  separator = /
  prefix = shared/%%u/
  location = sdbox:%%h/sdbox
  subscriptions = no
  list = children
}
plugin {
  acl_shared_dict = file:/tmp/none/shared-mailboxes
}
""", "2.4": """
namespace shared {
  type = shared
  separator = /
  prefix = shared/$user/
  mail_driver = sdbox
  mail_path = %{owner_home}/sdbox
  subscriptions = no
  list = children
}
"""}


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_change_in_a_shared_mailbox_reaches_the_owners_other_sites(group, version):
    """Only the owner's state has it: at B it is the owner's mailbox, shared there by the ACL that came along."""
    there = group(f"sdbox@{version}", "sdbox", extras=("acl",), more=SHARED)
    a, b = there.replicas
    owner, other = "owner@example.org", "other@example.org"
    with Site(a, owner) as site:
        site.create("F")
        site.append("F", "m")
        site.grant("F", other, "lrswipte")
    with Site(a, other) as site:
        site.append(f"shared/{owner}/F", "n")
        site.flag(f"shared/{owner}/F", "m", "+", "\\Flagged")
    wanted = {"INBOX": {}, "F": {"m": [("\\flagged",)], "n": [()]}}
    assert wait_shape(b, owner, wanted, WITHIN) is None
    wait_equal(there.replicas, [owner], WITHIN)
    with Site(b, other) as site:
        assert set(site.imap.uids(f"shared/{owner}/F")) == {"m", "n"}
    assert "shared" not in status(a, other)[1]     # where he has a state at all


def test_a_namespace_that_dovecot_has_not_is_named(group):
    there = group("sdbox", settings={"replicate_namespaces": '{"inbox", "archvie"}'})
    a, = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    logged(a.log, r'replicate_namespaces names "archvie"')
    assert digest.read(a, USER).count() == 1


CRYPT = {"2.3": """
mail_plugins = $mail_plugins mail_crypt
plugin {
  mail_crypt_curve = secp521r1
  mail_crypt_save_version = 2
}
""", "2.4": """
mail_plugins {
  mail_crypt = yes
}
crypt_user_key_curve = secp521r1
crypt_write_algorithm = aes-256-gcm-sha256
"""}
PASSWORD = {"2.3": ("plugin/mail_crypt_private_password", "plugin {\n  mail_crypt_private_password = secret\n}\n"),
            "2.4": ("crypt_user_key_password", "crypt_user_key_password = secret\n")}


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_key_that_is_bound_to_a_password_is_refused_by_name(group, version):
    """Nobody but the login could read the mails; with a password that the workers have, as with a key without any, they are replicated."""
    there = group(f"sdbox@{version}", "sdbox", more={version: CRYPT[version]})
    a, b = there.replicas
    setting, conf = PASSWORD[version]
    made, free = "bound@example.org", "free@example.org"
    a.doveadm("-o", f"{setting}=secret", "mailbox", "cryptokey", "generate", "-u", made, "-U")
    a.doveadm("mailbox", "cryptokey", "generate", "-u", free, "-U")
    for user in (made, free):
        with Site(a, user) as site:
            site.append("INBOX", "m")
        assert any(b"CRYPTED" in path.read_bytes() for path in a.store(user).rglob("u.*")), "not encrypted: the test shows nothing"
    assert wait_shape(b, free, {"INBOX": {"m": [()]}}, WITHIN) is None
    deadline = time.monotonic() + WITHIN
    while True:     # the worker may have opened the user before his key was made
        well, told = status(a, made)
        if not well:
            break
        assert time.monotonic() < deadline, told
        time.sleep(0.5)
    assert "mail_crypt: the user's key is bound to a password" in told and setting.rpartition("/")[2] in told, told
    for site in there.replicas:
        if site.note["version"].startswith(version):   # the other one has no mail_crypt
            configured(there, site, conf)
    assert wait_shape(b, made, {"INBOX": {"m": [()]}}, WITHIN) is None
    well, told = status(a, made)
    assert well, told


def test_a_global_key_comes_before_one_that_is_bound_to_a_password(group, tmp_path):
    """As where an admin moved to global keys: what comes in since is encrypted for them, and all that know them read it."""
    there = group("sdbox@2.3", "sdbox", more={"2.3": CRYPT["2.3"]})
    a, b = there.replicas
    user = "moved@example.org"
    a.doveadm("-o", f"{PASSWORD['2.3'][0]}=secret", "mailbox", "cryptokey", "generate", "-u", user, "-U")
    base = Path(a.note["base"])
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "key"], check=True)
    subprocess.run(["openssl", "pkey", "-in", tmp_path / "key", "-out", base / "global.key"], check=True)
    subprocess.run(["openssl", "pkey", "-in", tmp_path / "key", "-pubout", "-out", base / "global.pub"], check=True)
    for key in ("global.key", "global.pub"):
        (base / key).chmod(0o644)
    for site in there.replicas:
        if site.note["version"].startswith("2.3"):
            configured(there, site, f"plugin {{\n  mail_crypt_global_private_key = <{base}/global.key\n  mail_crypt_global_public_key = <{base}/global.pub\n}}\n")
    with Site(a, user) as site:
        site.append("INBOX", "m")
    assert any(b"CRYPTED" in path.read_bytes() for path in a.store(user).rglob("u.*")), "not encrypted: the test shows nothing"
    assert wait_shape(b, user, {"INBOX": {"m": [()]}}, WITHIN) is None, there.logs(user)
    well, told = status(a, user)
    assert well, told
