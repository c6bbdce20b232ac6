#!/usr/bin/env python3
"""Compares the planner with the clairvoyant optimum, an integer program, on small random workloads.

usage: compare.py [--instances N] [--first SEED] [--bin FOLDER] [--fractions] [--verbose]

Each workload goes to vram-plan-loss, which says what the planner's plan of the whole of it loses to
loading, and to an integer program over the same uses. Without loading ahead it passes where at
least 95 % of the workloads are within 1.02 of the optimum or within 10 ms of it; with loading
ahead, where at least 90 % are within 1.10 or 10 ms. The others are printed. Layers are whole, those
that are loaded ahead as well, because a part of one is of no use to a worker; --fractions lets parts
of layers be loaded ahead, which is a bound that no broker can reach. Needs scipy 1.9 or later.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

GIB = float(1 << 30)
REACH = 12  # slots before a use in which its layers may be loaded
SLACK_SECONDS = 0.010
# By whether layers are loaded ahead: times the optimum, and the share of workloads within that.
LIMITS = {False: 1.02, True: 1.10}
SHARES = {False: 0.95, True: 0.90}
SECONDS_FOR_ONE = 20


def random_workload(seed):
    """Three or four components, 12 to 16 uses, a card between the largest need and everything."""
    dice = random.Random(seed)
    link = dice.choice([8e9, 12e9, 25e9])
    components = []
    for number in range(dice.choice([3, 3, 4])):
        groups = [{"count": dice.randint(3, 16), "layer_bytes": str(dice.randint(40, 700) << 20)}
                  for _ in range(dice.choice([1, 1, 1, 2]))]
        weights = sum(g["count"] * int(g["layer_bytes"]) for g in groups)
        components.append({"name": f"c{number}", "layer_groups": groups, "window_layers": 2,
                           "pass_seconds": round(weights / link * dice.uniform(0.05, 1.3), 6)})
    stages = [{"component": c["name"], "passes": dice.choice([1, 1, 1, 4, 20]),
               "activation_bytes": str(dice.randint(0, 2000) << 20)} for c in components]
    if dice.random() < 0.4:
        stages.append(dict(dice.choice(stages)))
    dice.shuffle(stages)
    pipelines = [{"name": "p0", "stages": stages}]
    if dice.random() < 0.4:
        pipelines.append({"name": "p1", "stages": dice.sample(stages, 2)})
    runs, uses = [], 0
    while uses < 12:
        pipeline = dice.choice(pipelines)
        runs.append({"pipeline": pipeline["name"]})
        uses += len(pipeline["stages"])
    workload = {"name": f"random-{seed}", "max_concurrent_runs": 1, "components": components,
                "pipelines": pipelines, "runs": runs,
                "device": {"capacity_bytes": "1", "reserve_bytes": "0",
                           "h2d_bytes_per_second": link}}
    model = Model(workload)
    least = max(min(model.window[c], model.weights[c]) + need for c, _, need in model.uses)
    most = sum(model.weights) + max(need for _, _, need in model.uses)
    capacity = least + int(max(0, most - least) * dice.uniform(0, 0.9)) + 1
    workload["device"]["capacity_bytes"] = str(capacity)
    return workload


class Model:
    """A workload as uses in order: (component, passes, need), sizes in bytes."""

    def __init__(self, workload):
        self.link = float(workload["device"]["h2d_bytes_per_second"])
        self.capacity = int(workload["device"]["capacity_bytes"])
        self.groups = [[(g["count"], int(g["layer_bytes"])) for g in c["layer_groups"]]
                       for c in workload["components"]]
        self.weights = [sum(n * size for n, size in groups) for groups in self.groups]
        self.window = [c["window_layers"] * max(size for _, size in groups)
                       for c, groups in zip(workload["components"], self.groups)]
        self.compute = [c["pass_seconds"] for c in workload["components"]]
        self.sigma = [max(0.0, 1 / self.link - t / w) for t, w in zip(self.compute, self.weights)]
        self.share = [min(1.0, self.link * t / w) for t, w in zip(self.compute, self.weights)]
        index = {c["name"]: i for i, c in enumerate(workload["components"])}
        stages = {p["name"]: p["stages"] for p in workload["pipelines"]}
        self.uses = [(index[s["component"]], s["passes"], int(s["activation_bytes"]))
                     for run in workload["runs"] for s in stages[run["pipeline"]]]
        self.before = [max((j for j in range(i) if self.uses[j][0] == use[0]), default=None)
                       for i, use in enumerate(self.uses)]

    def all_streamed(self):
        return sum(n * self.weights[c] * self.sigma[c] for c, n, _ in self.uses)


class Program:
    """Rows of `sum of coefficient * variable <= limit`; what is gained is made most."""

    def __init__(self):
        self.gain, self.most, self.whole, self.rows = [], [], [], []

    def variable(self, most, gain=0.0, whole=False):
        self.gain.append(gain)
        self.most.append(most)
        self.whole.append(int(whole))
        return len(self.gain) - 1

    def at_most(self, terms, limit):
        self.rows.append((terms, limit))

    def solve(self):
        """(gain, whether it is proven to be the most)"""
        cells = [(r, v, k) for r, (terms, _) in enumerate(self.rows) for v, k in terms.items()]
        r, v, k = zip(*cells)
        matrix = coo_matrix((k, (r, v)), shape=(len(self.rows), len(self.gain))).tocsr()
        limits = numpy.array([limit for _, limit in self.rows])
        for presolve in (True, False):  # now and then presolving finds nothing where something is
            found = milp(-numpy.array(self.gain), integrality=numpy.array(self.whole),
                         bounds=Bounds(0, numpy.array(self.most)),
                         constraints=LinearConstraint(matrix, ub=limits),
                         options={"time_limit": SECONDS_FOR_ONE, "mip_rel_gap": 1e-7,
                                  "presolve": presolve})
            if found.x is not None:
                return -found.fun, found.status == 0
        raise RuntimeError(f"the integer program was not solved: {found.message}")


def leading_layers(program, groups, gain):
    """Terms that are the GiB of some leading whole layers, and their variables with their gain."""
    terms, full = {}, None
    for number, (count, size) in enumerate(groups):
        layers = program.variable(count, gain * size / GIB, whole=True)
        terms[layers] = size / GIB
        if full is not None:  # none of this group before all of the one before it
            program.at_most({layers: 1, full: -count}, 0)
        if number + 1 < len(groups):
            full = program.variable(1, whole=True)
            program.at_most({full: count, layers: -1}, 0)
    return terms


def add(into, terms, factor=1.0):
    for variable, value in terms.items():
        into[variable] = into.get(variable, 0.0) + factor * value


def least_loss(model, ahead, fractions=False):
    """(seconds lost to loading at best, whether proven). Bytes stand in GiB within."""
    program, uses = Program(), model.uses
    sigma = [model.sigma[c] * GIB for c, _, _ in uses]
    weights = [model.weights[c] / GIB for c, _, _ in uses]
    room = [{} for _ in uses]  # of each slot: what lies there beside need and window
    link = [{} for _ in uses]
    resident = [leading_layers(program, model.groups[c], sigma[i] * (n - 1))
                for i, (c, n, _) in enumerate(uses)]
    for i, (c, passes, need) in enumerate(uses):
        add(room[i], resident[i])
        there = {}  # when the use begins
        previous = model.before[i]
        if previous is not None:
            kept = leading_layers(program, model.groups[c], sigma[i])
            add(there, kept)
            for slot in range(previous + 1, i):
                add(room[slot], kept)
            program.at_most({**kept, **{v: -k for v, k in resident[previous].items()}}, 0)
        first = max(0 if previous is None else previous + 1, i - REACH)
        for slot in range(first, i) if ahead else ():
            loaded = program.variable(weights[i], sigma[i])
            add(there, {loaded: 1.0})
            add(link[slot], {loaded: 1.0})
            for later in range(slot, i):
                add(room[later], {loaded: 1.0})
        if ahead and first < i and not fractions:
            whole = leading_layers(program, model.groups[c], 0.0)
            program.at_most({**there, **{v: -k for v, k in whole.items()}}, 1e-9)
            program.at_most({**{v: -k for v, k in there.items()}, **whole}, 1e-9)
        if there:
            program.at_most({**there, **{v: -k for v, k in resident[i].items()}}, 0)
        # What it streams itself takes of the link: weights - there, then weights - resident.
        share = model.share[c]
        add(link[i], there, -share)
        add(link[i], resident[i], -share * (passes - 1))
    for i, (c, passes, need) in enumerate(uses):
        window = model.window[c] / GIB
        complete = program.variable(1, whole=True)
        program.at_most({complete: weights[i] - 1e-9, **{v: -k for v, k in resident[i].items()}}, 0)
        add(room[i], {complete: -window})
        program.at_most(room[i], (model.capacity - need) / GIB - window + 1e-9)
        if ahead:
            carried = model.link * passes * model.compute[c] / GIB
            program.at_most(link[i], carried - model.share[c] * passes * weights[i] + 1e-9)
    gained, proven = program.solve()
    return max(0.0, model.all_streamed() - gained), proven


def ratio(planned, optimum):
    return 1.0 if planned <= optimum + SLACK_SECONDS else planned / max(optimum, SLACK_SECONDS)


def compare(instances, ahead, fractions, verbose):
    """Prints how the plans compare; returns whether that is good enough."""
    rows = []
    for workload, planned in instances:
        optimum, proven = least_loss(Model(workload), ahead, fractions)
        rows.append((ratio(planned[ahead], optimum), planned[ahead], optimum, proven,
                     workload["name"]))
        if verbose:
            print(rows[-1], flush=True)
    rows.sort(reverse=True)
    beyond = [row for row in rows if row[0] > LIMITS[ahead]]
    # Below a proven optimum the plan promises what cannot be: the two disagree about the model.
    impossible = [row for row in rows if row[3] and row[1] < row[2] - 1e-4 * max(1, row[2])]
    what = "with loading ahead" if ahead else "without loading ahead"
    print(f"{what}: {len(rows)} workloads, worst ratio {rows[0][0]:.4f}, beyond "
          f"{LIMITS[ahead]:.2f} and 10 ms: {len(beyond)} ({1 - SHARES[ahead]:.0%} may be), "
          f"optimum not proven: {sum(not row[3] for row in rows)}")
    for name, some in (("beyond", beyond), ("BELOW THE OPTIMUM", impossible)):
        for row in some:
            print(f"  {name}: {row[4]}: planned {row[1]:.4f} s, optimum {row[2]:.4f} s, "
                  f"ratio {row[0]:.4f}")
    return not impossible and len(beyond) <= (1 - SHARES[ahead]) * len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--instances", type=int, default=200, help="how many, from 1 on")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build" / "bin")
    parser.add_argument("--fractions", action="store_true",
                        help="parts of layers may be loaded ahead")
    parser.add_argument("--verbose", action="store_true", help="print every one")
    arguments = parser.parse_args()
    if arguments.instances < 1:
        parser.error(f"--instances: {arguments.instances} given, 1 or more is allowed")
    workloads = [random_workload(arguments.first + i) for i in range(arguments.instances)]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for workload in workloads:
            paths.append(pathlib.Path(folder) / f"{workload['name']}.json")
            paths[-1].write_text(json.dumps(workload), encoding="utf-8")
        said = subprocess.run([arguments.bin / "vram-plan-loss", *paths], check=True,
                              capture_output=True, text=True).stdout
    planned = [[float(x) for x in line.split()] for line in said.splitlines()]
    if len(planned) != len(workloads):
        raise RuntimeError(f"{len(planned)} lines for {len(workloads)} workloads: {said}")
    instances = list(zip(workloads, planned))
    good = [compare(instances, ahead, arguments.fractions, arguments.verbose)
            for ahead in (False, True)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
