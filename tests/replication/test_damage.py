"""One replica's files are deleted, spoilt or rolled back while it runs: no other loses a mail, and this one is whole again."""
import contextlib
import gzip
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import conftest
import pytest
from site_user import Site
from support.stack import digest
from support.stack.digest import wait_equal, wait_shape
from support.stack.group import FAST, Group, remove_tree
from support.stack.imap import ImapError, Lost

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "waits@example.org"
STORAGES = ["sdbox", pytest.param("mdbox", marks=pytest.mark.exhaustive), "maildir"]


@pytest.fixture(scope="module", params=STORAGES)
def pair(request):
    conftest.need()
    with Group(request.param, "sdbox", extras=("acl", "sieve")) as group:
        yield group
        told = conftest.panics(group)
    assert not told, told


def fill(group, user):
    """Folders, flags and keywords, subscriptions, annotations, rights and scripts at A; equal at both."""
    with Site(group.replicas[0], user) as a:
        a.create("F")
        a.create("F/G")
        for n in range(8):
            a.append("INBOX", f"m{n}", *(["\\Seen", "kw"] if n % 2 else ["\\Flagged"]))
        for n in range(4):
            a.append("F", f"f{n}", "\\Answered")
        a.append("F/G", "g")
        a.copy("INBOX", "m1", "F")
        a.copy("INBOX", "m0", "INBOX")
        for folder in ("INBOX", "F/G"):
            a.subscribe(folder)
            a.annotate(folder, "/private/comment", f"of {folder}")
            a.annotate(folder, "/shared/comment", f"for all of {folder}")
        a.annotate("", "/private/vendor/vendor.dovelane/all", "of the server")
        a.grant("F", "bob", "lrs")
        a.script("mine", "keep;", active=True)
        a.script("other", "discard;")
    return wait_equal(group.replicas, [user], WITHIN)[user]["dovecot-b"]


def work(group, user):
    """Some more of everything, at both sites; equal again. The digest of now."""
    a, b = (Site(replica, user) for replica in group.replicas)
    with a, b:
        a.append("INBOX", "n0", "\\Seen")
        a.expunge("INBOX", "m2")
        a.flag("INBOX", "m3", "-", "\\Seen")
        a.flag("INBOX", "m4", "+", "later")
        b.append("F", "n1")
        b.expunge("F", "f1")
        b.append("INBOX", "n2", "kw2")
        a.subscribe("F")
        a.annotate("F", "/private/comment", "later")
        b.annotate("F/G", "/private/comment", None)
        b.script("other", "keep; # later")
    return wait_equal(group.replicas, [user], WITHIN)[user]["dovecot-b"]


def named(found):
    """What a digest has beside mails."""
    return found.subscribed, found.attributes


def files(replica, user, *patterns):
    found = [path for pattern in patterns for path in replica.store(user).rglob(pattern)]
    assert found, f"nothing fits {patterns} below {replica.store(user)}"
    return found


def remove(paths):
    for path in paths:
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink()


def indexes(replica, user):
    remove(files(replica, user, "dovecot.index", "dovecot.index.log", "dovecot.index.cache", "dovecot.map.index*")
           if replica.note["storage"] == "mdbox" else files(replica, user, "dovecot.index", "dovecot.index.log", "dovecot.index.cache"))


def inbox_index_log(replica, user):
    """Only the log: what a crash of the file system can leave."""
    remove(files(replica, user, "dovecot.index.log"))


def uidlist(replica, user):
    if replica.note["storage"] != "maildir":
        pytest.skip("only Maildir has one")
    remove(files(replica, user, "dovecot-uidlist"))


def state(replica, user):
    remove(files(replica, user, "state.db*"))


def state_spoilt(replica, user):
    for path in files(replica, user, "state.db"):
        path.write_bytes(b"this is no database\n" * 1000)


def control(replica, user):
    """All of Dovelane's files of the user."""
    remove(files(replica, user, "dovelane"))


