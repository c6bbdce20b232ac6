#!/usr/bin/env python3
"""Sends every query of the Grafana dashboards to a Prometheus, as Grafana would, and says which ones return nothing.

The queries of panels, annotations and variables. Each has to be understood and to return a number (a variable's query: a
value), or to stand in EMPTY_ON_PURPOSE; what stands there and returns something is a fault, too. Exits with 1 after
saying what is wrong.
"""
import argparse
import datetime
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "k8s" / "monitoring" / "dashboards"
# Grafana's, for a scrape each second: $__rate_interval is four scrapes.
BUILT_IN = {"__rate_interval": "4s", "__interval": "1s"}

# What returns nothing: "board: what it is of", with the reason. True: only where the scrape adds no labels of its own.
EMPTY_ON_PURPOSE = {
    "workers: $cluster": ("the scrape adds no such label", True),
}
for board in ("node", "broker"):
    EMPTY_ON_PURPOSE[f"{board}: $cluster"] = EMPTY_ON_PURPOSE["workers: $cluster"]
for board in ("node", "workers", "broker"):
    EMPTY_ON_PURPOSE[f"{board}: $namespace"] = ("the scrape adds no such label", True)


class Prometheus:
    def __init__(self, address: str, since: float):
        self.address, self.since = address, since

    def ask(self, path: str, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from error

    def series(self, query: str, instant: bool):
        """Labels of the series that have a number among their values."""
        if instant:
            result = self.ask("query", query=query)["result"]
            return [one["metric"] for one in result if is_number(one["value"][1])]
        end = time.time()  # and the steps fall so that the last one is now
        start = end - math.ceil(end - self.since)
        result = self.ask("query_range", query=query, start=start, end=end, step="1s")["result"]
        return [one["metric"] for one in result if any(is_number(value) for _, value in one["values"])]

    def label_values(self, query: str):
        match = re.fullmatch(r"label_values\((.*), *(\w+)\)", query)
        if match is None:
            raise ValueError("not of the form label_values(SERIES, LABEL)")
        return self.ask(f"label/{match[2]}/values", **{"match[]": match[1], "start": self.since, "end": time.time()})


def is_number(value: str) -> bool:
    return not math.isnan(float(value))


def as_grafana(text: str, chosen: dict) -> str:
    """Variables replaced: All by its own value, chosen values escaped for a regular expression."""
    def value_of(match):
        name = match[1] or match[2]
        if name in BUILT_IN:
            return BUILT_IN[name]
        values = chosen[name]
        if values is None:
            return ".*"
        escaped = [re.sub(r"[$^*{}\[\]+?.()|\\]", r"\\\\\g<0>", value) for value in values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value_of, text)


class Check:
    def __init__(self, prometheus: Prometheus, chosen: dict):
        self.prometheus, self.chosen = prometheus, chosen
        self.labelled = chosen["cluster"] is not None
        self.answered, self.faults, self.met = 0, [], set()

    def expect(self, where: str, query: str, ask):
        """Labels of what is returned; a fault and nothing where it is not as it should be."""
        reason, only_plain = EMPTY_ON_PURPOSE.get(where, (None, False))
        if reason is not None:
            self.met.add(where)
        empty_is_right = reason is not None and not (only_plain and self.labelled)
        try:
            found = ask(query)
        except ValueError as error:
            self.faults.append(f"{where}: {query}\n    {error}")
            return []
        if not found and not empty_is_right:
            self.faults.append(f"{where}: returns nothing: {query}")
        elif found and empty_is_right:
            self.faults.append(f"{where}: returns something, and is in EMPTY_ON_PURPOSE ({reason}): {query}")
        self.answered += bool(found)
        return found

    def panel(self, board: str, panel: dict):
        for target in panel["targets"]:
            where = f"{board}: {panel['title']} {target['refId']}"
            query = as_grafana(target["expr"], self.chosen)
            found = self.expect(where, query, lambda q, t=target: self.prometheus.series(q, bool(t["instant"])))
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            if "${__field.labels.UUID}" in panel["fieldConfig"]["defaults"]["links"][0]["url"]:
                wanted.add("UUID")
            for labels in found:
                if not wanted <= set(labels):
                    self.faults.append(f"{where}: {wanted - set(labels)} of its legend or link is no label of {labels}")
        for step in panel.get("transformations", []):
            if step["id"] == "organize":
                self.columns(f"{board}: {panel['title']}", panel, step["options"]["renameByName"])

    def columns(self, where: str, panel: dict, renamed: dict):
        """A table's rows are merged by their labels: all of its queries have to have the same ones."""
        labels = [{frozenset(found) for found in self.prometheus.series(as_grafana(target["expr"], self.chosen), True)}
                  for target in panel["targets"]]
        if any(other != labels[0] for other in labels):
            self.faults.append(f"{where}: columns have different labels: {labels}")
        present = set().union(*(set(found) for of in labels for found in of))
        if not present & set(renamed):
            self.faults.append(f"{where}: none of {sorted(renamed)} is there")

    def board(self, name: str, board: dict):
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                self.expect(f"{name}: ${variable['name']}", as_grafana(variable["query"], self.chosen),
                            self.prometheus.label_values)
        for annotation in board["annotations"]["list"]:
            self.expect(f"{name}: {annotation['name']}", as_grafana(annotation["expr"], self.chosen),
                        lambda query: self.prometheus.series(query, False))
        for panel in board["panels"]:
            if panel["type"] != "row":
                self.panel(name, panel)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", required=True, metavar="HOST:PORT")
    parser.add_argument("--since", required=True, metavar="TIME", type=datetime.datetime.fromisoformat,
                        help="beginning of the dashboards' time range, as RFC 3339")
    parser.add_argument("--set", action="append", default=[], metavar="VARIABLE=VALUE",
                        help="a chosen value, several for a variable by several flags; All where none is given")
    flags = parser.parse_args()
    chosen = {name: None for name in ("cluster", "namespace", "instance", "device", "worker", "pipeline")}
    for text in flags.set:
        name, value = text.split("=", 1)
        chosen[name] = (chosen[name] or []) + [value]
    check = Check(Prometheus(flags.prometheus, flags.since.timestamp()), chosen)
    paths = sorted(FOLDER.glob("*.json"))
    for path in paths:
        check.board(path.stem, json.loads(path.read_text(encoding="utf-8")))
    faults = check.faults + [f"{where} is in EMPTY_ON_PURPOSE and in no dashboard"
                             for where in sorted(set(EMPTY_ON_PURPOSE) - check.met)]
    print("\n".join(faults))
    print(f"{len(paths)} dashboards, {check.answered} queries answered, {len(faults)} faults")
    return 1 if faults or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
