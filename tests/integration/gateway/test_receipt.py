"""What is accepted for a next hop: accept_entries, accept_age and over (docs/receipt.md), with real clients, Postfix, milter or proxy, and relays.

How long a round of questions takes is nobody's promise: a limit is passed by what came within one. So the tests allow MORE above a limit."""
import concurrent.futures
import re
import subprocess
from pathlib import Path

import pytest

from support import admin
from support import sinks
from support.mail import queued, send
from support.stack import SinkShape, programs, resp
from support.waiting import eventually

pytestmark = pytest.mark.long

LIMIT = 50
MORE = 10
SINK = [SinkShape("a", ours=True), SinkShape("b", ours=True)]
QUICK = {"retry_first": "200ms", "retry_most": "400ms", "settle": "1300ms", "store_deadline": "600ms", "max_entry": "1MB"}
REPLY = b"4.3.1 Too much mail waits for a recipient's host, try again later"


@pytest.fixture(params=["divert", "proxy"])
def way(request):
    return request.param


def begin(stack, way, *shapes, sections=None, **options):
    """A gateway whose next hop a is away. shapes: words for a."""
    settings = {**QUICK, "shapes": [*(("a", words) for words in shapes), *(sections or [])], **options.pop("settings", {})}
    system = stack(postfix=way, sinks=SINK, settings=settings, **options)
    sinks.command(system, "a", do="down")
    return system


def program(system):
    return "milter" if "milter" in system.services else "proxy"


def text_of(system):
    return Path(system[program(system)].log).read_text(errors="replace")


def metric(system, name):
    return sinks.metrics(system, program(system)).get(name, 0)


def fill(system, most=LIMIT + 3 * MORE, recipient="u{}@a.example"):
    """Sends until a mail is not accepted into lanes. The subjects of those that were answered 250, and the last answer."""
    accepted = []
    for number in range(most):
        code, text = send(system, recipient.format(number), content=message(f"mail-{number}"))
        if code != 250:
            return accepted, (code, text)
        accepted.append(f"mail-{number}")
    return accepted, (code, text)


def asked(system, node="mx1"):
    """How often the node was asked for its lanes, and for a notice."""
    with resp.Connection(system.nodes[node]) as redis:
        stats = redis.call("INFO", "commandstats").decode().lower()
    count = {name: int(calls) for name, calls in re.findall(r"cmdstat_(\S+?):calls=(\d+)", stats)}
    return count.get("lane.list", 0), count.get("get", 0)


def asked_anew(system):
    """Waits until an answer that was asked for from now on is counted."""
    before, _ = asked(system)
    eventually("the nodes were asked thrice", lambda: asked(system)[0] >= before + 3)


def message(name):
    return f"Subject: {name}\r\nX-Oracle-Id: {name}\r\n\r\nhello\r\n".encode()


def arrived(system, name="a"):
    journal = Path(system[f"sink-{name}"].note["journal"])
    return re.findall(r'mail-\d+', journal.read_text()) if journal.exists() else []


def all_arrive(system, names):
    sinks.command(system, "a", do="up")
    config = system["postfix"].note["config_directory"]

    def there():
        subprocess.run(["postqueue", "-c", config, "-f"], check=True)
        return set(names) <= set(arrived(system))

    eventually(lambda: f"{sorted(set(names) - set(arrived(system)))} arrive", there, 120, pause=1)


# ---- entries ----


@pytest.mark.test
@pytest.mark.core
def test_mail_above_the_limit_gets_4xx_and_is_accepted_again_when_less_waits(stack, way):
    system = begin(stack, way, {"accept_entries": LIMIT, "over": "defer"})
    accepted, (code, text) = fill(system)
    assert code == 451 and REPLY in text and b"127.0.0.1" not in text
    assert LIMIT - MORE <= len(accepted) <= LIMIT + MORE
    assert len(admin.queue(system)) == len(accepted) and not queued(system)
    assert send(system, "other@b.example")[0] == 250  # another next hop goes on
    assert send(system, "u@a.example", "other@b.example")[0] == 451  # one answer for all of a mail
    hop = re.escape(system.destinations["a"])
    assert re.search(rf"action=tempfail reason=over-limit {hop}: \d+ entries wait \(accept_entries = {LIMIT}\)", text_of(system))
    assert len(re.findall(rf"{hop}: \d+ entries wait \(accept_entries = {LIMIT}\): mail for it is answered 4xx", text_of(system))) == 1
    assert metric(system, "mails_over_limit_total") == 2 and not metric(system, "mails_tempfailed_total")
    all_arrive(system, accepted)
    eventually("mail is accepted again", lambda: send(system, "late@a.example", content=message("mail-999"))[0] == 250)
    all_arrive(system, [*accepted, "mail-999"])
    assert "mail for it is accepted again" in text_of(system)
    assert len(arrived(system)) == len(set(arrived(system)))


