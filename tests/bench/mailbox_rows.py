"""The operations of the bench `mailbox`: those of Isode's M-Store X.400 benchmark (2007), with
IMAP, LMTP and submission in the place of P7 and P3.

Each is a generator. Up to its first yield it prepares. Then it does a part of its work each time,
and yields the number of operations. Behind the last part it puts back what the next one expects.
A mailbox keeps its size: what is delivered is removed, what is deleted was put there before.
"""
import contextlib
import threading
from dataclasses import dataclass
from typing import Callable

from mailbox_sites import SENDER
from replicas import mail, multi_append

LISTED = "(UID FLAGS INTERNALDATE RFC822.SIZE)"
SUMMARY = "(UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)"
CACHE = "dovecot.index.cache"
LARGE = 200 * 1024
ALERTED = 10 # clients that wait


@dataclass
class Row:
    """One line of the table. paper: what M-Store did in a second in 2007, where that is known."""
    name: str
    steps: Callable
    paper: str = ""
    needs: str = ""     # a program of Dovecot that may be missing


def each_at_once(tasks):
    """Runs the functions side by side; the first error is raised here."""
    errors = []

    def guarded(task):
        try:
            task()
        except Exception as error:      # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def parts(work, options):
    """The work in so many parts, each of at least one item."""
    size = -(-len(work) // options.parts)
    return [work[at:at + size] for at in range(0, len(work), size)]


def together(sessions, work, options, do):
    """Parts of each session's work, done by all sessions at once; yields how much was done."""
    for turn in zip(*(parts(items, options) for items in work)):
        each_at_once([lambda pair=pair: [do(pair[0], item) for item in pair[1]]
                      for pair in zip(sessions, turn)])
        yield sum(map(len, turn))


def shared(count, clients):
    """How many operations each client does; at least one."""
    return max(1, count // clients)


def marks_of(site, users):
    """User to the UID from which on what comes now is found."""
    found = {}
    for user in users:
        with contextlib.closing(site.session(user)) as session:
            found[user] = session.next_uid()
            session.logout()
    return found


def put_back(site, marks):
    """Removes what came since."""
    for user, mark in marks.items():
        with contextlib.closing(site.session(user)) as session:
            session.remove(f"UID {mark}:*")
            session.logout()


# -- delivery ------------------------------------------------------------------------------------

def deliver(site, options, boxes, size=None):
    """By one connection, one recipient a mail, to so many mailboxes by turns."""
    users = site.users[:boxes]
    count = options.deliveries if size is None else options.deliveries // 4
    marks = marks_of(site, users)
    mails = [mail(f"d{n}", size or options.size) for n in range(max(1, count))]
    with contextlib.closing(site.lmtp()) as lmtp:
        yield
        for part in parts(list(enumerate(mails)), options):
            for n, data in part:
                lmtp.sendmail(SENDER, [users[n % len(users)]], data)
            yield len(part)
    put_back(site, marks)


# -- lists ---------------------------------------------------------------------------------------

def ranges(uids):
    """A set for a command: 1:3,5."""
    parts = []
    for uid in uids:
        if parts and parts[-1][1] == uid - 1:
            parts[-1][1] = uid
        else:
            parts.append([uid, uid])
    return ",".join(f"{first}:{last}" if first != last else str(first) for first, last in parts)


def listing(site, options, what, unread=False, cached=True):
    """Each of ten mailboxes by a session; an operation is a mail listed. Not cached: without
    Dovecot's cache file, so that it opens each mail."""
    users = site.full[:10]

    def look(session):
        found = session.uids("UNSEEN") if unread else None
        session.drain(f"UID FETCH {'1:*' if found is None else ranges(found)} {what}")
        return len(session.uids("ALL")) if found is None else len(found)

    with site.sessions(users) as sessions:
        for user, session in zip(users, sessions):
            if not cached:
                for path in site.replica.store(user).rglob(CACHE):
                    path.unlink()
            session.one("SELECT INBOX")
            if cached:
                look(session)
        yield
        for part in parts(sessions, options):
            yield sum(look(session) for session in part)


# -- fetch and delete ----------------------------------------------------------------------------

def fetch_one(session, uid):
    session.one(f"UID FETCH {uid} BODY[]")


def fetch(site, options, clients, unread):
    """One mail after the other, each client in a mailbox of its own. An unread one is read then."""
    each = shared(options.fetches, clients)
    with site.sessions(site.full[:clients]) as sessions:
        work = []
        for session in sessions:
            session.one("SELECT INBOX")
            work.append(session.uids("UNSEEN" if unread else "SEEN")[:each])

        yield
        yield from together(sessions, work, options, fetch_one)
        if unread:
            for session, uids in zip(sessions, work):
                session.one(f"UID STORE {ranges(uids)} -FLAGS.SILENT (\\Seen)")


def delete_one(session, uid):
    session.one(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
    session.one(f"UID EXPUNGE {uid}")


def delete(site, options, clients, size=None):
    """One mail after the other: marked as deleted, expunged."""
    each = shared(options.deletes if size is None else options.deletes // 4, clients)
    with site.sessions(site.full[:clients]) as sessions:
        work = []
        for session in sessions:
            session.one("SELECT INBOX")
            first = session.next_uid()
            mails = [mail(f"x{n}", size or options.size) for n in range(each)]
            multi_append(session, "INBOX", mails)
            session.one("NOOP")
            work.append(session.uids(f"UID {first}:*"))

        yield
        yield from together(sessions, work, options, delete_one)


def fetch_large(site, options):
    """Fetch of mails of 200 kB, all of one mailbox."""
    with site.sessions(site.full[:1]) as (session,):
        session.one("SELECT INBOX")
        first, count = session.next_uid(), shared(options.fetches, 10)
        multi_append(session, "INBOX", [mail(f"g{n}", LARGE) for n in range(count)], 20)
        session.one("NOOP")
        uids = session.uids(f"UID {first}:*")
        yield
        for part in parts(uids, options):
            for uid in part:
                session.drain(f"UID FETCH {uid} BODY.PEEK[]")
            yield len(part)
        session.remove(f"UID {first}:*")


# -- submission ----------------------------------------------------------------------------------

def submit(site, options, clients, copied):
    """By Dovecot's submission service; with a copy, the client puts the mail into Sent, too."""
    users, data = site.full[:clients], mail("s", options.size)
    work = [range(shared(options.submissions, clients))] * clients
    with site.sessions(users if copied else []) as sessions, contextlib.ExitStack() as stack:
        senders = [stack.enter_context(contextlib.closing(site.submission(user))) for user in users]

        def send(number, _):
            senders[number].sendmail(SENDER, ["to@bench.example"], data)
            if copied:
                sessions[number].one("APPEND Sent (\\Seen)", data)

        yield
        yield from together(range(clients), work, options, send)
        for session in sessions:
            session.remove("ALL", "Sent")


# -- whole sessions ------------------------------------------------------------------------------

def one_visit(site, user, mark):
    session = site.session(user)
    session.one("SELECT INBOX")
    for uid in session.uids(f"UID {mark}:* UNSEEN"):
        fetch_one(session, uid)
        delete_one(session, uid)
    session.logout()


def periodic(site, options, empty):
    """A mail comes; a client logs in, lists what is new, fetches and deletes it, and logs out. By
    turns in ten mailboxes."""
    users = site.empty if empty else site.full[:10]
    marks, data = marks_of(site, users), mail("p", options.size)
    with contextlib.closing(site.lmtp()) as lmtp:
        yield
        for part in parts(range(options.sessions), options):
            for n in part:
                user = users[n % len(users)]
                lmtp.sendmail(SENDER, [user], data)
                one_visit(site, user, marks[user])
            yield len(part)


def alert(site, options):
    """Ten clients wait (IDLE); a mail comes to each, and each fetches its own when it is told."""
    users = site.full[:ALERTED]
    turns = shared(options.sessions, 2 * len(users))
    marks, data = marks_of(site, users), mail("a", options.size)
    with site.sessions(users) as sessions, contextlib.closing(site.lmtp()) as lmtp:
        for session in sessions:
            session.one("SELECT INBOX")
        yield
        for turn in range(turns):       # each is a part: a turn takes Dovecot half a second
            for session in sessions:
                session.idle()
            for user in users:
                lmtp.sendmail(SENDER, [user], data)
            for user, session in zip(users, sessions):
                session.until(b" EXISTS")
                session.done()
                session.one(f"UID FETCH {marks[user] + turn}:* BODY[]")
            yield len(users)
    put_back(site, marks)


ROWS = {
    "deliver": [
        Row("deliver to 1 mailbox", lambda s, o: deliver(s, o, 1), "83"),
        Row("deliver to 10 mailboxes", lambda s, o: deliver(s, o, 10), "83"),
        Row("deliver to 100 mailboxes", lambda s, o: deliver(s, o, 100))],
    "list": [
        Row("list all", lambda s, o: listing(s, o, LISTED), "2,248 to 3,459"),
        Row("list all, not cached", lambda s, o: listing(s, o, LISTED, cached=False)),
        Row("list unread", lambda s, o: listing(s, o, LISTED, unread=True), "2,762"),
        Row("list unread, not cached", lambda s, o: listing(s, o, LISTED, True, False)),
        Row("summarise", lambda s, o: listing(s, o, SUMMARY), "5,396"),
        Row("summarise, not cached", lambda s, o: listing(s, o, SUMMARY, cached=False))],
    "fetch": [
        Row("fetch read, 1 client", lambda s, o: fetch(s, o, 1, False), "485"),
        Row("fetch read, 10 clients", lambda s, o: fetch(s, o, 10, False), "1,188"),
        Row("fetch unread, 1 client", lambda s, o: fetch(s, o, 1, True), "155"),
        Row("fetch unread, 10 clients", lambda s, o: fetch(s, o, 10, True), "294")],
    "delete": [
        Row("delete, 1 client", lambda s, o: delete(s, o, 1), "631"),
        Row("delete, 10 clients", lambda s, o: delete(s, o, 10))],
    "submit": [
        Row("submit, 1 client", lambda s, o: submit(s, o, 1, False), needs="submission"),
        Row("submit, 10 clients", lambda s, o: submit(s, o, 10, False), needs="submission"),
        Row("submit with a copy, 1 client", lambda s, o: submit(s, o, 1, True), "188",
            "submission"),
        Row("submit with a copy, 10 clients", lambda s, o: submit(s, o, 10, True), "166",
            "submission")],
    "session": [
        Row("periodic fetch, large mailbox", lambda s, o: periodic(s, o, False), "14.8"),
        Row("periodic fetch, empty mailbox", lambda s, o: periodic(s, o, True)),
        Row("auto-alert, 10 clients", alert)],
    "large": [
        Row("deliver 200 kB", lambda s, o: deliver(s, o, 1, LARGE)),
        Row("fetch 200 kB", fetch_large),
        Row("delete 200 kB", lambda s, o: delete(s, o, 1, LARGE))],
}
