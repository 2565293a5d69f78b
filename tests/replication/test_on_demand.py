"""A site with role = on-demand stores only the headers of large mails, and reads as any other."""
import contextlib
import poplib
import re
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
from peer_by_hand import Hand
from replica_disks import come_back, destroy
from site_user import Site, mail
from support.stack.digest import wait_equal
from support.stack.failure import StackError
from support.stack.group import FAST, remove_tree
from support.stack.imap import PASSWORD, ImapError, Lost
from support.waiting import eventually, logged
from test_unplaced import in_its_namespace

pytestmark = pytest.mark.long

USER = "thin@example.org"
WITHIN = 420.0
FORMATS = ["sdbox", "mdbox"]
LARGE = 1000000
NO_AFTER = {"2.3": "imap_fetch_failure = no-after\n", "2.4": "imap_fetch_failure = no-after\n"}
ITEMS = "RFC822.SIZE ENVELOPE INTERNALDATE BODYSTRUCTURE"
PARTS = (b"From: <sender@stack.example>\r\nSubject: parts\r\nX-Mail: parts\r\nMIME-Version: 1.0\r\n"
         b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
         b"--b\r\nContent-Type: image/png; name=p.png\r\nContent-Transfer-Encoding: base64\r\n\r\n"
         + b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA\r\n" * 3000 + b"--b--\r\n")


def used(replica, user=USER):
    """Bytes of the user's files below the mail directory, without the state and what was fetched."""
    return sum(path.stat().st_size for path in replica.store(user).rglob("*")
               if path.is_file() and "dovelane" not in path.parts)


def stub_lines(replica, user=USER):
    """How many lines of stubs his mails' files have."""
    return sum(path.read_bytes().count(b"X-Dovelane-Stub: 1 ") for path in replica.store(user).rglob("*")
               if path.is_file() and "dovelane" not in path.parts)


def fetched(replica, user=USER):
    there = replica.store(user) / "dovelane" / "fetched"
    return sorted(path.name for path in there.iterdir() if path.stat().st_size > 0) if there.exists() else []


def drop_fetched(replica, user=USER):
    for name in fetched(replica, user):
        (replica.store(user) / "dovelane" / "fetched" / name).unlink()


def wait_mails(replica, mails, user=USER):
    said = b""

    def is_there():
        nonlocal said
        said = replica.doveadm("dovelane", "verify", "-u", user, check=False)
        return sum(map(int, re.findall(rb"\bplaced=(\d+)", said))) == mails and b"verdict same" in said

    eventually(lambda: f"{replica.name} has {mails} mails: {said.decode()}", is_there)


def body_of(replica, folder="INBOX", name=None, item="BODY.PEEK[]", user=USER):
    with Site(replica, user) as site:
        site.imap.select(folder, again=True)
        uids = site.imap.uids(folder)
        uid = uids[name][0]
        found = dict(site.imap.fetch(str(uid), item))
        return found[uid]


@pytest.mark.parametrize("storage", FORMATS)
def test_a_large_mail_takes_few_bytes_and_reads_the_same(group, storage):
    there = group("sdbox", storage, on_demand="b")
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
        site.append("INBOX", "small", size=300)
        site.imap.append("INBOX", PARTS)
    wait_mails(thin, 3)
    assert re.search(r"\bhere\b.*, on-demand", thin.doveadm("dovelane", "status").decode())
    assert stub_lines(thin) == 2 and stub_lines(full) == 0
    assert used(thin) < 60000 and used(full) > 900000
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        uids = site.imap.uids("INBOX")
        there_is = dict(site.imap.fetch("1:*", "RFC822.SIZE ENVELOPE INTERNALDATE"))
    assert fetched(thin) == []
    with Site(full, USER) as site:
        site.imap.select("INBOX")
        assert site.imap.uids("INBOX") == uids
        assert dict(site.imap.fetch("1:*", "RFC822.SIZE ENVELOPE INTERNALDATE")) == there_is
        whole = dict(site.imap.fetch("1:*", ITEMS))
    assert body_of(thin, name="large")[b"BODY[]"] == mail("large", LARGE)
    assert len(fetched(thin)) == 1
    for item in ("BODY.PEEK[2]", "BODY.PEEK[TEXT]<100000.1000>", "BINARY.PEEK[2]"):
        assert body_of(thin, name="parts", item=item) == body_of(full, name="parts", item=item)
    assert len(fetched(thin)) == 2
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        assert dict(site.imap.fetch("1:*", ITEMS)) == whole
    wait_equal(there.replicas, [USER], WITHIN)
    assert stub_lines(thin) == 2
    said = thin.doveadm("dovelane", "verify", "-u", USER, "bodies").decode()
    assert "different" not in said and "stubs=2" in said


def test_links_are_cut(group):
    """The header is there, the text a temporary error of this mail alone; healed, it reads."""
    there = group("maildir", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "2s"}, more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
        site.append("INBOX", "small", size=300)
    wait_mails(thin, 2)
    there.cut()
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        uids = site.imap.uids("INBOX")
        uid = uids["large"][0]
        assert b"X-Mail: large" in dict(site.imap.fetch(str(uid), "BODY.PEEK[HEADER]"))[uid][b"BODY[HEADER]"]
        assert dict(site.imap.fetch(str(uid), "RFC822.SIZE"))[uid][b"RFC822.SIZE"] == str(len(mail("large", LARGE))).encode()
        small = uids["small"][0]
        assert dict(site.imap.fetch(str(small), "BODY.PEEK[]"))[small][b"BODY[]"] == mail("small", 300)
        with pytest.raises(ImapError, match="NO"):
            site.imap.command("UID SEARCH BODY nonsense")
        with pytest.raises(ImapError, match="NO"):
            site.imap.command(f"UID FETCH {uid} BODY.PEEK[]")
    # What fails a second time in one session ends it.
    for item in ("BODY.PEEK[]", "BODY.PEEK[TEXT]", "BODY.PEEK[1]", "BINARY.PEEK[1]", "BODY.PEEK[]<200000.100>"):
        with Site(thin, USER) as site:
            site.imap.select("INBOX")
            with pytest.raises(ImapError, match="NO"):
                site.imap.command(f"UID FETCH {uid} {item}")
    logged(thin.log, r"only its header is held at this site, and its text .* cannot be had .*asked: site-a")
    assert fetched(thin) == []
    there.heal()

    def reads():
        try:
            return body_of(thin, name="large")[b"BODY[]"] == mail("large", LARGE)
        except ImapError:
            return False

    eventually("it reads", reads)
    wait_equal(there.replicas, [USER], WITHIN)


@pytest.mark.parametrize("storage", FORMATS)
def test_pop3_and_a_backup_by_dsync_get_whole_mails_or_none(group, storage):
    """Sizes are those of the whole mails; a copy of the mailboxes has no mail that is a header only."""
    there = group("sdbox", storage, on_demand="b", settings={**FAST, "on_demand_wait": "2s"}, more=NO_AFTER, protocols=("pop3",))
    full, thin = there.replicas
    with Site(full, USER) as site:
        for name in ("one", "two"):
            site.append("INBOX", name, size=LARGE)
    wait_mails(thin, 2)
    assert stub_lines(thin) == 2
    aside = thin.store(USER).parent / "aside"
    there.cut()
    said = thin.doveadm("backup", "-u", USER, f"maildir:{aside}/cut", check=False)
    assert [path for path in aside.rglob("*") if path.is_file() and (b"Stub" in path.read_bytes() or b"X-Mail" in path.read_bytes())] == [], said
    with contextlib.closing(pop3(thin)) as client:
        size = len(mail("one", LARGE))
        assert [int(line.split()[1]) for line in client.list()[1]] == [size, size]
        with pytest.raises((poplib.error_proto, OSError)):
            client.retr(1)
    there.heal()
    thin.doveadm("backup", "-u", USER, f"maildir:{aside}/healed")
    bodies = [path.read_bytes() for path in aside.rglob("*") if path.is_file() and path.parent.name in ("cur", "new")]
    whole = [mail(name, LARGE) for name in ("one", "two")]
    assert sorted(body.replace(b"\r\n", b"\n") for body in bodies) == sorted(body.replace(b"\r\n", b"\n") for body in whole)
    with contextlib.closing(pop3(thin)) as client:
        for number, text in enumerate(whole, 1):
            assert b"\r\n".join(client.retr(number)[1]) + b"\r\n" == text
    assert stub_lines(thin) == 2


def pop3(replica):
    host, _, port = replica.note["pop3"].rpartition(":")
    client = poplib.POP3(host, int(port), timeout=120)
    client.user(USER)
    client.pass_(PASSWORD)
    return client


def test_a_full_disk_keeps_the_last_text_only(group):
    """Four megabytes for what is fetched, and six texts of one each; then two in room for one and a half."""
    there = group("sdbox", "sdbox", on_demand="b")
    full, thin = there.replicas
    names = [f"large{n}" for n in range(6)]
    with Site(full, USER) as site:
        for name in names:
            site.append("INBOX", name, size=LARGE)
    wait_mails(thin, len(names))
    store = thin.store(USER)
    owner, kept = (store / "dovelane").stat(), store / "dovelane/fetched"
    kept.mkdir()
    shutil.chown(kept, owner.st_uid, owner.st_gid)
    options = f"uid={owner.st_uid},gid={owner.st_gid},mode=0700"
    in_its_namespace(thin, "mount", "-t", "tmpfs", "-o", f"size=4m,{options}", "tmpfs", kept)
    for name in names:
        assert body_of(thin, name=name)[b"BODY[]"] == mail(name, LARGE)
    in_its_namespace(thin, "umount", "-l", kept)
    in_its_namespace(thin, "mount", "-t", "tmpfs", "-o", f"size=1500k,{options}", "tmpfs", kept)
    for name in names:
        assert body_of(thin, name=name)[b"BODY[]"] == mail(name, LARGE)


def ask_for_text(replica, guid, sha256, size, user=USER):
    """As a mail process asks the replicator; what that says."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(240)
        asked.connect(str(Path(replica.note["base"]) / "run" / "dovelane-commit"))
        asked.sendall(f"2\t{user}\t{guid}\t{sha256.hex()}\t{size}\n".encode())
        return asked.makefile("rb").readline()


def test_a_site_claims_another_size_for_the_same_bytes(group):
    """Played by hand: its mail has the GUID and the SHA-256 of one whose text is elsewhere."""
    there = group("sdbox", "sdbox", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "20s"}, more=NO_AFTER)
    thin, full = there.replicas[1:]
    there.end("dovecot-a")
    liar = Hand(there, USER, letter="a", to="b")
    # So its mails come before the other site's where mails are looked through.
    liar.send(liar.subscribe("x"))
    eventually("it is known", lambda: b"x" in thin.doveadm("mailbox", "list", "-s", "-u", USER).split())
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
    eventually("the stub", lambda: stub_lines(thin) == 1)
    stub = next(path.read_bytes() for path in thin.store(USER).rglob("u.*"))
    sha256 = bytes.fromhex(re.search(rb"X-Dovelane-Stub: 1 (\w{64}) ", stub)[1].decode())
    guid = thin.doveadm("fetch", "-u", USER, "guid", "mailbox", "INBOX", "all").split()[-1].decode()
    body = mail("large", LARGE)
    op, numbers, _ = liar.claim(bytes(range(1, 17)), sha256, LARGE * 2)
    liar.send((op, numbers, body))  # with its bytes
    eventually("the mail with bytes is there", lambda: len(shown_as(thin, "large")) == 2)
    sizes = (1, LARGE // 2, LARGE * 2)
    for size in sizes:
        liar.send(liar.claim(bytes.fromhex(guid), sha256, size))
    eventually("its mails are known", lambda: b"messages=5" in thin.doveadm("dovelane", "status", "-u", USER))
    # Those who read its mails wait; others do not wait with them, nor get an error.
    asking = [threading.Thread(target=ask_for_text, args=(thin, guid, sha256, size)) for size in sizes]
    for one in asking:
        one.start()
    for uid in shown_as(thin, "large"):
        drop_fetched(thin)
        with Site(thin, USER) as site:
            site.imap.select("INBOX")
            assert dict(site.imap.fetch(str(uid), "BODY.PEEK[]"))[uid][b"BODY[]"] == body
    for one in asking:
        one.join()


def shown_as(replica, name):
    """UIDs of the mails of that name."""
    with Site(replica, USER) as site:
        site.imap.select("INBOX", again=True)
        return site.imap.uids("INBOX").get(name, [])


@pytest.mark.parametrize("storage", FORMATS)
def test_changes_at_both(group, storage):
    """COPY, MOVE, flags and expunges of such mails, there and elsewhere."""
    there = group("sdbox", storage, on_demand="b")
    full, thin = there.replicas
    with Site(full, USER) as site:
        for name in ("copied", "moved", "flagged", "gone here", "gone there"):
            site.append("INBOX", name.replace(" ", "-"), size=50000)
        site.create("F")
    wait_mails(thin, 5)
    eventually("the folder is there", lambda: b"F" in thin.doveadm("mailbox", "list", "-u", USER).split())
    with Site(thin, USER) as site:
        site.copy("INBOX", "copied", "F")
        site.copy("INBOX", "copied", "INBOX")
        site.move("INBOX", "moved", "F")
        site.flag("INBOX", "flagged", "+", r"\Flagged")
        site.expunge("INBOX", "gone-here")
    with Site(full, USER) as site:
        site.flag("INBOX", "flagged", "+", r"\Seen", "word")
        site.expunge("INBOX", "gone-there")
    wait_mails(full, 5)
    wait_mails(thin, 5)
    if storage != "mdbox":      # which keeps what was expunged until it is purged
        assert stub_lines(thin) == 5
    wait_equal(there.replicas, [USER], WITHIN)
    with Site(thin, USER) as site:
        site.append("INBOX", "own", size=50000)
        site.move("F", "moved", "INBOX")
    wait_mails(full, 6)
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in there.replicas:
        said = replica.doveadm("dovelane", "verify", "-u", USER, "bodies")
        assert b"different" not in said
    assert b"stubs" not in full.doveadm("dovelane", "verify", "-u", USER, "bodies")


def test_what_came_from_such_a_site_is_whole(group):
    """A mail delivered at one of two such sites, while the full one is cut off, is whole at both."""
    there = group("sdbox", "mdbox", "maildir", on_demand="ab")
    a, b, full = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "before", size=50000)
    wait_mails(a, 1)
    wait_mails(b, 1)
    assert stub_lines(a) == stub_lines(b) == 1
    there.cut("c")
    with Site(a, USER) as site:
        site.deliver("delivered", size=50000)
        site.append("INBOX", "large", size=3000000)
    wait_mails(b, 3)
    assert stub_lines(a) == stub_lines(b) == 1
    assert used(a) > 3000000 and used(b) > 3000000
    there.heal()
    wait_mails(full, 3)
    assert stub_lines(full) == 0
    wait_equal(there.replicas, [USER], WITHIN)


def test_everything_is_killed_while_it_is_fetched(group):
    """kill -9 of imap, worker and replicator: the next who reads gets the same bytes, or an error."""
    there = group("maildir", "sdbox", on_demand="b", more=NO_AFTER)
    full, thin = there.replicas
    names = [f"m{n}" for n in range(9)]
    with Site(full, USER) as site:
        for name in names:
            site.append("INBOX", name, size=2000000)
    wait_mails(thin, 9)
    for n, name in enumerate(names):
        site = Site(thin, USER)
        site.imap.select("INBOX")
        uid = site.imap.uids("INBOX")[name][0]
        tag = site.imap.begin(f"UID FETCH {uid} BODY.PEEK[]")
        time.sleep(n * 0.004)
        victim = ("imap", "dovelane-worker", "dovelane-replicator")[n % 3]
        eventually(f"{victim} is there", lambda victim=victim: thin.kill_some(victim) > 0)
        with contextlib.suppress(StackError, OSError):
            site.imap.end(tag)
        site.close()
        assert body_of(thin, name=name)[b"BODY[]"] == mail(name, 2000000)
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_part_that_a_killed_worker_left(group):
    """A whole one is taken without a site that gives more; one that is too long is not gone on with."""
    there = group("maildir", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "5s"}, more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
    wait_mails(thin, 1)
    assert body_of(thin, name="large")[b"BODY[]"] == mail("large", LARGE)
    directory = thin.store(USER) / "dovelane" / "fetched"
    (name,) = fetched(thin)
    part = directory / f"{name}.{len(mail('large', LARGE))}.part"
    (directory / name).rename(part)
    there.cut()
    assert body_of(thin, name="large")[b"BODY[]"] == mail("large", LARGE)
    there.heal()
    (directory / name).rename(part)
    with part.open("ab") as file:
        file.write(b"more")
    assert body_of(thin, name="large")[b"BODY[]"] == mail("large", LARGE)
    assert fetched(thin) == [name]


def test_a_maildir_keeps_all_whole(group):
    """A Maildir's mail has its GUID by its file's name: renamed it is another mail, and the old one
    removed. With a header alone nobody could give its bytes again."""
    there = group("sdbox", "maildir", on_demand="b")
    full, thin = there.replicas
    with Site(full, USER) as site:
        for n in range(3):
            site.append("INBOX", f"m{n}", size=50000)
    wait_mails(thin, 3)
    assert stub_lines(thin) == 0 and used(thin) > 150000
    with thin.stopped():
        for number, path in enumerate(path for path in thin.store(USER).rglob("cur/*") if path.is_file()):
            path.rename(path.with_name(f"{number}.renamed:2,"))
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        assert len(site.imap.uids("INBOX")) == 3
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in there.replicas:
        wait_mails(replica, 3)
        assert used(replica) > 150000
        assert body_of(replica, name="m1")[b"BODY[]"] == mail("m1", 50000)


def test_a_line_that_somebody_made_up_is_a_mail(group):
    there = group("maildir", "sdbox", "mdbox", on_demand="b")
    full, thin, third = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=50000)
    wait_mails(thin, 1)
    text = next(path.read_bytes() for path in thin.store(USER).rglob("*")
                if path.is_file() and b"X-Dovelane-Stub: 1 " in path.read_bytes())
    line = re.search(rb"X-Dovelane-Stub: 1 [0-9a-f ]*\n", text)[0]
    made_up = line.replace(b"\n", b"\r\n") + mail("forged", 300)
    copied = (line + text[text.index(line) + len(line):text.index(b"\n\n") + 2]).replace(b"X-Mail: large", b"X-Mail: other").replace(b"\n", b"\r\n")
    with Site(thin, USER) as site:
        site.imap.append("INBOX", made_up)
        site.imap.append("INBOX", copied)
        site.imap.append("INBOX", b"X-Dovelane-Stub: 1 " + b"0" * 163 + b"\r\n" + mail("zeros", 300))
    for replica in there.replicas:
        wait_mails(replica, 4)
        assert body_of(replica, name="forged")[b"BODY[]"] == made_up
        assert body_of(replica, name="other")[b"BODY[]"] == copied
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_third_site_gets_all_bytes(group):
    """It asks a site with headers only, too, and gets nothing from there."""
    there = group("sdbox", "sdbox", "maildir", on_demand="b")
    full, thin, third = there.replicas
    third.end()
    with Site(full, USER) as site:
        for n in range(20):
            site.append("INBOX", f"m{n}", size=100000)
    wait_mails(thin, 20)
    assert stub_lines(thin) == 20
    there.start(third.name)
    wait_mails(third, 20)
    assert stub_lines(third) == 0 and used(third) > 1900000
    wait_equal(there.replicas, [USER], WITHIN)


@pytest.mark.parametrize("storage", FORMATS)
def test_the_key_is_lost(group, storage):
    """The state has a copy. Without both the mails are errors, and no mails with other bytes."""
    # One user: his session stays open. A new one would write the key anew before the client reads.
    there = group("sdbox", storage, on_demand="b", users=[USER], more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
    wait_mails(thin, 1)
    state = thin.store(USER) / "dovelane"
    before = (state / "stub-key").read_bytes()
    assert (state / "stub-key").stat().st_mode & 0o777 == 0o600
    with thin.stopped():
        (state / "stub-key").unlink()
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        with pytest.raises((ImapError, Lost), match="cannot be fetched"):
            site.imap.command("FETCH 1 BODY.PEEK[]")
    logged(thin.log, "the key that proves it is lost")
    thin.kill_some("dovelane-worker")
    wait_mails(thin, 1)
    assert (state / "stub-key").read_bytes() == before
    wait_equal(there.replicas, [USER], WITHIN)
    with thin.stopped():
        thin.kill_some("dovelane-worker")
        remove_tree(state)
    with Site(full, USER) as site:
        site.append("INBOX", "after", size=300)

    def waits():
        said = thin.doveadm("dovelane", "verify", "-u", USER, check=False)
        return re.search(rb"\bplaced=2\b.*unknown=1", said)

    eventually("what cannot be proved waits, and what it was is there once more", waits)
    with Site(full, USER) as site:
        site.imap.select("INBOX")
        assert {name: len(uids) for name, uids in site.imap.uids("INBOX").items()} == {"after": 1, "large": 1}
    with Site(thin, USER) as site:
        site.imap.select("INBOX")
        oldest = min(uid for uid, _ in site.imap.fetch("1:*", "FLAGS"))
        site.imap.expunge("INBOX", [oldest])
    wait_mails(thin, 2)
    wait_equal(there.replicas, [USER], WITHIN)


def test_commit_peers_does_not_count_a_header(group):
    """A reply waits for a site that has the mail whole."""
    lines = "dovelane_commit = peers\n", "dovelane_commit_wait = 3s\n"
    there = group("maildir", "sdbox", on_demand="b",
                  more={"2.3": "plugin {\n  " + "  ".join(lines) + "}\n", "2.4": "".join(lines)})
    full, thin = there.replicas
    for replica in there.replicas:
        with Site(replica, USER) as site:
            site.append("INBOX", f"first-{replica.letter}")
    wait_equal(there.replicas, [USER], WITHIN)
    late = "no other site has said within"
    said = [open(replica.log, errors="replace").read().count(late) for replica in there.replicas]
    with Site(full, USER) as site:
        site.append("INBOX", "small", size=300)
        site.append("INBOX", "large", size=50000)
    with Site(thin, USER) as site:
        site.append("INBOX", "large-there", size=50000)
    wait_mails(thin, 5)
    now = [open(replica.log, errors="replace").read().count(late) for replica in there.replicas]
    assert now == [said[0] + 1, said[1]]
    assert stub_lines(thin) == 1


def test_the_only_full_site_is_lost(group):
    """What is said then. Comes another full site, it gets what there is."""
    there = group("maildir", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "2s"}, more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "lost", size=50000)
    with Site(thin, USER) as site:
        site.append("INBOX", "own", size=50000)
    wait_mails(thin, 2)
    wait_mails(full, 2)
    destroy(there, "a")
    come_back(there, "a")
    eventually("it has what there is", lambda: re.search(rb"\bplaced=1\b", full.doveadm("dovelane", "verify", "-u", USER, check=False)))
    assert body_of(full, name="own")[b"BODY[]"] == mail("own", 50000)

    def is_named():
        with Site(thin, USER) as site:
            site.imap.select("INBOX")
            uid = site.imap.uids("INBOX")["lost"][0]
            assert dict(site.imap.fetch(str(uid), "BODY.PEEK[HEADER]"))[uid][b"BODY[HEADER]"].startswith(b"From:")
            with pytest.raises(ImapError, match="another site"):
                site.imap.command(f"UID FETCH {uid} BODY.PEEK[]")
        with open(thin.log, errors="replace") as log:
            return re.search(r"cannot be had .*site-a \(has not got it\)", log.read())

    eventually("who was asked and has not got it is named", is_named)
    with Site(thin, USER) as site:
        site.append("INBOX", "again", size=300)
    wait_mails(thin, 3)


@pytest.mark.parametrize("storage", FORMATS)
def test_beside_compression(group, storage):
    """The storage's own plugin lies below: what is fetched is what was saved."""
    more = {"2.3": "mail_plugins = $mail_plugins zlib\nplugin {\n  zlib_save = gz\n}\n",
            "2.4": "mail_plugins {\n  mail_compress = yes\n}\nmail_compress_write_method = gz\n"}
    there = group(storage, storage, on_demand="b", more=more)
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
        site.append("INBOX", "middle", size=40000)
    wait_mails(thin, 2)
    with Site(thin, USER) as site:
        site.append("INBOX", "own", size=40000)
        site.copy("INBOX", "large", "INBOX")
    wait_mails(full, 4)
    wait_equal(there.replicas, [USER], WITHIN)
    said = thin.doveadm("dovelane", "verify", "-u", USER, "bodies")
    assert b"different" not in said and b"stubs=3" in said


def test_doveadm_reads_it(group):
    there = group("maildir", "sdbox", on_demand="b")
    full, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=LARGE)
    wait_mails(thin, 1)
    text = thin.doveadm("fetch", "-u", USER, "text", "all")
    assert text.replace(b"\r\n", b"\n").count(b"All work and no play") == mail("large", LARGE).count(b"All work and no play")
