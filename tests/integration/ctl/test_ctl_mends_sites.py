"""What `dovelane check replicas` finds between two sites, and each mend tried. test_ctl_mends.py
counts these with the others."""

import re
import shutil
import subprocess

import pytest
from support.lane_server import BUILD
from support.mends import command, mends
from test_ctl_mends_nodes import jump
from test_ctl_mends_replicas import STORAGE, site, sites  # noqa: F401 - fixtures

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("doveconf"), reason="no Dovecot here"),
]


@mends("replica-silent")
def test_a_site_whose_redis_is_away(sites):
    a, b = sites
    for site, level in ((b, "WARNING"), (a, "CRITICAL")):
        site.server.stop()
        assert a.finds("replica-silent", about=site.name).level == level
        site.server.start()
        a.lacks("replica-silent")


@mends("replica-clock")
def test_a_site_with_another_clock(sites, tmp_path, monkeypatch):
    """The clock of a server is moved, as where no chrony runs."""
    a, b = sites
    file = tmp_path / "jump"
    jump(file, 0)
    b.server.stop()
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(BUILD / "tests/support/clock-jump.so"))
        environment.setenv("CLOCK_JUMP", str(file))
        b.server.start()
    a.lacks("replica-clock")
    jump(file, -3600)
    found = a.finds("replica-clock", about="site-b")
    assert (
        re.search(r"its clock is (3599|3600|3601) s behind this host's", found.text)
        and found.mend == "chrony or systemd-timesyncd on every host"
    )
    jump(file, 0)
    a.lacks("replica-clock")


OTHERWISE = [
    (
        "replica-separator",
        "separators are inbox:. , and here inbox:/",
        lambda b: setattr(b, "namespace", "  inbox = yes\n  separator = .\n"),
    ),
    (
        "replica-prefix",
        "prefixes of its namespaces are inbox:Mail/, and here inbox:",
        lambda b: setattr(b, "namespace", "  inbox = yes\n  separator = /\n  prefix = Mail/\n"),
    ),
    (
        "replica-limits",
        "keeps mail as inbox:maildir/maildir++, and this one as inbox:sdbox/fs",
        lambda b: setattr(b, "mail", STORAGE[b.version]["maildir"]),
    ),
    (
        "replica-acl",
        "its workers load acl, and those here do not",
        lambda b: setattr(b, "more", b.plugins("dovelane", "acl")),
    ),
    (
        "replica-group",
        "of another group, ids 1 2 3, namespaces inbox, and this one of ids 1 2, namespaces inbox",
        lambda b: b.ids.update({"site-c": 3}),
    ),
]


@pytest.mark.parametrize(
    "name, says, spoil",
    OTHERWISE,
    ids=lambda value: value if isinstance(value, str) and "-" in value[:9] else "",
)
@mends(*(row[0] for row in OTHERWISE), each=True)
def test_a_site_that_differs(sites, name, says, spoil):
    """Seen from either one, once both were checked."""
    a, b = sites
    b.address["site-c"] = "127.0.0.1:9"
    b.check.run("replicas")
    a.lacks(name)
    kept = dict(b.__dict__, ids=dict(b.ids))
    spoil(b)
    b.write()
    b.finds(name, about="site-a")
    found = a.finds(name, about="site-b")
    assert says.replace(" ,", ",") in found.text, found
    b.__dict__.update(kept)
    b.write()
    b.lacks(name)
    a.lacks(name)


@mends("facts-refused")
def test_a_node_that_does_not_take_what_a_site_says(sites):
    a, b = sites
    b.server.client().call("ACL", "SETUSER", "default", "-set")
    found = a.finds("facts-refused", about="site-b")
    assert (
        found.mend == "`dovelane acl` again, into the aclfile of that Redis, and ACL LOAD"
        and "NOPERM" in found.text
    )
    b.server.client().call("ACL", "SETUSER", "default", "+@all")
    a.lacks("facts-refused")


@mends("name-twice")
def test_a_host_that_says_it_is_the_other_one(sites):
    """Before either has run: by what was said; once one runs: by its own word; and once the second
    one was refused."""
    a, b = sites
    own = subprocess.run(
        ["hostname"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()
    elsewhere = ("unshare", "--uts", "sh", "-c", 'hostname mx9 && exec "$0" "$@"')
    assert "name-twice" not in command(
        a.conf, "--dovecot-config", a.dovecot, "replicas", before=elsewhere
    )
    found = a.finds("name-twice")
    assert (
        f"host mx9 said of itself that it is site-a, and this host, {own}, says so, too"
        in found.text
        and found.level == "WARNING"
    )
    a.lacks("name-twice")  # it has taken that one's place
    client = b.server.client()
    for key, text in (
        ("dovelane.site:site-a", "mx9 runs under this name, and this host"),
        ("dovelane.site:site-a:second", f"one on {own}, and one on mx9, which is refused"),
    ):
        client.call("SET", key, "1 1f 2f 3f 77 mx9")
        if key.endswith("second"):
            client.call("SET", "dovelane.site:site-a", f"1 1f 2f 3f 77 {own}")
        found = a.finds("name-twice")
        assert (
            text in found.text
            and found.level == "CRITICAL"
            and "-n in the executable" in found.mend
        ), found
        client.call("DEL", key)
    a.lacks("name-twice")
