"""A site with role = on-demand among others that stop, and one that gets this role, or another one."""
import contextlib
import hashlib
import re
import threading
import time
from pathlib import Path

import pytest
from peer_by_hand import Hand, told_in
from site_user import Site, mail
from support.frames import BODY, WANT, num, text
from support.stack import resp
from support.stack.digest import wait_equal
from support.stack.failure import StackError
from support.stack.group import FAST
from support.stack.imap import ImapError
from support.waiting import eventually, logged
from test_on_demand import FORMATS, NO_AFTER, USER, WITHIN, body_of, drop_fetched, stub_lines, wait_mails

pytestmark = pytest.mark.long

SIZE = 50000


def wants(there, one, other):
    """How many times one site has asked another one for texts, whose Dovecot has not heard of it."""
    with resp.Connection(there[f"redis-{one}"].note["address"]) as connection:
        return len(told_in(connection, one, f"{other}:bulk", WANT, USER))


@pytest.mark.parametrize("letter", "ac")
def test_one_of_two_full_sites_stands_still(group, letter):
    """The other one is asked, within on_demand_wait. Not each mail waits for the one that is silent."""
    there = group("sdbox", "sdbox", "sdbox", on_demand="b", users=[USER], settings={**FAST, "on_demand_wait": "40s"}, more=NO_AFTER)
    thin = there.replicas[1]
    still, full = sorted(there.replicas[::2], key=lambda site: site.letter != letter)
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
        assert wants(there, "b", letter) < len(names)
    wait_equal(there.replicas, [USER], WITHIN)


def set_role(there, letter, role, kill=False):
    """In all sites' files, as an admin does it: each Dovecot is started again. kill: as if its host had died."""
    for replica in there.replicas:
        if kill:
            replica.kill()
        else:
            replica.end()
        conf = Path(replica.note["base"]) / "dovelane.conf"
        parts = re.split(r"(?=^replica )", conf.read_text(), flags=re.M)
        changed = [re.sub(r"\n    role = \S+", "", part).replace("\n}", f"\n    role = {role}\n}}")
                   if part.startswith(f'replica "site-{letter}"') else part for part in parts]
        conf.write_text("".join(changed))
        there.start(replica.name)


def append_while(replica, names, done):
    """Mails under way: another session saves them, again where its server dies. A name may be there twice then."""
    def work():
        for name in names:
            while True:
                with contextlib.suppress(StackError, OSError), Site(replica, USER) as site:
                    site.append("INBOX", name, size=SIZE)
                    break
                time.sleep(0.1)
        done.append(True)
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def kill_workers(there):
    for replica in there.replicas:
        for program in ("dovelane-worker", "dovelane-replicator"):
            replica.kill_some(program)


def wait_all_equal(there):
    """Each mail reads the same at all sites, of each site's own store."""
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in there.replicas:
        said = replica.doveadm("dovelane", "verify", "-u", USER, "bodies")
        assert b"different" not in said, said


def add_and_count(there, changing, name):
    """How many stubs there are more, of one new mail."""
    before = stub_lines(changing)
    with Site(there.replicas[0], USER) as site:
        site.append("INBOX", name, size=SIZE)
    eventually(f"{name} is there", lambda: name in shown_names(changing))
    return stub_lines(changing) - before


def shown_names(replica):
    with Site(replica, USER) as site:
        site.imap.select("INBOX", again=True)
        return site.imap.uids("INBOX")


