"""The verdict on a history, by docs/replication-protocol.md.

    verdict = check(history)        verdict.complaints, verdict.counts

Phases end at rest; each is judged by itself, from what all sites showed at the rest before.

| promise | how it is judged |
|---|---|
| nothing acknowledged is lost; add wins | `Copies` of each (folder, mail): appends, copies, moves |
| flags by the rule | `Flag` and `Cleared` of each flag of each mail; subscriptions |
| a folder is there | `Flag`: CREATE, RENAME and each new mail set it, DELETE clears it |
| a folder's name | that of a rename which no later one has certainly seen |
| read-your-writes at each site | each read is a step of those registers |
| no UID twice | each UID that was ever seen or answered, by site, folder and UIDVALIDITY |
| QRESYNC | what a client knew and was told since is what the folder shows |
| equal at rest | what all sites showed then |

What is left open, since no client can know it, is counted, not judged: flags of a mail that came
into one folder several times in a phase, and registers with too many orders (`undecided`).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from .record import FOREVER
from .register import Cleared, Copies, Flag, Keyword, Search, Step

DELETED = "\\deleted"
# Always there: made before the first rest, never deleted.
FIXED = ("INBOX", "Archive", "Work")
# Folders that are renamed begin so. A name is used once, so it tells the folder.
RENAMED = "R-"


@dataclass
class Verdict:
    complaints: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)


def check(history):
    verdict = Verdict()
    users = sorted({op.user for op in history.ops} | {rest.user for rest in history.rests})
    for user in users:
        verdict.complaints += [f"{user}: {line}" for line in check_user(history, user, verdict)]
    verdict.counts["operations"] = len(history.ops)
    verdict.counts["answered"] = sum(op.ok for op in history.ops)
    return verdict


def check_user(history, user, verdict):
    ops = [op for op in history.ops if op.user == user]
    rests = [rest for rest in history.rests if rest.user == user]
    told = []
    names, before = Names(), None
    for op in ops:
        if op.kind == "rename":
            told += names.note(op)
    for rest in rests:
        begin = before.ended if before else 0.0
        phase = Phase(
            history, names, before, rest, [op for op in ops if begin <= op.invoked <= rest.began]
        )
        verdict.counts["phases"] += 1
        if rest.excused:
            verdict.counts["excused phases"] += 1
            told += phase.unequal()
        else:
            told += phase.judge(verdict.counts)
        before = rest
    return told + uids_twice(ops, rests) + missed_by_qresync(ops, verdict)


class Names:
    """Which folder a name is: names of renamed folders are used once, so they tell it."""

    def __init__(self):
        self.root = {}

    def note(self, op):
        target, folder = op["target"], self.folder(op["folder"])
        if self.root.get(target, folder) != folder or target == folder:
            return [f"the history cannot be judged: {target} is the name of two folders"]
        self.root[target] = folder
        return []

    def folder(self, name):
        return self.root.get(name, name)

    def of(self, folder):
        return {folder, *(name for name, root in self.root.items() if root == folder)}


# -- one phase ------------------------------------------------------------------------------------


class Phase:
    """What one user's clients did between two rests."""

    def __init__(self, history, names, before, rest, ops):
        self.names, self.rest, self.ops = names, rest, ops
        self.sites = list(history.sites)
        self.links = [
            link
            for link in history.links
            if link.began < rest.began and (before is None or link.ended > before.ended)
        ]
        self.links = [*open_before(history.links, before), *self.links]
        self.base = shape(next(iter(before.shown.values())), names) if before else {}
        self.base_names = (
            {names.folder(name): name for name in next(iter(before.shown.values()))["folders"]}
            if before
            else {}
        )
        self.subscribed = set(next(iter(before.shown.values()))["subscribed"]) if before else set()
        self.shown = {site: shape(shown, names) for site, shown in rest.shown.items()}

    def judge(self, counts):
        told = self.unequal()
        for folder, mail in sorted(self.elements()):
            told += self.judge_copies(folder, mail, counts)
            told += self.judge_flags(folder, mail, counts)
        for folder in sorted(self.folders()):
            told += self.judge_folder(folder, counts)
            if folder.startswith(RENAMED):
                told += self.judge_name(folder)
        for name in sorted(self.subscriptions()):
            told += self.judge_subscription(name, counts)
        return told + self.strange()

    def search(self, what, kind, steps, base, final, counts):
        """[] or [complaint] of one register."""
        search = Search(kind, self.sites, steps, self.links, base)
        wrong = search.run(final)
        counts["registers"] += 1
        counts["steps"] += len(steps)
        if search.undecided:
            counts["undecided"] += 1
        if not wrong:
            return []
        known = {op.id: op for op in self.ops}
        lines = [
            f"    {known[step.id // 4]}{f' -> {step.value}' if step.act == 'read' else ''}"
            for step in steps[:40]
        ]
        return [f"{what}: {wrong}; before it was {sorted(base)}\n" + "\n".join(lines)]

    # -- steps of registers -----------------------------------------------------------------------
    # A step's id is four times its operation's: one operation may have several in one register.

    def step(self, op, act, part=0, sure=None, value=None):
        sure = op.ok if sure is None else sure
        return Step(4 * op.id + part, op.site, op.invoked, op.responded, act, sure, value)

    def adds(self, folder, mail):
        """Operations that may have put a mail into a folder, with whether they surely did."""
        for op in self.ops:
            if (
                op.get("mail") != mail
                or self.names.folder(op.get("target", op.get("folder"))) != folder
            ):
                continue
            if op.kind == "append" and op.outcome != "no":
                yield op, op.ok
            elif op.kind in ("copy", "move") and not (op.ok and not op["copied"]):
                yield op, op.ok

    def takes(self, folder, mail):
        """Operations that may have taken it away, with what they do."""
        for op in self.ops:
            if self.names.folder(op.get("folder")) != folder:
                continue
            if op.kind in ("expunge", "move") and op["mail"] == mail:
                yield op, "remove"
            elif op.kind == "delete" and op.outcome != "refused":
                yield op, "wipe"

    def reads(self, folder):
        return [
            op
            for op in self.ops
            if op.kind == "read"
            and op.ok
            and op["whole"]
            and self.names.folder(op["folder"]) == folder
        ]

    def elements(self):
        found = {(folder, mail) for folder, mails in self.base.items() for mail in mails}
        for op in self.ops:
            if op.kind in ("append", "copy", "move"):
                name = op.get("target", op["folder"])
                found.add((self.names.folder(name), op["mail"]))
        return found

    def judge_copies(self, folder, mail, counts):
        steps = [self.step(op, "add", 0, sure) for op, sure in self.adds(folder, mail)]
        steps += [self.step(op, act, 1) for op, act in self.takes(folder, mail)]
        steps += [
            self.step(op, "read", 2, value=sum(row[1] == mail for row in op["mails"]))
            for op in self.reads(folder)
        ]
        base = range(1, len(self.base.get(folder, {}).get(mail, ())) + 1)
        final = {
            site: len(shown.get(folder, {}).get(mail, ())) for site, shown in self.shown.items()
        }
        return self.search(
            f"{mail} in {folder}: copies", Copies, thinned(steps), base, final, counts
        )

    def judge_flags(self, folder, mail, counts):
        base = self.base.get(folder, {}).get(mail, ())
        adds = list(self.adds(folder, mail))
        if len(base) + len(adds) > 1:
            counts["flags left open"] += 1
            return []
        stores = [
            op
            for op in self.ops
            if op.kind == "store"
            and op["mail"] == mail
            and self.names.folder(op["folder"]) == folder
        ]
        reads = [
            (op, [row[2] for row in op["mails"] if row[1] == mail]) for op in self.reads(folder)
        ]
        reads = [(op, rows[0]) for op, rows in reads if len(rows) == 1]
        final = {
            site: shown[folder][mail][0]
            for site, shown in self.shown.items()
            if len(shown.get(folder, {}).get(mail, ())) == 1
        }
        flags = {flag for op in stores for flag in op["flags"]} | {
            flag for row in base for flag in row
        }
        flags |= {flag for _, row in reads for flag in row} | {
            f for row in final.values() for f in row
        }
        flags |= {flag for op, _ in adds for flag in op.get("flags", ())}
        # A client marks a mail before it expunges it, and that mark is no operation of its own.
        marked = any(act == "remove" for _, act in self.takes(folder, mail))
        told = []
        for flag in sorted(flags - ({DELETED} if marked else set())):
            steps = [self.step(*birth) for birth in self.births(adds, flag)]
            steps += [
                self.step(op, what, 1, op.ok and op["found"])
                for op in stores
                for what in [effect(op, flag)]
                if what
            ]
            steps += [self.step(op, "read", 2, value=flag in row) for op, row in reads]
            kind = Cleared if flag == DELETED else Flag if flag.startswith("\\") else Keyword
            told += self.search(
                f"{mail} in {folder}: {flag}",
                kind,
                thinned(steps),
                [1] if base and flag in base[0] else [],
                {site: flag in row for site, row in final.items()},
                counts,
            )
        return told

    @staticmethod
    def births(adds, flag):
        """A copy has its source's flags, which nobody knows, and so may what was cut short."""
        for op, sure in adds:
            if op.kind != "append":
                yield op, "set", 0, False
            elif flag in op["flags"]:
                yield op, "set", 0, sure

    # -- folders ----------------------------------------------------------------------------------

    def folders(self):
        found = set(FIXED) if self.base else set()
        found |= set(self.base)
        for op in self.ops:
            if op.kind in ("create", "delete", "append", "copy", "move", "rename"):
                found.add(self.names.folder(op["folder"]))
        return found

    def judge_folder(self, folder, counts):
        steps = []
        for op in self.ops:
            # ALREADYEXISTS: another session may have completed what this one began.
            if op.kind == "create" and self.names.folder(op["folder"]) == folder:
                if op.outcome != "no" or "ALREADYEXISTS" in op.get("why", ""):
                    steps.append(self.step(op, "set"))
            elif op.kind == "rename" and self.names.folder(op["folder"]) == folder:
                steps.append(self.step(op, "set"))
            elif op.kind == "delete" and self.names.folder(op["folder"]) == folder:
                steps.append(self.step(op, "clear"))
            elif op.kind == "list" and op.ok:
                shown = {self.names.folder(name) for name in op["folders"]}
                if folder in shown or not any(is_aside(name) for name in op["folders"]):
                    steps.append(self.step(op, "read", 2, value=folder in shown))
        steps += [
            self.step(op, "set", 1, sure)
            for mail in self.mails_of(folder)
            for op, sure in self.adds(folder, mail)
        ]
        final = {site: folder in shown for site, shown in self.shown.items()}
        # What is in a folder keeps it: mails have registers of their own.
        if all(shown.get(folder) for shown in self.shown.values()):
            final = None
        return self.search(
            f"folder {folder}",
            Flag,
            thinned(steps),
            [1] if folder in self.base else [],
            final,
            counts,
        )

    def mails_of(self, folder):
        return sorted(
            {
                op["mail"]
                for op in self.ops
                if op.kind in ("append", "copy", "move")
                and self.names.folder(op.get("target", op["folder"])) == folder
            }
        )

    def judge_name(self, folder):
        """Its name is that of a rename which no answered rename has certainly seen."""
        renames = [
            op
            for op in self.ops
            if op.kind == "rename" and self.names.folder(op["folder"]) == folder
        ]
        sure = [op for op in renames if op.ok]
        allowed = {
            op["target"] for op in renames if not any(overtakes(later, op) for later in sure)
        }
        if not sure:
            allowed.add(self.base_names.get(folder, folder))
        told = []
        for site, shown in self.rest.shown.items():
            found = sorted(name for name in shown["folders"] if self.names.folder(name) == folder)
            if len(found) > 1 or set(found) - allowed:
                told.append(
                    f"folder {folder} at {site}: shown as {found}, may be {sorted(allowed)}"
                )
        for op in self.ops:
            if op.kind == "list" and op.ok:
                told += [
                    f"folder {folder}: {rename['folder']} is shown by {op} after {rename}"
                    for rename in sure
                    if rename.site == op.site
                    and rename.is_before(op)
                    and rename["folder"] in op["folders"]
                ]
        return told

    # -- subscriptions ----------------------------------------------------------------------------

    def subscriptions(self):
        found = {op["folder"] for op in self.ops if op.kind in ("subscribe", "unsubscribe")}
        return found | self.subscribed

    def judge_subscription(self, name, counts):
        steps = []
        for op in self.ops:
            if op.kind in ("subscribe", "unsubscribe") and op["folder"] == name:
                steps.append(self.step(op, "set" if op.kind == "subscribe" else "clear"))
            elif op.kind == "list" and op.ok:
                steps.append(self.step(op, "read", 2, value=name in op["subscribed"]))
        final = {site: name in shown["subscribed"] for site, shown in self.rest.shown.items()}
        return self.search(
            f"subscription to {name}",
            Flag,
            thinned(steps),
            [1] if name in self.subscribed else [],
            final,
            counts,
        )

    # -- at rest ----------------------------------------------------------------------------------

    def unequal(self):
        """Where sites differ at rest, UIDs and UIDVALIDITY included: no UID names two mails."""
        told, (first, *others) = [], list(self.rest.shown.items())
        for site, shown in others:
            for name in sorted({*first[1]["folders"], *shown["folders"]}):
                one, other = (found["folders"].get(name) for found in (first[1], shown))
                where = f"rest {self.rest.phase}: {name} at {first[0]} and {site}"
                if one is None or other is None:
                    told.append(f"{where}: only one has it")
                    continue
                if one["validity"] != other["validity"]:
                    told.append(f"{where}: UIDVALIDITY {one['validity']}, {other['validity']}")
                if content(one) != content(other):
                    told.append(f"{where}: {apart(one, other)}")
                here, there = ({row[0]: row[1] for row in found["mails"]} for found in (one, other))
                told += [
                    f"{where}: UID {uid} is {here[uid]} and {there[uid]}"
                    for uid in sorted(here.keys() & there.keys())
                    if here[uid] != there[uid]
                ]
            if set(first[1]["subscribed"]) != set(shown["subscribed"]):
                told.append(f"rest {self.rest.phase}: subscriptions differ at {first[0]}, {site}")
        return told

    def strange(self):
        """What nobody made."""
        elements, told = self.elements(), []
        folders = self.folders() | set(FIXED)
        for site, shown in self.shown.items():
            told += [
                f"{mail} in {folder} at {site}: nobody put it there"
                for folder, mails in shown.items()
                for mail in mails
                if (folder, mail) not in elements
            ]
            told += [
                f"folder {folder} at {site}: nobody made it"
                for folder in shown
                if folder not in folders
            ]
        return told


