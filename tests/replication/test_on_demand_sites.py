"""A site with role = on-demand among others that stop, and one that gets this role, or another one."""
import hashlib
import threading

import pytest
from peer_by_hand import Hand, told_in
from site_user import Site, mail
from support.frames import BODY, WANT, num, text
from support.stack import resp
from support.stack.digest import wait_equal
from support.stack.group import FAST
from test_on_demand import NO_AFTER, USER, WITHIN, body_of, stub_lines, wait_mails

pytestmark = pytest.mark.long

SIZE = 50000


def wants(there, one, other):
    """How many texts one site has asked another one for, whose Dovecot has not heard of it."""
    with resp.Connection(there[f"redis-{one}"].note["address"]) as connection:
        return len(told_in(connection, one, other, WANT, USER))


def test_one_of_two_full_sites_stands_still(group):
    """The other one is asked, within on_demand_wait. Not each mail waits for the one that is silent."""
    there = group("sdbox", "sdbox", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "40s"}, more=NO_AFTER)
    still, thin, full = there.replicas
    names = [f"m{n}" for n in range(6)]
    with Site(full, USER) as site:
        for name in names:
            site.append("INBOX", name, size=SIZE)
    wait_mails(thin, len(names))
    wait_mails(still, len(names))
    assert stub_lines(thin) == len(names)
    with still.stopped():
        for name in names:
            assert body_of(thin, name=name)[b"BODY[]"] == mail(name, SIZE)
        assert 1 <= wants(there, "b", "a") < len(names)
    wait_equal(there.replicas, [USER], WITHIN)


def test_a_site_says_much_and_gives_nothing(group):
    """Played by hand, and asked first: its parts are empty, and there is always one more. The other site is asked all the same."""
    there = group("sdbox", "sdbox", "sdbox", on_demand="b", settings={**FAST, "on_demand_wait": "40s"}, more=NO_AFTER)
    thin, full = there.replicas[1:]
    there.end("dovecot-a")
    with Site(full, USER) as site:
        site.append("INBOX", "large", size=SIZE)
    wait_mails(thin, 1)
    assert stub_lines(thin) == 1
    body, ends = mail("large", SIZE), threading.Event()
    talker = Hand(there, USER, letter="a", to="b")

    def talk():
        while not ends.wait(0.5):
            talker.push(hashlib.sha256(body).digest() + num(len(body)) + num(0) + text(b""), kind=BODY)

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        assert body_of(thin, name="large")[b"BODY[]"] == body
    finally:
        ends.set()
        talking.join()
    assert talker.was_told(WANT)
