#include "broker/ctl/workload_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace vrambroker::ctl {
namespace {

using testing::HasSubstr;

constexpr char kGood[] = R"({
  "name": "good",
  "device": {"capacity_bytes": "1000", "reserve_bytes": "10", "h2d_bytes_per_second": 5.0},
  "components": [{"name": "a", "layer_groups": [{"count": 2, "layer_bytes": "7"}]}],
  "pipelines": [{"name": "p", "stages": [{"component": "a"}]}],
  "runs": [{"pipeline": "p"}, {"pipeline": "p", "arrival_seconds": 2.5}]
})";

TEST(WorkloadFile, PutsDefaultsInPlaceOfZeros) {
  const absl::StatusOr<sim::Workload> w = ParseWorkload(kGood);
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(w->name, "good");
  EXPECT_EQ(w->device.capacity_bytes, 1000);
  EXPECT_EQ(w->max_concurrent_runs, 1);
  EXPECT_EQ(w->components[0].window_layers, 2);
  EXPECT_EQ(w->components[0].WindowBytes(), 14);
  EXPECT_EQ(w->pipelines[0].stages[0].passes, 1);
  EXPECT_EQ(w->runs[1].arrival_seconds, 2.5);
}

TEST(WorkloadFile, NamesWhatIsWrong) {
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"\"component\": \"a\"", "\"component\": \"b\""},
       "pipelines[0].stages[0].component: \"b\" is no component of this workload"},
      {{"[{\"pipeline\": \"p\"}", "[{\"pipeline\": \"q\"}"},
       "runs[0].pipeline: \"q\" is no pipeline"},
      {{"\"1000\"", "\"-1\""}, "device.capacity_bytes: -1 given"},
      {{"\"count\": 2", "\"count\": 0"}, "components[0].layer_groups[0].count: 0 given"},
      {{"\"name\": \"good\"", "\"nom\": \"good\""}, "no workload: "},
      {{"{", "["}, "no workload: "},
      {{"\"a\"", "\"a\\n\""}, "components[0].name: \"a\\n\" given; 1 to 128"},
      {{"\"component\": \"a\"", "\"component\": \"\\u0007\""},
       "pipelines[0].stages[0].component: \"\\x07\" is no component"},
      {{"\"runs\"", "\"max_concurrent_runs\": 2000, \"runs\""},
       "max_concurrent_runs: 2000 given; 1 to 1024 is allowed"},
  };
  for (const auto& [change, message] : cases) {
    const absl::StatusOr<sim::Workload> w = ParseWorkload(absl::StrReplaceAll(kGood, {change}));
    EXPECT_EQ(w.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(w.status().message()), HasSubstr(message));
  }
}

TEST(WorkloadFile, SaysNothingThatATerminalWouldTake) {
  for (const std::string& text :
       {absl::StrReplaceAll(kGood, {{"\"name\": \"good\"", "\"\x1b[31m\": \"x\""}}),
        "{" + std::string(1 << 20, '\x1b')}) {
    const std::string message(ParseWorkload(text).status().message());
    EXPECT_LT(message.size(), 2000u);
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  }
}

TEST(WorkloadFile, BytesThatAreNoTextAreSpeltOut) {
  const absl::Status status = ParseWorkload("{\"name\": \"\xff\"}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).find('\xff'), std::string::npos) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("\\xff"));
}

TEST(WorkloadFile, IsReadFromAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], kGood, sizeof(kGood) - 1), static_cast<ssize_t>(sizeof(kGood) - 1));
  close(ends[1]);
  const absl::StatusOr<sim::Workload> w = LoadWorkload(absl::StrCat("/dev/fd/", ends[0]));
  close(ends[0]);
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(w->name, "good");
}

TEST(WorkloadFile, WithoutEndIsReadUpToTheBound) {
  const absl::Status status = LoadWorkload("/dev/zero").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 67108864 bytes"));
}

TEST(WorkloadFile, ThatIsNotThereCannotBeRead) {
  EXPECT_EQ(LoadWorkload("/nonexistent/w.json").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace vrambroker::ctl
