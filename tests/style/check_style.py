#!/usr/bin/env python3
"""Rules of the house, as a test: sizes, direction of includes, assertions, and what must not be there.

Reads the files that git knows or would add, or all files where git is not at hand. Prints one line
for each violation, "path:line: [rule] what is wrong and what to do", and exits with 1 if there are
any. Rules that need a parser are approximated on the text; comments and strings count as text.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 400
# Files that may be longer, each with the reason why it is not cut. An entry that is no longer needed
# is a violation itself.
LONG_FILES: dict[str, str] = {}

CODE = (".cc", ".h", ".cu", ".cuh")
TEXT = CODE + (".py", ".proto", ".sh", ".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".toml")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
PURE = ("broker/core/", "broker/sim/")
CORE_STD_BANNED = {"chrono", "condition_variable", "ctime", "filesystem", "fstream", "future",
                   "iostream", "mutex", "random_device", "semaphore", "shared_mutex", "stop_token",
                   "thread"}
CORE_ABSL_BANNED = ("absl/time/clock.h", "absl/synchronization/", "absl/flags/")
CORE_CLOCKS = re.compile(r"absl::Now\b|\b(?:steady|system|high_resolution)_clock\b")

# Spelt so that this file does not contain what it looks for.
OPEN_WORK = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")
SKIPPED = re.compile(r"GTEST_SKI[P]|DISABLE[D]_|pytest\.(?:ski[p]|mark\.ski[p])|unittest\.ski[p]")
FOREIGN = re.compile(r"/wor[k]/|/far[m]/|/hom[e]/\w|/roo[t]/|/User[s]/|/tm[p]/build|\.librar[y]\b"
                     r"|\.\./share[d]/|[Cc]laud[e]|\bsub-?agen[t]", re.ASCII)
SLEEP = re.compile(r"\bsleep_(?:fo[r]|unti[l])\b|\bSleepFo[r]\b|\b(?:u|nano)slee[p]\s*\(|(?<![\w.])slee[p]\s*\("
                   r"|\btime\.slee[p]\b|^\s*slee[p]\s+[\d.$\"]")
TEST_CASE = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\s*\(([^)]*)\)\s*\{", re.M)
FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\([^;{}]*\)\s*(?:const\s*)?(?:override\s*)?(?:->\s*[\w:<>]+\s*)?\{")
LAMBDA = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*\[[^\]]*\]\s*(?:\([^;{}]*\))?\s*(?:->\s*[\w:<>]+\s*)?\{")
ASSERTION = re.compile(r"\b(?:EXPECT|ASSERT)_[A-Z_]+\s*\(|\b(?:FAIL|ADD_FAILURE|ADD_FAILURE_AT)\s*\(")
NO_FUNCTIONS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "TEST", "TEST_F", "TEST_P"}


class Tree:
    """The files of a checkout, read once."""

    def __init__(self, root: Path):
        self.root = root
        self.texts: dict[str, str] = {}
        for name in sorted(list_files(root)):
            try:
                self.texts[name] = (root / name).read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
                continue  # binary, or listed but gone

    def ending(self, *suffixes: str):
        return ((n, t) for n, t in self.texts.items() if n.endswith(suffixes))


def list_files(root: Path):
    """Paths relative to root that git tracks or would add; without git all but hidden and built ones."""
    git = subprocess.run(["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-co",
                          "--exclude-standard"], capture_output=True, text=True, check=False)
    if git.returncode == 0:
        return git.stdout.splitlines()
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", ".cache", "__pycache__") and
                      not f.startswith("build")]
        found += [str((Path(folder) / f).relative_to(root)) for f in files]
    return found


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def check_length(tree: Tree):
    for name, text in tree.ending(*CODE, ".py", ".proto"):
        lines = len(text.splitlines())
        if name in LONG_FILES:
            if lines <= MAX_LINES:
                yield name, 1, f"is in LONG_FILES but has {lines} lines only: take it out"
        elif lines > MAX_LINES:
            yield name, lines, f"{lines} lines, at most {MAX_LINES}: split it by what its parts are for"
    for name in LONG_FILES:
        if tree.texts and name not in tree.texts:
            yield name, 1, "is in LONG_FILES but does not exist: take it out"


def include_fault(name: str, system: bool, header: str):
    """What is wrong with this include in this file, or None."""
    if name.startswith(PURE):
        if system:
            if header in CORE_STD_BANNED or "/" in header or header.endswith(".h"):
                return "core and simulator have no thread, clock, I/O or system header"
        elif header.startswith(CORE_ABSL_BANNED):
            return "core and simulator have no clock, lock or flag: time is passed in"
        elif header.startswith("broker/sim/") and name.startswith("broker/sim/"):
            return None
        elif not header.startswith(("broker/core/", "absl/")):
            return "the core includes broker/core, the standard library and absl only; the simulator itself, too"
    elif name.startswith("broker/"):
        if header.startswith("client/") and not name.startswith("broker/ctl/"):
            return "the broker never includes the client (only vramctl, which is one, does)"
        if header.startswith("stage_workers/") and not (
                name.startswith("broker/observe/") and header.startswith("stage_workers/card/")):
            return "only broker/observe includes stage_workers, and of it only stage_workers/card"
        if name.startswith("broker/observe/") and header.startswith(("vrambroker/", "grpc", "google/")):
            return "broker/observe knows no wire format"
        if name.startswith("broker/page/") and header.startswith(("vrambroker/", "grpc", "google/", "broker/server/")):
            return "broker/page knows neither the wire format nor the server: it is given texts"
    elif name.startswith("client/"):
        if header.startswith(("broker/", "stage_workers/")):
            return "the client knows the contract only, neither the broker nor the workers"
    elif name.startswith("stage_workers/"):
        if header.startswith("broker/"):
            return "workers know the client, never the broker"
    return None


def check_includes(tree: Tree):
    for name, text in tree.ending(*CODE):
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                fault = include_fault(name, match[1] == "<", match[2])
                if fault:
                    yield name, number, f"{match[2]}: {fault}"
                if match[2].startswith("../") or match[2].startswith("./"):
                    yield name, number, f"{match[2]}: include from the root of the repository"


def check_core_clock(tree: Tree):
    for name, text in tree.ending(*CODE):
        if name.startswith(PURE):
            yield from matches(name, text, CORE_CLOCKS, "core and simulator ask no clock: time is passed in")


def matches(name: str, text: str, pattern: re.Pattern, message: str):
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.search(line)
        if match:
            yield name, number, f"'{match[0].strip()}': {message}"


def text_files(tree: Tree):
    for name, text in tree.texts.items():
        if name.endswith(TEXT) or text.startswith("#!"):
            yield name, text


def check_open_work(tree: Tree):
    for name, text in text_files(tree):
        yield from matches(name, text, OPEN_WORK, "do it, or file it where work is tracked")


def check_skipped(tree: Tree):
    for name, text in tree.ending(*CODE, ".py"):
        if name.startswith("tests/"):
            yield from matches(name, text, SKIPPED, "no test is skipped or disabled")


def check_foreign(tree: Tree):
    for name, text in text_files(tree):
        yield from matches(name, text, FOREIGN, "not a word or path of this project")


def check_sleeps(tree: Tree):
    for name, text in tree.ending(*CODE, ".py", ".sh"):
        helper = re.search(r"poll|wait", Path(name).stem)
        if name.startswith("tests/") and not helper:
            yield from matches(name, text, SLEEP, "wait for a condition with a deadline instead")


LITERAL = re.compile(r'R"([^()\s]*)\((?s:.*?)\)\1"|"(?:[^"\\\n]|\\.)*"'
                     r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'|//[^\n]*|/\*(?s:.*?)\*/")


def without_literals(text: str) -> str:
    """C++ with strings, characters and comments blanked out, each line and column where it was."""
    return LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def body_at(text: str, brace: int) -> str:
    """The text between the brace at this position and its partner; of text without literals."""
    depth = 0
    for position in range(brace, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return text[brace:position]
    return text[brace:]


def calls_any(body: str, names: set) -> bool:
    return any(m[1] in names for m in re.finditer(r"\b([A-Za-z_]\w*)\s*(?:<[^;(){}]*>)?\s*\(", body))


def asserting_helpers(texts) -> set:
    """Functions of the tests that assert, themselves or through one another."""
    functions = []
    for text in texts:
        for pattern in (FUNCTION, LAMBDA):
            for match in pattern.finditer(text):
                if match[1] not in NO_FUNCTIONS:
                    functions.append((match[1], body_at(text, match.end() - 1)))
    helpers = {name for name, body in functions if ASSERTION.search(body)}
    while True:
        more = {n for n, body in functions if n not in helpers and calls_any(body, helpers)}
        if not more:
            return helpers
        helpers |= more


def check_assertions(tree: Tree):
    tests = [(n, without_literals(t)) for n, t in tree.ending(*CODE) if n.startswith("tests/")]
    helpers = asserting_helpers(t for _, t in tests)
    for name, text in tests:
        for match in TEST_CASE.finditer(text):
            body = body_at(text, match.end() - 1)
            if not ASSERTION.search(body) and not calls_any(body, helpers):
                yield name, line_of(text, match.start(1)), f"TEST({match[1]}) asserts nothing"
    for name, text in tree.ending(".py"):
        if name.startswith("tests/"):
            for match in re.finditer(r"^( *)def (test_\w+).*\n((?:\1 +.*\n|\s*\n)*)", text + "\n", re.M):
                if not re.search(r"\bassert|\bself\.(?:assert|fail|flags|clean)|pytest\.raises", match[3]):
                    yield name, line_of(text, match.start(2)), f"{match[2]} asserts nothing"


def check_shell(tree: Tree):
    for name, text in tree.texts.items():
        if name.endswith(".sh") or re.match(r"#!.*\b(?:ba)?sh\b", text):
            done = subprocess.run(["bash", "-n", str(tree.root / name)], capture_output=True, text=True,
                                  check=False)
            if done.returncode:
                yield name, 1, f"bash -n: {done.stderr.strip()}"


RULES = {"length": check_length, "include": check_includes, "clock": check_core_clock,
         "open-work": check_open_work, "skipped": check_skipped, "foreign": check_foreign,
         "sleep": check_sleeps, "assertion": check_assertions, "shell": check_shell}


def violations(root: Path):
    """All of them, as (rule, path, line, message), in the order of the rules."""
    tree = Tree(root)
    return [(rule, *found) for rule, check in RULES.items() for found in check(tree)], len(tree.texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2],
                        help="the checkout to read; default: the one this file is in")
    found, files = violations(parser.parse_args().root.resolve())
    for rule, name, line, message in found:
        print(f"{name}:{line}: [{rule}] {message}")
    print(f"{files} files, {len(RULES)} rules, {len(found)} violations")
    if files == 0:
        print("nothing to read: is --root a checkout?")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
