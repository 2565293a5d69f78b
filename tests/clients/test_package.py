"""The package as others use it: its types, its examples, its README, its version."""
import ast
import os
import re
import shutil
import subprocess
import sys

import dovelane_lanes
import pytest
from clients.conftest import PACKAGE
from support.lane_server import ROOT

pytestmark = pytest.mark.check
README = (PACKAGE / "README.md").read_text()


def run(*words, **more):
    env = dict(os.environ, PYTHONPATH=str(PACKAGE / "src"))
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300,
                          env=env, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def named(nodes):
    return [f"{name}={url}" for name, url in nodes.urls().items()]


def test_types(tmp_path):
    if not shutil.which("mypy", path="/usr/bin"):
        pytest.skip("mypy is not installed")
    out = run("/usr/bin/python3", "-m", "mypy", "--cache-dir", tmp_path, "--strict", "src",
              "examples", cwd=PACKAGE)
    assert out.startswith("Success")


def test_the_billing_example(nodes):
    out = run(sys.executable, PACKAGE / "examples" / "billing.py", *named(nodes))
    assert out == "booked 249, for a person: call 42: 294 s\nstored anew, booked 1, left 0\n"


def test_the_notify_example(nodes):
    out = run(sys.executable, PACKAGE / "examples" / "notify.py", *named(nodes))
    assert out == "sent 50, revoked: removed\n"


def test_the_readme_begins_with_code_that_runs(nodes):
    code = re.findall(r"```python\n(.*?)```", README, re.S)
    for name, url in nodes.urls().items():
        code[0] = re.sub(rf'("{name}": )"[^"]*"', rf'\1"{url}"', code[0])
    assert run(sys.executable, "-c", code[0]) == "61 seconds first\n"
    for each in code:
        ast.parse(each)


def test_the_readme_names_what_there_is():
    for name in dovelane_lanes.__all__:
        assert name in README, f"README.md does not name {name}"
    for name in re.findall(r"`(?:consumer|lanes)\.(\w+)\(", README):
        assert any(hasattr(kind, name)
                   for kind in (dovelane_lanes.Consumer, dovelane_lanes.LaneClient)), name


def test_both_clients_have_the_same_methods():
    for one, other in ((dovelane_lanes.LaneClient, dovelane_lanes.AsyncLaneClient),
                       (dovelane_lanes.Consumer, dovelane_lanes.AsyncConsumer)):
        assert [n for n in vars(one) if n[0] != "_"] == [n for n in vars(other) if n[0] != "_"]


def test_its_version_is_the_projects():
    version = re.search(r"version: '(.*)'", (ROOT / "meson.build").read_text())[1]
    assert dovelane_lanes.__version__ == version
    assert f'version = "{version}"' in (PACKAGE / "pyproject.toml").read_text()
