"""What an admin reads of all users."""
import pytest
from site_user import Site
from support.stack.digest import wait_equal

pytestmark = pytest.mark.long

USERS = ["one@example.org", "two@example.org"]


def test_the_status_of_all_users_has_a_line_for_each(group):
    there = group("sdbox", "maildir")
    for user in USERS:
        with Site(there.replicas[0], user) as site:
            site.create("F")
            site.append("F", "m")
    wait_equal(there.replicas, USERS, 420.0)
    for replica in there.replicas:
        said = replica.doveadm("-f", "tab", "dovelane", "status", "-A").decode().splitlines()
        rows = [line.split("\t") for line in said if line.strip()]
        users = [row[0] for row in rows if "@" in row[0]]
        assert set(USERS) <= set(users) and len(users) == len(set(users)), said
        assert all(row[1] == "state" for row in rows if "@" in row[0]), said
        assert "folder\tF" in replica.doveadm("-f", "tab", "dovelane", "status", "-u",
                                              USERS[0]).decode()
