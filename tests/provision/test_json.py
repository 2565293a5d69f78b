"""dovelane -j init, join, invite, group, cert: one document, as docs/json has it."""

import sys

import conftest
import pytest

sys.path.insert(0, str(conftest.ROOT / "tests"))

from support import json_schemas  # noqa: E402


@pytest.fixture
def ask(dovelane):
    def run(*words, status=0):
        said, text = dovelane("--json", *words)
        assert said == status, text
        return json_schemas.judged(text)

    return run


def test_init(ask, host):
    made = ask("init", "--address", "192.0.2.1", "--name", "mx1", "--gateway", "--dry-run")
    assert made["schema"] == "init/1" and made["changes"] and not host.exists("/etc/dovelane/group")


def test_init_asks_nobody(dovelane):
    status, text = dovelane("--json", "init", "--address", "192.0.2.1", "--gateway")
    assert status == 2 and "with --yes" in json_schemas.errors(text)[0]


def test_invite(ask, ready, monkeypatch):
    made = ask("invite")
    assert made["address"].startswith("192.0.2.1") and made["token"] and made["good_seconds"] > 0


def test_group_and_cert(ask, ready):
    made = ask("group", status=1)  # its node is not there to be asked
    assert [each["name"] for each in made["hosts"]] == ["mx1"] and made["hosts"][0]["trouble"]
    made = ask("cert")
    assert [each["of"] for each in made["certificates"]] == ["authority", "this node"]
    assert all(each["left_seconds"] > 0 for each in made["certificates"])


@pytest.mark.parametrize(
    "words",
    [
        ("join", "192.0.2.9:7002", "--token", "nonsense"),
        ("cert",),
        ("init", "--nonsense"),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_trouble_is_an_object_on_stderr(dovelane, words):
    status, text = dovelane("--json", *words)
    assert status == 2 and len(json_schemas.errors(text)) == 1, text
