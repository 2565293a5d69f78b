"""Sites whose mailboxes are laid out in different ways, and what a client makes of names there.

A name is a tuple of components, so that the same one can be asked for at sites with other
separators.
"""
import re
import shutil

from support import worker_world
from worker_sites import make_world
from support.frames import CLOSE
from support.stack import dovecot
from support.worker_world import USER

# Storage, separator, further settings of 2.3 and of 2.4.
KINDS = {
    "sdbox": ("sdbox", "/", "", ""),
    "sdbox.": ("sdbox", ".", "", ""),
    "mdbox": ("mdbox", "/", "", ""),
    "maildir": ("maildir", "/", "", ""),
    "maildir.": ("maildir", ".", "", ""),
    "fs": ("maildir", "/", "mail_location = maildir:~/Maildir:LAYOUT=fs\n",
           "mailbox_list_layout = fs\n"),
    "escape": ("sdbox", "/", "mail_plugins = listescape\n",
               "mailbox_list_storage_escape_char = \"\\\\\"\n"),
    "escape.": ("maildir", "/", "mail_plugins = listescape\n",
                "mailbox_list_storage_escape_char = \"\\\\\"\n"),
}


def settings(kind):
    _, sep, old, new = KINDS[kind]
    return (new if dovecot.version() >= (2, 4) else old) + (
        f"namespace inbox {{\n  separator = {sep}\n}}\n" if sep != "/" else "")


def names_world(tmp_path_factory, *kinds, crash=None):
    world = make_world(tmp_path_factory, [KINDS[kind][0] for kind in kinds], crash,
                       more={n: settings(kind) for n, kind in enumerate(kinds, 1)})
    for site, kind in zip(world.sites.values(), kinds):
        site.sep = KINDS[kind][1]
    stop = world.stop

    def stop_all():
        worker_world.USER = USER
        stop()
    world.stop = stop_all
    return world


def another_user(world, name):
    """From now on all is his, until this world is stopped; one at a time."""
    for site in world.sites.values():
        if site.opened:
            site.work(CLOSE)
        site.done, site.notes, site.joins, site.to_ask = {}, [], False, set()
        for lane in site.outbox.values():
            lane.clear()
    worker_world.USER = f"{name}@example.org"
    with Client(world[1]) as client:    # its UIDVALIDITY is everybody's
        client.box.select("INBOX")
    world.settle()


class Refused(Exception):
    """The server answered NO."""


class Client:
    """A session that has the plugin's journal written for it."""

    def __init__(self, site):
        self.site, self.box = site, site.imap()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.box.logout()

    def quoted(self, name):
        return '"' + self.site.sep.join(name).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def ask(self, command, *args):
        ok, said = getattr(self.box, command)(*args)
        if ok != "OK":
            raise Refused(f"{command} {args}: {said}")
        return said

    def create(self, name):
        self.ask("create", self.quoted(name))

    def rename(self, name, to):
        self.ask("rename", self.quoted(name), self.quoted(to))

    def delete(self, name):
        said = self.ask("status", self.quoted(name), "(X-GUID)")[0].decode()
        guid = re.search(r"X-GUID ([0-9a-f]{32})", said)[1]
        path = self.site.state() / "intents"
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"D\t{guid}\t{self.site.sep.join(name)}\n")
        shutil.chown(path, "nobody", "nogroup")
        try:
            self.ask("delete", self.quoted(name))
        except Refused:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"x\t{guid}\n")
            raise

    def append(self, name, subject):
        mail = f"From: a@example.org\r\nSubject: {subject}\r\n\r\nhello {subject}\r\n".encode()
        ok, said = self.box.append(self.quoted(name), None, None, mail)
        if ok != "OK":
            raise Refused(f"append {name}: {said}")

    def append_to(self, name):
        self.append(name, "more")

    def names(self, command="list"):
        """{name: whether it can be selected}; or, with "lsub", of what is subscribed."""
        found = {}
        for line in filter(None, self.ask(command)):
            attributes, name = re.match(rb'\((.*?)\) (?:"(?:\\.|[^"\\])*"|NIL) (.*)', line).groups()
            name = name.decode()
            if name.startswith('"'):
                name = re.sub(r"\\(.)", r"\1", name[1:-1])
            dead = {b"\\noselect", b"\\nonexistent"} & {a.lower() for a in attributes.split()}
            found[tuple(name.split(self.site.sep))] = not dead
        return found

    def mails(self, name):
        """(UIDVALIDITY, [(UID, subject)])"""
        count = int(self.ask("select", self.quoted(name), True)[0])
        validity = int(self.box.response("UIDVALIDITY")[1][0])
        asked = "(UID BODY.PEEK[HEADER.FIELDS (SUBJECT)])"
        parts = self.ask("fetch", "1:*", asked) if count else []
        return validity, [(int(re.search(rb"UID (\d+)", head)[1]),
                           text.decode().partition(":")[2].strip())
                          for head, text in (part for part in parts if isinstance(part, tuple))]


def shown(site):
    """{name: (UIDVALIDITY, [(UID, subject)])} of what can be selected."""
    found = {}
    with Client(site) as client:
        for name in (name for name, can in client.names().items() if can):
            try:
                found[name] = client.mails(name)
            except Refused as refused:
                # Dovecot's list index, stock: a Maildir++ that was deleted is listed as one that
                # can be selected while it has children.
                if site.format != "maildir" or "doesn't exist" not in str(refused):
                    raise
    return found


def subjects_of(found):
    return {name: sorted(subject for _, subject in mails) for name, (_, mails) in found.items()}


def differences(world):
    """What the sites do not show alike, in words."""
    first, *others = [shown(site) for site in world.sites.values()]
    told = []
    for n, other in enumerate(others, 2):
        told += [f"{'/'.join(name)}: site 1 {first.get(name)}, site {n} {other.get(name)}"
                 for name in sorted(set(first) | set(other)) if first.get(name) != other.get(name)]
    for site in world.sites.values():
        said = site.admin("verify", "bodies")
        if said[-1] != "verdict\tsame":
            told.append(f"site {site.number}: {said}")
    if len({site.admin("verify")[0] for site in world.sites.values()}) > 1:
        told.append("the digests differ")
    return told


def same(world):
    told = differences(world)
    assert not told, "\n".join(told)
    return subjects_of(shown(world[1]))
