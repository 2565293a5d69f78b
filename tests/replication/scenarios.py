"""The scenario table: what two sites do while they cannot hear each other, and what both must show afterwards.

Each row is a class of its own name with up to four steps, each given Sites of one user:

    before(a)        while connected; then both sites are equal
    at_a(a), at_b(b) apart; a first
    after(a, b)      connected and equal again; then equal once more
    wanted           {folder: {mail: [flags of each copy]}}; or a function of the shape that returns None or a complaint
    look(site)       what else both must show alike (rights, scripts, annotations); found: what it must be, or a list of choices
    journal          False: its commands are none that stack/journal.py has a model of; else the row is judged by it, too

`wanted` says all that is there, INBOX included. The texts of `dsync` are what stock `doveadm sync` was seen to do.
"""
import time
from dataclasses import dataclass

SEEN, FLAGGED, ANSWERED, DELETED = "\\Seen", "\\Flagged", "\\Answered", "\\Deleted"
ROWS = {}


def nothing(*_):
    """A step in which nobody does anything."""


@dataclass
class Row:
    name: str
    title: str
    before: object
    at_a: object
    at_b: object
    after: object
    wanted: object
    stateful: bool          # dsync with its state of last time, as the 2.3 replicator ran it
    storages: tuple         # storage formats at site a that the row is about
    look: object
    found: object
    journal: bool

    def complaint(self, shape):
        """None, or what is wrong with what a site shows."""
        if callable(self.wanted):
            return self.wanted(shape)
        return None if shape == self.wanted else f"shows {shape}, wanted {self.wanted}"

    def odd(self, looked):
        """As complaint, of what `look` gave."""
        choices = self.found if isinstance(self.found, list) else [self.found]
        return None if self.look is None or looked in choices else f"shows {looked}, wanted {' or '.join(map(str, choices))}"


def row(definition):
    """Enters a class into the table."""
    get = lambda name, default: definition.__dict__.get(name, default)  # noqa: E731
    plain = lambda step: step.__func__ if isinstance(step, staticmethod) else step  # noqa: E731
    steps = [plain(get(name, nothing)) for name in ("before", "at_a", "at_b", "after")]
    name = definition.__name__
    ROWS[name] = Row(name, (definition.__doc__ or name).strip(), *steps, plain(definition.__dict__["wanted"]), get("stateful", True),
                     get("storages", ("sdbox", "mdbox", "maildir")), plain(definition.__dict__.get("look")), definition.__dict__.get("found"),
                     get("journal", True))
    return definition


def shown(text):
    """"m, n \\Seen kw" as {mail: [flags]}; a mail named twice has two copies."""
    mails = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, *flags = part.split()
        mails.setdefault(name, []).append(tuple(sorted(flag.lower() for flag in flags)))
    return {name: sorted(copies) for name, copies in mails.items()}


def folders(**named):
    """Folder to its text; double underscores stand for '/'. INBOX is there in any case."""
    found = {"INBOX": {}}
    found.update({name.replace("__", "/"): shown(text) for name, text in named.items()})
    return found


def one_of(*choices):
    return lambda shape: None if shape in choices else f"shows {shape}, wanted one of {choices}"


# -- messages ------------------------------------------------------------------------------------------------------------

@row
class plain:
    """everything at A, nothing at B"""
    before = lambda a: [a.append("INBOX", "m"), a.append("INBOX", "n", SEEN), a.create("F"), a.append("F", "f")]
    at_a = lambda a: [a.append("INBOX", "o", FLAGGED, "later"), a.expunge("INBOX", "m"), a.flag("INBOX", "n", "-", SEEN),
                      a.copy("INBOX", "n", "F"), a.rename("F", "G"), a.create("H/I"), a.append("H/I", "i"), a.deliver("l")]
    wanted = {"INBOX": shown("n, o \\flagged later, l"), "G": shown("f, n"), "H/I": shown("i")}


