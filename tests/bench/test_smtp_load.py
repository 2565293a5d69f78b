"""The generator against sinks that note every mail: test_smtp_load.py SMTP_LOAD

What it says it sent is what came in, each mail once, of the size that was asked for, to both servers.
"""
import json
import socket
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.stack import SinkShape, Stack  # noqa: E402 (after the path)

PROGRAM = None


def load(*words, good=True):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
    if good:
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)
    return done.returncode, done.stderr.decode()


class SmtpLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = Stack(postfix="none", sinks=[SinkShape("first", ours=True), SinkShape("second", ours=True)]).up()
        cls.address = {name: cls.stack[f"sink-{name}"].note["address"] for name in ("first", "second")}

    @classmethod
    def tearDownClass(cls):
        cls.stack.down()

    def arrived(self, name, run):
        """(kind, id) of a run's mails in a sink's journal."""
        lines = [line.split("\t") for line in Path(self.stack[f"sink-{name}"].note["journal"]).read_text().splitlines()]
        return [(line[1], line[2]) for line in lines if line[2].startswith(run + "-")]

    def test_every_mail_arrives_once_at_both_servers(self):
        said = load("--to", self.address["first"], "--also", self.address["second"], "--mails", 500, "--run", "both")
        for name in ("first", "second"):
            self.assertEqual(said[name]["mails"], 500)
            self.assertEqual(Counter(self.arrived(name, "both")), {("mail", f"both-{i}-{name}"): 1 for i in range(500)})

    def test_sizes_are_exact_and_the_same_in_every_run(self):
        words = ["--to", self.address["first"], "--mails", 400, "--sizes", "600:50,1024:30,10240:20"]
        one, two = load(*words, "--run", "one"), load(*words, "--run", "two", "--sessions", 3)
        self.assertEqual(one["sizes"], two["sizes"])
        self.assertEqual(sum(one["sizes"].values()), 400)
        self.assertEqual(one["first"]["bytes"], sum(int(size) * mails for size, mails in one["sizes"].items()))
        self.assertTrue(150 < one["sizes"]["600"] < 250, one["sizes"])

    def test_new_connections_when_asked_for(self):
        said = load("--to", self.address["first"], "--mails", 100, "--per-connection", 1, "--sessions", 4, "--run", "fresh")
        self.assertEqual(said["first"]["mails"], 100)
        self.assertEqual(len(self.arrived("first", "fresh")), 100)

    def test_open_loop_keeps_its_rate_and_counts_the_wait(self):
        said = load("--to", self.address["first"], "--mails", 200, "--rate", 400, "--run", "open")["first"]
        self.assertGreater(said["seconds"], 0.45)
        self.assertEqual(said["due_to_250_ms"]["count"], 200)
        self.assertGreaterEqual(said["due_to_250_ms"]["mean"], said["dot_to_250_ms"]["mean"])

    def test_it_is_its_own_next_hop(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        said = load("--to", address, "--next-hop", address, "--mails", 300, "--sizes", "600:50,10240:50", "--run", "own")
        self.assertEqual((said["way_ms"]["count"], said["twice"]), (300, 0))
        self.assertLess(said["way_ms"]["p50"], 60000)

    def test_a_refusal_ends_the_run_and_names_the_answer(self):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.stack["sink-second"].note["control"])
            control.sendall(b'{"do": "rules", "rules": [{"at": "rcpt", "reply": "450 4.2.0 not now", "times": 1}]}\n')
            control.recv(4096)
        code, text = load("--to", self.address["second"], "--mails", 5, good=False)
        self.assertEqual(code, 1)
        self.assertIn("expected 250, got: 450 4.2.0 not now", text)
        code, text = load("--to", "127.0.0.1:1", good=False)
        self.assertEqual(code, 1)
        self.assertIn("refused", text)

    def test_what_it_does_not_understand_it_does_not_guess(self):
        for words in (["--to", "nowhere"], ["--to", "127.0.0.1:25x"], ["--to", "127.0.0.1:25", "--sizes", "100"], [],
                      ["--to", "127.0.0.1:25", "--mails", "-1"]):
            code, text = load(*words, good=False)
            self.assertEqual(code, 2, words)
            self.assertIn("usage", text)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
