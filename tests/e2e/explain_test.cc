// What vramctl says of a decision of a real broker.
#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/broker_client.h"
#include "tests/e2e/harness.h"
#include "tests/run_program.h"

namespace vrambroker::e2e {
namespace {

using testing::HasSubstr;

class ExplainTest : public E2eTest {
 protected:
  ProgramEnd Explain(uint64_t decision, const std::string& format) {
    return RunProgram({Program("vramctl"), "explain", absl::StrCat(decision),
                       "--address=" + broker_address(), "--format=" + format});
  }
};

TEST_F(ExplainTest, SaysWhyAComponentWasKeptForItsNextUse) {
  StartBroker({"--load-ahead=false"});
  StageWorker& encoder = StartWorker("encoder");
  StageWorker& decoder = StartWorker("decoder", {.layers = 4});
  client::ClientOptions options;
  options.address = broker_address();
  options.worker = "driver";
  absl::StatusOr<std::unique_ptr<client::BrokerClient>> driver =
      client::BrokerClient::Create(std::move(options));
  ASSERT_TRUE(driver.ok()) << driver.status();
  v1::DeclarePipelineRequest pipeline;
  pipeline.set_pipeline("images");
  for (const char* stage : {"encoder", "decoder", "encoder"}) {
    pipeline.add_stages()->set_component(stage);
  }
  ASSERT_TRUE((*driver)->DeclarePipeline(pipeline).ok());
  const absl::StatusOr<uint64_t> run = (*driver)->DeclareRun("images");
  ASSERT_TRUE(run.ok()) << run.status();
  v1::RunStageRequest request = Stage();
  request.set_run_id(*run);
  EXPECT_EQ(encoder.Run(request).kept_layers(), 8);
  request.set_stage(1);
  EXPECT_EQ(decoder.Run(request).kept_layers(), 4);

  const std::vector<v1::Decision> kept = Decisions(v1::DECISION_KIND_RETENTION);
  ASSERT_EQ(kept.size(), 2u);
  const ProgramEnd text = Explain(kept[0].id(), "table");
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr(absl::StrCat("Decision ", kept[0].id(), ", ")));
  EXPECT_THAT(text.output, HasSubstr("The plan keeps 8 layers of it until its next use."));
  EXPECT_THAT(text.output, HasSubstr("Keeping nothing of it: "));
  EXPECT_THAT(text.output, HasSubstr("more lost to loading; most of all by encoder/encoder"));
  EXPECT_THAT(text.output, HasSubstr("Keeping all 8 layers: this is what"));
  EXPECT_THAT(text.output, HasSubstr("decoder/decoder"));
  const ProgramEnd json = Explain(kept[0].id(), "json");
  EXPECT_EQ(json.status, 0) << json.output;
  EXPECT_THAT(json.output, HasSubstr("\"reproduced\": true"));
  EXPECT_THAT(json.output, HasSubstr("\"kind\": \"ALTERNATIVE_KIND_KEEP_NOTHING\""));
  const ProgramEnd unknown = Explain(100000, "table");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("100000 given, decisions 1 to "));
}

}  // namespace
}  // namespace vrambroker::e2e
