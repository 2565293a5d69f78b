"""The checker of histories, by histories made by hand.

What the rules allow passes; each kind of violation does not.
"""

import pytest
from support.history import checker, record
from support.history.clients import is_unsure
from support.history.record import History, Link, Rest

pytestmark = pytest.mark.check

SITES = ("a", "b", "c")
ALL = frozenset({"a-b", "a-c", "b-c"})


class Story:
    """A history by hand, of one user."""

    def __init__(self):
        self.history, self.clock = History(sites={site: "sdbox" for site in SITES}), 0.0
        self.rest(INBOX={}, Archive={}, Work={})

    def tick(self):
        self.clock += 1.0
        return self.clock

    def op(self, site, kind, outcome="ok", client=None, took=0.5, **asked):
        invoked = self.tick()
        record.add(
            self.history,
            {
                "event": "op",
                "id": len(self.history.ops) + 1,
                "user": "u",
                "site": site,
                "client": client or f"{site}1",
                "kind": kind,
                "invoked": invoked,
                "responded": None if outcome == "lost" else invoked + took,
                "outcome": outcome,
                **asked,
            },
        )

    def append(self, site, folder, mail, *flags, uid=None, **how):
        answer = {"answer": [1, uid]} if uid else {}
        self.op(site, "append", folder=folder, mail=mail, flags=list(flags), **answer, **how)

    def read(self, site, folder, *rows, uidnext=100, validity=1, modseq=1, since=None, **how):
        self.op(
            site,
            "read",
            folder=folder,
            validity=validity,
            uidnext=uidnext,
            modseq=modseq,
            whole=True,
            since=since,
            mails=[[uid, mail, list(flags), 1] for uid, mail, *flags in rows],
            **how,
        )

    def store(self, site, folder, mail, how, *flags, found=True, **more):
        self.op(
            site,
            "store",
            folder=folder,
            mail=mail,
            uid=1,
            how=how,
            flags=list(flags),
            found=found,
            **more,
        )

    def listing(self, site, *folders, subscribed=(), **how):
        self.op(
            site, "list", folders=[*checker.FIXED, *folders], subscribed=list(subscribed), **how
        )

    def cut(self, *pairs):
        now = self.tick()
        self.history.links.append(Link(frozenset(pairs), now, now))

    def rest(self, sites=None, subscribed=(), excused="", first_uid=1, **folders):
        """folders: {mail: flags}, as all sites show; `sites`: what differs, {site: folders}."""
        shown = {}
        for site in SITES:
            here = {
                **{name: {} for name in checker.FIXED},
                **folders,
                **(sites or {}).get(site, {}),
            }
            here = {name: mails for name, mails in here.items() if mails is not None}
            shown[site] = {
                "subscribed": list(subscribed),
                "folders": {
                    name: {
                        "validity": 1,
                        "uidnext": 100,
                        "mails": [
                            [uid, mail.partition("#")[0], sorted(flags), f"g{mail}"]
                            for uid, (mail, flags) in enumerate(mails.items(), first_uid)
                        ],
                    }
                    for name, mails in here.items()
                },
            }
        now = self.tick()
        self.history.rests.append(
            Rest("u", len(self.history.rests), now, self.tick(), shown, excused)
        )
        return self

    def judged(self):
        return "\n".join(checker.check(self.history).complaints)


def test_a_good_history_of_everything_passes():
    story = Story()
    story.append("a", "INBOX", "m", "\\seen", uid=1)
    story.read("a", "INBOX", (1, "m", "\\seen"))
    story.store("a", "INBOX", "m", "+", "work")
    story.op(
        "a",
        "copy",
        folder="INBOX",
        uid=1,
        mail="m",
        target="Work",
        copied=True,
        vanished=False,
        answer=[1, 1],
    )
    story.op("b", "create", folder="P1")
    story.listing("b", "P1")
    story.append("b", "P1", "n", uid=1)
    story.op("c", "create", folder="R-c1")
    story.op("c", "rename", folder="R-c1", target="R-c2")
    story.op("a", "subscribe", folder="Work")
    story.rest(
        INBOX={"m": ["\\seen", "work"]},
        Work={"m": ["\\seen"]},
        P1={"n": []},
        subscribed=["Work"],
        **{"R-c2": {}},
    )
    story.op("b", "expunge", folder="INBOX", uid=1, mail="m", vanished=True)
    story.read("b", "INBOX")
    story.op("c", "delete", folder="P1")
    story.rest(Work={"m": ["\\seen"]}, subscribed=["Work"], **{"R-c2": {}})
    assert story.judged() == ""


def bad(name, wanted):
    def wrap(make):
        BAD.append((name, make, wanted))
        return make

    return wrap


BAD = []


