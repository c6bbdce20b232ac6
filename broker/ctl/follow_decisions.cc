#include "broker/ctl/follow_decisions.h"

#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "broker/ctl/command.h"
#include "broker/ctl/printable.h"
#include "broker/ctl/reader_watch.h"
#include "vrambroker/v1/admin.grpc.pb.h"

namespace vrambroker::ctl {
namespace {

std::string Word(const std::string& name, const std::string& prefix) {
  return std::string(absl::StripPrefix(name, prefix));
}

}  // namespace

std::string RenderDecisionLine(const v1::Decision& one) {
  const absl::Time time =
      absl::FromUnixSeconds(one.time().seconds()) + absl::Nanoseconds(one.time().nanos());
  return absl::StrFormat("%s  %6d  %-10s  %-24s  %4d  %9s  %-16s  %s\n",
                         absl::FormatTime("%H:%M:%E3S", time, absl::LocalTimeZone()), one.id(),
                         Word(v1::DecisionKind_Name(one.kind()), "DECISION_KIND_"),
                         PrintableAscii(one.component_id()), one.held_layers(),
                         absl::StrCat(one.layers(), "/", one.component_layers()),
                         Word(v1::Reason_Name(one.reason()), "REASON_"), Printable(one.text()));
}

int FollowDecisions(const Connection& connection, const std::shared_ptr<grpc::Channel>& channel,
                    int limit, std::ostream& out, std::ostream& error) {
  grpc::Status status(grpc::StatusCode::UNAVAILABLE, "no connection in time");
  if (channel->WaitForConnected(absl::ToChronoTime(absl::Now() + connection.timeout))) {
    grpc::ClientContext context;
    v1::WatchDecisionsRequest request;
    request.set_limit(limit);
    const auto admin = v1::BrokerAdmin::NewStub(channel);
    const auto reader = admin->WatchDecisions(&context, request);
    // A broker that decides nothing for hours gives nothing to write, which would tell.
    const int watched = &out == &std::cout ? STDOUT_FILENO : -1;
    const ReaderWatch reader_of_output(watched, [&context] { context.TryCancel(); });
    v1::Decision decision;
    while (reader->Read(&decision)) {
      if (connection.json) {
        const absl::StatusOr<std::string> json = JsonOf(decision, /*lines=*/false);
        if (!json.ok()) error << "vramctl: " << json.status().message() << "\n";
        out << (json.ok() ? *json : "");
      } else {
        out << RenderDecisionLine(decision);
      }
      if (!out.flush().good()) {
        context.TryCancel();
        return kFailed;
      }
    }
    status = reader->Finish();
    if (reader_of_output.left()) {
      EndWithReader();
      return kFailed;
    }
  }
  TellFailure(status, connection, error);
  return kFailed;
}

}  // namespace vrambroker::ctl
