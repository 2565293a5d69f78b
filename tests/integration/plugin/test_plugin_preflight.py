"""doveadm dovelane preflight: what `dovelane check replicas` finds, before the first start."""

import re
import shutil
import subprocess

import pytest
from plugin_fixtures import needs_root, sdbox, world  # noqa: F401
from support.lane_server import BUILD, LaneServer

pytestmark = [needs_root, pytest.mark.long]


@pytest.fixture
def nodes(tmp_path):
    found = {
        name: LaneServer(tmp_path, "--lane.node", name, name=f"redis-{name}", module_line=True)
        for name in ("site-a", "site-b")
    }
    for server in found.values():
        server.start()
    yield found
    for server in found.values():
        server.stop(quiet=True)


def preflight(world, *words, sbin=None):  # noqa: F811
    """With a directory over that of the programs of root, as far as it has some."""
    over = (
        []
        if sbin is None
        else [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            f'mount -t overlay overlay -o lowerdir={sbin}:/usr/sbin /usr/sbin && exec "$@"',
            "sh",
        ]
    )
    return subprocess.run(
        [
            *over,
            *world.words(
                shutil.which("doveadm"), "-c", world.config, "dovelane", "preflight", *words
            ),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_preflight_before_the_first_start(sdbox, tmp_path, nodes):  # noqa: F811
    """No replicator runs, nor can it: Dovecot has no such service yet."""
    sbin, conf = tmp_path / "sbin", tmp_path / "dovelane.conf"
    sbin.mkdir()
    shutil.copy(BUILD / "ctl" / "dovelane", sbin)
    (sbin / "doveadm").write_text(
        "#!/bin/sh\necho anna@example.org\n"
    )  # a static userdb lists nobody, and logs an error
    (sbin / "doveadm").chmod(0o755)
    conf.write_text(
        f'copies = 1\nreplicate_namespaces = {{ "inbox" }}\nreplicator_dir = "{tmp_path}/state"\n'
        + "".join(
            f'replica {name} {{ id = {n}  redis = "unix:{server.path}" }}\n'
            for n, (name, server) in enumerate(nodes.items(), 1)
        )
    )
    done = preflight(sdbox, "-C", conf, sbin=sbin)
    assert (
        (done.returncode, done.stderr) == (1, "")
        and "[replicator-service]" in done.stdout
        and "mend: " in done.stdout
    ), done
    assert re.search(r"(?m)^\d+ critical, \d+ warnings?, \d+ good$", done.stdout)
    assert (
        "ok       site site-b: its Redis answers"
        in preflight(sdbox, "-C", conf, "-v", sbin=sbin).stdout
    )
    done = preflight(sdbox, "-C", "/nowhere", sbin=sbin)
    assert done.returncode == 1 and "/nowhere" in done.stderr, done


def test_preflight_of_a_host_that_is_ready(sdbox, tmp_path, nodes):  # noqa: F811
    """The exit status is 0, as a script waits for it."""
    sbin = tmp_path / "sbin"
    sbin.mkdir()
    (sbin / "dovelane").write_text('#!/bin/sh\necho "$@"\n')
    (sbin / "dovelane").chmod(0o755)
    done = preflight(sdbox, sbin=sbin)
    assert (done.returncode, done.stderr) == (0, ""), done
    words = f"check --dovecot-config {sdbox.config} replicas"
    assert done.stdout == f"-c /etc/dovelane/dovelane.conf {words}\n", done


def test_preflight_without_the_command(sdbox, tmp_path):  # noqa: F811
    sbin = tmp_path / "sbin"
    sbin.mkdir()
    (sbin / "dovelane").write_text("no program")
    done = preflight(sdbox, sbin=sbin)
    assert done.returncode == 69 and "dovelane cannot be run" in done.stderr, done
