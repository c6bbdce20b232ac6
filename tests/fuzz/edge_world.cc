#include "tests/fuzz/edge_world.h"

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/server/checks.h"
#include "broker/server/convert_answers.h"
#include "broker/server/convert_attach.h"
#include "broker/server/convert_calls.h"
#include "broker/server/convert_explanation.h"
#include "broker/server/looks.h"

namespace vrambroker::fuzz {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr size_t kMostWatchers = 8;

core::Config SmallConfig() {
  core::Config config;
  config.load_ahead = true;
  config.max_sessions = 8;
  config.max_components = 32;
  config.max_waiting = 8;
  config.max_runs = 16;
  config.max_pipelines_per_session = 4;
  config.max_request_ids = 8;
  config.max_decisions = 64;
  config.horizon = 32;
  return config;
}

std::vector<core::DeviceSpec> OneCard() {
  core::DeviceSpec card;
  card.uuid = "GPU-0";
  card.capacity = core::Bytes(64 * kMiB);
  card.reserve = core::Bytes(kMiB);
  card.has_probe = true;
  return {card};
}

template <typename Message>
Message Parse(const std::string& payload, bool* good) {
  Message message;
  *good = message.ParseFromString(payload);
  return message;
}

// The message that a call's answer is written to.
template <typename Answer>
struct ResponseOf;
template <>
struct ResponseOf<core::BeginAnswer> {
  using Type = v1::BeginUseResponse;
};
template <>
struct ResponseOf<core::EndAnswer> {
  using Type = v1::EndUseResponse;
};
template <>
struct ResponseOf<core::ReportAnswer> {
  using Type = v1::ReportResidencyResponse;
};
template <>
struct ResponseOf<core::UpdateAnswer> {
  using Type = v1::UpdateComponentsResponse;
};
template <>
struct ResponseOf<core::DeclareRunAnswer> {
  using Type = v1::DeclareRunResponse;
};
template <>
struct ResponseOf<core::EmptyAnswer> {
  using Type = v1::DrainResponse;
};

}  // namespace

EdgeWorld::EdgeWorld()
    : machine_(SmallConfig(), OneCard()), now_(absl::UnixEpoch() + absl::Hours(1)) {}

core::CallId EdgeWorld::NewCall() {
  const core::CallId call(++calls_);
  open_.insert(call);
  return call;
}

void EdgeWorld::Step(const core::Event& event) {
  for (const core::Effect& effect : machine_.Step(event, now_)) CarryOut(effect);
  machine_.CheckInvariants();
}

void EdgeWorld::CarryOut(const core::Effect& effect) {
  if (const auto* answer = std::get_if<core::Answer>(&effect)) {
    VRAM_CHECK(open_.erase(answer->call) == 1);
    std::visit(
        [](const auto& result) {
          using Result = std::decay_t<decltype(result)>;
          if constexpr (!std::is_same_v<Result, absl::Status>) {
            typename ResponseOf<Result>::Type response;
            server::Write(result, &response);
          }
        },
        answer->result);
  }
  if (const auto* logged = std::get_if<core::LogDecision>(&effect)) Tell(logged->decision);
  if (const auto* directive = std::get_if<core::SendDirective>(&effect)) {
    v1::Directive message;
    if (directive->welcome.has_value()) {
      server::Write(*directive->welcome, message.mutable_welcome());
    }
    for (const core::Target& target : directive->targets) {
      server::Write(target, message.add_targets());
    }
    if (directive->pin_allowance.has_value()) {
      message.set_pin_allowance_bytes(directive->pin_allowance->count());
    }
  }
}

// Those of before that are wanted, and from now on each one, as the service does it.
void EdgeWorld::Watch(const v1::WatchDecisionsRequest& request) {
  server::Checks checks;
  checks.Range("limit", request.limit(), 0, server::kMaxDecisions);
  if (!checks.ok() || watchers_.size() >= kMostWatchers) return;
  const auto limit = static_cast<size_t>(request.limit());
  const core::DecisionId after(request.after_decision_id());
  v1::ListDecisionsResponse known;
  if (limit > 0) server::CopyDecisions(machine_, limit, after, &known);
  VRAM_CHECK(static_cast<size_t>(known.decisions_size()) <= limit);
  uint64_t newest = 0;
  for (const v1::Decision& decision : known.decisions()) {
    VRAM_CHECK(decision.id() > newest && decision.id() > after.value());
    newest = decision.id();
  }
  watchers_.push_back(newest);
}

void EdgeWorld::Tell(const core::Decision& decision) {
  v1::Decision message;
  server::Write(decision, &message);
  for (uint64_t& newest : watchers_) {
    VRAM_CHECK(message.id() > newest);
    newest = message.id();
  }
}

