"""What the bench `mailbox` builds on, without a Dovecot."""
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import bench_instructions  # noqa: E402 (after the path)
import bench_mailbox  # noqa: E402 (after the path)
from cgroups import cgroups  # noqa: E402
from mailbox_rows import ROWS, parts, ranges, together  # noqa: E402
from mailbox_sites import Session  # noqa: E402
from support.stack.failure import StackError  # noqa: E402


class Quiet(socket.socket):
    """A socket that sends nothing."""

    def sendall(self, *_):
        pass


class Work(unittest.TestCase):
    def test_sets_are_short(self):
        self.assertEqual(ranges([1, 2, 3, 5, 7, 8]), "1:3,5,7:8")
        self.assertEqual(ranges([]), "")

    def test_parts_are_all_of_the_work(self):
        for count in (1, 4, 5, 6, 23):
            found = parts(list(range(count)), SimpleNamespace(parts=5))
            self.assertEqual(sum(found, []), list(range(count)))
            self.assertLessEqual(len(found), 5)

    def test_each_client_does_its_own_work(self):
        done = []
        counts = list(together("ab", [[1, 2, 3], [4, 5, 6]], SimpleNamespace(parts=2),
                               lambda *one: done.append(one)))
        self.assertEqual(counts, [4, 2])
        wanted = [("a", n) for n in (1, 2, 3)] + [("b", n) for n in (4, 5, 6)]
        self.assertEqual(sorted(done), wanted)

    def test_a_client_that_fails_ends_the_run(self):
        def fail(*_):
            raise StackError("no")
        with self.assertRaises(StackError):
            list(together(["a"], [[1]], SimpleNamespace(parts=1), fail))

    def test_rows_have_names_of_their_own(self):
        names = [row.name for rows in ROWS.values() for row in rows]
        self.assertEqual(len(names), len(set(names)))

    def test_a_row_costs_what_its_parts_cost(self):
        done = [(10, 1.0, {"mail": 5.0}), (30, 1.0, {"mail": 3.0})]
        self.assertEqual(bench_mailbox.summed(["mail"], done), {"rate": 20.0, "mail": 0.2})


class Answers(unittest.TestCase):
    def heard(self, answers):
        """A session to which a server has said these bytes."""
        ours, theirs = socket.socketpair()
        theirs.sendall(answers)
        theirs.close()
        made = Session.__new__(Session)
        made.socket, made.rest = Quiet(fileno=ours.detach()), b""
        self.addCleanup(made.close)
        return made

    def test_a_long_answer_is_read_to_its_end(self):
        many = b"* 1 FETCH (BODY[] {6}\r\nx OK\r\n)\r\n" * 3000
        self.heard(many + b"x OK done.\r\n").drain("FETCH 1:* BODY[]")

    def test_a_refusal_and_a_lost_connection_are_errors(self):
        for answers in (b"* 1 EXISTS\r\nx NO not now\r\n", b"* 1 EXISTS\r\n"):
            with self.assertRaises(StackError):
                self.heard(answers).drain("FETCH 1:* FLAGS")

    def test_what_is_found_and_what_comes_next(self):
        self.assertEqual(self.heard(b"* SEARCH 3 5\r\nx OK done.\r\n").uids("ALL"), [3, 5])
        self.assertEqual(self.heard(b"* SEARCH\r\nx OK done.\r\n").uids("ALL"), [])
        status = b"* STATUS INBOX (UIDNEXT 12)\r\nx OK done.\r\n"
        self.assertEqual(self.heard(status).next_uid(), 12)


class Counts(unittest.TestCase):
    """What the bench `instructions` reads."""
    def read(self, tool, text):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "out")
            path.write_text(text)
            return bench_instructions.TOOLS[tool][1](path)

    def test_of_callgrind(self):
        text = "events: Ir\nfn=(1) main\n5 100\n\ntotals: 711743\n"
        self.assertEqual(self.read("instructions", text), 711743)

    def test_of_strace(self):
        text = " 60.0 0.001 3 120 2 read\n 40.0 0.001 3 80 write\n"
        for errors in ("        ", "       2"):
            total = f"100.00    0.015286           7      2000 {errors} total\n"
            self.assertEqual(self.read("system calls", text + total), 2000)

    def test_a_report_without_its_sum_is_an_error(self):
        for tool in bench_instructions.TOOLS:
            with self.assertRaises(StackError):
                self.read(tool, "")


class Groups(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("control groups are root's")
        try:
            with cgroups("try"):
                pass
        except StackError as error:
            self.skipTest(str(error))

    def test_what_ended_is_counted(self):
        with cgroups("one", "other") as groups:
            work = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
            subprocess.run(["sh", "-c", f"echo 0 > {groups['one'].door}; {work}"], check=True)
            self.assertGreater(groups["one"].ms(), 5)
            self.assertEqual(groups["other"].ms(), 0)
            where = groups["one"].path.parent
        self.assertFalse(where.exists())


if __name__ == "__main__":
    unittest.main()
