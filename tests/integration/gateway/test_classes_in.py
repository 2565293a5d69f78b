"""Which class a mail gets as it comes in, by the milter and by the proxy (docs/classes.md). No relay runs: entries stay where they were put."""
import pytest

from support.mail import entries, send
from support.stack import Stack
from support.stack.shape import SinkShape
from support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.test]

CLASSES = {"notice": {"match": ["header ^x-priority: *1", "or", "sender alert@*"], "weight": 20},
           "small": {"match": ["size <2kB", "rcpt *@a.example"], "weight": 8},
           "bulk": {"match": ["sender *@news.example"]}}
LARGE = b"Subject: x\r\n\r\n" + b"z" * 70 * 100 + b"\r\n"


def stack_of(way, **settings):
    return Stack(postfix=way, sinks=[SinkShape("a", ours=True), SinkShape("b", ["lmtp"], ours=True)], divert=["a", "b"], relays=False,
                 settings={"max_entry": "1MB", "classes": CLASSES, **settings})


def wrapped(text, width=70):
    """No line that Postfix would fold."""
    head, _, body = text.partition(b"\r\n\r\n")
    body = body.strip()
    return head + b"\r\n\r\n" + b"".join(body[i:i + width] + b"\r\n" for i in range(0, len(body), width))


@pytest.mark.parametrize("way", ["divert", "proxy"])
def test_the_first_class_that_fits_is_a_mails_class(way):
    with stack_of(way) as system:
        eventually("it stores", lambda: send(system, "warm@b.example")[0] == 250 and all(entries(system)))
        send(system, "u1@a.example", "v1@b.example")
        send(system, "u2@a.example", content=wrapped(LARGE))
        send(system, "u3@a.example", content=wrapped(LARGE), sender="s@news.example")
        send(system, "u4@a.example", sender="s@news.example")
        send(system, "u5@a.example", content=b"Subject: x\r\nX-Priority: 1\r\n\r\nhello\r\n")
        send(system, "v6@b.example", sender="alert@x.example")
        a, b = (f"dovelane:{system.destinations[name]}|mx1>mx2" for name in "ab")
        for node in entries(system):
            found = {r.address: e.lane for e in node for r in e.envelope["recipients"] if not r.address.startswith("warm")}
            assert found == {"u1@a.example": f"{a}|+small", "v1@b.example": b, "u2@a.example": a, "u3@a.example": f"{a}|+bulk",
                             "u4@a.example": f"{a}|+small", "u5@a.example": f"{a}|+notice", "v6@b.example": f"{b}|+notice"}


def test_mail_for_an_ordered_destination_has_no_class():
    with stack_of("divert", destinations={"*": {"placement": "ordered"}}) as system:
        eventually("it stores", lambda: send(system, "warm@b.example")[0] == 250 and all(entries(system)))
        send(system, "u1@a.example", sender="alert@x.example")
        assert entries(system)[0] and not any("|+" in e.lane for node in entries(system) for e in node)
