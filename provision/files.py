"""Reading and writing files: whole or not at all, never through somebody else's link, and never readable by others for a moment.

Some of the directories belong to the users redis and dovelane. Who has broken into one of their programs must not choose what root reads, writes or
removes. So each path is walked by descriptors, and a link is followed only where root alone can have put it.
"""
import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat

LARGEST = 16 << 20
MOST_LINKS = 20


class Unsafe(OSError):
    """What lies there may have been put there to deceive root; the text says what it is."""

    def __str__(self):
        return self.args[0]


def digest(content):
    return hashlib.sha256(content).hexdigest()


def read_json(text, deepest=16):
    """Of somebody who may mean harm: ValueError before it is nested so deep that the parser runs out of stack."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if text.count("[") + text.count("{") > deepest:
        raise ValueError("it is nested too deep")
    return json.loads(text)


# ---- paths ----

def is_roots(descriptor):
    """Whether nobody but root (in tests: but the caller) can make a name in this directory."""
    st = os.fstat(descriptor)
    return st.st_uid in (0, os.geteuid()) and not st.st_mode & 0o022


def follow(parent, name, path):
    """Where the link leads; Unsafe when it is not root's."""
    if not is_roots(parent):
        raise Unsafe(f"{path}: {name} is a link in a directory that is not root's alone, and is not followed. Put what it leads to in its place")
    return os.readlink(name, dir_fd=parent)


def open_directory(path):
    """A descriptor, which the caller closes."""
    todo, links = str(os.path.abspath(path)).split("/")[::-1], 0
    at = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            except OSError as e:
                if e.errno not in (errno.ELOOP, errno.ENOTDIR) or not is_link(name, at):
                    raise
                to, links = follow(at, name, path), links + 1
                if links > MOST_LINKS:
                    raise Unsafe(f"{path}: more than {MOST_LINKS} links") from None
                todo += to.split("/")[::-1]
                if not to.startswith("/"):
                    continue
                below = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.close(at)
            at = below
        return at
    except BaseException:
        os.close(at)
        raise


def is_link(name, parent):
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def parent_of(path):
    """(descriptor of the directory, name in it)"""
    descriptor = open_directory(os.path.dirname(path))
    try:
        yield descriptor, os.path.basename(path)
    finally:
        os.close(descriptor)


# ---- reading ----

def read(path, links=0):
    """A file's bytes. FileNotFoundError, or Unsafe, which names what it is instead."""
    with parent_of(path) as (parent, name):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError as e:
            if e.errno == errno.ENXIO:
                raise Unsafe(f"{path} is no file") from None
            if e.errno != errno.ELOOP:
                raise
            if links >= MOST_LINKS:
                raise Unsafe(f"{path}: more than {MOST_LINKS} links") from None
            return read(os.path.join(os.path.dirname(path), follow(parent, name, path)), links + 1)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unsafe(f"{path} is no file: remove it")
    with os.fdopen(descriptor, "rb") as f:
        content = f.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Unsafe(f"{path} is larger than {LARGEST >> 20} MiB: this is not what belongs there. Remove it")
    return content


def state(path):
    """What lies at path, for the journal and for comparing: None, or kind, mode, owner, and the digest of a file's content."""
    try:
        with parent_of(path) as (parent, name):
            st = os.lstat(name, dir_fd=parent)
            found = {"mode": st.st_mode & 0o7777, "uid": st.st_uid, "gid": st.st_gid}
            if stat.S_ISLNK(st.st_mode):
                return {**found, "kind": "link", "to": os.readlink(name, dir_fd=parent)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(st.st_mode):
        return {**found, "kind": "directory"}
    if not stat.S_ISREG(st.st_mode):
        return {**found, "kind": "other"}
    return {**found, "kind": "file", "digest": digest(read(path))}


# ---- writing ----

def write(path, content, mode=0o644, uid=-1, gid=-1):
    """Puts content at path by rename(2); uid and gid -1: the caller's."""
    with parent_of(path) as (parent, name):
        beside = f".{name}.{secrets.token_hex(6)}"
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
        try:
            with os.fdopen(fd, "wb") as out:
                out.write(content)
                if os.geteuid() == 0:
                    os.fchown(out.fileno(), uid, gid)
                os.fchmod(out.fileno(), mode)
                out.flush()
                os.fsync(out.fileno())
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=parent)
            raise
        os.fsync(parent)


def make_directory(path, mode, uid=-1, gid=-1):
    with parent_of(path) as (parent, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if os.geteuid() == 0:
                os.fchown(at, uid, gid)
            os.fchmod(at, mode)
        finally:
            os.close(at)


def remove(path):
    """Removes a file or a link, where there is one."""
    with contextlib.suppress(FileNotFoundError), parent_of(path) as (parent, name):
        os.unlink(name, dir_fd=parent)
        os.fsync(parent)


def remove_directory(path):
    """Removes a directory, when it is empty."""
    with contextlib.suppress(OSError), parent_of(path) as (parent, name):
        os.rmdir(name, dir_fd=parent)


def link(to, path):
    with parent_of(path) as (parent, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        os.symlink(to, name, dir_fd=parent)


def sync_directory(path):
    with parent_of(os.path.join(path, ".")) as (parent, _):
        os.fsync(parent)
