"""What clients that are connected meanwhile are told."""
from site_user import Site, mail
from stack.digest import wait_equal

WITHIN = 420.0
USER = "watched@example.org"


def test_an_idle_client_is_told_of_what_another_site_did(group):
    there = group("sdbox", "maildir")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
        wait_equal(there.replicas, [USER], WITHIN)
        with b.imap(USER) as client:
            client.select("INBOX")
            tag = client.idle()
            site.append("INBOX", "n")
            assert client.wait_untagged(rb"\* 2 EXISTS", WITHIN)
            site.flag("INBOX", "m", "+", "\\Flagged", "kw")
            assert client.wait_untagged(rb"\* 1 FETCH .*\\Flagged.*kw|\* 1 FETCH .*kw.*\\Flagged", WITHIN)
            site.expunge("INBOX", "m")
            assert client.wait_untagged(rb"\* 1 EXPUNGE", WITHIN)
            client.done(tag)


def test_a_clash_of_uids_moves_each_mail_once(group):
    """x at A and y at B got one UID. A client at each site sees each of both move at most once, and never one UID for two mails."""
    there = group("sdbox", "mdbox")
    a, b = there.replicas
    with Site(a, USER) as site:
        site.append("INBOX", "m")
    wait_equal(there.replicas, [USER], WITHIN)
    with a.imap(USER) as one, b.imap(USER) as other:
        there.cut()
        for client, name in ((one, "x"), (other, "y")):
            client.append("INBOX", mail(name))
            client.select("INBOX")
            client.command("NOOP")
        there.heal()
        wait_equal(there.replicas, [USER], WITHIN)
        for client in (one, other):
            told = client.command("NOOP")[1]
            moved = sum(b" EXPUNGE" in line for line in told)
            assert moved <= 2, told
            assert set(client.uids("INBOX")) == {"m", "x", "y"}
        assert one.uids("INBOX") == other.uids("INBOX")
