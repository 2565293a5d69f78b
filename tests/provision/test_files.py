"""Root's reading and writing beside users who may mean harm, and keys that nothing leaves behind."""
import os
import pathlib
import tempfile

import pytest
from test_plan import INIT

import authority
import conf
import desired
import files
import redis
from host import Trouble


def others(folder):
    """As /etc/redis is, which the user redis may write."""
    folder.chmod(0o2770)


@pytest.mark.parametrize("what", ["link", "pipe", "large", "directory", "folder is a link"])
def test_root_reads_only_files_where_another_user_may_write(ready, tmp_path, what):
    host, path = ready, ready.path(redis.USERS)
    others(path.parent)
    others(path.parent.parent)
    secret = tmp_path / "shadow"
    secret.write_text("user root secret\n")
    path.unlink()
    if what == "link":
        path.symlink_to(secret)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "large":
        with open(path, "wb") as f:
            f.truncate(files.LARGEST + 1)
    elif what == "directory":
        path.mkdir()
    else:
        (tmp_path / "users.acl").write_text("user root secret\n")
        path.parent.rename(tmp_path / "away")
        path.parent.symlink_to(tmp_path)
    with pytest.raises(Trouble, match="is a link in a directory|is no file|is larger than|is not followed"):
        host.read(redis.USERS)


def test_roots_own_links_are_followed(ready, tmp_path):
    path = ready.path(conf.FILE)
    path.rename(tmp_path / "dovelane.conf")
    path.symlink_to(os.path.relpath(tmp_path / "dovelane.conf", path.parent))
    assert "made by" in ready.text(conf.FILE)
    folder = ready.path("/etc/dovelane")
    folder.rename(tmp_path / "dovelane")
    folder.symlink_to(tmp_path / "dovelane")
    assert desired.read_group(ready)[1]


@pytest.mark.parametrize("does", [lambda p: files.write(p, b"x"), files.remove, lambda p: files.make_directory(p, 0o700), lambda p: files.link("/", p), files.state])
def test_root_writes_and_removes_nothing_through_another_users_link(tmp_path, does):
    folder, victim = tmp_path / "redis", tmp_path / "victim"
    folder.mkdir()
    others(folder)
    victim.mkdir()
    (victim / "name").write_text("theirs")
    (folder / "dovelane").symlink_to(victim)
    with pytest.raises(files.Unsafe):
        does(folder / "dovelane" / "name")
    assert (victim / "name").read_text() == "theirs" and os.listdir(victim) == ["name"]


def test_a_secret_that_others_can_read_is_mended(host, dovelane):
    dovelane(*INIT)
    key, folder = host.path(f"{desired.AUTHORITY}/ca.key"), host.path("/etc/dovelane/dovelane-relay")
    key.chmod(0o644)
    folder.chmod(0o755)
    status, said = dovelane(*INIT)
    assert status == 0 and "set /etc/dovelane/authority/ca.key to root:root 0600" in said and "set /etc/dovelane/dovelane-relay to root:dovelane 0750" in said, said
    assert key.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o750
    assert "nothing to do" in dovelane(*INIT)[1]


@pytest.mark.long
def test_a_mode_that_an_admin_gave_a_public_file_stays(host, dovelane):
    host.path("/etc/postfix/main.cf").chmod(0o640)
    dovelane(*INIT)
    assert host.path("/etc/postfix/main.cf").stat().st_mode & 0o777 == 0o640
    host.path(conf.FILE).chmod(0o640)
    assert "nothing to do" in dovelane(*INIT)[1]
    assert dovelane("group", "divert", "add", "lmtp:[192.0.2.5]:24", "--wait", "0", "--yes")[0] == 0
    assert "192.0.2.5" in host.text(conf.FILE) and host.path(conf.FILE).stat().st_mode & 0o777 == 0o640


def test_a_kill_leaves_no_secret_in_a_scratch_file(host, dovelane, monkeypatch):
    """All files that are made outside the host's own places hold no key and no password, also while a program runs."""
    seen, scratched = [], []
    real_run, real_directory = authority.subprocess.run, tempfile.TemporaryDirectory

    class Directory(real_directory):
        def __init__(self, *words, **more):
            super().__init__(*words, **more)
            scratched.append(pathlib.Path(self.name))

    def run(*words, **more):
        for folder in scratched:
            seen.extend(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
        return real_run(*words, **more)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", Directory)
    monkeypatch.setattr(authority.subprocess, "run", run)
    assert dovelane(*INIT)[0] == 0
    assert dovelane("cert", "renew", "--now")[0] == 0
    passwords = desired.Secrets(host).passwords
    assert seen and len(passwords) == 4
    for text in seen:
        assert "PRIVATE KEY" not in text and not any(password in text for password in passwords.values())
    assert all(redis.hashed(password) in host.text(redis.USERS) for password in passwords.values())
