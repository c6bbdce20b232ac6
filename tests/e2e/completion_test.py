#!/usr/bin/env python3
"""What vramctl's completion scripts offer, asked of the shells themselves."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

VRAMCTL = ""

# As readline hands a line over: words, with "=" as one of its own.
ASK_BASH = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_vramctl
printf '%s\n' "${COMPREPLY[@]}"
"""


def run(*command):
    return subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
                          check=False)


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="completion-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.scripts = {}
        for shell in ("bash", "zsh", "fish"):
            end = run(VRAMCTL, "completion", shell)
            assert end.returncode == 0, end.stderr
            cls.scripts[shell] = Path(cls.folder.name) / shell
            cls.scripts[shell].write_text(end.stdout)
        usage = run(VRAMCTL, "--help").stdout
        cls.commands = re.findall(r"^  ([a-z]+) .* {2}\w", usage, re.M)
        cls.flags = {command: set(re.findall(r"(--[a-z][a-z-]*)", run(VRAMCTL, command, "--help").stdout))
                     for command in cls.commands}

    def bash(self, *words):
        end = run("bash", "--norc", "-c", ASK_BASH, "bash", str(self.scripts["bash"]), "vramctl", *words)
        self.assertEqual((end.returncode, end.stderr), (0, ""))
        return end.stdout.split()

    def fish(self, line):
        end = run("fish", "--no-config", "-c", f"source {self.scripts['fish']}; complete -C '{line}'")
        self.assertEqual((end.returncode, end.stderr), (0, ""))
        return [offer.split("\t")[0] for offer in end.stdout.splitlines()]

    def test_the_commands_are_known(self):
        self.assertGreater(len(self.commands), 10)
        self.assertIn("watch", self.commands)

    def test_bash_completes_commands(self):
        self.assertEqual(sorted(self.bash("")), sorted(self.commands))
        self.assertEqual(self.bash("sta"), ["status"])
        self.assertEqual(self.bash("--address", "unix:/b", "dr"), ["drain"], "flags may come first")
        self.assertEqual(self.bash("--address", "=", "unix:/b", "dr"), ["drain"])
        self.assertEqual(self.bash("nothing"), [])
        self.assertEqual(self.bash("status", ""), [], "nothing follows it")

    def test_bash_completes_every_flag_that_help_lists(self):
        for command in self.commands:
            offered = {flag.rstrip("=") for flag in self.bash(command, "--")}
            self.assertLessEqual(offered - {"--help"}, self.flags[command], f"{command}: help lacks one")
            listed = set(re.findall(r"^  (?:--[a-z-]+\S* )*(--[a-z][a-z-]*)",
                                    run(VRAMCTL, command, "--help").stdout, re.M))
            self.assertLessEqual(listed, offered, command)

    def test_bash_completes_values(self):
        self.assertEqual(self.bash("status", "--format", ""), ["table", "json"])
        self.assertEqual(self.bash("status", "--format", "="), ["table", "json"])
        self.assertEqual(self.bash("status", "--format", "=", "j"), ["json"])
        self.assertEqual(self.bash("simulate", "--format", "=", "c"), ["csv"])
        self.assertEqual(self.bash("--format", "=", "j"), ["json"], "before the command")
        self.assertIn("lru_partial", self.bash("simulate", "--rule", "lru"))
        self.assertEqual(self.bash("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.bash("status", "--address", "=", "x"), [], "an address is not known")

    def test_bash_completes_files(self):
        folder = self.folder.name
        self.assertEqual(self.bash("plan", f"{folder}/ba"), [f"{folder}/bash"])
        self.assertEqual(self.bash("status", "--tls-ca", "=", f"{folder}/z"), [f"{folder}/zsh"])

    def test_fish_completes_all_of_it(self):
        self.assertEqual(sorted(self.fish("vramctl ")), sorted(self.commands))
        self.assertEqual(self.fish("vramctl status --format="), ["--format=json", "--format=table"])
        self.assertEqual(sorted(self.fish("vramctl completion ")), ["bash", "fish", "zsh"])
        for command in self.commands:
            offered = {flag.rstrip("=") for flag in self.fish(f"vramctl {command} --")}
            bash = {flag.rstrip("=") for flag in self.bash(command, "--")}
            self.assertEqual(offered, bash, command)

    def test_zsh_takes_the_script(self):
        script = self.scripts["zsh"]
        self.assertEqual(run("zsh", "-f", "-n", str(script)).stderr, "")
        end = run("zsh", "-f", "-c", f"autoload -Uz compinit; compinit -D -u; source {script}; "
                  "print -r -- $_comps[vramctl]")
        self.assertEqual((end.stdout, end.stderr), ("_vramctl\n", ""))
        text = script.read_text()
        for command in self.commands:
            self.assertIn(f"\n    '{command}:", text)
            branch = text[text.index(f"      ({command})"):].split(" ;;")[0]
            for flag in self.bash(command, "--"):
                self.assertIn(flag.rstrip("="), branch, command)

    def test_another_shell_is_refused(self):
        end = run(VRAMCTL, "completion", "csh")
        self.assertEqual(end.returncode, 2)
        self.assertIn("'csh' given, bash, zsh or fish is allowed", end.stderr)
        self.assertEqual(run(VRAMCTL, "completion").returncode, 2)


if __name__ == "__main__":
    VRAMCTL = sys.argv.pop(1)
    unittest.main(verbosity=2)
