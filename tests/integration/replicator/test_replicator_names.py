"""Two hosts that run under one replica's name: the later one is refused, and both say so."""

import shutil

import pytest
from support.replicator_world import Twin
from support.waiting import eventually
from test_replicator import world  # noqa: F401

pytestmark = [pytest.mark.core, pytest.mark.test]
TWO = "two replicators run as site-a"


def told(replica):
    """What status says of it: the exit code, the errors, the last column of its own row."""
    rows, code, errors = replica.admin("status")
    return code, " ".join(errors), rows[1][-1] if len(rows) > 1 else ""


def refused(replica):
    code, errors, here = told(replica)
    return (
        code == 1
        and TWO in errors
        and "this one takes and sends nothing" in errors
        and here == "here, refused"
    )


def warned(replica):
    code, errors, here = told(replica)
    return code == 1 and TWO in errors and "came later and is refused" in errors and here == "here"


def alone(replica):
    code, errors, here = told(replica)
    return code == 0 and not errors and here == "here"


def test_the_later_of_two_hosts_of_one_name_is_refused(world):  # noqa: F811
    w = world(2)
    w[0].change("u", "x")
    w[1].change("u", "y")
    w.quiet(["u"])
    eventually("site-a is alone", lambda: alone(w[0]))
    twin = Twin(w[0]).start()
    eventually("the later one is refused", lambda: refused(twin))
    eventually("the first one is told", lambda: warned(w[0]))
    for replica in (twin, w[0]):
        eventually(
            "the metric", lambda replica=replica: replica.metric("replicator_name_twice") == 1
        )
        eventually("the log", lambda replica=replica: replica.says(TWO))
    assert w[1].metric("replicator_name_twice") == 0 and not w[1].says("two replicators")
    # what the other site sends comes to the first one, all of it
    # what the later one has stays with it
    for n in range(20):
        w[1].change("u", f"y{n}")
        twin.change("v", f"t{n}")
    w.quiet(["u"])
    assert twin.metric("replicator_taken") == twin.metric("replicator_sent") == 0
    assert not any(r.site.items("v").get(1) for r in w.replicas)
    # neither a restart of the first one nor of its node lets the later one in
    w[0].kill()
    w[0].start()
    eventually("the first one is told again", lambda: warned(w[0]))
    assert refused(twin)
    w[0].redis.stop()
    w[0].redis.start()
    w[1].change("u", "z")
    w.quiet(["u"])
    eventually("the first one is told by its new node", lambda: warned(w[0]))
    assert refused(twin) and twin.metric("replicator_taken") == 0
    twin.stop()
    eventually(
        "the first one is alone", lambda: alone(w[0]) and w[0].metric("replicator_name_twice") == 0
    )
    assert w[0].says("nobody else runs as site-a any more")


def test_what_waits_at_a_refused_host_goes_when_the_other_has_stopped(world):  # noqa: F811
    w = world(2)
    twin = Twin(w[0])
    w[0].stop()
    twin.start()
    eventually("the only one is alone", lambda: alone(twin))
    w[0].start()
    eventually("the later one is refused", lambda: refused(w[0]))
    w[0].change("u", "x")
    eventually("it waits", lambda: w[0].admin("lag", "u")[0][1][2] == "1")
    twin.stop()
    w.quiet(["u"])
    assert alone(w[0]) and w[1].site.items("u")[1]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_host_that_begins_anew_is_no_other(world, how):  # noqa: F811
    """The same name, and another replicator.db: of one that has ended on this machine."""
    w = world(2)
    if how == "stopped":
        w[0].stop()
    else:
        w[0].kill()
    shutil.rmtree(w[0].directory / "state")
    (w[0].directory / "state").mkdir()
    w[0].start()
    w[0].change("u", "x")
    w.quiet(["u"])
    assert not w[0].says("two replicators") and alone(w[0])


def test_a_node_that_does_not_take_the_name(world):  # noqa: F811
    """Its ACL is of an older version: it works as before, and the log says what is missing."""
    w = world(2)
    for r in w.replicas:
        r.redis.client().call("ACL", "SETUSER", "default", "-get", "-set")
        r.stop()
        r.start()
    w[0].change("u", "x")
    w.quiet(["u"])
    for r in w.replicas:
        eventually(
            "the log",
            lambda r=r: r.says("does not take the key dovelane.site:")
            and r.says("`dovelane acl` again"),
        )
    assert alone(w[0])
