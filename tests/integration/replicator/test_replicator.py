"""dovelane-replicator: hints, lanes, programs that begin and end, workers that fail."""
import contextlib
import os
import random
import subprocess
import sys
import time

import pytest

from support.frames import BATCH, num, text
from support.replicator_worker import CLEAN
from support.replicator_world import PROGRAM, World, users
from support.waiting import SLOW, eventually

LIVE, BULK = "dovelane:replica:{}>{}", "dovelane:replica:{}>{}:bulk"
pytestmark = [pytest.mark.core, pytest.mark.long]


@pytest.fixture
def world(request):
    started = []

    def start(replicas=2, up=True, **settings):
        started.append(World(replicas, **settings))
        return started[-1].up() if up else started[-1]

    yield start
    for w in started:
        w.end(getattr(request.node, "call_failed", False))


def meta(digest, user, kind=BATCH, sender=1, to=2, version=1):
    return bytes([version]) + digest + text(user) + bytes([kind]) + num(sender) + num(to)


# ---- the way of a change ----

@pytest.mark.check
def test_a_hint_brings_a_change_to_two_peers(world):
    w = world(3)
    w[0].change("u@example.net", "one")
    w.converge(["u@example.net"])
    assert w[2].site.items("u@example.net") == {1: ["one"]}


def test_changes_of_all_sites_meet_in_order(world):
    w = world(3)
    for n in range(30):
        for r in w.replicas:
            r.change("u", f"{r.name}-{n}")
    w.quiet(["u"])
    assert w[1].site.items("u") == {r.number: [f"{r.name}-{n}" for n in range(30)] for r in w.replicas}


def test_hints_are_coalesced(world):
    w = world(1, hint_wait="300ms")
    begun = time.monotonic()
    for _ in range(200):
        w[0].change("u", "x")
    eventually("a look", lambda: not w[0].site.state("u").mailbox)
    eventually("all hints read", lambda: w[0].metric("replicator_hints") == 200)
    eventually("an end of the work", lambda: w[0].admin("status")[0][1][4].endswith(", 0 wait"))
    assert w[0].site.state("u").looks <= 2 + (time.monotonic() - begun) / 0.3


def test_a_user_whose_changes_do_not_pause_is_looked_at_less_often(world):
    """And at their end, whenever that is."""
    w = world(1, hint_wait="200ms", hint_wait_most="10s")
    site, looks, longest = w[0].site, 99, 1.
    writer = os.open(w[0].directory / "dovelane-hint", os.O_WRONLY)  # as Dovecot's processes have it: a FIFO without any is looked at every 0.2 s only
    for name in users(5):
        w[0].change(name, "first")
        eventually("a first look", lambda name=name: site.state(name).looks)
        before, last, longest, begun = site.state(name).looks, time.monotonic(), 0., time.monotonic()
        while time.monotonic() < begun + 3:
            w[0].change(name, "x")
            time.sleep(0.002)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        looks = site.state(name).looks - before
        w[0].change(name, "last")
        eventually("the last change",
                   lambda name=name: not site.state(name).mailbox and site.items(name)[w[0].number][-1] == "last")
        if longest < 0.15:  # else this test itself paused
            break
    os.close(writer)
    assert longest >= 0.15 or looks <= 4  # after 0.2 s, 0.4 s more, 0.8 s more; with one look each 200 ms it would be 14


def test_what_clients_did_is_looked_at_before_a_peers_ops_are_taken(world):
    """Also while the next look is put off: an op of theirs that is made later would name what they have not seen."""
    w = world(2, hint_wait="10s")
    here, there = w.replicas
    here.change("u", "first")
    eventually("a first look", lambda: here.site.items("u").get(here.number) == ["first"])
    here.change("u", "second")
    eventually("its hint", lambda: here.metric("replicator_hints") == 2)
    assert here.site.state("u").mailbox
    there.change("u", "theirs")
    eventually("their op", lambda: here.site.items("u").get(there.number) == ["theirs"])
    assert not here.site.state("u").mailbox


