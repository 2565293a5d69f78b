"""Beside Debian's own Postfix, with the files of packaging/ as they stand there: what is diverted goes by lanes and relay into Dovecot, everything else is
Postfix's as before."""
import re
import ssl
import subprocess
from pathlib import Path

from support import admin
import pytest

from support.stack import SinkShape, debian, dovecot
from support.mail import queue_id
from support.debian_site import Site
from support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site():
    with Site(postfix="none", nodes=2, takeover="automatic", sinks=[SinkShape("a", ours=True)]) as running:
        yield running.ready()


def test_the_configuration_is_debians_own(site):
    """What the other tests stand on: chrooted services with what they need, and nothing that Postfix complains about."""
    directory = site["postfix"].note["config_directory"]
    asked = subprocess.run(["postconf", "-c", directory, "-M"], stdout=subprocess.PIPE, check=True).stdout.decode()
    chrooted = {line.split()[7] for line in asked.splitlines() if line.split()[4] == "y"}
    # From Debian 14 on, Debian's master.cf has smtpd alone in the chroot.
    assert chrooted == {"smtpd"} or {"smtpd", "cleanup", "lmtp", "trivial-rewrite", "bounce"} <= chrooted
    assert (site.queue / "etc" / "services").exists() and (site.queue / "etc" / "nsswitch.conf").exists()
    checked = subprocess.run(["postfix", "-c", directory, "check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout.decode()
    assert "warning" not in checked and "unused parameter" not in subprocess.run(["postconf", "-c", directory], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=True).stderr.decode()


def test_a_mailbox_is_reached_by_lanes(site):
    code, text = site.send("user1@example.org", subject="by lanes")
    assert code == 250 and "action=lane" in site.milter_line(text)
    mail, = site.arrives("user1", "by lanes")
    assert "X-Content-Milter: seen" in mail and f"id {queue_id(text)}" in mail
    # Postfix's queue manager never saw it, and the relay delivered it over a socket that the user it runs as may enter.
    assert not any("/qmgr[" in line or "/lmtp[" in line for line in site.postfix_lines(text))
    sent = eventually("the relay says so", lambda: re.findall(rf"{queue_id(text)}: to=<user1@example.org>.*status=sent", "".join(site.log_of(f"relay-{node}") for node in site.nodes)))
    assert len(sent) == 1
    eventually("the lanes are empty", lambda: not site.stored())


def test_header_checks_are_in_what_is_diverted(site):
    code, text = site.send("user1@example.org", "X-Secret: 42", subject="the lottery")
    assert code == 250 and "action=lane" in site.milter_line(text)
    mail, = site.arrives("user1", "the lottery")
    assert "X-Lottery: yes" in mail and "X-Secret" not in mail
    code, text = site.send("user1@example.org", "X-Virus: yes")
    assert code == 550 and b"no viruses here" in text


def test_the_content_milter_has_the_first_word(site):
    before = site.log_of("milter")
    code, text = site.send("user1@example.org", "X-Spam: yes")
    assert code == 550 and b"this is spam" in text
    assert site.log_of("milter") == before and not site.stored()


def test_an_alias_of_the_domain_is_postfixs(site):
    code, text = site.send("info@example.org", subject="to info")
    assert code == 250 and "action=queue reason=map virtual_alias_maps" in site.milter_line(text)
    site.arrives("user4", "to info")


def test_a_local_alias_is_postfixs(site):
    code, text = site.send(f"team@{debian.HOST}", subject="to the team")
    assert code == 250 and f"action=queue reason=not-in-divert local:{debian.HOST}" in site.milter_line(text)
    site.arrives("user2", "to the team")


def test_submission_is_postfixs(site):
    before = site.log_of("milter")
    with site.connect("submission") as client:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        client.starttls(context=trusting)
        client.ehlo("client.example")
        client.login("user1@example.org", dovecot.PASSWORD)
        client.sendmail("user1@example.org", ["user5@example.org"], b"Subject: submitted\r\n\r\nhello\r\n")
    mail, = site.arrives("user5", "submitted")
    assert "X-Content-Milter: seen" in mail and "sasl_username=user1@example.org" in site.log_of("postfix") and site.log_of("milter") == before


def test_mail_of_this_host_is_postfixs(site):
    before = site.log_of("milter")
    subprocess.run(["sendmail", "-C", site["postfix"].note["config_directory"], "-f", "cron@x.example", "user6@example.org"], input=b"Subject: from cron\n\nhello\n", check=True)
    site.arrives("user6", "from cron")
    assert site.log_of("milter") == before


def test_a_refusal_bounces_with_the_next_hops_words(site):
    site.rules("a", {"at": "rcpt", "reply": "550 5.1.1 nobody here of that name"})
    try:
        code, text = site.send("gone@a.example", sender="user7@example.org", subject="undeliverable")
        assert code == 250 and "action=lane" in site.milter_line(text)
        bounce = eventually("it bounces", lambda: [mail for mail in site.mails("user7") if "Undelivered Mail" in mail])[0]
        assert "nobody here of that name" in bounce and "Final-Recipient: rfc822; gone@a.example" in bounce
    finally:
        site.rules("a")


def test_what_waits_goes_back_to_postfixs_queue(site):
    """The port back, as the example has it: neither the milters nor the header checks once more, and Postfix delivers it."""
    site.sink("a", do="down")
    code, text = site.send("later@a.example", subject="the lottery again")
    assert code == 250 and "action=lane" in site.milter_line(text)
    try:
        admin.done(site, "drain", "--to-postfix", timeout=120)
        assert not site.stored()
        queued = subprocess.run(["postqueue", "-c", site["postfix"].note["config_directory"], "-p"], stdout=subprocess.PIPE, check=True).stdout.decode()
        assert queued.count("later@a.example") == 1
    finally:
        site.sink("a", do="up")
        admin.done(site, "divert", "on")
    site["postfix"].flush()
    journal = Path(site["sink-a"].note["journal"])
    eventually("Postfix delivers it", lambda: journal.exists() and "later@a.example" in journal.read_text())
    site.ready()


def test_check_finds_nothing_critical(site):
    said = subprocess.run([site.shape.build / "ctl" / "dovelane", "-c", site["milter"].note["conf"], "check", "-v"], stdout=subprocess.PIPE, check=False).stdout.decode()
    assert "our milter is the last" in said and f"next hop {debian.MAILBOX}: answers" in said and "\n0 critical" in said, said


# Without the words behind a fence that tell tests/machines what a block is.
GUIDE = re.sub(r"(?m)^```[a-z].*$", "```", (debian.REPOSITORY / "docs" / "admin-guide.md").read_text())


def test_the_guide_quotes_the_examples_as_they_are():
    for name in ("main.cf", "dovelane.conf", "dovecot-lmtp.conf"):
        assert f"```\n{(debian.EXAMPLES / name).read_text()}```\n" in GUIDE, name
    for name in ("master.cf", "master-proxy.cf"):
        smtp = debian.services((debian.EXAMPLES / name).read_text())[("smtp", "inet")]
        assert "```\n" + "\n".join(smtp) + "\n```\n" in GUIDE, name
    redis = [line for line in (debian.EXAMPLES / "redis-dovelane.conf").read_text().splitlines() if not line.startswith(("#", "loadmodule"))]
    assert "```\n" + "\n".join(redis) + "\n```\n" in GUIDE


def test_the_guide_lists_every_reason():
    code = "".join((debian.REPOSITORY / name).read_text() for name in ("lib/ingress/reasons.c", "milter/divert_rules.c", "proxy/divert_rules.c"))
    code += "".join(re.search(rf"(?s){function}\(.*?\n}}", (debian.REPOSITORY / name).read_text())[0]
                    for function, name in (("cannot_store", "milter/end_of_message.c"), ("mail_entries_misfit", "lib/ingress/mail_entries.c")))
    said = {word for statement in re.findall(r"(?:return|why =) ([^;]*);", code) for word in re.findall(r'"([a-z-]+)"', statement)}
    assert {"divert-off", "map", "postfix", "not-in-divert", "notify", "too-large", "busy", "address", "no-route", "local", "hops"} <= said
    reference = (debian.REPOSITORY / "docs" / "admin-reference.md").read_text()
    listed = next(line for line in reference.splitlines() if "action=queue reason=...`" in line)
    assert {reason for reason in said if f"`{reason}`" not in listed} == set()


def test_all_nodes_restarted_one_after_the_other_keep_what_they_hold():
    """As the guide says it: a clean stop writes, the next start reads, and the file is moved aside at once (packaging/systemd/node@dovelane.conf.in)."""
    on_stop = [line for line in (debian.EXAMPLES / "redis-dovelane.conf").read_text().splitlines() if line.startswith("shutdown-on-sigterm")]
    with Site(postfix="none", nodes=2, takeover="automatic", sinks=[SinkShape("a", ours=True)], redis_conf=on_stop) as site:
        site.ready()
        site.sink("a", do="down")
        names = [f"u{number}@a.example" for number in range(20)]
        for name in names:
            code, text = site.send(name)
            assert code == 250 and "action=lane" in site.milter_line(text)
        for node in site.nodes:
            dump = site.directory / node / "dump.rdb"
            site.restart(f"redis-{node}")
            dump.rename(dump.with_suffix(".read"))  # fails when the stop wrote none
            eventually("it returned", lambda node=node: "returning (the node's Redis was restarted)" in site.log_of(f"relay-{node}"))
            eventually("the nodes are alive and whole", lambda: admin.run(site, "nodes").status == 0, 60)
            eventually("the node is used again", lambda: "action=lane" in site.milter_line(site.send("user9@example.org")[1]))
        site.sink("a", do="up")
        eventually("the lanes are empty", lambda: not site.stored(), 60)
        arrived = [line.split("\t")[3] for line in Path(site["sink-a"].note["journal"]).read_text().splitlines()]
        assert sorted(arrived) == sorted(names)