@bad("a mail is lost", "m in INBOX: copies: shows .* allowed is \\[1\\]")
def lost(story):
    story.append("a", "INBOX", "m")
    story.rest()


@bad("a mail is lost at one site", "only one|against")
def lost_at_one(story):
    story.append("a", "INBOX", "m")
    story.rest(INBOX={"m": []}, sites={"c": {"INBOX": {}}})


@bad("a mail comes back", "m in INBOX: copies")
def resurrected(story):
    story.append("a", "INBOX", "m")
    story.rest(INBOX={"m": []})
    story.op("b", "expunge", folder="INBOX", uid=1, mail="m", vanished=True)
    story.read("b", "INBOX")
    story.rest(INBOX={"m": []})


@bad("a mail is there twice", "m in INBOX: copies: shows")
def doubled(story):
    story.append("a", "INBOX", "m")
    story.rest(INBOX={"m": [], "m#2": []})


@bad("a copy is lost", "m in Work: copies")
def copy_lost(story):
    story.append("a", "INBOX", "m")
    story.op(
        "a", "copy", folder="INBOX", uid=1, mail="m", target="Work", copied=True, vanished=False
    )
    story.rest(INBOX={"m": []})


@bad("an add loses against the delete of a folder that had not seen it", "n in P1: copies")
def add_loses(story):
    story.op("a", "create", folder="P1")
    story.rest(P1={})
    story.cut()
    story.append("a", "P1", "n")
    story.op("b", "delete", folder="P1")
    story.cut(*ALL)
    story.rest()


@bad("an add loses against a delete that was over before", "n in P1: copies")
def add_loses_later(story):
    story.op("a", "create", folder="P1")
    story.rest(P1={})
    story.op("b", "delete", folder="P1")
    story.append("a", "P1", "n")
    story.rest()


@bad("a copy made elsewhere goes with the one that was expunged", "m in Work: copies")
def copy_goes_along(story):
    story.append("a", "INBOX", "m")
    story.rest(INBOX={"m": []})
    story.cut()
    for site in "ab":
        story.op(
            site,
            "copy",
            folder="INBOX",
            uid=1,
            mail="m",
            target="Work",
            copied=True,
            vanished=False,
        )
    story.op("a", "expunge", folder="Work", uid=1, mail="m", vanished=True)
    story.read("a", "Work")
    story.cut(*ALL)
    story.rest(INBOX={"m": []})


@bad("a flag is lost", "m in INBOX: work: shows")
def flag_lost(story):
    story.append("a", "INBOX", "m")
    story.store("b", "INBOX", "m", "+", "work")
    story.rest(INBOX={"m": []})


@bad("clearing wins", "\\\\flagged: shows")
def clearing_wins(story):
    story.append("a", "INBOX", "m", "\\flagged")
    story.rest(INBOX={"m": ["\\flagged"]})
    story.cut()
    story.store("a", "INBOX", "m", "-", "\\flagged")
    story.store("b", "INBOX", "m", "-", "\\flagged")
    story.store("b", "INBOX", "m", "+", "\\flagged")
    story.cut(*ALL)
    story.rest(INBOX={"m": []})


@bad("setting wins for \\Deleted", "\\\\deleted: shows")
def deleted_wins(story):
    story.append("a", "INBOX", "m")
    story.store("a", "INBOX", "m", "+", "\\deleted")
    story.rest(INBOX={"m": ["\\deleted"]})
    story.cut()
    story.store("a", "INBOX", "m", "-", "\\deleted")
    story.store("a", "INBOX", "m", "+", "\\deleted")
    story.store("b", "INBOX", "m", "-", "\\deleted")
    story.cut(*ALL)
    story.rest(INBOX={"m": ["\\deleted"]})


@bad("FLAGS leaves a flag", "old: shows")
def replaced(story):
    story.append("a", "INBOX", "m", "old")
    story.rest(INBOX={"m": ["old"]})
    story.store("a", "INBOX", "m", "=", "new")
    story.rest(INBOX={"m": ["new", "old"]})


@bad("a flag that nobody set", "odd: shows|odd: impossible")
def strange_flag(story):
    story.append("a", "INBOX", "m")
    story.rest(INBOX={"m": ["odd"]})


@bad("a mail that nobody added", "ghost in INBOX at a: nobody put it there")
def strange_mail(story):
    story.rest(INBOX={"ghost": []})


@bad("a folder that nobody made", "folder X at a: nobody made it")
def strange_folder(story):
    story.rest(X={})


@bad("a folder is lost", "folder P1: shows")
def folder_lost(story):
    story.op("a", "create", folder="P1")
    story.rest()


@bad("a folder comes back", "folder P1: shows")
def folder_back(story):
    story.op("a", "create", folder="P1")
    story.rest(P1={})
    story.op("b", "delete", folder="P1")
    story.rest(P1={})


