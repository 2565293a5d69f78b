"""metrics_listen of the replicator as a service of Dovecot's."""

import pytest
from site_user import Site
from support.stack.digest import wait_equal
from support.stack.scrape import Page, promtool
from support.waiting import eventually

pytestmark = pytest.mark.long

USER = "seen@example.org"


@pytest.fixture
def page():
    fresh = Page("replicator")
    yield fresh
    fresh.close()


def test_a_scraper_sees_mail_go_to_the_other_site(group, page):
    there = group("sdbox", "mdbox")
    a, b = there.replicas
    page.listened_by(a)
    there.restart(a.name)
    with Site(a, USER) as site:
        site.append("INBOX", "one")
    wait_equal(there.replicas, [USER], 420)
    eventually("it is ready", lambda: (page.ask("/readyz") or [0])[0] == 200)
    peer = 'peer="site-b"'
    eventually("confirmed", lambda: page.values().get(f"replica_confirm_seconds_count{{{peer}}}"))
    eventually("no lag", lambda: page.values()[f"replica_lag_seconds{{{peer}}}"] == 0)
    assert page.values()["replicator_largest_state_bytes"] > 4096
    assert page.ask("/healthz")[0] == 200 and promtool(page.text()) == ""
    there.restart(a.name)
    eventually("it has the port again", lambda: (page.ask("/readyz") or [0])[0] == 200)
    assert page.values()[f"replica_up{{{peer}}}"] == 1
