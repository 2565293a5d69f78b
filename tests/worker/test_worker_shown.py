"""Names that one site's storage can hold and another one's cannot: each is shown, one to one, as it
is where that can be, and what is made below it is below it at all sites."""
import pytest
from names_world import Client, Refused, another_user, differences, names_world, shown, subjects_of
from worker_sites import needs_dovecot

pytestmark = needs_dovecot

NAMES = ["a.b", "a%2Eb", "a%2eb", "%61.b", "~x", "%7Ex", "tmp", "cur", "new", "dbox-Mails", "x%",
         "50%25", "Foo%20Bar", "%49NBOX", "a\\b", "a\\2eb", ".hidden", "..x", "x.", "Mail & more",
         "%", "%%20", "a^b", "dovecot.x", "'q' \"q\"", "*", "a%2Fb", "a/b"]
PAIRS = ["sdbox,maildir", "sdbox.,maildir.", "escape,fs", "escape.,mdbox", "fs,sdbox.",
         "maildir.,escape."]


def name(text):
    return (text,)


def make(client, path, subject):
    """False: that storage cannot hold it."""
    if any(client.site.sep in part for part in path):
        return False
    try:
        client.create(path)
        client.append(path, subject)
    except Refused:
        return False
    return True


def holders(found):
    """{subject: name}; each mail is in one mailbox."""
    held = {}
    for path, subjects in subjects_of(found).items():
        for subject in subjects:
            assert subject not in held, (subject, path, held[subject])
            held[subject] = path
    return held


@pytest.fixture(scope="module", params=[pytest.param(pair, marks=[pytest.mark.long] * (at > 0))
                                        for at, pair in enumerate(PAIRS)])
def two(request, tmp_path_factory):
    world = names_world(tmp_path_factory, *request.param.split(","))
    yield world
    world.stop()


def holdable(world):
    """{site: names that a client can make there}"""
    can = {}
    for n, site in world.sites.items():
        another_user(world, f"probe{n}")
        with Client(site) as client:
            can[site] = {text for text in NAMES if make(client, name(text), text)}
    return can


def test_names_are_shown_one_to_one(two):
    can = holdable(two)
    for maker in two.sites.values():
        other = two[3 - maker.number]
        another_user(two, f"made{maker.number}")
        with Client(maker) as client:
            made = [text for text in NAMES if make(client, name(text), text)]
        assert len(made) > 15, made
        two.settle()
        two.settle()
        there = holders(shown(other))
        assert set(there) == set(made)
        as_they_are = {text for text in made if there[text] == name(text)}
        assert as_they_are == can[other] & set(made), as_they_are ^ (can[other] & set(made))
        for site in two.sites.values():
            assert site.admin("verify", "bodies")[-1] == "verdict\tsame"
            assert not [said for level, said in site.notes if level < 2], site.notes
        # What is made below one there is below it here, and a subscription is the same folder's.
        with Client(other) as client:
            below = [text for text in made if make(client, there[text] + ("q",), f"below {text}")]
            for text in made:
                client.ask("subscribe", client.quoted(there[text]))
        two.settle()
        two.settle()
        here = holders(shown(maker))
        assert {text: here.get(f"below {text}") for text in below} == {
            text: here[text] + ("q",) for text in below}
        with Client(maker) as client:
            assert {name(text) for text in made} <= set(client.names("lsub"))
        assert not [told for told in differences(two) if "verdict" in told or "digest" in told]


def test_a_name_comes_that_another_one_was_shown_as(two):
    """Then the other one is shown otherwise, and each keeps its mails."""
    maker, other = two[1], two[2]
    another_user(two, "clash")
    with Client(maker) as client:
        made = [text for text in ["a.b", "tmp", "~x"] if make(client, name(text), text)]
    two.settle()
    was = holders(shown(other))
    escaped = [text for text in made if was[text] != name(text)]
    with Client(maker) as client:
        for text in escaped:
            assert make(client, was[text], f"clash {text}")
    two.settle()
    two.settle()
    there = holders(shown(other))
    for text in escaped:
        assert there[f"clash {text}"] == was[text] and there[text] not in (was[text], name(text))
    assert set(there) == set(made) | {f"clash {text}" for text in escaped}
    assert not [told for told in differences(two) if "verdict" in told or "digest" in told]
