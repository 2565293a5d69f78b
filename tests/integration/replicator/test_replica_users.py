"""Each replica comes to each node as a user of its own (replica_user_file): what it may do there is what it does, and nothing that one site holds, or sees, lets it speak in another's name."""
import re

import pytest

from support import replicator_world
from support.lane_server import BUILD, ReplyError, ident, wait_for
from support.stack.secure import Secure

pytestmark = pytest.mark.long

OLD = "dovelane-replicator"


class Guarded(replicator_world.World):
    """Whose nodes let only the users in that `dovelane acl` prints. own: a user of each replica."""

    def __init__(self, replicas=2, own=True, **settings):
        super().__init__(replicas, **settings)
        names = [r.name for r in self.replicas]
        self.files = Secure(self.directory / "secure", BUILD, sites=names)
        if own:  # one who comes as the old one is refused
            (self.files.directory / f"{OLD}.user").unlink()
        self.use(own)
        for r in self.replicas:
            self.load(r, "--site", r.name)

    def use(self, own):
        self.settings["node_user_file"] = f'"{self.files.directory}/%p.user"'
        self.settings["replica_user_file"] = f'"{self.files.directory}/%r.replica"' if own else '""'

    def load(self, replica, *words):
        admin = replica.redis.clients[0] if replica.redis.clients else replica.redis.client()
        for name in set(admin("ACL", "USERS")) - {b"default"}:
            admin("ACL", "DELUSER", name)
        for line in self.files.acl(*words).splitlines()[1:]:
            name, rest = line.split(None, 2)[1:]
            admin("ACL", "SETUSER", name, "reset", *re.findall(r"\([^)]*\)|\S+", rest))
        # Our own way in stays; nobody else comes without a name.
        admin("ACL", "SETUSER", "operator", "on", "nopass", "~*", "+@all")
        admin("ACL", "SETUSER", "default", "off")


@pytest.fixture
def guarded(request):
    made = []

    def make(*args, **settings):
        made.append(Guarded(*args, **settings))
        return made[0]
    yield make
    for world in made:
        for r in world.replicas:  # the server's own way to end
            r.redis.clients[0]("ACL", "SETUSER", "default", "on", "nopass", "~*", "+@all")
        world.end(getattr(request.node, "failed", False))


def users_of(replica):
    text = replica.redis.clients[0]("CLIENT", "LIST").decode()
    return {user for name, user in re.findall(r" name=(dovelane-replicator\S*) .* user=(\S+)", text)}


def as_user(replica, name, password):
    c = replica.redis.client()
    c("AUTH", name, password)
    return c


def test_three_sites_replicate_as_their_own_users(guarded):
    world = guarded(3).up()
    users = replicator_world.users(3)
    for r in world.replicas:
        for user in users:
            r.change(user, f"of-{r.name}-{user}")
    world.quiet(users)
    for r in world.replicas:
        assert users_of(r) == {f"{OLD}:{other.name}@{r.name}" for other in world.replicas}
        refused = [entry for entry in r.redis.clients[0]("ACL", "LOG") if b"dovelane-replicator" in str(entry).encode()]
        assert not refused, refused


PARCEL = ["ENTRIES", 1, 1, ident(1), "meta", "body"]


def test_a_site_speaks_and_takes_for_itself_alone(guarded):
    """With all that site-a holds, at the node of site-b: lanes of b to c, and of c to b."""
    world = guarded(3)
    a, b = world[0], world[1]
    name = f"{OLD}:{a.name}@{b.name}"
    lane = "dovelane:replica:site-b>site-c"
    owner = as_user(b, f"{OLD}:site-b@site-b", world.files.password(f"{OLD}:site-b@site-b"))
    owner("LANE.PUSH", 1, lane, *PARCEL)
    owner("LANE.PUSH", 1, "dovelane:replica:site-b>site-a", *PARCEL)
    c = as_user(b, name, world.files.password(name))
    assert len(c("LANE.TAKE", 1, "dovelane:replica:site-b>site-a")) == 1 and c("LANE.ACK", "dovelane:replica:site-b>site-a", "IDS", 1, ident(1))
    for words in (["LANE.PUSH", 1, lane, *PARCEL], ["LANE.TAKE", 1, lane], ["LANE.TAKE", 2, lane, "dovelane:replica:site-b>site-a"], ["LANE.ACK", lane, "UPTO", 99],
                  ["LANE.PUSH", 1, "dovelane:replica:site-c>site-b", *PARCEL], ["LANE.PUSH", 1, "dovelane:replica:site-b>site-a", *PARCEL],
                  ["LANE.CREATE", "dovelane:replica:site-a>site-b", "MAXBYTES", 2**40], ["LANE.PUSH", 1, "dovelane:replica:site-a>site-b", *PARCEL]):
        with pytest.raises(ReplyError, match="NOPERM"):
            c(*words)
    assert owner("LANE.LEN", lane) == 1
    # A site takes nothing of what it sent back: it acks by nobody's word but the other's.
    for words in (["LANE.TAKE", 1, lane], ["LANE.ACK", lane, "UPTO", 99]):
        with pytest.raises(ReplyError, match="NOPERM"):
            owner(*words)


def test_what_a_node_learns_of_a_visitor_opens_no_other_node(guarded):
    """A node's root can read the password with which another site's replicator comes to it."""
    world = guarded(3)
    a, b, c = world.replicas
    learned = world.files.password(f"{OLD}:{a.name}@{b.name}")
    for node in (a, c):
        for name in (f"{OLD}:{a.name}@{b.name}", f"{OLD}:{a.name}@{node.name}"):
            with pytest.raises(ReplyError, match="WRONGPASS"):
                as_user(node, name, learned)


def test_sites_in_the_old_way_go_on_and_change_one_by_one(guarded):
    """One user for all; then the users of both ways are there, each site changes, and the one for all goes."""
    world = guarded(2, own=False).up()
    users = replicator_world.users(2)

    def changes(tag):
        for r in world.replicas:
            for user in users:
                r.change(user, f"{tag}-{r.name}-{user}")
        world.quiet(users)

    changes("old")
    assert users_of(world[0]) == {OLD}
    world.use(own=True)
    for r in world.replicas:
        r.stop()
        r.start()
        changes(f"while-{r.name}-changed")
    (world.files.directory / f"{OLD}.user").unlink()
    for r in world.replicas:
        world.load(r, "--site", r.name)
    changes("new")
    assert users_of(world[0]) == {f"{OLD}:{r.name}@{world[0].name}" for r in world.replicas}
    for r in world.replicas:
        assert OLD.encode() not in r.redis.clients[0]("ACL", "USERS")


def test_a_file_that_is_not_there_is_named(guarded):
    world = guarded(2)
    (world.files.directory / "site-a.replica").rename(world.files.directory / "elsewhere")
    world[0].start()
    wait_for(lambda: world[0].says(f"replica_user_file {world.files.directory}/site-a.replica: No such file"), what="the log names it")
    (world.files.directory / "elsewhere").rename(world.files.directory / "site-a.replica")
    world[1].start()
    world[0].change("u1", "one")
    world.quiet(["u1"])