void EdgeWorld::WritePicture() {
  v1::Picture picture;
  server::Write(machine_.GetPicture(now_), &picture);
  v1::ListDecisionsResponse decisions;
  for (const core::Decision& decision : machine_.decisions()) {
    server::Write(decision, decisions.add_decisions());
  }
}

void EdgeWorld::Take(const Record& record) {
  if (record.kind >= Kind::kTick) {
    TakeNumber(record);
  } else if (record.kind >= Kind::kListDecisions) {
    Look(record);
  } else {
    TakeRequest(record);
  }
}

void EdgeWorld::TakeRequest(const Record& record) {
  bool good = false;
  // A checked request of one kind, as an event with a call.
  const auto take = [&](auto event) {
    if (!good || !event.ok()) return;
    event->header.call = NewCall();
    Step(*std::move(event));
  };
  switch (record.kind) {
    case Kind::kAttach: {
      auto event = server::ReadAttach(Parse<v1::AttachRequest>(record.payload, &good));
      if (!good || !event.ok()) return;
      event->connection = core::ConnectionId(++connections_);
      return Step(*std::move(event));
    }
    case Kind::kUpdateComponents: {
      std::string device;
      auto event =
          server::ReadUpdate(Parse<v1::UpdateComponentsRequest>(record.payload, &good), &device);
      // The service refuses another device than the session's.
      if (device.empty() || device == "GPU-0") take(std::move(event));
      return;
    }
    case Kind::kBeginUse:
      return take(server::ReadBeginUse(Parse<v1::BeginUseRequest>(record.payload, &good)));
    case Kind::kEndUse:
      return take(server::ReadEndUse(Parse<v1::EndUseRequest>(record.payload, &good)));
    case Kind::kReportResidency:
      return take(server::ReadReport(Parse<v1::ReportResidencyRequest>(record.payload, &good)));
    case Kind::kDeclarePipeline:
      return take(
          server::ReadDeclarePipeline(Parse<v1::DeclarePipelineRequest>(record.payload, &good)));
    case Kind::kDeclareRun:
      return take(server::ReadDeclareRun(Parse<v1::DeclareRunRequest>(record.payload, &good)));
    case Kind::kFinishRun:
      return take(server::ReadFinishRun(Parse<v1::FinishRunRequest>(record.payload, &good)));
    default:
      return;
  }
}

void EdgeWorld::Look(const Record& record) {
  bool good = false;
  switch (record.kind) {
    case Kind::kExplainDecision: {
      const auto request = Parse<v1::ExplainDecisionRequest>(record.payload, &good);
      if (!good || request.decision_id() == 0) return;
      const auto why = machine_.Explain(core::DecisionId(request.decision_id()));
      v1::ExplainDecisionResponse response;
      if (why.ok()) server::Write(*why, &response);
      return;
    }
    case Kind::kWatchPicture: {
      const auto request = Parse<v1::WatchPictureRequest>(record.payload, &good);
      server::Checks checks;
      checks.Duration("min_interval", request.min_interval());
      if (!checks.ok()) return;
      google::protobuf::Duration back;
      server::FromDuration(server::ToDuration(request.min_interval()), &back);
      return;
    }
    case Kind::kWatchDecisions: {
      const auto request = Parse<v1::WatchDecisionsRequest>(record.payload, &good);
      if (good) Watch(request);
      return;
    }
    case Kind::kListDecisions: {
      const auto request = Parse<v1::ListDecisionsRequest>(record.payload, &good);
      server::Checks checks;
      checks.Range("limit", request.limit(), 0, server::kMaxDecisions);
      return;
    }
    case Kind::kDrain:
      return Step(core::DrainEvent{NewCall()});
    default:
      return;
  }
}

void EdgeWorld::TakeNumber(const Record& record) {
  const uint32_t number = Number(record);
  switch (record.kind) {
    case Kind::kTick:
      now_ += absl::Milliseconds(number);
      return Step(core::TickEvent{});
    case Kind::kStreamClosed:
      return Step(core::StreamClosedEvent{core::ConnectionId(number % 16)});
    case Kind::kCallCancelled:
      return Step(core::CallCancelledEvent{core::CallId(number % 64)});
    case Kind::kProcessDied:
      return Step(core::ProcessDiedEvent{{static_cast<int32_t>(number % 8), number % 8}});
    case Kind::kReading: {
      Step(core::ReadingBeganEvent{"GPU-0", ++readings_});
      core::ReadingEvent reading;
      reading.device_uuid = "GPU-0";
      reading.reading = readings_;
      reading.total_used = core::Bytes(int64_t{number % 128} * kMiB);
      reading.by_process_known = number % 2 == 0;
      if (reading.by_process_known) reading.by_process = {{1, reading.total_used}};
      return Step(reading);
    }
    default:
      return;
  }
}

}  // namespace vrambroker::fuzz