def test_mail_above_the_limit_waits_in_postfixs_queue_and_none_is_lost(stack, way):
    system = begin(stack, way, {"accept_entries": LIMIT, "over": "queue"})
    names = []
    for number in range(LIMIT + 3 * MORE):
        assert send(system, f"u{number}@a.example", content=message(f"mail-{number}"))[0] == 250
        names.append(f"mail-{number}")
    in_lanes = len(admin.queue(system))
    assert LIMIT - MORE <= in_lanes <= LIMIT + MORE
    eventually("the others are in Postfix's queue", lambda: len(queued(system)) == len(names) - in_lanes)
    assert "reason=over-limit" in text_of(system)
    assert metric(system, "mails_queued_total") == len(names) - in_lanes
    all_arrive(system, names)
    eventually("nothing waits", lambda: not admin.queue(system) and not queued(system))


def test_4xx_of_one_next_hop_counts_more_than_the_queue_of_another(stack, way):
    system = begin(stack, way, sections=[("a", {"accept_entries": 3, "over": "queue"}), ("b", {"accept_entries": 3})])
    sinks.command(system, "b", do="down")
    for number in range(3 + MORE):
        send(system, f"u{number}@a.example")
        send(system, f"u{number}@b.example")
    lanes = len(admin.queue(system))
    assert send(system, "u@a.example")[0] == 250
    assert send(system, "u@a.example", "u@b.example")[0] == 451
    assert len(admin.queue(system)) == lanes


def test_mail_is_accepted_again_below_90_percent_and_not_before(stack):
    few = 20
    system = begin(stack, "divert", {"accept_entries": few})
    fill(system)
    mails = [each["queue_id"] for each in admin.queue(system)]

    def leave(most):
        while len(mails) > most:
            admin.done(system, "delete", mails.pop())
        eventually("they are gone", lambda: len(admin.queue(system)) == most)
        asked_anew(system)

    leave(19)
    assert send(system, "u@a.example")[0] == 451 and len(admin.queue(system)) == 19
    leave(17)
    assert send(system, "u@a.example")[0] == 250


def test_many_sessions_at_once_pass_the_limit_by_little(stack, way):
    system = begin(stack, way, {"accept_entries": LIMIT}, relays=False)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda number: send(system, f"u{number}@a.example")[0], range(6 * LIMIT)))
    assert set(codes) == {250, 451} and LIMIT - MORE <= codes.count(250) <= LIMIT + MORE
    assert len(admin.queue(system)) == codes.count(250)


# ---- classes ----


def test_a_class_over_its_limit_gets_4xx_and_other_mail_goes_on(stack, way):
    few = 20
    system = begin(stack, way, {"class": "bulk", "accept_entries": few}, settings={"classes": {"bulk": {"match": ["sender *@bulk.example"]}}})
    code = 250
    for number in range(few + 2 * MORE):
        if (code := send(system, f"u{number}@a.example", sender="list@bulk.example", content=message(f"mail-{number}"))[0]) != 250:
            break
    assert code == 451 and few - MORE <= number <= few + MORE
    others = [f"mail-{number}" for number in range(100, 100 + few + MORE)]
    for name in others:
        assert send(system, "u@a.example", content=message(name))[0] == 250
    assert send(system, "u@a.example", sender="list@bulk.example")[0] == 451
    assert len([each for each in admin.queue(system)]) == number + len(others)
    assert re.search(rf"over-limit \S+, class bulk: \d+ entries wait \(accept_entries = {few}\)", text_of(system))
    all_arrive(system, [f"mail-{each}" for each in range(number)] + others)


def test_a_limit_without_a_class_counts_the_mail_of_all(stack):
    system = begin(stack, "divert", {"accept_entries": LIMIT}, settings={"classes": {"bulk": {"match": ["sender *@bulk.example"]}}})
    accepted = 0
    for number in range(LIMIT):
        answers = [send(system, f"u{number}@a.example", sender=sender)[0] for sender in ("s@bulk.example", "s@x.example")]
        accepted += answers.count(250)
        if answers == [451, 451]:
            break
    assert answers == [451, 451] and LIMIT - MORE <= accepted <= LIMIT + MORE


# ---- age ----


def test_mail_gets_4xx_once_the_oldest_has_waited_too_long(stack, way):
    system = begin(stack, way, {"accept_age": "3s"})
    assert send(system, "u0@a.example", content=message("mail-0"))[0] == 250
    code, text = eventually("it is too old", lambda: (answer := send(system, "u@a.example", content=message("mail-1")))[0] != 250 and answer)
    assert code == 451 and REPLY in text
    assert re.search(r"reason=over-limit \S+: the oldest entry has waited \d+ s \(accept_age = 3 s\)", text_of(system))
    all_arrive(system, ["mail-0", "mail-1"])
    eventually("mail is accepted again", lambda: send(system, "u@a.example")[0] == 250)


