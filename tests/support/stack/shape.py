"""What a stack consists of: the options of `stack up`, as values that tests can build too."""
import argparse
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from .failure import StackError

REPOSITORY = Path(__file__).resolve().parents[3]
POSTFIX = ("stock", "divert", "proxy", "discard", "swallow", "none")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}\Z")


@dataclass
class SinkShape:
    """A next hop that swallows mail: smtp-sink, or (ours) the Python sink that records ids."""
    name: str
    options: list = field(default_factory=list)
    ours: bool = False

    @classmethod
    def parse(cls, text, ours=False):
        name, _, rest = text.partition(":")
        if not NAME.match(name):
            raise StackError(f"sink name {name!r}: small letters, digits and '-', at most 16")
        return cls(name, shlex.split(rest), ours)

    @property
    def protocol(self):
        """lmtp or smtp. smtp-sink speaks LMTP with -L; ours when its options say `lmtp`."""
        if self.ours:
            return "lmtp" if "lmtp" in self.options else "smtp"
        return "lmtp" if any(word.startswith("-") and "L" in word for word in self.options) else "smtp"


@dataclass
class Shape:
    """One stack. `maps` gives a domain its destination: a sink's name, `dovecot`, `dovecot-unix`, or transport:nexthop.

    Without a map, example.org goes to Dovecot, and NAME.example to the sink NAME. `divert` lists what the milter diverts, by
    the same names; None means every mapped destination. secure: the programs reach the nodes by TLS and as their own users (the tests go
    on as the default user, without). paths: each node has a standby address, too, and links (links.py) mx1-active, mx1-standby ... lead there.

    `takeover` is manual here: most tests say themselves who is dead, and store mail without relays that would beat. Of the command
    (`stack up`) it is the default of the programs.
    """
    postfix: str = "stock"
    nodes: int = None
    relays: bool = True
    policy: str = "queue"
    copies: int = None
    takeover: str = "manual"
    dovecot: bool = False
    sinks: list = field(default_factory=list)
    maps: dict = field(default_factory=dict)
    divert: list = None
    settings: dict = field(default_factory=dict)
    postconf: dict = field(default_factory=dict)
    redis_conf: list = field(default_factory=list)
    maxmemory: str = "512mb"
    sessions: int = 100
    queue_tmpfs: bool = False
    build: Path = None
    redis_server: str = None
    secure: bool = False
    paths: bool = False
    labels: dict = field(default_factory=dict)  # of a node: {"mx1": {"site": "fra"}}

    def __post_init__(self):
        if self.postfix not in POSTFIX:
            raise StackError(f"postfix {self.postfix!r}: one of {', '.join(POSTFIX)}")
        if self.policy not in ("queue", "tempfail"):
            raise StackError(f"policy {self.policy!r}: queue or tempfail")
        if self.nodes is None:
            self.nodes = 2 if self.postfix in ("divert", "proxy") else 0
        if not 0 <= self.nodes <= 16:
            raise StackError(f"nodes {self.nodes}: 0 to 16")
        if self.takeover not in ("manual", "automatic"):
            raise StackError(f"takeover {self.takeover!r}: manual or automatic")
        if self.postfix in ("divert", "proxy") and self.nodes == 0:
            raise StackError(f"--postfix {self.postfix} needs at least one node")
        if self.copies is None:
            self.copies = max(1, min(2, self.nodes))
        self.sinks = [sink if isinstance(sink, SinkShape) else SinkShape.parse(sink) for sink in self.sinks]
        names = [sink.name for sink in self.sinks]
        if len(set(names)) != len(names) or {"dovecot", "dovecot-unix"} & set(names):
            raise StackError(f"sink names must differ, and not be dovecot: {', '.join(names)}")
        self.build = Path(self.build or os.environ.get("DOVELANE_BUILD") or REPOSITORY / "build").resolve()
        self.redis_server = self.redis_server or os.environ.get("DOVELANE_REDIS_SERVER") or "redis-server"

    def domains(self):
        """Domain to destination name, with the defaults filled in."""
        domains = dict(self.maps)
        mapped = set(domains.values())
        if self.dovecot and not mapped & {"dovecot", "dovecot-unix"}:
            domains.setdefault("example.org", "dovecot")
        for sink in self.sinks:
            if sink.name not in mapped:
                domains.setdefault(f"{sink.name}.example", sink.name)
        return domains


