"""What fails, and what it costs: one row per fault and way in which the nodes keep what they hold (faults.py; docs/design.md, "When something fails")."""
import pytest

import faults
from support.stack import hosts

pytestmark = pytest.mark.skipif(bool(hosts.refused()), reason=hosts.refused() or "")

# The others run in make test-long.
SHORT = {("relay killed", "none"), ("redis killed", "aof"), ("old rdb", "rdb"), ("node killed for good", "none"), ("emptied", "none"), ("redis stopped 1s", "none"),
         ("partition", "none"), ("node killed, clocks apart +3600s", "rdb")}
ROWS = [pytest.param(fault.name, keeps, id=f"{fault.name}-{keeps}".replace(",", "").replace(" ", "-"), marks=[] if (fault.name, keeps) in SHORT else pytest.mark.exhaustive)
        for fault in faults.FAULTS for keeps in fault.keeps]


@pytest.mark.parametrize("fault, keeps", ROWS)
def test_fault(fault, keeps):
    faults.run(fault, keeps)