@row
class append_append:
    """append A || append B, same UIDNEXT"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.append("INBOX", "x")
    at_b = lambda b: b.append("INBOX", "y")
    wanted = folders(INBOX="m, x, y")


@row
class append_append_stateless:
    """append A || append B, dsync without -s or -f"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.append("INBOX", "x")
    at_b = lambda b: b.append("INBOX", "y")
    wanted = folders(INBOX="m, x, y")
    stateful = False


@row
class deliver_deliver:
    """5 LMTP deliveries A || 7 B"""
    before = lambda a: a.deliver("m")
    at_a = lambda a: [a.deliver(f"x{n}") for n in range(5)]
    at_b = lambda b: [b.deliver(f"y{n}") for n in range(7)]
    wanted = folders(INBOX="m, " + ", ".join([f"x{n}" for n in range(5)] + [f"y{n}" for n in range(7)]))


@row
class flag_flag:
    """+Flagged A || +Answered B"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.flag("INBOX", "m", "+", FLAGGED)
    at_b = lambda b: b.flag("INBOX", "m", "+", ANSWERED)
    wanted = folders(INBOX="m \\flagged \\answered")


@row
class unflag_reflag:
    """-Flagged A || (-Flagged, +Flagged) B"""
    before = lambda a: a.append("INBOX", "m", FLAGGED)
    at_a = lambda a: a.flag("INBOX", "m", "-", FLAGGED)
    at_b = lambda b: [b.flag("INBOX", "m", "-", FLAGGED), b.flag("INBOX", "m", "+", FLAGGED)]
    wanted = folders(INBOX="m \\flagged")


@row
class store_store:
    """STORE A || STORE B on one message"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.flag("INBOX", "m", "+", "alpha", SEEN)
    at_b = lambda b: b.flag("INBOX", "m", "+", "beta", SEEN)
    wanted = folders(INBOX="m alpha beta \\seen")


@row
class replace_flags:
    """FLAGS (x y) A || +Flagged B"""
    before = lambda a: a.append("INBOX", "m", SEEN, "old")
    at_a = lambda a: a.flag("INBOX", "m", "=", "new")
    at_b = lambda b: b.flag("INBOX", "m", "+", FLAGGED)
    wanted = folders(INBOX="m new \\flagged")


@row
class expunge_seen:
    """expunge A || +Seen B"""
    before = lambda a: [a.append("INBOX", "m"), a.append("INBOX", "n")]
    at_a = lambda a: a.expunge("INBOX", "m")
    at_b = lambda b: b.flag("INBOX", "m", "+", SEEN)
    wanted = folders(INBOX="n")


@row
class expunge_expunge:
    """expunge A || expunge B of one mail"""
    before = lambda a: [a.append("INBOX", "m"), a.append("INBOX", "n")]
    at_a = lambda a: a.expunge("INBOX", "m")
    at_b = lambda b: b.expunge("INBOX", "m")
    wanted = folders(INBOX="n")


@row
class deleted_undeleted:
    """+Deleted A || -Deleted B (a rescue), then EXPUNGE"""
    before = lambda a: a.append("INBOX", "m", DELETED)
    at_a = lambda a: [a.flag("INBOX", "m", "-", DELETED), a.flag("INBOX", "m", "+", DELETED)]
    at_b = lambda b: b.flag("INBOX", "m", "-", DELETED)
    after = lambda a, b: [a.expunge_marked("INBOX"), b.expunge_marked("INBOX")]
    wanted = folders(INBOX="m")


@row
class keywords_27:
    """30 keywords on one mail A || one more B (Maildir's names hold 26)"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.flag("INBOX", "m", "+", *[f"k{n:02}" for n in range(30)])
    at_b = lambda b: b.flag("INBOX", "m", "+", "other")
    wanted = folders(INBOX="m other " + " ".join(f"k{n:02}" for n in range(30)))


@row
class keyword_case:
    """+Todo A || +todo B"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.flag("INBOX", "m", "+", "Todo")
    at_b = lambda b: b.flag("INBOX", "m", "+", "todo")
    wanted = folders(INBOX="m todo")


# -- copies and moves ----------------------------------------------------------------------------------------------------

