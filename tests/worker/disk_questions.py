"""What a peer asks a site of mails on its disk, and what the site confirms."""
import struct

from support.frames import ASK_DISK, ON_DISK, PARCEL, Reader, num, text
from support.worker_world import USER

ASKED = 77


def synced(formats):
    """As a site has it: without fsync nothing is confirmed."""
    return dict.fromkeys(range(1, len(formats) + 1), "mail_fsync = optimized\n")


def guid_of_mail(site, subject, folder="INBOX"):
    return site.doveadm("fetch", "-u", USER, "guid", "mailbox", folder, "subject", subject).decode().split()[1]


def ask(world, asker, site, *guids):
    """The parcel comes to the site."""
    body = struct.pack("<Q", ASKED) + b"".join(map(bytes.fromhex, guids))
    return world[site].work(PARCEL, num(asker) + num(ASK_DISK) + text(body))


def confirmed(world, site, to):
    """{(asked, guid)} of all ON_DISKs in the lane, and the epochs in them."""
    found, epochs = set(), set()
    for kind, bulk, body in world[site].outbox[to]:
        if kind != ON_DISK:
            continue
        assert not bulk
        r = Reader(body)
        asked = r.u64()
        epochs.add(r.u64())
        while r.at < len(body):
            found.add((asked, r.take(16).hex()))
    return found, epochs
