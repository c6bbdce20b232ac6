#!/usr/bin/env python3
"""What vramctl prints for long: decisions as they fall, pictures; and its end with whoever reads them."""
import json
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import terminal_test  # noqa: E402
from terminal_test import PATIENCE, TerminalTest  # noqa: E402


class FollowTest(TerminalTest):
    def printing(self, *arguments):
        """vramctl with a pipe to read its output from."""
        program = subprocess.Popen([terminal_test.BIN / "vramctl", f"--address={self.address}", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.addCleanup(program.stderr.close)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def decide(self):
        """Has the broker decide a lot."""
        self.assertEqual(self.vramctl("conformance").returncode, 0)

    def last_decision(self):
        answer = json.loads(self.vramctl("decisions", "--limit=1", "--format=json").stdout)
        return int(answer["decisions"][0]["id"])

    def test_decisions_come_as_they_fall(self):
        self.start_broker()
        program = self.printing("decisions", "--follow", "--limit=0", "--format=json")
        rounds = 0
        while not select.select([program.stdout], [], [], 0)[0]:  # it may not watch yet at the first
            self.assertLess(rounds, 10)
            self.decide()
            rounds += 1
        last = self.last_decision()
        ids = []
        while not ids or ids[-1] < last:
            ids.append(int(json.loads(program.stdout.readline())["id"]))
        self.assertEqual(ids, list(range(ids[0], last + 1)), "each, once, in order")
        self.stop_broker()
        self.assertEqual(program.wait(PATIENCE), 2)
        self.assertIn(b"the broker is stopping", program.stderr.read())

    def test_those_of_before_are_shown_as_far_as_they_are_wanted(self):
        self.start_broker()
        self.decide()
        last = self.last_decision()
        before = self.printing("decisions", "--follow", "--limit=2")
        for number in (last - 1, last):
            self.assertIn(str(number).encode(), before.stdout.readline().split())
        refused = self.vramctl("decisions", "--limit=0")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--limit: 0 given, 1 to 4096 is allowed", refused.stderr)
        only_new = self.printing("decisions", "--follow", "--limit=0", "--format=json")
        self.stop_broker()
        self.assertEqual(only_new.wait(PATIENCE), 2)
        self.assertEqual(only_new.stdout.read(), b"", "none followed")

    def test_ends_with_its_reader_though_nothing_happens(self):
        self.start_broker()
        self.decide()
        for arguments in (("decisions", "--follow"), ("watch",), ("watch", "--format=json")):
            with self.subTest(arguments):
                program = self.printing(*arguments)
                self.assertTrue(program.stdout.readline())
                program.stdout.close()
                self.assertEqual(program.wait(PATIENCE), -signal.SIGPIPE, program.stderr.read())
                self.assertEqual(program.stderr.read(), b"")


if __name__ == "__main__":
    terminal_test.BIN = Path(sys.argv.pop(1))
    unittest.main(verbosity=2)
