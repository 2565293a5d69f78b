"""What a site shows of a user, and the loss of a site with its disk."""
import shutil
from pathlib import Path

from support.stack import digest


def shown(replica, name, user):
    """How often a mail is shown in the INBOX."""
    return len(digest.read(replica, user).shape().get("INBOX", {}).get(name, ()))


def destroy(there, letter):
    """The host of a site: its processes, the mail, all state, and what its Redis had."""
    replica = next(each for each in there.replicas if each.letter == letter)
    replica.kill()
    there.kill(f"redis-{letter}")
    base = Path(replica.note["base"])
    for name in ("mail", "replicator", "dirty"):
        for path in (base / name).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def come_back(there, letter):
    there.start(f"redis-{letter}")
    there.start(f"dovecot-{letter}")
