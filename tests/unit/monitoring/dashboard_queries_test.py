#!/usr/bin/env python3
"""What the test of the dashboards' queries calls a fault, with a Prometheus that is played.

Usage: dashboard_queries_test.py REPOSITORY
"""
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import dashboard_queries as queries  # noqa: E402  (found by the path above)


class Played:
    """Answers each query with the same series; None: that it is not understood."""

    def __init__(self, series):
        self.answer = series

    def series(self, query, instant):
        if self.answer is None:
            raise ValueError("parse error")
        return self.answer

    def label_values(self, query):
        return self.series(query, True)


def board(panel_title="P", legend="{{worker}}", link="${device}"):
    target = {"expr": "x", "refId": "A", "instant": False, "legendFormat": legend}
    return {"templating": {"list": [{"type": "query", "name": "cluster", "query": "label_values(x, cluster)"}]},
            "annotations": {"list": []},
            "panels": [{"type": "row"}, {"type": "timeseries", "title": panel_title, "targets": [target],
                                         "fieldConfig": {"defaults": {"links": [{"url": link}]}}}]}


def faults(series, labelled=False, **of):
    check = queries.Check(Played(series), {"cluster": ["c"] if labelled else None})
    check.board("node", board(**of))
    return check.faults


class Queries(unittest.TestCase):
    def test_an_answer_is_no_fault(self):
        self.assertEqual(faults([{"worker": "a"}], labelled=True), [])

    def test_nothing_is_a_fault_of_each_query_that_is_not_listed(self):
        self.assertEqual(len(faults([], labelled=True)), 2)
        self.assertEqual(len(faults([])), 1)

    def test_something_is_a_fault_where_nothing_is_expected(self):
        found = faults([{"worker": "a"}])
        self.assertEqual(len(found), 1)
        self.assertIn("EMPTY_ON_PURPOSE", found[0])

    def test_what_is_not_understood_is_a_fault(self):
        self.assertEqual(len(faults(None, labelled=True)), 2)

    def test_a_label_that_is_not_there_is_a_fault(self):
        self.assertEqual(len(faults([{"worker": "a"}], labelled=True, legend="{{component}}")), 1)
        self.assertEqual(len(faults([{"worker": "a"}], labelled=True, link="${__field.labels.UUID}")), 1)

    def test_variables_are_replaced_as_grafana_does(self):
        chosen = {"all": None, "one": ["10.0.0.1:9"], "two": ["a", "b+"]}
        self.assertEqual(queries.as_grafana('{a=~"$all",b=~"${one}"}[$__rate_interval]', chosen),
                         r'{a=~".*",b=~"10\\.0\\.0\\.1:9"}[4s]')
        self.assertEqual(queries.as_grafana('{c=~"$two"}', chosen), r'{c=~"(a|b\\+)"}')

    def test_nan_is_no_number(self):
        self.assertFalse(queries.is_number("NaN"))
        self.assertTrue(queries.is_number("0"))


if __name__ == "__main__":
    unittest.main()
