"""What one flag, mail or folder may be, by operations told by hand."""

import itertools

import pytest
from support.history.record import Link
from support.history.register import Cleared, Copies, Flag, Keyword, Search, Step

pytestmark = pytest.mark.check

SITES = ("a", "b", "c")
ALL = frozenset({"a-b", "a-c", "b-c"})
ON, OFF = (True, False)


def steps(*told):
    """(site, act, invoked, responded[, value or sure])"""
    made = []
    for n, (site, act, invoked, responded, *more) in enumerate(told):
        value = more[0] if act == "read" else None
        sure = more[0] if more and act != "read" else True
        made.append(Step(n, site, invoked, responded, act, sure, value))
    return made


def allowed(kind, *told, base=(), links=()):
    """Values that all sites may show at rest; empty: the history itself is impossible."""
    values = range(4) if kind is Copies else (ON, OFF)
    return {
        value
        for value in values
        if Search(kind, SITES, steps(*told), links, base).run({site: value for site in SITES})
        is None
    }


CUT = [Link(frozenset(), 0.0, 0.0)]  # nobody hears anybody
CUT_THEN_OPEN = [*CUT, Link(ALL, 5.0, 5.0)]
C_ALONE = [Link(frozenset({"a-b"}), 0.0, 0.0)]

FLAGS = [
    ("nothing", [], 0, {OFF}),
    ("nothing, and it was set", [], 1, {ON}),
    ("set", [("a", "set", 1, 2)], 0, {ON}),
    ("cleared", [("a", "clear", 1, 2)], 1, {OFF}),
    ("set, no answer", [("a", "set", 1, None)], 0, {ON, OFF}),
    ("set, but perhaps not", [("a", "set", 1, 2, False)], 0, {ON, OFF}),
    ("set, then cleared at one site", [("a", "set", 1, 2), ("a", "clear", 3, 4)], 0, {OFF}),
    ("cleared, then set at one site", [("a", "clear", 1, 2), ("a", "set", 3, 4)], 1, {ON}),
    ("both at once at one site", [("a", "set", 1, 3), ("a", "clear", 2, 4)], 0, {ON, OFF}),
    (
        "set at a, later cleared at b, which may have seen it",
        [("a", "set", 1, 2), ("b", "clear", 3, 4)],
        0,
        {ON, OFF},
    ),
    # Who was answered before the other began cannot have seen him.
    ("cleared at a, later set at b", [("a", "clear", 1, 2), ("b", "set", 3, 4)], 0, {ON}),
    # It was set: b's setting may have said nothing new.
    (
        "cleared at a, later set at b, and it was set",
        [("a", "clear", 1, 2), ("b", "set", 3, 4)],
        1,
        {ON, OFF},
    ),
    ("cleared at both", [("a", "clear", 1, 2), ("b", "clear", 1, 2)], 1, {OFF}),
    (
        "cleared and set again at b, cleared at a before",
        [("a", "clear", 1, 2), ("b", "clear", 3, 4), ("b", "set", 5, 6)],
        1,
        {ON},
    ),
    (
        "a's clearing may be of b's setting",
        [("b", "clear", 1, 2), ("b", "set", 3, 4), ("a", "clear", 5, 6)],
        1,
        {ON, OFF},
    ),
    (
        "b saw the setting, and cleared it",
        [("a", "set", 1, 2), ("b", "read", 3, 4, ON), ("b", "clear", 5, 6)],
        0,
        {OFF},
    ),
    (
        "b had seen it when it set it, too",
        [("a", "set", 1, 2), ("b", "read", 3, 4, ON), ("b", "set", 5, 6), ("a", "clear", 7, 8)],
        0,
        {ON, OFF},
    ),
    (
        "what c has from b",
        [
            ("a", "set", 1, 2),
            ("b", "read", 3, 4, ON),
            ("c", "read", 3, 4, ON),
            ("c", "clear", 5, 6),
        ],
        0,
        {OFF},
    ),
    # Changes of one site come in its order.
    (
        "in order",
        [
            ("a", "set", 1, 2),
            ("a", "clear", 3, 4),
            ("a", "set", 5, 6),
            ("c", "read", 7, 8, ON),
            ("c", "read", 9, 10, OFF),
        ],
        0,
        {ON},
    ),
    (
        "out of order",
        [
            ("a", "set", 1, 2),
            ("a", "clear", 3, 4),
            ("a", "set", 5, 6),
            ("c", "read", 7, 8, ON),
            ("c", "read", 9, 10, OFF),
            ("c", "read", 11, 12, ON),
            ("c", "read", 13, 14, OFF),
        ],
        0,
        set(),
    ),
]


