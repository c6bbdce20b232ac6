// What the programs say of a command line that makes no sense: which flag, which value, what is
// allowed; at once, with status 2, and leaving nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "stage_workers/card/emulated_card.h"
#include "tests/run_program.h"

namespace vrambroker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ProgramFlagsTest : public testing::Test {
 protected:
  ProgramFlagsTest() : folder_(absl::StrCat("/tmp/vb-flags-", getpid())) {
    std::filesystem::create_directories(folder_);
    std::ofstream(workload())
        << R"({"name": "w", "device": {"capacityBytes": 1048576, "h2dBytesPerSecond": 1e9},
        "components": [{"name": "a", "layerGroups": [{"count": 2, "layerBytes": 65536}]}],
        "pipelines": [{"name": "p", "stages": [{"component": "a"}]}],
        "runs": [{"pipeline": "p"}, {"pipeline": "p"}]})";
  }
  ~ProgramFlagsTest() override { std::filesystem::remove_all(folder_); }

  std::string workload() const { return folder_ + "/workload.json"; }
  // Runs it, expects status 2 and that all of these are said.
  static void ExpectRefused(const std::vector<std::string>& words,
                            const std::vector<std::string>& said) {
    const ProgramEnd end = RunProgram(words);
    EXPECT_EQ(end.status, 2) << end.output;
    for (const std::string& text : said) EXPECT_THAT(end.output, HasSubstr(text));
  }
  void ExpectRunRefused(const std::vector<std::string>& flags,
                        const std::vector<std::string>& said) const {
    std::vector<std::string> words = {VRAM_PIPELINE, "run", "--workload=" + workload(),
                                      "--workers=a=unix:/nonexistent/a"};
    words.insert(words.end(), flags.begin(), flags.end());
    ExpectRefused(words, said);
  }
  std::vector<std::string> Brokerd(const std::vector<std::string>& flags) const {
    std::vector<std::string> words = {VRAM_BROKERD, "--listen=unix:" + folder_ + "/made/b.sock",
                                      "--lock-dir=" + folder_ + "/locks"};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }

  const std::string folder_;
};

TEST_F(ProgramFlagsTest, PipelineRun) {
  for (const char* value : {"-1", "2", "7"}) {
    ExpectRunRefused({std::string("--skip-first=") + value},
                     {std::string("--skip-first: ") + value + " given", "0 to 1 is allowed"});
  }
  for (const char* value : {"0s", "-3s"}) {
    ExpectRunRefused({std::string("--stage-timeout=") + value},
                     {"--stage-timeout: ", " given; a duration above 0 is allowed"});
  }
  ExpectRunRefused({"--spawn", "--broker=unix:/run/b.sock"},
                   {"--broker: 'unix:/run/b.sock' given; none or start is allowed with --spawn"});
  ExpectRunRefused({"--broker=start"}, {"--broker: 'start' given", "start needs --spawn"});
  ExpectRunRefused({"--workers=a=b"}, {"--workers: 'a=b' given; NAME=unix:PATH or NAME=HOST:PORT"});
  ExpectRunRefused({"--workers=a=unix:/x,a=unix:/y"},
                   {"--workers: 'a=unix:/y' given; a has an address already"});
  ExpectRefused({VRAM_PIPELINE, "run", "--workload=" + folder_},
                {folder_ + ": is a directory; a JSON file of a workload is needed"});
}

TEST_F(ProgramFlagsTest, PipelineDemo) {
  ExpectRefused({VRAM_PIPELINE, "demo", "--arms=broker,streamed,broker"},
                {"--arms: 'broker' given twice"});
  const ProgramEnd end = RunProgram({VRAM_PIPELINE, "demo", "--json=" + folder_ + "/no/such/file",
                                     "--work-dir=" + folder_ + "/work"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.output, AllOf(HasSubstr("--json: "), HasSubstr("cannot be written")));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/work"));
}

TEST_F(ProgramFlagsTest, StageWorker) {
  const std::string name = absl::StrCat("flags-", getpid());
  const auto card = card::EmulatedCard::Create(name, {.capacity_bytes = 1 << 20});
  ASSERT_TRUE(card.ok()) << card.status();
  ASSERT_EQ(RunProgram({VRAM_MAKE_WEIGHTS, "--workload", workload(), "--output-dir", folder_,
                        "--bytes-scale", "1"})
                .status,
            0);
  const std::vector<std::string> words = {VRAM_STAGE_WORKER,
                                          "--component=a",
                                          "--weights=" + folder_ + "/a.safetensors",
                                          "--card=emulated:" + name,
                                          "--listen=unix:" + folder_ + "/a",
                                          "--broker=none"};
  const auto with = [&words](const std::string& flag) {
    std::vector<std::string> all = words;
    all.push_back(flag);
    return all;
  };
  ExpectRefused(with("--resident=999"),
                {"--resident: ", "component a", "2 layers", "999 given", "all stands for"});
  ExpectRefused(with("--start-timeout=0s"), {"--start-timeout: 0 given; a duration above 0"});
  // Nothing is left of a path that is a file already, and the file stays.
  std::ofstream(folder_ + "/plain") << "text";
  const ProgramEnd end = RunProgram(with("--listen=unix:" + folder_ + "/plain"));
  EXPECT_EQ(end.status, 1) << end.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/plain.lock"));
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/plain"), 4u);
  EXPECT_TRUE(card::EmulatedCard::Remove(name).ok());
}

TEST_F(ProgramFlagsTest, BrokerdLeavesNothingOfWhatItRefuses) {
  ExpectRefused(Brokerd({"--device=GPU-123"}), {"--device=GPU-123"});
  for (const char* size : {"0", "2TiB", "70TiB", "x"}) {
    ExpectRefused(Brokerd({absl::StrCat("--emulated-device=x=", size)}),
                  {absl::StrCat("--emulated-device: 'x=", size, "': a size of '", size,
                                "' given; above 0, at most 1TiB is allowed")});
  }
  ExpectRefused(Brokerd({"--config=" + folder_}), {"--config: '" + folder_ + "' is a directory"});
  const std::string name = absl::StrCat("refused-", getpid());
  ExpectRefused(Brokerd({"--emulated-device=" + name + "=1MiB", "--reserve=2MiB"}), {"--reserve"});
  ExpectRefused(Brokerd({"--emulated-device=" + name + "=1MiB", "--reserve=0",
                         "--socket-group=no-such-group-here"}),
                {"--socket-group"});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/made"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/locks"));
}

