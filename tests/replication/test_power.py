"""Power loss, and a peer that is away for long."""
import contextlib
import random
import re
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from site_user import Site
from support.stack import digest
from support.stack.digest import wait_equal
from support.stack.journal import Journal
from support.stack.traffic import MAILS_AND_FOLDERS, Traffic, make_folders
from support.state_copy import copy_state

WITHIN = 420.0
USERS = [f"p{n}@example.org" for n in range(4)]


def frames(log):
    """(page, content) of each whole frame that SQLite would read again, in order."""
    size = int.from_bytes(log[8:12], "big") if len(log) >= 32 else 0
    found, at = [], 32
    while size and at + 24 + size <= len(log) and log[at + 8:at + 16] == log[16:24]:
        found.append((int.from_bytes(log[at:at + 4], "big"), log[at + 24:at + 24 + size]))
        at += 24 + size
    return size, found


def synced(state, log):
    """How much of a log no power loss takes: what was moved from it into the database was synced before."""
    size, known = frames(log)
    moved = [n for n, (page, content) in enumerate(known, 1) if state[(page - 1) * size:page * size] == content]
    return 32 + moved[-1] * (24 + size) if moved else 0


def written_back(replica, users):
    """What was written long ago is on the disk: the kernel sees to that within half a minute. So a power loss takes nothing from before this."""
    for user in users:
        path = replica.store(user) / "dovelane" / "state.db"
        for _ in range(1000):
            with contextlib.closing(sqlite3.connect(path, timeout=60)) as state:
                if state.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0:
                    break
            time.sleep(0.01)
        else:
            raise AssertionError(f"{path} is busy without end")


def older_states(replica, users, into):
    """Copies of the states as they are now, log and all, and of the ledger; not of the reserve, which is on the disk when it says so."""
    for user in users:
        (into / user).mkdir(parents=True)
        copy_state(replica.store(user) / "dovelane", into / user)
    subprocess.run(["sh", "-c", f"cp -a {Path(replica.note['base'])}/replicator/replicator.db* {into}/ 2>/dev/null || true"], check=True)


def is_the_same(one, other):
    return other.exists() and one.read_bytes() == other.read_bytes()


def put_back(replica, users, kept, dice):
    """What was not synced is gone: each state is an older one, its log cut anywhere behind what was synced of it. The mail is all there: it is synced with its answer."""
    owner = Path(replica.note["mail"]).stat()
    for user in users:
        state = replica.store(user) / "dovelane"
        now, then = state / "state.db", kept / user / "state.db"
        # Its log was moved into it since: both were synced, so no power loss brings the older one.
        if now.exists() and not is_the_same(now, then):
            copy_state(state, kept / user)
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (state / name).unlink(missing_ok=True)
        for name in ("state.db", "state.db-wal"):
            if (kept / user / name).exists():
                shutil.copy2(kept / user / name, state / name)
                shutil.chown(state / name, owner.st_uid, owner.st_gid)
        log = state / "state.db-wal"
        if log.exists() and log.stat().st_size:
            least = synced((state / "state.db").read_bytes(), log.read_bytes())
            with log.open("r+b") as file:
                file.truncate(dice.randrange(least, log.stat().st_size + 1))
    ledger = Path(replica.note["base"]) / "replicator"
    for path in ledger.glob("replicator.db*"):
        path.unlink()
    for path in kept.glob("replicator.db*"):
        shutil.copy2(path, ledger / path.name)
    started_anew(ledger / "reserve")


def started_anew(path):
    """The reserve as after another boot of the host, when no state is believed that was open: a record that cannot be read says the same."""
    reserve = bytearray(path.read_bytes())
    for at in range(64, len(reserve) - 63, 64):
        reserve[at + 40:at + 48] = bytes(8)
    path.write_bytes(reserve)


def came_and_went(complaint, known, asked, complaints):
    """A mail or folder that came and went again between the state that survived and the loss: nobody is left who knows of its removal. The mail
    is as this site had it, perhaps before a flag of another one's came. asked: the mails whose removal was asked for, answered or not."""
    mail = re.match(r"(\S+): (\S+) in (.*): there, though its removal was answered", complaint)
    folder = re.match(r"(\S+): folder (.*): there and empty, though its deletion was answered", complaint)
    flag = re.match(r"(\S+): (\S+) in (.*): \S+ is (?:True|False|set)", complaint)
    if flag and (flag[1], flag[3], flag[2]) in asked:
        mail = flag
    if folder and any(text.startswith(f"{folder[1]}: ") and f" in {folder[2]}: there, though" in text and came_and_went(text, known, asked, ())
                      for text in complaints):
        return True     # not empty at all: such a mail is in it
    return (mail and (mail[1], mail[3], mail[2]) not in known) or (folder and (folder[1], folder[2]) not in known)


