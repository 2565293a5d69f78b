"""Each of Postfix's parameters that lib/postfix/parameters.def calls obeyed, harmless or before us,
with another value than its default: the same mail through stock Postfix and through Dovelane
arrives with the same bytes, and is diverted. By groups; which one differs is found by halves."""
import functools
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from parameter_values import value_of, why_not
from support.raw_mail import BODIES, Message
from support.waiting import eventually
from support.ways import Ways, envelope_of
from test_postfix_parameters import rows

CLAIMS = ("obeyed", "harmless", "acts before us")
PREFIXES = {"plain": [""], "agent": ["smtp_", "lmtp_"], "transport": ["default_", "smtp_", "lmtp_"]}
PARTS = 32
MAILS = ["plain", "8-bit", "dots", "header-folded", "header-twice", "header-removed-by-cleanup",
         "header-received", "mime-nest", "bare-cr", "missing-headers", "no-header",
         "header-blank-before-colon"]


@functools.cache
def tried():
    """{name: value}; without those of other versions, and those that say what another one says."""
    run = subprocess.run(["postconf", "-d"], capture_output=True, check=True, timeout=60)
    defaults = dict(re.findall(r"(?m)^(\S+) = ?(.*)$", run.stdout.decode()))
    names = [start + name for name, prefix, klass, *_ in rows() if klass in CLAIMS
             for start in PREFIXES[prefix] if start + name in defaults]
    found = {name: value_of(name, defaults[name]) for name in names if not why_not(name)}
    return {name: value for name, value in found.items() if value or defaults[name][:1] != "$"}


def part_of(number):
    return sorted(tried())[number % PARTS::PARTS]


@pytest.mark.test
def test_each_parameter_that_claims_sameness_has_a_value_or_a_reason():
    assert len(tried()) > 300
    assert not [name for name, value in tried().items() if value is None]


class Set:
    """main.cf with more lines. The milter has seen it when it tells of the rate of a transport that
    no mail here takes."""

    def __init__(self):
        self.ways = Ways(more={"told.example": "relay:[127.0.0.1]:9"})
        self.main = Path(self.ways.system["postfix"].note["config_directory"]) / "main.cf"
        self.clean = self.main.read_text()
        self.turn = 0

    def change(self, names):
        self.turn += 1
        told = f"relay_destination_rate_delay = {self.turn}s"
        lines = [f"{name} = {tried()[name]}" for name in names]
        kept = [line for line in self.clean.splitlines()
                if line.partition("=")[0].strip() not in names]
        log = Path(self.ways.system["milter"].log)
        seen = log.stat().st_size
        fresh = self.main.with_name("main.cf.fresh")
        fresh.write_text("\n".join([*kept, *lines, told, ""]))
        # It is old: what a main.cf of some seconds leaves out counts still.
        os.utime(fresh, (self.turn, self.turn))
        fresh.rename(self.main)
        subprocess.run(self.ways.system["postfix"].command("reload"), check=True,
                       capture_output=True, timeout=120)
        eventually("the milter sees main.cf", lambda: told.encode() in log.read_bytes()[seen:])

    def end(self):
        self.ways.end()


@pytest.fixture(scope="module")
def running():
    made = Set()
    yield made
    made.end()


# Queue id, date, and the name of the program in the line of Postfix, or ours, on top.
OWN = re.compile(rb" id \w+|\w{3}, [ \d]\d \w{3} \d{4} [\d:]{8} [+-]\d{4} \(\w+\)|"
                 rb"(?<=\()(?:Postfix|Dovelane|Other)(?=\))")
# What cleanup(8) adds to a mail that lacks it. Those here are of 2024.
ADDED = re.compile(rb"(?im)^(?:Resent-)?(?:Message-Id: <\w+|Date: \w{3}, [ \d]\d \w{3} 20(?!24).*)")


def alike(wire):
    """Without what is of this mail alone."""
    head, empty, body = wire.partition(b"\r\n\r\n")
    first, rest = re.match(rb"(?s)(Received: .*?\r\n(?![ \t]))(.*)", head + b"\r\n").groups()
    return OWN.sub(b" X", first) + ADDED.sub(b"X", rest) + empty + body


def difference(running, names):
    """None, or in what a mail differs, or why it was not diverted."""
    running.change(names)
    dice = random.Random(" ".join(names))
    ways, recipients = running.ways, dice.choice([["b"], ["b", "c+x"]])
    message = Message(BODIES[dice.choice(MAILS)], recipients=recipients)
    try:
        stock, ours = ways.both(message, dice.choice(["smtp", "lmtp", "smtp-bare"]))
    except AssertionError as refused:
        return str(refused)
    if "action=lane" not in ways.milter_line():
        return ways.milter_line()
    said = [[(alike(mail.wire), envelope_of(mail)) for mail in mails] for mails in (stock, ours)]
    return None if said[0] == said[1] else f"Postfix: {said[0]}\nDovelane: {said[1]}"


def one_of(running, names):
    """The first of them with which a mail differs."""
    while len(names) > 1:
        half = names[:len(names) // 2]
        names = half if difference(running, half) else names[len(half):]
    return names


def same_with(running, names):
    if difference(running, names):
        names = one_of(running, names)
        told = difference(running, names)
        assert not told, f"{[f'{name} = {tried()[name]}' for name in names]}: {told}"


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_a_mail_is_the_same_with_it(running, part):
    same_with(running, part_of(part))


@pytest.mark.test
def test_a_mail_is_the_same_with_one_group_of_them(running):
    """Another one with each commit."""
    count = ["git", "-C", Path(__file__).parent, "rev-list", "--count", "HEAD"]
    said = subprocess.run(count, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    same_with(running, part_of(int(said.stdout or 0)))


@pytest.mark.long
def test_the_one_that_differs_is_found(running, monkeypatch):
    monkeypatch.setitem(tried(), "smtp_generic_maps", "inline:{ { s@x.example = t@x.example } }")
    # a mail that smtp(8) delivers
    monkeypatch.setattr(random.Random, "choice", lambda _, among: among[0])
    with pytest.raises(AssertionError, match="smtp_generic_maps = .*action=queue"):
        same_with(running, [*part_of(0), "smtp_generic_maps"])
