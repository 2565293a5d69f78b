"""The example in redis-cli, and the one at the head of docs/lane-commands.md, do what they say."""
import re
import shutil
import subprocess

import pytest

from support.lane_server import ROOT, LaneServer

pytestmark = pytest.mark.check

EXAMPLES = ROOT / "clients" / "python" / "examples"


@pytest.fixture
def server(tmp_path):
    with LaneServer(tmp_path) as s:
        yield s


@pytest.fixture
def cli():
    found = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if not found:
        pytest.skip("no redis-cli")
    return found


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_billing_in_redis_cli(server, cli):
    out = run(EXAMPLES / "billing.sh", "-s", server.path)
    assert out.endswith("all booked\n") and '"caller":"4670001"' in out.replace("\\", "")
    c = server.client()
    assert c("LANE.LEN", "billing") == 0 and c.info("offers")["expiring"] == 1 and c("LANE.LEN", "billing:manual") == 0


def test_try_it_of_the_page(server, cli):
    """Every command of the page's first example, in one redis-cli; what changes from run to run is taken from the answers."""
    page = (ROOT / "docs" / "lane-commands.md").read_text().split("```")[1]
    commands = re.findall(r"^> (.*)$", page, re.M)
    assert [line.split()[0] for line in commands] == ["LANE.PUT", "LANE.PUSH", "LANE.TAKE", "LANE.ACK", "LANE.NACK"]
    lease = next(w for line in commands for w in line.split() if len(w) > 10 and w.isdigit())
    with subprocess.Popen([cli, "-s", server.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        answers = []
        for line in commands:
            p.stdin.write(line.replace(lease, answers[2][1] if len(answers) > 2 else lease) + "\n")
            p.stdin.flush()
            size = {"LANE.PUT": 1, "LANE.PUSH": 3, "LANE.TAKE": 16, "LANE.ACK": 2, "LANE.NACK": 3}[line.split()[0]]
            answers.append([p.stdout.readline().strip() for _ in range(size)])
        p.stdin.close()
    assert answers[0] == ["1"] and answers[1] == ["0", "2", "0"] and answers[3] == ["1", "0"] and answers[4] == ["1", "0", "0"]
    c = server.client()
    assert [e[6:] for e in c.read("q")] == [[b"world", "delayed"]]
