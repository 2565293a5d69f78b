"""What the milter of a stack says of a mail, and which processes of it there are."""
import socket
from pathlib import Path


def milter_log(system, queue_id):
    lines = [line for line in Path(system["milter"].log).read_text().splitlines() if f" {queue_id}: " in line]
    return "\n".join(lines)


def milters(system):
    """Process ids of all milters of this stack."""
    conf, found = system["milter"].note["conf"].encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if conf in words and words[0].endswith(b"dovelane-milter") and b"-t" not in words:
            found.append(int(path.parent.name))
    return sorted(found)


def serving(system):
    """Who answers at the socket now."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(system["milter"].note["socket"])
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], "little")
