"""From sites that `doveadm sync`, or 2.3's replicator, kept equal: what `doveadm dovelane compare`
says before the first start is what becomes of them, and no mail is lost or there twice."""

import hashlib
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import conftest
import pytest
from site_user import Site
from support.stack import digest
from support.stack.group import FAST, Group
from support.waiting import eventually

pytestmark = pytest.mark.long

WITHIN = 300.0
ZEROS = dict.fromkeys(
    (
        "united",
        "only-first",
        "only-second",
        "uids-first",
        "uids-second",
        "uidvalidity-first",
        "uidvalidity-second",
        "names",
        "renamed",
        "other-bytes",
        "refused",
    ),
    0,
)


class Migrating(Group):
    """Its sites know nothing of Dovelane until `start_dovelane`."""

    dovelane, stock = (
        False,
        None,
    )  # stock: settings of Dovecot's own replicator, by the site's letter

    def dovelane_part(self, letter, *rest):
        part = super().dovelane_part(letter, *rest)
        return (part if self.dovelane else "") + (self.stock or {}).get(letter, "")

    def other_configuration(self, replica, **settings):
        for name, value in settings.items():
            setattr(self, name, value)
        after = self.change_version(replica, replica.note["version"])
        after.note["version"] = replica.note["version"]
        return after

    def start_dovelane(self):
        """The first site reads its mailboxes before the second one starts."""
        for replica in self.replicas:
            replica.end()
        first = self.other_configuration(self.replicas[0], dovelane=True, stock=None)
        eventually(
            "the first site has read its mailboxes", lambda: all_same(first, self.users), WITHIN
        )
        self.other_configuration(self.replicas[1])


def all_same(replica, users):
    for user in users:
        said = replica.doveadm("dovelane", "verify", "-u", user, check=False).decode()
        if not re.search(r"verdict\s+same", said) or "unplaced=0" not in said:
            return False
    return True


@pytest.fixture
def migrating(request):
    started = []

    def start(*specs, **options):
        conftest.need(*specs)
        started.append(Migrating(*specs, **options))
        return started[-1].up()

    yield start
    for entry in started:
        if getattr(request.node, "call_failed", False) and entry.mark:
            print(f"\n{entry.logs('dovelane|Error|Panic|Fatal', 30)}")
        told = conftest.panics(entry) if entry.mark else ""
        entry.down()
        assert not told, told


# --- what is said ---------------------------------------------------------------------------------


def survey(group, number):
    replica = group.replicas[number]
    path = group.directory / f"{replica.letter}.survey"
    conf = Path(replica.note["base"]) / "dovelane.conf"
    path.write_bytes(replica.doveadm("dovelane", "survey", "-A", "-C", str(conf)))
    return path


