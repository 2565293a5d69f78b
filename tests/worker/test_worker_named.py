"""What goes by a name: folders' names in other layouts, keywords, METADATA, Sieve scripts, subscriptions."""
import os
import shutil
import time

import pytest
from worker_sites import MIXES, append, copy_owned, directory_of, equal, guid_of, imap, mail, make_world, needs_dovecot, rotate_log, subjects, subscribe
from support.frames import CLOSE
from support.worker_world import USER, pigeonhole

pytestmark = [needs_dovecot, pytest.mark.exhaustive]


@pytest.mark.parametrize("index", ["kept", "gone"])
def test_keywords_whose_names_are_lost_are_restored(tmp_path_factory, index):
    """dovecot-keywords is written after the files are renamed: a crash between leaves letters that nobody can read."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        for i in range(3):
            append(world[1], "INBOX", f"m{i}", "(one two)")
        world.settle()
        site = world[1]
        site.work(CLOSE)
        # An index that is made anew in the second of the old one has its id, as an old backup has:
        # flags in that one are nobody's wish.
        next_second()
        (site.root() / "dovecot-keywords").unlink()
        for path in site.root().glob("dovecot.index*") if index == "gone" else []:
            path.unlink()
        imap(site, "INBOX", ("store", "1", "+FLAGS", "(\\Flagged)"), ("store", "2", "+FLAGS", "(three)"))
        world.settle()
        world.settle()
        flags = [set(mail[1]) for mail in equal(world)["INBOX"][1]]
        assert flags == [{"one", "two", "\\Flagged"}, {"one", "two", "three"}, {"one", "two"}]
    finally:
        world.stop()


def test_a_name_that_the_other_storage_has_for_itself(tmp_path_factory):
    """A folder called "dbox-Mails" in a Maildir: escaped where that is a directory of the storage's, and the same folder from there, too."""
    world = make_world(tmp_path_factory, ["maildir", "sdbox"])
    try:
        a, b = world[1], world[2]
        imap(a, None, ("create", '"Work/dbox-Mails/Sub"'), ("create", '"Work/dbox-Mails"'))
        append(a, "Work/dbox-Mails", "one")
        world.settle()
        shown = b.contents()
        assert {"Work/%64box-Mails", "Work/%64box-Mails/Sub"} <= set(shown), shown
        assert subjects(shown, "Work/%64box-Mails") == 1
        append(b, "Work/%64box-Mails", "two")
        world.settle()
        assert subjects(a.contents(), "Work/dbox-Mails") == 2
        assert not any("cannot be created" in said for _, said in b.notes), b.notes
        imap(b, None, ("rename", '"Work/%64box-Mails"', '"Other"'))
        world.settle()
        assert set(equal(world)) - {"Work"} == {"INBOX", "Other", "Other/Sub"}
    finally:
        world.stop()


def test_names_that_a_layout_cannot_hold(world):
    site = world[1]
    names = ["a.b", "x~y", "~tilde", "per%2Fcent", "&AOk-t&AOk-"]
    made = []
    for name in names:
        box = site.imap()
        if box.create(f'"{name}"')[0] == "OK":
            made.append(name)
        box.logout()
    for name in made:
        append(site, f'"{name}"', "in " + name)
    world.settle()
    verdict = world[2].admin("verify")
    assert verdict[-1] == "verdict\tsame", verdict
    assert sum(len(m) for _, m in world[2].contents().values()) == len(made)
    world.settle()  # whoever looked has made an INBOX there
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before


def test_metadata_reaches_the_other(world):
    box = world[1].imap()
    box._command_ = None
    box.logout()
    world[1].doveadm("mailbox", "metadata", "set", "-u", USER, "INBOX", "/private/comment", "mine")
    world.settle()
    assert b"mine" in world[2].doveadm("mailbox", "metadata", "get", "-u", USER, "INBOX", "/private/comment")


