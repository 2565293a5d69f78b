"""What goes by a name: folders' names in other layouts, keywords, METADATA, Sieve scripts."""
import shutil

import pytest
from worker_sites import MIXES, append, equal, imap, mail, make_world, needs_dovecot, rotate_log, subjects
from worker_world import CLOSE, USER, pigeonhole

pytestmark = needs_dovecot


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


@pytest.mark.skipif(not pigeonhole(), reason="Pigeonhole is not installed")
def test_sieve_scripts_and_the_active_one(world):
    script = world[1].base / "script"
    script.write_text('require "fileinto";\nfileinto "X";\n')
    world.settle()
    world[1].doveadm("sieve", "put", "-u", USER, "-a", "mine", str(script))
    world[1].doveadm("sieve", "put", "-u", USER, "other", str(script))
    world.settle()

    def scripts(site):
        return sorted(line.split() for line in site.doveadm("sieve", "list", "-u", USER).decode().splitlines())
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


def test_many_keywords(world):
    append(world[1], "INBOX", "one")
    imap(world[1], "INBOX", *[("store", "1", "+FLAGS", f"(Kw{i:02})") for i in range(30)])
    world.settle()
    now = equal(world)
    assert len(now["INBOX"][1][0][1]) == 30
