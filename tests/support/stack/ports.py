"""Free TCP ports on loopback that stay ours while the stack runs.

Several stacks run on one machine at a time, so "bind to 0, close, use" races. A port is found by binding it without
SO_REUSEADDR, which fails when anybody holds it; the socket is kept and only then allows reuse, so that the server (all of
ours set SO_REUSEADDR) can bind and listen, while another stack's search still fails. Ports come from below the kernel's
ephemeral range, or a client's connection could sit on one just when a server starts again.
"""
import random
import socket

from .failure import StackError


def ephemeral_start():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError):
        return 32768


class Ports:
    """Hands out ports and keeps them reserved until close()."""

    def __init__(self):
        self.held = {}

    def take(self):
        top = max(12000, min(ephemeral_start(), 32000))
        for _ in range(2000):
            port = random.randrange(10240, top)
            if port not in self.held and self.hold(port):
                return port
        raise StackError(f"no free port on 127.0.0.1 between 10240 and {top}")

    def hold(self, port):
        """Reserves a given port; False when somebody has it."""
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            return False
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held[port] = holder
        return True

    def close(self):
        for holder in self.held.values():
            holder.close()
        self.held.clear()


def listening(port):
    """Whether anybody listens on 127.0.0.1:port; read from the kernel, because a connection would disturb the server."""
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                for line in file.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[1].endswith(":" + wanted):
                        return True
        except OSError:
            pass
    return False


def unix_sockets(directory):
    """Bound UNIX sockets below a directory."""
    prefix = str(directory).rstrip("/") + "/"
    found = set()
    with open("/proc/net/unix") as file:
        for line in file.readlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[7].strip().startswith(prefix):
                found.add(fields[7].strip())
    return found


def all_listening():
    """Every listening TCP address and listening UNIX socket of this machine, as /proc/net names them."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{table}") as file:
                found |= {(table, line.split()[1]) for line in file.readlines()[1:] if line.split()[3] == "0A"}
        except OSError:
            pass
    with open("/proc/net/unix") as file:
        for line in file.readlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and int(fields[3], 16) & 0x10000:  # SO_ACCEPTCON: it listens
                found.add(("unix", fields[7].strip()))
    return found
