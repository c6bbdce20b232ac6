// vramctl conformance against a real broker, beside a worker that holds a set.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/harness.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ConformanceTest : public E2eTest {
 protected:
  ProgramEnd Conformance(std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {Program("vramctl"), "conformance", "--address=" + broker_address()});
    return RunProgram(flags);
  }
};

TEST_F(ConformanceTest, EverythingIsAsTheProtocolSaysAndNobodyIsDisturbed) {
  StartBroker({"--load-ahead=false"});
  StageWorker& holder = StartWorker("holder");
  EXPECT_EQ(holder.Run(Stage()).kept_layers(), 8);

  const ProgramEnd table = Conformance({});
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output,
              AllOf(HasSubstr(" as the protocol says, "), Not(HasSubstr("WRONG")),
                    HasSubstr("not provoked  left out"), HasSubstr("--drain does it")));
  EXPECT_EQ(Component("holder/holder").held_layers(), 8);
  EXPECT_EQ(Component("holder/holder").target_layers(), 8);
  EXPECT_EQ(holder.Run(Stage()).bytes_to_device(), 0);
  EXPECT_EQ(Device().in_use_bytes(), 0);
  EXPECT_EQ(Device().components_size(), 1);
  EXPECT_EQ(Device().draining_bytes(), 0);
}

TEST_F(ConformanceTest, JsonNamesWhatWasExpectedOfEveryCheck) {
  StartBroker();
  const ProgramEnd end = Conformance({"--format=json", "--device=" + card_uuid()});
  EXPECT_EQ(end.status, 0) << end.output;
  const nlohmann::json report = nlohmann::json::parse(end.output, nullptr, false);
  ASSERT_TRUE(report.is_object()) << end.output;
  EXPECT_GT(report["as_said"], 150);
  EXPECT_EQ(report["wrong"], 0);
  EXPECT_EQ(report["checks"].size(),
            report["as_said"].get<size_t>() + report["not_provoked"].get<size_t>());
  std::set<std::string> codes;
  for (const nlohmann::json& check : report["checks"]) {
    if (check["verdict"] == "ok") codes.insert(check["got"].get<std::string>());
  }
  for (const char* code :
       {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "ABORTED", "RESOURCE_EXHAUSTED",
        "CANCELLED", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "NOT_FOUND"}) {
    EXPECT_TRUE(codes.count(code) == 1) << code;
  }
}

TEST_F(ConformanceTest, DrainIsProvokedOnlyWhenAskedFor) {
  StartBroker();
  const ProgramEnd end = Conformance({"--drain"});
  EXPECT_EQ(end.status, 0) << end.output;
  EXPECT_THAT(end.output, AllOf(HasSubstr("BeginUse of a broker that drains"),
                                HasSubstr("UNAVAILABLE"), Not(HasSubstr("WRONG"))));
  EXPECT_TRUE(Picture().draining());
  const ProgramEnd again = Conformance({});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("is draining"));
}

TEST_F(ConformanceTest, ADeviceThatIsNotThereIsNoConformingAnswer) {
  StartBroker();
  const ProgramEnd end = Conformance({"--device=other"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.output, AllOf(HasSubstr("WRONG"), HasSubstr("is not a device of this broker")));
}

}  // namespace
}  // namespace vrambroker::e2e
