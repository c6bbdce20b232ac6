// What brings a session's components nearer to their targets between uses, and what is pinned of
// their copies on the host.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/session.h"
#include "client/cpp/session_proto.h"

namespace vrambroker::client {

Work Session::NextWork(const std::string& component) const {
  Work work;
  const auto it = components_.find(component);
  if (it == components_.end() || ActiveUse(component) != nullptr) return work;
  const ComponentState& c = it->second;
  if (orphaned_ && c.held > 0 && c.spec.lifetime() != v1::LIFETIME_PERMANENT) {
    work.kind = Work::Kind::kRelease;
  } else if (c.target.has_value() && c.held > c.target->layers) {
    work.kind = Work::Kind::kRelease;
    work.layers = c.target->layers;
  } else if (MayPin(c)) {
    work.kind = Work::Kind::kPin;
  } else if (c.target.has_value() && c.held < c.target->layers && c.dropped_after == 0 &&
             session_id_ != 0 && now_ >= c.target->not_before &&
             c.spec.lifetime() != v1::LIFETIME_PERMANENT) {
    work.kind = Work::Kind::kLoad;
    work.pace = c.target->pace;
  }
  return work;
}

bool Session::releasing(const std::string& component) const {
  const UseState* use = ActiveUse(component);
  if (use != nullptr) return use->phase == Phase::kEnding;
  return NextWork(component).kind == Work::Kind::kRelease;
}

// ---- Pinning ----

int64_t Session::PinnedBytes() const {
  int64_t bytes = pinned_host_bytes_;
  for (const auto& [name, c] : components_) bytes += c.pinning ? c.spec.pin_host_bytes() : 0;
  return bytes;
}

bool Session::WishesPin(const ComponentState& c) {
  return c.spec.pin_host_bytes() > 0 && !c.pinning && c.spec.host_tier() != v1::HOST_TIER_PINNED;
}

// As the broker allows it: in their order, those that fit whole. One that is in use keeps its part.
bool Session::MayPin(const ComponentState& c) const {
  if (!WishesPin(c)) return false;
  if (pin_freely_) return true;
  if (session_id_ == 0 || !pin_allowance_.has_value()) return false;
  int64_t left = *pin_allowance_ - PinnedBytes();
  for (const auto& [name, other] : components_) {
    if (!WishesPin(other) || other.spec.pin_host_bytes() > left) continue;
    if (&other == &c) return true;
    left -= other.spec.pin_host_bytes();
  }
  return false;
}

bool Session::pins_due() const {
  for (const auto& [name, c] : components_) {
    if (c.pinning || MayPin(c)) return true;
  }
  return false;
}

bool Session::pinning(const std::string& component) const {
  const auto it = components_.find(component);
  return it != components_.end() && it->second.pinning;
}

std::string Session::WhyPageable(const std::string& component) const {
  const auto it = components_.find(component);
  if (it == components_.end()) return "";
  const ComponentState& c = it->second;
  if (!c.pin_refused.ok()) return absl::StrCat("pinning was refused: ", c.pin_refused.ToString());
  if (c.pinning || MayPin(c)) return "it is about to be pinned";
  if (!WishesPin(c)) return "";
  if (session_id_ == 0 || !pin_allowance_.has_value()) return "no broker has allowed it yet";
  return absl::StrCat("it takes ", c.spec.pin_host_bytes(), " bytes of host memory, and of the ",
                      *pin_allowance_, " that the broker allows this worker to pin, ",
                      PinnedBytes(), " are");
}

void Session::SayPinsDue() {
  for (const auto& [name, c] : components_) {
    if (MayPin(c)) Emit(WorkChanged{name});
  }
}

void Session::TakePinAllowance(int64_t bytes) {
  // What was sent before the broker heard of a wish that was given up says too much.
  pin_allowance_ = pins_given_up_ ? std::min(bytes, pin_allowance_.value_or(0)) : bytes;
  SayPinsDue();
  Emit(PinsChanged{});
}

void Session::On(const PinBegins& e) {
  if (NextWork(e.component).kind != Work::Kind::kPin) return;
  components_.at(e.component).pinning = true;
}

void Session::On(const PinEnded& e) {
  const auto it = components_.find(e.component);
  if (it == components_.end() || !it->second.pinning) return;
  ComponentState& c = it->second;
  c.pinning = false;
  if (e.status.ok()) {
    pinned_host_bytes_ = e.pinned_host_bytes.value_or(pinned_host_bytes_ + c.spec.pin_host_bytes());
    c.spec.set_host_tier(v1::HOST_TIER_PINNED);
  } else {
    // Others may have what it does not take, and this worker does without from here on.
    if (pin_allowance_.has_value()) {
      pin_allowance_ = std::max<int64_t>(*pin_allowance_ - c.spec.pin_host_bytes(), 0);
      pins_given_up_ = true;
    }
    c.pin_refused = e.status;
    c.spec.set_pin_host_bytes(0);
    c.spec.set_host_tier(v1::HOST_TIER_PAGEABLE);
  }
  c.host_changed = true;
  report_due_ = true;
  SayPinsDue();
  Emit(PinsChanged{});
}

// What has changed of the host's copies, one call at a time. What is held is told by reports.
void Session::UpdateIfDue() {
  if (update_.has_value() || session_id_ == 0) return;
  v1::UpdateComponentsRequest request;
  for (auto& [name, c] : components_) {
    if (std::exchange(c.host_changed, false)) *request.add_upsert() = c.spec;
  }
  if (request.upsert().empty()) return;
  request.set_session_id(session_id_);
  request.set_request_id(NewRequestId("update"));
  update_ = request;
  update_again_ = absl::InfiniteFuture();
  Emit(SendUpdate{attach_number_, std::move(request)});
}

void Session::On(const UpdateAnswered& e) {
  if (e.attach_number != attach_number_ || session_id_ == 0) return;
  if (!update_.has_value() || update_->request_id() != e.request_id) return;
  if (IsPassing(e.status)) {
    update_again_ = now_ + kSendAgain;
    return;
  }
  update_.reset();
}

}  // namespace vrambroker::client
