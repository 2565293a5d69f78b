"""A CONDSTORE and QRESYNC client (RFC 7162), and what it lacks of what a folder has."""
import re


class Client:
    """Keeps a folder's flags by UID, with what it is told alone: RFC 7162's way to come back."""

    def __init__(self, folder="INBOX"):
        self.folder, self.validity = folder, None
        self.modseq, self.uidnext, self.known = 0, 1, {}

    def visit(self, site):
        box = site.imap()
        box._simple_command("ENABLE", "QRESYNC")
        assert box.select(self.folder)[0] == "OK"
        validity = int(box.response("UIDVALIDITY")[1][0])
        if validity != self.validity:  # it loads all again
            self.validity, self.modseq, self.uidnext, self.known = validity, 0, 1, {}
        box._simple_command("CLOSE")
        box.state = "AUTH"
        since = f" (QRESYNC ({validity} {self.modseq} 1:{self.uidnext - 1}))" if self.known else ""
        assert box._simple_command("SELECT", f"{self.folder}{since}")[0] == "OK"
        box.state = "SELECTED"
        told = box.untagged_responses
        gone = set()
        for line in told.get("VANISHED", []):
            for part in re.search(rb"([\d:,]+)$", line)[1].split(b","):
                ends = [int(end) for end in part.split(b":")]
                gone.update(range(ends[0], ends[-1] + 1))
        self.known = {uid: flags for uid, flags in self.known.items() if uid not in gone}
        self.learn(told.get("FETCH", []), self.known)
        highest = int(box.response("HIGHESTMODSEQ")[1][-1])
        uidnext = int(box.response("UIDNEXT")[1][-1])
        _, new = box.uid("FETCH", f"{self.uidnext}:*", "(FLAGS)")
        self.learn(new, None)
        self.modseq, self.uidnext = highest, max(uidnext, self.uidnext)
        box.logout()

    def learn(self, lines, only):
        for line in lines:
            line = line if isinstance(line, bytes) else b" ".join(line) if line else b""
            uid = re.search(rb"UID (\d+)", line)
            flags = re.search(rb"FLAGS \(([^)]*)\)", line)
            if uid and flags and (only is None or int(uid[1]) in only):
                self.known[int(uid[1])] = frozenset(flags[1].split()) - {b"\\Recent"}


def truth(site, folder="INBOX"):
    """{UID: flags}"""
    client = Client()
    box = site.imap()
    box.select(folder, readonly=True)
    client.learn(box.uid("FETCH", "1:*", "(FLAGS)")[1], None)
    box.logout()
    return client.known


def missed(client, site):
    true = truth(site, client.folder)
    return {uid: (client.known.get(uid), true.get(uid))
            for uid in client.known.keys() | true.keys()
            if client.known.get(uid) != true.get(uid)}