@pytest.mark.parametrize(
    ("told", "base", "values"), [row[1:] for row in FLAGS], ids=[row[0] for row in FLAGS]
)
def test_what_a_flag_may_be(told, base, values):
    assert allowed(Flag, *told, base=[1] * base) == values


READS = [
    ("one's own setting is shown", [("a", "set", 1, 2), ("a", "read", 3, 4, ON)], True),
    ("one's own setting is not shown", [("a", "set", 1, 2), ("a", "read", 3, 4, OFF)], False),
    ("while it is being set", [("a", "set", 1, 3), ("a", "read", 2, 4, OFF)], True),
    (
        "both, one after the other",
        [("a", "set", 1, 5), ("a", "read", 2, 3, OFF), ("a", "read", 3.5, 4, ON)],
        True,
    ),
    (
        "shown, and then not",
        [("a", "set", 1, 5), ("a", "read", 2, 3, ON), ("a", "read", 3.5, 4, OFF)],
        False,
    ),
    ("before anybody set it", [("a", "read", 1, 2, ON), ("b", "set", 3, 4)], False),
    (
        "of another site, later",
        [("b", "set", 1, 2), ("a", "read", 3, 4, OFF), ("a", "read", 5, 6, ON)],
        True,
    ),
    (
        "of another site, and lost again",
        [("b", "set", 1, 2), ("a", "read", 3, 4, ON), ("a", "read", 5, 6, OFF)],
        False,
    ),
    (
        "set here, cleared elsewhere",
        [("a", "set", 1, 2), ("b", "clear", 3, 4), ("a", "read", 5, 6, OFF)],
        True,
    ),
    (
        "set here, cleared elsewhere before",
        [("b", "clear", 1, 2), ("a", "set", 3, 4), ("a", "read", 5, 6, OFF)],
        False,
    ),
    (
        "set here, cleared elsewhere where it was not seen",
        [
            ("a", "set", 1, 2),
            ("b", "read", 5, 6, OFF),
            ("b", "clear", 3, 4),
            ("a", "read", 7, 8, OFF),
        ],
        True,
    ),
    (
        "what was never answered shows for ever",
        [("a", "set", 1, None), ("a", "read", 2, 3, ON), ("a", "read", 4, 5, OFF)],
        False,
    ),
]


@pytest.mark.parametrize(
    ("told", "good"), [row[1:] for row in READS], ids=[row[0] for row in READS]
)
def test_what_a_read_may_show(told, good):
    assert bool(allowed(Flag, *told)) == good


LINKS = [
    ("a cut keeps it from b", [("a", "set", 1, 2), ("b", "clear", 3, 4)], CUT, 0, {ON}),
    ("a cut that healed", [("a", "set", 1, 2), ("b", "clear", 6, 7)], CUT_THEN_OPEN, 0, {ON, OFF}),
    (
        "b's clearing takes what it had",
        [("a", "set", 1, 2), ("b", "clear", 3, 4)],
        CUT,
        1,
        {ON, OFF},
    ),
    (
        "by way of b",
        [("a", "set", 1, 2), ("c", "clear", 3, 4)],
        [Link(frozenset({"a-b", "b-c"}), 0.0, 0.0)],
        0,
        {ON, OFF},
    ),
    ("c alone", [("a", "set", 1, 2), ("c", "clear", 3, 4)], C_ALONE, 0, {ON}),
    (
        "before the cut",
        [("a", "set", 1, 2), ("b", "clear", 4, 5)],
        [Link(frozenset(), 3.0, 3.0)],
        0,
        {ON, OFF},
    ),
    (
        "while it is being cut",
        [("a", "set", 1, 2), ("b", "clear", 4, 5)],
        [Link(frozenset(), 0.5, 3.0)],
        0,
        {ON, OFF},
    ),
    (
        "answered in the cut, begun before",
        [("a", "set", 1, 4), ("b", "clear", 5, 6)],
        [Link(frozenset(), 3.0, 3.0)],
        0,
        {ON, OFF},
    ),
    ("shown across a cut", [("a", "set", 1, 2), ("b", "read", 3, 4, ON)], CUT, 0, set()),
    ("both apart", [("a", "clear", 1, 2), ("b", "clear", 1, 2), ("b", "set", 3, 4)], CUT, 1, {ON}),
]


