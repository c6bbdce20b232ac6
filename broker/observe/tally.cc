#include "broker/observe/tally.h"

#include <algorithm>

#include "absl/status/status.h"

namespace vrambroker::observe {
namespace {

void NoteKept(const core::Decision& decision, DeviceTally* device) {
  const auto [entry, is_new] = device->kept.try_emplace(decision.component);
  entry->second.newest = ++device->kept_decisions;
  entry->second.bytes[static_cast<size_t>(decision.reason)] += decision.bytes.as_double();
  if (!is_new || device->kept.size() <= kMaxKept) return;
  device->kept.erase(std::min_element(
      device->kept.begin(), device->kept.end(),
      [](const auto& a, const auto& b) { return a.second.newest < b.second.newest; }));
}

}  // namespace

void Tally::Note(const core::Event& event, absl::Duration took) {
  steps_[event.index()].Add(absl::ToDoubleSeconds(took));
  if (const auto* reading = std::get_if<core::ReadingEvent>(&event)) {
    DeviceTally& device = devices_[reading->device_uuid];
    ++(reading->status.ok() ? device.readings : device.failed_readings);
  }
}

void Tally::Note(const core::Effect& effect) {
  if (const auto* logged = std::get_if<core::LogDecision>(&effect)) {
    Note(logged->decision);
  } else if (const auto* count = std::get_if<core::Count>(&effect)) {
    Note(*count);
  } else if (const auto* wait = std::get_if<core::LongWait>(&effect)) {
    ++devices_[wait->device].long_waits;
  } else if (const auto* answer = std::get_if<core::Answer>(&effect)) {
    const auto* status = std::get_if<absl::Status>(&answer->result);
    if (status == nullptr || status->ok()) return;
    const auto code = static_cast<size_t>(status->code());
    if (code < refused_.size()) ++refused_[code];
  }
}

void Tally::Note(const core::Decision& decision) {
  DeviceTally& device = devices_[decision.device];
  const auto reason = static_cast<size_t>(decision.reason);
  DeviceTally::Decided& decided = device.decided[static_cast<size_t>(decision.kind)][reason];
  ++decided.count;
  decided.bytes += decision.bytes.as_double();
  device.given_up[reason] += decision.given_up.as_double();
  if (decision.kind == core::DecisionKind::kGrant && decision.layers < decision.component_layers) {
    ++device.partial_grants;
  }
  if (decision.kind == core::DecisionKind::kRetention) NoteKept(decision, &device);
}

void Tally::Note(const core::Count& count) {
  DeviceTally& device = devices_[count.device];
  const double bytes = count.bytes.as_double();
  const double seconds = absl::ToDoubleSeconds(count.time);
  switch (count.what) {
    case core::Count::What::kUseBegan:
      ++device.uses_begun;
      device.reused_bytes += bytes;
      device.stall_saved_seconds += absl::ToDoubleSeconds(count.saved);
      device.waits.Add(seconds);
      break;
    case core::Count::What::kUseEnded:
      ++device.uses_ended;
      device.loaded_bytes += bytes;
      device.stall_seconds += seconds;
      break;
    case core::Count::What::kReleased:
      device.revoked_bytes += bytes;
      device.revocations.Add(seconds);
      break;
    case core::Count::What::kOverdue:
      ++device.overdue;
      device.overdue_bytes += bytes;
      break;
    case core::Count::What::kLoadedAhead:
      device.loaded_ahead_bytes += bytes;
      break;
    case core::Count::What::kShownFree:
      device.shown_free.Add(seconds);
      break;
  }
}

}  // namespace vrambroker::observe