@pytest.mark.parametrize("visited", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_metadata_that_went_with_an_index_comes_back(world, number, visited):
    """Of each storage; also where a client has made the index anew before anybody looked."""
    site = world[number]
    for folder in ("INBOX", "F"):
        if folder != "INBOX":
            imap(world[1], None, ("create", folder))
        append(world[1], folder, "one")
        world[1].doveadm("mailbox", "metadata", "set", "-u", USER, folder, "/private/comment", "mine")
        world[1].doveadm("mailbox", "metadata", "set", "-u", USER, folder, "/shared/comment", "ours")
    world.settle()
    site.work(CLOSE)
    (site.home() / "attributes").unlink()
    for index in site.base.rglob("dovecot.index*"):
        index.unlink()
    if visited:
        for folder in ("INBOX", "F"):
            imap(site, folder)
    world.settle()
    for each in world.sites.values():
        for folder in ("INBOX", "F"):
            assert b"mine" in each.doveadm("mailbox", "metadata", "get", "-u", USER, folder, "/private/comment")
            assert b"ours" in each.doveadm("mailbox", "metadata", "get", "-u", USER, folder, "/shared/comment")


def test_metadata_that_this_site_set_for_another_one_is_not_unset_when_it_is_lost(world):
    """The log says that it was set, nobody looked since, and its dictionary is lost: that is no client's doing. Where the log says that a
    client unset it, it is."""
    def set_or_unset(number, key, *value):
        world[number].doveadm("mailbox", "metadata", "set" if value else "unset", "-u", USER, "INBOX", f"/private/{key}", *value)

    def get(site, key):
        return site.doveadm("mailbox", "metadata", "get", "-u", USER, "INBOX", f"/private/{key}").strip()
    site = world[2]
    append(world[1], "INBOX", "one")
    world.settle()
    set_or_unset(1, "comment", "mine")
    set_or_unset(1, "other", "theirs")
    world.settle()
    set_or_unset(2, "other")
    site.work(CLOSE)
    (site.home() / "attributes").unlink()
    for _ in range(2):
        world.settle()
    assert get(world[1], "comment") == b"mine" and get(world[1], "other") == b""


@pytest.fixture(params=MIXES)
def rights(request, tmp_path_factory):
    """A folder of which bob and carol have rights, and annotations; and who has which at a site."""
    world = make_world(tmp_path_factory, request.param.split(","), acl=True)
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "one")
    for who in ("bob", "carol"):
        world[1].doveadm("acl", "set", "-u", USER, "F", f"user={who}", "lookup", "read")
    for key in ("comment", "other"):
        world[1].doveadm("mailbox", "metadata", "set", "-u", USER, "F", f"/private/{key}", "mine")
    world.settle()

    def granted(site):
        said = site.doveadm("acl", "get", "-u", USER, "F").decode()
        return {who for who in ("bob", "carol") if f"user={who} " in said + " "}

    def annotated(site):
        return {key for key in ("comment", "other") if site.doveadm("mailbox", "metadata", "get", "-u", USER, "F", f"/private/{key}").strip()}
    for site in world.sites.values():
        assert granted(site) == {"bob", "carol"} and annotated(site) == {"comment", "other"}
    yield world, granted, annotated
    told = "".join(f"--- site {s.number}\n{s.notes}\n{s.log.read_text()[-4000:]}" for s in world.sites.values())
    world.stop()
    print(told)


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_revoked_is_not_granted_again_though_the_log_does_not_tell_of_it(rights, number):
    """Nor set again, what was unset: the log that said so is gone."""
    world, granted, annotated = rights
    site = world[number]
    site.work(CLOSE)
    site.doveadm("acl", "delete", "-u", USER, "F", "user=bob")
    site.doveadm("mailbox", "metadata", "unset", "-u", USER, "F", "/private/comment")
    rotate_log(site, "F")
    world.settle()
    world.settle()
    assert granted(site) == {"carol"} and annotated(site) == {"other"}
    assert any("the rights of 1" in said for _, said in site.notes), site.notes
    # Who revokes them says so everywhere.
    site.doveadm("acl", "delete", "-u", USER, "F", "user=bob")
    world.settle()
    assert [granted(each) for each in world.sites.values()] == [{"carol"}] * 2


@pytest.mark.parametrize("lost", ["index", "folder"])
def test_rights_are_granted_again_only_where_the_folder_is_made_again(rights, lost):
    world, granted, annotated = rights
    site = world[2]
    site.work(CLOSE)
    site.disconnect()
    site.doveadm("acl", "delete", "-u", USER, "F", "user=bob")
    for path in list(site.root().rglob("*")):
        if lost == "folder" and path.name in ("F", ".F"):
            shutil.rmtree(path)
        elif lost == "index" and path.name.startswith("dovecot.index") and "F" in str(path.relative_to(site.root())):
            path.unlink()
    (site.home() / "attributes").unlink()
    world.settle()
    world.settle()
    assert granted(world[1]) == {"bob", "carol"}
    assert granted(site) == ({"carol"} if lost == "index" else {"bob", "carol"})
    assert annotated(site) == {"comment", "other"}