@bad("one's own folder is not listed", "folder P1: impossible")
def folder_unlisted(story):
    story.op("a", "create", folder="P1")
    story.listing("a")
    story.rest(P1={})


@bad("a rename is lost", "may be \\['R-2'\\]")
def rename_lost(story):
    story.op("a", "create", folder="R-1")
    story.rest(**{"R-1": {}})
    story.op("b", "rename", folder="R-1", target="R-2")
    story.rest(**{"R-1": {}})


@bad("the earlier of two renames wins", "may be \\['R-3'\\]")
def rename_earlier(story):
    story.op("a", "create", folder="R-1")
    story.op("a", "rename", folder="R-1", target="R-2")
    story.op("a", "rename", folder="R-2", target="R-3")
    story.rest(**{"R-2": {}})


@bad("a folder has two names", "shown as \\['R-1', 'R-2'\\]")
def two_names(story):
    story.op("a", "create", folder="R-1")
    story.op("a", "rename", folder="R-1", target="R-2")
    story.rest(**{"R-1": {}, "R-2": {}})


@bad("the old name is shown after a rename", "R-1 is shown by")
def old_name(story):
    story.op("a", "create", folder="R-1")
    story.op("a", "rename", folder="R-1", target="R-2")
    story.listing("a", "R-1")
    story.rest(**{"R-2": {}})


@bad("a subscription is lost", "subscription to Work: shows")
def subscription_lost(story):
    story.op("a", "subscribe", folder="Work")
    story.rest()


@bad("one's own write is not read", "m in INBOX: copies: impossible")
def write_unread(story):
    story.append("a", "INBOX", "m")
    story.read("a", "INBOX")
    story.rest(INBOX={"m": []})


@bad("one's own flag is not read by another client of the site", "work: impossible")
def flag_unread(story):
    story.append("a", "INBOX", "m", uid=1)
    story.store("a", "INBOX", "m", "+", "work")
    story.read("a", "INBOX", (1, "m"), client="a2")
    story.rest(INBOX={"m": ["work"]})


@bad("something is shown across a cut", "m in INBOX: copies: impossible")
def across(story):
    story.cut()
    story.append("a", "INBOX", "m")
    story.read("b", "INBOX", (1, "m"))
    story.cut(*ALL)
    story.rest(INBOX={"m": []})


@bad("a UID for two mails", "UID 7 of UIDVALIDITY 1 is m .* and n")
def uid_twice(story):
    story.append("a", "INBOX", "m", uid=7)
    story.op("a", "expunge", folder="INBOX", uid=7, mail="m", vanished=True)
    story.append("a", "INBOX", "n", uid=7)
    story.rest(sites={}, INBOX={"n": []})


@bad("a UID below UIDNEXT", "UID 5 \\(m\\) came below UIDNEXT 9")
def below(story):
    story.read("a", "INBOX", uidnext=9)
    story.append("b", "INBOX", "m")
    story.read("a", "INBOX", (5, "m"), uidnext=9)
    story.rest(INBOX={"m": []})


@bad("UIDNEXT falls", "UIDNEXT fell")
def falls(story):
    story.read("a", "INBOX", uidnext=9)
    story.read("a", "INBOX", uidnext=8)
    story.rest()


@bad("UIDVALIDITY changes", "UIDVALIDITY 1 became 2")
def validity(story):
    story.read("a", "INBOX")
    story.read("a", "INBOX", validity=2)
    story.rest()


@bad("one UID for two mails at two sites", "UID 1 is")
def clash(story):
    story.append("a", "INBOX", "m")
    story.append("b", "INBOX", "n")
    story.rest(INBOX={"m": [], "n": []}, sites={"b": {"INBOX": {"n": [], "m": []}}})


@bad("QRESYNC misses a flag", "QRESYNC missed")
def missed_flag(story):
    story.append("a", "INBOX", "m", uid=1)
    story.read("a", "INBOX", (1, "m"))
    before = len(story.history.ops)
    story.store("b", "INBOX", "m", "+", "work")
    story.read(
        "a", "INBOX", (1, "m", "work"), since={"read": before, "vanished": [], "changed": []}
    )
    story.rest(INBOX={"m": ["work"]})


@bad("QRESYNC misses an expunge", "QRESYNC missed")
def missed_expunge(story):
    story.append("a", "INBOX", "m", uid=1)
    story.read("a", "INBOX", (1, "m"))
    before = len(story.history.ops)
    story.op("b", "expunge", folder="INBOX", uid=1, mail="m", vanished=True)
    story.read("a", "INBOX", since={"read": before, "vanished": [], "changed": []})
    story.rest()


