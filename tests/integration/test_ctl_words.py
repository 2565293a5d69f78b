"""What the command says when it is asked for help, and how it says which mails."""
import re
import subprocess

import pytest
from lane_server import BUILD

pytestmark = pytest.mark.core

VERBS = ("mailq", "show", "cat", "qshape", "hold", "release", "flush", "requeue", "delete", "divert", "drain", "check", "nodes", "acl", "capacity", "route")


def dovelane(*words):
    return subprocess.run([BUILD / "ctl" / "dovelane", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("option", ["--help", "-h", "--version", "-V", "help"])
def test_help_and_version_of_the_command_need_no_configuration(option):
    for words in ((option,), ("-c", "/nonexistent", option)):
        said = dovelane(*words)
        assert (said.returncode, said.stderr) == (0, "") and ("usage: dovelane" in said.stdout or re.fullmatch(r"dovelane \d\S+\n", said.stdout)), said


@pytest.mark.parametrize("verb", VERBS)
def test_help_and_version_of_each_verb_need_no_configuration(verb):
    for words in (("--help",), ("-h",), ("--verbose", "--help"), ("--version",), ("-V",)):
        said = dovelane("-c", "/nonexistent", verb, *words)
        assert (said.returncode, said.stderr) == (0, ""), said
        assert (f"usage: dovelane {verb}" if "h" in words[-1] else "dovelane ") in said.stdout, said
    assert f"usage: dovelane {verb}" in dovelane("help", verb).stdout


def test_every_command_that_help_lists_is_known_here():
    listed = re.findall(r"(?m)^  ([a-z]+) ", dovelane("--help").stdout)
    assert set(VERBS) <= set(listed) and set(listed) - set(VERBS) == {"init", "join", "invite", "group", "cert", "enroll"}, listed


@pytest.mark.parametrize("verb", ["mailq", "qshape", "hold", "release", "flush", "requeue", "delete"])
def test_every_verb_that_means_mails_takes_the_same_selectors(verb, tmp_path):
    config = tmp_path / "dovelane.conf"
    config.write_text('copies = 1\nnode mx1 { redis = "127.0.0.1:1" }\nreinject_port = "127.0.0.1:9"\n')
    options = [word for name in ("id", "sender", "rcpt", "recipient", "dest", "sasl-user", "client", "age", "size", "error", "header")
               for word in (f"--{name}", {"age": "5m", "size": "10k", "client": "192.0.2.0/24"}.get(name, "x"))]
    said = dovelane("-c", config, verb, *options)
    assert said.returncode == 2 and "does not answer" in said.stderr and "no node answers" in said.stderr, said  # they were all understood
    said = dovelane("-c", config, verb, "--age", "5 fortnights")
    assert said.returncode == 2 and "5m or 5min" in said.stderr, said
