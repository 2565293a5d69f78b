"""What is not trusted: parcels, hints and settings that are not what they should be."""
import contextlib
import os
import sqlite3
import subprocess
import time

import pytest

from support.lane_server import BUILD
from support.waiting import eventually
from test_replicator import LIVE, meta, world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.long]


def test_parcels_that_are_not_what_they_should_be_go_no_further(world):
    w = world(3)
    w[1].change("u", "real")
    w.converge(["u"])
    digest = w[1].site.hellos[0][1]
    before = len(w[1].site.parcels)
    lane = LIVE.format("site-a", "site-b")
    bad = [b"", b"garbage", meta(digest, "u")[:-1], meta(digest, "u") + b"x", meta(digest, "u", sender=3), meta(digest, "u", sender=2), meta(digest, "u", to=3),
           meta(digest, "../etc"), meta(digest, ""), meta(digest, "u" * 256), meta(bytes(16), "u"), meta(digest, "u", version=2), meta(digest, "u", kind=0)]
    c = w[0].redis.client()
    for i, m in enumerate(bad):
        c("LANE.PUSH", 1, lane, "ENTRIES", 1, 1, b"%016d" % i, m, b"{}")
    eventually("refusals", lambda: w[1].metric("replicator_foreign") == len(bad))
    eventually("an empty lane", lambda: c("LANE.LEN", lane) == 0)
    w[0].change("u", "after")
    w.converge(["u"])
    assert all(p[0] == "u" for p in w[1].site.parcels[before:])
    assert w[1].says("is of another group: its digest is 00000000") and w[1].says("meta part is malformed")


def test_a_parcel_of_unknown_kind_is_refused_by_the_worker_and_acked(world):
    w = world(2)
    w[0].change("u", "x")
    w.converge(["u"])
    digest = w[1].site.hellos[0][1]
    lane = LIVE.format("site-a", "site-b")
    c = w[0].redis.client()
    c("LANE.PUSH", 1, lane, "ENTRIES", 1, 1, b"x" * 16, meta(digest, "u", kind=99), b"{}")
    eventually("a refusal", lambda: w[1].says("parcel of kind 99"))
    eventually("an empty lane", lambda: c("LANE.LEN", lane) == 0)


def test_a_peer_of_another_group_is_not_listened_to(world):
    w = world(2, up=False)
    w[0].start()
    w[1].start(namespaces="{ inbox, shared }")
    w[0].change("u", "x")
    eventually("the complaint", lambda: w[1].says("is of another group: its digest is"))
    assert w[1].says("of ids 1, 2; namespaces inbox, shared") and w[0].says("of ids 1, 2; namespaces inbox")
    assert "other group" in str(w[1].admin("status")[0])
    assert w[1].site.parcels == []
    w[1].stop()
    w[1].start()
    w.quiet(["u"])


def test_a_hint_behind_one_without_its_line_s_end_is_followed(world):
    w = world(2, sweep_active="1h", sweep_all="1h", sweep_dirty="1h")
    for name in ("one@example.net", "two@example.net"):
        w[0].site.add(name, "item")
    fd = os.open(w[0].directory / "dovelane-hint", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"1\tone@example.net\t-\tINBOX")
    os.write(fd, b"1\ttwo@example.net\t-\tINBOX\n")
    os.close(fd)
    w.converge(["one@example.net", "two@example.net"])
    assert w[0].metric("replicator_hints_unreadable") == 0


GOOD = 'replicator_dir = "{path}"\ndirty_dir = "{path}/dirty"\nreplicate_namespaces = {{ "inbox" }}\nreplica "a" {{ id = 1  redis = "127.0.0.1:7001"  tls = no }}'


