#!/usr/bin/env python3
"""Runs the demo at a small scale, with real processes, and asserts what ran, bytes moved and results."""
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
GIB = 1 << 30
SCALE = 512
LAYERS = 66
LAYER_BYTES = 226701339
ARMS = ["streamed", "set_released", "local_rule", "broker", "broker_all"]
LIMIT_SECONDS = 240


class DemoTest(unittest.TestCase):
    """One run for all tests: they look at the same table."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="demo-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        # As processes of the demo name theirs, so that what is left behind can be told.
        environment = dict(os.environ, TMPDIR=cls.folder.name)
        path = Path(cls.folder.name) / "table.json"
        demo = subprocess.Popen(
            [PROGRAM, "demo", f"--bytes-scale={SCALE}", "--time-scale=60", "--requests=2", "--check",
             f"--work-dir={cls.folder.name}/work", f"--json={path}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        cls.pid = demo.pid
        try:
            cls.out, cls.err = demo.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            demo.send_signal(signal.SIGTERM)
            cls.out, cls.err = demo.communicate()
        cls.status = demo.returncode
        cls.table = json.loads(path.read_text()) if path.exists() else {"cards": []}

    def arms(self, capacity_gib):
        for card in self.table["cards"]:
            if card["capacity_gib"] == capacity_gib:
                return {arm["name"]: arm for arm in card["arms"]}
        self.fail(f"no card of {capacity_gib} GiB in the table; the demo said:\n{self.err}")

    def test_ends_well(self):
        self.assertEqual(self.status, 0, self.out + self.err)
        self.assertEqual(self.table["scale"], {"bytes": SCALE, "time": 60})

    def test_every_arm_is_told_of(self):
        for gib in (31.4, 23.5):
            self.assertEqual(list(self.arms(gib)), ARMS)
        orders = [card["order"] for card in self.table["cards"]]
        self.assertEqual(orders[0], list(reversed(orders[1])))

    def test_all_run_on_the_large_card(self):
        for name, arm in self.arms(31.4).items():
            self.assertTrue(arm["ran"], f"{name}: {arm['error']}")
            self.assertEqual(arm["requests"], 2)
            self.assertEqual(arm["error"], "")

    def test_whole_sets_run_out_of_memory_on_the_small_card(self):
        arms = self.arms(23.5)
        for name in ("set_released", "local_rule"):
            self.assertFalse(arms[name]["ran"], name)
            self.assertIn("RESOURCE_EXHAUSTED", arms[name]["error"])
            self.assertIn("out of memory", arms[name]["error"])
        for name in ("streamed", "broker", "broker_all"):
            self.assertTrue(arms[name]["ran"], arms[name]["error"])

    def test_results_are_the_same_everywhere(self):
        results = {arm["result_sha256"] for gib in (31.4, 23.5)
                   for arm in self.arms(gib).values() if arm["ran"]}
        self.assertEqual(len(results), 1, results)
        self.assertTrue(self.table["bit_identical"])

    def test_bytes_moved(self):
        layer = LAYER_BYTES / SCALE
        whole = LAYERS * layer
        for gib in (31.4, 23.5):
            arms = self.arms(gib)
            # Two requests, each of which streams the whole text encoder.
            self.assertAlmostEqual(arms["streamed"]["bytes_to_device"], 2 * whole, delta=whole / 50)
            for name in ("broker", "broker_all"):
                self.assertLess(arms[name]["bytes_to_device"], arms["streamed"]["bytes_to_device"])
        large = self.arms(31.4)
        # Setting a set up and dropping it moves as much as streaming.
        self.assertAlmostEqual(large["set_released"]["bytes_to_device"], 2 * whole, delta=whole / 50)
        # 53 of 66 layers stay, 13 are streamed by each request.
        self.assertAlmostEqual(large["local_rule"]["bytes_to_device"], 2 * 13 * layer, delta=layer)
        self.assertLessEqual(large["broker"]["bytes_to_device"], large["local_rule"]["bytes_to_device"])

    def test_no_card_was_ever_full_beyond_its_size(self):
        for gib in (31.4, 23.5):
            for name, arm in self.arms(gib).items():
                self.assertGreater(arm["peak_bytes"], 0, name)
                self.assertLessEqual(arm["peak_bytes"], gib * GIB / SCALE, name)

    def test_nothing_is_left_behind(self):
        cards = [name for name in os.listdir("/dev/shm") if f"pipeline-{self.pid}-" in name]
        self.assertEqual(cards, [])
        self.assertEqual([name for name in os.listdir(self.folder.name) if name.startswith("vram-")], [])
        self.assertEqual(list((Path(self.folder.name) / "work" / "logs").iterdir()), [])


class InterruptTest(unittest.TestCase):
    """A demo that is ended early takes its processes and its card along."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="demo-test-")
        self.addCleanup(self.folder.cleanup)
        environment = dict(os.environ, TMPDIR=self.folder.name)
        self.demo = subprocess.Popen(
            [PROGRAM, "demo", f"--bytes-scale={SCALE}", "--time-scale=60", "--requests=1000",
             "--arms=broker", "--card-gib=31.4", f"--work-dir={self.folder.name}/work"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(self.demo.stderr.close)
        self.addCleanup(self.demo.kill)
        lines = []
        for line in self.demo.stderr:
            lines.append(line)
            if " request 1 of " in line:
                break
        children = Path(f"/proc/{self.demo.pid}/task/{self.demo.pid}/children").read_text().split()
        self.assertEqual(len(children), 4, f"three workers and a broker, {lines}")
        self.descriptors = [os.pidfd_open(int(pid)) for pid in children]
        for descriptor in self.descriptors:
            self.addCleanup(os.close, descriptor)
        self.assertTrue(self.cards())

    def cards(self):
        return [name for name in os.listdir("/dev/shm") if f"pipeline-{self.demo.pid}-" in name]

    def assert_children_end(self):
        for descriptor in self.descriptors:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            self.assertTrue(ended.poll(30_000), "a child lives on")

    def test_interrupted(self):
        self.demo.send_signal(signal.SIGINT)
        self.assertEqual(self.demo.wait(timeout=60), 128 + signal.SIGINT)
        self.assert_children_end()
        self.assertEqual(self.cards(), [])
        self.assertEqual([n for n in os.listdir(self.folder.name) if n.startswith("vram-")], [])

    def test_killed(self):
        self.demo.kill()
        self.demo.wait(timeout=60)
        self.assert_children_end()
        # Nobody is left to remove the card's name; the next one to make a card does so.
        for name in self.cards():
            os.unlink(f"/dev/shm/{name}")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