@pytest.mark.parametrize(
    ("told", "links", "base", "values"), [row[1:] for row in LINKS], ids=[row[0] for row in LINKS]
)
def test_what_crosses_a_link(told, links, base, values):
    assert allowed(Flag, *told, base=[1] * base, links=links) == values


DELETED = [
    (
        "cleared at a, later set at b, which may have seen it",
        [("a", "clear", 1, 2), ("b", "set", 3, 4)],
        [],
        {ON, OFF},
    ),
    ("set at a, later cleared at b", [("a", "set", 1, 2), ("b", "clear", 3, 4)], [1], {OFF}),
    ("set and cleared at one site", [("a", "set", 1, 2), ("a", "clear", 3, 4)], [], {OFF}),
    ("cleared and set at one site", [("a", "clear", 1, 2), ("a", "set", 3, 4)], [1], {ON}),
]


@pytest.mark.parametrize(
    ("told", "base", "values"), [row[1:] for row in DELETED], ids=[row[0] for row in DELETED]
)
def test_what_deleted_may_be(told, base, values):
    assert allowed(Cleared, *told, base=base) == values


def test_a_rescue_wins_when_apart():
    told = [("a", "clear", 1, 2), ("a", "set", 3, 4), ("b", "clear", 1, 2)]
    assert allowed(Cleared, *told, base=[1], links=CUT) == {OFF}
    assert allowed(Flag, *told, base=[1], links=CUT) == {ON}


def test_a_rescue_wins_over_who_had_not_heard_of_it():
    """b sets and clears in one breath in a cut, and a sets it: as in history 100008."""
    told = [("b", "set", 1.1, 1.2), ("b", "clear", 1.3, 1.4), ("a", "set", 3, 4)]
    assert allowed(Cleared, *told, links=CUT_THEN_OPEN) == {OFF}
    assert allowed(Cleared, *told) == {ON, OFF}


def test_a_keyword_that_was_cleared_and_set_again_may_be_as_if_nothing_was():
    told = [("a", "clear", 1, 2), ("a", "set", 3, 4), ("b", "clear", 1, 2)]
    assert allowed(Keyword, *told, base=[1], links=CUT) == {ON, OFF}
    assert allowed(Keyword, *told[:2], base=[1]) == {ON}
    seen = [*told[:1], ("b", "read", 2.1, 2.2, OFF), ("a", "set", 3, 4), ("b", "clear", 2.5, 2.6)]
    assert allowed(Keyword, *seen, base=[1]) == {ON}


COPIES = [
    ("lost", [("a", "add", 1, 2)], 0, (), {1}),
    ("removed", [("a", "remove", 1, 2), ("a", "read", 3, 4, 0)], 1, (), {0}),
    ("removed or missed", [("a", "remove", 1, 2)], 1, (), {0, 1}),
    (
        "comes back",
        [("a", "remove", 1, 2), ("a", "read", 3, 4, 0), ("a", "read", 5, 6, 1)],
        1,
        (),
        set(),
    ),
    ("copied at both, apart", [("a", "add", 1, 2), ("b", "add", 1, 2)], 0, CUT, {1}),
    (
        "copied at both, perhaps one after the other",
        [("a", "add", 1, 2), ("b", "add", 3, 4)],
        0,
        (),
        {1, 2},
    ),
    ("copied twice at one", [("a", "add", 1, 2), ("a", "add", 3, 4)], 0, (), {2}),
    (
        "twice at one, once at the other",
        [("a", "add", 1, 2), ("a", "add", 3, 4), ("b", "add", 1, 2)],
        0,
        CUT,
        {2},
    ),
    (
        "add wins",
        [
            ("a", "remove", 1, 2),
            ("a", "read", 3, 4, 0),
            ("b", "remove", 1, 2),
            ("b", "read", 3, 4, 0),
            ("b", "add", 5, 6),
        ],
        1,
        CUT,
        {1},
    ),
    (
        "the folder was deleted elsewhere before",
        [("b", "wipe", 1, 2), ("a", "add", 3, 4)],
        0,
        (),
        {1},
    ),
    ("the folder was deleted here", [("a", "add", 1, 2), ("a", "wipe", 3, 4)], 0, (), {0}),
    (
        "the folder was deleted elsewhere, apart",
        [("a", "add", 1, 2), ("b", "wipe", 3, 4)],
        0,
        CUT,
        {1},
    ),
    (
        "the folder was deleted elsewhere later",
        [("a", "add", 1, 2), ("b", "wipe", 3, 4)],
        0,
        (),
        {0, 1},
    ),
    (
        "two sites take it away",
        [("a", "remove", 1, 2), ("b", "remove", 1, 2), ("a", "read", 3, 4, 0)],
        1,
        (),
        {0},
    ),
]


