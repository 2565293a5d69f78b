"""Hosts of their own on one machine: a network namespace per node and one for everything else, joined by a bridge.

What happens between hosts is real then: packets that a firewall drops without a word, connections refused from one side, flows that a
firewall forgets while both ends believe in them. Everything lies inside namespaces that end with the processes that hold them: nothing is
left on this machine, and nothing of it is reached. Needs root, and iproute2, iptables, util-linux.
"""
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

from . import process
from .failure import StackError
from .programs import needed, write_settings
from .stack import Stack

NET = "10.77.0"
STANDBY = "10.77.1"  # every host has an address in this network, too
REST = 254  # the last number of the address of what is no node: Postfix, milter, sinks, the test
CLONE_NEWNET = 0x40000000
TOOLS = ("ip", "iptables-restore", "nsenter", "unshare")


def missing():
    """What must be installed, or who one must be, for there to be hosts; None when all is well."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in TOOLS:
        if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            return f"{tool} is not installed: run ./setup test"
    return None


def refused():
    """Why this kernel, or the container this runs in, lets nobody have hosts; None when it does, or when something is missing."""
    if missing():
        return None
    tried = "ip link add hub type bridge && ip link add one type veth peer name other && printf '*filter\n-A INPUT -j DROP\nCOMMIT\n' | iptables-restore"
    done = subprocess.run(["unshare", "--net", "sh", "-c", tried], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return f"no hosts can be made here: {done.stderr.decode(errors='replace').strip()}" if done.returncode else None


class Hosts:
    """Names are those of the nodes, and "rest"."""

    def __init__(self, nodes, mark, log):
        if why := missing() or refused():
            raise StackError(why)
        self.address = {name: f"{NET}.{number}" for number, name in enumerate(nodes, 1)} | {"rest": f"{NET}.{REST}"}
        self.outside = None
        self.holder = {name: process.spawn(["unshare", "--net", "sleep", "infinity"], mark, log) for name in self.address}
        for name, holder in self.holder.items():
            self.wait_made(name, holder)
        self.run("rest", "ip", "link", "add", "hub", "type", "bridge")
        for name in self.address:
            self.run(name, "ip", "link", "set", "lo", "up")
        for name in nodes:
            self.run("rest", "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder[name].pid))
            self.run("rest", "ip", "link", "set", name, "master", "hub", "up")
            self.run(name, "ip", "address", "add", f"{self.address[name]}/24", "dev", "eth0")
            self.run(name, "ip", "address", "add", f"{self.standby(name)}/24", "dev", "eth0")
            self.run(name, "ip", "link", "set", "eth0", "up")
        self.run("rest", "ip", "address", "add", f"{self.address['rest']}/24", "dev", "hub")
        self.run("rest", "ip", "address", "add", f"{self.standby('rest')}/24", "dev", "hub")
        self.run("rest", "ip", "link", "set", "hub", "up")

    def standby(self, name):
        """The host's other address."""
        return self.address[name].replace(NET, STANDBY)

    @staticmethod
    def wait_made(name, holder):
        end = time.monotonic() + 30
        while Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n":
            if time.monotonic() > end:
                raise StackError(f"host {name}: its network namespace was not made within 30 s")
            time.sleep(0.005)

    def inside(self, name):
        """What to write before a command, so that it runs on that host; it becomes the command."""
        return ["nsenter", f"--net=/proc/{self.holder[name].pid}/ns/net", "--"]

    def run(self, name, *command, **options):
        done = subprocess.run([*self.inside(name), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, **options)
        if done.returncode:
            raise StackError(f"host {name}: {' '.join(command)}: {done.stdout.decode(errors='replace').strip()}")
        return done.stdout.decode()

    # -- where this program is -------------------------------------------------------------------------------------------------

    @staticmethod
    def go(path):
        with open(path, "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise StackError(f"setns {path}: {os.strerror(ctypes.get_errno())}")

    def enter(self):
        """From here on this thread, and what it starts, is on the host "rest"."""
        self.outside = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        self.go(f"/proc/{self.holder['rest'].pid}/ns/net")

    def leave(self):
        if self.outside is not None:
            self.go(f"/proc/self/fd/{self.outside}")
            os.close(self.outside)
        self.outside = None

    # -- what happens between hosts ----------------------------------------------------------------------------------------------

    def rules(self, name, *rules):
        """Adds firewall rules on that host, all at once."""
        self.run(name, "iptables-restore", "-n", input="\n".join(["*filter", *rules, "COMMIT\n"]).encode())

    def heal(self):
        for name in self.address:
            self.run(name, "iptables-restore", input=b"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n")

    def cut(self, name, *others):
        """Nothing passes in either direction, and nobody is told."""
        self.rules(name, *(f"-A {chain} {side} {self.address[other]} -j DROP" for other in others for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d"))))

    def cut_path(self, name, port):
        """That port of the host is reached at its other address only, and nobody is told."""
        self.rules(name, f"-A INPUT -i eth0 -d {self.address[name]} -p tcp --dport {port} -j DROP", f"-A OUTPUT -o eth0 -s {self.address[name]} -p tcp --sport {port} -j DROP")

    def refuse(self, opener, to):
        """The one can open no connection to the other any more; the other to the one can. What is open stays open."""
        self.rules(to, f"-A INPUT -s {self.address[opener]} -p tcp --syn -j REJECT --reject-with tcp-reset")

    def flows(self, name, other):
        """(own port, other's port) of the connections of that host with the other."""
        wanted = f"{struct.unpack('=I', socket.inet_aton(self.address[other]))[0]:08X}"
        found = []
        for line in Path(f"/proc/{self.holder[name].pid}/net/tcp").read_text().splitlines()[1:]:
            _, own, far, state = line.split()[:4]
            if state == "01" and far.split(":")[0] == wanted:
                found.append((int(own.split(":")[1], 16), int(far.split(":")[1], 16)))
        return found

    def forget(self, name, *others):
        """Connections that are open carry nothing any more, in silence; new ones do (a firewall that lost its state). How many."""
        rules = []
        for other in others:
            for own, far in self.flows(name, other):
                rules += [f"-A INPUT -s {self.address[other]} -p tcp --sport {far} --dport {own} -j DROP",
                          f"-A OUTPUT -d {self.address[other]} -p tcp --sport {own} --dport {far} -j DROP"]
        self.rules(name, *rules)
        return len(rules) // 2

    def lose(self, share):
        """So many of all packets between hosts are lost."""
        for name in self.address:
            if name != "rest":
                self.rules(name, f"-A INPUT -i eth0 -m statistic --mode random --probability {share} -j DROP")


class HostedStack(Stack):
    """A stack whose nodes have hosts of their own. While it is up, the thread that started it is on the host "rest", where everything else runs.

    clock: names of services whose time of day can jump. disk: name of a Redis to the size of the file system of its own that it
    writes its files to. standby: each node has a second address, too.
    """

    def __init__(self, *arguments, clock=(), disk=(), standby=False, **options):
        self.hosts, self.clock, self.disk, self.standby = None, set(clock), dict(disk), standby
        super().__init__(*arguments, **options)

    def host(self, node=None):
        return self.hosts.address[node or "rest"]

    def assemble(self):
        self.hosts = Hosts([f"mx{number}" for number in range(1, self.shape.nodes + 1)], self.mark, self.log("hosts"))
        self.hosts.enter()
        super().assemble()
        if self.standby:
            self.give_standby()
        for service in self.services.values():
            if service.name in self.clock:
                service.env |= self.faked(service.name)
            node = service.note.get("node")
            if service.name in self.disk:
                service.argv = self.small_disk(service, self.disk[service.name]) + service.argv
            if service.name.startswith(("redis-", "relay-")):
                service.argv = self.hosts.inside(node) + service.argv

    def give_standby(self):
        for service in self.services.values():
            if service.name.startswith("redis-"):
                node = service.note["node"]
                with open(service.note["conf"], "a") as conf:
                    conf.write(f"bind {self.hosts.address[node]} {self.hosts.standby(node)}\n")
            elif "nodes" in service.note:
                service.note["nodes"] = {node: {**about, "standby": about["redis"].replace(NET, STANDBY)} for node, about in service.note["nodes"].items()}
                write_settings(service)

    def cut_path(self, node):
        """The node's active address is not reached from other hosts any more."""
        self.hosts.cut_path(node, self[f"redis-{node}"].note["address"].rpartition(":")[2])

    def small_disk(self, service, size):
        """A Redis gets a file system of its own for its files, which ends with it."""
        path = self.small_disk_of(service)
        path.mkdir(parents=True, exist_ok=True)
        with open(service.note["conf"], "a") as conf:
            conf.write(f"dir {path}\n")
        return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs "{path}" && exec "$@"', service.name]

    def small_disk_of(self, service):
        return self.directory / service.note["node"] / "disk"

    def fill_disk(self, name):
        """Until there is no room; returns the function that makes room again."""
        filler = Path(f"/proc/{self[name].pid}/root{self.small_disk_of(self[name])}/filler")
        with open(filler, "wb", buffering=0) as file:
            for size in (65536, 512):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        return filler.unlink

    def clock_file(self, name):
        return self.directory / f"clock-{name}"

    def faked(self, name):
        """Environment for a program whose time of day can jump."""
        self.clock_file(name).write_bytes(struct.pack("=q", 0))
        library = needed(self.shape.build / "tests" / "support" / "clock-jump.so", "the clock that jumps")
        return {"LD_PRELOAD": str(library), "CLOCK_JUMP": str(self.clock_file(name))}

    def jump(self, name, seconds):
        """The service's time of day is that far from ours."""
        with open(self.clock_file(name), "r+b") as file:
            file.write(struct.pack("=q", seconds))

    def look_at(self, node):
        """Where a node's Redis can always be asked, whatever is cut."""
        return self[f"redis-{node}"].note["socket"]

    def end_all(self):
        try:
            super().end_all()
        finally:
            if self.hosts:
                self.hosts.leave()
