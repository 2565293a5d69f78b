"""Names that a storage can only show by a detour: a parent that cannot be selected, below itself,
one another's."""
import pytest
from names_world import Client, another_user, names_world, same
from worker_sites import needs_dovecot

pytestmark = needs_dovecot

PAIRS = ["sdbox,sdbox", "maildir,mdbox", "maildir,maildir", "fs,sdbox."]


def mark(pairs, tier):
    return [pytest.param(pair, marks=[tier] * (at > 0)) for at, pair in enumerate(pairs)]


@pytest.fixture(scope="module", params=mark(PAIRS, pytest.mark.long))
def two(request, tmp_path_factory):
    world = names_world(tmp_path_factory, *request.param.split(","))
    yield world
    world.stop()


def start(world, request, *paths):
    """A user with these folders, each with a mail of its name, alike at both sites."""
    another_user(world, "".join(c for c in request.node.name if c.isalnum())[:60].lower())
    with Client(world[1]) as a:
        for path in paths:
            a.create(name(path))
            a.append(name(path), path)
    world.settle()
    same(world)


def name(path):
    return tuple(path.split("/"))


def act(site, *steps):
    with Client(site) as client:
        for verb, *paths in steps:
            getattr(client, verb)(*(name(path) for path in paths))


def meet(world):
    world.settle()
    world.settle()
    return {"/".join(path): mails for path, mails in same(world).items()}


def test_a_folder_gets_the_name_of_a_parent(two, request):
    start(two, request, "f")
    act(two[1], ("rename", "f", "X"))
    act(two[2], ("create", "X/y"))
    assert meet(two) == {"INBOX": [], "X": ["f"], "X/y": []}


def test_a_child_gets_the_name_of_its_parent(two, request):
    start(two, request, "0/1")
    act(two[1], ("rename", "0/1", "t"), ("rename", "t", "0"))
    assert meet(two) == {"INBOX": [], "0": ["0/1"]}


def test_a_child_gets_the_name_of_its_parent_that_has_others(two, request):
    start(two, request, "0/1", "0/2", "0/2/3")
    act(two[1], ("rename", "0", "s"), ("rename", "s/1", "0"), ("rename", "s/2", "0/2"))
    assert meet(two) == {"INBOX": [], "0": ["0/1"], "0/2": ["0/2"], "0/2/3": ["0/2/3"]}


def test_a_folder_goes_below_itself(two, request):
    start(two, request, "0")
    act(two[1], ("rename", "0", "t"), ("rename", "t", "0/1"))
    act(two[2], ("append_to", "0"))
    assert meet(two) == {"INBOX": [], "0/1": ["0", "more"]}


def test_a_folder_goes_below_itself_with_its_children(two, request):
    start(two, request, "0", "0/1", "0/1/1")
    act(two[1], ("rename", "0", "t"), ("rename", "t", "0/1"))
    assert meet(two) == {"INBOX": [], "0/1": ["0"], "0/1/1": ["0/1"], "0/1/1/1": ["0/1/1"]}


def test_parent_and_child_change_places(two, request):
    start(two, request, "0", "0/1")
    act(two[1], ("rename", "0/1", "t"), ("rename", "0", "u"), ("rename", "t", "0"),
        ("rename", "u", "0/1"))
    assert meet(two) == {"INBOX": [], "0": ["0/1"], "0/1": ["0"]}


def test_three_change_places(two, request):
    start(two, request, "a", "b", "c", "a/k", "b/k")
    act(two[1], ("rename", "a", "t"), ("rename", "b", "a"), ("rename", "c", "b"),
        ("rename", "t", "c"))
    assert meet(two) == {"INBOX": [], "c": ["a"], "c/k": ["a/k"], "a": ["b"], "a/k": ["b/k"],
                         "b": ["c"]}


def test_a_child_would_get_the_name_of_another_folder(two, request):
    start(two, request, "f", "f/k", "f/l")
    act(two[2], ("rename", "f", "X"))
    act(two[1], ("create", "X/k"), ("append_to", "X/k"))
    assert meet(two) == {"INBOX": [], "X": ["f"], "X/k": ["f/k", "more"], "X/l": ["f/l"]}


def test_renamed_onto_each_other_apart(two, request):
    start(two, request, "a", "b")
    act(two[1], ("rename", "a", "b/a"))
    act(two[2], ("rename", "b", "a/b"))
    assert meet(two) == {"INBOX": [], "b/a": ["a"], "a/b": ["b"]}


@pytest.mark.parametrize("text", ["Foo%20Bar", "Rabatt 50%ab Mai", "50%25"])
def test_a_name_with_a_percent_sign_is_shown_as_it_is(two, request, text):
    start(two, request, text)
    act(two[2], ("append_to", text))
    assert meet(two) == {"INBOX": [], text: sorted(["more", text])}


@pytest.mark.test
def test_two_of_one_second_meet_directories_of_one_name(tmp_path_factory, request):
    """a takes the name of the directory 2, from which 2/2 cannot come back: a/2/1 is below it. So
    2/2 takes the name of that directory, which has the same last component. Their GUIDs have the
    second in common in which the session began."""
    world = names_world(tmp_path_factory, "sdbox", "maildir")
    try:
        start(world, request, "a", "a/2/1", "2/2")
        act(world[2], ("rename", "a", "2"))
        assert meet(world) == {"INBOX": [], "2": ["a"], "2/2": ["2/2"], "2/2/1": ["a/2/1"]}
    finally:
        world.stop()
