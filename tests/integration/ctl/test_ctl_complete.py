"""Shell completion: what `dovelane complete` offers, and that bash, zsh and fish use it."""

import pathlib
import re
import shlex
import shutil
import subprocess

from support.lane_server import BUILD
import pytest

pytestmark = [pytest.mark.core, pytest.mark.long]

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "packaging" / "completion"
PROGRAM = BUILD / "ctl" / "dovelane"
CONFIG = """copies = 1
replicate_namespaces = { "inbox" }
divert = { "lmtp:[10.0.0.5]:24", "smtp:[next.example]" }
destination "smtp:[10.0.0.9]:25" { tls = "none" }
node mx1 { redis = "127.0.0.1:1" }
node mx2 { redis = "127.0.0.1:2" }
replica site-a { id = 1  redis = "127.0.0.1:1" }
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "dovelane.conf"
    path.write_text(CONFIG)
    return path


def offered(config, *words):
    said = subprocess.run(
        [PROGRAM, "complete", "-c", config, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stderr == ""
    return [line.split("\t")[0] for line in said.stdout.splitlines()]


def help_of(*words):
    return subprocess.run(
        [PROGRAM, *words, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout


HOPS = ["lmtp:[10.0.0.5]:24", "smtp:[next.example]", "smtp:[10.0.0.9]:25"]


@pytest.mark.parametrize(
    "words, wanted",
    [
        (("ma",), ["mailq"]),
        (("mailq", "--dest", ""), HOPS),
        (("hold", "--next-hop", "lm"), HOPS[:1]),
        (("mailq", "--dest=smtp:[n"), ["--dest=smtp:[next.example]"]),
        (("nodes", "--forget", ""), ["mx1", "mx2"]),
        (("acl", "--site", ""), ["site-a"]),
        (("divert", "o"), ["on", "off"]),
        (("drain", ""), ["--to-postfix", "--json", "--help"]),
        (("check", "d"), ["dovecot"]),
        (("check", "--postfix-config", ""), [":directories"]),
        (("check", "--as", ""), [":users"]),
        (("-c", ""), [":files"]),
        (("trace", "-f", ""), [":files"]),
        (("trace", "--file", ""), [":files"]),
        (("check", "--dovecot-config", ""), [":files"]),
        (("help", "qsh"), ["qshape"]),
        (("group", "divert", "remove", "lmtp"), HOPS[:1]),
        (("group", "remove", "mx2"), ["mx2"]),
        (("nonsense", ""), []),
        (("mailq", "--sender", ""), []),
    ],
    ids=str,
)
def test_what_comes_next(config, words, wanted):
    assert offered(config, *words) == wanted


def test_all_verbs_and_their_options(config):
    verbs = re.findall(r"(?m)^  ([a-z]+) ", help_of())
    assert offered(config, "") == verbs
    for verb in verbs:
        wanted = (
            set(re.findall(r"--[a-z][a-z-]*", help_of(verb)))
            if verb not in ("enroll", "group", "cert")
            else set()
        )
        elsewhere = {"divert": {"--to-postfix"}}.get(verb, set())  # help names another verb
        assert wanted - elsewhere <= set(offered(config, verb, "-")), verb


def test_without_a_configuration_verbs_are_there():
    assert offered("/nonexistent", "mailq", "--dest", "") == [] and "mailq" in offered(
        "/nonexistent", ""
    )


def bash(line, config, split=True):
    script = f"""
. {SCRIPTS / 'dovelane.bash'}
compopt() {{ :; }}
COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
_dovelane
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    said = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stderr == "", said
    return said.stdout.split() if split else said.stdout.splitlines()


def test_bash(config, tmp_path):
    assert bash(f"{PROGRAM} ma", config) == ["mailq"]
    base = f"{PROGRAM} -c {config} "
    assert bash(base + "nodes --forget ", config) == ["mx1", "mx2"]
    # readline keeps what is in front of the last colon.
    assert bash(base + "mailq --dest lmtp:", config) == ["[10.0.0.5]:24"]
    assert bash(base + "mailq --dest lmtp:[10.0.0.5]:", config) == ["24"]
    assert bash(base + "mailq --dest=lm", config) == ["lmtp:[10.0.0.5]:24"]
    assert str(config) in bash(f"{PROGRAM} -c {config.parent}/", config)
    assert str(config) in bash(f"{PROGRAM} trace -f {config.parent}/", config)


HOSTILE = ["smtp:[$(id>pwned)]:25", "smtp:[`id`]:25", "lmtp:unix:/tmp/a b;'c"]


def test_names_are_words_for_bash(config, tmp_path):
    """What is put on the line is read back as the name: nothing of it is a command."""
    names = "".join(f', "{name}"' for name in HOSTILE)
    config.write_text(CONFIG.replace('"smtp:[next.example]"', f'"smtp:[next.example]"{names}'))
    base = f"{PROGRAM} -c {config} mailq --dest "
    lines = bash(base, config, split=False)
    for name in HOSTILE:
        (line,) = [each for each in lines if each.replace("\\", "") == name]
        read = subprocess.run(
            ["bash", "--norc", "-c", f"printf %s {line}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=tmp_path,
        )
        assert read.stdout == name
        # What is there so far, escaped, is completed further.
        assert line[5:] in bash(base + line[:9], config, split=False)


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_zsh(config):
    script = f"""
autoload -Uz compinit; compinit -u -D
compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@" }}
words=({PROGRAM} -c {config} nodes --forget '') CURRENT=6
. {SCRIPTS / '_dovelane'}
"""
    said = subprocess.run(
        ["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout.split()[:2] == ["mx1", "mx2"], said


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
def test_fish(config):
    script = (
        f"source {SCRIPTS / 'dovelane.fish'}; complete -C '{PROGRAM} -c {config} nodes --forget '"
    )
    said = subprocess.run(
        ["fish", "--no-config", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": f"{PROGRAM.parent}:/usr/bin:/bin", "HOME": str(config.parent)},
    )
    assert [line.split("\t")[0] for line in said.stdout.splitlines()] == ["mx1", "mx2"], said
