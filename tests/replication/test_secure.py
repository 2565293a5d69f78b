"""Sites whose links are TLS, each replicator as its own user of the Redis servers."""
import re

import pytest
from site_user import Site
from support.stack import resp
from support.stack.digest import wait_equal

pytestmark = pytest.mark.long

WITHIN = 420.0
USER = "secure@example.org"


def test_two_sites_converge_by_tls_as_their_own_user(group):
    there = group("sdbox", "maildir", secure=True)
    for replica in there.replicas:
        with Site(replica, USER) as site:
            site.append("INBOX", f"{replica.letter}0")
            site.append("INBOX", f"{replica.letter}1", size=400_000)
    wait_equal(there.replicas, [USER], WITHIN)
    for letter in "ab":
        with resp.Connection(there[f"redis-{letter}"].note["address"]) as connection:
            text = connection.call("CLIENT", "LIST").decode()
            assert connection.call("ACL", "LOG") == []
        users = dict(re.findall(r" name=(dovelane-\S+) .* user=(\S+)", text))
        assert {"dovelane-replicator-push", "dovelane-replicator-ready", "dovelane-replicator-take"} <= set(users), text
        assert set(users.values()) == {"dovelane-replicator"}
    assert not there.logs(r"NOPERM|NOAUTH|WRONGPASS")
