"""`dovelane group role`: what a site stores, on all hosts."""
import pytest
from test_group import nodes  # noqa: F401 (a fixture)
from test_members import pair  # noqa: F401 (a fixture)

import conf
import desired
import distribute
import group
from host import Trouble


def replica(host, site):
    return conf.settings(desired.read_group(host)[1], desired.read_local(host))[-1 if site == "two" else -2][1]


def give(dovelane, site, role):
    return dovelane("group", "role", site, role, "--yes", "--wait", "0")


def test_a_role_comes_into_each_hosts_file_and_goes_again(pair, dovelane):  # noqa: F811
    status, text = give(dovelane, "two", "backup")
    assert status == 0 and "Keep clients and deliveries away from it" in text, text
    assert "role = backup }" in replica(pair, "two") and "role" not in replica(pair, "one")
    assert replica(pair, "two") in pair.text(conf.FILE)
    assert "site two (1), backup" in dovelane("group")[1]
    status, text = give(dovelane, "two", "full")
    assert status == 0 and "role" not in pair.text(conf.FILE), text
    assert "nothing to do" in give(dovelane, "two", "full")[1]


def test_a_site_that_joins_later_has_its_role_from_the_beginning(pair, dovelane):  # noqa: F811
    status, text = give(dovelane, "three", "on-demand")
    assert status == 0 and "no host of the group is the site three yet (sites: one, two)" in text, text
    assert "role" not in pair.text(conf.FILE)
    distribute.change(pair, lambda d: group.add(d, "mx3", "192.0.2.3", False, "three"))
    dovelane("group", "sync")
    assert "role = on-demand }" in pair.text(conf.FILE)


def test_who_takes_a_hosts_place_or_comes_back_has_the_sites_role(pair, dovelane):  # noqa: F811
    give(dovelane, "two", "backup")
    distribute.change(pair, lambda d: group.add(d, "mx2", "192.0.2.7", True, "two", replace=True))
    assert group.role(desired.read_group(pair)[1], "two") == "backup"
    distribute.change(pair, lambda d: group.add(group.remove(d, "mx2"), "mx4", "192.0.2.8", True, "two"))
    assert group.role(desired.read_group(pair)[1], "two") == "backup"


@pytest.mark.parametrize("role, why", [("on-demand", "no replica has role = full"), ("backup", "no replica is left for clients")])
def test_roles_that_leave_nobody_for_clients_or_texts_are_refused(pair, dovelane, role, why):  # noqa: F811
    assert give(dovelane, "one", role)[0] == 0
    before = pair.text(group.FILE)
    status, text = give(dovelane, "two", role)
    assert status == 2 and why in text and pair.text(group.FILE) == before, text
    status, text = dovelane("group", "remove", "mx2", "--yes")
    assert status == 2 and why in text and pair.text(group.FILE) == before, text


@pytest.mark.parametrize("words, said", [(("two", "half"), "invalid choice: 'half' (choose from 'full', 'on-demand', 'backup')"), (("a b", "backup"), "'a b' is no site's name")])
def test_what_is_no_site_or_no_role_is_named(pair, dovelane, words, said):  # noqa: F811
    status, text = give(dovelane, *words)
    assert status == 2 and said in text, text


def test_a_program_that_knows_no_roles_refuses_a_group_that_has_some(pair, dovelane):  # noqa: F811
    """It would take such a site for a full one."""
    assert pair.text(group.FILE).startswith(f"{group.HEAD}\n")
    give(dovelane, "two", "backup")
    sealed = pair.text(group.FILE)
    assert sealed.startswith("dovelane-group 2\n") and group.role(group.unseal(pair.text(group.CA_FILE), sealed), "two") == "backup"
    give(dovelane, "two", "full")
    assert pair.text(group.FILE).startswith(f"{group.HEAD}\n")


@pytest.mark.parametrize("roles", [{"two": "half"}, {"two": 'backup"\n'}, {"a b": "backup"}, ["two"]])
def test_roles_that_may_not_come_into_a_configuration_file_are_named(pair, roles):  # noqa: F811
    with pytest.raises(Trouble, match="this program does not use that"):
        group.check({**desired.read_group(pair)[1], "roles": roles})
