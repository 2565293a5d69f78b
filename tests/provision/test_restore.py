"""The host with the authority is lost; a copy of its files is there."""
import json
import shutil

import desired
import group
import pytest
from test_plan import INIT

pytestmark = pytest.mark.long


def lose(host, *kept):
    """A new host, but for these of /etc/dovelane."""
    copy, etc = host.root / "copy", host.path("/etc/dovelane")
    shutil.copytree(etc, copy)
    for lost in ("/etc/dovelane", "/var/lib/dovelane-provision", "/etc/redis/dovelane", "/var/lib/dovelane"):
        shutil.rmtree(host.path(lost), ignore_errors=True)
    for name in kept or (".",):
        shutil.copytree(copy / name, etc / name, dirs_exist_ok=True)
    shutil.rmtree(copy)


def test_a_copy_of_etc_dovelane_brings_the_group_back(host, dovelane):
    assert dovelane(*INIT)[0] == 0
    etc = host.path("/etc/dovelane")
    before = {name: (etc / name).read_bytes() for name in ("authority/ca.key", "authority/ca.crt", "dovelane-relay/user")}
    description = desired.read_group(host)[1]
    lose(host)
    status, said = dovelane(*INIT)
    assert status == 0, said
    assert {name: (etc / name).read_bytes() for name in before} == before
    now = desired.read_group(host)[1]
    assert now["members"] == description["members"] and now["serial"] >= description["serial"], json.dumps(now)
    assert dovelane(*INIT)[0] == 0


def test_the_authority_alone_makes_no_other_group(host, dovelane):
    """It would have new passwords: the other hosts could not talk to it, and all words would be that all is well."""
    assert dovelane(*INIT)[0] == 0
    lose(host, "authority")
    status, said = dovelane(*INIT)
    assert status == 2 and "Bring all of /etc/dovelane back" in said and not host.exists(group.FILE)
    shutil.move(host.path("/etc/dovelane/authority"), host.root / "away")
    assert dovelane(*INIT)[0] == 0
