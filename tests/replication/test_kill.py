"""kill -9 of everything there is, FLUSHALL, Redis away: what was answered reaches the peers, with no later traffic to help."""
import os
import random
import socket
import statistics
import time

import pytest
from support.stack import digest, resp
from support.stack.snapshot_reader import SnapshotReader
from support.stack.group import FAST
from support.stack.journal import Journal
from support.stack.traffic import Traffic, make_folders

# With the settings of tests (stack/group.py FAST) a dirty mark is seen within 0.5 s, an active user within 2 s, an unclean start
# sweeps all; a peer behind exchanges after 3 s. This is no such time but a guard against waiting for ever on a busy machine.
WITHIN = 420.0
USERS = [f"k{n}@example.org" for n in range(6)]
POINTS = int(os.environ.get("DOVELANE_KILL_POINTS", "20"))
SEED = int(os.environ.get("DOVELANE_SEED", "4"))
SWEEPS = ", ".join(f"{name} {FAST[f'sweep_{name}']}" for name in ("dirty", "active", "all")) + f", exchange after {FAST['exchange_after']}"
VICTIMS = ("imap", "lmtp", "dovelane-replicator", "dovelane-worker", "redis")


def hit(group, dice, victim):
    """Kills one; what was hit. Where there is no process of the kind at the moment, another moment at any site is taken: no kill is none."""
    if victim == "redis":
        name = f"redis-{dice.choice(group.replicas).letter}"
        assert group[name].alive()
        group.kill(name)
        time.sleep(dice.uniform(0, 0.3))
        group.start(name)
        return name
    end = time.monotonic() + 240
    while time.monotonic() < end:
        replica = dice.choice(group.replicas)
        if replica.kill_some(victim, dice.choice):
            return f"{victim} at {replica.letter}"
        time.sleep(0.001)
    raise AssertionError(f"nowhere a process of {victim} to be killed")


def judged(group, users, journal, within=WITHIN):
    agreed = digest.wait_equal(group.replicas, users, within, moving=journal.moving(group.rebuilt))
    complaints = journal.judge({user: next(iter(digests.values())) for user, digests in agreed.items()}, group.rebuilt())
    assert not complaints, "\n".join(complaints[:20])


def kill_points(group, points, seed, specs, untouched, from_nothing=False):
    """`untouched`: at so many of the points nobody opens a mailbox until all is equal; at the others sessions look, again and again."""
    group, dice, journal, times = group(*specs), random.Random(seed), Journal(), []
    if not from_nothing:
        make_folders(group.replicas, USERS)
    with SnapshotReader(*specs) as reader:
        for point in range(points):
            victim = VICTIMS[point % len(VICTIMS)]
            with Traffic(group.replicas, USERS, journal, seed=seed * 1000 + point, run=f"p{point}") as traffic:
                traffic.wait(dice.randrange(20, 120), 240)
                what = hit(group, dice, victim)
            began = time.monotonic()
            try:
                if point < untouched:
                    reader.wait_equal(group.replicas, USERS, WITHIN)
                    times.append(time.monotonic() - began)
                judged(group, USERS, journal)
            except AssertionError as error:
                raise AssertionError(f"point {point} of seed {seed}: after kill -9 of {what}: {error}") from None
            print(f"point {point}: kill -9 of {what}, equal after {time.monotonic() - began if point >= untouched else times[-1]:.1f} s"
                  f"{', untouched' if point < untouched else ''} (sweeps: {SWEEPS})", flush=True)
    assert journal.acknowledged >= 20 * points
    print(f"{points} points, {journal.acknowledged} answered, {journal.unanswered} not; untouched, equal after {statistics.median(times):.1f} s (median), "
          f"{max(times):.1f} s (most)")


def test_kill_points(group):
    kill_points(group, POINTS, SEED, ("sdbox", "mdbox"), untouched=len(VICTIMS))


def test_kill_points_of_a_maildir(group):
    """Of which a session's look is the very sync that the replicator must do by itself."""
    kill_points(group, len(VICTIMS), SEED + 2, ("maildir", "sdbox"), untouched=len(VICTIMS))