@row
class copy_copy:
    """COPY m to H, A || B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("H")]
    at_a = lambda a: a.copy("INBOX", "m", "H")
    at_b = lambda b: b.copy("INBOX", "m", "H")
    wanted = folders(INBOX="m", H="m")


@row
class copies_copy:
    """2x COPY m to H A || COPY m to H B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("H")]
    at_a = lambda a: [a.copy("INBOX", "m", "H"), a.copy("INBOX", "m", "H")]
    at_b = lambda b: b.copy("INBOX", "m", "H")
    wanted = folders(INBOX="m", H="m, m")


@row
class copies_in_place:
    """2x COPY m within INBOX at A, nothing at B"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: [a.copy("INBOX", "m", "INBOX"), a.copy("INBOX", "m", "INBOX")]
    wanted = folders(INBOX="m, m, m")


@row
class expunge_copy:
    """EXPUNGE m A || COPY m to H B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("H")]
    at_a = lambda a: a.expunge("INBOX", "m")
    at_b = lambda b: b.copy("INBOX", "m", "H")
    wanted = folders(H="m")


@row
class expunge_k1_k2:
    """EXPUNGE copy 1 A || EXPUNGE copy 2 B"""
    before = lambda a: [a.append("INBOX", "m"), a.copy("INBOX", "m", "INBOX")]
    at_a = lambda a: a.expunge("INBOX", "m", copy=0)
    at_b = lambda b: b.expunge("INBOX", "m", copy=1)
    wanted = folders()


@row
class move_move:
    """MOVE m to G A || MOVE m to H B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("G"), a.create("H")]
    at_a = lambda a: a.move("INBOX", "m", "G")
    at_b = lambda b: b.move("INBOX", "m", "H")
    wanted = folders(G="m", H="m")


@row
class move_same:
    """MOVE m to G A || MOVE m to G B"""
    before = lambda a: [a.append("INBOX", "m", SEEN), a.create("G")]
    at_a = lambda a: a.move("INBOX", "m", "G")
    at_b = lambda b: b.move("INBOX", "m", "G")
    wanted = folders(G="m \\seen")


@row
class move_expunge:
    """MOVE m to G A || EXPUNGE m B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("G")]
    at_a = lambda a: a.move("INBOX", "m", "G")
    at_b = lambda b: b.expunge("INBOX", "m")
    wanted = folders(G="m")