def test_of_many_mailboxes_named_at_once_those_that_changed_are_looked_into(world):
    """Not all that the user has: one question names 64, and a client that makes hundreds of folders would have each opened at each look."""
    w = world(1, hint_wait="300ms")
    w[0].change("u", "first")
    eventually("a first look", lambda: w[0].site.items("u") == {1: ["first"]})
    sweeps = w[0].site.state("u").sweeps
    w[0].site.add("u", "x")
    writer = os.open(w[0].directory / "dovelane-hint", os.O_WRONLY)
    os.write(writer, b"".join(b"1\tu\t-\tM%d\n" % n for n in range(200)))  # one write, so that they are read together
    eventually("a look at what changed", lambda: w[0].site.state("u").sweeps > sweeps)
    eventually("the change", lambda: w[0].site.items("u") == {1: ["first", "x"]})
    os.close(writer)


def test_a_link_in_the_place_of_the_marks_leads_nowhere(world):
    """Its parent may be another program's directory: what the link names is not emptied."""
    w = world(2, sweep_active="1h", sweep_all="1h")
    other = w[0].directory / "other"
    other.mkdir()
    (other / "u0").touch()
    (w[0].directory / "dirty").rename(w[0].directory / "elsewhere")
    (w[0].directory / "dirty").symlink_to(other)
    eventually("the log names it", lambda: w[0].says(f"dirty_dir {w[0].directory}/dirty: "))
    assert os.listdir(other) == ["u0"]
    (w[0].directory / "dirty").unlink()
    (w[0].directory / "elsewhere").rename(w[0].directory / "dirty")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's place")
def test_the_admins_socket_is_for_root_whatever_its_mode_is(world):
    w = world(1)
    path = w[0].directory / "dovelane-admin"
    for part in (w[0].directory.parent, w[0].directory):
        part.chmod(0o755)
    path.chmod(0o666)
    asked = ("import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1])\n"
             "try:\n s.sendall(b'status\\t\\n'); print(s.recv(100))\nexcept OSError as e: print(e)")
    said = subprocess.run([sys.executable, "-c", asked, path], stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    assert said.strip() in ("b''", "[Errno 32] Broken pipe", "[Errno 104] Connection reset by peer"), said
    assert w[0].says("uid 65534, process") and w[0].says("connected to the admin's socket and was sent away: it is for root")
    assert w[0].admin("status")[1] == 0


@pytest.mark.test
def test_dirty_marks_are_looked_into_and_removed(world):
    w = world(2)
    w[0].site.add("a/b".replace("/", "@"), "marked")
    w[0].mark("a%40b")
    w.converge(["a@b"])
    eventually("an empty directory", lambda: not os.listdir(w[0].directory / "dirty"))


def test_a_directory_in_a_marks_place_hides_no_change(world):
    """Whoever may make marks may make a directory in another user's name, which the plugin would take for his mark."""
    w = world(2)
    for name in ("a%40b", "c%40d"):
        (w[0].directory / "dirty" / name).mkdir()
    (w[0].directory / "dirty" / "c%40d" / "x").mkdir()
    for user in ("a@b", "c@d"):
        w[0].site.add(user, "marked")
    w.converge(["a@b", "c@d"])
    eventually("only what cannot be removed",
               lambda: os.listdir(w[0].directory / "dirty") == ["c%40d"])


@pytest.fixture
def small_disk(world):
    """A replica whose replicator's own directory is on a file system that is soon full: (replica, fill, free)."""
    w = world(2, up=False)
    state = w[0].directory / "state"
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", state], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")

    def fill():
        with contextlib.suppress(OSError), open(state / "fill", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)

    yield w, fill, lambda: (state / "fill").unlink()
    w[0].end()
    subprocess.run(["umount", "-l", state], check=True)


