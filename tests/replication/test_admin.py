"""`doveadm dovelane` with what cannot be done: each answer names the thing and the way out, and the exit code is not 0."""
import json
import re
import shutil
import signal
import time
from pathlib import Path

import conftest
import pytest
from site_user import Site
from support.stack import dovecot, probe
from support.stack.digest import wait_equal, wait_shape
from support.stack.failure import StackError
from support.stack.group import FAST, Group
from support.waiting import logged

pytestmark = pytest.mark.long

USER = "admin@example.org"
WITHIN = 420.0


@pytest.fixture(scope="module")
def pair():
    conftest.need()
    with Group("sdbox", "maildir") as there:
        with Site(there.replicas[0], USER) as site:
            site.append("INBOX", "m")
            site.create("F")
        wait_equal(there.replicas, [USER], 420)
        yield there
        told = conftest.panics(there)
    assert not told, told


def told(pair, *words):
    with pytest.raises(StackError) as raised:
        pair.replicas[0].doveadm("dovelane", *words, timeout=240)
    return str(raised.value)


WITH_USERS = ["status", "lag", "verify", "resync", "accept", "restore", "new-epoch", "join", "kept",
              "unexpunge"]


@pytest.mark.parametrize("verb", [verb for verb in WITH_USERS if verb not in ("status", "lag")])
def test_a_verb_without_a_user(pair, verb):
    assert "needs a user (-u) or all (-A)" in told(pair, verb)


@pytest.mark.parametrize("verb", [verb for verb in WITH_USERS if verb != "lag"])
def test_a_user_whom_nobody_knows(pair, verb):
    words = told(pair, verb, "-u", "no such/user@example.org")
    assert "no such user" in words or "no user has such a name" in words, words


def homes(pair):
    return [sorted(str(path) for path in Path(replica.note["mail"]).rglob("never*"))
            for replica in pair.replicas]


def lag_names(site):
    """Of those who have changes; the numbers beside them are of the moment."""
    return {line.split()[0] for line in site.doveadm("dovelane", "lag", "-A").decode().splitlines()}


@pytest.mark.parametrize("words", [["status"], ["verify"], ["verify", "bodies"], ["lag"],
                                   ["join", "--status"], ["kept"]])
def test_a_verb_that_only_reads_makes_no_user(pair, words):
    """The userdb knows everybody; this one never had a mailbox."""
    known = lag_names(pair.replicas[0])
    answer = told(pair, *words, "-u", "never@example.org")
    assert "nothing of this user was replicated here yet" in answer or "is not known here" in answer
    assert "exit 67" in answer, answer
    assert homes(pair) == [[], []]
    assert lag_names(pair.replicas[0]) == known


@pytest.mark.parametrize("verb, words, says", [
    ("resync", ["site-x"], "site-x"), ("resync", ["7"], "7"), ("resync", ["1"], "1"), 
    ("accept", ["NoSuchFolder"], "NoSuchFolder"), ("restore", ["NoSuchFolder"], "NoSuchFolder"),
    ("verify", ["bodies", "INBOX"], "verify [bodies | --duplicates]"), ("verify", ["nonsense"], "verify [bodies | --duplicates]")])
def test_an_argument_that_names_nothing(pair, verb, words, says):
    answer = told(pair, verb, "-u", USER, *words)
    assert says in answer.partition(": exit ")[2], answer


@pytest.mark.parametrize("words", [["--remove", "9"], ["--remove", "x"], ["--remove", "1"], ["--remove", ""]])
def test_a_site_that_is_none(pair, words):
    assert "no other replica in dovelane.conf has that id" in told(pair, "peers", *words)


@pytest.mark.parametrize("words", [["status", "--nonsense"], ["peers", "extra"], ["join", "--status", "extra"]])
def test_words_that_doveadm_does_not_know(pair, words):
    answer = told(pair, *words)
    assert words[-1] in answer.partition(": exit ")[2], answer


def test_each_verb_answers_for_a_user_and_for_all(pair):
    """With exit code 0, but for accept and restore, which have nothing to decide and say so."""
    for site in pair.replicas:
        for whom in (["-u", USER], ["-A"]):
            for verb in ("status", "lag", "verify", "resync", "new-epoch", "join"):
                answer = site.doveadm("dovelane", verb, *whom, timeout=240).decode()
                assert verb in ("resync", "new-epoch", "join") or (USER if whom == ["-A"] else "site") in answer or "INBOX" in answer, answer
            for words in (["verify", "bodies"], ["verify", "--duplicates"]):
                assert "INBOX" in site.doveadm("dovelane", *words, *whom, timeout=240).decode()
            for verb in ("accept", "restore"):
                with pytest.raises(StackError, match="nothing is held"):
                    site.doveadm("dovelane", verb, *whom, timeout=240)
        assert site.letter in "ab" and "site-" in site.doveadm("dovelane", "peers", timeout=240).decode()
    wait_equal(pair.replicas, [USER], 420)