@row
class move_back_seen:
    """MOVE m out and back A || +Seen B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("G")]
    at_a = lambda a: [a.move("INBOX", "m", "G"), a.move("G", "m", "INBOX")]
    at_b = lambda b: b.flag("INBOX", "m", "+", SEEN)
    wanted = folders(INBOX="m", G="")


# -- folders -------------------------------------------------------------------------------------------------------------

@row
class delete_append:
    """DELETE F A || append to F B"""
    before = lambda a: [a.create("F"), a.append("F", "old")]
    at_a = lambda a: a.delete("F")
    at_b = lambda b: b.append("F", "new")
    wanted = folders(F="new")


@row
class delete_append_later:
    """DELETE F A, 1.1 s later append to F B"""
    before = lambda a: [a.create("F"), a.append("F", "old")]
    at_a = lambda a: [a.delete("F"), time.sleep(1.1)]
    at_b = lambda b: b.append("F", "new")
    wanted = folders(F="new")


@row
class delete_flag:
    """DELETE F A || +Seen in F B"""
    before = lambda a: [a.create("F"), a.append("F", "old")]
    at_a = lambda a: a.delete("F")
    at_b = lambda b: b.flag("F", "old", "+", SEEN)
    wanted = folders()


@row
class delete_plain:
    """DELETE F A, nothing at B"""
    before = lambda a: [a.create("F"), a.append("F", "old"), a.append("F", "older"), a.create("F/G"), a.append("F/G", "g")]
    at_a = lambda a: [a.delete("F/G"), a.delete("F")]
    wanted = folders()


@row
class delete_recreate_append:
    """DELETE F, CREATE F, append A || append to the old F B"""
    before = lambda a: [a.create("F"), a.append("F", "old")]
    at_a = lambda a: [a.delete("F"), a.create("F"), a.append("F", "a")]
    at_b = lambda b: b.append("F", "b")
    wanted = folders(F="a, b")


@row
class create_create:
    """CREATE H, a mail A || CREATE H, a mail B"""
    at_a = lambda a: [a.create("H"), a.append("H", "x")]
    at_b = lambda b: [b.create("H"), b.append("H", "y")]
    wanted = folders(H="x, y")


@row
class rename_rename:
    """RENAME G G1 A || RENAME G G2 B"""
    before = lambda a: [a.create("G"), a.append("G", "m")]
    at_a = lambda a: a.rename("G", "G1")
    at_b = lambda b: b.rename("G", "G2")
    wanted = staticmethod(one_of(folders(G1="m"), folders(G2="m")))


@row
class rename_cycle:
    """RENAME G P/G A || RENAME P G/P B"""
    before = lambda a: [a.create("G"), a.append("G", "g"), a.create("P"), a.append("P", "p")]
    at_a = lambda a: a.rename("G", "P/G")
    at_b = lambda b: b.rename("P", "G/P")
    wanted = folders(P__G="g", G__P="p")


@row
class rename_append:
    """RENAME G G1 A || append to G B"""
    before = lambda a: [a.create("G"), a.append("G", "m")]
    at_a = lambda a: a.rename("G", "G1")
    at_b = lambda b: b.append("G", "n")
    wanted = folders(G1="m, n")


@row
class rename_tree:
    """RENAME P Q (with children) A || append to P/C B"""
    before = lambda a: [a.create("P"), a.append("P", "p"), a.create("P/C"), a.append("P/C", "c"), a.create("P/C/D"), a.append("P/C/D", "d")]
    at_a = lambda a: a.rename("P", "Q")
    at_b = lambda b: b.append("P/C", "n")
    wanted = folders(Q="p", Q__C="c, n", Q__C__D="d")


@row
class delete_rename:
    """DELETE F A || RENAME F G B"""
    before = lambda a: [a.create("F"), a.append("F", "m")]
    at_a = lambda a: a.delete("F")
    at_b = lambda b: b.rename("F", "G")
    wanted = folders(G="")


@row
class rename_swap:
    """RENAME F T, G F, T G (swap) A || append to F B"""
    before = lambda a: [a.create("F"), a.append("F", "f"), a.create("G"), a.append("G", "g")]
    at_a = lambda a: [a.rename("F", "T"), a.rename("G", "F"), a.rename("T", "G")]
    at_b = lambda b: b.append("F", "n")
    wanted = folders(F="g", G="f, n")
    journal = False     # there a name is one folder's for ever


@row
class rename_inbox:
    """RENAME INBOX X A || delivery B"""
    before = lambda a: a.append("INBOX", "m")
    at_a = lambda a: a.rename("INBOX", "X")
    at_b = lambda b: b.deliver("n")
    wanted = folders(INBOX="n", X="m")
    journal = False     # there a rename keeps the folder, and this one makes X of the mails of INBOX
    storages = ("sdbox", "mdbox")       # Dovecot refuses it on Maildir


@row
class parent_child:
    """DELETE P A || CREATE P/C, a mail B"""
    before = lambda a: [a.create("P"), a.append("P", "p")]
    at_a = lambda a: a.delete("P")
    at_b = lambda b: [b.create("P/C"), b.append("P/C", "c")]
    wanted = folders(P__C="c")


@row
class names:
    """folders with a space, a quote, umlauts, a tilde and a dot A || others B"""
    at_a = lambda a: [a.create("Ä ö"), a.append("Ä ö", "x"), a.create('q"uote'), a.append('q"uote', "q"), a.create("日本/語"),
                      a.append("日本/語", "j")]
    at_b = lambda b: [b.create("a&b"), b.append("a&b", "y"), b.create("50% off"), b.append("50% off", "z")]
    wanted = dict(folders(), **{"Ä ö": shown("x"), 'q"uote': shown("q"), "日本/語": shown("j"), "a&b": shown("y"), "50% off": shown("z")})


@row
class subscriptions:
    """SUBSCRIBE F, UNSUBSCRIBE G A || SUBSCRIBE H, UNSUBSCRIBE then SUBSCRIBE G B"""
    before = lambda a: [a.create("F"), a.create("G"), a.create("H"), a.subscribe("G")]
    at_a = lambda a: [a.subscribe("F"), a.subscribe("G", on=False)]
    at_b = lambda b: [b.subscribe("H"), b.subscribe("G", on=False), b.subscribe("G")]
    wanted = folders(F="", G="", H="")


# -- annotations, rights, scripts ----------------------------------------------------------------------------------------

@row
class metadata:
    """METADATA: one key at A, another at B; a third at both"""
    before = lambda a: [a.create("F"), a.annotate("F", "/private/comment", "first")]
    at_a = lambda a: [a.annotate("INBOX", "/private/vendor/vendor.dovelane/a", "of a"), a.annotate("F", "/private/comment", "a says")]
    at_b = lambda b: [b.annotate("INBOX", "/private/vendor/vendor.dovelane/b", "of b"), b.annotate("F", "/private/comment", "b says")]
    wanted = folders(F="")
    look = lambda site: site.annotations("INBOX", "F")
    found = [{("INBOX", "/private/vendor/vendor.dovelane/a"): "of a", ("INBOX", "/private/vendor/vendor.dovelane/b"): "of b",
              ("F", "/private/comment"): text} for text in ("a says", "b says")]


@row
class metadata_removed:
    """METADATA: a key removed A || another set, a third set shared B"""
    before = lambda a: [a.create("F"), a.annotate("F", "/private/comment", "first"), a.annotate("F", "/shared/comment", "for all")]
    at_a = lambda a: a.annotate("F", "/private/comment", None)
    at_b = lambda b: [b.annotate("F", "/private/vendor/vendor.dovelane/b", "of b"), b.annotate("F", "/shared/comment", "for each")]
    wanted = folders(F="")
    look = lambda site: site.annotations("F")
    found = {("F", "/private/vendor/vendor.dovelane/b"): "of b", ("F", "/shared/comment"): "for each"}


@row
class metadata_renamed:
    """METADATA set on F A || RENAME F G B"""
    before = lambda a: [a.create("F"), a.append("F", "m")]
    at_a = lambda a: a.annotate("F", "/private/comment", "mine")
    at_b = lambda b: b.rename("F", "G")
    wanted = folders(G="m")
    look = lambda site: site.annotations("G")
    found = {("G", "/private/comment"): "mine"}


@row
class acl_acl:
    """SETACL F bob A || SETACL F carol B"""
    before = lambda a: [a.create("F"), a.append("F", "m")]
    at_a = lambda a: a.grant("F", "bob", "lr")
    at_b = lambda b: b.grant("F", "carol", "lrs")
    wanted = folders(F="m")
    look = lambda site: site.rights("F")
    found = {"bob": "lr", "carol": "lrs"}


@row
class acl_same:
    """SETACL F bob lr A || SETACL F bob lrsw B"""
    before = lambda a: a.create("F")
    at_a = lambda a: a.grant("F", "bob", "lr")
    at_b = lambda b: b.grant("F", "bob", "lrsw")
    wanted = folders(F="")
    look = lambda site: site.rights("F")
    found = [{"bob": "lr"}, {"bob": "lrsw"}]


@row
class acl_removed:
    """DELETEACL F bob A || SETACL F carol B"""
    before = lambda a: [a.create("F"), a.grant("F", "bob", "lr"), a.grant("F", "dave", "lrs")]
    at_a = lambda a: a.grant("F", "bob", "")
    at_b = lambda b: b.grant("F", "carol", "l")
    wanted = folders(F="")
    look = lambda site: site.rights("F")
    found = {"carol": "l", "dave": "lrs"}


@row
class sieve_sieve:
    """a Sieve script made active A || another one put B"""
    at_a = lambda a: a.script("mine", 'require "fileinto";\nfileinto "A";', active=True)
    at_b = lambda b: b.script("other", "keep;")
    wanted = folders()
    look = lambda site: site.scripts()
    found = {"mine": 'require "fileinto";\nfileinto "A";', "other": "keep;", "active": "mine"}


@row
class sieve_changed:
    """one Sieve script changed A || the same changed otherwise B"""
    before = lambda a: a.script("mine", "keep;", active=True)
    at_a = lambda a: a.script("mine", "keep; # a")
    at_b = lambda b: b.script("mine", "keep; # b")
    wanted = folders()
    look = lambda site: site.scripts()
    found = [{"mine": "keep; # a", "active": "mine"}, {"mine": "keep; # b", "active": "mine"}]


@row
class sieve_active:
    """script 1 made active A || script 2 made active B"""
    before = lambda a: [a.script("one", "keep; # 1"), a.script("two", "keep; # 2"), a.script("three", "keep; # 3", active=True)]
    at_a = lambda a: a.script_active("one")
    at_b = lambda b: b.script_active("two")
    wanted = folders()
    look = lambda site: site.scripts()
    found = [{"one": "keep; # 1", "two": "keep; # 2", "three": "keep; # 3", "active": name} for name in ("one", "two")]


@row
class sieve_deleted:
    """a Sieve script deleted A || another changed B"""
    before = lambda a: [a.script("one", "keep; # 1", active=True), a.script("two", "keep; # 2"), a.script("three", "keep; # 3")]
    at_a = lambda a: a.script_delete("two")
    at_b = lambda b: b.script("three", "keep; # new")
    wanted = folders()
    look = lambda site: site.scripts()
    found = {"one": "keep; # 1", "three": "keep; # new", "active": "one"}


# -- behind Dovecot's back -----------------------------------------------------------------------------------------------

@row
class maildir_outside:
    """another program delivers, flags and removes files of A's Maildir"""
    before = lambda a: [a.append("INBOX", "m"), a.append("INBOX", "n"), a.append("INBOX", "o")]
    at_a = lambda a: [a.maildir_drop("x"), a.maildir_flag("m", "F"), a.maildir_unlink("n")]
    wanted = folders(INBOX="m \\flagged, o, x")
    storages = ("maildir",)
    journal = False     # nobody is answered


