"""Two real Dovecots whose replicators have one name, as where a host was copied."""

import re
import shutil
from pathlib import Path

import pytest
from site_user import Site
from support.stack.digest import wait_equal
from support.waiting import eventually, logged

pytestmark = pytest.mark.long

WITHIN = 420.0
TWO = "two replicators run as site-a"
USER, THERE_ALONE = "twice@example.org", "alone@example.org"
LISTED = "user3@example.org"  # by the userdb, also where nothing was heard of him


def status(replica):
    """What it prints, and says is wrong; and whether it ended with 0."""
    done = replica.run(
        "sh",
        "-c",
        'doveadm -c "$0" dovelane status 2>&1; echo "exit $?"',
        replica.note["inner_config"],
    )
    return done.decode(errors="replace")


def says(replica, *words):
    told = status(replica)
    return all(word in told for word in words)


def rename(replica, old, new):
    """As the guide says it: the name in the service, and nothing left that is another site's."""
    replica.end()
    base = Path(replica.note["base"])
    text = Path(replica.note["config"]).read_text()
    assert f"-n site-{old}" in text
    Path(replica.note["config"]).write_text(text.replace(f"-n site-{old}", f"-n site-{new}"))
    for path in (
        *(base / "replicator").glob("replicator.db*"),
        *(base / "replicator").glob("reserve*"),
    ):
        path.unlink()
    for state in Path(replica.note["mail"]).rglob("dovelane/state.db*"):
        state.unlink()


def test_a_host_with_anothers_name_is_refused_and_nothing_is_lost(group):
    there = group("sdbox", "sdbox", "maildir")
    a, b, c = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "a0")
    wait_equal(there.replicas, [USER], WITHIN)
    rename(c, "c", "a")
    there.start(c.name)
    eventually(
        "the later one is refused",
        lambda: says(c, "here, refused", "this one takes and sends nothing", "exit 1"),
        120,
    )
    eventually("the first one is told", lambda: says(a, "came later and is refused", "exit 1"), 120)
    for replica in (a, c):
        logged(replica.log, TWO)
    # clients use all three meanwhile
    with Site(b, USER) as site:
        for n in range(20):
            site.append("INBOX", f"b{n}")
    for user in (USER, THERE_ALONE):
        with Site(c, user) as site:
            site.append("INBOX", "c0")
    wait_equal([a, b], [USER], WITHIN)
    # the name is mended
    rename(c, "a", "c")
    there.start(c.name)
    shapes = wait_equal(there.replicas, [USER, THERE_ALONE], WITHIN)
    assert set(shapes[USER]["dovecot-b"].shape()["INBOX"]) == {
        "a0",
        "c0",
        *(f"b{n}" for n in range(20)),
    }
    assert set(shapes[THERE_ALONE]["dovecot-a"].shape()["INBOX"]) == {"c0"}
    eventually("the first one is alone", lambda: "exit 0" in status(a), WITHIN)


def test_lag_and_status_of_a_site_that_met_nobody(group):
    """A site that is new, and whose links are cut: nothing was compared, so nothing is 0."""
    there = group("sdbox", "maildir")
    a, b = there.replicas
    with Site(a, LISTED) as site:
        site.append("INBOX", "a0")
    wait_equal(there.replicas, [LISTED], WITHIN)
    there.cut()
    b.end()
    shutil.rmtree(Path(b.note["base"]) / "replicator")
    (Path(b.note["base"]) / "replicator").mkdir()
    for state in Path(b.note["mail"]).rglob("dovelane/state.db*"):
        state.unlink()
    there.start(b.name)

    def told(*words):
        return b.doveadm("-f", "tab", "dovelane", *words, check=False).decode()

    eventually("a new state", lambda: "exchange-first" in told("status", "-u", LISTED), WITHIN)
    assert re.search(
        r"unplaced=-\theld=-\tnames=-\texchange-first", told("status", "-u", LISTED)
    ), told("status", "-u", LISTED)
    eventually("he is known", lambda: "site-a" in told("lag", "-u", LISTED), WITHIN)
    title, row = (line.split("\t") for line in told("lag", "-u", LISTED).splitlines()[:2])
    assert [row[title.index(name)] for name in ("unplaced", "held", "behind")] == [
        "-",
        "-",
        "-",
    ], row
    there.heal()
    wait_equal(there.replicas, [LISTED], WITHIN)
    eventually(
        "all is counted",
        lambda: re.search(r"unplaced=0\theld=0\tnames=0$", told("status", "-u", LISTED), re.M),
        WITHIN,
    )
