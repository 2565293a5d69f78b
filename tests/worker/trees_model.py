"""Random work on trees of folders at sites that do not hear each other, and what comes of it.

A model of what clients see: which folder has which name at each site, which mails were seen in it,
and from that where each may be when the sites have met (docs/replication-protocol.md, rules 5 and
6). Of two renames of one folder either may win: which one is the state's matter, and the sites'
to show alike.
"""
import random

from names_world import Client, Refused, differences, shown, subjects_of

PARTS = ["0", "1", "2"]
INBOX = ("INBOX",)


class Tree:
    """What one site's clients see."""

    def __init__(self, names, mails):
        self.of = dict(names)       # name: folder
        self.renamed = set()        # folders that were given a name here
        self.deleted = {}           # folder: mails that were seen in it
        self.last = {}              # folder that was deleted: its name then
        self.retaken = set()        # such folders whose name another one has got since
        self.mails = {folder: set(seen) for folder, seen in mails.items()}
        self.created = set()

    def take_names(self):
        """After each step."""
        self.retaken |= {folder for folder, name in self.last.items() if name in self.of}

    def rename(self, name, to):
        moved = {each: to + each[len(name):] for each in self.of if each[:len(name)] == name}
        # A Maildir++ leaves a child where it is, whose new name another one has.
        moved = {each: new for each, new in moved.items() if new not in self.of or new in moved}
        for each in moved:
            self.renamed.add(self.of[each])
        self.of = {moved.get(each, each): folder for each, folder in self.of.items()}


class Run:
    """One user's random life. log: what was done, for whoever reads of a failure."""

    def __init__(self, world, seed, parts=None, depth=3):
        self.world, self.random, self.log = world, random.Random(seed), []
        self.count, self.parts, self.depth = 0, parts or PARTS, depth

    def some_name(self):
        return tuple(self.random.choice(self.parts)
                     for _ in range(self.random.randint(1, self.depth)))

    def step(self, site, client, tree):
        verb = self.random.choices(["create", "rename", "delete", "append", "look"],
                                   [3, 8, 2, 4, 2])[0]
        have = sorted(tree.of)
        # A parent that cannot be selected is renamed, too.
        shown_names = sorted({name[:n] for name in have for n in range(1, len(name) + 1)} - {INBOX})
        name = to = None
        if verb == "look":
            self.log.append(f"{site.number}: look")
            site.ingest()
            return
        if verb == "create":
            name = self.some_name()
        elif verb == "rename":
            if not shown_names:
                return
            name, to = self.random.choice(shown_names), self.some_name()
        else:
            if not have:
                return
            name = self.random.choice(have)
        self.count += 1
        subject = f"m{self.count}-{site.number}"
        words = [name] + ([to] if verb == "rename" else [subject] if verb == "append" else [])
        try:
            getattr(client, verb)(*words)
        except Refused:
            return
        self.log.append(f"{site.number}: {verb} " +
                        " ".join("/".join(w) if isinstance(w, tuple) else w for w in words))
        self.note(site, tree, verb, name, to, subject)

    def note(self, site, tree, verb, name, to, subject):
        if verb == "create":
            folder = (site.number, self.count)
            tree.of[name] = folder
            tree.created.add(folder)
            tree.mails[folder] = set()
        elif verb == "rename":
            tree.rename(name, to)
        elif verb == "delete":
            folder = tree.of.pop(name)
            tree.deleted[folder] = tree.mails.pop(folder)
            tree.last[folder] = name
        else:
            tree.mails[tree.of[name]].add(subject)
        tree.take_names()

    def apart(self, names, mails, steps):
        """{site: Tree} after random steps at each."""
        trees = {}
        for site in self.world.sites.values():
            trees[site] = Tree(names, mails)
            with Client(site) as client:
                for _ in range(steps):
                    self.step(site, client, trees[site])
        return trees

    def expect(self, before, mails, trees):
        """What may be: {folder: names}, {mail: folder}."""
        may, where = {}, {}
        everywhere = {**{folder: name for name, folder in before.items()},
                      **{f: n for t in trees.values() for n, f in t.of.items() if f in t.created}}
        for folder in everywhere:
            seen = mails.get(folder, set())
            holders = [t for t in trees.values() if folder in before.values() or folder in t.created
                       or folder in t.deleted]
            names = {name for t in trees.values() for name, f in t.of.items() if f == folder}
            changed = {name for t in trees.values() for name, f in t.of.items()
                       if f == folder and folder in t.renamed | t.created}
            gone = [t for t in holders if folder in t.deleted]
            # A folder that was renamed, and then deleted, may live on under either name; so may
            # one whose name another one got before that was looked at (docs/replicator/limits.md, "What
            # is missing").
            alive = {m for t in trees.values() if folder in t.mails for m in t.mails[folder]}
            for t in gone:
                alive -= t.deleted[folder]
            alive -= seen if gone else set()
            renewed = any(folder in t.renamed or t.mails.get(folder, set()) - seen
                          for t in trees.values() if folder in t.of.values())
            if gone and not renewed and folder not in {f for t in trees.values()
                                                       for f in t.created if f in t.of.values()}:
                assert not alive
                continue
            unsure = any(folder in t.renamed | t.retaken for t in gone)
            may[folder] = None if unsure else (changed or names)
            for mail in alive:
                where[mail] = folder
        return may, where

    def wrong(self, may, where):
        """After the sites have met; [] and what they show."""
        told = differences(self.world)
        found = subjects_of(shown(self.world[1]))
        found.pop(INBOX, None)
        lies = {}
        for name, subjects in found.items():
            for subject in subjects:
                lies.setdefault(subject, []).append(name)
        told += [f"{m} is lost" for m in where if m not in lies]
        told += [f"{m} is in {lies[m]}" for m in lies if len(lies[m]) > 1]
        told += [f"{m} is back" for m in lies if m not in where]
        told += [f"{m} is in {lies[m]}, not in {may[f]}" for m, f in where.items()
                 if m in lies and may[f] is not None and lies[m][0] not in may[f]]
        told += [f"no folder of {names}" for names in may.values()
                 if names is not None and not names & set(found)]
        if None not in may.values():
            known = {name for names in may.values() for name in names}
            told += [f"{'/'.join(name)} is nobody's" for name in set(found) - known]
        return told, found

    def live(self, rounds=2, steps=8):
        """What went wrong, in words."""
        found = {}
        for at in range(rounds):
            before = {name: ("known", at, name) for name in found}
            mails = {before[name]: set(subjects) for name, subjects in found.items()}
            self.log.append(f"round {at}: {sorted('/'.join(n) for n in before)}")
            trees = self.apart(before, mails, steps)
            may, where = self.expect(before, mails, trees)
            self.world.settle()
            self.world.settle()
            told, found = self.wrong(may, where)
            if told:
                return told
        return []