def pair(text):
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected name=value")
    return name, value


def add_arguments(parser):
    """The options of `stack up`."""
    parser.add_argument("--postfix", choices=POSTFIX, default="stock",
                        help="stock: relays from its disk queue. divert: with dovelane-milter. proxy: with dovelane-proxy. discard: with a milter that "
                             "discards all. swallow: with a smtp-sink for a proxy. none: no Postfix (default: %(default)s)")
    parser.add_argument("--nodes", type=int, metavar="N", help="Redis and relay each, mx1.. (default: 2 with divert, else 0)")
    parser.add_argument("--relays", action=argparse.BooleanOptionalAction, default=True, help="start the nodes' relays")
    parser.add_argument("--policy", choices=("queue", "tempfail"), default="queue", help="on_store_failure")
    parser.add_argument("--takeover", choices=("manual", "automatic"), default="automatic",
                        help="who says that a node is dead (default: %(default)s)")
    parser.add_argument("--copies", type=int, metavar="N", help="default: 2, or 1 with one node")
    parser.add_argument("--dovecot", action="store_true", help="a Dovecot with LMTP (TCP, UNIX) and IMAP for any user@example.org")
    parser.add_argument("--sink", action="append", default=[], metavar="NAME[:OPTIONS]", help="smtp-sink, with its own options")
    parser.add_argument("--pysink", action="append", default=[], metavar="NAME[:lmtp]",
                        help="the sink that records ids and can be told to fail")
    parser.add_argument("--map", action="append", default=[], type=pair, metavar="DOMAIN=DESTINATION",
                        help="transport_maps: a sink's name, dovecot, dovecot-unix, or transport:nexthop")
    parser.add_argument("--divert", action="append", metavar="DESTINATION", help="what is diverted (default: all that is mapped)")
    parser.add_argument("--set", action="append", default=[], type=pair, metavar="NAME=VALUE", help="a line of dovelane.conf")
    parser.add_argument("--postconf", action="append", default=[], type=pair, metavar="NAME=VALUE", help="a line of main.cf")
    parser.add_argument("--redis-conf", action="append", default=[], metavar="LINE", help="a line of every redis.conf")
    parser.add_argument("--secure", action="store_true", help="the programs speak TLS with the nodes, each as its own user")
    parser.add_argument("--paths", action="store_true", help="each node has an active and a standby address, both behind links that can be cut")
    parser.add_argument("--maxmemory", default="512mb", help="of each Redis (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=100, metavar="N", help="SMTP sessions Postfix has processes for")
    parser.add_argument("--queue-dir-tmpfs", action="store_true", help="Postfix's queue directory in /dev/shm")
    parser.add_argument("--build", type=Path, help="build directory (default: $DOVELANE_BUILD, or build/)")
    parser.add_argument("--redis-server", help="the server program (default: $DOVELANE_REDIS_SERVER, or redis-server)")


def from_arguments(arguments):
    return Shape(
        postfix=arguments.postfix, nodes=arguments.nodes, relays=arguments.relays, policy=arguments.policy,
        copies=arguments.copies, takeover=arguments.takeover, dovecot=arguments.dovecot,
        sinks=[SinkShape.parse(text) for text in arguments.sink] + [SinkShape.parse(text, ours=True) for text in arguments.pysink],
        maps=dict(arguments.map), divert=arguments.divert, settings=dict(arguments.set), postconf=dict(arguments.postconf),
        redis_conf=arguments.redis_conf, maxmemory=arguments.maxmemory, sessions=arguments.sessions,
        queue_tmpfs=arguments.queue_dir_tmpfs, build=arguments.build, redis_server=arguments.redis_server,
        secure=arguments.secure, paths=arguments.paths)
