"""Each site's replicator has a user of its own at each node: init, join and the group's changes make them."""
import re

import pytest
from conftest import PlayedHost, alone
from test_enroll import Open
from test_group import nodes, seal  # noqa: F401 (a fixture)
from test_plan import INIT

import authority
import conf
import desired
import distribute
import dovecot
import group
import main
import redis

pytestmark = pytest.mark.long

SITE = (*INIT, "--site", "one")


@pytest.fixture(scope="module")
def first_site(tmp_path_factory):
    """Made once: each test begins with a copy."""
    made = PlayedHost(tmp_path_factory.mktemp("first") / "root")
    with pytest.MonkeyPatch.context() as patch:
        alone(patch)
        patch.setattr(distribute, "sync", lambda *_: None)
        with pytest.raises(SystemExit) as end:
            main.start(list(SITE), made)
    assert not end.value.code
    return made


@pytest.fixture
def site(first_site, tmp_path):
    return PlayedHost(tmp_path / "site", first_site)


def users(text):
    return dict(re.findall(r"(?m)^user (dovelane-replicator\S*) on #(\w+)", text))


def test_a_site_has_a_user_of_its_own(site):
    name, secret = site.text(desired.replica_file("one")).split()
    assert name == "dovelane-replicator:one" and not site.exists(desired.user_file("dovelane-replicator"))
    assert users(site.text(redis.USERS)) == {"dovelane-replicator:one@one": redis.hashed(desired.at_node(secret, "dovelane-replicator:one@one"))[1:]}
    assert 'replica_user_file = "/etc/dovelane/dovelane-replicator/%r.user"' in site.text(conf.FILE)


def joined(site, name="mx2", other="two", replace=None):
    opened = Open(site)
    token = opened.invite(replace=replace)
    opened.listen()
    said = opened.join(token, name=name, address="192.0.2.2", site=other, key=authority.new_key())
    opened.close()
    return said


def test_a_site_that_joins_gets_its_own_secret_and_a_user_at_each_node(site, dovelane):
    said = joined(site)
    secret = said["passwords"]["dovelane-replicator"]
    assert secret != site.text(desired.replica_file("one")).split()[1] and secret not in said["group"]
    description = desired.read_group(site)[1]
    assert set(users(description["acl"])) == {f"dovelane-replicator:{one}@{node}" for one in ("one", "two") for node in ("one", "two")}
    assert users(description["acl"])["dovelane-replicator:two@one"] == redis.hashed(desired.at_node(secret, "dovelane-replicator:two@one"))[1:]
    assert dovelane("init", "--yes", on=site)[0] == 0
    assert set(users(site.text(redis.USERS))) == {"dovelane-replicator:one@one", "dovelane-replicator:two@one"}, "those of the own node"
    assert "nothing to do" in dovelane("init", "--yes", on=site)[1]


def test_the_host_that_joins_has_its_own_file_alone(site, dovelane, tmp_path):
    second = PlayedHost(tmp_path / "second")
    opened = Open(site)
    token, where = opened.invite(), opened.listen()
    status, said = dovelane("join", where if isinstance(where, str) else f"127.0.0.1:{where}", "--token", token, "--name", "mx2", "--address", "192.0.2.2", "--site", "two", "--yes", on=second)
    assert status == 0, said
    assert second.text(desired.replica_file("two")).startswith("dovelane-replicator:two ") and not second.exists(desired.replica_file("one"))
    assert not second.exists(desired.REPLICAS_KEY) and not second.exists(desired.user_file("dovelane-replicator"))
    assert set(users(second.text(redis.USERS))) == {"dovelane-replicator:one@two", "dovelane-replicator:two@two"}
    assert "replica_user_file" in second.text(conf.FILE)


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_who_is_made_a_site_anew_gets_another_secret(site, how):
    """The host of before may have been stolen: it must not take what is for the new one, nor speak in its name."""
    before = joined(site)["passwords"]["dovelane-replicator"]
    users_before = users(desired.read_group(site)[1]["acl"])
    if how == "removed":
        distribute.change(site, lambda d: group.remove(d, "mx2"))
    secret = joined(site, replace="mx2" if how == "replaced" else None)["passwords"]["dovelane-replicator"]
    now = users(desired.read_group(site)[1]["acl"])
    assert secret != before and set(now) == set(users_before)
    assert now["dovelane-replicator:two@one"] == redis.hashed(desired.at_node(secret, "dovelane-replicator:two@one"))[1:]
    assert now["dovelane-replicator:one@one"] == users_before["dovelane-replicator:one@one"], "nobody else's"
    assert [m["site_id"] for m in desired.read_group(site)[1]["members"]] == [1, 2], "the number stays"


def test_who_takes_a_hosts_place_is_the_same_site(site):
    joined(site)
    with pytest.raises(group.Trouble, match="mx2 is the site two, whose number its users' states have: join with --site two"):
        joined(site, other="three", replace="mx2")
    with_none = group.add(desired.read_group(site)[1], "mx2", "192.0.2.2", True, "", replace=True)
    assert with_none["gone_sites"] == {"two": 2}


def test_a_site_that_goes_loses_its_users(site, dovelane):
    joined(site)
    dovelane("init", "--yes", on=site)
    distribute.change(site, lambda d: {**d, "members": d["members"][:1]})
    assert set(users(desired.read_group(site)[1]["acl"])) == {"dovelane-replicator:one@one"}
    dovelane("init", "--yes", on=site)
    assert set(users(site.text(redis.USERS))) == {"dovelane-replicator:one@one"}


def test_a_group_of_before_keeps_its_one_user_until_that_file_goes(site, dovelane):
    """Its other sites come as him; here the replicator has its own at once."""
    shared = site.path(desired.user_file("dovelane-replicator"))
    shared.write_text("dovelane-replicator of-all-sites\n")
    assert dovelane("init", "--yes", on=site)[0] == 0
    assert set(users(site.text(redis.USERS))) == {"dovelane-replicator", "dovelane-replicator:one@one"}
    shared.unlink()
    assert dovelane("init", "--yes", on=site)[0] == 0
    assert set(users(site.text(redis.USERS))) == {"dovelane-replicator:one@one"}


def test_a_host_without_a_secret_of_its_own_goes_on_as_before(site):
    """One that joined before there were any."""
    description = desired.read_group(site)[1]
    local = {**desired.read_local(site)}
    assert "replica_user_file" not in conf.render(None, description, local, own_replica=False)
    assert "replica_user_file" in conf.render(None, description, {**local, "site": ""})


def test_sites_beyond_what_a_description_holds_are_refused(site):
    description = desired.read_group(site)[1]
    key = site.text(f"{desired.AUTHORITY}/ca.key")
    with pytest.raises(group.Trouble, match="too many sites"):
        group.seal(key, {**description, "acl": "x" * group.LARGEST})


def test_a_dovecot_that_was_set_up_before_keeps_its_user(site, dovelane):
    """Its replicator runs as dovelane until an admin changes that: its password stays one that it can read."""
    assert desired.group_of(site, "dovelane-replicator") == "dovelane-replicator"
    file = site.path(dovecot.REPLICATION)
    file.write_text("service dovelane-replicator {\n  user = dovelane\n}\n")
    assert desired.group_of(site, "dovelane-replicator") == "dovelane" and desired.group_of(site, "dovelane-proxy") == "dovelane-proxy"
    file.write_text("service dovelane-replicator {\n  user = dovelane-replicator\n}\n")
    assert desired.group_of(site, "dovelane-replicator") == "dovelane-replicator"
