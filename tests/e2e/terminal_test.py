#!/usr/bin/env python3
"""vramctl on a real terminal: watch draws, follows its size, takes keys and leaves all as it was; drain asks."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

BIN = Path()
PATIENCE = 20


class Screen:
    """What a terminal shows of the few sequences that vramctl sends; any other is an error."""

    SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")

    def __init__(self, columns, rows):
        self.alternate = False
        self.cursor = True
        self.left_alternate = 0
        self.clears = 0
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0

    def feed(self, text):
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = self.SEQUENCE.match(text, at)
                if match is None:
                    return text[at:]  # the rest of it comes later
                self.order(*match.groups())
                at = match.end()
            else:
                self.put(text[at])
                at += 1
        return ""

    def put(self, character):
        if character == "\r":
            self.x = 0
        elif character == "\n":
            self.y += 1
            if self.y >= self.rows:  # it would scroll
                self.lines = self.lines[1:] + [[" "] * self.columns]
                self.y = self.rows - 1
        else:
            if self.x < self.columns:
                self.lines[self.y][self.x] = character
            self.x += 1

    def order(self, private, numbers, letter):
        if private and letter in "hl":
            if numbers == "1049":
                self.left_alternate += self.alternate and letter == "l"
                self.alternate = letter == "h"
            elif numbers == "25":
                self.cursor = letter == "h"
            else:
                raise AssertionError(f"an unknown mode: {numbers}")
        elif letter == "H":
            row, column = numbers.split(";")
            self.x, self.y = int(column) - 1, int(row) - 1
        elif letter == "K" and not numbers:
            self.lines[self.y][self.x:] = [" "] * max(0, self.columns - self.x)
        elif letter == "J" and numbers == "2":
            self.clears += 1
            self.lines = [[" "] * self.columns for _ in range(self.rows)]
        elif letter != "m":
            raise AssertionError(f"an unknown order: {numbers}{letter}")

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


class Session:
    """vramctl on a pseudo-terminal, as its session's foreground job."""

    def __init__(self, arguments, columns=100, rows=30, **environment):
        self.master, slave = pty.openpty()
        self.slave = slave  # kept open, so that its modes can be asked for after the end
        self.screen = Screen(columns, rows)
        self.raw = ""
        self.rest = ""
        self.set_size(columns, rows)
        self.modes = termios.tcgetattr(slave)
        settings = dict(os.environ, TERM="xterm-256color", **environment)
        if "NO_COLOR" not in environment:
            settings.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [BIN / "vramctl", *arguments], stdin=slave, stdout=slave, stderr=slave, env=settings,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def set_size(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.drain()
        self.screen.resize(columns, rows)
        self.set_size(columns, rows)

    def drain(self, seconds=0.0):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                text = os.read(self.master, 65536).decode()
            except OSError:
                return
            self.raw += text
            self.rest = self.screen.feed(self.rest + text)

    def type(self, keys):
        os.write(self.master, keys.encode())

    def until(self, condition):
        """Whether the condition comes to hold; looks at each piece of output."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.drain(0.02)
        return True

    def shows(self, *texts):
        return self.until(lambda: all(text in self.screen.text() for text in texts))

    def end(self):
        """The exit status; reads to the end."""
        self.until(lambda: self.process.poll() is not None)
        self.drain(0.05)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="vramctl-test-")
        self.addCleanup(self.folder.cleanup)
        self.address = f"unix:{self.folder.name}/b"
        self.names = [f"watch-{os.getpid()}-{name}" for name in ("a", "b")]
        self.broker = None
        self.addCleanup(self.stop_broker)

    def start_broker(self):
        log = open(f"{self.folder.name}/log", "ab")
        self.addCleanup(log.close)
        devices = [f"--emulated-device={name}={gib}GiB" for name, gib in zip(self.names, (24, 12))]
        self.broker = subprocess.Popen(
            [BIN / "vram-brokerd", f"--listen={self.address}", "--metrics-address=", "--reserve=1GiB",
             f"--lock-dir={self.folder.name}", "--reading-interval=1h", *devices], stderr=log)
        deadline = time.monotonic() + PATIENCE
        while self.vramctl("health").returncode != 0:
            self.assertLess(time.monotonic(), deadline, Path(log.name).read_text())

    def stop_broker(self, number=signal.SIGTERM):
        if self.broker is not None:
            self.broker.send_signal(number)
            self.broker.wait(PATIENCE)
        self.broker = None

    def vramctl(self, *arguments):
        return subprocess.run([BIN / "vramctl", f"--address={self.address}", *arguments], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)

    def session(self, *arguments, **options):
        session = Session([f"--address={self.address}", *arguments], **options)
        self.addCleanup(session.close)
        return session

    def assert_shows(self, session, *texts):
        self.assertTrue(session.shows(*texts), f"{texts} not shown:\n{session.screen.text()}")

    def assert_restored(self, session):
        self.assertEqual(termios.tcgetattr(session.slave), session.modes, "the modes are as they were")
        self.assertFalse(session.screen.alternate)
        self.assertTrue(session.screen.cursor)
        self.assertTrue(session.raw.rstrip("\r\n").endswith("\x1b[?1049l"), session.raw[-80:])


class WatchTest(TerminalTest):
    def test_draws_follows_the_size_and_leaves_all_as_it_was(self):
        self.start_broker()
        session = self.session("watch")
        self.assert_shows(session, "vram broker at", "q quits", self.names[0], "24.00 GiB, 23.00 GiB free",
                          "- reserve", ". free", "no components")
        self.assertTrue(session.screen.alternate)
        self.assertFalse(session.screen.cursor)
        self.assertNotEqual(termios.tcgetattr(session.slave), session.modes)
        lines = session.screen.text().splitlines()
        self.assertEqual(len(lines[0]), 99, "the title is as wide as the screen, without its last space")
        bars = [line for line in lines if line.startswith("  [")]
        self.assertEqual([len(bar) for bar in bars], [100])

        session.resize(60, 12)
        self.assertTrue(session.until(lambda: any(
            len(line) == 60 and line.startswith("  [") for line in session.screen.text().splitlines())),
            session.screen.text())
        self.assert_shows(session, "q quits  ? help")
        session.resize(20, 3)
        self.assert_shows(session, " vram broker at")
        session.type("q")
        self.assertEqual(session.end(), 0)
        self.assert_restored(session)

    def test_only_what_changes_is_written(self):
        self.start_broker()
        session = self.session("watch")
        self.assert_shows(session, "no components")
        clears = session.screen.clears
        session.until(lambda: "unchanged for" in session.screen.text())
        self.assertEqual(session.screen.clears, clears, "lines are written over, the screen is not cleared")
        self.assertEqual(session.raw.count("no components"), 1, "what does not change is not written again")
        session.type("\x0c")
        self.assertTrue(session.until(lambda: session.screen.clears == clears + 1), "Ctrl-L draws anew")
        session.type("q")
        self.assertEqual(session.end(), 0)

    def test_keys_choose_a_device_and_show_help(self):
        self.start_broker()
        session = self.session("watch")
        self.assert_shows(session, f"> emulated:{self.names[0]}", f"  emulated:{self.names[1]}")
        session.type("\t")
        self.assert_shows(session, f"> emulated:{self.names[1]}", "12.00 GiB, 11.00 GiB free")
        session.type("\x1b[C")
        self.assert_shows(session, f"> emulated:{self.names[0]}")
        session.type("\x1b[D")
        self.assert_shows(session, f"> emulated:{self.names[1]}")
        session.type("?")
        self.assert_shows(session, "previous device", "never granted")
        session.type("?")
        self.assert_shows(session, "12.00 GiB, 11.00 GiB free")
        session.type("\x03")  # Ctrl-C
        self.assertEqual(session.end(), 0)
        self.assert_restored(session)

    def test_goes_on_when_the_broker_comes_back(self):
        self.start_broker()
        session = self.session("watch", "--interval=50ms")
        self.assert_shows(session, "no components")
        self.stop_broker(signal.SIGKILL)
        self.assert_shows(session, "no connection:", "trying again; the picture is")
        self.start_broker()
        self.assertTrue(session.until(lambda: "no connection" not in session.screen.text()),
                        session.screen.text())
        self.assertEqual(self.vramctl("drain", "--yes").returncode, 0)
        self.assert_shows(session, "draining: no use is admitted")
        session.process.terminate()
        self.assertEqual(session.end(), 0)
        self.assert_restored(session)

    def test_stopped_by_the_shell_it_gives_the_terminal_back(self):
        self.start_broker()
        session = self.session("watch")
        self.assert_shows(session, "no components")
        session.process.send_signal(signal.SIGTSTP)
        self.assertTrue(session.until(lambda: not session.screen.alternate))
        self.assertTrue(session.until(lambda: Path(
            f"/proc/{session.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"))
        self.assertEqual(termios.tcgetattr(session.slave), session.modes)
        session.process.send_signal(signal.SIGCONT)
        self.assertTrue(session.until(lambda: session.screen.alternate))
        self.assert_shows(session, "no components")
        session.type("q")
        self.assertEqual(session.end(), 0)
        self.assert_restored(session)

    def test_colours_are_for_terminals_that_want_them(self):
        self.start_broker()
        for settings, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            session = self.session("watch", "--count=1", **settings)
            self.assertEqual(session.end(), 0)
            self.assertEqual("\x1b[1m" in session.raw, coloured, settings)
            session = self.session("status", **settings)
            self.assertEqual(session.end(), 0)
            self.assertEqual("\x1b[" in session.raw, coloured, settings)
        self.assertNotIn("\x1b", self.vramctl("status").stdout)

    def test_prints_one_after_another_where_there_is_no_terminal(self):
        self.start_broker()
        end = self.vramctl("watch", "--count=1")
        self.assertEqual((end.returncode, end.stderr), (0, ""))
        self.assertRegex(end.stdout, r"^--- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ---\nemulated:")
        json = self.vramctl("watch", "--count=1", "--format=json")
        self.assertEqual(json.stdout.count("\n"), 1)
        self.assertTrue(json.stdout.startswith('{"broker_epoch":'), json.stdout)
        on_terminal = self.session("watch", "--no-tty", "--count=1")
        self.assertEqual(on_terminal.end(), 0)
        self.assertNotIn("1049", on_terminal.raw)

    def test_printing_tells_that_the_broker_went_and_came(self):
        self.start_broker()
        out = Path(self.folder.name) / "out"
        with open(out, "wb") as file:
            watch = subprocess.Popen(
                [BIN / "vramctl", f"--address={self.address}", "watch"], stdout=file,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)

        def wait_for(pattern):
            deadline = time.monotonic() + PATIENCE
            while not re.search(pattern, out.read_text()):
                self.assertLess(time.monotonic(), deadline, f"{pattern} not in:\n{out.read_text()}")

        wait_for("--- ")
        self.stop_broker()
        wait_for("; trying again\n")
        self.start_broker()
        wait_for(r"(?s)--- .*; trying again\n.* is back\n--- ")
        watch.terminate()
        self.assertEqual(watch.wait(PATIENCE), 0)

    def test_a_broker_that_is_away_at_first_is_a_failure(self):
        session = self.session("watch")
        self.assertEqual(session.end(), 2)
        self.assertIn("does one run there?", session.raw)
        self.assertNotIn("1049", session.raw, "the screen is not taken for nothing")
        self.assertEqual(termios.tcgetattr(session.slave), session.modes)
        end = self.vramctl("watch", "--interval=10ms")
        self.assertEqual(end.returncode, 2)
        self.assertIn("--interval: 10ms given, 50ms or more is allowed, 1h at most", end.stderr)


class DrainTest(TerminalTest):
    def test_asks_and_takes_no_for_an_answer(self):
        self.start_broker()
        session = self.session("drain")
        self.assertTrue(session.until(lambda: "Type yes to drain it: " in session.raw), session.raw)
        self.assertIn("no use runs, nothing is kept between uses", session.raw)
        session.type("no\n")
        self.assertEqual(session.end(), 1)
        self.assertIn("not drained", session.raw)
        self.assertEqual(self.vramctl("health").returncode, 0)
        session = self.session("drain", "--wait")
        self.assertTrue(session.until(lambda: "Type yes" in session.raw))
        session.type("yes\n")
        self.assertEqual(session.end(), 0)
        self.assertIn("draining: no use runs", session.raw)
        self.assertEqual(self.vramctl("health").returncode, 1)

    def test_a_restart_takes_the_drain_back(self):
        self.start_broker()
        self.assertEqual(self.vramctl("drain", "--yes").returncode, 0)
        self.stop_broker()
        self.start_broker()
        self.assertEqual(self.vramctl("health").returncode, 0)


if __name__ == "__main__":
    BIN = Path(sys.argv.pop(1))
    unittest.main(verbosity=2)
