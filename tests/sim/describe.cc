#include "tests/sim/describe.h"

#include "absl/strings/str_cat.h"

namespace vrambroker::simulation {
namespace {

std::string Text(const core::Snapshot& s) {
  std::string text = absl::StrCat("#", s.sequence, " pool ", s.pool.count());
  for (const core::Residency& r : s.components) {
    absl::StrAppend(&text, ", ", r.component, "=", r.held, " done g", r.completed.value(),
                    r.fixed_placed ? "" : " unplaced");
  }
  return text;
}

std::string Text(const core::Target& t) {
  return absl::StrCat(t.component, "->", t.layers, " g", t.generation.value());
}

std::string Head(const core::CallHeader& h) {
  return absl::StrCat(" call ", h.call.value(), " session ", h.session.value(), " ", h.request_id);
}

struct EventText {
  std::string operator()(const core::AttachEvent& e) const {
    std::string text =
        absl::StrCat("Attach ", e.worker, " pid ", e.process.pid, " number ", e.attach_number,
                     " connection ", e.connection.value(), " ", Text(e.snapshot));
    for (const auto& u : e.running_uses) {
      absl::StrAppend(&text, "; runs ", u.request_id, " of ", u.component, " with ", u.granted);
    }
    return text;
  }
  std::string operator()(const core::StreamClosedEvent& e) const {
    return absl::StrCat("StreamClosed ", e.connection.value());
  }
  std::string operator()(const core::BeginUseEvent& e) const {
    std::string text = absl::StrCat("BeginUse", Head(e.header), " ", e.use.component, " layers ",
                                    e.use.min_resident, "..", e.use.max_resident, " activation ",
                                    e.use.activation.count(), " priority ", e.use.priority, " run ",
                                    e.use.run.value());
    for (core::UseId held : e.use.held_uses) absl::StrAppend(&text, " holds ", held.value());
    return text;
  }
  std::string operator()(const core::CallCancelledEvent& e) const {
    return absl::StrCat("CallCancelled ", e.call.value());
  }
  std::string operator()(const core::EndUseEvent& e) const {
    return absl::StrCat("EndUse", Head(e.header), " of ", e.begin_request_id, " ",
                        Text(e.snapshot));
  }
  std::string operator()(const core::ReportEvent& e) const {
    return absl::StrCat("Report", Head(e.header), Text(e.snapshot));
  }
  std::string operator()(const core::UpdateComponentsEvent& e) const {
    return absl::StrCat("UpdateComponents", Head(e.header));
  }
  std::string operator()(const core::DeclarePipelineEvent& e) const {
    return absl::StrCat("DeclarePipeline", Head(e.header));
  }
  std::string operator()(const core::DeclareRunEvent& e) const {
    return absl::StrCat("DeclareRun", Head(e.header));
  }
  std::string operator()(const core::FinishRunEvent& e) const {
    return absl::StrCat("FinishRun", Head(e.header), " run ", e.run.value());
  }
  std::string operator()(const core::ProcessDiedEvent& e) const {
    return absl::StrCat("ProcessDied ", e.process.pid);
  }
  std::string operator()(const core::ReadingBeganEvent& e) const {
    return absl::StrCat("ReadingBegan ", e.device_uuid, " ", e.reading);
  }
  std::string operator()(const core::ReadingEvent& e) const {
    std::string text = absl::StrCat("Reading ", e.device_uuid, " ", e.reading, " ",
                                    e.status.ok() ? "total " : "failed ", e.total_used.count());
    for (const auto& [pid, bytes] : e.by_process) {
      absl::StrAppend(&text, ", ", pid, "=", bytes.count());
    }
    return text;
  }
  std::string operator()(const core::TickEvent&) const { return "Tick"; }
  std::string operator()(const core::DrainEvent&) const { return "Drain"; }
};

struct EffectText {
  std::string operator()(const core::RecordCharge& e) const {
    return absl::StrCat("on record: ", e.owner.worker, " (pid ", e.owner.process.pid, ") ",
                        e.owner.charge.count());
  }
  std::string operator()(const core::SendDirective& e) const {
    std::string text = absl::StrCat("directive on ", e.connection.value());
    if (e.welcome.has_value()) {
      absl::StrAppend(&text, ", welcome to session ", e.welcome->session.value());
      for (const auto& r : e.welcome->refused) absl::StrAppend(&text, ", refused ", r.component);
    }
    for (const core::Target& t : e.targets) absl::StrAppend(&text, ", ", Text(t));
    if (e.pin_allowance.has_value()) {
      absl::StrAppend(&text, ", may pin ", e.pin_allowance->count(), " host bytes");
    }
    return absl::StrCat(text, e.trim_pool ? ", trim" : "");
  }
  std::string operator()(const core::CloseStream& e) const {
    return absl::StrCat("close ", e.connection.value(), " ", e.status.ToString());
  }
  std::string operator()(const core::Answer& e) const {
    std::string text = absl::StrCat("answer to ", e.call.value(), ": ");
    if (const auto* status = std::get_if<absl::Status>(&e.result)) {
      return absl::StrCat(text, status->ToString());
    }
    if (const auto* begin = std::get_if<core::BeginAnswer>(&e.result)) {
      return absl::StrCat(text, "use ", begin->use.value(), " with ", begin->resident, " g",
                          begin->generation.value());
    }
    if (const auto* end = std::get_if<core::EndAnswer>(&e.result)) {
      return absl::StrCat(text, Text(end->target), end->trim_pool ? ", trim" : "");
    }
    if (const auto* report = std::get_if<core::ReportAnswer>(&e.result)) {
      for (const core::Target& t : report->targets) absl::StrAppend(&text, Text(t), " ");
    }
    return text;
  }
  std::string operator()(const core::WakeAt& e) const {
    return absl::StrCat("wake at ", absl::ToUnixMicros(e.time) - 1'000'000'000'000, " us");
  }
  std::string operator()(const core::WantReading&) const { return "want a reading"; }
  std::string operator()(const core::LogDecision& e) const {
    return absl::StrCat("decided: ", e.decision.component, ": ", e.decision.text);
  }
  std::string operator()(const core::LongWait& e) const {
    return absl::StrCat(e.component, " waits long: ", e.blocked_by, "; ", e.holders);
  }
  std::string operator()(const core::Count& e) const {
    return absl::StrCat("count ", static_cast<int>(e.what), " on ", e.device, ": ", e.bytes.count(),
                        " bytes, ", absl::FormatDuration(e.time));
  }
};

}  // namespace

std::string Describe(const core::Event& event) { return std::visit(EventText(), event); }
std::string Describe(const core::Effect& effect) { return std::visit(EffectText(), effect); }

}  // namespace vrambroker::simulation