# ---- rules that change ----


def test_what_dovelane_shape_says_holds_within_a_second_and_until_it_is_taken_back(stack, way):
    system = begin(stack, way)
    hop = system.destinations["a"]
    for number in range(10):
        assert send(system, f"u{number}@a.example")[0] == 250
    admin.done(system, "shape", hop, "accept_entries=5")
    eventually("the limit holds", lambda: send(system, "u@a.example")[0] == 451)
    admin.done(system, "shape", hop, "--remove")
    eventually("the limit is gone", lambda: send(system, "u@a.example")[0] == 250)
    assert "the limit is gone: mail for it is accepted again" in text_of(system)


@pytest.mark.parametrize("words, asks", [({"rate": "100000/s"}, False), ({"accept_entries": LIMIT}, True)])
def test_the_nodes_are_asked_only_while_a_rule_limits(stack, words, asks):
    system = begin(stack, "divert", words, relays=False)

    _, looks = asked(system)
    eventually("the milter has looked for notices for two seconds", lambda: asked(system)[1] > looks + 8 * 3)
    assert bool(asked(system)[0]) == asks


# ---- rights ----


def test_limits_hold_with_the_rights_of_the_programs_user(stack, way):
    system = begin(stack, way, {"accept_entries": 5, "accept_age": "1h"}, secure=True)
    accepted, (code, _) = fill(system)
    assert code == 451 and len(accepted) <= 5 + MORE
    assert "NOPERM" not in text_of(system)
    for node in system.nodes:
        with resp.Connection(system.nodes[node]) as connection:
            assert connection.call("ACL", "LOG") == []


def test_users_of_an_older_version_limit_nothing_and_the_log_says_how_to_mend_it(stack):
    system = begin(stack, "divert", {"accept_entries": 3}, secure=True)
    for node in system.nodes:
        with resp.Connection(system.nodes[node]) as connection:
            connection.call("ACL", "SETUSER", "dovelane-milter", "-lane.list")
    said = r"node mx1 does not say how many entries wait in its lanes \(NOPERM.*\): .*`dovelane acl`"
    eventually("the milter says so", lambda: re.search(said, text_of(system)))
    eventually("what was known is too old", lambda: send(system, "u@a.example")[0] == 250 and "no node says how many" in text_of(system))
    for number in range(3 + MORE):
        assert send(system, f"u{number}@a.example")[0] == 250
    assert len(re.findall(said, text_of(system))) == 1


# ---- failures ----


@pytest.mark.core
def test_a_node_that_is_killed_at_the_limit_changes_nothing(stack):
    system = begin(stack, "divert", {"accept_entries": LIMIT}, nodes=3, settings={"takeover": "automatic", "dead_after": "9s", "settle": "5s"})
    eventually("mail is diverted", lambda: send(system, "u@b.example")[0] == 250 and metric(system, "mails_diverted_total"))
    accepted, (code, _) = fill(system)
    assert code == 451
    system.kill("redis-mx1")
    for number in range(3 * MORE):  # what is known counts on; then what the others have
        assert send(system, f"v{number}@a.example")[0] == 451 or "no node says" in text_of(system)
    eventually("the milter has asked the others", lambda: metric(system, "node_losses_total"))
    assert send(system, "w@a.example")[0] == 451
    system.start("redis-mx1")
    all_arrive(system, accepted)


def test_without_any_node_that_answers_no_limit_holds(stack):
    system = begin(stack, "divert", {"accept_entries": 3})
    fill(system)
    assert send(system, "u@a.example")[0] == 451
    system.kill("redis-mx1")
    system.kill("redis-mx2")
    eventually("it goes to Postfix's queue", lambda: send(system, "u@a.example")[0] == 250)
    assert text_of(system).count("no node says how many entries wait") == 1
    assert queued(system)


def test_two_milters_share_one_limit(stack):
    first = begin(stack, "divert", {"accept_entries": LIMIT})
    hop = first.destinations["a"]
    second = stack(postfix="divert", maps={"a.example": hop}, divert=[hop], relays=False, settings={**QUICK, "shapes": [(hop, {"accept_entries": LIMIT})]})
    second["milter"].note["nodes"].update(first["milter"].note["nodes"])
    programs.write_settings(second["milter"])
    second.restart("milter")
    accepted = [0, 0]
    answers = [250, 250]
    for number in range(2 * LIMIT):
        for which, system in enumerate((first, second)):
            answers[which] = send(system, f"u{number}@a.example")[0]
            accepted[which] += answers[which] == 250
        if answers == [451, 451]:
            break
    assert answers == [451, 451] and LIMIT - MORE <= sum(accepted) <= LIMIT + 2 * MORE
    assert min(accepted) > MORE
