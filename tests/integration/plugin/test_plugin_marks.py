"""The plugin where nobody reads its hints: a mark is left, and nobody waits."""
import os
import subprocess

import pytest
from plugin_fixtures import mark_of, needs_root, sdbox, started, user, world
from support.stack.dovecot import version

pytestmark = needs_root


@pytest.fixture
def nobody_reads(sdbox):
    sdbox.unmark()
    sdbox.deaf()
    yield sdbox
    sdbox.listen()
    sdbox.hints()
    sdbox.unmark()


def test_without_a_reader_a_mark_is_left(nobody_reads, user):
    world = nobody_reads
    with world.imap(user) as session:
        session.mail()
        assert world.marks() == [mark_of(user)]
        session.do("select")
        session.do("store", "1", "+FLAGS", "\\Seen")  # the mark is there already
        assert world.marks() == [mark_of(user)]
        world.unmark()
        session.do("store", "1", "+FLAGS", "\\Flagged")
        assert world.marks() == [mark_of(user)]
        world.unmark()
        world.listen()
        session.do("store", "1", "-FLAGS", "\\Flagged")
        assert world.named() == [(user, "INBOX")]
        assert world.marks() == []
    assert os.stat(world.dirty).st_mode & 0o7777 == 0o1733


def test_a_reader_that_goes_away_is_missed_at_once(sdbox, user):
    world = sdbox
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        assert set(world.named()) == {(user, "INBOX")} and world.marks() == []
        world.deaf()
        session.do("store", "1", "+FLAGS", "\\Seen")
        assert world.marks() == [mark_of(user)]
        world.listen()
        session.do("store", "1", "-FLAGS", "\\Seen")
        assert world.named() == [(user, "INBOX")]


def test_a_new_fifo_under_the_same_name_is_found(sdbox, user):
    world = sdbox
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        world.hints()
        world.deaf()
        world.fifo.unlink()
        os.mkfifo(world.fifo)
        os.chmod(world.fifo, 0o666)
        world.listen()
        session.do("store", "1", "+FLAGS", "\\Seen")
        assert world.named() == [(user, "INBOX")]
        assert world.marks() == []


def test_a_full_fifo_leaves_a_mark_and_delays_nobody(sdbox, user):
    world = sdbox
    world.unmark()
    filler = os.open(world.fifo, os.O_WRONLY | os.O_NONBLOCK)
    line = b"1\tfiller\t-\t" + b"x" * 52 + b"\n"  # 64 bytes
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, line)
    os.close(filler)
    with world.imap(user) as session:
        session.mail()
        assert world.marks() == [mark_of(user)]
    assert {name for name, *_ in world.hints()} == {"filler"}
    world.unmark()


def test_a_plain_file_in_the_fifos_place_is_not_written_to(sdbox, user):
    world = sdbox
    world.unmark()
    world.deaf()
    aside = world.fifo.with_suffix(".aside")
    world.fifo.rename(aside)
    try:
        world.fifo.touch()
        os.chmod(world.fifo, 0o666)
        with world.imap(user) as session:
            session.mail()
        assert world.fifo.read_bytes() == b"" and world.marks() == [mark_of(user)]
    finally:
        aside.rename(world.fifo)
        world.listen()


def test_a_user_whose_name_is_too_long_for_a_hint_marks_all(sdbox):
    world, user = sdbox, "n" * 250 + "@" + "d" * 250
    world.unmark()
    with world.imap(user) as session:
        session.mail()
        session.do("select")
        session.do("store", "1", "+FLAGS", "\\Seen")
    assert world.hints() == []
    assert world.marks() == ["+all"]
    world.unmark()


def test_with_no_way_to_tell_mail_goes_on_and_the_log_says_so(started, user):
    world = started("sdbox")
    world.deaf()
    world.fifo.unlink()
    world.dirty.rmdir()
    with world.imap(user) as session:
        for _ in range(20):
            session.mail()
    said = world.said("no hint to")
    assert len(said) == 1, said
    assert str(world.fifo) in said[0] and f"{world.dirty}/{mark_of(user)}" in said[0] and "1733" in said[0]


def test_a_wrong_setting_is_named(started, user):
    """2.4 checks the configuration before it starts; 2.3 knows nothing of plugins' settings, so mail goes on and the log says it."""
    world = started("sdbox")
    world.service.end()
    world.config.write_text(world.config.read_text().replace(f"dovelane_dirty_dir = {world.dirty}",
                                                             "dovelane_dirty_dir = some/dir"))
    if version() >= (2, 4):
        done = subprocess.run(world.words("doveconf", "-c", world.config), capture_output=True, text=True, check=False)
        assert done.returncode != 0
        said = [line for line in done.stderr.splitlines() if "dovelane_dirty_dir = some/dir" in line]
        assert said and "absolute" in said[0], done.stderr
        return
    world.service.start(world.mark)
    with world.imap(user) as session:
        session.mail()
    assert world.named() == []
    said = world.said("dovelane_dirty_dir = some/dir")
    assert said and "absolute" in said[0] and user in said[0]
