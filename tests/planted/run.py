#!/usr/bin/env python3
"""Plants one bug after the other and expects the tests to find each.

usage: run.py [--only NAME]... [--work FOLDER] [--jobs N] [--list]

Each tests/planted/NAME.patch begins with what the bug is and a line "Caught by: TEST, TEST": the test
programs, of which at least one must fail with the patch applied; they run in that order until one
does. All of them must pass without any patch. The tree is copied to FOLDER/tree (build/planted by
default) and built there, so that nothing of the checkout changes; the compiler cache makes that cheap.

Prints a line for each bug. Exit status: 0 each was caught, 1 one was not, or a patch no longer
applies or compiles, 2 the tree does not build or does not pass by itself.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUGS = Path(__file__).resolve().parent
SECONDS = 240  # for one test program; a hang is a catch, too
# The same runs each time, and fewer steps than in the tests themselves: what each bug needs is far less.
ENVIRONMENT = {"VRAM_SIM_STEPS": "100000", "VRAM_SIM_SEED": "1000"}


class Bug:
    """One patch, and what must notice it."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.stem
        head = path.read_text(encoding="utf-8").split("--- a/", 1)[0]
        self.what = head.splitlines()[0]
        tests = [line for line in head.splitlines() if line.startswith("Caught by: ")]
        if len(tests) != 1:
            raise ValueError(f"{path.name}: one line \"Caught by: TEST, TEST\" is needed before the patch")
        self.tests = [t.strip() for t in tests[0].removeprefix("Caught by: ").split(",")]


def run(command, cwd, timeout=None, extra=None):
    """Returns exit status and output; a command that takes too long has status 124."""
    env = dict(os.environ, **(extra or {}))
    try:
        done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        return 124, str(error.output or "")
    return done.returncode, done.stdout


def copy_tree(tree: Path):
    """The files of the checkout, those that changed only: what is built of the others stays."""
    names = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-co",
                            "--exclude-standard", "-z"], stdout=subprocess.PIPE, check=True).stdout
    wanted = {n.decode() for n in names.split(b"\0") if n}
    for name in sorted(wanted):
        source, target = ROOT / name, tree / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def build(tree: Path, tests, jobs):
    extra = {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "true"}
    if not (tree / "build" / "CMakeCache.txt").exists():
        status, output = run(["cmake", "--preset", "release"], tree, extra=extra)
        if status != 0:
            return status, output
    return run(["cmake", "--build", "build", "-j", str(jobs), "--target", *tests], tree, extra=extra)


def run_test(tree: Path, test):
    return run([str(tree / "build" / "bin" / test), "--gtest_brief=1"], tree, SECONDS, ENVIRONMENT)


def try_bug(bug, tree, jobs):
    """Returns who caught it, or None and why not."""
    status, output = run(["git", "apply", "--check", str(bug.path)], tree)
    if status != 0:
        return None, f"the patch no longer applies: {output.strip()}"
    run(["git", "apply", str(bug.path)], tree)
    try:
        status, output = build(tree, bug.tests, jobs)
        if status != 0:
            return None, f"it does not compile:\n{output[-2000:]}"
        for test in bug.tests:
            status, output = run_test(tree, test)
            if status != 0:
                return test, ""
        return None, "no test failed"
    finally:
        run(["git", "apply", "-R", str(bug.path)], tree)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "planted")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    bugs = [Bug(path) for path in sorted(BUGS.glob("*.patch"))]
    unknown = set(arguments.only) - {bug.name for bug in bugs}
    if unknown:
        parser.error(f"--only: no bug is called {', '.join(sorted(unknown))}")
    if arguments.only:
        bugs = [bug for bug in bugs if bug.name in arguments.only]
    if arguments.list:
        for bug in bugs:
            print(f"{bug.name}: {bug.what}")
        return 0

    tree = arguments.work / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    if not (tree / ".git").exists():  # for git apply: without one it looks for the checkout around
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
    copy_tree(tree)
    tests = sorted({test for bug in bugs for test in bug.tests})
    status, output = build(tree, tests, arguments.jobs)
    if status != 0:
        print(f"the tree does not build without any bug:\n{output[-4000:]}")
        return 2
    for test in tests:
        status, output = run_test(tree, test)
        if status != 0:
            print(f"{test} fails without any bug (exit status {status}):\n{output[-4000:]}")
            return 2

    missed = 0
    for bug in bugs:
        began = time.monotonic()
        caught, why = try_bug(bug, tree, arguments.jobs)
        seconds = time.monotonic() - began
        if caught is None:
            missed += 1
        print(f"{bug.name:32} {'caught by ' + caught if caught else 'MISSED: ' + why}, {seconds:.0f} s", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs were caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