def open_before(links, before):
    """The last change of the network before a phase, which is in force when it begins."""
    if before is None:
        return []
    earlier = [link for link in links if link.ended <= before.ended]
    if not earlier:
        return []
    last = earlier[-1]
    return [type(last)(last.open, before.ended, before.ended)]


def shape(shown, names):
    """{folder: {mail: [flags of each copy]}} of what a site shows at rest."""
    found = {}
    for name, folder in shown["folders"].items():
        mails = found.setdefault(names.folder(name), {})
        for _, mail, flags, *_ in folder["mails"]:
            mails.setdefault(mail, []).append(frozenset(flags))
    return found


def content(folder):
    """Mails, GUIDs, bodies' hashes and flags; UIDs are compared by themselves."""
    return Counter((mail, frozenset(flags), *more) for _, mail, flags, *more in folder["mails"])


def apart(one, other):
    here, there = content(one), content(other)
    say = lambda counted: [f"{row[0]} {sorted(row[1])}" for row in counted.elements()][
        :5
    ]  # noqa: E731
    return f"{say(here - there)} against {say(there - here)}"


def effect(op, flag):
    """What a STORE does to a flag: "set", "clear" or None."""
    if op["how"] == "=":
        return "set" if flag in op["flags"] else "clear"
    return {"+": "set", "-": "clear"}[op["how"]] if flag in op["flags"] else None


