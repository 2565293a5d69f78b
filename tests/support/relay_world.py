"""Nodes with relays, next hops under the test's control, and mails stored without a milter."""
import re
import signal
from pathlib import Path

from support import envelope
from support.relay_peer import Peer
from support.stack import lanes, programs, resp
from support.waiting import eventually, logged


def timeouts(value):
    """Settings: how long a next hop may take for anything."""
    return {f"smtp_{phase}_timeout": value for phase in
            ("connect", "helo", "starttls", "xforward", "mail", "rcpt", "data_init", "data_xfer", "data_done", "rset")}


QUICK = {"retry_first": "200ms", "retry_most": "400ms", "settle": "1300ms", "store_deadline": "600ms", "max_entry": "1MB", "log_level": "debug",
         **timeouts("5s")}
BODY = b"Received: from x by y\r\nSubject: test\r\n\r\nhello\r\n"


class World:
    def __init__(self, start, tmp_path, nodes=2, relays=("mx1", "mx2"), shape=None, **settings):
        self.tmp_path, self.peers = tmp_path, []
        self.bounce = self.peer() if settings.pop("bounce", False) else None
        if self.bounce:
            settings["bounce_port"] = f"127.0.0.1:{self.bounce.port}"
        self.stack = start(postfix="none", nodes=nodes, relays=False, settings={**QUICK, **settings}, **(shape or {}))
        self.connections = {node: resp.Connection(address, timeout=30) for node, address in self.stack.nodes.items()}
        for node in relays:
            if node in self.connections:
                self.stack.start(f"relay-{node}")

    def end(self):
        for peer in self.peers:
            peer.end()
        for connection in self.connections.values():
            connection.close()

    def peer(self, **options):
        self.peers.append(Peer(**options))
        return self.peers[-1]

    # -- lanes ---------------------------------------------------------------------------------------------------------------

    def lane(self, peer, owners=("mx1", "mx2"), of_class=None):
        destination = peer if isinstance(peer, str) else peer.destination
        return f"dovelane:{destination}|" + ">".join(owners) + (f"|+{of_class}" if of_class else "")

    def store(self, peer, *recipients, body=BODY, owners=("mx1", "mx2"), copies=None, meta=None, name=None, **texts):
        """One entry in the lane of the peer, on every owner that is a node here (or on `copies`). Its id."""
        name = name or envelope.entry_id()
        meta = meta or envelope.encode(recipients or ["b@example.net"], size=len(body), **texts)
        self.push_everywhere(copies or owners, self.lane(peer, owners), (name, meta, body))
        return name

    def push_everywhere(self, owners, lane, *entries):
        """On all that are nodes here. The first owner, who delivers, comes last: on a busy machine its record of an attempt would be at the others before the entry is."""
        for node in reversed(owners):
            if node in self.connections:
                self.push(node, lane, *entries)

    def push(self, node, lane, *entries):
        words = [word for name, meta, body in entries for word in (1, name, meta, body)]
        return self.connections[node].call("LANE.PUSH", 1, lane, "ENTRIES", len(entries), *words)

    def length(self, node):
        return sum(count for count, _ in lanes.names(self.connections[node]).values())

    def entries(self, node):
        return list(lanes.entries(node, self.stack.nodes[node]))

    def empty(self, *nodes):
        for node in nodes or self.connections:
            eventually(f"{node} has no entries", lambda node=node: self.length(node) == 0)

    def states(self, node):
        """Recipient to (state, attempts) of the only entry on a node."""
        entry, = self.entries(node)
        return {r.address: (r.state, r.attempts) for r in entry.envelope["recipients"]}

    # -- relays --------------------------------------------------------------------------------------------------------------

    def relay(self, node="mx1"):
        return self.stack[f"relay-{node}"]

    def log(self, node="mx1"):
        return Path(self.relay(node).log).read_text(errors="replace")

    def logged(self, pattern, node="mx1", times=1, seconds=240):
        """Waits for so many lines of a relay's log that match."""
        return logged(self.relay(node).log, pattern, times, seconds)

    def count(self, pattern, node="mx1"):
        return len(re.findall(pattern, self.log(node)))

    def configure(self, node="mx1", hangup=True, **settings):
        programs.write_settings(self.relay(node), settings)
        if hangup:
            self.relay(node).send(signal.SIGHUP)