def move_metrics(replica, path):
    conf = Path(replica.note["base"]) / "dovelane.conf"
    text, n = re.subn(r"(?m)^metrics_socket = .*$", f'metrics_socket = "{path}"', conf.read_text())
    assert n == 1
    conf.write_text(text)


def test_counters_and_what_the_log_says_of_decisions(group):
    """metrics_socket answers with the counters; with debugging on, the log has why each mail is as it is."""
    user = "told@example.org"
    there = group("sdbox", "mdbox", more=dict.fromkeys(("2.3", "2.4"), "log_debug = category=dovelane\n"))
    a, b = there.replicas
    path = Path(a.note["base"]) / "counters"
    move_metrics(a, dovecot.seen(path, Path(a.note["root"]) if a.note["root"] else None))
    there.restart(a.name)
    for replica in (b, a):      # an INBOX at both, before anybody else opens it
        with Site(replica, user) as site:
            site.imap.select("INBOX")
    wait_equal(there.replicas, [user], 420)
    with Site(a, user) as site:
        for name in ("kept", "gone"):
            site.append("INBOX", name)
    wait_equal(there.replicas, [user], 420)
    with Site(b, user) as site:
        site.flag("INBOX", "kept", "+", "later")
        site.expunge("INBOX", "gone")
    wait_equal(there.replicas, [user], 420)
    with probe.connect(f"unix:{path}", 60) as stream:
        lines = stream.makefile("r").read().splitlines()
    counters = {name: int(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}
    for name in ("hints", "opens", "jobs", "sent", "taken", "done"):
        assert counters.get(f"dovelane_replicator_{name}_total", 0) > 0, (name, counters)
    assert counters["dovelane_replicator_workers"] > 0 and counters["dovelane_replicator_foreign_total"] == 0
    for replica, pattern in ((a, "a client's flags|by what other sites did it is to have later"), (a, "expunged, since no site has it any more"),
                             (b, "a client's flags: later"), (b, "removed, as a client asked"), (b, "a mail of another site, saved with none")):
        logged(replica.log, pattern)


def test_join_leaves_what_is_one_as_it_is(pair):
    before = wait_equal(pair.replicas, [USER], 420)[USER]["dovecot-a"].content()
    for site in pair.replicas:
        site.doveadm("dovelane", "join", "-u", USER, timeout=240)
        site.doveadm("dovelane", "join", "-A", timeout=240)
    assert wait_equal(pair.replicas, [USER], 420)[USER]["dovecot-b"].content() == before


def progress(site):
    """{row: {column: text}} of `join --status`."""
    rows = json.loads(site.doveadm("-f", "json", "dovelane", "join", "--status", timeout=240))
    return {row.pop("what"): row for row in rows}


def test_how_far_a_site_is_filled(group):
    """A new site with nothing but its users; the same in each of doveadm's formats, and with words of each user."""
    users = [f"fills{n}@example.org" for n in range(3)]
    there = group("sdbox", "maildir", users=users, settings={**FAST, "sweep_all": "1h"})
    a, b = there.replicas
    there.end(b.name)
    shutil.rmtree(Path(b.note["base"]) / "replicator")
    (Path(b.note["base"]) / "replicator").mkdir()
    for user in users:
        shutil.rmtree(b.home(user), ignore_errors=True)
        with Site(a, user) as site:
            for n in range(5):
                site.append("INBOX", f"m{n}")
    there.start(b.name)
    deadline = time.monotonic() + 240
    while [(row["done"], row["left"]) for row in progress(b).values()][:2] != [("3", "0"), ("15", "0")]:
        assert time.monotonic() < deadline, progress(b)
        time.sleep(0.2)
    told = progress(b)
    assert list(told) == ["users", "mails", "bytes"] and int(told["bytes"]["done"]) > 15 and told["bytes"]["left"] == "0"
    assert all(row["progress"] == f"[{'#' * 20}] 100 %" and row["time left"] == "0:00:00" for row in told.values())
    table = b.doveadm("dovelane", "join", "--status").decode().splitlines()
    assert table[0].split() == ["what", "done", "left", "rate", "time", "left", "progress"] and len(table) == 4
    assert "what=users done=3 left=0" in b.doveadm("-f", "flow", "dovelane", "join", "--status").decode()
    assert "mails\t15\t0\t" in b.doveadm("-f", "tab", "dovelane", "join", "--status").decode()
    (row,) = json.loads(b.doveadm("-f", "json", "dovelane", "join", "--status", "-u", users[0]))
    assert row == {"state": "joined", "mails left": "0"}
    rows = json.loads(b.doveadm("-f", "json", "dovelane", "join", "--status", "-A"))
    assert [(row["user"], row["state"]) for row in rows] == [(user, "joined") for user in users]
    with pytest.raises(StackError, match="is not known here"):
        b.doveadm("dovelane", "join", "--status", "-u", "nobody@example.org")


def test_a_site_that_knows_no_user_is_not_full(group):
    """A static userdb lists nobody: 100 % would send clients to an empty site. With the first user it counts."""
    there = group("sdbox", "maildir", users=[], settings={**FAST, "sweep_all": "1h"})
    a, b = there.replicas
    deadline = time.monotonic() + 240
    while "userdb lists none" not in lag_of_all(b):
        assert time.monotonic() < deadline, lag_of_all(b)
        time.sleep(0.2)
    told = progress(b)
    assert told["users"]["left"] == "-" and told["users"]["progress"] == f"[{'-' * 20}] 0 %", told
    assert not any("100 %" in row["progress"] for row in told.values()), told
    with Site(a, "first@example.org") as site:
        site.append("INBOX", "m")
    while (progress(b)["users"]["done"], progress(b)["users"]["left"]) != ("1", "0"):
        assert time.monotonic() < deadline, progress(b)
        time.sleep(0.2)
    assert progress(b)["users"]["progress"] == f"[{'#' * 20}] 100 %"


def lag_of_all(site):
    try:
        return site.doveadm("dovelane", "lag", "-A", timeout=240).decode()
    except StackError as error:
        assert "no user is known" in str(error)
        return str(error)


def test_a_first_start_looks_at_all_users(group):
    """Mailboxes that were there before: no hint, no mark, and the regular sweep is an hour away."""
    user = "only@example.org"
    there = group("sdbox", "maildir", users=[user], settings={**FAST, "sweep_all": "1h"})
    for site in there.replicas:
        deadline = time.monotonic() + 240
        while user not in lag_of_all(site):
            assert time.monotonic() < deadline, f"{site.name} does not know its user"
            time.sleep(0.2)


def test_main_is_the_user_of_its_service(group):
    """As the guide has it: a user of its own, and only its workers keep root. It goes on where that user may not make metrics_socket."""
    there = group("sdbox")
    a, = there.replicas
    conf = Path(a.note["config"])
    conf.write_text(conf.read_text().replace("service dovelane-replicator {\n", "service dovelane-replicator {\n  user = nobody\n"))
    directory = Path(a.note["base"]) / "replicator"
    move_metrics(a, "/nowhere/metrics")
    there.end(a.name)  # root's main makes files as long as it runs
    for path in (directory, *directory.iterdir()):
        shutil.chown(path, "nobody")
    there.start(a.name)
    main = a.replicator()
    assert Path(f"/proc/{main.pid}").owner() == "nobody"
    assert b"here" in a.doveadm("dovelane", "status")


def test_a_replicator_that_does_not_run(group):
    there = group("sdbox")
    a, = there.replicas
    import re
    conf = Path(a.note["config"])
    conf.write_text(re.sub(r"service dovelane-replicator \{.*?\n\}\n", "", conf.read_text(), flags=re.S))
    there.restart(a.name)
    for words in (["status"], ["verify", "-A"], ["peers"]):
        with pytest.raises(StackError, match="is dovelane-replicator running\\?"):
            a.doveadm("dovelane", *words)


def test_workers_that_cannot_be_reached(group):
    """Main runs, and the socket to its workers is not where it looks: an admin is told so, with the way out."""
    there = group("sdbox", "sdbox")
    a, b = there.replicas
    there.end(b.name)
    users = [f"waits{n}@example.org" for n in range(12)]
    for user in users:
        with Site(a, user) as site:
            site.append("INBOX", "m")
    deadline = time.monotonic() + 240
    while not all(user in lag_of_all(a) for user in users):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    conf = Path(a.note["config"])
    conf.write_text(conf.read_text().replace("unix_listener dovelane-worker {", "unix_listener elsewhere {"))
    there.restart(a.name)
    for words in (["status", "-u", users[0]], ["verify", "-A"], ["resync", "-u", users[1]]):
        with pytest.raises(StackError, match="no worker can be reached: service dovelane-worker needs a unix_listener dovelane-worker") as raised:
            a.doveadm("dovelane", *words, timeout=240)
        assert str(raised.value).count("no worker can be reached") <= 9     # not once for each user there is
    assert users[0] in lag_of_all(a)


def test_workers_that_cannot_start(group):
    """The socket is there, and no process ever answers: an admin is told so, and that the log says why."""
    there = group("sdbox", "sdbox", settings={**FAST, "worker_timeout": "3s"})
    a, b = there.replicas
    there.end(b.name)
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    deadline = time.monotonic() + 240
    while USER not in lag_of_all(a):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    conf = Path(a.note["config"])
    conf.write_text(re.sub(r"executable = \S*dovelane-worker\S*", "executable = /bin/false", conf.read_text()))
    there.restart(a.name)
    for words in (["status", "-u", USER], ["verify", "-A"]):
        with pytest.raises(StackError, match="Dovecot's log says why none starts"):
            a.doveadm("dovelane", *words, timeout=240)


def test_mail_of_a_time_when_the_replicator_could_not_start(group):
    """Its hint stood in a FIFO that Dovecot's master held open, and went with the master: nothing else tells of it."""
    there = group("sdbox", "maildir")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "before")
    wait_equal(there.replicas, [USER], WITHIN)
    conf = Path(a.note["base"]) / "dovelane.conf"
    good = conf.read_text()
    logged(a.log, "swept: ")  # else that would be the reason
    there.end(a.name)
    conf.write_text("wrong = \n" + good)
    there.start(a.name)
    with Site(a, USER) as site:
        site.append("INBOX", "meanwhile")
    logged(a.log, "dovelane-replicator.*Fatal")
    there.end(a.name)
    conf.write_text(good)
    there.start(a.name)
    logged(a.log, "Dovecot was started anew since the last run: all users are swept")
    assert wait_shape(b, USER, {"INBOX": {"before": [()], "meanwhile": [()]}}, WITHIN) is None, there.logs(USER)