def compare(group, *words, surveys=None):
    """The rows by their first column, and the exit status."""
    surveys = surveys or [survey(group, 0), survey(group, 1)]
    replica = group.replicas[0]
    done = subprocess.run(
        replica.entered(
            "doveadm",
            "-f",
            "json",
            "-c",
            replica.note["inner_config"],
            "dovelane",
            "compare",
            *words,
            *map(str, surveys),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done
    rows = json.loads(done.stdout)
    first = "folder" if words else "user"
    return {
        row.pop(first): {key: int(value) for key, value in row.items()} for row in rows
    }, done.returncode


# --- what happens ---------------------------------------------------------------------------------


def read(replica, user):
    """Nobody logs in where he has no home: that would make his INBOX."""
    return digest.read(replica, user).folders if replica.home(user).exists() else {}


def mails(folder):
    return Counter(message.name for message in folder.messages.values()) if folder else Counter()


def changed_uids(before, after):
    """Mails that are not under their UID any more."""
    now = {(uid, message.name) for uid, message in after.messages.items()}
    return sum((uid, message.name) not in now for uid, message in before.messages.items())


def happened(before, after):
    """The same counts, of what clients see: before and after by site."""
    made = {**ZEROS, "folders": len(after[0])}
    for name in after[0]:
        one, two = (before[site].get(name) for site in (0, 1))
        both = mails(one) & mails(two)
        made["united"] += both.total()
        made["only-first"] += (mails(one) - both).total()
        made["only-second"] += (mails(two) - both).total()
        for site, folder, label in ((0, one, "first"), (1, two, "second")):
            now = after[site][name]
            # Nothing is lost, nothing is there twice.
            assert mails(now) == mails(one) | mails(two), (name, mails(now))
            if folder:
                made[f"uids-{label}"] += changed_uids(folder, now)
                made[f"uidvalidity-{label}"] += folder.validity != now.validity
    return made


SEEN = [key for key in ZEROS if key not in ("names", "renamed", "other-bytes", "refused")]


def start_and_hold(group, said):
    """Starts Dovelane, and holds what it does to what was said of each user."""
    users = group.users
    before = {user: [read(replica, user) for replica in group.replicas] for user in users}
    group.start_dovelane()
    # A mail that was united by its bytes keeps its GUID and date at each site.
    eventually("both sites show the same", lambda: settled(group, users), WITHIN)
    for user in users:
        after = [digest.read(replica, user).folders for replica in group.replicas]
        assert {
            name: (folder.validity, sorted(folder.messages)) for name, folder in after[0].items()
        } == {
            name: (folder.validity, sorted(folder.messages)) for name, folder in after[1].items()
        }, user
        made = happened(before[user], after)
        for key in (*SEEN, "folders"):
            assert made[key] == said[user][key], (user, key, made, said[user])
    assert {key: sum(said[user][key] for user in users) for key in ZEROS} == {
        key: said["(all)"][key] for key in ZEROS
    }


def settled(group, users):
    """By what clients see: the same mails under the same UIDs."""

    def shown(user):
        return [
            {
                name: (folder.validity, sorted((uid, m.name) for uid, m in folder.messages.items()))
                for name, folder in digest.read(replica, user).folders.items()
            }
            for replica in group.replicas
        ]

    return all(one == two for one, two in map(shown, users)) and not any(
        re.search(
            r"uids-to-settle=[1-9]",
            replica.doveadm("dovelane", "status", "-u", user, check=False).decode(),
        )
        for replica in group.replicas
        for user in users
    )


# --- what is left different -----------------------------------------------------------------------


def both(a, b, do):
    do(a)
    do(b)


def nothing(a, b):
    pass


def one_new_mail(a, b):
    a.append("INBOX", "late-a")


def new_mails_on_both_sides(a, b):
    """UIDs that clash, and one behind them that does not."""
    a.append("INBOX", "late-a")
    b.append("INBOX", "late-b")
    b.append("INBOX", "later-b")


def removed_at_one(a, b):
    b.expunge("Work", "w1")


def moved_at_one(a, b):
    a.copy("INBOX", "m1", "Work")
    a.expunge("INBOX", "m1")


def one_folder_made_twice(a, b):
    for site, name in ((a, "a"), (b, "b")):
        site.create("New")
        site.append("New", f"new-{name}")


def the_same_mail_by_another_way(a, b):
    """Other GUIDs, and the same bytes."""
    a.append("Work", "shared")
    b.append("Work", "shared")


def the_same_mail_under_another_uid(a, b):
    b.append("Work", "only-b")
    a.append("Work", "shared")
    b.append("Work", "shared")


def renamed_at_one(a, b):
    b.rename("Work", "Done")


def gone_from_one(a, b):
    """Its UIDNEXT is above the other's."""
    b.append("INBOX", "short")
    b.expunge("INBOX", "short")
    a.append("INBOX", "late-a")


LEFT = [
    nothing,
    one_new_mail,
    new_mails_on_both_sides,
    removed_at_one,
    moved_at_one,
    one_folder_made_twice,
    the_same_mail_by_another_way,
    the_same_mail_under_another_uid,
    renamed_at_one,
    gone_from_one,
]


def fill(site):
    for name in ("m1", "m2", "m3"):
        site.append("INBOX", name)
    site.create("Work")
    site.create("Empty")
    for name in ("w1", "w2"):
        site.append("Work", name, "\\Seen")


def filled_and_synced(group, users):
    a, b = group.replicas
    for user in users:
        with Site(a, user) as site:
            fill(site)
        code, words = group.sync(a, b, user, stateful=False)
        assert code == 0, words


def differ(group, user, how):
    with Site(group.replicas[0], user) as one, Site(group.replicas[1], user) as two:
        how(one, two)


def tree(replica, user):
    """All that is in a home, byte by byte; of a Maildir, which any STATUS syncs, not its index."""
    home = replica.home(user)
    skipped = "dovecot." if replica.note["storage"] == "maildir" else "-"
    return {
        str(path.relative_to(home)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        for path in sorted(home.rglob("*"))
        if not path.name.startswith(skipped)
    }


@pytest.mark.parametrize(
    "formats", [("sdbox", "maildir"), ("maildir", "mdbox"), ("mdbox", "sdbox")], ids="-".join
)
def test_what_compare_says_is_what_a_join_does(migrating, formats):
    users = [f"{how.__name__.replace('_', '-')}@example.org" for how in LEFT]
    lonely = ["only-at-a@example.org", "only-at-b@example.org"]
    group = migrating(*formats, users=[*users, *lonely], settings=FAST)
    filled_and_synced(group, users)
    for user, how in zip(users, LEFT):
        differ(group, user, how)
    for user, replica in zip(lonely, group.replicas):
        with Site(replica, user) as site:
            fill(site)
    surveys = [survey(group, 0), survey(group, 1)]
    # What a second one reads is as the first one left it, and nobody got a home.
    trees = [tree(replica, user) for replica in group.replicas for user in group.users]
    assert [path.read_text() for path in surveys] == [survey(group, n).read_text() for n in (0, 1)]
    assert trees == [tree(replica, user) for replica in group.replicas for user in group.users]
    assert not group.replicas[0].home(lonely[1]).exists()
    said, code = compare(group, surveys=surveys)
    assert code == 1, said
    assert said[users[0]] == {**ZEROS, "folders": 3, "united": 5}, said[users[0]]
    assert said[users[2]] == {
        **ZEROS,
        "folders": 3,
        "united": 5,
        "only-first": 1,
        "only-second": 2,
        "uids-first": 1,
        "uids-second": 1,
    }, said[users[2]]
    assert said["one-folder-made-twice@example.org"]["names"] == 1
    assert said["renamed-at-one@example.org"]["renamed"] == 1
    assert said[lonely[0]] == {**ZEROS, "folders": 3, "only-first": 5}
    start_and_hold(group, said)


def test_a_hundred_users(migrating):
    """As from a job of cron that ran `doveadm sync` for all."""
    users = [f"u{n}@example.org" for n in range(100)]
    group = migrating("sdbox", "maildir", users=users, settings={**FAST, "log_level": "info"})
    filled_and_synced(group, users)
    for n, user in enumerate(users):
        if n % 2 == 0:  # each other one is equal already
            differ(group, user, LEFT[n // 2 % len(LEFT)])
    said, code = compare(group)
    assert code == 1 and len(said) == 101, said
    start_and_hold(group, said)


# --- 2.3's replicator -----------------------------------------------------------------------------

STOCK = """mail_plugins = $mail_plugins notify replication
doveadm_password = between the sites
service replicator {{
  process_min_avail = 1
}}
service aggregator {{
  fifo_listener replication-notify-fifo {{
    mode = 0666
  }}
  unix_listener replication-notify {{
    mode = 0666
  }}
}}
service doveadm {{
  inet_listener {{
    address = 127.0.0.1
    port = {here}
  }}
}}
plugin {{
  mail_replica = tcp:127.0.0.1:{there}
}}
"""


def names_at(replica, user, folder="INBOX"):
    return set(mails(read(replica, user).get(folder)))


def test_from_the_replicator_of_23(migrating):
    """It runs; Dovelane beside it is refused; it is switched off, and what was apart is united."""
    users = [f"{how.__name__.replace('_', '-')}@example.org" for how in LEFT[:6]]
    group = migrating("sdbox", "maildir", users=users, settings=FAST)
    if not group.replicas[0].note["version"].startswith("2.3"):
        pytest.skip("only Dovecot 2.3 has a replicator")
    one, two = group.ports.take(), group.ports.take()
    stock = {"a": STOCK.format(here=one, there=two), "b": STOCK.format(here=two, there=one)}
    for replica in group.replicas:
        group.other_configuration(replica, stock=stock)
    a, b = group.replicas
    for user in users:
        with Site(a, user) as site:
            fill(site)
    for user in users:
        eventually(
            f"the replicator has brought {user}",
            lambda name=user: (
                names_at(b, name) == {"m1", "m2", "m3"}
                and names_at(b, name, "Work") == {"w1", "w2"}
            ),
            WITHIN,
        )
        with Site(b, user) as site:
            site.append("INBOX", "back")
    for user in users:
        eventually(
            f"the replicator has brought back {user}",
            lambda name=user: "back" in names_at(a, name),
            WITHIN,
        )
    # Both at once: each user is refused, and told so. Nothing of Dovelane's is made.
    a = group.other_configuration(a, dovelane=True, stock=stock)
    eventually(
        "the user is refused",
        lambda: "Dovecot's own replicator is on" in group.logs("cannot be replicated here", 100),
        WITHIN,
    )
    assert not list(a.store(users[0]).rglob("dovelane/state.db"))
    for replica in group.replicas:
        group.other_configuration(replica, dovelane=False, stock=None)
    for user, how in zip(users, LEFT):
        differ(group, user, how)
    said, _ = compare(group)
    assert said[users[0]] == {**ZEROS, "folders": 3, "united": 6}, said[users[0]]
    start_and_hold(group, said)