def test_whoever_is_new_while_the_disk_is_full_is_not_forgotten(small_disk):
    """Neither by his mark nor by a hint, and nobody lists them."""
    w, fill, free = small_disk
    w.up()
    fill()
    for n, tell in enumerate((w[0].mark, w[0].hint)):
        w[0].site.add(f"u{n}", "one")
        tell(f"u{n}")
        eventually("a first look", lambda n=n: w[0].site.items(f"u{n}") == {1: ["one"]})
    eventually("an error", lambda: w[0].says("replicator.db: COMMIT: database or disk is full"))
    seen = w[0].site.state("u0").looks
    eventually("one look more, for the mark that stays", lambda: w[0].site.state("u0").looks > seen)
    assert os.listdir(w[0].directory / "dirty") == ["u0"]
    free()
    eventually("an empty directory", lambda: not os.listdir(w[0].directory / "dirty"))
    w[0].kill()
    for n in range(2):
        w[0].site.add(f"u{n}", "two, without a hint")
    w[0].start()
    w.quiet(["u0", "u1"])


def test_the_mark_for_all_sweeps_all(world):
    w = world(2)
    w[0].site.listed = ["u1", "u2", "never@seen"]
    for name in w[0].site.listed:
        w[0].site.add(name, "unseen")
    w[0].mark("+all")
    w.converge(w[0].site.listed)
    assert w[0].site.state("u1").sweeps == 1


def test_many_users_share_one_worker(world):
    w = world(2, replicator_workers=1)
    names = users(100)
    for name in names:
        w[0].change(name, "x")
    w.quiet(names)
    assert set(w[0].site.opened) == set(names)


def test_a_busy_user_does_not_keep_others_waiting(world):
    """Its parcels never end, but it gives its worker back after its slice."""
    w = world(2, replicator_workers=1, hint_wait="0ms")
    w[0].site.batch_bytes = 1
    w[1].site.slow["busy"] = 0.02
    for n in range(300):
        w[0].change("busy", f"{n}")
        time.sleep(0.001)
    w[0].change("other", "x")
    w.converge(["other"])
    assert len(w[1].site.items("busy").get(1, [])) < 300, "the test was too slow to see anything"
    w.converge(["busy"])


# ---- programs that begin and end ----

def test_a_first_start_sweeps_all_users_there_are(world):
    w = world(2, up=False)
    w[0].site.listed = ["u", "v"]
    w[0].site.add("u", "from before")
    w.up()
    w.converge(["u"])
    assert w[0].says("it runs for the first time: all users are swept")
    assert w[0].site.state("u").sweeps == 1


def test_all_users_where_nobody_is_known(world):
    w = world(1)
    rows, code, errors = w[0].admin("verify", "*")
    assert rows == [] and code != 0 and "no user is known" in str(errors)


def test_a_site_that_is_no_other_one_is_not_removed(world):
    w = world(2)
    rows, code, errors = w[0].admin("peers", "", "--remove", "3")
    assert rows == [] and code != 0 and "--remove 3: no other replica in dovelane.conf has that id" in str(errors)


@pytest.mark.check
def test_main_killed_finds_everything_again(world):
    w = world(2)
    names = users(10)
    w[0].site.listed = names
    for name in names:
        w[0].change(name, "one")
    w[0].kill()
    for name in names:
        w[0].site.add(name, "two, without a hint")
    w[0].start()
    w.quiet(names)
    assert w[0].says("did not end cleanly")


def test_main_killed_finds_users_again_whom_nobody_lists(world):
    """Seen for the first time a moment before: nothing but its own memory tells of them."""
    w = world(2)
    names = users(10)
    for name in names:
        w[0].change(name, "one")
        eventually("a first look", lambda name=name: w[0].site.items(name) == {1: ["one"]})
    w[0].kill()
    for name in names:
        w[0].site.add(name, "two, without a hint")
    w[0].start()
    w.quiet(names)