@row
class force_resync:
    """doveadm force-resync at A after an expunge || append B"""
    before = lambda a: [a.append("INBOX", "m", "kw"), a.append("INBOX", "n", FLAGGED)]
    at_a = lambda a: [a.expunge("INBOX", "m"), a.close(), a.replica.doveadm("force-resync", "-u", a.user, "*")]
    at_b = lambda b: b.append("INBOX", "y")
    wanted = folders(INBOX="n \\flagged, y")


@row
class uidnext_far:
    """A's UIDNEXT is 4294967200 (a claim no peer may follow), append A || append B"""
    before = lambda a: [a.append("INBOX", "m"), a.create("F"), a.append("F", "f")]
    at_a = lambda a: [a.close(), a.replica.doveadm("mailbox", "update", "-u", a.user, "--min-next-uid", "4294967200", "F"),
                      a.append("F", "x")]
    at_b = lambda b: b.append("F", "y")
    after = lambda a, b: b.append("F", "z")
    wanted = folders(INBOX="m", F="f, x, y, z")


@row
class large:
    """a mail of 12 MB A || one of 3 MB B"""
    at_a = lambda a: a.append("INBOX", "x", size=12 << 20)
    at_b = lambda b: b.append("INBOX", "y", size=3 << 20)
    wanted = folders(INBOX="x, y")


@row
class huge:
    """a mail of 25 MB A || its copy, flagged, expunged in INBOX A"""
    at_a = lambda a: [a.append("INBOX", "x", size=25 << 20), a.create("F"), a.copy("INBOX", "x", "F"), a.flag("F", "x", "+", FLAGGED),
                      a.expunge("INBOX", "x")]
    at_b = lambda b: b.append("INBOX", "y", size=(1 << 20) + 1)
    wanted = folders(INBOX="y", F="x \\flagged")
