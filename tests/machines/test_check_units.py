"""`dovelane check host` under a real systemd: what it finds of units, and its mends as it words them."""
import re

import hosts
import pytest
from test_init import furnish, tree_with_programs

from support.mends import Check, mends

pytestmark = pytest.mark.exhaustive

RELAY, REDIS = "dovelane-relay.service", "redis-server@dovelane.service"
CONF = """copies = 1
node mx1 {
  redis = "127.0.0.1:7001"
}
"""


@pytest.fixture(params=["bookworm", "trixie"])
def host(world, request):
    """A node: its Redis and its relay, enabled and started by systemd; Dovelane's units as the install has them."""
    tree, programs = tree_with_programs(request.param, world.folder, "install")
    machine = world.machine("mx1", hosts.ADDRESSES["mx1"], tree)
    furnish(machine, programs)
    example = machine.read("/usr/share/doc/dovelane/examples/redis-dovelane.conf")
    machine.write("/etc/redis/redis-dovelane.conf", example.replace("bind 10.0.0.1", "bind 127.0.0.1").replace("maxmemory 4gb", "maxmemory 100mb"))
    machine.chroot("chown", "redis:redis", "/etc/redis/redis-dovelane.conf")
    machine.write("/etc/dovelane/dovelane.conf", CONF)
    machine.write("/etc/default/dovelane", "DOVELANE_NODE=mx1\n")
    machine.boot()
    machine.run(f"systemctl enable --now {REDIS} {RELAY}")
    machine.check = Check(lambda *words: machine.status(f"dovelane check {' '.join(words)}")[1])
    machine.wait("! dovelane check host | grep unit-", what="the units are good")
    return machine


@mends("unit-restarts", "unit-down", "unit-not-enabled", "unit-pid-file")
def test_units(host):
    assert "ok       dovelane-relay.service: it is enabled and active" in host.check.lacks("unit-down", "-v", "host")
    # Stopped, and nobody meant to: it would have been disabled.
    host.run(f"systemctl stop {RELAY}")
    command = re.match(rf"journalctl -u {RELAY} says why; then (systemctl restart {RELAY})$", host.check.finds("unit-down", "host", about=RELAY).mend)[1]
    host.run(command)
    host.check.lacks("unit-down", "host")
    host.run(f"systemctl disable {RELAY}")
    found = host.check.finds("unit-not-enabled", "host", about=RELAY)
    assert found.mend == f"systemctl enable {RELAY}"
    host.run(found.mend)
    host.check.lacks("unit-not-enabled", "host")
    # One that cannot start: its log says why.
    host.write("/etc/default/dovelane", "DOVELANE_NODE=mx9\n")
    host.run(f"systemctl restart {RELAY}", check=False)
    host.wait("dovelane check host | grep -F '[unit-restarts]'", what="it is restarted again and again")
    logged, command = re.match(rf"(journalctl -u {RELAY}) says why; then (systemctl restart {RELAY})$", host.check.finds("unit-restarts", "host", about=RELAY).mend).groups()
    host.wait(f"{logged} --no-pager -n 50 | grep mx9", what="the journal says why")
    host.write("/etc/default/dovelane", "DOVELANE_NODE=mx1\n")
    host.run(command)
    host.check.lacks("unit-restarts", "host")
    # Debian's PID file, which a Redis with our configuration does not write.
    drop_in = "/etc/systemd/system/redis-server@dovelane.service.d/zz.conf"
    host.write(drop_in, "[Service]\nPIDFile=/run/redis-dovelane/redis-server.pid\n")
    host.run("systemctl daemon-reload")
    line, section, command = re.match(r"(PIDFile=) \(empty\) in (\[Service\]) of its drop-in, .*; then (systemctl daemon-reload)$", host.check.finds("unit-pid-file", "host", about=REDIS).mend).groups()
    host.write(drop_in, f"{section}\n{line}\n")
    host.run(command)
    host.check.lacks("unit-pid-file", "host")
    assert host.run(f"systemctl is-active {REDIS} {RELAY}").split() == ["active", "active"]
