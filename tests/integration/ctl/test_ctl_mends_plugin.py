"""What `dovelane check replicas` finds in what Dovecot's files say to the plugin, and each mend
tried. test_ctl_mends.py counts these with the others."""

import shutil

import pytest
from support.mends import mends
from support.stack.dovecot import version
from test_ctl_mends_replicas import site, sites  # noqa: F401 - fixtures

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("doveconf"), reason="no Dovecot here"),
]


@pytest.mark.skipif(version() >= (2, 4), reason="2.4 has no list that is made of another one")
def test_a_list_that_was_made_of_an_empty_one(site):
    """As the example has it: doveconf shows the value in quotes, with a blank before it."""
    site.more = "mail_plugins = $mail_plugins dovelane\n"
    site.write()
    site.lacks("plugin-missing")
    site.more += "protocol dovelane {\n  mail_plugins = \" trash\"\n}\n"
    site.write()
    assert "trash" in site.finds("plugin-acts").text


def say(site, lines):
    """Says that to the plugin, in this version's form."""
    site.services = f"{site.kept}plugin {{\n{lines}}}\n" if site.version == "2.3" else site.kept + lines
    site.write()


@mends("plugin-setting")
@pytest.mark.skipif(version() >= (2, 4), reason="2.4 refuses unknown settings and bad times itself")
@pytest.mark.parametrize(
    "spoilt, says",
    [
        ("dovelane_commit = peer", "peer is not taken"),
        ("dovelane_commit = peers\ndovelane_commit_wait = 10min", "10min is not taken"),
        ("dovelane_commit_wait = 2", "= 2 is not taken"),
        ("dovelane_comit = peers", "dovelane_comit = peers: the plugin has no setting"),
        ("dovelane_group_key_file = group.key", "group.key is not taken"),
    ],
)
def test_what_the_plugin_would_not_take(site, spoilt, says):
    site.kept = site.services
    for good in ("", "dovelane_commit = peers\ndovelane_commit_wait = 500 msecs\n"):
        say(site, good)
        site.lacks("plugin-setting")
    say(site, spoilt + "\n")
    found = site.finds("plugin-setting")
    assert says in found.text and ("dovelane_" in found.mend or "absolute path" in found.mend)
    say(site, "dovelane_commit = peers\n" if "comit" in spoilt else "")
    site.lacks("plugin-setting")


@mends("group-key")
def test_the_key_of_the_group(site, tmp_path):
    site.kept, key, other = site.services, tmp_path / "group.key", tmp_path / "other.key"
    key.write_text("k" * 64 + "\n")
    site.settings["group_key_file"] = f'"{key}"'
    site.write()
    site.lacks("group-key")
    with_id = 'destination "lmtp:[192.0.2.5]:24" { delivery_id = yes }\n'
    write = site.write

    def write_both():
        write()
        site.conf.write_text(site.conf.read_text() + with_id)

    site.write = write_both
    site.write()
    mend = site.finds("group-key").mend
    assert f"dovelane_group_key_file = {key}" in mend
    for path, says in ((tmp_path / "none", "cannot be read: No such file"), (other, "different keys")):
        other.write_text("o" * 64)
        say(site, f"dovelane_group_key_file = {path}\n")
        assert says in site.finds("group-key").text
        path.write_text("k" * 64)  # what the mend says
        site.lacks("group-key")
    say(site, mend.partition(" in ")[0] + "\n")
    site.lacks("group-key")


@mends("public-user")
def test_a_public_user_in_one_file_alone(site):
    site.kept = site.services
    site.lacks("public-user")
    say(site, "dovelane_public_user = public@example.org\n")
    assert '"public@example.org"' in site.finds("public-user").text
    site.settings["replicate_public_user"] = '"public@example.org"'
    site.write()
    site.lacks("public-user")
    say(site, "")
    assert 'replicate_public_user "public@example.org"' in site.finds("public-user").text


def test_the_file_may_be_named_by_another_path(site):
    site.change(f"-C {site.conf}", f"-C {site.conf.parent}/../{site.conf.parent.name}/{site.conf.name}")
    site.lacks("replicator-start")
