"""What a client makes in numbers, while the sites have no connection, is at all of them when they have one again."""
import pytest
from site_user import Site
from support.stack.digest import wait_equal, wait_shape

WITHIN = 420.0
USER = "many@example.org"
OTHER = "other@example.org"


def copies(replica, user, n):
    """INBOX gets copies of its mail m until it has n."""
    with Site(replica, user) as site:
        site.imap.select("INBOX")
        have = 1
        while have < n:
            more = min(have, n - have)
            site.imap.command("COPY", f"1:{more}", "INBOX")
            have += more


@pytest.mark.exhaustive
@pytest.mark.parametrize("specs", [("sdbox", "mdbox"), ("maildir", "sdbox")], ids=" ".join)
def test_copies_made_at_two_sites_during_a_cut(group, specs):
    """600 at each: before, neither site took anything of this user any more."""
    there = group(*specs)
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    there.cut()
    copies(a, USER, 600)
    copies(b, USER, 600)
    there.heal()
    with Site(a, OTHER) as other:
        other.append("INBOX", "o")
    assert wait_shape(b, OTHER, {"INBOX": {"o": [()]}}, WITHIN) is None
    with Site(a, USER) as site:
        site.append("INBOX", "later")
    digests = wait_equal(there.replicas, [USER], WITHIN)[USER]
    shape = digests["dovecot-a"].shape()["INBOX"]
    assert shape == {"m": [()] * 600, "later": [()]}
