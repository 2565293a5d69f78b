"""Virtual aliases, and local ones: a mail to an alias stays Postfix's, the mail to an address of
its own is diverted; each arrives once at all who are behind the alias."""
import pytest
from support import admin
from support.beside import Beside, same_text
from support.raw_mail import BODIES, Client, Message
from support.waiting import eventually

pytestmark = pytest.mark.long

ALIASES = ("inline:{ { team@smtp.example = b@smtp.example, c@smtp.example, d@lmtp.example }"
           " { chain@smtp.example = team@smtp.example, e@smtp.example }"
           " { self@smtp.example = self@smtp.example, f@smtp.example }"
           " { out@lmtp.example = g@smtp.example } { staff@smtp.example = staff@local.example }"
           " { @whole.example = h@smtp.example } }")
# Who gets it, by hop.
BEHIND = {
    "team@smtp.example": ("b c", "d"),
    "chain@smtp.example": ("b c e", "d"),
    "self@smtp.example": ("self f", ""),
    "out@lmtp.example": ("g", ""),
    "any@whole.example": ("h", ""),
    "staff@smtp.example": ("b", "k"),
    "staff@local.example": ("b", "k"),
}


@pytest.fixture(scope="module")
def aliased():
    ways = Beside({"virtual_alias_maps": ALIASES, "virtual_alias_domains": "whole.example",
                   "mydestination": "local.example", "local_transport": "local:$myhostname",
                   "alias_maps": "inline:{ { staff = b@smtp.example, k@lmtp.example } }",
                   "local_recipient_maps": "$alias_maps", "recipient_delimiter": "+"})
    try:
        ways.change(master=lambda text: text + "local unix - n n - - local\n")
        ways.wait_able()
        yield ways
    finally:
        ways.end()


def arrived(ways, address, recipients, expected):
    """What arrives at both hops: {recipient: mail}, each once."""
    before = {name: len(ways.hops[name].mails) for name in ("smtp", "lmtp")}

    def kept():
        return {name: sorted(each for mail in ways.hops[name].mails[at:] for each in mail.kept)
                for name, at in before.items()}
    client = Client(address)
    ways.queue_id = client.send(Message(BODIES["8-bit"], recipients=recipients), "")
    client.close()
    wanted = {name: sorted(f"{each}@{name}.example" for each in who.split())
              for name, who in zip(("smtp", "lmtp"), expected)}
    eventually(f"{recipients} arrive", lambda: kept() == wanted or
               sum(map(len, kept().values())) > sum(map(len, wanted.values())))
    assert kept() == wanted
    return {each: mail.wire for name, at in before.items()
            for mail in ways.hops[name].mails[at:] for each in mail.kept}


@pytest.mark.parametrize("alias", BEHIND)
def test_mail_to_an_alias_stays_postfixs_and_reaches_all(aliased, alias):
    stock = arrived(aliased, aliased.stock, [alias], BEHIND[alias])
    ours = arrived(aliased, aliased.system.smtp, [alias], BEHIND[alias])
    reason = {"local.example": "not-in-divert local", "whole.example": "not-in-divert error"}.get(
        alias.partition("@")[2], "map virtual_alias_maps")
    assert f"action=queue reason={reason}" in aliased.milter_line(), aliased.milter_line()
    assert {who: same_text(wire) for who, wire in ours.items()} == \
        {who: same_text(wire) for who, wire in stock.items()}


def test_who_is_behind_an_alias_is_diverted_by_his_own_address(aliased):
    for who in ("b", "c", "self2", "b+tag"):
        aliased.same(Message(recipients=[who]))


def test_one_alias_among_the_recipients_keeps_the_mail_as_a_whole(aliased):
    for address in (aliased.stock, aliased.system.smtp):
        arrived(aliased, address, ["x@smtp.example", "out@lmtp.example", "y@lmtp.example"],
                ("x g", "y"))
    assert "reason=map virtual_alias_maps" in aliased.milter_line()


def test_nothing_is_lost_when_ours_are_killed(aliased):
    """Mail to aliases and mail to others, in turn."""
    turn = iter(range(10**6))
    aliased.kept_while_killed(send=lambda raw: aliased.deliver(
        raw, "b@smtp.example" if next(turn) % 2 else "out@lmtp.example"))


def test_what_the_command_says(aliased):
    said = admin.run(aliased.system, "check", "-v", "postfix").out
    assert "virtual_alias_maps = " in said and "stays in Postfix's queue" in said, said
    assert "CRITICAL service" not in said, said
