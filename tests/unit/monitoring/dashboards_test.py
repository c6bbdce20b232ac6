#!/usr/bin/env python3
"""The committed Grafana dashboards, as they are: numbers, places, words, units, links, variables, names of metrics.

Usage: dashboards_test.py REPOSITORY. That their queries return something is a test of its own, with a real Prometheus.
"""
import itertools
import json
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "k8s" / "monitoring" / "dashboards"
WIDTH = 24
# Of Prometheus itself, and of the library that serves the metrics.
FOREIGN = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "exposer_scrapes_total",
           "exposer_transferred_bytes_total"}
# As Grafana calls them.
UNITS = {"bytes", "binBps", "s", "ops", "percentunit", "short", "none", "dateTimeFromNow"}
# Words of PromQL that look like names of metrics: no bracket follows them.
WORDS = {"by", "without", "bool", "on", "ignoring", "group_left", "group_right", "or", "and", "unless", "offset"}
LINK = re.compile(r"\$\{page\}/\?device=(\$\{device\}|\$\{__field\.labels\.UUID\}|\$\{__data\.fields\.UUID\})"
                  r"&from=\$\{__from\}&to=\$\{__to\}")
BUILT_IN = re.compile(r"__\w+")


def names_in(query: str) -> set:
    """Names of metrics and of recorded ones."""
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)', " ", query)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    return {word for word in re.findall(r"[A-Za-z_][\w:]*(?!\s*\()(?![\w:])", bare) if word not in WORDS}