@pytest.mark.parametrize("kept", ["admin", "lookup"])
def test_a_user_who_takes_his_own_rights_away_keeps_his_folder(rights, kept):
    """Before, it was lost at both sites, and made again when he gave them back at one; the other site never heard of that."""
    world, granted, _ = rights

    def owner(site):
        said = site.doveadm("acl", "get", "-u", USER, "F").decode()
        return sorted(line.split()[1:] for line in said.splitlines() if line.split()[0] == "owner")
    before = equal(world)
    guids = [guid_of(site, "F") for site in world.sites.values()]
    world[1].doveadm("acl", "set", "-u", USER, "F", "owner", kept)
    for _ in range(2):
        world.settle()
        for site in world.sites.values():
            site.work(CLOSE)
    assert [owner(site) for site in world.sites.values()] == [[[kept]]] * 2
    append(world[1], "INBOX", "elsewhere")
    world.settle()
    world[2].doveadm("acl", "delete", "-u", USER, "F", "owner")
    for _ in range(2):
        world.settle()
    assert [owner(site) for site in world.sites.values()] == [[]] * 2
    assert [guid_of(site, "F") for site in world.sites.values()] == guids
    assert equal(world)["F"] == before["F"] and granted(world[1]) == granted(world[2]) == {"bob", "carol"}
    assert not any("is gone" in said for site in world.sites.values() for _, said in site.notes)


def scripts(site):
    return sorted(line.split() for line in site.doveadm("sieve", "list", "-u", USER).decode().splitlines())


def two_scripts(world, text):
    """Everywhere: mine, which is active, and other. The file that they were put from."""
    script = world[1].base / "script"
    script.write_text(text)
    world.settle()
    world[1].doveadm("sieve", "put", "-u", USER, "-a", "mine", str(script))
    world[1].doveadm("sieve", "put", "-u", USER, "other", str(script))
    world.settle()
    return script


@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
def test_sieve_scripts_and_the_active_one(world):
    script = two_scripts(world, 'require "fileinto";\nfileinto "X";\n')
    assert scripts(world[2]) == [["mine", "ACTIVE"], ["other"]]
    world[2].doveadm("sieve", "delete", "-u", USER, "other")
    world.settle()
    assert scripts(world[1]) == [["mine", "ACTIVE"]]
    before = [s.admin("status")[0] for s in world.sites.values()]
    world.settle()
    assert [s.admin("status")[0] for s in world.sites.values()] == before
    # A directory that is lost is no deletion, also when Pigeonhole has made it anew, and is filled again; one that was emptied is.
    for anew in (False, True):
        world[2].work(CLOSE)
        shutil.rmtree(world[2].home() / "sieve")
        if anew:
            assert scripts(world[2]) == []
            assert (world[2].home() / "sieve").is_dir()
        world.settle()
        assert [scripts(s) for s in world.sites.values()] == [[["mine", "ACTIVE"]]] * 2
        assert world[2].doveadm("sieve", "get", "-u", USER, "mine").replace(b"\r\n", b"\n").endswith(script.read_bytes())
    world[2].doveadm("sieve", "deactivate", "-u", USER)
    world[2].doveadm("sieve", "delete", "-u", USER, "mine")
    world.settle()
    assert scripts(world[1]) == [] and scripts(world[2]) == []


@pytest.mark.long
@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
@pytest.mark.parametrize("first", [".dovecot.sieve", "sieve/mine.sieve"])
def test_a_look_at_a_home_that_is_being_removed_deletes_no_script(world, first):
    """Files go one after the other, and a look may come between: no script and no activation is taken back at the other site. What goes on its own is."""
    two_scripts(world, "keep;\n")
    both = [["mine", "ACTIVE"], ["other"]]
    assert scripts(world[2]) == both
    (world[2].home() / first).unlink()
    world[2].ingest()
    while world.carry():
        pass
    assert scripts(world[1]) == both
    shutil.rmtree(world[2].home() / "sieve")
    (world[2].home() / ".dovecot.sieve").unlink(missing_ok=True)
    world.settle()
    assert [scripts(s) for s in world.sites.values()] == [both] * 2
    (world[2].home() / first).unlink()
    world.settle()
    kept = [["mine"], ["other"]] if first.startswith(".") else [["other"]]
    assert [scripts(s) for s in world.sites.values()] == [kept] * 2


