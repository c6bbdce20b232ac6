#include "broker/ctl/broker_commands.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "broker/ctl/connection.h"
#include "broker/ctl/follow_decisions.h"
#include "broker/ctl/render.h"
#include "broker/ctl/render_explanation.h"
#include "broker/ctl/render_picture.h"
#include "broker/ctl/render_workers.h"
#include "broker/ctl/styled.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::ctl {
namespace {

// Decisions that a broker keeps at most.
constexpr int kMaxDecisions = 4096;
// Where a picture goes to no terminal.
constexpr size_t kColumnsOfAFile = 80;

using Words = std::vector<std::string>;
using Admin = v1::BrokerAdmin::Stub;

// One question to a broker: its flags, its channel, and where what comes is written to.
struct Question {
  std::ostream& out;
  std::ostream& error;
  Connection connection = {};
  std::shared_ptr<grpc::Channel> channel = nullptr;

  // From the arguments; false: what is wrong with them was said.
  bool Prepare(const std::string& command, const absl::StatusOr<Arguments>& arguments,
               const absl::Status& checked) {
    absl::Status status = arguments.status();
    if (status.ok()) status = checked;
    if (status.ok()) {
      absl::StatusOr<Connection> taken = TakeConnection(*arguments, absl::ZeroDuration());
      status = taken.status();
      if (taken.ok()) connection = *std::move(taken);
    }
    if (!status.ok()) {
      TellMisuse(command, status, error);
      return false;
    }
    const auto connected = Connect(connection);
    if (connected.ok()) {
      channel = *connected;
    } else {
      error << "vramctl: " << connected.status().message() << "\n";
    }
    return connected.ok();
  }

  // Asks; false: that no answer came was said.
  template <typename Request, typename Response>
  bool Ask(grpc::Status (Admin::*method)(grpc::ClientContext*, const Request&, Response*),
           const Request& request, Response* response) {
    grpc::ClientContext context;
    connection.SetDeadline(&context);
    const std::unique_ptr<Admin> admin = v1::BrokerAdmin::NewStub(channel);
    const grpc::Status status = (admin.get()->*method)(&context, request, response);
    if (!status.ok()) TellFailure(status, connection, error);
    return status.ok();
  }

  int Print(const google::protobuf::Message& answer, const std::string& table) {
    if (!connection.json) {
      out << table;
      return kDone;
    }
    const absl::StatusOr<std::string> json = JsonOf(answer, /*lines=*/true);
    if (!json.ok()) {
      error << "vramctl: " << json.status().message() << "\n";
      return kFailed;
    }
    out << *json;
    return kDone;
  }
};

absl::StatusOr<Arguments> Parse(const Words& arguments, std::vector<FlagSpec> own) {
  return Arguments::Parse(arguments, WithConnectionFlags(std::move(own)));
}

absl::Status NoWords(const absl::StatusOr<Arguments>& arguments) {
  return arguments.ok() ? CheckNoWords(*arguments) : absl::OkStatus();
}

int Status(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, {});
  Question question{out, error};
  v1::Picture picture;
  if (!question.Prepare("status", parsed, NoWords(parsed)) ||
      !question.Ask(&Admin::GetPicture, v1::GetPictureRequest(), &picture)) {
    return kFailed;
  }
  const bool to_terminal = &out == &std::cout;
  const size_t columns = to_terminal ? ColumnsOf(STDOUT_FILENO, kColumnsOfAFile) : kColumnsOfAFile;
  return question.Print(
      picture, PaintAll(PictureLines(picture, columns), to_terminal && MayColour(STDOUT_FILENO)));
}

std::vector<FlagSpec> DecisionsFlags() { return {{"limit"}, {"follow", false}}; }

// Only who follows can do without those of before.
absl::Status TakeLimit(const absl::StatusOr<Arguments>& arguments, int* limit) {
  if (!arguments.ok()) return absl::OkStatus();
  const int least = arguments->Has("follow") ? 0 : 1;
  const std::string given = arguments->Get("limit", absl::StrCat(*limit));
  if (!absl::SimpleAtoi(given, limit) || *limit < least || *limit > kMaxDecisions) {
    return absl::InvalidArgumentError(
        absl::StrCat("--limit: ", given, " given, ", least, " to ", kMaxDecisions, " is allowed"));
  }
  return CheckNoWords(*arguments);
}

int Decisions(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, DecisionsFlags());
  int limit = 20;
  Question question{out, error};
  if (!question.Prepare("decisions", parsed, TakeLimit(parsed, &limit))) return kFailed;
  if (parsed->Has("follow")) {
    return FollowDecisions(question.connection, question.channel, limit, out, error);
  }
  v1::ListDecisionsRequest request;
  request.set_limit(limit);
  v1::ListDecisionsResponse decisions;
  if (!question.Ask(&Admin::ListDecisions, request, &decisions)) return kFailed;
  return question.Print(decisions, RenderDecisions(decisions));
}

absl::Status TakeDecision(const absl::StatusOr<Arguments>& arguments, uint64_t* decision) {
  if (!arguments.ok()) return absl::OkStatus();
  const std::string given = absl::StrJoin(arguments->words(), " ");
  if (arguments->words().size() == 1 && absl::SimpleAtoi(given, decision) && *decision > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("explain takes one decision id, a number from 1 on, '", given,
                   "' given; vramctl decisions lists them"));
}

int Explain(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, {});
  uint64_t decision = 0;
  Question question{out, error};
  if (!question.Prepare("explain", parsed, TakeDecision(parsed, &decision))) return kFailed;
  v1::ExplainDecisionRequest request;
  request.set_decision_id(decision);
  v1::ExplainDecisionResponse why;
  if (!question.Ask(&Admin::ExplainDecision, request, &why)) return kFailed;
  return question.Print(why, RenderExplanation(why));
}

