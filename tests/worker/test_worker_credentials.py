"""A worker becomes the first user that it opens, for good, and serves nobody else."""
import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
from worker_sites import make_world, needs_dovecot
from support.frames import ADMIN, CLOSE, num, text
from support.worker_world import GUARD, USER, Failed

pytestmark = [needs_dovecot, pytest.mark.exhaustive]
ONE, OTHER, OUTSIDE = USER, "other@example.org", 12399
IDS = {ONE: 12345, OTHER: 12346, "alias@example.org": 12345}


@pytest.fixture
def site(tmp_path_factory):
    world = make_world(tmp_path_factory, ["sdbox"], ids=IDS)
    yield world[1]
    world.stop()


def workers(site):
    """The processes of this Dovecot's workers."""
    said = subprocess.run(["pgrep", "-P", str(site.process.pid), "-x", "dovelane-worker"], stdout=subprocess.PIPE, check=False).stdout
    return [int(pid) for pid in said.split()]


def status(pid):
    return dict(re.findall(r"^(\w+):\t(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M))


def close(site):
    site.work(CLOSE)


def gone(pid):
    """Waits for a process that is about to end."""
    subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], check=True, timeout=GUARD)


def users(site):
    """What ADMIN "users" answers, to whoever the connection is with."""
    _, r = site.job(ADMIN, num(1) + text("users"))
    return r.u8(), site.replies


@pytest.mark.test
def test_it_is_that_user_in_every_respect(site):
    site.connect()
    assert users(site)[0] == 0  # the process is there, and root
    (pid,) = workers(site)
    assert status(pid)["Uid"].split() == ["0"] * 4
    assert site.open(ONE)
    said = status(pid)
    assert said["Uid"].split() == said["Gid"].split() == ["12345"] * 4
    assert said["Groups"].split() in ([], ["12345"])
    # The socket at which the next connection would wait, for another user.
    listening = subprocess.run(["ss", "-Hlxp"], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert f"pid={site.process.pid}," in listening and f"pid={pid}," not in listening
    # 2.4's master lets some be inherited (CapInh), which gives nothing: only a program file with such ones of its own would.
    assert {said[which] for which in ("CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    # Not dumpable: not even a process with the same id may look into it, or read its descriptors.
    assert Path(f"/proc/{pid}/fd").stat().st_uid == 0
    looks = subprocess.run(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "ls", f"/proc/{pid}/fd"], capture_output=True, check=False)
    assert looks.returncode != 0 and b"Permission denied" in looks.stderr
    close(site)
    assert status(pid)["Uid"].split() == ["12345"] * 4, "between two users it is what it was"


@pytest.mark.long
def test_a_user_with_another_id_gets_another_process(site):
    site.connect()
    assert site.open(ONE)
    (pid,) = workers(site)
    close(site)
    with pytest.raises(Failed, match="ask another one"):
        site.lookup(OTHER)  # what it says of others is nobody's word any more
    assert not site.open(OTHER)
    with pytest.raises(Failed):
        site.receive()
    gone(pid)
    site.disconnect()
    site.connect()
    one, other, alias = (site.lookup(name) for name in (ONE, OTHER, "alias@example.org"))
    assert one[0] == alias[0] != other[0]
    assert site.lookup(ONE.upper()) == one and one[1] == ONE, "one user, however he is spelt"
    assert not site.open(OTHER, one[0]), "he is not who main thinks he is"
    site.disconnect()
    site.connect()
    assert site.open(OTHER, other[0])
    assert ["12346"] * 4 in [status(each)["Uid"].split() for each in workers(site)]
    site.ingest()
    assert (site.base / "mail" / "other" / "sdbox" / "dovelane" / "state.db").stat().st_uid == 12346


@pytest.mark.long
def test_users_with_one_id_share_a_process(site):
    """And mails and states are read and written for each of them."""
    site.connect()
    for name in (ONE, "alias@example.org", ONE):
        assert site.open(name)
        site.ingest()
        (pid,) = workers(site)
        assert (site.base / "mail" / name.partition("@")[0] / "sdbox" / "dovelane" / "state.db").stat().st_uid == 12345
        close(site)
    assert workers(site) == [pid]


def test_nobody_else_gets_a_process_that_was_used(site):
    """The connection ends, and so does the process: else Dovecot would give it the next one."""
    site.connect()
    assert site.open(ONE)
    (pid,) = workers(site)
    close(site)
    site.disconnect()
    gone(pid)
    site.connect()
    assert site.open(OTHER)
    assert workers(site) != [pid]


@pytest.mark.parametrize("opened", [True, False])
def test_its_connection_ends_with_the_process_and_not_before(site, opened):
    """Main ends its half, and counts the process until it reads the end. In between its user can stop it."""
    for _ in range(5):
        site.connect()
        assert site.open(ONE)
        (pid,) = workers(site)
        if not opened:
            close(site)
        site.sock.shutdown(socket.SHUT_WR)
        asked = time.monotonic()
        assert site.sock.recv(1) == b""
        try:
            assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"", "it has its memory still"
        except (FileNotFoundError, ProcessLookupError):
            pass
        assert time.monotonic() - asked < 5
        gone(pid)
        site.disconnect()


def test_a_user_who_cannot_be_opened_changes_nothing(site):
    site.connect()
    with pytest.raises(Failed, match="permanent=2 no such user"):  # FAIL_NOBODY
        site.open("nobody-of-this-name@example.org")
    assert site.open(ONE)


def test_it_lists_no_users_any_more(site):
    site.connect()
    assert site.open(ONE)
    close(site)
    assert users(site) == (1, [])
    # A user whose id was changed under the process is not opened by it either.
    listed = (site.base / "users").read_text().replace("12345", str(OUTSIDE))
    (site.base / "users").write_text(listed)
    os.utime(site.base / "users", (1, 1))  # another time than that which Dovecot remembers
    end = time.monotonic() + GUARD
    while site.open(ONE):  # Dovecot looks at the file once a second
        close(site)
        assert time.monotonic() < end


@pytest.mark.long
@pytest.mark.parametrize("opened", [True, False])
def test_a_user_who_stops_his_process_does_not_keep_it(site, opened):
    """He can signal what has his id. Dovecot starts no more than process_limit of them, and nobody but root could end it."""
    site.settings = {"worker_timeout": "1000"}
    site.connect()
    assert site.open(ONE)
    (pid,) = workers(site)
    if not opened:
        close(site)
    subprocess.run(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "kill", "-STOP", str(pid)], check=True)
    gone(pid)
    with pytest.raises(Failed):
        site.receive()
    site.disconnect()
    site.connect()
    assert site.open(OTHER)


@pytest.mark.long
def test_who_stops_his_process_behind_its_last_word_keeps_it_for_ten_seconds(site):
    """Not for as long as a question may take, or as a process without one may be silent."""
    site.settings = {"worker_timeout": "600000"}
    site.connect()
    assert site.open(ONE)
    (pid,) = workers(site)
    close(site)
    subprocess.run(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "kill", "-STOP", str(pid)], check=True)
    site.sock.shutdown(socket.SHUT_WR)
    gone(pid)   # within its guard, which is below a process without a question