@pytest.mark.parametrize("specs", [("sdbox", "mdbox"), pytest.param(("mdbox", "sdbox", "sdbox"), marks=pytest.mark.exhaustive)], ids=" ".join)
def test_power_loss_under_load(group, specs, tmp_path):
    """A loses its power several times under load. Its states come back older than what they shipped; no mail that was answered is lost."""
    there, journal, dice = group(*specs), Journal(), random.Random(3)
    returned = set()
    a = there.replicas[0]
    make_folders(there.replicas, USERS)
    for turn in range(3):
        written_back(a, USERS)
        kept, known = tmp_path / str(turn), {*journal.elements, *journal.folders}
        # Of what was renamed or unset since the state that is put back, the old one may be back: nothing here tells such from others.
        with Traffic(there.replicas, USERS, journal, seed=turn, run=f"t{turn}", weights=MAILS_AND_FOLDERS) as traffic:
            traffic.wait(150, 240)
            older_states(a, USERS, kept)
            traffic.wait(150, 240)
            there.kill("redis-a")
            a.kill()
        put_back(a, USERS, kept, dice)
        there.start("redis-a")
        there.start(a.name)
        agreed = wait_equal(there.replicas, USERS, WITHIN, moving=journal.moving(there.rebuilt))
        asked = {key for key, element in journal.elements.items() if element.removed != "no"}
        complaints = journal.judge({user: next(iter(digests.values())) for user, digests in agreed.items()}, there.rebuilt())
        back = [text for text in complaints if came_and_went(text, known, asked, complaints)]
        returned.update(back)
        complaints = [text for text in complaints if text not in returned]
        assert not complaints, f"turn {turn}: " + "\n".join(complaints[:20])
        assert len(back) <= 20, back
        print(f"turn {turn}: {len(back)} removed mails and folders are back")
    assert there.logs("new epoch"), "no state was found to be old"


def memory_kb(replica):
    """The most that a worker or the replicator has of its own."""
    most = 0
    for program in ("dovelane-worker", "dovelane-replicator"):
        for one in replica.processes(program):
            for line in Path(f"/proc/{one.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    most = max(most, int(line.split()[1]))
    return most


def changes(replica, user, rounds, count):
    """Flags of `count` mails change `rounds` times, each time seen by the replicator: that many changes of one message each."""
    with Site(replica, user) as site:
        site.imap.select("INBOX")
        for number in range(rounds):
            site.imap.command(f"UID STORE 1:* {'+' if number % 2 == 0 else '-'}FLAGS.SILENT (\\Flagged)")
            replica.doveadm("dovelane", "status", "-u", user)     # asked of the worker: it comes after the look that the hint gave


def size(replica, user, into):
    """Bytes that the state needs. Its files may hold more: a log of up to 1,000 pages stays as large as it once was."""
    into.mkdir()
    copy_state(replica.store(user) / "dovelane", into)
    with contextlib.closing(sqlite3.connect(into / "state.db")) as state:
        return state.execute("pragma page_count").fetchone()[0] * state.execute("pragma page_size").fetchone()[0]


def away(there, rounds, count, tmp_path):
    user, (a, b) = "away@example.org", there.replicas
    with Site(a, user) as site:
        for n in range(count):
            site.append("INBOX", f"m{n}")
    wait_equal(there.replicas, [user], WITHIN)
    there.cut()
    changes(a, user, 20, count)
    early = memory_kb(a), size(a, user, tmp_path / "early")
    changes(a, user, rounds, count)
    late = memory_kb(a), size(a, user, tmp_path / "late")
    waiting = [line for line in a.doveadm("dovelane", "lag", "-u", user).decode().splitlines() if "site-b" in line]
    with Site(a, user) as site:
        site.flag("INBOX", "m0", "+", "last")
    began = time.monotonic()
    there.heal()
    shape = wait_equal(there.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert shape["INBOX"]["m0"] == [("last",)], shape["INBOX"]["m0"]
    print(f"{rounds * count} changes while B was away: worker {early[0]} kB, then {late[0]} kB; state {early[1]} bytes, then {late[1]}; "
          f"equal {time.monotonic() - began:.1f} s after its return; {waiting}")
    return early, late


@pytest.mark.long
def test_a_peer_that_is_away_for_more_changes_than_are_kept(group, tmp_path):
    """The least that can be kept is 1,000 changes; beyond, it exchanges on its return."""
    there = group("sdbox", "sdbox", settings={**digest_settings(), "backlog": "1000"})
    early, late = away(there, 60, 100, tmp_path)
    assert late[1] < 3 * early[1] + 1_000_000, (early, late)


@pytest.mark.exhaustive
def test_a_peer_that_is_away_for_a_million_changes(group, tmp_path):
    there = group("sdbox", "mdbox", settings=digest_settings())
    early, late = away(there, 1000, 1000, tmp_path)
    assert late[0] < 2 * early[0] + 100_000 and late[1] < 400_000_000, (early, late)


def digest_settings():
    from support.stack.group import FAST
    return dict(FAST, log_level="info")
