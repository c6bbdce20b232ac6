#!/usr/bin/env python3
"""The style checker finds planted violations, each by its rule, and passes what is right."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_style  # noqa: E402


class StyleChecker(unittest.TestCase):
    def rules_of(self, files: dict) -> set:
        """The rules that a tree of these files breaks, with the file."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found, count = check_style.violations(Path(folder))
            self.assertEqual(count, len(files))
            return {(rule, name) for rule, name, _, _ in found}

    def flags(self, rule: str, name: str, text: str):
        self.assertEqual(self.rules_of({name: text}), {(rule, name)}, text[:200])

    def clean(self, name: str, text: str):
        self.assertEqual(self.rules_of({name: text}), set(), text[:200])

    def test_length(self):
        for name in ("broker/core/a.cc", "client/a.h", "stage_workers/a.cu", "tests/a.py", "proto/a.proto"):
            self.flags("length", name, "\n" * 401)
            self.clean(name, "\n" * 400)
        self.clean("README.md", "\n" * 1000)

    def test_long_file_exceptions_are_used_and_needed(self):
        name = "broker/server/long.cc"
        check_style.LONG_FILES[name] = "one table"
        try:
            self.clean(name, "\n" * 500)
            self.flags("length", name, "\n" * 10)
            self.assertEqual(self.rules_of({"README.md": ""}), {("length", name)})
        finally:
            del check_style.LONG_FILES[name]

    def test_includes_of_the_core(self):
        for header in ("<thread>", "<mutex>", "<fstream>", "<iostream>", "<chrono>", "<unistd.h>",
                       "<grpcpp/grpcpp.h>", "<google/protobuf/message.h>", '"absl/time/clock.h"',
                       '"vrambroker/v1/broker.pb.h"', '"broker/server/mailbox.h"', '"client/cpp/session.h"',
                       '"absl/synchronization/mutex.h"'):
            self.flags("include", "broker/core/a.cc", f"#include {header}\n")
        for header in ("<vector>", "<cstdint>", '"absl/time/time.h"', '"broker/core/units.h"'):
            self.clean("broker/core/a.cc", f"#include {header}\n")

    def test_includes_of_the_simulator(self):
        for header in ("<thread>", "<chrono>", '"absl/time/clock.h"', '"broker/ctl/render.h"',
                       '"vrambroker/v1/workload.pb.h"'):
            self.flags("include", "broker/sim/a.cc", f"#include {header}\n")
        for header in ("<vector>", '"broker/sim/card.h"', '"broker/core/machine.h"', '"absl/time/time.h"'):
            self.clean("broker/sim/a.cc", f"#include {header}\n")
        self.flags("include", "broker/core/a.cc", '#include "broker/sim/card.h"\n')

    def test_direction_of_includes(self):
        self.flags("include", "client/cpp/a.h", '#include "broker/core/units.h"\n')
        self.flags("include", "client/cpp/a.h", '#include "stage_workers/card/card.h"\n')
        self.flags("include", "stage_workers/worker/a.cc", '#include "broker/server/flags.h"\n')
        self.flags("include", "broker/server/a.cc", '#include "client/cpp/session.h"\n')
        self.flags("include", "broker/server/a.cc", '#include "stage_workers/card/card.h"\n')
        self.flags("include", "broker/observe/a.cc", '#include "stage_workers/offload/layers.h"\n')
        self.flags("include", "broker/observe/a.cc", "#include <grpcpp/grpcpp.h>\n")
        self.flags("include", "tests/unit/a.cc", '#include "../helper.h"\n')
        self.clean("broker/observe/a.cc", '#include "stage_workers/card/emulated_card.h"\n')
        self.clean("broker/server/a.cc", '#include "vrambroker/v1/broker.pb.h"\n')
        self.clean("stage_workers/worker/a.cc", '#include "client/cpp/session.h"\n')
        self.clean("broker/ctl/a.cc", '#include "client/cpp/session.h"\n')

    def test_core_asks_no_clock(self):
        self.flags("clock", "broker/core/a.cc", "auto now = absl::" + "Now();\n")
        self.clean("broker/server/a.cc", "auto now = absl::" + "Now();\n")

    def test_open_work(self):
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X"):
            self.flags("open-work", "client/cpp/a.cc", f"// {word}: later\n")
        self.clean("client/cpp/a.cc", 'mkdtemp("/tmp/a-XXXXXX");\n')

    def test_skipped_tests(self):
        self.flags("skipped", "tests/unit/a.cc", "GTEST_" + "SKIP();\n")
        self.flags("skipped", "tests/unit/a.cc", "TEST(A, DISABLE" + "D_B) { EXPECT_TRUE(true); }\n")

    def test_words_and_paths_of_elsewhere(self):
        for word in ("/wor" + "k/main", "/hom" + "e/jo", "/roo" + "t/x", "/tm" + "p/build-a", "../share" + "d/a"):
            self.flags("foreign", "client/cpp/a.cc", f'const char* path = "{word}";\n')
        self.clean("client/cpp/a.cc", "// a network/worker path, /tmp/x, /homes\n")

    def test_sleeps(self):
        for line in ("std::this_thread::sleep" + "_for(1ms);", "absl::Sleep" + "For(x);", "usl" + "eep(3);",
                     "sl" + "eep(1);"):
            self.flags("sleep", "tests/unit/a.cc", line + "\n")
            self.clean("tests/poll.h", line + "\n")
            self.clean("client/cpp/a.cc", line + "\n")
        self.flags("sleep", "tests/e2e/a.py", "time.sl" + "eep(1)\n")
        self.flags("sleep", "tests/e2e/a.sh", "  sl" + "eep 1\n")

    def test_assertions(self):
        self.flags("assertion", "tests/unit/a.cc", "TEST(A, B) {\n  Run();\n}\n")
        self.flags("assertion", "tests/unit/a.cc",
                   "TEST(A, B) {\n  Run();\n}\nTEST(A, C) {\n  EXPECT_TRUE(Run());\n}\n")
        self.clean("tests/unit/a.cc", "TEST_F(A, B) { ASSERT_EQ(1, Run()); }\n")
        self.clean("tests/unit/a.cc", "void Check(int a) { EXPECT_EQ(a, 1); }\nvoid Both() { Check(1); }\n"
                                      "TEST(A, B) { Both(); }\n")
        self.clean("tests/unit/a.cc", "TEST(A, B) {\n  Run(\"}\", '}', R\"(})\", 20'000);  // }\n"
                                      "  EXPECT_TRUE(Run());\n}\n")
        self.flags("assertion", "tests/unit/a.cc", "TEST(A, B) {\n  // EXPECT_TRUE(Run());\n}\n")
        self.flags("assertion", "tests/e2e/a.py", "def test_a():\n    run()\n")
        self.clean("tests/e2e/a.py", "def test_a():\n    assert run()\n")

    def test_shell(self):
        self.flags("shell", "tests/a.sh", "if true; then\n")
        self.flags("shell", "bin/a", "#!/usr/bin/env bash\ncase\n")
        self.clean("tests/a.sh", "if true; then echo; fi\n")

    def test_ignored_files_are_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "init", "-q", folder], check=True)
            (Path(folder) / ".gitignore").write_text("/out/\n", encoding="utf-8")
            (Path(folder) / "out").mkdir()
            (Path(folder) / "out/a.sh").write_text("if\n", encoding="utf-8")
            (Path(folder) / "b.sh").write_text("if\n", encoding="utf-8")
            found, _ = check_style.violations(Path(folder))
            self.assertEqual([(f[0], f[1]) for f in found], [("shell", "b.sh")])


if __name__ == "__main__":
    unittest.main()