@pytest.mark.parametrize("storage", FORMATS)
def test_a_site_gets_another_role_while_mail_comes(group, storage):
    """What is there stays as it is; what comes is as the new role says. kill -9 of everything meanwhile."""
    there = group("sdbox", storage, "sdbox", on_demand="c", users=[USER], settings={**FAST, "on_demand_wait": "5s"}, more=NO_AFTER)
    full, changing, thin = there.replicas
    assert add_and_count(there, changing, "whole") == 0
    for number, role in enumerate(("on-demand", "full", "on-demand")):
        done = []
        under_way = append_while(full, [f"way{number}-{n}" for n in range(12)], done)
        eventually("some have come", lambda number=number: f"way{number}-1" in shown_names(changing))
        kill_workers(there)
        before = stub_lines(changing)
        set_role(there, "b", role, kill=True)
        kill_workers(there)
        under_way.join()
        assert done
        wait_all_equal(there)
        if storage == "sdbox":
            assert stub_lines(changing) >= before
        assert add_and_count(there, changing, f"{role}{number}") == (role == "on-demand")
        assert bool(re.search(r"\bhere, on-demand", changing.doveadm("dovelane", "status").decode())) == (role == "on-demand")
        wait_all_equal(there)
    assert stub_lines(full) == 0


def test_a_full_site_that_has_stubs_of_earlier(group):
    """It gives the mails that it has whole, says of the others that it has them not, and counts for what is new."""
    late = "no other site has said within"
    lines = "dovelane_commit = peers\n", "dovelane_commit_wait = 10s\n"
    more = {"2.3": NO_AFTER["2.3"] + "plugin {\n  " + "  ".join(lines) + "}\n", "2.4": NO_AFTER["2.4"] + "".join(lines)}
    there = group("sdbox", "sdbox", "sdbox", on_demand="bc", users=[USER], settings={**FAST, "on_demand_wait": "8s"}, more=more)
    full, changing, thin = there.replicas
    with Site(full, USER) as site:
        site.append("INBOX", "first")
    wait_equal(there.replicas, [USER], WITHIN)
    assert add_and_count(there, changing, "header") == 1
    assert len(re.findall(late, Path(full.log).read_text(errors="replace"))) == 1
    set_role(there, "b", "full")
    wait_all_equal(there)
    assert add_and_count(there, changing, "whole") == 0
    assert len(re.findall(late, Path(full.log).read_text(errors="replace"))) == 1
    assert b"stubs=1" in changing.doveadm("dovelane", "verify", "-u", USER, "bodies")
    eventually("the third site has it, too", lambda: "whole" in shown_names(thin))
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in (changing, thin):
        drop_fetched(replica)
    there.cut("a")
    assert body_of(thin, name="whole")[b"BODY[]"] == mail("whole", SIZE)
    for replica in (thin, changing):
        with pytest.raises(ImapError, match="another site"):
            body_of(replica, name="header")
    logged(thin.log, r"cannot be had .*site-b \(has not got it\)")
    there.heal()
    assert body_of(changing, name="header")[b"BODY[]"] == mail("header", SIZE)
    wait_all_equal(there)


def test_workers_die_while_two_full_sites_stand_still(group):
    """Each session is a new one. Yet the second site is asked, when the first one has said nothing for some time."""
    there = group("sdbox", "sdbox", "sdbox", on_demand="b", users=[USER], settings={**FAST, "on_demand_wait": "20s"}, more=NO_AFTER)
    one, thin, other = there.replicas
    with Site(other, USER) as site:
        site.append("INBOX", "large", size=SIZE)
    wait_equal([one, other], [USER], WITHIN)
    wait_mails(thin, 1)
    over = threading.Event()

    def kill():
        while not over.wait(0.4):
            thin.kill_some("dovelane-worker")

    with one.stopped(), other.stopped(), Site(thin, USER) as site:
        site.imap.select("INBOX")
        before = [wants(there, "b", letter) for letter in "ac"]
        killing = threading.Thread(target=kill)
        killing.start()
        with pytest.raises(ImapError, match="another site"):
            site.imap.command("FETCH 1 BODY.PEEK[]")
        over.set()
        killing.join()
        assert all(wants(there, "b", letter) > had for letter, had in zip("ac", before))
    assert body_of(thin, name="large")[b"BODY[]"] == mail("large", SIZE)
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
    assert wants(there, "b", "a") > 0