def mails(replica, user):
    """The directories that hold mail are emptied, as by an unmounted disk."""
    storage = replica.note["storage"]
    if storage == "maildir":
        remove([path for folder in files(replica, user, "new", "cur") for path in folder.iterdir()])
    elif storage == "sdbox":
        remove(files(replica, user, "u.*"))
    else:
        remove(files(replica, user, "m.*"))


def store(replica, user):
    remove_tree(replica.store(user))


def home(replica, user):
    remove_tree(replica.home(user))


DAMAGE = [indexes, inbox_index_log, uidlist, state, state_spoilt, control, mails, store, home]


@pytest.mark.parametrize("session", ["idle", "open"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_mended_from_the_peer(pair, damage, session):
    """`open`: a client has the INBOX selected meanwhile, and another one comes right after."""
    user = f"{damage.__name__.replace('_', '-')}-{session}@example.org"
    a, b = pair.replicas
    fill(pair, user)
    whole = work(pair, user)
    wanted = whole.shape()
    client = a.imap(user) if session == "open" else None
    if client:
        client.select("INBOX")
    damage(a, user)
    if client:
        client.drop()
    with Site(b, user) as other:         # traffic at the peer: the damaged site must also take what comes
        other.append("INBOX", "after", "\\Flagged")
    wanted["INBOX"]["after"] = [("\\flagged",)]
    seen = wait_shape(b, user, wanted, 1)
    assert seen is None, f"B lost something at once: {seen}"
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(1)   # a removal that was published late would show here
    digests = wait_equal(pair.replicas, [user], WITHIN)[user]
    assert digests["dovecot-b"].shape() == wanted, f"B shows {digests['dovecot-b'].shape()}"
    assert digests["dovecot-a"].shape() == wanted
    assert named(digests["dovecot-a"]) == named(whole)
    with Site(a, user) as site:          # and A still works
        site.append("INBOX", "last")
    wanted["INBOX"]["last"] = [()]
    assert wait_shape(b, user, wanted, WITHIN) is None


@pytest.mark.test
@pytest.mark.parametrize("what", ["home", "mail", "state"])
def test_rolled_back(pair, what):
    """An old backup is put in the place of the whole home, of the mail (the state stays), or of the state (the mail stays)."""
    user = f"back-{what}@example.org"
    a, b = pair.replicas
    first = fill(pair, user)
    kept = a.snapshot(user, what)
    whole = work(pair, user)
    wanted = whole.shape()
    a.restore(kept)
    with Site(b, user) as other:
        other.append("INBOX", "after")
    wanted["INBOX"]["after"] = [()]
    digests = wait_equal(pair.replicas, [user], WITHIN)[user]
    shape = digests["dovecot-b"].shape()
    if what == "mail":
        # m2 and f1 were expunged since the backup was made. The restored mail is there again by an admin's hand, not by a lost
        # removal: it may come back, and is then equal everywhere.
        for folder, name in (("INBOX", "m2"), ("F", "f1")):
            shape[folder].pop(name, None)
    assert shape == wanted
    found = digests["dovecot-b"]
    if what == "mail":
        # So may older scripts, annotations and subscriptions; of what the backup and the site both had nothing goes.
        assert first.subscribed <= found.subscribed <= whole.subscribed
        assert first.attributes.keys() & whole.attributes.keys() <= found.attributes.keys()
        assert found.attributes.items() <= first.attributes.items() | whole.attributes.items()
    else:
        assert named(found) == named(whole)
    time.sleep(1)
    wait_equal(pair.replicas, [user], WITHIN)
    with Site(a, user) as site:
        site.append("INBOX", "last")
        site.expunge("INBOX", "m5")
    shapes = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert "last" in shapes["INBOX"] and "m5" not in shapes["INBOX"]


@pytest.mark.parametrize("what", ["home", "mail"])
def test_subscriptions_and_annotations_of_an_old_backup_are_no_users_doing(pair, what):
    """With the state or without, before anybody else is there."""
    user = f"names-back-{what}@example.org"
    a, b = pair.replicas

    def shown(replica):
        try:
            found = digest.read(replica, user)
        except Lost as lost:     # a mailbox may get another UIDVALIDITY now, which ends a session that has it
            return str(lost)
        return found.subscribed, {key: value for key, value in found.attributes.items() if key[0] == "F"}

    def wait_shown(wanted):
        for replica in pair.replicas:
            end = time.monotonic() + WITHIN
            while shown(replica) != wanted:
                assert time.monotonic() < end, f"{replica.name} shows {shown(replica)}"
                time.sleep(0.2)
    with Site(a, user) as site:
        for folder in ("F", "G", "H", "I", "J"):
            site.create(folder)
            site.subscribe(folder)
        site.annotate("F", "/private/comment", "old")
        site.annotate("F", "/shared/comment", "old")
    old = {("F", "/private/comment"): "old", ("F", "/shared/comment"): "old"}
    wait_shown((frozenset("FGHIJ"), old))
    kept = a.snapshot(user, what)
    with Site(a, user) as site:
        for folder in ("F", "G", "H", "I"):
            site.subscribe(folder, on=False)
        for folder in ("since", "INBOX"):
            if folder != "INBOX":
                site.create(folder)
            site.subscribe(folder)
        site.annotate("F", "/private/comment", "new")
        site.annotate("F", "/shared/comment", None)
    now = frozenset({"J", "since", "INBOX"}), {("F", "/private/comment"): "new"}
    wait_shown(now)
    a.restore(kept)
    a.doveadm("dovelane", "resync", "-u", user)
    wait_shown(now)
    time.sleep(1)
    wait_shown(now)
    wait_equal(pair.replicas, [user], WITHIN)
    with Site(a, user) as site:
        site.subscribe("F")
        site.subscribe("J", on=False)
        site.annotate("F", "/private/comment", "old")
    wait_shown((frozenset({"F", "since", "INBOX"}), {("F", "/private/comment"): "old"}))


def test_numbers_are_not_used_twice_after_a_rollback(pair):
    """The state is rolled back, and the next local changes come before the peer is heard: they must not take old numbers."""
    user = "numbers@example.org"
    a, b = pair.replicas
    fill(pair, user)
    kept = a.snapshot(user, "home")
    work(pair, user)
    pair.cut()
    a.restore(kept)
    with Site(a, user) as site:
        for n in range(6):
            site.append("INBOX", f"late{n}")
    time.sleep(2)
    pair.heal()
    shape = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    names = {"m0", "m1", "m3", "m4", "m5", "m6", "m7", "n0", "n2", *(f"late{n}" for n in range(6))}
    assert set(shape["INBOX"]) == names, f"{sorted(names ^ set(shape['INBOX']))} differ"


def vanish(group, user, count=40, gone=30):
    """Files of many mails disappear at A without anybody's request."""
    a = group.replicas[0]
    if a.note["storage"] == "mdbox":
        pytest.skip("mdbox has no file of one mail")
    with Site(a, user) as site:
        for n in range(count):
            site.append("INBOX", f"m{n}")
    wait_equal(group.replicas, [user], WITHIN)
    a.doveadm("dovelane", "resync", "-u", user)   # mails that got their UIDs since the last look would not count as left
    wanted = wait_equal(group.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    store = a.store(user)
    found = sorted(path for pattern in ("cur/*", "new/*", "mailboxes/INBOX/dbox-Mails/u.*") for path in store.glob(pattern))
    assert len(found) == count
    remove(found[:gone])
    if a.note["storage"] == "sdbox":    # nothing notices until somebody looks
        subprocess.run(a.entered("doveadm", "-c", a.note["inner_config"], "fetch", "-u", user, "text", "mailbox", "INBOX", "ALL"),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    a.doveadm("mailbox", "status", "-u", user, "messages", "INBOX")
    return wanted


def held(replica, user):
    """Until the replica says that it holds what vanished; nothing of it may have left by then."""
    end = time.monotonic() + WITHIN
    said = f"user={user}: INBOX: 30 mails are gone though no client removed them"
    while said not in Path(replica.log).read_text(errors="replace"):
        assert time.monotonic() < end, f"{replica.name} never said that it holds 30 mails of {user}"
        time.sleep(0.2)


def test_the_brake_holds_and_restore_brings_back(pair):
    user = "brake-restore@example.org"
    wanted = vanish(pair, user)
    a, b = pair.replicas
    if a.note["storage"] == "maildir":
        held(a, user)
    time.sleep(6)    # several sweeps
    assert digest.read(b, user).shape() == wanted, "B removed what merely vanished at A"
    if a.note["storage"] == "maildir":      # in dbox nobody removes files by hand: they are fetched back at once
        assert b"restored=30" in a.doveadm("dovelane", "restore", "-u", user)
    wait_equal(pair.replicas, [user], WITHIN)
    assert digest.read(a, user).shape() == wanted


def test_the_brake_holds_and_accept_removes(pair):
    if pair.replicas[0].note["storage"] != "maildir":
        pytest.skip("in dbox a file that is gone is damage, never a removal")
    user = "brake-accept@example.org"
    wanted = vanish(pair, user)
    a, b = pair.replicas
    held(a, user)
    time.sleep(4)
    assert digest.read(b, user).shape() == wanted, "B removed what merely vanished at A"
    assert b"held=30" in a.doveadm("dovelane", "status", "-u", user)
    assert b"accepted=30" in a.doveadm("dovelane", "accept", "-u", user)
    digests = wait_equal(pair.replicas, [user], WITHIN)[user]
    assert digests["dovecot-b"].count() == 10


def test_what_vanishes_is_not_counted_while_more_may_go(group):
    """Somebody empties a Maildir slowly: the first files alone are fewer than the brake lets go."""
    user = "slowly@example.org"
    there = group("maildir", "sdbox", settings={**FAST, "brake_wait": "1h"})
    a, b = there.replicas
    with Site(a, user) as site:
        for n in range(12):
            site.append("INBOX", f"m{n}")
    wait_equal(there.replicas, [user], WITHIN)
    a.doveadm("dovelane", "resync", "-u", user)
    wanted = wait_equal(there.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    store = a.store(user)
    for count in (3, 2):
        gone = 0
        while gone < count:     # their names change while UIDs are settled
            with contextlib.suppress(FileNotFoundError):
                next(path for pattern in ("cur/*", "new/*") for path in store.glob(pattern)).unlink()
                gone += 1
        a.doveadm("mailbox", "status", "-u", user, "messages", "INBOX")
        time.sleep(6)     # several sweeps
        assert digest.read(b, user).shape() == wanted, "B removed what had just begun to vanish at A"


def test_delivery_while_the_uidlist_is_locked(pair):
    """Maildir answers OK and its index does not grow: the sweep must find the mail."""
    a, b = pair.replicas
    if a.note["storage"] != "maildir":
        pytest.skip("only Maildir has a uidlist")
    user = "locked@example.org"
    with Site(a, user) as site:
        site.append("INBOX", "m")
    wait_equal(pair.replicas, [user], WITHIN)
    lock = a.store(user) / "dovecot-uidlist.lock"
    lock.write_text("")
    os.utime(lock)
    try:
        with Site(a, user) as site:
            site.deliver("n")
    finally:
        lock.unlink(missing_ok=True)
    assert wait_shape(b, user, {"INBOX": {"m": [()], "n": [()]}}, WITHIN) is None


def test_what_clients_expunged_is_known_when_the_index_was_rebuilt_before_anybody_looked(pair):
    """Two rebuilds, each throws a log away; a mail that a rebuild merely did not find is no client's removal."""
    user = "rebuilt@example.org"
    a, b = pair.replicas
    with Site(a, user) as site:
        for name in ("m", "n", "o", "p"):
            site.append("INBOX", name)
        site.create("F")
        site.append("F", "f")
        site.append("F", "g", "\\Seen")
    wait_equal(pair.replicas, [user], WITHIN)
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        for folder, name in (("INBOX", "m"), ("INBOX", "n"), ("F", "f")):
            with Site(a, user) as site:
                site.expunge(folder, name)
                if folder == "F":
                    site.flag("F", "g", "-", "\\Seen")
            a.doveadm("force-resync", "-u", user, "*")
        assert a.note["storage"] == "maildir" or list(a.store(user).rglob("dovelane.index.log-*"))
        if a.note["storage"] == "sdbox":
            last = max(a.store(user).rglob("INBOX/dbox-Mails/u.*"), key=lambda path: int(path.name[2:]))
            last.unlink()       # p
            a.doveadm("force-resync", "-u", user, "INBOX")
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(b, user) as site:
        site.append("INBOX", "x")
    wanted = {"INBOX": {name: [()] for name in ("o", "p", "x")}, "F": {"g": [()]}}
    assert wait_shape(a, user, wanted, WITHIN) is None
    assert wait_shape(b, user, wanted, WITHIN) is None
    wait_equal(pair.replicas, [user], WITHIN)
    assert not list(a.store(user).rglob("dovelane.index.log-*"))


def test_what_clients_did_after_the_index_was_rebuilt_is_known(pair):
    """A flag cleared, a keyword cleared, a mail expunged: in the log that the rebuild began, before anybody looked."""
    user = "after@example.org"
    a, b = pair.replicas
    with Site(a, user) as site:
        for name in ("m", "n", "o"):
            site.append("INBOX", name, "\\Seen", "work")
    wait_equal(pair.replicas, [user], WITHIN)
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        with Site(a, user) as site:
            site.append("INBOX", "p")
        a.doveadm("force-resync", "-u", user, "INBOX")
        with Site(a, user) as site:
            site.flag("INBOX", "m", "-", "\\Seen")
            site.flag("INBOX", "m", "+", "\\Flagged")
            site.flag("INBOX", "n", "-", "work")
            if a.note["storage"] != "mdbox":    # of which the plugin keeps a log only where a client asked for something in it
                site.expunge("INBOX", "o")
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(b, user) as site:
        site.append("INBOX", "x")
    wanted = {"INBOX": {"m": [("\\flagged", "work")], "n": [("\\seen",)], "p": [()], "x": [()]}}
    if a.note["storage"] == "mdbox":
        wanted["INBOX"]["o"] = [("\\seen", "work")]
    assert wait_shape(a, user, wanted, WITHIN) is None
    assert wait_shape(b, user, wanted, WITHIN) is None
    wait_equal(pair.replicas, [user], WITHIN)


def test_what_clients_did_before_dovecot_rebuilt_an_index_by_itself_is_known(pair):
    """A mail's file is lost, and a client asks for it: his session makes the index anew."""
    user = "by-itself@example.org"
    a, b = pair.replicas
    if a.note["storage"] != "sdbox":
        pytest.skip("a file of one mail is lost")
    with Site(a, user) as site:
        for name in ("m", "n", "o", "p"):
            site.append("INBOX", name, "\\Seen", "work")
    wait_equal(pair.replicas, [user], WITHIN)
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        with Site(a, user) as site:
            site.flag("INBOX", "m", "-", "\\Seen")
            site.flag("INBOX", "n", "-", "work")
            site.expunge("INBOX", "o")
        [path] = a.store(user).rglob("INBOX/dbox-Mails/u.4")
        path.unlink()
        session = a.imap(user)
        session.select("INBOX")
        with contextlib.suppress(ImapError, Lost):
            session.command("UID FETCH 4 BODY.PEEK[]")
            session.command("NOOP")
        session.drop()
        end = time.monotonic() + WITHIN     # at the session's end
        while not list(a.store(user).rglob("dovelane.index.log-*")) and time.monotonic() < end:
            time.sleep(0.1)
        assert list(a.store(user).rglob("dovelane.index.log-*")), "the index was not made anew: this test shows nothing"
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(b, user) as site:
        site.append("INBOX", "x")
    wanted = {"INBOX": {"m": [("work",)], "n": [("\\seen",)], "p": [("\\seen", "work")], "x": [()]}}
    assert wait_shape(a, user, wanted, WITHIN) is None
    assert wait_shape(b, user, wanted, WITHIN) is None
    wait_equal(pair.replicas, [user], WITHIN)
    assert not list(a.store(user).rglob("dovelane.index.log-*"))


def test_an_expunge_in_a_rotated_log_is_known_after_a_rebuild(pair):
    user = "rotated@example.org"
    a, b = pair.replicas
    if a.note["storage"] == "maildir":
        pytest.skip("its log lasts")
    with Site(a, user) as site:
        for name in ("m", "n", "o"):
            site.append("INBOX", name)
    wait_equal(pair.replicas, [user], WITHIN)
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        with Site(a, user) as site:
            site.expunge("INBOX", "m")
        time.sleep(3)
        for flag in ("\\Flagged", "\\Answered"):
            a.doveadm("-o", "mail_index_log_rotate_min_size=1", "-o", "mail_index_log_rotate_max_size=1", "-o", "mail_index_log_rotate_min_age=1s",
                      "flags", "add", "-u", user, flag, "mailbox", "INBOX", "all")
            if list(a.store(user).rglob("INBOX/**/dovecot.index.log.2")):
                break
        assert list(a.store(user).rglob("INBOX/**/dovecot.index.log.2")), "the log was not rotated: this test shows nothing"
        a.doveadm("force-resync", "-u", user, "INBOX")
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(b, user) as site:
        site.append("INBOX", "x")
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(2)
    shape = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert set(shape["INBOX"]) == {"n", "o", "x"}, f"m was expunged by a client: {sorted(shape['INBOX'])}"


def test_a_log_from_a_backup_that_says_the_same_is_another_one(pair):
    """A mailbox's directory alone is restored while nobody looks. A mail gets the UID of one that came after the backup, by the same words in the log, and is expunged."""
    user = "restored-alone@example.org"
    a, b = pair.replicas
    with Site(a, user) as site:
        site.create("F")
        site.append("F", "m")
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(1)
    [directory] = [path for path in a.store(user).rglob("*") if path.name in ("F", ".F") and path.is_dir()]
    kept = a.home(user).with_name("kept-of-restored-alone")
    subprocess.run(["cp", "-a", str(directory), str(kept)], check=True)
    with Site(a, user) as site:
        site.append("F", "x")
        uid = site.uid("F", "x")
    wait_equal(pair.replicas, [user], WITHIN)
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        subprocess.run(["rm", "-rf", str(directory)], check=True)
        kept.rename(directory)
        with Site(a, user) as site:
            site.append("F", "y")
            assert site.uid("F", "y") == uid, "y has not x's UID: this test shows nothing"
            site.append("F", "z")
            site.expunge("F", "y")
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(b, user) as site:
        site.append("F", "after")
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(2)
    shape = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert {"m", "x", "z"} <= set(shape["F"]), f"x is gone at all sites, and nobody expunged it: {shape}"


def test_a_kept_log_from_after_the_backup_says_nothing_of_a_mail_with_the_same_uid(pair):
    """The whole home, state and all, is restored from a backup by copying over what is there: the kept log stays. Long after, a mail's file is lost."""
    user = "stale@example.org"
    a, b = pair.replicas
    if a.note["storage"] != "sdbox":
        pytest.skip("a file of one mail is lost")
    with Site(a, user) as site:
        site.append("INBOX", "m")
    wait_equal(pair.replicas, [user], WITHIN)
    kept = a.snapshot(user, "home")
    assert a.kill_some("dovelane-replicator", number=signal.SIGSTOP)
    try:
        with Site(a, user) as site:
            site.append("INBOX", "x")
            uid = site.uid("INBOX", "x")
            site.expunge("INBOX", "x")
        a.doveadm("force-resync", "-u", user, "INBOX")
        a.kill_some("dovelane-worker")
        subprocess.run(["cp", "-a", "--remove-destination", kept["kept"] + "/.", str(a.home(user))], check=True)
    finally:
        a.kill_some("dovelane-replicator", number=signal.SIGCONT)
    with Site(a, user) as site:
        site.append("INBOX", "y")
        assert site.uid("INBOX", "y") == uid, "y has not x's UID: this test shows nothing"
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(2)
    wait_equal(pair.replicas, [user], WITHIN)
    with Site(a, user) as site:
        now = site.uid("INBOX", "y")
    [path] = a.store(user).rglob(f"INBOX/dbox-Mails/u.{now[0]}")
    path.unlink()
    a.doveadm("force-resync", "-u", user, "INBOX")
    with Site(b, user) as site:
        site.append("INBOX", "after")
    wait_equal(pair.replicas, [user], WITHIN)
    time.sleep(2)
    shape = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert "y" in shape["INBOX"], f"y is gone at all sites, and nobody expunged it: {shape}"


def test_disk_full_at_the_receiver_loses_nothing(pair):
    """B cannot place mails (its home is not writable) while they come; then it can."""
    user = "full@example.org"
    a, b = pair.replicas
    with Site(a, user) as site:
        site.append("INBOX", "m")
    wait_equal(pair.replicas, [user], WITHIN)
    store = b.store(user)
    folders = [path for path in [store, *store.rglob("*")] if path.is_dir() and "dovelane" not in path.parts]
    for path in folders:
        path.chmod(0o500)
    try:
        with Site(a, user) as site:
            for n in range(5):
                site.append("INBOX", f"n{n}", "\\Seen")
            site.append("INBOX", "x")
            site.expunge("INBOX", "n0")
        with Site(a, "other@example.org") as other:      # others flow
            other.append("INBOX", "o")
        assert wait_shape(b, "other@example.org", {"INBOX": {"o": [()]}}, WITHIN) is None
        time.sleep(2)
    finally:
        for path in folders:
            path.chmod(0o700)
    shape = wait_equal(pair.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert set(shape["INBOX"]) == {"m", "n1", "n2", "n3", "n4", "x"}


def test_a_mail_that_cannot_be_read_now_behind_one_that_went_meanwhile(group):
    """That the one is gone is no word about the other: it waits, and goes when it can be read."""
    there = group("maildir@2.3", "sdbox@2.3", more={"2.3": "mail_plugins = $mail_plugins zlib\nplugin {\n  zlib_save = gz\n}\n"})
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m0")
    assert wait_shape(b, USER, {"INBOX": {"m0": [()]}}, WITHIN) is None
    held = [*a.processes("dovelane-replicator"), *a.processes("dovelane-worker")]
    for one in held:
        one.send(signal.SIGSTOP)
    with Site(a, USER) as site:
        site.append("INBOX", "m1", size=3000)
        site.append("INBOX", "m2", size=30000)
        site.imap.select("INBOX", again=True)
    files = {}
    for directory in ("new", "cur"):
        for path in (a.store(USER) / directory).iterdir():
            files[re.search(rb"(?m)^X-Mail: (\S+)", gzip.decompress(path.read_bytes()))[1].decode()] = path
    whole, times = files["m2"].read_bytes(), files["m2"].parent.stat()
    files["m2"].write_bytes(whole[:-8] + bytes(byte ^ 0x5a for byte in whole[-8:]))     # gzip's check sum and size
    files["m1"].unlink()
    os.utime(files["m2"].parent, ns=(times.st_atime_ns, times.st_mtime_ns))     # so that the look does not know it
    for one in held:
        one.send(signal.SIGCONT)
    assert there.wait_log(a, "cannot be read and waits", WITHIN)
    spoilt, = (path for path in files["m2"].parent.iterdir() if path.name.startswith(files["m2"].name.split(":")[0]))
    mended = a.store(USER) / "tmp" / "mended"   # at once: what is read while it is written would be the mail
    mended.write_bytes(whole)
    shutil.chown(mended, spoilt.owner(), spoilt.group())
    mended.rename(spoilt)
    assert wait_shape(b, USER, {"INBOX": {"m0": [()], "m2": [()]}}, WITHIN) is None, there.logs(USER)
