"""Every row of the scenario table, on each storage format and pair of versions.

All chosen rows of a pair run together in one group (table.run), each with a user of its own, and are judged one by one.
"""
import conftest
import pytest
import scenarios
import table
from support.stack.group import Group

# One of the first pairs is for `make test`; the rest for `make test-long`.
QUICK = [("sdbox", "sdbox"), ("maildir", "mdbox"), ("sdbox@2.3", "mdbox@2.4")]
LONG = [("mdbox", "mdbox"), ("maildir", "maildir"), ("sdbox", "maildir")]
LONG += [(f"{storage}@{one}", f"{storage}@{other}") for storage in ("sdbox", "mdbox", "maildir")
         for one, other in (("2.3", "2.4"), ("2.4", "2.3"), ("2.4", "2.4"))]
BESIDE = [pytest.param(pair, id=" ".join(pair), marks=[pytest.mark.exhaustive] if at else []) for at, pair in enumerate(QUICK + LONG)]
PAIRS = [pytest.param(pair, id=" ".join(pair), marks=[pytest.mark.long] * (pair != ("maildir", "mdbox"))) for pair in QUICK]
PAIRS += [pytest.param(pair, id=" ".join(pair), marks=pytest.mark.exhaustive) for pair in LONG]
DONE = {}


def rows_for(session, pair, test):
    """The rows that this run of pytest has chosen for a pair: those of its items."""
    chosen = {item.callspec.params["name"] for item in session.items
              if item.function.__name__ == test and item.callspec.params["pair"] == pair}
    storage = pair[0].partition("@")[0]
    return [row for name, row in scenarios.ROWS.items() if name in chosen and storage in row.storages]


def outcome_of(request, pair, name, replication):
    """Runs the pair's rows when the first of them is asked for."""
    conftest.need(*pair, replication=replication)
    key = (replication, pair)
    if key not in DONE:
        with Group(*pair, replication=replication, extras=("acl", "sieve")) as group:
            DONE[key] = table.run(group, rows_for(request.session, pair, request.function.__name__))
            DONE[key, "panics"] = conftest.panics(group)
            DONE[key, "logs"] = group.logs("dovelane.*user=|lane to|dovelane-worker", 50000)
        conftest.record(replication, " ".join(pair), DONE[key])
    if name not in DONE[key]:
        pytest.skip(f"a row about {', '.join(scenarios.ROWS[name].storages)}")
    return DONE[key][name], DONE[key, "panics"], DONE[key, "logs"]


@pytest.mark.parametrize("name", scenarios.ROWS)
@pytest.mark.parametrize("pair", PAIRS)
def test_row(request, pair, name):
    outcome, panics, logs = outcome_of(request, pair, name, "dovelane")
    if not outcome.ok:
        lines = [line for line in logs.splitlines() if outcome.user in line or ": lane to" in line]
        last = [line for line in lines if line.endswith("result 0 ")][-20:]  # most of them, and they say the least
        told = "\n".join(line for line in lines if not line.endswith("result 0 ") or line in last)
        pytest.fail(f"{outcome.row.title}\n{outcome.complaint}\nlog lines of the user:\n{told}", pytrace=False)
    assert not panics, panics


@pytest.mark.long
@pytest.mark.parametrize("name", scenarios.ROWS)
@pytest.mark.parametrize("pair", BESIDE)
def test_dsync_beside(request, pair, name):
    """Stock dsync on the same rows: it goes into the report, whatever it does."""
    outcome_of(request, pair, name, "dsync")
