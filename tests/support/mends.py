"""`dovelane check` names what mends each of its findings: these are tried.

    @mends("copies-one")
    def test_copies(...):
        found = check.finds("copies-one", "config")   # it is there, once something was spoilt
        ...                                           # what found.mend says is done
        check.lacks("copies-one", "config")           # and it is gone

A test that is marked so fails when it has not seen each of its findings come and go. test_ctl_mends.py compares all marks with the table of the command.
"""
import functools
import re
import subprocess
from dataclasses import dataclass

from support.lane_server import BUILD

STATE = {}  # of the test that runs: finding to "found" or "gone"


def mends(*names, each=False):
    """each: a parametrized test, of which one run has one of the names, as its parameter `name`."""
    def decorate(test):
        @functools.wraps(test)
        def run(*args, **words):
            STATE.clear()
            test(*args, **words)
            wanted = [words["name"]] if each else names
            assert [name for name in wanted if STATE.get(name) != "gone"] == [], STATE
        run.mends = names
        return run
    return decorate


@dataclass
class Finding:
    """Two lines of check."""
    level: str
    about: str
    text: str
    name: str
    mend: str


FINDING = re.compile(r"(?m)^(WARNING |CRITICAL) (.+?): (.*) \[([a-z-]+)\]\n {11}mend: (.+)$")


class Check:
    """run(*words): what `dovelane check WORDS` printed."""

    def __init__(self, run):
        self.run = run

    def look(self, *words):
        out = self.run(*words)
        found = [Finding(level.strip(), *rest) for level, *rest in FINDING.findall(out)]
        assert len(found) == len(re.findall("(?m)^(WARNING|CRITICAL)", out)), out  # each has a name and a mend
        return found, out

    def finds(self, name, *words, about=""):
        found, out = self.look(*words)
        ours = [each for each in found if each.name == name and about in each.about]
        assert ours, (name, out)
        STATE.setdefault(name, "found")
        return ours[0]

    def lacks(self, name, *words, about=""):
        found, out = self.look(*words)
        assert not [each for each in found if each.name == name and about in each.about], (name, out)
        if name in STATE:
            STATE[name] = "gone"
        return out


def command(conf, *words, before=()):
    """What check printed by that configuration. before: what stands before the command, such as a shell in a namespace."""
    done = subprocess.run([*before, BUILD / "ctl" / "dovelane", "-c", conf, "check", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1, 2) and not done.stderr, done
    return done.stdout


def settings(mend):
    """NAME, VALUE of each `NAME = VALUE` that stands at the front of a mend, as dovelane.conf or main.cf have it."""
    found = re.match(r'(\w+) = ?("[^"]*"|\{[^}]*\}|[^ ,;]*)', mend)
    assert found, mend
    return found[1], found[2]
