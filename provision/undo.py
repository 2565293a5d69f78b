"""`dovelane init --undo`: each file as it was, each unit as it was, and nothing left of what was made.

Postfix first, so that no mail comes; then Dovecot; then the programs; the node's Redis last, when its lanes are empty.
"""
import contextlib
import os
import re
import shutil
import time

import desired
import dovecot
import files
import group
import postfix
import redis
import resp
from host import Trouble
from journal import WATCHED

OWN = ("dovelane-group.timer", "dovelane-cert.timer", "dovelane-group.service", "dovelane-cert.service", "dovelane-enroll.service")
ORDER = (*OWN, "dovelane-milter.service", "dovelane-proxy.service", "dovelane-relay.service", redis.UNIT)


def refuse(host, force, lose_mail):
    """What forbids it, before anything is changed."""
    local = desired.read_local(host)
    _, description = desired.read_group(host)
    if not local or not description:
        return
    others = [m["name"] for m in description["members"] if m["name"] != local["name"]]
    if desired.has_authority(host) and others and not force:
        raise Trouble(f"this host has the authority of a group in which {', '.join(others)} still {'is' if len(others) == 1 else 'are'}: undo them first. With --force they stay, and nobody renews their certificates")
    me = group.member(description, local["name"])
    if lose_mail:
        return
    if me and host.running(redis.UNIT):
        refuse_mail(host, me["address"], description)
    elif me and host.exists("/var/lib/redis/dovelane/dump.rdb"):
        raise Trouble(f"{redis.UNIT} is stopped, and its dump.rdb may hold mail. Start it, so that this can be looked at: `systemctl start {redis.UNIT}`. "
                      f"Or give up what is in it: `dovelane init --undo --lose-mail`")


def counts(description, lane):
    """Whether somebody can still empty it. What waits for a replica is in the mailboxes here, too: it is lost with them alone."""
    found = re.match(r"dovelane:replica:([^>]+)>([^:]+)", lane)
    sites = [m["site"] for m in description["members"]]
    return not found or (description["replicate"] and found[1] in sites and found[2] in sites)


def refuse_mail(host, address, description):
    try:
        waiting = [each for each in redis.waiting(host, address) if counts(description, each[0])]
    except resp.Unreached as e:
        raise Trouble(f"{e}. So it cannot be asked whether mail waits in its lanes. `journalctl -u {redis.UNIT}` says more; `systemctl restart {redis.UNIT}` "
                      f"starts it anew. If its mail is lost anyhow: `dovelane init --undo --lose-mail`{host.last_lines(redis.UNIT)}") from None
    if waiting:
        lanes = ", ".join(f"{name} ({n})" for name, n in waiting[:5])
        raise Trouble(f"{sum(n for _, n in waiting)} entries wait in {len(waiting)} lanes of this node: {lanes}. `dovelane divert off` and `dovelane drain --to-postfix` empty those of mail; "
                      f"`doveadm dovelane lag -A` shows those of replicas. Nothing was changed. `dovelane init --undo --lose-mail` gives them up")


def what(host, journal):
    """Lines for the admin: all that will be done."""
    lines = []
    for path, before in journal.data["before"].items():
        now = files.state(host.path(path))
        if before is None and now is not None:
            lines.append(f"remove {path}")
        elif before is not None and before["kind"] == "file" and (now or {}).get("digest") != before["digest"]:
            lines.append(f"bring back {path}" + (" (as it was, but for what was changed since: see below)" if journal.edited(path) else ""))
    for unit, was in journal.data["units"].items():
        lines += [f"systemctl {word} {unit}" for word, is_so in (("stop", was["active"]), ("disable", was["enabled"])) if not is_so]
    return lines


def edited_files(host, journal):
    """Files that somebody changed since, and whose changes would be lost."""
    return [path for path, before in journal.data["before"].items() if journal.has_foreign(path) and path not in (redis.USERS, group.FILE, desired.LOCAL)
            and not path.startswith(postfix.DIRECTORY)]


def stop_own(host):
    """What would make anew what is taken away."""
    for unit in OWN:
        host.run("systemctl", "stop", unit, check=False)
        host.run("systemctl", "reset-failed", unit, check=False)  # one that was stopped in the middle