def next_second():
    """A change that is later than a file's birth, or than what was seen, is in another second."""
    time.sleep(1.1)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_right_that_was_revoked_does_not_come_back_with_a_backup(rights, number, opened):
    """Of the mailbox' directory alone, while the state is kept, and the user is open there or not. Nor does one that was reduced."""
    world, granted, _ = rights
    site, backup = world[number], world[number].base / "backup"

    def grant(each, who, *what):
        each.doveadm("acl", "set", "-u", USER, "F", f"user={who}", *what)

    def carol(each):
        return each.doveadm("acl", "get", "-u", USER, "F").decode().split("user=carol")[1].split("\n")[0].split()
    grant(site, "carol", "lookup", "read", "write", "insert")
    world.settle()
    site.work(CLOSE)
    copy_owned(directory_of(site, "F"), backup)
    site.doveadm("acl", "delete", "-u", USER, "F", "user=bob")
    grant(site, "carol", "lookup", "read", "write")
    world.settle()
    assert [granted(each) for each in world.sites.values()] == [{"carol"}] * 2
    if not opened:
        site.work(CLOSE)
        site.disconnect()
    copy_owned(backup, directory_of(site, "F"))
    assert granted(site) == {"bob", "carol"}
    world.settle()
    world.settle()
    assert [granted(each) for each in world.sites.values()] == [{"carol"}] * 2
    assert [carol(each) for each in world.sites.values()] == [["lookup", "read", "write"]] * 2
    # What is granted afterwards is.
    grant(site, "bob", "lookup", "read")
    world.settle()
    assert [granted(each) for each in world.sites.values()] == [{"bob", "carol"}] * 2


def test_rights_that_an_editor_gave_are_found_by_a_resync(rights):
    world, granted, _ = rights
    site = world[2]
    (path,) = directory_of(site, "F").rglob("dovecot-acl")
    text = path.read_text()
    path.write_text(text + "user=dave lr\n")
    assert "user=dave" in path.read_text() and granted(site) == {"bob", "carol"}
    site.admin("resync")
    world.settle()
    assert b"user=dave" in world[1].doveadm("acl", "get", "-u", USER, "F")


def test_a_right_that_is_less_than_what_was_granted_is_left_as_it_is(rights):
    """Of a backup, or its owner's word of which the index that is lost had told: nobody is granted anything."""
    world, _, _ = rights
    site, backup = world[2], world[2].base / "backup"

    def carol(each):
        return each.doveadm("acl", "get", "-u", USER, "F").decode().split("user=carol")[1].split("\n")[0].split()
    site.work(CLOSE)
    copy_owned(directory_of(site, "F"), backup)
    site.doveadm("acl", "set", "-u", USER, "F", "user=carol", "lookup", "read", "write")
    world.settle()
    site.work(CLOSE)
    site.disconnect()
    copy_owned(backup, directory_of(site, "F"))
    world.settle()
    world.settle()
    assert [carol(each) for each in world.sites.values()] == [["lookup", "read", "write"], ["lookup", "read"]]
    assert any("user=carol has less rights" in said for _, said in site.notes), site.notes


def test_a_right_that_is_granted_in_a_restored_mailbox_before_anybody_looks(rights):
    world, granted, _ = rights
    site, backup = world[2], world[2].base / "backup"
    site.work(CLOSE)
    copy_owned(directory_of(site, "F"), backup)
    for who in ("bob", "carol"):
        site.doveadm("acl", "delete", "-u", USER, "F", f"user={who}")
    world.settle()
    site.work(CLOSE)
    site.disconnect()
    copy_owned(backup, directory_of(site, "F"))
    next_second()
    site.doveadm("acl", "set", "-u", USER, "F", "user=bob", "lookup", "read")
    world.settle()
    world.settle()
    assert [granted(each) for each in world.sites.values()] == [{"bob"}] * 2


