#!/usr/bin/env python3
"""The alert rules: promtool's own checks and tests, and that everything they name is there.

Usage: alerts_test.py REPOSITORY. Exits with 1 after saying what is wrong.
"""
import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1])
folder = root / "k8s" / "monitoring"
rules = (folder / "alerts.yaml").read_text(encoding="utf-8")
tests = (folder / "alerts_test.yaml").read_text(encoding="utf-8")
runbook = (folder / "README.md").read_text(encoding="utf-8")
table = set(re.findall(r"^\| `(vram_broker_\w+)`", (root / "README.md").read_text(encoding="utf-8"), re.M))
faults = []


def run(*command: str):
    end = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if end.returncode != 0:
        faults.append(f"{' '.join(command)}:\n{end.stdout}{end.stderr}")


run("promtool", "check", "rules", "alerts.yaml")
run("promtool", "test", "rules", "alerts_test.yaml")

alerts = re.split(r"^ +- alert: ", rules, flags=re.M)[1:]
if len(alerts) < 8:
    faults.append(f"{len(alerts)} alerts are found in alerts.yaml")
for text in alerts:
    name = text.split("\n", 1)[0]
    for field in ("summary", "description", "runbook_url", "severity"):
        if f"{field}:" not in text:
            faults.append(f"{name} has no {field}")
    if f"runbook_url: k8s/monitoring/README.md#{name.lower()}\n" not in text:
        faults.append(f"{name}: its runbook_url does not lead to its paragraph")
    if f"\n## {name}\n" not in runbook:
        faults.append(f"{name} has no paragraph in k8s/monitoring/README.md")
    cases = re.findall(rf"alertname: {name}\b(.*?)(?=alertname:|\Z)", tests, re.S)
    if not any("exp_alerts: []" in case for case in cases):
        faults.append(f"{name} is never shown silent in alerts_test.yaml")
    if not any("exp_labels:" in case for case in cases):
        faults.append(f"{name} is never shown firing in alerts_test.yaml")

for name in sorted(set(re.findall(r"\bvram_broker_\w+", rules + tests + runbook))):
    if re.sub(r"_(bucket|sum|count)$", "", name) not in table:
        faults.append(f"{name} is named and not in the table of README.md")

print("\n".join(faults) or f"{len(alerts)} alerts are as they should be")
sys.exit(1 if faults else 0)
