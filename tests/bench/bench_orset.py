"""What the convergent core costs: operations out and in, in memory and through SQLite, bytes of state, an exchange."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

ABOUT = "the OR-Set core of the mailboxes: operations, state, exchange"
OPTIONS = {"messages": 1000000}
QUICK = {"messages": 20000}
ROOT = Path(__file__).resolve().parents[2]


def run(report, options):
    build = Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
    with tempfile.NamedTemporaryFile(suffix=".json") as figures:
        subprocess.run([build / "tests" / "bench" / "orset" / "orset-bench", figures.name, str(options.messages)], cwd=ROOT,
                       stdout=subprocess.DEVNULL, check=True)
        for row in json.load(open(figures.name))["rows"]:
            report.row(row["measure"], row["value"], row["unit"], row.get("comparator"), row.get("comparator_value"), row.get("goal"))