@pytest.mark.parametrize(
    ("told", "base", "links", "values"), [row[1:] for row in COPIES], ids=[row[0] for row in COPIES]
)
def test_how_many_copies_there_may_be(told, base, links, values):
    assert allowed(Copies, *told, base=range(1, base + 1), links=links) == values


def brute(told, base, links_open):
    """As `allowed` of a flag, by trying every order of effects, and all that each may have seen."""
    made, outcomes = steps(*told), set()

    def is_order(order):
        return all(
            not (later.responded < earlier.invoked)
            for n, earlier in enumerate(order)
            for later in order[n + 1 :]
        )

    def walk(order, at, seen, log):
        """seen: site to {origin: number}; log: origin to [(new dot, gone)]."""
        if at == len(order):
            dots = {"base"} if base else set()
            gone = set()
            for row in log.values():
                dots |= {dot for dot, _ in row if dot is not None}
                gone |= {dot for _, kills in row for dot in kills}
            outcomes.add(bool(dots - gone))
            return
        step = order[at]
        others = [site for site in SITES if site != step.site]
        highest = [len(log[site]) if links_open else seen[step.site][site] for site in others]
        for chosen in itertools.product(
            *(range(seen[step.site][site], most + 1) for site, most in zip(others, highest))
        ):
            view = {**seen[step.site], **dict(zip(others, chosen)), step.site: len(log[step.site])}
            dots, gone = ({"base"} if base else set()), set()
            for site in SITES:
                for dot, kills in log[site][: view[site]]:
                    gone |= kills
                    if dot is not None:
                        dots.add(dot)
            alive = dots - gone
            if step.act == "set":
                choices = [(step.id, frozenset())] + ([(None, frozenset())] if alive else [])
            elif step.act == "clear":
                choices = [(None, frozenset(alive))]
            else:
                choices = [(None, frozenset())] if bool(alive) == step.value else []
            for choice in choices:
                after = {**log, step.site: [*log[step.site], choice]}
                walk(
                    order,
                    at + 1,
                    {**seen, step.site: {**view, step.site: len(after[step.site])}},
                    after,
                )

    for order in itertools.permutations(made):
        if is_order(order):
            walk(
                order,
                0,
                {site: dict.fromkeys(SITES, 0) for site in SITES},
                {site: [] for site in SITES},
            )
    return outcomes


def test_the_search_finds_what_every_order_tried_one_by_one_gives():
    import random

    dice, found = random.Random(5), {0: 0, 1: 0, 2: 0}
    for _ in range(400):
        told = []
        for _ in range(dice.randrange(1, 5)):
            began = dice.randrange(10)
            act = dice.choice(("set", "clear", "read"))
            row = (
                dice.choice(SITES),
                act,
                began + dice.random() / 2,
                began + dice.randrange(1, 5) + 0.6,
            )
            told.append((*row, dice.random() < 0.5) if act == "read" else row)
        base, is_open = dice.random() < 0.5, dice.random() < 0.7
        expected = brute(told, base, is_open)
        assert allowed(Flag, *told, base=[1] * base, links=() if is_open else CUT) == expected, (
            told,
            base,
            is_open,
        )
        found[len(expected)] += 1
    assert all(count > 10 for count in found.values()), found