def overtakes(later, op):
    """Whether a rename has certainly seen another one: it was made at the same site after it, or
    it named the folder as the other one did."""
    if later is op:
        return False
    return later["folder"] == op["target"] or (later.site == op.site and op.is_before(later))


def is_aside(name):
    """A name that a site gives a folder for a moment, while it makes room."""
    return "-dovelane-" in name


def thinned(steps):
    """Without reads that say nothing new: of several reads of one site with one value, and no
    other step of the register in between, those whose time another one's has within it."""
    changes = [step for step in steps if step.act != "read"]
    if not changes:
        kept = {}
        for step in steps:
            kept.setdefault((step.site, step.value), step)
        return list(kept.values())
    kept = []
    for step in sorted(steps, key=lambda step: (step.invoked, step.id)):
        last = next((old for old in reversed(kept) if old.site == step.site), None)
        if (
            step.act == "read"
            and last is not None
            and last.act == "read"
            and last.value == step.value
            and step.responded is not None
            and not any(overlaps(change, last.invoked, step.responded) for change in changes)
        ):
            continue
        kept.append(step)
    return kept


def overlaps(step, since, until):
    return (
        step.invoked <= until and (FOREVER if step.responded is None else step.responded) >= since
    )


# -- UIDs -----------------------------------------------------------------------------------------


