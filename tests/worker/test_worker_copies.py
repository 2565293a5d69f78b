"""A mailbox that an admin put beside itself, file by file, as one does with a backup: two have one GUID then."""
import shutil

import pytest
from test_worker_damage import TOO_DEEP, TOO_LONG
from worker_sites import (append, copy_owned, delete, guarded, guid_of, imap, laid_out, make_world,
                          needs_dovecot)
from support.worker_world import CLOSE

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


def shown(site):
    return {name: len(mails) for name, (_, mails, *_) in site.contents().items()}


def settle(world):
    for _ in range(4):
        world.settle()
    return [shown(site) for site in world.sites.values()]


def beside(site, name, copy):
    """The directory of a mailbox, and of a copy of it."""
    if site.format != "maildir":
        return site.root() / "mailboxes" / name, site.root() / "mailboxes" / copy
    return site.root() / ("" if name == "INBOX" else f".{name}"), site.root() / f".{copy}"


@pytest.mark.long
@pytest.mark.parametrize("fmt", ["maildir", "sdbox", "mdbox"])
@pytest.mark.parametrize("name,copy", [("F", "Fold"), ("F", "A"), ("INBOX", "Zold"), ("INBOX", "AAA")])
def test_a_copy_of_a_mailbox_beside_it_is_another_one(tmp_path_factory, fmt, name, copy):
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    try:
        a = world[1]
        imap(a, None, ("create", "F"))
        for n in range(2):
            append(a, "F", f"f{n}")
            append(a, "INBOX", f"m{n}")
        settle(world)
        a.work(CLOSE)
        source, target = beside(a, name, copy)
        backup = a.base / "backup"
        shutil.copytree(source, backup, ignore=lambda _, names: [n for n in names if n == "dovelane" or n.startswith(".")])
        copy_owned(backup, target)
        assert settle(world) == [{"INBOX": 2, "F": 2, copy: 2}] * 2, a.notes
        assert guid_of(a, copy) != guid_of(a, name)
        other = "F" if name == "INBOX" else "INBOX"
        imap(a, other, ("uid", "MOVE", "1", copy))
        append(a, copy, "new")
        append(world[2], name, "new")
        assert settle(world) == [{other: 1, name: 3, copy: 4}] * 2, a.notes
        if fmt != "mdbox":  # of an mdbox Dovecot itself refuses to: the copy's mails are not counted in its map
            delete(a, copy)
            assert settle(world) == [{other: 1, name: 3}] * 2, a.notes
    finally:
        world.stop()


@pytest.mark.long
@pytest.mark.parametrize("fmt", ["maildir", "sdbox"])
def test_a_folder_that_was_made_again_is_another_one_than_what_it_was_renamed_to(tmp_path_factory, fmt):
    """The state knows the folder by the GUID that the renamed mailbox has, and tells nobody's name apart from it any more."""
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    long = TOO_DEEP if fmt == "maildir" else TOO_LONG
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        append(a, "INBOX", "precious")
        settle(world)
        imap(a, None, ("rename", "F", f'"{long}"'))
        settle(world)
        delete(a, "F")
        append(b, "F", "of B")
        settle(world)
        imap(a, None, ("rename", f'"{long}"', "G"))
        settle(world)
        imap(a, "INBOX", ("uid", "MOVE", "1", "G"))
        assert settle(world) == [{"INBOX": 0, "F": 1, "G": 1}] * 2, a.notes
    finally:
        world.stop()


@pytest.mark.parametrize("fmt", ["maildir", "sdbox", "mdbox"])
def test_a_copy_of_a_mailbox_that_cannot_be_read_is_no_renamed_one(tmp_path_factory, fmt):
    """Something was run as root, so its index is root's; the admin copies it beside it, and the client deletes the copy."""
    world = make_world(tmp_path_factory, [fmt, "sdbox"])
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", "F"))
        for n in range(2):
            append(a, "F", f"f{n}")
        settle(world)
        a.work(CLOSE)
        source, target = beside(a, "F", "Fold")
        copy_owned(source, target)
        files = [path for path in source.rglob("dovecot*") if path.is_file()]
        assert files
        for path in files:
            shutil.chown(path, "root", "root")
            path.chmod(0o600)
        for _ in range(3):
            world.settle()
        append(b, "F", "answered 250 at B")
        for _ in range(3):
            world.settle()
        if fmt != "mdbox":
            delete(a, "Fold")
        for _ in range(3):
            world.settle()
        for path in files:
            shutil.chown(path, "nobody", "nogroup")
        found = settle(world)
        assert found[0]["F"] == found[1]["F"] == 3, a.notes
    finally:
        world.stop()


def places(site, layout, name):
    """Where a mailbox of that name has its mails; and its index, or control files, if elsewhere."""
    below = name if layout == "fs" else f"mailboxes/{name}"
    if site.format == "maildir" and layout != "fs":
        below = "." + name.replace("/", ".")
    roots = [site.root(), site.home() / "index", site.home() / "control"]
    return [root / below for root in roots if root.is_dir()]


# Format, layout, what the user cannot enter, and whether a look came before the copy was deleted.
OUT_OF_REACH = [
    ("sdbox", None, "folder", True),
    ("sdbox", None, "folder", False),
    ("mdbox", None, "folder", True),
    ("maildir", None, "folder", True),
    ("maildir", "fs", "folder", True),
    ("sdbox", None, "mails", True),
    ("sdbox", None, "parent", True),
    ("sdbox", None, "INBOX", True),
    ("sdbox", "index", "index", True),
    ("maildir", "index", "index", True),
    ("maildir", "control", "control", True)]


@pytest.mark.parametrize("fmt,layout,part,looked", OUT_OF_REACH)
def test_a_copy_of_a_mailbox_that_is_out_of_reach_is_no_renamed_one(
        tmp_path_factory, fmt, layout, part, looked):
    """A directory of the mailbox, or the one above, is root's. Dovecot lists the copy alone."""
    name = {"parent": "P/F", "INBOX": "INBOX"}.get(part, "F")
    world = make_world(tmp_path_factory, [fmt, "sdbox"], more={1: laid_out(fmt, layout)})
    try:
        a, b = world[1], world[2]
        if name != "INBOX":
            imap(a, None, ("create", name))
        for n in range(2):
            append(a, name, f"f{n}")
        settle(world)
        a.work(CLOSE)
        there = places(a, layout, name)
        for source, target in zip(there, places(a, layout, "Fold")):
            copy_owned(source, target)
        path = {"mails": there[0] / "dbox-Mails", "parent": there[0].parent,
                "index": there[-1], "control": there[-1]}.get(part, there[0])
        journal = a.home() / "control" / "dovelane" if layout == "control" else None
        with guarded(path):
            for _ in range(3 if looked else 0):
                world.settle()
            append(b, name, "answered 250 at B")
            for _ in range(3 if looked else 0):
                world.settle()
            if fmt != "mdbox":
                delete(a, "Fold", journal)
            for _ in range(3):
                world.settle()
        found = settle(world)
        assert found[0] == found[1] and found[0][name] == 3, a.notes
        assert found[0].get("Fold") == (2 if fmt == "mdbox" else None), a.notes
    finally:
        world.stop()