def test_a_directory_of_another_site_is_refused(world):
    """As with the wrong -n on a host: its numbers would be given as another site's."""
    w = world(2)
    w[0].stop()
    conf = w[0].directory / "conf"
    done = subprocess.run([PROGRAM, conf, "site-b", w[0].directory], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "replicator.db: is of site 1, and -n names site-b, site 2: -n in the executable of service dovelane-replicator" in done.stderr, done.stderr
    w[0].start()


def test_a_damaged_replicator_db_is_told_and_not_needed(world):
    w = world(2)
    w[0].change("u", "x")
    w.quiet(["u"])
    w[0].stop()
    files = list((w[0].directory / "state").glob("replicator.db*"))
    for file in files:
        file.write_bytes(b"this is no database\n" * 1000)
    done = subprocess.run([PROGRAM, w[0].directory / "conf", "site-a", w[0].directory], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "replicator.db: file is not a database: the file is damaged; it holds no mail: remove " in done.stderr, done.stderr
    for file in files:
        file.unlink()
    w[0].site.add("u", "y, without a hint")
    w[0].start()
    w[0].admin("resync", "u")   # no userdb lists him here
    w.quiet(["u"])


def test_main_stopped_closes_its_users_and_sweeps_nobody(world):
    w = world(2)
    w[0].change("u", "x")
    w.quiet(["u"])
    w[0].stop()
    assert "u" in w[0].site.closed
    assert ("u", CLEAN, 1, 1, 0) in w[0].site.reserved
    w[0].start()
    assert not w[0].says("did not end cleanly")
    w[0].change("v", "y")
    w.converge(["v"])
    assert w[0].site.state("u").sweeps == 0


def test_a_sweep_that_a_stop_cuts_short_is_begun_anew(world):
    """Not the first one: that counted as done, and the next came an hour later."""
    w = world(2, sweep_all="1h")
    eventually("the sweep of the first start", lambda: w[0].says("swept:"))
    w[0].stop()
    w[0].site.listed = [f"u{n}" for n in range(10)]
    w[0].start(sweep_rate="1")
    w[0].mark("+all")
    names = w[0].site.listed
    eventually("its begin", lambda: any(w[0].site.state(name).sweeps for name in names))
    w[0].stop()
    assert w[0].log.read_text().count("swept:") == 1
    w[0].start(sweep_rate="1000")
    eventually("a look at all", lambda: all(w[0].site.state(name).sweeps for name in names))


def test_a_hint_that_nobody_followed_survives_a_stop(world):
    w = world(2)
    w[0].change("u", "one")
    w.quiet(["u"])
    w[0].site.failing.add("u")
    w[0].site.kill_workers()
    eventually("no workers", lambda: not w[0].site.open_users)
    w[0].change("u", "two")
    eventually("a failure", lambda: w[0].says("cannot be opened now"))
    w[0].stop()
    w[0].site.failing.clear()
    w[0].start()
    w.converge(["u"])
    assert w[0].site.state("u").sweeps == 0 and not w[0].says("did not end cleanly")


@pytest.mark.test
def test_unconfirmed_changes_survive_a_restart(world):
    w = world(2, up=False)
    w[0].start()
    w[0].change("u", "x")
    eventually("an unconfirmed change", lambda: w[0].admin("lag")[0][1][3] == "1")
    w[0].stop()
    w[0].redis.client()("FLUSHALL")
    w[0].start()
    assert w[0].admin("lag")[0][1][3] == "1"
    w[1].start()
    w.quiet(["u"])


@pytest.mark.test
def test_a_worker_that_dies_has_its_job_done_again(world):
    w = world(2)
    w[0].site.crashing["u"] = 1
    w[1].site.crashing["u"] = 1
    w[0].change("u", "x")
    w.quiet(["u"])
    assert w[0].metric("replicator_workers_lost") == 1
    assert w[1].metric("replicator_workers_lost") == 1


def test_a_parcel_that_kills_workers_is_given_up_and_others_flow(world):
    w = world(2)
    w[1].site.crashing["poison"] = 3
    w[0].change("poison", "x")
    w[0].change("u", "y")
    w.converge(["u"])
    eventually("a parcel given up", lambda: w[1].says("workers went away over one parcel"))
    w.quiet(["poison"])  # it was unconfirmed, so it came again


def test_all_workers_killed_at_random(world):
    w = world(2)
    names = users(10)
    for n in range(20):
        for name in names:
            w[n % 2].change(name, f"{n}")
        if n % 5 == 4:
            w[n % 2].site.kill_workers()
    w.quiet(names)


# ---- users who cannot ----

def test_an_unknown_user_holds_nobody_up(world):
    w = world(2)
    w[1].site.unknown.add("gone")
    w[0].change("gone", "x")
    w[0].change("u", "y")
    w.converge(["u"])
    eventually("a dropped parcel", lambda: w[1].metric("replicator_dropped") >= 1)
    assert w[1].redis.client()("LANE.LEN", LIVE.format("site-b", "site-a")) >= 0
    eventually("an empty lane",
               lambda: w[0].redis.client()("LANE.LEN", LIVE.format("site-a", "site-b")) == 0)
    assert w[1].says("user=gone: cannot be replicated here")


def test_a_user_whose_disk_is_full_holds_nobody_up_and_is_served_later(world):
    w = world(2)
    w[1].site.refusing.add("full")
    for n in range(20):
        w[0].change("full", f"{n}")
        w[0].change("u", f"{n}")
    w.converge(["u"])
    assert w[1].site.items("full") == {}
    w[1].site.refusing.clear()
    w.quiet(["full"])


def watch_most(measure, until, what):
    """The greatest value while something is waited for."""
    most = 0

    def look():
        nonlocal most
        most = max(most, measure())
        return until()

    eventually(what, look)
    return most


LARGE = "x" * 3_500_000    # of which a site holds 64 MiB in hand, and a lane as much


@pytest.mark.parametrize("how", ["refusing", pytest.param("failing", marks=pytest.mark.exhaustive)])
def test_large_changes_of_a_user_who_cannot_take_them_hold_nobody_up(world, how):
    """Disk full, or a home that cannot be opened. Before, what he had in hand filled the hand of all, and the lane."""
    w = world(2, exchange_after="1h")    # a scripted worker's answer holds all at once, which is more than a frame may
    getattr(w[1].site, how).add("full")
    for n in range(25):
        w[0].change("full", f"{n}{LARGE}")
    eventually("all of it taken, and most given back",
               lambda: len(w[0].site.items("full").get(1, [])) == 25 and w[1].metric("replicator_dropped") >= 20)

    def in_hand():
        return w[1].metric("replicator_in_hand_bytes")
    for n in range(6):
        w[0].change("u", f"{n}")
        assert watch_most(in_hand, lambda: w.converged(["u"]), "another user's change") < 9_000_000
    assert w[0].redis.client()("LANE.LEN", LIVE.format("site-a", "site-b")) <= 70    # what is in hand: his first parcel, and hellos
    # The first of all is sent again and again, alone: it tells whether he can take it.
    before = w[0].site.made
    probes = w[0].site.probes + 2
    assert watch_most(in_hand, lambda: w[0].site.probes >= probes, "probes") < 9_000_000
    assert w[0].site.made - before <= 4
    assert w[1].site.items("full") == {}
    getattr(w[1].site, how).clear()
    w.quiet(["full", "u"])


@pytest.mark.exhaustive
def test_a_user_whose_worker_does_not_answer_gives_his_room_to_others(world):
    """As when his home's file system hangs."""
    w = world(2, replicator_memory="16MB", exchange_after="1h", worker_timeout="10min")
    w[0].change("slow", "x")
    w[0].change("u", "x")
    w.converge(["slow", "u"])
    w[1].site.slow["slow"] = 40
    for n in range(8):
        w[0].change("slow", f"{n}{LARGE}")
    eventually("a hand that is full", lambda: w[1].metric("replicator_in_hand_bytes") > 14_000_000)
    w[0].change("u", "later")
    eventually("another user's change, before he answers", lambda: w.converged(["u"]))
    assert len(w[1].site.items("slow")[1]) == 1
    w[1].site.slow.clear()
    w.quiet(["slow", "u"], 120)


def test_a_change_that_is_in_hand_is_not_held_once_more_when_it_comes_again(world):
    w = world(2, exchange_after="1h")
    w[1].site.refusing.add("full")
    w[0].change("full", "x" * 300_000)
    eventually("the change sent again and again", lambda: w[0].site.probes >= 3)
    assert 300_000 < w[1].metric("replicator_in_hand_bytes") < 400_000    # and hellos
    w[1].site.refusing.clear()
    w.quiet(["full"])


def resident(process):
    """Bytes of its own memory."""
    with open(f"/proc/{process.pid}/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def test_what_is_in_hand_keeps_to_the_setting_and_is_given_back(world):
    w = world(2, replicator_memory="16MB", exchange_after="1h", worker_timeout="10min")
    some = [f"u{n}" for n in range(40)]
    w[1].site.slow.update(dict.fromkeys(some, 20))
    for n in range(5):
        for user in some:
            w[0].change(user, f"{n}{'x' * 100_000}")
        eventually("changes that are shipped",
                   lambda: w[0].admin("status")[0][1][4].endswith(", 0 wait"))

    def in_hand():
        return w[1].metric("replicator_in_hand_bytes")
    eventually("a hand that is full", lambda: in_hand() > 16_600_000)
    assert in_hand() < (16 << 20) + 110_000    # and a parcel
    full = resident(w[1].process)
    w[1].site.slow.clear()
    w.quiet(some, 120)
    eventually("an empty hand", lambda: in_hand() == 0)
    assert SLOW > 1 or resident(w[1].process) < full - (8 << 20)    # a sanitizer gives nothing back


def test_many_users_who_cannot_take_anything_fill_the_hand_of_nobody(world):
    """A file system that is full: each keeps one parcel at most, and all together half of the hand."""
    w = world(2, replicator_memory="16MB", exchange_after="1h")
    full = [f"full{n}" for n in range(12)]
    w[1].site.refusing.update(full)
    for user in full:
        w[0].change(user, LARGE)
    eventually("most of it given back", lambda: w[1].metric("replicator_dropped") >= 8)
    for n in range(10):
        w[0].change("u", f"{n}")
        w.converge(["u"])
    # Whose wait is over is tried again, with one parcel more. A slow host has several such tries at a time.
    eventually("half of the hand, and a parcel",
               lambda: w[1].metric("replicator_in_hand_bytes") < 12_000_000)
    w[1].site.refusing.clear()
    w.quiet([*full, "u"])


def test_a_user_who_cannot_be_opened_now_is_opened_later(world):
    w = world(2)
    w[0].site.failing.add("u")
    w[0].change("u", "x")
    eventually("a failure", lambda: w[0].says("cannot be opened now"))
    w[0].site.failing.clear()
    w.converge(["u"])


# ---- all of it ----

def test_everything_goes_wrong_at_random(world):
    """Seeded load on three sites while lanes are flushed, workers, mains and Redis are killed."""
    seed = int(os.environ.get("DOVELANE_SEED", random.randrange(10**6)))
    print(f"DOVELANE_SEED={seed}")
    chance = random.Random(seed)
    w = world(3)
    names = users(15)
    for r in w.replicas:
        r.site.listed = names
    for n in range(150):
        r = chance.choice(w.replicas)
        what = chance.random()
        if what < 0.85:
            for name in chance.sample(names, 3):
                r.change(name, f"{r.name} {n}")
        elif what < 0.90:
            r.redis.client()("FLUSHALL")
        elif what < 0.94:
            r.site.kill_workers()
        elif what < 0.97:
            r.kill()
            r.start()
        else:
            r.redis.process.kill()
            r.redis.process.wait()
            r.redis.start()
        time.sleep(chance.random() * 0.02)
    w.quiet(names, 90)