def uids_twice(ops, rests):
    """No UID names two mails within a site's UIDVALIDITY, none comes back, UIDNEXT never falls,
    and nothing new comes below it (RFC 9051, 2.3.1.1)."""
    named, told = {}, []
    for site, name, validity, uid, mail, op in seen_uids(ops, rests):
        first = named.setdefault((site, name, validity, uid), (mail, op))
        if first[0] != mail:
            told.append(
                f"{name} at {site}: UID {uid} of UIDVALIDITY {validity} is {first[0]} "
                f"({first[1]}) and {mail} ({op})"
            )
    return told + below_uidnext(ops) + validity_changes(ops)


def seen_uids(ops, rests):
    for op in ops:
        if op.kind == "read" and op.ok:
            for row in op["mails"]:
                yield op.site, op["folder"], op["validity"], row[0], row[1], op
        elif op.get("answer") and op.ok:  # APPENDUID, COPYUID
            yield op.site, op.get("target", op["folder"]), *op["answer"], op["mail"], op
    for rest in rests:
        for site, shown in rest.shown.items():
            for name, folder in shown["folders"].items():
                for uid, mail, *_ in folder["mails"]:
                    yield site, name, folder["validity"], uid, mail, f"rest {rest.phase}"


def below_uidnext(ops):
    """Of reads of one folder, one after the other."""
    told, reads = [], defaultdict(list)
    for op in ops:
        if op.kind == "read" and op.ok and op["whole"]:
            reads[op.site, op["folder"], op["validity"]].append(op)
    for (site, name, _), found in reads.items():
        best = None  # the read with the highest UIDNEXT that is over, and all that was shown
        waiting = []
        for op in found:
            for over in [one for one in waiting if one.is_before(op)]:
                waiting.remove(over)
                if best is None or over["uidnext"] > best["uidnext"]:
                    best = over
            waiting.append(op)
            if best is None:
                continue
            if op["uidnext"] < best["uidnext"]:
                told.append(f"{name} at {site}: UIDNEXT fell: {best}, then {op}")
            old = {row[0] for row in best["mails"]}
            fresh = [row for row in op["mails"] if row[0] < best["uidnext"] and row[0] not in old]
            told += [
                f"{name} at {site}: UID {row[0]} ({row[1]}) came below UIDNEXT "
                f"{best['uidnext']} of {best}: {op}"
                for row in fresh
            ]
    return told