def variables_in(text: str) -> set:
    found = {first or second for first, second in re.findall(r"\$(?:\{([\w.]+)[^}]*\}|(\w+))", text)}
    return {name for name in found if not BUILT_IN.match(name)}


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.boards = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        cls.metrics = {}
        for line in re.findall(r"^\| `vram_broker_.*$", readme, re.M):
            cells = [cell.strip() for cell in line.split("|")[1:4]]
            cls.metrics[cells[0].strip("`")] = cells[1]
        rules = (ROOT / "k8s" / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
        cls.recorded = set(re.findall(r"^ +- record: (\S+)$", rules, re.M))
        cls.runbook = (ROOT / "k8s" / "monitoring" / "README.md").read_text(encoding="utf-8")

    def panels(self):
        """Each with a name for messages; rows are not among them."""
        for name, board in self.boards.items():
            for panel in board["panels"]:
                if panel["type"] != "row":
                    yield f"{name}: {panel['title']}", board, panel

    def queries(self):
        for where, _, panel in self.panels():
            for target in panel["targets"]:
                yield where, target["expr"]
        for name, board in self.boards.items():
            for annotation in board["annotations"]["list"]:
                yield f"{name}: {annotation['name']}", annotation["expr"]
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    yield f"{name}: ${variable['name']}", variable["query"]

    def test_all_are_there(self):
        self.assertEqual(set(self.boards), {"node.json", "workers.json", "broker.json"})

    def test_each_is_told_from_the_others(self):
        for field in ("uid", "title"):
            values = [board[field] for board in self.boards.values()]
            self.assertEqual(len(set(values)), len(values), values)
        for name, board in self.boards.items():
            self.assertRegex(board["uid"], r"^[a-z0-9-]{1,40}$")
            self.assertIn("vram-broker", board["tags"], name)
            self.assertTrue(board["description"], name)
            self.assertNotIn("id", board, f"{name}: a number of one Grafana's own")

    def test_panels_have_numbers_and_titles_of_their_own(self):
        for name, board in self.boards.items():
            for field in ("id", "title"):
                values = [panel[field] for panel in board["panels"] if panel["type"] != "row" or field == "id"]
                twice = {value for value in values if values.count(value) > 1}
                self.assertEqual(twice, set(), f"{name}: {field}")
            self.assertGreater(len(board["panels"]), 10, name)

    def test_each_panel_says_what_it_is_in_which_unit_and_leads_to_the_page(self):
        for where, _, panel in self.panels():
            self.assertTrue(panel["title"].strip(), where)
            self.assertGreater(len(panel["description"]), 30, where)
            self.assertTrue(panel["description"].endswith("."), where)
            defaults = panel["fieldConfig"]["defaults"]
            self.assertIn(defaults.get("unit"), UNITS, where)
            self.assertEqual(len(defaults["links"]), 1, where)
            self.assertRegex(defaults["links"][0]["url"], LINK, where)

    def test_alerts_that_are_named_have_their_paragraph(self):
        for where, _, panel in self.panels():
            for alert in re.findall(r"\bVramBroker\w+", panel["description"]):
                self.assertIn(f"\n## {alert}\n", self.runbook, where)

    def test_links_to_a_device_of_the_series_are_where_series_have_one(self):
        for where, _, panel in self.panels():
            if "${device}" in panel["fieldConfig"]["defaults"]["links"][0]["url"]:
                continue
            for target in panel["targets"]:
                self.assertRegex(target["expr"], r"by \([^)]*UUID|^vram_broker:", where)

    def test_no_two_panels_overlap(self):
        for name, board in self.boards.items():
            for panel in board["panels"]:
                place = panel["gridPos"]
                self.assertGreaterEqual(place["x"], 0, panel["title"])
                self.assertLessEqual(place["x"] + place["w"], WIDTH, panel["title"])
                self.assertTrue(place["w"] > 0 and place["h"] > 0, panel["title"])
            for one, other in itertools.combinations(board["panels"], 2):
                a, b = one["gridPos"], other["gridPos"]
                apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or
                         a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
                self.assertTrue(apart, f"{name}: {one['title']} and {other['title']} overlap")

    def test_variables_are_defined_and_used(self):
        for name, board in self.boards.items():
            defined = [variable["name"] for variable in board["templating"]["list"]]
            self.assertEqual(len(set(defined)), len(defined), name)
            used = variables_in(json.dumps(board))
            self.assertEqual(used - set(defined), set(), f"{name}: used and not defined")
            self.assertEqual(set(defined) - used, set(), f"{name}: defined and not used")
            self.assertLessEqual({"datasource", "cluster", "namespace", "instance", "device", "page"}, set(defined), name)

    def test_a_variable_asks_for_earlier_ones_only(self):
        for name, board in self.boards.items():
            earlier = set()
            for variable in board["templating"]["list"]:
                self.assertLessEqual(variables_in(json.dumps(variable.get("query", ""))), earlier, name)
                earlier.add(variable["name"])

    def test_labels_that_a_scrape_may_lack_are_fit_by_all(self):
        for name, board in self.boards.items():
            for variable in board["templating"]["list"]:
                if variable["name"] in ("cluster", "namespace", "instance"):
                    self.assertTrue(variable["includeAll"], name)
                    self.assertEqual(variable["allValue"], ".*", name)
                    self.assertEqual(variable["current"]["value"], "$__all", name)
        for where, query in self.queries():
            for name, value in re.findall(r'(\w+)=~?"(\$\w+)"', query):
                self.assertIn(f'{name}=~"{value}"', query, where)

    def test_every_source_is_the_chosen_one(self):
        for where, board, panel in self.panels():
            for thing in (panel, *panel["targets"], *board["annotations"]["list"]):
                self.assertEqual(thing["datasource"], {"type": "prometheus", "uid": "${datasource}"}, where)

    def test_every_metric_is_one_that_there_is(self):
        seen = set()
        for where, query in self.queries():
            if query.startswith("label_values("):
                query = query.removeprefix("label_values(").rsplit(",", 1)[0]
            names = names_in(query)
            self.assertTrue(names, f"{where}: {query}")
            for name in names:
                if ":" in name:
                    self.assertIn(name, self.recorded, where)
                elif name not in FOREIGN:
                    base = re.sub(r"_(bucket|sum|count)$", "", name)
                    self.assertIn(base, self.metrics, f"{where}: {query}")
                    self.assertEqual(name != base, self.metrics[base] == "histogram", f"{where}: {name}")
                    seen.add(base)
        self.assertEqual(set(self.metrics) - seen, set(), "metrics that no dashboard shows: give each a panel in "
                         "k8s/monitoring/dashboards/{node,workers,broker}.py, then ./run.sh dashboards")

    def test_counters_are_shown_as_rates(self):
        for where, query in self.queries():
            for name in names_in(query):
                if not name.endswith(("_total", "_bucket", "_sum", "_count")) or "Components now" in where:
                    continue
                self.assertRegex(query, rf"(rate|increase)\({name}", where)

    def test_annotations_are_for_refusals_and_overdue_revocations_only(self):
        for name, board in self.boards.items():
            annotations = {a["name"] for a in board["annotations"]["list"]}
            self.assertLessEqual(annotations, {"Refusals", "Overdue revocations"}, name)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ROOT = Path(sys.argv.pop(1)).resolve()
        FOLDER = ROOT / "k8s" / "monitoring" / "dashboards"
    unittest.main()
