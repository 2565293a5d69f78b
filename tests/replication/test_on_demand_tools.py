"""A site with role = on-demand beside what an admin uses: doveadm sync and backup into its mailboxes, and quotas."""
import re
import shutil

import pytest
from site_user import Site, mail
from support.stack.digest import wait_equal
from support.stack.imap import ImapError
from support.waiting import eventually
from test_on_demand import FORMATS, NO_AFTER, USER, WITHIN, body_of, drop_fetched, fetched, stub_lines, wait_mails
from test_unplaced import QUOTA

pytestmark = pytest.mark.long

SIZE = 50000


def names(replica, folder="INBOX"):
    with Site(replica, USER) as site:
        site.imap.select(folder, again=True)
        return {name: len(uids) for name, uids in site.imap.uids(folder).items()}


def aside_of(replica):
    return replica.store(USER).parent / "aside"


@pytest.mark.parametrize("storage", FORMATS)
def test_doveadm_sync_with_its_mailbox(group, storage):
    """What is there stays as it is, and no text is fetched. What comes is whole, and goes to all sites."""
    there = group("sdbox", storage, on_demand="b", more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        for name in ("one", "two", "three"):
            site.append("INBOX", name, size=SIZE)
    wait_mails(thin, 3)
    aside = aside_of(thin)
    thin.doveadm("backup", "-u", USER, f"maildir:{aside}")
    drop_fetched(thin)
    before = thin.doveadm("fetch", "-u", USER, "uid guid", "all")
    for words in (["sync"], ["backup", "-R"]):
        thin.doveadm(*words, "-u", USER, f"maildir:{aside}")
        assert thin.doveadm("fetch", "-u", USER, "uid guid", "all") == before
        assert stub_lines(thin) == 3 and fetched(thin) == []
    came = aside / "new" / "1700000000.M1P1.elsewhere"
    came.write_bytes(mail("came", SIZE).replace(b"\r\n", b"\n"))
    shutil.chown(came, came.parent.stat().st_uid)
    gone, = (path for path in aside.rglob("*") if path.is_file() and b"X-Mail: two" in path.read_bytes())
    gone.unlink()
    thin.doveadm("sync", "-u", USER, f"maildir:{aside}")
    for replica in there.replicas:
        eventually("what came and what went is there", lambda replica=replica: names(replica) == {"one": 1, "three": 1, "came": 1})
        assert body_of(replica, name="came")[b"BODY[]"] == mail("came", SIZE)
    assert fetched(thin) == []
    wait_equal(there.replicas, [USER], WITHIN)
    assert stub_lines(full) == 0


@pytest.mark.parametrize("storage", FORMATS)
def test_doveadm_backup_into_its_mailbox(group, storage):
    """dsync removes and saves as it wants, while the replicator works: no mail is left of which all sites have a header."""
    there = group("sdbox", storage, on_demand="b", more=NO_AFTER)
    full, thin = there.replicas
    with Site(full, USER) as site:
        for name in ("one", "two", "three"):
            site.append("INBOX", name, size=SIZE)
    wait_mails(thin, 3)
    aside = aside_of(thin)
    thin.doveadm("backup", "-u", USER, f"maildir:{aside}")
    with Site(full, USER) as site:
        site.append("INBOX", "later", size=SIZE)
    with Site(thin, USER) as site:
        site.expunge("INBOX", "one")
    wait_mails(full, 3)
    wait_mails(thin, 3)

    def is_done():
        """Until it says no more that it deleted a mailbox, and has to be run again."""
        thin.doveadm("backup", "-R", "-u", USER, f"maildir:{aside}", check=False)
        wait_equal(there.replicas, [USER], WITHIN)
        return names(thin).keys() >= {"one", "two", "three"}

    eventually("all is there again", is_done)
    wait_equal(there.replicas, [USER], WITHIN)
    for replica in there.replicas:
        for name in names(replica):
            drop_fetched(thin)
            assert body_of(replica, name=name)[b"BODY[]"] == mail(name, SIZE)
    assert stub_lines(full) == 0


def quota_of(replica):
    """(bytes, mails)"""
    said = replica.doveadm("-f", "tab", "quota", "get", "-u", USER).decode()
    kinds = dict(re.findall(r"(STORAGE|MESSAGE)\t(\d+)", said))
    return int(kinds["STORAGE"]), int(kinds["MESSAGE"])


@pytest.mark.parametrize("storage", FORMATS)
def test_a_quota_counts_the_mails_true_sizes(group, storage):
    """So no text is fetched for it, and a client gets as much in as at a full site. What other sites let in comes, as at a full site."""
    quota = {family: text.replace("60K", "200K") for family, text in QUOTA.items()}
    more = {family: quota[family] + NO_AFTER[family] for family in quota}
    there = group("sdbox", storage, on_demand="b", more=more)
    full, thin = there.replicas
    with Site(full, USER) as site:
        for name in ("one", "two", "three"):
            site.append("INBOX", name, size=SIZE)
    wait_mails(thin, 3)
    assert stub_lines(thin) == 3
    whole = sum(len(mail(name, SIZE)) for name in ("one", "two", "three"))
    assert quota_of(thin) == quota_of(full) == (-(-whole // 1024), 3)
    for replica in there.replicas:
        with Site(replica, USER) as site:
            with pytest.raises(ImapError, match="OVERQUOTA"):
                site.append("INBOX", "more", size=200 * 1024 - whole + 1000)
    assert fetched(thin) == []
    there.cut()
    for replica, name in ((full, "four"), (thin, "five")):
        with Site(replica, USER) as site:
            site.append("INBOX", name, size=45000)
            with pytest.raises(ImapError, match="OVERQUOTA"):
                site.copy("INBOX", "one", "INBOX")
    there.heal()
    wait_mails(thin, 5)
    wait_mails(full, 5)
    assert stub_lines(thin) == 4 and fetched(thin) == []
    assert quota_of(thin) == quota_of(full)
    assert quota_of(thin)[0] > 200
    with Site(thin, USER) as site:
        with pytest.raises(ImapError, match="OVERQUOTA"):
            site.append("INBOX", "more")
        for name in ("one", "two"):
            site.expunge("INBOX", name)
        site.copy("INBOX", "three", "INBOX")
    assert fetched(thin) == []
    wait_mails(full, 4)
    wait_mails(thin, 4)
    assert quota_of(thin) == quota_of(full)
    wait_equal(there.replicas, [USER], WITHIN)
