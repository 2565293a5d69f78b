"""A state.db that its user wrote into: nothing of it harms the worker, and the user's mailboxes are made whole from what they hold and from the other sites."""
import contextlib
import os
import random
import sqlite3

import pytest
from worker_sites import append, equal, imap, needs_dovecot, subjects, subscribe
from support.frames import CLOSE

pytestmark = [needs_dovecot, pytest.mark.exhaustive]

# Rows as a program wrote them that knows no seals. A seal would tell of each change of theirs: what is below is told by the rows themselves.
UNSEAL = "".join(f"UPDATE {table} SET value = substr(value, 1, length(value) - 4){where};"
                 for table, where in (("folder", ""), ("origin", ""), ("meta", " WHERE key = x'73656c66'")))

# Each with the tables that it changes: rows of the core's, of the worker's ("app": a kind, then its key), and tables.
UNTRUE = [
    "UPDATE folder SET value = x'ff7f' || substr(value, 2) WHERE key = x'01'",  # a site that is none: the worker died of it
    "UPDATE folder SET value = replace(value, x'0046', x'0000') WHERE key = x'01'",
    "UPDATE message SET number = number | 15",
    "UPDATE message SET value = value || x'9a750101'",  # a keyword that is none
    "UPDATE uid SET value = x'09ffff01'",
    "INSERT OR REPLACE INTO todo VALUES (x'020000', x'ff')",
    "INSERT OR REPLACE INTO todo VALUES (x'0509', x'')",
    "UPDATE app SET value = substr(value, 1, 9) WHERE substr(key, 1, 1) = x'62'",
    "UPDATE app SET key = CAST(key || x'09' AS BLOB) WHERE substr(key, 1, 1) = x'62'",
    "UPDATE app SET value = replace(value, x'494e424f58', x'ff4e424f58') WHERE substr(key, 1, 1) = x'62'",  # a name that is no UTF-8
    "UPDATE app SET value = CAST(value AS TEXT)",
    "INSERT OR REPLACE INTO app SELECT x'7700', x'0101010209' || zeroblob(5) FROM meta",
    "DROP TABLE app; CREATE VIEW app AS WITH RECURSIVE c(key, value) AS (SELECT x'00', x'00' UNION ALL SELECT key, value FROM c) SELECT * FROM c",
    "CREATE TRIGGER t AFTER INSERT ON out BEGIN DELETE FROM message; END",
]


def write_into(site, sql):
    db = sqlite3.connect(site.state() / "state.db")
    db.executescript(sql)
    db.close()


def aside(site):
    return [p for p in site.state().glob("state.db.spoilt-*") if not p.name.endswith(("-wal", "-journal"))]


def drop_aside(site):
    """Two within one second would have one name."""
    kept = aside(site)
    for path in site.state().glob("state.db.spoilt-*"):
        path.unlink()
    return kept


def fill(world):
    site = world[1]
    imap(site, None, ("create", "F"))
    for i in range(3):
        append(site, "INBOX", f"m{i}", "(\\Flagged Kw)")
        append(site, "F", f"f{i}", "(\\Seen)")
    world.settle()
    subscribe(site, "F")
    world.settle()


def settle(world):
    """A question in which the worker finds out fails, and main asks again."""
    for _ in range(3):
        try:
            world.settle()
        except AssertionError as e:
            assert "temporary failure" in str(e)


def heals(world, number):
    """What comes meanwhile, at both sites, is everywhere in the end, and nothing is lost."""
    site, peer = world[1], world[2]
    append(site, "F", f"here{number}")
    append(peer, "INBOX", f"there{number}", "(Kw)")
    settle(world)
    site.admin("verify")  # reads all rows of messages, which a look at a mailbox does not
    settle(world)
    site.work(CLOSE)
    settle(world)
    found = equal(world, uids=False)
    assert subjects(found, "INBOX") == subjects(found, "F") == 3 + number, number


@pytest.mark.test
def test_a_state_that_somebody_wrote_into_is_put_aside_and_made_anew(world):
    site = world[1]
    fill(world)
    for number, sql in enumerate(UNTRUE, 1):
        site.work(CLOSE)
        write_into(site, UNSEAL + sql)
        heals(world, number)
        assert len(drop_aside(site)) == 1, sql


