#include "broker/ctl/broker_commands.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "broker/ctl/render.h"
#include "broker/ctl/render_explanation.h"
#include "client/cpp/broker_client.h"
#include "vrambroker/v1/admin.grpc.pb.h"

ABSL_FLAG(std::string, address, "",
          "unix:PATH or HOST:PORT of the broker; empty: $VRAM_BROKER_ADDRESS, else "
          "/run/vram-broker/broker.sock where that exists, else "
          "$XDG_RUNTIME_DIR/vram-broker/broker.sock");
ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, limit, 20, "of decisions: at most so many, 1 to 4096");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "how long to wait for the broker");

namespace vrambroker::ctl {
namespace {

constexpr int kNotServing = 1;
constexpr int kFailed = 2;
// Decisions that a broker keeps at most.
constexpr int kMaxDecisions = 4096;

std::string Address() {
  const std::string given = absl::GetFlag(FLAGS_address);
  return given.empty() ? client::DefaultAddress() : given;
}

// What is wrong with a flag's value, and what is allowed; empty: nothing.
std::string FlagFault() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "table" && format != "json") {
    return absl::StrCat("--format: '", format, "' given, table or json is allowed");
  }
  const int limit = absl::GetFlag(FLAGS_limit);
  if (limit < 1 || limit > kMaxDecisions) {
    return absl::StrCat("--limit: ", limit, " given, 1 to ", kMaxDecisions, " is allowed");
  }
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (timeout <= absl::ZeroDuration()) {
    return absl::StrCat("--timeout: ", absl::FormatDuration(timeout),
                        " given, a duration above 0 is allowed, such as 500ms or 5s");
  }
  return "";
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + absl::GetFlag(FLAGS_timeout)));
}

int Fail(const grpc::Status& status, const std::string& address) {
  std::fprintf(stderr, "vramctl: the broker at %s: %s\n", address.c_str(),
               status.error_message().c_str());
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    std::fprintf(stderr, "vramctl: does one run there? --address gives another place\n");
  }
  return kFailed;
}

void Print(const google::protobuf::Message& message, const std::string& table) {
  if (absl::GetFlag(FLAGS_format) != "json") {
    std::fputs(table.c_str(), stdout);
    return;
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    std::puts(json.c_str());
  }
}

int Status(const std::string& address, const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::Picture picture;
  const grpc::Status status = v1::BrokerAdmin::NewStub(channel)->GetPicture(&context, {}, &picture);
  if (!status.ok()) return Fail(status, address);
  Print(picture, RenderPicture(picture));
  return 0;
}

int Decisions(const std::string& address, const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ListDecisionsRequest request;
  request.set_limit(absl::GetFlag(FLAGS_limit));
  v1::ListDecisionsResponse decisions;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(channel)->ListDecisions(&context, request, &decisions);
  if (!status.ok()) return Fail(status, address);
  Print(decisions, RenderDecisions(decisions));
  return 0;
}

int Explain(const std::string& address, const std::shared_ptr<grpc::Channel>& channel,
            uint64_t decision) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::ExplainDecisionRequest request;
  request.set_decision_id(decision);
  v1::ExplainDecisionResponse why;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(channel)->ExplainDecision(&context, request, &why);
  if (!status.ok()) return Fail(status, address);
  Print(why, RenderExplanation(why));
  return 0;
}

// grpc.health.v1.Health/Check by hand, as the distribution ships no code for it: the request is
// empty, the response's field 1 is the state, 1 for serving.
int Health(const std::string& address, const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(&context);
  grpc::CompletionQueue queue;
  const grpc::Slice empty("", 0);
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                    grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer received;
  grpc::Status status;
  call->Finish(&received, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return Fail(status, address);
  grpc::Slice state;
  const bool serving = received.DumpToSingleSlice(&state).ok() && state.size() == 2 &&
                       state.begin()[0] == 0x08 && state.begin()[1] == 1;
  if (absl::GetFlag(FLAGS_format) == "json") {
    std::printf("{\"serving\": %s}\n", serving ? "true" : "false");
  } else {
    std::puts(serving ? "serving" : "not serving");
  }
  return serving ? 0 : kNotServing;
}

int Run(const std::vector<char*>& words) {
  if (const std::string fault = FlagFault(); !fault.empty()) {
    std::fprintf(stderr, "vramctl: %s\n", fault.c_str());
    return kFailed;
  }
  const std::string command = words.size() > 1 ? words[1] : "";
  uint64_t decision = 0;
  if (command == "explain") {
    const std::string given = absl::StrJoin(words.begin() + 2, words.end(), " ");
    if (words.size() != 3 || !absl::SimpleAtoi(given, &decision) || decision == 0) {
      std::fprintf(stderr,
                   "vramctl: explain takes one decision id, a number from 1 on, '%s' given; "
                   "vramctl decisions lists them\n",
                   given.c_str());
      return kFailed;
    }
  } else if (words.size() > 2) {
    std::fprintf(stderr,
                 "vramctl: '%s' after '%s' is not known: no argument goes there; --help "
                 "lists the flags\n",
                 words[2], command.c_str());
    return kFailed;
  }
  const std::string address = Address();
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  if (command == "status") return Status(address, channel);
  if (command == "decisions") return Decisions(address, channel);
  if (command == "explain") return Explain(address, channel, decision);
  if (command == "health") return Health(address, channel);
  std::fprintf(stderr,
               "vramctl: '%s' is no command: status, decisions, explain, health, "
               "simulate or plan; --help says more\n",
               command.c_str());
  return kFailed;
}

}  // namespace

int AskBroker(int argc, char** argv, const char* usage) {
  absl::SetProgramUsageMessage(usage);
  return Run(absl::ParseCommandLine(argc, argv));
}

}  // namespace vrambroker::ctl
