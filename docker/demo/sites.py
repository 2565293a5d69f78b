"""The commands of the mailbox half: cut, heal, conflict, lag. Each run has a user of its own."""

import secrets
import statistics
import time

import world
from support.waiting import eventually
from telling import Failed, say, table, title
from world import A, B

CUT = "cut-and-heal@example.org"  # whose mailbox is looked at across two runs
STAYS = ("Lunch", "New plan")
CHANGES = 20
FAR = 40  # ms, each way


def mail(user, subject):
    return (
        f"From: <alice@client.example>\r\nTo: <{user}>\r\nSubject: {subject}\r\n"
        f"X-Mail: {subject}\r\n"
        f"\r\n{subject}.\r\n"
    ).encode()


def somebody(what):
    return f"{what}-{secrets.token_hex(4)}@example.org"


def has_flag(session, uid, flag):
    session.command("NOOP")
    flags = next((items[b"FLAGS"] for _, items in session.fetch(uid, "FLAGS")), [])
    return flag.encode() in flags


def uid_of(site, user, subject):
    with site.imap(user) as session:
        return session.uids("INBOX")[subject][0]


def flag(site, user, subject, *flags, how="+FLAGS"):
    with site.imap(user) as session:
        session.store("INBOX", session.uids("INBOX")[subject], how, *flags)


def cut():
    title("The link between the sites is cut")
    say("Should: each site goes on by itself, and keeps for the other what it changes.")
    if world.is_cut():
        say("It was cut already.")
    else:
        with A.imap(CUT) as session:
            session.select("INBOX")
            if "Mail before the cut" not in session.uids("INBOX"):
                session.append("INBOX", mail(CUT, "Mail before the cut"))
        world.equal(CUT)
        flag(A, CUT, "Mail before the cut", "\\Flagged", "\\Answered", how="-FLAGS")
        world.equal(CUT)
    world.link("cut")
    flag(A, CUT, "Mail before the cut", "\\Flagged")
    flag(B, CUT, "Mail before the cut", "\\Answered")
    shown = {}
    for site in (A, B):
        with site.imap(CUT) as session:
            uid = session.uids("INBOX")["Mail before the cut"][0]
            shown[site.name] = [
                word for word in ("\\Flagged", "\\Answered") if has_flag(session, uid, word)
            ]
    eventually(
        "each site keeps its change for the other",
        lambda: all(world.unconfirmed(site) for site in world.SITES),
    )
    table(
        [
            ("site", "changed there", f"shows of {CUT}", "changes kept for the other"),
            *(
                (site, word, " ".join(shown[site]), f"{world.unconfirmed(site):.0f}")
                for site, word in zip(world.SITES, ("\\Flagged", "\\Answered"))
            ),
        ]
    )
    if shown != {"site-a": ["\\Flagged"], "site-b": ["\\Answered"]}:
        raise Failed("a change crossed a link that is cut")
    say("It stays cut until `demo heal`. Meanwhile both webmails work.")


def heal():
    title("The link between the sites is mended")
    say("Should: each gets what the other kept for it, and both show the same.")
    kept = {site: world.unconfirmed(site) for site in world.SITES}
    if not world.is_cut():
        say("It was not cut.")
    began = time.monotonic()
    world.link("heal")
    shown = world.equal(CUT)
    took = time.monotonic() - began
    eventually(
        "nothing is kept any more",
        lambda: not any(world.unconfirmed(site) for site in world.SITES),
        180,
    )
    table(
        [
            ("site", "kept for the other, before", "now"),
            *((site, f"{kept[site] or 0:.0f}", "0") for site in world.SITES),
        ]
    )
    say(f"Both sites show the same of {CUT} after {took * 1000:.0f} ms:")
    show(shown)


def show(shown):
    for name, folder in sorted(shown.folders.items()):
        for message in folder.messages.values():
            say(f"    {name:<9} {message.name:<20} {' '.join(sorted(message.flags))}")