def test_a_mailbox_is_not_asked_for_by_a_name_that_none_can_have(world):
    """Its row was given that name. The library dies of the question where such a mailbox is."""
    site = world[1]
    fill(world)
    for number, name in enumerate([b"/", b"../../x"], 1):
        site.work(CLOSE)
        written = (bytes([len(name)]) + name).hex()
        value = f"CAST(replace(value, x'0146', x'{written}') AS BLOB)"
        write_into(site, f"UPDATE app SET value = {value} WHERE substr(key, 1, 1) = x'62'")
        heals(world, number)
        assert not drop_aside(site), name


def test_the_last_three_spoilt_states_are_kept(world):
    site = world[1]
    fill(world)
    for i in range(5):
        site.work(CLOSE)
        for part in ("", "-wal"):
            (site.state() / f"state.db.spoilt-{1000 + i}{part}").write_bytes(b"an old one")
    (site.state() / "state.db").write_bytes(b"no database")
    heals(world, 1)
    kept = sorted(p.name for p in site.state().glob("state.db.spoilt-*"))
    assert kept[:4] == ["state.db.spoilt-1003", "state.db.spoilt-1003-wal", "state.db.spoilt-1004", "state.db.spoilt-1004-wal"]
    assert len([name for name in kept[4:] if not name.endswith("-wal")]) == 1


def test_no_other_file_is_opened_in_place_of_a_state(world):
    site = world[1]
    fill(world)
    site.work(CLOSE)
    state, other = site.state() / "state.db", site.state().parent / "other"
    state.rename(other)
    before = other.read_bytes()
    state.symlink_to(other)
    heals(world, 1)
    assert other.read_bytes() == before and not state.is_symlink()
    assert len(aside(site)) == 1


def flip(site, dice):
    path = site.state() / "state.db"
    data = bytearray(path.read_bytes())
    used = [i for i, byte in enumerate(data) if byte and not 60 <= i < 64]  # the version: an admin is told of a later one
    for _ in range(dice.randrange(1, 6)):
        data[dice.choice(used)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


@pytest.mark.test
@pytest.mark.parametrize("table,at", [pytest.param("origin", 9, id="epoch of who made it"), pytest.param("folder", 1, id="number of its creation")])
def test_a_flipped_bit_of_what_names_a_folder_is_told_to_nobody(world, table, at):
    """The other sites would have the next mail in a folder that nobody made, and that no site can show, for ever."""
    site = world[1]
    fill(world)
    site.work(CLOSE)
    with contextlib.closing(sqlite3.connect(site.state() / "state.db")) as db, db:
        key, value = db.execute(f"SELECT key, value FROM {table} ORDER BY key DESC").fetchall()[-1 if table == "origin" else 0]
        flipped = bytearray(value)
        flipped[at] ^= 4
        assert db.execute(f"UPDATE {table} SET value = ? WHERE key = ?", (bytes(flipped), key)).rowcount == 1
    heals(world, 1)
    assert len(drop_aside(site)) == 1


@pytest.mark.parametrize("rounds", [pytest.param(6, id="short"), pytest.param(150, id="long")])
def test_flipped_bits_end_no_worker(world, rounds):
    """What a flip makes of a row may be true: then that is what the state says. No mail that a user had is lost by it, and no worker."""
    site, dice = world[1], random.Random(int(os.environ.get("DOVELANE_SEED", "22")))
    fill(world)
    for number in range(1, rounds + 1):
        site.work(CLOSE)
        flip(site, dice)
        append(site, "F", f"here{number}")
        try:
            settle(world)
        finally:
            assert "killed with signal" not in site.log.read_text() and "Panic" not in site.log.read_text()
        site.work(CLOSE)
        drop_aside(site)
        for name in ("state.db", "state.db-wal"):  # a true one again
            (site.state() / name).unlink(missing_ok=True)
        settle(world)
        found = equal(world, uids=False)
        assert subjects(found, "F") >= 3 + number and subjects(found, "INBOX") >= 3, number
