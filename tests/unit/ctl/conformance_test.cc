// What a conformance run says of brokers that answer wrong.
#include "broker/ctl/conformance.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "vrambroker/v1/admin.grpc.pb.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::ctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Verdict = ConformanceCheck::Verdict;

// Attaches everybody, and has one answer for every other call.
class OneAnswerBroker final : public v1::VramBroker::Service {
 public:
  explicit OneAnswerBroker(grpc::Status answer) : answer_(std::move(answer)) {}

  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest*,
                      grpc::ServerWriter<v1::Directive>* writer) override {
    v1::Directive welcome;
    welcome.mutable_welcome()->set_session_id(1);
    while (!context->IsCancelled() && writer->Write(welcome)) continue;
    return grpc::Status::OK;
  }
  grpc::Status UpdateComponents(grpc::ServerContext*, const v1::UpdateComponentsRequest*,
                                v1::UpdateComponentsResponse*) override {
    return answer_;
  }
  grpc::Status BeginUse(grpc::ServerContext*, const v1::BeginUseRequest*,
                        v1::BeginUseResponse*) override {
    return answer_;
  }
  grpc::Status EndUse(grpc::ServerContext*, const v1::EndUseRequest*,
                      v1::EndUseResponse*) override {
    return answer_;
  }
  grpc::Status ReportResidency(grpc::ServerContext*, const v1::ReportResidencyRequest*,
                               v1::ReportResidencyResponse*) override {
    return answer_;
  }
  grpc::Status DeclarePipeline(grpc::ServerContext*, const v1::DeclarePipelineRequest*,
                               v1::DeclarePipelineResponse*) override {
    return answer_;
  }
  grpc::Status DeclareRun(grpc::ServerContext*, const v1::DeclareRunRequest*,
                          v1::DeclareRunResponse*) override {
    return answer_;
  }
  grpc::Status FinishRun(grpc::ServerContext*, const v1::FinishRunRequest*,
                         v1::FinishRunResponse*) override {
    return answer_;
  }

 private:
  const grpc::Status answer_;
};

class OneAnswerAdmin final : public v1::BrokerAdmin::Service {
 public:
  grpc::Status GetPicture(grpc::ServerContext*, const v1::GetPictureRequest*,
                          v1::Picture*) override {
    return grpc::Status::OK;
  }
};

// Over a socket: an in-process channel hands the caller's own bytes to the service, which the
// thread sanitizer cannot follow through a library that is not instrumented.
absl::StatusOr<ConformanceReport> ReportOf(const grpc::Status& answer) {
  OneAnswerBroker broker(answer);
  OneAnswerAdmin admin;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&broker);
  builder.RegisterService(&admin);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return absl::InternalError("no port for the server");
  ConformanceOptions options;
  options.channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  options.timeout = absl::Seconds(1);
  return RunConformance(options);
}

bool Wrong(const ConformanceReport& report, const std::string& check) {
  return std::any_of(report.checks().begin(), report.checks().end(),
                     [&](const ConformanceCheck& one) {
                       return one.check == check && one.verdict == Verdict::kNotAsSaid;
                     });
}

TEST(ConformanceTest, ABrokerThatSaysYesToEverythingIsFoundOut) {
  const absl::StatusOr<ConformanceReport> report = ReportOf(grpc::Status::OK);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->AllAsSaid());
  EXPECT_GT(report->Count(Verdict::kNotAsSaid), 100);
  for (const char* check :
       {"the first directive of a stream", "the stream before it", "Attach with an older number",
        "EndUse by its id of before", "a snapshot that leaves a component out",
        "EndUse of ever more uses that never began", "BeginUse under its request_id: it has ended",
        "that BeginUse", "BeginUse while one runs, until its deadline",
        "BeginUse that would wait for a use that its own run holds",
        "BeginUse with an activation of 32 TiB", "FinishRun by another driver",
        "DeclarePipeline of ever more pipelines", "EndUse again with another payload",
        "Attach: attach_number 0", "BeginUse: priority 101"}) {
    EXPECT_TRUE(Wrong(*report, check)) << check << "\n" << report->Table();
  }
  EXPECT_THAT(report->Table(), HasSubstr(absl::StrCat(report->Count(Verdict::kAsSaid), " of ",
                                                      report->Count(Verdict::kAsSaid) +
                                                          report->Count(Verdict::kNotAsSaid),
                                                      " as the protocol says")));
}

TEST(ConformanceTest, TheRightCodeWithoutTheFieldIsNotEnough) {
  const absl::StatusOr<ConformanceReport> report =
      ReportOf({grpc::StatusCode::INVALID_ARGUMENT, "no"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(Wrong(*report, "BeginUse: priority 101")) << report->Table();
  EXPECT_THAT(report->Table(), AllOf(HasSubstr("INVALID_ARGUMENT naming \"priority\""),
                                     HasSubstr("INVALID_ARGUMENT: no")));
}

TEST(ConformanceTest, WithoutTheRolesNothingIsChecked) {
  const absl::StatusOr<ConformanceReport> report =
      ReportOf({grpc::StatusCode::PERMISSION_DENIED, "needs the role worker"});
  EXPECT_EQ(report.status(), absl::PermissionDeniedError("needs the role worker"));
}

TEST(ConformanceReportTest, NothingCheckedIsNotAsSaid) {
  ConformanceReport report;
  report.NotProvoked("a check", "OK", "why not");
  EXPECT_FALSE(report.AllAsSaid());
  EXPECT_THAT(report.Table(), HasSubstr("0 of 0 as the protocol says, 1 not provoked"));
}

TEST(ConformanceReportTest, JsonIsReadableWhateverABrokerSays) {
  ConformanceReport report;
  report.SetPart("part");
  report.Code("check", grpc::StatusCode::OK, {grpc::StatusCode::INTERNAL, "\xff\"\n"});
  EXPECT_THAT(report.Json(), AllOf(HasSubstr("\"verdict\": \"WRONG\""), HasSubstr("INTERNAL: "),
                                   HasSubstr("\\\"\\n")));
}

}  // namespace
}  // namespace vrambroker::ctl
