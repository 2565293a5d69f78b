"""The node's Redis: its configuration, its users, and what a running one is sent when these change."""
import hashlib
import re
import time

import group
import resp
import templates
from host import Trouble

UNIT = "redis-server@dovelane.service"
FILE = "/etc/redis/redis-dovelane.conf"
DIRECTORY = "/etc/redis/dovelane"
# Certificate and key in one file: it is replaced in one step, so that no start meets a key and another key's certificate.
NODE = DIRECTORY + "/node.pem"
CA = DIRECTORY + "/ca.crt"
USERS = DIRECTORY + "/users.acl"
OPERATOR_FILE = "/etc/dovelane/dovelane/operator"
MODULES = ("/usr/lib/redis/modules/lane.so", "/usr/lib/dovelane/lane.so")
FOR_MAIL = 4  # a quarter of the memory


def module(host):
    for path in MODULES:
        if host.exists(path):
            return path
    raise Trouble(f"there is no {MODULES[0]}: install the package redis-module-lane, or `make install`")


SIZES = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 10**6, "mb": 1 << 20, "g": 10**9, "gb": 1 << 30}  # as redis.conf has them
LEAST, MOST_PERCENT = 64 << 20, 80


def check_memory(host, size):
    """A value of maxmemory, when the node can have it; else Trouble, before anything is written."""
    found = re.fullmatch(r"(\d{1,15})(b|kb?|mb?|gb?|)", size.strip().lower())
    if not found:
        raise Trouble(f"--maxmemory {size!r} is no size: write it like 4gb or 800mb")
    asked, has = int(found[1]) * SIZES[found[2]], host.memory()
    if asked < LEAST:
        raise Trouble(f"--maxmemory {size} is less than {LEAST >> 20}mb: no mail fits in")
    if asked > has * MOST_PERCENT // 100:
        raise Trouble(f"--maxmemory {size} is more than {MOST_PERCENT}% of this host's memory ({has >> 20}mb): when memory ends, the kernel ends the Redis, and all that it holds is gone. "
                      f"At most {has * MOST_PERCENT // 100 >> 20}mb")
    return size.strip().lower()


def client_memory(maxmemory):
    """What all connections may take beside it: an eighth, and at least ten of the largest mails. A connection that takes more than all others is closed then."""
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", maxmemory).groups()
    return f"{max(256, int(number) * SIZES[unit] // 8 >> 20)}mb"


def most_memory(host):
    return f"{max(64, host.memory() // FOR_MAIL // (1 << 20) // 64 * 64)}mb"


def config(host, local, host_address, port):
    """The example, with this node's values, and TLS in the place of the open port."""
    text = templates.read("redis-dovelane.conf")
    values = {"port": f"port 0\ntls-port {port}\ntls-cert-file {NODE}\ntls-key-file {NODE}\ntls-ca-cert-file {CA}\ntls-auth-clients no\naclfile {USERS}",
              "bind": f"bind {host_address}", "maxmemory": f"maxmemory {local['maxmemory']}", "maxmemory-clients": f"maxmemory-clients {client_memory(local['maxmemory'])}",
              "loadmodule": f"loadmodule {module(host)}", "lane.node": f"lane.node {local['name']}"}
    for name, line in values.items():
        text, n = re.subn(rf"^{re.escape(name)} .*$", lambda _, line=line: line, text, flags=re.M)
        if n != 1:
            raise Trouble(f"the example redis-dovelane.conf has {n} lines `{name}`: 1 is expected")
    if "\npidfile " not in text:
        text += "pidfile /run/redis-dovelane/redis-server.pid\n"
    return text


def hashed(password):
    return "#" + hashlib.sha256(password.encode()).hexdigest()


AT_NODE = re.compile(r"user dovelane-replicator:\S+@(\S+) ")  # a replica's user at the node of one


def users(old, acl, operator_password, site):
    """users.acl: the group's users, this host's operator, and lines of other users that an admin put there. Of replicas' users those for the node of this host's site."""
    ours = {"operator", "default", *re.findall(r"^user (\S+)", acl, re.M)}
    others = [line for line in (old or "").splitlines() if (found := re.match(r"user (\S+)", line)) and found[1] not in ours and not found[1].startswith("dovelane-replicator")]
    acl = "".join(line + "\n" for line in acl.splitlines() if not (found := AT_NODE.match(line)) or found[1] == site)
    return acl.rstrip("\n") + f"\nuser operator on {hashed(operator_password)} resetchannels ~* &* +@all\n" + "".join(line + "\n" for line in others)


def operator(host, address, seconds=5):
    """A connection to this host's own Redis, as the one who may change its settings."""
    name, password = (host.text(OPERATOR_FILE) or " ").split()
    return resp.Redis(address, host.path(group.CA_FILE), name, password, seconds)


def wait(host, address, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            with operator(host, address) as redis:
                redis.call("PING")
                return
        except Trouble as e:
            if time.monotonic() > end:
                raise Trouble(f"the node of this host does not answer at {address} ({e}). `journalctl -u {UNIT}` says more{host.last_lines(UNIT)}") from None
            time.sleep(0.2)


def load_users(host, address):
    with operator(host, address) as redis:
        try:
            redis.call("ACL", "LOAD")
        except resp.Refused as e:
            if "nknown command" not in str(e):
                raise
            raise Trouble(f"{e}. It runs an older lane.so than the one that is installed: `systemctl restart {UNIT}`, which reads {USERS}, too") from None


def load_certificate(host, address):
    """New connections get it; those that are there go on."""
    with operator(host, address) as redis:
        redis.call("CONFIG", "SET", "tls-cert-file", NODE, "tls-key-file", NODE)


def waiting(host, address):
    """[(lane, entries)] of this node that are not empty."""
    found, cursor = [], "0"
    with operator(host, address) as redis:
        while True:
            cursor, lanes = redis.call("LANE.LIST", cursor, "COUNT", "1000")
            found += [(lanes[i].decode(), int(lanes[i + 1])) for i in range(0, len(lanes), 3) if int(lanes[i + 1])]
            if int(cursor) == 0:
                return found