@pytest.mark.long
@pytest.mark.parametrize("restored", ["mailbox", "home", "values"])
def test_old_metadata_do_not_come_back_with_a_backup(world, restored):
    """The values are in a dictionary of their own: with the mailbox, with all of the home but the state, or alone."""
    site, backup = world[2], world[2].base / "backup"

    def put(key, value, each=site):
        words = ["set" if value else "unset", "-u", USER, "F", f"/private/{key}"] + ([value] if value else [])
        each.doveadm("mailbox", "metadata", *words)

    def get(each, key):
        return each.doveadm("mailbox", "metadata", "get", "-u", USER, "F", f"/private/{key}").strip().decode()
    imap(world[1], None, ("create", "F"))
    append(world[1], "F", "one")
    for key in ("comment", "other"):
        put(key, "old", world[1])
    world.settle()
    site.work(CLOSE)
    copy_owned(site.home(), backup)
    put("comment", "new")
    put("other", None)
    put("third", "here")
    world.settle()
    site.work(CLOSE)
    site.disconnect()
    shutil.copy2(backup / "attributes", site.home() / "attributes.new")
    os.replace(site.home() / "attributes.new", site.home() / "attributes")
    shutil.chown(site.home() / "attributes", "nobody", "nogroup")
    folder = directory_of(site, "F")
    if restored == "mailbox":
        copy_owned(backup / folder.relative_to(site.home()), folder)
    elif restored == "home":
        copy_owned(site.state(), backup / site.root().name / "dovelane")
        copy_owned(backup, site.home())
    assert get(site, "comment") == "old"
    world.settle()
    site.work(CLOSE)
    put("unrelated", "x")
    world.settle()
    told = [[get(each, key) for key in ("comment", "other")] for each in world.sites.values()]
    if restored == "values":  # nothing tells that they changed: what is there is seen when all of the mailbox is looked at
        site.admin("join")
        for _ in range(2):
            world.settle()
        told = [[get(each, key) for key in ("comment", "other")] for each in world.sites.values()]
    assert told == [["new", ""]] * 2
    assert [get(each, "third") for each in world.sites.values()] == ["here"] * 2
    # A user may say the old thing again.
    put("comment", "old")
    world.settle()
    assert [get(each, "comment") for each in world.sites.values()] == ["old"] * 2


def test_what_a_user_set_to_an_old_value_while_nobody_looked_is_his(world):
    site = world[1]
    imap(site, None, ("create", "F"))
    for value in ("old", "new"):
        site.doveadm("mailbox", "metadata", "set", "-u", USER, "F", "/private/comment", value)
        world.settle()
    site.work(CLOSE)
    site.disconnect()
    site.doveadm("mailbox", "metadata", "set", "-u", USER, "F", "/private/comment", "old")
    world.settle()
    assert [each.doveadm("mailbox", "metadata", "get", "-u", USER, "F", "/private/comment").strip() for each in world.sites.values()] == [b"old"] * 2


@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
def test_a_script_is_seen_while_nothing_happens_in_the_inbox(world):
    """No log and no hint tells of it."""
    script = world[1].base / "script"
    append(world[1], "INBOX", "one")
    world.settle()
    world.settle()
    for text in ("keep; # one", "keep; # two"):
        script.write_text(text)
        world[1].doveadm("sieve", "put", "-u", USER, "mine", str(script))
        world.settle()
        assert world[2].doveadm("sieve", "get", "-u", USER, "mine").decode().splitlines()[-1] == text


@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
@pytest.mark.parametrize("restored", ["the directory", "its files", "another one"])
def test_old_sieve_scripts_do_not_come_back_with_a_backup(world, restored):
    """The directory as it was, its files over those that are there (rsync), or one whose files have other times (cp)."""
    site, backup = world[2], world[2].base / "backup"
    scripts, active = site.home() / "sieve", site.home() / ".dovecot.sieve"

    def put(name, text, each=site):
        script = each.base / "script"
        script.write_text(text)
        each.doveadm("sieve", "put", "-u", USER, name, str(script))

    def shown():
        found = []
        for each in world.sites.values():
            names = [line.split() for line in each.doveadm("sieve", "list", "-u", USER).decode().splitlines()]
            found.append({name: (each.doveadm("sieve", "get", "-u", USER, name).decode().splitlines()[-1], *more) for name, *more in names})
        assert found[0] == found[1]
        return found[0]
    world.settle()
    for name in ("changed", "gone", "kept"):
        put(name, "keep; # old")
    site.doveadm("sieve", "activate", "-u", USER, "kept")
    world.settle()
    copy_owned(scripts, backup)
    link = os.readlink(active)
    next_second()
    put("changed", "keep; # new")
    put("since", "keep; # since")
    site.doveadm("sieve", "delete", "-u", USER, "gone")
    site.doveadm("sieve", "activate", "-u", USER, "changed")
    world.settle()
    now = {"changed": ("keep; # new", "ACTIVE"), "kept": ("keep; # old",), "since": ("keep; # since",)}
    assert shown() == now
    site.work(CLOSE)
    site.disconnect()
    if restored == "its files":
        for path in scripts.glob("*.sieve"):
            path.unlink()
        for path in backup.glob("*.sieve"):
            shutil.copy2(path, scripts)
            shutil.chown(scripts / path.name, "nobody", "nogroup")
    else:
        copy_owned(backup, scripts)
        for path in scripts.glob("*.sieve") if restored == "another one" else []:
            os.utime(path)
    active.unlink()
    active.symlink_to(link)
    world.settle()
    world.settle()
    assert shown() == now
    # A user may say the old thing again.
    put("changed", "keep; # old")
    put("gone", "keep; # old")
    site.doveadm("sieve", "activate", "-u", USER, "kept")
    world.settle()
    assert shown() == {"changed": ("keep; # old",), "gone": ("keep; # old",), "kept": ("keep; # old", "ACTIVE"), "since": ("keep; # since",)}


