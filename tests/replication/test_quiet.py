"""A group in which nothing happens wakes neither its replicators nor their Redis."""
import time
from pathlib import Path

import pytest
from site_user import Site
from support.stack import resp
from support.stack.digest import wait_equal

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "quiet@example.org"
# Nothing that comes again and again but what the defaults have.
SETTINGS = {"sweep_active": "1h", "hello_every": "1h", "sweep_all": "1h", "sweep_dirty": "2s",
            "log_level": "debug"}
SECONDS = 5
# A tick of 10 ms would be 100.
WAKEUPS_MOST = 20
# A site's own claim and another's, SET and GET each 4 s; PING on connections, each 5 s; READY,
# which waits for 10 s. A tick of 100 ms would be 10.
COMMANDS_MOST = 3


def wakeups(replica):
    """How often main has waited so far."""
    main = replica.replicator()
    lines = Path(f"/proc/{main.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))


def both(there):
    """Of each site: wakeups of main, commands that its Redis was given."""
    return [(wakeups(replica), resp.calls(there[f"redis-{replica.letter}"].note["address"]))
            for replica in there.replicas]


def test_nobody_is_woken_while_nothing_happens(group):
    there = group("sdbox", "sdbox", settings=SETTINGS, links=False)
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    end = time.monotonic() + 120
    while True:
        before, begun = both(there), time.monotonic()
        time.sleep(SECONDS)
        found = both(there)
        took = time.monotonic() - begun
        rates = [tuple((new - old) / took for new, old in zip(*one)) for one in zip(found, before)]
        if all(woken <= WAKEUPS_MOST and asked <= COMMANDS_MOST for woken, asked in rates):
            break       # what the change had left to do is over
        assert time.monotonic() < end, f"wakeups and commands a second: {rates}"
    # And they hear at once all the same.
    with Site(there.replicas[1], USER) as site:
        site.append("INBOX", "n")
    wait_equal(there.replicas, [USER], WITHIN)
