#include "broker/ctl/broker_commands.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "broker/ctl/arguments.h"
#include "broker/ctl/render.h"
#include "broker/ctl/render_explanation.h"
#include "client/cpp/broker_client.h"
#include "client/cpp/credentials.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::ctl {
namespace {

constexpr int kNotServing = 1;
constexpr int kFailed = 2;
// Decisions that a broker keeps at most.
constexpr int kMaxDecisions = 4096;

// What the commands need of the command line.
struct Wanted {
  std::vector<std::string> words;  // the command, and what follows it
  std::string address;
  client::TlsFiles tls;
  bool json = false;
  int limit = 20;  // of decisions
  absl::Duration timeout = absl::Seconds(5);
};

absl::StatusOr<Wanted> Understand(const std::vector<std::string>& arguments) {
  const auto parsed = Arguments::Parse(
      arguments,
      {{"address"}, {"tls-ca"}, {"tls-cert"}, {"tls-key"}, {"format"}, {"limit"}, {"timeout"}});
  if (!parsed.ok()) return parsed.status();
  Wanted wanted;
  wanted.words = parsed->words();
  wanted.address = parsed->Get("address", "");
  if (wanted.address.empty()) wanted.address = client::DefaultAddress();
  wanted.tls = client::WithEnvironment(
      {parsed->Get("tls-ca", ""), parsed->Get("tls-cert", ""), parsed->Get("tls-key", "")});
  const std::string format = parsed->Get("format", "table");
  if (format != "table" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: '", format, "' given, table or json is allowed"));
  }
  wanted.json = format == "json";
  const std::string limit = parsed->Get("limit", absl::StrCat(wanted.limit));
  if (!absl::SimpleAtoi(limit, &wanted.limit) || wanted.limit < 1 || wanted.limit > kMaxDecisions) {
    return absl::InvalidArgumentError(
        absl::StrCat("--limit: ", limit, " given, 1 to ", kMaxDecisions, " is allowed"));
  }
  const std::string timeout = parsed->Get("timeout", absl::FormatDuration(wanted.timeout));
  if (!absl::ParseDuration(timeout, &wanted.timeout) || wanted.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout: ", timeout, " given, a duration above 0 is allowed, such as 500ms or 5s"));
  }
  return wanted;
}

// A broker, and how it is asked.
struct Broker {
  const Wanted& wanted;
  std::shared_ptr<grpc::Channel> channel;

  void SetDeadline(grpc::ClientContext* context) const {
    context->set_deadline(absl::ToChronoTime(absl::Now() + wanted.timeout));
  }
};

int Fail(const grpc::Status& status, const Broker& broker) {
  std::fprintf(stderr, "vramctl: the broker at %s: %s\n", broker.wanted.address.c_str(),
               status.error_message().c_str());
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    std::fprintf(stderr, "vramctl: %s --address gives another place\n",
                 client::WhyUnreachable(broker.wanted.address, broker.wanted.tls).c_str());
  }
  return kFailed;
}

void Print(const google::protobuf::Message& message, const std::string& table, bool as_json) {
  if (!as_json) {
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

int Status(const Broker& broker) {
  grpc::ClientContext context;
  broker.SetDeadline(&context);
  v1::Picture picture;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(broker.channel)->GetPicture(&context, {}, &picture);
  if (!status.ok()) return Fail(status, broker);
  Print(picture, RenderPicture(picture), broker.wanted.json);
  return 0;
}

int Decisions(const Broker& broker) {
  grpc::ClientContext context;
  broker.SetDeadline(&context);
  v1::ListDecisionsRequest request;
  request.set_limit(broker.wanted.limit);
  v1::ListDecisionsResponse decisions;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(broker.channel)->ListDecisions(&context, request, &decisions);
  if (!status.ok()) return Fail(status, broker);
  Print(decisions, RenderDecisions(decisions), broker.wanted.json);
  return 0;
}

int Explain(const Broker& broker, uint64_t decision) {
  grpc::ClientContext context;
  broker.SetDeadline(&context);
  v1::ExplainDecisionRequest request;
  request.set_decision_id(decision);
  v1::ExplainDecisionResponse why;
  const grpc::Status status =
      v1::BrokerAdmin::NewStub(broker.channel)->ExplainDecision(&context, request, &why);
  if (!status.ok()) return Fail(status, broker);
  Print(why, RenderExplanation(why), broker.wanted.json);
  return 0;
}

// grpc.health.v1.Health/Check by hand, as the distribution ships no code for it: the request is
// empty, the response's field 1 is the state, 1 for serving.
int Health(const Broker& broker) {
  grpc::GenericStub stub(broker.channel);
  grpc::ClientContext context;
  broker.SetDeadline(&context);
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
  if (!status.ok()) return Fail(status, broker);
  grpc::Slice state;
  const bool serving = received.DumpToSingleSlice(&state).ok() && state.size() == 2 &&
                       state.begin()[0] == 0x08 && state.begin()[1] == 1;
  if (broker.wanted.json) {
    std::printf("{\"serving\": %s}\n", serving ? "true" : "false");
  } else {
    std::puts(serving ? "serving" : "not serving");
  }
  return serving ? 0 : kNotServing;
}

}  // namespace

int AskBroker(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Wanted> wanted = Understand(arguments);
  if (!wanted.ok()) {
    std::fprintf(stderr, "vramctl: %s; --help says more\n",
                 std::string(wanted.status().message()).c_str());
    return kFailed;
  }
  const std::vector<std::string>& words = wanted->words;
  const std::string command = words.empty() ? "" : words[0];
  uint64_t decision = 0;
  if (command == "explain") {
    const std::string given = absl::StrJoin(words.begin() + 1, words.end(), " ");
    if (words.size() != 2 || !absl::SimpleAtoi(given, &decision) || decision == 0) {
      std::fprintf(stderr,
                   "vramctl: explain takes one decision id, a number from 1 on, '%s' given; "
                   "vramctl decisions lists them\n",
                   given.c_str());
      return kFailed;
    }
  } else if (words.size() > 1) {
    std::fprintf(stderr,
                 "vramctl: '%s' after '%s' is not known: no argument goes there; --help "
                 "lists the flags\n",
                 words[1].c_str(), command.c_str());
    return kFailed;
  }
  const auto credentials = client::MakeCredentials(wanted->address, wanted->tls);
  if (!credentials.ok()) {
    std::fprintf(stderr, "vramctl: %s\n", std::string(credentials.status().message()).c_str());
    return kFailed;
  }
  const Broker broker{*wanted, grpc::CreateChannel(wanted->address, *credentials)};
  if (command == "status") return Status(broker);
  if (command == "decisions") return Decisions(broker);
  if (command == "explain") return Explain(broker, decision);
  if (command == "health") return Health(broker);
  std::fprintf(stderr,
               "vramctl: '%s' is no command: status, decisions, explain, health, "
               "conformance, simulate or plan; --help says more\n",
               command.c_str());
  return kFailed;
}

}  // namespace vrambroker::ctl
