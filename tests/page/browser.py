"""Common to the tests of the page in a browser."""
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from playwright.sync_api import Error, sync_playwright

PATIENCE_MS = 30_000


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Visit:
    """A page in a window of its own; what it complains of and asks for is kept."""

    def __init__(self, browser, url, width=1280, scheme="light", answer=None):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme,
                                           reduced_motion="reduce")
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints, self.asked = [], []
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        if answer is not None:
            self.page.route("**/api/**", answer)
        self.page.goto(url)

    def until(self, condition, seconds=PATIENCE_MS / 1000):
        """Asked from outside: the page's own policy lets nothing be evaluated inside."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {condition}")
            self.page.wait_for_timeout(50)


class PageTest(unittest.TestCase):
    """Common to all: the browser, and a folder."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="page-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        cls.browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def start(cls, arguments, **environment):
        log = open(Path(cls.folder.name) / f"{Path(arguments[0]).name}.log", "a", encoding="utf-8")
        cls.addClassCleanup(log.close)
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, **environment})
        cls.addClassCleanup(cls.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)

    @staticmethod
    def reach(page, url):
        """Until a broker is there."""
        for _ in range(300):
            try:
                page.goto(url, timeout=2000)
                return
            except Error:
                page.wait_for_timeout(100)
        raise AssertionError(f"no broker at {url}")

    def visit(self, url, **how):
        visit = Visit(self.browser, url, **how)
        self.addCleanup(visit.context.close)
        return visit