def conflict():
    """(mails meant to stay, there, lost, twice)"""
    title("The link is cut, and one user changes the same things at both sites")
    say(
        "Should: when it is mended, both show the same, and nothing that somebody could miss is"
        " lost."
    )
    user = somebody("conflict")
    with A.imap(user) as session:
        session.create("Plans")
        for folder, subject in (("INBOX", "Lunch"), ("INBOX", "Invoice"), ("Plans", "Old plan")):
            session.append(folder, mail(user, subject))
    world.equal(user)
    world.link("cut")
    try:
        with A.imap(user) as a, B.imap(user) as b:
            flag(A, user, "Lunch", "\\Seen")
            flag(B, user, "Lunch", "\\Answered")
            a.rename("Plans", "Projects")
            b.append("Plans", mail(user, "New plan"))
            a.expunge("Projects", a.uids("Projects")["Old plan"])
            b.expunge("INBOX", b.uids("INBOX")["Invoice"])
    finally:
        world.link("heal")
    began = time.monotonic()
    shown = world.equal(user)
    table(
        [
            ("what", "site-a", "site-b", "both, afterwards"),
            ('the mail "Lunch"', "\\Seen", "\\Answered", "\\Seen \\Answered: setting a flag wins"),
            (
                "the folder Plans",
                "is renamed: Projects",
                'gets "New plan"',
                "Projects, with the new plan",
            ),
            ('"Old plan" in it', "is expunged", "", "gone"),
            ('the mail "Invoice"', "", "is expunged", "gone"),
        ]
    )
    say(f"{(time.monotonic() - began) * 1000:.0f} ms after the link was mended both sites show:")
    show(shown)
    wanted = {"INBOX": {"Lunch": [("\\answered", "\\seen")]}, "Projects": {"New plan": [()]}}
    if shown.shape() != wanted:
        raise Failed(f"the sites show {shown.shape()} instead of {wanted}")
    there = [
        message.name for folder in shown.folders.values() for message in folder.messages.values()
    ]
    return len(STAYS), len(there), len(set(STAYS) - set(there)), len(there) - len(set(there))


def crossings(user, uids, name):
    """Milliseconds from a flag's OK at one site until the other shows it, by turns."""
    took = []
    with A.imap(user) as a, B.imap(user) as b:
        for session in (a, b):
            session.select("INBOX")
        for number in range(CHANGES):
            here, there = ((a, uids[0]), (b, uids[1]))[:: 1 if number % 2 == 0 else -1]
            word = f"{name}{number}"
            here[0].store("INBOX", here[1], "+FLAGS", word)
            began = time.monotonic()
            eventually(
                f"{word} at the other site", lambda: has_flag(*there, word), pause=0.002
            )  # pylint: disable=cell-var-from-loop
            took.append((time.monotonic() - began) * 1000)
    return sorted(took)


def lag():
    title(
        f"{CHANGES} flags are set, by turns at site-a and at site-b. When does the other site"
        " show each?"
    )
    say("Should: within milliseconds, and on a slow link within little more than its delay.")
    user = somebody("lag")
    with A.imap(user) as session:
        session.append("INBOX", mail(user, "Lunch"))
    world.equal(user)
    uids = [uid_of(site, user, "Lunch") for site in (A, B)]
    rows = [("link", "first quarter", "median", "slowest")]
    try:
        for name, delay in (("as it is", 0), (f"{FAR} ms slower each way", FAR)):
            if delay:
                world.link("delay", ms=delay)
                flag(A, user, "Lunch", "\\Flagged")
                world.equal(user)  # connections are made anew
            took = crossings(user, uids, "Far" if delay else "Near")
            rows.append(
                (
                    name,
                    f"{took[CHANGES // 4]:.0f} ms",
                    f"{statistics.median(took):.0f} ms",
                    f"{took[-1]:.0f} ms",
                )
            )
    finally:
        world.link("delay", ms=0)
    table(rows)
    world.equal(user)
    eventually(
        "nothing under way", lambda: not any(world.unconfirmed(site) for site in world.SITES), 180
    )
    say("Both sites are equal, and neither has anything that the other lacks.")
