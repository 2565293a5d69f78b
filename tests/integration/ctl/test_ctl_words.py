"""What the command says when it is asked for help, and how it says which mails."""
import re
import subprocess

import pytest
from support.lane_server import BUILD

pytestmark = [pytest.mark.core, pytest.mark.long]



def dovelane(*words):
    return subprocess.run([BUILD / "ctl" / "dovelane", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def listed():
    """The verbs, as the command's own table has them."""
    return re.findall(r"(?m)^  ([a-z]+) ", dovelane("--help").stdout)


VERBS = listed()
# Of these, help says what they take: "which mails".
OF_MAILS = re.findall(r"(?m)^  ([a-z]+) (?:(?!  ).)*which mails?", dovelane("--help").stdout)


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


def test_the_table_of_verbs_is_read_here():
    assert {"mailq", "check", "route", "init", "enroll"} <= set(VERBS) and len(VERBS) == len(set(VERBS)) > 20, VERBS
    assert set(OF_MAILS) == {"mailq", "show", "cat", "qshape", "hold", "release", "flush", "requeue", "delete"}


ALIASES = {"id": ("queue-id",), "sender": ("from",), "rcpt": ("recipient", "to"), "dest": ("destination", "next-hop"), "sasl-user": ("login",), "client": (), "age": (),
           "size": (), "error": (), "header": ()}
VALUES = {"age": "5m", "size": "10k", "client": "192.0.2.0/24"}


def test_help_has_all_selectors_and_their_aliases():
    said = dovelane("mailq", "--help").stdout
    for name, aliases in ALIASES.items():
        for each in (name, *aliases):
            assert f"--{each}" in said, each
    assert set(re.findall(r"--([a-z-]+)", said)) == {"all", *ALIASES, *(each for aliases in ALIASES.values() for each in aliases)}


@pytest.mark.parametrize("verb", OF_MAILS)
def test_every_verb_that_means_mails_takes_the_same_selectors(verb, tmp_path):
    config = tmp_path / "dovelane.conf"
    config.write_text('copies = 1\nnode mx1 { redis = "127.0.0.1:1" }\nreinject_port = "127.0.0.1:9"\n')
    options = [word for name, aliases in ALIASES.items() for each in (name, *aliases) for word in (f"--{each}", VALUES.get(name, "x"))]
    for words in (options, ["--all"], ["4jWhSH0G8Sz1SS5l", "4jWhSH0G8Sz1SS5m"]):
        said = dovelane("-c", config, verb, *words)
        assert said.returncode == 2 and "does not answer" in said.stderr and "no node answers" in said.stderr, said  # they were all understood
    said = dovelane("-c", config, verb, "--age", "5 fortnights")
    assert said.returncode == 2 and "5m or 5min" in said.stderr, said