TEST_F(ProgramFlagsTest, BrokerdWarnsOfVariablesThatNameNoFlag) {
  std::vector<std::string> words = {"VRAM_BROKERD_RESERVES=1GiB",
                                    "VRAM_BROKERD_SERVICE_HOST=10.0.0.1"};
  for (const std::string& word : Brokerd({"--device=GPU-123"})) words.push_back(word);
  const ProgramEnd end = RunProgram(words);
  EXPECT_THAT(end.output, AllOf(HasSubstr("VRAM_BROKERD_RESERVES is set but names no flag"),
                                HasSubstr("nearest are VRAM_BROKERD_RESERVE and "),
                                Not(HasSubstr("SERVICE_HOST"))));
}

TEST_F(ProgramFlagsTest, WhatIsNoFlagOrNoValueIsNamed) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{VRAM_PIPELINE, "run", "--tiem-scale=8"},
       "vram-pipeline run: --tiem-scale is no flag here; --help lists them"},
      {{VRAM_PIPELINE, "run", "--requests=3"}, "vram-pipeline run: --requests is no flag here"},
      {{VRAM_PIPELINE, "run", "--time_scale", "fast"},
       "vram-pipeline run: --time-scale: 'fast' given; a number is allowed"},
      {{VRAM_PIPELINE, "demo", "--requests=1.5"},
       "vram-pipeline demo: --requests: '1.5' given; a whole number is allowed"},
      {{VRAM_STAGE_WORKER, "--start-timeout=soon"},
       "vram-stage-worker: --start-timeout: 'soon' given; a duration such as 500ms"},
      {{VRAM_STAGE_WORKER, "--host-copy=maybe"},
       "vram-stage-worker: --host-copy: 'maybe' given; true or false is allowed"},
      {{VRAM_STAGE_WORKER, "--card"}, "vram-stage-worker: --card: its value is missing"},
      {{VRAM_MAKE_WEIGHTS, "--bytes-scale=x"},
       "vram-make-weights: --bytes-scale: 'x' given; a whole number is allowed"},
      {{VRAM_MAKE_WEIGHTS, "--workload=/nonexistent", "here"},
       "'here' given; only flags are taken"},
      {{VRAM_BENCH, "--rounds=many"}, "vram-bench: --rounds: 'many' given"}};
  for (const auto& [words, said] : cases) ExpectRefused(words, {said});
}

TEST_F(ProgramFlagsTest, WhatCannotBeWrittenIsAnError) {
  for (const std::string& command :
       {std::string(VRAM_PIPELINE) + " --help", std::string(VRAM_PIPELINE) + " run --help",
        std::string(VRAM_STAGE_WORKER) + " --help",
        absl::StrCat(VRAM_MAKE_WEIGHTS, " --workload ", workload(), " --output-dir ", folder_)}) {
    const ProgramEnd end = RunProgram({"sh", "-c", "exec " + command + " >/dev/full"});
    EXPECT_EQ(end.status, 1) << command;
    EXPECT_THAT(end.output, HasSubstr(": cannot write to standard output: No space left"));
  }
}

TEST_F(ProgramFlagsTest, EveryProgramHasHelp) {
  for (const char* program :
       {VRAM_PIPELINE, VRAM_STAGE_WORKER, VRAM_BROKERD, VRAM_MAKE_WEIGHTS, VRAM_BENCH}) {
    const ProgramEnd end = RunProgram({program, "--help"});
    EXPECT_EQ(end.status, 0) << program;
    EXPECT_THAT(end.output, HasSubstr("--")) << program;
  }
}

}  // namespace
}  // namespace vrambroker
