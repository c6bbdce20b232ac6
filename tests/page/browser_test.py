#!/usr/bin/env python3
"""The broker's page in a real browser: a real broker, a real pipeline on an emulated card.

Needs Playwright for Python, and Debian's chromium; ./run.sh test --full sets both up.
    browser_test.py BIN_DIR [--update]     --update writes the pictures of docs/ anew
"""
import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from playwright.sync_api import expect

sys.dont_write_bytecode = True
from browser import PATIENCE_MS, PageTest, Visit, free_port  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = ROOT / "stage_workers/pipeline/workloads/prompt-rewrite-sdxl-12g.json"
BIN = Path()
UPDATE = False
MARKUP = "<img src=x onerror=window.broken=1>"


class LiveTest(PageTest):
    """A pipeline of four components runs over and over while the page is looked at."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        port = free_port()
        cls.url = f"http://127.0.0.1:{port}/"
        workload = json.loads(WORKLOAD.read_text(encoding="utf-8"))
        cls.components = [f"{one['name']}/{one['name']}" for one in workload["components"]]
        # Longer than anybody looks, and two at a time, so that one waits for the other.
        workload["runs"] *= 10
        workload["max_concurrent_runs"] = 2
        path = Path(cls.folder.name) / "workload.json"
        path.write_text(json.dumps(workload), encoding="utf-8")
        cls.start([BIN / "vram-pipeline", "run", "--spawn", f"--workload={path}", "--bytes-scale=512",
                   "--time-scale=1.5", "--declared=current", "--broker=start",
                   f"--work-dir={cls.folder.name}"], VRAM_BROKERD_PAGE_ADDRESS=f"127.0.0.1:{port}")
        cls.first = Visit(cls.browser, "about:blank")
        cls.addClassCleanup(cls.first.context.close)
        cls.reach(cls.first.page, cls.url)
        cls.first.page.wait_for_selector(".decision", timeout=60_000)

    def open(self, query="", **how):
        visit = self.visit(self.url + query, **how)
        visit.page.wait_for_selector(".decision")
        return visit

    def assert_clean(self, visit):
        self.assertEqual(visit.complaints, [])
        strangers = [url for url in visit.asked if not url.startswith(self.url)]
        self.assertEqual(strangers, [])

    def test_the_timeline_moves(self):
        visit = self.open()
        canvas = visit.page.locator("#timeline")
        before = canvas.evaluate("c => [c.toDataURL(), Number(c.dataset.samples)]")
        visit.until(f"Number(document.getElementById('timeline').dataset.samples) > {before[1] + 3}")
        self.assertNotEqual(canvas.evaluate("c => c.toDataURL()"), before[0])
        self.assertGreater(int(canvas.get_attribute("data-uses")), 0)
        self.assertIn("MiB", canvas.get_attribute("aria-label"))
        self.assert_clean(visit)

    def test_components_and_the_ledger_are_shown(self):
        visit = self.open()
        for name in self.components:
            expect(visit.page.locator("#components td", has_text=name).first).to_be_visible()
            expect(visit.page.locator("#timeline-legend li", has_text=name)).to_have_count(1)
        visit.until("/in use [1-9]/.test(document.getElementById('ledger-legend').textContent)")
        expect(visit.page.locator("#ledger-legend li:visible")).to_have_count(8)
        expect(visit.page.locator("#sessions tbody tr")).to_have_count(len(self.components) + 1)
        expect(visit.page.locator("#link-text")).to_have_text("live")
        self.assert_clean(visit)

    def test_a_click_explains_a_decision_and_another_one_hides_it(self):
        visit = self.open()
        button = visit.page.locator(".decision", has_text="grant").last
        button.click()
        why = visit.page.locator(f"#{button.get_attribute('aria-controls')}")
        expect(why).to_contain_text("ago.")
        planned = visit.page.locator(".decision", has_text="next use").first
        identity = planned.get_attribute("aria-controls")
        planned.click()
        expect(visit.page.locator(f"#{identity}")).to_contain_text("What was known")
        self.assertEqual(button.get_attribute("aria-expanded"), "true")
        button.click()
        expect(why).to_be_hidden()
        self.assertEqual(button.get_attribute("aria-expanded"), "false")
        self.assert_clean(visit)

    def test_the_keyboard_reaches_everything(self):
        visit = self.open()
        page = visit.page
        # What comes later makes the list longer while it is walked through.
        wanted = page.evaluate("""() => [...document.querySelectorAll('a[href], button, select, canvas[tabindex]')]
            .filter(e => e.checkVisibility() && !e.closest('li')).map(e => e.id || e.textContent.trim())""")
        reached, unseen, decisions = set(), [], 0
        for _ in range(200):
            page.keyboard.press("Tab")
            name, outline, decision = page.evaluate("""() => { const e = document.activeElement;
                return [e.id || e.textContent.trim(), getComputedStyle(e).outlineStyle, e.className === 'decision']; }""")
            if outline == "none" and name:
                unseen.append(name)
            reached.add(name)
            decisions += decision
            if reached >= set(wanted):
                break
        self.assertEqual(set(wanted) - reached, set())
        self.assertEqual(unseen, [], "no focus is to be seen on these")
        self.assertGreater(decisions, 0)
        self.assert_clean(visit)

    def test_enter_explains_and_arrows_read_the_timeline(self):
        visit = self.open()
        page = visit.page
        page.locator("#timeline").focus()
        for _ in range(3):
            page.keyboard.press("ArrowLeft")
        expect(page.locator("#readout")).to_contain_text("MiB")
        page.keyboard.press("Escape")
        expect(page.locator("#readout")).to_be_hidden()
        page.get_by_role("button", name="5 min", exact=True).press("Enter")
        expect(page.get_by_role("button", name="5 min", exact=True)).to_have_attribute("aria-pressed", "true")
        first = page.locator(".decision").first
        identity = first.get_attribute("aria-controls")
        first.focus()
        page.keyboard.press("Enter")
        expect(page.locator(f"#{identity}")).to_contain_text("ago")
        # New decisions come above it; the focus stays where it is.
        visit.until(f"document.querySelector('#decisions > li .why').id !== '{identity}'")
        self.assertEqual(page.evaluate("document.activeElement.getAttribute('aria-controls')"), identity)
        self.assert_clean(visit)

    def test_no_width_scrolls_sideways_and_both_schemes_can_be_read(self):
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    visit = self.open(width=width, scheme=scheme)
                    visit.page.locator(".decision", has_text="next use").first.click()
                    expect(visit.page.locator(".why:visible")).to_contain_text("What was known")
                    wide = visit.page.evaluate("""() => document.documentElement.scrollWidth > innerWidth ||
                        [...document.querySelectorAll('section')].some(e => e.scrollWidth > e.clientWidth + 1)""")
                    self.assertFalse(wide)
                    for text, ground in (("--text", "--back"), ("--quiet", "--panel"), ("--bad", "--bad-back"),
                                         ("--warn", "--warn-back"), ("--accent", "--back")):
                        self.assertGreaterEqual(visit.page.evaluate(CONTRAST, [text, ground]), 4.5, (text, ground))
                    self.assert_clean(visit)

    def test_times_and_the_device_are_chosen_by_the_address(self):
        decisions = self.first.page.evaluate("fetch('api/decisions').then(a => a.json())")["decisions"]
        middle = self.first.page.evaluate("t => Date.parse(t)", decisions[2]["time"])
        visit = self.open(f"?from={middle}&to={middle}&device=none")
        expect(visit.page.locator("#decisions-range")).to_be_visible()
        expect(visit.page.locator(f"#why-{decisions[2]['id']}")).to_have_count(1)
        self.assertLess(visit.page.locator(".decision").count(), 3)
        visit.page.get_by_role("button", name="Show all times").click()
        visit.until("document.querySelectorAll('.decision').length > 3")
        self.assertNotIn("from=", visit.page.url)
        self.assert_clean(visit)

    def test_pictures_of_the_documentation(self):
        for name, width, scheme in (("page-light", 1280, "light"), ("page-dark-400", 400, "dark")):
            visit = self.open(width=width, scheme=scheme)
            visit.page.get_by_role("button", name="1 min", exact=True).click()
            if UPDATE:
                visit.until("Number(document.getElementById('timeline').dataset.samples) > 150", seconds=120)
            picture = visit.page.screenshot(animations="disabled")
            self.assertGreater(len(picture), 10_000)
            if UPDATE:
                (ROOT / "docs").mkdir(exist_ok=True)
                (ROOT / "docs" / f"{name}.png").write_bytes(picture)
            kept = (ROOT / "docs" / f"{name}.png").read_bytes()
            self.assertLess(len(kept), 200 * 1024)


CONTRAST = """([text, ground]) => {
  const light = (name) => {
    const colour = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const [r, g, b] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16) / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""


class RestartTest(PageTest):
    """A broker that dies and comes back, with a worker whose names are legal and awkward."""

    def broker(self):
        return self.start([BIN / "vram-brokerd", f"--listen=unix:{self.folder.name}/broker.sock",
                           f"--lock-dir={self.folder.name}", f"--emulated-device=page-{os.getpid()}=64MiB",
                           "--reserve=0", "--metrics-address=", f"--page-address=127.0.0.1:{self.port}",
                           "--recovery-window=30s"])

    def test_a_lost_connection_is_said_and_taken_up_again(self):
        self.port = free_port()
        # The broker that comes back has found its card, and so leaves it.
        self.addClassCleanup(Path(f"/dev/shm/vram-card-page-{os.getpid()}").unlink, missing_ok=True)
        first = self.broker()
        probe = Visit(self.browser, "about:blank")
        self.addCleanup(probe.context.close)
        weights = Path(self.folder.name) / "weights"
        subprocess.run([BIN / "vram-make-weights", f"--workload={WORKLOAD}", "--bytes-scale=4096",
                        f"--output-dir={weights}"], check=True, capture_output=True)
        self.start([BIN / "vram-stage-worker", "--name=__proto__", "--component=constructor",
                    f"--weights={weights}/vae.safetensors", f"--card=emulated:page-{os.getpid()}",
                    f"--listen=unix:{self.folder.name}/worker.sock", f"--broker=unix:{self.folder.name}/broker.sock"])
        page = probe.page
        self.reach(page, f"http://127.0.0.1:{self.port}/")
        expect(page.locator("#components td", has_text="__proto__/constructor")).to_have_count(1, timeout=PATIENCE_MS)
        expect(page.locator("#link-text")).to_have_text("live", timeout=PATIENCE_MS)
        first.send_signal(signal.SIGKILL)
        first.wait()
        expect(page.locator(".banner.bad")).to_contain_text("Connection lost. What is shown was so",
                                                            timeout=PATIENCE_MS)
        expect(page.locator("#link-text")).to_have_text("connection lost")
        expect(page.locator("#components td", has_text="__proto__/constructor")).to_have_count(1)
        self.broker()
        expect(page.locator("#link-text")).to_have_text("live", timeout=PATIENCE_MS)
        expect(page.locator(".banner.bad")).to_have_count(0, timeout=PATIENCE_MS)
        expect(page.locator("#components td", has_text="__proto__/constructor")).to_have_count(1, timeout=PATIENCE_MS)
        self.assertNotIn("Connection lost", page.locator("#banners").text_content())


def component(name, **fields):
    return {"id": name, "layers": 8, "held_layers": 6, "target_layers": 2, "held_bytes": "600", "charge_bytes": "600",
            "layer_bytes": "800", "use_id": "0", "granted_layers": 0, "lifetime": "LIFETIME_FORWARD", "refused": False,
            "session_id": "1", "release_asked": "2.5s", "release_overdue": False, **fields}


class MockedTest(PageTest):
    """Pictures that no broker would give, or that are hard to bring about, in place of the broker's."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.port = free_port()
        cls.broker = cls.start([BIN / "vram-brokerd", f"--listen=unix:{cls.folder.name}/b.sock",
                                f"--lock-dir={cls.folder.name}", f"--emulated-device=page-{os.getpid()}-m=64MiB",
                                "--reserve=0", "--metrics-address=", f"--page-address=127.0.0.1:{cls.port}"])
        cls.url = f"http://127.0.0.1:{cls.port}/"
        page = cls.browser.new_page()
        cls.reach(page, cls.url)
        page.close()

    @staticmethod
    def picture():
        classes = dict.fromkeys(("in_use", "retained", "permanent", "pooled", "external", "reserve"), "0")
        return {
            "broker_epoch": "1", "time": "2026-01-01T00:00:00Z", "draining": True, "recovery_left": "8s",
            "devices": [{"uuid": MARKUP, "capacity_bytes": "1000", "external_known": False,
                         **{f"{name}_bytes": amount for name, amount in classes.items()},
                         "draining_bytes": "600", "free_bytes": "500", "overcommitted_bytes": "100",
                         "components": [component(MARKUP),
                                        component("late/c", release_asked="64s", release_overdue=True)]}],
            "sessions": [{"session_id": "1", "worker": "late", "pid": 7, "state": "SESSION_STATE_LOST",
                          "pool_bytes": "0", "unexplained_bytes": "9", "under_released": True, "overdue_targets": 1,
                          "recorded_bytes": "5"}],
            "waiting": [{"component_id": "late/c", "request_id": "r", "waited": "65s", "needed_bytes": "300",
                         "is_long": True, "priority": 0, "blocked_by": f"late/c holds {MARKUP}"}],
        }

    @staticmethod
    def decisions():
        return {"decisions": [{"id": "1", "time": "2026-01-01T00:00:00Z", "kind": "DECISION_KIND_GRANT",
                               "reason": "REASON_PLANNED", "component_id": MARKUP, "held_layers": 0, "layers": 3,
                               "component_layers": 8, "text": MARKUP}]}

    def answer(self, route):
        url = route.request.url
        if "/api/events" in url:
            route.fulfill(content_type="text/event-stream",
                          body=f"retry: 600000\nevent: picture\ndata: {json.dumps(self.picture())}\n\n")
        elif "/api/decisions" in url:
            route.fulfill(json=self.decisions() if "after=0" in url else {"decisions": []})
        else:
            route.fulfill(status=404, content_type="text/plain", body=MARKUP)

    def test_markup_from_the_broker_stays_text(self):
        visit = self.visit(self.url, answer=self.answer)
        visit.page.locator(".decision").first.click()
        expect(visit.page.locator(".why")).to_contain_text(MARKUP)
        for area in ("#components", "#waiting", "#decisions", "#releases", "#timeline-legend"):
            expect(visit.page.locator(area)).to_contain_text(MARKUP)
        self.assertEqual(visit.page.evaluate("[document.images.length, typeof window.broken]"), [0, "undefined"])

    def test_what_is_wrong_is_said(self):
        visit = self.visit(self.url, answer=self.answer)
        page = visit.page
        expect(page.locator("#banners")).to_contain_text("The broker drains")
        expect(page.locator("#banners")).to_contain_text("The broker has restarted")
        expect(page.locator("#banners")).to_contain_text("is overcommitted")
        expect(page.locator("#waiting")).to_contain_text("1 min 5 s, too long")
        expect(page.locator("#waiting")).to_contain_text("late/c holds")
        expect(page.locator("#releases")).to_contain_text("1 min 4 s, past its deadline")
        expect(page.locator("#releases")).to_contain_text("4 layers")
        expect(page.locator("#sessions")).to_contain_text("lost")
        expect(page.locator("#sessions")).to_contain_text("5 B on record, not attached since")
        expect(page.locator("#ledger-legend")).to_contain_text("external not known")
        expect(page.locator("#ledger-legend")).to_contain_text("overcommitted 100 B")
        self.assertEqual(page.title(), "VRAM broker")

    def test_a_broker_that_is_quiet_is_live_and_one_that_does_not_answer_is_not(self):
        visit = self.visit(self.url)
        page = visit.page
        link = page.locator("#link-text")
        expect(link).to_have_text("live", timeout=PATIENCE_MS)
        # Nothing changes: that the broker is there is asked for, without a word of it lost.
        asked = len([url for url in visit.asked if url.endswith("api/events")])
        for _ in range(200):
            self.assertEqual(link.text_content(), "live")
            if len([url for url in visit.asked if url.endswith("api/events")]) >= asked + 3:
                break
            page.wait_for_timeout(100)
        else:
            self.fail(f"not asked for: {visit.asked}")
        self.broker.send_signal(signal.SIGSTOP)
        try:
            expect(link).to_have_text("connection lost", timeout=PATIENCE_MS)
        finally:
            self.broker.send_signal(signal.SIGCONT)
        expect(link).to_have_text("live", timeout=PATIENCE_MS)

    def test_where_no_more_may_watch_the_picture_is_asked_for(self):
        def answer(route):
            if "/api/events" in route.request.url:
                route.fulfill(status=503, content_type="text/plain", body="32 watch this page")
            else:
                route.fulfill(json=self.picture() if "picture" in route.request.url else {"decisions": []})
        visit = self.visit(self.url, answer=answer)
        expect(visit.page.locator("#banners")).to_contain_text("Live updates are refused")
        expect(visit.page.locator("#components")).to_contain_text("late/c")
        self.assertEqual(visit.page.locator("#link-text").text_content(), "asked for")


if __name__ == "__main__":
    UPDATE = "--update" in sys.argv
    BIN = Path([one for one in sys.argv[1:] if not one.startswith("-")][0]).resolve()
    unittest.main(argv=sys.argv[:1], verbosity=2)