int Runs(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, {});
  Question question{out, error};
  v1::ListRunsResponse runs;
  if (!question.Prepare("runs", parsed, NoWords(parsed)) ||
      !question.Ask(&Admin::ListRuns, v1::ListRunsRequest(), &runs)) {
    return kFailed;
  }
  return question.Print(runs, RenderRuns(runs));
}

int Workers(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, {});
  Question question{out, error};
  v1::Picture picture;
  if (!question.Prepare("workers", parsed, NoWords(parsed)) ||
      !question.Ask(&Admin::GetPicture, v1::GetPictureRequest(), &picture)) {
    return kFailed;
  }
  const std::vector<WorkerRow> workers = WorkersOf(picture);
  out << (question.connection.json ? WorkersJson(workers) : WorkersTable(workers));
  return kDone;
}

// grpc.health.v1.Health/Check by hand, as the distribution ships no code for it: the request is
// empty, the response's field 1 is the state, 1 for serving.
grpc::Status AskHealth(const Question& question, bool* serving) {
  grpc::GenericStub stub(question.channel);
  grpc::ClientContext context;
  question.connection.SetDeadline(&context);
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
  if (!status.ok()) return status;
  grpc::Slice state;
  *serving = received.DumpToSingleSlice(&state).ok() && state.size() == 2 &&
             state.begin()[0] == 0x08 && state.begin()[1] == 1;
  return status;
}

std::vector<FlagSpec> HealthFlags() { return {{"live", false}}; }

int Health(const Words& arguments, std::ostream& out, std::ostream& error) {
  const auto parsed = Parse(arguments, HealthFlags());
  Question question{out, error};
  if (!question.Prepare("health", parsed, NoWords(parsed))) return kFailed;
  bool serving = false;
  if (const grpc::Status status = AskHealth(question, &serving); !status.ok()) {
    TellFailure(status, question.connection, error);
    return kFailed;
  }
  const bool live = parsed->Has("live");
  if (question.connection.json) {
    out << "{" << (live ? "\"live\": true, " : "")
        << "\"serving\": " << (serving ? "true" : "false") << "}\n";
  } else {
    out << (live ? "live, " : "") << (serving ? "serving\n" : "not serving\n");
  }
  return serving || live ? kDone : kNotSo;
}

// The help of a command: what it does, flags of its own, the shared ones, its exit statuses.
std::string Usage(const std::string& what, const std::string& own_flags,
                  const std::string& statuses =
                      "0 done, 2 wrong arguments, or the broker did not "
                      "answer or refused.\n") {
  return absl::StrCat(what, "\nFlags:\n", own_flags, kConnectionUsage,
                      "  --timeout=DURATION             how long to wait for the broker, 1h at "
                      "most; default: 5s\n\nExit status: ",
                      statuses);
}

}  // namespace

std::vector<Command> BrokerCommands() {
  const std::vector<FlagSpec> shared = WithConnectionFlags({});
  return {
      {"status", "", "the memory picture: who holds what, who waits for what",
       Usage("Shows the memory picture: the ledger of each device, its components, its workers,\n"
             "and which uses wait for what.\n\n  vramctl status [flags]\n",
             ""),
       shared, Status},
      {"decisions", "", "the last decisions, newest last",
       Usage("Lists the last decisions, newest last.\n\n  vramctl decisions [flags]\n",
             "  --limit=N                      at most so many, 1 to 4096; default: 20; 0 with\n"
             "                                 --follow: only those that follow\n"
             "  --follow                       and each one that follows, until Ctrl-C, the end of "
             "who\n"
             "                                 reads them, or that of the broker (status 2); JSON "
             "has\n"
             "                                 one in each line\n"),
       WithConnectionFlags(DecisionsFlags()), Decisions},
      {"explain", "ID", "why that decision fell so, and what else it could have been",
       Usage("Says why a decision fell as it did, and what the alternatives would have cost.\n"
             "vramctl decisions lists the ids.\n\n  vramctl explain ID [flags]\n",
             "",
             "0 done, 2 wrong arguments, there is no such decision any more, or the\nbroker did "
             "not answer or refused.\n"),
       shared, Explain},
      {"runs", "", "declared runs that have not ended, and how far they are",
       Usage("Lists the declared runs that have not ended: the future that the broker knows.\n\n"
             "  vramctl runs [flags]\n",
             ""),
       shared, Runs},
      {"workers", "", "the sessions of worker processes, and what each holds",
       Usage("Lists the worker processes: what they hold and are charged with, what the driver "
             "shows\nfor them beyond that, and whether a release is late.\n\n"
             "  vramctl workers [flags]\n",
             ""),
       shared, Workers},
      {"health", "", "whether it serves, for probes",
       Usage(
           "Says whether the broker serves, as an exec probe of an orchestrator asks for "
           "readiness.\nOne that drains does not, and must not be ended before its uses end: a "
           "liveness probe asks\nwith --live, which passes while the broker answers at all. Needs "
           "no role.\n\n"
           "  vramctl health [flags]\n",
           "  --live                         0 for any answer\n",
           "0 serving (with --live: it answers), 1 it answers that it is not, as\nwhile it drains, "
           "2 wrong arguments or no answer: to a probe all but 0 is a failure.\n--timeout should "
           "be less than the probe's own.\n"),
       WithConnectionFlags(HealthFlags()), Health}};
}

}  // namespace vrambroker::ctl
