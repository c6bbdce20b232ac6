#!/usr/bin/env python3
"""Writes the Grafana dashboards beside this file: node.json, workers.json, broker.json.

--check writes nothing, and ends with 1 where a file is not what would be written. Needs requirements.txt, which
"./run.sh dashboards" installs. Every dashboard is read back through the SDK's types for Grafana 11.6 first; what they do not
know would be lost on the way, and is an error.
"""
import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

import broker
import node
import workers

FOLDER = Path(__file__).resolve().parent
# Words of Grafana's Prometheus source in annotations, which the SDK's types leave out.
BEYOND_THE_TYPES = {"titleFormat", "tagKeys"}


def text_of(dashboard) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard) + "\n"


def without_extras(value):
    if isinstance(value, dict):
        return {key: without_extras(of) for key, of in value.items() if key not in BEYOND_THE_TYPES}
    return [without_extras(of) for of in value] if isinstance(value, list) else value


def lost(before, after, path: str = ""):
    """Paths of what `before` has and `after` has not, or has otherwise."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after[key], f"{path}.{key}") if key in after else [f"{path}.{key}"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{index}]")
    elif before != after:
        yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    what.add_argument("--write", action="store_true", help="write the files")
    check = parser.parse_args().check
    register_default_plugins()
    faults = []
    for module in (node, workers, broker):
        board = module.build()
        text = text_of(board.build())
        ours = without_extras(json.loads(text))
        faults += [f"{board.name}: the SDK's types do not know {path}"
                   for path in lost(ours, json.loads(text_of(Dashboard.from_json(json.loads(text)))))]
        path = FOLDER / f"{board.name}.json"
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            faults.append(f"{path.name} is not what would be written: run ./run.sh dashboards and commit the result")
    print("\n".join(faults) or f"3 dashboards are {'as generated' if check else 'written'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