@pytest.mark.parametrize("conf, words, wrong", [
    (GOOD, ("-n", "a"), None),
    (GOOD, (), None),
    (GOOD, ("-n", "b"), "-n b: "),
    (GOOD, ("more",), "usage"),
    (GOOD.replace("no }}", "yes }}") + "\nnode_ca_file = {path}/absent.crt", (), "absent.crt"),
    (GOOD.replace("{path}/dirty", "{path}/absent"), (), None),
    (GOOD.replace("{path}/dirty", "{path}/absent"), ("-n", "a"), "dirty_dir = {path}/absent: No such file or directory; make it, mode 1733"),
    (GOOD.replace('replicator_dir = "{path}"', 'replicator_dir = "{path}/dovelane.conf"'), ("-n", "a"), "replicator_dir = {path}/dovelane.conf: Not a directory\n"),
    ("", (), "has no replica"),
    ("nonsense = 1", (), "nonsense"),
], ids=["named", "good", "another name", "more words", "a file that is not there", "a desk, without the directories", "a directory that is not there", "no directory", "no replica", "nonsense"])
def test_the_settings_can_be_checked_in_a_shell(tmp_path, conf, words, wrong):
    path, program = tmp_path / "dovelane.conf", BUILD / "dovecot-plugin/replicator/dovelane-replicator"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    (tmp_path / "dirty").mkdir()
    path.write_text(conf.format(path=tmp_path) + "\n")
    done = subprocess.run([program, "-C", path, "-t", *words], capture_output=True, text=True, timeout=60, check=False)
    if wrong is None:
        assert (done.returncode, done.stderr) == (0, "") and "is good" in done.stdout
    else:
        assert done.returncode == 2 and wrong.format(path=tmp_path) in done.stderr and not done.stdout, done


@pytest.mark.parametrize("site, good", [(1, True), (2, False)])
def test_the_check_tells_of_another_sites_directory_and_touches_nothing(tmp_path, site, good):
    tmp_path = tmp_path / "100%41?#"   # which would mean something in a URI
    tmp_path.mkdir()
    path, program = tmp_path / "dovelane.conf", BUILD / "dovecot-plugin/replicator/dovelane-replicator"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    (tmp_path / "dirty").mkdir()
    path.write_text(GOOD.format(path=tmp_path) + "\n")
    with contextlib.closing(sqlite3.connect(tmp_path / "replicator.db")) as db:
        db.executescript(f"PRAGMA journal_mode = WAL; CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID; INSERT INTO meta VALUES ('site', {site});")
    before = sorted(tmp_path.iterdir())
    done = subprocess.run([program, "-C", path, "-t", "-n", "a"], capture_output=True, text=True, timeout=60, check=False)
    assert sorted(tmp_path.iterdir()) == before
    if good:
        assert (done.returncode, done.stderr) == (0, "") and "is good" in done.stdout
    else:
        assert done.returncode == 2 and f"{tmp_path}/replicator.db: is of site 2, and -n names a, site 1: " in done.stderr and not done.stdout, done


@pytest.mark.parametrize("bytes_before", [1, 511, 512, 600, 1023, 1024, 5000])
def test_a_line_that_never_ends_takes_no_hint_away(world, bytes_before):
    """Who writes it may be any account of the host; the hint of whoever writes next ends the line."""
    w = world(1)
    w[0].site.add("u", "x")
    fd = os.open(w[0].directory / "dovelane-hint", os.O_WRONLY | os.O_NONBLOCK)
    for looks in range(1, 4):
        os.write(fd, b"x" * bytes_before)
        time.sleep(0.05)    # read by itself, mostly
        os.write(fd, b"1\tu\t-\tINBOX\n")
        eventually("a look", lambda: w[0].site.state("u").looks == looks)
    os.close(fd)


def test_hints_that_are_none_are_counted(world):
    w = world(1)
    fd = os.open(w[0].directory / "dovelane-hint", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"garbage\n1\t../x\t-\tINBOX\n" + b"x" * 5000 + b"\n1\tu\t-\tINBOX\n")
    os.close(fd)
    w[0].site.add("u", "x")
    eventually("a look", lambda: w[0].site.state("u").looks == 1)
    assert w[0].metric("replicator_hints_unreadable") == 3