def subscribed(world):
    """The names, alike at all sites."""
    found = []
    for each in world.sites.values():
        box = each.imap()
        found.append({line.split()[-1].decode().strip('"') for line in box.lsub()[1] if line})
        box.logout()
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("number", [1, 2])
def test_subscriptions_that_are_lost_come_back(world, number):
    """Few of them or many; and what a client subscribed in the new file stays."""
    site = world[number]
    for names in ({"A", "B"}, {"A", "B", "C", "D", "E"}):
        world.settle()
        subscribe(world[1], *sorted(names))
        world.settle()
        site.work(CLOSE)
        site.disconnect()
        (site.root() / "subscriptions").unlink()
        subscribe(site, "New")
        for _ in range(2):
            world.settle()
        assert subscribed(world) == names | {"New"}


@pytest.mark.parametrize("number", [1, 2])
def test_what_clients_unsubscribe_goes_everywhere_however_much_it_is(world, number):
    names = ["A", "B", "C", "D", "E"]
    world.settle()
    subscribe(world[1], *names, "INBOX")
    world.settle()
    assert subscribed(world) >= {*names, "INBOX"}
    subscribe(world[number], *names, "INBOX", on=False)
    world.settle()
    assert not subscribed(world) & {*names, "INBOX"}
    subscribe(world[number], "A")
    world.settle()
    assert "A" in subscribed(world)


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_who_subscribes_again_wins_over_who_unsubscribes_meanwhile(world, number):
    """Between two looks the list is as it was: only what the plugin wrote tells of it."""
    world.settle()
    subscribe(world[1], "A", "B")
    world.settle()
    subscribe(world[number], "A", on=False)
    subscribe(world[number], "A")
    subscribe(world[3 - number], "A", "B", on=False)
    world.settle()
    assert subscribed(world) & {"A", "B"} == {"A"}
    subscribe(world[3 - number], "A", on=False)
    world.settle()
    assert "A" not in subscribed(world)


@pytest.mark.parametrize("number", [1, 2])
def test_an_old_file_of_subscriptions_is_no_users_doing(world, number):
    site = world[number]
    world.settle()
    subscribe(world[1], "A", "B", "C")
    world.settle()
    old = (site.root() / "subscriptions").read_bytes()
    subscribe(world[1], "A", "B", on=False)
    subscribe(world[2], "Since", "Also")
    world.settle()
    now = subscribed(world)
    assert now == {"C", "Since", "Also"}
    site.work(CLOSE)
    site.disconnect()
    (site.root() / "subscriptions").write_bytes(old)
    subscribe(site, "B")
    for _ in range(2):
        world.settle()
    assert subscribed(world) == now | {"B"}


def test_what_is_unsubscribed_without_the_plugin_is_subscribed_again(world):
    world.settle()
    subscribe(world[1], "A", "B")
    world.settle()
    world[2].doveadm("mailbox", "unsubscribe", "-u", USER, "A")
    world.settle()
    assert subscribed(world) == {"A", "B"}


def test_many_keywords(world):
    append(world[1], "INBOX", "one")
    imap(world[1], "INBOX", *[("store", "1", "+FLAGS", f"(Kw{i:02})") for i in range(30)])
    world.settle()
    now = equal(world)
    assert len(now["INBOX"][1][0][1]) == 30