@pytest.mark.long
def test_first_moments_of_new_users(group):
    """All sites make the same folders of users whom none has seen before, under load and kills."""
    kill_points(group, 5, SEED + 7, ("sdbox", "mdbox"), untouched=1, from_nothing=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("specs", [("sdbox", "mdbox"), ("maildir", "sdbox"), ("sdbox@2.3", "mdbox@2.4")], ids=" ".join)
def test_many_kill_points(group, specs):
    kill_points(group, 200, SEED + 1, specs, untouched=200)


@pytest.mark.parametrize("how", ["replica", "all but redis"])
def test_a_whole_replica_dies_and_returns(group, how):
    """Every process of A at once, as with a host: what A answered and could not ship is there when it returns."""
    there, journal = group("maildir", "sdbox"), Journal()
    a = there.replicas[0]
    make_folders(there.replicas, USERS)
    with Traffic(there.replicas, USERS, journal, seed=SEED) as traffic:
        traffic.wait(200, 240)
        if how == "replica":
            there.kill("redis-a")
        a.kill()
        traffic.wait(100, 240)     # B goes on
    hidden = digest.compare(there.replicas[1:], USERS[0])
    assert not hidden[0]
    if how == "replica":
        there.start("redis-a")
    there.start(a.name)
    # Of a process that died before it wrote its id into a Maildir's uidlist lock, Dovecot takes it over after 2 minutes; that mailbox waits.
    judged(there, USERS, journal, 120 + WITHIN)


@pytest.mark.long
def test_users_with_a_locked_maildir_keep_no_worker_from_others(group):
    """More of them than workers, and the locks are held for good: the others are served, and when the locks go, so are they."""
    there, users = group("maildir", "sdbox", workers=2), [f"locked{n}@example.org" for n in range(5)]
    from site_user import mail
    a, b = there.replicas

    def change(name):
        for user in users:
            session = b.imap(user)
            session.append("INBOX", mail(name))
            session.drop()
    change("first")
    digest.wait_equal(there.replicas, users, WITHIN)
    owner, locks = a.store(users[0]).stat(), [a.store(user) / "dovecot-uidlist.lock" for user in users[:3]]
    for lock in locks:
        lock.write_text(f"{os.getpid()}:{socket.gethostname()}")    # as Dovecot does; it is never overridden while that process lives
        os.chown(lock, owner.st_uid, owner.st_gid)
    change("second")
    digest.wait_equal(there.replicas, users[3:], 100)   # a worker that waited would do so for 122 s
    assert all(lock.exists() for lock in locks), "Dovecot took the locks: the test shows nothing"
    for user in users[:3]:
        assert sum(len(os.listdir(a.store(user) / name)) for name in ("new", "cur")) == 1
    for lock in locks:
        lock.unlink()
    digest.wait_equal(there.replicas, users, WITHIN)


@pytest.mark.long
def test_flushall_under_load_then_silence(group):
    there, journal = group("sdbox", "mdbox"), Journal()
    make_folders(there.replicas, USERS)
    with Traffic(there.replicas, USERS, journal, seed=SEED) as traffic:
        for letter in "aba":
            traffic.wait(80, 240)
            with resp.Connection(there[f"redis-{letter}"].note["address"]) as connection:
                connection.call("FLUSHALL")
    judged(there, USERS, journal)


def redis_down(there, seconds):
    """Both nodes are gone for that long under load: clients must notice nothing, and then all of it arrives."""
    journal = Journal()
    make_folders(there.replicas, USERS)
    with Traffic(there.replicas, USERS, journal, seed=SEED, pace=0.02) as traffic:
        traffic.wait(100, 240)
        there.kill("redis-a")
        there.kill("redis-b")
        before = journal.acknowledged
        time.sleep(seconds)
        traffic.wait(max(0, 5 * seconds - (journal.acknowledged - before)), 420)     # more only where the machine stood still
        during, refusals, unanswered = journal.acknowledged - before, list(journal.refusals), journal.unanswered
        there.start("redis-a")
        there.start("redis-b")
        traffic.wait(50, 240)
    assert not refusals and not unanswered, f"{refusals[:10]}, {unanswered} unanswered"
    assert during >= 5 * seconds, f"only {during} answered while Redis was down"
    judged(there, USERS, journal)


@pytest.mark.long
def test_redis_down(group):
    redis_down(group("sdbox", "mdbox"), 20)


@pytest.mark.exhaustive
def test_redis_down_ten_minutes(group):
    redis_down(group("sdbox", "maildir"), 600)


def test_an_operation_acknowledged_just_before_a_kill_is_published_once(group):
    """kill -9 of imap in the moment after its OK: between the commit and the hint, if ever."""
    there, user = group("sdbox", "sdbox"), "moment@example.org"
    from site_user import mail
    a = there.replicas[0]
    for n in range(15):
        session = a.imap(user)
        session.append("INBOX", mail(f"m{n}"))
        assert a.kill_some("imap") >= 1
        session.drop()
    shape = digest.wait_equal(there.replicas, [user], WITHIN)[user]["dovecot-b"].shape()
    assert shape == {"INBOX": {f"m{n}": [()] for n in range(15)}}


@pytest.mark.long
def test_replicator_away_while_clients_work(group):
    """The replicator and its workers are stopped, not killed: hints cannot be sent; the marks tell."""
    import signal
    there, journal = group("sdbox", "maildir"), Journal()
    a = there.replicas[0]
    make_folders(there.replicas, USERS)
    with Traffic(there.replicas, USERS, journal, seed=SEED) as traffic:
        traffic.wait(50, 240)
        stopped = a.processes("dovelane-replicator") + a.processes("dovelane-worker")
        assert stopped
        for one in stopped:
            one.send(signal.SIGSTOP)
        assert traffic.wait(600, 420), "clients came to a stand with the replicator stopped"
        for one in stopped:
            one.send(signal.SIGCONT)
    assert not journal.refusals, journal.refusals[:10]
    judged(there, USERS, journal)