def validity_changes(ops):
    """The folders that are always there keep their UIDVALIDITY."""
    told, known = [], {}
    for op in ops:
        if op.kind == "read" and op.ok and op["folder"] in FIXED:
            first = known.setdefault((op.site, op["folder"]), op)
            if first["validity"] != op["validity"]:
                told.append(
                    f"{op['folder']} at {op.site}: UIDVALIDITY {first['validity']} became "
                    f"{op['validity']}"
                )
    return told


# -- QRESYNC --------------------------------------------------------------------------------------


def is_deleted(ops, op):
    """Whether the folder of a read may have been deleted before it, at any site."""
    return any(
        one.kind == "delete" and one["folder"] == op["folder"] and not op.is_before(one)
        for one in ops
    )


# Modseqs of a folder that came back go on this far above the old ones, when all is placed
# (docs/replication-protocol.md, "Modseqs"). No history gets as far by its own changes.
GOES_ON_ABOVE = 65536


def may_begin_again(ops, op, before):
    """Whether a read may have met a folder that came back a moment ago."""
    return is_deleted(ops, op) and (
        op["modseq"] < before["modseq"] or op["modseq"] < GOES_ON_ABOVE
    )


def cached_by(cached, op):
    """{UID: flags} of a client that knew `cached` and did what a QRESYNC SELECT told."""
    cached = dict(cached)
    for uid in op["since"]["vanished"]:
        cached.pop(uid, None)
    cached.update({uid: set(flags) for uid, flags in op["since"]["changed"]})
    return cached


def missed_by_qresync(ops, verdict):
    """A client that knew a folder, and was told what changed, knows it again: RFC 7162. What has
    a modseq above HIGHESTMODSEQ changed after the SELECT, and before the FETCH. Where a visit is
    left open, the client's next one is judged by what it then believes, not by what is there."""
    told, known = [], {}  # known: (the read, {UID: flags} that its client believes)
    for op in ops:
        if op.kind != "read" or not op.ok:
            continue
        key = (op.client, op["folder"])
        before, believed = known.get(key, (None, {}))
        true = {row[0]: set(row[2]) for row in op["mails"]}
        if op["whole"]:
            known[key] = op, true
        since = op.get("since")
        if not since or before is None or not op["whole"] or before.id != since["read"]:
            continue
        cached = cached_by(believed, op)
        later = {row[0] for row in op["mails"] if row[3] > op["modseq"]}
        wrong = {
            uid: (sorted(cached.get(uid, {"(gone)"})), sorted(true.get(uid, {"(gone)"})))
            for uid in sorted((cached.keys() | true.keys()) - later)
            if cached.get(uid) != true.get(uid)
        }
        if wrong and may_begin_again(ops, op, before):
            verdict.counts["QRESYNC visits left open"] += 1
            known[key] = op, cached | {uid: true[uid] for uid in later}
            continue
        verdict.counts["QRESYNC visits"] += 1
        if wrong:
            told.append(f"QRESYNC missed, {{UID: (known, true)}}: {wrong}: {op}, since {before}")
    return told
