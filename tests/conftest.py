"""The tiers: which one a test is in, and the options that choose by it.

The nearest mark decides: the test's own, or else its file's. Of two at one place (a test's and a
parameter's) the later tier does. A test without any is in "test".
"""
import pytest

TIERS = ("check", "test", "long", "exhaustive")


def tier_of(item):
    for node in reversed(item.listchain()):
        found = [TIERS.index(mark.name) for mark in node.own_markers if mark.name in TIERS]
        if found:
            return TIERS[max(found)]
    return "test"


def pytest_addoption(parser):
    parser.addoption("--tier", default=",".join(TIERS), help="only these (default: all)")
    parser.addoption("--share", default="0/1", help="K/N: each Nth test of those, from the Kth on")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    tiers = config.getoption("tier").split(",")
    share, shares = map(int, config.getoption("share").split("/"))
    unknown = set(tiers) - set(TIERS)
    if unknown or not 0 <= share < shares:
        raise pytest.UsageError(f"--tier {','.join(tiers)} --share {share}/{shares}: no such one")
    chosen = {item.nodeid for item in items if tier_of(item) in tiers}
    chosen = set(sorted(chosen)[share::shares])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
