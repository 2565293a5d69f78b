"""What fails, and what it costs: one row per fault and way in which the nodes keep what they hold (faults.py; docs/failures.md)."""
import pytest

import faults
from support.stack import hosts

pytestmark = pytest.mark.skipif(bool(hosts.refused()), reason=hosts.refused() or "")

TEST = {("redis killed", "aof"), ("node killed for good", "none"), ("emptied", "none"), ("partition", "none")}
LONG = {("relay killed", "none"), ("old rdb", "rdb"), ("redis stopped 1s", "none"), ("node killed, clocks apart +3600s", "rdb")}


def tier(row):
    return [] if row in TEST else pytest.mark.long if row in LONG else pytest.mark.exhaustive


ROWS = [pytest.param(fault.name, keeps, id=f"{fault.name}-{keeps}".replace(",", "").replace(" ", "-"), marks=tier((fault.name, keeps)))
        for fault in faults.FAULTS for keeps in fault.keeps]


@pytest.mark.parametrize("fault, keeps", ROWS)
def test_fault(fault, keeps):
    faults.run(fault, keeps)
