"""Writing files: whole or not at all, never through somebody else's link, and never readable by others for a moment."""
import hashlib
import json
import os
import secrets


def digest(content):
    return hashlib.sha256(content).hexdigest()


def read_json(text, deepest=16):
    """Of somebody who may mean harm: ValueError before it is nested so deep that the parser runs out of stack."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if text.count("[") + text.count("{") > deepest:
        raise ValueError("it is nested too deep")
    return json.loads(text)


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write(path, content, mode=0o644, uid=-1, gid=-1):
    """Puts content at path (a pathlib.Path) by rename(2); uid and gid -1: the caller's."""
    beside = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(content)
            if os.geteuid() == 0:
                os.fchown(out.fileno(), uid, gid)
            os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        os.rename(beside, path)
    except BaseException:
        if os.path.lexists(beside):
            os.unlink(beside)
        raise
    sync_directory(path.parent)


def make_directory(path, mode, uid=-1, gid=-1):
    if not path.is_dir():
        os.mkdir(path, 0o700)
    if os.geteuid() == 0:
        os.chown(path, uid, gid, follow_symlinks=False)
    os.chmod(path, mode)


def state(path):
    """What lies at path, for the journal and for comparing: None, or kind, mode, owner, and the digest of a file's content."""
    try:
        st = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = {"mode": st.st_mode & 0o7777, "uid": st.st_uid, "gid": st.st_gid}
    if os.path.islink(path):
        return {**found, "kind": "link", "to": os.readlink(path)}
    if os.path.isdir(path):
        return {**found, "kind": "directory"}
    with open(path, "rb") as f:
        return {**found, "kind": "file", "digest": digest(f.read())}
