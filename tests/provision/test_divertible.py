"""Which next hops a group takes into `divert`: those that lib/config/nexthop.h has."""
import pytest

import group
from host import Trouble


@pytest.mark.parametrize("hop", [
    "smtp:[a]:25", "smtp:[10.0.0.5]", "relay:[::1]:25", "lmtp:unix:private/x", "lmtp:[a]",
    "lmtp:host:24", "lmtp:inet:[a]:24", "lmtp:inet:a, b:24", "smtp:[a], [b]:submission",
    "smtp:[a],[b]", "smtp:[a] [b]"])
def test_a_next_hop_is_taken(hop):
    assert group.check_next_hop(hop) == hop


@pytest.mark.parametrize("hop", [
    "smtp:a", "smtp:[a], b", "local:[a]", "lmtp:", "lmtp:unix:", 'lmtp:a"b', "lmtp:a{",
    "smtp:[a\n]", "smtp:[a],\n[b]", "example.org"])
def test_it_is_not(hop):
    with pytest.raises(Trouble, match="cannot be diverted"):
        group.check_next_hop(hop)
