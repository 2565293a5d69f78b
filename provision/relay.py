"""Whether the running relay has dovelane.conf as it is now: after a reload it says so in its node (dovelane.config)."""
import re
import time

import distribute
from host import Trouble

UNIT = "dovelane-relay.service"
KEY = "dovelane.config"
STEADY, RELOADED, RESTARTED = 10, 20, 60  # seconds: it tells every 2 s


def wanted(host):
    """The digest of what must be equal on all hosts, of the file as it is now; None: it cannot be told."""
    found = re.search(r"has the digest ([0-9a-f]+)", host.run("dovelane", "check", "-v", "config", check=False).stdout)
    return found and found[1]


def has(host, member):
    """The digest that the relay has; None: it tells none."""
    with distribute.connect(host, member, member["name"]) as own:
        told = own.call("HGET", KEY, "relay")
        return told.decode("utf-8", "replace") if told else None


def takes(host, member, seconds):
    """Whether it has the file within that time. The file's digest is read anew: nodes may join meanwhile."""
    end = time.monotonic() + seconds
    while True:
        want = wanted(host)
        if want is None or has(host, member) == want:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.5)


def follow(host, member, tell, may_restart):
    """A relay refuses a reload where a node is reached otherwise than it knows: then it is restarted. Trouble when it has another file all the same.

    Also a node that was taken out and comes back at another address: no file had both, and the relay remembers the first.
    """
    if not host.running(UNIT):
        return
    try:
        if takes(host, member, RELOADED if may_restart else STEADY):
            return
        if may_restart:
            tell(f"restart {UNIT}: it does not take the new dovelane.conf by a reload")
            host.systemctl("restart", UNIT)
            if takes(host, member, RESTARTED):
                return
    except Trouble as e:
        raise Trouble(f"the relay of this host cannot be asked whether it has the new dovelane.conf: {e}") from None
    raise Trouble(f"the relay of this host runs with another dovelane.conf than the file: `systemctl restart dovelane-relay` here{host.last_lines(UNIT)}")