def came_back(story, *told):
    """A client knows m, the folder is deleted and comes back with n. It visits at once, and again:
    `told` has HIGHESTMODSEQ and what it was told, of each further visit."""
    story.op("a", "create", folder="P1")
    story.append("a", "P1", "m", uid=1)
    story.read("a", "P1", (1, "m"), uidnext=2, modseq=3)
    before = len(story.history.ops)
    story.op("b", "delete", folder="P1")
    story.append("c", "P1", "n", uid=2)
    story.rest(P1={"n": []}, first_uid=2)
    for modseq, vanished, changed in [(5, [], []), *told]:
        since = {"read": before, "vanished": vanished, "changed": changed}
        story.read("a", "P1", (2, "n"), modseq=modseq, since=since)
        before = len(story.history.ops)
    story.rest(P1={"n": []}, first_uid=2)


@bad("QRESYNC misses an expunge of a folder that came back", "QRESYNC missed, .*: {1: ")
def missed_after_it_came_back(story):
    came_back(story, (65600, [], [[2, []]]))


@bad("QRESYNC misses a mail of a folder that came back", "QRESYNC missed, .*: {2: ")
def missed_mail_after_it_came_back(story):
    came_back(story, (65600, [1], []))


@pytest.mark.parametrize(("make", "wanted"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_violation_is_told(make, wanted):
    import re

    story = Story()
    make(story)
    told = story.judged()
    assert re.search(wanted, told), told


def test_a_no_that_leaves_open_what_was_done_counts_as_no_answer():
    assert is_unsure("NO Mailbox was deleted under us (0.111 + 0.000 + 0.110 secs).")
    assert not is_unsure("NO [TRYCREATE] Mailbox doesn't exist: P1 (0.001 + 0.000 secs).")
    for shown, outcome, verdict in (({"m": []}, "lost", ""), ({}, "lost", ""), ({"m": []}, "no", "m")):
        story = Story()
        story.op("a", "create", folder="P1")
        story.append("a", "P1", "m", outcome=outcome)
        assert verdict in story.rest(P1=shown).judged()
        assert bool(verdict) == bool(story.judged())


def test_a_folder_that_came_back_a_moment_ago_is_left_open_until_its_modseqs_go_on():
    story = Story()
    came_back(story, (6, [], []), (65600, [1], [[2, []]]), (65600, [], []))
    assert story.judged() == ""


def test_what_concurrent_operations_may_leave_open_passes():
    """Each of these is refused above where the order is known."""
    for shown in ({"INBOX": {"m": []}}, {"INBOX": {"m": ["\\flagged"]}}):
        story = Story()
        story.append("a", "INBOX", "m")
        story.rest(INBOX={"m": []})
        story.store("a", "INBOX", "m", "+", "\\flagged")
        story.store("b", "INBOX", "m", "-", "\\flagged")
        assert story.rest(**shown).judged() == ""
    for shown in ({}, {"P1": {"n": []}}):
        story = Story()
        story.op("a", "create", folder="P1")
        story.rest(P1={})
        story.append("a", "P1", "n")
        story.op("b", "delete", folder="P1")
        assert story.rest(**shown).judged() == ""
    for name in ("R-2", "R-3"):
        story = Story()
        story.op("a", "create", folder="R-1")
        story.rest(**{"R-1": {}})
        story.op("a", "rename", folder="R-1", target="R-2")
        story.op("b", "rename", folder="R-1", target="R-3")
        assert story.rest(**{name: {}}).judged() == ""


def test_an_answer_that_never_came_may_mean_either():
    for shown in ({"INBOX": {"m": []}}, {}):
        story = Story()
        story.append("a", "INBOX", "m", outcome="lost")
        assert story.rest(**shown).judged() == ""


def test_an_excused_phase_is_held_to_equality_alone():
    story = Story()
    story.append("a", "INBOX", "m")
    assert story.rest(excused="an mdbox was rebuilt").judged() == ""
    story.rest(INBOX={"x": []}, sites={"b": {"INBOX": {}}}, excused="an mdbox was rebuilt")
    assert "against" in story.judged()


def test_a_recorded_file_is_read_as_it_was_written(tmp_path):
    recorder = record.Recorder(tmp_path / "history.jsonl")
    recorder.write(event="history", seed=3, sites={"a": "sdbox"})
    recorder.op(
        id=recorder.number(),
        user="u",
        site="a",
        client="a1",
        kind="append",
        invoked=1.0,
        responded=2.0,
        outcome="ok",
        folder="INBOX",
        mail="m",
        flags=[],
    )
    recorder.write(event="link", open=["a-b"], began=1.0, ended=2.0)
    recorder.write(event="fault", what="kill", at=1.0)
    recorder.close()
    history = record.read(tmp_path / "history.jsonl")
    assert history.sites == {"a": "sdbox"} and history.ops[0]["mail"] == "m" and history.ops[0].ok
    assert history.links[0].open == {"a-b"} and history.faults[0]["what"] == "kill"
