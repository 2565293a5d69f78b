"""Shell completion: what `dovelane complete` offers, and that bash, zsh and fish use it."""

import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess

from support.lane_server import BUILD
from support.waiting import DidNotHappen, eventually
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
        (("shape", "lm"), HOPS[:1]),
        (("shape", HOPS[0], "rat"), ["rate="]),
        (("shape", HOPS[0], "--su"), ["--suspend"]),
        (("shape", "--explain", "lm"), HOPS[:1]),
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


NO_SHELL = "no {} here: ./setup long installs it"


def home_of(tmp_path):
    """What a shell writes stays in a directory of its own, whoever runs it."""
    return {
        "PATH": f"{PROGRAM.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


def typed(argv, env, lines, wanted):
    """What a shell on a terminal shows, once each line was typed and each pattern was there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env)
    shown = ""

    def shows(pattern):
        nonlocal shown
        while select.select([terminal], [], [], 0)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
        return re.search(pattern, shown)

    try:
        for line, pattern in zip(lines, wanted, strict=True):
            os.write(terminal, line.encode())
            eventually(f"{pattern} is shown", lambda p=pattern: shows(p))
    except DidNotHappen as e:
        raise AssertionError(shown) from e
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown


@pytest.mark.skipif(not shutil.which("zsh"), reason=NO_SHELL.format("zsh"))
def test_zsh(config, tmp_path):
    """On a terminal. compinit -D: without the file that zsh keeps in the user's home."""
    begin = f"fpath=({SCRIPTS} $fpath); autoload -Uz compinit && compinit -u -D && print be''gun\n"
    shown = typed(
        ["zsh", "-f", "-i"],
        home_of(tmp_path),
        [begin, f"dovelane -c {config} nodes --forget m\t\t", "\x15dovelane capa\t"],
        ["begun", r"mx1\s+mx2|mx1[^#]*\n.*mx2", "dovelane capacity"],
    )
    assert "command not found" not in shown and {*tmp_path.iterdir()} == {config}, shown


@pytest.mark.skipif(not shutil.which("fish"), reason=NO_SHELL.format("fish"))
def test_fish(config, tmp_path):
    script = (
        f"source {SCRIPTS / 'dovelane.fish'}; complete -C '{PROGRAM} -c {config} nodes --forget '"
    )
    said = subprocess.run(
        ["fish", "--no-config", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=home_of(tmp_path),
    )
    assert [line.split("\t")[0] for line in said.stdout.splitlines()] == ["mx1", "mx2"], said