def test_a_replicator_that_cannot_start_tries_again(group):
    """Dovecot tried once more when somebody connected to it: without a change here nothing came from other sites."""
    there = group("sdbox", "sdbox")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "before")
    wait_equal(there.replicas, [USER], WITHIN)
    conf = Path(b.note["base"]) / "dovelane.conf"
    hidden = conf.rename(conf.with_suffix(".hidden"))
    b.kill_some("dovelane-replicator")
    fatal = "(?s)" + ".*".join(2 * [r"dovelane-replicator\S* Fatal: \S+dovelane\.conf"])
    logged(b.log, fatal)
    with pytest.raises(StackError, match="dovelane-replicator cannot start, and tries again every"):
        b.doveadm("dovelane", "status")
    hidden.rename(conf)
    with Site(a, USER) as site:
        site.append("INBOX", "meanwhile")
    assert wait_shape(b, USER, {"INBOX": {"before": [()], "meanwhile": [()]}}, WITHIN) is None, there.logs(USER)


def test_a_replicator_that_is_stopped_or_dies_answers_nobody_for_ever(pair):
    """Killed while an admin waits: an answer or an error, soon; and the next one is answered."""
    import threading
    a = pair.replicas[0]
    main = a.replicator()
    main.send(signal.SIGSTOP)
    answer = []

    def ask():
        try:
            answer.append(a.doveadm("dovelane", "status", "-u", USER, timeout=240).decode())
        except StackError as error:
            answer.append(str(error))
    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    main.send(signal.SIGKILL)
    thread.join(240)
    # Not accepted yet, the new replicator has it; accepted, it is told.
    assert answer and ("INBOX" in answer[0] or "went away before its answer was complete" in answer[0]), answer
    end = time.monotonic() + 240
    while True:
        try:
            assert b"INBOX" in a.doveadm("dovelane", "status", "-u", USER)
            break
        except StackError:
            assert time.monotonic() < end
            time.sleep(0.2)


def test_what_waits_is_told_of_users_whom_no_worker_has_open(group):
    """Mails in a folder that B's Maildir cannot hold: status and lag tell of them, also when nobody has looked since a restart."""
    user = "deep@example.org"
    there = group("sdbox", "maildir")
    a, b = there.replicas
    folder = "/".join(letter * 100 for letter in "pqr")
    with Site(a, user) as site:
        site.append("INBOX", "m")
        site.create(folder)
        for n in range(3):
            site.append(folder, f"m{n}")
    wait_shape(b, user, {"INBOX": {"m": [()]}}, 420)

    def told(verb):
        said = b.doveadm("dovelane", verb, "-u", user).decode()
        if verb == "status":
            return int(re.search(r"unplaced=(\d+)", said)[1])
        title, row = (line.split() for line in said.splitlines()[:2])
        return int(row[title.index("unplaced")])

    end = time.monotonic() + 420
    while told("status") != 3 or told("lag") != 3:
        assert time.monotonic() < end, (told("status"), told("lag"))
        time.sleep(0.2)
    for _ in range(5):      # each opens the user anew
        assert told("status") == told("lag") == 3
    there.restart(b.name)
    assert told("lag") == 3