def run(host, journal, tell, lose_mail=False):
    journal.data["undoing"] = True
    journal.save()
    for name in postfix.FILES:
        restore_postfix(host, journal, f"{postfix.DIRECTORY}/{name}")
    if postfix.there(host) and f"{postfix.DIRECTORY}/main.cf" in journal.data["before"]:
        postfix.reload(host)
    replicated = host.exists(dovecot.REPLICATION) and dovecot.REPLICATION in journal.data["before"]
    restored = [restore(host, journal, path) for path in (dovecot.LMTP, dovecot.REPLICATION)]
    if any(restored) and dovecot.there(host):
        (dovecot.restart if replicated else dovecot.reload)(host)
    units = journal.data["units"]
    for unit in sorted(units, key=lambda name: ORDER.index(name) if name in ORDER else -1):
        if unit == redis.UNIT and not lose_mail:
            wait_until_empty(host, tell)
        reset_unit(host, unit, units[unit])
        tell(f"{unit} is as it was")
    for path in sorted(journal.data["before"], key=len, reverse=True):
        if not path.startswith(postfix.DIRECTORY):  # done, and with what others changed in it
            restore(host, journal, path)
    remove_made(host, journal)
    shutil.rmtree(journal.directory)
    files.sync_directory(journal.directory.parent)


def wait_until_empty(host, tell, seconds=60):
    """Other hosts' milters may have placed copies here meanwhile; their relays take these away as they deliver."""
    local, (_, description) = desired.read_local(host), desired.read_group(host)
    me = local and description and group.member(description, local["name"])
    end = time.monotonic() + seconds
    while me and host.running(redis.UNIT):
        try:
            return refuse_mail(host, me["address"], description)
        except Trouble:
            if time.monotonic() > end:
                raise
            tell("mail came to this node meanwhile; waiting for its delivery")
            time.sleep(2)


def reset_unit(host, unit, was):
    if not was["active"] and host.active(unit):
        host.systemctl("stop", unit)
    if not was["enabled"] and host.enabled(unit):
        host.systemctl("disable", unit)
    host.run("systemctl", "reset-failed", unit, check=False)


def restore(host, journal, path):
    """Whether something was changed."""
    before, there = journal.data["before"].get(path, "unknown"), host.path(path)
    if before == "unknown" or files.state(there) == (before and {k: v for k, v in before.items() if k != "copy"}):
        return False
    if before is None:
        if there.is_dir() and not there.is_symlink():
            return False  # with what is in it, at the end
        files.remove(there)
    elif before["kind"] == "file":
        files.write(there, journal.copy(path), before["mode"], before["uid"], before["gid"])
    elif before["kind"] == "link":
        files.link(before["to"], there)
    elif before["kind"] == "directory":
        files.make_directory(there, before["mode"], before["uid"], before["gid"])
    return True


def restore_postfix(host, journal, path):
    """Byte for byte where nobody else changed it; else only what is ours is taken out."""
    before = journal.data["before"].get(path)
    if before is None or (before["kind"] == "file" and host.read(path) == journal.copy(path)):
        return
    if not journal.has_foreign(path):
        restore(host, journal, path)
        return
    old = journal.copy(path).decode("utf-8", "replace")
    postfix.take_out(host, path, old, desired.read_local(host))


def remove_below(top, kept):
    """All below the directory top but what is kept, paths from there, and the directories that have it."""
    try:
        descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # it is not there, or is none of ours by now
    try:
        for folder, directories, names, where in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=descriptor):
            for name in names + directories:
                if os.path.normpath(os.path.join(folder, name)) in kept:
                    continue
                try:
                    os.unlink(name, dir_fd=where)
                except (IsADirectoryError, PermissionError):
                    with contextlib.suppress(OSError):  # what is kept is in it
                        os.rmdir(name, dir_fd=where)
                except FileNotFoundError:
                    pass
    finally:
        os.close(descriptor)


def remove_made(host, journal):
    """What programs left in their directories, and then the directories that were not there.

    These belong to other users, who may put links in the place of what is looked at: so it goes by descriptors, and no link is followed.
    Files below /etc that no plan named are an admin's, and stay.
    """
    for top in WATCHED:
        if top.startswith("/var/"):
            remove_below(host.path(top), set(journal.data["watched"].get(top, [])) | {path[len(top) + 1:] for path, before in journal.data["before"].items()
                                                                                      if before is not None and path.startswith(top + "/")})
    for path in sorted((p for p, before in journal.data["before"].items() if before is None), key=len, reverse=True):
        full = host.path(path)
        if full != journal.directory:
            files.remove_directory(full)
